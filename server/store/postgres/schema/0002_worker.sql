-- Version 2: what a task asks of a worker by name (handler, custom resources), the latest start, what is known of an
-- attempt beside its end, what is known of a worker, and metrics.

-- `custom`: "name=count" separated by spaces, in the order of the names; null: none.  `expires_at`: FAILED if no
-- attempt was dispatched by then.
ALTER TABLE task ADD COLUMN handler text COLLATE "C", ADD COLUMN custom text COLLATE "C", ADD COLUMN expires_at timestamptz;
ALTER TABLE ready ADD COLUMN handler text COLLATE "C", ADD COLUMN custom text COLLATE "C", ADD COLUMN expires_at timestamptz;
ALTER TABLE delayed ADD COLUMN handler text COLLATE "C", ADD COLUMN custom text COLLATE "C", ADD COLUMN expires_at timestamptz;
ALTER TABLE running ADD COLUMN handler text COLLATE "C", ADD COLUMN custom text COLLATE "C";
CREATE INDEX ready_expires ON ready (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX delayed_expires ON delayed (expires_at) WHERE expires_at IS NOT NULL;

-- `devices`: separated by spaces.  `log_dropped`: bytes of the log that were not kept.  `cause`: in words, where
-- outcome does not say it all (cancelled by whom, drained, the text of a refusal).
ALTER TABLE running ADD COLUMN devices text, ADD COLUMN cause text;
ALTER TABLE attempt ADD COLUMN instance uuid, ADD COLUMN session bigint, ADD COLUMN devices text,
	ADD COLUMN log_dropped bigint, ADD COLUMN cause text, ADD COLUMN oom_killed boolean;
ALTER TABLE ended ADD COLUMN instance uuid, ADD COLUMN session bigint, ADD COLUMN lease_ns bigint,
	ADD COLUMN devices text, ADD COLUMN log_dropped bigint, ADD COLUMN cause text, ADD COLUMN oom_killed boolean;

-- `info`: what Hello said, an encoded reins.v1.WorkerInfo.  drain_mode: a wish of an operator, holds over
-- sessions; null: none (numbers of reins.v1.DrainMode).  `heard_at`: the last word of a worker whose lease is over;
-- null while a master holds its session.  `detached_until`: it left its programs running; those that are not exclusive
-- are not taken back before; null: it did not, or has a newer session.
ALTER TABLE worker ADD COLUMN info bytea, ADD COLUMN drain_mode smallint, ADD COLUMN drain_within_ns bigint,
	ADD COLUMN drain_reason text, ADD COLUMN heard_at timestamptz, ADD COLUMN detached_until timestamptz;
CREATE INDEX worker_drained ON worker (id) WHERE drain_mode IS NOT NULL;

-- A row with `dropped` is a gap of so many bytes; its data is empty.
ALTER TABLE log ADD COLUMN dropped bigint;
CREATE INDEX log_gap ON log (task_id, attempt) WHERE dropped IS NOT NULL;

-- Points as the program wrote them, numbered from 1 within the attempt by the worker, so that one sent twice is one.
-- `point`: an encoded reins.v1.MetricPoint.
CREATE TABLE metric (
	task_id uuid NOT NULL,
	attempt int NOT NULL,
	number bigint NOT NULL,
	point bytea NOT NULL,
	PRIMARY KEY (task_id, attempt, number)
) PARTITION BY RANGE (task_id);
CREATE TABLE metric_other PARTITION OF metric DEFAULT;

-- Makes the partitions of this week and the next `weeks`, as far as they are missing.  Weeks begin on Monday, UTC.
-- Attaching takes only a lock that lets the work on the parent go on; a partition that can't be
-- made (rows of its range are in the default one) is left out: those rows stay where they are.  Does nothing
-- while somebody else is at it.
CREATE OR REPLACE FUNCTION make_partitions(weeks int) RETURNS int LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
	made int := 0;
	monday timestamp;
	parent text;
	part text;
BEGIN
	IF NOT pg_try_advisory_xact_lock(7239204117) THEN
		RETURN 0;
	END IF;
	FOR n IN 0..weeks LOOP
		monday := date_trunc('week', now() AT TIME ZONE 'UTC') + n * interval '7 days';
		FOREACH parent IN ARRAY ARRAY['task', 'ended', 'attempt', 'log', 'metric'] LOOP
			part := parent || to_char(monday, '_YYYYMMDD');
			CONTINUE WHEN to_regclass('reins.' || part) IS NOT NULL;
			BEGIN
				EXECUTE format('CREATE TABLE reins.%I (LIKE reins.%I INCLUDING ALL)', part, parent);
				IF parent = 'task' THEN
					EXECUTE format('ALTER TABLE reins.%I SET (toast_tuple_target = 4080)', part);
				END IF;
				EXECUTE format('ALTER TABLE reins.%I ATTACH PARTITION reins.%I FOR VALUES FROM (%L) TO (%L)',
					parent, part, first_id(monday AT TIME ZONE 'UTC'),
					first_id((monday + interval '7 days') AT TIME ZONE 'UTC'));
				made := made + 1;
			EXCEPTION WHEN check_violation OR lock_not_available OR deadlock_detected THEN
				NULL;
			END;
		END LOOP;
	END LOOP;
	RETURN made;
END $$;

-- Drops the partitions of logs and metrics of weeks that ended at least `age` ago, unless a task of such a week still runs.
CREATE FUNCTION drop_logs(age interval) RETURNS int LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
	dropped int := 0;
	part text;
	monday timestamp;
BEGIN
	IF NOT pg_try_advisory_xact_lock(7239204117) THEN
		RETURN 0;
	END IF;
	FOR part IN SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent IN ('reins.log'::regclass, 'reins.metric'::regclass) AND c.relname ~ '^(log|metric)_[0-9]{8}$'
		ORDER BY right(c.relname, 8), c.relname LOOP
		monday := to_date(right(part, 8), 'YYYYMMDD');
		EXIT WHEN (monday + interval '7 days') AT TIME ZONE 'UTC' + age > now();
		CONTINUE WHEN EXISTS (SELECT FROM reins.running WHERE task_id >= reins.first_id(monday AT TIME ZONE 'UTC') AND
			task_id < reins.first_id((monday + interval '7 days') AT TIME ZONE 'UTC'));
		BEGIN
			EXECUTE format('DROP TABLE reins.%I', part);
			dropped := dropped + 1;
		EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
			NULL;
		END;
	END LOOP;
	RETURN dropped;
END $$;

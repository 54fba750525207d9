-- Version 1.  Applied in one transaction, under the advisory lock, with search_path = reins.
--
-- A task is one row of `task`, written once and never changed, and is in exactly one of
-- `ready`, `delayed` (both PENDING), `running` and `ended` (its state is there).  A change of state
-- takes its row out of one narrow table and puts it into another, so that whoever takes it out has won.
-- Rows of `ready`, `delayed`, `task`, `ended`, `attempt` and `log` are never updated.
--
-- Ids are UUIDs of version 7: a range of ids is a range of time, which is what the big tables are
-- partitioned by.

CREATE TABLE meta (
	key text COLLATE "C" PRIMARY KEY,
	value text NOT NULL
);
INSERT INTO meta VALUES ('store_id', gen_random_uuid()::text);

CREATE SEQUENCE task_seq;

CREATE TABLE task (
	id uuid NOT NULL,
	seq bigint NOT NULL,
	created_at timestamptz NOT NULL,
	run_at timestamptz,
	neg_priority int NOT NULL,
	cpu int NOT NULL,
	memory bigint NOT NULL,
	gpus int NOT NULL,
	exclusive boolean NOT NULL,
	lease_ttl_ns bigint,
	max_attempts int,
	backoff_initial_ns bigint,
	backoff_max_ns bigint,
	backoff_multiplier float8,
	queue text COLLATE "C" NOT NULL,
	name text COLLATE "C",
	owner text COLLATE "C",
	idempotency_key text COLLATE "C",
	labels bytea,
	list_spec bytea,
	spec bytea NOT NULL,
	PRIMARY KEY (id)
) PARTITION BY RANGE (id);
ALTER TABLE task ALTER COLUMN spec SET STORAGE EXTERNAL;
ALTER TABLE task ALTER COLUMN list_spec SET STORAGE EXTERNAL;

-- What all three narrow tables hold of a task, so that a change of state does not read `task`.
-- Columns of the retry policy are null for a task that has none.
CREATE TABLE ready (
	task_id uuid NOT NULL,
	seq bigint NOT NULL,
	neg_priority int NOT NULL,
	attempt int NOT NULL,
	failures int NOT NULL,
	losses int NOT NULL,
	cpu int NOT NULL,
	memory bigint NOT NULL,
	gpus int NOT NULL,
	exclusive boolean NOT NULL,
	lease_ttl_ns bigint,
	max_attempts int,
	backoff_initial_ns bigint,
	backoff_max_ns bigint,
	backoff_multiplier float8,
	queue text COLLATE "C" NOT NULL,
	-- The worker of attempt `attempt`, which was taken back and is open: that worker may still list it or end it well.
	open_worker text COLLATE "C",
	PRIMARY KEY (queue, neg_priority, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
	autovacuum_vacuum_cost_delay = 0);

CREATE TABLE delayed (
	task_id uuid NOT NULL PRIMARY KEY,
	seq bigint NOT NULL,
	due_at timestamptz NOT NULL,
	neg_priority int NOT NULL,
	attempt int NOT NULL,
	failures int NOT NULL,
	losses int NOT NULL,
	cpu int NOT NULL,
	memory bigint NOT NULL,
	gpus int NOT NULL,
	exclusive boolean NOT NULL,
	lease_ttl_ns bigint,
	max_attempts int,
	backoff_initial_ns bigint,
	backoff_max_ns bigint,
	backoff_multiplier float8,
	queue text COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_cost_delay = 0);
CREATE INDEX delayed_due ON delayed (due_at);

CREATE TABLE running (
	task_id uuid NOT NULL PRIMARY KEY,
	seq bigint NOT NULL,
	instance uuid NOT NULL,
	session bigint NOT NULL,
	lease_ns bigint NOT NULL,
	dispatched_at timestamptz NOT NULL,
	started_at timestamptz,
	cancel_requested_at timestamptz,
	neg_priority int NOT NULL,
	attempt int NOT NULL,
	failures int NOT NULL,
	losses int NOT NULL,
	cpu int NOT NULL,
	memory bigint NOT NULL,
	gpus int NOT NULL,
	exclusive boolean NOT NULL,
	lease_ttl_ns bigint,
	max_attempts int,
	backoff_initial_ns bigint,
	backoff_max_ns bigint,
	backoff_multiplier float8,
	queue text COLLATE "C" NOT NULL,
	worker text COLLATE "C" NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
	autovacuum_vacuum_cost_delay = 0);
CREATE INDEX running_worker ON running (worker);

-- The end of a task.  `worker` null: it was cancelled before any attempt, or between two.
CREATE TABLE ended (
	task_id uuid NOT NULL,
	state smallint NOT NULL,
	outcome smallint NOT NULL,
	attempt int NOT NULL,
	failures int NOT NULL,
	losses int NOT NULL,
	reported boolean NOT NULL,
	dispatched_at timestamptz,
	started_at timestamptz,
	finished_at timestamptz NOT NULL,
	cancel_requested_at timestamptz,
	exit_code int,
	signal int,
	log_end bigint NOT NULL,
	result_too_large bigint,
	worker text COLLATE "C",
	error bytea,
	result bytea,
	PRIMARY KEY (task_id)
) PARTITION BY RANGE (task_id);
ALTER TABLE ended ALTER COLUMN result SET STORAGE EXTERNAL;
-- Failed and cancelled tasks are looked for among many completed ones.
CREATE INDEX ended_badly ON ended (task_id) WHERE state <> 3;

-- Attempts that were not the last.  `counted`: in `losses`, and taken out of it again when the attempt is adopted.
CREATE TABLE attempt (
	task_id uuid NOT NULL,
	attempt int NOT NULL,
	outcome smallint NOT NULL,
	reported boolean NOT NULL,
	counted boolean NOT NULL,
	lease_ns bigint NOT NULL,
	dispatched_at timestamptz NOT NULL,
	started_at timestamptz,
	finished_at timestamptz NOT NULL,
	exit_code int,
	signal int,
	log_end bigint NOT NULL,
	worker text COLLATE "C" NOT NULL,
	error bytea,
	PRIMARY KEY (task_id, attempt)
) PARTITION BY RANGE (task_id);

CREATE TABLE log (
	task_id uuid NOT NULL,
	off bigint NOT NULL,
	attempt int NOT NULL,
	stream smallint NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (task_id, attempt, off)
) PARTITION BY RANGE (task_id);

CREATE TABLE idempotency (
	key text COLLATE "C" PRIMARY KEY,
	task_id uuid NOT NULL,
	hash bytea NOT NULL
);

-- `instance_session`: the session with which this instance came.
CREATE TABLE worker (
	id text COLLATE "C" PRIMARY KEY,
	instance uuid NOT NULL,
	session bigint NOT NULL,
	instance_session bigint NOT NULL,
	opened_at timestamptz NOT NULL,
	master text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE master (
	id text COLLATE "C" PRIMARY KEY,
	incarnation bigint NOT NULL,
	beat bigint NOT NULL,
	beat_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Rows whose id is outside of every partition made so far (a clock far off) go to the default one, so that an
-- insert never fails for this.
CREATE TABLE task_other PARTITION OF task DEFAULT;
CREATE TABLE ended_other PARTITION OF ended DEFAULT;
CREATE TABLE attempt_other PARTITION OF attempt DEFAULT;
CREATE TABLE log_other PARTITION OF log DEFAULT;

-- The smallest id of version 7 made at `at`.
CREATE FUNCTION first_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
	SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the partitions of this week and the next `weeks`, as far as they are missing.  Weeks begin on Monday, UTC.
-- Attaching takes only a lock that lets the work on the parent go on; a partition that can't be
-- made (rows of its range are in the default one) is left out: those rows stay where they are.  Does nothing
-- while somebody else is at it.
CREATE FUNCTION make_partitions(weeks int) RETURNS int LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
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
		FOREACH parent IN ARRAY ARRAY['task', 'ended', 'attempt', 'log'] LOOP
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

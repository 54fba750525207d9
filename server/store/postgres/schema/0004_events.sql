-- Version 4: events, for those who watch (server/store/store_events.h says what a stream and a number are).

-- A connection's life.  `gone`: the largest of its numbers that is not kept any more.  `ended_at`: when it was seen to be
-- over; its rows are all committed then.
CREATE TABLE event_stream (
	id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
	made_at timestamptz NOT NULL DEFAULT now(),
	ended_at timestamptz,
	gone bigint NOT NULL DEFAULT 0
);

CREATE SEQUENCE event_number;

-- One row for each statement that changed tasks: `changes` has for each the id, and attempt << 8 | state before << 3 | state
-- after in 8 bytes.  Eight tables in turn, each for 131,072 numbers: what is too old goes by emptying one.
CREATE TABLE event (
	stream int NOT NULL DEFAULT current_setting('reins.stream')::int,
	number bigint NOT NULL DEFAULT nextval('reins.event_number'),
	at timestamptz NOT NULL DEFAULT now(),
	changes bytea NOT NULL
) PARTITION BY LIST (((number >> 17) & 7));
ALTER TABLE event ALTER COLUMN changes SET STORAGE EXTERNAL;
CREATE INDEX event_place ON event (stream, number);
CREATE TABLE event_0 PARTITION OF event FOR VALUES IN (0) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_1 PARTITION OF event FOR VALUES IN (1) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_2 PARTITION OF event FOR VALUES IN (2) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_3 PARTITION OF event FOR VALUES IN (3) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_4 PARTITION OF event FOR VALUES IN (4) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_5 PARTITION OF event FOR VALUES IN (5) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_6 PARTITION OF event FOR VALUES IN (6) WITH (autovacuum_vacuum_insert_threshold = -1);
CREATE TABLE event_7 PARTITION OF event FOR VALUES IN (7) WITH (autovacuum_vacuum_insert_threshold = -1);

-- Numbers up to `number` are not kept any more, since `at`: a reader of an older snapshot may still find them.
CREATE TABLE event_floor (
	number bigint NOT NULL,
	at timestamptz NOT NULL
);
INSERT INTO event_floor VALUES (-1, now());

-- The stream of this connection: it holds the lock for as long as it lives.  One at a time, so that who sees a stream sees
-- all with smaller ids.
CREATE FUNCTION open_stream() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	stream int;
BEGIN
	PERFORM pg_advisory_xact_lock(7239204118);
	INSERT INTO reins.event_stream DEFAULT VALUES RETURNING id INTO stream;
	PERFORM pg_advisory_lock(723920411, stream), set_config('reins.stream', stream::text, false);
END $$;

-- The end of each stream in one of the eight tables.
CREATE FUNCTION event_ends(slot int, OUT number bigint, OUT at timestamptz) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT max(e.number), max(e.at) FROM reins.event_stream s CROSS JOIN LATERAL (SELECT e.number, e.at FROM '
		'reins.event_%s e WHERE e.stream = s.id ORDER BY e.number DESC LIMIT 1) e', slot) INTO number, at;
END $$;

-- What is older than `age` and what is more than five tables of rows is first said to be gone, and the tables are emptied
-- half a minute later, when no statement runs any more that began before.  Streams whose connection is gone are marked, and
-- go when they have no rows and nobody can hold a position in them any more.
CREATE FUNCTION trim_events(age interval) RETURNS void LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
DECLARE
	kept record;
	ends record;
	slot int;
	part bigint;
	newest bigint;
	floor bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock(7239204119) THEN
		RETURN;
	END IF;
	UPDATE reins.event_stream s SET ended_at = now() WHERE s.ended_at IS NULL AND
		CASE WHEN s.id::text IS DISTINCT FROM current_setting('reins.stream', true)
		THEN pg_try_advisory_xact_lock(723920411, s.id) ELSE false END;
	SELECT * INTO kept FROM reins.event_floor FOR UPDATE;
	SELECT last_value >> 17 INTO newest FROM reins.event_number;
	floor := greatest(kept.number, ((newest - 5) << 17) - 1);
	FOR slot IN 0..7 LOOP
		ends := reins.event_ends(slot);
		CONTINUE WHEN ends.number IS NULL;
		part := ends.number >> 17;
		IF ends.number <= kept.number THEN
			IF kept.at < now() - interval '30 s' THEN
				BEGIN
					EXECUTE format('TRUNCATE reins.event_%s', slot);
				EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
					NULL;
				END;
			END IF;
		ELSIF part < newest AND ends.at < now() - greatest(age, interval '1 min') THEN
			floor := greatest(floor, ((part + 1) << 17) - 1);
		END IF;
	END LOOP;
	-- The next ones only when those before were emptied, so that `at` is not put off for ever.
	IF floor > kept.number AND NOT EXISTS (SELECT FROM generate_series(0, 7) g WHERE (reins.event_ends(g)).number <= kept.number) THEN
		UPDATE reins.event_floor SET number = floor, at = now();
		UPDATE reins.event_stream s SET gone = e.number FROM (SELECT s.id, e.number FROM reins.event_stream s CROSS JOIN LATERAL
			(SELECT e.number FROM reins.event e WHERE e.stream = s.id AND e.number <= floor ORDER BY e.number DESC LIMIT 1) e) e
			WHERE s.id = e.id AND e.number > s.gone;
	END IF;
	DELETE FROM reins.event_stream s WHERE s.ended_at < now() - greatest(age, interval '1 min') AND
		NOT EXISTS (SELECT FROM reins.event e WHERE e.stream = s.id);
END $$;

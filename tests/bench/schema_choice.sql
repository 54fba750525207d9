-- Two schemas, the same work: which one Postgres stays healthy with.
--   one     a task table with a state column, a partial index on what is pending, fillfactor 50
--   narrow  a task row that never changes, narrow tables for pending and running, a row at the end
-- Work in batches of 64: insert, claim in order of (queue, priority, seq), record.
\set ON_ERROR_STOP 1
\set QUIET 1
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
SET synchronous_commit = off; -- the statements' cost, not the disk's
SET enable_seqscan = off; SET enable_sort = off; SET enable_mergejoin = off; SET jit = off;
SET plan_cache_mode = force_generic_plan;
DROP SCHEMA IF EXISTS choice CASCADE; CREATE SCHEMA choice; SET search_path = choice;
CREATE SEQUENCE seq;
CREATE TABLE one (id uuid PRIMARY KEY, seq bigint, queue text COLLATE "C", neg_priority int, state smallint DEFAULT 1, attempt int
	DEFAULT 0, worker text, outcome smallint, exit_code int, started_at timestamptz, finished_at timestamptz, spec bytea)
	WITH (fillfactor = 50);
CREATE INDEX one_pending ON one (queue, neg_priority, seq) WHERE state = 1;
CREATE TABLE task (id uuid PRIMARY KEY, seq bigint, queue text COLLATE "C", neg_priority int, spec bytea);
CREATE TABLE ready (queue text COLLATE "C", neg_priority int, seq bigint, id uuid, attempt int, PRIMARY KEY (queue, neg_priority, seq));
CREATE TABLE running (id uuid PRIMARY KEY, attempt int, worker text, started_at timestamptz);
CREATE INDEX running_worker ON running (worker);
CREATE TABLE ended (id uuid PRIMARY KEY, state smallint, attempt int, worker text, outcome smallint, exit_code int,
	started_at timestamptz, finished_at timestamptz);

CREATE FUNCTION new_id(n bigint) RETURNS uuid LANGUAGE sql AS $$ SELECT (lpad(to_hex(n), 12, '0') || '70008000000000000000')::uuid $$;

CREATE PROCEDURE insert_one(base int, n int, b int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 0..n / b - 1 LOOP
	INSERT INTO one (id, seq, queue, neg_priority, spec) SELECT new_id(g), nextval('seq'), 'q', 0, repeat('x', 600)::bytea
		FROM generate_series(base + i * b, base + i * b + b - 1) g;
	COMMIT; END LOOP; END $$;
CREATE PROCEDURE insert_narrow(base int, n int, b int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 0..n / b - 1 LOOP
	WITH n AS (SELECT new_id(g) AS id, nextval('seq') AS seq FROM generate_series(base + i * b, base + i * b + b - 1) g),
	t AS (INSERT INTO task SELECT id, seq, 'q', 0, repeat('x', 600)::bytea FROM n)
	INSERT INTO ready SELECT 'q', 0, seq, id, 0 FROM n;
	COMMIT; END LOOP; END $$;
-- With `cursored` a take begins behind the last row taken, as the store's FILL does.
CREATE PROCEDURE claim_one(n int, b int, cursored bool) LANGUAGE plpgsql AS $$ DECLARE last bigint := 0; BEGIN FOR i IN 1..n / b LOOP
	WITH k AS MATERIALIZED (SELECT id, seq FROM one WHERE state = 1 AND queue = 'q' AND (neg_priority, seq) > (0, last)
		ORDER BY queue, neg_priority, seq LIMIT b FOR UPDATE SKIP LOCKED),
	u AS (UPDATE one SET state = 2, attempt = attempt + 1, worker = 'w', started_at = now() WHERE id = ANY (ARRAY(SELECT id FROM k)))
	SELECT CASE WHEN cursored THEN coalesce(max(seq), last) ELSE 0 END INTO last FROM k;
	COMMIT; END LOOP; END $$;
CREATE PROCEDURE claim_narrow(n int, b int, cursored bool) LANGUAGE plpgsql AS $$ DECLARE last bigint := 0; BEGIN FOR i IN 1..n / b LOOP
	WITH k AS MATERIALIZED (SELECT ctid AS at, id, seq, attempt FROM ready WHERE queue = 'q' AND (neg_priority, seq) > (0, last)
		ORDER BY queue, neg_priority, seq LIMIT b FOR UPDATE SKIP LOCKED),
	d AS (DELETE FROM ready WHERE ctid = ANY (ARRAY(SELECT at FROM k))),
	u AS (INSERT INTO running SELECT id, attempt + 1, 'w', now() FROM k)
	SELECT CASE WHEN cursored THEN coalesce(max(seq), last) ELSE 0 END INTO last FROM k;
	COMMIT; END LOOP; END $$;
CREATE PROCEDURE record_one(base int, n int, b int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 0..n / b - 1 LOOP
	UPDATE one SET state = 3, outcome = 1, exit_code = 0, finished_at = now() WHERE state = 2 AND attempt = 1 AND worker = 'w' AND
		id = ANY (ARRAY(SELECT new_id(g) FROM generate_series(base + i * b, base + i * b + b - 1) g));
	COMMIT; END LOOP; END $$;
CREATE PROCEDURE record_narrow(base int, n int, b int) LANGUAGE plpgsql AS $$ BEGIN FOR i IN 0..n / b - 1 LOOP
	WITH d AS (DELETE FROM running WHERE attempt = 1 AND (worker = 'w') IS TRUE AND
		id = ANY (ARRAY(SELECT new_id(g) FROM generate_series(base + i * b, base + i * b + b - 1) g)) RETURNING *)
	INSERT INTO ended SELECT id, 3, attempt, worker, 1, 0, started_at, now() FROM d;
	COMMIT; END LOOP; END $$;

CREATE TABLE said (what text, how text, rows int, s float8, wal numeric);
\set n 40000
\set step 'INSERT INTO said SELECT :''what'', :''how'', :n, extract(epoch FROM clock_timestamp() - :''t0''::timestamptz), pg_current_wal_insert_lsn() - :''w0''::pg_lsn'
\set begin 'SELECT clock_timestamp() AS t0, pg_current_wal_insert_lsn() AS w0'

\set how one
\set what insert
:begin \gset
CALL insert_one(0, :n, 64);
:step ;
\set what claim
:begin \gset
CALL claim_one(:n, 64, true);
:step ;
\set what record
:begin \gset
CALL record_one(0, :n, 64);
:step ;
\set how narrow
\set what insert
:begin \gset
CALL insert_narrow(0, :n, 64);
:step ;
\set what claim
:begin \gset
CALL claim_narrow(:n, 64, true);
:step ;
\set what record
:begin \gset
CALL record_narrow(0, :n, 64);
:step ;

-- The same take, from the start each time and behind a cursor, while another session holds an old snapshot: what
-- was taken stays in the index as dead entries.
CALL insert_one(1000000, :n, 64);
CALL insert_narrow(1000000, :n, 64);
\! touch "$HOLD_DIR/go"; while [ ! -e "$HOLD_DIR/held" ]; do sleep 0.1; done
\set n 10000
\set how one
\set what 'claim, old snapshot, from the start'
:begin \gset
CALL claim_one(:n, 64, false);
:step ;
\set how narrow
:begin \gset
CALL claim_narrow(:n, 64, false);
:step ;
\set how one
\set what 'claim, old snapshot, cursor'
:begin \gset
CALL claim_one(:n, 64, true);
:step ;
\set how narrow
:begin \gset
CALL claim_narrow(:n, 64, true);
:step ;

SELECT format('%-36s one %7s rows/s %5s B of WAL a row   narrow %7s rows/s %5s B   narrow/one %s, WAL %s', o.what,
	round((o.rows / o.s)::numeric), round(o.wal / o.rows), round((n.rows / n.s)::numeric), round(n.wal / n.rows),
	round((o.s / n.s)::numeric, 2), round(n.wal / o.wal, 2))
FROM said o JOIN said n ON n.what = o.what AND n.how = 'narrow' WHERE o.how = 'one' ORDER BY o.ctid;
SELECT pg_sleep(1.2);
SELECT format('HOT updates: one %s of %s; narrow makes none', n_tup_hot_upd, n_tup_upd) FROM pg_stat_user_tables
	WHERE schemaname = 'choice' AND relname = 'one';
SELECT format('size: one %s, narrow %s', pg_size_pretty(pg_total_relation_size('one')), pg_size_pretty(pg_total_relation_size('task') +
	pg_total_relation_size('ready') + pg_total_relation_size('running') + pg_total_relation_size('ended')));
DROP SCHEMA choice CASCADE;

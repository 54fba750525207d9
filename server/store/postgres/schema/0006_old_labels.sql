-- Version 6: labels of tasks that were accepted before version 5, out of their specs, so that selectors find them; an index of queues that
-- were resumed.

-- The field of a message in protobuf's wire format at byte `at`: its tag, its bytes, and where the next one is; that is null
-- if there is no such field before `ends`.
CREATE FUNCTION wire_field(message bytea, at int, ends int, OUT tag int, OUT start int, OUT next int) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	byte int;
	number bigint;
	shift int;
BEGIN
	FOR part IN 1..2 LOOP
		number := 0;
		shift := 0;
		LOOP
			IF at >= ends OR shift > 63 THEN
				RETURN;
			END IF;
			byte := get_byte(message, at);
			IF shift < 35 THEN
				number := number | ((byte & 127)::bigint << shift);
			END IF;
			at := at + 1;
			shift := shift + 7;
			EXIT WHEN byte < 128;
		END LOOP;
		IF part = 1 THEN
			IF number > 2147483647 THEN
				RETURN;
			END IF;
			tag := number;
			start := at;
			-- Only numbers and lengths are followed by a number.
			IF tag & 7 IN (1, 5) THEN
				next := at + CASE tag & 7 WHEN 1 THEN 8 ELSE 4 END;
				EXIT;
			END IF;
		ELSIF tag & 7 = 0 THEN
			next := at;
		ELSIF tag & 7 = 2 AND number <= ends THEN
			start := at;
			next := at + number;
		END IF;
	END LOOP;
	IF next > ends THEN
		next := NULL;
	END IF;
END $$;

-- The labels of a TaskSpec as `task.labels` keeps them (server/store/labels.h); null: none, or this is no TaskSpec.
CREATE FUNCTION spec_labels(spec bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	f record;
	g record;
	at int := 0;
	key bytea;
	value bytea;
	labels bytea := '';
BEGIN
	WHILE at < octet_length(spec) LOOP
		f := reins.wire_field(spec, at, octet_length(spec));
		IF f.next IS NULL THEN
			RETURN NULL;
		END IF;
		IF f.tag = (8 << 3 | 2) THEN
			key := '';
			value := '';
			at := f.start;
			WHILE at < f.next LOOP
				g := reins.wire_field(spec, at, f.next);
				IF g.next IS NULL THEN
					RETURN NULL;
				END IF;
				IF g.tag = (1 << 3 | 2) THEN
					key := substr(spec, g.start + 1, g.next - g.start);
				ELSIF g.tag = (2 << 3 | 2) THEN
					value := substr(spec, g.start + 1, g.next - g.start);
				END IF;
				at := g.next;
			END LOOP;
			labels := labels || '\xff'::bytea || key || '\xfe'::bytea || value;
		END IF;
		at := f.next;
	END LOOP;
	RETURN CASE WHEN labels <> '' THEN labels || '\xff'::bytea END;
END $$;

-- Gives some of the tasks that are left their labels, the newest first, each of which is looked at once: as long as meta has
-- `unlabelled_below`, those with smaller ids were not.  One connection at a time; at most so many, and for not much longer than
-- that.  False: none is left.
CREATE FUNCTION label_old_tasks(most int, within interval) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	below uuid;
	t record;
	seen int := 0;
	ends timestamptz := clock_timestamp() + within;
	found_labels bytea;
BEGIN
	SELECT value::uuid INTO below FROM reins.meta WHERE key = 'unlabelled_below' FOR UPDATE SKIP LOCKED;
	IF below IS NULL THEN
		RETURN EXISTS (SELECT FROM reins.meta WHERE key = 'unlabelled_below');
	END IF;
	-- What lists show has the labels, and no payload.  || makes one piece of what is stored in many.
	FOR t IN SELECT k.id, CASE WHEN k.labels IS NULL THEN coalesce(k.list_spec, k.spec) || ''::bytea END AS spec FROM reins.task k
		WHERE k.id < below ORDER BY k.id DESC LIMIT most LOOP
		below := t.id;
		seen := seen + 1;
		found_labels := reins.spec_labels(t.spec);
		IF found_labels IS NOT NULL THEN
			UPDATE reins.task k SET labels = found_labels WHERE k.id = below;
		END IF;
		IF clock_timestamp() > ends THEN
			seen := most;
			EXIT;
		END IF;
	END LOOP;
	IF seen < most THEN
		DELETE FROM reins.meta WHERE key = 'unlabelled_below';
		RETURN false;
	END IF;
	UPDATE reins.meta SET value = below::text WHERE key = 'unlabelled_below';
	RETURN true;
END $$;

-- Those that were resumed, to be removed.
CREATE INDEX queue_resumed ON queue (name) WHERE paused_at IS NULL;

INSERT INTO meta SELECT 'unlabelled_below', 'ffffffff-ffff-ffff-ffff-ffffffffffff' WHERE EXISTS (SELECT FROM task);
-- All of a small store's at once; the masters go on with a large one's, a little every second.
SELECT label_old_tasks(5000, '1 s');

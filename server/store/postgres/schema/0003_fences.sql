-- Version 3: which process has a master's row, and which Hello of a worker became its session.

-- A random number of the process that opened the row last.  Another master that takes over raises the incarnation and
-- leaves `beat` and this as they are: so the master finds out whether it was taken over or replaced.
ALTER TABLE master ADD COLUMN process uuid;

-- reins.v1.Hello.hello_number, so that an older Hello that was held up on its way to the store does not become the next session.
-- 0: its hellos are not counted.
ALTER TABLE worker ADD COLUMN hello bigint NOT NULL DEFAULT 0;
-- How often its statement had been sent before: an earlier sending that a lost connection still delivers is held up as well.
ALTER TABLE worker ADD COLUMN hello_sent int NOT NULL DEFAULT 0;

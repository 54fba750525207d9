-- Version 3: which Hello of a worker became its session (reins.v1.Hello.order), so that an older one that was held up on its way to
-- the store does not become the next.  0: its hellos are not counted.
ALTER TABLE worker ADD COLUMN hello bigint NOT NULL DEFAULT 0;

-- Version 3: which process has a master's row.

-- A random number of the process that opened the row last.  Another master that takes over raises the incarnation and
-- leaves `beat` and this as they are: so the master finds out whether it was taken over or replaced.
ALTER TABLE master ADD COLUMN process uuid;

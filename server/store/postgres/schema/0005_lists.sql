-- Version 5: lists by filters, and queues that are paused.

-- Rows of `task` are never changed, so these cost a task's insert and nothing later.  Few of many are asked for by queue and by
-- name; tasks without a name are not in the second.
CREATE INDEX task_queue ON task (queue, id);
CREATE INDEX task_name ON task (name, id) WHERE name IS NOT NULL;

-- What `task.labels` holds is described in server/store/labels.h.  Tasks that were accepted before this version have none there,
-- whatever their spec says: no selector finds them by a label.

-- How many wait in a queue for a time, and which queues have such.
CREATE INDEX delayed_queue ON delayed (queue);

-- Queues that were paused once.  `paused_at` null: not now.
CREATE TABLE queue (
	name text COLLATE "C" PRIMARY KEY,
	paused_at timestamptz,
	reason text
);
CREATE INDEX queue_paused ON queue (name) WHERE paused_at IS NOT NULL;

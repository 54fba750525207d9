/* Inside of the SQLite store: connections, lanes, and the table of kinds.
 *
 *   sq_store.c   the loop's side: queues, handing lists to the lanes, answers, up and down
 *   sq_batch.c   a transaction: isolating the guilty operation, what a failed commit leaves, checkpoints
 *   sq_write.c   the writing thread: opening, coming back, settling
 *   sq_lanes.c   the threads that read, and that write logs
 *   sq_open.c    locking and opening the files, recognising what is in them
 *   sq_schema.c  the schemas and their migrations
 *   sq_db.c      one connection: statements by number, binding, an error that sticks
 *   sq_rows.c    statements on the narrow tables that several kinds share
 *   sq_kinds.c   the table of kinds
 *   sq_label.c   labels of tasks from before version 5
 *   op_*.c       the statements of each kind
 *
 * Memory of operations passes from the loop to a lane and back under the store's mutex; in between only its
 * holder touches it.  Blobs are counted without atomics: a lane reads those that it is given and makes new
 * ones, and never takes or drops a reference to one of the loop's. */
#ifndef REINS_SQ_H
#define REINS_SQ_H

#include <pthread.h>
#include <sqlite3.h>

#include "common/loop/loop.h"
#include "server/store/mem.h"
#include "server/store/sqlite/sq_db.h"
#include "server/store/sqlite/sqlite_store.h"

#define SQ_PATH_MAX 3800

enum sq_lane_id { SQ_WRITE, SQ_READ, SQ_LOG, SQ_LANES };

/* ---- kinds ---- */

struct sq_ctx; /* what a lane's operations run on */
struct sq_kind {
	enum sq_lane_id lane;
	/* Fills the answer.  Errors stick to the connection (sq_db); the caller decides what they mean. */
	void (*run)(struct sq_ctx *x, struct store_op *op);
	size_t (*bytes)(const struct store_op *op); /* NULL: next to none */
	bool kept; /* stays queued while the store is away, within the queue's limits */
};
extern const struct sq_kind sq_kinds[STORE_KINDS];

/* What the logs take, and where the search for one that can go stands. */
struct sq_log_room {
	int64_t bytes, max;
	int64_t committed; /* bytes, before this transaction */
	struct uuid cursor;
	int64_t search_mono_ns; /* not before this time */
};

struct sq_ctx {
	struct sq_db db;   /* the tasks */
	struct sq_db logs; /* READ and LOG lanes; WRITE: to be read, open while it can be */
	int64_t now_wall_us;
	int64_t next_seq;  /* WRITE lane */
	int32_t lost_limit;
	const char *note;  /* RECORD: stands for result and text, which were refused */
	struct sq_log_room room; /* LOG lane */
	struct buf changes;      /* WRITE lane: of this transaction, as they are stored */
	int64_t event_retention_ns;
	_Atomic int64_t *news_until_mono_ns; /* the store's */
};

void sq_insert_run(struct sq_ctx *x, struct store_op *op);
void sq_claim_run(struct sq_ctx *x, struct store_op *op);
void sq_record_run(struct sq_ctx *x, struct store_op *op);
void sq_take_back_run(struct sq_ctx *x, struct store_op *op);
void sq_cancel_run(struct sq_ctx *x, struct store_op *op);
void sq_retry_run(struct sq_ctx *x, struct store_op *op);
void sq_started_run(struct sq_ctx *x, struct store_op *op);
void sq_session_run(struct sq_ctx *x, struct store_op *op);
void sq_fill_run(struct sq_ctx *x, struct store_op *op);
void sq_queues_run(struct sq_ctx *x, struct store_op *op);
void sq_due_run(struct sq_ctx *x, struct store_op *op);
void sq_expire_run(struct sq_ctx *x, struct store_op *op);
void sq_strays_run(struct sq_ctx *x, struct store_op *op);
void sq_runs_run(struct sq_ctx *x, struct store_op *op);
void sq_log_append_run(struct sq_ctx *x, struct store_op *op);
void sq_log_read_run(struct sq_ctx *x, struct store_op *op);
/* Where the attempt's log ends, and the bytes before that are not kept; ret_dropped may be NULL. */
int64_t sq_log_end(struct sq_db *logs, const struct core_attempt *at, int64_t *ret_dropped);
/* The largest number of the attempt's points; 0: none. */
int64_t sq_metrics_last(struct sq_db *logs, const struct core_attempt *at);
void sq_metrics_run(struct sq_ctx *x, struct store_op *op);
void sq_metrics_read_run(struct sq_ctx *x, struct store_op *op);
void sq_get_run(struct sq_ctx *x, struct store_op *op);
/* The row of a task as people see it. False: there is none, or an error, which sticks. */
bool sq_view_read(struct sq_db *db, int64_t seq, bool full, bool bare, struct store_task *t, struct store_mem **mem);
void sq_workers_run(struct sq_ctx *x, struct store_op *op);
void sq_worker_gone_run(struct sq_ctx *x, struct store_op *op);
void sq_detached_run(struct sq_ctx *x, struct store_op *op);
void sq_drain_run(struct sq_ctx *x, struct store_op *op);
void sq_queue_list_run(struct sq_ctx *x, struct store_op *op);
void sq_pause_run(struct sq_ctx *x, struct store_op *op);
void sq_events_run(struct sq_ctx *x, struct store_op *op);
void sq_news_run(struct sq_ctx *x, struct store_op *op);
void sq_list_run(struct sq_ctx *x, struct store_op *op);
void sq_master_open_run(struct sq_ctx *x, struct store_op *op);
void sq_beat_run(struct sq_ctx *x, struct store_op *op);
void sq_take_over_run(struct sq_ctx *x, struct store_op *op);

/* LOG lane. Whether logs may take so many bytes more, ended tasks' having made room. */
bool sq_log_make_room(struct sq_ctx *x, int64_t need);
/* So many bytes more are this task's. */
void sq_log_account(struct sq_ctx *x, const struct uuid *task, int64_t bytes);
/* Whether the worker's attempt runs, or is open. */
bool sq_log_is_ours(struct sq_ctx *x, const struct core_attempt *at, const char *worker);

/* Operations that one counts for: a group's size. */
int32_t sq_op_items(const struct store_op *op);
int64_t sq_op_bytes(const struct store_op *op);

/* ---- opening ---- */

struct sq_files {
	char path[SQ_PATH_MAX];         /* resolved */
	char logs[SQ_PATH_MAX + 8];
	int lock_fd;                    /* -1: not held */
	bool ignore_moved;              /* as in the configuration */
	uint64_t dev, ino;              /* of the tasks' file; ino 0: not opened yet */
	char store_id[UUID_TEXT_LEN + 1];
};

enum sq_down { SQ_OK = 0, SQ_AGAIN, SQ_STAYS, SQ_NEWER }; /* may come back; never will; upgraded by a later program */

/* Takes the lock, makes or upgrades both files, opens the writing connection. On failure all is closed again, the lock
 * kept if it was taken, and `text` says why. */
enum sq_down sq_open(const char *path, struct sq_files *f, struct sq_db *ret_db, char *text, size_t cap) MUST_CHECK;
/* Both files of a store that no master uses, to be read only: nothing is made or upgraded in them.  Masters are kept out
 * until sq_files_done.  ret_logs->h is NULL when there are no logs.  SQ_STAYS, SQ_NEWER: refused. */
enum sq_down sq_open_to_read(const char *path, struct sq_files *f, struct sq_db *ret_tasks, struct sq_db *ret_logs, char *text,
			     size_t cap) MUST_CHECK;
/* Where the tasks of the open store were moved to, or "". */
#define SQ_MOVED_MAX 300
void sq_moved_get(struct sq_db *tasks, char ret[static SQ_MOVED_MAX]);
/* The mark that keeps masters out. NULL takes it away. An error sticks to `tasks`. */
void sq_moved_set(struct sq_db *tasks, const char *to);
/* Another connection to one of the files; -1 with the error in ret_db->rc. */
int sq_open_more(const struct sq_files *f, bool logs, bool reads, struct sq_db *ret_db) MUST_CHECK;
/* The file at the path is still the one that was opened. */
bool sq_files_same(const struct sq_files *f);
void sq_files_done(struct sq_files *f);
/* What an error of SQLite means for the store, and in words. */
enum sq_down sq_meaning(const struct sq_db *db, char *text, size_t cap);

/* Brings an open file's schema to this version; SQ_NEWER for a newer one, SQ_STAYS for a file that holds something else. */
enum sq_down sq_schema_update(struct sq_db *db, bool logs, const char *path, const char *store_id, char *text,
			      size_t cap) MUST_CHECK;

/* The script that leads from version `from` to the next; for tests that make an older store. */
const char *sq_schema_script(bool logs, int from);
#define SQ_TASKS_ID 0x5265696e /* application_id: "Rein" */
#define SQ_LOGS_ID 0x52656c67  /* "Relg" */

/* Of an open file that is left as it is: SQ_STAYS or SQ_NEWER unless its schema is exactly this version's. */
enum sq_down sq_schema_check(struct sq_db *db, bool logs, const char *path, char *text, size_t cap) MUST_CHECK;

/* ---- batches ---- */

/* Another batch's fate, and what it means for whoever ran it. */
enum sq_fate {
	SQ_DONE,      /* committed and synced */
	SQ_AWAY,      /* rolled back: nothing of it is there */
	SQ_UNSETTLED, /* the commit failed in a way that may still bring it back when the file is opened anew */
};
struct sq_batch {
	struct sq_ctx *x;
	struct sq_db *writes; /* of x: the connection that is committed */
	bool (*before_commit)(void *arg, struct sq_ctx *x); /* false: roll back, as an error; may be NULL */
	void *arg;
	char text[200]; /* AWAY, UNSETTLED: why */
	enum sq_down down;
};
/* Runs all in one transaction, each alone answerable: one whose content can't be stored is found by running them
 * again with savepoints, and is refused alone.  Results are set when DONE. */
enum sq_fate sq_batch_run(struct sq_batch *b, struct list *ops);
void sq_op_fail(struct store_op *op, enum store_result result, const char *text);
void sq_ops_fail(struct list *ops, enum store_result result, const char *text);

/* The write-ahead log of one connection that writes. */
struct sq_wal {
	int32_t pages; /* after the last commit */
	int32_t hard_at;
};
void sq_wal_watch(struct sq_wal *w, struct sq_db *db);
/* Copies it into the file when it is long: after the answers to a commit were handed out. */
void sq_wal_checkpoint(struct sq_wal *w, struct sq_db *db);

/* ---- the store ---- */

struct sq_lane {
	struct sq_store *store;
	enum sq_lane_id id;
	pthread_t thread;
	bool running;
	pthread_cond_t wake;
	struct list gathering; /* the loop's: submitted in this turn */
	/* under the store's mutex */
	struct list inbox;
	bool stop;
	int64_t n_batches[STORE_KINDS]; /* taken by the loop */
};

struct sq_store {
	struct store base;
	struct loop *loop;
	struct sqlite_store_config cfg;
	struct loop_dirty dirty;
	struct loop_poll *poll;
	int event_fd;
	struct list answers; /* made by submit itself */
	int64_t state_seen;
	bool stays_down;
	struct sq_lane lanes[SQ_LANES];
	struct sq_files files; /* the writing thread's until the store is up, then constant */
	_Atomic bool stopping; /* reads are interrupted */
	_Atomic int64_t news_until_mono_ns; /* NEWS is written until then */

	pthread_mutex_t mutex;
	/* under the mutex */
	struct list outbox;
	bool signalled;
	enum sq_down down;
	int64_t state_changes;
	char text[200];    /* down: why */
	char warning[200]; /* up: about the logs */
};

/* Waits until there are operations and takes some, up to a limit of items and bytes; false: the store ends.  None are
 * taken before not_before_mono_ns; with until_mono_ns >= 0 it also returns, with none, at that time. */
bool sq_lane_take(struct sq_lane *l, struct list *ret, int32_t max_items, int64_t not_before_mono_ns, int64_t until_mono_ns);
/* In front of what waits: to be taken first, in this order. */
void sq_lane_put_back(struct sq_lane *l, struct list *ops);
/* Hands answered operations to the loop, as one batch. */
void sq_lane_answer(struct sq_lane *l, struct list *answered);
/* SQ_OK: up.  Down for good stays so: later calls are ignored. */
void sq_store_set_state(struct sq_store *s, enum sq_down down, const char *text);
void sq_store_set_warning(struct sq_store *s, const char *text);
/* `text` when it isn't. */
bool sq_store_is_up(struct sq_store *s, bool *ret_stays, char *text, size_t cap);

void *sq_write_main(void *lane);
void *sq_read_main(void *lane);
void *sq_log_main(void *lane);

#endif

/* Inside of the Postgres store: connections, batches, and the table of kinds.
 *
 *   pg_store.c   queues of operations, gathering them into batches, up and down
 *   pg_batch.c   a batch on its way: sending, results, halving, settling
 *   pg_conn.c    one connection: resolving, connecting, set-up, pipeline, watchdog, backoff
 *   pg_schema.c  what a fresh connection is asked before it is used; migrations
 *   op_*.c       the statements: parameters out of operations, answers out of rows */
#ifndef REINS_PG_H
#define REINS_PG_H

#include <libpq-fe.h>

#include "common/base/rng.h"
#include "common/loop/loop.h"
#include "server/store/postgres/pg_params.h"
#include "server/store/postgres/pg_store.h"

#define PG_KINDS (STORE_KINDS + 2) /* the store's own: partitions made ahead, events that are too old */
#define PG_KIND_PARTITIONS STORE_KINDS
#define PG_KIND_TRIM (STORE_KINDS + 1)
#define PG_STMTS_MAX 6

struct pg_store;
struct pg_conn;
struct pg_batch;

/* ---- kinds ---- */

struct pg_stmt {
	const char *sql;
	const char *columns; /* of the parameters, for pg_params_begin; "" for none */
	/* Fills the parameters; false: this batch needs no such statement. */
	bool (*build)(struct pg_batch *b, struct pg_params *ps);
	/* Answers out of the rows.  Not an error's: those never get here.  -errno: not what was expected. */
	int (*read)(struct pg_batch *b, const PGresult *r);
};

struct pg_kind {
	const char *name;
	bool reads;      /* for people: goes to the connection for reads, which may take long */
	bool kept;       /* stays queued while the store is away */
	int32_t max_ops; /* per batch; 0: the configuration's */
	/* Committed in the order of submission: one batch on the way at a time. */
	bool in_order;
	const struct pg_stmt *stmts;
	int n_stmts;
	size_t (*bytes)(const struct store_op *op);
	/* The operation's next key; *at is NULL for the first and the function's own.  A key is at most once in a batch.
	 * NULL function: none. */
	bool (*key)(const struct store_op *op, const void **at, const void **ret, size_t *ret_len);
	/* Order within the batch. NULL: as submitted. */
	int (*order)(const struct store_op *a, const struct store_op *b);
	/* The guilty one alone: leaves out what can be left out and says so.  False: nothing left to leave out. */
	bool (*strip)(struct pg_batch *b, const char *why);
};
extern const struct pg_kind pg_kinds[PG_KINDS];

extern const struct pg_stmt pg_insert_stmts[4], pg_claim_stmts[3], pg_record_stmts[1], pg_take_back_stmts[1],
	pg_cancel_stmts[1], pg_retry_stmts[1], pg_session_stmts[5], pg_started_stmts[1], pg_fill_stmts[1], pg_queues_stmts[1],
	pg_due_stmts[1], pg_expire_stmts[1], pg_strays_stmts[1], pg_runs_stmts[1], pg_log_append_stmts[1], pg_log_read_stmts[1],
	pg_metrics_stmts[1], pg_metrics_read_stmts[1], pg_get_stmts[1], pg_list_stmts[6], pg_master_open_stmts[1],
	pg_beat_stmts[1], pg_take_over_stmts[1], pg_workers_stmts[2], pg_worker_gone_stmts[1], pg_detached_stmts[1], pg_drain_stmts[1], pg_queue_list_stmts[2], pg_pause_stmts[2], pg_partitions_stmts[2], pg_events_stmts[2], pg_news_stmts[1], pg_trim_stmts[2];
bool pg_record_strip(struct pg_batch *b, const char *why);

/* ---- batches ---- */

struct pg_batch {
	struct list node; /* the connection's `batches`, or the queue's `waiting` */
	struct pg_store *store;
	const struct pg_kind *kind;
	struct store_op **ops;
	size_t n;
	bool resent;      /* all were sent before, outcome unknown */
	bool stripped;
	bool no_memory;   /* for the answer */
	bool on_way;      /* counted in the queue's in_flight */
	uint8_t retries;
	uint8_t chosen[PG_STMTS_MAX], n_chosen, current; /* statements on the way */
	struct pg_conn *conn;
	char sqlstate[6]; /* "" while nothing failed */
	char text[160];
	char *note;       /* of strip: the text that stands for what was left out */
};

struct pg_batch *pg_batch_new(struct pg_store *s, const struct pg_kind *k, struct store_op *const *ops, size_t n,
			      bool resent);
void pg_batch_free(struct pg_batch *b);
/* Puts its statements and a sync into the connection's pipeline.  -ENOMEM: its parameters don't fit a message;
 * -ENOTCONN: libpq refused. */
int pg_batch_send(struct pg_batch *b, PGconn *pq, struct pg_params *ps) MUST_CHECK;
/* One result of the current statement, and its end. */
void pg_batch_on_result(struct pg_batch *b, const PGresult *r);
void pg_batch_on_end(struct pg_batch *b);
/* The sync came: answers, halves or tries again. Frees the batch or hands it on. */
void pg_batch_on_sync(struct pg_batch *b);
/* It can't be sent: stripped if it can be, then refused. Frees the batch or hands it on. */
void pg_batch_too_large(struct pg_batch *b);
/* The connection was lost: its operations go back to the queue, to be settled. Frees the batch. */
void pg_batch_on_lost(struct pg_batch *b);
/* From a read function: somebody changed the row between snapshot and lock: ask again. */
void pg_op_again(struct store_op *op);

/* ---- connections ---- */

struct pg_conn_ops {
	void (*on_ready)(void *arg, struct pg_conn *c);
	/* After every batch was handed to pg_batch_on_lost. The connection comes again by itself. */
	void (*on_lost)(void *arg, struct pg_conn *c, const char *text);
	/* It is about to be lost because nothing was heard for too long. */
	void (*on_silent)(void *arg);
	void (*on_room)(void *arg); /* a batch came back, or what waited to be written was */
};

struct pg_conn *pg_conn_new(struct loop *loop, const struct pg_store_config *cfg, int number,
			    const struct pg_conn_ops *ops, void *arg);
/* NULL-safe; batches on the way must have been taken off its list. */
void pg_conn_free(struct pg_conn *c);
void pg_conn_start(struct pg_conn *c);
bool pg_conn_ready(const struct pg_conn *c);
bool pg_conn_blocked(const struct pg_conn *c); /* what was sent is not written yet */
size_t pg_conn_in_flight(const struct pg_conn *c);
struct list *pg_conn_batches(struct pg_conn *c);
int pg_conn_send(struct pg_conn *c, struct pg_batch *b, struct pg_params *ps) MUST_CHECK;
/* Writes what was sent in this turn. */
void pg_conn_flush(struct pg_conn *c);
/* Gives the connection up at the end of the running callback. */
void pg_conn_give_up(struct pg_conn *c, const char *text);
/* Since the set-up: a warning for people, or "". */
const char *pg_conn_warning(const struct pg_conn *c);
const char *pg_conn_store_id(const struct pg_conn *c);
bool pg_conn_unlabelled(const struct pg_conn *c); /* tasks of before version 5 want their labels */
bool pg_conn_newer_schema(const struct pg_conn *c); /* it was lost for that */

/* ---- set-up and schema ---- */

struct pg_setup {
	int step;
	int32_t version;
	char store_id[UUID_TEXT_LEN + 1];
	char warning[160];
	char *script; /* the last statement built */
	int64_t statement_timeout_ns; /* 0: none */
	bool unlabelled;
	bool newer; /* refused: the schema is a later program's */
	bool moves; /* set by the one that moves tasks here: to anybody else a store with a move unfinished is closed */
};
/* The next thing to ask; `last` is the last result of the one before, NULL at the start.  Returns 1 with *ret_sql,
 * 0 when the connection may be used, -1 with the reason in `text`. */
int pg_setup_next(struct pg_setup *s, const PGresult *last, const char **ret_sql, char *text, size_t cap);
void pg_setup_done(struct pg_setup *s);

/* ---- the store ---- */

struct pg_queue {
	struct list ops;     /* submitted; those to be settled are in front */
	struct list waiting; /* batches to be sent (again) as they are */
	size_t n_ops;
	int in_flight;       /* batches on connections */
};

struct pg_store {
	struct store base;
	struct loop *loop;
	struct pg_store_config cfg;
	struct pg_conn *conns[16];
	struct pg_queue queues[PG_KINDS];
	struct list answers; /* operations with their results, told in the flush */
	struct pg_params params;
	struct loop_dirty dirty;
	struct loop_timer partitions_timer, trim_timer;
	struct store_op partitions_op, trim_op;
	bool partitions_busy, trim_busy, told, closing;
	bool unlabelled; /* tasks of before version 5 want their labels */
	char store_id[UUID_TEXT_LEN + 1];
	char told_text[200];
};

/* The operation's answer; done is called in the flush. */
void pg_store_answer(struct pg_store *s, struct store_op *op, enum store_result result, const char *text);
/* Back to the front of its queue. */
void pg_store_requeue(struct pg_store *s, struct store_op *op);
void pg_store_lost(struct pg_store *s, struct pg_batch *b, const char *text);

#endif

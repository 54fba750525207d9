/* Reading rows of a binary result.  A column of another width than its type's is a bug of a
 * statement here, and aborts. */
#ifndef REINS_PG_ROWS_H
#define REINS_PG_ROWS_H

#include <libpq-fe.h>

#include "server/store/mem.h"
#include "server/store/store.h"

static inline bool pg_is_null(const PGresult *r, int row, int col) { return PQgetisnull(r, row, col); }
/* Null reads as 0. */
bool pg_get_bool(const PGresult *r, int row, int col);
int32_t pg_get_int(const PGresult *r, int row, int col); /* int2 or int4 */
int64_t pg_get_int8(const PGresult *r, int row, int col);
double pg_get_float8(const PGresult *r, int row, int col);
int64_t pg_get_wall_us(const PGresult *r, int row, int col);
void pg_get_uuid(const PGresult *r, int row, int col, struct uuid *ret);
/* As long as the result; "" for null. */
const char *pg_get_text(const PGresult *r, int row, int col);
/* A copy; data NULL for null. */
/* Without memory these return none, and pg_rows_short() says so, once. */
void *pg_mem(struct store_mem **mem, size_t size);
bool pg_rows_short(void);
struct store_bytes pg_get_bytes(const PGresult *r, int row, int col, struct store_mem **mem);
/* NULL for null; -ENOMEM leaves *ret untouched. */
int pg_get_blob(const PGresult *r, int row, int col, struct blob **ret) MUST_CHECK;

/* The columns that the three narrow tables share, in this order; `x` is the table's alias with its dot. */
#define PG_CORE_COLUMNS 18
#define PG_CORE_LOSSES 5 /* that one's place: it is not in core_task */
#define PG_CORE_OF(x) \
	x "task_id, " x "seq, " x "neg_priority, " x "attempt, " x "failures, " x "losses, " x "cpu, " x "memory, " x \
	  "gpus, " x "exclusive, " x "lease_ttl_ns, " x "max_attempts, " x "backoff_initial_ns, " x "backoff_max_ns, " x \
	  "backoff_multiplier, " x "queue, " x "handler, " x "custom"
#define PG_CORE PG_CORE_OF("")
/* What comes after `losses` of them, which no change of state touches; a row of `task` has these too. */
#define PG_ASKS_OF(x)                                                                                           \
	x "cpu, " x "memory, " x "gpus, " x "exclusive, " x "lease_ttl_ns, " x "max_attempts, " x "backoff_initial_ns, " x \
	  "backoff_max_ns, " x "backoff_multiplier, " x "queue, " x "handler, " x "custom"
#define PG_ASKS PG_ASKS_OF("")
/* The same with the counts of what the row becomes. */
#define PG_CORE_WITH(x, failures, losses) \
	x "task_id, " x "seq, " x "neg_priority, " x "attempt, " failures ", " losses ", " PG_ASKS_OF(x)
/* What a row of `task` has of them: all but the counts, in the same order. */
#define PG_TASK_CORE_OF(x) x "id AS task_id, " x "seq, " x "neg_priority, " PG_ASKS_OF(x)
/* Stands for them in a row of a union that has none. */
#define PG_CORE_NONE "NULL::uuid, 0, 0, 0, 0, 0, 0, 0, 0, false, 0, 0, 0, 0, 0, '', NULL, NULL"
/* Whether the attempt of `i` (task_id, attempt, worker) runs with this worker, or was taken back from it and is open. */
#define PG_IS_OURS                                                                                              \
	"(EXISTS (SELECT FROM running r WHERE r.task_id = i.task_id AND r.attempt = i.attempt AND "                     \
	"(r.worker = i.worker COLLATE \"C\") IS TRUE OFFSET 0) OR EXISTS (SELECT FROM task t, ready r WHERE "           \
	"t.id = i.task_id AND r.queue = t.queue AND r.neg_priority = t.neg_priority AND r.seq = t.seq AND "             \
	"r.attempt = i.attempt AND r.open_worker = i.worker COLLATE \"C\" OFFSET 0))"
/* `z`: sessions that nothing is given to any more, among those of the parameters: see store_assignment.  Looked up once for
 * each session of the batch.  PG_IS_STALE: whether that of `i` is one. */
#define PG_STALE(worker, session, master, incarnation)                                                          \
	"z AS MATERIALIZED (SELECT * FROM (SELECT DISTINCT worker, session, master, incarnation FROM "     \
	"unnest(" worker "::text[], " session "::int8[], " master "::text[], " incarnation "::int8[]) AS "               \
	"u(worker, session, master, incarnation) WHERE worker IS NOT NULL) i WHERE "                                    \
	"EXISTS (SELECT FROM worker w WHERE w.id = i.worker COLLATE \"C\" AND w.session > i.session OFFSET 0) OR "      \
	"EXISTS (SELECT FROM master m WHERE m.id = i.master COLLATE \"C\" AND m.incarnation > i.incarnation OFFSET 0)), "
#define PG_IS_STALE                                                                                             \
	"((i.worker, i.session, coalesce(i.master, ''), i.incarnation) IN "                                             \
	"(SELECT z.worker, z.session, coalesce(z.master, ''), z.incarnation FROM z))"
/* Appends an event of what the statement changed: `from` selects task_id, attempt, and what * 64 + state before * 8 + state after.  It
 * must read what holds the changed rows, as its number stands for their order: see store_events.h. */
#define PG_EVENT(from)                                                                                          \
	", ev AS (INSERT INTO event (changes) SELECT string_agg(uuid_send(c.task_id) || int8send(c.attempt * 256::int8 + " \
	"c.code), '') FROM (" from ") c(task_id, attempt, code) HAVING count(*) > 0) "
/* Reads them from column `col` on; its texts live as long as the result. */
void pg_get_core(const PGresult *r, int row, int col, struct core_task *ret);

/* drain_mode, drain_within_ns, drain_reason from column `col` on. */
void pg_get_drain(const PGresult *r, int row, int col, struct store_mem **mem, struct store_drain_wish *ret);

#endif

/* A task as people see it, out of the four tables: what GET and LIST share. */
#ifndef REINS_PG_VIEW_H
#define REINS_PG_VIEW_H

#include "server/store/postgres/pg_rows.h"

/* From a relation or subquery t of task: joins e, r, p, d. */
#define PG_VIEW_JOINS                                                                                      \
	"LEFT JOIN LATERAL (SELECT e.* FROM ended e WHERE e.task_id = t.id OFFSET 0) e ON true "                   \
	"LEFT JOIN LATERAL (SELECT r.* FROM running r WHERE r.task_id = t.id OFFSET 0) r ON true "                 \
	"LEFT JOIN LATERAL (SELECT p.attempt, p.failures, p.losses, p.open_worker FROM ready p WHERE p.queue = t.queue AND p.neg_priority = " \
	"t.neg_priority AND p.seq = t.seq OFFSET 0) p ON true "                                                \
	"LEFT JOIN LATERAL (SELECT d.attempt, d.failures, d.losses, d.due_at FROM delayed d WHERE d.task_id = t.id OFFSET 0) d ON true "

/* `first` is an SQL condition: only where it holds the wide columns are sent; these have names of their own, and so has
 * `id`. */
#define PG_VIEW_COLUMNS 43
#define PG_VIEW(first, spec, result)                                                                       \
	"t.id, t.seq, t.neg_priority, coalesce(e.attempt, r.attempt, p.attempt, d.attempt, 0), "               \
	"coalesce(e.failures, r.failures, p.failures, d.failures, 0), coalesce(e.losses, r.losses, p.losses, d.losses, 0), " PG_ASKS_OF("t.") ", " \
	"CASE WHEN e.task_id IS NOT NULL THEN e.state::int WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END, "     \
	"coalesce(r.worker, e.worker), t.owner, t.created_at, coalesce(d.due_at, t.run_at), "                  \
	"coalesce(r.started_at, e.started_at), e.finished_at, "                                                \
	"coalesce(r.cancel_requested_at, e.cancel_requested_at), coalesce(e.outcome, 0)::int, e.exit_code, e.signal, " \
	"e.result_too_large, coalesce(r.dispatched_at, e.dispatched_at), coalesce(e.log_end, 0), e.log_dropped, "             \
	"octet_length(e.result), coalesce(r.instance, e.instance), coalesce(r.session, e.session), coalesce(r.lease_ns, e.lease_ns), " \
	"coalesce(r.devices, e.devices), coalesce(r.cause, e.cause), e.oom_killed, CASE WHEN " first " THEN e.error END AS v_error, CASE WHEN " first " THEN " result " END AS v_result, CASE WHEN " first \
	" THEN " spec " END AS v_spec"

/* Reads them from `col` on; -ENOMEM. `attempts` stays unset. */
int pg_get_view(const PGresult *r, int row, int col, struct store_task *ret, struct store_mem **mem) MUST_CHECK;
/* The attempt that the view itself shows, running or final: becomes t->attempts, of one; none: of none. */
void pg_get_view_attempt(const PGresult *r, int row, int col, struct store_task *t, struct store_mem **mem);

/* The newest former attempts of a task, numbered `n` from the oldest of them; NULLs where there is none. */
#define PG_FORMER(task)                                                                                     \
	"LEFT JOIN LATERAL (SELECT a.*, row_number() OVER (ORDER BY a.attempt) AS n FROM (SELECT a.* FROM attempt a WHERE " \
	"a.task_id = " task " ORDER BY a.attempt DESC LIMIT " PG_FORMER_MAX ") a) a ON true "
#define PG_FORMER_MAX "200"
#define PG_FORMER_COLUMNS                                                                                    \
	"a.attempt, a.worker, a.outcome, a.dispatched_at, a.started_at, a.finished_at, a.exit_code, a.signal, a.log_end, a.error, " \
	"a.instance, a.session, a.lease_ns, a.devices, a.cause, a.oom_killed, a.log_dropped"
#define PG_FORMER_N 17
/* Puts rows [first, first + n) in front of the view's own attempt: PG_FORMER_COLUMNS from `col` on, and whether the attempt
 * is open.  Those that a statement behind the view's has found to be newer than the view are left out. */
void pg_get_attempts(const PGresult *r, int first, int n, int col, struct store_task *t, struct store_mem **mem);
/* NULL for null. */
char *pg_get_text_or_null(const PGresult *r, int row, int col, struct store_mem **mem);
/* False for null. */
bool pg_get_instance(const PGresult *r, int row, int col, uint8_t ret[static CORE_INSTANCE_LEN]);

#endif

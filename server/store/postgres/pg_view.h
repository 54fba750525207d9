/* A task as people see it, out of the four tables: what GET and LIST share. */
#ifndef REINS_PG_VIEW_H
#define REINS_PG_VIEW_H

#include "server/store/postgres/pg_rows.h"

/* From a relation or subquery t of task: joins e, r, p, d. */
#define PG_VIEW_JOINS                                                                                      \
	"LEFT JOIN LATERAL (SELECT e.* FROM ended e WHERE e.task_id = t.id OFFSET 0) e ON true "                   \
	"LEFT JOIN LATERAL (SELECT r.* FROM running r WHERE r.task_id = t.id OFFSET 0) r ON true "                 \
	"LEFT JOIN LATERAL (SELECT p.attempt, p.failures, p.open_worker FROM ready p WHERE p.queue = t.queue AND p.neg_priority = " \
	"t.neg_priority AND p.seq = t.seq OFFSET 0) p ON true "                                                \
	"LEFT JOIN LATERAL (SELECT d.attempt, d.failures, d.due_at FROM delayed d WHERE d.task_id = t.id OFFSET 0) d ON true "

/* `first` is an SQL condition: only where it holds the wide columns are sent. */
#define PG_VIEW_COLUMNS 36
#define PG_VIEW(first, spec, result)                                                                       \
	"t.id, t.seq, t.neg_priority, coalesce(e.attempt, r.attempt, p.attempt, d.attempt, 0), "               \
	"coalesce(e.failures, r.failures, p.failures, d.failures, 0), 0, " PG_ASKS_OF("t.") ", " \
	"CASE WHEN e.task_id IS NOT NULL THEN e.state::int WHEN r.task_id IS NOT NULL THEN 2 ELSE 1 END, "     \
	"coalesce(r.worker, e.worker), t.owner, t.created_at, coalesce(d.due_at, t.run_at), "                  \
	"coalesce(r.started_at, e.started_at), e.finished_at, "                                                \
	"coalesce(r.cancel_requested_at, e.cancel_requested_at), coalesce(e.outcome, 0)::int, e.exit_code, e.signal, " \
	"e.result_too_large, coalesce(r.dispatched_at, e.dispatched_at), coalesce(e.log_end, 0), "             \
	"octet_length(e.result), CASE WHEN " first " THEN e.error END, CASE WHEN " first " THEN " result " END, CASE WHEN " first " THEN " spec " END"

/* Reads them from `col` on; -ENOMEM. `attempts` stays unset. */
int pg_get_view(const PGresult *r, int row, int col, struct store_task *ret, struct store_mem **mem) MUST_CHECK;
/* The attempt that the view itself shows, running or final; false: there is none. */
bool pg_get_view_attempt(const PGresult *r, int row, int col, const struct store_task *t, struct store_attempt_row *ret);

#endif

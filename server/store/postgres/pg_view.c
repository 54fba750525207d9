/* Columns of PG_VIEW, in their order. */
#include <string.h>

#include "server/store/postgres/pg_view.h"

enum {
	STATE = PG_CORE_COLUMNS, WORKER, OWNER, CREATED, RUN_AT, STARTED, FINISHED, WISH, OUTCOME, EXIT_CODE, SIGNAL,
	TOO_LARGE, DISPATCHED, LOG_END, LOG_DROPPED, RESULT_LEN, INSTANCE, SESSION, LEASE, DEVICES, CAUSE, OOM, ERROR, RESULT, SPEC, COLUMNS
};
_Static_assert(COLUMNS == PG_VIEW_COLUMNS, "PG_VIEW_COLUMNS");

char *pg_get_text_or_null(const PGresult *r, int row, int col, struct store_mem **mem)
{
	if (pg_is_null(r, row, col))
		return NULL;
	return store_mem_copy(mem, PQgetvalue(r, row, col), (size_t)PQgetlength(r, row, col));
}

bool pg_get_instance(const PGresult *r, int row, int col, uint8_t ret[static CORE_INSTANCE_LEN])
{
	struct uuid u;
	_Static_assert(sizeof(u.b) == CORE_INSTANCE_LEN, "an instance is stored as a uuid");
	if (pg_is_null(r, row, col))
		return false;
	pg_get_uuid(r, row, col, &u);
	memcpy(ret, u.b, sizeof(u.b));
	return true;
}

int pg_get_view(const PGresult *r, int row, int col, struct store_task *ret, struct store_mem **mem)
{
	struct store_task t = {0};
	int rc = pg_get_blob(r, row, col + SPEC, &t.spec);
	if (rc < 0)
		return rc;
	pg_get_core(r, row, col, &t.core);
	store_mem_texts(mem, &t.core);
	t.losses = pg_get_int(r, row, col + PG_CORE_LOSSES);
	t.state = (enum store_state)pg_get_int(r, row, col + STATE);
	t.worker = pg_get_text_or_null(r, row, col + WORKER, mem);
	t.owner = pg_get_text_or_null(r, row, col + OWNER, mem);
	t.cause = pg_get_text_or_null(r, row, col + CAUSE, mem);
	t.created_wall_us = pg_get_wall_us(r, row, col + CREATED);
	t.run_at_wall_us = pg_get_wall_us(r, row, col + RUN_AT);
	t.started_wall_us = pg_get_wall_us(r, row, col + STARTED);
	t.finished_wall_us = pg_get_wall_us(r, row, col + FINISHED);
	t.cancel_requested_wall_us = pg_get_wall_us(r, row, col + WISH);
	t.outcome = (enum store_outcome)pg_get_int(r, row, col + OUTCOME);
	t.has_exit_code = !pg_is_null(r, row, col + EXIT_CODE);
	t.exit_code = pg_get_int(r, row, col + EXIT_CODE);
	t.has_signal = !pg_is_null(r, row, col + SIGNAL);
	t.signal = pg_get_int(r, row, col + SIGNAL);
	t.result_too_large = pg_get_int8(r, row, col + TOO_LARGE);
	t.result_len = pg_is_null(r, row, col + RESULT_LEN) ? 0 : pg_get_int(r, row, col + RESULT_LEN);
	t.error = pg_get_bytes(r, row, col + ERROR, mem);
	t.result = pg_get_bytes(r, row, col + RESULT, mem);
	*ret = t;
	return 0;
}

void pg_get_view_attempt(const PGresult *r, int row, int col, struct store_task *t, struct store_mem **mem)
{
	t->n_attempts = 0;
	if (!t->worker)
		return;
	struct store_attempt_row *a = store_mem_get(mem, sizeof(*a));
	*a = (struct store_attempt_row){
		.attempt = t->core.attempt,
		.worker = t->worker,
		.outcome = t->outcome,
		.dispatched_wall_us = pg_get_wall_us(r, row, col + DISPATCHED),
		.started_wall_us = t->started_wall_us,
		.finished_wall_us = t->finished_wall_us,
		.has_exit_code = t->has_exit_code,
		.has_signal = t->has_signal,
		.exit_code = t->exit_code,
		.signal = t->signal,
		.error = t->error,
		.log_end = pg_get_int8(r, row, col + LOG_END),
		.log_dropped = pg_get_int8(r, row, col + LOG_DROPPED),
		.session = pg_get_int8(r, row, col + SESSION),
		.lease_ns = pg_get_int8(r, row, col + LEASE),
		.devices = pg_get_text_or_null(r, row, col + DEVICES, mem),
		.cause = t->cause,
		.oom_killed = pg_get_bool(r, row, col + OOM),
	};
	a->has_instance = pg_get_instance(r, row, col + INSTANCE, a->instance);
	t->attempts = a;
	t->n_attempts = 1;
}

enum {
	A_ATTEMPT, A_WORKER, A_OUTCOME, A_DISPATCHED, A_STARTED, A_FINISHED, A_EXIT_CODE, A_SIGNAL, A_LOG_END, A_ERROR, A_INSTANCE,
	A_SESSION, A_LEASE, A_DEVICES, A_CAUSE, A_OOM, A_LOG_DROPPED, A_OPEN
};
_Static_assert(A_OPEN == PG_FORMER_N, "PG_FORMER_N");

static struct store_attempt_row former(const PGresult *r, int row, int col, struct store_mem **mem)
{
	struct store_attempt_row a = {
		.attempt = pg_get_int(r, row, col + A_ATTEMPT),
		.worker = pg_get_text_or_null(r, row, col + A_WORKER, mem),
		.outcome = (enum store_outcome)pg_get_int(r, row, col + A_OUTCOME),
		.dispatched_wall_us = pg_get_wall_us(r, row, col + A_DISPATCHED),
		.started_wall_us = pg_get_wall_us(r, row, col + A_STARTED),
		.finished_wall_us = pg_get_wall_us(r, row, col + A_FINISHED),
		.has_exit_code = !pg_is_null(r, row, col + A_EXIT_CODE),
		.has_signal = !pg_is_null(r, row, col + A_SIGNAL),
		.exit_code = pg_get_int(r, row, col + A_EXIT_CODE),
		.signal = pg_get_int(r, row, col + A_SIGNAL),
		.error = pg_get_bytes(r, row, col + A_ERROR, mem),
		.log_end = pg_get_int8(r, row, col + A_LOG_END),
		.log_dropped = pg_get_int8(r, row, col + A_LOG_DROPPED),
		.session = pg_get_int8(r, row, col + A_SESSION),
		.lease_ns = pg_get_int8(r, row, col + A_LEASE),
		.devices = pg_get_text_or_null(r, row, col + A_DEVICES, mem),
		.cause = pg_get_text_or_null(r, row, col + A_CAUSE, mem),
		.oom_killed = pg_get_bool(r, row, col + A_OOM),
		.open = !pg_is_null(r, row, col + A_OPEN) && pg_get_bool(r, row, col + A_OPEN),
	};
	a.has_instance = pg_get_instance(r, row, col + A_INSTANCE, a.instance);
	return a;
}

void pg_get_attempts(const PGresult *r, int first, int n, int col, struct store_task *t, struct store_mem **mem)
{
	struct store_attempt_row *all = pg_mem(mem, ((size_t)n + 1) * sizeof(*all));
	size_t own = t->n_attempts, at = 0;
	if (!all)
		return;
	for (int row = first; row < first + n; row++)
		if (!pg_is_null(r, row, col + A_ATTEMPT) && pg_get_int(r, row, col + A_ATTEMPT) <= t->core.attempt - (int32_t)own)
			all[at++] = former(r, row, col, mem);
	if (own)
		all[at++] = t->attempts[0];
	t->attempts = all;
	t->n_attempts = at;
}

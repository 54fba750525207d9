/* Columns of PG_VIEW, in their order. */
#include <string.h>

#include "server/store/postgres/pg_view.h"

enum {
	STATE = PG_CORE_COLUMNS, WORKER, OWNER, CREATED, RUN_AT, STARTED, FINISHED, WISH, OUTCOME, EXIT_CODE, SIGNAL,
	TOO_LARGE, DISPATCHED, LOG_END, RESULT_LEN, ERROR, RESULT, SPEC, COLUMNS
};
_Static_assert(COLUMNS == PG_VIEW_COLUMNS, "PG_VIEW_COLUMNS");

static char *text(const PGresult *r, int row, int col, struct store_mem **mem)
{
	if (pg_is_null(r, row, col))
		return NULL;
	return store_mem_copy(mem, PQgetvalue(r, row, col), (size_t)PQgetlength(r, row, col));
}

int pg_get_view(const PGresult *r, int row, int col, struct store_task *ret, struct store_mem **mem)
{
	struct store_task t = {0};
	int rc = pg_get_blob(r, row, col + SPEC, &t.spec);
	if (rc < 0)
		return rc;
	pg_get_core(r, row, col, &t.core);
	store_mem_texts(mem, &t.core);
	t.state = (enum store_state)pg_get_int(r, row, col + STATE);
	t.worker = text(r, row, col + WORKER, mem);
	t.owner = text(r, row, col + OWNER, mem);
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

bool pg_get_view_attempt(const PGresult *r, int row, int col, const struct store_task *t, struct store_attempt_row *ret)
{
	if (!t->worker)
		return false;
	*ret = (struct store_attempt_row){
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
	};
	return true;
}

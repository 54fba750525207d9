/* METRICS and METRICS_READ: points of attempts, in the file of the logs, and gone with a task's logs. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq.h"
#include "server/store/store_metrics.h"

#define ROW_COST 48 /* of a point, beside its bytes */

static const char put_sql[] =
	"INSERT INTO metric (task_id, attempt, number, point) VALUES (?, ?, ?, ?) ON CONFLICT (task_id, attempt, number) DO NOTHING";
static const char counts_sql[] =
	"INSERT INTO metric (task_id, attempt, number, point) VALUES (?, ?, ?, ?) ON CONFLICT (task_id, attempt, number) DO "
	"UPDATE SET point = excluded.point";
static const char after_sql[] =
	"SELECT number, point FROM metric WHERE task_id = ?1 AND attempt = ?2 AND number > max(?3, 0) ORDER BY number LIMIT ?4";
static const char newest_sql[] =
	"SELECT number, point FROM metric WHERE task_id = ?1 AND attempt = ?2 AND number > max(?3, 0) ORDER BY number DESC LIMIT ?4";
static const char last_sql[] = "SELECT coalesce(max(number), 0) FROM metric WHERE task_id = ? AND attempt = ?";
static const char has_sql[] = "SELECT 1 FROM metric WHERE task_id = ? AND attempt = ? AND number = ?";
static const char counts_of_sql[] = "SELECT point FROM metric WHERE task_id = ? AND attempt = ? AND number = 0";

int64_t sq_metrics_last(struct sq_db *logs, const struct core_attempt *at)
{
	int64_t last = 0;
	sqlite3_stmt *q = sq_begin(logs, last_sql);
	sq_bind_uuid(logs, &at->task);
	sq_bind_int(logs, at->attempt);
	if (sq_row(logs, q)) {
		last = sq_int(q, 0);
		sq_end(q);
	}
	return last;
}

static bool has(struct sq_db *logs, const struct core_attempt *at, int64_t number)
{
	sqlite3_stmt *q = sq_begin(logs, has_sql);
	sq_bind_uuid(logs, &at->task);
	sq_bind_int(logs, at->attempt);
	sq_bind_int(logs, number);
	bool found = sq_row(logs, q);
	sq_end(q);
	return found;
}

void sq_metrics_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_metrics *o = container_of(op, struct store_metrics, op);
	int64_t cost = 0, added = 0;
	o->ret_fenced = !sq_log_is_ours(x, &o->at, o->worker);
	if (o->ret_fenced)
		return;
	/* After a reconnect some may come again: what is there needs no room. */
	int64_t last = sq_metrics_last(&x->logs, &o->at);
	for (size_t i = 0; i < o->n; i++)
		if (o->items[i].number > last || (o->items[i].number && !has(&x->logs, &o->at, o->items[i].number)))
			cost += (int64_t)o->items[i].point.len + ROW_COST;
	if (cost && !sq_log_make_room(x, cost)) {
		op->result = STORE_REFUSED;
		snprintf(op->text, sizeof(op->text), "logs and metrics take all of the %lld bytes that they may, and no ended task's can go",
			 (long long)x->room.max);
		return;
	}
	for (size_t i = 0; i < o->n; i++) {
		const struct store_metric *m = &o->items[i];
		sqlite3_stmt *q = sq_begin(&x->logs, m->number ? put_sql : counts_sql);
		sq_bind_uuid(&x->logs, &o->at.task);
		sq_bind_int(&x->logs, o->at.attempt);
		sq_bind_int(&x->logs, m->number);
		sq_bind_bytes(&x->logs, m->point.data ? m->point.data : (const uint8_t *)"", m->point.len);
		if (sq_run(&x->logs, q) == 1 && m->number)
			added += (int64_t)m->point.len + ROW_COST;
	}
	if (added)
		sq_log_account(x, &o->at.task, added);
}

void sq_metrics_read_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_metrics_read *o = container_of(op, struct store_metrics_read, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *logs = &x->logs;
	int64_t left = o->max_bytes > 0 ? o->max_bytes : INT64_MAX;
	int32_t limit = o->limit > 0 ? o->limit : 0;
	o->ret_n = 0;
	o->ret_items = limit ? sq_mem(logs, mem, (size_t)limit * sizeof(*o->ret_items)) : NULL;
	o->ret_counts = (struct store_bytes){0};
	sqlite3_stmt *q = sq_begin(logs, o->newest ? newest_sql : after_sql);
	sq_bind_uuid(logs, &o->at.task);
	sq_bind_int(logs, o->at.attempt);
	sq_bind_int(logs, o->after);
	sq_bind_int(logs, limit);
	while (sq_row(logs, q)) {
		if (left <= 0) {
			sq_end(q);
			break;
		}
		struct store_metric *m = &o->ret_items[o->ret_n++];
		m->number = sq_int(q, 0);
		m->point = sq_bytes_copy(logs, q, 1, mem);
		left -= (int64_t)m->point.len;
	}
	q = sq_begin(logs, counts_of_sql);
	sq_bind_uuid(logs, &o->at.task);
	sq_bind_int(logs, o->at.attempt);
	if (sq_row(logs, q)) {
		o->ret_counts = sq_bytes_copy(logs, q, 0, mem);
		sq_end(q);
	}
}

/* FILL, QUEUES, DUE: what scheduling reads, and delayed rows whose time has come.  They run between the claims of the
 * writing thread, so that what one master has claimed is never read as ready. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq_rows.h"

#define QUEUES_MAX 100000

static const char fill_sql[] =
	"SELECT " SQ_CORE " FROM ready WHERE queue = ? AND (neg_priority, seq) > (?, ?) ORDER BY neg_priority, seq LIMIT ?";
/* From one queue's name to the next one's: reads as many rows as there are queues. */
static const char next_queue_sql[] = "SELECT queue FROM ready WHERE queue > ? ORDER BY queue LIMIT 1";
static const char due_sql[] = "SELECT " SQ_CORE " FROM delayed WHERE due_us <= ? ORDER BY due_us LIMIT ?";
static const char next_due_sql[] = "SELECT due_us FROM delayed ORDER BY due_us LIMIT 1";

void sq_fill_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_fill *o = container_of(op, struct store_fill, op);
	struct sq_db *db = &x->db;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 0;
	free(o->ret_rows);
	o->ret_n = 0;
	o->ret_rows = calloc(limit ? limit : 1, sizeof(*o->ret_rows));
	if (!o->ret_rows) {
		sq_db_no_memory(db);
		return;
	}
	sqlite3_stmt *q = sq_begin(db, fill_sql);
	sq_bind_text(db, o->queue);
	sq_bind_int(db, o->from_start ? INT64_MIN : -(int64_t)o->after_priority);
	sq_bind_int(db, o->from_start ? INT64_MIN : o->after_seq);
	sq_bind_int(db, (int64_t)limit);
	while (sq_row(db, q)) {
		if (o->ret_n == limit) {
			sq_end(q);
			break;
		}
		struct core_task *t = &o->ret_rows[o->ret_n++];
		sq_core_read_task(q, 0, t);
		t->queue = o->queue;
	}
	o->ret_exhausted = o->ret_n < limit;
}

/* One block: the pointers, and the names behind them. */
static char **names_of(const char *text, size_t len, size_t n)
{
	char **names = calloc(1, n * sizeof(*names) + len + 1);
	if (!names)
		return NULL;
	char *at = (char *)(names + n);
	if (len) /* without names there is no text */
		memcpy(at, text, len);
	for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
		names[i] = at;
	return names;
}

void sq_queues_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_queues *o = container_of(op, struct store_queues, op);
	struct sq_db *db = &x->db;
	struct buf text;
	char last[CORE_NAME_MAX + 1] = "";
	size_t n = 0;
	buf_init(&text, (size_t)QUEUES_MAX * sizeof(last));
	free(o->ret_names);
	o->ret_names = NULL;
	o->ret_n = 0;
	while (n < QUEUES_MAX) {
		sqlite3_stmt *q = sq_begin(db, next_queue_sql);
		sq_bind_text(db, last);
		if (!sq_row(db, q))
			break;
		snprintf(last, sizeof(last), "%s", sq_text(q, 0));
		sq_end(q);
		if (buf_add(&text, last, strlen(last) + 1) < 0) {
			sq_db_no_memory(db);
			break;
		}
		n++;
	}
	if (!db->rc) {
		o->ret_names = names_of((const char *)buf_head(&text), buf_len(&text), n);
		o->ret_n = o->ret_names ? n : 0;
		if (!o->ret_names)
			sq_db_no_memory(db);
	}
	buf_done(&text);
}

static size_t move_due(struct sq_ctx *x, struct store_due *o, size_t limit)
{
	struct sq_db *db = &x->db;
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	_cleanup_free_ struct sq_core *rows = calloc(limit, sizeof(*rows));
	size_t n = 0;
	if (!rows) {
		sq_db_no_memory(db);
		return 0;
	}
	sqlite3_stmt *q = sq_begin(db, due_sql);
	sq_bind_int(db, x->now_wall_us);
	sq_bind_int(db, (int64_t)limit);
	while (sq_row(db, q))
		sq_core_read(q, 0, &rows[n++]);
	o->ret_rows = n ? store_mem_get(mem, n * sizeof(*o->ret_rows)) : NULL;
	for (size_t i = 0; i < n; i++) {
		if (sq_delayed_take(db, &rows[i].task.id, INT64_MAX, &rows[i]))
			sq_ready_put(db, &rows[i], NULL);
		o->ret_rows[i] = rows[i].task;
		o->ret_rows[i].queue = store_mem_copy(mem, rows[i].queue, strlen(rows[i].queue));
	}
	return n;
}

void sq_due_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_due *o = container_of(op, struct store_due, op);
	struct sq_db *db = &x->db;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 1;
	o->ret_next_in_ns = -1;
	o->ret_n = move_due(x, o, limit);
	if (o->ret_n == limit) {
		o->ret_next_in_ns = 0;
		return;
	}
	sqlite3_stmt *q = sq_begin(db, next_due_sql);
	if (sq_row(db, q)) {
		int64_t left_us = sq_int(q, 0) - x->now_wall_us;
		o->ret_next_in_ns = left_us <= 0 ? 0 : us_to_ns(left_us);
		sq_end(q);
	}
}

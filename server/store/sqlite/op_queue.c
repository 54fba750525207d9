/* FILL, QUEUES, DUE, EXPIRE: what scheduling reads, delayed rows whose time has come, and rows that nobody took in time.
 * They run between the claims of the writing thread, so that what one master has claimed is never read as ready. */
#include <stdio.h>
#include <string.h>

#include "server/store/sqlite/sq_events.h"
#include "server/store/sqlite/sq_rows.h"

#define QUEUES_MAX 100000

static const char fill_sql[] =
	"SELECT " SQ_CORE " FROM ready WHERE queue = ? AND (neg_priority, seq) > (?, ?) ORDER BY neg_priority, seq LIMIT ?";
/* From one queue's name to the next one's: reads as many rows as there are queues. */
static const char next_queue_sql[] = "SELECT queue FROM ready WHERE queue > ? ORDER BY queue LIMIT 1";
static const char paused_count_sql[] = "SELECT count(*) FROM queue WHERE paused_us IS NOT NULL";
static const char paused_sql[] = "SELECT name, coalesce(reason, '') FROM queue WHERE paused_us IS NOT NULL";
static const char due_sql[] = "SELECT " SQ_CORE " FROM delayed WHERE due_us <= ? ORDER BY due_us LIMIT ?";
#define EXPIRED(table) "SELECT " SQ_CORE " FROM " table " WHERE expires_us <= ? ORDER BY expires_us LIMIT ?"
static const char expired_ready_sql[] = EXPIRED("ready");
static const char expired_delayed_sql[] = EXPIRED("delayed");
static const char created_sql[] = "SELECT created_us, expires_us FROM task WHERE seq = ?";
static const char next_expiry_sql[] =
	"SELECT min(at) FROM (SELECT min(expires_us) AS at FROM ready WHERE expires_us IS NOT NULL "
	"UNION ALL SELECT min(expires_us) FROM delayed WHERE expires_us IS NOT NULL)";
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
		if (*t->handler || *t->custom) {
			store_mem_texts((struct store_mem **)&o->ret_memory, t);
		} else {
			t->handler = t->custom = NULL;
		}
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

static void read_paused(struct sq_db *db, struct store_queues *o)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	size_t n = 0;
	sqlite3_stmt *q = sq_begin(db, paused_count_sql);
	if (sq_row(db, q))
		n = (size_t)sq_int(q, 0);
	sq_end(q);
	o->ret_n_paused = 0;
	o->ret_paused = store_mem_get(mem, (n + 1) * sizeof(*o->ret_paused));
	q = sq_begin(db, paused_sql);
	while (sq_row(db, q))
		o->ret_paused[o->ret_n_paused++] = (struct core_paused){ sq_text_copy(q, 0, mem), sq_text_copy(q, 1, mem) };
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
	if (!db->rc)
		read_paused(db, o);
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
		store_mem_texts(mem, &o->ret_rows[i]);
	}
	return n;
}

static int64_t left_ns(const struct sq_ctx *x, int64_t at_us)
{
	return at_us <= x->now_wall_us ? 0 : us_to_ns(at_us - x->now_wall_us);
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
		o->ret_next_in_ns = left_ns(x, sq_int(q, 0));
		sq_end(q);
	}
}

/* ---- expiry ---- */

/* "2.5 s": at most three decimals, none that is not needed. */
static void span_text(int64_t us, char *text, size_t cap)
{
	int64_t ms = (us + 500) / 1000;
	int n = snprintf(text, cap, "%lld.%03lld", (long long)(ms / 1000), (long long)(ms % 1000));
	while (n > 0 && text[n - 1] == '0')
		n--;
	n -= n > 0 && text[n - 1] == '.';
	snprintf(text + n, cap - (size_t)n, " s");
}

static void expire_one(struct sq_ctx *x, const struct sq_core *c)
{
	struct sq_db *db = &x->db;
	char text[sizeof(STORE_EXPIRED_TEXT) + 40] = STORE_EXPIRED_TEXT;
	size_t head = sizeof(STORE_EXPIRED_TEXT) - 1;
	sqlite3_stmt *q = sq_begin(db, created_sql);
	sq_bind_int(db, c->task.seq);
	if (sq_row(db, q)) {
		span_text(sq_int(q, 1) - sq_int(q, 0), text + head, sizeof(text) - head);
		sq_end(q);
	}
	struct sq_end_of e = {
		.outcome = STORE_EXPIRED,
		.finished_us = x->now_wall_us,
		.error = {(const uint8_t *)text, strlen(text)},
	};
	sq_ended_put(db, c, STORE_FAILED, &e);
	sq_changed(x, &c->task.id, STORE_PENDING, STORE_FAILED, c->task.attempt);
}

/* Collected first: the statement must not read what it causes to be changed. */
static size_t collect_expired(struct sq_ctx *x, const char *sql, struct sq_core *rows, size_t limit)
{
	size_t n = 0;
	sqlite3_stmt *q = sq_begin(&x->db, sql);
	sq_bind_int(&x->db, x->now_wall_us);
	sq_bind_int(&x->db, (int64_t)limit);
	while (sq_row(&x->db, q))
		sq_core_read(q, 0, &rows[n++]);
	return n;
}

void sq_expire_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_expire *o = container_of(op, struct store_expire, op);
	struct sq_db *db = &x->db;
	size_t limit = o->limit > 0 ? (size_t)o->limit : 1;
	_cleanup_free_ struct sq_core *rows = calloc(limit, sizeof(*rows));
	o->ret_n = 0;
	o->ret_next_in_ns = 0;
	if (!rows) {
		sq_db_no_memory(db);
		return;
	}
	o->ret_ids = store_mem_get((struct store_mem **)&o->ret_memory, limit * sizeof(*o->ret_ids));
	size_t ready = collect_expired(x, expired_ready_sql, rows, limit);
	size_t n = ready + collect_expired(x, expired_delayed_sql, rows + ready, limit - ready);
	for (size_t i = 0; i < n; i++) {
		if (i < ready)
			sq_ready_drop(db, &rows[i]);
		else if (!sq_delayed_take(db, &rows[i].task.id, INT64_MAX, &rows[i]))
			continue;
		expire_one(x, &rows[i]);
		o->ret_ids[o->ret_n++] = rows[i].task.id;
	}
	if (n == limit)
		return;
	sqlite3_stmt *q = sq_begin(db, next_expiry_sql);
	o->ret_next_in_ns = -1;
	if (sq_row(db, q)) {
		if (!sq_is_null(q, 0))
			o->ret_next_in_ns = left_ns(x, sq_int(q, 0));
		sq_end(q);
	}
}

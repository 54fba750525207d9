/* Owns the statements of a connection: an open-addressed table keyed by the address of their text. */
#include "server/store/sqlite/sq_db.h"

#include <stdio.h>
#include <string.h>

static void stick(struct sq_db *db, int rc)
{
	if (db->rc || rc == SQLITE_OK)
		return;
	db->rc = rc;
	/* Not all errors are the connection's last: binding to nothing, for one. */
	const char *words = db->h && sqlite3_errcode(db->h) != SQLITE_OK ? sqlite3_errmsg(db->h) : sqlite3_errstr(rc);
	snprintf(db->text, sizeof(db->text), "%s", words);
}

void sq_db_init(struct sq_db *db, sqlite3 *h)
{
	memset(db, 0, sizeof(*db));
	db->h = h;
	if (h)
		sqlite3_extended_result_codes(h, 1);
}

void sq_db_done(struct sq_db *db)
{
	for (size_t i = 0; i < SQ_STMTS; i++)
		sqlite3_finalize(db->stmts[i].stmt);
	sqlite3_close_v2(db->h);
	memset(db, 0, sizeof(*db));
}

void sq_db_clear(struct sq_db *db)
{
	db->rc = 0;
	db->text[0] = '\0';
}

void sq_db_refuse(struct sq_db *db, const char *text)
{
	if (db->rc)
		return;
	db->rc = SQLITE_CONSTRAINT;
	snprintf(db->text, sizeof(db->text), "%s", text);
}

void sq_db_no_memory(struct sq_db *db) { stick(db, SQLITE_NOMEM); }

void sq_exec(struct sq_db *db, const char *sql)
{
	if (!db->rc)
		stick(db, sqlite3_exec(db->h, sql, NULL, NULL, NULL));
}

/* ---- statements ---- */

sqlite3_stmt *sq_begin(struct sq_db *db, const char *sql)
{
	db->param = 0;
	db->cur = NULL;
	if (db->rc)
		return NULL;
	size_t i = (size_t)(((uintptr_t)sql >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 40) % SQ_STMTS;
	for (size_t probes = 0; db->stmts[i].sql && db->stmts[i].sql != sql; probes++) {
		if (probes == SQ_STMTS)
			abort(); /* SQ_STMTS is too small for the statements that there are */
		i = (i + 1) % SQ_STMTS;
	}
	if (!db->stmts[i].stmt) {
		stick(db, sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &db->stmts[i].stmt, NULL));
		if (db->rc)
			return NULL;
		db->stmts[i].sql = sql;
	}
	return db->cur = db->stmts[i].stmt;
}

#define BIND(call)                         \
	do {                               \
		if (db->rc || !db->cur)    \
			return;            \
		int n = ++db->param;       \
		sqlite3_stmt *q = db->cur; \
		stick(db, (call));         \
	} while (0)

void sq_bind_int(struct sq_db *db, int64_t v) { BIND(sqlite3_bind_int64(q, n, v)); }
void sq_bind_double(struct sq_db *db, double v) { BIND(sqlite3_bind_double(q, n, v)); }
void sq_bind_null(struct sq_db *db) { BIND(sqlite3_bind_null(q, n)); }

void sq_bind_int_or_null(struct sq_db *db, int64_t v) { sq_bind_optional(db, v != 0, v); }

void sq_bind_optional(struct sq_db *db, bool has, int64_t v)
{
	if (has)
		sq_bind_int(db, v);
	else
		sq_bind_null(db);
}

void sq_bind_text(struct sq_db *db, const char *s)
{
	if (s)
		BIND(sqlite3_bind_text64(q, n, s, strlen(s), SQLITE_STATIC, SQLITE_UTF8));
	else
		sq_bind_null(db);
}

void sq_bind_bytes(struct sq_db *db, const void *data, size_t len)
{
	if (data && len)
		BIND(sqlite3_bind_blob64(q, n, data, len, SQLITE_STATIC));
	else if (data)
		BIND(sqlite3_bind_zeroblob(q, n, 0));
	else
		sq_bind_null(db);
}

void sq_bind_blob(struct sq_db *db, const struct blob *b)
{
	sq_bind_bytes(db, b ? b->data : NULL, b ? b->len : 0);
}

void sq_bind_uuid(struct sq_db *db, const struct uuid *id)
{
	BIND(sqlite3_bind_blob(q, n, id->b, sizeof(id->b), SQLITE_STATIC));
}

bool sq_row(struct sq_db *db, sqlite3_stmt *q)
{
	if (db->rc) {
		sq_end(q);
		return false;
	}
	int rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		return true;
	if (rc != SQLITE_DONE)
		stick(db, rc);
	sqlite3_reset(q);
	return false;
}

void sq_end(sqlite3_stmt *q)
{
	sqlite3_reset(q);
}

int64_t sq_run(struct sq_db *db, sqlite3_stmt *q)
{
	while (sq_row(db, q))
		;
	return db->rc ? 0 : sqlite3_changes64(db->h);
}

/* ---- columns ---- */

void sq_uuid(sqlite3_stmt *q, int col, struct uuid *ret)
{
	memset(ret, 0, sizeof(*ret));
	const void *at = sqlite3_column_blob(q, col);
	if (at && sqlite3_column_bytes(q, col) == (int)sizeof(ret->b))
		memcpy(ret->b, at, sizeof(ret->b));
}

const char *sq_text(sqlite3_stmt *q, int col)
{
	const char *s = (const char *)sqlite3_column_text(q, col);
	return s ? s : "";
}

char *sq_text_copy(sqlite3_stmt *q, int col, struct store_mem **mem)
{
	const char *s = (const char *)sqlite3_column_text(q, col);
	return s ? store_mem_copy(mem, s, (size_t)sqlite3_column_bytes(q, col)) : NULL;
}

char *sq_text_scratch(struct sq_db *db, sqlite3_stmt *q, int col) { return sq_text_copy(q, col, &db->scratch); }

void sq_scratch_free(struct sq_db *db)
{
	store_mem_free(db->scratch);
	db->scratch = NULL;
}

void *sq_mem(struct sq_db *db, struct store_mem **mem, size_t size)
{
	void *at = store_mem_try(mem, size);
	if (!at)
		sq_db_no_memory(db);
	return at;
}

struct store_bytes sq_bytes_copy(struct sq_db *db, sqlite3_stmt *q, int col, struct store_mem **mem)
{
	if (sq_is_null(q, col))
		return (struct store_bytes){NULL, 0};
	const void *at = sqlite3_column_blob(q, col);
	size_t len = (size_t)sqlite3_column_bytes(q, col);
	uint8_t *copy = sq_mem(db, mem, len + 1);
	if (!copy || (len && !at)) {
		sq_db_no_memory(db);
		return (struct store_bytes){NULL, 0};
	}
	copy[len] = 0;
	return (struct store_bytes){len ? memcpy(copy, at, len) : copy, len};
}

struct blob *sq_blob(struct sq_db *db, sqlite3_stmt *q, int col)
{
	if (sq_is_null(q, col))
		return NULL;
	const void *at = sqlite3_column_blob(q, col);
	struct blob *b = blob_new(at, (size_t)sqlite3_column_bytes(q, col));
	if (!b)
		sq_db_no_memory(db);
	return b;
}

/* ---- the shared columns ---- */

void sq_core_read_task(sqlite3_stmt *q, int col, struct core_task *ret)
{
	*ret = (struct core_task){
		.seq = sq_int(q, col + 1),
		.priority = (int32_t)-sq_int(q, col + 2),
		.attempt = (int32_t)sq_int(q, col + 3),
		.failures = (int32_t)sq_int(q, col + 4),
		.need = {.cpu_millis = (int32_t)sq_int(q, col + 6), .memory_bytes = sq_int(q, col + 7),
			 .gpus = (int32_t)sq_int(q, col + 8)},
		.exclusive = sq_int(q, col + 9) != 0,
		.lease_ttl_ns = sq_int(q, col + 10),
		.max_attempts = sq_is_null(q, col + 11) ? 1 : (int32_t)sq_int(q, col + 11), /* no policy: one */
		.backoff_initial_ns = sq_int(q, col + 12),
		.backoff_max_ns = sq_int(q, col + 13),
		.backoff_multiplier = sqlite3_column_double(q, col + 14),
	};
	sq_uuid(q, col, &ret->id);
	ret->queue = sq_text(q, col + 15);
	ret->handler = sq_text(q, col + 16);
	ret->custom = sq_text(q, col + 17);
}

void sq_core_read(sqlite3_stmt *q, int col, struct sq_core *ret)
{
	sq_core_read_task(q, col, &ret->task);
	ret->losses = (int32_t)sq_int(q, col + 5);
	ret->expires_us = 0;
	snprintf(ret->queue, sizeof(ret->queue), "%s", ret->task.queue);
	snprintf(ret->handler, sizeof(ret->handler), "%s", ret->task.handler);
	snprintf(ret->custom, sizeof(ret->custom), "%s", ret->task.custom);
	sq_core_moved(ret);
}

void sq_core_moved(struct sq_core *c)
{
	c->task.queue = c->queue;
	c->task.handler = c->handler;
	c->task.custom = c->custom;
}

static void bind_name(struct sq_db *db, const char *text) { sq_bind_text(db, text && *text ? text : NULL); }

void sq_core_bind(struct sq_db *db, const struct sq_core *c)
{
	const struct core_task *t = &c->task;
	bool policy = t->max_attempts > 1;
	sq_bind_uuid(db, &t->id);
	sq_bind_int(db, t->seq);
	sq_bind_int(db, -(int64_t)t->priority);
	sq_bind_int(db, t->attempt);
	sq_bind_int(db, t->failures);
	sq_bind_int(db, c->losses);
	sq_bind_int(db, t->need.cpu_millis);
	sq_bind_int(db, t->need.memory_bytes);
	sq_bind_int(db, t->need.gpus);
	sq_bind_int(db, t->exclusive);
	sq_bind_int_or_null(db, t->lease_ttl_ns);
	sq_bind_optional(db, policy, t->max_attempts);
	sq_bind_optional(db, policy, t->backoff_initial_ns);
	sq_bind_optional(db, policy, t->backoff_max_ns);
	if (policy)
		sq_bind_double(db, t->backoff_multiplier);
	else
		sq_bind_null(db);
	sq_bind_text(db, t->queue);
	bind_name(db, t->handler);
	bind_name(db, t->custom);
}

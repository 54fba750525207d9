/* QUEUE_LIST: queues as people see them.  PAUSE: one that is not to be given out, stored.
 *
 * Names are found by going from one to the next in an index, and counting stops at a limit: a page costs what its queues
 * do, however many tasks wait in them. */
#include <stdio.h>
#include <string.h>

#include "server/store/queues.h"
#include "server/store/sqlite/sq.h"


static const char next_ready_sql[] = "SELECT queue FROM ready WHERE queue > ?1 ORDER BY queue LIMIT 1";
static const char next_delayed_sql[] = "SELECT queue FROM delayed WHERE queue > ?1 ORDER BY queue LIMIT 1";
static const char next_paused_sql[] = "SELECT name FROM queue WHERE paused_us IS NOT NULL AND name > ?1 ORDER BY name LIMIT 1";
static const char next_running_sql[] =
	"SELECT min(queue) FROM (SELECT queue FROM running LIMIT " NUMBER_TEXT(STORE_QUEUE_RUNNING_MAX) ") WHERE queue > ?1";
static const char known_sql[] =
	"SELECT EXISTS (SELECT 1 FROM ready WHERE queue = ?1) OR EXISTS (SELECT 1 FROM delayed WHERE queue = ?1) OR "
	"EXISTS (SELECT 1 FROM queue WHERE name = ?1 AND paused_us IS NOT NULL) OR "
	"EXISTS (SELECT 1 FROM (SELECT queue FROM running LIMIT " NUMBER_TEXT(STORE_QUEUE_RUNNING_MAX) ") WHERE queue = ?1)";
static const char pause_sql[] = "SELECT paused_us, coalesce(reason, '') FROM queue WHERE name = ?1";
#define COUNTED(table) \
	"SELECT count(*) FROM (SELECT 1 FROM " table " WHERE queue = ?1 LIMIT " NUMBER_TEXT(STORE_QUEUE_COUNT_MAX) " + 1)"
static const char ready_sql[] = COUNTED("ready");
static const char delayed_sql[] = COUNTED("delayed");
static const char running_sql[] =
	"SELECT coalesce(sum(queue = ?1), 0), count(*) FROM (SELECT queue FROM running LIMIT " NUMBER_TEXT(STORE_QUEUE_RUNNING_MAX) " + 1)";
/* The first of the next priority after ?2. */
static const char first_sql[] =
	"SELECT neg_priority, seq FROM ready WHERE queue = ?1 AND neg_priority > ?2 ORDER BY neg_priority, seq LIMIT 1";
static const char created_sql[] = "SELECT created_us FROM task WHERE seq = ?1";

/* What was resumed before goes with the next pause or resumption: until then a repeated one is told what the first was. */
static const char gone_sql[] = "DELETE FROM queue WHERE paused_us IS NULL AND name <> ?1";
static const char on_sql[] =
	"INSERT INTO queue (name, paused_us, reason) SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM queue WHERE name = ?1 AND paused_us "
	"IS NOT NULL) OR (SELECT count(*) FROM queue WHERE paused_us IS NOT NULL) < ?4 ON CONFLICT (name) DO UPDATE SET paused_us = "
	"coalesce(paused_us, excluded.paused_us), reason = excluded.reason";
static const char off_sql[] = "UPDATE queue SET paused_us = NULL, reason = NULL WHERE name = ?1";

static void next_in(struct sq_db *db, const char *sql, const char *after, char *low, size_t cap)
{
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_text(db, after);
	if (sq_row(db, q) && !sq_is_null(q, 0) && (!*low || strcmp(sq_text(q, 0), low) < 0))
		snprintf(low, cap, "%s", sq_text(q, 0));
	sq_end(q);
}

/* The lowest name above `after` in any table; "": there is none. */
static void next_name(struct sq_db *db, const char *after, char *ret, size_t cap)
{
	ret[0] = '\0';
	next_in(db, next_ready_sql, after, ret, cap);
	next_in(db, next_delayed_sql, after, ret, cap);
	next_in(db, next_paused_sql, after, ret, cap);
	next_in(db, next_running_sql, after, ret, cap);
}

static int64_t count(struct sq_db *db, const char *sql, const char *name, bool *ret_more)
{
	sqlite3_stmt *q = sq_begin(db, sql);
	sq_bind_text(db, name);
	int64_t n = sq_row(db, q) ? sq_int(q, 0) : 0;
	sq_end(q);
	*ret_more = n > STORE_QUEUE_COUNT_MAX;
	return min_i64(n, STORE_QUEUE_COUNT_MAX);
}

static int64_t oldest(struct sq_db *db, const char *name)
{
	int64_t after = INT64_MIN, low = INT64_MAX, at = 0;
	for (;;) {
		sqlite3_stmt *q = sq_begin(db, first_sql);
		sq_bind_text(db, name);
		sq_bind_int(db, after);
		if (!sq_row(db, q))
			break;
		after = sq_int(q, 0);
		low = min_i64(low, sq_int(q, 1));
		sq_end(q);
	}
	sqlite3_stmt *q = sq_begin(db, created_sql);
	sq_bind_int(db, low);
	if (sq_row(db, q))
		at = sq_int(q, 0);
	sq_end(q);
	return at;
}

static void read_queue(struct sq_db *db, const char *name, struct store_mem **mem, struct store_queue *r)
{
	*r = (struct store_queue){ .name = store_mem_copy(mem, name, strlen(name)), .reason = "" };
	sqlite3_stmt *q = sq_begin(db, pause_sql);
	sq_bind_text(db, name);
	if (sq_row(db, q)) {
		r->paused = !sq_is_null(q, 0);
		r->paused_wall_us = sq_int(q, 0);
		r->reason = sq_text_copy(q, 1, mem);
	}
	sq_end(q);
	r->ready = count(db, ready_sql, name, &r->ready_more);
	r->delayed = count(db, delayed_sql, name, &r->delayed_more);
	q = sq_begin(db, running_sql);
	sq_bind_text(db, name);
	if (sq_row(db, q)) {
		r->running = sq_int(q, 0);
		r->running_more = sq_int(q, 1) > STORE_QUEUE_RUNNING_MAX;
	}
	sq_end(q);
	if (r->ready)
		r->oldest_wall_us = oldest(db, name);
}

static bool is_known(struct sq_db *db, const char *name)
{
	sqlite3_stmt *q = sq_begin(db, known_sql);
	sq_bind_text(db, name);
	bool known = sq_row(db, q) && sq_int(q, 0);
	sq_end(q);
	return known;
}

void sq_queue_list_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_queue_list *o = container_of(op, struct store_queue_list, op);
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	struct sq_db *db = &x->db;
	size_t limit = o->only ? 1 : o->limit > 0 ? (size_t)o->limit : 0;
	char name[CORE_NAME_MAX + 1] = "", after[CORE_NAME_MAX + 1];
	o->ret_n = 0;
	o->ret_more = false;
	o->ret_rows = sq_mem(db, mem, (limit + 1) * sizeof(*o->ret_rows));
	if (!o->ret_rows)
		return;
	if (o->only) {
		if (is_known(db, o->only))
			read_queue(db, o->only, mem, &o->ret_rows[o->ret_n++]);
		return;
	}
	snprintf(after, sizeof(after), "%s", o->after ? o->after : "");
	for (;;) {
		next_name(db, after, name, sizeof(name));
		o->ret_more = *name && o->ret_n == limit;
		if (!*name || o->ret_n == limit || db->rc)
			return;
		read_queue(db, name, mem, &o->ret_rows[o->ret_n++]);
		snprintf(after, sizeof(after), "%s", name);
	}
}

void sq_pause_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_pause *o = container_of(op, struct store_pause, op);
	struct sq_db *db = &x->db;
	sqlite3_stmt *q = sq_begin(db, gone_sql);
	sq_bind_text(db, o->queue);
	(void)sq_run(db, q);
	q = sq_begin(db, o->on ? on_sql : off_sql);
	sq_bind_text(db, o->queue);
	if (o->on) {
		sq_bind_int(db, x->now_wall_us);
		sq_bind_text(db, o->reason);
		sq_bind_int(db, o->max);
	}
	o->ret_done = sq_run(db, q) > 0;
}

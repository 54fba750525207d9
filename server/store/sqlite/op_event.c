/* The event of a transaction, and EVENTS, which reads them.  One stream, as one thread writes. */
#include "server/store/sqlite/sq_events.h"

#define STREAM 1
/* One transaction in so many takes old rows away: the pages at the table's beginning, and those that are free then, would
 * otherwise be written by each.  More rows go than have come since, so that the table shrinks when it is too long. */
#define OLD_EVERY 16
#define OLD_MAX (4 * OLD_EVERY)

static const char put_sql[] = "INSERT INTO event (at_us, changes) VALUES (?, ?)"; /* the number is the last one's and one more */
static const char first_sql[] = "SELECT number, at_us FROM event ORDER BY number LIMIT 1";
static const char last_sql[] = "SELECT number FROM event ORDER BY number DESC LIMIT 1";
static const char drop_sql[] = "DELETE FROM event WHERE number = ?";
static const char read_sql[] = "SELECT number, at_us, changes FROM event WHERE number > ? ORDER BY number LIMIT ?";

void sq_event_add(struct sq_ctx *x, const struct store_change *c)
{
	uint8_t bytes[STORE_CHANGE_BYTES];
	store_change_put(c, bytes);
	if (!x->db.rc && buf_add(&x->changes, bytes, sizeof(bytes)) < 0)
		sq_db_no_memory(&x->db);
}

void sq_changed(struct sq_ctx *x, const struct uuid *task, int before, int after, int32_t attempt)
{
	struct store_change c = {.task = *task, .attempt = attempt, .before = (uint8_t)before, .after = (uint8_t)after};
	sq_event_add(x, &c);
}

void sq_news_run(struct sq_ctx *x, struct store_op *op)
{
	const struct store_news *o = container_of(op, struct store_news, op);
	if (clock_mono_ns() >= *x->news_until_mono_ns)
		return;
	for (size_t i = 0; i < o->n; i++) {
		struct store_change c = {.task = o->at[i].task, .attempt = o->at[i].attempt, .before = STORE_RUNNING, .after = STORE_RUNNING,
					 .what = STORE_WHAT_METRICS};
		sq_event_add(x, &c);
	}
}

/* False: there is none that is too old. */
static bool drop_old(struct sq_ctx *x, int64_t newest)
{
	sqlite3_stmt *q = sq_begin(&x->db, first_sql);
	if (!sq_row(&x->db, q))
		return false;
	int64_t number = sq_int(q, 0), at_us = sq_int(q, 1);
	sq_end(q);
	if (number == newest || (number + SQLITE_EVENTS_MAX > newest && at_us + x->event_retention_ns / NS_PER_US > x->now_wall_us))
		return false;
	q = sq_begin(&x->db, drop_sql);
	sq_bind_int(&x->db, number);
	sq_run(&x->db, q);
	return true;
}

void sq_event_put(struct sq_ctx *x)
{
	if (!buf_len(&x->changes))
		return;
	sqlite3_stmt *q = sq_begin(&x->db, put_sql);
	sq_bind_int(&x->db, x->now_wall_us);
	sq_bind_bytes(&x->db, buf_head(&x->changes), buf_len(&x->changes));
	sq_run(&x->db, q);
	buf_clear(&x->changes);
	int64_t newest = x->db.h ? sqlite3_last_insert_rowid(x->db.h) : 0;
	for (int i = 0; newest % OLD_EVERY == 0 && i < OLD_MAX && !x->db.rc && drop_old(x, newest); i++)
		;
}

static int64_t ask(struct sq_db *db, const char *sql)
{
	int64_t v = 0;
	sqlite3_stmt *q = sq_begin(db, sql);
	if (sq_row(db, q)) {
		v = sq_int(q, 0);
		sq_end(q);
	}
	return v;
}

static void read_rows(struct sq_ctx *x, struct store_events *o, int64_t after)
{
	struct sq_db *db = &x->db;
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	int64_t limit = o->limit > 0 ? o->limit : 1, bytes = 0;
	o->ret_rows = sq_mem(db, mem, (size_t)limit * sizeof(*o->ret_rows));
	sqlite3_stmt *q = sq_begin(db, read_sql);
	sq_bind_int(db, after);
	sq_bind_int(db, limit + 1);
	while (sq_row(db, q)) {
		if ((int64_t)o->ret_n == limit || (o->max_bytes > 0 && bytes >= o->max_bytes)) {
			o->ret_more = true;
			sq_end(q);
			return;
		}
		struct store_event *e = &o->ret_rows[o->ret_n++];
		*e = (struct store_event){.stream = STREAM, .number = sq_int(q, 0), .at_wall_us = sq_int(q, 1),
					  .changes = sq_bytes_copy(db, q, 2, mem)};
		bytes += (int64_t)e->changes.len;
	}
}

void sq_events_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_events *o = container_of(op, struct store_events, op);
	struct store_stream s = {.id = STREAM};
	o->ret_n = 0;
	o->ret_more = false;
	if (o->metrics)
		*x->news_until_mono_ns = clock_mono_ns() + STORE_NEWS_US * NS_PER_US;
	if (o->now) {
		s.gone = ask(&x->db, last_sql);
	} else {
		int64_t first = ask(&x->db, first_sql);
		s.gone = first > 0 ? first - 1 : 0;
		read_rows(x, o, o->n_at ? o->at[0].number : 0);
	}
	if (!x->db.rc)
		store_events_settle(o, &s, 1);
}

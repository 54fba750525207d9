/* The threads beside the writing one.  Each owns its connections, opened when the store is up, and closed
 * after an error so that the next operation begins afresh. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sq.h"

#define READ_LIMIT (10 * NS_PER_S) /* for one operation: a search through millions must not hold up all others */
#define READ_STEPS 20000           /* of SQLite's machine between two looks at the clock */
#define LOG_ITEMS 500
#define LOG_PAUSE (250 * NS_PER_MS)
#define LOG_PATIENCE (10 * NS_PER_S) /* with trouble of the logs alone, before appends are answered so */

/* ---- reading ---- */

struct reader {
	struct sq_lane *lane;
	struct sq_store *store;
	struct sq_ctx x;
	int64_t deadline_mono_ns;
};

static int on_progress(void *arg)
{
	struct reader *r = arg;
	return r->store->stopping || clock_mono_ns() > r->deadline_mono_ns;
}

static bool open_one(struct reader *r, bool logs, struct sq_db *db)
{
	if (db->h)
		return true;
	if (sq_open_more(&r->store->files, logs, true, db) < 0)
		return false;
	sqlite3_progress_handler(db->h, READ_STEPS, on_progress, r);
	return true;
}

static void read_failed(struct reader *r, struct store_op *op)
{
	struct sq_db *db = r->x.db.rc ? &r->x.db : &r->x.logs;
	char text[200];
	if ((db->rc & 0xff) == SQLITE_INTERRUPT) {
		sq_op_fail(op, STORE_UNAVAILABLE, r->store->stopping ? "the store was stopped" : "the search took too long");
	} else {
		enum sq_down down = sq_meaning(db, text, sizeof(text));
		if (down == SQ_STAYS && db == &r->x.db)
			sq_store_set_state(r->store, SQ_STAYS, text);
		sq_op_fail(op, STORE_UNAVAILABLE, text);
	}
	op->no_memory = (db->rc & 0xff) == SQLITE_NOMEM;
	store_op_done_fields(op);
	sq_db_done(&r->x.db);
	sq_db_done(&r->x.logs);
}

static void read_one(struct reader *r, struct store_op *op)
{
	struct sq_db *db = &r->x.db;
	r->deadline_mono_ns = clock_mono_ns() + READ_LIMIT;
	op->result = STORE_OK;
	op->maybe_done = op->no_memory = false;
	op->text[0] = '\0';
	if (op->kind == STORE_LOG_READ || op->kind == STORE_METRICS_READ) {
		if (open_one(r, true, &r->x.logs))
			sq_kinds[op->kind].run(&r->x, op);
	} else if (open_one(r, false, db)) {
		sq_run(db, sq_begin(db, "BEGIN"));
		sq_kinds[op->kind].run(&r->x, op);
		sq_run(db, sq_begin(db, "COMMIT"));
	}
	if (r->x.db.rc || r->x.logs.rc)
		read_failed(r, op);
}

void *sq_read_main(void *arg)
{
	struct sq_lane *lane = arg;
	struct reader r = {.lane = lane, .store = lane->store, .x.news_until_mono_ns = &lane->store->news_until_mono_ns};
	struct list ops;
	char text[200];
	list_init(&ops);
	while (sq_lane_take(lane, &ops, 1, 0, -1)) {
		bool stays;
		r.x.now_wall_us = clock_wall_us();
		if (sq_store_is_up(lane->store, &stays, text, sizeof(text)))
			read_one(&r, container_of(ops.next, struct store_op, node));
		else
			sq_ops_fail(&ops, STORE_UNAVAILABLE, text);
		sq_lane_answer(lane, &ops);
	}
	sq_db_done(&r.x.db);
	sq_db_done(&r.x.logs);
	return NULL;
}

/* ---- writing logs ---- */

struct logger {
	struct sq_lane *lane;
	struct sq_store *store;
	struct sq_ctx x;
	char trouble[200]; /* "" while there is none */
	int64_t trouble_mono_ns, again_mono_ns;
	struct sq_wal wal;
};

static const char bytes_get_sql[] = "SELECT value FROM meta WHERE key = 'bytes'";
static const char bytes_set_sql[] = "UPDATE meta SET value = ? WHERE key = 'bytes'";

static bool save_bytes(void *arg, struct sq_ctx *x)
{
	if (x->room.bytes == x->room.committed)
		return true;
	sqlite3_stmt *q = sq_begin(&x->logs, bytes_set_sql);
	sq_bind_int(&x->logs, x->room.bytes);
	sq_run(&x->logs, q);
	return !x->logs.rc;
}

static bool open_logs(struct logger *g)
{
	struct sq_ctx *x = &g->x;
	if (x->logs.h)
		return true;
	if (sq_open_more(&g->store->files, true, false, &x->logs) < 0)
		return false;
	if (sq_open_more(&g->store->files, false, true, &x->db) < 0)
		return false;
	sq_wal_watch(&g->wal, &x->logs);
	sqlite3_stmt *q = sq_begin(&x->logs, bytes_get_sql);
	x->room = (struct sq_log_room){.max = g->store->cfg.max_log_bytes};
	if (sq_row(&x->logs, q)) {
		x->room.bytes = x->room.committed = sq_int(q, 0);
		sq_end(q);
	}
	return !x->logs.rc;
}

/* Tasks go on without logs; it is told as a warning. */
static void logs_failed(struct logger *g, const char *text)
{
	int64_t now = clock_mono_ns();
	if (!g->trouble[0])
		g->trouble_mono_ns = now;
	snprintf(g->trouble, sizeof(g->trouble), "%s", text);
	sq_db_done(&g->x.db);
	sq_db_done(&g->x.logs);
	g->again_mono_ns = now + LOG_PAUSE;
	sq_store_set_warning(g->store, text);
}

static void logs_work(struct logger *g)
{
	if (!g->trouble[0])
		return;
	g->trouble[0] = '\0';
	sq_store_set_warning(g->store, "");
}

static bool append_all(struct logger *g, struct list *ops)
{
	struct sq_ctx *x = &g->x;
	struct sq_batch b = {.x = x, .writes = &x->logs, .before_commit = save_bytes};
	x->now_wall_us = clock_wall_us();
	if (!open_logs(g)) {
		sq_meaning(x->logs.rc ? &x->logs : &x->db, b.text, sizeof(b.text));
	} else if (sq_batch_run(&b, ops) == SQ_DONE) {
		logs_work(g);
		return true;
	}
	/* What comes back after a crash does no harm: it is the same chunk at the same offset. */
	logs_failed(g, b.text);
	return false;
}

static bool in_patience(const struct logger *g) { return clock_mono_ns() - g->trouble_mono_ns < LOG_PATIENCE; }

/* False: they wait until again_mono_ns. */
static bool answer_all(struct logger *g, struct list *ops)
{
	bool stays, pauses = clock_mono_ns() < g->again_mono_ns;
	char text[200];
	if (!sq_store_is_up(g->store, &stays, text, sizeof(text))) {
		g->again_mono_ns = clock_mono_ns() + LOG_PAUSE;
		if (stays)
			sq_ops_fail(ops, STORE_UNAVAILABLE, text);
		return stays;
	}
	if (!pauses && append_all(g, ops))
		return true;
	if (in_patience(g))
		return false;
	sq_ops_fail(ops, STORE_UNAVAILABLE, g->trouble);
	return true;
}

static int64_t not_before(const struct logger *g)
{
	return g->trouble[0] && !in_patience(g) ? 0 : g->again_mono_ns;
}

void *sq_log_main(void *arg)
{
	struct sq_lane *lane = arg;
	struct logger g = {.lane = lane, .store = lane->store};
	struct list ops;
	list_init(&ops);
	while (sq_lane_take(lane, &ops, LOG_ITEMS, not_before(&g), -1)) {
		if (answer_all(&g, &ops))
			sq_lane_answer(lane, &ops);
		else
			sq_lane_put_back(lane, &ops);
		if (g.x.logs.h)
			sq_wal_checkpoint(&g.wal, &g.x.logs);
	}
	sq_db_done(&g.x.db);
	sq_db_done(&g.x.logs);
	return NULL;
}

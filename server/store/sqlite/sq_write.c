/* The thread that writes.  Owns the connection that writes the tasks, the files' lock, and the operations whose commit
 * failed half-way:
 *
 *   OPENING ──▶ UP ──error──▶ AWAY ──a commit works──▶ UP
 *      │                        │
 *      └── damaged, newer, replaced, not ours ──▶ STAYS (until the process ends) */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/store/sqlite/sq.h"
#include "server/store/sqlite/sq_events.h"

#define BATCH_ITEMS 1000
#define CHANGES_MAX (64 << 20) /* of one transaction: a session's end may give back very many */
#define TRY_EVERY (250 * NS_PER_MS)
#define TRY_EVERY_MAX (4 * NS_PER_S)
#define CALM (10 * NS_PER_S) /* up for so long: the next trouble is a new one */

struct writer {
	struct sq_lane *lane;
	struct sq_store *store;
	struct sq_ctx x;
	struct list unsettled;
	struct list kept; /* outcomes that wait for the store's return */
	bool up;
	int64_t next_try_mono_ns, try_every_ns, up_since_mono_ns;
	struct sq_wal wal;
};

static void go_down(struct writer *w, enum sq_down down, const char *text)
{
	int64_t now = clock_mono_ns();
	bool calm = w->up && now - w->up_since_mono_ns > CALM;
	w->try_every_ns = calm || !w->try_every_ns ? TRY_EVERY : min_i64(w->up ? w->try_every_ns * 2 : w->try_every_ns, TRY_EVERY_MAX);
	w->next_try_mono_ns = now + w->try_every_ns;
	w->up = false;
	sq_store_set_state(w->store, down, text);
}

/* Nothing of these is there.  The kinds that wait do. */
static void put_off(struct writer *w, struct list *ops, const char *text)
{
	list_each(it, ops) {
		struct store_op *op = container_of(it, struct store_op, node);
		if (sq_kinds[op->kind].kept) {
			list_remove(it);
			list_push_back(&w->kept, it);
		} else {
			sq_op_fail(op, STORE_UNAVAILABLE, text);
		}
	}
	sq_lane_answer(w->lane, ops);
}

static void give_up(struct writer *w, struct list *ops, const char *text, bool maybe_done)
{
	sq_ops_fail(ops, STORE_UNAVAILABLE, text);
	list_each(it, ops)
		container_of(it, struct store_op, node)->maybe_done = maybe_done;
	sq_lane_answer(w->lane, ops);
}

/* The next commit has written over what the failed one left. */
static void settle(struct writer *w)
{
	put_off(w, &w->unsettled, "the disk failed while the operation was being stored");
	sq_lane_put_back(w->lane, &w->kept);
}

static void settle_never(struct writer *w, const char *text)
{
	give_up(w, &w->unsettled, text, true);
	give_up(w, &w->kept, text, false);
}

static void come_up(struct writer *w)
{
	settle(w);
	w->up = true;
	w->up_since_mono_ns = clock_mono_ns();
	sq_store_set_state(w->store, SQ_OK, "");
}

static const char moved_words[] = "was removed or replaced while the store was open: put it back and start again";

static bool still_ours(struct writer *w, char *text, size_t cap)
{
	if (sq_files_same(&w->store->files))
		return true;
	snprintf(text, cap, "%.110s %s", w->store->files.path, moved_words);
	return false;
}

static void open_first(struct writer *w)
{
	struct sq_store *s = w->store;
	char text[200] = "";
	s->files.ignore_moved = s->cfg.ignore_moved;
	enum sq_down down = sq_open(s->cfg.path, &s->files, &w->x.db, text, sizeof(text));
	if (down == SQ_OK) {
		sqlite3_stmt *q = sq_begin(&w->x.db, "SELECT coalesce(max(seq), 0) + 1 FROM task");
		if (sq_row(&w->x.db, q)) {
			w->x.next_seq = sq_int(q, 0);
			sq_end(q);
		}
		if (w->x.db.rc) {
			down = sq_meaning(&w->x.db, text, sizeof(text));
			sq_db_done(&w->x.db);
		}
	}
	if (down != SQ_OK) {
		go_down(w, down, text);
		return;
	}
	sq_wal_watch(&w->wal, &w->x.db);
	come_up(w);
}

/* A commit that is synced proves that the store works again.  Whoever had it meanwhile may have upgraded it. */
static void probe(struct writer *w)
{
	struct sq_db *db = &w->x.db;
	char text[200] = "";
	if (!still_ours(w, text, sizeof(text))) {
		go_down(w, SQ_STAYS, text);
		return;
	}
	sq_db_clear(db);
	enum sq_down down = sq_schema_check(db, false, w->store->files.path, text, sizeof(text));
	if (down != SQ_OK) {
		sq_db_clear(db);
		go_down(w, down, text);
		return;
	}
	if (w->wal.pages)
		sqlite3_wal_checkpoint_v2(db->h, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
	sq_exec(db, "BEGIN IMMEDIATE");
	sqlite3_stmt *q = sq_begin(db, "INSERT OR REPLACE INTO meta (key, value) VALUES ('probe', ?)");
	sq_bind_int(db, clock_wall_us());
	sq_run(db, q);
	sq_exec(db, "COMMIT");
	if (!db->rc) {
		come_up(w);
		return;
	}
	down = sq_meaning(db, text, sizeof(text));
	sq_db_clear(db);
	if (!sqlite3_get_autocommit(db->h))
		sq_exec(db, "ROLLBACK");
	go_down(w, down, text);
}

static bool before_commit(void *arg, struct sq_ctx *x)
{
	sq_event_put(x);
	return !x->db.rc && sq_files_same(&((struct writer *)arg)->store->files);
}

/* For where logs end; trouble with them is told by the lane that writes them. */
static void look_into_logs(struct writer *w, const struct list *ops)
{
	bool asked = false;
	list_each(it, ops)
		asked |= container_of(it, struct store_op, node)->kind == STORE_SESSION_OPEN;
	if (w->x.logs.rc)
		sq_db_done(&w->x.logs);
	if (asked && !w->x.logs.h && sq_open_more(&w->store->files, true, true, &w->x.logs) < 0)
		sq_db_done(&w->x.logs);
}

static void run(struct writer *w, struct list *ops)
{
	struct sq_batch b = {.x = &w->x, .writes = &w->x.db, .before_commit = before_commit, .arg = w};
	w->x.now_wall_us = clock_wall_us();
	look_into_logs(w, ops);
	enum sq_fate fate = sq_batch_run(&b, ops);
	if (fate == SQ_DONE) {
		sq_lane_answer(w->lane, ops);
		sq_wal_checkpoint(&w->wal, &w->x.db);
		return;
	}
	if (!b.text[0] && !still_ours(w, b.text, sizeof(b.text)))
		b.down = SQ_STAYS;
	go_down(w, b.down, b.text);
	if (b.down == SQ_STAYS)
		give_up(w, ops, b.text, fate == SQ_UNSETTLED);
	else if (fate == SQ_UNSETTLED)
		list_splice_back(&w->unsettled, ops);
	else
		put_off(w, ops, b.text);
}

static void stay_away(struct writer *w, struct list *ops, const char *text, bool stays)
{
	if (stays)
		give_up(w, ops, text, false);
	else
		put_off(w, ops, text);
}

void *sq_write_main(void *arg)
{
	struct sq_lane *lane = arg;
	struct writer w = {.lane = lane, .store = lane->store};
	struct list ops;
	char text[200];
	list_init(&ops);
	list_init(&w.unsettled);
	list_init(&w.kept);
	buf_init(&w.x.changes, CHANGES_MAX);
	w.x.event_retention_ns = lane->store->cfg.event_retention_ns;
	w.x.news_until_mono_ns = &lane->store->news_until_mono_ns;
	w.x.lost_limit = lane->store->cfg.lost_limit;
	open_first(&w);
	for (;;) {
		bool stays, up = sq_store_is_up(lane->store, &stays, text, sizeof(text));
		if (!sq_lane_take(lane, &ops, BATCH_ITEMS, 0, up || stays ? -1 : w.next_try_mono_ns))
			break;
		/* Another lane may have found the file damaged meanwhile. */
		up = sq_store_is_up(lane->store, &stays, text, sizeof(text));
		if (stays)
			settle_never(&w, text);
		if (!up && !stays && clock_mono_ns() >= w.next_try_mono_ns) {
			if (w.x.db.h)
				probe(&w);
			else
				open_first(&w);
			up = sq_store_is_up(lane->store, &stays, text, sizeof(text));
		}
		if (list_empty(&ops))
			continue;
		if (up)
			run(&w, &ops);
		else
			stay_away(&w, &ops, text, stays);
	}
	settle_never(&w, "the store was stopped");
	buf_done(&w.x.changes);
	sq_db_done(&w.x.logs);
	sq_db_done(&w.x.db);
	return NULL;
}

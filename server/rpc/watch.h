/* WatchTasks, inside.  Each watcher belongs to a reader, which reads events from the store, the tasks that they are of, and
 * hands both to its watchers.  Those that have come to the end share one reader, `head`; one that goes on from an older
 * cursor, or was too slow for the others, has its own until it has caught up.
 *
 * Nothing is kept of what a watcher does not take: it keeps its cursor, and reads again from there. */
#ifndef REINS_RPC_WATCH_H
#define REINS_RPC_WATCH_H

#include "server/rpc/cursor.h"
#include "server/rpc/match.h"
#include "server/rpc/rpc.h"
#include "server/store/store_metrics.h"

#define WATCH_TASKS 64 /* that a reader looks at at a time */

struct watch;
struct watch_reader;

struct watcher {
	struct watch *watch;
	struct grpc_call *call;
	Reins__V1__WatchTasksRequest *request; /* owned */
	struct filter filter;
	bool full;
	uint32_t kinds;        /* 1 << kind of each that it wants */
	struct watch_reader *reader;
	struct list node;      /* of the reader */
	/* What it has beyond its reader's position, while it joins others; NULL: that position is its own. */
	struct cursor *ahead;
	bool begun;            /* it has had its first SYNC */
	bool blocked;          /* it takes nothing now */
	bool sync_due;
	size_t queued;         /* when it was looked at last */
	struct loop_timer patience, sync;
	struct rpc_parked parked;
};

/* One change of the page being handed out, with its task. */
struct watch_item {
	size_t row, place; /* of the page */
	struct store_change change;
	size_t task;
};

struct watch_task {
	struct watch_reader *of;
	struct store_get get;
	struct store_metrics_read metrics; /* of attempt at.attempt, if that is not 0 */
};

struct watch_reader {
	struct watch *watch;
	struct list node;      /* of watch->readers, or (head) none */
	struct list watchers;
	struct cursor at;      /* before what was not handed out yet */
	struct cursor after;   /* the change being handed out */
	struct store_events page;
	struct watch_task tasks[WATCH_TASKS];
	struct watch_item items[WATCH_TASKS];
	size_t n_items, n_tasks, pending;
	size_t row, place;     /* of the page: up to where it was looked at */
	size_t passed;         /* rows of the page that `at` is behind */
	int no_points;         /* so often in a row points could not be read, and tasks could */
	enum { WATCH_IDLE, WATCH_READS, WATCH_GETS } doing;
	bool from_now;         /* `at` is to be read first */
	bool caught_up;        /* the last page was the last one */
	bool again, dead, waits;
	int64_t read_mono_ns;  /* when the last page was asked for */
	struct loop_timer timer;
	struct loop_dirty dirty;
};

struct watch {
	struct rpc *rpc;
	struct watch_reader *head;
	struct list readers;   /* the others */
	int n_watchers, n_reading;
	int n_metrics;         /* watchers that want METRICS */
};

/* enum of TaskEvent.Kind. */
int watch_kind(const struct store_change *c);

/* ---- watch.c, for the reader ---- */

/* An event for the watchers of a reader: what is the same for all is made once. */
struct watch_event {
	const struct store_change *change;
	const struct store_task *task; /* NULL: it is not there any more */
	const struct store_metrics_read *metrics; /* METRICS: what it shows; else NULL */
	int64_t at_wall_us;
	const struct cursor *after;    /* the reader's */
	char cursor[CURSOR_TEXT_MAX + 1]; /* its text, once it was needed */
	struct buf body[2];            /* without cursor; basic and full */
	struct rpc_reasons *reasons;
};
enum watch_sent { WATCH_SENT, WATCH_BLOCKED, WATCH_GONE };
/* To one that it matches. BLOCKED: nothing was taken. GONE: the watcher is freed. */
enum watch_sent watcher_send(struct watcher *w, struct watch_event *e);
void watch_event_done(struct watch_event *e);
/* The first event, and one when nothing else came for a while: it stands there. */
void watcher_sync(struct watcher *w, const struct cursor *at);
/* It was told why; frees it. */
void watcher_over(struct watcher *w);
void watcher_refuse(struct watcher *w, const struct refusal *r);

/* ---- watch_reader.c ---- */

/* NULL: no memory. */
struct watch_reader *watch_reader_new(struct watch *watch) MUST_CHECK;
/* A reader of its own for a watcher that has none, from there on. False: no memory, nothing has changed. */
bool watch_reader_start(struct watcher *w, const struct cursor *at) MUST_CHECK;
/* Goes on: reads if it should. */
void watch_reader_run(struct watch_reader *r);
/* The watcher leaves; the reader, if it was its own, ends. */
void watch_reader_leave(struct watcher *w);
void watch_reader_free(struct watch_reader *r);
/* Something may have changed. */
void watch_reader_news(struct watch_reader *r);

#endif

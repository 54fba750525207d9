/* Events: what has changed in the tasks' states, written by the statement that changes them, in its transaction, a row for
 * each batch.  So there is one for each change that was committed, and none for others, however often a statement runs.
 *
 * A row has a stream and a number.  All rows of a stream are committed in the order of their numbers: it is one connection's
 * life (Postgres), or the one thread that writes (SQLite).  Numbers are one sequence over all streams, and a row gets its
 * number while its transaction holds the rows that it changes: of two changes of one task the later has the larger number,
 * and whoever reads all streams in one snapshot sees no change without those before it.  So a position is a number for each
 * stream: what is read from it on, in the order of the numbers, leaves nothing out, whatever is still on its way. */
#ifndef REINS_STORE_EVENTS_H
#define REINS_STORE_EVENTS_H

#include "server/store/store_op.h"

/* As stored: the task's id, then 8 bytes, the largest first: attempt << 8 | what << 6 | before << 3 | after. */
#define STORE_CHANGE_BYTES 24

enum store_what {
	STORE_WHAT_STATE,   /* of state or attempt, or a wish to cancel: RUNNING before and after */
	STORE_WHAT_STARTED, /* the attempt's program began */
	STORE_WHAT_METRICS, /* NEWS: the attempt has new points. Has no place among the other changes of the task */
	STORE_WHAT_DELETED, /* the rows are gone; after: 0 */
};

struct store_change {
	struct uuid task;
	int32_t attempt;          /* after it */
	uint8_t before, after;    /* enum store_state; before 0: it was submitted */
	uint8_t what;
};

struct store_event {
	int64_t stream, number;
	int64_t at_wall_us;
	struct store_bytes changes; /* those of one task in their order */
};
static inline size_t store_event_changes(const struct store_event *e) { return e->changes.len / STORE_CHANGE_BYTES; }
struct store_change store_event_change(const struct store_event *e, size_t i);
/* The reverse of it. */
void store_change_put(const struct store_change *c, uint8_t ret[static STORE_CHANGE_BYTES]);

struct store_place {
	int64_t stream, number; /* rows up to this number were read */
};

/* Rows behind a position.  A stream that the position does not name is over and was read to its end if it is one of the
 * `known`, else it is new and nothing of it was read. */
struct store_events {
	struct store_op op; /* STORE_EVENTS */
	bool now;           /* only the position of what is committed now: `at` and `known` are not looked at */
	const struct store_place *at; /* in the order of the streams */
	size_t n_at;
	int64_t known;
	int32_t limit;      /* of rows */
	int64_t max_bytes;  /* of their changes: stop after the row that reaches it */
	bool metrics;       /* from this answer on, and for a minute, NEWS is written: somebody wants it */
	bool ret_gone;      /* something behind the position is not kept any more; nothing else is returned */
	bool ret_more;      /* there were more rows */
	struct store_event *ret_rows; /* in the order of their numbers */
	size_t ret_n;
	struct store_place *ret_at;   /* the position behind them */
	size_t ret_n_at;
	int64_t ret_known;
	void *ret_memory;
};

/* These attempts have new points in the store: an event, if an EVENTS of the last minute wanted such.  A second run may write a
 * second one. */
struct store_news {
	struct store_op op; /* STORE_NEWS */
	const struct core_attempt *at;
	size_t n;
};
#define STORE_NEWS_US INT64_C(60000000) /* that minute; what reads more often than each half of it keeps it up */

/* For stores: what there is of a stream. */
struct store_stream {
	int64_t id;
	int64_t gone; /* the largest number of it that is not kept any more; of `now`: the largest there is */
	bool over;    /* nothing more comes */
};
/* For stores, after ret_rows and ret_more were set: the position behind them, and ret_gone.  `streams`: in the order of
 * their ids, all that are not over, that the position names or that it does not know. */
void store_events_settle(struct store_events *o, const struct store_stream *streams, size_t n);

#endif

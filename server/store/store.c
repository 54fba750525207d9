/* What all stores share: the limits of what waits, counting answers, and freeing them. */
#include <stdio.h>

#include "server/store/mem.h"
#include "server/store/queues.h"
#include "server/store/store.h"
#include "server/store/store_events.h"
#include "server/store/store_logs.h"
#include "server/store/store_metrics.h"
#include "server/store/workers.h"

const char *store_kind_name(enum store_kind kind)
{
	switch (kind) {
	case STORE_INSERT: return "insert";
	case STORE_CLAIM: return "claim";
	case STORE_RECORD: return "record";
	case STORE_TAKE_BACK: return "take_back";
	case STORE_CANCEL: return "cancel";
	case STORE_RETRY: return "retry";
	case STORE_SESSION_OPEN: return "session_open";
	case STORE_STARTED: return "started";
	case STORE_FILL: return "fill";
	case STORE_QUEUES: return "queues";
	case STORE_DUE: return "due";
	case STORE_EXPIRE: return "expire";
	case STORE_STRAYS: return "strays";
	case STORE_RUNS: return "runs";
	case STORE_LOG_APPEND: return "log_append";
	case STORE_LOG_READ: return "log_read";
	case STORE_METRICS: return "metrics";
	case STORE_METRICS_READ: return "metrics_read";
	case STORE_GET: return "get";
	case STORE_LIST: return "list";
	case STORE_EVENTS: return "events";
	case STORE_NEWS: return "news";
	case STORE_WORKERS: return "workers";
	case STORE_WORKER_GONE: return "worker_gone";
	case STORE_DETACHED: return "detached";
	case STORE_DRAIN: return "drain";
	case STORE_QUEUE_LIST: return "queue_list";
	case STORE_PAUSE: return "pause";
	case STORE_MASTER_OPEN: return "master_open";
	case STORE_BEAT: return "beat";
	case STORE_TAKE_OVER: return "take_over";
	case STORE_KINDS: break;
	}
	return "?";
}

bool store_take(struct store *s, struct store_op *op, int64_t items, int64_t bytes)
{
	op->queue_full = s->queued + items > s->max_queued || s->queued_bytes + bytes > s->max_queued_bytes;
	s->queued += items;
	s->queued_bytes += bytes;
	if (!op->queue_full)
		return true;
	s->refused_full++;
	op->result = STORE_UNAVAILABLE;
	op->maybe_done = false;
	snprintf(op->text, sizeof(op->text), "its queue is full (%lld operations, %lld KiB; at most %lld and %lld KiB)",
		 (long long)(s->queued - items), (long long)(s->queued_bytes - bytes) >> 10, (long long)s->max_queued,
		 (long long)s->max_queued_bytes >> 10);
	return false;
}

#define BIT(kind) (UINT64_C(1) << (kind))
/* Kinds that write events. */
#define CHANGES (BIT(STORE_INSERT) | BIT(STORE_CLAIM) | BIT(STORE_RECORD) | BIT(STORE_TAKE_BACK) | BIT(STORE_CANCEL) | \
		 BIT(STORE_RETRY) | BIT(STORE_SESSION_OPEN) | BIT(STORE_EXPIRE) | BIT(STORE_STARTED) | BIT(STORE_NEWS))
_Static_assert(STORE_KINDS <= 64, "CHANGES");

void store_tell(struct store *s, struct store_op *op)
{
	if (op->kind < STORE_KINDS) { /* a store may have kinds of its own */
		s->results[op->kind][op->result]++;
		if (s->on_change && op->result == STORE_OK && (CHANGES >> op->kind & 1))
			s->on_change(s->on_change_arg);
		histogram_add(&s->took[op->kind], clock_mono_ns() - op->submitted_mono_ns);
	}
	op->done(op);
}

#define CLEAR(p) (free(p), (p) = NULL)

static void mem_done(void **memory)
{
	store_mem_free(*memory);
	*memory = NULL;
}

static void blob_done(struct blob **b)
{
	blob_unref(*b);
	*b = NULL;
}

static void list_done(struct store_list *o)
{
	for (size_t i = 0; i < o->ret_n; i++)
		blob_done(&o->ret_tasks[i].spec);
	o->ret_tasks = NULL;
	o->ret_n = 0;
	mem_done(&o->ret_memory);
}

/* The first id of version 7 of its time. */
static struct uuid first_id(int64_t us)
{
	struct uuid id = { 0 };
	int64_t ms = us < 0 ? 0 : us / 1000;
	for (int i = 0; i < 6; i++)
		id.b[i] = (uint8_t)(ms >> (8 * (5 - i)));
	return id;
}

void store_list_range(const struct store_list *o, struct uuid *ret_from, struct uuid *ret_below)
{
	static const struct uuid last = {{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}};
	*ret_from = first_id(o->created_from_us - STORE_LIST_SKEW_US);
	*ret_below = o->after ? o->after_id : last;
	if (o->created_before_us) {
		struct uuid end = first_id(o->created_before_us + STORE_LIST_SKEW_US + 1000);
		if (uuid_cmp(&end, ret_below) < 0)
			*ret_below = end;
	}
}

bool store_log_trim(struct store_log_chunk *c, int64_t at)
{
	int64_t before = at - c->offset;
	if (before <= 0)
		return true;
	c->offset = at;
	if (c->dropped) {
		c->dropped = max_i64(c->dropped - before, 0);
		return c->dropped > 0;
	}
	if (before >= (int64_t)c->data.len)
		return false;
	c->data.data += before;
	c->data.len -= (size_t)before;
	return true;
}

static void session_open_done(struct store_session_open *o)
{
	o->ret_adopted = NULL;
	o->ret_requeued = NULL;
	o->ret_waiting = NULL;
	o->ret_fenced = NULL;
	o->ret_n_adopted = o->ret_n_requeued = o->ret_n_waiting = o->ret_n_fenced = 0;
	o->ret_drain = (struct store_drain_wish){ 0 };
	mem_done(&o->ret_memory);
}

static void fill_done(struct store_fill *o)
{
	CLEAR(o->ret_rows);
	o->ret_n = 0;
	mem_done(&o->ret_memory);
}

static void queues_done(struct store_queues *o)
{
	CLEAR(o->ret_names);
	o->ret_paused = NULL;
	o->ret_n = o->ret_n_paused = 0;
	mem_done(&o->ret_memory);
}

static void metrics_read_done(struct store_metrics_read *o)
{
	o->ret_items = NULL;
	o->ret_n = 0;
	o->ret_counts = (struct store_bytes){0};
	mem_done(&o->ret_memory);
}

static void events_done(struct store_events *o)
{
	o->ret_rows = NULL;
	o->ret_at = NULL;
	o->ret_n = o->ret_n_at = 0;
	mem_done(&o->ret_memory);
}

/* Rows, and the memory that they lie in. */
#define DROP(type, rows)                                                \
	do {                                                            \
		struct type *o_ = container_of(op, struct type, op);    \
		o_->rows = NULL;                                        \
		o_->ret_n = 0;                                          \
		mem_done(&o_->ret_memory);                              \
	} while (0)

void store_op_done_fields(struct store_op *op)
{
	switch (op->kind) {
	case STORE_CLAIM: blob_done(&container_of(op, struct store_claim, op)->ret_spec); return;
	case STORE_RECORD: CLEAR(container_of(op, struct store_record, op)->ret_texts); return;
	case STORE_TAKE_BACK: CLEAR(container_of(op, struct store_take_back, op)->ret_texts); return;
	case STORE_RETRY: CLEAR(container_of(op, struct store_retry, op)->ret_texts); return;
	case STORE_SESSION_OPEN: session_open_done(container_of(op, struct store_session_open, op)); return;
	case STORE_FILL: fill_done(container_of(op, struct store_fill, op)); return;
	case STORE_QUEUES: queues_done(container_of(op, struct store_queues, op)); return;
	case STORE_DUE: DROP(store_due, ret_rows); return;
	case STORE_EXPIRE: DROP(store_expire, ret_ids); return;
	case STORE_STRAYS: DROP(store_strays, ret_rows); return;
	case STORE_RUNS:
		container_of(op, struct store_runs, op)->ret_runs = NULL;
		mem_done(&container_of(op, struct store_runs, op)->ret_memory);
		return;
	case STORE_LOG_READ: DROP(store_log_read, ret_chunks); return;
	case STORE_METRICS_READ: metrics_read_done(container_of(op, struct store_metrics_read, op)); return;
	case STORE_GET:
		blob_done(&container_of(op, struct store_get, op)->ret_task.spec);
		mem_done(&container_of(op, struct store_get, op)->ret_memory);
		return;
	case STORE_EVENTS: events_done(container_of(op, struct store_events, op)); return;
	case STORE_LIST: list_done(container_of(op, struct store_list, op)); return;
	case STORE_WORKERS: DROP(store_workers, ret_rows); return;
	case STORE_QUEUE_LIST: DROP(store_queue_list, ret_rows); return;
	case STORE_WORKER_GONE:
	case STORE_DETACHED:
	case STORE_DRAIN:
	case STORE_PAUSE:
	case STORE_INSERT:
	case STORE_CANCEL:
	case STORE_STARTED:
	case STORE_NEWS:
	case STORE_LOG_APPEND:
	case STORE_METRICS:
	case STORE_MASTER_OPEN:
	case STORE_BEAT:
	case STORE_TAKE_OVER:
	case STORE_KINDS: return;
	}
}

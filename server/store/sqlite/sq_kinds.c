/* The table of kinds: who runs each, and what one holds.  An outcome and a piece of log wait for the store's return:
 * nobody would ask for them again soon. */
#include <string.h>

#include "server/store/sqlite/sq.h"
#include "server/store/store_events.h"
#include "server/store/store_logs.h"
#include "server/store/store_metrics.h"

#define OP(type, ptr) ((const struct type *)(const void *)((const char *)(ptr)-offsetof(struct type, op)))
#define BASE_COST 200

static size_t insert_bytes(const struct store_op *op)
{
	size_t n = 0;
	const struct store_insert *o = OP(store_insert, op);
	for (int32_t left = sq_op_items(op); left && o; left--, o = o->group_next)
		n += BASE_COST + o->spec->len + (o->env_free_spec ? o->env_free_spec->len : 0) + o->labels.len;
	return n;
}

static size_t record_bytes(const struct store_op *op)
{
	const struct store_record *o = OP(store_record, op);
	return 2 * BASE_COST + o->error.len + (o->devices ? strlen(o->devices) : 0) + (o->result ? o->result->len : 0);
}

static size_t append_bytes(const struct store_op *op)
{
	const struct store_log_append *o = OP(store_log_append, op);
	size_t n = BASE_COST;
	for (size_t i = 0; i < o->n; i++)
		n += 100 + (o->pieces[i].data ? o->pieces[i].data->len : 0);
	return n;
}

static size_t session_bytes(const struct store_op *op)
{
	const struct store_session_open *o = OP(store_session_open, op);
	return BASE_COST + o->n_held * 64 + (o->hello ? o->hello->len : 0);
}

static size_t metrics_bytes(const struct store_op *op)
{
	const struct store_metrics *o = OP(store_metrics, op);
	size_t n = BASE_COST;
	for (size_t i = 0; i < o->n; i++)
		n += sizeof(*o->items) + o->items[i].point.len;
	return n;
}

static size_t news_bytes(const struct store_op *op) { return BASE_COST + OP(store_news, op)->n * 24; }

static size_t runs_bytes(const struct store_op *op)
{
	const struct store_runs *o = OP(store_runs, op);
	size_t n = BASE_COST;
	for (size_t i = 0; i < o->n; i++)
		n += 64 + strlen(o->at[i].worker);
	return n;
}

const struct sq_kind sq_kinds[STORE_KINDS] = {
	[STORE_INSERT] = {SQ_WRITE, sq_insert_run, insert_bytes, false},
	[STORE_CLAIM] = {SQ_WRITE, sq_claim_run, NULL, false},
	[STORE_RECORD] = {SQ_WRITE, sq_record_run, record_bytes, true},
	[STORE_TAKE_BACK] = {SQ_WRITE, sq_take_back_run, NULL, false},
	[STORE_CANCEL] = {SQ_WRITE, sq_cancel_run, NULL, false},
	[STORE_RETRY] = {SQ_WRITE, sq_retry_run, NULL, false},
	[STORE_SESSION_OPEN] = {SQ_WRITE, sq_session_run, session_bytes, false},
	[STORE_STARTED] = {SQ_WRITE, sq_started_run, NULL, false},
	[STORE_FILL] = {SQ_WRITE, sq_fill_run, NULL, false},
	[STORE_QUEUES] = {SQ_WRITE, sq_queues_run, NULL, false},
	[STORE_DUE] = {SQ_WRITE, sq_due_run, NULL, false},
	[STORE_EXPIRE] = {SQ_WRITE, sq_expire_run, NULL, false},
	[STORE_STRAYS] = {SQ_READ, sq_strays_run, NULL, false},
	[STORE_RUNS] = {SQ_READ, sq_runs_run, runs_bytes, false},
	[STORE_LOG_APPEND] = {SQ_LOG, sq_log_append_run, append_bytes, true},
	[STORE_LOG_READ] = {SQ_READ, sq_log_read_run, NULL, false},
	[STORE_METRICS] = {SQ_LOG, sq_metrics_run, metrics_bytes, true},
	[STORE_METRICS_READ] = {SQ_READ, sq_metrics_read_run, NULL, false},
	[STORE_GET] = {SQ_READ, sq_get_run, NULL, false},
	[STORE_EVENTS] = {SQ_READ, sq_events_run, NULL, false},
	[STORE_NEWS] = {SQ_WRITE, sq_news_run, news_bytes, false},
	[STORE_LIST] = {SQ_READ, sq_list_run, NULL, false},
	[STORE_WORKERS] = {SQ_READ, sq_workers_run, NULL, false},
	[STORE_WORKER_GONE] = {SQ_WRITE, sq_worker_gone_run, NULL, true},
	[STORE_DETACHED] = {SQ_WRITE, sq_detached_run, NULL, true},
	[STORE_DRAIN] = {SQ_WRITE, sq_drain_run, NULL, false},
	[STORE_QUEUE_LIST] = {SQ_READ, sq_queue_list_run, NULL, false},
	[STORE_PAUSE] = {SQ_WRITE, sq_pause_run, NULL, false},
	[STORE_MASTER_OPEN] = {SQ_WRITE, sq_master_open_run, NULL, false},
	[STORE_BEAT] = {SQ_WRITE, sq_beat_run, NULL, false},
	[STORE_TAKE_OVER] = {SQ_WRITE, sq_take_over_run, NULL, false},
};

int32_t sq_op_items(const struct store_op *op)
{
	if (op->kind != STORE_INSERT)
		return 1;
	const struct store_insert *o = OP(store_insert, op);
	return o->group_n > 1 ? o->group_n : 1;
}

int64_t sq_op_bytes(const struct store_op *op)
{
	const struct sq_kind *k = &sq_kinds[op->kind];
	return (int64_t)(k->bytes ? k->bytes(op) : BASE_COST);
}

/* The table of kinds: how each gathers, and its statements. */
#include <string.h>

#include "server/store/postgres/pg.h"
#include "server/store/store_events.h"
#include "server/store/store_logs.h"
#include "server/store/workers.h"
#include "server/store/store_metrics.h"

#define OP(type, ptr) ((const struct type *)(const void *)((const char *)(ptr)-offsetof(struct type, op)))

static bool one_key(const void **at, const void *key, size_t len, const void **ret, size_t *ret_len)
{
	if (*at)
		return false;
	*at = *ret = key;
	*ret_len = len;
	return true;
}

/* ---- insert ---- */

static size_t insert_bytes(const struct store_op *op)
{
	size_t n = 0;
	const struct store_insert *o = OP(store_insert, op);
	for (int i = o->group_n > 1 ? o->group_n : 1; i && o; i--, o = o->group_next)
		n += 200 + o->spec->len + (o->env_free_spec ? o->env_free_spec->len : 0) + o->labels.len;
	return n;
}

static bool insert_key(const struct store_op *op, const void **at, const void **ret, size_t *ret_len)
{
	const struct store_insert *head = OP(store_insert, op), *o = head;
	if (*at)
		o = head->group_n > 1 ? ((const struct store_insert *)*at)->group_next : NULL;
	while (o && !o->idempotency_key)
		o = head->group_n > 1 ? o->group_next : NULL;
	if (!o)
		return false;
	*at = o;
	*ret = o->idempotency_key;
	*ret_len = strlen(o->idempotency_key);
	return true;
}

static int insert_order(const struct store_op *a, const struct store_op *b)
{
	return uuid_cmp(&OP(store_insert, a)->task.id, &OP(store_insert, b)->task.id);
}

/* ---- kinds whose key is a task ---- */

#define BY_TASK(kind, field)                                                                              \
	static bool kind##_key(const struct store_op *op, const void **at, const void **ret,              \
			       size_t *ret_len)                                                           \
	{                                                                                                 \
		return one_key(at, OP(store_##kind, op)->field.b, 16, ret, ret_len);                       \
	}                                                                                                 \
	static int kind##_order(const struct store_op *a, const struct store_op *b)                       \
	{                                                                                                 \
		return uuid_cmp(&OP(store_##kind, a)->field, &OP(store_##kind, b)->field);                \
	}
BY_TASK(claim, task.id)
BY_TASK(record, at.task)
BY_TASK(take_back, at.task)
BY_TASK(cancel, id)
BY_TASK(retry, id)
BY_TASK(started, at.task)
#undef BY_TASK

static size_t record_bytes(const struct store_op *op)
{
	const struct store_record *o = OP(store_record, op);
	return 400 + o->error.len + (o->devices ? strlen(o->devices) : 0) + (o->result ? o->result->len : 0);
}

static size_t log_append_bytes(const struct store_op *op)
{
	const struct store_log_append *o = OP(store_log_append, op);
	size_t n = 100;
	for (size_t i = 0; i < o->n; i++)
		n += 100 + (o->pieces[i].data ? o->pieces[i].data->len : 0);
	return n;
}

static size_t metrics_bytes(const struct store_op *op)
{
	const struct store_metrics *o = OP(store_metrics, op);
	size_t n = 100;
	for (size_t i = 0; i < o->n; i++)
		n += 24 + o->items[i].point.len;
	return n;
}

static size_t news_bytes(const struct store_op *op) { return 100 + OP(store_news, op)->n * 24; }

static size_t session_bytes(const struct store_op *op)
{
	const struct store_session_open *o = OP(store_session_open, op);
	return 200 + o->n_held * 64 + (o->hello ? o->hello->len : 0);
}

static size_t runs_bytes(const struct store_op *op)
{
	const struct store_runs *o = OP(store_runs, op);
	size_t n = 100;
	for (size_t i = 0; i < o->n; i++)
		n += 64 + strlen(o->at[i].worker);
	return n;
}

static bool session_key(const struct store_op *op, const void **at, const void **ret, size_t *ret_len)
{
	const char *w = OP(store_session_open, op)->worker;
	return one_key(at, w, strlen(w), ret, ret_len);
}

static int session_order(const struct store_op *a, const struct store_op *b)
{
	return strcmp(OP(store_session_open, a)->worker, OP(store_session_open, b)->worker);
}

#define BY_WORKER(kind)                                                                                   \
	static bool kind##_key(const struct store_op *op, const void **at, const void **ret,              \
			       size_t *ret_len)                                                           \
	{                                                                                                 \
		const char *w = OP(store_##kind, op)->worker;                                             \
		return one_key(at, w, strlen(w), ret, ret_len);                                           \
	}                                                                                                 \
	static int kind##_order(const struct store_op *a, const struct store_op *b)                       \
	{                                                                                                 \
		return strcmp(OP(store_##kind, a)->worker, OP(store_##kind, b)->worker);                  \
	}
BY_WORKER(drain)
BY_WORKER(worker_gone)
BY_WORKER(detached)
#undef BY_WORKER

static bool beat_key(const struct store_op *op, const void **at, const void **ret, size_t *ret_len)
{
	const char *m = OP(store_beat, op)->master;
	return one_key(at, m, strlen(m), ret, ret_len);
}

static bool take_over_key(const struct store_op *op, const void **at, const void **ret, size_t *ret_len)
{
	const char *m = OP(store_take_over, op)->master;
	return one_key(at, m, strlen(m), ret, ret_len);
}

static int take_over_order(const struct store_op *a, const struct store_op *b)
{
	return strcmp(OP(store_take_over, a)->master, OP(store_take_over, b)->master);
}

#define STMTS(kind) .name = #kind, .stmts = pg_##kind##_stmts, .n_stmts = (int)ARRAY_LEN(pg_##kind##_stmts)

const struct pg_kind pg_kinds[PG_KINDS] = {
	[STORE_INSERT] = {STMTS(insert), .bytes = insert_bytes, .key = insert_key, .order = insert_order},
	[STORE_CLAIM] = {STMTS(claim), .key = claim_key, .order = claim_order},
	[STORE_RECORD] = {STMTS(record), .kept = true, .bytes = record_bytes, .key = record_key, .order = record_order,
			  .strip = pg_record_strip},
	[STORE_TAKE_BACK] = {STMTS(take_back), .key = take_back_key, .order = take_back_order},
	[STORE_CANCEL] = {STMTS(cancel), .key = cancel_key, .order = cancel_order},
	[STORE_RETRY] = {STMTS(retry), .key = retry_key, .order = retry_order},
	[STORE_SESSION_OPEN] = {STMTS(session), .max_ops = 200, .bytes = session_bytes, .key = session_key,
				.order = session_order},
	[STORE_STARTED] = {STMTS(started), .key = started_key, .order = started_order},
	[STORE_FILL] = {STMTS(fill), .max_ops = 64},
	[STORE_QUEUES] = {STMTS(queues), .max_ops = 1},
	[STORE_DUE] = {STMTS(due), .max_ops = 1},
	[STORE_EXPIRE] = {STMTS(expire), .max_ops = 1},
	[STORE_STRAYS] = {STMTS(strays), .max_ops = 1},
	[STORE_RUNS] = {STMTS(runs), .max_ops = 1, .bytes = runs_bytes},
	[STORE_LOG_APPEND] = {STMTS(log_append), .kept = true, .in_order = true, .bytes = log_append_bytes},
	[STORE_LOG_READ] = {STMTS(log_read), .reads = true, .max_ops = 16},
	[STORE_METRICS] = {STMTS(metrics), .kept = true, .in_order = true, .bytes = metrics_bytes},
	[STORE_METRICS_READ] = {STMTS(metrics_read), .reads = true, .max_ops = 64},
	[STORE_GET] = {STMTS(get), .reads = true, .max_ops = 200},
	[STORE_LIST] = {STMTS(list), .reads = true, .max_ops = 1},
	[STORE_WORKERS] = {STMTS(workers), .reads = true, .max_ops = 1},
	[STORE_WORKER_GONE] = {STMTS(worker_gone), .kept = true, .key = worker_gone_key, .order = worker_gone_order},
	[STORE_DETACHED] = {STMTS(detached), .kept = true, .key = detached_key, .order = detached_order},
	[STORE_DRAIN] = {STMTS(drain), .key = drain_key, .order = drain_order},
	[STORE_QUEUE_LIST] = {STMTS(queue_list), .reads = true, .max_ops = 1},
	[STORE_PAUSE] = {STMTS(pause), .in_order = true, .max_ops = 1},
	[STORE_MASTER_OPEN] = {STMTS(master_open), .max_ops = 1},
	[STORE_BEAT] = {STMTS(beat), .key = beat_key},
	[STORE_TAKE_OVER] = {STMTS(take_over), .key = take_over_key, .order = take_over_order},
	[STORE_EVENTS] = {STMTS(events), .reads = true, .max_ops = 1},
	[STORE_NEWS] = {STMTS(news), .max_ops = 1, .bytes = news_bytes},
	[PG_KIND_TRIM] = {STMTS(trim), .max_ops = 1},
	[PG_KIND_PARTITIONS] = {STMTS(partitions), .max_ops = 1},
};

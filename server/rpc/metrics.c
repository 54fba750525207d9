/* ReadMetrics: a page of one attempt's points.  The task is read first: an attempt that had ended before its points were
 * read has no more. */
#include <string.h>

#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/wire.h"
#include "server/store/store_metrics.h"

#define PAGE_DEFAULT 1000
#define PAGE_MAX 10000
#define PAGE_BYTES (1024 * 1024)
#define REPLY_MAX (4 * 1024 * 1024)
#define POINTS_FIELD 2

struct metrics_call {
	struct rpc *rpc;
	struct grpc_call *call; /* NULL once it is over */
	Reins__V1__ReadMetricsRequest *req;
	int32_t attempt;
	bool ended, reading;
	struct rpc_read large;
	struct store_get get;
	struct store_metrics_read read;
};

static void metrics_free(struct metrics_call *m)
{
	store_op_done_fields(&m->get.op);
	store_op_done_fields(&m->read.op);
	rpc_read_end(m->rpc, &m->large);
	if (m->call)
		grpc_call_set_user(m->call, NULL);
	pb_free(m->req);
	free(m);
}

void metrics_on_end(struct grpc_call *call, bool finished)
{
	struct metrics_call *m = grpc_call_user(call);
	if (!m)
		return;
	grpc_call_set_user(call, NULL);
	m->call = NULL;
	if (!m->reading || rpc_read_cancel(m->rpc, &m->large))
		metrics_free(m);
}

static bool is_wanted(const struct metrics_call *m, const char *name)
{
	for (size_t i = 0; i < m->req->n_names; i++)
		if (strcmp(m->req->names[i], name) == 0)
			return true;
	return false;
}

/* The point with only the values asked for; nothing if it has none of them. */
static int add_some(const struct metrics_call *m, const struct store_bytes *point, struct buf *b)
{
	struct refusal r;
	Reins__V1__MetricPoint *p = pb_unpack(&reins__v1__metric_point__descriptor, point->data, point->len, NULL, &r);
	if (!p)
		return 0;
	Reins__V1__MetricPoint__ValuesEntry **all = p->values;
	Reins__V1__MetricPoint__ValuesEntry *some[RPC_METRIC_VALUES_MAX];
	size_t n = p->n_values, n_some = 0;
	for (size_t i = 0; i < n && n_some < ARRAY_LEN(some); i++)
		if (is_wanted(m, all[i]->key))
			some[n_some++] = all[i];
	int rc = 0;
	if (n_some) {
		struct buf one;
		buf_init(&one, REPLY_MAX);
		p->values = some;
		p->n_values = n_some;
		rc = pb_pack(p, &one);
		if (rc == 0)
			rc = wire_put_len(b, POINTS_FIELD, buf_head(&one), buf_len(&one));
		buf_done(&one);
		p->values = all;
		p->n_values = n;
	}
	pb_free(p);
	return rc;
}

static int encode(const struct metrics_call *m, struct buf *b)
{
	const struct store_metrics_read *o = &m->read;
	Reins__V1__ReadMetricsResponse head = REINS__V1__READ_METRICS_RESPONSE__INIT;
	size_t bytes = 0;
	head.attempt = m->attempt;
	head.last_number = o->ret_n ? o->ret_items[o->ret_n - 1].number : m->req->after_number;
	for (size_t i = 0; i < o->ret_n; i++)
		bytes += o->ret_items[i].point.len;
	head.more = o->ret_n && ((int32_t)o->ret_n == o->limit || (int64_t)bytes >= o->max_bytes);
	head.ended = m->ended && !head.more;
	int rc = pb_pack(&head, b);
	for (size_t i = 0; i < o->ret_n && rc == 0; i++) {
		const struct store_bytes *p = &o->ret_items[i].point;
		rc = m->req->n_names ? add_some(m, p, b) : wire_put_len(b, POINTS_FIELD, p->data, p->len);
	}
	/* An encoded answer with nothing but the counts: bytes side by side are the two merged. */
	if (rc == 0 && o->ret_counts.len)
		rc = buf_add(b, o->ret_counts.data, o->ret_counts.len);
	return rc;
}

static void reply(struct metrics_call *m)
{
	struct buf b;
	buf_init(&b, REPLY_MAX);
	if (encode(m, &b))
		rpc_refuse_room(m->call, "no room for the reply");
	else
		rpc_reply(m->call, &b);
	buf_done(&b);
}

static void on_points(struct store_op *op)
{
	struct metrics_call *m = container_of(op, struct metrics_call, read.op);
	m->reading = false;
	if (m->call && op->result != STORE_OK)
		rpc_refuse_store(m->call, op);
	else if (m->call)
		reply(m);
	metrics_free(m);
}

static void read_points(struct metrics_call *m)
{
	m->read.op = (struct store_op){.kind = STORE_METRICS_READ, .done = on_points};
	m->read.at = (struct core_attempt){m->get.id, m->attempt};
	m->read.after = m->req->after_number;
	m->read.limit = m->req->page_size ? m->req->page_size : PAGE_DEFAULT;
	m->read.max_bytes = PAGE_BYTES;
	m->reading = true;
	rpc_store_begin(m->call, false);
	store_submit(engine_store(m->rpc->engine), &m->read.op);
}

static void on_task(struct store_op *op)
{
	struct metrics_call *m = container_of(op, struct metrics_call, get.op);
	const struct store_task *t = &m->get.ret_task;
	m->reading = false;
	if (!m->call) {
		/* freed below */
	} else if (op->result != STORE_OK) {
		rpc_refuse_store(m->call, op);
	} else if (!m->get.ret_found) {
		rpc_refuse_no_task(m->call, &m->get.id);
	} else if (!rpc_must(m->call, t->owner, RPC_READ)) {
		/* freed below */
	} else if (m->req->attempt > t->core.attempt) {
		rpc_refuse_no_attempt(m->call, &m->get.id, t->core.attempt);
	} else {
		bool final = store_state_is_final(t->state);
		m->attempt = m->req->attempt ? m->req->attempt : t->core.attempt;
		m->ended = final || (m->req->attempt && (m->attempt < t->core.attempt || t->state != STORE_RUNNING));
		if (m->attempt) {
			read_points(m);
			return;
		}
		reply(m);
	}
	metrics_free(m);
}

static bool check(struct grpc_call *call, const Reins__V1__ReadMetricsRequest *req)
{
	if (req->attempt < 0)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "attempt", "attempt: below 0; attempts count from 1, 0 is the newest");
	else if (req->after_number < 0)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "after_number", "after_number: below 0");
	else if (req->page_size < 0 || req->page_size > PAGE_MAX)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "page_size", "page_size: not from 0 to %d", PAGE_MAX);
	else if (req->n_names > RPC_METRIC_VALUES_MAX)
		rpc_refuse(call, STATUS_INVALID_ARGUMENT, "names", "names: more than %d", RPC_METRIC_VALUES_MAX);
	else
		return true;
	return false;
}

static void begin_read(struct rpc_read *r)
{
	struct metrics_call *m = container_of(r, struct metrics_call, large);
	store_submit(engine_store(m->rpc->engine), &m->get.op);
}

void metrics_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	Reins__V1__ReadMetricsRequest *req = rpc_unpack(call, &reins__v1__read_metrics_request__descriptor, data, len);
	struct uuid id;
	if (!req)
		return;
	if (!check(call, req) || rpc_parse_id(call, req->task_id, &id)) {
		pb_free(req);
		return;
	}
	struct metrics_call *m = rpc_calloc(call, sizeof(*m));
	if (!m) {
		pb_free(req);
		return;
	}
	m->rpc = rpc_of(call);
	m->call = call;
	m->req = req;
	m->get.op = (struct store_op){.kind = STORE_GET, .done = on_task};
	m->get.id = id;
	m->read.op.kind = STORE_METRICS_READ; /* for store_op_done_fields */
	m->reading = true;
	grpc_call_set_user(call, m);
	m->large = (struct rpc_read){ .kind = RPC_READ_ONE, .begin = begin_read };
	rpc_store_begin(m->call, false);
	rpc_read_begin(m->rpc, &m->large, m->call);
}

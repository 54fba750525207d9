/* Points that a worker reports, on their way to the store: looked at one by one, encoded anew, stored as one operation.  The
 * attempt's outcome waits for them, and goes on without them if the store gives them up.
 *
 * What the store could not take while it was away is tried again, for as long as the stream lives: while a session goes on without
 * the store its worker does not send them once more.
 *
 * Bounded: by the session's bytes, a message's points, and the numbers that an attempt may use. */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/rpc/session.h"
#include "server/rpc/spec.h"
#include "server/store/store_metrics.h"

#define NUMBER_MAX (INT64_C(1) << 50) /* what is computed with it must not overflow */
#define AGAIN_NS (250 * NS_PER_MS)
#define ENCODED_MAX (8 * 1024 * 1024) /* of a message's points: more than a message has */

struct metrics_op {
	struct store_metrics put;
	struct session *session;
	struct list again;    /* in session.metrics_again: to be submitted once more */
	struct attempt *held; /* the outcome that waits */
	size_t bytes;
	int64_t last; /* number of the last point that is put */
	struct buf encoded;
	char worker[CORE_NAME_MAX + 1];
	struct store_metric items[]; /* a message's points, and the counts */
};

static void op_free(struct metrics_op *o)
{
	buf_done(&o->encoded);
	free(o);
}

static void tell_lost(const struct session *s, const struct metrics_op *o)
{
	static struct log_repeats repeats;
	int64_t left_out;
	if (s->call && !s->closing && log_repeats_pass(&repeats, clock_mono_ns(), NS_PER_S / 10, s->log_name, &left_out))
		log_warn("worker", s->log_name, "%zu points of a task's metrics are lost: %s", o->put.n, o->put.op.text);
}

static void let_go(struct metrics_op *o)
{
	struct attempt *held = o->held;
	list_remove(&o->again);
	session_let_bytes(o->session, o->bytes);
	op_free(o);
	session_let_outcome(held);
}

static void on_stored(struct store_op *op)
{
	struct metrics_op *o = container_of(op, struct metrics_op, put.op);
	struct session *s = o->session;
	if (op->result == STORE_UNAVAILABLE && s->call && !s->closing) {
		list_push_back(&s->metrics_again, &o->again);
		if (!loop_timer_active(&s->metrics_timer))
			loop_timer_set(&s->metrics_timer, loop_now_mono_ns(s->rpc->loop) + AGAIN_NS);
		return;
	}
	if (op->result != STORE_OK)
		tell_lost(s, o);
	else if (o->last && list_empty(&s->metrics_again)) /* else smaller numbers may still be missing */
		session_log_metrics(s, &o->put.at, o->last);
	if (op->result == STORE_OK && o->last && !o->put.ret_fenced)
		watch_news(s->rpc, &o->put.at);
	let_go(o);
}

static void submit(struct metrics_op *o)
{
	o->put.op = (struct store_op){.kind = STORE_METRICS, .done = on_stored};
	store_submit(engine_store(o->session->rpc->engine), &o->put.op);
}

static void on_again(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, metrics_timer);
	struct list *n;
	while ((n = list_pop_front(&s->metrics_again)))
		submit(container_of(n, struct metrics_op, again));
}

void session_metrics_init(struct session *s)
{
	list_init(&s->metrics_again);
	loop_timer_init(&s->metrics_timer, s->rpc->loop, on_again);
}

void session_metrics_stop(struct session *s)
{
	struct list *n;
	loop_timer_stop(&s->metrics_timer);
	while ((n = list_pop_front(&s->metrics_again)))
		let_go(container_of(n, struct metrics_op, again)); /* the worker sends them again in its next session */
}

/* NULL, or what is wrong with it. */
static const char *check_point(Reins__V1__MetricPoint *p)
{
	int64_t us;
	if (p->n_values < 1 || p->n_values > RPC_METRIC_VALUES_MAX)
		return "metrics: a point has 1 to 64 values";
	for (size_t i = 0; i < p->n_values; i++) {
		if (!spec_name_ok(p->values[i]->key) || strlen(p->values[i]->key) > RPC_LABEL_KEY_MAX)
			return "metrics: a value's name is not 1 to 63 bytes of [A-Za-z0-9._/-]";
		if (!isfinite(p->values[i]->value))
			return "metrics: a value is not a finite number";
	}
	if (p->at && pb_timestamp_us(p->at, &us))
		return "metrics: a time that is none";
	p->n_values = pb_map_unique((void *)p->values, p->n_values);
	return NULL;
}

static const char *check(Reins__V1__Metrics *m)
{
	if (m->n_points > RPC_METRICS_POINTS_MAX)
		return "metrics: more than 1000 points in a message";
	if (m->first_number < (m->n_points ? 1 : 0) || m->first_number > NUMBER_MAX)
		return "metrics: first_number is not from 1 to 2^50";
	if (m->malformed_lines < 0 || m->dropped_points < 0 || m->malformed_lines > NUMBER_MAX || m->dropped_points > NUMBER_MAX)
		return "metrics: a count is below 0 or above 2^50";
	for (size_t i = 0; i < m->n_points; i++) {
		const char *why = check_point(m->points[i]);
		if (why)
			return why;
	}
	return NULL;
}

static int encode_item(struct metrics_op *o, int64_t number, const void *message)
{
	size_t from = buf_len(&o->encoded);
	if (pb_pack(message, &o->encoded))
		return -1;
	o->items[o->put.n++] = (struct store_metric){.number = number, .point = {NULL, buf_len(&o->encoded) - from}};
	return 0;
}

/* Points over the limit are counted and left out. */
static int encode(struct metrics_op *o, const Reins__V1__Metrics *m, int64_t limit)
{
	Reins__V1__ReadMetricsResponse counts = REINS__V1__READ_METRICS_RESPONSE__INIT;
	int64_t last = m->first_number + (int64_t)m->n_points - 1;
	counts.malformed_lines = m->malformed_lines;
	counts.dropped_points = max_i64(m->dropped_points, m->n_points ? last - limit : 0);
	for (size_t i = 0; i < m->n_points && m->first_number + (int64_t)i <= limit; i++) {
		if (encode_item(o, m->first_number + (int64_t)i, m->points[i]))
			return -1;
	}
	if ((counts.malformed_lines || counts.dropped_points) && encode_item(o, 0, &counts))
		return -1;
	const uint8_t *at = buf_head(&o->encoded);
	for (size_t i = 0; i < o->put.n; at += o->items[i++].point.len)
		o->items[i].point.data = at;
	o->put.items = o->items;
	return 0;
}

void session_metrics(struct session *s, Reins__V1__Metrics *m)
{
	struct core_attempt ref;
	if (session_parse_ref(s, m->task_id, m->attempt, &ref))
		return;
	const char *why = check(m);
	if (why) {
		(void)session_bad_message(s, why);
		return;
	}
	size_t room = sizeof(struct metrics_op) + (m->n_points + 1) * sizeof(struct store_metric);
	struct metrics_op *o = calloc(1, room);
	if (!o) {
		session_no_memory(s);
		return;
	}
	buf_init(&o->encoded, ENCODED_MAX);
	int rc = encode(o, m, s->rpc->limits.metrics_points);
	o->bytes = room + buf_len(&o->encoded);
	bool nothing = rc == 0 && !o->put.n;
	if (rc || !session_has_room(s, o->bytes))
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "too many bytes of metrics wait for the store");
	else if (!nothing)
		o->held = session_hold_outcome(s, &ref);
	if (!o->held) {
		op_free(o);
		return;
	}
	o->session = s;
	list_init(&o->again);
	o->last = m->n_points ? min_i64(m->first_number + (int64_t)m->n_points - 1, s->rpc->limits.metrics_points) : 0;
	session_hold_bytes(s, o->bytes);
	memcpy(o->worker, s->worker, sizeof(o->worker));
	o->put.at = ref;
	o->put.worker = o->worker;
	submit(o);
}

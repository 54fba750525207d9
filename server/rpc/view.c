/* A store's task as the message Task.  What is large is not copied: the spec's bytes are put behind the rest of the message. */
#include "server/rpc/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "reins/v1/task.pb-c.h"
#include "server/rpc/rpc_limits.h"
#include "server/rpc/trace.h"
#include "server/rpc/wire.h"

#define ERROR_TEXT_MAX (16 * 1024)
#define ERRORS_MAX (256 * 1024) /* of all attempts of a task: with 200 of them it must still fit a message */
#define TASK_SPEC_FIELD 3
#define TASK_METRICS_FIELD 22

static Reins__V1__Attempt__End end_of(enum store_outcome o)
{
	switch (o) {
	case STORE_SUCCEEDED: return REINS__V1__ATTEMPT__END__SUCCEEDED;
	case STORE_PROGRAM_FAILED: return REINS__V1__ATTEMPT__END__FAILED;
	case STORE_LAUNCH_FAILED: return REINS__V1__ATTEMPT__END__LAUNCH_FAILED;
	case STORE_STOPPED: return REINS__V1__ATTEMPT__END__STOPPED;
	case STORE_TIMED_OUT: return REINS__V1__ATTEMPT__END__TIMED_OUT;
	case STORE_WORKER_LOST: return REINS__V1__ATTEMPT__END__LOST;
	case STORE_GIVEN_BACK: return REINS__V1__ATTEMPT__END__RECALLED;
	case STORE_NOT_TAKEN: return REINS__V1__ATTEMPT__END__REFUSED;
	case STORE_EXPIRED: break; /* no attempt ends so */
	}
	return REINS__V1__ATTEMPT__END__END_UNSPECIFIED;
}

static const char *cause_of(enum store_outcome o)
{
	switch (o) {
	case STORE_WORKER_LOST: return "worker lost";
	case STORE_GIVEN_BACK: return "given back";
	case STORE_NOT_TAKEN: return "refused by the worker";
	case STORE_STOPPED: return "stopped";
	case STORE_TIMED_OUT: return "timed out";
	default: return "";
	}
}

/* Times live next to the message that points to them. */
struct times {
	Google__Protobuf__Timestamp at[6];
	size_t n;
};

static Google__Protobuf__Timestamp *time_or_null(struct times *t, int64_t wall_us)
{
	if (wall_us <= 0)
		return NULL;
	Google__Protobuf__Timestamp *ts = &t->at[t->n++];
	pb_timestamp_set(ts, wall_us);
	return ts;
}

/* The text in *ret_text (ERROR_TEXT_MAX + 1 bytes), the raw bytes only where they differ. */
static ProtobufCBinaryData text_and_raw(struct store_bytes raw, char *ret_text)
{
	bool changed = false;
	utf8_make_valid(raw.data, raw.len, ret_text, ERROR_TEXT_MAX + 1, &changed);
	return changed ? (ProtobufCBinaryData){ raw.len, (uint8_t *)(uintptr_t)raw.data } : (ProtobufCBinaryData){ 0, NULL };
}

/* The spec of the basic view: without payload and env. */
static struct blob *basic_spec(const struct blob *spec)
{
	struct refusal r;
	Reins__V1__TaskSpec *s = pb_unpack(&reins__v1__task_spec__descriptor, spec->data, spec->len, NULL, &r);
	if (!s)
		return NULL;
	s->payload = (ProtobufCBinaryData){ 0, NULL };
	s->n_env = 0;
	struct blob *b = pb_pack_blob(s);
	pb_free(s);
	return b;
}

struct attempt_view {
	Reins__V1__Attempt a;
	struct times times;
	char instance[2 * CORE_INSTANCE_LEN + 1];
	Google__Protobuf__Duration lease;
	char *devices; /* the text behind a.devices */
	char error[]; /* ERROR_TEXT_MAX + 1 when there is an error text */
};

static void attempt_view_free(Reins__V1__Attempt *a)
{
	struct attempt_view *v = container_of(a, struct attempt_view, a);
	free(a->devices);
	free(v->devices);
	free(v);
}

/* Cuts the text at its spaces. */
static int add_devices(struct attempt_view *v, const char *text)
{
	size_t n = 1;
	for (const char *p = text; *p; p++)
		n += *p == ' ';
	v->devices = strdup(text);
	v->a.devices = calloc(n, sizeof(*v->a.devices));
	if (!v->devices || !v->a.devices)
		return -ENOMEM;
	char *rest = v->devices, *name;
	while ((name = strsep(&rest, " ")))
		if (*name)
			v->a.devices[v->a.n_devices++] = name;
	return 0;
}

static void add_place(struct attempt_view *v, const struct store_attempt_row *row)
{
	Reins__V1__Attempt *a = &v->a;
	if (row->has_instance) {
		for (size_t i = 0; i < CORE_INSTANCE_LEN; i++)
			snprintf(v->instance + 2 * i, 3, "%02x", row->instance[i]);
		a->instance = v->instance;
	}
	a->session = row->session;
	if (row->lease_ns > 0) {
		pb_duration_set(&v->lease, row->lease_ns);
		a->lease_ttl = &v->lease;
	}
	a->oom_killed = row->oom_killed;
	/* Of one that has not ended it is the cause of its wish. */
	if (row->outcome)
		a->cause = (char *)(uintptr_t)(row->cause ? row->cause : cause_of(row->outcome));
}

static struct attempt_view *attempt_view(const struct store_attempt_row *row, bool with_error)
{
	struct attempt_view *v = calloc(1, sizeof(*v) + (with_error ? ERROR_TEXT_MAX + 1 : 1));
	if (!v)
		return NULL;
	Reins__V1__Attempt *a = &v->a;
	reins__v1__attempt__init(a);
	a->number = row->attempt;
	a->end = end_of(row->outcome);
	a->open = row->open;
	a->worker_id = row->worker ? row->worker : a->worker_id;
	a->dispatched_at = time_or_null(&v->times, row->dispatched_wall_us);
	a->started_at = time_or_null(&v->times, row->started_wall_us);
	a->finished_at = time_or_null(&v->times, row->finished_wall_us);
	if (row->has_exit_code) {
		a->has_exit_code_case = REINS__V1__ATTEMPT__HAS_EXIT_CODE_EXIT_CODE;
		a->exit_code = row->exit_code;
	}
	a->signal = row->has_signal ? row->signal : 0;
	a->error = v->error;
	if (with_error)
		a->error_raw = text_and_raw(row->error, v->error);
	a->log_bytes = row->log_end;
	a->log_dropped_bytes = row->log_dropped;
	add_place(v, row);
	if (row->devices && add_devices(v, row->devices)) {
		attempt_view_free(a);
		return NULL;
	}
	return v;
}

static Reins__V1__Task__State state_of(enum store_state s)
{
	return (Reins__V1__Task__State)s; /* the same numbers: see the assertions below */
}
_Static_assert(STORE_PENDING == (int)REINS__V1__TASK__STATE__PENDING, "states");
_Static_assert(STORE_CANCELLED == (int)REINS__V1__TASK__STATE__CANCELLED, "states");

/* The oldest attempt whose error is still shown; the text may go out beside the raw bytes. */
static size_t first_with_error(const struct store_task *t)
{
	size_t i = t->n_attempts, sum = 0;
	while (i > 0 && (sum += 2 * t->attempts[i - 1].error.len) <= ERRORS_MAX)
		i--;
	return i;
}

static int add_attempts(const struct store_task *t, Reins__V1__Task *m)
{
	m->attempts = calloc(t->n_attempts, sizeof(*m->attempts));
	if (!m->attempts)
		return -ENOMEM;
	size_t first = first_with_error(t);
	for (size_t i = 0; i < t->n_attempts; i++) {
		struct attempt_view *v = attempt_view(&t->attempts[i], i >= first && t->attempts[i].error.len);
		if (!v)
			return -ENOMEM;
		m->attempts[m->n_attempts++] = &v->a;
	}
	return 0;
}

static int add_bytes(const struct store_task *t, bool full, const Reins__V1__Task *m, struct buf *b)
{
	int rc = pb_pack(m, b);
	if (rc || !t->spec)
		return rc;
	if (full)
		return wire_put_len(b, TASK_SPEC_FIELD, t->spec->data, t->spec->len);
	struct blob *spec = basic_spec(t->spec);
	if (!spec)
		return -ENOMEM;
	rc = wire_put_len(b, TASK_SPEC_FIELD, spec->data, spec->len);
	blob_unref(spec);
	return rc;
}

/* The attempt's own, or what a person would ask for next. */
static int add_error(const struct store_task *t, Reins__V1__Task *m, char **ret_text)
{
	bool lost = t->state == STORE_FAILED && t->outcome == STORE_WORKER_LOST;
	bool reason = t->state == STORE_CANCELLED && !t->error.len && t->cause && strncmp(t->cause, "cancelled: ", 11) == 0;
	if (!t->error.len && !lost && !reason)
		return 0;
	char *text = malloc(ERROR_TEXT_MAX + 1);
	if (!text)
		return -ENOMEM;
	*ret_text = m->error = text;
	if (reason) {
		utf8_make_valid(t->cause, strlen(t->cause), text, ERROR_TEXT_MAX + 1, NULL);
		return 0;
	}
	size_t n = 0;
	if (lost)
		n = (size_t)snprintf(text, ERROR_TEXT_MAX, "lost with its worker %d times, and is not tried again%s", (int)t->losses,
				     t->error.len ? ": " : "");
	if (!lost)
		m->error_raw = text_and_raw(t->error, text);
	else
		utf8_make_valid(t->error.data, t->error.len, text + n, ERROR_TEXT_MAX + 1 - n, NULL);
	return 0;
}

int view_task(const struct store_task *t, bool full, const char *pending_reason, struct buf *b)
{
	char id[UUID_TEXT_LEN + 1], trace[TRACEPARENT_LEN + 1] = "";
	_cleanup_free_ char *error = NULL;
	struct times times = { .n = 0 };
	Reins__V1__Task m;
	reins__v1__task__init(&m);

	uuid_format(&t->core.id, id);
	m.id = id;
	m.state = state_of(t->state);
	if (t->state == STORE_PENDING && pending_reason)
		m.pending_reason = (char *)(uintptr_t)pending_reason;
	m.attempt = t->core.attempt;
	m.worker_id = t->worker ? t->worker : m.worker_id;
	m.owner = t->owner ? t->owner : m.owner;
	if (t->spec)
		trace_find(t->spec, trace);
	if (trace[0]) {
		trace[TRACEPARENT_ID_AT + TRACEPARENT_ID_LEN] = '\0';
		m.trace_id = trace + TRACEPARENT_ID_AT;
	}
	m.created_at = time_or_null(&times, t->created_wall_us);
	m.run_at = time_or_null(&times, t->run_at_wall_us);
	m.started_at = time_or_null(&times, t->started_wall_us);
	m.finished_at = time_or_null(&times, t->finished_wall_us);
	m.cancel_requested_at = time_or_null(&times, t->cancel_requested_wall_us);
	if (t->has_exit_code) {
		m.has_exit_code_case = REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE;
		m.exit_code = t->exit_code;
	}
	m.signal = t->has_signal ? t->signal : 0;
	if (add_error(t, &m, &error))
		return -ENOMEM;
	m.result_bytes = t->result_too_large ? t->result_too_large : t->result_len;
	m.result_dropped = t->result_too_large > 0;
	int rc = 0;
	if (full) {
		m.result = (ProtobufCBinaryData){ t->result.len, (uint8_t *)(uintptr_t)t->result.data };
		if (t->n_attempts)
			rc = add_attempts(t, &m);
	}
	if (rc == 0)
		rc = add_bytes(t, full, &m, b);
	for (size_t i = 0; i < m.n_attempts; i++)
		attempt_view_free(m.attempts[i]);
	free(m.attempts);
	return rc;
}

struct newest {
	Reins__V1__MetricPoint *points[VIEW_METRICS_POINTS];
	Reins__V1__MetricPoint__ValuesEntry *values[RPC_METRIC_VALUES_MAX];
	size_t n_points, n_values;
};

static void merge(struct newest *all, const Reins__V1__MetricPoint *p)
{
	for (size_t i = 0; i < p->n_values && all->n_values < RPC_METRIC_VALUES_MAX; i++) {
		size_t k = 0;
		while (k < all->n_values && strcmp(all->values[k]->key, p->values[i]->key) != 0)
			k++;
		if (k == all->n_values)
			all->values[all->n_values++] = p->values[i];
	}
}

static int by_key(const void *a, const void *b)
{
	const Reins__V1__MetricPoint__ValuesEntry *const *x = a, *const *y = b;
	return strcmp((*x)->key, (*y)->key);
}

int view_metrics(const struct store_metric *items, size_t n, struct buf *b)
{
	struct newest all = { .n_points = 0 };
	struct buf one;
	int rc = 0;
	for (size_t i = 0; i < n && all.n_points < VIEW_METRICS_POINTS; i++) {
		struct refusal r;
		Reins__V1__MetricPoint *p =
			pb_unpack(&reins__v1__metric_point__descriptor, items[i].point.data, items[i].point.len, NULL, &r);
		if (!p)
			continue;
		all.points[all.n_points++] = p;
		merge(&all, p);
	}
	if (all.n_points) {
		Reins__V1__MetricPoint m = *all.points[0];
		qsort(all.values, all.n_values, sizeof(*all.values), by_key);
		m.values = all.values;
		m.n_values = all.n_values;
		buf_init(&one, VIEW_METRICS_BYTES);
		rc = pb_pack(&m, &one);
		if (rc == 0)
			rc = wire_put_len(b, TASK_METRICS_FIELD, buf_head(&one), buf_len(&one));
		buf_done(&one);
	}
	for (size_t i = 0; i < all.n_points; i++)
		pb_free(all.points[i]);
	return rc;
}

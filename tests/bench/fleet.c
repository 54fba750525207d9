/* Owns the workers, what each holds (given and not yet acknowledged), and the scratch in which messages are built: a
 * worker packs at most MESSAGE_MAX attempts into one message. */
#include "tests/bench/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/map.h"
#include "common/base/rng.h"
#include "common/pb/pb.h"
#include "reins/v1/worker_service.pb-c.h"
#include "tests/bench/scan.h"

#define MESSAGE_MAX 1000
#define OPENING_MAX 200 /* sessions that are being opened at a time: a handshake costs the master a millisecond */
#define HEARTBEAT_DEFAULT_NS (2 * NS_PER_S)

/* Fields of MasterMessage, Welcome, Dispatch and OutcomeAck. */
enum { MASTER_WELCOME = 1, MASTER_HEARTBEAT_ACK = 2, MASTER_DISPATCH = 3, MASTER_STOP = 4, MASTER_OUTCOME_ACK = 5 };
enum { WELCOME_HEARTBEAT = 2, WELCOME_LAST = 9 };
enum { DISPATCH_NUMBER = 1, DISPATCH_TASKS = 2 };
enum { ACK_VERDICTS = 1, VERDICT_VERDICT = 3 };

struct held_key {
	struct uuid task;
	int32_t attempt;
};

/* An attempt from its Dispatch to its OutcomeAck. */
struct held {
	struct list node; /* of the worker: fresh, then told; or spare */
	struct map_node by_key;
	struct held_key key;
	char id[UUID_TEXT_LEN + 1];
};

struct worker {
	struct fleet *fleet;
	struct rig_link link;
	struct grpc_client_call *call;
	char id[64];
	char instance[33];
	bool welcomed, blocked;
	struct loop_dirty dirty;
	struct loop_timer beat;
	int64_t beat_ns, beat_number, last_dispatch;
	struct map by_key;
	struct list fresh, told;
};

struct fleet {
	struct rig *rig;
	struct worker *workers;
	size_t n_workers, slots, opened;
	struct list spare;
	void (*on_receipt)(void *arg, struct idset_entry *e);
	void *on_receipt_arg;
	struct fleet_sums sums;
	Reins__V1__AttemptRef refs[MESSAGE_MAX], *ref_at[MESSAGE_MAX];
	Reins__V1__Outcome outcomes[MESSAGE_MAX], *outcome_at[MESSAGE_MAX];
	Google__Protobuf__Timestamp now;
};

static size_t pack(const void *msg, uint8_t *out)
{
	return protobuf_c_message_pack(msg, out);
}

/* -EAGAIN, or 0: taken, or the stream is over. */
static int send_message(struct worker *w, const Reins__V1__WorkerMessage *m)
{
	if (!w->call)
		return 0;
	int rc = grpc_client_send_packed(w->call, protobuf_c_message_get_packed_size(&m->base), pack, m);
	if (rc && rc != -EAGAIN)
		rig_fail(w->fleet->rig, "%s: a message could not be sent: %s", w->id, strerror(-rc));
	return rc == -EAGAIN ? rc : 0;
}

/* ---- accepted and outcome ---- */

static size_t fill_refs(struct fleet *f, const struct list *l)
{
	size_t n = 0;
	list_each(it, l) {
		if (n == MESSAGE_MAX)
			break;
		struct held *h = container_of(it, struct held, node);
		f->refs[n].task_id = h->id;
		f->refs[n].attempt = h->key.attempt;
		n++;
	}
	return n;
}

static int send_accepted(struct worker *w, size_t n)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Accepted accepted = REINS__V1__ACCEPTED__INIT;
	accepted.attempts = w->fleet->ref_at;
	accepted.n_attempts = n;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_ACCEPTED;
	m.accepted = &accepted;
	return send_message(w, &m);
}

static int send_outcomes(struct worker *w, size_t n)
{
	struct fleet *f = w->fleet;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__OutcomeReport report = REINS__V1__OUTCOME_REPORT__INIT;
	pb_timestamp_set(&f->now, clock_wall_us());
	for (size_t i = 0; i < n; i++) {
		f->outcomes[i].task_id = f->refs[i].task_id;
		f->outcomes[i].attempt = f->refs[i].attempt;
	}
	report.outcomes = f->outcome_at;
	report.n_outcomes = n;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_OUTCOME;
	m.outcome = &report;
	return send_message(w, &m);
}

/* What came in this turn is accepted and over.  A worker whose stream takes no more says the rest later. */
static void on_flush(struct loop_dirty *d)
{
	struct worker *w = container_of(d, struct worker, dirty);
	while (!w->blocked && !list_empty(&w->fresh)) {
		size_t n = fill_refs(w->fleet, &w->fresh);
		/* Accepted may be said twice; what matters is that no outcome is lost. */
		if (send_accepted(w, n) || send_outcomes(w, n)) {
			w->blocked = true;
			return;
		}
		for (size_t i = 0; i < n; i++)
			list_push_back(&w->told, list_pop_front(&w->fresh));
	}
}

static void on_writable(void *arg)
{
	struct worker *w = arg;
	w->blocked = false;
	loop_mark(w->fleet->rig->loop, &w->dirty);
}

/* ---- heartbeats ---- */

static void send_heartbeat(struct worker *w)
{
	struct fleet *f = w->fleet;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Heartbeat beat = REINS__V1__HEARTBEAT__INIT;
	Reins__V1__AttemptRef *refs = xcalloc(w->by_key.len + 1, sizeof(*refs));
	Reins__V1__AttemptRef **at = xcalloc(w->by_key.len + 1, sizeof(*at));
	size_t n = 0;
	for (struct map_node *it = map_first(&w->by_key); it; it = map_next(&w->by_key, it), n++) {
		struct held *h = container_of(it, struct held, by_key);
		reins__v1__attempt_ref__init(&refs[n]);
		refs[n].task_id = h->id;
		refs[n].attempt = h->key.attempt;
		at[n] = &refs[n];
	}
	beat.number = ++w->beat_number;
	beat.last_dispatch = w->last_dispatch;
	beat.attempts = at;
	beat.n_attempts = n;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HEARTBEAT;
	m.heartbeat = &beat;
	if (send_message(w, &m) == 0)
		f->sums.heartbeats++;
	else
		w->beat_number--;
	free(refs);
	free(at);
}

static void on_beat(struct loop_timer *t)
{
	struct worker *w = container_of(t, struct worker, beat);
	send_heartbeat(w);
	loop_timer_set(t, clock_mono_ns() + w->beat_ns);
}

/* ---- messages of the master ---- */

static void open_next(struct fleet *f);

static void on_welcome(struct worker *w, const uint8_t *data, size_t len)
{
	struct scan s = scan_of(data, len);
	struct scan_field f, part;
	while (scan_next(&s, &f)) {
		if (f.number == WELCOME_HEARTBEAT && f.data) {
			struct scan d = scan_of(f.data, f.len);
			int64_t ns = 0;
			while (scan_next(&d, &part))
				ns += part.number == 1 ? (int64_t)part.value * NS_PER_S : (int64_t)part.value;
			w->beat_ns = ns > 0 ? ns : HEARTBEAT_DEFAULT_NS;
		}
		if (f.number == WELCOME_LAST && f.value && !w->welcomed) {
			w->welcomed = true;
			open_next(w->fleet);
			send_heartbeat(w);
			/* Workers that began together do not beat together. */
			loop_timer_set(&w->beat, clock_mono_ns() + (int64_t)(rng_process_next() % (uint64_t)w->beat_ns));
		}
	}
}

static void take(struct worker *w, const uint8_t *data, size_t len, int64_t now)
{
	struct fleet *f = w->fleet;
	struct list *spare = list_pop_front(&f->spare);
	struct held *h = spare ? container_of(spare, struct held, node) : xcalloc(1, sizeof(*h));
	memset(&h->key, 0, sizeof(h->key));
	if (scan_attempt(data, len, &h->key.task, &h->key.attempt)) {
		rig_fail(f->rig, "%s: a dispatched task without an id", w->id);
		list_push_back(&f->spare, &h->node);
		return;
	}
	if (map_get(&w->by_key, &h->key, sizeof(h->key))) {
		rig_fail(f->rig, "%s: the same attempt was dispatched twice", w->id);
		list_push_back(&f->spare, &h->node);
		return;
	}
	uuid_format(&h->key.task, h->id);
	map_put(&w->by_key, &h->by_key, &h->key, sizeof(h->key));
	list_push_back(&w->fresh, &h->node);
	f->sums.dispatched++;
	if (!f->sums.first_dispatch_mono_ns)
		f->sums.first_dispatch_mono_ns = now;
	if (f->rig->track) {
		struct idset_entry *e = idset_get(&f->rig->ids, &h->key.task);
		e->dispatches++;
		e->received_mono_ns = now;
		rig_note_receipt(f->rig, e);
		if (f->on_receipt)
			f->on_receipt(f->on_receipt_arg, e);
	}
}

static void on_dispatch(struct worker *w, const uint8_t *data, size_t len)
{
	int64_t now = clock_mono_ns();
	struct scan s = scan_of(data, len);
	struct scan_field f;
	while (scan_next(&s, &f)) {
		if (f.number == DISPATCH_NUMBER && !f.data)
			w->last_dispatch = (int64_t)f.value;
		if (f.number == DISPATCH_TASKS && f.data)
			take(w, f.data, f.len, now);
	}
	loop_mark(w->fleet->rig->loop, &w->dirty);
}

static void on_verdict(struct worker *w, const uint8_t *data, size_t len)
{
	struct fleet *f = w->fleet;
	struct held_key key;
	memset(&key, 0, sizeof(key));
	if (scan_attempt(data, len, &key.task, &key.attempt)) {
		rig_fail(f->rig, "%s: a verdict without an id", w->id);
		return;
	}
	struct scan s = scan_of(data, len);
	struct scan_field field;
	uint64_t verdict = 0;
	while (scan_next(&s, &field))
		if (field.number == VERDICT_VERDICT)
			verdict = field.value;
	struct map_node *n = map_get(&w->by_key, &key, sizeof(key));
	if (!n) {
		rig_fail(f->rig, "%s: a verdict about an attempt that it does not hold", w->id);
		return;
	}
	struct held *h = container_of(n, struct held, by_key);
	map_remove(&w->by_key, n);
	list_remove(&h->node);
	list_push_back(&f->spare, &h->node);
	f->sums.recorded += verdict == REINS__V1__OUTCOME_VERDICT__VERDICT__RECORDED;
	f->sums.duplicate += verdict == REINS__V1__OUTCOME_VERDICT__VERDICT__DUPLICATE;
	f->sums.fenced += verdict == REINS__V1__OUTCOME_VERDICT__VERDICT__FENCED;
	if (f->rig->track && verdict == REINS__V1__OUTCOME_VERDICT__VERDICT__RECORDED)
		idset_get(&f->rig->ids, &key.task)->recorded++;
}

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct worker *w = arg;
	struct scan s = scan_of(data, len), verdicts;
	struct scan_field m, v;
	w->fleet->sums.messages_in++;
	while (scan_next(&s, &m)) {
		if (!m.data)
			continue;
		switch (m.number) {
		case MASTER_WELCOME:
			on_welcome(w, m.data, m.len);
			break;
		case MASTER_HEARTBEAT_ACK:
			w->fleet->sums.acks++;
			break;
		case MASTER_DISPATCH:
			on_dispatch(w, m.data, m.len);
			break;
		case MASTER_OUTCOME_ACK:
			verdicts = scan_of(m.data, m.len);
			while (scan_next(&verdicts, &v))
				if (v.number == ACK_VERDICTS && v.data)
					on_verdict(w, v.data, v.len);
			w->fleet->sums.last_ack_mono_ns = clock_mono_ns();
			break;
		case MASTER_STOP:
			rig_fail(w->fleet->rig, "%s: the master stopped an attempt", w->id);
			break;
		default:
			break;
		}
	}
	if (s.bad)
		rig_fail(w->fleet->rig, "%s: a message that can't be read", w->id);
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct worker *w = arg;
	w->call = NULL;
	loop_timer_stop(&w->beat);
	rig_fail(w->fleet->rig, "%s: the session ended %s: %s", w->id, status_code_name(status->code), status->message);
}

/* ---- the whole ---- */

static void say_hello(struct worker *w)
{
	static const struct grpc_call_events events = { .on_message = on_message, .on_writable = on_writable, .on_status = on_status };
	struct fleet *f = w->fleet;
	int rc = grpc_call_start(w->link.channel, "/reins.v1.WorkerService/Session", GRPC_CALL_STREAM, GRPC_NO_DEADLINE, &events,
				 w, &w->call);
	if (rc) {
		rig_fail(f->rig, "%s: no session: %s", w->id, strerror(-rc));
		return;
	}
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Hello hello = REINS__V1__HELLO__INIT;
	char *handlers[] = { f->rig->conf.handler };
	hello.protocol = 1;
	hello.worker_id = w->id;
	hello.instance = w->instance;
	hello.last = true;
	hello.slots = (int32_t)f->slots;
	hello.handlers = handlers;
	hello.n_handlers = 1;
	hello.tasks_die_with_process = true;
	hello.version = (char *)(uintptr_t) "reins-load/" REINS_VERSION;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HELLO;
	m.hello = &hello;
	(void)send_message(w, &m);
}

struct fleet *fleet_new(struct rig *r, const char *name, size_t workers, size_t slots)
{
	struct fleet *f = xcalloc(1, sizeof(*f));
	f->rig = r;
	f->n_workers = workers;
	f->slots = slots;
	f->workers = xcalloc(workers, sizeof(*f->workers));
	list_init(&f->spare);
	google__protobuf__timestamp__init(&f->now);
	for (size_t i = 0; i < MESSAGE_MAX; i++) {
		reins__v1__attempt_ref__init(&f->refs[i]);
		f->ref_at[i] = &f->refs[i];
		reins__v1__outcome__init(&f->outcomes[i]);
		f->outcomes[i].kind = REINS__V1__OUTCOME__KIND__SUCCEEDED;
		f->outcomes[i].started_at = f->outcomes[i].finished_at = &f->now;
		f->outcome_at[i] = &f->outcomes[i];
	}
	for (size_t i = 0; i < workers; i++) {
		struct worker *w = &f->workers[i];
		w->fleet = f;
		w->beat_ns = HEARTBEAT_DEFAULT_NS;
		snprintf(w->id, sizeof(w->id), "%s-%zu", name, i + 1);
		snprintf(w->instance, sizeof(w->instance), "%016llx%016llx", (unsigned long long)rng_process_next(),
			 (unsigned long long)rng_process_next());
		loop_dirty_init(&w->dirty, LOOP_WORK, on_flush);
		loop_timer_init(&w->beat, r->loop, on_beat);
		map_init(&w->by_key);
		list_init(&w->fresh);
		list_init(&w->told);
	}
	return f;
}

static void open_next(struct fleet *f)
{
	if (f->opened == f->n_workers || f->rig->failure[0])
		return;
	struct worker *w = &f->workers[f->opened++];
	rig_link_open(f->rig, &w->link, w->id);
	if (!f->rig->failure[0])
		say_hello(w);
}

void fleet_start(struct fleet *f)
{
	for (size_t i = 0; i < OPENING_MAX; i++)
		open_next(f);
}

bool fleet_ready(const struct fleet *f)
{
	for (size_t i = 0; i < f->n_workers; i++)
		if (!f->workers[i].welcomed)
			return false;
	return true;
}

const struct fleet_sums *fleet_sums(const struct fleet *f)
{
	return &f->sums;
}

void fleet_on_receipt(struct fleet *f, void (*on_receipt)(void *arg, struct idset_entry *e), void *arg)
{
	f->on_receipt = on_receipt;
	f->on_receipt_arg = arg;
}

static void free_held(struct list *l)
{
	struct list *n;
	while ((n = list_pop_front(l)))
		free(container_of(n, struct held, node));
}

void fleet_free(struct fleet *f)
{
	if (!f)
		return;
	bool was_well = !f->rig->failure[0];
	for (size_t i = 0; i < f->n_workers; i++)
		rig_link_close(&f->workers[i].link);
	loop_turn(f->rig->loop, false); /* the sessions are told */
	if (was_well)
		f->rig->failure[0] = '\0';
	for (size_t i = 0; i < f->n_workers; i++) {
		struct worker *w = &f->workers[i];
		loop_timer_stop(&w->beat);
		loop_unmark(&w->dirty);
		free_held(&w->fresh);
		free_held(&w->told);
		map_done(&w->by_key);
	}
	free_held(&f->spare);
	free(f->workers);
	free(f);
}

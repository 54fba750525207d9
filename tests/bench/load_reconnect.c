/* Mode `reconnect`: sessions that hold what they are given, lose their master and come again as reins-worker does: with its
 * backoff, its list, and its spread of heartbeats.  Who starts it kills the master, and starts another.
 *
 * Each worker: WAITING (for its next try) -> CONNECTING -> HELLO -> UP, and back to WAITING from anywhere. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/worker_service.pb-c.h"
#include "tests/bench/rig.h"
#include "tests/bench/scan.h"
#include "worker/backoff.h"
#include "worker/lease.h"

#define HELD_MAX 16
#define ANSWER_NS (2 * NS_PER_S)     /* connect and the first answer together */
#define BUCKET_NS (100 * NS_PER_MS)
#define BUCKETS_MAX 4096
#define PATIENCE_NS (120 * NS_PER_S) /* for whoever kills and starts the master */

enum { MASTER_WELCOME = 1, MASTER_DISPATCH = 3, MASTER_STOP = 4, DISPATCH_NUMBER = 1, DISPATCH_TASKS = 2 };
enum { WELCOME_SESSION = 1, WELCOME_HEARTBEAT = 2, WELCOME_LEASE = 3, WELCOME_ADOPTED = 8, WELCOME_LAST = 9 };

struct fleet;
struct worker {
	struct fleet *fleet;
	struct grpc_channel *channel;
	struct grpc_client_call *call;
	char id[64], instance[33];
	bool up;
	int64_t session, hello_number, beats, last_dispatch, interval_ns;
	size_t adopted;
	struct { struct uuid task; int32_t attempt; char id[UUID_TEXT_LEN + 1]; } held[HELD_MAX];
	size_t n_held;
	struct backoff backoff;
	struct rng rng;
	struct loop_timer retry, limit, beat;
};

struct fleet {
	struct rig *rig;
	struct worker *workers;
	size_t n, up, lost, held;
	bool again;            /* all have lost their session once: what is counted from here */
	int64_t tries, adopted, stops, dispatched, refused_mono_ns, welcome_wall_us;
	int64_t beats_from_mono_ns;
	uint32_t beats[BUCKETS_MAX];
};

static void on_retry(struct loop_timer *t);

static void drop(struct worker *w)
{
	if (w->up) {
		w->fleet->up--;
		w->fleet->lost++;
	}
	w->up = false;
	w->call = NULL;
	loop_timer_stop(&w->beat);
	loop_timer_stop(&w->limit);
	grpc_channel_free(w->channel);
	w->channel = NULL;
	if (!loop_timer_active(&w->retry))
		loop_timer_set(&w->retry, clock_mono_ns() + backoff_next(&w->backoff));
}

static void say(struct worker *w, const Reins__V1__WorkerMessage *m)
{
	if (w->call && grpc_client_send_packed(w->call, protobuf_c_message_get_packed_size(&m->base),
					       (size_t (*)(const void *, uint8_t *))protobuf_c_message_pack, m))
		rig_fail(w->fleet->rig, "%s: a message could not be sent", w->id);
}

static void beat(struct worker *w)
{
	struct fleet *f = w->fleet;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Heartbeat h = REINS__V1__HEARTBEAT__INIT;
	Reins__V1__AttemptRef refs[HELD_MAX], *at[HELD_MAX];
	int64_t now = clock_mono_ns();
	for (size_t i = 0; i < w->n_held; i++) {
		reins__v1__attempt_ref__init(&refs[i]);
		refs[i].task_id = w->held[i].id;
		refs[i].attempt = w->held[i].attempt;
		at[i] = &refs[i];
	}
	h.number = ++w->beats;
	h.last_dispatch = w->last_dispatch;
	h.attempts = at;
	h.n_attempts = w->n_held;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HEARTBEAT;
	m.heartbeat = &h;
	say(w, &m);
	int64_t bucket = (now - f->beats_from_mono_ns) / BUCKET_NS;
	if (f->beats_from_mono_ns && now >= f->beats_from_mono_ns && bucket < BUCKETS_MAX)
		f->beats[bucket]++;
	loop_timer_set(&w->beat, now + (w->beats == 1 ? lease_second_beat_ns(&w->rng, w->interval_ns) : w->interval_ns));
}

static void on_beat(struct loop_timer *t)
{
	beat(container_of(t, struct worker, beat));
}

static int64_t duration(const struct scan_field *f)
{
	struct scan s = scan_of(f->data, f->len);
	struct scan_field part;
	int64_t ns = 0;
	while (scan_next(&s, &part))
		ns += part.number == 1 ? (int64_t)part.value * NS_PER_S : (int64_t)part.value;
	return ns;
}

static void on_welcome(struct worker *w, const uint8_t *data, size_t len)
{
	struct fleet *f = w->fleet;
	struct scan s = scan_of(data, len);
	struct scan_field x;
	while (scan_next(&s, &x)) {
		if (x.number == WELCOME_SESSION)
			w->session = (int64_t)x.value;
		else if (x.number == WELCOME_HEARTBEAT && x.data)
			w->interval_ns = duration(&x);
		else if (x.number == WELCOME_LEASE && x.data)
			backoff_set_max(&w->backoff, duration(&x) / 10);
		else if (x.number == WELCOME_ADOPTED)
			f->adopted++;
		else if (x.number == WELCOME_LAST && x.value && !w->up) {
			w->up = true;
			w->beats = 0;
			f->up++;
			f->welcome_wall_us = clock_wall_us();
			loop_timer_stop(&w->limit);
			backoff_reset(&w->backoff);
			beat(w);
		}
	}
}

static void on_dispatch(struct worker *w, const uint8_t *data, size_t len)
{
	struct scan s = scan_of(data, len);
	struct scan_field x;
	Reins__V1__AttemptRef refs[HELD_MAX], *at[HELD_MAX];
	Reins__V1__Accepted accepted = REINS__V1__ACCEPTED__INIT;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	accepted.attempts = at;
	while (scan_next(&s, &x)) {
		if (x.number == DISPATCH_NUMBER && !x.data)
			w->last_dispatch = (int64_t)x.value;
		if (x.number != DISPATCH_TASKS || !x.data || w->n_held == HELD_MAX)
			continue;
		size_t i = w->n_held;
		if (scan_attempt(x.data, x.len, &w->held[i].task, &w->held[i].attempt))
			continue;
		uuid_format(&w->held[i].task, w->held[i].id);
		reins__v1__attempt_ref__init(&refs[accepted.n_attempts]);
		refs[accepted.n_attempts].task_id = w->held[i].id;
		refs[accepted.n_attempts].attempt = w->held[i].attempt;
		at[accepted.n_attempts] = &refs[accepted.n_attempts];
		accepted.n_attempts++;
		w->n_held++;
		w->fleet->held++;
		w->fleet->dispatched++;
	}
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_ACCEPTED;
	m.accepted = &accepted;
	say(w, &m);
}

static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct worker *w = arg;
	struct scan s = scan_of(data, len);
	struct scan_field m;
	while (scan_next(&s, &m)) {
		if (m.number == MASTER_WELCOME)
			on_welcome(w, m.data, m.len);
		else if (m.number == MASTER_DISPATCH)
			on_dispatch(w, m.data, m.len);
		else if (m.number == MASTER_STOP)
			w->fleet->stops++;
	}
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct worker *w = arg;
	w->call = NULL;
	if (w->channel && !loop_timer_active(&w->retry)) /* the channel is given up in the next turn */
		loop_timer_set(&w->limit, 0);
}

static void hello(struct worker *w)
{
	static const struct grpc_call_events events = { .on_message = on_message, .on_status = on_status };
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Hello h = REINS__V1__HELLO__INIT;
	Reins__V1__HeldAttempt held[HELD_MAX], *at[HELD_MAX];
	char *handlers[] = { w->fleet->rig->conf.handler };
	if (grpc_call_start(w->channel, "/reins.v1.WorkerService/Session", GRPC_CALL_STREAM, GRPC_NO_DEADLINE, &events, w, &w->call))
		return;
	for (size_t i = 0; i < w->n_held; i++) {
		reins__v1__held_attempt__init(&held[i]);
		held[i].task_id = w->held[i].id;
		held[i].attempt = w->held[i].attempt;
		at[i] = &held[i];
	}
	h.protocol = 1;
	h.worker_id = w->id;
	h.instance = w->instance;
	h.resumes_session = w->session;
	h.hello_number = ++w->hello_number;
	h.attempts = at;
	h.n_attempts = w->n_held;
	h.last = true;
	h.slots = (int32_t)w->fleet->rig->conf.slots;
	h.handlers = handlers;
	h.n_handlers = 1;
	h.version = (char *)(uintptr_t) "reins-load/" REINS_VERSION;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HELLO;
	m.hello = &h;
	w->last_dispatch = 0;
	say(w, &m);
}

static void on_ready(void *arg)
{
	hello(arg);
}

static void on_closed(void *arg, const char *text)
{
	struct worker *w = arg;
	if (!w->up)
		w->fleet->refused_mono_ns = clock_mono_ns();
	drop(w);
}

static void on_limit(struct loop_timer *t)
{
	drop(container_of(t, struct worker, limit));
}

static void on_retry(struct loop_timer *t)
{
	struct worker *w = container_of(t, struct worker, retry);
	struct rig *r = w->fleet->rig;
	struct grpc_channel_config cfg = { .authority = r->authority, .user_agent = "reins-load/" REINS_VERSION, .on_ready = on_ready,
					   .on_closed = on_closed, .arg = w };
	int64_t until = clock_mono_ns() + ANSWER_NS;
	grpc_limits_default(&cfg.limits);
	w->fleet->tries++;
	loop_timer_set(&w->limit, until);
	if (grpc_channel_connect(r->loop, (const struct sockaddr *)&r->addr.addr, r->addr.len, NULL, NULL, until, &cfg, &w->channel))
		rig_fail(r, "%s: no connection can be begun", w->id);
}

static bool all_up(void *arg) { return ((struct fleet *)arg)->up == ((struct fleet *)arg)->n; }
static bool all_lost(void *arg) { return ((struct fleet *)arg)->lost >= ((struct fleet *)arg)->n; }

static bool all_held(void *arg)
{
	struct fleet *f = arg;
	return f->held == f->n * (size_t)f->rig->conf.slots;
}

static void run(struct fleet *f)
{
	struct rig *r = f->rig;
	if (rig_run(r, PATIENCE_NS, all_up, f) || rig_run(r, PATIENCE_NS, all_held, f)) {
		rig_fail(r, "%zu of %zu sessions, %zu attempts are held", f->up, f->n, f->held);
		return;
	}
	printf("holding\n");
	fflush(stdout);
	if (rig_run(r, PATIENCE_NS, all_lost, f)) {
		rig_fail(r, "the master was not killed: %zu sessions were lost", f->lost);
		return;
	}
	f->adopted = f->tries = 0;
	if (rig_run(r, PATIENCE_NS, all_up, f)) {
		rig_fail(r, "%zu of %zu sessions are back", f->up, f->n);
		return;
	}
	/* The first beats come with the sessions; from here on they are to be spread. */
	f->beats_from_mono_ns = clock_mono_ns() + f->workers[0].interval_ns;
	rig_run(r, f->workers[0].interval_ns + r->conf.duration_ns, NULL, NULL);
	size_t n = (size_t)(r->conf.duration_ns / BUCKET_NS);
	uint64_t sum = 0, most = 0;
	for (size_t i = 0; i < n && i < BUCKETS_MAX; i++) {
		sum += f->beats[i];
		most = most > f->beats[i] ? most : f->beats[i];
	}
	/* Of the wall clock what its digits hold: whoever started the master knows the rest. */
	report_number(&r->report, "last_welcome", (double)(f->welcome_wall_us % 1000000000) / 1e6, "s");
	report_number(&r->report, "connects", (double)f->tries, "tries");
	report_number(&r->report, "adopted", (double)f->adopted, "attempts");
	report_number(&r->report, "beats_per_s", (double)sum / (double)r->conf.duration_ns * 1e9, "beats/s");
	report_number(&r->report, "beats_busiest_100ms", (double)most, "beats");
	report_number(&r->report, "interval", (double)f->workers[0].interval_ns / 1e9, "s");
	report_check(&r->report, f->adopted == (int64_t)f->held, "%lld attempts were adopted, of %zu", (long long)f->adopted, f->held);
	report_check(&r->report, f->stops == 0, "%lld stops came", (long long)f->stops);
	report_check(&r->report, f->dispatched == (int64_t)f->held, "%lld dispatches", (long long)f->dispatched);
	report_check(&r->report, f->lost == f->n, "%zu sessions were lost", f->lost);
}

int load_reconnect(struct rig *r)
{
	struct fleet f = { .rig = r, .n = (size_t)r->conf.workers };
	if (r->conf.slots > HELD_MAX) {
		rig_fail(r, "at most %d slots", HELD_MAX);
		return 0;
	}
	r->track = false;
	f.workers = xcalloc(f.n, sizeof(*f.workers));
	for (size_t i = 0; i < f.n; i++) {
		struct worker *w = &f.workers[i];
		w->fleet = &f;
		snprintf(w->id, sizeof(w->id), "again-%zu", i + 1);
		snprintf(w->instance, sizeof(w->instance), "%016llx%016llx", (unsigned long long)rng_process_next(),
			 (unsigned long long)rng_process_next());
		w->hello_number = clock_wall_us();
		backoff_init(&w->backoff, 100 * NS_PER_MS, NS_PER_S, rng_process_next());
		rng_seed(&w->rng, rng_process_next());
		loop_timer_init(&w->retry, r->loop, on_retry);
		loop_timer_init(&w->limit, r->loop, on_limit);
		loop_timer_init(&w->beat, r->loop, on_beat);
		loop_timer_set(&w->retry, clock_mono_ns() + backoff_next(&w->backoff));
	}
	run(&f);
	for (size_t i = 0; i < f.n; i++) {
		struct worker *w = &f.workers[i];
		struct grpc_channel *ch = w->channel;
		w->channel = NULL;
		grpc_channel_free(ch);
		loop_timer_stop(&w->retry);
		loop_timer_stop(&w->limit);
		loop_timer_stop(&w->beat);
	}
	loop_turn(r->loop, false);
	for (size_t i = 0; i < f.n; i++)
		loop_timer_stop(&f.workers[i].limit);
	free(f.workers);
	return 0;
}

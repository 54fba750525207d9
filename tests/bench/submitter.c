/* Owns the connections, the calls on the way and the timer of the open loop (a timerfd: the loop's own timers are
 * exact to a millisecond only). */
#include "tests/bench/submitter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/task_service.pb-c.h"
#include "tests/bench/scan.h"

#define TICK_NS (100 * NS_PER_US)

struct shot {
	struct list node;
	struct submitter *s;
	struct grpc_client_call *call;
	int64_t from_mono_ns;
};

struct submitter {
	struct rig *rig;
	struct submitter_config cfg;
	struct rig_link *links;
	size_t next_link;
	uint8_t *request;
	size_t request_len;
	struct list spare;
	struct shot *shots;
	size_t n_shots;
	size_t on_the_way; /* calls */
	bool started, sending;
	int64_t until_mono_ns;
	/* open loop */
	int timer_fd;
	struct loop_poll *timer;
	int64_t calls_due, interval_ns;
	struct submitter_sums sums;
};

uint8_t *submitter_request(const struct rig *r, size_t *ret_len)
{
	Reins__V1__TaskSpec spec = REINS__V1__TASK_SPEC__INIT;
	Reins__V1__SubmitTaskRequest req = REINS__V1__SUBMIT_TASK_REQUEST__INIT;
	spec.queue = r->conf.queue;
	spec.handler = r->conf.handler;
	spec.payload.len = (size_t)r->conf.payload_bytes;
	spec.payload.data = xcalloc(1, spec.payload.len + 1);
	memset(spec.payload.data, 'x', spec.payload.len);
	req.spec = &spec;
	*ret_len = reins__v1__submit_task_request__get_packed_size(&req);
	uint8_t *data = xcalloc(1, *ret_len + 1);
	reins__v1__submit_task_request__pack(&req, data);
	free(spec.payload.data);
	return data;
}

/* SubmitTasksRequest { repeated SubmitTaskRequest requests = 1 }: the same request again and again. */
static void make_request(struct submitter *s)
{
	size_t one_len;
	uint8_t *one = submitter_request(s->rig, &one_len);
	if (s->cfg.batch == 1) {
		s->request = one;
		s->request_len = one_len;
		return;
	}
	struct buf b;
	buf_init(&b, 64 * 1024 * 1024);
	for (size_t i = 0; i < s->cfg.batch; i++) {
		uint8_t head[8];
		size_t n = 0;
		head[n++] = 1 << 3 | 2;
		for (size_t v = one_len; ; v >>= 7) {
			head[n++] = (uint8_t)(v & 0x7f) | (v > 0x7f ? 0x80 : 0);
			if (v <= 0x7f)
				break;
		}
		if (buf_add(&b, head, n) || buf_add(&b, one, one_len))
			rig_fail(s->rig, "a batch of %zu tasks of %zu bytes is too large", s->cfg.batch, one_len);
	}
	free(one);
	s->request_len = buf_len(&b);
	s->request = xcalloc(1, s->request_len + 1);
	memcpy(s->request, buf_head(&b), s->request_len);
	buf_done(&b);
}

static void fire(struct submitter *s, int64_t from_mono_ns);

static void note_id(struct submitter *s, const uint8_t *task, size_t len, int64_t from)
{
	struct scan_field id;
	struct uuid u;
	if (!scan_find(task, len, 1, &id) || uuid_parse((const char *)id.data, id.len, &u)) {
		rig_fail(s->rig, "a reply without a task id");
		return;
	}
	struct idset_entry *e = idset_get(&s->rig->ids, &u);
	e->submits++;
	e->submitted_mono_ns = from;
	rig_note_receipt(s->rig, e);
}

/* SubmitTaskResponse { task = 1 }, SubmitTasksResponse { repeated tasks = 1 }, each with the id in field 1. */
static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct shot *shot = arg;
	struct submitter *s = shot->s;
	if (!s->rig->track)
		return;
	struct scan sc = scan_of(data, len);
	struct scan_field f;
	while (scan_next(&sc, &f))
		if (f.number == 1 && f.data)
			note_id(s, f.data, f.len, shot->from_mono_ns);
}

static bool may_send(const struct submitter *s, int64_t now)
{
	return s->sending && !s->rig->failure[0] && (!s->until_mono_ns || now < s->until_mono_ns) &&
	       (!s->cfg.tasks || s->sums.sent < s->cfg.tasks);
}

static void on_status(void *arg, const struct grpc_status *status)
{
	struct shot *shot = arg;
	struct submitter *s = shot->s;
	int64_t now = clock_mono_ns();
	s->on_the_way--;
	s->sums.last_reply_mono_ns = now;
	hist_add(&s->sums.latency, now - shot->from_mono_ns);
	list_push_back(&s->spare, &shot->node);
	if (status->code == STATUS_OK) {
		s->sums.acked += (int64_t)s->cfg.batch;
	} else {
		s->sums.refused += (int64_t)s->cfg.batch;
		if (status->code != STATUS_RESOURCE_EXHAUSTED || s->cfg.rate == 0)
			rig_fail(s->rig, "a submit ended %s: %s", status_code_name(status->code), status->message);
	}
	if (s->cfg.rate == 0) {
		if (may_send(s, now))
			fire(s, now);
		else
			s->sending = false;
	}
}

static void fire(struct submitter *s, int64_t from_mono_ns)
{
	static const struct grpc_call_events events = { .on_message = on_message, .on_status = on_status };
	struct shot *shot = container_of(list_pop_front(&s->spare), struct shot, node);
	struct rig_link *l = &s->links[s->next_link];
	s->next_link = (s->next_link + 1) % s->cfg.connections;
	shot->from_mono_ns = from_mono_ns;
	int rc = grpc_call_start(l->channel, s->cfg.batch == 1 ? "/reins.v1.TaskService/SubmitTask" : "/reins.v1.TaskService/SubmitTasks",
				 GRPC_CALL_UNARY, GRPC_NO_DEADLINE, &events, shot, &shot->call);
	if (rc == 0)
		rc = grpc_client_send(shot->call, s->request, s->request_len);
	if (rc) {
		rig_fail(s->rig, "a call could not be started: %s", strerror(-rc));
		return;
	}
	s->on_the_way++;
	s->sums.sent += (int64_t)s->cfg.batch;
}

/* ---- open loop ---- */

static void on_tick(void *arg, int events)
{
	struct submitter *s = arg;
	uint64_t ticks;
	if (read(s->timer_fd, &ticks, sizeof(ticks)) < 0 && errno != EAGAIN)
		rig_fail(s->rig, "timerfd: %s", strerror(errno));
	int64_t now = clock_mono_ns();
	for (;;) {
		int64_t due = s->sums.first_send_mono_ns + s->calls_due * s->interval_ns;
		if (due > now || list_empty(&s->spare))
			return;
		if (!may_send(s, due)) {
			s->sending = false;
			loop_poll_set(s->timer, 0);
			return;
		}
		hist_add(&s->sums.late, now - due);
		s->calls_due++;
		fire(s, due);
	}
}

static void start_open_loop(struct submitter *s)
{
	struct itimerspec every = { .it_interval.tv_nsec = TICK_NS, .it_value.tv_nsec = TICK_NS };
	s->interval_ns = (int64_t)((double)NS_PER_S * (double)s->cfg.batch / s->cfg.rate);
	if (timerfd_settime(s->timer_fd, 0, &every, NULL))
		rig_fail(s->rig, "timerfd: %s", strerror(errno));
	loop_poll_set(s->timer, LOOP_READ);
}

/* ---- the whole ---- */

static bool links_ready(void *arg)
{
	struct submitter *s = arg;
	return rig_links_ready(s->links, s->cfg.connections);
}

struct submitter *submitter_new(struct rig *r, const struct submitter_config *cfg)
{
	struct submitter *s = xcalloc(1, sizeof(*s));
	s->rig = r;
	s->cfg = *cfg;
	s->timer_fd = -1;
	list_init(&s->spare);
	hist_init(&s->sums.latency);
	hist_init(&s->sums.late);
	make_request(s);
	s->n_shots = cfg->rate > 0 ? SUBMITTER_OPEN_LOOP_MAX : cfg->in_flight;
	s->shots = xcalloc(s->n_shots, sizeof(*s->shots));
	for (size_t i = 0; i < s->n_shots; i++) {
		s->shots[i].s = s;
		list_push_back(&s->spare, &s->shots[i].node);
	}
	s->links = xcalloc(cfg->connections, sizeof(*s->links));
	for (size_t i = 0; i < cfg->connections; i++)
		rig_link_open(r, &s->links[i], "fleet");
	if (cfg->rate > 0) {
		s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
		if (s->timer_fd < 0 || loop_poll_new(r->loop, s->timer_fd, on_tick, s, &s->timer))
			rig_fail(r, "timerfd: %s", strerror(errno));
	}
	if (rig_run(r, 15 * NS_PER_S, links_ready, s)) {
		rig_fail(r, "no connection to %s", r->authority);
		submitter_free(s);
		return NULL;
	}
	return s;
}

void submitter_start(struct submitter *s)
{
	int64_t now = clock_mono_ns();
	s->started = s->sending = true;
	s->sums.first_send_mono_ns = now;
	s->until_mono_ns = s->cfg.duration_ns ? now + s->cfg.duration_ns : 0;
	if (s->cfg.rate > 0) {
		start_open_loop(s);
		return;
	}
	for (size_t i = 0; i < s->cfg.in_flight && may_send(s, now); i++)
		fire(s, now);
}

bool submitter_done(const struct submitter *s)
{
	return s->started && !s->sending && s->on_the_way == 0;
}

const struct submitter_sums *submitter_sums(const struct submitter *s)
{
	return &s->sums;
}

void submitter_free(struct submitter *s)
{
	if (!s)
		return;
	s->sending = false;
	loop_poll_free(s->timer);
	if (s->timer_fd >= 0)
		close(s->timer_fd);
	for (size_t i = 0; i < s->cfg.connections; i++)
		rig_link_close(&s->links[i]);
	loop_turn(s->rig->loop, false); /* calls that were open are told */
	free(s->links);
	free(s->shots);
	free(s->request);
	free(s);
}

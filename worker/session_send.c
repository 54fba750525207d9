/* What goes out in a turn.  Each step sends its messages until there are none or the stream's queue is full;
 * what was not taken stays where it is, and on_writable goes through all steps again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "worker/session_private.h"

#define PROTOCOL 1
#define PIECE_MAX 1000           /* attempts in one piece of Hello */
#define STUCK_MAX 100            /* said in one heartbeat */
#define REASON_MAX 255
#define ITEMS_MAX 1000           /* accepted, refused or started in one message */
#define DEVICES_SAID_MAX 4096    /* in one message of started */
#define OUTCOMES_BYTES (64 * 1024) /* in one message, unless a single one is larger */

struct piece {
	struct list node;
	struct blob *bytes;
};

static int send_message(struct session *s, const Reins__V1__WorkerMessage *m)
{
	return grpc_client_send_packed(s->call, protobuf_c_message_get_packed_size(&m->base),
				       (size_t (*)(const void *, uint8_t *))protobuf_c_message_pack, m);
}

/* ---- Hello ---- */

struct hello_parts {
	Reins__V1__HeldAttempt held[PIECE_MAX];
	Reins__V1__HeldAttempt *held_at[PIECE_MAX];
	Google__Protobuf__Timestamp started[PIECE_MAX];
	Reins__V1__Hello__LabelsEntry labels[64];
	Reins__V1__Hello__LabelsEntry *labels_at[64];
	char label_keys[64][64];
	Reins__V1__Resources resources;
	Reins__V1__Resources__CustomEntry custom[RESOURCES_CUSTOM_MAX];
	Reins__V1__Resources__CustomEntry *custom_at[RESOURCES_CUSTOM_MAX];
	char host[256];
};

static void fill_resources(const struct resources *r, struct hello_parts *p)
{
	reins__v1__resources__init(&p->resources);
	p->resources.cpu_millis = r->cpu_millis;
	p->resources.memory_bytes = r->memory_bytes;
	p->resources.gpus = (int32_t)devices_count(r->devices);
	for (size_t i = 0; i < r->n_custom; i++) {
		reins__v1__resources__custom_entry__init(&p->custom[i]);
		p->custom[i].key = r->custom[i].name;
		p->custom[i].value = r->custom[i].total;
		p->custom_at[i] = &p->custom[i];
	}
	p->resources.custom = p->custom_at;
	p->resources.n_custom = r->n_custom;
}

static void fill_who(struct session *s, struct hello_parts *p, Reins__V1__Hello *h)
{
	const struct worker_config *c = s->cfg.worker;
	h->protocol = PROTOCOL;
	h->worker_id = c->id;
	h->instance = s->cfg.state->instance;
	h->store_id = s->cfg.attempts->n_held ? s->cfg.state->store_id : (char *)"";
	h->resumes_session = s->last_number;
	h->hello_number = state_dir_next_hello(s->cfg.state, s->refused);
	h->no_other = !s->was_unsettled;
	h->slots = (int32_t)c->slots;
	fill_resources(s->cfg.resources, p);
	h->resources = &p->resources;
	h->queues = c->queues.at;
	h->n_queues = c->queues.len;
	for (size_t i = 0; i < c->labels.len; i++) {
		size_t key = strcspn(c->labels.at[i], "=");
		reins__v1__hello__labels_entry__init(&p->labels[i]);
		snprintf(p->label_keys[i], sizeof(p->label_keys[i]), "%.*s", (int)key, c->labels.at[i]);
		p->labels[i].key = p->label_keys[i];
		p->labels[i].value = c->labels.at[i] + key + 1;
		p->labels_at[i] = &p->labels[i];
	}
	h->labels = p->labels_at;
	h->n_labels = c->labels.len;
	h->runs_commands = true;
	h->enforces_exclusive_lease = true;
	h->version = (char *)"reins-worker/" REINS_VERSION;
	if (gethostname(p->host, sizeof(p->host) - 1) < 0)
		p->host[0] = '\0';
	h->hostname = p->host;
	h->paused = s->draining || attempts_paused(s->cfg.attempts) != NULL;
}

static void fill_held(struct hello_parts *p, Reins__V1__Hello *h, const struct attempt *a)
{
	size_t i = h->n_attempts++;
	Reins__V1__HeldAttempt *held = &p->held[i];
	reins__v1__held_attempt__init(held);
	held->task_id = (char *)a->task_id;
	held->attempt = a->number;
	held->has_outcome = a->state == ATTEMPT_ENDED;
	if (a->started_wall_us) {
		pb_timestamp_set(&p->started[i], a->started_wall_us);
		held->started_at = &p->started[i];
	}
	p->held_at[i] = held;
}

static void add_piece(struct session *s, Reins__V1__Hello *h)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HELLO;
	m.hello = h;
	struct piece *p = xcalloc(1, sizeof(*p));
	p->bytes = pb_pack_blob(&m);
	if (!p->bytes)
		abort(); /* some tens of KiB */
	list_push_back(&s->hello, &p->node);
}

void session_make_hello(struct session *s)
{
	_cleanup_free_ struct hello_parts *parts = xcalloc(1, sizeof(*parts));
	Reins__V1__Hello h = REINS__V1__HELLO__INIT;
	fill_who(s, parts, &h);
	h.attempts = parts->held_at;
	list_each(node, &s->cfg.attempts->all) {
		if (h.n_attempts == PIECE_MAX) {
			add_piece(s, &h);
			reins__v1__hello__init(&h);
			h.attempts = parts->held_at;
		}
		fill_held(parts, &h, container_of(node, struct attempt, all_node));
	}
	h.last = true;
	add_piece(s, &h);
}

static void free_piece(struct session *s)
{
	struct piece *p = container_of(list_pop_front(&s->hello), struct piece, node);
	blob_unref(p->bytes);
	free(p);
}

void session_drop_hello(struct session *s)
{
	while (!list_empty(&s->hello))
		free_piece(s);
}

static int send_hello(struct session *s)
{
	while (!list_empty(&s->hello)) {
		const struct piece *p = container_of(s->hello.next, struct piece, node);
		int r = grpc_client_send(s->call, p->bytes->data, p->bytes->len);
		if (r < 0)
			return r;
		free_piece(s);
	}
	return 0;
}

/* ---- heartbeat ---- */

/* As a string of protobuf: names of processes may hold any bytes. */
static void text_valid(const char *text, char *out, size_t cap)
{
	size_t i = 0;
	for (; text[i] && i < cap - 1; i++)
		out[i] = (unsigned char)text[i] < 0x20 || (unsigned char)text[i] >= 0x7f ? '?' : text[i];
	out[i] = '\0';
}

static int send_heartbeat(struct session *s)
{
	if (!s->heartbeat_due)
		return 0;
	if (s->heartbeat_number - s->acked_number >= HEARTBEATS_MAX) {
		s->heartbeat_due = false; /* the answers decide what becomes of this session */
		loop_timer_set(&s->heartbeat_timer, loop_now_mono_ns(s->cfg.loop) + s->interval_ns);
		return 0;
	}
	struct attempts *a = s->cfg.attempts;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Heartbeat h = REINS__V1__HEARTBEAT__INIT;
	/* Before it is encoded: the lease runs from here. */
	struct heartbeat sent = {.number = s->heartbeat_number + 1, .boot_ns = clock_boot_ns(),
		.mono_ns = loop_now_mono_ns(s->cfg.loop)};
	_cleanup_free_ Reins__V1__AttemptRef *refs = xcalloc(a->n_held + 1, sizeof(*refs));
	_cleanup_free_ Reins__V1__AttemptRef **at = xcalloc(a->n_held + 1, sizeof(*at));
	static Reins__V1__StuckAttempt stuck[STUCK_MAX], *stuck_at[STUCK_MAX];
	static char reasons[STUCK_MAX][REASON_MAX + 1];
	h.stuck = stuck_at;
	list_each(node, &a->all) {
		struct attempt *held = container_of(node, struct attempt, all_node);
		if (held->stuck && h.n_stuck < STUCK_MAX) {
			size_t i = h.n_stuck++;
			reins__v1__stuck_attempt__init(&stuck[i]);
			stuck[i].task_id = held->task_id;
			stuck[i].attempt = held->number;
			text_valid(held->stuck, reasons[i], sizeof(reasons[i]));
			stuck[i].reason = reasons[i];
			stuck_at[i] = &stuck[i];
		}
		Reins__V1__AttemptRef *ref = &refs[h.n_attempts];
		reins__v1__attempt_ref__init(ref);
		ref->task_id = held->task_id;
		ref->attempt = held->number;
		at[h.n_attempts++] = ref;
	}
	h.attempts = at;
	h.number = sent.number;
	h.last_dispatch = s->last_dispatch;
	const char *paused = attempts_paused(a);
	h.paused = paused != NULL || s->draining;
	h.paused_reason = (char *)(paused ? paused : s->draining ? "the worker drains" : "");
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_HEARTBEAT;
	m.heartbeat = &h;
	int r = send_message(s, &m);
	if (r < 0)
		return r;
	s->heartbeat_due = false;
	s->heartbeat_number = sent.number;
	s->sent[sent.number % HEARTBEATS_MAX] = sent;
	session_arm_ack(s);
	loop_timer_set(&s->heartbeat_timer, sent.mono_ns + (sent.number == 1 ? lease_second_beat_ns(&s->rng, s->interval_ns) : s->interval_ns));
	return 0;
}

/* ---- small news ---- */

static int send_accepted(struct session *s)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Accepted accepted = REINS__V1__ACCEPTED__INIT;
	static Reins__V1__AttemptRef refs[ITEMS_MAX], *at[ITEMS_MAX];
	static struct attempt *who[ITEMS_MAX];
	list_each(node, &s->cfg.attempts->to_say) {
		struct attempt *a = container_of(node, struct attempt, say_node);
		size_t i = accepted.n_attempts;
		if (!(a->say & SAY_ACCEPTED))
			continue;
		if (i == ITEMS_MAX)
			break;
		reins__v1__attempt_ref__init(&refs[i]);
		refs[i].task_id = a->task_id;
		refs[i].attempt = a->number;
		at[i] = &refs[i];
		who[i] = a;
		accepted.n_attempts++;
	}
	if (!accepted.n_attempts)
		return 0;
	accepted.attempts = at;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_ACCEPTED;
	m.accepted = &accepted;
	int r = send_message(s, &m);
	if (r < 0)
		return r;
	for (size_t i = 0; i < accepted.n_attempts; i++) {
		who[i]->say &= ~(unsigned)SAY_ACCEPTED;
		if (!who[i]->say)
			list_remove(&who[i]->say_node);
	}
	return accepted.n_attempts == ITEMS_MAX;
}

static int send_refused(struct session *s)
{
	struct attempts *set = s->cfg.attempts;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Refused refused = REINS__V1__REFUSED__INIT;
	static Reins__V1__RefusedAttempt items[ITEMS_MAX], *at[ITEMS_MAX];
	list_each(node, &set->refused) {
		struct refused *one = container_of(node, struct refused, node);
		size_t i = refused.n_attempts;
		if (i == ITEMS_MAX)
			break;
		reins__v1__refused_attempt__init(&items[i]);
		items[i].task_id = one->task_id;
		items[i].attempt = one->number;
		items[i].cause = one->cause;
		items[i].text = (char *)one->text;
		at[i] = &items[i];
		refused.n_attempts++;
	}
	if (!refused.n_attempts)
		return 0;
	refused.attempts = at;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_REFUSED;
	m.refused = &refused;
	int r = send_message(s, &m);
	if (r < 0)
		return r;
	for (size_t i = 0; i < refused.n_attempts; i++)
		free(container_of(list_pop_front(&set->refused), struct refused, node));
	return refused.n_attempts == ITEMS_MAX;
}

static int send_started(struct session *s)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Started started = REINS__V1__STARTED__INIT;
	static Reins__V1__StartedAttempt items[ITEMS_MAX], *at[ITEMS_MAX];
	static Google__Protobuf__Timestamp times[ITEMS_MAX];
	size_t devices = 0;
	list_each(node, &s->cfg.attempts->to_say) {
		struct attempt *a = container_of(node, struct attempt, say_node);
		size_t i = started.n_attempts;
		devices += a->n_devices;
		if (i == ITEMS_MAX || (i > 0 && devices > DEVICES_SAID_MAX))
			break;
		reins__v1__started_attempt__init(&items[i]);
		items[i].task_id = a->task_id;
		items[i].attempt = a->number;
		pb_timestamp_set(&times[i], a->started_wall_us);
		items[i].started_at = &times[i];
		items[i].devices = a->devices;
		items[i].n_devices = a->n_devices;
		at[i] = &items[i];
		started.n_attempts++;
	}
	if (!started.n_attempts)
		return 0;
	started.attempts = at;
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_STARTED;
	m.started = &started;
	int r = send_message(s, &m);
	if (r < 0)
		return r;
	for (size_t i = 0; i < started.n_attempts; i++) {
		struct attempt *a = container_of(list_pop_front(&s->cfg.attempts->to_say), struct attempt, say_node);
		a->say = 0;
	}
	return !list_empty(&s->cfg.attempts->to_say);
}

static int send_draining(struct session *s)
{
	if (!s->say_draining)
		return 0;
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Draining d = REINS__V1__DRAINING__INIT;
	Google__Protobuf__Duration within;
	d.resumed = !s->draining;
	if (s->draining) {
		d.mode = s->drain_mode;
		pb_duration_set(&within, s->drain_within_ns);
		if (s->drain_mode != REINS__V1__DRAIN_MODE__DRAIN_WAIT)
			d.within = &within;
	}
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_DRAINING;
	m.draining = &d;
	int r = send_message(s, &m);
	if (r == 0)
		s->say_draining = false;
	return r;
}

/* ---- logs and outcomes ---- */

static int send_piece(struct session *s, struct attempt *a, const struct logs_piece *p)
{
	Reins__V1__WorkerMessage m = REINS__V1__WORKER_MESSAGE__INIT;
	Reins__V1__Log log = REINS__V1__LOG__INIT;
	Google__Protobuf__Timestamp at;
	log.task_id = a->task_id;
	log.attempt = a->number;
	log.stream = (Reins__V1__LogStream)p->stream;
	log.offset = p->offset;
	log.data.data = (uint8_t *)p->data;
	log.data.len = p->len;
	log.dropped_bytes = p->dropped;
	log.live = p->live;
	if (p->at_wall_us) {
		pb_timestamp_set(&at, p->at_wall_us);
		log.at = &at;
	}
	m.kind_case = REINS__V1__WORKER_MESSAGE__KIND_LOG;
	m.log = &log;
	return send_message(s, &m);
}

/* The logs take turns, a piece each. */
static int send_logs(struct session *s)
{
	struct attempts *set = s->cfg.attempts;
	while (!list_empty(&set->logs)) {
		struct attempt *a = container_of(set->logs.next, struct attempt, log_node);
		struct logs_piece p;
		if (!logs_next(&a->log, &p)) {
			attempts_log_caught_up(a);
			continue;
		}
		int r = send_piece(s, a, &p);
		if (r < 0)
			return r;
		logs_sent(&a->log, &p);
		list_remove(&a->log_node);
		list_push_back(&set->logs, &a->log_node);
	}
	return 0;
}

static size_t varint_len(size_t v)
{
	size_t n = 1;
	for (; v >= 0x80; v >>= 7)
		n++;
	return n;
}

static uint8_t *put_varint(uint8_t *p, size_t v)
{
	for (; v >= 0x80; v >>= 7)
		*p++ = (uint8_t)(v | 0x80);
	*p++ = (uint8_t)v;
	return p;
}

/* Metrics around points that are encoded already; the order of fields is free. */
static int pack_metrics(struct buf *b, const struct attempt *a)
{
	enum { METRICS_TAG = 7 << 3 | 2 };
	const struct metrics_reader *r = &a->metrics;
	Reins__V1__Metrics m = REINS__V1__METRICS__INIT;
	m.task_id = (char *)(uintptr_t)a->task_id;
	m.attempt = a->number;
	m.first_number = r->first_number;
	m.malformed_lines = r->scan.malformed;
	m.dropped_points = r->dropped;
	size_t head = reins__v1__metrics__get_packed_size(&m), inner = head + buf_len(&r->points);
	buf_clear(b);
	uint8_t *p = buf_reserve(b, 1 + varint_len(inner) + inner);
	if (!p)
		return -ENOMEM;
	buf_commit(b, 1 + varint_len(inner) + inner);
	*p++ = METRICS_TAG;
	p = put_varint(p, inner);
	p += reins__v1__metrics__pack(&m, p);
	if (buf_len(&r->points))
		memcpy(p, buf_head(&r->points), buf_len(&r->points));
	return 0;
}

static int send_metrics(struct session *s)
{
	struct attempts *set = s->cfg.attempts;
	while (!list_empty(&set->metrics)) {
		struct attempt *a = container_of(set->metrics.next, struct attempt, metrics_node);
		int r = pack_metrics(&s->scratch, a);
		if (r == 0)
			r = grpc_client_send(s->call, buf_head(&s->scratch), buf_len(&s->scratch));
		if (r < 0)
			return r;
		attempts_metrics_sent(a);
	}
	return 0;
}

/* WorkerMessage{outcome: OutcomeReport{outcomes: …}} around outcomes that are packed already. */
static int pack_outcomes(struct buf *b, const struct list *outcomes, size_t n)
{
	enum { OUTCOME_TAG = 8 << 3 | 2, OUTCOMES_TAG = 1 << 3 | 2 };
	size_t inner = 0, i = 0;
	list_each(node, outcomes) {
		if (i++ == n)
			break;
		size_t len = container_of(node, struct attempt, outcome_node)->outcome->len;
		inner += 1 + varint_len(len) + len;
	}
	buf_clear(b);
	size_t total = 1 + varint_len(inner) + inner;
	uint8_t *p = buf_reserve(b, total);
	if (!p)
		return -ENOMEM;
	buf_commit(b, total);
	*p++ = OUTCOME_TAG;
	p = put_varint(p, inner);
	i = 0;
	list_each(node, outcomes) {
		if (i++ == n)
			break;
		const struct blob *o = container_of(node, struct attempt, outcome_node)->outcome;
		*p++ = OUTCOMES_TAG;
		p = put_varint(p, o->len);
		memcpy(p, o->data, o->len);
		p += o->len;
	}
	return 0;
}

static int send_outcomes(struct session *s)
{
	struct attempts *set = s->cfg.attempts;
	while (!list_empty(&set->outcomes)) {
		size_t n = 0, bytes = 0;
		list_each(node, &set->outcomes) {
			size_t len = container_of(node, struct attempt, outcome_node)->outcome->len;
			if (n && bytes + len > OUTCOMES_BYTES)
				break;
			bytes += len;
			n++;
		}
		int r = pack_outcomes(&s->scratch, &set->outcomes, n);
		if (r == 0)
			r = grpc_client_send(s->call, buf_head(&s->scratch), buf_len(&s->scratch));
		if (r < 0)
			return r;
		for (size_t i = 0; i < n; i++)
			attempts_outcome_sent(container_of(set->outcomes.next, struct attempt, outcome_node));
	}
	return 0;
}

/* ---- the flush ---- */

void session_flush(struct session *s)
{
	static int (*const steps[])(struct session *) = {
		send_heartbeat, send_accepted, send_refused, send_started, send_draining, send_logs, send_metrics,
		send_outcomes,
	};
	if (!s->call || s->blocked || s->half_closed)
		return;
	int r = send_hello(s);
	for (size_t i = 0; s->state == SESSION_UP && r >= 0 && i < ARRAY_LEN(steps); i++)
		do
			r = steps[i](s);
		while (r > 0);
	if (r == 0 && s->leaving) {
		s->half_closed = true;
		loop_timer_stop(&s->heartbeat_timer);
		loop_timer_stop(&s->ack_timer);
		grpc_client_half_close(s->call);
	}
	/* Any other failure is the call's end, and on_status says so. */
	if (r == -EAGAIN)
		s->blocked = true;
}

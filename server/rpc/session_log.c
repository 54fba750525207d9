/* Log on its way from a worker to the store.
 *
 * Of each attempt one operation is on its way at a time, with all pieces that came while the one before was: so they are
 * stored in order, and one that the store could not take is tried again before anything behind it.  What a worker may
 * have on its way is bounded by the window of Welcome; SESSION_HELD_MAX is far beyond and ends the stream of one
 * that knows no window. */
#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "server/rpc/follow.h"
#include "server/rpc/session.h"
#include "server/store/store_logs.h"

#define BATCH_BYTES (1024 * 1024)
#define BATCH_PIECES 256
#define PIECE_COST 128 /* of our memory, beside its bytes */
#define AGAIN_NS (250 * NS_PER_MS)

struct piece {
	struct list node;
	int64_t offset, dropped;
	enum store_log_stream stream;
	uint32_t len, cap;
	uint8_t *data;
};

struct batch {
	struct store_log_append append;
	struct session_log *log;
	struct list again; /* in session.logs_again: to be submitted once more */
	size_t cost;
	int64_t end;
	struct store_log_piece pieces[];
};

struct session_log {
	struct map_node by_ref;
	struct core_attempt ref;
	struct session *session;
	struct list due;     /* in session.logs_due */
	struct list waiting; /* struct piece */
	struct attempt *held; /* while busy: the outcome waits */
	struct batch *batch; /* on its way, or to be tried again */
	int64_t end;         /* of what came */
	int64_t stored, kept, dropped;
	int64_t metrics;     /* points that are stored */
};

/* ---- logs ---- */

static struct session_log *find(struct session *s, const struct core_attempt *ref)
{
	struct map_node *n = map_get(&s->logs, ref, sizeof(*ref));
	return n ? container_of(n, struct session_log, by_ref) : NULL;
}

static bool is_busy(const struct session_log *l)
{
	return l->batch || !list_empty(&l->waiting);
}

static void free_piece(struct session *s, struct piece *p)
{
	list_remove(&p->node);
	session_let_bytes(s, PIECE_COST + p->len);
	free(p->data);
	free(p);
}

/* May end what is left of the session, if the caller has no reference. */
static void let_if_idle(struct session_log *l)
{
	struct attempt *held = l->held;
	if (!held || is_busy(l))
		return;
	l->held = NULL;
	session_let_outcome(held);
}

static void drop_waiting(struct session_log *l)
{
	while (!list_empty(&l->waiting))
		free_piece(l->session, container_of(l->waiting.next, struct piece, node));
}

static void free_batch(struct batch *b)
{
	for (size_t i = 0; i < b->append.n; i++)
		blob_unref(b->pieces[i].data);
	list_remove(&b->again);
	session_let_bytes(b->log->session, b->cost);
	b->log->batch = NULL;
	free(b);
}

static void free_log(struct session_log *l)
{
	drop_waiting(l);
	if (l->batch)
		free_batch(l->batch);
	list_remove(&l->due);
	map_remove(&l->session->logs, &l->by_ref);
	free(l);
}

/* Those of attempts that the worker never ended: their counts are lost, which a later outcome would say. */
static void forget_idle(struct session *s)
{
	for (struct map_node *n = map_first(&s->logs), *next; n; n = next) {
		next = map_next(&s->logs, n);
		struct session_log *l = container_of(n, struct session_log, by_ref);
		if (!is_busy(l))
			free_log(l);
	}
}

static struct session_log *need(struct session *s, const struct core_attempt *ref)
{
	struct session_log *l = find(s, ref);
	size_t max = 2 * (size_t)engine_core_config(s->rpc->engine)->max_held;
	if (l)
		return l;
	if (s->logs.len >= max)
		forget_idle(s);
	if (s->logs.len >= max) {
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "more attempts than a worker may hold");
		return NULL;
	}
	l = xcalloc(1, sizeof(*l));
	l->ref = *ref;
	l->session = s;
	list_init(&l->due);
	list_init(&l->waiting);
	map_put(&s->logs, &l->by_ref, &l->ref, sizeof(l->ref));
	return l;
}

/* ---- to the store ---- */

static void submit(struct batch *b);

static bool alive(const struct session *s)
{
	return s->call && !s->closing;
}

static void is_due(struct session_log *l)
{
	struct session *s = l->session;
	if (l->batch || list_empty(&l->waiting) || !list_empty(&l->due))
		return;
	list_push_back(&s->logs_due, &l->due);
	loop_mark(s->rpc->loop, &s->logs_dirty);
}

static void tell_lost(const struct session *s, const char *text)
{
	static struct log_repeats repeats;
	int64_t left_out;
	if (log_repeats_pass(&repeats, clock_mono_ns(), NS_PER_S / 10, s->log_name, &left_out))
		log_warn("worker", s->log_name, "a part of a task's log is not kept: %s", text);
}

/* The store refuses it for its content, or has no room: the gap is stored in its place.  False: it is one already. */
static bool make_gap(struct batch *b)
{
	int64_t from = b->pieces[0].offset;
	if (b->append.n == 1 && !b->pieces[0].data)
		return false;
	for (size_t i = 0; i < b->append.n; i++)
		blob_unref(b->pieces[i].data);
	b->pieces[0].data = NULL;
	b->pieces[0].dropped = b->end - from;
	b->append.n = 1;
	return true;
}

static void finish(struct batch *b)
{
	struct session_log *l = b->log;
	struct session *s = l->session;
	for (size_t i = 0; i < b->append.n; i++)
		l->dropped += b->pieces[i].dropped;
	l->stored = b->end;
	free_batch(b);
	if (!alive(s))
		drop_waiting(l); /* it sends them again in its next session */
	else
		session_log_stored(s, &l->ref, l->stored);
	engine_news(s->rpc->engine, &l->ref.task, true);
	is_due(l);
	let_if_idle(l);
}

static void on_appended(struct store_op *op)
{
	struct batch *b = container_of(op, struct batch, append.op);
	struct session *s = b->log->session;
	if (op->result == STORE_UNAVAILABLE && alive(s)) {
		list_push_back(&s->logs_again, &b->again);
		if (!loop_timer_active(&s->logs_timer))
			loop_timer_set(&s->logs_timer, loop_now_mono_ns(s->rpc->loop) + AGAIN_NS);
	} else if (op->result == STORE_REFUSED && alive(s) && make_gap(b)) {
		tell_lost(s, op->text);
		submit(b);
	} else {
		finish(b);
	}
	session_unref(s);
}

static void submit(struct batch *b)
{
	struct session *s = b->log->session;
	s->refs++;
	b->append.op.kind = STORE_LOG_APPEND;
	b->append.op.done = on_appended;
	store_submit(engine_store(s->rpc->engine), &b->append.op);
}

static void on_again(struct loop_timer *t)
{
	struct session *s = container_of(t, struct session, logs_timer);
	struct list *n;
	while ((n = list_pop_front(&s->logs_again)))
		submit(container_of(n, struct batch, again));
}

/* False without memory: it stays where it is. */
static bool take_piece(struct batch *b, struct session_log *l, const struct piece *p)
{
	struct store_log_piece *to = &b->pieces[b->append.n];
	*to = (struct store_log_piece){ .offset = p->offset, .stream = p->stream, .dropped = p->dropped };
	if (p->len && !(to->data = blob_new(p->data, p->len)))
		return false;
	b->append.n++;
	b->cost += PIECE_COST + p->len;
	session_hold_bytes(l->session, PIECE_COST + p->len);
	b->end = p->offset + p->dropped + p->len;
	return true;
}

static void gather(struct session_log *l)
{
	size_t n = 0;
	list_each(it, &l->waiting)
		if (++n == BATCH_PIECES)
			break;
	struct batch *b = xcalloc(1, sizeof(*b) + n * sizeof(b->pieces[0]));
	size_t bytes = 0;
	b->log = l;
	list_init(&b->again);
	l->batch = b;
	b->append.at = l->ref;
	b->append.worker = l->session->worker;
	b->append.pieces = b->pieces;
	while (b->append.n < n) {
		struct piece *p = container_of(l->waiting.next, struct piece, node);
		bytes += p->len;
		if (b->append.n && bytes > BATCH_BYTES)
			break;
		if (!take_piece(b, l, p))
			break;
		free_piece(l->session, p);
	}
	if (b->append.n) {
		submit(b);
		return;
	}
	free_batch(b);
	session_no_memory(l->session);
}

static void on_due(struct loop_dirty *d)
{
	struct session *s = container_of(d, struct session, logs_dirty);
	struct list *n;
	while ((n = list_pop_front(&s->logs_due)))
		gather(container_of(n, struct session_log, due));
}

/* ---- from the worker ---- */

/* Small pieces that follow each other become one: a row each would cost more than they hold. */
static bool grow_last(struct session_log *l, enum store_log_stream stream, const uint8_t *data, size_t len)
{
	struct piece *p = list_empty(&l->waiting) ? NULL : container_of(l->waiting.prev, struct piece, node);
	if (!p || p->dropped || p->stream != stream || p->len + len > STORE_LOG_PIECE_MAX)
		return false;
	if (p->len + len > p->cap) {
		uint32_t cap = (uint32_t)min_sz(max_sz(2 * (size_t)p->cap, p->len + len), STORE_LOG_PIECE_MAX);
		uint8_t *more = realloc(p->data, cap);
		if (!more)
			return false;
		p->data = more;
		p->cap = cap;
	}
	memcpy(p->data + p->len, data, len);
	p->len += (uint32_t)len;
	session_hold_bytes(l->session, len);
	return true;
}

static bool add_piece(struct session_log *l, enum store_log_stream stream, const uint8_t *data, size_t len, int64_t dropped)
{
	struct piece *last = list_empty(&l->waiting) ? NULL : container_of(l->waiting.prev, struct piece, node);
	if (last && last->dropped && dropped) {
		last->dropped += dropped;
		return true;
	}
	if (len && grow_last(l, stream, data, len))
		return true;
	struct piece *p = calloc(1, sizeof(*p));
	if (p && len && !(p->data = malloc(len))) {
		free(p);
		p = NULL;
	}
	if (!p) {
		session_no_memory(l->session);
		return false;
	}
	p->offset = l->end;
	p->stream = stream;
	p->dropped = dropped;
	p->len = p->cap = (uint32_t)len;
	if (len)
		memcpy(p->data, data, len);
	session_hold_bytes(l->session, PIECE_COST + len);
	list_push_back(&l->waiting, &p->node);
	return true;
}

static void add(struct session_log *l, enum store_log_stream stream, const uint8_t *data, size_t len, int64_t dropped)
{
	int64_t limit = l->session->rpc->limits.log_bytes + RPC_LOG_CHUNK_MAX;
	if (l->kept + (int64_t)len > limit) {
		dropped += (int64_t)len;
		len = 0;
	}
	if (!add_piece(l, stream, data, len, dropped))
		return;
	l->kept += (int64_t)len;
	l->end += (int64_t)len + dropped;
}

void session_log_piece(struct session *s, const Reins__V1__Log *m)
{
	struct core_attempt ref;
	if (session_parse_ref(s, m->task_id, m->attempt, &ref))
		return;
	bool known_stream = m->stream == REINS__V1__LOG_STREAM__STDOUT || m->stream == REINS__V1__LOG_STREAM__STDERR;
	if (m->offset < 0 || m->offset > SESSION_OFFSET_MAX || m->data.len > RPC_LOG_CHUNK_MAX || (m->data.len && !known_stream)) {
		(void)session_bad_message(s, "log: offset below 0 or above 2^62, more than 64 KiB, or no such stream");
		return;
	}
	if (m->dropped_bytes < 0 || m->dropped_bytes > SESSION_OFFSET_MAX - m->offset || (m->dropped_bytes && m->data.len)) {
		(void)session_bad_message(s, "log: dropped_bytes below 0, or to beyond 2^62, or together with data");
		return;
	}
	enum store_log_stream stream = m->stream == REINS__V1__LOG_STREAM__STDERR ? STORE_STDERR : STORE_STDOUT;
	if (m->live) {
		follow_piece(s->rpc, &ref, stream, m->offset, m->data.data, m->data.len);
		return;
	}
	struct session_log *l = m->data.len || m->dropped_bytes ? need(s, &ref) : NULL;
	if (!l)
		return;
	int64_t end = m->offset + m->dropped_bytes + (int64_t)m->data.len, known = l->end - m->offset;
	if (end <= l->end) { /* once more */
		if (end <= l->stored)
			session_log_stored(s, &ref, l->stored);
		return;
	}
	if (!session_has_room(s, PIECE_COST + m->data.len)) {
		session_end(s, STATUS_RESOURCE_EXHAUSTED, "too many bytes of log wait for the store; Welcome names the window");
		return;
	}
	if (known < 0) /* it should have said so */
		add(l, stream, NULL, 0, -known);
	if (s->closing)
		return;
	size_t skip = m->data.len && known > 0 ? (size_t)known : 0;
	if (m->data.len)
		add(l, stream, m->data.data + skip, m->data.len - skip, 0);
	else
		add(l, stream, NULL, 0, m->dropped_bytes - max_i64(known, 0));
	if (!l->held && is_busy(l))
		l->held = session_hold_outcome(s, &ref);
	is_due(l);
}

/* ---- what others ask ---- */

void session_log_adopted(struct session *s, const struct core_adopted *a)
{
	struct core_attempt ref = { a->task.id, a->task.attempt };
	struct session_log *l = a->log_stored || a->metrics_stored ? need(s, &ref) : NULL;
	if (!l)
		return;
	l->metrics = a->metrics_stored;
	l->end = l->stored = a->log_stored;
	l->dropped = a->log_dropped;
	l->kept = max_i64(a->log_stored - a->log_dropped, 0);
}

void session_log_metrics(struct session *s, const struct core_attempt *ref, int64_t number)
{
	struct session_log *l = alive(s) ? need(s, ref) : NULL;
	if (l)
		l->metrics = max_i64(l->metrics, number);
}

void session_log_leave(struct session *s)
{
	if (s->left || !s->logs.len)
		return;
	s->left = true;
	struct progress_of *at = xcalloc(s->logs.len, sizeof(*at));
	size_t n = 0;
	for (struct map_node *it = map_first(&s->logs); it; it = map_next(&s->logs, it)) {
		const struct session_log *l = container_of(it, struct session_log, by_ref);
		if (l->stored || l->metrics)
			at[n++] = (struct progress_of){ l->ref, l->stored, l->dropped, l->metrics };
	}
	progress_keep(&s->rpc->left, s->worker, at, n);
}

int64_t session_log_dropped(struct session *s, const struct core_attempt *ref, int64_t log_end)
{
	struct session_log *l = find(s, ref);
	return l ? min_i64(l->dropped + max_i64(log_end - l->end, 0), log_end) : log_end;
}

void session_log_forget(struct session *s, const struct core_attempt *ref)
{
	struct session_log *l = find(s, ref);
	if (l && !is_busy(l))
		free_log(l);
}

void session_log_init(struct session *s)
{
	map_init(&s->logs);
	list_init(&s->logs_due);
	list_init(&s->logs_again);
	loop_dirty_init(&s->logs_dirty, LOOP_WORK, on_due);
	loop_timer_init(&s->logs_timer, s->rpc->loop, on_again);
}

void session_log_stop(struct session *s)
{
	loop_unmark(&s->logs_dirty);
	loop_timer_stop(&s->logs_timer);
	for (struct map_node *n = map_first(&s->logs); n; n = map_next(&s->logs, n)) {
		struct session_log *l = container_of(n, struct session_log, by_ref);
		drop_waiting(l);
		list_remove(&l->due);
		if (l->batch && !list_empty(&l->batch->again))
			free_batch(l->batch);
		let_if_idle(l);
	}
}

void session_log_done(struct session *s)
{
	for (struct map_node *n = map_first(&s->logs), *next; n; n = next) {
		next = map_next(&s->logs, n);
		free_log(container_of(n, struct session_log, by_ref));
	}
	map_done(&s->logs);
}

/* The interface in terms of commands, and replies in terms of verdicts.  Owns the connection and what it has to
 * tell; callbacks go out from one LOOP_WORK flush, never from inside the connection. */
#include "server/lease/redis/redis.h"

#include "server/lease/answers.h"
#include "server/lease/redis/conn.h"
#include "server/lease/redis/gather.h"
#include "server/lease/redis/scan.h"

#include <assert.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX_MAX 128
#define WORKER_MAX GATHER_WORKER_MAX
#define CONNECT_TIMEOUT (1 * NS_PER_S)

enum kind { KIND_PREEMPT, KIND_HB, KIND_WRITE, KIND_RELEASE, KIND_SCAN, KIND_SCAN_ITEM };

struct lease_redis {
	struct lease base;
	struct loop *loop;
	struct redis_conn *conn;
	struct redis_wire *wire;
	struct answers answers;
	struct loop_dirty deliver;
	struct gather gather;
	struct redis_scan scan;
	struct loop_dirty ask; /* SCAN has named keys: what they hold */
	struct list preempting; /* groups whose answer is on its way; the command's cookie points there */
	size_t n_slots, max_slots; /* gathered or on the way */
	struct loop_dirty emit;
	struct loop_grave grave;
	char prefix[PREFIX_MAX + 1];
	size_t prefix_len;
	char scan_pattern[2 * PREFIX_MAX + 8];
	int64_t task_key_ttl_ms;
	bool refusing;  /* connected, but Redis takes no writes */
	bool told, told_up, failed_once;
	char state_text[256];
	struct lease_stats stats;
};

struct key {
	char text[PREFIX_MAX + WORKER_MAX + 64];
	size_t len;
};

static struct lease_redis *self(struct lease *l)
{
	return container_of(l, struct lease_redis, base);
}

static int64_t to_ms(int64_t ns)
{
	return max_i64(ns / NS_PER_MS, 1);
}

/* ---- keys and commands ---- */

static void add_text(struct key *k, const char *text, size_t len)
{
	memcpy(k->text + k->len, text, len);
	k->len += len;
}

/* The prefix and the worker's name are checked to fit. */
static void worker_key(const struct lease_redis *r, const char *worker, const char *what, struct key *ret)
{
	ret->len = 0;
	add_text(ret, r->prefix, r->prefix_len);
	add_text(ret, "worker:{", 8);
	add_text(ret, worker, strlen(worker));
	add_text(ret, "}:", 2);
	add_text(ret, what, strlen(what) + 1);
	ret->len--;
}

static void task_key(const struct lease_redis *r, const struct uuid *task, struct key *ret)
{
	char id[UUID_TEXT_LEN + 1];
	uuid_format(task, id);
	ret->len = 0;
	add_text(ret, r->prefix, r->prefix_len);
	add_text(ret, "task:{", 6);
	add_text(ret, id, UUID_TEXT_LEN);
	add_text(ret, "}:workerId", 10);
}

static void put_task(struct lease_redis *r, const struct uuid *task)
{
	char id[UUID_TEXT_LEN + 1];
	uuid_format(task, id);
	redis_wire_put(r->wire, id, UUID_TEXT_LEN);
}

static bool usable(const struct lease_redis *r, const char *worker)
{
	return redis_conn_up(r->conn) && strlen(worker) <= WORKER_MAX;
}

/* A script over hb and hash, with n values to follow. */
static void begin_on_worker(struct lease_redis *r, enum kind kind, uint64_t cookie, enum redis_script script,
			    const char *worker, size_t n)
{
	struct key hb, hash;
	worker_key(r, worker, "hb", &hb);
	worker_key(r, worker, "task", &hash);
	redis_wire_begin(r->wire, (uint8_t)kind, cookie, script, (uint32_t)(3 + n));
	redis_wire_str(r->wire, "2");
	redis_wire_put(r->wire, hb.text, hb.len);
	redis_wire_put(r->wire, hash.text, hash.len);
}

static void begin_on_key(struct lease_redis *r, enum kind kind, uint64_t cookie, enum redis_script script,
			 const struct key *key, uint32_t n)
{
	redis_wire_begin(r->wire, (uint8_t)kind, cookie, script, 2 + n);
	redis_wire_str(r->wire, "1");
	redis_wire_put(r->wire, key->text, key->len);
}

static void end_write(struct lease_redis *r)
{
	if (redis_wire_end(r->wire) < 0)
		r->stats.dropped++;
}

static void put_owner_value(struct lease_redis *r, const char *worker, int64_t session, int32_t attempt)
{
	char value[WORKER_MAX + 64];
	int len = snprintf(value, sizeof(value), "%s %" PRId64 " %" PRId32, worker, session, attempt);
	redis_wire_put(r->wire, value, (size_t)len);
}

static void put_owner(struct lease_redis *r, const struct uuid *task, const char *worker, int64_t session, int32_t attempt)
{
	struct key key;
	task_key(r, task, &key);
	redis_wire_begin(r->wire, KIND_WRITE, 0, SCRIPTS, 5);
	redis_wire_str(r->wire, "SET");
	redis_wire_put(r->wire, key.text, key.len);
	put_owner_value(r, worker, session, attempt);
	redis_wire_str(r->wire, "PX");
	redis_wire_i64(r->wire, r->task_key_ttl_ms);
	end_write(r);
}

/* ---- groups ---- */

static enum lease_verdict verdict_of(char digit)
{
	switch (digit) {
	case '0':
		return LEASE_OK;
	case '1':
		return LEASE_NEWER_SESSION;
	case '2':
		return LEASE_FULL;
	default:
		return LEASE_DOWN;
	}
}

static void put_items(struct lease_redis *r, const struct gather_group *p)
{
	for (size_t i = 0; i < p->n; i++) {
		put_task(r, &p->at[i].task);
		redis_wire_i64(r->wire, p->at[i].attempt);
	}
}

/* What a script said of each, or one word for all. */
static void answer_group(struct lease_redis *r, struct gather_group *p, const redisReply *reply)
{
	bool said = reply && reply->type == REDIS_REPLY_STRING && reply->len == p->n;
	for (size_t i = 0; i < p->n; i++)
		answers_add(&r->answers, p->at[i].cookie, said ? verdict_of(reply->str[i]) : LEASE_DOWN);
	loop_mark(r->loop, &r->deliver);
	r->n_slots -= p->n;
	list_remove(&p->node);
	gather_give_back(&r->gather, p);
}

static void emit_preempt(struct lease_redis *r, struct gather_group *p)
{
	list_push_back(&r->preempting, &p->node);
	begin_on_worker(r, KIND_PREEMPT, (uint64_t)(uintptr_t)p, SCRIPT_PREEMPT, p->key.worker, 5 + 2 * p->n);
	redis_wire_str(r->wire, p->master);
	redis_wire_i64(r->wire, p->key.session);
	redis_wire_i64(r->wire, to_ms(p->lease_ttl_ns));
	redis_wire_i64(r->wire, p->slots);
	redis_wire_i64(r->wire, r->task_key_ttl_ms);
	put_items(r, p);
	if (redis_wire_end(r->wire) < 0)
		answer_group(r, p, NULL);
}

static void emit_own(struct lease_redis *r, const struct gather_group *p)
{
	begin_on_worker(r, KIND_WRITE, 0, SCRIPT_OWN_FIELDS, p->key.worker, 2 + 2 * p->n);
	redis_wire_i64(r->wire, p->key.session);
	redis_wire_i64(r->wire, r->task_key_ttl_ms);
	put_items(r, p);
	end_write(r);
}

static void emit_release(struct lease_redis *r, const struct gather_group *p)
{
	struct key key;
	worker_key(r, p->key.worker, "task", &key);
	begin_on_key(r, KIND_RELEASE, 0, SCRIPT_RELEASE_FIELDS, &key, (uint32_t)(2 * p->n));
	put_items(r, p);
	end_write(r);
}

static void emit_group(struct lease_redis *r, struct gather_group *p)
{
	gather_take(&r->gather, p);
	if (p->key.kind == GATHER_PREEMPT) {
		if (redis_conn_up(r->conn)) {
			emit_preempt(r, p);
		} else {
			list_push_back(&r->preempting, &p->node);
			answer_group(r, p, NULL);
		}
		return;
	}
	if (!redis_conn_up(r->conn))
		r->stats.dropped++;
	else if (p->key.kind == GATHER_OWN)
		emit_own(r, p);
	else
		emit_release(r, p);
	gather_give_back(&r->gather, p);
}

/* Everything gathered becomes commands: at the end of the turn, and before a command that must come after it. */
static void emit_all(struct lease_redis *r)
{
	struct gather_group *p;
	loop_unmark(&r->emit);
	while ((p = gather_first(&r->gather)))
		emit_group(r, p);
	redis_conn_kick(r->conn);
}

static void on_emit(struct loop_dirty *d)
{
	emit_all(container_of(d, struct lease_redis, emit));
}

static struct gather_group *add(struct lease_redis *r, enum gather_kind kind, const char *worker, int64_t session,
				const struct uuid *task, int32_t attempt, uint64_t cookie)
{
	struct gather_group *p = gather_open(&r->gather, kind, worker, session);
	if (p->n == SCRIPT_TASKS_MAX) {
		emit_group(r, p);
		p = gather_open(&r->gather, kind, worker, session);
	}
	gather_add(p, task, attempt, cookie);
	loop_mark(r->loop, &r->emit);
	return p;
}

static void redis_preempt(struct lease *l, const struct lease_slot *items, size_t n)
{
	struct lease_redis *r = self(l);
	for (size_t i = 0; i < n; i++) {
		const struct lease_slot *s = &items[i];
		if (!usable(r, s->worker) || r->n_slots >= r->max_slots) {
			answers_add(&r->answers, s->cookie, LEASE_DOWN);
			loop_mark(r->loop, &r->deliver);
			continue;
		}
		r->n_slots++;
		struct gather_group *p = add(r, GATHER_PREEMPT, s->worker, s->session, &s->task, s->attempt, s->cookie);
		if (p->n == 1) {
			snprintf(p->master, sizeof(p->master), "%s", s->master);
			p->slots = s->slots;
			p->lease_ttl_ns = 0;
		}
		p->lease_ttl_ns = max_i64(p->lease_ttl_ns, s->lease_ttl_ns);
	}
}

static void redis_own(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_redis *r = self(l);
	for (size_t i = 0; i < n; i++) {
		const struct lease_owner *o = &items[i];
		if (!usable(r, o->worker)) {
			r->stats.dropped++;
			continue;
		}
		put_owner(r, &o->task, o->worker, o->session, o->attempt);
		add(r, GATHER_OWN, o->worker, o->session, &o->task, o->attempt, 0);
	}
	redis_conn_kick(r->conn);
}

static void redis_release(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_redis *r = self(l);
	for (size_t i = 0; i < n; i++) {
		const struct lease_owner *o = &items[i];
		struct key key;
		if (!usable(r, o->worker)) {
			r->stats.dropped++;
			continue;
		}
		task_key(r, &o->task, &key);
		begin_on_key(r, KIND_RELEASE, 0, SCRIPT_RELEASE_OWNER, &key, 2);
		redis_wire_str(r->wire, o->worker);
		redis_wire_i64(r->wire, o->attempt);
		end_write(r);
		add(r, GATHER_RELEASE, o->worker, 0, &o->task, o->attempt, 0);
	}
	redis_conn_kick(r->conn);
}

static void redis_beat(struct lease *l, const struct lease_beat *b)
{
	struct lease_redis *r = self(l);
	if (!usable(r, b->worker)) {
		r->stats.dropped++;
		return;
	}
	emit_all(r); /* the beat replaces the whole hash: what came before it must not be done after it */
	begin_on_worker(r, KIND_WRITE, 0, SCRIPT_BEAT, b->worker, 4 + 2 * b->n_held);
	redis_wire_str(r->wire, b->master);
	redis_wire_i64(r->wire, b->session);
	redis_wire_i64(r->wire, to_ms(b->lease_ttl_ns));
	redis_wire_i64(r->wire, r->task_key_ttl_ms);
	for (size_t i = 0; i < b->n_held; i++) {
		put_task(r, &b->held[i].task);
		redis_wire_i64(r->wire, b->held[i].attempt);
	}
	end_write(r);
	for (size_t i = 0; i < b->n_held; i++)
		if (!b->held[i].slot_only)
			put_owner(r, &b->held[i].task, b->worker, b->session, b->held[i].attempt);
	redis_conn_kick(r->conn);
}

static void redis_query_hb(struct lease *l, const char *worker, uint64_t cookie)
{
	struct lease_redis *r = self(l);
	if (usable(r, worker)) {
		struct key key;
		emit_all(r);
		worker_key(r, worker, "hb", &key);
		begin_on_key(r, KIND_HB, cookie, SCRIPT_HB, &key, 0);
		if (redis_wire_end(r->wire) == 0) {
			redis_conn_kick(r->conn);
			return;
		}
	}
	answers_add_hb(&r->answers, &(struct lease_hb){ .cookie = cookie, .presence = LEASE_UNKNOWN });
	loop_mark(r->loop, &r->deliver);
}

/* ---- sweeping ---- */

static void scan_done(struct lease_redis *r, bool ok)
{
	r->scan.busy = false;
	answers_set_page(&r->answers, ok ? &r->scan.page : NULL, r->scan.cookie, r->scan.next);
	loop_mark(r->loop, &r->deliver);
}

static void scan_items_done(struct lease_redis *r)
{
	if (r->scan.busy && r->scan.asked && r->scan.n_answered == r->scan.n)
		scan_done(r, !r->scan.failed);
}

/* All at once, in this turn's pipeline.  An owner key is read by GETRANGE: whatever is there, the reply is short. */
static void ask_items(struct loop_dirty *d)
{
	struct lease_redis *r = container_of(d, struct lease_redis, ask);
	struct redis_scan *s = &r->scan;
	struct key key;
	if (!redis_conn_up(r->conn)) {
		scan_done(r, false);
		return;
	}
	s->asked = true;
	for (size_t i = 0; i < s->n; i++) {
		const struct redis_scan_item *it = &s->items[i];
		if (it->worker)
			worker_key(r, it->worker, "hb", &key);
		else
			task_key(r, &it->task, &key);
		redis_wire_begin(r->wire, KIND_SCAN_ITEM, i, SCRIPTS, it->worker ? 2 : 4);
		redis_wire_str(r->wire, it->worker ? "EXISTS" : "GETRANGE");
		redis_wire_put(r->wire, key.text, key.len);
		if (!it->worker) {
			redis_wire_str(r->wire, "0");
			redis_wire_str(r->wire, SCAN_VALUE_END);
		}
		if (redis_wire_end(r->wire) < 0)
			redis_scan_item_reply(s, i, NULL);
	}
	scan_items_done(r);
	redis_conn_kick(r->conn);
}

static void redis_scan(struct lease *l, uint64_t from, uint64_t cookie)
{
	struct lease_redis *r = self(l);
	char cursor[24];
	assert(!r->scan.busy);
	redis_scan_begin(&r->scan, cookie);
	if (!redis_conn_up(r->conn)) {
		scan_done(r, false);
		return;
	}
	int len = snprintf(cursor, sizeof(cursor), "%" PRIu64, from);
	redis_wire_begin(r->wire, KIND_SCAN, 0, SCRIPTS, 6);
	redis_wire_str(r->wire, "SCAN");
	redis_wire_put(r->wire, cursor, (size_t)len);
	redis_wire_str(r->wire, "MATCH");
	redis_wire_str(r->wire, r->scan_pattern);
	redis_wire_str(r->wire, "COUNT");
	redis_wire_str(r->wire, SCAN_COUNT);
	if (redis_wire_end(r->wire) < 0)
		scan_done(r, false);
	redis_conn_kick(r->conn);
}

static void redis_disown(struct lease *l, const struct lease_owner *items, size_t n)
{
	struct lease_redis *r = self(l);
	for (size_t i = 0; i < n; i++) {
		const struct lease_owner *o = &items[i];
		struct key key;
		if (!usable(r, o->worker)) {
			r->stats.dropped++;
			continue;
		}
		task_key(r, &o->task, &key);
		begin_on_key(r, KIND_RELEASE, 0, SCRIPT_DISOWN, &key, 1);
		put_owner_value(r, o->worker, o->session, o->attempt);
		end_write(r);
	}
	redis_conn_kick(r->conn);
}

static void redis_drop_hash(struct lease *l, const char *worker)
{
	struct lease_redis *r = self(l);
	if (!usable(r, worker)) {
		r->stats.dropped++;
		return;
	}
	begin_on_worker(r, KIND_RELEASE, 0, SCRIPT_DROP_HASH, worker, 0);
	end_write(r);
	redis_conn_kick(r->conn);
}

/* A refusal of these says nothing of writes: the table goes on, its old keys end by their TTL. */
static void scan_reply(struct lease_redis *r, const struct redis_op *op, const redisReply *reply)
{
	if (op->kind == KIND_SCAN_ITEM) {
		redis_scan_item_reply(&r->scan, (size_t)op->cookie, reply);
		scan_items_done(r);
	} else if (!redis_scan_names(&r->scan, r->prefix, r->prefix_len, reply)) {
		scan_done(r, false);
	} else {
		loop_mark(r->loop, &r->ask);
	}
}

/* ---- replies ---- */

static bool has_word(const char *text, const char *word)
{
	/* Redis 6 wraps what a script met: "ERR Error running script …: -OOM command not allowed". */
	size_t len = strlen(word);
	for (const char *p = strstr(text, word); p; p = strstr(p + 1, word))
		if ((p == text || p[-1] == ' ' || p[-1] == '-') && (p[len] == ' ' || p[len] == '\0'))
			return true;
	return false;
}

/* True: no use staying on this connection. */
static bool note_error(struct lease_redis *r, const char *text)
{
	static const char *const leave[] = { "READONLY", "LOADING", "MASTERDOWN", "NOAUTH" };
	/* One key holds something foreign; the rest of Redis is well. */
	if (has_word(text, "WRONGTYPE"))
		return false;
	if (!r->refusing) {
		r->refusing = true;
		snprintf(r->state_text, sizeof(r->state_text), "%s", text);
		loop_mark(r->loop, &r->deliver);
	}
	for (size_t i = 0; i < ARRAY_LEN(leave); i++)
		if (has_word(text, leave[i]))
			return true;
	return false;
}

static void note_write(struct lease_redis *r)
{
	if (!r->refusing)
		return;
	r->refusing = false;
	snprintf(r->state_text, sizeof(r->state_text), "takes writes again");
	loop_mark(r->loop, &r->deliver);
}

/* "<master> <session>"; anything else is nobody's. */
static bool read_hb(const redisReply *value, struct lease_hb *hb)
{
	if (value->type != REDIS_REPLY_STRING || memchr(value->str, '\0', value->len))
		return false;
	const char *blank = strrchr(value->str, ' ');
	if (!blank || blank == value->str || blank - value->str > LEASE_MASTER_MAX || !blank[1])
		return false;
	char *end;
	errno = 0;
	long long session = strtoll(blank + 1, &end, 10);
	if (errno || *end || blank[1] < '0' || blank[1] > '9')
		return false;
	hb->session = session;
	memcpy(hb->master, value->str, (size_t)(blank - value->str));
	return true;
}

static void hb_reply(struct lease_redis *r, uint64_t cookie, const redisReply *reply)
{
	struct lease_hb hb = { .cookie = cookie, .presence = LEASE_UNKNOWN };
	if (reply && reply->type == REDIS_REPLY_NIL) {
		hb.presence = LEASE_ABSENT;
	} else if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
		   reply->element[1]->type == REDIS_REPLY_INTEGER && read_hb(reply->element[0], &hb)) {
		hb.presence = LEASE_PRESENT;
		/* -1, without an end, is not ours either, but it is there: no time left is the careful answer. */
		hb.ttl_ns = min_i64(max_i64(reply->element[1]->integer, 0), INT64_MAX / NS_PER_MS) * NS_PER_MS;
	}
	answers_add_hb(&r->answers, &hb);
}

static enum lease_op op_of(const struct redis_op *op)
{
	switch ((enum kind)op->kind) {
	case KIND_PREEMPT: return LEASE_PREEMPT;
	case KIND_HB: return LEASE_QUERY;
	case KIND_RELEASE: return LEASE_RELEASE;
	case KIND_SCAN:
	case KIND_SCAN_ITEM: return LEASE_SCAN;
	case KIND_WRITE: break;
	}
	return op->script == SCRIPT_BEAT ? LEASE_BEAT : LEASE_OWN;
}

static bool on_reply(void *arg, const struct redis_op *op, const redisReply *reply)
{
	struct lease_redis *r = arg;
	bool error = reply && reply->type == REDIS_REPLY_ERROR;
	/* Reads and deletions work in a full Redis too. A refused preempt wrote nothing either. */
	bool wrote = reply && op->kind == KIND_WRITE;
	if (reply)
		histogram_add(&r->stats.took[op_of(op)], loop_now_mono_ns(r->loop) - op->sent_mono_ns);
	if (op->kind == KIND_SCAN || op->kind == KIND_SCAN_ITEM) {
		scan_reply(r, op, reply);
		return false;
	}
	if (op->script == SCRIPT_BEAT && reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 2)
		r->stats.missing++;
	r->stats.refused += error;
	if (op->kind == KIND_PREEMPT) {
		wrote = reply && reply->type == REDIS_REPLY_STRING && memchr(reply->str, '0', reply->len);
		answer_group(r, (struct gather_group *)(uintptr_t)op->cookie, reply);
	} else if (op->kind == KIND_HB) {
		hb_reply(r, op->cookie, reply);
	} else if (!reply || error) {
		r->stats.dropped++;
	}
	loop_mark(r->loop, &r->deliver);
	if (error)
		return note_error(r, reply->str);
	if (wrote)
		note_write(r);
	return false;
}

static void on_state(void *arg, bool up, bool timed_out, const char *text)
{
	struct lease_redis *r = arg;
	r->refusing = false;
	if (up)
		r->stats.connects++;
	else
		r->failed_once = true;
	if (timed_out)
		r->stats.timeouts++;
	snprintf(r->state_text, sizeof(r->state_text), "%s", text);
	loop_mark(r->loop, &r->deliver);
}

static bool redis_is_up(const struct lease *l)
{
	const struct lease_redis *r = container_of(l, const struct lease_redis, base);
	return redis_conn_up(r->conn) && !r->refusing;
}

static void deliver(struct loop_dirty *d)
{
	struct lease_redis *r = container_of(d, struct lease_redis, deliver);
	answers_deliver(&r->answers);
	if (r->answers.closed)
		return;
	bool up = redis_is_up(&r->base);
	bool first = !r->told && (up || r->failed_once);
	if (!first && (!r->told || up == r->told_up))
		return;
	r->told = true;
	r->told_up = up;
	char text[sizeof(r->state_text)];
	memcpy(text, r->state_text, sizeof(text));
	r->answers.events->on_state(r->answers.arg, up, text);
}

static void redis_stats(const struct lease *l, struct lease_stats *ret)
{
	const struct lease_redis *r = container_of(l, const struct lease_redis, base);
	*ret = r->stats;
	ret->pending = (int64_t)(r->wire->n_ops + r->gather.groups.len + r->scan.busy);
}

/* ---- life ---- */

static void bury(struct loop_grave *g)
{
	struct lease_redis *r = container_of(g, struct lease_redis, grave);
	answers_done(&r->answers);
	struct list *n;
	while ((n = list_pop_front(&r->preempting)))
		gather_give_back(&r->gather, container_of(n, struct gather_group, node));
	gather_done(&r->gather);
	redis_scan_done(&r->scan);
	free(r);
}

static void redis_free(struct lease *l)
{
	struct lease_redis *r = self(l);
	r->answers.closed = true;
	redis_conn_free(r->conn);
	loop_unmark(&r->emit);
	loop_unmark(&r->ask);
	loop_unmark(&r->deliver);
	loop_bury(r->loop, &r->grave, bury);
}

static const struct lease_ops ops = {
	.preempt = redis_preempt,
	.own = redis_own,
	.release = redis_release,
	.beat = redis_beat,
	.query_hb = redis_query_hb,
	.scan = redis_scan,
	.disown = redis_disown,
	.drop_hash = redis_drop_hash,
	.is_up = redis_is_up,
	.stats = redis_stats,
	.free = redis_free,
};

static const struct redis_conn_events conn_events = { .on_reply = on_reply, .on_state = on_state };

int lease_redis_new(struct loop *loop, const struct lease_redis_config *cfg, const struct lease_events *events, void *arg,
		    char *ret_err, size_t err_cap, struct lease **ret)
{
	struct redis_url url;
	if (strlen(cfg->prefix) > PREFIX_MAX) {
		snprintf(ret_err, err_cap, "Redis prefix: longer than %d bytes", PREFIX_MAX);
		return -EINVAL;
	}
	if (redis_url_parse(cfg->url, &url, ret_err, err_cap) < 0)
		return -EINVAL;
	if (url.tls && !cfg->tls) {
		snprintf(ret_err, err_cap, "Redis URL: rediss:// needs TLS settings");
		redis_url_done(&url);
		return -EINVAL;
	}
	struct lease_redis *r = xcalloc(1, sizeof(*r));
	struct key probe;
	r->base.ops = &ops;
	r->loop = loop;
	r->task_key_ttl_ms = to_ms(cfg->task_key_ttl_ns);
	snprintf(r->prefix, sizeof(r->prefix), "%s", cfg->prefix);
	r->prefix_len = strlen(r->prefix);
	answers_init(&r->answers, events, arg);
	loop_dirty_init(&r->deliver, LOOP_WORK, deliver);
	gather_init(&r->gather);
	redis_scan_init(&r->scan);
	redis_scan_pattern(r->prefix, r->prefix_len, r->scan_pattern);
	list_init(&r->preempting);
	loop_dirty_init(&r->emit, LOOP_LEASE, on_emit);
	loop_dirty_init(&r->ask, LOOP_LEASE, ask_items);
	/* No worker has an empty id: this key never exists. */
	worker_key(r, "", "hb", &probe);
	const struct redis_conn_config conn = {
		.url = &url,
		.tls = cfg->tls,
		.probe_key = probe.text,
		.timeout_ns = cfg->timeout_ns,
		.connect_timeout_ns = max_i64(CONNECT_TIMEOUT, cfg->timeout_ns),
		.max_pending = cfg->max_pending ? cfg->max_pending : 262144,
		.max_bytes = cfg->max_bytes ? cfg->max_bytes : (size_t)64 << 20,
	};
	r->max_slots = conn.max_pending;
	r->conn = redis_conn_new(loop, &conn, &conn_events, r);
	r->wire = redis_conn_wire(r->conn);
	redis_url_done(&url);
	*ret = &r->base;
	return 0;
}

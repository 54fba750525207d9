#include "tests/unit/lease_fixture.h"

#include "server/lease/memory/memory.h"
#include "server/lease/redis/redis.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void on_preempted(void *arg, const struct lease_answer *answers, size_t n)
{
	struct fixture *f = arg;
	assert_false(f->inside);
	for (size_t i = 0; i < n; i++) {
		assert_true(answers[i].cookie < FIXTURE_COOKIES);
		assert_int_equal(f->verdicts[answers[i].cookie], NO_VERDICT);
		f->verdicts[answers[i].cookie] = (int)answers[i].verdict;
	}
	f->n_answers += n;
	if (f->hook)
		f->hook(f);
}

static void on_hb(void *arg, const struct lease_hb *hb)
{
	struct fixture *f = arg;
	assert_false(f->inside);
	f->hb = *hb;
	f->n_hbs++;
}

static void on_page(void *arg, const struct lease_page *page)
{
	struct fixture *f = arg;
	assert_false(f->inside);
	f->n_pages++;
	f->page = *page;
}

static void on_state(void *arg, bool up, const char *text)
{
	struct fixture *f = arg;
	assert_false(f->inside);
	assert_true(f->n_states == 0 || up != f->up);
	f->up = up;
	f->n_states++;
	snprintf(f->state_text, sizeof(f->state_text), "%s", text);
}

static const struct lease_events events = { .on_preempted = on_preempted, .on_hb = on_hb, .on_page = on_page,
					     .on_state = on_state };

static void on_guard(struct loop_timer *t)
{
	const struct fixture *f = container_of(t, struct fixture, guard);
	fprintf(stderr, "# waited in vain; state: %s\n", f->state_text);
	abort();
}

void fixture_arm(struct fixture *f)
{
	loop_timer_set(&f->guard, loop_now_mono_ns(f->loop) + 20 * NS_PER_S);
}

/* A turn whose timers made the condition true sleeps all the same: the tick ends that. */
static void on_tick(struct loop_timer *t)
{
}

void fixture_turn(struct fixture *f)
{
	loop_timer_set(&f->tick, loop_now_mono_ns(f->loop) + 10 * NS_PER_MS);
	loop_turn(f->loop, true);
}

void fixture_settle(struct fixture *f)
{
	struct lease_stats s;
	loop_turn(f->loop, false);
	UNTIL(f, (lease_stats(f->l, &s), s.pending == 0));
}

static void open_redis(struct fixture *f, const char *url, const struct fixture_options *o)
{
	char err[256];
	const struct lease_redis_config cfg = {
		.url = url, .prefix = "reins:", .task_key_ttl_ns = TTK_NS,
		.timeout_ns = o->timeout_ns ? o->timeout_ns : 2 * NS_PER_S, .max_pending = o->max_pending,
	};
	if (lease_redis_new(f->loop, &cfg, &events, f, err, sizeof(err), &f->l) < 0)
		fail_msg("%s", err);
}

void fixture_exchange(struct fixture *f, const char *url)
{
	lease_free(f->l);
	open_redis(f, url, &(struct fixture_options){ 0 });
}

void fixture_open(struct fixture *f, enum fixture_kind kind, struct redis_server *server, const struct fixture_options *o)
{
	static const struct fixture_options none;
	char url[64];
	if (!o)
		o = &none;
	memset(f, 0, sizeof(*f));
	f->kind = kind;
	f->server = server;
	for (size_t i = 0; i < FIXTURE_COOKIES; i++)
		f->verdicts[i] = NO_VERDICT;
	assert_int_equal(loop_new(&f->loop), 0);
	loop_timer_init(&f->guard, f->loop, on_guard);
	loop_timer_init(&f->tick, f->loop, on_tick);
	if (kind == FIXTURE_MEMORY) {
		const struct lease_memory_config cfg = { .task_key_ttl_ns = TTK_NS, .max_pending = o->max_pending };
		f->l = lease_memory_new(f->loop, &cfg, &events, f);
		return;
	}
	snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server ? server->port : 0);
	open_redis(f, o->url ? o->url : url, o);
	assert_false(lease_is_up(f->l));
	if (!o->stay_down)
		UNTIL(f, f->n_states && f->up);
}

void fixture_close(struct fixture *f)
{
	lease_free(f->l);
	f->l = NULL;
	loop_timer_stop(&f->guard);
	loop_timer_stop(&f->tick);
	loop_turn(f->loop, false);
	loop_turn(f->loop, false);
	loop_free(f->loop);
}

struct uuid task_id(unsigned n)
{
	struct uuid u = { { 1, 2, 3, 4, 5, 6, 0x77, 8, 0x89, 10 } };
	memcpy(u.b + 12, &n, sizeof(n));
	return u;
}

struct lease_slot slot_of(unsigned task, const char *worker, int64_t session, int32_t slots)
{
	return (struct lease_slot){ .cookie = task, .task = task_id(task), .slots = slots, .worker = worker, .master = "m1",
				    .session = session, .lease_ttl_ns = 10 * NS_PER_S };
}

int preempt(struct fixture *f, const struct lease_slot *slot)
{
	f->verdicts[slot->cookie] = NO_VERDICT;
	f->inside = true;
	lease_preempt(f->l, slot, 1);
	f->inside = false;
	assert_int_equal(f->verdicts[slot->cookie], NO_VERDICT);
	UNTIL(f, f->verdicts[slot->cookie] != NO_VERDICT);
	return f->verdicts[slot->cookie];
}

void own(struct fixture *f, unsigned task, int32_t attempt, const char *worker, int64_t session)
{
	struct lease_owner o = { .task = task_id(task), .attempt = attempt, .worker = worker, .session = session };
	lease_own(f->l, &o, 1);
	fixture_settle(f);
}

void release(struct fixture *f, unsigned task, int32_t attempt, const char *worker)
{
	struct lease_owner o = { .task = task_id(task), .attempt = attempt, .worker = worker };
	lease_release(f->l, &o, 1);
	fixture_settle(f);
}

void beat(struct fixture *f, const char *worker, int64_t session, int64_t ttl_ns, const struct lease_held *held, size_t n)
{
	struct lease_beat b = { .worker = worker, .master = "m1", .session = session, .lease_ttl_ns = ttl_ns, .held = held,
				.n_held = n };
	lease_beat(f->l, &b);
	fixture_settle(f);
}

const struct lease_hb *query(struct fixture *f, const char *worker)
{
	size_t n = f->n_hbs;
	f->inside = true;
	lease_query_hb(f->l, worker, 77);
	f->inside = false;
	UNTIL(f, f->n_hbs > n);
	assert_int_equal(f->hb.cookie, 77);
	return &f->hb;
}

const struct lease_page *scan(struct fixture *f, uint64_t from)
{
	size_t n = f->n_pages;
	f->inside = true;
	lease_scan(f->l, from, from + 5);
	f->inside = false;
	UNTIL(f, f->n_pages > n);
	assert_true(f->page.cookie == from + 5);
	return &f->page;
}

/* ---- looking ---- */

static char looked[512];

static const char *redis_value(struct fixture *f, const char *key, const char *field, int64_t *ret_ttl_ms)
{
	redisReply *r = field ? redis_server_ask(f->server, "HGET %s %s", key, field) : redis_server_ask(f->server, "GET %s", key);
	snprintf(looked, sizeof(looked), "%s", r->type == REDIS_REPLY_STRING ? r->str : "");
	freeReplyObject(r);
	r = redis_server_ask(f->server, "PTTL %s", key);
	*ret_ttl_ms = r->integer;
	freeReplyObject(r);
	return looked;
}

static struct lease_table *table(struct fixture *f)
{
	return lease_memory_table(f->l);
}

const char *look_hb(struct fixture *f, const char *worker, int64_t *ret_ttl_ms)
{
	char key[300];
	struct lease_hb hb;
	snprintf(key, sizeof(key), "reins:worker:{%s}:hb", worker);
	if (f->kind == FIXTURE_REDIS)
		return redis_value(f, key, NULL, ret_ttl_ms);
	lease_table_hb(table(f), loop_now_mono_ns(f->loop), worker, &hb);
	if (hb.presence != LEASE_PRESENT)
		return "";
	snprintf(looked, sizeof(looked), "%s %" PRId64, hb.master, hb.session);
	*ret_ttl_ms = hb.ttl_ns / NS_PER_MS;
	return looked;
}

const char *look_field(struct fixture *f, const char *worker, unsigned task, int64_t *ret_ttl_ms)
{
	struct uuid id = task_id(task);
	char key[300], text[UUID_TEXT_LEN + 1];
	int32_t attempt;
	snprintf(key, sizeof(key), "reins:worker:{%s}:task", worker);
	uuid_format(&id, text);
	if (f->kind == FIXTURE_REDIS)
		return redis_value(f, key, text, ret_ttl_ms);
	if (lease_table_field(table(f), loop_now_mono_ns(f->loop), worker, &id, &attempt, ret_ttl_ms) < 0)
		return "";
	*ret_ttl_ms /= NS_PER_MS;
	snprintf(looked, sizeof(looked), "%" PRId32, attempt);
	return looked;
}

const char *look_owner(struct fixture *f, unsigned task, int64_t *ret_ttl_ms)
{
	struct uuid id = task_id(task);
	char key[300], text[UUID_TEXT_LEN + 1];
	struct lease_owner o;
	uuid_format(&id, text);
	snprintf(key, sizeof(key), "reins:task:{%s}:workerId", text);
	if (f->kind == FIXTURE_REDIS)
		return redis_value(f, key, NULL, ret_ttl_ms);
	if (lease_table_owner(table(f), loop_now_mono_ns(f->loop), &id, &o, ret_ttl_ms) < 0)
		return "";
	*ret_ttl_ms /= NS_PER_MS;
	snprintf(looked, sizeof(looked), "%s %" PRId64 " %" PRId32, o.worker, o.session, o.attempt);
	return looked;
}

size_t look_held(struct fixture *f, const char *worker)
{
	if (f->kind == FIXTURE_MEMORY)
		return lease_table_held(table(f), loop_now_mono_ns(f->loop), worker);
	redisReply *r = redis_server_ask(f->server, "HLEN reins:worker:{%s}:task", worker);
	size_t n = (size_t)r->integer;
	freeReplyObject(r);
	return n;
}

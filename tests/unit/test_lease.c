/* What every lease table does: one suite, run over memory and over a private Redis. */
#include "tests/unit/lease_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct redis_server server;
static enum fixture_kind kinds[] = { FIXTURE_MEMORY, FIXTURE_REDIS };

static struct fixture *open_kind(void **state, const struct fixture_options *o)
{
	static struct fixture f;
	enum fixture_kind kind = *(enum fixture_kind *)*state;
	if (kind == FIXTURE_REDIS)
		redis_server_do(&server, "FLUSHALL");
	fixture_open(&f, kind, &server, o);
	return &f;
}

#define assert_ttl(ttl_ms, full_ns) assert_in_range(ttl_ms, (full_ns) / NS_PER_MS - 9000, (full_ns) / NS_PER_MS)

static void preempt_writes(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 2);
	int64_t ttl = -2;
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 7");
	assert_ttl(ttl, 10 * NS_PER_S);
	assert_string_equal(look_field(f, "w1", 1, &ttl), "0");
	assert_ttl(ttl, TTK_NS);
	assert_string_equal(look_owner(f, 1, &ttl), "");
	s = slot_of(2, "w1", 7, 2);
	s.attempt = 3;
	s.lease_ttl_ns = 1000 * NS_PER_S;
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_string_equal(look_field(f, "w1", 2, &ttl), "3");
	look_hb(f, "w1", &ttl); /* was there already: not written again */
	assert_ttl(ttl, 10 * NS_PER_S);
	fixture_close(f);
}

static void verdicts(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	int64_t ttl;
	struct lease_slot a = slot_of(1, "w1", 7, 2), b = slot_of(2, "w1", 7, 2), c = slot_of(3, "w1", 7, 2);
	assert_int_equal(preempt(f, &a), LEASE_OK);
	assert_int_equal(preempt(f, &b), LEASE_OK);
	assert_int_equal(preempt(f, &c), LEASE_FULL);
	assert_int_equal(preempt(f, &a), LEASE_OK); /* holds its slot already */
	assert_int_equal(look_held(f, "w1"), 2);
	struct lease_slot other = slot_of(3, "w2", 1, 1);
	assert_int_equal(preempt(f, &other), LEASE_OK);

	struct lease_slot old = slot_of(4, "w1", 6, 9);
	assert_int_equal(preempt(f, &old), LEASE_NEWER_SESSION);
	assert_string_equal(look_field(f, "w1", 4, &ttl), "");
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 7");

	/* A newer session finds an older one's hb and full hash: both begin anew. */
	struct lease_slot newer = slot_of(5, "w1", 8, 1);
	newer.master = "m2";
	assert_int_equal(preempt(f, &newer), LEASE_OK);
	assert_string_equal(look_hb(f, "w1", &ttl), "m2 8");
	assert_int_equal(look_held(f, "w1"), 1);
	fixture_close(f);
}

static void session_numbers(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	static const int64_t grows[] = { 1, 9, 10, 99, 100, INT64_C(9007199254740992), INT64_C(9007199254740993), INT64_MAX };
	for (size_t i = 0; i < ARRAY_LEN(grows); i++) {
		struct lease_slot s = slot_of(1, "w1", grows[i], 1);
		assert_int_equal(preempt(f, &s), LEASE_OK);
		if (i == 0)
			continue;
		s = slot_of(2, "w1", grows[i - 1], 9);
		assert_int_equal(preempt(f, &s), LEASE_NEWER_SESSION);
	}
	assert_true(query(f, "w1")->session == INT64_MAX);
	fixture_close(f);
}

static void owning(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	struct lease_slot s = slot_of(1, "w1", 7, 2);
	int64_t ttl;
	assert_int_equal(preempt(f, &s), LEASE_OK);
	own(f, 1, 4, "w1", 7);
	assert_string_equal(look_owner(f, 1, &ttl), "w1 7 4");
	assert_ttl(ttl, TTK_NS);
	assert_string_equal(look_field(f, "w1", 1, &ttl), "4");
	own(f, 2, 1, "w2", 1); /* without a preempt before: the hash has an end all the same */
	assert_string_equal(look_field(f, "w2", 2, &ttl), "1");
	assert_ttl(ttl, TTK_NS);
	own(f, 3, 1, "w1", 6); /* of an older session: not into the newer one's hash */
	assert_string_equal(look_field(f, "w1", 3, &ttl), "");
	fixture_close(f);
}

static void beating(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	int64_t ttl;
	struct lease_slot s = slot_of(1, "w1", 7, 2);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	const struct lease_held held[] = { { task_id(2), 5, false }, { task_id(3), 4, true } };
	beat(f, "w1", 7, 30 * NS_PER_S, held, 2);
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 7");
	assert_ttl(ttl, 30 * NS_PER_S);
	assert_string_equal(look_field(f, "w1", 1, &ttl), ""); /* the hash is replaced whole */
	assert_string_equal(look_field(f, "w1", 2, &ttl), "5");
	assert_string_equal(look_field(f, "w1", 3, &ttl), "4");
	assert_ttl(ttl, TTK_NS);
	assert_string_equal(look_owner(f, 2, &ttl), "w1 7 5");
	assert_ttl(ttl, TTK_NS);
	assert_string_equal(look_owner(f, 3, &ttl), ""); /* its slot only */

	beat(f, "w1", 6, 60 * NS_PER_S, NULL, 0); /* of an older session */
	assert_int_equal(look_held(f, "w1"), 2);
	look_hb(f, "w1", &ttl);
	assert_ttl(ttl, 30 * NS_PER_S);

	beat(f, "w1", 8, 10 * NS_PER_S, NULL, 0);
	assert_string_equal(look_hb(f, "w1", &ttl), "m1 8");
	assert_int_equal(look_held(f, "w1"), 0);
	fixture_close(f);
}

static void big_beat(void **state)
{
	enum { N = 10000 };
	static struct lease_held held[N];
	struct fixture *f = open_kind(state, NULL);
	struct lease_stats stats;
	int64_t ttl;
	for (unsigned i = 0; i < N; i++)
		held[i] = (struct lease_held){ task_id(i), (int32_t)i, false };
	beat(f, "w1", 1, 10 * NS_PER_S, held, N);
	assert_int_equal(look_held(f, "w1"), N);
	assert_string_equal(look_field(f, "w1", N - 1, &ttl), "9999");
	assert_string_equal(look_owner(f, N - 1, &ttl), "w1 1 9999");
	struct lease_slot s = slot_of(1, "w1", 1, N - 1);
	s.task = task_id(N);
	assert_int_equal(preempt(f, &s), LEASE_FULL);
	lease_stats(f->l, &stats);
	assert_int_equal(stats.dropped, 0);
	fixture_close(f);
}

static void releasing(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	int64_t ttl;
	own(f, 1, 2, "w1", 7);
	release(f, 1, 1, "w1");
	release(f, 1, 3, "w1");
	release(f, 1, 0, "w1");
	assert_string_equal(look_owner(f, 1, &ttl), "w1 7 2");
	assert_string_equal(look_field(f, "w1", 1, &ttl), "2");
	release(f, 1, 2, "w1");
	assert_string_equal(look_owner(f, 1, &ttl), "");
	assert_string_equal(look_field(f, "w1", 1, &ttl), "");

	/* Owner and field may name different attempts: each is judged by itself. */
	own(f, 2, 1, "w1", 7);
	own(f, 2, 2, "w2", 3);
	release(f, 2, 1, "w1");
	assert_string_equal(look_owner(f, 2, &ttl), "w2 3 2");
	assert_string_equal(look_field(f, "w1", 2, &ttl), "");
	assert_string_equal(look_field(f, "w2", 2, &ttl), "2");

	/* An attempt is its worker's. */
	own(f, 3, 1, "w1.a/b", 7);
	release(f, 3, 1, "w1");
	release(f, 3, 1, "a/b");
	assert_string_equal(look_owner(f, 3, &ttl), "w1.a/b 7 1");
	release(f, 3, 1, "w1.a/b");
	assert_string_equal(look_owner(f, 3, &ttl), "");

	struct lease_slot s = slot_of(5, "w3", 1, 1), t = slot_of(6, "w3", 1, 1);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	assert_int_equal(preempt(f, &t), LEASE_FULL);
	release(f, 5, 0, "w3"); /* the claim was lost: the reservation goes back */
	assert_int_equal(preempt(f, &t), LEASE_OK);
	fixture_close(f);
}

static void heartbeat_query(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	const struct lease_hb *hb = query(f, "w1");
	assert_int_equal(hb->presence, LEASE_ABSENT);
	beat(f, "w1", 12, 10 * NS_PER_S, NULL, 0);
	hb = query(f, "w1");
	assert_int_equal(hb->presence, LEASE_PRESENT);
	assert_int_equal(hb->session, 12);
	assert_string_equal(hb->master, "m1");
	assert_ttl(hb->ttl_ns / NS_PER_MS, 10 * NS_PER_S);
	fixture_close(f);
}

static size_t count_owner(const struct lease_page *p, unsigned task, int32_t attempt, const char *worker, int64_t session)
{
	struct uuid id = task_id(task);
	size_t n = 0;
	for (size_t i = 0; i < p->n_owners; i++) {
		const struct lease_owner *o = &p->owners[i];
		n += uuid_eq(&o->task, &id) && o->attempt == attempt && o->session == session && strcmp(o->worker, worker) == 0;
	}
	return n;
}

static void sweeping(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	int64_t ttl;
	const struct lease_page *p = scan(f, 0);
	assert_true(p->ok && p->next == 0 && p->n_owners == 0 && p->n_hashes == 0);

	/* w1 beats and w2 does not; of w3 there is only a reservation. */
	struct lease_slot s = slot_of(9, "w3", 1, 1);
	beat(f, "w1", 7, 10 * NS_PER_S, &(const struct lease_held){ task_id(1), 5, false }, 1);
	own(f, 2, 1, "w2", 3);
	own(f, 3, INT32_MAX, "w2", INT64_MAX);
	assert_int_equal(preempt(f, &s), LEASE_OK);
	p = scan(f, 0);
	assert_true(p->ok && p->next == 0);
	assert_int_equal(p->n_owners, 3);
	assert_int_equal(count_owner(p, 1, 5, "w1", 7), 1);
	assert_int_equal(count_owner(p, 2, 1, "w2", 3), 1);
	assert_int_equal(count_owner(p, 3, INT32_MAX, "w2", INT64_MAX), 1);
	assert_int_equal(p->n_hashes, 1);
	assert_string_equal(p->hashes[0], "w2");

	/* All that the key says, or nothing. */
	const struct lease_owner others[] = {
		{ task_id(1), 4, "w1", 7 }, { task_id(1), 5, "w2", 7 }, { task_id(1), 5, "w1", 6 }, { task_id(4), 5, "w1", 7 },
	};
	lease_disown(f->l, others, ARRAY_LEN(others));
	lease_drop_hash(f->l, "w1");
	lease_drop_hash(f->l, "w3");
	lease_drop_hash(f->l, "nobody");
	fixture_settle(f);
	assert_string_equal(look_owner(f, 1, &ttl), "w1 7 5");
	assert_string_equal(look_field(f, "w1", 1, &ttl), "5");
	assert_string_equal(look_field(f, "w3", 9, &ttl), "0");
	assert_string_equal(look_owner(f, 2, &ttl), "w2 3 1");

	const struct lease_owner gone[] = { { task_id(1), 5, "w1", 7 }, { task_id(3), INT32_MAX, "w2", INT64_MAX } };
	lease_disown(f->l, gone, ARRAY_LEN(gone));
	lease_drop_hash(f->l, "w2");
	fixture_settle(f);
	assert_string_equal(look_owner(f, 1, &ttl), "");
	assert_string_equal(look_owner(f, 3, &ttl), "");
	assert_int_equal(look_held(f, "w2"), 0);
	assert_int_equal(look_held(f, "w1"), 1); /* its field stays: the beat is the hash's */
	p = scan(f, 0);
	assert_int_equal(p->n_owners, 1);
	assert_int_equal(p->n_hashes, 0);
	fixture_close(f);
}

/* Every key on one page at least, though some go and others come meanwhile. */
static void sweeping_pages(void **state)
{
	enum { N = 3000 };
	static struct lease_held held[N];
	static size_t seen[N];
	struct fixture *f = open_kind(state, NULL);
	for (unsigned i = 0; i < N; i++)
		held[i] = (struct lease_held){ task_id(i), 1, false };
	beat(f, "w1", 1, 100 * NS_PER_S, held, N);
	memset(seen, 0, sizeof(seen));
	uint64_t next = 0;
	size_t pages = 0;
	do {
		const struct lease_page *p = scan(f, next);
		assert_true(p->ok);
		assert_true(p->n_owners < N / 4);
		pages++;
		next = p->next;
		for (size_t i = 0; i < p->n_owners; i++) {
			unsigned n;
			memcpy(&n, p->owners[i].task.b + 12, sizeof(n));
			if (n >= N)
				continue;
			seen[n]++;
			if (n % 2)
				lease_disown(f->l, &p->owners[i], 1);
		}
		own(f, (unsigned)(N + pages), 1, "w2", 1);
		own(f, 2, 1, "w1", 1); /* written anew, in its old place */
	} while (next);
	assert_true(pages >= N / 1024);
	for (size_t i = 0; i < N; i++)
		assert_true(seen[i] >= 1);
	fixture_settle(f);
	for (size_t i = 0; i < 10; i++) {
		int64_t ttl;
		assert_string_equal(look_owner(f, (unsigned)i, &ttl), i % 2 ? "" : "w1 1 1");
	}
	fixture_close(f);
}

static void scan_again(struct fixture *f)
{
	if (f->n_pages < 3)
		lease_scan(f->l, 0, 1);
}

static void sweeping_from_callback(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	own(f, 2, 1, "w2", 3);
	struct lease_slot s = slot_of(1, "w1", 1, 100);
	f->hook = scan_again;
	lease_preempt(f->l, &s, 1);
	UNTIL(f, f->n_pages == 1);
	assert_int_equal(count_owner(&f->page, 2, 1, "w2", 3), 1);
	lease_scan(f->l, 0, 1); /* its answer never comes */
	fixture_close(f);
}

static void expiry(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	beat(f, "w1", 12, 30 * NS_PER_MS, NULL, 0);
	fixture_arm(f);
	while (query(f, "w1")->presence != LEASE_ABSENT)
		;
	struct lease_slot s = slot_of(1, "w1", 3, 1); /* a missing hb refuses nobody */
	assert_int_equal(preempt(f, &s), LEASE_OK);
	fixture_close(f);
}

static void batches(void **state)
{
	enum { N = 2000 };
	static struct lease_slot slots[N];
	static char names[10][8];
	struct fixture *f = open_kind(state, NULL);
	for (unsigned i = 0; i < N; i++) {
		names[i % 10][0] = 'w';
		names[i % 10][1] = (char)('0' + i % 10);
		slots[i] = slot_of(i, names[i % 10], 1, 100);
	}
	f->inside = true;
	lease_preempt(f->l, slots, N);
	f->inside = false;
	UNTIL(f, f->n_answers == N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(f->verdicts[i], i < N / 2 ? LEASE_OK : LEASE_FULL);
	for (int i = 0; i < 10; i++)
		assert_int_equal(look_held(f, names[i]), 100);
	fixture_close(f);
}

/* More of one worker than one script takes, and all kinds of calls in one turn. */
static void groups(void **state)
{
	enum { N = 1300, SLOTS = 1200 };
	static struct lease_slot slots[N];
	static struct lease_owner owners[SLOTS];
	struct fixture *f = open_kind(state, NULL);
	int64_t ttl;
	for (unsigned i = 0; i < N; i++)
		slots[i] = slot_of(i, "w1", 1, SLOTS);
	for (unsigned i = 0; i < SLOTS; i++)
		owners[i] = (struct lease_owner){ .task = task_id(i), .attempt = 4, .worker = "w1", .session = 1 };
	lease_preempt(f->l, slots, N);
	UNTIL(f, f->n_answers == N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(f->verdicts[i], i < SLOTS ? LEASE_OK : LEASE_FULL);
	lease_own(f->l, owners, SLOTS);
	fixture_settle(f);
	assert_int_equal(look_held(f, "w1"), SLOTS);
	assert_string_equal(look_owner(f, SLOTS - 1, &ttl), "w1 1 4");

	/* Full; what goes makes room for what comes in the same turn, and another attempt's release takes nothing. */
	for (unsigned i = 0; i < N; i++)
		f->verdicts[i] = NO_VERDICT;
	owners[700].attempt = 3;
	lease_release(f->l, owners, 701);
	lease_preempt(f->l, slots + SLOTS, N - SLOTS);
	lease_preempt(f->l, slots, 1);
	owners[0].attempt = 5;
	lease_own(f->l, owners, 1);
	fixture_settle(f);
	for (unsigned i = SLOTS; i < N; i++)
		assert_int_equal(f->verdicts[i], LEASE_OK);
	assert_int_equal(look_held(f, "w1"), SLOTS - 700 + (N - SLOTS) + 1);
	assert_string_equal(look_owner(f, 0, &ttl), "w1 1 5");
	assert_string_equal(look_field(f, "w1", 0, &ttl), "5");
	assert_string_equal(look_owner(f, 1, &ttl), "");
	assert_string_equal(look_field(f, "w1", 1, &ttl), "");
	assert_string_equal(look_owner(f, 700, &ttl), "w1 1 4");
	assert_string_equal(look_field(f, "w1", 700, &ttl), "4");

	/* A beat is the whole truth of its moment: what came before it in the turn is not done after it. */
	struct lease_held held = { task_id(5000), 1, false };
	lease_own(f->l, owners + 900, 10);
	lease_beat(f->l, &(struct lease_beat){ .worker = "w1", .master = "m1", .session = 1, .lease_ttl_ns = NS_PER_S, .held = &held, .n_held = 1 });
	lease_own(f->l, owners + 900, 1);
	fixture_settle(f);
	assert_int_equal(look_held(f, "w1"), 2);
	fixture_close(f);
}

static void pending_bound(void **state)
{
	enum { N = 100, BOUND = 32 };
	struct lease_slot slots[N];
	struct fixture *f = open_kind(state, &(struct fixture_options){ .max_pending = BOUND });
	for (unsigned i = 0; i < N; i++)
		slots[i] = slot_of(i, "w1", 1, 1000);
	lease_preempt(f->l, slots, N);
	UNTIL(f, f->n_answers == N);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(f->verdicts[i], i < BOUND ? LEASE_OK : LEASE_DOWN);
	assert_true(lease_is_up(f->l));
	assert_int_equal(preempt(f, &slots[N - 1]), LEASE_OK);
	fixture_close(f);
}

static void again(struct fixture *f)
{
	if (f->n_answers >= 5)
		return;
	struct lease_slot s = slot_of((unsigned)f->n_answers + 1, "w1", 1, 100);
	f->inside = true;
	lease_preempt(f->l, &s, 1);
	lease_query_hb(f->l, "w1", 77);
	f->inside = false;
}

static void calls_from_callbacks(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	struct lease_slot s = slot_of(0, "w1", 1, 100);
	f->hook = again;
	lease_preempt(f->l, &s, 1);
	UNTIL(f, f->n_answers == 5 && f->n_hbs == 4);
	fixture_close(f);
}

static void free_it(struct fixture *f)
{
	lease_free(f->l);
	f->l = NULL;
}

static void free_from_callback(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	struct lease_slot s = slot_of(0, "w1", 1, 100);
	f->hook = free_it;
	lease_scan(f->l, 0, 1);
	lease_query_hb(f->l, "w1", 77); /* its answer is due in the same delivery and must not come */
	lease_preempt(f->l, &s, 1);
	lease_query_hb(f->l, "w1", 77);
	UNTIL(f, f->n_answers == 1);
	size_t n = f->n_hbs;
	loop_turn(f->loop, false);
	assert_int_equal(f->n_hbs, n);
	assert_int_equal(f->n_pages, 0);
	fixture_close(f);
}

static void free_with_work_pending(void **state)
{
	struct fixture *f = open_kind(state, NULL);
	struct lease_slot s = slot_of(0, "w1", 1, 100);
	lease_preempt(f->l, &s, 1);
	fixture_close(f);
	f = open_kind(state, NULL);
	lease_preempt(f->l, &s, 1);
	loop_turn(f->loop, false);
	size_t n = f->n_answers;
	fixture_close(f);
	assert_int_equal(f->n_answers, n);
}

static int start_redis(void **state)
{
	redis_server_start(&server);
	return 0;
}

static int stop_redis(void **state)
{
	redis_server_stop(&server);
	return 0;
}

#define BOTH(t) \
	{ #t " (memory)", t, NULL, NULL, &kinds[0] }, { #t " (redis)", t, NULL, NULL, &kinds[1] }

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(preempt_writes), BOTH(verdicts),        BOTH(session_numbers),      BOTH(owning),
		BOTH(beating),        BOTH(big_beat),        BOTH(releasing),            BOTH(heartbeat_query),
		BOTH(expiry),         BOTH(batches),         BOTH(groups), BOTH(sweeping), BOTH(sweeping_pages), BOTH(sweeping_from_callback), BOTH(pending_bound), BOTH(calls_from_callbacks),
		BOTH(free_from_callback), BOTH(free_with_work_pending),
	};
	return cmocka_run_group_tests(tests, start_redis, stop_redis);
}

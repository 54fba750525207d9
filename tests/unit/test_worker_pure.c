/* The worker's parts without I/O: the machine of an attempt, lease arithmetic, backoff, the log of an attempt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/rng.h"
#include "worker/backoff.h"
#include "worker/lease.h"
#include "worker/logs.h"
#include "worker/machine.h"

/* ---- machine ---- */

static enum attempt_state go(enum attempt_state from, enum attempt_event event, enum attempt_action action)
{
	struct attempt_step step = attempt_step(from, event);
	assert_int_equal(step.action, action);
	return step.next;
}

static void machine_life(void **state)
{
	enum attempt_state s = ATTEMPT_DISPATCHED;
	s = go(s, EVENT_START, ACTION_SPAWN);
	s = go(s, EVENT_EXEC_OK, ACTION_STARTED);
	s = go(s, EVENT_EXIT, ACTION_CLEAR);
	s = go(s, EVENT_EMPTY, ACTION_REPORT);
	assert_false(attempt_state_holds_slot(s));
	s = go(s, EVENT_VERDICT, ACTION_FORGET);
	assert_int_equal(s, ATTEMPT_GONE);
}

static void machine_stops(void **state)
{
	static const enum attempt_event stops[] = {EVENT_STOP, EVENT_TIMEOUT, EVENT_LEASE};
	for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
		enum attempt_state s = go(ATTEMPT_RUNNING, stops[i], ACTION_TERM);
		assert_int_equal(s, ATTEMPT_STOPPING);
		/* A stop once begun goes on whatever arrives. */
		for (size_t k = 0; k < ARRAY_LEN(stops); k++)
			assert_int_equal(go(s, stops[k], ACTION_NONE), ATTEMPT_STOPPING);
		s = go(s, EVENT_KILL, ACTION_KILL);
		s = go(s, EVENT_EXIT, ACTION_CLEAR);
		assert_int_equal(s, ATTEMPT_CLEARING);
		assert_int_equal(go(s, EVENT_STOP, ACTION_NONE), ATTEMPT_CLEARING);
	}
	assert_int_equal(go(ATTEMPT_RUNNING, EVENT_RECALL, ACTION_NONE), ATTEMPT_RUNNING);
	assert_int_equal(go(ATTEMPT_DISPATCHED, EVENT_RECALL, ACTION_REFUSE), ATTEMPT_GONE);
	assert_int_equal(go(ATTEMPT_DISPATCHED, EVENT_LEASE, ACTION_NONE), ATTEMPT_DISPATCHED);
}

/* Whatever legal events come, an attempt that was fenced or stopped never runs again, one that was spawned is cleared
 * before its slot is free, and every state but GONE takes a stop and a fence. */
static void machine_walks(void **state)
{
	struct rng rng;
	rng_seed(&rng, 42);
	for (int walk = 0; walk < 20000; walk++) {
		enum attempt_state s = ATTEMPT_DISPATCHED;
		bool spawned = false, cleared = false, stopping = false;
		for (int n = 0; n < 30 && s != ATTEMPT_GONE; n++) {
			assert_int_not_equal(attempt_step(s, EVENT_STOP).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_RECALL).action, ACTION_ILLEGAL);
			assert_int_not_equal(attempt_step(s, EVENT_FENCED).action, ACTION_ILLEGAL);
			enum attempt_event e = (enum attempt_event)rng_below(&rng, ATTEMPT_EVENTS);
			struct attempt_step step = attempt_step(s, e);
			if (step.action == ACTION_ILLEGAL) {
				assert_int_equal(step.next, s);
				continue;
			}
			assert_true(step.next >= s);
			spawned |= step.action == ACTION_SPAWN;
			cleared |= step.action == ACTION_CLEAR || e == EVENT_SPAWN_FAILED;
			stopping |= step.next == ATTEMPT_STOPPING;
			assert_false(stopping && step.next == ATTEMPT_RUNNING);
			if (spawned && !attempt_state_holds_slot(step.next))
				assert_true(cleared);
			s = step.next;
		}
	}
}

/* ---- lease ---- */

static void lease_numbers(void **state)
{
	struct lease_rule r;
	lease_rule_set(&r, 10 * NS_PER_S, 10 * NS_PER_S);
	assert_int_equal(r.margin_ns, NS_PER_S);
	assert_int_equal(r.grace_ns, 3 * NS_PER_S);
	int64_t s = 100 * NS_PER_S;
	assert_int_equal(lease_term_due(&r, s), 106 * NS_PER_S);
	assert_int_equal(lease_kill_due(&r, s), 109 * NS_PER_S);
	assert_true(lease_may_start(&r, s, 106 * NS_PER_S - 1));
	assert_false(lease_may_start(&r, s, 106 * NS_PER_S));
	assert_false(lease_may_start(&r, LEASE_NEVER, 0));
	assert_true(lease_term_due(&r, LEASE_NEVER) == LEASE_NEVER);
	lease_rule_set(&r, 10 * NS_PER_S, NS_PER_S); /* a short grace is not lengthened */
	assert_int_equal(lease_term_due(&r, s), 108 * NS_PER_S);
	/* Live with the defaults: H + two ack timeouts + G + m <= L. */
	int64_t ack = lease_ack_timeout_ns(10 * NS_PER_S, 2 * NS_PER_S);
	assert_int_equal(ack, 2 * NS_PER_S);
	assert_true(2 * NS_PER_S + 2 * ack + 3 * NS_PER_S + NS_PER_S <= 10 * NS_PER_S);
	assert_int_equal(lease_ack_timeout_ns(NS_PER_S, NS_PER_S), 50 * NS_PER_MS);
}

/* Spread over the whole range, and never outside. */
static void second_beats(void **state)
{
	struct rng rng;
	int low = 0, high = 0;
	rng_seed(&rng, 3);
	for (int i = 0; i < 1000; i++) {
		int64_t at = lease_second_beat_ns(&rng, 1000);
		assert_in_range(at, 250, 1000);
		low += at < 325;
		high += at > 925;
	}
	assert_in_range(low, 50, 200);
	assert_in_range(high, 50, 200);
	assert_in_range(lease_second_beat_ns(&rng, 1), 0, 1);
}

/* ---- backoff ---- */

static void backoff_grows_and_resets(void **state)
{
	struct backoff b;
	backoff_init(&b, 100, 1000, 7);
	static const int64_t bounds[] = {100, 200, 400, 800, 1000, 1000};
	for (int round = 0; round < 200; round++) {
		int64_t seen = 0;
		for (size_t i = 0; i < ARRAY_LEN(bounds); i++) {
			assert_int_equal(b.bound_ns, bounds[i]);
			int64_t wait = backoff_next(&b);
			assert_in_range(wait, 0, bounds[i]);
			seen = max_i64(seen, wait);
		}
		assert_true(seen > 0);
		backoff_reset(&b);
	}
	backoff_set_max(&b, 50); /* not below the first */
	assert_int_equal(b.max_ns, 100);
	backoff_set_max(&b, 5000);
	backoff_to_max(&b);
	assert_int_equal(b.bound_ns, 5000);
}

/* Full jitter: waits are spread over the whole range. */
static void backoff_jitter(void **state)
{
	struct backoff b;
	int low = 0, high = 0;
	backoff_init(&b, 1000, 1000, 1);
	for (int i = 0; i < 1000; i++) {
		int64_t w = backoff_next(&b);
		low += w < 100;
		high += w > 900;
	}
	assert_in_range(low, 50, 200);
	assert_in_range(high, 50, 200);
}

/* ---- logs ---- */

static struct logs_budget budget;
static struct logs_config config;

static void fresh(struct attempt_log *l, int64_t limit, size_t bound)
{
	budget = (struct logs_budget){.max = 1 << 30};
	config = (struct logs_config){.limit = limit, .bound = bound, .budget = &budget};
	logs_init(l, &config);
}

static void done(struct attempt_log *l)
{
	logs_done(l);
	assert_int_equal(budget.held, 0);
}

static void expect_piece(struct attempt_log *l, int stream, int64_t offset, const char *text)
{
	struct logs_piece p;
	assert_true(logs_next(l, &p));
	assert_int_equal(p.stream, stream);
	assert_int_equal(p.offset, offset);
	assert_int_equal(p.dropped, 0);
	assert_int_equal(p.len, strlen(text));
	assert_memory_equal(p.data, text, p.len);
	logs_sent(l, &p);
}

static void expect_gap(struct attempt_log *l, int64_t offset, int64_t dropped)
{
	struct logs_piece p;
	assert_true(logs_next(l, &p));
	assert_int_equal(p.offset, offset);
	assert_int_equal(p.len, 0);
	assert_int_equal(p.dropped, dropped);
	logs_sent(l, &p);
}

static void expect_nothing(struct attempt_log *l)
{
	struct logs_piece p;
	assert_false(logs_next(l, &p));
}

static void add(struct attempt_log *l, int stream, const char *text)
{
	assert_int_equal(logs_add(l, stream, text, strlen(text), 1, false), strlen(text));
}

static void logs_one_count_over_both_streams(void **state)
{
	struct attempt_log l;
	fresh(&l, 1000, 1 << 20);
	add(&l, 1, "one");
	add(&l, 1, "two");
	add(&l, 2, "three");
	add(&l, 1, "four");
	expect_piece(&l, 1, 0, "onetwo");
	expect_piece(&l, 2, 6, "three");
	expect_piece(&l, 1, 11, "four");
	expect_nothing(&l);
	add(&l, 1, "five"); /* after what was sent of the same chunk */
	expect_piece(&l, 1, 15, "five");
	assert_false(logs_all_sent(&l));
	logs_close(&l);
	assert_true(logs_all_sent(&l));
	done(&l);
}

static void logs_sent_again_from_any_offset(void **state)
{
	struct attempt_log l;
	fresh(&l, 1000, 1 << 20);
	add(&l, 1, "abcdef");
	add(&l, 2, "ghi");
	expect_piece(&l, 1, 0, "abcdef");
	logs_rewind(&l, 4); /* in the middle of a piece */
	expect_piece(&l, 1, 4, "ef");
	logs_stored(&l, 6);
	logs_rewind(&l, 6);
	expect_piece(&l, 2, 6, "ghi");
	logs_rewind(&l, 2); /* a master that lost what it had: what is gone here is said */
	expect_gap(&l, 2, 4);
	expect_piece(&l, 2, 6, "ghi");
	logs_stored(&l, 1 << 30); /* more than there is */
	assert_int_equal(l.stored, 9);
	assert_int_equal(budget.held, 0);
	add(&l, 1, "x");
	expect_piece(&l, 1, 9, "x");
	done(&l);
}

static void logs_limit(void **state)
{
	struct attempt_log l;
	fresh(&l, 5, 1 << 20);
	assert_int_equal(logs_add(&l, 1, "abcdefgh", 8, 1, false), 5);
	expect_piece(&l, 1, 0, "abcde");
	expect_nothing(&l); /* the gap still grows */
	logs_stored(&l, 5);
	assert_int_equal(logs_add(&l, 2, "ijkl", 4, 1, false), 0);
	expect_nothing(&l);
	assert_false(logs_full(&l)); /* nothing is held back for what is not kept */
	logs_close(&l);
	expect_gap(&l, 5, 7);
	assert_true(logs_all_sent(&l));
	assert_int_equal(l.end, 12);
	assert_int_equal(l.dropped, 7);
	done(&l);
}

static void logs_limit_lowered(void **state)
{
	struct attempt_log l;
	fresh(&l, 8, 1 << 20);
	assert_int_equal(logs_add(&l, 1, "abcdef", 6, 1, false), 6);
	config.limit = 4; /* another master keeps less */
	assert_int_equal(logs_add(&l, 1, "gh", 2, 1, false), 0);
	logs_close(&l);
	expect_piece(&l, 1, 0, "abcdef");
	expect_gap(&l, 6, 2);
	assert_true(logs_all_sent(&l));
	done(&l);
}

static void logs_bound(void **state)
{
	struct attempt_log l;
	static char block[LOGS_PIECE_MAX];
	fresh(&l, 1 << 30, 3 * LOGS_PIECE_MAX);
	int n = 0;
	for (; !logs_full(&l); n++)
		assert_int_equal(logs_add(&l, 1, block, sizeof(block), 1, true), sizeof(block));
	assert_in_range(n, 3, 4);
	assert_int_equal(logs_add(&l, 1, "lost", 4, 1, true), 0);
	assert_int_equal(logs_add(&l, 2, "too", 3, 1, true), 0);
	logs_stored(&l, (int64_t)sizeof(block));
	logs_stored(&l, 2 * (int64_t)sizeof(block));
	assert_false(logs_full(&l));
	add(&l, 1, "back");
	struct logs_piece p;
	int64_t at = 2 * (int64_t)sizeof(block);
	for (; logs_next(&l, &p) && p.len == sizeof(block); at += (int64_t)p.len)
		logs_sent(&l, &p);
	expect_gap(&l, at, 7);
	expect_piece(&l, 1, at + 7, "back");
	/* The budget of all logs counts too. */
	budget.max = budget.held;
	assert_true(logs_full(&l));
	done(&l);
}

static void logs_lost_with_the_process(void **state)
{
	struct attempt_log l;
	fresh(&l, 1000, 1 << 20);
	logs_lost(&l, 50);
	logs_rewind(&l, 20);
	expect_gap(&l, 20, 30);
	assert_true(logs_all_sent(&l));
	logs_rewind(&l, 50);
	assert_true(logs_all_sent(&l));
	done(&l);
}

/* Random reads, sends, rewinds and acknowledgements: a receiver that stores by offset gets exactly what was written, with
 * gaps where it was told so. */
static void logs_random(void **state)
{
	static uint8_t written[1 << 20], got[1 << 20];
	static bool lost[1 << 20];
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct attempt_log l;
		struct rng rng;
		int64_t end = 0, received = 0;
		rng_seed(&rng, seed);
		fresh(&l, seed % 3 ? 1 << 30 : 200000, 100000);
		memset(lost, 0, sizeof(lost));
		while (end < 900000 || !logs_all_sent(&l)) {
			size_t n = rng_below(&rng, 70000);
			struct logs_piece p;
			switch (rng_below(&rng, 8)) {
			case 0: case 1: case 2:
				if (end >= 900000) {
					if (!l.closed)
						logs_close(&l);
					break;
				}
				for (size_t i = 0; i < n; i++)
					written[end + (int64_t)i] = (uint8_t)rng_next(&rng);
				logs_add(&l, 1 + (int)rng_below(&rng, 2), written + end, n, 1, rng_below(&rng, 2));
				end += (int64_t)n;
				break;
			case 3:
				logs_rewind(&l, max_i64(l.stored, (int64_t)rng_below(&rng, (uint64_t)received + 1)));
				break;
			case 4:
				logs_stored(&l, received);
				break;
			default:
				if (!logs_next(&l, &p))
					break;
				assert_true(p.offset <= received);
				assert_true(p.len <= LOGS_PIECE_MAX);
				assert_true((p.len == 0) == (p.dropped > 0));
				for (size_t i = 0; i < p.len; i++)
					got[p.offset + (int64_t)i] = p.data[i];
				for (int64_t i = 0; i < p.dropped; i++)
					lost[p.offset + i] = true;
				received = max_i64(received, p.offset + (int64_t)p.len + p.dropped);
				logs_sent(&l, &p);
			}
		}
		assert_int_equal(received, end);
		assert_int_equal(l.kept + l.dropped, end);
		int64_t n_lost = 0;
		for (int64_t i = 0; i < end; i++) {
			n_lost += lost[i];
			if (!lost[i] && got[i] != written[i])
				fail_msg("seed %d: byte %d differs", (int)seed, (int)i);
		}
		assert_int_equal(n_lost, l.dropped);
		done(&l);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(machine_life),
		cmocka_unit_test(machine_stops),
		cmocka_unit_test(machine_walks),
		cmocka_unit_test(lease_numbers),
		cmocka_unit_test(second_beats),
		cmocka_unit_test(backoff_grows_and_resets),
		cmocka_unit_test(backoff_jitter),
		cmocka_unit_test(logs_one_count_over_both_streams),
		cmocka_unit_test(logs_sent_again_from_any_offset),
		cmocka_unit_test(logs_limit), cmocka_unit_test(logs_limit_lowered),
		cmocka_unit_test(logs_bound),
		cmocka_unit_test(logs_lost_with_the_process),
		cmocka_unit_test(logs_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

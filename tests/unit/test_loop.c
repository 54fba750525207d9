#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/rng.h"
#include "tests/unit/turns.h"

static struct loop *loop;
static char trace[256];

static void note(const char *what)
{
	size_t len = strlen(trace);
	snprintf(trace + len, sizeof(trace) - len, "%s ", what);
}

static int setup(void **state)
{
	trace[0] = '\0';
	return loop_new(&loop);
}

static int teardown(void **state)
{
	loop_free(loop);
	return 0;
}

/* ---- flush ---- */

struct owner {
	struct loop_dirty d;
	const char *name;
	struct owner *marks[2];
	int again; /* marks itself so many times more */
	int flushed;
};

static void on_flush(struct loop_dirty *d)
{
	struct owner *o = container_of(d, struct owner, d);
	o->flushed++;
	if (o->name)
		note(o->name);
	for (size_t i = 0; i < ARRAY_LEN(o->marks); i++)
		if (o->marks[i])
			loop_mark(loop, &o->marks[i]->d);
	if (o->again > 0) {
		o->again--;
		loop_mark(loop, d);
	}
}

static void own(struct owner *o, enum loop_phase phase, const char *name)
{
	*o = (struct owner){ .name = name };
	loop_dirty_init(&o->d, phase, on_flush);
}

static void phases_in_order(void **state)
{
	struct owner w, s, l, x, x2;
	own(&w, LOOP_WORK, "work");
	own(&s, LOOP_STORE, "store");
	own(&l, LOOP_LEASE, "lease");
	own(&x, LOOP_WRITE, "write");
	own(&x2, LOOP_WRITE, "write2");
	loop_mark(loop, &x.d);
	loop_mark(loop, &l.d);
	loop_mark(loop, &x2.d);
	loop_mark(loop, &w.d);
	loop_mark(loop, &s.d);
	loop_mark(loop, &w.d); /* twice is once */
	loop_turn(loop, false);
	assert_string_equal(trace, "work store lease write write2 ");
	loop_turn(loop, false);
	assert_string_equal(trace, "work store lease write write2 ");
}

static void marks_inside_a_flush(void **state)
{
	struct owner w, s, x;
	own(&w, LOOP_WORK, "work");
	own(&s, LOOP_STORE, "store");
	own(&x, LOOP_WRITE, "write");
	/* A later phase: the same round.  An earlier one: the next round of the same turn. */
	w.marks[0] = &x;
	x.marks[0] = &s;
	loop_mark(loop, &w.d);
	loop_turn(loop, false);
	assert_string_equal(trace, "work write store ");
}

static void unmarked_is_not_flushed(void **state)
{
	struct owner a, b;
	own(&a, LOOP_WORK, "a");
	own(&b, LOOP_WORK, "b");
	loop_unmark(&a.d);
	loop_mark(loop, &a.d);
	loop_mark(loop, &b.d);
	loop_unmark(&a.d);
	loop_turn(loop, false);
	assert_string_equal(trace, "b ");
}

static struct owner *victim;

static void on_flush_unmark(struct loop_dirty *d)
{
	loop_unmark(&victim->d);
}

static void unmark_in_the_same_batch(void **state)
{
	struct owner a, b;
	own(&a, LOOP_WORK, "a");
	own(&b, LOOP_WORK, "b");
	a.d.flush = on_flush_unmark;
	victim = &b;
	loop_mark(loop, &a.d);
	loop_mark(loop, &b.d);
	loop_turn(loop, false);
	assert_int_equal(b.flushed, 0);
}

static void on_far(struct loop_timer *t)
{
	fail_msg("the loop slept with work left");
}

static void rounds_are_bounded(void **state)
{
	struct owner a;
	struct loop_timer far;
	own(&a, LOOP_STORE, NULL);
	a.again = 10 * LOOP_MAX_ROUNDS;
	loop_mark(loop, &a.d);
	/* A libuv iteration in between would flush a second time: what is counted is one end of a turn. */
	loop_stop(loop);
	loop_run(loop);
	assert_int_equal(a.flushed, LOOP_MAX_ROUNDS);
	/* The rest comes without sleeping. */
	loop_timer_init(&far, loop, on_far);
	loop_timer_set(&far, clock_mono_ns() + 3600 * NS_PER_S);
	while (a.again)
		loop_turn(loop, true);
	loop_turn(loop, false);
	assert_int_equal(a.flushed, 1 + 10 * LOOP_MAX_ROUNDS);
	loop_timer_stop(&far);
}

static void rest_of_a_flush_comes_without_sleep(void **state)
{
	struct owner a;
	own(&a, LOOP_WORK, NULL);
	a.again = 10 * LOOP_MAX_ROUNDS;
	loop_mark(loop, &a.d);
	loop_run(loop); /* nothing but the dirty one keeps it going */
	assert_int_equal(a.flushed, 1 + 10 * LOOP_MAX_ROUNDS);
}

/* ---- burial ---- */

struct corpse {
	struct loop_grave grave;
	struct loop_dirty d;
	bool buried;
};

static void on_burial(struct loop_grave *g)
{
	container_of(g, struct corpse, grave)->buried = true;
	note("buried");
}

static void on_corpse_flush(struct loop_dirty *d)
{
	struct corpse *c = container_of(d, struct corpse, d);
	loop_bury(loop, &c->grave, on_burial);
	assert_false(c->buried);
	note("flushed");
}

static void burial_ends_the_turn(void **state)
{
	struct corpse c = { 0 };
	struct owner later;
	loop_dirty_init(&c.d, LOOP_WORK, on_corpse_flush);
	own(&later, LOOP_WRITE, "write");
	loop_mark(loop, &c.d);
	loop_mark(loop, &later.d);
	loop_turn(loop, false);
	assert_string_equal(trace, "flushed write buried ");
}

static void loop_free_buries(void **state)
{
	struct loop *other;
	struct corpse c = { 0 };
	assert_int_equal(loop_new(&other), 0);
	loop_bury(other, &c.grave, on_burial);
	loop_free(other);
	assert_true(c.buried);
}

/* ---- timers ---- */

struct alarm {
	struct loop_timer t;
	const char *name;
	int fired;
	int again;
	struct alarm *stops;
	int64_t late_by;
};

static int64_t last_due;

static void on_alarm(struct loop_timer *t)
{
	struct alarm *a = container_of(t, struct alarm, t);
	int64_t now = clock_mono_ns();
	assert_true(now >= t->due_mono_ns);
	assert_true(loop_now_mono_ns(loop) >= t->due_mono_ns);
	assert_true(t->due_mono_ns >= last_due);
	assert_false(loop_timer_active(t));
	last_due = t->due_mono_ns;
	a->fired++;
	if (a->name)
		note(a->name);
	if (a->stops)
		loop_timer_stop(&a->stops->t);
	if (a->again > 0) {
		a->again--;
		loop_timer_set(t, t->due_mono_ns);
		assert_true(loop_timer_active(t));
	}
}

static void timers_in_order(void **state)
{
	struct alarm a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" }, d = { .name = "d" };
	int64_t now = clock_mono_ns();
	last_due = 0;
	loop_timer_init(&a.t, loop, on_alarm);
	loop_timer_init(&b.t, loop, on_alarm);
	loop_timer_init(&c.t, loop, on_alarm);
	loop_timer_init(&d.t, loop, on_alarm);
	loop_timer_set(&c.t, now + 3 * NS_PER_MS);
	loop_timer_set(&a.t, now + 20 * NS_PER_MS);
	loop_timer_set(&b.t, now + 2 * NS_PER_MS);
	loop_timer_set(&d.t, now + 3 * NS_PER_MS); /* with c, after it */
	loop_timer_set(&a.t, now + 1 * NS_PER_MS); /* moved */
	loop_run(loop);
	assert_string_equal(trace, "a b c d ");
	assert_false(loop_timer_active(&a.t));
}

static void a_past_deadline_fires_once_a_turn(void **state)
{
	struct alarm a = { .again = 5 }, b = { 0 };
	last_due = INT64_MIN;
	loop_timer_init(&a.t, loop, on_alarm);
	loop_timer_init(&b.t, loop, on_alarm);
	loop_timer_set(&a.t, 1);
	loop_timer_set(&b.t, 1);
	assert_int_equal(a.fired, 0);
	loop_turn(loop, false);
	assert_int_equal(a.fired, 1);
	assert_int_equal(b.fired, 1); /* not starved by the one that comes again and again */
	loop_run(loop);
	assert_int_equal(a.fired, 6);
}

static void a_due_timer_can_be_stopped(void **state)
{
	struct alarm a = { 0 }, b = { 0 };
	last_due = 0;
	loop_timer_init(&a.t, loop, on_alarm);
	loop_timer_init(&b.t, loop, on_alarm);
	a.stops = &b;
	loop_timer_set(&a.t, 1);
	loop_timer_set(&b.t, 2);
	loop_run(loop);
	assert_int_equal(a.fired, 1);
	assert_int_equal(b.fired, 0);
}

static void many_timers_never_early(void **state)
{
	enum { N = 500 };
	struct alarm *all = xcalloc(N, sizeof(*all));
	struct rng rng;
	int64_t now = clock_mono_ns();
	rng_seed(&rng, 7);
	last_due = 0;
	for (int i = 0; i < N; i++) {
		loop_timer_init(&all[i].t, loop, on_alarm);
		loop_timer_set(&all[i].t, now + (int64_t)rng_below(&rng, 30 * NS_PER_MS));
	}
	for (int i = 0; i < N; i += 5)
		loop_timer_stop(&all[i].t);
	loop_run(loop);
	for (int i = 0; i < N; i++)
		assert_int_equal(all[i].fired, i % 5 != 0);
	free(all);
}

/* ---- polls ---- */

struct watch {
	struct loop_poll *p;
	int fd;
	int calls;
	int events;
	struct watch *frees;
};

static void on_ready(void *arg, int events)
{
	struct watch *w = arg;
	w->calls++;
	w->events |= events;
	if (w->frees && w->frees->p) {
		loop_poll_free(w->frees->p);
		w->frees->p = NULL;
		close(w->frees->fd);
	}
}

static void poll_tells_readiness(void **state)
{
	int fd[2];
	struct watch w = { 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	assert_int_equal(loop_poll_new(loop, fd[0], on_ready, &w, &w.p), 0);
	loop_poll_set(w.p, LOOP_READ);
	loop_turn(loop, false);
	assert_int_equal(w.calls, 0);
	assert_int_equal(write(fd[1], "x", 1), 1);
	TURNS_UNTIL(loop, w.calls == 1);
	assert_int_equal(w.events, LOOP_READ);
	loop_poll_set(w.p, LOOP_READ | LOOP_WRITE_READY);
	TURNS_UNTIL(loop, w.events == (LOOP_READ | LOOP_WRITE_READY));
	loop_poll_set(w.p, 0);
	int calls = w.calls;
	loop_turn(loop, false);
	assert_int_equal(w.calls, calls);
	loop_poll_free(w.p);
	close(fd[0]);
	close(fd[1]);
}

static void freed_in_the_same_batch_is_not_called(void **state)
{
	int a[2], b[2];
	struct watch wa = { 0 }, wb = { 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, b), 0);
	wa.fd = a[0];
	wb.fd = b[0];
	assert_int_equal(loop_poll_new(loop, a[0], on_ready, &wa, &wa.p), 0);
	assert_int_equal(loop_poll_new(loop, b[0], on_ready, &wb, &wb.p), 0);
	loop_poll_set(wa.p, LOOP_READ);
	loop_poll_set(wb.p, LOOP_READ);
	wa.frees = &wb;
	wb.frees = &wa;
	assert_int_equal(write(a[1], "x", 1), 1);
	assert_int_equal(write(b[1], "x", 1), 1);
	loop_turn(loop, false);
	assert_int_equal(wa.calls + wb.calls, 1);
	loop_poll_free(wa.p);
	loop_poll_free(wb.p);
	close(wa.p ? a[0] : b[0]);
	close(a[1]);
	close(b[1]);
}

/* A port that nobody listens on, found by having had it. */
static struct sockaddr_in dead_address(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
	close(fd);
	return in;
}

static void a_refused_connect_is_told(void **state)
{
	struct sockaddr_in in = dead_address();
	struct watch w = { 0 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_int_equal(loop_poll_new(loop, fd, on_ready, &w, &w.p), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), -1);
	/* libuv reports it with a status below zero, and only once unless we watch again. */
	loop_poll_set(w.p, LOOP_READ);
	TURNS_UNTIL(loop, w.calls >= 2);
	assert_int_equal(w.events, LOOP_READ | LOOP_WRITE_READY);
	int err = 0;
	socklen_t len = sizeof(err);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len), 0);
	assert_int_equal(err, ECONNREFUSED);
	loop_poll_free(w.p);
	close(fd);
}

static void a_file_cannot_be_watched(void **state)
{
	struct loop_poll *p = NULL;
	FILE *f = tmpfile();
	assert_int_equal(loop_poll_new(loop, fileno(f), on_ready, NULL, &p), -EPERM);
	assert_null(p);
	fclose(f);
}

/* ---- signals, stop ---- */

static void on_signal(void *arg, int signo)
{
	*(int *)arg = signo;
	loop_stop(loop);
}

static void signals_arrive(void **state)
{
	struct loop_signal *s;
	struct owner last;
	int got = 0;
	own(&last, LOOP_WRITE, "last");
	assert_int_equal(loop_signal_new(loop, SIGUSR1, on_signal, &got, &s), 0);
	raise(SIGUSR1);
	loop_run(loop);
	assert_int_equal(got, SIGUSR1);
	/* loop_stop still flushes what is dirty. */
	loop_mark(loop, &last.d);
	loop_stop(loop);
	loop_run(loop);
	assert_string_equal(trace, "last ");
	loop_signal_free(s);
	loop_signal_free(NULL);
}

static void sigpipe_is_ignored(void **state)
{
	int fd[2];
	assert_int_equal(pipe(fd), 0);
	close(fd[0]);
	assert_int_equal(write(fd[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(fd[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		TEST(phases_in_order),
		TEST(marks_inside_a_flush),
		TEST(unmarked_is_not_flushed),
		TEST(unmark_in_the_same_batch),
		TEST(rounds_are_bounded),
		TEST(rest_of_a_flush_comes_without_sleep),
		TEST(burial_ends_the_turn),
		TEST(loop_free_buries),
		TEST(timers_in_order),
		TEST(a_past_deadline_fires_once_a_turn),
		TEST(a_due_timer_can_be_stopped),
		TEST(many_timers_never_early),
		TEST(poll_tells_readiness),
		TEST(freed_in_the_same_batch_is_not_called),
		TEST(a_refused_connect_is_told),
		TEST(a_file_cannot_be_watched),
		TEST(signals_arrive),
		TEST(sigpipe_is_ignored),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}

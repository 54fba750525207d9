/* What an agent knows of attempts that it did not start itself: the file about each, and supervisors that live, have ended,
 * are dead, or stand still.  The supervisor here is the test: it writes the files and speaks at the socket's other end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/rng.h"
#include "tests/unit/work_dir.h"
#include "turns.h"
#include "worker/attempt_file.h"
#include "worker/remove_tree.h"
#include "worker/run.h"
#include "worker/state_dir.h"

#define ID "0195f3a0-0000-7000-8000-000000000000"
#define NAME ID ".2"

/* ---- attempts/ID.N/attempt ---- */

static void attempt_file_round_trip(void **state)
{
	char *devices[] = {(char *)"GPU-1", (char *)"a\nb %41\x7f"};
	struct attempt_record w = {.task_id = ID, .number = 2, .exclusive = true, .lease_ns = 5 * NS_PER_S, .timeout_ns = 0,
		.kill_grace_ns = 7, .store_id = "store = 1", .devices = devices, .n_devices = 2}, r;
	char err[200];
	assert_int_equal(attempt_file_read(dir_fd, ID, 2, &r, err, sizeof(err)), -ENOENT);
	assert_int_equal(attempt_file_write(dir_fd, &w), 0);
	assert_int_equal(attempt_file_read(dir_fd, ID, 2, &r, err, sizeof(err)), 0);
	assert_string_equal(r.task_id, ID);
	assert_int_equal(r.number, 2);
	assert_true(r.exclusive);
	assert_int_equal(r.lease_ns, 5 * NS_PER_S);
	assert_int_equal(r.timeout_ns, 0);
	assert_int_equal(r.kill_grace_ns, 7);
	assert_string_equal(r.store_id, "store = 1");
	assert_int_equal(r.n_devices, 2);
	assert_string_equal(r.devices[1], devices[1]);
	attempt_record_done(&r);
	assert_int_equal(attempt_file_read(dir_fd, ID, 3, &r, err, sizeof(err)), -EBADMSG);
	assert_non_null(strstr(err, "another attempt: " NAME));
}

#define HEAD_1 "reins-attempt 1\n"
#define BODY "task = " ID "\nnumber = 2\nexclusive = 0\nlease-ns = 1\ntimeout-ns = 2\nkill-grace-ns = 3\nstore = s\n"

static int parse(const char *text, size_t len, char err[static 200])
{
	struct attempt_record r;
	int n = attempt_file_parse(text, len, &r, err, 200);
	if (n == 0)
		attempt_record_done(&r);
	return n;
}

static void attempt_file_is_strict(void **state)
{
	static const struct { const char *text, *what; int r; } cases[] = {
		{HEAD_1 BODY "end\n", "", 0},
		{HEAD_1 BODY "device = a\ndevice = a\nend\n", "", 0},
		{"reins-attempt 2\n" BODY "colour = red\nsomething else\nend\n", "", 0},
		{"reins-attempt 2\n" "colour = red\nend\n", "task", -EBADMSG},
		{"", "first line", -EBADMSG},
		{"reins-attempt 0\n" BODY "end\n", "first line", -EBADMSG},
		{"reins-attempt x\n" BODY "end\n", "first line", -EBADMSG},
		{HEAD_1 BODY, "its end", -EBADMSG},
		{HEAD_1 BODY "end", "its end", -EBADMSG},
		{HEAD_1 BODY "end\nmore\n", "its end", -EBADMSG},
		{HEAD_1 BODY "colour = red\nend\n", "colour", -EBADMSG},
		{HEAD_1 BODY "number = 2\nend\n", "number", -EBADMSG},
		{HEAD_1 "number = 2\nend\n", "task", -EBADMSG},
		{HEAD_1 "number = 0\n" "end\n", "number", -EBADMSG},
		{HEAD_1 "number = 4294967296\n" "end\n", "number", -EBADMSG},
		{HEAD_1 "exclusive = 2\n" "end\n", "exclusive", -EBADMSG},
		{HEAD_1 "lease-ns = -1\n" "end\n", "lease-ns", -EBADMSG},
		{HEAD_1 "device = %4\nend\n", "device", -EBADMSG},
		{HEAD_1 "device = %00\nend\n", "device", -EBADMSG},
		{HEAD_1 "task = " ID ID "\nend\n", "task", -EBADMSG},
	};
	char err[200];
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		err[0] = '\0';
		assert_int_equal(parse(cases[i].text, strlen(cases[i].text), err), cases[i].r);
		assert_non_null(strstr(err, cases[i].what));
	}
	assert_int_equal(parse("a\0b", 3, err), -EBADMSG);
}

/* Bytes changed, cut and doubled at random: an answer, never a crash. */
static void attempt_file_noise(void **state)
{
	struct rng rng;
	rng_seed(&rng, 7);
	static const char good[] = HEAD_1 BODY "device = a%25b\nend\n";
	for (int i = 0; i < 20000; i++) {
		char text[sizeof(good) + 8], err[200];
		size_t len = rng_below(&rng, sizeof(good));
		memcpy(text, good, len);
		for (uint64_t n = rng_below(&rng, 4); n > 0 && len > 0; n--)
			text[rng_below(&rng, len)] = (char)rng_below(&rng, 256);
		int r = parse(text, len, err);
		assert_true(r == 0 || r == -EBADMSG);
	}
}

/* ---- a supervisor played by the test ---- */

struct world {
	struct loop *loop;
	struct run_host host;
	struct run *run;
	enum run_event events[32];
	struct sup_status last;
	size_t n;
	int lock_fd, listen_fd, fd;
};

static void on_event(void *arg, enum run_event event, const struct sup_status *st)
{
	struct world *w = arg;
	assert_true(w->n < ARRAY_LEN(w->events));
	w->events[w->n++] = event;
	w->last = *st;
	if (event == RUN_EMPTY || event == RUN_SWEPT) {
		run_free(w->run);
		w->run = NULL;
	}
}

static void world_begin(struct world *w)
{
	*w = (struct world){.lock_fd = -1, .listen_fd = -1, .fd = -1};
	assert_int_equal(loop_new(&w->loop), 0);
	w->host = (struct run_host){w->loop, NULL, sweeper_new(w->loop, "test-worker", NULL, NULL)};
}

static void world_end(struct world *w)
{
	run_free(w->run);
	TURNS_UNTIL(w->loop, sweeper_idle(w->host.sweeper));
	sweeper_free(w->host.sweeper);
	const int fds[] = {w->lock_fd, w->listen_fd, w->fd};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	loop_free(w->loop);
}

static bool seen(const struct world *w, enum run_event event)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->events[i] == event)
			return true;
	return false;
}

static void expect(const struct world *w, size_t n, const enum run_event *events)
{
	assert_int_equal(w->n, n);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(w->events[i], events[i]);
}
#define EXPECT(w, ...) \
	do { \
		const enum run_event e_[] = {__VA_ARGS__}; \
		expect(w, ARRAY_LEN(e_), e_); \
	} while (0)

static void write_file(const char *name, const void *data, size_t len)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static uint64_t start_ticks(pid_t pid)
{
	char path[64], text[1024];
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	assert_non_null(f);
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	char *p = strrchr(text, ')') + 2;
	for (int field = 3; field < 22; field++)
		p = strchr(p, ' ') + 1;
	return strtoull(p, NULL, 10);
}

static struct sup_identity identity_of(pid_t pid)
{
	struct sup_identity id = {.size = sizeof(id), .version = SUP_VERSION, .pid = pid, .start_ticks = start_ticks(pid)};
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	assert_non_null(f);
	assert_non_null(fgets(id.boot_id, sizeof(id.boot_id), f));
	id.boot_id[strcspn(id.boot_id, "\n")] = '\0';
	fclose(f);
	return id;
}

static struct sup_status status(int phase)
{
	return (struct sup_status){.head = {SUP_STATUS, sizeof(struct sup_status)}, .version = SUP_VERSION, .phase = phase,
		.started_wall_us = phase >= SUP_RUNNING ? 1000 : 0, .exited_wall_us = phase >= SUP_EXITED ? 2000 : 0,
		.exit_code = phase >= SUP_EXITED ? 3 : 0, .log_end = phase == SUP_EMPTY ? 12 : 0};
}

static void write_status(struct sup_status s)
{
	write_file("status", &s, sizeof(s));
}

/* This process as a supervisor that lives: lock, identity, socket. */
static void live(struct world *w, struct sup_identity id, bool listens)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	write_file("supervisor", &id, sizeof(id));
	w->lock_fd = openat(dir_fd, "supervisor", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(w->lock_fd, LOCK_EX | LOCK_NB), 0);
	if (!listens)
		return;
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/socket", dir_path);
	w->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(w->listen_fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(w->listen_fd, 4), 0);
}

static bool accepted(struct world *w)
{
	if (w->fd < 0)
		w->fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	return w->fd >= 0;
}

static void send_status(struct world *w, struct sup_status s)
{
	assert_int_equal(send(w->fd, &s, sizeof(s), 0), sizeof(s));
}

static void die(struct world *w)
{
	close(w->listen_fd);
	close(w->fd);
	close(w->lock_fd);
	w->listen_fd = w->fd = w->lock_fd = -1;
}

static void adopt(struct world *w, bool usable)
{
	assert_int_equal(run_adopt(&w->host, NAME, dir_fd, usable, on_event, w, &w->run), 0);
	assert_int_equal(w->n, 0); /* none comes from inside a call */
}

static void a_live_one_goes_on(void **state)
{
	struct world w;
	world_begin(&w);
	live(&w, identity_of(getpid()), true);
	write_status(status(SUP_RUNNING));
	adopt(&w, true);
	assert_false(run_settled(w.run));
	TURNS_UNTIL(w.loop, run_settled(w.run));
	/* What its file says is known before it speaks: it may stand still. */
	EXPECT(&w, RUN_EXEC);
	TURNS_UNTIL(w.loop, accepted(&w));
	struct sup_status s = status(SUP_RUNNING);
	s.log_end = 5;
	send_status(&w, s);
	TURNS_UNTIL(w.loop, seen(&w, RUN_LOG));
	struct sup_head head;
	assert_int_equal(recv(w.fd, &head, sizeof(head), 0), sizeof(head));
	assert_int_equal(head.type, SUP_SEEN);
	/* The tree ends: what lies between is filled in. */
	send_status(&w, status(SUP_EMPTY));
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_LOG, RUN_LOG, RUN_EXIT, RUN_EMPTY);
	assert_int_equal(w.last.exit_code, 3);
	world_end(&w);
}

struct heard {
	struct sup_deadlines deadlines;
	struct sup_stop stop;
};

/* True once a stop was heard. */
static bool hear_all(struct world *w, struct heard *h)
{
	union {
		struct sup_head head;
		struct sup_deadlines deadlines;
		struct sup_stop stop;
	} p;
	while (recv(w->fd, &p, sizeof(p), 0) > 0) {
		if (p.head.type == SUP_DEADLINES)
			h->deadlines = p.deadlines;
		if (p.head.type == SUP_STOP)
			h->stop = p.stop;
	}
	return h->stop.head.type == SUP_STOP;
}

/* A supervisor that lives, in that phase, is adopted and hears us. */
static void adopt_live(struct world *w, int32_t phase)
{
	world_begin(w);
	live(w, identity_of(getpid()), true);
	write_status(status(phase));
	adopt(w, true);
	TURNS_UNTIL(w->loop, accepted(w));
}

static void a_lost_connection_is_made_again(void **state)
{
	struct world w;
	adopt_live(&w, SUP_RUNNING);
	run_stop(w.run, 1, 5 * NS_PER_S, "cancelled");
	close(w.fd);
	w.fd = -1;
	/* Not dead: the lock is held.  The wish is said again. */
	TURNS_UNTIL(w.loop, accepted(&w));
	struct heard h = {0};
	TURNS_UNTIL(w.loop, hear_all(&w, &h));
	assert_int_equal(h.stop.reason, 1);
	assert_int_equal(h.stop.grace_ns, 5 * NS_PER_S);
	assert_string_equal(h.stop.text, "cancelled");
	run_stop(w.run, 2, 10 * NS_PER_S, "slower"); /* only quicker */
	run_stop(w.run, 2, 0, "now");
	assert_true(hear_all(&w, &h));
	assert_int_equal(h.stop.grace_ns, 0);
	assert_int_equal(h.stop.reason, 1);
	assert_false(seen(&w, RUN_DIED));
	world_end(&w);
}

static void one_that_reads_nothing_holds_up_nobody(void **state)
{
	struct world w;
	adopt_live(&w, SUP_RUNNING);
	for (int i = 1; i <= 100000; i++)
		run_deadlines(w.run, i, i, i);
	run_stop(w.run, 1, 0, "x");
	struct heard h = {0};
	TURNS_UNTIL(w.loop, hear_all(&w, &h) && h.deadlines.orphan_boot_ns == 100000);
	world_end(&w);
}

static void one_that_ended_while_nobody_looked(void **state)
{
	struct world w;
	world_begin(&w);
	struct sup_identity id = identity_of(getpid());
	write_file("supervisor", &id, sizeof(id));
	write_status(status(SUP_EMPTY));
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_LOG, RUN_EXIT, RUN_EMPTY);
	assert_int_equal(w.last.exit_code, 3);
	assert_int_equal(w.last.exited_wall_us, 2000);
	world_end(&w);
}

/* A program of this attempt that outlives its supervisor. */
static pid_t start_program(const char *attempt)
{
	pid_t pid = fork();
	if (pid == 0) {
		char number[32];
		snprintf(number, sizeof(number), "REINS_ATTEMPT=%s", attempt);
		char *env[] = {(char *)"REINS_WORKER_ID=test-worker", (char *)"REINS_TASK_ID=" ID, number, NULL};
		char *argv[] = {(char *)"sleep", (char *)"300", NULL};
		execve("/bin/sleep", argv, env);
		_exit(127);
	}
	/* Until its environment is the program's: exec has happened. */
	char path[64], text[16] = "";
	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	while (strcmp(text, "sleep\n") != 0) {
		FILE *f = fopen(path, "re");
		assert_non_null(f);
		if (!fgets(text, sizeof(text), f))
			text[0] = '\0';
		fclose(f);
	}
	return pid;
}

static void one_that_died_loses_its_tree(void **state)
{
	struct world w;
	world_begin(&w);
	live(&w, identity_of(getpid()), true);
	write_status(status(SUP_RUNNING));
	pid_t ours = start_program("2"), other = start_program("1");
	adopt(&w, true);
	TURNS_UNTIL(w.loop, accepted(&w));
	die(&w);
	TURNS_UNTIL(w.loop, seen(&w, RUN_DIED));
	int st;
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_DIED, RUN_SWEPT);
	assert_int_equal(waitpid(ours, &st, 0), ours);
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	/* Another attempt of the same task is not its tree. */
	assert_int_equal(waitpid(other, &st, WNOHANG), 0);
	kill(other, SIGKILL);
	waitpid(other, &st, 0);
	world_end(&w);
}

static void after_a_reboot(void **state)
{
	struct world w;
	world_begin(&w);
	struct sup_identity id = identity_of(getpid()); /* the number is another process's now */
	snprintf(id.boot_id, sizeof(id.boot_id), "00000000-0000-0000-0000-000000000000");
	write_file("supervisor", &id, sizeof(id));
	write_status(status(SUP_RUNNING));
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_DIED, RUN_SWEPT);
	world_end(&w);
}

static void one_that_never_had_the_job(void **state)
{
	struct world w;
	world_begin(&w);
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	assert_int_equal(w.last.phase, 0);
	/* One that comes to it late finds nothing to lock. */
	assert_int_equal(faccessat(dir_fd, "supervisor", F_OK, 0), -1);
	world_end(&w);
}

static void damaged_files(void **state)
{
	struct world w;
	world_begin(&w);
	write_file("supervisor", "rubbish", 7);
	write_file("status", "more rubbish", 12);
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	assert_int_equal(w.last.phase, SUP_STARTING); /* it had the job: what it did with it is lost */
	assert_int_equal(faccessat(dir_fd, "supervisor", F_OK, 0), 0);
	/* A status that is cut off, and one with a phase that there is not. */
	struct sup_status s = status(SUP_EMPTY);
	write_file("status", &s, 0);
	w.n = 0;
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	assert_int_equal(w.last.phase, SUP_STARTING);
	write_file("status", &s, 100);
	w.n = 0;
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	s.phase = 77;
	write_status(s);
	w.n = 0;
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	world_end(&w);
}

/* A newer supervisor's status is longer, an older one's shorter, as far as version 1 goes. */
static void statuses_of_other_lengths(void **state)
{
	struct {
		struct sup_status s;
		char more[64];
	} longer = {.s = status(SUP_EMPTY)};
	longer.s.head.size = sizeof(longer);
	struct world w;
	world_begin(&w);
	write_file("status", &longer, sizeof(longer));
	adopt(&w, true);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_LOG, RUN_EXIT, RUN_EMPTY);
	world_end(&w);
}

/* It lives, but can't be spoken to: it is killed, by the identity in its file. */
static void one_that_can_not_be_taken_over(void **state)
{
	int ready[2];
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = openat(dir_fd, "supervisor", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		struct sup_identity id = identity_of(getpid());
		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(fd, &id, sizeof(id)) < 0 || write(ready[1], "x", 1) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	char c;
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	close(ready[1]);
	struct world w;
	world_begin(&w);
	write_status(status(SUP_RUNNING));
	adopt(&w, false);
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_DIED, RUN_SWEPT);
	int st;
	assert_int_equal(waitpid(pid, &st, 0), pid);
	assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	world_end(&w);
}

static void stuck_is_told_and_taken_back(void **state)
{
	struct world w;
	adopt_live(&w, SUP_EXITED);
	struct sup_status s = status(SUP_EXITED);
	s.stuck = 2;
	snprintf(s.text, sizeof(s.text), "not ended: 17 (dd), 18 (dd)");
	send_status(&w, s);
	TURNS_UNTIL(w.loop, seen(&w, RUN_STUCK));
	assert_int_equal(w.last.stuck, 2);
	assert_string_equal(w.last.text, "not ended: 17 (dd), 18 (dd)");
	send_status(&w, status(SUP_EMPTY));
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_EXIT, RUN_STUCK, RUN_LOG, RUN_STUCK, RUN_EMPTY);
	world_end(&w);
}

static void a_word_that_is_no_status_costs_the_connection(void **state)
{
	struct world w;
	adopt_live(&w, SUP_RUNNING);
	int before = w.fd;
	assert_int_equal(send(w.fd, "hello", 5, 0), 5);
	w.fd = -1;
	TURNS_UNTIL(w.loop, accepted(&w));
	close(before);
	send_status(&w, status(SUP_EMPTY));
	TURNS_UNTIL(w.loop, !w.run);
	EXPECT(&w, RUN_EXEC, RUN_LOG, RUN_EXIT, RUN_EMPTY);
	world_end(&w);
}

#define ON_DISK(f) cmocka_unit_test_setup_teardown(f, work_dir_make, work_dir_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_DISK(attempt_file_round_trip), ON_DISK(attempt_file_is_strict), ON_DISK(attempt_file_noise),
		ON_DISK(a_live_one_goes_on), ON_DISK(a_lost_connection_is_made_again),
		ON_DISK(one_that_reads_nothing_holds_up_nobody), ON_DISK(one_that_ended_while_nobody_looked),
		ON_DISK(one_that_died_loses_its_tree), ON_DISK(after_a_reboot), ON_DISK(one_that_never_had_the_job),
		ON_DISK(damaged_files), ON_DISK(statuses_of_other_lengths), ON_DISK(one_that_can_not_be_taken_over),
		ON_DISK(stuck_is_told_and_taken_back), ON_DISK(a_word_that_is_no_status_costs_the_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

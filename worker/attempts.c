/* The set of attempts.
 *
 * Starts are spread: some in each turn, so that a dispatch of a thousand does not hold back a
 * heartbeat.  An attempt is on `to_start` when its turn may come at once, on `waiting` when
 * something has to happen first. */
#include "worker/attempts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts_private.h"
#include "worker/sweep.h"

#define STARTS_PER_TURN 8
#define LOG_BOUND (1024 * 1024) /* of one attempt: some seconds of a chatty program */
#define LOG_PATIENCE_NS (10 * NS_PER_S)
#define RESULT_MAX_DEFAULT (1024 * 1024)
#define ERROR_MAX_DEFAULT (16 * 1024)
#define SWEEP_LIMIT_NS (5 * NS_PER_S)

struct attempt *attempts_find(const struct attempts *s, const char *task_id, int32_t number)
{
	struct uuid task;
	if (uuid_parse(task_id, strlen(task_id), &task) < 0)
		return NULL;
	struct map_node *n = map_get(&s->by_task, &task, sizeof(task));
	struct attempt *a = n ? container_of(n, struct attempt, by_task) : NULL;
	while (a && a->number != number)
		a = a->older;
	return a;
}

struct attempt *attempts_add(struct attempts *s, const struct uuid *task, int32_t number)
{
	struct map_node *n = map_get(&s->by_task, task, sizeof(*task));
	struct attempt *newest = n ? container_of(n, struct attempt, by_task) : NULL;
	if (newest && newest->number >= number)
		return NULL;
	struct attempt *a = xcalloc(1, sizeof(*a));
	attempt_init(a, s, task, number);
	if (newest)
		map_remove(&s->by_task, &newest->by_task);
	a->older = newest;
	map_put(&s->by_task, &a->by_task, &a->task, sizeof(a->task));
	list_push_back(&s->all, &a->all_node);
	s->n_held++;
	s->n_busy++;
	return a;
}

static void free_attempt(struct loop_grave *g)
{
	struct attempt *a = container_of(g, struct attempt, grave);
	free(a->text);
	free(a->devices);
	free(a);
}

void attempts_forget(struct attempt *a)
{
	struct attempts *s = a->set;
	struct list *const nodes[] = {&a->all_node, &a->say_node, &a->log_node, &a->metrics_node, &a->outcome_node,
		&a->start_node, &a->exclusive_node, &a->paused_node, &a->metrics_due_node};
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		list_remove(nodes[i]);
	loop_timer_stop(&a->timer);
	struct attempt *newest = container_of(map_get(&s->by_task, &a->task, sizeof(a->task)), struct attempt, by_task);
	if (newest == a) {
		map_remove(&s->by_task, &a->by_task);
		if (a->older)
			map_put(&s->by_task, &a->older->by_task, &a->older->task, sizeof(a->older->task));
	} else {
		while (newest->older != a)
			newest = newest->older;
		newest->older = a->older;
	}
	s->n_held--;
	dispatch_unref(a->dispatch);
	blob_unref(a->outcome);
	logs_done(&a->log);
	metrics_reader_done(&a->metrics);
	loop_bury(s->cfg.loop, &a->grave, free_attempt);
	attempts_wake_waiting(s);
	s->cfg.on_fewer(s->cfg.arg);
}

void attempts_news(struct attempts *s)
{
	s->cfg.on_news(s->cfg.arg);
}

void attempts_say(struct attempt *a, unsigned what)
{
	if (!a->set->session_up)
		return;
	a->say |= what;
	if (list_empty(&a->say_node))
		list_push_back(&a->set->to_say, &a->say_node);
	attempts_news(a->set);
}

void attempts_wake_waiting(struct attempts *s)
{
	if (list_empty(&s->waiting))
		return;
	list_splice_back(&s->to_start, &s->waiting);
	loop_mark(s->cfg.loop, &s->start_dirty);
}

static void start_some(struct attempts *s)
{
	for (int n = 0; n < STARTS_PER_TURN && !list_empty(&s->to_start);) {
		struct attempt *a = container_of(list_pop_front(&s->to_start), struct attempt, start_node);
		if (attempt_try_start(a))
			n++;
		else
			list_push_back(&s->waiting, &a->start_node);
	}
	if (!list_empty(&s->to_start))
		loop_timer_set(&s->start_timer, loop_now_mono_ns(s->cfg.loop));
	attempts_arm_lease(s);
}

static void on_start_dirty(struct loop_dirty *d)
{
	start_some(container_of(d, struct attempts, start_dirty));
}

static void on_start_timer(struct loop_timer *t)
{
	struct attempts *s = container_of(t, struct attempts, start_timer);
	loop_mark(s->cfg.loop, &s->start_dirty);
}

/* ---- the exclusive lease ---- */

/* When something is due for the lease's sake; INT64_MAX: nothing (not started, or the kill is under way). */
static int64_t lease_due(const struct attempt *a)
{
	if (a->state == ATTEMPT_STARTING || a->state == ATTEMPT_RUNNING)
		return lease_term_due(&a->lease, a->set->s_boot_ns);
	if (a->state == ATTEMPT_STOPPING && a->lease_kill_boot_ns != INT64_MAX)
		return a->lease_stop ? a->lease_kill_boot_ns : lease_kill_due(&a->lease, a->set->s_boot_ns);
	return INT64_MAX;
}

void attempts_arm_lease(struct attempts *s)
{
	int64_t next = INT64_MAX;
	list_each(node, &s->exclusive)
		next = min_i64(next, lease_due(container_of(node, struct attempt, exclusive_node)));
	boot_timer_set(s->lease_timer, next);
}

static void on_lease_timer(void *arg)
{
	struct attempts *s = arg;
	int64_t now = clock_boot_ns();
	list_each(node, &s->exclusive) {
		struct attempt *a = container_of(node, struct attempt, exclusive_node);
		if (lease_due(a) > now)
			continue;
		if (a->state == ATTEMPT_STOPPING) {
			a->lease_kill_boot_ns = INT64_MAX;
			attempt_event(a, EVENT_KILL);
			continue;
		}
		a->lease_stop = true;
		a->lease_kill_boot_ns = lease_kill_due(&a->lease, s->s_boot_ns);
		attempt_stop(a, EVENT_LEASE, REINS__V1__OUTCOME__KIND__STOPPED, REINS__V1__STOP__REASON__LEASE_ENDED,
			     "the lease of the exclusive task was about to end");
	}
	attempts_arm_lease(s);
}

/* ---- outcomes and the disk ---- */

static void on_spooled(void *arg, int err, uint64_t id)
{
	struct attempts *s = arg;
	if (err < 0 && s->spool_error == 0)
		log_error("spool", NULL, "outcomes can't be written: %s; no tasks are taken until they can", strerror(-err));
	if (err == 0 && s->spool_error < 0)
		log_info("spool", NULL, "outcomes can be written again");
	s->spool_error = err;
	list_each(node, &s->spooling) {
		struct attempt *a = container_of(node, struct attempt, outcome_node);
		/* One that can't be written is sent from memory: the worst that a crash can do then is to run the task
		 * again, and to hold it back would do that for certain. */
		if (err < 0 || a->spool_id <= id)
			attempt_outcome_ready(a);
	}
}

static void on_replayed(void *arg, uint64_t id, struct blob *outcome)
{
	struct attempts *s = arg;
	struct refusal why;
	struct uuid task;
	Reins__V1__Outcome *o = pb_unpack(&reins__v1__outcome__descriptor, outcome->data, outcome->len, NULL, &why);
	struct attempt *a = NULL;
	if (o && uuid_parse(o->task_id, strlen(o->task_id), &task) == 0)
		a = attempts_add(s, &task, o->attempt);
	if (a) {
		int64_t started = 0;
		if (pb_timestamp_us(o->started_at, &started) == 0)
			a->started_wall_us = started;
		s->n_busy--;
		a->state = ATTEMPT_ENDED;
		a->outcome = blob_ref(outcome);
		a->spool_id = id;
		a->spooled = true;
		logs_lost(&a->log, o->log_end);
		metrics_reader_give_up(&a->metrics);
	} else {
		log_error("spool", NULL, "an outcome in the spool is not one, and is dropped: %s", o ? "no task id" : why.message);
	}
	pb_free(o);
	blob_unref(outcome);
}

struct left_over {
	struct attempts *s;
	char **names;
	size_t n, cap;
};

static void on_left_over(void *arg, const char *name)
{
	struct left_over *l = arg;
	if (strlen(name) >= STATE_ATTEMPT_NAME_MAX)
		return;
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 16;
		char **more = realloc(l->names, l->cap * sizeof(*more));
		if (!more)
			abort();
		l->names = more;
	}
	l->names[l->n++] = xstrdup(name);
}

/* Directories of attempts are those that an earlier process left running: their first processes died with it, their
 * children are ended here, so that "not listed" is the truth. */
static int clear_left_overs(struct attempts *s, char *err, size_t cap)
{
	struct left_over l = {.s = s};
	int r = state_dir_list_attempts(s->cfg.state, on_left_over, &l);
	_cleanup_free_ char **tasks = xcalloc(l.n + 1, sizeof(*tasks));
	for (size_t i = 0; i < l.n; i++)
		if (!(tasks[i] = strndup(l.names[i], strcspn(l.names[i], "."))))
			abort();
	int ended = r < 0 ? r : sweep_processes(s->cfg.launch->worker_id, tasks, l.n, SWEEP_LIMIT_NS);
	for (size_t i = 0; i < l.n; i++) {
		char rest[STATE_ATTEMPT_NAME_MAX + 8];
		free(tasks[i]);
		if (!strncmp(l.names[i], "old.", 4))
			disk_remove_tree(s->disk, s->cfg.state->attempts_fd, l.names[i]);
		else if (state_dir_remove_attempt(s->cfg.state, l.names[i], rest) < 0)
			disk_remove_tree(s->disk, s->cfg.state->attempts_fd, rest);
	}
	if (ended < 0)
		snprintf(err, cap, "what an earlier worker left running can't be ended: %s", strerror(-ended));
	else if (l.n)
		log_warn("worker", NULL, "an earlier process left %zu attempts without an outcome; %d of their processes ended",
			 l.n, ended);
	for (size_t i = 0; i < l.n; i++)
		free(l.names[i]);
	free(l.names);
	return ended < 0 ? -1 : 0;
}

static void init_lists(struct attempts *s)
{
	struct list *const lists[] = {&s->all, &s->to_say, &s->refused, &s->logs, &s->metrics, &s->outcomes, &s->unanswered,
		&s->spooling, &s->to_start, &s->waiting, &s->exclusive, &s->paused, &s->metrics_due};
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
}

int attempts_new(const struct attempts_config *cfg, char *err, size_t cap, struct attempts **ret)
{
	struct attempts *s = xcalloc(1, sizeof(*s));
	struct spool_replay replay = {.on_outcome = on_replayed, .arg = s};
	s->cfg = *cfg;
	s->result_max = RESULT_MAX_DEFAULT;
	s->error_max = ERROR_MAX_DEFAULT;
	s->metrics_limit = cfg->metrics_limit;
	s->log_budget.max = (size_t)cfg->log_memory;
	s->log_config = (struct logs_config){.limit = cfg->log_limit, .bound = LOG_BOUND, .budget = &s->log_budget};
	s->s_boot_ns = LEASE_NEVER;
	init_lists(s);
	map_init(&s->by_task);
	attempts_metrics_init(s);
	loop_dirty_init(&s->start_dirty, LOOP_LEASE, on_start_dirty);
	loop_timer_init(&s->start_timer, cfg->loop, on_start_timer);
	int r = spool_open(cfg->state->fd, "outcomes", cfg->spool_limit, &replay, &s->spool);
	if (r < 0) {
		snprintf(err, cap, "%s/outcomes: %s", cfg->state->path,
			 r == -EBADMSG ? "is not a spool of outcomes" : strerror(-r));
		attempts_free(s);
		return -1;
	}
	if (replay.torn_bytes)
		log_warn("spool", NULL, "%" PRId64 " bytes at its end are no whole record and were cut off", replay.torn_bytes);
	r = disk_new(cfg->loop, s->spool, on_spooled, s, &s->disk);
	if (r == 0)
		r = boot_timer_new(cfg->loop, on_lease_timer, s, &s->lease_timer);
	if (r < 0)
		snprintf(err, cap, "timer: %s", strerror(-r));
	if (r == 0)
		r = clear_left_overs(s, err, cap);
	if (r < 0) {
		attempts_free(s);
		return -1;
	}
	if (s->n_held)
		log_info("spool", NULL, "%zu outcomes wait for a master's answer", s->n_held);
	*ret = s;
	return 0;
}

bool attempts_disk_idle(const struct attempts *s)
{
	return disk_idle(s->disk);
}

static void ignore(void *arg)
{
}

void attempts_free(struct attempts *s)
{
	if (!s)
		return;
	attempts_session_down(s);
	s->cfg.on_fewer = ignore;
	list_each(node, &s->all)
		attempts_forget(container_of(node, struct attempt, all_node));
	loop_timer_stop(&s->start_timer);
	attempts_metrics_done(s);
	loop_unmark(&s->start_dirty);
	boot_timer_free(s->lease_timer);
	disk_free(s->disk);
	spool_free(s->spool);
	map_done(&s->by_task);
	free(s);
}

/* ---- the worker as a whole ---- */

void attempts_check_paused(struct attempts *s)
{
	int64_t patient_since = loop_now_mono_ns(s->cfg.loop) - LOG_PATIENCE_NS;
	list_each(node, &s->paused) {
		struct attempt *a = container_of(node, struct attempt, paused_node);
		if (logs_full(&a->log) && a->paused_since_mono_ns > patient_since)
			continue;
		a->lossy = logs_full(&a->log);
		attempt_resume_output(a);
	}
}

void attempts_set_draining(struct attempts *s, bool draining)
{
	s->draining = draining;
}

void attempts_stop_all(struct attempts *s, Reins__V1__Stop__Reason reason, const char *text)
{
	list_each(node, &s->all)
		attempt_stop(container_of(node, struct attempt, all_node), EVENT_STOP, REINS__V1__OUTCOME__KIND__STOPPED,
			     reason, text);
}

void attempts_kill_all(struct attempts *s, Reins__V1__Stop__Reason reason, const char *text, bool fenced)
{
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (!attempt_state_holds_slot(a->state))
			continue;
		if (fenced) {
			attempt_fence(a);
			continue;
		}
		attempt_stop(a, EVENT_STOP, REINS__V1__OUTCOME__KIND__STOPPED, reason, text);
		if (a->state == ATTEMPT_STOPPING)
			attempt_event(a, EVENT_KILL);
	}
}

const char *attempts_paused(const struct attempts *s)
{
	if (s->spool_error < 0)
		return "outcomes can't be written to the state directory";
	if (spool_full(s->spool))
		return "the outcome spool is full";
	return NULL;
}

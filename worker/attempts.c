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
#include <unistd.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts_private.h"

#define STARTS_PER_TURN 8
#define RESULT_MAX_DEFAULT (1024 * 1024)
#define ERROR_MAX_DEFAULT (16 * 1024)
#define SWEEP_LIMIT_NS (5 * NS_PER_S) /* for cgroups that nobody knows, at the start */
#define RENEW_MAX_NS (5 * NS_PER_S) /* between tellings of deadlines while no master answers */

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
	struct attempt *newer = NULL, *at = n ? container_of(n, struct attempt, by_task) : NULL;
	while (at && at->number > number) {
		newer = at;
		at = at->older;
	}
	if (at && at->number == number)
		return NULL;
	struct attempt *a = xcalloc(1, sizeof(*a));
	attempt_init(a, s, task, number);
	a->older = at;
	if (newer) {
		newer->older = a;
	} else {
		if (at)
			map_remove(&s->by_task, &at->by_task);
		map_put(&s->by_task, &a->by_task, &a->task, sizeof(a->task));
	}
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
	free(a->stuck);
	free(a);
}

void attempts_forget(struct attempt *a)
{
	struct attempts *s = a->set;
	struct list *const nodes[] = {&a->all_node, &a->say_node, &a->log_node, &a->metrics_node,
		&a->outcome_node, &a->start_node, &a->metrics_due_node};
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		list_remove(nodes[i]);
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
	run_free(a->run);
	a->run = NULL;
	if (a->dir_fd >= 0)
		close(a->dir_fd);
	a->dir_fd = -1;
	if (a->trial)
		launch_health_trial_over(&s->health);
	loop_bury(s->cfg.loop, &a->grave, free_attempt);
	attempts_wake_waiting(s);
	s->cfg.on_fewer(s->cfg.arg);
}

void attempts_news(struct attempts *s)
{
	s->cfg.on_news(s->cfg.arg);
}

void attempts_log_news(struct attempt *a)
{
	struct attempts *s = a->set;
	if (!s->session_up || !list_empty(&a->log_node))
		return;
	list_push_back(&s->logs, &a->log_node);
	attempts_news(s);
}

void attempts_say_refused(struct attempts *s, const char *task_id, int32_t number, Reins__V1__RefusedAttempt__Cause cause,
			  const char *text)
{
	struct refused *r = xcalloc(1, sizeof(*r));
	snprintf(r->task_id, sizeof(r->task_id), "%s", task_id);
	r->number = number;
	r->cause = cause;
	snprintf(r->text, sizeof(r->text), "%s", text);
	list_push_back(&s->refused, &r->node);
	attempts_news(s);
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

/* ---- what supervisors know about time ---- */

static int64_t renew_interval(const struct attempts *s)
{
	return max_i64(min_i64(s->cfg.orphan_timeout_ns / 4, RENEW_MAX_NS), NS_PER_MS);
}

void attempts_renew(struct attempts *s)
{
	s->renewed_mono_ns = loop_now_mono_ns(s->cfg.loop);
	list_each(node, &s->all)
		attempt_renew(container_of(node, struct attempt, all_node));
	loop_timer_set(&s->renew_timer, s->renewed_mono_ns + renew_interval(s));
}

/* No heartbeat was answered for a while: what is not exclusive runs on, and would have to end with us otherwise. */
static void on_renew_timer(struct loop_timer *t)
{
	attempts_renew(container_of(t, struct attempts, renew_timer));
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
		logs_close(&a->log, o->log_end);
		metrics_reader_give_up(&a->metrics);
	} else {
		log_error("spool", NULL, "an outcome in the spool is not one, and is dropped: %s", o ? "no task id" : why.message);
	}
	pb_free(o);
	blob_unref(outcome);
}

static void init_lists(struct attempts *s)
{
	struct list *const lists[] = {&s->all, &s->to_say, &s->refused, &s->logs, &s->metrics, &s->outcomes, &s->unanswered,
		&s->spooling, &s->to_start, &s->waiting, &s->metrics_due};
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
}

static void on_log_ready(struct attempt_log *l)
{
	attempts_log_news(container_of(l, struct attempt, log));
}

static int end_cgroups(void *arg, const char *name)
{
	return confine_end(((struct attempts *)arg)->cfg.confine, name);
}

/* Is there an attempt of this name that may have processes? */
static bool may_run(void *arg, const char *name)
{
	struct attempts *s = arg;
	list_each(node, &s->all) {
		const struct attempt *a = container_of(node, struct attempt, all_node);
		if (attempt_state_holds_slot(a->state) && strcmp(a->dir, name) == 0)
			return true;
	}
	return false;
}

static void sweep_cgroups(struct attempts *s)
{
	int left = confine_sweep(s->cfg.confine, may_run, s, SWEEP_LIMIT_NS);
	if (left)
		log_warn("worker", NULL, "in the cgroups of %d earlier attempts there are processes that can't be ended", left);
}

int attempts_new(const struct attempts_config *cfg, char *err, size_t cap, struct attempts **ret)
{
	struct attempts *s = xcalloc(1, sizeof(*s));
	struct spool_replay replay = {.on_outcome = on_replayed, .arg = s};
	s->cfg = *cfg;
	s->result_max = RESULT_MAX_DEFAULT;
	s->error_max = ERROR_MAX_DEFAULT;
	s->log_limit = cfg->log_limit;
	s->metrics_limit = cfg->metrics_limit;
	s->health.limit = cfg->launch_failures;
	logs_reader_init(&s->log_reader, cfg->loop, on_log_ready);
	s->s_boot_ns = LEASE_NEVER;
	init_lists(s);
	map_init(&s->by_task);
	attempts_metrics_init(s);
	loop_dirty_init(&s->start_dirty, LOOP_LEASE, on_start_dirty);
	loop_timer_init(&s->start_timer, cfg->loop, on_start_timer);
	loop_timer_init(&s->renew_timer, cfg->loop, on_renew_timer);
	s->sweeper = sweeper_new(cfg->loop, cfg->launch->worker_id, end_cgroups, s);
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
	if (r < 0)
		snprintf(err, cap, "disk: %s", strerror(-r));
	if (r == 0 && s->n_held)
		log_info("spool", NULL, "%zu outcomes wait for a master's answer", s->n_held);
	if (r == 0)
		r = attempts_adopt(s, err, cap);
	if (r < 0) {
		attempts_free(s);
		return -1;
	}
	sweep_cgroups(s);
	attempts_renew(s);
	*ret = s;
	return 0;
}

bool attempts_disk_idle(const struct attempts *s)
{
	return disk_idle(s->disk) && logs_reader_idle(&s->log_reader) && sweeper_idle(s->sweeper);
}

bool attempts_settled(const struct attempts *s)
{
	list_each(node, &s->all) {
		const struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->run && !run_settled(a->run))
			return false;
	}
	return true;
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
	loop_timer_stop(&s->renew_timer);
	sweeper_free(s->sweeper);
	logs_reader_done(&s->log_reader);
	disk_free(s->disk);
	spool_free(s->spool);
	map_done(&s->by_task);
	free(s);
}

/* ---- the worker as a whole ---- */

void attempts_set_draining(struct attempts *s, bool draining)
{
	s->draining = draining;
}

void attempts_stop_all(struct attempts *s, Reins__V1__Stop__Reason reason, const char *text)
{
	list_each(node, &s->all)
		attempt_stop(container_of(node, struct attempt, all_node), EVENT_STOP, reason, text);
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
		attempt_stop(a, EVENT_STOP, reason, text);
		attempt_hurry(a);
	}
}

void attempts_give_up(struct attempts *s, const char *text)
{
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->state == ATTEMPT_GONE)
			continue;
		a->fenced = true;
		attempt_stop(a, EVENT_FENCED, REINS__V1__STOP__REASON__FENCED, text);
	}
}

void attempts_detach(struct attempts *s, int64_t within_ns)
{
	s->detach_boot_ns = clock_boot_ns() + within_ns;
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->state == ATTEMPT_DISPATCHED)
			attempt_stop(a, EVENT_STOP, REINS__V1__STOP__REASON__DRAINED, "the worker drained");
	}
	attempts_renew(s);
}

const char *attempts_paused(const struct attempts *s)
{
	if (s->spool_error < 0)
		return "outcomes can't be written to the state directory";
	if (spool_full(s->spool))
		return "the outcome spool is full";
	return launch_health_paused(&s->health, loop_now_mono_ns(s->cfg.loop));
}

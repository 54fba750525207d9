/* One attempt: the actions of its machine, its program, its log and its outcome. */
#include <errno.h>
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/num.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts_private.h"
#include "worker/outcome.h"

#define KILL_AGAIN_NS NS_PER_S

#define log_attempt(level, a, ...) \
	do { \
		char object_[96]; \
		snprintf(object_, sizeof(object_), "task=%s attempt=%d", (a)->task_id, (int)(a)->number); \
		log_line(level, "attempt", object_, __VA_ARGS__); \
	} while (0)

static void set_text(struct attempt *a, const char *text)
{
	if (a->text || !text || !*text)
		return;
	a->text = xstrdup(text);
}

/* ---- events of the program ---- */

static void on_exec(void *arg, const char *failure)
{
	struct attempt *a = arg;
	if (failure)
		set_text(a, failure);
	attempt_event(a, failure ? EVENT_EXEC_FAILED : EVENT_EXEC_OK);
}

static void on_output(void *arg, int stream, const uint8_t *data, size_t len)
{
	struct attempt *a = arg;
	struct attempts *s = a->set;
	if (a->fenced)
		return;
	/* What the pipes held at the end is taken as it is: it is little, and it is what people look for. */
	bool clearing = a->state == ATTEMPT_CLEARING;
	bool may_drop = !clearing && (a->lossy || !s->session_up);
	logs_add(&a->log, stream, data, len, clock_wall_us(), may_drop);
	if (list_empty(&a->log_node))
		list_push_back(&s->logs, &a->log_node);
	attempts_news(s);
	if (clearing || a->lossy || !s->session_up || !logs_full(&a->log) || !list_empty(&a->paused_node))
		return;
	a->paused_since_mono_ns = loop_now_mono_ns(s->cfg.loop);
	list_push_back(&s->paused, &a->paused_node);
	run_pause_output(a->run, true);
}

static void on_program_exit(void *arg, int code, int signal)
{
	struct attempt *a = arg;
	a->exited = true;
	a->code = code;
	a->signal = signal;
	attempt_event(a, EVENT_EXIT);
}

static void on_empty(void *arg)
{
	struct attempt *a = arg;
	run_free(a->run);
	a->run = NULL;
	attempt_event(a, a->fenced ? EVENT_EMPTY_FENCED : EVENT_EMPTY);
}

static const struct run_events run_events = {on_exec, on_output, on_program_exit, on_empty};

static void on_timer(struct loop_timer *t)
{
	struct attempt *a = container_of(t, struct attempt, timer);
	if (a->state == ATTEMPT_RUNNING) {
		char text[96], limit[32];
		num_format_duration(a->timeout_ns, limit, sizeof(limit));
		snprintf(text, sizeof(text), "ran longer than its time limit of %s", limit);
		attempt_stop(a, EVENT_TIMEOUT, REINS__V1__OUTCOME__KIND__TIMED_OUT,
			     REINS__V1__STOP__REASON__REASON_UNSPECIFIED, text);
	} else if (a->state == ATTEMPT_STOPPING) {
		attempt_event(a, EVENT_KILL);
	}
}

void attempt_init(struct attempt *a, struct attempts *set, const struct uuid *task, int32_t number)
{
	struct list *const nodes[] = {&a->all_node, &a->say_node, &a->log_node, &a->metrics_node, &a->outcome_node,
		&a->start_node, &a->exclusive_node, &a->paused_node, &a->metrics_due_node};
	for (size_t i = 0; i < ARRAY_LEN(nodes); i++)
		list_init(nodes[i]);
	a->set = set;
	a->task = *task;
	uuid_format(task, a->task_id);
	a->number = number;
	logs_init(&a->log, &set->log_config);
	metrics_reader_init(&a->metrics);
	loop_timer_init(&a->timer, set->cfg.loop, on_timer);
}

/* ---- actions ---- */

static int launch(struct attempt *a)
{
	struct attempts *s = a->set;
	struct launch l;
	_cleanup_free_ char *dir = NULL;
	int r = state_dir_make_attempt(s->cfg.state, a->dir);
	if (r == 0 && asprintf(&dir, "%s/attempts/%s", s->cfg.state->path, a->dir) < 0) {
		dir = NULL;
		r = -ENOMEM;
	}
	if (r == 0)
		r = launch_make(&l, s->cfg.launch, a->work, dir);
	if (r < 0)
		return r;
	r = run_start(s->cfg.loop, &l, &run_events, a, &a->run);
	launch_done(&l);
	return r;
}

static void do_spawn(struct attempt *a)
{
	int r = launch(a);
	dispatch_unref(a->dispatch);
	a->dispatch = NULL;
	a->work = NULL;
	if (r == 0)
		return;
	char text[128];
	snprintf(text, sizeof(text), "the worker could not start a process: %s", strerror(-r));
	set_text(a, text);
	a->launch_failed = true;
	a->finished_wall_us = clock_wall_us();
	attempt_event(a, EVENT_SPAWN_FAILED);
}

static void do_started(struct attempt *a)
{
	a->started_wall_us = clock_wall_us();
	attempts_say(a, SAY_STARTED);
	attempts_metrics_begin(a->set);
	if (a->timeout_ns && a->state == ATTEMPT_RUNNING)
		loop_timer_set(&a->timer, loop_now_mono_ns(a->set->cfg.loop) + a->timeout_ns);
}

static void do_term(struct attempt *a)
{
	log_attempt(LOG_INFO, a, "stopping: %s", a->text ? a->text : "asked to");
	run_signal(a->run, SIGTERM);
	run_signal(a->run, SIGCONT); /* one that is stopped could not end */
	int64_t grace = a->set->cfg.kill_grace_ns;
	loop_timer_set(&a->timer, loop_now_mono_ns(a->set->cfg.loop) + grace);
	attempts_arm_lease(a->set);
}

static void do_kill(struct attempt *a)
{
	run_signal(a->run, SIGKILL);
	loop_timer_set(&a->timer, loop_now_mono_ns(a->set->cfg.loop) + KILL_AGAIN_NS);
}

static void do_clear(struct attempt *a)
{
	a->finished_wall_us = clock_wall_us();
	loop_timer_stop(&a->timer);
	list_remove(&a->paused_node);
	run_clear(a->run);
}

static void remove_dir(struct attempt *a)
{
	struct attempts *s = a->set;
	char rest[STATE_ATTEMPT_NAME_MAX + 8];
	if (a->dir[0] && state_dir_remove_attempt(s->cfg.state, a->dir, rest) < 0)
		disk_remove_tree(s->disk, s->cfg.state->attempts_fd, rest);
	a->dir[0] = '\0';
}

static void do_report(struct attempt *a)
{
	struct attempts *s = a->set;
	logs_close(&a->log);
	const struct outcome_facts facts = {
		.task_id = a->task_id, .attempt = a->number, .launch_failed = a->launch_failed,
		.stop_kind = a->stop_kind, .stop_reason = a->stop_reason,
		.exited = a->exited, .code = a->code, .signal = a->signal, .text = a->text,
		.started_wall_us = a->started_wall_us, .finished_wall_us = a->finished_wall_us,
		.log_end = a->log.end,
	};
	a->outcome = outcome_pack(&facts, s->cfg.state->attempts_fd, a->dir, s->result_max, s->error_max);
	if (!a->outcome)
		abort(); /* about a MiB: half a worker is worse than a restarted one */
	log_attempt(LOG_DEBUG, a, "ended: kind %d, code %d, signal %d", (int)outcome_kind(&facts), a->code, a->signal);
	attempts_metrics_last(a);
	if (metrics_reader_is_done(&a->metrics))
		remove_dir(a);
	a->spool_id = spool_add(s->spool, a->outcome);
	list_push_back(&s->spooling, &a->outcome_node);
	disk_spool_dirty(s->disk);
	attempts_wake_waiting(s);
	s->cfg.on_fewer(s->cfg.arg);
}

static void do_refuse(struct attempt *a)
{
	struct attempts *s = a->set;
	if (s->session_up) {
		struct refused *r = xcalloc(1, sizeof(*r));
		memcpy(r->task_id, a->task_id, sizeof(r->task_id));
		r->number = a->number;
		r->cause = REINS__V1__REFUSED_ATTEMPT__CAUSE__STOPPED;
		r->text = "stopped before it was started";
		list_push_back(&s->refused, &r->node);
		attempts_news(s);
	}
	attempts_forget(a);
}

static void do_forget(struct attempt *a)
{
	struct attempts *s = a->set;
	remove_dir(a);
	if (a->spool_id) {
		spool_answered(s->spool, a->spool_id);
		disk_spool_dirty(s->disk);
	}
	attempts_forget(a);
}

void attempt_event(struct attempt *a, enum attempt_event event)
{
	struct attempt_step step = attempt_step(a->state, event);
	if (step.action == ACTION_ILLEGAL)
		log_attempt(LOG_ERROR, a, "event %s can't come while %s", attempt_event_name(event),
			    attempt_state_name(a->state));
	assert(step.action != ACTION_ILLEGAL);
	if (attempt_state_holds_slot(a->state) && !attempt_state_holds_slot(step.next)) {
		a->set->n_busy--;
		resources_give_back(&a->set->cfg.confine->resources, &a->holding);
	}
	a->state = step.next;
	switch (step.action) {
	case ACTION_ILLEGAL:
	case ACTION_NONE:
		break;
	case ACTION_SPAWN:
		do_spawn(a);
		break;
	case ACTION_REFUSE:
		do_refuse(a);
		break;
	case ACTION_FORGET:
		do_forget(a);
		break;
	case ACTION_STARTED:
		do_started(a);
		break;
	case ACTION_LAUNCH_FAILED:
		a->launch_failed = true;
		break;
	case ACTION_TERM:
		do_term(a);
		break;
	case ACTION_KILL:
		do_kill(a);
		break;
	case ACTION_CLEAR:
		do_clear(a);
		break;
	case ACTION_REPORT:
		do_report(a);
		break;
	}
}

void attempt_stop(struct attempt *a, enum attempt_event event, Reins__V1__Outcome__Kind kind,
		  Reins__V1__Stop__Reason reason, const char *text)
{
	struct attempt_step step = attempt_step(a->state, event);
	if (step.action == ACTION_TERM || step.action == ACTION_KILL) {
		if (a->stop_kind == REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED) {
			a->stop_kind = kind;
			a->stop_reason = reason;
			set_text(a, text);
		}
	}
	attempt_event(a, event);
}

void attempt_fence(struct attempt *a)
{
	if (a->state == ATTEMPT_GONE)
		return;
	if (attempt_state_holds_slot(a->state) && !a->fenced)
		log_attempt(LOG_WARN, a, "fenced: it is no longer this worker's");
	a->fenced = true;
	attempt_event(a, EVENT_FENCED);
}

bool attempt_try_start(struct attempt *a)
{
	struct attempts *s = a->set;
	if (a->older && attempt_state_holds_slot(a->older->state))
		return false;
	if (a->exclusive && !lease_may_start(&a->lease, s->s_boot_ns, clock_boot_ns()))
		return false;
	state_dir_attempt_name(a->task_id, a->number, a->dir);
	attempt_event(a, EVENT_START);
	return true;
}

void attempt_resume_output(struct attempt *a)
{
	list_remove(&a->paused_node);
	if (a->run)
		run_pause_output(a->run, false);
}

void attempt_outcome_ready(struct attempt *a)
{
	struct attempts *s = a->set;
	a->spooled = true;
	list_remove(&a->outcome_node);
	if (!s->session_up)
		return;
	if (logs_all_sent(&a->log) && metrics_reader_is_done(&a->metrics))
		list_push_back(&s->outcomes, &a->outcome_node);
	else if (!logs_all_sent(&a->log) && list_empty(&a->log_node))
		list_push_back(&s->logs, &a->log_node);
	attempts_news(s);
}

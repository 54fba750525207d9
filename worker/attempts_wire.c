/* What a master says about attempts. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/grpc/grpc.h"
#include "common/log/log.h"
#include "common/pb/pb.h"
#include "worker/attempts_private.h"
#include "worker/lease.h"

#define OUTCOME_REST (64 * 1024)
#define TIMEOUT_MAX_NS (100 * 365 * (86400 * NS_PER_S)) /* the contract's longest duration; times to come are sums with it */
#define CAUSE(name) REINS__V1__REFUSED_ATTEMPT__CAUSE__##name

struct dispatch *dispatch_new(Reins__V1__MasterMessage *message)
{
	struct dispatch *d = xcalloc(1, sizeof(*d));
	d->refs = 1;
	d->message = message;
	return d;
}

void dispatch_unref(struct dispatch *d)
{
	if (!d || --d->refs)
		return;
	pb_free(d->message);
	free(d);
}

/* NULL: taken. */
static const char *take(struct attempts *s, struct dispatch *d, Reins__V1__DispatchedTask *t,
			Reins__V1__RefusedAttempt__Cause *ret_cause)
{
	struct uuid task;
	int64_t lease = 0, timeout = 0;
	*ret_cause = CAUSE(UNSUPPORTED);
	if (uuid_parse(t->task_id, strlen(t->task_id), &task) < 0 || t->attempt < 1 || !t->spec)
		return "not an attempt: no task id, number, or spec";
	if (!t->spec->n_command)
		return "runs commands only, no handlers";
	if (pb_duration_ns(t->lease_ttl, &lease) < 0 || lease < 0 || lease > LEASE_MAX_NS || (t->exclusive && lease == 0))
		return "a lease that is none";
	if (pb_duration_ns(t->spec->timeout, &timeout) < 0 || timeout < 0 || timeout > TIMEOUT_MAX_NS)
		return "a time limit that is none";
	struct map_node *n = map_get(&s->by_task, &task, sizeof(task));
	struct attempt *newest = n ? container_of(n, struct attempt, by_task) : NULL;
	*ret_cause = CAUSE(HELD);
	if (newest && newest->number >= t->attempt)
		return "held already, or a newer one is";
	*ret_cause = CAUSE(DRAINING);
	if (s->draining)
		return "the worker drains";
	*ret_cause = CAUSE(PAUSED);
	const char *paused = attempts_paused(s);
	if (paused)
		return paused;
	*ret_cause = CAUSE(BUSY);
	if (s->n_busy >= (size_t)s->cfg.slots)
		return "all slots are taken";
	struct holding holding;
	bool busy;
	const char *why = resources_take(&s->cfg.confine->resources, t->spec->resources, &busy, &holding);
	if (why) {
		*ret_cause = busy ? CAUSE(BUSY) : CAUSE(UNSUPPORTED);
		return why;
	}
	/* A newer attempt is proof that the older one was given away. */
	if (newest && attempt_state_holds_slot(newest->state))
		attempt_fence(newest);
	struct attempt *a = attempts_add(s, &task, t->attempt);
	d->refs++;
	a->dispatch = d;
	a->work = t;
	a->holding = holding;
	a->devices = resources_devices(&s->cfg.confine->resources, &holding);
	a->n_devices = holding.n_gpus;
	a->exclusive = t->exclusive;
	a->timeout_ns = timeout;
	lease_rule_set(&a->lease, lease, s->cfg.kill_grace_ns);
	a->trial = launch_health_taken(&s->health);
	list_push_back(&s->to_start, &a->start_node);
	loop_mark(s->cfg.loop, &s->start_dirty);
	attempts_say(a, SAY_ACCEPTED);
	return NULL;
}

void attempts_dispatch(struct attempts *s, struct dispatch *d)
{
	Reins__V1__Dispatch *m = d->message->dispatch;
	for (size_t i = 0; i < m->n_tasks; i++) {
		Reins__V1__RefusedAttempt__Cause cause;
		const char *text = take(s, d, m->tasks[i], &cause);
		if (text)
			attempts_say_refused(s, m->tasks[i]->task_id, m->tasks[i]->attempt, cause, text);
	}
}

void attempts_stop(struct attempts *s, const char *task_id, int32_t number, Reins__V1__Stop__Reason reason, const char *text)
{
	struct attempt *a = attempts_find(s, task_id, number);
	if (!a)
		return;
	if (reason == REINS__V1__STOP__REASON__FENCED)
		attempt_fence(a);
	else
		attempt_stop(a, reason == REINS__V1__STOP__REASON__RECALLED ? EVENT_RECALL : EVENT_STOP, reason, text);
}

void attempts_verdict(struct attempts *s, const char *task_id, int32_t number, bool fenced)
{
	struct attempt *a = attempts_find(s, task_id, number);
	if (!a)
		return;
	if (fenced) {
		char object[96];
		snprintf(object, sizeof(object), "task=%s attempt=%d", task_id, (int)number);
		log_line(LOG_WARN, "attempt", object, "fenced: its outcome came when it was no longer this worker's");
	}
	if (a->state == ATTEMPT_ENDED)
		attempt_event(a, EVENT_VERDICT);
	else
		attempt_fence(a); /* a verdict on what still runs: somebody else has reported it */
}

void attempts_log_stored(struct attempts *s, const char *task_id, int32_t number, int64_t offset)
{
	struct attempt *a = attempts_find(s, task_id, number);
	if (!a)
		return;
	logs_stored(&a->log, offset);
	attempts_log_news(a);
}

void attempts_follow_log(struct attempts *s, const char *task_id, int32_t number, bool on)
{
	struct attempt *a = attempts_find(s, task_id, number);
	if (!a)
		return;
	logs_follow(&a->log, on);
	attempts_log_news(a);
}

void attempts_adopted(struct attempts *s, const Reins__V1__AdoptedAttempt *adopted)
{
	struct attempt *a = attempts_find(s, adopted->task_id, adopted->attempt);
	int64_t lease;
	if (!a)
		return;
	logs_rewind(&a->log, adopted->log_stored);
	metrics_reader_rewind(&a->metrics, adopted->metrics_stored);
	/* Who beats more rarely needs the longer one; a shorter one than it runs on is a mistake, and nobody's gain. */
	if (adopted->lease_ttl && pb_duration_ns(adopted->lease_ttl, &lease) == 0 && lease > a->lease.length_ns && lease <= LEASE_MAX_NS)
		lease_rule_set(&a->lease, lease, a->kill_grace_ns);
}

void attempts_set_limits(struct attempts *s, const Reins__V1__WorkerLimits *limits)
{
	if (!limits)
		return;
	/* An outcome that fits no message would never leave, and hold up those behind it. */
	if (limits->result_bytes > 0)
		s->result_max = min_i64(limits->result_bytes, GRPC_MESSAGE_MAX - OUTCOME_REST);
	if (limits->error_bytes > 0)
		s->error_max = limits->error_bytes;
	if (limits->log_bytes > 0)
		s->log_limit = min_i64(s->cfg.log_limit, limits->log_bytes);
	s->log_reader.window = max_i64(limits->log_window_bytes, 0);
	s->log_reader.window_sum = max_i64(limits->log_window_sum_bytes, 0);
	if (limits->metrics_points > 0)
		s->metrics_limit = min_i64(s->cfg.metrics_limit, limits->metrics_points);
}

void attempts_renewed(struct attempts *s, int64_t encoded_boot_ns)
{
	s->s_boot_ns = max_i64(s->s_boot_ns, encoded_boot_ns);
	attempts_wake_waiting(s);
	attempts_renew(s);
}

void attempts_session_up(struct attempts *s)
{
	s->session_up = true;
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->state == ATTEMPT_ENDED && a->spooled) {
			attempt_outcome_ready(a);
		} else {
			attempts_log_news(a);
			/* Said perhaps, but into a stream that ended before the master had it; the store writes it only once. */
			if (a->started_wall_us && a->state != ATTEMPT_ENDED)
				attempts_say(a, SAY_STARTED);
		}
	}
	attempts_metrics_session(s, true);
	attempts_news(s);
}

void attempts_session_down(struct attempts *s)
{
	s->session_up = false;
	attempts_metrics_session(s, false);
	while (!list_empty(&s->refused))
		free(container_of(list_pop_front(&s->refused), struct refused, node));
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		/* The list of the next Hello says all of this. */
		a->say = 0;
		list_remove(&a->say_node);
		list_remove(&a->log_node);
		if (a->spooled)
			list_remove(&a->outcome_node);
		logs_rewind(&a->log, a->log.stored);
	}
}

void attempts_log_caught_up(struct attempt *a)
{
	list_remove(&a->log_node);
	if (a->state == ATTEMPT_ENDED && a->spooled && list_empty(&a->outcome_node) && logs_all_sent(&a->log))
		attempt_outcome_ready(a);
}

void attempts_outcome_sent(struct attempt *a)
{
	a->outcome_sent_mono_ns = loop_now_mono_ns(a->set->cfg.loop);
	list_remove(&a->outcome_node);
	list_push_back(&a->set->unanswered, &a->outcome_node);
}

void attempts_resend_before(struct attempts *s, int64_t sent_mono_ns)
{
	while (!list_empty(&s->unanswered)) {
		struct attempt *a = container_of(s->unanswered.next, struct attempt, outcome_node);
		if (a->outcome_sent_mono_ns > sent_mono_ns)
			break;
		list_remove(&a->outcome_node);
		list_push_back(&s->outcomes, &a->outcome_node);
		attempts_news(s);
	}
}

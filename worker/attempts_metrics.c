/* Metrics files are looked at once a second while their programs run, and once more at their end.
 *
 * Files take turns, a bounded part each, and some turns go by between two heartbeats however much programs write.  An
 * attempt whose points wait to be sent is not read on until they went out. */
#include "common/log/log.h"
#include "worker/attempts_private.h"

#include <inttypes.h>
#include <stdio.h>

#define LOOK_NS NS_PER_S
#define READS_PER_TURN 4 /* of 64 KiB: some milliseconds */

static void is_due(struct attempt *a)
{
	struct attempts *s = a->set;
	if (a->fenced)
		return;
	if (list_empty(&a->metrics_due_node))
		list_push_back(&s->metrics_due, &a->metrics_due_node);
	if (!loop_timer_active(&s->metrics_turn))
		loop_timer_set(&s->metrics_turn, loop_now_mono_ns(s->cfg.loop));
}

static void tell_dropped(const struct attempt *a, int64_t before)
{
	char object[96];
	if (before || !a->metrics.dropped)
		return;
	snprintf(object, sizeof(object), "task=%s attempt=%d", a->task_id, (int)a->number);
	log_warn("attempt", object, "more than %" PRId64 " points of metrics: the rest is counted and dropped", a->set->metrics_limit);
}

static void has_news(struct attempt *a)
{
	struct attempts *s = a->set;
	if (!s->session_up)
		return;
	if (metrics_reader_has_news(&a->metrics)) {
		if (list_empty(&a->metrics_node))
			list_push_back(&s->metrics, &a->metrics_node);
		attempts_news(s);
	} else if (a->state == ATTEMPT_ENDED && a->spooled && list_empty(&a->outcome_node)) {
		attempt_outcome_ready(a);
	}
}

static void read_one(struct attempt *a)
{
	struct attempts *s = a->set;
	int64_t dropped = a->metrics.dropped;
	enum metrics_read r = metrics_reader_read(&a->metrics, s->cfg.state->attempts_fd, a->dir, s->metrics_limit,
						  a->state == ATTEMPT_ENDED);
	tell_dropped(a, dropped);
	has_news(a);
	if (r == METRICS_MORE)
		is_due(a);
}

static void on_turn(struct loop_timer *t)
{
	struct attempts *s = container_of(t, struct attempts, metrics_turn);
	for (int n = 0; n < READS_PER_TURN && !list_empty(&s->metrics_due); n++)
		read_one(container_of(list_pop_front(&s->metrics_due), struct attempt, metrics_due_node));
	if (!list_empty(&s->metrics_due))
		loop_timer_set(t, loop_now_mono_ns(s->cfg.loop));
}

static void on_look(struct loop_timer *t)
{
	struct attempts *s = container_of(t, struct attempts, metrics_timer);
	bool any = false;
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->state < ATTEMPT_RUNNING || a->state > ATTEMPT_CLEARING)
			continue;
		is_due(a);
		any = true;
	}
	if (any)
		loop_timer_set(t, loop_now_mono_ns(s->cfg.loop) + LOOK_NS);
}

void attempts_metrics_init(struct attempts *s)
{
	loop_timer_init(&s->metrics_turn, s->cfg.loop, on_turn);
	loop_timer_init(&s->metrics_timer, s->cfg.loop, on_look);
}

void attempts_metrics_done(struct attempts *s)
{
	loop_timer_stop(&s->metrics_timer);
	loop_timer_stop(&s->metrics_turn);
}

void attempts_metrics_begin(struct attempts *s)
{
	if (!loop_timer_active(&s->metrics_timer))
		loop_timer_set(&s->metrics_timer, loop_now_mono_ns(s->cfg.loop) + LOOK_NS);
}

void attempts_metrics_last(struct attempt *a)
{
	list_remove(&a->metrics_due_node);
	read_one(a);
}

void attempts_metrics_sent(struct attempt *a)
{
	list_remove(&a->metrics_node);
	metrics_reader_sent(&a->metrics);
	if (metrics_reader_is_done(&a->metrics))
		has_news(a);
	else
		is_due(a);
}

void attempts_metrics_session(struct attempts *s, bool up)
{
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		list_remove(&a->metrics_node);
		if (up && a->state >= ATTEMPT_RUNNING && a->state <= ATTEMPT_ENDED) {
			has_news(a);
			is_due(a);
		}
	}
}

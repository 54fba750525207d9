/* Between attempts.c (the set), attempt.c (one attempt and its machine) and attempts_wire.c (what a master says). */
#ifndef REINS_WORKER_ATTEMPTS_PRIVATE_H
#define REINS_WORKER_ATTEMPTS_PRIVATE_H

#include "worker/attempts.h"

struct attempt *attempts_find(const struct attempts *s, const char *task_id, int32_t number);
/* Put into the set in DISPATCHED. NULL: it, or a newer one of its task, is there. */
struct attempt *attempts_add(struct attempts *s, const struct uuid *task, int32_t number);
/* Out of the set; freed at the end of the turn. */
void attempts_forget(struct attempt *a);
void attempts_say(struct attempt *a, unsigned what);
void attempts_news(struct attempts *s);
void attempts_wake_waiting(struct attempts *s);
/* The turns in which metrics files are read (attempts_metrics.c). */
void attempts_metrics_init(struct attempts *s);
void attempts_metrics_done(struct attempts *s);
/* A program runs. */
void attempts_metrics_begin(struct attempts *s);
/* Its program has ended: what is there is the rest. */
void attempts_metrics_last(struct attempt *a);
void attempts_metrics_session(struct attempts *s, bool up);
/* Sets the lease timer to the next deadline. */
void attempts_arm_lease(struct attempts *s);

void attempt_init(struct attempt *a, struct attempts *set, const struct uuid *task, int32_t number);
/* The machine: the only place that changes a state. */
void attempt_event(struct attempt *a, enum attempt_event event);
/* `event` is one that begins a stop; the words count only if it does begin one. */
void attempt_stop(struct attempt *a, enum attempt_event event, Reins__V1__Outcome__Kind kind,
		  Reins__V1__Stop__Reason reason, const char *text);
void attempt_fence(struct attempt *a);
/* Starts it if that is allowed now; false: it waits. */
bool attempt_try_start(struct attempt *a);
void attempt_resume_output(struct attempt *a);
/* Its outcome is on disk or will be sent without. */
void attempt_outcome_ready(struct attempt *a);

#endif

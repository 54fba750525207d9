/* Between attempts.c (the set), attempt.c (one attempt and its machine), attempts_wire.c (what a master says) and
 * attempts_adopt.c (what an earlier agent left). */
#ifndef REINS_WORKER_ATTEMPTS_PRIVATE_H
#define REINS_WORKER_ATTEMPTS_PRIVATE_H

#include "worker/attempts.h"

struct attempt *attempts_find(const struct attempts *s, const char *task_id, int32_t number);
/* Put into the set in DISPATCHED. NULL: it is there. */
struct attempt *attempts_add(struct attempts *s, const struct uuid *task, int32_t number);
/* Out of the set; freed at the end of the turn. */
void attempts_forget(struct attempt *a);
void attempts_say(struct attempt *a, unsigned what);
void attempts_say_refused(struct attempts *s, const char *task_id, int32_t number, Reins__V1__RefusedAttempt__Cause cause,
			  const char *text);
/* There may be log to send. */
void attempts_log_news(struct attempt *a);
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
/* Tells all supervisors their deadlines. */
void attempts_renew(struct attempts *s);
/* Goes through attempts/. -1 with a sentence. */
int attempts_adopt(struct attempts *s, char *ret_err, size_t err_cap) MUST_CHECK;

void attempt_init(struct attempt *a, struct attempts *set, const struct uuid *task, int32_t number);
/* The machine: the only place that changes a state. */
void attempt_event(struct attempt *a, enum attempt_event event);
/* `event` is one that begins a stop; the words count only if it does begin one. */
void attempt_stop(struct attempt *a, enum attempt_event event, Reins__V1__Stop__Reason reason, const char *text);
/* SIGKILL for one that is being stopped. */
void attempt_hurry(struct attempt *a);
void attempt_fence(struct attempt *a);
/* Starts it if that is allowed now; false: it waits. */
bool attempt_try_start(struct attempt *a);
/* a->dir is set. -errno: its directory can't be opened. */
int attempt_adopt(struct attempt *a) MUST_CHECK;
/* Of one in ENDED whose directory is still there: its log and its metrics can be sent. */
int attempt_reopen(struct attempt *a) MUST_CHECK;
/* Tells its supervisor its deadlines. */
void attempt_renew(struct attempt *a);
/* Its outcome is on disk or will be sent without. */
void attempt_outcome_ready(struct attempt *a);

#endif

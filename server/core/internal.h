/* What the files of the core share.  Not for others: they see core.h.
 *
 *   core.c     the step, the table of events, timers
 *   asks.c     handlers and counted resources, asked for and offered by name
 *   queue.c    queues: names, cursors, reading the backlog, the reconciler
 *   pause.c    queues of which nothing is given out
 *   ready.c    the window of ready tasks and the pick
 *   pool.c     workers that serve and run the same
 *   worker.c   workers, what they have free, who fits, leases
 *   session.c  hello, heartbeat, streams that end
 *   fleet.c    how often the sessions of a large fleet beat
 *   job.c      jobs: one task on its way through this master; the only place that changes a job's state
 *   attempt.c  what happens to a job, by state
 *   recovery.c running rows against memory, and against who holds their sessions; take-over of masters
 *   deposed.c  what is forgotten when another master has taken over
 *   keys.c     keys of the lease table that no row answers for
 *   effects.c  the list of effects and its arena
 *   view.c     looking in, and core_check
 *   why.c      why a task waits, in words */
#ifndef REINS_CORE_INTERNAL_H
#define REINS_CORE_INTERNAL_H

#include "server/core/state.h"
#include "server/core/core_view.h"

#define KEY_START ((struct row_key){ INT32_MAX, 0 })
#define KEY_END ((struct row_key){ INT32_MIN, INT64_MAX })
static inline bool key_before(struct row_key a, struct row_key b)
{
	return a.priority != b.priority ? a.priority > b.priority : a.seq < b.seq;
}

/* ---- core.c ---- */
void timer_init(struct timer *t, enum timer_kind kind);
/* NEVER: off. */
void timer_set(struct core *c, struct timer *t, int64_t at);

/* ---- effects.c ---- */
struct core_effect *emit(struct core *c, enum core_effect_type type);
struct core_effect *emit_worker(struct core *c, enum core_effect_type type, const struct worker *w);
void *emit_alloc(struct core *c, size_t n);
const char *emit_text(struct core *c, const char *text); /* a copy */
void emit_close(struct core *c, uint64_t peer, enum core_close_code code);
void emit_stop(struct core *c, const struct worker *w, struct core_attempt at, enum core_stop_reason why);
void emit_lease_beat(struct core *c, struct worker *w);

/* ---- queue.c ---- */
struct queue *queue_get(struct core *c, const char *name); /* NULL: too many */
void queue_check(struct core *c, struct queue *q);
void queue_free(struct core *c, struct queue *q);
size_t queue_share(const struct core *c);
void queue_fill_checked(struct core *c);
void queue_reconcile(struct core *c);
void queue_on_queues(struct core *c, const struct core_event *ev);
void queue_on_filled(struct core *c, const struct core_event *ev);
void queue_on_due(struct core *c, const struct core_event *ev);
void queue_due_in(struct core *c, int64_t in_ns);
void queue_ask_due(struct core *c);
void queue_on_expired(struct core *c, const struct core_event *ev);
void queue_expires_in(struct core *c, int64_t in_ns);
void queue_ask_expire(struct core *c);
void reminder_init(struct reminder *r, enum timer_kind kind);

/* ---- pause.c ---- */
void pause_on_pause(struct core *c, const struct core_event *ev);
void pause_on_queues(struct core *c, const struct core_event *ev);
void pause_tell(struct core *c); /* at the end of a step */
static inline bool queue_gives(const struct queue *q)
{
#ifdef REINS_MUTATION_NO_PAUSE /* tests/sim proves that it would notice */
	return true;
#endif
	return !q->paused;
}

/* ---- ready.c ---- */
void window_order(struct core *c, struct queue *q); /* after what decides on its turn has changed */
/* A row that is PENDING in the store. True: in the window now or before. `avoid`: NULL: nobody. */
bool window_offer(struct core *c, const struct core_task *t, const struct avoid *avoid);
void window_remove(struct core *c, struct job *j); /* out of all indexes of the window */
void window_wake(struct core *c, struct job *j);   /* a resting job's time has come */
void window_submit(struct core *c, const struct core_event *ev);
void window_pick(struct core *c);
bool order_less(const struct heap_node *a, const struct heap_node *b);
bool class_less(const struct heap_node *a, const struct heap_node *b);
bool worst_less(const struct heap_node *a, const struct heap_node *b);

/* ---- worker.c ---- */
struct worker *worker_find(const struct core *c, const char *id);
struct worker *worker_new(struct core *c, const char *id);
void worker_maybe_forget(struct core *c, struct worker *w);
void worker_free(struct worker *w);
/* After anything changed that says whether and what it may be given. `gained`: look at parked tasks again. */
void worker_refresh(struct core *c, struct worker *w, bool gained);
/* It takes nothing new: by its own word or an operator's. */
static inline bool worker_drains(const struct worker *w)
{
#ifdef REINS_MUTATION_NO_DRAIN_WISH /* tests/sim proves that it would notice */
	return w->draining;
#endif
	return w->draining || w->drain_wish;
}
bool worker_can_send(const struct worker *w, int64_t session);
/* For one more dispatch of this size, beside those that it has not accepted yet. */
bool worker_has_room(const struct worker *w, size_t bytes);
/* It runs such a task, and has all free that it asks for. */
bool worker_free_less(const struct heap_node *a, const struct heap_node *b);
bool worker_fits(const struct worker *w, const struct want *want);
void worker_take_slot(struct core *c, struct worker *w, struct job *j);
void worker_free_slot(struct core *c, struct worker *w, struct job *j);
struct worker *worker_match(struct core *c, const struct queue *q, const struct want *want, uint64_t avoid, int64_t *budget);
/* What it has now, for what its jobs hold. Takes the stock. */
void worker_set_stock(struct core *c, struct worker *w, struct stock *s, size_t n);

/* ---- pool.c ---- */
/* NULL: a name too many, or no memory. The caller owns one count of n_workers. */
struct pool *pool_get(struct core *c, const struct core_event *hello);
void pool_put(struct core *c, struct pool *p);
void pool_widen(struct core *c, struct pool *p, const struct worker *w);
bool pool_serves(const struct pool *p, const struct queue *q);
bool pool_runs(const struct pool *p, const struct want *want); /* its workers can run such a task, whatever is free */
bool pool_could(const struct pool *p, const struct want *want); /* one of its workers might have had so much at once */
/* A word of it came at `at`: leases count anew. */
void worker_heard(struct core *c, struct worker *w, int64_t at);
void worker_timer(struct core *c, struct worker *w);
void worker_on_timer(struct core *c, struct worker *w);
void worker_store_back(struct core *c, int64_t away_ns);
void worker_stalled(struct core *c, int64_t ns);
void worker_drop_peer(struct core *c, struct worker *w, bool close, enum core_close_code code);

/* ---- session.c ---- */
struct peer *peer_find(const struct core *c, uint64_t id);
void peer_remove(struct core *c, uint64_t id);
struct worker *peer_worker(const struct core *c, uint64_t id); /* whose current stream this is; NULL: none */
void session_on_hello(struct core *c, const struct core_event *ev);
void session_on_opened(struct core *c, const struct core_event *ev);
void session_on_heartbeat(struct core *c, const struct core_event *ev);
void session_on_draining(struct core *c, const struct core_event *ev);
void session_on_drain_wish(struct core *c, const struct core_event *ev);
/* The store is back: who waited for it gets a session. */
void session_store_back(struct core *c);
/* It has waited for the store for long enough. */
void session_give_up(struct core *c, struct worker *w);
void session_on_peer_gone(struct core *c, const struct core_event *ev);
bool session_mass_end(const struct core *c, int64_t at);
void hello_free(struct core *c, struct hello *h);
/* The stream of a hello that has no session yet ends here. NULL-safe. */
void hello_close(struct core *c, struct hello *h, enum core_close_code code);

/* ---- deposed.c ---- */
void session_on_deposed(struct core *c, const struct core_event *ev);

/* ---- fleet.c ---- */
/* H and L of the session of `w` that is opened for `h`; without an old stream it counts as opening. */
void fleet_pace(struct core *c, const struct worker *w, struct hello *h);

/* ---- job.c ---- */
struct job *job_by_task(const struct core *c, const struct uuid *task);
struct job *job_by_attempt(const struct core *c, struct core_attempt at);
/* A new job, READY (in no heap yet). */
struct job *job_new(struct core *c, const struct core_task *t, struct queue *q);
struct job *job_new_at(struct core *c, const struct core_task *t, struct worker *w, enum job_state state);
void job_free(struct core *c, struct job *j);
void job_attach(struct job *j, struct worker *w);
void job_set_state(struct core *c, struct job *j, enum job_state to);
void job_answered(struct core *c, struct job *j); /* its worker spoke after a recall */
struct core_attempt job_at(const struct job *j); /* before the claim: the number that it would get */
/* Its row is this worker's, as far as is known here: it has an owner key. */
bool job_owns(const struct job *j);

/* ---- recovery.c ---- */
void recovery_init(struct core *c);
void recovery_done(struct core *c);
void recovery_on_timer(struct core *c);
void recovery_on_strays(struct core *c, const struct core_event *ev);
void recovery_on_hb(struct core *c, const struct core_event *ev);
void recovery_on_took_over(struct core *c, const struct core_event *ev);
void recovery_on_beat(struct core *c);
/* All observations begin anew. */
void recovery_restart(struct core *c);
void recovery_store_back(struct core *c, int64_t away_ns);
void recovery_stalled(struct core *c, int64_t ns);

/* ---- keys.c ---- */
void keys_init(struct core *c);
void keys_on_timer(struct core *c);
void keys_on_page(struct core *c, const struct core_event *ev);
void keys_on_runs(struct core *c, const struct core_event *ev);
/* Something happened that may have left keys behind, or what kept a round back is over. */
void keys_expect(struct core *c);

/* ---- attempt.c ---- */
void job_input(struct core *c, struct job *j, enum job_input in, const struct core_event *ev);
/* READY or new submit → PREEMPTING at `w`. */
void job_reserve(struct core *c, struct job *j, struct worker *w);
void job_retry_take_backs(struct core *c);
void job_on_inserted(struct core *c, const struct core_event *ev);
void job_on_outcome(struct core *c, const struct core_event *ev);
void job_on_recorded(struct core *c, const struct core_event *ev);
void job_on_taken_back(struct core *c, const struct core_event *ev);
void job_on_at(struct core *c, const struct core_event *ev); /* events that name an attempt of one known peer, or a task */

#endif

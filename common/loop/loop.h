/* The event loop of every Reins process: one thread, libuv underneath, and a turn in phases.
 *
 *   input    libuv calls us for sockets, timers and signals.  Handlers only take notes: they
 *            put work on lists and mark owners dirty.
 *   flush    before the loop sleeps, everything marked dirty is flushed once, phase by phase:
 *            LOOP_WORK (decide), LOOP_STORE (one statement per kind), LOOP_LEASE (one pipeline),
 *            LOOP_WRITE (one write per socket).  A flush may mark others, in any phase; phases are
 *            gone through again until nothing is dirty, at most LOOP_MAX_ROUNDS times, then the
 *            rest waits for the next turn, which comes without sleeping.
 *   burial   what was buried during the turn is freed.
 *
 * All calls are made on the loop's thread. */
#ifndef REINS_LOOP_H
#define REINS_LOOP_H

#include "common/base/base.h"
#include "common/base/heap.h"
#include "common/base/histogram.h"
#include "common/base/list.h"

struct loop;
struct uv_loop_s;

enum loop_phase { LOOP_WORK, LOOP_STORE, LOOP_LEASE, LOOP_WRITE, LOOP_PHASES };
#define LOOP_MAX_ROUNDS 16

/* Also makes the process ignore SIGPIPE (uv_spawn gives children the default back). */
int loop_new(struct loop **ret) MUST_CHECK;
/* Every poll, signal and timer must have been freed or stopped (asserted); frees what is still buried. NULL-safe. */
void loop_free(struct loop *loop);
/* Until loop_stop or until no handle or timer is active and nothing is dirty. What the last
 * turn marked is flushed before it returns. */
void loop_run(struct loop *loop);
/* Ends loop_run with the turn; called before loop_run, that returns after a flush. */
void loop_stop(struct loop *loop);
/* One turn, for tests: flush, input, flush, burial.  With `wait` it sleeps until the next event unless
 * something was dirty at the call; without, it polls. */
void loop_turn(struct loop *loop, bool wait);
/* CLOCK_MONOTONIC, read at the first question of a turn's input, when timers fire, and when the flush begins. */
int64_t loop_now_mono_ns(const struct loop *loop);
/* Changes from turn to turn: for budgets that are so-and-so many per turn. */
uint64_t loop_turn_number(const struct loop *loop);
struct uv_loop_s *loop_uv(struct loop *loop);
struct loop_stats {
	int64_t busy_ns;        /* not asleep, since loop_new */
	struct histogram turns; /* how long each was busy: so long did what came meanwhile wait */
	struct histogram late;  /* how long after its deadline each timer fired */
};
void loop_stats(const struct loop *loop, struct loop_stats *ret);

/* ---- flush ---- */
struct loop_dirty {
	struct list node;
	void (*flush)(struct loop_dirty *d);
	enum loop_phase phase;
};
void loop_dirty_init(struct loop_dirty *d, enum loop_phase phase, void (*flush)(struct loop_dirty *));
/* Idempotent within a turn; d->flush is called once per mark, unmarked before the call. */
void loop_mark(struct loop *loop, struct loop_dirty *d);
/* No-op when not marked. Must be called before the owner goes away. */
void loop_unmark(struct loop_dirty *d);

/* ---- burial: never free under a caller ---- */
struct loop_grave {
	struct list node;
	void (*free)(struct loop_grave *g);
};
/* g->free is called at the end of this turn. */
void loop_bury(struct loop *loop, struct loop_grave *g, void (*free)(struct loop_grave *));

/* ---- timers: one heap, the next deadline sets the sleep ---- */
struct loop_timer {
	struct loop *loop;
	void (*fire)(struct loop_timer *t);
	int64_t due_mono_ns;
	/* private */
	uint64_t seq;          /* equal deadlines fire in the order they were set */
	struct heap_node heap;
	struct list firing;    /* due in this turn and not yet called */
};
void loop_timer_init(struct loop_timer *t, struct loop *loop, void (*fire)(struct loop_timer *));
/* Sets or moves the deadline; one in the past fires in the next turn, never inside the call. Never early by
 * CLOCK_MONOTONIC, at most about a millisecond late on an idle loop. */
void loop_timer_set(struct loop_timer *t, int64_t due_mono_ns);
/* No-op when not active. Must be called before the owner goes away. */
void loop_timer_stop(struct loop_timer *t);
bool loop_timer_active(const struct loop_timer *t);

/* ---- foreign sockets (TLS, libpq, hiredis, our own TCP) ---- */
enum { LOOP_READ = 1, LOOP_WRITE_READY = 2 };
struct loop_poll;
/* `on_ready` gets LOOP_READ | LOOP_WRITE_READY.  When libuv reports an error (status < 0, after which it
 * has stopped the poll) both are given, so that the owner's library finds the error itself, and the
 * poll goes on as set.  -EEXIST: the fd is being watched already; -EPERM: a file that can't be. */
int loop_poll_new(struct loop *loop, int fd, void (*on_ready)(void *arg, int events), void *arg,
		  struct loop_poll **ret) MUST_CHECK;
/* 0 stops watching.  Cheap when nothing changes. */
void loop_poll_set(struct loop_poll *p, int events);
/* Stops watching at once and frees itself at the end of the turn; the caller closes the fd
 * after this call. NULL-safe. */
void loop_poll_free(struct loop_poll *p);

/* ---- signals: an unfreed one keeps loop_run going ---- */
struct loop_signal;
int loop_signal_new(struct loop *loop, int signo, void (*on_signal)(void *arg, int signo), void *arg,
		    struct loop_signal **ret) MUST_CHECK;
/* NULL-safe; may be called inside on_signal. */
void loop_signal_free(struct loop_signal *s);

#endif

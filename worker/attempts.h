/* All attempts of this worker: taken, run, ended, reported, forgotten.
 *
 * The session calls in with what a master said, and takes from the lists below what there is to say; on_news tells it
 * that there is something.  Nothing here knows a connection: between sessions attempts run on, and their news
 * wait.  The machine of an attempt is in machine.h. */
#ifndef REINS_WORKER_ATTEMPTS_H
#define REINS_WORKER_ATTEMPTS_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/id.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/loop/loop.h"
#include "reins/v1/worker_service.pb-c.h"
#include "worker/confine.h"
#include "worker/disk.h"
#include "worker/launch.h"
#include "worker/launch_health.h"
#include "worker/lease.h"
#include "worker/logs.h"
#include "worker/machine.h"
#include "worker/metrics_reader.h"
#include "worker/run.h"
#include "worker/spool.h"
#include "worker/state_dir.h"

/* A Dispatch as it came, kept while tasks of it wait for their start. */
struct dispatch {
	unsigned refs;
	Reins__V1__MasterMessage *message;
};
/* Takes the message over; one reference is the caller's. */
struct dispatch *dispatch_new(Reins__V1__MasterMessage *message);
void dispatch_unref(struct dispatch *d);

enum { SAY_ACCEPTED = 1, SAY_STARTED = 2 };

struct attempt {
	/* For the session to read. */
	char task_id[UUID_TEXT_LEN + 1];
	int32_t number;
	enum attempt_state state;
	unsigned say;               /* SAY_… while in attempts.to_say */
	int64_t started_wall_us;    /* 0: not yet */
	char **devices;             /* their names; they live as long as the worker's list */
	size_t n_devices;
	struct blob *outcome;       /* in ENDED */
	int64_t outcome_sent_mono_ns;
	char *stuck;                /* what can't be ended, for people; or NULL */
	struct attempt_log log;
	struct metrics_reader metrics;
	struct list all_node, say_node, log_node, metrics_node, outcome_node;

	/* Private to attempts*.c. */
	struct attempts *set;
	struct uuid task;
	struct map_node by_task;    /* only the newest of a task */
	struct attempt *older;
	struct dispatch *dispatch;  /* until started */
	Reins__V1__DispatchedTask *work;
	char dir[STATE_ATTEMPT_NAME_MAX];
	struct holding holding;     /* of the worker's resources, as long as it holds its slot */
	int dir_fd;                 /* -1: it has no directory */
	struct run *run;
	bool adopted;               /* started by an earlier agent */
	bool exclusive, fenced, launch_failed, exited;
	bool own_failure;           /* never ran, and it is the worker's fault */
	bool damaged;               /* its file can't be read */
	bool lost;                  /* the supervisor died first: nobody knows how it ended */
	bool trial;                 /* see launch_health.h */
	struct lease_rule lease;
	int64_t timeout_ns;         /* 0: none */
	int64_t kill_grace_ns;
	Reins__V1__Stop__Reason ask_reason; /* in attempt_stop */
	const char *ask_text;
	/* Who began to stop it before it ended; KIND_UNSPECIFIED: nobody. */
	Reins__V1__Outcome__Kind stop_kind;
	Reins__V1__Stop__Reason stop_reason;
	char *text;
	int code, signal;
	int64_t oom_limit;          /* of memory, when a process of it was ended for want of it; 0: it had none; -1: not so */
	int64_t finished_wall_us;
	uint64_t spool_id;
	bool spooled;
	struct list start_node;
	struct list metrics_due_node; /* its metrics file is to be looked at */
	struct loop_grave grave;
};

struct refused {
	struct list node;
	char task_id[UUID_TEXT_LEN + 1];
	int32_t number;
	Reins__V1__RefusedAttempt__Cause cause;
	char text[256];
};

struct attempts_config {
	struct loop *loop;
	const struct launch_base *launch;
	struct confine *confine;
	struct state_dir *state;
	struct spares *spares;
	int64_t slots;
	int64_t kill_grace_ns;
	int64_t orphan_timeout_ns;
	int64_t launch_failures;    /* see launch_health.h */
	int64_t log_limit, spool_limit, metrics_limit;
	void (*on_news)(void *arg);
	/* The number of attempts that hold a slot, or that are held, went down. */
	void (*on_fewer)(void *arg);
	void *arg;
};

struct attempts {
	/* For the session: lists of what there is to say; it takes nodes off as it says them. */
	struct list all;
	struct list to_say;         /* attempt.say_node */
	struct list refused;        /* struct refused; freed by the taker */
	struct list logs;           /* attempt.log_node: have log to send, or an outcome that waits for its log */
	struct list metrics;        /* attempt.metrics_node: have points to send */
	struct list outcomes;       /* attempt.outcome_node: to be sent now */
	struct list unanswered;     /* attempt.outcome_node: sent, oldest first */
	size_t n_held, n_busy;

	/* Private to attempts*.c. */
	struct attempts_config cfg;
	struct map by_task;
	struct spool *spool;
	struct disk *disk;
	int spool_error;            /* of the last batch; 0: written */
	int64_t result_max, error_max;
	struct logs_reader log_reader;
	int64_t log_limit;          /* of new attempts */
	int64_t metrics_limit;
	struct list metrics_due;    /* attempt.metrics_due_node */
	struct loop_timer metrics_timer, metrics_turn;
	struct sweeper *sweeper;
	struct launch_health health;
	bool session_up, draining;
	int64_t s_boot_ns;          /* S of the lease rule */
	int64_t detach_boot_ns;     /* no orphan before; 0: we don't detach */
	int64_t renewed_mono_ns;    /* supervisors were told their deadlines */
	struct loop_timer renew_timer;
	struct list spooling;       /* attempt.outcome_node: outcome not on disk yet */
	struct list to_start, waiting; /* attempt.start_node; `waiting`: for a lease, or for an older attempt to end */
	struct loop_dirty start_dirty;
	struct loop_timer start_timer;
};

/* Replays the spool: outcomes of an earlier process become attempts in ENDED; what else it left behind is adopted, or
 * found dead and ended, which takes until attempts_settled. -1 with a sentence. */
int attempts_new(const struct attempts_config *cfg, char *ret_err, size_t err_cap, struct attempts **ret) MUST_CHECK;
/* attempts_disk_idle must hold. What runs is left to its supervisors. NULL-safe. */
void attempts_free(struct attempts *s);
bool attempts_disk_idle(const struct attempts *s);
/* Of all that an earlier process left it is known whether it lives; before that no session is to begin. */
bool attempts_settled(const struct attempts *s);

/* ---- what a master says ---- */

/* Each task of the dispatch is taken (accepted is said) or refused. */
void attempts_dispatch(struct attempts *s, struct dispatch *d);
void attempts_stop(struct attempts *s, const char *task_id, int32_t number, Reins__V1__Stop__Reason reason, const char *text);
/* An outcome was answered; `fenced`: it came too late to be taken. */
void attempts_verdict(struct attempts *s, const char *task_id, int32_t number, bool fenced);
void attempts_log_stored(struct attempts *s, const char *task_id, int32_t number, int64_t offset);
void attempts_follow_log(struct attempts *s, const char *task_id, int32_t number, bool on);
/* In Welcome: send the log again from there, and the points behind that one; its lease may be longer than it was. */
void attempts_adopted(struct attempts *s, const Reins__V1__AdoptedAttempt *adopted);
void attempts_set_limits(struct attempts *s, const Reins__V1__WorkerLimits *limits);
/* A heartbeat encoded at this time was acknowledged and renews exclusive leases. */
void attempts_renewed(struct attempts *s, int64_t encoded_boot_ns);
/* All of Welcome was read: what is held may be spoken of. */
void attempts_session_up(struct attempts *s);
void attempts_session_down(struct attempts *s);

/* ---- what the session did ---- */

/* logs_next had nothing to send now. */
void attempts_log_caught_up(struct attempt *a);
/* What attempt.metrics had to send. */
void attempts_metrics_sent(struct attempt *a);
void attempts_outcome_sent(struct attempt *a);
/* Outcomes sent before this time and not answered are to be sent again. */
void attempts_resend_before(struct attempts *s, int64_t sent_mono_ns);

/* ---- the worker as a whole ---- */

void attempts_set_draining(struct attempts *s, bool draining);
/* SIGTERM for all that runs; what was not started is refused or, without a session, forgotten. */
void attempts_stop_all(struct attempts *s, Reins__V1__Stop__Reason reason, const char *text);
/* SIGKILL for all that runs. `fenced`: outcomes are nobody's business. */
void attempts_kill_all(struct attempts *s, Reins__V1__Stop__Reason reason, const char *text, bool fenced);
/* Whatever is held, outcomes too: SIGKILL for what runs, and nobody is told how it ended. */
void attempts_give_up(struct attempts *s, const char *text);
/* This process is about to end and leaves what runs to its supervisors: for so long they wait for the next one (exclusive
 * tasks as long as their lease says). What was not started is refused. */
void attempts_detach(struct attempts *s, int64_t within_ns);
/* Why no tasks are taken now, for people, or NULL. */
const char *attempts_paused(const struct attempts *s);

#endif

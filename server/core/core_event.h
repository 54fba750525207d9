/* What the core is told: the answers to its effects, what workers and clients say, and the passing of what it can't see.
 *
 * Every effect that names an answer gets exactly one, also while the store or the lease table is away.  Answers of
 * one kind about one task keep their order; of different kinds they may come in any order.  After CLOSE_PEER the
 * core knows that peer no more; what still arrives from it is ignored, outcomes excepted (the store judges them). */
#ifndef REINS_CORE_EVENT_H
#define REINS_CORE_EVENT_H

#include "common/base/buf.h"
#include "server/core/core_task.h"

enum core_event_type {
	CORE_EV_SUBMIT,         /* one validated task; asks for an eager match or a PENDING insert */
	CORE_EV_INSERTED,       /* answer to CORE_DO_INSERT */
	CORE_EV_READY,          /* rows known to be PENDING in the store: a group's insert, a retry, another master's word */
	CORE_EV_GONE,           /* the task is no longer PENDING (cancelled): forget it if it is in the window */
	CORE_EV_HELLO,          /* a worker's whole Hello (all pieces) */
	CORE_EV_SESSION_OPENED, /* answer to CORE_DO_SESSION_OPEN */
	CORE_EV_HEARTBEAT,
	CORE_EV_ACCEPTED,
	CORE_EV_REFUSED,
	CORE_EV_OUTCOME,        /* the worker says that the attempt's tree is gone and how it ended */
	CORE_EV_RECORDED,       /* answer to CORE_DO_RECORD */
	CORE_EV_DRAINING,       /* the worker says that it takes nothing new, or takes tasks again */
	CORE_EV_DRAIN_WISH,     /* an operator wants the worker to take nothing new, or no longer so */
	CORE_EV_PEER_GONE,      /* the stream ended */
	CORE_EV_PREEMPTED,      /* answer to CORE_DO_PREEMPT */
	CORE_EV_CLAIMED,        /* answer to CORE_DO_CLAIM */
	CORE_EV_TAKEN_BACK,     /* answer to CORE_DO_TAKE_BACK */
	CORE_EV_CANCEL_WISH,    /* the store holds a cancel wish for this running attempt: stop it */
	CORE_EV_QUEUES,         /* answer to CORE_DO_QUEUES */
	CORE_EV_PAUSE,          /* the store has paused a queue, or let it go on, as this master asked */
	CORE_EV_FILLED,         /* answer to CORE_DO_FILL */
	CORE_EV_DUE,            /* answer to CORE_DO_DUE */
	CORE_EV_EXPIRED,        /* answer to CORE_DO_EXPIRE */
	CORE_EV_STRAYS,         /* answer to CORE_DO_STRAYS */
	CORE_EV_HB,             /* answer to CORE_DO_ASK_HB */
	CORE_EV_TOOK_OVER,      /* answer to CORE_DO_TAKE_OVER */
	CORE_EV_BEAT,           /* the store has committed a beat of this master */
	CORE_EV_DEPOSED,        /* another master judges the sessions of this one: all of them are forgotten */
	CORE_EV_KEYS,           /* answer to CORE_DO_KEYS */
	CORE_EV_RUNS,           /* answer to CORE_DO_RUNS */
	CORE_EV_STORE,          /* the store went away or came back */
	CORE_EV_LEASE,          /* the lease table went away or came back */
	CORE_EV_STALLED,        /* the loop stood still for stalled_ns: every lease is lengthened by that */
	CORE_EV_TIME,           /* nothing but the time */
};

/* Longer than any hello or statement is on its way; what seems older comes of a clock that was set back. */
#define CORE_HELD_UP_US 600000000

enum core_insert_verdict { CORE_INSERT_CREATED, CORE_INSERT_EXISTS, CORE_INSERT_FAILED };
enum core_preempt_verdict { CORE_PREEMPT_OK, CORE_PREEMPT_FULL, CORE_PREEMPT_NEWER_SESSION, CORE_PREEMPT_DOWN };
enum core_claim_verdict {
	CORE_CLAIM_WON,
	CORE_CLAIM_LOST,        /* somebody else has it */
	CORE_CLAIM_UNAVAILABLE,
	CORE_CLAIM_STALE,       /* nobody has it; the worker's session is not this master's any more */
};
enum core_record_verdict { CORE_RECORD_RECORDED, CORE_RECORD_DUPLICATE, CORE_RECORD_FENCED, CORE_RECORD_UNAVAILABLE };
enum core_take_back_verdict {
	CORE_TAKE_BACK_PENDING,    /* the row is PENDING again: .task is its ready row */
	CORE_TAKE_BACK_ENDED,      /* FAILED at the lost-limit, or CANCELLED by a wish */
	CORE_TAKE_BACK_FENCED,     /* the row names another attempt, session or state: somebody else decided */
	CORE_TAKE_BACK_UNAVAILABLE /* the store is away: asked again by the core */
};
enum core_take_back_cause {
	CORE_CAUSE_WORKER_LOST,  /* lease ended, or a new instance: counted against the lost-limit */
	CORE_CAUSE_NOT_LISTED,   /* the worker's list or heartbeat lacks it: counted when it was sent and the process died */
	CORE_CAUSE_REFUSED,      /* not counted */
	CORE_CAUSE_RECALLED,     /* not accepted in time; not counted */
	CORE_CAUSE_NEVER_SENT,   /* claimed, but the session ended before the send; not counted */
};
enum core_stop_reason { CORE_STOP_CANCELLED, CORE_STOP_FENCED, CORE_STOP_RECALLED, CORE_STOP_REASONS };

struct core_adopted {
	struct core_task task; /* .attempt is the adopted attempt */
	int64_t lease_ns;
	bool cancel_wish;
	int64_t log_stored; /* for the worker: bytes before this need not be sent again */
	int64_t log_dropped; /* of these, bytes that are not kept */
	int64_t metrics_stored; /* likewise points up to this number */
};

/* A running row, and the master that opened its worker's newest session. */
struct core_stray {
	struct core_attempt at;
	const char *worker;
	int64_t session, lease_ns; /* of the row */
	int64_t detached_ns;       /* > 0: its worker left it running for so long from now */
	bool exclusive, cancel_wish;
	bool own;                  /* that master has the asker's id; it may be an older incarnation */
	const char *master;        /* "" when the store has no such worker or master: incarnation and beat are 0 then */
	int64_t incarnation, beat;
};

struct core_event {
	enum core_event_type type;
	uint64_t peer;         /* engine's handle of a worker stream, never 0, never used twice */
	uint64_t token;        /* engine's handle of a submit or an outcome */
	int64_t session;       /* TAKEN_BACK, HB: as in the effect */
	int64_t due_in_ns;     /* SUBMIT, INSERTED, READY: > 0: not ready before; the core then asks DUE in time */
	/* INSERTED, READY: > 0: one of these fails if nobody was given it by then; the core then asks EXPIRE in time */
	int64_t expires_in_ns;
	/* SUBMIT; INSERTED (the submit's, with seq, and attempt 1 when it was inserted as RUNNING); CLAIMED when won (the row);
	 * TAKEN_BACK and RECORDED (ready row when PENDING again) */
	struct core_task task;
	struct core_attempt at; /* ACCEPTED REFUSED OUTCOME RECORDED PREEMPTED CLAIMED TAKEN_BACK CANCEL_WISH GONE */
	const char *text;      /* REFUSED: the worker's words, for people; NULL: none */
	struct blob *spec;     /* SUBMIT, CLAIMED: borrowed; the core takes a reference of its own */
	union {
		enum core_insert_verdict inserted;
		enum core_preempt_verdict preempted;
		enum core_claim_verdict claimed;
		enum core_take_back_verdict taken_back;
		struct {
			enum core_record_verdict verdict;
			bool pending_again; /* a retry: .task is the ready row, due after retry_in_ns */
			int64_t retry_in_ns;
		} recorded;
		struct {
			bool succeeded;
			bool given_back; /* stopped, or lost with its worker: again at once. Neither: as the policy says */
		} outcome;
		struct {
			const struct core_task *at;
			size_t n;
		} ready;
		struct {
			const char *worker;
			uint8_t instance[CORE_INSTANCE_LEN];
			struct core_capacity capacity;
			const char *const *queues; /* n_queues 0: all */
			size_t n_queues;
			const char *const *handlers;
			size_t n_handlers;
			bool runs_commands;
			const struct core_attempt *held; /* running, or outcome not acknowledged */
			size_t n_held;
			bool enforces_lease; /* may be given exclusive tasks */
			bool in_process;     /* tasks die with the worker's process: disconnect-grace */
			bool draining;
			int64_t resumes;     /* newest session that this same process had; 0: none */
			int64_t number;      /* grows with the worker's hellos, by one within a process; 0: not counted */
			bool no_other;       /* no hello since that session has opened another */
		} hello;
		struct {
			const char *worker; /* of the effect: the peer may be gone by now */
			bool ok; /* false: the store is away, or has a session of a newer hello; the peer is closed with UNAVAILABLE */
			int64_t session;
			bool drain_wish; /* as in DRAIN_WISH */
			const struct core_adopted *adopted;
			size_t n_adopted;
			const struct core_task *requeued; /* rows of this worker that the list lacks: PENDING now */
			size_t n_requeued;
			/* exclusive rows of an older instance that the list lacks: re-stamped with this session and
			 * still RUNNING; the core takes them back when the old instance's lease has ended */
			const struct core_adopted *waiting;
			size_t n_waiting;
			const struct core_attempt *fenced; /* listed, but not (or no longer) this worker's to run */
			size_t n_fenced;
		} opened;
		struct {
			int64_t number;
			int64_t last_dispatch; /* newest Dispatch number that the worker had seen */
			const struct core_attempt *held;
			size_t n_held;
		} heartbeat;
		struct {
			const char *const *at;
			size_t n;
			bool ok;
			const struct core_paused *paused; /* all that are; n_paused 0: none is */
			size_t n_paused;
		} queues; /* queues that have ready rows */
		struct {
			struct core_paused queue;
			bool on; /* then CORE_DO_PAUSED follows */
		} pause;
		struct {
			const char *queue;
			const struct core_task *at;
			size_t n;
			bool ok;
			bool exhausted; /* nothing beyond the last row when it was read */
		} filled;
		struct {
			const struct core_task *at; /* rows whose time has come: PENDING and ready now */
			size_t n;
			bool ok;
			int64_t next_in_ns; /* until the next one is due; -1: none */
		} due;
		struct {
			const struct uuid *at; /* tasks that have FAILED now, never having been given out */
			size_t n;
			bool ok;
			int64_t next_in_ns;    /* until the next one does; -1: none */
		} expired;
		struct {
			const struct core_stray *at; /* in the order of their task ids */
			size_t n;                    /* fewer than the limit: the last page */
			bool ok;
		} strays;
		struct {
			const char *worker;
			bool fresh; /* a hb of just that session; false also when the lease table does not know */
		} hb;
		struct {
			const char *master;
			bool taken; /* its beat stands where it stood, and it is deposed, by whomever */
			int64_t incarnation, beat; /* the former: its new one */
		} took_over;
		int64_t beat_mono_ns; /* BEAT: when it was sent, on the clock of core_step: it was not committed before */
		struct {
			const struct core_owner *at;
			size_t n;
			const char *const *hashes; /* workers with a hash and without an hb */
			size_t n_hashes;
			bool ok;                   /* false: the lease table is away */
			uint64_t next;             /* 0: that was the last page */
		} keys;
		struct {
			const struct core_owner *at; /* of the effect, in its order, as is its cursor */
			const bool *runs;
			size_t n;
			bool ok;
			uint64_t next;
		} runs;
		bool up;
		struct {
			bool on;
			/* > 0: its process ends now and leaves the programs running: leases of attempts that are not
			 * exclusive end no sooner than after this, unless a new session begins */
			int64_t detach_ns;
		} draining;
		struct { const char *worker; bool on; } drain_wish;
		int64_t stalled_ns;
	};
};

#endif

/* What the core wants done, by the store, the lease table and the workers' streams. */
#ifndef REINS_CORE_EFFECT_H
#define REINS_CORE_EFFECT_H

#include "server/core/core_event.h"

enum core_effect_type {
	CORE_DO_INSERT,        /* store: insert submit `token`; as RUNNING when worker is set */
	CORE_DO_PREEMPT,       /* lease: take a slot */
	CORE_DO_CLAIM,         /* store: PENDING → RUNNING, attempt + 1 */
	CORE_DO_OWN,           /* lease: write the owner key; in the same flush as the dispatch */
	CORE_DO_DISPATCH,      /* peer: send; `number` counts within the session, one per effect batch and peer */
	CORE_DO_RECORD,        /* store: record outcome `token` */
	CORE_DO_TAKE_BACK,     /* store: RUNNING → PENDING where (attempt, session) still hold */
	CORE_DO_DROP,          /* forget outcome `token`: the same attempt's outcome is being recorded already */
	CORE_DO_SESSION_OPEN,  /* store: next session number, adopt, requeue, fence */
	CORE_DO_FILL,          /* store: ready rows of a queue after (priority, seq) */
	CORE_DO_QUEUES,        /* store: which queues have ready rows */
	CORE_DO_PAUSED,        /* engine: nothing of the paused queue is on its way any more, or it is not paused any more */
	CORE_DO_DUE,           /* store: move delayed rows whose time has come to ready */
	CORE_DO_EXPIRE,        /* store: rows that were never given out and whose expiry has come end as FAILED */
	CORE_DO_STRAYS,        /* store: running rows of tasks after at.task; changes nothing */
	CORE_DO_ASK_HB,        /* lease: does it show that this session of the worker lives? */
	CORE_DO_TAKE_OVER,     /* store: incarnation + 1 of a master whose incarnation and beat are still these */
	CORE_DO_WORKER_GONE,   /* store: the lease of this session is over, and it holds nothing; names no answer */
	CORE_DO_DETACHED,      /* store: it leaves its programs running for detach_ns; 0: no longer; names no answer */
	CORE_DO_RUNS,          /* store: which of `owners` have a RUNNING row of that worker; changes nothing */
	CORE_DO_KEYS,          /* lease: a page of keys from `cursor` on */
	CORE_DO_DISOWN,        /* lease: delete the owner key where it names exactly this attempt, worker and session */
	CORE_DO_DROP_HASH,     /* lease: delete the worker's hash unless it has an hb */
	CORE_DO_RELEASE,       /* lease: delete owner key and slot where they name this attempt */
	CORE_DO_LEASE_BEAT,    /* lease: renew hb, replace the worker's hash with `held` */
	CORE_DO_WELCOME,       /* peer; with `resumed`: the session goes on, and so do its attempts in `held` */
	CORE_DO_HEARTBEAT_ACK, /* peer */
	CORE_DO_STOP,          /* peer */
	CORE_DO_OUTCOME_ACK,   /* peer: verdict, never UNAVAILABLE */
	CORE_DO_CLOSE_PEER,    /* peer: end the stream; code and text in `close` */
};

enum core_close_code {
	CORE_CLOSE_REPLACED,    /* a newer session of this worker id */
	CORE_CLOSE_UNAVAILABLE, /* come again: nothing was heard for a whole lease, or others may judge the session by now */
	CORE_CLOSE_AWAY,        /* come again: no session was opened for this hello. The store is away, or had a newer one */
	CORE_CLOSE_LIMIT,       /* too many workers or attempts */
	CORE_CLOSE_PROTOCOL,    /* message out of order */
};

struct core_effect {
	enum core_effect_type type;
	uint64_t peer;
	uint64_t token;
	struct core_attempt at;
	/* Worker of the effect; valid until the next core_step. NULL: none; for RECORD also when the core has forgotten
	 * the stream (the engine's stream knows the name). */
	const char *worker;
	const uint8_t *instance; /* CORE_INSTANCE_LEN bytes */
	int64_t session;
	/* INSERT, CLAIM, DISPATCH: the attempt's L; WELCOME, SESSION_OPEN: the session's, which those of the attempts that it
	 * adopts are not below; PREEMPT, LEASE_BEAT: of the hb key */
	int64_t lease_ns;
	int64_t heartbeat_ns;    /* WELCOME: H */
	bool resumed;            /* WELCOME */
	int32_t slots;           /* PREEMPT */
	int64_t number;          /* DISPATCH, HEARTBEAT_ACK; SESSION_OPEN: the hello's, see CORE_EV_HELLO */
	const char *queue;       /* CLAIM, DISPATCH, FILL, PAUSED: interned, valid as long as the core */
	int32_t priority;        /* CLAIM; FILL: cursor */
	int64_t seq;             /* CLAIM; FILL: cursor; rows after (priority descending, seq ascending) */
	bool from_start;         /* FILL: no cursor */
	const char *master;      /* TAKE_OVER; in the effects' arena */
	int64_t incarnation, beat; /* TAKE_OVER */
	int64_t heard_ago_ns;    /* WORKER_GONE */
	int64_t detach_ns;       /* DETACHED */
	int64_t retry_in_ns;     /* RECORD: delay if the store finds that attempts remain of what the program failed in */
	int32_t limit;           /* FILL, DUE, EXPIRE, STRAYS */
	bool exclusive;          /* DISPATCH */
	bool exclusive_not_renewed; /* HEARTBEAT_ACK */
	bool counted;            /* TAKE_BACK */
	enum core_take_back_cause cause;
	const char *text;        /* TAKE_BACK, refused: the worker's words; NULL: none; in the effects' arena */
	enum core_stop_reason stop;
	enum core_record_verdict verdict;
	enum core_close_code close;
	struct blob *spec;       /* DISPATCH: a reference that core_effects_clear drops */
	const struct core_attempt *held; /* SESSION_OPEN, LEASE_BEAT, WELCOME; in the effects' arena */
	size_t n_held;
	size_t n_owned;          /* LEASE_BEAT: so many of them, from the first, have an owner key; the others only take slots */
	uint64_t cursor;         /* KEYS; RUNS: for the answer */
	const struct core_owner *owners; /* RUNS; in the effects' arena, as their workers are */
	size_t n_owners;
};

struct core_effects {
	struct core_effect *at;
	size_t n, cap;
	void *arena;
};
void core_effects_init(struct core_effects *e);
/* Drops references and empties; keeps the memory. */
void core_effects_clear(struct core_effects *e);
void core_effects_done(struct core_effects *e);

#endif

/* Dispatch and recovery of one task by masters, two workers and a store: what README.md here maps to the code.
 *
 * Every step of a process below is one atomic step of the real system: one event that the core handles, one statement that
 * the store commits, one message that a worker handles.  Between any two of them anything else may happen.
 *
 * A configuration is a set of -D flags:
 *   MASTERS       1 or 2
 *   FAULTS        how many faults may happen, of all kinds together
 *   ATTEMPTS      how many there may be, 3 at most
 *   EXCLUSIVE     the task is exclusive
 *   FOREVER       its program does not end by itself
 *   CANCEL        somebody cancels it
 *   FAILS         how many of its programs may fail (max_attempts is one more)
 *   NO_<KIND>     leaves a kind of fault out: MASTER (CUT: of two, one is cut off), AGENT, MACHINE, DIR, STREAM, REDIS, STORE, LATE, REFUSE
 *   HEARD         two masters, Redis is there, and the only fault is that a master is cut off from the store: no second attempt
 *   LIVENESS      for the ltl formula under weak fairness; else `looks` says when nothing is left to do too early
 *   MUT_<NAME>    leaves a check of the protocol out: spin must find a fault
 */
#ifndef MASTERS
#define MASTERS 1
#endif
#ifdef HEARD
#define NO_MASTER
#define NO_AGENT
#define NO_MACHINE
#define NO_DIR
#define NO_STREAM
#define NO_REDIS
#define NO_STORE
#define NO_LATE
#define NO_REFUSE
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifdef EXCLUSIVE
#define IS_EXCLUSIVE true
#else
#define IS_EXCLUSIVE false
#endif
#define WORKERS 2
#ifndef ATTEMPTS
#define ATTEMPTS 3
#endif

/* ---- the store: the task's row, the workers' rows ---- */
#define PENDING 0
#define RUNNING 1
#define ENDED 2
#define COMPLETED 1
#define FAILED 2
#define CANCELLED 3
byte state, attempt, row_session, row_instance;
bit open, wish;          /* open: the attempt was taken back, its worker may still have it; wish: cancel_requested_at */
byte worker_of[4];       /* who got the attempt */
bit reported[4];         /* its worker's outcome is in the record */
byte end_state, n_ended;
byte session[2], master_of[2]; /* a worker's newest session, and whose it is */
bit taken[MASTERS];      /* another master has raised its incarnation */
bit still[MASTERS];      /* its beat stands still, as the others see it */
#ifdef MUT_NO_BUMP
#define BUMPED(m) false  /* taken: the other only thinks so */
#else
#define BUMPED(m) taken[m]
#endif

/* ---- workers ---- */
#define NONE 0           /* of a stream */
#define HELLO_SENT 1
#define UP 2
byte link[2], server[2], instance[2], last_dispatch[2];
bit live[2];             /* what is sent on the newest stream arrives */
bit beat_out[2], acked[2]; /* a heartbeat or its answer is on its way; the answer is, and still renews the lease */
bit may_start[2];        /* S + L - m - G has not passed */
byte renewed_by[2];      /* whose answer renewed the lease last */

/* attempts at the worker's agent (worker/machine.h) */
#define A_GONE 0
#define A_DISPATCHED 1
#define A_RUNNING 2
#define A_STOPPING 3
#define A_FENCED 4
#define A_ENDED 5        /* the outcome is in the spool */
byte agent[4], kind[4];
bit said[4];             /* its outcome was sent on this stream */
/* their programs, under supervisors */
#define P_NONE 0
#define P_RUNS 1
#define P_GHOST 2        /* runs, and no agent knows of it */
#define P_SUCCEEDED 3
#define P_FAILED 4
#define P_STOPPED 5
#define P_LOST 6
byte program[4];
bit succeeded[4];        /* for the assertions only: what really happened */

/* outcomes */
#define SUCCESS 1
#define FAILURE 2
#define STOP_DONE 4
#define LOST 6

/* ---- streams: lost as a whole, in order otherwise ---- */
#define HELLO 1          /* list, instance */
#define HEARTBEAT 2      /* list, last dispatch */
#define ACCEPTED 3
#define REFUSED 4
#define OUTCOME 5        /* attempt, kind */
#define WELCOME 6
#define DISPATCH 7
#define STOP 8           /* attempt, reason */
#define OUTCOME_ACK 9
#define HEARTBEAT_ACK 10
#define R_FENCED 0
#define R_RECALLED 1
#define R_CANCELLED 2
#define CAP_M 5
#define CAP_W 9
chan to_m[2] = [CAP_M] of { byte, byte, byte };
chan to_w[2] = [CAP_W] of { byte, byte, byte };

/* ---- masters: all of it is lost when one dies ---- */
#define W(m, w) ((m) * 2 + (w))
#define J(m, a) ((m) * 4 + (a))
#define NW (MASTERS * 2)
#define NJ (MASTERS * 4)
bit up[MASTERS], cut[MASTERS], no_renewal[MASTERS]; /* cut: it can't reach the store */
#define GONE_UNSEEN 1    /* of a peer: its stream ended, and the master has not noticed */
#define PEER 2
byte peer[NW], known[NW], known_instance[NW]; /* known: its session here; 0: never heard of, or forgotten */
bit hold[NW];            /* the lease table refused: nothing before the next heartbeat */
/* SESSION_OPEN on its way */
#define SUBMITTED 1
#define ANSWERED 2
byte opening[NW], o_list[NW], o_instance[NW], o_session[NW], o_adopted[NW], o_waiting[NW];
bit o_live[NW], o_wish[NW];
/* the task before its claim is answered */
#define CLAIM 1          /* submitted; one that is lost leaves nothing behind */
#define CLAIM_WON 2
byte pick[MASTERS], pick_worker[MASTERS], pick_session[MASTERS], pick_instance[MASTERS], pick_attempt[MASTERS];
bit pick_cancelled[MASTERS];
/* jobs: server/core/state.h */
#define JOB_NONE 0
#define JOB_SENT 1
#define JOB_RUNNING 2
#define JOB_RECALLING 3
#define JOB_ENDED 4
#define JOB_RECORDING 5
#define JOB_TAKING_BACK 6
#define JOB_LEFT 7
#define JOB_WAITING 8
#define JOB_DONE 9
byte job[NJ], job_session[NJ];
#define TB_NONE 0
#define TB_IN_FLIGHT 1
#define TB_RETRY 2
byte job_tb[NJ];
bit job_lost[NJ], job_ours[NJ], job_holds[NJ], job_unanswered[NJ], job_numbered[NJ], job_opens[NJ];
/* TAKE_BACK and RECORD on their way */
#define TB_ANSWERED 2    /* PENDING, ENDED or FENCED: what the master does is the same */
#define TB_UNAVAILABLE 3
byte tb[NJ], tb_session[NJ];
#define REC_KNOWN 2      /* RECORDED or DUPLICATE: both tell the worker that it may forget */
#define REC_FENCED 3
#define REC_UNAVAILABLE 4
byte rec[NJ], rec_kind[NJ];
#ifdef MUT_STALE_CLAIM
bit orphan;              /* a claim whose master died with it on its way */
byte orphan_master, orphan_worker, orphan_session, orphan_instance;
#endif
byte wish_news;          /* the attempt whose wish the master is still to hear of */

byte faults = FAULTS;
bit healed;              /* no more faults */
byte fails;
bit out;                 /* a fourth attempt was wanted: behind the bound of the model */

/* scratch of a step, not part of a state */
hidden byte i, k, l;

#define BIT(a) (1 << (a))
#define HELD_BY(a, w) (agent[a] != A_GONE && worker_of[a] == (w))
#define LIST(w) ((HELD_BY(1, w) -> BIT(1) : 0) | (HELD_BY(2, w) -> BIT(2) : 0) | (HELD_BY(3, w) -> BIT(3) : 0))
#define CONNECTED(m, w) (live[w] && server[w] == (m))
#define HAS_JOB(m, a, w) (job[J(m, a)] != JOB_NONE && worker_of[a] == (w))
#define ON_LEASE(m, a, w) (HAS_JOB(m, a, w) && job[J(m, a)] != JOB_WAITING && !job_lost[J(m, a)])
#define UNANSWERED(m, w) ((HAS_JOB(m, 1, w) && job_unanswered[J(m, 1)]) || (HAS_JOB(m, 2, w) && job_unanswered[J(m, 2)]) || \
	(HAS_JOB(m, 3, w) && job_unanswered[J(m, 3)]))
#define HOLDS_SLOT(a) (agent[a] >= A_DISPATCHED && agent[a] <= A_FENCED)
#define IS_RUNNING(a) (program[a] == P_RUNS || program[a] == P_GHOST)
#define N_RUNNING (IS_RUNNING(1) + IS_RUNNING(2) + IS_RUNNING(3))

inline end_task(how)
{
	state = ENDED;
	end_state = how;
	n_ended++;
	assert(n_ended == 1); /* never two records */
}

/* RUNNING to PENDING, or to its end where a cancel was asked for. */
inline row_back(opens)
{
	if
	:: wish -> end_task(CANCELLED)
	:: else -> state = PENDING; open = opens
	fi;
	row_session = 0;
	row_instance = 0
}

/* ---- streams ---- */

inline drain(c)
{
	do
	:: len(c) > 0 -> c?_, _, _
	:: else -> break
	od
}

/* All that is on its way is lost; each end notices by itself. */
inline break_stream(w)
{
	if
	:: live[w] ->
		live[w] = 0;
		drain(to_m[w]);
		drain(to_w[w]);
		acked[w] = 0;
		beat_out[w] = 0;
		link[w] = NONE;
		last_dispatch[w] = 0;
		if
		:: peer[W(server[w], w)] == PEER -> peer[W(server[w], w)] = GONE_UNSEEN
		:: else
		fi;
		o_live[W(server[w], w)] = 0
	:: else
	fi
}

/* To the stream that the master takes for the worker's. */
inline tell(m, w, what, x, y)
{
	if
	:: peer[W(m, w)] == PEER ->
		assert(nfull(to_w[w]));
		to_w[w]!what, x, y
	:: else
	fi
}

/* ---- the master's jobs (server/core/attempt.c) ---- */

inline job_free(n)
{
	job[n] = JOB_NONE;
	job_session[n] = 0;
	job_tb[n] = TB_NONE;
	job_lost[n] = 0;
	job_ours[n] = 0;
	job_holds[n] = 0;
	job_unanswered[n] = 0;
	job_numbered[n] = 0;
	job_opens[n] = 0
}

/* A second TAKE_BACK of an attempt waits until the first is answered. */
inline send_take_back(n)
{
	if
	:: tb[n] == 0 ->
		tb[n] = SUBMITTED;
		tb_session[n] = job_session[n];
		job_tb[n] = TB_IN_FLIGHT
	:: else -> job_tb[n] = TB_RETRY
	fi
}

inline take_back(n, opens)
{
	job[n] = JOB_TAKING_BACK;
	job_opens[n] = opens;
	send_take_back(n)
}

inline job_is_lost(n)
{
	if
	:: job[n] == JOB_LEFT || job[n] == JOB_DONE -> job_free(n)
	:: else ->
		job_lost[n] = 1;
		job_unanswered[n] = 0;
		job_holds[n] = 0;
		if
		:: job[n] == JOB_RECORDING || job[n] == JOB_TAKING_BACK
		:: else -> take_back(n, 1)
		fi
	fi
}

inline new_session(n, s)
{
	job_unanswered[n] = 0;
	job_tb[n] = TB_NONE;
	job_lost[n] = 0;
	job_session[n] = s;
	job_numbered[n] = 0
}

inline record(n, what)
{
	job_unanswered[n] = 0;
	job_holds[n] = 0;
	job_ours[n] = (job[n] != JOB_LEFT && job[n] != JOB_DONE && job_tb[n] != TB_IN_FLIGHT);
	job[n] = JOB_RECORDING;
	assert(rec[n] == 0);
	rec[n] = SUBMITTED;
	rec_kind[n] = what
}

/* ---- sessions (server/core/session.c) ---- */

inline adopt(m, w, a)
{
	new_session(J(m, a), known[W(m, w)]);
	if
	:: job[J(m, a)] == JOB_RECORDING -> job_ours[J(m, a)] = 1
	:: else -> job[J(m, a)] = JOB_RUNNING; job_holds[J(m, a)] = 1
	fi;
	if
	:: o_wish[W(m, w)] -> tell(m, w, STOP, a, R_CANCELLED)
	:: else
	fi
}

inline wait_for_lease(m, w, a)
{
	new_session(J(m, a), known[W(m, w)]);
	if
	:: job[J(m, a)] == JOB_RECORDING -> job_ours[J(m, a)] = 0
	:: else -> job[J(m, a)] = JOB_WAITING; job_holds[J(m, a)] = 0
	fi
}

inline fence(m, w, a)
{
	if
	:: job[J(m, a)] == JOB_DONE
	:: else ->
		new_session(J(m, a), known[W(m, w)]);
		if
		:: job[J(m, a)] == JOB_RECORDING -> job_ours[J(m, a)] = 0
		:: else ->
			job[J(m, a)] = JOB_LEFT;
			job_holds[J(m, a)] = 1;
			tell(m, w, STOP, a, R_FENCED)
		fi
	fi
}

inline leave_out(m, w, a)
{
	if
	:: !HAS_JOB(m, a, w)
	:: HAS_JOB(m, a, w) && job[J(m, a)] == JOB_RECORDING ->
		new_session(J(m, a), known[W(m, w)]);
		job_ours[J(m, a)] = 0
	:: else -> job_free(J(m, a))
	fi
}

inline forget_opening(n)
{
	opening[n] = 0;
	o_list[n] = 0;
	o_instance[n] = 0;
	o_session[n] = 0;
	o_adopted[n] = 0;
	o_waiting[n] = 0;
	o_live[n] = 0;
	o_wish[n] = 0
}

inline apply_opened(m, w)
{
	printf("master %d: session %d of worker %d, adopted %d, waiting %d\n", m, o_session[W(m, w)], w, o_adopted[W(m, w)],
		o_waiting[W(m, w)]);
	peer[W(m, w)] = (o_live[W(m, w)] -> PEER : GONE_UNSEEN);
	known[W(m, w)] = o_session[W(m, w)];
	known_instance[W(m, w)] = o_instance[W(m, w)];
	hold[W(m, w)] = 0;
	tell(m, w, WELCOME, 0, 0);
	i = 1;
	do
	:: i > ATTEMPTS -> break
	:: else ->
		if
		:: i == o_adopted[W(m, w)] -> adopt(m, w, i)
		:: i == o_waiting[W(m, w)] -> wait_for_lease(m, w, i)
		:: i != o_adopted[W(m, w)] && i != o_waiting[W(m, w)] && (o_list[W(m, w)] & BIT(i)) -> fence(m, w, i)
		:: else -> leave_out(m, w, i)
		fi;
		i++
	od;
	forget_opening(W(m, w))
}

#ifdef MUT_NO_DISPATCH_ORDER
#define UNSEEN(n, a, last) false
#else
#define UNSEEN(n, a, last) (job_numbered[n] && (a) > (last))
#endif

/* The window does not know the task as waiting after this attempt. */
#ifdef MUT_LEFT_RUNS_ON
#define MOVED_ON(m, a) false
#else
#define MOVED_ON(m, a) (!(state == PENDING && attempt == (a)) && pick[m] == 0)
#endif

inline on_heartbeat(m, w, list, last)
{
	if
	:: IS_EXCLUSIVE -> tell(m, w, HEARTBEAT_ACK, 0, 0); acked[w] = !no_renewal[m]
	:: else -> beat_out[w] = 0 /* nobody waits for the answer */
	fi;
	hold[W(m, w)] = 0;
	i = 1;
	do
	:: i > ATTEMPTS -> break
	:: else ->
		k = J(m, i);
		if
		:: (list & BIT(i)) && !HAS_JOB(m, i, w) -> tell(m, w, STOP, i, R_FENCED)
		:: (list & BIT(i)) && HAS_JOB(m, i, w) ->
			if
			:: job[k] == JOB_SENT || job[k] == JOB_RECALLING -> job_unanswered[k] = 0; job[k] = JOB_RUNNING
			:: job[k] == JOB_TAKING_BACK -> job_unanswered[k] = 0
			:: job[k] == JOB_LEFT ->
				job_unanswered[k] = 0;
				if
				:: MOVED_ON(m, i) -> tell(m, w, STOP, i, R_FENCED)
				:: else
				fi
			:: else
			fi
		:: !(list & BIT(i)) && HAS_JOB(m, i, w) && !UNSEEN(k, i, last) ->
			if
			:: job[k] == JOB_RECORDING || job[k] == JOB_WAITING
			:: job[k] == JOB_LEFT || job[k] == JOB_DONE -> job_free(k)
			:: job[k] == JOB_TAKING_BACK -> job_unanswered[k] = 0; job_holds[k] = 0
			:: else ->
				job_unanswered[k] = 0;
				job_holds[k] = 0;
				take_back(k, (job[k] == JOB_RECALLING))
			fi
		:: else
		fi;
		i++
	od
}

inline on_refused(n)
{
	if
	:: job[n] == JOB_SENT || job[n] == JOB_RUNNING || job[n] == JOB_RECALLING ->
		job_unanswered[n] = 0;
		job_holds[n] = 0;
		take_back(n, (job[n] == JOB_RECALLING))
	:: job[n] == JOB_TAKING_BACK -> job_unanswered[n] = 0; job_holds[n] = 0
	:: job[n] == JOB_LEFT -> job_free(n)
	:: else
	fi
}

inline on_accepted(n)
{
	if
	:: job[n] == JOB_SENT || job[n] == JOB_RECALLING -> job_unanswered[n] = 0; job[n] = JOB_RUNNING
	:: job[n] == JOB_TAKING_BACK || job[n] == JOB_LEFT -> job_unanswered[n] = 0
	:: else
	fi
}

inline on_outcome(m, w, a, what)
{
	if
	:: job[J(m, a)] == JOB_RECORDING /* CORE_DO_DROP */
	:: job[J(m, a)] == JOB_NONE ->
		job[J(m, a)] = JOB_LEFT;
		job_session[J(m, a)] = known[W(m, w)];
		record(J(m, a), what)
	:: else -> record(J(m, a), what)
	fi
}

inline on_claimed(m, w, a)
{
	if
	:: job[J(m, a)] != JOB_NONE && job_session[J(m, a)] > pick_session[m] /* a newer session has it */
	:: else ->
		job_free(J(m, a));
		job_session[J(m, a)] = pick_session[m];
		if
		:: peer[W(m, w)] != NONE && opening[W(m, w)] == 0 && known[W(m, w)] == pick_session[m] && !pick_cancelled[m] ->
			job[J(m, a)] = JOB_SENT;
			job_holds[J(m, a)] = 1;
			job_numbered[J(m, a)] = 1;
			tell(m, w, DISPATCH, a, 0)
		:: else -> take_back(J(m, a), 0)
		fi
	fi
}

inline forget_pick(m)
{
	pick[m] = 0;
	pick_worker[m] = 0;
	pick_session[m] = 0;
	pick_instance[m] = 0;
	pick_attempt[m] = 0;
	pick_cancelled[m] = 0
}

inline on_recorded(m, w, a)
{
	k = J(m, a);
	l = rec[k];
	rec[k] = 0;
	rec_kind[k] = 0;
	if
	:: job[k] != JOB_RECORDING
	:: job[k] == JOB_RECORDING && l == REC_UNAVAILABLE ->
		if
		:: agent[a] == A_ENDED -> said[a] = 0 /* the worker sends it again by itself */
		:: else
		fi;
		if
		:: job_tb[k] == TB_IN_FLIGHT -> job[k] = JOB_TAKING_BACK
		:: job_tb[k] != TB_IN_FLIGHT && !job_ours[k] -> job_free(k)
		:: job_tb[k] != TB_IN_FLIGHT && job_ours[k] && (job_tb[k] == TB_RETRY || job_lost[k]) -> take_back(k, 1)
		:: else -> job[k] = JOB_ENDED
		fi
	:: else ->
		if
		:: peer[W(m, w)] != NONE ->
			job[k] = JOB_DONE;
			tell(m, w, OUTCOME_ACK, a, (l == REC_FENCED))
		:: else -> job_free(k)
		fi
	fi
}

inline on_taken_back(n)
{
	l = tb[n];
	tb[n] = 0;
	if
	:: !(job_tb[n] == TB_IN_FLIGHT && job_session[n] == tb_session[n])
	:: job_tb[n] == TB_IN_FLIGHT && job_session[n] == tb_session[n] && job[n] == JOB_RECORDING ->
		job_tb[n] = (l == TB_UNAVAILABLE -> TB_RETRY : TB_NONE);
		if
		:: l == TB_UNAVAILABLE -> job_ours[n] = 1
		:: else
		fi
	:: job_tb[n] == TB_IN_FLIGHT && job_session[n] == tb_session[n] && job[n] == JOB_TAKING_BACK ->
		job_tb[n] = (l == TB_UNAVAILABLE -> TB_RETRY : TB_NONE);
		if
		:: l == TB_UNAVAILABLE
		:: l != TB_UNAVAILABLE && job_holds[n] && !job_lost[n] -> job[n] = JOB_LEFT
		:: else -> job_free(n)
		fi
	:: else
	fi;
	tb_session[n] = 0
}

/* ---- what the store commits (server/store) ---- */

#ifdef MUT_STALE_CLAIM
#define MAY_CLAIM(m, w, s) true
#else
#define MAY_CLAIM(m, w, s) (session[w] == (s) && master_of[w] == (m) && !BUMPED(m))
#endif

/* op_claim.c */
inline commit_claim(m, w, s, inst, won)
{
	won = 0;
	if
	:: state == PENDING && attempt < ATTEMPTS && MAY_CLAIM(m, w, s) ->
#ifdef HEARD
		assert(attempt == 0); /* what is heard is not given away */
#endif
		state = RUNNING;
		attempt++;
		worker_of[attempt] = w;
		row_session = s;
		row_instance = inst;
		open = 0;
		won = 1;
		printf("store: claimed, attempt %d, worker %d, session %d\n", attempt, w, s)
	:: else
	fi
}

#ifdef MUT_NO_INSTANCE_WAIT
#define WAITS_FOR_OLD false
#else
#define WAITS_FOR_OLD IS_EXCLUSIVE
#endif
#ifdef MUT_NO_REQUEUE
#define REQUEUE(w) row_session = session[w]
#else
/* "Not listed" is proof: who kept its directory has no outcome of it. */
#define REQUEUE(w) assert(!succeeded[attempt] || row_instance != o_instance[W(m, w)]); row_back(0)
#endif

/* op_session.c */
inline commit_open(m, w)
{
	session[w]++;
	master_of[w] = m;
	o_session[W(m, w)] = session[w];
	o_wish[W(m, w)] = 0;
	if
	:: state == RUNNING && worker_of[attempt] == w ->
		if
		:: o_list[W(m, w)] & BIT(attempt) ->
			o_adopted[W(m, w)] = attempt;
			o_wish[W(m, w)] = wish;
			row_session = session[w];
			row_instance = o_instance[W(m, w)]
		:: !(o_list[W(m, w)] & BIT(attempt)) && WAITS_FOR_OLD && row_instance != o_instance[W(m, w)] ->
			o_waiting[W(m, w)] = attempt;
			row_session = session[w]
		:: else -> REQUEUE(w)
		fi
	:: state == PENDING && open && worker_of[attempt] == w && (o_list[W(m, w)] & BIT(attempt)) ->
		state = RUNNING;
		open = 0;
		o_adopted[W(m, w)] = attempt;
		row_session = session[w];
		row_instance = o_instance[W(m, w)]
	:: else
	fi;
	printf("store: session %d of worker %d: row %d, attempt %d, session %d\n", session[w], w, state, attempt, row_session);
	opening[W(m, w)] = ANSWERED
}

#ifdef MUT_NO_SESSION_CHECK
#define SAME_SESSION(n) true
#else
#define SAME_SESSION(n) (row_session == tb_session[n])
#endif

/* op_take_back.c */
inline commit_take_back(n, a)
{
	if
	:: state == RUNNING && attempt == a && SAME_SESSION(n) ->
		row_back(job_opens[n])
	:: else
	fi;
	tb[n] = TB_ANSWERED;
	printf("store: take-back of attempt %d, session %d: row %d, open %d\n", a, tb_session[n], state, open)
}

#ifdef MUT_NO_ATTEMPT_CHECK
#define SAME_ATTEMPT(a) (worker_of[attempt] == worker_of[a])
#else
#define SAME_ATTEMPT(a) (attempt == (a))
#endif

/* op_record.c */
inline commit_record(n, a)
{
	if
	:: state == RUNNING && SAME_ATTEMPT(a) ->
		assert(!reported[a]); /* each attempt once */
		reported[a] = 1;
		if
		:: rec_kind[n] == SUCCESS -> assert(succeeded[attempt]); end_task(COMPLETED)
		:: rec_kind[n] == FAILURE && (wish || fails == FAILS) -> end_task(FAILED)
		:: rec_kind[n] == FAILURE && !(wish || fails == FAILS) -> fails++; row_back(0)
		:: else -> row_back(0)
		fi;
		row_session = 0;
		row_instance = 0;
		rec[n] = REC_KNOWN
	:: state == PENDING && open && attempt == a && rec_kind[n] == SUCCESS ->
		assert(!reported[a] && succeeded[a]);
		reported[a] = 1;
		open = 0;
		end_task(COMPLETED);
		rec[n] = REC_KNOWN
	:: else -> rec[n] = (reported[a] -> REC_KNOWN : REC_FENCED)
	fi;
	printf("store: outcome %d of attempt %d: verdict %d, row %d\n", rec_kind[n], a, rec[n], state)
}

/* ---- time (the exclusive lease) ---- */

/* The worker's own deadline: its supervisors have ended what is exclusive. */
inline deadline_passes(w)
{
	may_start[w] = 0;
	if
	:: IS_EXCLUSIVE ->
		i = 1;
		do
		:: i > ATTEMPTS -> break
		:: else ->
			if
			:: worker_of[i] == w && program[i] == P_RUNS -> program[i] = P_STOPPED
			:: worker_of[i] == w && program[i] == P_GHOST -> program[i] = P_NONE
			:: else
			fi;
			i++
		od
	:: else
	fi
}

/* As long ago is the last word of a master's session: what it answered gives no right any more.  If the session is the worker's
 * newest, what others had answered before it gives none either. */
inline lease_passes(m, w)
{
#ifndef MUT_NO_LEASE_WAIT
	if
	:: renewed_by[w] == m || master_of[w] == m ->
		if
		:: server[w] == m -> acked[w] = 0
		:: else
		fi;
		deadline_passes(w)
	:: else
	fi
#else
	skip
#endif
}

/* IN_LATE: a dispatch that was not accepted in time */
inline recall(m, w, a)
{
	printf("master %d: recalls attempt %d\n", m, a);
	job_unanswered[J(m, a)] = 1;
	tell(m, w, STOP, a, R_RECALLED);
	if
	:: IS_EXCLUSIVE -> job[J(m, a)] = JOB_RECALLING
	:: else -> take_back(J(m, a), 1)
	fi
}

inline drop_peer(m, w)
{
	if
	:: peer[W(m, w)] == PEER -> break_stream(w)
	:: else
	fi;
	peer[W(m, w)] = NONE
}

inline judge_leases(m, w)
{
	printf("master %d: the lease of worker %d ends\n", m, w);
	lease_passes(m, w);
	k = 1;
	do
	:: k > ATTEMPTS -> break
	:: else ->
		if
		:: ON_LEASE(m, k, w) -> job_is_lost(J(m, k))
		:: else
		fi;
		k++
	od;
	drop_peer(m, w)
}

inline master_forgets(m)
{
	printf("master %d forgets all\n", m);
	k = 0;
	do
	:: k == 2 -> break
	:: else ->
		peer[W(m, k)] = NONE;
		known[W(m, k)] = 0;
		known_instance[W(m, k)] = 0;
		hold[W(m, k)] = 0;
		forget_opening(W(m, k));
		if
		:: live[k] && server[k] == m -> break_stream(k); peer[W(m, k)] = NONE
		:: else
		fi;
		k++
	od;
	k = 1;
	do
	:: k > ATTEMPTS -> break
	:: else ->
		job_free(J(m, k));
		tb[J(m, k)] = 0;
		tb_session[J(m, k)] = 0;
		rec[J(m, k)] = 0;
		rec_kind[J(m, k)] = 0;
		k++
	od;
	forget_pick(m);
	taken[m] = 0;
	still[m] = 0;
	cut[m] = 0;
	no_renewal[m] = 0
}

/* ---- processes ---- */

#if MASTERS > 1
#define SOMEBODY (up[0] || up[1])
#else
#define SOMEBODY up[0]
#endif

/* What a worker hears. */
proctype hears(byte w)
{
	byte what, x, y;
end:	do
	:: atomic { !live[w] && SOMEBODY ->
		if
		:: up[0] -> server[w] = 0
#if MASTERS > 1
		:: up[1] -> server[w] = 1
#endif
		fi;
		link[w] = HELLO_SENT;
		live[w] = 1;
		said[1] = (worker_of[1] == w -> 0 : said[1]);
		said[2] = (worker_of[2] == w -> 0 : said[2]);
		said[3] = (worker_of[3] == w -> 0 : said[3]);
		printf("worker %d: hello to master %d, list %d, instance %d\n", w, server[w], LIST(w), instance[w]);
		to_m[w]!HELLO, LIST(w), instance[w] }
	:: atomic { live[w] && nempty(to_w[w]) && nfull(to_m[w]) ->
		to_w[w]?what, x, y;
		printf("worker %d: hears %d (%d, %d)\n", w, what, x, y);
		if
		:: what == WELCOME -> link[w] = UP
		:: what == HEARTBEAT_ACK ->
			beat_out[w] = 0;
			if
			:: acked[w] -> may_start[w] = 1; renewed_by[w] = server[w]
			:: else
			fi;
			acked[w] = 0
		:: what == DISPATCH ->
			last_dispatch[w] = x;
			if
			:: true ->
				d_step {
					i = 1;
					do
					:: i >= x -> break
					:: else ->
						if
						:: HELD_BY(i, w) && agent[i] == A_DISPATCHED -> agent[i] = A_GONE
						:: HELD_BY(i, w) && (agent[i] == A_RUNNING || agent[i] == A_STOPPING) -> agent[i] = A_FENCED
						:: else
						fi;
						i++
					od;
					agent[x] = A_DISPATCHED;
					to_m[w]!ACCEPTED, x, 0
				}
#ifndef NO_REFUSE
			:: faults > 0 && !healed -> faults--; to_m[w]!REFUSED, x, 0
#endif
			fi
		:: what == STOP && agent[x] == A_GONE
		:: what == STOP && agent[x] != A_GONE && y == R_FENCED ->
			if
			:: agent[x] == A_DISPATCHED || agent[x] == A_ENDED -> agent[x] = A_GONE; kind[x] = 0
			:: else -> agent[x] = A_FENCED
			fi
		:: what == STOP && agent[x] != A_GONE && y != R_FENCED ->
			if
			:: agent[x] == A_DISPATCHED -> agent[x] = A_GONE; to_m[w]!REFUSED, x, 0
			:: agent[x] == A_RUNNING && y == R_CANCELLED -> agent[x] = A_STOPPING
			:: else
			fi
		:: what == OUTCOME_ACK ->
			if
			:: agent[x] == A_ENDED -> agent[x] = A_GONE; kind[x] = 0
			:: agent[x] == A_GONE
			:: else -> agent[x] = A_FENCED
			fi
		fi;
		what = 0; x = 0; y = 0 }
	od
}

#define TO_SAY(a, w) (worker_of[a] == (w) && agent[a] == A_ENDED && !said[a])
#ifdef MUT_DROP_OUTCOME
#define AFTER_SAYING(a) agent[a] = A_GONE
#else
#define AFTER_SAYING(a) said[a] = 1
#endif

/* A heartbeat that would change nothing, with nothing on its way that it could cross, is left out. */
#define J_NEWS(m, a, w) ((HELD_BY(a, w) && !(HAS_JOB(m, a, w) && (job[J(m, a)] == JOB_RUNNING || \
	(job[J(m, a)] >= JOB_RECORDING && !job_unanswered[J(m, a)] && !(job[J(m, a)] == JOB_LEFT && MOVED_ON(m, a)))))) || \
	(!HELD_BY(a, w) && HAS_JOB(m, a, w) && job[J(m, a)] != JOB_WAITING && job[J(m, a)] != JOB_RECORDING && \
	!(job[J(m, a)] == JOB_TAKING_BACK && !job_holds[J(m, a)] && !job_unanswered[J(m, a)])))
#define MATTERS(m, w) (hold[W(m, w)] || (IS_EXCLUSIVE && !may_start[w]) || len(to_w[w]) > 0 || \
	J_NEWS(m, 1, w) || J_NEWS(m, 2, w) || J_NEWS(m, 3, w))

/* What it says. */
proctype says(byte w)
{
end:	do
	:: d_step { link[w] == UP && live[w] && !beat_out[w] && len(to_w[w]) < 3 && nfull(to_m[w]) &&
		!TO_SAY(1, w) && !TO_SAY(2, w) && !TO_SAY(3, w) && MATTERS(server[w], w) ->
		beat_out[w] = 1;
		printf("worker %d: heartbeat, list %d, last dispatch %d\n", w, LIST(w), last_dispatch[w]);
		to_m[w]!HEARTBEAT, LIST(w), last_dispatch[w] }
	:: d_step { link[w] == UP && live[w] && nfull(to_m[w]) && TO_SAY(1, w) -> to_m[w]!OUTCOME, 1, kind[1]; AFTER_SAYING(1) }
	:: d_step { link[w] == UP && live[w] && nfull(to_m[w]) && TO_SAY(2, w) -> to_m[w]!OUTCOME, 2, kind[2]; AFTER_SAYING(2) }
	:: d_step { link[w] == UP && live[w] && nfull(to_m[w]) && TO_SAY(3, w) -> to_m[w]!OUTCOME, 3, kind[3]; AFTER_SAYING(3) }
	od
}

#define OLDER_RUNS(a, w) (((a) > 1 && worker_of[1] == (w) && HOLDS_SLOT(1)) || ((a) > 2 && worker_of[2] == (w) && HOLDS_SLOT(2)))

/* The supervisor of an attempt, and its agent's part. */
proctype supervises(byte a)
{
end:	do
	:: d_step { agent[a] == A_DISPATCHED && !OLDER_RUNS(a, worker_of[a]) && (!IS_EXCLUSIVE || may_start[worker_of[a]]) ->
		printf("attempt %d: starts at worker %d\n", a, worker_of[a]);
		agent[a] = A_RUNNING;
		program[a] = P_RUNS;
		assert(!IS_EXCLUSIVE || N_RUNNING == 1) } /* exclusive never runs twice */
	:: d_step { program[a] == P_GHOST -> program[a] = P_NONE } /* the orphan timeout */
#ifndef FOREVER
	:: d_step { program[a] == P_RUNS -> program[a] = P_SUCCEEDED; succeeded[a] = 1; printf("attempt %d: succeeds\n", a) }
#if FAILS > 0
	:: d_step { program[a] == P_RUNS -> program[a] = P_FAILED; printf("attempt %d: fails\n", a) }
#endif
#endif
	:: d_step { program[a] == P_RUNS && agent[a] == A_STOPPING -> program[a] = P_STOPPED; printf("attempt %d: was stopped\n", a) }
	:: d_step { agent[a] == A_FENCED -> agent[a] = A_GONE; program[a] = (program[a] == P_GHOST -> P_GHOST : P_NONE) }
	:: d_step { (agent[a] == A_RUNNING || agent[a] == A_STOPPING) && program[a] >= P_SUCCEEDED ->
		kind[a] = (program[a] == P_SUCCEEDED -> SUCCESS : (program[a] == P_FAILED -> FAILURE :
			(program[a] == P_STOPPED -> STOP_DONE : LOST)));
		program[a] = P_NONE;
		agent[a] = A_ENDED;
		said[a] = 0 }
	od
}

/* A master hears a worker's stream. */
proctype serves(byte m; byte w)
{
	byte what, x, y;
end:	do
	:: d_step { up[m] && live[w] && server[w] == m && nempty(to_m[w]) && len(to_w[w]) + 4 < CAP_W &&
		(opening[W(m, w)] == 0 || !(to_m[w]?[HELLO, _, _])) ->
		to_m[w]?what, x, y;
		printf("master %d: hears %d (%d, %d) from worker %d\n", m, what, x, y, w);
		if
		:: what == HELLO ->
			opening[W(m, w)] = SUBMITTED;
			o_list[W(m, w)] = x;
			o_instance[W(m, w)] = y;
			o_live[W(m, w)] = 1
		:: what == HEARTBEAT -> on_heartbeat(m, w, x, y)
		:: what == ACCEPTED && HAS_JOB(m, x, w) -> on_accepted(J(m, x))
		:: what == REFUSED && HAS_JOB(m, x, w) -> on_refused(J(m, x))
		:: what == OUTCOME -> on_outcome(m, w, x, y)
		:: else
		fi;
		what = 0; x = 0; y = 0 }
	:: d_step { up[m] && peer[W(m, w)] == GONE_UNSEEN -> peer[W(m, w)] = NONE }
	:: d_step { up[m] && opening[W(m, w)] == ANSWERED && len(to_w[w]) == 0 -> apply_opened(m, w) }
	:: d_step { up[m] && known[W(m, w)] && peer[W(m, w)] == NONE && opening[W(m, w)] == 0 && !HAS_JOB(m, 1, w) &&
		!HAS_JOB(m, 2, w) && !HAS_JOB(m, 3, w) && !(pick[m] && pick_worker[m] == w) ->
		known[W(m, w)] = 0; known_instance[W(m, w)] = 0; hold[W(m, w)] = 0 }
	:: d_step { up[m] && !cut[m] && opening[W(m, w)] == SUBMITTED -> commit_open(m, w) }
	od
}

#define RETRY(n) (job[n] == JOB_TAKING_BACK && job_tb[n] == TB_RETRY && tb[n] == 0)
/* recovery.c: the row is of a session that nobody holds. */
#define STRAY(m) (up[m] && !cut[m] && state == RUNNING && tb[J(m, attempt)] == 0 && \
	!(job[J(m, attempt)] != JOB_NONE && job_session[J(m, attempt)] >= row_session) && pick[m] == 0 && \
	opening[W(m, worker_of[attempt])] == 0 && known[W(m, worker_of[attempt])] != row_session)
#define UNKNOWN_ROW(m) (up[m] && !cut[m] && state == RUNNING && tb[J(m, attempt)] == 0 && job[J(m, attempt)] == JOB_NONE && \
	pick[m] == 0 && opening[W(m, worker_of[attempt])] == 0 && known[W(m, worker_of[attempt])] == row_session)
/* Once a stop is on its way, or has come, another changes nothing. */
#define REPEATS_WISH(m) (up[m] && !cut[m] && state == RUNNING && wish && job[J(m, attempt)] >= JOB_SENT && \
	job[J(m, attempt)] <= JOB_RECALLING && job_session[J(m, attempt)] == known[W(m, worker_of[attempt])] && \
	peer[W(m, worker_of[attempt])] == PEER && len(to_w[worker_of[attempt]]) == 0 && \
	(agent[attempt] == A_DISPATCHED || agent[attempt] == A_RUNNING))
#define REPLACED_SESSION(m) (known[W(m, worker_of[attempt])] > row_session && peer[W(m, worker_of[attempt])] != NONE && !IS_EXCLUSIVE)

inline take_back_stray(m)
{
	printf("master %d: attempt %d is a stray\n", m, attempt);
	job_opens[J(m, attempt)] = 1;
	tb_session[J(m, attempt)] = row_session;
	tb[J(m, attempt)] = SUBMITTED
}

#define CAN_TAKE(m, w) (peer[W(m, w)] != NONE && opening[W(m, w)] == 0 && !UNANSWERED(m, w) && !hold[W(m, w)])
#define WANTED(m) (up[m] && state == PENDING && attempt < ATTEMPTS && pick[m] == 0)
inline reserve(m, w)
{
	pick[m] = CLAIM;
	pick_worker[m] = w;
	pick_session[m] = known[W(m, w)];
	pick_instance[m] = known_instance[W(m, w)]
}

/* A master's dispatch and what the store answers it. */
proctype dispatches(byte m)
{
end:	do
	/* The first attempt goes to worker 0: what would follow from the other choice is the same with the names changed. */
	:: d_step { WANTED(m) && CAN_TAKE(m, 0) -> reserve(m, 0) }
	:: d_step { WANTED(m) && CAN_TAKE(m, 1) && attempt > 0 -> reserve(m, 1) }
	:: d_step { state == PENDING && attempt == ATTEMPTS && !out -> out = 1 }
	:: d_step { up[m] && !cut[m] && pick[m] == CLAIM ->
		commit_claim(m, pick_worker[m], pick_session[m], pick_instance[m], k);
		if
		:: k -> pick[m] = CLAIM_WON; pick_attempt[m] = attempt
		/* session_is_stale; of a master that was taken over all streams end in a moment */
		:: !k && !BUMPED(m) && !MAY_CLAIM(m, pick_worker[m], pick_session[m]) &&
			known[W(m, pick_worker[m])] == pick_session[m] ->
			drop_peer(m, pick_worker[m]);
			forget_pick(m)
		:: else -> forget_pick(m)
		fi }
	:: d_step { up[m] && pick[m] == CLAIM_WON && nfull(to_w[pick_worker[m]]) ->
		on_claimed(m, pick_worker[m], pick_attempt[m]);
		forget_pick(m) }
	:: d_step { STRAY(m) && REPLACED_SESSION(m) -> take_back_stray(m) }
#ifndef MUT_NO_WISH_AGAIN
	:: d_step { REPEATS_WISH(m) -> tell(m, worker_of[attempt], STOP, attempt, R_CANCELLED) }
#endif
#ifndef MUT_NO_UNKNOWN
	:: d_step { UNKNOWN_ROW(m) ->
		printf("master %d: takes attempt %d into memory\n", m, attempt);
		job[J(m, attempt)] = JOB_RUNNING;
		job_holds[J(m, attempt)] = 1;
		job_session[J(m, attempt)] = row_session }
#endif
	:: d_step { up[m] && wish_news && server[worker_of[wish_news]] == m && nfull(to_w[worker_of[wish_news]]) ->
		k = J(m, wish_news);
		i = worker_of[wish_news];
		if
		:: job[k] == JOB_SENT || job[k] == JOB_RUNNING || job[k] == JOB_RECALLING ->
			if
			:: job_session[k] == known[W(m, i)] -> tell(m, i, STOP, wish_news, R_CANCELLED)
			:: else
			fi
		:: pick[m] == CLAIM_WON && pick_attempt[m] == wish_news -> pick_cancelled[m] = 1
		:: else
		fi;
		wish_news = 0 }
	od
}

/* Statements about an attempt, and their answers. */
proctype settles(byte m; byte a)
{
end:	do
	:: d_step { up[m] && !cut[m] && tb[J(m, a)] == SUBMITTED -> commit_take_back(J(m, a), a) }
	:: d_step { up[m] && tb[J(m, a)] > SUBMITTED -> on_taken_back(J(m, a)) }
	:: d_step { up[m] && !cut[m] && rec[J(m, a)] == SUBMITTED -> commit_record(J(m, a), a) }
	:: d_step { up[m] && rec[J(m, a)] > SUBMITTED && nfull(to_w[worker_of[a]]) -> on_recorded(m, worker_of[a], a) }
	:: d_step { up[m] && RETRY(J(m, a)) -> send_take_back(J(m, a)) }
	od
}

#define TO_JUDGE(m, w) (up[m] && known[W(m, w)] && (ON_LEASE(m, 1, w) || ON_LEASE(m, 2, w) || ON_LEASE(m, 3, w)))
#define WAITS(m, a) (up[m] && job[J(m, a)] == JOB_WAITING)

#if MASTERS > 1
/* Redis holds work back where it shows life, and nothing where it is away: only in HEARD it is known to be there. */
#if defined(HEARD) && !defined(MUT_NO_HB)
#define HB_FRESH(m, w) (up[m] && CONNECTED(m, w) && peer[W(m, w)] == PEER)
#else
#define HB_FRESH(m, w) false
#endif
#define STANDS_STILL(m, w) (still[m] && !HB_FRESH(m, w))
#define JUDGES(m) (master_of[worker_of[attempt]] == (m) || (taken[1 - m] && STANDS_STILL(1 - m, worker_of[attempt])))
#define TAKES_OVER(m) (master_of[worker_of[attempt]] == 1 - (m) && !taken[1 - m] && STANDS_STILL(1 - m, worker_of[attempt]))
#else
#define JUDGES(m) true
#endif
#ifdef MUT_RENEWS_WHILE_CUT
#define STOPS_RENEWING false
#else
#define STOPS_RENEWING true
#endif
#ifdef MUT_NO_TAKE_OVER_WAIT
#define WAITS_AFTER_IT false
#else
#define WAITS_AFTER_IT true
#endif

inline ghosts_end(w)
{
	i = 1;
	do
	:: i > ATTEMPTS -> break
	:: else ->
		if
		:: worker_of[i] == w && program[i] == P_GHOST -> program[i] = P_NONE
		:: else
		fi;
		i++
	od
}

/* Time that passes while a worker can't be heard. What ends too early, though it is heard, is a fault: below. */
proctype clock(byte m)
{
	byte w;
#if MASTERS > 1
	byte other;
#endif
end:	do
	:: d_step { TO_JUDGE(m, 0) && !CONNECTED(m, 0) -> judge_leases(m, 0) }
	:: d_step { TO_JUDGE(m, 1) && !CONNECTED(m, 1) -> judge_leases(m, 1) }
	:: d_step { WAITS(m, 1) -> ghosts_end(worker_of[1]); job_is_lost(J(m, 1)) }
	:: d_step { WAITS(m, 2) -> ghosts_end(worker_of[2]); job_is_lost(J(m, 2)) }
	:: d_step { WAITS(m, 3) -> ghosts_end(worker_of[3]); job_is_lost(J(m, 3)) }
	/* RunningTaskRecovery, a whole lease after its master was started, or the other's was taken over */
	:: d_step { STRAY(m) && !REPLACED_SESSION(m) && JUDGES(m) ->
		w = worker_of[attempt];
		if
		:: known[W(m, w)] == 0 -> lease_passes(m, w)
		:: else
		fi;
#if MASTERS > 1
		if
		:: master_of[w] != m && WAITS_AFTER_IT && (STOPS_RENEWING || !up[1 - m]) -> other = 1 - m; lease_passes(other, w); other = 0
		:: else
		fi;
#endif
		ghosts_end(w);
		take_back_stray(m);
		w = 0 }
#if MASTERS > 1
	/* its beat stood still for master-ttl */
	:: d_step { STRAY(m) && TAKES_OVER(m) ->
		printf("master %d: takes over master %d\n", m, 1 - m);
		taken[1 - m] = 1;
		no_renewal[1 - m] = STOPS_RENEWING }
	:: d_step { cut[m] -> cut[m] = 0 }
	/* its next beat: grows, or tells it.  Before it others of its statements may come to the store. */
	:: d_step { up[m] && !cut[m] && still[m] ->
		if
		:: BUMPED(m) -> master_forgets(m)
		:: else -> still[m] = 0; taken[m] = 0; no_renewal[m] = 0
		fi }
#endif
	od
}

#ifdef CANCEL
active proctype client()
{
	d_step { true ->
		if
		:: state == PENDING -> end_task(CANCELLED); open = 0
		:: state == RUNNING -> wish = 1; wish_news = attempt
		:: else
		fi }
}
#endif

/* ---- faults ---- */

/* Nothing changes a row that has ended: what happens then is only looked at where programs would run on. */
#ifdef FOREVER
#define FAULT faults > 0 && !healed
#else
#define FAULT faults > 0 && !healed && state != ENDED
#endif
inline agent_forgets(w, with_dir, with_machine)
{
	printf("FAULT worker %d dies, with its directory %d, machine %d\n", w, with_dir, with_machine);
	break_stream(w);
	may_start[w] = 0;
	i = 1;
	do
	:: i > ATTEMPTS -> break
	:: else ->
		if
		:: worker_of[i] != w || (agent[i] == A_GONE && !(with_machine && program[i] == P_GHOST))
		:: else ->
			if
			:: with_dir ->
				program[i] = (program[i] == P_RUNS && !with_machine -> P_GHOST : P_NONE);
				agent[i] = A_GONE;
				kind[i] = 0
			:: !with_dir && agent[i] == A_DISPATCHED -> agent[i] = A_GONE
			:: !with_dir && agent[i] == A_GONE -> program[i] = P_NONE
			:: !with_dir && agent[i] >= A_RUNNING && agent[i] <= A_FENCED ->
				agent[i] = A_RUNNING;
				program[i] = (with_machine && program[i] == P_RUNS -> P_LOST : program[i])
			:: else
			fi
		fi;
		i++
	od
}

proctype breaks()
{
	byte m, w;
	do
	:: break /* from here on all goes well */
	:: atomic { FAULT ->
		select(w: 0 .. 1);
#if MASTERS > 1
		select(m: 0 .. 1);
#endif
		if
#ifndef NO_MASTER
		/* dies and is started again; what it had sent to the store was done before, or is never done */
#ifdef MUT_STALE_CLAIM
		/* or is done after */
		:: up[m] && pick[m] == CLAIM && !orphan -> d_step {
			orphan = 1;
			orphan_master = m;
			orphan_worker = pick_worker[m];
			orphan_session = pick_session[m];
			orphan_instance = pick_instance[m];
			master_forgets(m);
			faults-- }
#endif
		:: up[m] -> d_step { master_forgets(m); faults-- }
#if MASTERS > 1
		:: up[m] -> d_step { l = taken[m]; master_forgets(m); taken[m] = l; still[m] = 1; up[m] = 0; faults-- } /* and is not, for now */
#endif
#endif
#if MASTERS > 1 && !defined(NO_CUT)
		:: up[m] && !cut[m] -> d_step { printf("FAULT master %d is cut off from the store\n", m); cut[m] = 1; still[m] = 1; faults-- }
#endif
#ifndef NO_AGENT
		:: true -> d_step { agent_forgets(w, false, false); faults-- }
#endif
#ifndef NO_MACHINE
		:: true -> d_step { agent_forgets(w, false, true); faults-- }
#endif
#ifndef NO_DIR
		:: true -> d_step { agent_forgets(w, true, false); instance[w]++; faults-- }
		:: true -> d_step { agent_forgets(w, true, true); instance[w]++; faults-- }
#endif
#ifndef NO_STREAM
		:: live[w] -> d_step { printf("FAULT stream of worker %d\n", w); break_stream(w); faults-- }
#endif
#ifndef NO_REDIS
		/* refuses, for whatever it holds or has lost; while it is down the dispatch goes on without it */
		:: WANTED(m) && CAN_TAKE(m, w) -> d_step { printf("FAULT the lease table refuses\n"); hold[W(m, w)] = 1; faults-- }
#endif
#ifndef NO_STORE
		/* what was submitted was not done */
		:: pick[m] == CLAIM -> d_step { printf("FAULT claim: store away\n"); forget_pick(m); faults-- }
		:: opening[W(m, w)] == SUBMITTED -> d_step {
			if
			:: o_live[W(m, w)] -> break_stream(w)
			:: else
			fi;
			forget_opening(W(m, w));
			faults-- }
		:: tb[J(m, 1)] == SUBMITTED -> d_step { printf("FAULT take-back: store away\n"); tb[J(m, 1)] = TB_UNAVAILABLE; faults-- }
		:: tb[J(m, 2)] == SUBMITTED -> d_step { printf("FAULT take-back: store away\n"); tb[J(m, 2)] = TB_UNAVAILABLE; faults-- }
		:: tb[J(m, 3)] == SUBMITTED -> d_step { printf("FAULT take-back: store away\n"); tb[J(m, 3)] = TB_UNAVAILABLE; faults-- }
		:: rec[J(m, 1)] == SUBMITTED -> d_step { printf("FAULT record: store away\n"); rec[J(m, 1)] = REC_UNAVAILABLE; faults-- }
		:: rec[J(m, 2)] == SUBMITTED -> d_step { printf("FAULT record: store away\n"); rec[J(m, 2)] = REC_UNAVAILABLE; faults-- }
		:: rec[J(m, 3)] == SUBMITTED -> d_step { printf("FAULT record: store away\n"); rec[J(m, 3)] = REC_UNAVAILABLE; faults-- }
#endif
#ifndef NO_LATE
		/* a lease that ends though the worker is heard: delays, a machine that sleeps */
		:: TO_JUDGE(m, w) -> d_step { printf("FAULT delay\n"); judge_leases(m, w); faults-- }
		:: IS_EXCLUSIVE -> d_step { acked[w] = 0; beat_out[w] = 0; break_stream(w); deadline_passes(w); faults-- }
		/* a dispatch that is not accepted in time */
		:: up[m] && HAS_JOB(m, 1, w) && job[J(m, 1)] == JOB_SENT && nfull(to_w[w]) -> d_step { recall(m, w, 1); faults-- }
		:: up[m] && HAS_JOB(m, 2, w) && job[J(m, 2)] == JOB_SENT && nfull(to_w[w]) -> d_step { recall(m, w, 2); faults-- }
		:: up[m] && HAS_JOB(m, 3, w) && job[J(m, 3)] == JOB_SENT && nfull(to_w[w]) -> d_step { recall(m, w, 3); faults-- }
#endif
		:: true /* not this time */
		fi;
		m = 0; w = 0 }
	od;
	skip;
	d_step {
		healed = 1;
		faults = 0;
		m = 0;
		w = 0;
#if MASTERS > 1
		taken[0] = (up[0] && taken[0]); /* who is started again is the next incarnation */
		taken[1] = (up[1] && taken[1]);
		still[0] = (up[0] && still[0]);
		still[1] = (up[1] && still[1]);
		up[1] = 1;
#endif
		up[0] = 1
	}
}

#ifdef MUT_STALE_CLAIM
/* A claim whose master is gone comes to the store all the same. */
proctype late_claim()
{
end:	do
	:: d_step { orphan ->
		commit_claim(orphan_master, orphan_worker, orphan_session, orphan_instance, k);
		orphan = 0;
		orphan_master = 0;
		orphan_worker = 0;
		orphan_session = 0;
		orphan_instance = 0 }
	od
}
#endif

/* Nothing has happened yet: both workers are connected, worker 0 to master 0. */
inline starts_up(m, w)
{
	link[w] = UP;
	live[w] = 1;
	server[w] = m;
	session[w] = 1;
	master_of[w] = m;
	known[W(m, w)] = 1;
	peer[W(m, w)] = PEER;
	may_start[w] = IS_EXCLUSIVE;
	renewed_by[w] = m
}

/* What runs and is not the row's attempt, nor may become it again: nobody waits for it, and it holds its slot. */
#define ASTRAY(a) (program[a] == P_RUNS && !(attempt == a && (state == RUNNING || (state == PENDING && open))))
#ifdef CANCEL
#define ENDS_SOMEHOW (state == ENDED || out)
#else
#define ENDS_SOMEHOW true
#endif

/* Nothing is left to do: the task has ended, or waits behind the bound. */
proctype looks()
{
end:	do
	:: timeout ->
#ifdef FOREVER
		assert(ENDS_SOMEHOW);
		assert(!(ASTRAY(1) || ASTRAY(2) || ASTRAY(3)));
#else
		assert(state == ENDED || out);
#endif
		break
	od
}

init {
	atomic {
		up[0] = 1;
		starts_up(0, 0);
#if MASTERS > 1
		if
		:: starts_up(0, 1)
		:: starts_up(1, 1)
		fi;
#else
		starts_up(0, 1);
#endif
		run hears(0);
		run hears(1);
		run says(0);
		run says(1);
		run supervises(1);
		run supervises(2);
#if ATTEMPTS > 2
		run supervises(3);
#endif
		run serves(0, 0);
		run serves(0, 1);
		run dispatches(0);
		run settles(0, 1);
		run settles(0, 2);
#if ATTEMPTS > 2
		run settles(0, 3);
#endif
		run clock(0);
#if MASTERS > 1
		up[1] = 1;
		run serves(1, 0);
		run serves(1, 1);
		run dispatches(1);
		run settles(1, 1);
		run settles(1, 2);
#if ATTEMPTS > 2
		run settles(1, 3);
#endif
		run clock(1);
#endif
#ifdef MUT_STALE_CLAIM
		run late_claim();
#endif
		run breaks();
#ifndef LIVENESS
		run looks()
#endif
	}
}

#ifdef LIVENESS
/* Never lost. */
ltl ends { <> (state == ENDED || out) }
#endif

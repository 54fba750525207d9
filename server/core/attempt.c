/* What can happen to a job is an input; the table near the end has one entry for each (input, state): a function, or
 * `ignore` where nothing is to be done.  A slot is taken by job_reserve and given back by free_slot: when the worker
 * says that the attempt ended, when its list lacks it, or when its lease ended. */
#include "server/core/internal.h"

#include <string.h>

/* Acknowledged attempts remembered per worker: those whose acknowledgement a heartbeat may have crossed. An older one
 * that is listed all the same is told to stop, which it has done already. */
#define DONE_MAX 1024

/* Of a refusal's text: what the protocol allows. */
#define REFUSAL_MAX 255

/* How long a task rests that all refuse, at most, and up to how many refusals in turn are told apart. */
#define REST_MOST_NS (5 * NS_PER_S)
#define REFUSED_MOST 6

/* Of a dispatch beside its spec, about. */
#define DISPATCH_BYTES 256

/* ---- what several inputs do ---- */

/* `release`: the lease table has it too. */
static void free_slot(struct core *c, struct job *j, bool release)
{
	if (!j->holds)
		return;
	worker_free_slot(c, j->worker, j);
	if (release)
		emit_worker(c, CORE_DO_RELEASE, j->worker)->at = job_at(j);
}

static void send_take_back(struct core *c, struct job *j)
{
	struct core_effect *f = emit(c, CORE_DO_TAKE_BACK);
	f->at = job_at(j);
	f->session = j->session;
	f->cause = j->cause;
	f->counted = j->counted;
	if (j->cause == CORE_CAUSE_REFUSED && j->refusal)
		f->text = emit_text(c, j->refusal);
	j->tb = TB_IN_FLIGHT;
}

static void take_back(struct core *c, struct job *j, enum core_take_back_cause cause)
{
	job_set_state(c, j, JOB_TAKING_BACK);
	j->cause = cause;
	j->counted = cause == CORE_CAUSE_WORKER_LOST;
	send_take_back(c, j);
}

static void insert_pending(struct core *c, uint64_t token, const struct uuid *task)
{
	struct core_effect *f = emit(c, CORE_DO_INSERT);
	f->token = token;
	f->at.task = *task;
}

/* A row came in while its task was on its way here: what came last holds. */
static void free_and_offer(struct core *c, struct job *j, bool pending)
{
	struct core_task row = j->again ? j->again_row : j->t;
	struct avoid avoid = j->avoid;
	bool offer = pending || j->again;
	job_free(c, j);
	if (offer)
		window_offer(c, &row, &avoid);
}

void job_reserve(struct core *c, struct job *j, struct worker *w)
{
	job_attach(j, w);
	job_set_state(c, j, JOB_PREEMPTING);
	j->chosen_at = c->now;
	w->given = ++c->pick;
	worker_take_slot(c, w, j);
	worker_timer(c, w);
	struct core_effect *f = emit_worker(c, CORE_DO_PREEMPT, w);
	f->at = job_at(j);
	f->slots = w->capacity.slots;
	f->lease_ns = w->lease_ns;
}

/* The row is RUNNING here: own and send, or give it back if nobody is there to send it to, or has no room for it. */
static void send(struct core *c, struct job *j)
{
	struct worker *w = j->worker;
	size_t bytes = DISPATCH_BYTES + (j->spec ? j->spec->len : 0);
	c->spec_guess = max_sz(bytes, c->spec_guess - c->spec_guess / 8);
	struct job *stale = job_by_attempt(c, (struct core_attempt){ j->t.id, j->t.attempt });
	if (stale && stale->session >= j->session) {
		/* A newer session has re-stamped the row before we heard of our own claim: that one holds. Or this very session
		 * has adopted it, and a claim that was sent twice takes the row for its own: nobody knows an attempt before the
		 * claim that makes it is answered. */
		free_slot(c, j, false);
		job_free(c, j);
		return;
	}
	if (stale)
		job_free(c, stale);
	if (!worker_can_send(w, j->session) || !worker_has_room(w, bytes) || j->cancel) {
		/* By its old name in the lease table: job_at would name the next attempt until the state changes. */
		bool held = j->holds;
		free_slot(c, j, false);
		take_back(c, j, CORE_CAUSE_NEVER_SENT);
		if (held)
			emit_worker(c, CORE_DO_RELEASE, w)->at = job_at(j);
		return;
	}
	j->sent_bytes = bytes;
	job_set_state(c, j, JOB_SENT);
	histogram_add(&c->timings.ready, c->now - j->ready_at);
	histogram_add(&c->timings.chosen, c->now - j->chosen_at);
	j->accept_by = c->now + c->cfg.accept_timeout_ns;
	if (w->number_step != c->step) {
		w->number_step = c->step;
		w->number++;
	}
	j->number = w->number;
	emit_worker(c, CORE_DO_OWN, w)->at = job_at(j);
	struct core_effect *f = emit_worker(c, CORE_DO_DISPATCH, w);
	f->at = job_at(j);
	f->number = j->number;
	f->queue = j->queue->name;
	f->lease_ns = j->lease_ns;
	f->exclusive = j->t.exclusive;
	f->spec = j->spec;
	j->spec = NULL;
	worker_timer(c, w);
}

static int64_t retry_delay(struct core *c, const struct core_task *t)
{
	double ns = (double)t->backoff_initial_ns, max = (double)t->backoff_max_ns;
	double by = t->backoff_multiplier > 1 ? t->backoff_multiplier : 1;
	for (int32_t i = 0; i < t->failures && by > 1 && ns < max; i++)
		ns *= by;
	if (max > 0 && ns > max)
		ns = max;
	if (ns > 1e18)
		ns = 1e18;
	/* Upward only: never before the delay that was asked for. */
	int64_t asked = ns > 0 ? (int64_t)ns : 0;
	return asked + (asked >= 10 ? (int64_t)rng_below(&c->rng, (uint64_t)(asked / 10)) : 0);
}

static int64_t delay_after(struct core *c, const struct job *j, const struct core_event *ev)
{
	return ev->outcome.succeeded || ev->outcome.given_back ? 0 : retry_delay(c, &j->t);
}

static void record(struct core *c, struct job *j, const struct core_event *ev)
{
	job_answered(c, j);
	free_slot(c, j, true);
	j->ours = j->state != JOB_LEFT && j->state != JOB_DONE && j->tb != TB_IN_FLIGHT;
	list_remove(&j->link_retry);
	job_set_state(c, j, JOB_RECORDING);
	j->readopted = false;
	j->token = ev->token;
	j->peer = ev->peer;
	struct core_effect *f = emit_worker(c, CORE_DO_RECORD, j->worker);
	f->at = job_at(j);
	f->peer = ev->peer;
	f->token = ev->token;
	f->session = j->session;
	f->retry_in_ns = delay_after(c, j, ev);
}

/* ---- inputs ---- */

static void ignore(struct core *c, struct job *j, const struct core_event *ev)
{
}

static void preempted(struct core *c, struct job *j, const struct core_event *ev)
{
	struct worker *w = j->worker;
	bool taken = ev->preempted == CORE_PREEMPT_OK || ev->preempted == CORE_PREEMPT_DOWN;
	bool submit = j->token != 0;
	if (taken && worker_can_send(w, j->session) && !j->gone && (submit || c->store_up)) {
		job_set_state(c, j, submit ? JOB_INSERTING : JOB_CLAIMING);
		struct core_effect *f = emit_worker(c, submit ? CORE_DO_INSERT : CORE_DO_CLAIM, w);
		f->at = job_at(j);
		f->token = j->token;
		f->lease_ns = j->lease_ns;
		f->queue = j->t.queue;
		f->priority = j->t.priority;
		f->seq = j->t.seq;
		return;
	}
	if (!taken && w->session == j->session) {
		/* The table knows better, or will after the next heartbeat has written its hash anew. */
		w->hold_until = c->now + w->heartbeat_ns;
		worker_refresh(c, w, false);
		worker_timer(c, w);
	}
	free_slot(c, j, taken);
	if (submit) {
		insert_pending(c, j->token, &j->t.id);
		job_free(c, j);
	} else {
		free_and_offer(c, j, !j->gone);
	}
}

/* The store gives this session nothing more: the worker has gone to another master, or another judges the sessions of
 * this one.  What is wrong here shows by itself, in the lease or in the next beat. */
static void session_is_stale(struct core *c, struct job *j)
{
	if (j->worker->session == j->session)
		worker_drop_peer(c, j->worker, true, CORE_CLOSE_UNAVAILABLE);
}

static void inserted(struct core *c, struct job *j, const struct core_event *ev)
{
	bool given = ev->task.attempt > 0;
	if (ev->inserted != CORE_INSERT_CREATED || !given)
		free_slot(c, j, true);
	if (ev->inserted != CORE_INSERT_CREATED) {
		job_free(c, j);
		return;
	}
	j->t.seq = ev->task.seq;
	j->token = 0;
	if (!given) {
		session_is_stale(c, j);
		free_and_offer(c, j, true);
		return;
	}
	j->t.attempt = ev->task.attempt;
	send(c, j);
}

static void claimed(struct core *c, struct job *j, const struct core_event *ev)
{
	if (ev->claimed != CORE_CLAIM_WON) {
		free_slot(c, j, true);
		if (ev->claimed == CORE_CLAIM_UNAVAILABLE) {
			/* Not again at once: the store may be up, but full. */
			timer_set(c, &c->pause, c->now + 100 * NS_PER_MS);
			free_and_offer(c, j, !j->gone);
		} else if (ev->claimed == CORE_CLAIM_STALE) {
			session_is_stale(c, j);
			free_and_offer(c, j, !j->gone);
		} else {
			free_and_offer(c, j, false);
		}
		return;
	}
	j->t.attempt = ev->at.attempt;
	if (uuid_eq(&ev->task.id, &j->t.id))
		j->t.failures = ev->task.failures;
	if (!j->spec)
		j->spec = blob_ref(ev->spec);
	bool offer = j->again && j->again_row.attempt >= j->t.attempt;
	struct core_task row = j->again_row;
	j->again = false;
	send(c, j);
	if (offer)
		window_offer(c, &row, NULL);
}

static void accepted(struct core *c, struct job *j, const struct core_event *ev)
{
	job_answered(c, j);
	if (j->state == JOB_SENT || j->state == JOB_RECALLING)
		job_set_state(c, j, JOB_RUNNING);
}

/* Recalled, and its worker has started it all the same.  As long as the task waits here the attempt is open and may still end
 * well; once it was given out again, or has ended, nobody waits for it, and it would hold its slot to its end. */
static void left_listed(struct core *c, struct job *j, const struct core_event *ev)
{
	const struct job *row = job_by_task(c, &j->t.id);
	job_answered(c, j);
	if ((!row || row->t.attempt != j->t.attempt) && j->worker->peer)
		emit_stop(c, j->worker, job_at(j), CORE_STOP_FENCED);
}

static void refused(struct core *c, struct job *j, const struct core_event *ev)
{
	bool recall = j->state == JOB_RECALLING;
	free(j->refusal);
	j->refusal = ev->text && ev->text[0] ? strndup(ev->text, REFUSAL_MAX) : NULL;
	job_answered(c, j);
	free_slot(c, j, true);
	take_back(c, j, recall ? CORE_CAUSE_RECALLED : CORE_CAUSE_REFUSED);
}

static void unlisted(struct core *c, struct job *j, const struct core_event *ev)
{
	bool recall = j->state == JOB_RECALLING;
	job_answered(c, j);
	free_slot(c, j, true);
	take_back(c, j, recall ? CORE_CAUSE_RECALLED : CORE_CAUSE_NOT_LISTED);
}

/* The worker has said that it is gone, of one that the store decides about at this moment. */
static void slot_only(struct core *c, struct job *j, const struct core_event *ev)
{
	job_answered(c, j);
	free_slot(c, j, true);
}

static void slot_and_forget(struct core *c, struct job *j, const struct core_event *ev)
{
	slot_only(c, j, ev);
	job_free(c, j);
}

static void forget(struct core *c, struct job *j, const struct core_event *ev)
{
	job_free(c, j);
}

static void outcome(struct core *c, struct job *j, const struct core_event *ev)
{
	record(c, j, ev);
}

static void outcome_again(struct core *c, struct job *j, const struct core_event *ev)
{
	j->peer = ev->peer; /* the acknowledgement goes to the newest stream */
	struct core_effect *f = emit(c, CORE_DO_DROP);
	f->peer = ev->peer;
	f->token = ev->token;
}

static void ack(struct core *c, uint64_t peer, struct core_attempt at, enum core_record_verdict verdict)
{
	struct core_effect *f = emit(c, CORE_DO_OUTCOME_ACK);
	f->peer = peer;
	f->at = at;
	f->verdict = verdict;
}

static void recorded(struct core *c, struct job *j, const struct core_event *ev)
{
	struct worker *w = j->worker;
	if (ev->recorded.verdict == CORE_RECORD_UNAVAILABLE || (ev->recorded.verdict == CORE_RECORD_FENCED && j->readopted)) {
		/* No word to the worker: it sends the outcome again, and what was not its own may be by now. */
		if (j->tb == TB_IN_FLIGHT) {
			job_set_state(c, j, JOB_TAKING_BACK);
		} else if (!j->ours) {
			job_free(c, j);
		} else if (j->tb == TB_RETRY || j->lost) {
			take_back(c, j, j->tb == TB_RETRY ? j->cause : CORE_CAUSE_WORKER_LOST);
		} else {
			job_set_state(c, j, JOB_ENDED);
		}
		return;
	}
	if (w->peer)
		ack(c, w->peer, job_at(j), ev->recorded.verdict);
	if (!w->peer) {
		job_free(c, j);
		return;
	}
	job_set_state(c, j, JOB_DONE);
	if (w->n_done > DONE_MAX)
		job_free(c, container_of(w->done.next, struct job, sent));
}

/* Workers that all refuse (a disk that is full everywhere, leases too old for an exclusive task) would hand it round as fast
 * as they can speak: from the second refusal on it rests, longer each time. */
static struct avoid after_refusal(const struct core *c, const struct job *j)
{
	int64_t rest = min_i64(NS_PER_S, c->cfg.heartbeat_ns);
	int32_t refused = (int32_t)min_i64(j->avoid.refused + 1, REFUSED_MOST);
	if (refused > 2)
		rest = min_i64(rest << (refused - 2), REST_MOST_NS);
	return (struct avoid){ j->worker->serial, c->now + rest, refused };
}

static void taken_back(struct core *c, struct job *j, const struct core_event *ev)
{
	j->tb = TB_NONE;
	if (ev->taken_back == CORE_TAKE_BACK_UNAVAILABLE) {
		j->tb = TB_RETRY;
		list_push_back(&c->retry, &j->link_retry);
		return;
	}
	struct avoid avoid = j->avoid;
	if (j->cause == CORE_CAUSE_REFUSED)
		avoid = after_refusal(c, j);
	if (j->holds && !j->lost)
		job_set_state(c, j, JOB_LEFT);
	else
		job_free(c, j);
	if (ev->taken_back == CORE_TAKE_BACK_PENDING)
		window_offer(c, &ev->task, &avoid);
}

static void taken_back_recording(struct core *c, struct job *j, const struct core_event *ev)
{
	if (ev->taken_back == CORE_TAKE_BACK_UNAVAILABLE) {
		j->tb = TB_RETRY;
		j->ours = true;
		return;
	}
	j->tb = TB_NONE;
	if (ev->taken_back == CORE_TAKE_BACK_PENDING)
		window_offer(c, &ev->task, NULL);
}

static void cancel_later(struct core *c, struct job *j, const struct core_event *ev)
{
	if (ev->at.attempt == job_at(j).attempt)
		j->cancel = true;
}

static void cancel(struct core *c, struct job *j, const struct core_event *ev)
{
	j->cancel = true;
	if (j->worker->peer && j->worker->session == j->session)
		emit_stop(c, j->worker, job_at(j), CORE_STOP_CANCELLED);
}

static void gone_later(struct core *c, struct job *j, const struct core_event *ev)
{
	j->gone = true;
}

static void late(struct core *c, struct job *j, const struct core_event *ev)
{
	struct worker *w = j->worker;
	j->unanswered = true;
	w->unanswered++;
	worker_refresh(c, w, false);
	if (w->peer)
		emit_stop(c, w, job_at(j), CORE_STOP_RECALLED);
#ifdef REINS_MUTATION_NO_RECALL_WAIT /* tests/sim proves that it would notice */
	take_back(c, j, CORE_CAUSE_RECALLED);
	return;
#endif
	if (j->t.exclusive)
		job_set_state(c, j, JOB_RECALLING);
	else
		take_back(c, j, CORE_CAUSE_RECALLED);
}

static void lost(struct core *c, struct job *j, const struct core_event *ev)
{
	j->lost = true;
	job_answered(c, j);
	free_slot(c, j, true);
	take_back(c, j, CORE_CAUSE_WORKER_LOST);
}

static void lost_meanwhile(struct core *c, struct job *j, const struct core_event *ev)
{
	j->lost = true;
	slot_only(c, j, ev);
}

/* The store has re-stamped the row: what was asked under the older session is void. */
static void new_session(struct core *c, struct job *j)
{
	job_answered(c, j);
	list_remove(&j->link_retry);
	j->tb = TB_NONE;
	j->lost = false;
	j->session = j->worker->session;
	j->number = 0;
}

static void adopted(struct core *c, struct job *j, const struct core_event *ev)
{
	new_session(c, j);
	job_set_state(c, j, JOB_RUNNING);
	if (!j->holds)
		worker_take_slot(c, j->worker, j);
}

static void adopted_recording(struct core *c, struct job *j, const struct core_event *ev)
{
	new_session(c, j);
	j->ours = j->readopted = true;
}

static void waits(struct core *c, struct job *j, const struct core_event *ev)
{
	new_session(c, j);
	free_slot(c, j, false);
	job_set_state(c, j, JOB_WAITING);
	timer_set(c, &j->timer, j->heard + j->lease_ns);
}

static void fenced(struct core *c, struct job *j, const struct core_event *ev)
{
	new_session(c, j);
	if (j->state != JOB_LEFT)
		job_set_state(c, j, JOB_LEFT);
	if (!j->holds)
		worker_take_slot(c, j->worker, j);
	if (j->worker->peer)
		emit_stop(c, j->worker, job_at(j), CORE_STOP_FENCED);
}

static void left_out_reserved(struct core *c, struct job *j, const struct core_event *ev)
{
	free_slot(c, j, false);
}

/* The beat of the new session writes the hash; nobody else would delete the owner key. */
static void left_out(struct core *c, struct job *j, const struct core_event *ev)
{
	free_slot(c, j, true);
	job_free(c, j);
}

static void left_out_recording(struct core *c, struct job *j, const struct core_event *ev)
{
	new_session(c, j);
	j->ours = false;
}

typedef void input_fn(struct core *c, struct job *j, const struct core_event *ev);

/* clang-format off */
static input_fn *const table[JOB_INPUTS][JOB_STATES] = {
	/*                READY    PREEMPTING         INSERTING          CLAIMING           SENT      RUNNING   RECALLING  ENDED     RECORDING             TAKING_BACK     LEFT             WAITING  DONE */
	[IN_PREEMPTED] = { ignore, preempted,         ignore,            ignore,            ignore,   ignore,   ignore,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_INSERTED]  = { ignore, ignore,            inserted,          ignore,            ignore,   ignore,   ignore,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_CLAIMED]   = { ignore, ignore,            ignore,            claimed,           ignore,   ignore,   ignore,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_ACCEPTED]  = { ignore, ignore,            ignore,            ignore,            accepted, ignore,   accepted,  ignore,   ignore,               accepted,       accepted,        ignore,  ignore },
	[IN_REFUSED]   = { ignore, ignore,            ignore,            ignore,            refused,  refused,  refused,   ignore,   ignore,               slot_only,      slot_and_forget, ignore,  ignore },
	[IN_OUTCOME]   = { ignore, ignore,            ignore,            ignore,            outcome,  outcome,  outcome,   outcome,  outcome_again,        outcome,        outcome,         outcome, outcome },
	[IN_RECORDED]  = { ignore, ignore,            ignore,            ignore,            ignore,   ignore,   ignore,    ignore,   recorded,             ignore,         ignore,          ignore,  ignore },
	[IN_TAKEN_BACK]= { ignore, ignore,            ignore,            ignore,            ignore,   ignore,   ignore,    ignore,   taken_back_recording, taken_back,     ignore,          ignore,  ignore },
	[IN_CANCEL]    = { ignore, cancel_later,      cancel_later,      cancel_later,      cancel,   cancel,   cancel,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_GONE]      = { forget, gone_later,        ignore,            gone_later,        ignore,   ignore,   ignore,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_LISTED]    = { ignore, ignore,            ignore,            ignore,            accepted, ignore,   accepted,  ignore,   ignore,               accepted,       left_listed,     ignore,  ignore },
	[IN_UNLISTED]  = { ignore, ignore,            ignore,            ignore,            unlisted, unlisted, unlisted,  unlisted, ignore,               slot_only,      slot_and_forget, ignore,  forget },
	[IN_LATE]      = { ignore, ignore,            ignore,            ignore,            late,     ignore,   ignore,    ignore,   ignore,               ignore,         ignore,          ignore,  ignore },
	[IN_LOST]      = { ignore, ignore,            ignore,            ignore,            lost,     lost,     lost,      lost,     lost_meanwhile,       lost_meanwhile, slot_and_forget, lost,    forget },
	[IN_ADOPTED]   = { ignore, ignore,            ignore,            ignore,            adopted,  adopted,  adopted,   adopted,  adopted_recording,    adopted,        adopted,         adopted, adopted },
	[IN_WAITING]   = { ignore, ignore,            ignore,            ignore,            waits,    waits,    waits,     waits,    left_out_recording,   waits,          waits,           waits,   ignore },
	[IN_FENCED]    = { ignore, ignore,            ignore,            ignore,            fenced,   fenced,   fenced,    fenced,   left_out_recording,   fenced,         fenced,          fenced,  ignore },
	[IN_LEFT_OUT]  = { ignore, left_out_reserved, left_out_reserved, left_out_reserved, left_out, left_out, left_out,  left_out, left_out_recording,   left_out,       left_out,        left_out, left_out },
};
/* clang-format on */

void job_input(struct core *c, struct job *j, enum job_input in, const struct core_event *ev)
{
	table[in][j->state](c, j, ev);
}

/* ---- events ---- */

void job_on_at(struct core *c, const struct core_event *ev)
{
	static const struct { bool by_task, from_peer; enum job_input in; } how[] = {
		[CORE_EV_GONE] = { true, false, IN_GONE },
		[CORE_EV_PREEMPTED] = { true, false, IN_PREEMPTED },
		[CORE_EV_CLAIMED] = { true, false, IN_CLAIMED },
		[CORE_EV_ACCEPTED] = { false, true, IN_ACCEPTED },
		[CORE_EV_REFUSED] = { false, true, IN_REFUSED },
		[CORE_EV_CANCEL_WISH] = { false, false, IN_CANCEL },
	};
	struct job *j = how[ev->type].by_task ? NULL : job_by_attempt(c, ev->at);
	if (!j && !how[ev->type].from_peer)
		j = job_by_task(c, &ev->at.task);
	if (!j || (how[ev->type].from_peer && peer_worker(c, ev->peer) != j->worker))
		return;
	job_input(c, j, how[ev->type].in, ev);
}

void job_on_inserted(struct core *c, const struct core_event *ev)
{
	struct job *j = job_by_task(c, &ev->task.id);
	if (j && j->state == JOB_INSERTING) {
		j->ready_at = c->now; /* committed by now */
		job_input(c, j, IN_INSERTED, ev);
		return;
	}
	if (ev->inserted != CORE_INSERT_CREATED)
		return;
	if (ev->expires_in_ns > 0)
		queue_expires_in(c, ev->expires_in_ns);
	if (ev->due_in_ns > 0)
		queue_due_in(c, ev->due_in_ns);
	else
		window_offer(c, &ev->task, NULL);
}

/* checkAndFixStaleRunningTasks: a completion is recorded because the worker reports it, never because a key is gone;
 * and what the core doesn't know it still hands to the store, which judges. */
void job_on_outcome(struct core *c, const struct core_event *ev)
{
	const struct peer *p = peer_find(c, ev->peer);
	struct worker *w = p ? p->worker : NULL;
	struct job *j = job_by_attempt(c, ev->at);
#ifdef REINS_MUTATION_ACK_BEFORE_COMMIT /* tests/sim proves that it would notice */
	ack(c, ev->peer, ev->at, CORE_RECORD_RECORDED);
#endif
	if (j && j->worker == w) {
		job_input(c, j, IN_OUTCOME, ev);
		return;
	}
	if (!j && w && w->n_jobs < 2 * (size_t)c->cfg.max_held) {
		/* Kept while it is recorded, so that a repeat is not recorded beside it. Its policy is not known. */
		struct core_task t = { .id = ev->at.task, .attempt = ev->at.attempt };
		j = job_new_at(c, &t, w, JOB_LEFT);
		job_input(c, j, IN_OUTCOME, ev);
		return;
	}
	struct core_effect *f = w ? emit_worker(c, CORE_DO_RECORD, w) : emit(c, CORE_DO_RECORD);
	f->at = ev->at;
	f->peer = ev->peer;
	f->token = ev->token;
	/* Of a stream that was given up: the row may be the worker's still. */
	if (j)
		f->retry_in_ns = delay_after(c, j, ev);
}

/* The outcome came by a stream that was given up, and was judged before a newer session of the worker got the attempt. */
static bool adopted_since(const struct core *c, const struct job *j, uint64_t peer)
{
	if (!j || j->worker != peer_worker(c, peer))
		return false;
	return j->state == JOB_SENT || j->state == JOB_RUNNING || j->state == JOB_RECALLING || j->state == JOB_ENDED ||
	       (j->state == JOB_RECORDING && j->ours);
}

void job_on_recorded(struct core *c, const struct core_event *ev)
{
	struct job *j = job_by_attempt(c, ev->at);
	bool known = j && j->state == JOB_RECORDING && j->token == ev->token;
	if (known)
		job_input(c, j, IN_RECORDED, ev);
	else if (ev->recorded.verdict != CORE_RECORD_UNAVAILABLE && peer_worker(c, ev->peer) &&
		 !(ev->recorded.verdict == CORE_RECORD_FENCED && adopted_since(c, j, ev->peer)))
		ack(c, ev->peer, ev->at, ev->recorded.verdict);
	if (ev->recorded.verdict != CORE_RECORD_RECORDED)
		return;
	/* Taken back before, and open: its row in the window is void. */
	struct job *row = job_by_task(c, &ev->at.task);
	if (row && row->t.attempt <= ev->at.attempt)
		job_input(c, row, IN_GONE, ev);
	if (!ev->recorded.pending_again)
		return;
	if (ev->recorded.retry_in_ns > 0)
		queue_due_in(c, ev->recorded.retry_in_ns);
	else
		window_offer(c, &ev->task, NULL);
}

void job_on_taken_back(struct core *c, const struct core_event *ev)
{
	struct job *j = job_by_attempt(c, ev->at);
	if (j && j->tb == TB_IN_FLIGHT && j->session == ev->session)
		job_input(c, j, IN_TAKEN_BACK, ev);
	else if (!j && ev->taken_back == CORE_TAKE_BACK_PENDING)
		window_offer(c, &ev->task, NULL);
}

void job_retry_take_backs(struct core *c)
{
	struct list *n;
	while (c->store_up && (n = list_pop_front(&c->retry)))
		send_take_back(c, container_of(n, struct job, link_retry));
}

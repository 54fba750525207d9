/* Effects to operations: each effect of the core becomes an operation of the store, a command of the lease
 * table or a message to a worker.  The steps of a dispatch (preempt, claim, own, send) follow each other through
 * the core; the named crash points lie between them. */
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/log/log.h"
#include "server/engine/crash.h"
#include "server/engine/engine_impl.h"

/* ---- answers: done callbacks become events ---- */

static struct core_event *answer(struct eng_op *op, enum core_event_type type)
{
	struct core_event *ev = engine_event(op->engine, type);
	ev->peer = op->effect.peer;
	ev->token = op->effect.token;
	ev->at = op->effect.at;
	ev->session = op->effect.session;
	engine_op_spent(op);
	return ev;
}

static struct eng_op *of(struct store_op *op)
{
	return container_of(op, struct eng_op, op);
}

void engine_on_preempted(void *arg, const struct lease_answer *answers, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct eng_op *op = (struct eng_op *)(uintptr_t)answers[i].cookie;
		struct core_event *ev = answer(op, CORE_EV_PREEMPTED);
		switch (answers[i].verdict) {
		case LEASE_OK:
			ev->preempted = CORE_PREEMPT_OK;
			CRASH_POINT("after-preempt");
			break;
		case LEASE_NEWER_SESSION:
			ev->preempted = CORE_PREEMPT_NEWER_SESSION;
			break;
		case LEASE_FULL:
			ev->preempted = CORE_PREEMPT_FULL;
			break;
		case LEASE_DOWN:
			ev->preempted = CORE_PREEMPT_DOWN;
			break;
		}
	}
}

void engine_on_hb(void *arg, const struct lease_hb *hb)
{
	struct eng_op *op = (struct eng_op *)(uintptr_t)hb->cookie;
	struct core_event *ev = answer(op, CORE_EV_HB);
	ev->hb.worker = op->worker;
	ev->hb.fresh = hb->presence == LEASE_PRESENT && hb->session == op->effect.session;
}

static void on_claimed(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_CLAIMED);
	ev->claimed = sop->result == STORE_UNAVAILABLE ? CORE_CLAIM_UNAVAILABLE
		    : sop->result != STORE_OK			   ? CORE_CLAIM_LOST
		    : op->claim.ret_won				   ? CORE_CLAIM_WON
		    : op->claim.ret_stale			   ? CORE_CLAIM_STALE
								   : CORE_CLAIM_LOST;
	if (ev->claimed == CORE_CLAIM_WON) {
		CRASH_POINT("after-claim");
		ev->task = op->claim.ret_task;
		ev->at.attempt = op->claim.ret_task.attempt;
		ev->spec = op->claim.ret_spec;
	}
}

static void count_taken_back(struct engine_stats *s, const struct core_effect *x, enum core_take_back_verdict verdict)
{
	if (verdict != CORE_TAKE_BACK_PENDING && verdict != CORE_TAKE_BACK_ENDED)
		return;
	s->take_backs[x->cause]++;
	s->attempts_ended[x->cause == CORE_CAUSE_REFUSED ? STORE_NOT_TAKEN : x->counted ? STORE_WORKER_LOST : STORE_GIVEN_BACK]++;
	s->tasks_ended[0] += verdict == CORE_TAKE_BACK_ENDED;
}

static void on_taken_back(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	if (sop->result == STORE_OK)
		count_taken_back(&op->engine->stats, &op->effect, op->take_back.ret_verdict);
	struct core_event *ev = answer(op, CORE_EV_TAKEN_BACK);
	ev->taken_back = sop->result == STORE_OK	  ? op->take_back.ret_verdict
		       : sop->result == STORE_UNAVAILABLE ? CORE_TAKE_BACK_UNAVAILABLE
							  : CORE_TAKE_BACK_FENCED;
	if (sop->result == STORE_OK) {
		ev->task = op->take_back.ret_task;
		if (op->take_back.ret_verdict != CORE_TAKE_BACK_FENCED)
			engine_news(op->engine, &op->effect.at.task, false);
	}
}

static void on_session_opened(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct engine_peer *p = engine_peer_find(op->engine, op->effect.peer);
	struct store_session_open *o = &op->open;
	struct core_event *ev = answer(op, CORE_EV_SESSION_OPENED);
	ev->opened.worker = op->worker;
	ev->opened.ok = sop->result == STORE_OK && !o->ret_stale;
	if (!ev->opened.ok)
		return;
	ev->opened.session = o->ret_session;
	op->engine->stats.adopted += (int64_t)o->ret_n_adopted;
	op->engine->stats.fenced += (int64_t)o->ret_n_fenced;
	if (p)
		engine_drain_opened(op->engine, p, op->asked_at, &o->ret_drain);
	ev->opened.drain_wish = p ? p->drain.mode != 0 : o->ret_drain.mode != 0;
	ev->opened.adopted = o->ret_adopted;
	ev->opened.n_adopted = o->ret_n_adopted;
	ev->opened.requeued = o->ret_requeued;
	ev->opened.n_requeued = o->ret_n_requeued;
	ev->opened.waiting = o->ret_waiting;
	ev->opened.n_waiting = o->ret_n_waiting;
	ev->opened.fenced = o->ret_fenced;
	ev->opened.n_fenced = o->ret_n_fenced;
	if (p && o->ret_n_adopted > 0) {
		p->adopted = xcalloc(o->ret_n_adopted, sizeof(*p->adopted));
		memcpy(p->adopted, o->ret_adopted, o->ret_n_adopted * sizeof(*p->adopted));
		p->n_adopted = o->ret_n_adopted;
	}
	for (size_t i = 0; i < o->ret_n_requeued; i++)
		engine_news(op->engine, &o->ret_requeued[i].id, false);
}

static void on_filled(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_FILLED);
	ev->filled.queue = op->fill.queue;
	ev->filled.ok = sop->result == STORE_OK;
	ev->filled.at = op->fill.ret_rows;
	ev->filled.n = ev->filled.ok ? op->fill.ret_n : 0;
	ev->filled.exhausted = op->fill.ret_exhausted;
}

static void on_queues(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_QUEUES);
	ev->queues.at = (const char *const *)op->queues.ret_names;
	ev->queues.ok = sop->result == STORE_OK;
	ev->queues.n = ev->queues.ok ? op->queues.ret_n : 0;
	ev->queues.paused = op->queues.ret_paused;
	ev->queues.n_paused = ev->queues.ok ? op->queues.ret_n_paused : 0;
}

static void on_due(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_DUE);
	ev->due.ok = sop->result == STORE_OK;
	ev->due.at = op->due.ret_rows;
	ev->due.n = ev->due.ok ? op->due.ret_n : 0;
	ev->due.next_in_ns = ev->due.ok ? op->due.ret_next_in_ns : -1;
	for (size_t i = 0; i < ev->due.n; i++)
		engine_news(op->engine, &ev->due.at[i].id, false);
}

static void on_expired(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_EXPIRED);
	ev->expired.ok = sop->result == STORE_OK;
	ev->expired.at = op->expire.ret_ids;
	ev->expired.n = ev->expired.ok ? op->expire.ret_n : 0;
	ev->expired.next_in_ns = ev->expired.ok ? op->expire.ret_next_in_ns : -1;
	op->engine->stats.tasks_ended[STORE_FAILED] += (int64_t)ev->expired.n;
	for (size_t i = 0; i < op->expire.ret_n; i++)
		engine_news(op->engine, &op->expire.ret_ids[i], false);
}

static void on_strays(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_STRAYS);
	ev->strays.ok = sop->result == STORE_OK;
	ev->strays.at = op->strays.ret_rows;
	ev->strays.n = ev->strays.ok ? op->strays.ret_n : 0;
}

static void on_took_over(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_TOOK_OVER);
	ev->took_over.master = op->worker;
	ev->took_over.beat = op->take_over.beat;
	ev->took_over.incarnation = op->take_over.ret_incarnation;
	ev->took_over.taken = sop->result == STORE_OK && op->take_over.ret_taken;
	if (ev->took_over.taken)
		log_warn("master", NULL, "took over the sessions of master %s, whose beat stands still; they are judged after a "
			 "whole lease", op->worker);
}

void engine_on_page(void *arg, const struct lease_page *page)
{
	struct eng_op *op = (struct eng_op *)(uintptr_t)page->cookie;
	struct core_event *ev = answer(op, CORE_EV_KEYS);
	ev->keys.ok = page->ok;
	ev->keys.next = page->next;
	if (!page->ok)
		return;
	struct core_owner *at = engine_scratch(op->engine, page->n_owners * sizeof(*at));
	for (size_t i = 0; i < page->n_owners; i++) {
		const struct lease_owner *o = &page->owners[i];
		at[i] = (struct core_owner){ { o->task, o->attempt }, o->worker, o->session };
	}
	ev->keys.at = at;
	ev->keys.n = page->n_owners;
	ev->keys.hashes = page->hashes;
	ev->keys.n_hashes = page->n_hashes;
}

static void on_runs(struct store_op *sop)
{
	struct eng_op *op = of(sop);
	struct core_event *ev = answer(op, CORE_EV_RUNS);
	ev->runs.ok = sop->result == STORE_OK;
	ev->runs.at = op->owners;
	ev->runs.runs = op->runs.ret_runs;
	ev->runs.n = ev->runs.ok ? op->runs.n : 0;
	ev->runs.next = op->effect.cursor;
}

static void tell_refused(const struct engine_outcome *o)
{
	static struct log_repeats repeats;
	char id[UUID_TEXT_LEN + 1];
	int64_t left_out;
	uuid_format(&o->rec.at.task, id);
	if (log_repeats_pass(&repeats, clock_mono_ns(), NS_PER_S / 10, id, &left_out))
		log_error("store", id, "the outcome of attempt %d was refused by the store, and stays with its worker: %s",
			  (int)o->rec.at.attempt, o->rec.op.text);
}

static void on_recorded(struct store_op *sop)
{
	struct engine_outcome *o = container_of(sop, struct engine_outcome, rec.op);
	struct engine *e = o->engine;
	struct core_event *ev = engine_event(e, CORE_EV_RECORDED);
	ev->peer = o->peer;
	ev->token = (uint64_t)(uintptr_t)o;
	ev->at = o->rec.at;
	/* Refused even without result and text: the worker keeps it, as while the store is away.  Any verdict would have it
	 * forget what nobody has. */
	ev->recorded.verdict = sop->result == STORE_OK ? o->rec.ret_verdict : CORE_RECORD_UNAVAILABLE;
	e->stats.reports[ev->recorded.verdict]++;
	if (sop->result == STORE_REFUSED)
		tell_refused(o);
	if (ev->recorded.verdict == CORE_RECORD_RECORDED) {
		CRASH_POINT("after-record");
		e->stats.attempts_ended[o->rec.outcome]++;
		if (store_state_is_final(o->rec.ret_state))
			e->stats.tasks_ended[o->rec.ret_state]++;
		if (o->rec.ret_state == STORE_PENDING) {
			ev->recorded.pending_again = true;
			ev->recorded.retry_in_ns = o->rec.ret_due_in_ns;
			ev->task = o->rec.ret_task;
		}
		engine_news(e, &o->rec.at.task, false);
	}
	list_remove(&o->node);
	list_push_back(&e->spent_outcomes, &o->node);
}

static bool any_created(const struct store_insert *first)
{
	for (const struct store_insert *i = first; i && first->op.result == STORE_OK; i = i->group_next)
		if (i->ret_verdict == STORE_INSERT_CREATED)
			return true;
	return false;
}

static void on_inserted(struct store_op *sop)
{
	struct engine_submit *s = container_of(sop, struct engine_submit, ins.op);
	struct engine *e = s->engine;
	bool created = sop->result == STORE_OK && s->ins.ret_verdict == STORE_INSERT_CREATED;
	e->stats.submitted += created && s->in_core;
	if (s->in_core) {
		struct core_event *ev = engine_event(e, CORE_EV_INSERTED);
		ev->token = (uint64_t)(uintptr_t)s;
		ev->due_in_ns = s->due_in_ns;
		ev->expires_in_ns = s->ins.expiry_ns;
		ev->task = s->ins.task;
		ev->task.seq = s->ins.ret_seq;
		ev->task.attempt = created && s->ins.ret_given ? 1 : 0;
		ev->at = (struct core_attempt){ s->ins.task.id, ev->task.attempt };
		ev->inserted = created ? CORE_INSERT_CREATED
			     : sop->result == STORE_OK ? CORE_INSERT_EXISTS
						       : CORE_INSERT_FAILED;
		if (created && s->ins.ret_given)
			CRASH_POINT("after-claim");
	} else if (any_created(&s->ins)) {
		/* A group. What is not due yet waits in the store; the core finds it there at its next look, and all of it without
		 * memory to tell of. */
		struct core_event *ev = engine_event(e, CORE_EV_READY);
		struct core_task *rows = engine_scratch_try(e, (size_t)(s->ins.group_n + 1) * sizeof(*rows));
		size_t n = 0;
		for (struct store_insert *i = &s->ins; i; i = i->group_next) {
			e->stats.submitted += i->ret_verdict == STORE_INSERT_CREATED;
			if (i->expiry_ns > 0 && (!ev->expires_in_ns || i->expiry_ns < ev->expires_in_ns))
				ev->expires_in_ns = i->expiry_ns;
			if (!rows || i->ret_verdict != STORE_INSERT_CREATED || i->delay_ns || i->run_at_wall_us)
				continue;
			rows[n] = i->task;
			rows[n++].seq = i->ret_seq;
		}
		ev->ready.at = rows;
		ev->ready.n = n;
	}
	list_remove(&s->node);
	list_push_back(&e->spent_submits, &s->node);
	loop_mark(e->loop, &e->work); /* also where there is no event: it is answered in the flush */
}

/* ---- effects ---- */

static void submit(struct engine *e, struct eng_op *op, enum store_kind kind, void (*done)(struct store_op *))
{
	op->op.kind = kind;
	op->op.done = done;
	store_submit(e->store, &op->op);
}

static struct store_assignment assignment(const struct engine *e, const struct core_effect *x, const char *worker)
{
	struct store_assignment a = {
		.worker = worker, .session = x->session, .lease_ns = x->lease_ns, .master = e->master_id, .incarnation = e->incarnation,
	};
	memcpy(a.instance, x->instance, sizeof(a.instance));
	return a;
}

static void do_preempt(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	struct lease_slot slot = {
		.cookie = (uint64_t)(uintptr_t)op,
		.task = x->at.task,
		.attempt = x->at.attempt,
		.slots = x->slots,
		.worker = x->worker,
		.master = e->master_id,
		.session = x->session,
		.lease_ttl_ns = x->lease_ns,
	};
	lease_preempt(e->lease, &slot, 1);
}

static void do_insert(struct engine *e, const struct core_effect *x)
{
	struct engine_submit *s = (struct engine_submit *)(uintptr_t)x->token;
	if (x->worker) {
		snprintf(s->worker, sizeof(s->worker), "%s", x->worker);
		s->ins.eager = assignment(e, x, s->worker);
	}
	store_submit(e->store, &s->ins.op);
}

static void do_claim(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	op->claim.task = (struct core_task){
		.id = x->at.task, .queue = x->queue, .priority = x->priority, .seq = x->seq,
	};
	op->claim.to = assignment(e, x, op->worker);
	submit(e, op, STORE_CLAIM, on_claimed);
}

static void do_take_back(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	op->take_back.at = x->at;
	op->take_back.session = x->session;
	op->take_back.cause = x->cause;
	op->words = engine_take_back_words(x, &e->core_config);
	op->take_back.words = op->words;
	op->take_back.counted = x->counted;
	op->take_back.lost_limit = e->lost_limit;
	submit(e, op, STORE_TAKE_BACK, on_taken_back);
}

static void do_record(struct engine *e, const struct core_effect *x)
{
	struct engine_outcome *o = (struct engine_outcome *)(uintptr_t)x->token;
	list_remove(&o->node);
	list_push_back(&e->recording, &o->node);
	o->rec.retry_in_ns = x->retry_in_ns;
	o->rec.lost_limit = e->lost_limit;
	o->rec.op.kind = STORE_RECORD;
	o->rec.op.done = on_recorded;
	store_submit(e->store, &o->rec.op);
}

static void do_drop(struct engine *e, const struct core_effect *x)
{
	struct engine_outcome *o = (struct engine_outcome *)(uintptr_t)x->token;
	list_remove(&o->node);
	list_push_back(&e->spent_outcomes, &o->node);
}

static void do_session_open(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	struct store_session_open *o = &op->open;
	if (x->n_held) {
		op->held = xcalloc(x->n_held, sizeof(*op->held));
		memcpy(op->held, x->held, x->n_held * sizeof(*op->held));
	}
	o->worker = op->worker;
	memcpy(o->instance, x->instance, sizeof(o->instance));
	o->hello_number = x->number;
	o->master = e->master_id;
	o->held = op->held;
	o->n_held = x->n_held;
	o->lease_ns = x->lease_ns;
	const struct engine_peer *p = engine_peer_find(e, x->peer);
	if (p)
		o->hello = op->info = blob_ref(p->hello);
	op->asked_at = e->drain_clock;
	submit(e, op, STORE_SESSION_OPEN, on_session_opened);
}

/* Nobody waits for it. */
static void on_told(struct store_op *sop)
{
	engine_op_spent(of(sop));
	loop_mark(of(sop)->engine->loop, &of(sop)->engine->work);
}

static void do_worker_gone(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	op->gone.worker = op->worker;
	op->gone.session = x->session;
	op->gone.heard_ago_ns = x->heard_ago_ns;
	submit(e, op, STORE_WORKER_GONE, on_told);
}

static void do_detached(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	op->detached.worker = op->worker;
	op->detached.session = x->session;
	op->detached.within_ns = x->detach_ns;
	submit(e, op, STORE_DETACHED, on_told);
}

static void do_take_over(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	snprintf(op->worker, sizeof(op->worker), "%s", x->master);
	op->take_over.master = op->worker;
	op->take_over.incarnation = x->incarnation;
	op->take_over.beat = x->beat;
	submit(e, op, STORE_TAKE_OVER, on_took_over);
}

static void do_fill(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	op->fill.queue = x->queue;
	op->fill.from_start = x->from_start;
	op->fill.after_priority = x->priority;
	op->fill.after_seq = x->seq;
	op->fill.limit = x->limit;
	submit(e, op, STORE_FILL, on_filled);
}

static void do_lease_beat(struct engine *e, const struct core_effect *x)
{
	struct lease_held *held = engine_scratch(e, x->n_held * sizeof(*held));
	for (size_t i = 0; i < x->n_held; i++)
		held[i] = (struct lease_held){ x->held[i].task, x->held[i].attempt, i >= x->n_owned };
	struct lease_beat beat = {
		.worker = x->worker,
		.master = e->master_id,
		.session = x->session,
		.lease_ttl_ns = x->lease_ns,
		.held = held,
		.n_held = x->n_held,
	};
	lease_beat(e->lease, &beat);
}

static void do_runs(struct engine *e, const struct core_effect *x)
{
	struct eng_op *op = engine_op_new(e, x);
	size_t head = x->n_owners * sizeof(*op->owners), size = head;
	for (size_t i = 0; i < x->n_owners; i++)
		size += strlen(x->owners[i].worker) + 1;
	op->owners = xcalloc(1, size);
	char *name = (char *)op->owners + head;
	for (size_t i = 0; i < x->n_owners; i++) {
		size_t n = strlen(x->owners[i].worker) + 1;
		op->owners[i] = x->owners[i];
		op->owners[i].worker = memcpy(name, x->owners[i].worker, n);
		name += n;
	}
	op->runs.at = op->owners;
	op->runs.n = x->n_owners;
	submit(e, op, STORE_RUNS, on_runs);
}

static void do_disown(struct engine *e, const struct core_effect *x)
{
	struct lease_owner owner = { x->at.task, x->at.attempt, x->worker, x->session };
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&x->at.task, id);
	log_debug("lease", id, "attempt %d of %s does not run: its owner key goes", (int)x->at.attempt, x->worker);
	lease_disown(e->lease, &owner, 1);
}

static void do_drop_hash(struct engine *e, const struct core_effect *x)
{
	log_debug("lease", x->worker, "no hb: its hash goes");
	lease_drop_hash(e->lease, x->worker);
}

static void touch(struct engine *e, struct engine_peer *p)
{
	if (list_empty(&p->dirty))
		list_push_back(&e->dirty_peers, &p->dirty);
}

/* Of a session that goes on. */
static void keep_adopted(struct engine_peer *p, const struct core_attempt *held, size_t n)
{
	free(p->adopted);
	p->adopted = xcalloc(n + 1, sizeof(*p->adopted));
	p->n_adopted = n;
	for (size_t i = 0; i < n; i++)
		p->adopted[i].task = (struct core_task){ .id = held[i].task, .attempt = held[i].attempt };
}

static void count_dispatch(struct engine *e, const struct core_attempt *at)
{
	e->stats.dispatched++;
	if (at->attempt > 1)
		e->stats.dispatched_again++;
	else
		histogram_add(&e->stats.queue_wait, max_i64(clock_wall_us() - uuid7_wall_us(&at->task), 0) * NS_PER_US);
}

static void to_peer(struct engine *e, const struct core_effect *x)
{
	struct engine_peer *p = engine_peer_find(e, x->peer);
	if (!p)
		return;
	switch (x->type) {
	case CORE_DO_WELCOME:
		if (x->resumed)
			keep_adopted(p, x->held, x->n_held);
		p->ops->welcome(p, x, p->adopted, p->n_adopted);
		free(p->adopted);
		p->adopted = NULL;
		p->n_adopted = 0;
		p->welcomed = true;
		engine_drain_welcome(p);
		break;
	case CORE_DO_HEARTBEAT_ACK:
		p->ops->heartbeat_ack(p, x->number, x->exclusive_not_renewed);
		break;
	case CORE_DO_DISPATCH:
		p->ops->dispatch(p, x);
		count_dispatch(e, &x->at);
		engine_news(e, &x->at.task, false);
		break;
	case CORE_DO_STOP:
		p->ops->stop(p, &x->at, x->stop);
		break;
	case CORE_DO_OUTCOME_ACK:
		p->ops->outcome_ack(p, &x->at, x->verdict);
		break;
	case CORE_DO_CLOSE_PEER:
		engine_peer_gone(e, p);
		p->ops->close(p, x->close);
		return;
	default:
		return;
	}
	if (p->id) /* it may have ended itself */
		touch(e, p);
}

#ifdef REINS_CRASH_POINTS
static void on_crash_after_write(struct loop_timer *t)
{
	crash_now();
}
#endif

static void execute_one(struct engine *e, const struct core_effect *x)
{
	struct lease_owner owner = { x->at.task, x->at.attempt, x->worker, x->session };
	struct eng_op *op;
	switch (x->type) {
	case CORE_DO_INSERT: do_insert(e, x); break;
	case CORE_DO_PREEMPT: do_preempt(e, x); break;
	case CORE_DO_CLAIM: do_claim(e, x); break;
	case CORE_DO_OWN: lease_own(e->lease, &owner, 1); break;
	case CORE_DO_RELEASE: lease_release(e->lease, &owner, 1); break;
	case CORE_DO_KEYS: lease_scan(e->lease, x->cursor, (uint64_t)(uintptr_t)engine_op_new(e, x)); break;
	case CORE_DO_RUNS: do_runs(e, x); break;
	case CORE_DO_DISOWN: do_disown(e, x); break;
	case CORE_DO_DROP_HASH: do_drop_hash(e, x); break;
	case CORE_DO_RECORD: do_record(e, x); break;
	case CORE_DO_DROP: do_drop(e, x); break;
	case CORE_DO_TAKE_BACK: do_take_back(e, x); break;
	case CORE_DO_SESSION_OPEN: do_session_open(e, x); break;
	case CORE_DO_FILL: do_fill(e, x); break;
	case CORE_DO_QUEUES:
		submit(e, engine_op_new(e, x), STORE_QUEUES, on_queues);
		break;
	case CORE_DO_PAUSED: engine_paused(e, x->queue); break;
	case CORE_DO_DUE:
		op = engine_op_new(e, x);
		op->due.limit = x->limit;
		submit(e, op, STORE_DUE, on_due);
		break;
	case CORE_DO_EXPIRE:
		op = engine_op_new(e, x);
		op->expire.limit = x->limit;
		submit(e, op, STORE_EXPIRE, on_expired);
		break;
	case CORE_DO_STRAYS:
		op = engine_op_new(e, x);
		op->strays.master = e->master_id;
		op->strays.after = x->at.task;
		op->strays.limit = x->limit;
		submit(e, op, STORE_STRAYS, on_strays);
		break;
	case CORE_DO_TAKE_OVER: do_take_over(e, x); break;
	case CORE_DO_ASK_HB: lease_query_hb(e->lease, x->worker, (uint64_t)(uintptr_t)engine_op_new(e, x)); break;
	case CORE_DO_WORKER_GONE: do_worker_gone(e, x); break;
	case CORE_DO_DETACHED: do_detached(e, x); break;
	case CORE_DO_LEASE_BEAT: do_lease_beat(e, x); break;
	case CORE_DO_DISPATCH:
	case CORE_DO_WELCOME:
	case CORE_DO_HEARTBEAT_ACK:
	case CORE_DO_STOP:
	case CORE_DO_OUTCOME_ACK:
	case CORE_DO_CLOSE_PEER:
		to_peer(e, x);
		break;
	}
#ifdef REINS_CRASH_POINTS
	/* The message leaves in LOOP_WRITE of this turn; the timer fires in the next one. */
	if (x->type == CORE_DO_DISPATCH && crash_point_due("after-send")) {
		loop_timer_init(&e->crash_after_write, e->loop, on_crash_after_write);
		loop_timer_set(&e->crash_after_write, 0);
	}
#endif
}

void engine_execute(struct engine *e)
{
	for (size_t i = 0; i < e->effects.n; i++)
		execute_one(e, &e->effects.at[i]);
	struct list *n;
	while ((n = list_pop_front(&e->dirty_peers))) {
		struct engine_peer *p = container_of(n, struct engine_peer, dirty);
		p->ops->flush(p);
	}
}

/* ---- requests ---- */

/* A run_at may be further away than nanoseconds can count. */
static int64_t due_in_ns(const struct store_insert *ins, int64_t now_wall_us)
{
	int64_t in_us = ins->run_at_wall_us ? max_i64(ins->run_at_wall_us - now_wall_us, 0) : 0;
	return max_i64(ins->delay_ns, min_i64(in_us, INT64_MAX / NS_PER_US) * NS_PER_US);
}

void engine_submit(struct engine *e, struct engine_submit *s)
{
	s->engine = e;
	list_push_back(&e->submits, &s->node);
	int64_t now_wall_us = clock_wall_us();
	for (struct store_insert *i = &s->ins; i; i = i->group_next)
		i->task.id = uuid7_make(&e->ids, now_wall_us);
	s->ins.op.kind = STORE_INSERT;
	s->ins.op.done = on_inserted;
	s->in_core = !s->ins.group_next;
	s->due_in_ns = due_in_ns(&s->ins, now_wall_us);
	if (!s->in_core) {
		store_submit(e->store, &s->ins.op);
		return;
	}
	struct core_event *ev = engine_event(e, CORE_EV_SUBMIT);
	ev->token = (uint64_t)(uintptr_t)s;
	/* Whether a run_at has come says the database, by its own clock: never given out together with the insert. */
	ev->due_in_ns = s->ins.run_at_wall_us ? max_i64(s->due_in_ns, 1) : s->due_in_ns;
	ev->task = s->ins.task;
	ev->at.task = s->ins.task.id;
	ev->spec = s->ins.spec;
}

void engine_cancelled(struct engine *e, const struct store_cancel *op)
{
	if (op->op.result != STORE_OK)
		return;
	if (op->ret_verdict == STORE_CANCEL_DONE) {
		e->stats.tasks_ended[STORE_CANCELLED]++;
		engine_event(e, CORE_EV_GONE)->at.task = op->id;
		engine_news(e, &op->id, false);
	} else if (op->ret_verdict == STORE_CANCEL_WISH) {
		engine_event(e, CORE_EV_CANCEL_WISH)->at = op->ret_at;
		engine_news(e, &op->id, false);
	}
}

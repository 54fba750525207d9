/* TAKE_BACK: RUNNING to PENDING, or to its end, where attempt and session still hold.  A lost or recalled
 * attempt stays open: its worker's name goes into the ready row. */
#include "server/store/sqlite/sq_rows.h"

void sq_take_back_run(struct sq_ctx *x, struct store_op *op)
{
	struct store_take_back *o = container_of(op, struct store_take_back, op);
	struct sq_running r;
	o->ret_verdict = CORE_TAKE_BACK_FENCED;
	if (!sq_running_get(&x->db, &o->at.task, &r) || r.core.task.attempt != o->at.attempt || r.session != o->session)
		return;
	bool lost = o->cause == CORE_CAUSE_WORKER_LOST || (o->cause == CORE_CAUSE_NOT_LISTED && o->counted);
	bool opens = o->cause == CORE_CAUSE_WORKER_LOST || o->cause == CORE_CAUSE_RECALLED;
	enum store_outcome outcome = lost				   ? STORE_WORKER_LOST
				     : o->cause == CORE_CAUSE_REFUSED ? STORE_NOT_TAKEN
								      : STORE_GIVEN_BACK;
	enum store_state state = sq_give_back(x, &r, outcome, o->counted, opens, o->lost_limit, o->words);
	if (state != STORE_PENDING) {
		o->ret_verdict = CORE_TAKE_BACK_ENDED;
		return;
	}
	o->ret_verdict = CORE_TAKE_BACK_PENDING;
	o->ret_task = r.core.task;
	free(o->ret_texts);
	o->ret_texts = store_texts(&o->ret_task);
}

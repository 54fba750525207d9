/* The steps of a search: which rows next, how many to look at, and when it ends. */
#include "server/rpc/search.h"


#include "common/loop/loop.h"

#define SEARCH_NS NS_PER_S
#define SCAN_FIRST 200
#define SCAN_MAX 20000
#define STEP_BYTES (3 * 1024 * 1024)

static void step(struct search *s);

static void finish(struct search *s, const struct store_op *failed)
{
	rpc_read_end(s->rpc, &s->large); /* another begins when this one is answered */
	s->done(s, failed);
}

static void on_step(struct store_op *op)
{
	struct search *s = container_of(op, struct search, step.op);
	struct store_list *o = &s->step;
	if (op->result != STORE_OK || !s->call) {
		finish(s, op->result != STORE_OK ? op : NULL);
		return;
	}
	size_t took = o->ret_n ? s->take(s, o->ret_tasks, o->ret_n) : 0;
	bool cut = took < o->ret_n;
	s->got += (int32_t)took;
	s->more = cut || o->ret_more;
	if (cut && took > 0)
		s->last = o->ret_tasks[took - 1].core.id;
	else if (!cut && o->ret_more)
		s->last = o->ret_last;
	s->after |= took > 0 || !cut;
	int32_t scan = o->scan;
	store_op_done_fields(op);
	if (cut || !s->more || s->got >= s->want || loop_now_mono_ns(s->rpc->loop) >= s->until_mono_ns) {
		finish(s, NULL);
		return;
	}
	o->scan = min_i64(SCAN_MAX, (int64_t)scan * 4);
	step(s);
}

static void step(struct search *s)
{
	struct store_list *o = &s->step;
	int32_t scan = o->scan;
	bool wide = o->wide;
	*o = (struct store_list){
		.op = { .kind = STORE_LIST, .done = on_step },
		.after = s->after,
		.after_id = s->last,
		.limit = s->want - s->got,
		.scan = scan,
		.full = s->full,
		.bare = s->bare,
		.max_bytes = STEP_BYTES,
		.wide = wide,
	};
	filter_apply(&s->filter, o);
	if (s->only_owner)
		o->owner = s->only_owner;
	rpc_store_begin(s->call, false);
	store_submit(engine_store(s->rpc->engine), &o->op);
}

static void begin(struct rpc_read *r)
{
	struct search *s = container_of(r, struct search, large);
	s->until_mono_ns = loop_now_mono_ns(s->rpc->loop) + SEARCH_NS;
	step(s);
}

void search_begin(struct search *s)
{
	s->got = 0;
	s->step = (struct store_list){ .scan = max_i64(SCAN_FIRST, 2 * (int64_t)s->want) };
	s->large = (struct rpc_read){ .kind = RPC_READ_SEARCH, .begin = begin };
	rpc_store_begin(s->call, false);
	rpc_read_begin(s->rpc, &s->large, s->call);
}

bool search_cancel(struct search *s)
{
	return rpc_read_cancel(s->rpc, &s->large);
}

void search_done(struct search *s)
{
	s->step.op.kind = STORE_LIST;
	store_op_done_fields(&s->step.op);
	filter_done(&s->filter);
}

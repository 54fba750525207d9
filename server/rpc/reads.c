/* Owns the order in which large reads begin: as they came, but for those whose connection is not ready for an answer. */
#include "server/rpc/reads.h"

#include "server/rpc/rpc.h"

#define WEIGHT_MAX 32
#define LOOKS_MAX 256 /* in a turn; who was looked at and can't begin goes to the end */
#define AGAIN_NS (10 * NS_PER_MS)

static bool is_full(const struct rpc_reads *q, const struct rpc_read *r) { return q->weight && q->weight + r->weight > WEIGHT_MAX; }

static bool answer_would_wait(const struct rpc_reads *q, const struct rpc_read *r)
{
	int64_t max = q->rpc->limits.buffer_bytes;
	return grpc_call_backed_up(r->call) || (max > 0 && buf_held_bytes() > max);
}

static void begin(struct rpc_reads *q, struct rpc_read *r)
{
	r->begun = true;
	q->weight += r->weight;
	r->begin(r);
}

static void wait(struct rpc_reads *q, struct rpc_read *r)
{
	list_push_back(&q->waiting, &r->node);
	q->n_waiting++;
}

static struct rpc_read *next(struct rpc_reads *q)
{
	struct list *it = list_pop_front(&q->waiting);
	q->n_waiting--;
	return container_of(it, struct rpc_read, node);
}

static void run(struct rpc_reads *q)
{
	int looks = q->n_waiting < LOOKS_MAX ? q->n_waiting : LOOKS_MAX;
	while (looks-- > 0 && !list_empty(&q->waiting)) {
		if (is_full(q, container_of(q->waiting.next, struct rpc_read, node)))
			return; /* the end of one comes back here */
		struct rpc_read *r = next(q);
		if (answer_would_wait(q, r))
			wait(q, r);
		else
			begin(q, r);
	}
	if (q->n_waiting)
		loop_timer_set(&q->timer, loop_now_mono_ns(q->rpc->loop) + AGAIN_NS);
}

static void on_dirty(struct loop_dirty *d) { run(container_of(d, struct rpc_reads, dirty)); }
static void on_timer(struct loop_timer *t) { run(container_of(t, struct rpc_reads, timer)); }

void reads_init(struct rpc *rpc)
{
	struct rpc_reads *q = &rpc->reads;
	*q = (struct rpc_reads){ .rpc = rpc };
	list_init(&q->waiting);
	loop_dirty_init(&q->dirty, LOOP_WORK, on_dirty);
	loop_timer_init(&q->timer, rpc->loop, on_timer);
}

void reads_done(struct rpc *rpc)
{
	loop_unmark(&rpc->reads.dirty);
	loop_timer_stop(&rpc->reads.timer);
}

void rpc_read_begin(struct rpc *rpc, struct rpc_read *r, struct grpc_call *call)
{
	struct rpc_reads *q = &rpc->reads;
	r->call = call;
	list_init(&r->node);
	if (!q->n_waiting && !is_full(q, r) && !answer_would_wait(q, r)) {
		begin(q, r);
		return;
	}
	wait(q, r);
	loop_mark(rpc->loop, &q->dirty);
}

bool rpc_read_cancel(struct rpc *rpc, struct rpc_read *r)
{
	if (r->begun || !r->node.next || list_empty(&r->node))
		return false;
	list_remove(&r->node);
	rpc->reads.n_waiting--;
	return true;
}

void rpc_read_end(struct rpc *rpc, struct rpc_read *r)
{
	if (!r->begun)
		return;
	r->begun = false;
	rpc->reads.weight -= r->weight;
	if (rpc->reads.n_waiting)
		loop_mark(rpc->loop, &rpc->reads.dirty);
}

/* Owns the order in which large reads begin, of each kind by itself: one of each connection in turn, those of a connection as they
 * came.  A connection that is not ready for an answer is passed over. */
#include "server/rpc/reads.h"

#include "server/rpc/rpc.h"

#define LOOKS_MAX 256 /* in a turn, at connections that are not ready */
#define AGAIN_NS (10 * NS_PER_MS)

static const int at_a_time[RPC_READ_KINDS] = { [RPC_READ_ONE] = 32, [RPC_READ_SEARCH] = 8 };

static struct reads_lane *lane_of(struct rpc *rpc, const struct rpc_read *r) { return &rpc->reads.lanes[r->kind]; }
static bool is_full(const struct reads_lane *l, enum rpc_read_kind kind) { return l->n_begun >= at_a_time[kind]; }

static bool answer_would_wait(const struct rpc *rpc, const struct rpc_read *r)
{
	int64_t max = rpc->limits.buffer_bytes;
	return grpc_call_backed_up(r->call) || (max > 0 && buf_held_bytes() > max);
}

static void begin(struct reads_lane *l, struct rpc_read *r)
{
	r->is = READ_BEGUN;
	l->n_begun++;
	r->begin(r);
}

static void make_first(struct reads_lane *l, struct rpc_read *r)
{
	r->is = READ_FIRST;
	map_put(&l->first, &r->first, &r->connection, sizeof(r->connection));
	list_push_back(&l->next, &r->node);
}

static void wait(struct reads_lane *l, struct rpc_read *r)
{
	struct map_node *first = map_get(&l->first, &r->connection, sizeof(r->connection));
	if (!first) {
		make_first(l, r);
		return;
	}
	r->is = READ_BEHIND;
	list_push_back(&container_of(first, struct rpc_read, first)->behind, &r->node);
}

/* Its connection's next one is the last in turn. */
static void leave(struct reads_lane *l, struct rpc_read *r)
{
	list_remove(&r->node);
	if (r->is == READ_FIRST) {
		map_remove(&l->first, &r->first);
		if (!list_empty(&r->behind)) {
			struct rpc_read *heir = container_of(list_pop_front(&r->behind), struct rpc_read, node);
			list_splice_back(&heir->behind, &r->behind);
			make_first(l, heir);
		}
	}
	r->is = READ_NOWHERE;
}

/* True: somebody waits for an answer's room, which nobody tells of. */
static bool run_lane(struct rpc *rpc, enum rpc_read_kind kind)
{
	struct reads_lane *l = &rpc->reads.lanes[kind];
	size_t looks = min_sz(l->first.len, LOOKS_MAX);
	while (looks > 0 && !list_empty(&l->next)) {
		if (is_full(l, kind))
			return false; /* the end of one comes back here */
		struct rpc_read *r = container_of(l->next.next, struct rpc_read, node);
		if (answer_would_wait(rpc, r)) {
			list_remove(&r->node);
			list_push_back(&l->next, &r->node);
			looks--;
		} else {
			leave(l, r);
			begin(l, r);
		}
	}
	return !list_empty(&l->next);
}

static void run(struct rpc_reads *q)
{
	bool again = false;
	for (int kind = 0; kind < RPC_READ_KINDS; kind++)
		again |= run_lane(q->rpc, (enum rpc_read_kind)kind);
	if (again)
		loop_timer_set(&q->timer, loop_now_mono_ns(q->rpc->loop) + AGAIN_NS);
}

static void on_dirty(struct loop_dirty *d) { run(container_of(d, struct rpc_reads, dirty)); }
static void on_timer(struct loop_timer *t) { run(container_of(t, struct rpc_reads, timer)); }

void reads_init(struct rpc *rpc)
{
	struct rpc_reads *q = &rpc->reads;
	*q = (struct rpc_reads){ .rpc = rpc };
	for (int kind = 0; kind < RPC_READ_KINDS; kind++) {
		list_init(&q->lanes[kind].next);
		map_init(&q->lanes[kind].first);
	}
	loop_dirty_init(&q->dirty, LOOP_WORK, on_dirty);
	loop_timer_init(&q->timer, rpc->loop, on_timer);
}

void reads_done(struct rpc *rpc)
{
	loop_unmark(&rpc->reads.dirty);
	loop_timer_stop(&rpc->reads.timer);
	for (int kind = 0; kind < RPC_READ_KINDS; kind++)
		map_done(&rpc->reads.lanes[kind].first);
}

void rpc_read_begin(struct rpc *rpc, struct rpc_read *r, struct grpc_call *call)
{
	struct reads_lane *l = lane_of(rpc, r);
	r->call = call;
	r->connection = grpc_call_connection(call);
	list_init(&r->node);
	list_init(&r->behind);
	if (list_empty(&l->next) && !is_full(l, r->kind) && !answer_would_wait(rpc, r)) {
		begin(l, r);
		return;
	}
	wait(l, r);
	loop_mark(rpc->loop, &rpc->reads.dirty);
}

bool rpc_read_cancel(struct rpc *rpc, struct rpc_read *r)
{
	if (r->is != READ_FIRST && r->is != READ_BEHIND)
		return false;
	leave(lane_of(rpc, r), r);
	return true;
}

void rpc_read_end(struct rpc *rpc, struct rpc_read *r)
{
	struct reads_lane *l = lane_of(rpc, r);
	if (r->is != READ_BEGUN)
		return;
	r->is = READ_NOWHERE;
	l->n_begun--;
	if (!list_empty(&l->next))
		loop_mark(rpc->loop, &rpc->reads.dirty);
}

/* Reads whose answers are large, or which look at many tasks: a task, a page of tasks or points, a search.  A connection may have a
 * thousand calls, each with an answer of megabytes, and who asks need not take them.  So only so many are read at a time, and none
 * for a connection on which answers wait for their reader: the others wait here, as nothing but their requests, and the loop has
 * other work between them.  Connections take turns, and searches, which may take a second each, keep nobody from a task. */
#ifndef REINS_RPC_READS_H
#define REINS_RPC_READS_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/loop/loop.h"

struct rpc;
struct grpc_call;

enum rpc_read_kind {
	RPC_READ_ONE,    /* a task, or points of one: 4 MiB at most, seldom more than some KiB */
	RPC_READ_SEARCH, /* a page of tasks, or of their ids */
	RPC_READ_KINDS
};

struct rpc_reads {
	struct rpc *rpc;
	struct reads_lane {
		struct list next; /* struct rpc_read: of each connection that waits its first */
		struct map first; /* the same, by connection */
		int n_begun;
	} lanes[RPC_READ_KINDS];
	struct loop_dirty dirty;
	struct loop_timer timer;
};
void reads_init(struct rpc *rpc);
void reads_done(struct rpc *rpc);

struct rpc_read {
	enum rpc_read_kind kind;
	void (*begin)(struct rpc_read *r); /* asks the store */
	/* private */
	struct grpc_call *call;
	const void *connection;
	struct list node;      /* of the lane, or behind the first one of its connection */
	struct list behind;    /* of a first one */
	struct map_node first;
	enum { READ_NOWHERE, READ_FIRST, READ_BEHIND, READ_BEGUN } is;
};
/* `begin` is called now or later. */
void rpc_read_begin(struct rpc *rpc, struct rpc_read *r, struct grpc_call *call);
/* Its call is over. True: it had not begun, and never will. */
bool rpc_read_cancel(struct rpc *rpc, struct rpc_read *r);
/* What was read is answered, or given up. Idempotent; also of one that never began. */
void rpc_read_end(struct rpc *rpc, struct rpc_read *r);

#endif

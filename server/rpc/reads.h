/* Reads whose answers are large: a task, a page of tasks or points.  A connection may have a thousand calls, each with an answer
 * of megabytes, and who asks need not take them.  So only so many are read at a time, and none for a connection on which answers
 * wait for their reader: the others wait here, as nothing but their requests, and the loop has other work between them. */
#ifndef REINS_RPC_READS_H
#define REINS_RPC_READS_H

#include "common/base/list.h"
#include "common/loop/loop.h"

struct rpc;
struct grpc_call;

struct rpc_reads {
	struct rpc *rpc;
	struct list waiting; /* struct rpc_read */
	int n_waiting;
	int weight; /* of those that have begun */
	struct loop_dirty dirty;
	struct loop_timer timer;
};
void reads_init(struct rpc *rpc);
void reads_done(struct rpc *rpc);

#define READ_WEIGHT_TASK 1 /* 4 MiB at most, seldom more than some KiB */
#define READ_WEIGHT_PAGE 4
struct rpc_read {
	int weight;
	void (*begin)(struct rpc_read *r); /* asks the store */
	/* private */
	struct list node;
	struct grpc_call *call;
	bool begun;
};
/* `begin` is called now or later. */
void rpc_read_begin(struct rpc *rpc, struct rpc_read *r, struct grpc_call *call);
/* Its call is over. True: it had not begun, and never will. */
bool rpc_read_cancel(struct rpc *rpc, struct rpc_read *r);
/* What was read is answered, or given up. Idempotent; also of one that never began. */
void rpc_read_end(struct rpc *rpc, struct rpc_read *r);

#endif

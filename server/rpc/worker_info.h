/* A worker as people see it. */
#ifndef REINS_RPC_WORKER_INFO_H
#define REINS_RPC_WORKER_INFO_H

#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/worker_service.pb-c.h"
#include "server/rpc/rpc.h"

/* What of Hello is kept in the store to be shown: an encoded WorkerInfo.  Lists that are very long are cut.  NULL without
 * memory. */
struct blob *worker_info_of_hello(const Reins__V1__Hello *m) MUST_CHECK;

/* The row, and what this master has in memory if it is the one that holds the worker.  For pb_free; NULL without memory. */
Reins__V1__WorkerInfo *worker_info_make(struct rpc *rpc, const struct store_worker *row) MUST_CHECK;

/* Appends to the text why the worker of this stream takes nothing; nothing where it is not known. */
void worker_info_why(struct rpc *rpc, uint64_t peer, char *text, size_t cap);

#endif

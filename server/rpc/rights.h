/* The timer behind rpc_check_rights, and the right to work. */
#ifndef REINS_RPC_RIGHTS_H
#define REINS_RPC_RIGHTS_H

#include "server/rpc/rpc.h"

void rights_init(struct rpc *rpc);
void rights_done(struct rpc *rpc);
/* Whether the caller of a worker's stream may work under this id and, of these queues (none: all), for each.  Else what is
 * wrong, in words. */
bool rights_to_work(const struct grpc_call *call, const char *worker, char *const *queues, size_t n_queues, char *ret_text,
		    size_t cap) MUST_CHECK;

#endif

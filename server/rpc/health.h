/* grpc.health.v1: Check, and the streams of Watch. */
#ifndef REINS_HEALTH_H
#define REINS_HEALTH_H

#include "common/base/list.h"
#include "common/loop/loop.h"

struct rpc;

struct health {
	struct rpc *rpc;
	struct list watches; /* struct watch */
	int64_t n;
	struct loop_dirty dirty;
};

void health_init(struct rpc *rpc);
void health_done(struct rpc *rpc);
/* The master stops: watchers are told NOT_SERVING, then their streams end. */
void health_drain(struct rpc *rpc);

#endif

/* What probes and monitoring ask over HTTP/1.1: /healthz, /readyz and /metrics.
 *
 *   /healthz  200 while the loop turns
 *   /readyz   200 when tasks are taken: the store is there and this master has its incarnation in it; else 503.  The body says
 *             in words what is wrong.  Without the lease table it stays 200, and says "degraded"
 *   /metrics  where callers must be known (server/auth): for readers, operators and admins.  Prometheus' text format; the same text for all who ask within MONITOR_FRESH_NS, so that asking often costs little */
#ifndef REINS_MONITOR_H
#define REINS_MONITOR_H

#include "common/grpc/server.h"
#include "common/http1/http1.h"
#include "server/monitor/counts.h"
#include "server/rpc/rpc.h"

#define MONITOR_FRESH_NS (100 * NS_PER_MS)

struct monitor {
	struct rpc *rpc;
	struct lease *lease;
	struct grpc_server *grpc;
	struct http1_server *http1;
	bool open_metrics; /* for who is not known, too */
	int64_t body_limit; /* as the gRPC server has it */
	/* private */
	struct buf text; /* of /metrics */
	struct counts counts;
	int64_t text_mono_ns;
};

extern const struct http1_route monitor_routes[]; /* app: the monitor */
extern const size_t monitor_n_routes;

/* Of so many queues /metrics says how many tasks they have (counts.h). */
void monitor_init(struct monitor *m, size_t max_queues);
/* After store_free. */
void monitor_done(struct monitor *m);
/* -ENOBUFS: the text does not fit, or no memory; then it is not whole. */
int monitor_metrics(struct monitor *m, struct buf *out) MUST_CHECK;

#endif

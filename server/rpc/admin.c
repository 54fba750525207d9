/* GetServerInfo: what people ask about the master itself. */
#include <errno.h>

#include "common/base/clock.h"
#include "common/pb/pb.h"
#include "reins/v1/admin_service.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/core/core_view.h"

#define REPLY_MAX (4 * 1024 * 1024)

static void reply_message(struct grpc_call *call, const void *message)
{
	struct buf b;
	buf_init(&b, REPLY_MAX);
	if (pb_pack(message, &b))
		rpc_refuse_room(call, "no room for the reply");
	else
		rpc_reply(call, &b);
	buf_done(&b);
}

void info_on_request(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct rpc *rpc = rpc_of(call);
	const struct core_config *cfg = engine_core_config(rpc->engine);
	struct core_counts counts;
	core_counts(engine_core(rpc->engine), &counts);

	Google__Protobuf__Timestamp started, now;
	Google__Protobuf__Duration heartbeat, lease;
	pb_timestamp_set(&started, rpc->started_wall_us);
	pb_timestamp_set(&now, clock_wall_us());
	pb_duration_set(&heartbeat, cfg->heartbeat_ns);
	pb_duration_set(&lease, cfg->lease_ttl_ns);
	Reins__V1__ServerLimits limits = REINS__V1__SERVER_LIMITS__INIT;
	limits.message_bytes = rpc->limits.message_bytes;
	limits.payload_bytes = rpc->limits.payload_bytes;
	limits.result_bytes = rpc->limits.result_bytes;
	limits.error_bytes = rpc->limits.error_bytes;
	limits.command_env_bytes = rpc->limits.command_env_bytes;
	limits.params_bytes = rpc->limits.params_bytes;
	limits.labels = RPC_LABELS_MAX;
	limits.label_key_bytes = RPC_LABEL_KEY_MAX;
	limits.label_value_bytes = RPC_LABEL_VALUE_MAX;
	limits.name_bytes = RPC_NAME_MAX;
	limits.queues = cfg->max_queues;
	limits.workers = cfg->max_workers;
	limits.tasks_per_submit = rpc->limits.tasks_per_submit;
	limits.log_bytes = rpc->limits.log_bytes;
	limits.metrics_points = rpc->limits.metrics_points;
	Reins__V1__ServerInfo m = REINS__V1__SERVER_INFO__INIT;
	m.version = (char *)(uintptr_t)REINS_VERSION;
	m.master_id = (char *)(uintptr_t)engine_master_id(rpc->engine);
	m.incarnation = engine_incarnation(rpc->engine);
	m.started_at = &started;
	m.now = &now;
	m.store_kind = (char *)(uintptr_t)rpc->store_kind;
	m.lease_kind = (char *)(uintptr_t)rpc->lease_kind;
	m.store_id = (char *)(uintptr_t)engine_store_id(rpc->engine);
	m.store = engine_ready(rpc->engine) ? REINS__V1__SERVER_INFO__HEALTH__UP : REINS__V1__SERVER_INFO__HEALTH__DOWN;
	m.store_error = engine_ready(rpc->engine) ? m.store_error : (char *)(uintptr_t)engine_not_ready(rpc->engine);
	m.lease = engine_lease_up(rpc->engine) ? REINS__V1__SERVER_INFO__HEALTH__UP : REINS__V1__SERVER_INFO__HEALTH__DOWN;
	m.workers_connected = counts.connected;
	m.attempts_running = counts.running;
	m.limits = &limits;
	m.heartbeat_interval = &heartbeat;
	m.lease_ttl = &lease;
	reply_message(call, &m);
}

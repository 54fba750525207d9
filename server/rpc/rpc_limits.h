/* What a client may ask for, as far as it can be set.  GetServerInfo tells it to clients. */
#ifndef REINS_RPC_LIMITS_H
#define REINS_RPC_LIMITS_H

#include "common/base/base.h"

struct rpc_limits {
	int64_t message_bytes;     /* 4 MiB */
	int64_t payload_bytes;     /* 1 MiB */
	int64_t result_bytes;      /* 1 MiB */
	int64_t error_bytes;       /* 16 KiB */
	int64_t command_env_bytes; /* 256 KiB */
	int64_t params_bytes;      /* 64 KiB */
	int64_t log_bytes;         /* 64 MiB per attempt */
	int64_t metrics_points;    /* 100,000 per attempt */
	int64_t max_watchers;      /* streams of WatchTasks at a time */
	int64_t watch_patience_ns; /* that one may take nothing for, while there is more */
	int64_t tasks_per_submit;  /* 10,000 */
	int64_t held_bytes;        /* what all workers' logs, metrics and outcomes may hold while they wait for the store; 0: no limit */
	int64_t buffer_bytes;      /* of all buffers: beyond it no large answer is begun; 0: no limit */
};

#define RPC_NAME_MAX 255
#define RPC_LABELS_MAX 64
#define RPC_LABEL_KEY_MAX 63
#define RPC_LABEL_VALUE_MAX 255
#define RPC_LOG_CHUNK_MAX (64 * 1024)
#define RPC_METRICS_POINTS_MAX 1000 /* in one message */
#define RPC_METRIC_VALUES_MAX 64

#endif

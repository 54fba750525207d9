/* The settings of reinsd. */
#ifndef REINS_SERVER_CONFIG_H
#define REINS_SERVER_CONFIG_H

#include "common/settings/settings.h"

struct server_config {
	struct setting_list listen, cors_origins, hosts;
	char *store, *move_from, *lease, *redis_prefix, *master_id;
	char *tls_cert, *tls_key, *client_ca, *tokens_file, *audit_log;
	bool insecure, ignore_moved, open_reflection, open_metrics, require_both;
	int64_t heartbeat_interval_ns, lease_ttl_ns, task_key_ttl_ns;
	int64_t heartbeat_rate, keepalive_ns, ping_min_ns, conn_age_ns, conn_age_grace_ns, conn_idle_ns;
	int64_t recovery_interval_ns, reconcile_interval_ns, master_ttl_ns, master_ttl_exclusive_ns;
	int64_t accept_timeout_ns, disconnect_grace_ns;
	int64_t lost_limit, redis_timeout_ns;
	int64_t max_message, max_body_bytes, max_payload, max_result, max_error, max_command_env, max_params, max_log, max_log_sum, max_metrics, max_submit;
	int64_t log_retention_ns, event_retention_ns, watch_patience_ns;
	int64_t max_watchers;
	int64_t max_workers, max_queues, metrics_queues, max_connections, max_connections_per_addr, window;
	int64_t store_connections, store_timeout_ns, store_queue, store_queue_bytes, worker_queue_bytes;
	int64_t drain_timeout_ns;
	char *log_level, *log_format;
};

extern const struct settings_program server_settings;

/* What the table can't say: H against L, listeners against certificates. -1 with a sentence. */
int server_config_check(const struct server_config *c, char *ret_err, size_t cap) MUST_CHECK;

/* How many connections and TLS handshakes there is room for with so many file descriptors: the store and Redis must be able to
 * connect anew however many peers there are. */
struct server_room {
	int connections, handshakes; /* the latter of each listener */
};
struct server_room server_config_room(const struct server_config *c, int64_t descriptors);

#endif

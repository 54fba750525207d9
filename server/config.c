#include "server/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/grpc/grpc.h"
#include "common/net/endpoint.h"
#include "server/monitor/counts.h"

#define S(field) offsetof(struct server_config, field)
#define MIB (1024 * 1024)
#define TASK_REST (512 * 1024)

static const struct setting table[] = {
	{ "listen", SETTING_LIST, S(listen), "ADDR", "127.0.0.1:7346", .group = "Network",
	  .help = "Address to serve, clear text (HOST:PORT, unix:PATH) or TLS (tls://HOST:PORT)." },
	{ "tls-cert", SETTING_STRING, S(tls_cert), "FILE", NULL, .help = "Certificate chain for tls:// listeners (PEM)." },
	{ "tls-key", SETTING_STRING, S(tls_key), "FILE", NULL, .help = "Its private key (PEM)." },
	{ "client-ca", SETTING_STRING, S(client_ca), "FILE", NULL,
	  .help = "Clients of tls:// listeners must show a certificate of this authority; with --tokens-file they may." },
	{ "insecure", SETTING_BOOL, S(insecure), NULL, NULL,
	  .help = "Allow clear listeners off loopback, and TLS ones that ask for neither client certificates nor tokens." },
	{ "cors-origin", SETTING_LIST, S(cors_origins), "ORIGIN", NULL, .split = true,
	  .help = "Pages of this origin (https://HOST[:PORT]) may call and read the answers. May be repeated. Default: no other origin's." },
	{ "allow-host", SETTING_LIST, S(hosts), "NAME", NULL, .split = true,
	  .help = "Where callers need not be known: requests over HTTP/1.1 may name this host as well as localhost, this machine's name "
		  "and addresses. May be repeated." },
	{ "max-connections", SETTING_INT, S(max_connections), NULL, "10200", 1, 1000000,
	  .help = "Connections at a time. Fewer if the process may not have so many file descriptors." },
	{ "max-connections-per-address", SETTING_INT, S(max_connections_per_addr), NULL, "0", 0, 1000000,
	  .help = "Connections at a time from one address, TLS handshakes apart; those from loopback are not limited. 0: no limit, as "
		  "behind a proxy or for workers behind one address." },
	{ "keepalive", SETTING_DURATION, S(keepalive_ns), NULL, "30s", 100 * NS_PER_MS, 86400 * NS_PER_S,
	  .help = "After so long without a word from a peer it is sent an HTTP/2 PING; without an answer in the same time, 20s at "
		  "most, its connection ends." },
	{ "min-ping-interval", SETTING_DURATION, S(ping_min_ns), NULL, "10s", 0, 86400 * NS_PER_S,
	  .help = "How often a peer may send a PING itself, with calls or without; the third in a row that is more than a tenth early "
		  "ends its connection, which clients take as too_many_pings. 0: 50 a second." },
	{ "max-connection-age", SETTING_DURATION, S(conn_age_ns), NULL, "0", 0, INT64_C(87600) * 3600 * NS_PER_S,
	  .help = "A connection that is so old, a tenth more or less, takes no new calls, so that clients come back through their "
		  "balancer. 0: none is too old." },
	{ "max-connection-age-grace", SETTING_DURATION, S(conn_age_grace_ns), NULL, "30s", 0, 86400 * NS_PER_S,
	  .help = "So long its calls may go on; then they end with UNAVAILABLE, workers' sessions too: those connect again at once." },
	{ "max-connection-idle", SETTING_DURATION, S(conn_idle_ns), NULL, "10m", 0, 86400 * NS_PER_S,
	  .help = "A connection without a call for so long is closed. 0: none is. One that had no answer yet has 30 s." },
	{ "drain-timeout", SETTING_DURATION, S(drain_timeout_ns), NULL, "30s", 0, 86400 * NS_PER_S,
	  .help = "After SIGTERM: how long calls in flight may take, also those whose answer the client is slow to read." },

	{ "tokens-file", SETTING_STRING, S(tokens_file), "FILE", NULL, .group = "Who may what (docs/security.md)",
	  .help = "Who is known, and their roles; `reins token new` makes lines for it. Read again on SIGHUP. Every call needs a token "
		  "or a certificate then." },
	{ "require-both", SETTING_BOOL, S(require_both), NULL, NULL,
	  .help = "Every call needs a token and a certificate that stands for the same name, and may what both may. Takes --tokens-file, "
		  "--client-ca and tls:// listeners only." },
	{ "open-reflection", SETTING_BOOL, S(open_reflection), NULL, NULL, .help = "Server reflection also for who shows no token." },
	{ "open-metrics", SETTING_BOOL, S(open_metrics), NULL, NULL, .help = "/metrics also for who shows no token; else it takes a reader." },
	{ "audit-log", SETTING_STRING, S(audit_log), "FILE", NULL,
	  .help = "A JSON line there for each call that changes something; opened anew on SIGHUP. Without it they go to the log, once "
		  "tokens or certificates are asked for." },

	{ "store", SETTING_STRING, S(store), "URL", "sqlite:reins.db", .group = "Store and lease table",
	  .help = "Where tasks live: sqlite:PATH for one machine, or postgres://USER@HOST:PORT/DATABASE." },
	{ "move-from", SETTING_STRING, S(move_from), "URL", NULL,
	  .help = "Move all tasks from this store (sqlite:PATH) into the empty one of --store, then exit. No master may use either." },
	{ "ignore-moved", SETTING_BOOL, S(ignore_moved), NULL, NULL,
	  .help = "Start on a file although its tasks were moved to another store, and take that mark away: for going back. "
		  "A master on the other store must not be started any more." },
	{ "store-connections", SETTING_INT, S(store_connections), NULL, "3", 2, 32, .help = "Connections to Postgres." },
	{ "store-timeout", SETTING_DURATION, S(store_timeout_ns), NULL, "10s", 100 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "Longest that Postgres may take for a statement; after half as long again without an answer a connection is "
		  "given up, and a client's call without a deadline ends with UNAVAILABLE after twice as long." },
	{ "store-queue", SETTING_INT, S(store_queue), NULL, "200000", 100, 100000000,
	  .help = "Operations that may wait for the store; over it clients are told UNAVAILABLE, and workers keep what they have." },
	{ "store-queue-bytes", SETTING_SIZE, S(store_queue_bytes), NULL, "512MiB", 16 * MIB, INT64_C(1) << 40,
	  .help = "What these may hold in memory." },
	{ "worker-queue-bytes", SETTING_SIZE, S(worker_queue_bytes), NULL, "1GiB", MIB, INT64_C(1) << 40,
	  .help = "What logs, metrics and outcomes of all workers may hold in memory while they wait for the store; of many workers each "
		  "may have less on the way." },
	{ "lease", SETTING_STRING, S(lease), "URL", "memory",
	  .help = "Where leases and owners are shown: redis://HOST:PORT/DB, or memory for one master." },
	{ "redis-prefix", SETTING_STRING, S(redis_prefix), "TEXT", "reins:",
	  .help = "Before every key in Redis. Of one store only: keys without a row in it are deleted." },
	{ "redis-timeout", SETTING_DURATION, S(redis_timeout_ns), NULL, "50ms", NS_PER_MS, 60 * NS_PER_S,
	  .help = "After this long without an answer Redis counts as down and work goes on without it." },
	{ "task-key-ttl", SETTING_DURATION, S(task_key_ttl_ns), NULL, "120s", NS_PER_S, 86400 * NS_PER_S,
	  .help = "TTL of worker:{id}:task and task:{id}:workerId in Redis." },

	{ "master-id", SETTING_STRING, S(master_id), "NAME", NULL, .group = "Scheduling",
	  .help = "Name of this master, stable over restarts and different for each. Default: the host's name." },
	{ "heartbeat-interval", SETTING_DURATION, S(heartbeat_interval_ns), NULL, "2s", 10 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "How often a worker says that it is alive. At most a third of lease-ttl." },
	{ "lease-ttl", SETTING_DURATION, S(lease_ttl_ns), NULL, "10s", 100 * NS_PER_MS, 86400 * NS_PER_S,
	  .help = "A worker counts as lost this long after its last heartbeat." },
	{ "heartbeat-rate", SETTING_INT, S(heartbeat_rate), NULL, "1000", 0, 1000000,
	  .help = "Heartbeats a second that this master is to get: new sessions beyond are given a longer heartbeat-interval and "
		  "lease-ttl, by the same factor (10000 workers: 5). 0: no limit." },
	{ "accept-timeout", SETTING_DURATION, S(accept_timeout_ns), NULL, "5s", 10 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "A dispatch that is not accepted by then is recalled." },
	{ "disconnect-grace", SETTING_DURATION, S(disconnect_grace_ns), NULL, "1s", 0, 3600 * NS_PER_S,
	  .help = "How long tasks of an in-process worker outlive its stream." },
	{ "recovery-interval", SETTING_DURATION, S(recovery_interval_ns), NULL, "5s", 100 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "RunningTaskRecovery: how often running rows, sessions and keys are compared." },
	{ "reconcile-interval", SETTING_DURATION, S(reconcile_interval_ns), NULL, "2s", 100 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "PendingTaskReconciler: how often pending rows are looked for that nobody told us of." },
	{ "master-ttl", SETTING_DURATION, S(master_ttl_ns), NULL, "30s", NS_PER_S, 86400 * NS_PER_S,
	  .help = "A master that shows no life in the store for this long has its workers' tasks judged by others, a lease later. "
		  "At least twice heartbeat-interval." },
	{ "master-ttl-exclusive", SETTING_DURATION, S(master_ttl_exclusive_ns), NULL, "120s", NS_PER_S, 86400 * NS_PER_S,
	  .help = "The same for exclusive tasks. A master that can't write to the store stops renewing their leases after 0.9 of it. "
		  "At least master-ttl." },
	{ "lost-limit", SETTING_INT, S(lost_limit), NULL, "3", 1, 1000,
	  .help = "The loss of a worker with this number makes the task FAILED." },
	{ "window", SETTING_INT, S(window), NULL, "20000", 100, 10000000, .help = "Ready tasks kept in memory, over all queues." },

	{ "max-message", SETTING_SIZE, S(max_message), NULL, "4MiB", 64 * 1024, GRPC_MESSAGE_MAX, .group = "Limits",
	  .help = "Largest message." },
	{ "max-body-bytes", SETTING_SIZE, S(max_body_bytes), NULL, "256MiB", MIB, INT64_C(1) << 40,
	  .help = "What requests that have not come whole may hold, over all connections; over it the one is refused whose rest was waited "
		  "for the longest. Workers' streams have as much for themselves. At least max-message." },
	{ "max-payload", SETTING_SIZE, S(max_payload), NULL, "1MiB", 0, GRPC_MESSAGE_MAX, .help = "Largest payload of a task." },
	{ "max-result", SETTING_SIZE, S(max_result), NULL, "1MiB", 0, GRPC_MESSAGE_MAX, .help = "Largest result." },
	{ "max-error", SETTING_SIZE, S(max_error), NULL, "16KiB", 256, 16 * 1024, .help = "Error text that is kept." },
	{ "max-command-env", SETTING_SIZE, S(max_command_env), NULL, "256KiB", 1024, MIB,
	  .help = "command and env of a task together." },
	{ "max-params", SETTING_SIZE, S(max_params), NULL, "64KiB", 0, MIB, .help = "params of a task." },
	{ "max-log", SETTING_SIZE, S(max_log), NULL, "64MiB", 64 * 1024, INT64_C(1) << 40, .help = "Log kept of an attempt." },
	{ "max-log-sum", SETTING_SIZE, S(max_log_sum), NULL, "10GiB", 64 * 1024 * 1024, INT64_C(1) << 50,
	  .help = "Logs of all tasks in a sqlite: store; the oldest ended tasks' logs make room." },
	{ "log-retention", SETTING_DURATION, S(log_retention_ns), NULL, "30d", 0, INT64_C(87600) * 3600 * NS_PER_S,
	  .help = "Logs and metrics in a postgres:// store are dropped this long after their tasks' week of submission ended, but no week's "
		  "while a task of it runs. 0: never." },
	{ "event-retention", SETTING_DURATION, S(event_retention_ns), NULL, "1h", 60 * NS_PER_S, 8760 * 3600 * NS_PER_S,
	  .help = "Who watches tasks can go on after so long; sooner if very much has happened since (some 500,000 transactions)." },
	{ "max-watchers", SETTING_INT, S(max_watchers), NULL, "1000", 1, 100000, .help = "Streams of WatchTasks at a time." },
	{ "watch-patience", SETTING_DURATION, S(watch_patience_ns), NULL, "10s", 10 * NS_PER_MS, 3600 * NS_PER_S,
	  .help = "A stream of WatchTasks that takes nothing for so long while events wait for it is ended; it may go on from its "
		  "last cursor." },
	{ "max-metrics", SETTING_INT, S(max_metrics), NULL, "100000", 0, INT64_C(1) << 40, .help = "Points of metrics kept of an attempt." },
	{ "max-submit", SETTING_INT, S(max_submit), NULL, "10000", 1, 10000, .help = "Tasks of one SubmitTasks." },
	{ "max-workers", SETTING_INT, S(max_workers), NULL, "10000", 1, 1000000, .help = "Workers at a time." },
	{ "max-queues", SETTING_INT, S(max_queues), NULL, "10000", 1, 1000000, .help = "Queues." },
	{ "metrics-queues", SETTING_INT, S(metrics_queues), NULL, "100", 0, COUNTS_QUEUES_MAX,
	  .help = "Queues whose tasks /metrics counts one by one, the first by name; the others are summed. 0: no tasks are counted." },

	{ "log-level", SETTING_STRING, S(log_level), "LEVEL", "info", .group = "Logging",
	  .help = "debug, info, warn or error." },
	{ "log-format", SETTING_STRING, S(log_format), "FORMAT", "text", .help = "text or json." },
};

const struct settings_program server_settings = {
	.name = "reinsd",
	.summary = "reinsd is the master of Reins: it takes tasks over gRPC and as JSON, keeps them in the store and\n"
		   "dispatches them to workers. It makes and upgrades its schema by itself.",
	.usage = "reinsd [flags]",
	.examples = "For example:\n"
		    "  reinsd                       for this machine alone, tasks in ./reins.db\n"
		    "                               (`reins dev` starts a worker with it)\n"
		    "  reinsd --store postgres://reins@db/reins --lease redis://cache:6379\n"
		    "  reinsd --listen tls://0.0.0.0:7346 --tls-cert server.pem \\\n"
		    "         --tls-key server-key.pem --client-ca ca.pem     (files of deploy/tls)\n",
	.table = table,
	.n = ARRAY_LEN(table),
	.env = true,
};

static int check_listener(const struct server_config *c, const char *text, char *err, size_t cap)
{
	struct endpoint e;
	char why[160];
	if (endpoint_parse(text, 7346, &e, why, sizeof(why))) {
		snprintf(err, cap, "listen: %s: %s", text, why);
		return -1;
	}
	if (e.tls && (!c->tls_cert || !c->tls_key)) {
		snprintf(err, cap, "listen: %s needs --tls-cert and --tls-key", text);
		return -1;
	}
	if (c->require_both && !e.tls) {
		snprintf(err, cap, "listen: %s is clear text, where nobody can show the certificate that --require-both wants", text);
		return -1;
	}
	if (c->insecure)
		return 0;
	if (!e.tls && !endpoint_is_loopback(&e)) {
		snprintf(err, cap, "listen: %s is clear text and not on loopback: %s. Use tls://, or say --insecure", text,
			 c->tokens_file ? "whoever is on the way can read the tokens"
					: "anybody who reaches it may run programs on your workers");
		return -1;
	}
	if (e.tls && !c->client_ca && !c->tokens_file) {
		snprintf(err, cap, "listen: %s would let anybody in: give --tokens-file or --client-ca, or say --insecure", text);
		return -1;
	}
	return 0;
}

static int check_origin(const char *text, char *err, size_t cap)
{
	size_t scheme = strncmp(text, "https://", 8) == 0 ? 8 : strncmp(text, "http://", 7) == 0 ? 7 : 0;
	if (scheme && text[scheme] && !strpbrk(text + scheme, "/?#*, \t"))
		return 0;
	snprintf(err, cap, "cors-origin: \"%s\" is no origin: http://HOST or https://HOST, with :PORT where it is not the usual one, and "
		 "nothing behind it", text);
	return -1;
}

int server_config_check(const struct server_config *c, char *ret_err, size_t cap)
{
	if (c->heartbeat_interval_ns > c->lease_ttl_ns / 3) {
		snprintf(ret_err, cap, "heartbeat-interval: more than a third of lease-ttl; a worker must be able to miss two beats");
		return -1;
	}
	if (c->master_ttl_ns / 2 < c->heartbeat_interval_ns) {
		snprintf(ret_err, cap, "master-ttl: less than twice the heartbeat-interval, at which masters beat too; one that is late "
			 "once would lose its workers to another");
		return -1;
	}
	if (c->master_ttl_exclusive_ns < c->master_ttl_ns) {
		snprintf(ret_err, cap, "master-ttl-exclusive: less than master-ttl");
		return -1;
	}
	/* A task goes out whole in GetTask: its spec, its result, and what else is said of it and its attempts. */
	if (c->max_payload + c->max_result + c->max_command_env + c->max_params + TASK_REST > c->max_message) {
		snprintf(ret_err, cap, "max-message: smaller than max-payload, max-result, max-command-env and max-params together "
			 "and %d KiB", TASK_REST / 1024);
		return -1;
	}
	if (c->max_body_bytes < c->max_message) {
		snprintf(ret_err, cap, "max-body-bytes: smaller than max-message, which is %" PRId64 ": not one request of that size could come",
			 c->max_message);
		return -1;
	}
	for (size_t i = 0; i < c->cors_origins.len; i++)
		if (check_origin(c->cors_origins.at[i], ret_err, cap))
			return -1;
	if (c->require_both && (!c->tokens_file || !c->client_ca)) {
		snprintf(ret_err, cap, "require-both: give --tokens-file and --client-ca, by which tokens and certificates are known");
		return -1;
	}
	for (size_t i = 0; i < c->listen.len; i++)
		if (check_listener(c, c->listen.at[i], ret_err, cap))
			return -1;
	return 0;
}

/* Files of SQLite, sockets of Redis and of names that are looked up, listeners, libuv's own: about 30 at the most. */
#define DESCRIPTORS_KEPT 64
#define HANDSHAKES_MAX 256

struct server_room server_config_room(const struct server_config *c, int64_t descriptors)
{
	/* A connection to Postgres that is given up may be there still while its successor is made. */
	int64_t left = descriptors - DESCRIPTORS_KEPT - 2 * c->store_connections, tls = 0;
	for (size_t i = 0; i < c->listen.len; i++)
		tls += strncmp(c->listen.at[i], "tls://", 6) == 0;
	int64_t handshakes = tls ? max_i64(min_i64(HANDSHAKES_MAX, left / 4 / tls), 1) : HANDSHAKES_MAX;
	int64_t connections = max_i64(min_i64(c->max_connections, left - tls * handshakes), 1);
	return (struct server_room){ .connections = (int)connections, .handshakes = (int)handshakes };
}

/* The families of /metrics.  Labels are of fixed sets (kinds of operations, methods, causes), never what clients choose: the
 * number of series is the same whatever happens. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "server/core/core_view.h"
#include "server/lease/lease.h"
#include "server/monitor/exposition.h"
#include "server/monitor/monitor.h"
#include "server/monitor/process.h"

#define COUNTER EXPOSITION_COUNTER
#define GAUGE EXPOSITION_GAUGE

/* "reins_store" or "reins_lease_table" */
static void dependency(struct exposition *x, const char *prefix, const char *what, const struct availability *a, int64_t now)
{
	char name[64], help[160];
	snprintf(name, sizeof(name), "%s_up", prefix);
	snprintf(help, sizeof(help), "Whether %s can be reached and takes writes.", what);
	exposition_one(x, name, GAUGE, help, a->up);
	snprintf(name, sizeof(name), "%s_changed_timestamp_seconds", prefix);
	snprintf(help, sizeof(help), "When %s went or came back last.", what);
	exposition_one(x, name, GAUGE, help, a->since_wall_us / 1000000);
	snprintf(name, sizeof(name), "%s_outages_total", prefix);
	snprintf(help, sizeof(help), "How often %s was found to be gone.", what);
	exposition_one(x, name, COUNTER, help, a->outages);
	snprintf(name, sizeof(name), "%s_down_seconds_total", prefix);
	snprintf(help, sizeof(help), "For how long %s was gone.", what);
	exposition_family(x, name, COUNTER, help);
	exposition_seconds(x, NULL, availability_down_ns(a, now));
}

static void store(struct exposition *x, const struct store *s)
{
	static const char *const results[STORE_RESULTS] = { "ok", "unavailable", "refused" };
	char labels[96];
	exposition_one(x, "reins_store_queued_operations", GAUGE, "Operations that the store has not answered yet.", s->queued);
	exposition_one(x, "reins_store_queued_operations_limit", GAUGE, "Above it further ones are refused.", s->max_queued);
	exposition_one(x, "reins_store_queued_bytes", GAUGE, "What they hold.", s->queued_bytes);
	exposition_one(x, "reins_store_queued_bytes_limit", GAUGE, "Above it further ones are refused.", s->max_queued_bytes);
	exposition_one(x, "reins_store_queue_full_total", COUNTER, "Operations refused for that.", s->refused_full);
	exposition_family(x, "reins_store_operations_total", COUNTER, "Answered operations of the store by kind and result.");
	for (int k = 0; k < STORE_KINDS; k++)
		for (int r = 0; r < STORE_RESULTS; r++) {
			snprintf(labels, sizeof(labels), "kind=\"%s\",result=\"%s\"", store_kind_name((enum store_kind)k), results[r]);
			exposition_int(x, labels, s->results[k][r]);
		}
	exposition_family(x, "reins_store_batches_total", COUNTER, "Statements or transactions that they were gathered into.");
	for (int k = 0; k < STORE_KINDS; k++) {
		snprintf(labels, sizeof(labels), "kind=\"%s\"", store_kind_name((enum store_kind)k));
		exposition_int(x, labels, s->batches_done[k]);
	}
	exposition_family(x, "reins_store_operation_seconds", EXPOSITION_HISTOGRAM, "From asking the store to its answer.");
	for (int k = 0; k < STORE_KINDS; k++) {
		snprintf(labels, sizeof(labels), "kind=\"%s\"", store_kind_name((enum store_kind)k));
		exposition_histogram(x, labels, &s->took[k]);
	}
}

static void lease_table(struct exposition *x, const struct lease *l)
{
	struct lease_stats s;
	lease_stats(l, &s);
	exposition_one(x, "reins_lease_table_pending_commands", GAUGE, "Commands that Redis has not answered yet.", s.pending);
	exposition_one(x, "reins_lease_table_dropped_commands_total", COUNTER,
		       "Commands left out: Redis was down, refused them, or the limit was reached. Heartbeats put right what they "
		       "would have.", s.dropped);
	exposition_one(x, "reins_lease_table_refused_commands_total", COUNTER, "Commands that Redis answered with an error.", s.refused);
	exposition_one(x, "reins_lease_table_timeouts_total", COUNTER, "Connections given up because no reply came in time.", s.timeouts);
	exposition_one(x, "reins_lease_table_connects_total", COUNTER, "Connections that became usable.", s.connects);
	exposition_one(x, "reins_lease_table_missing_keys_total", COUNTER,
		       "Heartbeats that found no key of their worker. Each worker's first does; more: keys are evicted or were "
		       "flushed.", s.missing);
	exposition_family(x, "reins_lease_table_command_seconds", EXPOSITION_HISTOGRAM, "From sending a command to its reply.");
	exposition_histogram(x, NULL, &s.took);
}

static void scheduling(struct exposition *x, const struct engine *e)
{
	struct core_counts c;
	core_counts(engine_core(e), &c);
	exposition_one(x, "reins_ready_tasks", GAUGE, "Tasks in this master's window that wait for a worker.", c.ready);
	exposition_one(x, "reins_dispatching_tasks", GAUGE, "Tasks on their way to a worker.", c.in_flight);
	exposition_one(x, "reins_running_attempts", GAUGE, "Attempts that this master's workers hold.", c.running);
	exposition_one(x, "reins_workers", GAUGE, "Workers that this master judges, connected or not.", c.workers);
	exposition_one(x, "reins_worker_sessions", GAUGE, "Workers connected to this master.", c.connected);
	exposition_one(x, "reins_worker_slots", GAUGE, "Their slots.", c.slots);
	exposition_one(x, "reins_worker_slots_used", GAUGE, "Of these in use or reserved.", c.slots_used);
}

static void calls(struct exposition *x, const struct grpc_server *g)
{
	static const char *const causes[GRPC_REFUSED_CAUSES] = {
		[GRPC_REFUSED_LIMIT] = "limit", [GRPC_REFUSED_ADDRESS] = "address_limit",
		[GRPC_REFUSED_HANDSHAKE] = "handshake", [GRPC_REFUSED_MEMORY] = "memory",
	};
	struct grpc_server_stats s;
	char labels[128];
	grpc_server_stats(g, &s);
	exposition_one(x, "reins_rpc_connections", GAUGE, "Connections of HTTP/2.", s.connections);
	exposition_family(x, "reins_rpc_refused_connections_total", COUNTER, "Connections that were not taken, by cause.");
	for (size_t i = 0; i < GRPC_REFUSED_CAUSES; i++) {
		snprintf(labels, sizeof(labels), "cause=\"%s\"", causes[i]);
		exposition_int(x, labels, s.refused_connections[i]);
	}
	exposition_one(x, "reins_rpc_received_bytes_total", COUNTER, "Bytes from clients and workers, without those of TLS.", s.bytes_in);
	exposition_one(x, "reins_rpc_sent_bytes_total", COUNTER, "Bytes to them.", s.bytes_out);
	exposition_one(x, "reins_rpc_open_calls", GAUGE, "Calls that go on, workers' sessions among them.", s.calls_open);
	exposition_family(x, "reins_rpc_calls_total", COUNTER, "Calls by method.");
	for (size_t i = 0; i < rpc_n_methods; i++) {
		snprintf(labels, sizeof(labels), "method=\"%s\"", rpc_methods[i].path + 1);
		exposition_int(x, labels, grpc_server_method_calls(g, i));
	}
	exposition_family(x, "reins_rpc_ended_calls_total", COUNTER,
			  "Calls that ended, by status; CANCELLED: the client went away. What no method was found for is among them.");
	for (size_t i = 0; i < GRPC_STATUS_CODES; i++) {
		snprintf(labels, sizeof(labels), "code=\"%s\"", status_code_name((enum status_code)i));
		exposition_int(x, labels, s.ended[i]);
	}
	exposition_one(x, "reins_rpc_not_grpc_requests_total", COUNTER, "Requests of HTTP/2 that are no gRPC.", s.not_grpc);
}

static void http1(struct exposition *x, const struct http1_server *h)
{
	struct http1_stats s;
	http1_server_stats(h, &s);
	exposition_one(x, "reins_http1_connections", GAUGE, "Connections of HTTP/1.1.", s.connections);
	exposition_one(x, "reins_http1_requests_total", COUNTER, "Requests of HTTP/1.1.", s.requests);
	exposition_one(x, "reins_http1_refused_requests_total", COUNTER, "Of what came: malformed, too large, or too slow.",
		       s.refused_requests);
	exposition_one(x, "reins_http1_refused_connections_total", COUNTER, "Connections that were not taken.", s.refused_connections);
}

static void loop(struct exposition *x, const struct loop *l, int64_t stalls)
{
	struct loop_stats s;
	loop_stats(l, &s);
	exposition_family(x, "reins_loop_busy_seconds_total", COUNTER, "How long the event loop did not sleep.");
	exposition_seconds(x, NULL, s.busy_ns);
	exposition_family(x, "reins_loop_turn_seconds", EXPOSITION_HISTOGRAM,
			  "How long each turn of the event loop was busy: so long did what came meanwhile wait.");
	exposition_histogram(x, NULL, &s.turns);
	exposition_one(x, "reins_loop_stalls_total", COUNTER, "Times the loop stood still for more than a tenth of the lease.", stalls);
}

static void process(struct exposition *x, int64_t started_wall_us)
{
	struct process_stats s;
	process_stats_read(&s);
	exposition_family(x, "process_cpu_seconds_total", COUNTER, "Time of the processor, in user and kernel.");
	exposition_seconds(x, NULL, s.cpu_ns);
	if (s.resident_bytes >= 0) {
		exposition_one(x, "process_resident_memory_bytes", GAUGE, "Memory in use.", s.resident_bytes);
		exposition_one(x, "process_virtual_memory_bytes", GAUGE, "Address space in use.", s.virtual_bytes);
	}
	if (s.max_fds >= 0)
		exposition_one(x, "process_max_fds", GAUGE, "Descriptors that it may open.", s.max_fds);
	exposition_one(x, "process_start_time_seconds", GAUGE, "When it was started.", started_wall_us / 1000000);
}

int monitor_metrics(struct monitor *m, struct buf *out)
{
	struct exposition x = { .out = out };
	const struct engine *e = m->rpc->engine;
	int64_t now = loop_now_mono_ns(m->rpc->loop);
	exposition_family(&x, "reins_build_info", GAUGE, "Always 1; the version, and what it works on.");
	char labels[160];
	snprintf(labels, sizeof(labels), "version=\"" REINS_VERSION "\",store=\"%s\",lease=\"%s\"", m->rpc->store_kind, m->rpc->lease_kind);
	exposition_int(&x, labels, 1);
	exposition_one(&x, "reins_ready", GAUGE, "Whether /readyz says so.", engine_ready(e) && !m->rpc->draining);
	exposition_one(&x, "reins_incarnation", GAUGE, "Of this master in the store; 0: not taken in yet.", engine_incarnation(e));
	dependency(&x, "reins_store", "the store", engine_store_state(e), now);
	store(&x, engine_store(e));
	dependency(&x, "reins_lease_table", "the lease table", engine_lease_state(e), now);
	lease_table(&x, m->lease);
	scheduling(&x, e);
	calls(&x, m->grpc);
	http1(&x, m->http1);
	loop(&x, m->rpc->loop, engine_stalls(e));
	process(&x, m->rpc->started_wall_us);
	return x.failed ? -ENOBUFS : 0;
}

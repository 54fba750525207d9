/* Connections and calls. */
#include <stdio.h>

#include "server/auth/auth.h"
#include "server/monitor/families.h"

static void connections(struct exposition *x, const struct grpc_server_stats *s)
{
	static const char *const causes[GRPC_REFUSED_CAUSES] = {
		[GRPC_REFUSED_LIMIT] = "limit", [GRPC_REFUSED_ADDRESS] = "address_limit",
		[GRPC_REFUSED_HANDSHAKE] = "handshake", [GRPC_REFUSED_MEMORY] = "memory",
	};
	char labels[64];
	exposition_one(x, "reins_connections_accepted_total", COUNTER, "Connections of any kind that came.", s->listeners.accepted);
	exposition_one(x, "reins_connections_no_descriptor_total", COUNTER,
		       "Times that one could not be accepted because no descriptor, or no memory, was left.", s->listeners.no_descriptor);
	exposition_one(x, "reins_rpc_connections", GAUGE, "Connections of HTTP/2.", s->connections);
	exposition_family(x, "reins_rpc_refused_connections_total", COUNTER, "Connections that were not taken, by cause.");
	for (size_t i = 0; i < GRPC_REFUSED_CAUSES; i++) {
		snprintf(labels, sizeof(labels), "cause=\"%s\"", causes[i]);
		exposition_int(x, labels, s->refused_connections[i]);
	}
	exposition_one(x, "reins_rpc_received_bytes_total", COUNTER, "Bytes from clients and workers, without those of TLS.", s->bytes_in);
	exposition_one(x, "reins_rpc_sent_bytes_total", COUNTER, "Bytes to them.", s->bytes_out);
}

static void bodies(struct exposition *x, const struct grpc_server_stats *s, int64_t limit)
{
	static const char *const of[GRPC_BODIES] = { [GRPC_BODIES_CALLS] = "calls", [GRPC_BODIES_SESSIONS] = "sessions" };
	static const char *const causes[GRPC_BODY_CAUSES] = {
		[GRPC_BODY_TOO_LARGE] = "message_too_large", [GRPC_BODY_CONNECTION] = "connection", [GRPC_BODY_SERVER] = "calls",
		[GRPC_BODY_SESSIONS] = "sessions",           [GRPC_BODY_STOPPED] = "stopped_coming",
	};
	char labels[64];
	exposition_family(x, "reins_rpc_body_bytes", GAUGE, "Of requests whose rest is waited for, over all connections.");
	for (size_t i = 0; i < GRPC_BODIES; i++) {
		snprintf(labels, sizeof(labels), "of=\"%s\"", of[i]);
		exposition_int(x, labels, s->body_bytes[i]);
	}
	exposition_one(x, "reins_rpc_body_bytes_limit", GAUGE, "Above it, of either, the one goes that was waited for the longest.", limit);
	exposition_family(x, "reins_rpc_refused_bodies_total", COUNTER, "Requests refused while they came, by cause.");
	for (size_t i = 0; i < GRPC_BODY_CAUSES; i++) {
		snprintf(labels, sizeof(labels), "cause=\"%s\"", causes[i]);
		exposition_int(x, labels, s->refused_bodies[i]);
	}
}

static void handshakes(struct exposition *x, const struct listener_stats *s)
{
	exposition_one(x, "reins_tls_handshakes_in_flight", GAUGE, "TLS handshakes that go on.", s->handshaking);
	exposition_family(x, "reins_tls_handshakes_total", COUNTER,
			  "TLS handshakes by how they ended; resumed: with a ticket of an earlier one.");
	exposition_int(x, "result=\"full\"", s->handshakes - s->resumed);
	exposition_int(x, "result=\"resumed\"", s->resumed);
	exposition_int(x, "result=\"failed\"", s->failed);
	exposition_int(x, "result=\"timed_out\"", s->timed_out);
	exposition_family(x, "reins_tls_handshake_seconds", HISTOGRAM, "From accepting a connection to the end of its handshake.");
	exposition_histogram(x, NULL, &s->handshake);
}

/* A method's name as a label; the one after the last: what became no call. */
static const char *method_label(size_t i, char *labels, size_t cap)
{
	snprintf(labels, cap, "method=\"%s\"", i < rpc_n_methods ? rpc_methods[i].path + 1 : "none");
	return labels;
}

static const char *const protocols[GRPC_PROTOCOLS] = {
	[GRPC_PROTOCOL_GRPC] = "grpc", [GRPC_PROTOCOL_WEB] = "grpc_web", [GRPC_PROTOCOL_CONNECT] = "connect",
};

static void started(struct exposition *x, const struct grpc_server *g)
{
	char labels[160], with_protocol[200];
	exposition_family(x, "reins_rpc_started_total", COUNTER, "Calls that began, by method and protocol.");
	for (size_t i = 0; i < rpc_n_methods; i++)
		for (size_t p = 0; p < GRPC_PROTOCOLS; p++) {
			method_label(i, labels, sizeof(labels));
			snprintf(with_protocol, sizeof(with_protocol), "%s,protocol=\"%s\"", labels, protocols[p]);
			exposition_int(x, with_protocol, grpc_server_method_stats(g, i)->started[p]);
		}
}

static int64_t going(const struct grpc_method_stats *s)
{
	int64_t sum = 0;
	for (size_t p = 0; p < GRPC_PROTOCOLS; p++) {
		sum += s->started[p];
		for (size_t i = 0; i < GRPC_STATUS_CODES; i++)
			sum -= s->ended[p][i];
	}
	return sum;
}

/* OK is always there, so that a rate has a beginning; of the others those that were seen: most never are. */
static void handled_of(struct exposition *x, const struct grpc_method_stats *s, bool is_method, const char *method, size_t protocol)
{
	char labels[224];
	for (size_t k = 0; k < GRPC_STATUS_CODES; k++) {
		if (!s->ended[protocol][k] && (k != STATUS_OK || !is_method))
			continue;
		snprintf(labels, sizeof(labels), "%s,protocol=\"%s\",code=\"%s\"", method, protocols[protocol],
			 status_code_name((enum status_code)k));
		exposition_int(x, labels, s->ended[protocol][k]);
	}
}

static void handled(struct exposition *x, const struct grpc_server *g)
{
	char method[160];
	exposition_family(x, "reins_rpc_handled_total", COUNTER,
			  "Calls that ended, by method, protocol and status; CANCELLED: the client went away. Method none: refused from its "
			  "headers, such as an unknown method.");
	for (size_t i = 0; i <= rpc_n_methods; i++)
		for (size_t p = 0; p < GRPC_PROTOCOLS; p++)
			handled_of(x, grpc_server_method_stats(g, i), i < rpc_n_methods, method_label(i, method, sizeof(method)), p);
}

/* One family with a sample for each method. */
static void per_method(struct exposition *x, const struct grpc_server *g, const char *name, enum exposition_type type,
		       const char *help, int64_t (*value)(const struct grpc_method_stats *))
{
	char labels[160];
	exposition_family(x, name, type, help);
	for (size_t i = 0; i < rpc_n_methods; i++)
		exposition_int(x, method_label(i, labels, sizeof(labels)), value(grpc_server_method_stats(g, i)));
}

static int64_t messages_in(const struct grpc_method_stats *s) { return s->messages_in; }
static int64_t messages_out(const struct grpc_method_stats *s) { return s->messages_out; }
static int64_t bytes_in(const struct grpc_method_stats *s) { return s->bytes_in; }
static int64_t bytes_out(const struct grpc_method_stats *s) { return s->bytes_out; }

static void calls(struct exposition *x, const struct grpc_server *g, const struct grpc_server_stats *all)
{
	char labels[160];
	started(x, g);
	handled(x, g);
	per_method(x, g, "reins_rpc_in_flight", GAUGE, "Calls that go on, by method; of Session: the streams of workers.", going);
	per_method(x, g, "reins_rpc_received_messages_total", COUNTER, "Messages in requests.", messages_in);
	per_method(x, g, "reins_rpc_sent_messages_total", COUNTER, "Messages in responses.", messages_out);
	per_method(x, g, "reins_rpc_received_message_bytes_total", COUNTER, "Their bytes, without framing.", bytes_in);
	per_method(x, g, "reins_rpc_sent_message_bytes_total", COUNTER, "Their bytes, without framing.", bytes_out);
	exposition_family(x, "reins_rpc_handling_seconds", HISTOGRAM,
			  "From a call's headers to its end, by method. A GetTask that waits, and a log that is followed, last as long "
			  "as they were asked to. Without streams of both directions.");
	for (size_t i = 0; i < rpc_n_methods; i++)
		if (rpc_methods[i].shape != GRPC_BIDI)
			exposition_histogram(x, method_label(i, labels, sizeof(labels)), &grpc_server_method_stats(g, i)->took);
	exposition_one(x, "reins_rpc_not_grpc_requests_total", COUNTER, "Requests that are no call.", all->not_grpc);
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

static void auth(struct exposition *x, const struct auth *a)
{
	struct auth_stats s;
	char labels[64];
	auth_stats(a, &s);
	exposition_family(x, "reins_auth_failures_total", COUNTER, "Calls and requests refused for who asked, by reason.");
	for (size_t i = 0; i < AUTH_FAILURES; i++) {
		snprintf(labels, sizeof(labels), "reason=\"%s\"", auth_failure_names[i]);
		exposition_int(x, labels, s.failures[i]);
	}
	exposition_one(x, "reins_auth_rate_limited_total", COUNTER, "Of these, those from an address that had too many of them.", s.too_many);
	exposition_one(x, "reins_auth_ended_calls_total", COUNTER, "Open calls ended because a token or certificate ended or was revoked.",
		       s.ended_streams);
	exposition_one(x, "reins_auth_entries", GAUGE, "Entries of the tokens file.", s.entries);
	exposition_family(x, "reins_auth_reloads_total", COUNTER, "Times the tokens file was read again; failed: the one before stays in use.");
	exposition_int(x, "result=\"ok\"", s.reloads);
	exposition_int(x, "result=\"failed\"", s.reloads_failed);
	exposition_one(x, "reins_audit_lines_total", COUNTER, "Lines of the audit.", s.audit.lines);
	exposition_one(x, "reins_audit_lost_lines_total", COUNTER, "Lines that could not be written.", s.audit.lost);
}

void families_net(struct exposition *x, const struct monitor *m)
{
	struct grpc_server_stats s;
	grpc_server_stats(m->grpc, &s);
	connections(x, &s);
	bodies(x, &s, m->body_limit);
	handshakes(x, &s.listeners);
	calls(x, m->grpc, &s);
	http1(x, m->http1);
	if (m->rpc->auth)
		auth(x, m->rpc->auth);
}

/* The server side: listeners' connections, method table, calls.
 *
 * A method is written once and answers in every dialect (dialect.h): gRPC, gRPC-Web and Connect.  Its handlers see protobuf,
 * whatever their peer speaks. */
#ifndef REINS_GRPC_SERVER_H
#define REINS_GRPC_SERVER_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/histogram.h"
#include "common/grpc/grpc.h"
#include "common/http1/http1.h"
#include "common/loop/loop.h"
#include "common/stream/stream.h"

struct grpc_server;
struct grpc_call;

enum grpc_shape { GRPC_UNARY, GRPC_SERVER_STREAM, GRPC_BIDI };

struct grpc_method {
	const char *path; /* "/reins.v1.TaskService/SubmitTask" */
	enum grpc_shape shape;
	size_t max_message; /* 0: the connection's */
	bool apart; /* BIDI: unfinished messages count apart from those of other methods (limits.all_recv) */
	bool safe; /* reads only (idempotency_level NO_SIDE_EFFECTS): Connect may GET it */
	/* UNARY and SERVER_STREAM: the one request message arrived whole and the client's side is closed.
	 * Cardinality violations were answered already.  `data` is valid in the call only. */
	void (*on_request)(struct grpc_call *call, const uint8_t *data, size_t len);
	/* BIDI only. on_start: headers arrived; response headers are sent at once. */
	void (*on_start)(struct grpc_call *call);
	void (*on_message)(struct grpc_call *call, const uint8_t *data, size_t len);
	void (*on_half_close)(struct grpc_call *call);
	/* BIDI and SERVER_STREAM: the queue fell below half after a send was refused with -EAGAIN; of a SERVER_STREAM whose own
	 * queue was empty, but whose message was large: that of its connection. */
	void (*on_writable)(struct grpc_call *call);
	/* Always called once, last, for each call that on_request or on_start was called for: the call is over
	 * (finished by us, cancelled or reset by the peer, its deadline passed, or its connection lost).  A request
	 * that was refused or given up before it was whole has neither.  `call` may not be used afterwards.  NULL for
	 * a method that answers in on_request and keeps nothing of the call. */
	void (*on_end)(struct grpc_call *call, bool finished);
};

/* What is known of a request when its headers have come: of its body no byte is kept yet. */
struct grpc_request {
	const struct grpc_method *method;
	const struct stream_peer *peer;
	const char *authorization; /* NULL: none, or several */
	size_t n_authorization;    /* headers of that name */
	const char *request_id;    /* x-request-id; NULL: none */
	const char *host;          /* the header of HTTP/1.1; NULL: the call came over HTTP/2 */
	const char *user_agent, *previous_attempts; /* what a client says of itself, and how often it tried before; NULL: nothing */
};

struct grpc_server_config {
	struct grpc_limits limits;
	const struct grpc_method *methods;
	size_t n_methods;
	void *app;                    /* grpc_call_app */
	int max_connections;          /* 10,000 + headroom; accepting pauses at the limit */
	int max_connections_per_addr; /* of HTTP/2 and 1.1 together; 0: no limit (loopback is never limited) */
	int64_t max_deadline_ns;      /* longest deadline, also of calls without one; 0: none (streams of workers live on) */
	/* Services that methods belong to: the types of their messages.  Methods of none of them are not spoken with JSON. */
	const ProtobufCServiceDescriptor *const *services;
	size_t n_services;
	/* Origins ("https://a.example") whose pages may ask and read the answers: CORS. None: no other origin's. */
	const char *const *cors_origins;
	size_t n_cors_origins;
	/* Called with one line of text per refused or broken connection, for the program's log. May be NULL. */
	void (*on_log)(void *app, const char *peer, const char *text);
	/* May the call be made?  Asked once for each, of every protocol, from its headers: 0 and what stands for the caller
	 * (grpc_call_caller), or -1 and a refusal. NULL: every call may. */
	int (*on_authorize)(void *app, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r);
	/* Last of a call that may be made, after its on_end: gives the caller back. NULL only without on_authorize. */
	void (*on_over)(void *app, void *caller, enum status_code code);
	/* Gets the connections whose first bytes are no HTTP/2, and whose client did not ask for it by ALPN; what is on no path of
	 * its table comes back as calls.  Its connections count with ours, and its paths answer over HTTP/2 too.  It must outlive
	 * this server. NULL: such a connection is refused. */
	struct http1_server *http1;
};

int grpc_server_new(struct loop *loop, const struct grpc_server_config *cfg, struct grpc_server **ret) MUST_CHECK;
/* lc.on_refused and lc.stats are not used: on_log gets these lines too. */
int grpc_server_listen(struct grpc_server *s, const struct listener_config *lc, struct listener **ret) MUST_CHECK;
/* Takes over an open stream (tests: one end of a pair). */
int grpc_server_adopt(struct grpc_server *s, struct stream *stream) MUST_CHECK;
/* Two-step GOAWAY on every connection: listeners close, what was accepted is served; on_drained is called once
 * when the last connection is gone; at the deadline calls end with UNAVAILABLE, a second later what is
 * left is cut. */
void grpc_server_drain(struct grpc_server *s, int64_t deadline_mono_ns, void (*on_drained)(void *app));
/* Closes everything at once; on_end of all calls is called inside. The memory goes at the end of the turn, so a handler may do
 * it. NULL-safe. */
void grpc_server_free(struct grpc_server *s);

enum grpc_refused { GRPC_REFUSED_LIMIT, GRPC_REFUSED_ADDRESS, GRPC_REFUSED_HANDSHAKE, GRPC_REFUSED_MEMORY, GRPC_REFUSED_CAUSES };
/* Whose unfinished messages: of methods, and of those that are `apart`. */
enum grpc_bodies { GRPC_BODIES_CALLS, GRPC_BODIES_SESSIONS, GRPC_BODIES };
enum grpc_refused_body {
	GRPC_BODY_TOO_LARGE,  /* more than max_message, decompressed too */
	GRPC_BODY_CONNECTION, /* conn_recv */
	GRPC_BODY_SERVER,     /* all_recv */
	GRPC_BODY_SESSIONS,   /* the same, of those that are apart */
	GRPC_BODY_STOPPED,    /* body_ns */
	GRPC_BODY_CAUSES
};
#define GRPC_STATUS_CODES 17
struct grpc_server_stats {
	int64_t connections, calls_open, calls_total, bytes_in, bytes_out;
	int64_t refused_connections[GRPC_REFUSED_CAUSES];
	struct listener_stats listeners;
	int64_t body_bytes[GRPC_BODIES]; /* of unfinished messages, now */
	int64_t refused_bodies[GRPC_BODY_CAUSES];
	/* Calls that ended, by status; what was refused from its headers, as a wrong path, is among them, and no call. CANCELLED:
	 * the client went away. */
	int64_t ended[GRPC_STATUS_CODES];
	int64_t not_grpc; /* requests answered with an HTTP status: another method than POST, another content */
};
void grpc_server_stats(const struct grpc_server *s, struct grpc_server_stats *ret);
/* Each open call that has a caller and has not ended. `visit` may finish it, and nothing else. */
void grpc_server_each_call(struct grpc_server *s, void (*visit)(void *arg, struct grpc_call *call, void *caller), void *arg);
/* Of one method.  Each call is started once and ended once; what goes on is the difference.  What may not be made
 * is among them, and has no time. */
enum grpc_protocol { GRPC_PROTOCOL_GRPC, GRPC_PROTOCOL_WEB, GRPC_PROTOCOL_CONNECT, GRPC_PROTOCOLS };
struct grpc_method_stats {
	int64_t started[GRPC_PROTOCOLS], ended[GRPC_PROTOCOLS][GRPC_STATUS_CODES];
	int64_t messages_in, bytes_in, messages_out, bytes_out; /* without framing */
	struct histogram took; /* from the headers to the end; nothing of BIDI, which lasts as long as its client */
};
/* Of the method at this place of cfg.methods; at n_methods: requests that were refused from their headers, which were no
 * calls, by status. */
const struct grpc_method_stats *grpc_server_method_stats(const struct grpc_server *s, size_t method);

/* ---- a call ---- */
void *grpc_call_app(const struct grpc_call *c);
void grpc_call_set_user(struct grpc_call *c, void *user);
void *grpc_call_user(const struct grpc_call *c);
void *grpc_call_caller(const struct grpc_call *c); /* as on_authorize said; valid until on_end has returned */
const struct stream_peer *grpc_call_peer(const struct grpc_call *c);
/* For a handler that waits for something else: ends the call with `r` (which must outlive it) at that time, unless it has
 * ended before.  A time that is set already stays; GRPC_NO_DEADLINE: it waits no longer.  The call's own deadline (grpc-timeout,
 * connect-timeout-ms), at which it ends with DEADLINE_EXCEEDED, holds beside it. */
void grpc_call_patience(struct grpc_call *c, int64_t until_mono_ns, const struct refusal *r);
/* A request header in lower case ("authorization"); NULL when absent, when given more than once, and once the call is
 * over. Valid until then. */
const char *grpc_call_header(const struct grpc_call *c, const char *name);
/* Queues one message (copied). -EAGAIN: queue full, nothing was taken, on_writable follows (BIDI, SERVER_STREAM).
 * -EPIPE: the call is over already.  -EMSGSIZE: larger than any client would take (cfg.limits.max_message). */
int grpc_call_send(struct grpc_call *c, const void *data, size_t len) MUST_CHECK;
/* The same without the copy of a packed protobuf-c message: room is reserved and filled by `pack`. */
int grpc_call_send_packed(struct grpc_call *c, size_t len, size_t (*pack)(const void *msg, uint8_t *out), const void *msg) MUST_CHECK;
size_t grpc_call_queued(const struct grpc_call *c);
/* So much waits for the peer on its connection that no new request would be handed out (limits.conn_queue). */
bool grpc_call_backed_up(const struct grpc_call *c);
/* Which connection it is of, to be compared with others' only; NULL: that is gone. */
const void *grpc_call_connection(const struct grpc_call *c);
/* Stop and resume giving on_message and on_half_close (BIDI): stops crediting the stream's window, which is the peer's backpressure. */
void grpc_call_pause(struct grpc_call *c, bool paused);
/* Ends the call: status OK, or r's code, message and details (BadRequest from field, RetryInfo). Trailers-only when
 * nothing was sent.  on_end follows in a later step, never inside. A second finish is ignored. */
void grpc_call_finish(struct grpc_call *c, const struct refusal *r_or_null);

#endif

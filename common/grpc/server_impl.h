/* What the server's files share: server.c (connections, listeners, draining), accept.c (from a request's headers to a call),
 * call.c (a call's life), call_in.c and call_out.c (its messages), exchange_*.c (what carries it). */
#ifndef REINS_GRPC_SERVER_IMPL_H
#define REINS_GRPC_SERVER_IMPL_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/grpc/conn.h"
#include "common/grpc/dialect.h"
#include "common/grpc/framing.h"
#include "common/grpc/server.h"

struct method_entry {
	struct map_node node;
	const struct grpc_method *method;
	const ProtobufCMethodDescriptor *types; /* NULL: not known */
	struct grpc_method_stats stats;
};

struct bodies {
	size_t held;
	struct list large; /* calls, the one first whose last byte is the oldest */
};

struct grpc_server {
	struct loop *loop;
	struct grpc_server_config cfg;
	struct map methods;
	struct method_entry *entries; /* the last: of requests that became no call */
	struct list conns, listeners;
	struct list http1_calls; /* over exchanges of HTTP/1.1 */
	struct list marked;  /* calls to be ended or resumed in the next LOOP_WORK */
	struct list spare; /* call objects for reuse */
	struct bodies bodies[GRPC_BODIES];
	size_t n_spare;
	/* One message at a time on its way in or out: inflated, as protobuf, as JSON, deflated. */
	struct buf plain_in, wire_in, wire_out, json_out, gzip_out;
	struct loop_dirty dirty;
	struct loop_timer drain_timer;
	struct loop_grave grave;
	bool draining, drain_cut, freed;
	void (*on_drained)(void *app);
	struct grpc_server_stats stats;
};

struct server_conn {
	struct conn base;
	struct grpc_server *srv;
	struct list node;
	struct list calls;
	struct list parked; /* requests, and streams with a large message, that wait until the output queues are shorter */
	struct loop_grave grave;
};

struct grpc_call {
	struct list node;   /* of the connection's calls; of srv->spare when not in use */
	struct list marked;   /* on srv->marked */
	struct list parked; /* of the connection */
	struct list large;  /* of bodies */
	struct bodies *bodies;
	size_t held;        /* counted there */
	struct grpc_server *srv;
	struct reply reply;
	struct buf asked; /* by GET: the message */
	bool by_get;
	const struct grpc_method *method;
	const ProtobufCMethodDescriptor *types;
	struct grpc_method_stats *stats;
	int64_t began_mono_ns;
	void *user;
	void *caller;
	enum status_code code; /* it ended with */
	struct loop_timer timer;
	int64_t deadline_mono_ns;
	int64_t patience_mono_ns;          /* GRPC_NO_DEADLINE: none */
	const struct refusal *out_of_patience;
	int64_t body_mono_ns; /* a byte of a request that is incomplete came; 0: none is awaited */
	size_t max_message;
	bool gzip;           /* messages of the request may be */
	bool peer_done;      /* the request's end arrived */
	bool told;           /* the handler knows of the call, on_end is due to it */
	bool told_half_close;
	bool requested;      /* on_request was called */
	bool want_writable;
	bool paused;
	bool over;     /* no more from the handler: on_end is due */
	bool finished; /* by the handler */
};

static inline bool call_alive(const struct grpc_call *c) { return c->reply.x.stream != NULL; }

/* ---- accept.c ---- */
/* A call, or NULL when the request was answered. */
struct grpc_call *call_accept(struct grpc_server *srv, const struct exchange *x);
/* on_authorize, where there is one. Whoever makes no call of it afterwards says on_over. */
int call_authorize(struct grpc_server *srv, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r) MUST_CHECK;

/* ---- call.c ---- */
struct grpc_call *call_new(struct grpc_server *srv, const struct reply *r, struct method_entry *entry, void *caller);
/* `c`: what set_user said last; NULL at first. */
void call_news(struct grpc_server *srv, const struct exchange *x, struct grpc_call *c, unsigned news);
/* input() is due in the next LOOP_WORK. */
void call_schedule(struct grpc_call *c);
void call_set_timer(struct grpc_call *c);
/* Runs srv->marked. */
void call_work(struct grpc_server *srv);
/* Of a message over the limit, which is counted. `size`: its bytes; 0: it is not known, only that they are more. */
void call_size_refusal(struct grpc_server *srv, struct refusal *ret, uint64_t size, size_t limit);
/* Ends with a status that is not the handler's. */
void call_refuse(struct grpc_call *c, enum status_code code, const char *text);
void call_no_memory(struct grpc_call *c);
void call_end(struct grpc_call *c, const struct refusal *r, bool finished);
/* The stream is gone; then the connection too. */
void call_cut(struct grpc_call *c);
void call_detach(struct grpc_call *c);
void call_free_spares(struct grpc_server *srv);
void call_count(struct grpc_server *srv, struct grpc_method_stats *stats, const struct dialect *d, enum status_code code);

/* ---- call_in.c ---- */
/* Hands over what has come. */
void call_input(struct grpc_call *c);
void call_await_body(struct grpc_call *c);
/* The connection's queues are shorter: what is parked goes on. */
void call_unpark(struct server_conn *sc);

/* ---- bodies.c ---- */
void bodies_init(struct grpc_server *srv);
/* `c` holds n bytes now and waits. False: it was refused, for itself or since it was the one that had to go. */
bool bodies_hold(struct grpc_call *c, size_t n) MUST_CHECK;
/* It waits no longer. */
void bodies_release(struct grpc_call *c);
void bodies_refuse(struct grpc_call *c, enum grpc_refused_body cause, size_t limit, const char *whose);

/* ---- server.c ---- */
/* A connection is gone, of whatever kind: listeners that wait for that go on. */
void server_conn_left(struct grpc_server *srv);

/* ---- routes.c ---- */
/* Answers from the paths of HTTP/1.1's table; false: it is none. */
bool route_answer(struct grpc_server *srv, struct reply *r);

/* ---- exchange_http1.c ---- */
extern const struct http1_service exchange_http1_service;

/* ---- exchange_h2.c ---- */
void exchange_h2_news(struct server_conn *sc, struct h2_stream *s, unsigned news);

#endif

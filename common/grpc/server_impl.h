/* What server.c (connections, listeners, draining) and server_call.c (calls) share. */
#ifndef REINS_GRPC_SERVER_IMPL_H
#define REINS_GRPC_SERVER_IMPL_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "common/grpc/conn.h"
#include "common/grpc/server.h"

struct method_entry {
	struct map_node node;
	const struct grpc_method *method;
	struct grpc_method_stats stats;
};

struct grpc_server {
	struct loop *loop;
	struct grpc_server_config cfg;
	struct map methods;
	struct method_entry *entries; /* the last: of requests that became no call */
	struct list conns, listeners;
	struct list todo;  /* calls to be ended or resumed in the next LOOP_WORK */
	struct list spare; /* call objects for reuse */
	size_t n_spare;
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
	struct list parked; /* requests that wait until the output queues are shorter */
	struct loop_grave grave;
};

struct grpc_call {
	struct list node;   /* of the connection's calls; of srv->spare when not in use */
	struct list todo;   /* on srv->todo */
	struct list parked; /* on sc->parked */
	struct grpc_server *srv;
	struct server_conn *sc; /* NULL: the connection is gone */
	struct h2_stream *s;    /* NULL: the stream is gone */
	const struct grpc_method *method;
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
	bool peer_done;      /* END_STREAM arrived */
	bool told;           /* the handler knows of the call, on_end is due to it */
	bool told_half_close;
	bool requested;      /* on_request was called */
	bool headers_sent;
	bool want_writable;
	bool paused;
	bool over;     /* no more from the handler: on_end is due */
	bool finished; /* by the handler */
};

/* on_authorize, where there is one. Whoever makes no call of it afterwards says on_over. */
int server_call_authorize(struct grpc_server *srv, const struct grpc_request *rq, void **ret_caller, struct refusal *ret_r) MUST_CHECK;
void server_call_news(struct server_conn *sc, struct h2_stream *s, unsigned news);
/* The connection's queues are shorter: parked requests go on. */
void server_call_unpark(struct server_conn *sc);
/* Runs srv->todo. */
void server_call_work(struct grpc_server *srv);
/* Ends with a status that is not the handler's. */
void server_call_refuse(struct grpc_call *c, enum status_code code, const char *text);
/* The stream or connection is gone. */
void server_call_cut(struct grpc_call *c);
void server_call_free_spares(struct grpc_server *srv);

#endif

/* What client.c (the channel) and client_call.c (its calls) share. */
#ifndef REINS_GRPC_CLIENT_IMPL_H
#define REINS_GRPC_CLIENT_IMPL_H

#include "common/base/list.h"
#include "common/grpc/client.h"
#include "common/grpc/conn.h"

struct grpc_channel {
	struct conn base;
	struct grpc_channel_config cfg;
	char *authority, *user_agent, *authorization; /* authorization: "Bearer …" or NULL */
	const char *scheme;
	struct list calls;
	struct list marked;  /* calls to be ended or resumed in the next LOOP_WORK */
	struct list spare; /* kept until the channel goes: one may be on the stack */
	struct loop_dirty dirty;
	struct loop_timer connect_timer;
	struct loop_grave grave;
	bool shutdown, freed;
	char peer_text[64];
};

struct grpc_client_call {
	struct list node; /* of the channel's calls or spares */
	struct list marked;
	struct grpc_channel *ch;
	struct h2_stream *s; /* NULL: the stream is gone */
	struct grpc_call_events ev;
	void *arg;
	enum grpc_call_kind kind;
	struct loop_timer timer;
	bool half_closed; /* by us */
	bool peer_done;
	bool stream_closed; /* H2_NEWS_CLOSED came; released with the call */
	bool want_writable;
	bool paused;
	bool over; /* `status` is final */
	bool told; /* on_status was called */
	struct grpc_status status;
};

void client_call_news(struct grpc_channel *ch, struct h2_stream *s, unsigned news);
void client_call_work(struct grpc_channel *ch);
/* on_status(UNAVAILABLE) for every call, now. */
void client_call_end_all(struct grpc_channel *ch, const char *text);
void client_call_free_spares(struct grpc_channel *ch);

#endif

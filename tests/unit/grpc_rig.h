/* A server with echoing methods and a client on one loop, over an in-memory pair, TCP or TLS. */
#ifndef REINS_TESTS_GRPC_RIG_H
#define REINS_TESTS_GRPC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/grpc/client.h"
#include "common/grpc/server.h"
#include "common/stream/tls.h"

#define SPAN_S(s) (s), sizeof(s) - 1

enum over { OVER_PAIR, OVER_TCP, OVER_TLS };

struct rig {
	struct loop *loop;
	struct grpc_server *server;
	struct grpc_channel *channel;
	struct grpc_limits limits;
	struct listener *listener;
	struct tls_context *server_tls, *client_tls;
	char log[512]; /* the last line of the server */
	bool ready, closed, goaway, drained;
	char closed_text[256];
	/* what the server's handlers saw */
	int started, requests, messages, half_closes, ended, finished, writable;
	bool hold;      /* Unary: the handler does not answer, the call stays in `held` */
	bool hold_bidi; /* Bidi: messages are taken and not echoed */
	struct grpc_call *held;
	struct grpc_call *bidi; /* the last one started */
	size_t fill;  /* Fill: messages still to send */
	bool locked;  /* calls need `authorization: Bearer secret`, once; their caller is the rig */
	int let_in, over; /* callers given out, and given back */
	enum status_code over_code;
};

/* "/test.Echo/Unary" answers the request's bytes, with the refusal below when they begin with "!";
 * "/test.Echo/Safe" does the same, by GET too;
 * "/test.Echo/Bidi" echoes each message and ends OK after the peer's half-close; "!" ends it with a refusal;
 * "/test.Echo/Session" does the same, apart from the others; all of these free the server at "~";
 * "/test.Echo/Fill" (server stream) sends r->fill messages of 1,000 bytes and more as on_writable comes. */
void rig_init(struct rig *r, const struct grpc_limits *server_limits, const struct grpc_limits *client_limits, enum over over);
void rig_done(struct rig *r);

/* What one client call saw. */
struct seen {
	struct rig *rig;
	struct grpc_client_call *call;
	int messages, writable;
	struct buf bytes; /* of all messages, in a row */
	bool done;
	struct grpc_status status;
	char details[256];
};
void seen_init(struct seen *s, struct rig *r);
void seen_done(struct seen *s);
void start(struct seen *s, const char *path, enum grpc_call_kind kind, int64_t deadline_mono_ns);

/* Turns the loop until `cond`; fails the test after 20 s. */
#define until(r, cond)                                                                            \
	do {                                                                                      \
		int64_t give_up_ = clock_mono_ns() + 20 * NS_PER_S;                               \
		while (!(cond)) {                                                                 \
			if (clock_mono_ns() > give_up_)                                           \
				fail_msg("not seen within 20 s: %s", #cond);                      \
			loop_turn((r)->loop, (r)->listener != NULL && !rig_poll);                 \
		}                                                                                 \
	} while (0)
extern bool rig_poll;
int64_t clock_mono_ns(void);

#endif

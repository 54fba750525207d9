/* Requests to server reflection, as one stream of messages; after a first byte of 255 a descriptor set and a name, since that is read
 * by hand.  Else: each message is a byte with its length, then its bytes. */
#include <stdlib.h>
#include <string.h>

#include "common/grpc/client.h"
#include "common/pb/pb.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "server/rpc/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define MESSAGES_MAX 32

static struct {
	struct loop *loop;
	struct rpc rpc;
	struct grpc_server *server;
	struct grpc_channel *channel;
	struct {
		const uint8_t *data;
		size_t len;
	} sent[MESSAGES_MAX];
	size_t n_sent, n_got;
	bool done;
	enum status_code code;
} T;

/* In order, to the request that it repeats, and readable. */
static void on_message(void *arg, const uint8_t *data, size_t len)
{
	struct refusal r;
	Grpc__Reflection__V1__ServerReflectionResponse *m =
		pb_unpack(&grpc__reflection__v1__server_reflection_response__descriptor, data, len, NULL, &r);
	if (!m || T.n_got == T.n_sent || m->message_response_case == GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE__NOT_SET)
		abort();
	size_t n = T.sent[T.n_got].len;
	Grpc__Reflection__V1__ServerReflectionRequest *q =
		pb_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, T.sent[T.n_got].data, n, NULL, &r);
	if (!q || strcmp(q->host, m->valid_host) != 0)
		abort();
	pb_free(q);
	pb_free(m);
	T.n_got++;
}

static void on_status(void *arg, const struct grpc_status *status)
{
	T.done = true;
	T.code = status->code;
}

static void on_ready(void *arg) {}
static void on_closed(void *arg, const char *text) { abort(); }

static void set_up(void)
{
	static const struct stream_events none;
	struct stream *a, *b;
	if (loop_new(&T.loop) < 0)
		abort();
	T.rpc.loop = T.loop;
	rpc_init(&T.rpc);
	struct grpc_server_config sc = { .methods = rpc_methods, .n_methods = rpc_n_methods, .app = &T.rpc, .max_connections = 9 };
	struct grpc_channel_config cc = { .authority = "a", .on_ready = on_ready, .on_closed = on_closed };
	grpc_limits_default(&sc.limits);
	grpc_limits_default(&cc.limits);
	if (grpc_server_new(T.loop, &sc, &T.server) < 0 || stream_pair(T.loop, 65536, &none, NULL, &none, NULL, &a, &b) < 0 ||
	    grpc_server_adopt(T.server, a) < 0 || grpc_channel_adopt(T.loop, b, &cc, &T.channel) < 0)
		abort();
}

static void look_up(const uint8_t *data, size_t len)
{
	struct descriptors d;
	char name[256] = "";
	size_t n = len ? min_sz(data[0], len - 1) : 0;
	int32_t numbers[DESCRIPTORS_EXTENSIONS_MAX];
	if (!len)
		return;
	memcpy(name, data + 1, n);
	if (descriptors_init(&d, data + 1 + n, len - 1 - n) < 0)
		return;
	(void)descriptors_file(&d, name);
	(void)descriptors_symbol(&d, name);
	(void)descriptors_has_message(&d, name);
	(void)descriptors_extension(&d, name, 1);
	(void)descriptors_extensions(&d, name, numbers);
	for (size_t i = 0; i < d.n; i++)
		if (!(descriptors_closure(&d, (int)i) >> i & 1))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const struct grpc_call_events events = { .on_message = on_message, .on_status = on_status };
	struct grpc_client_call *c;
	if (!T.loop)
		set_up();
	if (len && data[0] == 255) {
		look_up(data + 1, len - 1);
		return 0;
	}
	T.n_sent = T.n_got = 0;
	T.done = false;
	if (grpc_call_start(T.channel, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", GRPC_CALL_STREAM, GRPC_NO_DEADLINE,
			    &events, NULL, &c) < 0)
		abort();
	while (len && T.n_sent < MESSAGES_MAX) {
		size_t n = min_sz(data[0], len - 1);
		T.sent[T.n_sent].data = data + 1;
		T.sent[T.n_sent++].len = n;
		if (grpc_client_send(c, data + 1, n) < 0)
			abort();
		data += 1 + n;
		len -= 1 + n;
	}
	grpc_client_half_close(c);
	for (int i = 0; !T.done; i++) {
		if (i == 10000)
			abort(); /* no answer and no end */
		loop_turn(T.loop, false);
	}
	/* All were answered, or the one after the last answer was refused. */
	if (T.code == STATUS_OK ? T.n_got != T.n_sent : T.code != STATUS_INVALID_ARGUMENT || T.n_got >= T.n_sent)
		abort();
	return 0;
}

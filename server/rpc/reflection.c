/* grpc.reflection.v1 and v1alpha, which are the same messages under two names.  One answer per request, in order; what is
 * asked for and not there is an answer too (error_response), so that the stream goes on.
 *
 * A file comes with those that it imports, each once per stream; the one asked for always comes. */
#include <errno.h>
#include <stdio.h>

#include "common/pb/pb.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "server/rpc/rpc.h"
#include "server/rpc/wire.h"

#define STREAMS_MAX 1000
#define REPLY_MAX (1024 * 1024)
#define PATIENCE_NS (600 * NS_PER_S) /* without a request: then the stream ends */

/* Fields of ServerReflectionResponse. */
enum { OUT_HOST = 1, OUT_REQUEST = 2, OUT_FILES = 4, OUT_NUMBERS = 5, OUT_SERVICES = 6, OUT_ERROR = 7 };

struct reflection {
	struct rpc_parked parked;
	struct rpc *rpc;
	struct grpc_call *call;
	uint64_t sent;   /* files, a bit each */
	struct buf held; /* an answer that waits for room; the call is paused then */
	struct refusal impatient;
};

typedef Grpc__Reflection__V1__ServerReflectionRequest request;
#define ASKS(x) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##x

static void expect(struct reflection *s)
{
	grpc_call_patience(s->call, GRPC_NO_DEADLINE, NULL);
	grpc_call_patience(s->call, loop_now_mono_ns(s->rpc->loop) + PATIENCE_NS, &s->impatient);
}

static void on_stopping(struct rpc_parked *p)
{
	rpc_refuse_stopping(container_of(p, struct reflection, parked)->call);
}

void reflection_on_start(struct grpc_call *call)
{
	struct rpc *rpc = rpc_of(call);
	if (rpc->draining) {
		rpc_refuse_stopping(call);
		return;
	}
	struct reflection *s = rpc->reflections < STREAMS_MAX ? calloc(1, sizeof(*s)) : NULL;
	if (!s) {
		struct refusal r;
		(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "too many reflection streams at this server; %d may be open", STREAMS_MAX);
		(void)refuse_reason(&r, REASON_TOO_MANY_STREAMS);
		(void)refuse_more(&r, "limit", "%d", STREAMS_MAX);
		grpc_call_finish(call, &r);
		return;
	}
	rpc->reflections++;
	s->rpc = rpc;
	s->call = call;
	s->parked.end = on_stopping;
	list_push_back(&rpc->parked, &s->parked.node);
	buf_init(&s->held, REPLY_MAX);
	(void)refuse(&s->impatient, STATUS_DEADLINE_EXCEEDED, NULL, "no request on this stream for %d s",
		     (int)(PATIENCE_NS / NS_PER_S));
	grpc_call_set_user(call, s);
	expect(s);
}

/* ---- answers: each appends one field to b ---- */

static int put_error(struct buf *b, enum status_code code, const char *what, const char *name)
{
	struct buf e;
	struct refusal cut; /* cuts between characters */
	(void)refuse(&cut, code, NULL, "%s%s%s", what, *name ? ": " : "", name);
	buf_init(&e, 600);
	int rc = wire_put_int(&e, 1, code);
	if (rc == 0)
		rc = wire_put_text(&e, 2, cut.message);
	if (rc == 0)
		rc = wire_put_len(b, OUT_ERROR, buf_head(&e), buf_len(&e));
	buf_done(&e);
	return rc;
}

static int put_files(struct reflection *s, struct buf *b, int file, const char *name)
{
	const struct descriptors *d = &s->rpc->protos;
	if (file < 0)
		return put_error(b, STATUS_NOT_FOUND, "not found", name);
	uint64_t all = descriptors_closure(d, file), own = UINT64_C(1) << file;
	uint64_t due = (all & ~s->sent) | own;
	struct buf files;
	buf_init(&files, REPLY_MAX);
	int rc = wire_put_len(&files, 1, d->at[file].file.data, d->at[file].file.len);
	for (size_t i = 0; i < d->n && rc == 0; i++)
		if (due & ~own & UINT64_C(1) << i)
			rc = wire_put_len(&files, 1, d->at[i].file.data, d->at[i].file.len);
	if (rc == 0)
		rc = wire_put_len(b, OUT_FILES, buf_head(&files), buf_len(&files));
	if (rc == 0)
		s->sent |= due;
	buf_done(&files);
	return rc;
}

static int put_services(struct buf *b)
{
	struct buf all;
	int rc = 0;
	buf_init(&all, REPLY_MAX);
	for (size_t i = 0; i < rpc_n_methods && rc == 0; i++) {
		const char *name;
		size_t len;
		struct buf one;
		if (!rpc_service_of(i, &name, &len))
			continue;
		buf_init(&one, 512);
		rc = wire_put_len(&one, 1, name, len);
		if (rc == 0)
			rc = wire_put_len(&all, 1, buf_head(&one), buf_len(&one));
		buf_done(&one);
	}
	if (rc == 0)
		rc = wire_put_len(b, OUT_SERVICES, buf_head(&all), buf_len(&all));
	buf_done(&all);
	return rc;
}

static int put_numbers(const struct reflection *s, struct buf *b, const char *type)
{
	int32_t numbers[DESCRIPTORS_EXTENSIONS_MAX];
	struct buf out, packed;
	if (!descriptors_has_message(&s->rpc->protos, type))
		return put_error(b, STATUS_NOT_FOUND, "no such message", type);
	size_t n = descriptors_extensions(&s->rpc->protos, type, numbers);
	buf_init(&out, 16 * DESCRIPTORS_EXTENSIONS_MAX);
	buf_init(&packed, 10 * DESCRIPTORS_EXTENSIONS_MAX);
	int rc = wire_put_text(&out, 1, type);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = wire_put_varint(&packed, (uint64_t)(int64_t)numbers[i]);
	if (rc == 0 && n)
		rc = wire_put_len(&out, 2, buf_head(&packed), buf_len(&packed));
	if (rc == 0)
		rc = wire_put_len(b, OUT_NUMBERS, buf_head(&out), buf_len(&out));
	buf_done(&packed);
	buf_done(&out);
	return rc;
}

static int put_answer(struct reflection *s, const request *q, struct buf *b)
{
	const struct descriptors *d = &s->rpc->protos;
	char what[300];
	switch (q->message_request_case) {
	case ASKS(LIST_SERVICES):
		return put_services(b);
	case ASKS(FILE_BY_FILENAME):
		return put_files(s, b, descriptors_file(d, q->file_by_filename), q->file_by_filename);
	case ASKS(FILE_CONTAINING_SYMBOL):
		return put_files(s, b, descriptors_symbol(d, q->file_containing_symbol), q->file_containing_symbol);
	case ASKS(FILE_CONTAINING_EXTENSION):
		snprintf(what, sizeof(what), "extension %d of %.200s", (int)q->file_containing_extension->extension_number,
			 q->file_containing_extension->containing_type);
		return put_files(s, b,
				 descriptors_extension(d, q->file_containing_extension->containing_type,
						       q->file_containing_extension->extension_number),
				 what);
	case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
		return put_numbers(s, b, q->all_extension_numbers_of_type);
	default:
		return put_error(b, STATUS_INVALID_ARGUMENT, "nothing is asked for that this server knows", "");
	}
}

static void send_answer(struct reflection *s, const struct buf *b)
{
	int rc = grpc_call_send(s->call, buf_head(b), buf_len(b));
	if (rc == -EAGAIN) {
		rc = buf_add(&s->held, buf_head(b), buf_len(b));
		grpc_call_pause(s->call, true);
	}
	if (rc && rc != -EPIPE)
		rpc_refuse_room(s->call, "no room for the answer");
}

void reflection_on_message(struct grpc_call *call, const uint8_t *data, size_t len)
{
	struct reflection *s = grpc_call_user(call);
	request *q = s ? rpc_unpack(call, &grpc__reflection__v1__server_reflection_request__descriptor, data, len) : NULL;
	if (!q)
		return;
	struct buf b;
	buf_init(&b, REPLY_MAX);
	int rc = wire_put_text(&b, OUT_HOST, q->host);
	if (rc == 0)
		rc = wire_put_len(&b, OUT_REQUEST, data, len);
	if (rc == 0)
		rc = put_answer(s, q, &b);
	if (rc == 0)
		send_answer(s, &b);
	else
		rpc_refuse_room(call, "no room for the answer");
	buf_done(&b);
	pb_free(q);
	expect(s);
}

void reflection_on_writable(struct grpc_call *call)
{
	struct reflection *s = grpc_call_user(call);
	if (!s || !buf_len(&s->held))
		return;
	int rc = grpc_call_send(call, buf_head(&s->held), buf_len(&s->held));
	if (rc == -EAGAIN)
		return;
	buf_clear(&s->held);
	grpc_call_pause(call, false);
}

void reflection_on_half_close(struct grpc_call *call)
{
	grpc_call_finish(call, NULL);
}

void reflection_on_end(struct grpc_call *call, bool finished)
{
	struct reflection *s = grpc_call_user(call);
	if (!s)
		return;
	s->rpc->reflections--;
	list_remove(&s->parked.node);
	buf_done(&s->held);
	free(s);
}

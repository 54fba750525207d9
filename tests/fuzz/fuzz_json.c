/* The first byte chooses the message type, the rest is JSON.  Held: what is read is a message that pb_check takes with the
 * same limits, or is refused with text that is UTF-8; written as JSON it is read again, as the same message, and that is
 * written in the same way.  What jansson takes for malformed is refused (jansson takes some things that we don't). */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/json_in.h"
#include "common/pb/json_out.h"
#include "common/pb/utf8.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "pb_test.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"

#define HOLD(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not held: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#define BUF_MAX ((size_t)16 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const struct pb_limits limits = { .depth = 40, .fields = 5000, .unknown = 500, .memory = 4 << 20 };

static void check_refusal(const struct refusal *r)
{
	HOLD(r->code == STATUS_INVALID_ARGUMENT || r->code == STATUS_RESOURCE_EXHAUSTED);
	HOLD(r->message[0] && utf8_valid(r->message, strlen(r->message)) && utf8_valid(r->field, strlen(r->field)));
}

static void check_syntax(const uint8_t *data, size_t len)
{
	json_error_t e;
	json_t *j = json_loadb((const char *)data, len, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &e);
	HOLD(j || strstr(e.text, "overflow"));
	json_decref(j);
}

/* What a message says, in one spelling. */
static bool write(const ProtobufCMessageDescriptor *type, const struct buf *wire, unsigned flags, struct buf *ret_text)
{
	int rc = pb_json_write_wire(type, buf_head(wire), buf_len(wire), flags, ret_text);
	HOLD(rc == 0 || rc == -ENOBUFS);
	return rc == 0;
}

static void check_message(const ProtobufCMessageDescriptor *type, const struct buf *wire)
{
	struct buf text, again, text_again;
	struct refusal r = { 0 };
	buf_init(&text, BUF_MAX);
	buf_init(&again, BUF_MAX);
	buf_init(&text_again, BUF_MAX);
	if (pb_check(type, buf_head(wire), buf_len(wire), &limits, &r))
		HOLD(r.code == STATUS_RESOURCE_EXHAUSTED && strstr(r.message, "of memory"));
	else if (write(type, wire, 0, &text)) {
		HOLD(pb_json_read(type, (const char *)buf_head(&text), buf_len(&text), &limits, &again, &r) == 0);
		HOLD(write(type, &again, 0, &text_again) && buf_len(&text) == buf_len(&text_again));
		HOLD(memcmp(buf_head(&text), buf_head(&text_again), buf_len(&text)) == 0);
		/* With what was left out, and blanks: there may be a little too many fields now. */
		buf_clear(&text);
		buf_clear(&again);
		buf_clear(&text_again);
		HOLD(write(type, wire, PB_JSON_EMIT_DEFAULTS | PB_JSON_PRETTY, &text));
		if (pb_json_read(type, (const char *)buf_head(&text), buf_len(&text), &limits, &again, &r) == 0) {
			HOLD(write(type, &again, PB_JSON_EMIT_DEFAULTS | PB_JSON_PRETTY, &text_again));
			HOLD(buf_len(&text) == buf_len(&text_again));
			HOLD(memcmp(buf_head(&text), buf_head(&text_again), buf_len(&text)) == 0);
		} else {
			HOLD(r.code == STATUS_RESOURCE_EXHAUSTED);
		}
	}
	buf_done(&text);
	buf_done(&again);
	buf_done(&text_again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const ProtobufCMessageDescriptor *const types[] = {
		&reins__test__shapes__descriptor,
		&reins__v1__submit_tasks_request__descriptor,
		&reins__v1__list_tasks_request__descriptor,
		&reins__v1__task__descriptor,
		&google__rpc__status__descriptor,
		&grpc__reflection__v1__server_reflection_request__descriptor,
		&reins__v1__server_info__descriptor,
	};
	struct refusal r = { 0 };
	struct buf wire;
	if (!len)
		return 0;
	const ProtobufCMessageDescriptor *type = types[data[0] % ARRAY_LEN(types)];
	buf_init(&wire, BUF_MAX);
	if (pb_json_read(type, (const char *)data + 1, len - 1, &limits, &wire, &r)) {
		HOLD(buf_len(&wire) == 0);
		check_refusal(&r);
	} else {
		check_syntax(data + 1, len - 1);
		check_message(type, &wire);
	}
	buf_done(&wire);
	return 0;
}

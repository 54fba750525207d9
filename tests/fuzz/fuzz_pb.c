/* The first byte chooses the message type, the rest is the message.  Held: what the pre-scan
 * accepts protobuf-c unpacks within the memory that was measured; it packs and unpacks again to the same bytes;
 * as JSON it is a document without a key twice. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/json_out.h"
#include "common/pb/pb.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "pb_test.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"
#include "reins/v1/worker_service.pb-c.h"

#define HOLD(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not held: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check_json(const void *message, unsigned flags)
{
	struct buf b;
	buf_init(&b, (size_t)64 << 20);
	int rc = pb_json_write(message, flags, &b);
	HOLD(rc == 0 || rc == -ERANGE);
	if (rc == 0) {
		json_error_t e;
		json_t *j = json_loadb((const char *)buf_head(&b), buf_len(&b), JSON_REJECT_DUPLICATES, &e);
		HOLD(j || strstr(e.text, "recursion"));
		json_decref(j);
	}
	buf_done(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	static const ProtobufCMessageDescriptor *const types[] = {
		&reins__test__shapes__descriptor,
		&reins__v1__task__descriptor,
		&reins__v1__submit_tasks_request__descriptor,
		&reins__v1__worker_message__descriptor,
		&reins__v1__master_message__descriptor,
		&reins__v1__server_info__descriptor,
		&reins__v1__list_tasks_request__descriptor,
		&google__rpc__status__descriptor,
		&grpc__reflection__v1__server_reflection_response__descriptor,
	};
	static const struct pb_limits limits = { .depth = 20, .fields = 5000, .unknown = 500, .memory = 4 << 20 };
	struct refusal r = { 0 };
	if (!len)
		return 0;
	const ProtobufCMessageDescriptor *type = types[data[0] % ARRAY_LEN(types)];
	int good = pb_check(type, data + 1, len - 1, &limits, &r);
	void *m = pb_unpack(type, data + 1, len - 1, &limits, &r);
	HOLD(m ? good == 0 : r.code == STATUS_INVALID_ARGUMENT || r.code == STATUS_RESOURCE_EXHAUSTED);
	if (!m)
		return 0;
	struct blob *first = pb_pack_blob(m);
	HOLD(first);
	check_json(m, 0);
	check_json(m, PB_JSON_EMIT_DEFAULTS | PB_JSON_PRETTY);
	pb_free(m);
	m = pb_unpack(type, first->data, first->len, &limits, &r);
	if (m) {
		struct blob *second = pb_pack_blob(m);
		HOLD(second && second->len == first->len && memcmp(first->data, second->data, first->len) == 0);
		blob_unref(second);
	} else {
		HOLD(r.code == STATUS_RESOURCE_EXHAUSTED);
	}
	pb_free(m);
	blob_unref(first);
	return 0;
}

/* ProtoJSON by common/pb, for tests that compare it with what others make of it.  Reads requests from stdin, answers each:
 *   in TYPE LEN\n  and LEN bytes of JSON     -> ok LEN\n and the packed message, or no LEN\n and "FIELD\nMESSAGE"
 *   out FLAGS TYPE LEN\n  and LEN bytes      -> ok LEN\n and the JSON, or no LEN\n and the number of the error */
#include <stdio.h>
#include <string.h>

#include "common/pb/json_in.h"
#include "common/pb/json_out.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "pb_test.pb-c.h"
#include "reins/v1/admin_service.pb-c.h"
#include "reins/v1/task_service.pb-c.h"
#include "reins/v1/worker_service.pb-c.h"

#define BYTES_MAX ((size_t)64 << 20)

static const ProtobufCServiceDescriptor *const services[] = {
	&reins__v1__task_service__descriptor,
	&reins__v1__admin_service__descriptor,
	&reins__v1__worker_service__descriptor,
	&grpc__health__v1__health__descriptor,
	&grpc__reflection__v1__server_reflection__descriptor,
};

/* Of no method. */
static const ProtobufCMessageDescriptor *const others[] = {
	&reins__test__shapes__descriptor,
	&google__rpc__status__descriptor,
	&google__rpc__error_info__descriptor,
	&google__protobuf__timestamp__descriptor,
	&google__protobuf__duration__descriptor,
};

static const ProtobufCMessageDescriptor *find_type(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(services); i++)
		for (unsigned k = 0; k < services[i]->n_methods; k++) {
			const ProtobufCMethodDescriptor *m = &services[i]->methods[k];
			if (strcmp(m->input->name, name) == 0 || strcmp(m->output->name, name) == 0)
				return strcmp(m->input->name, name) == 0 ? m->input : m->output;
		}
	for (size_t i = 0; i < ARRAY_LEN(others); i++)
		if (strcmp(others[i]->name, name) == 0)
			return others[i];
	fprintf(stderr, "there is no type %s here\n", name);
	exit(2);
}

static void answer(const char *word, const void *data, size_t len)
{
	printf("%s %zu\n", word, len);
	if (len)
		fwrite(data, 1, len, stdout);
	fflush(stdout);
}

static void read_json(const ProtobufCMessageDescriptor *type, const char *text, size_t len, struct buf *b)
{
	struct refusal r = { 0 };
	char no[sizeof(r.field) + sizeof(r.message) + 2];
	if (!pb_json_read(type, text, len, NULL, b, &r) && !pb_check(type, buf_head(b), buf_len(b), NULL, &r))
		answer("ok", buf_head(b), buf_len(b));
	else
		answer("no", no, (size_t)snprintf(no, sizeof(no), "%s\n%s", r.field, r.message));
}

static void write_json(const ProtobufCMessageDescriptor *type, unsigned flags, const void *wire, size_t len, struct buf *b)
{
	char no[16];
	int rc = pb_json_write_wire(type, wire, len, flags, b);
	if (rc)
		answer("no", no, (size_t)snprintf(no, sizeof(no), "%d", rc));
	else
		answer("ok", buf_head(b), buf_len(b));
}

int main(void)
{
	char line[512], type[256];
	while (fgets(line, sizeof(line), stdin)) {
		size_t len;
		unsigned flags = 0;
		bool in = sscanf(line, "in %255s %zu", type, &len) == 2;
		if (!in && sscanf(line, "out %u %255s %zu", &flags, type, &len) != 3)
			return 2;
		/* Of just this size, for the sanitizers. */
		char *data = len <= BYTES_MAX ? malloc(len ? len : 1) : NULL;
		if (!data || fread(data, 1, len, stdin) != len)
			return 2;
		struct buf b;
		buf_init(&b, BYTES_MAX);
		if (in)
			read_json(find_type(type), data, len, &b);
		else
			write_json(find_type(type), flags, data, len, &b);
		buf_done(&b);
		free(data);
	}
	return 0;
}

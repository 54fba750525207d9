/* The arena of an unpacked message lies just before the message, in the same allocation,
 * which pb_check_measure made large enough; what comes later (pb_alloc) goes into chunks, as
 * far as limits.memory allows.  Relies on protobuf_c_message_unpack allocating the message first. */
#include "common/pb/pb.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/pb/check.h"

#define CHUNK_BYTES 4096

struct chunk {
	struct chunk *next;
	uint64_t data[];
};

struct arena {
	struct chunk *chunks;
	uint8_t *at;
	uint8_t *end;
	size_t left; /* bytes that further chunks may take */
	bool failed; /* an allocation was refused */
	uint64_t data[];
};

static void *arena_alloc(void *self, size_t size)
{
	struct arena *a = self;
	if (size > SIZE_MAX / 2)
		return NULL;
	size = max_sz((size + 7) & ~(size_t)7, 8);
	if (size > (size_t)(a->end - a->at)) {
		size_t room = max_sz(size, min_sz(CHUNK_BYTES, a->left));
		struct chunk *c = room <= a->left ? malloc(sizeof(*c) + room) : NULL;
		if (!c) {
			a->failed = true;
			return NULL;
		}
		a->left -= room;
		c->next = a->chunks;
		a->chunks = c;
		a->at = (uint8_t *)c->data;
		a->end = a->at + room;
	}
	void *p = a->at;
	a->at += size;
	return p;
}

static void arena_ignore_free(void *self, void *p)
{
}

static void arena_free(struct arena *a)
{
	while (a->chunks) {
		struct chunk *c = a->chunks;
		a->chunks = c->next;
		free(c);
	}
	free(a);
}

static struct arena *arena_of(void *message) { return container_of(message, struct arena, data); }

void *pb_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, struct refusal *ret_refusal)
{
	size_t memory;
	if (!limits)
		limits = &pb_limits_default;
	if (pb_check_measure(type, data, len, limits, &memory, ret_refusal))
		return NULL;
	struct arena *a = malloc(sizeof(*a) + memory);
	if (!a) {
		refuse_no_memory(ret_refusal, "no memory for a message of %zu bytes", len);
		return NULL;
	}
	*a = (struct arena){ .at = (uint8_t *)a->data, .end = (uint8_t *)a->data + memory, .left = limits->memory - memory };
	ProtobufCAllocator allocator = { .alloc = arena_alloc, .free = arena_ignore_free, .allocator_data = a };
	void *message = protobuf_c_message_unpack(type, &allocator, len, len ? data : (const uint8_t *)"");
	if (!message) {
		if (a->failed)
			refuse(ret_refusal, STATUS_RESOURCE_EXHAUSTED, NULL,
				"the message takes more than %zu bytes of memory when unpacked", limits->memory);
		else
			refuse(ret_refusal, STATUS_INTERNAL, NULL, "a message that was found good could not be unpacked");
		arena_free(a);
		return NULL;
	}
	assert(message == (void *)a->data);
	return message;
}

void pb_free(void *message)
{
	if (message)
		arena_free(arena_of(message));
}

void *pb_alloc(void *message, size_t size)
{
	void *p = arena_alloc(arena_of(message), size);
	if (p)
		memset(p, 0, size);
	return p;
}

int pb_pack(const void *message, struct buf *b)
{
	size_t n = protobuf_c_message_get_packed_size(message);
	uint8_t *at = buf_reserve(b, n);
	if (!at)
		return n > buf_room(b) ? -ENOBUFS : -ENOMEM;
	buf_commit(b, protobuf_c_message_pack(message, at));
	return 0;
}

struct blob *pb_pack_blob(const void *message)
{
	struct blob *b = blob_new(NULL, protobuf_c_message_get_packed_size(message));
	if (b)
		protobuf_c_message_pack(message, b->data);
	return b;
}

/* Protobuf messages from and to bytes, on protobuf-c, whose unpack trusts its input too far:
 * it recurses without a limit, accepts strings that are not UTF-8 and cuts them at a NUL, and
 * takes some forty times the input in memory.  So every message from a peer or the store
 * goes through pb_unpack, which reads the bytes once before protobuf-c sees them. */
#ifndef REINS_PB_H
#define REINS_PB_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/refusal.h"
#include "google/protobuf/duration.pb-c.h"
#include "google/protobuf/timestamp.pb-c.h"

struct pb_limits {
	unsigned depth;   /* messages inside each other, the outermost is 1; against a stack overflow */
	uint32_t fields;  /* occurrences of fields, at all depths; elements of packed fields count */
	uint32_t unknown; /* of these, fields that the message type does not have: they cost most */
	size_t memory;    /* bytes that the unpacked message may take, scratch of unpacking included */
};

#define PB_DEPTH_MAX 100 /* limits.depth above this is taken as this */

/* 100, 200,000, 10,000, 32 MiB.  Used where `limits` is NULL. */
extern const struct pb_limits pb_limits_default;

/* Is this a message of the type, with known fields in their wire type, valid text in every
 * string (UTF-8, no NUL), no singular message twice (scalars may be; the last counts), and
 * within the limits?  0, or -1 with *ret_refusal filled:
 * INVALID_ARGUMENT, or RESOURCE_EXHAUSTED for `fields`, `unknown` and `memory`; `field` is the path as in
 * "requests[3].spec.labels[0].key", as far as it fits. */
int pb_check(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, struct refusal *ret_refusal) MUST_CHECK;

/* pb_check, then the message, to be given to pb_free:
 *	Reins__V1__Hello *hello = pb_unpack(&reins__v1__hello__descriptor, data, len, NULL, &refusal);
 * NULL: refused, as by pb_check; also RESOURCE_EXHAUSTED when there is no memory.  The message
 * holds copies, not pointers into `data`.  It is one allocation as a rule.  Its fields may be
 * changed and may point elsewhere; nothing in it is freed alone. */
void *pb_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, struct refusal *ret_refusal) MUST_CHECK;
/* Only for what pb_unpack returned; NULL-safe. */
void pb_free(void *message);
/* Memory that lives as long as the message: zeroed, aligned to 8.  NULL over limits.memory or without memory. */
void *pb_alloc(void *message, size_t size) MUST_CHECK;

/* Appends the encoded message.  -ENOBUFS, -ENOMEM: nothing is added. */
int pb_pack(const void *message, struct buf *b) MUST_CHECK;
/* NULL without memory, or for 4 GiB and more. */
struct blob *pb_pack_blob(const void *message) MUST_CHECK;

/* Times.  NULL is 0.  -ERANGE: not a valid value of the type (years 1 to 9999, nanos 0 to 999,999,999; durations
 * of 10,000 years either way with both parts of one sign), or more than int64 holds. */
int pb_timestamp_us(const Google__Protobuf__Timestamp *t, int64_t *ret_wall_us) MUST_CHECK;
int pb_duration_ns(const Google__Protobuf__Duration *d, int64_t *ret_ns) MUST_CHECK;
/* A valid value of the type, whether or not int64 holds it in ns. */
bool pb_duration_valid(const Google__Protobuf__Duration *d);
/* Initialise *t, *d. */
void pb_timestamp_set(Google__Protobuf__Timestamp *t, int64_t wall_us);
void pb_duration_set(Google__Protobuf__Duration *d, int64_t ns);

/* Map fields arrive as arrays of entries in which a key may come again; the last one counts.
 * Both take any map<string, …> as generated: `(const void *)spec->labels, spec->n_labels`. */
/* Index of the entry that counts, or -1. */
ptrdiff_t pb_map_find(const void *entries, size_t n, const char *key);
/* The value of a map<string, string>, or NULL. */
const char *pb_map_get(const void *entries, size_t n, const char *key);
/* Sorts the array by key (bytes) and drops those that don't count.  The new number:
 * `spec->n_labels = pb_map_unique((void *)spec->labels, spec->n_labels)`. */
size_t pb_map_unique(void *entries, size_t n);

#endif

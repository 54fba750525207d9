/* Reads the few fields of replies that a load generator needs, straight from the bytes: unpacking whole messages would
 * make the generator, which shares the machine with the server, the thing that is measured. */
#ifndef REINS_BENCH_SCAN_H
#define REINS_BENCH_SCAN_H

#include "common/base/id.h"

struct scan {
	const uint8_t *at, *end;
	bool bad; /* the bytes are no protobuf message */
};

struct scan_field {
	uint32_t number;
	uint64_t value;      /* varint and fixed fields */
	const uint8_t *data; /* length-delimited fields, else NULL */
	size_t len;
};

static inline struct scan scan_of(const uint8_t *data, size_t len)
{
	return (struct scan){ data, data + len, false };
}
/* False at the end, or when the rest can't be read (s->bad). */
bool scan_next(struct scan *s, struct scan_field *ret);
/* The first field of this number with bytes in it; false when there is none. */
bool scan_find(const uint8_t *data, size_t len, uint32_t number, struct scan_field *ret);
/* Messages that begin with { 1: task id, 2: attempt }: most of the protocol's.  -EINVAL without an id. */
int scan_attempt(const uint8_t *data, size_t len, struct uuid *ret_id, int32_t *ret_attempt) MUST_CHECK;

#endif

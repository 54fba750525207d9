/* Hand-placed protobuf fields, for the few messages that carry an encoded message inside
 * (Task.spec, DispatchedTask.spec): the bytes go out as they were stored, unknown fields and
 * all, without being unpacked.  Field order is free in protobuf. */
#ifndef REINS_WIRE_H
#define REINS_WIRE_H

#include "common/base/buf.h"

enum wire_type { WIRE_VARINT = 0, WIRE_LEN = 2 };

/* All: 0, or -ENOBUFS / -ENOMEM with the buffer as it was before the call that failed. */
int wire_put_varint(struct buf *b, uint64_t v) MUST_CHECK;
int wire_put_int(struct buf *b, uint32_t field, int64_t v) MUST_CHECK; /* a zero is left out, as proto3 does */
int wire_put_len(struct buf *b, uint32_t field, const void *data, size_t len) MUST_CHECK;
int wire_put_text(struct buf *b, uint32_t field, const char *s) MUST_CHECK; /* "" and NULL are left out */
/* The head of a field whose `len` bytes the caller adds next. */
int wire_put_head(struct buf *b, uint32_t field, size_t len) MUST_CHECK;
size_t wire_varint_size(uint64_t v);

/* Goes through the fields of an encoded message: the next one, or false at the end and at bytes that are no field,
 * where *p stays. */
struct wire_field {
	uint32_t number;
	unsigned type;       /* as on the wire; groups end the walk */
	uint64_t value;      /* of a varint */
	const uint8_t *data; /* else: its bytes */
	size_t len;
};
bool wire_next(const uint8_t **p, const uint8_t *end, struct wire_field *ret);

/* The first occurrence of a length-delimited field in an encoded message that pb_check has passed.
 * False: absent. */
bool wire_find_len(const uint8_t *msg, size_t len, uint32_t field, const uint8_t **ret_data, size_t *ret_len);

#endif

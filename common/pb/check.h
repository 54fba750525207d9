/* Inside common/pb only: the wire format, and the pre-scan with what it learned about memory. */
#ifndef REINS_PB_CHECK_H
#define REINS_PB_CHECK_H

#include "common/pb/pb.h"

#define PB_TYPE_FIELDS_MAX 128 /* fields of a message type; ours have fewer */

enum wire { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_LENGTH = 2, WIRE_32BIT = 5 };

/* Of a single value; packed ones are WIRE_LENGTH. */
enum wire pb_wire_of(ProtobufCType type);

/* pb_check; *ret_memory is what unpacking takes at most with an allocator that never reuses. */
int pb_check_measure(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, size_t *ret_memory, struct refusal *ret_refusal) MUST_CHECK;

#endif

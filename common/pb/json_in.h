/* Protobuf messages from ProtoJSON text: the way back from json_out.h. */
#ifndef REINS_JSON_IN_H
#define REINS_JSON_IN_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/refusal.h"
#include "common/pb/pb.h"

#define PB_JSON_DEPTH_MAX 100 /* objects and lists inside each other, the outermost is 1 */

/* Reads one JSON value, for nearly all types an object, and appends the message that it stands for in the wire format:
 * pb_unpack with the same limits takes it, if limits->memory is enough for it.
 *
 * Keys may be lowerCamelCase or the .proto's own.  Strict where a mistake would go unseen: a field that the type does not
 * have, a key that comes twice (in either spelling), two members of one oneof, `null` inside a list or a map,
 * numbers that don't fit and everything that RFC 8259 does not know are refused.  `null` is as if the field were not there.
 * A google.protobuf.Any must begin with its "@type", which must be a google.rpc type that we know.  Not known: Struct,
 * wrappers, FieldMask, which no type of ours has.
 *
 * 0, or -1 with *ret_refusal filled, and nothing appended.  INVALID_ARGUMENT: `field` is the path in the
 * .proto's names as in "spec.retry.max_attempts", `spec.labels["team"]`, "" where there is none; the message has it
 * too, with line and column.  RESOURCE_EXHAUSTED: over limits->fields or the buffer's maximum, or no memory.
 *
 * Takes time in proportion to len, and beside the buffer at most some 3 × len of memory for a while. */
int pb_json_read(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
	const struct pb_limits *limits_or_null, struct buf *ret_wire, struct refusal *ret_refusal) MUST_CHECK;

#endif

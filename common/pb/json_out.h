/* Protobuf messages as ProtoJSON text: keys in lowerCamelCase, int64 as strings, bytes as
 * base64, enums by name, Timestamp and Duration in their text forms, maps as objects. */
#ifndef REINS_JSON_OUT_H
#define REINS_JSON_OUT_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"
#include "common/base/buf.h"

enum pb_json_flag {
	PB_JSON_EMIT_DEFAULTS = 1, /* also fields at their default; unset messages and oneofs stay away */
	PB_JSON_PRETTY = 2,        /* indented by two blanks, no newline at the end */
};

/* Appends the text.  A string that is not valid UTF-8 is made valid (U+FFFD): what we show
 * must be readable.  Maps are sorted by key; of equal keys the last counts.  A google.protobuf.Any that holds a google.rpc
 * type that we know has its fields beside "@type", another is written as the plain message that it is.
 * -ENOBUFS, -ENOMEM, -ERANGE (a Timestamp or Duration that has no text form), -ELOOP (nested deeper than
 * pb_unpack allows): the buffer is as it was. */
int pb_json_write(const void *message, unsigned flags, struct buf *b) MUST_CHECK;

/* The same of a packed message.  Also -EBADMSG: it is not one of this type (pb_check says what is wrong). */
int pb_json_write_wire(const ProtobufCMessageDescriptor *type, const void *wire, size_t len, unsigned flags,
	struct buf *b) MUST_CHECK;

#define PB_DOUBLE_TEXT_BYTES 32
/* The shortest text that reads back as the same number; "nan", "inf" where it is none. */
void pb_format_double(double v, char ret_text[PB_DOUBLE_TEXT_BYTES]);

#endif

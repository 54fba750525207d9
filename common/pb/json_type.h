/* Inside common/pb only: what ProtoJSON needs to know of a type, from protobuf-c's descriptors. */
#ifndef REINS_PB_JSON_TYPE_H
#define REINS_PB_JSON_TYPE_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/base.h"

#define PB_JSON_NAME_MAX 256

enum pb_special {
	PB_PLAIN, /* an object with the message's fields */
	PB_TIMESTAMP,
	PB_DURATION,
	PB_ANY,
};

enum pb_special pb_special_of(const ProtobufCMessageDescriptor *type);

/* "maxAttempts" of "max_attempts", as protoc makes it; cut at PB_JSON_NAME_MAX - 1.  The length.  A json_name of the
 * .proto's own is not in the descriptors, and unknown here. */
size_t pb_camel_name(const char *name, char ret_camel[PB_JSON_NAME_MAX]);
/* By original or camel name; NULL: there is none. */
const ProtobufCFieldDescriptor *pb_field_by_json_name(const ProtobufCMessageDescriptor *type, const char *name, size_t len);

/* protobuf-c does not mark maps: a repeated `foo_bar` of the messages FooBarEntry in the same type with just `key`
 * and `value` is one (protoc lets nobody write such a message beside). */
bool pb_is_map(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *f);

/* Types that an Any may hold as ProtoJSON: what stands behind the last '/' of its URL.  NULL: not one of them. */
const ProtobufCMessageDescriptor *pb_any_type(const char *url, size_t len);

#endif

/* Messages between protobuf, which handlers read and write, and what a dialect carries instead. */
#ifndef REINS_GRPC_CODEC_H
#define REINS_GRPC_CODEC_H

#include <protobuf-c/protobuf-c.h>

#include "common/base/buf.h"
#include "common/base/refusal.h"

/* Appends the protobuf of a JSON text. -1: refused. `max`: of the result's bytes. */
int codec_read_json(const ProtobufCMessageDescriptor *type, const uint8_t *text, size_t len, size_t max, struct buf *ret_wire,
		    struct refusal *ret_refusal) MUST_CHECK;
/* Appends the JSON text of a protobuf. -ENOBUFS, -ENOMEM; another -errno: it has none. */
int codec_write_json(const ProtobufCMessageDescriptor *type, const uint8_t *wire, size_t len, struct buf *ret_text) MUST_CHECK;

#endif

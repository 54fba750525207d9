/* JSON to protobuf and back, within a limit of bytes.  No state. */
#include "common/grpc/codec.h"

#include "common/pb/json_in.h"
#include "common/pb/json_out.h"

int codec_read_json(const ProtobufCMessageDescriptor *type, const uint8_t *text, size_t len, size_t max, struct buf *ret_wire,
		    struct refusal *ret_refusal)
{
	if (pb_json_read(type, (const char *)text, len, NULL, ret_wire, ret_refusal))
		return -1;
	if (buf_len(ret_wire) <= max)
		return 0;
	(void)refuse(ret_refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "message of %zu bytes as protobuf; the limit is %zu", buf_len(ret_wire),
		     max);
	(void)refuse_more(ret_refusal, "size", "%zu", buf_len(ret_wire));
	(void)refuse_more(ret_refusal, "limit", "%zu", max);
	return refuse_reason(ret_refusal, REASON_MESSAGE_TOO_LARGE);
}

int codec_write_json(const ProtobufCMessageDescriptor *type, const uint8_t *wire, size_t len, struct buf *ret_text)
{
	return pb_json_write_wire(type, wire, len, 0, ret_text);
}

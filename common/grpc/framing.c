/* The five bytes before a message.  No state. */
#include "common/grpc/framing.h"

#include <errno.h>
#include <string.h>

int framing_next(const uint8_t *data, size_t len, size_t max, struct framing_message *ret)
{
	if (len && data[0] > 1)
		return -EBADMSG;
	if (len < FRAMING_PREFIX)
		return 0;
	ret->declared = (uint32_t)data[1] << 24 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 8 | data[4];
	if (ret->declared > max)
		return -EMSGSIZE;
	if (len - FRAMING_PREFIX < ret->declared)
		return 0;
	ret->compressed = data[0];
	ret->data = data + FRAMING_PREFIX;
	ret->len = ret->declared;
	return 1;
}

void framing_prefix(uint8_t ret_prefix[static FRAMING_PREFIX], uint8_t flags, uint32_t len)
{
	ret_prefix[0] = flags;
	ret_prefix[1] = (uint8_t)(len >> 24);
	ret_prefix[2] = (uint8_t)(len >> 16);
	ret_prefix[3] = (uint8_t)(len >> 8);
	ret_prefix[4] = (uint8_t)len;
}

size_t framing_pack_span(const void *span, uint8_t *out)
{
	const struct framing_span *s = span;
	if (s->len)
		memcpy(out, s->data, s->len);
	return s->len;
}

/* Protobuf by hand, for what is put together from parts that are encoded already.  No state. */
#include "server/rpc/wire.h"

#include <errno.h>
#include <string.h>

size_t wire_varint_size(uint64_t v)
{
	size_t n = 1;
	while (v >= 0x80) {
		v >>= 7;
		n++;
	}
	return n;
}

int wire_put_varint(struct buf *b, uint64_t v)
{
	uint8_t out[10];
	size_t n = 0;
	while (v >= 0x80) {
		out[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	out[n++] = (uint8_t)v;
	return buf_add(b, out, n);
}

int wire_put_int(struct buf *b, uint32_t field, int64_t v)
{
	if (v == 0)
		return 0;
	if (buf_room(b) < 20)
		return -ENOBUFS;
	int rc = wire_put_varint(b, (uint64_t)field << 3 | WIRE_VARINT);
	return rc ? rc : wire_put_varint(b, (uint64_t)v);
}

int wire_put_head(struct buf *b, uint32_t field, size_t len)
{
	if (buf_room(b) < 20 + len)
		return -ENOBUFS;
	int rc = wire_put_varint(b, (uint64_t)field << 3 | WIRE_LEN);
	return rc ? rc : wire_put_varint(b, len);
}

int wire_put_len(struct buf *b, uint32_t field, const void *data, size_t len)
{
	int rc = wire_put_head(b, field, len);
	return rc ? rc : buf_add(b, data, len);
}

int wire_put_text(struct buf *b, uint32_t field, const char *s)
{
	return s && *s ? wire_put_len(b, field, s, strlen(s)) : 0;
}

static bool get_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;
	for (int shift = 0; shift < 64 && *p < end; shift += 7) {
		uint8_t byte = *(*p)++;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

bool wire_next(const uint8_t **p, const uint8_t *end, struct wire_field *ret)
{
	const uint8_t *at = *p;
	uint64_t tag, n = 0;
	if (at >= end || !get_varint(&at, end, &tag))
		return false;
	*ret = (struct wire_field){ .number = (uint32_t)(tag >> 3), .type = tag & 7 };
	switch (ret->type) {
	case WIRE_VARINT:
		if (!get_varint(&at, end, &ret->value))
			return false;
		break;
	case 1:
		n = 8;
		break;
	case 5:
		n = 4;
		break;
	case WIRE_LEN:
		if (!get_varint(&at, end, &n))
			return false;
		break;
	default:
		return false;
	}
	if (n > (uint64_t)(end - at))
		return false;
	ret->data = at;
	ret->len = (size_t)n;
	*p = at + n;
	return true;
}

bool wire_find_len(const uint8_t *msg, size_t len, uint32_t field, const uint8_t **ret_data, size_t *ret_len)
{
	const uint8_t *p = msg, *end = msg + len;
	struct wire_field f;
	while (wire_next(&p, end, &f)) {
		if (f.type != WIRE_LEN || f.number != field)
			continue;
		*ret_data = f.data;
		*ret_len = f.len;
		return true;
	}
	return false;
}

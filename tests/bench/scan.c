#include "tests/bench/scan.h"

#include <errno.h>
#include <string.h>

static bool varint(struct scan *s, uint64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; shift < 64 && s->at < s->end; shift += 7) {
		uint8_t b = *s->at++;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = v;
			return true;
		}
	}
	s->bad = true;
	return false;
}

static bool fixed(struct scan *s, size_t n, uint64_t *ret)
{
	if ((size_t)(s->end - s->at) < n) {
		s->bad = true;
		return false;
	}
	*ret = 0;
	for (size_t i = 0; i < n; i++)
		*ret |= (uint64_t)s->at[i] << (8 * i);
	s->at += n;
	return true;
}

bool scan_next(struct scan *s, struct scan_field *ret)
{
	uint64_t key, len;
	if (s->bad || s->at == s->end || !varint(s, &key))
		return false;
	*ret = (struct scan_field){ .number = (uint32_t)(key >> 3) };
	switch (key & 7) {
	case 0:
		return varint(s, &ret->value);
	case 1:
		return fixed(s, 8, &ret->value);
	case 5:
		return fixed(s, 4, &ret->value);
	case 2:
		if (!varint(s, &len) || len > (size_t)(s->end - s->at))
			break;
		ret->data = s->at;
		ret->len = (size_t)len;
		s->at += len;
		return true;
	default:
		break;
	}
	s->bad = true;
	return false;
}

bool scan_find(const uint8_t *data, size_t len, uint32_t number, struct scan_field *ret)
{
	struct scan s = scan_of(data, len);
	struct scan_field f;
	while (scan_next(&s, &f))
		if (f.number == number && f.data) {
			*ret = f;
			return true;
		}
	return false;
}

int scan_attempt(const uint8_t *data, size_t len, struct uuid *ret_id, int32_t *ret_attempt)
{
	struct scan s = scan_of(data, len);
	struct scan_field f;
	bool have = false;
	*ret_attempt = 0;
	while (scan_next(&s, &f)) {
		if (f.number == 1 && f.data)
			have = uuid_parse((const char *)f.data, f.len, ret_id) == 0;
		if (f.number == 2 && !f.data) {
			*ret_attempt = (int32_t)f.value;
			break;
		}
	}
	return have ? 0 : -EINVAL;
}

/* Header fields of one block in one buffer, so that a field costs no allocation of its own. */
#include <errno.h>
#include <string.h>

#include "common/h2/h2_impl.h"

#define HEAD (2 * sizeof(uint16_t))

int h2_fields_add(struct buf *b, const uint8_t *name, size_t name_len, const uint8_t *value, size_t value_len)
{
	if (name_len > UINT16_MAX || value_len > UINT16_MAX)
		return -ENOBUFS;
	size_t n = HEAD + name_len + value_len + 2;
	if (n > buf_room(b))
		return -ENOBUFS;
	uint8_t *at = buf_reserve(b, n);
	if (!at)
		return -ENOMEM;
	uint16_t lens[2] = { (uint16_t)name_len, (uint16_t)value_len };
	memcpy(at, lens, HEAD);
	at += HEAD;
	memcpy(at, name, name_len);
	at[name_len] = 0;
	at += name_len + 1;
	if (value_len)
		memcpy(at, value, value_len);
	at[value_len] = 0;
	buf_commit(b, n);
	return 0;
}

/* How many fields have the name, and the value of the last of them. */
static size_t find(const struct buf *b, const char *name, const char **ret_value)
{
	size_t want = strlen(name), left = buf_len(b), count = 0;
	if (!left)
		return 0;
	for (const uint8_t *p = buf_head(b); left;) {
		uint16_t lens[2];
		memcpy(lens, p, HEAD);
		size_t n = HEAD + lens[0] + lens[1] + 2u;
		if (lens[0] == want && memcmp(p + HEAD, name, want) == 0) {
			*ret_value = (const char *)p + HEAD + lens[0] + 1;
			count++;
		}
		p += n;
		left -= n;
	}
	return count;
}

const char *h2_fields_get(const struct buf *b, const char *name)
{
	const char *value;
	return find(b, name, &value) == 1 ? value : NULL;
}

size_t h2_fields_count(const struct buf *b, const char *name)
{
	const char *value;
	return find(b, name, &value);
}

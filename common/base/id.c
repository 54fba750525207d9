#include "common/base/id.h"

#include "common/base/rng.h"

#include <errno.h>
#include <string.h>

struct uuid uuid7_make(struct uuid7_maker *m, int64_t wall_us)
{
	uint64_t ms = wall_us > 0 ? (uint64_t)(wall_us / 1000) : 0;
	if (ms > m->last_ms) {
		m->last_ms = ms;
		m->counter = (uint32_t)rng_process_next() & 0x1ffffff; /* top bit clear: room to count */
	} else if (++m->counter >> 26) {
		m->last_ms++;
		m->counter = 0;
	}
	ms = m->last_ms;

	struct uuid u;
	for (int i = 0; i < 6; i++)
		u.b[i] = (uint8_t)(ms >> (40 - 8 * i));
	/* 12 bits of counter, 2 bits variant, 14 bits of counter, 48 bits random */
	u.b[6] = (uint8_t)(0x70 | (m->counter >> 22));
	u.b[7] = (uint8_t)(m->counter >> 14);
	u.b[8] = (uint8_t)(0x80 | ((m->counter >> 8) & 0x3f));
	u.b[9] = (uint8_t)m->counter;
	uint64_t r = rng_process_next();
	memcpy(&u.b[10], &r, 6);
	return u;
}

void uuid_format(const struct uuid *u, char ret_text[static UUID_TEXT_LEN + 1])
{
	static const char hex[] = "0123456789abcdef";
	char *p = ret_text;
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		*p++ = hex[u->b[i] >> 4];
		*p++ = hex[u->b[i] & 15];
	}
	*p = '\0';
}

static int nibble(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int uuid_parse(const char *text, size_t len, struct uuid *ret)
{
	if (len != UUID_TEXT_LEN)
		return -EINVAL;
	struct uuid u;
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			if (*text++ != '-')
				return -EINVAL;
		int hi = nibble(*text++), lo = nibble(*text++);
		if (hi < 0 || lo < 0)
			return -EINVAL;
		u.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*ret = u;
	return 0;
}

int uuid_cmp(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->b, b->b, sizeof(a->b));
}

bool uuid_is_zero(const struct uuid *u)
{
	static const struct uuid zero;
	return uuid_eq(u, &zero);
}

int64_t uuid7_wall_us(const struct uuid *u)
{
	uint64_t ms = 0;
	for (int i = 0; i < 6; i++)
		ms = ms << 8 | u->b[i];
	return (int64_t)(ms * 1000);
}

static bool is_hex(const char *s, size_t n, bool not_zero)
{
	return strspn(s, "0123456789abcdef") >= n && (!not_zero || strspn(s, "0") < n);
}

bool traceparent_ok(const char *text)
{
	return strlen(text) == TRACEPARENT_LEN && strncmp(text, "00-", 3) == 0 && is_hex(text + 3, 32, true) && text[35] == '-' &&
	       is_hex(text + 36, 16, true) && text[52] == '-' && is_hex(text + 53, 2, false);
}

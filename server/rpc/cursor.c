/* Positions as sorted arrays, and their text, which is checked byte by byte: it comes from clients. */
#include "server/rpc/cursor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/grpc/wire.h"

#define VERSION 1
#define STORE_BYTES 8 /* hex digits of the store's id */
#define HEAD (1 + STORE_BYTES)
#define BYTES_MAX (CURSOR_TEXT_MAX / 4 * 3)

void cursor_done(struct cursor *c)
{
	free(c->at);
	*c = (struct cursor){0};
}

static void add(struct cursor *c, size_t at, struct store_place p)
{
	c->at = xgrow(c->at, c->n, &c->cap, sizeof(*c->at));
	memmove(c->at + at + 1, c->at + at, (c->n - at) * sizeof(*c->at));
	c->at[at] = p;
	c->n++;
}

void cursor_copy(struct cursor *to, const struct cursor *from)
{
	to->n = 0;
	for (size_t i = 0; i < from->n; i++)
		add(to, i, from->at[i]);
	to->known = from->known;
	to->part = from->part;
	to->part_done = from->part_done;
}

void cursor_set(struct cursor *c, const struct store_events *o)
{
	c->n = 0;
	for (size_t i = 0; i < o->ret_n_at; i++)
		add(c, i, o->ret_at[i]);
	c->known = o->ret_known;
	c->part_done = 0;
}

/* The first place whose stream is not smaller. */
static size_t find(const struct cursor *c, int64_t stream)
{
	size_t i = 0;
	while (i < c->n && c->at[i].stream < stream)
		i++;
	return i;
}

/* The number up to which the stream was read. */
static int64_t number_of(const struct cursor *c, int64_t stream)
{
	size_t i = find(c, stream);
	if (i < c->n && c->at[i].stream == stream)
		return c->at[i].number;
	return stream > c->known ? 0 : INT64_MAX;
}

void cursor_pass(struct cursor *c, int64_t stream, int64_t number)
{
	size_t i = find(c, stream);
	if (i < c->n && c->at[i].stream == stream)
		c->at[i].number = max_i64(c->at[i].number, number);
	else if (stream > c->known)
		add(c, i, (struct store_place){stream, number});
	if (c->part_done && c->part.stream == stream && c->part.number <= number)
		c->part_done = 0;
}

int64_t cursor_read_of(const struct cursor *c, int64_t stream, int64_t number)
{
	if (number <= number_of(c, stream))
		return INT64_MAX;
	return c->part_done && c->part.stream == stream && c->part.number == number ? c->part_done : 0;
}

void cursor_min(struct cursor *c, const struct cursor *with)
{
	int64_t known = min_i64(c->known, with->known);
	struct cursor all = {0};
	for (size_t i = 0, k = 0; i < c->n || k < with->n;) {
		int64_t a = i < c->n ? c->at[i].stream : INT64_MAX, b = k < with->n ? with->at[k].stream : INT64_MAX;
		int64_t stream = min_i64(a, b), number = min_i64(number_of(c, stream), number_of(with, stream));
		i += a == stream;
		k += b == stream;
		if (stream <= known || number > 0)
			add(&all, all.n, (struct store_place){stream, number});
	}
	all.known = known;
	cursor_done(c);
	*c = all; /* a row that was read in part is read anew */
}

/* Of two rows that were read in part one is read anew: there is room for one. */
static void take_part(struct cursor *c, const struct cursor *of)
{
	int64_t done = of->part_done ? cursor_read_of(c, of->part.stream, of->part.number) : INT64_MAX;
	if (done >= of->part_done || (c->part_done && !done))
		return;
	c->part = of->part;
	c->part_done = of->part_done;
}

void cursor_max(struct cursor *c, const struct cursor *with)
{
	int64_t known = max_i64(c->known, with->known);
	struct cursor all = {0};
	for (size_t i = 0, k = 0; i < c->n || k < with->n;) {
		int64_t a = i < c->n ? c->at[i].stream : INT64_MAX, b = k < with->n ? with->at[k].stream : INT64_MAX;
		int64_t stream = min_i64(a, b), number = max_i64(number_of(c, stream), number_of(with, stream));
		i += a == stream;
		k += b == stream;
		if (number < INT64_MAX)
			add(&all, all.n, (struct store_place){stream, number});
	}
	all.known = known;
	take_part(&all, c);
	take_part(&all, with);
	cursor_done(c);
	*c = all;
}

/* ---- the text: version, the store's id's first digits, then varints ---- */

static size_t put(uint8_t *p, int64_t v)
{
	size_t n = 0;
	uint64_t u = (uint64_t)v;
	for (; u > 0x7f; u >>= 7)
		p[n++] = (uint8_t)(u | 0x80);
	p[n++] = (uint8_t)u;
	return n;
}

static bool get(const uint8_t **p, const uint8_t *end, int64_t *ret)
{
	uint64_t v = 0;
	for (unsigned shift = 0; *p < end && shift < 63; shift += 7) {
		uint8_t b = *(*p)++;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80)) {
			*ret = (int64_t)v;
			return true;
		}
	}
	return false;
}

size_t cursor_format(const struct cursor *c, const char *store_id, char ret_text[static CURSOR_TEXT_MAX + 1])
{
	uint8_t bytes[HEAD + 20 * (CURSOR_STREAMS_MAX + 3)];
	size_t n = HEAD, most = min_sz(c->n, CURSOR_STREAMS_MAX);
	bytes[0] = VERSION;
	memset(bytes + 1, 0, STORE_BYTES);
	memcpy(bytes + 1, store_id, strnlen(store_id, STORE_BYTES));
	n += put(bytes + n, c->known);
	n += put(bytes + n, (int64_t)most);
	for (size_t i = 0; i < most; i++) {
		n += put(bytes + n, c->at[i].stream - (i ? c->at[i - 1].stream : 0));
		n += put(bytes + n, c->at[i].number);
	}
	if (c->part_done) {
		n += put(bytes + n, c->part.stream);
		n += put(bytes + n, c->part.number);
		n += put(bytes + n, c->part_done);
	}
	return wire_base64_encode(bytes, min_sz(n, BYTES_MAX - 3), ret_text, CURSOR_TEXT_MAX + 1);
}

static int parse_places(const uint8_t *p, const uint8_t *end, struct cursor *c)
{
	int64_t n, stream = 0;
	if (!get(&p, end, &c->known) || !get(&p, end, &n) || n > CURSOR_STREAMS_MAX)
		return -EINVAL;
	for (int64_t i = 0; i < n; i++) {
		struct store_place place;
		if (!get(&p, end, &place.stream) || !get(&p, end, &place.number) || !place.stream || place.stream > INT32_MAX)
			return -EINVAL;
		stream = place.stream += stream;
		add(c, c->n, place);
	}
	if (p == end)
		return 0;
	if (!get(&p, end, &c->part.stream) || !get(&p, end, &c->part.number) || !get(&p, end, &c->part_done) || p != end)
		return -EINVAL;
	return c->part.stream && c->part.number && c->part_done ? 0 : -EINVAL;
}

int cursor_parse(const char *text, const char *store_id, struct cursor *ret)
{
	uint8_t bytes[BYTES_MAX];
	size_t n;
	struct cursor c = {0};
	if (strlen(text) > CURSOR_TEXT_MAX || wire_base64_decode(text, strlen(text), bytes, sizeof(bytes), &n) < 0 || n < HEAD ||
	    bytes[0] != VERSION)
		return -EINVAL;
	if (parse_places(bytes + HEAD, bytes + n, &c) < 0) {
		cursor_done(&c);
		return -EINVAL;
	}
	if (strncmp((const char *)bytes + 1, store_id, STORE_BYTES) != 0) {
		cursor_done(&c);
		return -ESTALE;
	}
	*ret = c;
	return 0;
}

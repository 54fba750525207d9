#include <openssl/evp.h>
#include <string.h>

#include "server/move/move_impl.h"

/* Microseconds from 1970 to 2000, where Postgres begins to count, and to the end of the year 9999. */
#define EPOCH_US INT64_C(946684800000000)
#define TIME_MAX_US INT64_C(253402300799000000)

static uint64_t be64(const uint8_t *p)
{
	uint64_t v = 0;
	for (int i = 0; i < 8; i++)
		v = v << 8 | p[i];
	return v;
}

void move_digest_add(struct move_digest *d, const void *tuple, size_t len)
{
	uint8_t hash[EVP_MAX_MD_SIZE];
	unsigned n = 0;
	if (!EVP_Digest(tuple, len, hash, &n, EVP_sha256(), NULL))
		abort();
	d->rows++;
	d->sum[0] += be64(hash);
	d->sum[1] += be64(hash + 8);
}

bool move_digest_same(const struct move_digest *a, const struct move_digest *b)
{
	return a->rows == b->rows && a->sum[0] == b->sum[0] && a->sum[1] == b->sum[1];
}

static bool put(struct buf *b, uint64_t v, size_t n)
{
	uint8_t *p = buf_reserve(b, n);
	for (size_t i = 0; p && i < n; i++)
		p[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
	if (p)
		buf_commit(b, n);
	return p;
}

static bool put_fixed(struct buf *b, int64_t v, size_t n) { return put(b, n, 4) && put(b, (uint64_t)v, n); }
static bool put_null(struct buf *b) { return put(b, UINT32_MAX, 4); }

static bool put_bytes(struct buf *b, const void *data, size_t n)
{
	return put(b, n, 4) && (n == 0 || buf_add(b, data, n) == 0);
}

/* As the store for Postgres writes them: what can't be a time there is none. */
static bool put_time(struct buf *b, int64_t us, bool never_null)
{
	if (never_null)
		us = max_i64(1, min_i64(us, TIME_MAX_US));
	return us <= 0 || us > TIME_MAX_US ? put_null(b) : put_fixed(b, us - EPOCH_US, 8);
}

static bool put_float(struct buf *b, double v)
{
	uint64_t bits;
	memcpy(&bits, &v, sizeof(bits));
	return put(b, 8, 4) && put(b, bits, 8);
}

static bool fits(int64_t v, char kind)
{
	return kind == '2' ? v >= INT16_MIN && v <= INT16_MAX : kind == '4' ? v >= INT32_MIN && v <= INT32_MAX : true;
}

static const char *put_column(sqlite3_stmt *q, int col, char kind, struct buf *b)
{
	int64_t v = sq_int(q, col);
	bool ok;
	if (sq_is_null(q, col))
		return put_null(b) ? NULL : "the row is too large";
	if (!fits(v, kind))
		return "a number is out of range";
	switch (kind) {
	case 'b': ok = put_fixed(b, v != 0, 1); break;
	case '2': ok = put_fixed(b, v, 2); break;
	case '4': ok = put_fixed(b, v, 4); break;
	case '8': ok = put_fixed(b, v, 8); break;
	case 'f': ok = put_float(b, sqlite3_column_double(q, col)); break;
	case 'w': ok = put_time(b, v, false); break;
	case 'W': ok = put_time(b, v, true); break;
	case 'u':
		if (sqlite3_column_bytes(q, col) != 16)
			return "an id has not 16 bytes";
		ok = put_bytes(b, sqlite3_column_blob(q, col), 16);
		break;
	case 't': {
		const void *text = sqlite3_column_text(q, col);
		ok = text && put_bytes(b, text, (size_t)sqlite3_column_bytes(q, col));
		break;
	}
	default: {
		const void *data = sqlite3_column_blob(q, col);
		ok = put_bytes(b, data, (size_t)sqlite3_column_bytes(q, col));
	}
	}
	return ok ? NULL : "the row is too large";
}

const char *move_tuple_make(sqlite3_stmt *q, const char *kinds, struct buf *ret)
{
	buf_clear(ret);
	size_t n = strlen(kinds);
	if (!put(ret, n, 2))
		return "no memory is left";
	for (size_t i = 0; i < n; i++) {
		const char *why = put_column(q, (int)i, kinds[i], ret);
		if (why)
			return why;
	}
	return NULL;
}

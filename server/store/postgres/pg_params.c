/* Binary arrays: int32 dimensions, int32 has-nulls, oid of the element, int32 length, int32 lower
 * bound, then each element as int32 length (-1: null) and bytes; all big-endian. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg_params.h"

#define HEAD 20
#define PARAM_MAX ((size_t)900 << 20) /* a message to Postgres is below 1 GiB */
/* Microseconds from 1970 to 2000, where Postgres begins to count. */
#define EPOCH_US INT64_C(946684800000000)
#define TIME_MAX_US INT64_C(253402300799000000) /* the end of the year 9999 */

static const struct {
	char letter;
	uint32_t oid;
} types[] = {
	[PG_BOOL] = {'b', 16},   [PG_INT2] = {'2', 21},  [PG_INT4] = {'4', 23},
	[PG_INT8] = {'8', 20},   [PG_FLOAT8] = {'f', 701}, [PG_TEXT] = {'t', 25},
	[PG_BYTEA] = {'y', 17},  [PG_UUID] = {'u', 2950}, [PG_TIME] = {'w', 1184},
};

void pg_params_init(struct pg_params *ps)
{
	*ps = (struct pg_params){0};
	for (int i = 0; i < PG_PARAMS_MAX; i++) {
		buf_init(&ps->at[i].buf, PARAM_MAX);
		ps->formats[i] = 1;
	}
}

void pg_params_done(struct pg_params *ps)
{
	for (int i = 0; i < PG_PARAMS_MAX; i++)
		buf_done(&ps->at[i].buf);
}

static void put32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static enum pg_type type_of(char letter)
{
	for (size_t i = 0; i < ARRAY_LEN(types); i++)
		if (types[i].letter == letter)
			return (enum pg_type)i;
	abort();
}

void pg_params_begin(struct pg_params *ps, const char *columns)
{
	ps->n = 0;
	ps->failed = false;
	for (const char *c = columns; *c; c++) {
		assert(ps->n < PG_PARAMS_MAX);
		struct pg_array *a = &ps->at[ps->n++];
		buf_clear(&a->buf);
		a->type = type_of(*c);
		a->n = 0;
		a->nulls = false;
		if (!buf_reserve(&a->buf, HEAD))
			ps->failed = true;
		else
			buf_commit(&a->buf, HEAD);
	}
}

int pg_params_end(struct pg_params *ps)
{
	if (ps->failed)
		return -ENOMEM;
	for (int i = 0; i < ps->n; i++) {
		struct pg_array *a = &ps->at[i];
		uint8_t *head = a->buf.data + a->buf.start;
		put32(head, a->n > 0);
		put32(head + 4, a->nulls);
		put32(head + 8, types[a->type].oid);
		put32(head + 12, (uint32_t)a->n);
		put32(head + 16, 1);
		ps->values[i] = (const char *)head;
		ps->lengths[i] = (int)(a->n ? buf_len(&a->buf) : 12);
	}
	return 0;
}

/* Room for an element of n bytes, with its length written and counted; NULL when failed. */
static uint8_t *element(struct pg_params *ps, int c, enum pg_type type, size_t n)
{
	struct pg_array *a = &ps->at[c];
	assert(c < ps->n && a->type == type);
	uint8_t *p = n < PARAM_MAX ? buf_reserve(&a->buf, 4 + n) : NULL;
	if (!p) {
		ps->failed = true;
		return NULL;
	}
	put32(p, (uint32_t)n);
	buf_commit(&a->buf, 4 + n);
	a->n++;
	return p + 4;
}

static void fixed(struct pg_params *ps, int c, enum pg_type type, uint64_t v, size_t n)
{
	uint8_t *p = element(ps, c, type, n);
	for (size_t i = 0; p && i < n; i++)
		p[i] = (uint8_t)(v >> (8 * (n - 1 - i)));
}

void pg_null(struct pg_params *ps, int c)
{
	struct pg_array *a = &ps->at[c];
	assert(c < ps->n);
	uint8_t *p = buf_reserve(&a->buf, 4);
	if (!p) {
		ps->failed = true;
		return;
	}
	put32(p, UINT32_MAX);
	buf_commit(&a->buf, 4);
	a->n++;
	a->nulls = true;
}

void pg_bool(struct pg_params *ps, int c, bool v) { fixed(ps, c, PG_BOOL, v, 1); }
void pg_int2(struct pg_params *ps, int c, int16_t v) { fixed(ps, c, PG_INT2, (uint16_t)v, 2); }
void pg_int4(struct pg_params *ps, int c, int32_t v) { fixed(ps, c, PG_INT4, (uint32_t)v, 4); }
void pg_int8(struct pg_params *ps, int c, int64_t v) { fixed(ps, c, PG_INT8, (uint64_t)v, 8); }

void pg_float8(struct pg_params *ps, int c, double v)
{
	uint64_t bits;
	memcpy(&bits, &v, sizeof(bits));
	fixed(ps, c, PG_FLOAT8, bits, 8);
}

static void bytes(struct pg_params *ps, int c, enum pg_type type, const void *v, size_t n)
{
	if (!v) {
		pg_null(ps, c);
		return;
	}
	uint8_t *p = element(ps, c, type, n);
	if (p && n)
		memcpy(p, v, n);
}

void pg_text(struct pg_params *ps, int c, const char *v) { bytes(ps, c, PG_TEXT, v, v ? strlen(v) : 0); }
void pg_bytea(struct pg_params *ps, int c, const void *v, size_t n) { bytes(ps, c, PG_BYTEA, v, n); }
void pg_blob(struct pg_params *ps, int c, const struct blob *v) { bytes(ps, c, PG_BYTEA, v ? v->data : NULL, v ? v->len : 0); }
void pg_uuid(struct pg_params *ps, int c, const void *v16) { bytes(ps, c, PG_UUID, v16, 16); }

void pg_time(struct pg_params *ps, int c, int64_t wall_us)
{
	if (wall_us <= 0 || wall_us > TIME_MAX_US)
		pg_null(ps, c);
	else
		fixed(ps, c, PG_TIME, (uint64_t)(wall_us - EPOCH_US), 8);
}

void pg_attempt(struct pg_params *ps, size_t ord, const struct core_attempt *at)
{
	pg_int4(ps, 0, (int32_t)ord);
	pg_uuid(ps, 1, at->task.b);
	pg_int4(ps, 2, at->attempt);
}

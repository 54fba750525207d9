/* Big-endian values out of a PGresult. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "server/store/postgres/pg_rows.h"

#define EPOCH_US INT64_C(946684800000000)

static uint64_t fixed(const PGresult *r, int row, int col, int width)
{
	if (PQgetisnull(r, row, col))
		return 0;
	if (PQgetlength(r, row, col) != width)
		abort();
	const uint8_t *p = (const uint8_t *)PQgetvalue(r, row, col);
	uint64_t v = 0;
	for (int i = 0; i < width; i++)
		v = v << 8 | p[i];
	return v;
}

bool pg_get_bool(const PGresult *r, int row, int col) { return fixed(r, row, col, 1); }
int64_t pg_get_int8(const PGresult *r, int row, int col) { return (int64_t)fixed(r, row, col, 8); }

int32_t pg_get_int(const PGresult *r, int row, int col)
{
	if (PQgetlength(r, row, col) == 2)
		return (int16_t)fixed(r, row, col, 2);
	return (int32_t)fixed(r, row, col, 4);
}

double pg_get_float8(const PGresult *r, int row, int col)
{
	uint64_t bits = fixed(r, row, col, 8);
	double v;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

int64_t pg_get_wall_us(const PGresult *r, int row, int col)
{
	return PQgetisnull(r, row, col) ? 0 : pg_get_int8(r, row, col) + EPOCH_US;
}

void pg_get_uuid(const PGresult *r, int row, int col, struct uuid *ret)
{
	if (PQgetisnull(r, row, col)) {
		*ret = (struct uuid){0};
		return;
	}
	if (PQgetlength(r, row, col) != 16)
		abort();
	memcpy(ret->b, PQgetvalue(r, row, col), 16);
}

const char *pg_get_text(const PGresult *r, int row, int col) { return PQgetvalue(r, row, col); }

/* Of the one loop, between a read and the look of who called it. */
static bool ran_short;

bool pg_rows_short(void)
{
	bool was = ran_short;
	ran_short = false;
	return was;
}

void *pg_mem(struct store_mem **mem, size_t size)
{
	void *at = store_mem_try(mem, size);
	ran_short |= !at;
	return at;
}

struct store_bytes pg_get_bytes(const PGresult *r, int row, int col, struct store_mem **mem)
{
	if (PQgetisnull(r, row, col))
		return (struct store_bytes){0};
	size_t n = (size_t)PQgetlength(r, row, col);
	const char *copy = store_mem_try_copy(mem, PQgetvalue(r, row, col), n);
	ran_short |= !copy;
	return copy ? (struct store_bytes){(const uint8_t *)copy, n} : (struct store_bytes){0};
}

int pg_get_blob(const PGresult *r, int row, int col, struct blob **ret)
{
	struct blob *b = NULL;
	if (!PQgetisnull(r, row, col)) {
		b = blob_new(PQgetvalue(r, row, col), (size_t)PQgetlength(r, row, col));
		if (!b)
			return -ENOMEM;
	}
	*ret = b;
	return 0;
}

void pg_get_core(const PGresult *r, int row, int col, struct core_task *t)
{
	*t = (struct core_task){0};
	pg_get_uuid(r, row, col, &t->id);
	t->seq = pg_get_int8(r, row, col + 1);
	t->priority = -pg_get_int(r, row, col + 2);
	t->attempt = pg_get_int(r, row, col + 3);
	t->failures = pg_get_int(r, row, col + 4);
	t->need.cpu_millis = pg_get_int(r, row, col + 6);
	t->need.memory_bytes = pg_get_int8(r, row, col + 7);
	t->need.gpus = pg_get_int(r, row, col + 8);
	t->exclusive = pg_get_bool(r, row, col + 9);
	t->lease_ttl_ns = pg_get_int8(r, row, col + 10);
	t->max_attempts = pg_is_null(r, row, col + 11) ? 1 : pg_get_int(r, row, col + 11);
	t->backoff_initial_ns = pg_get_int8(r, row, col + 12);
	t->backoff_max_ns = pg_get_int8(r, row, col + 13);
	t->backoff_multiplier = pg_get_float8(r, row, col + 14);
	t->queue = pg_get_text(r, row, col + 15);
	t->handler = pg_is_null(r, row, col + 16) ? NULL : pg_get_text(r, row, col + 16);
	t->custom = pg_is_null(r, row, col + 17) ? NULL : pg_get_text(r, row, col + 17);
}

void pg_get_drain(const PGresult *r, int row, int col, struct store_mem **mem, struct store_drain_wish *ret)
{
	const char *reason = pg_get_text(r, row, col + 2);
	ret->mode = pg_get_int(r, row, col);
	ret->within_ns = pg_is_null(r, row, col + 1) ? -1 : pg_get_int8(r, row, col + 1);
	ret->reason = store_mem_copy(mem, reason, strlen(reason));
}

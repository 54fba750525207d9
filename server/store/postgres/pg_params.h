/* Parameters of one statement: arrays in Postgres's binary form, one element per operation.
 * Memory is kept from statement to statement. */
#ifndef REINS_PG_PARAMS_H
#define REINS_PG_PARAMS_H

#include "common/base/buf.h"
#include "common/base/id.h"
#include "server/store/store.h"

#define PG_PARAMS_MAX 32

enum pg_type { PG_BOOL, PG_INT2, PG_INT4, PG_INT8, PG_FLOAT8, PG_TEXT, PG_BYTEA, PG_UUID, PG_TIME };

struct pg_array {
	struct buf buf;
	enum pg_type type;
	int32_t n;
	bool nulls;
};

struct pg_params {
	struct pg_array at[PG_PARAMS_MAX];
	const char *values[PG_PARAMS_MAX];
	int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX];
	int n;
	bool failed; /* no memory, or over the limit of one message */
};

void pg_params_init(struct pg_params *ps);
void pg_params_done(struct pg_params *ps);
/* Empties and declares the columns, as letters: b bool, 2 4 8 integers, f float8, t text, y bytea, u uuid, w time. */
void pg_params_begin(struct pg_params *ps, const char *columns);
/* Writes the heads and fills values, lengths and formats.  -ENOMEM when `failed`. */
int pg_params_end(struct pg_params *ps) MUST_CHECK;

/* Each appends one element to column c, whose type must be as declared. */
void pg_null(struct pg_params *ps, int c);
void pg_bool(struct pg_params *ps, int c, bool v);
void pg_int2(struct pg_params *ps, int c, int16_t v);
void pg_int4(struct pg_params *ps, int c, int32_t v);
void pg_int8(struct pg_params *ps, int c, int64_t v);
void pg_float8(struct pg_params *ps, int c, double v);
void pg_text(struct pg_params *ps, int c, const char *v);            /* NULL: null */
void pg_bytea(struct pg_params *ps, int c, const void *v, size_t n); /* v NULL: null */
void pg_blob(struct pg_params *ps, int c, const struct blob *v);     /* NULL: null */
void pg_uuid(struct pg_params *ps, int c, const void *v16);
/* The operation's place in its batch, the task and the attempt: columns 0 to 2. */
void pg_attempt(struct pg_params *ps, size_t ord, const struct core_attempt *at);
/* 0: null, and so is what Postgres could not hold: a worker's clock must not block an outcome. */
void pg_time(struct pg_params *ps, int c, int64_t wall_us);

#endif

/* RESP2 encoding and the ring of commands. */
#include "server/lease/redis/wire.h"

#include <errno.h>
#include <string.h>

void redis_wire_init(struct redis_wire *w, size_t max_ops, size_t max_bytes)
{
	*w = (struct redis_wire){ .max_ops = max_ops };
	buf_init(&w->bytes, min_sz(max_bytes, UINT32_MAX));
}

void redis_wire_done(struct redis_wire *w)
{
	buf_done(&w->bytes);
	free(w->ops);
	w->ops = NULL;
	w->cap = w->n_ops = 0;
}

void redis_wire_clear(struct redis_wire *w)
{
	buf_clear(&w->bytes);
	w->sent = w->first = w->n_ops = w->unstamped = 0;
}

static void raw(struct redis_wire *w, const void *data, size_t len)
{
	if (!w->failed && buf_add(&w->bytes, data, len) < 0)
		w->failed = true;
}

/* Decimal digits of v, ending at `end`; where they begin. Every command has a dozen numbers: printf would cost more
 * than all the rest. */
static char *digits(uint64_t v, char *end)
{
	do {
		*--end = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	return end;
}

static void header(struct redis_wire *w, char type, size_t n)
{
	char text[32], *end = text + sizeof(text);
	*--end = '\n';
	*--end = '\r';
	char *at = digits(n, end);
	*--at = type;
	raw(w, at, (size_t)(text + sizeof(text) - at));
}

void redis_wire_put(struct redis_wire *w, const void *data, size_t len)
{
	header(w, '$', len);
	raw(w, data, len);
	raw(w, "\r\n", 2);
}

void redis_wire_str(struct redis_wire *w, const char *s)
{
	redis_wire_put(w, s, strlen(s));
}

void redis_wire_i64(struct redis_wire *w, int64_t v)
{
	char text[24], *end = text + sizeof(text);
	char *at = digits(v < 0 ? 0 - (uint64_t)v : (uint64_t)v, end);
	if (v < 0)
		*--at = '-';
	redis_wire_put(w, at, (size_t)(end - at));
}

static void begin(struct redis_wire *w, const struct redis_op *op)
{
	w->cur = *op;
	w->cur_start = buf_len(&w->bytes);
	w->failed = w->n_ops >= w->max_ops;
	header(w, '*', op->script == SCRIPTS ? op->argc : op->argc + 2);
	if (op->script == SCRIPTS)
		return;
	redis_wire_str(w, op->by_body ? "EVAL" : "EVALSHA");
	redis_wire_str(w, op->by_body ? redis_scripts[op->script] : w->sha[op->script]);
	w->cur.tail = (uint32_t)(buf_len(&w->bytes) - w->cur_start);
}

void redis_wire_begin(struct redis_wire *w, uint8_t kind, uint64_t cookie, enum redis_script script, uint32_t argc)
{
	begin(w, &(struct redis_op){ .kind = kind, .script = (uint8_t)script, .argc = argc, .cookie = cookie });
}

static void push(struct redis_wire *w)
{
	if (w->n_ops == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 64;
		struct redis_op *ops = xcalloc(cap, sizeof(*ops));
		for (size_t i = 0; i < w->n_ops; i++)
			ops[i] = w->ops[(w->first + i) & (w->cap - 1)];
		free(w->ops);
		w->ops = ops;
		w->cap = cap;
		w->first = 0;
	}
	w->ops[(w->first + w->n_ops) & (w->cap - 1)] = w->cur;
	w->n_ops++;
	w->unstamped++;
}

int redis_wire_end(struct redis_wire *w)
{
	if (w->failed) {
		w->bytes.len = w->cur_start;
		return -ENOBUFS;
	}
	w->cur.len = (uint32_t)(buf_len(&w->bytes) - w->cur_start);
	push(w);
	return 0;
}

const struct redis_op *redis_wire_head(const struct redis_wire *w)
{
	return w->n_ops ? &w->ops[w->first] : NULL;
}

void redis_wire_pop(struct redis_wire *w)
{
	size_t len = w->ops[w->first].len;
	buf_consume(&w->bytes, len);
	w->sent -= min_sz(w->sent, len);
	w->first = (w->first + 1) & (w->cap - 1);
	w->n_ops--;
	w->unstamped = min_sz(w->unstamped, w->n_ops);
}

int redis_wire_again(struct redis_wire *w)
{
	struct redis_op op = *redis_wire_head(w);
	size_t tail_len = op.len - op.tail;
	op.by_body = true;
	op.sent_mono_ns = 0;
	uint32_t old_tail = op.tail;
	begin(w, &op);
	uint8_t *to = w->failed ? NULL : buf_reserve(&w->bytes, tail_len);
	if (to) {
		memcpy(to, buf_head(&w->bytes) + old_tail, tail_len);
		buf_commit(&w->bytes, tail_len);
	} else {
		w->failed = true;
	}
	return redis_wire_end(w);
}

void redis_wire_stamp(struct redis_wire *w, int64_t now_mono_ns)
{
	for (; w->unstamped > 0; w->unstamped--)
		w->ops[(w->first + w->n_ops - w->unstamped) & (w->cap - 1)].sent_mono_ns = now_mono_ns;
}

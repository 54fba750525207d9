/* Changes as bytes, and positions in streams of them. */
#include "server/store/store_events.h"

#include <string.h>

#include "server/store/mem.h"

struct store_change store_event_change(const struct store_event *e, size_t i)
{
	struct store_change c;
	const uint8_t *p = e->changes.data + i * STORE_CHANGE_BYTES;
	uint64_t v = 0;
	memcpy(c.task.b, p, sizeof(c.task.b));
	for (size_t k = sizeof(c.task.b); k < STORE_CHANGE_BYTES; k++)
		v = v << 8 | p[k];
	c.attempt = (int32_t)(v >> 8);
	c.what = (uint8_t)(v >> 6 & 3);
	c.before = (uint8_t)(v >> 3 & 7);
	c.after = (uint8_t)(v & 7);
	return c;
}

void store_change_put(const struct store_change *c, uint8_t ret[static STORE_CHANGE_BYTES])
{
	uint64_t v = (uint64_t)(uint32_t)c->attempt << 8 | (uint64_t)(c->what & 3) << 6 | (uint64_t)(c->before & 7) << 3 | (c->after & 7);
	memcpy(ret, c->task.b, sizeof(c->task.b));
	for (size_t k = STORE_CHANGE_BYTES; k-- > sizeof(c->task.b); v >>= 8)
		ret[k] = (uint8_t)v;
}

static int64_t last_read(const struct store_events *o, int64_t stream, int64_t before)
{
	for (size_t i = o->ret_n; i--;)
		if (o->ret_rows[i].stream == stream)
			return o->ret_rows[i].number;
	return before;
}

/* Where the position stands in a stream; -1: at its end. */
static int64_t place_in(const struct store_events *o, int64_t stream)
{
	for (size_t i = 0; i < o->n_at; i++)
		if (o->at[i].stream == stream)
			return o->at[i].number;
	return stream > o->known ? 0 : -1;
}

static bool has(const struct store_stream *streams, size_t n, int64_t id)
{
	for (size_t i = 0; i < n; i++)
		if (streams[i].id == id)
			return true;
	return false;
}

void store_events_settle(struct store_events *o, const struct store_stream *streams, size_t n)
{
	struct store_mem **mem = (struct store_mem **)&o->ret_memory;
	o->ret_gone = false;
	o->ret_n_at = 0;
	o->ret_known = o->now ? 0 : o->known;
	o->ret_at = store_mem_get(mem, (n + 1) * sizeof(*o->ret_at));
	for (size_t i = 0; !o->now && i < o->n_at; i++)
		o->ret_gone |= !has(streams, n, o->at[i].stream);
	for (size_t i = 0; i < n; i++) {
		const struct store_stream *s = &streams[i];
		int64_t at = o->now ? s->gone : place_in(o, s->id);
		o->ret_known = max_i64(o->ret_known, s->id);
		o->ret_gone |= at >= 0 && at < s->gone;
		if (at >= 0 && (!s->over || o->ret_more))
			o->ret_at[o->ret_n_at++] = (struct store_place){s->id, last_read(o, s->id, at)};
	}
	if (o->ret_gone)
		o->ret_n = 0;
}

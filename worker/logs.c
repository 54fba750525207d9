/* Chunks of one attempt's log, oldest first, without holes between them: each begins where the one before ends.
 * A chunk is data (dropped == 0) or a gap (len == 0).  Only the last one grows. */
#include "worker/logs.h"

#include <assert.h>
#include <string.h>

#define CHUNK_FIRST_CAP 1024

struct chunk {
	struct list node;
	int64_t offset;
	int64_t dropped;
	int64_t at_wall_us;
	int stream;
	bool at_limit; /* the gap behind the limit: nothing follows it */
	uint32_t len, cap;
	uint8_t data[];
};

static struct chunk *last_chunk(const struct attempt_log *l)
{
	return list_empty(&l->chunks) ? NULL : container_of(l->chunks.prev, struct chunk, node);
}

static int64_t chunk_end(const struct chunk *c)
{
	return c->offset + c->len + c->dropped;
}

static void account(struct attempt_log *l, size_t more)
{
	l->held += more;
	l->config->budget->held += more;
}

static void free_chunk(struct attempt_log *l, struct chunk *c)
{
	size_t size = sizeof(*c) + c->cap;
	list_remove(&c->node);
	l->held -= size;
	l->config->budget->held -= size;
	free(c);
}

/* NULL without memory. */
static struct chunk *new_chunk(struct attempt_log *l, int stream, size_t cap)
{
	struct chunk *c = malloc(sizeof(*c) + cap);
	if (!c)
		return NULL;
	*c = (struct chunk){.stream = stream, .offset = l->end, .cap = (uint32_t)cap};
	list_push_back(&l->chunks, &c->node);
	account(l, sizeof(*c) + cap);
	return c;
}

void logs_init(struct attempt_log *l, const struct logs_config *config)
{
	*l = (struct attempt_log){.config = config};
	list_init(&l->chunks);
}

void logs_done(struct attempt_log *l)
{
	while (!list_empty(&l->chunks))
		free_chunk(l, last_chunk(l));
}

static void add_gap(struct attempt_log *l, int stream, int64_t n, int64_t at_wall_us, bool at_limit)
{
	struct chunk *c = last_chunk(l);
	/* A gap that went out already is not made longer: the session has got its end. */
	if (!c || !c->dropped || (chunk_end(c) <= l->sent && !c->at_limit)) {
		c = new_chunk(l, stream, 0);
		if (!c)
			abort(); /* a few dozen bytes: as xcalloc */
	}
	c->dropped += n;
	c->at_limit = at_limit;
	c->at_wall_us = at_wall_us;
	l->end += n;
	l->dropped += n;
}

/* The last chunk with room for at least one byte of this stream, or NULL without memory. */
static struct chunk *room_in_last(struct attempt_log *l, int stream, size_t want)
{
	struct chunk *c = last_chunk(l);
	if (!c || c->dropped || c->stream != stream || c->len == LOGS_PIECE_MAX) {
		size_t cap = CHUNK_FIRST_CAP;
		while (cap < want && cap < LOGS_PIECE_MAX)
			cap *= 2;
		return new_chunk(l, stream, cap);
	}
	if (c->cap - c->len >= want || c->cap == LOGS_PIECE_MAX)
		return c;
	size_t cap = c->cap;
	while (cap - c->len < want && cap < LOGS_PIECE_MAX)
		cap *= 2;
	list_remove(&c->node);
	struct chunk *bigger = realloc(c, sizeof(*c) + cap);
	if (bigger) {
		account(l, cap - bigger->cap);
		bigger->cap = (uint32_t)cap;
		c = bigger;
	}
	list_push_back(&l->chunks, &c->node);
	return c->len < c->cap ? c : NULL;
}

size_t logs_add(struct attempt_log *l, int stream, const void *data, size_t len, int64_t at_wall_us, bool may_drop)
{
	assert(!l->closed);
	const uint8_t *p = data;
	size_t kept = 0;
	bool drop = may_drop && logs_full(l); /* of the whole read: it is not torn for the bound */
	while (kept < len) {
		size_t want = min_sz(len - kept, LOGS_PIECE_MAX);
		want = (size_t)min_i64((int64_t)want, max_i64(l->config->limit - l->kept, 0));
		if (!want) {
			add_gap(l, stream, (int64_t)(len - kept), at_wall_us, true);
			break;
		}
		struct chunk *c = drop ? NULL : room_in_last(l, stream, want);
		if (!c) {
			add_gap(l, stream, (int64_t)(len - kept), at_wall_us, false);
			break;
		}
		size_t n = min_sz(want, c->cap - c->len);
		memcpy(c->data + c->len, p + kept, n);
		c->len += (uint32_t)n;
		c->at_wall_us = at_wall_us;
		kept += n;
		l->kept += (int64_t)n;
		l->end += (int64_t)n;
	}
	return kept;
}

bool logs_full(const struct attempt_log *l)
{
	if (l->kept >= l->config->limit)
		return false;
	return l->held >= l->config->bound || l->config->budget->held >= l->config->budget->max;
}

void logs_close(struct attempt_log *l)
{
	l->closed = true;
}

void logs_lost(struct attempt_log *l, int64_t end)
{
	l->end = l->dropped = end;
	l->closed = true;
}

void logs_stored(struct attempt_log *l, int64_t offset)
{
	offset = min_i64(offset, l->end);
	l->stored = max_i64(l->stored, offset);
	l->sent = max_i64(l->sent, offset);
	while (!list_empty(&l->chunks)) {
		struct chunk *c = container_of(l->chunks.next, struct chunk, node);
		if (chunk_end(c) > offset || (!l->closed && c == last_chunk(l) && c->at_limit))
			break;
		free_chunk(l, c);
	}
}

void logs_rewind(struct attempt_log *l, int64_t offset)
{
	l->sent = min_i64(max_i64(offset, 0), l->end);
	logs_stored(l, offset);
}

bool logs_next(const struct attempt_log *l, struct logs_piece *ret)
{
	if (l->sent >= l->end)
		return false;
	list_each(node, &l->chunks) {
		const struct chunk *c = container_of(node, struct chunk, node);
		if (chunk_end(c) <= l->sent)
			continue;
		if (c->offset > l->sent) {
			/* The master once said that it had these bytes, and now it has not. */
			*ret = (struct logs_piece){.stream = c->stream, .offset = l->sent,
				.dropped = c->offset - l->sent, .at_wall_us = c->at_wall_us};
			return true;
		}
		if (c->dropped && !l->closed && c == last_chunk(l))
			return false; /* it may still grow */
		int64_t skip = l->sent - c->offset;
		*ret = (struct logs_piece){.stream = c->stream, .offset = l->sent, .at_wall_us = c->at_wall_us};
		if (c->dropped) {
			ret->dropped = c->dropped - skip;
		} else {
			ret->data = c->data + skip;
			ret->len = c->len - (size_t)skip;
		}
		return true;
	}
	if (!l->closed)
		return false;
	*ret = (struct logs_piece){.stream = 1, .offset = l->sent, .dropped = l->end - l->sent};
	return true;
}

void logs_sent(struct attempt_log *l, const struct logs_piece *p)
{
	assert(p->offset == l->sent);
	l->sent += p->dropped + (int64_t)p->len;
}

bool logs_all_sent(const struct attempt_log *l)
{
	return l->closed && l->sent >= l->end;
}

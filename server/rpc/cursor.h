/* Where a watcher stands: a position in the store's events (server/store/store_events.h), and how far it is within the next
 * row; and both as the text that clients hold. */
#ifndef REINS_RPC_CURSOR_H
#define REINS_RPC_CURSOR_H

#include "server/store/store_events.h"

/* Streams of one position: each master has a few, and those of connections that ended not long ago are among them. */
#define CURSOR_STREAMS_MAX 256
#define CURSOR_TEXT_MAX 4096

/* All zero is a position of its own: before everything. */
struct cursor {
	struct store_place *at; /* in the order of the streams */
	size_t n, cap;
	int64_t known;
	/* Of this row, which is the next in its stream, so many changes were read; 0: none. */
	struct store_place part;
	int64_t part_done;
};

void cursor_done(struct cursor *c);
void cursor_copy(struct cursor *to, const struct cursor *from);
/* The position of an EVENTS operation that was answered. */
void cursor_set(struct cursor *c, const struct store_events *o);
/* The row was read to its end. */
void cursor_pass(struct cursor *c, int64_t stream, int64_t number);
/* How many changes of this row were read: all (INT64_MAX), some, or none. */
int64_t cursor_read_of(const struct cursor *c, int64_t stream, int64_t number);
/* What either has not read is not read. */
void cursor_min(struct cursor *c, const struct cursor *with);
/* What either has read is read; so that a client that goes on from there gets nothing twice. */
void cursor_max(struct cursor *c, const struct cursor *with);

/* Returns the length. `store_id`: as text; a cursor is of one store. */
size_t cursor_format(const struct cursor *c, const char *store_id, char ret_text[static CURSOR_TEXT_MAX + 1]);
/* -EINVAL: not the text of a cursor; -ESTALE: of another store. *ret is untouched then. */
int cursor_parse(const char *text, const char *store_id, struct cursor *ret) MUST_CHECK;

#endif

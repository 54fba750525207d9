/* Reads events, and sees to it that those of each task follow on each other. */
#ifndef TESTS_STORE_FOLLOW_H
#define TESTS_STORE_FOLLOW_H

#include "common/base/map.h"
#include "server/store/store_events.h"
#include "tests/store/harness.h"

struct reader {
	struct store_place at[256];
	size_t n_at;
	int64_t known;
};

struct reader reader_from_now(void);
/* Takes over the position of what was read. */
void reader_move(struct reader *r, const struct store_events *o);
/* Reads a page and moves on. Done fields are the caller's. */
struct store_events reader_page(struct reader *r, int32_t limit, int64_t max_bytes);

/* `tasks`: what is known of each. Returns the changes. */
size_t follow_changes(struct map *tasks, const struct store_events *o);
/* The rows are as the last change of each has it. */
void follow_check_rows(struct map *tasks);
void follow_done(struct map *tasks);

#endif

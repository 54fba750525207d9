/* A task's labels as the store keeps them, and what selects tasks by them.
 *
 * Kept are bytes that no UTF-8 text has between the texts: of each label 0xff KEY 0xfe VALUE, and 0xff at the end.  So one
 * label is there if "0xff KEY 0xfe VALUE 0xff" is, and its key if "0xff KEY 0xfe" is: a search for bytes, which a database
 * can do too.  No labels: no bytes. */
#ifndef REINS_STORE_LABELS_H
#define REINS_STORE_LABELS_H

#include "common/base/buf.h"
#include "server/store/rows.h"

#define LABELS_BYTES_MAX (64 * 1024) /* of one task; far more than it may have */
#define LABELS_WANTS_MAX 48    /* conditions: the selector's, and those of TaskFilter.labels */
#define LABELS_NEEDLES_MAX 256 /* keys and values in all of them */

/* Adds one label; labels_end after the last. -ENOBUFS, -ENOMEM. */
int labels_add(struct buf *b, const char *key, const char *value) MUST_CHECK;
int labels_end(struct buf *b) MUST_CHECK;

/* One condition: one of its needles is there, or (none) not one is. */
struct label_want {
	bool none;
	uint16_t first, n;
};
/* All of the conditions must hold.  Zeroed: none, which any task satisfies. */
struct label_selector {
	struct label_want wants[LABELS_WANTS_MAX];
	struct store_bytes needles[LABELS_NEEDLES_MAX];
	size_t n_wants, n_needles;
	struct store_mem *mem; /* of the needles */
};
/* A new condition, without needles yet; then these for it. False: no room. */
bool label_selector_want(struct label_selector *s, bool none) MUST_CHECK;
bool label_selector_label(struct label_selector *s, const char *key, size_t key_len, const char *value, size_t value_len) MUST_CHECK;
bool label_selector_key(struct label_selector *s, const char *key, size_t key_len) MUST_CHECK;
void label_selector_done(struct label_selector *s);

/* Whether kept labels satisfy it. Any thread's. */
bool label_selector_matches(const struct label_selector *s, const void *labels, size_t len);

#endif

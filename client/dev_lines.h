/* What a child prints, line by line with its name in front. */
#ifndef REINS_CLIENT_DEV_LINES_H
#define REINS_CLIENT_DEV_LINES_H

#include "common/base/base.h"

/* Of one line; a longer one comes out in several: a child that never ends its line must not fill our memory. */
#define DEV_LINE_MAX 8192

struct dev_lines {
	char prefix[64]; /* "reinsd | ", with colours if any */
	char text[DEV_LINE_MAX];
	size_t len;
};

/* color: number of an ANSI colour for the name, 31 to 37; 0: none. */
void dev_lines_init(struct dev_lines *l, const char *name, int color);
/* on_line gets each line that is complete, with prefix and newline, valid in the call only. */
void dev_lines_add(struct dev_lines *l, const char *data, size_t len, void (*on_line)(void *arg, const char *line, size_t len),
		   void *arg);
/* The rest, if there is one, as a line. */
void dev_lines_end(struct dev_lines *l, void (*on_line)(void *arg, const char *line, size_t len), void *arg);
/* If this, as on_line got it, is a log line of level ERROR (not as JSON): what it says, without time and level; else *ret_text
 * stays as it is. */
void dev_lines_error(const struct dev_lines *l, const char *line, size_t len, char *ret_text, size_t cap);

#endif

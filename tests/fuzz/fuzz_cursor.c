/* Cursors of WatchTasks: what is taken is within its bounds, and its own text says the same again. */
#include <stdlib.h>
#include <string.h>

#include "server/rpc/cursor.h"

#define STORE "01234567-0000-4000-8000-000000000000"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char *text = malloc(len + 1), again[CURSOR_TEXT_MAX + 1];
	struct cursor c = {0}, same = {0};
	memcpy(text, data, len);
	text[len] = '\0';
	if (cursor_parse(text, STORE, &c) == 0) {
		if (c.n > CURSOR_STREAMS_MAX)
			abort();
		cursor_format(&c, STORE, again);
		if (cursor_parse(again, STORE, &same) < 0 || same.n != c.n || same.known != c.known || same.part_done != c.part_done)
			abort();
		for (size_t i = 0; i < c.n; i++)
			if (same.at[i].stream != c.at[i].stream || same.at[i].number != c.at[i].number)
				abort();
		cursor_min(&c, &same);
		cursor_max(&c, &same);
	}
	cursor_done(&c);
	cursor_done(&same);
	free(text);
	return 0;
}

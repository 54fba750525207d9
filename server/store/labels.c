/* Labels as bytes; conditions as searches for bytes. */
#include "server/store/labels.h"

#include <errno.h>
#include <string.h>

#include "server/store/mem.h"

#define KEY_MARK 0xff
#define VALUE_MARK 0xfe

static int add(struct buf *b, uint8_t mark, const char *text)
{
	size_t len = strlen(text);
	uint8_t *at = buf_reserve(b, len + 1);
	if (!at)
		return buf_room(b) < len + 1 ? -ENOBUFS : -ENOMEM;
	at[0] = mark;
	memcpy(at + 1, text, len);
	buf_commit(b, len + 1);
	return 0;
}

int labels_add(struct buf *b, const char *key, const char *value)
{
	int rc = add(b, KEY_MARK, key);
	return rc ? rc : add(b, VALUE_MARK, value);
}

int labels_end(struct buf *b)
{
	return buf_len(b) ? add(b, KEY_MARK, "") : 0;
}

bool label_selector_want(struct label_selector *s, bool none)
{
	if (s->n_wants == LABELS_WANTS_MAX)
		return false;
	s->wants[s->n_wants++] = (struct label_want){ .none = none, .first = (uint16_t)s->n_needles };
	return true;
}

static bool add_needle(struct label_selector *s, uint8_t *needle, size_t len)
{
	s->needles[s->n_needles++] = (struct store_bytes){ needle, len };
	s->wants[s->n_wants - 1].n++;
	return true;
}

bool label_selector_label(struct label_selector *s, const char *key, size_t key_len, const char *value, size_t value_len)
{
	if (s->n_needles == LABELS_NEEDLES_MAX)
		return false;
	size_t len = key_len + value_len + 3;
	uint8_t *at = store_mem_get(&s->mem, len);
	at[0] = KEY_MARK;
	memcpy(at + 1, key, key_len);
	at[1 + key_len] = VALUE_MARK;
	if (value_len)
		memcpy(at + 2 + key_len, value, value_len);
	at[len - 1] = KEY_MARK;
	return add_needle(s, at, len);
}

bool label_selector_key(struct label_selector *s, const char *key, size_t key_len)
{
	if (s->n_needles == LABELS_NEEDLES_MAX)
		return false;
	uint8_t *at = store_mem_get(&s->mem, key_len + 2);
	at[0] = KEY_MARK;
	memcpy(at + 1, key, key_len);
	at[1 + key_len] = VALUE_MARK;
	return add_needle(s, at, key_len + 2);
}

void label_selector_done(struct label_selector *s)
{
	store_mem_free(s->mem);
	memset(s, 0, sizeof(*s));
}

bool label_selector_matches(const struct label_selector *s, const void *labels, size_t len)
{
	for (size_t i = 0; i < s->n_wants; i++) {
		const struct label_want *w = &s->wants[i];
		bool found = false;
		for (size_t k = w->first; k < (size_t)w->first + w->n && !found; k++)
			found = len && memmem(labels, len, s->needles[k].data, s->needles[k].len);
		if (found == w->none)
			return false;
	}
	return true;
}

/* What the store's search does for lists, for one task in memory. */
#include "server/rpc/match.h"

#include <stdlib.h>
#include <string.h>

#include "server/rpc/wire.h"

enum { SPEC_NAME = 1, SPEC_LABELS = 8, ENTRY_KEY = 1, ENTRY_VALUE = 2 };

static int by_id(const void *a, const void *b) { return uuid_cmp(a, b); }

bool match_change(const struct filter *f, const struct store_change *c)
{
	if (f->states && !(f->states & (1u << c->before | 1u << c->after)))
		return false;
	return !f->n_ids || bsearch(&c->task, f->ids, f->n_ids, sizeof(*f->ids), by_id);
}

static bool matches_name(const struct store_task *t, const char *name, const char *prefix)
{
	const uint8_t *data = (const uint8_t *)"";
	size_t len = 0;
	if (t->spec)
		wire_find_len(t->spec->data, t->spec->len, SPEC_NAME, &data, &len);
	if (*name && (len != strlen(name) || memcmp(data, name, len) != 0))
		return false;
	return len >= strlen(prefix) && memcmp(data, prefix, strlen(prefix)) == 0;
}

/* An entry that leaves out its key or value has "". */
static int add_entry(struct buf *b, const struct wire_field *f)
{
	const uint8_t *k = f->data, *v = f->data;
	size_t k_len = 0, v_len = 0;
	char key[512], value[1024];
	wire_find_len(f->data, f->len, ENTRY_KEY, &k, &k_len);
	wire_find_len(f->data, f->len, ENTRY_VALUE, &v, &v_len);
	if (k_len >= sizeof(key) || v_len >= sizeof(value))
		return 0;
	memcpy(key, k, k_len);
	memcpy(value, v, v_len);
	key[k_len] = value[v_len] = '\0';
	return labels_add(b, key, value);
}

static bool matches_labels(const struct store_task *t, const struct label_selector *labels)
{
	struct buf b;
	struct wire_field f;
	int rc = 0;
	size_t n = 0;
	if (!labels->n_wants)
		return true;
	buf_init(&b, LABELS_BYTES_MAX);
	if (t->spec)
		for (const uint8_t *p = t->spec->data; !rc && wire_next(&p, t->spec->data + t->spec->len, &f);)
			if (f.number == SPEC_LABELS && f.type == WIRE_LEN) {
				rc = add_entry(&b, &f);
				n++;
			}
	if (!rc && n)
		rc = labels_end(&b);
	bool matches = !rc && label_selector_matches(labels, n ? (const void *)buf_head(&b) : "", buf_len(&b));
	buf_done(&b);
	return matches;
}

/* Before the change the attempt before it was the newest. */
static bool has_worker(const struct store_task *t, const struct store_change *c, const char *worker)
{
	if (t->core.attempt <= c->attempt && t->worker && strcmp(t->worker, worker) == 0)
		return true;
	for (size_t i = 0; i < t->n_attempts; i++)
		if ((t->attempts[i].attempt == c->attempt || t->attempts[i].attempt == c->attempt - 1) && t->attempts[i].worker &&
		    strcmp(t->attempts[i].worker, worker) == 0)
			return true;
	return false;
}

bool match_task(const struct filter *f, const struct store_change *c, const struct store_task *t)
{
	const Reins__V1__TaskFilter *of = f->of;
	if (!of)
		return true;
	if (*of->queue && strcmp(t->core.queue, of->queue) != 0)
		return false;
	if (*of->owner && strcmp(t->owner ? t->owner : "", of->owner) != 0)
		return false;
	if ((of->created_from && t->created_wall_us < f->created_from_us) || (of->created_before && t->created_wall_us >= f->created_before_us))
		return false;
	if (!matches_name(t, of->name, of->name_prefix) || !matches_labels(t, &f->labels))
		return false;
	return !*of->worker_id || has_worker(t, c, of->worker_id);
}

bool match_without_task(const struct filter *f)
{
	const Reins__V1__TaskFilter *of = f->of;
	return !of || (!*of->queue && !*of->owner && !*of->name && !*of->name_prefix && !f->labels.n_wants && !*of->worker_id &&
		       !of->created_from && !of->created_before);
}

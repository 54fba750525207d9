#include "server/rpc/match.h"

#include <stdlib.h>
#include <string.h>

#include "common/pb/pb.h"
#include "server/rpc/spec.h"
#include "server/rpc/wire.h"

#define IDS_MAX 1000
#define LABELS_MAX 16
enum { SPEC_NAME = 1, SPEC_LABELS = 8, ENTRY_KEY = 1, ENTRY_VALUE = 2 };

static int by_id(const void *a, const void *b) { return uuid_cmp(a, b); }

static int parse_states(const Reins__V1__TaskFilter *f, struct match *m, struct refusal *r)
{
	for (size_t i = 0; i < f->n_states; i++) {
		if (f->states[i] < REINS__V1__TASK__STATE__PENDING || f->states[i] > REINS__V1__TASK__STATE__CANCELLED)
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.states", "filter.states[%zu]: no state of a task", i);
		m->states |= 1u << f->states[i];
	}
	return 0;
}

static int parse_ids(const Reins__V1__TaskFilter *f, struct match *m, struct refusal *r)
{
	if (f->n_task_ids > IDS_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "filter.task_ids", "filter.task_ids: %zu; at most %d are allowed", f->n_task_ids,
			      IDS_MAX);
	m->ids = xcalloc(f->n_task_ids + 1, sizeof(*m->ids));
	for (size_t i = 0; i < f->n_task_ids; i++)
		if (uuid_parse(f->task_ids[i], strlen(f->task_ids[i]), &m->ids[m->n_ids++]))
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.task_ids",
				      "filter.task_ids[%zu]: not a task id; a UUID of 36 characters is wanted", i);
	qsort(m->ids, m->n_ids, sizeof(*m->ids), by_id);
	return 0;
}

static int parse_time(const Google__Protobuf__Timestamp *t, const char *field, int64_t *ret_us, struct refusal *r)
{
	if (t && pb_timestamp_us(t, ret_us) < 0)
		return refuse(r, STATUS_INVALID_ARGUMENT, field, "%s: not a time of the years 1 to 9999", field);
	return 0;
}

static int parse(const Reins__V1__TaskFilter *f, struct match *m, struct refusal *r)
{
	if (parse_states(f, m, r) || parse_ids(f, m, r))
		return -1;
	if (*f->queue && !spec_name_ok(f->queue))
		return refuse(r, STATUS_INVALID_ARGUMENT, "filter.queue", "filter.queue: not the name of a queue");
	if (f->n_labels > LABELS_MAX)
		return refuse(r, STATUS_INVALID_ARGUMENT, "filter.labels", "filter.labels: %zu; at most %d are allowed", f->n_labels, LABELS_MAX);
	if (parse_time(f->created_from, "filter.created_from", &m->created_from_us, r))
		return -1;
	return parse_time(f->created_before, "filter.created_before", &m->created_before_us, r);
}

int match_parse(const Reins__V1__TaskFilter *f, struct match *ret, struct refusal *r)
{
	struct match m = {.of = f};
	if (f && parse(f, &m, r)) {
		match_done(&m);
		return -1;
	}
	*ret = m;
	return 0;
}

void match_done(struct match *m)
{
	free(m->ids);
	*m = (struct match){0};
}

bool match_change(const struct match *m, const struct store_change *c)
{
	if (m->states && !(m->states & (1u << c->before | 1u << c->after)))
		return false;
	return !m->n_ids || bsearch(&c->task, m->ids, m->n_ids, sizeof(*m->ids), by_id);
}

static bool same(const uint8_t *data, size_t len, const char *text) { return len == strlen(text) && memcmp(data, text, len) == 0; }

static bool has_name(const struct store_task *t, const char *name)
{
	const uint8_t *data;
	size_t len;
	return t->spec && wire_find_len(t->spec->data, t->spec->len, SPEC_NAME, &data, &len) && same(data, len, name);
}

/* An entry that leaves out its key or value has "". */
static bool is_entry(const struct wire_field *f, const char *key, const char *value)
{
	const uint8_t *k = f->data, *v = f->data;
	size_t k_len = 0, v_len = 0;
	if (f->number != SPEC_LABELS || f->type != WIRE_LEN)
		return false;
	wire_find_len(f->data, f->len, ENTRY_KEY, &k, &k_len);
	wire_find_len(f->data, f->len, ENTRY_VALUE, &v, &v_len);
	return same(k, k_len, key) && same(v, v_len, value);
}

static bool has_label(const struct store_task *t, const char *key, const char *value)
{
	struct wire_field f;
	if (!t->spec)
		return false;
	for (const uint8_t *p = t->spec->data; wire_next(&p, t->spec->data + t->spec->len, &f);)
		if (is_entry(&f, key, value))
			return true;
	return false;
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

bool match_task(const struct match *m, const struct store_change *c, const struct store_task *t)
{
	const Reins__V1__TaskFilter *f = m->of;
	if (!f)
		return true;
	if (*f->queue && strcmp(t->core.queue, f->queue) != 0)
		return false;
	if (*f->owner && strcmp(t->owner ? t->owner : "", f->owner) != 0)
		return false;
	if ((f->created_from && t->created_wall_us < m->created_from_us) || (f->created_before && t->created_wall_us >= m->created_before_us))
		return false;
	if (*f->name && !has_name(t, f->name))
		return false;
	for (size_t i = 0; i < f->n_labels; i++)
		if (!has_label(t, f->labels[i]->key, f->labels[i]->value))
			return false;
	return !*f->worker_id || has_worker(t, c, f->worker_id);
}

bool match_without_task(const struct match *m)
{
	const Reins__V1__TaskFilter *f = m->of;
	return !f || (!*f->queue && !*f->owner && !*f->name && !f->n_labels && !*f->worker_id && !f->created_from && !f->created_before);
}

/* Checks a TaskFilter field by field; the fingerprint that binds page tokens to it. */
#include "server/rpc/filter.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hash.h"
#include "common/pb/pb.h"
#include "server/rpc/selector.h"
#include "server/rpc/spec.h"

#define FOREVER_US INT64_C(253402300799000000) /* the end of the year 9999 */

static int bad(struct refusal *r, const char *field, const char *what)
{
	return refuse(r, STATUS_INVALID_ARGUMENT, field, "%s: %s", field, what);
}

static int parse_states(const Reins__V1__TaskFilter *f, struct filter *ret, struct refusal *r)
{
	for (size_t i = 0; i < f->n_states; i++) {
		if (f->states[i] < REINS__V1__TASK__STATE__PENDING || f->states[i] > REINS__V1__TASK__STATE__CANCELLED)
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.states",
				      "filter.states[%zu]: no state of a task; PENDING, RUNNING, COMPLETED, FAILED and CANCELLED are known", i);
		ret->states |= 1u << f->states[i];
	}
	return 0;
}

static int parse_names(const Reins__V1__TaskFilter *f, struct refusal *r)
{
	static const char form[] = "not 1 to 255 bytes of [A-Za-z0-9._/-]";
	if (*f->queue && !spec_name_ok(f->queue))
		return bad(r, "filter.queue", form);
	if (*f->name && !spec_name_ok(f->name))
		return bad(r, "filter.name", form);
	if (*f->name_prefix && !spec_name_ok(f->name_prefix))
		return bad(r, "filter.name_prefix", form);
	if (*f->worker_id && !spec_name_ok(f->worker_id))
		return bad(r, "filter.worker_id", form);
	return strlen(f->owner) > 255 ? bad(r, "filter.owner", "longer than 255 bytes") : 0;
}

static int parse_labels(const Reins__V1__TaskFilter *f, struct filter *ret, struct refusal *r)
{
	char fault[160];
	if (f->n_labels > FILTER_LABELS_MAX)
		return bad(r, "filter.labels", "more than 16 entries; more conditions can be said with label_selector");
	for (size_t i = 0; i < f->n_labels; i++) {
		const char *key = f->labels[i]->key, *value = f->labels[i]->value;
		if (!spec_label_ok(key, value))
			return bad(r, "filter.labels", "a key is not of 1 to 63 bytes of [A-Za-z0-9._/-], or a value is longer than 255");
		if (pb_map_find(f->labels, f->n_labels, key) == (ptrdiff_t)i &&
		    (!label_selector_want(&ret->labels, false) ||
		     !label_selector_label(&ret->labels, key, strlen(key), value, strlen(value))))
			return bad(r, "filter.labels", "too many");
	}
	if (selector_parse(f->label_selector, &ret->labels, fault, sizeof(fault)))
		return bad(r, "filter.label_selector", fault);
	return 0;
}

/* What lies outside of what a store can hold is cut to it: no task was made then. */
static int parse_time(const Google__Protobuf__Timestamp *t, const char *field, int64_t *ret_us, struct refusal *r)
{
	if (!t)
		return 0;
	if (pb_timestamp_us(t, ret_us))
		return bad(r, field, "not a time of the years 1 to 9999");
	*ret_us = max_i64(1, min_i64(*ret_us, FOREVER_US));
	return 0;
}

static int by_id(const void *a, const void *b) { return uuid_cmp(a, b); }

static int parse_ids(const Reins__V1__TaskFilter *f, struct filter *ret, struct refusal *r)
{
	if (f->n_task_ids > FILTER_IDS_MAX)
		return bad(r, "filter.task_ids", "more than 1,000");
	if (!f->n_task_ids)
		return 0;
	ret->ids = calloc(f->n_task_ids, sizeof(*ret->ids));
	if (!ret->ids)
		return refuse_no_memory(r, "out of memory");
	for (size_t i = 0; i < f->n_task_ids; i++)
		if (uuid_parse(f->task_ids[i], strlen(f->task_ids[i]), &ret->ids[i]))
			return refuse(r, STATUS_INVALID_ARGUMENT, "filter.task_ids",
				      "filter.task_ids[%zu]: not a task id; a UUID of 36 characters is wanted", i);
	qsort(ret->ids, f->n_task_ids, sizeof(*ret->ids), by_id);
	for (size_t i = 0; i < f->n_task_ids; i++)
		if (i == 0 || !uuid_eq(&ret->ids[i], &ret->ids[ret->n_ids - 1]))
			ret->ids[ret->n_ids++] = ret->ids[i];
	return 0;
}

int filter_parse(const Reins__V1__TaskFilter *f, struct filter *ret, struct refusal *r)
{
	memset(ret, 0, sizeof(*ret));
	ret->of = f;
	if (!f)
		return 0;
	if (parse_states(f, ret, r) || parse_names(f, r) || parse_labels(f, ret, r) || parse_ids(f, ret, r) ||
	    parse_time(f->created_from, "filter.created_from", &ret->created_from_us, r) ||
	    parse_time(f->created_before, "filter.created_before", &ret->created_before_us, r))
		return -1;
	return 0;
}

int filter_view(Reins__V1__TaskView view, bool *ret_full, struct refusal *r)
{
	if (view < REINS__V1__TASK_VIEW__TASK_VIEW_UNSPECIFIED || view > REINS__V1__TASK_VIEW__TASK_VIEW_FULL)
		return refuse(r, STATUS_INVALID_ARGUMENT, "view", "view: %d; TASK_VIEW_BASIC and TASK_VIEW_FULL are known", (int)view);
	*ret_full = view == REINS__V1__TASK_VIEW__TASK_VIEW_FULL;
	return 0;
}

void filter_done(struct filter *f)
{
	label_selector_done(&f->labels);
	free(f->ids);
	memset(f, 0, sizeof(*f));
}

bool filter_is_empty(const struct filter *f)
{
	const Reins__V1__TaskFilter *of = f->of;
	return !of || (!f->states && !*of->queue && !*of->name && !*of->name_prefix && !*of->worker_id && !*of->owner && !f->n_ids &&
		       !f->labels.n_wants && !f->created_from_us && !f->created_before_us);
}

static const char *text_or_null(const char *text) { return *text ? text : NULL; }

void filter_apply(const struct filter *f, struct store_list *ret)
{
	if (!f->of)
		return;
	ret->states = f->states;
	ret->queue = text_or_null(f->of->queue);
	ret->name = text_or_null(f->of->name);
	ret->name_prefix = text_or_null(f->of->name_prefix);
	ret->worker = text_or_null(f->of->worker_id);
	ret->owner = text_or_null(f->of->owner);
	ret->created_from_us = f->created_from_us;
	ret->created_before_us = f->created_before_us;
	ret->ids = f->ids;
	ret->n_ids = f->n_ids;
	ret->labels = f->labels.n_wants ? &f->labels : NULL;
}

/* ---- tokens ---- */

static uint64_t hash_int(uint64_t h, uint64_t v) { return hash_add(h, &v, sizeof(v)); }
static uint64_t hash_text(uint64_t h, const char *text) { return hash_add(h, text, strlen(text) + 1); }

uint64_t filter_fingerprint(const struct filter *f, uint64_t seed)
{
	uint64_t h = hash_int(HASH_START, seed);
	h = hash_int(h, f->states);
	h = hash_int(h, (uint64_t)f->created_from_us);
	h = hash_int(h, (uint64_t)f->created_before_us);
	if (!f->of)
		return hash_text(hash_text(hash_text(hash_text(hash_text(h, ""), ""), ""), ""), "");
	const char *const texts[] = { f->of->queue, f->of->name, f->of->name_prefix, f->of->worker_id, f->of->owner };
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		h = hash_text(h, texts[i]);
	for (size_t i = 0; i < f->n_ids; i++)
		h = hash_add(h, f->ids[i].b, sizeof(f->ids[i].b));
	for (size_t i = 0; i < f->labels.n_wants; i++) {
		const struct label_want *w = &f->labels.wants[i];
		h = hash_int(h, w->none);
		for (size_t k = w->first; k < (size_t)w->first + w->n; k++)
			h = hash_add(h, f->labels.needles[k].data, f->labels.needles[k].len);
	}
	return h;
}

void filter_token(const char *prefix, uint64_t fingerprint, const struct uuid *last, char ret[static FILTER_TOKEN_MAX])
{
	char id[UUID_TEXT_LEN + 1];
	uuid_format(last, id);
	snprintf(ret, FILTER_TOKEN_MAX, "%s%016" PRIx64 ":%s", prefix, fingerprint, id);
}

int filter_token_parse(const char *token, const char *prefix, uint64_t fingerprint, bool *ret_after, struct uuid *ret_last,
		       struct refusal *r)
{
	char want[32];
	size_t head = strlen(prefix) + 17;
	*ret_after = *token != '\0';
	if (!*token)
		return 0;
	snprintf(want, sizeof(want), "%s%016" PRIx64 ":", prefix, fingerprint);
	if (strlen(token) != head + UUID_TEXT_LEN || strncmp(token, prefix, strlen(prefix)) != 0 ||
	    uuid_parse(token + head, UUID_TEXT_LEN, ret_last))
		return bad(r, "page_token", "not one that this server gave out");
	if (strncmp(token, want, head) != 0)
		return bad(r, "page_token", "it belongs to a list with another filter");
	return 0;
}

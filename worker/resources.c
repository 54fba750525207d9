/* Counts. The words of an attempt's file: "cpu_millis=N", "memory_bytes=N", "custom/NAME=N". */
#include "worker/resources.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/name.h"
#include "common/base/num.h"

#define COUNT_MAX (INT64_C(1) << 62)

static struct custom *find_custom(struct resources *r, const char *name, size_t n)
{
	for (size_t i = 0; i < r->n_custom; i++)
		if (strlen(r->custom[i].name) == n && memcmp(r->custom[i].name, name, n) == 0)
			return &r->custom[i];
	return NULL;
}

int resources_init(struct resources *r, int64_t cpu_millis, int64_t memory_bytes, const struct setting_list *custom,
		   struct devices *devices, char *err, size_t cap)
{
	*r = (struct resources){.cpu_millis = cpu_millis, .memory_bytes = memory_bytes};
	for (size_t i = 0; i < custom->len; i++) {
		const char *text = custom->at[i];
		size_t n = strcspn(text, "=");
		int64_t count;
		const char *fault = NULL;
		if (i == RESOURCES_CUSTOM_MAX)
			fault = "at most 16 are allowed";
		else if (!name_is(text, n, NAME_BYTES_MAX) || text[n] != '=')
			fault = "NAME=COUNT is allowed, with a name of 1 to 255 of [A-Za-z0-9._/-]";
		else if (num_parse_i64(text + n + 1, &count) < 0 || count < 1 || count > COUNT_MAX)
			fault = "the count is a whole number from 1 to 2^62";
		else if (find_custom(r, text, n))
			fault = "this name was given before";
		if (fault) {
			snprintf(err, cap, "--resources \"%.300s\": %s", text, fault);
			resources_done(r);
			return -1;
		}
		char *name = strndup(text, n);
		if (!name)
			abort(); /* a name's length */
		r->custom[r->n_custom++] = (struct custom){.name = name, .total = count};
	}
	r->devices = devices;
	return 0;
}

int resources_check(const struct setting_list *custom, char *err, size_t cap)
{
	struct resources r;
	if (resources_init(&r, 0, 0, custom, NULL, err, cap) < 0)
		return -1;
	resources_done(&r);
	return 0;
}

void resources_done(struct resources *r)
{
	for (size_t i = 0; i < r->n_custom; i++)
		free(r->custom[i].name);
	devices_free(r->devices);
	*r = (struct resources){0};
}

/* NULL: there is enough of everything. */
static const char *lacks(struct resources *r, const Reins__V1__Resources *need, bool *ret_busy)
{
	*ret_busy = false;
	if (need->memory_bytes > 0 && !r->memory_bytes)
		return "this worker can't enforce a limit of memory (see its --cgroup and --memory)";
	if (need->memory_bytes > r->memory_bytes)
		return "this worker has less memory than resources.memory_bytes asks for";
	if (need->cpu_millis > r->cpu_millis)
		return "this worker has less cpu than resources.cpu_millis asks for";
	if (need->gpus < 0 || (size_t)need->gpus > devices_count(r->devices))
		return "this worker has fewer GPUs than resources.gpus asks for";
	for (size_t i = 0; i < need->n_custom; i++) {
		const struct custom *c = find_custom(r, need->custom[i]->key, strlen(need->custom[i]->key));
		if (need->custom[i]->value > 0 && (!c || c->total < need->custom[i]->value))
			return "this worker has less of a counted resource than resources.custom asks for";
	}
	*ret_busy = true;
	if (need->memory_bytes > r->memory_bytes - r->memory_used && need->memory_bytes > 0)
		return "the worker's memory is taken";
	if (need->cpu_millis > r->cpu_millis - r->cpu_used && need->cpu_millis > 0)
		return "the worker's cpu is taken";
	if ((size_t)need->gpus > devices_free_count(r->devices))
		return "the worker's GPUs are taken";
	for (size_t i = 0; i < need->n_custom; i++) {
		const struct custom *c = find_custom(r, need->custom[i]->key, strlen(need->custom[i]->key));
		if (c && need->custom[i]->value > c->total - c->used)
			return "a counted resource of the worker is taken";
	}
	return NULL;
}

static void hold_custom(struct resources *r, struct holding *h, struct custom *c, int64_t n)
{
	if (!h->custom)
		h->custom = xcalloc(RESOURCES_CUSTOM_MAX, sizeof(*h->custom));
	h->custom[c - r->custom] += n;
	c->used += n;
}

const char *resources_take(struct resources *r, const Reins__V1__Resources *need, bool *ret_busy, struct holding *ret)
{
	struct holding h = {0};
	const char *why = need ? lacks(r, need, ret_busy) : NULL;
	if (why)
		return why;
	if (!need) {
		*ret = h;
		return NULL;
	}
	h.cpu_millis = max_i64(need->cpu_millis, 0);
	h.memory_bytes = max_i64(need->memory_bytes, 0);
	r->cpu_used += h.cpu_millis;
	r->memory_used += h.memory_bytes;
	h.n_gpus = (size_t)need->gpus;
	h.gpus = h.n_gpus ? xcalloc(h.n_gpus, sizeof(*h.gpus)) : NULL;
	if (devices_take(r->devices, h.n_gpus, h.gpus) < 0)
		abort(); /* counted above */
	for (size_t i = 0; i < need->n_custom; i++) {
		struct custom *c = find_custom(r, need->custom[i]->key, strlen(need->custom[i]->key));
		if (c && need->custom[i]->value > 0)
			hold_custom(r, &h, c, need->custom[i]->value);
	}
	*ret = h;
	return NULL;
}

void resources_give_back(struct resources *r, struct holding *h)
{
	r->cpu_used -= h->cpu_millis;
	r->memory_used -= h->memory_bytes;
	devices_give_back(r->devices, h->gpus, h->n_gpus);
	for (size_t i = 0; h->custom && i < r->n_custom; i++)
		r->custom[i].used -= h->custom[i];
	free(h->gpus);
	free(h->custom);
	*h = (struct holding){0};
}

char **resources_devices(const struct resources *r, const struct holding *h)
{
	char **names = h->n_gpus ? xcalloc(h->n_gpus, sizeof(*names)) : NULL;
	for (size_t i = 0; i < h->n_gpus; i++)
		names[i] = (char *)(uintptr_t)devices_name(r->devices, h->gpus[i]);
	return names;
}

char *resources_visible(const struct resources *r, const struct holding *h)
{
	size_t cap = h->n_gpus * DEVICE_NAME_MAX + 1, at = 0;
	char *text = xcalloc(1, cap);
	for (size_t i = 0; i < h->n_gpus; i++)
		at += (size_t)snprintf(text + at, cap - at, "%s%s", i ? "," : "", devices_name(r->devices, h->gpus[i]));
	return text;
}

static void add_word(char **words, size_t *n, const char *kind, const char *name, int64_t count)
{
	if (count && asprintf(&words[(*n)++], "%s%s=%" PRId64, kind, name, count) < 0)
		abort(); /* a name's length */
}

char **resources_words(const struct resources *r, const struct holding *h, size_t *ret_n)
{
	char **words = xcalloc(2 + RESOURCES_CUSTOM_MAX, sizeof(*words));
	*ret_n = 0;
	add_word(words, ret_n, "cpu_millis", "", h->cpu_millis);
	add_word(words, ret_n, "memory_bytes", "", h->memory_bytes);
	for (size_t i = 0; h->custom && i < r->n_custom; i++)
		add_word(words, ret_n, "custom/", r->custom[i].name, h->custom[i]);
	return words;
}

void resources_words_free(char **words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(words[i]);
	free(words);
}

static bool adopt_word(struct resources *r, const char *word, struct holding *h)
{
	size_t n = strcspn(word, "=");
	int64_t count;
	if (word[n] != '=' || num_parse_i64(word + n + 1, &count) < 0 || count < 1 || count > COUNT_MAX)
		return false;
	if (strncmp(word, "cpu_millis=", n + 1) == 0 && !h->cpu_millis) {
		h->cpu_millis = count;
		r->cpu_used += count;
		return true;
	}
	if (strncmp(word, "memory_bytes=", n + 1) == 0 && !h->memory_bytes) {
		h->memory_bytes = count;
		r->memory_used += count;
		return true;
	}
	struct custom *c = strncmp(word, "custom/", 7) == 0 ? find_custom(r, word + 7, n - 7) : NULL;
	if (!c || c->used > INT64_MAX - COUNT_MAX)
		return false;
	hold_custom(r, h, c, count);
	return true;
}

bool resources_adopt(struct resources *r, char *const *words, size_t n, char *const *devices, size_t n_devices,
		     struct holding *ret)
{
	struct holding h = {0};
	bool all = true;
	for (size_t i = 0; i < n; i++)
		all &= adopt_word(r, words[i], &h);
	if (n_devices)
		h.gpus = xcalloc(n_devices, sizeof(*h.gpus));
	for (size_t i = 0; i < n_devices; i++) {
		if (devices_adopt(r->devices, devices[i], &h.gpus[h.n_gpus]) == 0)
			h.n_gpus++;
		else
			all = false;
	}
	*ret = h;
	return all;
}

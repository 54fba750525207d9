/* Which GPUs are ours, and which attempt has which. */
#include "worker/devices.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "worker/devices_private.h"

struct devices {
	size_t n;
	bool bus_order;
	char text[512];
	struct device {
		char name[DEVICE_NAME_MAX];
		bool taken;
	} at[DEVICES_MAX];
};

/* A list of words between commas; CUDA's own and ours are read alike. */
struct words {
	size_t n;
	char at[DEVICES_MAX][DEVICE_NAME_MAX];
};

static void describe(struct devices *d, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void describe(struct devices *d, const char *fmt, ...)
{
	size_t at = strlen(d->text);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d->text + at, sizeof(d->text) - at, fmt, ap);
	va_end(ap);
}

static bool is_index(const char *s)
{
	return *s && strspn(s, "0123456789") == strlen(s) && strlen(s) <= 4;
}

static bool is_uuid(const char *s)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-/";
	return (strncmp(s, "GPU-", 4) == 0 || strncmp(s, "MIG-", 4) == 0) && s[4] && strspn(s, allowed) == strlen(s);
}

/* As CUDA reads its variable: up to the first word that is none (-1 is such a one). False: there was such a word. */
static bool split(const char *text, struct words *ret)
{
	ret->n = 0;
	for (const char *p = text; *p;) {
		while (isspace((unsigned char)*p))
			p++;
		size_t len = strcspn(p, ",");
		const char *next = p + len + (p[len] == ',');
		while (len > 0 && isspace((unsigned char)p[len - 1]))
			len--;
		if (!len && !*next)
			return true; /* "2," */
		if (len >= DEVICE_NAME_MAX || ret->n == DEVICES_MAX)
			return false;
		char *word = ret->at[ret->n];
		memcpy(word, p, len);
		word[len] = '\0';
		if (!is_index(word) && !is_uuid(word))
			return false;
		if (is_index(word)) {
			size_t zeros = strspn(word, "0");
			memmove(word, word + (zeros == len ? zeros - 1 : zeros), len + 1 - (zeros == len ? zeros - 1 : zeros));
		}
		ret->n++;
		p = next;
	}
	return true;
}

static void add(struct devices *d, const char *name)
{
	if (d->n < DEVICES_MAX)
		snprintf(d->at[d->n++].name, DEVICE_NAME_MAX, "%s", name);
}

/* Which of the found ones a word means: its index, its UUID, or the UUID's beginning if that is clear. The number of
 * them: none; a MIG id means no whole GPU and can't be looked for. */
static size_t find_word(const struct device_list *l, const char *word)
{
	size_t hit = l->n;
	for (size_t i = 0; i < l->n; i++) {
		if (is_index(word) ? strcmp(l->at[i].index, word) == 0 : l->at[i].uuid[0] && strncmp(l->at[i].uuid, word, strlen(word)) == 0) {
			if (hit < l->n)
				return l->n;
			hit = i;
		}
	}
	return hit;
}

/* What the outer variable leaves of the found ones. */
static void add_outer(struct devices *d, const struct device_list *l, const struct words *outer)
{
	bool seen[DEVICES_MAX] = {false};
	bool told_uuids = l->n > 0 && l->at[0].uuid[0];
	for (size_t i = 0; i < outer->n; i++) {
		const char *word = outer->at[i];
		bool can_tell = is_index(word) || (told_uuids && word[0] == 'G');
		size_t hit = find_word(l, word);
		if (can_tell && hit == l->n) {
			describe(d, "; CUDA_VISIBLE_DEVICES names \"%.40s\", which is not there: it and what follows is left out", word);
			return;
		}
		for (size_t k = 0; k < d->n && hit == l->n; k++)
			if (strcmp(d->at[k].name, word) == 0)
				return;
		if (hit < l->n && seen[hit])
			return; /* CUDA takes a repeated one for the end of the list too */
		if (hit < l->n)
			seen[hit] = true;
		add(d, word);
	}
}

static void find(struct devices *d, const struct devices_config *cfg, const struct words *outer)
{
	_cleanup_free_ struct device_list *l = xcalloc(1, sizeof(*l));
	char why[320] = "";
	int r = devices_ask_smi(cfg, why, sizeof(why), l);
	if (r <= 0)
		devices_look(cfg->device_dir, l);
	if (r < 0)
		describe(d, "%s; ", why);
	if (l->n == 0) {
		if (r < 0)
			describe(d, "no GPUs");
		else if (outer && outer->n)
			describe(d, "CUDA_VISIBLE_DEVICES names GPUs, but there is no nvidia-smi and none in %s: give --gpus", cfg->device_dir);
		return;
	}
	describe(d, "%zu GPUs by %s", l->n, r > 0 ? "nvidia-smi" : cfg->device_dir);
	if (outer)
		add_outer(d, l, outer);
	for (size_t i = 0; !outer && i < l->n; i++)
		add(d, l->at[i].index);
	if (outer)
		describe(d, ", %zu of them by CUDA_VISIBLE_DEVICES", d->n);
}

static int give_count(struct devices *d, int64_t count, const struct words *outer, char *err, size_t cap)
{
	if (outer && (size_t)count > outer->n) {
		snprintf(err, cap, "--gpus %d: CUDA_VISIBLE_DEVICES of the worker leaves %zu", (int)count, outer->n);
		return -1;
	}
	for (int64_t i = 0; i < count; i++) {
		char name[24];
		snprintf(name, sizeof(name), "%d", (int)i);
		add(d, outer ? outer->at[i] : name);
	}
	return 0;
}

static bool among(const struct words *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->at[i], word) == 0)
			return true;
	return false;
}

static int give_list(struct devices *d, const char *text, const struct words *outer, char *err, size_t cap)
{
	_cleanup_free_ struct words *w = xcalloc(1, sizeof(*w));
	(void)split(text, w); /* it was checked */
	for (size_t i = 0; i < w->n; i++) {
		if (outer && !among(outer, w->at[i])) {
			snprintf(err, cap, "--gpus \"%.200s\": %.120s is not in CUDA_VISIBLE_DEVICES of the worker", text, w->at[i]);
			return -1;
		}
		add(d, w->at[i]);
	}
	return 0;
}

int devices_check(const char *gpus, char *err, size_t cap)
{
	_cleanup_free_ struct words *w = xcalloc(1, sizeof(*w));
	int64_t count;
	if (strcmp(gpus, "none") == 0 || strcmp(gpus, "auto") == 0)
		return 0;
	if (num_parse_i64(gpus, &count) == 0 && count >= 0) {
		if (count <= DEVICES_MAX)
			return 0;
		snprintf(err, cap, "--gpus %lld: at most %d are allowed", (long long)count, DEVICES_MAX);
		return -1;
	}
	if (!split(gpus, w) || !w->n) {
		snprintf(err, cap, "--gpus \"%.200s\": auto, none, a count, or a list of indexes and UUIDs (\"0,2\"; one index: \"2,\") "
			 "is allowed", gpus);
		return -1;
	}
	for (size_t i = 0; i < w->n; i++)
		for (size_t k = 0; k < i; k++)
			if (strcmp(w->at[i], w->at[k]) == 0) {
				snprintf(err, cap, "--gpus \"%.200s\": %.120s is named twice", gpus, w->at[i]);
				return -1;
			}
	return 0;
}

int devices_new(const struct devices_config *cfg, char *err, size_t cap, struct devices **ret)
{
	struct devices *d = xcalloc(1, sizeof(*d));
	_cleanup_free_ struct words *outer = cfg->outer ? xcalloc(1, sizeof(*outer)) : NULL;
	int64_t count;
	int r = devices_check(cfg->gpus, err, cap);
	if (outer)
		(void)split(cfg->outer, outer);
	if (r < 0 || strcmp(cfg->gpus, "none") == 0)
		;
	else if (strcmp(cfg->gpus, "auto") == 0)
		find(d, cfg, outer);
	else if (num_parse_i64(cfg->gpus, &count) == 0 && count >= 0)
		r = give_count(d, count, outer, err, cap);
	else
		r = give_list(d, cfg->gpus, outer, err, cap);
	if (r < 0) {
		free(d);
		return r;
	}
	d->bus_order = !outer;
	*ret = d;
	return 0;
}

void devices_free(struct devices *d)
{
	free(d);
}

size_t devices_count(const struct devices *d)
{
	return d->n;
}

size_t devices_free_count(const struct devices *d)
{
	size_t n = 0;
	for (size_t i = 0; i < d->n; i++)
		n += !d->at[i].taken;
	return n;
}

const char *devices_name(const struct devices *d, size_t i)
{
	return d->at[i].name;
}

const char *devices_describe(const struct devices *d)
{
	return d->text;
}

bool devices_in_bus_order(const struct devices *d)
{
	return d->bus_order;
}

int devices_take(struct devices *d, size_t n, uint16_t *ret)
{
	if (n > devices_free_count(d))
		return -EBUSY;
	for (size_t i = 0, k = 0; k < n; i++)
		if (!d->at[i].taken) {
			d->at[i].taken = true;
			ret[k++] = (uint16_t)i;
		}
	return 0;
}

void devices_give_back(struct devices *d, const uint16_t *indexes, size_t n)
{
	for (size_t k = 0; k < n; k++)
		d->at[indexes[k]].taken = false;
}

int devices_adopt(struct devices *d, const char *name, uint16_t *ret)
{
	for (size_t i = 0; i < d->n; i++) {
		if (strcmp(d->at[i].name, name) != 0)
			continue;
		if (d->at[i].taken)
			return -EBUSY;
		d->at[i].taken = true;
		*ret = (uint16_t)i;
		return 0;
	}
	return -ENOENT;
}

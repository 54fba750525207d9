/* A scrape writes thousands of lines on the loop: they are put together by copying, without printf. */
#include "server/monitor/exposition.h"

#include <stdio.h>
#include <string.h>

#define INT_TEXT 24 /* an int64 */
#define SECONDS_TEXT 32

/* The steps of histogram_steps_ns, and what is above them. */
static const char *const les[HISTOGRAM_STEPS + 1] = {
	"le=\"0.0001\"", "le=\"0.00025\"", "le=\"0.0005\"", "le=\"0.001\"", "le=\"0.0025\"", "le=\"0.005\"",
	"le=\"0.01\"",	 "le=\"0.025\"",   "le=\"0.05\"",   "le=\"0.1\"",   "le=\"0.25\"",   "le=\"0.5\"",
	"le=\"1\"",	 "le=\"2.5\"",	   "le=\"5\"",	    "le=\"10\"",    "le=\"+Inf\"",
};

static char *copy(char *at, const char *s, size_t n)
{
	memcpy(at, s, n);
	return at + n;
}

static char *put(char *at, const char *s) { return copy(at, s, strlen(s)); }

static char *put_int(char *at, int64_t v)
{
	char text[INT_TEXT], *p = text + sizeof(text);
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
	do
		*--p = (char)('0' + u % 10);
	while (u /= 10);
	if (v < 0)
		*--p = '-';
	return copy(at, p, (size_t)(text + sizeof(text) - p));
}

static char *put_seconds(char *at, int64_t ns)
{
	at = put_int(at, ns / NS_PER_S);
	*at++ = '.';
	int64_t rest = ns % NS_PER_S;
	for (int64_t unit = NS_PER_S / 10; unit; unit /= 10)
		*at++ = (char)('0' + rest / unit % 10);
	return at;
}

/* Room for a line of so many bytes beside its name; NULL: there is none. */
static char *begin(struct exposition *x, size_t n)
{
	char *at = x->failed ? NULL : (char *)buf_reserve(x->out, x->name_len + n);
	if (!at)
		x->failed = true;
	return at;
}

static void end(struct exposition *x, char *from, char *at)
{
	*at++ = '\n';
	buf_commit(x->out, (size_t)(at - from));
}

void exposition_family(struct exposition *x, const char *name, enum exposition_type type, const char *help)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };
	x->name = name;
	x->name_len = strlen(name);
	char *from = begin(x, x->name_len + strlen(help) + 64), *at = from;
	if (!at)
		return;
	at = copy(put(at, "# HELP "), name, x->name_len);
	at = put(put(at, " "), help);
	at = copy(put(at, "\n# TYPE "), name, x->name_len);
	at = put(put(at, " "), types[type]);
	end(x, from, at);
}

/* All up to the value, for which there is room. */
static char *sample(struct exposition *x, const char *suffix, const char *labels, const char *more, char **ret_from)
{
	size_t n = labels ? strlen(labels) : 0;
	char *at = begin(x, strlen(suffix) + n + strlen(more) + SECONDS_TEXT + 8);
	*ret_from = at;
	if (!at)
		return NULL;
	at = put(copy(at, x->name, x->name_len), suffix);
	if (n || *more) {
		*at++ = '{';
		if (n)
			at = copy(at, labels, n);
		if (n && *more)
			*at++ = ',';
		at = put(at, more);
		*at++ = '}';
	}
	*at++ = ' ';
	return at;
}

static void sample_int(struct exposition *x, const char *suffix, const char *labels, const char *more, int64_t value)
{
	char *from, *at = sample(x, suffix, labels, more, &from);
	if (at)
		end(x, from, put_int(at, value));
}

static void sample_seconds(struct exposition *x, const char *suffix, const char *labels, int64_t ns)
{
	char *from, *at = sample(x, suffix, labels, "", &from);
	if (at)
		end(x, from, put_seconds(at, max_i64(ns, 0)));
}

void exposition_int(struct exposition *x, const char *labels, int64_t value) { sample_int(x, "", labels, "", value); }
void exposition_seconds(struct exposition *x, const char *labels, int64_t ns) { sample_seconds(x, "", labels, ns); }

void exposition_histogram(struct exposition *x, const char *labels, const struct histogram *h)
{
	int64_t below = 0;
	for (size_t i = 0; i <= HISTOGRAM_STEPS; i++) {
		below += h->counts[i];
		sample_int(x, "_bucket", labels, les[i], below);
	}
	sample_seconds(x, "_sum", labels, h->sum_ns);
	sample_int(x, "_count", labels, "", h->total);
}

void exposition_one(struct exposition *x, const char *name, enum exposition_type type, const char *help, int64_t value)
{
	exposition_family(x, name, type, help);
	exposition_int(x, NULL, value);
}

bool exposition_label(char *labels, size_t cap, const char *name, const char *value)
{
	size_t before = strlen(labels);
	int n = snprintf(labels + before, cap - before, "%s%s=\"", before ? "," : "", name);
	size_t at = before + (size_t)n;
	bool fits = n > 0 && at < cap;
	for (const char *p = value; fits && *p; p++) {
		bool escape = *p == '"' || *p == '\\' || *p == '\n';
		fits = at + 4 < cap;
		if (fits && escape)
			labels[at++] = '\\';
		if (fits)
			labels[at++] = *p == '\n' ? 'n' : *p;
	}
	if (!fits || at + 2 > cap) {
		labels[before] = '\0';
		return false;
	}
	labels[at] = '"';
	labels[at + 1] = '\0';
	return true;
}

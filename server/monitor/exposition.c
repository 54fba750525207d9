#include "server/monitor/exposition.h"

#include <stdarg.h>
#include <stdio.h>

static void line(struct exposition *x, const char *fmt, ...) PRINTF_LIKE(2, 3);

static void line(struct exposition *x, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text) || buf_add(x->out, text, (size_t)n) < 0)
		x->failed = true;
}

void exposition_family(struct exposition *x, const char *name, enum exposition_type type, const char *help)
{
	static const char *const types[] = { "counter", "gauge", "histogram" };
	x->name = name;
	line(x, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

static void sample(struct exposition *x, const char *suffix, const char *labels, const char *more, const char *value)
{
	bool any = labels || *more;
	line(x, "%s%s%s%s%s%s%s %s\n", x->name, suffix, any ? "{" : "", labels ? labels : "", labels && *more ? "," : "", more,
	     any ? "}" : "", value);
}

void exposition_int(struct exposition *x, const char *labels, int64_t value)
{
	char text[32];
	snprintf(text, sizeof(text), "%lld", (long long)value);
	sample(x, "", labels, "", text);
}

static void format_seconds(int64_t ns, char *ret, size_t cap)
{
	snprintf(ret, cap, "%lld.%09lld", (long long)(ns / NS_PER_S), (long long)(ns % NS_PER_S));
}

void exposition_seconds(struct exposition *x, const char *labels, int64_t ns)
{
	char text[48];
	format_seconds(max_i64(ns, 0), text, sizeof(text));
	sample(x, "", labels, "", text);
}

void exposition_histogram(struct exposition *x, const char *labels, const struct histogram *h)
{
	char text[48], le[64];
	int64_t below = 0;
	for (size_t i = 0; i <= HISTOGRAM_STEPS; i++) {
		below += h->counts[i];
		if (i < HISTOGRAM_STEPS)
			snprintf(le, sizeof(le), "le=\"%g\"", (double)histogram_steps_ns[i] / (double)NS_PER_S);
		else
			snprintf(le, sizeof(le), "le=\"+Inf\"");
		snprintf(text, sizeof(text), "%lld", (long long)below);
		sample(x, "_bucket", labels, le, text);
	}
	format_seconds(h->sum_ns, text, sizeof(text));
	sample(x, "_sum", labels, "", text);
	snprintf(text, sizeof(text), "%lld", (long long)h->total);
	sample(x, "_count", labels, "", text);
}

void exposition_one(struct exposition *x, const char *name, enum exposition_type type, const char *help, int64_t value)
{
	exposition_family(x, name, type, help);
	exposition_int(x, NULL, value);
}

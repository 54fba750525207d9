#include "common/base/num.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int num_parse_i64(const char *s, int64_t *ret)
{
	const char *digits = s + (*s == '-');
	if (*digits < '0' || *digits > '9')
		return -EINVAL;
	char *end;
	errno = 0;
	long long v = strtoll(s, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno == ERANGE)
		return -ERANGE;
	*ret = v;
	return 0;
}

struct unit {
	const char *name;
	int64_t scale;
};

/* digits[.digits]unit, scaled in integers so that "0.1s" is exactly 100 ms. */
static int parse_scaled(const char *s, const struct unit *units, size_t n_units, bool plain_ok, int64_t *ret)
{
	int64_t whole = 0, frac = 0, frac_scale = 1;
	const char *p = s;
	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, *p - '0', &whole))
			return -ERANGE;
	if (*p == '.') {
		const char *first = ++p;
		for (; *p >= '0' && *p <= '9'; p++) {
			if (p - first >= 9)
				return -EINVAL;
			frac = frac * 10 + (*p - '0');
			frac_scale *= 10;
		}
		if (p == first)
			return -EINVAL;
	}
	if (!*p) {
		if (frac_scale != 1 || (whole != 0 && !plain_ok))
			return -EINVAL;
		*ret = whole;
		return 0;
	}
	for (size_t i = 0; i < n_units; i++) {
		if (strcmp(p, units[i].name) != 0)
			continue;
		int64_t v;
		if (__builtin_mul_overflow(whole, units[i].scale, &v) ||
		    __builtin_add_overflow(v, (int64_t)((int128)frac * units[i].scale / frac_scale), &v))
			return -ERANGE;
		*ret = v;
		return 0;
	}
	return -EINVAL;
}

static const struct unit duration_units[] = {
	{ "d", 86400 * NS_PER_S }, { "h", 3600 * NS_PER_S }, { "m", 60 * NS_PER_S },
	{ "s", NS_PER_S },         { "ms", NS_PER_MS },      { "us", NS_PER_US },
	{ "ns", 1 },
};

static const struct unit size_units[] = {
	{ "TiB", INT64_C(1) << 40 }, { "GiB", 1 << 30 }, { "MiB", 1 << 20 }, { "KiB", 1 << 10 }, { "B", 1 },
	{ "T", INT64_C(1) << 40 },   { "G", 1 << 30 },   { "M", 1 << 20 },   { "K", 1 << 10 },
};

int num_parse_duration(const char *s, int64_t *ret_ns)
{
	return parse_scaled(s, duration_units, ARRAY_LEN(duration_units), false, ret_ns);
}

int num_parse_size(const char *s, int64_t *ret_bytes)
{
	return parse_scaled(s, size_units, ARRAY_LEN(size_units), true, ret_bytes);
}

static void format_scaled(int64_t v, const struct unit *units, size_t n, const char *zero, char *text, size_t cap)
{
	if (v == 0) {
		snprintf(text, cap, "%s", zero);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (v % units[i].scale == 0) {
			snprintf(text, cap, "%" PRId64 "%s", v / units[i].scale, units[i].name);
			return;
		}
	}
}

void num_format_duration(int64_t ns, char *ret_text, size_t cap)
{
	format_scaled(ns, duration_units, ARRAY_LEN(duration_units), "0", ret_text, cap);
}

void num_format_size(int64_t bytes, char *ret_text, size_t cap)
{
	format_scaled(bytes, size_units, 5, "0", ret_text, cap);
}

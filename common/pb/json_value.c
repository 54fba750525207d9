/* No state, no allocation.  strtod and strtof go by the locale: no program of ours sets one. */
#include "common/pb/json_value.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/pb/json_lex.h"
#include "common/pb/pb.h"

#define EXPONENT_MAX INT64_C(1000000000) /* beyond any text that fits into memory */
#define WHOLE_DIGITS_MAX 20               /* of 2^64 */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number's digits without its point. */
struct digits {
	const char *whole;
	size_t n_whole;
	const char *fraction;
	size_t n_fraction;
	int64_t exponent;
};

static char digit_at(const struct digits *d, size_t i)
{
	return i < d->n_whole ? d->whole[i] : d->fraction[i - d->n_whole];
}

/* s is a number by JSON's grammar, without its sign. */
static struct digits split_number(const char *s, const char *end)
{
	struct digits d = { .whole = s, .fraction = s };
	while (s < end && is_digit(*s))
		s++;
	d.n_whole = (size_t)(s - d.whole);
	if (s < end && *s == '.') {
		for (d.fraction = ++s; s < end && is_digit(*s); s++)
			;
		d.n_fraction = (size_t)(s - d.fraction);
	}
	if (s < end) {
		bool negative = s[1] == '-';
		s += negative || s[1] == '+' ? 2 : 1;
		for (; s < end; s++)
			d.exponent = min_i64(d.exponent * 10 + (*s - '0'), EXPONENT_MAX);
		d.exponent = negative ? -d.exponent : d.exponent;
	}
	return d;
}

int json_read_whole(const char *s, size_t len, bool *ret_negative, uint64_t *ret_magnitude)
{
	if (!len || json_number_len(s, len, NULL) != len)
		return -EINVAL;
	bool negative = *s == '-';
	struct digits d = split_number(s + negative, s + len);
	size_t first = 0, behind = d.n_whole + d.n_fraction;
	while (first < behind && digit_at(&d, first) == '0')
		first++;
	while (behind > first && digit_at(&d, behind - 1) == '0')
		behind--;
	uint64_t v = 0;
	if (first < behind) {
		/* The last digit that counts stands for 10^scale. */
		int64_t scale = d.exponent + (int64_t)d.n_whole - (int64_t)behind;
		if (scale < 0)
			return -EDOM;
		if (scale > WHOLE_DIGITS_MAX || behind - first + (size_t)scale > WHOLE_DIGITS_MAX)
			return -ERANGE;
		for (size_t i = first; i < behind + (size_t)scale; i++)
			if (__builtin_mul_overflow(v, 10, &v) ||
				__builtin_add_overflow(v, (uint64_t)(i < behind ? digit_at(&d, i) - '0' : 0), &v))
				return -ERANGE;
	}
	*ret_negative = negative;
	*ret_magnitude = v;
	return 0;
}

int json_read_real(const char *s, size_t len, bool single, bool names, double *ret)
{
	static const struct {
		const char *name;
		double value;
	} named[] = { { "NaN", NAN }, { "Infinity", INFINITY }, { "-Infinity", -INFINITY } };
	char text[JSON_REAL_CHARS_MAX + 1];
	for (size_t i = 0; names && i < ARRAY_LEN(named); i++)
		if (len == strlen(named[i].name) && memcmp(s, named[i].name, len) == 0) {
			*ret = named[i].value;
			return 0;
		}
	if (!len || json_number_len(s, len, NULL) != len)
		return -EINVAL;
	if (len > JSON_REAL_CHARS_MAX)
		return -E2BIG;
	memcpy(text, s, len);
	text[len] = '\0';
	double v = single ? (double)strtof(text, NULL) : strtod(text, NULL);
	if (isinf(v))
		return -ERANGE;
	*ret = v;
	return 0;
}

/* ---- base64 ---- */

static int base64_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (is_digit(c))
		return c - '0' + 52;
	return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

static size_t without_padding(const char *s, size_t len)
{
	for (int i = 0; i < 2 && len && len % 4 != 1 && s[len - 1] == '='; i++)
		len--;
	return len;
}

ptrdiff_t json_base64_len(const char *s, size_t len)
{
	size_t n = without_padding(s, len);
	if (n % 4 == 1 || (n < len && len % 4))
		return -1;
	for (size_t i = 0; i < n; i++)
		if (base64_value(s[i]) < 0)
			return -1;
	return (ptrdiff_t)(n / 4 * 3 + (n % 4 ? n % 4 - 1 : 0));
}

void json_base64_read(const char *s, size_t len, uint8_t *ret_data)
{
	uint32_t bits = 0;
	size_t n = without_padding(s, len);
	for (size_t i = 0; i < n; i++) {
		bits = bits << 6 | (uint32_t)base64_value(s[i]);
		if (i % 4)
			*ret_data++ = (uint8_t)(bits >> (6 - 2 * (i % 4)));
	}
}

/* ---- times ---- */

struct cursor {
	const char *p;
	const char *end;
};

static bool take(struct cursor *c, char wanted)
{
	if (c->p == c->end || *c->p != wanted)
		return false;
	c->p++;
	return true;
}

/* Exactly n digits. -1: there are fewer. */
static int take_digits(struct cursor *c, int n)
{
	int v = 0;
	for (int i = 0; i < n; i++, c->p++) {
		if (c->p == c->end || !is_digit(*c->p))
			return -1;
		v = v * 10 + (*c->p - '0');
	}
	return v;
}

/* ".5", if there is a point. -1: no digit behind it, or more than nine. */
static int32_t take_nanos(struct cursor *c)
{
	int32_t v = 0;
	int n = 0;
	if (!take(c, '.'))
		return 0;
	for (; n < 9 && c->p < c->end && is_digit(*c->p); n++, c->p++)
		v = v * 10 + (*c->p - '0');
	if (!n)
		return -1;
	for (; n < 9; n++)
		v *= 10;
	return v;
}

/* Since 1970-01-01, by the Gregorian calendar. */
static int64_t days_from_date(int year, int month, int day)
{
	/* Years begin with March, so that the day of a leap year is the last. */
	int64_t y = month <= 2 ? year - 1 : year, era = y / 400, of_era = y - era * 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int days_of_month(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = year % 4 == 0 && (year % 100 || year % 400 == 0);
	return month == 2 && leap ? 29 : days[month - 1];
}

/* "Z", "+01:30". False: neither. */
static bool take_offset(struct cursor *c, int64_t *ret_seconds)
{
	*ret_seconds = 0;
	if (take(c, 'Z'))
		return true;
	bool west = take(c, '-');
	if (!west && !take(c, '+'))
		return false;
	int hours = take_digits(c, 2);
	bool colon = take(c, ':');
	int minutes = take_digits(c, 2);
	if (hours < 0 || hours > 23 || !colon || minutes < 0 || minutes > 59)
		return false;
	*ret_seconds = (west ? -1 : 1) * (hours * 3600 + minutes * 60);
	return true;
}

int json_read_timestamp(const char *s, size_t len, int64_t *ret_seconds, int32_t *ret_nanos)
{
	struct cursor c = { s, s + len };
	Google__Protobuf__Timestamp t;
	int64_t offset, ignored;
	int part[6];
	static const int width[6] = { 4, 2, 2, 2, 2, 2 };
	for (size_t i = 0; i < 6; i++)
		if ((i && !take(&c, "--T::"[i - 1])) || (part[i] = take_digits(&c, width[i])) < 0)
			return -EINVAL;
	int32_t nanos = take_nanos(&c);
	if (nanos < 0 || !take_offset(&c, &offset) || c.p != c.end)
		return -EINVAL;
	if (part[0] < 1 || part[1] < 1 || part[1] > 12 || part[2] < 1 || part[2] > days_of_month(part[0], part[1]) ||
		part[3] > 23 || part[4] > 59 || part[5] > 59)
		return -ERANGE;
	google__protobuf__timestamp__init(&t);
	t.seconds = days_from_date(part[0], part[1], part[2]) * 86400 + part[3] * 3600 + part[4] * 60 + part[5] - offset;
	t.nanos = nanos;
	if (pb_timestamp_us(&t, &ignored))
		return -ERANGE;
	*ret_seconds = t.seconds;
	*ret_nanos = nanos;
	return 0;
}

int json_read_duration(const char *s, size_t len, int64_t *ret_seconds, int32_t *ret_nanos)
{
	struct cursor c = { s, s + len };
	Google__Protobuf__Duration d;
	bool negative = take(&c, '-');
	const char *from = c.p;
	int64_t seconds = 0;
	bool beyond = false;
	for (; c.p < c.end && is_digit(*c.p); c.p++)
		beyond = beyond || __builtin_mul_overflow(seconds, 10, &seconds) ||
			__builtin_add_overflow(seconds, *c.p - '0', &seconds);
	bool none = c.p == from;
	int32_t nanos = take_nanos(&c);
	if (none || nanos < 0 || !take(&c, 's') || c.p != c.end)
		return -EINVAL;
	google__protobuf__duration__init(&d);
	d.seconds = negative ? -seconds : seconds;
	d.nanos = negative ? -nanos : nanos;
	if (beyond || !pb_duration_valid(&d))
		return -ERANGE;
	*ret_seconds = d.seconds;
	*ret_nanos = d.nanos;
	return 0;
}

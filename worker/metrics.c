/* One line at a time through jansson, which knows no NaN, no infinity, and no number outside of its type. */
#include "worker/metrics.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "common/base/name.h"

#define WHOLE_MAX 9007199254740992.0 /* 2^53: a larger double may stand for another number */

static bool key_ok(const char *key)
{
	return name_is(key, strlen(key), METRICS_KEY_MAX);
}

static bool read_step(const json_t *v, int64_t *ret)
{
	if (json_is_integer(v)) {
		*ret = json_integer_value(v);
		return true;
	}
	double d = json_is_real(v) ? json_real_value(v) : 0.5;
	if (!(d >= -WHOLE_MAX && d <= WHOLE_MAX) || d < floor(d) || d > floor(d))
		return false;
	*ret = (int64_t)d;
	return true;
}

static bool read_object(json_t *object, int64_t last_step, struct metrics_point *ret)
{
	const char *key;
	json_t *value;
	ret->n = 0;
	ret->step = last_step < INT64_MAX ? last_step + 1 : INT64_MAX;
	json_object_foreach(object, key, value) {
		if (!strcmp(key, "step")) {
			if (!read_step(value, &ret->step))
				return false;
			continue;
		}
		double d = json_number_value(value);
		if (!json_is_number(value) || !isfinite(d) || !key_ok(key) || ret->n == METRICS_VALUES_MAX)
			return false;
		memcpy(ret->values[ret->n].key, key, strlen(key) + 1);
		ret->values[ret->n++].value = d;
	}
	return ret->n > 0;
}

static bool read_line(const char *line, size_t len, int64_t last_step, struct metrics_point *ret)
{
	json_t *object = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
	bool ok = json_is_object(object) && read_object(object, last_step, ret);
	json_decref(object);
	return ok;
}

static bool is_blank(const char *line, size_t len)
{
	while (len && (line[len - 1] == ' ' || line[len - 1] == '\t' || line[len - 1] == '\r'))
		len--;
	return len == 0;
}

/* False: stop. */
static bool take_line(struct metrics_scan *s, const char *line, size_t len, bool (*on_point)(void *, const struct metrics_point *),
		      void *arg)
{
	struct metrics_point p;
	if (s->skipping) { /* the end of it; it was counted at its head */
		s->skipping = false;
		return true;
	}
	if (len <= METRICS_LINE_MAX && is_blank(line, len))
		return true;
	if (len > METRICS_LINE_MAX || !read_line(line, len, s->last_step, &p)) {
		s->malformed++;
		return true;
	}
	s->last_step = p.step;
	return on_point(arg, &p);
}

size_t metrics_scan(struct metrics_scan *s, const char *data, size_t len, bool last,
		    bool (*on_point)(void *arg, const struct metrics_point *p), void *arg)
{
	size_t at = 0;
	while (at < len) {
		const char *end = memchr(data + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (data + at)) : len - at;
		if (!end && !last) {
			if (n > METRICS_LINE_MAX && !s->skipping) {
				s->malformed++;
				s->skipping = true;
			}
			return s->skipping ? len : at;
		}
		bool go_on = take_line(s, data + at, n, on_point, arg);
		at += n + (end ? 1 : 0);
		if (!go_on)
			break;
	}
	return at;
}

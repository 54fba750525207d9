/* Times and maps of protobuf messages in our own terms.  No state. */
#include "common/pb/pb.h"

#include <errno.h>
#include <string.h>

#define US_PER_S INT64_C(1000000)
#define TIMESTAMP_MIN_S INT64_C(-62135596800)
#define TIMESTAMP_MAX_S INT64_C(253402300799)
#define DURATION_MAX_S INT64_C(315576000000)

int pb_timestamp_us(const Google__Protobuf__Timestamp *t, int64_t *ret_wall_us)
{
	if (t && (t->seconds < TIMESTAMP_MIN_S || t->seconds > TIMESTAMP_MAX_S || t->nanos < 0 || t->nanos >= NS_PER_S))
		return -ERANGE;
	*ret_wall_us = t ? t->seconds * US_PER_S + t->nanos / NS_PER_US : 0;
	return 0;
}

bool pb_duration_valid(const Google__Protobuf__Duration *d)
{
	if (d->seconds < -DURATION_MAX_S || d->seconds > DURATION_MAX_S || d->nanos <= -NS_PER_S || d->nanos >= NS_PER_S)
		return false;
	return !(d->seconds > 0 && d->nanos < 0) && !(d->seconds < 0 && d->nanos > 0);
}

int pb_duration_ns(const Google__Protobuf__Duration *d, int64_t *ret_ns)
{
	int64_t ns = 0;
	if (d && (!pb_duration_valid(d) || __builtin_mul_overflow(d->seconds, NS_PER_S, &ns) ||
		__builtin_add_overflow(ns, d->nanos, &ns)))
		return -ERANGE;
	*ret_ns = ns;
	return 0;
}

void pb_timestamp_set(Google__Protobuf__Timestamp *t, int64_t wall_us)
{
	google__protobuf__timestamp__init(t);
	int64_t us = wall_us % US_PER_S;
	t->seconds = wall_us / US_PER_S;
	if (us < 0) {
		us += US_PER_S;
		t->seconds--;
	}
	t->nanos = (int32_t)(us * NS_PER_US);
}

void pb_duration_set(Google__Protobuf__Duration *d, int64_t ns)
{
	google__protobuf__duration__init(d);
	d->seconds = ns / NS_PER_S;
	d->nanos = (int32_t)(ns % NS_PER_S);
}

/* How protoc-c lays out an entry of any map<string, …>; `value` where that is a string. */
struct entry {
	ProtobufCMessage base;
	char *key;
	char *value;
};

ptrdiff_t pb_map_find(const void *entries, size_t n, const char *key)
{
	const struct entry *const *e = entries;
	for (size_t i = n; i-- > 0;)
		if (strcmp(e[i]->key, key) == 0)
			return (ptrdiff_t)i;
	return -1;
}

const char *pb_map_get(const void *entries, size_t n, const char *key)
{
	const struct entry *const *e = entries;
	ptrdiff_t i = pb_map_find(entries, n, key);
	return i < 0 ? NULL : e[i]->value;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
	int c = strcmp(x->key, y->key);
	return c ? c : (x->base.n_unknown_fields > y->base.n_unknown_fields) - (x->base.n_unknown_fields < y->base.n_unknown_fields);
}

size_t pb_map_unique(void *entries, size_t n)
{
	/* qsort is not stable: each entry carries its position in the count of its unknown
	 * fields, which nobody wants of a map entry. */
	struct entry **e = entries;
	for (size_t i = 0; i < n; i++) {
		e[i]->base.n_unknown_fields = (unsigned)i;
		e[i]->base.unknown_fields = NULL;
	}
	if (n > 1)
		qsort(e, n, sizeof(struct entry *), compare_entries);
	size_t kept = 0;
	for (size_t i = 0; i < n; i++) {
		e[i]->base.n_unknown_fields = 0;
		if (i + 1 == n || strcmp(e[i]->key, e[i + 1]->key) != 0)
			e[kept++] = e[i];
	}
	return kept;
}

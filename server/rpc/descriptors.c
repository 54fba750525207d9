/* Reads the set by the fields of descriptor.proto; what is nested is followed to a depth. */
#include "server/rpc/descriptors.h"

#include <errno.h>
#include <string.h>

#include "server/rpc/wire.h"

#define NESTED_MAX 32 /* messages in messages; protoc refuses more in its own input */

/* Numbers of descriptor.proto. */
enum { SET_FILE = 1 };
enum { FILE_NAME = 1, FILE_PACKAGE = 2, FILE_DEPENDENCY = 3, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6, FILE_EXTENSION = 7 };
enum { MESSAGE_FIELD = 2, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, MESSAGE_EXTENSION = 6, MESSAGE_ONEOF = 8 };
enum { ANY_NAME = 1, ENUM_VALUE = 2, SERVICE_METHOD = 2, FIELD_EXTENDEE = 2, FIELD_NUMBER = 3 };

static struct descriptors_span first(struct descriptors_span s, uint32_t field)
{
	struct descriptors_span found = { NULL, 0 };
	(void)wire_find_len(s.data, s.len, field, &found.data, &found.len);
	return found;
}

static bool same(struct descriptors_span s, const char *text)
{
	return strlen(text) == s.len && (s.len == 0 || memcmp(s.data, text, s.len) == 0);
}

int descriptors_init(struct descriptors *d, const uint8_t *set, size_t len)
{
	const uint8_t *p = set, *end = set + len;
	struct wire_field f;
	d->n = 0;
	while (wire_next(&p, end, &f)) {
		if (f.number != SET_FILE || f.type != WIRE_LEN || d->n == DESCRIPTORS_FILES_MAX)
			return -EINVAL;
		struct descriptors_span file = { f.data, f.len };
		d->at[d->n].file = file;
		d->at[d->n].name = first(file, FILE_NAME);
		d->at[d->n].package = first(file, FILE_PACKAGE);
		d->n++;
	}
	return p == end ? 0 : -EINVAL;
}

int descriptors_file(const struct descriptors *d, const char *name)
{
	for (size_t i = 0; i < d->n; i++)
		if (same(d->at[i].name, name))
			return (int)i;
	return -1;
}

/* ---- symbols ---- */

/* What of `name` follows `prefix` and a dot; NULL: it does not begin so. */
static const char *after(const char *name, struct descriptors_span prefix)
{
	return prefix.len && strncmp(name, (const char *)prefix.data, prefix.len) == 0 && name[prefix.len] == '.' ?
		       name + prefix.len + 1 : NULL;
}

static bool has_named(struct descriptors_span s, uint32_t field, const char *name)
{
	const uint8_t *p = s.data, *end = s.data + s.len;
	struct wire_field f;
	while (wire_next(&p, end, &f))
		if (f.number == field && f.type == WIRE_LEN && same(first((struct descriptors_span){ f.data, f.len }, ANY_NAME), name))
			return true;
	return false;
}

enum kind { KIND_NONE, KIND_MESSAGE, KIND_OTHER };

static enum kind in_message(struct descriptors_span m, const char *name, int depth);

/* A message, or what is in it. */
static enum kind as_message(struct descriptors_span m, const char *name, int depth)
{
	struct descriptors_span own = first(m, ANY_NAME);
	const char *inner = after(name, own);
	if (same(own, name))
		return KIND_MESSAGE;
	return inner ? in_message(m, inner, depth) : KIND_NONE;
}

/* Values of an enum are names of the scope that the enum is in. */
static enum kind as_enum(struct descriptors_span e, const char *name)
{
	return same(first(e, ANY_NAME), name) || has_named(e, ENUM_VALUE, name) ? KIND_OTHER : KIND_NONE;
}

static enum kind in_message(struct descriptors_span m, const char *name, int depth)
{
	if (depth == NESTED_MAX)
		return KIND_NONE;
	const uint8_t *p = m.data, *end = m.data + m.len;
	struct wire_field f;
	enum kind kind = KIND_NONE;
	while (kind == KIND_NONE && wire_next(&p, end, &f)) {
		struct descriptors_span s = { f.data, f.len };
		if (f.type != WIRE_LEN)
			continue;
		if (f.number == MESSAGE_NESTED)
			kind = as_message(s, name, depth + 1);
		else if (f.number == MESSAGE_ENUM)
			kind = as_enum(s, name);
		else if ((f.number == MESSAGE_FIELD || f.number == MESSAGE_EXTENSION || f.number == MESSAGE_ONEOF) &&
			 same(first(s, ANY_NAME), name))
			kind = KIND_OTHER;
	}
	return kind;
}

static enum kind as_service(struct descriptors_span s, const char *name)
{
	struct descriptors_span own = first(s, ANY_NAME);
	const char *method = after(name, own);
	return same(own, name) || (method && has_named(s, SERVICE_METHOD, method)) ? KIND_OTHER : KIND_NONE;
}

static enum kind in_file(struct descriptors_span file, const char *name)
{
	const uint8_t *p = file.data, *end = file.data + file.len;
	struct wire_field f;
	enum kind kind = KIND_NONE;
	while (kind == KIND_NONE && wire_next(&p, end, &f)) {
		struct descriptors_span s = { f.data, f.len };
		if (f.type != WIRE_LEN)
			continue;
		if (f.number == FILE_MESSAGE)
			kind = as_message(s, name, 1);
		else if (f.number == FILE_ENUM)
			kind = as_enum(s, name);
		else if (f.number == FILE_SERVICE)
			kind = as_service(s, name);
		else if (f.number == FILE_EXTENSION && same(first(s, ANY_NAME), name))
			kind = KIND_OTHER;
	}
	return kind;
}

static int find(const struct descriptors *d, const char *name, enum kind *ret_kind)
{
	for (size_t i = 0; i < d->n; i++) {
		const char *rest = d->at[i].package.len ? after(name, d->at[i].package) : name;
		*ret_kind = rest && *rest ? in_file(d->at[i].file, rest) : KIND_NONE;
		if (*ret_kind != KIND_NONE)
			return (int)i;
	}
	return -1;
}

int descriptors_symbol(const struct descriptors *d, const char *name)
{
	enum kind kind;
	return find(d, name, &kind);
}

bool descriptors_has_message(const struct descriptors *d, const char *name)
{
	enum kind kind;
	return find(d, name, &kind) >= 0 && kind == KIND_MESSAGE;
}

/* ---- extensions ---- */

struct wanted {
	const char *type;
	int32_t *numbers; /* NULL: only `number` is looked for */
	int32_t number;
	size_t n;
};

static void note(struct wanted *w, struct descriptors_span field)
{
	struct descriptors_span extendee = first(field, FIELD_EXTENDEE);
	if (!extendee.len || extendee.data[0] != '.' ||
	    !same((struct descriptors_span){ extendee.data + 1, extendee.len - 1 }, w->type))
		return;
	const uint8_t *p = field.data, *end = field.data + field.len;
	struct wire_field f;
	while (wire_next(&p, end, &f)) {
		if (f.number != FIELD_NUMBER || f.type != WIRE_VARINT)
			continue;
		if (!w->numbers)
			w->n += (int32_t)f.value == w->number;
		else if (w->n < DESCRIPTORS_EXTENSIONS_MAX)
			w->numbers[w->n++] = (int32_t)f.value;
	}
}

static void look(struct wanted *w, struct descriptors_span s, uint32_t extension, uint32_t message, int depth)
{
	if (depth == NESTED_MAX)
		return;
	const uint8_t *p = s.data, *end = s.data + s.len;
	struct wire_field f;
	while (wire_next(&p, end, &f)) {
		if (f.type != WIRE_LEN)
			continue;
		if (f.number == extension)
			note(w, (struct descriptors_span){ f.data, f.len });
		else if (f.number == message)
			look(w, (struct descriptors_span){ f.data, f.len }, MESSAGE_EXTENSION, MESSAGE_NESTED, depth + 1);
	}
}

int descriptors_extension(const struct descriptors *d, const char *type, int32_t number)
{
	struct wanted w = { .type = type, .number = number };
	for (size_t i = 0; i < d->n; i++) {
		look(&w, d->at[i].file, FILE_EXTENSION, FILE_MESSAGE, 0);
		if (w.n)
			return (int)i;
	}
	return -1;
}

size_t descriptors_extensions(const struct descriptors *d, const char *type, int32_t ret_numbers[static DESCRIPTORS_EXTENSIONS_MAX])
{
	struct wanted w = { .type = type, .numbers = ret_numbers };
	for (size_t i = 0; i < d->n; i++)
		look(&w, d->at[i].file, FILE_EXTENSION, FILE_MESSAGE, 0);
	return w.n;
}

/* ---- imports ---- */

static uint64_t imports(const struct descriptors *d, size_t file)
{
	const uint8_t *p = d->at[file].file.data, *end = p + d->at[file].file.len;
	struct wire_field f;
	uint64_t set = 0;
	while (wire_next(&p, end, &f)) {
		if (f.number != FILE_DEPENDENCY || f.type != WIRE_LEN)
			continue;
		for (size_t i = 0; i < d->n; i++)
			if (d->at[i].name.len == f.len && f.len && memcmp(d->at[i].name.data, f.data, f.len) == 0)
				set |= UINT64_C(1) << i;
	}
	return set;
}

uint64_t descriptors_closure(const struct descriptors *d, int file)
{
	uint64_t all = UINT64_C(1) << file, done = 0;
	while (all != done) {
		size_t i = (size_t)__builtin_ctzll(all & ~done);
		done |= UINT64_C(1) << i;
		all |= imports(d, i);
	}
	return all;
}

/* Walks a message by its descriptor and appends text.  The first failure is kept in the
 * writer and makes the rest of the walk do nothing; pb_json_write then takes back what was
 * appended. */
#include "common/pb/json_out.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/base64.h"
#include "common/pb/json_type.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "google/protobuf/any.pb-c.h"

/* Beyond what pb_unpack needs at most: of 2-byte unknown fields some 45 times their bytes. */
#define WIRE_MEMORY_FACTOR 64
#define WIRE_MEMORY_MIN 65536

struct writer {
	struct buf *b;
	unsigned flags;
	unsigned depth;
	int rc;
};

static void put(struct writer *w, const void *data, size_t n)
{
	if (!w->rc)
		w->rc = buf_add(w->b, data, n);
}

static void put_text(struct writer *w, const char *s) { put(w, s, strlen(s)); }

static void put_newline(struct writer *w)
{
	if (!(w->flags & PB_JSON_PRETTY))
		return;
	put(w, "\n", 1);
	for (unsigned i = 0; i < w->depth; i++)
		put(w, "  ", 2);
}

static void open_group(struct writer *w, const char *bracket)
{
	put_text(w, bracket);
	w->depth++;
}

/* Before each element of a group. */
static void next_item(struct writer *w, bool *first)
{
	if (!*first)
		put(w, ",", 1);
	*first = false;
	put_newline(w);
}

static void close_group(struct writer *w, const char *bracket, bool empty)
{
	w->depth--;
	if (!empty)
		put_newline(w);
	put_text(w, bracket);
}

static void put_colon(struct writer *w)
{
	put_text(w, w->flags & PB_JSON_PRETTY ? ": " : ":");
}

static void put_string(struct writer *w, const char *s)
{
	const uint8_t *p = (const uint8_t *)s;
	size_t len = strlen(s);
	put(w, "\"", 1);
	while (len && !w->rc) {
		/* The longest run that needs nothing. */
		size_t run = 0, n = 1;
		while (run < len && p[run] >= 0x20 && p[run] != '"' && p[run] != '\\' && p[run] != 0x7f &&
			(n = utf8_char_len(p + run, len - run)) > 0)
			run += n;
		put(w, p, run);
		p += run;
		len -= run;
		if (!len)
			break;
		char escape[8];
		if (*p >= 0x80)
			put_text(w, "\xef\xbf\xbd");
		else if (*p == '"' || *p == '\\')
			put(w, (char[]){ '\\', (char)*p }, 2);
		else if (*p == '\n' || *p == '\t' || *p == '\r')
			put_text(w, *p == '\n' ? "\\n" : *p == '\t' ? "\\t" : "\\r");
		else
			put(w, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", *p));
		p++;
		len--;
	}
	put(w, "\"", 1);
}

static void put_base64(struct writer *w, const uint8_t *p, size_t len)
{
	put(w, "\"", 1);
	for (; len && !w->rc; p += min_sz(len, 3), len -= min_sz(len, 3)) {
		char quad[4] = { '=', '=', '=', '=' };
		(void)base64_quad(p, len, quad);
		put(w, quad, 4);
	}
	put(w, "\"", 1);
}

static void format_real(double v, bool single, char *ret_text, size_t cap)
{
	/* %g leaves out zeros at the end, but numbers near 0 have fewer digits than others. */
	int from = single ? 6 : 15, to = single ? 9 : 17;
	if (fabs(v) < (single ? (double)FLT_MIN : DBL_MIN))
		from = 1;
	for (int digits = from; digits <= to; digits++) {
		snprintf(ret_text, cap, "%.*g", digits, v);
		if (single ? strtof(ret_text, NULL) == (float)v : strtod(ret_text, NULL) == v)
			break;
	}
}

void pb_format_double(double v, char ret_text[PB_DOUBLE_TEXT_BYTES])
{
	format_real(v, false, ret_text, PB_DOUBLE_TEXT_BYTES);
}

static void put_real(struct writer *w, double v, bool single)
{
	char text[PB_DOUBLE_TEXT_BYTES];
	if (isnan(v) || isinf(v)) {
		put_text(w, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
	} else if (v == 0 && signbit(v)) {
		put_text(w, "-0.0"); /* "-0" is a whole number to some, and those have no -0 */
	} else {
		format_real(v, single, text, sizeof(text));
		put_text(w, text);
	}
}

/* 0, 3, 6 or 9 digits. */
static void put_fraction(struct writer *w, int32_t nanos)
{
	char text[16];
	if (nanos == 0)
		return;
	int n = snprintf(text, sizeof(text), ".%09d", (int)nanos);
	if (nanos % 1000000 == 0)
		n -= 6;
	else if (nanos % 1000 == 0)
		n -= 3;
	put(w, text, (size_t)n);
}

static void put_timestamp(struct writer *w, const Google__Protobuf__Timestamp *t)
{
	int64_t us;
	struct tm tm;
	time_t seconds = (time_t)t->seconds;
	char text[80];
	if (pb_timestamp_us(t, &us) || !gmtime_r(&seconds, &tm)) {
		w->rc = w->rc ? w->rc : -ERANGE;
		return;
	}
	snprintf(text, sizeof(text), "\"%04d-%02d-%02dT%02d:%02d:%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
		tm.tm_hour, tm.tm_min, tm.tm_sec);
	put_text(w, text);
	put_fraction(w, t->nanos);
	put_text(w, "Z\"");
}

static void put_duration(struct writer *w, const Google__Protobuf__Duration *d)
{
	char text[32];
	if (!pb_duration_valid(d)) {
		w->rc = w->rc ? w->rc : -ERANGE;
		return;
	}
	bool negative = d->seconds < 0 || d->nanos < 0;
	snprintf(text, sizeof(text), "\"%s%lld", negative ? "-" : "", llabs((long long)d->seconds));
	put_text(w, text);
	put_fraction(w, d->nanos < 0 ? -d->nanos : d->nanos);
	put_text(w, "s\"");
}

static void put_enum(struct writer *w, const ProtobufCEnumDescriptor *type, int value)
{
	const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
	char text[16];
	if (v) {
		put_string(w, v->name);
		return;
	}
	snprintf(text, sizeof(text), "%d", value);
	put_text(w, text);
}

static void put_message(struct writer *w, const ProtobufCMessage *m);
static void put_default_message(struct writer *w, const ProtobufCMessageDescriptor *type);

static void put_value(struct writer *w, const ProtobufCFieldDescriptor *f, const void *at)
{
	char text[32] = "";
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		snprintf(text, sizeof(text), "%ld", (long)*(const int32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		snprintf(text, sizeof(text), "%lu", (unsigned long)*(const uint32_t *)at);
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		snprintf(text, sizeof(text), "\"%lld\"", (long long)*(const int64_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		snprintf(text, sizeof(text), "\"%llu\"", (unsigned long long)*(const uint64_t *)at);
		break;
	case PROTOBUF_C_TYPE_FLOAT:
		put_real(w, (double)*(const float *)at, true);
		break;
	case PROTOBUF_C_TYPE_DOUBLE:
		put_real(w, *(const double *)at, false);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		put_text(w, *(const protobuf_c_boolean *)at ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_ENUM:
		put_enum(w, f->descriptor, *(const int *)at);
		break;
	case PROTOBUF_C_TYPE_STRING: {
		const char *s = *(const char *const *)at;
		put_string(w, s ? s : "");
		break;
	}
	case PROTOBUF_C_TYPE_BYTES: {
		const ProtobufCBinaryData *d = at;
		put_base64(w, d->data, d->len);
		break;
	}
	case PROTOBUF_C_TYPE_MESSAGE:
		put_message(w, *(const ProtobufCMessage *const *)at);
		break;
	}
	put_text(w, text);
}

static size_t size_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return 8;
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	default:
		return 4;
	}
}

static bool is_default(const ProtobufCFieldDescriptor *f, const void *at)
{
	static const uint64_t zero;
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		const char *s = *(const char *const *)at;
		return !s || !*s;
	}
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return ((const ProtobufCBinaryData *)at)->len == 0;
	return memcmp(at, &zero, size_of(f->type)) == 0;
}

struct map_item {
	const char *text; /* of the key; NULL: a number or a bool */
	uint64_t number;  /* in the order of its type */
	size_t index;
};

static int compare_keys(const struct map_item *x, const struct map_item *y)
{
	return x->text ? strcmp(x->text, y->text) : (x->number > y->number) - (x->number < y->number);
}

static int compare_items(const void *a, const void *b)
{
	const struct map_item *x = a, *y = b;
	int c = compare_keys(x, y);
	return c ? c : (x->index > y->index) - (x->index < y->index);
}

static struct map_item item_of(const ProtobufCFieldDescriptor *key, const void *entry, size_t index)
{
	const void *at = (const char *)entry + key->offset;
	struct map_item item = { .index = index };
	uint64_t sign = UINT64_C(1) << 63;
	switch (key->type) {
	case PROTOBUF_C_TYPE_STRING: {
		const char *text = *(const char *const *)at;
		item.text = text ? text : "";
		break;
	}
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SFIXED32:
		item.number = (uint64_t)(int64_t) * (const int32_t *)at ^ sign;
		break;
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		item.number = (uint64_t) * (const int64_t *)at ^ sign;
		break;
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		item.number = *(const uint64_t *)at;
		break;
	default:
		item.number = *(const uint32_t *)at;
	}
	return item;
}

static void put_map_key(struct writer *w, const ProtobufCFieldDescriptor *key, const void *entry)
{
	const void *at = (const char *)entry + key->offset;
	/* A string and a 64-bit number have their quotes already. */
	bool quote = key->type != PROTOBUF_C_TYPE_STRING && size_of(key->type) == 4;
	put_text(w, quote ? "\"" : "");
	put_value(w, key, at);
	put_text(w, quote ? "\"" : "");
	put_colon(w);
}

static void put_map(struct writer *w, const ProtobufCMessageDescriptor *type, void *const *entries, size_t n)
{
	const ProtobufCFieldDescriptor *key = &type->fields[0], *value = &type->fields[1];
	bool first = true;
	_cleanup_free_ struct map_item *items = calloc(n ? n : 1, sizeof(*items));
	if (!items) {
		w->rc = w->rc ? w->rc : -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++)
		items[i] = item_of(key, entries[i], i);
	qsort(items, n, sizeof(*items), compare_items);
	open_group(w, "{");
	for (size_t i = 0; i < n && !w->rc; i++) {
		if (i + 1 < n && compare_keys(&items[i], &items[i + 1]) == 0)
			continue;
		const void *entry = entries[items[i].index], *at = (const char *)entry + value->offset;
		next_item(w, &first);
		put_map_key(w, key, entry);
		/* An entry may come without its value. */
		if (value->type == PROTOBUF_C_TYPE_MESSAGE && !*(void *const *)at)
			put_default_message(w, value->descriptor);
		else
			put_value(w, value, at);
	}
	close_group(w, "}", first);
}

static void put_repeated(struct writer *w, const ProtobufCFieldDescriptor *f, const void *array, size_t n)
{
	bool first = true;
	open_group(w, "[");
	for (size_t i = 0; i < n && !w->rc; i++) {
		next_item(w, &first);
		put_value(w, f, (const char *)array + i * size_of(f->type));
	}
	close_group(w, "]", first);
}

static void put_key(struct writer *w, const char *name)
{
	char camel[PB_JSON_NAME_MAX];
	size_t n = pb_camel_name(name, camel);
	put(w, "\"", 1);
	put(w, camel, n);
	put(w, "\"", 1);
	put_colon(w);
}

static void put_field(struct writer *w, const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, bool *first)
{
	const char *base = (const char *)m;
	const void *at = base + f->offset;
	bool defaults = w->flags & PB_JSON_EMIT_DEFAULTS;
	if (f->label == PROTOBUF_C_LABEL_REPEATED) {
		size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);
		if (!n && !defaults)
			return;
		next_item(w, first);
		put_key(w, f->name);
		if (pb_is_map(m->descriptor, f))
			put_map(w, f->descriptor, *(void *const *const *)at, n);
		else
			put_repeated(w, f, *(const void *const *)at, n);
		return;
	}
	bool there;
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		there = *(const uint32_t *)(const void *)(base + f->quantifier_offset) == f->id;
	else
		there = !is_default(f, at) || (defaults && f->type != PROTOBUF_C_TYPE_MESSAGE);
	if (!there || (f->type == PROTOBUF_C_TYPE_MESSAGE && !*(void *const *)at))
		return;
	next_item(w, first);
	put_key(w, f->name);
	put_value(w, f, at);
}

static void put_fields(struct writer *w, const ProtobufCMessage *m, bool *first)
{
	for (unsigned i = 0; i < m->descriptor->n_fields && !w->rc; i++)
		put_field(w, m, &m->descriptor->fields[i], first);
}

/* What somebody packed: within no limit but that of the bytes that there are. */
static int unpack_wire(const ProtobufCMessageDescriptor *type, const void *wire, size_t len, void **ret_message)
{
	struct pb_limits limits = {
		.depth = PB_DEPTH_MAX,
		.fields = UINT32_MAX,
		.unknown = UINT32_MAX,
		.memory = WIRE_MEMORY_MIN + WIRE_MEMORY_FACTOR * len,
	};
	struct refusal r;
	void *message = pb_unpack(type, wire, len, &limits, &r);
	if (!message)
		return r.code == STATUS_INVALID_ARGUMENT ? -EBADMSG : -ENOMEM;
	*ret_message = message;
	return 0;
}

/* With the fields of what it holds, as far as that is known; else as the plain message that it is; if it is empty as {}. */
static void put_any(struct writer *w, const Google__Protobuf__Any *any)
{
	const char *url = any->type_url ? any->type_url : "";
	const ProtobufCMessageDescriptor *type = w->depth < PB_DEPTH_MAX ? pb_any_type(url, strlen(url)) : NULL;
	void *held = NULL;
	bool first = true;
	if (type && !w->rc && unpack_wire(type, any->value.data, any->value.len, &held) == -ENOMEM)
		w->rc = -ENOMEM;
	open_group(w, "{");
	if (held) {
		next_item(w, &first);
		put_key(w, "@type");
		put_string(w, url);
		put_fields(w, held, &first);
	} else if (*url || any->value.len) {
		put_fields(w, &any->base, &first);
	}
	close_group(w, "}", first);
	pb_free(held);
}

static void put_message(struct writer *w, const ProtobufCMessage *m)
{
	bool first = true;
	if (w->depth >= 2 * PB_DEPTH_MAX) {
		w->rc = w->rc ? w->rc : -ELOOP;
		return;
	}
	switch (pb_special_of(m->descriptor)) {
	case PB_TIMESTAMP:
		put_timestamp(w, (const Google__Protobuf__Timestamp *)m);
		break;
	case PB_DURATION:
		put_duration(w, (const Google__Protobuf__Duration *)m);
		break;
	case PB_ANY:
		put_any(w, (const Google__Protobuf__Any *)m);
		break;
	default:
		open_group(w, "{");
		put_fields(w, m, &first);
		close_group(w, "}", first);
	}
}

static void put_default_message(struct writer *w, const ProtobufCMessageDescriptor *type)
{
	_cleanup_free_ ProtobufCMessage *m = calloc(1, type->sizeof_message);
	if (m) {
		protobuf_c_message_init(type, m);
		put_message(w, m);
	} else {
		w->rc = w->rc ? w->rc : -ENOMEM;
	}
}

int pb_json_write(const void *message, unsigned flags, struct buf *b)
{
	struct writer w = { .b = b, .flags = flags };
	size_t before = buf_len(b);
	put_message(&w, message);
	if (w.rc)
		b->len = before;
	return w.rc;
}

int pb_json_write_wire(const ProtobufCMessageDescriptor *type, const void *wire, size_t len, unsigned flags, struct buf *b)
{
	void *message;
	int rc = unpack_wire(type, wire, len, &message);
	if (rc)
		return rc;
	rc = pb_json_write(message, flags, b);
	pb_free(message);
	return rc;
}

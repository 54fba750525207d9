/* Owns the walk over the text: a stack of what is open, at most PB_JSON_DEPTH_MAX high, and no recursion.  Each step reads
 * one field, element or entry and writes it at once; only what comes before its own length (messages, packed
 * numbers) is moved by a byte or more when it is closed.
 *
 * Our own tokens and not jansson's tree.  The tree of 4 MiB of "[[],[],…" takes some fifty times that; it has
 * no positions, so that a value at fault (as against a syntax error) can't be found in the text; it refuses integers above
 * int64 and rounds "1e2" through a double; its duplicates are found without the place; and its depth is what
 * jansson was compiled with.  Each of these would need a second reader beside it. */
#include "common/pb/json_in.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/json_lex.h"
#include "common/pb/json_type.h"
#include "common/pb/json_value.h"
#include "common/pb/utf8.h"

#define TYPE_FIELDS_MAX 128 /* as in check.c */
#define EXCERPT_BYTES 40
#define LENGTH_BYTES_MAX 5
#define VARINT_BYTES_MAX 10

enum wire { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_LENGTH = 2, WIRE_32BIT = 5 };

enum frame_kind { IN_MESSAGE, IN_ANY, IN_LIST, IN_MAP };

/* Where a length will stand, in the output; 0 bytes of it are there until it is known. */
struct gap {
	size_t at;
	bool open;
};

struct frame {
	enum frame_kind kind;
	unsigned wire_depth;                    /* messages inside each other */
	const ProtobufCMessageDescriptor *type; /* IN_MESSAGE: its type; IN_MAP: of the entries */
	const ProtobufCFieldDescriptor *field;  /* being read; in a message NULL between fields */
	size_t n;                               /* items before the one being read */
	size_t start;                           /* of the output, in a list: to take back one that is empty */
	struct gap length;                      /* of the message, or of packed numbers */
	struct gap value;                       /* IN_MAP: of the entry; a message from an Any: of the Any's value */
	size_t keys;                            /* IN_MAP: reader.keys before it */
	struct json_token key;                  /* IN_MAP: of the entry being read */
	uint64_t seen[TYPE_FIELDS_MAX / 64];    /* IN_MESSAGE, by the field's index */
	uint64_t set[TYPE_FIELDS_MAX / 64];     /* of these, not null */
};

struct map_key {
	struct json_token token;
	bool is_number; /* or a bool: compared by that */
	uint64_t number;
};

struct reader {
	struct json_lex lex;
	const struct pb_limits *limits;
	struct buf *out;
	struct buf scratch;       /* the last string that had escapes, without them */
	struct map_key *keys;     /* of all maps that are open */
	size_t n_keys, keys_cap;
	uint32_t fields;
	struct refusal *refusal;
	unsigned depth;
	struct frame frames[PB_JSON_DEPTH_MAX];
};

/* ---- refusals ---- */

/* The path of what is being read, in the .proto's names. */
static void format_path(const struct reader *r, char *ret_path, size_t cap)
{
	char path[512] = "";
	size_t len = 0;
	for (unsigned i = 0; i < r->depth && len < sizeof(path) - 1; i++) {
		const struct frame *f = &r->frames[i];
		int n = 0;
		if (f->kind == IN_LIST)
			n = snprintf(path + len, sizeof(path) - len, "[%zu]", f->n);
		else if (f->kind == IN_MAP && f->key.text)
			n = snprintf(path + len, sizeof(path) - len, "[\"%.*s\"]", (int)min_sz(f->key.len, 256), f->key.text);
		else if (f->kind != IN_MAP && f->field)
			n = snprintf(path + len, sizeof(path) - len, "%s%s", len ? "." : "", f->field->name);
		len += n > 0 ? (size_t)n : 0;
	}
	utf8_make_valid(path, strlen(path), ret_path, cap, NULL);
}

static int PRINTF_LIKE(4, 0) refuse_with_path(struct reader *r, const char *path, size_t at, const char *fmt, va_list ap)
{
	char raw[400], what[400];
	size_t line, column;
	vsnprintf(raw, sizeof(raw), fmt, ap);
	utf8_make_valid(raw, strlen(raw), what, sizeof(what), NULL);
	json_position(&r->lex, at, &line, &column);
	return refuse(r->refusal, STATUS_INVALID_ARGUMENT, path, "%s%s%s (line %zu, column %zu)", path, *path ? ": " : "", what,
		line, column);
}

/* A value that its field does not take, at this byte of the text. */
static int refuse_at(struct reader *r, size_t at, const char *fmt, ...) PRINTF_LIKE(3, 4);
static int refuse_at(struct reader *r, size_t at, const char *fmt, ...)
{
	char path[sizeof(r->refusal->field)];
	va_list ap;
	format_path(r, path, sizeof(path));
	va_start(ap, fmt);
	int rc = refuse_with_path(r, path, at, fmt, ap);
	va_end(ap);
	return rc;
}

static int refuse_limit(struct reader *r, int err)
{
	if (err == -ENOMEM)
		return refuse(r->refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "no memory for a message of %zu bytes of JSON", r->lex.len);
	return refuse(r->refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "the message has more than %zu bytes", r->out->max);
}

/* What stands there instead of what was expected. */
static const char *describe(const struct json_token *t, char *ret_text, size_t cap)
{
	size_t n = min_sz(t->len, EXCERPT_BYTES);
	while (n && n < t->len && ((unsigned char)t->text[n] & 0xc0) == 0x80)
		n--;
	const char *quote = t->kind == JSON_STRING ? "\"" : "";
	switch (t->kind) {
	case JSON_END:
		return "the end of the text";
	case JSON_OBJECT:
		return "an object";
	case JSON_LIST:
		return "a list";
	default:
		snprintf(ret_text, cap, "%s%.*s%s%s", quote, (int)n, t->text, n < t->len ? "…" : "", quote);
		return ret_text;
	}
}

/* `expected` is a whole phrase: "a list is expected". */
static int refuse_token(struct reader *r, const struct json_token *t, const char *expected)
{
	char text[EXCERPT_BYTES + 16];
	return refuse_at(r, t->at, "%s, not %s", expected, describe(t, text, sizeof(text)));
}

static int next_token(struct reader *r, struct json_token *ret_token)
{
	const char *wrong = json_lex_next(&r->lex, ret_token);
	return wrong ? refuse_at(r, ret_token->at, "malformed JSON: %s", wrong) : 0;
}

/* ---- output ---- */

static int put(struct reader *r, const void *data, size_t n)
{
	int err = buf_add(r->out, data, n);
	return err ? refuse_limit(r, err) : 0;
}

static size_t encode_varint(uint64_t v, uint8_t ret_bytes[VARINT_BYTES_MAX])
{
	size_t n = 0;
	for (; v >= 0x80; v >>= 7)
		ret_bytes[n++] = (uint8_t)(v | 0x80);
	ret_bytes[n++] = (uint8_t)v;
	return n;
}

static int put_varint(struct reader *r, uint64_t v)
{
	uint8_t bytes[VARINT_BYTES_MAX];
	return put(r, bytes, encode_varint(v, bytes));
}

static int put_fixed(struct reader *r, uint64_t v, size_t n)
{
	uint8_t bytes[8];
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	return put(r, bytes, n);
}

/* Against the same limit as in check.c, where elements of packed fields count too. */
static int count_field(struct reader *r)
{
	if (++r->fields > r->limits->fields)
		return refuse(r->refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "the message has more than %zu fields",
			(size_t)r->limits->fields);
	return 0;
}

static int put_tag(struct reader *r, uint32_t number, enum wire wire)
{
	return count_field(r) ? -1 : put_varint(r, (uint64_t)number << 3 | wire);
}

static void open_gap(struct reader *r, struct gap *g) { *g = (struct gap){ .at = buf_len(r->out), .open = true }; }

static int close_gap(struct reader *r, struct gap *g)
{
	if (!g->open)
		return 0;
	uint8_t length[VARINT_BYTES_MAX];
	size_t bytes = buf_len(r->out) - g->at, n = encode_varint(bytes, length);
	if (!buf_reserve(r->out, n))
		return refuse_limit(r, n > buf_room(r->out) ? -ENOBUFS : -ENOMEM);
	uint8_t *at = r->out->data + r->out->start + g->at;
	memmove(at + n, at, bytes);
	memcpy(at, length, n);
	buf_commit(r->out, n);
	g->open = false;
	return 0;
}

/* ---- the stack ---- */

static struct frame *top(struct reader *r) { return &r->frames[r->depth - 1]; }

static int push(struct reader *r, const struct json_token *t, const struct frame *f)
{
	if (r->depth == PB_JSON_DEPTH_MAX)
		return refuse_at(r, t->at, "objects and lists are nested too deep; %d inside each other are allowed", PB_JSON_DEPTH_MAX);
	if (f->wire_depth > min_sz(r->limits->depth, PB_DEPTH_MAX))
		return refuse_at(r, t->at, "messages are nested too deep; %zu inside each other are allowed",
			min_sz(r->limits->depth, PB_DEPTH_MAX));
	r->frames[r->depth++] = *f;
	return 0;
}

/* The item of the innermost frame is whole. */
static int finish_item(struct reader *r)
{
	if (!r->depth)
		return 0;
	struct frame *f = top(r);
	f->n++;
	if (f->kind == IN_MAP) {
		f->key.text = NULL;
		return close_gap(r, &f->value);
	}
	if (f->kind != IN_LIST)
		f->field = NULL;
	return 0;
}

static int pop(struct reader *r)
{
	struct frame *f = top(r);
	if (f->kind == IN_LIST && f->n == 0)
		r->out->len = f->start;
	else if (close_gap(r, &f->value) || close_gap(r, &f->length))
		return -1;
	r->depth--;
	return finish_item(r);
}

/* ---- values ---- */

/* What a string or a number stands for, valid until the next call. */
static int text_of(struct reader *r, const struct json_token *t, const char **ret_text, size_t *ret_len)
{
	*ret_text = t->text;
	*ret_len = t->len;
	if (!t->escaped)
		return 0;
	buf_clear(&r->scratch);
	uint8_t *at = buf_reserve(&r->scratch, t->len);
	if (!at)
		return refuse_limit(r, -ENOMEM);
	*ret_text = (const char *)at;
	*ret_len = json_unescape(t, (char *)at);
	return 0;
}

static int put_string(struct reader *r, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind != JSON_STRING)
		return refuse_token(r, t, "a text in double quotes is expected");
	return text_of(r, t, &text, &len) || put_varint(r, len) || put(r, text, len) ? -1 : 0;
}

static int put_bytes(struct reader *r, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind != JSON_STRING)
		return refuse_token(r, t, "base64 in double quotes is expected");
	if (text_of(r, t, &text, &len))
		return -1;
	ptrdiff_t n = json_base64_len(text, len);
	if (n < 0)
		return refuse_token(r, t, "base64 is expected (A-Z a-z 0-9 + / or - _, with or without its padding)");
	if (put_varint(r, (uint64_t)n))
		return -1;
	uint8_t *at = buf_reserve(r->out, (size_t)n);
	if (!at)
		return refuse_limit(r, (size_t)n > buf_room(r->out) ? -ENOBUFS : -ENOMEM);
	json_base64_read(text, len, at);
	buf_commit(r->out, (size_t)n);
	return 0;
}

struct range {
	int64_t min;
	uint64_t max;
};

static struct range range_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_FIXED32:
		return (struct range){ 0, UINT32_MAX };
	case PROTOBUF_C_TYPE_UINT64:
	case PROTOBUF_C_TYPE_FIXED64:
		return (struct range){ 0, UINT64_MAX };
	case PROTOBUF_C_TYPE_INT64:
	case PROTOBUF_C_TYPE_SINT64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return (struct range){ INT64_MIN, INT64_MAX };
	default:
		return (struct range){ INT32_MIN, INT32_MAX };
	}
}

/* A whole number within the range of the type, as two's complement. */
static int read_whole(struct reader *r, ProtobufCType type, const struct json_token *t, uint64_t *ret)
{
	const char *text;
	size_t len;
	bool negative;
	uint64_t v;
	struct range range = range_of(type);
	int err = -EINVAL;
	if (t->kind == JSON_NUMBER || t->kind == JSON_STRING) {
		if (text_of(r, t, &text, &len))
			return -1;
		err = json_read_whole(text, len, &negative, &v);
	}
	if (!err && v && (negative ? v > -(uint64_t)range.min : v > range.max))
		err = -ERANGE;
	if (err) {
		char expected[96];
		snprintf(expected, sizeof(expected), "a whole number from %lld to %llu is expected", (long long)range.min,
			(unsigned long long)range.max);
		return refuse_token(r, t, expected);
	}
	*ret = negative ? -v : v;
	return 0;
}

static int put_whole(struct reader *r, ProtobufCType type, const struct json_token *t)
{
	uint64_t v;
	if (read_whole(r, type, t, &v))
		return -1;
	switch (type) {
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SINT64:
		return put_varint(r, v << 1 ^ -(v >> 63));
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return put_fixed(r, v, 4);
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return put_fixed(r, v, 8);
	default:
		return put_varint(r, v);
	}
}

static int put_real(struct reader *r, bool single, const struct json_token *t)
{
	const char *text;
	size_t len;
	double v;
	int err = -EINVAL;
	if (t->kind == JSON_NUMBER || t->kind == JSON_STRING) {
		if (text_of(r, t, &text, &len))
			return -1;
		err = json_read_real(text, len, single, t->kind == JSON_STRING, &v);
	}
	if (err == -ERANGE)
		return refuse_token(r, t, single ? "a number within the range of a float is expected"
						 : "a number within the range of a double is expected");
	if (err == -E2BIG)
		return refuse_at(r, t->at, "the number has %zu characters, %d are allowed", len, JSON_REAL_CHARS_MAX);
	if (err)
		return refuse_token(r, t, "a number, \"NaN\", \"Infinity\" or \"-Infinity\" is expected");
	if (single) {
		float f = (float)v;
		uint32_t bits;
		memcpy(&bits, &f, sizeof(bits));
		return put_fixed(r, bits, 4);
	}
	uint64_t bits;
	memcpy(&bits, &v, sizeof(bits));
	return put_fixed(r, bits, 8);
}

static int put_bool(struct reader *r, const struct json_token *t)
{
	if (t->kind != JSON_TRUE && t->kind != JSON_FALSE)
		return refuse_token(r, t, "true or false is expected");
	return put_varint(r, t->kind == JSON_TRUE);
}

static int put_enum(struct reader *r, const ProtobufCEnumDescriptor *type, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind == JSON_NUMBER)
		return put_whole(r, PROTOBUF_C_TYPE_INT32, t);
	if (t->kind == JSON_STRING) {
		if (text_of(r, t, &text, &len))
			return -1;
		for (unsigned i = 0; i < type->n_value_names; i++) {
			const ProtobufCEnumValueIndex *v = &type->values_by_name[i];
			if (strlen(v->name) == len && memcmp(v->name, text, len) == 0)
				return put_varint(r, (uint64_t)(int64_t)type->values[v->index].value);
		}
	}
	char expected[256] = "one of ";
	size_t n = strlen(expected);
	for (unsigned i = 0; i < type->n_values && n < sizeof(expected) - 60; i++)
		n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%.40s, ", type->values[i].name);
	snprintf(expected + n, sizeof(expected) - n, "or a number is expected");
	return refuse_token(r, t, expected);
}

/* Of a Timestamp or Duration, without its length; both have the same two fields. */
static int put_time(struct reader *r, enum pb_special special, const struct json_token *t)
{
	const char *text;
	size_t len;
	int64_t seconds;
	int32_t nanos;
	const char *expected = special == PB_TIMESTAMP
		? "a time as in \"2026-11-30T17:05:00.5Z\" is expected, of the years 0001 to 9999"
		: "a duration in seconds as in \"1.5s\" is expected, of at most 315576000000 s";
	if (t->kind != JSON_STRING)
		return refuse_token(r, t, expected);
	if (text_of(r, t, &text, &len))
		return -1;
	if ((special == PB_TIMESTAMP ? json_read_timestamp : json_read_duration)(text, len, &seconds, &nanos))
		return refuse_token(r, t, expected);
	if (seconds && (put_tag(r, 1, WIRE_VARINT) || put_varint(r, (uint64_t)seconds)))
		return -1;
	return nanos && (put_tag(r, 2, WIRE_VARINT) || put_varint(r, (uint64_t)(int64_t)nanos)) ? -1 : 0;
}

static int push_message(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *t,
	unsigned wire_depth, bool with_length)
{
	assert(type->n_fields <= TYPE_FIELDS_MAX);
	struct frame f = {
		.kind = pb_special_of(type) == PB_ANY ? IN_ANY : IN_MESSAGE,
		.wire_depth = wire_depth,
		.type = type,
	};
	if (t->kind != JSON_OBJECT)
		return refuse_token(r, t, "an object { … } is expected");
	if (with_length)
		open_gap(r, &f.length);
	return push(r, t, &f);
}

/* The tag is written; the item ends here, or a frame is pushed. */
static int put_message(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *t)
{
	unsigned wire_depth = top(r)->wire_depth + 1;
	enum pb_special special = pb_special_of(type);
	struct gap length;
	if (special != PB_TIMESTAMP && special != PB_DURATION)
		return push_message(r, type, t, wire_depth, true);
	if (wire_depth > min_sz(r->limits->depth, PB_DEPTH_MAX))
		return refuse_at(r, t->at, "messages are nested too deep");
	open_gap(r, &length);
	return put_time(r, special, t) || close_gap(r, &length) || finish_item(r) ? -1 : 0;
}

static int put_scalar(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_FLOAT:
	case PROTOBUF_C_TYPE_DOUBLE:
		return put_real(r, f->type == PROTOBUF_C_TYPE_FLOAT, t);
	case PROTOBUF_C_TYPE_BOOL:
		return put_bool(r, t);
	case PROTOBUF_C_TYPE_ENUM:
		return put_enum(r, f->descriptor, t);
	case PROTOBUF_C_TYPE_STRING:
		return put_string(r, t);
	case PROTOBUF_C_TYPE_BYTES:
		return put_bytes(r, t);
	default:
		return put_whole(r, f->type, t);
	}
}

static int put_single(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return put_message(r, f->descriptor, t);
	return put_scalar(r, f, t) || finish_item(r) ? -1 : 0;
}

static enum wire wire_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_SFIXED32:
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_FLOAT:
		return WIRE_32BIT;
	case PROTOBUF_C_TYPE_SFIXED64:
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_DOUBLE:
		return WIRE_64BIT;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_BYTES:
	case PROTOBUF_C_TYPE_MESSAGE:
		return WIRE_LENGTH;
	default:
		return WIRE_VARINT;
	}
}

static int put_tagged(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	return put_tag(r, f->id, wire_of(f->type)) || put_single(r, f, t) ? -1 : 0;
}

/* ---- lists ---- */

static int push_list(struct reader *r, const ProtobufCFieldDescriptor *field, const struct json_token *t)
{
	struct frame f = {
		.kind = IN_LIST,
		.wire_depth = top(r)->wire_depth,
		.field = field,
		.start = buf_len(r->out),
	};
	if (t->kind != JSON_LIST)
		return refuse_token(r, t, "a list [ … ] is expected");
	if (wire_of(field->type) != WIRE_LENGTH) {
		if (put_tag(r, field->id, WIRE_LENGTH))
			return -1;
		open_gap(r, &f.length);
	}
	return push(r, t, &f);
}

/* The first token of the frame's next item, or of what closes it. */
static int next_item(struct reader *r, enum json_kind close, const char *expected, struct json_token *ret_token)
{
	bool first = top(r)->n == 0;
	if (next_token(r, ret_token))
		return -1;
	if (ret_token->kind == close)
		return 0;
	if (first)
		return 0;
	if (ret_token->kind != JSON_COMMA)
		return refuse_token(r, ret_token, expected);
	if (next_token(r, ret_token))
		return -1;
	return ret_token->kind == close ? refuse_token(r, ret_token, "malformed JSON: something is expected after a comma") : 0;
}

static int step_list(struct reader *r)
{
	struct frame *f = top(r);
	struct json_token t;
	if (next_item(r, JSON_LIST_END, "malformed JSON: , or ] is expected", &t))
		return -1;
	if (t.kind == JSON_LIST_END)
		return pop(r);
	if (t.kind == JSON_NULL)
		return refuse_at(r, t.at, "null is not allowed in a list");
	if (!f->length.open)
		return put_tagged(r, f->field, &t);
	return count_field(r) || put_single(r, f->field, &t) ? -1 : 0;
}

/* ---- objects ---- */

/* A key and its colon; JSON_OBJECT_END: the object is closed. */
static int next_key(struct reader *r, struct json_token *ret_key)
{
	struct json_token colon;
	if (next_item(r, JSON_OBJECT_END, "malformed JSON: , or } is expected", ret_key))
		return -1;
	if (ret_key->kind == JSON_OBJECT_END)
		return 0;
	if (ret_key->kind != JSON_STRING)
		return refuse_token(r, ret_key, "malformed JSON: a key in double quotes is expected");
	if (next_token(r, &colon))
		return -1;
	return colon.kind == JSON_COLON ? 0 : refuse_token(r, &colon, "malformed JSON: a : is expected after a key");
}

static int refuse_unknown(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *key)
{
	char raw[400], path[sizeof(r->refusal->field)], known[256] = "", text[EXCERPT_BYTES + 16], camel[PB_JSON_NAME_MAX];
	size_t n = 0;
	format_path(r, path, sizeof(path));
	snprintf(raw, sizeof(raw), "%s%s%.*s", path, *path ? "." : "", (int)min_sz(key->len, 128), key->text);
	utf8_make_valid(raw, strlen(raw), path, sizeof(path), NULL);
	for (unsigned i = 0; i < type->n_fields && n < sizeof(known) - 60; i++) {
		pb_camel_name(type->fields[i].name, camel);
		n += (size_t)snprintf(known + n, sizeof(known) - n, "%s%.50s%s", i ? ", " : "; it has ", camel,
			n >= sizeof(known) - 120 && i + 1 < type->n_fields ? ", …" : "");
	}
	size_t line, column;
	json_position(&r->lex, key->at, &line, &column);
	return refuse(r->refusal, STATUS_INVALID_ARGUMENT, path, "unknown field %s in %s (line %zu, column %zu)%s",
		describe(key, text, sizeof(text)), type->name, line, column, known);
}

static bool is_set(const uint64_t *bits, size_t i) { return bits[i / 64] >> i % 64 & 1; }

/* The member of the field's oneof that was set before, or NULL. */
static const ProtobufCFieldDescriptor *other_of_oneof(const struct frame *f)
{
	for (unsigned i = 0; i < f->type->n_fields; i++) {
		const ProtobufCFieldDescriptor *other = &f->type->fields[i];
		if (other != f->field && is_set(f->set, i) && (other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
			other->quantifier_offset == f->field->quantifier_offset)
			return other;
	}
	return NULL;
}

static int push_map(struct reader *r, const ProtobufCFieldDescriptor *field, const struct json_token *t)
{
	struct frame f = {
		.kind = IN_MAP,
		.wire_depth = top(r)->wire_depth + 1,
		.type = field->descriptor,
		.field = field,
		.keys = r->n_keys,
	};
	return t->kind == JSON_OBJECT ? push(r, t, &f) : refuse_token(r, t, "an object { … } is expected");
}

static int step_message(struct reader *r)
{
	struct frame *f = top(r);
	struct json_token t;
	const char *name;
	size_t len;
	if (next_key(r, &t))
		return -1;
	if (t.kind == JSON_OBJECT_END)
		return pop(r);
	if (text_of(r, &t, &name, &len))
		return -1;
	const ProtobufCFieldDescriptor *field = pb_field_by_json_name(f->type, name, len);
	if (!field)
		return refuse_unknown(r, f->type, &t);
	size_t i = (size_t)(field - f->type->fields);
	f->field = field;
	if (is_set(f->seen, i))
		return refuse_at(r, t.at, "the field is given twice");
	f->seen[i / 64] |= UINT64_C(1) << i % 64;
	size_t at = t.at;
	if (next_token(r, &t))
		return -1;
	if (t.kind == JSON_NULL)
		return finish_item(r);
	const ProtobufCFieldDescriptor *other = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF ? other_of_oneof(f) : NULL;
	if (other)
		return refuse_at(r, at, "only one of %s and %s may be given", other->name, field->name);
	f->set[i / 64] |= UINT64_C(1) << i % 64;
	if (field->label != PROTOBUF_C_LABEL_REPEATED)
		return put_tagged(r, field, &t);
	return pb_is_map(f->type, field) ? push_map(r, field, &t) : push_list(r, field, &t);
}

/* Becomes the message that it holds. */
static int step_any(struct reader *r)
{
	static const char wanted[] = "@type";
	struct frame *f = top(r);
	struct json_token t;
	const char *text;
	size_t len;
	if (next_key(r, &t))
		return -1;
	if (t.kind == JSON_OBJECT_END)
		return pop(r);
	if (text_of(r, &t, &text, &len))
		return -1;
	if (len != strlen(wanted) || memcmp(text, wanted, len) != 0)
		return refuse_token(r, &t, "\"@type\" is expected as the first key of a google.protobuf.Any");
	if (next_token(r, &t) || put_tag(r, 1, WIRE_LENGTH) || put_string(r, &t) || text_of(r, &t, &text, &len))
		return -1;
	f->type = pb_any_type(text, len);
	if (!f->type)
		return refuse_token(r, &t, "\"type.googleapis.com/\" and one of BadRequest, ErrorInfo, ResourceInfo, RetryInfo, Status of "
					   "google.rpc is expected");
	f->kind = IN_MESSAGE;
	f->n = 1;
	f->wire_depth++;
	if (put_tag(r, 2, WIRE_LENGTH))
		return -1;
	open_gap(r, &f->value);
	return 0;
}

/* ---- maps ---- */

static int compare_keys(const void *a, const void *b)
{
	const struct map_key *x = a, *y = b;
	if (x->is_number)
		return (x->number > y->number) - (x->number < y->number);
	const struct json_token *s = &x->token, *t = &y->token;
	const char *p = s->text, *p_end = p + s->len, *q = t->text, *q_end = q + t->len;
	int c = 0;
	if (!s->escaped && !t->escaped && s->len == t->len)
		return memcmp(p, q, s->len);
	while (!c && p < p_end && q < q_end) {
		char one[4], other[4];
		size_t n = json_unescape_one(&p, p_end, one), m = json_unescape_one(&q, q_end, other);
		c = memcmp(one, other, min_sz(n, m));
	}
	return c ? c : (p < p_end) - (q < q_end);
}

static int compare_keys_and_places(const void *a, const void *b)
{
	const struct map_key *x = a, *y = b;
	int c = compare_keys(x, y);
	return c ? c : (x->token.at > y->token.at) - (x->token.at < y->token.at);
}

static int note_key(struct reader *r, const struct map_key *key)
{
	if (r->n_keys == r->keys_cap) {
		size_t cap = r->keys_cap ? 2 * r->keys_cap : 64;
		struct map_key *keys = realloc(r->keys, cap * sizeof(*keys));
		if (!keys)
			return refuse_limit(r, -ENOMEM);
		r->keys = keys;
		r->keys_cap = cap;
	}
	r->keys[r->n_keys++] = *key;
	return 0;
}

/* Sorted only now, all at once: no table that somebody could fill with keys of one hash. */
static int close_map(struct reader *r)
{
	struct frame *f = top(r);
	struct map_key *keys = r->keys + f->keys;
	size_t n = r->n_keys - f->keys;
	if (n > 1)
		qsort(keys, n, sizeof(*keys), compare_keys_and_places);
	for (size_t i = 1; i < n; i++)
		if (compare_keys(&keys[i - 1], &keys[i]) == 0) {
			f->key = keys[i].token;
			return refuse_at(r, f->key.at, "the key is given twice");
		}
	r->n_keys = f->keys;
	return pop(r);
}

static int put_key(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	struct map_key key = { .token = *t };
	if (put_tag(r, f->id, wire_of(f->type)))
		return -1;
	if (f->type == PROTOBUF_C_TYPE_STRING)
		return put_string(r, t) || note_key(r, &key) ? -1 : 0;
	key.is_number = true;
	if (f->type != PROTOBUF_C_TYPE_BOOL)
		return read_whole(r, f->type, t, &key.number) || put_whole(r, f->type, t) || note_key(r, &key) ? -1 : 0;
	const char *text;
	size_t len;
	if (text_of(r, t, &text, &len))
		return -1;
	key.number = len == 4 && memcmp(text, "true", 4) == 0;
	if (!key.number && !(len == 5 && memcmp(text, "false", 5) == 0))
		return refuse_token(r, t, "\"true\" or \"false\" is expected as a key");
	return put_varint(r, key.number) || note_key(r, &key) ? -1 : 0;
}

static int step_map(struct reader *r)
{
	struct frame *f = top(r);
	struct json_token t;
	if (next_key(r, &t))
		return -1;
	if (t.kind == JSON_OBJECT_END)
		return close_map(r);
	f->key = t; /* for the path */
	if (put_tag(r, f->field->id, WIRE_LENGTH))
		return -1;
	open_gap(r, &f->value);
	if (put_key(r, &f->type->fields[0], &t) || next_token(r, &t))
		return -1;
	if (t.kind == JSON_NULL)
		return refuse_at(r, t.at, "null is not allowed in a map");
	return put_tagged(r, &f->type->fields[1], &t);
}

/* ---- the whole ---- */

static int start(struct reader *r, const ProtobufCMessageDescriptor *type)
{
	struct json_token t;
	enum pb_special special = pb_special_of(type);
	if (next_token(r, &t))
		return -1;
	if (special == PB_TIMESTAMP || special == PB_DURATION)
		return put_time(r, special, &t);
	return push_message(r, type, &t, 1, false);
}

static int step(struct reader *r)
{
	switch (top(r)->kind) {
	case IN_LIST:
		return step_list(r);
	case IN_MAP:
		return step_map(r);
	case IN_ANY:
		return step_any(r);
	default:
		return step_message(r);
	}
}

static int read_all(struct reader *r, const ProtobufCMessageDescriptor *type)
{
	struct json_token t;
	if (start(r, type))
		return -1;
	while (r->depth)
		if (step(r))
			return -1;
	if (next_token(r, &t))
		return -1;
	return t.kind == JSON_END ? 0 : refuse_token(r, &t, "malformed JSON: nothing may follow the value");
}

int pb_json_read(const ProtobufCMessageDescriptor *type, const char *text, size_t len,
	const struct pb_limits *limits_or_null, struct buf *ret_wire, struct refusal *ret_refusal)
{
	struct reader r = {
		.lex = { .text = len ? text : "", .len = len },
		.limits = limits_or_null ? limits_or_null : &pb_limits_default,
		.out = ret_wire,
		.refusal = ret_refusal,
	};
	size_t before = buf_len(ret_wire);
	buf_init(&r.scratch, len);
	int rc = read_all(&r, type);
	if (rc)
		ret_wire->len = before;
	buf_done(&r.scratch);
	free(r.keys);
	return rc;
}

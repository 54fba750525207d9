/* No state but the reader's. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/json_reader.h"
#include "common/base/hash.h"
#include "common/pb/json_value.h"

int reader_text(struct reader *r, const struct json_token *t, const char **ret_text, size_t *ret_len)
{
	*ret_text = t->text;
	*ret_len = t->len;
	if (!t->escaped)
		return 0;
	buf_clear(&r->scratch);
	uint8_t *at = buf_reserve(&r->scratch, t->len);
	if (!at)
		return reader_refuse_limit(r, -ENOMEM);
	*ret_text = (const char *)at;
	*ret_len = json_unescape(t, (char *)at);
	return 0;
}

int reader_put_string(struct reader *r, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind != JSON_STRING)
		return reader_refuse_token(r, t, "a text in double quotes is expected");
	return reader_text(r, t, &text, &len) || reader_put_varint(r, len) || reader_put(r, text, len) ? -1 : 0;
}

static int put_bytes(struct reader *r, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind != JSON_STRING)
		return reader_refuse_token(r, t, "base64 in double quotes is expected");
	if (reader_text(r, t, &text, &len))
		return -1;
	ptrdiff_t n = json_base64_len(text, len);
	if (n < 0)
		return reader_refuse_token(r, t, "base64 is expected (A-Z a-z 0-9 + / or - _, with or without its padding)");
	if (reader_put_varint(r, (uint64_t)n))
		return -1;
	uint8_t *at = buf_reserve(r->out, (size_t)n);
	if (!at)
		return reader_refuse_limit(r, (size_t)n > buf_room(r->out) ? -ENOBUFS : -ENOMEM);
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
		if (reader_text(r, t, &text, &len))
			return -1;
		err = json_read_whole(text, len, &negative, &v);
	}
	if (!err && v && (negative ? v > -(uint64_t)range.min : v > range.max))
		err = -ERANGE;
	if (err) {
		char expected[96];
		snprintf(expected, sizeof(expected), "a whole number from %lld to %llu is expected", (long long)range.min,
			(unsigned long long)range.max);
		return reader_refuse_token(r, t, expected);
	}
	*ret = negative ? -v : v;
	return 0;
}

static int put_fixed(struct reader *r, uint64_t v, size_t n)
{
	uint8_t bytes[8];
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	return reader_put(r, bytes, n);
}

static int put_whole(struct reader *r, ProtobufCType type, const struct json_token *t)
{
	uint64_t v;
	if (read_whole(r, type, t, &v))
		return -1;
	switch (type) {
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_SINT64:
		return reader_put_varint(r, v << 1 ^ -(v >> 63));
	case PROTOBUF_C_TYPE_FIXED32:
	case PROTOBUF_C_TYPE_SFIXED32:
		return put_fixed(r, v, 4);
	case PROTOBUF_C_TYPE_FIXED64:
	case PROTOBUF_C_TYPE_SFIXED64:
		return put_fixed(r, v, 8);
	default:
		return reader_put_varint(r, v);
	}
}

static int put_real(struct reader *r, bool single, const struct json_token *t)
{
	const char *text;
	size_t len;
	double v;
	int err = -EINVAL;
	if (t->kind == JSON_NUMBER || t->kind == JSON_STRING) {
		if (reader_text(r, t, &text, &len))
			return -1;
		err = json_read_real(text, len, single, t->kind == JSON_STRING, &v);
	}
	if (err == -ERANGE)
		return reader_refuse_token(r, t, single ? "a number within the range of a float is expected"
						 : "a number within the range of a double is expected");
	if (err == -E2BIG)
		return reader_refuse_at(r, t->at, "the number has %zu characters, %d are allowed", len, JSON_REAL_CHARS_MAX);
	if (err)
		return reader_refuse_token(r, t, "a number, \"NaN\", \"Infinity\" or \"-Infinity\" is expected");
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
		return reader_refuse_token(r, t, "true or false is expected");
	return reader_put_varint(r, t->kind == JSON_TRUE);
}

static int put_enum(struct reader *r, const ProtobufCEnumDescriptor *type, const struct json_token *t)
{
	const char *text;
	size_t len;
	if (t->kind == JSON_NUMBER)
		return put_whole(r, PROTOBUF_C_TYPE_INT32, t);
	if (t->kind == JSON_STRING) {
		if (reader_text(r, t, &text, &len))
			return -1;
		for (unsigned i = 0; i < type->n_value_names; i++) {
			const ProtobufCEnumValueIndex *v = &type->values_by_name[i];
			if (strlen(v->name) == len && memcmp(v->name, text, len) == 0)
				return reader_put_varint(r, (uint64_t)(int64_t)type->values[v->index].value);
		}
	}
	char expected[256] = "one of ";
	size_t n = strlen(expected);
	for (unsigned i = 0; i < type->n_values && n < sizeof(expected) - 60; i++)
		n += (size_t)snprintf(expected + n, sizeof(expected) - n, "%.40s, ", type->values[i].name);
	snprintf(expected + n, sizeof(expected) - n, "or a number is expected");
	return reader_refuse_token(r, t, expected);
}

/* Of a Timestamp or Duration, without its length; both have the same two fields. */
int reader_put_time(struct reader *r, enum pb_special special, const struct json_token *t)
{
	const char *text;
	size_t len;
	int64_t seconds;
	int32_t nanos;
	const char *expected = special == PB_TIMESTAMP
		? "a time as in \"2026-11-30T17:05:00.5Z\" is expected, of the years 0001 to 9999"
		: "a duration in seconds as in \"1.5s\" is expected, of at most 315576000000 s";
	if (t->kind != JSON_STRING)
		return reader_refuse_token(r, t, expected);
	if (reader_text(r, t, &text, &len))
		return -1;
	if ((special == PB_TIMESTAMP ? json_read_timestamp : json_read_duration)(text, len, &seconds, &nanos))
		return reader_refuse_token(r, t, expected);
	if (seconds && (reader_put_tag(r, 1, WIRE_VARINT) || reader_put_varint(r, (uint64_t)seconds)))
		return -1;
	return nanos && (reader_put_tag(r, 2, WIRE_VARINT) || reader_put_varint(r, (uint64_t)(int64_t)nanos)) ? -1 : 0;
}

int reader_put_scalar(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
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
		return reader_put_string(r, t);
	case PROTOBUF_C_TYPE_BYTES:
		return put_bytes(r, t);
	default:
		return put_whole(r, f->type, t);
	}
}

int reader_put_key(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t, struct map_key *ret_key)
{
	struct map_key key = { .token = *t, .is_number = f->type != PROTOBUF_C_TYPE_STRING };
	const char *text;
	size_t len;
	if (reader_put_tag(r, f->id, pb_wire_of(f->type)) || reader_text(r, t, &text, &len))
		return -1;
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		key.number = hash_add(HASH_START, text, len);
		if (reader_put_string(r, t))
			return -1;
	} else if (f->type == PROTOBUF_C_TYPE_BOOL) {
		key.number = len == 4 && memcmp(text, "true", 4) == 0;
		if (!key.number && !(len == 5 && memcmp(text, "false", 5) == 0))
			return reader_refuse_token(r, t, "\"true\" or \"false\" is expected as a key");
		if (reader_put_varint(r, key.number))
			return -1;
	} else if (reader_put_scalar(r, f, t) || read_whole(r, f->type, t, &key.number)) {
		return -1;
	}
	*ret_key = key;
	return 0;
}

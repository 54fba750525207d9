/* One pass over the wire format, guided by protobuf-c's descriptors, before protobuf-c itself
 * reads the same bytes.  Recursion is as deep as the message, at most PB_DEPTH_MAX.  What is
 * accepted here is accepted by protobuf_c_message_unpack (the fuzz target holds us to that),
 * so it is as strict: a known field in a wire type that is not its own is refused, though
 * other runtimes would treat it as unknown, and so is a singular message that comes twice: no
 * encoder writes that, merging costs the square of the input, and protobuf-c 1.4 fails to
 * merge messages with an unset oneof. */
#include "common/pb/check.h"

#include <assert.h>
#include <stdio.h>

#include "common/pb/utf8.h"

#define FIELD_NUMBER_MAX 0x1fffffffu
#define TAG_BYTES_MAX 5
#define VARINT_BYTES_MAX 10
#define LENGTH_BYTES_MAX 5
/* protobuf-c's scratch for each field that it has scanned, in slabs of 16, 32, 64, …; the first on the stack. */
#define SCANNED_BYTES 32
#define FIRST_SLAB 16

const struct pb_limits pb_limits_default = {
	.depth = PB_DEPTH_MAX,
	.fields = 200000,
	.unknown = 10000,
	.memory = (size_t)32 << 20,
};

struct scan {
	const struct pb_limits *limits;
	uint32_t fields;
	uint32_t unknown;
	size_t memory;
	struct refusal *refusal;
};

/* A message that is being read, inside those above it. */
struct level {
	const struct level *up;
	const ProtobufCMessageDescriptor *type;
	const uint8_t *start;
	const uint8_t *end;
	const uint8_t *tag;                    /* of the field being read */
	const ProtobufCFieldDescriptor *field; /* NULL: not known (yet) */
	unsigned depth;
	uint64_t seen[PB_TYPE_FIELDS_MAX / 64]; /* singular messages, by the field's index */
};

struct token {
	uint32_t number;
	unsigned wire;
	const uint8_t *data; /* after the tag, and after the length where there is one */
	size_t len;
	const uint8_t *next;
};

/* Bytes that the varint takes, 0 if it does not end within `max` bytes or `end`. */
static size_t read_varint(const uint8_t *p, const uint8_t *end, size_t max, uint64_t *ret)
{
	uint64_t v = 0;
	max = min_sz(max, (size_t)(end - p));
	for (size_t i = 0; i < max; i++) {
		v |= (uint64_t)(p[i] & 0x7f) << (7 * i);
		if (!(p[i] & 0x80)) {
			*ret = v;
			return i + 1;
		}
	}
	return 0;
}

/* NULL, or what is wrong; t->number is 0 then if it is not known. */
static const char *read_token(const uint8_t *p, const uint8_t *end, struct token *t)
{
	uint64_t v;
	size_t n = read_varint(p, end, TAG_BYTES_MAX, &v);
	t->number = 0;
	if (!n)
		return "malformed message: a tag is cut short or too long";
	if (v >> 3 == 0 || v >> 3 > FIELD_NUMBER_MAX)
		return "malformed message: a field number is out of range";
	t->number = (uint32_t)(v >> 3);
	t->wire = (unsigned)(v & 7);
	p += n;
	t->data = p;
	switch (t->wire) {
	case WIRE_VARINT:
		t->len = read_varint(p, end, VARINT_BYTES_MAX, &v);
		if (!t->len)
			return "malformed message: a number is cut short or too long";
		break;
	case WIRE_64BIT:
	case WIRE_32BIT:
		t->len = t->wire == WIRE_64BIT ? 8 : 4;
		if ((size_t)(end - p) < t->len)
			return "malformed message: a number is cut short";
		break;
	case WIRE_LENGTH:
		n = read_varint(p, end, LENGTH_BYTES_MAX, &v);
		if (!n || v > (uint64_t)(end - p) - n)
			return "malformed message: a length goes beyond the end";
		t->data = p + n;
		t->len = (size_t)v;
		break;
	default:
		return "malformed message: groups are not supported";
	}
	t->next = t->data + t->len;
	return NULL;
}

/* How often a field came in the message before the one being read. */
static unsigned count_before(const struct level *l)
{
	unsigned n = 0;
	struct token t;
	for (const uint8_t *p = l->start; p < l->tag && !read_token(p, l->end, &t); p = t.next)
		n += t.number == l->field->id;
	return n;
}

static void format_path(const struct level *l, char *ret_path, size_t cap)
{
	const struct level *from_top[PB_DEPTH_MAX];
	unsigned n = 0;
	for (; l && n < PB_DEPTH_MAX; l = l->up)
		if (l->field)
			from_top[n++] = l;
	size_t len = 0;
	ret_path[0] = '\0';
	while (n-- > 0 && len < cap) {
		l = from_top[n];
		int got = l->field->label == PROTOBUF_C_LABEL_REPEATED
			? snprintf(ret_path + len, cap - len, "%s%s[%u]", len ? "." : "", l->field->name, count_before(l))
			: snprintf(ret_path + len, cap - len, "%s%s", len ? "." : "", l->field->name);
		len += got > 0 ? (size_t)got : 0;
	}
}

static int refuse_at(struct scan *s, const struct level *l, enum status_code code, const char *message)
{
	char path[sizeof(s->refusal->field)];
	format_path(l, path, sizeof(path));
	return *path ? refuse(s->refusal, code, path, "%s: %s", path, message) : refuse(s->refusal, code, path, "%s", message);
}

static int refuse_limit(struct scan *s, const struct level *l, const char *what, size_t limit)
{
	char path[sizeof(s->refusal->field)];
	format_path(l, path, sizeof(path));
	return refuse(s->refusal, STATUS_RESOURCE_EXHAUSTED, path, "the message has more than %zu %s", limit, what);
}

static int add_memory(struct scan *s, const struct level *l, size_t n)
{
	if (n > s->limits->memory - s->memory) {
		char path[sizeof(s->refusal->field)];
		format_path(l, path, sizeof(path));
		return refuse(s->refusal, STATUS_RESOURCE_EXHAUSTED, path,
			"the message takes more than %zu bytes of memory when unpacked", s->limits->memory);
	}
	s->memory += n;
	return 0;
}

static size_t round_up(size_t n) { return (n + 7) & ~(size_t)7; }

enum wire pb_wire_of(ProtobufCType type)
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

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type, uint32_t number)
{
	if (number <= type->n_fields && type->fields[number - 1].id == number)
		return &type->fields[number - 1];
	return protobuf_c_message_descriptor_get_field(type, number);
}

static int check_packed(struct scan *s, const struct level *l, const struct token *t)
{
	enum wire wire = pb_wire_of(l->field->type);
	size_t n = 0;
	if (wire == WIRE_VARINT) {
		const uint8_t *p = t->data;
		while (p < t->next) {
			uint64_t v;
			size_t used = read_varint(p, t->next, VARINT_BYTES_MAX, &v);
			if (!used)
				return refuse_at(s, l, STATUS_INVALID_ARGUMENT,
					"malformed message: a packed number is cut short or too long");
			p += used;
			n++;
		}
	} else {
		size_t size = wire == WIRE_64BIT ? 8 : 4;
		if (t->len % size)
			return refuse_at(s, l, STATUS_INVALID_ARGUMENT, "malformed message: a packed number is cut short");
		n = t->len / size;
	}
	if (n > s->limits->fields - s->fields)
		return refuse_limit(s, l, "fields", s->limits->fields);
	s->fields += (uint32_t)n;
	return add_memory(s, l, 8 * n);
}

static int check_message(struct scan *s, struct level *l);

static bool seen_before(struct level *l)
{
	size_t i = (size_t)(l->field - l->type->fields);
	bool seen = l->seen[i / 64] >> i % 64 & 1;
	l->seen[i / 64] |= UINT64_C(1) << i % 64;
	return seen;
}

static int check_known(struct scan *s, struct level *l, const struct token *t)
{
	const ProtobufCFieldDescriptor *f = l->field;
	bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED;
	enum wire wire = pb_wire_of(f->type);
	if (repeated && wire != WIRE_LENGTH && t->wire == WIRE_LENGTH)
		return check_packed(s, l, t);
	if (t->wire != wire)
		return refuse_at(s, l, STATUS_INVALID_ARGUMENT, "malformed message: the field has the wrong wire type");
	if (repeated && add_memory(s, l, f->type == PROTOBUF_C_TYPE_BYTES ? sizeof(ProtobufCBinaryData) : 8))
		return -1;
	if (f->type == PROTOBUF_C_TYPE_STRING) {
		if (!utf8_valid(t->data, t->len))
			return refuse_at(s, l, STATUS_INVALID_ARGUMENT, "must be valid UTF-8 without U+0000");
		return add_memory(s, l, round_up(t->len + 1));
	}
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		return add_memory(s, l, round_up(t->len));
	if (f->type != PROTOBUF_C_TYPE_MESSAGE)
		return 0;
	if (!repeated && seen_before(l))
		return refuse_at(s, l, STATUS_INVALID_ARGUMENT, "malformed message: a field that is not repeated comes twice");
	if (l->depth >= min_sz(s->limits->depth, PB_DEPTH_MAX))
		return refuse_at(s, l, STATUS_INVALID_ARGUMENT, "messages are nested too deep");
	struct level inner = {
		.up = l,
		.type = f->descriptor,
		.start = t->data,
		.end = t->next,
		.depth = l->depth + 1,
	};
	return check_message(s, &inner);
}

static int check_unknown(struct scan *s, const struct level *l, const struct token *t)
{
	if (++s->unknown > s->limits->unknown)
		return refuse_limit(s, l, "fields that its type does not have", s->limits->unknown);
	return add_memory(s, l, sizeof(ProtobufCMessageUnknownField) + round_up((size_t)(t->next - l->tag)));
}

static int check_message(struct scan *s, struct level *l)
{
	assert(l->type->n_fields <= PB_TYPE_FIELDS_MAX);
	if (add_memory(s, l, round_up(l->type->sizeof_message) + round_up(l->type->n_fields / 8 + 1)))
		return -1;
	size_t scanned = 0;
	for (const uint8_t *p = l->start; p < l->end;) {
		struct token t;
		l->tag = p;
		l->field = NULL;
		const char *wrong = read_token(p, l->end, &t);
		l->field = t.number ? find_field(l->type, t.number) : NULL;
		if (wrong)
			return refuse_at(s, l, STATUS_INVALID_ARGUMENT, wrong);
		if (++s->fields > s->limits->fields)
			return refuse_limit(s, l, "fields", s->limits->fields);
		if (l->field ? check_known(s, l, &t) : check_unknown(s, l, &t))
			return -1;
		scanned++;
		p = t.next;
	}
	l->field = NULL;
	size_t slabs = 0, slab = FIRST_SLAB, total = FIRST_SLAB;
	while (total < scanned) {
		slab *= 2;
		total += slab;
		slabs += slab;
	}
	return slabs ? add_memory(s, l, slabs * SCANNED_BYTES) : 0;
}

int pb_check_measure(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, size_t *ret_memory, struct refusal *ret_refusal)
{
	struct scan s = { .limits = limits ? limits : &pb_limits_default, .refusal = ret_refusal };
	const uint8_t *start = len ? data : (const uint8_t *)"";
	struct level top = { .type = type, .start = start, .end = start + len, .depth = 1 };
	if (len > INT32_MAX)
		return refuse(ret_refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "the message has %zu bytes, %d are allowed",
			len, INT32_MAX);
	if (check_message(&s, &top))
		return -1;
	*ret_memory = s.memory;
	return 0;
}

int pb_check(const ProtobufCMessageDescriptor *type, const void *data, size_t len,
	const struct pb_limits *limits, struct refusal *ret_refusal)
{
	size_t memory;
	return pb_check_measure(type, data, len, limits, &memory, ret_refusal);
}

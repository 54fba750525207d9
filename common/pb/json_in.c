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
#include <string.h>

#include "common/pb/json_reader.h"

/* ---- the stack ---- */

static struct frame *top(struct reader *r) { return &r->frames[r->depth - 1]; }

static int push(struct reader *r, const struct json_token *t, const struct frame *f)
{
	if (r->depth == PB_JSON_DEPTH_MAX)
		return reader_refuse_at(r, t->at, "objects and lists are nested too deep; %d inside each other are allowed", PB_JSON_DEPTH_MAX);
	if (f->wire_depth > min_sz(r->limits->depth, PB_DEPTH_MAX))
		return reader_refuse_at(r, t->at, "messages are nested too deep; %zu inside each other are allowed",
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
		return gap_close(r, &f->value);
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
	else if (gap_close(r, &f->value) || gap_close(r, &f->length))
		return -1;
	r->depth--;
	return finish_item(r);
}

static int push_message(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *t,
	unsigned wire_depth, bool with_length)
{
	assert(type->n_fields <= PB_TYPE_FIELDS_MAX);
	struct frame f = {
		.kind = pb_special_of(type) == PB_ANY ? IN_ANY : IN_MESSAGE,
		.wire_depth = wire_depth,
		.type = type,
	};
	if (t->kind != JSON_OBJECT)
		return reader_refuse_token(r, t, "an object { … } is expected");
	if (with_length)
		gap_open(r, &f.length);
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
		return reader_refuse_at(r, t->at, "messages are nested too deep");
	gap_open(r, &length);
	return reader_put_time(r, special, t) || gap_close(r, &length) || finish_item(r) ? -1 : 0;
}

static int put_single(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	if (f->type == PROTOBUF_C_TYPE_MESSAGE)
		return put_message(r, f->descriptor, t);
	return reader_put_scalar(r, f, t) || finish_item(r) ? -1 : 0;
}

static int put_tagged(struct reader *r, const ProtobufCFieldDescriptor *f, const struct json_token *t)
{
	return reader_put_tag(r, f->id, pb_wire_of(f->type)) || put_single(r, f, t) ? -1 : 0;
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
		return reader_refuse_token(r, t, "a list [ … ] is expected");
	if (pb_wire_of(field->type) != WIRE_LENGTH) {
		if (reader_put_tag(r, field->id, WIRE_LENGTH))
			return -1;
		gap_open(r, &f.length);
	}
	return push(r, t, &f);
}

/* The first token of the frame's next item, or of what closes it. */
static int next_item(struct reader *r, enum json_kind close, const char *expected, struct json_token *ret_token)
{
	bool first = top(r)->n == 0;
	if (reader_next(r, ret_token))
		return -1;
	if (ret_token->kind == close)
		return 0;
	if (first)
		return 0;
	if (ret_token->kind != JSON_COMMA)
		return reader_refuse_token(r, ret_token, expected);
	if (reader_next(r, ret_token))
		return -1;
	return ret_token->kind == close ? reader_refuse_token(r, ret_token, "malformed JSON: something is expected after a comma") : 0;
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
		return reader_refuse_at(r, t.at, "null is not allowed in a list");
	if (!f->length.open)
		return put_tagged(r, f->field, &t);
	return reader_count_field(r) || put_single(r, f->field, &t) ? -1 : 0;
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
		return reader_refuse_token(r, ret_key, "malformed JSON: a key in double quotes is expected");
	if (reader_next(r, &colon))
		return -1;
	return colon.kind == JSON_COLON ? 0 : reader_refuse_token(r, &colon, "malformed JSON: a : is expected after a key");
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
	return t->kind == JSON_OBJECT ? push(r, t, &f) : reader_refuse_token(r, t, "an object { … } is expected");
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
	if (reader_text(r, &t, &name, &len))
		return -1;
	const ProtobufCFieldDescriptor *field = pb_field_by_json_name(f->type, name, len);
	if (!field)
		return reader_refuse_unknown(r, f->type, &t);
	size_t i = (size_t)(field - f->type->fields);
	f->field = field;
	if (is_set(f->seen, i))
		return reader_refuse_at(r, t.at, "the field is given twice");
	f->seen[i / 64] |= UINT64_C(1) << i % 64;
	size_t at = t.at;
	if (reader_next(r, &t))
		return -1;
	if (t.kind == JSON_NULL)
		return finish_item(r);
	const ProtobufCFieldDescriptor *other = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF ? other_of_oneof(f) : NULL;
	if (other)
		return reader_refuse_at(r, at, "only one of %s and %s may be given", other->name, field->name);
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
	if (reader_text(r, &t, &text, &len))
		return -1;
	if (len != strlen(wanted) || memcmp(text, wanted, len) != 0)
		return reader_refuse_token(r, &t, "\"@type\" is expected as the first key of a google.protobuf.Any");
	if (reader_next(r, &t) || reader_put_tag(r, 1, WIRE_LENGTH) || reader_put_string(r, &t) || reader_text(r, &t, &text, &len))
		return -1;
	f->type = pb_any_type(text, len);
	if (!f->type)
		return reader_refuse_token(r, &t, "\"type.googleapis.com/\" and one of BadRequest, ErrorInfo, ResourceInfo, RetryInfo, Status of "
					   "google.rpc is expected");
	f->kind = IN_MESSAGE;
	f->n = 1;
	f->wire_depth++;
	if (reader_put_tag(r, 2, WIRE_LENGTH))
		return -1;
	gap_open(r, &f->value);
	return 0;
}

/* ---- maps ---- */

static int compare_keys(const void *a, const void *b)
{
	const struct map_key *x = a, *y = b;
	if (x->is_number || x->number != y->number)
		return (x->number > y->number) - (x->number < y->number);
	const struct json_token *s = &x->token, *t = &y->token;
	const char *p = s->text, *p_end = p + s->len, *q = t->text, *q_end = q + t->len;
	int c = 0;
	if (!s->escaped && !t->escaped) {
		size_t both = min_sz(s->len, t->len);
		c = memcmp(p, q, both);
		p += both;
		q += both;
	}
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
			return reader_refuse_limit(r, -ENOMEM);
		r->keys = keys;
		r->keys_cap = cap;
	}
	r->keys[r->n_keys++] = *key;
	return 0;
}

/* Sorted only now, all at once: no table that somebody could fill with keys of one place. */
static int close_map(struct reader *r)
{
	struct frame *f = top(r);
	size_t n = r->n_keys - f->keys;
	if (n > 1)
		qsort(r->keys + f->keys, n, sizeof(*r->keys), compare_keys_and_places);
	for (size_t i = f->keys + 1; i < r->n_keys; i++)
		if (compare_keys(&r->keys[i - 1], &r->keys[i]) == 0) {
			f->key = r->keys[i].token;
			return reader_refuse_at(r, f->key.at, "the key is given twice");
		}
	r->n_keys = f->keys;
	return pop(r);
}

static int step_map(struct reader *r)
{
	struct frame *f = top(r);
	struct json_token t;
	struct map_key key;
	if (next_key(r, &t))
		return -1;
	if (t.kind == JSON_OBJECT_END)
		return close_map(r);
	f->key = t; /* for the path */
	if (reader_put_tag(r, f->field->id, WIRE_LENGTH))
		return -1;
	gap_open(r, &f->value);
	if (reader_put_key(r, &f->type->fields[0], &t, &key) || note_key(r, &key) || reader_next(r, &t))
		return -1;
	if (t.kind == JSON_NULL)
		return reader_refuse_at(r, t.at, "null is not allowed in a map");
	return put_tagged(r, &f->type->fields[1], &t);
}

/* ---- the whole ---- */

static int start(struct reader *r, const ProtobufCMessageDescriptor *type)
{
	struct json_token t;
	enum pb_special special = pb_special_of(type);
	if (reader_next(r, &t))
		return -1;
	if (special == PB_TIMESTAMP || special == PB_DURATION)
		return reader_put_time(r, special, &t);
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
	if (reader_next(r, &t))
		return -1;
	return t.kind == JSON_END ? 0 : reader_refuse_token(r, &t, "malformed JSON: nothing may follow the value");
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

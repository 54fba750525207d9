/* No state but the reader's. */
#include "common/pb/json_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/pb/utf8.h"

#define VARINT_BYTES_MAX 10

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

int reader_refuse_at(struct reader *r, size_t at, const char *fmt, ...)
{
	char path[sizeof(r->refusal->field)];
	va_list ap;
	format_path(r, path, sizeof(path));
	va_start(ap, fmt);
	int rc = refuse_with_path(r, path, at, fmt, ap);
	va_end(ap);
	return rc;
}

int reader_refuse_limit(struct reader *r, int err)
{
	if (err == -ENOMEM)
		return refuse_no_memory(r->refusal, "no memory for a message of %zu bytes of JSON", r->lex.len);
	return refuse(r->refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "the message has more than %zu bytes", r->out->max);
}

/* What stands there instead of what was expected. */
static const char *describe(const struct json_token *t, char *ret_text, size_t cap)
{
	size_t n = min_sz(t->len, JSON_EXCERPT_BYTES);
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

int reader_refuse_token(struct reader *r, const struct json_token *t, const char *expected)
{
	char text[JSON_EXCERPT_BYTES + 16];
	return reader_refuse_at(r, t->at, "%s, not %s", expected, describe(t, text, sizeof(text)));
}

int reader_next(struct reader *r, struct json_token *ret_token)
{
	const char *wrong = json_lex_next(&r->lex, ret_token);
	return wrong ? reader_refuse_at(r, ret_token->at, "malformed JSON: %s", wrong) : 0;
}

/* "; it has name, queue, …", as far as there is room. */
static void list_fields(const ProtobufCMessageDescriptor *type, char *ret_text, size_t cap)
{
	char camel[PB_JSON_NAME_MAX];
	size_t n = 0;
	ret_text[0] = '\0';
	for (unsigned i = 0; i < type->n_fields; i++) {
		size_t len = pb_camel_name(type->fields[i].name, camel);
		const char *before = i ? ", " : "; it has ";
		bool fits = n + strlen(before) + len + sizeof(", …") <= cap;
		n += (size_t)snprintf(ret_text + n, cap - n, "%s%s", before, fits ? camel : "…");
		if (!fits)
			break;
	}
}

int reader_refuse_unknown(struct reader *r, const ProtobufCMessageDescriptor *type, const struct json_token *key)
{
	char path[sizeof(r->refusal->field)], whole[2 * sizeof(path)], known[256], text[JSON_EXCERPT_BYTES + 16];
	size_t line, column;
	format_path(r, path, sizeof(path));
	snprintf(whole, sizeof(whole), "%s%s%.*s", path, *path ? "." : "", (int)min_sz(key->len, sizeof(path)), key->text);
	utf8_make_valid(whole, strlen(whole), path, sizeof(path), NULL);
	list_fields(type, known, sizeof(known));
	json_position(&r->lex, key->at, &line, &column);
	return refuse(r->refusal, STATUS_INVALID_ARGUMENT, path, "unknown field %s in %s (line %zu, column %zu)%s",
		describe(key, text, sizeof(text)), type->name, line, column, known);
}

/* ---- output ---- */

int reader_put(struct reader *r, const void *data, size_t n)
{
	int err = buf_add(r->out, data, n);
	return err ? reader_refuse_limit(r, err) : 0;
}

static size_t encode_varint(uint64_t v, uint8_t ret_bytes[VARINT_BYTES_MAX])
{
	size_t n = 0;
	for (; v >= 0x80; v >>= 7)
		ret_bytes[n++] = (uint8_t)(v | 0x80);
	ret_bytes[n++] = (uint8_t)v;
	return n;
}

int reader_put_varint(struct reader *r, uint64_t v)
{
	uint8_t bytes[VARINT_BYTES_MAX];
	return reader_put(r, bytes, encode_varint(v, bytes));
}

int reader_count_field(struct reader *r)
{
	if (++r->fields > r->limits->fields)
		return refuse(r->refusal, STATUS_RESOURCE_EXHAUSTED, NULL, "the message has more than %zu fields",
			(size_t)r->limits->fields);
	return 0;
}

int reader_put_tag(struct reader *r, uint32_t number, enum wire wire)
{
	return reader_count_field(r) ? -1 : reader_put_varint(r, (uint64_t)number << 3 | wire);
}

void gap_open(struct reader *r, struct gap *g) { *g = (struct gap){ .at = buf_len(r->out), .open = true }; }

int gap_close(struct reader *r, struct gap *g)
{
	if (!g->open)
		return 0;
	uint8_t length[VARINT_BYTES_MAX];
	size_t bytes = buf_len(r->out) - g->at, n = encode_varint(bytes, length);
	if (!buf_reserve(r->out, n))
		return reader_refuse_limit(r, n > buf_room(r->out) ? -ENOBUFS : -ENOMEM);
	uint8_t *at = r->out->data + r->out->start + g->at;
	memmove(at + n, at, bytes);
	memcpy(at, length, n);
	buf_commit(r->out, n);
	g->open = false;
	return 0;
}


/* Inside common/pb only: JSON text (RFC 8259) as tokens, one at a time, with no state but the position. */
#ifndef REINS_PB_JSON_LEX_H
#define REINS_PB_JSON_LEX_H

#include "common/base/base.h"

enum json_kind {
	JSON_END, /* of the text */
	JSON_OBJECT,
	JSON_OBJECT_END,
	JSON_LIST,
	JSON_LIST_END,
	JSON_COLON,
	JSON_COMMA,
	JSON_STRING,
	JSON_NUMBER,
	JSON_TRUE,
	JSON_FALSE,
	JSON_NULL,
};

struct json_lex {
	const char *text; /* the caller's; need not end with a NUL */
	size_t len;
	size_t at; /* of the next byte */
};

struct json_token {
	enum json_kind kind;
	bool escaped;     /* a string that holds a backslash */
	size_t at;        /* of its first byte in the text, or of the fault */
	const char *text; /* as it stands there; of a string what is between the quotes */
	size_t len;
};

/* NULL, or what is wrong at ret_token->at, in words.  Strings are valid UTF-8 without U+0000, and so are their escapes. */
const char *json_lex_next(struct json_lex *l, struct json_token *ret_token) MUST_CHECK;

/* Length of the JSON number at s; 0: there is none, and *ret_wrong (may be NULL) says why. */
size_t json_number_len(const char *s, size_t len, const char **ret_wrong);

/* What a string stands for, a character at a time: up to 4 bytes of UTF-8 of what is at *p (before `end`), which moves on. */
size_t json_unescape_one(const char **p, const char *end, char *ret_bytes);
/* All of it.  Never longer than t->len; no NUL at the end. */
size_t json_unescape(const struct json_token *t, char *ret_text);

/* Both from 1; columns count characters. */
void json_position(const struct json_lex *l, size_t at, size_t *ret_line, size_t *ret_column);

#endif

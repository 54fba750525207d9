/* Relies on nothing but the bytes between text and text + len. */
#include "common/pb/json_lex.h"

#include <string.h>

#include "common/base/num.h"
#include "common/pb/utf8.h"

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Of the four hex digits at s. -1: there are not four. */
static int32_t hex4(const char *s, size_t len)
{
	int32_t v = 0;
	if (len < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int digit = num_hex_digit(s[i]);
		if (digit < 0)
			return -1;
		v = v * 16 + digit;
	}
	return v;
}

static bool is_high(int32_t unit) { return unit >= 0xd800 && unit < 0xdc00; }
static bool is_low(int32_t unit) { return unit >= 0xdc00 && unit < 0xe000; }

/* s is behind the backslash.  Bytes that the escape takes from there, 0 with the reason. */
static size_t check_escape(const char *s, size_t len, const char **ret_wrong)
{
	*ret_wrong = "after a backslash one of \" \\ / b f n r t u is expected";
	if (!len)
		return 0;
	if (*s != 'u')
		return strchr("\"\\/bfnrt", *s) && *s ? 1 : 0;
	int32_t unit = hex4(s + 1, len - 1);
	*ret_wrong = unit < 0 ? "after \\u four hex digits are expected" : "U+0000 is not allowed in a text";
	if (unit <= 0)
		return 0;
	if (!is_high(unit) && !is_low(unit))
		return 5;
	*ret_wrong = "half of a surrogate pair";
	if (is_low(unit) || len < 11 || s[5] != '\\' || s[6] != 'u' || !is_low(hex4(s + 7, len - 7)))
		return 0;
	return 11;
}

static const char *read_string(struct json_lex *l, struct json_token *t)
{
	const char *wrong = NULL;
	size_t i = l->at + 1;
	for (;;) {
		while (i < l->len && l->text[i] >= 0x20 && l->text[i] < 0x7f && l->text[i] != '"' && l->text[i] != '\\')
			i++;
		t->at = i;
		if (i == l->len)
			return "the text has no closing quote";
		unsigned char c = (unsigned char)l->text[i];
		if (c == '"')
			break;
		if (c < 0x20)
			return "a control character in a text must be escaped";
		size_t n;
		if (c == '\\') {
			n = check_escape(l->text + i + 1, l->len - i - 1, &wrong);
			t->escaped = true;
			i++;
		} else {
			n = utf8_char_len((const uint8_t *)l->text + i, l->len - i);
			wrong = "the text is not valid UTF-8";
		}
		if (!n)
			return wrong;
		i += n;
	}
	t->at = l->at;
	t->text = l->text + l->at + 1;
	t->len = i - l->at - 1;
	l->at = i + 1;
	return NULL;
}

size_t json_number_len(const char *s, size_t len, const char **ret_wrong)
{
	const char *ignored, **wrong = ret_wrong ? ret_wrong : &ignored;
	size_t i = len && *s == '-' ? 1 : 0, from = i;
	*wrong = "a digit is expected";
	while (i < len && is_digit(s[i]))
		i++;
	if (i == from)
		return 0;
	*wrong = "a number has no leading zeros";
	if (s[from] == '0' && i > from + 1)
		return 0;
	if (i < len && s[i] == '.') {
		*wrong = "a digit is expected after the point of a number";
		for (from = ++i; i < len && is_digit(s[i]); i++)
			;
		if (i == from)
			return 0;
	}
	if (i < len && (s[i] == 'e' || s[i] == 'E')) {
		*wrong = "a digit is expected in the exponent of a number";
		i++;
		if (i < len && (s[i] == '+' || s[i] == '-'))
			i++;
		for (from = i; i < len && is_digit(s[i]); i++)
			;
		if (i == from)
			return 0;
	}
	return i;
}

static const char *read_word(struct json_lex *l, struct json_token *t)
{
	static const struct {
		const char *word;
		size_t len;
		enum json_kind kind;
	} words[] = { { "true", 4, JSON_TRUE }, { "false", 5, JSON_FALSE }, { "null", 4, JSON_NULL } };
	size_t n = 0;
	while (n < 20 && l->at + n < l->len && (l->text[l->at + n] | 0x20) >= 'a' && (l->text[l->at + n] | 0x20) <= 'z')
		n++;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (n == words[i].len && memcmp(l->text + l->at, words[i].word, n) == 0) {
			t->kind = words[i].kind;
			t->len = n;
			l->at += n;
			return NULL;
		}
	return "only the words true, false and null may stand without quotes";
}

static const char *wrong_byte(unsigned char c)
{
	switch (c) {
	case '\'':
		return "texts stand in double quotes";
	case '/':
	case '#':
		return "comments are not allowed";
	case '+':
		return "a number has no leading +";
	case '.':
		return "a number begins with a digit";
	case 0xef:
		return "no mark of the byte order, and nothing but JSON, is allowed";
	default:
		return "a character that has no place in JSON";
	}
}

const char *json_lex_next(struct json_lex *l, struct json_token *ret_token)
{
	static const char marks[] = "{}[]:,";
	static const enum json_kind kinds[] = { JSON_OBJECT, JSON_OBJECT_END, JSON_LIST, JSON_LIST_END, JSON_COLON, JSON_COMMA };
	while (l->at < l->len && memchr(" \t\n\r", l->text[l->at], 4))
		l->at++;
	*ret_token = (struct json_token){ .kind = JSON_END, .at = l->at, .text = l->text + l->at };
	if (l->at == l->len)
		return NULL;
	char c = l->text[l->at];
	const char *mark = memchr(marks, c, sizeof(marks) - 1), *wrong;
	if (mark) {
		ret_token->kind = kinds[mark - marks];
		ret_token->len = 1;
		l->at++;
		return NULL;
	}
	if (c == '"') {
		ret_token->kind = JSON_STRING;
		return read_string(l, ret_token);
	}
	if (c == '-' || is_digit(c)) {
		ret_token->kind = JSON_NUMBER;
		ret_token->len = json_number_len(l->text + l->at, l->len - l->at, &wrong);
		l->at += ret_token->len;
		return ret_token->len ? NULL : wrong;
	}
	if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z')
		return read_word(l, ret_token);
	return wrong_byte((unsigned char)c);
}

static size_t put_utf8(int32_t c, char *ret_bytes)
{
	if (c < 0x80) {
		ret_bytes[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		ret_bytes[0] = (char)(0xc0 | c >> 6);
		ret_bytes[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		ret_bytes[0] = (char)(0xe0 | c >> 12);
		ret_bytes[1] = (char)(0x80 | (c >> 6 & 63));
		ret_bytes[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	ret_bytes[0] = (char)(0xf0 | c >> 18);
	ret_bytes[1] = (char)(0x80 | (c >> 12 & 63));
	ret_bytes[2] = (char)(0x80 | (c >> 6 & 63));
	ret_bytes[3] = (char)(0x80 | (c & 63));
	return 4;
}

size_t json_unescape_one(const char **p, const char *end, char *ret_bytes)
{
	static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
	const char *s = *p;
	if (*s != '\\') {
		unsigned char c = (unsigned char)*s;
		size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
		memcpy(ret_bytes, s, n);
		*p = s + n;
		return n;
	}
	if (s[1] == 'u') {
		int32_t unit = hex4(s + 2, (size_t)(end - s) - 2);
		*p = s + 6;
		if (is_high(unit)) {
			unit = 0x10000 + ((unit - 0xd800) << 10) + (hex4(s + 8, (size_t)(end - s) - 8) - 0xdc00);
			*p = s + 12;
		}
		return put_utf8(unit, ret_bytes);
	}
	const char *letter = memchr(from, s[1], sizeof(from) - 1);
	*ret_bytes = letter ? to[letter - from] : s[1];
	*p = s + 2;
	return 1;
}

size_t json_unescape(const struct json_token *t, char *ret_text)
{
	size_t n = 0;
	const char *end = t->text + t->len;
	for (const char *p = t->text; p < end;)
		n += json_unescape_one(&p, end, ret_text + n);
	return n;
}

void json_position(const struct json_lex *l, size_t at, size_t *ret_line, size_t *ret_column)
{
	size_t line = 1, column = 1;
	for (size_t i = 0; i < at && i < l->len; i++) {
		if (l->text[i] == '\n') {
			line++;
			column = 1;
		} else if (((unsigned char)l->text[i] & 0xc0) != 0x80) {
			column++;
		}
	}
	*ret_line = line;
	*ret_column = column;
}

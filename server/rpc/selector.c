/* The parser of label selectors: by hand, one look ahead, bounded by the text's length. */
#include "server/rpc/selector.h"

#include <stdio.h>
#include <string.h>

#include "server/rpc/spec.h"

struct parser {
	const char *start, *at;
	struct label_selector *s;
	size_t n;
	char *fault;
	size_t cap;
};

struct word {
	const char *at;
	size_t len;
	char text[RPC_LABEL_VALUE_MAX + 1]; /* of what was quoted */
};

static int fail(struct parser *p, const char *what)
{
	snprintf(p->fault, p->cap, "at byte %zu: %s", (size_t)(p->at - p->start) + 1, what);
	return -1;
}

static void blanks(struct parser *p)
{
	while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')
		p->at++;
}

static bool skip(struct parser *p, char c)
{
	if (*p->at != c)
		return false;
	p->at++;
	return true;
}

static bool in_word(char c) { return c && !strchr(" \t\r\n,()=!\"", c); }

static struct word bare(struct parser *p)
{
	struct word w = { .at = p->at };
	while (in_word(*p->at))
		p->at++;
	w.len = (size_t)(p->at - w.at);
	return w;
}

static int quoted(struct parser *p, struct word *w)
{
	w->len = 0;
	while (*p->at && *p->at != '"') {
		if (*p->at == '\\' && p->at[1] != '"' && p->at[1] != '\\')
			return fail(p, "in quotes a backslash stands before \" or \\ only");
		p->at += *p->at == '\\';
		if (w->len == RPC_LABEL_VALUE_MAX)
			return fail(p, "a value is longer than 255 bytes");
		w->text[w->len++] = *p->at++;
	}
	w->at = w->text;
	return skip(p, '"') ? 0 : fail(p, "a quote is not closed");
}

static int key(struct parser *p, struct word *w)
{
	char text[RPC_LABEL_KEY_MAX + 1];
	*w = bare(p);
	if (w->len == 0)
		return fail(p, *p->at ? "a label's key is wanted here" : "a label's key is wanted at the end");
	if (w->len > RPC_LABEL_KEY_MAX)
		return fail(p, "a key is longer than 63 bytes");
	snprintf(text, sizeof(text), "%.*s", (int)w->len, w->at);
	return spec_label_ok(text, "") ? 0 : fail(p, "a key has other bytes than [A-Za-z0-9._/-]");
}

static int value(struct parser *p, const struct word *k)
{
	struct word w;
	blanks(p);
	if (skip(p, '"')) {
		if (quoted(p, &w))
			return -1;
	} else {
		w = bare(p);
		if (w.len > RPC_LABEL_VALUE_MAX)
			return fail(p, "a value is longer than 255 bytes");
	}
	blanks(p);
	return label_selector_label(p->s, k->at, k->len, w.at, w.len) ? 0 : fail(p, "more than 256 values in all");
}

static int set(struct parser *p, const struct word *k)
{
	blanks(p);
	if (!skip(p, '('))
		return fail(p, "( is wanted after in and notin");
	do {
		if (value(p, k))
			return -1;
	} while (skip(p, ','));
	return skip(p, ')') ? 0 : fail(p, ", or ) is wanted between and after the values");
}

static bool is(const struct word *w, const char *text)
{
	return w->len == strlen(text) && memcmp(w->at, text, w->len) == 0;
}

static int want(struct parser *p, bool none)
{
	return label_selector_want(p->s, none) ? 0 : fail(p, "more than 32 conditions");
}

static int exists(struct parser *p, const struct word *k, bool none)
{
	if (want(p, none))
		return -1;
	return label_selector_key(p->s, k->at, k->len) ? 0 : fail(p, "more than 256 values in all");
}

/* What stands behind the key. */
static int rest(struct parser *p, const struct word *k)
{
	blanks(p);
	if (*p->at == '\0' || *p->at == ',')
		return exists(p, k, false);
	if (skip(p, '!'))
		return !skip(p, '=') ? fail(p, "= is wanted after !") : want(p, true) ? -1 : value(p, k);
	if (skip(p, '=')) {
		(void)skip(p, '=');
		return want(p, false) ? -1 : value(p, k);
	}
	struct word op = bare(p);
	if (is(&op, "in") || is(&op, "notin"))
		return want(p, is(&op, "notin")) ? -1 : set(p, k);
	p->at = op.at;
	return fail(p, "=, !=, in (...), notin (...) or , is wanted after a key");
}

static int condition(struct parser *p)
{
	struct word k;
	if (++p->n > SELECTOR_WANTS_MAX)
		return fail(p, "more than 32 conditions");
	blanks(p);
	bool none = skip(p, '!');
	blanks(p);
	if (key(p, &k))
		return -1;
	if (none ? exists(p, &k, true) : rest(p, &k))
		return -1;
	blanks(p);
	return 0;
}

int selector_parse(const char *text, struct label_selector *s, char *ret_fault, size_t cap)
{
	struct parser p = { .start = text, .at = text, .s = s, .fault = ret_fault, .cap = cap };
	size_t len = strlen(text);
	if (len > SELECTOR_BYTES_MAX) {
		snprintf(ret_fault, cap, "%zu bytes; at most %d are allowed", len, SELECTOR_BYTES_MAX);
		return -1;
	}
	blanks(&p);
	if (!*p.at)
		return 0;
	do {
		if (condition(&p))
			return -1;
	} while (skip(&p, ','));
	return *p.at ? fail(&p, ", is wanted between conditions") : 0;
}

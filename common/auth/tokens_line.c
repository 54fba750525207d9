/* One line of a tokens file, read and written. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/auth/tokens.h"

const char *const role_names[ROLES] = { "reader", "submitter", "worker", "operator", "admin" };

struct word {
	const char *at;
	size_t len;
};

static int fail(char *ret_err, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);

static int fail(char *ret_err, size_t cap, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(ret_err, cap, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

unsigned role_parse(const char *name, size_t len)
{
	for (unsigned i = 0; i < ROLES; i++)
		if (strlen(role_names[i]) == len && memcmp(role_names[i], name, len) == 0)
			return 1u << i;
	return 0;
}

void roles_format(unsigned roles, char ret_text[static ROLES_TEXT_MAX + 1])
{
	size_t at = 0;
	ret_text[0] = '\0';
	for (unsigned i = 0; i < ROLES; i++)
		if (roles & 1u << i)
			at += (size_t)snprintf(ret_text + at, ROLES_TEXT_MAX + 1 - at, "%s%s", at ? "," : "", role_names[i]);
}

bool tokens_name_ok(const char *text, size_t len)
{
	if (len < 1 || len > TOKENS_NAME_MAX)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = text[i];
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("._/:@+-", c))))
			return false;
	}
	return true;
}

/* ---- times ---- */

static int digits(const char *text, size_t n)
{
	int value = 0;
	for (size_t i = 0; i < n; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		value = value * 10 + (text[i] - '0');
	}
	return value;
}

int tokens_parse_time(const char *text, size_t len, int64_t *ret_wall_us)
{
	if ((len != 10 && len != 20) || text[4] != '-' || text[7] != '-')
		return -EINVAL;
	struct tm tm = { .tm_year = digits(text, 4) - 1900, .tm_mon = digits(text + 5, 2) - 1, .tm_mday = digits(text + 8, 2) };
	if (len == 20) {
		if (text[10] != 'T' || text[13] != ':' || text[16] != ':' || text[19] != 'Z')
			return -EINVAL;
		tm.tm_hour = digits(text + 11, 2);
		tm.tm_min = digits(text + 14, 2);
		tm.tm_sec = digits(text + 17, 2);
	}
	const struct tm asked = tm;
	if (tm.tm_year < 70 || tm.tm_mon < 0 || tm.tm_mday < 1 || tm.tm_hour < 0 || tm.tm_min < 0 || tm.tm_sec < 0)
		return -EINVAL;
	time_t at = timegm(&tm);
	/* What timegm had to put right, as the 31st of June, is no time. */
	if (tm.tm_mon != asked.tm_mon || tm.tm_mday != asked.tm_mday || tm.tm_hour != asked.tm_hour || tm.tm_min != asked.tm_min ||
	    tm.tm_sec != asked.tm_sec)
		return -EINVAL;
	*ret_wall_us = (int64_t)at * 1000000;
	return 0;
}

static void format_time(int64_t wall_us, char *ret_text, size_t cap)
{
	time_t at = (time_t)(wall_us / 1000000);
	struct tm tm;
	ret_text[0] = '\0';
	if (gmtime_r(&at, &tm))
		strftime(ret_text, cap, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* ---- fields ---- */

static char *copy(struct word w)
{
	char *text = xcalloc(w.len + 1, 1);
	memcpy(text, w.at, w.len);
	return text;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int parse_digest(struct word w, uint8_t ret[static TOKEN_DIGEST_LEN])
{
	if (w.len != 2 * TOKEN_DIGEST_LEN)
		return -EINVAL;
	for (size_t i = 0; i < TOKEN_DIGEST_LEN; i++) {
		int high = hex_digit(w.at[2 * i]), low = hex_digit(w.at[2 * i + 1]);
		if (high < 0 || low < 0)
			return -EINVAL;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return 0;
}

/* The next of a list between commas; false: none is left. An empty one is one. */
static bool next_item(struct word *list, struct word *ret)
{
	if (!list->at)
		return false;
	const char *comma = memchr(list->at, ',', list->len);
	*ret = (struct word){ list->at, comma ? (size_t)(comma - list->at) : list->len };
	*list = comma ? (struct word){ comma + 1, list->len - ret->len - 1 } : (struct word){ NULL, 0 };
	return true;
}

static int parse_roles(struct word list, char *err, size_t cap, struct principal *p)
{
	struct word w;
	while (next_item(&list, &w)) {
		unsigned role = role_parse(w.at, w.len);
		if (!role)
			return fail(err, cap, "roles: \"%.*s\" is none; reader, submitter, worker, operator and admin are", (int)min_sz(w.len, 40), w.at);
		p->roles |= role;
	}
	return 0;
}

static int parse_queues(struct word list, char *err, size_t cap, struct principal *p)
{
	struct word w, all = list;
	size_t n = 0;
	while (next_item(&list, &w)) {
		if (!tokens_name_ok(w.at, w.len))
			return fail(err, cap, "queues: \"%.*s\" is no name; 1 to 255 bytes of [A-Za-z0-9._/:@+-] are allowed, and commas between them",
				    (int)min_sz(w.len, 40), w.at);
		if (++n > TOKENS_QUEUES_MAX)
			return fail(err, cap, "queues: more than %d", TOKENS_QUEUES_MAX);
	}
	p->queues = xcalloc(all.len + 3, 1);
	p->queues[0] = ',';
	memcpy(p->queues + 1, all.at, all.len);
	p->queues[all.len + 1] = ',';
	return 0;
}

/* A name, or its beginning and a `*`. */
static bool is_pattern(struct word w)
{
	if (w.len && w.at[w.len - 1] == '*')
		return w.len == 1 || tokens_name_ok(w.at, w.len - 1);
	return tokens_name_ok(w.at, w.len);
}

static int parse_field(struct word key, struct word value, char *err, size_t cap, struct principal *p)
{
	static const char *const keys[] = { "name", "roles", "expires", "queues", "worker" };
	size_t i = 0;
	while (i < ARRAY_LEN(keys) && (strlen(keys[i]) != key.len || memcmp(keys[i], key.at, key.len) != 0))
		i++;
	bool again = i == 0 ? p->name != NULL : i == 1 ? p->roles != 0 : i == 2 ? p->ends_wall_us != 0
		   : i == 3 ? p->queues != NULL : p->worker != NULL;
	if (i == ARRAY_LEN(keys))
		return fail(err, cap, "\"%.*s\" is not known; name, roles, expires, queues and worker are", (int)min_sz(key.len, 40), key.at);
	if (again)
		return fail(err, cap, "%s: given twice", keys[i]);
	switch (i) {
	case 0:
		if (!tokens_name_ok(value.at, value.len))
			return fail(err, cap, "name: not 1 to 255 bytes of [A-Za-z0-9._/:@+-]");
		p->name = copy(value);
		return 0;
	case 1:
		return parse_roles(value, err, cap, p);
	case 2:
		if (tokens_parse_time(value.at, value.len, &p->ends_wall_us) || !p->ends_wall_us)
			return fail(err, cap, "expires: \"%.*s\" is no time; 2027-01-31 or 2027-01-31T12:00:00Z is meant, in UTC",
				    (int)min_sz(value.len, 40), value.at);
		return 0;
	case 3:
		return parse_queues(value, err, cap, p);
	default:
		if (!is_pattern(value))
			return fail(err, cap, "worker: not the id of a worker, or its beginning and a *");
		p->worker = copy(value);
		return 0;
	}
}

/* ---- a line ---- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool next_word(struct word *rest, struct word *ret)
{
	while (rest->len && is_blank(*rest->at)) {
		rest->at++;
		rest->len--;
	}
	*ret = (struct word){ rest->at, 0 };
	while (rest->len && !is_blank(*rest->at)) {
		rest->at++;
		rest->len--;
		ret->len++;
	}
	return ret->len > 0;
}

static bool is_word(struct word w, const char *text)
{
	return w.len == strlen(text) && memcmp(w.at, text, w.len) == 0;
}

/* What stands before the fields. */
static int parse_head(struct word *rest, char *err, size_t cap, struct principal *p)
{
	struct word kind, id, digest;
	next_word(rest, &kind);
	p->is_cert = is_word(kind, "cert");
	if (!p->is_cert && !is_word(kind, "token"))
		return fail(err, cap, "\"%.*s\": token or cert must stand first", (int)min_sz(kind.len, 40), kind.at);
	if (!next_word(rest, &id))
		return fail(err, cap, "%s is missing", p->is_cert ? "the certificate's name" : "the token's id");
	if (p->is_cert) {
		if (!is_pattern(id))
			return fail(err, cap, "\"%.*s\": not the name of a certificate: 1 to 255 bytes of [A-Za-z0-9._/:@+-], or a beginning and a *",
				    (int)min_sz(id.len, 40), id.at);
		p->prefix = id.at[id.len - 1] == '*';
		id.len -= p->prefix;
	} else if (!token_id_ok(id.at, id.len)) {
		return fail(err, cap, "the token's id is not of 4 to 32 of a-z and 0-9");
	}
	p->id = copy(id);
	if (p->is_cert)
		return 0;
	if (!next_word(rest, &digest) || parse_digest(digest, p->digest))
		return fail(err, cap, "token %s: its SHA-256 is not of 64 digits of 0-9 and a-f", p->id);
	return 0;
}

static int check_whole(char *err, size_t cap, const struct principal *p)
{
	const char *what = p->is_cert ? "cert" : "token";
	if (!p->roles)
		return fail(err, cap, "%s %s: roles= is missing", what, p->id);
	if (!p->is_cert && !p->name)
		return fail(err, cap, "token %s: name= is missing", p->id);
	if (!p->is_cert && (p->roles & ROLE_WORKER) && !p->worker)
		return fail(err, cap, "token %s: worker= is missing: the id that it may work under (worker=* for any)", p->id);
	return 0;
}

int principal_parse(const char *line, size_t len, char *ret_err, size_t cap, struct principal **ret)
{
	struct word rest = { line, len }, w;
	while (rest.len && is_blank(*rest.at)) {
		rest.at++;
		rest.len--;
	}
	if (!rest.len || *rest.at == '#')
		return 1;
	struct principal *p = xcalloc(1, sizeof(*p));
	p->refs = 1;
	int rc = parse_head(&rest, ret_err, cap, p);
	while (rc == 0 && next_word(&rest, &w)) {
		const char *equals = memchr(w.at, '=', w.len);
		if (!equals) {
			rc = fail(ret_err, cap, "\"%.*s\": a word of the form key=value is meant", (int)min_sz(w.len, 40), w.at);
			break;
		}
		struct word key = { w.at, (size_t)(equals - w.at) }, value = { equals + 1, w.len - key.len - 1 };
		rc = parse_field(key, value, ret_err, cap, p);
	}
	if (rc == 0)
		rc = check_whole(ret_err, cap, p);
	if (rc) {
		principal_unref(p);
		return rc;
	}
	*ret = p;
	return 0;
}

char *principal_format(const struct principal *p)
{
	char roles[ROLES_TEXT_MAX + 1], hex[2 * TOKEN_DIGEST_LEN + 2] = "", ends[40] = "";
	char *text = NULL;
	roles_format(p->roles, roles);
	if (!p->is_cert) {
		hex[0] = ' ';
		for (size_t i = 0; i < TOKEN_DIGEST_LEN; i++)
			snprintf(hex + 1 + 2 * i, 3, "%02x", p->digest[i]);
	}
	if (p->ends_wall_us)
		format_time(p->ends_wall_us, ends, sizeof(ends));
	int queues_len = p->queues ? (int)strlen(p->queues) - 2 : 0;
	if (asprintf(&text, "%s %s%s%s%s%s roles=%s%s%s%s%.*s%s%s\n", p->is_cert ? "cert" : "token", p->id, p->prefix ? "*" : "", hex,
		     p->name ? " name=" : "", p->name ? p->name : "", roles, *ends ? " expires=" : "", ends,
		     p->queues ? " queues=" : "", queues_len, p->queues ? p->queues + 1 : "", p->worker ? " worker=" : "",
		     p->worker ? p->worker : "") < 0)
		abort();
	return text;
}

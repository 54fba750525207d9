/* The tokens file: who is known, and what they may do.  One entry a line; `#` begins a comment line.
 *
 *   token ID SHA256 name=NAME roles=ROLE[,ROLE…] [expires=TIME] [queues=NAME[,NAME…]] [worker=ID|PREFIX*]
 *   cert  SAN|PREFIX* [name=NAME] roles=ROLE[,ROLE…] [expires=TIME] [queues=…] [worker=…]
 *
 * ID is the public part of the token, SHA256 that of its secret (64 hex digits).  SAN is a subject alternative name of a
 * verified client certificate, letter by letter; with a `*` at its end: each that begins so.  NAME is the principal: owner of
 * tasks, word in the audit.  Several lines may have one NAME (a token and its successor).  TIME is UTC, 2027-01-31 or
 * 2027-01-31T12:00:00Z.  queues: only these may be submitted to or worked for.  worker: the ids that it may work under; wanted
 * of a token with the role worker.
 *
 * Names have 1 to 255 bytes of [A-Za-z0-9._/:@+-].  Bounded: TOKENS_FILE_MAX bytes, TOKENS_MAX entries, of them TOKENS_PREFIXES_MAX
 * certificates with a `*`, which are gone through one by one. */
#ifndef REINS_AUTH_TOKENS_H
#define REINS_AUTH_TOKENS_H

#include "common/auth/token.h"
#include "common/base/map.h"

#define TOKENS_FILE_MAX ((size_t)1 << 20)
#define TOKENS_LINE_MAX 4096
#define TOKENS_MAX 10000
#define TOKENS_PREFIXES_MAX 100
#define TOKENS_NAME_MAX 255
#define TOKENS_QUEUES_MAX 64

enum role {
	ROLE_READER = 1,
	ROLE_SUBMITTER = 2,
	ROLE_WORKER = 4,
	ROLE_OPERATOR = 8,
	ROLE_ADMIN = 16,
};
#define ROLES 5
/* "reader" …, by bit number. */
extern const char *const role_names[ROLES];
/* 0: no such role. */
unsigned role_parse(const char *name, size_t len);
/* "reader,worker"; at most ROLES_TEXT_MAX bytes and a NUL. */
#define ROLES_TEXT_MAX 48
void roles_format(unsigned roles, char ret_text[static ROLES_TEXT_MAX + 1]);

/* An entry; lives as long as somebody holds it. */
struct principal {
	int refs;
	struct map_node node; /* of its table */
	bool is_cert;
	bool prefix;          /* cert: what begins with `id` */
	char *id;             /* of the token; of a certificate the SAN, without the `*` */
	uint8_t digest[TOKEN_DIGEST_LEN];
	char *name;
	unsigned roles;
	int64_t ends_wall_us; /* 0: never */
	char *queues;         /* NULL: all; names with a comma before and behind each: ",a,b," */
	char *worker;         /* NULL: says nothing; with `*` at its end: each that begins so */
	int line;             /* of the file; 0: of none, a certificate that stands for itself */
};

struct tokens {
	struct map tokens, certs;
	struct principal **prefixes;
	size_t n_prefixes, cap_prefixes;
	size_t n, n_certs;
	struct principal **all; /* as in the file; each has one reference of the table */
	size_t cap;
};

/* -EINVAL with a text "line 3: …". Text that no file would hold (a NUL) is refused too. */
int tokens_parse(const char *text, size_t len, char *ret_err, size_t cap, struct tokens **ret) MUST_CHECK;
/* A file that ends in the middle of a line is half of one: a line without its end may say less than was meant, and let in for
 * longer or further. Words for that. */
#define TOKENS_CUT "its last line has no newline: perhaps only half of the file is there"
/* -EINVAL with a text that begins with the path: also of a file that others may write, and of half a file. */
int tokens_read(const char *path, char *ret_err, size_t cap, struct tokens **ret) MUST_CHECK;
void tokens_free(struct tokens *t); /* NULL-safe */
/* The token's entry, whatever its digest; NULL: none. */
struct principal *tokens_find(const struct tokens *t, const char *id);
/* The entry of a subject alternative name: the exact one before that of the longest beginning; NULL: none. */
struct principal *tokens_find_cert(const struct tokens *t, const char *san);

/* ---- an entry ---- */
struct principal *principal_ref(struct principal *p);
void principal_unref(struct principal *p); /* NULL-safe */
bool principal_ended(const struct principal *p, int64_t wall_us);
bool principal_has_queue(const struct principal *p, const char *queue);
/* Whether `worker` says that it may work as this one. */
bool principal_is_worker(const struct principal *p, const char *id);
/* One reference to who may what both may, by a's name and id; `worker` is a's: ask both. */
struct principal *principal_both(const struct principal *a, const struct principal *b);
/* The same person with the same rights: what one may the other may. */
bool principal_same(const struct principal *a, const struct principal *b);

/* ---- one line (tokens_line.c) ---- */
/* 0 with an entry of one reference; 1: the line is empty or a comment; -EINVAL with a text. */
int principal_parse(const char *line, size_t len, char *ret_err, size_t cap, struct principal **ret) MUST_CHECK;
/* The line that principal_parse reads back, with a newline; to be freed. */
char *principal_format(const struct principal *p);
/* "2027-01-31" or "2027-01-31T12:00:00Z"; -EINVAL. */
int tokens_parse_time(const char *text, size_t len, int64_t *ret_wall_us) MUST_CHECK;
bool tokens_name_ok(const char *text, size_t len);

#endif

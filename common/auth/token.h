/* A token: what a client shows to be known, as text reins_ID_SECRET.  The id is public: it finds the line in the tokens
 * file (tokens.h).  The secret is 256 random bits as 64 hex digits; a server keeps only its SHA-256. */
#ifndef REINS_AUTH_TOKEN_H
#define REINS_AUTH_TOKEN_H

#include "common/base/base.h"

#define TOKEN_ID_MIN 4
#define TOKEN_ID_MAX 32      /* of a-z and 0-9 */
#define TOKEN_ID_MADE 10     /* as token_make makes them */
#define TOKEN_SECRET_LEN 64  /* of 0-9 and a-f */
#define TOKEN_DIGEST_LEN 32
#define TOKEN_TEXT_MAX (6 + TOKEN_ID_MAX + 1 + TOKEN_SECRET_LEN)

struct token {
	char id[TOKEN_ID_MAX + 1];
	uint8_t digest[TOKEN_DIGEST_LEN]; /* of the secret's 64 digits */
};

/* -EINVAL: not of the form. */
int token_parse(const char *text, size_t len, struct token *ret) MUST_CHECK;
/* A new one, and its text, which is to be shown once and forgotten. -EIO: the system has no randomness. */
int token_make(struct token *ret, char ret_text[static TOKEN_TEXT_MAX + 1]) MUST_CHECK;
/* What a client is to show, from a file with nothing else in it but blanks around; any text of TOKEN_SHOWN_MAX printable
 * characters at most, so that other servers' tokens may be shown too.  -EINVAL with a text that begins with the path. */
#define TOKEN_SHOWN_MAX 4096
int token_read_file(const char *path, char ret_text[static TOKEN_SHOWN_MAX + 1], char *ret_err, size_t err_cap) MUST_CHECK;
bool token_id_ok(const char *id, size_t len);
/* In a time that does not depend on where they differ. */
bool token_same_digest(const uint8_t a[static TOKEN_DIGEST_LEN], const uint8_t b[static TOKEN_DIGEST_LEN]);

#endif

/* Making tokens and taking them apart.  No state; secrets are wiped from where they were made. */
#include "common/auth/token.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "reins_"
#define PREFIX_LEN (sizeof(PREFIX) - 1)

bool token_id_ok(const char *id, size_t len)
{
	if (len < TOKEN_ID_MIN || len > TOKEN_ID_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9')))
			return false;
	return true;
}

static bool is_secret(const char *text)
{
	for (size_t i = 0; i < TOKEN_SECRET_LEN; i++)
		if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
			return false;
	return true;
}

static void digest_of(const char *secret, uint8_t ret[static TOKEN_DIGEST_LEN])
{
	SHA256((const unsigned char *)secret, TOKEN_SECRET_LEN, ret);
}

int token_parse(const char *text, size_t len, struct token *ret)
{
	if (len < PREFIX_LEN + TOKEN_ID_MIN + 1 + TOKEN_SECRET_LEN || len > TOKEN_TEXT_MAX ||
	    memcmp(text, PREFIX, PREFIX_LEN) != 0)
		return -EINVAL;
	size_t id_len = len - PREFIX_LEN - 1 - TOKEN_SECRET_LEN;
	const char *id = text + PREFIX_LEN, *secret = text + len - TOKEN_SECRET_LEN;
	if (!token_id_ok(id, id_len) || id[id_len] != '_' || !is_secret(secret))
		return -EINVAL;
	memcpy(ret->id, id, id_len);
	ret->id[id_len] = '\0';
	digest_of(secret, ret->digest);
	return 0;
}

int token_make(struct token *ret, char ret_text[static TOKEN_TEXT_MAX + 1])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567", hex[] = "0123456789abcdef";
	uint8_t id[TOKEN_ID_MADE], secret[TOKEN_SECRET_LEN / 2];
	if (RAND_bytes(id, sizeof(id)) != 1 || RAND_bytes(secret, sizeof(secret)) != 1)
		return -EIO;
	char *p = ret_text;
	memcpy(p, PREFIX, PREFIX_LEN);
	p += PREFIX_LEN;
	for (size_t i = 0; i < TOKEN_ID_MADE; i++)
		p[i] = letters[id[i] & 31];
	memcpy(ret->id, p, TOKEN_ID_MADE);
	ret->id[TOKEN_ID_MADE] = '\0';
	p += TOKEN_ID_MADE;
	*p++ = '_';
	for (size_t i = 0; i < sizeof(secret); i++) {
		p[2 * i] = hex[secret[i] >> 4];
		p[2 * i + 1] = hex[secret[i] & 15];
	}
	p[TOKEN_SECRET_LEN] = '\0';
	digest_of(p, ret->digest);
	OPENSSL_cleanse(secret, sizeof(secret));
	return 0;
}

int token_read_file(const char *path, char ret_text[static TOKEN_SHOWN_MAX + 1], char *ret_err, size_t err_cap)
{
	char data[TOKEN_SHOWN_MAX + 3];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe that nobody writes holds nobody up */
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	size_t n = f ? fread(data, 1, sizeof(data), f) : 0, first = 0;
	int err = !f || ferror(f) ? errno : 0;
	if (f)
		fclose(f);
	else if (fd >= 0)
		close(fd);
	while (n && isspace((unsigned char)data[n - 1]))
		n--;
	while (first < n && isspace((unsigned char)data[first]))
		first++;
	size_t good = 0;
	while (first + good < n && isgraph((unsigned char)data[first + good]))
		good++;
	bool fine = !err && good && first + good == n && good <= TOKEN_SHOWN_MAX;
	if (fine) {
		memcpy(ret_text, data + first, good);
		ret_text[good] = '\0';
	} else {
		snprintf(ret_err, err_cap, "%s: %s", path, err ? strerror(err) : "not a token: one word of printable characters is wanted");
	}
	OPENSSL_cleanse(data, sizeof(data));
	return fine ? 0 : -EINVAL;
}

bool token_same_digest(const uint8_t a[static TOKEN_DIGEST_LEN], const uint8_t b[static TOKEN_DIGEST_LEN])
{
	return CRYPTO_memcmp(a, b, TOKEN_DIGEST_LEN) == 0;
}

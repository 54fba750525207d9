/* A tokens file of any bytes: read or refused with a line's number; what was read is within its bounds, found by its id, and
 * written as a line that is read back the same. */
#include <stdlib.h>
#include <string.h>

#include "common/auth/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void check(const struct tokens *t, const struct principal *p)
{
	char err[300];
	struct principal *back;
	const struct principal *found = p->is_cert ? NULL : tokens_find(t, p->id);
	if ((!p->is_cert && found != p) || !p->roles || (!p->is_cert && !p->name) || (p->name && !tokens_name_ok(p->name, strlen(p->name))))
		abort();
	if (p->is_cert && !p->prefix && tokens_find_cert(t, p->id) != p)
		abort();
	char *line = principal_format(p);
	size_t n = strlen(line);
	if (line[n - 1] != '\n' || principal_parse(line, n - 1, err, sizeof(err), &back))
		abort();
	if (!principal_same(p, back) || strcmp(p->id, back->id) != 0 || p->prefix != back->prefix || p->ends_wall_us != back->ends_wall_us ||
	    memcmp(p->digest, back->digest, sizeof(p->digest)) != 0)
		abort();
	principal_unref(back);
	free(line);
	(void)principal_has_queue(p, "a");
	(void)principal_is_worker(p, "a");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	/* Outside of what the sanitizers know of the caller's buffer nothing may be read. */
	char *copy = malloc(len + 1), err[400] = "";
	struct tokens *t = NULL;
	struct token token;
	if (!copy)
		abort();
	memcpy(copy, data, len);
	if (token_parse(copy, len, &token) == 0 && !token_id_ok(token.id, strlen(token.id)))
		abort();
	if (tokens_parse(copy, len, err, sizeof(err), &t)) {
		if (strncmp(err, "line ", 5) != 0 && len <= TOKENS_FILE_MAX)
			abort();
		free(copy);
		return 0;
	}
	free(copy);
	if (t->n > TOKENS_MAX || t->n_prefixes > TOKENS_PREFIXES_MAX)
		abort();
	for (size_t i = 0; i < t->n; i++)
		check(t, t->all[i]);
	tokens_free(t);
	return 0;
}

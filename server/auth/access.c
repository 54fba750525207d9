/* Looks rows up; the table is made by access.py. */
#include "server/auth/access.h"

#include <string.h>

#include "common/auth/tokens.h"

static int by_path(const void *key, const void *row)
{
	return strcmp(key, ((const struct access_row *)row)->path);
}

const struct access_row *access_find(const char *path)
{
	return bsearch(path, access_rows, access_n_rows, sizeof(access_rows[0]), by_path);
}

bool access_allows(const struct access_row *row, unsigned roles)
{
	return (row->who & (ACCESS_KNOWN | ACCESS_ANYONE | ACCESS_SHOWN)) || (roles & (row->who | ROLE_ADMIN));
}

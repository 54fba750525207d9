/* Who may call what: a row for each rpc of proto/, made at build time from access.txt, sorted by path. */
#ifndef REINS_ACCESS_H
#define REINS_ACCESS_H

#include "common/base/base.h"

/* Beside the roles of common/auth/tokens.h. */
enum { ACCESS_KNOWN = 1 << 8, ACCESS_ANYONE = 1 << 9, ACCESS_SHOWN = 1 << 10 };

struct access_row {
	const char *path; /* "/reins.v1.TaskService/GetTask" */
	unsigned who;     /* roles and the bits above; an admin may everything */
	bool changes;
};

extern const struct access_row access_rows[];
extern const size_t access_n_rows;

/* NULL: there is none, and nobody may. */
const struct access_row *access_find(const char *path);
/* Whether somebody with these roles may; what `anyone` and `shown` mean for strangers is the caller's affair. */
bool access_allows(const struct access_row *row, unsigned roles);

#endif

/* What tasks ask of a worker by name, and what workers have by name: handlers and counted resources.
 *
 * A name is one object while anybody holds it, so that names are compared by address.  Names that workers offer are
 * bounded by ASKS_OFFERED_MAX, those of tasks by the tasks that the core holds. */
#ifndef REINS_CORE_ASKS_H
#define REINS_CORE_ASKS_H

#include "common/base/list.h"
#include "common/base/map.h"
#include "server/core/core.h"

#define ASKS_OFFERED_MAX 100000
#define ASKS_SPARE 1024 /* more than so many are held: none is kept for a class without tasks */

__extension__ typedef __int128 wide; /* sums of counts up to 2^62 */

struct name {
	struct map_node node;
	size_t refs, offers; /* offers: those of workers among them */
	char text[];
};
/* So many of one name. Lists of these are in the order of the addresses. */
struct count {
	struct name *name;
	int64_t n;
};

/* The same object for all tasks that ask for the same. */
struct asks {
	struct map_node node;
	size_t refs;           /* jobs and classes */
	struct list link_idle; /* core.idle_asks while nobody holds it: goes at the start of the next step */
	struct name *handler;  /* NULL: a command */
	struct count *counts;
	size_t n_counts;
	const char *custom;    /* the text, in `key` */
	char key[];            /* the handler's name and the text, each with its NUL */
};

/* What a worker has of one name. */
struct stock {
	struct name *name;
	int64_t have;
	wide used;
};

/* One reference more; NULL: a command that asks for nothing by name. */
struct asks *asks_get(struct core *c, const char *handler, const char *custom);
void asks_ref(struct core *c, struct asks *a); /* NULL-safe, as is asks_put */
void asks_put(struct core *c, struct asks *a);
void asks_free_idle(struct core *c);

/* NULL: too many. */
struct name *name_offer(struct core *c, const char *text);
void name_withdraw(struct core *c, struct name *n);
/* NULL: nobody asks for it or has it. */
struct name *name_find(const struct core *c, const char *text, size_t len);

/* One "name=count" of a text; where the next begins, NULL after the last.  A count that is none is more than anybody has. */
const char *custom_next(const char *at, const char **ret_name, size_t *ret_len, int64_t *ret_n);

/* Offered names; *ret is NULL for none.  -1: too many. */
int stock_new(struct core *c, const char *custom, struct stock **ret, size_t *ret_n) MUST_CHECK;
void stock_free(struct core *c, struct stock *s, size_t n);
/* All that is asked for is there; `empty`: as if nothing were used. */
bool stock_has(const struct stock *s, size_t n, const struct asks *a, bool empty);
/* sign 1: takes, -1: gives back. Names that the worker has not are left out. */
void stock_use(struct stock *s, size_t n, const struct asks *a, int sign);

#endif

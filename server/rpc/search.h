/* A search through tasks, in steps that the store does quickly: begun narrow, wider as long as too little is found, and ended
 * when enough is found, nothing is left, or a second has passed. */
#ifndef REINS_RPC_SEARCH_H
#define REINS_RPC_SEARCH_H

#include "server/rpc/filter.h"
#include "server/rpc/rpc.h"

struct search {
	/* in */
	struct rpc *rpc;
	struct grpc_call *call; /* whose patience it uses; may become NULL meanwhile, and then it ends with the next step */
	struct filter filter;   /* parsed; search_done frees it */
	const char *only_owner; /* NULL: anybody's; else tasks of this one alone, whatever the filter says */
	bool full, bare;
	int32_t want;           /* rows at most */
	bool after;
	struct uuid last;       /* go on below this one; then: the next search may */
	/* Takes some of the rows, in order; fewer than n end the search. */
	size_t (*take)(struct search *s, const struct store_task *rows, size_t n);
	/* From the loop, once. `failed`: the step that could not be done, NULL: none. */
	void (*done)(struct search *s, const struct store_op *failed);
	/* out */
	bool more;              /* below `last` */
	/* private */
	struct rpc_read large;
	struct store_list step;
	int32_t got;
	int64_t until_mono_ns;
};

void search_begin(struct search *s);
/* Its call is over. True: it had not begun, and `done` is not called. */
bool search_cancel(struct search *s);
void search_done(struct search *s); /* not between search_begin and done */

#endif

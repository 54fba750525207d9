/* TaskFilter: from what a client sent to what the store searches by. */
#ifndef REINS_RPC_FILTER_H
#define REINS_RPC_FILTER_H

#include "common/base/refusal.h"
#include "reins/v1/task_service.pb-c.h"
#include "server/store/labels.h"
#include "server/store/store.h"

#define FILTER_IDS_MAX 1000
#define FILTER_LABELS_MAX 16

struct filter {
	const Reins__V1__TaskFilter *of; /* NULL: nothing is asked for */
	uint32_t states;                 /* bit (1 << state); 0: all */
	int64_t created_from_us, created_before_us;
	struct uuid *ids;
	size_t n_ids;
	struct label_selector labels;
};

/* 0, or -1 with INVALID_ARGUMENT that names the field under "filter.".  *ret points into *f, and is filter_done's in any case. */
int filter_parse(const Reins__V1__TaskFilter *f, struct filter *ret, struct refusal *ret_refusal) MUST_CHECK;
void filter_done(struct filter *f);
/* What of each task is asked for. -1: INVALID_ARGUMENT. */
int filter_view(Reins__V1__TaskView view, bool *ret_full, struct refusal *ret_refusal) MUST_CHECK;
/* It says nothing: all tasks match. */
bool filter_is_empty(const struct filter *f);
/* The conditions of a search, which points into *f. */
void filter_apply(const struct filter *f, struct store_list *ret);
/* A number of what the filter says, for what must not be used with another.  `seed`: of what else counts. */
uint64_t filter_fingerprint(const struct filter *f, uint64_t seed);

/* Page tokens: PREFIX, the fingerprint, and the id below which the next page begins. */
#define FILTER_TOKEN_MAX 80
void filter_token(const char *prefix, uint64_t fingerprint, const struct uuid *last, char ret[static FILTER_TOKEN_MAX]);
/* "": none, *ret_after is false. -1: not one of this server, or of a list with another filter. */
int filter_token_parse(const char *token, const char *prefix, uint64_t fingerprint, bool *ret_after, struct uuid *ret_last,
		       struct refusal *ret_refusal) MUST_CHECK;

#endif

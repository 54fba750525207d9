/* Operations about workers: the list of them, the wishes of operators, and who is gone.  As in store.h. */
#ifndef REINS_STORE_WORKERS_H
#define REINS_STORE_WORKERS_H

#include "server/store/store.h"

struct store_worker {
	const char *id;
	uint8_t instance[CORE_INSTANCE_LEN];
	int64_t session, opened_wall_us;
	int64_t heard_wall_us;  /* its last word, of a worker that is gone; 0: a master holds it, or did when it died */
	int64_t detached_us;    /* so much longer its programs are left running; 0: no wish, or it is over */
	const char *master;     /* that opened the session */
	int64_t beat_age_us;    /* since that master's last beat; INT64_MAX: there is no such master */
	struct store_bytes info; /* as `hello` of SESSION_OPEN; empty where `drained` was asked for */
	struct store_drain_wish drain;
};

/* Workers by id.  Changes nothing. */
struct store_workers {
	struct store_op op;
	const char *only;   /* NULL: all; else just this one */
	const char *after;  /* ids above this one; "": from the start */
	bool drained;       /* only those with a wish */
	int32_t limit;
	int64_t max_bytes;  /* of info: stop after the row that reaches it; 0: no limit */
	struct store_worker *ret_rows;
	size_t ret_n;
	bool ret_more;
	void *ret_memory;
};

/* The lease of this session is over and no other followed. */
struct store_worker_gone {
	struct store_op op;
	const char *worker;
	int64_t session;
	int64_t heard_ago_ns;
};

/* This session's worker leaves its programs running, for so long from now; 0: no longer.  Ends with the next session. */
struct store_detached {
	struct store_op op;
	const char *worker;
	int64_t session;
	int64_t within_ns;
};

/* Stores the wish, or with mode 0 takes it back. */
struct store_drain {
	struct store_op op;
	const char *worker;
	struct store_drain_wish wish;
	bool ret_found; /* false: the store knows no such worker */
};

#endif

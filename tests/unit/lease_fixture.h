/* A lease table under test, in memory or in a private Redis, with what it said and a way to look at its keys. */
#ifndef REINS_TEST_LEASE_FIXTURE_H
#define REINS_TEST_LEASE_FIXTURE_H

#include "common/loop/loop.h"
#include "server/lease/lease.h"
#include "tests/unit/redis_server.h"

enum fixture_kind { FIXTURE_MEMORY, FIXTURE_REDIS };

#define FIXTURE_COOKIES 4096
#define TTK_NS (120 * NS_PER_S)
#define NO_VERDICT (-1)

struct fixture {
	enum fixture_kind kind;
	struct redis_server *server; /* REDIS */
	struct loop *loop;
	struct loop_timer guard;     /* a test that waits for what never comes fails */
	struct loop_timer tick;
	struct lease *l;
	bool inside;                 /* of a call: callbacks are forbidden */
	int verdicts[FIXTURE_COOKIES];
	size_t n_answers, n_hbs, n_pages, n_states;
	struct lease_hb hb;
	struct lease_page page;
	bool up;
	char state_text[256];
	void (*hook)(struct fixture *f); /* called in on_preempted */
};

struct fixture_options {
	size_t max_pending;
	const char *url;       /* NULL: the server's */
	int64_t timeout_ns;    /* 0: 2 s, so that a busy machine doesn't count as a fault */
	bool stay_down;        /* don't wait until it is up */
};

void fixture_open(struct fixture *f, enum fixture_kind kind, struct redis_server *server, const struct fixture_options *o);
/* A table on another URL in the same loop, not waited for. */
void fixture_exchange(struct fixture *f, const char *url);
void fixture_close(struct fixture *f);

/* Turns the loop until the condition holds. */
#define UNTIL(f, cond)                   \
	do {                             \
		fixture_arm(f);          \
		while (!(cond))          \
			fixture_turn(f); \
	} while (0)
void fixture_arm(struct fixture *f);
void fixture_turn(struct fixture *f);
/* Until no command is without an answer. */
void fixture_settle(struct fixture *f);

struct uuid task_id(unsigned n);
struct lease_slot slot_of(unsigned task, const char *worker, int64_t session, int32_t slots);
/* One slot, its verdict awaited. */
int preempt(struct fixture *f, const struct lease_slot *slot);
void own(struct fixture *f, unsigned task, int32_t attempt, const char *worker, int64_t session);
void release(struct fixture *f, unsigned task, int32_t attempt, const char *worker);
void beat(struct fixture *f, const char *worker, int64_t session, int64_t ttl_ns, const struct lease_held *held, size_t n);
const struct lease_hb *query(struct fixture *f, const char *worker);
const struct lease_page *scan(struct fixture *f, uint64_t from);

/* The value as Redis has it, "" without the key; *ret_ttl_ms its TTL (-1: none). Static storage. */
const char *look_hb(struct fixture *f, const char *worker, int64_t *ret_ttl_ms);
const char *look_field(struct fixture *f, const char *worker, unsigned task, int64_t *ret_ttl_ms);
const char *look_owner(struct fixture *f, unsigned task, int64_t *ret_ttl_ms);
size_t look_held(struct fixture *f, const char *worker);

#endif

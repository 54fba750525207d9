/* What the store's tests share: a store on a loop, operations run to their end, and short ways to make them.
 * A factory makes the store, so that the same tests run on each kind of store. */
#ifndef TESTS_STORE_HARNESS_H
#define TESTS_STORE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "common/loop/loop.h"
#include "server/store/store.h"

#define MS INT64_C(1000000)
#define DEADLINE_NS (INT64_C(30000) * MS)

struct factory {
	const char *name;
	/* lost_limit 3 */
	struct store *(*open)(struct loop *loop);
	void (*begin)(void);
	void (*end)(void);
	/* After begin: a store of schema version 1, with old_rows. */
	void (*make_old)(void);
	void (*make_labelled)(void); /* see old_labels.c */
	bool alone; /* no second store on the same data at a time */
};

struct harness {
	struct loop *loop;
	struct store *store;
	struct uuid7_maker ids;
	struct blob *spec;
};
extern struct harness h;
extern const struct factory *factory;

int harness_begin(void **state);
int harness_end(void **state);
/* Instead of harness_begin: on an old store. */
int harness_begin_old(void **state);
int harness_begin_labelled(void **state);
/* A second master's store on the same data, or the first where the factory's are alone. */
struct store *harness_another(void);
void harness_another_done(struct store *other);
void harness_wait_up(struct store *s);
/* Turns the loop until *flag; fails the test at the deadline. */
void harness_until(const bool *flag);

/* Submits; harness_drain waits for all that were submitted, or fails the test at the deadline. */
void harness_submit(struct store *s, struct store_op *op, enum store_kind kind);
void harness_drain(void);
/* Submits and waits. Fails the test unless the result is STORE_OK (run_any: returns it). */
void run(struct store_op *op, enum store_kind kind);
enum store_result run_any(struct store *s, struct store_op *op, enum store_kind kind);
/* n operations, `size` bytes apart, `op` first in each: all submitted, then waited for. */
void run_many(void *first, size_t n, size_t size, enum store_kind kind);

struct uuid new_id(void);
/* A queue name that no other test uses; valid until the program ends. */
const char *new_queue(void);
struct store_insert insert_of(const char *queue);
/* Inserts and returns the core row (seq filled in). */
struct core_task insert(const char *queue);
struct store_assignment to_worker(const char *worker, int64_t session);
/* Claims; fails the test when it is lost. */
int32_t claim(const struct core_task *t, const char *worker, int64_t session);
bool try_claim(const struct core_task *t, const char *worker, int64_t session);
/* A task in a queue of its own, claimed. */
struct core_attempt running(struct core_task *ret, const char *worker, int64_t session);
/* Opens a session with instance byte `inst`, holding n attempts. Done fields are the caller's. */
struct store_session_open session_open(const char *worker, uint8_t inst, const struct core_attempt *held, size_t n);
int64_t session(const char *worker); /* with instance 1 and no list */
enum core_record_verdict record(struct core_attempt at, const char *worker, enum store_outcome outcome);
struct store_take_back take_back(struct core_attempt at, int64_t session, enum core_take_back_cause cause, bool counted);
/* Freed by store_op_done_fields. */
struct store_get get(struct uuid id);
enum store_state state_of(struct uuid id);

#endif

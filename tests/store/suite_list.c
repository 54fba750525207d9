/* What store.h promises of lists: random filters and pages over tasks that come, change and end between the pages, against a
 * naive model; and of queues: the list of them, and pauses. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/rng.h"
#include "server/store/labels.h"
#include "server/store/queues.h"
#include "tests/store/suite_parts.h"

/* ---- labels ---- */

static void encode(const char *const *kv, size_t n, struct buf *b)
{
	buf_init(b, 4096);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(labels_add(b, kv[2 * i], kv[2 * i + 1]), 0);
	assert_int_equal(labels_end(b), 0);
}

static bool select_one(const struct buf *b, bool none, const char *key, const char *value)
{
	struct label_selector s = { 0 };
	assert_true(label_selector_want(&s, none));
	if (value)
		assert_true(label_selector_label(&s, key, strlen(key), value, strlen(value)));
	else
		assert_true(label_selector_key(&s, key, strlen(key)));
	bool matches = label_selector_matches(&s, buf_head(b), buf_len(b));
	label_selector_done(&s);
	return matches;
}

void labels_as_bytes(void **state)
{
	static const char *const kv[] = { "a", "b", "aa", "", "c", "a", "d/e", "\x01 =,b" };
	struct buf b, none;
	encode(kv, 4, &b);
	encode(kv, 0, &none);
	assert_int_equal(buf_len(&none), 0);
	assert_true(select_one(&b, false, "a", "b") && select_one(&b, false, "aa", "") && select_one(&b, false, "d/e", "\x01 =,b"));
	assert_false(select_one(&b, false, "a", "") || select_one(&b, false, "a", "bb") || select_one(&b, false, "c", "b"));
	assert_true(select_one(&b, false, "aa", NULL) && select_one(&b, true, "b", NULL) && select_one(&b, true, "e", NULL));
	assert_true(select_one(&none, true, "a", "b") && !select_one(&none, false, "a", NULL));
	buf_done(&b);
	buf_done(&none);
}

/* ---- lists ---- */

enum { TASKS = 150, FIRST = 60, KEYS = 3 };
static const char *const keys[KEYS] = { "a", "team", "x/y" };
static const char *const values[] = { "1", "2", "" };
static const char *const names[] = { "", "run-1", "run-12", "sweep" };
static const char *const owners[] = { "", "ada", "bob" };
static const char *const workers[] = { "w-l0", "w-l1" };

struct item {
	struct core_task t;
	enum store_state state;
	const char *name, *owner, *worker;
	const char *labels[KEYS]; /* NULL: it has no such */
	int64_t created_us;
	int32_t attempt;
	bool delayed;
};

struct world {
	struct rng rng;
	const char *queues[3];
	int64_t sessions[2];
	struct item at[TASKS];
	size_t n;
};

static size_t pick(struct world *w, size_t n) { return (size_t)rng_below(&w->rng, n); }
static bool chance(struct world *w, int percent) { return (int)rng_below(&w->rng, 100) < percent; }

static void make_item(struct world *w)
{
	if (w->n == TASKS)
		return;
	struct item *x = &w->at[w->n++];
	const char *kv[2 * KEYS];
	size_t n = 0;
	*x = (struct item){ .state = STORE_PENDING, .name = names[pick(w, 4)], .owner = owners[pick(w, 3)] };
	for (size_t i = 0; i < KEYS; i++) {
		x->labels[i] = chance(w, 60) ? values[pick(w, 3)] : NULL;
		if (x->labels[i]) {
			kv[n++] = keys[i];
			kv[n++] = x->labels[i];
		}
	}
	struct buf b;
	encode(kv, n / 2, &b);
	struct store_insert o = insert_of(w->queues[pick(w, 3)]);
	o.name = x->name;
	o.owner = x->owner;
	o.labels = (struct store_bytes){ buf_head(&b), buf_len(&b) };
	x->delayed = chance(w, 15);
	o.delay_ns = x->delayed ? 3600 * 1000 * MS : 0;
	run(&o.op, STORE_INSERT);
	buf_done(&b);
	x->t = o.task;
	x->t.seq = o.ret_seq;
	struct store_get g = get(x->t.id);
	x->created_us = g.ret_task.created_wall_us;
	store_op_done_fields(&g.op);
}

static void change(struct world *w)
{
	struct item *x = &w->at[pick(w, w->n)];
	size_t worker = pick(w, 2);
	if (x->state == STORE_PENDING && !x->delayed && chance(w, 70)) {
		x->attempt = claim(&x->t, workers[worker], w->sessions[worker]);
		x->worker = workers[worker];
		x->state = STORE_RUNNING;
	} else if (x->state == STORE_PENDING) {
		struct store_cancel o = { .id = x->t.id };
		run(&o.op, STORE_CANCEL);
		x->state = STORE_CANCELLED;
		x->worker = NULL;
	} else if (x->state == STORE_RUNNING) {
		bool good = chance(w, 60);
		record((struct core_attempt){ x->t.id, x->attempt }, x->worker, good ? STORE_SUCCEEDED : STORE_PROGRAM_FAILED);
		x->state = good ? STORE_COMPLETED : STORE_FAILED;
	} else if (x->state != STORE_COMPLETED) {
		struct store_retry o = { .id = x->t.id, .attempt = x->attempt };
		run(&o.op, STORE_RETRY);
		assert_int_equal(o.ret_verdict, STORE_RETRY_DONE);
		store_op_done_fields(&o.op);
		x->state = STORE_PENDING;
		x->worker = NULL;
		x->delayed = false;
	}
}

struct wants {
	size_t n;
	struct { bool none, exists; size_t key, n_values; size_t values[2]; } at[3];
};

static void make_wants(struct world *w, struct wants *m, struct label_selector *s)
{
	m->n = pick(w, 4);
	for (size_t i = 0; i < m->n; i++) {
		m->at[i].none = chance(w, 40);
		m->at[i].exists = chance(w, 30);
		m->at[i].key = pick(w, KEYS);
		m->at[i].n_values = 1 + pick(w, 2);
		const char *key = keys[m->at[i].key];
		assert_true(label_selector_want(s, m->at[i].none));
		if (m->at[i].exists)
			assert_true(label_selector_key(s, key, strlen(key)));
		for (size_t k = 0; !m->at[i].exists && k < m->at[i].n_values; k++) {
			const char *value = values[m->at[i].values[k] = pick(w, 3)];
			assert_true(label_selector_label(s, key, strlen(key), value, strlen(value)));
		}
	}
}

static bool wanted(const struct item *x, const struct wants *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const char *has = x->labels[m->at[i].key];
		bool found = m->at[i].exists && has;
		for (size_t k = 0; !m->at[i].exists && has && k < m->at[i].n_values; k++)
			found |= strcmp(has, values[m->at[i].values[k]]) == 0;
		if (found == m->at[i].none)
			return false;
	}
	return true;
}

static bool in_ids(const struct store_list *o, const struct uuid *id)
{
	for (size_t i = 0; i < o->n_ids; i++)
		if (uuid_eq(&o->ids[i], id))
			return true;
	return !o->ids;
}

static bool same(const char *wish, const char *is) { return !wish || (is && strcmp(wish, is) == 0); }

static bool matches(const struct item *x, const struct store_list *o, const struct wants *m)
{
	return (!o->states || o->states >> x->state & 1) && same(o->queue, x->t.queue) && same(o->name, x->name) &&
	       (!o->name_prefix || strncmp(x->name, o->name_prefix, strlen(o->name_prefix)) == 0) && same(o->owner, x->owner) &&
	       same(o->worker, x->worker) && x->created_us >= o->created_from_us &&
	       (!o->created_before_us || x->created_us < o->created_before_us) && in_ids(o, &x->t.id) && wanted(x, m);
}

static int newest_first(const void *a, const void *b)
{
	const struct item *const *x = a, *const *y = b;
	return uuid_cmp(&(*y)->t.id, &(*x)->t.id);
}

/* Exactly those of the ids that the page went through. */
static void check_page(struct world *w, const struct store_list *o, const struct wants *m)
{
	struct item *want[TASKS];
	size_t n = 0;
	for (size_t i = 0; i < w->n; i++) {
		struct item *x = &w->at[i];
		if ((!o->after || uuid_cmp(&x->t.id, &o->after_id) < 0) && (!o->ret_more || uuid_cmp(&x->t.id, &o->ret_last) >= 0) &&
		    matches(x, o, m))
			want[n++] = x;
	}
	qsort(want, n, sizeof(struct item *), newest_first);
	if (n != o->ret_n)
		fail_msg("%zu tasks of %zu (states %x, queue %s, name %s, prefix %s, owner %s, worker %s, %zu ids, %zu labels)", o->ret_n, n,
			 o->states, o->queue, o->name, o->name_prefix, o->owner, o->worker, o->n_ids, m->n);
	for (size_t i = 0; i < n; i++) {
		assert_true(uuid_eq(&o->ret_tasks[i].core.id, &want[i]->t.id));
		assert_int_equal(o->ret_tasks[i].state, want[i]->state);
	}
}

static void one_list(struct world *w)
{
	struct label_selector s = { 0 };
	struct wants m = { 0 };
	struct uuid ids[40];
	struct store_list o = { .limit = 1 + (int32_t)pick(w, 30), .max_bytes = chance(w, 20) ? 1000 : 1 << 20, .full = chance(w, 20),
				.bare = chance(w, 20), .created_from_us = w->at[0].created_us };
	o.scan = chance(w, 60) ? 1 + (int32_t)pick(w, 40) : 0;
	o.states = chance(w, 60) ? (uint32_t)rng_below(&w->rng, 31) << 1 : 0;
	o.queue = chance(w, 30) ? w->queues[pick(w, 3)] : NULL;
	o.name = chance(w, 20) ? names[1 + pick(w, 3)] : NULL;
	o.name_prefix = chance(w, 20) ? "run-1" : NULL;
	o.owner = chance(w, 20) ? owners[1 + pick(w, 2)] : NULL;
	o.worker = chance(w, 20) ? workers[pick(w, 2)] : NULL;
	if (chance(w, 20))
		o.created_from_us = w->at[pick(w, w->n)].created_us;
	if (chance(w, 20))
		o.created_before_us = w->at[pick(w, w->n)].created_us;
	if (chance(w, 15)) {
		o.ids = ids;
		for (o.n_ids = 0; o.n_ids < 40; o.n_ids++)
			ids[o.n_ids] = o.n_ids % 8 ? w->at[o.n_ids % w->n].t.id : new_id();
	}
	if (chance(w, 50)) {
		make_wants(w, &m, &s);
		o.labels = &s;
	}
	bool more;
	do {
		run(&o.op, STORE_LIST);
		check_page(w, &o, &m);
		/* What lies below the first of ours is of other tests. */
		more = o.ret_more && uuid_cmp(&o.ret_last, &w->at[0].t.id) > 0;
		assert_true(!more || !o.after || uuid_cmp(&o.ret_last, &o.after_id) < 0);
		struct uuid last = o.ret_last;
		store_op_done_fields(&o.op);
		o.after = true;
		o.after_id = last;
		for (size_t i = pick(w, 4); i > 0; i--) {
			change(w);
			if (chance(w, 20))
				make_item(w);
		}
	} while (more);
	label_selector_done(&s);
}

void list_against_model(void **state)
{
	struct world *w = test_calloc(1, sizeof(*w));
	const char *seed = getenv("REINS_SEED");
	uint64_t n = seed ? strtoull(seed, NULL, 10) : (uint64_t)clock_wall_us();
	print_message("# list seed %llu\n", (unsigned long long)n);
	rng_seed(&w->rng, n);
	for (size_t i = 0; i < 3; i++)
		w->queues[i] = new_queue();
	for (size_t i = 0; i < 2; i++)
		w->sessions[i] = session(workers[i]);
	for (size_t i = 0; i < FIRST; i++)
		make_item(w);
	for (size_t i = 0; i < 60; i++)
		change(w);
	for (int i = 0; i < 50; i++)
		one_list(w);
	test_free(w);
}

/* More than are sorted: found by their ids, in the same order. */
void list_of_many_ready(void **state)
{
	enum { N = STORE_LIST_READY_MAX + 50 };
	const char *q = new_queue();
	struct store_insert *o = test_calloc(N, sizeof(*o));
	for (size_t i = 0; i < N; i++)
		o[i] = insert_of(q);
	run_many(o, N, sizeof(*o), STORE_INSERT);
	struct store_list l = { .queue = q, .states = 1u << STORE_PENDING | 1u << STORE_RUNNING, .limit = 5, .scan = 100, .bare = true };
	run(&l.op, STORE_LIST);
	assert_int_equal(l.ret_n, 5);
	assert_true(l.ret_more);
	for (size_t i = 0; i < 5; i++)
		assert_true(uuid_eq(&l.ret_tasks[i].core.id, &o[N - 1 - i].task.id));
	store_op_done_fields(&l.op);
	struct store_queue_list c = { .only = q };
	run(&c.op, STORE_QUEUE_LIST);
	assert_int_equal(c.ret_rows[0].ready, STORE_QUEUE_COUNT_MAX);
	assert_true(c.ret_rows[0].ready_more);
	store_op_done_fields(&c.op);
	test_free(o);
}

/* ---- queues ---- */

static bool pause_queue(const char *queue, bool on, const char *reason, int32_t max)
{
	struct store_pause o = { .queue = queue, .on = on, .reason = reason, .max = max };
	run(&o.op, STORE_PAUSE);
	return o.ret_done;
}

/* Its reason; NULL: it is not paused. */
static const char *paused_as(const char *queue)
{
	static char reason[100];
	struct store_queues o = { .ret_n = 0 };
	const char *found = NULL;
	run(&o.op, STORE_QUEUES);
	for (size_t i = 0; i < o.ret_n_paused; i++)
		if (strcmp(o.ret_paused[i].queue, queue) == 0) {
			snprintf(reason, sizeof(reason), "%s", o.ret_paused[i].reason);
			found = reason;
		}
	store_op_done_fields(&o.op);
	return found;
}

static int64_t paused_since(const char *queue)
{
	struct store_queue_list o = { .only = queue };
	run(&o.op, STORE_QUEUE_LIST);
	int64_t at = o.ret_n ? o.ret_rows[0].paused_wall_us : -1;
	store_op_done_fields(&o.op);
	return at;
}

void queue_pauses(void **state)
{
	const char *q = new_queue();
	assert_null(paused_as(q));
	assert_int_equal(paused_since(q), -1);
	assert_false(pause_queue(q, false, NULL, 0));
	assert_true(pause_queue(q, true, "new disks", 100));
	assert_string_equal(paused_as(q), "new disks");
	int64_t since = paused_since(q);
	assert_true(since > 0);
	/* Once there it needs no more room. */
	assert_true(pause_queue(q, true, NULL, 0));
	assert_string_equal(paused_as(q), "");
	assert_int_equal(paused_since(q), since);
	assert_false(pause_queue(new_queue(), true, NULL, 1));
	assert_true(pause_queue(q, false, NULL, 0));
	assert_null(paused_as(q));
	/* It has no task: nothing is left of it, but that a second one is told the same. */
	assert_int_equal(paused_since(q), -1);
	assert_true(pause_queue(q, false, NULL, 0));
	/* What was resumed takes no room, and goes with the next pause. */
	const char *other = new_queue();
	assert_true(pause_queue(other, true, NULL, 1));
	assert_false(pause_queue(q, false, NULL, 0));
	assert_false(pause_queue(q, true, NULL, 1));
	assert_true(pause_queue(other, false, NULL, 0));
	assert_false(pause_queue(other, true, NULL, 0));
	/* Or with the next resumption. */
	assert_true(pause_queue(q, true, "again", 1));
	assert_true(pause_queue(q, false, NULL, 0));
	assert_false(pause_queue(other, false, NULL, 0));
	insert(q);
	assert_int_equal(paused_since(q), 0);
}

void queue_counts(void **state)
{
	const char *q[3] = { new_queue(), new_queue(), new_queue() };
	int64_t s = session("w-counts");
	struct core_task first = insert(q[0]), second;
	struct store_insert o = insert_of(q[0]);
	o.task.priority = 7;
	run(&o.op, STORE_INSERT);
	second = insert(q[0]);
	o = insert_of(q[0]);
	o.delay_ns = 3600 * 1000 * MS;
	run(&o.op, STORE_INSERT);
	struct core_task run_one = insert(q[1]);
	claim(&run_one, "w-counts", s);
	o = insert_of(q[2]);
	o.delay_ns = 3600 * 1000 * MS;
	run(&o.op, STORE_INSERT);
	struct store_get g = get(first.id);
	struct store_queue_list l = { .only = q[0] };
	run(&l.op, STORE_QUEUE_LIST);
	assert_int_equal(l.ret_n, 1);
	assert_int_equal(l.ret_rows[0].ready, 3);
	assert_int_equal(l.ret_rows[0].delayed, 1);
	assert_int_equal(l.ret_rows[0].running, 0);
	assert_int_equal(l.ret_rows[0].oldest_wall_us, g.ret_task.created_wall_us);
	assert_false(l.ret_rows[0].paused || l.ret_rows[0].ready_more || l.ret_rows[0].delayed_more || l.ret_rows[0].running_more);
	store_op_done_fields(&l.op);
	store_op_done_fields(&g.op);
	claim(&second, "w-counts", s);
	/* All of them, page by page: each once, in order. */
	int found = 0;
	char last[CORE_NAME_MAX + 1] = "";
	bool more = true;
	while (more) {
		l = (struct store_queue_list){ .after = last, .limit = 2 };
		run(&l.op, STORE_QUEUE_LIST);
		more = l.ret_more;
		assert_true(!more || l.ret_n == 2);
		for (size_t i = 0; i < l.ret_n; i++) {
			const struct store_queue *r = &l.ret_rows[i];
			assert_true(strcmp(last, r->name) < 0);
			snprintf(last, sizeof(last), "%s", r->name);
			for (int k = 0; k < 3; k++)
				if (strcmp(r->name, q[k]) == 0) {
					found++;
					assert_int_equal(r->running, k == 2 ? 0 : 1);
					assert_int_equal(r->delayed, k == 1 ? 0 : 1);
					assert_int_equal(r->ready, k == 0 ? 2 : 0);
				}
		}
		store_op_done_fields(&l.op);
	}
	assert_int_equal(found, 3);
}

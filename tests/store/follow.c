/* Events as a watcher sees them. */
#include "tests/store/follow.h"

void reader_move(struct reader *r, const struct store_events *o)
{
	assert_true(o->ret_n_at <= ARRAY_LEN(r->at));
	memcpy(r->at, o->ret_at, o->ret_n_at * sizeof(*r->at));
	r->n_at = o->ret_n_at;
	r->known = o->ret_known;
}

struct store_events reader_page(struct reader *r, int32_t limit, int64_t max_bytes)
{
	struct store_events o = {.at = r->at, .n_at = r->n_at, .known = r->known, .limit = limit, .max_bytes = max_bytes};
	run(&o.op, STORE_EVENTS);
	if (!o.ret_gone)
		reader_move(r, &o);
	return o;
}

struct reader reader_from_now(void)
{
	struct reader r = {.n_at = 0};
	struct store_events o = {.now = true};
	run(&o.op, STORE_EVENTS);
	assert_int_equal(o.ret_n, 0);
	assert_true(o.ret_n_at > 0);
	reader_move(&r, &o);
	store_op_done_fields(&o.op);
	return r;
}

struct seen {
	struct map_node node;
	struct store_change last;
	struct store_get get;
};

size_t follow_changes(struct map *tasks, const struct store_events *o)
{
	size_t n = 0;
	for (size_t i = 0; i < o->ret_n; i++) {
		assert_true(i == 0 || o->ret_rows[i].number > o->ret_rows[i - 1].number);
		assert_true(o->ret_rows[i].at_wall_us > 0);
		assert_int_equal(o->ret_rows[i].changes.len % STORE_CHANGE_BYTES, 0);
		for (size_t k = 0; k < store_event_changes(&o->ret_rows[i]); k++, n++) {
			struct store_change c = store_event_change(&o->ret_rows[i], k);
			if (c.what == STORE_WHAT_METRICS)
				continue;
			struct map_node *found = map_get(tasks, c.task.b, sizeof(c.task.b));
			struct seen *s = found ? container_of(found, struct seen, node) : NULL;
			assert_int_equal(c.before, s ? s->last.after : 0);
			assert_true(c.after >= STORE_PENDING && c.after <= STORE_CANCELLED);
			assert_true(!s || c.attempt == s->last.attempt || (c.attempt == s->last.attempt + 1 && c.after == STORE_RUNNING));
			if (!s) {
				s = test_calloc(1, sizeof(*s));
				s->last = c;
				map_put(tasks, &s->node, s->last.task.b, sizeof(s->last.task.b));
			} else {
				s->last = c;
			}
		}
	}
	return n;
}

void follow_check_rows(struct map *tasks)
{
	struct map_node *n;
	for (n = map_first(tasks); n; n = map_next(tasks, n)) {
		struct seen *s = container_of(n, struct seen, node);
		s->get.id = s->last.task;
		harness_submit(h.store, &s->get.op, STORE_GET);
	}
	harness_drain();
	for (n = map_first(tasks); n; n = map_next(tasks, n)) {
		struct seen *s = container_of(n, struct seen, node);
		assert_true(s->get.ret_found);
		assert_int_equal(s->get.ret_task.state, s->last.after);
		assert_int_equal(s->get.ret_task.core.attempt, s->last.attempt);
		store_op_done_fields(&s->get.op);
	}
}

void follow_done(struct map *tasks)
{
	struct map_node *n;
	while ((n = map_first(tasks))) {
		map_remove(tasks, n);
		test_free(container_of(n, struct seen, node));
	}
	map_done(tasks);
}

/* What store.h promises of workers: the list of them, drains, and those that are gone. */
#include <stdio.h>

#include "server/store/workers.h"
#include "tests/store/suite_parts.h"

static struct store_workers one(const char *id)
{
	struct store_workers o = {.only = id, .limit = 10};
	run(&o.op, STORE_WORKERS);
	return o;
}

static bool drain(const char *worker, int32_t mode, int64_t within_ns, const char *reason)
{
	struct store_drain o = {.worker = worker, .wish = {mode, within_ns, reason}};
	run(&o.op, STORE_DRAIN);
	return o.ret_found;
}

void worker_row(void **state)
{
	struct store_master_open m = {.master = "m-row"};
	run(&m.op, STORE_MASTER_OPEN);
	struct store_workers o = one("w-row");
	assert_int_equal(o.ret_n, 0);
	store_op_done_fields(&o.op);
	for (int i = 1; i <= 2; i++) {
		struct store_session_open s = {.worker = "w-row", .instance = {7}, .master = i == 1 ? "m-row" : "m-none"};
		s.hello = blob_new(i == 1 ? "hello" : "\0\xff", i == 1 ? 5 : 2);
		run(&s.op, STORE_SESSION_OPEN);
		o = one("w-row");
		assert_int_equal(o.ret_n, 1);
		assert_false(o.ret_more);
		const struct store_worker *w = &o.ret_rows[0];
		assert_string_equal(w->id, "w-row");
		assert_string_equal(w->master, s.master);
		assert_int_equal(w->instance[0], 7);
		assert_int_equal(w->session, s.ret_session);
		assert_true(w->opened_wall_us > 1600000000000000 && w->heard_wall_us == 0);
		assert_true(i == 1 ? w->beat_age_us < 60000000 : w->beat_age_us == INT64_MAX);
		assert_int_equal(w->info.len, s.hello->len);
		assert_memory_equal(w->info.data, s.hello->data, w->info.len);
		assert_true(w->drain.mode == 0 && w->drain.within_ns == -1);
		assert_string_equal(w->drain.reason, "");
		blob_unref(s.hello);
		store_op_done_fields(&s.op);
		store_op_done_fields(&o.op);
	}
}

void workers_pages(void **state)
{
	enum { N = 7 };
	char names[N][24];
	for (int i = 0; i < N; i++) {
		/* Bytes decide the order: '-' < 'B' < '_' < 'a'. */
		snprintf(names[i], sizeof(names[i]), "wpage%c%d", "-BB__aa"[i], i);
		struct store_session_open s = {.worker = names[i], .instance = {1}, .master = "m1", .hello = blob_new("0123456789", 10)};
		run(&s.op, STORE_SESSION_OPEN);
		blob_unref(s.hello);
		store_op_done_fields(&s.op);
	}
	int found = 0;
	struct store_workers o = {.after = "wpage", .limit = 2};
	char last[64] = "wpage";
	do {
		o.after = last;
		run(&o.op, STORE_WORKERS);
		assert_true(o.ret_n <= 2);
		for (size_t i = 0; i < o.ret_n; i++) {
			assert_true(strcmp(last, o.ret_rows[i].id) < 0);
			snprintf(last, sizeof(last), "%s", o.ret_rows[i].id);
			if (strncmp(last, "wpage", 5) != 0)
				continue;
			assert_string_equal(last, names[found]);
			found++;
		}
		bool more = o.ret_more;
		store_op_done_fields(&o.op);
		if (!more)
			break;
	} while (found < N);
	assert_int_equal(found, N);
	/* As many as the bytes allow, and at least one. */
	o = (struct store_workers){.after = "wpage", .limit = 5, .max_bytes = 25};
	run(&o.op, STORE_WORKERS);
	assert_int_equal(o.ret_n, 3);
	assert_true(o.ret_more);
	store_op_done_fields(&o.op);
	o.max_bytes = 1;
	run(&o.op, STORE_WORKERS);
	assert_int_equal(o.ret_n, 1);
	assert_true(o.ret_more);
	store_op_done_fields(&o.op);
}

static size_t drained(const char *id, struct store_drain_wish *ret)
{
	size_t n = 0;
	struct store_workers o = {.after = "", .drained = true, .limit = 1000};
	run(&o.op, STORE_WORKERS);
	assert_false(o.ret_more);
	for (size_t i = 0; i < o.ret_n; i++) {
		assert_true(o.ret_rows[i].drain.mode != 0 && o.ret_rows[i].info.len == 0);
		if (strcmp(o.ret_rows[i].id, id) != 0)
			continue;
		*ret = o.ret_rows[i].drain;
		ret->reason = NULL;
		n++;
	}
	store_op_done_fields(&o.op);
	return n;
}

void drain_holds(void **state)
{
	struct store_drain_wish wish;
	assert_false(drain("w-drain-nobody", 1, -1, NULL));
	session("w-drain");
	session("w-drain-other");
	for (int i = 0; i < 2; i++) {
		assert_true(drain("w-drain", 3, 5 * MS, "kernel's update"));
		assert_int_equal(drained("w-drain", &wish), 1);
		assert_true(wish.mode == 3 && wish.within_ns == 5 * MS);
		assert_int_equal(drained("w-drain-other", &wish), 0);
	}
	for (uint8_t instance = 1; instance <= 2; instance++) { /* over sessions, and a new instance's too */
		struct store_session_open s = session_open("w-drain", instance, NULL, 0);
		assert_true(s.ret_drain.mode == 3 && s.ret_drain.within_ns == 5 * MS);
		assert_string_equal(s.ret_drain.reason, "kernel's update");
		store_op_done_fields(&s.op);
	}
	assert_true(drain("w-drain", 1, -1, NULL));
	struct store_workers o = one("w-drain");
	assert_true(o.ret_rows[0].drain.mode == 1 && o.ret_rows[0].drain.within_ns == -1);
	assert_string_equal(o.ret_rows[0].drain.reason, "");
	store_op_done_fields(&o.op);
	assert_true(drain("w-drain", 2, 0, ""));
	struct store_session_open s = session_open("w-drain", 2, NULL, 0);
	assert_true(s.ret_drain.mode == 2 && s.ret_drain.within_ns == 0);
	store_op_done_fields(&s.op);
	assert_true(drain("w-drain", 0, 0, NULL));
	assert_int_equal(drained("w-drain", &wish), 0);
	s = session_open("w-drain", 2, NULL, 0);
	assert_true(s.ret_drain.mode == 0);
	store_op_done_fields(&s.op);
}

static int64_t heard(const char *id, int64_t *ret_opened_us)
{
	struct store_workers o = one(id);
	assert_int_equal(o.ret_n, 1);
	int64_t us = o.ret_rows[0].heard_wall_us;
	*ret_opened_us = o.ret_rows[0].opened_wall_us;
	store_op_done_fields(&o.op);
	return us;
}

void gone_until_it_comes(void **state)
{
	int64_t opened, s = session("w-gone");
	struct store_worker_gone older = {.worker = "w-gone", .session = s - 1, .heard_ago_ns = 0};
	run(&older.op, STORE_WORKER_GONE);
	assert_true(heard("w-gone", &opened) == 0);
	struct store_worker_gone g = {.worker = "w-gone", .session = s, .heard_ago_ns = 3600 * 1000 * MS};
	run(&g.op, STORE_WORKER_GONE);
	int64_t at = heard("w-gone", &opened);
	assert_true(at > opened - INT64_C(3700) * 1000000 && at < opened - INT64_C(3500) * 1000000);
	session("w-gone");
	assert_true(heard("w-gone", &opened) == 0);
}

static int64_t detached(struct core_attempt at)
{
	int64_t ns = -1;
	struct store_strays o = {.master = "m1", .limit = 10000};
	run(&o.op, STORE_STRAYS);
	for (size_t i = 0; i < o.ret_n; i++)
		if (uuid_eq(&o.ret_rows[i].at.task, &at.task))
			ns = o.ret_rows[i].detached_ns;
	store_op_done_fields(&o.op);
	return ns;
}

static int64_t detached_us(const char *id)
{
	struct store_workers o = one(id);
	assert_int_equal(o.ret_n, 1);
	int64_t us = o.ret_rows[0].detached_us;
	store_op_done_fields(&o.op);
	return us;
}

void detached_until_it_comes(void **state)
{
	struct core_task t;
	int64_t s = session("w-det");
	struct core_attempt at = running(&t, "w-det", s);
	assert_true(detached(at) == 0 && detached_us("w-det") == 0);
	struct store_detached older = {.worker = "w-det", .session = s - 1, .within_ns = 600 * 1000 * MS};
	run(&older.op, STORE_DETACHED);
	assert_true(detached(at) == 0 && detached_us("w-det") == 0);
	struct store_detached o = {.worker = "w-det", .session = s, .within_ns = 600 * 1000 * MS};
	run(&o.op, STORE_DETACHED);
	assert_true(detached(at) > 500 * 1000 * MS && detached(at) <= 600 * 1000 * MS);
	assert_true(detached_us("w-det") > 500 * 1000000 && detached_us("w-det") <= 600 * 1000000);
	o.within_ns = 0;
	run(&o.op, STORE_DETACHED);
	assert_true(detached(at) == 0 && detached_us("w-det") == 0);
	o.within_ns = 600 * 1000 * MS;
	run(&o.op, STORE_DETACHED);
	struct store_session_open again = session_open("w-det", 1, &at, 1);
	store_op_done_fields(&again.op);
	assert_true(detached(at) == 0 && detached_us("w-det") == 0);
}

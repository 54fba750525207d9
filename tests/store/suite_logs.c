/* Logs: appended in pieces and gaps, read from any offset or from the end. */
#include "server/store/store_logs.h"
#include "tests/store/suite_parts.h"

#include <stdio.h>

#include "common/base/rng.h"
#include "tests/store/harness.h"

static bool append_some(struct core_attempt at, const char *worker, const struct store_log_piece *pieces, size_t n)
{
	struct store_log_append o = {.at = at, .worker = worker, .pieces = pieces, .n = n};
	run(&o.op, STORE_LOG_APPEND);
	return !o.ret_fenced;
}

static bool append(struct core_attempt at, const char *worker, int64_t offset, const char *text)
{
	struct store_log_piece p = {.offset = offset, .stream = STORE_STDOUT, .data = blob_new(text, strlen(text))};
	bool ours = append_some(at, worker, &p, 1);
	blob_unref(p.data);
	return ours;
}

static bool append_gap(struct core_attempt at, const char *worker, int64_t offset, int64_t dropped)
{
	struct store_log_piece p = {.offset = offset, .stream = STORE_STDOUT, .dropped = dropped};
	return append_some(at, worker, &p, 1);
}

/* What a read from `offset` (or the last `tail` bytes) answers, as text: "offset:data" or "offset-dropped" of each chunk. */
static const char *reading(struct core_attempt at, int64_t offset, int64_t tail, int32_t max)
{
	static char text[1000];
	size_t len = 0;
	struct store_log_read r = {.at = at, .offset = offset, .tail = tail, .max_bytes = max};
	run(&r.op, STORE_LOG_READ);
	text[0] = '\0';
	for (size_t i = 0; i < r.ret_n; i++) {
		const struct store_log_chunk *c = &r.ret_chunks[i];
		const char *space = i ? " " : "";
		if (c->dropped)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d-%d", space, (int)c->offset, (int)c->dropped);
		else
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%d:%.*s", space, (int)c->offset, (int)c->data.len,
						(const char *)c->data.data);
		assert_true((c->data.len == 0) == (c->dropped > 0));
		assert_true(c->offset >= r.ret_offset);
	}
	store_op_done_fields(&r.op);
	return text;
}

void logs(void **state)
{
	struct core_task t;
	int64_t s = session("w-log");
	struct core_attempt at = running(&t, "w-log", s);
	assert_string_equal(reading(at, 0, 0, 100), "");
	assert_true(append(at, "w-log", 0, "hello "));
	assert_true(append(at, "w-log", 6, "world"));
	assert_true(append(at, "w-log", 0, "other!"));
	assert_false(append(at, "other", 11, "x"));
	assert_false(append((struct core_attempt){t.id, 2}, "w-log", 11, "x"));
	assert_string_equal(reading(at, 0, 0, 100), "0:hello  6:world");
	assert_string_equal(reading(at, 0, 0, 1), "0:hello ");
	assert_string_equal(reading(at, 4, 0, 3), "4:o  6:world");
	assert_string_equal(reading((struct core_attempt){t.id, 2}, 0, 0, 100), "");
	record(at, "w-log", STORE_SUCCEEDED);
	assert_false(append(at, "w-log", 11, "late"));
	assert_true(append(at, "w-log", 6, "stored already"));
	assert_string_equal(reading(at, 11, 0, 100), "");
	assert_string_equal(reading(at, 6, 0, 100), "6:world");
}

void logs_gaps_and_tails(void **state)
{
	struct core_task t;
	int64_t s = session("w-gap");
	struct core_attempt at = running(&t, "w-gap", s);
	struct store_log_piece p[] = {
		{.offset = 0, .stream = STORE_STDOUT, .data = blob_new("head", 4)},
		{.offset = 4, .stream = STORE_STDOUT, .dropped = 1000000},
		{.offset = 1000004, .stream = STORE_STDERR, .data = blob_new("ring", 4)},
	};
	assert_true(append_some(at, "w-gap", p, 3));
	assert_true(append_some(at, "w-gap", p, 3));
	blob_unref(p[0].data);
	blob_unref(p[2].data);
	assert_string_equal(reading(at, 0, 0, 100), "0:head 4-1000000 1000004:ring");
	assert_string_equal(reading(at, 2, 0, 100), "2:ad 4-1000000 1000004:ring");
	/* In the gap, far from where its row begins. */
	assert_string_equal(reading(at, 900000, 0, 100), "900000-100004 1000004:ring");
	assert_string_equal(reading(at, 1000006, 0, 100), "1000006:ng");
	assert_string_equal(reading(at, 0, 3, 100), "1000005:ing");
	assert_string_equal(reading(at, 77, 4, 100), "1000004:ring"); /* the tail counts, not the offset */
	assert_string_equal(reading(at, 0, 10, 100), "999998-6 1000004:ring");
	assert_string_equal(reading(at, 0, 1000008, 1), "0:head");
	assert_string_equal(reading(at, 0, INT64_MAX, 1), "0:head");
	/* A trailing gap is part of the log. */
	assert_true(append_gap(at, "w-gap", 1000008, 92));
	assert_string_equal(reading(at, 0, 100, 100), "1000000-4 1000004:ring 1000008-92");
	struct store_session_open o = session_open("w-gap", 1, &at, 1);
	assert_int_equal(o.ret_n_adopted, 1);
	assert_int_equal(o.ret_adopted[0].log_stored, 1000100);
	assert_int_equal(o.ret_adopted[0].log_dropped, 1000092);
	store_op_done_fields(&o.op);
	/* The record says how much is missing. */
	struct store_record rec = {.at = at, .worker = "w-gap", .outcome = STORE_SUCCEEDED, .has_exit_code = true, .log_end = 1000100,
		.log_dropped = 1000092};
	run(&rec.op, STORE_RECORD);
	store_op_done_fields(&rec.op);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.attempts[0].log_end, 1000100);
	assert_int_equal(g.ret_task.attempts[0].log_dropped, 1000092);
	store_op_done_fields(&g.op);
}

void logs_dropped_of_former_attempts(void **state)
{
	struct core_task t;
	int64_t s = session("w-former");
	struct core_attempt at = running(&t, "w-former", s);
	struct store_record rec = {.at = at, .worker = "w-former", .outcome = STORE_STOPPED, .log_end = 100, .log_dropped = 42};
	run(&rec.op, STORE_RECORD);
	assert_int_equal(rec.ret_state, STORE_PENDING);
	store_op_done_fields(&rec.op);
	struct store_get g = get(t.id);
	assert_int_equal(g.ret_task.n_attempts, 1);
	assert_int_equal(g.ret_task.attempts[0].log_dropped, 42);
	store_op_done_fields(&g.op);
}

/* The same bytes in other pieces: as a worker sends them again after it lost its connection. */
void logs_that_overlap(void **state)
{
	struct core_task t;
	int64_t s = session("w-over");
	struct core_attempt at = running(&t, "w-over", s);
	assert_true(append(at, "w-over", 0, "abc"));
	assert_true(append(at, "w-over", 3, "defghi"));
	assert_true(append(at, "w-over", 0, "abcdef")); /* longer from the same offset */
	assert_true(append(at, "w-over", 6, "ghijkl"));
	assert_true(append(at, "w-over", 0, "ab"));
	assert_string_equal(reading(at, 0, 0, 100), "0:abcdef 6:ghi 9:jkl");
	assert_string_equal(reading(at, 4, 0, 100), "4:ef 6:ghi 9:jkl");
	assert_string_equal(reading(at, 10, 0, 100), "10:kl");
	/* Of a gap and data from one offset the first stays. */
	assert_true(append_gap(at, "w-over", 12, 5));
	assert_true(append(at, "w-over", 12, "mnopqrst"));
	assert_true(append_gap(at, "w-over", 6, 100));
	assert_string_equal(reading(at, 11, 0, 100), "11:l 12-5");
}

/* Against plain bytes: random pieces, some once more and cut otherwise, read back in steps. */
void logs_at_random(void **state)
{
	enum { MOST = 300000 };
	static uint8_t bytes[MOST];
	static bool gone[MOST];
	struct core_task t;
	int64_t s = session("w-random");
	for (uint64_t seed = 1; seed <= 4; seed++) {
		struct rng rng;
		struct core_attempt at = running(&t, "w-random", s);
		int64_t end = 0, before = 0;
		rng_seed(&rng, seed);
		memset(gone, 0, sizeof(gone));
		for (int i = 0; i < MOST; i++)
			bytes[i] = (uint8_t)rng_next(&rng);
		while (end < MOST - 70000) {
			struct store_log_piece p[4] = {{0}};
			size_t n = 1 + rng_below(&rng, 4);
			int64_t from = rng_below(&rng, 4) ? end : before;
			bool again = from < end;
			before = from;
			for (size_t k = 0; k < n && from < MOST - 70000; k++) {
				int64_t len = 1 + (int64_t)rng_below(&rng, seed % 2 ? 20000 : 300);
				p[k] = (struct store_log_piece){.offset = from, .stream = STORE_STDOUT};
				if (!again && rng_below(&rng, 8) == 0) {
					p[k].dropped = len;
					memset(gone + from, 1, (size_t)len);
				} else {
					p[k].data = blob_new(bytes + from, (size_t)len);
				}
				from += len;
				n = from < MOST - 70000 ? n : k + 1;
			}
			if (again) /* bytes that were called gone stay so, whatever comes */
				for (int64_t i = before; i < min_i64(from, end); i++)
					if (gone[i])
						from = before;
			if (from > before || !again)
				assert_true(append_some(at, "w-random", p, n));
			for (size_t k = 0; k < n; k++)
				blob_unref(p[k].data);
			end = max_i64(end, from);
			if (from == before)
				before = end;
		}
		for (int round = 0; round < 6; round++) {
			int64_t at_byte = round ? (int64_t)rng_below(&rng, (uint64_t)end) : 0;
			for (;;) {
				struct store_log_read r = {.at = at, .offset = at_byte, .max_bytes = 1 + (int32_t)rng_below(&rng, 60000)};
				run(&r.op, STORE_LOG_READ);
				size_t got = r.ret_n;
				for (size_t i = 0; i < got; i++) {
					const struct store_log_chunk *c = &r.ret_chunks[i];
					assert_int_equal(c->offset, at_byte);
					assert_memory_equal(c->data.data, bytes + at_byte, c->data.len);
					for (int64_t k = 0; k < c->dropped; k++)
						assert_true(gone[at_byte + k]);
					at_byte += c->dropped + (int64_t)c->data.len;
				}
				store_op_done_fields(&r.op);
				if (!got)
					break;
			}
			assert_int_equal(at_byte, end);
		}
		record(at, "w-random", STORE_SUCCEEDED);
	}
}

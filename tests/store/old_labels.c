/* A store of schema version 4 with OLD_LABELLED tasks in queue "old", opened by this version.  The factory's make_labelled has
 * inserted them, with what old_spec and old_list_spec say: more than the upgrade looks at, so that the last ones get their labels
 * while the store works. */
#include "tests/store/old_labels.h"

#include <string.h>

#include "common/base/clock.h"
#include "server/store/labels.h"
#include "tests/store/suite.h"

#define NAME "0a016e"
#define TEAM "420b0a047465616d1203" /* team=, of three letters */
#define ABC TEAM "616263"

/* None of these is a TaskSpec, to the last byte. */
static const char *const broken[] = {"73706563", "42", "4202", "420b0a04746561", "ffffffffffffffffffffff01", "420bff"};

const char *old_spec(int n)
{
	switch (n) {
	case 1: return NAME TEAM "787878";
	case 2: /* Fields of later versions, of each kind, before and behind. */
		return "a1060102030405060708a006ffffffffffffffffff01a50601020304a206024242" NAME ABC "a00601";
	case 3: return "420b12036162630a047465616d"; /* the value first */
	case 4: return NAME ABC "42070a05656d707479" ABC "420b0a0474656171120361c3a9"; /* empty=, teaq=a\u00e9 */
	default: break;
	}
	if (n < 5 + (int)ARRAY_LEN(broken))
		return broken[n - 5];
	return n % 10 ? NAME : NAME ABC;
}

const char *old_list_spec(int n) { return n == 1 ? TEAM "6f6c64" : NULL; }

static size_t find(const char *key, const char *value)
{
	struct label_selector s = { 0 };
	assert_true(label_selector_want(&s, false));
	assert_true(value ? label_selector_label(&s, key, strlen(key), value, strlen(value)) : label_selector_key(&s, key, strlen(key)));
	struct store_list o = { .queue = "old", .labels = &s, .limit = 1000, .max_bytes = 1 << 24, .bare = true };
	run(&o.op, STORE_LIST);
	size_t n = o.ret_n;
	assert_false(o.ret_more);
	store_op_done_fields(&o.op);
	label_selector_done(&s);
	return n;
}

static void newest_at_once(void **state)
{
	size_t n = find("team", "abc");
	assert_true(n > 0);
	assert_true(n < OLD_LABELLED / 10);
}

static void all_in_the_end(void **state)
{
	int64_t deadline = clock_mono_ns() + DEADLINE_NS;
	struct store_master_open m = { .master = "m1" };
	run(&m.op, STORE_MASTER_OPEN);
	while (!find("team", "old")) {
		struct store_beat b = { .master = "m1", .incarnation = m.ret_incarnation };
		run(&b.op, STORE_BEAT);
		if (clock_mono_ns() > deadline)
			fail_msg("not all have their labels: %zu", find("team", "abc"));
	}
	assert_int_equal(find("team", "abc"), OLD_LABELLED / 10 - 1 + 3); /* 10 is broken; 2, 3, 4 */
	assert_int_equal(find("team", "xxx"), 0);
	assert_int_equal(find("empty", NULL), 1);
	assert_int_equal(find("empty", ""), 1);
	assert_int_equal(find("teaq", "a\xc3\xa9"), 1);
}

/* What comes later has its own. */
static void new_ones(void **state)
{
	struct buf b;
	buf_init(&b, 1000);
	assert_int_equal(labels_add(&b, "team", "new"), 0);
	assert_int_equal(labels_end(&b), 0);
	struct store_insert o = insert_of("old");
	o.labels = (struct store_bytes){ buf_head(&b), buf_len(&b) };
	run(&o.op, STORE_INSERT);
	buf_done(&b);
	assert_int_equal(find("team", "new"), 1);
}

const struct CMUnitTest old_labels_tests[] = {
	cmocka_unit_test(newest_at_once), cmocka_unit_test(all_in_the_end), cmocka_unit_test(new_ones),
};
const size_t old_labels_n = ARRAY_LEN(old_labels_tests);

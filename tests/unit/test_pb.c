#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/pb/check.h"
#include "common/pb/json_out.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "pb_test.pb-c.h"
#include "proto/descriptor_set.h"
#include "reins/v1/task_service.pb-c.h"

#define TEST_TYPE (&reins__test__shapes__descriptor)

/* ---- what is refused -------------------------------------------------------------------- */

struct bad {
	const char *bytes;
	size_t len;
	const char *field;
	const char *message; /* part of it */
};

#define BAD(bytes, field, message) { bytes, sizeof(bytes) - 1, field, message }

static void test_malformed_is_refused_with_its_place(void **state)
{
	static const struct bad all[] = {
		BAD("\x80", "", "tag"),
		BAD("\x80\x80\x80\x80\x80\x00", "", "tag"),
		BAD("\x00\x01", "", "field number"),
		BAD("\x08", "an_int32", "number"),
		BAD("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "an_int32", "number"),
		BAD("\x1d\x01\x02\x03", "a_sfixed32", "number"),
		BAD("\x41\x01\x02\x03\x04\x05\x06\x07", "a_sfixed64", "number"),
		BAD("\x7a\x03"
		    "ab", "text", "length"),
		BAD("\x7a\xff\xff\xff\xff\x0f", "text", "length"),
		BAD("\x0b", "an_int32", "group"),
		BAD("\x0a\x01\x01", "an_int32", "wire type"),
		BAD("\x78\x01", "text", "wire type"),
		BAD("\xa2\x01\x02\x01\x80", "numbers[0]", "packed"),
		BAD("\xaa\x01\x03\x01\x01\x01", "words[0]", "packed"),
		BAD("\x7a\x02\xc0\x80", "text", "UTF-8"),
		BAD("\x7a\x03"
		    "a\0b", "text", "U+0000"),
		BAD("\xc2\x01\x01"
		    "a\xc2\x01\x01\xff", "texts[1]", "UTF-8"),
		BAD("\xca\x02\x01\xff", "chosen_text", "UTF-8"),
		BAD("\xd2\x01\x00\xd2\x01\x06\xd2\x01\x03\x7a\x01\xff", "children[1].children[0].text", "UTF-8"),
		BAD("\xf2\x01\x00\xf2\x01\x06\x0a\x01k\x12\x01\xed", "strings[1].value", "UTF-8"),
		BAD("\xf2\x01\x03\x0a\x01\x00", "strings[0].key", "U+0000"),
		BAD("\x82\x02\x05\x12\x03\x7a\x01\xff", "shapes[0].value.text", "UTF-8"),
		BAD("\x8a\x01\x00\x8a\x01\x00", "inner", "twice"),
		BAD("\xd2\x02\x00\xd2\x02\x00", "chosen_shape", "twice"),
		BAD("\x8a\x01\x02\x08\x80", "inner.an_int32", "number"),
	};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		struct refusal r = { 0 };
		if (!pb_check(TEST_TYPE, all[i].bytes, all[i].len, NULL, &r))
			fail_msg("case %zu was accepted", i);
		assert_null(pb_unpack(TEST_TYPE, all[i].bytes, all[i].len, NULL, &r));
		assert_int_equal(r.code, STATUS_INVALID_ARGUMENT);
		if (!strstr(r.message, all[i].message))
			fail_msg("case %zu says: %s", i, r.message);
		if (strcmp(r.field, all[i].field) != 0)
			fail_msg("case %zu is at %s", i, r.field);
	}
}

/* n messages, each the `inner` of the one before. */
static struct blob *nest(unsigned n)
{
	Reins__Test__Shapes *all = calloc(n, sizeof(*all));
	assert_non_null(all);
	for (unsigned i = 0; i < n; i++) {
		reins__test__shapes__init(&all[i]);
		if (i)
			all[i].inner = &all[i - 1];
	}
	struct blob *b = pb_pack_blob(&all[n - 1]);
	assert_non_null(b);
	free(all);
	return b;
}

static void test_depth_is_limited(void **state)
{
	struct refusal r = { 0 };
	struct blob *good = nest(100), *bad = nest(101);
	void *m = pb_unpack(TEST_TYPE, good->data, good->len, NULL, &r);
	assert_non_null(m);
	pb_free(m);
	assert_null(pb_unpack(TEST_TYPE, bad->data, bad->len, NULL, &r));
	assert_int_equal(r.code, STATUS_INVALID_ARGUMENT);
	assert_non_null(strstr(r.message, "nested"));
	assert_memory_equal(r.field, "inner.inner.", 12);

	struct pb_limits limits = pb_limits_default;
	limits.depth = 1000000;
	assert_null(pb_unpack(TEST_TYPE, bad->data, bad->len, &limits, &r));
	limits.depth = 99;
	assert_null(pb_unpack(TEST_TYPE, good->data, good->len, &limits, &r));
	blob_unref(good);
	blob_unref(bad);
}

static void test_counts_are_limited(void **state)
{
	static const uint8_t known[] = { 0x08, 1, 0x08, 1, 0x08, 1 };
	static const uint8_t packed[] = { 0xa2, 0x01, 2, 1, 1 };
	static const uint8_t unknown[] = { 0x92, 0x03, 0, 0x92, 0x03, 0, 0x90, 0x03, 0 };
	struct pb_limits limits = pb_limits_default;
	struct refusal r = { 0 };
	limits.fields = 3;
	assert_int_equal(pb_check(TEST_TYPE, known, sizeof(known), &limits, &r), 0);
	assert_int_equal(pb_check(TEST_TYPE, packed, sizeof(packed), &limits, &r), 0);
	limits.fields = 2;
	assert_int_equal(pb_check(TEST_TYPE, known, sizeof(known), &limits, &r), -1);
	assert_int_equal(r.code, STATUS_RESOURCE_EXHAUSTED);
	assert_string_equal(r.message, "the message has more than 2 fields");
	assert_int_equal(pb_check(TEST_TYPE, packed, sizeof(packed), &limits, &r), -1);
	assert_int_equal(r.code, STATUS_RESOURCE_EXHAUSTED);

	limits.fields = 100;
	limits.unknown = 3;
	/* Field 50 is a message, so an empty one is known; 53 is not. */
	uint8_t other[sizeof(unknown)];
	memcpy(other, unknown, sizeof(other));
	other[0] = other[3] = 0xaa;
	other[6] = 0xa8;
	void *m = pb_unpack(TEST_TYPE, other, sizeof(other), &limits, &r);
	assert_non_null(m);
	assert_int_equal(((ProtobufCMessage *)m)->n_unknown_fields, 3);
	pb_free(m);
	limits.unknown = 2;
	assert_null(pb_unpack(TEST_TYPE, other, sizeof(other), &limits, &r));
	assert_int_equal(r.code, STATUS_RESOURCE_EXHAUSTED);
}

static void test_memory_is_limited(void **state)
{
	/* Two bytes each, some 400 when unpacked. */
	enum { N = 100000 };
	uint8_t *bytes = malloc(3 * N);
	struct refusal r = { 0 };
	for (size_t i = 0; i < N; i++)
		memcpy(bytes + 3 * i, (uint8_t[]){ 0xd2, 0x01, 0 }, 3);
	assert_null(pb_unpack(TEST_TYPE, bytes, 3 * N, NULL, &r));
	assert_int_equal(r.code, STATUS_RESOURCE_EXHAUSTED);
	assert_non_null(strstr(r.message, "memory"));
	free(bytes);
}

/* ---- what is accepted ------------------------------------------------------------------- */

static void fill(Reins__Test__Shapes *s)
{
	static int64_t numbers[] = { 1, -1, INT64_MAX };
	static uint32_t words[] = { 7, UINT32_MAX };
	static protobuf_c_boolean flags[] = { 1, 0 };
	static Reins__Test__Shapes__Color colors[] = { REINS__TEST__SHAPES__COLOR__BLUE_GREEN, (Reins__Test__Shapes__Color)9 };
	static char *texts[] = { "a\"b\\c", "\n\t\x01\x7f", "h\xc3\xa9\xf0\x9f\x98\x80" };
	reins__test__shapes__init(s);
	s->an_int32 = INT32_MIN;
	s->an_int64 = INT64_MIN;
	s->a_uint64 = UINT64_MAX;
	s->a_fixed32 = UINT32_MAX;
	s->a_float = 0.1f;
	s->a_double = 0.1;
	s->a_bool = 1;
	s->color = REINS__TEST__SHAPES__COLOR__RED;
	s->data = (ProtobufCBinaryData){ 4, (uint8_t *)"\x00\xff\xfe\x01" };
	s->numbers = numbers;
	s->n_numbers = 3;
	s->words = words;
	s->n_words = 2;
	s->flags = flags;
	s->n_flags = 2;
	s->colors = colors;
	s->n_colors = 2;
	s->texts = texts;
	s->n_texts = 3;
	s->choice_case = REINS__TEST__SHAPES__CHOICE_CHOSEN_INT;
	s->chosen_int = 0;
	s->far = "away";
}

static void test_a_message_survives(void **state)
{
	Reins__Test__Shapes s;
	struct refusal r = { 0 };
	fill(&s);
	struct blob *b = pb_pack_blob(&s);
	Reins__Test__Shapes *m = pb_unpack(TEST_TYPE, b->data, b->len, NULL, &r);
	assert_non_null(m);
	assert_int_equal(m->an_int32, INT32_MIN);
	assert_true(m->a_uint64 == UINT64_MAX);
	assert_string_equal(m->texts[2], s.texts[2]);
	assert_int_equal(m->choice_case, REINS__TEST__SHAPES__CHOICE_CHOSEN_INT);
	assert_string_equal(m->far, "away");
	uint64_t *more = pb_alloc(m, 64);
	assert_non_null(more);
	assert_int_equal(more[0] | more[7], 0);

	struct buf out;
	buf_init(&out, b->len + 3);
	assert_int_equal(buf_add(&out, "abc", 3), 0);
	assert_int_equal(pb_pack(m, &out), 0);
	assert_int_equal(buf_len(&out), b->len + 3);
	assert_memory_equal(buf_head(&out) + 3, b->data, b->len);
	assert_int_equal(pb_pack(m, &out), -ENOBUFS);
	assert_int_equal(buf_len(&out), b->len + 3);
	buf_done(&out);
	pb_free(m);
	pb_free(NULL);
	blob_unref(b);
}

static void test_an_empty_message_is_one(void **state)
{
	struct refusal r = { 0 };
	Reins__Test__Shapes *m = pb_unpack(TEST_TYPE, NULL, 0, NULL, &r);
	assert_non_null(m);
	assert_string_equal(m->text, "");
	pb_free(m);
}

/* The measured memory is enough: no second allocation, and not much is wasted. */
static void test_memory_is_measured(void **state)
{
	enum { N = 1000 };
	Reins__V1__SubmitTasksRequest all = REINS__V1__SUBMIT_TASKS_REQUEST__INIT;
	Reins__V1__SubmitTaskRequest one = REINS__V1__SUBMIT_TASK_REQUEST__INIT, *list[N];
	Reins__V1__TaskSpec spec = REINS__V1__TASK_SPEC__INIT;
	Reins__V1__TaskSpec__LabelsEntry label = REINS__V1__TASK_SPEC__LABELS_ENTRY__INIT, *labels[40];
	char *command[] = { "echo", "hi" };
	label.key = "team";
	label.value = "blue";
	for (size_t i = 0; i < ARRAY_LEN(labels); i++)
		labels[i] = &label;
	spec.command = command;
	spec.n_command = 2;
	spec.labels = labels;
	spec.n_labels = ARRAY_LEN(labels);
	spec.payload = (ProtobufCBinaryData){ 3, (uint8_t *)"xyz" };
	one.spec = &spec;
	one.idempotency_key = "k";
	for (size_t i = 0; i < N; i++)
		list[i] = &one;
	all.requests = list;
	all.n_requests = N;
	struct blob *b = pb_pack_blob(&all);
	struct pb_limits limits = pb_limits_default;
	struct refusal r = { 0 };
	assert_int_equal(pb_check_measure(all.base.descriptor, b->data, b->len, &limits, &limits.memory, &r), 0);
	void *m = pb_unpack(all.base.descriptor, b->data, b->len, &limits, &r);
	assert_non_null(m);
	pb_free(m);
	limits.memory--;
	assert_null(pb_unpack(all.base.descriptor, b->data, b->len, &limits, &r));
	blob_unref(b);
}

static void test_scalars_may_come_twice(void **state)
{
	static const uint8_t bytes[] = { 0x08, 1, 0x7a, 1, 'a', 0x08, 2, 0x7a, 1, 'b', 0xc0, 2, 5, 0xca, 2, 1, 'c' };
	struct refusal r = { 0 };
	Reins__Test__Shapes *m = pb_unpack(TEST_TYPE, bytes, sizeof(bytes), NULL, &r);
	assert_non_null(m);
	assert_int_equal(m->an_int32, 2);
	assert_string_equal(m->text, "b");
	assert_int_equal(m->choice_case, REINS__TEST__SHAPES__CHOICE_CHOSEN_TEXT);
	assert_string_equal(m->chosen_text, "c");
	pb_free(m);
}

static void test_memory_can_be_added(void **state)
{
	struct pb_limits limits = pb_limits_default;
	struct refusal r = { 0 };
	limits.memory = 100000;
	void *m = pb_unpack(TEST_TYPE, NULL, 0, &limits, &r);
	assert_non_null(m);
	size_t n = 0;
	for (char *p; n <= 100 && (p = pb_alloc(m, 1001)); n++)
		memset(p, 1, 1001);
	assert_in_range(n, 75, 99);
	assert_null(pb_alloc(m, SIZE_MAX));
	pb_free(m);
}

/* ---- times, maps, text ------------------------------------------------------------------ */

static void test_times(void **state)
{
	static const int64_t us[] = { 0, 1, -1, 999999, -1000000, 1795953600123456, -62135596800000000 };
	Google__Protobuf__Timestamp t;
	Google__Protobuf__Duration d;
	int64_t got = 5;
	for (size_t i = 0; i < ARRAY_LEN(us); i++) {
		pb_timestamp_set(&t, us[i]);
		assert_in_range(t.nanos, 0, 999999999);
		assert_int_equal(pb_timestamp_us(&t, &got), 0);
		assert_true(got == us[i]);
	}
	t.nanos = 1000000000;
	assert_int_equal(pb_timestamp_us(&t, &got), -ERANGE);
	t.nanos = 0;
	t.seconds = 253402300800;
	assert_int_equal(pb_timestamp_us(&t, &got), -ERANGE);

	static const int64_t ns[] = { 0, 1, -1, 1500000000, -1500000000, INT64_MAX, INT64_MIN };
	for (size_t i = 0; i < ARRAY_LEN(ns); i++) {
		pb_duration_set(&d, ns[i]);
		assert_int_equal(pb_duration_ns(&d, &got), 0);
		assert_true(got == ns[i]);
	}
	d.seconds = 1;
	d.nanos = -1;
	assert_int_equal(pb_duration_ns(&d, &got), -ERANGE);
	d.seconds = 9223372037;
	d.nanos = 0;
	assert_true(pb_duration_valid(&d));
	assert_int_equal(pb_duration_ns(&d, &got), -ERANGE);
	d.seconds = 315576000001;
	assert_false(pb_duration_valid(&d));
	assert_int_equal(pb_duration_ns(NULL, &got), 0);
	assert_true(got == 0);
}

static void test_of_equal_map_keys_the_last_counts(void **state)
{
	static const char *const keys[] = { "b", "a", "b", "c", "a", "b" }, *const values[] = { "1", "2", "3", "4", "5", "6" };
	Reins__Test__Shapes__StringsEntry e[6], *list[6];
	for (size_t i = 0; i < 6; i++) {
		reins__test__shapes__strings_entry__init(&e[i]);
		e[i].key = (char *)(uintptr_t)keys[i];
		e[i].value = (char *)(uintptr_t)values[i];
		list[i] = &e[i];
	}
	assert_string_equal(pb_map_get(list, 6, "b"), "6");
	assert_string_equal(pb_map_get(list, 6, "c"), "4");
	assert_null(pb_map_get(list, 6, "d"));
	assert_int_equal(pb_map_find(list, 6, "a"), 4);
	assert_int_equal(pb_map_find(list, 0, "a"), -1);
	size_t n = pb_map_unique(list, 6);
	assert_int_equal(n, 3);
	assert_string_equal(list[0]->key, "a");
	assert_string_equal(list[0]->value, "5");
	assert_string_equal(list[1]->value, "6");
	assert_string_equal(list[2]->value, "4");
	assert_int_equal(list[1]->base.n_unknown_fields, 0);
	assert_int_equal(pb_map_unique(NULL, 0), 0);
}

static void test_text(void **state)
{
	static const char *const good[] = { "", "abcdefghij", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
		"\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "1234567\xc3\xa9 12345678" };
	static const char *const bad[] = { "\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "1234567\xff", "12345678\xc3" };
	for (size_t i = 0; i < ARRAY_LEN(good); i++)
		if (!utf8_valid(good[i], strlen(good[i])))
			fail_msg("good %zu", i);
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (utf8_valid(bad[i], strlen(bad[i])))
			fail_msg("bad %zu", i);
	char nul[16] = "12345678";
	for (size_t i = 0; i < 12; i++) {
		memset(nul, 'x', sizeof(nul));
		nul[i] = '\0';
		assert_false(utf8_valid(nul, 12));
	}

	char out[16];
	bool changed;
	assert_int_equal(utf8_make_valid("a\xffz\0", 4, out, sizeof(out), &changed), 8);
	assert_string_equal(out, "a\xef\xbf\xbdz\xef\xbf\xbd");
	assert_true(changed);
	assert_int_equal(utf8_make_valid("h\xc3\xa9", 3, out, sizeof(out), &changed), 3);
	assert_false(changed);
	assert_int_equal(utf8_make_valid("h\xc3\xa9", 3, out, 3, &changed), 1);
	assert_string_equal(out, "h");
	assert_true(changed);
}

/* ---- JSON ------------------------------------------------------------------------------- */

static char *json(const void *m, unsigned flags)
{
	struct buf b;
	buf_init(&b, 1 << 20);
	assert_int_equal(buf_add(&b, "=", 1), 0);
	assert_int_equal(pb_json_write(m, flags, &b), 0);
	assert_int_equal(*buf_head(&b), '=');
	char *text = strndup((const char *)buf_head(&b) + 1, buf_len(&b) - 1);
	buf_done(&b);
	return text;
}

static void expect_json(const void *m, unsigned flags, const char *expected)
{
	char *text = json(m, flags);
	assert_string_equal(text, expected);
	free(text);
}

static void test_json_of_every_scalar(void **state)
{
	Reins__Test__Shapes s;
	fill(&s);
	expect_json(&s, 0,
		"{\"anInt32\":-2147483648,\"aFixed32\":4294967295,\"anInt64\":\"-9223372036854775808\","
		"\"aUint64\":\"18446744073709551615\",\"aFloat\":0.1,\"aDouble\":0.1,\"aBool\":true,\"color\":\"RED\","
		"\"data\":\"AP/+AQ==\",\"numbers\":[\"1\",\"-1\",\"9223372036854775807\"],\"words\":[7,4294967295],"
		"\"flags\":[true,false],\"colors\":[\"BLUE_GREEN\",9],"
		"\"texts\":[\"a\\\"b\\\\c\",\"\\n\\t\\u0001\\u007f\",\"h\xc3\xa9\xf0\x9f\x98\x80\"],\"chosenInt\":0,\"far\":\"away\"}");
}

static void test_json_of_numbers(void **state)
{
	static const struct {
		double v;
		const char *text;
	} all[] = { { 1, "1" }, { -0.0, "-0.0" }, { 1e300, "1e+300" }, { 1.0 / 3, "0.3333333333333333" },
		{ 0.1 + 0.2, "0.30000000000000004" }, { NAN, "\"NaN\"" }, { INFINITY, "\"Infinity\"" },
		{ -INFINITY, "\"-Infinity\"" } };
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		Reins__Test__Shapes s = REINS__TEST__SHAPES__INIT;
		char expected[64];
		s.a_double = all[i].v;
		snprintf(expected, sizeof(expected), "{\"aDouble\":%s}", all[i].text);
		expect_json(&s, 0, expected);
	}
}

static void test_json_of_times(void **state)
{
	static const struct {
		int64_t seconds;
		int32_t nanos;
		const char *at;
		const char *lasted;
	} all[] = {
		{ 0, 0, "1970-01-01T00:00:00Z", "0s" },
		{ 1, 500000000, "1970-01-01T00:00:01.500Z", "1.500s" },
		{ 1795953600, 120000, "2026-11-29T12:00:00.000120Z", "1795953600.000120s" },
		{ 3, 1, "1970-01-01T00:00:03.000000001Z", "3.000000001s" },
	};
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		Reins__Test__Shapes s = REINS__TEST__SHAPES__INIT;
		Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
		Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;
		char expected[128];
		t.seconds = d.seconds = all[i].seconds;
		t.nanos = d.nanos = all[i].nanos;
		s.at = &t;
		s.lasted = &d;
		snprintf(expected, sizeof(expected), "{\"at\":\"%s\",\"lasted\":\"%s\"}", all[i].at, all[i].lasted);
		expect_json(&s, 0, expected);
	}
	Reins__Test__Shapes s = REINS__TEST__SHAPES__INIT;
	Google__Protobuf__Duration d = GOOGLE__PROTOBUF__DURATION__INIT;
	d.nanos = -500000000;
	s.lasted = &d;
	expect_json(&s, 0, "{\"lasted\":\"-0.500s\"}");
	d.nanos = 1000000000;
	struct buf b;
	buf_init(&b, 100);
	assert_int_equal(buf_add(&b, "x", 1), 0);
	assert_int_equal(pb_json_write(&s, 0, &b), -ERANGE);
	assert_int_equal(buf_len(&b), 1);
	buf_done(&b);
}

static void test_json_of_maps_and_messages(void **state)
{
	Reins__Test__Shapes s = REINS__TEST__SHAPES__INIT, child = REINS__TEST__SHAPES__INIT, *children[] = { &child, &child };
	Reins__Test__Shapes__StringsEntry e[3], *entries[] = { &e[0], &e[1], &e[2] };
	static char *keys[] = { "z", "a", "z" }, *values[] = { "1", "", "3" };
	for (size_t i = 0; i < 3; i++) {
		reins__test__shapes__strings_entry__init(&e[i]);
		e[i].key = keys[i];
		e[i].value = values[i];
	}
	Reins__Test__Shapes__ShapesEntry se = REINS__TEST__SHAPES__SHAPES_ENTRY__INIT, *shapes[] = { &se };
	se.key = "k";
	child.text = "bad\xff";
	s.strings = entries;
	s.n_strings = 3;
	s.shapes = shapes;
	s.n_shapes = 1;
	s.children = children;
	s.n_children = 2;
	expect_json(&s, 0,
		"{\"children\":[{\"text\":\"bad\xef\xbf\xbd\"},{\"text\":\"bad\xef\xbf\xbd\"}],"
		"\"strings\":{\"a\":\"\",\"z\":\"3\"},\"shapes\":{\"k\":{}}}");
	child.text = "";
	s.n_shapes = 0;
	s.n_children = 1;
	expect_json(&s, PB_JSON_PRETTY,
		"{\n  \"children\": [\n    {}\n  ],\n  \"strings\": {\n    \"a\": \"\",\n    \"z\": \"3\"\n  }\n}");
}

static void test_json_with_defaults(void **state)
{
	Reins__V1__Task t = REINS__V1__TASK__INIT;
	expect_json(&t, 0, "{}");
	expect_json(&t, PB_JSON_EMIT_DEFAULTS,
		"{\"id\":\"\",\"state\":\"STATE_UNSPECIFIED\",\"pendingReason\":\"\",\"attempt\":0,\"workerId\":\"\",\"owner\":\"\","
		"\"traceId\":\"\",\"signal\":0,\"error\":\"\",\"errorRaw\":\"\",\"result\":\"\",\"resultBytes\":\"0\","
		"\"resultDropped\":false,\"attempts\":[]}");
	t.state = REINS__V1__TASK__STATE__PENDING;
	t.has_exit_code_case = REINS__V1__TASK__HAS_EXIT_CODE_EXIT_CODE;
	expect_json(&t, 0, "{\"state\":\"PENDING\",\"exitCode\":0}");
}

static void test_json_stops_at_the_buffers_limit(void **state)
{
	Reins__Test__Shapes s;
	fill(&s);
	char *whole = json(&s, 0);
	size_t len = strlen(whole);
	for (size_t max = 0; max <= len; max++) {
		struct buf b;
		buf_init(&b, max);
		assert_int_equal(pb_json_write(&s, 0, &b), max < len ? -ENOBUFS : 0);
		assert_int_equal(buf_len(&b), max < len ? 0 : len);
		buf_done(&b);
	}
	free(whole);
}

static void test_the_descriptor_set_is_there(void **state)
{
	static const char *const names[] = { "reins/v1/worker_service.proto", "google/protobuf/any.proto",
		"grpc/reflection/v1alpha/reflection.proto", "google/rpc/error_details.proto" };
	assert_true(reins_descriptor_set_len > 1000);
	assert_int_equal(reins_descriptor_set[0], 0x0a);
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_non_null(memmem(reins_descriptor_set, reins_descriptor_set_len, names[i], strlen(names[i])));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_malformed_is_refused_with_its_place),
		cmocka_unit_test(test_depth_is_limited),
		cmocka_unit_test(test_counts_are_limited),
		cmocka_unit_test(test_memory_is_limited),
		cmocka_unit_test(test_a_message_survives),
		cmocka_unit_test(test_an_empty_message_is_one),
		cmocka_unit_test(test_memory_is_measured),
		cmocka_unit_test(test_scalars_may_come_twice),
		cmocka_unit_test(test_memory_can_be_added),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_of_equal_map_keys_the_last_counts),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_json_of_every_scalar),
		cmocka_unit_test(test_json_of_numbers),
		cmocka_unit_test(test_json_of_times),
		cmocka_unit_test(test_json_of_maps_and_messages),
		cmocka_unit_test(test_json_with_defaults),
		cmocka_unit_test(test_json_stops_at_the_buffers_limit),
		cmocka_unit_test(test_the_descriptor_set_is_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

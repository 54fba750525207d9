/* Label selectors: what is understood, what it selects, and what is said of the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/rpc/rpc_limits.h"
#include "server/rpc/selector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *fault_of(const char *text)
{
	static char fault[160];
	struct label_selector s = { 0 };
	fault[0] = '\0';
	int rc = selector_parse(text, &s, fault, sizeof(fault));
	label_selector_done(&s);
	assert_true((rc == 0) == (fault[0] == '\0'));
	return fault;
}

/* Of a task with the labels a=b, c= and d/e="x, y". */
static bool selects(const char *text)
{
	char fault[160] = "";
	struct label_selector s = { 0 };
	struct buf b;
	buf_init(&b, 1000);
	assert_int_equal(labels_add(&b, "a", "b") | labels_add(&b, "c", "") | labels_add(&b, "d/e", "x, y") | labels_end(&b), 0);
	if (selector_parse(text, &s, fault, sizeof(fault)))
		fail_msg("%s: %s", text, fault);
	bool yes = label_selector_matches(&s, buf_head(&b), buf_len(&b));
	label_selector_done(&s);
	buf_done(&b);
	return yes;
}

static void understood(void **state)
{
	static const char *const yes[] = {
		"", "  ", "a=b", "a==b", " a = b ", "a in (b)", "a in (x,b,y)", "a in(b)", "a notin (x, y)", "nowhere notin (x)", "a", "!z", "! z",
		"a!=x", "z!=x", "c=", "c in (,x)", "c", "d/e=\"x, y\"", "d/e in (\"x, y\")", "a=b,c,!z,d/e", "a=\"b\"", "a!=\"\\\"\\\\\"",
		"a\t=\nb", "in!=a", "notin notin (in)", "a in (b),a notin (c)",
	};
	static const char *const no[] = {
		"a=", "a=bb", "a!=b", "a notin (b)", "a in (x)", "!a", "z", "c!=", "a=b,z", "z in (x)", "d/e=x", "a in (\"b \")", "in", "notin",
	};
	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		if (!selects(yes[i]))
			fail_msg("does not select: %s", yes[i]);
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		if (selects(no[i]))
			fail_msg("selects: %s", no[i]);
}

static void refused(void **state)
{
	static const struct { const char *text, *fault; } rows[] = {
		{ ",", "at byte 1: a label's key is wanted here" }, { "a=b,", "at byte 5: a label's key is wanted at the end" },
		{ "a b", "at byte 3: =, !=, in (...), notin (...) or , is wanted after a key" },
		{ "a=b c", "at byte 5: , is wanted between conditions" }, { "a!b", "at byte 3: = is wanted after !" },
		{ "a in b", "at byte 6: ( is wanted after in and notin" }, { "a in (b", "at byte 8: , or ) is wanted between and after the values" },
		{ "!a=b", "at byte 3: , is wanted between conditions" }, { "a=\"b", "at byte 5: a quote is not closed" },
		{ "a=\"\\n\"", "at byte 4: in quotes a backslash stands before \" or \\ only" },
		{ "\xc3\xa4=b", "at byte 3: a key has other bytes than [A-Za-z0-9._/-]" }, { "=b", "at byte 1: a label's key is wanted here" },
		{ "a>b", "at byte 4: a key has other bytes than [A-Za-z0-9._/-]" }, { "a in ()x", "at byte 8: , is wanted between conditions" },
		{ "!!a", "at byte 2: a label's key is wanted here" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_string_equal(fault_of(rows[i].text), rows[i].fault);
}

static void bounded(void **state)
{
	static char text[SELECTOR_BYTES_MAX + 2];
	memset(text, 'a', SELECTOR_BYTES_MAX + 1);
	assert_string_equal(fault_of(text), "4097 bytes; at most 4096 are allowed");
	text[SELECTOR_BYTES_MAX] = '\0';
	assert_string_equal(fault_of(text), "at byte 4097: a key is longer than 63 bytes");
	text[63] = '=';
	assert_string_equal(fault_of(text), "at byte 4097: a value is longer than 255 bytes");
	text[64 + RPC_LABEL_VALUE_MAX] = '\0';
	assert_string_equal(fault_of(text), "");
	/* 32 conditions, and one more. */
	for (size_t i = 0; i < 32; i++)
		memcpy(text + 2 * i, "a,", 2);
	text[63] = '\0';
	assert_string_equal(fault_of(text), "");
	memcpy(text + 63, ",a", 3);
	assert_string_equal(fault_of(text), "at byte 65: more than 32 conditions");
	/* 256 values, and one more. */
	static const char head[] = "a in (";
	memcpy(text, head, sizeof(head) - 1);
	memset(text + sizeof(head) - 1, ',', 255);
	memcpy(text + sizeof(head) - 1 + 255, ")", 2);
	assert_string_equal(fault_of(text), "");
	memcpy(text + strlen(text) - 1, ",)", 3);
	assert_string_equal(fault_of(text), "at byte 263: more than 256 values in all");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(understood), cmocka_unit_test(refused), cmocka_unit_test(bounded) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

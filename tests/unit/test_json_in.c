#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/pb/json_in.h"
#include "common/pb/json_out.h"
#include "common/pb/pb.h"
#include "common/pb/utf8.h"
#include "google/protobuf/any.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "pb_test.pb-c.h"
#include "reins/v1/task_service.pb-c.h"

#define SHAPES (&reins__test__shapes__descriptor)
#define SUBMIT (&reins__v1__submit_task_request__descriptor)
#define STATUS (&google__rpc__status__descriptor)

/* ---- what is accepted: read, and written again as expected ------------------------------- */

struct good {
	const char *in;
	const char *out; /* NULL: the same */
};

static void expect_good(const ProtobufCMessageDescriptor *type, const char *in, size_t len, const char *expected)
{
	struct buf wire, text;
	struct refusal r = { 0 };
	buf_init(&wire, 1 << 20);
	buf_init(&text, 1 << 20);
	assert_int_equal(buf_add(&wire, "=", 1), 0);
	/* A copy of just this size, for the sanitizers. */
	_cleanup_free_ char *copy = malloc(len ? len : 1);
	memcpy(copy, in, len);
	if (pb_json_read(type, copy, len, NULL, &wire, &r))
		fail_msg("%.200s: %s", in, r.message);
	assert_int_equal(*buf_head(&wire), '=');
	buf_consume(&wire, 1);
	if (pb_check(type, buf_head(&wire), buf_len(&wire), NULL, &r))
		fail_msg("%.200s: the message is none: %s", in, r.message);
	assert_int_equal(pb_json_write_wire(type, buf_head(&wire), buf_len(&wire), 0, &text), 0);
	assert_int_equal(buf_add(&text, "", 1), 0);
	assert_string_equal(buf_head(&text), expected);
	buf_done(&wire);
	buf_done(&text);
}

static void expect_all_good(const ProtobufCMessageDescriptor *type, const struct good *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		expect_good(type, all[i].in, strlen(all[i].in), all[i].out ? all[i].out : all[i].in);
}

static void test_shapes(void **state)
{
	static const struct good all[] = {
		{ "{}", NULL },
		{ " \t\r\n{ \n } ", "{}" },
		{ "{\"inner\":{},\"children\":[],\"strings\":{},\"numbers\":[]}", "{\"inner\":{}}" },
		{ "{\"inner\":{\"inner\":{\"anInt32\":1}},\"children\":[{},{\"text\":\"a\"}]}", NULL },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_names(void **state)
{
	static const struct good all[] = {
		{ "{\"an_int32\":1,\"by_number\":{\"5\":\"x\"}}", "{\"anInt32\":1,\"byNumber\":{\"5\":\"x\"}}" },
		{ "{\"\\u0061nInt32\":1,\"\\u0074ext\":\"x\"}", "{\"anInt32\":1,\"text\":\"x\"}" },
		{ "{\"anInt32\":null,\"an_int64\":null,\"inner\":null,\"numbers\":null,\"strings\":null,\"at\":null}", "{}" },
		{ "{\"chosenInt\":null,\"chosenText\":\"\"}", "{\"chosenText\":\"\"}" },
		{ "{\"chosenText\":\"\",\"chosenShape\":null}", "{\"chosenText\":\"\"}" },
		{ "{\"chosenShape\":{}}", NULL },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_whole_numbers(void **state)
{
	static const struct good all[] = {
		{ "{\"anInt32\":-2147483648,\"aSint32\":2147483647,\"aSfixed32\":-1,\"aUint32\":4294967295,\"aFixed32\":1}", NULL },
		{ "{\"anInt64\":\"-9223372036854775808\",\"aSint64\":\"9223372036854775807\",\"aSfixed64\":\"-1\","
		  "\"aUint64\":\"18446744073709551615\",\"aFixed64\":\"1\"}", NULL },
		{ "{\"anInt64\":-9223372036854775808,\"aUint64\":18446744073709551615}",
			"{\"anInt64\":\"-9223372036854775808\",\"aUint64\":\"18446744073709551615\"}" },
		{ "{\"aSint32\":-2147483648,\"aSint64\":\"-9223372036854775808\"}", NULL },
		{ "{\"aSint32\":-1,\"aSint64\":\"-1\"}", NULL },
		{ "{\"anInt32\":\"-5\",\"aSint32\":\"1e2\"}", "{\"anInt32\":-5,\"aSint32\":100}" },
		{ "{\"anInt32\":1e2,\"aSint32\":1.0,\"aSfixed32\":1.50e1,\"aUint32\":100e-2,\"aFixed32\":0.00001E+5}",
			"{\"anInt32\":100,\"aSint32\":1,\"aSfixed32\":15,\"aUint32\":1,\"aFixed32\":1}" },
		{ "{\"anInt32\":0e99999999999999999999,\"aSint32\":-0.0,\"aUint32\":-0}", "{}" },
		{ "{\"anInt64\":9007199254740993.0}", "{\"anInt64\":\"9007199254740993\"}" },
		{ "{\"anInt64\":1000000000000000000000000e-10}", "{\"anInt64\":\"100000000000000\"}" },
		{ "{\"anInt64\":\"\\u0031\\u0032\"}", "{\"anInt64\":\"12\"}" },
		{ "{\"numbers\":[1,\"2\",3e0],\"words\":[4294967295,0]}", "{\"numbers\":[\"1\",\"2\",\"3\"],\"words\":[4294967295,0]}" },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_reals(void **state)
{
	static const struct good all[] = {
		{ "{\"aDouble\":0.1}", NULL },
		{ "{\"aDouble\":5e-324}", NULL },
		{ "{\"aDouble\":1.7976931348623157e+308}", NULL },
		{ "{\"aDouble\":2.2250738585072014e-308}", NULL },
		{ "{\"aDouble\":-0}", "{\"aDouble\":-0.0}" },
		{ "{\"aDouble\":1e-400}", "{}" },
		{ "{\"aDouble\":\"1.5\"}", "{\"aDouble\":1.5}" },
		{ "{\"aDouble\":\"NaN\",\"aFloat\":\"Infinity\"}", "{\"aFloat\":\"Infinity\",\"aDouble\":\"NaN\"}" },
		{ "{\"aFloat\":\"-Infinity\"}", NULL },
		{ "{\"aFloat\":0.1}", NULL },
		{ "{\"aFloat\":1e-45}", NULL },
		{ "{\"aFloat\":16777217}", "{\"aFloat\":16777216}" },
		{ "{\"aFloat\":3.4028235e38}", "{\"aFloat\":3.4028235e+38}" },
		{ "{\"doubles\":{\"a\":1,\"b\":\"Infinity\"}}", NULL },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_texts_and_bytes(void **state)
{
	static const struct good all[] = {
		{ "{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac\\ud83d\\ude00\xc3\xa9\"}",
			"{\"text\":\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9\"}" },
		{ "{\"text\":\"\\uD83D\\uDE00\\u007f\"}", "{\"text\":\"\xf0\x9f\x98\x80\\u007f\"}" },
		{ "{\"texts\":[\"\",\"a\",\"\\u0041\"]}", "{\"texts\":[\"\",\"a\",\"A\"]}" },
		{ "{\"data\":\"AP/+AQ==\"}", NULL },
		{ "{\"data\":\"AP_-AQ\"}", "{\"data\":\"AP/+AQ==\"}" },
		{ "{\"data\":\"AP\\/+AQ==\"}", "{\"data\":\"AP/+AQ==\"}" },
		{ "{\"datas\":[\"\",\"QQ\",\"QUI\",\"QUI=\",\"QUJD\"]}", "{\"datas\":[\"\",\"QQ==\",\"QUI=\",\"QUI=\",\"QUJD\"]}" },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_bools_and_enums(void **state)
{
	static const struct good all[] = {
		{ "{\"aBool\":true,\"flags\":[true,false,true]}", NULL },
		{ "{\"aBool\":false}", "{}" },
		{ "{\"color\":\"BLUE_GREEN\",\"colors\":[\"RED\",1,7,9,-1,2e0]}",
			"{\"color\":\"BLUE_GREEN\",\"colors\":[\"RED\",\"RED\",\"BLUE_GREEN\",9,-1,2]}" },
		{ "{\"color\":\"NONE\"}", "{}" },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_times(void **state)
{
	static const struct good all[] = {
		{ "{\"at\":\"1970-01-01T00:00:00Z\",\"lasted\":\"0s\"}", NULL },
		{ "{\"at\":\"0001-01-01T00:00:00Z\",\"lasted\":\"-315576000000s\"}", NULL },
		{ "{\"at\":\"9999-12-31T23:59:59.999999999Z\",\"lasted\":\"315576000000s\"}", NULL },
		{ "{\"at\":\"2026-11-30T19:05:00.5+01:30\",\"lasted\":\"1.5s\"}", "{\"at\":\"2026-11-30T17:35:00.500Z\",\"lasted\":\"1.500s\"}" },
		{ "{\"at\":\"2024-02-29T23:00:00-01:00\",\"lasted\":\"-0.000000001s\"}",
			"{\"at\":\"2024-03-01T00:00:00Z\",\"lasted\":\"-0.000000001s\"}" },
		{ "{\"at\":\"1969-12-31T23:59:59.1Z\"}", "{\"at\":\"1969-12-31T23:59:59.100Z\"}" },
		{ "{\"at\":\"2000-02-29T00:00:00-00:00\"}", "{\"at\":\"2000-02-29T00:00:00Z\"}" },
		{ "{\"laps\":[\"1s\",\"0.25s\",\"007.000001s\"]}", "{\"laps\":[\"1s\",\"0.250s\",\"7.000001s\"]}" },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
	expect_good(&google__protobuf__duration__descriptor, "\"3s\"", 4, "\"3s\"");
}

static void test_maps(void **state)
{
	static const struct good all[] = {
		{ "{\"strings\":{\"b\":\"1\",\"a\":\"2\",\"\":\"\"}}", "{\"strings\":{\"\":\"\",\"a\":\"2\",\"b\":\"1\"}}" },
		{ "{\"strings\":{\"\\u0061\":\"1\",\"\\u0062\":\"2\",\"c\\n\":\"3\",\"\xc3\xa9\":\"\",\"\\u00ea\":\"\"}}",
			"{\"strings\":{\"a\":\"1\",\"b\":\"2\",\"c\\n\":\"3\",\"\xc3\xa9\":\"\",\"\xc3\xaa\":\"\"}}" },
		{ "{\"shapes\":{\"x\":{\"shapes\":{\"x\":{\"text\":\"y\"}}},\"y\":{}}}", NULL },
		{ "{\"byFlag\":{\"true\":\"RED\",\"false\":0}}", "{\"byFlag\":{\"false\":\"NONE\",\"true\":\"RED\"}}" },
		{ "{\"byLarge\":{\"18446744073709551615\":\"QQ==\",\"0\":\"\",\"9223372036854775808\":\"\"}}",
			"{\"byLarge\":{\"0\":\"\",\"9223372036854775808\":\"\",\"18446744073709551615\":\"QQ==\"}}" },
		{ "{\"byFixed\":{\"9223372036854775807\":\"1s\",\"-9223372036854775808\":\"0s\",\"-1\":\"2s\",\"\\u0030\":\"3s\"}}",
			"{\"byFixed\":{\"-9223372036854775808\":\"0s\",\"-1\":\"2s\",\"0\":\"3s\",\"9223372036854775807\":\"1s\"}}" },
		{ "{\"byNumber\":{\"-10\":\"a\",\"9\":\"b\",\"1e1\":\"c\"}}", "{\"byNumber\":{\"-10\":\"a\",\"9\":\"b\",\"10\":\"c\"}}" },
	};
	expect_all_good(SHAPES, all, ARRAY_LEN(all));
}

static void test_a_request(void **state)
{
	static const struct good all[] = {
		{ "{\"spec\":{\"command\":[\"echo\",\"hi\"],\"labels\":{\"team\":\"blue\"},\"resources\":{\"custom\":{\"licenses\":\"2\"}},"
		  "\"retry\":{\"maxAttempts\":3,\"initialBackoff\":\"1s\",\"multiplier\":1.5}},\"idempotencyKey\":\"k\"}", NULL },
	};
	expect_all_good(SUBMIT, all, ARRAY_LEN(all));
}

static void test_any(void **state)
{
	static const struct good all[] = {
		{ "{\"code\":3,\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.BadRequest\","
		  "\"fieldViolations\":[{\"field\":\"a\"}]},{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"1s\"},"
		  "{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\"}]}", NULL },
		{ "{\"details\":[{}]}", NULL },
	};
	expect_all_good(STATUS, all, ARRAY_LEN(all));
}

/* Lengths of one, two and three bytes, before messages and packed numbers, within each other. */
static void test_lengths(void **state)
{
	static const size_t sizes[] = { 0, 1, 100, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 16370, 16380, 16384, 70000 };
	enum { CAP = 200000 };
	char *in = malloc(CAP);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		size_t n = (size_t)snprintf(in, CAP, "{\"inner\":{\"inner\":{\"children\":[{\"text\":\"");
		memset(in + n, 'x', sizes[i]);
		n += sizes[i];
		n += (size_t)snprintf(in + n, CAP - n, "%s\"}],\"words\":[", sizes[i] ? "" : "y");
		for (size_t k = 0; k < 1 + sizes[i] / 8; k++)
			n += (size_t)snprintf(in + n, CAP - n, "%s7", k ? "," : "");
		snprintf(in + n, CAP - n, "]}}}");
		/* Numbers of fields stand before those with higher numbers. */
		char *words = strstr(in, ",\"words\""), *children = strstr(in, "\"children\""), *out = malloc(CAP);
		char *end = out;
		end = mempcpy(end, in, (size_t)(children - in));
		end = mempcpy(end, words + 1, (size_t)(strstr(words, "}}}") - words - 1));
		*end++ = ',';
		end = mempcpy(end, children, (size_t)(words - children));
		memcpy(end, "}}}", sizeof "}}}");
		expect_good(SHAPES, in, strlen(in), out);
		free(out);
	}
	free(in);
}

static void test_nothing_is_written_for_nothing(void **state)
{
	static const char in[] = "{\"numbers\":[],\"texts\":[],\"children\":[],\"strings\":{},\"inner\":null}";
	struct buf wire;
	struct refusal r;
	buf_init(&wire, 100);
	assert_int_equal(pb_json_read(SHAPES, in, strlen(in), NULL, &wire, &r), 0);
	assert_int_equal(buf_len(&wire), 0);
	buf_done(&wire);
}

/* ---- what is refused ---------------------------------------------------------------------- */

struct bad {
	const char *in;
	const char *field;
	const char *message; /* part of it */
};

static void expect_bad(const ProtobufCMessageDescriptor *type, const char *in, size_t len, const char *field, const char *message)
{
	struct buf wire;
	struct refusal r = { 0 };
	buf_init(&wire, 1 << 20);
	assert_int_equal(buf_add(&wire, "=", 1), 0);
	_cleanup_free_ char *copy = malloc(len ? len : 1);
	memcpy(copy, in, len);
	if (!pb_json_read(type, copy, len, NULL, &wire, &r))
		fail_msg("%.200s: was taken", in);
	if (r.code != STATUS_INVALID_ARGUMENT || strcmp(r.field, field) != 0 || !strstr(r.message, message))
		fail_msg("%.200s: field \"%s\": %s", in, r.field, r.message);
	assert_int_equal(buf_len(&wire), 1);
	buf_done(&wire);
}

static void expect_all_bad(const ProtobufCMessageDescriptor *type, const struct bad *all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		expect_bad(type, all[i].in, strlen(all[i].in), all[i].field, all[i].message);
}

static void test_syntax_is_refused(void **state)
{
	static const struct bad all[] = {
		{ "", "", "an object { … } is expected, not the end of the text (line 1, column 1)" },
		{ "  ", "", "(line 1, column 3)" },
		{ "[]", "", "an object { … } is expected, not a list" },
		{ "null", "", "an object { … } is expected, not null" },
		{ "\"x\"", "", "not \"x\"" },
		{ "\xef\xbb\xbf{}", "", "byte order" },
		{ "{", "", "not the end of the text (line 1, column 2)" },
		{ "{}x", "", "true, false and null" },
		{ "{} {}", "", "nothing may follow the value, not an object (line 1, column 4)" },
		{ "{}]", "", "nothing may follow the value, not ]" },
		{ "{,}", "", "a key in double quotes is expected, not ," },
		{ "{\"text\":\"a\",}", "", "after a comma, not } (line 1, column 13)" },
		{ "{\"text\":\"a\" \"far\":\"b\"}", "", ", or } is expected, not \"far\"" },
		{ "{\"text\" \"a\"}", "", "a : is expected" },
		{ "{\"text\":}", "text", "a text in double quotes is expected, not }" },
		{ "{text:1}", "", "true, false and null" },
		{ "{1:1}", "", "a key in double quotes is expected, not 1" },
		{ "{'text':1}", "", "double quotes (line 1, column 2)" },
		{ "{/**/}", "", "comments" },
		{ "{}//", "", "comments" },
		{ "{\"numbers\":[1,]}", "numbers[1]", "after a comma" },
		{ "{\"numbers\":[1 2]}", "numbers[1]", ", or ] is expected, not 2" },
		{ "{\"numbers\":[1}", "numbers[1]", ", or ] is expected, not }" },
		{ "{\"numbers\":[,1]}", "numbers[0]", "not ," },
		{ "{\"anInt32\":01}", "an_int32", "leading zeros (line 1, column 12)" },
		{ "{\"anInt32\":-01}", "an_int32", "leading zeros" },
		{ "{\"anInt32\":+1}", "an_int32", "leading +" },
		{ "{\"anInt32\":-}", "an_int32", "a digit is expected" },
		{ "{\"anInt32\":1.}", "an_int32", "after the point" },
		{ "{\"anInt32\":.5}", "an_int32", "begins with a digit" },
		{ "{\"anInt32\":1e}", "an_int32", "exponent" },
		{ "{\"anInt32\":1e+}", "an_int32", "exponent" },
		{ "{\"anInt32\":0x10}", "", "true, false and null" },
		{ "{\"aDouble\":NaN}", "a_double", "true, false and null" },
		{ "{\"aDouble\":-Infinity}", "a_double", "a digit is expected" },
		{ "{\"aBool\":True}", "a_bool", "true, false and null" },
		{ "{\"text\":\"a", "text", "no closing quote" },
		{ "{\"text\":\"a\nb\"}", "text", "control character" },
		{ "{\"text\":\"\\x\"}", "text", "backslash" },
		{ "{\"text\":\"\\", "text", "backslash" },
		{ "{\"text\":\"\\u12g4\"}", "text", "four hex digits" },
		{ "{\"text\":\"\\u12", "text", "four hex digits" },
		{ "{\"text\":\"\\u0000\"}", "text", "U+0000" },
		{ "{\"text\":\"\\ud83d\"}", "text", "surrogate" },
		{ "{\"text\":\"\\ud83d\\u0041\"}", "text", "surrogate" },
		{ "{\"text\":\"\\ud83d\\ud83d\"}", "text", "surrogate" },
		{ "{\"text\":\"\\ude00\"}", "text", "surrogate" },
		{ "{\"text\":\"\\ud83dx\"}", "text", "surrogate" },
		{ "{\"text\":\"\\ude00\\ude00\"}", "text", "surrogate" },
		{ "{\"text\":\"\xc3\xa9\xf0\x9f\x98\x80\", \"far\":1}", "far", "(line 1, column 21)" },
		{ "{\"text\":\"\xff\"}", "text", "UTF-8 (line 1, column 10)" },
		{ "{\"text\":\"\xed\xa0\x80\"}", "text", "UTF-8" },
		{ "{\"\xff\":1}", "", "UTF-8" },
		{ "{\n  \"text\": \"\xc3\xa9\xc3\xa9\",\n\t\"aBool\": 1\n}", "a_bool", "true or false is expected, not 1 (line 3, column 11)" },
	};
	expect_all_bad(SHAPES, all, ARRAY_LEN(all));
	expect_bad(SHAPES, "{\"text\":\"a\0b\"}", 14, "text", "control character");
	expect_bad(SHAPES, "{}\0", 3, "", "no place in JSON");
}

static void test_values_are_refused(void **state)
{
	static const struct bad all[] = {
		{ "{\"anInt32\":1.5}", "an_int32", "an_int32: a whole number from -2147483648 to 2147483647 is expected, not 1.5 (line 1, column 12)" },
		{ "{\"anInt32\":2147483648}", "an_int32", "not 2147483648" },
		{ "{\"anInt32\":-2147483649}", "an_int32", "whole number" },
		{ "{\"anInt32\":1e10}", "an_int32", "whole number" },
		{ "{\"anInt32\":1e999999999999999999999}", "an_int32", "whole number" },
		{ "{\"anInt32\":1e-1}", "an_int32", "whole number" },
		{ "{\"anInt32\":\"\"}", "an_int32", "not \"\"" },
		{ "{\"anInt32\":\" 1\"}", "an_int32", "whole number" },
		{ "{\"anInt32\":\"1 \"}", "an_int32", "whole number" },
		{ "{\"anInt32\":\"0x1\"}", "an_int32", "whole number" },
		{ "{\"anInt32\":\"01\"}", "an_int32", "whole number" },
		{ "{\"anInt32\":\"NaN\"}", "an_int32", "whole number" },
		{ "{\"anInt32\":true}", "an_int32", "not true" },
		{ "{\"anInt32\":[1]}", "an_int32", "not a list" },
		{ "{\"anInt32\":{}}", "an_int32", "not an object" },
		{ "{\"aUint32\":-1}", "a_uint32", "from 0 to 4294967295" },
		{ "{\"aUint32\":4294967296}", "a_uint32", "4294967295" },
		{ "{\"anInt64\":9223372036854775808}", "an_int64", "from -9223372036854775808 to 9223372036854775807" },
		{ "{\"anInt64\":\"-9223372036854775809\"}", "an_int64", "whole number" },
		{ "{\"aUint64\":18446744073709551616}", "a_uint64", "from 0 to 18446744073709551615" },
		{ "{\"aUint64\":99999999999999999999}", "a_uint64", "whole number" },
		{ "{\"aUint64\":123456789012345678901234567890123456789012345678901234567890}", "a_uint64", "not 1234567890123456789012345678901234567890…" },
		{ "{\"aDouble\":1e309}", "a_double", "range of a double" },
		{ "{\"aDouble\":\"nan\"}", "a_double", "a number, \"NaN\"" },
		{ "{\"aDouble\":\"\"}", "a_double", "a number" },
		{ "{\"aDouble\":\"1e\"}", "a_double", "a number" },
		{ "{\"aDouble\":\"0x1p3\"}", "a_double", "a number" },
		{ "{\"aDouble\":false}", "a_double", "a number" },
		{ "{\"aFloat\":3.5e38}", "a_float", "range of a float" },
		{ "{\"aBool\":\"true\"}", "a_bool", "true or false is expected, not \"true\"" },
		{ "{\"aBool\":0}", "a_bool", "true or false" },
		{ "{\"color\":\"GREEN\"}", "color", "one of NONE, RED, BLUE_GREEN, or a number is expected, not \"GREEN\"" },
		{ "{\"color\":\"red\"}", "color", "one of" },
		{ "{\"color\":\"1\"}", "color", "one of" },
		{ "{\"color\":1.5}", "color", "whole number" },
		{ "{\"color\":2147483648}", "color", "whole number" },
		{ "{\"color\":true}", "color", "one of" },
		{ "{\"text\":1}", "text", "a text in double quotes is expected, not 1" },
		{ "{\"text\":{}}", "text", "not an object" },
		{ "{\"data\":\"QQ=\"}", "data", "base64" },
		{ "{\"data\":\"Q\"}", "data", "base64" },
		{ "{\"data\":\"QQ===\"}", "data", "base64" },
		{ "{\"data\":\"====\"}", "data", "base64" },
		{ "{\"data\":\"=\"}", "data", "base64" },
		{ "{\"data\":\"QQ==QQ==\"}", "data", "base64" },
		{ "{\"data\":\"QU I\"}", "data", "base64" },
		{ "{\"data\":\"Q\\n==\"}", "data", "base64" },
		{ "{\"data\":7}", "data", "base64 in double quotes" },
		{ "{\"inner\":[]}", "inner", "an object { … } is expected, not a list" },
		{ "{\"inner\":{\"inner\":{\"inner\":1}}}", "inner.inner.inner", "an object" },
		{ "{\"children\":{}}", "children", "a list [ … ] is expected, not an object" },
		{ "{\"children\":[{},null]}", "children[1]", "null is not allowed in a list" },
		{ "{\"children\":[{},{\"children\":[{\"anInt32\":\"x\"}]}]}", "children[1].children[0].an_int32", "whole number" },
		{ "{\"numbers\":[1,2,\"x\"]}", "numbers[2]", "whole number" },
		{ "{\"numbers\":1}", "numbers", "a list" },
		{ "{\"numbers\":[null]}", "numbers[0]", "null is not allowed in a list" },
		{ "{\"numbers\":[[1]]}", "numbers[0]", "not a list" },
		{ "{\"strings\":[]}", "strings", "an object" },
		{ "{\"strings\":{\"a\":null}}", "strings[\"a\"]", "null is not allowed in a map" },
		{ "{\"strings\":{\"a\":1}}", "strings[\"a\"]", "strings[\"a\"]: a text in double quotes is expected, not 1" },
		{ "{\"shapes\":{\"a\":{\"anInt32\":\"x\"}}}", "shapes[\"a\"].an_int32", "whole number" },
		{ "{\"byNumber\":{\"x\":\"\"}}", "by_number[\"x\"]", "whole number" },
		{ "{\"byNumber\":{\"\":\"\"}}", "by_number[\"\"]", "whole number" },
		{ "{\"byFlag\":{\"1\":0}}", "by_flag[\"1\"]", "\"true\" or \"false\" is expected as a key, not \"1\"" },
		{ "{\"byFlag\":{\"TRUE\":0}}", "by_flag[\"TRUE\"]", "as a key" },
		{ "{\"byLarge\":{\"-1\":\"\"}}", "by_large[\"-1\"]", "from 0 to 18446744073709551615" },
		{ "{\"byFixed\":{\"1\":\"1\"}}", "by_fixed[\"1\"]", "a duration" },
		{ "{\"byNumber\":{\"2147483648\":\"\"}}", "by_number[\"2147483648\"]", "whole number" },
	};
	expect_all_bad(SHAPES, all, ARRAY_LEN(all));
}

static void test_times_are_refused(void **state)
{
	static const char *const times[] = { "", "2026-11-30", "2026-11-30T17:05:00", "2026-11-30 17:05:00Z", "2026-11-30t17:05:00Z",
		"2026-11-30T17:05:00z", "2026-11-30T17:05Z", "2026-11-30T17:05:00.Z", "2026-11-30T17:05:00.1234567890Z", "2026-11-30T17:05:00+1:00",
		"2026-11-30T17:05:00+0100", "2026-11-30T17:05:00+24:00", "2026-11-30T17:05:00+00:60", "2026-11-30T17:05:00Zx",
		"2026-13-30T17:05:00Z", "2026-00-30T17:05:00Z", "2026-11-31T17:05:00Z", "2026-11-00T17:05:00Z", "2026-02-29T17:05:00Z",
		"1900-02-29T17:05:00Z", "2026-11-30T24:00:00Z", "2026-11-30T17:60:00Z", "2026-11-30T17:05:60Z", "0000-11-30T17:05:00Z",
		"0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01", "10000-01-01T00:00:00Z", " 2026-11-30T17:05:00Z",
		"-026-11-30T17:05:00Z", "2026-1-30T17:05:00Z" };
	static const char *const spans[] = { "", "s", "1", "1m", "1 s", "1.s", ".5s", "-.5s", "+1s", "--1s", "1.0000000000s", "1s ", "1ss",
		"315576000001s", "-315576000001s", "99999999999999999999999s", "18446744073709551616s", "18446744073709551617.5s", "1e3s", "-s" };
	char in[200];
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		snprintf(in, sizeof(in), "{\"at\":\"%s\"}", times[i]);
		expect_bad(SHAPES, in, strlen(in), "at", "a time as in \"2026-11-30T17:05:00.5Z\" is expected");
	}
	for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
		snprintf(in, sizeof(in), "{\"laps\":[\"0s\",\"%s\"]}", spans[i]);
		expect_bad(SHAPES, in, strlen(in), "laps[1]", "a duration in seconds as in \"1.5s\" is expected");
	}
	expect_bad(SHAPES, "{\"at\":{\"seconds\":1}}", 20, "at", "not an object");
	expect_bad(SHAPES, "{\"lasted\":1}", 12, "lasted", "not 1");
}

static void test_unknown_and_doubled_are_refused(void **state)
{
	static const struct bad all[] = {
		{ "{\"spec\":{\"retry\":{\"maxAttemps\":1}}}", "spec.retry.maxAttemps",
			"unknown field \"maxAttemps\" in reins.v1.RetryPolicy (line 1, column 19); it has maxAttempts, initialBackoff, maxBackoff, multiplier" },
		{ "{\"spec\":{\"nme\":null}}", "spec.nme", "unknown field \"nme\" in reins.v1.TaskSpec (line 1, column 10); it has name, queue" },
		{ "{\"Spec\":{}}", "Spec", "unknown field" },
		{ "{\"\":1}", "", "unknown field \"\"" },
		{ "{\"idempotencykey\":1}", "idempotencykey", "unknown field" },
		{ "{\"idempotencyKey_\":1}", "idempotencyKey_", "unknown field" },
		{ "{\"idempotency_Key\":1}", "idempotency_Key", "unknown field" },
		{ "{\"[reins.ext]\":1}", "[reins.ext]", "unknown field" },
		{ "{\"spec\":{},\"spec\":{}}", "spec", "spec: the field is given twice (line 1, column 12)" },
		{ "{\"spec\":null,\"spec\":{}}", "spec", "twice" },
		{ "{\"idempotencyKey\":\"a\",\"idempotency_key\":\"a\"}", "idempotency_key", "twice" },
		{ "{\"spec\":{\"name\":\"a\",\"\\u006eame\":\"b\"}}", "spec.name", "twice" },
		{ "{\"spec\":{\"labels\":{\"a\":\"1\",\"b\":\"1\",\"a\":\"2\"}}}", "spec.labels[\"a\"]", "the key is given twice (line 1, column 36)" },
		{ "{\"spec\":{\"labels\":{\"a\":\"1\",\"\\u0061\":\"2\"}}}", "spec.labels[\"\\u0061\"]", "twice" },
		{ "{\"spec\":{\"labels\":{\"\xc3\xa9z\":\"1\",\"b\":\"\",\"\\u00e9z\":\"2\"}}}", "spec.labels[\"\\u00e9z\"]", "twice" },
	};
	static const struct bad shapes[] = {
		{ "{\"chosenInt\":1,\"chosenText\":\"a\"}", "chosen_text", "only one of chosen_int and chosen_text may be given (line 1, column 16)" },
		{ "{\"chosenShape\":{},\"chosenInt\":0}", "chosen_int", "only one of chosen_shape and chosen_int" },
		{ "{\"byFlag\":{\"true\":0,\"\\u0074rue\":0}}", "by_flag[\"\\u0074rue\"]", "twice" },
		{ "{\"byNumber\":{\"1\":\"\",\"1.0\":\"\"}}", "by_number[\"1.0\"]", "twice" },
		{ "{\"shapes\":{\"a\":{\"strings\":{\"a\":\"\",\"b\":\"\"}},\"a\":{}}}", "shapes[\"a\"]", "twice" },
		{ "{\"shapes\":{\"a\":{\"strings\":{\"b\":\"\",\"b\":\"\"}},\"c\":{}}}", "shapes[\"a\"].strings[\"b\"]", "twice" },
	};
	expect_all_bad(SUBMIT, all, ARRAY_LEN(all));
	expect_all_bad(SHAPES, shapes, ARRAY_LEN(shapes));
}

static void test_any_is_refused(void **state)
{
	static const struct bad all[] = {
		{ "{\"details\":[{\"field\":1}]}", "details[0]", "\"@type\" is expected as the first key" },
		{ "{\"details\":[{\"@type\":1}]}", "details[0]", "a text" },
		{ "{\"details\":[{\"@type\":\"google.rpc.BadRequest\"}]}", "details[0]", "type.googleapis.com/" },
		{ "{\"details\":[{\"@type\":\"type.googleapis.com/google.protobuf.Empty\"}]}", "details[0]", "one of BadRequest" },
		{ "{\"details\":[{\"@type\":\"x/google.rpc.RetryInfo\",\"retryDelay\":1}]}", "details[0].retry_delay", "a duration" },
		{ "{\"details\":[{\"@type\":\"x/google.rpc.RetryInfo\",\"x\":1}]}", "details[0].x", "unknown field \"x\" in google.rpc.RetryInfo" },
	};
	expect_all_bad(STATUS, all, ARRAY_LEN(all));
}

/* Long and odd keys neither break the path nor the message. */
static void test_messages_are_text(void **state)
{
	char in[4100], key[2000];
	for (size_t n = 0; n < 400; n++) {
		struct buf wire;
		struct refusal r = { 0 };
		buf_init(&wire, 10000);
		char *p = stpcpy(key, &"xxxxxxx"[n % 8]);
		for (size_t i = 0; i < n; i++)
			p = stpcpy(p, i % 2 ? "\xf0\x9f\x98\x80" : "a");
		snprintf(in, sizeof(in), "{\"shapes\":{\"%s\":{\"%s\":1}}}", key, key);
		assert_int_equal(pb_json_read(SHAPES, in, strlen(in), NULL, &wire, &r), -1);
		assert_int_equal(r.code, STATUS_INVALID_ARGUMENT);
		struct refusal copy;
		utf8_make_valid(r.field, strlen(r.field), copy.field, sizeof(copy.field), NULL);
		utf8_make_valid(r.message, strlen(r.message), copy.message, sizeof(copy.message), NULL);
		assert_string_equal(copy.field, r.field);
		assert_string_equal(copy.message, r.message);
		buf_done(&wire);
	}
}

/* ---- limits ------------------------------------------------------------------------------- */

static char *repeat(const char *head, const char *unit, size_t n, const char *between, const char *tail)
{
	size_t one = strlen(unit) + strlen(between);
	char *text = malloc(strlen(head) + n * one + strlen(tail) + 1), *p = stpcpy(text, head);
	for (size_t i = 0; i < n; i++)
		p = stpcpy(stpcpy(p, i ? between : ""), unit);
	stpcpy(p, tail);
	return text;
}

static enum status_code read_limited(const char *text, const struct pb_limits *limits, size_t max, struct refusal *ret)
{
	struct buf wire;
	buf_init(&wire, max);
	ret->code = STATUS_OK;
	int rc = pb_json_read(SHAPES, text, strlen(text), limits, &wire, ret);
	if (!rc && limits)
		assert_int_equal(pb_check(SHAPES, buf_head(&wire), buf_len(&wire), limits, ret), 0);
	buf_done(&wire);
	return ret->code;
}

static void test_depth_is_limited(void **state)
{
	struct refusal r;
	struct pb_limits limits = pb_limits_default;
	for (size_t n = 97; n <= 102; n++) {
		char *text = repeat("{", "\"inner\":{", n, "", "");
		size_t len = strlen(text);
		text = realloc(text, len + n + 2);
		memset(text + len, '}', n + 1);
		text[len + n + 1] = '\0';
		assert_int_equal(read_limited(text, &limits, 1 << 20, &r), n < 100 ? STATUS_OK : STATUS_INVALID_ARGUMENT);
		limits.depth = 50;
		assert_int_equal(read_limited(text, &limits, 1 << 20, &r), STATUS_INVALID_ARGUMENT);
		assert_non_null(strstr(r.message, "messages are nested too deep; 50 "));
		limits.depth = 1000;
		free(text);
	}
	static const char *const units[] = { "[", "{\"inner\":", "{\"children\":[", "{\"shapes\":{\"a\":", "{\"numbers\":[", "{\"strings\":" };
	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		char *text = repeat("", units[i], 100000, "", "");
		assert_int_equal(read_limited(text, NULL, 1 << 20, &r), STATUS_INVALID_ARGUMENT);
		free(text);
	}
	/* A list, a map and a time count as messages, not only as JSON. */
	limits.depth = 2;
	assert_int_equal(read_limited("{\"inner\":{\"at\":\"1970-01-01T00:00:01Z\"}}", &limits, 1000, &r), STATUS_INVALID_ARGUMENT);
	assert_int_equal(read_limited("{\"inner\":{\"strings\":{\"a\":\"\"}}}", &limits, 1000, &r), STATUS_INVALID_ARGUMENT);
	assert_int_equal(read_limited("{\"strings\":{\"a\":\"\"}}", &limits, 1000, &r), STATUS_OK);
	assert_int_equal(read_limited("{\"children\":[{\"numbers\":[1]}]}", &limits, 1000, &r), STATUS_OK);
}

static void test_counts_are_limited(void **state)
{
	static const struct {
		const char *head, *unit, *tail;
		unsigned fields; /* of one unit */
	} all[] = {
		{ "{\"numbers\":[", "1", "]}", 1 },
		{ "{\"texts\":[", "\"\"", "]}", 1 },
		{ "{\"children\":[", "{\"anInt32\":0}", "]}", 2 },
		{ "{\"laps\":[", "\"1.5s\"", "]}", 3 },
	};
	struct refusal r;
	struct pb_limits limits = pb_limits_default;
	limits.fields = 100;
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		for (size_t n = 1; n <= 101; n++) {
			char *text = repeat(all[i].head, all[i].unit, n, ",", all[i].tail);
			size_t fields = n * all[i].fields + (i == 0);
			assert_int_equal(read_limited(text, &limits, 10000, &r), fields > 100 ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
			if (fields > 100)
				assert_non_null(strstr(r.message, "more than 100 fields"));
			free(text);
		}
	assert_int_equal(read_limited("{\"text\":\"0123456789\"}", NULL, 11, &r), STATUS_RESOURCE_EXHAUSTED);
	assert_non_null(strstr(r.message, "11 bytes"));
}

/* The buffer may be too small at any byte. */
static void test_the_buffers_limit_holds(void **state)
{
	static const char in[] = "{\"inner\":{\"text\":\"a\\u0062\",\"data\":\"QUJD\",\"words\":[1,2],\"strings\":{\"a\":\"b\"},\"at\":"
				 "\"1970-01-01T00:00:01.5Z\"},\"aDouble\":1,\"aFloat\":2,\"anInt64\":-1,\"chosenText\":\"\"}";
	struct refusal r;
	size_t max = 0;
	while (read_limited(in, NULL, max, &r) == STATUS_RESOURCE_EXHAUSTED)
		max++;
	assert_int_equal(r.code, STATUS_OK);
	assert_in_range(max, 60, 120);
}

/* ---- memory ------------------------------------------------------------------------------- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);

static int until_failure = -1; /* allocations that go well; -1: all */
static int n_failed;

static bool fails_now(void)
{
	if (until_failure)
		until_failure -= until_failure > 0;
	else
		n_failed++;
	return !until_failure && n_failed;
}

void *__wrap_malloc(size_t size) { return fails_now() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t n, size_t size) { return fails_now() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t size) { return fails_now() ? NULL : __real_realloc(p, size); }

/* What is there when the n-th allocation fails, and all after it. */
static void test_each_allocation_may_fail(void **state)
{
	_cleanup_free_ char *text = repeat("{\"strings\":{\"\\u0061", "x", 1000, "", "\":\"\"},\"shapes\":{\"a\":{\"strings\":{\"b\":\"\"}},\"b\":{}}}");
	int failures = 0;
	for (bool done = false; !done; failures++) {
		struct buf wire;
		struct refusal r = { 0 };
		buf_init(&wire, 1 << 20);
		n_failed = 0;
		until_failure = failures;
		int rc = pb_json_read(SHAPES, text, strlen(text), NULL, &wire, &r);
		until_failure = -1;
		done = rc == 0;
		assert_int_equal(buf_len(&wire) > 0, done);
		assert_int_equal(n_failed > 0, !done);
		if (!done) {
			assert_int_equal(r.code, STATUS_RESOURCE_EXHAUSTED);
			assert_int_equal(r.reason, REASON_OUT_OF_MEMORY);
		}
		buf_done(&wire);
	}
	assert_in_range(failures, 4, 100);
}

static void test_each_allocation_of_writing_may_fail(void **state)
{
	static const char in[] = "{\"details\":[{\"@type\":\"type.googleapis.com/google.rpc.ErrorInfo\",\"metadata\":{\"a\":\"b\"}}]}";
	struct buf wire;
	struct refusal r = { 0 };
	buf_init(&wire, 1 << 20);
	assert_int_equal(pb_json_read(STATUS, in, strlen(in), NULL, &wire, &r), 0);
	int failures = 0;
	for (bool done = false; !done; failures++) {
		struct buf text;
		buf_init(&text, 1 << 20);
		n_failed = 0;
		until_failure = failures;
		int rc = pb_json_write_wire(STATUS, buf_head(&wire), buf_len(&wire), 0, &text);
		until_failure = -1;
		done = n_failed == 0;
		assert_int_equal(rc, done ? 0 : -ENOMEM);
		assert_int_equal(buf_len(&text), done ? strlen(in) : 0);
		buf_done(&text);
	}
	assert_in_range(failures, 4, 100);
	buf_done(&wire);
}

/* ---- out, from the wire ------------------------------------------------------------------- */

static void test_wire_that_is_none(void **state)
{
	struct buf b;
	buf_init(&b, 100);
	assert_int_equal(pb_json_write_wire(SHAPES, "\x0a", 1, 0, &b), -EBADMSG);
	assert_int_equal(pb_json_write_wire(SHAPES, NULL, 0, 0, &b), 0);
	assert_int_equal(buf_len(&b), 2);
	/* An entry of a map without its value. */
	assert_int_equal(pb_json_write_wire(SHAPES, "\xa2\x02\x09\x09\5\0\0\0\0\0\0\0", 12, 0, &b), 0);
	assert_int_equal(buf_add(&b, "", 1), 0);
	assert_string_equal(buf_head(&b), "{}{\"byFixed\":{\"5\":\"0s\"}}");
	buf_done(&b);
}

/* Replies of our own may have more fields than requests, and fields that a newer master knows. */
static void test_a_large_message_is_written(void **state)
{
	static const char one[] = "\xc2\x01\x00\xfa\x7f\x01x", written[] = "{\"texts\":[\"\",";
	enum { N = 150000 };
	struct buf wire, text;
	buf_init(&wire, 4 << 20);
	buf_init(&text, 4 << 20);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(buf_add(&wire, one, sizeof(one) - 1), 0);
	assert_int_equal(pb_json_write_wire(SHAPES, buf_head(&wire), buf_len(&wire), 0, &text), 0);
	assert_int_equal(buf_len(&text), strlen("{\"texts\":[]}") + 3 * N - 1);
	assert_memory_equal(buf_head(&text), written, sizeof(written) - 1);
	buf_done(&wire);
	buf_done(&text);
}

static void test_any_of_what_we_do_not_know(void **state)
{
	Google__Rpc__Status s = GOOGLE__RPC__STATUS__INIT;
	Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *details[] = { &any };
	static char *urls[] = { "type.googleapis.com/x.Y", "type.googleapis.com/google.rpc.BadRequest" };
	s.details = details;
	s.n_details = 1;
	any.value = (ProtobufCBinaryData){ 1, (uint8_t *)"\x0a" };
	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		struct buf b;
		char expected[200];
		buf_init(&b, 1000);
		any.type_url = urls[i];
		snprintf(expected, sizeof(expected), "{\"details\":[{\"typeUrl\":\"%s\",\"value\":\"Cg==\"}]}", urls[i]);
		assert_int_equal(pb_json_write(&s, 0, &b), 0);
		assert_int_equal(buf_add(&b, "", 1), 0);
		assert_string_equal(buf_head(&b), expected);
		buf_done(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_whole_numbers),
		cmocka_unit_test(test_reals),
		cmocka_unit_test(test_texts_and_bytes),
		cmocka_unit_test(test_bools_and_enums),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_a_request),
		cmocka_unit_test(test_any),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_nothing_is_written_for_nothing),
		cmocka_unit_test(test_syntax_is_refused),
		cmocka_unit_test(test_values_are_refused),
		cmocka_unit_test(test_times_are_refused),
		cmocka_unit_test(test_unknown_and_doubled_are_refused),
		cmocka_unit_test(test_any_is_refused),
		cmocka_unit_test(test_messages_are_text),
		cmocka_unit_test(test_depth_is_limited),
		cmocka_unit_test(test_counts_are_limited),
		cmocka_unit_test(test_the_buffers_limit_holds),
		cmocka_unit_test(test_each_allocation_may_fail),
		cmocka_unit_test(test_each_allocation_of_writing_may_fail),
		cmocka_unit_test(test_wire_that_is_none),
		cmocka_unit_test(test_a_large_message_is_written),
		cmocka_unit_test(test_any_of_what_we_do_not_know),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

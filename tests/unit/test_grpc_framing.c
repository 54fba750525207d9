/* The message parser and the small encodings of headers and trailers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "common/base/rng.h"
#include "common/grpc/details.h"
#include "common/grpc/framing.h"
#include "common/grpc/wire.h"
#include "common/h2/h2.h"

static void every_split(void **state)
{
	static const uint8_t bytes[] = { 0, 0, 0, 0, 3, 'a', 'b', 'c', 1, 0, 0, 0, 0, 0 };
	struct framing_message m;
	for (size_t n = 0; n < 8; n++)
		assert_int_equal(framing_next(bytes, n, 3, &m), 0);
	assert_int_equal(framing_next(bytes, sizeof(bytes), 3, &m), 1);
	assert_int_equal(m.len, 3);
	assert_false(m.compressed);
	assert_memory_equal(m.data, "abc", 3);
	assert_int_equal(framing_next(bytes + 8, 6, 3, &m), 1);
	assert_int_equal(m.len, 0);
	assert_true(m.compressed);
	assert_int_equal(framing_next(bytes + 13, 1, 3, &m), 0);
	assert_int_equal(framing_next(NULL, 0, 3, &m), 0);
}

static void limits_and_flags(void **state)
{
	struct framing_message m;
	uint8_t prefix[FRAMING_PREFIX];
	framing_prefix(prefix, 0, 4);
	assert_int_equal(framing_next(prefix, 5, 3, &m), -EMSGSIZE);
	assert_int_equal(m.declared, 4);
	assert_int_equal(framing_next(prefix, 4, 3, &m), 0);
	framing_prefix(prefix, 0, UINT32_MAX);
	assert_int_equal(framing_next(prefix, 5, 4194304, &m), -EMSGSIZE);
	assert_int_equal(m.declared, UINT32_MAX);
	prefix[0] = 2;
	assert_int_equal(framing_next(prefix, 1, 3, &m), -EBADMSG);
	prefix[0] = 0x80;
	assert_int_equal(framing_next(prefix, 5, SIZE_MAX, &m), -EBADMSG);
}

static void timeouts(void **state)
{
	static const struct {
		const char *text;
		int64_t ns;
	} good[] = {
		{ "1S", NS_PER_S }, { "2M", 120 * NS_PER_S }, { "1H", 3600 * NS_PER_S }, { "5m", 5 * NS_PER_MS },
		{ "1500u", 1500 * NS_PER_US }, { "1n", NS_PER_MS }, { "999999n", NS_PER_MS }, { "0S", NS_PER_MS },
		{ "99999999m", INT64_C(99999999) * NS_PER_MS }, { "99999999H", INT64_C(3153600000) * NS_PER_S },
	};
	static const char *const bad[] = { "", "S", "10s", "-1S", "+1S", "123456789S", "1", "1SS", " 1S", "1 S", "1.5S", "0x1S", "1M " };
	int64_t ns;
	for (size_t i = 0; i < ARRAY_LEN(good); i++) {
		assert_int_equal(wire_parse_timeout(good[i].text, &ns), 0);
		assert_int_equal(ns, good[i].ns);
	}
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(wire_parse_timeout(bad[i], &ns), -EINVAL);
	/* What we say is read back with at most a thousandth more. */
	struct rng rng;
	rng_seed(&rng, 3);
	for (int i = 0; i < 10000; i++) {
		char text[WIRE_TIMEOUT_CAP];
		int64_t want = (int64_t)(rng_next(&rng) >> (1 + rng_below(&rng, 62)));
		wire_format_timeout(want, text);
		assert_int_equal(wire_parse_timeout(text, &ns), 0);
		if (want > NS_PER_MS && want < INT64_C(3153600000) * NS_PER_S)
			assert_true(ns >= want && ns - want <= want / 1000);
	}
}

static void messages(void **state)
{
	char text[WIRE_MESSAGE_CAP + 1], back[512];
	wire_encode_message("a%b\r\n\x7f n\xc3\xb6 \x1f", text);
	assert_string_equal(text, "a%25b%0D%0A%7F n%C3%B6 %1F");
	wire_encode_message(" x ", text);
	assert_string_equal(text, "%20x%20");
	wire_decode_message(text, back, sizeof(back));
	assert_string_equal(back, " x ");
	wire_decode_message("a%25b%c3%B6%zz%4", back, sizeof(back));
	assert_string_equal(back, "a%b\xc3\xb6%zz%4");
	wire_decode_message("%00%0d%c3", back, sizeof(back));
	assert_string_equal(back, "???");
	wire_decode_message("abc\xc3\xb6", back, 5); /* the sequence is cut */
	assert_string_equal(back, "abc?");
	/* Never cut inside a code point. */
	char euros[3001];
	for (size_t i = 0; i < 1000; i++)
		memcpy(euros + 3 * i, "\xe2\x82\xac", 3);
	euros[3000] = 0;
	size_t n = wire_encode_message(euros, text);
	assert_true(n <= WIRE_MESSAGE_CAP && n > WIRE_MESSAGE_CAP - 9);
	assert_int_equal(n % 9, 0);
}

static void base64(void **state)
{
	static const char *const texts[] = { "", "Zg", "Zm8", "Zm9v", "Zm9vYg", "Zm9vYmE", "Zm9vYmFy" };
	char text[64];
	uint8_t back[64];
	size_t len;
	for (size_t n = 0; n <= 6; n++) {
		wire_base64_encode((const uint8_t *)"foobar", n, text, sizeof(text));
		assert_string_equal(text, texts[n]);
		assert_int_equal(wire_base64_decode(text, strlen(text), back, sizeof(back), &len), 0);
		assert_int_equal(len, n);
		assert_memory_equal(back, "foobar", n);
	}
	assert_int_equal(wire_base64_decode("Zg==", 4, back, sizeof(back), &len), 0);
	assert_int_equal(len, 1);
	assert_int_equal(wire_base64_decode("Zm8=", 4, back, sizeof(back), &len), 0);
	assert_int_equal(len, 2);
	static const char *const bad[] = { "Z", "Zg=", "Z===", "====", "Zm9v=", "Zm-v", "Zm9vY", "Zg==Zg==" };
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(wire_base64_decode(bad[i], strlen(bad[i]), back, sizeof(back), &len), -EINVAL);
	assert_int_equal(wire_base64_decode("Zm9vYmFy", 8, back, 5, &len), -ENOBUFS);
	assert_int_equal(wire_base64_encode((const uint8_t *)"foobar", 6, text, 8), 0);
}

static void details(void **state)
{
	uint8_t data[DETAILS_STATUS_CAP];
	struct refusal r;
	(void)refuse(&r, STATUS_CANCELLED, NULL, "no");
	assert_int_equal(details_status(&r, data), 0);
	(void)refuse(&r, STATUS_INVALID_ARGUMENT, "spec.argv[0]", "is empty");
	size_t n = details_status(&r, data);
	assert_true(n > 0);
	assert_memory_equal(data, "\x08\x03\x12\x08is empty\x1a", 13);
	assert_non_null(memmem(data, n, "\x0a\x0cspec.argv[0]\x12\x08is empty", 24));
	assert_non_null(memmem(data, n, "\x0a\x0d" "FIELD_INVALID\x12\x09reins.dev", 26));
	assert_int_equal(details_retry_ms(data, n), 0);
	/* The largest that fits into a refusal: nothing of it is left out. */
	(void)refuse_resource(&r, "task", "");
	memset(r.field, 'f', sizeof(r.field) - 1);
	memset(r.message, 'm', sizeof(r.message) - 1);
	memset(r.resource_name, 'r', sizeof(r.resource_name) - 1);
	r.field[sizeof(r.field) - 1] = r.message[sizeof(r.message) - 1] = r.resource_name[sizeof(r.resource_name) - 1] = 0;
	r.retry_after_ms = 61999;
	for (int i = 0; i < REFUSAL_MORE_MAX + 1; i++)
		(void)refuse_more(&r, "aKeyOfReasonableLength", "%0200d", i);
	assert_int_equal(r.n_more, REFUSAL_MORE_MAX);
	struct details d;
	details_build(&d, &r);
	assert_int_equal(d.n, DETAILS_MAX);
	n = details_status(&r, data);
	assert_true(n < 4096);
	assert_int_equal(details_retry_ms(data, n), 61999);
	for (size_t i = 0; i < d.n; i++) {
		assert_non_null(memmem(data, n, d.at[i].type, strlen(d.at[i].type)));
		assert_non_null(memmem(data, n, d.at[i].data, d.at[i].len));
	}
	/* Every prefix and every flipped bit is survived. */
	for (size_t i = 0; i <= n; i++)
		(void)details_retry_ms(data, i);
	for (size_t bit = 0; bit < 8 * n; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		(void)details_retry_ms(data, n);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void refusals_are_cut_between_characters(void **state)
{
	struct refusal r;
	char text[600];
	for (size_t lead = 0; lead < 4; lead++) {
		static const char *const words[] = { "a", "\u00e4", "\u20ac", "\U0001f600" };
		size_t w = strlen(words[lead]);
		for (size_t shift = 0; shift < w; shift++) {
			size_t at = shift;
			memset(text, 'x', sizeof(text));
			for (; at + w < sizeof(text); at += w)
				memcpy(text + at, words[lead], w);
			text[at] = 0;
			(void)refuse(&r, STATUS_NOT_FOUND, NULL, "%s", text);
			size_t n = strlen(r.message);
			assert_true(n >= sizeof(r.message) - w && n < sizeof(r.message));
			assert_int_equal((n - shift) % w, 0);
		}
	}
	(void)refuse(&r, STATUS_NOT_FOUND, NULL, "%s", "\u20ac");
	assert_string_equal(r.message, "\u20ac");
	for (int reason = REASON_NONE + 1; reason < REASONS; reason++)
		assert_true(strlen(reason_name((enum reason)reason)) > 3);
}

static void status_of_the_rest(void **state)
{
	static const int http[][2] = { { 400, 13 }, { 401, 16 }, { 403, 7 }, { 404, 12 }, { 429, 14 }, { 431, 13 },
				       { 502, 14 }, { 503, 14 }, { 504, 14 }, { 200, 2 }, { 500, 2 }, { 0, 2 } };
	for (size_t i = 0; i < ARRAY_LEN(http); i++)
		assert_int_equal(wire_status_of_http(http[i][0]), http[i][1]);
	assert_int_equal(wire_status_of_reset(H2_REFUSED_STREAM), STATUS_UNAVAILABLE);
	assert_int_equal(wire_status_of_reset(H2_CANCEL), STATUS_CANCELLED);
	assert_int_equal(wire_status_of_reset(H2_ENHANCE_YOUR_CALM), STATUS_RESOURCE_EXHAUSTED);
	assert_int_equal(wire_status_of_reset(H2_INADEQUATE_SECURITY), STATUS_PERMISSION_DENIED);
	assert_int_equal(wire_status_of_reset(H2_NO_ERROR), STATUS_INTERNAL);
	assert_int_equal(wire_status_of_reset(99), STATUS_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_split), cmocka_unit_test(limits_and_flags), cmocka_unit_test(timeouts),
		cmocka_unit_test(messages), cmocka_unit_test(base64), cmocka_unit_test(details), cmocka_unit_test(refusals_are_cut_between_characters),
		cmocka_unit_test(status_of_the_rest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

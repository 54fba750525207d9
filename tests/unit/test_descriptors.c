/* Look-ups in a descriptor set: the one that reflection serves, and one with what ours has not (extensions, no package). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/descriptor_set.h"
#include "server/rpc/descriptors.h"
#include "server/rpc/rpc.h"
#include "server/rpc/wire.h"

/* ---- a set by hand: each part is (number, its bytes) of the part around it ---- */

static struct buf part(const char *name)
{
	struct buf b;
	buf_init(&b, 65536);
	assert_int_equal(wire_put_text(&b, 1, name), 0);
	return b;
}

static void put(struct buf *into, uint32_t number, struct buf b)
{
	assert_int_equal(wire_put_len(into, number, buf_head(&b), buf_len(&b)), 0);
	buf_done(&b);
}

static struct buf extension(const char *name, const char *extendee, int number)
{
	struct buf b = part(name);
	assert_int_equal(wire_put_text(&b, 2, extendee), 0);
	assert_int_equal(wire_put_int(&b, 3, number), 0);
	return b;
}

/* a.proto: package p; message M { message In { extend M { f = 200 } } oneof o {} enum E { V = 0; } }  extend M { e = 100 }
 * b.proto: no package, imports a.proto; message M {} extend p.M { g = 536870911 } service S { rpc Do } */
static struct buf make_set(void)
{
	struct buf set, in = part("In"), m = part("M"), e = part("E"), a = part("a.proto"), b = part("b.proto"), s = part("S");
	buf_init(&set, 65536);
	put(&in, 6, extension("f", ".p.M", 200));
	put(&m, 3, in);
	put(&m, 8, part("o"));
	put(&e, 2, part("V"));
	put(&m, 4, e);
	assert_int_equal(wire_put_text(&a, 2, "p"), 0);
	put(&a, 4, m);
	put(&a, 7, extension("e", ".p.M", 100));
	put(&set, 1, a);
	assert_int_equal(wire_put_text(&b, 3, "a.proto"), 0);
	assert_int_equal(wire_put_text(&b, 3, "nowhere.proto"), 0);
	put(&b, 4, part("M"));
	put(&b, 7, extension("g", ".p.M", 536870911));
	put(&s, 2, part("Do"));
	put(&b, 6, s);
	put(&set, 1, b);
	return set;
}

static void symbols_and_extensions(void **state)
{
	struct buf set = make_set();
	struct descriptors d;
	int32_t numbers[DESCRIPTORS_EXTENSIONS_MAX];
	assert_int_equal(descriptors_init(&d, buf_head(&set), buf_len(&set)), 0);
	assert_int_equal(d.n, 2);
	static const struct {
		const char *name;
		int file;
	} wanted[] = {
		{ "p.M", 0 }, { "p.M.In", 0 }, { "p.M.In.f", 0 }, { "p.M.o", 0 }, { "p.M.E", 0 }, { "p.M.V", 0 }, { "p.e", 0 },
		{ "M", 1 }, { "g", 1 }, { "S", 1 }, { "S.Do", 1 },
		{ "p", -1 }, { "p.", -1 }, { "p.M.", -1 }, { "p.M.E.V", -1 }, { "e", -1 }, { "M.In", -1 }, { "p.S", -1 }, { "S.Done", -1 },
		{ "", -1 }, { ".", -1 }, { "p..M", -1 },
	};
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (descriptors_symbol(&d, wanted[i].name) != wanted[i].file)
			fail_msg("%s is in file %d", wanted[i].name, descriptors_symbol(&d, wanted[i].name));
	assert_true(descriptors_has_message(&d, "p.M") && descriptors_has_message(&d, "p.M.In") && descriptors_has_message(&d, "M"));
	assert_false(descriptors_has_message(&d, "p.M.E") || descriptors_has_message(&d, "S") || descriptors_has_message(&d, "p.N"));
	assert_int_equal(descriptors_extension(&d, "p.M", 100), 0);
	assert_int_equal(descriptors_extension(&d, "p.M", 200), 0);
	assert_int_equal(descriptors_extension(&d, "p.M", 536870911), 1);
	assert_int_equal(descriptors_extension(&d, "p.M", 101), -1);
	assert_int_equal(descriptors_extension(&d, "M", 100), -1);
	assert_int_equal(descriptors_extensions(&d, "p.M", numbers), 3);
	assert_true(numbers[0] + numbers[1] == 300 && numbers[2] == 536870911);
	assert_int_equal(descriptors_extensions(&d, "M", numbers), 0);
	assert_int_equal(descriptors_closure(&d, 0), 1);
	assert_int_equal(descriptors_closure(&d, 1), 3);
	assert_int_equal(descriptors_file(&d, "b.proto"), 1);
	assert_int_equal(descriptors_file(&d, "b.prot"), -1);
	/* A set that is cut short is refused, and nothing reads past its end. */
	for (size_t n = 0; n < buf_len(&set); n++) {
		uint8_t *copy = malloc(n ? n : 1);
		memcpy(copy, buf_head(&set), n);
		if (descriptors_init(&d, copy, n) == 0) {
			assert_true(n == 0 || d.n == 1);
			(void)descriptors_symbol(&d, "p.M.In.f");
		}
		free(copy);
	}
	buf_done(&set);
}

static void more_files_than_fit(void **state)
{
	struct buf set;
	struct descriptors d;
	buf_init(&set, 65536);
	for (int i = 0; i < DESCRIPTORS_FILES_MAX; i++)
		put(&set, 1, part("x.proto"));
	assert_int_equal(descriptors_init(&d, buf_head(&set), buf_len(&set)), 0);
	put(&set, 1, part("y.proto"));
	assert_int_equal(descriptors_init(&d, buf_head(&set), buf_len(&set)), -EINVAL);
	buf_done(&set);
}

/* Each file comes after those that it imports, each import is there, and each service of the table is described. */
static void what_is_served(void **state)
{
	struct descriptors d;
	assert_int_equal(descriptors_init(&d, reins_descriptor_set, reins_descriptor_set_len), 0);
	assert_true(d.n > 10);
	for (size_t i = 0; i < rpc_n_methods; i++) {
		char name[200];
		snprintf(name, sizeof(name), "%s", rpc_methods[i].path + 1);
		*strchr(name, '/') = '.';
		if (descriptors_symbol(&d, name) < 0)
			fail_msg("%s is not described", name);
	}
	for (size_t i = 0; i < d.n; i++) {
		const uint8_t *p = d.at[i].file.data, *end = p + d.at[i].file.len;
		struct wire_field f;
		while (wire_next(&p, end, &f)) {
			char import[200];
			if (f.number != 3)
				continue;
			snprintf(import, sizeof(import), "%.*s", (int)f.len, (const char *)f.data);
			int at = descriptors_file(&d, import);
			assert_true(at >= 0 && (size_t)at < i);
			assert_true(descriptors_closure(&d, (int)i) & UINT64_C(1) << at);
		}
		assert_ptr_equal(p, end);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(symbols_and_extensions), cmocka_unit_test(more_files_than_fit),
					    cmocka_unit_test(what_is_served) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Tokens, the tokens file, the table of methods, and the count of failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/auth/tokens.h"
#include "common/base/clock.h"
#include "common/log/log.h"
#include "server/auth/access.h"
#include "server/auth/audit.h"
#include "server/auth/failures.h"

#define D64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void a_token_is_read_back(void **state)
{
	struct token made, read, other;
	char text[TOKEN_TEXT_MAX + 1], again[TOKEN_TEXT_MAX + 1];
	assert_int_equal(token_make(&made, text), 0);
	assert_int_equal(strlen(text), 6 + TOKEN_ID_MADE + 1 + TOKEN_SECRET_LEN);
	assert_int_equal(token_parse(text, strlen(text), &read), 0);
	assert_string_equal(read.id, made.id);
	assert_true(token_same_digest(read.digest, made.digest));
	assert_int_equal(token_make(&other, again), 0);
	assert_string_not_equal(text, again);
	assert_false(token_same_digest(other.digest, made.digest));
}

static void what_is_no_token(void **state)
{
	static const char *const texts[] = {
		"", "reins_", "reins_abcd_", "reins_abcd_" D64 "0", "reins_abc_" D64, "reins_ABCD_" D64, "reins_ab-d_" D64, "rains_abcd_" D64,
		"reins_abcd-" D64, " reins_abcd_" D64, "reins_abcd_" "0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
		"reins_abcdefghijklmnopqrstuvwxyz0123456_" D64,
	};
	struct token t = { .id = "kept" };
	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		assert_int_equal(token_parse(texts[i], strlen(texts[i]), &t), -EINVAL);
	assert_string_equal(t.id, "kept");
	assert_int_equal(token_parse("reins_abcd_" D64, 11 + 64, &t), 0);
	/* sha256 of the 64 digits, as sha256sum has it */
	assert_int_equal(t.digest[0], 0xa8);
	assert_int_equal(t.digest[31], 0x8e);
}

static struct tokens *parse(const char *text)
{
	struct tokens *t = NULL;
	char err[300] = "";
	if (tokens_parse(text, strlen(text), err, sizeof(err), &t))
		fail_msg("%s", err);
	return t;
}

static void who_is_in_the_file(void **state)
{
	struct tokens *t = parse("# people\n\n  \t\n"
				 "token aaaa " D64 " name=alice roles=reader,submitter expires=2027-01-31 queues=a,b\r\n"
				 "\ttoken bbbb  " D64 "\troles=worker worker=gpu-* name=w expires=2027-01-31T01:02:03Z  \n"
				 "cert spiffe://x/worker/* roles=worker\n"
				 "cert spiffe://x/worker/boss roles=admin name=boss\n"
				 "cert * roles=reader\n"
				 "cert spiffe://x/worker/c* roles=operator");
	struct principal *p = tokens_find(t, "aaaa");
	assert_string_equal(p->name, "alice");
	assert_int_equal(p->roles, ROLE_READER | ROLE_SUBMITTER);
	assert_int_equal(p->line, 4);
	assert_true(p->ends_wall_us == INT64_C(1801353600) * 1000000);
	assert_true(!principal_ended(p, p->ends_wall_us - 1) && principal_ended(p, p->ends_wall_us));
	assert_true(principal_has_queue(p, "a") && principal_has_queue(p, "b"));
	assert_false(principal_has_queue(p, "a,b") || principal_has_queue(p, "") || principal_has_queue(p, "c") || principal_has_queue(p, "bb"));
	assert_false(principal_is_worker(p, "alice"));
	p = tokens_find(t, "bbbb");
	assert_true(p->ends_wall_us == INT64_C(1801357323) * 1000000);
	assert_true(principal_has_queue(p, "anything"));
	assert_true(principal_is_worker(p, "gpu-") && principal_is_worker(p, "gpu-17"));
	assert_false(principal_is_worker(p, "gpu") || principal_is_worker(p, "cpu-1"));
	assert_null(tokens_find(t, "cccc"));
	assert_int_equal(tokens_find_cert(t, "spiffe://x/worker/boss")->roles, ROLE_ADMIN);
	assert_int_equal(tokens_find_cert(t, "spiffe://x/worker/boss2")->roles, ROLE_WORKER);
	assert_int_equal(tokens_find_cert(t, "host")->roles, ROLE_READER);
	assert_int_equal(tokens_find_cert(t, "spiffe://x/worker/c1")->roles, ROLE_OPERATOR); /* the longest, wherever it stands */
	assert_int_equal(t->n, 6);
	/* An entry outlives its table. */
	p = principal_ref(tokens_find(t, "aaaa"));
	tokens_free(t);
	assert_string_equal(p->name, "alice");
	principal_unref(p);
}

/* Of two entries: who may what both may. */
static void what_both_may(void **state)
{
	static const struct {
		const char *token, *cert;
		unsigned roles;
		const char *queues; /* NULL: all */
		int64_t ends_wall_us;
	} rows[] = {
		{ "roles=reader,submitter", "roles=submitter,operator", ROLE_SUBMITTER, NULL, 0 },
		{ "roles=admin", "roles=reader,operator", ROLE_READER | ROLE_OPERATOR, NULL, 0 },
		{ "roles=reader", "roles=admin", ROLE_READER, NULL, 0 },
		{ "roles=admin", "roles=admin", ROLE_ADMIN * 2 - 1, NULL, 0 },
		{ "roles=reader", "roles=operator", 0, NULL, 0 },
		{ "roles=reader queues=a,bb,c", "roles=reader", ROLE_READER, ",a,bb,c,", 0 },
		{ "roles=reader", "roles=reader queues=b", ROLE_READER, ",b,", 0 },
		{ "roles=reader queues=a,bb,c", "roles=reader queues=c,b,a", ROLE_READER, ",a,c,", 0 },
		{ "roles=reader queues=a", "roles=reader queues=b", ROLE_READER, ",", 0 },
		{ "roles=reader expires=1970-01-03", "roles=reader expires=1970-01-02", ROLE_READER, NULL, INT64_C(86400000000) },
		{ "roles=reader", "roles=reader expires=1970-01-02", ROLE_READER, NULL, INT64_C(86400000000) },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[400];
		snprintf(text, sizeof(text), "token aaaa " D64 " name=x %s\ncert y %s\n", rows[i].token, rows[i].cert);
		struct tokens *t = parse(text);
		struct principal *p = principal_both(tokens_find(t, "aaaa"), tokens_find_cert(t, "y"));
		tokens_free(t);
		assert_string_equal(p->name, "x");
		assert_string_equal(p->id, "aaaa");
		assert_int_equal(p->roles, rows[i].roles);
		assert_true(p->ends_wall_us == rows[i].ends_wall_us);
		if (rows[i].queues)
			assert_string_equal(p->queues, rows[i].queues);
		else
			assert_null(p->queues);
		assert_false(principal_has_queue(p, "") && p->queues);
		principal_unref(p);
	}
}

static void a_line_is_written_as_it_is_read(void **state)
{
	static const char *const lines[] = {
		"token aaaa " D64 " name=alice roles=reader,submitter,worker,operator,admin expires=2027-01-31T01:02:03Z queues=a,b worker=x*\n",
		"cert spiffe://x/* roles=reader\n",
		"cert host.example name=n roles=operator worker=*\n",
	};
	for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
		struct principal *p;
		char err[300];
		assert_int_equal(principal_parse(lines[i], strlen(lines[i]) - 1, err, sizeof(err), &p), 0);
		char *text = principal_format(p);
		assert_string_equal(text, lines[i]);
		free(text);
		principal_unref(p);
	}
}

static void what_is_wrong_with_a_line(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{ "user x", "line 1: \"user\": token or cert must stand first" },
		{ "\n# \ntoken", "line 3: the token's id is missing" },
		{ "token ab! x", "not of 4 to 32" },
		{ "token aaaa", "SHA-256 is not of 64 digits" },
		{ "token aaaa 0123", "SHA-256 is not of 64 digits" },
		{ "token aaaa " D64, "roles= is missing" },
		{ "token aaaa " D64 " roles=reader", "name= is missing" },
		{ "token aaaa " D64 " name=x roles=worker", "worker= is missing" },
		{ "token aaaa " D64 " name=x roles=", "roles: \"\" is none" },
		{ "token aaaa " D64 " name=x roles=reader,king", "roles: \"king\" is none; reader, submitter" },
		{ "token aaaa " D64 " name=x roles=reader roles=admin", "roles: given twice" },
		{ "token aaaa " D64 " name=x name=y roles=reader", "name: given twice" },
		{ "token aaaa " D64 " name= roles=reader", "name: not 1 to 255" },
		{ "token aaaa " D64 " name=x roles=reader admin", "\"admin\": a word of the form key=value" },
		{ "token aaaa " D64 " name=x roles=reader role=admin", "\"role\" is not known" },
		{ "token aaaa " D64 " name=x roles=reader expires=2027-02-30", "\"2027-02-30\" is no time" },
		{ "token aaaa " D64 " name=x roles=reader expires=tomorrow", "is no time" },
		{ "token aaaa " D64 " name=x roles=reader expires=2027-01-01T25:00:00Z", "is no time" },
		{ "token aaaa " D64 " name=x roles=reader queues=a,,b", "queues: \"\" is no name" },
		{ "token aaaa " D64 " name=x roles=worker worker=a*b", "worker: not the id" },
		{ "cert", "the certificate's name is missing" },
		{ "cert a*b roles=reader", "not the name of a certificate" },
		{ "cert x name=y", "cert x: roles= is missing" },
		{ "cert x roles=reader\ncert x roles=admin", "line 2: cert x: it stands in line 1 already" },
		{ "cert x* roles=reader\ncert x* roles=admin", "line 2: cert x*: it stands in line 1 already" },
		{ "token aaaa " D64 " name=x roles=reader\ntoken aaaa " D64 " name=y roles=reader", "line 2: token aaaa: it stands in line 1" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct tokens *t = NULL;
		char err[300] = "";
		assert_int_equal(tokens_parse(cases[i].text, strlen(cases[i].text), err, sizeof(err), &t), -EINVAL);
		if (!strstr(err, cases[i].said))
			fail_msg("\"%s\": said \"%s\", not \"%s\"", cases[i].text, err, cases[i].said);
		assert_null(t);
	}
}

static void the_file_is_bounded(void **state)
{
	struct tokens *t = NULL;
	char err[300];
	char *text = malloc(TOKENS_FILE_MAX + 2);
	memset(text, '#', TOKENS_FILE_MAX + 1);
	assert_int_equal(tokens_parse(text, TOKENS_FILE_MAX + 1, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "larger than"));
	assert_int_equal(tokens_parse(text, TOKENS_LINE_MAX + 1, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "line 1: longer than"));
	assert_int_equal(tokens_parse("#\0", 2, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "a NUL"));
	size_t n = 0;
	for (int i = 0; i <= TOKENS_PREFIXES_MAX; i++)
		n += (size_t)snprintf(text + n, TOKENS_FILE_MAX + 2 - n, "cert c%d-* roles=reader\n", i);
	assert_int_equal(tokens_parse(text, n, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "line 101: more than 100 certificates with a *"));
	free(text);
}

static void a_file_that_others_may_write(void **state)
{
	char path[] = "/tmp/reins-tokens-XXXXXX", err[400];
	struct tokens *t = NULL;
	int fd = mkstemp(path);
	assert_true(fd >= 0 && fchmod(fd, 0646) == 0);
	assert_int_equal(write(fd, "#\n", 2), 2);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "anybody may write it"));
	assert_true(fchmod(fd, 0644) == 0);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), 0);
	tokens_free(t);
	close(fd);
	unlink(path);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "No such file"));
}

/* What has nothing to say the second time it is read would lock everybody out. */
static void no_ordinary_file(void **state)
{
	char path[] = "/tmp/reins-tokens-XXXXXX", err[400];
	struct tokens *t = NULL;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "not an ordinary file"));
	unlink(path);
	assert_int_equal(tokens_read("/dev/null", err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "not an ordinary file"));
	assert_int_equal(tokens_read("/tmp", err, sizeof(err), &t), -EINVAL);
}

/* Whoever writes it anew begins with an empty one. */
static void an_empty_file(void **state)
{
	char path[] = "/tmp/reins-tokens-XXXXXX", err[400];
	struct tokens *t = NULL;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), -EINVAL);
	assert_non_null(strstr(err, "the file is empty"));
	assert_int_equal(write(fd, "# nobody\n", 9), 9);
	assert_int_equal(tokens_read(path, err, sizeof(err), &t), 0);
	assert_int_equal(t->n, 0);
	tokens_free(t);
	close(fd);
	unlink(path);
}

/* Whoever writes it anew may be half through: nobody has more rights then, or other ones. */
static void a_file_cut_anywhere(void **state)
{
	static const char text[] = "# people\n"
				   "token aaaa " D64 " name=alice roles=reader,admin expires=2027-01-31T12:00:00Z queues=a,ab worker=gpu-1*\n"
				   "cert spiffe://x/worker/* roles=worker name=w expires=2027-01-31 queues=a\r\n";
	char path[] = "/tmp/reins-tokens-XXXXXX", err[400];
	struct tokens *whole = parse(text), *t;
	int fd = mkstemp(path), good = 0;
	assert_true(fd >= 0);
	for (size_t n = 1; n < sizeof(text); n++) {
		assert_int_equal(pwrite(fd, text, n, 0), n);
		if (tokens_read(path, err, sizeof(err), &t)) {
			assert_non_null(strstr(err, TOKENS_CUT));
			continue;
		}
		good++;
		for (size_t i = 0; i < t->n; i++) {
			assert_true(principal_same(t->all[i], whole->all[i]));
			assert_int_equal(t->all[i]->ends_wall_us, whole->all[i]->ends_wall_us);
		}
		tokens_free(t);
	}
	assert_int_equal(good, 3); /* at the ends of lines: who is missing is out until all is there */
	tokens_free(whole);
	close(fd);
	unlink(path);
}

static void a_token_in_a_file(void **state)
{
	static const struct {
		const char *in, *out;
	} cases[] = {
		{ "reins_x\n", "reins_x" }, { "  other.token/+=  \r\n\n", "other.token/+=" }, { "", NULL }, { "\n", NULL }, { "two words", NULL },
		{ "a\001b", NULL },
	};
	char path[] = "/tmp/reins-token-XXXXXX", err[400], text[TOKEN_SHOWN_MAX + 1];
	int fd = mkstemp(path);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_true(ftruncate(fd, 0) == 0 && pwrite(fd, cases[i].in, strlen(cases[i].in), 0) == (ssize_t)strlen(cases[i].in));
		int rc = token_read_file(path, text, err, sizeof(err));
		assert_int_equal(rc, cases[i].out ? 0 : -EINVAL);
		if (cases[i].out)
			assert_string_equal(text, cases[i].out);
	}
	char *large = calloc(1, TOKEN_SHOWN_MAX + 1);
	memset(large, 'x', TOKEN_SHOWN_MAX + 1);
	assert_true(pwrite(fd, large, TOKEN_SHOWN_MAX, 0) == TOKEN_SHOWN_MAX);
	assert_int_equal(token_read_file(path, text, err, sizeof(err)), 0);
	assert_true(pwrite(fd, large, TOKEN_SHOWN_MAX + 1, 0) == TOKEN_SHOWN_MAX + 1);
	assert_int_equal(token_read_file(path, text, err, sizeof(err)), -EINVAL);
	free(large);
	close(fd);
	unlink(path);
	assert_int_equal(token_read_file(path, text, err, sizeof(err)), -EINVAL);
}

static void the_table_is_sorted_and_whole(void **state)
{
	for (size_t i = 0; i < access_n_rows; i++) {
		assert_ptr_equal(access_find(access_rows[i].path), &access_rows[i]);
		assert_true(access_rows[i].who != 0);
		assert_true(access_allows(&access_rows[i], ROLE_ADMIN));
		assert_true(i == 0 || strcmp(access_rows[i - 1].path, access_rows[i].path) < 0);
	}
	assert_null(access_find("/reins.v1.TaskService/Nothing"));
	const struct access_row *row = access_find("/reins.v1.TaskService/SubmitTask");
	assert_true(row->changes && access_allows(row, ROLE_SUBMITTER) && access_allows(row, ROLE_READER | ROLE_SUBMITTER));
	assert_false(access_allows(row, ROLE_READER | ROLE_WORKER | ROLE_OPERATOR) || access_allows(row, 0));
	assert_true(access_allows(access_find("/reins.v1.AdminService/GetServerInfo"), ROLE_WORKER));
}

static void failures_are_counted_by_address(void **state)
{
	static struct failures f;
	int passed = 0;
	failures_init(&f, 7);
	for (int i = 0; i < 100; i++) {
		char peer[64];
		snprintf(peer, sizeof(peer), "10.0.0.1:%d", i);
		passed += failures_add(&f, peer, NS_PER_S);
	}
	assert_int_equal(passed, FAILURES_PER_S);
	assert_true(failures_add(&f, "10.0.0.2:1", NS_PER_S));
	assert_true(failures_add(&f, "[::1]:1", NS_PER_S));
	assert_true(failures_add(&f, "10.0.0.1:5", NS_PER_S + NS_PER_S / FAILURES_PER_S));
	assert_false(failures_add(&f, "10.0.0.1:5", NS_PER_S + NS_PER_S / FAILURES_PER_S));
	/* More addresses than there are places: some are forgotten, none is refused for others. */
	for (int i = 0; i < 10 * FAILURES_ADDRESSES; i++) {
		char peer[64];
		snprintf(peer, sizeof(peer), "10.1.%d.%d:1", i >> 8, i & 255);
		assert_true(failures_add(&f, peer, 3 * NS_PER_S));
	}
}

static const struct audit_line LINE = { "alice", "10.0.0.1:5", "reins.v1.TaskService/CancelTask", "task=\"x\"\n", "OK", "r-1" };

static size_t file_size(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 ? (size_t)st.st_size : 0;
}

/* A disk that is full, then one that is not: bounded, and what was lost is told. */
static void the_audit_is_bounded(void **state)
{
	char folder[] = "/tmp/reins-audit-XXXXXX", path[64], target[64], err[200];
	struct audit *a;
	struct loop *loop;
	log_setup(LOG_SILENT, LOG_TEXT);
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/audit", folder);
	snprintf(target, sizeof(target), "%s/target", folder);
	assert_int_equal(symlink("/dev/full", path), 0);
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(audit_new(loop, path, err, sizeof(err), &a), 0);
	for (int i = 0; i < 20000; i++) {
		audit_add(a, &LINE);
		if (i % 1000 == 0)
			loop_turn(loop, false);
	}
	struct audit_stats s = audit_stats(a);
	assert_int_equal(s.lines, 20000);
	assert_true(s.lost > 1000 && s.lost < 19000);
	/* The file is another now. */
	assert_true(unlink(path) == 0 && symlink(target, path) == 0);
	assert_int_equal(audit_reopen(a, err, sizeof(err)), 0);
	audit_add(a, &LINE); /* no room yet: what waits goes first */
	loop_turn(loop, false);
	assert_true(file_size(target) > AUDIT_BUFFER - 1000 && file_size(target) <= AUDIT_BUFFER);
	audit_add(a, &LINE);
	loop_turn(loop, false);
	char tail[40] = "", want[40];
	int fd = open(target, O_RDONLY);
	assert_true(pread(fd, tail, sizeof(tail) - 1, (off_t)file_size(target) - 22) == 22);
	close(fd);
	snprintf(want, sizeof(want), "_before\":%lld}\n", (long long)s.lost + 1);
	assert_non_null(strstr(tail, want));
	/* A name out of a certificate may be any bytes. */
	struct audit_line strange = LINE;
	strange.principal = "\xff\xfe";
	size_t before = file_size(target);
	int64_t lost = audit_stats(a).lost;
	audit_add(a, &strange);
	loop_turn(loop, false);
	assert_int_equal(audit_stats(a).lost, lost);
	assert_true(file_size(target) > before + 100);
	size_t whole = file_size(target);
	audit_add(a, &LINE);
	loop_turn(loop, false);
	size_t one = file_size(target) - whole;
	assert_true(one > 100 && one < 300);
	assert_true(unlink(path) == 0 && symlink("/nowhere/x", path) == 0);
	assert_int_equal(audit_reopen(a, err, sizeof(err)), -EINVAL);
	audit_add(a, &LINE); /* in the one of before */
	audit_free(a);
	assert_int_equal(file_size(target), whole + 2 * one);
	loop_free(loop);
	unlink(path);
	unlink(target);
	rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_is_read_back),
		cmocka_unit_test(what_is_no_token),
		cmocka_unit_test(who_is_in_the_file),
		cmocka_unit_test(what_both_may),
		cmocka_unit_test(a_line_is_written_as_it_is_read),
		cmocka_unit_test(what_is_wrong_with_a_line),
		cmocka_unit_test(the_file_is_bounded),
		cmocka_unit_test(a_file_that_others_may_write),
		cmocka_unit_test(no_ordinary_file),
		cmocka_unit_test(an_empty_file),
		cmocka_unit_test(a_file_cut_anywhere),
		cmocka_unit_test(a_token_in_a_file),
		cmocka_unit_test(the_table_is_sorted_and_whole),
		cmocka_unit_test(failures_are_counted_by_address),
		cmocka_unit_test(the_audit_is_bounded),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

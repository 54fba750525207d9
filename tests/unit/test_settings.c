/* Settings as a program and its user see them: values in the struct, words on stdout and stderr. */
#include "common/settings/settings.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct conf {
	bool insecure;
	int64_t slots, priority, ttl, size;
	char *store, *token;
	struct setting_list servers, listen;
};

#define AT(f) offsetof(struct conf, f)
static const struct setting table[] = {
	{ .name = "insecure", .type = SETTING_BOOL, .offset = AT(insecure), .help = "Allow clear text.", .group = "Network" },
	{ .name = "listen", .type = SETTING_LIST, .offset = AT(listen), .default_text = "127.0.0.1:7346",
	  .help = "Where to listen.", .value_name = "ADDR" },
	{ .name = "server", .type = SETTING_LIST, .offset = AT(servers), .split = true, .help = "Masters." },
	{ .name = "slots", .type = SETTING_INT, .offset = AT(slots), .default_text = "4", .group = "Work",
	  .help = "How many." },
	{ .name = "priority", .type = SETTING_INT, .offset = AT(priority), .min = -1000, .max = 1000,
	  .help = "Higher runs first; a sentence long enough that it has to be wrapped, with a word in it that is "
		  "not short: incomprehensibilities, and an umlaut or two: \xc3\xa4\xc3\xb6\xc3\xbc." },
	{ .name = "lease-ttl", .type = SETTING_DURATION, .offset = AT(ttl), .default_text = "10s",
	  .min = NS_PER_S, .max = 3600 * NS_PER_S, .help = "The lease." },
	{ .name = "message-limit", .type = SETTING_SIZE, .offset = AT(size), .default_text = "4MiB", .help = "Bytes." },
	{ .name = "store", .type = SETTING_STRING, .offset = AT(store), .default_text = "sqlite:reins.db",
	  .help = "The store.", .value_name = "URL" },
	{ .name = "token", .type = SETTING_STRING, .offset = AT(token), .secret = true, .default_text = "s3cret-default",
	  .help = "The token." },
};

static const struct settings_program prog = {
	.name = "reinsd", .summary = "The master of Reins.", .usage = "reinsd [flags]\nreinsd do ID",
	.table = table, .n = ARRAY_LEN(table), .env = true,
	.examples = "For example:\n  reinsd   --as it stands\n",
};

static char out[1 << 16], err[1 << 16];
static char file_path[] = "/tmp/reins-settings-XXXXXX";

static void redirect(int fd, int *saved, int *file)
{
	char path[] = "/tmp/reins-capture-XXXXXX";
	*saved = dup(fd);
	*file = mkstemp(path);
	assert_true(*file >= 0);
	unlink(path);
	dup2(*file, fd);
}

static void restore(int fd, int saved, int file, char *text, size_t cap)
{
	dup2(saved, fd);
	close(saved);
	ssize_t n = pread(file, text, cap - 1, 0);
	close(file);
	text[n < 0 ? 0 : n] = '\0';
}

#define LOAD(conf, ...) load(conf, NULL, NULL, (char *[]){ "reinsd", __VA_ARGS__, NULL })
static enum settings_outcome load(struct conf *conf, char ***rest, int *n_rest, char **argv)
{
	int argc = 0, saved1, saved2, file1, file2;
	while (argv[argc])
		argc++;
	memset(conf, 0, sizeof(*conf));
	fflush(stdout);
	redirect(1, &saved1, &file1);
	redirect(2, &saved2, &file2);
	enum settings_outcome o = settings_load(&prog, argc, argv, conf, rest, n_rest);
	fflush(stdout);
	restore(1, saved1, file1, out, sizeof(out));
	restore(2, saved2, file2, err, sizeof(err));
	return o;
}

static char *file_with(const char *text)
{
	FILE *f = fopen(file_path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return file_path;
}

static void assert_error(const char *expect)
{
	if (!strstr(err, expect))
		fail_msg("expected \"%s\" in: %s", expect, err);
	assert_ptr_equal(strchr(err, '\n'), err + strlen(err) - 1);
}

static void defaults(void **state)
{
	struct conf c;
	assert_int_equal(LOAD(&c, NULL), SETTINGS_RUN);
	assert_false(c.insecure);
	assert_int_equal(c.slots, 4);
	assert_int_equal(c.priority, 0);
	assert_int_equal(c.ttl, 10 * NS_PER_S);
	assert_int_equal(c.size, 4 << 20);
	assert_string_equal(c.store, "sqlite:reins.db");
	assert_int_equal(c.listen.len, 1);
	assert_int_equal(c.servers.len, 0);
	assert_string_equal(out, "");
	assert_string_equal(err, "");
	settings_done(&prog, &c);
	settings_done(&prog, &c);
	assert_null(c.store);
}

static void precedence(void **state)
{
	struct conf c;
	char *file = file_with("# all four\n\n  slots = 5\nlease-ttl=20s\nstore = file:#x = y \nlisten = f:1\nlisten = f:2\n");
	assert_int_equal(LOAD(&c, "--config", file), SETTINGS_RUN);
	assert_int_equal(c.slots, 5);
	assert_int_equal(c.ttl, 20 * NS_PER_S);
	assert_string_equal(c.store, "file:#x = y");
	assert_int_equal(c.listen.len, 2);
	settings_done(&prog, &c);

	setenv("REINS_LEASE_TTL", "30s", 1);
	setenv("REINS_SLOTS", "6", 1);
	setenv("REINS_STORE", "", 1);
	setenv("REINS_NO_SUCH", "x", 1);
	setenv("REINS_CONFIG", file, 1);
	assert_int_equal(LOAD(&c, "--lease-ttl=40s", "--listen", "a:1", "--listen", "b,c:2"), SETTINGS_RUN);
	unsetenv("REINS_LEASE_TTL");
	unsetenv("REINS_SLOTS");
	unsetenv("REINS_STORE");
	unsetenv("REINS_CONFIG");
	assert_int_equal(c.ttl, 40 * NS_PER_S);
	assert_int_equal(c.slots, 6);
	assert_string_equal(c.store, "file:#x = y");
	assert_int_equal(c.listen.len, 2);
	assert_string_equal(c.listen.at[0], "a:1");
	assert_string_equal(c.listen.at[1], "b,c:2");
	settings_done(&prog, &c);
}

static void without_environment(void **state)
{
	struct settings_program p = prog;
	struct conf c = { 0 };
	p.env = false;
	setenv("REINS_SLOTS", "6", 1);
	enum settings_outcome o = settings_load(&p, 1, (char *[]){ "reins", NULL }, &c, NULL, NULL);
	unsetenv("REINS_SLOTS");
	assert_int_equal(o, SETTINGS_RUN);
	assert_int_equal(c.slots, 4);
	settings_done(&p, &c);
}

static void flags(void **state)
{
	struct conf c;
	assert_int_equal(LOAD(&c, "--insecure", "--priority", "-5", "--server", "a,b", "--server=c", "--store="),
			 SETTINGS_RUN);
	assert_true(c.insecure);
	assert_int_equal(c.priority, -5);
	assert_int_equal(c.servers.len, 3);
	assert_string_equal(c.servers.at[2], "c");
	assert_string_equal(c.store, "");
	settings_done(&prog, &c);
	assert_int_equal(LOAD(&c, "--insecure=false"), SETTINGS_RUN);
	assert_false(c.insecure);
	settings_done(&prog, &c);
}

static void rest(void **state)
{
	struct conf c;
	char **r;
	int n;
	char *argv[] = { "reins", "submit", "--slots", "2", "-", "--", "python", "--slots", "9", "--", NULL };
	assert_int_equal(load(&c, &r, &n, argv), SETTINGS_RUN);
	assert_int_equal(c.slots, 2);
	assert_int_equal(n, 6);
	assert_ptr_equal(r[0], argv[1]);
	assert_string_equal(r[1], "-");
	assert_string_equal(r[2], "python");
	assert_string_equal(r[5], "--");
	free(r);
	settings_done(&prog, &c);
	assert_int_equal(LOAD(&c, "submit"), SETTINGS_EXIT_64);
	assert_error("unexpected argument \"submit\"");
}

static void mistakes(void **state)
{
	struct conf c;
	static const struct {
		char *arg[2];
		const char *expect;
	} cases[] = {
		{ { "--leese-ttl=5s" }, "reinsd: unknown flag --leese-ttl; did you mean --lease-ttl?" },
		{ { "--confg=x" }, "did you mean --config?" },
		{ { "--prio=1" }, "did you mean --priority?" },
		{ { "--zebra" }, "unknown flag --zebra; see --help" },
		{ { "-x" }, "unknown flag -x" },
		{ { "--slots=1", "--slots=2" }, "--slots 2: given twice" },
		{ { "--insecure", "--insecure" }, "reinsd: --insecure: given twice" },
		{ { "--slots" }, "--slots: needs a value" },
		{ { "--slots", "--insecure" }, "--slots: needs a value" },
		{ { "--slots=-1" }, "--slots -1: out of range; allowed: a whole number, not below 0" },
		{ { "--slots=4x" }, "--slots 4x: not of the right form; allowed: a whole number" },
		{ { "--priority=1001" }, "allowed: a whole number, from -1000 to 1000" },
		{ { "--lease-ttl=5" }, "--lease-ttl 5: not of the right form; allowed: a duration" },
		{ { "--lease-ttl=500ms" }, "--lease-ttl 500ms: out of range; allowed: a duration such as 2s, 150ms or 1.5m, "
					  "from 1s to 1h" },
		{ { "--message-limit=4MB" }, "allowed: a size such as" },
		{ { "--insecure=yes" }, "allowed: true or false" },
		{ { "--server=a,,b" }, "allowed: a list without empty items" },
		{ { "--config=/nonexistent/x" }, "--config /nonexistent/x: No such file" },
		{ { "--config=/dev/null", "--config=/dev/null" }, "given twice" },
		{ { "--config=/dev/zero" }, "larger than 1 MiB" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char *argv[] = { "reinsd", cases[i].arg[0], cases[i].arg[1], NULL };
		assert_int_equal(load(&c, NULL, NULL, argv), SETTINGS_EXIT_64);
		assert_error(cases[i].expect);
		assert_string_equal(out, "");
	}
	setenv("REINS_LEASE_TTL", "7y", 1);
	assert_int_equal(LOAD(&c, NULL), SETTINGS_EXIT_64);
	unsetenv("REINS_LEASE_TTL");
	assert_error("REINS_LEASE_TTL=7y: not of the right form");
}

static void file_mistakes(void **state)
{
	struct conf c;
	static const char *const cases[][2] = {
		{ "# c\nslots = 1\nlease-tll = 1s\n", ":3: unknown setting \"lease-tll\"; did you mean lease-ttl?" },
		{ "\n\nslots\n", ":3: not of the form" },
		{ "slots = 1\r\nslots = 2\r\n", ":2: slots = 2: given twice" },
		{ "\nlease-ttl = 5\n", ":2: lease-ttl = 5: not of the right form" },
		{ "slots = 9999999999999999999999", ":1: slots = 9999999999999999999999: out of range" },
	};
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(LOAD(&c, "--config", file_with(cases[i][0])), SETTINGS_EXIT_64);
		char expect[300];
		snprintf(expect, sizeof(expect), "%s%s", file_path, cases[i][1]);
		assert_error(expect);
	}
	FILE *f = fopen(file_path, "we");
	fwrite("slots = 1\nst\0re = x\n", 1, 20, f);
	fclose(f);
	assert_int_equal(LOAD(&c, "--config", file_path), SETTINGS_EXIT_64);
	assert_error(":2: holds a NUL byte");
}

static void secrets(void **state)
{
	struct conf c;
	assert_int_equal(LOAD(&c, "--token=hush", "--token=hush2"), SETTINGS_EXIT_64);
	assert_error("--token (hidden): given twice");
	assert_null(strstr(err, "hush"));
	assert_int_equal(LOAD(&c, "--tokn=hush"), SETTINGS_EXIT_64);
	assert_null(strstr(err, "hush"));
	assert_int_equal(LOAD(&c, "--config", file_with("token = hush\ntoken = hush\n")), SETTINGS_EXIT_64);
	assert_null(strstr(err, "hush"));
	assert_int_equal(LOAD(&c, "--config", file_with("token hush\n")), SETTINGS_EXIT_64);
	assert_null(strstr(err, "hush"));
	assert_int_equal(LOAD(&c, "--help"), SETTINGS_EXIT_0);
	assert_null(strstr(out, "s3cret"));
}

static void help(void **state)
{
	struct conf c;
	assert_int_equal(LOAD(&c, "--help"), SETTINGS_EXIT_0);
	assert_string_equal(err, "");
	_cleanup_free_ char *text = settings_help(&prog);
	assert_string_equal(text, out);
	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		char flag[80];
		snprintf(flag, sizeof(flag), "\n  --%s", table[i].name);
		if (!strstr(text, flag))
			fail_msg("--%s is not in the help", table[i].name);
	}
	assert_non_null(strstr(text, "The master of Reins."));
	assert_non_null(strstr(text, "Usage: reinsd [flags]\n       reinsd do ID\n"));
	assert_non_null(strstr(text, "\nFor example:\n  reinsd   --as it stands\n\n"));
	assert_non_null(strstr(text, "\nNetwork:\n"));
	assert_non_null(strstr(text, "\nWork:\n"));
	assert_non_null(strstr(text, "  --store URL\n      The store.\n      Default: sqlite:reins.db\n"));
	assert_non_null(strstr(text, "Allowed: from 1s to 1h. Default: 10s\n"));
	size_t longest = 0;
	for (const char *p = text; *p;) {
		size_t cols = 0;
		for (; *p != '\n'; p++)
			cols += ((unsigned char)*p & 0xc0) != 0x80;
		assert_true(p == text || p[-1] != ' ');
		longest = max_sz(longest, cols);
		p++;
	}
	assert_in_range(longest, 60, 80);
	assert_int_equal(LOAD(&c, "-h"), SETTINGS_EXIT_0);
	assert_string_equal(text, out);
	assert_int_equal(LOAD(&c, "--version"), SETTINGS_EXIT_0);
	assert_string_equal(out, "reinsd " REINS_VERSION "\n");
}

static int make_file(void **state)
{
	int fd = mkstemp(file_path);
	return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
	return unlink(file_path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults), cmocka_unit_test(precedence),    cmocka_unit_test(without_environment),
		cmocka_unit_test(flags),    cmocka_unit_test(rest),          cmocka_unit_test(mistakes),
		cmocka_unit_test(secrets),  cmocka_unit_test(file_mistakes), cmocka_unit_test(help),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}

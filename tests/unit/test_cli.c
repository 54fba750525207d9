/* The command's own logic: arguments, the request of submit, text for people, exit codes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/args.h"
#include "client/lib/status_text.h"
#include "client/output.h"
#include "client/show.h"
#include "client/spec.h"
#include "common/base/clock.h"
#include "common/grpc/details.h"
#include "common/pb/pb.h"

/* ---- arguments ---- */

static char *words(const char *const *argv, int argc)
{
	char *text = xcalloc(1, 512);
	for (int i = 1; i < argc; i++) {
		strncat(text, i > 1 ? "|" : "", 511 - strlen(text));
		strncat(text, argv[i], 511 - strlen(text));
	}
	return text;
}

static void arguments_are_made_for_the_table(void **state)
{
	static const struct {
		const char *argv[8];
		const char *made;
		int n_before;
	} rows[] = {
		{ { "reins", "status", "-o", "json", "ID" }, "--output|json|ID", 1 },
		{ { "reins", "status", "-ojson", "ID" }, "--output=json|ID", 1 },
		{ { "reins", "--server", "h:1", "status", "ID" }, "--server|h:1|ID", 1 },
		{ { "reins", "status", "--", "-o", "--server=x" }, "--|-o|--server=x", 0 },
		{ { "reins", "status", "--token", "-o", "x" }, "--token|-o|x", 1 },
		{ { "reins", "status", "-", "-f" }, "-|-f", 1 },
		{ { "reins", "status", "-x" }, "-x", 0 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int argc = 0;
		struct args a;
		while (rows[i].argv[argc])
			argc++;
		char **argv = (char **)(uintptr_t)rows[i].argv;
		int at = args_command(argc, argv);
		assert_string_equal(argv[at], "status");
		args_make(argc, argv, at, cmd_status.program, &a);
		char *made = words((const char *const *)a.argv, a.argc);
		assert_string_equal(made, rows[i].made);
		assert_int_equal(a.n_before, rows[i].n_before);
		assert_string_equal(a.argv[0], "reins status");
		assert_null(a.argv[a.argc]);
		free(made);
		args_done(&a);
	}
}

/* One that the command does not have stays as it is typed, so that the refusal names it so. */
static void a_letter_is_a_flag_of_its_command(void **state)
{
	static const struct {
		const struct command *cmd;
		const char *argv[5], *made;
	} rows[] = {
		{ &cmd_list, { "reins", "list", "-l", "a=b" }, "--label-selector|a=b" },
		{ &cmd_submit, { "reins", "submit", "-l", "a=b" }, "--label|a=b" },
		{ &cmd_submit, { "reins", "submit", "-la=b", "-f" }, "--label=a=b|-f" },
		{ &cmd_logs, { "reins", "logs", "-f", "ID" }, "--follow|ID" },
		{ &cmd_logs, { "reins", "logs", "-l", "a=b" }, "-l|a=b" },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct args a;
		args_make(4, (char **)(uintptr_t)rows[i].argv, 1, rows[i].cmd->program, &a);
		char *made = words((const char *const *)a.argv, a.argc);
		assert_string_equal(made, rows[i].made);
		free(made);
		args_done(&a);
	}
}

static void the_environment_gives_flags_that_are_not_given(void **state)
{
	static const char *const without[] = { "reins", "status", "--", "--server", NULL };
	static const char *const with[] = { "reins", "status", "--server=a", NULL };
	struct args a;
	(void)state;
	setenv("REINS_SERVER", "h:9", 1);
	args_make(4, (char **)(uintptr_t)without, 1, cmd_status.program, &a);
	char *made = words((const char *const *)a.argv, a.argc);
	assert_string_equal(made, "--server=h:9|--|--server");
	free(made);
	args_done(&a);
	args_make(3, (char **)(uintptr_t)with, 1, cmd_status.program, &a);
	made = words((const char *const *)a.argv, a.argc);
	assert_string_equal(made, "--server=a");
	free(made);
	args_done(&a);
	unsetenv("REINS_SERVER");
}

static void a_slip_finds_its_command(void **state)
{
	static const struct command *const all[] = { &cmd_submit, &cmd_status, &cmd_list,    &cmd_logs,
						     &cmd_wait,   &cmd_cancel, &cmd_workers, &cmd_drain };
	static const struct {
		const char *typed, *found;
	} rows[] = {
		{ "sumbit", "submit" }, { "stats", "status" }, { "lsit", "list" },     { "cancle", "cancel" },
		{ "log", "logs" },      { "work", "workers" }, { "frobnicate", NULL }, { "x", NULL },
		{ "", NULL },           { "thisisaverylongwordthatnobodywouldtypeforacommand", NULL },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *found = args_nearest(rows[i].typed, all, ARRAY_LEN(all));
		if (rows[i].found ? !found || strcmp(found, rows[i].found) : found != NULL)
			fail_msg("\"%s\" finds \"%s\"", rows[i].typed, found ? found : "nothing");
	}
}

/* ---- the request of submit ---- */

static struct origin somewhere = { .user = "u", .host = "h", .directory = "/d", .git_commit = "abc" };

static void cpus_are_thousandths(void **state)
{
	static const struct {
		const char *text;
		int64_t millis;
	} rows[] = { { "1", 1000 }, { "0.5", 500 }, { "1.125", 1125 }, { "64", 64000 }, { "0", 0 } };
	static const char *const bad[] = { "", "-1", "1.", ".5", "1.2345", "1e3", " 1", "1s", "0x1", "99999999999999999999" };
	int64_t v = 7;
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(spec_parse_cpus(rows[i].text, &v), 0);
		assert_int_equal(v, rows[i].millis);
	}
	v = 7;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		if (spec_parse_cpus(bad[i], &v) != -EINVAL || v != 7)
			fail_msg("\"%s\" is taken", bad[i]);
}

static void times_to_run_at(void **state)
{
	const int64_t now = 1000000;
	static const struct {
		const char *text;
		int64_t us; /* 0: not taken */
	} cases[] = {
		{ "90m", INT64_C(5401000000) },
		{ "0s", 1000000 },
		{ "2026-12-01T00:00Z", INT64_C(1796083200000000) },
		{ "2026-12-01 00:00:01Z", INT64_C(1796083201000000) },
		{ "2026-12-01 00:00Z", INT64_C(1796083200000000) },
		{ "2026-12-01T00:00:01Z", INT64_C(1796083201000000) },
		{ "", 0 }, { "90", 0 }, { "-90m", 0 }, { "tomorrow", 0 }, { "2026-12-01", 0 }, { "2026-12-01T00:00", 0 },
		{ "2026-02-30T08:00Z", 0 }, { "2026-12-01T24:00Z", 0 }, { "2026-12-01T00:00Z!", 0 },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		int64_t us = 0;
		int r = spec_parse_time(cases[i].text, now, &us);
		if (r != (cases[i].us ? 0 : -EINVAL) || us != cases[i].us)
			fail_msg("\"%s\": %d, %lld", cases[i].text, r, (long long)us);
	}
}

/* What a server's refusal becomes for a person. */
static struct client_error told(const struct refusal *r)
{
	uint8_t bytes[DETAILS_STATUS_CAP];
	struct grpc_status status = { .code = r->code, .details = bytes, .details_len = details_status(r, bytes) };
	snprintf(status.message, sizeof status.message, "%s", r->message);
	struct client_error e;
	status_text(&status, &e);
	return e;
}

static void details_are_told_in_words(void **state)
{
	struct refusal r;
	(void)refuse(&r, STATUS_NOT_FOUND, "task_id", "task_id: no such task");
	(void)refuse_reason(&r, REASON_TASK_NOT_FOUND);
	(void)refuse_resource(&r, "task", "0190-abc");
	struct client_error e = told(&r);
	assert_string_equal(e.message, "task_id: no such task (task 0190-abc)");
	assert_string_equal(e.reason, "TASK_NOT_FOUND");

	/* What the message says is not said again, and what the code says is no reason. */
	(void)refuse(&r, STATUS_RESOURCE_EXHAUSTED, NULL, "message of 5000 bytes; the limit is 4096");
	(void)refuse_more(&r, "size", "5000");
	(void)refuse_more(&r, "limit", "4096");
	(void)refuse_more(&r, "where", "in the\nrequest");
	r.retry_after_ms = 2500;
	e = told(&r);
	assert_string_equal(e.message, "message of 5000 bytes; the limit is 4096 (where in the request)");
	assert_string_equal(e.reason, "");
	assert_int_equal(e.retry_after_ms, 2500);

	(void)refuse(&r, STATUS_INVALID_ARGUMENT, "spec.name", "not so");
	e = told(&r);
	assert_string_equal(e.message, "not so (spec.name)");
	assert_string_equal(e.reason, "");
}

static void what_is_not_given_is_not_sent(void **state)
{
	static char word[] = "true";
	char *command[] = { word };
	struct spec_flags f = { 0 };
	struct spec s;
	char err[256];
	struct buf b;
	struct refusal r;
	(void)state;
	assert_int_equal(spec_build(&f, command, 1, &somewhere, &s, err, sizeof err), 0);
	assert_null(s.task.resources);
	assert_null(s.task.retry);
	assert_null(s.task.timeout);
	assert_null(s.task.expiry);
	assert_int_equal(strlen(s.request.idempotency_key), 36);
	buf_init(&b, 4096);
	assert_int_equal(pb_pack(&s.request, &b), 0);
	Reins__V1__SubmitTaskRequest *back =
		pb_unpack(&reins__v1__submit_task_request__descriptor, buf_head(&b), buf_len(&b), NULL, &r);
	assert_non_null(back);
	assert_string_equal(back->spec->command[0], "true");
	assert_string_equal(back->spec->origin->git_commit, "abc");
	assert_string_equal(back->spec->queue, "");
	pb_free(back);
	buf_done(&b);
	spec_done(&s);
}

static void pairs_are_split_at_the_first_equals_sign(void **state)
{
	static char handler[] = "h", good[] = "A=b=c", empty[] = "B=", bad1[] = "=x", bad2[] = "x";
	char *two[] = { good, empty }, *third[] = { good, bad1 }, *fourth[] = { bad2 };
	struct spec_flags f = { .handler = handler, .env = { two, 2 } };
	struct spec s;
	char err[256];
	(void)state;
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), 0);
	assert_int_equal(s.task.n_env, 2);
	assert_string_equal(s.task.env[0]->key, "A");
	assert_string_equal(s.task.env[0]->value, "b=c");
	assert_string_equal(s.task.env[1]->value, "");
	spec_done(&s);
	f.labels = (struct setting_list){ third, 2 };
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), -EINVAL);
	assert_non_null(strstr(err, "--label =x"));
	f.labels = (struct setting_list){ 0 };
	f.params = (struct setting_list){ fourth, 1 };
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), -EINVAL);
	assert_non_null(strstr(err, "--param x"));
}

static void a_payload_may_be_as_large_as_a_message(void **state)
{
	static char handler[] = "h";
	char path[] = "/tmp/reins-test-XXXXXX";
	struct spec_flags f = { .handler = handler, .payload = path };
	struct spec s;
	char err[256];
	(void)state;
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)SPEC_PAYLOAD_MAX), 0);
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), 0);
	assert_int_equal(s.task.payload.len, SPEC_PAYLOAD_MAX);
	spec_done(&s);
	assert_int_equal(ftruncate(fd, (off_t)SPEC_PAYLOAD_MAX + 1), 0);
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), -EFBIG);
	assert_non_null(strstr(err, "4 MiB"));
	close(fd);
	unlink(path);
	assert_int_equal(spec_build(&f, NULL, 0, &somewhere, &s, err, sizeof err), -ENOENT);
}

/* ---- origin ---- */

static void a_program_is_run_and_cut_off(void **state)
{
	static const char *const echo[] = { "sh", "-c", "echo out; echo err >&2; exit 3", NULL };
	static const char *const much[] = { "sh", "-c", "yes | head -c 100000", NULL };
	static const char *const forever[] = { "sh", "-c", "sleep 1000 & sleep 1000", NULL };
	static const char *const silent[] = { "sh", "-c", "exec >&-; sleep 1000", NULL };
	static const char *const none[] = { "/no/such/program", NULL };
	char out[16];
	int64_t far = clock_mono_ns() + 20 * NS_PER_S;
	(void)state;
	assert_int_equal(origin_run(echo, far, out, sizeof out), 3);
	assert_string_equal(out, "out\n");
	assert_int_equal(origin_run(much, far, out, sizeof out), 0);
	assert_int_equal(strlen(out), sizeof out - 1);
	/* valgrind makes a fork of the vfork in posix_spawn, which then can't report it. */
	int r = origin_run(none, far, out, sizeof out);
	assert_true(r == -ENOENT || r == 127);
	assert_int_equal(origin_run(forever, clock_mono_ns() + 50 * NS_PER_MS, out, sizeof out), -ETIMEDOUT);
	assert_int_equal(origin_run(silent, clock_mono_ns() + 50 * NS_PER_MS, out, sizeof out), -ETIMEDOUT);
	assert_string_equal(out, "");
}

/* ---- text ---- */

static void spans_are_short(void **state)
{
	static const struct {
		int64_t us;
		const char *text;
	} rows[] = {
		{ -5, "0s" },          { 0, "0s" },           { 1500, "1ms" },        { 999999, "999ms" },
		{ 1000000, "1s" },     { 59999999, "59s" },   { 60000000, "1m00s" },  { 3599000000, "59m59s" },
		{ 3600000000, "1h00m" }, { 172799000000, "47h59m" }, { 172800000000, "2d" },
	};
	char text[32];
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		out_format_span(rows[i].us, text, sizeof text);
		assert_string_equal(text, rows[i].text);
	}
}

static void times_say_how_long_ago(void **state)
{
	Google__Protobuf__Timestamp t;
	char text[96];
	int64_t noon = INT64_C(1795953600) * 1000000; /* 2026-11-29T12:00:00Z */
	(void)state;
	pb_timestamp_set(&t, noon);
	out_format_time(&t, noon + 90000000, text, sizeof text);
	assert_string_equal(text, "2026-11-29 12:00:00Z (1m30s ago)");
	out_format_time(&t, noon - 5000000, text, sizeof text);
	assert_string_equal(text, "2026-11-29 12:00:00Z (in 5s)");
	out_format_time(NULL, noon, text, sizeof text);
	assert_string_equal(text, "");
	t.nanos = -1;
	out_format_time(&t, noon, text, sizeof text);
	assert_string_equal(text, "");
}

static void text_of_others_cannot_steer_the_terminal(void **state)
{
	static const struct {
		const char *in;
		size_t columns;
		const char *out;
	} rows[] = {
		{ "plain", 0, "plain" },
		{ "a\x1b[31m\nb\x7f", 0, "a [31m b " },
		{ "x\xc2\x9b" "31m", 0, "x 31m" },            /* C1: CSI in one character */
		{ "x\xe2\x80\xae" "gnp.exe", 0, "x gnp.exe" }, /* turns the direction */
		{ "\xff", 0, "\xef\xbf\xbd" },
		{ "ab\xc3\xa9" "d", 4, "ab\xc3\xa9" "d" },
		{ "ab\xc3\xa9" "de", 4, "ab\xc3\xa9" "…" },
		{ "", 3, "" },
	};
	char text[64];
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		out_clean(rows[i].in, rows[i].columns, text, sizeof text);
		assert_string_equal(text, rows[i].out);
	}
	out_clean("ab\xc3\xa9", 0, text, 4); /* no half characters */
	assert_string_equal(text, "ab");
}

static void tables_are_aligned_over_pages(void **state)
{
	static const char *const heads[] = { "A", "LONG" };
	struct table *t = table_new(heads, 2);
	(void)state;
	table_cell(t, "\xc3\xa9\xc3\xa9\xc3\xa9");
	table_cell(t, "");
	table_cell(t, "x\ny");
	table_cellf(t, "%d", 5);
	char *text = table_text(t);
	assert_string_equal(text, "A    LONG\n\xc3\xa9\xc3\xa9\xc3\xa9  -\nx y  5\n");
	free(text);
	table_cell(t, "1");
	table_cell(t, "2");
	text = table_text(t);
	assert_string_equal(text, "1    2\n");
	free(text);
	table_cell(t, "left over");
	table_free(t);
	table_free(NULL);
}

/* ---- tasks ---- */

static void states_are_read(void **state)
{
	Reins__V1__Task__State s = REINS__V1__TASK__STATE__STATE_UNSPECIFIED;
	(void)state;
	assert_int_equal(show_parse_state("Cancelled", &s), 0);
	assert_int_equal(s, REINS__V1__TASK__STATE__CANCELLED);
	assert_int_equal(show_parse_state("STATE_UNSPECIFIED", &s), -EINVAL);
	assert_int_equal(show_parse_state("", &s), -EINVAL);
	assert_string_equal(show_state_name((Reins__V1__Task__State)77), "UNKNOWN");
}

static void a_task_is_named_by_what_it_runs(void **state)
{
	static char python[] = "python3", file[] = "a b.py", handler[] = "sum", name[] = "train";
	char *command[] = { python, file };
	Reins__V1__Task t = REINS__V1__TASK__INIT;
	Reins__V1__TaskSpec spec = REINS__V1__TASK_SPEC__INIT;
	char text[64];
	(void)state;
	show_what(&t, 0, text, sizeof text);
	assert_string_equal(text, "");
	t.spec = &spec;
	spec.handler = handler;
	show_what(&t, 0, text, sizeof text);
	assert_string_equal(text, "handler sum");
	spec.command = command;
	spec.n_command = 2;
	show_what(&t, 0, text, sizeof text);
	assert_string_equal(text, "python3 'a b.py'");
	spec.name = name;
	show_what(&t, 3, text, sizeof text);
	assert_string_equal(text, "tr…");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arguments_are_made_for_the_table),
		cmocka_unit_test(a_letter_is_a_flag_of_its_command),
		cmocka_unit_test(the_environment_gives_flags_that_are_not_given),
		cmocka_unit_test(a_slip_finds_its_command),
		cmocka_unit_test(cpus_are_thousandths),
		cmocka_unit_test(times_to_run_at),
		cmocka_unit_test(details_are_told_in_words),
		cmocka_unit_test(what_is_not_given_is_not_sent),
		cmocka_unit_test(pairs_are_split_at_the_first_equals_sign),
		cmocka_unit_test(a_payload_may_be_as_large_as_a_message),
		cmocka_unit_test(a_program_is_run_and_cut_off),
		cmocka_unit_test(spans_are_short),
		cmocka_unit_test(times_say_how_long_ago),
		cmocka_unit_test(text_of_others_cannot_steer_the_terminal),
		cmocka_unit_test(tables_are_aligned_over_pages),
		cmocka_unit_test(states_are_read),
		cmocka_unit_test(a_task_is_named_by_what_it_runs),
	};
	/* Nothing of the caller's environment. */
	unsetenv("REINS_SERVER");
	unsetenv("REINS_TOKEN");
	unsetenv("REINS_TLS_CA");
	unsetenv("REINS_TLS_CERT");
	unsetenv("REINS_TLS_KEY");
	return cmocka_run_group_tests(tests, NULL, NULL);
}

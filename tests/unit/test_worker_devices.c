/* GPUs by a fake nvidia-smi and a made-up /dev, other resources, what programs inherit, and which may be run. */
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

#include "tests/skip.h"
#include "worker/allow.h"
#include "worker/devices.h"
#include "worker/environment.h"
#include "worker/remove_tree.h"
#include "worker/resources.h"
#include "worker/run_as.h"
#include "worker/state_dir.h"

static char top[64];

static int set_up(void **state)
{
	snprintf(top, sizeof(top), "/tmp/reins-test-XXXXXX");
	return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)!remove_tree(AT_FDCWD, top);
	return access(top, F_OK) == 0 ? -1 : 0;
}

static void put(const char *name, const char *text, int mode)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, name);
	int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* The names, with commas; or "!" and what is wrong. */
static const char *ask(const char *gpus, const char *outer, struct devices **ret)
{
	static char text[2048];
	char err[512], search[160];
	struct devices *d = NULL;
	snprintf(search, sizeof(search), "relative:%s", top);
	const struct devices_config cfg = {.gpus = gpus, .outer = outer, .search_path = search, .device_dir = top, .limit_ns = NS_PER_S};
	if (devices_new(&cfg, err, sizeof(err), &d) < 0) {
		snprintf(text, sizeof(text), "!%s", err);
		return text;
	}
	text[0] = '\0';
	for (size_t i = 0, at = 0; i < devices_count(d) && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", i ? "," : "", devices_name(d, i));
	if (ret)
		*ret = d;
	else
		devices_free(d);
	return text;
}

static void answer(const char *script)
{
	char text[1024];
	snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
	put("nvidia-smi", text, 0755);
}

#define FOUR "printf '0, GPU-aa11\\n1, GPU-aa22\\n2, GPU-bb33\\n3, GPU-cc44\\n'"

static void test_nvidia_smi(void **state)
{
	static const struct { const char *script, *names, *said; } rows[] = {
		{FOUR, "0,1,2,3", "4 GPUs by nvidia-smi"},
		{"test \"$*\" = '--query-gpu=index,uuid --format=csv,noheader' && echo '0, GPU-1' ", "0", "1 GPUs by"},
		{"printf ' 1 ,  GPU-aa \\r\\n\\n 0,[N/A]\\n'", "1,0", "2 GPUs by"},
		{"true", "", ""},
		{"echo 'No devices were found'", "7", "did not answer with lines"},
		{"echo '0, GPU-1'; echo '0, GPU-2'", "7", "did not answer with lines"},
		{"echo '99999, GPU-1'", "7", "did not answer with lines"},
		{"echo '0; GPU-1'", "7", "did not answer with lines"},
		{FOUR "; exit 1", "7", "exit code 1"},
		{FOUR "; kill -9 $$", "7", "signal 9"},
		{FOUR "; sleep 1000", "7", "did not end within 1s"},
		{"trap '' TERM; while :; do :; done", "7", "did not end within 1s"},
		{"yes", "7", "says more than can be read"},
	};
	put("nvidia-smi", "\177ELFnot", 0755);
	put("nvidiactl", "", 0600);
	put("nvidia7", "", 0600);
	struct devices *d;
	assert_string_equal(ask("auto", NULL, &d), "7");
	assert_non_null(strstr(devices_describe(d), "can't be run"));
	devices_free(d);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		answer(rows[i].script);
		assert_string_equal(ask("auto", NULL, &d), rows[i].names);
		if (!strstr(devices_describe(d), rows[i].said))
			fail_msg("row %zu: %s", i, devices_describe(d));
		devices_free(d);
	}
}

static void test_device_files(void **state)
{
	static const char *const names[] = {"nvidia10", "nvidia2", "nvidia0", "nvidia-modeset", "nvidia-uvm", "nvidiactl", "nvidia1x"};
	assert_string_equal(ask("auto", NULL, NULL), "");
	assert_string_equal(ask("auto", "0,1", NULL), "");
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		put(names[i], "", 0600);
	assert_string_equal(ask("auto", NULL, NULL), "0,2,10");
	assert_string_equal(ask("auto", "10,0", NULL), "10,0");
	/* Without UUIDs to compare with, they are believed. */
	assert_string_equal(ask("auto", "GPU-aa11,MIG-1", NULL), "GPU-aa11,MIG-1");
}

/* S43 and its neighbours. */
static void test_outer(void **state)
{
	static const struct { const char *gpus, *outer, *names; } rows[] = {
		{"auto", "2,3", "2,3"},
		{"auto", "3,1", "3,1"},
		{"auto", " 3 , 01 ", "3,1"},
		{"auto", "", ""},
		{"auto", "-1", ""},
		{"auto", "1,-1,2", "1"},
		{"auto", "NoDevFiles", ""},
		{"auto", "1,9,2", "1"},
		{"auto", "2,2,3", "2"},
		{"auto", "GPU-cc44,GPU-aa11", "GPU-cc44,GPU-aa11"},
		{"auto", "GPU-cc,0", "GPU-cc,0"},
		{"auto", "GPU-aa,0", ""},            /* begins two of them */
		{"auto", "GPU-dd55,0", ""},
		{"auto", "0,GPU-aa11,1", "0"},       /* the same one twice */
		{"auto", "MIG-4f3e/1/0,MIG-4f3e/2/0", "MIG-4f3e/1/0,MIG-4f3e/2/0"},
		{"auto", "MIG-1,MIG-1", "MIG-1"},
		{"none", "2,3", ""},
		{"none", NULL, ""},
		{"0", NULL, ""},
		{"2", NULL, "0,1"},
		{"2", "2,3", "2,3"},
		{"1", "2,3", "2"},
		{"9", NULL, "0,1,2,3,4,5,6,7,8"},    /* who gives a number is believed */
		{"3", "2,3", "!--gpus 3: CUDA_VISIBLE_DEVICES of the worker leaves 2"},
		{"1025", NULL, "!--gpus 1025: at most 1024 are allowed"},
		{"2,", NULL, "2"},
		{"3,0", NULL, "3,0"},
		{"3,2", "2,3", "3,2"},
		{"GPU-cc44", NULL, "GPU-cc44"},
		{"1,2", "2,3", "!--gpus \"1,2\": 1 is not in CUDA_VISIBLE_DEVICES of the worker"},
		{"2,02", NULL, "!--gpus \"2,02\": 2 is named twice"},
	};
	answer(FOUR);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *names = ask(rows[i].gpus, rows[i].outer, NULL);
		if (strcmp(names, rows[i].names) != 0)
			fail_msg("row %zu: --gpus %s under CUDA_VISIBLE_DEVICES=%s: %s", i, rows[i].gpus,
				 rows[i].outer ? rows[i].outer : "(not set)", names);
	}
	static const char *const bad[] = {"all", "-1", "1,,2", ",", "1;2", "GPU-", "auto,1", "12345"};
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		assert_int_equal(ask(bad[i], NULL, NULL)[0], '!');
	assert_non_null(strstr(ask("all", NULL, NULL), "auto, none, a count, or a list of indexes and UUIDs"));
	struct devices *d;
	ask("auto", "2,3", &d);
	assert_false(devices_in_bus_order(d)); /* the words are not nvidia-smi's */
	devices_free(d);
	ask("auto", NULL, &d);
	assert_true(devices_in_bus_order(d));
	devices_free(d);
}

static void test_take(void **state)
{
	uint16_t a[4], b[4];
	struct devices *d;
	answer(FOUR);
	ask("auto", "3,2,1,0", &d);
	assert_int_equal(devices_take(d, 2, a), 0);
	assert_string_equal(devices_name(d, a[0]), "3");
	assert_string_equal(devices_name(d, a[1]), "2");
	assert_int_equal(devices_take(d, 3, b), -EBUSY);
	assert_int_equal(devices_free_count(d), 2);
	assert_int_equal(devices_take(d, 2, b), 0);
	assert_int_equal(devices_take(d, 0, NULL), 0);
	devices_give_back(d, a, 1);
	assert_int_equal(devices_take(d, 1, b), 0);
	assert_string_equal(devices_name(d, b[0]), "3");
	devices_give_back(d, a, 2);
	assert_int_equal(devices_adopt(d, "2", b), 0);
	assert_int_equal(devices_adopt(d, "2", b), -EBUSY);
	assert_int_equal(devices_adopt(d, "9", b), -ENOENT);
	assert_int_equal(devices_take(d, 1, b), 0);
	assert_string_equal(devices_name(d, b[0]), "3");
	devices_free(d);
}

/* ---- resources ---- */

static int init(struct resources *r, int64_t memory, const char *gpus, char **custom, size_t n, char *err)
{
	struct devices *d;
	ask(gpus, NULL, &d);
	const struct setting_list list = {custom, n};
	int e = resources_init(r, 2000, memory, &list, d, err, 512);
	if (e < 0)
		devices_free(d);
	return e;
}

/* Takes; the words of the refusal, or NULL. custom: "name", n. */
static const char *take(struct resources *r, int64_t cpu, int64_t memory, int gpus, const char *name, int64_t n, bool *busy,
			struct holding *h)
{
	Reins__V1__Resources need = REINS__V1__RESOURCES__INIT;
	Reins__V1__Resources__CustomEntry entry = REINS__V1__RESOURCES__CUSTOM_ENTRY__INIT, *at[] = {&entry};
	entry.key = (char *)(uintptr_t)name;
	entry.value = n;
	need.cpu_millis = cpu;
	need.memory_bytes = memory;
	need.gpus = gpus;
	need.custom = at;
	need.n_custom = name ? 1 : 0;
	return resources_take(r, &need, busy, h);
}

static void test_resources(void **state)
{
	char *custom[] = {(char[]){"licenses=2"}, (char[]){"site/tapes=1"}};
	char err[512];
	struct resources r;
	struct holding h[3] = {{0}};
	bool busy = true;
	assert_int_equal(init(&r, 1000, "2", custom, 2, err), 0);
	assert_null(resources_take(&r, NULL, &busy, &h[0]));
	assert_null(take(&r, 1500, 600, 1, "licenses", 2, &busy, &h[0]));
	/* Never, and not now. */
	static const struct { int64_t cpu, memory; int gpus; const char *name; int64_t n; bool busy; const char *words; } rows[] = {
		{2001, 0, 0, NULL, 0, false, "cpu_millis"}, {0, 1001, 0, NULL, 0, false, "memory_bytes"},
		{0, 0, 3, NULL, 0, false, "gpus"}, {0, 0, -1, NULL, 0, false, "gpus"}, {0, 0, 0, "licenses", 3, false, "custom"},
		{0, 0, 0, "unknown", 1, false, "custom"}, {501, 0, 0, NULL, 0, true, "cpu"}, {0, 401, 0, NULL, 0, true, "memory"},
		{0, 0, 2, NULL, 0, true, "GPUs"}, {0, 0, 0, "licenses", 1, true, "counted"},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *why = take(&r, rows[i].cpu, rows[i].memory, rows[i].gpus, rows[i].name, rows[i].n, &busy, &h[1]);
		if (!why || !strstr(why, rows[i].words) || busy != rows[i].busy)
			fail_msg("row %zu: %s", i, why ? why : "taken");
	}
	assert_null(take(&r, 500, 400, 1, "site/tapes", 1, &busy, &h[1]));
	assert_null(take(&r, 0, 0, 0, "licenses", 0, &busy, &h[2]));
	size_t n = 9;
	char **words = resources_words(&r, &h[1], &n), *visible = resources_visible(&r, &h[1]);
	assert_int_equal(n, 3);
	assert_string_equal(words[0], "cpu_millis=500");
	assert_string_equal(words[1], "memory_bytes=400");
	assert_string_equal(words[2], "custom/site/tapes=1");
	assert_string_equal(visible, "1");
	free(visible);
	visible = resources_visible(&r, &h[2]);
	assert_string_equal(visible, "");
	free(visible);
	resources_words_free(resources_words(&r, &h[2], &n), n);
	assert_int_equal(n, 0);
	for (size_t i = 0; i < 3; i++) {
		resources_give_back(&r, &h[i]);
		resources_give_back(&r, &h[i]);
	}
	assert_int_equal(r.cpu_used + r.memory_used + r.custom[0].used + r.custom[1].used, 0);
	assert_int_equal(devices_free_count(r.devices), 2);
	/* The next agent. */
	char *devices[] = {(char[]){"1"}, (char[]){"9"}};
	assert_true(resources_adopt(&r, words, 3, devices, 1, &h[0]));
	resources_words_free(words, 3);
	assert_int_equal(r.cpu_used, 500);
	assert_int_equal(r.custom[1].used, 1);
	assert_non_null(take(&r, 1501, 0, 0, NULL, 0, &busy, &h[1]));
	assert_true(busy);
	char *strange[] = {(char[]){"custom/gone=1"}, (char[]){"custom/licenses=-1"}, (char[]){"cpu_millis=x"}, (char[]){"new=1"},
		(char[]){""}, (char[]){"cpu=1"}, (char[]){"memory_bytes=2000"}};
	for (size_t i = 0; i + 1 < ARRAY_LEN(strange); i++)
		assert_false(resources_adopt(&r, strange + i, 1, NULL, 0, &h[1]));
	assert_false(resources_adopt(&r, strange + 6, 1, devices, 2, &h[1]));
	assert_int_equal(h[1].n_gpus, 0);
	assert_int_equal(r.memory_used, 2400); /* less by now than is held: it still is held */
	assert_non_null(take(&r, 0, 1, 0, NULL, 0, &busy, &h[2]));
	assert_null(take(&r, 0, 0, 1, NULL, 0, &busy, &h[2]));
	for (size_t i = 0; i < 3; i++)
		resources_give_back(&r, &h[i]);
	assert_int_equal(r.memory_used, 0);
	resources_done(&r);
	/* No memory to give: none is taken on, but a task that asks for none is. */
	assert_int_equal(init(&r, 0, "none", NULL, 0, err), 0);
	const char *why = take(&r, 0, 1, 0, NULL, 0, &busy, &h[0]);
	assert_non_null(strstr(why, "can't enforce a limit of memory"));
	assert_false(busy);
	assert_null(take(&r, 0, 0, 0, NULL, 0, &busy, &h[0]));
	resources_give_back(&r, &h[0]);
	resources_done(&r);
}

static void test_custom_flag(void **state)
{
	static const struct { const char *text, *words; } rows[] = {
		{"licenses", "NAME=COUNT is allowed"}, {"=1", "NAME=COUNT is allowed"}, {"a b=1", "NAME=COUNT is allowed"},
		{"a=0", "from 1 to 2^62"}, {"a=x", "from 1 to 2^62"}, {"a=4611686018427387905", "from 1 to 2^62"}, {"ok=1", "given before"},
	};
	char err[512];
	struct resources r;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[64], *custom[] = {(char[]){"ok=4611686018427387904"}, text};
		snprintf(text, sizeof(text), "%s", rows[i].text);
		assert_int_equal(init(&r, 0, "none", custom, 2, err), -1);
		assert_non_null(strstr(err, rows[i].words));
		assert_non_null(strstr(err, rows[i].text));
	}
	char texts[17][8], *many[17];
	for (size_t i = 0; i < 17; i++) {
		snprintf(texts[i], sizeof(texts[i]), "r%zu=1", i);
		many[i] = texts[i];
	}
	assert_int_equal(init(&r, 0, "none", many, 17, err), -1);
	assert_non_null(strstr(err, "at most 16"));
	assert_int_equal(init(&r, 0, "none", many, 16, err), 0);
	resources_done(&r);
}

/* ---- environment and programs ---- */

static void test_environment(void **state)
{
	char *from[] = {
		(char[]){"PATH=/bin"}, (char[]){"SECRET_KEY=x"}, (char[]){"LC_TIME=C"}, (char[]){"REINS_TOKEN=t"},
		(char[]){"REINS_SERVER=http://m:1"}, (char[]){"NOTIFY_SOCKET=/run/x"}, (char[]){"MY_A=1"}, (char[]){"MY_B=2"},
		(char[]){"https_proxy=p"}, (char[]){"PATHS=1"}, (char[]){"broken"}, (char[]){"EXACT=3"}, (char[]){"TRACEPARENT=0"}, NULL,
	};
	char *more[] = {(char[]){"MY_*"}, (char[]){"EXACT"}, (char[]){"REINS_TOKEN"}, (char[]){"NOTIFY_*"}};
	static const char *const plain[] = {"PATH=/bin", "LC_TIME=C", "REINS_SERVER=http://m:1", "https_proxy=p", NULL};
	static const char *const wider[] = {"PATH=/bin", "LC_TIME=C", "REINS_SERVER=http://m:1", "MY_A=1", "MY_B=2", "https_proxy=p",
		"EXACT=3", NULL};
	const struct { struct setting_list list; const char *const *want; } rows[] = {{{NULL, 0}, plain}, {{more, 4}, wider}};
	char err[512];
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(environment_check(&rows[i].list, err, sizeof(err)), 0);
		char **got = environment_inherit(from, &rows[i].list);
		size_t k = 0;
		for (; rows[i].want[k]; k++) {
			assert_non_null(got[k]);
			assert_string_equal(got[k], rows[i].want[k]);
		}
		assert_null(got[k]);
		free(got);
	}
	char *bad[] = {(char[]){"A=1"}};
	assert_int_equal(environment_check(&(struct setting_list){bad, 1}, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "--inherit-env \"A=1\""));
}

static void test_allow(void **state)
{
	char err[512], pattern[96], exact[96], *patterns[] = {pattern, exact, (char[]){"/opt/*/bin/run"}};
	const struct setting_list list = {patterns, 3};
	snprintf(pattern, sizeof(pattern), "%s/good/*", top);
	snprintf(exact, sizeof(exact), "%s/other/one", top);
	assert_int_equal(allow_check(&list, err, sizeof(err)), 0);
	char *bad[] = {(char[]){"ls"}};
	assert_int_equal(allow_check(&(struct setting_list){bad, 1}, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "--allow \"ls\": an absolute path"));
	char dir[96], path[256];
	for (size_t i = 0; i < 2; i++) {
		snprintf(dir, sizeof(dir), "%s/%s", top, i ? "other" : "good");
		assert_int_equal(mkdir(dir, 0755), 0);
	}
	put("good/tool", "", 0755);
	put("good/data", "", 0644);
	put("other/tool", "", 0755);
	put("other/data", "", 0755);
	put("other/one", "", 0755);
	put("one", "", 0755);
	/* {top} is written T. */
	static const struct { const char *search, *program, *dir, *found; } rows[] = {
		{"T/good:T/other", "tool", "/", "T/good"},
		{"T/other:T/good", "tool", "/", NULL},
		{"T/none:T/good/:T/other", "tool", "/", "T/good/"},
		{"T/good:T/other", "data", "/", NULL},   /* not executable in good, so it is other's that would be run */
		{"T/other", "one", "/", "T/other"},
		{"T", "one", "/", NULL},
		{"good", "tool", "/", NULL},
		{"T/good", "missing", "/", NULL},
		{"T/good", "", "/", NULL},
		{"", "T/good/tool", "/", ""},
		{"", "T/good/sub/tool", "/", NULL},
		{"", "T/good/../other/tool", "/", NULL},
		{"", "T/good/./tool", "/", NULL},
		{"", "T/good//tool", "/", NULL},
		{"", "./tool", "T/good", ""},
		{"", "./tool", "T/good/", ""},
		{"", "./tool", "T/other", NULL},
		{"", "good/tool", "T", ""},
		{"", "../good/tool", "T/other", NULL},
		{"", "./tool", "good", NULL},
		{"", "/opt/x/bin/run", "/", ""},
		{"", "/opt/x/y/bin/run", "/", NULL},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *in[] = {rows[i].search, rows[i].program, rows[i].dir, rows[i].found ? rows[i].found : ""};
		char out[4][256];
		for (size_t k = 0; k < 4; k++) {
			size_t n = 0;
			for (const char *p = in[k]; *p; p++)
				n += (size_t)snprintf(out[k] + n, sizeof(out[k]) - n, *p == 'T' ? "%s" : "%.1s", *p == 'T' ? top : p);
			out[k][n] = '\0';
		}
		char *search = (char *)(uintptr_t)"untouched";
		int r = allow_program(&list, out[1], out[0], out[2], err, sizeof(err), &search);
		if ((r == 0) != (rows[i].found != NULL))
			fail_msg("row %zu: %d %s", i, r, err);
		if (r < 0) {
			assert_non_null(strstr(err, "--allow"));
			assert_string_equal(search, "untouched");
		} else if (*out[3]) {
			assert_string_equal(search, out[3]);
			free(search);
		} else {
			assert_null(search);
		}
	}
	snprintf(path, sizeof(path), "%s/other/tool", top);
	assert_int_equal(allow_program(&list, path, "", "/", err, sizeof(err), patterns), -EACCES);
	assert_non_null(strstr(err, path));
}

static void test_run_as(void **state)
{
	struct run_as r;
	char err[1024], path[160];
	assert_int_equal(run_as_init(&r, NULL, err, sizeof(err)), 0);
	assert_null(r.name);
	assert_int_equal(run_as_reach(&r, "/nowhere", err, sizeof(err)), 0);
	run_as_done(&r);
	if (geteuid() != 0) {
		assert_int_equal(run_as_init(&r, "nobody", err, sizeof(err)), -1);
		assert_non_null(strstr(err, "only a worker that root started"));
		SKIP("needs root");
	}
	assert_int_equal(run_as_init(&r, "no-such-user", err, sizeof(err)), -1);
	assert_non_null(strstr(err, "--run-as no-such-user: there is no such user"));
	assert_int_equal(run_as_init(&r, "nobody", err, sizeof(err)), 0);
	assert_true(r.uid > 0 && r.home && r.shell);
	/* mkdtemp's own is 0700. */
	snprintf(path, sizeof(path), "%s/a/b", top);
	assert_int_equal(run_as_reach(&r, path, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "can't enter /tmp/reins-test-"));
	assert_int_equal(chmod(top, 0711), 0);
	snprintf(path, sizeof(path), "%s/a", top);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(run_as_reach(&r, path, err, sizeof(err)), -1);
	assert_non_null(strstr(err, "/a, and"));
	assert_int_equal(chmod(path, 0711), 0);
	assert_int_equal(run_as_reach(&r, path, err, sizeof(err)), 0);
	run_as_done(&r);
}

/* Where programs run as another user: what is whose. */
static void test_layout(void **state)
{
	static const struct { const char *path; bool theirs; int mode; } rows[] = {
		{"", false, 0711}, {"/attempts", false, 0711}, {"/attempts/t.1", false, 0711}, {"/attempts/t.1/work", true, 0700},
		{"/attempts/t.1/io", true, 0700}, {"/lock", false, 0600}, {"/identity", false, 0600},
	};
	struct state_dir d;
	char err[512];
	if (geteuid() != 0)
		SKIP("needs root");
	mode_t before = umask(0077);
	assert_int_equal(state_dir_open(&d, top, "w1", err, sizeof(err)), 0);
	assert_int_equal(state_dir_make_attempt(&d, "t.0"), 0);
	assert_int_equal(state_dir_open_to(&d, 65534, 65534), 0);
	assert_int_equal(state_dir_make_attempt(&d, "t.1"), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char path[256];
		struct stat st;
		snprintf(path, sizeof(path), "%s%s", top, rows[i].path);
		assert_int_equal(stat(path, &st), 0);
		if ((int)(st.st_mode & 07777) != rows[i].mode || st.st_uid != (rows[i].theirs ? 65534 : 0))
			fail_msg("%s: mode %o, user %d", path, st.st_mode & 07777, (int)st.st_uid);
	}
	umask(before);
	state_dir_close(&d);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nvidia_smi), TEST(test_device_files), TEST(test_outer), TEST(test_take), TEST(test_resources),
		TEST(test_custom_flag), TEST(test_environment), TEST(test_allow), TEST(test_run_as), TEST(test_layout),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

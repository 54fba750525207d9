/* cgroups: a made-up tree in a directory for everything that can be there or be missing, and the machine's own, where it
 * has some, for what the kernel does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/skip.h"
#include "worker/cgroup.h"
#include "worker/remove_tree.h"
#include "worker/state_dir.h"

#define ALL (CGROUP_MEMORY | CGROUP_CPU | CGROUP_PIDS | CGROUP_KILL)

static char top[64], table_path[96], self_path[96];

static int set_up(void **state)
{
	snprintf(top, sizeof(top), "/tmp/reins-test-XXXXXX");
	if (!mkdtemp(top))
		return -1;
	snprintf(table_path, sizeof(table_path), "%s/mountinfo", top);
	snprintf(self_path, sizeof(self_path), "%s/self", top);
	return 0;
}

static int tear_down(void **state)
{
	(void)!remove_tree(AT_FDCWD, top);
	return access(top, F_OK) == 0 ? -1 : 0;
}

/* `path` below top, with all directories on the way. */
static void put(const char *path, const char *text)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	for (char *p = full + strlen(top) + 1; *p; p++)
		if (*p == '/') {
			*p = '\0';
			assert_true(mkdir(full, 0755) == 0 || errno == EEXIST);
			*p = '/';
		}
	if (!text)
		return;
	FILE *f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static const char *get(const char *path)
{
	static char text[512];
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	FILE *f = fopen(full, "r");
	if (!f)
		return "(none)";
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	return text;
}

static bool is_there(const char *path)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	return access(full, F_OK) == 0;
}

static void link_to(const char *path, const char *target)
{
	char full[256];
	snprintf(full, sizeof(full), "%s/%s", top, path);
	unlink(full);
	assert_int_equal(symlink(target, full), 0);
}

/* Each `%s` of the table is the top directory. */
static void describe_machine(const char *const *mounts, const char *self)
{
	FILE *f = fopen(table_path, "w");
	assert_non_null(f);
	fputs("22 1 8:1 / / rw,relatime - ext4 /dev/root rw\nshort line\n", f);
	for (; *mounts; mounts++) {
		const char *at = strstr(*mounts, "TOP");
		fprintf(f, "%.*s%s%s\n", (int)(at - *mounts), *mounts, top, at + 3);
	}
	fclose(f);
	put("self", self);
}

static bool pids_v1;

static struct cgroups *open_with(const char *mode, int64_t pids)
{
	char err[512];
	struct cgroups *c = NULL;
	const struct cgroup_config cfg = {.mode = mode, .name = "reins-w", .pids_limit = pids, .pids_v1 = pids_v1,
		.mountinfo = table_path, .self = self_path};
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), 0);
	return c;
}

#define V2 "30 22 0:26 / TOP/v2 rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"

/* A cgroup v2 with controllers at `base` (ends with '/', or ""), and in it what the kernel would make for us. */
static void make_v2(const char *base, const char *attempt)
{
	static const char *const files[] = {"memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max",
		"cgroup.kill", "cgroup.procs"};
	char path[160];
	snprintf(path, sizeof(path), "v2/%scgroup.controllers", base);
	put(path, "cpuset cpu io memory pids\n");
	snprintf(path, sizeof(path), "v2/%scgroup.subtree_control", base);
	put(path, "cpu memory pids\n");
	snprintf(path, sizeof(path), "v2/%sreins-w/cgroup.subtree_control", base);
	put(path, "cpu memory pids\n");
	snprintf(path, sizeof(path), "v2/%sreins-w/cgroup.kill", base);
	put(path, "");
	for (size_t i = 0; attempt && i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof(path), "v2/%sreins-w/%s/%s", base, attempt, files[i]);
		put(path, "");
	}
}

static void test_v2(void **state)
{
	const char *const mounts[] = {V2, NULL};
	char err[512];
	describe_machine(mounts, "0::/\n");
	make_v2("", "t.1");
	struct cgroups *c = open_with("auto", 100);
	assert_int_equal(cgroups_can(c), ALL);
	assert_non_null(strstr(cgroups_describe(c), "cgroups: memory cpu pids kill in "));
	struct cgroup_dirs d;
	const struct cgroup_limits limits = {.cpu_millis = 1500, .memory_bytes = 64 << 20};
	assert_int_equal(cgroups_make(c, "t.1", &limits, err, sizeof(err), &d), 0);
	assert_int_equal(d.n, 1);
	assert_int_equal(d.kill_index, 0);
	assert_int_equal(d.oom_index, 0);
	assert_string_equal(d.path[0] + strlen(top), "/v2/reins-w/t.1");
	assert_string_equal(get("v2/reins-w/t.1/memory.max"), "67108864");
	assert_string_equal(get("v2/reins-w/t.1/memory.swap.max"), "0");
	assert_string_equal(get("v2/reins-w/t.1/memory.oom.group"), "1");
	assert_string_equal(get("v2/reins-w/t.1/cpu.max"), "150000 100000");
	assert_string_equal(get("v2/reins-w/t.1/pids.max"), "100");
	cgroup_dirs_done(&d);
	/* The plain files of this tree keep the directory from being removed, as a process would. */
	assert_true(cgroups_end(c, "t.1") < 0);
	assert_string_equal(get("v2/reins-w/t.1/cgroup.kill"), "1");
	assert_int_equal(cgroups_end(c, "never-made.1"), 0);
	cgroups_free(c);
}

static void test_no_limits_no_files(void **state)
{
	const char *const mounts[] = {V2, NULL};
	char err[512];
	struct cgroup_dirs d;
	describe_machine(mounts, "0::/\n");
	make_v2("", NULL);
	struct cgroups *c = open_with("auto", 0);
	assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){0}, err, sizeof(err), &d), 0);
	assert_true(is_there("v2/reins-w/t.1"));
	assert_int_equal(cgroups_end(c, "t.1"), 0);
	assert_false(is_there("v2/reins-w/t.1"));
	cgroup_dirs_done(&d);
	cgroups_free(c);
}

static void test_small_cpu(void **state)
{
	static const struct { int64_t millis; const char *text; } rows[] = {
		{1, "1000 1000000"}, {9, "9000 1000000"}, {10, "1000 100000"}, {1000, "100000 100000"}, {64000, "6400000 100000"}};
	const char *const mounts[] = {V2, NULL};
	char err[512];
	describe_machine(mounts, "0::/\n");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct cgroup_dirs d;
		make_v2("", "t.1");
		struct cgroups *c = open_with("auto", 0);
		assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){.cpu_millis = rows[i].millis}, err, sizeof(err), &d), 0);
		assert_string_equal(get("v2/reins-w/t.1/cpu.max"), rows[i].text);
		cgroup_dirs_done(&d);
		cgroups_free(c);
	}
}

static void test_half_made(void **state)
{
	const char *const mounts[] = {V2, NULL};
	char err[512] = "";
	struct cgroup_dirs d;
	const struct cgroup_limits limits = {.memory_bytes = 1 << 20};
	describe_machine(mounts, "0::/\n");
	make_v2("", NULL);
	struct cgroups *c = open_with("auto", 0);
	/* No file in it: the directory made is removed again. */
	assert_int_equal(cgroups_make(c, "t.1", &limits, err, sizeof(err), &d), -ENOENT);
	assert_non_null(strstr(err, "memory.max"));
	assert_false(is_there("v2/reins-w/t.1"));
	make_v2("", "t.2");
	link_to("v2/reins-w/t.2/memory.max", "/dev/full");
	assert_int_equal(cgroups_make(c, "t.2", &limits, err, sizeof(err), &d), -ENOSPC);
	assert_non_null(strstr(err, "t.2: memory.max: No space left"));
	/* Not every kernel has these. */
	make_v2("", "t.3");
	char path[160];
	snprintf(path, sizeof(path), "%s/v2/reins-w/t.3/memory.swap.max", top);
	unlink(path);
	assert_int_equal(cgroups_make(c, "t.3", &limits, err, sizeof(err), &d), 0);
	cgroup_dirs_done(&d);
	assert_false(is_there("v2/reins-w/t.3/memory.swap.max"));
	/* The worker's directory itself is gone. */
	cgroups_free(c);
	make_v2("", NULL);
	c = open_with("auto", 0);
	snprintf(path, sizeof(path), "%s/v2", top);
	(void)!remove_tree(AT_FDCWD, path);
	assert_int_equal(cgroups_make(c, "t.4", &limits, err, sizeof(err), &d), -ENOENT);
	cgroups_free(c);
}

static void test_own_leaf(void **state)
{
	const char *const mounts[] = {V2, NULL};
	describe_machine(mounts, "1:name=systemd:/nothing\n0::/system.slice/w.service/agent\n");
	put("v2/system.slice/w.service/agent/cgroup.procs", "");
	make_v2("system.slice/w.service/", NULL);
	put("v2/system.slice/w.service/memory.max", "1073741824\n");
	put("v2/system.slice/memory.max", "max\n");
	put("v2/system.slice/cpu.max", "150000 100000\n");
	put("v2/system.slice/w.service/cpu.max", "max 100000\n");
	/* As root a place at the top is tried first, since nothing here says "delegated"; it gives less. */
	struct cgroups *c = open_with("auto", 0);
	assert_int_equal(cgroups_can(c), ALL);
	assert_non_null(strstr(cgroups_describe(c), "w.service/reins-w"));
	assert_false(is_there("v2/reins-w"));
	int64_t cpu, memory;
	cgroups_outer(c, &cpu, &memory);
	assert_int_equal(cpu, 1500);
	assert_int_equal(memory, 1 << 30);
	cgroups_free(c);
}

static void test_no_controller_comes_down(void **state)
{
	const char *const mounts[] = {V2, NULL};
	describe_machine(mounts, "0::/\n");
	put("v2/cgroup.controllers", "memory\n");
	put("v2/cgroup.subtree_control", "");
	link_to("v2/cgroup.subtree_control", "/dev/full");
	struct cgroups *c = open_with("auto", 0);
	assert_int_equal(cgroups_can(c), 0);
	assert_false(is_there("v2/reins-w"));
	assert_non_null(strstr(cgroups_describe(c), "no cgroups"));
	cgroups_free(c);
}

#define V1_MEMORY "31 22 0:27 / TOP/memory rw - cgroup cgroup rw,memory"
#define V1_CPU "32 22 0:28 / TOP/cpu rw - cgroup cgroup rw,cpu,cpuacct"
#define V1_PIDS "33 22 0:29 /docker/abc TOP/pi\\040ds rw - cgroup none rw,pids"

static void make_v1(void)
{
	put("memory/own/reins-w/memory.limit_in_bytes", "");
	put("memory/own/memory.limit_in_bytes", "9223372036854771712\n");
	put("memory/memory.limit_in_bytes", "536870912\n");
	put("cpu/reins-w/cpu.cfs_quota_us", "-1\n");
	put("cpu/cpu.cfs_quota_us", "-1\n");
	put("cpu/cpu.cfs_period_us", "100000\n");
	put("pi ds/in/reins-w/pids.max", "");
}

static void test_v1(void **state)
{
	const char *const mounts[] = {V1_MEMORY, V1_CPU, V1_PIDS, NULL};
	char err[512];
	struct cgroup_dirs d;
	describe_machine(mounts, "9:pids:/docker/abc/in\n8:cpu,cpuacct:/not-to-be-seen-here\n4:memory:/own\n1:name=systemd:/\n");
	make_v1();
	static const char *const files[] = {"memory/own/reins-w/t.1/memory.limit_in_bytes",
		"memory/own/reins-w/t.1/memory.memsw.limit_in_bytes", "cpu/reins-w/t.1/cpu.cfs_period_us",
		"cpu/reins-w/t.1/cpu.cfs_quota_us", "pi ds/in/reins-w/t.1/pids.max"};
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		put(files[i], "");
	/* That of v1 slows each start down: only where it was asked for. */
	struct cgroups *c = open_with("auto", 7);
	assert_int_equal(cgroups_can(c), CGROUP_MEMORY | CGROUP_CPU);
	assert_int_equal(cgroups_make(c, "t.3", &(struct cgroup_limits){0}, err, sizeof(err), &d), 0);
	assert_int_equal(d.n, 0);
	cgroup_dirs_done(&d);
	cgroups_free(c);
	pids_v1 = true;
	c = open_with("auto", 7);
	pids_v1 = false;
	assert_int_equal(cgroups_can(c), CGROUP_MEMORY | CGROUP_CPU | CGROUP_PIDS);
	int64_t cpu, memory;
	cgroups_outer(c, &cpu, &memory);
	assert_int_equal(cpu, INT64_MAX);
	assert_int_equal(memory, 536870912);
	const struct cgroup_limits limits = {.cpu_millis = 500, .memory_bytes = 4096};
	assert_int_equal(cgroups_make(c, "t.1", &limits, err, sizeof(err), &d), 0);
	assert_int_equal(d.n, 3);
	assert_int_equal(d.kill_index, -1);
	assert_int_equal(d.oom_index, 0);
	static const char *const texts[] = {"4096", "4096", "100000", "50000", "7"};
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		assert_string_equal(get(files[i]), texts[i]);
	cgroup_dirs_done(&d);
	/* Only what there is a use for is made. */
	assert_int_equal(cgroups_make(c, "t.2", &(struct cgroup_limits){0}, err, sizeof(err), &d), -ENOENT);
	assert_false(is_there("memory/own/reins-w/t.2"));
	assert_non_null(strstr(err, "pids.max"));
	cgroups_free(c);
}

static void test_v1_half_there(void **state)
{
	const char *const mounts[] = {V1_MEMORY, V1_CPU, NULL};
	char err[512];
	struct cgroup_dirs d;
	describe_machine(mounts, "4:memory:/own\n2:cpu:/\n");
	/* The kernel was built without cpu quotas; of memory there is all. */
	make_v1();
	char path[160];
	snprintf(path, sizeof(path), "%s/cpu/reins-w/cpu.cfs_quota_us", top);
	unlink(path);
	struct cgroups *c = open_with("auto", 7);
	assert_int_equal(cgroups_can(c), CGROUP_MEMORY);
	assert_false(is_there("cpu/reins-w"));
	/* A second write fails: nothing of the first directory stays. */
	put("memory/own/reins-w/t.1/memory.limit_in_bytes", "");
	link_to("memory/own/reins-w/t.1/memory.memsw.limit_in_bytes", "/dev/full");
	const struct cgroup_limits limits = {.cpu_millis = 500, .memory_bytes = 4096};
	assert_int_equal(cgroups_make(c, "t.1", &limits, err, sizeof(err), &d), -ENOSPC);
	cgroups_free(c);
}

static void test_nothing_there(void **state)
{
	const char *const mounts[] = {NULL};
	char err[512];
	struct cgroup_dirs d;
	describe_machine(mounts, "");
	struct cgroups *c = open_with("auto", 7);
	assert_int_equal(cgroups_can(c), 0);
	assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){.memory_bytes = 1}, err, sizeof(err), &d), -ENOTSUP);
	assert_non_null(strstr(err, "memory"));
	/* cpu is for placement only then. */
	assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){.cpu_millis = 1}, err, sizeof(err), &d), 0);
	assert_int_equal(d.n, 0);
	cgroup_dirs_done(&d);
	assert_int_equal(cgroups_sweep(c, NULL, NULL, NS_PER_S), 0);
	cgroups_free(c);
	/* No directory can be made there. */
	FILE *f = fopen(table_path, "w");
	fputs("30 22 0:26 / /proc rw - cgroup2 cgroup2 rw\n31 22 0:27 / /proc rw - cgroup cgroup rw,memory\n", f);
	fclose(f);
	c = open_with("auto", 7);
	assert_int_equal(cgroups_can(c), 0);
	assert_non_null(strstr(cgroups_describe(c), "/proc"));
	cgroups_free(c);
	assert_int_equal(unlink(table_path), 0);
	c = open_with("auto", 7);
	assert_int_equal(cgroups_can(c), 0);
	cgroups_free(c);
}

static void test_modes(void **state)
{
	const char *const mounts[] = {V2, NULL};
	char err[512], path[160];
	struct cgroups *c = NULL;
	describe_machine(mounts, "0::/\n");
	make_v2("", NULL);
	make_v2("mine/", NULL);
	c = open_with("off", 7);
	assert_int_equal(cgroups_can(c), 0);
	cgroups_free(c);
	struct cgroup_config cfg = {.mode = "mine", .name = "reins-w", .mountinfo = table_path, .self = self_path};
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), -1);
	assert_non_null(strstr(err, "--cgroup \"mine\": auto, off, or the absolute path"));
	cfg.mode = top;
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), -1);
	assert_non_null(strstr(err, "no directory of cgroup v2"));
	snprintf(path, sizeof(path), "%s/v2/mine/", top);
	put("v2/mine/cgroup.procs", "");
	cfg.mode = path;
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), 0);
	assert_int_equal(cgroups_can(c), ALL);
	assert_non_null(strstr(cgroups_describe(c), "/v2/mine/reins-w"));
	cgroups_free(c);
	put("v2/empty/cgroup.procs", "");
	snprintf(path, sizeof(path), "%s/v2/empty", top);
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), -1);
	assert_non_null(strstr(err, "can't be used"));
}

/* ---- the machine's own ---- */

static struct cgroups *real(unsigned wanted)
{
	char err[512], name[64];
	struct cgroups *c = NULL;
	snprintf(name, sizeof(name), "reins-unit-test.%d", (int)getpid());
	const struct cgroup_config cfg = {.mode = "auto", .name = name, .pids_limit = 20, .pids_v1 = true};
	assert_int_equal(cgroups_new(&cfg, err, sizeof(err), &c), 0);
	if ((cgroups_can(c) & wanted) == wanted)
		return c;
	print_message("# %s\n", cgroups_describe(c));
	cgroups_free(c);
	return NULL;
}

static void read_file(const char *dir, const char *file, char *out, size_t cap)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s", dir, file);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	out[fread(out, 1, cap - 1, f)] = '\0';
	fclose(f);
}

static int oom_kills(const struct cgroup_dirs *d)
{
	char text[1024], path[512];
	snprintf(path, sizeof(path), "%s/memory.events", d->path[d->oom_index]);
	read_file(d->path[d->oom_index], access(path, F_OK) == 0 ? "memory.events" : "memory.oom_control", text, sizeof(text));
	const char *at = strstr(text, "oom_kill ");
	assert_non_null(at);
	return (int)strtol(at + 9, NULL, 10);
}

/* A child in these cgroups. */
static pid_t start_in(const struct cgroup_dirs *d, void (*run)(void))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	for (size_t i = 0; i < d->n; i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/cgroup.procs", d->path[i]);
		int fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(99);
		close(fd);
	}
	run();
	_exit(0);
}

static void eat(void)
{
	size_t size = 64 << 20;
	char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t i = 0; i < size; i += 512)
		((volatile char *)p)[i] = 1;
}

static void exit_137(void)
{
	_exit(137);
}

static void sleep_long(void)
{
	signal(SIGTERM, SIG_IGN);
	if (fork() == 0)
		setsid();
	for (;;)
		pause();
}

static void end_for_sure(struct cgroups *c, const char *name)
{
	int64_t until = clock_boot_ns() + 10 * NS_PER_S;
	int r;
	while ((r = cgroups_end(c, name)) == -EBUSY && clock_boot_ns() < until)
		usleep(1000);
	assert_int_equal(r, 0);
}

/* S42: told apart by the counter alone; both look like 137 to a shell. */
static void test_real_memory(void **state)
{
	struct cgroups *c = real(CGROUP_MEMORY);
	if (!c)
		SKIP("no cgroup with that controller can be made here");
	static const struct { void (*run)(void); bool oom; } rows[] = {{eat, true}, {exit_137, false}};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct cgroup_dirs d;
		char err[512];
		int status;
		assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){.memory_bytes = 16 << 20}, err, sizeof(err), &d), 0);
		assert_true(d.oom_index >= 0);
		pid_t pid = start_in(&d, rows[i].run);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (rows[i].oom)
			assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		else
			assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 137);
		assert_int_equal(oom_kills(&d), rows[i].oom);
		cgroup_dirs_done(&d);
		end_for_sure(c, "t.1");
	}
	cgroups_free(c);
}

static void test_real_cpu(void **state)
{
	struct cgroups *c = real(CGROUP_CPU);
	if (!c)
		SKIP("no cgroup with that controller can be made here");
	struct cgroup_dirs d;
	char err[512], text[64] = "";
	assert_int_equal(cgroups_make(c, "t.1", &(struct cgroup_limits){.cpu_millis = 250}, err, sizeof(err), &d), 0);
	for (size_t i = 0; i < d.n && !*text; i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/cpu.max", d.path[i]);
		if (access(path, F_OK) == 0) {
			read_file(d.path[i], "cpu.max", text, sizeof(text));
			assert_string_equal(text, "25000 100000\n");
		}
		snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", d.path[i]);
		if (access(path, F_OK) == 0) {
			read_file(d.path[i], "cpu.cfs_quota_us", text, sizeof(text));
			assert_string_equal(text, "25000\n");
		}
	}
	assert_true(*text);
	cgroup_dirs_done(&d);
	end_for_sure(c, "t.1");
	cgroups_free(c);
}

static bool is_kept(void *arg, const char *name)
{
	return strcmp(name, arg) == 0;
}

static void test_real_end(void **state)
{
	struct cgroups *c = real(CGROUP_PIDS);
	if (!c)
		SKIP("no cgroup with that controller can be made here");
	char err[512];
	int status;
	pid_t pids[2];
	static const char *const names[] = {"t.1", "t.2"};
	for (size_t i = 0; i < 2; i++) {
		struct cgroup_dirs d;
		assert_int_equal(cgroups_make(c, names[i], &(struct cgroup_limits){0}, err, sizeof(err), &d), 0);
		assert_int_equal(d.kill_index >= 0, (cgroups_can(c) & CGROUP_KILL) != 0);
		pids[i] = start_in(&d, sleep_long);
		/* In it, and its child too. */
		int64_t until = clock_boot_ns() + 10 * NS_PER_S;
		for (char text[256]; clock_boot_ns() < until; usleep(1000)) {
			read_file(d.path[0], "cgroup.procs", text, sizeof(text));
			if (strchr(text, '\n') != strrchr(text, '\n'))
				break;
		}
		assert_true(clock_boot_ns() < until);
		cgroup_dirs_done(&d);
	}
	assert_int_equal(cgroups_sweep(c, is_kept, (void *)(uintptr_t)"t.2", 10 * NS_PER_S), 0);
	assert_int_equal(waitpid(pids[0], &status, 0), pids[0]);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(waitpid(pids[1], &status, WNOHANG), 0);
	end_for_sure(c, "t.2");
	assert_int_equal(waitpid(pids[1], &status, 0), pids[1]);
	cgroups_free(c);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_v2), TEST(test_no_limits_no_files), TEST(test_small_cpu), TEST(test_half_made), TEST(test_own_leaf),
		TEST(test_no_controller_comes_down), TEST(test_v1), TEST(test_v1_half_there), TEST(test_nothing_there),
		TEST(test_modes), cmocka_unit_test(test_real_memory), cmocka_unit_test(test_real_cpu), cmocka_unit_test(test_real_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

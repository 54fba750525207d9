/* What a program is started with, all parts together: from settings and a task to what the supervisor is told. */
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
#include "worker/confine.h"
#include "worker/outcome.h"
#include "worker/remove_tree.h"

struct rig {
	char top[64];
	struct worker_config cfg;
	struct state_dir state;
	struct confine *confine;
	struct launch_base base;
	struct launch launch;
	struct holding holding;
	Reins__V1__TaskSpec spec;
	Reins__V1__DispatchedTask task;
	Reins__V1__TaskSpec__EnvEntry env, *env_at[1];
	char *command[2];
	char dir[160];
	char err[1024];
};

static struct rig rig;

static int set_up(void **state)
{
	static char id[] = "team/w1", off[] = "off", none[] = "none", nowhere[] = "/nowhere";
	struct rig *r = &rig;
	*r = (struct rig){.cfg = {.id = id, .cgroup = off, .gpus = none, .device_dir = nowhere, .cpus = 4}};
	snprintf(r->top, sizeof(r->top), "/tmp/reins-test-XXXXXX");
	setenv("PATH", "/usr/bin:/bin", 1);
	setenv("HOME", "/home/of-the-worker", 1);
	setenv("A_SECRET", "x", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("CUDA_DEVICE_ORDER");
	if (!mkdtemp(r->top) || chmod(r->top, 0711) < 0)
		return -1;
	snprintf(r->dir, sizeof(r->dir), "%.60s/attempts/t.1", r->top);
	reins__v1__task_spec__init(&r->spec);
	reins__v1__dispatched_task__init(&r->task);
	reins__v1__task_spec__env_entry__init(&r->env);
	r->task.spec = &r->spec;
	r->spec.command = r->command;
	r->spec.n_command = 1;
	r->command[0] = (char *)(uintptr_t)"sh";
	r->env_at[0] = &r->env;
	r->spec.env = r->env_at;
	return state_dir_open(&r->state, r->top, "team/w1", r->err, sizeof(r->err));
}

static int tear_down(void **state)
{
	struct rig *r = &rig;
	if (r->confine) {
		resources_give_back(&r->confine->resources, &r->holding);
		launch_done(&r->launch);
		launch_base_done(&r->base);
		confine_free(r->confine);
	}
	state_dir_close(&r->state);
	(void)!remove_tree(AT_FDCWD, r->top);
	return access(r->top, F_OK) == 0 ? -1 : 0;
}

/* As the agent does it. The text of a failure, or NULL. */
static const char *launch(struct rig *r, int gpus, bool *ret_own)
{
	Reins__V1__Resources need = REINS__V1__RESOURCES__INIT;
	bool busy;
	need.gpus = gpus;
	if (!r->confine) {
		if (confine_new(&r->cfg, &r->state, r->err, sizeof(r->err), &r->confine) < 0)
			return r->err;
		launch_base_init(&r->base, r->cfg.id, 0, r->confine);
	}
	launch_done(&r->launch);
	resources_give_back(&r->confine->resources, &r->holding);
	assert_null(resources_take(&r->confine->resources, &need, &busy, &r->holding));
	assert_int_equal(launch_make(&r->launch, &r->base, &r->task, r->dir), 0);
	return confine_launch(r->confine, "t.1", &r->holding, &r->launch, r->err, sizeof(r->err), ret_own) < 0 ? r->err : NULL;
}

/* The value of a variable that is there once; NULL when it is not there. */
static const char *variable(const struct launch *l, const char *name)
{
	const char *found = NULL;
	for (char **p = l->envp; *p; p++)
		if (strncmp(*p, name, strlen(name)) == 0 && (*p)[strlen(name)] == '=') {
			assert_null(found);
			found = *p + strlen(name) + 1;
		}
	return found;
}

static void test_defaults(void **state)
{
	struct rig *r = &rig;
	bool own;
	assert_null(launch(r, 0, &own));
	assert_true(r->launch.no_new_privs);
	assert_int_equal(r->launch.core_bytes, 0);
	assert_null(r->launch.user);
	assert_int_equal(r->launch.cgroups.n, 0);
	assert_int_equal(r->launch.cgroups.kill_index, -1);
	assert_string_equal(r->launch.search_path, "/usr/bin:/bin");
	assert_string_equal(variable(&r->launch, "HOME"), "/home/of-the-worker");
	assert_null(variable(&r->launch, "A_SECRET"));
	assert_null(variable(&r->launch, "CUDA_VISIBLE_DEVICES"));
	assert_true(strncmp(variable(&r->launch, "REINS_RESULT"), r->dir, strlen(r->dir)) == 0);
	/* Nothing to limit memory with, so none is offered. */
	assert_int_equal(r->confine->resources.memory_bytes, 0);
	assert_int_equal(r->confine->resources.cpu_millis, 4000);
}

static void test_gpus(void **state)
{
	struct rig *r = &rig;
	bool own;
	r->cfg.gpus = (char[]){"5,7"};
	/* A task does not choose for itself. */
	r->env.key = (char *)(uintptr_t)"CUDA_VISIBLE_DEVICES";
	r->env.value = (char *)(uintptr_t)"0";
	r->spec.n_env = 1;
	assert_null(launch(r, 1, &own));
	assert_string_equal(variable(&r->launch, "CUDA_VISIBLE_DEVICES"), "5");
	assert_string_equal(variable(&r->launch, "NVIDIA_VISIBLE_DEVICES"), "5");
	assert_string_equal(variable(&r->launch, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
	assert_null(launch(r, 2, &own));
	assert_string_equal(variable(&r->launch, "CUDA_VISIBLE_DEVICES"), "5,7");
	assert_null(launch(r, 0, &own));
	assert_string_equal(variable(&r->launch, "CUDA_VISIBLE_DEVICES"), "");
	assert_string_equal(variable(&r->launch, "NVIDIA_VISIBLE_DEVICES"), "void");
}

static void test_outer_gpus(void **state)
{
	struct rig *r = &rig;
	bool own;
	setenv("CUDA_VISIBLE_DEVICES", "2,3", 1);
	r->cfg.gpus = (char[]){"2"};
	assert_null(launch(r, 2, &own));
	assert_string_equal(variable(&r->launch, "CUDA_VISIBLE_DEVICES"), "2,3");
	assert_null(variable(&r->launch, "CUDA_DEVICE_ORDER"));
}

static void test_allowed(void **state)
{
	struct rig *r = &rig;
	bool own = true;
	char *patterns[] = {(char[]){"/bin/sh"}, (char[]){"/usr/bin/s*"}, (char[]){"/usr/bin/true"}};
	r->cfg.allow = (struct setting_list){patterns, 3};
	assert_null(launch(r, 0, &own));
	assert_string_equal(r->launch.search_path, "/usr/bin");
	assert_string_equal(r->launch.argv[0], "sh");
	r->command[0] = (char *)(uintptr_t)"env";
	assert_non_null(launch(r, 0, &own));
	assert_string_equal(r->err, "the program /usr/bin/env is not allowed on this worker (see its --allow)");
	assert_false(own);
	r->command[0] = (char *)(uintptr_t)"/bin/sh";
	assert_null(launch(r, 0, &own));
}

static void test_flags(void **state)
{
	struct rig *r = &rig;
	bool own;
	char *names[] = {(char[]){"A_*"}};
	r->cfg.inherit_env = (struct setting_list){names, 1};
	r->cfg.allow_privileges = true;
	r->cfg.open_files = 77;
	assert_null(launch(r, 0, &own));
	assert_string_equal(variable(&r->launch, "A_SECRET"), "x");
	assert_false(r->launch.no_new_privs);
	assert_int_equal(r->launch.open_files, 77);
}

static void test_user(void **state)
{
	struct rig *r = &rig;
	bool own;
	if (geteuid() != 0)
		SKIP("needs root");
	r->cfg.run_as = (char[]){"nobody"};
	assert_null(launch(r, 0, &own));
	assert_string_equal(r->launch.user, "nobody");
	assert_string_equal(variable(&r->launch, "USER"), "nobody");
	assert_string_equal(variable(&r->launch, "LOGNAME"), "nobody");
	assert_string_not_equal(variable(&r->launch, "HOME"), "/home/of-the-worker");
	assert_non_null(variable(&r->launch, "SHELL"));
}

static void test_memory_without_means(void **state)
{
	struct rig *r = &rig;
	Reins__V1__Resources need = REINS__V1__RESOURCES__INIT;
	struct holding h;
	bool own, busy = true;
	assert_null(launch(r, 0, &own));
	need.memory_bytes = 1 << 20;
	assert_non_null(strstr(resources_take(&r->confine->resources, &need, &busy, &h), "can't enforce a limit of memory"));
	assert_false(busy);
	/* Held by an attempt of an earlier start that could: its launch would be this worker's own failure. */
	r->holding.memory_bytes = 1 << 20;
	assert_int_equal(confine_launch(r->confine, "t.1", &r->holding, &r->launch, r->err, sizeof(r->err), &own), -ENOTSUP);
	assert_true(own);
	r->holding.memory_bytes = 0;
}

static void test_memory_flag(void **state)
{
	struct rig *r = &rig;
	bool own;
	r->cfg.memory = 1 << 30;
	assert_non_null(strstr(launch(r, 0, &own), "--memory: programs can't be held to a limit"));
}

static void test_oom_text(void **state)
{
	char text[128];
	confine_oom_text(64 << 20, text, sizeof(text));
	assert_string_equal(text, "out of memory: over its limit of 64MiB");
	confine_oom_text(0, text, sizeof(text));
	assert_non_null(strstr(text, "no limit of its own"));
}

/* S42: both end by SIGKILL or 137, as people see it. */
static void test_oom_outcome(void **state)
{
	static const struct {
		bool oom;
		int code, signal;
		Reins__V1__Outcome__Kind stop;
		bool told;
		const char *text;
	} rows[] = {
		{true, 0, 9, REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED, true, "over its limit; ended by signal 9 (Killed)"},
		{true, 1, 0, REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED, true, "over its limit; exit code 1"}, /* a child of it was */
		{false, 137, 0, REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED, false, "exit code 137"},
		{false, 0, 9, REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED, false, "ended by signal 9 (Killed)"},
		{true, 0, 0, REINS__V1__OUTCOME__KIND__KIND_UNSPECIFIED, false, ""}, /* it got over it */
		{true, 0, 9, REINS__V1__OUTCOME__KIND__TIMED_OUT, false, "too long"},
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct outcome_facts facts = {.task_id = "t", .attempt = 1, .exited = true, .code = rows[i].code,
			.signal = rows[i].signal, .stop_kind = rows[i].stop, .text = "too long",
			.oom_text = rows[i].oom ? "over its limit" : NULL};
		struct blob *b = outcome_pack(&facts, AT_FDCWD, "no-such-directory", 100, 100);
		assert_non_null(b);
		Reins__V1__Outcome *o = reins__v1__outcome__unpack(NULL, b->len, b->data);
		assert_non_null(o);
		assert_int_equal(o->oom_killed, rows[i].told);
		assert_int_equal(o->error.len, strlen(rows[i].text));
		assert_memory_equal(o->error.data, rows[i].text, o->error.len);
		reins__v1__outcome__free_unpacked(o, NULL);
		blob_unref(b);
	}
}

/* Where programs run as another user, root reads no file for them that is not theirs. */
static void test_result_of_others(void **state)
{
	struct rig *r = &rig;
	const struct outcome_facts facts = {.task_id = "t", .attempt = 1, .exited = true};
	if (geteuid() != 0)
		SKIP("needs root");
	assert_int_equal(state_dir_open_to(&r->state, 65534, 65534), 0);
	assert_int_equal(state_dir_make_attempt(&r->state, "t.1"), 0);
	int fd = openat(r->state.attempts_fd, "t.1/" STATE_RESULT, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "secret", 6), 6);
	for (int theirs = 0; theirs < 2; theirs++) {
		assert_true(!theirs || fchown(fd, 65534, 65534) == 0);
		struct blob *b = outcome_pack(&facts, r->state.attempts_fd, "t.1", 100, 100);
		assert_non_null(b);
		Reins__V1__Outcome *o = reins__v1__outcome__unpack(NULL, b->len, b->data);
		assert_non_null(o);
		assert_int_equal(o->result.len, theirs ? 6 : 0);
		reins__v1__outcome__free_unpacked(o, NULL);
		blob_unref(b);
	}
	close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_defaults), TEST(test_gpus), TEST(test_outer_gpus), TEST(test_allowed), TEST(test_flags), TEST(test_user),
		TEST(test_memory_without_means), TEST(test_memory_flag), cmocka_unit_test(test_oom_text),
		cmocka_unit_test(test_oom_outcome), TEST(test_result_of_others),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

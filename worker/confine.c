/* Puts the parts together. */
#include "worker/confine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/num.h"
#include "worker/allow.h"
#include "worker/environment.h"

#define SMI_LIMIT_NS (20 * NS_PER_S)
#define MEMORY_STEP (INT64_C(1) << 20)

static int64_t count_cpus(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? n : 1;
}

static int64_t memory_to_give(const struct confine *c, int64_t outer)
{
	if (!(cgroups_can(c->cgroups) & CGROUP_MEMORY))
		return 0;
	if (c->cfg->memory)
		return c->cfg->memory;
	/* The rest is for the system, the agent and the supervisors. */
	int64_t bytes = min_i64((int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), outer) / 10 * 9;
	return bytes > MEMORY_STEP ? bytes / MEMORY_STEP * MEMORY_STEP : bytes;
}

static int find_cgroups(struct confine *c, const struct state_dir *state, char *err, size_t cap)
{
	/* The instance: two workers of one id may be on one machine for a while, and one sweeps what it finds. */
	_cleanup_free_ char *name = NULL;
	if (asprintf(&name, "reins-%.150s.%.8s", c->cfg->id, state->instance) < 0)
		abort(); /* a name's length */
	for (char *p = name; *p; p++)
		if (*p == '/')
			*p = '+';
	const struct cgroup_config cfg = {.mode = c->cfg->cgroup, .name = name, .pids_limit = c->cfg->pids_limit,
		.pids_v1 = c->cfg->pids_given};
	if (cgroups_new(&cfg, err, cap, &c->cgroups) < 0)
		return -1;
	if (c->cfg->memory && !(cgroups_can(c->cgroups) & CGROUP_MEMORY)) {
		snprintf(err, cap, "--memory: programs can't be held to a limit of memory here (%.400s)", cgroups_describe(c->cgroups));
		return -1;
	}
	return 0;
}

static int find_resources(struct confine *c, char *err, size_t cap)
{
	const char *path = getenv("PATH");
	const struct devices_config cfg = {.gpus = c->cfg->gpus, .outer = getenv("CUDA_VISIBLE_DEVICES"),
		.search_path = path ? path : "/usr/bin:/bin", .device_dir = c->cfg->device_dir, .limit_ns = SMI_LIMIT_NS};
	struct devices *devices;
	int64_t outer_cpu, outer_memory;
	cgroups_outer(c->cgroups, &outer_cpu, &outer_memory);
	int64_t cpu = c->cfg->cpus ? c->cfg->cpus * 1000 : min_i64(count_cpus() * 1000, outer_cpu);
	if (devices_new(&cfg, err, cap, &devices) < 0)
		return -1;
	if (resources_init(&c->resources, cpu, memory_to_give(c, outer_memory), &c->cfg->resources, devices, err, cap) < 0) {
		devices_free(devices);
		return -1;
	}
	return 0;
}

static int find_user(struct confine *c, struct state_dir *state, char *err, size_t cap)
{
	_cleanup_free_ char *attempts = NULL;
	if (run_as_init(&c->run_as, c->cfg->run_as, err, cap) < 0)
		return -1;
	if (!c->run_as.name)
		return 0;
	int r = state_dir_open_to(state, c->run_as.uid, c->run_as.gid);
	if (r < 0) {
		snprintf(err, cap, "--run-as %.100s: %.500s can't be opened to that user: %s", c->run_as.name, state->path, strerror(-r));
		return -1;
	}
	if (asprintf(&attempts, "%s/attempts", state->path) < 0)
		abort(); /* a path's length */
	return run_as_reach(&c->run_as, attempts, err, cap);
}

int confine_new(const struct worker_config *cfg, struct state_dir *state, char *err, size_t cap, struct confine **ret)
{
	struct confine *c = xcalloc(1, sizeof(*c));
	c->cfg = cfg;
	if (find_user(c, state, err, cap) < 0 || find_cgroups(c, state, err, cap) < 0 || find_resources(c, err, cap) < 0) {
		confine_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

void confine_free(struct confine *c)
{
	if (!c)
		return;
	resources_done(&c->resources);
	cgroups_free(c->cgroups);
	run_as_done(&c->run_as);
	free(c);
}

void confine_describe(const struct confine *c, void (*say)(void *arg, const char *line), void *arg)
{
	char line[768], memory[40];
	const struct resources *r = &c->resources;
	num_format_size(r->memory_bytes, memory, sizeof(memory));
	snprintf(line, sizeof(line), "to give: %g cpus, %s, %zu GPUs%s%s", (double)r->cpu_millis / 1000,
		 r->memory_bytes ? memory : "no memory", devices_count(r->devices),
		 *devices_describe(r->devices) ? "; " : "", devices_describe(r->devices));
	say(arg, line);
	say(arg, cgroups_describe(c->cgroups));
	if (c->run_as.name) {
		snprintf(line, sizeof(line), "programs run as %s", c->run_as.name);
		say(arg, line);
	}
}

/* ---- an attempt ---- */

static int set_gpus(const struct confine *c, const struct holding *h, struct launch *l)
{
	const struct devices *d = c->resources.devices;
	if (!devices_count(d))
		return 0;
	_cleanup_free_ char *visible = resources_visible(&c->resources, h);
	int r = launch_set(l, "CUDA_VISIBLE_DEVICES", visible);
	/* The container runtime's word for none: nothing said would mean all. */
	if (r == 0)
		r = launch_set(l, "NVIDIA_VISIBLE_DEVICES", *visible ? visible : "void");
	if (r == 0 && devices_in_bus_order(d) && !getenv("CUDA_DEVICE_ORDER"))
		r = launch_set(l, "CUDA_DEVICE_ORDER", "PCI_BUS_ID");
	return r;
}

static int check_program(const struct confine *c, struct launch *l, char *err, size_t cap)
{
	char *search;
	if (!c->cfg->allow.len)
		return 0;
	int r = allow_program(&c->cfg->allow, l->argv[0], l->search_path, l->directory, err, cap, &search);
	if (r == 0 && search)
		launch_own_search(l, search);
	return r;
}

int confine_launch(struct confine *c, const char *name, const struct holding *h, struct launch *l, char *err, size_t cap,
		   bool *ret_own)
{
	*ret_own = false;
	int r = check_program(c, l, err, cap);
	if (r < 0)
		return r;
	*ret_own = true;
	r = set_gpus(c, h, l);
	if (r < 0) {
		snprintf(err, cap, "the worker could not make the environment: %s", strerror(-r));
		return r;
	}
	const struct cgroup_limits limits = {.cpu_millis = h->cpu_millis, .memory_bytes = h->memory_bytes};
	r = cgroups_make(c->cgroups, name, &limits, err, cap, &l->cgroups);
	if (r < 0)
		return r;
	l->user = c->run_as.name;
	l->no_new_privs = !c->cfg->allow_privileges;
	l->core_bytes = 0;
	if (c->cfg->open_files)
		l->open_files = c->cfg->open_files;
	return 0;
}

int confine_end(struct confine *c, const char *name)
{
	return cgroups_end(c->cgroups, name);
}

int confine_sweep(struct confine *c, bool (*is_known)(void *arg, const char *name), void *arg, int64_t limit_ns)
{
	return cgroups_sweep(c->cgroups, is_known, arg, limit_ns);
}

char **confine_environment(const struct confine *c, char ***ret_own)
{
	char **list = environment_inherit(environ, &c->cfg->inherit_env);
	*ret_own = NULL;
	if (!c->run_as.name)
		return list;
	const char *const ours[][2] = {{"HOME", c->run_as.home}, {"USER", c->run_as.name}, {"LOGNAME", c->run_as.name},
		{"SHELL", c->run_as.shell}};
	size_t n = 0, k = 0;
	while (list[n])
		n++;
	char **out = xcalloc(n + ARRAY_LEN(ours) + 1, sizeof(*out)), **own = xcalloc(ARRAY_LEN(ours) + 1, sizeof(*own));
	for (size_t i = 0; i < n; i++) {
		bool replaced = false;
		for (size_t o = 0; o < ARRAY_LEN(ours); o++)
			replaced |= strncmp(list[i], ours[o][0], strlen(ours[o][0])) == 0 && list[i][strlen(ours[o][0])] == '=';
		if (!replaced)
			out[k++] = list[i];
	}
	for (size_t o = 0; o < ARRAY_LEN(ours); o++) {
		if (asprintf(&own[o], "%s=%s", ours[o][0], ours[o][1]) < 0)
			abort(); /* a path's length */
		out[k++] = own[o];
	}
	free(list);
	*ret_own = own;
	return out;
}

void confine_oom_text(int64_t limit, char *ret, size_t cap)
{
	char text[40];
	num_format_size(limit, text, sizeof(text));
	if (limit > 0)
		snprintf(ret, cap, "out of memory: over its limit of %s", text);
	else
		snprintf(ret, cap, "out of memory: ended by the kernel, though the task has no limit of its own");
}

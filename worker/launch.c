/* Words and environment of a program.  stdin is an unnamed file in memory: nothing has to be fed to the program
 * while it runs, and it finds the end of its input where it belongs.  So is the job: it may be larger than a packet. */
#include "worker/launch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/pb/pb.h"
#include "worker/confine.h"
#include "worker/state_dir.h"
#include "worker/supervisor/wire.h"

#define OWN_VARIABLES 8 /* REINS_TASK_ID … TRACEPARENT */
#define JOB_MAX (7u << 20) /* of strings: a supervisor takes 8 MiB with their head, the kernel 2 MiB or so */
#define OWN_WORDS 2     /* its directory, where the program is searched */
#define SET_VARIABLES 3 /* by launch_set */

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

void launch_base_init(struct launch_base *b, const char *worker_id, long open_files, const struct confine *confine)
{
	const char *path = getenv("PATH");
	*b = (struct launch_base){.worker_id = worker_id, .open_files = open_files,
		.search_path = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"};
	b->inherited = confine_environment(confine, &b->own_inherited);
	while (b->inherited[b->n_inherited])
		b->n_inherited++;
}

void launch_base_done(struct launch_base *b)
{
	for (char **p = b->own_inherited; p && *p; p++)
		free(*p);
	free(b->own_inherited);
	free(b->inherited);
}

static bool same_variable(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");
	return strncmp(a, b, n + 1) == 0;
}

/* A formatted string that lives as long as the launch; NULL without memory. */
static char *own(struct launch *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
static char *own(struct launch *l, const char *fmt, ...)
{
	char *text;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		return NULL;
	l->owned[l->n_owned++] = text;
	return text;
}

static char *params_json(Reins__V1__TaskSpec *spec)
{
	json_t *object = json_object();
	bool ok = object != NULL;
	for (size_t i = 0; ok && i < spec->n_params; i++) /* of equal keys the last counts, as with json_object_set */
		ok = json_object_set_new(object, spec->params[i]->key, json_string(spec->params[i]->value)) == 0;
	char *text = ok ? json_dumps(object, JSON_COMPACT) : NULL;
	json_decref(object);
	return text;
}

static int make_env(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *t, const char *dir)
{
	Reins__V1__TaskSpec *spec = t->spec;
	size_t n = 0, n_given = 0;
	_cleanup_free_ char *params = params_json(spec);
	char *own_variables[OWN_VARIABLES];
	l->envp = calloc(b->n_inherited + spec->n_env + OWN_VARIABLES + SET_VARIABLES + 1, sizeof(*l->envp));
	_cleanup_free_ char **given = calloc(spec->n_env + 1, sizeof(*given));
	if (!params || !l->envp || !given)
		return -ENOMEM;
	own_variables[0] = own(l, "REINS_TASK_ID=%s", t->task_id);
	own_variables[1] = own(l, "REINS_ATTEMPT=%d", (int)t->attempt);
	own_variables[2] = own(l, "REINS_QUEUE=%s", t->queue);
	own_variables[3] = own(l, "REINS_WORKER_ID=%s", b->worker_id);
	own_variables[4] = own(l, "REINS_PARAMS=%s", params);
	own_variables[5] = own(l, "REINS_RESULT=%s/" STATE_RESULT, dir);
	own_variables[6] = own(l, "REINS_METRICS=%s/" STATE_METRICS, dir);
	size_t n_own = 7;
	if (t->traceparent[0])
		own_variables[n_own++] = own(l, "TRACEPARENT=%s", t->traceparent);
	for (size_t i = 0; i < spec->n_env; i++) {
		/* A later entry of the same key replaces an earlier one; ours can't be replaced. */
		if (starts_with(spec->env[i]->key, "REINS_"))
			continue;
		char *v = own(l, "%s=%s", spec->env[i]->key, spec->env[i]->value);
		if (!v)
			return -ENOMEM;
		size_t k = 0;
		while (k < n_given && !same_variable(given[k], v))
			k++;
		given[k] = v;
		n_given = max_sz(n_given, k + 1);
	}
	for (size_t i = 0; i < b->n_inherited; i++) {
		bool replaced = false;
		for (size_t k = 0; k < n_given && !replaced; k++)
			replaced = same_variable(given[k], b->inherited[i]);
		if (!replaced)
			l->envp[n++] = b->inherited[i];
	}
	for (size_t k = 0; k < n_given; k++)
		if (!t->traceparent[0] || !starts_with(given[k], "TRACEPARENT="))
			l->envp[n++] = given[k];
	for (size_t i = 0; i < n_own; i++) {
		if (!own_variables[i])
			return -ENOMEM;
		l->envp[n++] = own_variables[i];
	}
	return 0;
}

static int make_argv(struct launch *l, Reins__V1__DispatchedTask *t, const char *dir)
{
	Reins__V1__TaskSpec *spec = t->spec;
	l->argv = calloc(spec->n_command + 1, sizeof(*l->argv));
	l->directory = spec->working_dir[0] ? spec->working_dir : own(l, "%s/work", dir);
	if (!l->argv || !l->directory)
		return -ENOMEM;
	memcpy(l->argv, spec->command, spec->n_command * sizeof(*l->argv));
	return 0;
}

static int write_at(int fd, const void *data, size_t len, off_t at)
{
	for (const char *p = data; len > 0;) {
		ssize_t n = pwrite(fd, p, len, at);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			p += n;
			at += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int make_stdin(struct launch *l, const ProtobufCBinaryData *payload)
{
	if (!payload->len)
		return 0;
	l->stdin_fd = memfd_create("payload", MFD_CLOEXEC);
	if (l->stdin_fd < 0)
		return -errno;
	return write_at(l->stdin_fd, payload->data, payload->len, 0);
}

int launch_make(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *task, const char *dir)
{
	*l = (struct launch){.stdin_fd = -1, .search_path = b->search_path, .cgroups = {.kill_index = -1, .oom_index = -1},
		.open_files = b->open_files, .core_bytes = -1};
	l->owned = calloc(OWN_VARIABLES + OWN_WORDS + SET_VARIABLES + task->spec->n_env, sizeof(*l->owned));
	int r = l->owned ? make_argv(l, task, dir) : -ENOMEM;
	if (r == 0)
		r = make_env(l, b, task, dir);
	if (r == 0)
		r = make_stdin(l, &task->spec->payload);
	if (r < 0)
		launch_done(l);
	return r;
}

void launch_done(struct launch *l)
{
	for (size_t i = 0; i < l->n_owned; i++)
		free(l->owned[i]);
	free(l->owned);
	free(l->argv);
	free(l->envp);
	cgroup_dirs_done(&l->cgroups);
	if (l->stdin_fd >= 0)
		close(l->stdin_fd);
	*l = (struct launch){.stdin_fd = -1};
}

int launch_set(struct launch *l, const char *name, const char *value)
{
	char *variable = own(l, "%s=%s", name, value);
	size_t n = 0;
	if (!variable)
		return -ENOMEM;
	while (l->envp[n] && !same_variable(l->envp[n], variable))
		n++;
	l->envp[n] = variable;
	return 0;
}

void launch_own_search(struct launch *l, char *search_path)
{
	l->owned[l->n_owned++] = search_path;
	l->search_path = search_path;
}

/* ---- for a supervisor ---- */

static int add_string(struct buf *b, const char *s)
{
	return buf_add(b, s, strlen(s) + 1);
}

static int add_strings(struct buf *b, char *const *at, size_t n)
{
	int r = 0;
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_string(b, at[i]);
	return r;
}

static uint32_t count(char *const *at)
{
	uint32_t n = 0;
	while (at[n])
		n++;
	return n;
}

int launch_pack(const struct launch *l, const struct launch_times *t)
{
	struct sup_job_file job = {
		.size = sizeof(job), .version = SUP_VERSION, .n_argv = count(l->argv), .n_env = count(l->envp),
		.n_join = (uint32_t)l->cgroups.n, .kill_index = l->cgroups.kill_index, .oom_index = l->cgroups.oom_index,
		.no_new_privs = l->no_new_privs, .open_files = l->open_files, .core_bytes = l->core_bytes,
		.processes = l->processes, .timeout_ns = t->timeout_ns, .kill_grace_ns = t->kill_grace_ns,
		.log_head_bytes = t->log_head_bytes, .log_ring_bytes = t->log_ring_bytes, .stuck_after_ns = t->stuck_after_ns,
	};
	struct buf strings;
	buf_init(&strings, JOB_MAX);
	int r = add_string(&strings, l->directory);
	if (r == 0)
		r = add_string(&strings, l->search_path);
	if (r == 0)
		r = add_string(&strings, l->user ? l->user : "");
	if (r == 0)
		r = add_strings(&strings, l->cgroups.path, l->cgroups.n);
	if (r == 0)
		r = add_strings(&strings, l->argv, job.n_argv);
	if (r == 0)
		r = add_strings(&strings, l->envp, job.n_env);
	job.strings_size = buf_len(&strings);
	int fd = r < 0 ? r : memfd_create("job", MFD_CLOEXEC);
	if (r == 0 && fd < 0)
		fd = -errno;
	if (fd >= 0) {
		r = write_at(fd, &job, sizeof(job), 0);
		if (r == 0)
			r = write_at(fd, buf_head(&strings), buf_len(&strings), sizeof(job));
		if (r < 0) {
			close(fd);
			fd = r;
		}
	}
	buf_done(&strings);
	return fd;
}

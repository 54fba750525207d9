/* Words and environment of a program.  stdin is an unnamed file in memory: nothing has to be fed to the program
 * while it runs, and it finds the end of its input where it belongs. */
#include "worker/launch.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/pb/pb.h"
#include "worker/state_dir.h"

#define OWN_VARIABLES 8 /* REINS_TASK_ID … TRACEPARENT */
#define OWN_WORDS 3     /* numbers and paths among the words of reins-exec */
#define EXEC_WORDS 5    /* reins-exec and what it takes before the program */

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool is_workers_business(const char *variable)
{
	static const char *const theirs[] = {"NOTIFY_SOCKET=", "LISTEN_FDS=", "LISTEN_PID=", "LISTEN_FDNAMES=",
		"WATCHDOG_USEC=", "WATCHDOG_PID=", "INVOCATION_ID=", "JOURNAL_STREAM="};
	if (starts_with(variable, "REINS_"))
		return !starts_with(variable, "REINS_SERVER=");
	for (size_t i = 0; i < ARRAY_LEN(theirs); i++)
		if (starts_with(variable, theirs[i]))
			return true;
	return starts_with(variable, "TRACEPARENT=");
}

void launch_base_init(struct launch_base *b, const char *worker_id, const char *exec_path, long open_files)
{
	size_t n = 0;
	while (environ[n])
		n++;
	const char *path = getenv("PATH");
	*b = (struct launch_base){.worker_id = worker_id, .exec_path = exec_path, .open_files = open_files,
		.search_path = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"};
	b->inherited = xcalloc(n + 1, sizeof(*b->inherited));
	for (size_t i = 0; i < n; i++)
		if (!is_workers_business(environ[i]))
			b->inherited[b->n_inherited++] = environ[i];
}

void launch_base_done(struct launch_base *b)
{
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
	l->envp = calloc(b->n_inherited + spec->n_env + OWN_VARIABLES + 1, sizeof(*l->envp));
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

static int make_argv(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *t, const char *dir)
{
	Reins__V1__TaskSpec *spec = t->spec;
	l->argv = calloc(EXEC_WORDS + spec->n_command + 1, sizeof(*l->argv));
	if (!l->argv)
		return -ENOMEM;
	char *agent = own(l, "%d", (int)getpid()), *files = own(l, "%ld", b->open_files);
	char *cwd = spec->working_dir[0] ? spec->working_dir : own(l, "%s/work", dir);
	if (!agent || !files || !cwd)
		return -ENOMEM;
	char *const head[EXEC_WORDS] = {(char *)b->exec_path, agent, files, (char *)b->search_path, cwd};
	memcpy(l->argv, head, sizeof(head));
	memcpy(l->argv + EXEC_WORDS, spec->command, spec->n_command * sizeof(*l->argv));
	return 0;
}

static int make_stdin(struct launch *l, const ProtobufCBinaryData *payload)
{
	if (!payload->len)
		return 0;
	l->stdin_fd = memfd_create("payload", MFD_CLOEXEC);
	if (l->stdin_fd < 0)
		return -errno;
	for (size_t at = 0; at < payload->len;) {
		ssize_t n = pwrite(l->stdin_fd, payload->data + at, payload->len - at, (off_t)at);
		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

int launch_make(struct launch *l, const struct launch_base *b, Reins__V1__DispatchedTask *task, const char *dir)
{
	*l = (struct launch){.stdin_fd = -1};
	l->owned = calloc(OWN_VARIABLES + OWN_WORDS + task->spec->n_env, sizeof(*l->owned));
	int r = l->owned ? make_argv(l, b, task, dir) : -ENOMEM;
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
	if (l->stdin_fd >= 0)
		close(l->stdin_fd);
	*l = (struct launch){.stdin_fd = -1};
}

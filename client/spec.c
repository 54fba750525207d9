/* Owns the map entries, the payload and the absolute working directory of one request. */
#include "client/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/id.h"
#include "common/base/num.h"
#include "common/pb/pb.h"

static int complain(int err, char *text, size_t cap, const char *fmt, ...) PRINTF_LIKE(4, 5);

static int complain(int err, char *text, size_t cap, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, cap, fmt, ap);
	va_end(ap);
	return err;
}

int spec_parse_cpus(const char *s, int64_t *ret_millis)
{
	char text[40];
	int64_t ns;
	/* A number of seconds has the same form; its milliseconds must be whole. */
	if ((size_t)snprintf(text, sizeof text, "%ss", s) >= sizeof text || num_parse_duration(text, &ns) < 0 ||
	    ns % NS_PER_MS)
		return -EINVAL;
	*ret_millis = ns / NS_PER_MS;
	return 0;
}

int spec_parse_time(const char *s, int64_t now_wall_us, int64_t *ret_wall_us)
{
	static const char *const forms[] = { "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%SZ", "%Y-%m-%dT%H:%MZ", "%Y-%m-%d %H:%MZ" };
	int64_t ns;
	if (num_parse_duration(s, &ns) == 0) {
		*ret_wall_us = now_wall_us + ns / NS_PER_US;
		return ns < 0 ? -EINVAL : 0;
	}
	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		struct tm tm = { 0 }, back;
		const char *end = strptime(s, forms[i], &tm);
		back = tm;
		time_t at = timegm(&tm);
		/* timegm makes a day of March of the 30th of February. */
		if (!end || *end || tm.tm_mday != back.tm_mday || tm.tm_hour != back.tm_hour)
			continue;
		*ret_wall_us = (int64_t)at * 1000000;
		return 0;
	}
	return -EINVAL;
}

/* The generated entries of maps of texts differ in name only: base, key, value; those of other maps begin alike. */
struct text_entry {
	ProtobufCMessage base;
	char *key, *value;
};

static void entries_free(void *entries, size_t n)
{
	struct text_entry **at = entries;
	for (size_t i = 0; i < n; i++) {
		free(at[i]->key);
		free(at[i]);
	}
	free(at);
}

static int entries_read(const struct setting_list *list, const char *flag, const ProtobufCMessageDescriptor *type,
			size_t *ret_n, void *ret_entries, char *err, size_t cap)
{
	if (!list->len)
		return 0;
	struct text_entry **at = xcalloc(list->len, sizeof *at);
	for (size_t i = 0; i < list->len; i++) {
		const char *equals = strchr(list->at[i], '=');
		if (!equals || equals == list->at[i]) {
			entries_free(at, i);
			return complain(-EINVAL, err, cap, "--%s %.100s: write --%s KEY=VALUE", flag, list->at[i], flag);
		}
		at[i] = xcalloc(1, sizeof **at);
		protobuf_c_message_init(type, at[i]);
		at[i]->key = xstrdup(list->at[i]);
		at[i]->key[equals - list->at[i]] = 0;
		at[i]->value = at[i]->key + (equals - list->at[i]) + 1;
	}
	*ret_n = list->len;
	*(struct text_entry ***)ret_entries = at;
	return 0;
}

static int read_all(int fd, uint8_t *data, size_t cap, size_t *ret_len)
{
	size_t len = 0;
	while (len < cap) {
		ssize_t n = read(fd, data + len, cap - len);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			break;
		if (n > 0)
			len += (size_t)n;
	}
	*ret_len = len;
	return 0;
}

static int read_payload(const char *path, struct spec *s, char *err, size_t cap)
{
	bool in = !strcmp(path, "-");
	int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return complain(-errno, err, cap, "--payload %.200s: %s", path, strerror(errno));
	s->payload = xcalloc(1, SPEC_PAYLOAD_MAX + 1);
	size_t len = 0;
	int r = read_all(fd, s->payload, SPEC_PAYLOAD_MAX + 1, &len);
	if (!in)
		close(fd);
	if (r)
		return complain(r, err, cap, "--payload %.200s: %s", path, strerror(-r));
	if (len > SPEC_PAYLOAD_MAX)
		return complain(-EFBIG, err, cap,
				"--payload %.200s: more than 4 MiB; put it on a disk that the workers can read and give its path",
				path);
	s->task.payload.data = s->payload;
	s->task.payload.len = len;
	return 0;
}

static int set_working_dir(const char *path, struct spec *s, char *err, size_t cap)
{
	char here[PATH_MAX];
	if (path[0] == '/') {
		s->working_dir = xstrdup(path);
	} else {
		char *resolved = realpath(path, NULL);
		if (resolved) {
			s->working_dir = resolved;
		} else if (getcwd(here, sizeof here)) {
			size_t n = strlen(here) + strlen(path) + 2;
			s->working_dir = xcalloc(n, 1);
			snprintf(s->working_dir, n, "%s/%s", here, path);
		} else {
			return complain(-errno, err, cap, "--working-dir %.200s: %s", path, strerror(errno));
		}
	}
	s->task.working_dir = s->working_dir;
	return 0;
}

static int set_maps(const struct spec_flags *f, struct spec *s, char *err, size_t cap)
{
	int r = entries_read(&f->env, "env", &reins__v1__task_spec__env_entry__descriptor, &s->task.n_env, &s->task.env, err,
			     cap);
	if (!r)
		r = entries_read(&f->params, "param", &reins__v1__task_spec__params_entry__descriptor, &s->task.n_params,
				 &s->task.params, err, cap);
	if (!r)
		r = entries_read(&f->labels, "label", &reins__v1__task_spec__labels_entry__descriptor, &s->task.n_labels,
				 &s->task.labels, err, cap);
	return r;
}

static int set_run_at(const char *text, struct spec *s, char *err, size_t cap)
{
	int64_t at;
	if (spec_parse_time(text, clock_wall_us(), &at) < 0)
		return complain(-EINVAL, err, cap, "--run-at %.60s: write how long from now, such as 90m, or a time of UTC such as "
						   "2026-12-01T08:00Z", text);
	pb_timestamp_set(&s->run_at, at);
	s->task.run_at = &s->run_at;
	return 0;
}

static void set_times(const struct spec_flags *f, struct spec *s)
{
	if (f->timeout) {
		pb_duration_set(&s->timeout, f->timeout);
		s->task.timeout = &s->timeout;
	}
	if (f->expiry) {
		pb_duration_set(&s->expiry, f->expiry);
		s->task.expiry = &s->expiry;
	}
	if (!f->max_attempts && !f->backoff)
		return;
	reins__v1__retry_policy__init(&s->retry);
	s->retry.max_attempts = (int32_t)f->max_attempts;
	if (f->backoff) {
		pb_duration_set(&s->backoff, f->backoff);
		s->retry.initial_backoff = &s->backoff;
	}
	s->task.retry = &s->retry;
}

/* Owned by the request, as are the keys. */
static int set_custom(const struct setting_list *list, struct spec *s, char *err, size_t cap)
{
	if (!list->len)
		return 0;
	s->resources.custom = xcalloc(list->len, sizeof *s->resources.custom);
	for (size_t i = 0; i < list->len; i++) {
		const char *equals = strchr(list->at[i], '=');
		int64_t count;
		if (!equals || equals == list->at[i] || num_parse_i64(equals + 1, &count) < 0)
			return complain(-EINVAL, err, cap, "--resource %.100s: write --resource NAME=COUNT, such as licenses=2", list->at[i]);
		Reins__V1__Resources__CustomEntry *e = xcalloc(1, sizeof *e);
		protobuf_c_message_init(&reins__v1__resources__custom_entry__descriptor, e);
		e->key = xstrdup(list->at[i]);
		e->key[equals - list->at[i]] = 0;
		e->value = count;
		s->resources.custom[s->resources.n_custom++] = e;
	}
	return 0;
}

static int set_resources(const struct spec_flags *f, struct spec *s, char *err, size_t cap)
{
	reins__v1__resources__init(&s->resources);
	if (f->cpus && spec_parse_cpus(f->cpus, &s->resources.cpu_millis) < 0)
		return complain(-EINVAL, err, cap, "--cpus %.40s: write a number such as 2 or 0.5, with at most three decimals",
				f->cpus);
	s->resources.gpus = (int32_t)f->gpus;
	s->resources.memory_bytes = f->memory;
	if (f->cpus || f->gpus || f->memory || f->custom.len)
		s->task.resources = &s->resources;
	return set_custom(&f->custom, s, err, cap);
}

static void set_origin(const struct origin *o, struct spec *s)
{
	static char client[] = "reins/" REINS_VERSION;
	reins__v1__origin__init(&s->origin);
	s->origin.user = (char *)(uintptr_t)o->user;
	s->origin.host = (char *)(uintptr_t)o->host;
	s->origin.directory = (char *)(uintptr_t)o->directory;
	s->origin.git_commit = (char *)(uintptr_t)o->git_commit;
	s->origin.git_dirty = o->git_dirty;
	s->origin.client = client;
	s->origin.traceparent = (char *)(uintptr_t)o->traceparent;
	s->task.origin = &s->origin;
}

static void set_key(const struct spec_flags *f, struct spec *s)
{
	if (f->idempotency_key) {
		s->request.idempotency_key = f->idempotency_key;
		return;
	}
	struct uuid7_maker maker = { 0 };
	struct uuid id = uuid7_make(&maker, clock_wall_us());
	uuid_format(&id, s->idempotency_key);
	s->request.idempotency_key = s->idempotency_key;
}

static int check_kind(const struct spec_flags *f, size_t n_command, char *err, size_t cap)
{
	if (f->handler && n_command)
		return complain(-EINVAL, err, cap, "a task has either a command or --handler, not both");
	if (!f->handler && !n_command)
		return complain(-EINVAL, err, cap, "what is to run? Write: reins submit [flags] -- COMMAND [ARGUMENT...]");
	return 0;
}

int spec_build(const struct spec_flags *f, char **command, size_t n_command, const struct origin *origin,
	       struct spec *ret, char *ret_err, size_t err_cap)
{
	struct spec *s = ret;
	memset(s, 0, sizeof *s);
	reins__v1__submit_task_request__init(&s->request);
	reins__v1__task_spec__init(&s->task);
	s->request.spec = &s->task;
	int r = check_kind(f, n_command, ret_err, err_cap);
	if (r)
		return r;
	s->task.command = command;
	s->task.n_command = n_command;
	if (f->name)
		s->task.name = f->name;
	if (f->queue)
		s->task.queue = f->queue;
	if (f->handler)
		s->task.handler = f->handler;
	s->task.priority = (int32_t)f->priority;
	s->task.exclusive = f->exclusive;
	set_times(f, s);
	set_origin(origin, s);
	set_key(f, s);
	r = set_maps(f, s, ret_err, err_cap);
	if (!r)
		r = set_resources(f, s, ret_err, err_cap);
	if (!r && f->run_at)
		r = set_run_at(f->run_at, s, ret_err, err_cap);
	if (!r && f->working_dir)
		r = set_working_dir(f->working_dir, s, ret_err, err_cap);
	if (!r && f->payload)
		r = read_payload(f->payload, s, ret_err, err_cap);
	if (r)
		spec_done(s);
	return r;
}

void spec_done(struct spec *s)
{
	entries_free(s->task.env, s->task.n_env);
	entries_free(s->task.params, s->task.n_params);
	entries_free(s->task.labels, s->task.n_labels);
	entries_free(s->resources.custom, s->resources.n_custom);
	free(s->working_dir);
	free(s->payload);
	memset(s, 0, sizeof *s);
}

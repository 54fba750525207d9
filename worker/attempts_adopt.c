/* What an earlier agent left in attempts/: each directory is an attempt that runs on under its supervisor, or has ended
 * while nobody looked, or was lost with its supervisor; or the log of an attempt whose outcome is in the spool. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/num.h"
#include "common/log/log.h"
#include "worker/attempts_private.h"

struct found {
	struct attempts *s;
	char (*names)[STATE_ATTEMPT_NAME_MAX];
	size_t n, cap;
};

static void on_name(void *arg, const char *name)
{
	struct found *f = arg;
	if (strlen(name) >= STATE_ATTEMPT_NAME_MAX)
		return;
	if (f->n == f->cap) {
		f->cap = f->cap ? 2 * f->cap : 16;
		void *more = realloc(f->names, f->cap * sizeof(*f->names));
		if (!more)
			abort();
		f->names = more;
	}
	snprintf(f->names[f->n++], STATE_ATTEMPT_NAME_MAX, "%s", name);
}

/* "ID.N", written as we write it. */
static bool parse_name(const char *name, struct uuid *ret_task, int32_t *ret_number)
{
	char again[STATE_ATTEMPT_NAME_MAX], id[UUID_TEXT_LEN + 1];
	int64_t number;
	if (strlen(name) < UUID_TEXT_LEN + 2 || uuid_parse(name, UUID_TEXT_LEN, ret_task) < 0 ||
	    num_parse_i64(name + UUID_TEXT_LEN + 1, &number) < 0 || number < 1 || number > INT32_MAX)
		return false;
	uuid_format(ret_task, id);
	state_dir_attempt_name(id, (int32_t)number, again);
	*ret_number = (int32_t)number;
	return !strcmp(name, again);
}

/* 1: adopted; 0: it has ended, or is nothing; -errno. */
static int adopt_one(struct attempts *s, const char *name)
{
	struct uuid task;
	int32_t number;
	if (!parse_name(name, &task, &number) || !state_dir_mend_attempt(s->cfg.state, name)) {
		if (strncmp(name, STATE_ASIDE, strlen(STATE_ASIDE)) != 0)
			log_warn("worker", NULL, "attempts/%s is no attempt, and is removed", name);
		disk_remove_tree(s->disk, s->cfg.state->attempts_fd, name);
		return 0;
	}
	char id[UUID_TEXT_LEN + 1];
	uuid_format(&task, id);
	struct attempt *a = attempts_find(s, id, number);
	bool ended = a != NULL;
	if (!a)
		a = attempts_add(s, &task, number);
	snprintf(a->dir, sizeof(a->dir), "%s", name);
	int r = ended ? attempt_reopen(a) : attempt_adopt(a);
	return r < 0 ? r : !ended;
}

/* Of several attempts of a task only the newest can still be ours. */
static void fence_older(struct attempts *s)
{
	list_each(node, &s->all) {
		struct attempt *a = container_of(node, struct attempt, all_node);
		if (a->adopted && container_of(map_get(&s->by_task, &a->task, sizeof(a->task)), struct attempt, by_task) != a)
			attempt_fence(a);
	}
}

int attempts_adopt(struct attempts *s, char *err, size_t cap)
{
	struct found f = {.s = s};
	int r = state_dir_list_attempts(s->cfg.state, on_name, &f), n = 0;
	const char *what = "attempts";
	for (size_t i = 0; i < f.n && r >= 0; i++) {
		what = f.names[i];
		r = adopt_one(s, f.names[i]);
		n += r > 0;
	}
	if (r < 0)
		snprintf(err, cap, "%s/%s: %s", s->cfg.state->path, what, strerror(-r));
	else if (n)
		log_info("worker", NULL, "an earlier process left %d attempts: looking for their supervisors", n);
	free(f.names);
	if (r >= 0)
		fence_older(s);
	return r < 0 ? -1 : 0;
}

/* The table of a tokens file, and what is asked of an entry. */
#include "common/auth/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct principal *principal_ref(struct principal *p)
{
	p->refs++;
	return p;
}

void principal_unref(struct principal *p)
{
	if (!p || --p->refs)
		return;
	free(p->id);
	free(p->name);
	free(p->queues);
	free(p->worker);
	free(p);
}

bool principal_ended(const struct principal *p, int64_t wall_us)
{
	return p->ends_wall_us && wall_us >= p->ends_wall_us;
}

bool principal_has_queue(const struct principal *p, const char *queue)
{
	size_t n = strlen(queue);
	if (!p->queues)
		return true;
	if (strchr(queue, ','))
		return false;
	for (const char *at = p->queues + 1; *at; at = strchr(at, ',') + 1)
		if (strncmp(at, queue, n) == 0 && at[n] == ',')
			return true;
	return false;
}

bool principal_is_worker(const struct principal *p, const char *id)
{
	size_t n = p->worker ? strlen(p->worker) : 0;
	if (!n)
		return false;
	return p->worker[n - 1] == '*' ? strncmp(p->worker, id, n - 1) == 0 : strcmp(p->worker, id) == 0;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool principal_same(const struct principal *a, const struct principal *b)
{
	return a->roles == b->roles && same_text(a->name, b->name) && same_text(a->queues, b->queues) && same_text(a->worker, b->worker);
}

static char *copy(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

/* What is in both lists; "," is an empty one. */
static char *both_queues(const struct principal *a, const struct principal *b)
{
	if (!a->queues || !b->queues)
		return copy(a->queues ? a->queues : b->queues);
	char *ret = xcalloc(1, strlen(a->queues) + 1), *to = ret;
	*to++ = ',';
	for (const char *at = a->queues + 1; *at;) {
		char name[TOKENS_NAME_MAX + 1];
		size_t n = (size_t)(strchr(at, ',') - at);
		snprintf(name, sizeof(name), "%.*s", (int)n, at);
		if (principal_has_queue(b, name))
			to = stpcpy(stpcpy(to, name), ",");
		at += n + 1;
	}
	return ret;
}

static unsigned all_roles(const struct principal *p)
{
	return p->roles & ROLE_ADMIN ? ROLE_ADMIN * 2 - 1 : p->roles;
}

struct principal *principal_both(const struct principal *a, const struct principal *b)
{
	struct principal *p = xcalloc(1, sizeof(*p));
	p->refs = 1;
	p->is_cert = a->is_cert;
	p->id = xstrdup(a->id);
	memcpy(p->digest, a->digest, sizeof(p->digest));
	p->name = xstrdup(a->name);
	p->line = a->line;
	p->roles = all_roles(a) & all_roles(b);
	p->ends_wall_us = !a->ends_wall_us ? b->ends_wall_us : !b->ends_wall_us ? a->ends_wall_us : min_i64(a->ends_wall_us, b->ends_wall_us);
	p->queues = both_queues(a, b);
	p->worker = copy(a->worker);
	return p;
}

void tokens_free(struct tokens *t)
{
	if (!t)
		return;
	for (size_t i = 0; i < t->n; i++)
		principal_unref(t->all[i]);
	map_done(&t->tokens);
	map_done(&t->certs);
	free(t->prefixes);
	free(t->all);
	free(t);
}

struct principal *tokens_find(const struct tokens *t, const char *id)
{
	struct map_node *n = map_get(&t->tokens, id, strlen(id));
	return n ? container_of(n, struct principal, node) : NULL;
}

struct principal *tokens_find_cert(const struct tokens *t, const char *san)
{
	struct map_node *n = map_get(&t->certs, san, strlen(san));
	if (n)
		return container_of(n, struct principal, node);
	struct principal *best = NULL;
	for (size_t i = 0; i < t->n_prefixes; i++) {
		size_t len = strlen(t->prefixes[i]->id);
		if (strncmp(t->prefixes[i]->id, san, len) == 0 && (!best || len > strlen(best->id)))
			best = t->prefixes[i];
	}
	return best;
}

static struct principal *find_prefix(const struct tokens *t, const char *id)
{
	for (size_t i = 0; i < t->n_prefixes; i++)
		if (strcmp(t->prefixes[i]->id, id) == 0)
			return t->prefixes[i];
	return NULL;
}

/* 0, or the words for why not. */
static int add(struct tokens *t, struct principal *p, char *err, size_t cap)
{
	struct map *map = p->is_cert ? &t->certs : &t->tokens;
	struct map_node *n = p->prefix ? NULL : map_get(map, p->id, strlen(p->id));
	struct principal *other = n ? container_of(n, struct principal, node) : p->prefix ? find_prefix(t, p->id) : NULL;
	if (other) {
		snprintf(err, cap, "%s %s%s: it stands in line %d already", p->is_cert ? "cert" : "token", p->id, p->prefix ? "*" : "", other->line);
		return -EINVAL;
	}
	if (t->n == TOKENS_MAX || (p->prefix && t->n_prefixes == TOKENS_PREFIXES_MAX)) {
		snprintf(err, cap, "more than %d %s", p->prefix ? TOKENS_PREFIXES_MAX : TOKENS_MAX,
			 p->prefix ? "certificates with a *" : "entries");
		return -EINVAL;
	}
	t->all = xgrow(t->all, t->n, &t->cap, sizeof(*t->all));
	t->all[t->n++] = p;
	t->n_certs += p->is_cert;
	if (p->prefix) {
		t->prefixes = xgrow(t->prefixes, t->n_prefixes, &t->cap_prefixes, sizeof(*t->prefixes));
		t->prefixes[t->n_prefixes++] = p;
	} else {
		map_put(map, &p->node, p->id, strlen(p->id));
	}
	return 0;
}

static int parse_line(struct tokens *t, const char *line, size_t len, int number, char *err, size_t cap)
{
	char why[300];
	struct principal *p = NULL;
	int rc;
	if (len && line[len - 1] == '\r')
		len--;
	if (len > TOKENS_LINE_MAX) {
		snprintf(why, sizeof(why), "longer than %d bytes", TOKENS_LINE_MAX);
		rc = -EINVAL;
	} else if (memchr(line, '\0', len)) {
		snprintf(why, sizeof(why), "a NUL in it");
		rc = -EINVAL;
	} else {
		rc = principal_parse(line, len, why, sizeof(why), &p);
	}
	if (rc == 0) {
		p->line = number;
		rc = add(t, p, why, sizeof(why));
		if (rc)
			principal_unref(p);
	}
	if (rc < 0)
		snprintf(err, cap, "line %d: %s", number, why);
	return rc < 0 ? rc : 0;
}

int tokens_parse(const char *text, size_t len, char *ret_err, size_t cap, struct tokens **ret)
{
	if (len > TOKENS_FILE_MAX) {
		snprintf(ret_err, cap, "larger than %zu bytes", TOKENS_FILE_MAX);
		return -EINVAL;
	}
	struct tokens *t = xcalloc(1, sizeof(*t));
	map_init(&t->tokens);
	map_init(&t->certs);
	int number = 1, rc = 0;
	for (size_t at = 0; at < len && rc == 0; number++) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - text) - at : len - at;
		rc = parse_line(t, text + at, n, number, ret_err, cap);
		at += n + 1;
	}
	if (rc) {
		tokens_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

static int read_all(int fd, char *data, size_t cap, size_t *ret_len)
{
	size_t len = 0;
	while (len < cap) {
		ssize_t n = read(fd, data + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return 0;
}

int tokens_read(const char *path, char *ret_err, size_t cap, struct tokens **ret)
{
	struct stat st;
	char why[400];
	size_t len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0) {
		snprintf(ret_err, cap, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return -EINVAL;
	}
	char *data = xcalloc(TOKENS_FILE_MAX + 1, 1);
	int rc = read_all(fd, data, TOKENS_FILE_MAX + 1, &len);
	close(fd);
	if (rc)
		snprintf(why, sizeof(why), "%s", strerror(-rc));
	else if (!S_ISREG(st.st_mode)) /* a pipe is empty when it is read again, and everybody is out */
		snprintf(why, sizeof(why), "not an ordinary file");
	else if (st.st_mode & S_IWOTH)
		snprintf(why, sizeof(why), "anybody may write it (chmod o-w)");
	else if (!len) /* who writes it anew has perhaps only begun, and everybody would be out */
		snprintf(why, sizeof(why), "the file is empty; one that lets nobody in has a comment line");
	else if (len <= TOKENS_FILE_MAX && data[len - 1] != '\n')
		snprintf(why, sizeof(why), TOKENS_CUT);
	else if (tokens_parse(data, len, why, sizeof(why), ret) == 0)
		why[0] = '\0';
	free(data);
	if (!why[0])
		return 0;
	snprintf(ret_err, cap, "%s: %s", path, why);
	return -EINVAL;
}

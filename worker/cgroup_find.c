/* Looks for what can be used, in this order: cgroup v2 with as many controllers as can be had, then for each controller
 * that it lacks the v1 hierarchy that has it.
 *
 * In v2 a directory may not have both processes and controllers for what is below it ("no internal processes"): if
 * our own cgroup is the place, the agent first moves into a leaf of it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common/base/num.h"
#include "worker/cgroup_private.h"

#define TABLE_MAX (1 << 20) /* of /proc/self/mountinfo; a machine with more mounts than fit is looked at in part */
#define MOUNTS_MAX 64

struct mount {
	const char *root, *point, *type, *options;
};

struct find {
	struct cgroups *c;
	const struct cgroup_config *cfg;
	struct mount mounts[MOUNTS_MAX];
	size_t n_mounts;
	char *self;       /* the text of /proc/self/cgroup */
	char why[256];    /* the last thing that did not work */
};

static const struct controller {
	unsigned bit;
	const char *name;
} controllers[] = {{CGROUP_MEMORY, "memory"}, {CGROUP_CPU, "cpu"}, {CGROUP_PIDS, "pids"}};

static void note(struct find *f, const char *what, int err)
{
	snprintf(f->why, sizeof(f->why), "%.180s: %s", what, strerror(err < 0 ? -err : err));
}

static char *join_path(const char *a, const char *b)
{
	char *path;
	size_t n = strlen(a);
	while (n > 0 && a[n - 1] == '/')
		n--;
	while (*b == '/')
		b++;
	if (asprintf(&path, "%.*s%s%s", (int)n, a, *b ? "/" : "", b) < 0)
		abort(); /* a path's length */
	return path;
}

static char *read_whole(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = xcalloc(1, TABLE_MAX + 1);
	size_t len = 0;
	for (ssize_t n; fd >= 0 && len < TABLE_MAX && (n = read(fd, text + len, TABLE_MAX - len)) > 0;)
		len += (size_t)n;
	if (fd >= 0)
		close(fd);
	return text;
}

/* Mount points are written with \040 for a blank. */
static void unescape(char *s)
{
	char *out = s;
	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
			*out++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*out++ = *s;
		}
	}
	*out = '\0';
}

static void parse_mounts(struct find *f, char *table)
{
	char *rest = table;
	for (char *line; f->n_mounts < MOUNTS_MAX && (line = strsep(&rest, "\n"));) {
		char *tail = strstr(line, " - ");
		if (!tail)
			continue;
		*tail = '\0';
		tail += 3;
		char *word[5];
		size_t n = 0;
		for (char *w; n < ARRAY_LEN(word) && (w = strsep(&line, " "));)
			word[n++] = w;
		char *type = strsep(&tail, " "), *source = strsep(&tail, " ");
		if (n < ARRAY_LEN(word) || !type || !source || !tail || strncmp(type, "cgroup", 6) != 0)
			continue;
		unescape(word[3]);
		unescape(word[4]);
		f->mounts[f->n_mounts++] = (struct mount){word[3], word[4], type, tail};
	}
}

/* Is `word` among those of a list with this separator? */
static bool has_word(const char *list, const char *word, const char *separators)
{
	size_t len = strlen(word);
	for (const char *p = list; *p; p += strspn(p, separators)) {
		size_t n = strcspn(p, separators);
		if (n == len && strncmp(p, word, n) == 0)
			return true;
		p += n;
	}
	return false;
}

/* Our own cgroup in the hierarchy of a v1 controller, or (NULL) in that of v2; a copy, "/" if it is not told. */
static char *own_path(const struct find *f, const char *controller)
{
	for (const char *p = f->self; *p; p += strcspn(p, "\n"), p += *p == '\n') {
		size_t len = strcspn(p, "\n");
		const char *list = memchr(p, ':', len), *path = list ? memchr(list + 1, ':', len - (size_t)(list + 1 - p)) : NULL;
		if (!path)
			continue;
		_cleanup_free_ char *names = strndup(list + 1, (size_t)(path - list - 1));
		if (!names)
			continue;
		if (controller ? has_word(names, controller, ",") : !*names && *p == '0') {
			char *own = strndup(path + 1, len - (size_t)(path + 1 - p));
			return own ? own : xstrdup("/");
		}
	}
	return xstrdup("/");
}

/* Our own cgroup's directory; the mount point if it can't be seen there. */
static char *own_dir(const struct find *f, const struct mount *m, const char *controller)
{
	_cleanup_free_ char *own = own_path(f, controller);
	const char *below = own;
	size_t root = strlen(m->root);
	if (strcmp(m->root, "/") != 0)
		below = strncmp(own, m->root, root) == 0 && (own[root] == '/' || !own[root]) ? own + root : "/";
	char *dir = join_path(m->point, strstr(below, "/..") == below ? "/" : below);
	if (access(dir, F_OK) == 0)
		return dir;
	free(dir);
	return xstrdup(m->point);
}

/* ---- outer limits ---- */

static void narrow_by(struct cgroups *c, const char *dir, int version, unsigned which)
{
	char text[64];
	long long quota, period;
	int64_t bytes;
	if (which & CGROUP_MEMORY) {
		ssize_t n = cgroup_read(dir, version == 2 ? "memory.max" : "memory.limit_in_bytes", text, sizeof(text));
		/* v1 writes "no limit" as a number near 2^63. */
		if (n > 0 && num_parse_i64(text, &bytes) == 0 && bytes > 0 && bytes < INT64_C(1) << 60)
			c->outer_memory = min_i64(c->outer_memory, bytes);
	}
	if (which & CGROUP_CPU) {
		bool told = false;
		if (version == 2) {
			told = cgroup_read(dir, "cpu.max", text, sizeof(text)) > 0 && sscanf(text, "%lld %lld", &quota, &period) == 2;
		} else if (cgroup_read(dir, "cpu.cfs_quota_us", text, sizeof(text)) > 0 && sscanf(text, "%lld", &quota) == 1) {
			told = cgroup_read(dir, "cpu.cfs_period_us", text, sizeof(text)) > 0 && sscanf(text, "%lld", &period) == 1;
		}
		if (told && quota > 0 && period > 0 && quota < (INT64_C(1) << 50))
			c->outer_cpu_millis = min_i64(c->outer_cpu_millis, max_i64(quota * 1000 / period, 1));
	}
}

/* From the directory up to where it is mounted. */
static void narrow(struct cgroups *c, const char *dir, const char *mount, int version, unsigned which)
{
	_cleanup_free_ char *at = xstrdup(dir);
	size_t least = strlen(mount);
	while (strlen(at) >= least) {
		narrow_by(c, at, version, which);
		char *slash = strrchr(at, '/');
		if (!slash || slash == at)
			return;
		*slash = '\0';
	}
}

/* ---- making the worker's directory ---- */

static int make_dir(const char *path)
{
	return mkdir(path, 0755) < 0 && errno != EEXIST ? -errno : 0;
}

/* Lets directories below `dir` have the controller. */
static int hand_down(const char *dir, const char *controller)
{
	char text[512], word[32];
	ssize_t n = cgroup_read(dir, "cgroup.subtree_control", text, sizeof(text));
	if (n < 0)
		return (int)n;
	if (has_word(text, controller, " \n"))
		return 0;
	snprintf(word, sizeof(word), "+%s", controller);
	return cgroup_write(dir, "cgroup.subtree_control", word);
}

/* The agent leaves `base` for a leaf of it. */
static int step_aside(const char *base)
{
	char pid[16];
	_cleanup_free_ char *leaf = join_path(base, CGROUP_AGENT);
	int r = make_dir(leaf);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	return r < 0 ? r : cgroup_write(leaf, "cgroup.procs", pid);
}

static void step_back(const char *base)
{
	char pid[16];
	_cleanup_free_ char *leaf = join_path(base, CGROUP_AGENT);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (cgroup_write(base, "cgroup.procs", pid) == 0)
		rmdir(leaf);
}

/* All controllers that `base` has, handed down to `base` and `dir`. Returns those that arrived. */
static unsigned get_controllers(struct find *f, const char *base, const char *dir, bool is_own)
{
	char has[512];
	unsigned got = 0;
	bool aside = false;
	ssize_t n = cgroup_read(base, "cgroup.controllers", has, sizeof(has));
	for (size_t i = 0; n > 0 && i < ARRAY_LEN(controllers); i++) {
		if (!has_word(has, controllers[i].name, " \n"))
			continue;
		int r = hand_down(base, controllers[i].name);
		if (r == -EBUSY && is_own && !aside) {
			aside = step_aside(base) == 0;
			if (aside)
				r = hand_down(base, controllers[i].name);
		}
		if (r == 0)
			r = hand_down(dir, controllers[i].name);
		if (r == 0)
			got |= controllers[i].bit;
		else if (r == -EBUSY)
			snprintf(f->why, sizeof(f->why), "%.180s: other processes are in the same cgroup", base);
		else
			note(f, base, r);
	}
	if (aside && !got)
		step_back(base);
	return got;
}

/* Does systemd, or who else made our cgroup, leave what is below it to us? */
static bool is_delegated(const char *dir)
{
	char value[8];
	static const char *const names[] = {"trusted.delegate", "user.delegate"};
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (getxattr(dir, names[i], value, sizeof(value)) > 0 && value[0] == '1')
			return true;
	return false;
}

static int try_v2(struct find *f, const char *mount, const char *base, bool is_own, struct hierarchy *ret)
{
	char *dir = join_path(base, f->cfg->name);
	int r = make_dir(dir);
	if (r < 0) {
		note(f, base, r);
		free(dir);
		return r;
	}
	unsigned can = get_controllers(f, base, dir, is_own);
	if (cgroup_has(dir, "cgroup.kill"))
		can |= CGROUP_KILL;
	if (!can) {
		rmdir(dir);
		free(dir);
		if (!f->why[0])
			snprintf(f->why, sizeof(f->why), "%.180s has neither controllers nor cgroup.kill", base);
		return -ENOTSUP;
	}
	*ret = (struct hierarchy){.version = 2, .can = can, .mount = xstrdup(mount), .base = xstrdup(base), .dir = dir};
	return 0;
}

static void hierarchy_done(struct hierarchy *h)
{
	free(h->mount);
	free(h->base);
	free(h->dir);
	*h = (struct hierarchy){0};
}

/* Of two places the one that gives more. */
static void find_v2(struct find *f, const struct mount *m)
{
	struct cgroups *c = f->c;
	struct hierarchy best = {0};
	char *own = own_dir(f, m, NULL);
	char *slash = strrchr(own, '/');
	if (slash && strcmp(slash + 1, CGROUP_AGENT) == 0 && strlen(own) > strlen(m->point))
		*slash = '\0'; /* we are in the leaf already: from an earlier start, or by DelegateSubgroup= */
	bool at_top = strcmp(own, m->point) == 0;
	narrow(c, own, m->point, 2, CGROUP_MEMORY | CGROUP_CPU);
	/* What systemd has not delegated it may take back; there root takes a place at the top. */
	bool top_first = geteuid() == 0 && !at_top && !is_delegated(own);
	const char *const places[] = {top_first ? m->point : own, top_first ? own : m->point};
	for (size_t i = 0; i < (at_top ? 1 : ARRAY_LEN(places)); i++) {
		struct hierarchy h;
		if (best.can & CGROUP_MEMORY || try_v2(f, m->point, places[i], places[i] == own, &h) < 0)
			continue;
		if (__builtin_popcount(h.can) > __builtin_popcount(best.can)) {
			struct hierarchy worse = best;
			best = h;
			h = worse;
		}
		if (h.dir)
			rmdir(h.dir);
		hierarchy_done(&h);
	}
	free(own);
	if (best.dir)
		c->h[c->n++] = best;
}

static void find_v1(struct find *f, const struct mount *m, const struct controller *k)
{
	static const char *const proof[] = {[CGROUP_MEMORY] = "memory.limit_in_bytes", [CGROUP_CPU] = "cpu.cfs_quota_us",
		[CGROUP_PIDS] = "pids.max"};
	struct cgroups *c = f->c;
	char *base = own_dir(f, m, k->name), *dir = join_path(base, f->cfg->name);
	narrow(c, base, m->point, 1, k->bit);
	int r = make_dir(dir);
	if (r == 0 && !cgroup_has(dir, proof[k->bit])) {
		rmdir(dir);
		r = -ENOENT;
	}
	if (r < 0) {
		note(f, base, r);
		free(base);
		free(dir);
		return;
	}
	c->h[c->n++] = (struct hierarchy){.version = 1, .can = k->bit, .mount = xstrdup(m->point), .base = base, .dir = dir};
}

/* ---- the whole ---- */

static unsigned found(const struct cgroups *c)
{
	unsigned can = 0;
	for (size_t i = 0; i < c->n; i++)
		can |= c->h[i].can;
	return can;
}

static void describe(struct find *f)
{
	struct cgroups *c = f->c;
	size_t at = 0;
	for (size_t i = 0; i < c->n && at < sizeof(c->text); i++) {
		const struct hierarchy *h = &c->h[i];
		at += (size_t)snprintf(c->text + at, sizeof(c->text) - at, "%s%s%s%s%s in %.100s (v%d)", i ? ";" : "cgroups:",
				       h->can & CGROUP_MEMORY ? " memory" : "", h->can & CGROUP_CPU ? " cpu" : "",
				       h->can & CGROUP_PIDS ? " pids" : "", h->can & CGROUP_KILL ? " kill" : "", h->dir, h->version);
	}
	if (!c->n)
		snprintf(c->text, sizeof(c->text), "no cgroups: no limits of memory and cpu%s%s", f->why[0] ? "; " : "", f->why);
	else if ((c->can & 7) != 7 && f->why[0] && at < sizeof(c->text))
		snprintf(c->text + at, sizeof(c->text) - at, "; not more: %.200s", f->why);
}

static int find_given(struct find *f, char *err, size_t cap)
{
	const char *path = f->cfg->mode;
	if (path[0] != '/') {
		snprintf(err, cap, "--cgroup \"%.200s\": auto, off, or the absolute path of a cgroup v2 directory is allowed", path);
		return -1;
	}
	_cleanup_free_ char *base = join_path(path, "");
	if (!cgroup_has(base, "cgroup.procs")) {
		snprintf(err, cap, "--cgroup %.200s: that is no directory of cgroup v2 (it has no cgroup.procs)", path);
		return -1;
	}
	struct mount root = {0};
	for (size_t i = 0; i < f->n_mounts; i++)
		if (strcmp(f->mounts[i].type, "cgroup2") == 0)
			root = f->mounts[i];
	_cleanup_free_ char *own = root.point ? own_dir(f, &root, NULL) : NULL;
	if (try_v2(f, base, base, own && strcmp(own, base) == 0, &f->c->h[0]) < 0) {
		snprintf(err, cap, "--cgroup %.200s can't be used: %s", path, f->why);
		return -1;
	}
	f->c->n = 1;
	narrow(f->c, base, base, 2, CGROUP_MEMORY | CGROUP_CPU);
	return 0;
}

static void find_any(struct find *f)
{
	for (size_t i = 0; i < f->n_mounts && !found(f->c); i++)
		if (strcmp(f->mounts[i].type, "cgroup2") == 0)
			find_v2(f, &f->mounts[i]);
	for (size_t k = 0; k < ARRAY_LEN(controllers); k++)
		for (size_t i = 0; i < f->n_mounts && !(found(f->c) & controllers[k].bit); i++) {
			if (controllers[k].bit == CGROUP_PIDS && !(f->cfg->pids_v1 && f->cfg->pids_limit))
				continue;
			if (strcmp(f->mounts[i].type, "cgroup") == 0 && has_word(f->mounts[i].options, controllers[k].name, ","))
				find_v1(f, &f->mounts[i], &controllers[k]);
		}
}

int cgroups_find(struct cgroups *c, const struct cgroup_config *cfg, char *err, size_t cap)
{
	_cleanup_free_ struct find *f = xcalloc(1, sizeof(*f));
	int r = 0;
	*f = (struct find){.c = c, .cfg = cfg};
	c->outer_cpu_millis = c->outer_memory = INT64_MAX;
	if (strcmp(cfg->mode, "off") == 0) {
		snprintf(c->text, sizeof(c->text), "no cgroups, as asked: no limits of memory and cpu");
		return 0;
	}
	_cleanup_free_ char *table = read_whole(cfg->mountinfo ? cfg->mountinfo : "/proc/self/mountinfo");
	_cleanup_free_ char *self = read_whole(cfg->self ? cfg->self : "/proc/self/cgroup");
	f->self = self;
	parse_mounts(f, table);
	if (strcmp(cfg->mode, "auto") == 0)
		find_any(f);
	else
		r = find_given(f, err, cap);
	c->can = found(c);
	if (r == 0)
		describe(f);
	return r;
}

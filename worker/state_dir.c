/* The worker's directory: see state_dir.h.  Small files are replaced as a whole (written beside, synced, renamed). */
#include "worker/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/num.h"

#define SMALL_FILE_MAX 4096

char *state_dir_default_path(const char *worker_id)
{
	const char *base = getenv("XDG_STATE_HOME"), *mid = "";
	if (!base || base[0] != '/') {
		base = getenv("HOME");
		mid = "/.local/state";
	}
	if (!base || base[0] != '/')
		return NULL;
	char *path = NULL;
	bool dots = !strcmp(worker_id, ".") || !strcmp(worker_id, "..");
	if (asprintf(&path, "%s%s/reins/%s%s", base, mid, dots ? "+" : "", worker_id) < 0)
		return NULL;
	for (char *p = path + strlen(path) - strlen(worker_id); *p; p++)
		if (*p == '/')
			*p = '+';
	return path;
}

static int make_path(const char *path)
{
	_cleanup_free_ char *copy = xstrdup(path);
	for (char *p = copy + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(copy, 0755) < 0 && errno != EEXIST)
			return -errno;
		*p = '/';
	}
	return mkdir(copy, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

/* Length, or -errno. NUL-terminated. */
static ssize_t read_small(int dir_fd, const char *name, char *out, size_t cap)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = read(fd, out, cap - 1);
	int err = errno;
	close(fd);
	if (n < 0)
		return -err;
	out[n] = '\0';
	return n;
}

static int replace_small(int dir_fd, const char *name, const char *text)
{
	char beside[64];
	snprintf(beside, sizeof(beside), "%s.new", name);
	int fd = openat(dir_fd, beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	size_t len = strlen(text);
	ssize_t n = write(fd, text, len);
	int r = n < 0 ? -errno : (size_t)n < len ? -ENOSPC : fsync(fd) < 0 ? -errno : 0;
	close(fd);
	if (r < 0)
		return r;
	return renameat(dir_fd, beside, dir_fd, name) < 0 || fsync(dir_fd) < 0 ? -errno : 0;
}

/* The value of `name = value` in a text of such lines; "" when there is none. */
static void get_line(const char *text, const char *name, char *ret, size_t cap)
{
	size_t n = strlen(name);
	ret[0] = '\0';
	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
		if (strncmp(p, name, n) != 0 || strncmp(p + n, " = ", 3) != 0)
			continue;
		p += n + 3;
		snprintf(ret, cap, "%.*s", (int)strcspn(p, "\n"), p);
		return;
	}
}

static void read_machine_id(char ret[static 64])
{
	char text[128];
	ret[0] = '\0';
	if (read_small(AT_FDCWD, "/etc/machine-id", text, sizeof(text)) > 0)
		snprintf(ret, 64, "%.*s", (int)min_sz(strcspn(text, "\n"), 63), text);
}

static int make_identity(struct state_dir *d, const char *worker_id, const char *machine)
{
	uint8_t random[STATE_INSTANCE_LEN / 2];
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -errno;
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(d->instance + 2 * i, 3, "%02x", random[i]);
	char text[SMALL_FILE_MAX];
	snprintf(text, sizeof(text), "instance = %s\nworker-id = %s\nmachine-id = %s\n", d->instance, worker_id, machine);
	return replace_small(d->fd, "identity", text);
}

static int read_identity(struct state_dir *d, const char *worker_id, char *err, size_t cap)
{
	char text[SMALL_FILE_MAX], machine[64], value[512];
	read_machine_id(machine);
	ssize_t n = read_small(d->fd, "identity", text, sizeof(text));
	if (n == -ENOENT)
		n = make_identity(d, worker_id, machine);
	else if (n >= 0) {
		get_line(text, "worker-id", value, sizeof(value));
		if (strcmp(value, worker_id) != 0) {
			snprintf(err, cap, "%s belongs to the worker \"%s\", not to \"%s\"", d->path, value, worker_id);
			return -1;
		}
		get_line(text, "machine-id", value, sizeof(value));
		if (*value && *machine && strcmp(value, machine) != 0) {
			snprintf(err, cap, "%s belongs to another machine (machine-id %s, this one is %s): a copy of a worker's "
				"directory can't be used", d->path, value, machine);
			return -1;
		}
		get_line(text, "instance", value, sizeof(value));
		if (strlen(value) != STATE_INSTANCE_LEN || strspn(value, "0123456789abcdef") != STATE_INSTANCE_LEN) {
			snprintf(err, cap, "%s/identity is damaged: no instance of %d hex digits", d->path, STATE_INSTANCE_LEN);
			return -1;
		}
		memcpy(d->instance, value, sizeof(d->instance));
	}
	if (n >= 0) {
		n = read_small(d->fd, "store-id", d->store_id, sizeof(d->store_id));
		if (n == -ENOENT)
			n = 0;
		d->store_id[strcspn(d->store_id, "\n")] = '\0';
	}
	if (n < 0) {
		snprintf(err, cap, "%s/identity: %s", d->path, strerror((int)-n));
		return -1;
	}
	return 0;
}

/* The hellos of this process are counted from the wall clock on, so that a directory that is new, and a file that is damaged or
 * could not be written, cost nothing; and from more than the process before, so that the clock may be set back. */
#define HELLOS_MAX (1 << 20) /* of a process, while the clock stands still */

static void count_process(struct state_dir *d)
{
	char text[32];
	int64_t before = 0;
	d->hellos = clock_wall_us();
	if (read_small(d->fd, "process", text, sizeof(text)) > 0) {
		text[strcspn(text, "\n")] = '\0';
		if (num_parse_i64(text, &before) == 0 && before < INT64_MAX / 4)
			d->hellos = max_i64(d->hellos, before + HELLOS_MAX);
	}
	snprintf(text, sizeof(text), "%" PRId64 "\n", d->hellos);
	(void)replace_small(d->fd, "process", text);
}

int64_t state_dir_next_hello(struct state_dir *d, bool refused)
{
	d->hellos = max_i64(d->hellos + 1, refused ? clock_wall_us() : 0);
	return d->hellos;
}

int state_dir_open(struct state_dir *d, const char *path, const char *worker_id, char *err, size_t cap)
{
	*d = (struct state_dir){.fd = -1, .lock_fd = -1, .attempts_fd = -1};
	int r = make_path(path);
	if (r == 0) {
		d->path = realpath(path, NULL);
		d->fd = d->path ? open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
		if (d->fd < 0)
			r = -errno;
	}
	if (r == 0) {
		d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (d->lock_fd < 0)
			r = -errno;
	}
	if (r == 0 && flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		r = -errno;
		if (r == -EWOULDBLOCK) {
			snprintf(err, cap, "%s is in use by another reins-worker; a second one on this machine has an --id and a --state-dir of its own", d->path);
			state_dir_close(d);
			return -1;
		}
	}
	if (r == 0 && mkdirat(d->fd, "attempts", 0700) < 0 && errno != EEXIST)
		r = -errno;
	if (r == 0) {
		d->attempts_fd = openat(d->fd, "attempts", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (d->attempts_fd < 0)
			r = -errno;
	}
	if (r < 0) {
		snprintf(err, cap, "--state-dir %s: %s%s", path, strerror(-r),
			 r == -EACCES || r == -EROFS || r == -ENOENT ? "; give a directory that this user can write" : "");
		state_dir_close(d);
		return -1;
	}
	if (read_identity(d, worker_id, err, cap) < 0) {
		state_dir_close(d);
		return -1;
	}
	count_process(d);
	return 0;
}

void state_dir_close(struct state_dir *d)
{
	const int fds[] = {d->attempts_fd, d->lock_fd, d->fd};
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	free(d->path);
	*d = (struct state_dir){.fd = -1, .lock_fd = -1, .attempts_fd = -1};
}

int state_dir_set_store_id(struct state_dir *d, const char *store_id)
{
	char text[STATE_STORE_ID_MAX + 1];
	if (strlen(store_id) >= sizeof(d->store_id) || strchr(store_id, '\n'))
		return -EINVAL;
	snprintf(text, sizeof(text), "%s\n", store_id);
	int r = replace_small(d->fd, "store-id", text);
	if (r == 0)
		snprintf(d->store_id, sizeof(d->store_id), "%s", store_id);
	return r;
}

void state_dir_attempt_name(const char *task_id, int32_t attempt, char ret_name[static STATE_ATTEMPT_NAME_MAX])
{
	snprintf(ret_name, STATE_ATTEMPT_NAME_MAX, "%s.%d", task_id, (int)attempt);
}

int state_dir_open_to(struct state_dir *d, unsigned uid, unsigned gid)
{
	if (fchmod(d->fd, 0711) < 0 || fchmod(d->attempts_fd, 0711) < 0)
		return -errno;
	d->other_user = true;
	d->uid = uid;
	d->gid = gid;
	return 0;
}

int state_dir_make_attempt(struct state_dir *d, const char *name)
{
	static const char *const theirs[] = {"work", "io"};
	if (mkdirat(d->attempts_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(theirs); i++) {
		char path[STATE_ATTEMPT_NAME_MAX + 8];
		snprintf(path, sizeof(path), "%s/%s", name, theirs[i]);
		if (mkdirat(d->attempts_fd, path, 0700) < 0 && errno != EEXIST)
			return -errno;
		if (d->other_user && fchownat(d->attempts_fd, path, d->uid, d->gid, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	}
	/* Last, and against any umask. */
	return d->other_user && fchmodat(d->attempts_fd, name, 0711, 0) < 0 ? -errno : 0;
}

int state_dir_open_theirs(int attempts_fd, const char *name, const char *file, struct stat *ret)
{
	char path[STATE_ATTEMPT_NAME_MAX + 16];
	struct stat st, dir;
	snprintf(path, sizeof(path), "%s/%s", name, file);
	int fd = openat(attempts_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return -1;
	*strrchr(path, '/') = '\0';
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fstatat(attempts_fd, path, &dir, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (dir.st_uid == geteuid() || dir.st_uid == st.st_uid)) {
		*ret = st;
		return fd;
	}
	close(fd);
	return -1;
}

int state_dir_put_aside(struct state_dir *d, const char *name, char ret_rest[static STATE_ATTEMPT_NAME_MAX])
{
	static unsigned number;
	snprintf(ret_rest, STATE_ATTEMPT_NAME_MAX, STATE_ASIDE "%d.%lld.%u", (int)getpid(), (long long)clock_boot_ns(), number++);
	return renameat(d->attempts_fd, name, d->attempts_fd, ret_rest) < 0 ? -errno : 0;
}

bool state_dir_mend_attempt(struct state_dir *d, const char *name)
{
	struct stat st;
	if (fstatat(d->attempts_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
		return false;
	if ((st.st_mode & 0700) != 0700)
		(void)!fchmodat(d->attempts_fd, name, (st.st_mode & 0777) | 0700, AT_SYMLINK_NOFOLLOW); /* whoever opens it sees */
	return true;
}

int state_dir_list_attempts(struct state_dir *d, void (*on_name)(void *arg, const char *name), void *arg)
{
	int fd = openat(d->attempts_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		int r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	for (struct dirent *e; (e = readdir(dir));)
		if (e->d_name[0] != '.')
			on_name(arg, e->d_name);
	closedir(dir);
	return 0;
}

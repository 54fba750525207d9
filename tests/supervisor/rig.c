#include "rig.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"

#define ENVIRON_MAX 65536

static void nap(void)
{
	const struct timespec t = {.tv_nsec = 2 * NS_PER_MS};
	nanosleep(&t, NULL);
}

static const char *program(const char *variable)
{
	const char *path = getenv(variable);
	if (!path)
		fail_msg("%s must name the program", variable);
	return path;
}

/* What a test that failed can no longer name. */
static struct rig begun[8];
static size_t n_begun;

static void spare(struct rig *r)
{
	int ends[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	const char *path = program("REINS_SUPERVISOR");
	r->pid = fork();
	if (r->pid == 0) {
		if (ends[1] == SUP_FD ? fcntl(SUP_FD, F_SETFD, 0) : dup2(ends[1], SUP_FD) < 0)
			_exit(70);
		execl(path, path, (char *)NULL);
		_exit(70);
	}
	assert_true(r->pid > 0);
	close(ends[1]);
	r->fd = ends[0];
	assert_true(n_begun < ARRAY_LEN(begun));
	begun[n_begun++] = *r;
}

void rig_new_in(struct rig *r, const char *dir)
{
	static unsigned n;
	*r = (struct rig){.directory = "/", .search_path = "/usr/bin:/bin", .user = ""};
	snprintf(r->dir, sizeof(r->dir), "%s", dir);
	snprintf(r->mark, sizeof(r->mark), "REINS_TEST_MARK=%d-%u", (int)getpid(), n++);
	r->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(r->dir_fd >= 0);
	close(openat(r->dir_fd, "supervisor", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	r->env[0] = r->mark;
	r->env[1] = "PATH=/usr/bin:/bin";
	r->deadlines = (struct sup_deadlines){.head = {SUP_DEADLINES, sizeof(r->deadlines)}, .term_boot_ns = SUP_NEVER,
		.kill_boot_ns = SUP_NEVER, .orphan_boot_ns = SUP_NEVER};
	r->file = (struct sup_job_file){.size = sizeof(r->file), .version = SUP_VERSION, .kill_index = -1, .oom_index = -1,
		.no_new_privs = 1, .core_bytes = 0, .kill_grace_ns = 10 * NS_PER_S, .log_head_bytes = 1 << 20,
		.log_ring_bytes = 1 << 20, .stuck_after_ns = 10 * NS_PER_S};
	spare(r);
}

void rig_new(struct rig *r)
{
	char dir[] = "/tmp/reins-sup-XXXXXX";
	assert_non_null(mkdtemp(dir));
	rig_new_in(r, dir);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

void rig_remove_directory(struct rig *r)
{
	nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	assert_int_equal(access(r->dir, F_OK), -1);
}

void rig_done(struct rig *r)
{
	rig_disconnect(r);
	if (r->pid) {
		kill(r->pid, SIGKILL);
		waitpid(r->pid, NULL, 0);
	}
	int left = rig_marked(r);
	close(r->dir_fd);
	nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	assert_int_equal(left, 0);
}

void rig_argv(struct rig *r, const char *first, ...)
{
	va_list ap;
	va_start(ap, first);
	size_t n = 0;
	for (const char *s = first; s; s = va_arg(ap, const char *))
		r->argv[n++] = s;
	r->argv[n] = NULL;
	va_end(ap);
}

void rig_shell(struct rig *r, const char *script)
{
	r->directory = r->dir;
	rig_argv(r, "sh", "-c", script, NULL);
}

void rig_victim(struct rig *r, const char *mode, const char *argument)
{
	r->directory = r->dir;
	rig_argv(r, program("REINS_VICTIM"), mode, argument, NULL);
}

static int memory_file(const void *data, size_t len)
{
	int fd = memfd_create("rig", MFD_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, data, len, 0), (ssize_t)len);
	return fd;
}

static void put(char *block, size_t *len, const char *s)
{
	assert_true(*len + strlen(s) + 1 < 65536);
	memcpy(block + *len, s, strlen(s) + 1);
	*len += strlen(s) + 1;
}

static uint32_t put_list(char *block, size_t *len, const char *const *list)
{
	uint32_t n = 0;
	for (; list[n]; n++)
		put(block, len, list[n]);
	return n;
}

static int job_file(struct rig *r)
{
	static char block[65536];
	size_t len = sizeof(r->file);
	put(block, &len, r->directory);
	put(block, &len, r->search_path);
	put(block, &len, r->user);
	r->file.n_join = put_list(block, &len, r->join);
	r->file.n_argv = put_list(block, &len, r->argv);
	r->file.n_env = put_list(block, &len, r->env);
	r->file.strings_size = len - sizeof(r->file);
	memcpy(block, &r->file, sizeof(r->file));
	return memory_file(block, len);
}

void rig_launch(struct rig *r)
{
	struct sup_job job = {.head = {SUP_JOB, sizeof(job)}, .deadlines = r->deadlines, .has_stdin = r->payload != NULL};
	int fds[3] = {r->dir_fd, job_file(r), r->payload ? memory_file(r->payload, strlen(r->payload)) : -1};
	size_t n = r->payload ? 3 : 2;
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(fds))];
	} rights = {0};
	struct iovec io = {.iov_base = &job, .iov_len = sizeof(job)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = rights.bytes,
		.msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	assert_int_equal(sendmsg(r->fd, &m, MSG_NOSIGNAL), (ssize_t)sizeof(job));
	for (size_t i = 1; i < n; i++)
		close(fds[i]);
}

void rig_send(struct rig *r, const void *packet)
{
	const struct sup_head *h = packet;
	/* The supervisor may have ended just now. */
	if (send(r->fd, packet, h->size, MSG_NOSIGNAL) < 0)
		assert_int_equal(errno, EPIPE);
}

void rig_stop(struct rig *r, int reason, int64_t grace_ns, const char *text)
{
	struct sup_stop s = {.head = {SUP_STOP, sizeof(s)}, .reason = reason, .grace_ns = grace_ns};
	snprintf(s.text, sizeof(s.text), "%s", text);
	rig_send(r, &s);
}

bool rig_next(struct rig *r)
{
	struct pollfd p = {.fd = r->fd, .events = POLLIN};
	if (poll(&p, 1, (int)(RIG_WAIT_NS / NS_PER_MS)) != 1)
		fail_msg("no status within the wait; the last one says phase %d", r->last.phase);
	ssize_t n = recv(r->fd, &r->last, sizeof(r->last), 0);
	if (n <= 0)
		return false;
	assert_int_equal(n, sizeof(r->last));
	assert_int_equal(r->last.head.type, SUP_STATUS);
	assert_int_equal(r->last.head.size, n);
	assert_int_equal(r->last.version, SUP_VERSION);
	const struct sup_head seen = {SUP_SEEN, sizeof(seen)};
	if (!r->deaf)
		rig_send(r, &seen);
	return true;
}

void rig_until(struct rig *r, enum sup_phase phase)
{
	while (r->last.phase < (int32_t)phase)
		if (!rig_next(r))
			fail_msg("the connection ended in phase %d", r->last.phase);
}

static void reap_supervisor(struct rig *r)
{
	int64_t until = clock_boot_ns() + RIG_WAIT_NS;
	int status;
	while (waitpid(r->pid, &status, WNOHANG) != r->pid) {
		if (clock_boot_ns() > until)
			fail_msg("the supervisor does not end");
		nap();
	}
	r->pid = 0;
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

void rig_until_gone(struct rig *r)
{
	reap_supervisor(r);
}

void rig_until_end(struct rig *r)
{
	struct sup_status file;
	rig_until(r, SUP_EMPTY);
	assert_int_equal(rig_marked(r), 0);
	reap_supervisor(r);
	assert_true(rig_read_status(r, &file));
	assert_memory_equal(&file, &r->last, sizeof(file));
	assert_false(rig_is_locked(r));
	assert_true(faccessat(r->dir_fd, "status.next", F_OK, 0) < 0);
}

void rig_until_dead(struct rig *r)
{
	reap_supervisor(r);
	assert_true(rig_read_status(r, &r->last));
	assert_false(rig_is_locked(r));
}

void rig_disconnect(struct rig *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

void rig_connect(struct rig *r)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/socket", r->dir_fd);
	rig_disconnect(r);
	r->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_true(r->fd >= 0);
	assert_int_equal(connect(r->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	r->last = (struct sup_status){0};
}

static bool has_mark(const char *pid, const char *mark)
{
	static char text[ENVIRON_MAX];
	char path[64];
	snprintf(path, sizeof(path), "/proc/%.20s/environ", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));
	if (fd >= 0)
		close(fd);
	return n > 0 && memmem(text, (size_t)n, mark, strlen(mark) + 1);
}

static bool is_stopped(const char *pid)
{
	char path[64], text[512];
	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *p = strrchr(text, ')');
	return !p || !p[1] || p[2] == 'T' || p[2] == 'Z';
}

/* How many there are; those that are not stopped yet get the signal, and with one only they count. */
static int each_marked(const struct rig *r, int signo)
{
	int found = 0;
	DIR *proc = opendir("/proc");
	assert_non_null(proc);
	for (struct dirent *e; (e = readdir(proc));)
		if (isdigit((unsigned char)e->d_name[0]) && has_mark(e->d_name, r->mark) &&
		    !(signo == SIGSTOP && is_stopped(e->d_name))) {
			found++;
			if (signo)
				kill((pid_t)strtol(e->d_name, NULL, 10), signo);
		}
	closedir(proc);
	return found;
}

int rig_marked(const struct rig *r)
{
	return each_marked(r, 0);
}

static void end_marked(const struct rig *r)
{
	int64_t until = clock_boot_ns() + RIG_WAIT_NS;
	/* All are stopped before any is killed: some fork. */
	while (each_marked(r, SIGSTOP) > 0 && clock_boot_ns() < until)
		;
	while (each_marked(r, SIGKILL), rig_marked(r) > 0 && clock_boot_ns() < until)
		nap();
}

int rig_clean(void **state)
{
	for (size_t i = 0; i < n_begun; i++) {
		const struct rig *r = &begun[i];
		/* Reaped ones are gone; ids are not used again that fast. */
		if (waitpid(r->pid, NULL, WNOHANG) == 0) {
			kill(r->pid, SIGKILL);
			waitpid(r->pid, NULL, 0);
		}
		end_marked(r);
		nftw(r->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	}
	n_begun = 0;
	return 0;
}

bool rig_read_status(struct rig *r, struct sup_status *ret_status)
{
	int fd = openat(r->dir_fd, "status", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, ret_status, sizeof(*ret_status));
	close(fd);
	return n == (ssize_t)sizeof(*ret_status);
}

bool rig_is_locked(struct rig *r)
{
	int fd = openat(r->dir_fd, "supervisor", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	bool locked = flock(fd, LOCK_SH | LOCK_NB) < 0;
	close(fd);
	return locked;
}

void rig_wait_file(struct rig *r, const char *name)
{
	int64_t until = clock_boot_ns() + RIG_WAIT_NS;
	while (faccessat(r->dir_fd, name, F_OK, 0) < 0) {
		if (clock_boot_ns() > until)
			fail_msg("the program does not make %s", name);
		nap();
	}
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static int log_names(struct rig *r, char names[][LOG_FILE_NAME_LEN + 1], int cap)
{
	int n = 0;
	DIR *dir = fdopendir(openat(r->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));)
		if (!strncmp(e->d_name, LOG_FILE_PREFIX, strlen(LOG_FILE_PREFIX))) {
			assert_true(n < cap && strlen(e->d_name) == LOG_FILE_NAME_LEN);
			memcpy(names[n++], e->d_name, LOG_FILE_NAME_LEN + 1);
		}
	closedir(dir);
	qsort(names, (size_t)n, sizeof(names[0]), by_name);
	return n;
}

static void keep(struct rig_log *l, int stream, const void *data, size_t len)
{
	l->out[stream] = realloc(l->out[stream], l->len[stream] + len + 1);
	assert_non_null(l->out[stream]);
	memcpy(l->out[stream] + l->len[stream], data, len);
	l->len[stream] += len;
	l->out[stream][l->len[stream]] = '\0';
}

static void read_log_file(struct rig *r, const char *name, struct rig_log *l)
{
	struct log_record h;
	static char data[LOG_RECORD_DATA_MAX];
	int fd = openat(r->dir_fd, name, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	int64_t at = (int64_t)strtoull(name + strlen(LOG_FILE_PREFIX), NULL, 16);
	for (ssize_t n; (n = read(fd, &h, sizeof(h))) != 0;) {
		assert_int_equal(n, sizeof(h));
		assert_int_equal(h.magic, LOG_RECORD_MAGIC);
		assert_int_equal(h.offset, at);
		assert_true(h.stream == 1 || h.stream == 2);
		assert_true(h.len <= LOG_RECORD_DATA_MAX && (h.len > 0) == (h.dropped == 0));
		assert_int_equal(read(fd, data, h.len), h.len);
		keep(l, (int)h.stream - 1, data, h.len);
		at += h.len + h.dropped;
		l->dropped += h.dropped;
	}
	struct stat st;
	assert_int_equal(fstat(fd, &st), 0);
	l->bytes_on_disk += st.st_size;
	close(fd);
	l->end = at;
}

void rig_read_log(struct rig *r, struct rig_log *l)
{
	char names[8][LOG_FILE_NAME_LEN + 1];
	*l = (struct rig_log){.kept_from = -1};
	keep(l, 0, "", 0);
	keep(l, 1, "", 0);
	l->files = log_names(r, names, (int)ARRAY_LEN(names));
	assert_true(l->files <= 3);
	for (int i = 0; i < l->files; i++) {
		int64_t start = (int64_t)strtoull(names[i] + strlen(LOG_FILE_PREFIX), NULL, 16);
		if (i == 0)
			assert_int_equal(start, 0);
		if (i == 1)
			l->kept_from = start;
		if (i == 2)
			assert_int_equal(start, l->end);
		read_log_file(r, names[i], l);
		if (i == 0)
			l->head_end = l->end;
	}
}

void rig_log_done(struct rig_log *l)
{
	free(l->out[0]);
	free(l->out[1]);
}

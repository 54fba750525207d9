/* cgroups: joined, killed, counted, removed.  Skipped where none can be made. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mntent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "tests/skip.h"

static char made_dirs[16][200];
static size_t n_made;

/* A new directory below the first mount of this type; with an option among the mount's where it is given. */
static bool make_cgroup(const char *type, const char *option, char *ret_dir, size_t cap)
{
	bool made = false;
	static unsigned n;
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	if (!mounts)
		return false;
	for (struct mntent *m; !made && (m = getmntent(mounts));) {
		if (strcmp(m->mnt_type, type) != 0 || (option && !hasmntopt(m, option)))
			continue;
		snprintf(ret_dir, cap, "%s/reins-test-%d-%u", m->mnt_dir, (int)getpid(), n++);
		made = mkdir(ret_dir, 0755) == 0;
		if (made && n_made < ARRAY_LEN(made_dirs))
			snprintf(made_dirs[n_made++], sizeof(made_dirs[0]), "%s", ret_dir);
	}
	endmntent(mounts);
	return made;
}

/* What a test that failed has left. */
static int remove_cgroups(void **state)
{
	while (n_made > 0)
		rmdir(made_dirs[--n_made]);
	return 0;
}

#define NEED(made, what) \
	if (!(made)) \
	SKIP("no " what " cgroup can be made here")

static bool write_in(const char *dir, const char *name, const char *text)
{
	char path[300];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* One in the cgroup that is no descendant of the supervisor's proves that the cgroup was killed, not only the tree. */
static void the_cgroup_is_killed(void **state)
{
	char dir[200], path[300];
	struct rig r;
	NEED(make_cgroup("cgroup2", NULL, dir, sizeof(dir)), "v2");
	snprintf(path, sizeof(path), "%s/cgroup.kill", dir);
	if (access(path, W_OK) < 0) {
		rmdir(dir);
		SKIP("no v2 cgroup with cgroup.kill can be made here");
	}
	pid_t stranger = fork();
	if (stranger == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	char pid[32];
	snprintf(pid, sizeof(pid), "%d", (int)stranger);
	assert_true(write_in(dir, "cgroup.procs", pid));
	rig_new(&r);
	r.join[0] = dir;
	r.file.kill_index = 0;
	rig_victim(&r, "daemon", "5");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 5);
	int status;
	assert_int_equal(waitpid(stranger, &status, 0), stranger);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_true(access(dir, F_OK) < 0);
	rig_done(&r);
}

/* The program is in the cgroup, and made one in it. */
static void cgroups_in_cgroups_are_removed(void **state)
{
	char dir[200], script[400];
	struct rig r;
	NEED(make_cgroup("cgroup2", NULL, dir, sizeof(dir)), "v2");
	rig_new(&r);
	r.join[0] = dir;
	r.file.kill_index = 0;
	snprintf(script, sizeof(script), "grep -q ${0##*/} /proc/self/cgroup && mkdir -p $0/a/b && echo $$ >$0/a/b/cgroup.procs");
	rig_argv(&r, "sh", "-c", script, dir, NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 0);
	assert_true(access(dir, F_OK) < 0);
	rig_done(&r);
}

/* One that went to another cgroup is still a descendant. */
static void leaving_the_cgroup_does_not_help(void **state)
{
	char dir[200], other[200], script[500];
	struct rig r;
	NEED(make_cgroup("cgroup2", NULL, dir, sizeof(dir)), "v2");
	NEED(make_cgroup("cgroup2", NULL, other, sizeof(other)), "v2");
	rig_new(&r);
	r.join[0] = dir;
	r.file.kill_index = 0;
	snprintf(script, sizeof(script), "setsid sh -c 'echo $$ >%s/cgroup.procs; trap \"\" TERM; touch ready; while :; do sleep 1; done' &"
	         " while [ ! -e ready ]; do sleep 0.01; done; exit 4", other);
	rig_shell(&r, script);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.exit_code, 4);
	assert_int_equal(rmdir(other), 0);
	rig_done(&r);
}

/* S42 */
static void out_of_memory_is_counted(void **state)
{
	char dir[200];
	struct rig r;
	NEED(make_cgroup("cgroup", "memory", dir, sizeof(dir)), "memory");
	if (!write_in(dir, "memory.limit_in_bytes", "16M")) {
		rmdir(dir);
		SKIP("no memory cgroup can be made here");
	}
	write_in(dir, "memory.memsw.limit_in_bytes", "16M"); /* where swap is counted at all */
	rig_new(&r);
	r.join[0] = dir;
	r.file.oom_index = 0;
	rig_victim(&r, "eat", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.signal, SIGKILL);
	assert_true(r.last.oom_kills > 0);
	assert_true(access(dir, F_OK) < 0);
	rig_done(&r);
	/* Another that only looks like it. */
	NEED(make_cgroup("cgroup", "memory", dir, sizeof(dir)), "memory");
	rig_new(&r);
	r.join[0] = dir;
	r.file.oom_index = 0;
	rig_shell(&r, "kill -9 $$");
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.signal, SIGKILL);
	assert_int_equal(r.last.oom_kills, 0);
	rig_done(&r);
}

/* A process that SIGKILL does not end, since it is frozen: said so, the slot stays; thawed, it ends. */
static void what_can_not_be_ended(void **state)
{
	char dir[200];
	struct rig r;
	NEED(make_cgroup("cgroup", "freezer", dir, sizeof(dir)), "freezer");
	rig_new(&r);
	r.join[0] = dir;
	r.file.stuck_after_ns = 100 * NS_PER_MS;
	rig_victim(&r, "noting", NULL);
	rig_launch(&r);
	rig_wait_file(&r, "ready");
	assert_true(write_in(dir, "freezer.state", "FROZEN"));
	rig_stop(&r, 1, 0, "why");
	while (r.last.stuck == 0)
		assert_true(rig_next(&r));
	assert_int_equal(r.last.stuck, 1);
	assert_true(r.last.phase < SUP_EXITED);
	char pid[32];
	snprintf(pid, sizeof(pid), "%d (victim", r.last.pid);
	assert_non_null(strstr(r.last.text, pid));
	struct sup_status file;
	assert_true(rig_read_status(&r, &file));
	assert_int_equal(file.stuck, 1);
	assert_true(write_in(dir, "freezer.state", "THAWED"));
	rig_until_end(&r);
	assert_int_equal(r.last.stuck, 0);
	assert_string_equal(r.last.text, "why");
	assert_int_equal(r.last.signal, SIGKILL);
	assert_true(access(dir, F_OK) < 0);
	rig_done(&r);
}

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

/* Can a process be born in a cgroup here? */
static bool can_be_born_in(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t args[11] = {[0] = 0x200000000ULL, [4] = SIGCHLD, [10] = (uint64_t)fd};
	pid_t pid = (pid_t)syscall(SYS_clone3, args, sizeof(args));
	if (pid == 0)
		_exit(0);
	close(fd);
	return pid > 0 && waitpid(pid, NULL, 0) == pid;
}

static void in_its_cgroup(const char *dir)
{
	struct rig r;
	rig_new(&r);
	r.join[0] = dir;
	r.file.kill_index = 0;
	rig_argv(&r, "grep", "-q", strrchr(dir, '/'), "/proc/self/cgroup", NULL);
	rig_launch(&r);
	rig_until_end(&r);
	assert_int_equal(r.last.launch_errno, 0);
	assert_int_equal(r.last.exit_code, 0);
	rig_done(&r);
}

/* Where it could not be moved into it: over the file that does this lies another. */
static void it_is_born_in_its_cgroup(void **state)
{
	char dir[200], path[300];
	NEED(make_cgroup("cgroup2", NULL, dir, sizeof(dir)), "v2");
	if (!can_be_born_in(dir)) {
		rmdir(dir);
		SKIP("no process can be born in a cgroup here");
	}
	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("/dev/null", path, NULL, MS_BIND, NULL) < 0) {
		rmdir(dir);
		SKIP("nothing can be mounted here");
	}
	in_its_cgroup(dir);
}

/* An older kernel, or a sandbox that knows no clone3.  For good: the last test. */
static void it_is_moved_without_clone3(void **state)
{
	char dir[200];
	NEED(make_cgroup("cgroup2", NULL, dir, sizeof(dir)), "v2");
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = {.len = ARRAY_LEN(code), .filter = code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0) {
		rmdir(dir);
		SKIP("no seccomp here");
	}
	assert_false(can_be_born_in(dir));
	in_its_cgroup(dir);
}

int main(void)
{
	const struct CMUnitTest all[] = {
		rig_test(the_cgroup_is_killed),
		rig_test(cgroups_in_cgroups_are_removed),
		rig_test(leaving_the_cgroup_does_not_help),
		rig_test(out_of_memory_is_counted),
		rig_test(what_can_not_be_ended),
		rig_test(it_is_born_in_its_cgroup),
		rig_test(it_is_moved_without_clone3),
	};
	return cmocka_run_group_tests(all, NULL, remove_cgroups);
}

/* Preloaded, it lets a program read the wall clock so many seconds off as the file named by WALL_CLOCK says (an int64_t, which
 * may be changed under it); every other clock, and every timer, is the machine's.  libfaketime 0.9.10 would do but that it
 * also moves absolute timers of CLOCK_BOOTTIME, which the supervisor's deadlines are. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *off_s;

static void __attribute__((constructor)) open_file(void)
{
	const char *path = getenv("WALL_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof(*off_s), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		off_s = at;
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
	int r = (int)syscall(SYS_clock_gettime, id, ret); /* not by the libc's: this stands in its place */
	if (r == 0 && off_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		ret->tv_sec += *off_s;
	return r;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
	(void)zone;
	struct timespec ts;
	int r = clock_gettime(CLOCK_REALTIME, &ts);
	if (r == 0)
		*ret = (struct timeval){.tv_sec = ts.tv_sec, .tv_usec = ts.tv_nsec / 1000};
	return r;
}

time_t time(time_t *ret)
{
	struct timespec ts = {0};
	clock_gettime(CLOCK_REALTIME, &ts);
	if (ret)
		*ret = ts.tv_sec;
	return ts.tv_sec;
}

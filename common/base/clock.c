#include "common/base/clock.h"

#include <stdio.h>
#include <time.h>

static int64_t read_ns(clockid_t id)
{
	struct timespec ts;
	clock_gettime(id, &ts);
	return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_mono_ns(void)
{
	return read_ns(CLOCK_MONOTONIC);
}

int64_t clock_boot_ns(void)
{
	return read_ns(CLOCK_BOOTTIME);
}

int64_t clock_wall_us(void)
{
	return read_ns(CLOCK_REALTIME) / 1000;
}

void clock_format_wall(int64_t wall_us, char ret_text[static CLOCK_TEXT_LEN + 1])
{
	time_t s = (time_t)(wall_us / 1000000);
	struct tm tm;
	char date[32];
	gmtime_r(&s, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(ret_text, CLOCK_TEXT_LEN + 1, "%.19s.%03dZ", date, (int)((wall_us / 1000) % 1000 + 1000) % 1000);
}

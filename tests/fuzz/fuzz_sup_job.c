/* A job as a supervisor reads it.  Held: what is accepted has all its words within the block, as many as it says, and
 * indices that point at what there is; what is refused says why. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "worker/supervisor/job.h"

#define HOLD(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not held: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static size_t check_list(char *const *list, const char *block, size_t len)
{
	size_t n = 0;
	for (; list[n]; n++)
		HOLD(list[n] >= block && list[n] + strlen(list[n]) < block + len);
	return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct job j;
	char text[SUP_TEXT_MAX] = "";
	char *block = malloc(len ? len : 1);
	if (!block)
		abort();
	memcpy(block, data, len);
	int r = job_parse(&j, block, len, text);
	if (r == 0) {
		HOLD(check_list(j.argv, block, len) == j.f.n_argv && j.f.n_argv > 0);
		HOLD(check_list(j.envp, block, len) == j.f.n_env);
		HOLD(check_list(j.join, block, len) == j.f.n_join);
		HOLD(j.f.kill_index < (int64_t)j.f.n_join && j.f.oom_index < (int64_t)j.f.n_join);
		HOLD(*j.directory == '/' && j.search_path && j.user);
	} else {
		HOLD(r == -EINVAL && *text);
	}
	job_done(&j);
	return 0;
}

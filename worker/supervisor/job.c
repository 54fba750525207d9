/* Nothing here trusts the agent's numbers: a job that is not as wire.h says is refused with the field at fault. */
#include "worker/supervisor/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse(char *ret_text, const char *what)
{
	snprintf(ret_text, SUP_TEXT_MAX, "the job is malformed: %s", what);
	return -EINVAL;
}

/* The first thing wrong with the numbers; NULL: none. */
static const char *fault(const struct sup_job_file *f, size_t len)
{
	if (f->version != SUP_VERSION)
		return "version is not the supervisor's";
	if (f->size < sizeof(*f) || f->size > len)
		return "size must be that of the struct";
	if (f->strings_size != len - f->size)
		return "strings_size must be what follows the struct";
	if (f->n_argv < 1)
		return "n_argv must be at least 1";
	if (f->n_join > JOB_JOIN_MAX)
		return "n_join must be at most 16";
	/* Each string has its NUL: so the sum of the counts is bounded by the size. */
	if ((uint64_t)3 + f->n_join + f->n_argv + f->n_env > f->strings_size)
		return "n_argv and n_env count more strings than there are";
	if (f->kill_index < -1 || f->kill_index >= (int64_t)f->n_join)
		return "kill_index must be -1 or one of n_join";
	if (f->oom_index < -1 || f->oom_index >= (int64_t)f->n_join)
		return "oom_index must be -1 or one of n_join";
	if (f->open_files < 0 || f->processes < 0)
		return "open_files and processes must be at least 0";
	if (f->core_bytes < -1)
		return "core_bytes must be at least -1";
	if (f->timeout_ns < 0 || f->kill_grace_ns < 0)
		return "timeout_ns and kill_grace_ns must be at least 0";
	if (f->log_head_bytes < 1 || f->log_ring_bytes < 2)
		return "log_head_bytes must be at least 1, log_ring_bytes at least 2";
	if (f->stuck_after_ns < 1)
		return "stuck_after_ns must be at least 1";
	return NULL;
}

/* The next string, or NULL at the end.  The last byte of the block is NUL. */
static char *next_string(char **at, const char *end)
{
	if (*at >= end)
		return NULL;
	char *s = *at;
	*at += strlen(s) + 1;
	return s;
}

static char **take_list(char ***room, size_t n, char **at, const char *end)
{
	char **list = *room;
	for (size_t i = 0; i < n; i++)
		if (!(list[i] = next_string(at, end)))
			return NULL;
	list[n] = NULL;
	*room += n + 1;
	return list;
}

static int take_strings(struct job *j, size_t len, char *ret_text)
{
	char *at = j->block + j->f.size, *end = j->block + len;
	if (end[-1] != '\0')
		return refuse(ret_text, "the last string must end with NUL");
	j->pointers = calloc((size_t)j->f.n_join + j->f.n_argv + j->f.n_env + 3, sizeof(*j->pointers));
	if (!j->pointers) {
		snprintf(ret_text, SUP_TEXT_MAX, "no memory for the job");
		return -ENOMEM;
	}
	char **room = j->pointers;
	j->directory = next_string(&at, end);
	j->search_path = next_string(&at, end);
	j->user = next_string(&at, end);
	j->join = take_list(&room, j->f.n_join, &at, end);
	j->argv = j->join ? take_list(&room, j->f.n_argv, &at, end) : NULL;
	j->envp = j->argv ? take_list(&room, j->f.n_env, &at, end) : NULL;
	if (!j->envp)
		return refuse(ret_text, "fewer strings than n_join, n_argv and n_env say");
	if (at != end)
		return refuse(ret_text, "more strings than n_join, n_argv and n_env say");
	if (*j->directory != '/')
		return refuse(ret_text, "the directory to start in must be absolute");
	for (char **p = j->join; *p; p++)
		if (**p != '/')
			return refuse(ret_text, "directories of cgroups must be absolute");
	return 0;
}

int job_parse(struct job *j, char *block, size_t len, char ret_text[static SUP_TEXT_MAX])
{
	*j = (struct job){.block = block};
	if (len < sizeof(j->f))
		return refuse(ret_text, "it is shorter than its struct");
	memcpy(&j->f, block, sizeof(j->f));
	const char *wrong = fault(&j->f, len);
	return wrong ? refuse(ret_text, wrong) : take_strings(j, len, ret_text);
}

int job_read(struct job *j, int fd, char ret_text[static SUP_TEXT_MAX])
{
	struct stat st;
	*j = (struct job){0};
	if (fstat(fd, &st) < 0 || st.st_size < 0 || st.st_size > JOB_BYTES_MAX)
		return refuse(ret_text, "its file is none, or larger than 8 MiB");
	size_t len = (size_t)st.st_size, at = 0;
	char *block = malloc(len + 1);
	if (!block) {
		snprintf(ret_text, SUP_TEXT_MAX, "no memory for the job");
		return -ENOMEM;
	}
	while (at < len) {
		ssize_t n = pread(fd, block + at, len - at, (off_t)at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		at += (size_t)n;
	}
	return job_parse(j, block, at, ret_text);
}

void job_done(struct job *j)
{
	free(j->block);
	free(j->pointers);
	*j = (struct job){0};
}

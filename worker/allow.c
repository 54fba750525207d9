/* Matches names of programs. */
#include "worker/allow.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int allow_check(const struct setting_list *patterns, char *err, size_t cap)
{
	for (size_t i = 0; i < patterns->len; i++)
		if (patterns->at[i][0] != '/') {
			snprintf(err, cap, "--allow \"%.255s\": an absolute path is allowed, with * for any part of a name in it",
				 patterns->at[i]);
			return -1;
		}
	return 0;
}

/* "/usr/bin/../../tmp/x" would pass for "/usr/bin/…"; whoever means a program can name it plainly. */
static bool is_plain(const char *path)
{
	for (const char *p = path; *p;) {
		size_t n = strcspn(++p, "/");
		if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		p += n;
	}
	return true;
}

/* Length as by snprintf. `n` bytes of `dir`. */
static int join(char out[static PATH_MAX], const char *dir, size_t n, const char *name)
{
	while (n > 0 && dir[n - 1] == '/')
		n--;
	return snprintf(out, PATH_MAX, "%.*s/%s", (int)n, dir, name);
}

static bool matches(const struct setting_list *patterns, const char *path)
{
	for (size_t i = 0; i < patterns->len; i++)
		if (fnmatch(patterns->at[i], path, FNM_PATHNAME) == 0)
			return true;
	return false;
}

static int not_allowed(const char *path, char *err, size_t cap)
{
	snprintf(err, cap, "the program %.400s is not allowed on this worker (see its --allow)", path);
	return -EACCES;
}

int allow_program(const struct setting_list *patterns, const char *program, const char *search, const char *directory,
		  char *err, size_t cap, char **ret_search)
{
	char path[PATH_MAX];
	if (strchr(program, '/')) {
		while (strncmp(program, "./", 2) == 0)
			program += 2;
		int n = program[0] == '/' ? snprintf(path, sizeof(path), "%s", program)
					  : join(path, directory, strlen(directory), program);
		if (n < 0 || (size_t)n >= sizeof(path) || path[0] != '/' || !is_plain(path) || !matches(patterns, path))
			return not_allowed(program, err, cap);
		*ret_search = NULL;
		return 0;
	}
	for (const char *p = *program ? search : ""; *p;) {
		size_t n = strcspn(p, ":");
		int len = join(path, p, n, program);
		if (n > 0 && *p == '/' && len > 0 && (size_t)len < sizeof(path) && access(path, X_OK) == 0) {
			if (!is_plain(path) || !matches(patterns, path))
				return not_allowed(path, err, cap);
			*ret_search = strndup(p, n);
			return *ret_search ? 0 : -ENOMEM;
		}
		p += n + (p[n] == ':');
	}
	snprintf(err, cap, "the program \"%.255s\" is not found in the worker's PATH, and only programs of its --allow are run",
		 program);
	return -ENOENT;
}

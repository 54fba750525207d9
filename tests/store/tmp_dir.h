/* A directory of one test, removed with the files in it. */
#ifndef TESTS_STORE_TMP_DIR_H
#define TESTS_STORE_TMP_DIR_H

#include <stddef.h>

#define TMP_PATH_MAX 256

struct tmp_dir {
	char path[128];
};
/* Aborts when it can't. */
void tmp_dir_make(struct tmp_dir *d);
void tmp_dir_remove(struct tmp_dir *d);
/* Returns ret. */
char *tmp_dir_path(const struct tmp_dir *d, const char *name, char ret[static TMP_PATH_MAX]);

#endif

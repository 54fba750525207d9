#include "tests/store/tmp_dir.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void tmp_dir_make(struct tmp_dir *d)
{
	const char *base = getenv("TMPDIR");
	snprintf(d->path, sizeof(d->path), "%.80s/reins-store-XXXXXX", base && base[0] ? base : "/tmp");
	if (!mkdtemp(d->path))
		abort();
}

char *tmp_dir_path(const struct tmp_dir *d, const char *name, char ret[static TMP_PATH_MAX])
{
	snprintf(ret, TMP_PATH_MAX, "%s/%s", d->path, name);
	return ret;
}

void tmp_dir_remove(struct tmp_dir *d)
{
	DIR *dir = opendir(d->path);
	char path[TMP_PATH_MAX];
	struct dirent *e;
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlink(tmp_dir_path(d, e->d_name, path));
	if (dir)
		closedir(dir);
	rmdir(d->path);
}

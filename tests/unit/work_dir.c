#include "tests/unit/work_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "worker/remove_tree.h"

char dir_path[64];
int dir_fd;

int work_dir_make(void **state)
{
	snprintf(dir_path, sizeof(dir_path), "/tmp/reins-test-XXXXXX");
	if (!mkdtemp(dir_path))
		return -1;
	dir_fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir_fd < 0 ? -1 : 0;
}

int work_dir_remove(void **state)
{
	close(dir_fd);
	return remove_tree(AT_FDCWD, dir_path);
}

#pragma once
/* Removes what a program left: any depth, any modes, but nothing behind a mount or a symbolic link. */
#include "common/base/base.h"

/* All of `name` in the directory of that descriptor, file or directory; or of an absolute path. 0: nothing is left of it;
 * -errno: what stood in the way first. What is mounted there stays as it is (-EXDEV), since it may be anybody's. May be
 * called on another thread. */
int remove_tree(int parent_fd, const char *name);

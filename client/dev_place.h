/* Where `reins dev` finds its programs, keeps its data and listens. What fails leaves a sentence for a person. */
#ifndef REINS_CLIENT_DEV_PLACE_H
#define REINS_CLIENT_DEV_PLACE_H

#include "common/base/base.h"

/* The program beside this one, else in the sibling folder of a build tree (../server), else in PATH.
 * malloc'ed; NULL: nowhere. */
char *dev_find(const char *program, const char *build_folder);
/* Like dev_find, with the places given: `self` is the path of this program. For tests. */
char *dev_find_in(const char *self, const char *program, const char *build_folder, const char *search_path);

/* Makes the directory if it is missing (its parent must be there) and locks it for this process: until *ret_lock_fd
 * is closed.  *ret_path: absolute, malloc'ed. */
int dev_data_open(const char *path, char **ret_path, int *ret_lock_fd, char *ret_err, size_t err_cap) MUST_CHECK;

struct dev_address {
	char listen[300]; /* for reinsd; a port 0 is replaced by one that was free just now */
	char url[310];    /* for clients on this machine */
	bool loopback;
};
/* Also tries whether it can be listened on, since who answers there might be another reinsd. */
int dev_address_choose(const char *listen, struct dev_address *ret, char *ret_err, size_t err_cap) MUST_CHECK;

/* The environment of a child: ours without what would lead it elsewhere (REINS_SERVER, REINS_TOKEN, REINS_TLS_…), with
 * these "NAME=VALUE" (NULL ones are left out) instead of what has their names.  Array and what is in it are borrowed
 * but for the array itself, which is malloc'ed. */
char **dev_env(char *const *from, char *const *with, size_t n_with);

#endif

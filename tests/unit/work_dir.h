/* An empty directory for each test of a program: set-up and tear-down for cmocka. */
#ifndef TESTS_UNIT_WORK_DIR_H
#define TESTS_UNIT_WORK_DIR_H

extern char dir_path[64];
extern int dir_fd;

int work_dir_make(void **state);
/* Fails when something of it can't be removed. */
int work_dir_remove(void **state);

#endif

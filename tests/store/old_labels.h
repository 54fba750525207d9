#ifndef REINS_TESTS_OLD_LABELS_H
#define REINS_TESTS_OLD_LABELS_H

#include "tests/store/harness.h"

#define OLD_LABELLED 6000
/* In hex, of the n-th task, 1 to OLD_LABELLED; list_spec NULL: null. */
const char *old_spec(int n);
const char *old_list_spec(int n);

extern const struct CMUnitTest old_labels_tests[];
extern const size_t old_labels_n;

#endif

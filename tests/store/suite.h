/* The tests that every kind of store must pass; run between harness_begin and harness_end. */
#ifndef TESTS_STORE_SUITE_H
#define TESTS_STORE_SUITE_H

#include "tests/store/harness.h"

extern const struct CMUnitTest suite_tests[];
extern const size_t suite_n;

/* Run between harness_begin_old and harness_end. */
extern const struct CMUnitTest old_tests[];
extern const size_t old_n;

void random_against_model(void **state);

#endif

/* compare.h - numbers against an oracle's, and the bound that they must keep. */
#ifndef HARK_TESTS_SUPPORT_COMPARE_H
#define HARK_TESTS_SUPPORT_COMPARE_H

#include "support/run.h"

/* Results of one run in double: outputs, saved numbers and gradients; NULL where there is none. */
typedef struct test_results {
  double *values[TEST_ROLES][HARK_MAX_INPUTS];
} test_results;

/* Reads what the forward wrote (and the inputs that it updates), and with `backward` the gradients too. */
void test_results_read(test_run *run, bool backward, test_results *out);
void test_results_free(test_results *results);

/* The unit roundoff of f32 or f64, times two. */
double test_epsilon(hark_type type);

/* Fails unless |actual - expected| <= bound for every element; two equal infinities and two NaN agree. `what` names the tensor. */
void test_close(const test_run *run, const char *what, const double *actual, const double *expected, int64_t count, double bound);

/* Fails unless the doubles have the same bits. */
void test_same_bits(const test_run *run, const char *what, const double *actual, const double *expected, int64_t count);

#endif

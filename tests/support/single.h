/* single.h - one record on the reference backend in f64, with numbers that a test chooses, for tests of properties. */
#ifndef HARK_TESTS_SUPPORT_SINGLE_H
#define HARK_TESTS_SUPPORT_SINGLE_H

#include "support/run.h"
#include "support/setups.h"

typedef struct test_single {
  hark_context *context;
  hark_sample sample;
  test_run run;
} test_single;

/* Makes the tensors that `inputs` describes (as in a hark_sample), filled at random. */
void test_single_open(test_single *single, const hark_operator *op, const void *attributes, int input_count,
                      const hark_sample_input *inputs);
void test_single_close(test_single *single);

/* Set what is not to be random; then run. The numbers given back belong to the caller. */
void test_single_set(test_single *single, int input, const double *values);
double *test_single_get(test_single *single, int input);
double *test_single_forward(test_single *single);
/* Gradients of all inputs, read with test_single_gradient(); `output_gradient` NULL: random. */
void test_single_backward(test_single *single, const double *output_gradient);
double *test_single_gradient(test_single *single, int input);

/* The status of a forward that must not succeed. */
hark_status test_single_refusal(test_single *single);

/* |actual - expected| <= tolerance, or the test fails with both printed. */
#define test_near(actual, expected, tolerance) test_near_at(actual, expected, tolerance, __FILE__, __LINE__)
void test_near_at(double actual, double expected, double tolerance, const char *file, int line);

/* The first numbers are exactly those that follow. */
#define test_numbers(actual, ...)                                                                                                          \
  test_numbers_at(actual, (const double[]){__VA_ARGS__}, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), __FILE__, __LINE__)
void test_numbers_at(const double *actual, const double *expected, int count, const char *file, int line);

#endif

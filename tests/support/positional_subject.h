/* positional_subject.h - an expression of positional kernels in a context, with its initial parameters, and its gradient against
 * differences. */
#ifndef HARK_TESTS_SUPPORT_POSITIONAL_SUBJECT_H
#define HARK_TESTS_SUPPORT_POSITIONAL_SUBJECT_H

#include <hark/positional.h>

typedef struct test_subject {
  hark_context *context;
  hark_positional *kernel;
  int64_t count;
  double *parameters;
} test_subject;

/* Fails the test where the text is refused. */
void test_subject_open(test_subject *subject, const char *text);
void test_subject_close(test_subject *subject);

/* Compares the gradient of a sum of weight * log G over these distances, with random weights, with four-point differences, at the initial
 * parameters. Where G is 0 the weight is not used. */
void test_subject_check_gradient(const char *text, const double *distances, int count);

#endif

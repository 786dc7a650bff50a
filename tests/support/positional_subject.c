/* positional_subject.c - see positional_subject.h. */
#include "support/positional_subject.h"

#include <hark/random.h>
#include <math.h>
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

void test_subject_open(test_subject *subject, const char *text) {
  const hark_positional_start start = {.struct_size = sizeof start};
  subject->context = test_reference_open();
  const hark_status status = hark_positional_create(subject->context, text, &subject->kernel);
  if (status != HARK_OK) fail_msg("%s: %s", text, hark_context_message(subject->context));
  subject->count = hark_positional_parameter_count(subject->kernel);
  subject->parameters = calloc((size_t)subject->count + 1, sizeof(double));
  assert_non_null(subject->parameters);
  assert_fine(subject->context, hark_positional_initial(subject->context, subject->kernel, &start, subject->parameters));
}

void test_subject_close(test_subject *subject) {
  free(subject->parameters);
  hark_positional_destroy(subject->context, &subject->kernel);
  test_setup_close(subject->context);
}

static double weighted(const test_subject *subject, const double *distances, const double *weights, int count) {
  double *const values = calloc((size_t)count, sizeof(double)), sum = 0;
  assert_non_null(values);
  assert_fine(subject->context, hark_positional_log(subject->context, subject->kernel, subject->parameters, distances, count, values));
  for (int i = 0; i < count; i++) sum += values[i] == -INFINITY ? 0 : weights[i] * values[i];
  free(values);
  return sum;
}

/* Differences with step h: truncation h^4 f^(5) / 30, rounding eps |f| / h; 1e-6 of the largest derivative leaves room for both. */
void test_subject_check_gradient(const char *text, const double *distances, int count) {
  static const double step = 3e-4, at[] = {1, -1, 2, -2}, factor[] = {8, -8, -1, 1};
  const hark_random_stream stream = {.seed = 5, .layer_purpose = hark_random_layer_purpose(4, HARK_RANDOM_TEST)};
  test_subject subject;
  double scale = 1;
  test_subject_open(&subject, text);
  double *const weights = calloc((size_t)count, sizeof(double)), *const gradient = calloc((size_t)subject.count + 1, sizeof(double));
  assert_true(weights != NULL && gradient != NULL);
  hark_random_uniform(&stream, 0, count, weights);
  for (int i = 0; i < count; i++) weights[i] -= 0.5;
  assert_fine(subject.context,
              hark_positional_gradient(subject.context, subject.kernel, subject.parameters, distances, weights, count, gradient));
  for (int64_t p = 0; p < subject.count; p++) scale = fmax(scale, fabs(gradient[p]));
  for (int64_t p = 0; p < subject.count; p++) {
    const double here = subject.parameters[p];
    double difference = 0;
    for (int k = 0; k < 4; k++) {
      subject.parameters[p] = here + at[k] * step;
      difference += factor[k] * weighted(&subject, distances, weights, count) / (12 * step);
    }
    subject.parameters[p] = here;
    if (!(fabs(gradient[p] - difference) <= 1e-6 * scale))
      fail_msg("%s: derivative %d is %.12g, differences give %.12g", text, (int)p, gradient[p], difference);
  }
  free(weights);
  free(gradient);
  test_subject_close(&subject);
}

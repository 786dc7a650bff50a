/* make_regression.c - the finite-dimensional example of X (3.4, 3.5; Zhang et al., arXiv 2212.14852): a regression within every sequence.
 *
 *     z [r, c], entries N(0, prior);   c_l ~ N(0, I);   r_l = z c_l + N(0, noise);   tokens x_l = (c_l, r_l), l = 1 .. L
 *     one more token, the input mask (c_msk, 0), whose response r_msk = z c_msk + N(0, noise) is to be predicted
 *
 * The Bayes predictor is ridge regression with ridge = noise / prior; its squared error is r noise (1 + E c'(C'C + ridge I)^-1 c).
 */
#include <math.h>

#include "data/formats/vector_file.h"
#include "data/tasks/make_vectors.h"

static int64_t features_of(const hark_vector_values *v) { return v->covariates + v->responses; }

static hark_status settle(hark_context *context, void *values) {
  hark_vector_values *const v = values;
  hark_vectors_settle_tokens(v);
  return hark_vectors_settle(context, v->tokens + 1, features_of(v), v->responses);
}

static hark_task_sizes sizes(const void *values) {
  const hark_vector_values *const v = values;
  return (hark_task_sizes){.example_bytes = hark_vectors_record(v->tokens + 1, features_of(v), v->responses) * sizeof(float),
                           .scratch_bytes = (size_t)(v->responses * (v->covariates + 1) + v->covariates) * sizeof(double)};
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator;
  const hark_vector_values *const v = values;
  return hark_vectors_begin(v->tokens + 1, features_of(v), v->responses, count, out);
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_vector_values *const v = order->values;
  double *const z = order->scratch, *const covariate = z + v->responses * v->covariates, *const response = covariate + v->covariates;
  unsigned char *end = out;
  hark_task_fill_normal(&order->random, sqrt(v->prior), v->responses * v->covariates, z);
  for (int64_t l = 0; l <= v->tokens; l++) {
    hark_task_fill_normal(&order->random, 1, v->covariates, covariate);
    hark_task_fill_normal(&order->random, sqrt(v->noise), v->responses, response);
    for (int64_t j = 0; j < v->responses; j++)
      for (int64_t i = 0; i < v->covariates; i++) response[j] += z[j * v->covariates + i] * covariate[i];
    end = hark_vectors_write(covariate, v->covariates, end);
    if (l < v->tokens) {
      end = hark_vectors_write(response, v->responses, end);
      continue;
    }
    for (int64_t j = 0; j < v->responses; j++) end = hark_vectors_write(&(double){0}, 1, end); /* the mask: the masked response is 0 */
  }
  return (size_t)(hark_vectors_write(response, v->responses, end) - out);
}

const hark_task_generator hark_task_regression = {
    .summary = "a linear regression in every sequence, and one masked response to predict",
    .format = "vectors",
    .parameters = "tokens covariates responses noise prior",
    .examples = {4000, 1000, 1000},
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
};

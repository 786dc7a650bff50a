/* make_latent.c - a latent variable model with bounded tokens, as the risk bounds of X assume (assumption 5.2; Zhang et al., arXiv
 * 2212.14852):
 *
 *     z uniform in the ball of radius 1/2 of R^d;   x_l = z + spread N(0, I), projected to the unit ball;   l = 1 .. L
 *     y_j = sin(frequency z_(j mod d) + j) / (2 sqrt(r)),  j = 0 .. r - 1:  |y| <= 1/2
 *
 * Tokens are exchangeable, and independent given z; y is a function of z alone.
 */
#include <math.h>

#include "data/formats/vector_file.h"
#include "data/tasks/make_vectors.h"

#define PRIOR_RADIUS 0.5
#define TOKEN_RADIUS 1.0
#define TARGET_RADIUS 0.5

static hark_status settle(hark_context *context, void *values) {
  hark_vector_values *const v = values;
  hark_vectors_settle_tokens(v);
  return hark_vectors_settle(context, v->tokens, v->features, v->responses);
}

static hark_task_sizes sizes(const void *values) {
  const hark_vector_values *const v = values;
  return (hark_task_sizes){.example_bytes = hark_vectors_record(v->tokens, v->features, v->responses) * sizeof(float),
                           .scratch_bytes = (size_t)(2 * v->features + v->responses) * sizeof(double)};
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator;
  const hark_vector_values *const v = values;
  return hark_vectors_begin(v->tokens, v->features, v->responses, count, out);
}

/* A normal vector has a uniform direction, and the ball of u^(1/d) of the radius has the fraction u of the volume. */
static void draw_latent(hark_task_random *random, int64_t d, double *z) {
  double sum = 0;
  hark_task_fill_normal(random, 1, d, z);
  const double length = PRIOR_RADIUS * pow(hark_task_random_uniform(random), 1 / (double)d);
  for (int64_t i = 0; i < d; i++) sum += z[i] * z[i];
  for (int64_t i = 0; i < d; i++) z[i] *= sum > 0 ? length / sqrt(sum) : 0;
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_vector_values *const v = order->values;
  const int64_t d = v->features;
  double *const z = order->scratch, *const token = z + d, *const target = token + d;
  unsigned char *end = out;
  draw_latent(&order->random, d, z);
  for (int64_t l = 0; l < v->tokens; l++) {
    hark_task_fill_normal(&order->random, v->spread, d, token);
    for (int64_t i = 0; i < d; i++) token[i] += z[i];
    hark_vector_to_ball(TOKEN_RADIUS, d, token);
    end = hark_vectors_write(token, d, end);
  }
  for (int64_t j = 0; j < v->responses; j++)
    target[j] = TARGET_RADIUS * sin(v->frequency * z[j % d] + (double)j) / sqrt((double)v->responses);
  return (size_t)(hark_vectors_write(target, v->responses, end) - out);
}

const hark_task_generator hark_task_latent = {
    .summary = "real vectors around a latent vector, and a function of it to predict",
    .format = "vectors",
    .parameters = "tokens features responses spread frequency",
    .examples = {4000, 1000, 1000},
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
};

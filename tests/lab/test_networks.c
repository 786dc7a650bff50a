/* test_networks.c - networks of the laboratory and ways down: gradients by differences, norms that are cut, known minima. */
#include <math.h>
#include <string.h>

#include "lab/descent.h"
#include "lab/latent_data.h"
#include "lab/latent_network.h"
#include "lab/masked_network.h"
#include "lab/matrix.h"
#include "lab/singular.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

static hark_context *context;
static hark_lab *lab;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  assert_fine(context, hark_lab_create(context, true, 5, NULL, &lab));
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_lab_destroy(&lab);
  test_setup_close(context);
  return 0;
}

/* ---- matrices ---- */

static void products_are_sums_of_products(void **state) {
  (void)state;
  enum { ROWS = 5, INNER = 70, COLUMNS = 3 }; /* more than a block of the inner dimension */
  double a[ROWS * INNER], b[INNER * COLUMNS], flipped_a[INNER * ROWS], flipped_b[COLUMNS * INNER];
  double plain[ROWS * COLUMNS], left[ROWS * COLUMNS] = {0}, right[ROWS * COLUMNS] = {0};
  hark_lab_normal(lab, 1, (int64_t)ROWS * INNER, a);
  hark_lab_normal(lab, 2, (int64_t)INNER * COLUMNS, b);
  for (int i = 0; i < INNER; i++) {
    for (int r = 0; r < ROWS; r++) flipped_a[i * ROWS + r] = a[r * INNER + i];
    for (int c = 0; c < COLUMNS; c++) flipped_b[c * INNER + i] = b[i * COLUMNS + c];
  }
  hark_lab_multiply(ROWS, INNER, COLUMNS, a, b, plain);
  hark_lab_add_left_transposed(ROWS, INNER, COLUMNS, flipped_a, b, left);
  hark_lab_add_right_transposed(ROWS, INNER, COLUMNS, a, flipped_b, right);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      double sum = 0;
      for (int i = 0; i < INNER; i++) sum += a[r * INNER + i] * b[i * COLUMNS + c];
      assert_true(fabs(plain[r * COLUMNS + c] - sum) < 1e-13);
      assert_true(fabs(left[r * COLUMNS + c] - sum) < 1e-13);
      assert_true(fabs(right[r * COLUMNS + c] - sum) < 1e-13);
    }
}

/* Singular values above the bound come to stand on it, the others stay; a matrix within it keeps its bits. */
static void norms_are_cut(void **state) {
  (void)state;
  enum { ROWS = 6, COLUMNS = 4 };
  double w[ROWS * COLUMNS], copy[ROWS * COLUMNS], before[ROWS], after[ROWS];
  hark_lab_normal(lab, 3, (int64_t)ROWS * COLUMNS, w);
  memcpy(copy, w, sizeof w);
  hark_singular_values(ROWS, COLUMNS, copy, before);
  const double bound = (before[1] + before[2]) / 2;
  memcpy(copy, w, sizeof w);
  hark_lab_cut_norm(ROWS, COLUMNS, 2 * before[0], copy);
  assert_memory_equal(copy, w, sizeof w);
  hark_lab_cut_norm(ROWS, COLUMNS, bound, w);
  memcpy(copy, w, sizeof w);
  hark_singular_values(ROWS, COLUMNS, copy, after);
  for (int i = 0; i < COLUMNS; i++) assert_true(fabs(after[i] - fmin(before[i], bound)) < 1e-12);
}

/* ---- networks ---- */

typedef struct network_case {
  int64_t dim, width, head_dim, value_dim, length, count;
  bool one_mask, unbounded;
} network_case;

/* d / dh by f(x - 2h), f(x - h), f(x + h), f(x + 2h): error of order h^4, rounding of order eps / h; h = 1e-3 is far from kinks for most
 * weights. */
static void gradients_are_slopes(void **state) {
  (void)state;
  static const network_case cases[] = {
      {4, 4, 4, 4, 8, 5, true, false}, {3, 7, 2, 5, 4, 3, false, true}, {1, 1, 1, 1, 1, 1, false, false}, {2, 5, 1, 3, 1, 4, true, true}};
  for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
    const network_case *const c = &cases[n];
    hark_lab_network network = {.dim = c->dim,
                                .width = c->width,
                                .head_dim = c->head_dim,
                                .value_dim = c->value_dim,
                                .length = c->length,
                                .most = c->count + 2,
                                .variance = 1.5,
                                .feature_scale = 0.8,
                                .output_scale = 0.7,
                                .unbounded = c->unbounded};
    double *weights, *tokens, *masks, *gradient, *df, *scratch;
    const uint32_t stream = 100 * (uint32_t)(n + 1);
    assert_fine(context, hark_lab_make_network(lab, &network));
    assert_fine(context, hark_lab_draw_normal(lab, stream, network.weights, 1, &weights));
    assert_fine(context, hark_lab_draw_normal(lab, stream + 1, c->count * c->length * c->dim, 1, &tokens));
    assert_fine(context, hark_lab_draw_normal(lab, stream + 2, c->count * c->dim, 1, &masks));
    assert_fine(context, hark_lab_draw_normal(lab, stream + 3, c->count, 1, &df));
    assert_fine(context, hark_lab_numbers(lab, network.weights, &gradient));
    assert_fine(context, hark_lab_numbers(lab, network.weights, &scratch));
    const hark_lab_sequences data = {.count = c->count, .tokens = tokens, .masks = masks, .one_mask = c->one_mask};
    assert_fine(context, hark_lab_network_forward(context, &network, &data, weights));
    assert_fine(context, hark_lab_network_backward(context, &network, &data, weights, df, gradient));
    int64_t wrong = 0;
    for (int64_t w = 0; w < network.weights; w++) {
      static const double at[] = {-2, -1, 1, 2}, factor[] = {1. / 12, -8. / 12, 8. / 12, -1. / 12};
      const double step = 1e-4, here = weights[w];
      double slope = 0;
      for (int i = 0; i < 4; i++) {
        weights[w] = here + at[i] * step;
        assert_fine(context, hark_lab_network_forward(context, &network, &data, weights));
        slope += factor[i] * hark_lab_dot(df, network.f, c->count) / step;
      }
      weights[w] = here;
      wrong += fabs(slope - gradient[w]) > 1e-8 * (1 + fabs(slope));
    }
    assert_int_equal(wrong, 0);
  }
}

/* One token: attention is its value, whatever query and key; f = tanh(2 u.W^v' relu(A' x)) / 2. */
static void one_token_is_a_plain_network(void **state) {
  (void)state;
  hark_lab_network network = {
      .dim = 2, .width = 3, .head_dim = 2, .value_dim = 2, .length = 1, .most = 1, .variance = 1, .feature_scale = 1, .output_scale = 1};
  double weights[6 + 6 + 6 + 6 + 2], token[2] = {0.7, -0.3}, mask[2] = {1, 2}, t = 0;
  assert_fine(context, hark_lab_make_network(lab, &network));
  assert_int_equal(network.weights, sizeof weights / sizeof weights[0]);
  hark_lab_normal(lab, 50, network.weights, weights);
  const hark_lab_sequences data = {.count = 1, .tokens = token, .masks = mask, .one_mask = true};
  assert_fine(context, hark_lab_network_forward(context, &network, &data, weights));
  for (int m = 0; m < 3; m++) {
    const double feature = fmax(token[0] * weights[m] + token[1] * weights[3 + m], 0);
    for (int c = 0; c < 2; c++) t += feature * weights[18 + 2 * m + c] * weights[24 + c];
  }
  assert_true(fabs(network.f[0] - tanh(2 * t) / 2) < 1e-15);
}

static void projected_weights_have_their_norms(void **state) {
  (void)state;
  hark_lab_network network = {
      .dim = 4, .width = 4, .head_dim = 4, .value_dim = 4, .length = 2, .most = 1, .variance = 4, .feature_scale = 1, .output_scale = 1};
  double *weights, values[4];
  assert_fine(context, hark_lab_make_network(lab, &network));
  assert_fine(context, hark_lab_draw_normal(lab, 60, network.weights, 10, &weights));
  hark_lab_network_project(&network, 3, weights);
  for (int w = 0; w < HARK_LAB_WEIGHTS; w++) {
    const hark_lab_place place = hark_lab_weight_place(&network, (hark_lab_weight)w);
    hark_singular_values(place.rows, place.columns, weights + place.first, values);
    assert_true(fabs(values[0] - (w == HARK_LAB_U ? 1 : 3)) < 1e-12);
  }
}

static void labels_and_tokens_are_within_their_bounds(void **state) {
  (void)state;
  hark_lab_latent_data data = {.count = 500, .length = 3, .dim = 4};
  double longest = 0, noise = 0;
  assert_fine(context, hark_lab_make_latent_data(lab, &data));
  hark_lab_draw_latent_data(lab, 70, data.count, &data);
  for (int64_t i = 0; i < data.count; i++) {
    assert_true(fabs(data.y[i]) <= 0.5);
    noise += (data.y[i] - data.means[i]) * (data.y[i] - data.means[i]) / (double)data.count;
  }
  for (int64_t i = 0; i < data.count * data.length; i++)
    longest = fmax(longest, hark_lab_dot(data.tokens + i * data.dim, data.tokens + i * data.dim, data.dim));
  assert_true(longest < 1 + 1e-14 && longest > 1 - 1e-9);
  assert_true(fabs(noise - HARK_LAB_LABEL_NOISE) < 1e-14);
}

/* ---- ways down ---- */

/* (1 - x)^2 + 100 (y - x^2)^2, least at (1, 1). */
static hark_status valley(void *user, const double *x, double *value, double *gradient) {
  const double off = x[1] - x[0] * x[0];
  (void)user;
  *value = (1 - x[0]) * (1 - x[0]) + 100 * off * off;
  gradient[0] = -2 * (1 - x[0]) - 400 * x[0] * off;
  gradient[1] = 200 * off;
  return HARK_OK;
}

/* |x| + 3 |y - 1|: no gradient where it is least. */
static hark_status roof(void *user, const double *x, double *value, double *gradient) {
  (void)user;
  *value = fabs(x[0]) + 3 * fabs(x[1] - 1);
  gradient[0] = x[0] < 0 ? -1 : 1;
  gradient[1] = x[1] < 1 ? -3 : 3;
  return HARK_OK;
}

static void onto_a_half_line(void *user, double *x) {
  (void)user;
  x[0] = fmax(x[0], 2);
}

static hark_status cliff(void *user, const double *x, double *value, double *gradient) {
  (void)user;
  *value = x[0] < -0.5 ? NAN : x[0];
  gradient[0] = gradient[1] = 1;
  return HARK_OK;
}

static void valleys_are_followed(void **state) {
  (void)state;
  const hark_lab_objective objective = {.dims = 2, .evaluate = valley};
  hark_lab_descent d;
  assert_fine(context, hark_lab_make_descent(lab, 2, HARK_LAB_PAIRS, &d));
  d.x[0] = -1.2;
  d.x[1] = 1;
  assert_fine(context, hark_lab_quasi_newton(&objective, 200, 1e-9, &d));
  assert_true(d.norm <= 1e-9 && d.value < 1e-18 && d.evaluations < 100);
  assert_true(fabs(d.x[0] - 1) < 1e-8 && fabs(d.x[1] - 1) < 1e-8);
  const int few = 10;
  d.x[0] = -1.2;
  d.x[1] = 1;
  assert_fine(context, hark_lab_quasi_newton(&objective, few, 1e-9, &d));
  assert_true(d.evaluations <= few + 1 && d.value < 24.2); /* of the start */
}

static void kinks_are_come_near_to(void **state) {
  (void)state;
  const hark_lab_objective objective = {.dims = 2, .evaluate = roof};
  hark_lab_descent d;
  assert_fine(context, hark_lab_make_descent(lab, 2, HARK_LAB_PAIRS, &d));
  d.x[0] = 3.3;
  d.x[1] = -4.1;
  assert_fine(context, hark_lab_quasi_newton(&objective, 1000, 1e-9, &d));
  assert_true(d.value < 1e-6 && d.norm > 1);
}

static void projections_are_kept(void **state) {
  (void)state;
  const hark_lab_objective objective = {.dims = 2, .evaluate = valley, .project = onto_a_half_line};
  const hark_lab_objective broken = {.dims = 2, .evaluate = cliff};
  const hark_lab_adam how = {.steps = 4000, .rate = 0.05};
  hark_lab_descent d;
  assert_fine(context, hark_lab_make_descent(lab, 2, HARK_LAB_PAIRS, &d));
  d.x[0] = -1.2;
  assert_fine(context, hark_lab_descend(lab, &objective, how, &d));
  assert_true(d.x[0] == 2 && fabs(d.x[1] - 4) < 1e-3 && fabs(d.value - 1) < 1e-3); /* least for x >= 2: (2, 4) */
  d.x[0] = d.x[1] = 0;
  assert_failure(context, hark_lab_descend(lab, &broken, how, &d), HARK_NOT_FINITE, "a loss is nan after");
}

static void onto_the_disc(void *user, double *x) {
  const double length = hypot(x[0], x[1]);
  (void)user;
  for (int i = 0; i < 2; i++) x[i] /= fmax(length, 1);
}

/* max over the disc of gradient.(x - other) */
static double gap_on_the_disc(void *user, const double *x, const double *gradient) {
  (void)user;
  return hark_lab_dot(x, gradient, 2) + hypot(gradient[0], gradient[1]);
}

/* On the disc the valley is least on the edge: lower than anywhere on a fine grid of angles. Without a projection it is least at (1, 1). */
static void projected_gradients_end_where_they_are_stationary(void **state) {
  (void)state;
  const hark_lab_objective on_the_disc = {.dims = 2, .evaluate = valley, .project = onto_the_disc, .gap = gap_on_the_disc};
  const hark_lab_objective everywhere = {.dims = 2, .evaluate = valley};
  hark_lab_descent d;
  double least = INFINITY;
  assert_fine(context, hark_lab_make_descent(lab, 2, 1, &d));
  d.x[0] = -1.2;
  d.x[1] = 1;
  assert_fine(context, hark_lab_project_gradients(&on_the_disc, 20000, 1e-9, &d));
  assert_true(d.norm >= -1e-12 && d.norm <= 1e-9 && fabs(hypot(d.x[0], d.x[1]) - 1) < 1e-9);
  for (int i = 0; i < 6284; i++) {
    const double x[2] = {cos(i * 1e-3), sin(i * 1e-3)};
    double value, gradient[2];
    assert_fine(context, valley(NULL, x, &value, gradient));
    least = fmin(least, value);
  }
  assert_true(d.value <= least && d.value > least - 1e-3);
  d.x[0] = d.x[1] = 0;
  assert_fine(context, hark_lab_project_gradients(&everywhere, 20000, 1e-7, &d));
  assert_true(d.norm <= 1e-7 && fabs(d.x[0] - 1) < 1e-5 && fabs(d.x[1] - 1) < 1e-5);
  d.x[0] = d.x[1] = 0;
  assert_fine(context, hark_lab_project_gradients(&everywhere, 20, 1e-7, &d));
  assert_true(d.norm > 1e-7 && d.evaluations >= 20 && d.value < 1);
}

/* ---- networks of masked values ---- */

static void targets_of_latent(hark_lab_masked *m) {
  for (int64_t i = 0; i < m->count * m->targets; i++) m->target[i] = sin(3 * m->latent[i / m->targets * m->values]) + 0.1 * (double)(i % 7);
}

static void masked_networks_have_the_gradients_of_their_loss(void **state) {
  (void)state;
  for (int softmax = 0; softmax < 2; softmax++) {
    hark_lab_masked m = {.softmax = softmax == 1, .count = 5, .length = 6, .values = 2, .features = 2, .targets = 3};
    double gradient[16], start[16];
    assert_fine(context, hark_lab_make_masked(lab, &m));
    assert_int_equal(m.descent.dims, 2 + 4 + 6);
    assert_fine(context, hark_lab_draw_masked(&m, 200, 0));
    targets_of_latent(&m);
    hark_lab_start_masked(&m, 210);
    m.descent.x[0] = -0.4;
    m.descent.x[1] = -1.1;
    memcpy(start, m.descent.x, (size_t)m.descent.dims * sizeof *start);
    assert_fine(context, hark_lab_train_masked(&m, 1)); /* one evaluation */
    memcpy(gradient, m.descent.gradient, (size_t)m.descent.dims * sizeof *gradient);
    for (int64_t w = 0; w < m.descent.dims; w++) {
      static const double at[] = {-2, -1, 1, 2}, factor[] = {1. / 12, -8. / 12, 8. / 12, -1. / 12};
      double slope = 0;
      for (int i = 0; i < 4; i++) {
        memcpy(m.descent.x, start, (size_t)m.descent.dims * sizeof *start);
        m.descent.x[w] += at[i] * 1e-3;
        assert_fine(context, hark_lab_train_masked(&m, 1));
        slope += factor[i] * m.descent.value / 1e-3;
      }
      if (fabs(slope - gradient[w]) > 1e-8 * (1 + fabs(slope)))
        fail_msg("softmax %d, weight %d: gradient %g, slope %g", softmax, (int)w, gradient[w], slope);
    }
  }
}

/* CME attention with the kernel and the noise of the process is the posterior mean; training comes near to it, and lowers the loss. */
static void a_masked_network_can_be_the_posterior_mean(void **state) {
  (void)state;
  enum { COUNT = 200 };
  hark_lab_masked m = {.count = COUNT, .length = 10, .values = 1, .features = 1, .targets = 1};
  double features[COUNT], f[COUNT], squares = 0, away = 0;
  assert_fine(context, hark_lab_make_masked(lab, &m));
  assert_fine(context, hark_lab_draw_masked(&m, 220, 0.3));
  const double truth[] = {log(HARK_LAB_MASKED_WIDTH), log(HARK_LAB_MASKED_NOISE), 1, 1};
  memcpy(m.descent.x, truth, sizeof truth);
  assert_fine(context, hark_lab_apply_masked(&m, features, f));
  for (int i = 0; i < COUNT; i++) {
    assert_true(fabs(f[i] - m.exact.out[i]) < 1e-12 && features[i] == f[i]);
    assert_true(fabs(m.exact.query[i]) <= 1);
    squares += pow((m.latent[i] - f[i]) / sqrt(m.exact.variance[i]), 2) / COUNT; /* h is N(mean, variance) */
  }
  assert_true(squares > 0.5 && squares < 1.5); /* five deviations of a mean of 200 squares */
  memcpy(m.target, m.latent, sizeof f);
  hark_lab_start_masked(&m, 230);
  assert_fine(context, hark_lab_train_masked(&m, 100));
  assert_fine(context, hark_lab_apply_masked(&m, features, f));
  for (int i = 0; i < COUNT; i++) away += pow(f[i] - m.exact.out[i], 2) / COUNT;
  assert_true(away < 0.02); /* of a variance of 1; four weights on 200 values, of variance .1 given the sequence */
}

/* The n-th request for memory fails, for every n. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  while (status != HARK_OK) {
    test_memory memory;
    hark_lab *tight_lab = NULL;
    hark_lab_network network = {.dim = 2, .width = 2, .head_dim = 2, .value_dim = 2, .length = 2, .most = 1, .variance = 1};
    hark_lab_latent_data data = {.count = 1, .length = 2, .dim = 2};
    hark_lab_descent descent;
    hark_context *const tight = test_memory_context(&memory);
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_lab_create(tight, true, 1, NULL, &tight_lab);
    if (status == HARK_OK) status = hark_lab_make_network(tight_lab, &network);
    if (status == HARK_OK) status = hark_lab_make_latent_data(tight_lab, &data);
    if (status == HARK_OK) status = hark_lab_make_descent(tight_lab, network.weights, HARK_LAB_PAIRS, &descent);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
    hark_lab_destroy(&tight_lab);
    test_memory_context_end(tight, &memory);
  }
  assert_true(fail_at > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_sums_of_products),
                                     cmocka_unit_test(norms_are_cut),
                                     cmocka_unit_test(gradients_are_slopes),
                                     cmocka_unit_test(one_token_is_a_plain_network),
                                     cmocka_unit_test(projected_weights_have_their_norms),
                                     cmocka_unit_test(labels_and_tokens_are_within_their_bounds),
                                     cmocka_unit_test(valleys_are_followed),
                                     cmocka_unit_test(kinks_are_come_near_to),
                                     cmocka_unit_test(projected_gradients_end_where_they_are_stationary),
                                     cmocka_unit_test(masked_networks_have_the_gradients_of_their_loss),
                                     cmocka_unit_test(a_masked_network_can_be_the_posterior_mean),
                                     cmocka_unit_test(projections_are_kept),
                                     cmocka_unit_test(memory_may_run_out)};
  return cmocka_run_group_tests(tests, begin, end);
}

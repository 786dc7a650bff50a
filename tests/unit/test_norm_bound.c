/* test_norm_bound.c - projections onto bounds of norms: norms against their definitions, the bound after a projection, and that no other
 * matrix within the bounds is nearer. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <hark/random.h>

#include "nn/norm_bound.h"
#include "support/cmocka_all.h"

#define SIDE 6
#define NUMBERS (SIDE * SIDE)
#define SCRATCH (4 * NUMBERS)

static const int64_t shapes[][2] = {{1, 1}, {1, 5}, {6, 1}, {2, 3}, {3, 2}, {5, 5}, {4, 6}};
#define SHAPES (sizeof shapes / sizeof *shapes)

/* Uniform in [-size, size). */
static void fill(double *m, int64_t count, double size, uint64_t seed) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  for (int64_t i = 0; i < count; i++) m[i] = size * ((double)hark_random_word(&stream, (uint64_t)i) * 0x1p-31 - 1);
}

static void norms_are_those_of_small_matrices(void **state) {
  (void)state;
  static const double m[] = {3, 0, -4, 0, 2, 1}; /* 3 x 2; M'M = (29, 2; 2, 1), eigenvalues 15 +- sqrt(200) */
  double scratch[SCRATCH];
  assert_true(fabs(hark_operator_norm(HARK_BOUND_TWO, 3, 2, m, scratch) - sqrt(15 + sqrt(200.0))) < 1e-14 * 6);
  assert_true(fabs(hark_matrix_norm(HARK_BOUND_TWO, 3, 2, m) - sqrt(30.0)) < 1e-14 * 6);
  assert_true(hark_operator_norm(HARK_BOUND_ONE, 3, 2, m, scratch) == 9 && hark_matrix_norm(HARK_BOUND_ONE, 3, 2, m) == 9);
  assert_true(hark_operator_norm(HARK_BOUND_INFINITY, 3, 2, m, scratch) == 4 && hark_matrix_norm(HARK_BOUND_INFINITY, 3, 2, m) == 5);
}

/* |M u|_r <= |M|_r |u|_r for any u. */
static double vector_norm(int norm, int64_t count, const double *u) {
  double sum = 0, most = 0;
  for (int64_t i = 0; i < count; i++) {
    sum += norm == HARK_BOUND_TWO ? u[i] * u[i] : fabs(u[i]);
    most = fmax(most, fabs(u[i]));
  }
  return norm == HARK_BOUND_TWO ? sqrt(sum) : norm == HARK_BOUND_ONE ? sum : most;
}

static void operator_norms_bound_what_a_matrix_does(void **state) {
  (void)state;
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    double best = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
      double m[NUMBERS], u[SIDE], v[SIDE] = {0}, scratch[SCRATCH];
      fill(m, 6, 1, 7);
      fill(u, 3, 1, seed);
      for (int i = 0; seed <= 11 && i < 3; i++) u[i] = seed <= 3 ? seed == (uint64_t)i + 1 : (seed - 4) >> i & 1 ? 1 : -1; /* corners too */
      for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) v[i] += m[i * 3 + j] * u[j];
      const double ratio = vector_norm(norm, 2, v) / vector_norm(norm, 3, u) / hark_operator_norm((hark_bound_norm)norm, 2, 3, m, scratch);
      assert_true(ratio <= 1 + 1e-14);
      best = fmax(best, ratio);
    }
    assert_true(best > 0.9); /* and some vector attains it */
  }
}

static double larger_part(const hark_norm_bound *bound, int64_t rows, int64_t columns, const double *m) {
  double scratch[SCRATCH], part = 0;
  if (bound->operator_norm > 0) part = hark_operator_norm(bound->norm, rows, columns, m, scratch) / bound->operator_norm;
  if (bound->matrix_norm > 0) part = fmax(part, hark_matrix_norm(bound->norm, rows, columns, m) / bound->matrix_norm);
  return part;
}

/* P is the nearest point of a convex set exactly when (M - P).(X - P) <= 0 for every X of the set. */
static void check_nearest(const hark_norm_bound *bound, int64_t rows, int64_t columns, const double *m, const double *projected) {
  const int64_t count = rows * columns;
  for (uint64_t seed = 100; seed < 160; seed++) {
    double other[NUMBERS], product = 0, size = 0;
    fill(other, count, 1, seed);
    for (int64_t i = 0; seed % 2 == 0 && i < count; i++) other[i] = projected[i] + 0.1 * other[i]; /* near it too */
    const double part = larger_part(bound, rows, columns, other);
    for (int64_t i = 0; i < count; i++) {
      other[i] /= fmax(part, 1); /* in the set, mostly on its boundary */
      product += (m[i] - projected[i]) * (other[i] - projected[i]);
      size += fabs(m[i] - projected[i]) * (fabs(other[i]) + fabs(projected[i]));
    }
    if (!(product <= 1e-11 * size)) fail_msg("norm %d, %d x %d: %g nearer", bound->norm, (int)rows, (int)columns, product);
  }
}

static void a_projection_is_the_nearest_matrix(void **state) {
  (void)state;
  static const double bounds[][2] = {{0.8, 0}, {0, 1.1}, {0.8, 1.1}, {5, 1.1}, {0.8, 50}};
  double m[NUMBERS], projected[NUMBERS], scratch[SCRATCH];
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++)
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++)
      for (size_t s = 0; s < SHAPES; s++) {
        const hark_norm_bound bound = {(hark_bound_norm)norm, bounds[b][0], bounds[b][1]};
        const int64_t rows = shapes[s][0], columns = shapes[s][1], count = rows * columns;
        assert_true(hark_norm_bound_scratch(rows, columns) <= SCRATCH);
        fill(m, count, 3, 11 + s);
        memcpy(projected, m, (size_t)count * sizeof *m);
        hark_norm_bound_project(&bound, rows, columns, projected, scratch);
        const double part = larger_part(&bound, rows, columns, projected);
        if (!(part <= 1 + 1e-13)) fail_msg("norm %d, bounds %g %g: %.17g of them", norm, bounds[b][0], bounds[b][1], part);
        const bool both = norm == HARK_BOUND_INFINITY && bounds[b][0] > 0 && bounds[b][1] > 0; /* nearest only where one binds */
        if (!both) check_nearest(&bound, rows, columns, m, projected);
        memcpy(m, projected, (size_t)count * sizeof *m);
        hark_norm_bound_project(&bound, rows, columns, projected, scratch);
        for (int64_t i = 0; i < count; i++) assert_true(fabs(projected[i] - m[i]) <= 1e-13);
      }
}

static void what_is_within_its_bounds_keeps_its_bits(void **state) {
  (void)state;
  double m[NUMBERS], projected[NUMBERS], scratch[SCRATCH];
  for (int norm = HARK_BOUND_FREE; norm <= HARK_BOUND_INFINITY; norm++) {
    const hark_norm_bound bound = {(hark_bound_norm)norm, norm == HARK_BOUND_FREE ? 1e-3 : 40, 40};
    fill(m, NUMBERS, 1, 3);
    memcpy(projected, m, sizeof m);
    hark_norm_bound_project(&bound, SIDE, SIDE, projected, scratch);
    assert_memory_equal(projected, m, sizeof m);
  }
  memset(m, 0, sizeof m);
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    const hark_norm_bound bound = {(hark_bound_norm)norm, 0.5, 0.5};
    memcpy(projected, m, sizeof m);
    hark_norm_bound_project(&bound, SIDE, SIDE, projected, scratch);
    assert_memory_equal(projected, m, sizeof m);
  }
}

static void numbers_that_are_not_finite_stay(void **state) {
  (void)state;
  double m[4] = {NAN, 1, 2, INFINITY}, scratch[SCRATCH];
  for (int norm = HARK_BOUND_ONE; norm <= HARK_BOUND_INFINITY; norm++) {
    const hark_norm_bound bound = {(hark_bound_norm)norm, 0.5, 0.5};
    hark_norm_bound_project(&bound, 2, 2, m, scratch);
    assert_true(isnan(m[0]) && m[1] == 1 && m[2] == 2 && isinf(m[3]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(norms_are_those_of_small_matrices),  cmocka_unit_test(operator_norms_bound_what_a_matrix_does),
      cmocka_unit_test(a_projection_is_the_nearest_matrix), cmocka_unit_test(what_is_within_its_bounds_keeps_its_bits),
      cmocka_unit_test(numbers_that_are_not_finite_stay),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_simd.c - the vector abstraction of the cpu backend: elementary functions against the C library in double over all binades of f32,
 * values where they are not finite, the exponential of f64, and moving data. Built with the flags of the tests, so it sees the narrowest
 * vectors, with NEON's own functions on aarch64; the bounds hold for all, because a fused multiply-add only takes a rounding away. */
#if defined(__aarch64__) && defined(__GNUC__)
#define HARK_USE_NEON 1
#endif
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cpu/isa/wide.h"
#include "support/cmocka_all.h"

typedef struct function_case {
  const char *name;
  float (*ours)(float);
  double (*exact)(double);
  double lowest, highest; /* arguments outside are left out */
  double ulps;            /* the bound that simd.h states */
} function_case;

#define LANE_ZERO(name, vector_function)                                                                                                   \
  static float name(float x) {                                                                                                             \
    float lanes[HARK_LANES];                                                                                                               \
    vf_store(lanes, vector_function(vf_set(x)));                                                                                           \
    return lanes[0];                                                                                                                       \
  }
LANE_ZERO(our_exp2, vf_exp2)
LANE_ZERO(our_exp, vf_exp)
LANE_ZERO(our_log, vf_log)
LANE_ZERO(our_tanh, vf_tanh)

static const function_case functions[] = {
    {"exp2", our_exp2, exp2, -126, 127, 3},
    {"exp", our_exp, exp, -INFINITY, INFINITY, 2},
    {"log", our_log, log, 0, INFINITY, 2},
    {"tanh", our_tanh, tanh, -INFINITY, INFINITY, 2},
};

static float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* Distance in units of the last place of the exact value; of the smallest normal one below that. */
static double distance(float ours, double exact) {
  if (isnan(exact)) return isnan(ours) ? 0 : INFINITY;
  if (isinf(ours) || isinf(exact)) return (double)ours == exact || (float)exact == ours ? 0 : INFINITY;
  int exponent;
  frexp(exact, &exponent);
  return fabs((double)ours - exact) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void elementary_functions_keep_their_bounds(void **state) {
  (void)state;
  const uint32_t step = 7919; /* a prime: about 540,000 arguments, in every binade other mantissas */
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    const function_case *function = functions + f;
    long tried = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
      const float x = float_of((uint32_t)bits);
      if (!(x >= function->lowest && x <= function->highest)) continue;
      const double off = distance(function->ours(x), function->exact(x));
      tried++;
      if (!(off <= function->ulps)) fail_msg("%s(%a) = %a is %g units off", function->name, x, function->ours(x), off);
    }
    assert_true(tried > 1000);
  }
}

static double wide_exp(double x) {
  double lanes[HARK_WIDE_LANES];
  vd_store(lanes, vd_exp(vd_set(x)));
  return lanes[0];
}

/* Against long double, which must have more digits than double for it. */
static void wide_exponentials_keep_their_bound(void **state) {
  (void)state;
  assert_true(wide_exp(0) == 1 && wide_exp(-0.0) == 1 && wide_exp(-1e-300) == 1);
  for (double x = -708; x > -1e5; x *= 1.01) assert_true(wide_exp(x) > 0 && wide_exp(x) <= exp(-708) * (1 + 1e-15));
  assert_true(wide_exp(-INFINITY) > 0);
  if (LDBL_MANT_DIG <= DBL_MANT_DIG) skip();
  for (double step = 1e-9; step < 800; step *= 1.7)
    for (int i = 1; i < 3000 && i * step < 708; i++) {
      const double x = -i * step;
      const long double exact = expl((long double)x);
      int exponent;
      (void)frexp((double)exact, &exponent);
      const double off = (double)fabsl(((long double)wide_exp(x) - exact) / (long double)ldexp(1.0, exponent - 53));
      if (!(off <= 2)) fail_msg("vd_exp(%a) = %a is %g units off", x, wide_exp(x), off);
    }
}

static void hidden_logits_weigh_nothing(void **state) {
  (void)state;
  assert_true(our_exp2(-INFINITY) == 0.0f);
  assert_true(our_exp2(-1e30f) == 0.0f);
  assert_true(our_exp2(-127.0f) == 0.0f);
  assert_true(our_exp2(0.0f) == 1.0f);
  for (float x = -127.0f; x < -126.0f; x += 1.0f / 1024) assert_true(fabs((double)our_exp2(x) - exp2(x)) <= ldexp(1.0, -126));
}

static void not_a_number_stays(void **state) {
  (void)state;
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) assert_true(isnan(functions[f].ours(NAN)));
  const uint32_t payloads[] = {0x7FC00001u, 0x7FFFFFFFu, 0xFFFFFFFFu, 0xFFC00080u, 0x7F800001u};
  for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) { /* whatever its bits */
    float x;
    memcpy(&x, &payloads[i], sizeof x);
    for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) assert_true(isnan(functions[f].ours(x)));
  }
  assert_true(isnan(our_log(-1.0f)));
  assert_true(our_log(0.0f) == -INFINITY);
  assert_true(our_exp(INFINITY) == INFINITY && our_exp(-INFINITY) == 0.0f && our_log(INFINITY) == INFINITY);
}

static void transposing_swaps_rows_and_lanes(void **state) {
  (void)state;
  float values[HARK_LANES][HARK_LANES];
  vf rows[HARK_LANES];
  for (int i = 0; i < HARK_LANES; i++)
    for (int j = 0; j < HARK_LANES; j++) values[i][j] = (float)(100 * i + j);
  for (int i = 0; i < HARK_LANES; i++) rows[i] = vf_load(values[i]);
  vf_transpose(rows);
  for (int i = 0; i < HARK_LANES; i++) vf_store(values[i], rows[i]);
  for (int i = 0; i < HARK_LANES; i++)
    for (int j = 0; j < HARK_LANES; j++) assert_true(values[i][j] == (float)(100 * j + i));
}

static void parts_touch_their_elements_only(void **state) {
  (void)state;
  float from[HARK_LANES + 1], to[HARK_LANES + 1];
  for (int i = 0; i <= HARK_LANES; i++) from[i] = (float)(i + 1);
  for (int count = 0; count <= HARK_LANES; count++) {
    for (int i = 0; i <= HARK_LANES; i++) to[i] = -1.0f;
    vf_store_part(to + 1, vf_load_part(from + 1, count), count == HARK_LANES ? HARK_LANES : count);
    for (int i = 0; i <= HARK_LANES; i++) assert_true(to[i] == (i >= 1 && i <= count ? from[i] : -1.0f));
  }
  assert_true(vf_sum(vf_load(from)) == (float)(HARK_LANES * (HARK_LANES + 1) / 2));
  assert_true(vf_highest(vf_load(from)) == (float)HARK_LANES);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementary_functions_keep_their_bounds),
      cmocka_unit_test(wide_exponentials_keep_their_bound),
      cmocka_unit_test(hidden_logits_weigh_nothing),
      cmocka_unit_test(not_a_number_stays),
      cmocka_unit_test(transposing_swaps_rows_and_lanes),
      cmocka_unit_test(parts_touch_their_elements_only),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

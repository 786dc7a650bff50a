/* test_compact.c - products with matrices of i8, bf16 and f16 on every backend and instruction set against plain loops, which share nothing
 * with the records.
 *
 * i8: the integers and their sum are exact, and what follows the sum is two multiplications in double, one rounding to f32 and one addition
 * in f32. So the expected numbers are compared by their bits on the cpu backend; the definition rounds the sum with the bias once.
 */
#include <hark/operators.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compact.h"
#include "support/cmocka_all.h"
#include "support/compare.h"
#include "support/setups.h"

#define LONGEST HARK_I8_MOST_TERMS

static void *room(size_t count, size_t bytes) {
  void *memory = calloc(count > 0 ? count : 1, bytes);
  assert_non_null(memory);
  return memory;
}

static hark_tensor tensor_of(hark_context *context, hark_type type, int rank, int64_t first, int64_t second, const void *numbers) {
  const int64_t shape[] = {first, second};
  hark_tensor tensor = {0};
  assert_int_equal(hark_tensor_create(context, type, rank, shape, &tensor), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &tensor, numbers), HARK_OK);
  return tensor;
}

typedef struct product {
  int64_t rows, outputs, length;
  hark_type type;
  const float *x, *scale, *bias; /* scale and bias may be NULL */
  const void *weight;
} product;

/* y of the record; the caller frees it. */
static float *run(hark_context *context, const product *p) {
  hark_call call = {.op = &hark_op_linear_compact, .input_count = 4};
  call.inputs[0] = tensor_of(context, HARK_F32, 2, p->rows, p->length, p->x);
  call.inputs[1] = tensor_of(context, p->type, 2, p->outputs, p->length, p->weight);
  if (p->scale != NULL) call.inputs[2] = tensor_of(context, HARK_F32, 1, p->outputs, 0, p->scale);
  if (p->bias != NULL) call.inputs[3] = tensor_of(context, HARK_F32, 1, p->outputs, 0, p->bias);
  hark_inferred inferred = {0};
  assert_int_equal(call.op->infer(context, NULL, call.inputs, call.input_count, &inferred), HARK_OK);
  call.outputs[0] = inferred.outputs[0];
  assert_int_equal(hark_tensor_create(context, HARK_F32, 2, inferred.outputs[0].shape, &call.outputs[0]), HARK_OK);
  const int64_t bytes = (int64_t)inferred.forward_workspace;
  hark_tensor workspace = {0};
  if (bytes > 0) assert_int_equal(hark_tensor_create(context, HARK_U8, 1, &bytes, &workspace), HARK_OK);
  call.workspace = workspace.data;
  call.workspace_bytes = inferred.forward_workspace;
  assert_int_equal(hark_operator_forward(context, &call), HARK_OK);
  float *y = room((size_t)(p->rows * p->outputs), sizeof *y);
  assert_int_equal(hark_tensor_read(context, &call.outputs[0], y), HARK_OK);
  for (int i = 0; i < 4; i++) hark_tensor_destroy(context, &call.inputs[i]);
  hark_tensor_destroy(context, &call.outputs[0]);
  hark_tensor_destroy(context, &workspace);
  return y;
}

/* Numbers in (-most, most), the same for every call with the same seed. */
static void fill(float *numbers, int64_t count, double most, uint64_t seed) {
  uint64_t state = seed * 2862933555777941757u + 3037000493u;
  for (int64_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    numbers[i] = (float)(most * (2 * (double)(state >> 11) / 9007199254740992.0 - 1));
  }
}

/* s and q by the definition, in long double: x 127 / max rounded to the nearest, ties to even. */
static double quantise(const float *x, int64_t length, int32_t *q) {
  double most = 0;
  for (int64_t i = 0; i < length; i++) most = fmax(most, fabs((double)x[i]));
  for (int64_t i = 0; i < length; i++) {
    const long double exact = most > 0 ? (long double)x[i] * 127 / (long double)most : 0, low = floorl(exact);
    const long double part = exact - low;
    const int32_t below = (int32_t)low;
    q[i] = part > 0.5L || (part == 0.5L && below % 2 != 0) ? below + 1 : below;
  }
  return most / 127;
}

static int64_t exact_sum(const int32_t *q, const int8_t *w, int64_t length) {
  int64_t sum = 0;
  for (int64_t i = 0; i < length; i++) sum += (int64_t)q[i] * (int64_t)w[i];
  return sum;
}

/* Compares one product of i8 on every setup. */
static void compare_i8(const product *p) {
  int32_t *q = room((size_t)p->length, sizeof *q);
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (int t = 0; t < count; t++) {
    hark_context *context = test_setup_open(&setups[t], 2);
    float *y = run(context, p);
    const bool definition = strcmp(setups[t].backend, "reference") == 0;
    for (int64_t n = 0; n < p->rows; n++) {
      const double s = quantise(p->x + n * p->length, p->length, q);
      for (int64_t o = 0; o < p->outputs; o++) {
        const int64_t sum = exact_sum(q, (const int8_t *)p->weight + o * p->length, p->length);
        const double term = s * (double)p->scale[o] * (double)sum, bias = p->bias != NULL ? (double)p->bias[o] : 0;
        const float rounded = (float)term, expected = p->bias != NULL ? rounded + p->bias[o] : rounded, got = y[n * p->outputs + o];
        const double bound = definition ? 1.2e-7 * (fabs(term) + fabs(term + bias)) : 0;
        if (!(fabs((double)got - (double)expected) <= bound))
          fail_msg("%s:%s, %lld rows, %lld outputs, %lld features: y[%lld, %lld] is %.9g, expected %.9g", setups[t].backend,
                   setups[t].instruction_set, (long long)p->rows, (long long)p->outputs, (long long)p->length, (long long)n, (long long)o,
                   (double)got, (double)expected);
      }
    }
    free(y);
    test_setup_close(context);
  }
  free(q);
}

static void integers_are_those_of_the_definition(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 1, 1},   {1, 5, 3},    {2, 3, 64},     {3, 7, 65},   {4, 4, 127},   {8, 11, 96}, {9, 6, 40},
                                     {13, 9, 33}, {5, 33, 200}, {17, 9, 31},    {66, 6, 130}, {1, 300, 512}, {1, 2, 64},  {1, 3, 65},
                                     {1, 6, 80},  {1, 43, 96},  {2, 531, 1031}, {6, 7, 40},   {15, 5, 70}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int64_t rows = sizes[i][0], outputs = sizes[i][1], length = sizes[i][2];
    float *x = room((size_t)(rows * length), sizeof *x), *numbers = room((size_t)(outputs * length), sizeof *numbers),
          *scale = room((size_t)outputs, sizeof *scale), *bias = room((size_t)outputs, sizeof *bias);
    int8_t *weight = room((size_t)(outputs * length), 1);
    fill(x, rows * length, 3, 1 + i);
    fill(numbers, outputs * length, 127.5, 100 + i);
    fill(scale, outputs, .02, 200 + i);
    fill(bias, outputs, 1, 300 + i);
    for (int64_t n = 0; n < outputs * length; n++) weight[n] = (int8_t)lrintf(numbers[n]);
    weight[0] = -128;                                       /* which files may contain */
    if (rows > 1) memset(x, 0, (size_t)length * sizeof *x); /* a row of zeros */
    product p = {rows, outputs, length, HARK_I8, x, scale, bias, weight};
    compare_i8(&p);
    p.bias = NULL;
    compare_i8(&p);
    free(weight);
    free(bias);
    free(scale);
    free(numbers);
    free(x);
  }
}

/* Halves of a step go to the even integer. */
static void ties_go_to_the_even_integer(void **state) {
  (void)state;
  static const float x[] = {127, .5f, 1.5f, 2.5f, -.5f, -1.5f, -2.5f, 126.5f, 0};
  static const int32_t expected[] = {127, 0, 2, 2, 0, -2, -2, 126, 0};
  enum { LENGTH = sizeof x / sizeof *x };
  int8_t q[LENGTH];
  assert_true(hark_i8_quantise(x, LENGTH, q) == 1);
  for (int i = 0; i < LENGTH; i++) assert_int_equal(q[i], expected[i]);
  const float scale = 1;
  for (int i = 0; i < LENGTH; i++) {
    int8_t weight[LENGTH] = {0};
    weight[i] = 1;
    const product p = {1, 1, LENGTH, HARK_I8, x, &scale, NULL, weight};
    compare_i8(&p);
  }
}

/* The largest sum that 32 bits hold, of the most features; one more is refused. */
static void the_longest_sum_is_exact(void **state) {
  (void)state;
  float *x = room(LONGEST + 1, sizeof *x);
  int8_t *weight = room(LONGEST + 1, 1);
  const float scale = 1;
  for (int64_t i = 0; i <= LONGEST; i++) x[i] = -1;
  memset(weight, -128, LONGEST + 1);
  const product p = {1, 1, LONGEST, HARK_I8, x, &scale, NULL, weight};
  compare_i8(&p);
  hark_context *context = test_reference_open();
  const int64_t shapes[][2] = {{1, LONGEST + 1}, {1, LONGEST + 1}};
  hark_tensor inputs[3] = {0};
  hark_inferred inferred = {0};
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, shapes[0], &inputs[0]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I8, 2, shapes[1], &inputs[1]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 1, shapes[1], &inputs[2]), HARK_OK);
  assert_int_equal(hark_op_linear_compact.infer(context, NULL, inputs, 3, &inferred), HARK_TOO_LARGE);
  test_setup_close(context);
  free(weight);
  free(x);
}

/* Of weights that are exact in a half: the bits of linear in f32, with few rows, and within the bound of a sum otherwise. */
static void halves_are_widened_exactly(void **state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 21, 70}, {3, 130, 67},   {8, 40, 512},  {40, 33, 129}, {4, 2, 40},
                                     {9, 7, 100}, {13, 530, 256}, {1, 700, 200}, {3, 900, 150}};
  static const hark_type types[] = {HARK_BF16, HARK_F16};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups(setups);
  for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
    const hark_type type = types[i % 2];
    const int64_t rows = sizes[i / 2][0], outputs = sizes[i / 2][1], length = sizes[i / 2][2];
    float *x = room((size_t)(rows * length), sizeof *x), *numbers = room((size_t)(outputs * length), sizeof *numbers);
    uint16_t *weight = room((size_t)(outputs * length), sizeof *weight);
    fill(x, rows * length, 3, 1 + i);
    fill(numbers, outputs * length, 1, 50 + i);
    for (int64_t n = 0; n < outputs * length; n++) weight[n] = hark_half_narrow(type, numbers[n]);
    const product p = {rows, outputs, length, type, x, NULL, NULL, weight};
    for (int t = 0; t < count; t++) {
      hark_context *context = test_setup_open(&setups[t], 2);
      float *y = run(context, &p);
      for (int64_t at = 0; at < rows * outputs; at++) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < length; k++) {
          const double term = (double)x[at / outputs * length + k] * (double)hark_half_widen(type, weight[at % outputs * length + k]);
          sum += term;
          size += fabs(term);
        }
        assert_true(fabs((double)y[at] - sum) <= (double)(length + 2) * 6e-8 * size);
      }
      free(y);
      test_setup_close(context);
    }
    free(weight);
    free(numbers);
    free(x);
  }
}

/* A row of i8 is within half a step of its numbers, and a row of zeros stays one. */
static void rows_are_rounded_to_the_nearest_step(void **state) {
  (void)state;
  enum { LENGTH = 301 };
  float row[LENGTH], zeros[LENGTH] = {0};
  int8_t q[LENGTH];
  fill(row, LENGTH, 1e-3, 7);
  const float scale = hark_i8_narrow(row, LENGTH, q);
  int largest = 0;
  for (int i = 0; i < LENGTH; i++) {
    assert_true(fabs((double)row[i] - (double)scale * q[i]) <= (double)scale * (.5 + 1e-5));
    largest = abs(q[i]) > largest ? abs(q[i]) : largest;
  }
  assert_int_equal(largest, 127);
  assert_true(hark_i8_narrow(zeros, LENGTH, q) == 0);
  for (int i = 0; i < LENGTH; i++) assert_int_equal(q[i], 0);
  row[5] = INFINITY;
  assert_true(!isfinite(hark_i8_narrow(row, LENGTH, q)));
  row[5] = NAN;
  assert_true(!isfinite(hark_i8_narrow(row, LENGTH, q)));
}

/* An i8 matrix has scales, and no other has. */
static void scales_belong_to_integers(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const int64_t shape[] = {4, 4};
  hark_tensor inputs[3] = {0};
  hark_inferred inferred = {0};
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, shape, &inputs[0]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I8, 2, shape, &inputs[1]), HARK_OK);
  assert_int_equal(hark_op_linear_compact.infer(context, NULL, inputs, 3, &inferred), HARK_INVALID_ARGUMENT);
  assert_string_equal(hark_context_message(context),
                      "linear_compact: scale is absent and weight is i8, expected a scale for i8 and no other type");
  assert_int_equal(hark_tensor_describe(context, HARK_BF16, 2, shape, &inputs[1]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 1, shape, &inputs[2]), HARK_OK);
  assert_int_equal(hark_op_linear_compact.infer(context, NULL, inputs, 3, &inferred), HARK_INVALID_ARGUMENT);
  assert_int_equal(hark_tensor_describe(context, HARK_I8, 2, shape, &inputs[1]), HARK_OK);
  assert_int_equal(hark_op_linear_compact.infer(context, NULL, inputs, 3, &inferred), HARK_OK);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_are_those_of_the_definition),
      cmocka_unit_test(ties_go_to_the_even_integer),
      cmocka_unit_test(the_longest_sum_is_exact),
      cmocka_unit_test(halves_are_widened_exactly),
      cmocka_unit_test(rows_are_rounded_to_the_nearest_step),
      cmocka_unit_test(scales_belong_to_integers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_identities.c - bare identities of attention that experiments measure too: permuted tokens, heads summed or concatenated, the two
 * kernels on the sphere; here with calls of attention that have several heads and an independent layout. */
#include <hark/attention.h>
#include <hark/random.h>
#include <math.h>
#include <string.h>

#include "lab/attention.h"
#include "lab/matrix.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { HEADS = 3, LENGTH = 11, DIM = 4, WIDTH = HEADS * DIM };

static hark_context *context;
static hark_lab *lab;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_lab_destroy(&lab);
  test_setup_close(context);
  return 0;
}

static void normal_numbers(uint64_t seed, int64_t count, double *out) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  hark_random_normal(&stream, 0, count, out);
}

/* [1, HEADS, LENGTH, dim] of rows that hold the heads side by side. */
static hark_tensor side_by_side(double *rows, int64_t dim) {
  const int64_t shape[] = {1, HEADS, LENGTH, dim}, strides[] = {0, dim, HEADS * dim, 1};
  hark_tensor tensor;
  assert_fine(context, hark_tensor_wrap(context, rows, HARK_F64, 4, shape, strides, &tensor));
  return tensor;
}

/* All heads in one call of the operator; q, k, v and out [LENGTH, WIDTH]. */
static void attend_all_heads(hark_attention_desc desc, double *q, double *k, double *v, double *out) {
  hark_attention_plan *plan;
  _Alignas(64) static unsigned char saved[1 << 16], workspace[1 << 16];
  desc.type = HARK_F64;
  desc.batch = 1;
  desc.heads = HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = desc.value_dim = DIM;
  desc.forward_only = true;
  assert_fine(context, hark_attention_plan_create(context, &desc, &plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  assert_true(sizes.saved <= sizeof saved && sizes.forward_workspace <= sizeof workspace);
  hark_attention_args args = {.struct_size = sizeof args, .saved = saved, .workspace = workspace};
  args.query = side_by_side(q, DIM);
  args.key = side_by_side(k, DIM);
  args.value = side_by_side(v, DIM);
  args.out = side_by_side(out, DIM);
  assert_fine(context, hark_attention_forward(context, plan, &args));
  hark_attention_plan_destroy(context, &plan);
}

static void permuted_tokens_give_permuted_outputs(void **state) {
  (void)state;
  static const int order[LENGTH] = {4, 9, 0, 7, 2, 10, 5, 1, 8, 3, 6};
  double rows[3][LENGTH * WIDTH], moved[3][LENGTH * WIDTH], out[LENGTH * WIDTH], permuted[LENGTH * WIDTH];
  for (int part = 0; part < 3; part++) {
    normal_numbers(1 + (uint64_t)part, (int64_t)LENGTH * WIDTH, rows[part]);
    for (int l = 0; l < LENGTH; l++) memcpy(moved[part] + l * WIDTH, rows[part] + order[l] * WIDTH, WIDTH * sizeof(double));
  }
  for (int kernel = 0; kernel < 2; kernel++) {
    hark_attention_desc desc = hark_attention_desc_default();
    desc.kernel = kernel == 0 ? HARK_KERNEL_EXP : HARK_KERNEL_RBF;
    desc.sigma = kernel == 0 ? 0 : 1.3;
    attend_all_heads(desc, rows[0], rows[1], rows[2], out);
    attend_all_heads(desc, moved[0], moved[1], moved[2], permuted);
    for (int l = 0; l < LENGTH; l++)
      for (int c = 0; c < WIDTH; c++) assert_true(fabs(permuted[l * WIDTH + c] - out[order[l] * WIDTH + c]) < 1e-14);
  }
}

/* (B.2) = (B.3): the operator's heads side by side, projected, against hark_lab_sum_heads() with W^v_i = W~_i W^o_i. */
static void concatenated_heads_are_summed_heads(void **state) {
  (void)state;
  double x[LENGTH * WIDTH], small[3][WIDTH * WIDTH], parts[3][LENGTH * WIDTH], out[LENGTH * WIDTH], projected[LENGTH * WIDTH];
  double project[WIDTH * WIDTH], sum[LENGTH * WIDTH];
  hark_lab_heads heads = {.heads = HEADS, .width = WIDTH, .head_dim = DIM, .length = LENGTH};
  const hark_attention_desc desc = hark_attention_desc_default();
  normal_numbers(1, (int64_t)LENGTH * WIDTH, x);
  normal_numbers(2, (int64_t)WIDTH * WIDTH, project);
  assert_fine(context, hark_lab_make_heads(lab, &heads));
  for (int part = 0; part < 3; part++) {
    normal_numbers(3 + (uint64_t)part, (int64_t)WIDTH * WIDTH, small[part]);
    for (int i = 0; i < WIDTH * WIDTH; i++) small[part][i] /= WIDTH;
    hark_lab_multiply(LENGTH, WIDTH, WIDTH, x, small[part], parts[part]);
  }
  attend_all_heads(desc, parts[0], parts[1], parts[2], out);
  hark_lab_multiply(LENGTH, WIDTH, WIDTH, out, project, projected);
  for (int h = 0; h < HEADS; h++)
    for (int r = 0; r < WIDTH; r++) {
      for (int c = 0; c < DIM; c++) {
        heads.query[(h * WIDTH + r) * DIM + c] = small[0][r * WIDTH + h * DIM + c];
        heads.key[(h * WIDTH + r) * DIM + c] = small[1][r * WIDTH + h * DIM + c];
      }
      for (int c = 0; c < WIDTH; c++)
        for (int k = 0; k < DIM; k++)
          heads.value[(h * WIDTH + r) * WIDTH + c] += small[2][r * WIDTH + h * DIM + k] * project[(h * DIM + k) * WIDTH + c];
    }
  assert_fine(context, hark_lab_sum_heads(context, &desc, &heads, x, sum));
  for (int i = 0; i < LENGTH * WIDTH; i++) assert_true(fabs(sum[i] - projected[i]) < 1e-12);
}

static void kernels_are_one_on_the_sphere(void **state) {
  (void)state;
  double rows[3][LENGTH * WIDTH], exponential[LENGTH * WIDTH], gaussian[LENGTH * WIDTH];
  hark_attention_desc desc = hark_attention_desc_default();
  for (int part = 0; part < 3; part++) normal_numbers(1 + (uint64_t)part, (int64_t)LENGTH * WIDTH, rows[part]);
  for (int part = 0; part < 2; part++)
    for (int row = 0; row < LENGTH * HEADS; row++) {
      double *const one = rows[part] + row * DIM;
      const double length = sqrt(one[0] * one[0] + one[1] * one[1] + one[2] * one[2] + one[3] * one[3]);
      for (int c = 0; c < DIM; c++) one[c] /= length;
    }
  desc.scale = 1 / 0.3;
  attend_all_heads(desc, rows[0], rows[1], rows[2], exponential);
  desc.scale = 0;
  desc.kernel = HARK_KERNEL_RBF;
  desc.sigma = sqrt(0.3);
  attend_all_heads(desc, rows[0], rows[1], rows[2], gaussian);
  for (int i = 0; i < LENGTH * WIDTH; i++) assert_true(fabs(exponential[i] - gaussian[i]) < 1e-13);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(permuted_tokens_give_permuted_outputs),
                                     cmocka_unit_test(concatenated_heads_are_summed_heads),
                                     cmocka_unit_test(kernels_are_one_on_the_sphere)};
  return cmocka_run_group_tests(tests, begin, end);
}

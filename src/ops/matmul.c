/* matmul.c - c = op(a) op(b) on the last two dimensions.
 *
 * op(a) [batch, m, k], op(b) [batch, k, n], c [batch, m, n]; op transposes the last two dimensions where the attributes say so; the leading
 * dimensions of a and b are equal, batch is their product. 2 batch m n k operations forward, twice that backward.
 * Gradients, with A = op(a), B = op(b): dA = dc B^T, dB = A^T dc.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_A, INPUT_B, INPUT_COUNT };

typedef struct extents {
  int64_t batch, m, n, k;
} extents;

static extents extents_of(const hark_matmul_attributes *attributes, const hark_tensor *a, const hark_tensor *b) {
  const int64_t *last_a = &a->shape[a->rank - 2], *last_b = &b->shape[b->rank - 2];
  extents e = {.batch = 1};
  for (int i = 0; i + 2 < a->rank; i++) e.batch *= a->shape[i];
  e.m = last_a[attributes->transpose_a ? 1 : 0];
  e.k = last_a[attributes->transpose_a ? 0 : 1];
  e.n = last_b[attributes->transpose_b ? 0 : 1];
  return e;
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"a", HARK_F32, 2, HARK_MAX_RANK}, {"b", HARK_F32, 2, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_matmul, rules, attributes, inputs, input_count));
  const hark_matmul_attributes *transposes = attributes;
  const hark_tensor *a = &inputs[INPUT_A], *b = &inputs[INPUT_B];
  const extents e = extents_of(transposes, a, b);
  bool fits = a->rank == b->rank && b->shape[b->rank - (transposes->transpose_b ? 1 : 2)] == e.k;
  for (int i = 0; fits && i + 2 < a->rank; i++) fits = a->shape[i] == b->shape[i];
  if (!fits) {
    char text_a[HARK_SHAPE_TEXT_BYTES], text_b[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "matmul: a%s has %s and b%s has %s, expected equal leading dimensions and an inner dimension of %" PRId64,
                     transposes->transpose_a ? " (transposed)" : "", hark_shape_text(a, text_a, sizeof text_a),
                     transposes->transpose_b ? " (transposed)" : "", hark_shape_text(b, text_b, sizeof text_b), e.k);
  }
  int64_t shape[HARK_MAX_RANK];
  for (int i = 0; i + 2 < a->rank; i++) shape[i] = a->shape[i];
  shape[a->rank - 2] = e.m;
  shape[a->rank - 1] = e.n;
  return hark_tensor_describe(context, a->type, a->rank, shape, &out->outputs[0]);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_matmul_attributes *attributes = call->attributes;
  const hark_tensor *a = &call->inputs[INPUT_A], *b = &call->inputs[INPUT_B];
  const extents e = extents_of(attributes, a, b);
  const hark_definition_product product = {.transpose_a = attributes->transpose_a,
                                           .transpose_b = attributes->transpose_b,
                                           .batch = e.batch,
                                           .m = e.m,
                                           .n = e.n,
                                           .k = e.k,
                                           .a = hark_numbers_of(a),
                                           .b = hark_numbers_of(b),
                                           .c = hark_numbers_of(&call->outputs[0])};
  hark_product(context, &product);
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_matmul_attributes *attributes = call->attributes;
  const bool transpose_a = attributes->transpose_a, transpose_b = attributes->transpose_b;
  const extents e = extents_of(attributes, &call->inputs[INPUT_A], &call->inputs[INPUT_B]);
  const hark_numbers a = hark_numbers_of(&call->inputs[INPUT_A]), b = hark_numbers_of(&call->inputs[INPUT_B]);
  const hark_numbers dc = hark_numbers_of(&call->output_gradients[0]);
  const hark_numbers da = hark_gradient_of(call, INPUT_A), db = hark_gradient_of(call, INPUT_B);
  if (da.data != NULL) {
    hark_definition_product product = {.batch = e.batch, .c = da};
    if (transpose_a) { /* c = a^T B: da[k, m] = B[k, n] dc^T[n, m] */
      product.transpose_a = transpose_b, product.transpose_b = true;
      product.m = e.k, product.n = e.m, product.k = e.n;
      product.a = b, product.b = dc;
    } else { /* c = a B: da[m, k] = dc[m, n] B^T[n, k] */
      product.transpose_b = !transpose_b;
      product.m = e.m, product.n = e.k, product.k = e.n;
      product.a = dc, product.b = b;
    }
    hark_product(context, &product);
  }
  if (db.data != NULL) {
    hark_definition_product product = {.batch = e.batch, .c = db};
    if (transpose_b) { /* c = A b^T: db[n, k] = dc^T[n, m] A[m, k] */
      product.transpose_a = true, product.transpose_b = transpose_a;
      product.m = e.n, product.n = e.k, product.k = e.m;
      product.a = dc, product.b = a;
    } else { /* c = A b: db[k, n] = A^T[k, m] dc[m, n] */
      product.transpose_a = !transpose_a;
      product.m = e.k, product.n = e.n, product.k = e.m;
      product.a = a, product.b = dc;
    }
    hark_product(context, &product);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  const extents e = extents_of(attributes, &inputs[INPUT_A], &inputs[INPUT_B]);
  const double product = 2.0 * (double)e.batch * (double)e.m * (double)e.n * (double)e.k;
  return is_backward ? 2 * product : product;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)input_count;
  const extents e = extents_of(attributes, &inputs[INPUT_A], &inputs[INPUT_B]);
  return hark_max(e.k, hark_max(e.m, e.n));
}

static const hark_matmul_attributes plain = {false, false}, left = {true, false}, right = {false, true}, both = {true, true};

static const hark_sample samples[] = {
    {"one", &plain, {{HARK_F32, 2, {1, 1}, -2, 2}, {HARK_F32, 2, {1, 1}, -2, 2}}},
    {"plain", &plain, {{HARK_F32, 2, {7, 13}, -2, 2}, {HARK_F32, 2, {13, 5}, -2, 2}}},
    {"transpose_a", &left, {{HARK_F32, 2, {13, 7}, -2, 2}, {HARK_F32, 2, {13, 5}, -2, 2}}},
    {"transpose_b", &right, {{HARK_F32, 2, {7, 13}, -2, 2}, {HARK_F32, 2, {5, 13}, -2, 2}}},
    {"transpose_both", &both, {{HARK_F32, 2, {13, 7}, -2, 2}, {HARK_F32, 2, {5, 13}, -2, 2}}},
    {"batch", &plain, {{HARK_F32, 4, {2, 3, 17, 19}, -2, 2}, {HARK_F32, 4, {2, 3, 19, 23}, -2, 2}}},
    {"batch_transpose_both", &both, {{HARK_F32, 3, {3, 33, 35}, -2, 2}, {HARK_F32, 3, {3, 37, 33}, -2, 2}}},
    {"outer", &plain, {{HARK_F32, 2, {41, 1}, -2, 2}, {HARK_F32, 2, {1, 29}, -2, 2}}},
    {"inner", &plain, {{HARK_F32, 2, {1, 257}, -2, 2}, {HARK_F32, 2, {257, 1}, -2, 2}}},
    {"long_sums", &plain, {{HARK_F32, 3, {2, 20, 400}, -2, 2}, {HARK_F32, 3, {2, 400, 530}, -2, 2}}},
    {"long_sums_transposed", &both, {{HARK_F32, 3, {2, 400, 20}, -2, 2}, {HARK_F32, 3, {2, 530, 400}, -2, 2}}},
    {"tall", &right, {{HARK_F32, 2, {257, 64}, -2, 2}, {HARK_F32, 2, {65, 64}, -2, 2}}},
};

const hark_operator hark_op_matmul = {
    .name = "matmul",
    .formula = "c = op(a) op(b)",
    .attributes_size = sizeof(hark_matmul_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_A | 1u << INPUT_B,
    .backward_inputs = 1u << INPUT_A | 1u << INPUT_B,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

/* kernel_ridge_posterior.c - kernel ridge (CME) attention as an operator with its statistics of rows, all of which have gradients: the
 * posterior of a Gaussian process.
 *
 *     M = kappa(K, K) + lambda I + diag(noise) over the keys that query n sees
 *     out_n = V^T M^-1 kappa(K, q_n),  variance_n = kappa(q_n, q_n) - kappa(q_n, K) M^-1 kappa(K, q_n),  log_determinant_n = log det M
 *     quadratic_n = V_c^T M^-1 V_c for each column c of the values
 *
 * query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv] -> out [B, Lq, H*dv], variance and log_determinant [B, H, Lq], quadratic
 * [B, Lq, H*dv]. Functions: ridge_call.c. Mathematics: docs/mathematics/kernel-ridge.md.
 */
#include "ops/ridge_call.h"

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  return hark_ridge_call_infer(context, &hark_op_kernel_ridge_posterior, attributes, inputs, input_count, out);
}

#define DESC(...)                                                                                                                          \
  {                                                                                                                                        \
    .struct_size = sizeof(hark_attention_desc), .normalisation = HARK_NORMALISATION_CME, .has_dvariance = 1, .has_dlog_determinant = 1,    \
    .has_dquadratic = 1, __VA_ARGS__                                                                                                       \
  }

static const hark_attention_desc one_desc = DESC(.batch = 1, .heads = 1, .query_length = 1, .key_length = 1, .head_dim = 1, .ridge = 1);
static const hark_attention_desc plain_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 5, .key_length = 7, .head_dim = 3, .value_dim = 2, .ridge = 2);
static const hark_attention_desc causal_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 11, .key_length = 11, .head_dim = 4, .causal = true,
         .kernel = HARK_KERNEL_RBF, .has_ridge = true, .has_sigma = true, .has_log_kernel = true, .has_noise = 1);
static const hark_attention_desc unit_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 66, .key_length = 66, .head_dim = 4, .unit = true, .has_ridge = true);

static const hark_attention_desc ragged_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 23, .key_length = 29, .head_dim = 3, .value_dim = 2, .kernel = HARK_KERNEL_RBF, .sigma = 1,
         .has_noise = 1, .max_sequences = 3);

static const hark_kernel_ridge_attributes one = {.desc = &one_desc}, plain = {.desc = &plain_desc}, causal = {.desc = &causal_desc},
                                          unit = {.desc = &unit_desc}, ragged = {.desc = &ragged_desc};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 3, {1, 1, 1}, -1, 1}, {HARK_F32, 3, {1, 1, 1}, -1, 1}, {HARK_F32, 3, {1, 1, 1}, -1, 1}}},
    {"plain", &plain, {{HARK_F32, 3, {2, 5, 6}, -1, 1}, {HARK_F32, 3, {2, 7, 6}, -1, 1}, {HARK_F32, 3, {2, 7, 4}, -1, 1}}},
    {"causal",
     &causal,
     {{HARK_F32, 3, {2, 11, 16}, -1, 1},
      {HARK_F32, 3, {2, 11, 8}, -1, 1},
      {HARK_F32, 3, {2, 11, 8}, -1, 1},
      {HARK_F32, 1, {4}, 0, 1},
      {HARK_F32, 1, {1}, 0, 0.5},
      {HARK_F32, 2, {1, 11}, -0.1, 0},
      {HARK_F32, 3, {2, 4, 11}, 0.5, 1}}},
    {"unit",
     &unit,
     {{HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 1, {1}, 0, 1}}},
    {"ragged",
     &ragged,
     {{HARK_F32, 2, {23, 6}, -1, 1},
      {HARK_F32, 2, {29, 6}, -1, 1},
      {HARK_F32, 2, {29, 4}, -1, 1},
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_F32, 3, {1, 2, 29}, 0.5, 1},
      {HARK_I64, 1, {4}, 22, 0},
      {HARK_I64, 1, {4}, 29, 1}}},
};

const hark_operator hark_op_kernel_ridge_posterior = {
    .name = "kernel_ridge_posterior",
    .formula =
        "out = value^T M^-1 kappa(K, query), variance = kappa(query, query) - kappa(query, K) M^-1 kappa(K, query), log det M, quadratic = "
        "value^T M^-1 value with M = "
        "kappa(K, K) + lambda I + diag(noise), lambda = exp(log_ridge)",
    .attributes_size = sizeof(hark_kernel_ridge_attributes),
    .input_minimum = HARK_RIDGE_CALL_VALUE + 1,
    .input_maximum = HARK_RIDGE_CALL_INPUTS,
    .output_count = HARK_RIDGE_CALL_OUTPUTS,
    .differentiable = (1u << HARK_RIDGE_CALL_QUERY_OFFSETS) - 1,
    .backward_inputs = (1u << HARK_RIDGE_CALL_INPUTS) - 1,
    .infer = infer,
    .forward = hark_ridge_call_forward,
    .backward = hark_ridge_call_backward,
    .operations = hark_ridge_call_operations,
    .terms = hark_ridge_call_terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

/* kernel_ridge.c - kernel ridge (CME) attention as an operator: out = V^T (kappa(K,K) + lambda I)^-1 kappa(K,q), on [B, L, H*d]
 * activations.
 *
 * Like attention.c it only rearranges: heads are strided views, and the plan does the work. Ridge and sigma are given as logarithms and so
 * positive by construction: lambda = e^x, so dx = lambda dlambda. query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv] -> out [B,
 * Lq, H*dv]. Mathematics: docs/mathematics/kernel-ridge.md.
 */
#include <inttypes.h>
#include <math.h>

#include "ops/attention_plan.h"
#include "ops/heads.h"
#include "ops/segments.h"

enum { INPUT_QUERY, INPUT_KEY, INPUT_VALUE, INPUT_LOG_RIDGE, INPUT_LOG_SIGMA, INPUT_LOG_KERNEL, INPUT_COUNT };
enum { SLOT_RIDGE, SLOT_SIGMA, SLOT_RIDGE_GRADIENT, SLOT_SIGMA_GRADIENT, SLOTS };

static hark_attention_source source_of(const hark_kernel_ridge_attributes *attributes) {
  return (hark_attention_source){.record = "kernel_ridge", .plan = attributes->plan, .desc = attributes->desc};
}

static hark_status find_plan(hark_context *context, const void *attributes, hark_type type, hark_attention_place *place,
                             const hark_attention_plan **out) {
  const hark_attention_source source = source_of(attributes);
  return hark_attention_source_plan(context, &source, type, place, out);
}

static hark_status check_shape(hark_context *context, const char *name, const hark_tensor *tensor, int64_t batch, int64_t length,
                               int64_t width) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->shape[0] == batch && tensor->shape[1] == length && tensor->shape[2] == width) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "kernel_ridge: %s has %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "]", name,
                   hark_shape_text(tensor, text, sizeof text), batch, length, width);
}

static hark_status check_vector(hark_context *context, const char *name, const hark_tensor *tensor, int64_t heads) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->shape[0] == heads || tensor->shape[0] == 1) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "kernel_ridge: %s has %s, expected [%" PRId64 "] or [1]", name,
                   hark_shape_text(tensor, text, sizeof text), heads);
}

/* Bytes of one vector of heads at the beginning of the workspace. */
static size_t slot_bytes(const hark_attention_desc *desc) { return hark_align_up((size_t)desc->heads * sizeof(double)); }

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"query", HARK_F32, 3, 3},     {"key", HARK_F32, 3, 3},
                                                     {"value", HARK_F32, 3, 3},     {"log_ridge", HARK_F32, 1, 1},
                                                     {"log_sigma", HARK_F32, 1, 1}, {"log_kernel", HARK_F32, 2, 2}};
  HARK_TRY(hark_check_inputs(context, &hark_op_kernel_ridge, rules, attributes, inputs, input_count));
  const hark_tensor *query = &inputs[INPUT_QUERY];
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, attributes, query->type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  if (desc->normalisation != HARK_NORMALISATION_CME)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_ridge: the plan's normalisation is softmax, expected cme");
  const int64_t batch = query->shape[0], queries = query->shape[1], keys = inputs[INPUT_KEY].shape[1];
  HARK_TRY(check_shape(context, "query", query, batch, queries, desc->heads * desc->head_dim));
  HARK_TRY(check_shape(context, "key", &inputs[INPUT_KEY], batch, keys, desc->key_heads * desc->head_dim));
  HARK_TRY(check_shape(context, "value", &inputs[INPUT_VALUE], batch, keys, desc->key_heads * desc->value_dim));
  if (hark_has_input(inputs, input_count, INPUT_LOG_RIDGE))
    HARK_TRY(check_vector(context, "log_ridge", &inputs[INPUT_LOG_RIDGE], desc->heads));
  if (hark_has_input(inputs, input_count, INPUT_LOG_SIGMA))
    HARK_TRY(check_vector(context, "log_sigma", &inputs[INPUT_LOG_SIGMA], desc->heads));
  if (batch > desc->batch || queries > desc->query_length || keys > desc->key_length)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "kernel_ridge: batch %" PRId64 ", query length %" PRId64 ", key length %" PRId64
                     ", expected at most the plan's %" PRId64 ", %" PRId64 ", %" PRId64,
                     batch, queries, keys, desc->batch, desc->query_length, desc->key_length);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int64_t out_shape[] = {batch, queries, desc->heads * desc->value_dim};
  HARK_TRY(hark_tensor_describe(context, query->type, 3, out_shape, &out->outputs[0]));
  HARK_TRY(hark_size_add(context, SLOTS * slot_bytes(desc), sizes.forward_workspace, &out->forward_workspace));
  if (desc->forward_only) return HARK_OK;
  return hark_size_add(context, SLOTS * slot_bytes(desc), sizes.backward_workspace, &out->backward_workspace);
}

/* A slot as a vector like `like`; absent when `like` is absent. */
static hark_tensor slot_like(const hark_call *call, const hark_attention_desc *desc, int slot, const hark_tensor *like) {
  if (!hark_present(like)) return (hark_tensor){0};
  hark_tensor vector = *like;
  vector.data = (char *)call->workspace + (size_t)slot * slot_bytes(desc);
  vector.owned_bytes = 0;
  return vector;
}

/* e^x of an input, in a slot. */
static hark_tensor exponential(const hark_call *call, const hark_attention_desc *desc, int input, int slot) {
  if (!hark_has_input(call->inputs, call->input_count, input)) return (hark_tensor){0};
  const hark_tensor *from = &call->inputs[input];
  const hark_tensor vector = slot_like(call, desc, slot, from);
  const hark_numbers x = hark_numbers_of(from), y = hark_numbers_of(&vector);
  for (int64_t i = 0; i < from->shape[0]; i++) hark_put(y, i, exp(hark_get(x, i)));
  return vector;
}

static hark_attention_args arguments(const hark_call *call, const hark_attention_desc *desc) {
  const hark_kernel_ridge_attributes *attributes = call->attributes;
  const hark_tensor absent = {0};
  return (hark_attention_args){.struct_size = sizeof(hark_attention_args),
                               .query = hark_split_heads(&call->inputs[INPUT_QUERY], desc->heads),
                               .key = hark_split_heads(&call->inputs[INPUT_KEY], desc->key_heads),
                               .value = hark_split_heads(&call->inputs[INPUT_VALUE], desc->key_heads),
                               .out = hark_split_heads(&call->outputs[0], desc->heads),
                               .log_kernel = call->input_count > INPUT_LOG_KERNEL ? call->inputs[INPUT_LOG_KERNEL] : absent,
                               .ridge = exponential(call, desc, INPUT_LOG_RIDGE, SLOT_RIDGE),
                               .sigma = exponential(call, desc, INPUT_LOG_SIGMA, SLOT_SIGMA),
                               .segments = attributes->segments,
                               .report = attributes->report,
                               .workspace = (char *)call->workspace + SLOTS * slot_bytes(desc)};
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->attributes, call->inputs[INPUT_QUERY].type, &place, &plan));
  const hark_attention_args args = arguments(call, hark_attention_plan_desc(plan));
  return hark_attention_forward(context, plan, &args);
}

/* lambda = e^x: dx = lambda dlambda. */
static void pass_logarithm(const hark_call *call, int input, const hark_tensor *natural, const hark_tensor *gradient) {
  if (!hark_present(gradient)) return;
  const hark_numbers y = hark_numbers_of(natural), dy = hark_numbers_of(gradient), dx = hark_gradient_of(call, input);
  for (int64_t i = 0; i < gradient->shape[0]; i++) hark_give(dx, i, hark_get(dy, i) * hark_get(y, i));
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->attributes, call->inputs[INPUT_QUERY].type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  hark_attention_args args = arguments(call, desc);
  /* the backward reads only the shape of `out`: the gradient's tensor is used instead */
  args.out = args.dout = hark_split_heads(&call->output_gradients[0], desc->heads);
  args.dquery = hark_split_heads(&call->input_gradients[INPUT_QUERY], desc->heads);
  args.dkey = hark_split_heads(&call->input_gradients[INPUT_KEY], desc->key_heads);
  args.dvalue = hark_split_heads(&call->input_gradients[INPUT_VALUE], desc->key_heads);
  args.dlog_kernel = call->input_gradients[INPUT_LOG_KERNEL];
  args.dridge = slot_like(call, desc, SLOT_RIDGE_GRADIENT, &call->input_gradients[INPUT_LOG_RIDGE]);
  args.dsigma = slot_like(call, desc, SLOT_SIGMA_GRADIENT, &call->input_gradients[INPUT_LOG_SIGMA]);
  static const unsigned bits[] = {[INPUT_QUERY] = HARK_ACCUMULATE_QUERY,
                                  [INPUT_KEY] = HARK_ACCUMULATE_KEY,
                                  [INPUT_VALUE] = HARK_ACCUMULATE_VALUE,
                                  [INPUT_LOG_KERNEL] = HARK_ACCUMULATE_LOG_KERNEL};
  for (int i = 0; i < INPUT_COUNT; i++)
    if (call->accumulate >> i & 1u) args.accumulate |= bits[i];
  HARK_TRY(hark_attention_backward(context, plan, &args));
  pass_logarithm(call, INPUT_LOG_RIDGE, &args.ridge, &args.dridge);
  pass_logarithm(call, INPUT_LOG_SIGMA, &args.sigma, &args.dsigma);
  return HARK_OK;
}

/* False: the attributes are invalid, and infer refuses them. */
static bool sizes_of_call(const hark_kernel_ridge_attributes *attributes, const hark_tensor *inputs, hark_attention_desc *desc) {
  const hark_attention_source source = source_of(attributes);
  if (hark_attention_source_desc(NULL, &source, desc) != HARK_OK) return false;
  desc->batch = inputs[INPUT_QUERY].shape[0];
  desc->query_length = inputs[INPUT_QUERY].shape[1];
  desc->key_length = inputs[INPUT_KEY].shape[1];
  return true;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, &desc)) return 0;
  return hark_segment_operations(&desc, ((const hark_kernel_ridge_attributes *)attributes)->segments, is_backward);
}

/* Sums of n terms. Their errors are magnified by solves whose condition is, with a ridge of 1 or more, at most n times the kernel's largest
 * value. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)input_count;
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, &desc)) return 1;
  return desc.batch * desc.heads * desc.key_length * (desc.key_length + desc.head_dim + hark_max(desc.value_dim, desc.head_dim));
}

#define DESC(...)                                                                                                                          \
  { .struct_size = sizeof(hark_attention_desc), .normalisation = HARK_NORMALISATION_CME, __VA_ARGS__ }

static const hark_attention_desc one_desc = DESC(.batch = 1, .heads = 1, .query_length = 1, .key_length = 1, .head_dim = 1, .ridge = 1);
static const hark_attention_desc plain_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 5, .key_length = 7, .head_dim = 3, .value_dim = 2, .ridge = 2);
static const hark_attention_desc causal_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 11, .key_length = 11, .head_dim = 4, .causal = true,
         .kernel = HARK_KERNEL_RBF, .has_ridge = true, .has_sigma = true, .has_log_kernel = true);
static const hark_attention_desc unit_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 66, .key_length = 66, .head_dim = 4, .causal = true, .unit = true, .has_ridge = true);

static const hark_kernel_ridge_attributes one = {.desc = &one_desc}, plain = {.desc = &plain_desc}, causal = {.desc = &causal_desc},
                                          unit = {.desc = &unit_desc};

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
      {HARK_F32, 2, {1, 11}, -0.1, 0}}},
    {"unit",
     &unit,
     {{HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 3, {1, 66, 8}, -1, 1}, {HARK_F32, 1, {1}, 0, 1}}},
};

const hark_operator hark_op_kernel_ridge = {
    .name = "kernel_ridge",
    .formula = "out = value^T (kappa(K, K) + lambda I)^-1 kappa(K, query), lambda = exp(log_ridge)",
    .attributes_size = sizeof(hark_kernel_ridge_attributes),
    .input_minimum = INPUT_VALUE + 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = (1u << INPUT_COUNT) - 1,
    .backward_inputs = (1u << INPUT_COUNT) - 1,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

/* ridge_call.c - see ridge_call.h.
 *
 * Like attention.c it only rearranges: heads are strided views, and the plan does the work. Ridge and sigma are given as logarithms and so
 * positive by construction: lambda = e^x, so dx = lambda dlambda.
 */
#include "ops/ridge_call.h"

#include <inttypes.h>
#include <math.h>

#include "ops/attention_plan.h"
#include "ops/heads.h"
#include "ops/segments.h"

enum { SLOT_RIDGE, SLOT_SIGMA, SLOT_RIDGE_GRADIENT, SLOT_SIGMA_GRADIENT, SLOTS };

static hark_attention_source source_of(const hark_operator *op, const hark_kernel_ridge_attributes *attributes) {
  return (hark_attention_source){.record = op->name, .plan = attributes->plan, .desc = attributes->desc};
}

static hark_status find_plan(hark_context *context, const hark_operator *op, const void *attributes, hark_type type,
                             hark_attention_place *place, const hark_attention_plan **out) {
  const hark_attention_source source = source_of(op, attributes);
  return hark_attention_source_plan(context, &source, type, place, out);
}

static hark_status check_vector(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor,
                                int64_t heads) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->shape[0] == heads || tensor->shape[0] == 1) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected [%" PRId64 "] or [1]", op->name, name,
                   hark_shape_text(tensor, text, sizeof text), heads);
}

static bool is_ragged(const hark_tensor *inputs, int input_count) {
  return hark_has_input(inputs, input_count, HARK_RIDGE_CALL_QUERY_OFFSETS) ||
         hark_has_input(inputs, input_count, HARK_RIDGE_CALL_KEY_OFFSETS);
}

/* Activations, contiguous, as [B, H, L, d]. */
static hark_tensor split_heads(const hark_tensor *given, bool ragged, int64_t heads) {
  const hark_tensor rows = hark_activations(given, ragged);
  return hark_split_heads(&rows, heads);
}

/* Bytes of one vector of heads at the beginning of the workspace. */
static size_t slot_bytes(const hark_attention_desc *desc) { return hark_align_up((size_t)desc->heads * sizeof(double)); }

/* A record with statistics needs a plan whose backward takes their gradients. */
static hark_status check_plan(hark_context *context, const hark_operator *op, const hark_attention_desc *desc) {
  if (desc->normalisation != HARK_NORMALISATION_CME)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: the plan's normalisation is softmax, expected cme", op->name);
  if (op->output_count == 1 || desc->forward_only) return HARK_OK;
  const char *const missing = desc->has_dvariance == 0          ? "has_dvariance"
                              : desc->has_dlog_determinant == 0 ? "has_dlog_determinant"
                              : desc->has_dquadratic == 0       ? "has_dquadratic"
                                                                : NULL;
  if (missing == NULL) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: the plan was made without %s, expected 1 unless it is forward_only", op->name,
                   missing);
}

/* A ragged batch has offsets of queries and keys, for equally many sequences; other batches have activations of rank 3. */
static hark_status check_division(hark_context *context, const hark_operator *op, const hark_tensor *inputs, int input_count) {
  static const char *const names[] = {"query", "key", "value"};
  const hark_tensor *queries = &inputs[HARK_RIDGE_CALL_QUERY_OFFSETS], *keys = &inputs[HARK_RIDGE_CALL_KEY_OFFSETS];
  char text[HARK_SHAPE_TEXT_BYTES];
  for (int i = HARK_RIDGE_CALL_QUERY; !is_ragged(inputs, input_count) && i <= HARK_RIDGE_CALL_VALUE; i++)
    if (inputs[i].rank != 3)
      return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected rank 3 without offsets", op->name, names[i],
                       hark_shape_text(&inputs[i], text, sizeof text));
  if (!is_ragged(inputs, input_count)) return HARK_OK;
  if (!hark_has_input(inputs, input_count, HARK_RIDGE_CALL_KEY_OFFSETS) || !hark_present(queries))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is absent, expected both query_offsets and key_offsets", op->name,
                     hark_present(queries) ? "key_offsets" : "query_offsets");
  HARK_TRY(hark_check_offsets_shape(context, op, "query_offsets", queries));
  return hark_check_vector(context, op, "key_offsets", keys, queries->shape[0], "as many as query_offsets");
}

static hark_status check_shapes(hark_context *context, const hark_operator *op, const hark_attention_desc *desc, const hark_tensor *given,
                                int input_count) {
  const bool ragged = is_ragged(given, input_count);
  hark_tensor inputs[HARK_RIDGE_CALL_INPUTS] = {{0}};
  for (int i = 0; i < input_count; i++) inputs[i] = i <= HARK_RIDGE_CALL_VALUE ? hark_activations(&given[i], ragged) : given[i];
  const int64_t batch = inputs[HARK_RIDGE_CALL_QUERY].shape[0], queries = inputs[HARK_RIDGE_CALL_QUERY].shape[1];
  const int64_t keys = inputs[HARK_RIDGE_CALL_KEY].shape[1];
  const struct {
    const char *name;
    int64_t shape[3];
  } expected[] = {[HARK_RIDGE_CALL_QUERY] = {"query", {batch, queries, desc->heads * desc->head_dim}},
                  [HARK_RIDGE_CALL_KEY] = {"key", {batch, keys, desc->key_heads * desc->head_dim}},
                  [HARK_RIDGE_CALL_VALUE] = {"value", {batch, keys, desc->key_heads * desc->value_dim}},
                  [HARK_RIDGE_CALL_NOISE] = {"noise", {batch, desc->heads, keys}}};
  for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
    if (expected[i].name != NULL && hark_has_input(inputs, input_count, (int)i))
      HARK_TRY(hark_check_shape(context, op, expected[i].name, &inputs[i], 3, expected[i].shape));
  if (hark_has_input(inputs, input_count, HARK_RIDGE_CALL_LOG_RIDGE))
    HARK_TRY(check_vector(context, op, "log_ridge", &inputs[HARK_RIDGE_CALL_LOG_RIDGE], desc->heads));
  if (hark_has_input(inputs, input_count, HARK_RIDGE_CALL_LOG_SIGMA))
    HARK_TRY(check_vector(context, op, "log_sigma", &inputs[HARK_RIDGE_CALL_LOG_SIGMA], desc->heads));
  if (batch > desc->batch || queries > desc->query_length || keys > desc->key_length)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "%s: batch %" PRId64 ", query length %" PRId64 ", key length %" PRId64 ", expected at most the plan's %" PRId64
                     ", %" PRId64 ", %" PRId64,
                     op->name, batch, queries, keys, desc->batch, desc->query_length, desc->key_length);
  return HARK_OK;
}

hark_status hark_ridge_call_infer(hark_context *context, const hark_operator *op, const void *attributes, const hark_tensor *inputs,
                                  int input_count, hark_inferred *out) {
  static const hark_input_rule rules[HARK_RIDGE_CALL_INPUTS] = {{"query", HARK_F32, 2, HARK_MAX_RANK},
                                                                {"key", HARK_F32, 2, HARK_MAX_RANK},
                                                                {"value", HARK_F32, 2, HARK_MAX_RANK},
                                                                {"log_ridge", HARK_F32, 1, 1},
                                                                {"log_sigma", HARK_F32, 1, 1},
                                                                {"log_kernel", HARK_F32, 2, 2},
                                                                {"noise", HARK_F32, 3, 3},
                                                                {"query_offsets", HARK_I64, 1, 1},
                                                                {"key_offsets", HARK_I64, 1, 1}};
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(check_division(context, op, inputs, input_count));
  const hark_tensor rows = hark_activations(&inputs[HARK_RIDGE_CALL_QUERY], is_ragged(inputs, input_count)), *const query = &rows;
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, op, attributes, query->type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  HARK_TRY(check_plan(context, op, desc));
  HARK_TRY(check_shapes(context, op, desc, inputs, input_count));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  hark_tensor shape = inputs[HARK_RIDGE_CALL_QUERY];
  shape.shape[shape.rank - 1] = desc->heads * desc->value_dim;
  const int64_t statistic_shape[] = {query->shape[0], desc->heads, query->shape[1]};
  for (int i = 0; i < op->output_count; i++) {
    const bool row = i == HARK_RIDGE_CALL_OUT || i == HARK_RIDGE_CALL_QUADRATIC;
    HARK_TRY(hark_tensor_describe(context, query->type, row ? shape.rank : 3, row ? shape.shape : statistic_shape, &out->outputs[i]));
  }
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
  const bool ragged = is_ragged(call->inputs, call->input_count);
  return (hark_attention_args){
      .struct_size = sizeof(hark_attention_args),
      .query = split_heads(&call->inputs[HARK_RIDGE_CALL_QUERY], ragged, desc->heads),
      .key = split_heads(&call->inputs[HARK_RIDGE_CALL_KEY], ragged, desc->key_heads),
      .value = split_heads(&call->inputs[HARK_RIDGE_CALL_VALUE], ragged, desc->key_heads),
      .query_offsets = ragged ? call->inputs[HARK_RIDGE_CALL_QUERY_OFFSETS].data : NULL,
      .key_offsets = ragged ? call->inputs[HARK_RIDGE_CALL_KEY_OFFSETS].data : NULL,
      .sequences = ragged ? call->inputs[HARK_RIDGE_CALL_QUERY_OFFSETS].shape[0] - 1 : 0,
      .out = split_heads(&call->outputs[0], ragged, desc->heads),
      .log_kernel = call->input_count > HARK_RIDGE_CALL_LOG_KERNEL ? call->inputs[HARK_RIDGE_CALL_LOG_KERNEL] : absent,
      .noise = call->input_count > HARK_RIDGE_CALL_NOISE ? call->inputs[HARK_RIDGE_CALL_NOISE] : absent,
      .ridge = exponential(call, desc, HARK_RIDGE_CALL_LOG_RIDGE, SLOT_RIDGE),
      .sigma = exponential(call, desc, HARK_RIDGE_CALL_LOG_SIGMA, SLOT_SIGMA),
      .segments = attributes->segments,
      .report = attributes->report,
      .workspace = (char *)call->workspace + SLOTS * slot_bytes(desc)};
}

hark_status hark_ridge_call_forward(hark_context *context, const hark_call *call) {
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->op, call->attributes, call->inputs[HARK_RIDGE_CALL_QUERY].type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  hark_attention_args args = arguments(call, desc);
  if (call->op->output_count > 1) {
    args.variance = call->outputs[HARK_RIDGE_CALL_VARIANCE];
    args.log_determinant = call->outputs[HARK_RIDGE_CALL_LOG_DETERMINANT];
    args.quadratic = split_heads(&call->outputs[HARK_RIDGE_CALL_QUADRATIC], is_ragged(call->inputs, call->input_count), desc->heads);
  }
  return hark_attention_forward(context, plan, &args);
}

/* lambda = e^x: dx = lambda dlambda. */
static void pass_logarithm(const hark_call *call, int input, const hark_tensor *natural, const hark_tensor *gradient) {
  if (!hark_present(gradient)) return;
  const hark_numbers y = hark_numbers_of(natural), dy = hark_numbers_of(gradient), dx = hark_gradient_of(call, input);
  for (int64_t i = 0; i < gradient->shape[0]; i++) hark_give(dx, i, hark_get(dy, i) * hark_get(y, i));
}

hark_status hark_ridge_call_backward(hark_context *context, const hark_call *call) {
  bool statistics = false;
  for (int i = 1; i < call->op->output_count; i++) statistics = statistics || hark_present(&call->output_gradients[i]);
  if (!statistics && hark_gradient_is_absent(call)) return HARK_OK;
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->op, call->attributes, call->inputs[HARK_RIDGE_CALL_QUERY].type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  hark_attention_args args = arguments(call, desc);
  /* the backward reads only the shape of `out`: the gradient's tensor is used instead */
  const bool ragged = is_ragged(call->inputs, call->input_count);
  args.out = args.dout = split_heads(&call->output_gradients[0], ragged, desc->heads);
  args.dquery = split_heads(&call->input_gradients[HARK_RIDGE_CALL_QUERY], ragged, desc->heads);
  args.dkey = split_heads(&call->input_gradients[HARK_RIDGE_CALL_KEY], ragged, desc->key_heads);
  args.dvalue = split_heads(&call->input_gradients[HARK_RIDGE_CALL_VALUE], ragged, desc->key_heads);
  if (call->op->output_count > 1) {
    args.dvariance = call->output_gradients[HARK_RIDGE_CALL_VARIANCE];
    args.dlog_determinant = call->output_gradients[HARK_RIDGE_CALL_LOG_DETERMINANT];
    args.dquadratic = split_heads(&call->output_gradients[HARK_RIDGE_CALL_QUADRATIC], ragged, desc->heads);
  }
  args.dnoise = call->input_gradients[HARK_RIDGE_CALL_NOISE];
  args.dlog_kernel = call->input_gradients[HARK_RIDGE_CALL_LOG_KERNEL];
  args.dridge = slot_like(call, desc, SLOT_RIDGE_GRADIENT, &call->input_gradients[HARK_RIDGE_CALL_LOG_RIDGE]);
  args.dsigma = slot_like(call, desc, SLOT_SIGMA_GRADIENT, &call->input_gradients[HARK_RIDGE_CALL_LOG_SIGMA]);
  static const unsigned bits[] = {[HARK_RIDGE_CALL_QUERY] = HARK_ACCUMULATE_QUERY,
                                  [HARK_RIDGE_CALL_KEY] = HARK_ACCUMULATE_KEY,
                                  [HARK_RIDGE_CALL_VALUE] = HARK_ACCUMULATE_VALUE,
                                  [HARK_RIDGE_CALL_LOG_KERNEL] = HARK_ACCUMULATE_LOG_KERNEL,
                                  [HARK_RIDGE_CALL_NOISE] = HARK_ACCUMULATE_NOISE};
  for (int i = 0; i <= HARK_RIDGE_CALL_NOISE; i++)
    if (call->accumulate >> i & 1u) args.accumulate |= bits[i];
  HARK_TRY(hark_attention_backward(context, plan, &args));
  pass_logarithm(call, HARK_RIDGE_CALL_LOG_RIDGE, &args.ridge, &args.dridge);
  pass_logarithm(call, HARK_RIDGE_CALL_LOG_SIGMA, &args.sigma, &args.dsigma);
  return HARK_OK;
}

/* False: the attributes are invalid, and infer refuses them. */
static bool sizes_of_call(const hark_kernel_ridge_attributes *attributes, const hark_tensor *inputs, int input_count,
                          hark_attention_desc *desc) {
  const hark_attention_source source = source_of(&hark_op_kernel_ridge, attributes); /* no message is made */
  if (hark_attention_source_desc(NULL, &source, desc) != HARK_OK) return false;
  const bool ragged = is_ragged(inputs, input_count);
  const hark_tensor query = hark_activations(&inputs[HARK_RIDGE_CALL_QUERY], ragged),
                    key = hark_activations(&inputs[HARK_RIDGE_CALL_KEY], ragged);
  const int64_t sequences = ragged ? hark_max(1, inputs[HARK_RIDGE_CALL_QUERY_OFFSETS].shape[0] - 1) : 1;
  desc->batch = ragged ? sequences : query.shape[0]; /* as if sequences had equal lengths */
  desc->query_length = hark_ceil_div(query.shape[1], sequences);
  desc->key_length = hark_ceil_div(key.shape[1], sequences);
  return true;
}

double hark_ridge_call_operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, input_count, &desc)) return 0;
  return hark_segment_operations(&desc, ((const hark_kernel_ridge_attributes *)attributes)->segments, is_backward);
}

/* Sums of n terms. Their errors are magnified by solves whose condition is, with a ridge of 1 or more, at most n times the kernel's largest
 * value. */
int64_t hark_ridge_call_terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, input_count, &desc)) return 1;
  return desc.batch * desc.heads * desc.key_length * (desc.key_length + desc.head_dim + hark_max(desc.value_dim, desc.head_dim));
}

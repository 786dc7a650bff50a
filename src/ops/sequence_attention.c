/* sequence_attention.c - see sequence_attention.h. */
#include "ops/sequence_attention.h"

#include <inttypes.h>

#include "attention/spread.h"
#include "backend/attention_algorithm.h"
#include "ops/definition.h"
#include "ops/heads.h"
#include "ops/segments.h"

enum {
  QUERY = HARK_SEQUENCE_ATTENTION_QUERY,
  KEY = HARK_SEQUENCE_ATTENTION_KEY,
  VALUE = HARK_SEQUENCE_ATTENTION_VALUE,
  LOG_KERNEL = HARK_SEQUENCE_ATTENTION_LOG_KERNEL,
  HIERARCHICAL_BIAS = HARK_SEQUENCE_ATTENTION_HIERARCHICAL_BIAS,
  INPUTS = HARK_SEQUENCE_ATTENTION_INPUTS
};
enum { SAVED_LOG_SUM_EXP };

static const hark_sequence_attention_attributes *attributes_of(const void *attributes) { return attributes; }

/* Where the rows are; `first` has room for a group of any size. */
static hark_spread spread_of(const hark_sequence *sequence, void *memory, int64_t first[HARK_GROUP_MOST + 1]) {
  const int size = hark_group_size(sequence->group);
  for (int rank = 0; rank < size; rank++) first[rank] = hark_sequence_rows(sequence, rank).first;
  first[size] = sequence->total;
  return (hark_spread){.group = sequence->group, .total = sequence->total, .first = first, .memory = memory};
}

static hark_tensor input_of(const hark_tensor *inputs, int input_count, int input) {
  return input < input_count ? inputs[input] : (hark_tensor){0};
}

/* What both directions read. */
static hark_attention_args arguments(const hark_sequence_attention_attributes *a, const hark_tensor *inputs, int input_count) {
  const hark_attention_desc *desc = hark_attention_plan_desc(a->plan);
  const hark_attention_args args = {.struct_size = sizeof args,
                                    .query = hark_split_heads(&inputs[QUERY], desc->heads),
                                    .key = hark_split_heads(&inputs[KEY], desc->key_heads),
                                    .value = hark_split_heads(&inputs[VALUE], desc->key_heads),
                                    .log_kernel = input_of(inputs, input_count, LOG_KERNEL),
                                    .hierarchical_bias = input_of(inputs, input_count, HIERARCHICAL_BIAS),
                                    .dropout = a->dropout};
  return args;
}

static hark_status refuse(hark_context *context, const char *name, const hark_tensor *x, int64_t rows, int64_t width) {
  char text[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(context, HARK_SHAPE_MISMATCH, "sequence_attention: %s has %s, expected [B, %" PRId64 ", %" PRId64 "]", name,
                   hark_shape_text(x, text, sizeof text), rows, width);
}

static hark_status check_rows(hark_context *context, const hark_sequence_attention_attributes *a, const hark_tensor *inputs) {
  static const char *const names[] = {"query", "key", "value"};
  const hark_attention_desc *desc = hark_attention_plan_desc(a->plan);
  const int64_t widths[] = {desc->heads * desc->head_dim, desc->key_heads * desc->head_dim, desc->key_heads * desc->value_dim};
  const int64_t rows = hark_sequence_own_rows(a->sequence).count;
  if (inputs[QUERY].shape[0] > desc->batch)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "sequence_attention: batch %" PRId64 ", expected at most the plan's %" PRId64,
                     inputs[QUERY].shape[0], desc->batch);
  for (int i = QUERY; i <= VALUE; i++)
    if (inputs[i].shape[0] != inputs[QUERY].shape[0] || inputs[i].shape[1] != rows || inputs[i].shape[2] != widths[i])
      return refuse(context, names[i], &inputs[i], rows, widths[i]);
  return HARK_OK;
}

/* Contiguous rows [B, rows, width] of the plan's largest batch, without memory. */
static hark_tensor rows_of(const hark_attention_desc *desc, int64_t rows, int64_t width) {
  return (hark_tensor){.type = desc->type, .rank = 3, .shape = {desc->batch, rows, width}, .stride = {rows * width, width, 1}};
}

hark_status hark_sequence_attention_measure(hark_context *context, const hark_sequence *sequence, hark_attention_plan *plan) {
  int64_t first[HARK_GROUP_MOST + 1];
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  const int64_t rows = hark_sequence_own_rows(sequence).count;
  const hark_spread spread = spread_of(sequence, NULL, first);
  const hark_sequence_attention_attributes attributes = {.plan = plan, .sequence = sequence};
  const hark_tensor inputs[] = {rows_of(desc, rows, desc->heads * desc->head_dim), rows_of(desc, rows, desc->key_heads * desc->head_dim),
                                rows_of(desc, rows, desc->key_heads * desc->value_dim)};
  const hark_tensor out = rows_of(desc, rows, desc->heads * desc->value_dim);
  hark_attention_args args = arguments(&attributes, inputs, VALUE + 1);
  args.out = hark_split_heads(&out, desc->heads);
  args.log_sum_exp =
      (hark_tensor){.type = desc->type, .rank = 3, .shape = {desc->batch, desc->heads, rows}, .stride = {desc->heads * rows, rows, 1}};
  plan->keeps_rows = true;
  HARK_TRY(hark_attention_spread_bytes(context, plan, &args, false, &spread, &plan->spread_forward));
  if (desc->forward_only) return HARK_OK;
  args.dout = args.out;
  args.dquery = args.query;
  args.dkey = args.key;
  args.dvalue = args.value;
  args.accumulate = HARK_ACCUMULATE_QUERY | HARK_ACCUMULATE_KEY | HARK_ACCUMULATE_VALUE;
  return hark_attention_spread_bytes(context, plan, &args, true, &spread, &plan->spread_backward);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUTS] = {{"query", HARK_F32, 3, 3},
                                                {"key", HARK_F32, 3, 3},
                                                {"value", HARK_F32, 3, 3},
                                                {"log_kernel", HARK_F32, 2, 2},
                                                {"hierarchical_bias", HARK_F32, 2, 2}};
  const hark_sequence_attention_attributes *a = attributes_of(attributes);
  HARK_TRY(hark_check_inputs(context, &hark_op_sequence_attention, rules, attributes, inputs, input_count));
  HARK_TRY(check_rows(context, a, inputs));
  const hark_attention_desc *desc = hark_attention_plan_desc(a->plan);
  const int64_t batch = inputs[QUERY].shape[0], rows = inputs[QUERY].shape[1];
  const int64_t out_shape[] = {batch, rows, desc->heads * desc->value_dim}, row_shape[] = {batch, desc->heads, rows};
  HARK_TRY(hark_tensor_describe(context, inputs[QUERY].type, 3, out_shape, &out->outputs[0]));
  HARK_TRY(hark_tensor_describe(context, inputs[QUERY].type, 3, row_shape, &out->saved[SAVED_LOG_SUM_EXP]));
  out->forward_workspace = a->plan->spread_forward;
  out->backward_workspace = a->plan->spread_backward;
  return HARK_OK;
}

static hark_attention_args arguments_of_call(const hark_call *call) {
  const hark_sequence_attention_attributes *a = attributes_of(call->attributes);
  hark_attention_args args = arguments(a, call->inputs, call->input_count);
  args.out = hark_split_heads(&call->outputs[0], hark_attention_plan_desc(a->plan)->heads);
  args.log_sum_exp = call->saved[SAVED_LOG_SUM_EXP];
  return args;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  int64_t first[HARK_GROUP_MOST + 1];
  const hark_sequence_attention_attributes *a = attributes_of(call->attributes);
  const hark_spread spread = spread_of(a->sequence, call->workspace, first);
  const hark_attention_args args = arguments_of_call(call);
  return hark_attention_spread_forward(context, a->plan, &args, &spread);
}

static unsigned accumulate_bits(unsigned inputs) {
  static const unsigned bits[INPUTS] = {HARK_ACCUMULATE_QUERY, HARK_ACCUMULATE_KEY, HARK_ACCUMULATE_VALUE, HARK_ACCUMULATE_LOG_KERNEL,
                                        HARK_ACCUMULATE_HIERARCHICAL_BIAS};
  unsigned result = 0;
  for (int i = 0; i < INPUTS; i++)
    if (inputs >> i & 1u) result |= bits[i];
  return result;
}

static hark_status backward(hark_context *context, const hark_call *call) {
  int64_t first[HARK_GROUP_MOST + 1];
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const hark_sequence_attention_attributes *a = attributes_of(call->attributes);
  const hark_attention_desc *desc = hark_attention_plan_desc(a->plan);
  const hark_spread spread = spread_of(a->sequence, call->workspace, first);
  hark_attention_args args = arguments_of_call(call);
  args.dout = hark_split_heads(&call->output_gradients[0], desc->heads);
  args.dquery = hark_split_heads(&call->input_gradients[QUERY], desc->heads);
  args.dkey = hark_split_heads(&call->input_gradients[KEY], desc->key_heads);
  args.dvalue = hark_split_heads(&call->input_gradients[VALUE], desc->key_heads);
  args.dlog_kernel = input_of(call->input_gradients, call->input_count, LOG_KERNEL);
  args.dhierarchical_bias = input_of(call->input_gradients, call->input_count, HIERARCHICAL_BIAS);
  args.accumulate = accumulate_bits(call->accumulate);
  return hark_attention_spread_backward(context, a->plan, &args, &spread);
}

/* Of the whole sequence, by its rows. */
static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_sequence_attention_attributes *a = attributes_of(attributes);
  hark_attention_desc desc = *hark_attention_plan_desc(a->plan);
  (void)input_count;
  desc.batch = inputs[QUERY].shape[0];
  desc.query_length = desc.key_length = a->sequence->total;
  return hark_segment_operations(&desc, NULL, is_backward) * (double)inputs[QUERY].shape[1] / (double)a->sequence->total;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)inputs, (void)input_count;
  return attributes_of(attributes)->sequence->total;
}

const hark_operator hark_op_sequence_attention = {.name = "sequence_attention",
                                                  .formula = "out = softmax(scale q k^T + terms) v of spread rows",
                                                  .attributes_size = sizeof(hark_sequence_attention_attributes),
                                                  .input_minimum = VALUE + 1,
                                                  .input_maximum = INPUTS,
                                                  .output_count = 1,
                                                  .differentiable = (1u << INPUTS) - 1,
                                                  .backward_inputs = (1u << INPUTS) - 1,
                                                  .backward_outputs = 1u << 0,
                                                  .infer = infer,
                                                  .forward = forward,
                                                  .backward = backward,
                                                  .operations = operations,
                                                  .terms = terms};

/* attention.c - attention as an operator: out = softmax(scale q k^T + terms) v, on [B, L, H*d] activations.
 *
 * The operator only rearranges: heads are strided views of the activations, so nothing is copied, and the plan does the work. With a
 * descriptor instead of a plan, the plan is made on the stack for every call. query [B, Lq, H*d], key [B, Lk, Hkv*d], value [B, Lk, Hkv*dv]
 * -> out [B, Lq, H*dv]; With offsets, the inputs are packed rows with any leading dimensions: the sequences of a ragged batch, whose bounds
 * may be results of the same step. Mathematics: docs/mathematics/attention.md.
 */
#include <inttypes.h>

#include "attention/layer.h"
#include "core/floating_point.h"
#include "ops/attention_plan.h"
#include "ops/heads.h"
#include "ops/in_place.h"
#include "ops/segments.h"

enum {
  INPUT_QUERY,
  INPUT_KEY,
  INPUT_VALUE,
  INPUT_BIAS,
  INPUT_LOG_KERNEL,
  INPUT_FORGET,
  INPUT_MASK,
  INPUT_HIERARCHICAL_BIAS,
  INPUT_QUERY_MASK,
  INPUT_QUERY_OFFSETS,
  INPUT_KEY_OFFSETS,
  INPUT_CONTEXTUAL,
  INPUT_CHUNK_STARTS,
  INPUT_COUNT
};
enum { SAVED_LOG_SUM_EXP, SAVED_PLAN, SAVED_PRODUCTS = HARK_SAVED_PRODUCTS };

static hark_attention_source source_of(const hark_attention_attributes *attributes) {
  return (hark_attention_source){.record = "attention", .plan = attributes->plan, .desc = attributes->desc, .own = &attributes->own};
}

static hark_status find_plan(hark_context *context, const void *attributes, hark_type type, hark_attention_place *place,
                             const hark_attention_plan **out) {
  const hark_attention_source source = source_of(attributes);
  return hark_attention_source_plan(context, &source, type, place, out);
}

static bool is_ragged(const hark_tensor *inputs, int input_count) {
  return hark_has_input(inputs, input_count, INPUT_QUERY_OFFSETS) || hark_has_input(inputs, input_count, INPUT_KEY_OFFSETS);
}

/* Activations, contiguous, as [B, H, L, d]. */
static hark_tensor split_heads(const hark_tensor *given, bool ragged, int64_t heads) {
  const hark_tensor rows = hark_activations(given, ragged);
  return hark_split_heads(&rows, heads);
}

/* Gates [B, Lk, H], contiguous, as [B, H, Lk]. */
static hark_tensor turn_gates(const hark_tensor *tensor) {
  if (!hark_present(tensor)) return (hark_tensor){0};
  const int64_t length = tensor->shape[1], heads = tensor->shape[2];
  return (hark_tensor){.data = tensor->data,
                       .type = tensor->type,
                       .rank = 3,
                       .shape = {tensor->shape[0], heads, length},
                       .stride = {length * heads, 1, heads}};
}

static hark_status check_shape(hark_context *context, const char *name, const hark_tensor *tensor, int64_t batch, int64_t length,
                               int64_t heads, int64_t dim) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->shape[0] == batch && tensor->shape[1] == length && tensor->shape[2] == heads * dim) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH,
                   "attention: %s has %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "] with %" PRId64 " heads of %" PRId64 " features",
                   name, hark_shape_text(tensor, text, sizeof text), batch, length, heads * dim, heads, dim);
}

/* A ragged batch has offsets of queries and keys, for equally many sequences, and no other division. */
static hark_status check_division(hark_context *context, const hark_tensor *inputs, int input_count) {
  const hark_tensor *queries = &inputs[INPUT_QUERY_OFFSETS], *keys = &inputs[INPUT_KEY_OFFSETS];
  if (input_count <= INPUT_KEY_OFFSETS || !hark_present(queries) || !hark_present(keys)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is absent, expected both query_offsets and key_offsets",
                     hark_present(queries) ? "key_offsets" : "query_offsets");
  }
  HARK_TRY(hark_check_offsets_shape(context, &hark_op_attention, "query_offsets", queries));
  return hark_check_vector(context, &hark_op_attention, "key_offsets", keys, queries->shape[0], "as many as query_offsets");
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"query", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"key", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"value", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"attention_bias", HARK_F32, 1, 4},
                                                     {"log_kernel", HARK_F32, 2, 2},
                                                     {"forget", HARK_F32, 3, 3},
                                                     {"mask", HARK_U8, 4, 4},
                                                     {"hierarchical_bias", HARK_F32, 2, 2},
                                                     {"query_mask", HARK_U8, 2, 2},
                                                     {"query_offsets", HARK_I64, 1, 1},
                                                     {"key_offsets", HARK_I64, 1, 1},
                                                     {"contextual", HARK_F32, 3, 3},
                                                     {"chunk_starts", HARK_U8, 2, 2}};
  HARK_TRY(hark_check_inputs(context, &hark_op_attention, rules, attributes, inputs, input_count));
  const bool ragged = is_ragged(inputs, input_count);
  if (ragged) HARK_TRY(check_division(context, inputs, input_count));
  for (int i = INPUT_QUERY; !ragged && i <= INPUT_VALUE; i++) {
    char text[HARK_SHAPE_TEXT_BYTES];
    if (inputs[i].rank == 3) continue;
    return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %s has %s, expected rank 3 without offsets", rules[i].name,
                     hark_shape_text(&inputs[i], text, sizeof text));
  }
  const hark_tensor rows[] = {hark_activations(&inputs[INPUT_QUERY], ragged), hark_activations(&inputs[INPUT_KEY], ragged),
                              hark_activations(&inputs[INPUT_VALUE], ragged)};
  const hark_tensor *query = &rows[INPUT_QUERY];
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, attributes, query->type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  const int64_t batch = query->shape[0], queries = query->shape[1], keys = rows[INPUT_KEY].shape[1];
  HARK_TRY(check_shape(context, "query", query, batch, queries, desc->heads, desc->head_dim));
  HARK_TRY(check_shape(context, "key", &rows[INPUT_KEY], batch, keys, desc->key_heads, desc->head_dim));
  HARK_TRY(check_shape(context, "value", &rows[INPUT_VALUE], batch, keys, desc->key_heads, desc->value_dim));
  if (hark_has_input(inputs, input_count, INPUT_FORGET)) {
    HARK_TRY(check_shape(context, "forget", &inputs[INPUT_FORGET], batch, keys, desc->heads, 1));
  }
  if (batch > desc->batch || queries > desc->query_length || keys > desc->key_length) {
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "attention: batch %" PRId64 ", query length %" PRId64 ", key length %" PRId64 ", expected at most the plan's %" PRId64
                     ", %" PRId64 ", %" PRId64,
                     batch, queries, keys, desc->batch, desc->query_length, desc->key_length);
  }
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int64_t row_shape[] = {batch, desc->heads, queries};
  hark_tensor shape = inputs[INPUT_QUERY];
  shape.shape[shape.rank - 1] = desc->heads * desc->value_dim;
  HARK_TRY(hark_tensor_describe(context, query->type, shape.rank, shape.shape, &out->outputs[0]));
  HARK_TRY(hark_tensor_describe(context, query->type, 3, row_shape, &out->saved[SAVED_LOG_SUM_EXP]));
  if (sizes.saved > 0) {
    const int64_t bytes = (int64_t)sizes.saved;
    HARK_TRY(hark_tensor_describe(context, HARK_U8, 1, &bytes, &out->saved[SAVED_PLAN]));
  }
  out->forward_workspace = sizes.forward_workspace;
  out->backward_workspace = sizes.backward_workspace;
  return HARK_OK;
}

/* In a ragged batch, a bias with one number per key is a bias by key. */
static hark_tensor bias_of(const hark_tensor *given, const hark_tensor *keys, bool ragged) {
  const int64_t count = hark_row_count(keys);
  if (!ragged || !hark_present(given) || given->rank == 4 || hark_tensor_count(given) != count) return *given;
  return (hark_tensor){.data = given->data, .type = given->type, .rank = 4, .shape = {1, 1, 1, count}, .stride = {count, count, count, 1}};
}

static hark_attention_args arguments(const hark_call *call, const hark_attention_desc *desc) {
  const hark_attention_attributes *attributes = call->attributes;
  const hark_tensor absent = {0};
  const bool ragged = is_ragged(call->inputs, call->input_count);
  hark_attention_args args = {
      .struct_size = sizeof args,
      .query = split_heads(&call->inputs[INPUT_QUERY], ragged, desc->heads),
      .key = split_heads(&call->inputs[INPUT_KEY], ragged, desc->key_heads),
      .value = split_heads(&call->inputs[INPUT_VALUE], ragged, desc->key_heads),
      .out = split_heads(&call->outputs[0], ragged, desc->heads),
      .log_sum_exp = call->saved[SAVED_LOG_SUM_EXP],
      .key_lengths = attributes->key_lengths,
      .segments = attributes->segments,
      .query_offsets = ragged ? call->inputs[INPUT_QUERY_OFFSETS].data : NULL,
      .key_offsets = ragged ? call->inputs[INPUT_KEY_OFFSETS].data : NULL,
      .sequences = ragged ? call->inputs[INPUT_QUERY_OFFSETS].shape[0] - 1 : 0,
      .has_query_offset = attributes->has_query_offset,
      .query_offset = attributes->query_offset,
      .attention_bias = call->input_count > INPUT_BIAS ? bias_of(&call->inputs[INPUT_BIAS], &call->inputs[INPUT_KEY], ragged) : absent,
      .log_kernel = call->input_count > INPUT_LOG_KERNEL ? call->inputs[INPUT_LOG_KERNEL] : absent,
      .forget = call->input_count > INPUT_FORGET ? turn_gates(&call->inputs[INPUT_FORGET]) : absent,
      .mask = call->input_count > INPUT_MASK ? call->inputs[INPUT_MASK] : absent,
      .hierarchical_bias = call->input_count > INPUT_HIERARCHICAL_BIAS ? call->inputs[INPUT_HIERARCHICAL_BIAS] : absent,
      .query_mask = call->input_count > INPUT_QUERY_MASK ? call->inputs[INPUT_QUERY_MASK] : absent,
      .contextual = call->input_count > INPUT_CONTEXTUAL ? call->inputs[INPUT_CONTEXTUAL] : absent,
      .chunk_starts = call->input_count > INPUT_CHUNK_STARTS ? call->inputs[INPUT_CHUNK_STARTS] : absent,
      .dropout = attributes->dropout,
      .saved = hark_present(&call->saved[SAVED_PLAN]) ? call->saved[SAVED_PLAN].data : NULL,
      .workspace = call->workspace,
  };
  return args;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->attributes, call->inputs[INPUT_QUERY].type, &place, &plan));
  const hark_attention_args args = arguments(call, hark_attention_plan_desc(plan));
  return hark_attention_forward(context, plan, &args);
}

/* The bits of hark_call.accumulate are indices of inputs; those of hark_attention_args have names. */
static unsigned accumulate_bits(unsigned inputs) {
  static const struct {
    int input;
    unsigned bit;
  } bits[] = {{INPUT_QUERY, HARK_ACCUMULATE_QUERY},
              {INPUT_KEY, HARK_ACCUMULATE_KEY},
              {INPUT_VALUE, HARK_ACCUMULATE_VALUE},
              {INPUT_BIAS, HARK_ACCUMULATE_BIAS},
              {INPUT_LOG_KERNEL, HARK_ACCUMULATE_LOG_KERNEL},
              {INPUT_FORGET, HARK_ACCUMULATE_FORGET},
              {INPUT_HIERARCHICAL_BIAS, HARK_ACCUMULATE_HIERARCHICAL_BIAS},
              {INPUT_CONTEXTUAL, HARK_ACCUMULATE_CONTEXTUAL}};
  unsigned result = 0;
  for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
    if (inputs >> bits[i].input & 1u) result |= bits[i].bit;
  }
  return result;
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  hark_attention_place place;
  const hark_attention_plan *plan;
  HARK_TRY(find_plan(context, call->attributes, call->inputs[INPUT_QUERY].type, &place, &plan));
  const hark_attention_desc *desc = hark_attention_plan_desc(plan);
  const bool ragged = is_ragged(call->inputs, call->input_count);
  hark_attention_args args = arguments(call, desc);
  args.dout = split_heads(&call->output_gradients[0], ragged, desc->heads);
  args.dquery = split_heads(&call->input_gradients[INPUT_QUERY], ragged, desc->heads);
  args.dkey = split_heads(&call->input_gradients[INPUT_KEY], ragged, desc->key_heads);
  args.dvalue = split_heads(&call->input_gradients[INPUT_VALUE], ragged, desc->key_heads);
  args.dattention_bias = bias_of(&call->input_gradients[INPUT_BIAS], &call->inputs[INPUT_KEY], ragged);
  args.dlog_kernel = call->input_gradients[INPUT_LOG_KERNEL];
  args.dforget = turn_gates(&call->input_gradients[INPUT_FORGET]);
  args.dhierarchical_bias = call->input_gradients[INPUT_HIERARCHICAL_BIAS];
  args.dcontextual = call->input_gradients[INPUT_CONTEXTUAL];
  args.accumulate = accumulate_bits(call->accumulate);
  return hark_attention_backward_of(context, plan, &args, call->saved[SAVED_PRODUCTS].data);
}

unsigned hark_gradients_in_place(const hark_context *context, const hark_operator *op, const void *attributes) {
  if (op != &hark_op_attention) return op->gradient_in_place;
  const hark_attention_plan *plan = ((const hark_attention_attributes *)attributes)->plan;
  if (plan == NULL || plan->desc.query_length <= context->rows.most || !plan->algorithm->gradients_in_place) return 0;
  return 1u << INPUT_QUERY | 1u << INPUT_KEY | 1u << INPUT_VALUE;
}

bool hark_reads_products(const hark_context *context, const hark_operator *op, const void *attributes, const hark_tensor *output,
                         hark_tensor *products) {
  if (op != &hark_op_attention || hark_gradients_in_place(context, op, attributes) == 0) return false;
  const hark_attention_plan *plan = ((const hark_attention_attributes *)attributes)->plan;
  const int64_t rows = output->shape[1], heads = plan->desc.heads;
  if (plan->algorithm->products == NULL || output->rank != 3 || output->shape[0] != 1) return false;
  *products = (hark_tensor){.type = output->type, .rank = 3, .shape = {1, heads, rows}, .stride = {heads * rows, rows, 1}};
  return true;
}

void hark_write_products(hark_context *context, const void *attributes, const hark_tensor *output, const hark_tensor *gradient,
                         int64_t first, const hark_tensor *products) {
  const hark_attention_plan *plan = ((const hark_attention_attributes *)attributes)->plan;
  const hark_tensor out = split_heads(output, false, plan->desc.heads), dout = split_heads(gradient, false, plan->desc.heads);
  hark_floating_point before;
  hark_backend_enter(context);
  hark_floating_point_hold(&before);
  plan->algorithm->products(context, &dout, &out, (float *)products->data + first, products->shape[2]);
  hark_floating_point_leave(&before);
  hark_backend_leave(context);
}

/* False: the attributes are invalid, and infer refuses them. */
static bool sizes_of_call(const hark_attention_attributes *attributes, const hark_tensor *inputs, int input_count,
                          hark_attention_desc *desc) {
  const hark_attention_source source = source_of(attributes);
  if (hark_attention_source_desc(NULL, &source, desc) != HARK_OK) return false;
  const bool ragged = is_ragged(inputs, input_count);
  const hark_tensor query = hark_activations(&inputs[INPUT_QUERY], ragged), key = hark_activations(&inputs[INPUT_KEY], ragged);
  desc->batch = query.shape[0];
  desc->query_length = query.shape[1];
  desc->key_length = key.shape[1];
  return true;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const int64_t *segments = ((const hark_attention_attributes *)attributes)->segments;
  const int64_t met = ((const hark_attention_attributes *)attributes)->keys_of_a_query;
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, input_count, &desc)) return 0;
  if (met > 0 && is_ragged(inputs, input_count)) desc.key_length = hark_min(met, desc.key_length);
  return hark_segment_operations(&desc, segments, is_backward);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  hark_attention_desc desc;
  if (!sizes_of_call(attributes, inputs, input_count, &desc)) return 1;
  const int64_t group = desc.key_heads == 0 ? 1 : desc.heads / desc.key_heads, pairs = desc.query_length * desc.key_length;
  int64_t longest = hark_max(hark_max(desc.head_dim, desc.value_dim), hark_max(desc.key_length, group * desc.query_length));
  if (hark_has_input(inputs, input_count, INPUT_BIAS)) {
    const int64_t entries = desc.batch * desc.heads * pairs;
    longest = hark_max(longest, entries / hark_max(1, hark_tensor_count(&inputs[INPUT_BIAS])));
  }
  if (hark_has_input(inputs, input_count, INPUT_LOG_KERNEL)) {
    const int64_t sharing = desc.batch * desc.heads / hark_max(1, inputs[INPUT_LOG_KERNEL].shape[0]);
    longest = hark_max(longest, 2 * sharing * hark_min(desc.query_length, desc.key_length)); /* two diagonals per distance */
  }
  if (hark_has_input(inputs, input_count, INPUT_HIERARCHICAL_BIAS)) { /* one diagonal of every block */
    const int64_t sharing = desc.batch * desc.heads / hark_max(1, inputs[INPUT_HIERARCHICAL_BIAS].shape[0]);
    longest = hark_max(longest, 2 * sharing * desc.query_length);
  }
  if (hark_has_input(inputs, input_count, INPUT_FORGET)) longest = hark_max(longest, pairs); /* all pairs on both sides of a gate */
  if (hark_has_input(inputs, input_count, INPUT_CONTEXTUAL)) {                               /* all pairs may be at one position */
    const int64_t sharing = desc.batch * desc.heads / hark_max(1, inputs[INPUT_CONTEXTUAL].shape[0]);
    longest = hark_max(longest, sharing * pairs);
  }
  return longest;
}

/* Zero members of a descriptor mean dense, exp and softmax; the type is the query's. */
#define DESC(...)                                                                                                                          \
  { .struct_size = sizeof(hark_attention_desc), __VA_ARGS__ }

static const hark_attention_desc plain_desc = DESC(.batch = 2, .heads = 2, .query_length = 5, .key_length = 7, .head_dim = 3);
static const hark_attention_desc one_desc = DESC(.batch = 1, .heads = 1, .query_length = 1, .key_length = 1, .head_dim = 1);
static const hark_attention_desc causal_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 67, .key_length = 67, .head_dim = 16, .value_dim = 5, .causal = true);
static const hark_attention_desc long_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 130, .key_length = 130, .head_dim = 64, .causal = true);
static const hark_attention_desc rbf_desc = DESC(.batch = 1, .heads = 2, .query_length = 9, .key_length = 11, .head_dim = 4,
                                                 .kernel = HARK_KERNEL_RBF, .sigma = 1.5, .has_bias = true);
static const hark_attention_desc window_desc = DESC(.batch = 1, .heads = 2, .query_length = 21, .key_length = 21, .head_dim = 8,
                                                    .structure = HARK_STRUCTURE_WINDOW, .window = 4, .has_log_kernel = true);
static const hark_attention_desc directed_desc = DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 70, .key_length = 67,
                                                      .head_dim = 8, .has_log_kernel = true, .directed_kernel = 1);
static const hark_attention_desc directed_window_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 21, .key_length = 21, .head_dim = 8, .structure = HARK_STRUCTURE_WINDOW, .window = 4,
         .has_log_kernel = true, .directed_kernel = 1);
static const hark_attention_desc directed_tree_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 45, .key_length = 45, .head_dim = 8, .has_log_kernel = true,
         .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 4, .has_hierarchical_bias = true, .directed_kernel = 1);
static const hark_attention_desc directed_exact_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 33, .key_length = 33, .head_dim = 4, .has_log_kernel = true,
         .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 4, .coarse_query = HARK_COARSE_QUERY_EXACT, .directed_kernel = 1);
static const hark_attention_desc picture_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 101, .key_length = 101, .head_dim = 8,
         .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 4, .grid_columns = 10);
static const hark_attention_desc forget_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 13, .key_length = 13, .head_dim = 4, .causal = true, .has_forget = true, .dropout = 0.25);
static const hark_attention_desc contextual_desc = DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 33, .key_length = 33,
                                                        .head_dim = 4, .causal = true, .contextual_positions = 9);
static const hark_attention_desc mask_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 6, .key_length = 8, .head_dim = 4, .has_mask = true, .has_bias = true);
static const hark_attention_desc segments_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 10, .key_length = 10, .head_dim = 4, .causal = true, .has_segments = true);
static const hark_attention_desc hierarchical_desc = DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 45, .key_length = 45,
                                                          .head_dim = 8, .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 4);
static const hark_attention_desc first_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 70, .key_length = 70, .head_dim = 16, .value_dim = 5, .causal = true,
         .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 16);
static const hark_attention_desc exact_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 33, .key_length = 33, .head_dim = 4, .causal = true, .dropout = 0.25,
         .has_log_kernel = true, .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 4, .coarse_query = HARK_COARSE_QUERY_EXACT,
         .has_hierarchical_bias = true);
static const hark_attention_desc linear_desc =
    DESC(.batch = 2, .heads = 2, .query_length = 21, .key_length = 21, .head_dim = 4, .has_mask = true,
         .structure = HARK_STRUCTURE_HIERARCHICAL, .hierarchy_block = 2, .partition = HARK_PARTITION_SIBLING,
         .interpolation = HARK_INTERPOLATION_LINEAR, .has_hierarchical_bias = true);

static const hark_attention_desc ragged_desc =
    DESC(.batch = 1, .heads = 2, .query_length = 24, .key_length = 19, .head_dim = 4, .value_dim = 3, .has_bias = true, .max_sequences = 4);

static const hark_attention_desc compressed_desc =
    DESC(.batch = 2, .heads = 4, .key_heads = 2, .query_length = 45, .key_length = 45, .head_dim = 8, .causal = true,
         .structure = HARK_STRUCTURE_COMPRESSED, .chunk = 1, .chunk_slots = 1, .selected_slots = 64, .has_chunk_starts = 1);

static const int64_t lengths[] = {4, 0}, ids[] = {3, 3, 3, 3, 5, -1, -1, 0, 0, 0};
static const hark_attention_attributes plain = {.desc = &plain_desc}, one = {.desc = &one_desc}, causal = {.desc = &causal_desc},
                                       longer = {.desc = &long_desc}, rbf = {.desc = &rbf_desc}, window = {.desc = &window_desc},
                                       padded = {.desc = &plain_desc, .key_lengths = lengths},
                                       shifted = {.desc = &forget_desc, .dropout = {.seed = 7, .layer_purpose = HARK_RANDOM_ATTENTION}},
                                       hierarchical = {.desc = &hierarchical_desc}, first = {.desc = &first_desc},
                                       exact = {.desc = &exact_desc, .dropout = {.seed = 7, .layer_purpose = HARK_RANDOM_ATTENTION}},
                                       linear = {.desc = &linear_desc}, compressed = {.desc = &compressed_desc},
                                       contextual = {.desc = &contextual_desc}, directed = {.desc = &directed_desc},
                                       directed_window = {.desc = &directed_window_desc}, directed_tree = {.desc = &directed_tree_desc},
                                       directed_exact = {.desc = &directed_exact_desc}, picture = {.desc = &picture_desc},
                                       masked = {.desc = &mask_desc}, segmented = {.desc = &segments_desc, .segments = ids},
                                       ragged_rows = {.desc = &ragged_desc, .keys_of_a_query = 5};

#define ROWS(length, width)                                                                                                                \
  { HARK_F32, 3, {2, length, width}, -1, 1 }
#define ABSENT                                                                                                                             \
  { .type = HARK_NONE }
#define ROW(length, width)                                                                                                                 \
  { HARK_F32, 3, {1, length, width}, -1, 1 }

static const hark_sample samples[] = {
    {"plain", &plain, {ROWS(5, 6), ROWS(7, 6), ROWS(7, 6)}},
    {"one_of_everything", &one, {ROW(1, 1), ROW(1, 1), ROW(1, 1)}},
    {"causal_grouped_heads", &causal, {ROWS(67, 64), ROWS(67, 32), ROWS(67, 10)}},
    {"causal_three_tiles", &longer, {ROW(130, 128), ROW(130, 128), ROW(130, 128)}},
    {"rbf_bias_by_key", &rbf, {ROW(9, 8), ROW(11, 8), ROW(11, 8), {HARK_F32, 4, {1, 2, 1, 11}, -1, 1}}},
    {"window_log_kernel", &window, {ROW(21, 16), ROW(21, 16), ROW(21, 16), ABSENT, {HARK_F32, 2, {1, 21}, -1, 0}}},
    {"directed_kernel", &directed, {ROWS(70, 32), ROWS(67, 16), ROWS(67, 16), ABSENT, {HARK_F32, 2, {4, 139}, -1, 0}}},
    {"window_directed_kernel", &directed_window, {ROWS(21, 16), ROWS(21, 16), ROWS(21, 16), ABSENT, {HARK_F32, 2, {1, 11}, -1, 0}}},
    {"hierarchical_directed_kernel",
     &directed_tree,
     {ROWS(45, 32), ROWS(45, 16), ROWS(45, 16), ABSENT, {HARK_F32, 2, {4, 127}, -1, 0}, ABSENT, ABSENT, {HARK_F32, 2, {1, 15}, -1, 1}}},
    {"hierarchical_exact_directed_kernel", &directed_exact, {ROW(33, 8), ROW(33, 8), ROW(33, 8), ABSENT, {HARK_F32, 2, {2, 127}, -1, 0}}},
    {"hierarchical_picture", &picture, {ROWS(101, 32), ROWS(101, 16), ROWS(101, 16)}},
    {"compressed_chunk_starts",
     &compressed,
     {ROWS(45, 32),
      ROWS(45, 16),
      ROWS(45, 16),
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      {HARK_U8, 2, {2, 45}, 0, 2}}},
    {"forget_dropout", &shifted, {ROWS(13, 8), ROWS(13, 8), ROWS(13, 8), ABSENT, ABSENT, {HARK_F32, 3, {2, 13, 2}, -1, 4}}},
    {"contextual_positions",
     &contextual,
     {ROWS(33, 16),
      ROWS(33, 8),
      ROWS(33, 8),
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      {HARK_F32, 3, {1, 9, 4}, -1, 1}}},
    {"lengths_with_an_empty_one", &padded, {ROWS(5, 6), ROWS(7, 6), ROWS(7, 6)}},
    {"mask_bias",
     &masked,
     {ROWS(6, 8), ROWS(8, 8), ROWS(8, 8), {HARK_F32, 4, {2, 1, 6, 8}, -1, 1}, ABSENT, ABSENT, {HARK_U8, 4, {2, 1, 6, 8}, 0, 1}}},
    {"segments", &segmented, {ROW(10, 8), ROW(10, 8), ROW(10, 8)}},
    {"hierarchical_grouped_heads", &hierarchical, {ROWS(45, 32), ROWS(45, 16), ROWS(45, 16)}},
    {"hierarchical_causal_first", &first, {ROWS(70, 32), ROWS(70, 32), ROWS(70, 10)}},
    {"hierarchical_exact_terms_dropout",
     &exact,
     {ROWS(33, 8), ROWS(33, 8), ROWS(33, 8), ABSENT, {HARK_F32, 2, {2, 33}, -1, 0}, ABSENT, ABSENT, {HARK_F32, 2, {1, 15}, -1, 1}}},
    {"hierarchical_linear_masks",
     &linear,
     {ROWS(21, 8),
      ROWS(21, 8),
      ROWS(21, 8),
      ABSENT,
      ABSENT,
      ABSENT,
      {HARK_U8, 4, {2, 1, 1, 21}, 0, 1},
      {HARK_F32, 2, {2, 7}, -1, 1},
      {HARK_U8, 2, {2, 21}, 0, 1}}},
    {"ragged_bias_by_key",
     &ragged_rows,
     {{HARK_F32, 3, {6, 4, 8}, -1, 1},
      {HARK_F32, 2, {19, 8}, -1, 1},
      {HARK_F32, 2, {19, 6}, -1, 1},
      {HARK_F32, 2, {19, 1}, -3, 0},
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      ABSENT,
      {HARK_I64, 1, {5}, 23, 1},
      {HARK_I64, 1, {5}, 18, 0}}},
};

const hark_operator hark_op_attention = {
    .name = "attention",
    .formula = "out = softmax(scale query key^T + terms) value",
    .attributes_size = sizeof(hark_attention_attributes),
    .input_minimum = 3,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_QUERY | 1u << INPUT_KEY | 1u << INPUT_VALUE | 1u << INPUT_BIAS | 1u << INPUT_LOG_KERNEL |
                      1u << INPUT_FORGET | 1u << INPUT_HIERARCHICAL_BIAS | 1u << INPUT_CONTEXTUAL,
    .backward_inputs = (1u << INPUT_COUNT) - 1,
    .backward_outputs = 1u << 0,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

/* hierarchical_means.c - the bias of a positional kernel for each level of a hierarchy: y = log of the mean of G over two cells.
 *
 * log_kernel [K, T], y [K, levels * width]: backend/hierarchy_kernel.h describes the order. dlog G(x) = sum over the means that contain x
 * of dy * (occurrences of x) G(x) / (sum of G in the mean). About O(K (T + levels Nr 2^levels)), exact O(K levels Nr 2^levels).
 */
#include <inttypes.h>

#include "backend/hierarchy_kernel.h"
#include "ops/definition.h"

enum { INPUT_LOG_KERNEL, INPUT_COUNT };

#define OPERATIONS_PER_TERM 4.0

static hark_hierarchy hierarchy_of(const hark_hierarchical_means_attributes *means) {
  return (hark_hierarchy){
      .length = means->hierarchy_block << means->levels, .block = means->hierarchy_block, .causal = true, .levels = (int)means->levels};
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"log_kernel", HARK_F32, 2, 2}};
  const hark_hierarchical_means_attributes *means = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_hierarchical_means, rules, attributes, inputs, input_count));
  if (means->hierarchy_block < 2 || means->hierarchy_block % 2 != 0 || means->hierarchy_block > (int64_t)1 << 20)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hierarchical_means: hierarchy_block is %" PRId64 ", expected an even number to 2^20",
                     means->hierarchy_block);
  if (means->levels < 1 || means->levels > HARK_HIERARCHY_MAX_LEVELS ||
      means->hierarchy_block > ((int64_t)1 << HARK_HIERARCHY_MAX_LEVELS) >> means->levels)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "hierarchical_means: levels is %" PRId64 ", expected 1 to log2(2^%d / hierarchy_block)", means->levels,
                     HARK_HIERARCHY_MAX_LEVELS);
  const hark_hierarchy h = hierarchy_of(means);
  const int64_t doubles = hark_hierarchy_kernel_doubles(&h, means->exact), all = hark_hierarchy_kernel_means(&h, means->exact);
  const int64_t shape[] = {inputs[INPUT_LOG_KERNEL].shape[0], all};
  HARK_TRY(hark_size_multiply(context, (size_t)doubles, sizeof(double), &out->forward_workspace));
  HARK_TRY(hark_size_multiply(context, (size_t)(doubles + all + hark_hierarchy_reach(&h)), sizeof(double), &out->backward_workspace));
  return hark_tensor_describe(context, inputs[INPUT_LOG_KERNEL].type, 2, shape, &out->outputs[0]);
}

/* Whether mean number `index` belongs to two cells: a cell and itself are computed on lower levels, and no cell of 2^l keys begins before
 * its last. */
static bool occurs(const hark_hierarchical_means_attributes *means, int64_t width, int64_t index) {
  const int64_t level = index / width, at = index % width;
  return means->exact ? at >= ((int64_t)1 << level) - 1 : level == 0 || at > 0;
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_hierarchical_means_attributes *means = call->attributes;
  const hark_hierarchy h = hierarchy_of(means);
  const hark_numbers to = hark_numbers_of(&call->outputs[0]);
  const int64_t all = hark_hierarchy_kernel_means(&h, means->exact), width = hark_hierarchy_kernel_width(&h, means->exact);
  (void)context;
  for (int64_t row = 0; row < call->inputs[INPUT_LOG_KERNEL].shape[0]; row++) {
    const hark_hierarchy_kernel kernel =
        hark_hierarchy_kernel_make(&h, means->exact, &call->inputs[INPUT_LOG_KERNEL], row, call->workspace);
    for (int64_t i = 0; i < all; i++) hark_put(to, row * all + i, occurs(means, width, i) ? kernel.mean[i] : 0);
  }
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_call *call) {
  const hark_hierarchical_means_attributes *means = call->attributes;
  const hark_hierarchy h = hierarchy_of(means);
  const hark_tensor *table = &call->inputs[INPUT_LOG_KERNEL];
  (void)context;
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_LOG_KERNEL])) return HARK_OK;
  const int64_t all = hark_hierarchy_kernel_means(&h, means->exact), reach = hark_hierarchy_reach(&h);
  const hark_numbers from = hark_numbers_of(&call->output_gradients[0]), to = hark_gradient_of(call, INPUT_LOG_KERNEL);
  double *const memory = call->workspace, *const dmean = memory + hark_hierarchy_kernel_doubles(&h, means->exact),
                *const gradient = dmean + all;
  for (int64_t row = 0; row < table->shape[0]; row++) {
    const hark_hierarchy_kernel kernel = hark_hierarchy_kernel_make(&h, means->exact, table, row, memory);
    for (int64_t i = 0; i < all; i++) dmean[i] = kernel.mean[i] == -INFINITY ? 0 : hark_get(from, row * all + i);
    for (int64_t i = 0; i < reach; i++) gradient[i] = 0;
    hark_hierarchy_kernel_gradient(&kernel, dmean, gradient);
    for (int64_t i = 0; i < table->shape[1]; i++) hark_give(to, row * table->shape[1] + i, i < reach ? gradient[i] : 0);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_hierarchical_means_attributes *means = attributes;
  const hark_hierarchy h = hierarchy_of(means);
  (void)input_count, (void)is_backward;
  return OPERATIONS_PER_TERM * (double)inputs[INPUT_LOG_KERNEL].shape[0] * (double)means->levels * (double)hark_hierarchy_reach(&h);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const hark_hierarchical_means_attributes *means = attributes;
  (void)inputs, (void)input_count;
  return (int64_t)2 << means->levels;
}

static const hark_hierarchical_means_attributes pairs = {4, 3, false}, exact = {4, 3, true}, one_level = {2, 1, false};

static const hark_sample samples[] = {
    {"pairs", &pairs, {{HARK_F32, 2, {2, 32}, -3, 0}}},
    {"exact", &exact, {{HARK_F32, 2, {2, 32}, -3, 0}}},
    {"long_table", &exact, {{HARK_F32, 2, {1, 40}, -3, 0}}},
    {"one_level", &one_level, {{HARK_F32, 2, {3, 4}, -3, 0}}},
};

const hark_operator hark_op_hierarchical_means = {
    .name = "hierarchical_means",
    .formula = "y = log of the mean of G over the distances between two cells",
    .attributes_size = sizeof(hark_hierarchical_means_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_LOG_KERNEL,
    .backward_inputs = 1u << INPUT_LOG_KERNEL,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

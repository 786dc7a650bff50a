/* attention.c - see attention.h. */
#include "lab/attention.h"

#include <hark/operators.h>
#include <string.h>

#include "lab/matrix.h"

static hark_status wrap(hark_context *context, const void *data, hark_type type, int64_t rows, int64_t columns, hark_tensor *out) {
  const int64_t shape[] = {1, 1, rows, columns};
  return hark_tensor_wrap(context, (void *)data, type, 4, shape, NULL, out);
}

hark_attention_desc hark_lab_kernel_ridge(double variance, double ridge) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.kernel = HARK_KERNEL_RBF;
  desc.normalisation = HARK_NORMALISATION_CME;
  desc.sigma = sqrt(variance);
  desc.ridge = ridge;
  return desc;
}

hark_lab_difference hark_lab_difference_of(const double *have, const double *expected, int64_t rows, int64_t columns) {
  double all = 0, size = 0, worst = 0;
  for (int64_t n = 0; n < rows; n++) {
    double row = 0;
    for (int64_t i = n * columns; i < (n + 1) * columns; i++) {
      row += (have[i] - expected[i]) * (have[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    all += row;
    worst = hark_larger(worst, row);
  }
  if (size == 0 && all == 0) return (hark_lab_difference){0, 0};
  return (hark_lab_difference){sqrt(all / size), sqrt(worst / (size / (double)rows))};
}

static int64_t queries_of(const hark_lab_head *head) { return head->queries > 0 ? head->queries : head->length; }

static hark_status execute(hark_context *context, const hark_attention_plan *plan, const hark_lab_head *head, void *saved, void *workspace,
                           double *out) {
  const int64_t length = head->length, queries = queries_of(head), rows[] = {1, 1, queries};
  const int64_t distances[] = {1, hark_attention_plan_distances(plan, false, 0)};
  hark_attention_args args = {.struct_size = sizeof args, .saved = saved, .workspace = workspace};
  HARK_TRY(wrap(context, head->query, HARK_F64, queries, head->head_dim, &args.query));
  HARK_TRY(wrap(context, head->key, HARK_F64, length, head->head_dim, &args.key));
  HARK_TRY(wrap(context, head->value, HARK_F64, length, head->value_dim, &args.value));
  HARK_TRY(wrap(context, out, HARK_F64, queries, head->value_dim, &args.out));
  if (head->mask != NULL) HARK_TRY(wrap(context, head->mask, HARK_U8, queries, length, &args.mask));
  if (head->log_kernel != NULL)
    HARK_TRY(hark_tensor_wrap(context, (void *)head->log_kernel, HARK_F64, 2, distances, NULL, &args.log_kernel));
  if (head->log_sum_exp != NULL) HARK_TRY(hark_tensor_wrap(context, head->log_sum_exp, HARK_F64, 3, rows, NULL, &args.log_sum_exp));
  if (head->variance != NULL) HARK_TRY(hark_tensor_wrap(context, head->variance, HARK_F64, 3, rows, NULL, &args.variance));
  return hark_attention_forward(context, plan, &args);
}

hark_status hark_lab_attend(hark_context *context, const hark_attention_desc *choice, const hark_lab_head *head, double *out) {
  hark_attention_desc desc = *choice;
  desc.type = HARK_F64;
  desc.batch = desc.heads = 1;
  desc.query_length = queries_of(head);
  desc.key_length = head->length;
  desc.head_dim = head->head_dim;
  desc.value_dim = head->value_dim;
  desc.has_mask = head->mask != NULL;
  desc.has_log_kernel = head->log_kernel != NULL;
  desc.forward_only = true;
  hark_attention_plan *plan;
  HARK_TRY(hark_attention_plan_create(context, &desc, &plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  void *saved = NULL, *workspace = NULL;
  hark_status status = hark_allocate(context, sizes.saved, &saved);
  if (status == HARK_OK) status = hark_allocate(context, sizes.forward_workspace, &workspace);
  if (status == HARK_OK) status = execute(context, plan, head, saved, workspace, out);
  hark_release(context, workspace, sizes.forward_workspace);
  hark_release(context, saved, sizes.saved);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

hark_status hark_lab_rotate(hark_context *context, const hark_lab_rotation *rotation, const double *x, double *out) {
  const int64_t shape[] = {1, rotation->length, rotation->dim};
  const hark_rotary_attributes attributes = {
      .heads = 1, .first_position = rotation->first, .pairs = HARK_ROTARY_INTERLEAVED, .rates = rotation->rates};
  hark_call call = {.op = &hark_op_rotary, .attributes = &attributes, .input_count = 1};
  HARK_TRY(hark_tensor_wrap(context, (void *)x, HARK_F64, 3, shape, NULL, &call.inputs[0]));
  HARK_TRY(hark_tensor_wrap(context, out, HARK_F64, 3, shape, NULL, &call.outputs[0]));
  return hark_operator_forward(context, &call);
}

hark_status hark_lab_make_batch(hark_lab *lab, const hark_attention_desc *choice, hark_lab_batch *batch) {
  const int64_t queries = batch->batch * batch->queries, keys = batch->batch * batch->length, d = batch->head_dim, dv = batch->value_dim;
  hark_attention_desc desc = *choice;
  void *memory;
  hark_attention_plan *plan;
  desc.type = HARK_F64;
  desc.batch = batch->batch;
  desc.heads = 1;
  desc.query_length = batch->queries;
  desc.key_length = batch->length;
  desc.head_dim = d;
  desc.value_dim = dv;
  HARK_TRY(hark_lab_allocate(lab, HARK_ATTENTION_PLAN_BYTES, &memory));
  HARK_TRY(hark_attention_plan_place(lab->context, &desc, memory, HARK_ATTENTION_PLAN_BYTES, &plan));
  batch->plan = plan;
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  HARK_TRY(hark_lab_allocate(lab, sizes.saved, &batch->saved));
  HARK_TRY(hark_lab_allocate(lab, sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace,
                             &batch->workspace));
  double **const arrays[] = {&batch->query, &batch->key,    &batch->value, &batch->out,         &batch->dquery,
                             &batch->dkey,  &batch->dvalue, &batch->dout,  &batch->log_sum_exp, &batch->variance};
  const int64_t counts[] = {queries * d, keys * d,  keys * dv,    queries * dv, queries * d,
                            keys * d,    keys * dv, queries * dv, queries,      queries};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) HARK_TRY(hark_lab_numbers(lab, counts[i], arrays[i]));
  return HARK_OK;
}

/* [count, 1, rows, columns] */
static hark_status wrap_batch(hark_context *context, double *data, int64_t count, int64_t rows, int64_t columns, hark_tensor *out) {
  const int64_t shape[] = {count, 1, rows, columns};
  return hark_tensor_wrap(context, data, HARK_F64, 4, shape, NULL, out);
}

static hark_status wrap_inputs(hark_context *context, hark_lab_batch *batch, int64_t count, hark_attention_args *args) {
  const hark_attention_desc *const desc = hark_attention_plan_desc(batch->plan);
  const int64_t rows[] = {count, 1, batch->queries}, one[] = {1};
  *args = (hark_attention_args){.struct_size = sizeof *args, .saved = batch->saved, .workspace = batch->workspace};
  HARK_TRY(wrap_batch(context, batch->query, count, batch->queries, batch->head_dim, &args->query));
  HARK_TRY(wrap_batch(context, batch->key, count, batch->length, batch->head_dim, &args->key));
  HARK_TRY(wrap_batch(context, batch->value, count, batch->length, batch->value_dim, &args->value));
  HARK_TRY(wrap_batch(context, batch->out, count, batch->queries, batch->value_dim, &args->out));
  if (desc->normalisation != HARK_NORMALISATION_CME)
    HARK_TRY(hark_tensor_wrap(context, batch->log_sum_exp, HARK_F64, 3, rows, NULL, &args->log_sum_exp));
  if (desc->has_ridge) HARK_TRY(hark_tensor_wrap(context, &batch->ridge, HARK_F64, 1, one, NULL, &args->ridge));
  return desc->has_sigma ? hark_tensor_wrap(context, &batch->sigma, HARK_F64, 1, one, NULL, &args->sigma) : HARK_OK;
}

hark_status hark_lab_batch_forward(hark_context *context, hark_lab_batch *batch, int64_t count) {
  const int64_t rows[] = {count, 1, batch->queries};
  hark_attention_args args;
  HARK_TRY(wrap_inputs(context, batch, count, &args));
  if (hark_attention_plan_desc(batch->plan)->normalisation == HARK_NORMALISATION_CME)
    HARK_TRY(hark_tensor_wrap(context, batch->variance, HARK_F64, 3, rows, NULL, &args.variance));
  return hark_attention_forward(context, batch->plan, &args);
}

hark_status hark_lab_batch_backward(hark_context *context, hark_lab_batch *batch, int64_t count) {
  const hark_attention_desc *const desc = hark_attention_plan_desc(batch->plan);
  const int64_t one[] = {1};
  hark_attention_args args;
  HARK_TRY(wrap_inputs(context, batch, count, &args));
  HARK_TRY(wrap_batch(context, batch->dout, count, batch->queries, batch->value_dim, &args.dout));
  HARK_TRY(wrap_batch(context, batch->dquery, count, batch->queries, batch->head_dim, &args.dquery));
  HARK_TRY(wrap_batch(context, batch->dkey, count, batch->length, batch->head_dim, &args.dkey));
  HARK_TRY(wrap_batch(context, batch->dvalue, count, batch->length, batch->value_dim, &args.dvalue));
  if (desc->has_ridge) HARK_TRY(hark_tensor_wrap(context, &batch->dridge, HARK_F64, 1, one, NULL, &args.dridge));
  if (desc->has_sigma) HARK_TRY(hark_tensor_wrap(context, &batch->dsigma, HARK_F64, 1, one, NULL, &args.dsigma));
  return hark_attention_backward(context, batch->plan, &args);
}

hark_status hark_lab_make_heads(hark_lab *lab, hark_lab_heads *heads) {
  const int64_t narrow = heads->heads * heads->width * heads->head_dim, wide = heads->heads * heads->width * heads->width;
  HARK_TRY(hark_lab_numbers(lab, narrow, &heads->query));
  HARK_TRY(hark_lab_numbers(lab, narrow, &heads->key));
  HARK_TRY(hark_lab_numbers(lab, wide, &heads->value));
  return hark_lab_numbers(lab, heads->length * 2 * (heads->head_dim + heads->width), &heads->scratch);
}

hark_status hark_lab_sum_heads(hark_context *context, const hark_attention_desc *choice, const hark_lab_heads *heads, const double *x,
                               double *out) {
  const int64_t length = heads->length, d = heads->width, narrow = heads->head_dim;
  double *const query = heads->scratch, *const key = query + length * narrow, *const value = key + length * narrow;
  double *const one = value + length * d;
  const hark_lab_head head = {
      .length = length, .head_dim = narrow, .value_dim = d, .query = query, .key = key, .value = value, .log_kernel = heads->log_kernel};
  memset(out, 0, (size_t)(length * d) * sizeof *out);
  for (int64_t h = 0; h < heads->heads; h++) {
    hark_lab_multiply(length, d, narrow, x, heads->query + h * d * narrow, query);
    hark_lab_multiply(length, d, narrow, x, heads->key + h * d * narrow, key);
    hark_lab_multiply(length, d, d, x, heads->value + h * d * d, value);
    HARK_TRY(hark_lab_attend(context, choice, &head, one));
    for (int64_t i = 0; i < length * d; i++) out[i] += one[i];
  }
  return HARK_OK;
}

/* kernel_ridge_decode.c - see kernel_ridge_decode.h. */
#include "backend/kernel_ridge_decode.h"

#include <math.h>

#include "core/overlap.h"

/* Scratch of a head. In doubles: a definition's two columns, query, row of U and output; or in floats: a kernel's two columns, its block of
 * 64 columns, table, transposed rows and results. */
static hark_status head_bytes(hark_context *context, const hark_ridge_decode *d, size_t *out) {
  const size_t tokens = (size_t)(hark_ceil_div(d->capacity, HARK_RIDGE_BAND) + 2) * HARK_RIDGE_BAND, dim = (size_t)d->head_dim;
  const size_t width = (size_t)d->value_width, columns = d->rows < HARK_RIDGE_DECODE_LEAST ? 4 : 2 * HARK_RIDGE_DECODE_BLOCK;
  size_t numbers, more;
  HARK_TRY(hark_size_multiply(context, tokens, columns + 1, &numbers));
  HARK_TRY(hark_size_multiply(context, dim + width, 3 * columns, &more));
  HARK_TRY(hark_size_add(context, numbers, more, &numbers));
  HARK_TRY(hark_size_add(context, numbers, 1024, &numbers)); /* at most so many for rounding each part up to whole vectors */
  HARK_TRY(hark_size_multiply(context, numbers, sizeof(float), out));
  *out = hark_align_up(*out);
  return HARK_OK;
}

static hark_ridge_decode sizes_of(const hark_kernel_ridge_decode_attributes *is, const hark_tensor *inputs, int64_t head) {
  hark_ridge_decode d = {.is = is, .head = head, .key_head = head / (is->heads / is->key_heads)};
  d.rows = inputs[HARK_RIDGE_DECODE_QUERY].shape[1];
  d.head_dim = inputs[HARK_RIDGE_DECODE_QUERY].shape[2] / is->heads;
  d.value_dim = inputs[HARK_RIDGE_DECODE_VALUE].shape[2] / is->key_heads;
  d.value_width = hark_ridge_decode_width(d.value_dim);
  d.capacity = inputs[HARK_RIDGE_DECODE_CACHED_KEY].shape[1];
  d.key_step = is->key_heads * d.head_dim;
  d.value_step = is->key_heads * d.value_dim;
  d.solved_step = is->heads * d.value_width;
  d.rbf = is->kernel == HARK_KERNEL_RBF;
  return d;
}

hark_status hark_ridge_decode_workspace(hark_context *context, const hark_kernel_ridge_decode_attributes *is, const hark_tensor *inputs,
                                        size_t *out) {
  const hark_ridge_decode d = sizes_of(is, inputs, 0);
  HARK_TRY(head_bytes(context, &d, out));
  HARK_TRY(hark_size_add(context, *out, sizeof(hark_ridge_record), out));
  return hark_size_multiply(context, *out, (size_t)is->heads, out);
}

static const hark_tensor *input(const hark_call *call, int i) {
  return i < call->input_count && call->inputs[i].type != HARK_NONE ? &call->inputs[i] : NULL;
}

hark_ridge_decode hark_ridge_decode_open(const hark_call *call, int64_t head) {
  hark_ridge_decode d = sizes_of(call->attributes, call->inputs, head);
  const hark_tensor *table = input(call, HARK_RIDGE_DECODE_LOG_KERNEL);
  const size_t records = (size_t)d.is->heads * sizeof(hark_ridge_record);
  size_t each = 0;
  const hark_status status = head_bytes(NULL, &d, &each); /* cannot fail: infer has computed it */
  (void)status;
  d.call = call;
  d.record = (hark_ridge_record *)call->workspace + head;
  d.positional = table != NULL;
  d.table_row = table != NULL && table->shape[0] > 1 ? head * table->shape[1] : 0;
  d.memory = (char *)call->workspace + records + (size_t)head * each;
  return d;
}

static double parameter(const hark_call *call, int i, int64_t head, double otherwise) {
  const hark_tensor *vector = input(call, i);
  if (vector == NULL) return otherwise;
  const int64_t at = vector->shape[0] == 1 ? 0 : head;
  return exp(vector->type == HARK_F64 ? ((const double *)vector->data)[at] : (double)((const float *)vector->data)[at]);
}

bool hark_ridge_decode_read(hark_ridge_decode *d) {
  const hark_tensor *table = input(d->call, HARK_RIDGE_DECODE_LOG_KERNEL);
  const hark_ridge_given given = {.type = d->call->inputs[HARK_RIDGE_DECODE_QUERY].type,
                                  .rbf = d->rbf,
                                  .noisy = input(d->call, HARK_RIDGE_DECODE_NOISE) != NULL,
                                  .ridge = parameter(d->call, HARK_RIDGE_DECODE_LOG_RIDGE, d->head, d->is->ridge),
                                  .slope = 1,
                                  .sigma = parameter(d->call, HARK_RIDGE_DECODE_LOG_SIGMA, d->head, d->is->sigma),
                                  .scale = d->is->scale,
                                  .bound = d->is->unit ? 1 : d->is->bound,
                                  .log_kernel = table,
                                  .table_row = d->table_row,
                                  .distances = d->is->first_position + d->rows};
  return hark_ridge_parameters_make(&given, d->head, d->record, &d->parameters);
}

bool hark_ridge_decode_added(const hark_ridge_decode *d, int64_t row, double *out) {
  const hark_tensor *given = input(d->call, HARK_RIDGE_DECODE_NOISE);
  const int64_t at = row * d->is->heads + d->head;
  const double noise = given == NULL             ? 0
                       : given->type == HARK_F64 ? ((const double *)given->data)[at]
                                                 : (double)((const float *)given->data)[at];
  return hark_ridge_added(&d->parameters, d->call->inputs[HARK_RIDGE_DECODE_QUERY].type, noise, d->head, d->is->first_position + row,
                          d->record, out);
}

static hark_status check_report(hark_context *context, const hark_call *call, const char *name, const hark_tensor *tensor) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  const hark_tensor report = hark_bytes_tensor(is->report, sizeof *is->report);
  if (!hark_tensors_share(&report, tensor)) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_ridge_decode: report and %s share memory, expected separate memory", name);
}

hark_status hark_ridge_decode_begin(hark_context *context, const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  const hark_tensor workspace = hark_bytes_tensor(call->workspace, call->workspace_bytes);
  HARK_TRY(check_report(context, call, "workspace", &workspace));
  for (int i = 0; i < call->op->output_count; i++) HARK_TRY(check_report(context, call, "an output", &call->outputs[i]));
  for (int i = 0; i < call->input_count; i++) HARK_TRY(check_report(context, call, "an input", &call->inputs[i]));
  hark_ridge_records_clear(call->workspace, is->heads);
  return HARK_OK;
}

hark_status hark_ridge_decode_end(hark_context *context, const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  return hark_ridge_conclude_heads(context, call->inputs[HARK_RIDGE_DECODE_QUERY].type, call->workspace, is->heads, is->report);
}

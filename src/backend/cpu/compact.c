/* compact.c - the kernel of the record linear_compact: y = x W^T + b with W of bf16, f16 or i8.
 *
 * Few rows of x: W is read once, in pieces of columns of y. Many rows: of a matrix of halves, a part is widened into the workspace and
 * multiplied as f32; integers are multiplied as they are, in pieces of rows and columns. No result depends on the pieces.
 */
#include "core/compact.h"

#include "backend/cpu/products.h"
#include "core/parallel.h"

enum { INPUT_X, INPUT_WEIGHT, INPUT_SCALE, INPUT_BIAS };

#define OPERATIONS_A_NANOSECOND 200.0 /* of one thread */
#define WIDENED_A_NANOSECOND 2.0      /* numbers that one thread widens */

typedef struct compact_work {
  hark_context *context;
  const float *x, *scale, *bias;
  float *y, *panel;
  double *s;
  int8_t *q;
  const hark_tensor *weight;
  int64_t rows, outputs, inputs;
  int64_t columns, pieces; /* of one piece, and of all columns */
  int64_t first;           /* of the widened part */
} compact_work;

static compact_work work_of(hark_context *context, const hark_call *call) {
  const hark_tensor *weight = &call->inputs[INPUT_WEIGHT];
  compact_work w = {.context = context,
                    .x = call->inputs[INPUT_X].data,
                    .scale = call->input_count > INPUT_SCALE ? call->inputs[INPUT_SCALE].data : NULL,
                    .bias = call->input_count > INPUT_BIAS ? call->inputs[INPUT_BIAS].data : NULL,
                    .y = call->outputs[0].data,
                    .panel = call->workspace,
                    .s = call->workspace,
                    .weight = weight,
                    .rows = hark_tensor_count(&call->outputs[0]) / weight->shape[0],
                    .outputs = weight->shape[0],
                    .inputs = weight->shape[1]};
  w.columns = hark_cpu_few_rows_piece(context, w.outputs, w.inputs * (int64_t)hark_type_bytes(weight->type));
  w.pieces = hark_ceil_div(w.outputs, w.columns);
  if (weight->type == HARK_I8) w.q = (int8_t *)(w.s + w.rows);
  return w;
}

static const void *weight_row(const compact_work *w, int64_t row) {
  return (const char *)w->weight->data + (size_t)(row * w->inputs) * hark_type_bytes(w->weight->type);
}

static double nanoseconds(const compact_work *w) {
  return 2.0 * (double)w->rows * (double)w->outputs * (double)w->inputs / OPERATIONS_A_NANOSECOND;
}

static void few_rows_piece(void *data, int64_t index, int worker) {
  (void)worker;
  const compact_work *w = data;
  const int64_t column = index * w->columns;
  const hark_cpu_product piece = {.m = w->rows,
                                  .n = hark_min(w->columns, w->outputs - column),
                                  .k = w->inputs,
                                  .a = w->x,
                                  .lda = w->inputs,
                                  .ldb = w->inputs,
                                  .c = w->y + column,
                                  .ldc = w->outputs,
                                  .bias = w->bias != NULL ? w->bias + column : NULL};
  hark_cpu_isa_of(w->context)->few_rows_halves(&piece, w->weight->type, weight_row(w, column));
}

static void widen_row(void *data, int64_t index, int worker) {
  (void)worker;
  const compact_work *w = data;
  hark_cpu_isa_of(w->context)->widen_halves(w->weight->type, weight_row(w, w->first + index), w->inputs, w->panel + index * w->inputs);
}

static void many_rows(compact_work *w) {
  const int64_t panel = hark_compact_panel_rows(w->outputs, w->inputs);
  for (w->first = 0; w->first < w->outputs; w->first += panel) {
    const int64_t columns = hark_min(panel, w->outputs - w->first);
    hark_parallel_for_work(w->context, columns, (double)(columns * w->inputs) / WIDENED_A_NANOSECOND, widen_row, w);
    const hark_cpu_products product = {.product = {.transpose_b = true,
                                                   .m = w->rows,
                                                   .n = columns,
                                                   .k = w->inputs,
                                                   .alpha = 1,
                                                   .a = w->x,
                                                   .lda = w->inputs,
                                                   .b = w->panel,
                                                   .ldb = w->inputs,
                                                   .c = w->y + w->first,
                                                   .ldc = w->outputs,
                                                   .bias = w->bias != NULL ? w->bias + w->first : NULL},
                                       .batch = 1};
    hark_cpu_products_run(w->context, &product, 1);
  }
}

static void quantise_row(void *data, int64_t row, int worker) {
  (void)worker;
  const compact_work *w = data;
  w->s[row] = hark_i8_quantise(w->x + row * w->inputs, w->inputs, w->q + row * w->inputs);
}

static void i8_piece(void *data, int64_t index, int worker) {
  (void)worker;
  const compact_work *w = data;
  const int64_t column = index % w->pieces * w->columns, row = index / w->pieces * HARK_CPU_I8_ROWS;
  const hark_cpu_product_i8 piece = {.m = hark_min(HARK_CPU_I8_ROWS, w->rows - row),
                                     .n = hark_min(w->columns, w->outputs - column),
                                     .k = w->inputs,
                                     .q = w->q + row * w->inputs,
                                     .s = w->s + row,
                                     .w = weight_row(w, column),
                                     .scale = w->scale + column,
                                     .bias = w->bias != NULL ? w->bias + column : NULL,
                                     .c = w->y + row * w->outputs + column,
                                     .ldc = w->outputs};
  hark_cpu_isa_of(w->context)->product_i8(&piece);
}

hark_status hark_cpu_linear_compact_forward(hark_context *context, const hark_call *call) {
  if (hark_tensor_count(&call->outputs[0]) == 0) return HARK_OK;
  compact_work w = work_of(context, call);
  if (w.weight->type == HARK_I8) {
    hark_parallel_for_work(context, w.rows, 4.0 * (double)(w.rows * w.inputs), quantise_row, &w);
    hark_parallel_for_work(context, w.pieces * hark_ceil_div(w.rows, HARK_CPU_I8_ROWS), nanoseconds(&w), i8_piece, &w);
  } else if (w.rows < HARK_COMPACT_FEW_ROWS && !context->deterministic) {
    hark_parallel_for_work(context, w.pieces, nanoseconds(&w), few_rows_piece, &w);
  } else {
    many_rows(&w);
  }
  return HARK_OK;
}

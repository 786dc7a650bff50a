/* bf16_products.c - see bf16_products.h; and the kernels of the record linear_bf16.
 *
 * C is cut into pieces. A sum over k has one order (isa/bf16_product.c), so that neither the pieces nor the threads change a bit; the
 * pieces are therefore cut for the threads that are there. Each piece packs its rows of op(A) and its columns of op(B): the fewer and the
 * squarer they are, the less is packed twice.
 */
#include "backend/cpu/bf16_products.h"

#include <hark/operators.h>

#include "backend/cpu/ranges.h"
#include "backend/cpu/state.h"
#include "core/parallel.h"

#define MOST_PRODUCTS 2

/* What the sizes of pieces are multiples of: the register tiles' of all instruction sets. */
#define ROUND_ROWS 12
#define ROUND_COLUMNS 32

/* Each thread should have at least this many pieces, as long as a piece has so many elements. */
#define PIECES_A_THREAD 4
#define PIECE_ELEMENTS (96 * 128)

#define OPERATIONS_A_NANOSECOND 200 /* of one thread */

typedef struct grid {
  const hark_cpu_bf16_product *product;
  int64_t rows, columns; /* of a piece */
  int64_t pieces_columns;
  int64_t first, count; /* numbers of its pieces */
} grid;

typedef struct work {
  hark_context *context;
  grid grids[MOST_PRODUCTS];
  int count;
} work;

static int64_t even_part(int64_t whole, int64_t parts, int64_t multiple) {
  return hark_ceil_div(hark_ceil_div(whole, parts), multiple) * multiple;
}

/* Each piece of rows packs op(B) [k, n] again, each piece of columns op(A) [m, k]; the cheaper of both is doubled. */
static grid cut(const hark_cpu_bf16_product *p, int threads) {
  grid g = {.product = p};
  if (p->m == 0 || (p->n == 0 && p->row_sums == NULL)) return g;
  const int64_t n = hark_max(p->n, 1), least = threads > 1 ? (int64_t)threads * PIECES_A_THREAD : 1;
  int64_t rows = 1, columns = 1; /* pieces */
  while (rows * columns < least && p->m * n >= 2 * PIECE_ELEMENTS * rows * columns) {
    const bool of_columns = hark_ceil_div(n, columns) >= 2 * ROUND_COLUMNS && (double)columns * (double)p->m < (double)rows * (double)n;
    if (of_columns)
      columns *= 2;
    else
      rows *= 2;
  }
  g.rows = even_part(p->m, rows, ROUND_ROWS);
  g.columns = even_part(n, columns, ROUND_COLUMNS);
  g.pieces_columns = hark_ceil_div(n, g.columns);
  g.count = hark_ceil_div(p->m, g.rows) * g.pieces_columns;
  return g;
}

/* The operand from a row (of a transposed one: a column) of op(X) on; one without numbers stays so. */
static hark_cpu_operand moved(hark_cpu_operand x, int64_t row, int64_t column) {
  if (x.data == NULL) return x;
  const int64_t number = x.transposed ? column * x.ld + row : row * x.ld + column;
  x.data = (const char *)x.data + (size_t)number * hark_type_bytes(x.type);
  return x;
}

static void run_piece(const hark_context *context, const grid *g, int64_t index, int worker) {
  const int64_t column = index % g->pieces_columns * g->columns, row = index / g->pieces_columns * g->rows;
  hark_cpu_bf16_product p = *g->product;
  p.m = hark_min(g->rows, p.m - row);
  p.n = hark_min(g->columns, p.n - column);
  p.a = moved(p.a, row, 0);
  p.b = moved(p.b, 0, column);
  if (p.c != NULL) p.c += row * p.ldc + column;
  if (p.bias != NULL) p.bias += column;
  p.row_sums = p.row_sums != NULL && column == 0 ? p.row_sums + row : NULL;
  hark_cpu_isa_of(context)->bf16_product(&p, hark_cpu_bf16_dots(context), hark_cpu_scratch(context, worker));
}

static void run_task(void *data, int64_t index, int worker) {
  const work *w = data;
  int at = w->count - 1;
  while (index < w->grids[at].first) at--;
  run_piece(w->context, &w->grids[at], index - w->grids[at].first, worker);
}

void hark_cpu_bf16_products_run(hark_context *context, const hark_cpu_bf16_product *products, int count) {
  const int threads = hark_context_threads(context);
  work w = {.context = context, .count = count};
  int64_t pieces = 0;
  double operations = 0;
  for (int i = 0; i < count; i++) {
    w.grids[i] = cut(&products[i], threads);
    w.grids[i].first = pieces;
    pieces += w.grids[i].count;
    operations += 2.0 * (double)products[i].m * (double)products[i].n * (double)products[i].k;
  }
  const double nanoseconds = operations / OPERATIONS_A_NANOSECOND;
  if (count > 1 && hark_parallel_pays(nanoseconds)) /* of different lengths */
    hark_parallel_for(context, pieces, run_task, &w);
  else
    hark_parallel_for_work(context, pieces, nanoseconds, run_task, &w);
}

/* ---- linear_bf16 ------------------------------------------------------------------------------------------------------------------- */
enum { INPUT_X, INPUT_WEIGHT, INPUT_BIAS };

static hark_cpu_operand operand(const hark_tensor *tensor, bool transposed) {
  return (hark_cpu_operand){.data = tensor->data, .type = tensor->type, .transposed = transposed, .ld = hark_cpu_row_length(tensor)};
}

/* y = x W^T + 1 b^T */
hark_status hark_cpu_linear_bf16_forward(hark_context *context, const hark_call *call) {
  const hark_tensor *weight = &call->inputs[INPUT_WEIGHT], *y = &call->outputs[0];
  const hark_cpu_bf16_product forward = {.m = hark_cpu_row_count(y),
                                         .n = weight->shape[0],
                                         .k = weight->shape[1],
                                         .a = operand(&call->inputs[INPUT_X], false),
                                         .b = operand(weight, true),
                                         .c = y->data,
                                         .ldc = weight->shape[0],
                                         .bias = call->input_count > INPUT_BIAS ? call->inputs[INPUT_BIAS].data : NULL};
  hark_cpu_bf16_products_run(context, &forward, 1);
  return HARK_OK;
}

/* dW = dy^T x, db = dy^T 1 */
static hark_cpu_bf16_product weight_gradient(const hark_call *call) {
  const hark_tensor *dy = &call->output_gradients[0], *dw = &call->input_gradients[INPUT_WEIGHT];
  hark_cpu_bf16_product p = {.m = hark_cpu_row_length(dy), .k = hark_cpu_row_count(dy), .a = operand(dy, true)};
  if (hark_cpu_requested(call, INPUT_WEIGHT)) {
    p.n = p.ldc = dw->shape[1];
    p.b = operand(&call->inputs[INPUT_X], false);
    p.c = dw->data;
    p.beta = hark_cpu_adds(call, INPUT_WEIGHT) ? 1 : 0;
  }
  if (hark_cpu_requested(call, INPUT_BIAS)) {
    p.row_sums = call->input_gradients[INPUT_BIAS].data;
    p.add_to_row_sums = hark_cpu_adds(call, INPUT_BIAS);
  }
  return p;
}

/* y = x W^T + 1 b^T: dx = dy W, and the gradients above. */
hark_status hark_cpu_linear_bf16_backward(hark_context *context, const hark_call *call) {
  if (hark_cpu_no_gradient(call)) return HARK_OK;
  const hark_tensor *dy = &call->output_gradients[0], *dx = &call->input_gradients[INPUT_X];
  hark_cpu_bf16_product products[MOST_PRODUCTS];
  int count = 0;
  if (hark_cpu_requested(call, INPUT_WEIGHT) || hark_cpu_requested(call, INPUT_BIAS)) /* first: the longer sums */
    products[count++] = weight_gradient(call);
  if (hark_cpu_requested(call, INPUT_X))
    products[count++] = (hark_cpu_bf16_product){.m = hark_cpu_row_count(dy),
                                                .n = hark_cpu_row_length(dx),
                                                .k = hark_cpu_row_length(dy),
                                                .a = operand(dy, false),
                                                .b = operand(&call->inputs[INPUT_WEIGHT], false),
                                                .beta = hark_cpu_adds(call, INPUT_X) ? 1 : 0,
                                                .c = dx->data,
                                                .ldc = hark_cpu_row_length(dx)};
  hark_cpu_bf16_products_run(context, products, count);
  return HARK_OK;
}

/* products.c - matrix products over the context's threads, and the kernels of the records linear and matmul.
 *
 * C is cut into pieces. Their sizes depend on the product and on the code that computes it, not on the threads. One thread computes a piece
 * with the instruction set's own product, whose sum over k has one order, or with oneDNN if that is faster. So every number of threads
 * gives the same bits, and no second pool of threads is started. A product of few rows with a transposed matrix (one step of generation)
 * reads that matrix once, without packing it. Its pieces also depend on the number of threads: each element of C is one sum, whose order
 * they do not change.
 *
 * linear: y [N, out] = x [N, in] W [out, in]^T + 1 b^T, 2 N in out operations; matmul: C = op(A) op(B) for each matrix of a batch.
 */
#include "backend/cpu/products.h"

#include <hark/operators.h>

#include "backend/cpu/onednn.h"
#include "backend/cpu/state.h"
#include "core/parallel.h"

/* A piece of C, if C is large enough for many: packing costs little compared with the product, and the packed parts fit the cache. */
#define PIECE_ROWS 252
#define PIECE_COLUMNS 512
/* There should be at least PIECES pieces, as long as each has at least this many elements. */
#define PIECES 8
#define PIECE_ELEMENTS (48 * 64)

/* A single piece is halved from this many operations on. */
#define SHARED_OPERATIONS 300000
#define OPERATIONS_A_NANOSECOND 200 /* of one thread */

#define LONG_SUM 4096
#define LONG_SUM_ROWS 24

/* From this many rows on, packing the other matrix is worth its cost. */
#define FEW_ROWS 16
/* Bytes of the matrix in a piece, about: streams that are long enough to be recognised (isa/few_rows.c), and the least for a thread. */
#define FEW_ROWS_BYTES (256 << 10)
#define FEW_ROWS_LEAST (64 << 10)

typedef struct grid {
  const hark_cpu_products *products;
  bool few_rows;
  int64_t rows, columns;               /* of a piece */
  int64_t pieces_rows, pieces_columns; /* of one matrix */
  int64_t first, count;                /* numbers of its pieces */
} grid;

typedef struct work {
  hark_context *context;
  grid grids[HARK_CPU_MAX_PRODUCTS];
  int count;
} work;

static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

static double operations_of(const hark_cpu_products *products) {
  const hark_cpu_product *p = &products->product;
  return 2.0 * (double)products->batch * (double)p->m * (double)p->n * (double)p->k;
}

/* Halves a single piece that is long because of its sum: its columns if possible, so that the other matrix is packed once. A piece that
 * oneDNN computes is not halved, since its bits are oneDNN's. */
static void share(const hark_cpu_isa *isa, const hark_cpu_products *products, int64_t *rows, int64_t *columns) {
  const hark_cpu_product *p = &products->product;
  if (products->batch > 1 || *rows < p->m || *columns < p->n) return;
  if (operations_of(products) < SHARED_OPERATIONS || hark_cpu_onednn_serves(isa, p)) return;
  if (p->n > *isa->product_columns)
    *columns = (*columns + 1) / 2;
  else
    *rows = (*rows + 1) / 2;
}

int64_t hark_cpu_few_rows_piece(const hark_context *context, int64_t rows, int64_t row_bytes) {
  const int64_t threads = hark_context_threads(context), bytes = rows * row_bytes;
  if (threads == 1 || bytes < 2 * FEW_ROWS_LEAST) return rows;
  int64_t pieces = hark_max(hark_ceil_div(bytes, FEW_ROWS_BYTES), hark_min(2 * threads, bytes / FEW_ROWS_LEAST));
  if (round_up(pieces, threads) <= bytes / FEW_ROWS_LEAST) pieces = round_up(pieces, threads);
  return round_up(hark_ceil_div(rows, pieces), 4);
}

static void cut(const hark_context *context, const hark_cpu_products *products, grid *out) {
  const hark_cpu_isa *isa = hark_cpu_isa_of(context);
  const hark_cpu_product *p = &products->product;
  *out = (grid){.products = products};
  if (p->m == 0 || (p->n == 0 && p->row_sums == NULL) || products->batch == 0) return;
  const int64_t n = hark_max(p->n, 1); /* without columns, row sums are still computed */
  /* Inner products add in lanes, tiles do not: a short sequence alone would have other bits than in a batch. Deterministic contexts do not
   * allow that. */
  out->few_rows = !context->deterministic && p->m < FEW_ROWS && p->transpose_b && !p->transpose_a && p->alpha == 1 && p->beta == 0 &&
                  p->row_sums == NULL;
  if (out->few_rows) {
    out->rows = p->m;
    out->columns = hark_cpu_few_rows_piece(context, n, p->k * (int64_t)sizeof(float));
  } else {
    int64_t rows = hark_min(p->m, PIECE_ROWS), columns = hark_min(n, PIECE_COLUMNS);
    while (products->batch * hark_ceil_div(p->m, rows) * hark_ceil_div(n, columns) < PIECES && rows * columns >= 2 * PIECE_ELEMENTS) {
      if (columns > rows)
        columns = (columns + 1) / 2;
      else
        rows = (rows + 1) / 2;
    }
    /* a sum over many rows, such as a weight's gradient, is long enough to be cut further; the other matrix is then packed once more */
    while (p->k >= LONG_SUM && products->batch * hark_ceil_div(p->m, rows) * hark_ceil_div(n, columns) < PIECES &&
           rows >= 2 * LONG_SUM_ROWS)
      rows = (rows + 1) / 2;
    share(isa, products, &rows, &columns);
    out->rows = round_up(hark_ceil_div(p->m, hark_ceil_div(p->m, rows)), *isa->product_rows);
    out->columns = round_up(hark_ceil_div(n, hark_ceil_div(n, columns)), *isa->product_columns);
  }
  out->pieces_rows = hark_ceil_div(p->m, out->rows);
  out->pieces_columns = hark_ceil_div(n, out->columns);
  out->count = products->batch * out->pieces_rows * out->pieces_columns;
}

/* NULL, of products without terms or without columns, stays NULL. */
static const float *from(const float *matrix, int64_t first) { return matrix != NULL ? matrix + first : NULL; }

static void run_piece(const hark_context *context, const grid *g, int64_t index, int worker) {
  const int64_t column = index % g->pieces_columns * g->columns;
  const int64_t row = index / g->pieces_columns % g->pieces_rows * g->rows;
  const int64_t matrix = index / g->pieces_columns / g->pieces_rows;
  hark_cpu_product p = g->products->product;
  p.m = hark_min(g->rows, p.m - row);
  p.n = hark_min(g->columns, p.n - column);
  p.a = from(p.a, matrix * g->products->stride_a + (p.transpose_a ? row : row * p.lda));
  p.b = from(p.b, matrix * g->products->stride_b + (p.transpose_b ? column * p.ldb : column));
  if (p.c != NULL) p.c += matrix * g->products->stride_c + row * p.ldc + column;
  p.bias = from(p.bias, column);
  p.row_sums = p.row_sums != NULL && column == 0 ? p.row_sums + row : NULL;
  const hark_cpu_isa *isa = hark_cpu_isa_of(context);
  if (g->few_rows)
    isa->few_rows(&p);
  else if (!hark_cpu_onednn_product(isa, &p))
    isa->product(&p, hark_cpu_scratch(context, worker));
}

static void run_task(void *data, int64_t index, int worker) {
  const work *w = data;
  int at = w->count - 1;
  while (index < w->grids[at].first) at--;
  run_piece(w->context, &w->grids[at], index - w->grids[at].first, worker);
}

void hark_cpu_products_run(hark_context *context, const hark_cpu_products *products, int count) {
  work w = {.context = context, .count = count};
  int64_t pieces = 0;
  double operations = 0;
  for (int i = 0; i < count; i++) {
    cut(context, &products[i], &w.grids[i]);
    w.grids[i].first = pieces;
    pieces += w.grids[i].count;
    operations += operations_of(&products[i]);
  }
  const double nanoseconds = operations / OPERATIONS_A_NANOSECOND;
  if (count > 1 && hark_parallel_pays(nanoseconds)) /* of different lengths */
    hark_parallel_for(context, pieces, run_task, &w);
  else
    hark_parallel_for_work(context, pieces, nanoseconds, run_task, &w);
}

/* ---- linear ------------------------------------------------------------------------------------------------------------------------ */
enum { LINEAR_X, LINEAR_WEIGHT, LINEAR_BIAS };

static bool requested(const hark_call *call, int i) { return call->input_gradients[i].type != HARK_NONE; }
static float beta_of(const hark_call *call, int i) { return (call->accumulate >> i & 1u) != 0 ? 1.0f : 0.0f; }

hark_status hark_cpu_linear_forward(hark_context *context, const hark_call *call) {
  const hark_tensor *weight = &call->inputs[LINEAR_WEIGHT];
  const int64_t outputs = weight->shape[0], inputs = weight->shape[1];
  if (outputs == 0) return HARK_OK;
  const hark_cpu_products forward = {.product = {.transpose_b = true,
                                                 .m = hark_tensor_count(&call->outputs[0]) / outputs,
                                                 .n = outputs,
                                                 .k = inputs,
                                                 .alpha = 1,
                                                 .a = call->inputs[LINEAR_X].data,
                                                 .lda = inputs,
                                                 .b = weight->data,
                                                 .ldb = inputs,
                                                 .c = call->outputs[0].data,
                                                 .ldc = outputs,
                                                 .bias = call->input_count > LINEAR_BIAS ? call->inputs[LINEAR_BIAS].data : NULL},
                                     .batch = 1};
  hark_cpu_products_run(context, &forward, 1);
  return HARK_OK;
}

/* Sets a gradient without contributions to zero, unless it is accumulated. */
static hark_status no_gradient(hark_context *context, const hark_call *call, int i) {
  const hark_tensor *gradient = &call->input_gradients[i];
  if (!requested(call, i) || beta_of(call, i) != 0) return HARK_OK;
  return hark_backend_zero(context, gradient->data, (size_t)hark_tensor_count(gradient) * hark_type_bytes(gradient->type));
}

/* y = x W^T + 1 b^T: dx = dy W, dW = dy^T x, db = dy^T 1 */
hark_status hark_cpu_linear_backward(hark_context *context, const hark_call *call) {
  const hark_tensor *dy = &call->output_gradients[0];
  const hark_tensor *weight = &call->inputs[LINEAR_WEIGHT], *x = &call->inputs[LINEAR_X];
  if (dy->type == HARK_NONE || hark_tensor_count(dy) == 0) {
    for (int i = LINEAR_X; i <= LINEAR_BIAS; i++) HARK_TRY(no_gradient(context, call, i));
    return HARK_OK;
  }
  const int64_t outputs = dy->shape[dy->rank - 1], rows = hark_tensor_count(dy) / outputs;
  const bool x_requested = requested(call, LINEAR_X), weight_requested = requested(call, LINEAR_WEIGHT),
             bias_requested = requested(call, LINEAR_BIAS);
  hark_cpu_products products[2];
  int count = 0;
  if (weight_requested ||
      bias_requested) { /* first: few pieces with long sums; if they began last, all other threads would wait for them */
    hark_cpu_products gradient = {.product = {.transpose_a = true, .m = outputs, .k = rows, .alpha = 1, .a = dy->data, .lda = outputs},
                                  .batch = 1};
    hark_cpu_product *p = &gradient.product;
    if (weight_requested) {
      const hark_tensor *dw = &call->input_gradients[LINEAR_WEIGHT];
      p->n = p->ldb = p->ldc = dw->shape[1];
      p->b = x->data;
      p->c = dw->data;
      p->beta = beta_of(call, LINEAR_WEIGHT);
    }
    if (bias_requested) {
      p->row_sums = call->input_gradients[LINEAR_BIAS].data;
      p->add_to_row_sums = beta_of(call, LINEAR_BIAS) != 0;
    }
    products[count++] = gradient;
  }
  if (x_requested) {
    const hark_tensor *dx = &call->input_gradients[LINEAR_X];
    const int64_t inputs = dx->shape[dx->rank - 1];
    products[count++] = (hark_cpu_products){.product = {.m = rows,
                                                        .n = inputs,
                                                        .k = outputs,
                                                        .alpha = 1,
                                                        .a = dy->data,
                                                        .lda = outputs,
                                                        .b = weight->data,
                                                        .ldb = inputs,
                                                        .beta = beta_of(call, LINEAR_X),
                                                        .c = dx->data,
                                                        .ldc = inputs},
                                            .batch = 1};
  }
  hark_cpu_products_run(context, products, count);
  return HARK_OK;
}

/* ---- matmul ------------------------------------------------------------------------------------------------------------------------ */
enum { MATMUL_A, MATMUL_B };

typedef struct extents {
  int64_t batch, m, n, k, lda, ldb;
} extents;

static extents extents_of(const hark_matmul_attributes *attributes, const hark_tensor *a, const hark_tensor *b) {
  const int64_t *of_a = &a->shape[a->rank - 2], *of_b = &b->shape[b->rank - 2];
  extents e = {.batch = 1, .lda = of_a[1], .ldb = of_b[1]};
  for (int i = 0; i + 2 < a->rank; i++) e.batch *= a->shape[i];
  e.m = attributes->transpose_a ? of_a[1] : of_a[0];
  e.k = attributes->transpose_a ? of_a[0] : of_a[1];
  e.n = attributes->transpose_b ? of_b[0] : of_b[1];
  return e;
}

hark_status hark_cpu_matmul_forward(hark_context *context, const hark_call *call) {
  const hark_matmul_attributes *attributes = call->attributes;
  const extents e = extents_of(attributes, &call->inputs[MATMUL_A], &call->inputs[MATMUL_B]);
  const hark_cpu_products forward = {.product = {.transpose_a = attributes->transpose_a,
                                                 .transpose_b = attributes->transpose_b,
                                                 .m = e.m,
                                                 .n = e.n,
                                                 .k = e.k,
                                                 .alpha = 1,
                                                 .a = call->inputs[MATMUL_A].data,
                                                 .lda = e.lda,
                                                 .b = call->inputs[MATMUL_B].data,
                                                 .ldb = e.ldb,
                                                 .c = call->outputs[0].data,
                                                 .ldc = e.n},
                                     .batch = e.batch,
                                     .stride_a = e.m * e.k,
                                     .stride_b = e.k * e.n,
                                     .stride_c = e.m * e.n};
  hark_cpu_products_run(context, &forward, 1);
  return HARK_OK;
}

/* The factors of a gradient: op(left) op(right), m x n, over k. */
typedef struct factor {
  const float *data;
  bool transpose;
  int64_t ld, stride;
} factor;

static hark_cpu_products gradient_of(const hark_call *call, int i, const extents *e, int64_t m, int64_t n, int64_t k, factor left,
                                     factor right) {
  return (hark_cpu_products){.product = {.transpose_a = left.transpose,
                                         .transpose_b = right.transpose,
                                         .m = m,
                                         .n = n,
                                         .k = k,
                                         .alpha = 1,
                                         .a = left.data,
                                         .lda = left.ld,
                                         .b = right.data,
                                         .ldb = right.ld,
                                         .beta = beta_of(call, i),
                                         .c = call->input_gradients[i].data,
                                         .ldc = n},
                             .batch = e->batch,
                             .stride_a = left.stride,
                             .stride_b = right.stride,
                             .stride_c = m * n};
}

/* C = A B with A = op(a), B = op(b): dA = dC B^T, dB = A^T dC; for a transposed operand the gradient is transposed. */
hark_status hark_cpu_matmul_backward(hark_context *context, const hark_call *call) {
  const hark_matmul_attributes *attributes = call->attributes;
  const bool ta = attributes->transpose_a, tb = attributes->transpose_b;
  const extents e = extents_of(attributes, &call->inputs[MATMUL_A], &call->inputs[MATMUL_B]);
  if (call->output_gradients[0].type == HARK_NONE) {
    for (int i = MATMUL_A; i <= MATMUL_B; i++) HARK_TRY(no_gradient(context, call, i));
    return HARK_OK;
  }
  const factor dc = {call->output_gradients[0].data, false, e.n, e.m * e.n}, dc_transposed = {dc.data, true, dc.ld, dc.stride};
  hark_cpu_products products[2];
  int count = 0;
  if (requested(call, MATMUL_A)) {
    const float *b = call->inputs[MATMUL_B].data;
    if (ta) { /* da = B dC^T */
      const factor left = {b, tb, e.ldb, e.k * e.n};
      products[count++] = gradient_of(call, MATMUL_A, &e, e.k, e.m, e.n, left, dc_transposed);
    } else { /* da = dC B^T */
      const factor right = {b, !tb, e.ldb, e.k * e.n};
      products[count++] = gradient_of(call, MATMUL_A, &e, e.m, e.k, e.n, dc, right);
    }
  }
  if (requested(call, MATMUL_B)) {
    const float *a = call->inputs[MATMUL_A].data;
    if (tb) { /* db = dC^T A */
      const factor right = {a, ta, e.lda, e.m * e.k};
      products[count++] = gradient_of(call, MATMUL_B, &e, e.n, e.k, e.m, dc_transposed, right);
    } else { /* db = A^T dC */
      const factor left = {a, !ta, e.lda, e.m * e.k};
      products[count++] = gradient_of(call, MATMUL_B, &e, e.k, e.n, e.m, left, dc);
    }
  }
  hark_cpu_products_run(context, products, count);
  return HARK_OK;
}

/* matrix.c - see matrix.h. */
#include "lab/matrix.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define SWEEPS 60

/* ---- products ---- */

/* Every element is one sum over `inner` in its order, and vectors go over columns. So the bits are those of plain loops, and the same with
 * all vectors, unless products and sums are fused. */
#define ROWS 4    /* of out in registers, with COLUMNS */
#define COLUMNS 8 /* or 4, 2, 1 */
#define CHUNK 64  /* rows of out, and of `inner`, between two copies of a part of b */

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* out [rows][columns] += a b: element (i, k) of a is at i a_row + k a_step, (k, j) of b at k b_row + j. */
typedef struct product {
  int64_t inner, a_row, a_step, b_row, out_row;
  const double *a, *b;
  double *out;
} product;

/* A block of constant size, which compilers make vectors of. */
INLINE void add_block(const int rows, const int columns, const product *p) {
  double sums[ROWS][COLUMNS];
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) sums[i][j] = p->out[i * p->out_row + j];
  for (int64_t k = 0; k < p->inner; k++) {
    const double *const a = p->a + k * p->a_step, *const b = p->b + k * p->b_row;
    for (int i = 0; i < rows; i++)
      for (int j = 0; j < columns; j++) sums[i][j] += a[i * p->a_row] * b[j];
  }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) p->out[i * p->out_row + j] = sums[i][j];
}

INLINE void add_rows(int64_t rows, const int columns, product p) {
  int64_t i = 0;
  for (; i + ROWS <= rows; i += ROWS, p.a += ROWS * p.a_row, p.out += ROWS * p.out_row) add_block(ROWS, columns, &p);
  for (; i < rows; i++, p.a += p.a_row, p.out += p.out_row) add_block(1, columns, &p);
}

INLINE void add_all(int64_t rows, int64_t columns, const product *p) {
  product block = *p;
  for (int64_t left = columns, width; left > 0; left -= width, block.b += width, block.out += width) {
    width = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    if (width == 8) add_rows(rows, 8, block);
    if (width == 4) add_rows(rows, 4, block);
    if (width == 2) add_rows(rows, 2, block);
    if (width == 1) add_rows(rows, 1, block);
  }
}

#if defined(__GNUC__) && defined(__x86_64__)
__attribute__((target("avx2"))) static void add_by_avx2(int64_t rows, int64_t columns, const product *p) { add_all(rows, columns, p); }
static void add_by_sse2(int64_t rows, int64_t columns, const product *p) { add_all(rows, columns, p); }
static void add(int64_t rows, int64_t columns, const product *p) {
  (__builtin_cpu_supports("avx2") ? add_by_avx2 : add_by_sse2)(rows, columns, p);
}
#else
static void add(int64_t rows, int64_t columns, const product *p) { add_all(rows, columns, p); }
#endif

void hark_lab_multiply(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  const product p = {.inner = inner, .a_row = inner, .a_step = 1, .b_row = columns, .out_row = columns, .a = a, .b = b, .out = out};
  for (int64_t i = 0; i < rows * columns; i++) out[i] = 0;
  add(rows, columns, &p);
}

void hark_lab_add_left_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  const product p = {.inner = inner, .a_row = 1, .a_step = rows, .b_row = columns, .out_row = columns, .a = a, .b = b, .out = out};
  add(rows, columns, &p);
}

/* Rows of b become columns of a copy, a part at a time; the sums are added to out at the end. */
void hark_lab_add_right_transposed(int64_t rows, int64_t inner, int64_t columns, const double *a, const double *b, double *out) {
  double turned[CHUNK][COLUMNS], sums[CHUNK][COLUMNS];
  for (int64_t i = 0; i < rows; i += CHUNK)
    for (int64_t j = 0; j < columns; j += COLUMNS) {
      const int64_t height = rows - i < CHUNK ? rows - i : CHUNK, width = columns - j < COLUMNS ? columns - j : COLUMNS;
      memset(sums, 0, sizeof sums);
      for (int64_t first = 0; first < inner; first += CHUNK) {
        const int64_t depth = inner - first < CHUNK ? inner - first : CHUNK;
        for (int64_t k = 0; k < depth; k++)
          for (int64_t c = 0; c < COLUMNS; c++) turned[k][c] = c < width ? b[(j + c) * inner + first + k] : 0;
        const product p = {.inner = depth,
                           .a_row = inner,
                           .a_step = 1,
                           .b_row = COLUMNS,
                           .out_row = COLUMNS,
                           .a = a + i * inner + first,
                           .b = turned[0],
                           .out = sums[0]};
        add(height, COLUMNS, &p);
      }
      for (int64_t r = 0; r < height; r++)
        for (int64_t c = 0; c < width; c++) out[(i + r) * columns + j + c] += sums[r][c];
    }
}

double hark_lab_dot(const double *a, const double *b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
  return sum;
}

void hark_lab_put_on_sphere(int64_t count, int64_t dim, double *rows) {
  for (int64_t i = 0; i < count; i++) {
    double *const row = rows + i * dim;
    const double length = sqrt(hark_lab_dot(row, row, dim));
    for (int64_t c = 0; c < dim; c++) row[c] /= length;
  }
}

bool hark_lab_cholesky(int64_t n, double *a) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      double sum = a[i * n + j];
      for (int64_t k = 0; k < j; k++) sum -= a[i * n + k] * a[j * n + k];
      if (i != j)
        a[i * n + j] = sum / a[j * n + j];
      else if (sum > 0)
        a[i * n + i] = sqrt(sum);
      else
        return false;
    }
  return true;
}

void hark_lab_cholesky_solve(int64_t n, const double *l, int64_t columns, double *b) {
  for (int64_t i = 0; i < n; i++) {
    double *const row = b + i * columns;
    for (int64_t k = 0; k < i; k++)
      for (int64_t c = 0; c < columns; c++) row[c] -= l[i * n + k] * b[k * columns + c];
    for (int64_t c = 0; c < columns; c++) row[c] /= l[i * n + i];
  }
  for (int64_t i = n - 1; i >= 0; i--) {
    double *const row = b + i * columns;
    for (int64_t k = i + 1; k < n; k++)
      for (int64_t c = 0; c < columns; c++) row[c] -= l[k * n + i] * b[k * columns + c];
    for (int64_t c = 0; c < columns; c++) row[c] /= l[i * n + i];
  }
}

/* a <- J^T a J and vectors <- J^T vectors with the rotation J of p and q that makes a[p, q] zero:
 *     t = tan of the smaller angle with  t^2 + 2 z t - 1 = 0,  z = (a[q, q] - a[p, p]) / (2 a[p, q]) */
static void rotate(int64_t n, int64_t p, int64_t q, double *a, double *vectors) {
  const double z = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]), t = copysign(1, z) / (fabs(z) + sqrt(1 + z * z));
  const double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
  for (int64_t k = 0; k < n; k++) {
    const double x = a[k * n + p], y = a[k * n + q];
    a[k * n + p] = cosine * x - sine * y;
    a[k * n + q] = sine * x + cosine * y;
  }
  for (int64_t k = 0; k < n; k++) {
    const double x = a[p * n + k], y = a[q * n + k], u = vectors[p * n + k], v = vectors[q * n + k];
    a[p * n + k] = cosine * x - sine * y;
    a[q * n + k] = sine * x + cosine * y;
    vectors[p * n + k] = cosine * u - sine * v;
    vectors[q * n + k] = sine * u + cosine * v;
  }
}

static void exchange(double *a, double *b) {
  const double t = *a;
  *a = *b;
  *b = t;
}

void hark_lab_eigen(int64_t n, double *a, double *values, double *vectors) {
  double all = 0;
  for (int64_t i = 0; i < n * n; i++) {
    all += a[i] * a[i];
    vectors[i] = i % (n + 1) == 0;
  }
  const double nothing = DBL_EPSILON * sqrt(all) / (double)n;
  for (int sweep = 0, turned = 1; sweep < SWEEPS && turned > 0; sweep++) {
    turned = 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++)
        if (fabs(a[p * n + q]) > nothing) {
          rotate(n, p, q, a, vectors);
          turned++;
        }
  }
  for (int64_t i = 0; i < n; i++) values[i] = a[i * n + i];
  for (int64_t i = 0; i < n; i++) {
    int64_t largest = i;
    for (int64_t j = i + 1; j < n; j++)
      if (values[j] > values[largest]) largest = j;
    if (largest == i) continue;
    exchange(&values[i], &values[largest]);
    for (int64_t k = 0; k < n; k++) exchange(&vectors[i * n + k], &vectors[largest * n + k]);
  }
}

/* w = U S V^T becomes w V D V^T with D = min(1, bound / s); V and s^2 are those of w^T w. */
void hark_lab_cut_norm(int64_t rows, int64_t columns, double bound, double *w) {
  double gram[HARK_LAB_CUT_COLUMNS * HARK_LAB_CUT_COLUMNS] = {0}, values[HARK_LAB_CUT_COLUMNS], all = 0;
  double vectors[HARK_LAB_CUT_COLUMNS * HARK_LAB_CUT_COLUMNS], change[HARK_LAB_CUT_COLUMNS], along;
  hark_lab_add_left_transposed(columns, rows, columns, w, w, gram);
  for (int64_t c = 0; c < columns; c++) all += gram[c * columns + c];
  if (all <= bound * bound) return; /* the Frobenius norm is within the bound */
  hark_lab_eigen(columns, gram, values, vectors);
  if (values[0] <= bound * bound) return;
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t c = 0; c < columns; c++) change[c] = 0;
    for (int64_t v = 0; v < columns && values[v] > bound * bound; v++) {
      along = hark_lab_dot(w + i * columns, vectors + v * columns, columns) * (1 - bound / sqrt(values[v]));
      for (int64_t c = 0; c < columns; c++) change[c] += along * vectors[v * columns + c];
    }
    for (int64_t c = 0; c < columns; c++) w[i * columns + c] -= change[c];
  }
}

/* cpu.h - the parts of the cpu backend: one table per instruction set, found at run time.
 *
 * Every file in isa/ is compiled once per instruction set (generic, avx2, avx512, neon) with HARK_ISA_NAME defined to that word; names of
 * its exports are written HARK_ISA(name), which appends the word. isa/table.c collects one compilation's exports into a hark_cpu_isa.
 */
#ifndef HARK_BACKEND_CPU_CPU_H
#define HARK_BACKEND_CPU_CPU_H

#include "backend/backend.h"

#define HARK_ISA_PASTE_(a, b) a##_##b
#define HARK_ISA_PASTE(a, b) HARK_ISA_PASTE_(a, b)
#define HARK_ISA(name) HARK_ISA_PASTE(name, HARK_ISA_NAME)

/* C[m,n] = alpha op(A) op(B) + beta C + 1 bias^T, row-major, by one thread, without allocation: `scratch` holds at least
 * product_scratch_bytes(). With beta zero C is not read. */
typedef struct hark_cpu_product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha;
  const float *a;
  int64_t lda;
  const float *b;
  int64_t ldb;
  float beta;
  float *c;
  int64_t ldc;
  const float *bias; /* [n], or NULL */
  float *row_sums;   /* [m]: receives the sum over k of op(A), or NULL */
  bool add_to_row_sums;
} hark_cpu_product;

/* An operand of a product in bf16: rows of f32 numbers, which are rounded (core/half.h), or of bf16 numbers. */
typedef struct hark_cpu_operand {
  const void *data;
  hark_type type;
  bool transposed;
  int64_t ld; /* numbers from row to row */
} hark_cpu_operand;

/* C[m,n] = op(A) op(B) + beta C + 1 bias^T with A and B in bf16 and sums in f32, in the order that isa/bf16_product.c defines. */
typedef struct hark_cpu_bf16_product {
  int64_t m, n, k;
  hark_cpu_operand a, b;
  float beta; /* 0: C is not read */
  float *c;
  int64_t ldc;
  const float *bias; /* [n], or NULL */
  float *row_sums;   /* [m]: receives the sum over k of op(A), whose numbers are f32 and transposed, before rounding; or NULL */
  bool add_to_row_sums;
} hark_cpu_bf16_product;

#define HARK_CPU_I8_ROWS 64 /* most rows of a piece of a product of integers */

/* C[n, o] = s[n] scale[o] sum_i q[n, i] W[o, i] + bias[o] for all rows n < m and columns o < n of a piece. The integer sum is exact. */
typedef struct hark_cpu_product_i8 {
  int64_t m, n, k;
  const int8_t *q; /* [m, k], from -127 to 127 */
  const double *s; /* [m] */
  const int8_t *w; /* [n, k] */
  const float *scale;
  const float *bias; /* [n], or NULL */
  float *c;
  int64_t ldc;
} hark_cpu_product_i8;

typedef struct hark_cpu_isa {
  const char *name;
  int vector_bytes;
  bool (*runs_here)(void); /* true if this processor has it; compiled without the instruction set's flags */
  const hark_backend_kernel *kernels;
  int kernel_count;
  const hark_attention_algorithm *const *attention; /* this set's own, ended by NULL */
  void (*product)(const hark_cpu_product *product, void *scratch);
  size_t (*product_scratch_bytes)(void);
  const int *product_rows, *product_columns; /* of the register tile: large products are divided at multiples of them */
  /* The same for C = A B^T + 1 bias^T with few rows in A: reads B once, without packing. */
  void (*few_rows)(const hark_cpu_product *product);
  /* The same bits with the processor's dot products (`dots`; only where has_bf16_dots() is true) and without. */
  void (*bf16_product)(const hark_cpu_bf16_product *product, bool dots, void *scratch);
  size_t (*bf16_product_scratch_bytes)(void);
  bool (*has_bf16_dots)(void);                         /* of this instruction set, on this processor */
  double (*peak_bf16_operations)(int64_t repetitions); /* as peak_operations, of dot products; only with has_bf16_dots() */
  /* The same as few_rows with B of bf16 or f16 (b is not read), and the product with integers. */
  void (*few_rows_halves)(const hark_cpu_product *product, hark_type type, const uint16_t *b);
  void (*product_i8)(const hark_cpu_product_i8 *product);
  void (*widen_halves)(hark_type type, const uint16_t *from, int64_t count, float *to); /* bf16 or f16 to f32, exactly */
  double (*peak_operations)(int64_t repetitions);          /* runs multiply-adds from registers; returns the operations done */
  double (*read_memory)(const float *data, int64_t count); /* sums the data, to measure reading bandwidth */
} hark_cpu_isa;

/* Best last, ended by NULL. The list depends on the processor for which hark was built. */
extern const hark_cpu_isa *const hark_cpu_isas[];

/* The table that the context runs on (cpu or guard backend). */
const hark_cpu_isa *hark_cpu_isa_of(const hark_context *context);

#endif

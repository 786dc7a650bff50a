/* products.h - matrix products over the context's threads, cut into pieces that do not depend on the number of threads. */
#ifndef HARK_BACKEND_CPU_PRODUCTS_H
#define HARK_BACKEND_CPU_PRODUCTS_H

#include "backend/cpu/cpu.h"

/* `batch` products of one shape whose matrices are stride_a, stride_b, stride_c elements apart. */
typedef struct hark_cpu_products {
  hark_cpu_product product;
  int64_t batch, stride_a, stride_b, stride_c;
} hark_cpu_products;

#define HARK_CPU_MAX_PRODUCTS 4

/* Computes `count` of them, which must not depend on each other. */
void hark_cpu_products_run(hark_context *context, const hark_cpu_products *products, int count);

/* How many rows of a matrix are one piece of a product that reads it once: all if there is one thread or the matrix is small, otherwise
 * about 64 to 256 KiB, for long rows more. No result depends on the pieces. */
int64_t hark_cpu_few_rows_piece(const hark_context *context, int64_t rows, int64_t row_bytes);

/* Kernels of the records linear and matmul. */
hark_kernel hark_cpu_linear_forward, hark_cpu_linear_backward, hark_cpu_matmul_forward, hark_cpu_matmul_backward;
/* Kernel of the record linear_compact (compact.c). */
hark_kernel hark_cpu_linear_compact_forward;

#endif

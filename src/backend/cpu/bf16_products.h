/* bf16_products.h - products from bf16 operands over the context's threads, the same bits for any number of them. */
#ifndef HARK_BACKEND_CPU_BF16_PRODUCTS_H
#define HARK_BACKEND_CPU_BF16_PRODUCTS_H

#include "backend/cpu/cpu.h"

/* Computes `count` products, at most two, which must not depend on each other. */
void hark_cpu_bf16_products_run(hark_context *context, const hark_cpu_bf16_product *products, int count);

/* Kernels of the record linear_bf16. */
hark_kernel hark_cpu_linear_bf16_forward, hark_cpu_linear_bf16_backward;

#endif

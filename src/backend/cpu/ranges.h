/* ranges.h - shared by the kernels of the cpu backend: work cut into ranges, and gradients without contributions. */
#ifndef HARK_BACKEND_CPU_RANGES_H
#define HARK_BACKEND_CPU_RANGES_H

#include <hark/operators.h>

#include "core/core.h"

/* Elements of one piece of an element-wise kernel: 64 KiB of f32, with the other operands about a quarter of a second-level cache. A
 * multiple of every vector and of the four words of a random counter. */
#define HARK_CPU_GRAIN 16384

/* Runs body on the ranges [0, grain), [grain, 2 grain), ... of [0, count). Work on fewer than `serial` numbers stays on the calling
 * thread. */
typedef void hark_cpu_range(const hark_call *call, int64_t first, int64_t last);
void hark_cpu_ranges(hark_context *context, const hark_call *call, int64_t count, int64_t grain, int64_t serial, hark_cpu_range *body);

/* Ranges of elements limited by memory, and of elements with an exponential each, which are a quarter as long for the same time. */
typedef void hark_cpu_spread(hark_context *context, const hark_call *call, int64_t count, hark_cpu_range *body);
void hark_cpu_elements(hark_context *context, const hark_call *call, int64_t count, hark_cpu_range *body);
void hark_cpu_exponentials(hark_context *context, const hark_call *call, int64_t count, hark_cpu_range *body);
/* Ranges of rows of `length` elements, of about HARK_CPU_GRAIN / 2 elements. */
void hark_cpu_rows(hark_context *context, const hark_call *call, int64_t rows, int64_t length, hark_cpu_range *body);

/* True if output 0 has no gradient: then the gradients that are not accumulated have been set to zero, and the backward is done. */
bool hark_cpu_no_gradient(const hark_call *call);

static inline bool hark_cpu_requested(const hark_call *call, int input) { return call->input_gradients[input].type != HARK_NONE; }
static inline bool hark_cpu_adds(const hark_call *call, int input) { return (call->accumulate >> input & 1u) != 0; }
/* The extent of the last dimension, and the product of the others. */
static inline int64_t hark_cpu_row_length(const hark_tensor *tensor) { return tensor->shape[tensor->rank - 1]; }
static inline int64_t hark_cpu_row_count(const hark_tensor *tensor) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < tensor->rank; i++) rows *= tensor->shape[i];
  return rows;
}

#endif

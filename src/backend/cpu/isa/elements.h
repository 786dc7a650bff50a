/* elements.h - loops of element-wise kernels: y[i] = f(x[i], ...) over a range, vector after vector, the last one in part.
 *
 * Each vector is read completely before it is written, so that a result may overwrite an operand. */
#ifndef HARK_BACKEND_CPU_ISA_ELEMENTS_H
#define HARK_BACKEND_CPU_ISA_ELEMENTS_H

#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/ranges.h"
#include "backend/cpu/simd.h"

/* Loads and stores of `count` lanes, HARK_LANES in the inner part of a loop. */
HARK_SIMD vf load_lanes(const float *from, int count) { return count == HARK_LANES ? vf_load(from) : vf_load_part(from, count); }
HARK_SIMD void store_lanes(float *to, vf x, int count) {
  if (count == HARK_LANES)
    vf_store(to, x);
  else
    vf_store_part(to, x, count);
}
/* to <- x, or to + x */
HARK_SIMD void give_lanes(float *to, vf x, bool add, int count) { store_lanes(to, add ? load_lanes(to, count) + x : x, count); }

/* A function of one or two operands, with constants computed before the loop. */
typedef vf unary(const void *constants, vf x);
typedef vf binary(const void *constants, vf x, vf y);

HARK_SIMD void map(unary *f, const void *constants, float *y, bool add, const float *x, int64_t first, int64_t last) {
  int64_t i = first;
  for (; i + HARK_LANES <= last; i += HARK_LANES) give_lanes(y + i, f(constants, vf_load(x + i)), add, HARK_LANES);
  if (i < last) give_lanes(y + i, f(constants, vf_load_part(x + i, (int)(last - i))), add, (int)(last - i));
}

HARK_SIMD void map2(binary *f, const void *constants, float *to, bool add, const float *x, const float *y, int64_t first, int64_t last) {
  int64_t i = first;
  for (; i + HARK_LANES <= last; i += HARK_LANES) give_lanes(to + i, f(constants, vf_load(x + i), vf_load(y + i)), add, HARK_LANES);
  if (i < last) {
    const int rest = (int)(last - i);
    give_lanes(to + i, f(constants, vf_load_part(x + i, rest), vf_load_part(y + i, rest)), add, rest);
  }
}

/* The forward of y = f(x) on a range. */
HARK_SIMD void forward_map(unary *f, const void *constants, const hark_call *call, int64_t first, int64_t last) {
  map(f, constants, call->outputs[0].data, false, call->inputs[0].data, first, last);
}
/* dx = g(x, dy); `of` is x, or y if g is a function of the output. */
HARK_SIMD void backward_map(binary *g, const void *constants, const hark_call *call, const hark_tensor *of, int64_t first, int64_t last) {
  const float *dy = call->output_gradients[0].data;
  if (hark_cpu_adds(call, 0))
    map2(g, constants, call->input_gradients[0].data, true, of->data, dy, first, last);
  else
    map2(g, constants, call->input_gradients[0].data, false, of->data, dy, first, last);
}

/* `spread`: hark_cpu_elements or hark_cpu_exponentials. */
static inline hark_status spread_forward(hark_context *context, const hark_call *call, hark_cpu_spread *spread, hark_cpu_range *body) {
  spread(context, call, hark_tensor_count(&call->inputs[0]), body);
  return HARK_OK;
}
static inline hark_status spread_backward(hark_context *context, const hark_call *call, hark_cpu_spread *spread, hark_cpu_range *body) {
  if (!hark_cpu_no_gradient(call)) spread(context, call, hark_tensor_count(&call->output_gradients[0]), body);
  return HARK_OK;
}
static inline hark_status run_forward(hark_context *context, const hark_call *call, hark_cpu_range *body) {
  return spread_forward(context, call, hark_cpu_elements, body);
}
static inline hark_status run_backward(hark_context *context, const hark_call *call, hark_cpu_range *body) {
  return spread_backward(context, call, hark_cpu_elements, body);
}

#endif

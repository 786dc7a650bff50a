/* elements.c - y = a + b and y = factor x. Limited by memory: 12 and 8 bytes per element. */
#include "backend/cpu/isa/elements.h"

/* ---- add --------------------------------------------------------------------------------------------------------------------------- */
HARK_SIMD vf add(const void *constants, vf a, vf b) {
  (void)constants;
  return a + b;
}
HARK_SIMD vf same(const void *constants, vf x) {
  (void)constants;
  return x;
}

static void add_range(const hark_call *call, int64_t first, int64_t last) {
  map2(add, NULL, call->outputs[0].data, false, call->inputs[0].data, call->inputs[1].data, first, last);
}
hark_status HARK_ISA(hark_cpu_add_forward)(hark_context *context, const hark_call *call) { return run_forward(context, call, add_range); }

/* y = a + b: da = dy, db = dy */
static void add_backward_range(const hark_call *call, int64_t first, int64_t last) {
  for (int i = 0; i < 2; i++)
    if (hark_cpu_requested(call, i))
      map(same, NULL, call->input_gradients[i].data, hark_cpu_adds(call, i), call->output_gradients[0].data, first, last);
}
hark_status HARK_ISA(hark_cpu_add_backward)(hark_context *context, const hark_call *call) {
  return run_backward(context, call, add_backward_range);
}

/* ---- scale ------------------------------------------------------------------------------------------------------------------------- */
HARK_SIMD vf times(const void *constants, vf x) { return vf_set(*(const float *)constants) * x; }

static float factor_of(const hark_call *call) { return (float)((const hark_scale_attributes *)call->attributes)->factor; }

static void scale_range(const hark_call *call, int64_t first, int64_t last) {
  const float factor = factor_of(call);
  forward_map(times, &factor, call, first, last);
}
/* y = factor x: dx = factor dy */
static void scale_backward_range(const hark_call *call, int64_t first, int64_t last) {
  const float factor = factor_of(call);
  map(times, &factor, call->input_gradients[0].data, hark_cpu_adds(call, 0), call->output_gradients[0].data, first, last);
}
hark_status HARK_ISA(hark_cpu_scale_forward)(hark_context *context, const hark_call *call) {
  return run_forward(context, call, scale_range);
}
hark_status HARK_ISA(hark_cpu_scale_backward)(hark_context *context, const hark_call *call) {
  return run_backward(context, call, scale_backward_range);
}

/* bf16_round.c - kernel of the record round_bf16: f32 numbers to the nearest bf16. Its backward passes the gradient on. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/ranges.h"

static void round_range(const hark_call *call, int64_t first, int64_t last) {
  const float *x = call->inputs[0].data;
  uint16_t *y = call->outputs[0].data;
  int64_t i = first;
  for (; i + HARK_LANES <= last; i += HARK_LANES) bf16_store(y + i, vf_load(x + i), HARK_LANES);
  if (i < last) bf16_store(y + i, vf_load_part(x + i, (int)(last - i)), (int)(last - i));
}

hark_status HARK_ISA(hark_cpu_round_bf16_forward)(hark_context *context, const hark_call *call) {
  hark_cpu_elements(context, call, hark_tensor_count(&call->inputs[0]), round_range);
  return HARK_OK;
}

/* dropout.c - y[i] = keep(i) x[i] / (1 - p), keep(i): word i of the stream >= p 2^32. The backward draws the same words again.
 *
 * Ten rounds of Philox for four elements, one counter per lane. Srivastava et al., JMLR 15 (2014).
 */
#include "backend/cpu/isa/elements.h"
#include "backend/cpu/isa/philox.h"

#define WORDS 4 /* of a counter */
#define DRAWN (WORDS * HARK_LANES)

/* words[i] <- word i % 4 of counter index + i / 4 of the stream, for one vector of counters. */
HARK_SIMD void draw(const hark_random_stream *stream, uint64_t index, uint32_t words[DRAWN]) {
  uint32_t low[HARK_LANES], high[HARK_LANES];
  for (int lane = 0; lane < HARK_LANES; lane++) {
    const uint64_t counter = index + stream->first_index + (uint64_t)lane;
    low[lane] = (uint32_t)counter;
    high[lane] = (uint32_t)(counter >> 32);
  }
  vu drawn[WORDS] = {vu_load(low), vu_load(high), vu_set(stream->micro_step), vu_set(stream->layer_purpose)};
  philox(stream->seed, drawn);
  uint32_t columns[WORDS][HARK_LANES];
  for (int w = 0; w < WORDS; w++) vu_store(columns[w], drawn[w]);
  for (int lane = 0; lane < HARK_LANES; lane++)
    for (int w = 0; w < WORDS; w++) words[WORDS * lane + w] = columns[w][lane];
}

HARK_SIMD void drop(const hark_call *call, float *to, bool add, const float *from, int64_t first, int64_t last) {
  const hark_dropout_attributes *attributes = call->attributes;
  const vu threshold = vu_set(hark_random_threshold(attributes->probability));
  const vf kept = vf_set((float)(1 / (1 - attributes->probability)));
  uint32_t words[DRAWN];
  for (int64_t i = first; i < last; i += DRAWN) {
    draw(&attributes->stream, (uint64_t)i / WORDS, words);
    for (int64_t j = 0; j < DRAWN && i + j < last; j += HARK_LANES) {
      const int count = (int)hark_min(HARK_LANES, last - i - j);
      const vm dropped = vu_less(vu_load(words + j), threshold);
      give_lanes(to + i + j, vf_select(dropped, vf_zero(), kept * load_lanes(from + i + j, count)), add, count);
    }
  }
}

static void dropout_range(const hark_call *call, int64_t first, int64_t last) {
  drop(call, call->outputs[0].data, false, call->inputs[0].data, first, last);
}
/* y = keep x / (1 - p): dx = keep dy / (1 - p), with the same words again */
static void dropout_backward_range(const hark_call *call, int64_t first, int64_t last) {
  drop(call, call->input_gradients[0].data, hark_cpu_adds(call, 0), call->output_gradients[0].data, first, last);
}
hark_status HARK_ISA(hark_cpu_dropout_forward)(hark_context *context, const hark_call *call) {
  return run_forward(context, call, dropout_range);
}
hark_status HARK_ISA(hark_cpu_dropout_backward)(hark_context *context, const hark_call *call) {
  return run_backward(context, call, dropout_backward_range);
}

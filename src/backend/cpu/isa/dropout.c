/* dropout.c - y[i] = keep(i) x[i] / (1 - p), keep(i): word i of the stream >= p 2^32. The backward draws the same words again.
 *
 * Ten rounds of Philox (see hark/random.h) for four elements, COUNTERS counters side by side. Srivastava et al., JMLR 15 (2014).
 */
#include "backend/cpu/isa/elements.h"

#define COUNTERS 16 /* counters drawn at a time: whole vectors in every instruction set */
#define WORDS 4     /* of a counter */
#define ROUNDS 10
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0 0x9E3779B9u
#define WEYL_1 0xBB67AE85u

/* hark_random_words() for COUNTERS counters from `index` on: words[WORDS c + w] is word w of counter index + c. */
static void draw(const hark_random_stream *stream, uint64_t index, uint32_t words[COUNTERS * WORDS]) {
  uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
  for (int i = 0; i < COUNTERS; i++) {
    const uint64_t at = index + stream->first_index + (uint64_t)i;
    c0[i] = (uint32_t)at;
    c1[i] = (uint32_t)(at >> 32);
    c2[i] = stream->micro_step;
    c3[i] = stream->layer_purpose;
  }
  uint32_t k0 = (uint32_t)stream->seed, k1 = (uint32_t)(stream->seed >> 32);
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < COUNTERS; i++) {
      const uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0[i], p1 = (uint64_t)MULTIPLIER_1 * c2[i];
      c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = (uint32_t)p1;
      c3[i] = (uint32_t)p0;
    }
    k0 += WEYL_0;
    k1 += WEYL_1;
  }
  for (int i = 0; i < COUNTERS; i++) {
    words[WORDS * i] = c0[i];
    words[WORDS * i + 1] = c1[i];
    words[WORDS * i + 2] = c2[i];
    words[WORDS * i + 3] = c3[i];
  }
}

HARK_SIMD void drop(const hark_call *call, float *to, bool add, const float *from, int64_t first, int64_t last) {
  const hark_dropout_attributes *attributes = call->attributes;
  const vu threshold = vu_set(hark_random_threshold(attributes->probability));
  const vf kept = vf_set((float)(1 / (1 - attributes->probability)));
  uint32_t words[COUNTERS * WORDS];
  for (int64_t i = first; i < last; i += COUNTERS * WORDS) {
    draw(&attributes->stream, (uint64_t)i / WORDS, words);
    for (int64_t j = 0; j < COUNTERS * WORDS && i + j < last; j += HARK_LANES) {
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

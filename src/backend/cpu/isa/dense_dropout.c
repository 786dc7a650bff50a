/* dense_dropout.c - dropout of attention weights, keyed by the entry's indices and not by the order of tiles.
 *
 *     entry (b, h, n, i) is kept if word i % 4 of Philox counter ((b H + h) 2^23 + n) 2^21 + i / 4 is >= p 2^32
 *     kept weights are multiplied by 1/(1-p)
 *
 * Lanes are queries; a counter has the words of four keys. Cost: ten rounds of two 32 x 32 bit products for four entries. Source: Salmon et
 * al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; hark_random_words() is the same for one counter.
 */
#include "backend/cpu/isa/philox.h"
#include "dense_tile.h"

void HARK_ISA(hark_dense_drop)(const hark_dense_tile *tile, float *weights) {
  const hark_dense_call *call = tile->call;
  const hark_random_stream *stream = &call->args->dropout;
  const uint64_t plane = (uint64_t)(tile->sequence->item * call->heads + tile->head) << 23;
  const uint64_t row = (uint64_t)(hark_dense_query_row(tile) + tile->call->queries_before);
  const int64_t first_key = hark_dense_key_row(tile) + tile->call->keys_before, last_key = first_key + tile->keys;
  const vu threshold = vu_set(call->dropout_threshold);
  const vf gain = vf_set(call->dropout_gain);
  for (int m = 0; m < hark_dense_vectors(tile); m++)
    for (int64_t quad = first_key / 4; quad * 4 < last_key; quad++) {
      const int64_t begin = hark_max(quad * 4, first_key), end = hark_min(quad * 4 + 4, last_key);
      if (hark_dense_first_vector(tile, (int)(begin - first_key)) > m) continue;
      uint32_t low[HARK_LANES], high[HARK_LANES];
      for (int lane = 0; lane < HARK_LANES; lane++) {
        const uint64_t counter = ((plane + row + (uint64_t)(m * HARK_LANES + lane)) << 21) + (uint64_t)quad + stream->first_index;
        low[lane] = (uint32_t)counter;
        high[lane] = (uint32_t)(counter >> 32);
      }
      vu words[4] = {vu_load(low), vu_load(high), vu_set(stream->micro_step), vu_set(stream->layer_purpose)};
      philox(stream->seed, words);
      for (int64_t key = begin; key < end; key++) {
        float *at = weights + (key - first_key) * HARK_TILE_QUERIES + m * HARK_LANES;
        vf_store(at, vf_select(vu_less(words[key % 4], threshold), vf_zero(), vf_load(at) * gain));
      }
    }
}

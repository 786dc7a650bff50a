/* table_samples.c - see table_samples.h. */
#include "data/examples/table_samples.h"

#include <hark/random.h>
#include <math.h>

#include "core/core.h"
#include "data/permutation.h"

#define STREAM_CONTEXT 7 /* of HARK_RANDOM_DATA; 0 to 6: batches.c, permutation.c, example_batches.c, masking.c, sentences.c */
#define ROUND_BITS 32

int64_t hark_table_split_least(const hark_table_split *split) { return split->least + hark_max(1, split->queries); }

/* Uniform in [0, 1). */
static double uniform_of(uint64_t seed, int64_t sample) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(STREAM_CONTEXT, HARK_RANDOM_DATA)};
  uint32_t words[4];
  hark_random_words(&stream, (uint64_t)sample, words);
  return (double)words[0] * 0x1p-32;
}

hark_table_sizes hark_table_split_sizes(const hark_table_split *split, uint64_t seed, int64_t sample, int64_t rows) {
  const int64_t room = rows - hark_max(1, split->queries), most = split->most > 0 ? hark_min(split->most, room) : room;
  const double ratio = (double)(most + 1) / (double)split->least;
  const int64_t drawn = (int64_t)((double)split->least * pow(ratio, uniform_of(seed, sample)));
  hark_table_sizes sizes = {.context = hark_max(split->least, hark_min(most, drawn))};
  sizes.queries = split->queries > 0 ? split->queries : rows - sizes.context;
  return sizes;
}

int64_t hark_table_split_row(uint64_t seed, int64_t sample, int64_t rows, int64_t place) {
  return hark_permute(seed + (uint64_t)sample / ((uint64_t)1 << ROUND_BITS), (uint32_t)sample, rows, place);
}

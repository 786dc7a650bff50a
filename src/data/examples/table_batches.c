/* table_batches.c - see table_batches.h. */
#include "data/examples/table_batches.h"

#include <hark/random.h>
#include <math.h>
#include <string.h>

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

/* A constant's deviation is the rounding of its mean. */
#define CONSTANT_DEVIATION 1e-7

hark_column_scale hark_column_scale_of(const float *numbers, int64_t stride, int64_t count) {
  double sum = 0, squares = 0, present = 0;
  for (int64_t i = 0; i < count; i++) {
    if (isnan(numbers[i * stride])) continue;
    sum += numbers[i * stride];
    present++;
  }
  const double mean = present > 0 ? sum / present : 0;
  for (int64_t i = 0; i < count; i++) {
    const double apart = numbers[i * stride] - mean;
    if (!isnan(apart)) squares += apart * apart;
  }
  const double deviation = present > 0 ? sqrt(squares / present) : 0;
  return (hark_column_scale){mean, deviation > fabs(mean) * CONSTANT_DEVIATION ? deviation : 1};
}

void hark_table_put(const float *row, int64_t inputs, int64_t responses, const hark_table_block *block, int64_t to) {
  memcpy(block->inputs + 2 * to * inputs, row, (size_t)inputs * sizeof *row);
  if (block->targets != NULL) memcpy(block->targets + to * responses, row + inputs, (size_t)responses * sizeof *row);
}

static void scale_column(const hark_column_scale *scale, float *numbers, int64_t stride, int64_t count) {
  for (int64_t i = 0; i < count; i++) numbers[i * stride] = (float)((numbers[i * stride] - scale->mean) / scale->deviation);
}

/* Numbers `inputs` after a value is whether it is missing, which is then 0. */
static void mark_missing(float *numbers, int64_t stride, int64_t count, int64_t inputs) {
  for (int64_t i = 0; i < count; i++) {
    const bool missing = isnan(numbers[i * stride]);
    numbers[i * stride + inputs] = missing ? 1 : 0;
    if (missing) numbers[i * stride] = 0;
  }
}

void hark_table_scale(bool standardise, int64_t inputs, int64_t responses, const hark_table_block *context, const hark_table_block *queries,
                      hark_column_scale *scales) {
  const hark_table_block *const blocks[] = {context, queries};
  hark_column_scale scale = {0, 1};
  for (int64_t c = 0; c < inputs; c++) {
    if (standardise) scale = hark_column_scale_of(context->inputs + c, 2 * inputs, context->rows);
    for (int b = 0; b < 2; b++) {
      if (standardise) scale_column(&scale, blocks[b]->inputs + c, 2 * inputs, blocks[b]->rows);
      mark_missing(blocks[b]->inputs + c, 2 * inputs, blocks[b]->rows, inputs);
    }
  }
  for (int64_t r = 0; r < responses; r++) {
    if (standardise) scale = hark_column_scale_of(context->targets + r, responses, context->rows);
    scales[r] = scale;
    for (int b = 0; b < 2 && standardise; b++)
      if (blocks[b]->targets != NULL) scale_column(&scale, blocks[b]->targets + r, responses, blocks[b]->rows);
  }
}

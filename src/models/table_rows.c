/* table_rows.c - see table_rows.h. */
#include "models/table_rows.h"

#include <math.h>
#include <string.h>

/* A constant's deviation is the rounding of its mean. */
#define CONSTANT_DEVIATION 1e-7

hark_column_scale hark_column_scale_of(const float *numbers, int64_t stride, int64_t count, bool *constant) {
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
  const bool varies = deviation > fabs(mean) * CONSTANT_DEVIATION;
  if (constant != NULL) *constant = !varies;
  return (hark_column_scale){mean, varies ? deviation : 1};
}

void hark_table_put(const float *row, int64_t inputs, int64_t responses, const hark_table_block *block, int64_t to) {
  memcpy(block->inputs + 2 * to * inputs, row, (size_t)inputs * sizeof *row);
  if (block->targets != NULL) memcpy(block->targets + to * responses, row + inputs, (size_t)responses * sizeof *row);
}

void hark_table_put_classes(const int32_t *classes, int64_t rows, int64_t count, float *targets, int64_t queries, float *level) {
  double frequency[HARK_CLASS_MOST] = {0};
  for (int64_t i = 0; i < rows; i++) frequency[classes[i]] += 1 / (double)rows;
  for (int64_t c = 0; c < count; c++) {
    const float logarithm = frequency[c] > 0 ? (float)log(frequency[c]) : HARK_CLASS_ABSENT;
    for (int64_t i = 0; i < rows; i++) targets[i * count + c] = (float)((classes[i] == c) - frequency[c]);
    for (int64_t i = 0; i < queries; i++) level[i * count + c] = logarithm;
  }
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
    if (standardise) scale = hark_column_scale_of(context->inputs + c, 2 * inputs, context->rows, NULL);
    for (int b = 0; b < 2; b++) {
      if (standardise) scale_column(&scale, blocks[b]->inputs + c, 2 * inputs, blocks[b]->rows);
      mark_missing(blocks[b]->inputs + c, 2 * inputs, blocks[b]->rows, inputs);
    }
  }
  for (int64_t r = 0; r < responses; r++) {
    if (standardise) scale = hark_column_scale_of(context->targets + r, responses, context->rows, NULL);
    scales[r] = scale;
    for (int b = 0; b < 2 && standardise; b++)
      if (blocks[b]->targets != NULL) scale_column(&scale, blocks[b]->targets + r, responses, blocks[b]->rows);
  }
}

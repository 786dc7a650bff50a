/* sequences.c - every kind of batch as a list of sequences, and clearing the gaps between them.
 *
 *     rectangular        rows 0..Lq of item b attend to keys 0..key_lengths[b]
 *     ragged             rows query_offsets[s]..query_offsets[s+1] attend to keys key_offsets[s]..key_offsets[s+1], all of item 0
 *     segments           0 0 0 1 1 -1 -1 7: three sequences of 3, 2 and 1 rows and keys, and two rows of padding
 *
 * Rows in no sequence (padding, sequences without keys) are gaps between the sequences of the list, which is in ascending order.
 */
#include <math.h>

#include "attention/layer.h"

hark_attention_walk hark_attention_walk_start(const hark_attention_args *args, bool causal, bool backward) {
  return (hark_attention_walk){.args = args, .causal = causal, .keyless = (backward ? args->dvariance : args->variance).type != HARK_NONE};
}

static bool next_ragged(hark_attention_walk *walk, hark_attention_sequence *out) {
  const hark_attention_args *args = walk->args;
  while (walk->item < args->sequences) {
    const int64_t s = walk->item++;
    const int64_t queries = args->query_offsets[s + 1] - args->query_offsets[s], keys = args->key_offsets[s + 1] - args->key_offsets[s];
    if (queries == 0 || (keys == 0 && !walk->keyless)) continue;
    *out = (hark_attention_sequence){.item = 0,
                                     .query_row = args->query_offsets[s],
                                     .query_count = queries,
                                     .key_row = args->key_offsets[s],
                                     .key_count = keys,
                                     .offset = walk->causal ? keys - queries : 0};
    if (args->has_query_offset) out->offset = args->query_offset;
    return true;
  }
  return false;
}

static bool next_segment(hark_attention_walk *walk, hark_attention_sequence *out) {
  const hark_attention_args *args = walk->args;
  const int64_t length = args->key.shape[2];
  for (; walk->item < args->key.shape[0]; walk->item++, walk->row = 0) {
    const int64_t *ids = args->segments + walk->item * length;
    while (walk->row < length) {
      const int64_t first = walk->row;
      while (walk->row < length && ids[walk->row] == ids[first]) walk->row++;
      if (ids[first] < 0) continue;
      const int64_t count = walk->row - first;
      *out = (hark_attention_sequence){
          .item = walk->item, .query_row = first, .query_count = count, .key_row = first, .key_count = count, .offset = 0};
      return true;
    }
  }
  return false;
}

static bool next_item(hark_attention_walk *walk, hark_attention_sequence *out) {
  const hark_attention_args *args = walk->args;
  const int64_t queries = args->query.shape[2], rows = args->key.shape[2];
  while (walk->item < args->query.shape[0]) {
    const int64_t item = walk->item++;
    const int64_t keys = args->key_lengths != NULL ? args->key_lengths[item] : rows;
    if (queries == 0 || (keys == 0 && !walk->keyless)) continue;
    *out = (hark_attention_sequence){
        .item = item, .query_row = 0, .query_count = queries, .key_row = 0, .key_count = keys, .offset = walk->causal ? rows - queries : 0};
    if (args->has_query_offset) out->offset = args->query_offset;
    return true;
  }
  return false;
}

bool hark_attention_walk_next(hark_attention_walk *walk, hark_attention_sequence *out) {
  if (walk->args->query_offsets != NULL) return next_ragged(walk, out);
  if (walk->args->segments != NULL) return next_segment(walk, out);
  return next_item(walk, out);
}

/* Sets rows [from, to) of all heads of an item of a tensor [B, H, L, d] to zero. */
static hark_status clear_rows(hark_context *context, const hark_tensor *tensor, int64_t item, int64_t from, int64_t to) {
  if (tensor->type == HARK_NONE || from >= to) return HARK_OK;
  const size_t element = hark_type_bytes(tensor->type), row_bytes = element * (size_t)tensor->shape[3];
  const bool adjacent = tensor->stride[2] == tensor->shape[3];
  for (int64_t head = 0; head < tensor->shape[1]; head++) {
    char *rows = (char *)tensor->data + (item * tensor->stride[0] + head * tensor->stride[1]) * (int64_t)element;
    if (adjacent) {
      HARK_TRY(hark_backend_zero(context, rows + from * (int64_t)row_bytes, row_bytes * (size_t)(to - from)));
      continue;
    }
    for (int64_t row = from; row < to; row++)
      HARK_TRY(hark_backend_zero(context, rows + row * tensor->stride[2] * (int64_t)element, row_bytes));
  }
  return HARK_OK;
}

/* Sets rows [from, to) of all heads of an item of a statistic [B, H, L], such as log_sum_exp, to `value`. */
static hark_status clear_statistic(hark_context *context, const hark_tensor *tensor, double value, int64_t item, int64_t from, int64_t to) {
  enum { PIECE = 64 };
  if (tensor->type == HARK_NONE || from >= to) return HARK_OK;
  float singles[PIECE];
  double doubles[PIECE];
  for (int i = 0; i < PIECE; i++) {
    singles[i] = (float)value;
    doubles[i] = value;
  }
  const void *source = tensor->type == HARK_F64 ? (const void *)doubles : (const void *)singles;
  const int64_t element = (int64_t)hark_type_bytes(tensor->type), heads = tensor->shape[1], length = tensor->shape[2];
  for (int64_t head = 0; head < heads; head++)
    for (int64_t row = from; row < to; row += PIECE) {
      char *target = (char *)tensor->data + ((item * heads + head) * length + row) * element;
      HARK_TRY(hark_backend_write(context, target, source, (size_t)(hark_min(PIECE, to - row) * element)));
    }
  return HARK_OK;
}

/* Sets all elements from dimension `dimension` on to zero, in contiguous runs. */
static hark_status clear_all(hark_context *context, const hark_tensor *tensor, int dimension, char *data) {
  const int64_t element = (int64_t)hark_type_bytes(tensor->type);
  if (dimension == tensor->rank) return hark_backend_zero(context, data, (size_t)element);
  if (dimension == tensor->rank - 1 && tensor->stride[dimension] == 1)
    return hark_backend_zero(context, data, (size_t)(tensor->shape[dimension] * element));
  const int64_t extent = tensor->stride[dimension] == 0 ? hark_min(tensor->shape[dimension], 1) : tensor->shape[dimension];
  for (int64_t i = 0; i < extent; i++) HARK_TRY(clear_all(context, tensor, dimension + 1, data + i * tensor->stride[dimension] * element));
  return HARK_OK;
}

static hark_status clear_term(hark_context *context, const hark_tensor *tensor, bool accumulated) {
  if (tensor->type == HARK_NONE || accumulated) return HARK_OK;
  if (hark_tensor_is_contiguous(tensor))
    return hark_backend_zero(context, tensor->data, hark_type_bytes(tensor->type) * (size_t)hark_tensor_count(tensor));
  return clear_all(context, tensor, 0, tensor->data);
}

/* The tensors whose gaps are cleared: rows of the query side and of the key side. */
typedef struct gap_tensors {
  hark_tensor query_side, log_sum_exp, variance, log_determinant, quadratic, key_side[2];
  int64_t query_rows, key_rows;
} gap_tensors;

static hark_status clear_gap(hark_context *context, const gap_tensors *tensors, int64_t item, int64_t query_from, int64_t query_to,
                             int64_t key_from, int64_t key_to) {
  HARK_TRY(clear_rows(context, &tensors->query_side, item, query_from, query_to));
  HARK_TRY(clear_statistic(context, &tensors->log_sum_exp, -INFINITY, item, query_from, query_to));
  HARK_TRY(clear_statistic(context, &tensors->variance, 0, item, query_from, query_to));
  HARK_TRY(clear_statistic(context, &tensors->log_determinant, 0, item, query_from, query_to));
  HARK_TRY(clear_rows(context, &tensors->quadratic, item, query_from, query_to));
  HARK_TRY(clear_rows(context, &tensors->key_side[0], item, key_from, key_to));
  return clear_rows(context, &tensors->key_side[1], item, key_from, key_to);
}

hark_status hark_attention_clear(hark_context *context, const hark_attention_args *args, bool causal, bool backward) {
  gap_tensors tensors = {.query_rows = args->query.shape[2], .key_rows = args->key.shape[2]};
  if (backward) {
    HARK_TRY(clear_term(context, &args->dattention_bias, args->accumulate & HARK_ACCUMULATE_BIAS));
    HARK_TRY(clear_term(context, &args->dlog_kernel, args->accumulate & HARK_ACCUMULATE_LOG_KERNEL));
    HARK_TRY(clear_term(context, &args->dforget, args->accumulate & HARK_ACCUMULATE_FORGET));
    HARK_TRY(clear_term(context, &args->dhierarchical_bias, args->accumulate & HARK_ACCUMULATE_HIERARCHICAL_BIAS));
    HARK_TRY(clear_term(context, &args->dridge, args->accumulate & HARK_ACCUMULATE_RIDGE));
    HARK_TRY(clear_term(context, &args->dsigma, args->accumulate & HARK_ACCUMULATE_SIGMA));
    HARK_TRY(clear_term(context, &args->dnoise, args->accumulate & HARK_ACCUMULATE_NOISE));
    HARK_TRY(clear_term(context, &args->dcontextual, args->accumulate & HARK_ACCUMULATE_CONTEXTUAL));
    if (!(args->accumulate & HARK_ACCUMULATE_QUERY)) tensors.query_side = args->dquery;
    if (!(args->accumulate & HARK_ACCUMULATE_KEY)) tensors.key_side[0] = args->dkey;
    if (!(args->accumulate & HARK_ACCUMULATE_VALUE)) tensors.key_side[1] = args->dvalue;
  } else {
    tensors.query_side = args->out;
    tensors.log_sum_exp = args->log_sum_exp;
    tensors.variance = args->variance;
    tensors.log_determinant = args->log_determinant;
    tensors.quadratic = args->quadratic;
  }
  hark_attention_walk walk = hark_attention_walk_start(args, causal, backward);
  hark_attention_sequence sequence;
  int64_t item = 0, query_row = 0, key_row = 0; /* the end of the last sequence */
  while (hark_attention_walk_next(&walk, &sequence)) {
    for (; item < sequence.item; item++, query_row = key_row = 0)
      HARK_TRY(clear_gap(context, &tensors, item, query_row, tensors.query_rows, key_row, tensors.key_rows));
    HARK_TRY(clear_gap(context, &tensors, item, query_row, sequence.query_row, key_row, sequence.key_row));
    query_row = sequence.query_row + sequence.query_count;
    key_row = sequence.key_row + sequence.key_count;
  }
  for (; item < args->query.shape[0]; item++, query_row = key_row = 0)
    HARK_TRY(clear_gap(context, &tensors, item, query_row, tensors.query_rows, key_row, tensors.key_rows));
  return HARK_OK;
}

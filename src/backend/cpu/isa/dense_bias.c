/* dense_bias.c - an additive bias on the logits, broadcast over any of batch, heads, queries and keys, and its gradient.
 *
 *     S[b,h,n,i] += bias[b,h,n,i]          dbias = dS summed over the broadcast dimensions of the bias
 *
 * If nothing is broadcast, every entry of dbias belongs to one tile and is added with it. Otherwise tiles that are computed at the same
 * time share entries, so the gradient needs a separate pass. There, a piece of work owns entries of dbias and visits all tiles that
 * contribute to them in a fixed order: two more products, but no copies of a gradient that may be as large as the logits.
 */
#include "dense_tile.h"

static bool used(const hark_attention_desc *desc, const hark_attention_args *args) {
  return desc->has_bias && (args == NULL || args->attention_bias.data != NULL);
}

static float *tile_start(const hark_tensor *bias, const hark_dense_tile *tile) {
  return (float *)bias->data + tile->sequence->item * bias->stride[0] + tile->head * bias->stride[1] +
         hark_dense_query_row(tile) * bias->stride[2] + hark_dense_key_row(tile) * bias->stride[3];
}

static void add_vector(float *logits, vf value, vf unit, vf least) {
  const vf hidden = vf_set(-INFINITY);
  const vf term = vf_max(least, value * unit);
  vf_store(logits, vf_select(vf_equal(value, hidden), hidden, vf_load(logits) + term));
}

static void add(const hark_dense_tile *tile, void *memory) {
  const hark_tensor *bias = &tile->call->args->attention_bias;
  const float *from = tile_start(bias, tile);
  const int64_t row_stride = bias->stride[2], key_stride = bias->stride[3];
  const vf unit = vf_set(hark_dense_unit(tile)), least = vf_set(hark_dense_least_term(tile));
  (void)memory;
  for (int lane = 0; lane < tile->queries; lane += HARK_LANES) {
    const int rows = tile->queries - lane < HARK_LANES ? tile->queries - lane : HARK_LANES;
    for (int key = 0; key < tile->keys; key += HARK_LANES) {
      const int keys = tile->keys - key < HARK_LANES ? tile->keys - key : HARK_LANES;
      vf block[HARK_LANES];
      if (hark_dense_first_vector(tile, key) > lane / HARK_LANES) continue;
      for (int r = 0; r < HARK_LANES; r++) {
        const float *row = from + (lane + r) * row_stride + key * key_stride;
        if (r >= rows) {
          block[r] = vf_zero();
        } else if (key_stride == 1) {
          block[r] = vf_load_part(row, keys == HARK_LANES ? HARK_LANES : keys);
        } else {
          float values[HARK_LANES] = {0};
          for (int i = 0; i < keys; i++) values[i] = row[i * key_stride];
          block[r] = vf_load(values);
        }
      }
      vf_transpose(block);
      for (int i = 0; i < keys; i++) add_vector(tile->logits + (key + i) * HARK_TILE_QUERIES + lane, block[i], unit, least);
    }
  }
}

/* ---- gradient ---------------------------------------------------------------------------------------------------------------------- */

static bool requested(const hark_dense_call *call) { return call->backward && call->args->dattention_bias.data != NULL; }

/* True if dimension `i` of dbias is summed over. */
static bool is_shared(const hark_dense_call *call, int i) {
  const int64_t extents[4] = {call->batch, call->heads, call->query_rows, call->key_rows};
  return extents[i] > 1 && call->args->dattention_bias.stride[i] == 0;
}

static bool collects(const hark_dense_call *call) {
  return requested(call) && !is_shared(call, 0) && !is_shared(call, 1) && !is_shared(call, 2) && !is_shared(call, 3);
}

static int64_t extent(const hark_dense_call *call, int i) {
  const int64_t extents[4] = {call->batch, call->heads, call->query_rows, call->key_rows};
  return is_shared(call, i) ? 1 : extents[i];
}

/* Sets dbias to zero unless it is accumulated: entries that no tile touches have no gradient. Pieces: rows [b, h, n]. */
static int64_t prepare_count(const hark_dense_call *call) {
  if (!requested(call) || (call->args->accumulate & HARK_ACCUMULATE_BIAS) != 0) return 0;
  return extent(call, 0) * extent(call, 1) * hark_ceil_div(extent(call, 2), HARK_TILE_QUERIES);
}

static void prepare(const hark_dense_call *call, void *memory, int64_t index) {
  const hark_tensor *bias = &call->args->dattention_bias;
  const int64_t blocks = hark_ceil_div(extent(call, 2), HARK_TILE_QUERIES), heads = extent(call, 1);
  const int64_t begin = index % blocks * HARK_TILE_QUERIES, end = hark_min(extent(call, 2), begin + HARK_TILE_QUERIES);
  float *plane = (float *)bias->data + index / blocks / heads * bias->stride[0] + index / blocks % heads * bias->stride[1];
  (void)memory;
  for (int64_t n = begin; n < end; n++)
    for (int64_t i = 0; i < extent(call, 3); i++) plane[n * bias->stride[2] + i * bias->stride[3]] = 0.0f;
}

/* dbias[n,i] += dS[n,i] if queries are not shared. */
static void collect_rows(const hark_dense_tile *tile, const float *gradient, float *to, int64_t row_stride, int64_t key_stride) {
  for (int lane = 0; lane < tile->queries; lane += HARK_LANES) {
    const int rows = tile->queries - lane < HARK_LANES ? tile->queries - lane : HARK_LANES;
    for (int key = 0; key < tile->keys; key += HARK_LANES) {
      const int keys = tile->keys - key < HARK_LANES ? tile->keys - key : HARK_LANES;
      vf block[HARK_LANES];
      for (int i = 0; i < HARK_LANES; i++) block[i] = i < keys ? vf_load(gradient + (key + i) * HARK_TILE_QUERIES + lane) : vf_zero();
      vf_transpose(block);
      for (int r = 0; r < rows; r++) {
        float *row = to + (lane + r) * row_stride + key * key_stride;
        if (key_stride == 1 && keys == HARK_LANES) {
          vf_store(row, vf_load(row) + block[r]);
        } else if (key_stride == 0) {
          *row += vf_sum(block[r]);
        } else {
          float values[HARK_LANES];
          vf_store(values, block[r]);
          for (int i = 0; i < keys; i++) row[i * key_stride] += values[i];
        }
      }
    }
  }
}

static void collect(const hark_dense_tile *tile, void *memory, const float *gradient) {
  const hark_tensor *bias = &tile->call->args->dattention_bias;
  float *to = tile_start(bias, tile);
  (void)memory;
  if (!is_shared(tile->call, 2)) {
    collect_rows(tile, gradient, to, bias->stride[2], bias->stride[3]);
    return;
  }
  for (int key = 0; key < tile->keys; key++) {
    vf sum = vf_zero();
    for (int m = 0; m < hark_dense_vectors(tile); m++) sum = sum + vf_load(gradient + key * HARK_TILE_QUERIES + m * HARK_LANES);
    to[key * bias->stride[3]] += vf_sum(sum);
  }
}

/* Pieces own rows (queries) of dbias, or blocks of its columns if the rows are shared. */
#define COLUMN_BLOCK 512

static int64_t row_blocks(const hark_dense_call *call) {
  return is_shared(call, 2) ? 1 : hark_ceil_div(call->query_rows, HARK_TILE_QUERIES);
}
static int64_t column_blocks(const hark_dense_call *call) {
  return is_shared(call, 2) && !is_shared(call, 3) ? hark_ceil_div(call->key_rows, COLUMN_BLOCK) : 1;
}

static int64_t finish_count(const hark_dense_call *call) {
  if (!requested(call) || collects(call)) return 0;
  return extent(call, 0) * extent(call, 1) * row_blocks(call) * column_blocks(call);
}

static void finish(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory) {
  const int64_t columns = column_blocks(call), rows = row_blocks(call), heads = extent(call, 1);
  const int64_t column = index % columns, row = index / columns % rows, first_head = index / columns / rows % heads;
  const int64_t item = index / columns / rows / heads;
  const int64_t row_begin = rows > 1 ? row * HARK_TILE_QUERIES : 0, row_end = rows > 1 ? row_begin + HARK_TILE_QUERIES : call->query_rows;
  const int64_t column_begin = columns > 1 ? column * COLUMN_BLOCK : 0;
  const int64_t column_end = columns > 1 ? column_begin + COLUMN_BLOCK : call->key_rows;
  const int64_t last_head = is_shared(call, 1) ? call->heads : first_head + 1;
  for (int64_t s = 0; s < call->run->sequence_count; s++) {
    const hark_attention_sequence *sequence = call->run->sequences + s;
    if (!is_shared(call, 0) && sequence->item != item) continue;
    const int64_t query_end = hark_min(sequence->query_count, row_end - sequence->query_row);
    const int64_t key_from = column_begin - sequence->key_row, key_to = column_end - sequence->key_row;
    for (int64_t head = first_head; head < last_head; head++)
      for (int64_t query = hark_max(0, row_begin - sequence->query_row); query < query_end; query += HARK_TILE_QUERIES)
        HARK_ISA(hark_dense_visit_gradients)
    (call, &HARK_ISA(hark_dense_bias), memory, s, head, query, (int)hark_min(HARK_TILE_QUERIES, query_end - query), hark_max(0, key_from),
     hark_min(sequence->key_count, key_to), worker_memory);
  }
}

const hark_dense_term HARK_ISA(hark_dense_bias) = {.name = "attention_bias",
                                                   .hides = true,
                                                   .used = used,
                                                   .prepare_count = prepare_count,
                                                   .prepare = prepare,
                                                   .add = add,
                                                   .collects = collects,
                                                   .collect = collect,
                                                   .finish_count = finish_count,
                                                   .finish = finish};

/* dense_terms.c - terms of the logits before the softmax: the table of terms, the mask, and the positional table.
 *
 *     S[n,i] += log G[h, |p - i|],  p = n + offset          dlog G[h, t] = sum over entries with |p - i| = t of dS[n,i]
 *
 * With directed_kernel both are of the difference p - i, with its sign.
 *
 * A tile is [keys][lanes]; logits are in units of log 2. Terms are added first; then entries hidden by causality and the window are set to
 * -infinity, so that the contents of a hidden entry do not matter. Cost: a few operations per logit.
 */
#include "dense_tile.h"

const hark_dense_term *const HARK_ISA(hark_dense_terms)[HARK_DENSE_TERM_COUNT] = {
    &HARK_ISA(hark_dense_rbf),        &HARK_ISA(hark_dense_forget), &HARK_ISA(hark_dense_log_kernel),
    &HARK_ISA(hark_dense_contextual), &HARK_ISA(hark_dense_bias),   &HARK_ISA(hark_dense_mask), /* last: it overwrites all other terms */
};

void HARK_ISA(hark_dense_start_tile)(hark_dense_tile *tile) {
  const hark_dense_call *call = tile->call;
  tile->start_hides = false;
  if (call->starts) memset(tile->diagonal, 0, sizeof tile->diagonal);
  for (int i = 0; i < call->term_count && call->starts; i++)
    if (call->terms[i]->start != NULL) call->terms[i]->start(tile, call->term_memory[i]);
  tile->general = call->general || tile->start_hides || hark_dense_tile_is_partial(tile);
}

bool HARK_ISA(hark_dense_finish_logits)(const hark_dense_tile *tile) {
  const hark_dense_call *call = tile->call;
  for (int i = 0; i < call->term_count; i++) {
    if (call->terms[i]->start == NULL || tile->start_hides) call->terms[i]->add(tile, call->term_memory[i]);
  }
  if (!hark_dense_tile_is_partial(tile)) return call->hides || tile->start_hides;
  /* Lane l sees keys from shift + l - window to shift + l (with causality) or shift + l + window. */
  float positions[HARK_LANES];
  for (int i = 0; i < HARK_LANES; i++) positions[i] = (float)i;
  const vf lanes = vf_load(positions);
  for (int key = 0; key < tile->keys; key++) {
    int64_t first = call->causal ? key - tile->shift : 0, last = HARK_TILE_QUERIES - 1; /* lanes that see the key */
    if (call->window >= 0) {
      if (!call->causal) first = key - tile->shift - call->window;
      last = hark_min(last, key - tile->shift + call->window);
    }
    first = hark_min(hark_max(first, 0), HARK_TILE_QUERIES);
    last = hark_max(last, -1);
    for (int lane = 0; lane < tile->queries; lane += HARK_LANES) {
      if (first <= lane && last >= lane + HARK_LANES - 1) continue;
      float *logits = tile->logits + key * HARK_TILE_QUERIES + lane;
      const vm hidden = vm_or(vf_less(lanes, vf_set((float)(first - lane))), vf_less(vf_set((float)(last - lane)), lanes));
      vf_store(logits, vf_select(hidden, vf_set(-INFINITY), vf_load(logits)));
    }
  }
  return true;
}

/* ---- byte mask: zero hides --------------------------------------------------------------------------------------------------------- */

static bool mask_used(const hark_attention_desc *desc, const hark_attention_args *args) {
  return desc->has_mask && (args == NULL || args->mask.data != NULL);
}

static void mask_add(const hark_dense_tile *tile, void *memory) {
  const hark_tensor *mask = &tile->call->args->mask;
  const int64_t row_stride = mask->stride[2], key_stride = mask->stride[3];
  const uint8_t *bytes = (const uint8_t *)mask->data + tile->sequence->item * mask->stride[0] + tile->head * mask->stride[1] +
                         hark_dense_query_row(tile) * row_stride + hark_dense_key_row(tile) * key_stride;
  (void)memory;
  for (int lane = 0; lane < tile->queries; lane += HARK_LANES) {
    const int rows = tile->queries - lane < HARK_LANES ? tile->queries - lane : HARK_LANES;
    for (int key = 0; key < tile->keys; key++) {
      const uint8_t *column = bytes + lane * row_stride + key * key_stride;
      float *logits = tile->logits + key * HARK_TILE_QUERIES + lane;
      if (row_stride == 0) {
        if (*column == 0) vf_store(logits, vf_set(-INFINITY));
        continue;
      }
      for (int r = 0; r < rows; r++)
        if (column[r * row_stride] == 0) logits[r] = -INFINITY;
    }
  }
}

const hark_dense_term HARK_ISA(hark_dense_mask) = {.name = "mask", .hides = true, .used = mask_used, .add = mask_add};

/* ---- log G by distance ------------------------------------------------------------------------------------------------------------- */

/* Diagonal sums alternate between several copies, so that a vector is not read again before its store has finished. */
#define DIAGONAL_COPIES 8

static bool log_kernel_used(const hark_attention_desc *desc, const hark_attention_args *args) {
  return desc->has_log_kernel && (args == NULL || args->log_kernel.data != NULL);
}

/* log G of the differences from `lowest` on. Beyond the table are lanes without a query, which have its last entry. */
static void read_distances(const hark_tensor *table, const float *row, int64_t lowest, int count, float *values) {
  const int64_t stride = table->stride[1], last = table->shape[1] - 1;
  const int right = (int)hark_min(hark_max(-lowest, 0), count); /* from here on the key is not after the query */
  const int beyond = (int)hark_min(hark_max(last + 1 - lowest, right), count);
  for (int i = 0; i < right; i++) values[i] = row[hark_min(-(lowest + i), last) * stride];
  if (stride == 1 && right < beyond)
    memcpy(values + right, row + lowest + right, (size_t)(beyond - right) * sizeof *values);
  else
    for (int i = right; i < beyond; i++) values[i] = row[(lowest + i) * stride];
  for (int i = beyond; i < count; i++) values[i] = row[last * stride];
}

/* The same of a table with directions. */
static void read_differences(const hark_tensor *table, const float *row, int64_t lowest, int count, float *values) {
  const int64_t last = table->shape[1] - 1, first = last / 2 + lowest;
  for (int i = 0; i < count; i++) values[i] = row[hark_max(0, hark_min(first + i, last)) * table->stride[1]];
}

/* log G of the tile's distances, in units of log 2. */
static void log_kernel_start(hark_dense_tile *tile, void *memory) {
  const hark_tensor *table = &tile->call->args->log_kernel;
  const float *row = (const float *)table->data + (table->shape[0] > 1 ? tile->head * table->stride[0] : 0);
  const int64_t lowest = tile->shift - (tile->keys - 1);
  const int count = (int)hark_ceil_div(tile->keys - 1 + hark_dense_vectors(tile) * HARK_LANES, HARK_LANES) * HARK_LANES;
  float values[HARK_TILE_DIAGONALS];
  (void)memory;
  (tile->call->desc->directed_kernel != 0 ? read_differences : read_distances)(table, row, lowest, count, values);
  const vf hidden = vf_set(-INFINITY), unit = vf_set(hark_dense_unit(tile)), least = vf_set(hark_dense_least_term(tile));
  for (int i = 0; i < count; i += HARK_LANES) {
    const vf value = vf_load(values + i);
    const vm hides = vf_equal(value, hidden);
    const vf term = vf_select(hides, hidden, vf_max(least, value * unit));
    vf_store(tile->diagonal + i, vf_load(tile->diagonal + i) + term);
    tile->start_hides = tile->start_hides || vm_any(hides);
  }
}

/* Entries hidden by G = 0 stay hidden whatever the product is. */
static void log_kernel_add(const hark_dense_tile *tile, void *memory) {
  const vf hidden = vf_set(-INFINITY);
  (void)memory;
  for (int key = 0; key < tile->keys; key++)
    for (int m = hark_dense_first_vector(tile, key); m < hark_dense_vectors(tile); m++) {
      float *logits = tile->logits + key * HARK_TILE_QUERIES + m * HARK_LANES;
      const vf start = vf_load(hark_dense_diagonal(tile) - key + m * HARK_LANES);
      vf_store(logits, vf_select(vf_equal(start, hidden), hidden, vf_load(logits)));
    }
}

/* Sums over the diagonals of one (sequence, head) and range of keys: [pieces][rows of all sequences, both sides][H] in float64. */
static size_t log_kernel_bytes(const hark_attention_desc *desc, bool backward, int64_t item_pieces) {
  return backward ? (size_t)(item_pieces * (desc->query_length + desc->key_length) * desc->heads) * sizeof(double) : 0;
}

/* Sums over the diagonals of a sequence: entry x is for signed distance x + offset - (Lk - 1), with Lq + Lk - 1 distances. */
static double *diagonal_sums(const hark_dense_call *call, void *memory, const hark_attention_sequence *sequence, int64_t head,
                             int64_t chunk) {
  const int64_t rows = call->query_rows + call->key_rows;
  return (double *)memory + ((chunk * call->batch + sequence->item) * call->heads + head) * rows + sequence->query_row + sequence->key_row;
}

static bool log_kernel_collects(const hark_dense_call *call) { return call->args->dlog_kernel.data != NULL; }

static int64_t log_kernel_prepare_count(const hark_dense_call *call) {
  return call->backward && log_kernel_collects(call) ? call->chunks * call->batch * call->heads : 0;
}

static void log_kernel_prepare(const hark_dense_call *call, void *memory, int64_t index) {
  const int64_t rows = call->query_rows + call->key_rows;
  memset((double *)memory + index * rows, 0, (size_t)rows * sizeof(double));
}

static void log_kernel_collect(const hark_dense_tile *tile, void *memory, const float *gradient) {
  float copies[DIAGONAL_COPIES][HARK_TILE_DIAGONALS + HARK_LANES];
  const int vectors = hark_dense_vectors(tile);
  memset(copies, 0, sizeof copies);
  for (int key = 0; key < tile->keys; key++) {
    float *sums = copies[key % DIAGONAL_COPIES] + (tile->keys - 1 - key);
    for (int m = hark_dense_first_vector(tile, key); m < vectors; m++) {
      float *to = sums + m * HARK_LANES;
      vf_store(to, vf_load(to) + vf_load(gradient + key * HARK_TILE_QUERIES + m * HARK_LANES));
    }
  }
  float sums[HARK_TILE_DIAGONALS];
  for (int i = 0; i < HARK_TILE_DIAGONALS; i += HARK_LANES) {
    vf sum = vf_load(copies[0] + i);
    for (int copy = 1; copy < DIAGONAL_COPIES; copy++) sum = sum + vf_load(copies[copy] + i);
    vf_store(sums + i, sum);
  }
  double *out = diagonal_sums(tile->call, memory, tile->sequence, tile->head, tile->chunk) + tile->query - tile->key +
                (tile->sequence->key_count - tile->keys);
  for (int i = 0; i < tile->keys + tile->queries - 1; i++) out[i] += (double)sums[i];
}

/* Pieces: blocks of distances of a row of the table. */
#define DISTANCE_BLOCK 512

/* One row for all heads: a table of one row, or rows with stride 0. */
static bool log_kernel_is_shared(const hark_tensor *gradient) { return gradient->shape[0] == 1 || gradient->stride[0] == 0; }

static int64_t log_kernel_finish_count(const hark_dense_call *call) {
  const hark_tensor *gradient = &call->args->dlog_kernel;
  if (!call->backward || gradient->data == NULL) return 0;
  return (log_kernel_is_shared(gradient) ? 1 : gradient->shape[0]) * hark_ceil_div(gradient->shape[1], DISTANCE_BLOCK);
}

/* Adds the sums over the diagonals of columns begin .. end: both at distance t, or if directed the one of column t. `part` has `count`
 * diagonals, the first at the difference `lowest`. */
static void add_diagonals(const double *part, int64_t count, int64_t lowest, bool directed, int64_t middle, int64_t begin, int64_t end,
                          double *sums) {
  for (int64_t t = begin; t < end; t++) {
    const int64_t right = (directed ? t - middle : t) - lowest, left = -t - lowest;
    if (right >= 0 && right < count) sums[t - begin] += part[right];
    if (!directed && t > 0 && left >= 0 && left < count) sums[t - begin] += part[left];
  }
}

/* S += log G[|p - i|]: dlog G[t] = sum over the diagonals of entry t, sequences, ranges, and heads that share the row. */
static void log_kernel_finish(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory) {
  const hark_tensor *gradient = &call->args->dlog_kernel;
  const int64_t blocks = hark_ceil_div(gradient->shape[1], DISTANCE_BLOCK), row = index / blocks;
  const int64_t begin = index % blocks * DISTANCE_BLOCK, end = hark_min(gradient->shape[1], begin + DISTANCE_BLOCK);
  const bool shared = log_kernel_is_shared(gradient);
  double *sums = worker_memory; /* a worker's area is larger: it holds a tile of logits */
  for (int64_t t = begin; t < end; t++) sums[t - begin] = 0.0;
  for (int64_t s = 0; s < call->run->sequence_count; s++)
    for (int64_t head = shared ? 0 : row; head < (shared ? call->heads : row + 1); head++)
      for (int64_t chunk = 0; chunk < call->chunks; chunk++) {
        const hark_attention_sequence *sequence = call->run->sequences + s;
        const double *part = diagonal_sums(call, memory, sequence, head, chunk);
        const int64_t count = sequence->query_count + sequence->key_count - 1, lowest = sequence->offset - (sequence->key_count - 1);
        if (sequence->query_count == 0 || sequence->key_count == 0) continue;
        add_diagonals(part, count, lowest, call->desc->directed_kernel != 0, gradient->shape[1] / 2, begin, end, sums);
      }
  float *out = (float *)gradient->data + row * gradient->stride[0];
  for (int64_t t = begin; t < end; t++) {
    float *to = out + t * gradient->stride[1];
    *to = (float)(sums[t - begin] + ((call->args->accumulate & HARK_ACCUMULATE_LOG_KERNEL) != 0 ? (double)*to : 0.0));
  }
}

const hark_dense_term HARK_ISA(hark_dense_log_kernel) = {.name = "log_kernel",
                                                         .used = log_kernel_used,
                                                         .bytes = log_kernel_bytes,
                                                         .prepare_count = log_kernel_prepare_count,
                                                         .prepare = log_kernel_prepare,
                                                         .start = log_kernel_start,
                                                         .add = log_kernel_add,
                                                         .collects = log_kernel_collects,
                                                         .collect = log_kernel_collect,
                                                         .finish_count = log_kernel_finish_count,
                                                         .finish = log_kernel_finish};

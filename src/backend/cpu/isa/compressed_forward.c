/* compressed_forward.c - forward of compressed attention, tile by tile: selection, then blocks of near keys and globals, then the selected
 * slots.
 *
 *     (m, Z, Y) of a row: the maximum of its logits so far, the sum of 2^(s - m), and the values weighted by that.   out = Y / Z
 *
 * A lane selects while its logits of slots are computed, block by block: it has a list of the best so far, and a threshold, the lowest of
 * a full list. Only a logit above the threshold is looked at. Rows of random logits look at selected (1 + log(slots / selected)) of them.
 */
#include "compressed_tile.h"

/* ---- what backward needs too ---- */

bool HARK_ISA(hark_compressed_next_block)(const hark_compressed_tile *tile, int64_t *next, hark_compressed_block *block) {
  const hark_compressed_tree *tree = tile->tree;
  const hark_chunks *chunks = &tree->chunks;
  const int64_t near = hark_chunk_near(chunks, tile->chunk), keys = hark_min(tile->first + tile->count, tree->sequence->key_count) - near;
  const int64_t near_blocks = hark_max(0, hark_ceil_div(keys, HARK_COMPRESSED_KEYS)), at = (*next)++;
  if (at < near_blocks) {
    *block = (hark_compressed_block){.keys = &tree->rows, .first = near + at * HARK_COMPRESSED_KEYS, .state = -1};
    block->count = (int)hark_min(keys - at * HARK_COMPRESSED_KEYS, HARK_COMPRESSED_KEYS);
    return true;
  }
  const int64_t state = tile->chunk - chunks->kept - 2, global = (at - near_blocks) * HARK_COMPRESSED_KEYS;
  if (chunks->globals == 0 || state < 0 || global >= chunks->globals) return false;
  *block = (hark_compressed_block){.keys = &tree->globals, .first = state * chunks->globals + global, .state = state};
  block->count = (int)hark_min(chunks->globals - global, HARK_COMPRESSED_KEYS);
  return true;
}

/* Products of `count` keys with the queries of a tile. */
static void products(const hark_compressed_tile *tile, const float *keys, int count, const float *queries, float *logits) {
  static const float zeros[HARK_TILE_QUERIES] = {0};
  const hark_compressed_call *call = tile->tree->call;
  const hark_product p = {.a = queries,
                          .a_step = HARK_TILE_QUERIES,
                          .b = keys,
                          .b_row = call->head_pad,
                          .b_step = 1,
                          .c = logits,
                          .c_row = HARK_TILE_QUERIES,
                          .rows = count,
                          .end = call->head_dim,
                          .start = zeros};
  hark_tile_scores(&p, hark_compressed_vectors(tile));
}

void HARK_ISA(hark_compressed_logits)(const hark_compressed_tile *tile, const hark_compressed_block *block, const float *queries,
                                      float *logits) {
  const hark_compressed_call *call = tile->tree->call;
  const float *weight = block->keys->weight + block->first;
  products(tile, block->keys->key + block->first * call->head_pad, block->count, queries, logits);
  for (int key = 0; key < block->count; key++) {
    float *at = logits + (ptrdiff_t)key * HARK_TILE_QUERIES;
    /* a key that does not exist has products of 0 */
    for (int lane = 0; weight[key] != 0.0f && lane < tile->count; lane += HARK_LANES)
      vf_store(at + lane, vf_load(at + lane) + vf_set(weight[key]));
    const int64_t before = block->state < 0 ? block->first + key - tile->first : 0; /* lanes before the key */
    for (int lane = 0; lane < before; lane++) at[lane] = -INFINITY;
  }
}

float HARK_ISA(hark_compressed_keeps)(const hark_compressed_tree *tree, int64_t row, int64_t slot) {
  const hark_compressed_call *call = tree->call;
  const uint64_t n = (uint64_t)(tree->sequence->query_row + row);
  const uint64_t i = (uint64_t)(tree->sequence->key_row + hark_chunk_slot_row(&tree->chunks, slot));
  const uint64_t head = (uint64_t)(tree->sequence->item * call->desc->heads + tree->head);
  uint32_t words[4];
  hark_random_words(&call->args->dropout, (((head << 23) + n) << 21) + i / 4, words);
  return words[i % 4] >= call->dropout_threshold ? call->dropout_gain : 0.0f;
}

void HARK_ISA(hark_compressed_kept)(const hark_compressed_tile *tile, const hark_compressed_block *block, float *factors) {
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const uint64_t head = (uint64_t)(tree->sequence->item * call->desc->heads + tree->head);
  for (int key = 0; key < block->count; key++) {
    const int64_t global = block->first + key - block->state * tree->chunks.globals;
    const int64_t first = block->state < 0 ? block->first + key : hark_chunk_slot_row(&tree->chunks, global);
    const uint64_t i = (uint64_t)(tree->sequence->key_row + first);
    for (int lane = 0; lane < tile->count; lane++) {
      const uint64_t n = (uint64_t)(tree->sequence->query_row + tile->first + lane);
      uint32_t words[4];
      hark_random_words(&call->args->dropout, (((head << 23) + n) << 21) + i / 4, words);
      factors[key * HARK_TILE_QUERIES + lane] = words[i % 4] >= call->dropout_threshold ? call->dropout_gain : 0.0f;
    }
  }
}

/* ---- tiles ---- */

typedef struct forward_work {
  const hark_compressed_tile *tile;
  float *queries;  /* [d][lanes] */
  float *logits;   /* [keys of a block][lanes] */
  float *kept;     /* dropout's factors, of the same shape */
  float *mixed;    /* Y, [lanes][dv padded] */
  float *selected; /* [lanes][selected padded]: logits of the selected slots, in the order in which they were found, then -infinity */
  int32_t *number; /* of the slots */
  int found[HARK_TILE_QUERIES];
  float threshold[HARK_TILE_QUERIES], top[HARK_TILE_QUERIES], sum[HARK_TILE_QUERIES];
} forward_work;

size_t HARK_ISA(hark_compressed_forward_floats)(const hark_attention_desc *desc) {
  const size_t keys = HARK_COMPRESSED_KEYS * (desc->dropout > 0 ? 2 : 1);
  const size_t tile = HARK_TILE_QUERIES * ((size_t)desc->head_dim + keys + hark_padded(desc->value_dim) + 2 * hark_padded(desc->selected_slots));
  const size_t sums = 2 * (hark_padded(desc->head_dim) + hark_padded(desc->value_dim)); /* of globals: float64 */
  return tile > sums ? tile : sums;
}

static void begin_tile(forward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_call *call = tile->tree->call;
  hark_pack_transposed(tile->tree->query + tile->first * call->head_pad, call->head_pad, tile->count, call->head_dim,
                       call->scale * HARK_LOG2_E, work->queries);
  memset(work->mixed, 0, (size_t)tile->count * (size_t)call->value_pad * sizeof(float));
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    work->top[lane] = work->threshold[lane] = -INFINITY;
    work->sum[lane] = 0.0f;
    work->found[lane] = 0;
  }
  for (int i = 0; i < tile->count * call->selected_pad; i++) work->selected[i] = -INFINITY;
}

/* The place of the lowest logit of a full list, of equal ones that of the latest slot; -1 if all are NaN, which counts as the highest. */
static int lowest_place(const float *logits, const int32_t *number, int count) {
  int place = -1;
  for (int i = 0; i < count; i++) {
    if (isnan(logits[i])) continue;
    if (place < 0 || logits[i] < logits[place] || (logits[i] == logits[place] && number[i] > number[place])) place = i;
  }
  return place;
}

/* Adds a slot whose logit is not below or at the threshold to a lane's list. */
static void add_slot(forward_work *work, int lane, float logit, int64_t slot) {
  const hark_compressed_call *call = work->tile->tree->call;
  float *logits = work->selected + (ptrdiff_t)lane * call->selected_pad;
  int32_t *number = work->number + (ptrdiff_t)lane * call->selected_pad;
  const int place = work->found[lane] < call->selected ? work->found[lane]++ : lowest_place(logits, number, call->selected);
  if (place < 0) return;
  logits[place] = logit;
  number[place] = (int32_t)slot;
  if (work->found[lane] < call->selected) return;
  const int lowest = lowest_place(logits, number, call->selected);
  work->threshold[lane] = lowest < 0 ? INFINITY : logits[lowest];
}

/* The best slots for every lane. */
static void select_slots(forward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  int64_t from, to;
  hark_chunk_candidates(&tree->chunks, tile->chunk, &from, &to);
  for (; from < to; from += HARK_COMPRESSED_KEYS) {
    const int count = (int)hark_min(to - from, HARK_COMPRESSED_KEYS);
    products(tile, tree->slots.key + from * tree->call->head_pad, count, work->queries, work->logits);
    for (int i = 0; i < count; i++) {
      const float weight = tree->slots.weight[from + i];
      if (weight == -INFINITY) continue;
      for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
        float *at = work->logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane;
        const vf logit = vf_load(at) + vf_set(weight), threshold = vf_load(work->threshold + lane);
        const vm above = vm_not(vm_or(vf_less(logit, threshold), vf_equal(logit, threshold))); /* or NaN */
        if (HARK_LIKELY(!vm_any(above))) continue;
        vf_store(at, logit);
        for (int l = 0; l < hark_min(HARK_LANES, tile->count - lane); l++)
          if (vm_bits(above) >> l & 1u) add_slot(work, lane + l, at[l], from + i);
      }
    }
  }
}

/* Makes the sums of a vector of lanes relative to the maximum of their old logits and those of the block; returns what logits are relative
 * to, and in `factor` what Y is to be multiplied by. */
static vf raise_top(forward_work *work, int keys, int lane, float *factor) {
  const vf old = vf_load(work->top + lane);
  vf top = old;
  for (int key = 0; key < keys; key++) top = vf_max(top, vf_load(work->logits + (ptrdiff_t)key * HARK_TILE_QUERIES + lane));
  const vf base = vf_select(vf_equal(top, vf_set(-INFINITY)), vf_zero(), top);
  const vf smaller = vf_exp2(old - base);
  vf_store(factor + lane, smaller);
  vf_store(work->top + lane, top);
  vf_store(work->sum + lane, vf_load(work->sum + lane) * smaller);
  return base;
}

static void scale_mixed(const forward_work *work, int row, float factor) {
  const int width = work->tile->tree->call->value_pad;
  float *mixed = work->mixed + (ptrdiff_t)row * width;
  for (int c = 0; factor != 1.0f && c < width; c += HARK_LANES) vf_store(mixed + c, vf_set(factor) * vf_load(mixed + c));
}

static void mix_block(forward_work *work, const hark_compressed_block *block) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const bool drops = call->dropout_threshold > 0;
  float factor[HARK_TILE_QUERIES];
  HARK_ISA(hark_compressed_logits)(tile, block, work->queries, work->logits);
  if (drops) HARK_ISA(hark_compressed_kept)(tile, block, work->kept);
  for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
    const vf base = raise_top(work, block->count, lane, factor);
    vf sum = vf_load(work->sum + lane);
    for (int key = 0; key < block->count; key++) {
      float *at = work->logits + (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
      const vf logit = vf_load(at);
      vf weight = vf_exp2(logit - base);
      sum = sum + weight;
      if (!tree->finite) weight = hark_seen_weight(weight, logit);
      if (drops) weight = weight * vf_load(work->kept + (ptrdiff_t)key * HARK_TILE_QUERIES + lane);
      vf_store(at, weight);
    }
    vf_store(work->sum + lane, sum);
  }
  for (int row = 0; row < tile->count; row++) scale_mixed(work, row, factor[row]);
  const hark_product p = {.a = block->keys->value + block->first * call->value_pad,
                          .a_step = call->value_pad,
                          .b = work->logits,
                          .b_row = 1,
                          .b_step = HARK_TILE_QUERIES,
                          .c = work->mixed,
                          .c_row = call->value_pad,
                          .rows = tile->count,
                          .end = block->count};
  hark_tile_spread(tree->finite, &p, call->value_pad);
}

/* Adds the selected slots of a row. */
static void mix_selected(forward_work *work, int row) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const float *logits = work->selected + (ptrdiff_t)row * call->selected_pad, *values = tree->slots.value;
  const int32_t *number = work->number + (ptrdiff_t)row * call->selected_pad;
  float *mixed = work->mixed + (ptrdiff_t)row * call->value_pad, weights[HARK_LANES];
  vf highest = vf_set(work->top[row]), sum = vf_zero();
  for (int i = 0; i < call->selected_pad; i += HARK_LANES) highest = vf_max(highest, vf_load(logits + i));
  const float top = vf_highest(highest), base = top == -INFINITY ? 0.0f : top;
  float factor[HARK_LANES];
  vf_store(factor, vf_exp2(vf_set(work->top[row] - base)));
  scale_mixed(work, row, factor[0]);
  for (int i = 0; i < work->found[row]; i += HARK_LANES) {
    const vf logit = vf_load(logits + i);
    vf weight = vf_exp2(logit - vf_set(base));
    sum = sum + weight;
    vf_store(weights, tree->finite ? weight : hark_seen_weight(weight, logit));
    for (int l = 0; l < HARK_LANES && i + l < work->found[row]; l++) {
      float kept = weights[l];
      if (call->dropout_threshold > 0) kept *= HARK_ISA(hark_compressed_keeps)(tree, tile->first + row, number[i + l]);
      if (kept == 0.0f) continue;
      const float *value = values + (int64_t)number[i + l] * call->value_pad;
      for (int c = 0; c < call->value_pad; c += HARK_LANES)
        vf_store(mixed + c, vf_fma(vf_set(kept), vf_load(value + c), vf_load(mixed + c)));
    }
  }
  work->top[row] = top;
  work->sum[row] = work->sum[row] * factor[0] + vf_sum(sum);
}

static void save_row(const forward_work *work, int row) {
  const hark_compressed_tile *tile = work->tile;
  const int selected = tile->tree->call->selected, pad = tile->tree->call->selected_pad;
  const hark_compressed_saved to = hark_compressed_saved_of(tile->tree, tile->first + row);
  *to.top = work->top[row];
  *to.sum = work->sum[row];
  memcpy(to.logits, work->selected + (ptrdiff_t)row * pad, (size_t)selected * sizeof(float));
  for (int i = 0; i < selected; i++) {
    const int32_t number = i < work->found[row] ? work->number[row * pad + i] : -1;
    memcpy(to.numbers + i, &number, sizeof number);
  }
}

/* out, log_sum_exp and what the backward needs. */
static void write_rows(const forward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, first = tree->sequence->query_row + tile->first;
  float log_sum[HARK_TILE_QUERIES];
  for (int lane = 0; lane < tile->count; lane += HARK_LANES)
    vf_store(log_sum + lane, vf_fma(vf_load(work->top + lane), vf_set(HARK_LN_2), vf_log(vf_load(work->sum + lane))));
  for (int row = 0; row < tile->count; row++) {
    const bool sees = work->sum[row] != 0.0f;
    const float *mixed = work->mixed + (ptrdiff_t)row * call->value_pad, gain = sees ? 1.0f / work->sum[row] : 0.0f;
    float *out = (float *)args->out.data + item * args->out.stride[0] + tree->head * args->out.stride[1] +
                 (first + row) * args->out.stride[2];
    for (int c = 0; c < call->value_dim; c++) out[c] = sees ? gain * mixed[c] : 0.0f;
    if (args->saved != NULL) save_row(work, row);
    if (args->log_sum_exp.data == NULL) continue;
    ((float *)args->log_sum_exp.data)[(item * call->desc->heads + tree->head) * args->query.shape[2] + first + row] =
        sees ? log_sum[row] : -INFINITY;
  }
}

void HARK_ISA(hark_compressed_forward)(const hark_compressed_tree *tree, int64_t chunk, float *memory) {
  const hark_compressed_call *call = tree->call;
  const int64_t end = hark_min(tree->chunks.start[chunk + 1], tree->sequence->query_count);
  hark_compressed_tile tile = {.tree = tree, .chunk = chunk, .first = tree->chunks.start[chunk]};
  forward_work work = {.tile = &tile, .queries = memory};
  work.logits = work.queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  work.mixed = work.logits + (size_t)HARK_COMPRESSED_KEYS * HARK_TILE_QUERIES;
  work.selected = work.mixed + (size_t)call->value_pad * HARK_TILE_QUERIES;
  work.number = (int32_t *)(void *)(work.selected + (size_t)call->selected_pad * HARK_TILE_QUERIES);
  work.kept = work.selected + 2 * (size_t)call->selected_pad * HARK_TILE_QUERIES; /* with dropout */
  for (; tile.first < end; tile.first += HARK_TILE_QUERIES) {
    hark_compressed_block block;
    int64_t next = 0;
    tile.count = (int)hark_min(end - tile.first, HARK_TILE_QUERIES);
    begin_tile(&work);
    select_slots(&work);
    while (HARK_ISA(hark_compressed_next_block)(&tile, &next, &block)) mix_block(&work, &block);
    for (int row = 0; row < tile.count; row++)
      if (work.found[row] > 0) mix_selected(&work, row);
    write_rows(&work);
  }
}

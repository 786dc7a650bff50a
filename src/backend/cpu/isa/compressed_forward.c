/* compressed_forward.c - forward of compressed attention, tile by tile: selection, then blocks of near keys and globals, then the selected
 * slots.
 *
 *     (m, Z, Y) of a row: the maximum of its logits so far, the sum of 2^(s - m), and the values weighted by that.   out = Y / Z
 *
 * compressed_select.c selects.
 */
#include <float.h>
#include <math.h>

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

/* logits += terms, for the rows of a tile; a term of -infinity hides, whatever the logit is. */
static void add_terms(const float *terms, int count, float *logits) {
  const vf hidden = vf_set(-INFINITY);
  for (int lane = 0; lane < count; lane += HARK_LANES) {
    const vf term = vf_load(terms + lane);
    vf_store(logits + lane, vf_select(vf_equal(term, hidden), hidden, vf_load(logits + lane) + term));
  }
}

void HARK_ISA(hark_compressed_logits)(const hark_compressed_tile *tile, const hark_compressed_block *block, const float *queries,
                                      const float *start, float *logits) {
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const float *weight = block->keys->weight + block->first;
  hark_compressed_products(tile, block->keys->key + block->first * call->head_pad, block->count, queries, start, logits);
  for (int key = 0; key < block->count; key++) {
    float *at = logits + (ptrdiff_t)key * HARK_TILE_QUERIES;
    const bool exists = weight[key] != -INFINITY;
    if (tree->levels > 0 && exists) add_terms(hark_compressed_table(tree, 0) + tile->first - (block->first + key), tile->count, at);
    for (int lane = 0; weight[key] != 0.0f && lane < tile->count; lane += HARK_LANES)
      vf_store(at + lane, exists ? vf_load(at + lane) + vf_set(weight[key]) : vf_set(-INFINITY));
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
    if (block->keys->weight[block->first + key] == -INFINITY) { /* no key, nor a slot with the number of the global */
      for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) factors[key * HARK_TILE_QUERIES + lane] = 0.0f;
      continue;
    }
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
  float *queries; /* [d][lanes] */
  float *logits;  /* [keys of a block][lanes] */
  float *kept;    /* dropout's factors, of the same shape */
  float *mixed;   /* Y, [lanes][dv padded] */
  float *lists;   /* memory of the selection */
  hark_compressed_selection selection;
  float top[HARK_TILE_QUERIES], sum[HARK_TILE_QUERIES];
} forward_work;

size_t HARK_ISA(hark_compressed_forward_floats)(const hark_attention_desc *desc) {
  const size_t lanes = (size_t)desc->head_dim + HARK_COMPRESSED_KEYS * (desc->dropout > 0 ? 2 : 1) + hark_padded(desc->value_dim);
  const size_t tile = HARK_TILE_QUERIES * lanes + HARK_ISA(hark_compressed_select_floats)(desc);
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
    work->top[lane] = -INFINITY;
    work->sum[lane] = 0.0f;
  }
}

/* Weights in place of the logits [entries][lanes], times dropout's factors if there are any. Makes the sums of the lanes, and Y, relative
 * to the maximum of the old logits and these. marked: entries whose weights are not 0 where they are seen; or NULL. */
static void weigh(forward_work *work, float *logits, int entries, const bool *marked, const float *kept) {
  const hark_compressed_tile *tile = work->tile;
  const int width = tile->tree->call->value_pad;
  float factor[HARK_TILE_QUERIES];
  for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
    const vf old = vf_load(work->top + lane);
    vf top = old;
    for (int i = 0; i < entries; i++) top = vf_max(top, vf_load(logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane));
    const vf base = vf_select(vf_equal(top, vf_set(-INFINITY)), vf_zero(), top);
    const vf smaller = vf_exp2(old - base);
    vf sum = vf_load(work->sum + lane) * smaller;
    for (int i = 0; i < entries; i++) {
      float *at = logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane;
      const vf logit = vf_load(at);
      vf weight = vf_exp2(logit - base);
      sum = sum + weight;
      if (marked != NULL && marked[i]) weight = hark_seen_weight(weight, logit);
      if (kept != NULL) weight = weight * vf_load(kept + (ptrdiff_t)i * HARK_TILE_QUERIES + lane);
      vf_store(at, weight);
    }
    vf_store(factor + lane, smaller);
    vf_store(work->top + lane, top);
    vf_store(work->sum + lane, sum);
  }
  for (int row = 0; row < tile->count; row++) {
    float *mixed = work->mixed + (ptrdiff_t)row * width;
    for (int c = 0; factor[row] != 1.0f && c < width; c += HARK_LANES) vf_store(mixed + c, vf_set(factor[row]) * vf_load(mixed + c));
  }
}

/* Values that are not finite reach the rows that see them, also if their weight is rounded to 0: such weights become the least number. */
static bool marks_value(const hark_compressed_tree *tree, const float *value) {
  return !tree->finite && !hark_rows_finite(value, 0, 1, tree->call->value_dim);
}

static void mix_block(forward_work *work, const hark_compressed_block *block) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const bool drops = call->dropout_threshold > 0;
  HARK_ISA(hark_compressed_logits)(tile, block, work->queries, hark_compressed_zeros, work->logits);
  if (drops) HARK_ISA(hark_compressed_kept)(tile, block, work->kept);
  bool marked[HARK_COMPRESSED_KEYS];
  for (int key = 0; !tree->finite && key < block->count; key++)
    marked[key] = marks_value(tree, block->keys->value + (block->first + key) * call->value_pad);
  weigh(work, work->logits, block->count, tree->finite ? NULL : marked, drops ? work->kept : NULL);
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

/* Adds the selected slots of all rows, whose logits have been saved. */
static void mix_selected(forward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const hark_compressed_selection *selection = &work->selection;
  weigh(work, selection->logits, selection->most, NULL, NULL);
  for (int row = 0; row < tile->count; row++) {
    float *weights = selection->logits + row, *mixed = work->mixed + (ptrdiff_t)row * call->value_pad;
    const int32_t *number = selection->number + row;
    for (int i = 0; !tree->finite && i < selection->found[row]; i++)
      if (weights[i * HARK_TILE_QUERIES] == 0.0f &&
          marks_value(tree, tree->slots.value + number[i * HARK_TILE_QUERIES] * (int64_t)call->value_pad))
        weights[i * HARK_TILE_QUERIES] = FLT_MIN;
    for (int i = 0; call->dropout_threshold > 0 && i < selection->found[row]; i++)
      weights[i * HARK_TILE_QUERIES] *= HARK_ISA(hark_compressed_keeps)(tree, tile->first + row, number[i * HARK_TILE_QUERIES]);
    const hark_compressed_sum sum = {weights, number, HARK_TILE_QUERIES, selection->found[row], tree->slots.value, call->value_pad};
    hark_compressed_add(&sum, mixed);
  }
}

/* What the backward needs of the selection. */
static void save_selection(const forward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_selection *selection = &work->selection;
  const int selected = tile->tree->call->selected;
  for (int row = 0; row < tile->count; row++) {
    const hark_compressed_saved to = hark_compressed_saved_of(tile->tree, tile->first + row);
    for (int i = 0; i < selection->found[row]; i++) {
      to.logits[i] = selection->logits[i * HARK_TILE_QUERIES + row];
      memcpy(to.numbers + i, &selection->number[i * HARK_TILE_QUERIES + row], sizeof(int32_t));
    }
    const int32_t none = -1;
    if (selection->found[row] < selected) memcpy(to.numbers + selection->found[row], &none, sizeof none);
  }
}

/* A finite number beyond the range becomes the largest one of its sign. */
static float within_range(double x) { return isfinite(x) && fabs(x) > (double)FLT_MAX ? (float)copysign((double)FLT_MAX, x) : (float)x; }

/* out, log_sum_exp and, for the backward, the sums. */
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
    float *out =
        (float *)args->out.data + item * args->out.stride[0] + tree->head * args->out.stride[1] + (first + row) * args->out.stride[2];
    for (int c = 0; c < call->value_dim; c++) out[c] = sees ? gain * mixed[c] : 0.0f;
    if (call->saved != NULL) {
      const hark_compressed_saved to = hark_compressed_saved_of(tree, tile->first + row);
      *to.top = work->top[row];
      *to.sum = work->sum[row];
    }
    if (args->log_sum_exp.data == NULL) continue;
    ((float *)args->log_sum_exp.data)[(item * call->desc->heads + tree->head) * args->query.shape[2] + first + row] =
        sees ? within_range((double)log_sum[row] + tree->highest) : -INFINITY;
  }
}

void HARK_ISA(hark_compressed_forward)(const hark_compressed_tree *tree, int64_t chunk, float *memory) {
  const hark_compressed_call *call = tree->call;
  const int64_t end = hark_min(tree->chunks.start[chunk + 1], tree->sequence->query_count);
  hark_compressed_tile tile = {.tree = tree, .chunk = chunk, .first = tree->chunks.start[chunk]};
  forward_work work = {.tile = &tile, .lists = memory};
  work.queries = work.lists + HARK_ISA(hark_compressed_select_floats)(call->desc);
  work.logits = work.queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  work.mixed = work.logits + (size_t)HARK_COMPRESSED_KEYS * HARK_TILE_QUERIES;
  work.kept = work.mixed + (size_t)call->value_pad * HARK_TILE_QUERIES; /* with dropout */
  for (; tile.first < end; tile.first += HARK_TILE_QUERIES) {
    hark_compressed_block block;
    int64_t next = 0;
    tile.count = (int)hark_min(end - tile.first, HARK_TILE_QUERIES);
    begin_tile(&work);
    work.selection = HARK_ISA(hark_compressed_select)(&tile, work.queries, work.logits, work.lists);
    if (call->saved != NULL) save_selection(&work);
    while (HARK_ISA(hark_compressed_next_block)(&tile, &next, &block)) mix_block(&work, &block);
    if (work.selection.most > 0) mix_selected(&work);
    write_rows(&work);
  }
}

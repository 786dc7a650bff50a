/* compressed_select.c - the slots that the queries of a tile select: of all candidates those with the highest logits.
 *
 * Candidates come in ascending order, and an equal one replaces none, so that of equal logits the first is selected. best_candidates.h has
 * their order.
 *
 * Few slots (HARK_COMPRESSED_SORTED): a sorted list for each lane, as vectors of all lanes. A candidate is inserted by comparing it with
 * one place after another, and passing the smaller one on. Cost: `selected` comparisons for each vector of candidates of which one is above
 * its lane's threshold, the last of its list.
 *
 * More: every lane appends candidates above its threshold to a buffer of twice the selected slots. When it is full, the better half
 * remains, and the threshold is the lowest of it. Cost: about 2 moves and comparisons for each appended candidate.
 */
#include "best_candidates.h"
#include "compressed_tile.h"

size_t HARK_ISA(hark_compressed_select_floats)(const hark_attention_desc *desc) {
  const size_t lists = 2 * (size_t)hark_chunk_selected(desc) * HARK_TILE_QUERIES;
  return hark_chunk_selected(desc) <= HARK_COMPRESSED_SORTED ? lists : 3 * lists;
}

/* ---- sorted lists ---- */

/* Inserts a candidate of a vector of lanes into their lists. After its place everything moves on, also to the place of an equal logit. */
static void insert(const hark_compressed_lists *lists, int selected, int lane, vi order, int64_t slot) {
  vi number = vi_set((int32_t)slot);
  vm better = vi_less(order, order); /* none */
  for (int i = 0; i < selected; i++) {
    const ptrdiff_t at = (ptrdiff_t)i * HARK_TILE_QUERIES + lane;
    const vi old = vi_load(lists->order + at), old_number = vi_load(lists->number + at);
    better = vm_or(better, vi_less(old, order));
    vi_store(lists->order + at, vi_select(better, order, old));
    vi_store(lists->number + at, vi_select(better, number, old_number));
    order = vi_select(better, old, order);
    number = vi_select(better, old_number, number);
  }
}

static void sort_block(const hark_compressed_lists *lists, int selected, int lanes, const float *logits, const float *weight, int count,
                       int64_t first) {
  const ptrdiff_t last = (ptrdiff_t)(selected - 1) * HARK_TILE_QUERIES;
  for (int i = 0; i < count; i++) {
    if (weight[i] == -INFINITY) continue;
    for (int lane = 0; lane < lanes; lane += HARK_LANES) {
      const vi order = orders_of(vf_load(logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane) + vf_set(weight[i]));
      if (vm_any(vi_less(vi_load(lists->order + last + lane), order))) insert(lists, selected, lane, order, first + i);
    }
  }
}

/* ---- buffers ---- */

typedef struct lane_buffer {
  candidate *candidates; /* [2 selected] */
  int count;
} lane_buffer;

static void append_block(lane_buffer *buffers, int32_t *threshold, int selected, int lanes, const float *logits, const float *weight,
                         int count, int64_t first) {
  for (int i = 0; i < count; i++) {
    if (weight[i] == -INFINITY) continue;
    for (int lane = 0; lane < lanes; lane += HARK_LANES) {
      const vi order = orders_of(vf_load(logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane) + vf_set(weight[i]));
      int32_t orders[HARK_LANES];
      const vm above = vi_less(vi_load(threshold + lane), order);
      if (!vm_any(above)) continue;
      vi_store(orders, order);
      for (int l = 0; l < HARK_LANES && lane + l < lanes; l++) {
        lane_buffer *buffer = &buffers[lane + l];
        if ((vm_bits(above) >> l & 1u) == 0) continue;
        buffer->candidates[buffer->count++] = (candidate){orders[l], (int32_t)(first + i)};
        if (buffer->count < 2 * selected) continue;
        part_best(buffer->candidates, buffer->count, selected);
        buffer->count = selected;
        threshold[lane + l] = buffer->candidates[selected - 1].order;
      }
    }
  }
}

static void give_buffers(const lane_buffer *buffers, int selected, int lanes, const hark_compressed_lists *lists) {
  for (int lane = 0; lane < lanes; lane++) {
    const int count = buffers[lane].count < selected ? buffers[lane].count : selected;
    if (buffers[lane].count > selected) part_best(buffers[lane].candidates, buffers[lane].count, selected);
    for (int i = 0; i < count; i++) {
      lists->order[i * HARK_TILE_QUERIES + lane] = buffers[lane].candidates[i].order;
      lists->number[i * HARK_TILE_QUERIES + lane] = buffers[lane].candidates[i].number;
    }
  }
}

/* ---- both ---- */

/* Adds what the kernel of the distance gives to the logits of slots, and returns their weights without it: 0, or -infinity. */
static const float *add_slot_terms(const hark_compressed_tile *tile, int64_t first, int count, float *logits, float *weights) {
  const hark_compressed_tree *tree = tile->tree;
  const vf hidden = vf_set(-INFINITY);
  float terms[HARK_TILE_QUERIES];
  for (int i = 0; i < count; i++) {
    weights[i] = tree->slots.weight[first + i] == -INFINITY ? -INFINITY : 0.0f;
    if (weights[i] != 0.0f) continue;
    HARK_ISA(hark_compressed_slot_terms)(tile, first + i, terms);
    for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
      float *at = logits + (ptrdiff_t)i * HARK_TILE_QUERIES + lane;
      const vf term = vf_load(terms + lane);
      vf_store(at, vf_select(vf_equal(term, hidden), hidden, vf_load(at) + term));
    }
  }
  return weights;
}

/* Candidates in blocks, whose logits are in `logits` without their weights. */
static void visit_candidates(const hark_compressed_tile *tile, const float *queries, float *logits, const hark_compressed_lists *lists,
                             lane_buffer *buffers, int32_t *threshold) {
  const hark_compressed_tree *tree = tile->tree;
  const int selected = tree->call->selected;
  int64_t from, to;
  hark_chunk_candidates(&tree->chunks, tile->chunk, &from, &to);
  for (; from < to; from += HARK_COMPRESSED_KEYS) {
    const int count = (int)hark_min(to - from, HARK_COMPRESSED_KEYS);
    const float *weight = tree->slots.weight + from;
    float plain[HARK_COMPRESSED_KEYS];
    hark_compressed_products(tile, tree->slots.key + from * tree->call->head_pad, count, queries, hark_compressed_zeros, logits);
    if (tree->levels > 0) weight = add_slot_terms(tile, from, count, logits, plain);
    if (buffers == NULL)
      sort_block(lists, selected, tile->count, logits, weight, count, from);
    else
      append_block(buffers, threshold, selected, tile->count, logits, weight, count, from);
  }
}

hark_compressed_selection HARK_ISA(hark_compressed_select)(const hark_compressed_tile *tile, const float *queries, float *logits,
                                                           float *memory) {
  const int selected = tile->tree->call->selected, places = selected * HARK_TILE_QUERIES;
  const hark_compressed_lists lists = {(int32_t *)(void *)memory, (int32_t *)(void *)(memory + places)};
  hark_compressed_selection out = {.logits = memory, .number = lists.number};
  lane_buffer buffers[HARK_TILE_QUERIES];
  int32_t threshold[HARK_TILE_QUERIES];
  const bool sorts = selected <= HARK_COMPRESSED_SORTED;
  for (int i = 0; i < places; i++) {
    lists.order[i] = LOWEST;
    lists.number[i] = -1;
  }
  for (int lane = 0; lane < HARK_TILE_QUERIES && !sorts; lane++) {
    buffers[lane] = (lane_buffer){(candidate *)(void *)(memory + 2 * places) + (ptrdiff_t)lane * 2 * selected, 0};
    threshold[lane] = LOWEST;
  }
  visit_candidates(tile, queries, logits, &lists, sorts ? NULL : buffers, threshold);
  if (!sorts) give_buffers(buffers, selected, tile->count, &lists);
  for (int lane = 0; lane < tile->count; lane++) {
    int found = 0;
    while (found < selected && lists.number[found * HARK_TILE_QUERIES + lane] >= 0) found++;
    out.most = out.most > found ? out.most : found;
    out.found[lane] = found;
  }
  for (int i = 0; i < out.most * HARK_TILE_QUERIES; i++) memory[i] = number_of(lists.order[i]); /* the same memory */
  return out;
}

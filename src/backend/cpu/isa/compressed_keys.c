/* compressed_keys.c - rows, slots and globals of compressed attention, and the way of their gradients back to the rows.
 *
 *     slot b      k_b, v_b = means of the n_b unmasked keys and values of its rows
 *     global g    in state s: means over all rows of the slots of the chunks 0 .. s whose number mod G is g
 *
 * The gradient of a row of slot b, which is a part of global g in every state from that of its chunk c on:
 *
 *     dk_row = near + dk_b / n_b + sum over s >= c of dk_g[s] / n_g[s],      dv_row in the same way
 *
 * Sums of globals are float64, because a global may have millions of rows.
 */
#include "compressed_tile.h"

/* ---- memory ---- */

typedef struct tree_counts {
  size_t rows, slots, globals, pieces;
} tree_counts;

static hark_status add_product(hark_context *context, size_t count, size_t width, size_t *sum) {
  size_t floats;
  HARK_TRY(hark_size_multiply(context, count, width, &floats));
  return hark_size_add(context, *sum, floats, sum);
}

hark_status HARK_ISA(hark_compressed_tree_floats)(hark_context *context, const hark_attention_desc *desc, int64_t rows, bool backward,
                                                  size_t *out) {
  const int64_t chunks = hark_chunks_most(desc, rows);
  const size_t both = hark_padded(desc->head_dim) + hark_padded(desc->value_dim), times = backward ? 2 : 1;
  const size_t of_keys = times * both + 2, of_queries = backward ? both : hark_padded(desc->head_dim);
  size_t slots, globals, tables;
  *out = 2 * (size_t)(rows / HARK_COMPRESSED_PIECE + 3); /* pieces: int64 */
  HARK_TRY(hark_size_multiply(context, (size_t)hark_max(0, chunks - 2), (size_t)desc->chunk_slots, &slots));
  HARK_TRY(hark_size_multiply(context, (size_t)hark_max(0, chunks - 2 - desc->kept_chunks), (size_t)hark_chunk_globals(desc), &globals));
  HARK_TRY(HARK_ISA(hark_compressed_kernel_floats)(context, desc, rows, backward, &tables));
  HARK_TRY(hark_size_add(context, *out, tables, out));
  HARK_TRY(add_product(context, (size_t)rows, of_keys + of_queries, out));
  HARK_TRY(add_product(context, slots, of_keys, out));
  HARK_TRY(add_product(context, globals, of_keys, out));
  if (!backward) return HARK_OK;
  HARK_TRY(add_product(context, (size_t)rows, 3 * (size_t)hark_chunk_selected(desc), out));
  return hark_size_add(context, *out, slots + 1, out);
}

static float *take(float **memory, int64_t count) {
  float *taken = *memory;
  *memory += count;
  return taken;
}

static hark_compressed_keys take_keys(const hark_compressed_call *call, float **memory, int64_t count) {
  hark_compressed_keys keys = {.key = take(memory, count * call->head_pad), .value = take(memory, count * call->value_pad)};
  keys.weight = take(memory, count);
  keys.count = take(memory, count);
  if (!call->backward) return keys;
  keys.dkey = take(memory, count * call->head_pad);
  keys.dvalue = take(memory, count * call->value_pad);
  return keys;
}

/* Pieces: the first chunks of ranges with at least HARK_COMPRESSED_PIECE rows; the last range may have fewer. */
static void cut_pieces(hark_compressed_tree *tree) {
  int64_t first = 0;
  tree->pieces = 0;
  for (int64_t chunk = 0; chunk < tree->chunks.count; chunk++) {
    if (chunk > 0 && tree->chunks.start[chunk] - first < HARK_COMPRESSED_PIECE) continue;
    first = tree->chunks.start[chunk];
    tree->piece[tree->pieces++] = chunk;
  }
  tree->piece[tree->pieces] = tree->chunks.count;
}

/* Numbers of 8 bytes first: what is before them is a whole number of these. */
static void take_tables(hark_compressed_tree *tree, float **memory) {
  const int64_t rows = tree->chunks.rows;
  tree->levels = hark_compressed_levels(&tree->chunks);
  if (tree->call->backward && tree->call->args->dlog_kernel.type != HARK_NONE) {
    tree->dlog_sums = (double *)(void *)take(memory, 2 * tree->levels * rows);
    tree->near_sums = (double *)(void *)take(memory, 4 * rows);
    tree->selected_term = take(memory, rows * tree->call->selected);
  }
  tree->log_sums = take(memory, tree->levels * hark_compressed_table_width(rows));
}

hark_compressed_tree HARK_ISA(hark_compressed_place)(const hark_compressed_call *call, int64_t sequence, int64_t key_head, float *memory) {
  hark_compressed_tree tree = {.call = call, .sequence = &call->run->sequences[sequence], .key_head = key_head};
  tree.chunks = hark_chunks_of(call->desc, &call->list, sequence);
  const int64_t rows = tree.chunks.rows, slots = hark_chunks_slots(&tree.chunks);
  tree.piece = (int64_t *)(void *)take(&memory, 2 * (rows / HARK_COMPRESSED_PIECE + 3));
  cut_pieces(&tree);
  if (call->desc->has_log_kernel) take_tables(&tree, &memory);
  tree.rows = take_keys(call, &memory, rows);
  tree.slots = take_keys(call, &memory, slots);
  tree.globals = take_keys(call, &memory, hark_chunks_states(&tree.chunks) * tree.chunks.globals);
  tree.query = take(&memory, rows * call->head_pad);
  if (!call->backward) return tree;
  tree.dout = take(&memory, rows * call->value_pad);
  tree.selected_weight = take(&memory, rows * call->selected);
  tree.selected_gradient = take(&memory, rows * call->selected);
  tree.users = (uint32_t *)(void *)take(&memory, rows * call->selected);
  tree.first_user = (uint32_t *)(void *)take(&memory, slots + 1);
  return tree;
}

static bool keys_finite(const hark_compressed_call *call, const hark_compressed_keys *keys, int64_t from, int count) {
  return hark_rows_finite(keys->key + from * call->head_pad, call->head_pad, count, call->head_dim) &&
         hark_rows_finite(keys->value + from * call->value_pad, call->value_pad, count, call->value_dim);
}

bool HARK_ISA(hark_compressed_all_finite)(const hark_compressed_tree *tree) {
  const hark_compressed_call *call = tree->call;
  const int64_t rows = tree->chunks.rows;
  for (int64_t row = 0; row < rows; row += HARK_TILE_QUERIES) {
    const int count = (int)hark_min(rows - row, HARK_TILE_QUERIES);
    const bool finite = keys_finite(call, &tree->rows, row, count) &&
                        hark_rows_finite(tree->query + row * call->head_pad, call->head_pad, count, call->head_dim) &&
                        (!call->backward || hark_rows_finite(tree->dout + row * call->value_pad, call->value_pad, count, call->value_dim));
    if (!finite) return false;
  }
  for (int64_t t = 0; tree->levels > 0 && t < rows; t++) { /* log G of -infinity hides */
    const float term = hark_compressed_table(tree, 0)[t];
    if (!isfinite(term) && term != -INFINITY) return false;
  }
  /* means of large numbers may overflow */
  const int64_t slots = hark_chunks_slots(&tree->chunks), globals = hark_chunks_states(&tree->chunks) * tree->chunks.globals;
  for (int64_t slot = 0; slot < slots; slot++)
    if (!keys_finite(call, &tree->slots, slot, 1)) return false;
  for (int64_t global = 0; global < globals; global++)
    if (!keys_finite(call, &tree->globals, global, 1)) return false;
  return true;
}

/* ---- rows and slots ---- */

static void copy_row(const float *from, int width, int padded, float *to) {
  memset(to, 0, (size_t)padded * sizeof *to);
  if (from != NULL) memcpy(to, from, (size_t)width * sizeof *to);
}

static bool is_key(const hark_compressed_tree *tree, int64_t row) {
  const hark_tensor *mask = &tree->call->args->mask;
  if (row >= tree->sequence->key_count) return false;
  if (mask->type == HARK_NONE) return true;
  return ((const uint8_t *)mask->data)[tree->sequence->item * mask->stride[0] + (tree->sequence->key_row + row) * mask->stride[3]] != 0;
}

/* Mean of the unmasked rows from .. to - 1: sums of groups are added, so that rounding grows with their number. */
static void mean_rows(const float *rows, const float *weight, int padded, int64_t from, int64_t to, float gain, float *mean) {
  enum { GROUP = 64 };
  for (int c = 0; c < padded; c += HARK_LANES) {
    vf sum = vf_zero();
    for (int64_t group = from; group < to; group += GROUP) {
      vf part = vf_zero();
      for (int64_t row = group; row < hark_min(group + GROUP, to); row++)
        if (weight[row] == 0.0f) part = vf_fma(vf_set(gain), vf_load(rows + row * padded + c), part);
      sum = sum + part;
    }
    vf_store(mean + c, sum);
  }
}

static void make_slot(const hark_compressed_tree *tree, int64_t slot) {
  const hark_compressed_call *call = tree->call;
  const hark_compressed_keys *rows = &tree->rows, *slots = &tree->slots;
  const int64_t from = hark_chunk_slot_row(&tree->chunks, slot), to = hark_chunk_slot_row(&tree->chunks, slot + 1);
  int64_t count = 0;
  for (int64_t row = from; row < to; row++) count += rows->weight[row] == 0.0f;
  const float gain = count > 0 ? 1.0f / (float)count : 0.0f;
  mean_rows(rows->key, rows->weight, call->head_pad, from, to, gain, slots->key + slot * call->head_pad);
  mean_rows(rows->value, rows->weight, call->value_pad, from, to, gain, slots->value + slot * call->value_pad);
  slots->count[slot] = (float)count;
  slots->weight[slot] = count > 0 ? log2f((float)count) : -INFINITY;
}

void HARK_ISA(hark_compressed_make_keys)(const hark_compressed_tree *tree, int64_t chunk) {
  const hark_compressed_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, end = tree->chunks.start[chunk + 1], slots = tree->chunks.slots;
  for (int64_t row = tree->chunks.start[chunk]; row < end; row++) {
    const bool exists = is_key(tree, row);
    const int64_t at = tree->sequence->key_row + row;
    copy_row(exists ? hark_compressed_row(&args->key, item, tree->key_head, at) : NULL, call->head_dim, call->head_pad,
             tree->rows.key + row * call->head_pad);
    copy_row(exists ? hark_compressed_row(&args->value, item, tree->key_head, at) : NULL, call->value_dim, call->value_pad,
             tree->rows.value + row * call->value_pad);
    tree->rows.weight[row] = exists ? 0.0f : -INFINITY;
    if (!call->backward) continue;
    memset(tree->rows.dkey + row * call->head_pad, 0, (size_t)call->head_pad * sizeof(float));
    memset(tree->rows.dvalue + row * call->value_pad, 0, (size_t)call->value_pad * sizeof(float));
  }
  if (chunk >= tree->chunks.count - 2) return;
  for (int64_t slot = chunk * slots; slot < (chunk + 1) * slots; slot++) {
    make_slot(tree, slot);
    if (!call->backward) continue;
    memset(tree->slots.dkey + slot * call->head_pad, 0, (size_t)call->head_pad * sizeof(float));
    memset(tree->slots.dvalue + slot * call->value_pad, 0, (size_t)call->value_pad * sizeof(float));
  }
}

void HARK_ISA(hark_compressed_make_queries)(const hark_compressed_tree *tree, int64_t chunk) {
  const hark_compressed_call *call = tree->call;
  const int64_t item = tree->sequence->item, queries = tree->sequence->query_count;
  for (int64_t row = tree->chunks.start[chunk]; row < tree->chunks.start[chunk + 1]; row++) {
    const int64_t at = tree->sequence->query_row + row;
    copy_row(row < queries ? hark_compressed_row(&call->args->query, item, tree->head, at) : NULL, call->head_dim, call->head_pad,
             tree->query + row * call->head_pad);
    if (call->backward)
      copy_row(row < queries ? hark_compressed_row(&call->args->dout, item, tree->head, at) : NULL, call->value_dim, call->value_pad,
               tree->dout + row * call->value_pad);
  }
}

/* ---- globals ---- */

/* The least number that is not below `slot` and leaves the remainder `global` when it is divided by G. */
static int64_t next_slot(const hark_compressed_tree *tree, int64_t global, int64_t slot) {
  const int64_t globals = tree->chunks.globals;
  return slot + (global - slot % globals + globals) % globals;
}

static void add_scaled(double *sum, const float *x, int width, double factor) {
  for (int c = 0; c < width; c++) sum[c] += factor * (double)x[c];
}

void HARK_ISA(hark_compressed_make_global)(const hark_compressed_tree *tree, int64_t global, void *memory) {
  const hark_compressed_call *call = tree->call;
  const hark_compressed_keys *slots = &tree->slots, *to = &tree->globals;
  const int64_t states = hark_chunks_states(&tree->chunks);
  double *key = memory, *value = key + call->head_pad, count = 0;
  memset(key, 0, (size_t)(call->head_pad + call->value_pad) * sizeof *key);
  for (int64_t s = 0; s < states; s++) {
    const int64_t at = s * tree->chunks.globals + global, end = (s + 1) * tree->chunks.slots;
    for (int64_t slot = next_slot(tree, global, s * tree->chunks.slots); slot < end; slot += tree->chunks.globals) {
      if (slots->count[slot] == 0.0f) continue;
      add_scaled(key, slots->key + slot * call->head_pad, call->head_pad, (double)slots->count[slot]);
      add_scaled(value, slots->value + slot * call->value_pad, call->value_pad, (double)slots->count[slot]);
      count += (double)slots->count[slot];
    }
    const double gain = count > 0 ? 1 / count : 0;
    for (int c = 0; c < call->head_pad; c++) to->key[at * call->head_pad + c] = (float)(gain * key[c]);
    for (int c = 0; c < call->value_pad; c++) to->value[at * call->value_pad + c] = (float)(gain * value[c]);
    to->count[at] = (float)count;
    to->weight[at] = count > 0 ? (float)log2(count) : -INFINITY;
    if (!call->backward) continue;
    memset(to->dkey + at * call->head_pad, 0, (size_t)call->head_pad * sizeof(float));
    memset(to->dvalue + at * call->value_pad, 0, (size_t)call->value_pad * sizeof(float));
  }
}

static void add_sum(float *x, const double *sum, int width) {
  for (int c = 0; c < width; c++) x[c] = (float)((double)x[c] + sum[c]);
}

void HARK_ISA(hark_compressed_give_global)(const hark_compressed_tree *tree, int64_t global, void *memory) {
  const hark_compressed_call *call = tree->call;
  const hark_compressed_keys *slots = &tree->slots, *from = &tree->globals;
  double *key = memory, *value = key + call->head_pad;
  memset(key, 0, (size_t)(call->head_pad + call->value_pad) * sizeof *key);
  for (int64_t s = hark_chunks_states(&tree->chunks) - 1; s >= 0; s--) {
    const int64_t at = s * tree->chunks.globals + global, end = (s + 1) * tree->chunks.slots;
    const double gain = from->count[at] > 0.0f ? 1 / (double)from->count[at] : 0;
    if (gain > 0) {
      add_scaled(key, from->dkey + at * call->head_pad, call->head_pad, gain);
      add_scaled(value, from->dvalue + at * call->value_pad, call->value_pad, gain);
    }
    for (int64_t slot = next_slot(tree, global, s * tree->chunks.slots); slot < end; slot += tree->chunks.globals) {
      add_sum(slots->dkey + slot * call->head_pad, key, call->head_pad);
      add_sum(slots->dvalue + slot * call->value_pad, value, call->value_pad);
    }
  }
}

/* ---- gradients ---- */

static void scale_row(float *x, int padded, float gain) {
  for (int c = 0; c < padded; c += HARK_LANES) vf_store(x + c, vf_set(gain) * vf_load(x + c));
}

void HARK_ISA(hark_compressed_divide)(const hark_compressed_tree *tree, int64_t chunk) {
  const hark_compressed_call *call = tree->call;
  if (chunk >= tree->chunks.count - 2) return;
  for (int64_t slot = chunk * tree->chunks.slots; slot < (chunk + 1) * tree->chunks.slots; slot++) {
    if (tree->slots.count[slot] == 0.0f) continue; /* no query has selected it */
    const float gain = 1.0f / tree->slots.count[slot];
    scale_row(tree->slots.dkey + slot * call->head_pad, call->head_pad, gain);
    scale_row(tree->slots.dvalue + slot * call->value_pad, call->value_pad, gain);
  }
}

/* target (+)= near + slot; slot NULL: 0 */
static void write_gradient(const hark_tensor *tensor, const hark_compressed_tree *tree, int64_t row, const float *near, const float *slot,
                           int width, bool add) {
  if (tensor->type == HARK_NONE) return;
  float *to = (float *)tensor->data + tree->sequence->item * tensor->stride[0] + tree->key_head * tensor->stride[1] +
              (tree->sequence->key_row + row) * tensor->stride[2];
  for (int c = 0; c < width; c++) {
    const float x = near[c] + (slot != NULL ? slot[c] : 0.0f);
    to[c] = add ? to[c] + x : x;
  }
}

static void give_row(const hark_compressed_tree *tree, int64_t row, int64_t slot) {
  const hark_compressed_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const bool has_slot = slot >= 0 && tree->rows.weight[row] == 0.0f;
  write_gradient(&args->dkey, tree, row, tree->rows.dkey + row * call->head_pad, has_slot ? tree->slots.dkey + slot * call->head_pad : NULL,
                 call->head_dim, args->accumulate & HARK_ACCUMULATE_KEY);
  write_gradient(&args->dvalue, tree, row, tree->rows.dvalue + row * call->value_pad,
                 has_slot ? tree->slots.dvalue + slot * call->value_pad : NULL, call->value_dim, args->accumulate & HARK_ACCUMULATE_VALUE);
}

void HARK_ISA(hark_compressed_give)(const hark_compressed_tree *tree, int64_t chunk) {
  const int64_t keys = tree->sequence->key_count, first = tree->chunks.start[chunk], end = hark_min(tree->chunks.start[chunk + 1], keys);
  if (chunk >= tree->chunks.count - 2) {
    for (int64_t row = first; row < end; row++) give_row(tree, row, -1);
    return;
  }
  for (int64_t slot = chunk * tree->chunks.slots; slot < (chunk + 1) * tree->chunks.slots; slot++)
    for (int64_t row = hark_chunk_slot_row(&tree->chunks, slot); row < hark_min(hark_chunk_slot_row(&tree->chunks, slot + 1), end); row++)
      give_row(tree, row, slot);
}

/* ---- queries that selected a slot ---- */

void HARK_ISA(hark_compressed_sort_users)(const hark_compressed_tree *tree) {
  const int64_t slots = hark_chunks_slots(&tree->chunks), queries = tree->sequence->query_count;
  const int selected = tree->call->selected;
  uint32_t *first = tree->first_user, before = 0;
  memset(first, 0, (size_t)(slots + 1) * sizeof *first);
  for (int64_t row = 0; row < queries; row++) {
    const float *numbers = hark_compressed_saved_of(tree, row).numbers;
    for (int i = 0; i < selected && hark_compressed_number(numbers, i) >= 0; i++) first[hark_compressed_number(numbers, i) + 1]++;
  }
  for (int64_t slot = 0; slot <= slots; slot++) first[slot] = before += first[slot]; /* where the slot begins */
  for (int64_t row = 0; row < queries; row++) {
    const float *numbers = hark_compressed_saved_of(tree, row).numbers;
    for (int i = 0; i < selected && hark_compressed_number(numbers, i) >= 0; i++)
      tree->users[first[hark_compressed_number(numbers, i)]++] = (uint32_t)(row * selected + i);
  }
  /* now each is where the next begins */
  for (int64_t slot = slots; slot > 0; slot--) first[slot] = first[slot - 1];
  first[0] = 0;
}

/* target += sum over the users of a slot of factor x row, in the order of rows */
static void add_users(const hark_compressed_tree *tree, int64_t slot, const float *factors, const float *rows, int padded, float *target) {
  enum { GROUP = 64 };
  const uint32_t selected = (uint32_t)tree->call->selected, end = tree->first_user[slot + 1];
  float weights[GROUP];
  int32_t numbers[GROUP];
  hark_compressed_sum sum = {weights, numbers, 1, 0, rows, padded};
  for (uint32_t first = tree->first_user[slot]; first < end; first += GROUP) {
    sum.count = (int)(end - first < GROUP ? end - first : GROUP);
    for (int i = 0; i < sum.count; i++) {
      const uint32_t entry = tree->users[first + (uint32_t)i];
      weights[i] = factors[entry];
      numbers[i] = (int32_t)(entry / selected);
    }
    hark_compressed_add(&sum, target);
  }
}

void HARK_ISA(hark_compressed_collect)(const hark_compressed_tree *tree, int64_t chunk) {
  const hark_compressed_call *call = tree->call;
  if (chunk >= tree->chunks.count - 2) return;
  for (int64_t slot = chunk * tree->chunks.slots; slot < (chunk + 1) * tree->chunks.slots; slot++) {
    if (tree->first_user[slot] == tree->first_user[slot + 1]) continue;
    add_users(tree, slot, tree->selected_gradient, tree->query, call->head_pad, tree->slots.dkey + slot * call->head_pad);
    add_users(tree, slot, tree->selected_weight, tree->dout, call->value_pad, tree->slots.dvalue + slot * call->value_pad);
  }
}

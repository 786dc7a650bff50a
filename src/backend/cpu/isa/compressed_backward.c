/* compressed_backward.c - backward of compressed attention, tile by tile.
 *
 *     P = 2^(s - m) / Z with m and Z of the forward,   D = dout . out,   dS = P (F dout.v - D),   F: dropout's factor
 *
 *     dq += scale dS k,   dk += scale dS q,   dv += F P dout
 *
 * Logits of near keys and globals are computed again and have the bits of the forward; those of selected slots were saved. m and Z are two
 * numbers, because log-sum-exp, one f32 number, would lose Z next to a large m. Gradients of near keys and globals are added at once. The
 * weights and gradients of selected slots are stored, and every slot then collects those of the queries that selected it.
 */
#include "compressed_tile.h"

typedef struct backward_work {
  const hark_compressed_tile *tile;
  float *queries, *dout;                                                             /* [d][lanes], [dv][lanes] */
  float *weights;                                                                    /* [keys of a block][lanes]: logits, then F P */
  float *products;                                                                   /* of the same shape: dout.v, then scale dS */
  float *kept;                                                                       /* dropout's factors */
  float *terms;                                                                      /* dS, if the gradient by log G is requested */
  float *dquery;                                                                     /* [lanes][d padded] */
  float top[HARK_TILE_QUERIES], inverse[HARK_TILE_QUERIES], mean[HARK_TILE_QUERIES]; /* m, 1 / Z (0: sees nothing), D */
  float marked[HARK_TILE_QUERIES]; /* 1 in rows whose dout or sums are not finite: they reach all that the row sees, also with weight 0 */
  float start[HARK_TILE_QUERIES];  /* added to logits: NaN in rows whose sums are not finite, so that all that they see is NaN */
} backward_work;

size_t HARK_ISA(hark_compressed_backward_floats)(const hark_attention_desc *desc) {
  const size_t keys = HARK_COMPRESSED_KEYS * (2 + (desc->dropout > 0 ? 1u : 0u) + (desc->has_log_kernel ? 1u : 0u));
  const size_t tile = HARK_TILE_QUERIES * ((size_t)desc->head_dim + (size_t)desc->value_dim + keys + hark_padded(desc->head_dim));
  const size_t sums = 2 * (hark_padded(desc->head_dim) + hark_padded(desc->value_dim)); /* of globals: float64 */
  return tile > sums ? tile : sums;
}

static void begin_tile(backward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const int64_t item = tree->sequence->item, row = tree->sequence->query_row + tile->first;
  hark_pack_transposed(tree->query + tile->first * call->head_pad, call->head_pad, tile->count, call->head_dim, call->scale * HARK_LOG2_E,
                       work->queries);
  hark_pack_transposed(tree->dout + tile->first * call->value_pad, call->value_pad, tile->count, call->value_dim, 1.0f, work->dout);
  memset(work->dquery, 0, (size_t)tile->count * (size_t)call->head_pad * sizeof(float));
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    work->top[lane] = work->inverse[lane] = work->mean[lane] = work->start[lane] = work->marked[lane] = 0.0f;
    if (lane >= tile->count) continue;
    const hark_compressed_saved saved = hark_compressed_saved_of(tree, tile->first + lane);
    const float *out = hark_compressed_row(&call->args->out, item, tree->head, row + lane);
    const float *dout = tree->dout + (tile->first + lane) * call->value_pad;
    if (*saved.sum == 0.0f) continue; /* it sees nothing, and top is -infinity */
    work->top[lane] = *saved.top;
    work->inverse[lane] = 1.0f / *saved.sum;
    if (!isfinite(*saved.top) || !isfinite(*saved.sum)) work->start[lane] = NAN;
    if (!tree->finite && (work->start[lane] != 0.0f || !hark_rows_finite(dout, 0, 1, call->value_dim))) work->marked[lane] = 1.0f;
    float sum = 0.0f;
    for (int c = 0; c < call->value_dim; c++) sum += out[c] * dout[c];
    work->mean[lane] = sum;
  }
}

/* weights <- F P, products <- scale dS, for the entries of a block. */
static void block_gradients(const backward_work *work, const hark_compressed_block *block) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const bool drops = tree->call->dropout_threshold > 0;
  const vf scale = vf_set(tree->call->scale);
  if (drops) HARK_ISA(hark_compressed_kept)(tile, block, work->kept);
  for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
    const vf top = vf_load(work->top + lane), inverse = vf_load(work->inverse + lane), mean = vf_load(work->mean + lane);
    const vm blind = vf_equal(inverse, vf_zero()), marked = vf_equal(vf_load(work->marked + lane), vf_set(1.0f));
    for (int key = 0; key < block->count; key++) {
      const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
      const vf logit = vf_load(work->weights + at);
      const vm seen = vm_not(vm_or(blind, vf_equal(logit, vf_set(-INFINITY))));
      vf weight = vf_exp2(logit - top) * inverse;
      if (!tree->finite) weight = vf_select(marked, hark_seen_weight(weight, logit), weight);
      weight = vf_select(seen, weight, vf_zero());
      vf product = vf_load(work->products + at), kept = weight;
      if (drops) hark_apply_dropout(work->kept + at, &kept, &product);
      vf_store(work->weights + at, kept);
      const vf gradient = weight * (product - mean);
      vf_store(work->products + at, vf_select(seen, scale * gradient, vf_zero())); /* hidden: 0, whatever is there */
      if (work->terms != NULL) vf_store(work->terms + at, vf_select(seen, gradient, vf_zero()));
    }
  }
}

/* dv += (F P)' dout, dk += (scale dS)' q, dq += scale dS k. */
static void spread_block(const backward_work *work, const hark_compressed_block *block) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const hark_compressed_keys *keys = block->keys;
  hark_product p = {.a = tree->dout + tile->first * call->value_pad,
                    .a_step = call->value_pad,
                    .b = work->weights,
                    .b_row = HARK_TILE_QUERIES,
                    .b_step = 1,
                    .c = keys->dvalue + block->first * call->value_pad,
                    .c_row = call->value_pad,
                    .rows = block->count,
                    .end = tile->count};
  hark_tile_spread(tree->finite, &p, call->value_pad);
  p.a = tree->query + tile->first * call->head_pad;
  p.a_step = p.c_row = call->head_pad;
  p.b = work->products;
  p.c = keys->dkey + block->first * call->head_pad;
  hark_tile_spread(tree->finite, &p, call->head_pad);
  p.a = keys->key + block->first * call->head_pad;
  p.b_row = 1;
  p.b_step = HARK_TILE_QUERIES;
  p.c = work->dquery;
  p.rows = tile->count;
  p.end = block->count;
  hark_tile_spread(tree->finite, &p, call->head_pad);
}

static void block_backward(const backward_work *work, const hark_compressed_block *block) {
  const hark_compressed_call *call = work->tile->tree->call;
  HARK_ISA(hark_compressed_logits)(work->tile, block, work->queries, work->start, work->weights);
  const hark_product p = {.a = work->dout,
                          .a_step = HARK_TILE_QUERIES,
                          .b = block->keys->value + block->first * call->value_pad,
                          .b_row = call->value_pad,
                          .b_step = 1,
                          .c = work->products,
                          .c_row = HARK_TILE_QUERIES,
                          .rows = block->count,
                          .end = call->value_dim,
                          .start = hark_compressed_zeros};
  hark_tile_scores(&p, hark_compressed_vectors(work->tile));
  block_gradients(work, block);
  if (work->terms != NULL) HARK_ISA(hark_compressed_collect_near)(work->tile, block, work->terms);
  spread_block(work, block);
}

HARK_SIMD float dot(const float *a, const float *b, int padded) {
  vf sum = vf_zero();
  for (int c = 0; c < padded; c += HARK_LANES) sum = vf_fma(vf_load(a + c), vf_load(b + c), sum);
  return vf_sum(sum);
}

/* F of the slots of a group, and F dout.v. */
static void group_products(const backward_work *work, int64_t row, const int32_t *numbers, int count, float *factors, float *products) {
  const hark_compressed_tree *tree = work->tile->tree;
  const hark_compressed_call *call = tree->call;
  const float *dout = tree->dout + row * call->value_pad;
  for (int l = 0; l < HARK_LANES; l++) factors[l] = products[l] = 0.0f;
  for (int l = 0; l < count; l++) {
    factors[l] = call->dropout_threshold > 0 ? HARK_ISA(hark_compressed_keeps)(tree, row, numbers[l]) : 1.0f;
    if (factors[l] != 0.0f)
      products[l] = factors[l] * dot(dout, tree->slots.value + (int64_t)numbers[l] * call->value_pad, call->value_pad);
  }
}

HARK_SIMD void store_some(float *to, vf x, int count) {
  if (count == HARK_LANES)
    vf_store(to, x);
  else
    vf_store_part(to, x, count);
}

/* The selected slots of a row: dq, and what the slots will collect. */
static void selected_backward(const backward_work *work, int lane) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_compressed_call *call = tree->call;
  const int64_t row = tile->first + lane;
  const hark_compressed_saved saved = hark_compressed_saved_of(tree, row);
  float *weights = tree->selected_weight + row * call->selected, *gradients = tree->selected_gradient + row * call->selected;
  for (int i = 0, count = HARK_LANES; count == HARK_LANES; i += HARK_LANES) {
    float factors[HARK_LANES], products[HARK_LANES];
    int32_t numbers[HARK_LANES];
    for (count = 0; count < HARK_LANES && i + count < call->selected && hark_compressed_number(saved.numbers, i + count) >= 0; count++)
      numbers[count] = hark_compressed_number(saved.numbers, i + count);
    if (count == 0) return;
    group_products(work, row, numbers, count, factors, products);
    const vf logit = vf_load_part_or_all(saved.logits + i, count), factor = vf_load(factors);
    vf weight = vf_exp2(logit - vf_set(work->top[lane])) * vf_set(work->inverse[lane]);
    if (work->marked[lane] != 0.0f) weight = hark_seen_weight(weight, logit);
    const vf kept = vf_select(vf_equal(factor, vf_zero()), vf_zero(), factor * weight);
    const vf term = weight * (vf_load(products) - vf_set(work->mean[lane])), gradient = vf_set(call->scale) * term;
    if (tree->selected_term != NULL) store_some(tree->selected_term + row * call->selected + i, term, count);
    store_some(weights + i, kept, count);
    store_some(gradients + i, gradient, count);
    const hark_compressed_sum sum = {gradients + i, numbers, 1, count, tree->slots.key, call->head_pad};
    hark_compressed_add(&sum, work->dquery + (ptrdiff_t)lane * call->head_pad);
  }
}

static void give_queries(const backward_work *work) {
  const hark_compressed_tile *tile = work->tile;
  const hark_compressed_tree *tree = tile->tree;
  const hark_tensor *dquery = &tree->call->args->dquery;
  const bool add = tree->call->args->accumulate & HARK_ACCUMULATE_QUERY;
  for (int lane = 0; dquery->type != HARK_NONE && lane < tile->count; lane++) {
    const float *from = work->dquery + (ptrdiff_t)lane * tree->call->head_pad;
    float *to = (float *)dquery->data + tree->sequence->item * dquery->stride[0] + tree->head * dquery->stride[1] +
                (tree->sequence->query_row + tile->first + lane) * dquery->stride[2];
    for (int c = 0; c < tree->call->head_dim; c++) to[c] = add ? to[c] + from[c] : from[c];
  }
}

void HARK_ISA(hark_compressed_backward)(const hark_compressed_tree *tree, int64_t chunk, float *memory) {
  const hark_compressed_call *call = tree->call;
  const int64_t end = hark_min(tree->chunks.start[chunk + 1], tree->sequence->query_count);
  hark_compressed_tile tile = {.tree = tree, .chunk = chunk, .first = tree->chunks.start[chunk]};
  backward_work work = {.tile = &tile, .queries = memory};
  work.dout = work.queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  work.weights = work.dout + (size_t)call->value_dim * HARK_TILE_QUERIES;
  work.products = work.weights + (size_t)HARK_COMPRESSED_KEYS * HARK_TILE_QUERIES;
  work.dquery = work.products + (size_t)HARK_COMPRESSED_KEYS * HARK_TILE_QUERIES;
  work.kept = work.dquery + (size_t)call->head_pad * HARK_TILE_QUERIES; /* with dropout */
  if (tree->dlog_sums != NULL) {
    work.terms = work.kept + (call->dropout_threshold > 0 ? (size_t)HARK_COMPRESSED_KEYS * HARK_TILE_QUERIES : 0);
    HARK_ISA(hark_compressed_clear_near)(tree, chunk);
  }
  for (; tile.first < end; tile.first += HARK_TILE_QUERIES) {
    hark_compressed_block block;
    int64_t next = 0;
    tile.count = (int)hark_min(end - tile.first, HARK_TILE_QUERIES);
    begin_tile(&work);
    while (HARK_ISA(hark_compressed_next_block)(&tile, &next, &block)) block_backward(&work, &block);
    for (int lane = 0; lane < tile.count; lane++) selected_backward(&work, lane);
    give_queries(&work);
  }
}

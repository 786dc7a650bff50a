/* compressed_decode.c - compressed attention of new rows after a cache, in f32: the record's loops (ops/compressed_decode.c), in vectors.
 *
 * Lanes are features. What a row sees (selected slots, globals, near keys) is two lists: logits, and addresses of values. Slots are chosen
 * from a list that is cut to its best half whenever it is full, and that takes only what may still be among the best. Cost, in
 * multiply-adds: d for each slot from which a row selects, dv for each selected slot, d + dv for each near key, and 2 (d + dv) for each
 * global. Memory: the lists, per key head, in the record's workspace.
 */
#include <math.h>
#include <string.h>

#include "backend/compressed_cache.h"
#include "backend/cpu/isa/best_candidates.h"
#include "backend/cpu/isa/row_products.h"

#define SERIAL_PRODUCTS 262144 /* multiply-adds below which a second thread costs more than it saves */
#define VECTORS 4              /* of values that are summed at once */

/* While slots are chosen, a candidate; then the row of values that the entry's weight multiplies. */
typedef union entry {
  candidate slot;
  const float *value;
} entry;
_Static_assert(sizeof(entry) == sizeof(candidate), "a list of candidates is in the memory of entries");

typedef struct decoder {
  const hark_call *call;
  hark_compressed_cache cache;
  int64_t key_head, key_step, value_step; /* steps: from one row to the next */
  int head_dim, value_dim;
  float log_fewer, log_more; /* log n of slots with floor(m / C) rows and with one more, where all chunks have m */
  float *logit;              /* of entries */
  entry *entry;              /* of each logit */
  double *global_log;        /* log n of the globals */
  hark_compressed_sums sums; /* of the head */
} decoder;

/* Row `row` of the key head in an input with rows of keys or values. */
HARK_SIMD float *row_of(const decoder *d, int input, int64_t row, int width) {
  return (float *)d->call->inputs[input].data + row * d->cache.decode->key_heads * width + d->key_head * width;
}

static decoder open_decoder(const hark_call *call, int64_t key_head) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  decoder d = {.call = call, .cache = hark_compressed_cache_of(call, key_head), .key_head = key_head};
  d.head_dim = (int)(call->inputs[HARK_COMPRESSED_QUERY].shape[2] / decode->heads);
  d.value_dim = (int)(call->inputs[HARK_COMPRESSED_VALUE].shape[2] / decode->key_heads);
  d.key_step = decode->key_heads * d.head_dim;
  d.value_step = decode->key_heads * d.value_dim;
  const int64_t fewer = decode->chunk / decode->chunk_slots;
  d.log_fewer = (float)log((double)fewer);
  d.log_more = (float)log((double)(fewer + 1));
  const int64_t globals = call->inputs[HARK_COMPRESSED_GLOBAL_KEY].shape[0], slots = d.cache.stored * decode->chunk_slots;
  const int64_t entries = slots + 2 * globals + d.cache.ring;
  size_t doubles = 0;
  if (hark_compressed_work(NULL, decode, call->inputs, &doubles) != HARK_OK) return d; /* the record's infer() has computed it already */
  double *memory = (double *)call->workspace + (size_t)key_head * doubles;
  d.global_log = memory;
  d.entry = (entry *)(memory + globals);
  d.logit = (float *)(memory + globals + entries);
  return d;
}

/* ---- the cache ---- */

/* Slots of a finished chunk, whose rows are in the ring. */
static void make_slots(const decoder *d, int64_t chunk, int ring, int slots, int width) {
  const int64_t count = d->cache.decode->chunk_slots;
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = hark_compressed_slot_begin(&d->cache, chunk, i), last = hark_compressed_slot_begin(&d->cache, chunk, i + 1);
    float *mean = row_of(d, slots, hark_compressed_slot_row(&d->cache, chunk * count + i), width);
    for (int begin = 0; begin < width; begin += HARK_LANES) {
      const int lanes = width - begin < HARK_LANES ? width - begin : HARK_LANES;
      double sum[HARK_LANES] = {0};
      for (int64_t row = first; row < last; row++) {
        const float *from = row_of(d, ring, row % d->cache.ring, width) + begin;
        for (int c = 0; c < lanes; c++) sum[c] += (double)from[c];
      }
      for (int c = 0; c < lanes; c++) mean[begin + c] = (float)(sum[c] / (double)(last - first));
    }
  }
}

/* Adds the slots of a chunk, which is the oldest stored one, to the globals. */
static void merge_chunk(const decoder *d, int64_t chunk, int slots, int globals, int width) {
  const int64_t count = d->cache.decode->chunk_slots;
  for (int64_t slot = chunk * count; slot < (chunk + 1) * count; slot++) {
    const int64_t global = slot % d->cache.decode->global_slots, before = hark_compressed_global_count(&d->cache, global, slot);
    const double rows = (double)hark_compressed_slot_count(&d->cache, slot), share = rows / ((double)before + rows);
    const float *mean = row_of(d, slots, hark_compressed_slot_row(&d->cache, slot), width);
    float *first = row_of(d, globals, 2 * global, width), *second = row_of(d, globals, 2 * global + 1, width);
    for (int c = 0; c < width; c++) {
      const double old = before == 0 ? 0 : (double)first[c] + (double)second[c], slot_mean = (double)mean[c];
      const double new = (1 - share) * old + slot_mean *share;
      first[c] = (float)new;
      second[c] = isfinite(first[c]) ? (float)(new - (double)first[c]) : 0.0f;
    }
  }
}

/* What row n of a chunk changes in the cache before it attends: of keys, or of values. */
static void append(const decoder *d, int64_t row, int64_t chunk, int from, int ring, int slots, int globals, int width) {
  const int64_t n = d->cache.decode->first_position + row;
  if (chunk > 0 && n == hark_compressed_begin(&d->cache, chunk)) {
    const int64_t old = hark_compressed_leaves(&d->cache, chunk);
    if (old >= 0) merge_chunk(d, old, slots, globals, width);
    make_slots(d, chunk - 1, ring, slots, width);
  }
  memcpy(row_of(d, ring, n % d->cache.ring, width), row_of(d, from, row, width), (size_t)width * sizeof(float));
}

/* ---- selection ---- */

/* A term of -infinity hides, whatever the product is. */
HARK_SIMD float add_term(float product, float term) { return term == -INFINITY ? term : product + term; }

/* The numbers of rows in slots, which differ where the caller says where chunks begin. */
static void count_rows(const decoder *d, int64_t slot, int count, float *rows) {
  const int64_t slots = d->cache.decode->chunk_slots;
  int64_t chunk = slot / slots, place = slot % slots, begin = hark_compressed_slot_begin(&d->cache, chunk, place);
  for (int i = 0; i < count; i++) {
    if (++place == slots) chunk++, place = 0;
    const int64_t end = place == 0 ? hark_compressed_begin(&d->cache, chunk) : hark_compressed_slot_begin(&d->cache, chunk, place);
    rows[i] = (float)(end - begin);
    begin = end;
  }
}

/* Logits of `count` slots, up to HARK_LANES, which are stored from `row` on. */
HARK_SIMD void slot_logits(const decoder *d, const float *query, int64_t n, int64_t slot, int64_t row, int count, float *logits) {
  const hark_compressed_decode_attributes *decode = d->cache.decode;
  const float scale = (float)decode->scale;
  const int64_t fewer = decode->chunk / decode->chunk_slots;
  const bool are_equal = decode->chunk % decode->chunk_slots == 0;
  row_products(query, row_of(d, HARK_COMPRESSED_SLOT_KEY, row, d->head_dim), d->key_step, count, d->head_dim, logits);
  if (d->sums.type != HARK_NONE) {
    for (int i = 0; i < count; i++)
      logits[i] = add_term(scale * logits[i], (float)hark_compressed_slot_term(&d->cache, &d->sums, n, slot + i));
    return;
  }
  if (d->cache.starts != NULL) {
    float rows[HARK_LANES];
    count_rows(d, slot, count, rows);
    store_lanes(logits, vf_fma(vf_set(scale), load_lanes(logits, count), vf_log(load_lanes(rows, count))), count);
    return;
  }
  for (int i = 0; i < count; i++) {
    const bool has_more = !are_equal && hark_compressed_slot_count(&d->cache, slot + i) != fewer;
    logits[i] = scale * logits[i] + (has_more ? d->log_more : d->log_fewer);
  }
}

/* The best slots as first entries; returns how many. Candidates come in ascending order, and are numbered from the first one on. */
static int64_t select_slots(const decoder *d, const float *query, int64_t n, int64_t chunk) {
  const hark_compressed_decode_attributes *decode = d->cache.decode;
  const int64_t stored = d->cache.stored * decode->chunk_slots;
  const int selected = (int)decode->selected_slots;
  candidate *candidates = &d->entry->slot;
  int32_t threshold = LOWEST; /* what is not above it is not selected: of equal logits the earlier slot is */
  int64_t from, to;
  int count = 0;
  hark_compressed_candidates(&d->cache, chunk, &from, &to);
  for (int64_t slot = from, next; slot < to; slot = next) {
    const int64_t row = hark_compressed_slot_row(&d->cache, slot);
    next = hark_min(slot + HARK_LANES, hark_min(to, slot + stored - row));
    float logits[HARK_LANES];
    int32_t orders[HARK_LANES];
    for (int i = (int)(next - slot); i < HARK_LANES; i++) logits[i] = -INFINITY;
    slot_logits(d, query, n, slot, row, (int)(next - slot), logits);
    const vi order = orders_of(vf_load(logits));
    if (!vm_any(vi_less(vi_set(threshold), order))) continue;
    vi_store(orders, order);
    for (int i = 0; i < (int)(next - slot); i++) {
      if (orders[i] <= threshold) continue;
      candidates[count++] = (candidate){orders[i], (int32_t)(slot + i - from)};
      if (count < 2 * selected) continue;
      part_best(candidates, count, selected);
      count = selected;
      threshold = candidates[selected - 1].order;
    }
  }
  if (count > selected) {
    part_best(candidates, count, selected);
    count = selected;
  }
  for (int i = 0; i < count; i++) {
    const candidate best = d->entry[i].slot;
    d->logit[i] = number_of(best.order);
    d->entry[i].value = row_of(d, HARK_COMPRESSED_SLOT_VALUE, hark_compressed_slot_row(&d->cache, from + best.number), d->value_dim);
  }
  return count;
}

/* ---- one row ---- */

/* The highest logit, NaN if there is one; -infinity if there is no entry. */
static float highest_of(const float *logit, int64_t count) {
  float highest = -INFINITY;
  for (int64_t i = 0; i < count; i++)
    if (logit[i] > highest || isnan(logit[i])) highest = logit[i];
  return highest;
}

/* Logits to weights; returns their sum. */
static float weigh(float *logit, int64_t count, float highest) {
  const vf shift = vf_set(highest), hidden = vf_set(-INFINITY);
  vf sum = vf_zero();
  for (int64_t i = 0; i < count; i += HARK_LANES) {
    const int lanes = count - i < HARK_LANES ? (int)(count - i) : HARK_LANES;
    const vf s = load_lanes(logit + i, lanes), weight = vf_select(vf_equal(s, hidden), vf_zero(), vf_exp(s - shift));
    store_lanes(logit + i, weight, lanes);
    sum = sum + (lanes == HARK_LANES ? weight : load_lanes(logit + i, lanes));
  }
  return vf_sum(sum);
}

/* out[begin .. begin + VECTORS * HARK_LANES) <- sum of weight * value / total */
HARK_SIMD void mix(const decoder *d, int64_t count, float total, float *out, int begin, int vectors, int last_lanes) {
  vf sum[VECTORS];
  for (int v = 0; v < vectors; v++) sum[v] = vf_zero();
  for (int64_t i = 0; i < count; i++) {
    const float weight = d->logit[i];
    if (weight == 0.0f) continue; /* as logits of -infinity in the record: values may hold anything */
    const float *value = d->entry[i].value + begin;
    for (int v = 0; v < vectors; v++)
      sum[v] = vf_fma(vf_set(weight), load_lanes(value + v * HARK_LANES, v + 1 < vectors ? HARK_LANES : last_lanes), sum[v]);
  }
  for (int v = 0; v < vectors; v++)
    store_lanes(out + begin + v * HARK_LANES, sum[v] / vf_set(total), v + 1 < vectors ? HARK_LANES : last_lanes);
}

static void mix_all(const decoder *d, int64_t count, float total, float *out) {
  for (int begin = 0; begin < d->value_dim; begin += VECTORS * HARK_LANES) {
    const int rest = d->value_dim - begin;
    if (rest >= VECTORS * HARK_LANES)
      mix(d, count, total, out, begin, VECTORS, HARK_LANES);
    else
      mix(d, count, total, out, begin, (rest + HARK_LANES - 1) / HARK_LANES, rest % HARK_LANES == 0 ? HARK_LANES : rest % HARK_LANES);
  }
}

static void attend(const decoder *d, int64_t head, int64_t row, int64_t chunk) {
  const hark_compressed_decode_attributes *decode = d->cache.decode;
  const int64_t n = decode->first_position + row, at = row * decode->heads + head;
  const int64_t globals = hark_min(decode->global_slots, hark_compressed_merged(&d->cache, chunk));
  const float *query = (const float *)d->call->inputs[HARK_COMPRESSED_QUERY].data + at * d->head_dim;
  float *out = (float *)d->call->outputs[0].data + at * d->value_dim;
  const float scale = (float)decode->scale;
  int64_t count = select_slots(d, query, n, chunk);
  const int64_t first_global = count;
  for (int64_t g = 0; g < globals; g++) {
    const float *key = row_of(d, HARK_COMPRESSED_GLOBAL_KEY, 2 * g, d->head_dim);
    const float product = inner_product(query, key, d->head_dim) + inner_product(query, key + d->key_step, d->head_dim);
    d->entry[count].value = row_of(d, HARK_COMPRESSED_GLOBAL_VALUE, 2 * g, d->value_dim);
    d->logit[count++] = scale * product + (float)d->global_log[g];
  }
  for (int64_t key = hark_compressed_begin(&d->cache, hark_max(0, chunk - 1)), next; key <= n; key = next) {
    const int64_t place = key % d->cache.ring;
    next = hark_min(key + HARK_LANES, hark_min(n + 1, key + d->cache.ring - place));
    const int lanes = (int)(next - key);
    float products[HARK_LANES];
    row_products(query, row_of(d, HARK_COMPRESSED_RING_KEY, place, d->head_dim), d->key_step, lanes, d->head_dim, products);
    for (int i = 0; i < lanes; i++) {
      d->entry[count].value = row_of(d, HARK_COMPRESSED_RING_VALUE, place + i, d->value_dim);
      const float term = d->sums.type != HARK_NONE ? (float)hark_compressed_sum(&d->sums, 0, n - key - i) : 0.0f;
      d->logit[count++] = add_term(scale * products[i], term);
    }
  }
  const float highest = highest_of(d->logit, count);
  if (highest == -INFINITY) {
    memset(out, 0, (size_t)d->value_dim * sizeof *out);
    return;
  }
  const float total = weigh(d->logit, count, highest);
  for (int64_t g = 0; g < globals; g++) { /* the second numbers of values */
    d->entry[count].value = d->entry[first_global + g].value + d->value_step;
    d->logit[count++] = d->logit[first_global + g];
  }
  mix_all(d, count, total, out);
}

/* Logarithms of the numbers of rows in globals, which the queries of a chunk need. */
static void take_logarithms(const decoder *d, int64_t chunk) {
  const int64_t merged = hark_compressed_merged(&d->cache, chunk);
  for (int64_t g = 0; g < hark_min(d->cache.decode->global_slots, merged); g++)
    d->global_log[g] = log((double)hark_compressed_global_count(&d->cache, g, merged));
}

/* Heads that share a key head share its part of the cache: one piece of work, row after row. */
static void decode_heads(const hark_call *call, int64_t first, int64_t last) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  const int64_t group = decode->heads / decode->key_heads;
  for (int64_t key_head = first; key_head < last; key_head++) {
    decoder d = open_decoder(call, key_head);
    int64_t chunk = hark_compressed_chunk_of(&d.cache, decode->first_position);
    for (int64_t row = 0; row < call->inputs[HARK_COMPRESSED_QUERY].shape[1]; row++) {
      const int64_t n = decode->first_position + row;
      if (row > 0) chunk = hark_compressed_next_chunk(&d.cache, chunk, n);
      const bool begins = chunk > 0 && n == hark_compressed_begin(&d.cache, chunk);
      append(&d, row, chunk, HARK_COMPRESSED_KEY, HARK_COMPRESSED_RING_KEY, HARK_COMPRESSED_SLOT_KEY, HARK_COMPRESSED_GLOBAL_KEY,
             d.head_dim);
      append(&d, row, chunk, HARK_COMPRESSED_VALUE, HARK_COMPRESSED_RING_VALUE, HARK_COMPRESSED_SLOT_VALUE, HARK_COMPRESSED_GLOBAL_VALUE,
             d.value_dim);
      if (begins && hark_compressed_leaves(&d.cache, chunk) >= 0)
        hark_compressed_count_merged(&d.cache, hark_compressed_leaves(&d.cache, chunk));
      if (row == 0 || begins) take_logarithms(&d, chunk);
      for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
        d.sums = hark_compressed_sums_of(call, head);
        attend(&d, head, row, chunk);
      }
    }
  }
}

hark_status HARK_ISA(hark_cpu_compressed_decode_forward)(hark_context *context, const hark_call *call) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  if (call->inputs[HARK_COMPRESSED_SLOT_KEY].shape[0] > INT32_MAX / decode->chunk_slots) /* numbers of candidates */
    return hark_fail(context, HARK_TOO_LARGE,
                     "compressed_decode: slot_key has more than 2^31 - 1 slots, which the cpu backend cannot number");
  HARK_TRY(hark_compressed_check_starts(context, call));
  const double operations = call->op->operations(decode, call->inputs, call->input_count, false);
  hark_cpu_ranges(context, call, decode->key_heads, 1, operations < 2.0 * SERIAL_PRODUCTS ? INT64_MAX : 1, decode_heads);
  return HARK_OK;
}

/* compressed_decode.c - compressed causal attention of new tokens with a cache. With kept chunks, N > 0, the cost of a token and the size
 * of the cache do not depend on the length of the text. backend/compressed_cache.h has the layout. Equal to the rows of
 * HARK_STRUCTURE_COMPRESSED with the same chunks, up to rounding, which may also decide what is selected. docs/mathematics/compressed.md.
 */
#include <inttypes.h>

#include "backend/compressed_cache.h"
#include "core/range.h"
#include "io/number.h"
#include "ops/compressed_decode.h"
#include "ops/definition.h"

#define OPERATIONS_PER_PRODUCT 2.0
#define MOST_CHUNK ((int64_t)1 << 20)
#define MOST_SELECTED 4096

/* ---- shapes ---- */

static hark_status check_attributes(hark_context *context, const hark_compressed_decode_attributes *decode, hark_type type) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } ranges[] = {{"key_heads", decode->key_heads, 1, INT64_MAX},
                {"heads", decode->heads, 1, INT64_MAX},
                {"chunk", decode->chunk, 1, MOST_CHUNK},
                {"chunk_slots", decode->chunk_slots, 1, decode->chunk},
                {"selected_slots", decode->selected_slots, 1, MOST_SELECTED},
                {"kept_chunks", decode->kept_chunks, 0, (int64_t)1 << 40},
                {"global_slots", decode->global_slots, 0, MOST_CHUNK},
                {"first_position", decode->first_position, 0, INT64_MAX / 2},
                {"chunk_maximum", decode->chunk_maximum, decode->chunk_maximum == 0 ? 0 : decode->chunk, MOST_CHUNK}};
  for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
    if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                       ranges[i].name, ranges[i].value, ranges[i].least, ranges[i].most);
  if (decode->global_slots > 0 && decode->kept_chunks == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "compressed_decode: global_slots is %" PRId64 " with kept_chunks 0, expected 0: the slots of all chunks remain apart",
                     decode->global_slots);
  if (decode->heads % decode->key_heads != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: heads is %" PRId64 ", expected a multiple of key_heads = %" PRId64,
                     decode->heads, decode->key_heads);
  if (!isfinite(decode->scale))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: scale is %s, expected a finite number",
                     HARK_PRINTED(decode->scale));
  return hark_check_range(context, "compressed_decode", "scale", decode->scale, type, hark_range_of_scale(type));
}

hark_compressed_decode_sizes hark_compressed_decode_sizes_with(const hark_compressed_decode_attributes *decode, int64_t tokens,
                                                               int64_t finished) {
  const int64_t kept = decode->kept_chunks, merged = kept > 0 ? hark_max(0, finished - 1 - kept) : 0;
  return (hark_compressed_decode_sizes){.ring = hark_min(tokens, 2 * hark_compressed_longest(decode)),
                                        .chunks = kept > 0 && finished > kept ? kept + 1 : finished,
                                        .globals = merged > decode->global_slots / decode->chunk_slots
                                                       ? decode->global_slots
                                                       : hark_min(decode->global_slots, merged * decode->chunk_slots)};
}

hark_compressed_decode_sizes hark_compressed_decode_sizes_of(const hark_compressed_decode_attributes *decode, int64_t tokens) {
  return hark_compressed_decode_sizes_with(decode, tokens, tokens > 0 ? (tokens - 1) / decode->chunk : 0);
}

/* The starts of chunks, and the numbers of rows in globals: both, or neither. */
static hark_status check_starts(hark_context *context, const hark_compressed_decode_attributes *decode, const hark_tensor *inputs,
                                int input_count, int64_t rows_of_call) {
  const hark_operator *op = &hark_op_compressed_decode;
  const bool needed = decode->chunk_maximum > 0;
  static const char *const names[] = {"chunk_starts", "global_rows"};
  for (int i = 0; i < 2; i++)
    if (hark_has_input(inputs, input_count, HARK_COMPRESSED_CHUNK_STARTS + i) != needed)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "compressed_decode: %s is %s with chunk_maximum %" PRId64, names[i],
                       needed ? "absent" : "given", decode->chunk_maximum);
  if (!needed) return HARK_OK;
  if (inputs[HARK_COMPRESSED_CHUNK_STARTS].shape[0] < 1)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "compressed_decode: chunk_starts has no starts, expected at least 1");
  const int64_t tokens = decode->first_position + rows_of_call, most = hark_ceil_div(tokens, decode->chunk);
  if (inputs[HARK_COMPRESSED_CHUNK_STARTS].shape[0] > most)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "compressed_decode: chunk_starts has %" PRId64 " starts, expected at most %" PRId64 " for %" PRId64 " tokens",
                     inputs[HARK_COMPRESSED_CHUNK_STARTS].shape[0], most, tokens);
  const int64_t rows[] = {inputs[HARK_COMPRESSED_GLOBAL_KEY].shape[0], decode->key_heads};
  return hark_check_shape(context, op, "global_rows", &inputs[HARK_COMPRESSED_GLOBAL_ROWS], 2, rows);
}

/* A table for all distances that occur, and for the longest slots. */
static hark_status check_sums(hark_context *context, const hark_compressed_decode_attributes *decode, const hark_tensor *inputs,
                              int input_count, int64_t rows) {
  if (!hark_has_input(inputs, input_count, HARK_COMPRESSED_LOG_SUMS)) return HARK_OK;
  const hark_tensor *sums = &inputs[HARK_COMPRESSED_LOG_SUMS];
  const int64_t longest = hark_compressed_longest(decode), tokens = decode->first_position + rows;
  const int64_t levels = hark_chunk_part_levels(hark_ceil_div(longest, decode->chunk_slots));
  const int64_t distances = decode->kept_chunks > 0 ? hark_min(tokens, (decode->kept_chunks + 2) * longest) : tokens;
  if (decode->global_slots > 0)
    return hark_fail(
        context, HARK_UNSUPPORTED,
        "compressed_decode: log_sums with global_slots, expected global_slots 0: the rows of a global slot have ever more distances");
  if (sums->shape[0] < levels || (sums->shape[1] != 1 && sums->shape[1] != decode->heads) || sums->shape[2] < distances)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "compressed_decode: log_sums is [%" PRId64 ", %" PRId64 ", %" PRId64
                     "], expected [levels, heads or 1, distances] with at "
                     "least %" PRId64 " levels, and %" PRId64 " distances for %" PRId64 " tokens",
                     sums->shape[0], sums->shape[1], sums->shape[2], levels, distances, tokens);
  return HARK_OK;
}

static hark_status check_cache(hark_context *context, const hark_compressed_decode_attributes *decode, const hark_tensor *inputs,
                               int64_t rows, int64_t key_width, int64_t value_width) {
  const hark_operator *op = &hark_op_compressed_decode;
  const int64_t tokens = decode->first_position + rows;
  const hark_compressed_decode_sizes needs =
      decode->chunk_maximum == 0 ? hark_compressed_decode_sizes_of(decode, tokens)
                                 : hark_compressed_decode_sizes_with(decode, tokens, inputs[HARK_COMPRESSED_CHUNK_STARTS].shape[0] - 1);
  const struct {
    const char *name, *of;
    int64_t has, least, most;
  } sizes[] = {
      {"ring_key", "tokens", inputs[HARK_COMPRESSED_RING_KEY].shape[1], hark_max(1, needs.ring), 2 * hark_compressed_longest(decode)},
      {"slot_key", "chunks", inputs[HARK_COMPRESSED_SLOT_KEY].shape[0], hark_max(1, needs.chunks), INT64_MAX},
      {"global_key", "global slots", inputs[HARK_COMPRESSED_GLOBAL_KEY].shape[0], hark_max(1, needs.globals),
       hark_max(1, decode->global_slots)}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].has < sizes[i].least || sizes[i].has > sizes[i].most)
      return hark_fail(context, HARK_SHAPE_MISMATCH,
                       "compressed_decode: %s has room for %" PRId64 " %s, expected at least %" PRId64 "%s for %" PRId64 " tokens",
                       sizes[i].name, sizes[i].has, sizes[i].of, sizes[i].least,
                       sizes[i].has > sizes[i].most ? ", and no more than can be used," : "", tokens);
  const int64_t ring = sizes[0].has, chunks = sizes[1].has, globals = sizes[2].has;
  const int64_t ring_keys[] = {1, ring, key_width}, ring_values[] = {1, ring, value_width};
  const int64_t slot_keys[] = {chunks, decode->chunk_slots, key_width}, slot_values[] = {chunks, decode->chunk_slots, value_width};
  const int64_t global_keys[] = {globals, 2, key_width}, global_values[] = {globals, 2, value_width};
  HARK_TRY(hark_check_shape(context, op, "ring_key", &inputs[HARK_COMPRESSED_RING_KEY], 3, ring_keys));
  HARK_TRY(hark_check_shape(context, op, "ring_value", &inputs[HARK_COMPRESSED_RING_VALUE], 3, ring_values));
  HARK_TRY(hark_check_shape(context, op, "slot_key", &inputs[HARK_COMPRESSED_SLOT_KEY], 3, slot_keys));
  HARK_TRY(hark_check_shape(context, op, "slot_value", &inputs[HARK_COMPRESSED_SLOT_VALUE], 3, slot_values));
  HARK_TRY(hark_check_shape(context, op, "global_key", &inputs[HARK_COMPRESSED_GLOBAL_KEY], 3, global_keys));
  return hark_check_shape(context, op, "global_value", &inputs[HARK_COMPRESSED_GLOBAL_VALUE], 3, global_values);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[HARK_COMPRESSED_INPUTS] = {
      {"query", HARK_F32, 3, 3},        {"key", HARK_F32, 3, 3},          {"value", HARK_F32, 3, 3},       {"ring_key", HARK_F32, 3, 3},
      {"ring_value", HARK_F32, 3, 3},   {"slot_key", HARK_F32, 3, 3},     {"slot_value", HARK_F32, 3, 3},  {"global_key", HARK_F32, 3, 3},
      {"global_value", HARK_F32, 3, 3}, {"chunk_starts", HARK_I64, 1, 1}, {"global_rows", HARK_I64, 2, 2}, {"log_sums", HARK_F32, 3, 3}};
  const hark_compressed_decode_attributes *decode = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_compressed_decode, rules, attributes, inputs, input_count));
  HARK_TRY(check_attributes(context, decode, inputs[HARK_COMPRESSED_QUERY].type));
  const hark_tensor *query = &inputs[HARK_COMPRESSED_QUERY], *value = &inputs[HARK_COMPRESSED_VALUE];
  HARK_TRY(hark_check_decoder_rows(context, &hark_op_compressed_decode, query, &inputs[HARK_COMPRESSED_KEY], value, decode->heads,
                                   decode->key_heads));
  const int64_t rows = query->shape[1], value_dim = value->shape[2] / decode->key_heads;
  HARK_TRY(check_starts(context, decode, inputs, input_count, rows));
  HARK_TRY(check_sums(context, decode, inputs, input_count, rows));
  HARK_TRY(check_cache(context, decode, inputs, rows, inputs[HARK_COMPRESSED_KEY].shape[2], value->shape[2]));
  const int64_t shape[] = {1, rows, value_dim * decode->heads};
  size_t doubles;
  HARK_TRY(hark_compressed_work(context, decode, inputs, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)decode->key_heads * sizeof(double), &out->forward_workspace));
  return hark_tensor_describe(context, query->type, 3, shape, &out->outputs[0]);
}

/* ---- a head's part of the cache ---- */

typedef struct decoder_head {
  const hark_call *call;
  const hark_compressed_decode_attributes *decode;
  hark_compressed_cache cache;
  int64_t head, key_head, head_dim, value_dim;
  double *query, *mixed, *rows, *logit, *place; /* rows: of the globals of the current chunk */
  hark_compressed_sums sums;                    /* of the head */
} decoder_head;

/* The numbers of a key head in row `row` of an input with rows [Hkv * width]. */
static hark_numbers part_of(const decoder_head *at, int input, int64_t row, int64_t width) {
  const int64_t step = at->decode->key_heads * width;
  return hark_numbers_from(hark_numbers_of(&at->call->inputs[input]), row * step + at->key_head * width);
}

/* A mean in two numbers of the type. */
static double get_mean(const decoder_head *at, int input, int64_t global, int64_t width, int64_t c) {
  return hark_get(part_of(at, input, 2 * global, width), c) + hark_get(part_of(at, input, 2 * global + 1, width), c);
}
static void put_mean(const decoder_head *at, int input, int64_t global, int64_t width, int64_t c, double mean) {
  const hark_numbers first = part_of(at, input, 2 * global, width);
  hark_put(first, c, mean);
  const double stored = hark_get(first, c);
  hark_put(part_of(at, input, 2 * global + 1, width), c, isfinite(stored) ? mean - stored : 0);
}

/* Adds the slots of a chunk, which is the oldest stored one, to the globals. */
static void merge_chunk(const decoder_head *at, int64_t chunk, int slots, int globals, int64_t width) {
  for (int64_t slot = chunk * at->decode->chunk_slots; slot < (chunk + 1) * at->decode->chunk_slots; slot++) {
    const hark_numbers mean = part_of(at, slots, hark_compressed_slot_row(&at->cache, slot), width);
    const int64_t global = slot % at->decode->global_slots;
    const double before = (double)hark_compressed_global_count(&at->cache, global, slot),
                 share =
                     (double)hark_compressed_slot_count(&at->cache, slot) / (before + (double)hark_compressed_slot_count(&at->cache, slot));
    for (int64_t c = 0; c < width; c++) {
      const double old = before == 0 ? 0 : get_mean(at, globals, global, width, c);
      put_mean(at, globals, global, width, c, (1 - share) * old + share * hark_get(mean, c));
    }
  }
}

/* Slots of a finished chunk, whose rows are in the ring. */
static void make_slots(const decoder_head *at, int64_t chunk, int ring, int slots, int64_t width) {
  for (int64_t i = 0; i < at->decode->chunk_slots; i++) {
    const hark_numbers mean = part_of(at, slots, hark_compressed_slot_row(&at->cache, chunk * at->decode->chunk_slots + i), width);
    const int64_t first = hark_compressed_slot_begin(&at->cache, chunk, i), end = hark_compressed_slot_begin(&at->cache, chunk, i + 1);
    for (int64_t c = 0; c < width; c++) {
      double sum = 0;
      for (int64_t row = first; row < end; row++) sum += hark_get(part_of(at, ring, row % at->cache.ring, width), c);
      hark_put(mean, c, sum / (double)(end - first));
    }
  }
}

/* What row n of a chunk changes in the cache before it attends: of keys, or of values. */
static void append(const decoder_head *at, int64_t row, int64_t chunk, int from, int ring, int slots, int globals, int64_t width) {
  const int64_t n = at->decode->first_position + row, old = hark_compressed_leaves(&at->cache, chunk);
  if (chunk > 0 && n == hark_compressed_begin(&at->cache, chunk)) {
    if (old >= 0) merge_chunk(at, old, slots, globals, width);
    make_slots(at, chunk - 1, ring, slots, width);
  }
  const hark_numbers new = part_of(at, from, row, width), to = part_of(at, ring, n % at->cache.ring, width);
  for (int64_t c = 0; c < width; c++) hark_put(to, c, hark_get(new, c));
}

/* ---- one row ---- */

static double product(const decoder_head *at, hark_numbers key) {
  double sum = 0;
  for (int64_t c = 0; c < at->head_dim; c++) sum += at->query[c] * hark_get(key, c);
  return at->decode->scale * sum;
}

static bool is_better(double a, double a_slot, double b, double b_slot) {
  if (isnan(a) != isnan(b)) return isnan(a);
  return a != b && !isnan(a) ? a > b : a_slot < b_slot;
}

/* Logits and numbers of the best slots, at the beginning of logit and place; returns how many. */
static int64_t select_slots(const decoder_head *at, int64_t n, int64_t chunk) {
  int64_t count = 0, from, to;
  hark_compressed_candidates(&at->cache, chunk, &from, &to);
  for (int64_t slot = from; slot < to; slot++) {
    const double term = at->sums.type == HARK_NONE ? log((double)hark_compressed_slot_count(&at->cache, slot))
                                                   : hark_compressed_slot_term(&at->cache, &at->sums, n, slot);
    const double logit =
        product(at, part_of(at, HARK_COMPRESSED_SLOT_KEY, hark_compressed_slot_row(&at->cache, slot), at->head_dim)) + term;
    if (logit == -INFINITY || term == -INFINITY) continue;
    at->logit[count] = logit;
    at->place[count++] = (double)slot;
  }
  const int64_t selected = hark_min(count, at->decode->selected_slots);
  for (int64_t i = 0; i < selected && selected < count; i++) {
    int64_t best = i;
    for (int64_t j = i + 1; j < count; j++)
      if (is_better(at->logit[j], at->place[j], at->logit[best], at->place[best])) best = j;
    const double logit = at->logit[i], place = at->place[i];
    at->logit[i] = at->logit[best];
    at->place[i] = at->place[best];
    at->logit[best] = logit;
    at->place[best] = place;
  }
  return selected;
}

static void mix_row(const decoder_head *at, double weight, hark_numbers value) {
  for (int64_t c = 0; c < at->value_dim; c++) at->mixed[c] += weight * hark_get(value, c);
}

/* The numbers of rows of the globals that a chunk's queries see. */
static void count_globals(const decoder_head *at, int64_t chunk) {
  const int64_t merged = hark_compressed_merged(&at->cache, chunk);
  for (int64_t g = 0; g < hark_min(at->decode->global_slots, merged); g++)
    at->rows[g] = (double)hark_compressed_global_count(&at->cache, g, merged);
}

static void attend(const decoder_head *at, int64_t row, int64_t chunk) {
  const hark_compressed_decode_attributes *decode = at->decode;
  const int64_t n = decode->first_position + row, near = hark_compressed_begin(&at->cache, hark_max(0, chunk - 1));
  const int64_t merged = hark_compressed_merged(&at->cache, chunk), globals = hark_min(decode->global_slots, merged);
  const hark_numbers from =
      hark_numbers_from(hark_numbers_of(&at->call->inputs[HARK_COMPRESSED_QUERY]), (row * decode->heads + at->head) * at->head_dim);
  const hark_numbers to = hark_numbers_from(hark_numbers_of(&at->call->outputs[0]), (row * decode->heads + at->head) * at->value_dim);
  for (int64_t c = 0; c < at->head_dim; c++) at->query[c] = hark_get(from, c);
  for (int64_t c = 0; c < at->value_dim; c++) at->mixed[c] = 0;
  const int64_t selected = select_slots(at, n, chunk);
  int64_t count = selected;
  for (int64_t g = 0; g < globals; g++) {
    double sum = 0;
    for (int64_t c = 0; c < at->head_dim; c++) sum += at->query[c] * get_mean(at, HARK_COMPRESSED_GLOBAL_KEY, g, at->head_dim, c);
    at->logit[count++] = decode->scale * sum + log(at->rows[g]);
  }
  for (int64_t key = near; key <= n; key++) {
    const double term = at->sums.type == HARK_NONE ? 0 : hark_compressed_sum(&at->sums, 0, n - key);
    const hark_numbers keys = part_of(at, HARK_COMPRESSED_RING_KEY, key % at->cache.ring, at->head_dim);
    at->logit[count++] = term == -INFINITY ? term : product(at, keys) + term;
  }
  double highest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++)
    if (at->logit[i] > highest || isnan(at->logit[i])) highest = at->logit[i];
  for (int64_t i = 0; i < count && highest != -INFINITY; i++) {
    if (at->logit[i] == -INFINITY && !isnan(highest)) continue; /* hidden */
    const double weight = exp(at->logit[i] - highest);
    sum += weight;
    if (i < selected) {
      mix_row(at, weight,
              part_of(at, HARK_COMPRESSED_SLOT_VALUE, hark_compressed_slot_row(&at->cache, (int64_t)at->place[i]), at->value_dim));
    } else if (i < selected + globals) {
      for (int64_t c = 0; c < at->value_dim; c++)
        at->mixed[c] += weight * get_mean(at, HARK_COMPRESSED_GLOBAL_VALUE, i - selected, at->value_dim, c);
    } else {
      mix_row(at, weight, part_of(at, HARK_COMPRESSED_RING_VALUE, (near + i - selected - globals) % at->cache.ring, at->value_dim));
    }
  }
  for (int64_t c = 0; c < at->value_dim; c++) hark_put(to, c, highest == -INFINITY ? 0 : at->mixed[c] / sum);
}

/* Heads that share a key head share its part of the cache. They are one piece of work, row after row. */
static void forward_heads(const hark_call *call, int64_t first, int64_t last) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  const int64_t group = decode->heads / decode->key_heads;
  decoder_head at = {.call = call, .decode = decode};
  size_t doubles = 0;
  at.head_dim = call->inputs[HARK_COMPRESSED_QUERY].shape[2] / decode->heads;
  at.value_dim = call->inputs[HARK_COMPRESSED_VALUE].shape[2] / decode->key_heads;
  if (hark_compressed_work(NULL, decode, call->inputs, &doubles) != HARK_OK) return; /* infer() has computed it already */
  for (at.key_head = first; at.key_head < last; at.key_head++) {
    at.cache = hark_compressed_cache_of(call, at.key_head);
    int64_t chunk = hark_compressed_chunk_of(&at.cache, decode->first_position);
    at.query = (double *)call->workspace + (size_t)at.key_head * doubles;
    at.mixed = at.query + at.head_dim;
    at.rows = at.mixed + at.value_dim;
    at.place = at.rows + call->inputs[HARK_COMPRESSED_GLOBAL_KEY].shape[0];
    at.logit = at.place + at.cache.stored * decode->chunk_slots;
    for (int64_t row = 0; row < call->inputs[HARK_COMPRESSED_QUERY].shape[1]; row++) {
      const int64_t n = decode->first_position + row;
      if (row > 0) chunk = hark_compressed_next_chunk(&at.cache, chunk, n);
      const bool begins = chunk > 0 && n == hark_compressed_begin(&at.cache, chunk);
      append(&at, row, chunk, HARK_COMPRESSED_KEY, HARK_COMPRESSED_RING_KEY, HARK_COMPRESSED_SLOT_KEY, HARK_COMPRESSED_GLOBAL_KEY,
             at.head_dim);
      append(&at, row, chunk, HARK_COMPRESSED_VALUE, HARK_COMPRESSED_RING_VALUE, HARK_COMPRESSED_SLOT_VALUE, HARK_COMPRESSED_GLOBAL_VALUE,
             at.value_dim);
      if (begins && hark_compressed_leaves(&at.cache, chunk) >= 0)
        hark_compressed_count_merged(&at.cache, hark_compressed_leaves(&at.cache, chunk));
      if (row == 0 || begins) count_globals(&at, chunk);
      for (at.head = at.key_head * group; at.head < (at.key_head + 1) * group; at.head++) {
        at.sums = hark_compressed_sums_of(call, at.head);
        attend(&at, row, chunk);
      }
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  HARK_TRY(hark_compressed_check_starts(context, call));
  hark_range_for(context, call, decode->key_heads, 1, forward_heads);
  return HARK_OK;
}

/* ---- the operator ---- */

/* Products of a query and a key, and of a weight and a value; if chunks may be longer, as if all were as short as possible. */
static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_compressed_decode_attributes *decode = attributes;
  const double head_dim = (double)(inputs[HARK_COMPRESSED_QUERY].shape[2] / decode->heads);
  const double value_dim = (double)(inputs[HARK_COMPRESSED_VALUE].shape[2] / decode->key_heads);
  double products = 0;
  (void)input_count;
  if (is_backward) return 0;
  for (int64_t row = 0; row < inputs[HARK_COMPRESSED_QUERY].shape[1]; row++) {
    const int64_t n = decode->first_position + row, chunk = n / decode->chunk, kept = decode->kept_chunks;
    const int64_t chunks = hark_max(0, kept == 0 ? chunk - 1 : hark_min(chunk - 1, kept)), slots = chunks * decode->chunk_slots;
    const int64_t globals = hark_min(decode->global_slots, (hark_max(0, chunk - 1) - chunks) * decode->chunk_slots);
    const double seen = (double)(n + 1 - hark_max(0, chunk - 1) * decode->chunk + globals);
    products += (seen + (double)slots) * head_dim + (seen + (double)hark_min(slots, decode->selected_slots)) * value_dim;
  }
  return OPERATIONS_PER_PRODUCT * products * (double)decode->heads;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const hark_compressed_decode_attributes *decode = attributes;
  (void)input_count;
  return inputs[HARK_COMPRESSED_QUERY].shape[2] / decode->heads + 3 * hark_compressed_longest(decode) + decode->selected_slots +
         decode->global_slots;
}

/* Samples select all slots, because rounding may decide what is selected. */
static const hark_compressed_decode_attributes beginning = {.heads = 1,
                                                            .key_heads = 1,
                                                            .chunk = 3,
                                                            .chunk_slots = 2,
                                                            .selected_slots = 9,
                                                            .scale = 0.5},
                                               later = {.heads = 4,
                                                        .key_heads = 2,
                                                        .chunk = 4,
                                                        .chunk_slots = 3,
                                                        .selected_slots = 16,
                                                        .kept_chunks = 2,
                                                        .global_slots = 2,
                                                        .first_position = 29,
                                                        .scale = 0.3};

#define REAL(low, high, ...)                                                                                                               \
  { HARK_F32, 3, {__VA_ARGS__}, low, high }
static const hark_compressed_decode_attributes with_kernel = {
    .heads = 2, .key_heads = 1, .chunk = 6, .chunk_slots = 2, .selected_slots = 16, .first_position = 19, .scale = 0.4};

static const hark_compressed_decode_attributes delimited = {.heads = 2,
                                                            .key_heads = 2,
                                                            .chunk = 3,
                                                            .chunk_slots = 2,
                                                            .selected_slots = 4,
                                                            .kept_chunks = 1,
                                                            .global_slots = 1,
                                                            .scale = 0.6,
                                                            .chunk_maximum = 9};

static const hark_sample samples[] = {
    {"beginning",
     &beginning,
     {REAL(-2, 2, 1, 14, 3), REAL(-2, 2, 1, 14, 3), REAL(-2, 2, 1, 14, 5), REAL(-2, 2, 1, 6, 3), REAL(-2, 2, 1, 6, 5), REAL(-2, 2, 4, 2, 3),
      REAL(-2, 2, 4, 2, 5), REAL(-2, 2, 1, 2, 3), REAL(-2, 2, 1, 2, 5)}},
    {"grouped_later_globals",
     &later,
     {REAL(-2, 2, 1, 9, 32), REAL(-2, 2, 1, 9, 16), REAL(-2, 2, 1, 9, 16), REAL(-2, 2, 1, 8, 16), REAL(-2, 2, 1, 8, 16),
      REAL(-2, 2, 3, 3, 16), REAL(-2, 2, 3, 3, 16), REAL(-2, 2, 2, 2, 16), REAL(-2, 2, 2, 2, 16)}},
    {"kernel",
     &with_kernel,
     {REAL(-2, 2, 1, 8, 10),
      REAL(-2, 2, 1, 8, 5),
      REAL(-2, 2, 1, 8, 3),
      REAL(-2, 2, 1, 12, 5),
      REAL(-2, 2, 1, 12, 3),
      REAL(-2, 2, 4, 2, 5),
      REAL(-2, 2, 4, 2, 3),
      REAL(-2, 2, 1, 2, 5),
      REAL(-2, 2, 1, 2, 3),
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_NONE, 0, {0}, 0, 0},
      REAL(-3, 0, 2, 2, 27)}},
    {"delimited",
     &delimited,
     {REAL(-2, 2, 1, 7, 8),
      REAL(-2, 2, 1, 7, 8),
      REAL(-2, 2, 1, 7, 6),
      REAL(-2, 2, 1, 18, 8),
      REAL(-2, 2, 1, 18, 6),
      REAL(-2, 2, 2, 2, 8),
      REAL(-2, 2, 2, 2, 6),
      REAL(-2, 2, 1, 2, 8),
      REAL(-2, 2, 1, 2, 6),
      {HARK_I64, 1, {1}, 0, 0},
      {HARK_I64, 2, {1, 2}, 1, 1}}},
};

const hark_operator hark_op_compressed_decode = {
    .name = "compressed_decode",
    .formula = "y = attention of new rows to the last two chunks, to slots of earlier ones, and to global slots",
    .attributes_size = sizeof(hark_compressed_decode_attributes),
    .input_minimum = HARK_COMPRESSED_CHUNK_STARTS,
    .input_maximum = HARK_COMPRESSED_INPUTS,
    .output_count = 1,
    .updates = 1u << HARK_COMPRESSED_RING_KEY | 1u << HARK_COMPRESSED_RING_VALUE | 1u << HARK_COMPRESSED_SLOT_KEY |
               1u << HARK_COMPRESSED_SLOT_VALUE | 1u << HARK_COMPRESSED_GLOBAL_KEY | 1u << HARK_COMPRESSED_GLOBAL_VALUE |
               1u << HARK_COMPRESSED_GLOBAL_ROWS,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

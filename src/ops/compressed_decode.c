/* compressed_decode.c - compressed causal attention of new tokens with a cache. With kept chunks, N > 0, the cost of a token and the size
 * of the cache do not depend on the length of the text.
 *
 *     ring       the last 2 m keys and values: chunks c - 1 and c, m rows each; row n is in place n mod R, R = 2 m or all rows of the text
 *     slots      of the last S finished chunks, chunk k in place k mod S. S is at least N + 1, or as large as all chunks that are finished
 *     globals    means over the rows of older slots: each as two numbers of the type, the second one the rounding error of the first
 *
 * Where chunk c begins, the slots of chunk c - N - 2 are added to the globals, and those of chunk c - 1 take their place. They are seen
 * from chunk c + 1 on. A global begins with its first slot, so a cache needs no initialisation. Equal to the rows of
 * HARK_STRUCTURE_COMPRESSED with chunks of m rows, up to rounding, which may also decide what is selected. docs/mathematics/compressed.md.
 */
#include <inttypes.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/compressed_decode.h"
#include "ops/definition.h"

enum {
  INPUT_QUERY,
  INPUT_KEY,
  INPUT_VALUE,
  INPUT_RING_KEY,
  INPUT_RING_VALUE,
  INPUT_SLOT_KEY,
  INPUT_SLOT_VALUE,
  INPUT_GLOBAL_KEY,
  INPUT_GLOBAL_VALUE,
  INPUT_COUNT
};

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
                {"first_position", decode->first_position, 0, INT64_MAX / 2}};
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

hark_compressed_decode_sizes hark_compressed_decode_sizes_of(const hark_compressed_decode_attributes *decode, int64_t tokens) {
  const int64_t begun = tokens > 0 ? (tokens - 1) / decode->chunk : 0, kept = decode->kept_chunks; /* chunks that the last one follows */
  const int64_t merged = kept > 0 ? hark_max(0, begun - 1 - kept) : 0;
  return (hark_compressed_decode_sizes){.ring = hark_min(tokens, 2 * decode->chunk),
                                        .chunks = kept > 0 ? hark_min(begun, kept + 1) : begun,
                                        .globals = merged > decode->global_slots / decode->chunk_slots
                                                       ? decode->global_slots
                                                       : hark_min(decode->global_slots, merged * decode->chunk_slots)};
}

static hark_status check_cache(hark_context *context, const hark_compressed_decode_attributes *decode, const hark_tensor *inputs,
                               int64_t rows, int64_t key_width, int64_t value_width) {
  const hark_operator *op = &hark_op_compressed_decode;
  const hark_compressed_decode_sizes needs = hark_compressed_decode_sizes_of(decode, decode->first_position + rows);
  const struct {
    const char *name, *of;
    int64_t has, least, most;
  } sizes[] = {
      {"ring_key", "tokens", inputs[INPUT_RING_KEY].shape[1], hark_max(1, needs.ring), 2 * decode->chunk},
      {"slot_key", "chunks", inputs[INPUT_SLOT_KEY].shape[0], hark_max(1, needs.chunks), INT64_MAX},
      {"global_key", "global slots", inputs[INPUT_GLOBAL_KEY].shape[0], hark_max(1, needs.globals), hark_max(1, decode->global_slots)}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    if (sizes[i].has < sizes[i].least || sizes[i].has > sizes[i].most)
      return hark_fail(context, HARK_SHAPE_MISMATCH,
                       "compressed_decode: %s has room for %" PRId64 " %s, expected at least %" PRId64 "%s for %" PRId64 " tokens",
                       sizes[i].name, sizes[i].has, sizes[i].of, sizes[i].least,
                       sizes[i].has > sizes[i].most ? ", and no more than can be used," : "", decode->first_position + rows);
  const int64_t ring = sizes[0].has, chunks = sizes[1].has, globals = sizes[2].has;
  const int64_t ring_keys[] = {1, ring, key_width}, ring_values[] = {1, ring, value_width};
  const int64_t slot_keys[] = {chunks, decode->chunk_slots, key_width}, slot_values[] = {chunks, decode->chunk_slots, value_width};
  const int64_t global_keys[] = {globals, 2, key_width}, global_values[] = {globals, 2, value_width};
  HARK_TRY(hark_check_shape(context, op, "ring_key", &inputs[INPUT_RING_KEY], 3, ring_keys));
  HARK_TRY(hark_check_shape(context, op, "ring_value", &inputs[INPUT_RING_VALUE], 3, ring_values));
  HARK_TRY(hark_check_shape(context, op, "slot_key", &inputs[INPUT_SLOT_KEY], 3, slot_keys));
  HARK_TRY(hark_check_shape(context, op, "slot_value", &inputs[INPUT_SLOT_VALUE], 3, slot_values));
  HARK_TRY(hark_check_shape(context, op, "global_key", &inputs[INPUT_GLOBAL_KEY], 3, global_keys));
  return hark_check_shape(context, op, "global_value", &inputs[INPUT_GLOBAL_VALUE], 3, global_values);
}

/* Doubles of a key head's work: a query, a mixed value, numbers of rows of globals, the logits of all that a row may meet, and numbers of
 * slots. */
static hark_status work_doubles(hark_context *context, const hark_compressed_decode_attributes *decode, const hark_tensor *inputs,
                                size_t *out) {
  const int64_t head_dim = inputs[INPUT_QUERY].shape[2] / decode->heads, value_dim = inputs[INPUT_VALUE].shape[2] / decode->key_heads;
  const size_t others = (size_t)(head_dim + value_dim + 2 * inputs[INPUT_GLOBAL_KEY].shape[0] + inputs[INPUT_RING_KEY].shape[1]);
  HARK_TRY(hark_size_multiply(context, 2 * (size_t)inputs[INPUT_SLOT_KEY].shape[0], (size_t)decode->chunk_slots, out));
  return hark_size_add(context, *out, others, out);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {
      {"query", HARK_F32, 3, 3},      {"key", HARK_F32, 3, 3},        {"value", HARK_F32, 3, 3},
      {"ring_key", HARK_F32, 3, 3},   {"ring_value", HARK_F32, 3, 3}, {"slot_key", HARK_F32, 3, 3},
      {"slot_value", HARK_F32, 3, 3}, {"global_key", HARK_F32, 3, 3}, {"global_value", HARK_F32, 3, 3}};
  const hark_compressed_decode_attributes *decode = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_compressed_decode, rules, attributes, inputs, input_count));
  HARK_TRY(check_attributes(context, decode, inputs[INPUT_QUERY].type));
  const hark_tensor *query = &inputs[INPUT_QUERY], *value = &inputs[INPUT_VALUE];
  HARK_TRY(
      hark_check_decoder_rows(context, &hark_op_compressed_decode, query, &inputs[INPUT_KEY], value, decode->heads, decode->key_heads));
  const int64_t rows = query->shape[1], value_dim = value->shape[2] / decode->key_heads;
  HARK_TRY(check_cache(context, decode, inputs, rows, inputs[INPUT_KEY].shape[2], value->shape[2]));
  const int64_t shape[] = {1, rows, value_dim * decode->heads};
  size_t doubles;
  HARK_TRY(work_doubles(context, decode, inputs, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)decode->key_heads * sizeof(double), &out->forward_workspace));
  return hark_tensor_describe(context, query->type, 3, shape, &out->outputs[0]);
}

/* ---- a head's part of the cache ---- */

typedef struct decoder_head {
  const hark_call *call;
  const hark_compressed_decode_attributes *decode;
  int64_t head, key_head, head_dim, value_dim, ring, stored; /* rows and chunks of slots that the cache has room for */
  double *query, *mixed, *rows, *logit, *place;              /* rows: of the globals of the current chunk */
} decoder_head;

/* The numbers of a key head in row `row` of an input with rows [Hkv * width]. */
static hark_numbers part_of(const decoder_head *at, int input, int64_t row, int64_t width) {
  const int64_t step = at->decode->key_heads * width;
  return hark_numbers_from(hark_numbers_of(&at->call->inputs[input]), row * step + at->key_head * width);
}

static int64_t slot_row(const decoder_head *at, int64_t slot) {
  const int64_t chunk = slot / at->decode->chunk_slots, i = slot % at->decode->chunk_slots;
  return chunk % at->stored * at->decode->chunk_slots + i;
}

/* Rows of slot i of a chunk begin here; slot i + 1 begins where they end. */
static int64_t slot_begin(const decoder_head *at, int64_t i) { return i * at->decode->chunk / at->decode->chunk_slots; }
static int64_t slot_count(const decoder_head *at, int64_t slot) {
  const int64_t i = slot % at->decode->chunk_slots;
  return slot_begin(at, i + 1) - slot_begin(at, i);
}

/* Rows of a global slot of which the slots before `end` are parts. Its slots j and j + period have the same place in their chunks. */
static int64_t global_count(const decoder_head *at, int64_t global, int64_t end) {
  const int64_t globals = at->decode->global_slots, slots = at->decode->chunk_slots;
  int64_t a = globals, b = slots, count = 0;
  while (b != 0) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  const int64_t members = end > global ? (end - global + globals - 1) / globals : 0, period = slots / a;
  for (int64_t j = 0; j < hark_min(period, members); j++)
    count += slot_count(at, (global + j * globals) % slots) * ((members - j + period - 1) / period);
  return count;
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
    const hark_numbers mean = part_of(at, slots, slot_row(at, slot), width);
    const int64_t global = slot % at->decode->global_slots;
    const double before = (double)global_count(at, global, slot),
                 share = (double)slot_count(at, slot) / (before + (double)slot_count(at, slot));
    for (int64_t c = 0; c < width; c++) {
      const double old = before == 0 ? 0 : get_mean(at, globals, global, width, c);
      put_mean(at, globals, global, width, c, (1 - share) * old + share * hark_get(mean, c));
    }
  }
}

/* Slots of a finished chunk, whose rows are in the ring. */
static void make_slots(const decoder_head *at, int64_t chunk, int ring, int slots, int64_t width) {
  for (int64_t i = 0; i < at->decode->chunk_slots; i++) {
    const hark_numbers mean = part_of(at, slots, slot_row(at, chunk * at->decode->chunk_slots + i), width);
    for (int64_t c = 0; c < width; c++) {
      double sum = 0;
      for (int64_t row = slot_begin(at, i); row < slot_begin(at, i + 1); row++)
        sum += hark_get(part_of(at, ring, (chunk * at->decode->chunk + row) % at->ring, width), c);
      hark_put(mean, c, sum / (double)(slot_begin(at, i + 1) - slot_begin(at, i)));
    }
  }
}

/* What row n changes in the cache before it attends: of keys, or of values. */
static void append(const decoder_head *at, int64_t row, int from, int ring, int slots, int globals, int64_t width) {
  const int64_t n = at->decode->first_position + row, chunk = n / at->decode->chunk, old = chunk - at->decode->kept_chunks - 2;
  if (n > 0 && n % at->decode->chunk == 0) {
    if (at->decode->global_slots > 0 && old >= 0) merge_chunk(at, old, slots, globals, width);
    make_slots(at, chunk - 1, ring, slots, width);
  }
  const hark_numbers new = part_of(at, from, row, width), to = part_of(at, ring, n % at->ring, width);
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
static int64_t select_slots(const decoder_head *at, int64_t chunk) {
  const int64_t slots = at->decode->chunk_slots, to = hark_max(0, chunk - 1) * slots, kept = at->decode->kept_chunks;
  int64_t count = 0;
  for (int64_t slot = kept == 0 ? 0 : hark_max(0, chunk - 1 - kept) * slots; slot < to; slot++) {
    const double logit = product(at, part_of(at, INPUT_SLOT_KEY, slot_row(at, slot), at->head_dim)) + log((double)slot_count(at, slot));
    if (logit == -INFINITY) continue;
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

/* The number of older slots, which are parts of globals. */
static int64_t merged_slots(const decoder_head *at, int64_t chunk) {
  if (at->decode->global_slots == 0) return 0;
  return hark_max(0, chunk - 1 - at->decode->kept_chunks) * at->decode->chunk_slots;
}

/* The numbers of rows of the globals that a chunk's queries see. */
static void count_globals(const decoder_head *at, int64_t chunk) {
  const int64_t merged = merged_slots(at, chunk);
  for (int64_t g = 0; g < hark_min(at->decode->global_slots, merged); g++) at->rows[g] = (double)global_count(at, g, merged);
}

static void attend(const decoder_head *at, int64_t row) {
  const hark_compressed_decode_attributes *decode = at->decode;
  const int64_t n = decode->first_position + row, chunk = n / decode->chunk, near = hark_max(0, chunk - 1) * decode->chunk;
  const int64_t merged = merged_slots(at, chunk), globals = hark_min(decode->global_slots, merged);
  const hark_numbers from =
      hark_numbers_from(hark_numbers_of(&at->call->inputs[INPUT_QUERY]), (row * decode->heads + at->head) * at->head_dim);
  const hark_numbers to = hark_numbers_from(hark_numbers_of(&at->call->outputs[0]), (row * decode->heads + at->head) * at->value_dim);
  for (int64_t c = 0; c < at->head_dim; c++) at->query[c] = hark_get(from, c);
  for (int64_t c = 0; c < at->value_dim; c++) at->mixed[c] = 0;
  const int64_t selected = select_slots(at, chunk);
  int64_t count = selected;
  for (int64_t g = 0; g < globals; g++) {
    double sum = 0;
    for (int64_t c = 0; c < at->head_dim; c++) sum += at->query[c] * get_mean(at, INPUT_GLOBAL_KEY, g, at->head_dim, c);
    at->logit[count++] = decode->scale * sum + log(at->rows[g]);
  }
  for (int64_t key = near; key <= n; key++) at->logit[count++] = product(at, part_of(at, INPUT_RING_KEY, key % at->ring, at->head_dim));
  double highest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++)
    if (at->logit[i] > highest || isnan(at->logit[i])) highest = at->logit[i];
  for (int64_t i = 0; i < count && highest != -INFINITY; i++) {
    if (at->logit[i] == -INFINITY && !isnan(highest)) continue; /* hidden */
    const double weight = exp(at->logit[i] - highest);
    sum += weight;
    if (i < selected) {
      mix_row(at, weight, part_of(at, INPUT_SLOT_VALUE, slot_row(at, (int64_t)at->place[i]), at->value_dim));
    } else if (i < selected + globals) {
      for (int64_t c = 0; c < at->value_dim; c++) at->mixed[c] += weight * get_mean(at, INPUT_GLOBAL_VALUE, i - selected, at->value_dim, c);
    } else {
      mix_row(at, weight, part_of(at, INPUT_RING_VALUE, (near + i - selected - globals) % at->ring, at->value_dim));
    }
  }
  for (int64_t c = 0; c < at->value_dim; c++) hark_put(to, c, highest == -INFINITY ? 0 : at->mixed[c] / sum);
}

/* Heads that share a key head share its part of the cache. They are one piece of work, row after row. */
static void forward_heads(const hark_call *call, int64_t first, int64_t last) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  const int64_t group = decode->heads / decode->key_heads;
  decoder_head at = {.call = call, .decode = decode, .stored = call->inputs[INPUT_SLOT_KEY].shape[0]};
  size_t doubles = 0;
  at.ring = call->inputs[INPUT_RING_KEY].shape[1];
  at.head_dim = call->inputs[INPUT_QUERY].shape[2] / decode->heads;
  at.value_dim = call->inputs[INPUT_VALUE].shape[2] / decode->key_heads;
  if (work_doubles(NULL, decode, call->inputs, &doubles) != HARK_OK) return; /* infer() has computed it already */
  for (at.key_head = first; at.key_head < last; at.key_head++) {
    at.query = (double *)call->workspace + (size_t)at.key_head * doubles;
    at.mixed = at.query + at.head_dim;
    at.rows = at.mixed + at.value_dim;
    at.place = at.rows + call->inputs[INPUT_GLOBAL_KEY].shape[0];
    at.logit = at.place + at.stored * decode->chunk_slots;
    for (int64_t row = 0; row < call->inputs[INPUT_QUERY].shape[1]; row++) {
      const int64_t n = decode->first_position + row;
      append(&at, row, INPUT_KEY, INPUT_RING_KEY, INPUT_SLOT_KEY, INPUT_GLOBAL_KEY, at.head_dim);
      append(&at, row, INPUT_VALUE, INPUT_RING_VALUE, INPUT_SLOT_VALUE, INPUT_GLOBAL_VALUE, at.value_dim);
      if (row == 0 || n % decode->chunk == 0) count_globals(&at, n / decode->chunk);
      for (at.head = at.key_head * group; at.head < (at.key_head + 1) * group; at.head++) attend(&at, row);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_compressed_decode_attributes *decode = call->attributes;
  hark_range_for(context, call, decode->key_heads, 1, forward_heads);
  return HARK_OK;
}

/* ---- the operator ---- */

/* Products of a query and a key, and of a weight and a value. */
static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_compressed_decode_attributes *decode = attributes;
  const double head_dim = (double)(inputs[INPUT_QUERY].shape[2] / decode->heads);
  const double value_dim = (double)(inputs[INPUT_VALUE].shape[2] / decode->key_heads);
  double products = 0;
  (void)input_count;
  if (is_backward) return 0;
  for (int64_t row = 0; row < inputs[INPUT_QUERY].shape[1]; row++) {
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
  return inputs[INPUT_QUERY].shape[2] / decode->heads + 3 * decode->chunk + decode->selected_slots + decode->global_slots;
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
static const hark_sample samples[] = {
    {"beginning",
     &beginning,
     {REAL(-2, 2, 1, 14, 3), REAL(-2, 2, 1, 14, 3), REAL(-2, 2, 1, 14, 5), REAL(-2, 2, 1, 6, 3), REAL(-2, 2, 1, 6, 5), REAL(-2, 2, 4, 2, 3),
      REAL(-2, 2, 4, 2, 5), REAL(-2, 2, 1, 2, 3), REAL(-2, 2, 1, 2, 5)}},
    {"grouped_later_globals",
     &later,
     {REAL(-2, 2, 1, 9, 32), REAL(-2, 2, 1, 9, 16), REAL(-2, 2, 1, 9, 16), REAL(-2, 2, 1, 8, 16), REAL(-2, 2, 1, 8, 16),
      REAL(-2, 2, 3, 3, 16), REAL(-2, 2, 3, 3, 16), REAL(-2, 2, 2, 2, 16), REAL(-2, 2, 2, 2, 16)}},
};

const hark_operator hark_op_compressed_decode = {
    .name = "compressed_decode",
    .formula = "y = attention of new rows to the last two chunks, to slots of earlier ones, and to global slots",
    .attributes_size = sizeof(hark_compressed_decode_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .updates = 1u << INPUT_RING_KEY | 1u << INPUT_RING_VALUE | 1u << INPUT_SLOT_KEY | 1u << INPUT_SLOT_VALUE | 1u << INPUT_GLOBAL_KEY |
               1u << INPUT_GLOBAL_VALUE,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

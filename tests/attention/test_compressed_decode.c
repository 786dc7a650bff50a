/* test_compressed_decode.c - compressed attention token by token against the attention of the whole text, and what its cache takes.
 *
 * In f64 both are sums of at most a few hundred terms of order one: 1e-11 is some ten thousand roundings. In f32 queries and keys are
 * multiples of 1/4, and slots have 2^n rows. So products are exact, equal logits are equal in both, and both select the same slots. Where
 * chunks have different lengths, they have 2^n times the shortest one's. */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compressed_decode.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define WITHIN 1e-11
#define WITHIN_F32 3e-5
enum { HEADS = 4, KEY_HEADS = 2, HEAD_DIM = 19, VALUE_DIM = 69, MOST_ROWS = 300 };

typedef struct decode_case {
  int64_t chunk, slots, selected, kept, globals;
  int64_t longest; /* 0: all chunks have `chunk` rows */
  int64_t tables;  /* of the kernel of the distance: HEADS, 1 for all heads, or 0 */
} decode_case;

static const decode_case cases[] = {
    {1, 1, 5, 0, 0, 0, 0},   {4, 1, 3, 0, 0, 0, 0},     {4, 3, 7, 0, 0, 0, 0},      {8, 8, 4, 0, 0, 0, 0},      {4, 2, 5, 3, 0, 0, 0},
    {4, 3, 9, 2, 2, 0, 0},   {5, 4, 16, 1, 7, 0, 0},    {1, 1, 2, 4, 3, 0, 0},      {7, 3, 2, 9, 1, 0, 0},      {64, 5, 6, 0, 0, 0, 0},
    {200, 7, 4, 1, 1, 0, 0}, {2, 2, 4, 1000, 5, 0, 0},  {3, 3, 3, 1, 200, 0, 0},    {1, 1, 5, 0, 0, 9, 0},      {3, 2, 4, 0, 0, 40, 0},
    {4, 4, 5, 3, 0, 8, 0},   {3, 3, 9, 2, 2, 7, 0},     {2, 1, 4, 3, 5, 11, 0},     {5, 4, 16, 1, 7, 6, 0},     {4, 1, 2, 9, 1, 4, 0},
    {4, 1, 3, 0, 0, 0, 1},   {7, 2, 9, 0, 0, 0, HEADS}, {16, 2, 4, 3, 0, 0, HEADS}, {3, 2, 4, 0, 0, 40, HEADS}, {4, 4, 5, 3, 0, 8, 1}};
#define CASES (sizeof cases / sizeof *cases)

static double noise(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(*state >> 11) / (double)((int64_t)1 << 52) - 1; /* [-1, 1) */
}

static double get(const hark_tensor *tensor, int64_t i) {
  return tensor->type == HARK_F32 ? (double)((float *)tensor->data)[i] : ((double *)tensor->data)[i];
}

/* f32: multiples of 1/4, rounded to the type. */
static hark_tensor made(hark_context *context, hark_type type, int64_t a, int64_t b, int64_t width, uint64_t seed, double size) {
  const int64_t shape[] = {a, b, width};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_create(context, type, 3, shape, &tensor), HARK_OK);
  uint64_t state = seed;
  for (int64_t i = 0; i < a * b * width; i++) {
    const double x = size * noise(&state);
    if (type == HARK_F32)
      ((float *)tensor.data)[i] = (float)(floor(4 * x) / 4);
    else
      ((double *)tensor.data)[i] = x;
  }
  return tensor;
}

/* First rows of chunks of a text, which has at most that many; returns how many. The last chunk may be shorter than the others. */
static int64_t start_chunks(const decode_case *c, hark_type type, int64_t length, int64_t *starts) {
  uint64_t state = 77;
  int64_t count = 0;
  for (int64_t row = 0, rows; row < length; row += rows) {
    const double x = (noise(&state) + 1) / 2;
    rows = c->chunk + (int64_t)(x * (double)(c->longest - c->chunk + 1));
    if (type == HARK_F32)
      for (rows = c->chunk; 2 * rows <= c->longest && noise(&state) > 0;) rows *= 2;
    starts[count++] = row;
  }
  return count;
}

/* [1, L, heads * d] as [1, heads, L, d]. */
static hark_tensor by_heads(const hark_tensor *rows, int64_t heads) {
  const int64_t length = rows->shape[1], width = rows->shape[2] / heads;
  return (hark_tensor){.data = rows->data,
                       .type = rows->type,
                       .rank = 4,
                       .shape = {1, heads, length, width},
                       .stride = {length * heads * width, width, heads * width, 1}};
}

/* log G [tables, T], for more distances than there are; the last table hides some distances. */
static hark_tensor made_table(hark_context *context, const decode_case *c, hark_type type, int64_t length) {
  const int64_t shape[] = {c->tables, length + 3};
  hark_tensor table;
  uint64_t state = 21;
  assert_int_equal(hark_tensor_create(context, type, 2, shape, &table), HARK_OK);
  for (int64_t i = 0; i < c->tables * shape[1]; i++) {
    const double x = i >= (c->tables - 1) * shape[1] && i % 7 > 4 ? -INFINITY : 1.5 * noise(&state) - 1.5;
    if (type == HARK_F32)
      ((float *)table.data)[i] = (float)x;
    else
      ((double *)table.data)[i] = x;
  }
  return table;
}

static void attend_to_all(hark_context *context, const decode_case *c, const hark_tensor *q, const hark_tensor *k, const hark_tensor *v,
                          const hark_tensor *out) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = q->type;
  desc.structure = HARK_STRUCTURE_COMPRESSED;
  desc.causal = desc.forward_only = true;
  desc.batch = 1;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = desc.key_length = q->shape[1];
  desc.head_dim = HEAD_DIM;
  desc.value_dim = VALUE_DIM;
  desc.scale = 0.5;
  desc.chunk = c->chunk;
  desc.chunk_slots = c->slots;
  desc.selected_slots = c->selected;
  desc.kept_chunks = c->kept;
  desc.global_slots = c->globals;
  desc.has_chunk_starts = c->longest > 0;
  desc.has_log_kernel = c->tables > 0;
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_args args = {.struct_size = sizeof args};
  args.query = by_heads(q, HEADS);
  args.key = by_heads(k, KEY_HEADS);
  args.value = by_heads(v, KEY_HEADS);
  args.out = by_heads(out, HEADS);
  uint8_t begins[MOST_ROWS] = {0};
  int64_t starts[MOST_ROWS];
  const int64_t shape[] = {1, q->shape[1]}, chunks = c->longest > 0 ? start_chunks(c, q->type, q->shape[1], starts) : 0;
  for (int64_t i = 0; i < chunks; i++) begins[starts[i]] = 1;
  if (c->longest > 0) assert_int_equal(hark_tensor_wrap(context, begins, HARK_U8, 2, shape, NULL, &args.chunk_starts), HARK_OK);
  if (c->tables > 0) args.log_kernel = made_table(context, c, q->type, q->shape[1]);
  args.workspace = aligned_alloc(64, (hark_attention_plan_sizes(plan).forward_workspace + 63) / 64 * 64);
  assert_non_null(args.workspace);
  assert_int_equal(hark_attention_forward(context, plan, &args), HARK_OK);
  free(args.workspace);
  hark_tensor_destroy(context, &args.log_kernel);
  hark_attention_plan_destroy(context, &plan);
}

/* What decoding reads of the table: sums over as many rows as the longest slot has. */
static hark_tensor made_sums(hark_context *context, const decode_case *c, hark_type type, int64_t length) {
  hark_kernel_sums_attributes sums = {.levels = 1};
  const int64_t longest = c->longest > 0 ? c->longest : c->chunk;
  while ((int64_t)1 << sums.levels <= (longest + c->slots - 1) / c->slots) sums.levels++;
  hark_call call = {.op = &hark_op_kernel_sums, .attributes = &sums, .input_count = 1};
  call.inputs[0] = made_table(context, c, type, length);
  hark_inferred inferred = {0};
  assert_int_equal(hark_op_kernel_sums.infer(context, &sums, call.inputs, 1, &inferred), HARK_OK);
  assert_int_equal(hark_tensor_create(context, type, 3, inferred.outputs[0].shape, &call.outputs[0]), HARK_OK);
  call.workspace = aligned_alloc(64, (inferred.forward_workspace + 64) / 64 * 64);
  assert_non_null(call.workspace);
  assert_int_equal(hark_operator_forward(context, &call), HARK_OK);
  free(call.workspace);
  hark_tensor_destroy(context, &call.inputs[0]);
  return call.outputs[0];
}

static hark_tensor rows_of(const hark_tensor *all, int64_t first, int64_t count) {
  hark_tensor rows = *all;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  rows.data = (char *)all->data + (size_t)(first * all->shape[2]) * hark_type_bytes(all->type);
  return rows;
}

static hark_compressed_decode_attributes attributes_of(const decode_case *c, int64_t first) {
  return (hark_compressed_decode_attributes){.heads = HEADS,
                                             .key_heads = KEY_HEADS,
                                             .chunk = c->chunk,
                                             .chunk_slots = c->slots,
                                             .selected_slots = c->selected,
                                             .kept_chunks = c->kept,
                                             .global_slots = c->globals,
                                             .first_position = first,
                                             .scale = 0.5,
                                             .chunk_maximum = c->longest};
}

static int64_t at_least(int64_t x, int64_t least) { return x > least ? x : least; }

/* Caches have other numbers before, which mean nothing. roomy: for more tokens than there are. */
static void attend_by_passes(hark_context *context, const decode_case *c, const hark_tensor *q, const hark_tensor *k, const hark_tensor *v,
                             int64_t pass, bool roomy, const hark_tensor *out) {
  const int64_t length = q->shape[1], width = KEY_HEADS * HEAD_DIM, value_width = KEY_HEADS * VALUE_DIM;
  const hark_compressed_decode_attributes whole = attributes_of(c, 0);
  hark_compressed_decode_sizes has = hark_compressed_decode_sizes_of(&whole, length);
  if (roomy) {
    has = hark_compressed_decode_sizes_of(&whole, 1000);
    has.chunks += 3;
  }
  has.chunks = at_least(has.chunks, 1);
  has.globals = at_least(has.globals, 1);
  hark_tensor cache[] = {
      made(context, q->type, 1, has.ring, width, 1, 1e30),          made(context, q->type, 1, has.ring, value_width, 2, 1e30),
      made(context, q->type, has.chunks, c->slots, width, 3, 1e30), made(context, q->type, has.chunks, c->slots, value_width, 4, 1e30),
      made(context, q->type, has.globals, 2, width, 5, 1e30),       made(context, q->type, has.globals, 2, value_width, 6, 1e30)};
  enum { PARTS = (int)(sizeof cache / sizeof *cache) };
  int64_t starts[MOST_ROWS], *global_rows = calloc((size_t)(has.globals * KEY_HEADS), sizeof *global_rows);
  assert_non_null(global_rows);
  for (int64_t i = 0; i < has.globals * KEY_HEADS; i++) global_rows[i] = -1000 - i;
  const int64_t chunks = c->longest > 0 ? start_chunks(c, q->type, length, starts) : 0, rows_shape[] = {has.globals, KEY_HEADS};
  hark_tensor sums = {0};
  if (c->tables > 0) sums = made_sums(context, c, q->type, length);
  for (int64_t first = 0, count, begun = 0; first < length; first += count) {
    count = first == 0 ? pass : pass > 5 ? 1 : pass; /* a prompt, then tokens */
    if (count > length - first) count = length - first;
    const hark_compressed_decode_attributes attributes = attributes_of(c, first);
    hark_call call = {.op = &hark_op_compressed_decode, .attributes = &attributes, .input_count = 3 + PARTS};
    call.inputs[0] = rows_of(q, first, count);
    call.inputs[1] = rows_of(k, first, count);
    call.inputs[2] = rows_of(v, first, count);
    for (int i = 0; i < PARTS; i++) call.inputs[3 + i] = cache[i];
    while (begun < chunks && starts[begun] < first + count) begun++;
    if (c->longest > 0) {
      call.input_count += 2;
      assert_int_equal(hark_tensor_wrap(context, starts, HARK_I64, 1, &begun, NULL, &call.inputs[3 + PARTS]), HARK_OK);
      assert_int_equal(hark_tensor_wrap(context, global_rows, HARK_I64, 2, rows_shape, NULL, &call.inputs[4 + PARTS]), HARK_OK);
    }
    if (c->tables > 0) {
      call.input_count = 6 + PARTS;
      call.inputs[5 + PARTS] = sums;
    }
    call.outputs[0] = rows_of(out, first, count);
    hark_inferred inferred = {0};
    if (hark_op_compressed_decode.infer(context, &attributes, call.inputs, call.input_count, &inferred) != HARK_OK)
      fail_msg("%s", hark_context_message(context));
    call.workspace = aligned_alloc(64, (inferred.forward_workspace + 64) / 64 * 64);
    assert_non_null(call.workspace);
    assert_int_equal(hark_operator_forward(context, &call), HARK_OK);
    free(call.workspace);
  }
  free(global_rows);
  hark_tensor_destroy(context, &sums);
  for (int i = 0; i < PARTS; i++) hark_tensor_destroy(context, &cache[i]);
}

/* The whole text is computed in `definition`, the passes in `context`. */
static void compare(hark_context *definition, hark_context *context, const decode_case *c, hark_type type, int64_t length,
                    const int64_t *passes, int count) {
  hark_tensor q = made(definition, type, 1, length, HEADS * HEAD_DIM, 11, 2),
              k = made(definition, type, 1, length, KEY_HEADS * HEAD_DIM, 12, 2);
  hark_tensor v = made(definition, type, 1, length, KEY_HEADS * VALUE_DIM, 13, 1);
  hark_tensor whole = made(definition, type, 1, length, HEADS * VALUE_DIM, 14, 1),
              parts = made(definition, type, 1, length, HEADS * VALUE_DIM, 15, 1);
  attend_to_all(definition, c, &q, &k, &v, &whole);
  for (int p = 0; p < count; p++) {
    attend_by_passes(context, c, &q, &k, &v, passes[p], p % 2 == 1, &parts);
    for (int64_t i = 0; i < length * HEADS * VALUE_DIM; i++)
      if (!(fabs(get(&parts, i) - get(&whole, i)) <= (type == HARK_F32 ? WITHIN_F32 : WITHIN)))
        fail_msg("chunks of %" PRId64 ", %" PRId64 " slots, %" PRId64 " selected, %" PRId64 " kept, %" PRId64 " globals, longest %" PRId64
                 "; %d rows in passes of %d: row %d is %.17g, of the whole text %.17g",
                 c->chunk, c->slots, c->selected, c->kept, c->globals, c->longest, (int)length, (int)passes[p],
                 (int)(i / (HEADS * VALUE_DIM)), get(&parts, i), get(&whole, i));
  }
  hark_tensor *const all[] = {&q, &k, &v, &whole, &parts};
  for (int i = 0; i < 5; i++) hark_tensor_destroy(definition, all[i]);
}

static void rows_equal_those_of_the_whole_text(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 5, 8, 9, 16, 17, 33, 64, 65, 130}, passes[] = {1, 5, 31, 130};
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < CASES; c++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) compare(context, context, &cases[c], HARK_F64, lengths[l], passes, 4);
  test_setup_close(context);
}

/* Also where a row selects a few of many slots. */
static void kernels_select_as_the_definition_does(void **state) {
  (void)state;
  static const decode_case exact[] = {
      {4, 1, 3, 0, 0, 0, 0},      {8, 8, 4, 0, 0, 0, 0},      {4, 2, 5, 3, 2, 0, 0},   {64, 4, 6, 0, 0, 0, 0},  {1, 1, 2, 4, 3, 0, 0},
      {2, 2, 40, 0, 0, 0, 0},     {4, 4, 1, 9, 5, 0, 0},      {1, 1, 7, 0, 0, 0, 0},   {2, 1, 16, 50, 1, 0, 0}, {1, 1, 3, 0, 0, 8, 0},
      {4, 2, 5, 3, 2, 16, 0},     {2, 2, 9, 5, 3, 4, 0},      {4, 4, 40, 9, 5, 64, 0}, {4, 1, 3, 0, 0, 0, 1},   {8, 2, 4, 0, 0, 0, HEADS},
      {64, 4, 6, 0, 0, 0, HEADS}, {4, 2, 5, 3, 0, 16, HEADS}, {12, 2, 5, 0, 0, 0, 1}};
  static const int64_t lengths[] = {1, 9, 70, 300}, passes[] = {1, 300};
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_readable(setups);
  hark_context *definition = test_reference_open();
  for (int t = 0; t < count; t++) {
    hark_context *context = test_setup_open(&setups[t], 2);
    for (size_t c = 0; c < sizeof exact / sizeof *exact; c++)
      for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        compare(definition, context, &exact[c], HARK_F32, lengths[l], passes, 2);
    test_setup_close(context);
  }
  test_setup_close(definition);
}

static void check_sizes(int64_t chunk, int64_t kept, int64_t globals, int64_t tokens, int64_t ring, int64_t chunks, int64_t merged) {
  const hark_compressed_decode_attributes decode = {.chunk = chunk, .chunk_slots = 2, .kept_chunks = kept, .global_slots = globals};
  const hark_compressed_decode_sizes sizes = hark_compressed_decode_sizes_of(&decode, tokens);
  if (sizes.ring != ring || sizes.chunks != chunks || sizes.globals != merged)
    fail_msg("chunks of %" PRId64 ", %" PRId64 " kept, %" PRId64 " tokens: %" PRId64 " rows, %" PRId64 " chunks, %" PRId64 " globals",
             chunk, kept, tokens, sizes.ring, sizes.chunks, sizes.globals);
}

/* The size of a cache does not grow with the text if chunks are merged, and is no larger than a short text needs. */
static void caches_are_as_large_as_needed(void **state) {
  (void)state;
  check_sizes(4, 0, 0, 0, 0, 0, 0);
  check_sizes(4, 0, 0, 1, 1, 0, 0);
  check_sizes(4, 0, 0, 8, 8, 1, 0);
  check_sizes(4, 0, 0, 9, 8, 2, 0);
  check_sizes(4, 0, 0, 4000, 8, 999, 0);
  check_sizes(4, 3, 0, 4000, 8, 4, 0);
  check_sizes(4, 3, 5, (int64_t)1 << 50, 8, 4, 5);
  check_sizes(4, 3, 5, 20, 8, 4, 0);
  check_sizes(4, 3, 5, 21, 8, 4, 2);
  check_sizes(4, 1000, 5, 9, 8, 2, 0);
  check_sizes((int64_t)1 << 20, 1, 5, 100, 100, 0, 0);
}

/* A chunk of another length, a beginning after row 0, a chunk that does not end, starts without need, and globals with more rows than the
 * text. */
static void wrong_starts_are_refused(void **state) {
  (void)state;
  enum { ROWS = 12 };
  static const struct {
    int64_t longest, count, starts[7];
    const char *message;
    int64_t first, global_rows[KEY_HEADS];
  } wrong[] = {{6, 7, {0, -24, -18, -12, -6, 0, 6}, "chunk_starts has 7 starts, expected at most 3 for 12 tokens", 0, {0}},
               {6, 3, {0, INT64_MIN, 6}, "the chunk from row 0 on has 0 rows, expected 4 to 6", 0, {0}},
               {6, 3, {0, 4, 7}, "the chunk from row 4 on has 3 rows, expected 4 to 6", 0, {0}},
               {6, 2, {0, 7}, "the chunk from row 0 on has 7 rows, expected 4 to 6", 0, {0}},
               {6, 2, {1, 6}, "chunk_starts begins with 1, expected 0", 0, {0}},
               {6, 2, {0, 5}, "the chunk from row 5 on has 7 rows, expected 1 to 6", 0, {0}},
               {6, 3, {0, 6, 12}, "the chunk from row 12 on has 0 rows, expected 1 to 6", 0, {0}},
               {6, 0, {0}, "chunk_starts has no starts, expected at least 1", 0, {0}},
               {0, 2, {0, 6}, "chunk_starts is given with chunk_maximum 0", 0, {0}},
               {3, 2, {0, 6}, "chunk_maximum is 3, expected 4 to 1048576", 0, {0}},
               {6, 7, {0, 4, 8, 12, 16, 20, 24}, "global_rows has -5, expected 1 to 17", 17, {-5, 4}},
               {6, 7, {0, 4, 8, 12, 16, 20, 24}, "global_rows has 18, expected 1 to 17", 17, {4, 18}},
               {6, 7, {0, 4, 8, 12, 16, 20, 24}, "global_rows has 9223372036854775807, expected 1 to 17", 17, {4, INT64_MAX}},
               {6, 7, {0, 4, 8, 12, 16, 20, 24}, "global_rows has 0, expected 1 to 17", 17, {0, 4}}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const decode_case c = {.chunk = 4, .slots = 2, .selected = 2, .kept = 2, .globals = 1, .longest = wrong[i].longest};
    const hark_compressed_decode_attributes attributes = attributes_of(&c, wrong[i].first);
    hark_tensor parts[] = {made(context, HARK_F32, 1, ROWS, HEADS * 4, 1, 1),     made(context, HARK_F32, 1, ROWS, KEY_HEADS * 4, 2, 1),
                           made(context, HARK_F32, 1, ROWS, KEY_HEADS * 4, 3, 1), made(context, HARK_F32, 1, 8, KEY_HEADS * 4, 4, 1),
                           made(context, HARK_F32, 1, 8, KEY_HEADS * 4, 5, 1),    made(context, HARK_F32, 3, 2, KEY_HEADS * 4, 6, 1),
                           made(context, HARK_F32, 3, 2, KEY_HEADS * 4, 7, 1),    made(context, HARK_F32, 1, 2, KEY_HEADS * 4, 8, 1),
                           made(context, HARK_F32, 1, 2, KEY_HEADS * 4, 9, 1)};
    enum { PARTS = (int)(sizeof parts / sizeof *parts) };
    int64_t starts[7], global_rows[KEY_HEADS];
    const int64_t rows_shape[] = {1, KEY_HEADS}, ring[] = {1, wrong[i].longest > 0 ? ROWS : 8, KEY_HEADS * 4};
    hark_call call = {.op = &hark_op_compressed_decode, .attributes = &attributes, .input_count = PARTS + 2};
    memcpy(starts, wrong[i].starts, sizeof starts);
    memcpy(global_rows, wrong[i].global_rows, sizeof global_rows);
    for (int part = 0; part < PARTS; part++) call.inputs[part] = parts[part];
    hark_tensor ring_key, ring_value, out = made(context, HARK_F32, 1, ROWS, HEADS * 4, 10, 1);
    assert_int_equal(hark_tensor_create(context, HARK_F32, 3, ring, &ring_key), HARK_OK);
    assert_int_equal(hark_tensor_create(context, HARK_F32, 3, ring, &ring_value), HARK_OK);
    call.inputs[3] = ring_key;
    call.inputs[4] = ring_value;
    call.outputs[0] = out;
    assert_int_equal(hark_tensor_wrap(context, starts, HARK_I64, 1, &wrong[i].count, NULL, &call.inputs[PARTS]), HARK_OK);
    assert_int_equal(hark_tensor_wrap(context, global_rows, HARK_I64, 2, rows_shape, NULL, &call.inputs[PARTS + 1]), HARK_OK);
    hark_inferred inferred = {0};
    hark_status status = hark_op_compressed_decode.infer(context, &attributes, call.inputs, call.input_count, &inferred);
    if (status == HARK_OK) {
      call.workspace = aligned_alloc(64, (inferred.forward_workspace + 64) / 64 * 64);
      assert_non_null(call.workspace);
      status = hark_operator_forward(context, &call);
      free(call.workspace);
    }
    if (status == HARK_OK || strstr(hark_context_message(context), wrong[i].message) == NULL)
      fail_msg("\"%s\", expected \"%s\"", status == HARK_OK ? "accepted" : hark_context_message(context), wrong[i].message);
    for (int part = 0; part < PARTS; part++) hark_tensor_destroy(context, &parts[part]);
    hark_tensor_destroy(context, &ring_key);
    hark_tensor_destroy(context, &ring_value);
    hark_tensor_destroy(context, &out);
  }
  test_setup_close(context);
}

/* Tables of sums with too few levels, heads or distances, and with globals. */
static void wrong_sums_are_refused(void **state) {
  (void)state;
  enum { PARTS = 9 };
  static const struct {
    int64_t shape[3], globals, kept;
    const char *message;
  } wrong[] = {
      {{1, 4, 42}, 0, 0, "log_sums is [1, 4, 42], expected [levels, heads or 1, distances] with at least 2 levels, and 42 distances"},
      {{2, 2, 42}, 0, 0, "log_sums is [2, 2, 42], expected [levels, heads or 1, distances]"},
      {{2, 4, 41}, 0, 0, "and 42 distances for 42 tokens"},
      {{2, 1, 15}, 0, 2, "and 16 distances for 42 tokens"},
      {{2, 1, 42}, 3, 2, "log_sums with global_slots, expected global_slots 0"},
      {{2, 1, 16}, 0, 2, NULL},
      {{2, 4, 42}, 0, 0, NULL}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const hark_compressed_decode_attributes attributes = {.heads = 4,
                                                          .key_heads = 2,
                                                          .chunk = 4,
                                                          .chunk_slots = 2,
                                                          .selected_slots = 3,
                                                          .kept_chunks = wrong[i].kept,
                                                          .global_slots = wrong[i].globals,
                                                          .first_position = 40,
                                                          .scale = 1};
    const int64_t chunks = wrong[i].kept > 0 ? 3 : 10, globals = wrong[i].globals > 0 ? wrong[i].globals : 1;
    const int64_t shapes[PARTS][3] = {{1, 2, 12},     {1, 2, 6},       {1, 2, 10},      {1, 8, 6},       {1, 8, 10},
                                      {chunks, 2, 6}, {chunks, 2, 10}, {globals, 2, 6}, {globals, 2, 10}};
    hark_tensor inputs[HARK_MAX_INPUTS] = {{.type = HARK_NONE}};
    hark_inferred inferred = {0};
    for (int part = 0; part < PARTS; part++)
      assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, shapes[part], &inputs[part]), HARK_OK);
    assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, wrong[i].shape, &inputs[PARTS + 2]), HARK_OK);
    const hark_status status = hark_op_compressed_decode.infer(context, &attributes, inputs, PARTS + 3, &inferred);
    if (wrong[i].message == NULL ? status != HARK_OK : status == HARK_OK || strstr(hark_context_message(context), wrong[i].message) == NULL)
      fail_msg("case %zu: %s", i, status == HARK_OK ? "accepted" : hark_context_message(context));
  }
  test_setup_close(context);
}

static void wrong_calls_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const hark_compressed_decode_attributes good = {.heads = 4,
                                                  .key_heads = 2,
                                                  .chunk = 4,
                                                  .chunk_slots = 2,
                                                  .selected_slots = 3,
                                                  .kept_chunks = 2,
                                                  .global_slots = 3,
                                                  .first_position = 40,
                                                  .scale = 1};
  enum { PARTS = 9 };
  const int64_t shapes[PARTS][3] = {{1, 2, 12}, {1, 2, 6}, {1, 2, 10}, {1, 8, 6}, {1, 8, 10}, {3, 2, 6}, {3, 2, 10}, {3, 2, 6}, {3, 2, 10}};
  const struct {
    int part, dimension; /* changed to `extent`; -1: the attributes are changed */
    int64_t extent;
    const char *message;
  } wrong[] = {{0, 2, 13, "query has [1, 2, 13], expected one sequence whose rows 4 heads divide"},
               {1, 2, 7, "key has [1, 2, 7], expected [1, 2, 6]"},
               {3, 1, 7, "ring_key has room for 7 tokens, expected at least 8 for 42 tokens"},
               {3, 1, 9, "ring_key has room for 9 tokens"},
               {4, 1, 7, "ring_value has [1, 7, 10], expected [1, 8, 10]"},
               {5, 0, 2, "slot_key has room for 2 chunks, expected at least 3 for 42 tokens"},
               {6, 1, 3, "slot_value has [3, 3, 10], expected [3, 2, 10]"},
               {7, 0, 2, "global_key has room for 2 global slots, expected at least 3 for 42 tokens"},
               {8, 2, 11, "global_value has [3, 2, 11], expected [3, 2, 10]"},
               {-1, 0, 0, "chunk is 0, expected 1 to 1048576"},
               {-1, 1, 5, "chunk_slots is 5, expected 1 to 4"},
               {-1, 2, 0, "selected_slots is 0, expected 1 to 4096"},
               {-1, 3, 0, "global_slots is 3 with kept_chunks 0, expected 0"},
               {-1, 4, -1, "first_position is -1"},
               {-1, 5, 3, "heads is 3, expected a multiple of key_heads = 2"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hark_compressed_decode_attributes attributes = good;
    int64_t *const fields[] = {&attributes.chunk,       &attributes.chunk_slots,    &attributes.selected_slots,
                               &attributes.kept_chunks, &attributes.first_position, &attributes.heads};
    hark_tensor inputs[PARTS];
    for (int part = 0; part < PARTS; part++) {
      int64_t shape[] = {shapes[part][0], shapes[part][1], shapes[part][2]};
      if (part == wrong[i].part) shape[wrong[i].dimension] = wrong[i].extent;
      assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, shape, &inputs[part]), HARK_OK);
    }
    if (wrong[i].part < 0) *fields[wrong[i].dimension] = wrong[i].extent;
    hark_inferred inferred = {0};
    const hark_status status = hark_op_compressed_decode.infer(context, &attributes, inputs, PARTS, &inferred);
    if (status == HARK_OK || strstr(hark_context_message(context), wrong[i].message) == NULL)
      fail_msg("\"%s\", expected \"%s\"", status == HARK_OK ? "accepted" : hark_context_message(context), wrong[i].message);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_equal_those_of_the_whole_text),
                                     cmocka_unit_test(kernels_select_as_the_definition_does),
                                     cmocka_unit_test(caches_are_as_large_as_needed),
                                     cmocka_unit_test(wrong_starts_are_refused),
                                     cmocka_unit_test(wrong_calls_are_refused),
                                     cmocka_unit_test(wrong_sums_are_refused)};
  return cmocka_run_group_tests_name("compressed_decode", tests, NULL, NULL);
}

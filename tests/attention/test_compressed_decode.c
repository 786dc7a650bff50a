/* test_compressed_decode.c - compressed attention token by token against the attention of the whole text, and what its cache takes.
 *
 * In f64 both are sums of at most a few hundred terms of order one: 1e-11 is some ten thousand roundings. */
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
#define LARGEST 130 /* rows of the longest text */
enum { HEADS = 4, KEY_HEADS = 2, HEAD_DIM = 3, VALUE_DIM = 5 };

typedef struct decode_case {
  int64_t chunk, slots, selected, kept, globals;
} decode_case;

static const decode_case cases[] = {{1, 1, 5, 0, 0},   {4, 1, 3, 0, 0},    {4, 3, 7, 0, 0},  {8, 8, 4, 0, 0}, {4, 2, 5, 3, 0},
                                    {4, 3, 9, 2, 2},   {5, 4, 16, 1, 7},   {1, 1, 2, 4, 3},  {7, 3, 2, 9, 1}, {64, 5, 6, 0, 0},
                                    {200, 7, 4, 1, 1}, {2, 2, 4, 1000, 5}, {3, 3, 3, 1, 200}};
#define CASES (sizeof cases / sizeof *cases)

static double noise(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(*state >> 11) / (double)((int64_t)1 << 52) - 1; /* [-1, 1) */
}

static hark_tensor made(hark_context *context, int64_t a, int64_t b, int64_t width, uint64_t seed, double size) {
  const int64_t shape[] = {a, b, width};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_create(context, HARK_F64, 3, shape, &tensor), HARK_OK);
  uint64_t state = seed;
  for (int64_t i = 0; i < a * b * width; i++) ((double *)tensor.data)[i] = size * noise(&state);
  return tensor;
}

/* [1, L, heads * d] as [1, heads, L, d]. */
static hark_tensor by_heads(const hark_tensor *rows, int64_t heads) {
  const int64_t length = rows->shape[1], width = rows->shape[2] / heads;
  return (hark_tensor){.data = rows->data,
                       .type = HARK_F64,
                       .rank = 4,
                       .shape = {1, heads, length, width},
                       .stride = {length * heads * width, width, heads * width, 1}};
}

static void attend_to_all(hark_context *context, const decode_case *c, const hark_tensor *q, const hark_tensor *k, const hark_tensor *v,
                          const hark_tensor *out) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = HARK_F64;
  desc.structure = HARK_STRUCTURE_COMPRESSED;
  desc.causal = desc.forward_only = true;
  desc.batch = 1;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = desc.key_length = q->shape[1];
  desc.head_dim = HEAD_DIM;
  desc.value_dim = VALUE_DIM;
  desc.chunk = c->chunk;
  desc.chunk_slots = c->slots;
  desc.selected_slots = c->selected;
  desc.kept_chunks = c->kept;
  desc.global_slots = c->globals;
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_args args = {.struct_size = sizeof args};
  args.query = by_heads(q, HEADS);
  args.key = by_heads(k, KEY_HEADS);
  args.value = by_heads(v, KEY_HEADS);
  args.out = by_heads(out, HEADS);
  args.workspace = aligned_alloc(64, (hark_attention_plan_sizes(plan).forward_workspace + 63) / 64 * 64);
  assert_non_null(args.workspace);
  assert_int_equal(hark_attention_forward(context, plan, &args), HARK_OK);
  free(args.workspace);
  hark_attention_plan_destroy(context, &plan);
}

static hark_tensor rows_of(const hark_tensor *all, int64_t first, int64_t count) {
  hark_tensor rows = *all;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  rows.data = (double *)all->data + first * all->shape[2];
  return rows;
}

/* Caches have other numbers before, which mean nothing. */
static void attend_by_passes(hark_context *context, const decode_case *c, const hark_tensor *q, const hark_tensor *k, const hark_tensor *v,
                             int64_t pass, const hark_tensor *out) {
  const int64_t length = q->shape[1], chunks = hark_compressed_decode_chunks(c->chunk, c->kept, length);
  const int64_t globals = c->globals > 0 ? c->globals : 1, width = KEY_HEADS * HEAD_DIM, value_width = KEY_HEADS * VALUE_DIM;
  hark_tensor cache[] = {made(context, 1, 2 * c->chunk, width, 1, 1e30),  made(context, 1, 2 * c->chunk, value_width, 2, 1e30),
                         made(context, chunks, c->slots, width, 3, 1e30), made(context, chunks, c->slots, value_width, 4, 1e30),
                         made(context, 2, globals, width, 5, 1e30),       made(context, 2, globals, value_width, 6, 1e30)};
  enum { PARTS = (int)(sizeof cache / sizeof *cache) };
  for (int64_t first = 0; first < length; first += pass) {
    const int64_t count = length - first < pass ? length - first : pass;
    const hark_compressed_decode_attributes attributes = {.heads = HEADS,
                                                          .key_heads = KEY_HEADS,
                                                          .chunk = c->chunk,
                                                          .chunk_slots = c->slots,
                                                          .selected_slots = c->selected,
                                                          .kept_chunks = c->kept,
                                                          .global_slots = c->globals,
                                                          .first_position = first,
                                                          .scale = 1 / sqrt((double)HEAD_DIM)};
    hark_call call = {.op = &hark_op_compressed_decode, .attributes = &attributes, .input_count = 3 + PARTS};
    call.inputs[0] = rows_of(q, first, count);
    call.inputs[1] = rows_of(k, first, count);
    call.inputs[2] = rows_of(v, first, count);
    for (int i = 0; i < PARTS; i++) call.inputs[3 + i] = cache[i];
    call.outputs[0] = rows_of(out, first, count);
    hark_inferred inferred = {0};
    if (hark_op_compressed_decode.infer(context, &attributes, call.inputs, call.input_count, &inferred) != HARK_OK)
      fail_msg("%s", hark_context_message(context));
    call.workspace = aligned_alloc(64, (inferred.forward_workspace + 64) / 64 * 64);
    assert_non_null(call.workspace);
    assert_int_equal(hark_operator_forward(context, &call), HARK_OK);
    free(call.workspace);
  }
  for (int i = 0; i < PARTS; i++) hark_tensor_destroy(context, &cache[i]);
}

static void rows_equal_those_of_the_whole_text(void **state) {
  (void)state;
  static const int64_t lengths[] = {1, 2, 5, 8, 9, 16, 17, 33, 64, 65, LARGEST}, passes[] = {1, 5, LARGEST};
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < CASES; c++)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      hark_tensor q = made(context, 1, lengths[l], HEADS * HEAD_DIM, 11, 2), k = made(context, 1, lengths[l], KEY_HEADS * HEAD_DIM, 12, 2);
      hark_tensor v = made(context, 1, lengths[l], KEY_HEADS * VALUE_DIM, 13, 1);
      hark_tensor whole = made(context, 1, lengths[l], HEADS * VALUE_DIM, 14, 1),
                  parts = made(context, 1, lengths[l], HEADS * VALUE_DIM, 15, 1);
      attend_to_all(context, &cases[c], &q, &k, &v, &whole);
      for (size_t p = 0; p < sizeof passes / sizeof *passes; p++) {
        attend_by_passes(context, &cases[c], &q, &k, &v, passes[p], &parts);
        for (int64_t i = 0; i < lengths[l] * HEADS * VALUE_DIM; i++) {
          const double have = ((double *)parts.data)[i], expected = ((double *)whole.data)[i];
          if (!(fabs(have - expected) <= WITHIN))
            fail_msg("chunks of %" PRId64 ", %" PRId64 " slots, %" PRId64 " kept, %" PRId64
                     " globals; %d rows in passes of %d: row %d is %.17g, "
                     "of the whole text %.17g",
                     cases[c].chunk, cases[c].slots, cases[c].kept, cases[c].globals, (int)lengths[l], (int)passes[p],
                     (int)(i / (HEADS * VALUE_DIM)), have, expected);
        }
      }
      hark_tensor *const all[] = {&q, &k, &v, &whole, &parts};
      for (int i = 0; i < 5; i++) hark_tensor_destroy(context, all[i]);
    }
  test_setup_close(context);
}

/* The memory of a cache does not grow with the text if chunks are merged. */
static void caches_are_as_large_as_needed(void **state) {
  (void)state;
  assert_int_equal(hark_compressed_decode_chunks(4, 0, 1), 1);
  assert_int_equal(hark_compressed_decode_chunks(4, 0, 8), 1);
  assert_int_equal(hark_compressed_decode_chunks(4, 0, 9), 2);
  assert_int_equal(hark_compressed_decode_chunks(4, 0, 4000), 999);
  assert_int_equal(hark_compressed_decode_chunks(4, 3, 4000), 4);
  assert_int_equal(hark_compressed_decode_chunks(4, 3, (int64_t)1 << 50), 4);
  assert_int_equal(hark_compressed_decode_chunks(4, 1000, 9), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_equal_those_of_the_whole_text), cmocka_unit_test(caches_are_as_large_as_needed)};
  return cmocka_run_group_tests_name("compressed_decode", tests, NULL, NULL);
}

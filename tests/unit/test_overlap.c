/* test_overlap.c - whether tensors share memory, against counting every element's bytes. */
#include <string.h>

#include "core/overlap.h"
#include "support/cmocka_all.h"

enum { ROOM = 1 << 14 };
static _Alignas(64) unsigned char memory[ROOM];

static hark_tensor view(hark_type type, int64_t first, int rank, const int64_t *shape, const int64_t *stride) {
  hark_tensor tensor = {.data = memory + first, .type = type, .rank = rank};
  for (int i = 0; i < rank; i++) {
    tensor.shape[i] = shape[i];
    tensor.stride[i] = stride[i];
  }
  return tensor;
}

/* Adds one to every byte of every element. */
static void count_bytes(const hark_tensor *tensor, unsigned char *counts) {
  const int64_t width = (int64_t)hark_type_bytes(tensor->type), elements = hark_tensor_count(tensor);
  for (int64_t i = 0; i < elements; i++) {
    int64_t rest = i, at = (unsigned char *)tensor->data - memory;
    for (int k = tensor->rank - 1; k >= 0; k--) {
      at += rest % tensor->shape[k] * tensor->stride[k] * width;
      rest /= tensor->shape[k];
    }
    for (int64_t b = 0; b < width; b++) {
      assert_in_range(at + b, 0, ROOM - 1);
      if (counts[at + b] < 255) counts[at + b]++;
    }
  }
}

static bool repeats(const hark_tensor *tensor) {
  static unsigned char counts[ROOM];
  memset(counts, 0, sizeof counts);
  count_bytes(tensor, counts);
  for (int i = 0; i < ROOM; i++)
    if (counts[i] > 1) return true;
  return false;
}

static bool shares(const hark_tensor *a, const hark_tensor *b) {
  static unsigned char of_a[ROOM], of_b[ROOM];
  memset(of_a, 0, sizeof of_a);
  memset(of_b, 0, sizeof of_b);
  count_bytes(a, of_a);
  count_bytes(b, of_b);
  for (int i = 0; i < ROOM; i++)
    if (of_a[i] > 0 && of_b[i] > 0) return true;
  return false;
}

static uint32_t state_of_numbers = 1;
static int64_t draw(int64_t limit) {
  state_of_numbers = state_of_numbers * 1664525u + 1013904223u;
  return (int64_t)(state_of_numbers >> 8) % limit;
}

/* Any rank, any strides, also 0 and backwards, any type, at any byte. */
static hark_tensor draw_tensor(int64_t largest_stride) {
  static const hark_type types[] = {HARK_F32, HARK_F64, HARK_U8, HARK_F32};
  hark_tensor tensor = {.type = types[draw(4)], .rank = (int)draw(4)};
  int64_t least = 0, most = 0;
  const int64_t width = (int64_t)hark_type_bytes(tensor.type);
  for (int i = 0; i < tensor.rank; i++) {
    tensor.shape[i] = draw(6);
    tensor.stride[i] = draw(2 * largest_stride) - largest_stride / 4;
    if (draw(3) == 0) tensor.stride[i] = i == 0 ? 1 : tensor.stride[i - 1] * hark_max(1, tensor.shape[i - 1]);
    if (tensor.stride[i] > 100) tensor.stride[i] = 100;
    if (tensor.stride[i] < -100) tensor.stride[i] = -100;
    const int64_t reach = hark_max(0, tensor.shape[i] - 1) * tensor.stride[i] * width;
    least += hark_min(0, reach);
    most += hark_max(0, reach);
  }
  assert_true(most - least + width < ROOM);
  const int64_t first = draw(hark_min(ROOM - (most - least) - width, 600));
  tensor.data = memory + first - least;
  return tensor;
}

static void answers_are_those_of_counting(void **state) {
  (void)state;
  int yes[2] = {0};
  for (int i = 0; i < 20000; i++) {
    const int64_t largest = 1 + draw(30);
    const hark_tensor a = draw_tensor(largest), b = draw_tensor(largest);
    if (hark_tensor_repeats(&a) != repeats(&a)) fail_msg("case %d: repeats", i);
    if (hark_tensors_share(&a, &b) != shares(&a, &b)) fail_msg("case %d: share", i);
    if (hark_tensors_share(&b, &a) != shares(&a, &b)) fail_msg("case %d: share, the other way round", i);
    yes[0] += repeats(&a);
    yes[1] += shares(&a, &b);
  }
  assert_in_range(yes[0], 1000, 19000);
  assert_in_range(yes[1], 1000, 19000);
}

/* Queries, keys and values of one buffer, in all the orders in which projections are packed. */
static void packed_views_are_apart(void **state) {
  (void)state;
  enum { B = 2, L = 3, H = 4, D = 5 };
  const int64_t shape[] = {B, H, L, D};
  const struct {
    int64_t stride[4], step; /* elements from one part to the next */
  } layouts[] = {
      {{L * 3 * H * D, D, 3 * H * D, 1}, H * D}, /* [B, L, 3, H, d] */
      {{L * 3 * H * D, 3 * D, 3 * H * D, 1}, D}, /* [B, L, H, 3, d] */
      {{L * H * D, D, H * D, 1}, B * L * H * D}, /* [3, B, L, H, d] */
      {{3 * L * H * D, L * D, D, 1}, H * L * D}, /* [B, 3, H, L, d] */
      {{3 * H * L * D, 3 * L * D, 3 * D, 1}, D}, /* [B, H, L, 3, d] */
      {{L * 3 * H * D, 3 * D, 3 * H * D, 3}, 1}, /* [B, L, H, d, 3] */
  };
  for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
    for (int p = 0; p < 3; p++)
      for (int q = 0; q < 3; q++) {
        const hark_tensor a = view(HARK_F32, 4 * p * layouts[i].step, 4, shape, layouts[i].stride);
        const hark_tensor b = view(HARK_F32, 4 * q * layouts[i].step, 4, shape, layouts[i].stride);
        if (hark_tensor_repeats(&a)) fail_msg("layout %zu repeats", i);
        if (hark_tensors_share(&a, &b) != (p == q)) fail_msg("layout %zu, parts %d and %d", i, p, q);
        assert_int_equal(shares(&a, &b), p == q);
      }
}

/* Grouped heads: keys and values with fewer heads than the queries that they are packed with. */
static void packed_views_of_grouped_heads_are_apart(void **state) {
  (void)state;
  enum { B = 2, L = 3, H = 4, KEYS = 2, D = 5, ROW = (H + 2 * KEYS) * D };
  const int64_t of_queries[] = {B, H, L, D}, of_keys[] = {B, KEYS, L, D}, stride[] = {L * ROW, D, ROW, 1};
  const hark_tensor query = view(HARK_F64, 0, 4, of_queries, stride), key = view(HARK_F64, 8 * H * D, 4, of_keys, stride),
                    value = view(HARK_F64, 8 * (H + KEYS) * D, 4, of_keys, stride),
                    shifted = view(HARK_F64, 8 * (H * D - 1), 4, of_keys, stride);
  assert_false(hark_tensors_share(&query, &key));
  assert_false(hark_tensors_share(&key, &value));
  assert_false(hark_tensors_share(&value, &query));
  assert_true(hark_tensors_share(&query, &shifted));
}

/* Strides of no memory, and searches that are given up: no answer but no, and no harm. */
static void strange_strides_do_no_harm(void **state) {
  (void)state;
  const int64_t shape[] = {1000000, 1000000, 1000000}, prime[] = {1000003, 999983, 999979};
  const int64_t huge[] = {INT64_MAX, INT64_MIN, INT64_MIN + 1};
  const hark_tensor a = view(HARK_F32, 0, 3, shape, prime), b = view(HARK_F32, 4, 3, shape, huge);
  (void)hark_tensor_repeats(&a);
  (void)hark_tensor_repeats(&b);
  (void)hark_tensors_share(&a, &b);
  (void)hark_tensor_span(&b);
  const hark_tensor none = {0}, empty = view(HARK_F32, 0, 1, (int64_t[]){0}, (int64_t[]){0}), one = view(HARK_F32, 0, 0, NULL, NULL);
  assert_false(hark_tensors_share(&none, &one) || hark_tensors_share(&one, &empty) || hark_tensor_repeats(&empty));
  assert_true(hark_tensors_share(&one, &one));
}

/* One in the other's place: the same elements in the same order, however they are strided. */
static void places_are_the_same(void **state) {
  (void)state;
  const int64_t shape[] = {3, 4}, wide[] = {3, 8}, flat[] = {12}, strides[] = {8, 2}, turned[] = {2, 8}, contiguous[] = {4, 1}, one[] = {1};
  const hark_tensor strided = view(HARK_F32, 0, 2, shape, strides), same = view(HARK_F32, 0, 2, shape, strides);
  const hark_tensor moved = view(HARK_F32, 4, 2, shape, strides), other = view(HARK_F32, 0, 2, shape, turned);
  const hark_tensor block = view(HARK_F32, 0, 2, shape, contiguous), line = view(HARK_F32, 0, 1, flat, one);
  const hark_tensor longer = view(HARK_F32, 0, 2, wide, strides), wider = view(HARK_F64, 0, 2, shape, strides);
  assert_true(hark_tensor_is_same(&strided, &same));
  assert_true(hark_tensor_is_same(&block, &line));
  assert_false(hark_tensor_is_same(&strided, &moved));
  assert_false(hark_tensor_is_same(&strided, &other));
  assert_false(hark_tensor_is_same(&strided, &block));
  assert_false(hark_tensor_is_same(&strided, &longer));
  assert_false(hark_tensor_is_same(&strided, &wider));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_those_of_counting),
      cmocka_unit_test(packed_views_are_apart),
      cmocka_unit_test(packed_views_of_grouped_heads_are_apart),
      cmocka_unit_test(strange_strides_do_no_harm),
      cmocka_unit_test(places_are_the_same),
  };
  return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}

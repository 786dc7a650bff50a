/* test_random.c - Philox 4x32-10 against the vectors of its authors, and the distributions made from it. */
#include <hark/random.h>
#include <math.h>
#include <stdlib.h>

#include "support/cmocka_all.h"

typedef struct vector {
  uint32_t counter[4], key[2], words[4];
} vector;

/* kat_vectors of Random123 (Salmon et al.), rows philox4x32 10. */
static const vector vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void words_are_those_of_the_authors(void **state) {
  (void)state;
  for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
    const uint32_t *c = vectors[v].counter, *k = vectors[v].key;
    const hark_random_stream stream = {.seed = (uint64_t)k[1] << 32 | k[0], .micro_step = c[2], .layer_purpose = c[3]};
    uint32_t words[4];
    hark_random_words(&stream, (uint64_t)c[1] << 32 | c[0], words);
    for (int i = 0; i < 4; i++) assert_int_equal(words[i], vectors[v].words[i]);
  }
}

static void first_index_is_added_to_the_counter(void **state) {
  (void)state;
  const hark_random_stream whole = {.seed = 42, .layer_purpose = 7}, later = {.seed = 42, .first_index = 0xfffffffe, .layer_purpose = 7};
  for (uint64_t i = 0; i < 6; i++) { /* over the carry into the counter's second word */
    uint32_t a[4], b[4];
    hark_random_words(&whole, 0xfffffffe + i, a);
    hark_random_words(&later, i, b);
    assert_memory_equal(a, b, sizeof a);
  }
}

static void word_takes_them_in_order(void **state) {
  (void)state;
  const hark_random_stream stream = {.seed = 3};
  for (uint64_t i = 0; i < 12; i++) {
    uint32_t words[4];
    hark_random_words(&stream, i / 4, words);
    assert_int_equal(hark_random_word(&stream, i), words[i % 4]);
  }
}

static void streams_of_other_names_differ(void **state) {
  (void)state;
  const hark_random_stream streams[] = {{.seed = 1},
                                        {.seed = 2},
                                        {.seed = (uint64_t)1 << 32 | 1},
                                        {.seed = 1, .micro_step = 1},
                                        {.seed = 1, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_DROPOUT)},
                                        {.seed = 1, .layer_purpose = hark_random_layer_purpose(1, HARK_RANDOM_DROPOUT)},
                                        {.seed = 1, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_ATTENTION)}};
  for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
    for (size_t j = 0; j < i; j++) {
      uint32_t a[4], b[4];
      hark_random_words(&streams[i], 0, a);
      hark_random_words(&streams[j], 0, b);
      assert_memory_not_equal(a, b, sizeof a);
    }
  }
}

static void threshold_has_the_probability(void **state) {
  (void)state;
  assert_int_equal(hark_random_threshold(0), 0);
  assert_int_equal(hark_random_threshold(0.5), 0x80000000u);
  assert_int_equal(hark_random_threshold(0.25), 0x40000000u);
}

#define COUNT 100000

static double *numbers(void (*fill)(const hark_random_stream *, uint64_t, int64_t, double *)) {
  const hark_random_stream stream = {.seed = 2024, .layer_purpose = HARK_RANDOM_TEST};
  double *values = malloc(COUNT * sizeof *values);
  assert_non_null(values);
  fill(&stream, 0, COUNT, values);
  return values;
}

/* The mean of n numbers of variance s^2 is off by more than 5 s / sqrt(n) once in two million streams; this is one stream. */
static void check_moments(const double *values, double mean, double variance, double fourth) {
  double sum = 0, square = 0;
  for (int i = 0; i < COUNT; i++) sum += values[i];
  for (int i = 0; i < COUNT; i++) square += (values[i] - mean) * (values[i] - mean);
  assert_true(fabs(sum / COUNT - mean) < 5 * sqrt(variance / COUNT));
  assert_true(fabs(square / COUNT - variance) < 5 * sqrt((fourth - variance * variance) / COUNT));
}

static void uniform_numbers_are_uniform(void **state) {
  (void)state;
  enum { BINS = 64 };
  double *values = numbers(hark_random_uniform), bins[BINS] = {0}, chi_square = 0;
  check_moments(values, 0.5, 1.0 / 12, 1.0 / 80);
  for (int i = 0; i < COUNT; i++) {
    assert_true(values[i] >= 0 && values[i] < 1);
    bins[(int)(values[i] * BINS)]++;
  }
  const double expected = (double)COUNT / BINS;
  for (int b = 0; b < BINS; b++) chi_square += (bins[b] - expected) * (bins[b] - expected) / expected;
  assert_true(fabs(chi_square - (BINS - 1)) < 5 * sqrt(2.0 * (BINS - 1))); /* mean and deviation of chi square with 63 degrees */
  free(values);
}

static void normal_numbers_are_normal(void **state) {
  (void)state;
  double *values = numbers(hark_random_normal);
  check_moments(values, 0, 1, 3);
  int inside = 0;
  for (int i = 0; i < COUNT; i++) {
    assert_true(isfinite(values[i]));
    inside += fabs(values[i]) < 1;
  }
  const double p = 0.682689492137086; /* of one deviation */
  assert_true(fabs(inside - COUNT * p) < 5 * sqrt(COUNT * p * (1 - p)));
  free(values);
}

/* Filling in pieces gives the same numbers as filling at once, also from odd places. */
static void pieces_are_parts_of_the_whole(void **state) {
  (void)state;
  void (*const fills[])(const hark_random_stream *, uint64_t, int64_t, double *) = {hark_random_uniform, hark_random_normal};
  const hark_random_stream stream = {.seed = 8};
  for (int f = 0; f < 2; f++) {
    double whole[23], piece[23];
    fills[f](&stream, 0, 23, whole);
    fills[f](&stream, 0, 5, piece);
    fills[f](&stream, 5, 1, piece + 5);
    fills[f](&stream, 6, 17, piece + 6);
    assert_memory_equal(whole, piece, sizeof whole);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_are_those_of_the_authors), cmocka_unit_test(first_index_is_added_to_the_counter),
      cmocka_unit_test(word_takes_them_in_order),       cmocka_unit_test(streams_of_other_names_differ),
      cmocka_unit_test(threshold_has_the_probability),  cmocka_unit_test(uniform_numbers_are_uniform),
      cmocka_unit_test(normal_numbers_are_normal),      cmocka_unit_test(pieces_are_parts_of_the_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

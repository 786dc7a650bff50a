/* test_ahca_chunks.c - chunk boundaries and the losses and gradients of learned ones, against results worked out by hand, in f64.
 *
 * chunk_boundaries, boundary_probability, depth_scores, settled_probability, smooth_chunks, straight_through, ratio_loss, ponder_loss. The
 * gradients of all of them but one are the gradient suite's; straight_through without a reference is here, against its surrogate.
 */
#include <hark/experimental.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/compare.h"
#include "support/single.h"

#define ROUNDING 1e-13

static const hark_sample_input absent = {0};

static hark_sample_input whole(hark_type type, int64_t count) { return (hark_sample_input){type, 1, {count}, 0, 0}; }
static hark_sample_input real(int64_t rows, int64_t width) {
  return (hark_sample_input){HARK_F32, width == 0 ? 1 : 2, {rows, width}, -1, 1};
}

/* The chunks of one cut: offsets of chunks, then of sequences. */
static void check_cut(const hark_chunk_boundaries_attributes *attributes, int sequences, const double *offsets, const double *ids,
                      const double *score, const double *expected_chunks, const double *expected_sequences) {
  const hark_sample_input inputs[] = {whole(HARK_I64, sequences + 1), ids == NULL ? absent : whole(HARK_I32, attributes->rows),
                                      score == NULL ? absent : real(attributes->rows, 0)};
  test_single s;
  test_single_open(&s, &hark_op_chunk_boundaries, attributes, 3, inputs);
  test_single_set(&s, 0, offsets);
  if (ids != NULL) test_single_set(&s, 1, ids);
  if (score != NULL) test_single_set(&s, 2, score);
  double *chunks = test_single_forward(&s), *first = test_run_read(&s.run, TEST_OUTPUT, 1);
  const int count = (int)expected_sequences[sequences];
  test_numbers_at(first, expected_sequences, sequences + 1, __FILE__, __LINE__);
  test_numbers_at(chunks, expected_chunks, count, __FILE__, __LINE__);
  for (int64_t k = count; k < test_run_count(&s.run, TEST_OUTPUT, 0); k++) test_near(chunks[k], offsets[sequences], 0);
  free(first);
  free(chunks);
  test_single_close(&s);
}

static void fixed_chunks_have_their_size_but_for_the_last(void **state) {
  (void)state;
  for (int size = 1; size <= 5; size++) {
    for (int rows = 0; rows <= 9; rows++) { /* all lengths around multiples of the size, before a sequence of 3 */
      const hark_chunk_boundaries_attributes fixed = {.rule = HARK_CHUNK_FIXED, .rows = rows + 3, .minimum = size, .maximum = size};
      double chunks[16], sequences[3] = {0};
      int count = 0;
      for (int t = 0; t < rows; t += size) chunks[count++] = t;
      sequences[1] = count;
      for (int t = 0; t < 3; t += size) chunks[count++] = rows + t;
      sequences[2] = count;
      assert_true(count <= hark_chunk_capacity(rows + 3, 2, size));
      check_cut(&fixed, 2, (const double[]){0, rows, rows + 3}, NULL, NULL, chunks, sequences);
    }
  }
}

static void capacity_holds_the_most_chunks_and_no_more_than_one_a_sequence_over(void **state) {
  (void)state;
  for (int64_t minimum = 1; minimum <= 7; minimum++) {
    for (int64_t a = 0; a <= 9; a++) {
      for (int64_t b = 0; b <= 9; b++) {
        const int64_t most = (a + minimum - 1) / minimum + (b + minimum - 1) / minimum, capacity = hark_chunk_capacity(a + b, 2, minimum);
        assert_true(capacity >= most && capacity <= most + 2 && capacity <= a + b);
      }
    }
  }
  assert_int_equal(hark_chunk_capacity(0, 3, 2), 0);
}

static const int32_t stops[] = {9};

static void delimiters_end_chunks_of_the_minimum_and_the_maximum_ends_the_others(void **state) {
  (void)state;
  const hark_chunk_boundaries_attributes rule = {
      .rule = HARK_CHUNK_DELIMITER, .rows = 14, .minimum = 2, .maximum = 5, .delimiters = stops, .delimiter_count = 1};
  /* the stop after row 2 is taken; that after row 3 is too near; then the maximum; the second sequence has its own count */
  check_cut(&rule, 2, (const double[]){0, 10, 14}, (const double[]){1, 1, 9, 9, 1, 1, 1, 1, 1, 9, 9, 9, 1, 1}, NULL,
            (const double[]){0, 3, 8, 10, 12}, (const double[]){0, 3, 5});
  /* delimiters that never occur: the maximum cuts */
  check_cut(&rule, 1, (const double[]){0, 12}, (const double[14]){0}, NULL, (const double[]){0, 5, 10}, (const double[]){0, 3});
}

/* The same cuts, one bit a token; segments are sequences of their own. */
static void check_starts(const hark_chunk_starts_attributes *cut, int64_t batch, int64_t rows, const double *tokens,
                         const double *expected) {
  const hark_sample_input inputs[] = {{HARK_I32, 2, {batch, rows}, 0, 1}};
  test_single s;
  test_single_open(&s, &hark_op_chunk_starts, cut, 1, inputs);
  test_single_set(&s, 0, tokens);
  double *starts = test_single_forward(&s);
  test_numbers_at(starts, expected, (int)(batch * rows), __FILE__, __LINE__);
  free(starts);
  test_single_close(&s);
}

static void starts_are_where_delimiters_and_lengths_end_chunks(void **state) {
  (void)state;
  static const int64_t segments[] = {4, 4, 4, 4, 4, 4, 1, 1, 1, 1, 1, 1, 1, 1};
  static const double tokens[] = {1, 1, 9, 9, 1, 1, 1, 1, 1, 9, 9, 9, 1, 1};
  hark_chunk_starts_attributes cut = {.delimiters = stops, .delimiter_count = 1, .minimum = 2, .maximum = 5};
  check_starts(&cut, 2, 7, tokens, (const double[]){1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0});
  check_starts(&cut, 1, 14, tokens, (const double[]){1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0});
  cut.segments = segments;
  check_starts(&cut, 1, 14, tokens, (const double[]){1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0});
  cut.delimiter_count = 0;
  check_starts(&cut, 1, 14, tokens, (const double[]){1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0});
  cut.minimum = cut.maximum = 1;
  check_starts(&cut, 1, 3, tokens, (const double[]){1, 1, 1});
}

/* A delimiter of several tokens ends a chunk only if all of them are in it. */
static void delimiters_may_have_several_tokens(void **state) {
  (void)state;
  static const int32_t delimiters[] = {-1 - 9, 9, 5, -1 - 2, -1 - 0, 3};
  static const int64_t segments[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  static const double tokens[] = {9, 9, 9, 9, 1, 2, 0, 3, 5, 2, 0, 3, 9, 5, 0, 3};
  hark_chunk_starts_attributes cut = {.delimiters = delimiters, .delimiter_count = 6, .minimum = 1, .maximum = 20};
  check_starts(&cut, 1, 16, tokens, (const double[]){1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0});
  cut.minimum = 3; /* 9 9 9: the last two are a delimiter; 3 5 2 0: none */
  check_starts(&cut, 1, 16, tokens, (const double[]){1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0});
  cut.minimum = 1;
  cut.segments = segments; /* 2 | 0 3 */
  check_starts(&cut, 1, 16, tokens, (const double[]){1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0});
  const hark_chunk_boundaries_attributes rule = {
      .rule = HARK_CHUNK_DELIMITER, .rows = 16, .minimum = 1, .maximum = 20, .delimiters = delimiters, .delimiter_count = 6};
  check_cut(&rule, 2, (const double[]){0, 6, 16}, tokens, NULL, (const double[]){0, 2, 4, 6, 9, 12, 14}, (const double[]){0, 3, 7});
}

static void flags_are_the_first_rows_of_chunks(void **state) {
  (void)state;
  test_single s;
  const hark_sample_input inputs[] = {{HARK_I32, 2, {2, 4}, 0, 1}, whole(HARK_I64, 6)};
  test_single_open(&s, &hark_op_chunk_flags, NULL, 2, inputs);
  test_single_set(&s, 0, (const double[8]){0});
  test_single_set(&s, 1, (const double[]){0, 3, 4, 4, 7, 7}); /* row 7 is in no chunk */
  double *flags = test_single_forward(&s);
  test_numbers_at(flags, (const double[]){1, 0, 0, 1, 1, 0, 0, 0}, 8, __FILE__, __LINE__);
  free(flags);
  test_single_set(&s, 1, (const double[]){0, 3, 4, 4, 7, 9});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

static void check_offsets(const hark_sequence_offsets_attributes *sequences, int64_t batch, int64_t rows, const double *expected,
                          int count) {
  const hark_sample_input inputs[] = {{HARK_I32, 2, {batch, rows}, 0, 1}};
  test_single s;
  test_single_open(&s, &hark_op_sequence_offsets, sequences, 1, inputs);
  double *offsets = test_single_forward(&s);
  test_numbers_at(offsets, expected, count, __FILE__, __LINE__);
  free(offsets);
  test_single_close(&s);
}

static void offsets_are_the_first_rows_of_sequences(void **state) {
  (void)state;
  static const int64_t segments[] = {7, 7, 2, 2, 2, 7};
  const hark_sequence_offsets_attributes rectangular = {.packed = false}, packed = {.packed = true, .segments = segments},
                                         unknown = {.packed = true};
  const hark_sample_input inputs[] = {{HARK_I32, 2, {1, 6}, 0, 1}};
  test_single s;
  check_offsets(&rectangular, 3, 4, (const double[]){0, 4, 8, 12}, 4);
  check_offsets(&packed, 1, 6, (const double[]){0, 2, 5, 6, 6, 6, 6}, 7);
  test_single_open(&s, &hark_op_sequence_offsets, &unknown, 1, inputs);
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

static void wrong_delimiters_are_refused(void **state) {
  (void)state;
  static const int32_t open[] = {4, -1 - 7};
  static const int64_t segments[3] = {0};
  const struct {
    hark_chunk_starts_attributes cut;
    int64_t rows;
    const char *message;
  } cases[] = {{{.minimum = 0, .maximum = 3}, 1, "minimum is 0, expected 1 to 2147483647"},
               {{.minimum = 3, .maximum = 2}, 1, "maximum is 2, expected 3 to 2147483647"},
               {{.minimum = 1, .maximum = 3, .delimiter_count = -1}, 1, "delimiter_count is -1, expected 0 or more"},
               {{.minimum = 1, .maximum = 3, .delimiter_count = 2}, 1, "delimiters is NULL with delimiter_count 2"},
               {{.minimum = 1, .maximum = 3, .delimiter_count = 2, .delimiters = open}, 1, "delimiters ends with -8, expected a token"},
               {{.minimum = 1, .maximum = 3, .segments = segments}, 2, "tokens has 2 rows with segments, expected 1"}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int64_t shape[] = {cases[i].rows, 3};
    hark_tensor tokens;
    hark_inferred inferred = {0};
    assert_int_equal(hark_tensor_describe(context, HARK_I32, 2, shape, &tokens), HARK_OK);
    assert_int_not_equal(hark_op_chunk_starts.infer(context, &cases[i].cut, &tokens, 1, &inferred), HARK_OK);
    if (strstr(hark_context_message(context), cases[i].message) == NULL)
      fail_msg("'%s' without '%s'", hark_context_message(context), cases[i].message);
  }
  test_setup_close(context);
}

/* Both operators cut random tokens at the same places. */
static void starts_equal_the_boundaries(void **state) {
  (void)state;
  enum { ROWS = 60 };
  for (int round = 0; round < 20; round++) {
    const int64_t minimum = 1 + round % 4, maximum = minimum + round % 7;
    const hark_chunk_boundaries_attributes rule = {
        .rule = HARK_CHUNK_DELIMITER, .rows = ROWS, .minimum = minimum, .maximum = maximum, .delimiters = stops, .delimiter_count = 1};
    const hark_chunk_starts_attributes cut = {.delimiters = stops, .delimiter_count = 1, .minimum = minimum, .maximum = maximum};
    double tokens[ROWS], starts[ROWS], chunks[ROWS];
    int count = 0;
    int64_t length = 0;
    for (int t = 0; t < ROWS; t++) tokens[t] = (t * t + 3 * round) % 5 == 0 ? 9 : 1;
    for (int t = 0; t < ROWS; t++, length++) { /* from the definition */
      const bool begins = t == 0 || length == maximum || (length >= minimum && tokens[t - 1] == 9);
      starts[t] = begins;
      if (begins) chunks[count++] = t;
      if (begins) length = 0;
    }
    check_starts(&cut, 1, ROWS, tokens, starts);
    check_cut(&rule, 1, (const double[]){0, ROWS}, tokens, NULL, chunks, (const double[]){0, count});
  }
}

static void scores_cut_where_they_reach_the_threshold(void **state) {
  (void)state;
  const hark_chunk_boundaries_attributes rule = {.rule = HARK_CHUNK_SCORE, .rows = 10, .minimum = 2, .maximum = 4, .threshold = 0.5};
  check_cut(&rule, 1, (const double[]){0, 10}, NULL, (const double[]){1, 0.9, 0.5, 0.9, 0.1, 0.1, 0.1, 0.49, 0.9, NAN},
            (const double[]){0, 2, 6, 8}, (const double[]){0, 4});
}

static void peaks_cut_where_they_exceed_the_rest_of_their_sequence(void **state) {
  (void)state;
  const hark_chunk_boundaries_attributes rule = {.rule = HARK_CHUNK_PEAK, .rows = 16, .minimum = 1, .maximum = 16, .threshold = 0.5};
  check_cut(&rule, 2, (const double[]){0, 10, 16}, NULL,
            (const double[]){0, 0, 0, 3, 0, 0, 1, 0, 3, 0, /* mean 7/9, deviation 1.23: over 1.39 */
                             0, 0, 0, 0, 0, 0},            /* no gap is deeper than others */
            (const double[]){0, 3, 8, 10}, (const double[]){0, 3, 4});
}

static void given_chunks_are_taken_or_refused_with_the_row(void **state) {
  (void)state;
  const hark_chunk_boundaries_attributes rule = {.rule = HARK_CHUNK_GIVEN, .rows = 9, .minimum = 1, .maximum = 4};
  const hark_sample_input inputs[] = {whole(HARK_I64, 3), absent, absent, whole(HARK_I64, 5)};
  static const struct {
    double starts[5];
    bool taken;
  } cases[] = {{{0, 2, 5, 8, 9}, true},  {{0, 2, 6, 8, 9}, false}, {{0, 0, 4, 5, 9}, true},
               {{0, 5, 5, 8, 9}, false}, {{1, 2, 5, 8, 9}, false}, {{0, 2, 5, 8, 8}, false}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    test_single s;
    test_single_open(&s, &hark_op_chunk_boundaries, &rule, 4, inputs);
    test_single_set(&s, 0, (const double[]){0, 5, 9});
    test_single_set(&s, 3, cases[i].starts);
    if (cases[i].taken) {
      double *chunks = test_single_forward(&s), *sequences = test_run_read(&s.run, TEST_OUTPUT, 1);
      test_near(sequences[1], 2, 0);
      test_near(chunks[2], 5, 0);
      free(sequences);
      free(chunks);
    } else {
      assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
      assert_non_null(strstr(hark_context_message(s.context), "row"));
    }
    test_single_close(&s);
  }
}

static void attributes_out_of_range_are_refused_by_name(void **state) {
  (void)state;
  static const int32_t unfinished[] = {-1 - 9};
  const struct {
    hark_chunk_boundaries_attributes attributes;
    const char *word;
  } cases[] = {{{.rule = HARK_CHUNK_FIXED, .rows = 4, .minimum = 0, .maximum = 4}, "minimum"},
               {{.rule = HARK_CHUNK_FIXED, .rows = 4, .minimum = 3, .maximum = 2}, "maximum"},
               {{.rule = HARK_CHUNK_FIXED, .rows = 4, .minimum = 2, .maximum = 3}, "one size"},
               {{.rule = HARK_CHUNK_DELIMITER, .rows = 4, .minimum = 1, .maximum = 3}, "delimiters"},
               {{.rule = HARK_CHUNK_DELIMITER, .rows = 4, .minimum = 1, .maximum = 3, .delimiters = unfinished, .delimiter_count = 1},
                "delimiters ends with -10, expected a token"},
               {{.rule = HARK_CHUNK_SCORE, .rows = 4, .minimum = 1, .maximum = 3, .threshold = NAN}, "threshold"},
               {{.rule = HARK_CHUNK_SCORE, .rows = 4, .minimum = 1, .maximum = 3}, "score is absent"},
               {{.rule = (hark_chunk_rule)17, .rows = 4, .minimum = 1, .maximum = 3}, "rule"}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int64_t two = 2;
    hark_tensor offsets;
    hark_inferred inferred = {0};
    assert_int_equal(hark_tensor_describe(context, HARK_I64, 1, &two, &offsets), HARK_OK);
    assert_int_not_equal(hark_op_chunk_boundaries.infer(context, &cases[i].attributes, &offsets, 1, &inferred), HARK_OK);
    if (strstr(hark_context_message(context), cases[i].word) == NULL)
      fail_msg("'%s' without '%s'", hark_context_message(context), cases[i].word);
  }
  test_setup_close(context);
}

static void probabilities_are_those_of_known_angles(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_boundary_probability, NULL, 3, (const hark_sample_input[]){real(7, 2), real(7, 2), whole(HARK_I64, 3)});
  static const double rows[] = {1, 0, 2, 0, 0, 1, 0, -3, 0, 0, 1, 1, 5, 5};
  test_single_set(&s, 0, rows);
  test_single_set(&s, 1, rows);
  test_single_set(&s, 2, (const double[]){0, 6, 7});
  double *p = test_single_forward(&s);
  /* start, same direction, right angle, opposite, zeros, after zeros, start */
  test_near(p[0], 1, 0);
  test_near(p[1], 0, ROUNDING);
  test_near(p[2], 0.5, ROUNDING);
  test_near(p[3], 1, ROUNDING);
  test_near(p[4], 0.5, 0);
  test_near(p[5], 0.5, 0);
  test_near(p[6], 1, 0);
  test_single_backward(&s, NULL);
  double *dq = test_single_gradient(&s, 0), *dk = test_single_gradient(&s, 1);
  for (int d = 0; d < 2; d++) test_near(dq[d], 0, 0), test_near(dq[12 + d], 0, 0), test_near(dq[8 + d], 0, 0), test_near(dk[10 + d], 0, 0);
  for (int i = 0; i < 14; i++) assert_true(isfinite(dq[i]) && isfinite(dk[i]));
  free(dk);
  free(dq);
  free(p);
  test_single_close(&s);
}

static void depth_scores_find_the_change_of_topic(void **state) {
  (void)state;
  static const hark_depth_scores_attributes window = {2};
  test_single s;
  test_single_open(&s, &hark_op_depth_scores, &window, 2, (const hark_sample_input[]){real(8, 2), whole(HARK_I64, 2)});
  test_single_set(&s, 0, (const double[]){1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1});
  test_single_set(&s, 1, (const double[]){0, 8});
  double *y = test_single_forward(&s);
  /* g = 1 1 1/sqrt2 0 1/sqrt2 1 1 at gaps 1 .. 7: the valley at 4 is 2 deep, its sides lose what the climb goes through */
  test_near(y[4], 2, ROUNDING);
  test_near(y[3], 1 - sqrt(0.5), ROUNDING);
  test_near(y[5], 1 - sqrt(0.5), ROUNDING);
  test_near(y[0], 0, 0);
  test_near(y[1], 0, ROUNDING);
  free(y);
  test_single_close(&s);
}

static void settled_probabilities_are_certain_where_minimum_or_maximum_decided(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_settled_probability, NULL, 2, (const hark_sample_input[]){real(6, 0), whole(HARK_I64, 4)});
  test_single_set(&s, 0, (const double[]){1, 0.7, 0.3, 0.2, 0.8, 0.5});
  test_single_set(&s, 1, (const double[]){0, 3, 4, 6}); /* starts 0, 3, 4: 1 and 5 suppressed, 3 forced */
  double *y = test_single_forward(&s);
  test_numbers(y, 1, 0, 0.3, 1, 0.8, 0);
  test_single_backward(&s, (const double[]){1, 1, 1, 1, 1, 1});
  double *dp = test_single_gradient(&s, 0);
  test_numbers(dp, 1, 0, 1, 0, 1, 0);
  free(dp);
  free(y);
  test_single_close(&s);
}

static void smoothing_is_the_recurrence_and_begins_anew_with_a_sequence(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_smooth_chunks, NULL, 4,
                   (const hark_sample_input[]){real(4, 1), real(6, 0), whole(HARK_I64, 5), whole(HARK_I64, 3)});
  test_single_set(&s, 0, (const double[]){8, 4, 100, 5});
  test_single_set(&s, 1, (const double[]){1, 9, 0.25, 1, 9, 9});
  test_single_set(&s, 2, (const double[]){0, 2, 3, 5, 6});
  test_single_set(&s, 3, (const double[]){0, 2, 3}); /* the last chunk is of no sequence */
  double *y = test_single_forward(&s);
  test_numbers(y, 8, 0.25 * 4 + 0.75 * 8, 100, 0);
  free(y);
  test_single_close(&s);
}

/* Without a reference: y is x, bit for bit, and the gradients are those of x (1 + c(p) - c(reference)) at reference = p, whose own are
 * differences' (the gradient suite). */
static void straight_through_has_the_gradient_of_its_surrogate(void **state) {
  (void)state;
  enum { ROWS = 9, WIDTH = 3 };
  const hark_sample_input inputs[] = {real(ROWS, WIDTH), {HARK_F32, 1, {ROWS}, 0, 1}, whole(HARK_I64, 4), {HARK_F32, 1, {ROWS}, 0, 1}};
  static const double chunks[] = {1, 3, 4, 8};
  double output_gradient[ROWS * WIDTH];
  test_random(output_gradient, ROWS * WIDTH, -1, 1, 0, 77);
  test_single plain, surrogate;
  test_single_open(&plain, &hark_op_straight_through, NULL, 3, inputs);
  test_single_open(&surrogate, &hark_op_straight_through, NULL, 4, inputs);
  double *x = test_single_get(&plain, 0), *p = test_single_get(&plain, 1);
  test_single_set(&plain, 2, chunks);
  test_single_set(&surrogate, 2, chunks);
  test_single_set(&surrogate, 3, p);
  double *y = test_single_forward(&plain), *same = test_single_forward(&surrogate);
  test_same_bits(&plain.run, "y", y, x, ROWS * WIDTH);
  test_same_bits(&surrogate.run, "y", same, x, ROWS * WIDTH);
  test_single_backward(&plain, output_gradient);
  test_single_backward(&surrogate, output_gradient);
  double *dp = test_single_gradient(&plain, 1), *surrogate_dp = test_single_gradient(&surrogate, 1), *dx = test_single_gradient(&plain, 0);
  test_same_bits(&plain.run, "dp", dp, surrogate_dp, ROWS);
  test_same_bits(&plain.run, "dx", dx, output_gradient, ROWS * WIDTH);
  static const int sign[ROWS] = {0, 1, -1, 1, 1, -1, -1, -1, 0};
  for (int t = 0; t < ROWS; t++) {
    double product = 0;
    for (int d = 0; d < WIDTH; d++) product += output_gradient[t * WIDTH + d] * x[t * WIDTH + d];
    test_near(dp[t], sign[t] * product, ROUNDING);
  }
  free(dx), free(surrogate_dp), free(dp), free(same), free(y), free(p), free(x);
  test_single_close(&surrogate);
  test_single_close(&plain);
}

static double ratio(int64_t chunks, double p, double target) {
  const hark_ratio_loss_attributes one = {1, target};
  test_single s;
  test_single_open(&s, &hark_op_ratio_loss, &one, 3, (const hark_sample_input[]){real(8, 0), whole(HARK_I64, 3), whole(HARK_I64, 3)});
  test_single_set(&s, 0, (const double[]){p, p, p, p, p, p, p, p});
  test_single_set(&s, 1, (const double[]){0, 8, 8});
  test_single_set(&s, 2, (const double[]){0, (double)chunks, (double)chunks});
  double *loss = test_single_forward(&s);
  const double value = loss[0];
  free(loss);
  test_single_close(&s);
  return value;
}

static void ratio_loss_is_one_at_its_target_and_more_where_both_are_off(void **state) {
  (void)state;
  test_near(ratio(2, 0.25, 4), 1, ROUNDING);
  test_near(ratio(8, 1, 4), 4, ROUNDING);
  test_near(ratio(1, 0, 8), 8.0 / 7 * 7 / 8, ROUNDING);
  assert_true(ratio(4, 0.5, 4) > 1);
}

static void ponder_loss_is_the_mean_gate_of_every_sequence(void **state) {
  (void)state;
  static const hark_ponder_loss_attributes two = {2};
  test_single s;
  test_single_open(&s, &hark_op_ponder_loss, &two, 2, (const hark_sample_input[]){real(4, 0), whole(HARK_I64, 4)});
  test_single_set(&s, 0, (const double[]){0, 1e4, -1e4, 5});
  test_single_set(&s, 1, (const double[]){0, 1, 1, 3}); /* one, none, two chunks; the last is nobody's */
  double *loss = test_single_forward(&s);
  test_near(loss[0], 2 * (0.5 + 0.5), ROUNDING);
  free(loss);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fixed_chunks_have_their_size_but_for_the_last),
      cmocka_unit_test(capacity_holds_the_most_chunks_and_no_more_than_one_a_sequence_over),
      cmocka_unit_test(delimiters_end_chunks_of_the_minimum_and_the_maximum_ends_the_others),
      cmocka_unit_test(starts_are_where_delimiters_and_lengths_end_chunks),
      cmocka_unit_test(delimiters_may_have_several_tokens),
      cmocka_unit_test(wrong_delimiters_are_refused),
      cmocka_unit_test(flags_are_the_first_rows_of_chunks),
      cmocka_unit_test(offsets_are_the_first_rows_of_sequences),
      cmocka_unit_test(starts_equal_the_boundaries),
      cmocka_unit_test(scores_cut_where_they_reach_the_threshold),
      cmocka_unit_test(peaks_cut_where_they_exceed_the_rest_of_their_sequence),
      cmocka_unit_test(given_chunks_are_taken_or_refused_with_the_row),
      cmocka_unit_test(attributes_out_of_range_are_refused_by_name),
      cmocka_unit_test(probabilities_are_those_of_known_angles),
      cmocka_unit_test(depth_scores_find_the_change_of_topic),
      cmocka_unit_test(settled_probabilities_are_certain_where_minimum_or_maximum_decided),
      cmocka_unit_test(smoothing_is_the_recurrence_and_begins_anew_with_a_sequence),
      cmocka_unit_test(straight_through_has_the_gradient_of_its_surrogate),
      cmocka_unit_test(ratio_loss_is_one_at_its_target_and_more_where_both_are_off),
      cmocka_unit_test(ponder_loss_is_the_mean_gate_of_every_sequence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

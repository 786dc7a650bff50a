/* test_ahca_parts.c - segments, pooling, selection, depth, gathering and ragged attention with a term by key, against closed forms, in f64.
 *
 * Degenerate cases: segments of 0 to 9 rows, fewer rows than slots, ties, negative and enormous scores; and that a sequence alone gives the
 * bits that it gives within a batch.
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

/* Every length from 0 to 9 into 4 bins, in one batch, against the definition with floor and ceiling in floating point. */
static void pooling_takes_the_bins_of_the_definition(void **state) {
  (void)state;
  enum { LENGTHS = 10, ROWS = 45, SLOTS = 4, WIDTH = 2 };
  for (int kind = 0; kind < 2; kind++) {
    for (int fewer = 0; fewer < 2; fewer++) {
      const hark_segment_pool_attributes options = {(hark_segment_pool_kind)kind, SLOTS, 0, fewer == 1, 0};
      test_single s;
      test_single_open(&s, &hark_op_segment_pool, &options, 2,
                       (const hark_sample_input[]){real(ROWS, WIDTH), whole(HARK_I64, LENGTHS + 1)});
      double offsets[LENGTHS + 1] = {0};
      for (int m = 0; m < LENGTHS; m++) offsets[m + 1] = offsets[m] + m;
      test_single_set(&s, 1, offsets);
      double *x = test_single_get(&s, 0), *y = test_single_forward(&s);
      int row = 0;
      for (int m = 0; m < LENGTHS; m++) {
        const int slots = fewer == 1 && m < SLOTS ? m : SLOTS;
        for (int i = 0; i < slots; i++, row++) {
          for (int d = 0; d < WIDTH; d++) {
            const int first = (int)floor((double)i * m / slots), last = (int)ceil((double)(i + 1) * m / slots);
            double sum = 0, largest = -INFINITY;
            for (int n = first; n < last; n++) {
              sum += x[((int)offsets[m] + n) * WIDTH + d];
              largest = fmax(largest, x[((int)offsets[m] + n) * WIDTH + d]);
            }
            const double expected = m == 0 ? 0 : kind == 1 ? largest : sum / (last - first);
            test_near(y[row * WIDTH + d], expected, ROUNDING);
          }
        }
      }
      for (; row < LENGTHS * SLOTS; row++) test_near(y[row * WIDTH], 0, 0);
      free(y);
      free(x);
      test_single_close(&s);
    }
  }
}

/* Segments of 5, 0, 1 and 3 rows into at most 4 bins are 8 rows: exactly as many, more (zeros after them), too few. */
static void rows_of_fewer_bins_are_as_many_as_requested(void **state) {
  (void)state;
  enum { ROWS = 9, WIDTH = 2, POOLED = 8 };
  for (int64_t rows = POOLED - 1; rows <= POOLED + 2; rows++) {
    const hark_segment_pool_attributes options = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, true, rows},
                                       segments = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, true, 0};
    static const double offsets[] = {0, 5, 5, 6, 9};
    double *found[2] = {NULL};
    for (int of_segments = 0; of_segments < 2; of_segments++) {
      test_single s;
      test_single_open(&s, &hark_op_segment_pool, of_segments == 1 ? &segments : &options, 2,
                       (const hark_sample_input[]){real(ROWS, WIDTH), whole(HARK_I64, 5)});
      test_single_set(&s, 1, offsets);
      if (of_segments == 0 && rows < POOLED) {
        assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
      } else {
        found[of_segments] = test_single_forward(&s);
      }
      test_single_close(&s);
    }
    for (int64_t i = 0; i < rows * WIDTH && found[0] != NULL; i++) test_near(found[0][i], i < POOLED * WIDTH ? found[1][i] : 0, 0);
    free(found[0]);
    free(found[1]);
  }
}

static void of_equal_maxima_the_first_gets_the_gradient(void **state) {
  (void)state;
  static const hark_segment_pool_attributes max = {HARK_SEGMENT_POOL_MAX, 1, 0, false, 0};
  test_single s;
  test_single_open(&s, &hark_op_segment_pool, &max, 2, (const hark_sample_input[]){real(4, 1), whole(HARK_I64, 2)});
  test_single_set(&s, 0, (const double[]){1, 3, 3, 2});
  test_single_set(&s, 1, (const double[]){0, 4});
  double *y = test_single_forward(&s);
  test_single_backward(&s, (const double[]){5});
  double *dx = test_single_gradient(&s, 0);
  test_numbers(dx, 0, 5, 0, 0);
  free(dx);
  free(y);
  test_single_close(&s);
}

static void rows_know_where_they_stand(void **state) {
  (void)state;
  static const hark_segment_index_attributes options = {12, 2, 3, false};
  test_single s;
  test_single_open(&s, &hark_op_segment_index, &options, 1, (const hark_sample_input[]){whole(HARK_I64, 4)});
  test_single_set(&s, 0, (const double[]){0, 4, 4, 5});
  double *position = test_single_forward(&s), *slot = test_run_read(&s.run, TEST_OUTPUT, 1),
         *segment = test_run_read(&s.run, TEST_OUTPUT, 2);
  test_numbers(position, 0, 0, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0);
  test_numbers(slot, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1);
  test_numbers(segment, 0, 0, 0, 0, 0, 0, 0, 0, 2, 2, -1, -1);
  free(segment), free(slot), free(position);
  test_single_close(&s);
}

/* Rows 1, 2, 5 and 6 of segments of 3, 0, 3 and 2 rows; row 8 is in none. An index that is not ascending has the same numbers. */
static void taken_rows_keep_their_segments(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_taken_offsets, NULL, 2, (const hark_sample_input[]){whole(HARK_I32, 5), whole(HARK_I64, 5)});
  for (int order = 0; order < 2; order++) {
    test_single_set(&s, 0, order == 0 ? (const double[]){1, 2, 5, 6, 8} : (const double[]){8, 2, 6, 1, 5});
    test_single_set(&s, 1, (const double[]){0, 3, 3, 6, 8});
    double *offsets = test_single_forward(&s);
    test_numbers(offsets, 0, 2, 2, 3, 4);
    free(offsets);
  }
  test_single_set(&s, 0, (const double[]){-1, -1, 0, 1, 9}); /* -1 is below every offset */
  test_single_set(&s, 1, (const double[]){1, 1, 2, 5, 10});
  double *offsets = test_single_forward(&s);
  test_numbers(offsets, 3, 3, 4, 4, 5);
  free(offsets);
  test_single_set(&s, 1, (const double[]){0, 3, 2, 6, 8});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

static void packing_leaves_out_padding(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_pack, NULL, 2, (const hark_sample_input[]){{HARK_I32, 2, {3, 3}, 0, 9}, whole(HARK_I64, 3)});
  test_single_set(&s, 0, (const double[]){1, 2, 3, 4, 5, 6, 7, 8, 9});
  test_single_set(&s, 1, (const double[]){2, 0, 3});
  double *packed = test_single_forward(&s), *offsets = test_run_read(&s.run, TEST_OUTPUT, 1);
  test_numbers(packed, 1, 2, 7, 8, 9, 0, 0, 0, 0);
  test_numbers(offsets, 0, 2, 2, 5);
  free(offsets), free(packed);
  test_single_set(&s, 1, (const double[]){2, 4, 3});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

static void check_selection(const hark_select_tokens_attributes *options, const double *scores, const double *offsets, int sequences,
                            const double *expected, int places) {
  test_single s;
  test_single_open(&s, &hark_op_select_tokens, options, 3,
                   (const hark_sample_input[]){whole(HARK_I64, sequences + 1), absent, real(options->rows, 0)});
  test_single_set(&s, 0, offsets);
  test_single_set(&s, 2, scores);
  double *index = test_single_forward(&s);
  test_numbers_at(index, expected, places, __FILE__, __LINE__);
  free(index);
  test_single_close(&s);
}

static void selection_gives_ties_to_the_first_and_all_where_there_are_few(void **state) {
  (void)state;
  const hark_select_tokens_attributes two = {HARK_SELECTION_SCORE, 9, 2, 0, 0};
  check_selection(&two, (const double[]){1, 3, 3, 3, -1, -5, -5, 0, 7}, (const double[]){0, 4, 5, 5, 9}, 4,
                  (const double[]){1, 2, 4, 7, 8, -1, -1, -1}, 8);
  check_selection(&two, (const double[]){0, 0, 0, 0, 0, 0, 0, 0, 0}, (const double[]){0, 9}, 1, (const double[]){0, 1}, 2);
  check_selection(&two, (const double[]){-1e4, 1e4, NAN, 1e4, INFINITY, -INFINITY, NAN, -INFINITY, NAN}, (const double[]){0, 5, 9}, 2,
                  (const double[]){1, 4, 5, 7}, 4); /* of two at 1e4 the first; no number is lowest */
}

static void medoids_are_members_one_of_each_cluster(void **state) {
  (void)state;
  const hark_select_tokens_attributes options = {HARK_SELECTION_MEDOIDS, 9, 3, 0, 5};
  test_single s;
  test_single_open(&s, &hark_op_select_tokens, &options, 2, (const hark_sample_input[]){whole(HARK_I64, 2), real(9, 1)});
  test_single_set(&s, 0, (const double[]){0, 9});
  test_single_set(&s, 1, (const double[]){0, 0.1, 0.2, 5, 5.1, 5.2, 9, 9.1, 9.2});
  double *index = test_single_forward(&s);
  test_numbers(index, 1, 4, 7); /* the middle of each */
  free(index);
  test_single_set(&s, 1, (const double[]){2, 2, 2, 2, 2, 2, 2, 2, 2});
  index = test_single_forward(&s);
  test_numbers(index, 0, 1, 2); /* all alike: the first ones, each once */
  free(index);
  /* rows that are no numbers are in no cluster, and come after all others */
  test_single_set(&s, 1, (const double[]){NAN, 0, 0.1, 0.2, 5, 5.1, 5.2, 9, INFINITY});
  index = test_single_forward(&s);
  test_numbers(index, 2, 5, 7);
  free(index);
  test_single_set(&s, 1, (const double[]){NAN, NAN, 3, -INFINITY, NAN, 2, NAN, NAN, NAN});
  index = test_single_forward(&s);
  test_numbers(index, 0, 2, 5);
  free(index);
  test_single_set(&s, 1, (const double[]){NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN});
  index = test_single_forward(&s);
  test_numbers(index, 0, 1, 2);
  free(index);
  test_single_close(&s);
}

/* The two rows of a cluster are as far from its mean as each other, and so are the corners of a cube: of those the first is taken, whatever
 * rounding makes of the numbers. */
static void medoids_of_symmetric_clusters_are_the_first_rows(void **state) {
  (void)state;
  enum { WIDTH = 3, PAIRS = 4, CORNERS = 8, TRIALS = 200 };
  const hark_select_tokens_attributes pairs = {HARK_SELECTION_MEDOIDS, 2 * PAIRS, PAIRS, 0, 5},
                                      cube = {HARK_SELECTION_MEDOIDS, CORNERS, 1, 0, 5};
  test_single s;
  for (uint32_t trial = 0; trial < TRIALS; trial++) {
    double x[2 * PAIRS * WIDTH], noise[3 * 2 * PAIRS * WIDTH], corners[CORNERS * WIDTH];
    test_random(noise, 3 * 2 * PAIRS * WIDTH, -1, 1, trial, 1);
    for (int n = 0; n < 2 * PAIRS; n++) /* digits that f64 rounds sums of; pairs far from each other */
      for (int d = 0; d < WIDTH; d++) {
        const int at = n * WIDTH + d;
        x[at] = (n / 2) * 100.0 + noise[at] / 3 + noise[2 * PAIRS * WIDTH + at] * 1e-9 / 7 + noise[4 * PAIRS * WIDTH + at] * 1e-14;
      }
    test_single_open(&s, &hark_op_select_tokens, &pairs, 2, (const hark_sample_input[]){whole(HARK_I64, 2), real(2 * PAIRS, WIDTH)});
    test_single_set(&s, 0, (const double[]){0, 2 * PAIRS});
    test_single_set(&s, 1, x);
    double *index = test_single_forward(&s);
    test_numbers(index, 0, 2, 4, 6);
    free(index);
    test_single_close(&s);
    for (int n = 0; n < CORNERS; n++)
      for (int d = 0; d < WIDTH; d++) corners[n * WIDTH + d] = noise[d] + (n >> d & 1 ? 1 : -1) * (0.1 + noise[WIDTH] * noise[WIDTH]);
    test_single_open(&s, &hark_op_select_tokens, &cube, 2, (const hark_sample_input[]){whole(HARK_I64, 2), real(CORNERS, WIDTH)});
    test_single_set(&s, 0, (const double[]){0, CORNERS});
    test_single_set(&s, 1, corners);
    index = test_single_forward(&s);
    test_numbers(index, 0);
    free(index);
    test_single_close(&s);
  }
}

static void the_mean_query_selects_what_it_points_to(void **state) {
  (void)state;
  const hark_select_tokens_attributes options = {HARK_SELECTION_QUERY, 4, 1, 0, 0};
  test_single s;
  test_single_open(&s, &hark_op_select_tokens, &options, 5,
                   (const hark_sample_input[]){whole(HARK_I64, 3), real(4, 2), absent, real(3, 2), whole(HARK_I64, 3)});
  test_single_set(&s, 0, (const double[]){0, 2, 4});
  test_single_set(&s, 1, (const double[]){9, 0, 0, 1, 9, 0, 0, 1});
  test_single_set(&s, 3, (const double[]){-1, 5, 0.5, 5, 1, 0}); /* mean (-.25, 5) and (1, 0) */
  test_single_set(&s, 4, (const double[]){0, 2, 3});
  double *index = test_single_forward(&s);
  test_numbers(index, 1, 2);
  free(index);
  test_single_close(&s);
}

static void a_callers_selection_is_checked(void **state) {
  (void)state;
  const hark_select_tokens_attributes options = {HARK_SELECTION_GIVEN, 6, 2, 0, 0};
  static const struct {
    double index[4];
    const char *word; /* of the refusal; NULL: taken */
  } cases[] = {{{2, 0, 5, -1}, NULL},
               {{2, 2, 5, -1}, "once"},
               {{0, 3, 5, -1}, "its sequence"},
               {{0, 1, 6, -1}, "its sequence"},
               {{-2, 1, 5, -1}, "its sequence"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    test_single s;
    test_single_open(&s, &hark_op_select_tokens, &options, 6,
                     (const hark_sample_input[]){whole(HARK_I64, 3), absent, absent, absent, absent, {HARK_I32, 2, {2, 2}, -1, -1}});
    test_single_set(&s, 0, (const double[]){0, 3, 6});
    test_single_set(&s, 5, cases[i].index);
    if (cases[i].word == NULL) {
      double *index = test_single_forward(&s);
      test_numbers(index, 0, 2, 5, -1);
      free(index);
    } else {
      assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
      assert_non_null(strstr(hark_context_message(s.context), cases[i].word));
    }
    test_single_close(&s);
  }
}

/* Two sequences of 4 and 3 chunks; C2 of 2 and 3 rows, whose bins have their middles at 0.5 and 2.5, and at 0, 1, 2. */
static void chunks_are_as_far_as_the_middles_of_bins(void **state) {
  (void)state;
  const hark_chunk_bias_attributes options = {8, 20};
  static const double table[] = {0.5, -1, -2, -3}, sequences[] = {0, 4, 7}, index[] = {0, 1, 2, 4, -1}, places[] = {0, 2, 4},
                      rows[] = {0, 2, 5}, term[] = {10, 20, 30, 40, 50};
  /* distances 0.5, 1.5 and 2.5 are rounded up */
  static const int distance[] = {1, 3, 1, 2, 2, 1, 3, 1, 0, 2, 1, 1, 2, 0};
  test_single s;
  test_single_open(
      &s, &hark_op_chunk_bias, &options, 6,
      (const hark_sample_input[]){
          {HARK_F32, 2, {1, 4}, -1, 1}, whole(HARK_I64, 3), whole(HARK_I32, 5), whole(HARK_I64, 3), whole(HARK_I64, 3), real(5, 0)});
  const double *const values[] = {table, sequences, index, places, rows, term};
  for (int i = 0; i < 6; i++) test_single_set(&s, i, values[i]);
  double *bias = test_single_forward(&s);
  for (int n = 0; n < 14; n++) {
    const int place = n < 8 ? n % 2 : 2 + n % 2;
    test_near(bias[n], table[distance[n]] + term[place], ROUNDING);
  }
  for (int n = 14; n < 20; n++) test_near(bias[n], 0, 0);
  free(bias);
  test_single_close(&s);
}

static void check_depth(const hark_chunk_depth_attributes *options, int chunks, const double *scores, const double *expected) {
  test_single s;
  test_single_open(&s, &hark_op_chunk_depth, options, 2, (const hark_sample_input[]){real(chunks, 0), whole(HARK_I64, 2)});
  test_single_set(&s, 0, scores);
  test_single_set(&s, 1, (const double[]){0, chunks});
  double *depth = test_single_forward(&s);
  test_numbers_at(depth, expected, chunks, __FILE__, __LINE__);
  free(depth);
  test_single_close(&s);
}

static void depth_goes_by_rank_or_by_share_and_stays_within_the_layers(void **state) {
  (void)state;
  const hark_chunk_depth_attributes falling = {HARK_DEPTH_CAPACITY, 4, {1, 0.75, 0.5, 0.1}}, paper = {HARK_DEPTH_PAPER, 4, {0}};
  check_depth(&falling, 4, (const double[]){-2, 5, 1, 5}, (const double[]){1, 4, 2, 3}); /* of equal ones the first is deeper */
  check_depth(&falling, 4, (const double[]){0, 0, 0, 0}, (const double[]){4, 3, 2, 1});
  check_depth(&falling, 1, (const double[]){-1e4}, (const double[]){4});
  check_depth(&paper, 4, (const double[]){1, 2, 4, 3.9}, (const double[]){1, 2, 4, 3});
  check_depth(&paper, 4, (const double[]){0, -1, 0, -1e4}, (const double[]){1, 1, 1, 1}); /* no positive one */
  check_depth(&paper, 3, (const double[]){1e4, -1e4, INFINITY}, (const double[]){1, 1, 4});
  check_depth(&paper, 2, (const double[]){NAN, 1}, (const double[]){1, 4});
  for (int64_t chunks = 1; chunks <= 40; chunks++)
    assert_true(hark_depth_capacity(0.25, chunks, 3) <= chunks &&
                (double)hark_depth_capacity(0.25, chunks, 3) >= fmin((double)chunks, 0.25 * (double)chunks));
  assert_int_equal(hark_depth_capacity(0, 9, 3), 0);
}

static void capacities_out_of_range_are_refused_by_name(void **state) {
  (void)state;
  static const hark_chunk_depth_attributes wrong[] = {
      {HARK_DEPTH_CAPACITY, 3, {1, 0.5, 0.6}}, {HARK_DEPTH_CAPACITY, 2, {1, 1.5}}, {HARK_DEPTH_CAPACITY, 2, {1, -0.5}},
      {HARK_DEPTH_CAPACITY, 2, {1, NAN}},      {HARK_DEPTH_PAPER, 0, {0}},         {HARK_DEPTH_PAPER, 65, {0}},
      {(hark_depth_rule)5, 2, {1, 1}}};
  static const char *const words[] = {"layer 3", "layer 2", "layer 2", "layer 2", "layers", "layers", "rule"};
  hark_context *context = test_reference_open();
  const int64_t two = 2, three = 3;
  hark_tensor inputs[2];
  assert_int_equal(hark_tensor_describe(context, HARK_F64, 1, &three, &inputs[0]), HARK_OK);
  assert_int_equal(hark_tensor_describe(context, HARK_I64, 1, &two, &inputs[1]), HARK_OK);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hark_inferred inferred = {0};
    assert_int_equal(hark_op_chunk_depth.infer(context, &wrong[i], inputs, 2, &inferred), HARK_INVALID_ARGUMENT);
    if (strstr(hark_context_message(context), words[i]) == NULL) fail_msg("'%s' without '%s'", hark_context_message(context), words[i]);
  }
  test_setup_close(context);
}

/* What is gathered, changed and scattered returns to its place; a gate of -1e4 is closed, one of 1e4 open. */
static void scattering_undoes_gathering(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_scatter_gated, NULL, 4,
                   (const hark_sample_input[]){real(4, 1), real(3, 1), whole(HARK_I32, 3), real(4, 0)});
  test_single_set(&s, 0, (const double[]){1, 2, 3, 4});
  test_single_set(&s, 1, (const double[]){10, 20, 30});
  test_single_set(&s, 2, (const double[]){3, 0, -1});
  test_single_set(&s, 3, (const double[]){-1e4, 0, 0, 1e4});
  double *y = test_single_forward(&s);
  test_numbers(y, 1, 2, 3, 14);
  free(y);
  test_single_close(&s);
}

/* Ragged cross attention with log sigmoid(s) by key: values of one give one, also for scores of 1e4 and -1e4; a query whose sequence has no
 * key gives zero; and the gradient of the term is (1 - sigmoid) times the sum of the logits' gradients, against differences in the gradient
 * suite. */
static void values_of_one_come_back_as_one(void **state) {
  (void)state;
  enum { QUERIES = 6, KEYS = 5 };
  const hark_attention_desc desc = {.struct_size = sizeof desc,
                                    .batch = 1,
                                    .heads = 1,
                                    .query_length = QUERIES,
                                    .key_length = KEYS,
                                    .head_dim = 2,
                                    .value_dim = 1,
                                    .has_bias = true,
                                    .max_sequences = 3};
  const hark_attention_attributes attributes = {.desc = &desc};
  static const double scores[][KEYS] = {{0, 1, -1, 2, 3}, {1e4, -1e4, 0, -1e4, -1e4}, {-1e4, -1e4, -1e4, 1e4, 1e4}};
  for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++) {
    test_single terms, s;
    test_single_open(&terms, &hark_op_log_sigmoid, NULL, 1, (const hark_sample_input[]){real(KEYS, 0)});
    test_single_set(&terms, 0, scores[i]);
    double *term = test_single_forward(&terms);
    test_single_open(&s, &hark_op_attention, &attributes, 11,
                     (const hark_sample_input[]){real(QUERIES, 2),
                                                 real(KEYS, 2),
                                                 {HARK_F32, 2, {KEYS, 1}, 1, 1},
                                                 {HARK_F32, 4, {1, 1, 1, KEYS}, 0, 0},
                                                 absent,
                                                 absent,
                                                 absent,
                                                 absent,
                                                 absent,
                                                 whole(HARK_I64, 4),
                                                 whole(HARK_I64, 4)});
    test_single_set(&s, 3, term);
    test_single_set(&s, 9, (const double[]){0, 2, 3, 6});
    test_single_set(&s, 10, (const double[]){0, 3, 3, 5});
    double *out = test_single_forward(&s);
    static const double expected[QUERIES] = {1, 1, 0, 1, 1, 1};
    for (int n = 0; n < QUERIES; n++) test_near(out[n], expected[n], ROUNDING);
    free(out);
    free(term);
    test_single_close(&s);
    test_single_close(&terms);
  }
}

/* Rows first .. of a batch: as many numbers of x alone give the same results as within it. */
static void a_sequence_alone_gives_the_bits_that_it_gives_in_a_batch(void **state) {
  (void)state;
  enum { ROWS = 23, WIDTH = 5, FIRST = 7, LAST = 18 };
  static const hark_segment_pool_attributes average = {HARK_SEGMENT_POOL_AVERAGE, 4, 0, false, 0};
  static const hark_select_tokens_attributes in_batch = {HARK_SELECTION_MEDOIDS, ROWS, 3, 0, 4},
                                             alone = {HARK_SELECTION_MEDOIDS, LAST - FIRST, 3, 0, 4};
  static const hark_depth_scores_attributes window = {3};
  double x[ROWS * WIDTH];
  test_random(x, ROWS * WIDTH, -1, 1, 0, 5);
  static const double bounds[] = {0, FIRST, LAST, ROWS}, own[] = {0, LAST - FIRST};
  const struct {
    const hark_operator *op;
    const void *batch_attributes, *own_attributes;
    int x, offsets, second; /* inputs; second: x once more, or -1 */
    int64_t skip, count;    /* numbers of output 0: before the sequence's, and its own */
    double shift;           /* of row numbers */
  } cases[] = {{&hark_op_segment_pool, &average, &average, 0, 1, -1, 4 * WIDTH, 4 * WIDTH, 0},
               {&hark_op_depth_scores, &window, &window, 0, 1, -1, FIRST, LAST - FIRST, 0},
               {&hark_op_boundary_probability, NULL, NULL, 0, 2, 1, FIRST, LAST - FIRST, 0},
               {&hark_op_select_tokens, &in_batch, &alone, 1, 0, -1, 3, 3, FIRST}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    double *results[2];
    for (int single = 0; single < 2; single++) {
      hark_sample_input inputs[3] = {0};
      int count = cases[i].second >= 0 ? 3 : 2;
      const int64_t rows = single == 1 ? LAST - FIRST : ROWS;
      inputs[cases[i].x] = real(rows, WIDTH);
      if (cases[i].second >= 0) inputs[cases[i].second] = real(rows, WIDTH);
      inputs[cases[i].offsets] = whole(HARK_I64, single == 1 ? 2 : 4);
      test_single s;
      test_single_open(&s, cases[i].op, single == 1 ? cases[i].own_attributes : cases[i].batch_attributes, count, inputs);
      test_single_set(&s, cases[i].x, single == 1 ? x + FIRST * WIDTH : x);
      if (cases[i].second >= 0) test_single_set(&s, cases[i].second, single == 1 ? x + FIRST * WIDTH : x);
      test_single_set(&s, cases[i].offsets, single == 1 ? own : bounds);
      results[single] = test_single_forward(&s);
      test_single_close(&s);
    }
    for (int64_t n = 0; n < cases[i].count; n++) test_near(results[0][cases[i].skip + n], results[1][n] + cases[i].shift, 0);
    free(results[1]);
    free(results[0]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chunks_are_as_far_as_the_middles_of_bins),
      cmocka_unit_test(pooling_takes_the_bins_of_the_definition),
      cmocka_unit_test(rows_of_fewer_bins_are_as_many_as_requested),
      cmocka_unit_test(of_equal_maxima_the_first_gets_the_gradient),
      cmocka_unit_test(rows_know_where_they_stand),
      cmocka_unit_test(taken_rows_keep_their_segments),
      cmocka_unit_test(packing_leaves_out_padding),
      cmocka_unit_test(selection_gives_ties_to_the_first_and_all_where_there_are_few),
      cmocka_unit_test(medoids_are_members_one_of_each_cluster),
      cmocka_unit_test(medoids_of_symmetric_clusters_are_the_first_rows),
      cmocka_unit_test(the_mean_query_selects_what_it_points_to),
      cmocka_unit_test(a_callers_selection_is_checked),
      cmocka_unit_test(depth_goes_by_rank_or_by_share_and_stays_within_the_layers),
      cmocka_unit_test(capacities_out_of_range_are_refused_by_name),
      cmocka_unit_test(scattering_undoes_gathering),
      cmocka_unit_test(values_of_one_come_back_as_one),
      cmocka_unit_test(a_sequence_alone_gives_the_bits_that_it_gives_in_a_batch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_products_and_positions.c - linear, matmul, embeddings, rotary, dropout and pool against known products, invariances and counts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/single.h"

#define ROUNDING 1e-13 /* a few hundred roundings of numbers of size one */

static void linear_gives_a_known_product(void **state) {
  (void)state;
  static const double known[] = {11, 23, 30, 13, 27, 32};
  test_single s;
  test_single_open(&s, &hark_op_linear, NULL, 3,
                   (const hark_sample_input[]){{HARK_F32, 2, {2, 2}, 0, 0}, {HARK_F32, 2, {3, 2}, 0, 0}, {HARK_F32, 1, {3}, 0, 0}});
  test_single_set(&s, 0, (const double[]){1, 2, 3, 4});
  test_single_set(&s, 1, (const double[]){1, 0, 1, 1, 2, -1});
  test_single_set(&s, 2, (const double[]){10, 20, 30});
  double *y = test_single_forward(&s);
  for (int i = 0; i < 6; i++) test_near(y[i], known[i], 0);
  test_single_backward(&s, (const double[]){1, 0, 0, 0, 1, 1});
  double *dx = test_single_gradient(&s, 0), *dw = test_single_gradient(&s, 1), *db = test_single_gradient(&s, 2);
  test_numbers(dx, 1, 0, 3, 0);
  test_numbers(dw, 1, 2, 3, 4, 3, 4);
  for (int i = 0; i < 3; i++) test_near(db[i], 1, 0);
  free(db);
  free(dw);
  free(dx);
  free(y);
  test_single_close(&s);
}

/* A product of whole numbers that is larger than a tile in all three extents, against the plain triple loop. */
static void products_are_those_of_the_triple_loop(void **state) {
  (void)state;
  enum { M = 35, N = 67, K = 41 };
  for (int flags = 0; flags < 4; flags++) {
    const hark_matmul_attributes attributes = {(flags & 1) != 0, (flags & 2) != 0};
    const bool ta = attributes.transpose_a, tb = attributes.transpose_b;
    test_single s;
    test_single_open(
        &s, &hark_op_matmul, &attributes, 2,
        (const hark_sample_input[]){{HARK_F32, 2, {ta ? K : M, ta ? M : K}, -9, 9}, {HARK_F32, 2, {tb ? N : K, tb ? K : N}, -9, 9}});
    double *a = test_single_get(&s, 0), *b = test_single_get(&s, 1);
    for (int i = 0; i < M * K; i++) a[i] = round(a[i]);
    for (int i = 0; i < K * N; i++) b[i] = round(b[i]);
    test_single_set(&s, 0, a);
    test_single_set(&s, 1, b);
    double *c = test_single_forward(&s);
    for (int m = 0; m < M; m++) {
      for (int n = 0; n < N; n++) {
        double sum = 0;
        for (int k = 0; k < K; k++) sum += a[ta ? k * M + m : m * K + k] * b[tb ? n * K + k : k * N + n];
        test_near(c[m * N + n], sum, 0); /* whole numbers: exact */
      }
    }
    free(c);
    free(b);
    free(a);
    test_single_close(&s);
  }
}

static void embedding_copies_rows_and_adds_gradients_of_equal_ids(void **state) {
  (void)state;
  test_single s;
  test_single_open(&s, &hark_op_embedding, NULL, 2, (const hark_sample_input[]){{HARK_I32, 1, {4}, 0, 0}, {HARK_F32, 2, {3, 2}, 0, 0}});
  test_single_set(&s, 0, (const double[]){2, 0, 2, 2});
  test_single_set(&s, 1, (const double[]){1, 2, 3, 4, 5, 6});
  double *y = test_single_forward(&s);
  test_numbers(y, 5, 6, 1, 2, 5, 6, 5, 6);
  test_single_backward(&s, (const double[]){1, 10, 2, 20, 3, 30, 4, 40});
  double *dtable = test_single_gradient(&s, 1);
  test_numbers(dtable, 2, 20, 0, 0, 8, 80);
  free(dtable);
  free(y);
  test_single_set(&s, 0, (const double[]){0, 1, 3, 0});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(s.context), "id 2 is 3"));
  test_single_set(&s, 0, (const double[]){0, -1, 0, 0});
  assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
  test_single_close(&s);
}

static void position_embedding_adds_the_rows_from_the_first_position_on(void **state) {
  (void)state;
  static const hark_position_embedding_attributes from_one = {1};
  test_single s;
  test_single_open(&s, &hark_op_position_embedding, &from_one, 2,
                   (const hark_sample_input[]){{HARK_F32, 3, {2, 2, 1}, 0, 0}, {HARK_F32, 2, {4, 1}, 0, 0}});
  test_single_set(&s, 0, (const double[]){1, 2, 3, 4});
  test_single_set(&s, 1, (const double[]){100, 200, 300, 400});
  double *y = test_single_forward(&s);
  test_numbers(y, 201, 302, 203, 304);
  test_single_backward(&s, (const double[]){1, 2, 4, 8});
  double *dtable = test_single_gradient(&s, 1);
  test_numbers(dtable, 0, 5, 10, 0);
  free(dtable);
  free(y);
  test_single_close(&s);
}

/* s(p) . s(p + k) = sum_j cos(k w_j), whatever p. */
static void sinusoidal_products_depend_on_the_distance_only(void **state) {
  (void)state;
  enum { LENGTH = 40, WIDTH = 16 };
  static const hark_sinusoidal_positions_attributes usual = {3, 10000};
  test_single s;
  test_single_open(&s, &hark_op_sinusoidal_positions, &usual, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, LENGTH, WIDTH}, 0, 0}});
  double *y = test_single_forward(&s);
  for (int k = 0; k < LENGTH; k += 7) {
    double expected = 0;
    for (int j = 0; j < WIDTH / 2; j++) expected += cos(k * pow(10000, -2.0 * j / WIDTH));
    for (int p = 0; p + k < LENGTH; p++) {
      double product = 0;
      for (int d = 0; d < WIDTH; d++) product += y[p * WIDTH + d] * y[(p + k) * WIDTH + d];
      test_near(product, expected, ROUNDING);
    }
  }
  test_near(y[0], sin(3), ROUNDING); /* first feature, first_position 3 */
  free(y);
  test_single_close(&s);
}

/* All rows hold the same vector in a first run and another in a second: their turned products depend on the distance only. */
static void rotary_keeps_norms_and_depends_on_the_distance_only(void **state) {
  (void)state;
  enum { LENGTH = 24, WIDTH = 12 };
  for (int pairs = 0; pairs < 2; pairs++) {
    const hark_rotary_attributes attributes = {1, 0, 10000, pairs == 0 ? HARK_ROTARY_INTERLEAVED : HARK_ROTARY_HALF, 0, 0, 0, NULL};
    double vectors[2][WIDTH], x[LENGTH * WIDTH], *y[2];
    for (int v = 0; v < 2; v++) {
      test_single s;
      test_random(vectors[v], WIDTH, -2, 2, 0, (uint32_t)v);
      for (int i = 0; i < LENGTH * WIDTH; i++) x[i] = vectors[v][i % WIDTH];
      test_single_open(&s, &hark_op_rotary, &attributes, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, LENGTH, WIDTH}, 0, 0}});
      test_single_set(&s, 0, x);
      y[v] = test_single_forward(&s);
      test_single_close(&s);
      for (int d = 0; d < WIDTH; d++) test_near(y[v][d], vectors[v][d], 0); /* position 0 is not turned */
      for (int l = 0; l < LENGTH; l++) {
        double before = 0, after = 0;
        for (int d = 0; d < WIDTH; d++) {
          before += vectors[v][d] * vectors[v][d];
          after += y[v][l * WIDTH + d] * y[v][l * WIDTH + d];
        }
        test_near(after, before, ROUNDING * 10);
      }
    }
    for (int distance = 0; distance < LENGTH; distance += 5) {
      double first = 0;
      for (int l = 0; l + distance < LENGTH; l++) {
        double product = 0;
        for (int d = 0; d < WIDTH; d++) product += y[0][l * WIDTH + d] * y[1][(l + distance) * WIDTH + d];
        if (l == 0) first = product;
        test_near(product, first, ROUNDING * 10);
      }
    }
    test_near(y[0][WIDTH], vectors[0][0] * cos(1) - vectors[0][pairs == 0 ? 1 : WIDTH / 2] * sin(1), ROUNDING);
    free(y[0]);
    free(y[1]);
  }
}

/* What decoding relies on: a row turned at first_position p is row p of a whole sequence. */
static void rotary_and_sines_go_on_from_the_first_position(void **state) {
  (void)state;
  enum { LENGTH = 30, FROM = 17, WIDTH = 8 };
  static const hark_rotary_attributes rotary_whole = {2, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      rotary_rest = {2, FROM, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL};
  static const hark_sinusoidal_positions_attributes sine_whole = {0, 10000}, sine_rest = {FROM, 10000};
  const struct {
    const hark_operator *op;
    const void *whole, *rest;
  } pairs[] = {{&hark_op_rotary, &rotary_whole, &rotary_rest}, {&hark_op_sinusoidal_positions, &sine_whole, &sine_rest}};
  for (int i = 0; i < 2; i++) {
    test_single s, t;
    test_single_open(&s, pairs[i].op, pairs[i].whole, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, LENGTH, WIDTH}, -2, 2}});
    test_single_open(&t, pairs[i].op, pairs[i].rest, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, LENGTH - FROM, WIDTH}, -2, 2}});
    double *x = test_single_get(&s, 0);
    test_single_set(&t, 0, x + FROM * WIDTH);
    double *whole = test_single_forward(&s), *rest = test_single_forward(&t);
    for (int n = 0; n < (LENGTH - FROM) * WIDTH; n++) test_near(rest[n], whole[FROM * WIDTH + n], 0);
    free(rest);
    free(whole);
    free(x);
    test_single_close(&t);
    test_single_close(&s);
  }
}

/* The two ways of pairing are the same turn of permuted features. */
static void rotary_pairs_are_permutations_of_each_other(void **state) {
  (void)state;
  enum { LENGTH = 5, HEADS = 2, DIM = 6, WIDTH = HEADS * DIM };
  static const hark_rotary_attributes interleaved = {HEADS, 11, 500, HARK_ROTARY_INTERLEAVED, 0, 0, 0, NULL},
                                      half = {HEADS, 11, 500, HARK_ROTARY_HALF, 0, 0, 0, NULL};
  double x[LENGTH * WIDTH], permuted[LENGTH * WIDTH];
  int from[WIDTH]; /* feature of the interleaved order that stands at this place of the half order */
  for (int d = 0; d < WIDTH; d++) from[d] = d / DIM * DIM + (d % DIM < DIM / 2 ? 2 * (d % DIM) : 2 * (d % DIM - DIM / 2) + 1);
  test_random(x, LENGTH * WIDTH, -2, 2, 0, 0);
  for (int i = 0; i < LENGTH * WIDTH; i++) permuted[i] = x[i / WIDTH * WIDTH + from[i % WIDTH]];
  static const hark_sample_input input = {HARK_F32, 3, {1, LENGTH, WIDTH}, 0, 0};
  test_single s, t;
  test_single_open(&s, &hark_op_rotary, &interleaved, 1, &input);
  test_single_open(&t, &hark_op_rotary, &half, 1, &input);
  test_single_set(&s, 0, x);
  test_single_set(&t, 0, permuted);
  double *a = test_single_forward(&s), *b = test_single_forward(&t);
  for (int i = 0; i < LENGTH * WIDTH; i++) test_near(b[i], a[i / WIDTH * WIDTH + from[i % WIDTH]], ROUNDING);
  free(b);
  free(a);
  test_single_close(&t);
  test_single_close(&s);
}

/* Rates that are given, one row for each of two groups of heads: the static ones come out with the same bits. */
static void rotary_with_static_rates_given_is_static(void **state) {
  (void)state;
  enum { LENGTH = 9, HEADS = 4, DIM = 10, PAIRS = 3, ROWS = 2, WIDTH = HEADS * DIM };
  for (int pairs = 0; pairs < 2; pairs++) {
    const hark_rotary_attributes attributes = {HEADS, 4, 700, (hark_rotary_pairs)pairs, PAIRS, 0, 0, NULL};
    const hark_sample_input inputs[] = {{HARK_F32, 3, {2, LENGTH, WIDTH}, -2, 2}, {HARK_F32, 2, {ROWS, PAIRS}, 0, 1}};
    double rates[ROWS * PAIRS];
    for (int i = 0; i < ROWS * PAIRS; i++) rates[i] = hark_rotary_rate(&attributes, DIM, i % PAIRS);
    test_single s, t;
    test_single_open(&s, &hark_op_rotary, &attributes, 1, inputs);
    test_single_open(&t, &hark_op_rotary, &attributes, 2, inputs);
    double *x = test_single_get(&s, 0);
    test_single_set(&t, 0, x);
    test_single_set(&t, 1, rates);
    double *a = test_single_forward(&s), *b = test_single_forward(&t);
    assert_memory_equal(a, b, 2 * LENGTH * WIDTH * sizeof *a);
    for (int i = 0; i < 2 * LENGTH * WIDTH; i++) { /* the pairs of lower rates are passed on */
      const int feature = i % DIM, pair = attributes.pairs == HARK_ROTARY_INTERLEAVED ? feature / 2 : feature % (DIM / 2);
      if (pair >= PAIRS) assert_true(a[i] == x[i]);
      if (pair < PAIRS) assert_true(a[i] != x[i]);
    }
    free(b);
    free(a);
    free(x);
    test_single_close(&t);
    test_single_close(&s);
  }
}

/* arXiv 2306.15595 (positions over s), and arXiv 2309.00071 with alpha = 1, beta = 32, whose part kept falls from pair to pair: 256 tokens
 * and 64 features have 32 turns at pair 0.84 and one at pair 12.88, so that it falls from pair 0 to pair 13. */
static void rotary_rates_are_stretched(void **state) {
  (void)state;
  enum { DIM = 64, LENGTH = 256 };
  const double factor = 4;
  const hark_rotary_attributes plain = {1, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                               linear = {1, 0, 10000, HARK_ROTARY_HALF, 0, factor, 0, NULL},
                               by_parts = {1, 0, 10000, HARK_ROTARY_HALF, 0, factor, LENGTH, NULL};
  int kept = 0, mixed = 0, interpolated = 0;
  for (int j = 0; j < DIM / 2; j++) {
    const double rate = exp(-2.0 * j / DIM * log(10000)), ramp = j > 13 ? 0 : 1 - j / 13.0;
    kept += ramp == 1;
    mixed += ramp > 0 && ramp < 1;
    interpolated += ramp == 0;
    test_near(hark_rotary_rate(&plain, DIM, j), rate, ROUNDING);
    test_near(hark_rotary_rate(&linear, DIM, j), rate / factor, ROUNDING);
    test_near(hark_rotary_rate(&by_parts, DIM, j), (1 - ramp) * rate / factor + ramp * rate, ROUNDING);
  }
  assert_true(kept > 0 && mixed > 0 && interpolated > 0);
  static const hark_sample_input input = {HARK_F32, 3, {1, 3, 2}, 0, 0};
  const hark_rotary_attributes one_pair = {1, 5, 10000, HARK_ROTARY_HALF, 0, factor, 0, NULL};
  test_single s;
  test_single_open(&s, &hark_op_rotary, &one_pair, 1, &input);
  test_single_set(&s, 0, (const double[]){1, 0, 1, 0, 1, 0});
  double *y = test_single_forward(&s);
  for (int l = 0; l < 3; l++) {
    test_near(y[2 * l], cos((5 + l) / factor), ROUNDING);
    test_near(y[2 * l + 1], sin((5 + l) / factor), ROUNDING);
  }
  free(y);
  test_single_close(&s);
}

/* Angles of the attributes take the place of the base's, over the stretch. */
static void rotary_turns_by_a_given_table(void **state) {
  (void)state;
  static const double table[] = {0.5, -0.25, 3};
  static const hark_rotary_attributes given = {1, 7, 10000, HARK_ROTARY_HALF, 2, 2, 0, table};
  static const hark_sample_input input = {HARK_F32, 3, {1, 2, 6}, 0, 0};
  test_single s;
  assert_true(hark_rotary_rate(&given, 6, 0) == 0.25 && hark_rotary_rate(&given, 6, 1) == -0.125);
  test_single_open(&s, &hark_op_rotary, &given, 1, &input);
  test_single_set(&s, 0, (const double[]){1, 1, 9, 0, 0, 8, 1, 1, 9, 0, 0, 8});
  double *y = test_single_forward(&s);
  for (int l = 0; l < 2; l++) {
    test_near(y[6 * l], cos((7 + l) * 0.25), ROUNDING);
    test_near(y[6 * l + 1], cos((7 + l) * 0.125), ROUNDING);
    test_near(y[6 * l + 2], 9, 0); /* two pairs turn */
    test_near(y[6 * l + 3], sin((7 + l) * 0.25), ROUNDING);
    test_near(y[6 * l + 4], -sin((7 + l) * 0.125), ROUNDING);
    test_near(y[6 * l + 5], 8, 0);
  }
  free(y);
  test_single_close(&s);
}

static void rotary_refuses_rates_of_another_shape(void **state) {
  (void)state;
  static const double table[] = {1, 1, 1, 1, 1};
  static const hark_rotary_attributes all = {4, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                      by_parts = {4, 0, 10000, HARK_ROTARY_HALF, 0, 2, 64, NULL},
                                      given = {4, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, table};
  static const struct {
    const hark_rotary_attributes *attributes;
    int64_t rows, pairs;
    hark_status expected;
  } cases[] = {{&all, 3, 5, HARK_SHAPE_MISMATCH}, {&all, 8, 5, HARK_SHAPE_MISMATCH},        {&all, 4, 4, HARK_SHAPE_MISMATCH},
               {&all, 0, 5, HARK_SHAPE_MISMATCH}, {&by_parts, 4, 5, HARK_INVALID_ARGUMENT}, {&all, 2, 5, HARK_OK},
               {&given, 2, 5, HARK_OK},           {&given, 2, 4, HARK_SHAPE_MISMATCH}};
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const int64_t x[] = {2, 3, 40}, rates[] = {cases[c].rows, cases[c].pairs};
    hark_tensor inputs[2];
    hark_inferred inferred = {0};
    assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, x, &inputs[0]), HARK_OK);
    assert_int_equal(hark_tensor_describe(context, HARK_F32, 2, rates, &inputs[1]), HARK_OK);
    assert_int_equal(hark_op_rotary.infer(context, cases[c].attributes, inputs, 2, &inferred), cases[c].expected);
  }
  test_setup_close(context);
}

static void dropout_keeps_the_expectation_and_draws_the_same_mask_again(void **state) {
  (void)state;
  enum { COUNT = 40000 };
  static const hark_sample_input input = {HARK_F32, 1, {COUNT}, 1, 1};
  static const double probabilities[] = {0.05, 0.3, 0.9};
  for (int p = 0; p < 3; p++) {
    const double probability = probabilities[p];
    const hark_dropout_attributes attributes = {probability, {.seed = 5, .layer_purpose = HARK_RANDOM_DROPOUT}};
    test_single s;
    test_single_open(&s, &hark_op_dropout, &attributes, 1, &input);
    double *x = test_single_get(&s, 0), *y = test_single_forward(&s);
    test_single_backward(&s, x); /* all ones */
    double *dx = test_single_gradient(&s, 0);
    int kept = 0;
    for (int i = 0; i < COUNT; i++) {
      if (y[i] != 0) {
        test_near(y[i], 1 / (1 - probability), ROUNDING * y[i]);
        kept++;
      }
      test_near(dx[i], y[i], 0);
    }
    const double deviation = sqrt(COUNT * probability * (1 - probability)); /* of a binomial count */
    test_near(kept, COUNT * (1 - probability), 5 * deviation);
    free(dx);
    free(y);
    free(x);
    test_single_close(&s);
  }
}

/* Numbers from counter `first_index` on are those of the whole tensor from element 4 first_index on: what ranks rely on. */
static void dropout_of_a_later_part_is_the_later_part_of_the_whole(void **state) {
  (void)state;
  enum { COUNT = 103, FIRST = 12 };
  static const hark_dropout_attributes whole = {0.5, {.seed = 5, .layer_purpose = 9}}, part = {0.5, {5, FIRST / 4, 0, 9}};
  test_single s, t;
  test_single_open(&s, &hark_op_dropout, &whole, 1, (const hark_sample_input[]){{HARK_F32, 1, {COUNT}, 1, 1}});
  test_single_open(&t, &hark_op_dropout, &part, 1, (const hark_sample_input[]){{HARK_F32, 1, {COUNT - FIRST}, 1, 1}});
  double *a = test_single_forward(&s), *b = test_single_forward(&t);
  for (int i = FIRST; i < COUNT; i++) test_near(b[i - FIRST], a[i], 0);
  free(b);
  free(a);
  test_single_close(&t);
  test_single_close(&s);
}

static const hark_pool_kind kinds[] = {HARK_POOL_MEAN, HARK_POOL_MAX, HARK_POOL_FIRST, HARK_POOL_LAST};

static void pool_of_equal_rows_is_the_row(void **state) {
  (void)state;
  enum { BATCH = 3, LENGTH = 8, WIDTH = 5 };
  for (int k = 0; k < 4; k++) {
    const hark_pool_attributes attributes = {kinds[k]};
    double x[BATCH * LENGTH * WIDTH];
    for (int i = 0; i < BATCH * LENGTH * WIDTH; i++) x[i] = i % WIDTH + 0.5 * (i / (LENGTH * WIDTH)) - 1;
    test_single s;
    test_single_open(&s, &hark_op_pool, &attributes, 1, (const hark_sample_input[]){{HARK_F32, 3, {BATCH, LENGTH, WIDTH}, 0, 0}});
    test_single_set(&s, 0, x);
    double *y = test_single_forward(&s);
    for (int i = 0; i < BATCH * WIDTH; i++) test_near(y[i], i % WIDTH + 0.5 * (i / WIDTH) - 1, ROUNDING);
    free(y);
    test_single_close(&s);
  }
}

/* Two sequences of 3 rows, lengths 2 and 0; what is stored beyond the lengths is NaN. */
static void pool_does_not_read_padding(void **state) {
  (void)state;
  static const double x[] = {4, 7, NAN, NAN, NAN, NAN};
  static const double known[] = {5.5, 7, 4, 7}, gradients[4][2] = {{0.5, 0.5}, {0, 1}, {1, 0}, {0, 1}};
  for (int k = 0; k < 4; k++) {
    const hark_pool_attributes attributes = {kinds[k]};
    test_single s;
    test_single_open(&s, &hark_op_pool, &attributes, 2,
                     (const hark_sample_input[]){{HARK_F32, 3, {2, 3, 1}, 0, 0}, {HARK_I64, 1, {2}, 0, 0}});
    test_single_set(&s, 0, x);
    test_single_set(&s, 1, (const double[]){2, 0});
    double *y = test_single_forward(&s);
    test_near(y[0], known[k], 0);
    test_near(y[1], 0, 0);
    test_single_backward(&s, (const double[]){1, 1});
    double *dx = test_single_gradient(&s, 0);
    for (int i = 0; i < 6; i++) test_near(dx[i], i < 2 ? gradients[k][i] : 0, 0);
    free(dx);
    free(y);
    test_single_set(&s, 1, (const double[]){2, 4});
    assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
    test_single_set(&s, 1, (const double[]){-1, 3});
    assert_int_equal(test_single_refusal(&s), HARK_INVALID_ARGUMENT);
    test_single_close(&s);
  }
}

static void pool_gives_the_gradient_to_the_first_of_equal_maxima(void **state) {
  (void)state;
  static const hark_pool_attributes max = {HARK_POOL_MAX};
  test_single s;
  test_single_open(&s, &hark_op_pool, &max, 1, (const hark_sample_input[]){{HARK_F32, 3, {1, 4, 1}, 0, 0}});
  test_single_set(&s, 0, (const double[]){-5, -2, -2, -3});
  double *y = test_single_forward(&s);
  test_near(y[0], -2, 0);
  test_single_backward(&s, (const double[]){3});
  double *dx = test_single_gradient(&s, 0);
  for (int i = 0; i < 4; i++) test_near(dx[i], i == 1 ? 3 : 0, 0);
  free(dx);
  free(y);
  test_single_close(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(linear_gives_a_known_product),
      cmocka_unit_test(products_are_those_of_the_triple_loop),
      cmocka_unit_test(embedding_copies_rows_and_adds_gradients_of_equal_ids),
      cmocka_unit_test(position_embedding_adds_the_rows_from_the_first_position_on),
      cmocka_unit_test(sinusoidal_products_depend_on_the_distance_only),
      cmocka_unit_test(rotary_keeps_norms_and_depends_on_the_distance_only),
      cmocka_unit_test(rotary_and_sines_go_on_from_the_first_position),
      cmocka_unit_test(rotary_pairs_are_permutations_of_each_other),
      cmocka_unit_test(rotary_with_static_rates_given_is_static),
      cmocka_unit_test(rotary_rates_are_stretched),
      cmocka_unit_test(rotary_turns_by_a_given_table),
      cmocka_unit_test(rotary_refuses_rates_of_another_shape),
      cmocka_unit_test(dropout_keeps_the_expectation_and_draws_the_same_mask_again),
      cmocka_unit_test(dropout_of_a_later_part_is_the_later_part_of_the_whole),
      cmocka_unit_test(pool_of_equal_rows_is_the_row),
      cmocka_unit_test(pool_does_not_read_padding),
      cmocka_unit_test(pool_gives_the_gradient_to_the_first_of_equal_maxima),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

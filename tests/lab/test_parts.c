/* test_parts.c - what experiments are made of, against what is known by other means: singular values, attention of one head, heads of a
 * model. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/singular.h"
#include "lab/trained_heads.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/eigenvalues.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

static hark_context *context;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  test_setup_close(context);
  return 0;
}

static void normal_numbers(uint64_t seed, int64_t count, double *out) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  hark_random_normal(&stream, 0, count, out);
}

/* ---- singular values ---- */

static int descending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

/* sigma^2 are the eigenvalues of A A^T, whose own error is about n eps times the largest. */
static void singular_values_are_roots_of_eigenvalues(void **state) {
  (void)state;
  enum { ROWS = 6, COLUMNS = 9 };
  double a[ROWS * COLUMNS], gram[ROWS * ROWS] = {0}, values[ROWS], squares[ROWS];
  normal_numbers(3, (int64_t)ROWS * COLUMNS, a);
  for (int i = 0; i < ROWS; i++)
    for (int j = 0; j < ROWS; j++)
      for (int k = 0; k < COLUMNS; k++) gram[i * ROWS + j] += a[i * COLUMNS + k] * a[j * COLUMNS + k];
  test_eigenvalues(ROWS, gram, squares);
  qsort(squares, ROWS, sizeof squares[0], descending);
  hark_singular_values(ROWS, COLUMNS, a, values);
  for (int i = 0; i < ROWS; i++) assert_true(fabs(values[i] * values[i] - squares[i]) < 1e-13 * squares[0]);
}

/* u v^T has |u| |v| and zeros; a diagonal matrix its own entries, without signs; small ones keep their digits. With more
 * rows than columns the rest is zero. */
static void singular_values_of_known_matrices(void **state) {
  (void)state;
  double rank_one[12], diagonal[9] = {0, 0, -5, 1e-12, 0, 0, 0, 2, 0}, zero[4] = {0}, values[4];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 3; j++) rank_one[i * 3 + j] = (i + 1) * (j - 5.0);
  hark_singular_values(4, 3, rank_one, values);
  assert_true(fabs(values[0] - sqrt(30.0 * (25 + 16 + 9))) < 1e-13 * values[0]);
  assert_true(values[1] < 1e-13 && values[2] < 1e-13 && values[3] < 1e-13);
  hark_singular_values(3, 3, diagonal, values);
  assert_true(values[0] == 5 && values[1] == 2 && values[2] == 1e-12);
  hark_singular_values(2, 2, zero, values);
  assert_true(values[0] == 0 && values[1] == 0);
}

/* The tail counts as a sum, and must be less than the tolerance. */
static void numerical_ranks_are_tails_below_the_tolerance(void **state) {
  (void)state;
  const double values[] = {4, 1, 0.5, 0.25, 0.25};
  assert_int_equal(hark_numerical_rank(values, 5, 0.2), 5);
  assert_int_equal(hark_numerical_rank(values, 5, 0.25), 5);
  assert_int_equal(hark_numerical_rank(values, 5, 0.3), 4);
  assert_int_equal(hark_numerical_rank(values, 5, 0.5), 4);
  assert_int_equal(hark_numerical_rank(values, 5, 0.6), 3);
  assert_int_equal(hark_numerical_rank(values, 5, 1.5), 2);
  assert_int_equal(hark_numerical_rank(values, 5, 7), 0);
}

/* ---- attention of one head ---- */

enum { LENGTH = 5, DIM = 3 };

/* The formula as it stands. */
static void attend_plainly(const hark_lab_head *head, double scale, bool causal, double *out) {
  for (int n = 0; n < LENGTH; n++) {
    double sum = 0;
    for (int c = 0; c < 2; c++) out[n * 2 + c] = 0;
    for (int i = 0; i < LENGTH; i++) {
      if ((causal && i > n) || (head->mask != NULL && head->mask[n * LENGTH + i] == 0)) continue;
      double logit = head->log_kernel != NULL ? head->log_kernel[abs(n - i)] : 0;
      for (int x = 0; x < DIM; x++) logit += scale * head->query[n * DIM + x] * head->key[i * DIM + x];
      sum += exp(logit);
      for (int c = 0; c < 2; c++) out[n * 2 + c] += exp(logit) * head->value[i * 2 + c];
    }
    for (int c = 0; c < 2; c++) out[n * 2 + c] /= sum;
  }
}

static void attention_of_a_head_is_the_formula(void **state) {
  (void)state;
  double query[LENGTH * DIM], key[LENGTH * DIM], value[LENGTH * 2], kernel[LENGTH], have[LENGTH * 2], want[LENGTH * 2];
  uint8_t mask[LENGTH * LENGTH];
  normal_numbers(1, (int64_t)LENGTH * DIM, query);
  normal_numbers(2, (int64_t)LENGTH * DIM, key);
  normal_numbers(3, (int64_t)LENGTH * 2, value);
  normal_numbers(4, LENGTH, kernel);
  for (int i = 0; i < LENGTH * LENGTH; i++) mask[i] = i % 3 != 1;
  for (int way = 0; way < 8; way++) {
    hark_attention_desc choice = hark_attention_desc_default();
    choice.causal = (way & 1) != 0;
    choice.scale = 0.7;
    const hark_lab_head head = {.length = LENGTH,
                                .head_dim = DIM,
                                .value_dim = 2,
                                .query = query,
                                .key = key,
                                .value = value,
                                .log_kernel = (way & 2) != 0 ? kernel : NULL,
                                .mask = (way & 4) != 0 ? mask : NULL};
    attend_plainly(&head, 0.7, choice.causal, want);
    assert_fine(context, hark_lab_attend(context, &choice, &head, have));
    for (int i = 0; i < LENGTH * 2; i++)
      if (!(fabs(have[i] - want[i]) < 1e-14) && !(isnan(want[i]) && have[i] == 0))
        fail_msg("way %d: %g, expected %g", way, have[i], want[i]);
  }
}

/* Fewer queries than keys; log_sum_exp is the logarithm of the sum of the kernel. */
static void attention_takes_queries_of_their_own(void **state) {
  (void)state;
  enum { QUERIES = 2 };
  double query[QUERIES * DIM], key[LENGTH * DIM], value[LENGTH], have[QUERIES], log_sum_exp[QUERIES];
  normal_numbers(1, (int64_t)QUERIES * DIM, query);
  normal_numbers(2, (int64_t)LENGTH * DIM, key);
  normal_numbers(3, LENGTH, value);
  hark_attention_desc choice = hark_attention_desc_default();
  choice.kernel = HARK_KERNEL_RBF;
  choice.sigma = 0.8;
  const hark_lab_head head = {.length = LENGTH,
                              .queries = QUERIES,
                              .head_dim = DIM,
                              .value_dim = 1,
                              .query = query,
                              .key = key,
                              .value = value,
                              .log_sum_exp = log_sum_exp};
  assert_fine(context, hark_lab_attend(context, &choice, &head, have));
  for (int n = 0; n < QUERIES; n++) {
    double sum = 0, top = 0;
    for (int i = 0; i < LENGTH; i++) {
      double square = 0;
      for (int x = 0; x < DIM; x++) square += (query[n * DIM + x] - key[i * DIM + x]) * (query[n * DIM + x] - key[i * DIM + x]);
      sum += exp(-square / (2 * 0.64));
      top += exp(-square / (2 * 0.64)) * value[i];
    }
    assert_true(fabs(have[n] - top / sum) < 1e-14 && fabs(log_sum_exp[n] - log(sum)) < 1e-14);
  }
}

/* ---- heads of a trained model ---- */

#define TEXT "To be, or not to be, that is the question: whether 'tis nobler in the mind"

/* What a one-layer model gives to attention, worked out with its weights: q = W_q rms_norm(embedding), turned by its position; two query
 * heads share a key head. */
static void heads_are_those_of_the_model(void **state) {
  (void)state;
  char folder[TEST_PATH_BYTES];
  static const char description[] = MODEL("none", ATTENTION("dense", "false"));
  const hark_model_options options = small_model_options(description);
  hark_model *model;
  hark_trained_heads heads;
  hark_lab *lab;
  test_folder_make(folder);
  assert_fine(context, hark_model_create(context, &options, 5, &model));
  const hark_network *const decoder = model->network;
  const char *const path = test_path(folder, "model.safetensors"), *const text = test_file_write_text(folder, "text.txt", TEXT);
  assert_fine(context, hark_model_save(context, model, path));
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  assert_fine(context, hark_trained_heads_read(lab, path, text, 8, 20, &heads));
  assert_true(heads.layers == 2 && heads.heads == 4 && heads.length == 20 && heads.head_dim == 8);
  assert_true(heads.similarities[0].kernel == HARK_KERNEL_EXP && heads.similarities[1].scale == 1 / sqrt(8));

  const hark_parameters *const p = &decoder->parameters;
  const int64_t width = decoder->config.width;
  int32_t tokens[sizeof TEXT];
  size_t count;
  assert_fine(context, hark_model_encode(context, model, TEXT, strlen(TEXT), false, tokens, &count));
  const float *const table = hark_parameters_at(p, decoder->token_table)->weight.data;
  const float *const gain = hark_parameters_at(p, decoder->blocks[0].attention_norm.weight)->weight.data;
  const hark_parameter_id ids[] = {decoder->blocks[0].attention.query.weight, decoder->blocks[0].attention.key.weight,
                                   decoder->blocks[0].attention.value.weight};
  const double *const have[] = {heads.query, heads.key, heads.value};
  for (int64_t t = 0; t < heads.length; t++) {
    const float *const row = table + tokens[t] * width;
    double square = 0;
    for (int64_t i = 0; i < width; i++) square += (double)row[i] * (double)row[i];
    const double norm = 1 / sqrt(square / (double)width + decoder->config.norm_epsilon);
    for (int part = 0; part < 3; part++)
      for (int64_t h = 0; h < heads.heads; h++)
        for (int64_t x = 0; x < heads.head_dim; x++) {
          const int64_t out = (part == 0 ? h : h / 2) * heads.head_dim + x;
          const float *const weight = (const float *)hark_parameters_at(p, ids[part])->weight.data + out * width;
          double want = 0;
          for (int64_t i = 0; i < width; i++) want += (double)weight[i] * (double)row[i] * norm * (double)gain[i];
          assert_true(fabs(have[part][(h * heads.length + t) * heads.head_dim + x] - want) < 1e-5 * (1 + fabs(want)));
        }
  }
  hark_lab_destroy(&lab);
  hark_model_destroy(context, &model);
  test_folder_remove(folder);
}

static void heads_that_cannot_be_measured_are_refused(void **state) {
  (void)state;
  char folder[TEST_PATH_BYTES];
  static const char *const descriptions[] = {MODEL("none", ATTENTION("dense", "true")),
                                             MODEL(KERNEL("decay", "model"), ATTENTION("dense", "false"))};
  static const char *const words[] = {"forget gates", "a positional kernel"};
  hark_trained_heads heads;
  hark_model *model;
  hark_lab *lab;
  test_folder_make(folder);
  const char *const path = test_path(folder, "model.safetensors"), *const text = test_file_write_text(folder, "text.txt", "short");
  assert_fine(context, hark_lab_create(context, true, 1, NULL, &lab));
  for (int i = 0; i < 2; i++) {
    const hark_model_options options = small_model_options(descriptions[i]);
    assert_fine(context, hark_model_create(context, &options, 5, &model));
    assert_fine(context, hark_model_save(context, model, path));
    hark_model_destroy(context, &model);
    assert_failure(context, hark_trained_heads_read(lab, path, text, 1, 20, &heads), HARK_UNSUPPORTED, words[i]);
  }
  const hark_model_options options = small_model_options(PLAIN);
  assert_fine(context, hark_model_create(context, &options, 5, &model));
  assert_fine(context, hark_model_save(context, model, path));
  hark_model_destroy(context, &model);
  assert_failure(context, hark_trained_heads_read(lab, path, text, 6, 20, &heads), HARK_BAD_FILE, "5 tokens, expected at least 6");
  assert_failure(context, hark_trained_heads_read(lab, path, text, 41, 50, &heads), HARK_BAD_FILE, "a context of 40, expected at least 41");
  assert_failure(context, hark_trained_heads_read(lab, path, "none.txt", 6, 20, &heads), HARK_NOT_FOUND, "none.txt");
  hark_lab_destroy(&lab);
  test_folder_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(singular_values_are_roots_of_eigenvalues),      cmocka_unit_test(singular_values_of_known_matrices),
      cmocka_unit_test(numerical_ranks_are_tails_below_the_tolerance), cmocka_unit_test(attention_of_a_head_is_the_formula),
      cmocka_unit_test(attention_takes_queries_of_their_own),          cmocka_unit_test(heads_are_those_of_the_model),
      cmocka_unit_test(heads_that_cannot_be_measured_are_refused)};
  return cmocka_run_group_tests(tests, begin, end);
}

/* test_vectors.c - examples of real vectors: files against what was written, batches, a limit on examples, files that are refused; the
 * generators against the models that they draw from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/example_batches.h"
#include "data/formats/vector_file.h"
#include "support/cmocka_all.h"
#include "support/train/task_place.h"

enum { LENGTH = 3, FEATURES = 2, RESPONSES = 2, COUNT = 5, RECORD = LENGTH * FEATURES + RESPONSES };

/* Number i of record n is 16 n + i. */
static size_t fill(unsigned char *bytes) {
  hark_vectors_header(HARK_VECTORS_MAGIC, LENGTH, FEATURES, RESPONSES, COUNT, bytes);
  for (int i = 0; i < COUNT * RECORD; i++) {
    const float number = (float)(i / RECORD * 16 + i % RECORD);
    memcpy(bytes + HARK_VECTORS_HEADER_BYTES + (size_t)i * sizeof number, &number, sizeof number);
  }
  return HARK_VECTORS_HEADER_BYTES + COUNT * RECORD * sizeof(float);
}
#define FILE_BYTES (HARK_VECTORS_HEADER_BYTES + COUNT * RECORD * sizeof(float))

static hark_status open_file(const task_place *f, const char *name, const void *bytes, size_t count, int64_t limit, hark_examples **out) {
  const char *const path = test_file_write(f->folder, name, bytes, count);
  const hark_examples_settings settings = {.format = "vectors", .paths = &path, .path_count = 1, .length_limit = limit};
  return hark_examples_open(f->context, &settings, out);
}

static void numbers_come_back(void **state) {
  const task_place *const f = *state;
  unsigned char bytes[FILE_BYTES];
  hark_examples *e = NULL;
  float features[LENGTH * FEATURES], responses[RESPONSES];
  for (int64_t limit = 0; limit <= 2; limit += 2) { /* all tokens, and two of three */
    assert_fine(f->context, open_file(f, "a.vectors", bytes, fill(bytes), limit, &e));
    assert_int_equal(hark_examples_target_kind(e), HARK_TARGET_VECTOR);
    assert_int_equal(hark_examples_features(e), FEATURES);
    assert_int_equal(hark_examples_responses(e), RESPONSES);
    assert_int_equal(hark_examples_classes(e), 0);
    assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, COUNT);
    const int64_t length = limit > 0 ? limit : LENGTH;
    for (int64_t n = 0; n < COUNT; n++) {
      assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, n, 0), length);
      assert_fine(f->context, hark_examples_numbers(f->context, e, HARK_SPLIT_TRAINING, n, features, responses));
      for (int64_t i = 0; i < length * FEATURES; i++) assert_true(features[i] == (float)(16 * n + i));
      for (int64_t i = 0; i < RESPONSES; i++) assert_true(responses[i] == (float)(16 * n + LENGTH * FEATURES + i));
    }
    assert_int_equal(hark_examples_numbers(f->context, e, HARK_SPLIT_TRAINING, COUNT, features, responses), HARK_INVALID_ARGUMENT);
    hark_examples_close(f->context, &e);
  }
}

static void batches_carry_their_numbers(void **state) {
  const task_place *const f = *state;
  enum { ROWS = 2, TOKENS = ROWS * LENGTH };
  unsigned char bytes[FILE_BYTES];
  hark_examples *e = NULL;
  assert_fine(f->context, open_file(f, "a.vectors", bytes, fill(bytes), 0, &e));
  const hark_example_batches_settings settings = {.order = HARK_ORDER_SEQUENTIAL, .longest = LENGTH, .named_for = "context"};
  hark_example_batches batches;
  assert_fine(f->context, hark_example_batches_create(f->context, e, &settings, &batches));
  int32_t inputs[TOKENS], positions[TOKENS], targets[TOKENS];
  int64_t segments[TOKENS], ranges[2 * ROWS], real;
  float features[TOKENS * FEATURES], responses[ROWS * RESPONSES];
  hark_example_batch batch = {.inputs = inputs,
                              .positions = positions,
                              .segments = segments,
                              .ranges = ranges,
                              .targets = targets,
                              .features = features,
                              .responses = responses};
  assert_fine(f->context, hark_example_batches_read(f->context, &batches, 3, ROWS, &batch));
  assert_int_equal(batch.tokens, TOKENS);
  assert_int_equal(batch.real, ROWS);
  for (int n = 0; n < ROWS; n++) {
    assert_int_equal(ranges[2 * n], n * LENGTH);
    for (int i = 0; i < LENGTH * FEATURES; i++) assert_true(features[n * LENGTH * FEATURES + i] == (float)(16 * (3 + n) + i));
    for (int i = 0; i < RESPONSES; i++) assert_true(responses[n * RESPONSES + i] == (float)(16 * (3 + n) + LENGTH * FEATURES + i));
  }
  assert_fine(f->context, hark_example_batches_targets(f->context, &batches, 0, 4, targets, &real));
  assert_int_equal(real, 4);
  hark_examples_close(f->context, &e);
}

/* Whatever the seed and the order: the same examples, and those of a smaller limit among them. */
static void a_limit_leaves_the_same_examples(void **state) {
  const task_place *const f = *state;
  unsigned char bytes[FILE_BYTES];
  hark_examples *e = NULL;
  unsigned before = 0;
  assert_fine(f->context, open_file(f, "a.vectors", bytes, fill(bytes), 0, &e));
  for (int64_t limit = 1; limit <= COUNT; limit++) {
    unsigned seen[2] = {0, 0};
    for (uint64_t seed = 1; seed <= 2; seed++) {
      const hark_example_batches_settings settings = {
          .order = seed == 1 ? HARK_ORDER_SHUFFLED : HARK_ORDER_RANDOM, .seed = seed, .longest = LENGTH, .limit = limit};
      hark_example_batches batches;
      assert_fine(f->context, hark_example_batches_create(f->context, e, &settings, &batches));
      assert_int_equal(batches.count, limit);
      for (int64_t sample = 0; sample < 200; sample++) seen[seed - 1] |= 1u << hark_example_batches_index(&batches, sample);
    }
    assert_int_equal(seen[0], seen[1]);
    assert_int_equal(seen[0] & before, before);
    assert_true(seen[0] != before);
    before = seen[0];
  }
  const hark_example_batches_settings settings = {.longest = LENGTH, .limit = COUNT + 1};
  hark_example_batches batches;
  assert_int_equal(hark_example_batches_create(f->context, e, &settings, &batches), HARK_BAD_CONFIGURATION);
  assert_non_null(strstr(hark_context_message(f->context), "data.example_limit is 6, and there are 5 training examples"));
  hark_examples_close(f->context, &e);
}

static void damaged_files_are_refused(void **state) {
  const task_place *const f = *state;
  static const struct {
    size_t at;
    unsigned char byte;
    const char *message;
  } changes[] = {{0, 'h', "is neither a file of vectors"},
                 {8, 2, "version is 2 at byte offset 8, expected 1 to 1"},
                 {12, 0, "length is 0 at byte offset 12"},
                 {16, 0, "number of features is 0 at byte offset 16"},
                 {20, 0, "number of responses is 0 at byte offset 20"},
                 {24, 6, "expected 32 and 6 records of 32, as byte offset 24 says"},
                 {31, 255, "records of 32, as byte offset 24 says"},
                 {HARK_VECTORS_HEADER_BYTES + 4 * RECORD + 3, 0x7f, ""}}; /* a large number, not yet an infinite one */
  unsigned char bytes[FILE_BYTES];
  hark_examples *e = NULL;
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    const size_t count = fill(bytes);
    bytes[changes[i].at] = changes[i].byte;
    if (changes[i].message[0] == '\0') { /* now it is */
      bytes[changes[i].at - 1] = 0x80;
      bytes[changes[i].at - 2] = bytes[changes[i].at - 3] = 0;
    }
    assert_int_equal(open_file(f, "bad.vectors", bytes, count, 0, &e), HARK_BAD_FILE);
    const char *const expected = changes[i].message[0] == '\0' ? "not finite at byte offset 64" : changes[i].message;
    if (strstr(hark_context_message(f->context), expected) == NULL)
      fail_msg("change %zu: \"%s\", expected \"%s\" in it", i, hark_context_message(f->context), expected);
    assert_null(e);
  }
  for (size_t count = 0; count < FILE_BYTES; count += 13) {
    (void)fill(bytes);
    assert_int_equal(open_file(f, "short.vectors", bytes, count, 0, &e), HARK_BAD_FILE);
  }
}

/* ---- generators ---- */

static void latent_tokens_lie_in_the_ball(void **state) {
  const task_place *const f = *state;
  enum { D = 3, L = 40, N = 300 };
  const made_task t = {.name = "latent",
                       .seed = 5,
                       .examples = {N, 1, 0},
                       .options = {"tokens", "40", "features", "3", "responses", "4", "spread", "0.1", "frequency", "2"}};
  task_make(f, "latent", &t);
  hark_examples *e = task_open(f, "latent");
  assert_int_equal(hark_examples_responses(e), 4);
  double across = 0, square = 0;
  for (int64_t n = 0; n < N; n++) {
    float x[L * D], y[4];
    double mean[D] = {0}, length = 0, signal = 0;
    assert_fine(f->context, hark_examples_numbers(f->context, e, HARK_SPLIT_TRAINING, n, x, y));
    for (int l = 0; l < L; l++) {
      double size = 0;
      for (int i = 0; i < D; i++) {
        size += (double)x[l * D + i] * (double)x[l * D + i];
        mean[i] += (double)x[l * D + i] / L;
      }
      assert_true(size <= 1 + 1e-6);
    }
    for (int i = 0; i < D; i++) length += mean[i] * mean[i];
    assert_true(sqrt(length) <= 0.5 + 0.1 * 5 / sqrt(L)); /* z, and five deviations of a mean of L */
    for (int j = 0; j < 4; j++) {
      signal += (double)y[j] * (double)y[j];
      /* a sine of z, of which the mean of the tokens is an estimate; hardly any is brought to the ball */
      const double expected = sin(2 * mean[j % D] + j) / 4;
      across += ((double)y[j] - expected) * ((double)y[j] - expected) / (4 * N);
    }
    assert_true(signal <= 0.25 * (1 + 1e-6));
    square += length / N;
  }
  assert_true(sqrt(across) < 0.1 / sqrt(L)); /* 2 / 4 of the deviation of the mean, .0158, and room */
  task_assert_near(square, 0.25 * 3 / 5 + 3 * 0.01 / L, 0.06 / sqrt(N), "E |z|^2 = r^2 d / (d + 2), and the noise of the mean");
  hark_examples_close(f->context, &e);
}

/* Least squares on the tokens gives the noise's variance; the mask's response is of that regression, and masked in the token. */
static void regressions_have_their_noise(void **state) {
  const task_place *const f = *state;
  enum { L = 50, N = 200 };
  const made_task t = {.name = "regression",
                       .seed = 6,
                       .examples = {N, 1, 0},
                       .options = {"tokens", "50", "covariates", "1", "responses", "1", "noise", "0.5", "prior", "2"}};
  task_make(f, "regression", &t);
  hark_examples *e = task_open(f, "regression");
  double noise = 0, prior = 0, hidden = 0;
  for (int64_t n = 0; n < N; n++) {
    float x[(L + 1) * 2], y[1];
    double cc = 0, cr = 0, rest = 0;
    assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, n, 0), L + 1);
    assert_fine(f->context, hark_examples_numbers(f->context, e, HARK_SPLIT_TRAINING, n, x, y));
    assert_true(x[2 * L + 1] == 0);
    for (int l = 0; l < L; l++) {
      cc += (double)x[2 * l] * (double)x[2 * l];
      cr += (double)x[2 * l] * (double)x[2 * l + 1];
    }
    const double z = cr / cc, error = (double)y[0] - z * (double)x[2 * L];
    for (int l = 0; l < L; l++) rest += pow((double)x[2 * l + 1] - z * (double)x[2 * l], 2);
    noise += rest / (L - 1) / N;
    prior += z * z / N;
    hidden += error * error / N;
  }
  task_assert_near(noise, 0.5, 0.5 * sqrt(2.0 / (L * N)), "variance of the noise");
  task_assert_near(prior, 2, 2 * sqrt(2.0 / N), "variance of z");
  task_assert_near(hidden, 0.5, 0.5 * sqrt(2.0 / N), "variance of the hidden response");
  hark_examples_close(f->context, &e);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TASK_TEST(numbers_come_back),         TASK_TEST(batches_carry_their_numbers),   TASK_TEST(a_limit_leaves_the_same_examples),
      TASK_TEST(damaged_files_are_refused), TASK_TEST(latent_tokens_lie_in_the_ball), TASK_TEST(regressions_have_their_noise)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_batches.c - samples and windows: every order's promises, exact resumption, sharding, evaluation; the permutation of all orders.
 *
 * test_batches CASE runs one case of the orders: ORDER:EPOCH,T<tokens>,L<context>,S<seed>, for example shuffled:tokens,T1000,L7,S3.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"
#include "data/corpora/batches.h"
#include "data/permutation.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"

/* A text whose token at every place is known: bytes (place * place / 7 + place) mod 251, so that windows at different places differ. */
static int32_t token_at(int64_t place) { return HARK_TOKEN_RESERVED + (int32_t)((place * place / 7 + place) % 251); }

typedef struct fixture {
  test_memory memory;
  hark_context *context;
  hark_corpus *corpus;
  char folder[TEST_PATH_BYTES];
} fixture;

/* A corpus of `tokens` tokens of bytes, all in one split. */
static void fixture_open(fixture *f, int64_t tokens, hark_split split) {
  f->context = test_memory_context(&f->memory);
  test_folder_make(f->folder);
  unsigned char *text = malloc((size_t)tokens + 1);
  assert_non_null(text);
  for (int64_t i = 0; i < tokens; i++) text[i] = (unsigned char)(token_at(i) - HARK_TOKEN_RESERVED);
  const char *paths[] = {test_file_write(f->folder, "text", text, (size_t)tokens)};
  free(text);
  const bool trains = split == HARK_SPLIT_TRAINING;
  const hark_corpus_settings settings = {.paths = paths,
                                         .path_count = trains,
                                         .validation_paths = paths,
                                         .validation_path_count = !trains,
                                         .division = HARK_DIVIDE_FILES,
                                         .tokenizer_kind = "bytes",
                                         .cache_folder = f->folder};
  assert_fine(f->context, hark_corpus_open(f->context, &settings, &f->corpus));
  assert_int_equal(hark_corpus_counts(f->corpus, split).tokens, tokens);
}

static void fixture_close(fixture *f) {
  hark_corpus_close(f->context, &f->corpus);
  test_folder_remove(f->folder);
  test_memory_context_end(f->context, &f->memory);
}

static void permutations_are_bijections(void **state) {
  (void)state;
  enum { LARGEST = 100003 };
  static const int64_t large[] = {1000, 1023, 1024, 1025, 4096, 4097, 65535, 65536, 65537, LARGEST};
  unsigned char *seen = calloc(LARGEST, 1);
  assert_non_null(seen);
  for (int64_t i = 1; i <= 310; i++) {
    const int64_t count = i <= 300 ? i : large[i - 301];
    for (uint32_t number = 0; number < 3; number++) {
      memset(seen, 0, LARGEST);
      for (int64_t index = 0; index < count; index++) {
        const int64_t to = hark_permute(11, number, count, index);
        if (to < 0 || to >= count || seen[to]) fail_msg("count %" PRId64 ", number %u: %" PRId64 " -> %" PRId64, count, number, index, to);
        seen[to] = 1;
      }
    }
  }
  free(seen);
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* More windows than 32 bits can number: values stay in range, differ, and reach all parts of the range. */
static void permutations_may_be_large(void **state) {
  (void)state;
  enum { DRAWS = 20000, PARTS = 16 };
  const int64_t count = ((int64_t)1 << 40) + 12345;
  int64_t *values = malloc(DRAWS * sizeof *values);
  int64_t part[PARTS] = {0};
  assert_non_null(values);
  for (int64_t i = 0; i < DRAWS; i++) {
    values[i] = hark_permute(3, 7, count, count - 1 - i);
    assert_true(values[i] >= 0 && values[i] < count);
    part[values[i] / (count / PARTS + 1)]++;
  }
  qsort(values, DRAWS, sizeof *values, compare_numbers);
  for (int64_t i = 1; i < DRAWS; i++) assert_true(values[i] != values[i - 1]);
  /* Binomial, mean 1250, standard deviation 34: six of them are passed by chance once in 10^8, and the draws are fixed. */
  for (int i = 0; i < PARTS; i++) assert_true(fabs((double)part[i] - DRAWS / (double)PARTS) < 6 * 34.3);
  free(values);
}

/* Two permutations agree at about one place, not at many; a seed and an epoch both change it. */
static void permutations_differ(void **state) {
  (void)state;
  int same_number = 0, same_seed = 0, fixed = 0;
  for (int64_t i = 0; i < 1000; i++) {
    const int64_t to = hark_permute(1, 0, 1000, i);
    same_number += to == hark_permute(1, 1, 1000, i);
    same_seed += to == hark_permute(2, 0, 1000, i);
    fixed += to == i;
  }
  /* Poisson with mean 1: above 10 once in 10^8. */
  assert_true(same_number <= 10 && same_seed <= 10 && fixed <= 10);
}

typedef struct order_case {
  hark_order order;
  hark_epoch_unit epoch;
  int64_t tokens, context;
  uint64_t seed;
} order_case;

static const char *const order_names[] = {"random", "shuffled", "sequential"}, *const epoch_names[] = {"tokens", "windows"};

static void fail_case(const order_case *c, const char *what, int64_t sample) {
  fail_msg("%s at sample %" PRId64 "; run again: test_batches %s:%s,T%" PRId64 ",L%" PRId64 ",S%" PRIu64, what, sample,
           order_names[c->order], epoch_names[c->epoch], c->tokens, c->context, c->seed);
}

/* Windows of one epoch: the right number of them, in range, and for orders without repetition each exactly once. */
static void check_epoch(const order_case *c, const hark_batches *b, int64_t epoch) {
  const int64_t stride = c->epoch == HARK_EPOCH_WINDOWS ? 1 : c->context, first = epoch * b->samples_per_epoch;
  unsigned char *seen = calloc((size_t)c->tokens, 1);
  assert_non_null(seen);
  int64_t smallest = c->tokens;
  for (int64_t i = 0; i < b->samples_per_epoch; i++) {
    const int64_t start = hark_batches_start(b, first + i);
    if (start < 0 || start > c->tokens - c->context - 1) fail_case(c, "a window outside the text", first + i);
    if (c->order == HARK_ORDER_SEQUENTIAL && start != i * stride) fail_case(c, "not the next window", first + i);
    if (c->order != HARK_ORDER_RANDOM && seen[start]++) fail_case(c, "a window twice in an epoch", first + i);
    smallest = hark_min(smallest, start);
  }
  for (int64_t i = 0; i < b->samples_per_epoch && c->order != HARK_ORDER_RANDOM; i++)
    if (!seen[smallest + i * stride]) fail_case(c, "a window left out of an epoch", first);
  free(seen);
}

/* Rows hold the text at the window's place, and rows read alone, together, and by two ranks in turn are the same. */
static void check_rows(const order_case *c, const fixture *f, const hark_batches *b) {
  enum { ROWS = 7 };
  const int64_t length = c->context, first = b->samples_per_epoch - 3; /* across the end of the first epoch, where there is room */
  const int64_t from = first < 0 ? 0 : first;
  const size_t row_bytes = (size_t)length * sizeof(int32_t);
  int32_t *together = malloc(2 * ROWS * row_bytes), *alone = malloc(2 * row_bytes);
  assert_true(together != NULL && alone != NULL);
  assert_fine(f->context, hark_batches_read(f->context, b, from, ROWS, together, together + ROWS * length));
  for (int64_t turn = 0; turn < ROWS; turn++) {
    const int64_t row = (turn * 3) % ROWS; /* any order */
    hark_batches again;
    assert_fine(f->context, hark_batches_create(f->context, f->corpus, &b->settings, &again));
    assert_fine(f->context, hark_batches_read(f->context, &again, from + row, 1, alone, alone + length));
    if (memcmp(alone, together + row * length, row_bytes) != 0 || memcmp(alone + length, together + (ROWS + row) * length, row_bytes) != 0)
      fail_case(c, "another window when read alone", from + row);
    const int64_t start = hark_batches_start(b, from + row);
    for (int64_t i = 0; i < length; i++)
      if (alone[i] != token_at(start + i) || alone[length + i] != token_at(start + i + 1)) fail_case(c, "not the text", from + row);
  }
  free(together);
  free(alone);
}

static void check_case(const order_case *c) {
  fixture f;
  hark_batches b;
  fixture_open(&f, c->tokens, HARK_SPLIT_TRAINING);
  const hark_batches_settings settings = {
      .split = HARK_SPLIT_TRAINING, .context = c->context, .order = c->order, .epoch = c->epoch, .seed = c->seed};
  assert_fine(f.context, hark_batches_create(f.context, f.corpus, &settings, &b));
  int64_t expected = c->epoch == HARK_EPOCH_WINDOWS ? c->tokens - c->context : (c->tokens - 1) / c->context;
  if (c->order == HARK_ORDER_SHUFFLED && c->epoch == HARK_EPOCH_TOKENS) expected = hark_max(1, c->tokens / c->context - 1);
  if (b.samples_per_epoch != expected) fail_case(c, "not the documented number of samples an epoch", 0);
  assert_true(hark_batches_epochs(&b, 3 * expected) == 3.0);
  for (int64_t epoch = 0; epoch < 3; epoch++) check_epoch(c, &b, epoch);
  check_epoch(c, &b, (int64_t)1 << 20);
  check_rows(c, &f, &b);
  fixture_close(&f);
}

static void orders_keep_their_promises(void **state) {
  (void)state;
  static const int64_t sizes[][2] = {{2, 1},  {3, 1},  {9, 8},  {10, 8},   {15, 8},    {16, 8},
                                     {17, 8}, {24, 8}, {25, 8}, {1000, 7}, {257, 256}, {2000, 64}};
  int cases = 0;
  for (int order = 0; order < 3; order++)
    for (int epoch = 0; epoch < 2; epoch++)
      for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++, cases++)
        check_case(&(order_case){(hark_order)order, (hark_epoch_unit)epoch, sizes[i][0], sizes[i][1], i});
  assert_int_equal(cases, 72);
}

/* Every token is a target in one of a few shuffled epochs, for the offset moves. */
static void shuffling_leaves_no_token_out(void **state) {
  (void)state;
  fixture f;
  hark_batches b;
  fixture_open(&f, 1000, HARK_SPLIT_TRAINING);
  const hark_batches_settings settings = {.context = 64, .order = HARK_ORDER_SHUFFLED, .seed = 9};
  assert_fine(f.context, hark_batches_create(f.context, f.corpus, &settings, &b));
  unsigned char seen[1000] = {1};
  bool offset_seen[64] = {false};
  for (int64_t sample = 0; sample < 600 * b.samples_per_epoch; sample++) {
    const int64_t start = hark_batches_start(&b, sample);
    memset(seen + start + 1, 1, 64);
    offset_seen[start % 64] = true;
  }
  for (int i = 0; i < 1000; i++) assert_int_equal(seen[i], 1);
  int offsets = 0;
  for (int i = 0; i < 64; i++) offsets += offset_seen[i];
  assert_int_equal(
      offsets,
      /* of 600 draws of 104 offsets; that one of 64 is missing has probability 64 (1 - 1/104)^600 = 0.2 at most, and the seed is fixed */
      64);
  fixture_close(&f);
}

/* Starts of random order are uniform: chi-square over all 50 places. */
static void random_starts_are_uniform(void **state) {
  (void)state;
  enum { PLACES = 50, DRAWS = 50000 };
  fixture f;
  hark_batches b;
  fixture_open(&f, PLACES + 8, HARK_SPLIT_TRAINING);
  const hark_batches_settings settings = {.context = 8, .order = HARK_ORDER_RANDOM, .seed = 4};
  assert_fine(f.context, hark_batches_create(f.context, f.corpus, &settings, &b));
  double count[PLACES] = {0}, chi_square = 0;
  for (int64_t sample = 0; sample < DRAWS; sample++) count[hark_batches_start(&b, sample)]++;
  for (int i = 0; i < PLACES; i++) chi_square += (count[i] - DRAWS / PLACES) * (count[i] - DRAWS / PLACES) / (DRAWS / PLACES);
  assert_true(chi_square < 49 + 6 * sqrt(2.0 * 49)); /* mean 49, variance 98 */
  assert_true(chi_square > 49 - 4 * sqrt(2.0 * 49)); /* too even is not random either */
  fixture_close(&f);
}

static void too_little_text_is_said(void **state) {
  (void)state;
  fixture f;
  hark_batches b;
  hark_evaluation e;
  fixture_open(&f, 8, HARK_SPLIT_TRAINING);
  hark_batches_settings settings = {.context = 8, .order = HARK_ORDER_RANDOM};
  assert_failure(f.context, hark_batches_create(f.context, f.corpus, &settings, &b), HARK_BAD_CONFIGURATION,
                 "the training text has 8 tokens, fewer than one window: context 8");
  settings.context = 7;
  assert_fine(f.context, hark_batches_create(f.context, f.corpus, &settings, &b));
  assert_int_equal(b.samples_per_epoch, 1);
  settings.split = HARK_SPLIT_VALIDATION;
  assert_failure(f.context, hark_batches_create(f.context, f.corpus, &settings, &b), HARK_BAD_CONFIGURATION,
                 "the validation text has 0 tokens");
  settings.context = 0;
  assert_failure(f.context, hark_batches_create(f.context, f.corpus, &settings, &b), HARK_INVALID_ARGUMENT, "context is 0");
  const struct {
    hark_evaluation_settings settings;
    hark_status status;
    const char *message;
  } refused[] = {{{.split = HARK_SPLIT_VALIDATION, .context = 8}, HARK_BAD_CONFIGURATION, "at least two"},
                 {{.split = HARK_SPLIT_TRAINING}, HARK_INVALID_ARGUMENT, "context is 0"},
                 {{.context = 4, .stride = 5}, HARK_INVALID_ARGUMENT, "stride is 5, expected 1 to 4"},
                 {{.context = 4, .stride = -1}, HARK_INVALID_ARGUMENT, "stride is -1"},
                 {{.context = 4, .targets = -1}, HARK_INVALID_ARGUMENT, "targets is -1"}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    assert_failure(f.context, hark_evaluation_create(f.context, f.corpus, &refused[i].settings, &e), refused[i].status, refused[i].message);
  int32_t one[2];
  settings = (hark_batches_settings){.context = 1};
  assert_fine(f.context, hark_batches_create(f.context, f.corpus, &settings, &b));
  assert_failure(f.context, hark_batches_read(f.context, &b, -1, 1, one, one + 1), HARK_INVALID_ARGUMENT, "sample -1");
  fixture_close(&f);
}

/* Every token but the first is a target exactly once, beside the token before it; the rest is marked. */
static void evaluation_sees_every_target_once(void **state) {
  (void)state;
  enum { LONGEST = 12, ROWS = 5 };
  int cases = 0;
  for (int64_t tokens = 2; tokens <= 40; tokens++) {
    fixture f;
    fixture_open(&f, tokens, HARK_SPLIT_VALIDATION);
    for (int64_t length = 1; length <= LONGEST; length++)
      for (int64_t rows = 1; rows <= ROWS; rows++, cases++) {
        hark_evaluation e;
        int32_t inputs[LONGEST * ROWS], targets[LONGEST * ROWS];
        int64_t next = 1, real, sum = 0;
        const hark_evaluation_settings whole = {.split = HARK_SPLIT_VALIDATION, .context = length};
        assert_fine(f.context, hark_evaluation_create(f.context, f.corpus, &whole, &e));
        assert_int_equal(e.targets, tokens - 1);
        assert_int_equal(e.windows, hark_ceil_div(tokens - 1, length));
        for (int64_t first = 0; first < e.windows; first += rows) {
          assert_fine(f.context, hark_evaluation_read(f.context, &e, first, rows, inputs, targets, &real));
          sum += real;
          for (int64_t i = 0; i < rows * length; i++) {
            const bool is_real = next < tokens;
            if (targets[i] != (is_real ? token_at(next) : HARK_TARGET_IGNORED) ||
                inputs[i] != (is_real ? token_at(next - 1) : HARK_TOKEN_PADDING))
              fail_msg("T %" PRId64 ", L %" PRId64 ", B %" PRId64 ": target %" PRId64, tokens, length, rows, next);
            next += is_real;
          }
        }
        assert_int_equal(next, tokens);
        assert_int_equal(sum, e.targets);
      }
    fixture_close(&f);
  }
  assert_int_equal(cases, 39 * LONGEST * ROWS);
}

/* Which window and which place in it counts each target, by walking through the text: a window begins where the one before did and S on,
 * and what has been counted is not counted again. Also in parts of the text, and in any number of rows at once. */
static void sliding_windows_count_every_target_once(void **state) {
  (void)state;
  enum { LONGEST = 7, ROWS = 3, TOKENS = 30 };
  fixture f;
  fixture_open(&f, TOKENS, HARK_SPLIT_VALIDATION);
  for (int64_t length = 1; length <= LONGEST; length++)
    for (int64_t stride = 1; stride <= length; stride++)
      for (int64_t limit = 0; limit < TOKENS + 5; limit++) {
        const hark_evaluation_settings settings = {.split = HARK_SPLIT_VALIDATION, .context = length, .stride = stride, .targets = limit};
        const int64_t counting = limit == 0 || limit > TOKENS - 1 ? TOKENS - 1 : limit;
        hark_evaluation e;
        int32_t inputs[LONGEST * ROWS], targets[LONGEST * ROWS];
        int64_t counted = 0, sum = 0, real;
        assert_fine(f.context, hark_evaluation_create(f.context, f.corpus, &settings, &e));
        assert_int_equal(e.targets, counting);
        for (int64_t first = 0; first < e.windows; first += ROWS) {
          assert_fine(f.context, hark_evaluation_read(f.context, &e, first, ROWS, inputs, targets, &real));
          sum += real;
          for (int64_t i = 0; i < ROWS * length; i++) {
            const int64_t target = (first + i / length) * stride + i % length; /* number `target` is token target + 1 */
            const bool counts = target == counted && target < counting;
            if (target < counting && first + i / length < e.windows) assert_int_equal(inputs[i], token_at(target));
            if (targets[i] != (counts ? token_at(target + 1) : HARK_TARGET_IGNORED))
              fail_msg("L %" PRId64 ", S %" PRId64 ", N %" PRId64 ": target %" PRId64, length, stride, limit, target);
            counted += counts;
            /* what lies before a counted target of a later window */
            if (counts && target >= length) assert_true(i % length >= length - stride);
          }
        }
        assert_int_equal(counted, counting);
        assert_int_equal(sum, counting);
        assert_true(e.windows == 1 || length + (e.windows - 2) * stride < counting); /* no window without a target of its own */
      }
  fixture_close(&f);
}

static const char *case_text;

static void one_case(void **state) {
  (void)state;
  char order[16], epoch[16];
  order_case c = {0};
  if (sscanf(case_text, "%15[a-z]:%15[a-z],T%" SCNd64 ",L%" SCNd64 ",S%" SCNu64, order, epoch, &c.tokens, &c.context, &c.seed) != 5)
    fail_msg("%s: no such case", case_text);
  int found = 0;
  for (int i = 0; i < 3; i++)
    if (strcmp(order, order_names[i]) == 0) c.order = (hark_order)i, found++;
  for (int i = 0; i < 2; i++)
    if (strcmp(epoch, epoch_names[i]) == 0) c.epoch = (hark_epoch_unit)i, found++;
  assert_int_equal(found, 2);
  check_case(&c);
}

int main(int argument_count, char **arguments) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(permutations_are_bijections),
      cmocka_unit_test(permutations_may_be_large),
      cmocka_unit_test(permutations_differ),
      cmocka_unit_test(orders_keep_their_promises),
      cmocka_unit_test(shuffling_leaves_no_token_out),
      cmocka_unit_test(random_starts_are_uniform),
      cmocka_unit_test(too_little_text_is_said),
      cmocka_unit_test(evaluation_sees_every_target_once),
      cmocka_unit_test(sliding_windows_count_every_target_once),
  };
  const struct CMUnitTest one[] = {cmocka_unit_test(one_case)};
  if (argument_count > 1) {
    case_text = arguments[1];
    return cmocka_run_group_tests(one, NULL, NULL);
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}

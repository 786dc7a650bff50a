/* test_example_batches.c - which example is which sample, and how examples are packed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/example_batches.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "tokenizers/tokenizer.h"

#define EXAMPLES 23

static hark_context *context;
static char folder[TEST_PATH_BYTES];
static hark_examples *texts, *pairs, *sequences;

/* Text i is i + 1 letters; its class is i % 2. */
static void write_texts(void) {
  char lines[4096] = "", words[4096] = "";
  for (int i = 0; i < EXAMPLES; i++) {
    char letters[EXAMPLES + 1] = "";
    memset(letters, 'a' + i % 26, (size_t)i + 1);
    (void)snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%d\t%s\n", i % 2, letters);
    (void)snprintf(words + strlen(words), sizeof words - strlen(words), "%d\tp\tq\t%s\t%s\n", i % 2, letters, "xyz");
  }
  test_file_write_text(folder, "texts.tsv", lines);
  test_file_write_text(folder, "pairs.tsv", words);
  test_file_write_text(folder, "words.tsv", "Words\ta b c\na b c\t1:c\nb\t0:a\nc c a b\t0:a 3:b\n");
}

static hark_examples *open_file(const char *format, const char *name) {
  const char *path = test_path(folder, name);
  const hark_examples_settings settings = {.format = format, .paths = &path, .path_count = 1};
  hark_examples *examples = NULL;
  assert_fine(context, hark_examples_open(context, &settings, &examples));
  return examples;
}

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  test_folder_make(folder);
  write_texts();
  texts = open_file("text", "texts.tsv");
  pairs = open_file("pairs", "pairs.tsv");
  sequences = open_file("sequences", "words.tsv");
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_examples_close(context, &texts);
  hark_examples_close(context, &pairs);
  hark_examples_close(context, &sequences);
  test_folder_remove(folder);
  test_setup_close(context);
  return 0;
}

static hark_example_batches batches_of(const hark_examples *examples, hark_order order, uint64_t seed, bool class_token) {
  const hark_example_batches_settings settings = {
      .order = order, .seed = seed, .class_token = class_token, .longest = EXAMPLES, .named_for = "model.context"};
  hark_example_batches batches;
  assert_fine(context, hark_example_batches_create(context, examples, &settings, &batches));
  return batches;
}

/* Every example once an epoch, in an order of the epoch's and the seed's own. */
static void epochs_are_permutations(void **state) {
  (void)state;
  int64_t orders[3][EXAMPLES];
  for (int64_t epoch = 0; epoch < 3; epoch++) {
    const hark_example_batches batches = batches_of(texts, HARK_ORDER_SHUFFLED, epoch < 2 ? 7 : 8, false);
    bool seen[EXAMPLES] = {false};
    for (int64_t i = 0; i < EXAMPLES; i++) {
      const int64_t index = hark_example_batches_index(&batches, (epoch % 2) * EXAMPLES + i);
      assert_in_range(index, 0, EXAMPLES - 1);
      assert_false(seen[index]);
      seen[index] = true;
      orders[epoch][i] = index;
    }
  }
  assert_memory_not_equal(orders[0], orders[1], sizeof orders[0]);
  assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
  const hark_example_batches sequential = batches_of(texts, HARK_ORDER_SEQUENTIAL, 7, false);
  for (int64_t i = 0; i < 2 * EXAMPLES; i++) assert_int_equal(hark_example_batches_index(&sequential, i), i % EXAMPLES);
}

/* 23,000 draws: each of 23 examples 1,000 times, with a deviation of 31; five of them. */
static void drawn_examples_are_uniform(void **state) {
  (void)state;
  const hark_example_batches batches = batches_of(texts, HARK_ORDER_RANDOM, 3, false);
  int64_t counts[EXAMPLES] = {0};
  for (int64_t i = 0; i < 1000 * EXAMPLES; i++) counts[hark_example_batches_index(&batches, i)]++;
  for (int i = 0; i < EXAMPLES; i++) assert_in_range(counts[i], 1000 - 155, 1000 + 155);
}

/* Room for a batch of any of the tests. */
typedef struct room {
  int32_t inputs[512], positions[512], targets[512];
  int64_t segments[512], ranges[128];
  hark_example_batch batch;
} room;

static hark_example_batch *room_of(room *r) {
  memset(r, 0x5a, sizeof *r);
  r->batch = (hark_example_batch){
      .inputs = r->inputs, .positions = r->positions, .targets = r->targets, .segments = r->segments, .ranges = r->ranges};
  return &r->batch;
}

/* Rows are exactly the examples' tokens, with the class token in front where it is asked for, and nothing else. */
static void examples_are_packed_without_padding(void **state) {
  (void)state;
  static room r;
  for (int with_class = 0; with_class < 2; with_class++)
    for (int part_count = 1; part_count <= 2; part_count++) {
      const hark_examples *examples = part_count == 1 ? texts : pairs;
      const hark_example_batches batches = batches_of(examples, HARK_ORDER_SHUFFLED, 5, with_class != 0);
      hark_example_batch *batch = room_of(&r);
      assert_fine(context, hark_example_batches_read(context, &batches, 20, 6, batch)); /* over the end of an epoch */
      int64_t at = 0, longest = 0;
      for (int64_t row = 0; row < 6; row++) {
        const int64_t index = hark_example_batches_index(&batches, 20 + row);
        assert_int_equal(batch->targets[row], hark_examples_label(examples, HARK_SPLIT_TRAINING, index));
        for (int part = 0; part < part_count; part++) {
          const int64_t sequence = row * part_count + part, length = hark_examples_length(examples, HARK_SPLIT_TRAINING, index, part);
          int32_t tokens[EXAMPLES];
          assert_fine(context, hark_examples_read(context, examples, HARK_SPLIT_TRAINING, index, part, tokens));
          assert_int_equal(batch->ranges[2 * sequence], at);
          for (int64_t i = -with_class; i < length; i++, at++) {
            assert_int_equal(batch->inputs[at], i < 0 ? HARK_TOKEN_CLASS : tokens[i]);
            assert_int_equal(batch->positions[at], i + with_class);
            assert_int_equal(batch->segments[at], sequence);
          }
          assert_int_equal(batch->ranges[2 * sequence + 1], at);
          longest = length + with_class > longest ? length + with_class : longest;
        }
      }
      assert_int_equal(batch->tokens, at);
      assert_int_equal(batch->longest, longest);
      assert_int_equal(batch->rows, 6);
      assert_int_equal(batch->real, 6);
      assert_true(batch->tokens <= hark_example_batches_most_tokens(&batches, 6));
    }
}

static void targets_of_tokens_are_counted(void **state) {
  (void)state;
  static room r;
  const hark_example_batches batches = batches_of(sequences, HARK_ORDER_SEQUENTIAL, 1, false);
  hark_example_batch *batch = room_of(&r);
  assert_fine(context, hark_example_batches_read(context, &batches, 0, 3, batch));
  assert_int_equal(batch->tokens, 8);
  assert_int_equal(batch->real, 4);
  const int a = HARK_TOKEN_RESERVED, b = a + 1, c = a + 2;
  const int32_t inputs[] = {a, b, c, b, c, c, a, b}, targets[] = {-1, c, -1, a, a, -1, -1, b};
  assert_memory_equal(batch->inputs, inputs, sizeof inputs);
  assert_memory_equal(batch->targets, targets, sizeof targets);
  int64_t real = 0;
  int32_t scratch[8];
  assert_fine(context, hark_example_batches_targets(context, &batches, 1, 4, scratch, &real)); /* b; c c a b; a b c; b */
  assert_int_equal(real, 5);
  const hark_example_batches classes = batches_of(texts, HARK_ORDER_RANDOM, 1, false);
  assert_fine(context, hark_example_batches_targets(context, &classes, 3, 9, scratch, &real));
  assert_int_equal(real, 9);
}

static void what_does_not_fit_is_refused(void **state) {
  (void)state;
  hark_example_batches batches;
  hark_example_batches_settings settings = {.longest = EXAMPLES - 1, .named_for = "model.context"};
  assert_failure(context, hark_example_batches_create(context, texts, &settings, &batches), HARK_BAD_CONFIGURATION,
                 "1 of the training examples has more tokens than model.context, 22: the first is number 23 with 23, the longest has 23");
  settings.split = HARK_SPLIT_TEST;
  assert_failure(context, hark_example_batches_create(context, texts, &settings, &batches), HARK_BAD_CONFIGURATION,
                 "there are no test examples");
  settings.split = HARK_SPLIT_ALL;
  assert_failure(context, hark_example_batches_create(context, texts, &settings, &batches), HARK_INVALID_ARGUMENT, "an invalid value");
  static room r;
  batches = batches_of(texts, HARK_ORDER_SEQUENTIAL, 1, false);
  assert_failure(context, hark_example_batches_read(context, &batches, -1, 1, room_of(&r)), HARK_INVALID_ARGUMENT, "from sample -1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(epochs_are_permutations),
      cmocka_unit_test(drawn_examples_are_uniform),
      cmocka_unit_test(examples_are_packed_without_padding),
      cmocka_unit_test(targets_of_tokens_are_counted),
      cmocka_unit_test(what_does_not_fit_is_refused),
  };
  return cmocka_run_group_tests_name("example_batches", tests, begin, end);
}

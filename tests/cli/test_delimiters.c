/* test_delimiters.c - delimiters of chunks that are given as texts: the same runs as with the numbers of their tokens, in training,
 * evaluation, generation and resumed runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define DECODER                                                                                                                            \
  "train --data text.txt --layers 2 --width 16 --heads 2 --context 24 --batch 4 --threads 1 --steps 6 --structure compressed "             \
  "--attention-chunk 2 --evaluate-every 3 "
#define LEARNED                                                                                                                            \
  "train --data text.txt --layers 2 --width 16 --heads 2 --context 24 --batch 4 --threads 1 --structure window,compressed --window 4 "     \
  "--attention-chunk 2 --learned-chunks --evaluate-every 3 --schedule constant --warmup 1 "
#define LABELLED                                                                                                                           \
  "train --data pairs --format sequences --layers 2 --width 16 --heads 2 --context 16 --batch 4 --threads 1 --evaluate-every 3 "           \
  "--structure window,compressed --window 4 --attention-chunk 2 --learned-chunks "
#define CLASSIFIER                                                                                                                         \
  "train --format text --classes 3 --data texts.tsv --validation-fraction 0.25 --architecture ahca --layers 2 --width 16 --heads 2 "       \
  "--context 12 --chunk-size 4 --model.ahca.chunk-minimum 1 --primary-slots 2 --secondary-slots 4 --selected 2 --batch 4 --threads 1 "     \
  "--steps 6 --evaluate-every 3 --chunk delimiter --model.ahca.delimiter -1 --model.ahca.more-delimiters "

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* The loss of `hark eval WORDS --json`, to the bit. */
static double loss_of(const char *words) {
  char line[256];
  (void)snprintf(line, sizeof line, "eval %s --json --threads 1", words);
  expect(line, HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  const double loss = command_number(object, "loss");
  json_decref(object);
  return loss;
}

/* What `hark generate RUN` prints, to be freed. */
static char *text_of(const char *run) {
  char line[256];
  (void)snprintf(line, sizeof line, "generate %s --prompt the --max-new-tokens 30 --temperature 0 --threads 1", run);
  expect(line, HARK_EXIT_DONE, "", "");
  char *const text = strdup(output.out);
  assert_non_null(text);
  return text;
}

/* "7" or "7+3": the tokens of a text, as options have them. */
static void tokens_of(const char *run, const char *text, char *out) {
  char line[256];
  test_file_write_text(folder, "piece.txt", text);
  (void)snprintf(line, sizeof line, "tokenize %s piece.txt", run);
  expect(line, HARK_EXIT_DONE, "[", "");
  *out = '\0';
  for (const char *at = output.out; (at = strpbrk(at, "0123456789")) != NULL; at += strspn(at, "0123456789"))
    (void)sprintf(out + strlen(out), "%s%d", *out != '\0' ? "+" : "", atoi(at));
}

static void decoders_cut_after_texts_as_after_their_tokens(void **state) {
  (void)state;
  char pair[64], letter[64], words[512];
  expect(DECODER "--out texts --chunk-delimiters 'k ' --model.attention.delimiters ow", HARK_EXIT_DONE, "step 6", "");
  tokens_of("texts", "k ", pair);
  tokens_of("texts", "ow", letter);
  assert_non_null(strchr(pair, '+'));
  (void)snprintf(words, sizeof words, DECODER "--out numbers --chunk-delimiters %s,%s", pair, letter);
  expect(words, HARK_EXIT_DONE, "step 6", "");
  expect(DECODER "--out others --chunk-delimiters 'k'", HARK_EXIT_DONE, "step 6", "");

  assert_true(loss_of("texts") == loss_of("numbers"));
  assert_true(loss_of("texts") != loss_of("others"));
  (void)snprintf(words, sizeof words, "others --chunk-delimiters %s,%s", pair, letter);
  assert_true(loss_of("others --chunk-delimiters 'k ' --model.attention.delimiters ow") == loss_of(words));
  char *const by_texts = text_of("texts"), *const by_numbers = text_of("numbers");
  assert_string_equal(by_texts, by_numbers);
  free(by_texts);
  free(by_numbers);
  expect("train --resume texts --steps 9 --threads 1", HARK_EXIT_DONE, "step 9", "");
  expect("train --resume numbers --steps 9 --threads 1", HARK_EXIT_DONE, "step 9", "");
  assert_true(loss_of("texts --checkpoint last") == loss_of("numbers --checkpoint last"));
  expect("train --resume texts --steps 12 --chunk-delimiters 'k '", HARK_EXIT_USAGE, "", "chunk-delimiters");
  expect("report texts -o report.html", HARK_EXIT_DONE, "", "");
  expect("export texts -o texts.safetensors", HARK_EXIT_DONE, "", "");
}

static void classifiers_cut_after_texts_as_after_their_tokens(void **state) {
  (void)state;
  static char lines[2400];
  size_t length = 0;
  for (int i = 0; i < 120; i++) length += (size_t)sprintf(lines + length, "%d\tabcb%cbca\n", i % 3, "abc"[i * i % 3]);
  test_file_write_text(folder, "texts.tsv", lines);
  expect(CLASSIFIER "cb --out texts_ahca", HARK_EXIT_DONE, "step 6", "");
  expect(CLASSIFIER "104+103 --out numbers_ahca", HARK_EXIT_DONE, "step 6", ""); /* bytes after five reserved tokens */
  expect(CLASSIFIER "bc --out others_ahca", HARK_EXIT_DONE, "step 6", "");
  assert_true(loss_of("texts_ahca") == loss_of("numbers_ahca"));
  assert_true(loss_of("texts_ahca") != loss_of("others_ahca"));
  expect("train --resume texts_ahca --steps 9 --threads 1", HARK_EXIT_DONE, "step 9", "");
  expect("predict texts_ahca --data texts.tsv --threads 1", HARK_EXIT_DONE, "probability", "");
}

/* An interrupted run equals one that is not, and the mean length of chunks has a loss. */
static void learned_chunks_are_trained(void **state) {
  (void)state;
  expect(LEARNED "--out learned --steps 6", HARK_EXIT_DONE, "step 6", "");
  char *const metrics = test_file_text(folder, "learned/metrics.jsonl");
  assert_non_null(strstr(metrics, "train/ratio_loss"));
  free(metrics);
  expect(LEARNED "--out parts --steps 3", HARK_EXIT_DONE, "step 3", "");
  expect("train --resume parts --steps 6 --threads 1", HARK_EXIT_DONE, "step 6", "");
  assert_true(loss_of("learned") == loss_of("parts"));
  char *const one = text_of("learned"), *const other = text_of("parts");
  assert_string_equal(one, other);
  free(one);
  free(other);
  expect("export learned -o learned.safetensors", HARK_EXIT_DONE, "", "");
  expect(LEARNED "--out none --steps 1 --chunk-delimiters k", HARK_EXIT_USAGE, "", "learned-chunks");
  expect(LEARNED "--out none --steps 1 --model.attention.chunk_mean 1", HARK_EXIT_USAGE, "", "chunk_mean is 1, expected 2 to 8");
  expect(LEARNED "--out none --steps 1 --structure compressed", HARK_EXIT_USAGE, "", "structure that begins with another one");
  expect("eval learned --learned-chunks", HARK_EXIT_USAGE, "", "--learned-chunks");
}

/* Packed examples with targets at tokens; blocks that are computed again give the same gradients. */
static void learned_chunks_of_labelled_tokens(void **state) {
  (void)state;
  expect("data make recall --length 16 --pairs 2 --training 64 --validation 16 --test 1 --out pairs", HARK_EXIT_DONE, "", "");
  expect(LABELLED "--out kept --steps 6", HARK_EXIT_DONE, "step 6", "");
  expect(LABELLED "--out again --steps 6 --recompute", HARK_EXIT_DONE, "step 6", "");
  char *const metrics = test_file_text(folder, "again/metrics.jsonl");
  assert_non_null(strstr(metrics, "train/ratio_loss"));
  free(metrics);
  assert_true(loss_of("kept") == loss_of("again"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(decoders_cut_after_texts_as_after_their_tokens),
                                     cmocka_unit_test(classifiers_cut_after_texts_as_after_their_tokens),
                                     cmocka_unit_test(learned_chunks_are_trained), cmocka_unit_test(learned_chunks_of_labelled_tokens)};
  return cmocka_run_group_tests(tests, begin, end);
}

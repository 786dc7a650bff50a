/* test_sentences.c - the command on text as sentences with sub-words: train, eval, generate, estimate, and what is refused; without
 * SentencePiece, that it is missing. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

#define SENTENCES "--unit sentences --layers 1 --width 16 --heads 2 --context 16 --batch 4 --steps 8 --log-every 4 --threads 1 "
#define SUBWORDS "--tokenizer subwords --subwords 300 "

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* Sentences that end after three to nine words. */
static int begin(void **state) {
  (void)state;
  static const char *const words[] = {"the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "at", "noon"};
  static char text[16384] = "";
  command_place_open(folder);
  for (int i = 0; i < 120; i++) {
    for (int w = 0; w < 3 + i % 7; w++)
      (void)snprintf(text + strlen(text), 16, "%s%s", w > 0 ? " " : "", words[(i * i + 3 * w) % (int)(sizeof words / sizeof *words)]);
    strcat(text, i % 10 == 9 ? ".\n\n" : ".\n");
  }
  test_file_write_text(folder, "sentences.txt", text);
  test_file_write_text(folder, "blank.txt", "\n \n\t\n");
  test_file_write_text(folder, "few.txt", "aa ab\nab aa b\n");
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* A file alone, too, begins with BEGIN and stops where the sentence ends. */
static void files_write_the_sentences_of_their_run(void) {
#define LONG " --max-new-tokens 4000 --temperature 1 --seed 5 --threads 1 --json"
  expect("export plain --output plain.safetensors", HARK_EXIT_DONE, "plain.safetensors", "");
  expect("generate plain" LONG, HARK_EXIT_DONE, "\\n\"", "");
  json_t *const run = command_json(&output);
  expect("generate plain.safetensors" LONG, HARK_EXIT_DONE, "\\n\"", "");
  json_t *const file = command_json(&output);
  const char *const text = json_string_value(json_object_get(run, "text"));
  assert_true(command_number(run, "tokens") < 4000);
  assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
  assert_string_equal(json_string_value(json_object_get(file, "text")), text);
  json_decref(run);
  json_decref(file);
#undef LONG
}

static void sentences_of_characters(void **state) {
  (void)state;
  expect("train --out plain --data sentences.txt " SENTENCES, HARK_EXIT_DONE, "step 8", "sentences: ");
  expect("eval plain --json --threads 1", HARK_EXIT_DONE, "\"bits_per_byte\"", "");
  json_t *const line = command_json(&output);
  assert_null(json_object_get(line, "word_perplexity"));                                                   /* tokens are no sub-words */
  assert_true(fabs(command_number(line, "bits_per_byte") - command_number(line, "loss") / log(2)) < 1e-9); /* a target a byte */
  json_decref(line);
  expect("eval plain --context 32 --stride 4", HARK_EXIT_USAGE, "",
         "--context: has no effect here, it needs data.unit text (currently sentences)");
  expect("eval plain --data blank.txt --threads 1", HARK_EXIT_BAD_INPUT, "", "has no sentences");
  expect("generate plain --prompt the --max-new-tokens 5 --threads 1", HARK_EXIT_DONE, "the", "");
  files_write_the_sentences_of_their_run();
  expect("train --estimate --data sentences.txt " SENTENCES, HARK_EXIT_DONE, "memory", "");
  expect("train --out blank --data blank.txt " SENTENCES, HARK_EXIT_BAD_INPUT, "", "has no sentences");
  expect("train --out long --data sentences.txt --data.long-sentences refuse " SENTENCES, HARK_EXIT_BAD_INPUT, "",
         "model.context has room for 16");
}

/* Windows of sentences are not full: a length in tokens is reached all the same, and not a step later. */
static void lengths_in_tokens_are_reached(void **state) {
  (void)state;
  enum { TOKENS = 3000, BATCH = 4, LONGEST = 16 };
  static const char *const orders[] = {"shuffled", "random", "sequential"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    char words[512], name[64];
    (void)snprintf(
        words, sizeof words,
        "train --out %s --order %s --data sentences.txt --unit sentences --layers 1 --width 16 --heads 2 --context %d --batch %d "
        "--tokens %d --log-every 1 --threads 1",
        orders[i], orders[i], LONGEST, BATCH, TOKENS);
    expect(words, HARK_EXIT_DONE, "(done)", "");
    (void)snprintf(name, sizeof name, "%s/metrics.jsonl", orders[i]);
    char *const metrics = test_file_text(folder, name);
    double before = 0, last = 0;
    for (char *line = strtok(metrics, "\n"); line != NULL; line = strtok(NULL, "\n")) {
      json_error_t error;
      json_t *const object = json_loads(line, 0, &error);
      const double tokens = json_number_value(json_object_get(object, "tokens"));
      if (tokens > last) {
        before = last;
        last = tokens;
      }
      json_decref(object);
    }
    free(metrics);
    assert_true(before < TOKENS && last >= TOKENS && last < TOKENS + BATCH * LONGEST);
  }
}

#ifdef HARK_WITH_SENTENCEPIECE
static void sentences_of_sub_words(void **state) {
  (void)state;
  expect("train --out one --data sentences.txt " SENTENCES SUBWORDS, HARK_EXIT_DONE, "step 8", "in the vocabulary");
  expect("train --out two --data sentences.txt " SENTENCES SUBWORDS, HARK_EXIT_DONE, "step 8", "");
  char *const one = test_file_text(test_path(folder, "one"), "vocabulary.json"), *const two = test_file_text(test_path(folder, "two"),
                                                                                                             "vocabulary.json");
  assert_string_equal(one, two); /* learned twice */
  assert_non_null(strstr(one, "\"model\": \"unigram\""));
  free(one);
  free(two);
  expect("eval one --json --threads 1", HARK_EXIT_DONE, "\"word_perplexity\"", "");
  json_t *const line = command_json(&output);
  assert_true(command_number(line, "word_perplexity") > command_number(line, "perplexity"));
  json_decref(line);
  expect("eval one --threads 1", HARK_EXIT_DONE, " a word;", "");
  expect("generate one --prompt 'the  q\xC3\xA9' --max-new-tokens 5 --threads 1", HARK_EXIT_DONE, "the  q\xC3\xA9", "");
  expect("train --out one --resume --steps 10", HARK_EXIT_DONE, "step 10", "continuing from step-8");
  expect("train --out one --resume --subwords 301", HARK_EXIT_USAGE, "", "data.subwords.vocabulary");
  expect("train --out three --data sentences.txt --data.subwords.model bpe " SENTENCES SUBWORDS, HARK_EXIT_DONE, "step 8", "");
}

static void vocabularies_that_cannot_be(void **state) {
  (void)state;
  expect("train --out big --data few.txt " SENTENCES "--tokenizer subwords --subwords 5000", HARK_EXIT_USAGE, "",
         "a vocabulary of 5000 tokens, 4739 of them pieces: SentencePiece: ");
  expect("train --out small --data sentences.txt " SENTENCES "--tokenizer subwords --subwords 262", HARK_EXIT_USAGE, "",
         "a vocabulary of 262 tokens, 1 of them pieces: SentencePiece: ");
  expect("train --out none --data sentences.txt " SENTENCES "--tokenizer subwords --subwords 200", HARK_EXIT_USAGE, "",
         "expected more than the 261");
}
#else
static void sentencepiece_is_missing(void **state) {
  (void)state;
  expect("train --out one --data sentences.txt " SENTENCES SUBWORDS, HARK_EXIT_USAGE, "", "HARK_WITH_SENTENCEPIECE");
  assert_int_equal(test_line_count(output.err), 1);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sentences_of_characters),
      cmocka_unit_test(lengths_in_tokens_are_reached),
#ifdef HARK_WITH_SENTENCEPIECE
      cmocka_unit_test(sentences_of_sub_words),
      cmocka_unit_test(vocabularies_that_cannot_be),
#else
      cmocka_unit_test(sentencepiece_is_missing),
#endif
  };
  return cmocka_run_group_tests(tests, begin, end);
}

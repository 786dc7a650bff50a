/* test_tokenize.c - hark tokenize and hark detokenize: of a run, its exported model, its vocabulary.json and a tokenizer.json; there and
 * back; and what is refused, with its place. */
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define SMALL "--layers 1 --width 8 --heads 1 --context 4 --batch 1 --steps 1 --log-every 1 --threads 1 --validation-fraction 0.2"

static const char words[] =
    "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"the\": 0, \"dog\": 1, \"?\": 2}, \"unk_token\": \"?\"},"
    " \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"},"
    " \"added_tokens\": [{\"id\": 5, \"content\": \"<s>\", \"special\": true}],"
    " \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": "
    "\"A\"}}],"
    " \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [5]}}}}";

static void expect(const char *line, int code, const char *in_out, const char *in_err) {
  command_expect(folder, line, code, in_out, in_err, &output);
}

static void runs_exported_models_and_vocabularies(void **state) {
  (void)state;
  test_file_write_text(folder, "corpus.txt", "ab ba abba\nbab a\nab ba abba\nbab a\nab ba abba\n");
  test_file_write_text(folder, "lines.txt", "abba\n\nba ab\n");
  expect("train --out run --data corpus.txt " SMALL, HARK_EXIT_DONE, "", "");
  expect("export run --output model.safetensors", HARK_EXIT_DONE, "", "");
  static const char *const models[] = {"run", "model.safetensors", "run/vocabulary.json"};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    char line[256];
    (void)snprintf(line, sizeof line, "tokenize %s lines.txt", models[i]);
    expect(line, HARK_EXIT_DONE, "[7, 8, 8, 7]\n[]\n[8, 7, 6, 7, 8]\n", "");
    test_file_write_text(folder, "tokens.jsonl", output.out);
    (void)snprintf(line, sizeof line, "detokenize %s tokens.jsonl", models[i]);
    expect(line, HARK_EXIT_DONE, "abba\n\nba ab\n", "");
  }
  test_file_write_text(folder, "other.txt", "ab\naxb\n");
  expect("tokenize run other.txt", HARK_EXIT_BAD_INPUT, "", "other.txt:2:2: U+0078 is not in the vocabulary (byte offset 4)");
  expect("tokenize run other.txt --unknown map", HARK_EXIT_DONE, "[7, 1, 8]", "");
  expect("tokenize run lines.txt --no-special", HARK_EXIT_USAGE, "", "--no-special: has no effect here, it needs a tokenizer.json");
}

static void a_tokenizer_json(void **state) {
  (void)state;
  test_file_write_text(folder, "tokenizer.json", words);
  test_file_write_text(folder, "dogs.txt", "the dog\n\nthe cat <s> dog\n");
  expect("tokenize tokenizer.json dogs.txt", HARK_EXIT_DONE, "[5, 0, 1]\n[5]\n[5, 0, 2, 5, 1]\n", "");
  test_file_write_text(folder, "dogs.jsonl", output.out);
  expect("tokenize . dogs.txt --no-special", HARK_EXIT_DONE, "[0, 1]\n[]\n[0, 2, 5, 1]\n", ""); /* the folder of a model */
  expect("detokenize tokenizer.json dogs.jsonl", HARK_EXIT_DONE, "the dog\n\nthe ? dog\n", "");
  expect("detokenize tokenizer.json dogs.jsonl --special", HARK_EXIT_DONE, "<s> the dog\n<s>\n<s> the ? <s> dog\n", "");
  expect("tokenize tokenizer.json dogs.txt --unknown map", HARK_EXIT_USAGE, "",
         "--unknown: has no effect here, it needs the vocabulary of a run");
}

/* The vocabulary of a run, of its exported model and its own file, as a tokenizer.json with the same tokens. */
static void vocabularies_are_exported(void **state) {
  (void)state;
  test_file_write_text(folder, "corpus.txt", "ab ba abba\nbab a\nab ba abba\nbab a\nab ba abba\n");
  test_file_write_text(folder, "lines.txt", "abba\n\nba ab\n");
  expect("train --out exported --data corpus.txt " SMALL, HARK_EXIT_DONE, "", "");
  expect("export exported --output exported.safetensors", HARK_EXIT_DONE, "", "");
  static const char *const models[] = {"exported", "exported.safetensors", "exported/vocabulary.json"};
  for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
    char line[256];
    (void)snprintf(line, sizeof line, "export %s --format tokenizer.json --output own-%zu.json", models[i], i);
    expect(line, HARK_EXIT_DONE, "9 tokens of ", "");
    (void)snprintf(line, sizeof line, "tokenize own-%zu.json lines.txt", i);
    expect(line, HARK_EXIT_DONE, "[7, 8, 8, 7]\n[]\n[8, 7, 6, 7, 8]\n", "");
    test_file_write_text(folder, "tokens.jsonl", output.out);
    (void)snprintf(line, sizeof line, "detokenize own-%zu.json tokens.jsonl", i);
    expect(line, HARK_EXIT_DONE, "abba\n\nba ab\n", "");
  }
  expect("export exported --format tokenizer.json --json --output own.json", HARK_EXIT_DONE, "\"tokens\": 9}", "");
  expect("export exported --format tokenizer.json --type bf16", HARK_EXIT_USAGE, "", "--type: has no effect here, it needs --format hark");
  expect("export own.json --format tokenizer.json", HARK_EXIT_USAGE, "", "own.json: is not a vocabulary of hark");
  test_file_write(folder, "zero.txt", "a\0b a\0b a\0b a\0b a\0b a\0b", 23);
  expect("train --out zero --data zero.txt " SMALL, HARK_EXIT_DONE, "", "");
  expect("export zero --format tokenizer.json", HARK_EXIT_USAGE, "", "U+0000 is one of its symbols");
}

static void damage_is_placed(void **state) {
  (void)state;
  test_file_write_text(folder, "t.json", words);
  test_file_write_text(folder, "bad.txt", "the\nthe \xff\n");
  expect("tokenize t.json bad.txt", HARK_EXIT_BAD_INPUT, "", "bad.txt:2:5: invalid UTF-8: byte that never occurs (byte offset 8)");
  test_file_write_text(folder, "bad.jsonl", "[1]\n[1, 6]\n");
  expect("detokenize t.json bad.jsonl", HARK_EXIT_BAD_INPUT, "", "bad.jsonl:2:5: token 6 is not in the vocabulary of 6 tokens");
  assert_string_equal(output.out, ""); /* nothing of the good first line */
  (void)test_file_write_text(folder, "bad.jsonl", "[99999999999999999999]\n");
  expect("detokenize t.json bad.jsonl", HARK_EXIT_BAD_INPUT, "", "bad.jsonl:1:2: token 99999999999999999999 is not in the vocabulary");
  test_file_write_text(folder, "bad.jsonl", "[1, x]\n");
  expect("detokenize t.json bad.jsonl", HARK_EXIT_BAD_INPUT, "", "bad.jsonl:1:5: expected a list of tokens, [1, 2, 3]");
  test_file_write_text(folder, "cut.json", "{\"model\": {\"type\": ");
  expect("tokenize cut.json bad.txt", HARK_EXIT_BAD_INPUT, "", "cut.json: line 1, column 20: the text ends too early");
  test_file_write_text(folder, "x.json", "{\"model\": {\"type\": \"X\"}}");
  expect("tokenize x.json bad.txt", HARK_EXIT_USAGE, "", "x.json: model.type 'X' is not supported");
  (void)test_file_write_text(folder, "lacks.json",
                             "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"t\": 0, \"h\": 1}, \"merges\": [], \"unk_token\": \"?\"}}");
  (void)test_file_write_text(folder, "good.txt", "th\nthe\n");
  expect("tokenize lacks.json good.txt", HARK_EXIT_BAD_INPUT, "",
         "good.txt:2:3: the vocabulary lacks 'e', and the token for what it lacks (unk_token) (byte offset 5)");
  expect("tokenize none.json bad.txt", HARK_EXIT_BAD_INPUT, "", "none.json");
  test_file_write_text(folder, "cut.model", "\n\x0E\xFF\x05<unk>");
  expect("tokenize cut.model bad.txt", HARK_EXIT_BAD_INPUT, "",
         "cut.model: read as a tokenizer.json, because it does not begin like a .model of SentencePiece: ");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_exported_models_and_vocabularies),
      cmocka_unit_test(a_tokenizer_json),
      cmocka_unit_test(vocabularies_are_exported),
      cmocka_unit_test(damage_is_placed),
  };
  return cmocka_run_group_tests(tests, begin, end);
}

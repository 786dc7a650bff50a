/* test_messages.c - what is said of strange input: the thing that is wrong is named, with a bound that is taken and a remedy that helps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  test_file_write_text(folder, "page",
                       "\n<!DOCTYPE HTML>\n<html><body>404: not found, of many words so that it is no small file</body></html>\n");
  test_file_write_text(folder, "pointer",
                       "version https://git-lfs.github.com/spec/v1\n"
                       "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n");
  test_file_write(folder, "zip", "PK\x03\x04\x14\x00\x00\x00more bytes", 18);
  test_file_write(folder, "gz", "\x1F\x8B\x08\x00more bytes", 14);
  (void)mkdir(test_path(folder, "reviews"), 0777);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

typedef struct message {
  const char *words;
  int code;
  const char *says;
} message;

static void check(const message *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    command_expect(folder, cases[i].words, cases[i].code, "", cases[i].says, &output);
    if (test_line_count(output.err) != 1) fail_msg("hark %s: %s", cases[i].words, output.err);
  }
}
#define CHECK(cases) check(cases, sizeof cases / sizeof *cases)

/* A page of a web server, or what git left, in the place of a file of any kind. */
static void foreign_files_are_named(void **state) {
  (void)state;
  static const message cases[] = {
      {"attend --input page --output o", HARK_EXIT_BAD_INPUT, "page: is an HTML page and not the file itself"},
      {"attend --input pointer --output o", HARK_EXIT_BAD_INPUT,
       "pointer: is a git-LFS pointer and not the file itself, which `git lfs pull`"},
      {"attend --input zip --output o", HARK_EXIT_BAD_INPUT, "zip: is a zip archive, expected safetensors"},
      {"attend --input gz --output o", HARK_EXIT_BAD_INPUT, "gz: is compressed with gzip, expected safetensors"},
      {"generate page", HARK_EXIT_BAD_INPUT, "page: is an HTML page"},
      {"generate pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"info pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"config --config page", HARK_EXIT_USAGE, "page: is an HTML page and not the file itself: its address gave a page, expected YAML"},
      {"config --config pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"sweep page", HARK_EXIT_USAGE, "page: is an HTML page"},
      {"train --out no --steps 1 --data pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"data info --format text page", HARK_EXIT_BAD_INPUT,
       "page: is an HTML page and not the file itself: its address gave a page, expected examples of format text"},
      {"data info --format image zip", HARK_EXIT_BAD_INPUT, "zip: is a zip archive, expected examples of format image"},
      {"data info --format vectors pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"data info --format text reviews", HARK_EXIT_BAD_INPUT,
       "reviews: is a folder, expected files of the format text (one example per line: label, tab, text"},
      {"data info reviews", HARK_EXIT_BAD_INPUT, "reviews: is a folder without a task, expected one of hark data make, with task.json"},
      {"train --out no --steps 1 --format examples --data reviews", HARK_EXIT_BAD_INPUT, "reviews: is a folder without a task"},
      {"import pointer -o o", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"import page -o o", HARK_EXIT_BAD_INPUT, "page: is an HTML page and not the file itself: its address gave a page, expected a model"},
      {"train --out no --data text.txt --init-from page", HARK_EXIT_BAD_INPUT,
       "page: is an HTML page and not the file itself: its address gave a page, expected a run"},
      {"train --out no --data text.txt --init-from pointer", HARK_EXIT_BAD_INPUT, "pointer: is a git-LFS pointer"},
      {"eval page", HARK_EXIT_BAD_INPUT, "page: is an HTML page"},
      {"plot page", HARK_EXIT_BAD_INPUT, "page: is an HTML page and not the file itself: its address gave a page, expected lines of JSON"},
      {"plot --evaluation line", HARK_EXIT_BAD_INPUT, "line: is an HTML page"},
      {"plot --evaluation empty", HARK_EXIT_BAD_INPUT, "empty: no evaluations, expected lines of hark eval --json"}};
  test_file_write_text(folder, "line", "<html>404</html>");
  test_file_write_text(folder, "empty", "");
  CHECK(cases);
  test_file_write_text(folder, "reviews/task.json", "<html></html>");
  static const message page[] = {{"data info reviews", HARK_EXIT_BAD_INPUT, "task.json: is an HTML page and not the file itself"}};
  CHECK(page);
  command_expect(folder, "train --out page-run --steps 1 --data page --tokenizer bytes " COMMAND_TINY, HARK_EXIT_DONE, "", "",
                 &output); /* a text */
}

/* Capital letters are the first thing to be mended. */
static void letters_of_the_other_case_are_near(void **state) {
  (void)state;
  static const message cases[] = {{"positional DECAY", HARK_EXIT_USAGE, "no kernel is called \"DECAY\"; decay is"},
                                  {"positional Rational_Quadratic", HARK_EXIT_USAGE, "rational_quadratic is"},
                                  {"config --STRUCTURE dense", HARK_EXIT_USAGE, "did you mean --structure?"},
                                  {"config --structure DENSE", HARK_EXIT_USAGE, "did you mean dense?"},
                                  {"config --structure HIER", HARK_EXIT_USAGE, "did you mean hierarchical?"},
                                  {"TRAIN", HARK_EXIT_USAGE, "did you mean train?"},
                                  {"data make COPY --out x", HARK_EXIT_USAGE, "did you mean copy?"},
                                  {"lab SPHERE", HARK_EXIT_USAGE, "did you mean sphere?"}};
  CHECK(cases);
}

static void kernels_say_what_is_wrong(void **state) {
  (void)state;
  static const message cases[] = {
      {"positional 'alibi(m=0.5,)'", HARK_EXIT_USAGE, "column 13: found ')', expected a parameter of alibi: m"},
      {"positional 'alibi(0.5,)'", HARK_EXIT_USAGE, "column 11: found ')', expected a parameter of alibi: m"},
      {"positional 'decay(l=3,)'", HARK_EXIT_USAGE, "found ')', expected a parameter of decay: sigma2, l"},
      {"positional 'alibi(m=0.5,m=0.25)'", HARK_EXIT_USAGE, "m is given twice"},
      {"positional 'decay(l=1e-61)'", HARK_EXIT_USAGE, "l is 1e-61, expected a positive number from 1e-60 to 1e60"},
      {"positional 'decay(l=0.1234567890123456)*decay(l=0)'", HARK_EXIT_USAGE, "l is 0, expected a positive number from 1e-60 to 1e60"},
      {"positional 'bank[1.5](decay)'", HARK_EXIT_USAGE, "the bank is 1.5, expected a whole number"}};
  CHECK(cases);
}

/* The ends of the range that is named are taken, also where parameters are held in f32. */
static void ends_of_kernels_are_taken(void **state) {
  (void)state;
  static const message cases[] = {
      {"train --out low --steps 2 --data text.txt --positions none --positional 'decay(l=1e-60)' " COMMAND_TINY, HARK_EXIT_DONE, "low"},
      {"train --out high --steps 2 --data text.txt --positions none --positional 'decay(l=1e60)' " COMMAND_TINY, HARK_EXIT_DONE, "high"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    command_expect(folder, cases[i].words, cases[i].code, cases[i].says, "", &output);
}

/* The character, and how to go on. What a run's text becomes cannot change. */
static void characters_are_shown(void **state) {
  (void)state;
  static const message cases[] = {
      {"generate run --prompt 'the 4'", HARK_EXIT_BAD_INPUT,
       "text:1:5: U+0034 is not in the vocabulary (byte offset 4): \"4\"; data.unknown map (--unknown map) maps such characters to the "
       "unknown "
       "token"},
      {"generate run --prompt 'the \xE2\x82\xAC'", HARK_EXIT_BAD_INPUT, "(byte offset 4): \"\xE2\x82\xAC\"; data.unknown map"},
      {"generate run --prompt '\x09'", HARK_EXIT_BAD_INPUT, "U+0009 is not in the vocabulary (byte offset 0): data.unknown map"},
      {"train --resume --out run --unknown map --steps 4", HARK_EXIT_USAGE,
       "--unknown: data.unknown cannot change when a run is resumed: \"map\" given, the run has \"error\""},
      {"train --resume --out run --validation-fraction 0.3 --steps 4", HARK_EXIT_USAGE,
       "data.validation_fraction cannot change when a run is resumed"},
      {"train --resume --out run --validation text.txt --steps 4", HARK_EXIT_USAGE,
       "--validation: data.split cannot change when a run is resumed"},
      {"generate run -n 1e-400", HARK_EXIT_USAGE, "-n: \"1e-400\" given, expected a whole number"}};
  command_expect(folder, "train --out run --steps 2 --data text.txt " COMMAND_TINY, HARK_EXIT_DONE, "", "", &output);
  CHECK(cases);
  command_expect(folder, "generate run --prompt 'the 4' --unknown map --max-new-tokens 2", HARK_EXIT_DONE, "", "", &output);
  command_expect(folder, "train --resume --out run --steps 4", HARK_EXIT_DONE, "", "", &output);
}

/* In lines of a file there is one place, with the character and the remedy. */
static void places_in_lines_are_named_once(void **state) {
  (void)state;
  static const message cases[] = {
      {"tokenize lines other.txt", HARK_EXIT_BAD_INPUT,
       "other.txt:2:5: U+00FC is not in the vocabulary (byte offset 8): \"\xC3\xBC\"; data.unknown map (--unknown map)"},
      {"embed lines other.txt", HARK_EXIT_BAD_INPUT,
       "other.txt:2:5: U+00FC is not in the vocabulary (byte offset 8): \"\xC3\xBC\"; data.unknown map (--unknown map)"}};
  command_expect(folder, "train --out lines --steps 2 --data text.txt " COMMAND_TINY, HARK_EXIT_DONE, "", "", &output);
  test_file_write_text(folder, "other.txt", "the\nthe \xC3\xBC the\n");
  CHECK(cases);
  assert_null(strstr(output.err, "text:"));
}

/* The same for a model whose symbols are words. */
static void words_in_lines_are_named_once(void **state) {
  (void)state;
  static const message cases[] = {{"embed words other.txt", HARK_EXIT_BAD_INPUT,
                                   "other.txt:2:3: \"nine\" is none of the model's words (byte offset 4); --unknown map maps such words"}};
  command_expect(folder, "data make listops --out task --training 8 --validation 4 --test 0 --length-above 4 --length-below 30",
                 HARK_EXIT_DONE, "", "", &output);
  command_expect(
      folder,
      "train --out words --steps 1 --data task --format examples --architecture encoder --layers 1 --width 16 --heads 2 --context 64 "
      "--batch 2 --threads 1",
      HARK_EXIT_DONE, "", "", &output);
  test_file_write_text(folder, "other.txt", "1\n1 nine 2\n");
  CHECK(cases);
}

/* The bound that is named is taken, and one more, or one less, is refused by the same bound. */
static void bounds_of_vocabularies_are_taken(void **state) {
  (void)state;
#ifdef HARK_WITH_SENTENCEPIECE
  static const char *const others[] = {"", " --data.subwords.model bpe", " --no-data.subwords.byte-fallback"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    for (int low = 0; low < 2; low++) {
      char words[512];
      const char *const format = "train --out sub-%d --steps 1 --data text.txt --tokenizer subwords --subwords %lld%s " COMMAND_TINY;
      (void)snprintf(words, sizeof words, format, (int)i, low == 0 ? 5000LL : i == 2 ? 9LL : 263LL, others[i]);
      command_expect(folder, words, HARK_EXIT_USAGE, "", "SentencePiece: ", &output);
      const char *const bound = strstr(output.err, "(--subwords ");
      if (bound == NULL) fail_msg("hark %s: %s", words, output.err);
      const long long named = atoll(bound + strlen("(--subwords "));
      (void)snprintf(words, sizeof words, format, 10 * (int)i + low + 10, named, others[i]);
      command_expect(folder, words, HARK_EXIT_DONE, "", "", &output);
      (void)snprintf(words, sizeof words, format, (int)i, low == 0 ? named + 1 : named - 1, others[i]);
      command_expect(folder, words, HARK_EXIT_USAGE, "", "SentencePiece: ", &output);
    }
#else
  skip();
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(foreign_files_are_named),       cmocka_unit_test(letters_of_the_other_case_are_near),
                                     cmocka_unit_test(kernels_say_what_is_wrong),     cmocka_unit_test(ends_of_kernels_are_taken),
                                     cmocka_unit_test(characters_are_shown),          cmocka_unit_test(places_in_lines_are_named_once),
                                     cmocka_unit_test(words_in_lines_are_named_once), cmocka_unit_test(bounds_of_vocabularies_are_taken)};
  return cmocka_run_group_tests_name("messages", tests, begin, end);
}

/* test_bad_tasks.c - what is wrong with a task, in hark train, eval and data info: one line that says it, exit code 2 or 3, nothing
 * written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

#define MODEL "--layers 1 --width 8 --heads 1 --context 8 --batch 2 --steps 2 --threads 1 "
#define ENCODER "--architecture encoder " MODEL
#define IMAGE_BYTES 3073
#define TASK(files) "{\"format_version\": 1, \"format\": \"text\", \"files\": {" files "}}"

static char folder[TEST_PATH_BYTES];
static test_output output;

/* An image of a class in CIFAR-10's format. */
static void write_image(const char *name, unsigned char label, size_t bytes) {
  unsigned char *const image = calloc(1, bytes + IMAGE_BYTES);
  image[0] = 1; /* the first one is fine */
  image[IMAGE_BYTES] = label;
  test_file_write(folder, name, image, IMAGE_BYTES + bytes);
  free(image);
}

/* A pathfinder file of 2 x 2 images of two classes, the second of class `label`. */
static void write_paths(const char *name, unsigned char label, size_t bytes) {
  unsigned char file[42] = "HARKIMGS";
  file[8] = 1;
  file[12] = file[16] = file[20] = file[24] = 2;
  file[37] = label;
  test_file_write(folder, name, file, bytes);
}

static int begin(void **state) {
  (void)state;
  static const char *const folders[] = {"no-task", "bad-task", "other-version", "no-file", "outside", "cut", "no-bytes", "bare"};
  command_place_open(folder);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) assert_int_equal(mkdir(test_path(folder, folders[i]), 0700), 0);
  test_file_write_text(folder, "bad-task/task.json", "{\"format_version\": 1,");
  test_file_write_text(folder, "other-version/task.json", "{\"format_version\": 2, \"format\": \"text\"}");
  test_file_write_text(folder, "no-file/task.json", TASK("\"training\": {\"name\": \"gone.tsv\"}"));
  test_file_write_text(folder, "outside/task.json", TASK("\"training\": {\"name\": \"../good.tsv\"}"));
  test_file_write_text(folder, "cut/task.json", TASK("\"training\": {\"name\": \"half.tsv\", \"bytes\": 12}"));
  test_file_write_text(folder, "no-bytes/task.json", TASK("\"training\": {\"name\": \"half.tsv\", \"bytes\": \"6\"}"));
  test_file_write_text(folder, "no-bytes/half.tsv", "0\tabc\n");
  test_file_write_text(folder, "cut/half.tsv", "0\tabc\n");
  test_file_write_text(folder, "good.tsv", "0\tabc\n1\tbca\n0\tab\n1\tba\n");
  test_file_write_text(folder, "three.tsv", "0\tabc\n1\tbca\n2\tab\n1\tba\n");
  test_file_write_text(folder, "label.tsv", "0\tabc\n2\tabc\n");
  test_file_write_text(folder, "fields.tsv", "0\tabc\n1 abc\n");
  test_file_write_text(folder, "empty-text.tsv", "0\tabc\n1\t\n");
  test_file_write_text(folder, "empty.tsv", "");
  test_file_write_text(folder, "long.tsv", "0\tabc\n1\tabcdefghi\n");
  test_file_write_text(folder, "bytes.tsv", "0\tabc\n1\ta\xFF\n");
  test_file_write_text(folder, "value.tsv", "Source\tTarget\n[MAX 1 2 ]\t2\n[MAX 1 2 ]\t11\n");
  test_file_write_text(folder, "open.tsv", "Source\tTarget\n[MAX 1 2\t2\n");
  test_file_write_text(folder, "words.tsv", "Words\ta b\na b\t1:c\n");
  test_file_write_text(folder, "sequences.tsv", "Words\ta b\na b\t1:b\nb a\t1:a\na a\t1:b\nb b\t1:a\n");
  test_file_write_text(folder, "late.tsv", "Words\ta b\na b\t1:b\nb a\t1:b\n");
  test_file_write_text(folder, "pair.tsv", "0\tx\ty\tabc\n");
  test_file_write_text(folder, "blank.txt", "\n \n\t\n");
  test_file_write_text(folder, "sentences.txt", "a b c\nthis sentence is too long for a window\na b\nc a b\na c\n");
  write_image("short.bin", 0, IMAGE_BYTES - 1);
  write_image("class.bin", 10, IMAGE_BYTES);
  write_paths("short.img", 1, 41);
  write_paths("class.img", 2, 42);
  command_expect(folder, "train --out run --data good.tsv --format text " ENCODER, HARK_EXIT_DONE, "", "", &output);
  command_expect(folder, "train --out three --data three.tsv --classes 3 --format text " ENCODER, HARK_EXIT_DONE, "", "", &output);
  test_file_write_text(folder, "short.txt", "#####");
  command_expect(folder, "train --out masked --data text.txt --architecture masked_encoder --mask-fraction 0.5 " MODEL, HARK_EXIT_DONE, "",
                 "", &output);
  command_expect(folder, "train --out text --data text.txt " MODEL, HARK_EXIT_DONE, "", "", &output);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

typedef struct wrong {
  const char *words;
  int code;
  const char *message;
} wrong;

/* Lines of stderr; one in front may warn, or say that a text is read. */
static int lines_of_error(void) {
  const char *const end = strchr(output.err, '\n');
  const int lines = test_line_count(output.err);
  if (end == NULL || lines < 2) return lines;
  const char *const warns = strstr(output.err, "warning: "), *const reads = strstr(output.err, "tokenising ");
  return lines - ((warns != NULL && warns < end) || (reads != NULL && reads < end));
}

static void refuse(const wrong *cases, size_t count) {
  const int names = test_folder_count(folder, "."), inside = test_folder_count(folder, "run"), bare = test_folder_count(folder, "bare");
  char *const metrics = test_file_text(folder, "run/metrics.jsonl");
  for (size_t i = 0; i < count; i++) {
    test_command_run(folder, "", cases[i].words, &output);
    if (output.code != cases[i].code || strstr(output.err, cases[i].message) == NULL)
      fail_msg("hark %s: exit code %d, %s, expected %d and \"%s\"", cases[i].words, output.code, output.err, cases[i].code,
               cases[i].message);
    if (lines_of_error() != 1 || output.out[0] != '\0') fail_msg("hark %s: %s%s", cases[i].words, output.out, output.err);
    if (test_folder_count(folder, ".") != names || test_folder_count(folder, "run") != inside || test_folder_count(folder, "bare") != bare)
      fail_msg("hark %s: wrote something", cases[i].words);
  }
  char *const after = test_file_text(folder, "run/metrics.jsonl");
  assert_string_equal(metrics, after);
  free(metrics);
  free(after);
}
#define REFUSE(cases) refuse(cases, sizeof(cases) / sizeof *(cases))

static void task_files(void **state) {
  (void)state;
  static const wrong cases[] = {
      {"train --out nothing --data gone --format text " ENCODER, HARK_EXIT_BAD_INPUT, "gone"},
      {"train --out nothing --data no-task --format examples " ENCODER, HARK_EXIT_BAD_INPUT, "no-task: is a folder without a task"},
      {"train --out nothing --data bad-task --format examples " ENCODER, HARK_EXIT_BAD_INPUT, "bad-task/task.json"},
      {"train --out nothing --data other-version --format examples " ENCODER, HARK_EXIT_BAD_INPUT, "\"format_version\" is not 1"},
      {"train --out nothing --data no-file --format examples " ENCODER, HARK_EXIT_BAD_INPUT, "gone.tsv"},
      {"train --out nothing --data outside --format examples " ENCODER, HARK_EXIT_BAD_INPUT, "of a file in this folder"},
      {"train --out nothing --data cut --format examples " ENCODER, HARK_EXIT_BAD_INPUT,
       "cut/task.json: half.tsv has 6 bytes, and \"bytes\" is 12: it was cut or changed"},
      {"train --out nothing --data no-bytes --format examples " ENCODER, HARK_EXIT_BAD_INPUT,
       "\"bytes\" of half.tsv is not a whole number"},
      {"train --out bare --data fields.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "fields.tsv:2:"},
      {"train --out bare --data long.tsv --format text " ENCODER, HARK_EXIT_USAGE, "the first is number 2 with 9"},
      {"train --out nothing --data good.tsv --format examples " ENCODER, HARK_EXIT_USAGE, "no format is given"},
      {"train --out nothing --data fields.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "fields.tsv:2:"},
      {"train --out nothing --data empty.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "holds no example"},
      {"train --out nothing --data bytes.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "bytes.tsv:2:4: invalid UTF-8"},
      {"train --out nothing --data open.tsv --format listops " ENCODER, HARK_EXIT_BAD_INPUT, "open.tsv:2:9: 1 bracket is not closed"},
      {"train --out nothing --data words.tsv --format sequences " MODEL, HARK_EXIT_BAD_INPUT, "words.tsv:2:"},
      {"train --out nothing --data pair.tsv --format pairs " ENCODER, HARK_EXIT_BAD_INPUT, "4 of 5 fields"},
      {"eval run --data gone.tsv", HARK_EXIT_BAD_INPUT, "gone.tsv"},
      {"eval run --data fields.tsv", HARK_EXIT_BAD_INPUT, "fields.tsv:2:"},
      {"data info bad-task", HARK_EXIT_BAD_INPUT, "bad-task/task.json"},
      {"data info --format text bytes.tsv", HARK_EXIT_BAD_INPUT, "invalid UTF-8"},
  };
  REFUSE(cases);
}

static void labels_and_sizes(void **state) {
  (void)state;
  static const wrong cases[] = {
      {"train --out nothing --data label.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "label.tsv:2:1: label 2 is out of range"},
      {"train --out nothing --data value.tsv --format listops " ENCODER, HARK_EXIT_BAD_INPUT, "value.tsv:3:12: value out of range"},
      {"train --out nothing --data class.bin --format image " ENCODER "--context 1024", HARK_EXIT_BAD_INPUT, "class.bin: "},
      {"train --out nothing --data short.bin --format image " ENCODER "--context 1024", HARK_EXIT_BAD_INPUT, "multiple of 3073"},
      {"train --out nothing --data class.img --format pathfinder " ENCODER, HARK_EXIT_BAD_INPUT, "class.img: "},
      {"train --out nothing --data short.img --format pathfinder " ENCODER, HARK_EXIT_BAD_INPUT, "short.img: "},
      {"eval run --data label.tsv", HARK_EXIT_BAD_INPUT, "label.tsv:2:1: label 2 is out of range"},
  };
  REFUSE(cases);
}

static void sequences_and_sentences(void **state) {
  (void)state;
  static const wrong cases[] = {
      {"train --out nothing --data empty-text.tsv --format text " ENCODER, HARK_EXIT_BAD_INPUT, "empty-text.tsv:2:3: empty text"},
      {"train --out nothing --data long.tsv --format text " ENCODER, HARK_EXIT_USAGE,
       "more tokens than model.context, 8: the first is number 2 with 9"},
      {"train --out nothing --data blank.txt --unit sentences " MODEL, HARK_EXIT_BAD_INPUT, "has no sentences"},
      {"train --out nothing --data sentences.txt --unit sentences --data.long-sentences refuse " MODEL, HARK_EXIT_BAD_INPUT,
       "model.context has room for 8"},
      {"train --out bare --data late.tsv --format sequences --length-limit 1 " MODEL, HARK_EXIT_USAGE,
       "the training examples have no targets: all come after the 1 tokens that data.length_limit keeps"},
      {"train --out nothing --data text.txt --architecture masked_encoder --mask-fraction 1e-9 " MODEL, HARK_EXIT_USAGE,
       "the training windows have no targets"},
      {"eval run --data empty-text.tsv", HARK_EXIT_BAD_INPUT, "empty text"},
      {"eval run --data long.tsv", HARK_EXIT_USAGE, "more tokens than model.context, 8: the first is number 2 with 9"},
  };
  REFUSE(cases);
}

/* A mean over nothing is refused, and never printed as a number. */
static void nothing_to_measure(void **state) {
  (void)state;
  command_expect(folder, "eval masked --data short.txt --unknown map", HARK_EXIT_USAGE, "",
                 "the text has no targets: none of its tokens is masked", &output);
  assert_string_equal(output.out, "");
  command_expect(folder, "eval masked --data short.txt --unknown map --json", HARK_EXIT_USAGE, "", "the text has no targets", &output);
  assert_string_equal(output.out, "");
}

/* A run's weights go with its own vocabulary. */
static void vocabularies_of_other_runs(void **state) {
  (void)state;
  command_expect(folder, "train --out recall --data sequences.tsv --format sequences " MODEL, HARK_EXIT_DONE, "", "", &output);
  static const wrong cases[] = {
      {"eval run --data three.tsv --classes 3", HARK_EXIT_BAD_INPUT, "run/vocabulary.json: of another task"},
      {"train --resume --out run --steps 4 --data three.tsv --classes 3", HARK_EXIT_BAD_INPUT, "run/vocabulary.json: of another task"},
      {"train --resume --out run --steps 4 --data label.tsv --classes 3", HARK_EXIT_BAD_INPUT, "run/vocabulary.json: of another task"},
      {"train --out nothing --init-from text --data text.txt --tokenizer bytes --steps 1", HARK_EXIT_USAGE,
       "weights need their own vocabulary"},
      {"train --out nothing --init-from recall --data text.txt --steps 1", HARK_EXIT_BAD_INPUT,
       "recall/vocabulary.json: the vocabulary of labelled examples, expected that of a text"},
  };
  REFUSE(cases);
  char *const own = test_file_text(folder, "run/vocabulary.json"), *const other = test_file_text(folder, "three/vocabulary.json"),
              *const text = test_file_text(folder, "text/vocabulary.json");
  static const wrong replaced[] = {
      {"eval run", HARK_EXIT_BAD_INPUT, "run/vocabulary.json: is not the vocabulary that the weights of step-2 were trained with"},
      {"train --resume --out run --steps 4", HARK_EXIT_BAD_INPUT, "run/vocabulary.json: of another task"},
  };
  test_file_write_text(folder, "run/vocabulary.json", other);
  REFUSE(replaced);
  test_file_write_text(folder, "run/vocabulary.json", text);
  REFUSE(replaced);
  test_file_write_text(folder, "run/vocabulary.json", own);
  command_expect(folder, "eval run --part training --threads 1", HARK_EXIT_DONE, "accuracy", "", &output);
  free(own);
  free(other);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(task_files),         cmocka_unit_test(labels_and_sizes),           cmocka_unit_test(sequences_and_sentences),
      cmocka_unit_test(nothing_to_measure), cmocka_unit_test(vocabularies_of_other_runs),
  };
  return cmocka_run_group_tests_name("bad tasks", tests, begin, end);
}

/* test_examples.c - labelled examples: what each format reads, what it refuses and where, cutting, division, vocabularies, sums. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/examples.h"
#include "data/formats/image_file.h"
#include "support/cmocka_all.h"
#include "support/train/task_place.h"

enum { RECORD = 3073, PIXELS = 1024 };

static hark_examples *open_one(const task_place *f, const char *format, const char *path, int64_t limit) {
  const hark_examples_settings settings = {.format = format, .paths = &path, .path_count = 1, .length_limit = limit};
  hark_examples *examples;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &examples));
  return examples;
}

/* The tokens of a sequence, less the reserved ones, must be these. */
static void assert_symbols(const task_place *f, const hark_examples *e, hark_split split, int64_t index, int part, const int32_t *expected,
                           int64_t count) {
  int32_t tokens[4096];
  assert_int_equal(hark_examples_length(e, split, index, part), count);
  assert_fine(f->context, hark_examples_read(f->context, e, split, index, part, tokens));
  for (int64_t i = 0; i < count; i++) assert_int_equal(tokens[i], HARK_TOKEN_RESERVED + expected[i]);
}

static void assert_bytes(const task_place *f, const hark_examples *e, int64_t index, int part, const char *text) {
  int32_t symbols[4096];
  for (size_t i = 0; i < strlen(text); i++) symbols[i] = (unsigned char)text[i];
  assert_symbols(f, e, HARK_SPLIT_TRAINING, index, part, symbols, (int64_t)strlen(text));
}

/* ---- what is read ---- */

static void text_and_pairs(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_one(f, "text",
                              test_file_write_text(f->folder, "a.tsv",
                                                   "1\tgood\tand tab\r\n0\tb\xC3\xA4"
                                                   "d\n1.0\tx"),
                              0);
  const hark_examples_counts counts = hark_examples_count(e, HARK_SPLIT_TRAINING);
  assert_int_equal(counts.examples, 3);
  assert_int_equal(counts.tokens, 12 + 4 + 1);
  assert_int_equal(counts.longest, 12);
  assert_int_equal(counts.cut, 0);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TEST).examples, 0);
  assert_int_equal(hark_examples_parts(e), 1);
  assert_int_equal(hark_examples_classes(e), 2);
  assert_int_equal(hark_examples_vocabulary_size(e), HARK_TOKEN_RESERVED + 256);
  assert_bytes(f, e, 0, 0, "good\tand tab");
  assert_bytes(f, e, 1, 0,
               "b\xC3\xA4"
               "d");
  assert_bytes(f, e, 2, 0, "x");
  assert_int_equal(hark_examples_label(e, HARK_SPLIT_TRAINING, 0), 1);
  assert_int_equal(hark_examples_label(e, HARK_SPLIT_TRAINING, 1), 0);
  assert_int_equal(hark_examples_label(e, HARK_SPLIT_TRAINING, 3), HARK_TARGET_IGNORED);
  assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, 3, 0), 0);
  assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, 0, 1), 0);
  int32_t none[1];
  assert_failure(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, 3, 0, none), HARK_INVALID_ARGUMENT, "example 3");
  assert_failure(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, 0, 1, none), HARK_INVALID_ARGUMENT, "part 1");
  assert_string_equal(hark_examples_class_name(e, 1), "1");
  assert_null(hark_examples_class_name(e, 2));
  char name[32];
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_RESERVED + 'a', name, sizeof name), "a");
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_RESERVED + 10, name, sizeof name), "0x0a");
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_PADDING, name, sizeof name), "<padding>");
  hark_examples_close(f->context, &e);
  assert_null(e);

  e = open_one(f, "pairs", test_file_write_text(f->folder, "p.tsv", "0.0\tid one\tid\tfirst\tsecond text\n1\ta\tb\tc\td\n"), 0);
  assert_int_equal(hark_examples_parts(e), 2);
  assert_bytes(f, e, 0, 0, "first");
  assert_bytes(f, e, 0, 1, "second text");
  assert_bytes(f, e, 1, 1, "d");
  hark_examples_close(f->context, &e);
}

static void listops(void **state) {
  const task_place *const f = *state;
  hark_examples *e =
      open_one(f, "listops",
               test_file_write_text(f->folder, "l.tsv",
                                    "Source\tTarget\n( ( ( ( [MAX 2 ) 9 ) ( ( [SM 5 ) ] ) ) ] )\t9\n7\t7\n( ( [MIN 0 ) ] )\t0\n"),
               0);
  static const int32_t first[] = {10, 2, 9, 13, 5, 14, 14}, second[] = {7}, third[] = {12, 0, 14};
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 0, 0, first, 7);
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 1, 0, second, 1);
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 2, 0, third, 3);
  assert_int_equal(hark_examples_label(e, HARK_SPLIT_TRAINING, 0), 9);
  assert_int_equal(hark_examples_classes(e), 10);
  char name[32];
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_RESERVED + 10, name, sizeof name), "[MAX");
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_RESERVED + 15, name, sizeof name), "<20>");
  size_t bytes;
  const char *const json = hark_examples_vocabulary(e, &bytes);
  assert_int_equal(strlen(json), bytes);
  assert_non_null(
      strstr(json,
             "\"symbols\": [\"0\", \"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\", \"[MAX\", \"[MED\", \"[MIN\", "
             "\"[SM\", \"]\"]"));
  hark_examples_close(f->context, &e);
}

static void images(void **state) {
  const task_place *const f = *state;
  unsigned char *const records = calloc(2, RECORD);
  records[0] = 3;
  records[RECORD] = 9;
  for (int i = 0; i < PIXELS; i++)
    for (int plane = 0; plane < 3; plane++) records[1 + plane * PIXELS + i] = (unsigned char)i;
  /* Planes that differ: 0.299 * 255 = 76.2, 0.587 * 255 = 149.7, 0.114 * 255 = 29.07. */
  records[RECORD + 1] = records[RECORD + 1 + PIXELS + 1] = records[RECORD + 1 + 2 * PIXELS + 2] = 255;
  hark_examples *e = open_one(f, "image", test_file_write(f->folder, "c.bin", records, (size_t)2 * RECORD), 0);
  int32_t expected[PIXELS], height, width;
  for (int i = 0; i < PIXELS; i++) expected[i] = i % 256;
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 0, 0, expected, PIXELS); /* black is symbol 0: token HARK_TOKEN_RESERVED, no padding */
  memset(expected, 0, sizeof expected);
  expected[0] = 76;
  expected[1] = 150;
  expected[2] = 29;
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 1, 0, expected, PIXELS);
  assert_string_equal(hark_examples_class_name(e, 9), "truck");
  assert_true(hark_examples_image(e, &height, &width));
  assert_int_equal(height, 32);
  assert_int_equal(width, 32);
  hark_examples_close(f->context, &e);
  free(records);

  unsigned char own[HARK_IMAGE_HEADER_BYTES + 14] = {0};
  hark_image_header(2, 3, 2, 2, own);
  memcpy(own + HARK_IMAGE_HEADER_BYTES, "\0\1\2\3\4\5\6\1\xFF\xFE\xFD\xFC\xFB\xFA", 14);
  e = open_one(f, "pathfinder", test_file_write(f->folder, "o.images", own, sizeof own), 0);
  static const int32_t first[] = {1, 2, 3, 4, 5, 6}, second[] = {255, 254, 253, 252, 251, 250};
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 0, 0, first, 6);
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 1, 0, second, 6);
  assert_true(hark_examples_image(e, &height, &width) && height == 2 && width == 3);
  hark_examples_close(f->context, &e);
}

static void sequences(void **state) {
  const task_place *const f = *state;
  const char *const text = "Words\tk0 k1 v0 _\nk1 v0 _ k1\t3:v0\nk0 v0 k0 k0\t2:v0 3:k1\n";
  hark_examples *e = open_one(f, "sequences", test_file_write_text(f->folder, "s.tsv", text), 0);
  static const int32_t first[] = {1, 2, 3, 1};
  int32_t targets[4];
  int64_t real;
  assert_symbols(f, e, HARK_SPLIT_TRAINING, 0, 0, first, 4);
  assert_int_equal(hark_examples_target_kind(e), HARK_TARGET_TOKENS);
  assert_int_equal(hark_examples_classes(e), 0);
  assert_int_equal(hark_examples_vocabulary_size(e), HARK_TOKEN_RESERVED + 4);
  assert_fine(f->context, hark_examples_targets(f->context, e, HARK_SPLIT_TRAINING, 1, targets, &real));
  assert_int_equal(real, 2);
  assert_int_equal(targets[0], HARK_TARGET_IGNORED);
  assert_int_equal(targets[1], HARK_TARGET_IGNORED);
  assert_int_equal(targets[2], HARK_TOKEN_RESERVED + 2);
  assert_int_equal(targets[3], HARK_TOKEN_RESERVED + 1);
  assert_int_equal(hark_examples_label(e, HARK_SPLIT_TRAINING, 0), HARK_TARGET_IGNORED);
  char name[32];
  assert_string_equal(hark_examples_token_name(e, HARK_TOKEN_RESERVED + 2, name, sizeof name), "v0");
  hark_examples_close(f->context, &e);

  e = open_one(f, "sequences", test_path(f->folder, "s.tsv"), 3); /* a target beyond the cut is left out */
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).cut, 2);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).targets, 1);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).longest_whole, 4);
  assert_fine(f->context, hark_examples_targets(f->context, e, HARK_SPLIT_TRAINING, 0, targets, &real));
  assert_int_equal(real, 0);
  hark_examples_close(f->context, &e);
}

/* More than 256 and more than 65,536 words take 2 and 4 bytes a token. */
static void wide_vocabularies(void **state) {
  const task_place *const f = *state;
  static const int sizes[] = {256, 257, 65536, 65537};
  for (int s = 0; s < 4; s++) {
    char *const text = malloc((size_t)sizes[s] * 8 + 64);
    size_t at = (size_t)sprintf(text, "Words\t");
    for (int w = 0; w < sizes[s]; w++) at += (size_t)sprintf(text + at, "%sw%d", w > 0 ? " " : "", w);
    at += (size_t)sprintf(text + at, "\nw%d w0 w255\t0:w%d 2:w1\n", sizes[s] - 1, sizes[s] - 1);
    hark_examples *e = open_one(f, "sequences", test_file_write(f->folder, "wide.tsv", text, at), 0);
    const int32_t expected[] = {sizes[s] - 1, 0, 255};
    int32_t targets[3];
    assert_symbols(f, e, HARK_SPLIT_TRAINING, 0, 0, expected, 3);
    assert_fine(f->context, hark_examples_targets(f->context, e, HARK_SPLIT_TRAINING, 0, targets, NULL));
    assert_int_equal(targets[0], HARK_TOKEN_RESERVED + sizes[s] - 1);
    hark_examples_close(f->context, &e);
    free(text);
  }
}

/* ---- what is refused ---- */

typedef struct refusal {
  const char *format, *text, *message;
} refusal;

static const refusal refusals[] = {
    {"text", "", "f: holds no example"},
    {"text", "1\ta\n\n", "f:2:1: empty line"},
    {"text", "1 a\n", "f:1:4: 1 of 2 fields, expected label and text, separated by a tab (byte offset 3)"},
    {"text", "1\tgood\n0\t\n", "f:2:3: empty text (byte offset 9)"},
    {"text", "1\tgood\n2\tb\n", "f:2:1: label 2 is out of range, expected 0 to 1 (byte offset 7)"},
    {"text", "-1\tgood\n", "f:1:1: label -1 is out of range"},
    {"text", "x\tgood\n", "f:1:1: label is not a whole number"},
    {"text", "0.5\tgood\n", "f:1:1: label is not a whole number"},
    {"text", "\tgood\n", "f:1:1: label is not a whole number"},
    {"text",
     "1\tb\xC3\xA4"
     "c\xFF"
     "d\n",
     "f:1:6: invalid UTF-8"},
    {"text", "1\tcut\xC3\n", "f:1:6: invalid UTF-8"},
    {"pairs", "1\ta\tb\tc\n", "f:1:8: 4 of 5 fields"},
    {"pairs", "1\ta\tb\t\td\n", "f:1:7: empty text"},
    {"pairs", "1\ta\tb\tc\t\n", "f:1:9: empty text"},
    {"pairs", "1\ta\tb\tc\td\n0\ta\tb\tc\td\te\n", "f:2:10: more than 5 fields, expected label, two names"},
    {"listops", "", "f:1:1: expected the header"},
    {"listops", "7\t7\n", "f:1:1: expected the header"},
    {"listops", "Source\tTarget\n", "f: holds no example"},
    {"listops", "Source\tTarget\n7\n", "f:2:2: no tab"},
    {"listops", "Source\tTarget\n7\t10\n", "f:2:3: value out of range, expected 0 to 9"},
    {"listops", "Source\tTarget\n7\tx\n", "f:2:3: value out of range"},
    {"listops", "Source\tTarget\n\t1\n", "f:2:1: empty expression"},
    {"listops", "Source\tTarget\n( [AVG 1 )\t1\n", "f:2:3: \"[AVG\", expected an operator"},
    {"listops", "Source\tTarget\n[MAX 1 2\t2\n", "f:2:9: 1 bracket is not closed"},
    {"listops", "Source\tTarget\n]\t2\n", "f:2:1: \"]\" without its operator"},
    {"listops", "Source\tTarget\n[MAX 1 ] ]\t2\n", "f:2:10: after the end"},
    {"listops", "Source\tTarget\n1 2\t2\n", "f:2:3: after the end"},
    {"listops", "Source\tTarget\n( ( [MAX 1 ) ]\t2\n", "f:2:15: 1 parenthesis is not closed"},
    {"listops", "Source\tTarget\n( [MAX 1 ) 2 ) ]\t2\n", "f:2:14: \")\" without its \"(\""},
    {"listops", "Source\tTarget\n( [MAX ( 1 2 ) ]\t2\n", "f:2:14: expected an operator and one argument"},
    {"listops", "Source\tTarget\n[MAX ( 1 ] )\t1\n", "f:2:12: expected an operator and one argument"},
    {"listops", "Source\tTarget\n( ) 5\t5\n", "f:2:3: expected an operator and one argument"},
    {"listops", "Source\tTarget\n( ( [MAX 1 2 ) ] )\t2\n", "f:2:14: expected an operator and one argument"},
    {"listops", "Source\tTarget\n( [MAX 1 ) ]\t1\n", "f:2:13: not everything here is applied by parentheses"},
    {"listops", "Source\tTarget\n[MAX 1 [MIN ] ]\t1\n", "f:2:13: [MIN has no arguments"},
    {"image", "", "f: 0 bytes, expected a multiple of 3073"},
    {"image", "not an image", "f: 12 bytes, expected a multiple of 3073"},
    {"pathfinder", "HARKIMGS", "f: 8 bytes, the header alone has 32"},
    {"pathfinder", "HARKIMGZ0123456789abcdefghijklmnop", "is neither a file of images (\"HARKIMGS\") nor a safetensors file"},
    {"sequences", "", "f:1:1: expected \"Words<TAB>\""},
    {"sequences", "Words\t\n", "f:1:1: expected \"Words<TAB>\""},
    {"sequences", "Words\ta b a\na\t0:a\n", "f:1:11: \"a\" occurs twice"},
    {"sequences", "Words\ta \xFE\na\t0:a\n", "f:1:9: invalid UTF-8: "},
    {"sequences", "Words\ta \xC3\na\t0:a\n", "f:1:9: invalid UTF-8: "},
    {"sequences", "Words\ta  b\na\t0:a\n", "f:1:9: empty word"},
    {"sequences", "Words\ta b\n", "f: holds no example"},
    {"sequences", "Words\ta b\na b\n", "f:2:4: no tab"},
    {"sequences", "Words\ta b\n\t0:a\n", "f:2:1: empty sequence"},
    {"sequences", "Words\ta b\na b\t\n", "f:2:5: no targets"},
    {"sequences", "Words\ta b\na c\t0:a\n", "f:2:3: \"c\" is not one of the words of the first line"},
    {"sequences", "Words\ta b\na b\t0:c\n", "f:2:7: \"c\" is not one of the words"},
    {"sequences", "Words\ta b\na b\t2:a\n", "f:2:5: position 2, expected 0 to 1"},
    {"sequences", "Words\ta b\na b\t1:a 1:b\n", "f:2:9: position 1, expected 2 to 1"},
    {"sequences", "Words\ta b\na b\t99999999999999999999:a\n", "is not POSITION:WORD"},
    {"sequences", "Words\ta b\na b\tx\n", "f:2:5: \"x\" is not POSITION:WORD"},
    {"sequences", "Words\ta b\na  b\t0:a\n", "f:2:3: empty word"},
};

static void bad_files(void **state) {
  const task_place *const f = *state;
  for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
    const char *const path = test_file_write_text(f->folder, "f", refusals[i].text);
    const hark_examples_settings settings = {.format = refusals[i].format, .paths = &path, .path_count = 1};
    hark_examples *e;
    assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE, refusals[i].message);
    assert_null(e);
  }
}

/* Nothing can be learned of one class; it can be measured. */
static void one_class_teaches_nothing(void **state) {
  const task_place *const f = *state;
  const char *const path = test_file_write_text(f->folder, "f", "1\tgood\n1\tb\n");
  hark_examples_settings settings = {.format = "text", .paths = &path, .path_count = 1, .teaches_classes = true};
  hark_examples *e;
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE,
                 "f: all 2 training examples are of class 1, expected at least two classes");
  settings.teaches_classes = false;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, 2);
  hark_examples_close(f->context, &e);
}

static void refuse_images(const task_place *f, const char *format, const unsigned char *data, size_t bytes, const char *message) {
  const char *const path = test_file_write(f->folder, "f", data, bytes);
  const hark_examples_settings settings = {.format = format, .paths = &path, .path_count = 1};
  hark_examples *e;
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE, message);
}

static void bad_images(void **state) {
  const task_place *const f = *state;
  unsigned char *const records = calloc(2, RECORD);
  records[RECORD] = 10;
  refuse_images(f, "image", records, (size_t)2 * RECORD, "f: label 10 at byte offset 3073 is out of range, expected 0 to 9");
  refuse_images(f, "image", records, (size_t)2 * RECORD - 1, "f: 6145 bytes, expected a multiple of 3073");
  free(records);

  unsigned char own[HARK_IMAGE_HEADER_BYTES + 10] = {0};
  hark_image_header(2, 2, 2, 2, own);
  refuse_images(f, "pathfinder", own, sizeof own - 1, "f: 41 bytes, expected 32 and 2 records of 5, as byte offset 24 says");
  own[HARK_IMAGE_HEADER_BYTES + 5] = 2;
  refuse_images(f, "pathfinder", own, sizeof own, "f: label 2 at byte offset 37 is out of range, expected 0 to 1");
  hark_image_header(2, 2, 1, 2, own);
  refuse_images(f, "pathfinder", own, sizeof own, "number of classes is 1 at byte offset 20, expected 2 to 256");
  hark_image_header(0, 2, 2, 2, own);
  refuse_images(f, "pathfinder", own, sizeof own, "height is 0 at byte offset 12");
  hark_image_header(2, 5000, 2, 2, own);
  refuse_images(f, "pathfinder", own, sizeof own, "width is 5000 at byte offset 16");
  hark_image_header(2, 2, 2, INT64_MAX, own);
  refuse_images(f, "pathfinder", own, sizeof own, "records of 5");
  own[8] = 2;
  refuse_images(f, "pathfinder", own, sizeof own, "version is 2 at byte offset 8");
}

static void bad_settings(void **state) {
  const task_place *const f = *state;
  const char *const path = test_file_write_text(f->folder, "t.tsv", "1\ta\n0\tb\n"), *const folder = f->folder;
  const char *const missing = test_path(f->folder, "missing"), *const both[] = {folder, path};
  const struct {
    hark_examples_settings settings;
    hark_status status;
    const char *message;
  } wrong[] = {
      {{.format = "textt", .paths = &path, .path_count = 1}, HARK_BAD_CONFIGURATION, "\"textt\"; there are listops, text, pairs, image"},
      {{.paths = &path, .path_count = 1}, HARK_BAD_CONFIGURATION, "no format is given"},
      {{.paths = &missing, .path_count = 1}, HARK_NOT_FOUND, "missing"},
      {{.format = "text"}, HARK_BAD_CONFIGURATION, "no files of examples"},
      {{.format = "text", .paths = &missing, .path_count = 1}, HARK_NOT_FOUND, "missing"},
      {{.format = "text", .paths = &folder, .path_count = 1}, HARK_NOT_FOUND, "task.json"},
      {{.format = "text", .paths = both, .path_count = 2}, HARK_BAD_CONFIGURATION, "a folder has the files of every split"},
      {{.format = "text", .paths = &path, .path_count = 1, .classes = 1}, HARK_BAD_CONFIGURATION, "1 classes"},
      {{.format = "text", .paths = &path, .path_count = 1, .length_limit = -1}, HARK_BAD_CONFIGURATION, "length limit is -1"},
      {{.format = "text", .paths = &path, .path_count = 1, .validation_fraction = 1}, HARK_BAD_CONFIGURATION, "validation fraction is 1"},
      {{.format = "image", .paths = &path, .path_count = 1, .classes = 3}, HARK_BAD_CONFIGURATION, "the classes of format image"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hark_examples *e;
    assert_failure(f->context, hark_examples_open(f->context, &wrong[i].settings, &e), wrong[i].status, wrong[i].message);
  }
}

/* The files of one task have one vocabulary. */
static void files_that_differ(void **state) {
  const task_place *const f = *state;
  const char *const words[] = {test_file_write_text(f->folder, "1", "Words\ta b\na\t0:b\n"),
                               test_file_write_text(f->folder, "2", "Words\tb a\na\t0:b\n")};
  hark_examples_settings settings = {.format = "sequences", .paths = words, .path_count = 2};
  hark_examples *e;
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE, "2:1:1: other words than in the previous files");
  unsigned char small[HARK_IMAGE_HEADER_BYTES + 4] = {0}, large[HARK_IMAGE_HEADER_BYTES + 3] = {0};
  hark_image_header(1, 1, 2, 2, small);
  small[HARK_IMAGE_HEADER_BYTES] = 1;
  hark_image_header(1, 2, 2, 1, large);
  const char *const images_of[] = {test_file_write(f->folder, "3", small, sizeof small),
                                   test_file_write(f->folder, "4", large, sizeof large)};
  settings = (hark_examples_settings){
      .format = "pathfinder", .paths = images_of, .path_count = 1, .test_paths = images_of + 1, .test_path_count = 1};
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE, "4: images of 1 x 2 in 2 classes, unlike");
}

/* ---- splits, cutting, sums ---- */

static void cutting(void **state) {
  const task_place *const f = *state;
  hark_examples *e = open_one(f, "pairs", test_file_write_text(f->folder, "p", "0\t\t\tabcdef\tgh\n1\t\t\tij\tklmnop\n"), 4);
  const hark_examples_counts counts = hark_examples_count(e, HARK_SPLIT_TRAINING);
  assert_int_equal(counts.cut, 2);
  assert_int_equal(counts.longest, 4);
  assert_int_equal(counts.longest_whole, 6);
  assert_int_equal(counts.tokens, 12);
  assert_bytes(f, e, 0, 0, "abcd");
  assert_bytes(f, e, 0, 1, "gh");
  assert_bytes(f, e, 1, 1, "klmn");
  hark_examples_close(f->context, &e);
}

static char *numbered(int count) {
  char *const text = malloc((size_t)count * 16);
  size_t at = 0;
  for (int i = 0; i < count; i++) at += (size_t)sprintf(text + at, "%d\tn%d\n", i % 2, i);
  return text;
}

/* Of N examples floor(f N) validate; each is in one split, in the order of the file, whatever else is asked for. */
static void division(void **state) {
  const task_place *const f = *state;
  char *const text = numbered(101);
  const char *const path = test_file_write_text(f->folder, "n", text);
  hark_examples_settings settings = {.format = "text", .paths = &path, .path_count = 1, .validation_fraction = 0.1};
  hark_examples *e;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_VALIDATION).examples, 10);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, 91);
  int seen[101] = {0};
  for (int split = 0; split < HARK_SPLIT_COUNT; split++)
    for (int64_t i = 0, last = -1; i < hark_examples_count(e, (hark_split)split).examples; i++) {
      int32_t tokens[8];
      char name[8] = "";
      const int64_t length = hark_examples_length(e, (hark_split)split, i, 0);
      assert_fine(f->context, hark_examples_read(f->context, e, (hark_split)split, i, 0, tokens));
      for (int64_t t = 0; t < length; t++) name[t] = (char)(tokens[t] - HARK_TOKEN_RESERVED);
      const int number = atoi(name + 1);
      assert_true(number > last);
      last = number;
      seen[number]++;
      assert_int_equal(hark_examples_label(e, (hark_split)split, i), number % 2);
    }
  for (int i = 0; i < 101; i++) assert_int_equal(seen[i], 1);
  const uint64_t sum = hark_examples_checksum(e);
  hark_examples_close(f->context, &e);
  const char *const other = test_file_write_text(f->folder, "other", "1\tx\n0\ty\n");
  settings.validation_paths = &other; /* a file of its own: nothing is taken off */
  settings.validation_path_count = 1;
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, 101);
  assert_int_not_equal(hark_examples_checksum(e), sum);
  hark_examples_close(f->context, &e);
  free(text);
}

/* Equal for equal examples, wherever they are and however the file writes them; another for anything else. */
static void sums(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *text;
    bool same;
  } cases[] = {{"1\tab\n0\tc\n", true},  {"1.0\tab\r\n0\tc", true}, {"1\tac\n0\tc\n", false},      {"0\tab\n1\tc\n", false},
               {"1\ta\n0\tbc\n", false}, {"0\tc\n1\tab\n", false},  {"1\tab\n0\tc\n0\tc\n", false}};
  uint64_t first = 0;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char name[8];
    snprintf(name, sizeof name, "c%zu", i);
    hark_examples *e = open_one(f, "text", test_file_write_text(f->folder, name, cases[i].text), 0);
    const uint64_t sum = hark_examples_checksum(e);
    if (i == 0) first = sum;
    if ((sum == first) != cases[i].same) fail_msg("case %zu", i);
    hark_examples_close(f->context, &e);
  }
}

static void vocabularies(void **state) {
  const task_place *const f = *state;
  hark_examples *a = open_one(f, "text", test_file_write_text(f->folder, "a", "1\tab\n0\tc\n"), 0);
  hark_examples *b = open_one(f, "text", test_file_write_text(f->folder, "b", "0\tx\n1\ty\n"), 0);
  hark_examples *c = open_one(f, "sequences", test_file_write_text(f->folder, "c", "Words\ta b\na\t0:b\n"), 0);
  size_t a_bytes, c_bytes;
  const char *const a_text = hark_examples_vocabulary(a, &a_bytes), *const c_text = hark_examples_vocabulary(c, &c_bytes);
  assert_fine(f->context, hark_examples_check_vocabulary(f->context, b, "run", a_text, a_bytes));
  assert_failure(f->context, hark_examples_check_vocabulary(f->context, b, "run", c_text, c_bytes), HARK_BAD_FILE,
                 "run: of another task: it has \"format\": \"sequences\", where the examples have \"format\": \"text\",");
  assert_failure(f->context, hark_examples_check_vocabulary(f->context, b, "run", a_text, a_bytes - 1), HARK_BAD_FILE,
                 "run: of another task");
  assert_failure(f->context, hark_examples_check_vocabulary(f->context, b, "run", "", 0), HARK_BAD_FILE, "run: of another task");
  hark_examples_close(f->context, &a);
  hark_examples_close(f->context, &b);
  hark_examples_close(f->context, &c);
}

/* ---- folders ---- */

static void folders(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *json, *message;
  } wrong[] = {
      {"{}", "task.json: \"format_version\" is not 1"},
      {"{\"format_version\": 1}", "task.json: \"format\" is missing"},
      {"{\"format_version\": 1, \"format\": \"text\"}", "task.json: \"files\" has no \"training\""},
      {"{\"format_version\": 1, \"format\": \"text\", \"files\": {\"training\": {\"name\": \"../t\"}}}",
       "has no \"name\" of a file in this"},
      {"{\"format_version\": 1, \"format\": \"text\", \"files\": {\"training\": 3}}", "has no \"name\" of a file in this folder"},
      {"{\"format_version\": 1, ", "task.json: line 1"},
  };
  const char *const folder = f->folder;
  hark_examples_settings settings = {.paths = &folder, .path_count = 1};
  hark_examples *e;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    (void)test_file_write_text(f->folder, "task.json", wrong[i].json);
    assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_FILE, wrong[i].message);
  }
  (void)test_file_write_text(f->folder, "task.json",
                             "{\"format_version\": 1, \"format\": \"text\", \"files\": {\"training\": {\"name\": \"a\"}, \"test\": "
                             "{\"name\": \"b\"}}}");
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_NOT_FOUND, "/a: ");
  (void)test_file_write_text(f->folder, "a", "1\tab\n0\tc\n");
  (void)test_file_write_text(f->folder, "b", "1\tab\n");
  assert_fine(f->context, hark_examples_open(f->context, &settings, &e));
  assert_string_equal(hark_examples_format(e), "text");
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, 2);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_VALIDATION).examples, 0);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TEST).examples, 1);
  hark_examples_close(f->context, &e);
  settings.format = "listops";
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_CONFIGURATION, "its files have the format text");
}

/* Lines longer than the parts that a file is read in, and line ends where parts end. */
static void long_lines(void **state) {
  const task_place *const f = *state;
  enum { PART = 1 << 18 };
  static const int64_t lengths[] = {PART - 3, PART - 2, PART - 1, PART, 3 * PART + 17, 1};
  enum { LINES = sizeof lengths / sizeof lengths[0] };
  char *const text = malloc(8 * (size_t)PART);
  size_t at = 0;
  for (int i = 0; i < LINES; i++) {
    at += (size_t)sprintf(text + at, "%d\t", i % 2);
    memset(text + at, 'a' + i, (size_t)lengths[i]);
    at += (size_t)lengths[i];
    text[at++] = '\n';
  }
  hark_examples *e = open_one(f, "text", test_file_write(f->folder, "long", text, at), 0);
  assert_int_equal(hark_examples_count(e, HARK_SPLIT_TRAINING).examples, LINES);
  int32_t *const tokens = malloc((size_t)4 * PART * sizeof *tokens);
  for (int i = 0; i < LINES; i++) {
    assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, i, 0), lengths[i]);
    assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, i, 0, tokens));
    for (int64_t t = 0; t < lengths[i]; t++)
      if (tokens[t] != HARK_TOKEN_RESERVED + 'a' + i) fail_msg("line %d, token %" PRId64, i, t);
  }
  hark_examples_close(f->context, &e);
  free(tokens);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {TASK_TEST(text_and_pairs),
                                     TASK_TEST(listops),
                                     TASK_TEST(images),
                                     TASK_TEST(sequences),
                                     TASK_TEST(wide_vocabularies),
                                     TASK_TEST(bad_files),
                                     TASK_TEST(one_class_teaches_nothing),
                                     TASK_TEST(bad_images),
                                     TASK_TEST(bad_settings),
                                     TASK_TEST(files_that_differ),
                                     TASK_TEST(cutting),
                                     TASK_TEST(division),
                                     TASK_TEST(sums),
                                     TASK_TEST(vocabularies),
                                     TASK_TEST(folders),
                                     TASK_TEST(long_lines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

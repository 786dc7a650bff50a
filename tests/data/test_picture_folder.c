/* test_picture_folder.c - Pathfinder's folders: pictures of PNG in imgs/ and lists in metadata/. The pictures are written here, byte by
 * byte (PNG, second edition, and RFC 1950 with stored blocks), so that the tests need no library and know every pixel.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/examples/examples.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { HEIGHT = 3, WIDTH = 5, PIXELS = HEIGHT * WIDTH, PNG_BYTES = 512, GREY = 0, COLOUR = 2 };

static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

/* ---- PNG ---- */

static uint32_t crc_of(const unsigned char *bytes, size_t count) {
  uint32_t crc = 0xFFFFFFFFU;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xEDB88320U ^ crc >> 1 : crc >> 1;
  }
  return ~crc;
}

static uint32_t adler_of(const unsigned char *bytes, size_t count) {
  uint32_t a = 1, b = 0;
  for (size_t i = 0; i < count; i++) {
    a = (a + bytes[i]) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

static void put(unsigned char *out, uint32_t number) {
  for (int i = 0; i < 4; i++) out[i] = (unsigned char)(number >> (24 - 8 * i));
}

static size_t add_chunk(unsigned char *out, const char *name, const unsigned char *data, size_t bytes) {
  put(out, (uint32_t)bytes);
  memcpy(out + 4, name, 4);
  if (bytes > 0) memcpy(out + 8, data, bytes);
  put(out + 8 + bytes, crc_of(out + 4, bytes + 4));
  return bytes + 12;
}

/* The stream of zlib with the rows in one stored block, each after the number of its filter, 0. */
static size_t pack_rows(const unsigned char *pixels, int height, int width, unsigned char *out) {
  unsigned char rows[PNG_BYTES];
  size_t count = 0;
  for (int y = 0; y < height; y++) {
    rows[count++] = 0;
    memcpy(rows + count, pixels + y * width, (size_t)width);
    count += (size_t)width;
  }
  const unsigned char front[] = {0x78,
                                 0x01,
                                 1,
                                 (unsigned char)(count & 255),
                                 (unsigned char)(count >> 8),
                                 (unsigned char)(~count & 255),
                                 (unsigned char)(~count >> 8 & 255)};
  memcpy(out, front, sizeof front);
  memcpy(out + sizeof front, rows, count);
  put(out + sizeof front + count, adler_of(rows, count));
  return sizeof front + count + 4;
}

/* A picture; returns its bytes. `colour`: of 8 bits, GREY or COLOUR, whose rows have three bytes for each pixel. */
static size_t make_png(const unsigned char *pixels, int height, int width, int colour, unsigned char out[PNG_BYTES]) {
  static const unsigned char signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  unsigned char header[13] = {0}, packed[PNG_BYTES];
  put(header, (uint32_t)width);
  put(header + 4, (uint32_t)height);
  header[8] = 8;
  header[9] = (unsigned char)colour;
  const size_t bytes = pack_rows(pixels, height, colour == COLOUR ? 3 * width : width, packed);
  size_t at = sizeof signature;
  memcpy(out, signature, sizeof signature);
  at += add_chunk(out + at, "IHDR", header, sizeof header);
  at += add_chunk(out + at, "IDAT", packed, bytes);
  return at + add_chunk(out + at, "IEND", NULL, 0);
}

static unsigned char pixel_of(int picture, int i) { return (unsigned char)((picture * 71 + i * 17) % 256); }

static size_t make_picture(int picture, int height, int colour, unsigned char out[PNG_BYTES]) {
  unsigned char pixels[3 * PIXELS + 64];
  for (int i = 0; i < (int)sizeof pixels; i++) pixels[i] = pixel_of(picture, i);
  return make_png(pixels, height, WIDTH, colour, out);
}

static void write_picture(const char *name, int picture) {
  unsigned char png[PNG_BYTES];
  const size_t bytes = make_picture(picture, HEIGHT, GREY, png);
  (void)test_file_write(folder, name, png, bytes);
}

/* Two lists with two pictures each, of labels 1, 0, 0, 1. */
static void write_folder(void) {
  write_picture("paths/imgs/0/a.png", 0);
  write_picture("paths/imgs/0/b.png", 1);
  write_picture("paths/imgs/1/a.png", 2);
  write_picture("paths/imgs/1/b.png", 3);
  (void)test_file_write_text(folder, "paths/metadata/0.npy", "imgs/0 a.png 0 1 0.5 9 3\nimgs/0 b.png 1 0 0.5 9 3\n");
  (void)test_file_write_text(folder, "paths/metadata/1.npy", "imgs/1 a.png 0 0 0.5 9 3\nimgs/1 b.png 1 1 0.5 9 3\n");
  (void)test_file_write_text(folder, "paths/metadata/notes.txt", "no list");
}

static hark_status open_folder(hark_context *context, hark_examples **out) {
  const char *const path = test_path(folder, "paths");
  const hark_examples_settings settings = {.format = "pathfinder", .paths = &path, .path_count = 1};
  return hark_examples_open(context, &settings, out);
}

#ifdef HARK_WITH_PNG

static void pictures_are_examples(void **state) {
  (void)state;
  static const int32_t labels[] = {1, 0, 0, 1};
  hark_context *context = test_reference_open();
  hark_examples *examples = NULL;
  int32_t height = 0, width = 0, tokens[PIXELS];
  write_folder();
  assert_fine(context, open_folder(context, &examples));
  assert_int_equal(hark_examples_count(examples, HARK_SPLIT_TRAINING).examples, 4);
  assert_true(hark_examples_image(examples, &height, &width));
  assert_int_equal(height, HEIGHT);
  assert_int_equal(width, WIDTH);
  for (int e = 0; e < 4; e++) {
    assert_int_equal(hark_examples_label(examples, HARK_SPLIT_TRAINING, e), labels[e]);
    assert_int_equal(hark_examples_length(examples, HARK_SPLIT_TRAINING, e, 0), PIXELS);
    assert_fine(context, hark_examples_read(context, examples, HARK_SPLIT_TRAINING, e, 0, tokens));
    for (int i = 0; i < PIXELS; i++) assert_int_equal(tokens[i], HARK_TOKEN_RESERVED + pixel_of(e, i));
  }
  hark_examples_close(context, &examples);
  test_setup_close(context);
}

static void refuse(hark_context *context, hark_status expected, const char *part) {
  hark_examples *examples = NULL;
  assert_failure(context, open_folder(context, &examples), expected, part);
  assert_null(examples);
  if (strchr(hark_context_message(context), '\n') != NULL) fail_msg("more than one line: %s", hark_context_message(context));
}

/* Every cut of a picture is refused with its name and its place in the list. */
static void cut_and_damaged_pictures_are_refused(void **state) {
  (void)state;
  unsigned char png[PNG_BYTES];
  hark_context *context = test_reference_open();
  write_folder();
  const size_t bytes = make_picture(3, HEIGHT, GREY, png);
  for (size_t kept = 0; kept < bytes - 12; kept += 5) { /* without its last chunk, which has no pixels, it may be read */
    (void)test_file_write(folder, "paths/imgs/1/b.png", png, kept);
    refuse(context, HARK_BAD_FILE, "imgs/1/b.png: is ");
    if (strstr(hark_context_message(context), "metadata/1.npy:2)") == NULL) fail_msg("%s", hark_context_message(context));
  }
  png[50] ^= 1; /* a pixel, against the checksum */
  (void)test_file_write(folder, "paths/imgs/1/b.png", png, bytes);
  refuse(context, HARK_BAD_FILE, "imgs/1/b.png: is no undamaged PNG: ");
  (void)test_file_write(folder, "paths/imgs/1/b.png", png, make_picture(3, HEIGHT + 1, GREY, png));
  refuse(context, HARK_BAD_FILE, "a picture of 4 x 5, unlike the previous ones");
  (void)test_file_write(folder, "paths/imgs/1/b.png", png, make_picture(3, HEIGHT, COLOUR, png));
  refuse(context, HARK_UNSUPPORTED, "imgs/1/b.png: expected grey values of at most 8 bits");
  assert_int_equal(remove(test_path(folder, "paths/imgs/1/b.png")), 0);
  refuse(context, HARK_NOT_FOUND, "imgs/1/b.png");
  test_setup_close(context);
}

static void malformed_lists_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } cases[] = {{"imgs/0 a.png 0\n", "metadata/0.npy:1:15: expected the folder of a picture"},
               {"imgs/0 a.png 0 1\n\n", "metadata/0.npy:2:1: expected the folder"},
               {"imgs/0 a.png 0 2\n", "metadata/0.npy:1:16: label is \"2\", expected 0 or 1"},
               {"imgs/0 a.png 0 1.5\n", "label is \"1.5\", expected 0 or 1"},
               {"../imgs a.png 0 1\n", "metadata/0.npy:1:1: expected names in the folder"},
               {"/imgs a.png 0 1\n", "metadata/0.npy:1:1: expected names in the folder"},
               {"imgs/0 ../a.png 0 1\n", "metadata/0.npy:1:1: expected names in the folder"}};
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    write_folder();
    (void)test_file_write_text(folder, "paths/metadata/0.npy", cases[i].text);
    refuse(context, HARK_BAD_FILE, cases[i].part);
  }
  (void)test_file_write_text(folder, "paths/metadata/0.npy", "\x93NUMPY\1");
  refuse(context, HARK_UNSUPPORTED, "metadata/0.npy: is an array of NumPy, expected a text with a line for each picture");
  assert_int_equal(remove(test_path(folder, "paths/metadata/0.npy")), 0);
  assert_int_equal(remove(test_path(folder, "paths/metadata/1.npy")), 0);
  refuse(context, HARK_BAD_FILE, "metadata: has no list of pictures, expected files named .npy");
  test_setup_close(context);
}

/* Whatever allocation of hark fails, nothing leaks. */
static void every_allocation_may_fail(void **state) {
  (void)state;
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_examples *examples = NULL;
  hark_status status = HARK_OUT_OF_MEMORY;
  write_folder();
  for (long at = 1; status != HARK_OK && at < 1000; at++) {
    memory.allocations = 0;
    memory.fail_at = at;
    status = open_folder(context, &examples);
    if (status != HARK_OK) assert_int_equal(status, HARK_OUT_OF_MEMORY);
  }
  assert_int_equal(status, HARK_OK);
  memory.fail_at = 0;
  hark_examples_close(context, &examples);
  test_memory_context_end(context, &memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(pictures_are_examples, begin, end),
      cmocka_unit_test_setup_teardown(cut_and_damaged_pictures_are_refused, begin, end),
      cmocka_unit_test_setup_teardown(malformed_lists_are_refused, begin, end),
      cmocka_unit_test_setup_teardown(every_allocation_may_fail, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void pictures_need_a_library(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_examples *examples = NULL;
  write_folder();
  assert_failure(context, open_folder(context, &examples), HARK_UNSUPPORTED, "built without (HARK_WITH_PNG)");
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(pictures_need_a_library, begin, end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif

/* test_tensor_examples.c - vectors and images in safetensors files: the same examples as in hark's own files, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/image_file.h"
#include "data/formats/vector_file.h"
#include "support/cmocka_all.h"
#include "support/train/packed.h"
#include "support/train/task_place.h"

enum { EXAMPLES = 3, LENGTH = 2, FEATURES = 2, RESPONSES = 1, TOKENS = EXAMPLES * LENGTH * FEATURES, TARGETS = EXAMPLES * RESPONSES };
enum { HEIGHT = 2, WIDTH = 3, PIXELS = HEIGHT * WIDTH, CLASSES = 4 };
static const unsigned char labels[EXAMPLES] = {1, 3, 0};

/* A file of a header and data, `bytes` of them; its path. */
static const char *write_file(const task_place *f, const char *name, const char *header, const void *data, size_t bytes) {
  const size_t length = strlen(header);
  unsigned char *const all = malloc(8 + length + bytes);
  for (int i = 0; i < 8; i++) all[i] = (unsigned char)((uint64_t)length >> (8 * i));
  memcpy(all + 8, header, length);
  if (bytes > 0) memcpy(all + 8 + length, data, bytes);
  const char *const path = test_file_write(f->folder, name, all, 8 + length + bytes);
  free(all);
  return path;
}

static hark_status open_paths(const task_place *f, const char *format, const char *first, const char *second, hark_examples **out) {
  const hark_examples_settings settings = {
      .format = format, .paths = &first, .path_count = 1, .test_paths = &second, .test_path_count = second != NULL};
  return hark_examples_open(f->context, &settings, out);
}

static uint64_t sum_of(const task_place *f, const char *format, const char *path) {
  hark_examples *examples = NULL;
  assert_fine(f->context, open_paths(f, format, path, NULL, &examples));
  assert_int_equal(hark_examples_count(examples, HARK_SPLIT_TRAINING).examples, EXAMPLES);
  const uint64_t sum = hark_examples_checksum(examples);
  hark_examples_close(f->context, &examples);
  return sum;
}

static void refuse(const task_place *f, const char *format, const char *path, const char *message) {
  hark_examples *examples = NULL;
  assert_failure(f->context, open_paths(f, format, path, NULL, &examples), HARK_BAD_FILE, message);
  assert_null(examples);
}

/* ---- vectors ---- */

#define VECTORS(type, bytes_a, bytes_ab)                                                                                                   \
  "{\"tokens\":{\"dtype\":\"" type "\",\"shape\":[3,2,2],\"data_offsets\":[0," bytes_a                                                     \
  "]},"                                                                                                                                    \
  "\"targets\":{\"dtype\":\"" type "\",\"shape\":[3,1],\"data_offsets\":[" bytes_a "," bytes_ab "]}}"

/* Number i of tokens and of targets. */
static float token_number(int i) { return (float)i * 0.25F; }
static float target_number(int i) { return -(float)i; }

static const char *own_vectors(const task_place *f) {
  enum { RECORD = LENGTH * FEATURES + RESPONSES };
  unsigned char bytes[HARK_VECTORS_HEADER_BYTES + EXAMPLES * RECORD * sizeof(float)];
  hark_vectors_header(HARK_VECTORS_MAGIC, LENGTH, FEATURES, RESPONSES, EXAMPLES, bytes);
  for (int i = 0; i < EXAMPLES * RECORD; i++) {
    const int example = i / RECORD, at = i % RECORD;
    const float number = at < LENGTH * FEATURES ? token_number(example * LENGTH * FEATURES + at) : target_number(example);
    memcpy(bytes + HARK_VECTORS_HEADER_BYTES + (size_t)i * sizeof number, &number, sizeof number);
  }
  return test_file_write(f->folder, "own.vectors", bytes, sizeof bytes);
}

static void vectors_are_those_of_own_files(void **state) {
  const task_place *const f = *state;
  float singles[TOKENS + TARGETS];
  double doubles[TOKENS + TARGETS];
  for (int i = 0; i < TOKENS + TARGETS; i++) doubles[i] = singles[i] = i < TOKENS ? token_number(i) : target_number(i - TOKENS);
  const uint64_t sum = sum_of(f, "vectors", own_vectors(f));
  assert_true(sum_of(f, "vectors", write_file(f, "a", VECTORS("F32", "48", "60"), singles, sizeof singles)) == sum);
  assert_true(sum_of(f, "vectors", write_file(f, "b", VECTORS("F64", "96", "120"), doubles, sizeof doubles)) == sum);
  size_t bytes = 0, packed_bytes = 0;
  unsigned char *const plain = test_file_read(test_path(f->folder, "a"), &bytes);
  unsigned char *const packed = test_pack("gzip", plain, bytes, &packed_bytes);
  if (packed != NULL) assert_true(sum_of(f, "vectors", test_file_write(f->folder, "c", packed, packed_bytes)) == sum);
  free(packed);
  for (size_t left = 9; left < bytes; left++) /* cut at every byte */
    refuse(f, "vectors", test_file_write(f->folder, "cut", plain, left), "cut: ");
  free(plain);
}

static void bad_vectors_are_refused(void **state) {
  const task_place *const f = *state;
  float numbers[TOKENS + TARGETS] = {0};
  double large[TOKENS + TARGETS] = {0};
  static const struct {
    const char *header, *message;
    size_t bytes;
  } cases[] = {
      {"{\"tokens\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_offsets\":[0,48]}}", "there is no tensor \"targets\", expected F32 or F64",
       48},
      {"{\"tokens\":{\"dtype\":\"F32\",\"shape\":[3,4],\"data_offsets\":[0,48]},\"targets\":{\"dtype\":\"F32\",\"shape\":[3,1],"
       "\"data_offsets\":[48,60]}}",
       "tensor \"tokens\" is F32 [3, 4], expected F32 or F64 [examples, length, features]", 60},
      {"{\"tokens\":{\"dtype\":\"I32\",\"shape\":[3,2,2],\"data_offsets\":[0,48]},\"targets\":{\"dtype\":\"F32\",\"shape\":[3,1],"
       "\"data_offsets\":[48,60]}}",
       "tensor \"tokens\" is I32 [3, 2, 2]", 60},
      {"{\"tokens\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_offsets\":[0,48]},\"targets\":{\"dtype\":\"F32\",\"shape\":[1,3],"
       "\"data_offsets\":[48,60]}}",
       "3 examples in \"tokens\" and 1 in \"targets\"", 60},
      {"{\"tokens\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_offsets\":[0,48]},\"targets\":{\"dtype\":\"F32\",\"shape\":[3,0],"
       "\"data_offsets\":[48,48]}}",
       "dimension 1 of tensor \"targets\" is 0, expected 1 to 4096", 48},
      {"{\"more\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[60,64]},\"tokens\":{\"dtype\":\"F32\",\"shape\":[3,2,2],\"data_"
       "offsets\":"
       "[0,48]},\"targets\":{\"dtype\":\"F32\",\"shape\":[3,1],\"data_offsets\":[48,60]}}",
       "tensor \"more\" is not known, expected \"tokens\" and \"targets\"", 60},
      {"{\"tokens\":{\"dtype\":\"F32\",\"shape\":[0,2,2],\"data_offsets\":[0,0]},\"targets\":{\"dtype\":\"F32\",\"shape\":[0,1],"
       "\"data_offsets\":[0,0]}}",
       "holds no example", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool more = strstr(cases[i].header, "more") != NULL;
    refuse(f, "vectors", write_file(f, "bad", cases[i].header, large, cases[i].bytes + (more ? 4 : 0)), cases[i].message);
  }
  numbers[5] = NAN;
  refuse(f, "vectors", write_file(f, "bad", VECTORS("F32", "48", "60"), numbers, sizeof numbers), "in \"tokens\": example 1, number 1");
  large[TOKENS + 2] = 1e300; /* infinite as f32 */
  refuse(f, "vectors", write_file(f, "bad", VECTORS("F64", "96", "120"), large, sizeof large), "in \"targets\": example 2, number 0");
  refuse(f, "vectors", test_file_write(f->folder, "bad", "", 0), "0 bytes");
}

/* ---- images ---- */

#define IMAGES(metadata, type, bytes_a, bytes_ab)                                                                                          \
  "{" metadata "\"labels\":{\"dtype\":\"" type "\",\"shape\":[3],\"data_offsets\":[0," bytes_a                                             \
  "]},"                                                                                                                                    \
  "\"images\":{\"dtype\":\"U8\",\"shape\":[3,2,3],\"data_offsets\":[" bytes_a "," bytes_ab "]}}"
#define FIVE "\"__metadata__\":{\"classes\":\"5\"},"

static unsigned char pixel(int i) { return (unsigned char)(i * 11); }

static const char *own_images(const task_place *f, int classes) {
  unsigned char bytes[HARK_IMAGE_HEADER_BYTES + EXAMPLES * (1 + PIXELS)], *at = bytes + HARK_IMAGE_HEADER_BYTES;
  hark_image_header(HEIGHT, WIDTH, classes, EXAMPLES, bytes);
  for (int e = 0; e < EXAMPLES; e++) {
    *at++ = labels[e];
    for (int i = 0; i < PIXELS; i++) *at++ = pixel(e * PIXELS + i);
  }
  return test_file_write(f->folder, "own.images", bytes, sizeof bytes);
}

/* The same with labels of `width` bytes. */
static const char *tensor_images(const task_place *f, const char *name, const char *header, int width) {
  unsigned char data[8 * EXAMPLES + EXAMPLES * PIXELS] = {0};
  for (int e = 0; e < EXAMPLES; e++) data[e * width] = labels[e];
  for (int i = 0; i < EXAMPLES * PIXELS; i++) data[EXAMPLES * width + i] = pixel(i);
  return write_file(f, name, header, data, (size_t)(EXAMPLES * (width + PIXELS)));
}

static void images_are_those_of_own_files(void **state) {
  const task_place *const f = *state;
  const uint64_t four = sum_of(f, "pathfinder", own_images(f, CLASSES)), five = sum_of(f, "pathfinder", own_images(f, CLASSES + 1));
  assert_true(four != five);
  assert_true(sum_of(f, "pathfinder", tensor_images(f, "a", IMAGES("", "U8", "3", "21"), 1)) == four);
  assert_true(sum_of(f, "pathfinder", tensor_images(f, "a", IMAGES("", "I32", "12", "30"), 4)) == four);
  assert_true(sum_of(f, "pathfinder", tensor_images(f, "a", IMAGES("", "I64", "24", "42"), 8)) == four);
  assert_true(sum_of(f, "pathfinder", tensor_images(f, "a", IMAGES(FIVE, "I64", "24", "42"), 8)) == five);
}

static void later_files_have_the_classes_of_the_first(void **state) {
  const task_place *const f = *state;
  hark_examples *examples = NULL;
  char first[TEST_PATH_BYTES], other[TEST_PATH_BYTES];
  (void)snprintf(first, sizeof first, "%s", tensor_images(f, "five", IMAGES(FIVE, "U8", "3", "21"), 1));
  static const unsigned char small[] = {0, 1, 2, 3, 4, 5, 6};
  (void)snprintf(other, sizeof other, "%s",
                 write_file(f, "small",
                            "{\"labels\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"images\":{\"dtype\":\"U8\","
                            "\"shape\":[1,2,3],\"data_offsets\":[1,7]}}",
                            small, sizeof small));
  assert_fine(f->context, open_paths(f, "pathfinder", first, other, &examples));
  assert_int_equal(hark_examples_classes(examples), CLASSES + 1);
  hark_examples_close(f->context, &examples);
  assert_failure(f->context, open_paths(f, "pathfinder", other, first, &examples), HARK_BAD_FILE,
                 "images of 2 x 3 in 5 classes, unlike the previous ones"); /* of two classes */
}

static void bad_images_are_refused(void **state) {
  const task_place *const f = *state;
  refuse(f, "pathfinder", tensor_images(f, "bad", IMAGES("\"__metadata__\":{\"classes\":\"3\"},", "U8", "3", "21"), 1),
         "label 3 of example 1 is out of range, expected 0 to 2");
  refuse(f, "pathfinder", tensor_images(f, "bad", IMAGES("\"__metadata__\":{\"classes\":\"x\"},", "U8", "3", "21"), 1),
         "metadata \"classes\" is \"x\", expected 2 to 256");
  refuse(f, "pathfinder", tensor_images(f, "bad", IMAGES("", "F32", "12", "30"), 4),
         "tensor \"labels\" is F32 [3], expected U8, I32 or I64");
  unsigned char data[EXAMPLES * (8 + PIXELS)];
  memset(data, 0xFF, sizeof data);
  refuse(f, "pathfinder", write_file(f, "bad", IMAGES("", "I64", "24", "42"), data, sizeof data), "label -1 of example 0 is out of range");
  refuse(f, "pathfinder",
         write_file(f, "bad",
                    "{\"label\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"images\":{\"dtype\":\"U8\",\"shape\":[1,1,1],"
                    "\"data_offsets\":[1,2]}}",
                    data, 2),
         "there is no tensor \"labels\", expected U8, I32 or I64 [examples]");
  refuse(f, "vectors", tensor_images(f, "bad", IMAGES("", "U8", "3", "21"), 1), "there is no tensor \"tokens\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TASK_TEST(vectors_are_those_of_own_files), TASK_TEST(bad_vectors_are_refused),
      TASK_TEST(images_are_those_of_own_files),  TASK_TEST(later_files_have_the_classes_of_the_first),
      TASK_TEST(bad_images_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

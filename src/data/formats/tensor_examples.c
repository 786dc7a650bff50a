/* tensor_examples.c - see tensor_examples.h. Tensors are read example by example, so that memory is that of the examples. */
#include "data/formats/tensor_examples.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/formats/image_file.h"
#include "data/formats/vector_file.h"
#include "io/number.h"
#include "io/safetensors.h"

enum { TENSORS = 2, LENGTH_BYTES = 8 };

/* A tensor that a format expects. */
typedef struct expected_tensor {
  const char *name;
  int rank;
  const char *types[3], *description;
} expected_tensor;

static const expected_tensor vectors[TENSORS] = {{"tokens", 3, {"F32", "F64"}, "F32 or F64 [examples, length, features]"},
                                                 {"targets", 2, {"F32", "F64"}, "F32 or F64 [examples, responses]"}};
static const expected_tensor images[TENSORS] = {{"images", 3, {"U8"}, "U8 [examples, height, width]"},
                                                {"labels", 1, {"U8", "I32", "I64"}, "U8, I32 or I64 [examples]"}};

hark_status hark_tensor_examples_are(const hark_example_reader *reader, const hark_input *file, bool *out) {
  unsigned char front[LENGTH_BYTES + 1];
  *out = false;
  if (file->size < sizeof front) return HARK_OK;
  HARK_TRY(hark_input_read_at(reader->context, file, front, sizeof front, 0));
  *out = front[LENGTH_BYTES] == '{' && front[LENGTH_BYTES - 1] == 0 && front[LENGTH_BYTES - 2] == 0;
  return HARK_OK;
}

/* ---- the tensors of a file ---- */

/* What reading needs: the file, its two tensors, and of each the elements of one example. */
typedef struct reading {
  hark_example_reader *reader;
  const hark_input *input;
  hark_safetensors *file;
  const hark_stored_tensor *tensors[TENSORS];
  int64_t examples, elements[TENSORS];
  hark_text raw; /* one example of a tensor as it is stored */
} reading;

static hark_status fail_tensor(const reading *r, const hark_stored_tensor *t, const expected_tensor *expected) {
  char found[HARK_SHAPE_TEXT_BYTES];
  hark_tensor described = {.type = t->type, .rank = t->rank};
  memcpy(described.shape, t->shape, sizeof described.shape);
  return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: tensor \"%s\" is %s %s, expected %s", r->reader->path, t->name, t->type_name,
                   hark_shape_text(&described, found, sizeof found), expected->description);
}

static hark_status find_tensor(reading *r, const expected_tensor *expected, int index) {
  const hark_stored_tensor *const t = hark_safetensors_find(r->file, expected->name);
  bool fits = false;
  if (t == NULL)
    return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: there is no tensor \"%s\", expected %s", r->reader->path, expected->name,
                     expected->description);
  for (size_t i = 0; i < sizeof expected->types / sizeof *expected->types && expected->types[i] != NULL; i++)
    fits = fits || strcmp(t->type_name, expected->types[i]) == 0;
  if (!fits || t->rank != expected->rank) return fail_tensor(r, t, expected);
  r->tensors[index] = t;
  r->elements[index] = 1;
  for (int i = 1; i < t->rank; i++) r->elements[index] *= t->shape[i]; /* the file was checked: the product fits if no extent is 0 */
  return HARK_OK;
}

static hark_status find_tensors(reading *r, const expected_tensor expected[TENSORS]) {
  char shown[HARK_SHOWN_BYTES];
  for (int i = 0; i < TENSORS; i++) HARK_TRY(find_tensor(r, &expected[i], i));
  for (int64_t i = 0; i < hark_safetensors_count(r->file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(r->file, i);
    if (t != r->tensors[0] && t != r->tensors[1])
      return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: tensor \"%s\" is not known, expected \"%s\" and \"%s\"", r->reader->path,
                       hark_text_shown(t->name, shown), expected[0].name, expected[1].name);
  }
  r->examples = r->tensors[0]->shape[0];
  if (r->examples == r->tensors[1]->shape[0]) return HARK_OK;
  return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: %" PRId64 " examples in \"%s\" and %" PRId64 " in \"%s\"", r->reader->path,
                   r->examples, expected[0].name, r->tensors[1]->shape[0], expected[1].name);
}

static hark_status check_extent(const reading *r, int tensor, int dimension, int64_t largest, int32_t *out) {
  const int64_t extent = r->tensors[tensor]->shape[dimension];
  *out = (int32_t)extent;
  if (extent >= 1 && extent <= largest) return HARK_OK;
  return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: dimension %d of tensor \"%s\" is %" PRId64 ", expected 1 to %" PRId64,
                   r->reader->path, dimension, r->tensors[tensor]->name, extent, largest);
}

static size_t row_bytes(const reading *r, int tensor) {
  return (size_t)(r->tensors[tensor]->bytes / (uint64_t)(r->examples > 0 ? r->examples : 1));
}

/* The bytes of an example of a tensor, in `raw`. */
static hark_status read_row(reading *r, int tensor, int64_t example) {
  const size_t bytes = row_bytes(r, tensor);
  hark_text_resize(&r->raw, bytes);
  HARK_TRY(r->raw.status);
  return hark_input_read_at(r->reader->context, r->input, r->raw.data, bytes, r->tensors[tensor]->offset + (uint64_t)example * bytes);
}

/* Opens the file, calls `read` with its tensors found, and closes it. */
static hark_status read_tensors(hark_example_reader *reader, const hark_input *input, const expected_tensor expected[TENSORS],
                                hark_status (*read)(reading *r)) {
  reading r = {.reader = reader, .input = input, .raw = hark_text_empty(reader->context)};
  HARK_TRY(hark_safetensors_open_part(reader->context, reader->path, input->descriptor, input->base, input->size, &r.file));
  hark_status status = find_tensors(&r, expected);
  if (status == HARK_OK) status = read(&r);
  hark_text_free(&r.raw);
  hark_safetensors_close(reader->context, &r.file);
  return status;
}

/* ---- vectors ---- */

/* The numbers of an example of a tensor as f32. */
static hark_status read_numbers(reading *r, int tensor, int64_t example, float *out) {
  const hark_stored_tensor *const t = r->tensors[tensor];
  HARK_TRY(read_row(r, tensor, example));
  if (t->type == HARK_F32) memcpy(out, r->raw.data, (size_t)r->elements[tensor] * sizeof *out);
  for (int64_t i = 0; i < r->elements[tensor]; i++) {
    if (t->type != HARK_F32) out[i] = (float)((const double *)(const void *)r->raw.data)[i];
    if (!isfinite(out[i]))
      return hark_fail(r->reader->context, HARK_BAD_FILE,
                       "%s: a number that is not finite (as f32) in \"%s\": example %" PRId64 ", number %" PRId64, r->reader->path, t->name,
                       example, i);
  }
  return HARK_OK;
}

static hark_status set_vector_shape(reading *r, int32_t *length) {
  hark_example_shape shape = {.symbols = 1};
  bool same;
  HARK_TRY(check_extent(r, 0, 1, HARK_VECTORS_LENGTH_MAX, length));
  HARK_TRY(check_extent(r, 0, 2, HARK_VECTORS_FEATURES_MAX, &shape.features));
  HARK_TRY(check_extent(r, 1, 1, HARK_VECTORS_FEATURES_MAX, &shape.responses));
  HARK_TRY(hark_example_shape_set(r->reader, &shape, NULL, 0, &same));
  if (same) return HARK_OK;
  return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: %" PRId32 " features and %" PRId32 " responses, unlike the previous files",
                   r->reader->path, shape.features, shape.responses);
}

static hark_status read_vectors(reading *r) {
  int32_t length = 0;
  HARK_TRY(set_vector_shape(r, &length));
  if (r->examples == 0) return HARK_OK; /* otherwise an example is not larger than the file */
  hark_text *const numbers = &r->reader->scratch;
  hark_text_resize(numbers, (size_t)(r->elements[0] + r->elements[1]) * sizeof(float));
  HARK_TRY(numbers->status);
  float *const tokens = (float *)(void *)numbers->data, *const targets = tokens + r->elements[0];
  for (int64_t i = 0; i < r->examples; i++) {
    HARK_TRY(read_numbers(r, 0, i, tokens));
    HARK_TRY(read_numbers(r, 1, i, targets));
    HARK_TRY(hark_example_vectors(r->reader, tokens, (size_t)length, targets));
    HARK_TRY(hark_example_end(r->reader, HARK_TARGET_IGNORED));
  }
  return HARK_OK;
}

hark_status hark_tensor_examples_read_vectors(hark_example_reader *reader, const hark_input *file) {
  return read_tensors(reader, file, vectors, read_vectors);
}

/* ---- images ---- */

static hark_status read_label(reading *r, int64_t example, int64_t *out) {
  HARK_TRY(read_row(r, 1, example));
  const void *const data = r->raw.data;
  if (r->tensors[1]->type == HARK_I64)
    *out = *(const int64_t *)data;
  else
    *out = r->tensors[1]->type == HARK_U8 ? *(const unsigned char *)data : *(const int32_t *)data;
  return HARK_OK;
}

static hark_status fail_label(const reading *r, int64_t example, int64_t label, int64_t classes) {
  return hark_fail(r->reader->context, HARK_BAD_FILE,
                   "%s: label %" PRId64 " of example %" PRId64 " is out of range, expected 0 to %" PRId64, r->reader->path, label, example,
                   classes - 1);
}

static hark_status find_classes(reading *r, int32_t *out) {
  const char *const stated = hark_safetensors_metadata(r->file, "classes");
  int64_t classes = hark_example_reader_shape(r->reader)->classes, label = 0;
  if (stated != NULL) {
    char shown[HARK_SHOWN_BYTES];
    if (!hark_number_read_whole(stated, strlen(stated), &classes) || classes < 2 || classes > HARK_IMAGE_CLASSES_MAX)
      return hark_fail(r->reader->context, HARK_BAD_FILE, "%s: metadata \"classes\" is \"%s\", expected 2 to %d", r->reader->path,
                       hark_text_shown(stated, shown), HARK_IMAGE_CLASSES_MAX);
  } else if (classes == 0) {
    classes = 2;
    for (int64_t i = 0; i < r->examples; i++) {
      HARK_TRY(read_label(r, i, &label));
      if (label < 0 || label >= HARK_IMAGE_CLASSES_MAX) return fail_label(r, i, label, HARK_IMAGE_CLASSES_MAX);
      classes = hark_max(classes, label + 1);
    }
  }
  *out = (int32_t)classes;
  return HARK_OK;
}

static hark_status set_image_shape(reading *r) {
  hark_example_shape shape = {.symbols = HARK_BYTE_SYMBOLS};
  bool same;
  HARK_TRY(check_extent(r, 0, 1, HARK_IMAGE_SIDE_MAX, &shape.height));
  HARK_TRY(check_extent(r, 0, 2, HARK_IMAGE_SIDE_MAX, &shape.width));
  HARK_TRY(find_classes(r, &shape.classes));
  HARK_TRY(hark_example_shape_set(r->reader, &shape, NULL, 0, &same));
  if (same) return HARK_OK;
  return hark_fail(r->reader->context, HARK_BAD_FILE,
                   "%s: images of %" PRId32 " x %" PRId32 " in %" PRId32 " classes, unlike the previous ones", r->reader->path,
                   shape.height, shape.width, shape.classes);
}

static hark_status read_images(reading *r) {
  HARK_TRY(set_image_shape(r));
  const int64_t classes = hark_example_reader_shape(r->reader)->classes;
  int64_t label = 0;
  for (int64_t i = 0; i < r->examples; i++) {
    HARK_TRY(read_label(r, i, &label));
    if (label < 0 || label >= classes) return fail_label(r, i, label, classes);
    HARK_TRY(read_row(r, 0, i));
    HARK_TRY(hark_example_part(r->reader, r->raw.data, r->raw.length));
    HARK_TRY(hark_example_end(r->reader, (int32_t)label));
  }
  return HARK_OK;
}

hark_status hark_tensor_examples_read_images(hark_example_reader *reader, const hark_input *file) {
  return read_tensors(reader, file, images, read_images);
}

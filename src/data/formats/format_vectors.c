/* format_vectors.c - see vector_file.h. Tokens have no symbols, only places: all are symbol 0, and their numbers are stored separately.
 * Sequences of one file have one length; lengths of files may differ.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/formats/little_endian.h"
#include "data/formats/record_header.h"
#include "data/formats/tensor_examples.h"
#include "io/files.h"

/* Offsets of the numbers in the header. */
enum { VERSION = 8, LENGTH = 12, FEATURES = 16, RESPONSES = 20, COUNT = 24 };

void hark_vectors_header(const char *magic, int64_t length, int64_t features, int64_t responses, int64_t count,
                         unsigned char out[HARK_VECTORS_HEADER_BYTES]) {
  memcpy(out, magic, VERSION);
  hark_number_put(out + VERSION, HARK_VECTORS_VERSION, 4);
  hark_number_put(out + LENGTH, (uint64_t)length, 4);
  hark_number_put(out + FEATURES, (uint64_t)features, 4);
  hark_number_put(out + RESPONSES, (uint64_t)responses, 4);
  hark_number_put(out + COUNT, (uint64_t)count, 8);
}

static hark_status check_numbers(const hark_example_reader *reader, const float *numbers, size_t count, uint64_t at) {
  for (size_t i = 0; i < count; i++)
    if (!isfinite(numbers[i]))
      return hark_fail(reader->context, HARK_BAD_FILE, "%s: a number that is not finite at byte offset %" PRIu64, reader->path,
                       at + i * sizeof *numbers);
  return HARK_OK;
}

/* Reads records one by one: they may be large, and reading takes little time. */
static hark_status read_records(hark_example_reader *reader, const hark_input *file, int32_t length, uint64_t count) {
  const hark_example_shape *const shape = hark_example_reader_shape(reader);
  const size_t numbers = hark_vectors_record(length, shape->features, shape->responses), bytes = numbers * sizeof(float);
  if (count == 0) return HARK_OK; /* otherwise a record is not larger than the file */
  hark_text_resize(&reader->scratch, bytes);
  HARK_TRY(reader->scratch.status);
  float *const record = (float *)(void *)reader->scratch.data;
  for (uint64_t i = 0; i < count; i++) {
    const uint64_t at = HARK_VECTORS_HEADER_BYTES + i * bytes;
    HARK_TRY(hark_input_read_at(reader->context, file, reader->scratch.data, bytes, at));
    HARK_TRY(check_numbers(reader, record, numbers, at));
    HARK_TRY(hark_example_vectors(reader, record, (size_t)length, record + (size_t)length * (size_t)shape->features));
    HARK_TRY(hark_example_end(reader, HARK_TARGET_IGNORED));
  }
  return HARK_OK;
}

hark_status hark_vectors_read_header(hark_example_reader *reader, const hark_input *file, const hark_vectors_kind *kind,
                                     hark_vectors_sizes *out) {
  unsigned char header[HARK_VECTORS_HEADER_BYTES];
  int32_t version;
  if (file->size < sizeof header)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRIu64 " bytes, the header alone has %zu", reader->path, file->size,
                     sizeof header);
  HARK_TRY(hark_input_read_at(reader->context, file, header, sizeof header, 0));
  if (memcmp(header, kind->magic, VERSION) != 0 && kind->otherwise == NULL)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: is no file of %s, which begin with \"%s\"", reader->path, kind->name,
                     kind->magic);
  if (memcmp(header, kind->magic, VERSION) != 0)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: is neither a file of %s (\"%s\") nor %s", reader->path, kind->name, kind->magic,
                     kind->otherwise);
  HARK_TRY(hark_header_number(reader, header, VERSION, "version", HARK_VECTORS_VERSION, HARK_VECTORS_VERSION, &version));
  HARK_TRY(hark_header_number(reader, header, LENGTH, kind->length, 1, HARK_VECTORS_LENGTH_MAX, &out->length));
  HARK_TRY(hark_header_number(reader, header, FEATURES, kind->features, 1, HARK_VECTORS_FEATURES_MAX, &out->features));
  HARK_TRY(hark_header_number(reader, header, RESPONSES, kind->responses, 1, HARK_VECTORS_FEATURES_MAX, &out->responses));
  out->count = hark_number_get(header + COUNT, 8);
  const uint64_t bytes = kind->record(out->length, out->features, out->responses) * sizeof(float);
  if (out->count > file->size / bytes || file->size - sizeof header != out->count * bytes)
    return hark_fail(reader->context, HARK_BAD_FILE,
                     "%s: %" PRIu64 " bytes, expected %zu and %" PRIu64 " records of %" PRIu64 ", as byte offset %d says", reader->path,
                     file->size, sizeof header, out->count, bytes, COUNT);
  return HARK_OK;
}

static hark_status read_open(hark_example_reader *reader, const hark_input *file) {
  static const hark_vectors_kind kind = {.magic = HARK_VECTORS_MAGIC,
                                         .name = "vectors",
                                         .otherwise = "a safetensors file",
                                         .length = "length",
                                         .features = "number of features",
                                         .responses = "number of responses",
                                         .record = hark_vectors_record};
  hark_vectors_sizes sizes;
  bool same, tensors = false;
  HARK_TRY(hark_tensor_examples_are(reader, file, &tensors));
  if (tensors) return hark_tensor_examples_read_vectors(reader, file);
  HARK_TRY(hark_vectors_read_header(reader, file, &kind, &sizes));
  const hark_example_shape shape = {.symbols = 1, .features = sizes.features, .responses = sizes.responses};
  HARK_TRY(hark_example_shape_set(reader, &shape, NULL, 0, &same));
  if (!same)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRId32 " features and %" PRId32 " responses, unlike the previous files",
                     reader->path, shape.features, shape.responses);
  return read_records(reader, file, sizes.length, sizes.count);
}

static hark_status read_file(hark_example_reader *reader) { return hark_read_binary(reader, read_open); }

/* A token has at least four bytes. */
static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)(file_bytes / sizeof(float)) + 1; }

static const char *vector_name(int32_t symbol, char *text, size_t size) {
  (void)symbol;
  (void)snprintf(text, size, "vector");
  return text;
}

const hark_example_format hark_example_format_vectors = {
    .name = "vectors",
    .summary = "sequences of real vectors; a vector is predicted from each",
    .ending = "vectors",
    .parts = 1,
    .target_kind = HARK_TARGET_VECTOR,
    .symbols_at_most = symbols_at_most,
    .read = read_file,
    .symbol_name = vector_name,
    .symbols_are = "vectors",
};

/* format_tables.c - see table_file.h. Rows have no symbols: all are symbol 0, and their numbers are stored separately. Tables of one file
 * have one number of rows; it may differ between files.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "data/formats/little_endian.h"
#include "data/formats/record_header.h"
#include "data/formats/table_file.h"
#include "data/formats/tensor_examples.h"
#include "io/files.h"

/* An input may be missing; a target may not, and neither may be infinite. */
static hark_status check_numbers(const hark_example_reader *reader, const hark_vectors_sizes *sizes, const float *numbers, uint64_t at) {
  const size_t columns = (size_t)(sizes->features + sizes->responses), count = (size_t)sizes->length * columns;
  for (size_t i = 0; i < count; i++) {
    const bool missing = isnan(numbers[i]) && i % columns < (size_t)sizes->features;
    if (!isfinite(numbers[i]) && !missing)
      return hark_fail(reader->context, HARK_BAD_FILE, "%s: %s that is not finite at byte offset %" PRIu64, reader->path,
                       i % columns < (size_t)sizes->features ? "an input" : "a target", at + i * sizeof *numbers);
  }
  return HARK_OK;
}

static hark_status read_records(hark_example_reader *reader, const hark_input *file, const hark_vectors_sizes *sizes) {
  const size_t bytes = hark_tables_record(sizes->length, sizes->features, sizes->responses) * sizeof(float);
  if (sizes->count == 0) return HARK_OK; /* otherwise a record is not larger than the file */
  hark_text_resize(&reader->scratch, bytes);
  HARK_TRY(reader->scratch.status);
  float *const record = (float *)(void *)reader->scratch.data;
  for (uint64_t i = 0; i < sizes->count; i++) {
    const uint64_t at = HARK_VECTORS_HEADER_BYTES + i * bytes;
    HARK_TRY(hark_input_read_at(reader->context, file, reader->scratch.data, bytes, at));
    HARK_TRY(check_numbers(reader, sizes, record, at));
    HARK_TRY(hark_example_vectors(reader, record, (size_t)sizes->length, NULL));
    HARK_TRY(hark_example_end(reader, HARK_TARGET_IGNORED));
  }
  return HARK_OK;
}

static hark_status read_open(hark_example_reader *reader, const hark_input *file) {
  static const hark_vectors_kind kind = {.magic = HARK_TABLES_MAGIC,
                                         .name = "tables",
                                         .length = "number of rows",
                                         .features = "number of inputs",
                                         .responses = "number of targets",
                                         .record = hark_tables_record};
  hark_vectors_sizes sizes;
  bool same;
  HARK_TRY(hark_vectors_read_header(reader, file, &kind, &sizes));
  const hark_example_shape shape = {.symbols = 1, .features = sizes.features + sizes.responses, .responses = sizes.responses};
  HARK_TRY(hark_example_shape_set(reader, &shape, NULL, 0, &same));
  if (!same)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %" PRId32 " inputs and %" PRId32 " targets, unlike the previous files",
                     reader->path, sizes.features, sizes.responses);
  return read_records(reader, file, &sizes);
}

static hark_status read_file(hark_example_reader *reader) { return hark_read_binary(reader, read_open); }

/* A row has at least eight bytes. */
static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)(file_bytes / (2 * sizeof(float))) + 1; }

static const char *row_name(int32_t symbol, char *text, size_t size) {
  (void)symbol;
  (void)snprintf(text, size, "row");
  return text;
}

const hark_example_format hark_example_format_tables = {
    .name = "tables",
    .summary = "tables of numbers: targets of some rows are predicted from the other rows",
    .ending = "tables",
    .parts = 1,
    .target_kind = HARK_TARGET_ROWS,
    .symbols_at_most = symbols_at_most,
    .read = read_file,
    .symbol_name = row_name,
    .symbols_are = "rows",
};

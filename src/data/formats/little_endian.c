/* little_endian.c - see little_endian.h. */
#include "data/formats/little_endian.h"

#include <inttypes.h>

#include "data/sources.h"

hark_status hark_read_binary(hark_example_reader *reader, hark_open_reader *read) {
  hark_input file;
  HARK_TRY(hark_source_open(reader->context, reader->source, &file));
  const hark_status status = read(reader, &file);
  hark_input_close(&file);
  return status;
}

hark_status hark_header_number(const hark_example_reader *reader, const unsigned char *header, int at, const char *what, uint64_t low,
                               uint64_t high, int32_t *out) {
  const uint64_t number = hark_number_get(header + at, 4);
  if (number < low || number > high)
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: %s is %" PRIu64 " at byte offset %d, expected %" PRIu64 " to %" PRIu64,
                     reader->path, what, number, at, low, high);
  *out = (int32_t)number;
  return HARK_OK;
}

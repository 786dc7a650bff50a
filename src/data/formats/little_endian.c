/* little_endian.c - see little_endian.h. */
#include "data/formats/little_endian.h"

#include <inttypes.h>

#include "io/files.h"

hark_status hark_read_binary(hark_example_reader *reader, hark_open_reader *read) {
  int file;
  uint64_t size;
  HARK_TRY(hark_file_open(reader->context, reader->path, &file, &size));
  const hark_status status = read(reader, file, size);
  hark_file_close(&file);
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

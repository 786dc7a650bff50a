/* little_endian.h - binary files of examples: integers in their headers, lowest byte first. */
#ifndef HARK_DATA_FORMATS_LITTLE_ENDIAN_H
#define HARK_DATA_FORMATS_LITTLE_ENDIAN_H

#include "data/formats/example_format.h"
#include "data/inputs.h"

static inline void hark_number_put(unsigned char *to, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(number >> (8 * i));
}

static inline uint64_t hark_number_get(const unsigned char *from, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number |= (uint64_t)from[i] << (8 * i);
  return number;
}

/* Opens the reader's file, calls `read`, and closes the file. */
typedef hark_status hark_open_reader(hark_example_reader *reader, const hark_input *file);
HARK_MUST_CHECK hark_status hark_read_binary(hark_example_reader *reader, hark_open_reader *read);

/* The u32 at an offset of a file's header. `what` names it in the message. Errors: HARK_BAD_FILE when it is outside [low, high]. */
HARK_MUST_CHECK hark_status hark_header_number(const hark_example_reader *reader, const unsigned char *header, int at, const char *what,
                                               uint64_t low, uint64_t high, int32_t *out);

#endif

/* event_reader.h - a reader of TensorBoard's event files for tests, which knows nothing of the code that writes them. */
#ifndef HARK_TESTS_EVENT_READER_H
#define HARK_TESTS_EVENT_READER_H

#include <stdint.h>

typedef struct test_scalar {
  char tag[256];
  float value;
  int64_t step;
  double seconds;
} test_scalar;

typedef struct test_events {
  int records, starts; /* starts: beginnings of sessions */
  char version[64];
  int count;
  test_scalar *scalars; /* [count], in the order of the file */
} test_events;

/* Reads all records of a file; an incomplete one at the end is left out. A wrong checksum, and a message with a field that is not expected,
 * fail the test. */
void test_events_read(const char *path, test_events *out);
void test_events_free(test_events *events);

#endif

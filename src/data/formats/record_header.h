/* record_header.h - reading the header of files of records (vector_file.h, table_file.h). */
#ifndef HARK_DATA_FORMATS_RECORD_HEADER_H
#define HARK_DATA_FORMATS_RECORD_HEADER_H

#include "data/formats/example_format.h"
#include "data/formats/vector_file.h"
#include "data/inputs.h"

/* Words of a kind of file, for messages, and the size of its records. */
typedef struct hark_vectors_kind {
  const char *magic, *name, *otherwise; /* otherwise: other files that are read too, "a safetensors file"; NULL: none */
  const char *length, *features, *responses;
  size_t (*record)(int64_t length, int64_t features, int64_t responses); /* count of numbers */
} hark_vectors_kind;

/* Reads and checks the header. Errors: HARK_BAD_FILE with the byte offset, those of files. */
HARK_MUST_CHECK hark_status hark_vectors_read_header(hark_example_reader *reader, const hark_input *file, const hark_vectors_kind *kind,
                                                     hark_vectors_sizes *out);

#endif

/* embed_output.h - the embeddings that hark embed writes: JSON lines as they come, or one matrix in a .npy or safetensors file. */
#ifndef HARK_CLI_EMBED_EMBED_OUTPUT_H
#define HARK_CLI_EMBED_EMBED_OUTPUT_H

#include "io/files.h"
#include "io/text.h"

#define HARK_EMBED_FORMAT_WORDS "jsonl|npy|safetensors"
typedef enum hark_embed_format { HARK_EMBED_JSONL, HARK_EMBED_NPY, HARK_EMBED_SAFETENSORS } hark_embed_format;

typedef struct hark_embed_output {
  hark_context *context;
  hark_embed_format format;
  const char *path; /* borrowed */
  int64_t width, rows;
  hark_text text; /* of JSON lines that are not written yet; otherwise the numbers of all rows */
  hark_writer writer;
} hark_embed_output;

/* Opens the file for JSON lines. The caller closes the output, also after a failure. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_embed_output_open(hark_context *context, hark_embed_format format, const char *path, int64_t width,
                                                   hark_embed_output *out);
/* Adds rows [count, width]. Errors: HARK_NOT_FINITE (the row is named), HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_embed_output_add(hark_embed_output *output, const float *rows, int64_t count);
/* Writes what is left. Without it the file is not changed, or lacks rows if it is a pipe. */
HARK_MUST_CHECK hark_status hark_embed_output_finish(hark_embed_output *output);
void hark_embed_output_close(hark_embed_output *output);

#endif

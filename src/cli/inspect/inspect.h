/* inspect.h - shared by the files of hark inspect. */
#ifndef HARK_CLI_INSPECT_INSPECT_H
#define HARK_CLI_INSPECT_INSPECT_H

#include "cli/common.h"
#include "cli/inspect/head_statistics.h"

/* What is printed and drawn. */
typedef struct hark_inspection {
  const char *model, *text; /* as they were given */
  int64_t count, distance;  /* D of hark_head_statistics.far */
  bool cut;                 /* the text has more tokens */
  hark_model_statistics statistics;
} hark_inspection;

/* The first tokens of a text that a model reads at once, with those that its tokenizer puts around a text. */
typedef struct hark_inspect_text {
  int32_t *ids;
  size_t capacity; /* numbers of the memory */
  int64_t count;
  bool cut;
  int64_t unknown; /* of these, tokens for what the model's own vocabulary lacks */
} hark_inspect_text;

/* Reads the beginning of a file ("-": standard input), at least as many bytes as fill the model's context. `tokenizer` as in
 * hark_embed_text_open(). The caller frees *out, also after a failure. Errors: HARK_BAD_FILE (an empty text, fewer than two tokens, not
 * UTF-8), HARK_UNSUPPORTED (a model of real vectors, or without a vocabulary), those of files. */
HARK_MUST_CHECK hark_status hark_inspect_text_read(hark_context *context, const hark_model *model, const char *path, const char *tokenizer,
                                                   const char *text, hark_inspect_text *out);
void hark_inspect_text_free(hark_context *context, hark_inspect_text *text);

/* Maps of the numbers, layers down and heads across. A name that ends with .png is a PNG. */
HARK_MUST_CHECK hark_status hark_inspect_draw(hark_invocation *call, const hark_inspection *inspection, const char *path);

#endif

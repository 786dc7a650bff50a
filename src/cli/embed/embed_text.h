/* embed_text.h - the lines of a text as tokens that a model reads, for hark embed. */
#ifndef HARK_CLI_EMBED_EMBED_TEXT_H
#define HARK_CLI_EMBED_EMBED_TEXT_H

#include <hark/predictor.h>

#include "cli/tokenize/text_tokens.h"

/* Zero it before use. */
typedef struct hark_embed_text {
  const hark_model *model;
  hark_text_tokens tokens; /* of a tokenizer of its own file; where it is absent, the model's vocabulary is used */
  bool separate;           /* there is such a file */
  hark_unknown unknown;
  bool truncate;
  int64_t limit; /* tokens of a line, at most */
  int64_t begin; /* before every line, for models of sentences; 0: none */
  int32_t *ids;  /* of a line: [capacity] */
  size_t capacity;
  int64_t cut, first_line, first_tokens; /* lines that were cut, and the first of them */
} hark_embed_text;

/* Finds the tokens of the model at `path`: `tokenizer` ("": none is given), the model's vocabulary, or tokenizer.json, tokenizer.model or
 * vocab.txt in the folder of the weights. Sets the limit to that of the model (max_seq_length of sentence-transformers), or to 0. The
 * caller closes it, also after a failure. Errors: those of files, HARK_UNSUPPORTED (there is none). */
HARK_MUST_CHECK hark_status hark_embed_text_open(hark_context *context, const char *path, const char *tokenizer, const hark_model *model,
                                                 hark_embed_text *out);
void hark_embed_text_close(hark_context *context, hark_embed_text *text);

/* The tokens of the reader's line, up to the next call. A line of more than `limit` tokens is cut before the special tokens at its end, or
 * with `truncate` false refused. Errors: HARK_BAD_FILE with the place of the line (not UTF-8, no tokens, too many). */
HARK_MUST_CHECK hark_status hark_embed_text_encode(hark_context *context, hark_embed_text *text, const hark_line_reader *lines,
                                                   const int32_t **ids, size_t *count);

#endif

/* text_tokens.h - the tokenizer of any model, for hark tokenize and hark detokenize: of a run, an exported model, a vocabulary.json, a
 * tokenizer.json (or the folder with one), or SentencePiece's .model. */
#ifndef HARK_CLI_TOKENIZE_TEXT_TOKENS_H
#define HARK_CLI_TOKENIZE_TEXT_TOKENS_H

#include "data/line_reader.h"
#include "tokenizers/imported.h"
#include "tokenizers/pipeline/pipeline.h"

/* One of both. Zero it before use. */
typedef struct hark_text_tokens {
  hark_tokenizer *own;
  hark_pipeline *pipeline;
  hark_pipeline_work *work;
  int32_t *ids; /* of a line, for `own`: [capacity] */
  size_t capacity;
} hark_text_tokens;

/* Errors: those of the files, HARK_UNSUPPORTED (a model of examples, or without a vocabulary). */
HARK_MUST_CHECK hark_status hark_text_tokens_open(hark_context *context, const char *path, hark_text_tokens *out);
/* That of an imported model, which messages call `name`. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_text_tokens_open_imported(hark_context *context, const char *name, const hark_imported *imported,
                                                           hark_text_tokens *out);
void hark_text_tokens_close(hark_context *context, hark_text_tokens *tokens);

/* Numbers of tokens are below it. */
int32_t hark_text_tokens_size(const hark_text_tokens *tokens);

/* The tokens of a line, up to the next call. `special` concerns a pipeline, `unknown` the other. Messages contain the place in the file. */
HARK_MUST_CHECK hark_status hark_text_tokens_encode(hark_context *context, hark_text_tokens *tokens, const hark_line_reader *lines,
                                                    bool special, hark_unknown unknown, const int32_t **ids, size_t *count);

/* Appends the text of tokens. */
HARK_MUST_CHECK hark_status hark_text_tokens_decode(hark_context *context, hark_text_tokens *tokens, const int32_t *ids, size_t count,
                                                    bool special, hark_text *out);

#endif

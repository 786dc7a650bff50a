/* pipeline.h - tokenizers of others: tokenizer.json as the Hugging Face tokenizers library writes it, and SentencePiece's .model.
 *
 * A pipeline does not change once it is read, and any number of threads may use it, each with its own work. Numbers of tokens are the
 * file's. docs/formats.md lists what is read and what is refused.
 */
#ifndef HARK_TOKENIZERS_PIPELINE_PIPELINE_H
#define HARK_TOKENIZERS_PIPELINE_PIPELINE_H

#include <hark/context.h>

#include "io/text.h"

#define HARK_PIPELINE_FILE_BYTES ((size_t)128 << 20)

typedef struct hark_pipeline hark_pipeline;
/* Memory of one caller: buffers, and a cache of words. */
typedef struct hark_pipeline_work hark_pipeline_work;

/* Reads a file: SentencePiece's if its first bytes are a protocol buffer's, otherwise tokenizer.json. The caller destroys the pipeline.
 * Errors: HARK_BAD_FILE (file and place), HARK_UNSUPPORTED (what is not supported, by its name), HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_pipeline_load(hark_context *context, const char *path, hark_pipeline **out);
/* The same from memory, which may be freed afterwards; messages call the file `name`. */
HARK_MUST_CHECK hark_status hark_pipeline_read(hark_context *context, const char *name, const void *data, size_t bytes,
                                               hark_pipeline **out);
void hark_pipeline_destroy(hark_context *context, hark_pipeline **pipeline);

/* Numbers of tokens are in [0, size). */
int32_t hark_pipeline_size(const hark_pipeline *pipeline);
/* A token as the file writes it ("\xE2\x96\x81the", "##ing"); NULL: there is no such token. Owned by the pipeline. */
const char *hark_pipeline_token(const hark_pipeline *pipeline, int64_t id, size_t *bytes);
/* The number of a token as the file writes it; -1: none. */
int32_t hark_pipeline_find(const hark_pipeline *pipeline, const char *text, size_t bytes);

/* The caller destroys the work before the pipeline. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_pipeline_work_create(hark_context *context, const hark_pipeline *pipeline, hark_pipeline_work **out);
void hark_pipeline_work_destroy(hark_pipeline_work **work);

/* The tokens of a text, with the special tokens that the post-processor adds, or without. *ids belongs to the work, up to its next call.
 * Errors: HARK_BAD_FILE (not UTF-8; the model has no token for a character or a word, nor an unknown token; *at is the byte, and the
 * message has no place), HARK_UNSUPPORTED (a regular expression takes too many steps, the text becomes too long), HARK_TOO_LARGE (more
 * than 2^30 bytes), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_pipeline_encode(hark_pipeline_work *work, const char *text, size_t bytes, bool special,
                                                 const int32_t **ids, size_t *count, size_t *at);

/* Appends the text of tokens; without `special`, special tokens are left out. Tokens that do not exist are left out too.
 * Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_pipeline_decode(hark_pipeline_work *work, const int32_t *ids, size_t count, bool special, hark_text *out);
/* Appends the text of one token as it is in the middle of a text: its bytes, which may be a part of a character; nothing for special tokens
 * and numbers without a token. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_pipeline_decode_apart(hark_pipeline_work *work, int32_t id, hark_text *out);

#endif

/* imported.h - the tokenizer of an imported model: a pipeline (pipeline/pipeline.h), the file that it was read from, and the text of every
 * token. It does not change once it is read, and any number of threads may use it. */
#ifndef HARK_TOKENIZERS_IMPORTED_H
#define HARK_TOKENIZERS_IMPORTED_H

#include <hark/context.h>

#include "io/text.h"

typedef struct hark_imported hark_imported;

/* Reads the contents of a tokenizer.json or of a SentencePiece model; messages call them `name`. The caller destroys it. Errors: those of
 * hark_pipeline_read(). */
HARK_MUST_CHECK hark_status hark_imported_read(hark_context *context, const char *name, const void *data, size_t bytes,
                                               hark_imported **out);
void hark_imported_destroy(hark_context *context, hark_imported **imported);

/* "tokenizer.json" or "tokenizer.model": the name of such a file. */
const char *hark_imported_kind(const hark_imported *imported);
const void *hark_imported_file(const hark_imported *imported, size_t *bytes);
/* Numbers of tokens are in [0, size). */
int32_t hark_imported_size(const hark_imported *imported);

/* The file as a text, which files of models contain: JSON as it is, other bytes as hexadecimal digits. Back: the file's bytes, appended to
 * a text, and a tokenizer from them. Errors: HARK_BAD_FILE for any other text. */
void hark_imported_print(const hark_imported *imported, hark_text *out);
HARK_MUST_CHECK hark_status hark_imported_bytes(hark_context *context, const char *name, const char *text, hark_text *out);
HARK_MUST_CHECK hark_status hark_imported_parse(hark_context *context, const char *name, const char *text, hark_imported **out);

/* The tokens of a text, as many as there is room for; *count is how many there are. With `special`, with the tokens that the file puts
 * around a text. Errors: HARK_BAD_FILE (a fault of the text, whose byte the message has), HARK_TOO_LARGE, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_imported_encode(hark_context *context, const hark_imported *imported, const char *text, size_t bytes,
                                                 bool special, int32_t *tokens, size_t capacity, size_t *count);

/* The same, given to `sink` at once. *at: the byte of a fault in the text, whose message has no place. Errors: also those of the sink. */
typedef hark_status hark_token_sink(void *user, const int32_t *tokens, size_t count);
HARK_MUST_CHECK hark_status hark_imported_encode_to(hark_context *context, const hark_imported *imported, const char *text, size_t bytes,
                                                    bool special, hark_token_sink *sink, void *user, size_t *at);

/* The bytes of a token in the middle of a text, owned by the tokenizer; none for special tokens and numbers without one. */
const char *hark_imported_text(const hark_imported *imported, int32_t token, size_t *bytes);

#endif

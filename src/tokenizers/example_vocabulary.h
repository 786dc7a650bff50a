/* example_vocabulary.h - the vocabulary.json of labelled examples, for programs that have the model but not the examples: names of classes,
 * and the symbol of every token (hark_examples_vocabulary() prints it). It does not change after it is read.
 */
#ifndef HARK_TOKENIZERS_EXAMPLE_VOCABULARY_H
#define HARK_TOKENIZERS_EXAMPLE_VOCABULARY_H

#include "core/core.h"
#include "tokenizers/tokenizer.h"

typedef struct hark_example_vocabulary hark_example_vocabulary;

/* Whether a vocabulary belongs to examples and not to a tokenizer; false for text that is not JSON. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_is(hark_context *context, const char *text, size_t bytes, bool *is);

/* Reads a vocabulary and copies the text. Errors: HARK_BAD_FILE, HARK_OUT_OF_MEMORY. After a failure *out is NULL. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_parse(hark_context *context, const char *text, size_t bytes,
                                                          hark_example_vocabulary **out);
void hark_example_vocabulary_destroy(hark_context *context, hark_example_vocabulary **vocabulary);

/* The text that it was read from. */
const char *hark_example_vocabulary_text(const hark_example_vocabulary *vocabulary, size_t *bytes);
/* Number of tokens, including the reserved ones. */
int64_t hark_example_vocabulary_size(const hark_example_vocabulary *vocabulary);
/* Number of classes with names; 0 where there are none. */
int64_t hark_example_vocabulary_class_count(const hark_example_vocabulary *vocabulary);
/* Name of a class; NULL where there is none. */
const char *hark_example_vocabulary_class(const hark_example_vocabulary *vocabulary, int64_t index);
/* A token's text: a byte or a word; empty for other tokens. */
const char *hark_example_vocabulary_token(const hark_example_vocabulary *vocabulary, int64_t token, size_t *bytes);

/* Encodes a text as its bytes, or as its words, separated by blanks. `tokens` has room for `bytes` tokens. A word outside the vocabulary
 * becomes HARK_TOKEN_UNKNOWN with `map_unknown`; otherwise it is an error. Errors: HARK_BAD_FILE with the word's place; HARK_UNSUPPORTED
 * where the symbols are grey values or numbers. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_encode(hark_context *context, const hark_example_vocabulary *vocabulary,
                                                           bool map_unknown, const char *text, size_t bytes, int32_t *tokens,
                                                           size_t *count);
/* The same; HARK_BAD_FILE comes with the place in *fault and without a message. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_encode_line(hark_context *context, const hark_example_vocabulary *vocabulary,
                                                                bool map_unknown, const char *text, size_t bytes, int32_t *tokens,
                                                                size_t *count, hark_text_fault *fault);

#endif

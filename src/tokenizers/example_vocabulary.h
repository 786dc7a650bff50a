/* example_vocabulary.h - the vocabulary.json of labelled examples, for those who have the model and not the examples: names of classes, and
 * which token stands for what (hark_examples_vocabulary() prints it). It never changes once it is read.
 */
#ifndef HARK_TOKENIZERS_EXAMPLE_VOCABULARY_H
#define HARK_TOKENIZERS_EXAMPLE_VOCABULARY_H

#include "core/core.h"

typedef struct hark_example_vocabulary hark_example_vocabulary;

/* Whether a vocabulary is one of examples, and not a tokenizer's; what is no JSON is none. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_is(hark_context *context, const char *text, size_t bytes, bool *is);

/* Reads it; the text may go afterwards. Errors: HARK_BAD_FILE, HARK_OUT_OF_MEMORY. When it fails *out is NULL. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_parse(hark_context *context, const char *text, size_t bytes,
                                                          hark_example_vocabulary **out);
void hark_example_vocabulary_destroy(hark_context *context, hark_example_vocabulary **vocabulary);

/* The text that it was read from. */
const char *hark_example_vocabulary_text(const hark_example_vocabulary *vocabulary, size_t *bytes);
/* Tokens, the reserved ones among them. */
int64_t hark_example_vocabulary_size(const hark_example_vocabulary *vocabulary);
/* Classes that have names; 0 where there are none. */
int64_t hark_example_vocabulary_class_count(const hark_example_vocabulary *vocabulary);
/* Name of a class; NULL where there is none. */
const char *hark_example_vocabulary_class(const hark_example_vocabulary *vocabulary, int64_t index);
/* A token's text: a byte or a word; nothing of others. */
const char *hark_example_vocabulary_token(const hark_example_vocabulary *vocabulary, int64_t token, size_t *bytes);

/* A text -> tokens: its bytes, or its words, which blanks divide. `tokens` has room for `bytes` of them. A word that is none of the
 * vocabulary is HARK_BAD_FILE with its place, or HARK_TOKEN_UNKNOWN with `map_unknown`. HARK_UNSUPPORTED: the symbols are grey values or
 * numbers. */
HARK_MUST_CHECK hark_status hark_example_vocabulary_encode(hark_context *context, const hark_example_vocabulary *vocabulary,
                                                           bool map_unknown, const char *text, size_t bytes, int32_t *tokens,
                                                           size_t *count);

#endif

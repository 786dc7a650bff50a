/* delimiters.h - delimiters of chunks: texts become tokens when the vocabulary of the data is known, and one has to occur in them.
 *
 * Options that are lists of delimiters contain numbers of tokens ("10,46+32": token 10, and token 46 with token 32 after it) and texts. An
 * item whose first character is neither a digit nor a minus is a text; in it, \n, \t, \r and \\ are a line end, a tabulator, a carriage
 * return and a backslash. */
#ifndef HARK_TRAIN_DELIMITERS_H
#define HARK_TRAIN_DELIMITERS_H

#include "data/corpora/corpus.h"
#include "data/examples/examples.h"
#include "models/model_options.h"
#include "train/config.h"
#include "train/delimiter_tokens.h"

/* Whether an item of an option is a text. */
bool hark_delimiter_is_text(const char *item);
/* The text of an item, without escapes, of at most strlen(item) bytes. false: an escape is unknown. out may be NULL. */
bool hark_delimiter_text(const char *item, char *out, size_t *bytes);

/* The list of delimiters that the model of a configuration uses; NULL: it uses none. */
const hark_model_list *hark_delimiters_list(const hark_config *config);

/* The tokens of the configuration's delimiters, if there is a text among them; else none. One of `tokenizer` and `examples` is NULL.
 * Errors: HARK_BAD_CONFIGURATION for texts that are not in the vocabulary, or for too many tokens. */
HARK_MUST_CHECK hark_status hark_delimiters_find(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer,
                                                 const hark_examples *examples, hark_delimiter_tokens *out);

/* Replaces texts in the options by tokens. Errors: those of hark_delimiters_find. */
HARK_MUST_CHECK hark_status hark_delimiters_settle(hark_context *context, hark_options *options, const hark_config *config,
                                                   const hark_tokenizer *tokenizer);

/* HARK_OK if the configuration has no delimiters, or if one of them (`found`: those of its texts) occurs in the training split of the
 * examples or, where they are NULL, of the text. Also HARK_OK if a delimiter is not a token: the model refuses it. Errors:
 * HARK_BAD_CONFIGURATION if no delimiter occurs (all chunks would have the maximum length); those of reading. */
HARK_MUST_CHECK hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_delimiter_tokens *found,
                                                  const hark_examples *examples, const hark_corpus *corpus);

#endif

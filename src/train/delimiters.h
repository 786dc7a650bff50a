/* delimiters.h - checks that the tokens after which chunks end occur in the data. */
#ifndef HARK_TRAIN_DELIMITERS_H
#define HARK_TRAIN_DELIMITERS_H

#include "data/corpora/corpus.h"
#include "data/examples/examples.h"
#include "train/config.h"

/* HARK_OK if the configuration has no delimiters, or if one of them occurs in the training split of the examples or, where they are NULL,
 * of the text. Also HARK_OK if a delimiter is not a token: the model refuses it. Errors: HARK_BAD_CONFIGURATION if no delimiter occurs (all
 * chunks would have the maximum length); those of reading. */
HARK_MUST_CHECK hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_examples *examples,
                                                  const hark_corpus *corpus);

#endif

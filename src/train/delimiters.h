/* delimiters.h - tokens behind which chunks end: do they occur? */
#ifndef HARK_TRAIN_DELIMITERS_H
#define HARK_TRAIN_DELIMITERS_H

#include "data/corpora/corpus.h"
#include "data/examples/examples.h"
#include "train/config.h"

/* HARK_OK where the configuration has no delimiters, or where one of them is among the tokens of the training split of the examples or,
 * without any (NULL), of the text; and where the delimiter is no token, which the model refuses. Errors: HARK_BAD_CONFIGURATION: all chunks
 * would have the maximum; those of reading. */
HARK_MUST_CHECK hark_status hark_delimiters_check(hark_context *context, const hark_config *config, const hark_examples *examples,
                                                  const hark_corpus *corpus);

#endif

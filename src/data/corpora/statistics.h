/* statistics.h - entropies of tokens and pairs: the unigram and bigram baselines of models. */
#ifndef HARK_DATA_CORPORA_STATISTICS_H
#define HARK_DATA_CORPORA_STATISTICS_H

#include "data/corpora/corpus.h"

typedef struct hark_text_statistics {
  int64_t tokens;          /* T */
  int64_t distinct_tokens; /* that occur */
  int64_t distinct_pairs;  /* of adjacent tokens that occur */
  double entropy;          /* nats per token: -sum_a p(a) log p(a), the loss of the best prediction without context */
  double pair_entropy;     /* nats per token: -sum_ab p(a, b) log p(b | a), the loss of the best prediction from the previous token */
} hark_text_statistics;

/* Counts a split. Memory grows with the number of distinct pairs. A split without tokens, or without pairs, gives zeros.
 * Errors: those of hark_corpus_read; HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_statistics_measure(hark_context *context, const hark_corpus *corpus, hark_split split,
                                                    hark_text_statistics *out);

#endif

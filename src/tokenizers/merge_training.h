/* merge_training.h - learning merges from words with counts (Sennrich et al., arXiv 1508.07909):
 *
 *     again and again the most frequent pair of adjacent symbols becomes one symbol, in all words
 *
 * The frequency of a pair is the sum over words of count times the number of places where the two are adjacent; "aaa" has two places of
 * (a, a). Of pairs of equal frequency the one with the smaller left symbol is first, then the one with the smaller right symbol. In a word
 * places are merged from left to right.
 *
 * Cost: with N symbols in all words, O(N log N) for words of bounded length. A queue has the pairs by frequency; an entry whose pair has
 * become rarer is put back with its frequency when it is the first. A pair knows the words that it has occurred in.
 */
#ifndef HARK_TOKENIZERS_MERGE_TRAINING_H
#define HARK_TOKENIZERS_MERGE_TRAINING_H

#include "core/core.h"

/* Word w is symbol[at[w] .. at[w + 1]) and occurs count[w] times. The symbols are overwritten. */
typedef struct hark_merge_job {
  int32_t *symbol;
  const size_t *at; /* [words + 1] */
  const int64_t *count;
  size_t words; /* below 2^32 */
} hark_merge_job;

/* Receives a pair, and returns the symbol that it becomes, a new one. *more: false ends learning after it, without
 * merging. A status other than HARK_OK ends learning with this status. */
typedef hark_status hark_merge_sink(void *user, int32_t left, int32_t right, int32_t *symbol, bool *more);

/* Learns until the sink ends it, or until no word has two symbols. Errors: HARK_OUT_OF_MEMORY, HARK_TOO_LARGE, those of the sink. */
HARK_MUST_CHECK hark_status hark_merges_learn(hark_context *context, const hark_merge_job *job, hark_merge_sink *sink, void *user);

#endif

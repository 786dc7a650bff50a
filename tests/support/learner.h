/* learner.h - a learner of sub-words without a library: characters first, then whole words, in the order of their first occurrence. */
#ifndef HARK_TESTS_SUPPORT_LEARNER_H
#define HARK_TESTS_SUPPORT_LEARNER_H

#include "tokenizers/subwords.h"

/* Piece i has score -1 - i / 4. Gives fewer pieces than asked for where there are no more. */
extern const hark_subword_learner test_learner;

/* test_learner with byte fallback: 261 tokens and at most `pieces` pieces. */
hark_subword_settings test_subwords(hark_subword_model model, int64_t pieces);

#endif

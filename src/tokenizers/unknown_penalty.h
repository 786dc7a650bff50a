/* unknown_penalty.h - the score of an unknown character in a unigram model: so far below the lowest score of the pieces, as in
 * SentencePiece (Kudo and Richardson, arXiv 1808.06226). */
#ifndef HARK_TOKENIZERS_UNKNOWN_PENALTY_H
#define HARK_TOKENIZERS_UNKNOWN_PENALTY_H

#define HARK_UNKNOWN_PENALTY 10.0f

#endif

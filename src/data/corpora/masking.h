/* masking.h - chooses the masked tokens of a sequence, which are to be predicted, and their replacements in the input.
 *
 * Every token is chosen with probability `fraction`; of the chosen tokens, 80 % are replaced by HARK_TOKEN_MASK, 10 % by a random symbol,
 * and 10 % are unchanged (Devlin et al. 2018, arXiv 1810.04805, section 3.1). The choice depends on (seed, stream, sequence, position)
 * alone. Reserved tokens are never chosen.
 */
#ifndef HARK_DATA_CORPORA_MASKING_H
#define HARK_DATA_CORPORA_MASKING_H

#include <stdint.h>

/* Training sequences, and evaluation sequences, whose masks are the same in every evaluation. */
typedef enum hark_masking_stream { HARK_MASKING_TRAINING, HARK_MASKING_EVALUATION } hark_masking_stream;

typedef struct hark_masking {
  uint64_t seed;
  hark_masking_stream stream;
  double fraction;    /* (0, 1) */
  int32_t vocabulary; /* number of tokens, including the reserved ones: more than those */
} hark_masking;

/* Masks tokens of sequence number `sequence` (below 2^40) with `length` (at most 2^24) tokens. `inputs` become the model's inputs;
 * `targets` are the tokens to predict, and HARK_TARGET_IGNORED elsewhere. Returns the number of tokens to predict. */
int64_t hark_mask_tokens(const hark_masking *masking, int64_t sequence, int64_t length, int32_t *inputs, int32_t *targets);

/* Number of tokens to predict in a sequence without reserved tokens. */
int64_t hark_mask_count(const hark_masking *masking, int64_t sequence, int64_t length);

#endif

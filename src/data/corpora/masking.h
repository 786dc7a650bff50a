/* masking.h - which tokens of a sequence are to be guessed, and what the model sees in their place.
 *
 * Every token is chosen with probability `fraction`; of those chosen 80 % are shown as HARK_TOKEN_MASK, 10 % as any symbol, 10 % as they
 * are (Devlin et al. 2018, arXiv 1810.04805, section 3.1). The choice depends on (seed, stream, sequence, position) alone. Reserved tokens
 * are never chosen.
 */
#ifndef HARK_DATA_CORPORA_MASKING_H
#define HARK_DATA_CORPORA_MASKING_H

#include <stdint.h>

/* Sequences of training, and those of evaluation, whose masks are the same every time. */
typedef enum hark_masking_stream { HARK_MASKING_TRAINING, HARK_MASKING_EVALUATION } hark_masking_stream;

typedef struct hark_masking {
  uint64_t seed;
  hark_masking_stream stream;
  double fraction;    /* (0, 1) */
  int32_t vocabulary; /* tokens there are, reserved ones included: more than those */
} hark_masking;

/* Hides tokens of sequence number `sequence` (below 2^40) of `length` (at most 2^24) tokens: inputs as the model sees them, targets the
 * tokens that are to be guessed and HARK_TARGET_IGNORED elsewhere. Returns how many are to be guessed. */
int64_t hark_mask_tokens(const hark_masking *masking, int64_t sequence, int64_t length, int32_t *inputs, int32_t *targets);

/* How many there will be in a sequence without reserved tokens. */
int64_t hark_mask_count(const hark_masking *masking, int64_t sequence, int64_t length);

#endif

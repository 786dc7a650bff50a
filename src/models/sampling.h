/* sampling.h - the next token from logits: temperature, the k likeliest, the nucleus (Holtzman et al., arXiv 1904.09751). */
#ifndef HARK_MODELS_SAMPLING_H
#define HARK_MODELS_SAMPLING_H

#include <hark/model.h>
#include <hark/random.h>

#include "core/core.h"

/* Room that hark_sampling_choose needs for a vocabulary of that size, in bytes. */
size_t hark_sampling_scratch_bytes(int64_t vocabulary);

/* Token number `index` of the text is drawn from logits [vocabulary]; it depends on (seed, index, logits) alone. Tokens below
 * `first_allowed` and those with logits of minus infinity are never drawn. Of equal logits the lower token comes first.
 * Errors: HARK_INVALID_ARGUMENT (a field outside its range, no token left), HARK_NOT_FINITE (NaN, plus infinity). */
HARK_MUST_CHECK hark_status hark_sampling_choose(hark_context *context, const hark_sampling *sampling, const float *logits,
                                                 int64_t vocabulary, int32_t first_allowed, uint64_t index, void *scratch, int32_t *token);

#endif

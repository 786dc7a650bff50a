/* sampling.h - draws the next token from logits: temperature, top-k, nucleus (Holtzman et al., arXiv 1904.09751), min-p (Nguyen et al.,
 * arXiv 2407.01082). */
#ifndef HARK_MODELS_SAMPLING_H
#define HARK_MODELS_SAMPLING_H

#include <hark/model.h>
#include <hark/random.h>

#include "core/core.h"

/* Bytes of scratch memory that hark_sampling_choose() needs for a vocabulary of that size. */
size_t hark_sampling_scratch_bytes(int64_t vocabulary);

/* Draws token number `index` of the text from logits [vocabulary]; it depends on (seed, index, logits) alone. Tokens below `first_allowed`
 * and tokens with a logit of minus infinity are never drawn. Among equal logits, the lower token comes first.
 * Errors: HARK_INVALID_ARGUMENT (a field outside its range, no token left), HARK_NOT_FINITE (NaN, plus infinity). */
HARK_MUST_CHECK hark_status hark_sampling_choose(hark_context *context, const hark_sampling *sampling, const float *logits,
                                                 int64_t vocabulary, int32_t first_allowed, uint64_t index, void *scratch, int32_t *token);

/* Makes the tokens that a text already has less likely (Keskar et al., arXiv 1909.05858, section 4.1, with the sign rule of
 * Transformers): the logit x of each of tokens
 * [count], however often it occurs, becomes x / penalty if it is above 0, and otherwise x * penalty, so that a penalty above 1 lowers both.
 * seen: vocabulary bytes of scratch memory. Tokens outside the vocabulary are ignored. */
void hark_sampling_penalise(float *logits, int64_t vocabulary, const int32_t *tokens, int64_t count, double penalty, unsigned char *seen);

#endif

/* decoding.h - a decoder fed token by token: keys and values of what it has seen are kept, so that a new token costs one row.
 *
 * Structure hierarchical has no cache yet: every call computes the whole text anew.
 * The logits equal those of a pass over the whole text up to rounding: the sums over keys are the same, their order of blocks is not.
 * A state belongs to one thread; the decoder behind it is only read and may be shared by many states.
 */
#ifndef HARK_MODELS_DECODING_H
#define HARK_MODELS_DECODING_H

#include "models/decoder.h"

typedef struct hark_decoding hark_decoding;

/* Makes a state with room for `capacity` tokens. All memory is taken here; the calls below allocate nothing. */
HARK_MUST_CHECK hark_status hark_decoding_create(hark_context *context, const hark_decoder *decoder, int64_t capacity, hark_decoding **out);
void hark_decoding_destroy(hark_context *context, hark_decoding **decoding);

/* Appends `count` >= 1 tokens and gives the logits [V] after the last one (NULL: not wanted), in host memory.
 * Errors: HARK_INVALID_ARGUMENT (no room: nothing is appended; a token outside the vocabulary). */
HARK_MUST_CHECK hark_status hark_decoding_append(hark_context *context, hark_decoding *decoding, const int32_t *tokens, int64_t count,
                                                 float *logits);

/* Forgets all tokens from number `length` on. */
HARK_MUST_CHECK hark_status hark_decoding_truncate(hark_context *context, hark_decoding *decoding, int64_t length);

int64_t hark_decoding_length(const hark_decoding *decoding);
int64_t hark_decoding_capacity(const hark_decoding *decoding);

#endif

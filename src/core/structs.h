/* structs.h - structs of callers that were built against another version of hark: the rule of docs/abi.md.
 *
 * A struct that callers fill and pass by pointer, and that may grow, begins with `size_t struct_size`. Each is taken through
 * hark_take_struct() before anything else of it is read.
 */
#ifndef HARK_CORE_STRUCTS_H
#define HARK_CORE_STRUCTS_H

#include <hark/attention.h>
#include <hark/model.h>
#include <hark/positional.h>
#include <hark/predictor.h>

#include "core/core.h"

/* The least that a caller's struct must hold: what has no default. Never grows. */
#define HARK_LEAST_CONTEXT_OPTIONS offsetof(hark_context_options, allocator)
#define HARK_LEAST_ATTENTION_DESC offsetof(hark_attention_desc, max_sequences)
#define HARK_LEAST_ATTENTION_ARGS (offsetof(hark_attention_args, workspace) + sizeof(void *))

#define HARK_LEAST_MODEL_OPTIONS offsetof(hark_model_options, checkpoint)
#define HARK_LEAST_MODEL_INFO offsetof(hark_model_info, type)
#define HARK_LEAST_DECODING_OPTIONS offsetof(hark_decoding_options, capacity)
#define HARK_LEAST_SAMPLING offsetof(hark_sampling, temperature)
#define HARK_LEAST_POSITIONAL_START offsetof(hark_positional_start, length)
#define HARK_LEAST_PREDICTION_SHAPE offsetof(hark_prediction_shape, outputs)
#define HARK_LEAST_PREDICTOR_OPTIONS offsetof(hark_predictor_options, examples)
#define HARK_LEAST_PREDICTION_INPUT offsetof(hark_prediction_input, chunks)

/* How much larger than what we know a struct may say it is: a size beyond is no size but memory that was never set. */
#define HARK_STRUCT_GROWTH 4096

/* Copies a caller's struct over one of `known_size` bytes that holds the defaults, and sets the copy's struct_size to known_size. A smaller
 * struct comes from an older caller: what it lacks keeps its default. A larger one comes from a newer caller: it is served as long as what
 * we do not know is zero. `name` is the type's, for messages; `least` one of the above.
 * Errors: HARK_INVALID_ARGUMENT (NULL, too small, too large to be a size); HARK_UNSUPPORTED (something set that we do not know). */
HARK_MUST_CHECK hark_status hark_take_struct(hark_context *context, const char *name, const void *given, size_t least, void *known,
                                             size_t known_size);

/* The other way, for structs that hark fills: copies what we know into a caller's struct of the size that he has set. A smaller one gets
 * what it has room for; of a larger one what we do not know becomes zero. struct_size stays the caller's. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_give_struct(hark_context *context, const char *name, void *given, size_t least, const void *known,
                                             size_t known_size);

#endif

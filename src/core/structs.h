/* structs.h - structs of callers that were built with another version of hark: the rule of docs/abi.md.
 *
 * A struct that callers fill and pass by pointer, and that may grow, begins with `size_t struct_size`. hark_take_struct() must copy it
 * before any other field is read.
 */
#ifndef HARK_CORE_STRUCTS_H
#define HARK_CORE_STRUCTS_H

#include <hark/attention.h>
#include <hark/model.h>
#include <hark/positional.h>
#include <hark/predictor.h>
#include <hark/regressor.h>

#include "core/core.h"

/* Minimum sizes of callers' structs: the fields without a default. They never grow. */
#define HARK_LEAST_CONTEXT_OPTIONS offsetof(hark_context_options, allocator)
#define HARK_LEAST_ATTENTION_DESC offsetof(hark_attention_desc, max_sequences)
#define HARK_LEAST_ATTENTION_ARGS (offsetof(hark_attention_args, workspace) + sizeof(void *))

#define HARK_LEAST_MODEL_OPTIONS offsetof(hark_model_options, checkpoint)
#define HARK_LEAST_MODEL_SAVE_OPTIONS offsetof(hark_model_save_options, matrices)
#define HARK_LEAST_MODEL_INFO offsetof(hark_model_info, type)
#define HARK_LEAST_DECODING_OPTIONS offsetof(hark_decoding_options, capacity)
#define HARK_LEAST_DECODING_BATCH_OPTIONS offsetof(hark_decoding_batch_options, decodings)
#define HARK_LEAST_SAMPLING offsetof(hark_sampling, temperature)
#define HARK_LEAST_POSITIONAL_START offsetof(hark_positional_start, length)
#define HARK_LEAST_PREDICTION_SHAPE offsetof(hark_prediction_shape, outputs)
#define HARK_LEAST_PREDICTOR_OPTIONS offsetof(hark_predictor_options, examples)
#define HARK_LEAST_PREDICTION_INPUT offsetof(hark_prediction_input, chunks)
#define HARK_LEAST_REGRESSOR_OPTIONS offsetof(hark_regressor_options, solver)
#define HARK_LEAST_REGRESSOR_TABLE sizeof(hark_regressor_table)

/* A struct may report at most so many more bytes than we know: a larger size means that struct_size was never set. */
#define HARK_STRUCT_GROWTH 4096

/* Copies a caller's struct over one of `known_size` bytes that contains the defaults, and sets the copy's struct_size to known_size. A
 * smaller struct comes from an older caller: the missing fields keep their defaults. A larger one comes from a newer caller: it is accepted
 * if all fields that we do not know are zero. `name` is the type's name, for messages; `least` one of the sizes above. Errors:
 * HARK_INVALID_ARGUMENT (NULL, too small, too large to be a size); HARK_UNSUPPORTED (an unknown field is set). */
HARK_MUST_CHECK hark_status hark_take_struct(hark_context *context, const char *name, const void *given, size_t least, void *known,
                                             size_t known_size);

/* The reverse, for structs that hark fills: copies the fields that we know into a caller's struct of the size that the caller has set. A
 * smaller one gets the fields for which it has room; in a larger one the unknown fields become zero. struct_size is not changed. Errors:
 * HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_give_struct(hark_context *context, const char *name, void *given, size_t least, const void *known,
                                             size_t known_size);

#endif

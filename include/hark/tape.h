/* tape.h - define-by-run differentiation over operator records. All mathematics is in the records.
 *
 * A step: hark_tape_reset(), leaves, hark_tape_apply() for every operator, hark_tape_backward(). Values are small numbers; their memory
 * belongs to the tape and comes from a pool. A shape-only run of the same step finds its size once, so that further steps allocate
 * nothing. A value is valid until the next reset, or, after hark_tape_release(), only as long as the backward needs it.
 */
#ifndef HARK_TAPE_H
#define HARK_TAPE_H

#include "operator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Made by hark_tape_create(). It belongs to its context and, like it, is used by one thread at a time. */
typedef struct hark_tape hark_tape;
typedef int32_t hark_value; /* 0: none */

/* Makes a tape. The caller destroys it. Errors: HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_create(hark_context *context, hark_tape **out);
HARK_API void hark_tape_destroy(hark_tape **tape);

/* Forgets all values and nodes and turns recording on. Memory stays with the tape. */
HARK_API void hark_tape_reset(hark_tape *tape);

/* With shape_only the tape computes nothing and touches no data, but makes the same allocations in its pool, and finds the bytes that a
 * step needs. */
HARK_API void hark_tape_set_shape_only(hark_tape *tape, bool shape_only);
/* The most bytes that values, gradients and workspaces needed at once since the tape was made. */
HARK_API size_t hark_tape_peak_bytes(const hark_tape *tape);
/* Makes room for the bookkeeping of the pool, which hark_tape_reserve() does too; after it reserving is one allocation of the backend.
 * Errors: HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_prepare(hark_tape *tape);
/* Reserves the pool: one allocation of the peak found so far. Errors: HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_reserve(hark_tape *tape);

/* Without recording (inference), nothing is kept for a backward. Recording is on at first. */
HARK_API void hark_tape_set_recording(hark_tape *tape, bool recording);

/* A value whose data the caller owns (a parameter, a batch). `gradient`: the tensor that its gradient is added to, of the same shape
 * and type (f32 for data in bf16), or NULL. Both are borrowed until the step is done, and share no memory with each other. Errors: HARK_SHAPE_MISMATCH (another type or number
 * of elements), HARK_INVALID_ARGUMENT (shared memory), HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_leaf(hark_tape *tape, const hark_tensor *data, const hark_tensor *gradient, hark_value *out);

/* Applies a record to values (0: input left out) and gives its outputs. Attributes are copied. Bit i of `consumed` releases input i with
 * this call, which lets the output take its memory where the record allows it. A record's own functions cannot apply others to the same
 * tape. Errors: those of infer and forward; HARK_INVALID_ARGUMENT. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_apply(hark_tape *tape, const hark_operator *op, const void *attributes, int input_count,
                                                     const hark_value *inputs, unsigned consumed, hark_value *outputs);

/* The same for formulas: applies a record to one, two or three values and returns its first output. A failure returns 0 and is kept by the
 * tape: from then on these calls do nothing and return 0, so that a formula is written without a check in every line, and
 * hark_tape_backward() returns the failure, as hark_tape_failure() does. hark_tape_reset() forgets it. */
HARK_API hark_value hark_apply1(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a);
HARK_API hark_value hark_apply2(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a, hark_value b);
HARK_API hark_value hark_apply3(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a, hark_value b, hark_value c);
/* A leaf on contiguous caller-owned memory: of `shape`, without a gradient if `gradient` is NULL; as hark_tape_leaf(), but the tape keeps a
 * failure. */
HARK_API hark_value hark_tape_input(hark_tape *tape, hark_type type, int rank, const int64_t *shape, void *data, void *gradient);
/* The first failure of these calls since the last reset; its message is in the context, as long as no other call has failed since. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_failure(const hark_tape *tape);

/* The caller will not use the value again. */
HARK_API void hark_tape_release(hark_tape *tape, hark_value value);

/* The tensor of a value, valid until the next reset or release; its data is NULL in a shape-only run. */
HARK_API const hark_tensor *hark_tape_tensor(const hark_tape *tape, hark_value value);

/* Builds a part of the computation: reads inputs, writes outputs. Called once in the forward and again in the backward. */
typedef hark_status hark_tape_segment_build(void *closure, hark_tape *tape, const hark_value *inputs, hark_value *outputs);

/* Runs `build` and keeps only inputs and outputs; the backward runs it again to recompute the values between. `closure` (closure_bytes of
 * plain data) is copied. Everything in the segment that is not an input must be a leaf made inside it; releasing or consuming an input
 * there has no effect. Errors: HARK_INVALID_ARGUMENT (numbers of inputs or outputs, values that do not exist), those of `build`,
 * HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_segment(hark_tape *tape, hark_tape_segment_build *build, const void *closure,
                                                       size_t closure_bytes, int input_count, const hark_value *inputs, int output_count,
                                                       hark_value *outputs);

/* Gradients of a rank-0 value with respect to every leaf that has a gradient, added to the leaves' gradients. Seeds with `seed`. Errors:
 * HARK_INVALID_ARGUMENT (not a value of this tape, or one that depends on no such leaf), HARK_SHAPE_MISMATCH (more than one number, or
 * neither f32 nor f64), those of the records' backwards, HARK_OUT_OF_MEMORY; the failure that the tape has kept. */
HARK_API HARK_MUST_CHECK hark_status hark_tape_backward(hark_tape *tape, hark_value loss, double seed);

/* Useful operations of everything applied since the last reset, forward and, once done, backward. */
HARK_API double hark_tape_operations(const hark_tape *tape);

#ifdef __cplusplus
}
#endif
#endif

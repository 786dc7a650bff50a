/* rows.h - parts of a computation that need no row of another: built slice by slice of rows, so that only a slice's values exist at once.
 *
 * Internal to the library: the operators of such a part must compute a row from itself alone, and the sums over rows of their gradients are
 * those of ops/parts.h.
 */
#ifndef HARK_AUTOGRAD_ROWS_H
#define HARK_AUTOGRAD_ROWS_H

#include <hark/tape.h>

#include "core/core.h"

/* Builds the outputs of a slice, from row `first` on: `inputs` are its rows of the inputs. Called for every slice, in the forward and again
 * in the backward. */
typedef hark_status hark_tape_rows_build(void *closure, hark_tape *tape, int64_t first, const hark_value *inputs, hark_value *outputs);

typedef struct hark_tape_rows {
  hark_tape_rows_build *build;
  const void *closure; /* copied, closure_bytes of plain data */
  size_t closure_bytes;
  int64_t rows, slice; /* in all; in a slice, a multiple of 16 (the last one may be shorter) */
  int input_count, output_count;
  hark_value inputs[HARK_MAX_INPUTS];    /* [1, rows, ...], different ones; 0: none. They are not released */
  hark_tensor outputs[HARK_MAX_OUTPUTS]; /* described: [1, rows, ...]; or rank 0, the sum over the slices, in f32 or f64 */
  bool ends_segment;                     /* in a segment (hark_tape_segment): its outputs are the segment's. They are not computed again */
} hark_tape_rows;

/* Runs `build` for all slices and keeps only inputs and outputs; the backward runs it again, slice by slice. The gradient of an input takes
 * the memory of the input if nothing else needs it, or that of an output's gradient of the same size, or its own. Slices are views. What is
 * not an input must be a leaf made by `build`; releasing or consuming an input there has no effect. Errors: HARK_INVALID_ARGUMENT,
 * HARK_SHAPE_MISMATCH (outputs of `build` other than described), those of `build`, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_tape_rows_apply(hark_tape *tape, const hark_tape_rows *part, hark_value *outputs);

#endif

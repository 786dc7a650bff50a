/* learned_kernels.h - positional kernels as text, and those of a checkpoint with their learned values. */
#ifndef HARK_CLI_PLOT_LEARNED_KERNELS_H
#define HARK_CLI_PLOT_LEARNED_KERNELS_H

#include <hark/positional.h>

#include "io/safetensors.h"
#include "io/text.h"

/* Appends the canonical form of an expression, as it was written (parameters NULL) or with the values of all parameters; with `json` as a
 * string. */
void hark_append_expression(const hark_positional *expression, const double *parameters, bool json, hark_text *text);

/* Appends to `text`, where the file has a positional kernel: separate lines, "  positional ...\n", or with `json` a member, ",
 * \"positional\": {...}"; likewise the learned ridges and sigmas of kernel ridge attention. Errors: HARK_BAD_FILE where expression and
 * tensors of the file do not fit together, those of files and memory. */
HARK_MUST_CHECK hark_status hark_append_learned_kernels(hark_context *context, const char *path, const hark_safetensors *file, bool json,
                                                        hark_text *text);

/* Numbers of positions that a file holds: row `row` of a tensor of `rows`. Valid during the visit. */
typedef struct hark_learned_kernel {
  const char *tensor;
  int64_t row, rows, count;
  const hark_positional *expression; /* NULL: rates of rotary positions */
  const double *parameters;          /* [count], as they are trained */
} hark_learned_kernel;
typedef hark_status hark_kernel_visitor(void *user, const hark_learned_kernel *kernel);

/* Visits all kernels of a file, of which there may be none; a status other than HARK_OK ends it. Errors: as above, and the visitor's. */
HARK_MUST_CHECK hark_status hark_learned_kernels_visit(hark_context *context, const char *path, const hark_safetensors *file,
                                                       hark_kernel_visitor *visit, void *user);

/* The same of learned rates of rotary positions. */
HARK_MUST_CHECK hark_status hark_learned_rates_visit(hark_context *context, const char *path, const hark_safetensors *file,
                                                     hark_kernel_visitor *visit, void *user);

#endif

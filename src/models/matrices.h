/* matrices.h - the matrices of a model in a file: f32, bf16, f16, or i8 with a scale for each row.
 *
 * A file of int8 contains, for a parameter NAME [rows, columns], NAME as I8 and NAME.scale as F32 [rows]: the numbers are
 * NAME.scale[r] NAME[r, c]. Only parameters that a model can hold so (hark_parameter_spec.compact) are stored as I8.
 */
#ifndef HARK_MODELS_MATRICES_H
#define HARK_MODELS_MATRICES_H

#include "io/safetensors.h"
#include "nn/parameters.h"

/* Checks that a file has the tensors of a parameter, and adds their number to *tensors. Errors: HARK_NOT_FOUND; HARK_BAD_FILE for another
 * type or shape, and for I8 if the parameters have gradients. `name` names the file in messages. */
HARK_MUST_CHECK hark_status hark_matrix_check(hark_context *context, const char *name, const hark_safetensors *file,
                                              const hark_parameters *parameters, const hark_parameter *parameter, int64_t *tensors);
/* Reads a parameter that was checked, rounded to the type in which it is held. Errors: HARK_NOT_FINITE, those of files. */
HARK_MUST_CHECK hark_status hark_matrix_read(hark_context *context, const char *name, const hark_safetensors *file,
                                             hark_parameter *parameter);
/* Holds every matrix in the type that it has in the file. Errors: HARK_UNSUPPORTED. */
HARK_MUST_CHECK hark_status hark_matrices_hold_stored(hark_context *context, const char *name, const hark_safetensors *file,
                                                      hark_parameters *parameters);
/* The type of the first matrix that is held in fewer bytes than f32; HARK_F32 if there is none. */
hark_type hark_matrices_type(const hark_parameters *parameters);

/* The tensors of a file, with the matrices in one type. */
typedef struct hark_matrices_to_write {
  hark_named_tensor *tensors;
  int64_t count;
  hark_parameter *converted; /* [parameters]: with their own memory where the type in the file is another one */
  char (*scale_names)[HARK_PARAMETER_NAME_BYTES + 8];
  int32_t parameters;
  size_t bytes; /* of the lists */
} hark_matrices_to_write;

/* `matrices`: as in hark_model_save_options. Closed by the caller after success. Errors: HARK_NOT_FINITE, HARK_UNSUPPORTED,
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_matrices_to_write_open(hark_context *context, const char *path, const hark_parameters *parameters,
                                                        hark_type matrices, hark_matrices_to_write *out);
void hark_matrices_to_write_close(hark_context *context, hark_matrices_to_write *write);

#endif

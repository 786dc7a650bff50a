/* foreign_write.h - a model as a folder that transformers loads: config.json, model.safetensors, and the tokenizer of an imported model. */
#ifndef HARK_MODELS_FOREIGN_FOREIGN_WRITE_H
#define HARK_MODELS_FOREIGN_FOREIGN_WRITE_H

#include "models/model.h"

/* Writes a folder, which must be new or empty, or have the files of an earlier export and no others. These are replaced one by one, each
 * atomically; what cannot be written leaves them. config.json is written last, so that an unfinished new folder is no model. `matrices`:
 * HARK_F32, HARK_BF16 or HARK_F16, or HARK_NONE: as the model holds them. *type is the model_type. The caller sees to it that the folder is
 * not that of the input.
 * Errors: HARK_UNSUPPORTED (an option of the model has no counterpart in any type: it is named; matrices of integers),
 * HARK_BAD_CONFIGURATION (other files in the folder), HARK_BAD_FILE (it is a file), HARK_NOT_FINITE, HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_foreign_export(hark_context *context, const hark_model *model, const char *folder, hark_type matrices,
                                                const char **type);

#endif

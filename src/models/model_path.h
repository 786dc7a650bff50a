/* model_path.h - which file of weights a path refers to. */
#ifndef HARK_MODELS_MODEL_PATH_H
#define HARK_MODELS_MODEL_PATH_H

#include "io/files.h"

/* Finds the file of weights for the path of a file, of a checkpoint's folder or of a run's folder. In a run, `checkpoint` is "best", "last"
 * or the name of a checkpoint; NULL: best, or last where there is no best. With `verify`, the file is compared with the manifest in its
 * folder, if there is one; in a run there must be one. Errors: those of hark_model_load(). */
HARK_MUST_CHECK hark_status hark_model_find_file(hark_context *context, const char *path, const char *checkpoint, bool verify,
                                                 char out[HARK_PATH_BYTES]);

#endif

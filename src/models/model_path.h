/* model_path.h - which file a path means. */
#ifndef HARK_MODELS_MODEL_PATH_H
#define HARK_MODELS_MODEL_PATH_H

#include "io/files.h"

/* The file of weights for a file, a checkpoint's folder or a run's folder (and in it the checkpoint of that name, "best" or "last"; NULL:
 * best, or else last). With `verify` it is compared with the manifest beside it, where there is one; in a run there must be. Errors: those
 * of hark_model_load(). */
HARK_MUST_CHECK hark_status hark_model_find_file(hark_context *context, const char *path, const char *checkpoint, bool verify,
                                                 char out[HARK_PATH_BYTES]);

#endif

/* checkpoint_files.h - the files of runs and checkpoints that are needed to read a model: pointers and manifests (docs/formats.md). */
#ifndef HARK_IO_CHECKPOINT_FILES_H
#define HARK_IO_CHECKPOINT_FILES_H

#include "io/files.h"

#define HARK_CHECKPOINTS_FOLDER "checkpoints" /* in a run */
#define HARK_MANIFEST_FILE "manifest.json"    /* in a checkpoint */
#define HARK_MANIFEST_VERSION 1               /* its format_version */
#define HARK_MANIFEST_BYTES ((size_t)1 << 20) /* at most */
#define HARK_WEIGHTS_FILE "model.safetensors"
#define HARK_OPTIMIZER_FILE "optimizer.safetensors"
#define HARK_FIRST_MOMENT "first_moment." /* before the name of a weight, there */
#define HARK_SECOND_MOMENT "second_moment."
#define HARK_ROW_MOMENT "row_moment." /* means of a second moment over rows and columns */
#define HARK_COLUMN_MOMENT "column_moment."
#define HARK_OPTIMISER_KEY "optimiser" /* metadata of the optimiser's file; absent: adamw */
#define HARK_OPTIMISER_FACTORED "adafactor"

/* "step-500" -> 500; -1 for other names. */
int64_t hark_checkpoint_step(const char *name);

/* The checkpoint that a pointer file of a run ("last", "best") names. Errors: HARK_NOT_FOUND, HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_checkpoint_pointer_read(hark_context *context, const char *run, const char *which,
                                                         char name[HARK_NAME_BYTES]);

/* The same, of an existing checkpoint: HARK_BAD_FILE, which names the pointer file, if there is none of that name. Without a file `last` it
 * is the newest checkpoint, from which a resumed run would continue. */
HARK_MUST_CHECK hark_status hark_checkpoint_pointer_follow(hark_context *context, const char *run, const char *which,
                                                           char name[HARK_NAME_BYTES]);

/* The checkpoint of a run to read: `requested` names one ("best", "last", "step-N"); with "" or NULL the best if there is one, otherwise
 * the last. Errors: HARK_NOT_FOUND, HARK_INVALID_ARGUMENT for an invalid name, those of hark_checkpoint_pointer_follow(). */
HARK_MUST_CHECK hark_status hark_checkpoint_pointer_choose(hark_context *context, const char *run, const char *requested,
                                                           char name[HARK_NAME_BYTES]);

/* Compares a file of a checkpoint with the manifest in its folder; *summary (NULL: not needed) receives the file's length and checksum.
 * Errors: HARK_BAD_FILE (damaged, or not in the manifest), HARK_NOT_FOUND (no manifest, or no file). */
HARK_MUST_CHECK hark_status hark_manifest_check(hark_context *context, const char *folder, const char *file, hark_file_summary *summary);

#endif

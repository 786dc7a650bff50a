/* example_folder.h - finds the files of examples from their settings: files that are named, or those of a folder that `hark data make`
 * wrote, or of a published data set (known_folder.h).
 *
 * A folder of `hark data make` contains task.json with the format and the file of each split (docs/tasks.md).
 */
#ifndef HARK_DATA_EXAMPLES_EXAMPLE_FOLDER_H
#define HARK_DATA_EXAMPLES_EXAMPLE_FOLDER_H

#include "data/examples/examples.h"
#include "data/examples/known_folder.h"
#include "io/text.h"

#define HARK_TASK_FILE "task.json"
#define HARK_TASK_FILE_BYTES ((size_t)1 << 20) /* maximum size of task.json */
#define HARK_TASK_FORMAT_VERSION 1
#define HARK_TASK_TEXT "corpus" /* "format" in task.json of a folder whose files are texts (data.format) */

/* Names of the splits in task.json and in file names: "training", "validation", "test". */
extern const char *const hark_example_split_names[HARK_SPLIT_ALL];

typedef struct hark_example_paths {
  const char *format;
  const char *const *paths[HARK_SPLIT_ALL];
  int count[HARK_SPLIT_ALL];
  /* Memory of this struct, used when the paths are a folder's. */
  hark_text text;
  const char *own[HARK_SPLIT_ALL][HARK_FOLDER_FILES];
} hark_example_paths;

/* Strings of the settings are borrowed. The caller frees *out, after a failure too, and must not move the struct.
 * Errors: HARK_BAD_CONFIGURATION (a folder among other paths, another format than the folder's, no format), HARK_BAD_FILE (task.json),
 * HARK_NOT_FOUND. */
HARK_MUST_CHECK hark_status hark_example_paths_find(hark_context *context, const hark_examples_settings *settings, hark_example_paths *out);
/* Whether the folder has the form that `hark data make` writes; its contents are not checked. *texts (may be NULL): whether its files are
 * texts, not labelled examples. */
bool hark_is_example_folder(hark_context *context, const char *folder, bool *texts);
void hark_example_paths_free(hark_context *context, hark_example_paths *paths);

#endif

/* example_folder.h - which files the settings of examples mean: those that are named, or those of a folder that `hark data make` wrote.
 *
 * Such a folder holds task.json, which tells the format and the file of each split (docs/tasks.md).
 */
#ifndef HARK_DATA_EXAMPLES_EXAMPLE_FOLDER_H
#define HARK_DATA_EXAMPLES_EXAMPLE_FOLDER_H

#include "data/examples/examples.h"
#include "io/text.h"

#define HARK_TASK_FILE "task.json"
#define HARK_TASK_FILE_BYTES ((size_t)1 << 20) /* most that is read of one */
#define HARK_TASK_FORMAT_VERSION 1

/* Names of the splits in task.json and in file names: "training", "validation", "test". */
extern const char *const hark_example_split_names[HARK_SPLIT_ALL];

typedef struct hark_example_paths {
  const char *format;
  const char *const *paths[HARK_SPLIT_ALL];
  int count[HARK_SPLIT_ALL];
  /* What belongs to this struct when the paths are a folder's. */
  hark_text text;
  const char *own[HARK_SPLIT_ALL];
} hark_example_paths;

/* Strings of the settings are borrowed. The caller frees, after a failure too; the struct is not to be moved.
 * Errors: HARK_BAD_CONFIGURATION (a folder among other paths, another format than the folder's, no format), HARK_BAD_FILE (task.json),
 * HARK_NOT_FOUND. */
HARK_MUST_CHECK hark_status hark_example_paths_find(hark_context *context, const hark_examples_settings *settings, hark_example_paths *out);
/* Whether the folder is one that `hark data make` wrote, whatever else is right or wrong about it. */
bool hark_is_example_folder(hark_context *context, const char *folder);
void hark_example_paths_free(hark_context *context, hark_example_paths *paths);

#endif

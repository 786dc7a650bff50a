/* known_folder.h - folders of published data sets, as their archives contain them, without a task.json:
 *
 *     image   CIFAR-10's binary version: data_batch_1.bin .. data_batch_5.bin for training, test_batch.bin for the test
 *     text    IMDb's reviews: train/ and test/, each with class folders; or one folder with class folders
 *
 * Class folders are neg/ (class 0) and pos/ (class 1), with a file per example; other names, such as unsup/, are ignored. The files of
 * CIFAR-10 may be compressed, with the ending of their compression. */
#ifndef HARK_DATA_EXAMPLES_KNOWN_FOLDER_H
#define HARK_DATA_EXAMPLES_KNOWN_FOLDER_H

#include "data/corpora/corpus.h"
#include "io/text.h"

#define HARK_FOLDER_FILES 8 /* of a split, at most */
enum { HARK_FOLDER_CLASSES = 2 };
extern const char *const hark_class_folder_names[HARK_FOLDER_CLASSES];

/* Places of paths in a text, each ended by a zero byte. */
typedef struct hark_folder_files {
  size_t at[HARK_SPLIT_ALL][HARK_FOLDER_FILES];
  int count[HARK_SPLIT_ALL];
} hark_folder_files;

/* Whether a folder has class folders. */
bool hark_has_class_folders(hark_context *context, const char *folder);

/* Calls a function for each file in the class folders, class by class, in the order of their names; names that begin with a dot and what is
 * not a file are skipped. The path is valid during the call. Errors: those of the function and of folders. */
typedef hark_status hark_class_file_function(void *closure, const char *path, int class_number);
HARK_MUST_CHECK hark_status hark_class_folders_read(hark_context *context, const char *folder, hark_class_file_function *use,
                                                    void *closure);
/* The sum of the sizes of these files, unpacked. */
HARK_MUST_CHECK hark_status hark_class_folders_measure(hark_context *context, const char *folder, int64_t *bytes);

/* Appends the paths of a folder's splits; no path: it is no such folder. Errors: HARK_NOT_FOUND (some of its files are missing). */
HARK_MUST_CHECK hark_status hark_known_folder_find(hark_context *context, const char *format, const char *folder, hark_text *text,
                                                   hark_folder_files *out);

#endif

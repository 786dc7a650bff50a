/* known_folder.c - see known_folder.h. Krizhevsky, "Learning multiple layers of features from tiny images" (2009); Maas et al., "Learning
 * word vectors for sentiment analysis" (2011). */
#include "data/examples/known_folder.h"

#include <stdio.h>
#include <string.h>

#include "data/inputs.h"
#include "data/unpack/unpack.h"
#include "io/files.h"

const char *const hark_class_folder_names[HARK_FOLDER_CLASSES] = {"neg", "pos"};

static bool has(hark_context *context, const char *folder, const char *name, hark_path_kind kind) {
  char path[HARK_PATH_BYTES];
  return hark_path_join(context, folder, name, path) == HARK_OK && hark_path_kind_of(path) == kind;
}

bool hark_has_class_folders(hark_context *context, const char *folder) {
  for (int i = 0; i < HARK_FOLDER_CLASSES; i++)
    if (!has(context, folder, hark_class_folder_names[i], HARK_PATH_FOLDER)) return false;
  return true;
}

static hark_status read_class(hark_context *context, const char *folder, int class_number, hark_class_file_function *use, void *closure) {
  char of_class[HARK_PATH_BYTES], path[HARK_PATH_BYTES];
  hark_names names;
  HARK_TRY(hark_path_join(context, folder, hark_class_folder_names[class_number], of_class));
  HARK_TRY(hark_folder_list(context, of_class, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    if (names.items[i][0] == '.') continue;
    status = hark_path_join(context, of_class, names.items[i], path);
    if (status == HARK_OK && hark_path_kind_of(path) == HARK_PATH_FILE) status = use(closure, path, class_number);
  }
  hark_names_free(context, &names);
  return status;
}

hark_status hark_class_folders_read(hark_context *context, const char *folder, hark_class_file_function *use, void *closure) {
  for (int i = 0; i < HARK_FOLDER_CLASSES; i++) HARK_TRY(read_class(context, folder, i, use, closure));
  return HARK_OK;
}

typedef struct measuring {
  hark_context *context;
  int64_t *bytes;
} measuring;

static hark_status measure(void *closure, const char *path, int class_number) {
  const measuring *const m = closure;
  hark_spool spool = {0};
  hark_input input;
  (void)class_number;
  hark_status status = hark_input_open(m->context, path, &spool, &input);
  if (status == HARK_OK) *m->bytes += (int64_t)input.size;
  hark_input_close(&input);
  hark_spool_close(&spool);
  return status;
}

hark_status hark_class_folders_measure(hark_context *context, const char *folder, int64_t *bytes) {
  measuring m = {context, bytes};
  *bytes = 0;
  return hark_class_folders_read(context, folder, measure, &m);
}

static hark_status add_path(hark_context *context, const char *folder, const char *name, hark_split split, hark_text *text,
                            hark_folder_files *out) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, folder, name, path));
  out->at[split][out->count[split]++] = text->length;
  hark_text_append_bytes(text, path, strlen(path) + 1);
  return text->status;
}

/* ---- IMDb ---- */

static hark_status find_reviews(hark_context *context, const char *folder, hark_text *text, hark_folder_files *out) {
  char train[HARK_PATH_BYTES], test[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, folder, "train", train));
  HARK_TRY(hark_path_join(context, folder, "test", test));
  if (!hark_has_class_folders(context, train)) return HARK_OK;
  HARK_TRY(add_path(context, folder, "train", HARK_SPLIT_TRAINING, text, out));
  return hark_has_class_folders(context, test) ? add_path(context, folder, "test", HARK_SPLIT_TEST, text, out) : HARK_OK;
}

/* ---- CIFAR-10 ---- */

/* Adds a file, or its compressed form; *found is false where there is neither. */
static hark_status find_file(hark_context *context, const char *folder, const char *name, hark_split split, hark_text *text,
                             hark_folder_files *out, bool *found) {
  char packed[HARK_NAME_BYTES];
  *found = has(context, folder, name, HARK_PATH_FILE);
  if (*found) return add_path(context, folder, name, split, text, out);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    (void)snprintf(packed, sizeof packed, "%s%s", name, hark_packings[i]->ending);
    *found = has(context, folder, packed, HARK_PATH_FILE);
    if (*found) return add_path(context, folder, packed, split, text, out);
  }
  return HARK_OK;
}

static hark_status find_batches(hark_context *context, const char *folder, hark_text *text, hark_folder_files *out) {
  static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                      "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
  enum { NAMES = sizeof names / sizeof *names };
  const char *missing = NULL;
  int found_count = 0;
  for (int i = 0; i < NAMES; i++) {
    bool found = false;
    HARK_TRY(find_file(context, folder, names[i], i + 1 < NAMES ? HARK_SPLIT_TRAINING : HARK_SPLIT_TEST, text, out, &found));
    found_count += found;
    if (!found && missing == NULL) missing = names[i];
  }
  if (found_count == 0 || missing == NULL) return HARK_OK;
  return hark_fail(context, HARK_NOT_FOUND, "%s: %s is missing; the folder has %d of the %d files of CIFAR-10's binary version", folder,
                   missing, found_count, (int)NAMES);
}

hark_status hark_known_folder_find(hark_context *context, const char *format, const char *folder, hark_text *text, hark_folder_files *out) {
  *out = (hark_folder_files){0};
  if (strcmp(format, "text") == 0) return find_reviews(context, folder, text, out);
  return strcmp(format, "image") == 0 ? find_batches(context, folder, text, out) : HARK_OK;
}

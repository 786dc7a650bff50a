/* model_path.c - see model_path.h. */
#include "models/model_path.h"

#include <string.h>

#include "io/checkpoint_files.h"

/* folder/file if that is a file; else "". */
static hark_status file_in(hark_context *context, const char *folder, const char *file, char out[HARK_PATH_BYTES]) {
  hark_path_kind kind;
  HARK_TRY(hark_path_join(context, folder, file, out));
  HARK_TRY(hark_path_examine(context, out, &kind));
  if (kind != HARK_PATH_FILE) out[0] = '\0';
  return HARK_OK;
}

static hark_status find_in_run(hark_context *context, const char *run, const char *requested, char out[HARK_PATH_BYTES]) {
  char name[HARK_NAME_BYTES], folder[HARK_PATH_BYTES], checkpoint[HARK_PATH_BYTES];
  hark_path_kind kind;
  HARK_TRY(hark_path_join(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_path_examine(context, folder, &kind));
  if (kind != HARK_PATH_FOLDER)
    return hark_fail(context, HARK_BAD_FILE, "%s: is neither a run, nor a checkpoint, nor a folder with a %s", run, HARK_WEIGHTS_FILE);
  HARK_TRY(hark_checkpoint_pointer_choose(context, run, requested, name));
  HARK_TRY(hark_path_join(context, folder, name, checkpoint));
  HARK_TRY(file_in(context, checkpoint, HARK_WEIGHTS_FILE, out));
  return out[0] != '\0' ? HARK_OK : hark_fail(context, HARK_NOT_FOUND, "%s: has no %s", checkpoint, HARK_WEIGHTS_FILE);
}

/* Compares the file with the manifest in its folder. A file without a manifest is accepted, but not in a run, where every checkpoint has
 * one. */
static hark_status verify_file(hark_context *context, const char *path, bool in_run) {
  char folder[HARK_PATH_BYTES], manifest[HARK_PATH_BYTES];
  const char *name = hark_path_name(path);
  const size_t length = (size_t)(name - path);
  if (strcmp(name, HARK_WEIGHTS_FILE) != 0) return HARK_OK;
  memcpy(folder, path, length);
  folder[length] = '\0';
  HARK_TRY(file_in(context, folder, HARK_MANIFEST_FILE, manifest));
  return in_run || manifest[0] != '\0' ? hark_manifest_check(context, folder, name, NULL) : HARK_OK;
}

hark_status hark_model_find_file(hark_context *context, const char *path, const char *checkpoint, bool verify, char out[HARK_PATH_BYTES]) {
  hark_path_kind kind;
  bool in_run = false;
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind == HARK_PATH_NONE) return hark_fail(context, HARK_NOT_FOUND, "%s: there is no such run, checkpoint or file", path);
  if (kind == HARK_PATH_FOLDER) {
    HARK_TRY(file_in(context, path, HARK_WEIGHTS_FILE, out));
    in_run = out[0] == '\0';
    if (in_run) HARK_TRY(find_in_run(context, path, checkpoint, out));
  } else {
    HARK_TRY(hark_path_join(context, "", path, out));
  }
  return verify ? verify_file(context, out, in_run) : HARK_OK;
}

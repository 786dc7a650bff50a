/* run_folders.c - see run_folders.h. */
#include "cli/run_folders.h"

#include <string.h>

#include "io/files.h"

#define DEPTH 3 /* of folders in folders */

/* True also for a damaged one, from which one of these is missing. Errors: of the system, such as a missing permission. */
static hark_status examine_run(hark_context *context, const char *path, bool *run) {
  static const struct {
    const char *name;
    hark_path_kind kind;
  } parts[] = {{"config.yaml", HARK_PATH_FILE}, {"metrics.jsonl", HARK_PATH_FILE}, {"checkpoints", HARK_PATH_FOLDER}};
  *run = false;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !*run; i++) {
    char inside[HARK_PATH_BYTES];
    hark_path_kind kind;
    HARK_TRY(hark_path_join(context, path, parts[i].name, inside));
    HARK_TRY(hark_path_examine(context, inside, &kind));
    *run = kind == parts[i].kind;
  }
  return HARK_OK;
}

/* Inside of the folder that is visited, one that cannot be examined may be a run: its visitor reports the reason. */
static hark_status is_run_here(hark_context *context, const char *path, int depth, bool *run) {
  const hark_status status = examine_run(context, path, run);
  if (status != HARK_IO_ERROR || depth == DEPTH) return status;
  *run = true;
  return HARK_OK;
}

static hark_status visit_folder(hark_context *context, const char *path, int depth, hark_run_visitor *visit, void *user) {
  hark_names names = {0};
  bool run = false;
  HARK_TRY(is_run_here(context, path, depth, &run));
  if (run) return visit(user, path);
  if (depth == 0) return HARK_OK;
  hark_status status = hark_folder_list(context, path, &names);
  if (status != HARK_OK && depth < DEPTH) return HARK_OK; /* one that may not be read is not this user's */
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    char inside[HARK_PATH_BYTES];
    if (names.items[i][0] == '.') continue;
    status = hark_path_join(context, path, names.items[i], inside);
    if (status == HARK_OK && hark_path_kind_of(inside) == HARK_PATH_FOLDER) status = visit_folder(context, inside, depth - 1, visit, user);
  }
  hark_names_free(context, &names);
  return status;
}

hark_status hark_run_folders_visit(hark_context *context, const char *path, hark_run_visitor *visit, void *user) {
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind != HARK_PATH_FOLDER && kind != HARK_PATH_NONE)
    return hark_fail(context, HARK_BAD_FILE, "%s: is a file, expected a folder of runs", path);
  if (kind != HARK_PATH_FOLDER) return hark_fail(context, HARK_NOT_FOUND, "%s: no such folder", path);
  return visit_folder(context, path, DEPTH, visit, user);
}

size_t hark_run_folders_root(hark_context *context, const char *path) {
  const size_t length = strlen(path);
  bool run = false;
  return examine_run(context, path, &run) != HARK_OK || run || length == 0 ? 0 : path[length - 1] == '/' ? length : length + 1;
}

/* run_folders.c - see run_folders.h. */
#include "cli/run_folders.h"

#include <string.h>

#include "io/files.h"

#define DEPTH 3 /* of folders in folders */

/* True also for a damaged one, from which one of these is missing. */
static bool is_run(hark_context *context, const char *path) {
  static const struct {
    const char *name;
    hark_path_kind kind;
  } parts[] = {{"config.yaml", HARK_PATH_FILE}, {"metrics.jsonl", HARK_PATH_FILE}, {"checkpoints", HARK_PATH_FOLDER}};
  bool found = false;
  for (size_t i = 0; i < sizeof parts / sizeof *parts && !found; i++) {
    char inside[HARK_PATH_BYTES];
    found = hark_path_join(context, path, parts[i].name, inside) == HARK_OK && hark_path_kind_of(inside) == parts[i].kind;
  }
  return found;
}

static hark_status visit_folder(hark_context *context, const char *path, int depth, hark_run_visitor *visit, void *user) {
  hark_names names = {0};
  if (is_run(context, path)) return visit(user, path);
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
  if (kind != HARK_PATH_FOLDER) return hark_fail(context, HARK_NOT_FOUND, "%s: no such folder", path);
  return visit_folder(context, path, DEPTH, visit, user);
}

size_t hark_run_folders_root(hark_context *context, const char *path) {
  const size_t length = strlen(path);
  return is_run(context, path) || length == 0 ? 0 : path[length - 1] == '/' ? length : length + 1;
}

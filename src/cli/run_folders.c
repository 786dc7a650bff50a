/* run_folders.c - see run_folders.h. */
#include "cli/run_folders.h"

#include "io/files.h"

#define DEPTH 3 /* of folders in folders */

bool hark_is_run_folder(hark_context *context, const char *path) {
  char inside[HARK_PATH_BYTES];
  return hark_path_join(context, path, "config.yaml", inside) == HARK_OK && hark_path_kind_of(inside) == HARK_PATH_FILE;
}

static hark_status visit_folder(hark_context *context, const char *path, int depth, hark_run_visitor *visit, void *user) {
  hark_names names = {0};
  if (hark_is_run_folder(context, path)) return visit(user, path);
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
  return visit_folder(context, path, DEPTH, visit, user);
}

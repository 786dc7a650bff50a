/* checkpoint_files.c - see checkpoint_files.h. */
#include "io/checkpoint_files.h"

#include <inttypes.h>
#include <string.h>

#include "io/json_tree.h"

#define POINTER_LIMIT ((size_t)HARK_NAME_BYTES)

int64_t hark_checkpoint_step(const char *name) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, sizeof prefix - 1) != 0 || name[sizeof prefix - 1] == '\0') return -1;
  int64_t step = 0;
  for (const char *digit = name + sizeof prefix - 1; *digit != '\0'; digit++) {
    if (*digit < '0' || *digit > '9' || step > INT64_MAX / 10 - 1) return -1;
    step = 10 * step + (*digit - '0');
  }
  return step;
}

hark_status hark_checkpoint_pointer_read(hark_context *context, const char *run, const char *which, char name[HARK_NAME_BYTES]) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, run, which, path));
  HARK_TRY(hark_file_read_stored(context, path, POINTER_LIMIT, &text));
  const char *content = hark_text_get(&text);
  const size_t length = strcspn(content, "\n");
  hark_status status = HARK_OK;
  if (length < HARK_NAME_BYTES) {
    memcpy(name, content, length);
    name[length] = '\0';
  }
  if (length >= HARK_NAME_BYTES || hark_checkpoint_step(name) < 0)
    status = hark_fail(context, HARK_BAD_FILE, "%s: does not name a checkpoint (\"step-N\")", path);
  hark_text_free(&text);
  return status;
}

/* Checkpoints get their names when they are complete. */
static hark_status find_newest(hark_context *context, const char *run, char name[HARK_NAME_BYTES]) {
  char folder[HARK_PATH_BYTES];
  hark_names names = {0};
  int64_t newest = -1;
  HARK_TRY(hark_path_join(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_folder_list(context, folder, &names));
  for (int64_t i = 0; i < names.count; i++) {
    const int64_t step = hark_checkpoint_step(names.items[i]);
    if (step <= newest || strlen(names.items[i]) >= HARK_NAME_BYTES) continue;
    newest = step;
    memcpy(name, names.items[i], strlen(names.items[i]) + 1);
  }
  hark_names_free(context, &names);
  return newest >= 0 ? HARK_OK : hark_fail(context, HARK_NOT_FOUND, "%s: has no checkpoint yet", run);
}

hark_status hark_checkpoint_pointer_follow(hark_context *context, const char *run, const char *which, char name[HARK_NAME_BYTES]) {
  char folder[HARK_PATH_BYTES], path[HARK_PATH_BYTES];
  hark_path_kind kind;
  const hark_status read = hark_checkpoint_pointer_read(context, run, which, name);
  if (read == HARK_NOT_FOUND && strcmp(which, "last") == 0) return find_newest(context, run, name);
  HARK_TRY(read);
  HARK_TRY(hark_path_join(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_path_join(context, folder, name, path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind == HARK_PATH_FOLDER) return HARK_OK;
  HARK_TRY(hark_path_join(context, run, which, path));
  return hark_fail(context, HARK_BAD_FILE, "%s: names %s, and there is no such checkpoint", path, name);
}

hark_status hark_checkpoint_pointer_choose(hark_context *context, const char *run, const char *requested, char name[HARK_NAME_BYTES]) {
  if (requested != NULL && (strcmp(requested, "best") == 0 || strcmp(requested, "last") == 0))
    return hark_checkpoint_pointer_follow(context, run, requested, name);
  if (requested != NULL && requested[0] != '\0') {
    if (!hark_name_is_plain(requested) || hark_checkpoint_step(requested) < 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "checkpoint %s: expected best, last or step-N", requested);
    memcpy(name, requested, strlen(requested) + 1);
    return HARK_OK;
  }
  const hark_status best = hark_checkpoint_pointer_follow(context, run, "best", name);
  if (best != HARK_NOT_FOUND) return best;
  const hark_status last = hark_checkpoint_pointer_follow(context, run, "last", name);
  return last == HARK_NOT_FOUND ? hark_fail(context, HARK_NOT_FOUND, "%s: has no checkpoint yet", run) : last;
}

/* The file's entry in a manifest: {"format_version": 1, "files": [{"name": .., "bytes": .., "sha256": ..}, ..]}. */
static hark_status find_entry(hark_context *context, const char *path, const hark_json_node *root, const char *file,
                              const hark_json_node **entry) {
  const hark_json_node *version = hark_json_member(root, "format_version"), *files = hark_json_member(root, "files");
  if (!hark_json_is(version, HARK_JSON_INTEGER) || version->integer != HARK_MANIFEST_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "%s: format_version is not %d", path, HARK_MANIFEST_VERSION);
  if (!hark_json_is(files, HARK_JSON_LIST)) return hark_fail(context, HARK_BAD_FILE, "%s: \"files\" is missing or not a list", path);
  for (const hark_json_node *at = files->first; at != NULL; at = at->next) {
    const char *name = hark_json_text(hark_json_member(at, "name"));
    if (name == NULL || strcmp(name, file) != 0) continue;
    *entry = at;
    return HARK_OK;
  }
  return hark_fail(context, HARK_BAD_FILE, "%s: does not list %s", path, file);
}

static hark_status compare(hark_context *context, const char *folder, const char *file, const char *manifest, const hark_json_node *root,
                           hark_file_summary *out) {
  char path[HARK_PATH_BYTES];
  const hark_json_node *entry = NULL;
  HARK_TRY(find_entry(context, manifest, root, file, &entry));
  const hark_json_node *bytes = hark_json_member(entry, "bytes");
  const char *sum = hark_json_text(hark_json_member(entry, "sha256"));
  if (!hark_json_is(bytes, HARK_JSON_INTEGER) || sum == NULL)
    return hark_fail(context, HARK_BAD_FILE, "%s: the entry of %s lacks bytes or sha256", manifest, file);
  hark_file_summary summary;
  HARK_TRY(hark_path_join(context, folder, file, path));
  HARK_TRY(hark_file_summarise(context, path, &summary));
  if (summary.bytes != (uint64_t)bytes->integer)
    return hark_fail(context, HARK_BAD_FILE, "%s: is damaged: it has %" PRIu64 " bytes, the manifest says %" PRId64, path, summary.bytes,
                     bytes->integer);
  if (strcmp(summary.sha256, sum) != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: is damaged: its SHA-256 is not that of the manifest", path);
  if (out != NULL) *out = summary;
  return HARK_OK;
}

hark_status hark_manifest_check(hark_context *context, const char *folder, const char *file, hark_file_summary *summary) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  hark_json_tree tree;
  HARK_TRY(hark_path_join(context, folder, HARK_MANIFEST_FILE, path));
  HARK_TRY(hark_file_read_stored(context, path, HARK_MANIFEST_BYTES, &text));
  hark_status status = hark_json_tree_parse(context, path, hark_text_get(&text), text.length, &tree);
  hark_text_free(&text);
  HARK_TRY(status);
  status = compare(context, folder, file, path, tree.root, summary);
  hark_json_tree_free(context, &tree);
  return status;
}

/* example_folder.c - see example_folder.h. */
#include "data/examples/example_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "data/examples/picture_folder.h"
#include "data/formats/example_format.h"
#include "data/inputs.h"
#include "io/files.h"
#include "io/json_tree.h"
#include "io/system_error.h"

const char *const hark_example_split_names[HARK_SPLIT_ALL] = {"training", "validation", "test"};

/* Appends a text with its zero byte; *at is where it begins. */
static hark_status keep(hark_text *text, const char *value, size_t *at) {
  *at = text->length;
  hark_text_append_bytes(text, value, strlen(value) + 1);
  return text->status;
}

/* Refuses a file that was cut or rewritten after the task was made. */
static hark_status check_size(hark_context *context, const char *path, const char *name, const hark_json_node *bytes) {
  int descriptor;
  uint64_t size;
  if (bytes == NULL) return HARK_OK;
  if (!hark_json_is(bytes, HARK_JSON_INTEGER) || bytes->integer < 0)
    return hark_fail(context, HARK_BAD_FILE, "\"bytes\" of %s is not a whole number of at least 0", name);
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  (void)close(descriptor);
  if (size == (uint64_t)bytes->integer) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s has %" PRIu64 " bytes, and \"bytes\" is %" PRId64 ": it was cut or changed", name, size,
                   bytes->integer);
}

/* Reads the required members: "format", and in "files" a member for each split. count[split] is 0 where a split is missing. */
static hark_status read_members(hark_context *context, const char *folder, const hark_json_node *root, hark_text *text,
                                hark_folder_files *found) {
  const hark_json_node *const version = hark_json_member(root, "format_version"), *const files = hark_json_member(root, "files");
  const char *const format = hark_json_text(hark_json_member(root, "format"));
  size_t first;
  if (!hark_json_is(version, HARK_JSON_INTEGER) || version->integer != HARK_TASK_FORMAT_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "\"format_version\" is not %d", HARK_TASK_FORMAT_VERSION);
  if (format == NULL) return hark_fail(context, HARK_BAD_FILE, "\"format\" is missing or not a string");
  HARK_TRY(keep(text, format, &first));
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    const hark_json_node *const member = hark_json_member(files, hark_example_split_names[split]);
    if (member == NULL) continue;
    const char *const name = hark_json_text(hark_json_member(member, "name"));
    char path[HARK_PATH_BYTES];
    if (name == NULL || !hark_name_is_plain(name))
      return hark_fail(context, HARK_BAD_FILE, "\"files\": \"%s\" has no \"name\" of a file in this folder",
                       hark_example_split_names[split]);
    HARK_TRY(hark_path_join(context, folder, name, path));
    HARK_TRY(check_size(context, path, name, hark_json_member(member, "bytes")));
    HARK_TRY(keep(text, path, &found->at[split][0]));
    found->count[split] = 1;
  }
  if (found->count[HARK_SPLIT_TRAINING] == 0) return hark_fail(context, HARK_BAD_FILE, "\"files\" has no \"training\"");
  return HARK_OK;
}

static hark_status read_task(hark_context *context, const char *folder, hark_text *text, hark_folder_files *found) {
  char path[HARK_PATH_BYTES];
  hark_text json = hark_text_empty(context);
  hark_json_tree tree;
  HARK_TRY(hark_path_join(context, folder, HARK_TASK_FILE, path));
  HARK_TRY(hark_file_read_stored(context, path, HARK_TASK_FILE_BYTES, &json));
  hark_status status = hark_json_tree_parse(context, path, hark_text_get(&json), json.length, &tree);
  hark_text_free(&json);
  if (status != HARK_OK) return status;
  status = read_members(context, folder, tree.root, text, found);
  if (status == HARK_BAD_FILE) hark_fail_prefix(context, "%s: ", path);
  hark_json_tree_free(context, &tree);
  return status;
}

static hark_status fail_unknown_folder(hark_context *context, const char *folder, const hark_example_format *format) {
  return hark_fail(context, HARK_NOT_FOUND,
                   "%s: is a folder, expected files of the format %s (%s); folders of hark data make, with " HARK_TASK_FILE
                   ", of CIFAR-10 (image) and of IMDb's reviews (text) can be read",
                   folder, format->name, format->summary);
}

static hark_status fail_without_task(hark_context *context, const char *folder) {
  return hark_fail(context, HARK_NOT_FOUND,
                   "%s: is a folder without a task, expected one of hark data make, with " HARK_TASK_FILE
                   ", or --format FORMAT for files of examples",
                   folder);
}

/* Sets the paths, which are in the text. */
static void point_to(const hark_folder_files *found, hark_example_paths *out) {
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    for (int i = 0; i < found->count[split]; i++) out->own[split][i] = hark_text_get(&out->text) + found->at[split][i];
    out->paths[split] = out->own[split];
    out->count[split] = found->count[split];
  }
}

static hark_status find_in_folder(hark_context *context, const hark_examples_settings *settings, hark_example_paths *out) {
  const char *const folder = settings->paths[0];
  hark_folder_files found = {0};
  if (settings->path_count > 1 || settings->validation_path_count > 0 || settings->test_path_count > 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: a folder has the files of every split, expected no other paths", folder);
  char task[HARK_PATH_BYTES];
  hark_path_kind kind;
  HARK_TRY(hark_path_join(context, folder, HARK_TASK_FILE, task));
  HARK_TRY(hark_path_examine(context, task, &kind));
  const hark_example_format *const format = settings->format != NULL ? hark_example_format_find(settings->format) : NULL;
  if (format != NULL && kind == HARK_PATH_NONE) {
    HARK_TRY(hark_known_folder_find(context, format->name, folder, &out->text, &found));
    if (found.count[HARK_SPLIT_TRAINING] == 0) return fail_unknown_folder(context, folder, format);
    out->format = settings->format;
    point_to(&found, out);
    return HARK_OK;
  }
  if (kind == HARK_PATH_NONE) return fail_without_task(context, folder);
  HARK_TRY(read_task(context, folder, &out->text, &found));
  out->format = hark_text_get(&out->text);
  if (strcmp(out->format, HARK_TASK_TEXT) == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: its files are texts, expected a folder of labelled examples", folder);
  if (settings->format != NULL && settings->format[0] != '\0' && strcmp(settings->format, out->format) != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: its files have the format %s, the requested one is %s", folder, out->format,
                     settings->format);
  point_to(&found, out);
  return HARK_OK;
}

/* A path that is read as one file: a file, standard input, a folder with class folders for format text, or with lists of pictures for
 * format pathfinder. */
static bool is_one(hark_context *context, const hark_examples_settings *settings, const char *path, hark_path_kind kind) {
  if (hark_input_is_standard(path) || kind == HARK_PATH_FILE) return true;
  if (settings->format == NULL) return false;
  if (strcmp(settings->format, "pathfinder") == 0) return hark_is_picture_folder(context, path);
  return strcmp(settings->format, "text") == 0 && hark_has_class_folders(context, path);
}

hark_status hark_example_paths_find(hark_context *context, const hark_examples_settings *settings, hark_example_paths *out) {
  *out = (hark_example_paths){.text = hark_text_empty(context)};
  const char *const first = settings->path_count > 0 ? settings->paths[0] : HARK_STANDARD_INPUT;
  hark_path_kind kind = HARK_PATH_OTHER;
  if (!hark_input_is_standard(first)) HARK_TRY(hark_path_examine(context, first, &kind));
  const bool one = is_one(context, settings, first, kind);
  if (!one && kind == HARK_PATH_FOLDER) return find_in_folder(context, settings, out);
  if (!one && kind == HARK_PATH_NONE) return hark_system_fail(context, ENOENT, first, "cannot be opened");
  if (settings->format == NULL || settings->format[0] == '\0')
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: no format is given, and it is not a folder with " HARK_TASK_FILE,
                     settings->path_count > 0 ? settings->paths[0] : "examples");
  out->format = settings->format;
  const char *const *const paths[HARK_SPLIT_ALL] = {settings->paths, settings->validation_paths, settings->test_paths};
  const int counts[HARK_SPLIT_ALL] = {settings->path_count, settings->validation_path_count, settings->test_path_count};
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    out->paths[split] = paths[split];
    out->count[split] = counts[split];
  }
  return HARK_OK;
}

bool hark_is_example_folder(hark_context *context, const char *folder, bool *texts) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  hark_json_tree tree = {0};
  bool is = false;
  if (hark_path_join(context, folder, HARK_TASK_FILE, path) == HARK_OK && hark_path_kind_of(path) == HARK_PATH_FILE &&
      hark_file_read_stored(context, path, HARK_TASK_FILE_BYTES, &text) == HARK_OK &&
      hark_json_tree_parse(context, path, hark_text_get(&text), text.length, &tree) == HARK_OK) {
    is = hark_json_member(tree.root, "hark") != NULL && hark_json_is(hark_json_member(tree.root, "files"), HARK_JSON_OBJECT);
    const char *const format = hark_json_text(hark_json_member(tree.root, "format"));
    if (texts != NULL) *texts = format != NULL && strcmp(format, HARK_TASK_TEXT) == 0;
    hark_json_tree_free(context, &tree);
  }
  hark_text_free(&text);
  return is;
}

void hark_example_paths_free(hark_context *context, hark_example_paths *paths) {
  (void)context;
  hark_text_free(&paths->text);
}

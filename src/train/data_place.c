/* data_place.c - see data_place.h. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "train/data_place.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/yaml.h"
#include "data/sources.h"
#include "io/system_error.h"
#include "json/json.h"

#define FORMAT_VERSION 1
#define FILE_LIMIT ((size_t)1 << 20)
#define CANDIDATES 3

static const char *const list_names[HARK_DATA_LISTS] = {"data.paths", "data.validation_paths", "data.test_paths"};

/* Contents of data.json; "" and -1: not recorded. */
typedef struct data_record {
  char folder[HARK_PATH_BYTES], from_run[HARK_PATH_BYTES];
  int64_t files, bytes;
} data_record;

static const hark_string_list *list_of(const hark_config *config, int index) {
  const hark_string_list *const lists[HARK_DATA_LISTS] = {&config->data.paths, &config->data.validation_paths, &config->data.test_paths};
  return lists[index];
}

/* ---- size of the data ---- */

static hark_status add_extent(hark_context *context, const char *path, data_record *sum) {
  const hark_corpus_settings settings = {.paths = &path, .path_count = 1};
  hark_source_list sources = {0};
  const hark_status status = hark_sources_find(context, &settings, &sources);
  for (int64_t i = 0; i < sources.count; i++) sum->bytes += sources.items[i].bytes;
  sum->files += sources.count;
  hark_sources_free(context, &sources);
  return status;
}

/* Number and size of the files of all lists, relative to a folder ("": the working folder). */
static hark_status find_extent(hark_context *context, const hark_config *config, const char *folder, data_record *sum) {
  char path[HARK_PATH_BYTES];
  sum->files = sum->bytes = 0;
  for (int list = 0; list < HARK_DATA_LISTS; list++)
    for (int64_t i = 0; i < list_of(config, list)->count; i++) {
      HARK_TRY(hark_path_join(context, folder, list_of(config, list)->items[i], path));
      HARK_TRY(add_extent(context, path, sum));
    }
  return HARK_OK;
}

/* ---- data.json ---- */

/* JSON must be UTF-8: a path that is not, or that is too long, is recorded as empty. */
static bool can_be_written(const char *path) {
  const unsigned char *at = (const unsigned char *)path, *const end = at + strlen(path);
  for (size_t length; at < end; at += length) {
    length = hark_json_sequence_length(at, (size_t)(end - at));
    if (length == 0) return false;
  }
  return path[0] != '\0';
}

/* The relative path from one absolute path without symbolic links to another: "../..". */
static void find_way(const char *from, const char *to, char out[HARK_PATH_BYTES]) {
  size_t common = 0, used = 0;
  for (size_t i = 0;; i++) {
    const bool ends = (from[i] == '\0' || from[i] == '/') && (to[i] == '\0' || to[i] == '/');
    if (ends) common = i;
    if (from[i] == '\0' || from[i] != to[i]) break;
  }
  for (const char *at = from + common; *at != '\0'; at++)
    if (*at == '/' && at[1] != '\0' && used + 3 < HARK_PATH_BYTES) used += (size_t)snprintf(out + used, 4, "%s..", used > 0 ? "/" : "");
  const char *rest = to + common;
  while (*rest == '/') rest++;
  if (used + strlen(rest) + 2 > HARK_PATH_BYTES) used = 0, rest = "";
  (void)snprintf(out + used, HARK_PATH_BYTES - used, "%s%s", used > 0 && *rest != '\0' ? "/" : "", rest);
  if (out[0] == '\0') memcpy(out, ".", 2);
}

static void append_path(hark_text *text, const char *name, const char *path) {
  hark_text_append(text, ",\n \"%s\": ", name);
  if (can_be_written(path))
    hark_json_append_string(text, path);
  else
    hark_text_append(text, "null");
}

/* The place's folder as an absolute path without symbolic links. */
static hark_status real_folder(hark_context *context, const hark_data_place *place, char out[PATH_MAX]) {
  const char *const folder = place->folder[0] != '\0' ? place->folder : ".";
  return realpath(folder, out) != NULL ? HARK_OK : hark_system_fail(context, errno, folder, "cannot be examined");
}

hark_status hark_data_place_write(hark_context *context, const hark_config *config, const hark_run *run, const hark_data_place *place) {
  char path[HARK_PATH_BYTES], folder[PATH_MAX], own[PATH_MAX], way[HARK_PATH_BYTES] = "";
  data_record sum;
  HARK_TRY(real_folder(context, place, folder));
  HARK_TRY(find_extent(context, config, folder, &sum));
  HARK_TRY(hark_run_path(context, run, HARK_DATA_PLACE_NAME, path));
  if (realpath(run->path, own) != NULL) find_way(own, folder, way);
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "{\n \"format_version\": %d", FORMAT_VERSION);
  append_path(&text, "folder", folder);
  append_path(&text, "folder_from_run", way);
  hark_text_append(&text, ",\n \"files\": %" PRId64 ",\n \"bytes\": %" PRId64 "\n}\n", sum.files, sum.bytes);
  const hark_status status = text.status == HARK_OK ? hark_file_write(context, path, hark_text_get(&text), text.length) : text.status;
  hark_text_free(&text);
  return status;
}

/* A member that is a path or null. */
static hark_status take_path(hark_context *context, const char *file, const json_t *object, const char *name, char out[HARK_PATH_BYTES]) {
  const json_t *const member = json_object_get(object, name);
  const char *const value = json_string_value(member);
  if (json_is_null(member)) return HARK_OK;
  if (value == NULL || strlen(value) >= HARK_PATH_BYTES) return hark_fail(context, HARK_BAD_FILE, "%s: \"%s\" is not a path", file, name);
  memcpy(out, value, strlen(value) + 1);
  return HARK_OK;
}

static hark_status take_count(hark_context *context, const char *file, const json_t *object, const char *name, int64_t *out) {
  const json_t *const member = json_object_get(object, name);
  *out = json_integer_value(member);
  if (json_is_integer(member) && *out >= 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: \"%s\" is not a whole number of at least 0", file, name);
}

static hark_status take_members(hark_context *context, const char *file, const json_t *object, data_record *out) {
  const json_t *const version = json_object_get(object, "format_version");
  if (!json_is_integer(version) || json_integer_value(version) != FORMAT_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "%s: format_version is not %d", file, FORMAT_VERSION);
  HARK_TRY(take_path(context, file, object, "folder", out->folder));
  HARK_TRY(take_path(context, file, object, "folder_from_run", out->from_run));
  HARK_TRY(take_count(context, file, object, "files", &out->files));
  return take_count(context, file, object, "bytes", &out->bytes);
}

/* Runs of versions without data.json have none. */
static hark_status read_record(hark_context *context, const char *run, data_record *out) {
  char path[HARK_PATH_BYTES];
  hark_path_kind kind;
  json_t *object = NULL;
  *out = (data_record){.files = -1, .bytes = -1};
  HARK_TRY(hark_path_join(context, run, HARK_DATA_PLACE_NAME, path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind == HARK_PATH_NONE) return HARK_OK;
  HARK_TRY(hark_json_read(context, path, FILE_LIMIT, &object));
  const hark_status status = take_members(context, path, object, out);
  json_decref(object);
  return status;
}

hark_status hark_data_place_check(hark_context *context, const hark_run *run) {
  data_record record;
  return read_record(context, run->path, &record);
}

/* ---- finding the data ---- */

/* The folders to search, each once: "" is the working folder. */
typedef struct candidates {
  char folders[CANDIDATES][HARK_PATH_BYTES];
  int count;
} candidates;

static bool same_folder(const char *a, const char *b) {
  struct stat one, other;
  return stat(a[0] != '\0' ? a : ".", &one) == 0 && stat(b[0] != '\0' ? b : ".", &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

static void add_candidate(const char *folder, candidates *list) {
  for (int i = 0; i < list->count; i++)
    if (same_folder(list->folders[i], folder)) return;
  (void)snprintf(list->folders[list->count++], HARK_PATH_BYTES, "%s", folder);
}

/* For runs without data.json: removes the run's recorded name from its absolute path. The name was relative to the folder that is searched
 * for, so that folder remains. */
static bool cut_name(char *path, const char *name) {
  while (name[0] == '.' && name[1] == '/') name += 2;
  size_t length = strlen(name), all = strlen(path);
  while (length > 0 && name[length - 1] == '/') length--;
  if (length == 0 || name[0] == '/' || all <= length || path[all - length - 1] != '/' || strncmp(path + all - length, name, length) != 0)
    return false;
  path[all - length - 1 + (all == length + 1)] = '\0';
  return true;
}

static hark_status find_candidates(hark_context *context, const char *run, const char *recorded_name, const data_record *record,
                                   candidates *out) {
  char own[PATH_MAX], path[HARK_PATH_BYTES], real[PATH_MAX];
  out->count = 0;
  if (realpath(run, own) == NULL) return hark_system_fail(context, errno, run, "cannot be examined");
  if (record->from_run[0] != '\0') {
    HARK_TRY(hark_path_join(context, own, record->from_run, path));
    if (realpath(path, real) != NULL) add_candidate(real, out);
  } else if (record->files < 0 && cut_name(own, recorded_name)) {
    add_candidate(own, out);
  }
  if (record->folder[0] != '\0' && hark_path_kind_of(record->folder) == HARK_PATH_FOLDER) add_candidate(record->folder, out);
  add_candidate("", out);
  return HARK_OK;
}

/* Only the recorded lists: those from config.yaml that were not given now. */
static hark_config recorded_lists(const hark_options *options, const hark_config *config) {
  hark_config recorded = *config;
  hark_string_list *const lists[HARK_DATA_LISTS] = {&recorded.data.paths, &recorded.data.validation_paths, &recorded.data.test_paths};
  for (int list = 0; list < HARK_DATA_LISTS; list++)
    if (hark_options_source(options, list_names[list]) != HARK_SOURCE_RUN) *lists[list] = (hark_string_list){0};
  return recorded;
}

/* Whether all files are there, with the recorded sizes. */
static hark_status try_candidate(hark_context *context, const hark_config *recorded, const char *folder, const data_record *record,
                                 bool *there, bool *same) {
  data_record sum;
  const hark_status status = find_extent(context, recorded, folder, &sum);
  *there = status == HARK_OK;
  *same = *there && (record->files < 0 || (sum.files == record->files && sum.bytes == record->bytes));
  return status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
}

/* The first candidate whose data have the recorded sizes, else the first with any data; -1: none. */
static hark_status choose(hark_context *context, const hark_config *recorded, const data_record *record, const candidates *list, int *out,
                          bool *same) {
  bool there = false;
  *out = -1;
  *same = false;
  for (int i = 0; i < list->count && !*same; i++) {
    HARK_TRY(try_candidate(context, recorded, list->folders[i], record, &there, same));
    if (*same || (there && *out < 0)) *out = i;
  }
  return HARK_OK;
}

static hark_status fail_missing(hark_context *context, const hark_config *recorded, const candidates *list) {
  const char *first = "";
  hark_text places = hark_text_empty(context);
  for (int l = HARK_DATA_LISTS - 1; l >= 0; l--)
    for (int64_t i = list_of(recorded, l)->count - 1; i >= 0; i--) {
      const char *const path = list_of(recorded, l)->items[i];
      if (first[0] == '\0' || hark_path_kind_of(path) == HARK_PATH_NONE) first = path;
    }
  for (int i = 0; i < list->count && first[0] != '/'; i++)
    hark_text_append(&places, "%s%s", i == 0 ? ", looked for in " : " and ",
                     list->folders[i][0] != '\0' ? list->folders[i] : "the working folder");
  const hark_status status =
      places.status != HARK_OK
          ? places.status
          : hark_fail(context, HARK_NOT_FOUND, "%.300s: the run was trained on it, and it is missing%s; --data PATH names a replacement",
                      first, hark_text_get(&places));
  hark_text_free(&places);
  return status;
}

/* Sets the paths of a list to the recorded paths in the folder. */
static hark_status lead(hark_context *context, hark_options *options, const hark_string_list *recorded, const char *name,
                        const char *folder) {
  char path[HARK_PATH_BYTES];
  const hark_string_list before = *recorded;
  for (int64_t i = 0; i < before.count; i++) {
    HARK_TRY(hark_path_join(context, folder, before.items[i], path));
    HARK_TRY(hark_options_set_item(context, options, name, i, path, hark_options_where(options, name), HARK_SOURCE_RUN));
  }
  return HARK_OK;
}

/* hark writes all sections, each as a block, `run` last. */
static hark_status check_complete(hark_context *context, const char *path, const char *yaml) {
  static const char first[] = "model:\n", last[] = "\nrun:\n";
  const size_t length = strlen(yaml);
  if (strspn(yaml, " \t\r\n") == length) return hark_fail(context, HARK_BAD_FILE, "%s: is empty, expected a run's configuration", path);
  const bool begun = strncmp(yaml, first, sizeof first - 1) == 0, ends_line = yaml[length - 1] == '\n';
  if (begun && (!ends_line || strstr(yaml, last) == NULL))
    return hark_fail(context, HARK_BAD_FILE, "%s: its end is missing: %s", path,
                     ends_line ? "it has no section run" : "the last line is cut off");
  return HARK_OK;
}

hark_status hark_data_place_read_stored(hark_context *context, hark_options *options, const char *path) {
  hark_text yaml = hark_text_empty(context);
  hark_status status = hark_file_read_stored(context, path, HARK_YAML_BYTES, &yaml);
  if (status == HARK_OK) status = check_complete(context, path, hark_text_get(&yaml));
  hark_text_free(&yaml);
  return status == HARK_OK ? hark_options_read_yaml(context, options, path, HARK_SOURCE_RUN) : status;
}

hark_status hark_data_place_read_options(hark_context *context, hark_options *options, const char *path) {
  static const char field[] = "data.text_field";
  HARK_TRY(hark_data_place_read_stored(context, options, path));
  if (hark_options_source(options, field) != HARK_SOURCE_DEFAULT) return HARK_OK;
  return hark_options_set(context, options, field, "", path, HARK_SOURCE_RUN);
}

hark_status hark_data_place_find(hark_context *context, hark_options *options, const hark_config *config, const char *run,
                                 hark_data_place *out) {
  const hark_config recorded = recorded_lists(options, config);
  data_record record;
  candidates list;
  int chosen = -1;
  bool given = false, same = false;
  *out = (hark_data_place){.recorded = {config->data.paths, config->data.validation_paths, config->data.test_paths}};
  HARK_TRY(read_record(context, run, &record));
  for (int l = 0; l < HARK_DATA_LISTS; l++) given = given || list_of(&recorded, l)->count < list_of(config, l)->count;
  if (given) record.files = -1; /* some of the data were replaced */
  HARK_TRY(find_candidates(context, run, config->run.directory, &record, &list));
  HARK_TRY(choose(context, &recorded, &record, &list, &chosen, &same));
  if (chosen < 0) return fail_missing(context, &recorded, &list);
  out->other_size = !same;
  if (list.folders[chosen][0] == '\0' || same_folder(list.folders[chosen], "")) return HARK_OK;
  for (int l = 0; l < HARK_DATA_LISTS; l++) HARK_TRY(lead(context, options, list_of(&recorded, l), list_names[l], list.folders[chosen]));
  if (given) /* one folder cannot be that of both */
    *out = (hark_data_place){.other_size = !same};
  else
    memcpy(out->folder, list.folders[chosen], sizeof out->folder);
  return HARK_OK;
}

/* ---- the files of the data ---- */

/* Standard input is no file. */
static hark_status visit_path(hark_context *context, const char *path, hark_data_file_visitor *visit, void *user) {
  const hark_corpus_settings settings = {.paths = &path, .path_count = 1};
  hark_source_list sources = {0};
  hark_status status = hark_sources_find(context, &settings, &sources);
  for (int64_t i = 0; i < sources.count && status == HARK_OK; i++)
    if (!sources.items[i].standard) status = visit(user, sources.items[i].path);
  hark_sources_free(context, &sources);
  return status;
}

static hark_status visit_lists(hark_context *context, const hark_config *config, hark_data_file_visitor *visit, void *user) {
  for (int list = 0; list < HARK_DATA_LISTS; list++)
    for (int64_t i = 0; i < list_of(config, list)->count; i++) HARK_TRY(visit_path(context, list_of(config, list)->items[i], visit, user));
  return HARK_OK;
}

hark_status hark_data_place_visit(hark_context *context, const char *run, hark_data_file_visitor *visit, void *user) {
  char path[HARK_PATH_BYTES];
  hark_config config;
  hark_data_place place;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &config};
  HARK_TRY(hark_path_join(context, run, "config.yaml", path));
  HARK_TRY(hark_options_create(context, NULL, &group, 1, &options));
  hark_status status = hark_data_place_read_stored(context, options, path);
  if (status == HARK_OK) status = hark_data_place_find(context, options, &config, run, &place);
  if (status == HARK_OK) status = visit_lists(context, &config, visit, user);
  hark_options_destroy(context, &options);
  return status;
}

void hark_data_place_exchange(hark_data_place *place, hark_config *config) {
  hark_string_list *const lists[HARK_DATA_LISTS] = {&config->data.paths, &config->data.validation_paths, &config->data.test_paths};
  if (place->folder[0] == '\0') return;
  for (int list = 0; list < HARK_DATA_LISTS; list++) {
    const hark_string_list kept = *lists[list];
    *lists[list] = place->recorded[list];
    place->recorded[list] = kept;
  }
}

/* sentence_files.c - see sentence_files.h. */
#include "models/foreign/sentence_files.h"

#include <inttypes.h>
#include <string.h>

#include "io/files.h"
#include "io/json_tree.h"

#define MODULES_FILE "modules.json"
#define SETTINGS_FILE "sentence_bert_config.json"
#define JSON_BYTES ((size_t)1 << 20)
#define SHOWN "%.250s"

/* ---- reading ---- */

/* folder/name/file as JSON; *found is false where there is no such file. Names in files are names in the folder, never paths. */
static hark_status read_json(hark_context *context, const char *folder, const char *name, const char *file, char path[HARK_PATH_BYTES],
                             hark_json_tree *out, bool *found) {
  char below[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, folder, name, below));
  HARK_TRY(hark_path_join(context, name[0] != '\0' ? below : folder, file, path));
  *found = hark_path_kind_of(path) == HARK_PATH_FILE;
  if (!*found) return HARK_OK;
  hark_status status = hark_file_read_stored(context, path, JSON_BYTES, &text);
  if (status == HARK_OK) status = hark_json_tree_parse(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

static bool is_true(const hark_json_node *root, const char *key) {
  const hark_json_node *const value = hark_json_member(root, key);
  return hark_json_is(value, HARK_JSON_BOOLEAN) && value->boolean;
}

/* Every "pooling_mode_..." that is true, or the word of the newer key. */
static hark_status take_pooling(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config) {
  static const char front[] = "pooling_mode_";
  const hark_json_node *const mode = hark_json_member(root, "pooling_mode");
  const char *const word = mode != NULL ? hark_json_text(mode) : NULL;
  const bool mean = word != NULL ? strcmp(word, "mean") == 0 : is_true(root, "pooling_mode_mean_tokens");
  const bool first = word != NULL ? strcmp(word, "cls") == 0 : is_true(root, "pooling_mode_cls_token");
  int count = word != NULL;
  char shown[HARK_SHOWN_BYTES];
  for (const hark_json_node *member = root->first; member != NULL && word == NULL; member = member->next)
    count += strncmp(member->name, front, sizeof front - 1) == 0 && is_true(root, member->name);
  if (count != 1 || mean == first)
    return hark_fail(context, HARK_UNSUPPORTED,
                     SHOWN ": pooling %s is not supported, expected the mean over the tokens, or the first token", path,
                     word != NULL ? hark_text_shown(word, shown)
                     : count > 1  ? "of several kinds"
                                  : "of this kind");
  config->pooling = mean ? HARK_POOLING_MEAN : HARK_POOLING_FIRST;
  return HARK_OK;
}

static hark_status read_pooling(hark_context *context, const char *folder, const char *name, hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  bool found = false;
  HARK_TRY(read_json(context, folder, name, "config.json", path, &tree, &found));
  if (!found) return hark_fail(context, HARK_NOT_FOUND, SHOWN ": is missing, and " MODULES_FILE " names it", path);
  hark_status status = hark_json_is(tree.root, HARK_JSON_OBJECT) ? take_pooling(context, path, tree.root, config)
                                                                 : hark_fail(context, HARK_BAD_FILE, SHOWN ": expected an object", path);
  hark_json_tree_free(context, &tree);
  return status;
}

/* The last part of "sentence_transformers.models.Pooling". */
static const char *kind_of(const char *type) {
  const char *const dot = strrchr(type, '.');
  return dot != NULL ? dot + 1 : type;
}

/* *letter is the first one of its kind. */
static hark_status read_module(hark_context *context, const char *folder, const char *path, const hark_json_node *module,
                               hark_network_config *config, char *letter) {
  const hark_json_node *const type = hark_json_member(module, "type"), *const where = hark_json_member(module, "path");
  const char *const word = type != NULL ? hark_json_text(type) : NULL, *const name = where != NULL ? hark_json_text(where) : NULL;
  char shown[HARK_SHOWN_BYTES];
  if (word == NULL || name == NULL) return hark_fail(context, HARK_BAD_FILE, SHOWN ": a module has no type or no path", path);
  const char *const kind = kind_of(word);
  *letter = kind[0];
  if (strcmp(kind, "Transformer") == 0 && name[0] == '\0') return HARK_OK;
  if (!hark_name_is_plain(name))
    return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": path '%s' is not a name in this folder", path, hark_text_shown(name, shown));
  if (strcmp(kind, "Pooling") == 0) return read_pooling(context, folder, name, config);
  config->normalise = strcmp(kind, "Normalize") == 0;
  if (config->normalise) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": module %s is not supported, expected Transformer, Pooling and Normalize", path,
                   hark_text_shown(kind, shown));
}

static hark_status read_modules(hark_context *context, const char *folder, const char *path, const hark_json_node *root,
                                hark_network_config *config) {
  char order[5] = ""; /* one more than there can be */
  size_t count = 0;
  if (root == NULL || root->kind != HARK_JSON_LIST) return hark_fail(context, HARK_BAD_FILE, SHOWN ": expected a list of modules", path);
  for (const hark_json_node *module = root->first; module != NULL; module = module->next) {
    if (module->kind != HARK_JSON_OBJECT) return hark_fail(context, HARK_BAD_FILE, SHOWN ": expected a list of objects", path);
    char letter = '\0';
    HARK_TRY(read_module(context, folder, path, module, config, &letter));
    if (count < sizeof order - 1) order[count++] = letter;
  }
  if (strcmp(order, "TP") == 0 || strcmp(order, "TPN") == 0) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": expected the modules Transformer, Pooling, Normalize in this order", path);
}

/* max_seq_length of sentence-transformers: longer texts are cut. */
#define LIMIT_KEY "max_seq_length"
#define LIMIT_MOST ((int64_t)1 << 24)
static hark_status take_limit(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config) {
  const hark_json_node *const value = hark_json_is(root, HARK_JSON_OBJECT) ? hark_json_member(root, LIMIT_KEY) : NULL;
  if (value == NULL || value->kind == HARK_JSON_NULL) return HARK_OK;
  if (value->kind != HARK_JSON_INTEGER || value->integer < 1 || value->integer > LIMIT_MOST)
    return hark_fail(context, HARK_BAD_FILE, SHOWN ": " LIMIT_KEY ": expected a whole number in [1, 16777216], or null", path);
  config->text_limit = value->integer;
  return HARK_OK;
}

static hark_status read_settings(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config) {
  HARK_TRY(take_limit(context, path, root, config));
  if (!hark_json_is(root, HARK_JSON_OBJECT) || !is_true(root, "do_lower_case")) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": do_lower_case: is true, expected false: texts are not changed before the tokenizer",
                   path);
}

static hark_status check_prompt(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config) {
  (void)config;
  const hark_json_node *const name = hark_json_is(root, HARK_JSON_OBJECT) ? hark_json_member(root, "default_prompt_name") : NULL;
  char shown[HARK_SHOWN_BYTES];
  if (name == NULL || name->kind == HARK_JSON_NULL) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, SHOWN ": default_prompt_name: is %s, expected null: no text is put before others", path,
                   hark_text_shown(hark_json_text(name) != NULL ? hark_json_text(name) : "no text", shown));
}

/* Settings of sentence-transformers that change what the model reads. */
static hark_status check_settings(hark_context *context, const char *folder, hark_network_config *config) {
  static const struct {
    const char *file;
    hark_status (*check)(hark_context *context, const char *path, const hark_json_node *root, hark_network_config *config);
  } files[] = {{SETTINGS_FILE, read_settings}, {"config_sentence_transformers.json", check_prompt}};
  char path[HARK_PATH_BYTES];
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    hark_json_tree tree = {0};
    bool found = false;
    HARK_TRY(read_json(context, folder, "", files[i].file, path, &tree, &found));
    if (!found) continue;
    const hark_status status = files[i].check(context, path, tree.root, config);
    hark_json_tree_free(context, &tree);
    HARK_TRY(status);
  }
  return HARK_OK;
}

hark_status hark_sentence_limit_read(hark_context *context, const char *folder, hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  bool found = false;
  HARK_TRY(read_json(context, folder, "", SETTINGS_FILE, path, &tree, &found));
  if (!found) return HARK_OK;
  const hark_status status = take_limit(context, path, tree.root, config);
  hark_json_tree_free(context, &tree);
  return status;
}

hark_status hark_sentence_files_read(hark_context *context, const char *folder, hark_network_config *config) {
  char path[HARK_PATH_BYTES];
  hark_json_tree tree = {0};
  bool found = false;
  HARK_TRY(check_settings(context, folder, config));
  HARK_TRY(read_json(context, folder, "", MODULES_FILE, path, &tree, &found));
  if (!found) return HARK_OK;
  const hark_status status = read_modules(context, folder, path, tree.root, config);
  hark_json_tree_free(context, &tree);
  return status;
}

/* ---- writing ---- */

#define POOLING_FOLDER "1_Pooling"
#define NORMALIZE_FOLDER "2_Normalize"
#define MODULE(number, path, kind)                                                                                                         \
  "{\"idx\": " number ", \"name\": \"" number "\", \"path\": \"" path "\", \"type\": \"sentence_transformers.models." kind "\"}"

void hark_sentence_files_adopt(const hark_network_config *model, hark_network_config *again) {
  if (model->pooling == HARK_POOLING_MEAN || model->pooling == HARK_POOLING_FIRST) again->pooling = model->pooling;
  again->normalise = model->normalise;
}

static hark_status write_text(hark_context *context, const char *folder, const char *name, hark_text *text) {
  char path[HARK_PATH_BYTES];
  hark_status status = text->status;
  if (status == HARK_OK) status = hark_path_join(context, folder, name, path);
  if (status == HARK_OK) status = hark_file_write(context, path, hark_text_get(text), text->length);
  hark_text_free(text);
  return status;
}

static hark_status write_pooling(hark_context *context, const char *folder, const hark_network_config *config) {
  char below[HARK_PATH_BYTES];
  const bool mean = config->pooling == HARK_POOLING_MEAN;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, folder, POOLING_FOLDER, below));
  HARK_TRY(hark_folder_make(context, below));
  hark_text_append(&text, "{\"word_embedding_dimension\": %" PRId64 ", \"pooling_mode_cls_token\": %s, \"pooling_mode_mean_tokens\": %s, ",
                   config->width, mean ? "false" : "true", mean ? "true" : "false");
  hark_text_append(&text, "\"pooling_mode_max_tokens\": false, \"pooling_mode_mean_sqrt_len_tokens\": false}\n");
  return write_text(context, below, "config.json", &text);
}

/* The published program reads a folder for every module. */
static hark_status make_normalize(hark_context *context, const char *folder) {
  char below[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, folder, NORMALIZE_FOLDER, below));
  return hark_folder_make(context, below);
}

static hark_status write_modules(hark_context *context, const char *folder, const hark_network_config *config) {
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "[" MODULE("0", "", "Transformer") ", " MODULE("1", POOLING_FOLDER, "Pooling"));
  if (config->normalise) hark_text_append(&text, ", " MODULE("2", NORMALIZE_FOLDER, "Normalize"));
  hark_text_append(&text, "]\n");
  return write_text(context, folder, MODULES_FILE, &text);
}

hark_status hark_sentence_files_write(hark_context *context, const hark_network_config *config, const char *folder) {
  hark_text text = hark_text_empty(context);
  HARK_TRY(write_pooling(context, folder, config));
  if (config->normalise) HARK_TRY(make_normalize(context, folder));
  hark_text_append(&text, "{\"max_seq_length\": %" PRId64 ", \"do_lower_case\": false}\n",
                   config->text_limit > 0 ? config->text_limit : config->context);
  HARK_TRY(write_text(context, folder, SETTINGS_FILE, &text));
  return write_modules(context, folder, config);
}

void hark_sentence_files_print(hark_text *names) {
  hark_text_append(names, MODULES_FILE " " SETTINGS_FILE " " POOLING_FOLDER " " NORMALIZE_FOLDER " ");
}

hark_status hark_sentence_files_remove(hark_context *context, const char *folder) {
  static const char *const files[] = {MODULES_FILE, SETTINGS_FILE}, *const folders[] = {POOLING_FOLDER, NORMALIZE_FOLDER};
  char path[HARK_PATH_BYTES];
  for (size_t i = 0; i < 2; i++) {
    HARK_TRY(hark_path_join(context, folder, files[i], path));
    HARK_TRY(hark_file_remove(context, path));
    HARK_TRY(hark_path_join(context, folder, folders[i], path));
    if (hark_path_kind_of(path) == HARK_PATH_FOLDER) HARK_TRY(hark_folder_remove(context, path));
  }
  return HARK_OK;
}

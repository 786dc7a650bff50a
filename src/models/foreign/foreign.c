/* foreign.c - see foreign.h. */
#include "models/foreign/foreign.h"

#include <inttypes.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "models/foreign/foreign_keys.h"
#include "models/foreign/foreign_tensors.h"
#include "models/foreign/sentence_files.h"
#include "tokenizers/pipeline/pipeline.h"

#define CONFIG_BYTES ((size_t)4 << 20)
#define OWN_KEY "model" /* of the metadata of files that hark wrote */

/* ---- which paths are meant ---- */

static hark_status is_own(hark_context *context, const char *path, bool *own) {
  hark_safetensors *file = NULL;
  HARK_TRY(hark_safetensors_open(context, path, &file));
  *own = hark_safetensors_metadata(file, OWN_KEY) != NULL;
  hark_safetensors_close(context, &file);
  return HARK_OK;
}

/* The folder of a file; "" is the current one. */
static void folder_of(const char *path, char folder[HARK_PATH_BYTES]) {
  const size_t length = (size_t)(hark_path_name(path) - path);
  memcpy(folder, path, length);
  folder[length] = '\0';
}

/* Whether the name of a file refers to a whole folder. */
static bool is_main_file(const char *name) {
  return strcmp(name, HARK_FOREIGN_CONFIG_FILE) == 0 || strcmp(name, HARK_WEIGHTS_FILE) == 0 ||
         strcmp(name, HARK_WEIGHTS_FILE ".index.json") == 0;
}

hark_status hark_foreign_find(hark_context *context, const char *path, char folder[HARK_PATH_BYTES], bool *found) {
  hark_path_kind kind, config = HARK_PATH_NONE;
  char inside[HARK_PATH_BYTES];
  bool own = false;
  *found = false;
  HARK_TRY(hark_path_examine(context, path, &kind));
  HARK_TRY(hark_path_join(context, "", path, folder));
  if (kind == HARK_PATH_FILE) folder_of(path, folder);
  HARK_TRY(hark_path_join(context, folder, HARK_FOREIGN_CONFIG_FILE, inside));
  if (kind == HARK_PATH_FILE || kind == HARK_PATH_FOLDER) HARK_TRY(hark_path_examine(context, inside, &config));
  if (config != HARK_PATH_FILE) return HARK_OK;
  if (kind == HARK_PATH_FILE && !is_main_file(hark_path_name(path))) return HARK_OK;
  HARK_TRY(hark_path_join(context, folder, HARK_WEIGHTS_FILE, inside));
  if (hark_path_kind_of(inside) == HARK_PATH_FILE) HARK_TRY(is_own(context, inside, &own));
  *found = !own;
  return HARK_OK;
}

/* ---- opening ---- */

static hark_status read_config(hark_context *context, hark_foreign *foreign) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, foreign->folder, HARK_FOREIGN_CONFIG_FILE, path));
  hark_status status = hark_file_read_stored(context, path, CONFIG_BYTES, &text);
  if (status == HARK_OK)
    status = hark_foreign_keys_read(context, path, hark_text_get(&text), text.length, &foreign->type, &foreign->config);
  hark_text_free(&text);
  return status;
}

/* The settings of generation take precedence, also where they name no end token. */
static hark_status read_generation(hark_context *context, hark_foreign *foreign) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, foreign->folder, HARK_FOREIGN_GENERATION_FILE, path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  hark_status status = hark_file_read_stored(context, path, CONFIG_BYTES, &text);
  if (status == HARK_OK) status = hark_foreign_ends_read(context, path, hark_text_get(&text), text.length, &foreign->config);
  hark_text_free(&text);
  return status;
}

hark_status hark_foreign_open(hark_context *context, const char *folder, hark_foreign *out) {
  *out = (hark_foreign){.reading = HARK_FOREIGN_CONFIG_FILE};
  HARK_TRY(hark_path_join(context, "", folder, out->folder));
  HARK_TRY(read_config(context, out));
  out->reading = HARK_FOREIGN_GENERATION_FILE;
  HARK_TRY(read_generation(context, out));
  const hark_status opened = hark_shards_open(context, folder, &out->shards);
  out->reading = opened == HARK_OK ? "model" : out->shards.reading;
  HARK_TRY(opened);
  if (out->type->settle != NULL) return out->type->settle(context, out->folder, &out->shards, &out->config);
  return hark_sentence_limit_read(context, out->folder, &out->config);
}

void hark_foreign_close(hark_context *context, hark_foreign *foreign) { hark_shards_close(context, &foreign->shards); }

hark_status hark_foreign_declare(hark_context *context, const hark_foreign *foreign, hark_network **out) {
  hark_status status = hark_network_declare(context, &foreign->config, HARK_F32, out);
  if (status != HARK_OK) {
    hark_fail_prefix(context, "%.250s/" HARK_FOREIGN_CONFIG_FILE ": ", foreign->folder);
    return status;
  }
  status = hark_foreign_tensors_check(context, foreign->type, &foreign->shards, foreign->folder, *out);
  if (status != HARK_OK) hark_network_destroy(context, out);
  return status;
}

/* ---- the tokenizer ---- */

hark_status hark_foreign_check_tokenizer(hark_context *context, const char *name, const hark_imported *imported, int64_t rows) {
  const int64_t tokens = hark_imported_size(imported);
  if (tokens <= rows) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: has %" PRId64 " tokens, and the model's vocabulary is %" PRId64, name, tokens, rows);
}

static hark_status read_tokenizer(hark_context *context, const char *path, int64_t rows, hark_imported **out) {
  hark_text text = hark_text_empty(context);
  hark_status status = hark_file_read_stored(context, path, HARK_PIPELINE_FILE_BYTES, &text);
  if (status == HARK_OK) status = hark_imported_read(context, path, hark_text_get(&text), text.length, out);
  if (status == HARK_OK) status = hark_foreign_check_tokenizer(context, path, *out, rows);
  hark_text_free(&text);
  if (status != HARK_OK) hark_imported_destroy(context, out);
  return status;
}

/* tokenizer.json, or else tokenizer.model; "": neither. */
static hark_status find_tokenizer(hark_context *context, const char *folder, char path[HARK_PATH_BYTES]) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    HARK_TRY(hark_path_join(context, folder, names[i], path));
    if (hark_path_kind_of(path) == HARK_PATH_FILE) return HARK_OK;
  }
  path[0] = '\0';
  return HARK_OK;
}

hark_status hark_foreign_has_tokenizer(hark_context *context, const char *folder, bool *has) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(find_tokenizer(context, folder, path));
  *has = path[0] != '\0';
  return HARK_OK;
}

hark_status hark_foreign_read_tokenizer(hark_context *context, const hark_foreign *foreign, hark_imported **out) {
  char path[HARK_PATH_BYTES];
  *out = NULL;
  HARK_TRY(find_tokenizer(context, foreign->folder, path));
  return path[0] != '\0' ? read_tokenizer(context, path, foreign->config.vocabulary, out) : HARK_OK;
}

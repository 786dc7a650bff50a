/* model_parts.c - see model_parts.h. */
#include "models/model_parts.h"

#include <string.h>

#include "models/foreign/foreign.h"
#include "models/foreign/foreign_tensors.h"
#include "models/model.h"
#include "models/model_path.h"

/* ---- descriptions ---- */

static hark_status read_own_description(hark_context *context, const char *path, hark_description *out) {
  hark_model_options options = {.struct_size = sizeof options};
  hark_safetensors *file = NULL;
  HARK_TRY(hark_safetensors_open(context, path, &file));
  hark_status status = hark_model_read_metadata(context, file, path, &options);
  if (status == HARK_OK) status = hark_description_parse(context, path, options.description, options.description_bytes, out);
  hark_safetensors_close(context, &file);
  return status;
}

hark_status hark_model_read_description(hark_context *context, const char *path, const char *checkpoint, hark_description *out) {
  char name[HARK_PATH_BYTES];
  hark_foreign from;
  bool foreign = false;
  *out = (hark_description){0};
  HARK_TRY(hark_foreign_find(context, path, name, &foreign));
  if (!foreign) {
    HARK_TRY(hark_model_find_file(context, path, checkpoint, false, name));
    return read_own_description(context, name, out);
  }
  const hark_status status = hark_foreign_open(context, name, &from);
  out->config = from.config;
  hark_foreign_close(context, &from);
  return status;
}

/* ---- tokenizers ---- */

static hark_status refuse_tokenizer(hark_context *context, const char *name, const char *reason) {
  return hark_fail(context, HARK_UNSUPPORTED, "%.300s: has no tokenizer%s, expected a model of text", name, reason);
}

static hark_status read_foreign_tokenizer(hark_context *context, const char *folder, hark_tokenizer **out) {
  hark_foreign from;
  hark_imported *imported = NULL;
  hark_status status = hark_foreign_open(context, folder, &from);
  if (status == HARK_OK) status = hark_foreign_read_tokenizer(context, &from, &imported);
  const hark_network_config config = from.config;
  hark_foreign_close(context, &from);
  HARK_TRY(status);
  if (imported == NULL) return refuse_tokenizer(context, folder, ": neither tokenizer.json nor tokenizer.model");
  return hark_tokenizer_import(context, &imported, (int32_t)config.vocabulary, &config.ends, out);
}

/* In the metadata of a file of hark. */
static hark_status parse_words(hark_context *context, const hark_safetensors *file, const char *name, hark_tokenizer **out) {
  const char *const vocabulary = hark_safetensors_metadata(file, HARK_VOCABULARY_KEY), *const words = hark_safetensors_metadata(
                                                                                           file, HARK_TOKENIZER_KEY);
  hark_imported *imported = NULL;
  hark_description description;
  bool examples = false;
  if (vocabulary != NULL) {
    HARK_TRY(hark_example_vocabulary_is(context, vocabulary, strlen(vocabulary), &examples));
    if (examples) return refuse_tokenizer(context, name, ", but the vocabulary of labelled examples");
    return hark_tokenizer_parse(context, vocabulary, strlen(vocabulary), out);
  }
  if (words == NULL) return refuse_tokenizer(context, name, "");
  HARK_TRY(read_own_description(context, name, &description));
  const int64_t rows = description.config.vocabulary;
  const hark_end_tokens ends = description.config.ends;
  hark_description_close(context, &description);
  HARK_TRY(hark_imported_parse(context, HARK_TOKENIZER_KEY, words, &imported));
  const hark_status status = hark_foreign_check_tokenizer(context, HARK_TOKENIZER_KEY, imported, rows);
  if (status == HARK_OK) return hark_tokenizer_import(context, &imported, (int32_t)rows, &ends, out);
  hark_imported_destroy(context, &imported);
  return status;
}

static hark_status read_own_tokenizer(hark_context *context, const char *name, hark_tokenizer **out) {
  hark_safetensors *file = NULL;
  HARK_TRY(hark_safetensors_open(context, name, &file));
  const hark_status status = parse_words(context, file, name, out);
  hark_safetensors_close(context, &file);
  if (status == HARK_BAD_FILE) hark_fail_prefix(context, "%.300s: ", name);
  return status;
}

hark_status hark_model_read_tokenizer(hark_context *context, const char *path, hark_tokenizer **out) {
  char name[HARK_PATH_BYTES];
  bool foreign = false;
  *out = NULL;
  HARK_TRY(hark_foreign_find(context, path, name, &foreign));
  if (foreign) return read_foreign_tokenizer(context, name, out);
  HARK_TRY(hark_model_find_file(context, path, NULL, false, name));
  return read_own_tokenizer(context, name, out);
}

/* Whether a folder or a file has the tokenizer of another program. */
static hark_status has_imported(hark_context *context, const char *path, bool *imported) {
  char name[HARK_PATH_BYTES];
  bool foreign = false;
  hark_safetensors *file = NULL;
  HARK_TRY(hark_foreign_find(context, path, name, &foreign));
  if (foreign) return hark_foreign_has_tokenizer(context, name, imported);
  HARK_TRY(hark_model_find_file(context, path, NULL, false, name));
  HARK_TRY(hark_safetensors_open(context, name, &file));
  *imported = hark_safetensors_metadata(file, HARK_TOKENIZER_KEY) != NULL;
  hark_safetensors_close(context, &file);
  return HARK_OK;
}

hark_status hark_model_read_tokenizer_kind(hark_context *context, const char *path, const char **kind) {
  hark_tokenizer *tokenizer = NULL;
  bool imported = false;
  *kind = hark_tokenizer_kind_name(HARK_TOKENIZER_IMPORTED);
  HARK_TRY(has_imported(context, path, &imported));
  if (imported) return HARK_OK;
  HARK_TRY(hark_model_read_tokenizer(context, path, &tokenizer));
  *kind = hark_tokenizer_kind_of(tokenizer);
  hark_tokenizer_destroy(context, &tokenizer);
  return HARK_OK;
}

/* ---- weights ---- */

static hark_status read_foreign_weights(hark_context *context, const char *folder, hark_network *network) {
  hark_foreign from;
  hark_status status = hark_foreign_open(context, folder, &from);
  if (status == HARK_OK) status = hark_foreign_tensors_check(context, from.type, &from.shards, from.folder, network);
  if (status == HARK_OK) status = hark_foreign_tensors_read(context, from.type, &from.shards, network);
  hark_foreign_close(context, &from);
  return status;
}

hark_status hark_model_read_network(hark_context *context, const char *path, hark_network *network) {
  char name[HARK_PATH_BYTES];
  bool foreign = false;
  hark_safetensors *file = NULL;
  HARK_TRY(hark_foreign_find(context, path, name, &foreign));
  if (foreign) return read_foreign_weights(context, name, network);
  HARK_TRY(hark_model_find_file(context, path, NULL, true, name));
  HARK_TRY(hark_safetensors_open(context, name, &file));
  hark_status status = hark_model_check_weights(context, name, file, &network->parameters);
  if (status == HARK_OK) status = hark_model_read_weights(context, name, file, &network->parameters);
  hark_safetensors_close(context, &file);
  return status;
}

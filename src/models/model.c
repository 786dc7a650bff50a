/* model.c - models: their files, properties, text and tokens. model_path.c finds files, decoding.c decodes. */
#include "models/model.h"

#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "core/checksum.h"
#include "core/compact.h"
#include "core/overlap.h"
#include "core/structs.h"
#include "io/safetensors.h"
#include "models/description.h"
#include "models/foreign/foreign.h"
#include "models/foreign/foreign_tensors.h"
#include "models/matrices.h"
#include "models/model_path.h"
#include "tokenizers/pipeline/pipeline.h"

#define FORMAT_VERSION "1"
#define FORMAT_VERSION_KEY "format_version"
#define STAGE_BYTES ((size_t)1 << 18)

static const char type_name[] = "gpt";

/* ---- making ---- */

static hark_status take_options(hark_context *context, const hark_model_options *given, hark_model_options *out) {
  *out = (hark_model_options){.struct_size = sizeof *out};
  if (given == NULL) return HARK_OK;
  return hark_take_struct(context, "hark_model_options", given, HARK_LEAST_MODEL_OPTIONS, out, sizeof *out);
}

static hark_status new_model(hark_context *context, hark_model **out) {
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_model), &memory));
  *out = memory;
  (*out)->backend = context->backend;
  return HARK_OK;
}

void hark_model_destroy(hark_context *context, hark_model **model_pointer) {
  if (model_pointer == NULL || *model_pointer == NULL) return;
  hark_model *model = *model_pointer;
  *model_pointer = NULL;
  hark_tokenizer_destroy(context, &model->tokenizer);
  hark_example_vocabulary_destroy(context, &model->examples);
  hark_imported_destroy(context, &model->imported);
  if (!model->borrowed) hark_network_destroy(context, &model->network);
  hark_release(context, model, sizeof *model);
}

/* Adds the bytes of a tensor to *sum, part by part through `stage`. */
static hark_status add_bytes(hark_context *context, const hark_tensor *tensor, void *stage, uint64_t *sum) {
  const size_t total = tensor->type != HARK_NONE ? (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type) : 0;
  for (size_t at = 0; at < total; at += STAGE_BYTES) {
    const size_t bytes = total - at < STAGE_BYTES ? total - at : STAGE_BYTES;
    HARK_TRY(hark_backend_read(context, stage, (const char *)tensor->data + at, bytes));
    *sum = hark_checksum_block(*sum, stage, bytes);
  }
  return HARK_OK;
}

/* Over the description and the numbers of every parameter, which differ in order or shape only where the description does. */
static hark_status take_fingerprint(hark_context *context, hark_model *model) {
  const hark_parameters *parameters = &model->network->parameters;
  hark_text text = hark_text_empty(context);
  hark_description_print(&model->network->config, &text);
  uint64_t sum = hark_checksum_bytes(HARK_CHECKSUM_START, hark_text_get(&text), text.length);
  const hark_status printed = text.status;
  hark_text_free(&text);
  HARK_TRY(printed);
  void *stage = NULL;
  HARK_TRY(hark_allocate(context, STAGE_BYTES, &stage));
  hark_status status = HARK_OK;
  for (int32_t i = 0; i < parameters->count && status == HARK_OK; i++) {
    status = add_bytes(context, &parameters->list[i].weight, stage, &sum);
    if (status == HARK_OK) status = add_bytes(context, &parameters->list[i].scale, stage, &sum);
  }
  hark_release(context, stage, STAGE_BYTES);
  model->fingerprint = sum;
  return status;
}

hark_status hark_model_mark_sentences(hark_context *context, hark_model *model) {
  if (model->network->config.sentences) return HARK_OK;
  model->network->config.sentences = true;
  return take_fingerprint(context, model);
}

/* Of a run that began with an imported model the vocabulary is that model's tokenizer. */
static void take_imported(hark_context *context, hark_model *model) {
  if (hark_tokenizer_imported(model->tokenizer) == NULL) return;
  model->imported = hark_tokenizer_take_imported(model->tokenizer);
  hark_tokenizer_destroy(context, &model->tokenizer);
}

/* Finds the vocabulary, if there is one, and the number of tokens. */
static hark_status find_vocabulary(hark_context *context, hark_model *model, const char *name, const hark_model_options *options,
                                   hark_network_config *config) {
  if (options->vocabulary != NULL) {
    const char *text = options->vocabulary;
    const size_t bytes = options->vocabulary_bytes;
    bool of_examples = false;
    HARK_TRY(hark_example_vocabulary_is(context, text, bytes, &of_examples));
    const hark_status status = of_examples ? hark_example_vocabulary_parse(context, text, bytes, &model->examples)
                                           : hark_tokenizer_parse(context, text, bytes, &model->tokenizer);
    if (status != HARK_OK) {
      hark_fail_prefix(context, "%s: vocabulary: ", name);
      return status;
    }
    const int64_t size = of_examples ? hark_example_vocabulary_size(model->examples) : hark_tokenizer_size(model->tokenizer);
    if (config->vocabulary != 0 && config->vocabulary != size)
      return hark_fail(context, HARK_BAD_FILE, "%s: the model has %" PRId64 " tokens, its vocabulary %" PRId64, name, config->vocabulary,
                       size);
    config->vocabulary = size;
    if (!of_examples) take_imported(context, model);
    const int64_t names = of_examples ? hark_example_vocabulary_class_count(model->examples) : 0;
    if (names != 0 && config->classes != 0 && names != config->classes)
      return hark_fail(context, HARK_BAD_FILE, "%s: the model predicts %" PRId64 " classes, its vocabulary names %" PRId64, name,
                       config->classes, names);
  }
  if (config->vocabulary == 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: model.vocabulary, the number of tokens, is missing and there is no vocabulary", name);
  return HARK_OK;
}

/* Reads description and vocabulary, and declares the network. */
typedef struct model_editing {
  hark_model_edit *edit;
  void *user;
} model_editing;

static hark_status declare(hark_context *context, hark_model *model, const char *name, const hark_model_options *options,
                           const model_editing *editing) {
  hark_description description;
  HARK_TRY(hark_description_parse(context, name, options->description, options->description_bytes, &description));
  hark_network_config config = description.config;
  hark_status status = find_vocabulary(context, model, name, options, &config);
  if (status == HARK_OK && editing != NULL) status = editing->edit(editing->user, context, &config);
  if (status == HARK_OK) status = hark_network_declare(context, &config, HARK_F32, &model->network);
  hark_description_close(context, &description);
  return status;
}

hark_status hark_model_check_decoder(hark_context *context, const char *name, const hark_model *model) {
  const hark_architecture *architecture = model->network->architecture;
  const char *reason = architecture->looks_ahead;
  if (model->network->config.architecture == HARK_ARCHITECTURE_DECODER) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED,
                   "%s: the model is of architecture %s, and only a decoder continues texts%s%s; hark eval measures others", name,
                   architecture->name, reason != NULL ? ": here " : "", reason != NULL ? reason : "");
}

bool hark_model_note_agrees(const hark_safetensors *file, const hark_parameter_note *note) {
  const char *there = hark_safetensors_metadata(file, note->key);
  return strcmp(there != NULL ? there : "", note->text) == 0;
}

static hark_status check_notes(hark_context *context, const char *name, const hark_safetensors *file, const hark_parameters *parameters) {
  for (int i = 0; i < parameters->note_count; i++) {
    const hark_parameter_note *note = &parameters->notes[i];
    if (hark_model_note_agrees(file, note)) continue;
    const char *there = hark_safetensors_metadata(file, note->key);
    char was[HARK_SHOWN_BYTES], is[HARK_SHOWN_BYTES];
    hark_text_shown_both(there != NULL ? there : "", note->text, was, is);
    return hark_fail(context, HARK_BAD_FILE, "%s: was trained with %s \"%s\", the configuration has \"%s\"", name, note->key, was, is);
  }
  return HARK_OK;
}

hark_status hark_model_check_weights(hark_context *context, const char *name, const hark_safetensors *file,
                                     const hark_parameters *parameters) {
  HARK_TRY(check_notes(context, name, file, parameters));
  int64_t tensors = 0;
  for (int32_t i = 0; i < parameters->count; i++) {
    const hark_status status = hark_matrix_check(context, name, file, parameters, &parameters->list[i], &tensors);
    if (status != HARK_OK) return status == HARK_NOT_FOUND ? HARK_BAD_FILE : status;
  }
  if (hark_safetensors_count(file) != tensors)
    return hark_fail(context, HARK_BAD_FILE, "%s: holds %" PRId64 " tensors, the model has %" PRId64, name, hark_safetensors_count(file),
                     tensors);
  return HARK_OK;
}

hark_status hark_model_read_weights(hark_context *context, const char *name, const hark_safetensors *file, hark_parameters *parameters) {
  for (int32_t i = 0; i < parameters->count; i++) HARK_TRY(hark_matrix_read(context, name, file, &parameters->list[i]));
  return HARK_OK;
}

hark_status hark_model_read_metadata(hark_context *context, const hark_safetensors *file, const char *name, hark_model_options *options) {
  const char *version = hark_safetensors_metadata(file, FORMAT_VERSION_KEY),
             *description = hark_safetensors_metadata(file, HARK_DESCRIPTION_KEY);
  const char *vocabulary = hark_safetensors_metadata(file, HARK_VOCABULARY_KEY);
  if (version != NULL && strcmp(version, FORMAT_VERSION) != 0)
    return hark_fail(context, HARK_BAD_FILE, "%s: format_version is not %s", name, FORMAT_VERSION);
  if (description != NULL) {
    options->description = description;
    options->description_bytes = strlen(description);
  }
  if (vocabulary != NULL) {
    options->vocabulary = vocabulary;
    options->vocabulary_bytes = strlen(vocabulary);
  }
  if (options->description == NULL)
    return hark_fail(context, HARK_BAD_FILE, "%s: does not describe its model (metadata \"%s\"): hark export RUN writes a file that does",
                     name, HARK_DESCRIPTION_KEY);
  return HARK_OK;
}

/* The tokenizer of another program in a file's metadata; NULL: none. */
static hark_status read_tokenizer(hark_context *context, const char *name, const char *text, hark_model *model) {
  if (text == NULL || model->tokenizer != NULL || model->examples != NULL || model->imported != NULL) return HARK_OK;
  hark_status status = hark_imported_parse(context, HARK_TOKENIZER_KEY, text, &model->imported);
  if (status == HARK_OK)
    status = hark_foreign_check_tokenizer(context, HARK_TOKENIZER_KEY, model->imported, model->network->config.vocabulary);
  if (status != HARK_OK) hark_fail_prefix(context, "%s: ", name);
  return status;
}

/* Holds the matrices in the requested type, or else in those of the file (NULL: f32). */
static hark_status hold(hark_context *context, const char *name, const hark_safetensors *file, hark_type matrices,
                        hark_parameters *parameters) {
  if (matrices == HARK_NONE) return file != NULL ? hark_matrices_hold_stored(context, name, file, parameters) : HARK_OK;
  if (matrices != HARK_F32 && !hark_type_is_compact(matrices))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_model_options.matrices is %s, expected f32, bf16, f16 or i8",
                     hark_type_name(matrices));
  const hark_status status = hark_parameters_hold(context, parameters, matrices);
  if (status != HARK_OK) hark_fail_prefix(context, "%s: ", name);
  return status;
}

static hark_status fill(hark_context *context, const hark_safetensors *file, const char *name, hark_model_options *options,
                        const model_editing *editing, hark_model *model) {
  HARK_TRY(hark_model_read_metadata(context, file, name, options));
  HARK_TRY(declare(context, model, name, options, editing));
  HARK_TRY(read_tokenizer(context, name, hark_safetensors_metadata(file, HARK_TOKENIZER_KEY), model));
  hark_parameters *parameters = &model->network->parameters;
  HARK_TRY(hark_model_check_weights(context, name, file, parameters));
  HARK_TRY(hold(context, name, file, options->matrices, parameters));
  HARK_TRY(hark_parameters_finish(context, parameters, false));
  HARK_TRY(hark_model_read_weights(context, name, file, parameters));
  return take_fingerprint(context, model);
}

/* Makes a model from an open file and closes the file. `before`: memory of the context before the file was opened. */
static hark_status load_file(hark_context *context, hark_safetensors **file, const char *name, hark_model_options *options,
                             const model_editing *editing, size_t before, hark_model **out) {
  hark_model *model = NULL;
  hark_status status = new_model(context, &model);
  if (status == HARK_OK) status = fill(context, *file, name, options, editing, model);
  hark_safetensors_close(context, file);
  if (status != HARK_OK) {
    hark_model_destroy(context, &model);
    return status;
  }
  model->bytes = context->memory.live_bytes - before;
  *out = model;
  return HARK_OK;
}

/* ---- models of other programs ---- */

static hark_status fill_foreign(hark_context *context, hark_foreign *from, hark_type matrices, const model_editing *editing,
                                hark_model *model) {
  if (editing != NULL) HARK_TRY(editing->edit(editing->user, context, &from->config));
  HARK_TRY(hark_foreign_declare(context, from, &model->network));
  HARK_TRY(hark_foreign_read_tokenizer(context, from, &model->imported));
  hark_parameters *parameters = &model->network->parameters;
  if (matrices == HARK_NONE)
    HARK_TRY(hark_foreign_tensors_hold(context, from->type, &from->shards, model->network));
  else
    HARK_TRY(hold(context, from->folder, NULL, matrices, parameters));
  HARK_TRY(hark_parameters_finish(context, parameters, false));
  HARK_TRY(hark_foreign_tensors_read(context, from->type, &from->shards, model->network));
  return take_fingerprint(context, model);
}

static hark_status load_foreign(hark_context *context, const char *folder, const hark_model_options *options, const model_editing *editing,
                                hark_model **out) {
  const size_t before = context->memory.live_bytes;
  hark_foreign from;
  hark_model *model = NULL;
  hark_status status = hark_foreign_open(context, folder, &from);
  if (status == HARK_OK) status = new_model(context, &model);
  if (status == HARK_OK) status = fill_foreign(context, &from, options->matrices, editing, model);
  hark_foreign_close(context, &from);
  if (status != HARK_OK) {
    hark_model_destroy(context, &model);
    return status;
  }
  model->bytes = context->memory.live_bytes - before;
  *out = model;
  return HARK_OK;
}

static hark_status load_path(hark_context *context, const char *path, const hark_model_options *given, const model_editing *editing,
                             hark_model **out) {
  char name[HARK_PATH_BYTES];
  hark_model_options options;
  hark_safetensors *file = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, given, &options));
  bool foreign = false;
  if (options.description == NULL) HARK_TRY(hark_foreign_find(context, path, name, &foreign));
  if (foreign && options.vocabulary != NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "%.250s: hark_model_options.vocabulary is given without a description, expected the tokenizer in this folder", name);
  if (foreign) return load_foreign(context, name, &options, editing, out);
  HARK_TRY(hark_model_find_file(context, path, options.checkpoint, !options.skip_verification, name));
  const size_t before = context->memory.live_bytes;
  HARK_TRY(hark_safetensors_open(context, name, &file));
  return load_file(context, &file, name, &options, editing, before, out);
}

hark_status hark_model_load(hark_context *context, const char *path, const hark_model_options *given, hark_model **out) {
  return load_path(context, path, given, NULL, out);
}

hark_status hark_model_load_edited(hark_context *context, const char *path, const hark_model_options *given, hark_model_edit *edit,
                                   void *user, hark_model **out) {
  const model_editing editing = {edit, user};
  return load_path(context, path, given, &editing, out);
}

hark_status hark_model_load_memory(hark_context *context, const void *data, size_t bytes, const hark_model_options *given,
                                   hark_model **out) {
  static const char name[] = "model in memory";
  hark_model_options options;
  hark_safetensors *file = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, given, &options));
  const size_t before = context->memory.live_bytes;
  HARK_TRY(hark_safetensors_open_memory(context, name, data, bytes, &file));
  return load_file(context, &file, name, &options, NULL, before, out);
}

static hark_status initialise(hark_context *context, hark_model *model, hark_model_options *options, uint64_t seed) {
  static const char name[] = "description";
  if (options->description == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_model_create: there is no description");
  char *bytes_vocabulary = NULL;
  size_t bytes = 0;
  hark_status status = HARK_OK;
  if (options->vocabulary == NULL) {
    hark_tokenizer *tokenizer = NULL;
    status = hark_tokenizer_create(context, "bytes", &tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_finish(context, tokenizer);
    if (status == HARK_OK) status = hark_tokenizer_print(context, tokenizer, &bytes_vocabulary, &bytes);
    hark_tokenizer_destroy(context, &tokenizer);
    options->vocabulary = bytes_vocabulary;
    options->vocabulary_bytes = bytes;
  }
  if (status == HARK_OK) status = declare(context, model, name, options, NULL);
  hark_release(context, bytes_vocabulary, bytes);
  HARK_TRY(status);
  HARK_TRY(hold(context, name, NULL, options->matrices, &model->network->parameters));
  HARK_TRY(hark_parameters_finish(context, &model->network->parameters, false));
  HARK_TRY(hark_parameters_initialise(context, &model->network->parameters, seed));
  return take_fingerprint(context, model);
}

hark_status hark_model_create(hark_context *context, const hark_model_options *given, uint64_t seed, hark_model **out) {
  hark_model_options options;
  hark_model *model = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, given, &options));
  const size_t before = context->memory.live_bytes;
  hark_status status = new_model(context, &model);
  if (status == HARK_OK) status = initialise(context, model, &options, seed);
  if (status != HARK_OK) {
    hark_model_destroy(context, &model);
    return status;
  }
  model->bytes = context->memory.live_bytes - before;
  *out = model;
  return HARK_OK;
}

hark_status hark_model_wrap(hark_context *context, hark_network *network, hark_model **out) {
  HARK_TRY(new_model(context, out));
  (*out)->network = network;
  (*out)->borrowed = true;
  (*out)->bytes = sizeof **out;
  const hark_status status = take_fingerprint(context, *out);
  if (status != HARK_OK) hark_model_destroy(context, out);
  return status;
}

/* ---- writing ---- */

hark_status hark_model_write(hark_context *context, const char *path, const hark_network *network, const hark_metadata_entry *words,
                             hark_type matrices, hark_file_summary *summary) {
  const hark_parameters *parameters = &network->parameters;
  hark_matrices_to_write write;
  HARK_TRY(hark_matrices_to_write_open(context, path, parameters, matrices, &write));
  hark_text description = hark_text_empty(context);
  hark_description_print(&network->config, &description);
  enum { FIXED_ENTRIES = 4 };
  hark_metadata_entry metadata[FIXED_ENTRIES + HARK_PARAMETER_NOTES] = {
      {"format", "hark"}, {FORMAT_VERSION_KEY, FORMAT_VERSION}, {HARK_DESCRIPTION_KEY, hark_text_get(&description)}};
  int64_t entries = FIXED_ENTRIES - 1;
  for (int i = 0; i < parameters->note_count; i++)
    if (parameters->notes[i].text[0] != '\0')
      metadata[entries++] = (hark_metadata_entry){parameters->notes[i].key, parameters->notes[i].text};
  if (words != NULL) metadata[entries++] = *words;
  hark_status status = description.status;
  if (status == HARK_OK) status = hark_safetensors_write(context, path, write.tensors, write.count, metadata, entries, summary);
  hark_text_free(&description);
  hark_matrices_to_write_close(context, &write);
  return status;
}

/* The model's vocabulary or tokenizer as text. */
static hark_status print_words(hark_context *context, const hark_model *model, hark_text *out) {
  size_t bytes = 0;
  if (model->tokenizer != NULL) {
    char *text = NULL;
    HARK_TRY(hark_tokenizer_print(context, model->tokenizer, &text, &bytes));
    hark_text_append_bytes(out, text, bytes);
    hark_release(context, text, bytes);
  } else if (model->examples != NULL) {
    const char *text = hark_example_vocabulary_text(model->examples, &bytes);
    hark_text_append_bytes(out, text, bytes);
  } else if (model->imported != NULL) {
    hark_imported_print(model->imported, out);
  }
  return out->status;
}

static hark_status save(hark_context *context, const hark_model *model, const char *path, hark_type matrices) {
  hark_text text = hark_text_empty(context);
  hark_status status = print_words(context, model, &text);
  const hark_metadata_entry words = {model->imported != NULL ? HARK_TOKENIZER_KEY : HARK_VOCABULARY_KEY, hark_text_get(&text)};
  if (status == HARK_OK) status = hark_model_write(context, path, model->network, text.length > 0 ? &words : NULL, matrices, NULL);
  hark_text_free(&text);
  return status;
}

hark_status hark_model_save(hark_context *context, const hark_model *model, const char *path) {
  return save(context, model, path, HARK_NONE);
}

hark_status hark_model_save_with(hark_context *context, const hark_model *model, const char *path, const hark_model_save_options *given) {
  hark_model_save_options options = {.struct_size = sizeof options};
  if (given != NULL)
    HARK_TRY(hark_take_struct(context, "hark_model_save_options", given, HARK_LEAST_MODEL_SAVE_OPTIONS, &options, sizeof options));
  if (options.matrices != HARK_NONE && options.matrices != HARK_F32 && !hark_type_is_compact(options.matrices))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_model_save_options.matrices is %s, expected f32, bf16, f16 or i8",
                     hark_type_name(options.matrices));
  return save(context, model, path, options.matrices);
}

/* ---- properties ---- */

hark_status hark_model_describe(const hark_model *model, hark_model_info *info) {
  const hark_network_config *config = &model->network->config;
  const hark_model_info full = {.struct_size = sizeof full,
                                .type = type_name,
                                .tokenizer = model->tokenizer != NULL  ? hark_tokenizer_kind_of(model->tokenizer)
                                             : model->imported != NULL ? hark_imported_kind(model->imported)
                                                                       : NULL,
                                .vocabulary = config->vocabulary,
                                .reserved = config->unreserved ? 0 : HARK_TOKEN_RESERVED,
                                .context = config->context,
                                .layers = config->layers,
                                .heads = config->heads,
                                .key_heads = config->key_heads,
                                .width = config->width,
                                .parameters = hark_parameters_total(&model->network->parameters),
                                .bytes = model->bytes,
                                .fingerprint = model->fingerprint,
                                .architecture = model->network->architecture->name,
                                .begin = config->sentences ? HARK_TOKEN_BEGIN : 0,
                                .matrices = hark_matrices_type(&model->network->parameters),
                                .ends = config->ends.tokens,
                                .end_count = config->ends.count};
  return hark_give_struct(NULL, "hark_model_info", info, HARK_LEAST_MODEL_INFO, &full, sizeof full);
}

/* ---- text ---- */

/* At most `bytes` tokens, as the caller has room for. */
static hark_status encode_imported(hark_context *context, const hark_model *model, const char *text, size_t bytes, int32_t *tokens,
                                   size_t *count) {
  HARK_TRY(hark_imported_encode(context, model->imported, text, bytes, false, tokens, bytes, count));
  const size_t made = *count;
  if (made <= bytes) return HARK_OK;
  *count = 0;
  return hark_fail(context, HARK_TOO_LARGE, "a text of %zu bytes has %zu tokens: hark_model_tokenize() has room for them", bytes, made);
}

hark_status hark_model_encode(hark_context *context, const hark_model *model, const char *text, size_t bytes, bool map_unknown,
                              int32_t *tokens, size_t *count) {
  *count = 0;
  if (bytes <= SIZE_MAX / sizeof *tokens)
    HARK_TRY(hark_check_apart(context, "encode: tokens and text", tokens, bytes * sizeof *tokens, text, bytes, false));
  if (model->examples != NULL) return hark_example_vocabulary_encode(context, model->examples, map_unknown, text, bytes, tokens, count);
  if (model->imported != NULL) return encode_imported(context, model, text, bytes, tokens, count);
  if (model->tokenizer == NULL) return hark_fail(context, HARK_UNSUPPORTED, "the model has no vocabulary: it has only numbers of tokens");
  return hark_tokenizer_encode(context, model->tokenizer, map_unknown ? HARK_UNKNOWN_IS_MAPPED : HARK_UNKNOWN_IS_ERROR, "text", text, bytes,
                               tokens, count);
}

hark_status hark_model_encode_line(hark_context *context, const hark_model *model, const char *text, size_t bytes, hark_unknown unknown,
                                   int32_t *tokens, size_t *count, hark_text_fault *fault) {
  size_t consumed;
  if (model->examples != NULL)
    return hark_example_vocabulary_encode_line(context, model->examples, unknown == HARK_UNKNOWN_IS_MAPPED, text, bytes, tokens, count,
                                               fault);
  if (model->tokenizer != NULL)
    return hark_tokenizer_encode_part(context, model->tokenizer, unknown, text, bytes, true, tokens, count, &consumed, fault);
  return hark_model_encode(context, model, text, bytes, unknown == HARK_UNKNOWN_IS_MAPPED, tokens, count);
}

hark_status hark_model_tokenize(hark_context *context, const hark_model *model, const char *text, size_t bytes, bool map_unknown,
                                bool special, int32_t *tokens, size_t capacity, size_t *count) {
  *count = 0;
  if (capacity <= SIZE_MAX / sizeof *tokens)
    HARK_TRY(hark_check_apart(context, "tokenize: tokens and text", tokens, capacity * sizeof *tokens, text, bytes, false));
  if (model->imported != NULL) return hark_imported_encode(context, model->imported, text, bytes, special, tokens, capacity, count);
  if (capacity < bytes)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "tokenize: room for %zu tokens, expected at least %zu for this model", capacity,
                     bytes);
  return hark_model_encode(context, model, text, bytes, map_unknown, tokens, count);
}

const char *hark_model_token_text(const hark_model *model, int32_t token, size_t *bytes) {
  *bytes = 0;
  if (model->imported != NULL) return hark_imported_text(model->imported, token, bytes);
  if (model->examples != NULL) return hark_example_vocabulary_token(model->examples, token, bytes);
  return model->tokenizer != NULL ? hark_tokenizer_text(model->tokenizer, token, bytes) : "";
}

const char *hark_model_class_name(const hark_model *model, int64_t index) {
  return model->examples != NULL ? hark_example_vocabulary_class(model->examples, index) : NULL;
}

void hark_model_decode(const hark_model *model, const int32_t *tokens, size_t count, char *text, size_t capacity, size_t *bytes) {
  size_t needed = 0;
  bool fits = true;
  for (size_t i = 0; i < count; i++) {
    size_t length;
    const char *part = hark_model_token_text(model, tokens[i], &length);
    fits = fits && needed + length <= capacity;
    if (fits && length > 0) memcpy(text + needed, part, length);
    needed += length;
  }
  *bytes = needed;
}

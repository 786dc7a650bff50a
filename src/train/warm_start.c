/* warm_start.c - see warm_start.h. */
#include "train/warm_start.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "core/line.h"
#include "io/checkpoint_files.h"
#include "io/safetensors.h"
#include "json/json.h"
#include "models/model.h"
#include "models/model_parts.h"
#include "tokenizers/tokenizer.h"
#include "train/model_source.h"

#define SHAPE_BYTES ((size_t)HARK_SHAPE_TEXT_BYTES)

typedef enum tensor_fate { FATE_LOADED, FATE_MISSING, FATE_OTHER_SHAPE, FATE_UNEXPECTED, FATE_COUNT } tensor_fate;

/* Where the weights come from: the file of a checkpoint, or a model that is no run, in memory as f32. */
typedef struct weight_source {
  hark_run run;                     /* its path is the model's */
  char checkpoint[HARK_NAME_BYTES]; /* "": a model */
  char sha256[HARK_SHA256_TEXT_BYTES];
  hark_safetensors *file;
  hark_model *model; /* instead of the file */
} weight_source;

/* A tensor of the source; the name is NULL where there is none. */
typedef struct source_tensor {
  const char *name, *type;
  int rank;
  const int64_t *shape;
  bool is_f32;
} source_tensor;

static source_tensor of_stored(const hark_stored_tensor *stored) {
  if (stored == NULL) return (source_tensor){.name = NULL};
  return (source_tensor){stored->name, stored->type_name, stored->rank, stored->shape, stored->type == HARK_F32};
}

static source_tensor of_parameter(const hark_parameter *parameter) {
  if (parameter == NULL) return (source_tensor){.name = NULL};
  return (source_tensor){parameter->name, hark_type_name(parameter->weight.type), parameter->weight.rank, parameter->weight.shape, true};
}

static source_tensor find_tensor(const weight_source *source, const char *name) {
  if (source->model != NULL) return of_parameter(hark_parameters_find(&source->model->network->parameters, name));
  return of_stored(hark_safetensors_find(source->file, name));
}

static int64_t tensor_count(const weight_source *source) {
  return source->model != NULL ? source->model->network->parameters.count : hark_safetensors_count(source->file);
}

static source_tensor tensor_at(const weight_source *source, int64_t index) {
  if (source->model != NULL) return of_parameter(&source->model->network->parameters.list[index]);
  return of_stored(hark_safetensors_tensor(source->file, index));
}

/* The text of a note, or "". */
static const char *note_of(const weight_source *source, const char *key) {
  const char *text = NULL;
  if (source->model == NULL) text = hark_safetensors_metadata(source->file, key);
  for (int i = 0; source->model != NULL && i < source->model->network->parameters.note_count; i++)
    if (strcmp(source->model->network->parameters.notes[i].key, key) == 0) text = source->model->network->parameters.notes[i].text;
  return text != NULL ? text : "";
}

static hark_status load_tensor(hark_context *context, const weight_source *source, hark_parameter *parameter) {
  if (source->model == NULL) return hark_safetensors_load_into(context, source->file, parameter->name, &parameter->weight);
  const hark_tensor *const weight = &hark_parameters_find(&source->model->network->parameters, parameter->name)->weight;
  return hark_backend_copy(context, parameter->weight.data, weight->data, (size_t)hark_tensor_count(weight) * sizeof(float));
}

/* Input and result of sorting the tensors. */
typedef struct warm_start {
  hark_context *context;
  const hark_config *config;
  const hark_parameters *parameters;
  const weight_source *source;
  hark_warm_start_say *say;
  void *user;
  hark_text names[FATE_COUNT]; /* "a", "b": members of a JSON list */
  int64_t counts[FATE_COUNT];
  int64_t refused_missing, refused_unexpected;
  char first_refused[HARK_MESSAGE_BYTES / 2];
} warm_start;

/* Opens the run and the checkpoint that init_from names: the checkpoint in the path, or the best, or the last. */
static hark_status open_run(hark_context *context, const hark_config *config, hark_run *run, char checkpoint[HARK_NAME_BYTES]) {
  HARK_TRY(hark_run_open_reading(context, config->train.init_from, run, checkpoint));
  return checkpoint[0] != '\0' ? HARK_OK : hark_checkpoint_choose(context, run, "", checkpoint);
}

static hark_status check_kind(hark_context *context, const char *path, const hark_config *config, const hark_tokenizer *tokenizer) {
  const char *has = hark_tokenizer_kind_of(tokenizer), *expected = hark_tokenizer_kind_name(config->data.tokenizer);
  if (strcmp(has, expected) == 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION,
                   "%s: its vocabulary is of kind %s, and data.tokenizer is %s: weights need their own vocabulary", path, has, expected);
}

static hark_status read_vocabulary(hark_context *context, const hark_config *config, char path[HARK_PATH_BYTES], hark_tokenizer **out) {
  hark_run run;
  char checkpoint[HARK_NAME_BYTES];
  HARK_TRY(hark_path_join(context, "", config->train.init_from, path));
  if (hark_model_source_is(context, path)) return hark_model_read_tokenizer(context, path, out);
  HARK_TRY(open_run(context, config, &run, checkpoint));
  HARK_TRY(hark_run_path(context, &run, "vocabulary.json", path));
  return hark_tokenizer_load(context, path, out);
}

hark_status hark_warm_start_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out) {
  char path[HARK_PATH_BYTES];
  *out = NULL;
  HARK_TRY(read_vocabulary(context, config, path, out));
  const hark_status status = check_kind(context, path, config, *out);
  if (status != HARK_OK) hark_tokenizer_destroy(context, out);
  return status;
}

static void say(const warm_start *start, const char *format, ...) HARK_PRINTF(2, 3);
static void say(const warm_start *start, const char *format, ...) {
  if (start->say == NULL) return;
  char line[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  hark_line_clean(line);
  start->say(start->user, line);
}

static bool is_allowed(const hark_string_list *patterns, const char *name) {
  for (int64_t i = 0; i < patterns->count; i++)
    if (fnmatch(patterns->items[i], name, 0) == 0) return true;
  return false;
}

static const char *stored_shape(const source_tensor *stored, char text[SHAPE_BYTES]) {
  hark_tensor tensor = {.rank = stored->rank};
  memcpy(tensor.shape, stored->shape, (size_t)stored->rank * sizeof *tensor.shape);
  return hark_shape_text(&tensor, text, SHAPE_BYTES);
}

/* Parameters of one positional kernel cannot be used for another: returns the first note that differs in the file, or NULL. */
static const hark_parameter_note *other_meaning(const warm_start *start, const hark_parameter *parameter) {
  for (int i = 0; parameter->spec.noted && i < start->parameters->note_count; i++)
    if (strcmp(note_of(start->source, start->parameters->notes[i].key), start->parameters->notes[i].text) != 0)
      return &start->parameters->notes[i];
  return NULL;
}

static bool has_shape(const source_tensor *stored, const hark_tensor *tensor) {
  if (!stored->is_f32 || stored->rank != tensor->rank) return false;
  for (int i = 0; i < tensor->rank; i++)
    if (stored->shape[i] != tensor->shape[i]) return false;
  return true;
}

static bool fits(const warm_start *start, const hark_parameter *parameter) {
  const source_tensor there = find_tensor(start->source, parameter->name), *const stored = &there;
  return stored->name != NULL && has_shape(stored, &parameter->weight) && other_meaning(start, parameter) == NULL;
}

static void note(warm_start *start, tensor_fate fate, const char *name, const char *line) {
  const bool missing = fate == FATE_MISSING || fate == FATE_OTHER_SHAPE;
  if (start->counts[fate]++ > 0) hark_text_append(&start->names[fate], ", ");
  hark_json_append_string(&start->names[fate], name);
  if (fate == FATE_LOADED) return;
  const bool allowed = is_allowed(missing ? &start->config->train.allow_missing : &start->config->train.allow_unexpected, name);
  say(start, "%s: %s", line, allowed ? missing ? "it is initialised" : "it is left out" : "not allowed");
  if (allowed) return;
  if (start->refused_missing + start->refused_unexpected == 0)
    (void)snprintf(start->first_refused, sizeof start->first_refused, "%s", line);
  if (missing)
    start->refused_missing++;
  else
    start->refused_unexpected++;
}

/* Reports for every tensor of both sides whether it is loaded, missing or unexpected. Names from the file are escaped as JSON. */
static hark_status sort_tensors(warm_start *start) {
  char line[HARK_MESSAGE_BYTES], here[SHAPE_BYTES], there[SHAPE_BYTES];
  for (int32_t i = 0; i < start->parameters->count; i++) {
    const hark_parameter *parameter = &start->parameters->list[i];
    const source_tensor stored = find_tensor(start->source, parameter->name);
    const char *shape = hark_shape_text(&parameter->weight, here, sizeof here);
    const hark_parameter_note *other;
    tensor_fate fate = FATE_LOADED;
    if (stored.name == NULL) {
      fate = FATE_MISSING;
      (void)snprintf(line, sizeof line, "missing: %s %s", parameter->name, shape);
    } else if ((other = other_meaning(start, parameter)) != NULL) {
      char is[HARK_SHOWN_BYTES], was[HARK_SHOWN_BYTES];
      hark_text_shown_both(other->text, note_of(start->source, other->key), is, was);
      fate = FATE_OTHER_SHAPE;
      (void)snprintf(line, sizeof line, "of another kernel: %s %s, %s \"%s\" in the model, \"%s\" in the file", parameter->name, shape,
                     other->key, is, was);
    } else if (!has_shape(&stored, &parameter->weight)) {
      fate = FATE_OTHER_SHAPE;
      (void)snprintf(line, sizeof line, "of another shape: %s %s, in the file %s %s", parameter->name, shape, stored.type,
                     stored_shape(&stored, there));
    }
    note(start, fate, parameter->name, line);
  }
  for (int64_t i = 0; i < tensor_count(start->source); i++) {
    const source_tensor stored = tensor_at(start->source, i);
    if (hark_parameters_find(start->parameters, stored.name) != NULL) continue;
    hark_text name = hark_text_empty(start->context);
    hark_json_append_string(&name, stored.name);
    (void)snprintf(line, sizeof line, "unexpected: %.200s %s", hark_text_get(&name), stored_shape(&stored, there));
    const hark_status status = name.status;
    hark_text_free(&name);
    HARK_TRY(status);
    note(start, FATE_UNEXPECTED, stored.name, line);
  }
  return HARK_OK;
}

static hark_status check(const warm_start *start, const char *path) {
  if (start->refused_missing + start->refused_unexpected == 0) return HARK_OK;
  return hark_fail(start->context, HARK_SHAPE_MISMATCH,
                   "%.100s: %" PRId64 " weights of the model are missing and %" PRId64
                   " others are unexpected (%s); --allow-missing PATTERN and --allow-unexpected PATTERN allow this",
                   path, start->refused_missing, start->refused_unexpected, start->first_refused);
}

static bool matches_missing(const warm_start *start, const char *pattern) {
  bool any = false;
  for (int32_t i = 0; i < start->parameters->count; i++) {
    const hark_parameter *parameter = &start->parameters->list[i];
    any = any || (!fits(start, parameter) && fnmatch(pattern, parameter->name, 0) == 0);
  }
  return any;
}

static bool matches_unexpected(const warm_start *start, const char *pattern) {
  bool any = false;
  for (int64_t i = 0; i < tensor_count(start->source); i++) {
    const char *name = tensor_at(start->source, i).name;
    any = any || (hark_parameters_find(start->parameters, name) == NULL && fnmatch(pattern, name, 0) == 0);
  }
  return any;
}

/* A pattern that matches nothing is a mistake, as with train.freeze. */
static hark_status refuse_unused(const warm_start *start) {
  const hark_string_list *const missing = &start->config->train.allow_missing, *const others = &start->config->train.allow_unexpected;
  for (int64_t i = 0; i < missing->count; i++)
    if (!matches_missing(start, missing->items[i]))
      return hark_fail(start->context, HARK_BAD_CONFIGURATION, "train.allow_missing: %.200s matches no missing tensor", missing->items[i]);
  for (int64_t i = 0; i < others->count; i++)
    if (!matches_unexpected(start, others->items[i]))
      return hark_fail(start->context, HARK_BAD_CONFIGURATION, "train.allow_unexpected: %.200s matches no unexpected tensor",
                       others->items[i]);
  return HARK_OK;
}

static hark_status load_tensors(const warm_start *start) {
  for (int32_t i = 0; i < start->parameters->count; i++) {
    hark_parameter *parameter = &start->parameters->list[i];
    if (fits(start, parameter)) HARK_TRY(load_tensor(start->context, start->source, parameter));
  }
  return HARK_OK;
}

static hark_status write_origin(const warm_start *start, const hark_run *run) {
  static const char *const lists[FATE_COUNT] = {"loaded", "missing", "other_shape", "unexpected"};
  const weight_source *const source = start->source;
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(start->context);
  HARK_TRY(hark_run_path(start->context, run, "origin.json", path));
  hark_text_append(&text, "{\n  \"format_version\": %d,\n  ", HARK_RUN_FORMAT_VERSION);
  hark_json_append_path(&text, source->model != NULL ? "model" : "run", source->run.path);
  if (source->model != NULL) {
    hark_text_append(&text, ",\n  \"fingerprint\": \"%016" PRIx64 "\"", source->model->fingerprint);
  } else {
    hark_text_append(&text, ",\n  \"checkpoint\": ");
    hark_json_append_string(&text, source->checkpoint);
    hark_text_append(&text, ",\n  \"model_sha256\": \"%s\"", source->sha256);
  }
  for (int i = 0; i < FATE_COUNT; i++) {
    hark_text_append(&text, ",\n  \"%s\": [%s]", lists[i], hark_text_get(&start->names[i]));
    if (start->names[i].status != HARK_OK && text.status == HARK_OK) text.status = start->names[i].status;
  }
  hark_text_append(&text, "\n}\n");
  const hark_status status =
      text.status == HARK_OK ? hark_file_write(start->context, path, hark_text_get(&text), text.length) : text.status;
  hark_text_free(&text);
  return status;
}

static hark_status open_checkpoint(hark_context *context, const hark_config *config, weight_source *source, char path[HARK_PATH_BYTES]) {
  hark_file_summary summary;
  HARK_TRY(open_run(context, config, &source->run, source->checkpoint));
  HARK_TRY(hark_checkpoint_verify(context, &source->run, source->checkpoint, &summary));
  HARK_TRY(hark_checkpoint_check_vocabulary(context, &source->run, source->checkpoint));
  HARK_TRY(hark_checkpoint_path(context, &source->run, source->checkpoint, HARK_WEIGHTS_FILE, path));
  memcpy(source->sha256, summary.sha256, sizeof source->sha256);
  return hark_safetensors_open(context, path, &source->file);
}

/* Opens the source; the name of its weights in messages is `path`. The caller closes it, also after a failure. */
static hark_status open_source(hark_context *context, const hark_config *config, weight_source *source, char path[HARK_PATH_BYTES]) {
  const hark_model_options load = {.struct_size = sizeof load, .matrices = HARK_F32};
  *source = (weight_source){.run.lock = -1};
  HARK_TRY(hark_path_join(context, "", config->train.init_from, path));
  if (!hark_model_source_is(context, path)) return open_checkpoint(context, config, source, path);
  HARK_TRY(hark_path_join(context, "", path, source->run.path));
  return hark_model_load(context, path, &load, &source->model);
}

static void close_source(hark_context *context, weight_source *source) {
  hark_safetensors_close(context, &source->file);
  hark_model_destroy(context, &source->model);
}

static hark_status load(warm_start *start, const hark_run *run, const char *path) {
  HARK_TRY(sort_tensors(start));
  say(start, "weights of %.200s: %" PRId64 " loaded, %" PRId64 " missing, %" PRId64 " of another shape, %" PRId64 " unexpected", path,
      start->counts[FATE_LOADED], start->counts[FATE_MISSING], start->counts[FATE_OTHER_SHAPE], start->counts[FATE_UNEXPECTED]);
  HARK_TRY(check(start, path));
  HARK_TRY(refuse_unused(start));
  HARK_TRY(load_tensors(start));
  return write_origin(start, run);
}

hark_status hark_warm_start_load(hark_context *context, const hark_config *config, const hark_run *run, hark_parameters *parameters,
                                 hark_warm_start_say *say_line, void *user) {
  weight_source source;
  char path[HARK_PATH_BYTES];
  warm_start start = {.context = context,
                      .config = config,
                      .parameters = parameters,
                      .source = &source,
                      .say = say_line,
                      .user = user,
                      .first_refused = ""};
  for (int i = 0; i < FATE_COUNT; i++) start.names[i] = hark_text_empty(context);
  hark_status status = open_source(context, config, &source, path);
  if (status == HARK_OK) status = load(&start, run, path);
  for (int i = 0; i < FATE_COUNT; i++) hark_text_free(&start.names[i]);
  close_source(context, &source);
  return status;
}

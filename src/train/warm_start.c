/* warm_start.c - see warm_start.h. */
#include "train/warm_start.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "io/safetensors.h"
#include "json/json.h"
#include "models/model.h"
#include "tokenizers/tokenizer.h"

#define SHAPE_BYTES ((size_t)HARK_SHAPE_TEXT_BYTES)

typedef enum tensor_fate { FATE_LOADED, FATE_MISSING, FATE_OTHER_SHAPE, FATE_UNEXPECTED, FATE_COUNT } tensor_fate;

/* Input and result of sorting the tensors. */
typedef struct warm_start {
  hark_context *context;
  const hark_config *config;
  const hark_parameters *parameters;
  const hark_safetensors *file;
  hark_warm_start_say *say;
  void *user;
  hark_text names[FATE_COUNT]; /* "a", "b": members of a JSON list */
  int64_t counts[FATE_COUNT];
  int64_t refused_missing, refused_unexpected;
  char first_refused[HARK_MESSAGE_BYTES / 2];
} warm_start;

/* Opens the run and the checkpoint that init_from names: the checkpoint in the path, or the best, or the last. */
static hark_status open_source(hark_context *context, const hark_config *config, hark_run *run, char checkpoint[HARK_NAME_BYTES]) {
  HARK_TRY(hark_run_open_reading(context, config->train.init_from, run, checkpoint));
  return checkpoint[0] != '\0' ? HARK_OK : hark_checkpoint_choose(context, run, "", checkpoint);
}

hark_status hark_warm_start_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out) {
  *out = NULL;
  hark_run run;
  char checkpoint[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  HARK_TRY(open_source(context, config, &run, checkpoint));
  HARK_TRY(hark_run_path(context, &run, "vocabulary.json", path));
  HARK_TRY(hark_tokenizer_load(context, path, out));
  const char *has = hark_tokenizer_kind_of(*out), *expected = hark_tokenizer_kind_name(config->data.tokenizer);
  if (strcmp(has, expected) == 0) return HARK_OK;
  const hark_status status =
      hark_fail(context, HARK_BAD_CONFIGURATION,
                "%s: its vocabulary is of kind %s, and data.tokenizer is %s: weights need their own vocabulary", path, has, expected);
  hark_tokenizer_destroy(context, out);
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
  start->say(start->user, line);
}

static bool is_allowed(const hark_string_list *patterns, const char *name) {
  for (int64_t i = 0; i < patterns->count; i++)
    if (fnmatch(patterns->items[i], name, 0) == 0) return true;
  return false;
}

static const char *stored_shape(const hark_stored_tensor *stored, char text[SHAPE_BYTES]) {
  hark_tensor tensor = {.rank = stored->rank};
  memcpy(tensor.shape, stored->shape, sizeof tensor.shape);
  return hark_shape_text(&tensor, text, SHAPE_BYTES);
}

/* Parameters of one positional kernel cannot be used for another: returns the first note that differs in the file, or NULL. */
static const hark_parameter_note *other_meaning(const warm_start *start, const hark_parameter *parameter) {
  for (int i = 0; parameter->spec.noted && i < start->parameters->note_count; i++)
    if (!hark_model_note_agrees(start->file, &start->parameters->notes[i])) return &start->parameters->notes[i];
  return NULL;
}

static bool has_shape(const hark_stored_tensor *stored, const hark_tensor *tensor) {
  if (stored->type != tensor->type || stored->rank != tensor->rank) return false;
  for (int i = 0; i < tensor->rank; i++)
    if (stored->shape[i] != tensor->shape[i]) return false;
  return true;
}

static bool fits(const warm_start *start, const hark_stored_tensor *stored, const hark_parameter *parameter) {
  return has_shape(stored, &parameter->weight) && other_meaning(start, parameter) == NULL;
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
    const hark_stored_tensor *stored = hark_safetensors_find(start->file, parameter->name);
    const char *shape = hark_shape_text(&parameter->weight, here, sizeof here);
    const hark_parameter_note *other;
    tensor_fate fate = FATE_LOADED;
    if (stored == NULL) {
      fate = FATE_MISSING;
      (void)snprintf(line, sizeof line, "missing: %s %s", parameter->name, shape);
    } else if ((other = other_meaning(start, parameter)) != NULL) {
      const char *const meant = hark_safetensors_metadata(start->file, other->key);
      char is[HARK_SHOWN_BYTES], was[HARK_SHOWN_BYTES];
      hark_text_shown_both(other->text, meant != NULL ? meant : "", is, was);
      fate = FATE_OTHER_SHAPE;
      (void)snprintf(line, sizeof line, "of another kernel: %s %s, %s \"%s\" in the model, \"%s\" in the file", parameter->name, shape,
                     other->key, is, was);
    } else if (!has_shape(stored, &parameter->weight)) {
      fate = FATE_OTHER_SHAPE;
      (void)snprintf(line, sizeof line, "of another shape: %s %s, in the file %s %s", parameter->name, shape, stored->type_name,
                     stored_shape(stored, there));
    }
    note(start, fate, parameter->name, line);
  }
  for (int64_t i = 0; i < hark_safetensors_count(start->file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(start->file, i);
    if (hark_parameters_find(start->parameters, stored->name) != NULL) continue;
    hark_text name = hark_text_empty(start->context);
    hark_json_append_string(&name, stored->name);
    (void)snprintf(line, sizeof line, "unexpected: %.200s %s", hark_text_get(&name), stored_shape(stored, there));
    const hark_status status = name.status;
    hark_text_free(&name);
    HARK_TRY(status);
    note(start, FATE_UNEXPECTED, stored->name, line);
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

/* Reports patterns that match nothing, which are usually mistakes. */
static void say_unused(const warm_start *start, const hark_string_list *patterns, const char *option, bool missing) {
  for (int64_t i = 0; i < patterns->count; i++) {
    bool used = false;
    for (int32_t p = 0; p < start->parameters->count && missing; p++) {
      const hark_parameter *parameter = &start->parameters->list[p];
      const hark_stored_tensor *stored = hark_safetensors_find(start->file, parameter->name);
      used = used || ((stored == NULL || !fits(start, stored, parameter)) && fnmatch(patterns->items[i], parameter->name, 0) == 0);
    }
    for (int64_t t = 0; t < hark_safetensors_count(start->file) && !missing; t++) {
      const char *name = hark_safetensors_tensor(start->file, t)->name;
      used = used || (hark_parameters_find(start->parameters, name) == NULL && fnmatch(patterns->items[i], name, 0) == 0);
    }
    if (!used) say(start, "%s %.200s matches no %s tensor", option, patterns->items[i], missing ? "missing" : "unexpected");
  }
}

static hark_status load_tensors(const warm_start *start) {
  for (int32_t i = 0; i < start->parameters->count; i++) {
    hark_parameter *parameter = &start->parameters->list[i];
    const hark_stored_tensor *stored = hark_safetensors_find(start->file, parameter->name);
    if (stored == NULL || !fits(start, stored, parameter)) continue;
    HARK_TRY(hark_safetensors_load_into(start->context, start->file, parameter->name, &parameter->weight));
  }
  return HARK_OK;
}

static hark_status write_origin(const warm_start *start, const hark_run *run, const hark_run *source, const char *checkpoint,
                                const char *sha256) {
  static const char *const lists[FATE_COUNT] = {"loaded", "missing", "other_shape", "unexpected"};
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(start->context);
  HARK_TRY(hark_run_path(start->context, run, "origin.json", path));
  hark_text_append(&text, "{\n  \"format_version\": %d,\n  \"run\": ", HARK_RUN_FORMAT_VERSION);
  hark_json_append_string(&text, source->path);
  hark_text_append(&text, ",\n  \"checkpoint\": ");
  hark_json_append_string(&text, checkpoint);
  hark_text_append(&text, ",\n  \"model_sha256\": \"%s\"", sha256);
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

hark_status hark_warm_start_load(hark_context *context, const hark_config *config, const hark_run *run, hark_parameters *parameters,
                                 hark_warm_start_say *say_line, void *user) {
  hark_run source;
  hark_safetensors *file = NULL;
  hark_file_summary summary;
  char checkpoint[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  HARK_TRY(open_source(context, config, &source, checkpoint));
  HARK_TRY(hark_checkpoint_verify(context, &source, checkpoint, &summary));
  HARK_TRY(hark_checkpoint_check_vocabulary(context, &source, checkpoint));
  HARK_TRY(hark_checkpoint_path(context, &source, checkpoint, HARK_WEIGHTS_FILE, path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  warm_start start = {
      .context = context, .config = config, .parameters = parameters, .file = file, .say = say_line, .user = user, .first_refused = ""};
  for (int i = 0; i < FATE_COUNT; i++) start.names[i] = hark_text_empty(context);
  hark_status status = sort_tensors(&start);
  if (status == HARK_OK) {
    say_unused(&start, &config->train.allow_missing, "train.allow_missing", true);
    say_unused(&start, &config->train.allow_unexpected, "train.allow_unexpected", false);
    say(&start, "weights of %.200s: %" PRId64 " loaded, %" PRId64 " missing, %" PRId64 " of another shape, %" PRId64 " unexpected", path,
        start.counts[FATE_LOADED], start.counts[FATE_MISSING], start.counts[FATE_OTHER_SHAPE], start.counts[FATE_UNEXPECTED]);
    status = check(&start, path);
  }
  if (status == HARK_OK) status = load_tensors(&start);
  if (status == HARK_OK) status = write_origin(&start, run, &source, checkpoint, summary.sha256);
  for (int i = 0; i < FATE_COUNT; i++) hark_text_free(&start.names[i]);
  hark_safetensors_close(context, &file);
  return status;
}

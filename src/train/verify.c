/* verify.c - see verify.h. */
#define _POSIX_C_SOURCE 200809L /* nanosleep */
#include "train/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "io/checkpoint_files.h"
#include "io/safetensors.h"
#include "json/jsonl.h"
#include "tokenizers/example_vocabulary.h"
#include "tokenizers/tokenizer.h"
#include "train/config.h"
#include "train/data_place.h"
#include "train/moments.h"
#include "train/verify_model.h"

#define ORIGIN_LIMIT ((size_t)1 << 26)
#define MOMENT_NAME_BYTES (HARK_SAFETENSORS_NAME_BYTES + 32)
#define PAUSES 50 /* for a process that writes the run */

typedef struct verification {
  hark_verification all;
  hark_context *context;
  const hark_run *run;
  bool data_known, has_examples; /* from config.yaml, if that can be read */
  hark_config config;            /* its numbers, if data_known */
} verification;

/* Reports the result for `what`. */
static hark_status report(verification *v, const char *what, hark_status status, const char *note) {
  return hark_verification_report(&v->all, what, status, note);
}

/* ---- single files ---- */

hark_status hark_run_check_configuration(hark_context *context, const hark_run *run) {
  hark_config config;
  hark_options *options = NULL;
  HARK_TRY(hark_run_read_configuration(context, run, &config, &options));
  hark_options_destroy(context, &options);
  return HARK_OK;
}

static hark_status read_configuration(verification *v) {
  hark_options *options = NULL;
  HARK_TRY(hark_run_read_configuration(v->context, v->run, &v->config, &options));
  v->has_examples = hark_config_has_examples(&v->config);
  v->data_known = true;
  hark_options_destroy(v->context, &options);
  return HARK_OK;
}

static hark_status verify_configuration(verification *v) { return report(v, "config.yaml", read_configuration(v), NULL); }

/* Checks the task of labelled examples. */
static hark_status verify_task(verification *v, const char *path, const hark_text *text) {
  hark_example_vocabulary *vocabulary = NULL;
  const hark_status status = hark_example_vocabulary_parse(v->context, hark_text_get(text), text->length, &vocabulary);
  if (status == HARK_BAD_FILE) hark_fail_prefix(v->context, "%s: ", path);
  hark_example_vocabulary_destroy(v->context, &vocabulary);
  return status;
}

/* Reads a text's vocabulary, or the task of labelled examples: config.yaml or, without it, the file itself determines which. */
static hark_status read_vocabulary(verification *v, const char *path, const hark_text *text) {
  bool examples = v->has_examples;
  if (!v->data_known) HARK_TRY(hark_example_vocabulary_is(v->context, hark_text_get(text), text->length, &examples));
  if (examples) return verify_task(v, path, text);
  hark_tokenizer *tokenizer = NULL;
  const hark_status status = hark_tokenizer_load(v->context, path, &tokenizer);
  hark_tokenizer_destroy(v->context, &tokenizer);
  return status;
}

static hark_status verify_vocabulary(verification *v) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(v->context);
  HARK_TRY(hark_run_path(v->context, v->run, "vocabulary.json", path));
  hark_status status = hark_file_read_stored(v->context, path, HARK_VOCABULARY_MAX_BYTES, &text);
  if (status == HARK_OK) status = read_vocabulary(v, path, &text);
  hark_text_free(&text);
  return report(v, "vocabulary.json", status, NULL);
}

static hark_status verify_origin(verification *v) {
  char path[HARK_PATH_BYTES];
  json_t *object = NULL;
  HARK_TRY(hark_run_path(v->context, v->run, "origin.json", path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK;
  hark_status status = hark_json_read(v->context, path, ORIGIN_LIMIT, &object);
  if (status == HARK_OK && json_integer_value(json_object_get(object, "format_version")) != HARK_RUN_FORMAT_VERSION)
    status = hark_fail(v->context, HARK_BAD_FILE, "%s: format_version is not %d", path, HARK_RUN_FORMAT_VERSION);
  json_decref(object);
  return report(v, "origin.json", status, NULL);
}

/* Neither steps nor the count of tokens may decrease. */
typedef struct metrics_reading {
  hark_context *context;
  const char *path;
  int64_t step, tokens, lines;
} metrics_reading;

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  metrics_reading *reading = user;
  const json_t *step = json_object_get(object, "step"), *tokens = json_object_get(object, "tokens");
  if (!json_is_integer(step) || !json_is_integer(tokens))
    return hark_fail(reading->context, HARK_BAD_FILE, "%s:%" PRId64 ": a line without step or tokens", reading->path, line);
  if (json_integer_value(step) < reading->step || json_integer_value(tokens) < reading->tokens)
    return hark_fail(reading->context, HARK_BAD_FILE, "%s:%" PRId64 ": goes back to step %" PRId64 " from step %" PRId64, reading->path,
                     line, (int64_t)json_integer_value(step), reading->step);
  reading->step = json_integer_value(step);
  reading->tokens = json_integer_value(tokens);
  reading->lines = line;
  return HARK_OK;
}

static hark_status verify_data_place(verification *v) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(v->context, v->run, HARK_DATA_PLACE_NAME, path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK; /* of an earlier version */
  return report(v, HARK_DATA_PLACE_NAME, hark_data_place_check(v->context, v->run), NULL);
}

static hark_status verify_metrics(verification *v) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(v->context, v->run, "metrics.jsonl", path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK; /* the run never began */
  metrics_reading reading = {.context = v->context, .path = path};
  return report(v, "metrics.jsonl", hark_jsonl_read(v->context, path, take_line, &reading), NULL);
}

/* ---- checkpoints ---- */

static hark_status verify_numbers(verification *v, const hark_safetensors *file, const char *path) {
  for (int64_t i = 0; i < hark_safetensors_count(file); i++)
    if (hark_safetensors_tensor(file, i)->type != HARK_F32)
      return hark_fail(v->context, HARK_BAD_FILE, "%s: %s is not F32", path, hark_safetensors_tensor(file, i)->name);
  return hark_check_finite_tensors(v->context, file, path);
}

static bool has_moment(const hark_safetensors *optimizer, const char *prefix, const hark_stored_tensor *weight) {
  char name[MOMENT_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s%s", prefix, weight->name);
  return hark_safetensors_find(optimizer, name) != NULL;
}

/* Which moments a weight has: those of the configuration or, if that cannot be read, of the optimiser that the file names. */
static hark_moment_place moments_of(const verification *v, const hark_safetensors *optimizer, hark_optimiser named,
                                    const hark_stored_tensor *weight) {
  if (v->data_known)
    return (hark_moment_place){.first_too = hark_moments_have_first(&v->config),
                               .factored = hark_moments_are_factored(&v->config, weight->rank, weight->shape)};
  const bool adafactor = named == HARK_OPTIMISER_ADAFACTOR;
  const bool parts = has_moment(optimizer, HARK_ROW_MOMENT, weight) || has_moment(optimizer, HARK_COLUMN_MOMENT, weight);
  return (hark_moment_place){.first_too = !adafactor || has_moment(optimizer, HARK_FIRST_MOMENT, weight),
                             .factored = adafactor && weight->rank == 2 && parts};
}

static hark_status verify_moment(verification *v, const hark_safetensors *optimizer, const char *path, const hark_stored_tensor *weight,
                                 const hark_moment_tensor *expected) {
  char name[MOMENT_NAME_BYTES];
  (void)snprintf(name, sizeof name, "%s%s", expected->prefix, weight->name);
  const hark_stored_tensor *moment = hark_safetensors_find(optimizer, name);
  if (moment == NULL) return hark_fail(v->context, HARK_BAD_FILE, "%s: %s is missing", path, name);
  if (moment->rank == expected->rank && memcmp(moment->shape, expected->shape, (size_t)moment->rank * sizeof *moment->shape) == 0)
    return HARK_OK;
  return hark_fail(v->context, HARK_BAD_FILE, "%s: %s has another %s its weight", path, name,
                   expected->rank == weight->rank ? "shape than" : "length than the side of");
}

/* Checks that every weight has its moments, in its shape or those of its sides, and that there are no others. First moments are there for
 * all weights or for none. */
static hark_status verify_moments(verification *v, const hark_safetensors *model, const hark_safetensors *optimizer, const char *path) {
  const int64_t weights = hark_safetensors_count(model);
  hark_optimiser named;
  HARK_TRY(hark_moments_optimiser(v->context, path, optimizer, &named));
  if (v->data_known) HARK_TRY(hark_moments_check_optimiser(v->context, path, optimizer, &v->config));
  const bool first_too = weights > 0 && moments_of(v, optimizer, named, hark_safetensors_tensor(model, 0)).first_too;
  int64_t expected = 0;
  for (int64_t i = 0; i < weights; i++) {
    const hark_stored_tensor *weight = hark_safetensors_tensor(model, i);
    hark_moment_place place = moments_of(v, optimizer, named, weight);
    hark_moment_tensor tensors[HARK_MOMENT_TENSORS];
    place.first_too = first_too;
    const int count = hark_moment_tensors(&place, weight->rank, weight->shape, tensors);
    for (int m = 0; m < count; m++) HARK_TRY(verify_moment(v, optimizer, path, weight, &tensors[m]));
    expected += count;
  }
  if (hark_safetensors_count(optimizer) != expected)
    return hark_fail(v->context, HARK_BAD_FILE, "%s: holds %" PRId64 " tensors, expected the %" PRId64 " moments of %" PRId64 " weights",
                     path, hark_safetensors_count(optimizer), expected, weights);
  return HARK_OK;
}

static hark_status verify_tensors(verification *v, const char *name) {
  hark_context *context = v->context;
  char model_path[HARK_PATH_BYTES], optimizer_path[HARK_PATH_BYTES];
  hark_safetensors *model = NULL, *optimizer = NULL;
  HARK_TRY(hark_checkpoint_path(context, v->run, name, HARK_WEIGHTS_FILE, model_path));
  HARK_TRY(hark_checkpoint_path(context, v->run, name, HARK_OPTIMIZER_FILE, optimizer_path));
  HARK_TRY(hark_checkpoint_check_vocabulary(context, v->run, name));
  hark_status status = hark_safetensors_open(context, model_path, &model);
  if (status == HARK_OK) status = hark_safetensors_open(context, optimizer_path, &optimizer);
  if (status == HARK_OK) status = verify_moments(v, model, optimizer, optimizer_path);
  if (status == HARK_OK) status = verify_numbers(v, model, model_path);
  if (status == HARK_OK) status = verify_numbers(v, optimizer, optimizer_path);
  hark_safetensors_close(context, &optimizer);
  hark_safetensors_close(context, &model);
  return status;
}

/* It can be cut to its length at the checkpoint. */
hark_status hark_run_check_metrics(hark_context *context, const hark_run *run, const char *name, uint64_t recorded) {
  char path[HARK_PATH_BYTES];
  int file = -1;
  uint64_t size = 0;
  char end = '\n';
  HARK_TRY(hark_run_path(context, run, "metrics.jsonl", path));
  if (recorded == 0) return HARK_OK;
  HARK_TRY(hark_file_open(context, path, &file, &size));
  hark_status status = HARK_OK;
  if (size < recorded)
    status = hark_fail(context, HARK_BAD_FILE, "%s: has %" PRIu64 " bytes, %s was saved at %" PRIu64, path, size, name, recorded);
  if (status == HARK_OK) status = hark_file_read_at(context, file, path, &end, 1, recorded - 1);
  if (status == HARK_OK && end != '\n')
    status = hark_fail(context, HARK_BAD_FILE, "%s: byte %" PRIu64 ", where %s was saved, does not end a line", path, recorded, name);
  hark_file_close(&file);
  return status;
}

static hark_status verify_state(verification *v, const char *name) {
  hark_run_state state;
  HARK_TRY(hark_checkpoint_read_state(v->context, v->run, name, &state));
  return hark_run_check_metrics(v->context, v->run, name, state.metrics_bytes);
}

static hark_status check_checkpoint(verification *v, const char *name) {
  hark_status status = HARK_OK;
  if (hark_checkpoint_step(name) < 0) status = hark_fail(v->context, HARK_BAD_FILE, "%s: is not the name of a checkpoint (step-N)", name);
  if (status == HARK_OK) status = hark_checkpoint_verify(v->context, v->run, name, NULL);
  if (status == HARK_OK) status = verify_tensors(v, name);
  if (status == HARK_OK) status = verify_state(v, name);
  if (status == HARK_OK && v->data_known) status = hark_checkpoint_check_configuration(v->context, v->run, name);
  return status;
}

static hark_status verify_checkpoint(verification *v, const char *name) {
  char what[HARK_NAME_BYTES + 16];
  (void)snprintf(what, sizeof what, "checkpoints/%s", name);
  return report(v, what, check_checkpoint(v, name), NULL);
}

/* ---- a run that a process writes ---- */

static bool is_written(const verification *v) {
  char message[HARK_MESSAGE_BYTES];
  memcpy(message, v->context->message, sizeof message);
  const bool busy = hark_folder_check_unlocked(v->context, v->run->path) == HARK_BUSY;
  memcpy(v->context->message, message, sizeof message);
  return busy;
}

static bool is_there(const verification *v, const char *name) {
  char path[HARK_PATH_BYTES];
  return hark_checkpoint_path(v->context, v->run, name, NULL, path) != HARK_OK || hark_path_kind_of(path) != HARK_PATH_NONE;
}

static void pause_briefly(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }

/* Whether the process that writes the run has removed a checkpoint since it was listed. An earlier hark removes one file after another. */
static bool was_removed(const verification *v, const char *name) {
  if (!is_there(v, name)) return true;
  for (int i = 0; i < PAUSES && is_written(v); i++) {
    pause_briefly();
    if (!is_there(v, name)) return true;
  }
  return false;
}

static hark_status verify_listed(verification *v, const char *name) {
  char what[HARK_NAME_BYTES + 16];
  (void)snprintf(what, sizeof what, "checkpoints/%s", name);
  if (name[0] == '.')
    return report(v, what, HARK_OK,
                  is_written(v) ? "a process writes the run, and saves here" : "left by an interrupted save; the next save removes it");
  const hark_status status = check_checkpoint(v, name);
  return status != HARK_OK && was_removed(v, name) ? HARK_OK : report(v, what, status, NULL);
}

static hark_status verify_checkpoints(verification *v) {
  char path[HARK_PATH_BYTES];
  hark_names names;
  HARK_TRY(hark_run_path(v->context, v->run, HARK_CHECKPOINTS_FOLDER, path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK;
  HARK_TRY(hark_folder_list(v->context, path, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) status = verify_listed(v, names.items[i]);
  hark_names_free(v->context, &names);
  return status;
}

/* A pointer names an existing checkpoint. */
static hark_status check_pointer(const verification *v, const char *which) {
  char name[HARK_NAME_BYTES];
  HARK_TRY(hark_checkpoint_find(v->context, v->run, which, name));
  if (is_there(v, name)) return HARK_OK;
  return hark_fail(v->context, HARK_BAD_FILE, "%s: names %s, and there is no such checkpoint", which, name);
}

/* A missing pointer is accepted when there is nothing to name. One that a process moves at this moment is read again. */
static hark_status verify_pointer(verification *v, const char *which) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(v->context, v->run, which, path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK;
  hark_status status = check_pointer(v, which);
  for (int i = 0; i < PAUSES && status != HARK_OK && is_written(v); i++) {
    pause_briefly();
    status = check_pointer(v, which);
  }
  return report(v, which, status, NULL);
}

hark_status hark_run_verify(hark_context *context, const hark_run *run, const char *checkpoint, hark_finding_visitor *visit, void *user,
                            int64_t *problems) {
  verification v = {.all = {.context = context, .visit = visit, .user = user}, .context = context, .run = run};
  *problems = 0;
  hark_status status = HARK_OK;
  if (checkpoint[0] != '\0') {
    (void)read_configuration(&v);
    status = verify_checkpoint(&v, checkpoint);
  } else {
    status = verify_configuration(&v);
    if (status == HARK_OK) status = verify_vocabulary(&v);
    if (status == HARK_OK) status = verify_origin(&v);
    if (status == HARK_OK) status = verify_data_place(&v);
    if (status == HARK_OK) status = verify_metrics(&v);
    if (status == HARK_OK) status = verify_checkpoints(&v);
    if (status == HARK_OK) status = verify_pointer(&v, "last");
    if (status == HARK_OK) status = verify_pointer(&v, "best");
  }
  *problems = v.all.problems;
  return status;
}

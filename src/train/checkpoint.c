/* checkpoint.c - writing and reading checkpoints.
 *
 * A checkpoint is written into a folder whose name begins with a dot, flushed, and renamed. Only then are the pointers changed and older
 * checkpoints deleted. So the pointers name a complete checkpoint at any time. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/checkpoint_files.h"
#include "io/safetensors.h"
#include "json/json.h"
#include "models/model.h"
#include "train/moment_transfer.h"
#include "train/run.h"

#define STATE_LIMIT ((size_t)1 << 20)
#define MOMENT_NAME_BYTES (HARK_PARAMETER_NAME_BYTES + 16)

enum { FILE_MODEL, FILE_OPTIMIZER, FILE_STATE, FILE_COUNT };
static const char *const file_names[FILE_COUNT] = {HARK_WEIGHTS_FILE, HARK_OPTIMIZER_FILE, "state.json"};

static hark_status path_in(hark_context *context, const hark_run *run, const char *checkpoint, const char *file, char *out) {
  char folder[HARK_PATH_BYTES], inner[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_path_join(context, folder, checkpoint, inner));
  if (file == NULL) {
    memcpy(out, inner, sizeof inner);
    return HARK_OK;
  }
  return hark_path_join(context, inner, file, out);
}

/* A moment of a parameter: where it can be read and written. */
typedef struct moment_source {
  hark_tensor_source source;
  const hark_engine *engine;
  hark_moment which;
  int64_t first; /* in the flat moments */
} moment_source;

static hark_status read_moment(hark_context *context, const hark_tensor_source *source, int64_t at, int64_t count, void *out) {
  const moment_source *const moment = (const moment_source *)source;
  return hark_moments_read(context, moment->engine, moment->which, moment->first + at, count, out);
}

/* Writes the weights with the model's description and the run's vocabulary, if there is one. */
static hark_status write_model(hark_context *context, const hark_run *run, const char *path, const hark_network *network,
                               hark_file_summary *summary) {
  hark_text vocabulary = hark_text_empty(context);
  hark_status status = hark_run_read_vocabulary(context, run, &vocabulary);
  const hark_metadata_entry words = {HARK_VOCABULARY_KEY, hark_text_get(&vocabulary)};
  if (status == HARK_OK) status = hark_model_write(context, path, network, vocabulary.length > 0 ? &words : NULL, HARK_NONE, summary);
  hark_text_free(&vocabulary);
  return status;
}

/* Names, shapes and places of the moments of every parameter. */
typedef struct moment_list {
  hark_named_tensor *tensors; /* [count], with room for HARK_MOMENT_TENSORS of each parameter */
  hark_tensor *shapes;
  moment_source *sources;
  char (*names)[MOMENT_NAME_BYTES];
  int64_t count;
  void *memory;
  size_t bytes;
} moment_list;

static hark_status list_moment(hark_context *context, const hark_engine *engine, const char *weight, const hark_moment_tensor *moment,
                               moment_list *list) {
  const int64_t i = list->count++;
  (void)snprintf(list->names[i], MOMENT_NAME_BYTES, "%s%s", moment->prefix, weight);
  HARK_TRY(hark_tensor_describe(context, engine->network->parameters.type, moment->rank, moment->shape, &list->shapes[i]));
  list->sources[i] = (moment_source){.source = {.read = read_moment}, .engine = engine, .which = moment->which, .first = moment->first};
  list->tensors[i] = (hark_named_tensor){.name = list->names[i], .tensor = &list->shapes[i], .source = &list->sources[i].source};
  return HARK_OK;
}

static hark_status fill_list(hark_context *context, const hark_engine *engine, moment_list *list) {
  const hark_parameters *parameters = &engine->network->parameters;
  int64_t end = 0;
  for (int32_t p = 0; p < parameters->count; p++) {
    const hark_parameter *const parameter = &parameters->list[p];
    const hark_moment_place place = hark_moment_place_next(engine->config, parameter, &end);
    hark_moment_tensor tensors[HARK_MOMENT_TENSORS];
    const int count = hark_moment_tensors(&place, parameter->spec.rank, parameter->spec.shape, tensors);
    for (int i = 0; i < count; i++) HARK_TRY(list_moment(context, engine, parameter->name, &tensors[i], list));
  }
  return HARK_OK;
}

static void forget_list(hark_context *context, moment_list *list) { hark_release(context, list->memory, list->bytes); }

static hark_status list_moments(hark_context *context, const hark_engine *engine, moment_list *out) {
  const size_t most = HARK_MOMENT_TENSORS * (size_t)engine->network->parameters.count;
  out->count = 0;
  out->bytes = most * (sizeof(hark_named_tensor) + sizeof(hark_tensor) + sizeof(moment_source) + MOMENT_NAME_BYTES);
  HARK_TRY(hark_allocate(context, out->bytes, &out->memory));
  out->tensors = out->memory;
  out->shapes = (hark_tensor *)(out->tensors + most);
  out->sources = (moment_source *)(out->shapes + most);
  out->names = (char(*)[MOMENT_NAME_BYTES])(out->sources + most);
  const hark_status status = fill_list(context, engine, out);
  if (status != HARK_OK) forget_list(context, out);
  return status;
}

/* The file of AdamW does not name it, as files of earlier versions. */
static hark_status write_optimizer(hark_context *context, const char *path, const hark_engine *engine, hark_file_summary *summary) {
  moment_list list;
  HARK_TRY(list_moments(context, engine, &list));
  const hark_metadata_entry metadata[] = {{"format", "hark"}, {"format_version", "1"}, {HARK_OPTIMISER_KEY, HARK_OPTIMISER_FACTORED}};
  const int entries = engine->config->train.optimiser == HARK_OPTIMISER_ADAFACTOR ? 3 : 2;
  const hark_status status = hark_safetensors_write(context, path, list.tensors, list.count, metadata, entries, summary);
  forget_list(context, &list);
  return status;
}

/* One row per number of the state: its name in state.json and its place in the struct. */
typedef struct state_field {
  const char *name;
  size_t offset;
  bool whole;    /* int64_t or uint64_t; else double */
  bool optional; /* missing in the first versions of the file: then 0 */
} state_field;

#define WHOLE(field)                                                                                                                       \
  { #field, offsetof(hark_run_state, field), true, false }
#define REAL(field)                                                                                                                        \
  { #field, offsetof(hark_run_state, field), false, false }
#define LATER(field, whole)                                                                                                                \
  { #field, offsetof(hark_run_state, field), whole, true }
#define PLAN(field, whole)                                                                                                                 \
  { "plan_" #field, offsetof(hark_run_state, plan.field), whole, true }
static const state_field state_fields[] = {WHOLE(step),
                                           WHOLE(updates),
                                           WHOLE(samples),
                                           REAL(loss_sum),
                                           WHOLE(loss_count),
                                           REAL(best_loss),
                                           WHOLE(best_step),
                                           WHOLE(evaluated_step),
                                           WHOLE(evaluations_without_improvement),
                                           WHOLE(bad_steps),
                                           REAL(seconds),
                                           WHOLE(metrics_bytes),
                                           LATER(tokens, true),
                                           LATER(line_targets, true),
                                           {"line_right", offsetof(hark_run_state, line_correct), true, true},
                                           LATER(operations, false),
                                           LATER(gradient_norm, false),
                                           LATER(mended_pivots, true),
                                           LATER(objective_sum, false),
                                           LATER(smoothing_sum, false),
                                           LATER(ratio_sum, false),
                                           LATER(ponder_sum, false),
                                           LATER(z_sum, false),
                                           LATER(empty_steps, true),
                                           LATER(rate, false),
                                           PLAN(steps, true),
                                           PLAN(warmup, true),
                                           PLAN(from, true),
                                           PLAN(rate, false),
                                           PLAN(turned, true),
                                           PLAN(remaining, false),
                                           PLAN(learning_rate, false),
                                           PLAN(bent, true),
                                           PLAN(bent_at, false),
                                           PLAN(drawn, true)};
#undef PLAN
#undef LATER
#undef WHOLE
#undef REAL
#define STATE_FIELDS (sizeof state_fields / sizeof *state_fields)

static hark_status write_text(hark_context *context, const char *path, hark_text *text, hark_file_summary *summary) {
  hark_writer writer = {0};
  hark_status status = text->status;
  if (status == HARK_OK) status = hark_writer_open(context, &writer, path);
  if (status == HARK_OK) status = hark_writer_append(context, &writer, hark_text_get(text), text->length);
  if (status == HARK_OK)
    status = hark_writer_commit(context, &writer, summary);
  else
    hark_writer_discard(&writer);
  hark_text_free(text);
  return status;
}

static hark_status write_state(hark_context *context, const char *path, const hark_run_state *state, hark_file_summary *summary) {
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "{\n  \"format_version\": %d,\n", HARK_RUN_FORMAT_VERSION);
  for (size_t i = 0; i < STATE_FIELDS; i++) {
    const char *field = (const char *)state + state_fields[i].offset;
    hark_text_append(&text, "  \"%s\": ", state_fields[i].name);
    if (state_fields[i].whole) {
      int64_t whole;
      memcpy(&whole, field, sizeof whole);
      hark_text_append(&text, "%" PRId64, whole);
    } else {
      double real;
      memcpy(&real, field, sizeof real);
      hark_json_append_number(&text, real);
    }
    hark_text_append(&text, ",\n");
  }
  hark_text_append(&text, "  \"corpus_checksum\": \"%016" PRIx64 "\"\n}\n", state->corpus_checksum);
  return write_text(context, path, &text, summary);
}

static hark_status write_manifest(hark_context *context, const char *path, const hark_file_summary summaries[FILE_COUNT]) {
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "{\n  \"format_version\": %d,\n  \"files\": [\n", HARK_RUN_FORMAT_VERSION);
  for (int i = 0; i < FILE_COUNT; i++)
    hark_text_append(&text, "    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"sha256\": \"%s\"}%s\n", file_names[i], summaries[i].bytes,
                     summaries[i].sha256, i + 1 < FILE_COUNT ? "," : "");
  hark_text_append(&text, "  ]\n}\n");
  return write_text(context, path, &text, NULL);
}

static hark_status write_pointer(hark_context *context, const hark_run *run, const char *which, const char *name) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_run_path(context, run, which, path));
  hark_text_append(&text, "%s\n", name);
  return write_text(context, path, &text, NULL);
}

static bool is_damage(hark_status status) { return status == HARK_BAD_FILE || status == HARK_NOT_FOUND; }

/* Whether clean() deletes this name from the folder of checkpoints. */
static bool is_superfluous(const hark_names *names, const char *name, int64_t saved, int64_t keep, const char *best) {
  const int64_t step = hark_checkpoint_step(name);
  int64_t newer = 0;
  if (name[0] == '.') return true; /* incomplete */
  if (step < 0) return false;      /* not a checkpoint */
  if (step > saved) return true;
  if (strcmp(name, best) == 0) return false;
  for (int64_t i = 0; i < names->count; i++)
    newer += hark_checkpoint_step(names->items[i]) > step && hark_checkpoint_step(names->items[i]) <= saved;
  return newer >= keep;
}

static const char replaced[] = ".replaced"; /* a checkpoint that is being removed */

/* Renames a checkpoint to `replaced`, so that a process that is killed while it removes the files leaves no checkpoint of which a part is
 * missing. Where the file system cannot rename it, the checkpoint is removed. */
static hark_status set_aside(hark_context *context, const hark_run *run, const char *path) {
  char old[HARK_PATH_BYTES];
  bool renamed;
  HARK_TRY(path_in(context, run, replaced, NULL, old));
  HARK_TRY(hark_path_remove(context, old));
  HARK_TRY(hark_path_rename_if_possible(context, path, old, &renamed));
  return renamed ? HARK_OK : hark_path_remove(context, path);
}

/* Removes a name in the folder of checkpoints. */
static hark_status remove_name(hark_context *context, const hark_run *run, const char *name) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(path_in(context, run, name, NULL, path));
  if (name[0] != '.') {
    HARK_TRY(set_aside(context, run, path));
    HARK_TRY(path_in(context, run, replaced, NULL, path));
  }
  return hark_path_remove(context, path);
}

static hark_status clean(hark_context *context, const hark_run *run, int64_t saved, int64_t keep) {
  char folder[HARK_PATH_BYTES], best[HARK_NAME_BYTES] = "";
  hark_names names;
  HARK_TRY(hark_run_path(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  const hark_status found = hark_checkpoint_find(context, run, "best", best);
  if (found != HARK_OK && !is_damage(found)) return found;
  HARK_TRY(hark_folder_list(context, folder, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++)
    if (is_superfluous(&names, names.items[i], saved, keep, best)) status = remove_name(context, run, names.items[i]);
  hark_names_free(context, &names);
  return status;
}

/* Renames the finished folder to its final name. A folder of the same name, left from before the run was resumed at an earlier step, is
 * set aside first. */
static hark_status put_in_place(hark_context *context, const hark_run *run, const char *partial, const char *name) {
  char from[HARK_PATH_BYTES], to[HARK_PATH_BYTES];
  HARK_TRY(path_in(context, run, partial, NULL, from));
  HARK_TRY(path_in(context, run, name, NULL, to));
  HARK_TRY(hark_folder_sync(context, from));
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, to, &kind));
  if (kind != HARK_PATH_NONE) HARK_TRY(set_aside(context, run, to));
  return hark_path_rename(context, from, to);
}

static const char partial[] = ".partial";

/* Everything until the checkpoint has its final name. */
static hark_status write_checkpoint(hark_context *context, const hark_run *run, const hark_engine *engine, const hark_run_state *state,
                                    const char *name) {
  char path[HARK_PATH_BYTES];
  hark_file_summary summaries[FILE_COUNT];
  HARK_TRY(path_in(context, run, partial, NULL, path));
  HARK_TRY(hark_path_remove(context, path));
  HARK_TRY(hark_folder_make(context, path));
  HARK_TRY(path_in(context, run, partial, file_names[FILE_MODEL], path));
  HARK_TRY(write_model(context, run, path, engine->network, &summaries[FILE_MODEL]));
  HARK_TRY(path_in(context, run, partial, file_names[FILE_OPTIMIZER], path));
  HARK_TRY(write_optimizer(context, path, engine, &summaries[FILE_OPTIMIZER]));
  HARK_TRY(path_in(context, run, partial, file_names[FILE_STATE], path));
  HARK_TRY(write_state(context, path, state, &summaries[FILE_STATE]));
  HARK_TRY(path_in(context, run, partial, HARK_MANIFEST_FILE, path));
  HARK_TRY(write_manifest(context, path, summaries));
  return put_in_place(context, run, partial, name);
}

/* Removes an unfinished checkpoint, which may have filled the disk. Keeps the failure's message. */
static void remove_partial(hark_context *context, const hark_run *run) {
  char message[HARK_MESSAGE_BYTES], path[HARK_PATH_BYTES];
  memcpy(message, context->message, sizeof message);
  hark_status status = path_in(context, run, partial, NULL, path);
  if (status == HARK_OK) status = hark_path_remove(context, path);
  (void)status; /* the next save tries again */
  memcpy(context->message, message, sizeof message);
}

hark_status hark_checkpoint_save(hark_context *context, const hark_run *run, const hark_engine *engine, const hark_run_state *state,
                                 int64_t keep) {
  char name[HARK_NAME_BYTES];
  (void)snprintf(name, sizeof name, "step-%" PRId64, state->step);
  const hark_status written = write_checkpoint(context, run, engine, state, name);
  if (written != HARK_OK) {
    remove_partial(context, run);
    return written;
  }
  return hark_checkpoint_settle(context, run, state, keep);
}

/* `best` may name a checkpoint of a later step, left from before the run was resumed at an earlier one. */
static hark_status forget_best(hark_context *context, const hark_run *run, const hark_run_state *state) {
  char now[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  const hark_status found = hark_checkpoint_find(context, run, "best", now);
  if (is_damage(found)) return HARK_OK;
  HARK_TRY(found);
  if (hark_checkpoint_step(now) <= state->step) return HARK_OK;
  HARK_TRY(hark_run_path(context, run, "best", path));
  return hark_file_remove(context, path);
}

/* Writes a pointer file unless it already names the checkpoint. */
static hark_status point(hark_context *context, const hark_run *run, const char *which, const char *name) {
  char now[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  hark_path_kind kind;
  HARK_TRY(hark_run_path(context, run, which, path));
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind != HARK_PATH_NONE && kind != HARK_PATH_FILE) /* writing to a pipe would wait for a reader */
    return hark_fail(context, HARK_BAD_FILE, "%s: is not a regular file", path);
  const hark_status found = hark_checkpoint_find(context, run, which, now);
  if (found != HARK_OK && !is_damage(found)) return found;
  return found == HARK_OK && strcmp(name, now) == 0 ? HARK_OK : write_pointer(context, run, which, name);
}

hark_status hark_checkpoint_settle(hark_context *context, const hark_run *run, const hark_run_state *state, int64_t keep) {
  char name[HARK_NAME_BYTES];
  (void)snprintf(name, sizeof name, "step-%" PRId64, state->step);
  HARK_TRY(point(context, run, "last", name));
  HARK_TRY(hark_checkpoint_point_best(context, run, state));
  return clean(context, run, state->step, keep);
}

hark_status hark_checkpoint_point_best(hark_context *context, const hark_run *run, const hark_run_state *state) {
  char name[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  hark_path_kind kind = HARK_PATH_NONE;
  (void)snprintf(name, sizeof name, "step-%" PRId64, state->best_step);
  HARK_TRY(path_in(context, run, name, NULL, path));
  if (state->best_step > 0) HARK_TRY(hark_path_examine(context, path, &kind));
  return kind == HARK_PATH_FOLDER ? point(context, run, "best", name) : forget_best(context, run, state);
}

hark_status hark_checkpoint_find(hark_context *context, const hark_run *run, const char *which, char name[HARK_NAME_BYTES]) {
  return hark_checkpoint_pointer_read(context, run->path, which, name);
}

hark_status hark_checkpoint_choose(hark_context *context, const hark_run *run, const char *requested, char name[HARK_NAME_BYTES]) {
  return hark_checkpoint_pointer_choose(context, run->path, requested, name);
}

hark_status hark_checkpoint_path(hark_context *context, const hark_run *run, const char *name, const char *file, char *out) {
  return path_in(context, run, name, file, out);
}

static hark_status check_version(hark_context *context, const char *path, const json_t *object) {
  const json_t *version = json_object_get(object, "format_version");
  if (json_is_integer(version) && json_integer_value(version) == HARK_RUN_FORMAT_VERSION) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: format_version is not %d", path, HARK_RUN_FORMAT_VERSION);
}

hark_status hark_checkpoint_verify(hark_context *context, const hark_run *run, const char *name, hark_file_summary *weights) {
  char folder[HARK_PATH_BYTES];
  hark_run_state state;
  HARK_TRY(path_in(context, run, name, NULL, folder));
  for (int i = 0; i < FILE_COUNT; i++) HARK_TRY(hark_manifest_check(context, folder, file_names[i], i == FILE_MODEL ? weights : NULL));
  return hark_checkpoint_read_state(context, run, name, &state);
}

/* The newest undamaged checkpoint; HARK_NOT_FOUND when there are no folders of checkpoints. */
static hark_status newest_whole(hark_context *context, const hark_run *run, char name[HARK_NAME_BYTES]) {
  char folder[HARK_PATH_BYTES];
  hark_names names;
  HARK_TRY(hark_run_path(context, run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_folder_list(context, folder, &names));
  hark_status status = hark_fail(context, HARK_NOT_FOUND, "%s: holds no checkpoint", folder);
  for (int64_t below = INT64_MAX; is_damage(status);) {
    const char *newest = NULL;
    int64_t step = -1;
    for (int64_t i = 0; i < names.count; i++) {
      const int64_t at = hark_checkpoint_step(names.items[i]);
      if (at < below && at > step) {
        step = at;
        newest = names.items[i];
      }
    }
    if (newest == NULL) break;
    below = step;
    status = hark_checkpoint_verify(context, run, newest, NULL);
    if (status == HARK_NOT_FOUND) status = HARK_BAD_FILE; /* there is a checkpoint, and it lacks a file */
    if (status == HARK_OK) (void)snprintf(name, HARK_NAME_BYTES, "%s", newest);
  }
  hark_names_free(context, &names);
  return status;
}

/* The checkpoint that `last` names, if it is undamaged; else `damaged` is its name, or "last" if that file itself is damaged. */
static hark_status last_whole(hark_context *context, const hark_run *run, char name[HARK_NAME_BYTES], char damaged[HARK_NAME_BYTES]) {
  const hark_status found = hark_checkpoint_find(context, run, "last", name);
  if (found == HARK_BAD_FILE) (void)snprintf(damaged, HARK_NAME_BYTES, "last");
  HARK_TRY(found);
  const hark_status whole = hark_checkpoint_verify(context, run, name, NULL);
  if (is_damage(whole)) (void)snprintf(damaged, HARK_NAME_BYTES, "%s", name);
  return whole;
}

hark_status hark_checkpoint_newest(hark_context *context, const hark_run *run, char name[HARK_NAME_BYTES], char damaged[HARK_NAME_BYTES]) {
  damaged[0] = '\0';
  const hark_status last = last_whole(context, run, name, damaged);
  if (!is_damage(last)) return last;
  char why[HARK_MESSAGE_BYTES];
  memcpy(why, context->message, sizeof why);
  const hark_status newest = newest_whole(context, run, name);
  if (damaged[0] == '\0') return newest; /* there is no `last` yet */
  if (newest != HARK_OK && newest != HARK_NOT_FOUND) return newest;
  memcpy(context->message, why, sizeof why);
  return newest == HARK_OK ? HARK_OK : HARK_BAD_FILE; /* there was a checkpoint: the run must not start again */
}

/* A checkpoint that was renamed: its order among the others, which are kept by their names, would be wrong. */
static hark_status check_steps(hark_context *context, const char *path, const char *name, const hark_run_state *state) {
  const int64_t step = hark_checkpoint_step(name);
  if (step >= 0 && state->step != step)
    return hark_fail(context, HARK_BAD_FILE, "%s: is the state of step %" PRId64 ", expected that of %s", path, state->step, name);
  if (state->updates > state->step || state->best_step > state->step || state->evaluated_step > state->step)
    return hark_fail(context, HARK_BAD_FILE, "%s: names steps after its own, %" PRId64, path, state->step);
  return HARK_OK;
}

hark_status hark_checkpoint_read_state(hark_context *context, const hark_run *run, const char *name, hark_run_state *state) {
  char path[HARK_PATH_BYTES];
  json_t *object = NULL;
  HARK_TRY(path_in(context, run, name, file_names[FILE_STATE], path));
  HARK_TRY(hark_json_read(context, path, STATE_LIMIT, &object));
  hark_status status = check_version(context, path, object);
  for (size_t i = 0; i < STATE_FIELDS && status == HARK_OK; i++) {
    char *field = (char *)state + state_fields[i].offset;
    const json_t *value = json_object_get(object, state_fields[i].name);
    if (value == NULL && state_fields[i].optional) {
      memset(field, 0, sizeof(double));
      continue;
    }
    if (state_fields[i].whole) {
      const int64_t whole = json_integer_value(value);
      if (!json_is_integer(value) || whole < 0)
        status = hark_fail(context, HARK_BAD_FILE, "%s: %s is not a whole number of at least 0", path, state_fields[i].name);
      memcpy(field, &whole, sizeof whole);
    } else {
      const double real = json_is_null(value) ? INFINITY : json_number_value(value);
      if (!json_is_number(value) && !json_is_null(value))
        status = hark_fail(context, HARK_BAD_FILE, "%s: %s is not a number", path, state_fields[i].name);
      memcpy(field, &real, sizeof real);
    }
  }
  const char *checksum = json_string_value(json_object_get(object, "corpus_checksum"));
  if (status == HARK_OK && (checksum == NULL || strlen(checksum) != 16 || strspn(checksum, "0123456789abcdef") != 16))
    status = hark_fail(context, HARK_BAD_FILE, "%s: corpus_checksum is not a text of 16 hexadecimal digits", path);
  if (status == HARK_OK) state->corpus_checksum = strtoull(checksum, NULL, 16);
  json_decref(object);
  return status == HARK_OK ? check_steps(context, path, name, state) : status;
}

hark_status hark_checkpoint_check_vocabulary(hark_context *context, const hark_run *run, const char *name) {
  char path[HARK_PATH_BYTES], vocabulary_path[HARK_PATH_BYTES];
  hark_safetensors *file = NULL;
  hark_text vocabulary = hark_text_empty(context);
  HARK_TRY(path_in(context, run, name, file_names[FILE_MODEL], path));
  HARK_TRY(hark_run_path(context, run, "vocabulary.json", vocabulary_path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  hark_status status = hark_run_read_vocabulary(context, run, &vocabulary);
  const char *const trained = hark_safetensors_metadata(file, HARK_VOCABULARY_KEY);
  if (status == HARK_OK && trained != NULL && strcmp(trained, hark_text_get(&vocabulary)) != 0)
    status = hark_fail(context, HARK_BAD_FILE, "%s: is %s the vocabulary that the weights of %s were trained with", vocabulary_path,
                       vocabulary.length > 0 ? "not" : "missing,", name);
  hark_text_free(&vocabulary);
  hark_safetensors_close(context, &file);
  return status;
}

hark_status hark_checkpoint_load_weights(hark_context *context, const hark_run *run, const char *name, hark_parameters *parameters) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file = NULL;
  HARK_TRY(hark_checkpoint_check_vocabulary(context, run, name));
  HARK_TRY(path_in(context, run, name, file_names[FILE_MODEL], path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  hark_status status = hark_model_check_weights(context, path, file, parameters);
  if (status == HARK_OK) status = hark_model_read_weights(context, path, file, parameters);
  hark_safetensors_close(context, &file);
  return status;
}

#define STAGED ((int64_t)1 << 20) /* numbers that are read at once */

/* Reads a moment of a parameter, piece by piece through `stage`. */
static hark_status load_moment(hark_context *context, const hark_safetensors *file, const hark_named_tensor *named, float *stage) {
  const moment_source *const moment = (const moment_source *)named->source;
  const int64_t total = hark_tensor_count(named->tensor);
  HARK_TRY(hark_safetensors_expect(context, file, named->name, named->tensor));
  const hark_stored_tensor *const stored = hark_safetensors_find(file, named->name);
  for (int64_t at = 0; at < total; at += STAGED) {
    const int64_t extent = hark_min(STAGED, total - at);
    HARK_TRY(hark_safetensors_read_f32(context, file, stored, at, extent, stage));
    HARK_TRY(hark_moments_write(context, moment->engine, moment->which, moment->first + at, extent, stage));
  }
  return HARK_OK;
}

static hark_status load_moments(hark_context *context, const hark_run *run, const char *name, const hark_engine *engine) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file = NULL;
  moment_list list;
  void *stage = NULL;
  HARK_TRY(path_in(context, run, name, file_names[FILE_OPTIMIZER], path));
  HARK_TRY(list_moments(context, engine, &list));
  hark_status status = hark_safetensors_open(context, path, &file);
  if (status == HARK_OK) status = hark_allocate(context, (size_t)STAGED * sizeof(float), &stage);
  const int64_t count = list.count;
  if (status == HARK_OK) status = hark_moments_check_optimiser(context, path, file, engine->config);
  for (int64_t i = 0; i < count && status == HARK_OK; i++) status = load_moment(context, file, &list.tensors[i], stage);
  if (status == HARK_OK && hark_safetensors_count(file) != count)
    status = hark_fail(context, HARK_BAD_FILE, "%s: holds %" PRId64 " tensors, the model's moments are %" PRId64, path,
                       hark_safetensors_count(file), count);
  hark_safetensors_close(context, &file);
  hark_release(context, stage, stage != NULL ? (size_t)STAGED * sizeof(float) : 0);
  forget_list(context, &list);
  return status;
}

hark_status hark_checkpoint_load(hark_context *context, const hark_run *run, const char *name, hark_engine *engine, hark_run_state *state) {
  HARK_TRY(hark_checkpoint_load_weights(context, run, name, &engine->network->parameters));
  if (!engine->training) return HARK_OK;
  HARK_TRY(load_moments(context, run, name, engine));
  return state != NULL ? hark_checkpoint_read_state(context, run, name, state) : HARK_OK;
}

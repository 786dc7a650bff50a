/* run_line.c - see run_line.h. */
#include "cli/run_line.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config/yaml.h"
#include "io/checkpoint_files.h"
#include "json/json.h"
#include "train/verify.h"

#define TAIL_BYTES ((uint64_t)4096) /* of metrics.jsonl that are read: its last lines; up to LONGEST_TAIL if these have no loss */
#define LONGEST_TAIL ((uint64_t)1 << 20)
#define WORD_BYTES HARK_RUN_WORD_BYTES

static const char *const state_words[HARK_RUN_STATES] = {"empty", "running", "stopped", "done", "damaged"};

const char *hark_run_state_word(hark_run_line_state state) { return state_words[state]; }

/* ---- reading a run ---- */

/* Copies the value of `key` in `section` of a configuration that hark wrote: two blanks for each level. */
static void take_word(const char *yaml, const char *section, const char *key, char out[WORD_BYTES]) {
  char line[64];
  (void)snprintf(line, sizeof line, "\n%s:\n", section);
  const char *at = strstr(yaml, line);
  const int depth = (int)(strspn(section, " ") + 2);
  out[0] = '\0';
  if (at == NULL) return;
  (void)snprintf(line, sizeof line, "\n%*s%s: ", depth, "", key);
  const char *const found = strstr(at + 1, line);
  if (found == NULL) return;
  const char *const value = found + strlen(line);
  (void)snprintf(out, WORD_BYTES, "%.*s", (int)hark_min((int64_t)strcspn(value, "\n"), WORD_BYTES - 1), value);
}

static hark_status read_configuration(hark_context *context, const char *run, hark_run_line *line) {
  char path[HARK_PATH_BYTES];
  hark_text file = hark_text_empty(context), yaml = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, run, "config.yaml", path));
  hark_status status = hark_file_read_stored(context, path, HARK_YAML_BYTES, &file);
  hark_text_append(&yaml, "\n%s", status == HARK_OK ? hark_text_get(&file) : "");
  if (status == HARK_OK) status = yaml.status;
  if (status == HARK_OK) {
    const char *const text = hark_text_get(&yaml);
    take_word(text, "model", "architecture", line->architecture);
    take_word(text, "model", "layers", line->layers);
    take_word(text, "model", "width", line->width);
    take_word(text, "model", "context", line->context);
    take_word(text, "model", "positions", line->positions);
    take_word(text, "  attention", "structure", line->structure);
  }
  hark_text_free(&file);
  hark_text_free(&yaml);
  return status;
}

static void take_number(const json_t *object, const char *name, double *out) {
  const json_t *const value = json_object_get(object, name);
  if (json_is_number(value)) *out = json_number_value(value);
}

static void take_step(const json_t *object, int64_t *out) {
  const json_t *const value = json_object_get(object, "step");
  if (json_is_integer(value) && json_integer_value(value) >= 0) *out = json_integer_value(value);
}

/* The numbers of the last complete lines, all of which are JSON. hark verify examines the others too. */
static hark_status take_tail(hark_context *context, const char *path, const char *tail, size_t bytes, hark_run_line *line) {
  for (const char *at = tail, *end; (end = memchr(at, '\n', bytes - (size_t)(at - tail))) != NULL; at = end + 1) {
    json_t *object;
    if (at == tail) continue; /* perhaps not the beginning of a line */
    const hark_status status = *at == '{' ? hark_json_parse(context, path, at, (size_t)(end - at), &object) : HARK_BAD_FILE;
    if (status == HARK_BAD_FILE) return hark_fail(context, status, "%s: a line at its end is no JSON", path);
    HARK_TRY(status);
    take_step(object, &line->step);
    take_number(object, "train/loss", &line->training);
    take_number(object, "val/loss", &line->validation);
    take_number(object, "time", &line->seconds);
    json_decref(object);
  }
  return HARK_OK;
}

static hark_status read_tail(hark_context *context, const char *path, int descriptor, uint64_t bytes, uint64_t part, hark_run_line *line) {
  hark_text tail = hark_text_empty(context);
  hark_text_resize(&tail, (size_t)part + 1);
  hark_status status = tail.status;
  if (status == HARK_OK) status = hark_file_read_at(context, descriptor, path, tail.data + 1, (size_t)part, bytes - part);
  if (status == HARK_OK) {
    tail.data[0] = '\n'; /* before the first line */
    const size_t cut = part == bytes ? 0 : 1;
    status = take_tail(context, path, tail.data + cut, (size_t)part + 1 - cut, line);
  }
  hark_text_free(&tail);
  return status;
}

static hark_status read_metrics(hark_context *context, const char *run, hark_run_line *line) {
  char path[HARK_PATH_BYTES];
  uint64_t bytes;
  int descriptor;
  HARK_TRY(hark_path_join(context, run, "metrics.jsonl", path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK; /* correct for a run without checkpoints */
  HARK_TRY(hark_file_open(context, path, &descriptor, &bytes));
  hark_status status = hark_file_refuse_foreign(context, path, descriptor, bytes, "lines of JSON");
  uint64_t part = 0;
  for (uint64_t most = TAIL_BYTES; status == HARK_OK && isnan(line->training) && part < bytes && most <= LONGEST_TAIL; most *= 16) {
    part = bytes < most ? bytes : most;
    status = read_tail(context, path, descriptor, bytes, part, line);
  }
  hark_file_close(&descriptor);
  return status;
}

/* The files of a checkpoint are there, with the sizes of the manifest. */
static hark_status check_sizes(hark_context *context, const char *folder, const json_t *manifest) {
  const json_t *const files = json_object_get(manifest, "files");
  const int64_t version = json_integer_value(json_object_get(manifest, "format_version"));
  if (version != HARK_MANIFEST_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "%s/" HARK_MANIFEST_FILE ": format_version is %" PRId64 ", expected %d", folder, version,
                     HARK_MANIFEST_VERSION);
  if (json_array_size(files) == 0) return hark_fail(context, HARK_BAD_FILE, "%s/" HARK_MANIFEST_FILE ": has no files", folder);
  for (size_t i = 0; i < json_array_size(files); i++) {
    const json_t *const entry = json_array_get(files, i);
    const char *const name = json_string_value(json_object_get(entry, "name"));
    char path[HARK_PATH_BYTES];
    struct stat found;
    if (name == NULL || !hark_name_is_plain(name))
      return hark_fail(context, HARK_BAD_FILE, "%s/" HARK_MANIFEST_FILE ": expected names of files", folder);
    HARK_TRY(hark_path_join(context, folder, name, path));
    if (stat(path, &found) != 0) return hark_fail(context, HARK_NOT_FOUND, "%s: missing", path);
    const int64_t expected = json_integer_value(json_object_get(entry, "bytes"));
    if (found.st_size != expected)
      return hark_fail(context, HARK_BAD_FILE, "%s: has %" PRId64 " bytes, the manifest says %" PRId64, path, (int64_t)found.st_size,
                       expected);
  }
  return HARK_OK;
}

static hark_status check_checkpoint(hark_context *context, const hark_run *run, const char *name) {
  char folder[HARK_PATH_BYTES], path[HARK_PATH_BYTES];
  json_t *manifest = NULL;
  HARK_TRY(hark_checkpoint_path(context, run, name, NULL, folder));
  HARK_TRY(hark_path_join(context, folder, HARK_MANIFEST_FILE, path));
  HARK_TRY(hark_json_read(context, path, HARK_MANIFEST_BYTES, &manifest));
  const hark_status status = check_sizes(context, folder, manifest);
  json_decref(manifest);
  return status;
}

/* The last checkpoint: the state that a resumed run would continue from. */
static hark_status read_checkpoint(hark_context *context, const hark_run *run, hark_run_line *line) {
  char name[HARK_NAME_BYTES];
  hark_run_state state;
  const hark_status found = hark_checkpoint_pointer_follow(context, run->path, "last", name);
  if (found == HARK_NOT_FOUND) return HARK_OK;
  HARK_TRY(found);
  HARK_TRY(check_checkpoint(context, run, name)); /* first: it names a newer version */
  HARK_TRY(hark_checkpoint_read_state(context, run, name, &state));
  const bool running = line->state == HARK_RUN_RUNNING;
  if (!running) line->state = state.plan.steps > 0 && state.step >= state.plan.steps ? HARK_RUN_DONE : HARK_RUN_STOPPED;
  if (!running || line->step < state.step) line->step = state.step;
  if (state.plan.steps > 0) line->steps = state.plan.steps;
  line->best = isfinite(state.best_loss) ? state.best_loss : NAN;
  HARK_TRY(hark_checkpoint_check_vocabulary(context, run, name));
  return hark_run_check_metrics(context, run, name, state.metrics_bytes);
}

/* Keeps the first fault. HARK_OUT_OF_MEMORY is none. */
static hark_status keep_fault(hark_context *context, hark_status status, hark_run_line *line) {
  if (status == HARK_OUT_OF_MEMORY) return status;
  if (status != HARK_OK && line->problem[0] == '\0')
    (void)snprintf(line->problem, sizeof line->problem, "%s", hark_context_message(context));
  return HARK_OK;
}

static hark_status read_all(hark_context *context, const hark_run *run, hark_run_line *line) {
  HARK_TRY(keep_fault(context, read_configuration(context, run->path, line), line));
  HARK_TRY(keep_fault(context, hark_run_check_configuration(context, run), line));
  HARK_TRY(keep_fault(context, read_metrics(context, run->path, line), line));
  return keep_fault(context, read_checkpoint(context, run, line), line);
}

/* A fault of the run's files is a state of the run, other failures end the listing. A damaged run has no last losses: its lines may be
 * those of an earlier step. */
hark_status hark_run_line_read(hark_context *context, const char *path, hark_run_line *line) {
  hark_run run = {.lock = -1};
  *line =
      (hark_run_line){.step = HARK_RUN_NO_STEP, .steps = HARK_RUN_NO_STEP, .training = NAN, .validation = NAN, .best = NAN, .seconds = NAN};
  HARK_TRY(hark_path_join(context, "", path, run.path));
  if (hark_folder_check_unlocked(context, path) == HARK_BUSY) line->state = HARK_RUN_RUNNING;
  HARK_TRY(read_all(context, &run, line));
  if (line->problem[0] == '\0') return HARK_OK;
  if (line->state == HARK_RUN_RUNNING && hark_folder_check_unlocked(context, path) == HARK_BUSY) { /* its files change meanwhile */
    line->problem[0] = '\0';
    return HARK_OK;
  }
  line->training = line->validation = line->seconds = NAN;
  line->state = HARK_RUN_DAMAGED;
  return HARK_OK;
}

/* ---- as JSON ---- */

static void append_word(hark_text *text, const char *name, const char *value) {
  hark_text_append(text, ", \"%s\": ", name);
  hark_json_append_string(text, value);
}

static void append_count(hark_text *text, const char *name, int64_t count) {
  hark_text_append(text, ", \"%s\": ", name);
  if (count == HARK_RUN_NO_STEP)
    hark_text_append(text, "null");
  else
    hark_text_append(text, "%" PRId64, count);
}

void hark_run_line_append_json(const char *path, const hark_run_line *line, hark_text *text) {
  hark_text_append(text, "{");
  hark_json_append_path(text, "path", path);
  append_word(text, "state", state_words[line->state]);
  if (line->problem[0] != '\0') append_word(text, "problem", line->problem);
  append_count(text, "step", line->step);
  append_count(text, "steps", line->steps);
  hark_json_append_member(text, "train/loss", line->training);
  hark_json_append_member(text, "val/loss", line->validation);
  hark_json_append_member(text, "best_val/loss", line->best);
  hark_json_append_member(text, "time", line->seconds);
  append_word(text, "architecture", line->architecture);
  hark_json_append_member(text, "layers", line->layers[0] != '\0' ? strtod(line->layers, NULL) : NAN);
  hark_json_append_member(text, "width", line->width[0] != '\0' ? strtod(line->width, NULL) : NAN);
  hark_json_append_member(text, "context", line->context[0] != '\0' ? strtod(line->context, NULL) : NAN);
  append_word(text, "positions", line->positions);
  append_word(text, "structure", line->structure);
  hark_text_append(text, "}");
}

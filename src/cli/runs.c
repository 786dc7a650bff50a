/* runs.c - hark runs: the runs in a folder, a line each: what they are, how far they came, whether they are undamaged.
 *
 * Only small files are read: the lock, the pointer `last`, state.json, manifest.json and the sizes of the files in it, the end of
 * metrics.jsonl, and some lines of config.yaml. Checksums are compared by hark verify. Cost: about 30 system calls for a run.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
#include "config/yaml.h"
#include "io/checkpoint_files.h"
#include "io/files.h"
#include "io/number.h"
#include "json/json.h"
#include "train/run.h"

#define DEFAULT_FOLDER "runs"
#define DEPTH 3                     /* of folders in folders: a sweep has its runs in one */
#define TAIL_BYTES ((uint64_t)4096) /* of metrics.jsonl that are read: its last lines; up to LONGEST_TAIL if these have no loss */
#define LONGEST_TAIL ((uint64_t)1 << 20)
#define WORD_BYTES 32

typedef enum run_state { RUN_EMPTY, RUN_RUNNING, RUN_STOPPED, RUN_DONE, RUN_DAMAGED, RUN_STATES } run_state;
static const char *const state_words[RUN_STATES] = {"empty", "running", "stopped", "done", "damaged"};

typedef struct run_line {
  run_state state;
  char problem[HARK_MESSAGE_BYTES];                        /* of a damaged run */
  double step, steps, training, validation, best, seconds; /* NaN: not known */
  char architecture[WORD_BYTES], structure[WORD_BYTES], positions[WORD_BYTES];
  char layers[WORD_BYTES], width[WORD_BYTES], context[WORD_BYTES];
} run_line;

typedef struct listing {
  hark_invocation *call;
  hark_text text;
  int64_t count;
  size_t root; /* bytes of the folder in the paths below it, with its slash */
} listing;

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

static hark_status read_configuration(hark_context *context, const char *run, run_line *line) {
  char path[HARK_PATH_BYTES];
  hark_text file = hark_text_empty(context), yaml = hark_text_empty(context);
  HARK_TRY(hark_path_join(context, run, "config.yaml", path));
  hark_status status = hark_file_read(context, path, HARK_YAML_BYTES, &file);
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

/* The numbers of the last whole lines. A line that is no JSON is what hark verify reports. */
static hark_status take_tail(hark_context *context, const char *path, char *tail, run_line *line) {
  for (char *at = tail, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
    json_t *object;
    if (at == tail || *at != '{') continue; /* perhaps not the beginning of a line */
    if (hark_json_parse(context, path, at, (size_t)(end - at), &object) != HARK_OK) continue;
    take_number(object, "step", &line->step);
    take_number(object, "train/loss", &line->training);
    take_number(object, "val/loss", &line->validation);
    take_number(object, "time", &line->seconds);
    json_decref(object);
  }
  return HARK_OK;
}

static hark_status read_tail(hark_context *context, const char *path, int descriptor, uint64_t bytes, uint64_t part, run_line *line) {
  hark_text tail = hark_text_empty(context);
  hark_text_resize(&tail, (size_t)part + 1);
  hark_status status = tail.status;
  if (status == HARK_OK) status = hark_file_read_at(context, descriptor, path, tail.data + 1, (size_t)part, bytes - part);
  if (status == HARK_OK) {
    tail.data[0] = '\n'; /* before the first line */
    status = take_tail(context, path, part == bytes ? tail.data : tail.data + 1, line);
  }
  hark_text_free(&tail);
  return status;
}

static hark_status read_metrics(hark_context *context, const char *run, run_line *line) {
  char path[HARK_PATH_BYTES];
  uint64_t bytes;
  int descriptor;
  HARK_TRY(hark_path_join(context, run, "metrics.jsonl", path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  HARK_TRY(hark_file_open(context, path, &descriptor, &bytes));
  hark_status status = HARK_OK;
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
static hark_status read_checkpoint(hark_context *context, const hark_run *run, run_line *line) {
  char name[HARK_NAME_BYTES];
  hark_run_state state;
  const hark_status found = hark_checkpoint_find(context, run, "last", name);
  if (found == HARK_NOT_FOUND) return HARK_OK;
  HARK_TRY(found);
  HARK_TRY(hark_checkpoint_read_state(context, run, name, &state));
  HARK_TRY(check_checkpoint(context, run, name));
  const bool running = line->state == RUN_RUNNING;
  if (!running) line->state = state.plan.steps > 0 && state.step >= state.plan.steps ? RUN_DONE : RUN_STOPPED;
  if (!running || !(line->step > (double)state.step)) line->step = (double)state.step;
  if (state.plan.steps > 0) line->steps = (double)state.plan.steps;
  line->best = isfinite(state.best_loss) ? state.best_loss : NAN;
  return HARK_OK;
}

/* A fault of the run's files is a state of the run, other failures end the listing. */
static hark_status read_run(hark_context *context, const char *path, run_line *line) {
  hark_run run = {.lock = -1};
  *line = (run_line){.step = NAN, .steps = NAN, .training = NAN, .validation = NAN, .best = NAN, .seconds = NAN};
  HARK_TRY(hark_path_join(context, "", path, run.path));
  if (hark_folder_check_unlocked(context, path) == HARK_BUSY) line->state = RUN_RUNNING;
  hark_status status = read_configuration(context, path, line);
  if (status == HARK_OK) status = read_metrics(context, path, line);
  if (status == HARK_OK) status = read_checkpoint(context, &run, line);
  const bool moves = line->state == RUN_RUNNING && hark_folder_check_unlocked(context, path) == HARK_BUSY; /* its files change meanwhile */
  if (status == HARK_OK || status == HARK_OUT_OF_MEMORY || moves) return status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
  (void)snprintf(line->problem, sizeof line->problem, "%s", hark_context_message(context));
  line->state = RUN_DAMAGED;
  return HARK_OK;
}

/* ---- printing ---- */

#define COLUMNS "%-9s %17s %10s %10s  "

static void append_count(double step, double steps, char *out, size_t bytes) {
  if (isnan(step))
    (void)snprintf(out, bytes, "-");
  else if (isnan(steps))
    (void)snprintf(out, bytes, "%.0f", step);
  else
    (void)snprintf(out, bytes, "%.0f/%.0f", step, steps);
}

static void append_loss(double loss, char *out, size_t bytes) {
  (void)snprintf(out, bytes, isnan(loss) ? "-" : fabs(loss) < 1e4 ? "%.4f" : "%.3e", loss);
}

static void print_run(listing *list, const char *path, const run_line *line) {
  char steps[64], training[WORD_BYTES], best[WORD_BYTES];
  hark_text *const text = &list->text;
  append_count(line->step, line->steps, steps, sizeof steps);
  append_loss(line->training, training, sizeof training);
  append_loss(line->best, best, sizeof best);
  hark_text_append(text, COLUMNS, state_words[line->state], steps, training, best);
  hark_text_append_shown(text, path + list->root);
  hark_text what = hark_text_empty(text->context);
  if (line->layers[0] != '\0')
    hark_text_append(&what, "  %s %sx%s, context %s, %s, %s", line->architecture, line->layers, line->width, line->context, line->positions,
                     line->structure);
  hark_text_append_shown(text, hark_text_get(&what));
  hark_text_free(&what);
  if (line->problem[0] != '\0') {
    hark_text_append(text, "  ");
    hark_text_append_shown(text, line->problem);
  }
  hark_text_append(text, "\n");
}

static void append_member(hark_text *text, const char *name, double value) {
  hark_text_append(text, ", \"%s\": ", name);
  hark_json_append_number(text, value);
}

static void append_word(hark_text *text, const char *name, const char *value) {
  hark_text_append(text, ", \"%s\": ", name);
  hark_json_append_string(text, value);
}

static void print_run_json(const char *path, const run_line *line, hark_text *text) {
  hark_text_append(text, "{\"path\": ");
  hark_json_append_string(text, path);
  append_word(text, "state", state_words[line->state]);
  if (line->problem[0] != '\0') append_word(text, "problem", line->problem);
  append_member(text, "step", line->step);
  append_member(text, "steps", line->steps);
  append_member(text, "train/loss", line->training);
  append_member(text, "val/loss", line->validation);
  append_member(text, "best_val/loss", line->best);
  append_member(text, "time", line->seconds);
  append_word(text, "architecture", line->architecture);
  append_member(text, "layers", line->layers[0] != '\0' ? strtod(line->layers, NULL) : NAN);
  append_member(text, "width", line->width[0] != '\0' ? strtod(line->width, NULL) : NAN);
  append_member(text, "context", line->context[0] != '\0' ? strtod(line->context, NULL) : NAN);
  append_word(text, "positions", line->positions);
  append_word(text, "structure", line->structure);
  hark_text_append(text, "}\n");
}

static hark_status show(listing *list, const char *path) {
  run_line line;
  HARK_TRY(read_run(list->call->context, path, &line));
  if (list->count++ == 0 && !list->call->json) hark_text_append(&list->text, COLUMNS "%s\n", "state", "step", "train", "best val", "run");
  if (list->call->json)
    print_run_json(path, &line, &list->text);
  else
    print_run(list, path, &line);
  return list->text.status;
}

/* ---- finding runs ---- */

static bool is_run(hark_context *context, const char *path) {
  char inside[HARK_PATH_BYTES];
  return hark_path_join(context, path, "config.yaml", inside) == HARK_OK && hark_path_kind_of(inside) == HARK_PATH_FILE;
}

static hark_status visit(listing *list, const char *path, int depth) {
  hark_context *const context = list->call->context;
  hark_names names = {0};
  if (is_run(context, path)) return show(list, path);
  if (depth == 0) return HARK_OK;
  hark_status status = hark_folder_list(context, path, &names);
  if (status != HARK_OK && depth < DEPTH) return HARK_OK; /* one that may not be read is not this user's */
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    char inside[HARK_PATH_BYTES];
    if (names.items[i][0] == '.') continue;
    status = hark_path_join(context, path, names.items[i], inside);
    if (status == HARK_OK && hark_path_kind_of(inside) == HARK_PATH_FOLDER) status = visit(list, inside, depth - 1);
  }
  hark_names_free(context, &names);
  return status;
}

static hark_status run(hark_invocation *call) {
  const char *const folder = hark_options_argument_count(call->options) > 0 ? hark_options_argument(call->options, 0) : DEFAULT_FOLDER;
  listing list = {.call = call, .text = hark_text_empty(call->context)};
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(call->context, folder, &kind));
  if (kind != HARK_PATH_FOLDER) return hark_fail(call->context, HARK_NOT_FOUND, "%s: no such folder", folder);
  const size_t length = strlen(folder);
  if (!is_run(call->context, folder)) list.root = folder[length - 1] == '/' ? length : length + 1;
  const hark_status status = visit(&list, folder, DEPTH);
  if (status != HARK_OK) {
    hark_text_free(&list.text);
    return status;
  }
  if (list.count == 0 && !call->json) hark_text_append(&list.text, "no runs\n");
  return hark_command_print(call, &list.text);
}

const hark_command hark_command_runs = {
    .name = "runs",
    .arguments = "[FOLDER...]",
    .summary = "list the runs in a folder: state, steps, losses, model",
    .notes =
        "  hark runs                     those in runs/\n"
        "  hark runs sweeps/first --json one object per line\n"
        "\n"
        "  States: running (a process writes it); done; stopped (before its last step: hark train --resume RUN continues); empty (no\n"
        "  checkpoint yet); damaged, with the reason. Sizes are compared with the manifest, checksums are not: hark verify does.\n",
    .argument_maximum = HARK_ANY_NUMBER,
    .for_each = true,
    .has_json = true,
    .run = run,
};

/* info.c - hark info: the content of a run's folder or of a safetensors file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/ahca_text.h"
#include "cli/common.h"
#include "cli/plot/learned_kernels.h"
#include "io/checkpoint_files.h"
#include "io/files.h"
#include "io/number.h"
#include "io/safetensors.h"
#include "json/jsonl.h"
#include "models/description.h"
#include "models/foreign/foreign.h"
#include "train/config.h"
#include "train/config_rotary.h"
#include "train/data_place.h"

#define POINTER_BYTES ((size_t)HARK_NAME_BYTES)

/* ---- files ---- */

static void append_shape(const hark_stored_tensor *t, hark_text *text) {
  hark_text_append(text, "[");
  for (int d = 0; d < t->rank; d++) hark_text_append(text, "%s%" PRId64, d > 0 ? ", " : "", t->shape[d]);
  hark_text_append(text, "]");
}

static uint64_t elements(const hark_stored_tensor *t) {
  uint64_t count = 1;
  for (int d = 0; d < t->rank; d++) count *= (uint64_t)t->shape[d];
  return count;
}

static hark_status print_file_json(hark_context *context, const char *path, const hark_safetensors *file, hark_text *text) {
  uint64_t numbers = 0, bytes = 0;
  hark_text_append(text, "{");
  hark_json_append_path(text, "path", path);
  hark_text_append(text, ", \"tensors\": [");
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    hark_text_append(text, "%s{\"name\": ", i > 0 ? ", " : "");
    hark_json_append_string(text, t->name);
    hark_text_append(text, ", \"dtype\": \"%s\", \"shape\": ", t->type_name);
    append_shape(t, text);
    hark_text_append(text, ", \"bytes\": %" PRIu64 "}", t->bytes);
    numbers += elements(t);
    bytes += t->bytes;
  }
  hark_text_append(text, "], \"numbers\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"metadata\": {", numbers, bytes);
  for (int64_t i = 0; i < hark_safetensors_metadata_count(file); i++) {
    const char *key, *value;
    hark_safetensors_metadata_entry(file, i, &key, &value);
    if (i > 0) hark_text_append(text, ", ");
    hark_json_append_string(text, key);
    hark_text_append(text, ": ");
    hark_json_append_string(text, value);
  }
  hark_text_append(text, "}");
  HARK_TRY(hark_append_learned_kernels(context, path, file, true, text));
  hark_text_append(text, "}\n");
  return HARK_OK;
}

/* Names and texts from a file are printed with the escapes of JSON, so that they cannot control the terminal. */
static hark_status print_file(hark_context *context, const char *path, const hark_safetensors *file, hark_text *text) {
  uint64_t numbers = 0, bytes = 0;
  char count[HARK_HUMAN_BYTES], size[HARK_HUMAN_BYTES];
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    numbers += elements(t);
    bytes += t->bytes;
  }
  hark_text_append_shown(text, path);
  hark_text_append(text, ": %" PRId64 " tensors, %s numbers, %sB\n", hark_safetensors_count(file), hark_human((double)numbers, count),
                   hark_human((double)bytes, size));
  for (int64_t i = 0; i < hark_safetensors_metadata_count(file); i++) {
    const char *key, *value;
    hark_safetensors_metadata_entry(file, i, &key, &value);
    hark_text_append(text, "  metadata ");
    hark_json_append_string(text, key);
    hark_text_append(text, ": ");
    hark_json_append_string(text, value);
    hark_text_append(text, "\n");
  }
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    hark_text_append(text, "  %-7s ", t->type_name);
    const size_t begin = text->length;
    append_shape(t, text);
    const size_t used = text->length - begin;
    hark_text_append(text, "%*s ", used < 20 ? (int)(20 - used) : 0, "");
    hark_json_append_string(text, t->name);
    hark_text_append(text, "\n");
  }
  return hark_append_learned_kernels(context, path, file, false, text);
}

static hark_status show_file(hark_invocation *call, const char *path) {
  hark_safetensors *file;
  hark_text text = hark_text_empty(call->context);
  HARK_TRY(hark_safetensors_open(call->context, path, &file));
  const hark_status status = call->json ? print_file_json(call->context, path, file, &text) : print_file(call->context, path, file, &text);
  hark_safetensors_close(call->context, &file);
  if (status == HARK_OK) return hark_command_print(call, &text);
  hark_text_free(&text);
  return status;
}

/* ---- models of other programs ---- */

static hark_status append_foreign(hark_invocation *call, const char *path, const hark_foreign *foreign, hark_text *text) {
  hark_text description = hark_text_empty(call->context);
  hark_description_print(&foreign->config, &description);
  hark_status status = description.status;
  hark_text_append(text, call->json ? "{" : "");
  if (call->json)
    hark_json_append_path(text, "path", path);
  else
    hark_text_append_shown(text, path);
  hark_text_append(text, call->json ? ", \"model_type\": \"%s\", \"description\": %s, \"files\": [" : ": model_type %s\n  %s\n",
                   foreign->type->name, hark_text_get(&description));
  hark_text_free(&description);
  for (int64_t i = 0; i < foreign->shards.count && status == HARK_OK; i++) {
    const hark_shard *const shard = &foreign->shards.list[i];
    if (call->json && i > 0) hark_text_append(text, ", ");
    status = call->json ? print_file_json(call->context, shard->path, shard->file, text)
                        : print_file(call->context, shard->path, shard->file, text);
    if (call->json && text->length > 0) hark_text_resize(text, text->length - 1); /* the end of the line */
  }
  if (call->json) hark_text_append(text, "]}\n");
  return status;
}

/* The folder's configuration as hark reads it, and its tensors, whose names and shapes are compared with those of the model. */
static hark_status show_foreign(hark_invocation *call, const char *folder) {
  hark_foreign foreign;
  hark_network *network = NULL;
  hark_text text = hark_text_empty(call->context);
  hark_status status = hark_foreign_open(call->context, folder, &foreign);
  if (status == HARK_OK) status = hark_foreign_declare(call->context, &foreign, &network);
  if (status == HARK_OK) status = append_foreign(call, folder, &foreign, &text);
  hark_network_destroy(call->context, &network);
  hark_foreign_close(call->context, &foreign);
  if (status == HARK_OK) return hark_command_print(call, &text);
  hark_text_free(&text);
  return status;
}

/* ---- runs ---- */

#define KERNEL_METRIC "positional/"

typedef struct run_summary {
  double step, tokens, train_loss, validation_loss, best_loss, best_step, time, accuracy, best_accuracy; /* NaN: not there */
  char last[HARK_NAME_BYTES], best[HARK_NAME_BYTES];                                                     /* checkpoints; "": none */
  uint64_t parameters;     /* of the last checkpoint; 0: none */
  hark_text positional;    /* learned positional kernels */
  json_t *begun;           /* the line of metrics.jsonl with the kernels' first values; NULL: none */
  double farthest;         /* |log| of the largest factor by which one of these values has changed, NaN without kernels; */
  double from, to;         /* that value, then and now, */
  char moved[160];         /* and its name */
  hark_ahca_report chunks; /* of the last evaluation; NaN where the model has none */
} run_summary;

static void take_number(const json_t *object, const char *name, double *out) {
  const json_t *const value = json_object_get(object, name);
  if (json_is_number(value)) *out = json_number_value(value);
}

/* Fractions that the line lacks stay absent. */
static void take_chunks(const json_t *object, hark_ahca_report *chunks) {
  char name[HARK_AHCA_NAME_BYTES];
  for (int i = 0;; i++) {
    double *number = hark_ahca_report_number(chunks, i, name);
    if (number == NULL) return;
    if (i == 0 && !json_is_number(json_object_get(object, name))) return; /* not such a line */
    *number = NAN;
    take_number(object, name, number);
  }
}

/* How far the values of positional kernels have moved since the first line that has them. They are positive, but for those of networks,
 * which are left out. */
static void take_kernels(const json_t *object, run_summary *s) {
  const char *name;
  json_t *value;
  bool any = false;
  json_object_foreach((json_t *)object, name, value) {
    if (strncmp(name, KERNEL_METRIC, strlen(KERNEL_METRIC)) != 0 || !json_is_number(value)) continue;
    if (s->begun == NULL) {
      s->begun = json_incref((json_t *)object);
      return;
    }
    if (!any) s->farthest = NAN;
    any = true;
    const double from = json_number_value(json_object_get(s->begun, name)), to = json_number_value(value), size = fabs(log(to / from));
    if (!(from > 0 && to > 0) || size <= s->farthest) continue;
    s->farthest = size;
    s->from = from;
    s->to = to;
    (void)snprintf(s->moved, sizeof s->moved, "%s", name + strlen(KERNEL_METRIC));
  }
}

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  run_summary *const s = user;
  double loss = NAN;
  take_chunks(object, &s->chunks);
  take_kernels(object, s);
  (void)line;
  take_number(object, "step", &s->step);
  take_number(object, "tokens", &s->tokens);
  take_number(object, "train/loss", &s->train_loss);
  take_number(object, "time", &s->time);
  take_number(object, "val/loss", &loss);
  if (isnan(loss)) return HARK_OK;
  s->validation_loss = loss;
  take_number(object, "val/accuracy", &s->accuracy);
  if (!(s->best_loss <= loss)) {
    s->best_loss = loss;
    s->best_step = s->step;
    s->best_accuracy = s->accuracy;
  }
  return HARK_OK;
}

/* The checkpoint that a pointer file names; "" when there is none. The file contains a name, never a path. */
static hark_status read_pointer(hark_context *context, const char *run, const char *which, char *out) {
  char path[HARK_PATH_BYTES];
  out[0] = 0;
  HARK_TRY(hark_path_join(context, run, which, path));
  if (hark_path_kind_of(path) != HARK_PATH_FILE) return HARK_OK;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_file_read_stored(context, path, POINTER_BYTES, &text));
  const size_t length = strcspn(hark_text_get(&text), "\n");
  hark_status status = HARK_OK;
  if (length < HARK_NAME_BYTES) {
    memcpy(out, hark_text_get(&text), length);
    out[length] = 0;
  }
  if (!hark_name_is_plain(out)) status = hark_fail(context, HARK_BAD_FILE, "%s: expected the name of a checkpoint", path);
  hark_text_free(&text);
  return status;
}

static hark_status read_checkpoint(hark_context *context, const char *run, bool json, run_summary *s) {
  char folder[HARK_PATH_BYTES], path[HARK_PATH_BYTES];
  if (s->last[0] == 0) return HARK_OK;
  HARK_TRY(hark_path_join(context, run, "checkpoints", folder));
  HARK_TRY(hark_path_join(context, folder, s->last, path));
  HARK_TRY(hark_path_join(context, path, HARK_WEIGHTS_FILE, folder));
  hark_safetensors *file;
  HARK_TRY(hark_safetensors_open(context, folder, &file));
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) s->parameters += elements(hark_safetensors_tensor(file, i));
  const hark_status status = hark_append_learned_kernels(context, folder, file, json, &s->positional);
  hark_safetensors_close(context, &file);
  return status;
}

/* The caller frees the text in `s`, also after a failure. */
static hark_status summarise(hark_context *context, const char *run, bool json, run_summary *s) {
  char path[HARK_PATH_BYTES];
  const hark_ahca_statistics none = {0};
  *s = (run_summary){.step = NAN,
                     .tokens = NAN,
                     .train_loss = NAN,
                     .validation_loss = NAN,
                     .best_loss = NAN,
                     .best_step = NAN,
                     .time = NAN,
                     .accuracy = NAN,
                     .best_accuracy = NAN,
                     .farthest = NAN,
                     .positional = hark_text_empty(context),
                     .chunks = hark_ahca_report_of(&none)};
  HARK_TRY(hark_path_join(context, run, "metrics.jsonl", path));
  if (hark_path_kind_of(path) != HARK_PATH_NONE) HARK_TRY(hark_jsonl_read(context, path, take_line, s));
  HARK_TRY(read_pointer(context, run, "last", s->last));
  HARK_TRY(read_pointer(context, run, "best", s->best));
  return read_checkpoint(context, run, json, s);
}

static void free_summary(run_summary *s) {
  hark_text_free(&s->positional);
  json_decref(s->begun);
}

static void append_member(hark_text *text, const char *name, double value) {
  hark_text_append(text, "\"%s\": ", name);
  hark_json_append_number(text, value);
  hark_text_append(text, ", ");
}

static void print_run_json(const char *run, const run_summary *s, const hark_options *configuration, hark_text *text) {
  hark_text_append(text, "{");
  hark_json_append_path(text, "path", run);
  hark_text_append(text, ", ");
  append_member(text, "step", s->step);
  append_member(text, "tokens", s->tokens);
  append_member(text, "time", s->time);
  append_member(text, "train/loss", s->train_loss);
  append_member(text, "val/loss", s->validation_loss);
  append_member(text, "best_val/loss", s->best_loss);
  append_member(text, "best_step", s->best_step);
  if (isfinite(s->accuracy)) {
    append_member(text, "val/accuracy", s->accuracy);
    append_member(text, "best_val/accuracy", s->best_accuracy);
  }
  append_member(text, "parameters", s->parameters > 0 ? (double)s->parameters : NAN);
  hark_text_append(text, "\"last\": ");
  hark_json_append_string(text, s->last);
  hark_text_append(text, ", \"best\": ");
  hark_json_append_string(text, s->best);
  hark_text_append(text, "%s", hark_text_get(&s->positional));
  if (isfinite(s->farthest)) {
    hark_text_append(text, ", \"kernels_moved\": {\"name\": ");
    hark_json_append_string(text, s->moved);
    hark_json_append_member(text, "from", s->from);
    hark_json_append_member(text, "to", s->to);
    hark_text_append(text, "}");
  }
  hark_ahca_text_append(&s->chunks, true, text);
  hark_text_append(text, ", \"configuration\": ");
  hark_options_print_json(configuration, text);
  hark_text_append(text, "}\n");
}

static void append_line(hark_text *text, const char *what, double value) {
  char number[HARK_NUMBER_BYTES];
  if (isfinite(value)) hark_text_append(text, "  %-22s %s\n", what, hark_number_print(value, number));
}

/* unit: what the run counts, such as "tokens" */
static void print_run(const char *run, const run_summary *s, const char *unit, const hark_options *configuration, hark_text *text) {
  char number[HARK_HUMAN_BYTES];
  hark_text_append(text, "run ");
  hark_text_append_shown(text, run);
  hark_text_append(text, "\n");
  if (s->parameters > 0) hark_text_append(text, "  %-22s %s\n", "parameters", hark_human((double)s->parameters, number));
  append_line(text, "step", s->step);
  append_line(text, unit, s->tokens);
  append_line(text, "seconds", round(s->time));
  append_line(text, "training loss", s->train_loss);
  append_line(text, "validation loss", s->validation_loss);
  append_line(text, "best validation loss", s->best_loss);
  append_line(text, "  at step", s->best_step);
  append_line(text, "  with the accuracy", s->best_accuracy);
  append_line(text, "validation accuracy", s->accuracy);
  if (s->last[0] != 0) hark_text_append(text, "  %-22s %s\n", "last checkpoint", s->last);
  if (s->best[0] != 0) hark_text_append(text, "  %-22s %s\n", "best checkpoint", s->best);
  hark_text_append(text, "%s", hark_text_get(&s->positional));
  if (isfinite(s->farthest))
    hark_text_append(text, "  the kernels' values have moved by a factor of up to %.4g since the start: %s, from %.4g to %.4g\n",
                     exp(s->farthest), s->moved, s->from, s->to);
  hark_ahca_text_append(&s->chunks, false, text);
  hark_text_append(text, "configuration\n");
  hark_text yaml = hark_text_empty(text->context);
  hark_options_print_yaml(configuration, false, &yaml);
  for (const char *at = hark_text_get(&yaml); *at != 0;) {
    const size_t length = strcspn(at, "\n");
    hark_text_append(text, "  %.*s\n", (int)length, at);
    at += length + (at[length] != 0);
  }
  hark_text_free(&yaml);
}

static hark_status show_run(hark_invocation *call, const char *run, const char *configuration) {
  hark_context *const context = call->context;
  hark_config config;
  const hark_option_group group = {&hark_config_table, &config};
  run_summary summary;
  hark_options *options;
  hark_status status = summarise(context, run, call->json, &summary);
  if (status == HARK_OK) status = hark_options_create(context, NULL, &group, 1, &options);
  if (status != HARK_OK) {
    free_summary(&summary);
    return status;
  }
  status = hark_data_place_read_stored(context, options, configuration);
  hark_config_recall_rotary(options, &config);
  if (status == HARK_OK && hark_options_finish(context, options) != HARK_OK) {
    char message[HARK_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", hark_context_message(context));
    status = hark_fail(context, HARK_BAD_FILE, "%s", message); /* here it is an input file, not an argument */
  }
  if (status == HARK_OK) {
    hark_text text = hark_text_empty(context);
    if (call->json) {
      print_run_json(run, &summary, options, &text);
    } else {
      print_run(run, &summary, hark_config_unit_word(&config), options, &text);
    }
    status = hark_command_print(call, &text);
  }
  hark_options_destroy(context, &options);
  free_summary(&summary);
  return status;
}

static hark_status run(hark_invocation *call) {
  const char *const path = hark_options_argument(call->options, 0);
  char inside[HARK_PATH_BYTES];
  hark_path_kind kind;
  if (hark_path_kind_of(path) != HARK_PATH_FOLDER) return show_file(call, path);
  HARK_TRY(hark_path_join(call->context, path, "config.yaml", inside));
  HARK_TRY(hark_path_examine(call->context, inside, &kind));
  if (kind == HARK_PATH_FILE) return show_run(call, path, inside);
  bool foreign = false;
  HARK_TRY(hark_foreign_find(call->context, path, inside, &foreign));
  if (foreign) return show_foreign(call, inside);
  HARK_TRY(hark_path_join(call->context, path, HARK_WEIGHTS_FILE, inside)); /* a checkpoint */
  if (hark_path_kind_of(inside) == HARK_PATH_FILE) return show_file(call, inside);
  return hark_fail(call->context, HARK_BAD_FILE, "%s: neither a run (config.yaml) nor a checkpoint (" HARK_WEIGHTS_FILE ")", path);
}

const hark_command hark_command_info = {
    .name = "info",
    .arguments = "RUN|FILE|FOLDER...",
    .summary = "describe the contents of a run, a checkpoint, a safetensors file or a model of another program",
    .notes = "  hark info runs/a runs/b      several of them; with --json one object per line\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .for_each = true,
    .has_json = true,
    .run = run,
};

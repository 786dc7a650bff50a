/* outputs.c - see outputs.h. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "cli/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/run_folders.h"
#include "data/examples/example_folder.h"
#include "io/temporary.h"
#include "models/foreign/foreign.h"
#include "train/data_place.h"
#include "train/run.h"

/* An output of this call that exists. */
typedef struct existing_output {
  hark_invocation *call;
  const hark_option *option;
  const char *path;
  struct stat about;
} existing_output;

static hark_status refuse(const existing_output *output, const char *what, const char *name) {
  return hark_fail(output->call->context, HARK_BAD_CONFIGURATION,
                   "--%s %.1200s: is %s %.1200s, and would be overwritten: expected another %s", output->option->name, output->path, what,
                   name, output->call->replaces_folder ? "folder" : "file");
}

static bool is_output(const existing_output *output, const char *path) {
  struct stat other;
  return stat(path, &other) == 0 && output->about.st_dev == other.st_dev && output->about.st_ino == other.st_ino;
}

/* ---- files of a run ---- */

/* Two of these make a folder a run: a damaged one may lack the others. */
static bool is_run(hark_context *context, const char *folder) {
  static const char *const marks[] = {"config.yaml", "metrics.jsonl", HARK_CHECKPOINTS_FOLDER, HARK_LOCK_NAME};
  int found = 0;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
    char inside[HARK_PATH_BYTES];
    found += hark_path_join(context, folder, marks[i], inside) == HARK_OK && hark_path_kind_of(inside) != HARK_PATH_NONE;
  }
  return found >= 2;
}

/* Looks at the folders above the file, from the inside out. `path` is absolute, without links, and is cut. */
static hark_status refuse_kept(const existing_output *output, char *path) {
  bool inside = false; /* of a folder of the run */
  for (char *slash; (slash = strrchr(path, '/')) != NULL && slash != path; inside = true) {
    *slash = '\0';
    if (hark_run_keeps(slash + 1) && is_run(output->call->context, path)) {
      char what[HARK_NAME_BYTES + 64];
      (void)snprintf(what, sizeof what, "%s%s of the run", inside ? "a file in " : "", slash + 1);
      return refuse(output, what, path);
    }
  }
  return HARK_OK;
}

static hark_status refuse_file_of_run(const existing_output *output) {
  char *const path = realpath(output->path, NULL);
  if (path == NULL) return HARK_OK; /* no memory, or it is gone: writing it will report that */
  const hark_status status = refuse_kept(output, path);
  free(path);
  return status;
}

/* ---- inputs ---- */

static hark_status refuse_weights(const existing_output *output, const char *folder) {
  hark_context *const context = output->call->context;
  hark_foreign from;
  bool is_weights = false;
  const hark_status opened = hark_foreign_open(context, folder, &from);
  for (int64_t i = 0; i < from.shards.count && opened == HARK_OK; i++) is_weights |= is_output(output, from.shards.list[i].path);
  hark_foreign_close(context, &from);
  if (opened == HARK_OUT_OF_MEMORY) return opened;
  return is_weights ? refuse(output, "a file of the model that is read,", folder)
                    : HARK_OK; /* other failures: of the subcommand that reads it */
}

static hark_status refuse_names(const existing_output *output, const char *folder, const char *const *names, size_t count,
                                const char *what) {
  for (size_t i = 0; i < count; i++) {
    char path[HARK_PATH_BYTES];
    HARK_TRY(hark_path_join(output->call->context, folder, names[i], path));
    if (is_output(output, path)) return refuse(output, what, folder);
  }
  return HARK_OK;
}

static bool has(const existing_output *output, const char *folder, const char *name) {
  char path[HARK_PATH_BYTES];
  return hark_path_join(output->call->context, folder, name, path) == HARK_OK && hark_path_kind_of(path) == HARK_PATH_FILE;
}

/* True for task.json and the splits, "training.jsonl", but not for pictures of them. */
static bool is_data(const char *name) {
  const char *const ending = strrchr(name, '.');
  bool data = strcmp(name, HARK_TASK_FILE) == 0;
  for (int split = 0; split < HARK_SPLIT_ALL; split++) {
    const size_t length = strlen(hark_example_split_names[split]);
    data = data || (strncmp(name, hark_example_split_names[split], length) == 0 && name[length] == '.');
  }
  return data && strcmp(ending, ".svg") != 0;
}

/* Of hark data make. */
static hark_status refuse_data(const existing_output *output, const char *folder) {
  hark_names names = {0};
  hark_status status = hark_folder_list(output->call->context, folder, &names);
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++)
    if (is_data(names.items[i]))
      status = refuse_names(output, folder, (const char *const *)&names.items[i], 1, "a file of the data that are read,");
  hark_names_free(output->call->context, &names);
  return status;
}

/* Of a task, a folder of hark data make: its other files are no data. */
static bool is_beside_task(const existing_output *output, const char *path) {
  char folder[HARK_PATH_BYTES];
  (void)snprintf(folder, sizeof folder, "%.*s", (int)(hark_path_name(path) - path), path);
  return has(output, folder, HARK_TASK_FILE) && !is_data(hark_path_name(path));
}

/* ---- data of runs ---- */

typedef struct data_search {
  const existing_output *output;
  bool is_data; /* found: the output is a file of the data of a run */
} data_search;

static hark_status compare_data_file(void *user, const char *path) {
  data_search *const search = user;
  search->is_data |= is_output(search->output, path) && !is_beside_task(search->output, path);
  return HARK_OK;
}

/* Data that are lost, and damaged runs, are reported by the subcommand that needs them. */
static hark_status refuse_data_of_run(void *user, const char *run) {
  const existing_output *const output = user;
  data_search search = {.output = output};
  if (hark_data_place_visit(output->call->context, run, compare_data_file, &search) == HARK_OUT_OF_MEMORY) return HARK_OUT_OF_MEMORY;
  return search.is_data ? refuse(output, "a file of the data of the run", run) : HARK_OK;
}

/* The folder may also be a checkpoint in a run, or the folder of checkpoints. */
static hark_status refuse_data_of_runs(const existing_output *output, const char *folder) {
  char run[HARK_PATH_BYTES], checkpoint[HARK_NAME_BYTES];
  HARK_TRY(hark_path_join(output->call->context, "", folder, run));
  if (hark_run_cut_checkpoint(run, checkpoint)) return refuse_data_of_run((void *)output, run);
  const hark_status status = hark_run_folders_visit(output->call->context, folder, refuse_data_of_run, (void *)output);
  return status == HARK_BAD_CONFIGURATION || status == HARK_OUT_OF_MEMORY ? status : HARK_OK;
}

static hark_status refuse_file_of_folder(const existing_output *output, const char *folder) {
  static const char *const of_model[] = {HARK_FOREIGN_CONFIG_FILE, "model.safetensors.index.json", "tokenizer.json",
                                         "tokenizer.model",        "tokenizer_config.json",        "vocab.txt",
                                         "modules.json",           "sentence_bert_config.json",    HARK_FOREIGN_GENERATION_FILE};
  if (has(output, folder, HARK_TASK_FILE)) HARK_TRY(refuse_data(output, folder));
  if (!has(output, folder, HARK_FOREIGN_CONFIG_FILE)) return HARK_OK;
  HARK_TRY(refuse_names(output, folder, of_model, sizeof of_model / sizeof *of_model, "a file of the model that is read,"));
  return refuse_weights(output, folder);
}

/* A file of a model of another program, or of a task, names its folder. */
static hark_status refuse_beside(const existing_output *output, const char *file) {
  char folder[HARK_PATH_BYTES];
  const size_t above = (size_t)(hark_path_name(file) - file);
  HARK_TRY(hark_path_join(output->call->context, "", file, folder));
  (void)snprintf(folder + above, sizeof folder - above, "%s", above == 0 ? "." : "");
  if (is_run(output->call->context, folder)) HARK_TRY(refuse_data_of_run((void *)output, folder));
  return refuse_file_of_folder(output, folder);
}

static hark_status refuse_input(const existing_output *output, const char *what, const char *path) {
  const hark_path_kind kind = path[0] != '\0' ? hark_path_kind_of(path) : HARK_PATH_NONE;
  if (kind == HARK_PATH_FOLDER) HARK_TRY(refuse_data_of_runs(output, path));
  if (kind == HARK_PATH_FOLDER) return refuse_file_of_folder(output, path);
  if (kind == HARK_PATH_FILE) HARK_TRY(refuse_beside(output, path));
  return kind != HARK_PATH_NONE && is_output(output, path) ? refuse(output, what, path) : HARK_OK;
}

static bool writes(const hark_option *option) {
  static const char *const names[] = {"output", "out", "figure", "markdown"};
  bool any = false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) any = any || strcmp(option->name, names[i]) == 0;
  return any && option->type == HARK_OPTION_STRING;
}

static hark_status refuse_input_option(const existing_output *output, const hark_option *option, const void *field) {
  char what[HARK_OPTION_WORD_BYTES + 16];
  if (writes(option) || !hark_option_words_are_paths(option->argument)) return HARK_OK;
  (void)snprintf(what, sizeof what, "the input --%s", option->name);
  if (option->type == HARK_OPTION_STRING) return refuse_input(output, what, *(const char *const *)field);
  const hark_string_list *const list = field;
  for (int64_t i = 0; i < list->count && option->type == HARK_OPTION_LIST; i++) HARK_TRY(refuse_input(output, what, list->items[i]));
  return HARK_OK;
}

typedef hark_status option_visitor(void *user, const hark_option *option, const void *field);

/* All options of the call's tables. */
static hark_status visit_options(const hark_invocation *call, option_visitor *visit, void *user) {
  for (int t = 0; t < HARK_COMMAND_TABLES; t++) {
    const hark_option_table *const table = call->command->tables[t];
    for (int i = 0; call->values[t] != NULL && i < table->count; i++)
      HARK_TRY(visit(user, &table->options[i], (const char *)call->values[t] + table->options[i].offset));
  }
  return HARK_OK;
}

static hark_status visit_input(void *user, const hark_option *option, const void *field) {
  return refuse_input_option(user, option, field);
}

static hark_status refuse_output(existing_output *output) {
  const hark_invocation *const call = output->call;
  const char *const config = call->common.file.config;
  HARK_TRY(refuse_file_of_run(output));
  for (int i = 0; hark_option_words_are_paths(call->command->arguments) && i < hark_options_argument_count(call->options); i++)
    HARK_TRY(refuse_input(output, "the input", hark_options_argument(call->options, i)));
  if (config != NULL) HARK_TRY(refuse_input(output, "the input --config", config));
  return visit_options(call, visit_input, output);
}

/* ---- places ---- */

/* A missing folder of an output is a failure of the file system, where a missing input is not. */
static hark_status place_status(hark_context *context, hark_status status, const char *option, const char *path) {
  if (status == HARK_OK || status == HARK_OUT_OF_MEMORY) return status;
  const size_t length = strlen(path);
  const bool named = strncmp(hark_context_message(context), path, length) == 0 && hark_context_message(context)[length] == ':';
  if (!named) hark_fail_prefix(context, "%.1200s: ", path);
  hark_fail_prefix(context, "--%s ", option);
  return status == HARK_NOT_FOUND ? HARK_IO_ERROR : status;
}

hark_status hark_command_check_folder(hark_context *context, const char *option, const char *path) {
  return place_status(context, hark_folder_check(context, path), option, path);
}

/* The folder of a document is made, with a folder of the same name for its figures. */
static hark_status check_document_place(hark_context *context, const char *option, const char *path) {
  char folder[HARK_PATH_BYTES];
  if (hark_path_kind_of(path) != HARK_PATH_NONE) return place_status(context, hark_writer_check(context, path), option, path);
  (void)snprintf(folder, sizeof folder, "%.*s.", (int)(hark_path_name(path) - path), path);
  return place_status(context, hark_folder_check(context, folder), option, path);
}

static hark_status check_place(const hark_invocation *call, const hark_option *option, const char *path) {
  const char *const argument = hark_option_argument(option);
  if (call->output_is_folder || strcmp(argument, "FOLDER") == 0) return hark_command_check_folder(call->context, option->name, path);
  if (strcmp(argument, "FILE.md") == 0) return check_document_place(call->context, option->name, path);
  return place_status(call->context, hark_writer_check(call->context, path), option->name, path);
}

static hark_status refuse_files_in(hark_invocation *call, const hark_option *option, const char *folder, const hark_names *names) {
  char path[HARK_PATH_BYTES];
  for (int64_t i = 0; i < names->count; i++) {
    HARK_TRY(hark_path_join(call->context, folder, names->items[i], path));
    existing_output output = {.call = call, .option = option, .path = path};
    if (stat(path, &output.about) == 0 && S_ISREG(output.about.st_mode)) HARK_TRY(refuse_output(&output));
  }
  return HARK_OK;
}

/* A folder whose files are replaced. */
static hark_status refuse_folder(hark_invocation *call, const hark_option *option, const char *folder) {
  hark_names names = {0};
  HARK_TRY(hark_folder_list(call->context, folder, &names));
  const hark_status status = refuse_files_in(call, option, folder, &names);
  hark_names_free(call->context, &names);
  return status;
}

/* A name such as /dev/stdout is an open descriptor, which the shell has prepared already. */
static hark_status visit_output(void *user, const hark_option *option, const void *field) {
  char target[HARK_PATH_BYTES];
  int descriptor = -1;
  if (!writes(option)) return HARK_OK; /* only then is the field a path */
  const char *const path = *(const char *const *)field;
  if (path[0] == '\0') return HARK_OK;
  HARK_TRY(check_place(user, option, path));
  existing_output output = {.call = user, .option = option, .path = path};
  if (output.call->replaces_folder && hark_path_kind_of(path) == HARK_PATH_FOLDER) return refuse_folder(user, option, path);
  if (stat(output.path, &output.about) != 0 || !S_ISREG(output.about.st_mode)) return HARK_OK;
  HARK_TRY(hark_path_follow(output.call->context, output.path, target, &descriptor));
  return descriptor >= 0 ? HARK_OK : refuse_output(&output);
}

hark_status hark_command_refuse_outputs(hark_invocation *call) { return visit_options(call, visit_output, call); }

/* import.c - hark import: a model of another program as a file of hark (docs/models.md). */
#include <hark/model.h>
#include <inttypes.h>

#include "cli/model.h"
#include "io/json_write.h"
#include "io/temporary.h"
#include "models/foreign/foreign.h"

typedef struct import_values {
  const char *output;
  int type; /* of "file|" HARK_MATRIX_WORDS */
} import_values;

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(import_values, output), "model.safetensors", NULL, NULL, "FILE", "file to write",
     NULL},
    {"type", "type", HARK_OPTION_ENUM, offsetof(import_values, type), "file", "file|" HARK_MATRIX_WORDS, NULL, NULL,
     "type of the numbers of matrices; file: as they are stored in the folder", NULL},
};
static const hark_option_table table = {options, sizeof options / sizeof *options, NULL, sizeof(import_values), false};

static hark_status print(hark_invocation *call, const char *from, const char *path, const hark_model *model) {
  hark_model_info info = {.struct_size = sizeof info};
  char number[HARK_HUMAN_BYTES];
  HARK_TRY(hark_model_describe(model, &info));
  hark_text line = hark_text_empty(call->context);
  if (call->json) {
    hark_text_append(&line, "{");
    hark_json_append_path(&line, "path", path);
    hark_text_append(&line, ", ");
    hark_json_append_path(&line, "from", from);
    hark_text_append(&line, ", \"parameters\": %" PRId64 ", \"tokenizer\": ", info.parameters);
    if (info.tokenizer != NULL)
      hark_json_append_string(&line, info.tokenizer);
    else
      hark_text_append(&line, "null");
    hark_text_append(&line, "}\n");
  } else {
    hark_text_append_shown(&line, path);
    hark_text_append(&line, ": %s parameters of ", hark_human((double)info.parameters, number));
    hark_text_append_shown(&line, from);
    hark_text_append(&line, info.tokenizer != NULL ? ", with its %s\n" : ", without a tokenizer: it has only numbers of tokens\n",
                     info.tokenizer);
  }
  return hark_command_print_about(call, path, &line);
}

/* The folder of a model of another program; everything else is refused. */
static hark_status find(hark_invocation *call, const char *path, char folder[HARK_PATH_BYTES]) {
  bool found = false;
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(call->context, path, &kind));
  if (kind == HARK_PATH_NONE) return hark_fail(call->context, HARK_NOT_FOUND, "%s: there is no such folder or file", path);
  HARK_TRY(hark_foreign_find(call->context, path, folder, &found));
  if (found) return HARK_OK;
  if (kind == HARK_PATH_FILE)
    HARK_TRY(hark_path_refuse_foreign(call->context, path, "a model of another program: a folder with " HARK_FOREIGN_CONFIG_FILE));
  return hark_fail(call->context, HARK_BAD_FILE,
                   "%s: is no model of another program: expected a folder with " HARK_FOREIGN_CONFIG_FILE " and safetensors", path);
}

static hark_status run(hark_invocation *call) {
  const import_values *values = call->values[0];
  const char *const path = hark_options_argument(call->options, 0);
  char folder[HARK_PATH_BYTES];
  hark_model *model = NULL;
  HARK_TRY(hark_command_open(call, "cpu", 0, 0, false));
  HARK_TRY(find(call, path, folder));
  const hark_model_options load = {.struct_size = sizeof load, .matrices = hark_command_matrix_type(values->type)};
  hark_status status = hark_model_load(call->context, path, &load, &model);
  if (status == HARK_OK) status = hark_path_clean(call->context, values->output);
  if (status == HARK_OK) status = hark_model_save(call->context, model, values->output);
  if (status == HARK_OK) status = print(call, path, values->output, model);
  hark_model_destroy(call->context, &model);
  return status;
}

const hark_command hark_command_import = {
    .name = "import",
    .arguments = "FOLDER|FILE",
    .summary = "write a model of another program as one file of hark",
    .notes =
        "  hark import Qwen2-0.5B --output qwen.safetensors          a folder with config.json and safetensors\n"
        "  hark import Qwen2-0.5B --output small.safetensors --type int8\n"
        "  hark generate qwen.safetensors --prompt \"It was \"\n"
        "\n"
        "  Types of models: gpt2, llama, mistral, qwen2; bert for hark embed.\n"
        "  The file contains the folder's tokenizer.json or tokenizer.model.\n"
        "  hark generate, info and export read such a folder directly.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table},
    .run = run,
};

/* export.c - hark export: a trained model as one file, with everything that a program needs to use it (docs/embedding.md); or its
 * vocabulary as a tokenizer.json (docs/formats.md). */
#include <hark/model.h>
#include <inttypes.h>

#include "cli/model.h"
#include "cli/tokenize/text_tokens.h"
#include "io/files.h"
#include "io/json_write.h"
#include "io/temporary.h"

typedef struct export_values {
  const char *output, *checkpoint;
  int type; /* of HARK_MATRIX_WORDS */
  int format;
} export_values;

enum { FORMAT_SAFETENSORS, FORMAT_TOKENIZER_JSON };

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(export_values, output), "", NULL, NULL, "FILE",
     "file to write; without it model.safetensors or tokenizer.json", NULL},
    {"format", "format", HARK_OPTION_ENUM, offsetof(export_values, format), "safetensors", "safetensors|tokenizer.json", NULL, NULL,
     "safetensors: the model; tokenizer.json: its vocabulary alone, for the Hugging Face tokenizers library", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, offsetof(export_values, checkpoint), "", NULL, NULL, "NAME",
     "best (default), last, or step-N", NULL},
    {"type", "type", HARK_OPTION_ENUM, offsetof(export_values, type), "f32", HARK_MATRIX_WORDS, NULL, NULL,
     "numbers of matrices in the file: bf16 and f16 halve it, and round to 8 and 11 binary digits; int8 quarters it, and rounds to 255 "
     "steps in each row",
     NULL},
};
static const hark_option_table table = {options, sizeof options / sizeof *options, NULL, sizeof(export_values), false};

static hark_status check(hark_invocation *call) {
  export_values *values = call->values[0];
  const bool vocabulary = values->format == FORMAT_TOKENIZER_JSON;
  if (values->output[0] == '\0') values->output = vocabulary ? "tokenizer.json" : "model.safetensors";
  return vocabulary ? HARK_OK : hark_command_read_run(call, call->values[1]);
}

/* ---- the vocabulary ---- */

static hark_status print_vocabulary(hark_invocation *call, const char *path, const char *source, int32_t tokens) {
  hark_text line = hark_text_empty(call->context);
  if (call->json) {
    hark_text_append(&line, "{\"path\": ");
    hark_json_append_string(&line, path);
    hark_text_append(&line, ", \"vocabulary\": ");
    hark_json_append_string(&line, source);
    hark_text_append(&line, ", \"tokens\": %" PRId32 "}\n", tokens);
  } else {
    hark_text_append_shown(&line, path);
    hark_text_append(&line, ": %" PRId32 " tokens of ", tokens);
    hark_text_append_shown(&line, source);
    hark_text_append(&line, "\n");
  }
  return hark_command_print_about(call, path, &line);
}

static hark_status write_vocabulary(hark_invocation *call, const char *source, const hark_text_tokens *tokens) {
  const export_values *values = call->values[0];
  hark_text text = hark_text_empty(call->context);
  if (tokens->own == NULL) return hark_fail(call->context, HARK_UNSUPPORTED, "%s: is not a vocabulary of hark", source);
  hark_status status = hark_tokenizer_print_json(call->context, tokens->own, &text);
  if (status != HARK_OK) hark_fail_prefix(call->context, "%s: ", source);
  if (status == HARK_OK) status = hark_path_clean(call->context, values->output);
  if (status == HARK_OK) status = hark_file_write(call->context, values->output, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status == HARK_OK ? print_vocabulary(call, values->output, source, hark_text_tokens_size(tokens)) : status;
}

static hark_status export_vocabulary(hark_invocation *call) {
  const char *const source = hark_options_argument(call->options, 0);
  static const char *const idle[] = {"type", "checkpoint"};
  hark_text_tokens tokens = {0};
  for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
    if (hark_command_is_given(call, idle[i]))
      return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--%s: has no effect here, it needs --format safetensors", idle[i]);
  hark_status status = hark_text_tokens_open(call->context, source, &tokens);
  if (status == HARK_OK) status = write_vocabulary(call, source, &tokens);
  hark_text_tokens_close(call->context, &tokens);
  return status;
}

/* ---- the model ---- */

static hark_status print(hark_invocation *call, const hark_opened_run *opened, const char *path, const hark_model *model) {
  hark_model_info info = {.struct_size = sizeof info};
  HARK_TRY(hark_model_describe(model, &info));
  hark_text line = hark_text_empty(call->context);
  if (call->json) {
    hark_text_append(&line, "{\"path\": ");
    hark_json_append_string(&line, path);
    hark_text_append(&line, ", \"run\": ");
    hark_json_append_string(&line, opened->run.path);
    hark_text_append(&line, ", \"checkpoint\": ");
    hark_json_append_string(&line, opened->checkpoint);
    hark_text_append(&line, ", \"parameters\": %" PRId64 "}\n", info.parameters);
  } else {
    char number[HARK_HUMAN_BYTES];
    hark_text_append_shown(&line, path);
    hark_text_append(&line, ": %s parameters of ", hark_human((double)info.parameters, number));
    hark_text_append_shown(&line, opened->run.path);
    hark_text_append(&line, ", %s\n", opened->checkpoint);
  }
  return hark_command_print_about(call, path, &line);
}

static hark_status export_model(hark_invocation *call) {
  const export_values *values = call->values[0];
  hark_opened_run opened = {.run.lock = -1};
  hark_model *model = NULL;
  hark_status status = hark_command_open_run(call, call->values[1], values->checkpoint, &opened);
  if (status == HARK_OK) status = hark_command_load_run(call, &opened, call->values[1], &model);
  if (status == HARK_OK) status = hark_path_clean(call->context, values->output);
  const hark_model_save_options as = {.struct_size = sizeof as, .matrices = hark_command_matrix_type(1 + values->type)};
  if (status == HARK_OK) status = hark_model_save_with(call->context, model, values->output, &as);
  if (status == HARK_OK) status = print(call, &opened, values->output, model);
  hark_model_destroy(call->context, &model);
  hark_command_close_run(call, &opened);
  return status;
}

static hark_status run(hark_invocation *call) {
  const export_values *values = call->values[0];
  return values->format == FORMAT_TOKENIZER_JSON ? export_vocabulary(call) : export_model(call);
}

const hark_command hark_command_export = {
    .name = "export",
    .arguments = "RUN",
    .summary = "write a trained model as one file that a program can embed",
    .notes =
        "  hark export runs/book --output book.safetensors\n"
        "  hark export runs/book/checkpoints/step-500 --output early.safetensors\n"
        "  hark export runs/book --output half.safetensors --type bf16\n"
        "  hark export runs/book --output small.safetensors --type int8\n"
        "  hark export runs/book --format tokenizer.json        also of a file of hark export, or a vocabulary.json\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};

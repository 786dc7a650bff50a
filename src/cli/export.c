/* export.c - hark export: a trained model as one file, with everything that a program needs to use it (docs/embedding.md); or its
 * vocabulary as a tokenizer.json (docs/formats.md). */
#include <hark/model.h>
#include <inttypes.h>

#include "cli/model.h"
#include "cli/tokenize/text_tokens.h"
#include "io/files.h"
#include "io/json_write.h"
#include "io/temporary.h"
#include "models/foreign/foreign_write.h"

typedef struct export_values {
  const char *output, *checkpoint;
  int type;   /* of HARK_MATRIX_WORDS */
  int format; /* of FORMAT_WORDS */
} export_values;

#define FORMAT_WORDS "hark|huggingface|tokenizer.json"
enum { FORMAT_HARK, FORMAT_HUGGING_FACE, FORMAT_TOKENIZER_JSON };

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(export_values, output), "", NULL, NULL, "FILE",
     "file to write; not given: model.safetensors or tokenizer.json; with --format huggingface it is a new or "
     "empty folder, or an earlier export, which is replaced",
     NULL},
    {"format", "format", HARK_OPTION_ENUM, offsetof(export_values, format), "hark", FORMAT_WORDS, NULL, NULL,
     "what is written; hark: a file of hark; huggingface: a folder for transformers, with config.json, "
     "model.safetensors and the tokenizer of an imported model; tokenizer.json: only the vocabulary, for the "
     "Hugging Face tokenizers library",
     NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, offsetof(export_values, checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
    {"type", "type", HARK_OPTION_ENUM, offsetof(export_values, type), "f32", HARK_MATRIX_WORDS, NULL, NULL,
     "type of the numbers of matrices; bf16, f16: half the size, rounded to 8 or 11 binary digits; int8: a "
     "quarter of the size, rounded to 255 steps in each row",
     NULL},
};
static const hark_option_table table = {options, sizeof options / sizeof *options, NULL, sizeof(export_values), false};

static hark_status check(hark_invocation *call) {
  export_values *const values = call->values[0];
  if (values->format == FORMAT_HUGGING_FACE && values->output[0] == '\0')
    return hark_options_complain(call->context, call->options, "output", "is missing: --format huggingface writes a folder");
  if (values->output[0] == '\0') values->output = values->format == FORMAT_TOKENIZER_JSON ? "tokenizer.json" : "model.safetensors";
  call->output_is_folder = call->replaces_folder = values->format == FORMAT_HUGGING_FACE;
  if (values->format == FORMAT_TOKENIZER_JSON) return HARK_OK;
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint));
  if (hark_command_names_run(call)) return hark_command_read_run(call, call->values[1]);
  if (values->checkpoint[0] != '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "checkpoint", "has no effect here, it needs a run: %s is none",
                                   hark_options_argument(call->options, 0)));
  return hark_config_finish(call->context, call->options, call->values[1]);
}

/* ---- the vocabulary ---- */

static hark_status print_vocabulary(hark_invocation *call, const char *path, const char *source, int32_t tokens) {
  hark_text line = hark_text_empty(call->context);
  if (call->json) {
    hark_text_append(&line, "{");
    hark_json_append_path(&line, "path", path);
    hark_text_append(&line, ", ");
    hark_json_append_path(&line, "vocabulary", source);
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
      return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--%s: has no effect here, it needs --format hark", idle[i]);
  hark_status status = hark_text_tokens_open(call->context, source, &tokens);
  if (status == HARK_OK) status = write_vocabulary(call, source, &tokens);
  hark_text_tokens_close(call->context, &tokens);
  return status;
}

/* ---- the model ---- */

/* `type`: of a folder for transformers, or NULL. */
static hark_status print(hark_invocation *call, const hark_opened_run *opened, const char *path, const hark_model *model,
                         const char *type) {
  hark_model_info info = {.struct_size = sizeof info};
  const char *const from = opened->run.path[0] != '\0' ? opened->run.path : hark_options_argument(call->options, 0);
  HARK_TRY(hark_model_describe(model, &info));
  hark_text line = hark_text_empty(call->context);
  if (call->json) {
    hark_text_append(&line, "{");
    hark_json_append_path(&line, "path", path);
    hark_text_append(&line, ", ");
    hark_json_append_path(&line, "run", from);
    hark_text_append(&line, ", \"checkpoint\": ");
    hark_json_append_string(&line, opened->checkpoint);
    if (type != NULL) hark_text_append(&line, ", \"model_type\": \"%s\"", type);
    hark_text_append(&line, ", \"parameters\": %" PRId64 "}\n", info.parameters);
  } else {
    char number[HARK_HUMAN_BYTES];
    hark_text_append_shown(&line, path);
    hark_text_append(&line, ": %s parameters of ", hark_human((double)info.parameters, number));
    hark_text_append_shown(&line, from);
    hark_text_append(&line, "%s%s", opened->checkpoint[0] != '\0' ? ", " : "", opened->checkpoint);
    if (type != NULL) hark_text_append(&line, ", model_type %s", type);
    hark_text_append(&line, "\n");
  }
  return hark_command_print_about(call, path, &line);
}

/* The model of a run, or of a file or folder that describes itself. */
static hark_status load(hark_invocation *call, hark_opened_run *opened, hark_model **out) {
  const export_values *const values = call->values[0];
  const hark_config *const config = call->values[1];
  if (hark_command_names_run(call)) {
    HARK_TRY(hark_command_open_run(call, config, values->checkpoint, opened));
    return hark_command_load_run(call, opened, config, out);
  }
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  return hark_model_load(call->context, hark_options_argument(call->options, 0), NULL, out);
}

static hark_status write_file(hark_invocation *call, const hark_model *model, const char *path, hark_type type) {
  const hark_model_save_options as = {.struct_size = sizeof as, .matrices = type};
  HARK_TRY(hark_path_clean(call->context, path));
  return hark_model_save_with(call->context, model, path, &as);
}

static hark_status export_model(hark_invocation *call) {
  const export_values *values = call->values[0];
  const hark_type matrices = hark_command_matrix_type(1 + values->type);
  hark_opened_run opened = {.run.lock = -1};
  hark_model *model = NULL;
  const char *type = NULL;
  hark_status status = load(call, &opened, &model);
  if (status == HARK_OK)
    status = values->format == FORMAT_HUGGING_FACE ? hark_foreign_export(call->context, model, values->output, matrices, &type)
                                                   : write_file(call, model, values->output, matrices);
  if (status == HARK_OK) status = print(call, &opened, values->output, model, type);
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
    .arguments = "RUN|FILE|FOLDER",
    .summary = "write a trained model as one file that a program can embed, or in a format of other programs",
    .notes =
        "  hark export runs/book --output book.safetensors\n"
        "  hark export runs/book/checkpoints/step-500 --output early.safetensors\n"
        "  hark export runs/book --output half.safetensors --type bf16\n"
        "  hark export runs/book --output small.safetensors --type int8\n"
        "  hark export runs/book --format huggingface --output book        a folder that transformers loads\n"
        "  hark export runs/book --format tokenizer.json        RUN can also be a file of hark export, or a vocabulary.json\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};

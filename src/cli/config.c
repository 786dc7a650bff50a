/* config.c - hark config: the configuration as a file and as a reference, both from the option table. */
#include "cli/common.h"
#include "train/preset.h"

typedef struct config_values {
  bool markdown, comments;
} config_values;

static const hark_option options[] = {
    {"markdown", NULL, HARK_OPTION_BOOL, offsetof(config_values, markdown), "false", NULL, NULL, NULL,
     "print the reference of all keys and flags instead (docs/configuration.md)", "json false"},
    {"comments", NULL, HARK_OPTION_BOOL, offsetof(config_values, comments), "true", NULL, NULL, NULL, "print the explanations",
     "json false, markdown false"},
};
static const hark_option_table table = {options, 2, NULL, sizeof(config_values), false};

static const char introduction[] =
    "# Configuration\n"
    "\n"
    "Written by `hark config --markdown` from the tables of options in `src/train/config.c` and "
    "`src/models/model_options.h`; do not edit.\n"
    "\n"
    "A configuration file is YAML. A key such as `model.rotary.base` is written in the file as `base`, in section "
    "`rotary` of\n"
    "section `model`. `hark config` prints a file with all defaults. Every run stores its values in "
    "`config.yaml`, except those that apply to one call, such as `run.resume`, `run.ranks`, `run.sequence_ranks` and `train.extend`. A "
    "value on "
    "the\n"
    "command line has precedence over the file given with `--config`, and the file over the defaults.\n"
    "\n"
    "- Every key is also a flag: `--model.rotary.base 500000` or `--model.rotary.base=500000`. Frequent flags have "
    "a short form. `-` and\n"
    "  `_` are the same in flags, and `normalization` is read as `normalisation`.\n"
    "- A Boolean option is set by `--flag` and unset by `--no-flag`.\n"
    "- A list is given by repeating its flag. The numbers of a list may also be one value with commas: "
    "`--model.ahca.capacities 0.5,0.25`.\n"
    "  Options with one word per layer, `--structure` and `--normalisation`, are an exception: their words are always one value with "
    "commas,\n"
    "  `--structure window,dense`.\n"
    "- Numbers have a decimal point in every locale. Whole numbers may be written as `8e6`, times as `90s`, `10m` or "
    "`1h30m`.\n"
    "- An option that is not a list may be given at most once on the command line, and a key may occur at most once in a file.\n"
    "- An option that would have no effect is refused. Column `needs` lists the conditions under which an option has "
    "an effect.\n"
    "  They are separated by semicolons, and all of them must hold. A key without effect may be in a file if it has its default value.\n"
    "- YAML's anchors, aliases and tags are refused, and so is a file with several YAML documents.\n"
    "\n";

/* The reference is the same for all values. --json and --comments have rows of their own. */
static hark_status refuse_values(hark_invocation *call) {
  static const char others[] = "markdown|comments|json|color";
  hark_option_view view;
  for (int i = 0; i < hark_options_count(call->options); i++) {
    if (!hark_options_view(call->options, i, &view) || hark_option_choice(others, view.option->name) >= 0) continue;
    if (hark_options_source(call->options, view.option->name) == HARK_SOURCE_COMMAND)
      HARK_TRY(hark_options_complain(call->context, call->options, view.option->name, "has no effect here, it needs --markdown off"));
  }
  return HARK_OK;
}

static hark_status check(hark_invocation *call) {
  const config_values *const values = call->values[0];
  if (values->markdown) return refuse_values(call);
  const hark_preset *preset;
  HARK_TRY(hark_preset_read(call->context, call->options, call->values[2], &preset));
  HARK_TRY(hark_options_require_utf8(call->context, call->options));
  hark_config copy = *(const hark_config *)call->values[1]; /* the printed configuration keeps its zeros: they depend on other keys */
  return hark_config_finish(call->context, call->options, &copy);
}

static hark_status run(hark_invocation *call) {
  const config_values *const values = call->values[0];
  hark_text text = hark_text_empty(call->context);
  if (call->json) {
    hark_options_print_json(call->options, &text);
    hark_text_append(&text, "\n");
  } else if (values->markdown) {
    hark_text_append(&text, "%s", introduction);
    hark_options_print_markdown(call->options, &text);
  } else {
    hark_options_print_yaml(call->options, values->comments, &text);
  }
  return hark_command_print(call, &text);
}

const hark_command hark_command_config = {
    .name = "config",
    .arguments = "",
    .summary = "print a configuration (the defaults, changed by a file and flags), or the reference of all options",
    .notes =
        "  hark config > my.yaml            a file to start from\n"
        "  hark config --preset small       the same for a size of hark train --preset\n"
        "  hark config --config my.yaml     check a file, and see what it resolves to\n",
    .common_options =
        "preset model.layers model.heads model.width model.context model.positions model.positional model.attention.structure "
        "model.attention.window model.attention.normalisation data.paths data.tokenizer train.steps train.max_time train.batch "
        "train.learning_rate train.warmup train.seed markdown comments config json help help-all",
    .has_json = true,
    .has_configuration = true,
    .tables = {&table, &hark_config_table, &hark_preset_table},
    .check = check,
    .run = run,
};

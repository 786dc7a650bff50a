/* kernels.c - hark kernels: the search for the positional kernels of a text, fits of learned kernels, and their export. */
#include "cli/kernels/kernels.h"

#include <inttypes.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/model.h"
#include "cli/threads.h"
#include "data/inputs.h"
#include "train/config.h"

#define AT(field) offsetof(hark_kernels_values, field)
static const hark_option options[] = {
    {"text", "text", HARK_OPTION_STRING, AT(text), HARK_STANDARD_INPUT, NULL, NULL, "FILE",
     "fit: the text on whose beginning the model's attention is measured; -: standard input", "$1 fit"},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "fit, export: checkpoint of a run, which is best (default), last, or step-N", "$1 fit|export"},
    {"windows", "windows", HARK_OPTION_INT, AT(windows), "16", "[1, 4096]", NULL, NULL,
     "search, fit: largest number of windows (of the model's context) in which attention is measured", "$1 search|fit"},
    {"terms", "terms", HARK_OPTION_INT, AT(terms), "4", "[1, 16]", NULL, NULL, "search, fit: largest number of kernels in an expression",
     "$1 search|fit"},
    {"price", "price", HARK_OPTION_FLOAT, AT(price), "0.001", "[0, 1]", NULL, "NATS",
     "search, fit: each further parameter must reduce the divergence by at least this number of nats; the divergence is "
     "that of Kullback and Leibler between the attention of a head with its learned kernel and that with the expression",
     "$1 search|fit"},
    {"definite", "definite", HARK_OPTION_BOOL, AT(definite), "false", NULL, NULL, NULL,
     "search, fit: only positive definite kernels, which kernel ridge attention needs", "$1 search|fit"},
    {"data", "data", HARK_OPTION_LIST, AT(data), "", NULL, NULL, "PATH", "search: text file or folder; may be repeated", "$1 search"},
    {"base", "base", HARK_OPTION_STRING, AT(base), "", NULL, NULL, "FILE",
     "search: configuration of the models that are trained (hark config prints one); not given: two layers of "
     "four heads, width 128, context 256, and one million tokens of training",
     "$1 search"},
    {"out", "out o", HARK_OPTION_STRING, AT(out), "", NULL, NULL, "FOLDER", "search: the folder of its runs and its report", "$1 search"},
    {"seeds", "seeds", HARK_OPTION_INT, AT(seeds), "1", "[1, 64]", NULL, NULL,
     "search: number of seeds of every comparison; kernels are fitted to the table of the first seed", "$1 search"},
    {"seed", "seed", HARK_OPTION_INT, AT(seed), "1", "[1, 1e9]", NULL, NULL,
     "search: the first seed; the others are seed + 1, seed + 2, ...", "$1 search"},
    {"tokens", "tokens", HARK_OPTION_FLOAT, AT(tokens), "0", "[0, inf)", NULL, "N",
     "search: number of tokens of each training; 0: as in the configuration", "$1 search"},
    {"table", "table", HARK_OPTION_INT, AT(table), "0", "[0, 4096]", NULL, "K",
     "search: number of distances in the table that every head learns; 0: the context, but at most 256", "$1 search"},
    {"proof", "proof", HARK_OPTION_BOOL, AT(proof), "true", NULL, NULL, NULL,
     "make the last trainings, which measure the losses with the expressions that were found", "$1 search"},
    {"jobs", "jobs j", HARK_OPTION_INT, AT(jobs), "1", "[1, 64]", NULL, NULL,
     "search: number of trainings at the same time, as in hark sweep", "$1 search"},
    {"output", "output", HARK_OPTION_STRING, AT(output), "", NULL, NULL, "FILE",
     "export: file to write; NAME.py is a score_mod for PyTorch's FlexAttention, and NAME.csv or "
     "NAME.safetensors a table of the logarithm of the kernel for each distance",
     "$1 export"},
    {"distances", "distances", HARK_OPTION_INT, AT(distances), "0", "[0, 16777216]", NULL, "T",
     "export: distances 0 .. T - 1; 0: the model's context", "$1 export"},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(hark_kernels_values), false};

static hark_status fit(hark_invocation *call) {
  const hark_kernels_values *const values = call->values[0];
  hark_fitted_kernels kernels;
  hark_text text = hark_text_empty(call->context);
  hark_status status = hark_kernels_fit(call->context, hark_options_argument(call->options, 1), values->text, values, &kernels);
  if (status == HARK_OK && kernels.unknown > 0)
    hark_command_warn(call, "%s: %" PRId64 " of %" PRId64 " tokens are the unknown token: the model's vocabulary lacks what is there",
                      values->text, kernels.unknown, kernels.tokens);
  if (status == HARK_OK && call->json) {
    hark_text_append(&text, "{");
    hark_kernels_append_json(&kernels, &text);
    hark_text_append(&text, "}\n");
  } else if (status == HARK_OK) {
    hark_kernels_append_table(&kernels, &text);
    hark_text_append(&text, "\n--positional-scope %s --positional '",
                     kernels.scope == HARK_SCOPE_MODEL   ? "model"
                     : kernels.scope == HARK_SCOPE_LAYER ? "layer"
                                                         : "head");
    hark_kernels_append_list(&kernels, false, &text);
    hark_text_append(&text, "'\n");
  }
  hark_kernels_free(call->context, &kernels);
  if (status == HARK_OK) return hark_command_print(call, &text);
  hark_text_free(&text);
  return status;
}

typedef struct kernels_verb {
  const char *name;
  int arguments;
  hark_status (*run)(hark_invocation *call);
} kernels_verb;

static const kernels_verb verbs[] = {{"search", 1, hark_kernels_search}, {"fit", 2, fit}, {"export", 2, hark_kernels_export}};

/* NULL: the word is not a verb, which main reports. */
static const kernels_verb *find_verb(const hark_invocation *call) {
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs && hark_options_argument_count(call->options) > 0; i++)
    if (strcmp(hark_options_argument(call->options, 0), verbs[i].name) == 0) return &verbs[i];
  return NULL;
}

static hark_status check(hark_invocation *call) {
  const hark_kernels_values *const values = call->values[0];
  const kernels_verb *const verb = find_verb(call);
  const int count = hark_options_argument_count(call->options);
  if (verb == NULL) return HARK_OK;
  if (count > verb->arguments)
    return hark_options_complain(call->context, call->options, hark_options_argument(call->options, verb->arguments),
                                 "unexpected argument; usage: hark kernels %s [options]%s", verb->name,
                                 verb->arguments > 1 ? " RUN|FILE" : "");
  if (count < verb->arguments)
    return hark_options_complain(call->context, call->options, verb->name, "needs a run or a file of a model: hark kernels %s RUN",
                                 verb->name);
  if (count == 2) HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 1), values->checkpoint));
  if (verb->run == hark_kernels_search && values->data.count == 0)
    HARK_TRY(hark_options_complain(call->context, call->options, "data", "missing, expected a text"));
  if (verb->run == hark_kernels_search && values->out[0] == '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "out", "missing, expected a folder"));
  if (verb->run == hark_kernels_export && values->output[0] == '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "output", "missing, expected a file"));
  if (verb->run == hark_kernels_export && call->json)
    HARK_TRY(hark_options_complain(call->context, call->options, "json", "has no effect here, export writes a file and prints its name"));
  if (verb->run == hark_kernels_export && values->output[0] != '\0' && hark_kernels_format_of(values->output) == HARK_KERNELS_UNKNOWN)
    HARK_TRY(hark_options_complain(call->context, call->options, "output", "expected a name that ends in .py, .csv or .safetensors"));
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  const hark_config *const config = call->values[1];
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, 0, config->run.deterministic));
  return find_verb(call)->run(call);
}

const hark_command hark_command_kernels = {
    .name = "kernels",
    .arguments = "search|fit|export [RUN|FILE]",
    .words = "search|fit|export",
    .summary = "search for positional kernels that fit a text, fit expressions to learned kernels, export them",
    .notes =
        "  hark kernels search --data book.txt --out search\n"
        "  hark kernels fit runs/table --text book.txt\n"
        "  hark kernels export runs/book --output kernels.py\n"
        "\n"
        "  An option whose explanation begins with 'search:', 'fit:' or 'export:' is only for this action.\n"
        "  search trains models in which every head learns a table with one number per distance. It fits an expression to each\n"
        "  table, and trains again with these expressions. Its report is FOLDER/search.md. If the command is called again, the\n"
        "  search continues.\n"
        "  docs/kernel-search.md describes it.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER, /* the actions take different numbers */
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};

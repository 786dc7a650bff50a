/* data.c - hark data: makes tasks and texts (src/data/tasks/make.h), describes examples, draws them (docs/tasks.md). */
#include "cli/data/data.h"

#include <inttypes.h>
#include <string.h>

#include "cli/common.h"
#include "cli/progress.h"
#include "core/thread_count.h"
#include "data/examples/example_folder.h"
#include "data/formats/example_format.h"
#include "data/json_lines.h"
#include "data/tasks/make.h"
#include "io/files.h"
#include "io/temporary.h"
#include "io/words.h"

typedef struct data_values {
  const char *out, *format, *text_field, *label_field;
  int64_t seed, threads, classes, examples[HARK_SPLIT_ALL], count, columns, scale;
  double fraction;
  int split;
  bool quoted;
} data_values;

#define AT(field) offsetof(data_values, field)
#define EXAMPLES(split) AT(examples) + (split) * sizeof(int64_t)
static const hark_option options[] = {
    {"out", "out o", HARK_OPTION_STRING, AT(out), "", NULL, NULL, "PATH", "make: the new folder; picture: the SVG file", "$1 make|picture"},
    {"seed", "seed", HARK_OPTION_INT, AT(seed), "1", "[0, inf)", NULL, NULL, "make: seed of all random numbers", "$1 make"},
    {"training", "training", HARK_OPTION_INT, EXAMPLES(HARK_SPLIT_TRAINING), "-1", "[-1, 1e12]", NULL, NULL,
     "make: number of training examples; -1: as many as the task usually has", "$1 make"},
    {"validation", "validation", HARK_OPTION_INT, EXAMPLES(HARK_SPLIT_VALIDATION), "-1", "[-1, 1e12]", NULL, NULL,
     "make: number of validation examples; -1: as many as the task usually has; 0: none", "$1 make"},
    {"test", "test", HARK_OPTION_INT, EXAMPLES(HARK_SPLIT_TEST), "-1", "[-1, 1e12]", NULL, NULL,
     "make: number of test examples; -1: as many as the task usually has; 0: none", "$1 make"},
    {"threads", "threads", HARK_OPTION_INT, AT(threads), "0", "[0, 4096]", NULL, NULL,
     "make: " HARK_THREADS_HELP "; the files do not depend on it", "$1 make"},
    {"format", "format", HARK_OPTION_STRING, AT(format), "", NULL, NULL, "NAME",
     "info, picture: format of the files; a folder of hark data make states its format itself", "$1 info|picture"},
    {"classes", "classes", HARK_OPTION_INT, AT(classes), "0", "[0, 65536]", NULL, NULL,
     "info: number of classes of formats text and pairs; 0: two classes", "$1 info"},
    {"text-field", "text-field", HARK_OPTION_STRING, AT(text_field), HARK_JSON_LINES_TEXT, NULL, NULL, "NAME",
     "info: member of JSON lines that contains the text", "$1 info"},
    {"label-field", "label-field", HARK_OPTION_STRING, AT(label_field), HARK_JSON_LINES_LABEL, NULL, NULL, "NAME",
     "info: member of JSON lines that contains the label", "$1 info"},
    {"quoted", "quoted", HARK_OPTION_BOOL, AT(quoted), "false", NULL, NULL, NULL,
     "info: fields of formats text and pairs may be quoted as in CSV", "$1 info"},
    {"validation-fraction", "validation-fraction", HARK_OPTION_FLOAT, AT(fraction), "0", "[0, 1)", NULL, NULL,
     "info, picture: fraction of the training examples that is used for validation", "$1 info|picture"},
    {"split", "split", HARK_OPTION_ENUM, AT(split), "training", "training|validation|test", NULL, NULL, "picture: which examples are drawn",
     "$1 picture"},
    {"count", "count", HARK_OPTION_INT, AT(count), "32", "[1, 10000]", NULL, NULL, "picture: number of images", "$1 picture"},
    {"columns", "columns", HARK_OPTION_INT, AT(columns), "8", "[1, 1000]", NULL, NULL, "picture: number of images in a row", "$1 picture"},
    {"scale", "scale", HARK_OPTION_INT, AT(scale), "3", "[1, 64]", NULL, NULL, "picture: number of points per pixel", "$1 picture"},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(data_values), false};

typedef enum verb { VERB_MAKE, VERB_INFO, VERB_PICTURE, VERBS } verb;
static const char *const verbs[VERBS] = {"make", "info", "picture"};

static verb verb_of(const hark_invocation *call) {
  int v = 0;
  while (v < VERBS && strcmp(hark_options_argument(call->options, 0), verbs[v]) != 0) v++;
  return (verb)v;
}

/* ---- options ---- */

static const char *generator_name(const void *user, int index) {
  (void)user;
  return hark_task_entries[index].name;
}

static hark_status check_make(hark_invocation *call, const hark_task_entry **entry) {
  const int count = hark_options_argument_count(call->options);
  const char *const name = count > 1 ? hark_options_argument(call->options, 1) : "";
  hark_text names = hark_text_empty(call->context);
  *entry = hark_task_find(name);
  for (int i = 0; i < hark_task_entry_count; i++) hark_text_append(&names, "%s%s", i > 0 ? ", " : "", hark_task_entries[i].name);
  const char *const near = count > 1 ? hark_nearest_word(name, hark_task_entry_count, generator_name, NULL) : NULL;
  hark_status status = names.status;
  if (status == HARK_OK && *entry == NULL)
    status = hark_options_complain(call->context, call->options, count > 1 ? name : "TASK", "%s, expected one of %s%s%s%s",
                                   count > 1 ? "unknown task" : "missing", hark_text_get(&names), near != NULL ? "; did you mean " : "",
                                   near != NULL ? near : "", near != NULL ? "?" : "");
  hark_text_free(&names);
  HARK_TRY(status);
  if (count > 2)
    HARK_TRY(hark_options_complain(call->context, call->options, hark_options_argument(call->options, 2), "make makes one task at a time"));
  return HARK_OK;
}

static hark_status check(hark_invocation *call) {
  const data_values *const v = call->values[0];
  const hark_task_entry *entry = NULL;
  if (hark_options_argument_count(call->options) == 0) return HARK_OK; /* reported by main */
  const verb what = verb_of(call);
  if (what == VERBS) return HARK_OK; /* the same */
  call->output_is_folder = what == VERB_MAKE;
  if (what == VERB_MAKE) HARK_TRY(check_make(call, &entry));
  if (what != VERB_MAKE && hark_options_argument_count(call->options) < 2)
    HARK_TRY(
        hark_options_complain(call->context, call->options, "PATH", "missing, expected files of examples, or a folder of hark data make"));
  if (what != VERB_INFO && v->out[0] == '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "out", "missing, expected %s", what == VERB_MAKE ? "a folder" : "a file"));
  if (what == VERB_PICTURE && call->json) HARK_TRY(hark_options_complain(call->context, call->options, "json", "a picture has none"));
  if (what == VERB_MAKE && v->examples[HARK_SPLIT_TRAINING] == 0)
    HARK_TRY(hark_options_complain(call->context, call->options, "training", "0, expected at least one example"));
  return HARK_OK;
}

/* ---- make ---- */

/* Short work needs no progress. */
#define QUIET_SECONDS 2.0

typedef struct make_view {
  hark_progress progress;
  double start;
} make_view;

static void show_progress(void *user, hark_split split, int64_t done, int64_t all) {
  make_view *const view = user;
  if (hark_progress_clock() - view->start < QUIET_SECONDS) return;
  hark_progress_part(&view->progress, (double)done / (double)all, "%s examples: %" PRId64 " of %" PRId64, hark_example_split_names[split],
                     done, all);
}

/* The struct of a task's options. */
static void *values_of(const hark_invocation *call, const hark_task_entry *entry) {
  int t = 1;
  while (call->command->tables[t] != entry->options) t++;
  return call->values[t];
}

/* task.json as one line: no text in it contains a line end. */
static hark_status print_line(hark_invocation *call, hark_text *report) {
  for (size_t i = 0; i + 1 < report->length; i++)
    if (report->data[i] == '\n') report->data[i] = ' ';
  return hark_command_print(call, report);
}

/* What the best prediction of a text costs. */
static void print_losses(const hark_task_settings *settings, hark_text *text) {
  hark_text_append(text, "optimal loss, nats per token:");
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    if (settings->examples[split] > 0)
      hark_text_append(text, "%s %.5f %s", split > 0 ? "," : "", settings->optimal_loss[split], hark_example_split_names[split]);
  hark_text_append(text, "; of a long document %.5f\n", settings->entry->generator->entropy_rate(settings->values));
}

static hark_status run_make(hark_invocation *call) {
  const data_values *const v = call->values[0];
  double optimal_loss[HARK_SPLIT_ALL] = {0};
  make_view view = {hark_progress_begin(), hark_progress_clock()};
  hark_text report = hark_text_empty(call->context), said = hark_text_empty(call->context);
  hark_task_settings settings = {.entry = hark_task_find(hark_options_argument(call->options, 1)),
                                 .folder = v->out,
                                 .seed = (uint64_t)v->seed,
                                 .optimal_loss = optimal_loss,
                                 .progress = show_progress,
                                 .progress_user = &view};
  settings.values = values_of(call, settings.entry);
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    settings.examples[split] = v->examples[split] >= 0 ? v->examples[split] : settings.entry->generator->examples[split];
  hark_status status = hark_task_make(call->context, &settings, &report);
  hark_progress_end(&view.progress);
  if (status == HARK_OK && call->json) return print_line(call, &report);
  hark_text_free(&report);
  HARK_TRY(status);
  hark_text_append(&said, "%s:", v->out);
  for (int split = 0; split < HARK_SPLIT_ALL; split++)
    if (settings.examples[split] > 0) hark_text_append(&said, " %" PRId64 " %s", settings.examples[split], hark_example_split_names[split]);
  hark_text_append(&said, " examples of %s\n", settings.entry->name);
  if (settings.entry->generator->entropy_rate != NULL) print_losses(&settings, &said);
  return hark_command_print(call, &said);
}

/* ---- info and picture ---- */

/* The format may be that of a folder, so that options it lacks are known only now. */
static hark_status refuse_idle(const hark_invocation *call, const char *format, const char *const *paths, int count) {
  static const struct {
    const char *option, *formats, *shown;
    bool quoted;
  } needs[] = {
      {"text-field", "text", "text", false}, {"label-field", "text", "text", false}, {"quoted", "text|pairs", "text or pairs", true}};
  hark_line_kinds kinds = {false, false};
  hark_json_lines_find(paths, count, &kinds);
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    if (!hark_command_is_given(call, needs[i].option)) continue;
    if (hark_option_choice(needs[i].formats, format) < 0)
      return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--%s: has no effect here, it needs --format %s (currently %s)",
                       needs[i].option, needs[i].shown, format);
    const char *const idle = hark_json_lines_idle(&kinds, needs[i].quoted);
    if (idle != NULL) return hark_fail(call->context, HARK_BAD_CONFIGURATION, "--%s: has no effect here, %s", needs[i].option, idle);
  }
  return HARK_OK;
}

static hark_status open_examples(hark_invocation *call, hark_examples **out) {
  enum { PATHS = 256 };
  const data_values *const v = call->values[0];
  const char *paths[PATHS];
  const int count = hark_options_argument_count(call->options) - 1;
  *out = NULL;
  if (count > PATHS) return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%d paths, expected at most %d", count, PATHS);
  for (int i = 0; i < count; i++) paths[i] = hark_options_argument(call->options, i + 1);
  const hark_examples_settings settings = {.format = v->format,
                                           .paths = paths,
                                           .path_count = count,
                                           .validation_fraction = v->fraction,
                                           .divides = v->fraction > 0,
                                           .classes = (int32_t)v->classes,
                                           .text_field = v->text_field,
                                           .label_field = v->label_field,
                                           .quoted = v->quoted};
  HARK_TRY(hark_examples_open(call->context, &settings, out));
  const hark_status status = refuse_idle(call, hark_examples_format(*out), paths, count);
  if (status != HARK_OK) hark_examples_close(call->context, out);
  return status;
}

static hark_status run_info(hark_invocation *call) {
  hark_examples *examples;
  hark_text text = hark_text_empty(call->context);
  HARK_TRY(open_examples(call, &examples));
  const hark_status status = hark_data_print_info(call->context, examples, call->json, &text);
  hark_examples_close(call->context, &examples);
  if (status == HARK_OK) return hark_command_print(call, &text);
  hark_text_free(&text);
  return status;
}

static hark_status run_picture(hark_invocation *call) {
  const data_values *const v = call->values[0];
  const hark_data_sheet sheet = {(hark_split)v->split, v->count, v->columns, v->scale};
  hark_examples *examples;
  hark_text text = hark_text_empty(call->context);
  HARK_TRY(open_examples(call, &examples));
  hark_status status = hark_data_print_sheet(call->context, examples, &sheet, &text);
  hark_examples_close(call->context, &examples);
  if (status == HARK_OK) status = hark_path_clean(call->context, v->out);
  if (status == HARK_OK) status = hark_file_write(call->context, v->out, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static hark_status run(hark_invocation *call) {
  const data_values *const v = call->values[0];
  static hark_status (*const runs[VERBS])(hark_invocation *) = {run_make, run_info, run_picture};
  HARK_TRY(hark_command_open(call, "reference", v->threads, (uint64_t)v->seed, true));
  return runs[verb_of(call)](call);
}

#define TASK_TABLE(id, name, number, table) &hark_task_##table##_options,
#define TASK_NAME(id, name, number, table) " " name
#define FORMAT_NAME(id, name) " " name

const hark_command hark_command_data = {
    .name = "data",
    .arguments = "make TASK | info PATH... | picture PATH...",
    .words = "make|info|picture",
    .summary = "make labelled tasks and texts, describe examples, draw images of them",
    .notes =
        "  hark data make listops --out listops                   nested operations, 96,000 + 2,000 + 2,000\n"
        "  hark data make pathfinder --size 32 --out pathfinder   images of two discs and dashed paths\n"
        "  hark data make recall --length 512 --pairs 16 --out recall\n"
        "  hark data make periodic-text --kind period --period 12 --out text      texts for hark train --data text/training.txt\n"
        "  hark data info listops\n"
        "  hark data info --format text reviews.tsv.gz            compressed files are unpacked; - is standard input\n"
        "  hark data picture pathfinder --out sheet.svg\n"
        "\n"
        "  An option whose explanation begins with a name and a colon, such as 'make:' or 'listops:', is only for this action or task.\n"
        "  Tasks:" HARK_TASK_GENERATORS(TASK_NAME) "\n"
        "  Formats:" HARK_EXAMPLE_FORMATS(FORMAT_NAME) ". docs/tasks.md\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .has_json = true,
    .tables = {&table, HARK_TASK_GENERATORS(TASK_TABLE)},
    .check = check,
    .run = run,
};

/* plot.c - hark plot: loss curves of runs, learned positions of a run, or evaluations at several contexts, as a picture by gnuplot or in
 * letters. */
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/gnuplot.h"
#include "cli/metrics.h"
#include "cli/plot/plot_evaluation.h"
#include "cli/plot/plot_positional.h"

#define TERMINAL_ROWS 22
#define SERIES_LIMIT 64

typedef struct plot_values {
  const char *output, *checkpoint;
  bool png, terminal, logarithmic, positional, evaluation;
  hark_string_list metrics;
  int x;
  int64_t distances;
} plot_values;

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(plot_values, output), "", NULL, NULL, "FILE",
     "the picture; none: loss.svg (positional.svg) in the run's folder, or in the current folder for several runs and where the run's "
     "folder cannot be written; evaluation.svg in the current folder",
     "terminal false"},
    {"png", NULL, HARK_OPTION_BOOL, offsetof(plot_values, png), "false", NULL, NULL, NULL,
     "PNG instead of SVG, if the picture's name does not end with .svg or .png", "terminal false"},
    {"terminal", NULL, HARK_OPTION_BOOL, offsetof(plot_values, terminal), "false", NULL, NULL, NULL,
     "draw on the terminal, without gnuplot", NULL},
    {"metric", "metric m", HARK_OPTION_LIST, offsetof(plot_values, metrics), "", NULL, NULL, "NAME",
     "what to draw, may be repeated; none: train/loss and val/loss", "positional false, evaluation false"},
    {"x", "over", HARK_OPTION_ENUM, offsetof(plot_values, x), "step", "step|tokens|time", NULL, NULL, "the horizontal axis",
     "positional false, evaluation false"},
    {"log", NULL, HARK_OPTION_BOOL, offsetof(plot_values, logarithmic), "false", NULL, NULL, NULL, "logarithmic vertical axis",
     "positional false, terminal false"},
    {"positional", NULL, HARK_OPTION_BOOL, offsetof(plot_values, positional), "false", NULL, NULL, NULL,
     "draw the positional kernels of a checkpoint, log G over the distance, in total and term by term, and its learned rotary rates", NULL},
    {"evaluation", NULL, HARK_OPTION_BOOL, offsetof(plot_values, evaluation), "false", NULL, NULL, NULL,
     "draw evaluations from files of JSON that hark eval printed: loss over context, and over the position in the window", NULL},
    {"distances", NULL, HARK_OPTION_INT, offsetof(plot_values, distances), "0", "[0, 16777216]", NULL, NULL,
     "largest distance that --positional draws; 0: the model's context", "positional true"},
    {"checkpoint", NULL, HARK_OPTION_STRING, offsetof(plot_values, checkpoint), "", NULL, NULL, "NAME",
     "checkpoint whose kernels --positional draws: best, last or step-N; none: best, or else last", "positional true"},
};
static const hark_option_table table = {options, (int)(sizeof options / sizeof options[0]), NULL, sizeof(plot_values), false};
static const char *const x_words[] = {"step", "tokens", "time"};

/* The name determines the kind of picture; a flag that contradicts it is refused. */
static hark_status choose_kind(hark_invocation *call, plot_values *values) {
  const char *const ending = strrchr(values->output, '.');
  if (ending == NULL) return HARK_OK;
  if (strcmp(ending, ".png") == 0) values->png = true;
  if (strcmp(ending, ".svg") != 0 || !values->png) return HARK_OK;
  return hark_options_complain(call->context, call->options, "png", "the name %s requires an SVG", values->output);
}

static void print_script(const plot_values *values, const hark_series *series, int count, hark_picture *picture) {
  hark_text *script = &picture->script;
  hark_text_append(script, "set grid\nset key top right\nset xlabel '%s'\nset ylabel ", x_words[values->x]);
  hark_picture_append_quoted(script, values->metrics.count == 1 ? values->metrics.items[0] : "loss (nats)");
  hark_text_append(script, "\n");
  if (values->logarithmic) hark_text_append(script, "set logscale y\n");
  hark_text_append(script, "plot ");
  for (int i = 0, drawn = 0; i < count; i++) {
    if (series[i].count == 0) continue;
    if (drawn++ > 0) hark_text_append(script, ", \\\n    ");
    hark_picture_append_curve(picture, drawn - 1, series[i].count > 50 ? "lines lw 2" : "linespoints lw 2", series[i].label);
  }
  hark_text_append(script, "\n");
}

/* The requested picture, or `name` in the run's folder; in the current folder for several runs, or if the run's folder cannot be
 * written. */
static hark_status picture_path(const hark_invocation *call, const plot_values *values, const char *name, char *out) {
  const char *const run = hark_options_argument(call->options, 0);
  const bool alone =
      hark_options_argument_count(call->options) == 1 && hark_path_kind_of(run) == HARK_PATH_FOLDER && access(run, W_OK) == 0;
  return hark_path_join(call->context, values->output[0] == 0 && alone ? run : "", values->output[0] != 0 ? values->output : name, out);
}

static hark_status draw_picture(hark_invocation *call, const plot_values *values, const hark_series *series, int count) {
  char path[HARK_PATH_BYTES];
  hark_picture picture;
  HARK_TRY(picture_path(call, values, values->png ? "loss.png" : "loss.svg", path));
  HARK_TRY(hark_picture_begin(call->context, path, values->png, 1000, 600, &picture));
  for (int i = 0; i < count; i++) /* gnuplot ignores a block without points, which would shift the indices after it */
    if (series[i].count > 0) hark_picture_add_curve(&picture, series[i].label, series[i].points, series[i].count);
  print_script(values, series, count, &picture);
  return hark_picture_finish(call, &picture);
}

static hark_status draw_letters(hark_invocation *call, const plot_values *values, const hark_series *series, int count) {
  hark_text text = hark_text_empty(call->context);
  hark_series_draw(series, count, x_words[values->x], false, hark_terminal_columns(), TERMINAL_ROWS, &text);
  return hark_command_print(call, &text);
}

static hark_status draw_evaluations(hark_invocation *call, const plot_values *values) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(picture_path(call, values, values->png ? "evaluation.png" : "evaluation.svg", path));
  const hark_evaluation_plot plot = {.picture = values->terminal ? NULL : path,
                                     .png = values->png,
                                     .logarithmic = values->logarithmic,
                                     .columns = hark_terminal_columns(),
                                     .rows = TERMINAL_ROWS};
  return hark_plot_evaluation(call, &plot);
}

static hark_status draw_kernels(hark_invocation *call, const plot_values *values) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(picture_path(call, values, values->png ? "positional.png" : "positional.svg", path));
  const hark_positional_plot plot = {.model = hark_options_argument(call->options, 0),
                                     .checkpoint = values->checkpoint,
                                     .distances = values->distances,
                                     .picture = values->terminal ? NULL : path,
                                     .png = values->png,
                                     .columns = hark_terminal_columns(),
                                     .rows = TERMINAL_ROWS};
  return hark_plot_positional(call, &plot);
}

/* Reads all curves, also those without points. */
static hark_status read_all(hark_invocation *call, const plot_values *values, hark_series *series, int *count) {
  static const char *const losses[] = {"train/loss", "val/loss"};
  const char *const *const metrics = values->metrics.count > 0 ? values->metrics.items : losses;
  const int64_t metric_count = values->metrics.count > 0 ? values->metrics.count : 2;
  const int runs = hark_options_argument_count(call->options);
  if (runs * metric_count > SERIES_LIMIT) return hark_fail(call->context, HARK_BAD_CONFIGURATION, "more than %d curves", SERIES_LIMIT);
  int64_t points = 0;
  for (int run = 0; run < runs; run++) {
    for (int64_t m = 0; m < metric_count; m++) {
      hark_series *const one = &series[(*count)++];
      HARK_TRY(hark_series_read(call->context, hark_options_argument(call->options, run), x_words[values->x], metrics[m], one));
      points += one->count;
    }
  }
  if (points == 0)
    return hark_fail(call->context, HARK_BAD_FILE, "%s: no points of %s", hark_options_argument(call->options, 0), metrics[0]);
  return HARK_OK;
}

static hark_status run(hark_invocation *call) {
  const plot_values *const values = call->values[0];
  hark_context *const context = call->context;
  void *memory;
  if (values->positional) return draw_kernels(call, values);
  if (values->evaluation) return draw_evaluations(call, values);
  HARK_TRY(hark_allocate_zero(context, SERIES_LIMIT * sizeof(hark_series), &memory));
  hark_series *const series = memory;
  int count = 0;
  hark_status status = read_all(call, values, series, &count);
  if (status == HARK_OK) status = values->terminal ? draw_letters(call, values, series, count) : draw_picture(call, values, series, count);
  for (int i = 0; i < count; i++) hark_series_free(context, &series[i]);
  hark_release(context, memory, SERIES_LIMIT * sizeof(hark_series));
  return status;
}

static hark_status check(hark_invocation *call) {
  plot_values *const values = call->values[0];
  HARK_TRY(choose_kind(call, values));
  if (values->positional && values->evaluation)
    return hark_options_complain(call->context, call->options, "evaluation", "cannot be combined with --positional");
  if (values->positional && hark_options_argument_count(call->options) > 1)
    HARK_TRY(hark_options_complain(call->context, call->options, "positional", "draws the kernels of one run"));
  return HARK_OK;
}

const hark_command hark_command_plot = {
    .name = "plot",
    .arguments = "RUN|FILE...",
    .summary = "draw the loss curves of runs, evaluations at several contexts, or the positional kernels that a run has learned",
    .notes =
        "  RUN is the folder of a run, or a file like its metrics.jsonl; with --positional a run, a checkpoint or a model's file; with\n  "
        "--evaluation a file of JSON that hark eval printed, one line for each run and context (hark eval --help).\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .tables = {&table},
    .check = check,
    .run = run,
};

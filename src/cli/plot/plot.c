/* plot.c - hark plot: loss curves of runs, learned positions of a run, or evaluations at several contexts, as a picture by gnuplot or in
 * letters. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/gnuplot.h"
#include "cli/metric_names.h"
#include "cli/metrics.h"
#include "cli/plot/plot_evaluation.h"
#include "cli/plot/plot_positional.h"

#define TERMINAL_ROWS 22
#define SERIES_LIMIT 64
#define KEY_HEIGHT 24 /* of an entry of the key, below the curves */

typedef struct plot_values {
  const char *output, *checkpoint;
  bool png, terminal, logarithmic, positional, evaluation;
  hark_string_list metrics;
  int x;
  int64_t distances;
} plot_values;

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(plot_values, output), "", NULL, NULL, "FILE",
     "the figure; not given: loss.svg, positional.svg or evaluation.svg; for a single run it is written to the run's folder if that is "
     "possible, otherwise to the current folder",
     "terminal false"},
    {"png", NULL, HARK_OPTION_BOOL, offsetof(plot_values, png), "false", NULL, NULL, NULL,
     "PNG instead of SVG, if the name of the figure does not end with .svg or .png", "terminal false"},
    {"terminal", NULL, HARK_OPTION_BOOL, offsetof(plot_values, terminal), "false", NULL, NULL, NULL,
     "draw on the terminal, without gnuplot", NULL},
    {"metric", "metric m", HARK_OPTION_LIST, offsetof(plot_values, metrics), "", NULL, NULL, "NAME",
     "metric to draw; may be repeated; not given: train/loss and val/loss", "positional false, evaluation false"},
    {"x", "over", HARK_OPTION_ENUM, offsetof(plot_values, x), "step", "step|tokens|time", NULL, NULL, "the horizontal axis",
     "positional false, evaluation false"},
    {"log", NULL, HARK_OPTION_BOOL, offsetof(plot_values, logarithmic), "false", NULL, NULL, NULL, "logarithmic vertical axis",
     "positional false, terminal false"},
    {"positional", NULL, HARK_OPTION_BOOL, offsetof(plot_values, positional), "false", NULL, NULL, NULL,
     "draw the positional kernels of a checkpoint and its learned rotary rates; the figure of a kernel G has log G over the distance, in "
     "total and term by term",
     NULL},
    {"evaluation", NULL, HARK_OPTION_BOOL, offsetof(plot_values, evaluation), "false", NULL, NULL, NULL,
     "draw evaluations from files of JSON that hark eval printed: the loss over the context, and over the "
     "position in the window",
     NULL},
    {"distances", NULL, HARK_OPTION_INT, offsetof(plot_values, distances), "0", "[0, 16777216]", NULL, NULL,
     "largest distance that --positional draws; 0: the model's context", "positional true"},
    {"checkpoint", NULL, HARK_OPTION_STRING, offsetof(plot_values, checkpoint), "", NULL, NULL, "NAME",
     "checkpoint whose kernels --positional draws: best, last or step-N; not given: best, or last if there is no best", "positional true"},
};
static const hark_option_table table = {options, (int)(sizeof options / sizeof options[0]), NULL, sizeof(plot_values), false};
#define OVER_TOKENS 1 /* of the words below */
static const char *const x_words[] = {"step", "tokens", "time"};

/* The name determines the kind of picture; a flag that contradicts it is refused. */
static hark_status choose_kind(hark_invocation *call, plot_values *values) {
  const char *const ending = strrchr(values->output, '.');
  if (ending == NULL) return HARK_OK;
  if (strcmp(ending, ".png") == 0) values->png = true;
  if (strcmp(ending, ".svg") != 0 || !values->png) return HARK_OK;
  return hark_options_complain(call->context, call->options, "png", "the name %s requires an SVG", values->output);
}

static const char *const losses[] = {"train/loss", "val/loss"};
static const char *const *metrics_of(const plot_values *values) { return values->metrics.count > 0 ? values->metrics.items : losses; }
static int metric_count(const plot_values *values) { return values->metrics.count > 0 ? (int)values->metrics.count : 2; }

/* ---- seeds: runs with the names that hark sweep gives them, NAME-seed=1, NAME-seed=2, are one group ---- */

#define SEED_MARK "-seed="

/* Length of NAME, or of the whole name. */
static size_t group_length(const char *run) {
  const char *mark = NULL;
  for (const char *at = run; (at = strstr(at, SEED_MARK)) != NULL; at++) mark = at;
  if (mark == NULL) return strlen(run);
  const char *const seed = mark + sizeof SEED_MARK - 1;
  const size_t digits = strspn(seed, "0123456789"), rest = strspn(seed + digits, "/");
  return digits > 0 && seed[digits + rest] == '\0' ? (size_t)(mark - run) : strlen(run);
}

static bool is_one_group(const char *a, const char *b) {
  const size_t length = group_length(a);
  return a[length] != '\0' && b[group_length(b)] != '\0' && length == group_length(b) && memcmp(a, b, length) == 0;
}

/* The place of a run's group among the groups. *name is set to that of the group, or "" if an earlier run has it already. */
static int group_of(const hark_invocation *call, int run, char name[HARK_PATH_BYTES]) {
  const int runs = hark_options_argument_count(call->options);
  const char *const own = hark_options_argument(call->options, run);
  int group = 0, members = 1, before = 0, first = run;
  for (int other = 0; other < runs; other++) {
    if (other == run || !is_one_group(own, hark_options_argument(call->options, other))) continue;
    members++;
    before += other < run;
    if (other < first) first = other;
  }
  for (int i = 0; i < first; i++) {
    bool is_new = true;
    for (int j = 0; j < i; j++)
      if (is_one_group(hark_options_argument(call->options, i), hark_options_argument(call->options, j))) is_new = false;
    group += is_new;
  }
  const size_t length = members > 1 ? group_length(own) : strlen(own);
  (void)snprintf(name, HARK_PATH_BYTES, "%.*s", before == 0 ? (int)length : 0, own);
  return group;
}

/* Curves of one run, and of its seeds, have one colour; of several metrics the last one is solid, the others have dashes. More than two
 * metrics of a single run have colours of their own. */
static void print_curve(int run, int runs, int metric, int metrics, const hark_series *one, const char *title, hark_picture *picture,
                        int index) {
  char style[96], color[HARK_COLOR_BYTES];
  const bool colored = metrics == 1 || (runs == 1 && metrics > 2);
  const hark_line_look look = colored ? hark_picture_line_look(run * metrics + metric) : (hark_line_look){run, metrics - metric};
  (void)snprintf(style, sizeof style, "%s lw %s dt %d lc rgb '%s'", one->count > 50 ? "lines" : "linespoints pt 7 ps 0.4",
                 colored || metrics - metric == 1 ? "2" : "1.2", look.dashes, hark_picture_color(look.color, color));
  hark_picture_append_curve(picture, index, style, title);
}

/* The unit of losses, if all metrics are losses; the name of a single metric; nothing for several quantities, which the key names. */
static const char *vertical_label(const plot_values *values) {
  const char *const *const metrics = metrics_of(values);
  bool losses_only = true;
  for (int m = 0; m < metric_count(values); m++) {
    const char *const slash = strrchr(metrics[m], '/');
    losses_only = losses_only && strcmp(slash != NULL ? slash + 1 : metrics[m], "loss") == 0;
  }
  return metric_count(values) == 1 ? metrics[0] : losses_only ? "loss (nats)" : "";
}

/* The key leaves the folders out that all runs have in common. */
static size_t common_folders(const hark_invocation *call) {
  const char *const first = hark_options_argument(call->options, 0);
  size_t common = strlen(first);
  for (int run = 0; run < hark_options_argument_count(call->options); run++)
    common = hark_path_common(first, common, hark_options_argument(call->options, run));
  return common;
}

static void print_axes(const plot_values *values, const hark_series *series, int count, hark_text *script) {
  hark_text_append(script, "set grid\nset autoscale xfix\nset key below vertical maxcols 1 left Left reverse\nset xlabel '%s'\nset ylabel ",
                   x_words[values->x]);
  hark_picture_append_quoted(script, vertical_label(values));
  hark_text_append(script, "\n%s", values->x == OVER_TOKENS ? "set format x '%.1s%c'\n" : ""); /* 2.0M */
  if (values->logarithmic) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < count; i++) hark_picture_extend(series[i].points, series[i].count, 'y', &low, &high);
    hark_picture_append_log_axis(script, 'y', low, high);
  }
  double x[2], y[2];
  hark_series_ranges(series, count, x, y);
  (void)hark_picture_append_single(script, 'x', x[0], x[1]);
  if (values->logarithmic)
    (void)hark_picture_append_single(script, 'y', y[0], y[1]);
  else
    hark_picture_append_range(script, 'y', y[0], y[1]);
  hark_text_append(script, "plot ");
}

/* Entries of the key for the dashes of a comparison, in no run's colour. */
static void print_dashes(const char *const *metrics, int count, hark_text *script) {
  for (int m = 0; m < count; m++) {
    hark_text_append(script, ", \\\n    NaN with lines lw %s dt %d lc rgb 'black' title ", m + 1 == count ? "2" : "1.2", count - m);
    hark_picture_append_quoted(script, metrics[m]);
  }
}

/* The last curve of a run that has points. */
static int named_curve(const hark_series *series, int metrics) {
  int last = -1;
  for (int m = 0; m < metrics; m++)
    if (series[m].count > 0) last = m;
  return last;
}

/* In a comparison the key has an entry for each run, or for each group of seeds, and one for each kind of line where there are several
 * metrics. The axis names a single metric. Of one run each curve has an entry. */
static void print_script(const hark_invocation *call, const plot_values *values, const hark_series *series, hark_picture *picture) {
  const int runs = hark_options_argument_count(call->options), metrics = metric_count(values);
  const bool apart = runs > 1 && metrics > 1;
  const size_t common = runs > 1 ? common_folders(call) : 0;
  int drawn = 0;
  print_axes(values, series, runs * metrics, &picture->script);
  for (int i = 0; i < runs * metrics; i++) {
    char name[HARK_PATH_BYTES];
    const int run = i / metrics, metric = i % metrics, group = group_of(call, run, name);
    const bool named = metric == named_curve(&series[i - metric], metrics);
    if (series[i].count == 0) continue;
    if (drawn > 0) hark_text_append(&picture->script, ", \\\n    ");
    print_curve(group, runs, metric, metrics, &series[i],
                runs == 1                  ? metrics_of(values)[metric]
                : named && name[0] != '\0' ? name + common
                                           : "",
                picture, drawn++);
  }
  if (apart) print_dashes(metrics_of(values), metrics, &picture->script);
  hark_text_append(&picture->script, "\n");
}

/* The requested picture, or `name` in the run's folder; in the current folder for several runs, or if the run's folder cannot be
 * written. */
static hark_status picture_path(const hark_invocation *call, const plot_values *values, const char *name, char *out) {
  const char *const run = hark_options_argument(call->options, 0);
  const bool alone =
      hark_options_argument_count(call->options) == 1 && hark_path_kind_of(run) == HARK_PATH_FOLDER && access(run, W_OK) == 0;
  if (values->output[0] != 0) return hark_path_join(call->context, "", values->output, out);
  HARK_TRY(hark_path_join(call->context, alone ? run : "", name, out));
  return values->terminal ? HARK_OK : hark_picture_check_place(call->context, out, "-o FILE names another place");
}

/* Of print_script(), at most. */
static int key_entries(const hark_invocation *call, int metrics) {
  const int runs = hark_options_argument_count(call->options);
  int groups = 0;
  for (int run = 0; run < runs; run++) {
    char name[HARK_PATH_BYTES];
    (void)group_of(call, run, name);
    groups += name[0] != '\0';
  }
  return runs > 1 && metrics > 1 ? groups + metrics : groups * metrics;
}

static hark_status draw_picture(hark_invocation *call, const plot_values *values, const hark_series *series, int count) {
  char path[HARK_PATH_BYTES];
  hark_picture picture;
  HARK_TRY(picture_path(call, values, values->png ? "loss.png" : "loss.svg", path));
  const int metrics = metric_count(values), entries = key_entries(call, metrics);
  HARK_TRY(hark_picture_begin(call->context, path, values->png, 1000, 560 + KEY_HEIGHT * entries, &picture));
  for (int i = 0; i < count; i++) /* gnuplot ignores a block without points, which would shift the indices after it */
    if (series[i].count > 0) hark_picture_add_curve(&picture, series[i].label, series[i].points, series[i].count);
  print_script(call, values, series, &picture);
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

/* Refuses a --metric that none of the runs has; their names are read only where one has no points. */
static hark_status require_metrics(const hark_invocation *call, const plot_values *values, const hark_series *series) {
  const int runs = hark_options_argument_count(call->options);
  const int64_t kinds = values->metrics.count;
  for (int64_t m = 0; m < kinds; m++) {
    json_t *names = NULL;
    hark_status status = HARK_OK;
    int64_t points = 0;
    for (int run = 0; run < runs; run++) points += series[run * kinds + m].count;
    for (int run = 0; points == 0 && run < runs && status == HARK_OK; run++)
      status = hark_metric_names_add(call->context, hark_options_argument(call->options, run), &names);
    if (status == HARK_OK)
      status = hark_metric_names_require(call->context, names, HARK_BAD_CONFIGURATION, "--metric: ", values->metrics.items[m]);
    json_decref(names);
    HARK_TRY(status);
  }
  return HARK_OK;
}

/* Reads all curves, also those without points. */
static hark_status read_all(hark_invocation *call, const plot_values *values, hark_series *series, int *count) {
  const char *const *const metrics = metrics_of(values);
  const int kinds = metric_count(values), runs = hark_options_argument_count(call->options);
  if ((int64_t)runs * kinds > SERIES_LIMIT)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION,
                     "%d runs with %d metrics are %" PRId64 " curves, expected at most %d: fewer runs, or one --metric", runs, kinds,
                     (int64_t)runs * kinds, SERIES_LIMIT);
  int64_t points = 0;
  for (int run = 0; run < runs; run++) {
    for (int m = 0; m < kinds; m++) {
      hark_series *const one = &series[(*count)++];
      HARK_TRY(hark_series_read(call->context, hark_options_argument(call->options, run), x_words[values->x], metrics[m], one));
      points += one->count;
    }
  }
  HARK_TRY(require_metrics(call, values, series));
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

static hark_status refuse_equal_metrics(hark_invocation *call, const hark_string_list *metrics) {
  for (int64_t i = 0; i < metrics->count; i++)
    for (int64_t j = 0; j < i; j++)
      if (strcmp(metrics->items[i], metrics->items[j]) == 0)
        return hark_options_complain(call->context, call->options, "metric", "%s is given twice", metrics->items[i]);
  return HARK_OK;
}

static hark_status check(hark_invocation *call) {
  plot_values *const values = call->values[0];
  HARK_TRY(choose_kind(call, values));
  HARK_TRY(refuse_equal_metrics(call, &values->metrics));
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
        "  RUN is the folder of a run, or a file like its metrics.jsonl. With --positional it is a run, a checkpoint or a model's file.\n"
        "  With --evaluation it is a file of JSON that hark eval printed, with one line for each run and context (hark eval --help).\n"
        "  Runs NAME-seed=1, NAME-seed=2, ..., as hark sweep names them, have one colour and one entry in the legend.\n"
        "  A run that is named twice is drawn once.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .tables = {&table},
    .check = check,
    .run = run,
};

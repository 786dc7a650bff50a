/* plot.c - hark plot: loss curves of runs, by gnuplot as a picture or by ourselves in letters.
 *
 * gnuplot is given a data file and a script beside the picture; both are removed when the picture is there, and left, with a word about
 * it, when gnuplot is not. It is started without a shell.
 */
#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/metrics.h"
#include "io/number.h"

#define TERMINAL_COLUMNS 80
#define TERMINAL_ROWS 22
#define SERIES_LIMIT 64

extern char **environ;

typedef struct plot_values {
  const char *output;
  bool png, terminal, logarithmic;
  hark_string_list metrics;
  int x;
} plot_values;

static const hark_option options[] = {
    {"output", "output o", HARK_OPTION_STRING, offsetof(plot_values, output), "", NULL, NULL, "FILE",
     "the picture; none: loss.svg in the run's folder, or here for several runs"},
    {"png", NULL, HARK_OPTION_BOOL, offsetof(plot_values, png), "false", NULL, NULL, NULL, "PNG instead of SVG"},
    {"terminal", NULL, HARK_OPTION_BOOL, offsetof(plot_values, terminal), "false", NULL, NULL, NULL,
     "draw on the terminal, without gnuplot"},
    {"metric", "metric m", HARK_OPTION_LIST, offsetof(plot_values, metrics), "", NULL, NULL, "NAME",
     "what to draw, may be repeated; none: train/loss and val/loss"},
    {"x", "over", HARK_OPTION_ENUM, offsetof(plot_values, x), "step", "step|tokens|time", NULL, NULL, "what it is drawn over"},
    {"log", NULL, HARK_OPTION_BOOL, offsetof(plot_values, logarithmic), "false", NULL, NULL, NULL, "logarithmic vertical axis"},
};
static const hark_option_table table = {options, (int)(sizeof options / sizeof options[0]), NULL, sizeof(plot_values), false};
static const char *const x_words[] = {"step", "tokens", "time"};

/* Text in gnuplot's single quotes. */
static void append_quoted(hark_text *text, const char *value) {
  hark_text_append_bytes(text, "'", 1);
  for (const char *at = value; *at != 0; at++) {
    if (*at == '\'') hark_text_append_bytes(text, "'", 1);
    if (*at != '\n') hark_text_append_bytes(text, at, 1);
  }
  hark_text_append_bytes(text, "'", 1);
}

/* One block of "x y" lines a curve, two empty lines between them. */
static void print_data(const hark_series *series, int count, hark_text *text) {
  char x[HARK_NUMBER_BYTES], y[HARK_NUMBER_BYTES];
  for (int i = 0; i < count; i++) {
    hark_text_append(text, "%s# %s\n", i > 0 ? "\n\n" : "", series[i].label);
    for (int64_t p = 0; p < series[i].count; p++) {
      hark_text_append(text, "%s %s\n", hark_number_print(series[i].points[2 * p], x), hark_number_print(series[i].points[2 * p + 1], y));
    }
  }
}

static void print_script(const plot_values *values, const hark_series *series, int count, const char *picture, const char *data,
                         hark_text *text) {
  hark_text_append(text, "set terminal %s noenhanced\nset output ",
                   values->png ? "png size 1000,600" : "svg size 1000,600 background 'white'");
  append_quoted(text, picture);
  hark_text_append(text, "\nset grid\nset key top right\nset xlabel '%s'\nset ylabel '%s'\n", x_words[values->x],
                   values->metrics.count == 1 ? values->metrics.items[0] : "loss (nats)");
  if (values->logarithmic) hark_text_append(text, "set logscale y\n");
  hark_text_append(text, "plot");
  for (int i = 0, drawn = 0; i < count; i++) {
    if (series[i].count == 0) continue;
    hark_text_append(text, "%s ", drawn++ > 0 ? ", \\\n    " : "");
    append_quoted(text, data);
    hark_text_append(text, " index %d with %s lw 2 title ", i, series[i].count > 50 ? "lines" : "linespoints");
    append_quoted(text, series[i].label);
  }
  hark_text_append(text, "\n");
}

/* Runs gnuplot on a script. *there is false when there is no gnuplot to run. */
static hark_status run_gnuplot(hark_context *context, const char *script, bool *there) {
  char name[] = "gnuplot";
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, script[0] == '-' ? "." : "", script, path)); /* a name with a dash is no flag */
  char *const arguments[] = {name, path, NULL};
  pid_t process;
  const int error = posix_spawnp(&process, name, NULL, NULL, arguments, environ);
  *there = error == 0;
  if (error == ENOENT) return HARK_OK;
  if (error != 0) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be started (error %d)", error);
  int result;
  while (waitpid(process, &result, 0) < 0) {
    if (errno != EINTR) return hark_fail(context, HARK_IO_ERROR, "gnuplot: cannot be waited for");
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 127) *there = false; /* where spawning reports it so */
  if (*there && result != 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "gnuplot failed on %s; it and the data beside it were left", script);
  return HARK_OK;
}

static hark_status write_text(hark_context *context, const char *path, hark_text *text) {
  hark_status status = text->status;
  if (status == HARK_OK) status = hark_file_write(context, path, hark_text_get(text), text->length);
  hark_text_free(text);
  return status;
}

static hark_status beside(hark_context *context, const char *picture, const char *ending, char *out) {
  const int used = snprintf(out, HARK_PATH_BYTES, "%s%s", picture, ending);
  if (used >= 0 && used < HARK_PATH_BYTES) return HARK_OK;
  return hark_fail(context, HARK_TOO_LARGE, "%.64s...: path too long", picture);
}

static hark_status draw_picture(hark_invocation *call, const plot_values *values, const hark_series *series, int count) {
  hark_context *const context = call->context;
  char picture[HARK_PATH_BYTES], data[HARK_PATH_BYTES], script[HARK_PATH_BYTES];
  const char *const name = values->png ? "loss.png" : "loss.svg", *const run = hark_options_argument(call->options, 0);
  const bool alone = hark_options_argument_count(call->options) == 1 && hark_path_kind_of(run) == HARK_PATH_FOLDER;
  HARK_TRY(hark_path_join(context, values->output[0] == 0 && alone ? run : "", values->output[0] != 0 ? values->output : name, picture));
  HARK_TRY(beside(context, picture, ".dat", data));
  HARK_TRY(beside(context, picture, ".gp", script));
  hark_text text = hark_text_empty(context);
  print_data(series, count, &text);
  HARK_TRY(write_text(context, data, &text));
  print_script(values, series, count, picture, data, &text);
  HARK_TRY(write_text(context, script, &text));
  bool there;
  HARK_TRY(run_gnuplot(context, script, &there));
  if (!there) {
    hark_command_warn(call, "gnuplot is not installed (Debian: gnuplot-nox); left %s and %s: gnuplot %s makes the picture", data, script,
                      script);
    return HARK_OK;
  }
  HARK_TRY(hark_file_remove(context, data));
  HARK_TRY(hark_file_remove(context, script));
  hark_text_append(&text, "%s\n", picture);
  return hark_command_print(call, &text);
}

static hark_status draw_letters(hark_invocation *call, const plot_values *values, const hark_series *series, int count) {
  struct winsize size;
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  hark_text text = hark_text_empty(call->context);
  hark_series_draw(series, count, x_words[values->x], known ? size.ws_col : TERMINAL_COLUMNS, TERMINAL_ROWS, &text);
  return hark_command_print(call, &text);
}

/* Reads all curves; those without points are kept, so that the indices of the data file hold. */
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
  HARK_TRY(hark_allocate_zero(context, SERIES_LIMIT * sizeof(hark_series), &memory));
  hark_series *const series = memory;
  int count = 0;
  hark_status status = read_all(call, values, series, &count);
  if (status == HARK_OK) status = values->terminal ? draw_letters(call, values, series, count) : draw_picture(call, values, series, count);
  for (int i = 0; i < count; i++) hark_series_free(context, &series[i]);
  hark_release(context, memory, SERIES_LIMIT * sizeof(hark_series));
  return status;
}

const hark_command hark_command_plot = {
    .name = "plot",
    .arguments = "RUN|FILE...",
    .summary = "draw the loss curves of runs",
    .notes = "  RUN is the folder of a run, or a file like its metrics.jsonl.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .tables = {&table},
    .run = run,
};

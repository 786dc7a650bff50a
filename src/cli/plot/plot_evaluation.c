/* plot_evaluation.c - see plot_evaluation.h. */
#include "cli/plot/plot_evaluation.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/metrics.h"
#include "core/line.h"
#include "json/jsonl.h"
#include "train/evaluate.h"

#define CURVES 64   /* of a panel, at most */
#define POINTS 4096 /* of a curve, at most */
#define PANEL_WIDTH 700
#define PANEL_HEIGHT 480 /* without its key, which is below */
#define KEY_HEIGHT 23    /* of a curve there */
#define DASHES 5         /* that can be distinguished, of contexts */

enum { OVER_CONTEXT, OVER_POSITION, OVER_WINDOW, PANELS };

typedef struct evaluation_panel {
  const char *x;
  int count;
  hark_series curves[CURVES];
  int model[CURVES];       /* number of the curve's model, which is that of its curve over context */
  int64_t context[CURVES]; /* of a curve over position; 0: over context */
} evaluation_panel;

/* The content of all files. */
typedef struct evaluations {
  hark_context *context;
  const char *file;
  char first[HARK_PATH_BYTES]; /* run of the first line */
  size_t common;               /* bytes of the folders that all runs have in common: labels leave them out */
  evaluation_panel panels[PANELS];
  int64_t lines, least_targets, most_targets;
  bool logarithmic; /* losses of 0 and less cannot be drawn */
  int64_t left_out; /* curves over position beyond the limit */
} evaluations;

/* The curve of that label, a new empty one if there is none yet; NULL if there are too many. */
static hark_series *find_curve(evaluation_panel *panel, const char *label) {
  char shown[sizeof panel->curves[0].label];
  (void)snprintf(shown, sizeof shown, "%s", label);
  hark_line_clean(shown); /* files may be untrusted */
  for (int i = 0; i < panel->count; i++)
    if (strcmp(panel->curves[i].label, shown) == 0) return &panel->curves[i];
  if (panel->count == CURVES) return NULL;
  hark_series *curve = &panel->curves[panel->count++];
  memcpy(curve->label, shown, sizeof shown);
  return curve;
}

static hark_status add_point(const evaluations *e, hark_series *curve, double x, const json_t *loss) {
  if (!json_is_number(loss)) return HARK_OK; /* one that is not finite is null */
  const double y = json_number_value(loss);
  return e->logarithmic && y <= 0 ? HARK_OK : hark_series_append(e->context, curve, x, y);
}

/* A change that is the window, which is not a part of the name. */
static bool is_window(const json_t *line, const char *option) {
  return json_is_integer(json_object_get(line, "window")) &&
         (strcmp(option, "model.attention.structure") == 0 || strcmp(option, "model.attention.window") == 0);
}

/* "runs/book step-500, scaling yarn, stride 64" */
static void name_model(const json_t *line, hark_text *label) {
  const json_t *stride = json_object_get(line, "stride"), *context = json_object_get(line, "context"), *value;
  const char *checkpoint = json_string_value(json_object_get(line, "checkpoint")), *key;
  hark_text_append(label, "%s%s%s", json_string_value(json_object_get(line, "run")), checkpoint != NULL ? " " : "",
                   checkpoint != NULL ? checkpoint : "");
  json_object_foreach(json_object_get(line, "exchanged"), key, value) {
    const char *dot = strrchr(key, '.');
    if (json_is_string(value) && !is_window(line, key))
      hark_text_append(label, ", %s %s", dot != NULL ? dot + 1 : key, json_string_value(value));
  }
  if (json_is_integer(stride) && json_integer_value(stride) < json_integer_value(context))
    hark_text_append(label, ", stride %" PRId64, (int64_t)json_integer_value(stride));
}

/* Loss over the number of tokens that a target is predicted from, in the middle of each bucket. */
static hark_status take_positions(const evaluations *e, const json_t *positions, int64_t context, hark_series *curve) {
  curve->count = 0;
  for (size_t i = 0; i < json_array_size(positions); i++) {
    const json_t *bucket = json_array_get(positions, i);
    const int64_t first = json_integer_value(json_object_get(bucket, "first")), last = json_integer_value(json_object_get(bucket, "last"));
    if (i == HARK_POSITION_BUCKETS || first < 0 || last < first || last >= context)
      return hark_fail(e->context, HARK_BAD_FILE,
                       "%s: bucket %zu of the positions: expected 0 <= first <= last < context, at most %d of them", e->file, i,
                       HARK_POSITION_BUCKETS);
    HARK_TRY(add_point(e, curve, ((double)first + (double)last) / 2 + 1, json_object_get(bucket, "loss")));
  }
  hark_series_sort(curve);
  return HARK_OK;
}

/* A line of --window-cut: the loss over the number of tokens that attention reaches, window + 1, or the context. */
static hark_status take_window(evaluations *e, const json_t *line, int64_t context, int model, const char *label) {
  const json_t *const window = json_object_get(line, "window");
  const int64_t reached = json_is_integer(window) ? (int64_t)json_integer_value(window) + 1 : context;
  hark_text name = hark_text_empty(e->context);
  hark_text_append(&name, "%s, context %" PRId64, label, context);
  hark_status status = name.status;
  hark_series *const curve = status == HARK_OK ? find_curve(&e->panels[OVER_WINDOW], hark_text_get(&name)) : NULL;
  hark_text_free(&name);
  HARK_TRY(status);
  if (reached < 1 || reached > context + 1) return HARK_OK; /* one that cuts nothing is the model as it is */
  if (curve == NULL || curve->count == POINTS)
    return hark_fail(e->context, HARK_BAD_CONFIGURATION, "%s: more than %d models, or %d windows of one, to draw", e->file, CURVES, POINTS);
  e->panels[OVER_WINDOW].model[curve - e->panels[OVER_WINDOW].curves] = model;
  HARK_TRY(add_point(e, curve, (double)reached, json_object_get(line, "loss")));
  hark_series_sort(curve);
  return HARK_OK;
}

static hark_status take_evaluation(evaluations *e, const json_t *line, int64_t context, hark_text *label) {
  const json_t *positions = json_object_get(line, "positions");
  name_model(line, label);
  HARK_TRY(label->status);
  hark_series *curve = find_curve(&e->panels[OVER_CONTEXT], hark_text_get(label));
  if (curve == NULL || curve->count == POINTS)
    return hark_fail(e->context, HARK_BAD_CONFIGURATION, "%s: more than %d models, or %d contexts of one, to draw", e->file, CURVES,
                     POINTS);
  const int model = (int)(curve - e->panels[OVER_CONTEXT].curves);
  e->panels[OVER_CONTEXT].model[model] = model;
  if (json_object_get(line, "window") != NULL) HARK_TRY(take_window(e, line, context, model, hark_text_get(label)));
  if (json_is_integer(json_object_get(line, "window"))) return HARK_OK;
  HARK_TRY(add_point(e, curve, (double)context, json_object_get(line, "loss")));
  hark_series_sort(curve);
  if (json_array_size(positions) == 0) return HARK_OK;
  hark_text_append(label, ", context %" PRId64, context);
  HARK_TRY(label->status);
  curve = find_curve(&e->panels[OVER_POSITION], hark_text_get(label));
  e->left_out += curve == NULL;
  if (curve != NULL) {
    e->panels[OVER_POSITION].model[curve - e->panels[OVER_POSITION].curves] = model;
    e->panels[OVER_POSITION].context[curve - e->panels[OVER_POSITION].curves] = context;
  }
  return curve != NULL ? take_positions(e, positions, context, curve) : HARK_OK;
}

static hark_status take_line(void *user, const json_t *line, int64_t number) {
  evaluations *e = user;
  const json_t *context = json_object_get(line, "context");
  const int64_t targets = json_integer_value(json_object_get(line, "targets"));
  if (!json_is_string(json_object_get(line, "run")) || !json_is_integer(context) || json_integer_value(context) < 1 ||
      json_object_get(line, "loss") == NULL)
    return hark_fail(e->context, HARK_BAD_FILE, "%s:%" PRId64 ": not a line of hark eval --json: expected run, context and loss", e->file,
                     number);
  const char *const run = json_string_value(json_object_get(line, "run"));
  if (e->lines == 0) e->common = (size_t)snprintf(e->first, sizeof e->first, "%.*s", HARK_PATH_BYTES - 1, run);
  e->common = hark_path_common(e->first, e->common, run);
  e->least_targets = e->lines == 0 ? targets : hark_min(e->least_targets, targets);
  e->most_targets = hark_max(e->most_targets, targets);
  e->lines++;
  hark_text label = hark_text_empty(e->context);
  const hark_status status = take_evaluation(e, line, json_integer_value(context), &label);
  hark_text_free(&label);
  return status;
}

static bool has_points(const evaluation_panel *panel) {
  for (int i = 0; i < panel->count; i++)
    if (panel->curves[i].count > 0) return true;
  return false;
}

/* Labels begin with the path of a run. */
static void shorten_labels(evaluations *e) {
  for (int i = 0; i < PANELS; i++) {
    for (int j = 0; j < e->panels[i].count; j++) {
      char *const label = e->panels[i].curves[j].label;
      memmove(label, label + e->common, strlen(label + e->common) + 1);
    }
  }
}

static hark_status read_files(hark_invocation *call, evaluations *e) {
  for (int i = 0; i < hark_options_argument_count(call->options); i++) {
    e->file = hark_options_argument(call->options, i);
    if (hark_path_kind_of(e->file) == HARK_PATH_FOLDER)
      return hark_fail(call->context, HARK_BAD_FILE, "%s: is a folder, expected a file with lines of hark eval --json", e->file);
    HARK_TRY(hark_jsonl_read(call->context, e->file, take_line, e));
  }
  if (e->lines == 0)
    return hark_fail(call->context, HARK_BAD_FILE, "%s: no evaluations, expected lines of hark eval --json",
                     hark_options_argument(call->options, 0));
  if (!has_points(&e->panels[OVER_CONTEXT]) && !has_points(&e->panels[OVER_WINDOW]))
    return hark_fail(call->context, HARK_BAD_FILE, "%s: no loss that can be drawn", hark_options_argument(call->options, 0));
  shorten_labels(e);
  if (e->left_out > 0)
    hark_command_warn(call, "losses over position: %" PRId64 " curves beyond the first %d are left out", e->left_out, CURVES);
  if (e->least_targets != e->most_targets)
    hark_command_warn(call, "the compared evaluations have different numbers of targets, %" PRId64 " to %" PRId64 "", e->least_targets,
                      e->most_targets);
  return HARK_OK;
}

/* The number of a curve's context among those of its panel, in their order of size; *first: no curve before it has the same. */
static int rank_of(const evaluation_panel *panel, int curve, bool *first) {
  int rank = 0;
  *first = true;
  for (int i = 0; i < panel->count; i++) {
    bool counted = panel->curves[i].count == 0 || panel->context[i] >= panel->context[curve];
    for (int j = 0; j < i && !counted; j++) counted = panel->curves[j].count > 0 && panel->context[j] == panel->context[i];
    rank += !counted;
    if (i < curve && panel->curves[i].count > 0 && panel->context[i] == panel->context[curve]) *first = false;
  }
  return rank;
}

/* One panel; its curves are the next ones of the picture. A model has one colour in both panels, and a context one kind of dashes. */
static void print_curves(hark_picture *picture, const evaluation_panel *panel) {
  hark_text *script = &picture->script;
  int drawn = 0;
  for (int i = 0; i < panel->count; i++) {
    const hark_series *curve = &panel->curves[i];
    char style[96], color[HARK_COLOR_BYTES];
    bool first;
    if (curve->count == 0) continue; /* gnuplot ignores a block without points, which would shift the indices after it */
    if (drawn++ > 0) hark_text_append(script, ", \\\n    ");
    hark_picture_add_curve(picture, curve->label, curve->points, curve->count);
    (void)snprintf(style, sizeof style, "linespoints lw 2 pt 7 ps 0.4 dt %d lc rgb '%s'", rank_of(panel, i, &first) % DASHES + 1,
                   hark_picture_color(panel->model[i], color));
    hark_picture_append_curve(picture, picture->curves - 1, style, panel->context[i] == 0 ? curve->label : "");
  }
}

/* Entries of the key for the contexts, in no model's colour. Returns their number. */
static int print_contexts(const evaluation_panel *panel, hark_text *script) {
  int entries = 0;
  for (int i = 0; i < panel->count; i++) {
    bool first;
    const int rank = rank_of(panel, i, &first);
    if (panel->curves[i].count == 0 || panel->context[i] == 0 || !first) continue;
    entries++;
    if (script != NULL)
      hark_text_append(script, ", \\\n    NaN with lines lw 2 dt %d lc rgb 'black' title 'context %" PRId64 "'", rank % DASHES + 1,
                       panel->context[i]);
  }
  return entries;
}

static void print_panel(hark_picture *picture, const evaluation_panel *panel, bool logarithmic) {
  double low = INFINITY, high = -INFINITY;
  for (int i = 0; i < panel->count; i++) hark_picture_extend(panel->curves[i].points, panel->curves[i].count, 'y', &low, &high);
  hark_text_append(&picture->script, "set xlabel '%s'\n", panel->x);
  if (logarithmic) hark_picture_append_log_axis(&picture->script, 'y', low, high);
  double x[2], y[2];
  hark_series_ranges(panel->curves, panel->count, x, y);
  const bool single[] = {hark_picture_append_single(&picture->script, 'x', x[0], x[1]),
                         hark_picture_append_single(&picture->script, 'y', y[0], y[1])};
  hark_text_append(&picture->script, "plot ");
  print_curves(picture, panel);
  (void)print_contexts(panel, &picture->script);
  hark_text_append(&picture->script, single[0] ? "\nset autoscale x\nset autoscale xfix\n" : "\n"); /* not those of the next panel */
  if (single[1]) hark_text_append(&picture->script, "set autoscale y\n");
}

static hark_status draw_picture(hark_invocation *call, const hark_evaluation_plot *plot, const evaluations *e) {
  int panels = 0;
  for (int i = 0; i < PANELS; i++) panels += has_points(&e->panels[i]);
  const int models = (int)hark_max(e->panels[OVER_CONTEXT].count, e->panels[OVER_WINDOW].count);
  const int entries = (int)hark_max(models, print_contexts(&e->panels[OVER_POSITION], NULL));
  hark_picture picture;
  HARK_TRY(
      hark_picture_begin(call->context, plot->picture, plot->png, panels * PANEL_WIDTH, PANEL_HEIGHT + entries * KEY_HEIGHT, &picture));
  hark_text_append(&picture.script,
                   "set multiplot layout 1,%d\nset grid\nset key below height 1 vertical maxcols 1 left Left reverse\nset autoscale xfix\n"
                   "set logscale x 2\nset ylabel 'loss (nats per token)'\n",
                   panels);
  for (int i = 0; i < PANELS; i++)
    if (has_points(&e->panels[i])) print_panel(&picture, &e->panels[i], plot->logarithmic);
  hark_text_append(&picture.script, "unset multiplot\n");
  return hark_picture_finish(call, &picture);
}

static hark_status draw_letters(hark_invocation *call, const hark_evaluation_plot *plot, const evaluations *e) {
  hark_text text = hark_text_empty(call->context);
  for (int i = 0; i < PANELS; i++) {
    if (!has_points(&e->panels[i])) continue;
    if (text.length > 0) hark_text_append(&text, "\n");
    hark_series_draw(e->panels[i].curves, e->panels[i].count, e->panels[i].x, true, plot->columns, plot->rows, &text);
  }
  return hark_command_print(call, &text);
}

hark_status hark_plot_evaluation(hark_invocation *call, const hark_evaluation_plot *plot) {
  hark_context *const context = call->context;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(evaluations), &memory));
  evaluations *e = memory;
  e->context = context;
  e->logarithmic = plot->logarithmic;
  e->panels[OVER_CONTEXT].x = "context (tokens)";
  e->panels[OVER_POSITION].x = "tokens of the window that were read";
  e->panels[OVER_WINDOW].x = "tokens that attention reaches";
  hark_status status = read_files(call, e);
  if (status == HARK_OK) status = plot->picture != NULL ? draw_picture(call, plot, e) : draw_letters(call, plot, e);
  for (int i = 0; i < PANELS; i++)
    for (int curve = 0; curve < e->panels[i].count; curve++) hark_series_free(context, &e->panels[i].curves[curve]);
  hark_release(context, memory, sizeof(evaluations));
  return status;
}

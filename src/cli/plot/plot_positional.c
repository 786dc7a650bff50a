/* plot_positional.c - see plot_positional.h. */
#include "cli/plot/plot_positional.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/metrics.h"
#include "cli/plot/learned_kernels.h"
#include "core/line.h"
#include "io/number.h"
#include "models/description.h"
#include "models/model_path.h"
#include "models/stack.h"

#define POINTS 4097        /* of a kernel's curve, at most: every distance up to 4096, since kernels may be periodic */
#define POINTS_OF_MANY 257 /* if there are more kernels than */
#define MANY 64
#define DISTANCES_UNDESCRIBED 256 /* for a file without its model's context */
#define PANELS 1024               /* kernels and rows of rates that are drawn */
#define NAMED_TERMS 8             /* of a kernel, in the key */
#define TERMS 32                  /* of a kernel, drawn separately */
#define NEGLIGIBLE 6.9            /* log 1000: a term that is smaller than the kernel by this does not matter */
#define MARGIN 0.04               /* of the range of log G, above and below */
#define SINGLE_WIDTH 640          /* of a picture with one panel */
#define SINGLE_HEIGHT 480
#define PANEL_WIDTH 420
#define PANEL_HEIGHT 400 /* with its key, which is below */

typedef struct panel {
  char title[96];
  bool rates;
  double low, high;  /* of log G; low > high: not known */
  double x[2], y[2]; /* of all points; the first above the second: there are none */
  int first, last;   /* curves of the picture: the thick one, and those after it up to last - 1 */
} panel;

/* The panels as they are visited. */
typedef struct drawing {
  hark_context *context;
  hark_description description; /* zeros where the file has none */
  double farthest;
  int64_t points; /* of a kernel's curve */
  int side;       /* of the panel: 1: keys after the query */
  int count;
  panel panels[PANELS];
  hark_picture picture;
  hark_series *series; /* [PANELS] for letters, one per panel; NULL: into the picture, or to the visitor */
  hark_positional_curve_visitor *each;
  void *user;
} drawing;

/* Panels of a kernel. With a direction: one for the keys up to the query, and one for those after it if the model is not known to be
 * causal. */
static int sides_of(const drawing *d, const hark_learned_kernel *kernel) {
  const hark_network_config *config = &d->description.config;
  if (kernel->expression == NULL || !hark_positional_is_directed(kernel->expression, NULL)) return 1;
  return config->width > 0 && hark_architecture_of(config->architecture)->causal ? 1 : 2;
}

/* "layer 0", "layer 3, head 1", "model" */
static void name_owner(const hark_learned_kernel *kernel, char *out, size_t bytes) {
  static const char blocks[] = "blocks.";
  const bool own = strncmp(kernel->tensor, blocks, sizeof blocks - 1) == 0;
  const char *layer = own ? kernel->tensor + sizeof blocks - 1 : "";
  const int digits = (int)strcspn(layer, ".");
  if (!own && kernel->rows == 1)
    (void)snprintf(out, bytes, "model");
  else if (!own)
    (void)snprintf(out, bytes, "row %lld", (long long)kernel->row);
  else if (kernel->rows == 1)
    (void)snprintf(out, bytes, "layer %.*s", digits, layer);
  else
    (void)snprintf(out, bytes, "layer %.*s, head %lld", digits, layer, (long long)kernel->row);
  hark_line_clean(out); /* names of tensors may be untrusted */
}

/* ---- curves ---- */

/* Points (distance, log G) of a term, or with term -1 of the whole; a kernel that is 0 has no point there. */
static hark_status sample_kernel(const drawing *d, const hark_learned_kernel *kernel, int64_t term, hark_series *out) {
  double distances[POINTS], stretched[POINTS], values[POINTS];
  const double stretch = d->description.config.positional_stretch != 0 ? d->description.config.positional_stretch : 1;
  const int64_t first = d->side == 1 ? 1 : 0; /* distance 0 belongs to the left */
  for (int64_t i = 0; i < d->points; i++) {
    distances[i] = round(d->farthest * (double)i / (double)(d->points - 1));
    stretched[i] = (d->side == 1 ? -distances[i] : distances[i]) / stretch;
  }
  if (term < 0)
    HARK_TRY(hark_positional_log(d->context, kernel->expression, kernel->parameters, stretched, d->points, values));
  else
    HARK_TRY(hark_positional_term_log(d->context, kernel->expression, kernel->parameters, term, stretched, d->points, values));
  for (int64_t i = first; i < d->points; i++)
    if (isfinite(values[i])) HARK_TRY(hark_series_append(d->context, out, distances[i], values[i]));
  return HARK_OK;
}

/* Points (pair, angle per token). Without the sign, which only exchanges two features; a pair that is not rotated has no point. */
static hark_status sample_rates(const drawing *d, const hark_learned_kernel *rates, hark_series *out) {
  for (int64_t pair = 0; pair < rates->count; pair++) {
    const double rate = fabs(rates->parameters[pair]);
    if (isfinite(rate) && rate != 0) HARK_TRY(hark_series_append(d->context, out, (double)pair, rate));
  }
  return HARK_OK;
}

/* The initial values of training. */
static hark_status sample_start(const drawing *d, const hark_learned_kernel *rates, hark_series *out) {
  hark_rotary_tuning tuning;
  const hark_rotary_spec spec = hark_stack_rotary(&d->description.config, &tuning);
  for (int64_t pair = 0; pair < rates->count; pair++)
    HARK_TRY(hark_series_append(d->context, out, (double)pair, hark_rotary_trained_rate(&spec, pair)));
  return HARK_OK;
}

/* Curve `index` of a panel, 0 being the thick one; *there is false where there is none. */
static hark_status sample(const drawing *d, const hark_learned_kernel *kernel, int index, hark_series *out, bool *there) {
  *out = (hark_series){0};
  if (kernel->expression == NULL) {
    *there = index == 0 || (index == 1 && d->description.config.width > 0);
    return !*there ? HARK_OK : index == 0 ? sample_rates(d, kernel, out) : sample_start(d, kernel, out);
  }
  const int64_t terms = hark_positional_term_count(kernel->expression);
  *there = index == 0 || (terms > 1 && index <= hark_min(terms, TERMS));
  return *there ? sample_kernel(d, kernel, index - 1, out) : HARK_OK;
}

/* Letters draw the first curve of every panel together, rates as their logarithm. */
static hark_status keep_first(const drawing *d, const hark_learned_kernel *kernel, const char *title, hark_series *out) {
  bool there;
  HARK_TRY(sample(d, kernel, 0, out, &there));
  (void)snprintf(out->label, sizeof out->label, "%s", title);
  for (int64_t p = 0; kernel->expression == NULL && p < out->count; p++) out->points[2 * p + 1] = log10(out->points[2 * p + 1]);
  hark_series_sort(out); /* the range of the new values */
  return HARK_OK;
}

/* Widens the range of a panel by the points of a term that are not far below those of the whole kernel, which has a point wherever a term
 * has one that matters. Points of both are in the order of the distance. */
static void widen(panel *to, const hark_series *whole, const hark_series *term) {
  for (int64_t p = 0, w = 0; p < term->count; p++) {
    const double x = term->points[2 * p], y = term->points[2 * p + 1];
    while (w < whole->count && whole->points[2 * w] < x) w++;
    if (w == whole->count || whole->points[2 * w] != x || y < whole->points[2 * w + 1] - NEGLIGIBLE) continue;
    to->low = fmin(to->low, y);
    to->high = fmax(to->high, y);
  }
}

static void add_curve(drawing *d, const char *label, const hark_series *curve, panel *to) {
  double x[2], y[2];
  hark_series_ranges(curve, 1, x, y);
  hark_picture_add_curve(&d->picture, label, curve->points, curve->count);
  to->x[0] = fmin(to->x[0], x[0]);
  to->x[1] = fmax(to->x[1], x[1]);
  to->y[0] = fmin(to->y[0], y[0]);
  to->y[1] = fmax(to->y[1], y[1]);
}

static hark_status add_curves(drawing *d, const hark_learned_kernel *kernel, panel *to) {
  hark_series whole = {0};
  hark_status status = HARK_OK;
  bool there = true;
  to->low = to->x[0] = to->y[0] = INFINITY;
  to->high = to->x[1] = to->y[1] = -INFINITY;
  to->first = d->picture.curves;
  for (int index = 0; there && status == HARK_OK; index++) {
    hark_series curve;
    status = sample(d, kernel, index, &curve, &there);
    there = there && (index > 0 || curve.count > 0); /* without the whole kernel its terms are not drawn either */
    if (status == HARK_OK && there && curve.count > 0) add_curve(d, index == 0 ? to->title : "term", &curve, to);
    if (status == HARK_OK && there) widen(to, index == 0 ? &curve : &whole, &curve);
    if (index == 0)
      whole = curve;
    else
      hark_series_free(d->context, &curve);
  }
  hark_series_free(d->context, &whole);
  to->last = d->picture.curves;
  return status;
}

/* All curves of a panel to the visitor. */
static hark_status give_curves(const drawing *d, const hark_learned_kernel *kernel, const panel *of) {
  hark_status status = HARK_OK;
  bool there = true;
  for (int index = 0; there && status == HARK_OK; index++) {
    hark_series curve;
    status = sample(d, kernel, index, &curve, &there);
    there = there && (index > 0 || curve.count > 0);
    const hark_positional_curve given = {.panel = of->title, .rates = of->rates, .index = index, .series = &curve};
    if (status == HARK_OK && there && curve.count > 0) status = d->each(d->user, &given);
    hark_series_free(d->context, &curve);
  }
  return status;
}

static hark_status add_panel_of(drawing *d, const hark_learned_kernel *kernel, const char *side) {
  if (d->count == PANELS) return hark_fail(d->context, HARK_BAD_CONFIGURATION, "more than %d positional kernels and rates to draw", PANELS);
  panel *to = &d->panels[d->count];
  name_owner(kernel, to->title, sizeof to->title - strlen(side));
  (void)strcat(to->title, side);
  to->rates = kernel->expression == NULL;
  if (d->series != NULL) return keep_first(d, kernel, to->title, &d->series[d->count++]);
  d->count++;
  if (d->each != NULL) return give_curves(d, kernel, to);
  return add_curves(d, kernel, to);
}

static hark_status add_panel(void *user, const hark_learned_kernel *kernel) {
  drawing *d = user;
  const int sides = sides_of(d, kernel);
  for (d->side = 0; d->side < sides; d->side++) HARK_TRY(add_panel_of(d, kernel, sides == 1 ? "" : d->side == 0 ? ", left" : ", right"));
  return HARK_OK;
}

/* Kernels first. */
static hark_status visit(drawing *d, const char *path, const hark_safetensors *file, hark_kernel_visitor *visitor, void *user) {
  HARK_TRY(hark_learned_kernels_visit(d->context, path, file, visitor, user));
  return hark_learned_rates_visit(d->context, path, file, visitor, user);
}

/* ---- pictures ---- */

/* How many columns of panels, for a picture about as wide as high. */
static int columns_of(int panels) {
  int columns = 1;
  while (columns * columns < panels) columns++;
  return columns;
}

static void print_rate_range(const panel *p, hark_text *script) {
  hark_text_append(script, "unset logscale x\nset xrange [*:*]\nset yrange [*:*]\n");
  (void)hark_picture_append_single(script, 'x', p->x[0], p->x[1]);
  (void)hark_picture_append_single(script, 'y', p->y[0], p->y[1]);
}

/* Distances from 1 on a logarithmic axis, whose range is not empty; log G as far as the kernel and the terms that matter go. */
static void print_range(const panel *p, hark_text *script) {
  const double room = MARGIN * fmax(p->high - p->low, 1e-3);
  char low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  hark_text_append(script, "set logscale x 2\nset xrange [1:%s] noextend\nset yrange [%s:%s]\n", p->x[1] > 1 ? "*" : "2",
                   hark_number_print(p->low - room, low), hark_number_print(p->high + room, high));
}

static void print_panel(hark_picture *picture, const panel *p) {
  hark_text *script = &picture->script;
  char style[64], color[HARK_COLOR_BYTES];
  hark_text_append(script, p->rates ? "set logscale y\nset xlabel 'pair'\nset ylabel 'angle per token (radians)'\nset title "
                                    : "unset logscale y\nset xlabel 'distance (tokens)'\nset ylabel 'log G'\nset title ");
  char title[sizeof p->title + 32];
  (void)snprintf(title, sizeof title, "%s, %s", p->rates ? "rotary rates" : "positional kernel", p->title);
  hark_picture_append_quoted(script, title);
  if (p->first == p->last) { /* gnuplot has no range for an empty panel */
    hark_text_append(script, "\nunset logscale x\nset xrange [0:1]\nset yrange [0.1:1]\nplot NaN notitle\nset autoscale\n");
    return;
  }
  hark_text_append(script, "\n");
  (p->rates ? print_rate_range : print_range)(p, script);
  hark_text_append(script, "plot ");
  for (int curve = p->first + 1; curve < p->last; curve++) {
    const hark_line_look look = hark_picture_line_look(curve - p->first - 1);
    (void)snprintf(style, sizeof style, "lines lw 1 dt %d lc rgb '%s'", look.dashes, hark_picture_color(look.color, color));
    title[0] = '\0';
    if (p->rates)
      (void)snprintf(title, sizeof title, "initial");
    else if (curve - p->first <= NAMED_TERMS)
      (void)snprintf(title, sizeof title, "term %d", curve - p->first);
    hark_picture_append_curve(picture, curve, style, title);
    hark_text_append(script, ", \\\n    ");
  }
  hark_picture_append_curve(picture, p->first, p->rates ? "linespoints lw 3 lc rgb 'black'" : "lines lw 3 lc rgb 'black'",
                            p->rates ? "learned" : "kernel");
  hark_text_append(script, "\n");
}

/* Panels have to be counted before the picture gets its size. */
static hark_status count_panel(void *user, const hark_learned_kernel *kernel) {
  drawing *d = user;
  d->count += sides_of(d, kernel);
  return HARK_OK;
}

static hark_status draw_picture(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file,
                                int panels, drawing *d) {
  const int shown = (int)hark_min(panels, PANELS), columns = columns_of(shown), rows = (shown + columns - 1) / columns;
  const int width = shown == 1 ? SINGLE_WIDTH : columns * PANEL_WIDTH, height = shown == 1 ? SINGLE_HEIGHT : rows * PANEL_HEIGHT;
  HARK_TRY(hark_picture_begin(call->context, plot->picture, plot->png, width, height, &d->picture));
  const hark_status status = visit(d, path, file, add_panel, d);
  if (status != HARK_OK) {
    hark_picture_free(&d->picture);
    return status;
  }
  hark_text_append(&d->picture.script, "set multiplot layout %d,%d\nset grid\nset key below height 1\n", rows, columns);
  for (int i = 0; i < d->count; i++) print_panel(&d->picture, &d->panels[i]);
  hark_text_append(&d->picture.script, "unset multiplot\n");
  return hark_picture_finish(call, &d->picture);
}

/* The kernels together, below them the rates. */
static void draw_series(const hark_positional_plot *plot, const drawing *d, hark_text *text) {
  int kernels = 0;
  while (kernels < d->count && !d->panels[kernels].rates) kernels++;
  if (kernels > 0) hark_series_draw(d->series, kernels, "distance", false, plot->columns, plot->rows, text);
  if (kernels > 0 && d->count > kernels) hark_text_append(text, "\n");
  if (d->count > kernels)
    hark_series_draw(d->series + kernels, d->count - kernels, "pair; log10 of the angle per token", false, plot->columns, plot->rows, text);
}

static hark_status draw_letters(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file,
                                drawing *d) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(call->context, PANELS * sizeof(hark_series), &memory));
  d->series = memory;
  hark_status status = visit(d, path, file, add_panel, d);
  if (status == HARK_OK) {
    hark_text text = hark_text_empty(call->context);
    draw_series(plot, d, &text);
    status = hark_command_print(call, &text);
  }
  for (int i = 0; i < PANELS; i++) hark_series_free(call->context, &d->series[i]);
  hark_release(call->context, memory, PANELS * sizeof(hark_series));
  return status;
}

/* Reads the description of the model from the file, if it has one. */
static hark_status read_description(const char *path, const hark_safetensors *file, drawing *d) {
  const char *text = hark_safetensors_metadata(file, "model");
  return text != NULL ? hark_description_parse(d->context, path, text, strlen(text), &d->description) : HARK_OK;
}

/* The points of the curves, for up to `distances` (0: the model's context); returns the number of panels in *panels. */
static hark_status choose_points(drawing *d, const char *path, const hark_safetensors *file, int64_t distances, int *panels) {
  const int64_t context = d->description.config.context > 0 ? d->description.config.context : DISTANCES_UNDESCRIBED;
  d->farthest = (double)(distances > 0 ? distances : context);
  HARK_TRY(visit(d, path, file, count_panel, d));
  *panels = d->count;
  d->count = 0;
  d->points = (int64_t)fmin(fmax(d->farthest + 1, 2), *panels > MANY ? POINTS_OF_MANY : POINTS);
  return HARK_OK;
}

static hark_status draw(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file,
                        drawing *d) {
  int panels = 0;
  HARK_TRY(choose_points(d, path, file, plot->distances, &panels));
  if (panels == 0)
    return hark_fail(call->context, hark_safetensors_metadata(file, "model") != NULL ? HARK_UNSUPPORTED : HARK_BAD_FILE,
                     "%s: this model has no positional kernel and no learned rotary rates", path);
  return plot->picture != NULL ? draw_picture(call, plot, path, file, panels, d) : draw_letters(call, plot, path, file, d);
}

/* What is done with an opened file: drawn (`plot`), or its curves are visited (`each`). */
typedef struct kernel_use {
  hark_invocation *call;
  const hark_positional_plot *plot;
  hark_positional_curve_visitor *each;
  void *user;
} kernel_use;

static hark_status use_kernels(const kernel_use *use, const char *path, const hark_safetensors *file, drawing *d) {
  int panels = 0;
  HARK_TRY(read_description(path, file, d));
  if (use->plot != NULL) return draw(use->call, use->plot, path, file, d);
  HARK_TRY(choose_points(d, path, file, 0, &panels));
  return visit(d, path, file, add_panel, d);
}

static hark_status use_file(hark_context *context, const kernel_use *use, const char *path, const hark_safetensors *file) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(drawing), &memory));
  drawing *d = memory;
  d->context = context;
  d->each = use->each;
  d->user = use->user;
  const hark_status status = use_kernels(use, path, file, d);
  hark_description_close(context, &d->description);
  hark_release(context, memory, sizeof(drawing));
  return status;
}

static hark_status use_model(hark_context *context, const kernel_use *use, const char *model, const char *checkpoint) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file;
  HARK_TRY(hark_model_find_file(context, model, checkpoint[0] != '\0' ? checkpoint : NULL, false, path));
  HARK_TRY(hark_safetensors_open(context, path, &file));
  const hark_status status = use_file(context, use, path, file);
  hark_safetensors_close(context, &file);
  return status;
}

hark_status hark_plot_positional(hark_invocation *call, const hark_positional_plot *plot) {
  const kernel_use use = {.call = call, .plot = plot};
  return use_model(call->context, &use, plot->model, plot->checkpoint);
}

hark_status hark_positional_curves_visit(hark_context *context, const char *model, const char *checkpoint,
                                         hark_positional_curve_visitor *visit_curve, void *user) {
  const kernel_use use = {.each = visit_curve, .user = user};
  return use_model(context, &use, model, checkpoint);
}

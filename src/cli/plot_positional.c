/* plot_positional.c - see plot_positional.h. */
#include "cli/plot_positional.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/learned_kernels.h"
#include "cli/metrics.h"
#include "models/description.h"
#include "models/model_path.h"

#define POINTS 257 /* of a curve, at most */
#define PANELS 64  /* kernels that are drawn */
#define TERMS 32   /* of a kernel, drawn by themselves */
#define PANEL_WIDTH 420
#define PANEL_HEIGHT 300

/* The panels as they are visited. */
typedef struct drawing {
  hark_context *context;
  double farthest;
  int64_t points;
  int panels;
  int first[PANELS + 1]; /* curve that a panel begins with */
  char titles[PANELS][96];
  hark_picture picture;
  hark_series *series; /* [PANELS] for letters; NULL: into the picture */
} drawing;

/* "layer 0", "layer 3, head 1", "model" */
static void name_panel(const hark_learned_kernel *kernel, char *out, size_t bytes) {
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
}

/* Points (distance, log G) of a term, or with term -1 of the whole; a kernel that is 0 has no point there. */
static hark_status sample(const drawing *d, const hark_learned_kernel *kernel, int64_t term, double *points, int64_t *count) {
  double distances[POINTS], values[POINTS];
  for (int64_t i = 0; i < d->points; i++) distances[i] = round(d->farthest * (double)i / (double)(d->points - 1));
  if (term < 0)
    HARK_TRY(hark_positional_log(d->context, kernel->expression, kernel->parameters, distances, d->points, values));
  else
    HARK_TRY(hark_positional_term_log(d->context, kernel->expression, kernel->parameters, term, distances, d->points, values));
  *count = 0;
  for (int64_t i = 0; i < d->points; i++) {
    if (!isfinite(values[i])) continue;
    points[2 * *count] = distances[i];
    points[2 * (*count)++ + 1] = values[i];
  }
  return HARK_OK;
}

/* Curves are kept as letters draw them. */
static hark_status keep(const drawing *d, const double *points, int64_t count, const char *label, hark_series *out) {
  (void)snprintf(out->label, sizeof out->label, "%s", label);
  for (int64_t i = 0; i < count; i++) HARK_TRY(hark_series_append(d->context, out, points[2 * i], points[2 * i + 1]));
  return HARK_OK;
}

static hark_status add_panel(void *user, const hark_learned_kernel *kernel) {
  drawing *d = user;
  double points[2 * POINTS];
  int64_t count;
  if (d->panels == PANELS) return hark_fail(d->context, HARK_TOO_LARGE, "more than %d positional kernels to draw", PANELS);
  char *title = d->titles[d->panels];
  name_panel(kernel, title, sizeof d->titles[0]);
  HARK_TRY(sample(d, kernel, -1, points, &count));
  if (d->series != NULL) return keep(d, points, count, title, &d->series[d->panels++]);
  const int64_t terms = hark_positional_term_count(kernel->expression);
  d->first[d->panels++] = d->picture.curves;
  hark_picture_add_curve(&d->picture, title, points, count);
  for (int64_t term = 0; terms > 1 && term < hark_min(terms, TERMS); term++) {
    HARK_TRY(sample(d, kernel, term, points, &count));
    hark_picture_add_curve(&d->picture, "term", points, count);
  }
  d->first[d->panels] = d->picture.curves;
  return HARK_OK;
}

/* How many columns of panels, for a picture about as wide as high. */
static int columns_of(int panels) {
  int columns = 1;
  while (columns * columns < panels) columns++;
  return columns;
}

static void print_panels(drawing *d, int columns) {
  hark_text *script = &d->picture.script;
  hark_text_append(script, "set multiplot layout %d,%d\nset grid\nset key off\nset xlabel 'distance (tokens)'\nset ylabel 'log G'\n",
                   (d->panels + columns - 1) / columns, columns);
  for (int panel = 0; panel < d->panels; panel++) {
    hark_text_append(script, "set title ");
    hark_picture_append_quoted(script, d->titles[panel]);
    hark_text_append(script, "\nplot ");
    for (int curve = d->first[panel] + 1; curve < d->first[panel + 1]; curve++) {
      hark_picture_append_curve(&d->picture, curve, "lines lw 1", "");
      hark_text_append(script, ", \\\n    ");
    }
    hark_picture_append_curve(&d->picture, d->first[panel], "lines lw 3 lc rgb 'black'", "");
    hark_text_append(script, "\n");
  }
  hark_text_append(script, "unset multiplot\n");
}

/* Panels have to be counted before the picture gets its size. */
static hark_status count_panel(void *user, const hark_learned_kernel *kernel) {
  int *count = user;
  (void)kernel;
  (*count)++;
  return HARK_OK;
}

static hark_status draw_picture(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file,
                                int panels, drawing *d) {
  const int columns = columns_of((int)hark_min(panels, PANELS)), rows = (panels + columns - 1) / columns;
  HARK_TRY(hark_picture_begin(call->context, plot->picture, plot->png, columns * PANEL_WIDTH, rows * PANEL_HEIGHT, &d->picture));
  const hark_status status = hark_learned_kernels_visit(call->context, path, file, add_panel, d);
  if (status != HARK_OK) {
    hark_picture_free(&d->picture);
    return status;
  }
  print_panels(d, columns);
  return hark_picture_finish(call, &d->picture);
}

static hark_status draw_letters(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file,
                                drawing *d) {
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(call->context, PANELS * sizeof(hark_series), &memory));
  d->series = memory;
  hark_status status = hark_learned_kernels_visit(call->context, path, file, add_panel, d);
  if (status == HARK_OK) {
    hark_text text = hark_text_empty(call->context);
    hark_series_draw(d->series, d->panels, "distance", plot->columns, plot->rows, &text);
    status = hark_command_print(call, &text);
  }
  for (int i = 0; i < PANELS; i++) hark_series_free(call->context, &d->series[i]);
  hark_release(call->context, memory, PANELS * sizeof(hark_series));
  return status;
}

/* The context of the model that the file describes; files without a description give 256. */
static hark_status context_of(hark_context *context, const char *path, const hark_safetensors *file, int64_t *out) {
  const char *text = hark_safetensors_metadata(file, "model");
  hark_description description;
  *out = 256;
  if (text == NULL) return HARK_OK;
  HARK_TRY(hark_description_parse(context, path, text, strlen(text), &description));
  *out = description.config.context;
  hark_description_close(context, &description);
  return HARK_OK;
}

static hark_status draw(hark_invocation *call, const hark_positional_plot *plot, const char *path, const hark_safetensors *file) {
  hark_context *const context = call->context;
  int64_t distances = plot->distances;
  int panels = 0;
  void *memory = NULL;
  if (distances == 0) HARK_TRY(context_of(context, path, file, &distances));
  HARK_TRY(hark_learned_kernels_visit(context, path, file, count_panel, &panels));
  if (panels == 0) return hark_fail(context, HARK_BAD_FILE, "%s: this model has no positional kernel", path);
  HARK_TRY(hark_allocate_zero(context, sizeof(drawing), &memory));
  drawing *d = memory;
  d->context = context;
  d->farthest = (double)distances;
  d->points = hark_min(distances + 1, POINTS);
  if (d->points < 2) d->points = 2;
  const hark_status status =
      plot->picture != NULL ? draw_picture(call, plot, path, file, panels, d) : draw_letters(call, plot, path, file, d);
  hark_release(context, memory, sizeof(drawing));
  return status;
}

hark_status hark_plot_positional(hark_invocation *call, const hark_positional_plot *plot) {
  char path[HARK_PATH_BYTES];
  hark_safetensors *file;
  HARK_TRY(hark_model_find_file(call->context, plot->model, plot->checkpoint[0] != '\0' ? plot->checkpoint : NULL, false, path));
  HARK_TRY(hark_safetensors_open(call->context, path, &file));
  const hark_status status = draw(call, plot, path, file);
  hark_safetensors_close(call->context, &file);
  return status;
}

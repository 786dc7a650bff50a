/* lab_figure.c - an experiment's figure, by gnuplot or with letters. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/lab/lab_print.h"
#include "cli/metrics.h"

#define PANEL_WIDTH 720 /* one panel below the other, so that texts are legible where a page is narrow */
#define PANEL_HEIGHT 460
#define MOST_WHOLE 12 /* whole numbers on an axis that has a tick at each */
#define LETTER_ROWS 22
#define MOST_ROW_TICS 8.0
#define FLATTEST_MAP 0.5 /* rows to columns of a map whose cells are squares */

/* ---- by gnuplot ---- */

static bool has_ending(const char *text, const char *ending) {
  const size_t length = strlen(text), tail = strlen(ending);
  return length >= tail && strcmp(text + length - tail, ending) == 0;
}

/* "set WHAT 'TEXT'" */
static void set_quoted(hark_text *script, const char *what, const char *value) {
  hark_text_append(script, "set %s ", what);
  hark_picture_append_quoted(script, value);
  hark_text_append(script, "\n");
}

static void set_axes(const hark_lab_axes *axes, hark_text *script) {
  hark_text_append(script, "reset\nset grid\nset key below height 1\n");
  set_quoted(script, "title", axes->title);
  set_quoted(script, "xlabel", axes->x);
  set_quoted(script, "ylabel", axes->y);
  if (axes->is_map) hark_text_append(script, "unset grid\nset size ratio -1\nset yrange [*:*] reverse\n");
}

/* The least and the largest coordinate of the points on axis `a`, and whether all are whole numbers. */
static void find_range(const hark_lab_panel *panel, int a, double *low, double *high, bool *whole) {
  for (int i = 0; i < panel->curve_count; i++) {
    const double *const points = hark_lab_points(&panel->curves[i]);
    for (int64_t p = 0; p < hark_lab_point_count(&panel->curves[i]); p++) {
      const double at = points[2 * p + a];
      *low = fmin(*low, at);
      *high = fmax(*high, at);
      *whole = *whole && at == floor(at);
    }
  }
}

/* Ranges with a margin for the points that are drawn; few whole numbers, such as seeds, have a tick each and no others. */
static void set_scales(const hark_lab_panel *panel, hark_text *script) {
  static const char names[] = {'x', 'y'};
  for (int a = 0; a < 2; a++) {
    double low = INFINITY, high = -INFINITY;
    bool whole = true;
    find_range(panel, a, &low, &high, &whole);
    if (a == 0 ? panel->axes.log_x : panel->axes.log_y)
      hark_picture_append_log_axis(script, names[a], low, high);
    else if (low <= high && !panel->axes.is_map) {
      hark_picture_append_range(script, names[a], low, high);
      if (whole && high - low <= MOST_WHOLE) hark_text_append(script, "set %ctics 1\n", names[a]);
    }
  }
}

/* Rectangles from white to blue, a text in the middle of each; and the range that they fill. */
static void draw_cells(const hark_lab_panel *panel, hark_text *script) {
  double right = 0, bottom = 0;
  for (int64_t i = 0; i < hark_lab_cell_count(panel); i++) {
    const hark_lab_cell *const c = &hark_lab_cells(panel)[i];
    const int faint = (int)lround(255 - 155 * c->shade);
    hark_text_append(
        script, "set object rectangle from %.17g,%.17g to %.17g,%.17g fillcolor rgb '#%02x%02xff' fillstyle solid border lc rgb 'black'\n",
        c->left, c->top, c->right, c->bottom, (unsigned)faint, (unsigned)faint);
    hark_text_append(script, "set label ");
    hark_picture_append_quoted(script, c->label);
    hark_text_append(script, " at %.17g,%.17g center front\n", (c->left + c->right) / 2, (c->top + c->bottom) / 2);
    right = fmax(right, c->right);
    bottom = fmax(bottom, c->bottom);
  }
  if (right <= 0) return;
  hark_text_append(script, "set xrange [0:%.17g]\nset yrange [%.17g:0]\nset ytics %.0f\n", right, bottom, ceil(bottom / MOST_ROW_TICS));
  if (bottom < FLATTEST_MAP * right) hark_text_append(script, "set size noratio\n"); /* or its rows would be too thin to read */
}

/* The panel's curves, of which the first is curve number `first` of the picture; without any, its axes alone. */
static void draw_panel(const hark_lab_panel *panel, int first, hark_picture *picture) {
  static const char *const styles[] = {"lines lw 2", "lines lw 1.5", "points pt 7 ps 0.6"};
  char style[96], color[HARK_COLOR_BYTES];
  set_axes(&panel->axes, &picture->script);
  set_scales(panel, &picture->script);
  draw_cells(panel, &picture->script);
  hark_text_append(&picture->script, "plot ");
  int drawn = 0, item = -1;
  for (int i = 0; i < panel->curve_count; i++) {
    const hark_lab_curve *const curve = &panel->curves[i];
    item += curve->label[0] != 0 || item < 0; /* a curve without a label belongs to the one before it, and has its colour */
    if (hark_lab_point_count(curve) == 0) continue;
    if (drawn > 0) hark_text_append(&picture->script, ", \\\n    ");
    const hark_line_look look = hark_picture_line_look(item);
    (void)snprintf(style, sizeof style, "%s dt %d lc rgb '%s'", styles[curve->style], look.dashes + (curve->style == HARK_LAB_DASHES),
                   hark_picture_color(look.color, color));
    hark_picture_append_curve(picture, first + drawn++, style, curve->label);
  }
  hark_text_append(&picture->script, drawn > 0 ? "\n" : "NaN notitle\n");
}

hark_status hark_lab_draw(hark_invocation *call, const hark_lab *lab, const char *path) {
  int first[HARK_LAB_PANELS];
  hark_picture picture;
  HARK_TRY(hark_picture_begin(call->context, path, has_ending(path, ".png"), PANEL_WIDTH, lab->panel_count * PANEL_HEIGHT, &picture));
  picture.optional = true; /* the numbers are the main result of an experiment */
  for (int i = 0; i < lab->panel_count; i++) {
    const hark_lab_panel *const panel = &lab->panels[i];
    first[i] = picture.curves;
    for (int c = 0; c < panel->curve_count; c++) {
      const hark_lab_curve *const curve = &panel->curves[c];
      if (hark_lab_point_count(curve) > 0)
        hark_picture_add_curve(&picture, curve->label, hark_lab_points(curve), hark_lab_point_count(curve));
    }
  }
  hark_text_append(&picture.script, "set multiplot layout %d,1\n", lab->panel_count);
  for (int i = 0; i < lab->panel_count; i++) draw_panel(&lab->panels[i], first[i], &picture);
  hark_text_append(&picture.script, "unset multiplot\n");
  return hark_picture_finish(call, &picture);
}

/* ---- with letters ---- */

static hark_status series_of(hark_context *context, const hark_lab_axes *axes, const hark_lab_curve *curve, hark_series *out) {
  *out = (hark_series){0};
  (void)snprintf(out->label, sizeof out->label, "%s", curve->label);
  for (int64_t i = 0; i < hark_lab_point_count(curve); i++) {
    const double *const point = hark_lab_points(curve) + 2 * i;
    HARK_TRY(hark_series_append(context, out, point[0], axes->log_y ? log10(point[1]) : point[1]));
  }
  return HARK_OK;
}

static hark_status draw_panel_letters(hark_context *context, const hark_lab_panel *panel, hark_text *text) {
  void *memory;
  const size_t bytes = (size_t)panel->curve_count * sizeof(hark_series);
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  hark_series *const series = memory;
  hark_status status = HARK_OK;
  for (int i = 0; i < panel->curve_count && status == HARK_OK; i++)
    status = series_of(context, &panel->axes, &panel->curves[i], &series[i]);
  hark_text_append(text, "\n%s: %s%s\n", panel->axes.title, panel->axes.log_y ? "log10 of " : "", panel->axes.y);
  if (status == HARK_OK)
    hark_series_draw(series, panel->curve_count, panel->axes.x, panel->axes.log_x, hark_terminal_columns(), LETTER_ROWS, text);
  for (int i = 0; i < panel->curve_count; i++) hark_series_free(context, &series[i]);
  hark_release(context, memory, bytes);
  return status;
}

hark_status hark_lab_draw_letters(hark_invocation *call, const hark_lab *lab) {
  hark_text text = hark_text_empty(call->context);
  for (int i = 0; i < lab->panel_count; i++) {
    if (lab->panels[i].curve_count == 0) continue;
    const hark_status status = draw_panel_letters(call->context, &lab->panels[i], &text);
    if (status == HARK_OK) continue;
    hark_text_free(&text);
    return status;
  }
  return hark_command_print(call, &text);
}

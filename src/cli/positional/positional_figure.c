/* positional_figure.c - see positional_figure.h. G is divided by its largest value, which attention weights do not depend on. With a
 * direction, the horizontal axis is the position of the key less that of the query, so that keys before the query are on the left. */
#include "cli/positional/positional_figure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "positional/leaf_text.h"
#include "positional/list.h"

#define COLUMNS 4 /* of panels */
#define PANEL_WIDTH 330
#define PANEL_HEIGHT 240
#define WIDTH 760 /* of a single panel */
#define HEIGHT 440
#define SIZE 6           /* of kernels that are written name[K] */
#define CONSTANT 12      /* of kernels that need a number */
#define MOST_POINTS 2048 /* the nearest distances that are drawn: all of them are whole */

/* An expression of which curves are drawn. */
typedef struct drawing {
  hark_context *context;
  hark_picture *picture;
  const hark_positional_figure *figure;
  bool directed;
  int64_t farthest, points;                        /* distances 0 .. farthest, or farthest .. -farthest if directed */
  double *distances, *values, *pairs, *parameters; /* [points], [points], [2 points], [HARK_POSITIONAL_PARAMETERS] */
} drawing;

static hark_status add_curve(const drawing *d, const hark_positional *expression, int64_t head) {
  const hark_positional_start start = {.struct_size = sizeof start, .length = d->figure->length, .heads = d->figure->heads, .head = head};
  char label[64];
  double most = -INFINITY;
  HARK_TRY(hark_positional_initial(d->context, expression, &start, d->parameters));
  HARK_TRY(hark_positional_log(d->context, expression, d->parameters, d->distances, d->points, d->values));
  for (int64_t i = 0; i < d->points; i++) most = fmax(most, d->values[i]);
  for (int64_t i = 0; i < d->points; i++) {
    d->pairs[2 * i] = d->directed ? -d->distances[i] : d->distances[i];
    d->pairs[2 * i + 1] = exp(d->values[i] - most);
  }
  (void)snprintf(label, sizeof label, "head %" PRId64, head);
  hark_picture_add_curve(d->picture, label, d->pairs, d->points);
  return HARK_OK;
}

static hark_status add_curves(const drawing *d, const char *text) {
  hark_positional *expression;
  HARK_TRY(hark_positional_create(d->context, text, &expression));
  hark_status status = HARK_OK;
  for (int64_t head = 0; head < hark_min(d->figure->heads, HARK_POSITIONAL_CURVES) && status == HARK_OK; head++)
    status = add_curve(d, expression, head);
  hark_positional_destroy(d->context, &expression);
  return status;
}

/* A panel with the curves that were added since `first`. */
static void append_panel(hark_picture *picture, int first, const char *title, bool keys) {
  hark_text *const script = &picture->script;
  hark_text_append(script, "set title ");
  hark_picture_append_quoted(script, title);
  hark_text_append(script, "\n");
  hark_text_append(script, "plot ");
  for (int curve = first; curve < picture->curves; curve++) {
    char color[HARK_COLOR_BYTES], style[64], label[32];
    (void)snprintf(style, sizeof style, "lines lw 2 lc rgb '%s'", hark_picture_color(curve - first, color));
    (void)snprintf(label, sizeof label, "head %d", curve - first);
    hark_picture_append_curve(picture, curve, style, keys ? label : "");
    hark_text_append(script, curve + 1 < picture->curves ? ", \\\n    " : "\n");
  }
}

static hark_status draw_all(const drawing *d) {
  const int rows = (hark_positional_kernel_count() + COLUMNS - 1) / COLUMNS;
  hark_text_append(&d->picture->script, "set multiplot layout %d,%d\nset yrange [0:1.25]\nset ytics 0,0.5,1\n", rows, COLUMNS);
  for (int i = 0; i < hark_positional_kernel_count(); i++) {
    const hark_positional_kernel leaf = hark_positional_kernel_at(i);
    const int first = d->picture->curves;
    char text[HARK_LEAF_TEXT_BYTES];
    hark_leaf_text(&leaf, SIZE, CONSTANT, text);
    HARK_TRY(add_curves(d, text));
    append_panel(d->picture, first, text, false);
  }
  hark_text_append(&d->picture->script, "unset multiplot\n");
  return HARK_OK;
}

static hark_status draw_one(const drawing *d) {
  hark_text_append(&d->picture->script, "set xlabel '%s'\nset ylabel 'G / largest G'\nset yrange [0:1.05]\n",
                   d->directed ? "position of the key less that of the query (tokens)" : "distance (tokens)");
  HARK_TRY(add_curves(d, d->figure->text));
  append_panel(d->picture, 0, d->figure->text, d->figure->heads > 1);
  return HARK_OK;
}

static hark_status draw(const drawing *d) {
  hark_text_append(&d->picture->script, "set xrange [%" PRId64 ":%" PRId64 "]\n", d->directed ? -d->farthest : 0, d->farthest);
  return d->figure->text != NULL ? draw_one(d) : draw_all(d);
}

hark_status hark_positional_draw(hark_invocation *call, const hark_positional_figure *figure) {
  const char *const ending = strrchr(figure->path, '.');
  const bool png = ending != NULL && strcmp(ending, ".png") == 0;
  const int rows = (hark_positional_kernel_count() + COLUMNS - 1) / COLUMNS;
  const int width = figure->text != NULL ? WIDTH : COLUMNS * PANEL_WIDTH, height = figure->text != NULL ? HEIGHT : rows * PANEL_HEIGHT;
  const bool directed =
      hark_positional_list_direction(figure->text, "left") > 0 || hark_positional_list_direction(figure->text, "right") > 0;
  const int64_t farthest = hark_min(hark_max(figure->length, 2), MOST_POINTS) - 1, points = directed ? 2 * farthest + 1 : farthest + 1;
  const size_t bytes = (size_t)(4 * points + HARK_POSITIONAL_PARAMETERS) * sizeof(double);
  hark_picture picture;
  void *memory = NULL;
  HARK_TRY(hark_allocate(call->context, bytes, &memory));
  drawing d = {.context = call->context,
               .picture = &picture,
               .figure = figure,
               .directed = directed,
               .farthest = farthest,
               .points = points,
               .distances = memory};
  d.values = d.distances + points;
  d.pairs = d.values + points;
  d.parameters = d.pairs + 2 * points;
  for (int64_t i = 0; i < points; i++) d.distances[i] = (double)(directed ? farthest - i : i);
  hark_status status = hark_picture_begin(call->context, figure->path, png, width, height, &picture);
  if (status == HARK_OK) {
    picture.optional = true; /* the numbers are the main result */
    status = draw(&d);
    if (status == HARK_OK)
      status = hark_picture_finish(call, &picture);
    else
      hark_picture_free(&picture);
  }
  hark_release(call->context, memory, bytes);
  return status;
}

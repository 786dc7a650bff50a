/* predict_figure.c - see predict_figure.h. */
#include "cli/predict/predict_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/gnuplot.h"

#define WIDTH 900
#define HEIGHT 520
enum { BAND, MEAN, KNOWN };

static int compare(const void *a, const void *b) {
  const double x = ((const hark_predict_point *)a)->x, y = ((const hark_predict_point *)b)->x;
  return (x > y) - (x < y);
}

/* The curves, of which the band goes along the lower ends and back along the upper ones. */
static void add_curves(const hark_predict_figure *f, double *numbers, hark_picture *picture) {
  const int64_t n = f->point_count;
  char label[64];
  for (int64_t i = 0; i < n; i++) {
    numbers[2 * i] = numbers[2 * (2 * n - 1 - i)] = f->points[i].x;
    numbers[2 * i + 1] = f->points[i].lower;
    numbers[2 * (2 * n - 1 - i) + 1] = f->points[i].upper;
  }
  (void)snprintf(label, sizeof label, "interval of %.4g %%", 100 * f->interval);
  hark_picture_add_curve(picture, label, numbers, 2 * n);
  for (int64_t i = 0; i < n; i++) {
    numbers[2 * i] = f->points[i].x;
    numbers[2 * i + 1] = f->points[i].mean;
  }
  hark_picture_add_curve(picture, "predicted", numbers, n);
  hark_picture_add_curve(picture, "context", f->known, f->known_count);
  hark_text_append(&picture->script, "set style fill transparent solid 0.25 noborder\nset xlabel ");
  hark_picture_append_quoted(&picture->script, f->input);
  hark_text_append(&picture->script, "\nset ylabel ");
  hark_picture_append_quoted(&picture->script, f->target);
  hark_text_append(&picture->script, "\n");
  (void)hark_picture_append_single(&picture->script, 'x', f->points[0].x, f->points[n - 1].x);
  hark_text_append(&picture->script, "plot ");
  char color[HARK_COLOR_BYTES], style[96];
  (void)snprintf(style, sizeof style, "filledcurves closed lc rgb '%s'", hark_picture_color(0, color));
  hark_picture_append_curve(picture, BAND, style, label);
  hark_text_append(&picture->script, ", ");
  (void)snprintf(style, sizeof style, "lines lw 2 lc rgb '%s'", color);
  hark_picture_append_curve(picture, MEAN, n > 1 ? style : "points pt 7", "predicted");
  hark_text_append(&picture->script, ", ");
  (void)snprintf(style, sizeof style, "points pt 7 ps 0.5 lc rgb '%s'", hark_picture_color(1, color));
  hark_picture_append_curve(picture, KNOWN, style, "context");
  hark_text_append(&picture->script, "\n");
}

hark_status hark_predict_draw(hark_invocation *call, const hark_predict_figure *f) {
  const char *const ending = strrchr(f->path, '.');
  size_t bytes = 0;
  void *memory = NULL;
  hark_picture picture;
  HARK_TRY(hark_size_multiply(call->context, (size_t)f->point_count, 4 * sizeof(double), &bytes));
  HARK_TRY(hark_allocate(call->context, bytes, &memory));
  const hark_status status =
      hark_picture_begin(call->context, f->path, ending != NULL && strcmp(ending, ".png") == 0, WIDTH, HEIGHT, &picture);
  if (status == HARK_OK) {
    picture.optional = picture.silent = true; /* the rows are the main result */
    qsort(f->points, (size_t)f->point_count, sizeof *f->points, compare);
    add_curves(f, memory, &picture);
  }
  hark_release(call->context, memory, bytes);
  return status == HARK_OK ? hark_picture_finish(call, &picture) : status;
}

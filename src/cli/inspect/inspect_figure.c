/* inspect_figure.c - maps of a model's heads: a cell per head, layers down and heads across. See inspect.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/inspect/inspect.h"

#define PANELS 4
#define CELL_WIDTH 60
#define CELL_HEIGHT 32
#define MARGIN_WIDTH 110 /* around the cells of a panel */
#define MARGIN_HEIGHT 125
#define LEAST_WIDTH 420 /* of a panel: its title */
#define MANY 64         /* heads or layers: no numbers in small cells */
#define MOST 3000       /* of the cells of a panel, across or down */

typedef struct map {
  const char *title;
  size_t member; /* of hark_head_statistics */
  bool fraction; /* shaded from 0 to 1; else from 1 to the largest, logarithmically */
} map;

static double number_of(const hark_head_statistics *head, const map *m) { return *(const double *)((const char *)head + m->member); }

/* From 0, white, to 1, dark. */
static double shade_of(double number, double largest, bool fraction) {
  if (fraction) return number;
  return largest > 1 && number > 1 ? log(number) / log(largest) : 0;
}

static double largest_of(const hark_model_statistics *statistics, const map *m) {
  double largest = 0;
  for (int64_t i = 0; i < statistics->layers * statistics->heads; i++) largest = fmax(largest, number_of(&statistics->all[i], m));
  return largest;
}

static void append_cell(double number, double shade, int64_t layer, int64_t head, bool named, hark_text *script) {
  const unsigned faint = (unsigned)lround(255 - 105 * shade); /* legible in black, and in white on dark screens */
  const double x = (double)head, y = (double)layer;
  hark_text_append(script,
                   "set object rectangle from %.1f,%.1f to %.1f,%.1f fillcolor rgb '#%02x%02xff' fillstyle solid border lc rgb '#808080'\n",
                   x - 0.5, y - 0.5, x + 0.5, y + 0.5, faint, faint);
  if (named) hark_text_append(script, "set label '%.*f' at %.0f,%.0f center front\n", number < 10 ? 2 : number < 100 ? 1 : 0, number, x, y);
}

static void append_panel(const hark_model_statistics *statistics, const map *m, const char *title, hark_text *script) {
  const bool named = statistics->heads <= MANY && statistics->layers <= MANY;
  const double largest = largest_of(statistics, m);
  hark_text_append(script, "unset object\nunset label\nset title ");
  hark_picture_append_quoted(script, title);
  hark_text_append(script, "\n");
  for (int64_t layer = 0; layer < statistics->layers; layer++)
    for (int64_t head = 0; head < statistics->heads; head++) {
      const double number = number_of(&statistics->of_layers[layer].heads[head], m);
      append_cell(number, shade_of(number, largest, m->fraction), layer, head, named, script);
    }
  hark_text_append(script, "plot NaN notitle\n");
}

/* Ticks at whole numbers, at most about 16 of them. */
static int64_t step_of(int64_t count) { return hark_max(1, (count + 15) / 16); }

static void append_axes(const hark_model_statistics *statistics, hark_text *script) {
  hark_text_append(script,
                   "set multiplot layout 2,2\nset key off\nset xlabel 'head'\nset ylabel 'layer'\nset tics nomirror scale 0\n"
                   "set xtics %" PRId64 "\nset ytics %" PRId64 "\nset xrange [-0.5:%.1f]\nset yrange [%.1f:-0.5]\n",
                   step_of(statistics->heads), step_of(statistics->layers), (double)statistics->heads - 0.5,
                   (double)statistics->layers - 0.5);
}

static int size_of(int64_t cells, int cell, int margin, int least) { return (int)hark_max(hark_min(cells * cell, MOST) + margin, least); }

hark_status hark_inspect_draw(hark_invocation *call, const hark_inspection *inspection, const char *path) {
  static const map maps[PANELS] = {{"effective number of keys", offsetof(hark_head_statistics, keys), false},
                                   {"mean distance (tokens)", offsetof(hark_head_statistics, distance), false},
                                   {NULL, offsetof(hark_head_statistics, far), true},
                                   {"weight on the first token", offsetof(hark_head_statistics, first), true}};
  const hark_model_statistics *const statistics = &inspection->statistics;
  const char *const ending = strrchr(path, '.');
  char far[64];
  hark_picture picture;
  (void)snprintf(far, sizeof far, "weight beyond %" PRId64 " tokens", inspection->distance);
  HARK_TRY(hark_picture_begin(call->context, path, ending != NULL && strcmp(ending, ".png") == 0,
                              2 * size_of(statistics->heads, CELL_WIDTH, MARGIN_WIDTH, LEAST_WIDTH),
                              2 * size_of(statistics->layers, CELL_HEIGHT, MARGIN_HEIGHT, 0), &picture));
  picture.optional = true; /* the numbers are the main result */
  append_axes(statistics, &picture.script);
  for (int i = 0; i < PANELS; i++) append_panel(statistics, &maps[i], maps[i].title != NULL ? maps[i].title : far, &picture.script);
  hark_text_append(&picture.script, "unset multiplot\n");
  return hark_picture_finish(call, &picture);
}

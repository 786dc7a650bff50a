/* gnuplot.h - pictures by gnuplot. Gnuplot reads a script that contains the data and writes the picture, both through streams: it does not
 * report a failed write, so hark writes the file. Where gnuplot fails or is missing, the data and a script are written next to the picture,
 * with a message. It is started without a shell.
 *
 *     hark_picture picture;
 *     HARK_TRY(hark_picture_begin(context, "loss.svg", false, 1000, 600, &picture));
 *     hark_picture_add_curve(&picture, label, points, count);      curve 0; more follow
 *     hark_text_append(&picture.script, "plot ");
 *     hark_picture_append_curve(&picture, 0, "lines lw 2", label);
 *     return hark_picture_finish(call, &picture);
 */
#ifndef HARK_CLI_GNUPLOT_H
#define HARK_CLI_GNUPLOT_H

#include "cli/common.h"
#include "io/files.h"

typedef struct hark_picture {
  char path[HARK_PATH_BYTES], data_path[HARK_PATH_BYTES], script_path[HARK_PATH_BYTES];
  int curves;
  bool png;
  bool optional; /* without gnuplot a warning is enough: the picture is not the command's main result */
  bool silent;   /* standard output has the main result: the name of the picture is not printed */
  hark_text data, script;
} hark_picture;

/* Before a picture is written to a name that nobody chose: a file there that is no picture of hark is refused (HARK_BAD_CONFIGURATION, with
 * `remedy` at the end). A PNG is replaced, whoever drew it. */
HARK_MUST_CHECK hark_status hark_picture_check_place(hark_context *context, const char *path, const char *remedy);

/* Begins the script with the picture's kind, size and file. A PNG has two pixels for each of `width` and `height`, with smooth lines. An
 * SVG has sans-serif after its font, and a reader who prefers a dark screen sees its light and dark exchanged. */
HARK_MUST_CHECK hark_status hark_picture_begin(hark_context *context, const char *path, bool png, int width, int height, hark_picture *out);

/* Points x0, y0, x1, y1, ... of the next curve. */
void hark_picture_add_curve(hark_picture *picture, const char *label, const double *points, int64_t count);

/* Text in gnuplot's single quotes, for display; the part of a plot command for curve `index`: "'FILE' index 3 with STYLE title 'LABEL'". */
void hark_picture_append_quoted(hark_text *text, const char *value);
void hark_picture_append_curve(hark_picture *picture, int index, const char *style, const char *label);

/* Sets the range of a linear axis: `low` to `high` and a margin on both sides, so that no curve is on the frame. Nothing without two finite
 * numbers. */
void hark_picture_append_range(hark_text *script, char axis, double low, double high);

/* Makes the axis ('x' or 'y') logarithmic, from `low` to `high` with such a margin, with labelled ticks also where no power of ten is in
 * between; without numbers above zero that differ, gnuplot chooses both. Begin with infinity and minus infinity, and extend by points that
 * are drawn. */
void hark_picture_append_log_axis(hark_text *script, char axis, double low, double high);
void hark_picture_extend(const double *points, int64_t count, char axis, double *low, double *high);

/* Sets a range around a single number (low = high), which gnuplot would warn about. Returns whether it did. */
bool hark_picture_append_single(hark_text *script, char axis, double low, double high);

/* The colour of item `index` of a comparison, "#rrggbb": first eight, most of them those of Okabe and Ito, which people of any colour
 * vision distinguish; then others. */
#define HARK_COLOR_BYTES 8
#define HARK_COLORS 8 /* that are easily distinguished */
#define HARK_DASHES 5
#define HARK_FONT_POINTS 15
const char *hark_picture_color(int index, char out[HARK_COLOR_BYTES]);

/* How line `index` of many is drawn: the eight colours, and further dashes for every further eight lines, so that no two look the same. */
typedef struct hark_line_look {
  int color, dashes;
} hark_line_look;
hark_line_look hark_picture_line_look(int index);

/* Draws the picture and prints its name (not with JSON); the texts are released also after a failure. */
HARK_MUST_CHECK hark_status hark_picture_finish(hark_invocation *call, hark_picture *picture);
void hark_picture_free(hark_picture *picture);

#endif

/* data_picture.c - images of a task as a sheet in SVG. All pixels of one grey value in an image are one path of rectangles of one pixel
 * height, which keeps files small: a run of equal pixels is one rectangle, and black pixels are the background. */
#include <inttypes.h>

#include "cli/data/data.h"
#include "data/examples/example_folder.h"
#include "io/json_write.h"

#define GREYS 256
#define GAP 6      /* points between images */
#define CAPTION 14 /* points below each */

/* Appends a text as XML. */
static void append_xml(hark_text *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '<') {
      hark_text_append(out, "&lt;");
    } else if (*text == '&') {
      hark_text_append(out, "&amp;");
    } else {
      hark_text_append_bytes(out, text, 1);
    }
  }
}

/* The runs of one grey value, as part of a path. Returns whether there was any. */
static bool print_runs(const int32_t *tokens, int32_t height, int32_t width, int grey, hark_text *text) {
  bool any = false;
  for (int32_t y = 0; y < height; y++)
    for (int32_t x = 0; x < width;) {
      int32_t end = x;
      while (end < width && tokens[y * width + end] == HARK_TOKEN_RESERVED + grey) end++;
      if (end > x) {
        if (!any) hark_text_append(text, "<path fill=\"#%02x%02x%02x\" d=\"", grey, grey, grey);
        hark_text_append(text, "M%" PRId32 " %" PRId32 "h%" PRId32 "v1H%" PRId32 "z", x, y, end - x, x);
        any = true;
      }
      x = end > x ? end : x + 1;
    }
  if (any) hark_text_append(text, "\"/>");
  return any;
}

static void print_image(const int32_t *tokens, int32_t height, int32_t width, hark_text *text) {
  hark_text_append(text, "<rect width=\"%" PRId32 "\" height=\"%" PRId32 "\"/>", width, height);
  for (int grey = 1; grey < GREYS; grey++) (void)print_runs(tokens, height, width, grey, text);
}

static hark_status print_images(hark_context *context, const hark_examples *examples, const hark_data_sheet *sheet, int64_t count,
                                int32_t *tokens, hark_text *text) {
  int32_t height, width;
  (void)hark_examples_image(examples, &height, &width);
  const int64_t step_x = width * sheet->scale + GAP, step_y = height * sheet->scale + GAP + CAPTION;
  for (int64_t i = 0; i < count; i++) {
    const int64_t x = GAP + i % sheet->columns * step_x, y = GAP + i / sheet->columns * step_y;
    HARK_TRY(hark_examples_read(context, examples, sheet->split, i, 0, tokens));
    hark_text_append(text, "<g transform=\"translate(%" PRId64 " %" PRId64 ") scale(%" PRId64 ")\">", x, y, sheet->scale);
    print_image(tokens, height, width, text);
    hark_text_append(text, "</g>\n<text x=\"%" PRId64 "\" y=\"%" PRId64 "\">", x, y + height * sheet->scale + CAPTION - 3);
    append_xml(text, hark_examples_class_name(examples, hark_examples_label(examples, sheet->split, i)));
    hark_text_append(text, "</text>\n");
  }
  return text->status;
}

hark_status hark_data_print_sheet(hark_context *context, const hark_examples *examples, const hark_data_sheet *sheet, hark_text *text) {
  int32_t height, width;
  const int64_t count = hark_min(sheet->count, hark_examples_count(examples, sheet->split).examples);
  if (!hark_examples_image(examples, &height, &width))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "examples of the format %s are not images", hark_examples_format(examples));
  if (count == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--split: there are no %s examples", hark_example_split_names[sheet->split]);
  if (hark_examples_count(examples, sheet->split).longest < (int64_t)height * width)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "data.length_limit cuts the images");
  const int64_t columns = hark_min(sheet->columns, count), rows = hark_ceil_div(count, columns);
  hark_text_append(text,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%" PRId64 "\" height=\"%" PRId64
                   "\" font-family=\"sans-serif\" font-size=\"11\" shape-rendering=\"crispEdges\">\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
                   GAP + columns * (width * sheet->scale + GAP), GAP + rows * (height * sheet->scale + GAP + CAPTION));
  const size_t bytes = (size_t)height * (size_t)width * sizeof(int32_t);
  int32_t *tokens;
  HARK_TRY(hark_allocate(context, bytes, (void **)&tokens));
  const hark_status status = print_images(context, examples, sheet, count, tokens, text);
  hark_release(context, tokens, bytes);
  hark_text_append(text, "</svg>\n");
  return status == HARK_OK ? text->status : status;
}

/* predict_output.c - see predict_output.h. */
#include "cli/predict/predict_output.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "io/json_write.h"
#include "io/number.h"
#include "io/temporary.h"

#define OUTPUT_BYTES ((size_t)1 << 16) /* of rows are collected before they are written */
#define SINGLE_DIGITS 9                /* from which every number of 32 bits can be read back */

hark_status hark_predict_output_open(hark_context *context, const char *path, bool json, hark_predict_output *out) {
  *out = (hark_predict_output){.context = context, .json = json, .names = hark_text_empty(context), .text = hark_text_empty(context)};
  HARK_TRY(hark_path_clean(context, path));
  return hark_writer_open(context, &out->writer, path);
}

void hark_predict_output_close(hark_predict_output *output) {
  if (output->context == NULL) return; /* was never opened */
  hark_writer_discard(&output->writer);
  hark_text_free(&output->names);
  hark_text_free(&output->text);
}

void hark_predict_output_column(hark_predict_output *output, const char *prefix, const char *name) {
  hark_text_append_bytes(&output->names, prefix, strlen(prefix));
  hark_text_append_bytes(&output->names, name, strlen(name) + 1);
}

/* ---- values ---- */

/* Before a value: the separator and, in JSON, the name. */
static void begin_value(hark_predict_output *output) {
  const bool first = output->name == NULL;
  if (first) output->name = hark_text_get(&output->names);
  if (output->json) {
    hark_text_append(&output->text, first ? "{" : ", ");
    hark_json_append_string(&output->text, output->name);
    hark_text_append(&output->text, ": ");
  } else if (!first) {
    hark_text_append(&output->text, ",");
  }
  output->name += strlen(output->name) + 1;
}

void hark_predict_output_text(hark_predict_output *output, const char *value) {
  begin_value(output);
  if (output->json && value != NULL)
    hark_json_append_string(&output->text, value);
  else if (output->json)
    hark_text_append(&output->text, "null");
  else if (value != NULL)
    hark_text_append_csv(&output->text, value);
}

void hark_predict_output_whole(hark_predict_output *output, int64_t value) {
  begin_value(output);
  hark_text_append(&output->text, "%" PRId64, value);
}

/* The number with the fewest digits, at most 9, that has the same 32 bits; else the number itself. */
static double shorten(double value) {
  if (value == 0) return value;
  const int exponent = (int)floor(log10(fabs(value)));
  for (int digits = 1; digits <= SINGLE_DIGITS; digits++) {
    const int decimals = digits - 1 - exponent;
    const double scale = pow(10, fabs((double)decimals));
    const double shorter = decimals >= 0 ? round(value * scale) / scale : round(value / scale) * scale;
    if ((float)shorter == (float)value) return shorter;
  }
  return value;
}

void hark_predict_output_number(hark_predict_output *output, double value, bool single) {
  begin_value(output);
  hark_text_append(&output->text, "%s", HARK_PRINTED(single ? shorten(value) : value));
}

/* ---- rows ---- */

static hark_status flush(hark_predict_output *output) {
  HARK_TRY(output->text.status);
  HARK_TRY(hark_writer_append(output->context, &output->writer, hark_text_get(&output->text), output->text.length));
  hark_text_resize(&output->text, 0);
  return output->text.status;
}

hark_status hark_predict_output_begin(hark_predict_output *output) {
  const char *const names = hark_text_get(&output->names);
  HARK_TRY(output->names.status);
  if (output->json) return HARK_OK;
  for (size_t at = 0; at < output->names.length; at += strlen(names + at) + 1) {
    if (at > 0) hark_text_append(&output->text, ",");
    hark_text_append_csv(&output->text, names + at);
  }
  hark_text_append(&output->text, "\r\n");
  return output->text.status;
}

hark_status hark_predict_output_end_row(hark_predict_output *output) {
  hark_text_append(&output->text, output->json ? "}\n" : "\r\n");
  output->name = NULL;
  return output->text.length < OUTPUT_BYTES ? output->text.status : flush(output);
}

hark_status hark_predict_output_finish(hark_predict_output *output) {
  HARK_TRY(flush(output));
  return hark_writer_commit(output->context, &output->writer, NULL);
}

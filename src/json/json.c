/* json.c - documents read by jansson, after the scan that bounds their memory. */
#include "json/json.h"

#include <inttypes.h>

#include "io/files.h"
#include "io/json_tree.h"

hark_status hark_json_parse_line(hark_context *context, const char *name, int64_t first, const char *text, size_t length, json_t **out) {
  static const hark_json_limits limits = {.depth = HARK_JSON_DEPTH, .values = HARK_JSON_RECORD_VALUES};
  json_error_t error;
  size_t at = 0, line, column;
  *out = NULL;
  const hark_json_fit fit = hark_json_scan(text, length, &limits, &at, NULL);
  if (fit != HARK_JSON_FITS) {
    hark_json_place(text, at, &line, &column);
    return hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ":%zu: %s", name, first + (int64_t)line - 1, column, hark_json_fit_text(fit));
  }
  *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (*out != NULL) return HARK_OK;
  if (json_error_code(&error) == json_error_out_of_memory)
    return hark_fail(context, HARK_OUT_OF_MEMORY, "%s: out of memory in jansson", name);
  return hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ":%d: not the JSON expected: %s", name, first + error.line - 1, error.column,
                   error.text);
}

hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out) {
  return hark_json_parse_line(context, name, 1, text, length, out);
}

hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out) {
  *out = NULL;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_file_read_stored(context, path, limit, &text));
  const hark_status status = hark_json_parse(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

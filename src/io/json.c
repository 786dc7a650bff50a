/* json.c - documents read by jansson. */
#include "io/json.h"

#include "io/files.h"

hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out) {
  json_error_t error;
  *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
  if (*out != NULL) return HARK_OK;
  if (json_error_code(&error) == json_error_out_of_memory)
    return hark_fail(context, HARK_OUT_OF_MEMORY, "%s: out of memory in jansson", name);
  return hark_fail(context, HARK_BAD_FILE, "%s:%d:%d: not the JSON expected: %s", name, error.line, error.column, error.text);
}

hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out) {
  *out = NULL;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_file_read(context, path, limit, &text));
  const hark_status status = hark_json_parse(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

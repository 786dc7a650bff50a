/* fuzz_json.c - any bytes as a JSON document, as a text to be escaped, and as a file of JSON lines.
 *
 * A document that is accepted keeps to its limits and comes back the same when it is printed. A text comes back the same, but for bytes that
 * are not UTF-8, which become U+FFFD. Of a file of lines every whole line before the first bad one is given out, in order; opening it for
 * appending cuts the torn end and nothing else. */
#define _GNU_SOURCE /* memmem */
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "io/jsonl.h"

#define PARSED_BYTES 256 /* of a document in memory for each of its bytes at most */

/* Depth, and values, keys not counted. */
static int measure(const json_t *value, int64_t *values) {
  int deepest = 0;
  ++*values;
  if (json_is_array(value)) {
    for (size_t i = 0; i < json_array_size(value); i++) {
      const int depth = measure(json_array_get(value, i), values) + 1;
      if (depth > deepest) deepest = depth;
    }
    return deepest > 0 ? deepest : 1;
  }
  if (!json_is_object(value)) return 0;
  for (void *at = json_object_iter((json_t *)value); at != NULL; at = json_object_iter_next((json_t *)value, at)) {
    const int depth = measure(json_object_iter_value(at), values) + 1;
    if (depth > deepest) deepest = depth;
  }
  return deepest > 0 ? deepest : 1;
}

static void check_document(hark_context *context, const char *text, size_t size) {
  json_t *document, *again;
  const hark_status status = hark_json_parse(context, "input", text, size, &document);
  fuzz_limit(PARSED_BYTES * size);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, "input:");
  if (status != HARK_OK) return;
  int64_t values = 0;
  const int depth = measure(document, &values);
  FUZZ_CHECK(depth <= HARK_JSON_DEPTH && values <= HARK_JSON_ITEMS, "depth %d, %lld values", depth, (long long)values);
  char *const printed = json_dumps(document, JSON_COMPACT | JSON_ENCODE_ANY);
  FUZZ_CHECK(printed != NULL, "cannot be printed");
  FUZZ_CHECK(hark_json_parse(context, "again", printed, strlen(printed), &again) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(json_equal(document, again), "came back changed: %s", printed);
  free(printed);
  json_decref(document);
  json_decref(again);
}

/* A list of the one text. */
static void check_text(hark_context *context, const char *bytes, size_t size) {
  static const hark_json_limits limits = {.depth = 1, .items = 2, .zero_bytes = true};
  hark_text text = hark_text_empty(context);
  json_t *document, *plain;
  hark_text_append(&text, "[");
  hark_json_append_bytes(&text, bytes, size);
  hark_text_append(&text, "]");
  FUZZ_CHECK(text.status == HARK_OK, "%s", hark_context_message(context));
  fuzz_check_line(hark_text_get(&text));
  const hark_status status = hark_json_parse_within(context, "text", hark_text_get(&text), text.length, &limits, &document);
  FUZZ_CHECK(status == HARK_OK, "%s", hark_context_message(context));
  const json_t *const back = json_array_get(document, 0);
  if ((plain = json_stringn(bytes, size)) != NULL) { /* valid UTF-8 */
    FUZZ_CHECK(json_equal(plain, back), "the text came back changed: %s", hark_text_get(&text));
    json_decref(plain);
  } else {
    FUZZ_CHECK(memmem(json_string_value(back), json_string_length(back), "\xef\xbf\xbd", 3) != NULL, "no sign of what was replaced");
  }
  json_decref(document);
  hark_text_free(&text);
}

typedef struct reading {
  int64_t line;
} reading;

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  reading *const r = user;
  FUZZ_CHECK(json_is_object(object) && line == ++r->line, "line %lld behind %lld", (long long)line, (long long)r->line - 1);
  return HARK_OK;
}

/* Reading, and cutting of the torn end. */
static void check_lines(hark_context *context, const char *bytes, size_t size) {
  const char *const path = fuzz_file(bytes, size);
  reading before = {0}, after = {0};
  const hark_status status = hark_jsonl_read(context, path, take_line, &before);
  fuzz_limit(PARSED_BYTES * size);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, path);
  size_t whole = size;
  while (whole > 0 && bytes[whole - 1] != '\n') whole--;
  hark_jsonl file = {0};
  FUZZ_CHECK(hark_jsonl_open(context, &file, path) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(file.bytes == whole, "%llu bytes of %zu are kept", (unsigned long long)file.bytes, whole);
  hark_jsonl_begin(&file);
  hark_jsonl_string(&file, "text", "\x01");
  hark_jsonl_number(&file, "number", 0.1);
  FUZZ_CHECK(hark_jsonl_end(context, &file) == HARK_OK && hark_jsonl_close(context, &file) == HARK_OK, "%s", hark_context_message(context));
  const hark_status again = hark_jsonl_read(context, path, take_line, &after);
  FUZZ_CHECK(again == status && after.line == before.line + (status == HARK_OK), "%lld lines instead of %lld", (long long)after.line,
             (long long)before.line);
  FUZZ_CHECK(hark_jsonl_truncate(context, path, whole) == HARK_OK, "%s", hark_context_message(context));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  const char *const bytes = size > 0 ? (const char *)data : "";
  check_document(context, bytes, size);
  check_text(context, bytes, size);
  check_lines(context, bytes, size);
  fuzz_end();
  return 0;
}

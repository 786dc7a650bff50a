/* fuzz_json.c - any bytes as a JSON document, as a text to be escaped, and as a file of JSON lines.
 *
 * A document that is accepted keeps to its limits and comes back the same when it is printed; hark's own reader and jansson agree on what
 * is accepted and on what it says. A text comes back the same, but for bytes that are not UTF-8, which become U+FFFD. Of a file of lines
 * every whole line before the first bad one is given out, in order; opening it for appending cuts the torn end and nothing else. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "fuzz/fuzz.h"
#include "io/foreign.h"
#include "io/json_tree.h"
#include "json/jsonl.h"

#define PARSED_BYTES 256 /* of jansson's document in memory for each of its bytes at most: "[]," is a list with a table */
#define TREE_BYTES 64    /* of the tree */

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
  FUZZ_CHECK(depth <= HARK_JSON_DEPTH && values <= HARK_JSON_RECORD_VALUES, "depth %d, %lld values", depth, (long long)values);
  char *const printed = json_dumps(document, JSON_COMPACT | JSON_ENCODE_ANY);
  FUZZ_CHECK(printed != NULL, "cannot be printed");
  FUZZ_CHECK(hark_json_parse(context, "again", printed, strlen(printed), &again) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(json_equal(document, again), "came back changed: %s", printed);
  free(printed);
  json_decref(document);
  json_decref(again);
}

/* ---- the two readers ---- */

static bool same_value(const hark_json_node *node, const json_t *value) {
  switch (node->kind) {
    case HARK_JSON_NULL: return json_is_null(value);
    case HARK_JSON_BOOLEAN: return json_is_boolean(value) && json_is_true(value) == node->boolean;
    case HARK_JSON_INTEGER: return json_is_integer(value) && json_integer_value(value) == node->integer;
    case HARK_JSON_REAL: {
      const double real = json_real_value(value);
      return json_is_real(value) && memcmp(&real, &node->real, sizeof real) == 0;
    }
    case HARK_JSON_TEXT:
      return json_is_string(value) && json_string_length(value) == node->bytes &&
             memcmp(json_string_value(value), node->text, node->bytes) == 0;
    case HARK_JSON_LIST: {
      size_t i = 0;
      if (!json_is_array(value) || (int64_t)json_array_size(value) != node->count) return false;
      for (const hark_json_node *item = node->first; item != NULL; item = item->next)
        if (!same_value(item, json_array_get(value, i++))) return false;
      return true;
    }
    case HARK_JSON_OBJECT:
      if (!json_is_object(value) || (int64_t)json_object_size(value) != node->count) return false;
      for (const hark_json_node *member = node->first; member != NULL; member = member->next) {
        if (hark_json_member(node, member->name) != member) return false;
        if (!same_value(member, json_object_get(value, member->name))) return false;
      }
      return true;
  }
  return false;
}

static void check_tree(hark_context *context, const char *text, size_t size) {
  hark_json_tree tree;
  hark_json_fault fault = {0};
  const hark_status status = hark_json_tree_read(context, text, size, &fault, &tree);
  fuzz_limit(TREE_BYTES * size);
  if (status != HARK_OK) {
    FUZZ_CHECK(status == HARK_BAD_FILE && fault.at <= size && fault.what != NULL && fault.what[0] != 0, "%s", hark_status_name(status));
    const char *const begin = hark_foreign_file(text, size) != NULL ? "input: is " : "input: line ";
    fuzz_check_refusal(context, hark_json_tree_parse(context, "input", text, size, &tree), HARK_BAD_FILE, begin);
  }
  FUZZ_CHECK((status == HARK_OK) == (tree.root != NULL), "the tree of a refused document is there");
  const hark_json_limits limits = {.depth = HARK_JSON_DEPTH, .values = HARK_JSON_VALUES};
  size_t at;
  if (hark_json_scan(text, size, &limits, &at, NULL) != HARK_JSON_FITS) {
    FUZZ_CHECK(tree.root == NULL, "the tree accepts what is beyond the limits");
    return;
  }
  json_error_t error;
  json_t *const document = json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
  const bool long_number = status != HARK_OK && strcmp(fault.what, "a number that is too large") == 0; /* of over 512 digits */
  FUZZ_CHECK((document != NULL) == (status == HARK_OK) || long_number, "jansson: %s; the tree: %s at %zu",
             document != NULL ? "fine" : error.text, status == HARK_OK ? "fine" : fault.what, fault.at);
  if (document != NULL && status == HARK_OK) FUZZ_CHECK(same_value(tree.root, document), "the readers read different values");
  json_decref(document);
  hark_json_tree_free(context, &tree);
}

/* ---- texts ---- */

static void check_text(hark_context *context, const char *bytes, size_t size) {
  hark_text text = hark_text_empty(context);
  hark_json_tree tree;
  hark_json_append_bytes(&text, bytes, size);
  FUZZ_CHECK(text.status == HARK_OK, "%s", hark_context_message(context));
  fuzz_check_line(hark_text_get(&text));
  FUZZ_CHECK(hark_json_tree_parse(context, "text", hark_text_get(&text), text.length, &tree) == HARK_OK, "%s",
             hark_context_message(context));
  const hark_json_node *const back = tree.root;
  json_t *const plain = json_stringn(bytes, size);
  if (plain != NULL) { /* valid UTF-8 */
    FUZZ_CHECK(same_value(back, plain), "the text came back changed: %s", hark_text_get(&text));
    json_decref(plain);
  } else {
    FUZZ_CHECK(memmem(back->text, back->bytes, "\xef\xbf\xbd", 3) != NULL, "no sign of what was replaced");
  }
  hark_json_tree_free(context, &tree);
  hark_text_free(&text);
}

/* ---- lines ---- */

typedef struct reading {
  int64_t line;
} reading;

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  reading *const r = user;
  FUZZ_CHECK(json_is_object(object) && line == ++r->line, "line %lld after %lld", (long long)line, (long long)r->line - 1);
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
  const hark_status opened = hark_jsonl_open(context, &file, path);
  fuzz_check_refusal(context, opened, HARK_BAD_FILE, path);
  if (opened != HARK_OK) { /* a file of another kind, to which nothing is appended */
    const bool foreign = hark_foreign_file(bytes, size < HARK_FOREIGN_BYTES ? size : HARK_FOREIGN_BYTES) != NULL,
               text = whole < size && bytes[whole] != '{' && bytes[whole] != '\0';
    FUZZ_CHECK(foreign ? status != HARK_OK : text, "%s", hark_context_message(context));
    FUZZ_CHECK(hark_jsonl_read(context, path, take_line, &after) == status && after.line == before.line, "the file has changed");
    return;
  }
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
  check_tree(context, bytes, size);
  check_text(context, bytes, size);
  check_lines(context, bytes, size);
  fuzz_end();
  return 0;
}

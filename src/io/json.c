/* json.c - JSON: escaping and number text of our own, so that no locale and no default precision changes them; reading by jansson. */
#include "io/json.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "io/files.h"
#include "io/number.h"

/* Length of the valid UTF-8 sequence at the front of `left` bytes (0: none): no overlong forms, surrogates or values above U+10FFFF
 * (RFC 3629, section 4). */
static size_t sequence_length(const unsigned char *text, size_t left) {
  const unsigned char c = text[0];
  if (c < 0x80) return 1;
  const size_t length = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
  if (length > left) return 0;
  for (size_t i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) return 0;
  }
  if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] > 0x9f) || (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] > 0x8f)) {
    return 0;
  }
  return length;
}

/* The code point of a valid sequence of at most three bytes. */
static unsigned code_point(const unsigned char *at, size_t length) {
  if (length == 1) return at[0];
  if (length == 2) return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
  return (at[0] & 0x0fu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
}

/* What JSON may hold as it is and YAML may not, or reads as the end of a line: a string of ours is one in both. */
static bool is_not_printable(unsigned code) {
  return (code >= 0x80 && code < 0xa0) || code == 0x2028 || code == 0x2029 || code == 0xfeff || code >= 0xfffe;
}

void hark_json_append_string(hark_text *text, const char *value) { hark_json_append_bytes(text, value, strlen(value)); }

void hark_json_append_bytes(hark_text *text, const char *value, size_t bytes) {
  const unsigned char *at = (const unsigned char *)value, *const end = at + bytes;
  hark_text_append_bytes(text, "\"", 1);
  while (at < end) {
    const size_t length = sequence_length(at, (size_t)(end - at));
    if (length == 0) {
      hark_text_append_bytes(text, "\xef\xbf\xbd", 3);
      at++;
      continue;
    }
    if (*at == '"' || *at == '\\') {
      hark_text_append(text, "\\%c", *at);
    } else if (*at == '\n') {
      hark_text_append_bytes(text, "\\n", 2);
    } else if (*at == '\t') {
      hark_text_append_bytes(text, "\\t", 2);
    } else if (*at < 0x20 || *at == 0x7f) {
      hark_text_append(text, "\\u%04x", *at);
    } else if (length <= 3 && is_not_printable(code_point(at, length))) {
      hark_text_append(text, "\\u%04x", code_point(at, length));
    } else {
      hark_text_append_bytes(text, (const char *)at, length);
    }
    at += length;
  }
  hark_text_append_bytes(text, "\"", 1);
}

void hark_json_append_number(hark_text *text, double value) {
  char number[HARK_NUMBER_BYTES];
  hark_text_append(text, "%s", isfinite(value) ? hark_number_print(value, number) : "null");
}

/* ---- reading ---- */

/* Each value but the first stands behind a '[', a ',' or, in an object, a ':'; a list's first behind its '['. Counted are '[', '{' and ',':
 * never fewer than the values but one. */
hark_json_fault hark_json_scan(const char *text, size_t length, const hark_json_limits *limits, size_t *at) {
  bool allowed[UCHAR_MAX + 1];
  for (int c = 0; c <= UCHAR_MAX; c++) allowed[c] = limits->alphabet == NULL || (c != 0 && strchr(limits->alphabet, c) != NULL);
  int depth = 0;
  int64_t items = 1;
  bool inside = false; /* of a text */
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    *at = i;
    if (inside) {
      if (c == '\\') i++;
      inside = c != '"';
      continue;
    }
    inside = c == '"';
    const bool opens = c == '{' || c == '[';
    if (!allowed[(unsigned char)c]) return HARK_JSON_ODD_BYTE;
    if (opens && ++depth > limits->depth) return HARK_JSON_TOO_DEEP;
    if (c == '}' || c == ']') depth--;
    if ((opens || c == ',') && ++items > limits->items) return HARK_JSON_TOO_MANY;
  }
  return HARK_JSON_FINE;
}

static hark_status fail_scan(hark_context *context, const char *name, const char *text, size_t at, hark_json_fault fault,
                             const hark_json_limits *limits) {
  int line = 1;
  size_t begin = 0;
  for (size_t i = 0; i < at; i++) {
    if (text[i] == '\n') {
      line++;
      begin = i + 1;
    }
  }
  const size_t column = at - begin + 1;
  switch (fault) {
    case HARK_JSON_TOO_DEEP:
      return hark_fail(context, HARK_BAD_FILE, "%s:%d:%zu: nested deeper than the %d levels expected", name, line, column, limits->depth);
    case HARK_JSON_TOO_MANY:
      return hark_fail(context, HARK_BAD_FILE, "%s:%d:%zu: more than %" PRId64 " values", name, line, column, limits->items);
    default: return hark_fail(context, HARK_BAD_FILE, "%s:%d:%zu: a byte that does not belong here", name, line, column);
  }
}

hark_status hark_json_parse_within(hark_context *context, const char *name, const char *text, size_t length, const hark_json_limits *limits,
                                   json_t **out) {
  json_error_t error;
  size_t at = 0;
  *out = NULL;
  const hark_json_fault fault = hark_json_scan(text, length, limits, &at);
  if (fault != HARK_JSON_FINE) return fail_scan(context, name, text, at, fault, limits);
  *out = json_loadb(text, length, JSON_REJECT_DUPLICATES | (limits->zero_bytes ? JSON_ALLOW_NUL : 0), &error);
  if (*out != NULL) return HARK_OK;
  if (json_error_code(&error) == json_error_out_of_memory)
    return hark_fail(context, HARK_OUT_OF_MEMORY, "%s: out of memory in jansson", name);
  return hark_fail(context, HARK_BAD_FILE, "%s:%d:%d: not the JSON expected: %s", name, error.line, error.column, error.text);
}

hark_status hark_json_parse(hark_context *context, const char *name, const char *text, size_t length, json_t **out) {
  static const hark_json_limits limits = {.depth = HARK_JSON_DEPTH, .items = HARK_JSON_ITEMS};
  return hark_json_parse_within(context, name, text, length, &limits, out);
}

hark_status hark_json_read(hark_context *context, const char *path, size_t limit, json_t **out) {
  *out = NULL;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_file_read(context, path, limit, &text));
  const hark_status status = hark_json_parse(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

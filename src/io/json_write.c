/* json_write.c - JSON as text: with our own escaping and numbers, which do not depend on the locale or a default precision. */
#include "io/json_write.h"

#include <math.h>
#include <string.h>

#include "io/number.h"

size_t hark_json_sequence_length(const unsigned char *text, size_t left) {
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

/* Characters that JSON allows unescaped, but YAML does not, or reads as line ends. They are escaped, so that strings mean the same in
 * both. */
static bool is_not_printable(const unsigned char *at, size_t length) {
  if (length != 2 && length != 3) return false;
  const unsigned code = code_point(at, length);
  return code < 0xa0 || code == 0x2028 || code == 0x2029 || code == 0xfeff || code >= 0xfffe;
}

void hark_json_append_string(hark_text *text, const char *value) { hark_json_append_bytes(text, value, strlen(value)); }

static bool is_utf8(const char *value) {
  const unsigned char *at = (const unsigned char *)value;
  size_t left = strlen(value);
  for (size_t length; left > 0; at += length, left -= length) {
    length = hark_json_sequence_length(at, left);
    if (length == 0) return false;
  }
  return true;
}

void hark_json_append_path(hark_text *text, const char *name, const char *path) {
  hark_text_append(text, "\"%s\": ", name);
  hark_json_append_string(text, path);
  if (is_utf8(path)) return;
  hark_text_append(text, ", \"%s_bytes\": \"", name);
  for (const unsigned char *at = (const unsigned char *)path; *at != '\0'; at++) hark_text_append(text, "%02x", *at);
  hark_text_append(text, "\"");
}

void hark_json_append_bytes(hark_text *text, const char *value, size_t bytes) {
  const unsigned char *at = (const unsigned char *)value, *const end = at + bytes;
  hark_text_append_bytes(text, "\"", 1);
  while (at < end) {
    const size_t length = hark_json_sequence_length(at, (size_t)(end - at));
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
    } else if (*at < 0x20 || *at == 0x7f || is_not_printable(at, length)) {
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

void hark_json_append_member(hark_text *text, const char *name, double value) {
  hark_text_append(text, ", \"%s\": ", name);
  hark_json_append_number(text, value);
}

/* text.c - text that grows by doubling; cost O(length) amortised. */
#include "io/text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/line.h"

#define FIRST_BYTES 256

/* Reserves `bytes` bytes, including the zero byte. */
static bool reserve(hark_text *text, size_t bytes) {
  if (text->status != HARK_OK) return false;
  if (bytes <= text->capacity) return true;
  size_t capacity = text->capacity > 0 ? text->capacity : FIRST_BYTES;
  while (capacity < bytes) {
    if (capacity > SIZE_MAX / 2) {
      text->status = hark_fail(text->context, HARK_TOO_LARGE, "text of %zu bytes", bytes);
      return false;
    }
    capacity *= 2;
  }
  void *grown;
  text->status = hark_allocate(text->context, capacity, &grown);
  if (text->status != HARK_OK) return false;
  if (text->length > 0) memcpy(grown, text->data, text->length);
  if (text->data != NULL) hark_release(text->context, text->data, text->capacity);
  text->data = grown;
  text->data[text->length] = 0;
  text->capacity = capacity;
  return true;
}

void hark_text_append_bytes(hark_text *text, const char *bytes, size_t length) {
  if (length == 0) return;
  if (length >= SIZE_MAX - text->length) {
    if (text->status == HARK_OK) text->status = hark_fail(text->context, HARK_TOO_LARGE, "text of more than %zu bytes", length);
    return;
  }
  if (!reserve(text, text->length + length + 1)) return;
  memcpy(text->data + text->length, bytes, length);
  text->length += length;
  text->data[text->length] = 0;
}

void hark_text_append_csv(hark_text *text, const char *field) {
  const size_t length = strlen(field);
  const bool spaces = length > 0 && (field[0] == ' ' || field[length - 1] == ' ');
  if (strpbrk(field, ",;\t\"\r\n") == NULL && !spaces) {
    hark_text_append_bytes(text, field, length);
    return;
  }
  hark_text_append_bytes(text, "\"", 1);
  for (const char *at = field; *at != '\0'; at++) hark_text_append_bytes(text, *at == '"' ? "\"\"" : at, *at == '"' ? 2 : 1);
  hark_text_append_bytes(text, "\"", 1);
}

void hark_text_append(hark_text *text, const char *format, ...) {
  if (text->status != HARK_OK) return;
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0) text->status = hark_fail(text->context, HARK_TOO_LARGE, "text of more than %d bytes at once", INT_MAX);
  if (length <= 0 || !reserve(text, text->length + (size_t)length + 1)) return;
  va_start(arguments, format);
  vsnprintf(text->data + text->length, (size_t)length + 1, format, arguments);
  va_end(arguments);
  text->length += (size_t)length;
}

void hark_text_resize(hark_text *text, size_t length) {
  if (length == SIZE_MAX || !reserve(text, length + 1)) return;
  if (length > text->length) memset(text->data + text->length, 0, length - text->length);
  text->length = length;
  text->data[length] = 0;
}

const char *hark_text_get(const hark_text *text) { return text->data != NULL ? text->data : ""; }

void hark_text_free(hark_text *text) {
  if (text->data != NULL) hark_release(text->context, text->data, text->capacity);
  *text = hark_text_empty(text->context);
}

const char *hark_text_shown(const char *text, char out[HARK_SHOWN_BYTES]) {
  const size_t room = HARK_SHOWN_BYTES - sizeof "...";
  size_t length = strlen(text);
  const bool cut = length > room;
  if (cut) {
    length = room;
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80) length--;
  }
  memcpy(out, text, length);
  memcpy(out + length, cut ? "..." : "", cut ? 4 : 1);
  hark_line_clean(out);
  return out;
}

void hark_text_append_shown(hark_text *text, const char *value) {
  const size_t before = text->length;
  hark_text_append_bytes(text, value, strlen(value));
  if (text->length > before) hark_line_clean(text->data + before);
}

#define SHOWN_BEFORE 24 /* bytes, "..." among them, before a difference that the beginnings do not show */

void hark_text_shown_both(const char *a, const char *b, char out_a[HARK_SHOWN_BYTES], char out_b[HARK_SHOWN_BYTES]) {
  size_t same = 0, from = 0;
  while (a[same] != '\0' && a[same] == b[same]) same++;
  if (same + SHOWN_BEFORE > HARK_SHOWN_BYTES) {
    from = same - SHOWN_BEFORE;
    while (from > 0 && ((unsigned char)a[from + 3] & 0xc0) == 0x80) from--;
  }
  (void)hark_text_shown(a + from, out_a);
  (void)hark_text_shown(b + from, out_b);
  if (from == 0) return;
  memcpy(out_a, "...", 3);
  memcpy(out_b, "...", 3);
}

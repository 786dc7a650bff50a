/* text.h - text that grows. A failed append is recorded, so that only the end needs a check. */
#ifndef HARK_IO_TEXT_H
#define HARK_IO_TEXT_H

#include <stdarg.h>

#include "core/core.h"

typedef struct hark_text {
  hark_context *context;
  char *data; /* ends with a zero byte; NULL while empty */
  size_t length;
  size_t capacity;
  hark_status status; /* of the first append that failed */
} hark_text;

static inline hark_text hark_text_empty(hark_context *context) { return (hark_text){.context = context}; }

void hark_text_append(hark_text *text, const char *format, ...) HARK_PRINTF(2, 3);
void hark_text_append_bytes(hark_text *text, const char *bytes, size_t length);
/* Appends a field of CSV (RFC 4180): in quotes, each quote in it twice, if it has a quote, a delimiter of any kind, a line end, or a space
 * at an end. */
void hark_text_append_csv(hark_text *text, const char *field);
/* Sets the length to `length` bytes (plus the zero byte) and allocates them; new bytes are zero. */
void hark_text_resize(hark_text *text, size_t length);
/* The text, "" when empty. */
const char *hark_text_get(const hark_text *text);
void hark_text_free(hark_text *text);

/* A text from outside for a message: control characters become '?', and a text that is too long is cut between two characters and ends with
 * "...". Returns out. */
#define HARK_SHOWN_BYTES 84
const char *hark_text_shown(const char *text, char out[HARK_SHOWN_BYTES]);
/* Appends such a text in full, cleaned in the same way. */
void hark_text_append_shown(hark_text *text, const char *value);
/* Two different texts for a message. If their beginnings do not show the difference, each begins with "..." shortly before it. */
void hark_text_shown_both(const char *a, const char *b, char out_a[HARK_SHOWN_BYTES], char out_b[HARK_SHOWN_BYTES]);

#endif

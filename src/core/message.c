/* message.c - the message of a failure, which the context stores, and the log. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"
#include "core/line.h"

void hark_line_clean(char *text) {
  for (unsigned char *at = (unsigned char *)text; *at != 0; at++) {
    if (*at < 0x20 || *at == 0x7f) *at = '?';
    if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) at[0] = at[1] = '?'; /* U+0080 .. U+009F in UTF-8 */
  }
}

/* Makes a message one line, whatever names and texts it contains, and removes a character that was cut at its end. `length` is the length
 * without the cut. */
static void make_line(char *message, int length) {
  hark_line_clean(message);
  if (length < HARK_MESSAGE_BYTES) return;
  size_t end = HARK_MESSAGE_BYTES - 1;
  while (end > 0 && ((unsigned char)message[end - 1] & 0xc0) == 0x80) end--;
  if (end > 0 && (unsigned char)message[end - 1] >= 0xc0) message[end - 1] = 0;
}

/* The only place that stores a message. */
static void keep(hark_context *context, const char *format, va_list arguments) {
  make_line(context->message, vsnprintf(context->message, sizeof context->message, format, arguments));
}

hark_status hark_fail(hark_context *context, hark_status status, const char *format, ...) {
  if (context == NULL) return status;
  va_list arguments;
  va_start(arguments, format);
  keep(context, format, arguments);
  va_end(arguments);
  return status;
}

hark_status hark_context_fail(hark_context *context, hark_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  keep(context, format, arguments);
  va_end(arguments);
  return status;
}

void hark_fail_prefix(hark_context *context, const char *format, ...) {
  char rest[HARK_MESSAGE_BYTES];
  memcpy(rest, context->message, sizeof rest);
  va_list arguments;
  va_start(arguments, format);
  const int used = vsnprintf(context->message, sizeof context->message, format, arguments);
  va_end(arguments);
  int added = 0;
  if (used >= 0 && (size_t)used < sizeof context->message)
    added = snprintf(context->message + used, sizeof context->message - (size_t)used, "%s", rest);
  make_line(context->message, used + added);
}

const char *hark_context_message(const hark_context *context) { return context != NULL ? context->message : ""; }

void hark_log(hark_context *context, hark_log_level level, const char *format, ...) {
  if (context->logger == NULL) return;
  char text[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  make_line(text, length);
  context->logger(context->logger_user, level, text);
}

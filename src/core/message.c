/* message.c - the details of a failure, kept by the context, and the log. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/core.h"

hark_status hark_fail(hark_context *context, hark_status status, const char *format, ...) {
  if (context == NULL) return status;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(context->message, sizeof context->message, format, arguments);
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
  if (used >= 0 && (size_t)used < sizeof context->message)
    (void)snprintf(context->message + used, sizeof context->message - (size_t)used, "%s", rest);
}

const char *hark_context_message(const hark_context *context) { return context != NULL ? context->message : ""; }

void hark_log(hark_context *context, hark_log_level level, const char *format, ...) {
  if (context->logger == NULL) return;
  char text[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  context->logger(context->logger_user, level, text);
}

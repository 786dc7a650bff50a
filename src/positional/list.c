/* list.c - see list.h. */
#include "positional/list.h"

#include <inttypes.h>
#include <string.h>

#include "core/core.h"
#include "positional/expression.h"

#define LIST_LIMIT 4096

int64_t hark_positional_list_length(const char *text) {
  if (text == NULL || text[0] == '\0') return 0;
  int64_t count = 1;
  for (; *text != '\0'; text++) count += *text == HARK_POSITIONAL_SEPARATOR;
  return count;
}

/* Words are letters, digits and underscores; no kernel and no parameter has the name of a direction. */
int hark_positional_list_direction(const char *text, const char *word) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const size_t length = strlen(word);
  for (const char *at = text != NULL ? text : ""; *at != '\0';) {
    const size_t found = strspn(at, letters);
    if (found == length && memcmp(at, word, length) == 0) return (int)(at - text) + 1;
    at += found > 0 ? found : 1;
  }
  return 0;
}

static hark_status read_items(hark_context *context, const char *text, hark_positional_list *out) {
  static const char separators[] = {HARK_POSITIONAL_SEPARATOR, '\0'};
  size_t begin = 0;
  for (int64_t i = 0; i < out->count; i++) {
    const size_t end = begin + strcspn(text + begin, separators);
    HARK_TRY(hark_positional_create_between(context, text, begin, end, &out->items[i]));
    out->columns = hark_max(out->columns, hark_positional_parameter_count(out->items[i]));
    out->directed = out->directed || hark_positional_is_directed(out->items[i], NULL);
    begin = end + 1;
  }
  return HARK_OK;
}

hark_status hark_positional_list_open(hark_context *context, const char *text, hark_positional_list *out) {
  void *memory = NULL;
  *out = (hark_positional_list){0};
  const int64_t count = hark_positional_list_length(text);
  if (count == 0) return HARK_OK;
  if (count > LIST_LIMIT)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel: %" PRId64 " expressions, expected at most %d", count, LIST_LIMIT);
  const size_t bytes = (size_t)count * sizeof(hark_positional *);
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  *out = (hark_positional_list){.count = count, .items = memory, .bytes = bytes};
  return read_items(context, text, out);
}

void hark_positional_list_close(hark_context *context, hark_positional_list *list) {
  for (int64_t i = 0; list->items != NULL && i < list->count; i++) hark_positional_destroy(context, &list->items[i]);
  hark_release(context, list->items, list->bytes);
  *list = (hark_positional_list){0};
}

size_t hark_positional_list_print(const hark_positional_list *list, char *text, size_t size) {
  size_t length = 0;
  if (size > 0) text[0] = '\0';
  for (int64_t i = 0; i < list->count; i++) {
    if (i > 0 && length + 1 < size) memcpy(text + length, "|", 2);
    length += i > 0;
    const size_t room = length < size ? size - length : 0;
    length += hark_positional_print(list->items[i], NULL, room > 0 ? text + length : NULL, room);
  }
  return length;
}

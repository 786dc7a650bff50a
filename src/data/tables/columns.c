/* columns.c - see columns.h. */
#include "data/tables/columns.h"

#include <string.h>

#include "io/text.h"

static hark_status find(hark_context *context, const hark_table *table, const char *option, char *names, int32_t *columns, int32_t *count) {
  for (char *at = names, *next; at != NULL; at = next) {
    next = strchr(at, ',');
    if (next != NULL) *next++ = '\0';
    int32_t column = 0;
    HARK_TRY(hark_table_need(context, table, at, &column));
    for (int32_t i = 0; i < *count; i++)
      if (columns[i] == column) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: column \"%s\" occurs twice", option, at);
    if (*count + 1 == table->column_count)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: names all columns of %s, expected at least one input", option, table->path);
    columns[(*count)++] = column;
  }
  return HARK_OK;
}

hark_status hark_table_columns(hark_context *context, const hark_table *table, const char *option, const char *names, int32_t *columns,
                               int32_t *count) {
  hark_text text = hark_text_empty(context);
  *count = 0;
  if (names[0] == '\0') return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: names no column of %s", option, table->path);
  hark_text_append(&text, "%s", names);
  hark_status status = text.status;
  if (status == HARK_OK) status = find(context, table, option, text.data, columns, count);
  hark_text_free(&text);
  return status;
}

/* fields.h - divides the text of a CSV file into fields (table.h describes the rules). */
#ifndef HARK_DATA_TABLES_FIELDS_H
#define HARK_DATA_TABLES_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARK_DELIMITERS ",;\t"

typedef enum hark_field_fault {
  HARK_FIELD_FINE,
  HARK_FIELD_OPEN,       /* the quote is not closed */
  HARK_FIELD_AFTER,      /* characters after the closing quote; `text` begins with them */
  HARK_FIELD_LONE_RETURN /* "\r" without "\n" after it, outside of quotes */
} hark_field_fault;

/* A field, in the text of its file: without its quotes and the spaces around it. */
typedef struct hark_field {
  char *text;
  size_t length;
  bool doubled; /* it has quotes, each of them twice */
  char end;     /* the delimiter after it; '\n': it is the last one of its row */
  int64_t line; /* where it begins */
} hark_field;

/* Set `text`, `length`, `delimiters` and `line` (1) before the first call. */
typedef struct hark_field_reader {
  char *text;
  size_t length;
  const char *delimiters; /* each of these ends a field */
  size_t at;              /* the next byte */
  int64_t line;
} hark_field_reader;

/* Skips empty lines. False: there are no more rows. */
bool hark_fields_have_row(hark_field_reader *reader);
/* The next field. After a fault only its line, and the text that is at fault, are set. */
hark_field_fault hark_fields_next(hark_field_reader *reader, hark_field *out);
/* Makes one quote of each doubled one, in place. */
void hark_field_join_quotes(hark_field *field);

#endif

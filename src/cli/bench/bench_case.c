/* bench_case.c - reads cases: a name, a colon, words separated by commas. */
#include <ctype.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "io/number.h"

#define EXPECTED_BYTES 400

size_t hark_bench_case_head(const char *text) { return strcspn(text, ":"); }

static const char *expected(const hark_bench_field *fields, int count, char text[EXPECTED_BYTES]) {
  static const char *const forms[] = {"%s%s<n>", "%s%s=<x>", "%s%s"};
  size_t length = 0;
  text[0] = '\0';
  for (int i = 0; i < count && length < EXPECTED_BYTES; i++) {
    /* A name of several letters is separated from its number. */
    const bool apart = fields[i].type == HARK_BENCH_WHOLE && strlen(fields[i].name) > 1;
    const char *form = apart ? "%s%s=<n>" : forms[fields[i].type];
    const int written = snprintf(text + length, EXPECTED_BYTES - length, form, i > 0 ? ", " : "", fields[i].name);
    if (written < 0) break;
    length += (size_t)written;
  }
  return text;
}

/* Reads one word into the field it names; false when no field has that name or the value is invalid. */
static bool read_word(const char *word, size_t length, const hark_bench_field *fields, int count, const char **why) {
  for (int i = 0; i < count; i++) {
    const hark_bench_field *field = &fields[i];
    const size_t name = strlen(field->name);
    if (length < name || memcmp(word, field->name, name) != 0) continue;
    const char *value = word + name;
    size_t value_length = length - name;
    if (field->type == HARK_BENCH_FLAG) {
      if (value_length != 0) continue;
      *field->flag = true;
      return true;
    }
    const bool equals = value_length > 0 && value[0] == '=';
    if (!equals && (value_length == 0 || !isdigit((unsigned char)value[0]))) continue;
    value += equals;
    value_length -= equals;
    if (field->type == HARK_BENCH_WHOLE) {
      if (hark_number_read_whole(value, value_length, field->whole) && *field->whole >= 1) return true;
      *why = "expected a whole number of at least 1 in";
    } else {
      if (hark_number_read(value, value_length, field->number) && *field->number >= 0) return true;
      *why = "expected a number of at least 0 in";
    }
    return false;
  }
  *why = "there is no";
  return false;
}

hark_status hark_bench_case_read(hark_context *context, const char *text, const hark_bench_field *fields, int count) {
  const char *at = text + hark_bench_case_head(text);
  char names[EXPECTED_BYTES];
  if (*at != ':') {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected %s:WORD,WORD... with words %s", text, text,
                     expected(fields, count, names));
  }
  do {
    at++;
    const size_t length = strcspn(at, ",");
    const char *why = NULL;
    if (!read_word(at, length, fields, count, &why)) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': %s '%.*s'; expected words are %s", text, why, (int)length, at,
                       expected(fields, count, names));
    }
    at += length;
  } while (*at == ',');
  return HARK_OK;
}

/* number.c - numbers as text, the same in every locale.
 *
 * The locale's decimal point is found by printing 0.5: no call here reads the process's locale structure, which another thread may change.
 * Cost: one strtod or at most three snprintf per number.
 */
#include "io/number.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT 512           /* bytes of a number; longer ones are refused */
#define POINT_BYTES 16           /* of a locale's decimal point */
#define EXACT 9007199254740992.0 /* 2^53: whole numbers below are exact in a double */

/* Copies the locale's decimal point ("0" point "5"). */
static void decimal_point(char point[POINT_BYTES]) {
  char half[POINT_BYTES + 2];
  const int length = snprintf(half, sizeof half, "%.1f", 0.5);
  if (length < 3 || (size_t)length >= sizeof half) {
    memcpy(point, ".", 2);
    return;
  }
  memcpy(point, half + 1, (size_t)length - 2);
  point[length - 2] = 0;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t skip_digits(const char *text, size_t length, size_t at) {
  while (at < length && is_digit(text[at])) at++;
  return at;
}

/* Length of the number that text begins with, 0 if there is none; *point is the place of its '.', or the length. */
static size_t scan(const char *text, size_t length, size_t *point) {
  size_t at = 0;
  if (at < length && (text[at] == '+' || text[at] == '-')) at++;
  const size_t first = at;
  at = skip_digits(text, length, at);
  size_t digits = at - first;
  *point = length;
  if (at < length && text[at] == '.') {
    *point = at++;
    const size_t fraction = at;
    at = skip_digits(text, length, at);
    digits += at - fraction;
  }
  if (digits == 0) return 0;
  if (at < length && (text[at] == 'e' || text[at] == 'E')) {
    size_t exponent = at + 1;
    if (exponent < length && (text[exponent] == '+' || text[exponent] == '-')) exponent++;
    const size_t end = skip_digits(text, length, exponent);
    if (end == exponent) return 0;
    at = end;
  }
  return at;
}

/* Reads the number that text begins with; returns its length, 0 if there is none. */
static size_t read_prefix(const char *text, size_t length, double *out) {
  size_t point;
  const size_t used = scan(text, length, &point);
  if (used == 0 || used > TEXT_LIMIT) return 0;
  char local[TEXT_LIMIT + POINT_BYTES + 1], sign[POINT_BYTES];
  size_t size = used;
  if (point < used) {
    decimal_point(sign);
    const size_t bytes = strlen(sign);
    memcpy(local, text, point);
    memcpy(local + point, sign, bytes);
    memcpy(local + point + bytes, text + point + 1, used - point - 1);
    size = used - 1 + bytes;
  } else {
    memcpy(local, text, used);
  }
  local[size] = 0;
  char *end;
  const double value = strtod(local, &end);
  if (end != local + size || !isfinite(value)) return 0;
  *out = value;
  return used;
}

bool hark_number_read(const char *text, size_t length, double *out) {
  double value;
  if (length == 0 || read_prefix(text, length, &value) != length) return false;
  *out = value;
  return true;
}

bool hark_number_read_whole(const char *text, size_t length, int64_t *out) {
  size_t at = 0;
  const bool negative = length > 0 && text[0] == '-';
  if (length > 0 && (text[0] == '+' || text[0] == '-')) at++;
  if (at < length && skip_digits(text, length, at) == length) {
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    for (; at < length; at++) {
      const uint64_t digit = (uint64_t)(text[at] - '0');
      if (value > (limit - digit) / 10) return false;
      value = value * 10 + digit;
    }
    *out = negative ? (value == (uint64_t)INT64_MAX + 1 ? INT64_MIN : -(int64_t)value) : (int64_t)value;
    return true;
  }
  double value;
  if (!hark_number_read(text, length, &value) || fabs(value) >= EXACT || value != floor(value)) return false;
  *out = (int64_t)value;
  return true;
}

bool hark_number_read_duration(const char *text, size_t length, double *out) {
  double total = 0;
  size_t at = 0;
  while (at < length) {
    double value;
    const size_t used = read_prefix(text + at, length - at, &value);
    if (used == 0 || value < 0) return false;
    at += used;
    if (at == length) { /* no unit: allowed only if the whole text is one number */
      if (used != length) return false;
      total = value;
      break;
    }
    double unit;
    switch (text[at]) {
      case 's': unit = 1; break;
      case 'm': unit = 60; break;
      case 'h': unit = 3600; break;
      case 'd': unit = 86400; break;
      default: return false;
    }
    total += value * unit;
    at++;
  }
  if (length == 0 || !isfinite(total)) return false;
  *out = total;
  return true;
}

const char *hark_number_print(double value, char text[HARK_NUMBER_BYTES]) {
  if (isnan(value)) return strcpy(text, "nan");
  if (isinf(value)) return strcpy(text, value > 0 ? "inf" : "-inf");
  if (value == floor(value) && fabs(value) < 1e15) { /* whole: no exponent */
    snprintf(text, HARK_NUMBER_BYTES, "%s%" PRId64, signbit(value) && value == 0 ? "-" : "", (int64_t)value);
    return text;
  }
  char raw[HARK_NUMBER_BYTES], point[POINT_BYTES];
  for (int digits = 15; digits <= 17; digits++) { /* 17 digits always read back */
    snprintf(raw, sizeof raw, "%.*g", digits, value);
    if (strtod(raw, NULL) == value) break;
  }
  decimal_point(point);
  const char *const at = strstr(raw, point), *const exponent = strchr(raw, 'e');
  const char *const digits_end = exponent != NULL ? exponent : raw + strlen(raw);
  size_t used = at != NULL ? (size_t)(at - raw) : (size_t)(digits_end - raw);
  memcpy(text, raw, used);
  if (at != NULL) {
    const char *const fraction = at + strlen(point);
    text[used++] = '.';
    memcpy(text + used, fraction, (size_t)(digits_end - fraction));
    used += (size_t)(digits_end - fraction);
  }
  if (exponent != NULL) snprintf(text + used, HARK_NUMBER_BYTES - used, "e%ld", strtol(exponent + 1, NULL, 10)); /* e-5, not e-05 */
  if (exponent == NULL) text[used] = 0;
  return text;
}

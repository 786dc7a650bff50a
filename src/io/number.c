/* number.c - numbers as text, the same in every locale.
 *
 * The locale's decimal point is found by printing 0.5: no call here reads the process's locale structure, which another thread may change.
 * Cost: one strtod per number.
 */
#include "io/number.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_LIMIT 512           /* bytes of a number; longer ones are refused */
#define LARGEST_POWER 308        /* of ten, in a double */
#define EXACT 9007199254740992.0 /* 2^53: whole numbers below are exact in a double */

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
  char local[TEXT_LIMIT + HARK_POINT_BYTES + 1], sign[HARK_POINT_BYTES];
  size_t size = used;
  if (point < used) {
    hark_decimal_point(sign);
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

/* The double next to 10^exponent, which is 10^exponent itself up to 10^22. */
static double power_of_ten(int exponent) {
  static const double exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (exponent < (int)(sizeof exact / sizeof *exact)) return exact[exponent];
  char text[16];
  snprintf(text, sizeof text, "1e%d", exponent);
  return strtod(text, NULL);
}

/* value 10^exponent. Powers up to 10^308 are the doubles next to them, and smaller values are divided more than once. */
static double scale_by_ten(double value, int64_t exponent) {
  for (; exponent < -LARGEST_POWER && value != 0; exponent += LARGEST_POWER) value /= 1e308;
  if (value == 0) return 0;
  if (exponent > LARGEST_POWER) return HUGE_VAL;
  const double power = power_of_ten((int)(exponent < 0 ? -exponent : exponent));
  return exponent < 0 ? value / power : value * power;
}

double hark_number_read_quick(const char *text, size_t length) {
  const bool negative = length > 0 && text[0] == '-';
  uint64_t digits = 0;
  int64_t exponent = 0;
  bool full = false, fraction = false;
  size_t at = negative;
  for (; at < length && text[at] != 'e' && text[at] != 'E'; at++) {
    if (text[at] == '.') {
      fraction = true;
      continue;
    }
    const uint64_t digit = (uint64_t)(text[at] - '0');
    full = full || digits > (UINT64_MAX - digit) / 10; /* from here on digits count only as places before the point */
    if (!full) digits = 10 * digits + digit;
    exponent += full ? !fraction : -(int64_t)fraction;
  }
  if (at < length) {
    const bool minus = text[++at] == '-';
    int64_t written = 0;
    for (at += minus || text[at] == '+'; at < length; at++) written = written < INT32_MAX ? 10 * written + (text[at] - '0') : written;
    exponent += minus ? -written : written;
  }
  const double value = scale_by_ten((double)digits, exponent);
  return negative ? -value : value;
}

bool hark_number_read(const char *text, size_t length, double *out) {
  double value;
  if (length == 0 || read_prefix(text, length, &value) != length) return false;
  *out = value;
  return true;
}

bool hark_number_is(const char *text, size_t length) {
  size_t point;
  return length > 0 && scan(text, length, &point) == length;
}

/* Whether a number has no fraction. Its double may have none where the number has one, as that of 1e-400. */
static bool has_no_fraction(const char *text, size_t length) {
  int64_t fraction = 0, zeros = 0, exponent = 0; /* digits after the point; zeros at the end of all digits; the exponent, bounded */
  bool point = false, any = false;
  size_t at = 0;
  for (; at < length && text[at] != 'e' && text[at] != 'E'; at++) {
    point = point || text[at] == '.';
    if (!is_digit(text[at])) continue;
    fraction += point;
    zeros = text[at] == '0' ? zeros + 1 : 0;
    any = any || text[at] != '0';
  }
  const bool down = at + 1 < length && text[at + 1] == '-';
  for (; at < length; at++)
    if (is_digit(text[at]) && exponent < EXACT) exponent = 10 * exponent + (text[at] - '0');
  return !any || zeros - fraction + (down ? -exponent : exponent) >= 0;
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
  if (!hark_number_read(text, length, &value) || fabs(value) >= EXACT || !has_no_fraction(text, length)) return false;
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

/* print_number.c - see print_number.h.
 *
 * The locale's decimal point is found by printing 0.5: no call here reads the process's locale structure, which another thread may change.
 * Cost: at most three snprintf per number.
 */
#include "core/print_number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "0" point "5" */
void hark_decimal_point(char point[HARK_POINT_BYTES]) {
  char half[HARK_POINT_BYTES + 2];
  const int length = snprintf(half, sizeof half, "%.1f", 0.5);
  if (length < 3 || (size_t)length >= sizeof half) {
    memcpy(point, ".", 2);
    return;
  }
  memcpy(point, half + 1, (size_t)length - 2);
  point[length - 2] = 0;
}

const char *hark_number_print(double value, char text[HARK_NUMBER_BYTES]) {
  if (isnan(value)) return strcpy(text, "nan");
  if (isinf(value)) return strcpy(text, value > 0 ? "inf" : "-inf");
  if (value == floor(value) && fabs(value) < 1e15) { /* whole: no exponent */
    snprintf(text, HARK_NUMBER_BYTES, "%s%" PRId64, signbit(value) && value == 0 ? "-" : "", (int64_t)value);
    return text;
  }
  char raw[HARK_NUMBER_BYTES], point[HARK_POINT_BYTES];
  for (int digits = 15; digits <= 17; digits++) { /* 17 digits always read back */
    snprintf(raw, sizeof raw, "%.*g", digits, value);
    if (strtod(raw, NULL) == value) break;
  }
  hark_decimal_point(point);
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

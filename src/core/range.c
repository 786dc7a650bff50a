/* range.c - see range.h. */
#include "core/range.h"
#include "core/print_number.h"

#include <float.h>
#include <math.h>

hark_range hark_range_of(hark_type type) {
  return type == HARK_F64 ? (hark_range){DBL_MIN, DBL_MAX} : (hark_range){(double)FLT_MIN, (double)FLT_MAX};
}

hark_range hark_range_of_scale(hark_type type) { return (hark_range){hark_range_of(type).least, type == HARK_F64 ? 0x1p968 : 0x1p102}; }

hark_range hark_range_of_sigma(hark_type type) {
  return type == HARK_F64 ? (hark_range){0x1p-484, 0x1p511} : (hark_range){0x1p-51, 0x1p63};
}

/* The nearest number with three digits above or below the value. */
static double three_digits(double value, bool above) {
  if (value == 0) return 0;
  const double unit = pow(10, floor(log10(value)) - 2), count = value / unit;
  return unit * (above ? ceil(count) : floor(count));
}

hark_range hark_range_printed(hark_range range) { return (hark_range){three_digits(range.least, true), three_digits(range.most, false)}; }

hark_status hark_check_range(hark_context *context, const char *who, const char *name, double value, hark_type type, hark_range range) {
  if (value == 0 || hark_is_within(range, fabs(value))) return HARK_OK;
  const hark_range ends = hark_range_printed(range);
  if (range.least == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %s, expected a magnitude of at most %.3g, the range of %s", who, name,
                     HARK_PRINTED(value), ends.most, hark_type_name(type));
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %s, expected 0 or a magnitude of %.3g to %.3g, the range of %s", who, name,
                   HARK_PRINTED(value), ends.least, ends.most, hark_type_name(type));
}

/* range.c - see range.h. */
#include "core/range.h"

#include <float.h>
#include <math.h>

hark_range hark_range_of(hark_type type) {
  return type == HARK_F64 ? (hark_range){DBL_MIN, DBL_MAX} : (hark_range){(double)FLT_MIN, (double)FLT_MAX};
}

hark_range hark_range_of_scale(hark_type type) { return (hark_range){hark_range_of(type).least, type == HARK_F64 ? 0x1p968 : 0x1p102}; }

hark_range hark_range_of_sigma(hark_type type) {
  return type == HARK_F64 ? (hark_range){0x1p-484, 0x1p511} : (hark_range){0x1p-51, 0x1p63};
}

hark_status hark_check_range(hark_context *context, const char *who, const char *name, double value, hark_type type, hark_range range) {
  if (value == 0 || hark_is_within(range, fabs(value))) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %g, expected 0 or a magnitude of %.2g to %.2g, the range of %s", who, name,
                   value, range.least, range.most, hark_type_name(type));
}

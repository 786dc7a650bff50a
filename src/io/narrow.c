/* narrow.c - see narrow.h. */
#include "io/narrow.h"

#include <inttypes.h>
#include <math.h>

#include "io/number.h"
#include "io/text.h"

static hark_status refuse(hark_context *context, const hark_narrowing *to, int64_t at, float value) {
  char text[HARK_SHOWN_BYTES], number[HARK_NUMBER_BYTES];
  const char *const name = hark_text_shown(to->name, text), *const shown = hark_number_print((double)value, number);
  if (to->type == HARK_I8)
    return hark_fail(context, HARK_NOT_FINITE, "%s: tensor \"%s\": element %" PRId64 " is %s, and int8 has only finite numbers", to->path,
                     name, to->first + at, shown);
  return hark_fail(context, HARK_NOT_FINITE, "%s: tensor \"%s\": element %" PRId64 " is %s, and the largest number of %s is %s", to->path,
                   name, to->first + at, shown, hark_type_name(to->type), to->type == HARK_BF16 ? "3.39e38" : "65504");
}

hark_status hark_narrow(hark_context *context, const hark_narrowing *to, int64_t rows, int64_t columns, const float *from, void *numbers,
                        float *scales) {
  if (to->type != HARK_I8) {
    const int64_t bad = hark_half_from_f32(to->type, from, rows * columns, numbers);
    return bad < 0 ? HARK_OK : refuse(context, to, bad, from[bad]);
  }
  for (int64_t n = 0; n < rows; n++) {
    const float *const row = from + n * columns;
    scales[n] = hark_i8_narrow(row, columns, (int8_t *)numbers + n * columns);
    for (int64_t i = 0; i < columns && !isfinite(scales[n]); i++)
      if (!isfinite(row[i])) return refuse(context, to, n * columns + i, row[i]);
  }
  return HARK_OK;
}

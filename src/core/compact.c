/* compact.c - see compact.h. */
#include "core/compact.h"

#include <math.h>
#include <string.h>

#define ROUND 0x1.8p52 /* added and subtracted: the nearest integer, ties to even */

void hark_compact_widen(hark_type type, const void *from, int64_t count, float scale, float *to) {
  if (type == HARK_I8) {
    const int8_t *integers = from;
    for (int64_t i = 0; i < count; i++) to[i] = scale * (float)integers[i];
  } else {
    hark_half_to_f32(type, from, count, to);
  }
}

/* The largest magnitude, by the order of bit patterns, in which infinity and NaN come last. */
static float largest_magnitude(const float *from, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &from[i], sizeof bits);
    bits &= UINT32_C(0x7FFFFFFF);
    largest = bits > largest ? bits : largest;
  }
  float value;
  memcpy(&value, &largest, sizeof value);
  return value;
}

double hark_i8_quantise(const float *from, int64_t count, int8_t *to) {
  const double largest = (double)largest_magnitude(from, count);
  if (!(largest > 0 && isfinite(largest))) {
    if (count > 0) memset(to, 0, (size_t)count * sizeof *to);
    return largest == 0 ? 0 : (double)NAN;
  }
  for (int64_t i = 0; i < count; i++) {
    const double quotient = (double)from[i] * HARK_I8_LARGEST / largest;
    to[i] = (int8_t)(int32_t)((quotient + ROUND) - ROUND);
  }
  return largest / HARK_I8_LARGEST;
}

float hark_i8_narrow(const float *from, int64_t count, int8_t *to) {
  const double largest = (double)largest_magnitude(from, count);
  const float scale = (float)(largest / HARK_I8_LARGEST);
  const bool usable = largest > 0 && isfinite(largest) && scale > 0;
  for (int64_t i = 0; i < count; i++) {
    const double quotient = usable ? (double)from[i] * HARK_I8_LARGEST / largest : 0;
    to[i] = (int8_t)(int32_t)((quotient + ROUND) - ROUND);
  }
  return scale;
}

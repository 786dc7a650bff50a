/* half.c - see half.h. */
#include "core/half.h"

#include <string.h>

enum { SHIFT_BF16 = 16 };
#define REBIAS (UINT32_C(112) << 23) /* from the exponent's bias of binary16, 15, to that of f32, 127 */

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* bits / 2^shift, rounded to the nearest, ties to even. 0 < shift < 32; the sum cannot overflow for the patterns that come here. */
static uint32_t shift_rounded(uint32_t bits, int shift) {
  const uint32_t half = UINT32_C(1) << (shift - 1), odd = bits >> shift & 1;
  return (bits + half - 1 + odd) >> shift;
}

static bool is_nan(uint32_t bits) { return (bits & UINT32_C(0x7FFFFFFF)) > UINT32_C(0x7F800000); }

static uint16_t narrow_bf16(uint32_t bits) {
  const uint32_t quiet = 0x40; /* a NaN whose fraction is in the lost bits would become an infinity */
  return (uint16_t)(is_nan(bits) ? bits >> SHIFT_BF16 | quiet : shift_rounded(bits, SHIFT_BF16));
}

/* Binary16 has 13 bits of fraction less, and an exponent whose bias is 15 in place of 127. */
static uint16_t narrow_f16(uint32_t bits) {
  const uint32_t sign = bits >> 16 & UINT32_C(0x8000), magnitude = bits & UINT32_C(0x7FFFFFFF);
  const int exponent = (int)(magnitude >> 23);
  if (is_nan(bits)) return (uint16_t)(sign | UINT32_C(0x7E00) | (magnitude >> 13 & UINT32_C(0x1FF)));
  if (magnitude >= UINT32_C(0x477FF000)) return (uint16_t)(sign | UINT32_C(0x7C00)); /* 65520: the tie after 65504 */
  if (exponent >= 127 - 14) return (uint16_t)(sign | shift_rounded(magnitude - REBIAS, 13));
  if (exponent < 127 - 25) return (uint16_t)sign; /* less than half of the smallest subnormal number, 2^-24 */
  const uint32_t fraction = (magnitude & UINT32_C(0x7FFFFF)) | UINT32_C(0x800000);
  return (uint16_t)(sign | shift_rounded(fraction, 127 - 14 - exponent + 13));
}

static uint32_t widen_f16(uint32_t half) {
  const uint32_t sign = (half & UINT32_C(0x8000)) << 16, exponent = half >> 10 & UINT32_C(0x1F), fraction = half & UINT32_C(0x3FF);
  if (exponent == 31) return sign | UINT32_C(0x7F800000) | fraction << 13;
  if (exponent > 0) return sign | ((exponent << 23) + REBIAS) | fraction << 13;
  const float subnormal = (float)fraction * 0x1p-24f; /* exact */
  return sign | bits_of(subnormal);
}

float hark_half_widen(hark_type type, uint16_t bits) {
  return float_of(type == HARK_BF16 ? (uint32_t)bits << SHIFT_BF16 : widen_f16(bits));
}

uint16_t hark_half_narrow(hark_type type, float value) {
  return type == HARK_BF16 ? narrow_bf16(bits_of(value)) : narrow_f16(bits_of(value));
}

void hark_half_to_f32(hark_type type, const void *from, int64_t count, void *to) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t bits;
    memcpy(&bits, (const char *)from + (size_t)i * sizeof bits, sizeof bits);
    const float value = hark_half_widen(type, bits);
    memcpy((char *)to + (size_t)i * sizeof value, &value, sizeof value);
  }
}

int64_t hark_half_from_f32(hark_type type, const void *from, int64_t count, void *to) {
  const uint32_t exponent = type == HARK_BF16 ? 0x7F80 : 0x7C00;
  int64_t first = -1;
  for (int64_t i = 0; i < count; i++) {
    float value;
    memcpy(&value, (const char *)from + (size_t)i * sizeof value, sizeof value);
    const uint16_t bits = hark_half_narrow(type, value);
    memcpy((char *)to + (size_t)i * sizeof bits, &bits, sizeof bits);
    if (first < 0 && (bits & exponent) == exponent) first = i;
  }
  return first;
}

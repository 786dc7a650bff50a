/* test_half.c - bf16 and f16 against their definition: every number of both types, and every place where rounding changes its result. */
#include <math.h>
#include <string.h>

#include "core/half.h"
#include "support/cmocka_all.h"

enum { PATTERNS = 1 << 16 };

typedef struct format {
  hark_type type;
  int exponent_bits, fraction_bits;
  double largest;
} format;
static const format formats[] = {{HARK_BF16, 8, 7, HARK_BF16_LARGEST}, {HARK_F16, 5, 10, HARK_F16_LARGEST}};
enum { FORMATS = sizeof formats / sizeof *formats };

/* (-1)^s 2^(e - bias) 1.f; e = 0: 2^(1 - bias) 0.f; e all ones: infinity, or NaN if f is not 0. */
static double value_of(const format *f, int bits) {
  const int ones = (1 << f->exponent_bits) - 1, bias = ones / 2, fraction = bits & ((1 << f->fraction_bits) - 1);
  const int exponent = bits >> f->fraction_bits & ones;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == ones) return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
  return sign * ldexp(fraction + (exponent > 0 ? 1 << f->fraction_bits : 0), (exponent > 0 ? exponent : 1) - bias - f->fraction_bits);
}

static void every_number_is_widened_exactly(void **state) {
  (void)state;
  for (int k = 0; k < FORMATS; k++)
    for (int bits = 0; bits < PATTERNS; bits++) {
      const double expected = value_of(&formats[k], bits);
      const float found = hark_half_widen(formats[k].type, (uint16_t)bits);
      if (isnan(expected) ? isnan(found) : (double)found == expected && (signbit(found) != 0) == (signbit(expected) != 0)) continue;
      fail_msg("%s %04x: %g, expected %g", hark_type_name(formats[k].type), (unsigned)bits, (double)found, expected);
    }
}

static void narrowed_is(const format *f, float value, int expected) {
  const uint16_t found = hark_half_narrow(f->type, value);
  if (found == expected) return;
  fail_msg("%s of %a: %04x, expected %04x", hark_type_name(f->type), (double)value, found, (unsigned)expected);
}

/* Between two neighbours: their mean goes to the even one, and what is nearer to one of them goes there. The last pair is the largest
 * finite number and what would follow it, which is the infinity. */
static void every_tie_goes_to_the_even_number(void **state) {
  (void)state;
  for (int k = 0; k < FORMATS; k++) {
    const format *const f = &formats[k];
    const int infinity = ((1 << f->exponent_bits) - 1) << f->fraction_bits;
    for (int bits = 0; bits < infinity; bits++) {
      const double low = value_of(f, bits);
      const double high = bits + 1 < infinity ? value_of(f, bits + 1) : 2 * low - value_of(f, bits - 1);
      const double middle = low / 2 + high / 2;
      const float tie = (float)middle;
      for (int sign = 0; sign <= 0x8000; sign += 0x8000) {
        const float turn = sign != 0 ? -1.0f : 1.0f;
        narrowed_is(f, turn * (float)low, sign | bits);
        if ((double)tie != middle)
          continue; /* the least subnormal numbers of bf16: f32 has 2^16 numbers between them, but no half of its last */
        narrowed_is(f, turn * tie, sign | (bits % 2 == 0 ? bits : bits + 1));
        narrowed_is(f, turn * nextafterf(tie, 0), sign | bits);
        narrowed_is(f, turn * nextafterf(tie, INFINITY), sign | (bits + 1));
      }
    }
    narrowed_is(f, INFINITY, infinity);
    narrowed_is(f, -INFINITY, infinity | 0x8000);
    assert_true((double)hark_half_widen(f->type, (uint16_t)(infinity - 1)) == f->largest);
  }
}

static void a_nan_stays_one(void **state) {
  (void)state;
  static const uint32_t patterns[] = {0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F80FFFF};
  for (int k = 0; k < FORMATS; k++)
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
      float value;
      memcpy(&value, &patterns[i], sizeof value);
      const float back = hark_half_widen(formats[k].type, hark_half_narrow(formats[k].type, value));
      assert_true(isnan(back));
      assert_int_equal(signbit(back) != 0, patterns[i] >> 31);
    }
}

/* Arrays at odd addresses, and the first number that is not finite afterwards. */
static void arrays_are_converted_one_by_one(void **state) {
  (void)state;
  enum { COUNT = 5 };
  const float numbers[COUNT] = {1.0f, -2.5f, 65520.0f, 3e38f, INFINITY};
  char from[COUNT * sizeof(float) + 1], halves[COUNT * sizeof(uint16_t) + 1], back[COUNT * sizeof(float) + 1];
  memcpy(from + 1, numbers, sizeof numbers);
  for (int k = 0; k < FORMATS; k++) {
    const hark_type type = formats[k].type;
    assert_int_equal(hark_half_from_f32(type, from + 1, COUNT, halves + 1), type == HARK_F16 ? 2 : 4);
    assert_int_equal(hark_half_from_f32(type, from + 1, 2, halves + 1), -1);
    (void)hark_half_from_f32(type, from + 1, COUNT, halves + 1);
    hark_half_to_f32(type, halves + 1, COUNT, back + 1);
    for (int i = 0; i < COUNT; i++) {
      float found;
      memcpy(&found, back + 1 + (size_t)i * sizeof found, sizeof found);
      assert_true(found == hark_half_widen(type, hark_half_narrow(type, numbers[i])));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_number_is_widened_exactly),
      cmocka_unit_test(every_tie_goes_to_the_even_number),
      cmocka_unit_test(a_nan_stays_one),
      cmocka_unit_test(arrays_are_converted_one_by_one),
  };
  return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}

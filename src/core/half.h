/* half.h - numbers of two bytes in files and memory: bf16 (8 bits of exponent, 7 of fraction) and f16 (IEEE 754 binary16: 5 and 10).
 *
 * To f32 every number is exact, NaN stays NaN. From f32 numbers are rounded to the nearest, ties to the even one; what rounds to more than
 * the largest finite number becomes an infinity; subnormal numbers are kept. Results do not depend on the processor's rounding mode.
 */
#ifndef HARK_CORE_HALF_H
#define HARK_CORE_HALF_H

#include <hark/tensor.h>

#define HARK_BF16_LARGEST 0x1.fep127
#define HARK_F16_LARGEST 65504.0

/* True for the two types of this header. */
static inline bool hark_type_is_half(hark_type type) { return type == HARK_F16 || type == HARK_BF16; }

float hark_half_widen(hark_type type, uint16_t bits);
uint16_t hark_half_narrow(hark_type type, float value);

/* The same for `count` numbers, which may have any alignment and share no memory. */
void hark_half_to_f32(hark_type type, const void *from, int64_t count, void *to);
/* Returns the index of the first result that is not finite, or -1: all results are written in either case. */
int64_t hark_half_from_f32(hark_type type, const void *from, int64_t count, void *to);

#endif

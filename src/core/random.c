/* random.c - uniform and normal numbers from Philox words, in f64. */
#include <hark/random.h>
#include <math.h>

/* Number i of the uniform stream uses words 2 (i % 2), 2 (i % 2) + 1 of counter i / 2: 53 bits. */
static double uniform(const hark_random_stream *stream, uint64_t i) {
  uint32_t words[4];
  hark_random_words(stream, i / 2, words);
  const uint32_t *pair = words + 2 * (i % 2);
  return (double)(((uint64_t)pair[0] << 21) ^ (pair[1] >> 11)) * 0x1p-53;
}

void hark_random_uniform(const hark_random_stream *stream, uint64_t first, int64_t count, double *out) {
  for (int64_t i = 0; i < count; i++) out[i] = uniform(stream, first + (uint64_t)i);
}

/* Box-Muller: number i is the cosine (even i) or sine (odd i) of the pair made from uniforms 2 (i / 2) and 2 (i / 2) + 1. */
void hark_random_normal(const hark_random_stream *stream, uint64_t first, int64_t count, double *out) {
  const double two_pi = 6.283185307179586476925286766559;
  for (int64_t i = 0; i < count; i++) {
    const uint64_t at = first + (uint64_t)i, even = at & ~(uint64_t)1;
    const double radius = sqrt(-2.0 * log1p(-uniform(stream, even))), angle = two_pi * uniform(stream, even + 1);
    out[i] = radius * (at == even ? cos(angle) : sin(angle));
  }
}

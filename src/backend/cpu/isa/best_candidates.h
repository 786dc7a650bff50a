/* best_candidates.h - the candidates with the highest logits.
 *
 * Logits are compared as whole numbers: the bits of a float, of a negative one with all but the sign inverted, are in the order of the
 * floats. NaN is the largest number.
 */
#ifndef HARK_BACKEND_CPU_ISA_BEST_CANDIDATES_H
#define HARK_BACKEND_CPU_ISA_BEST_CANDIDATES_H

#include "backend/cpu/simd.h"

#define LOWEST ((int32_t)0x807fffff) /* of -infinity, which is selected by none */
#define HIGHEST INT32_MAX            /* of NaN */

HARK_SIMD float number_of(int32_t order) {
  const uint32_t bits = order < 0 ? (uint32_t)order ^ 0x7fffffffu : (uint32_t)order;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

HARK_SIMD vi orders_of(vf x) {
  const vu bits = vf_bits(x), inverted = bits ^ vu_set(0x7fffffffu);
  const vf order = vf_select(vu_less(bits, vu_set(0x80000000u)), x, vf_from_bits(inverted));
  vi out;
  const vf all = vf_select(vf_equal(x, x), order, vf_from_bits(vu_set((uint32_t)HIGHEST)));
  memcpy(&out, &all, sizeof out);
  return out;
}

typedef struct candidate {
  int32_t order, number;
} candidate;

HARK_SIMD bool is_better(candidate a, candidate b) { return a.order != b.order ? a.order > b.order : a.number < b.number; }

HARK_SIMD void swap(candidate *a, candidate *b) {
  const candidate old = *a;
  *a = *b;
  *b = old;
}

/* Moves the `best` best of `count` candidates to the beginning, the worst of them to place best - 1: parts around a pivot, the median of
 * three. */
HARK_SIMD_NOINLINE void part_best(candidate *c, int count, int best) {
  int from = 0, to = count - 1; /* place best - 1 is in this range */
  while (from < to) {
    const int middle = from + (to - from) / 2;
    if (is_better(c[middle], c[from])) swap(&c[middle], &c[from]);
    if (is_better(c[to], c[from])) swap(&c[to], &c[from]);
    if (is_better(c[to], c[middle])) swap(&c[to], &c[middle]);
    const candidate pivot = c[middle];
    int i = from, j = to;
    while (i <= j) {
      while (is_better(c[i], pivot)) i++;
      while (is_better(pivot, c[j])) j--;
      if (i <= j) swap(&c[i++], &c[j--]);
    }
    if (best - 1 <= j)
      to = j;
    else if (best - 1 >= i)
      from = i;
    else
      return;
  }
}

#endif

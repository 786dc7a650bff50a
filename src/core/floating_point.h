/* floating_point.h - the floating-point state of a thread: rounding, flushing of small numbers, precision. Every thread has a separate
 * state, initially that of the thread that started it. Work must be done with the state of the thread that requests it.
 *
 * Traps and flags are not part of this. hark uses infinities and NaN as values, vectors have unused lanes, and both raise flags. So work is
 * done without traps, and the previous flags are restored afterwards.
 */
#ifndef HARK_CORE_FLOATING_POINT_H
#define HARK_CORE_FLOATING_POINT_H

#include <stdbool.h>
#include <stdint.h>
#if !defined(__x86_64__) && !defined(__aarch64__)
#include <fenv.h>
#endif

typedef struct hark_floating_point {
#if defined(__x86_64__)
  uint32_t vector;  /* MXCSR */
  uint16_t stacked; /* control word of the x87 unit, used for long double */
#elif defined(__aarch64__)
  uint64_t control, status; /* FPCR, FPSR */
#else
  fenv_t all;
#endif
} hark_floating_point;

/* The state of this thread, without traps and with no flag raised. */
void hark_floating_point_get(hark_floating_point *out);
/* Sets the state of this thread; *before is for _leave, which restores everything, flags and traps too. Takes some nanoseconds. */
void hark_floating_point_enter(const hark_floating_point *as, hark_floating_point *before);
void hark_floating_point_leave(const hark_floating_point *before);
/* For work that the calling thread does itself: without traps; _leave restores the flags. */
void hark_floating_point_hold(hark_floating_point *before);
/* The same, but with `flush`, where the processor computes subnormal results slowly (x86: a hundred cycles and more), they become zeros.
 * For work in which they have no effect: no sum may consist of such numbers alone. */
void hark_floating_point_hold_flushing(hark_floating_point *before, bool flush);
/* For work whose results do not depend on the state of the thread: to the nearest, ties to even, small numbers kept, no traps. */
void hark_floating_point_plain(hark_floating_point *before);

#endif

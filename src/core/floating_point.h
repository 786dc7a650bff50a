/* floating_point.h - how a thread computes: rounding, flushing of small numbers, precision. Every thread has its own, and threads have that
 * of the one that started them, at that time; work has to be done as the thread computes that asks for it.
 *
 * Traps and flags are no part of it. Infinities and NaN mean something here, vectors have lanes that nobody looks at, and flags are raised
 * by both: so work is done without traps, and flags are afterwards what they were before.
 */
#ifndef HARK_CORE_FLOATING_POINT_H
#define HARK_CORE_FLOATING_POINT_H

#include <stdint.h>
#if !defined(__x86_64__)
#include <fenv.h>
#endif

typedef struct hark_floating_point {
#if defined(__x86_64__)
  uint32_t vector;  /* MXCSR */
  uint16_t stacked; /* control word of the older unit, of long double */
#else
  fenv_t all;
#endif
} hark_floating_point;

/* As this thread computes, without traps and with no flag raised. */
void hark_floating_point_get(hark_floating_point *out);
/* From now on this thread computes so; *before is for _leave, which brings back everything, flags and traps too. Some nanoseconds. */
void hark_floating_point_enter(const hark_floating_point *as, hark_floating_point *before);
void hark_floating_point_leave(const hark_floating_point *before);
/* Around work of the calling thread's own: without traps, and with the flags as they were afterwards. */
void hark_floating_point_hold(hark_floating_point *before);

#endif

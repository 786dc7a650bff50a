/* floating_point.c - see floating_point.h. */
#include "core/floating_point.h"

#if defined(__x86_64__)
#define VECTOR_FLAGS 0x3fu
#define VECTOR_MASKS 0x1f80u
#define VECTOR_FLUSHES 0x8000u
#define STACKED_MASKS 0x3fu

static uint16_t stacked_now(void) {
  uint16_t word;
  __asm__ volatile("fnstcw %0" : "=m"(word));
  return word;
}

static void set_stacked(uint16_t word) {
  if (word == stacked_now()) return;
  if ((word & STACKED_MASKS) != STACKED_MASKS) __asm__ volatile("fnclex"); /* a raised flag would trap now */
  __asm__ volatile("fldcw %0" : : "m"(word));
}

static void set_vector(uint32_t word) {
  if (word != __builtin_ia32_stmxcsr()) __builtin_ia32_ldmxcsr(word);
}

void hark_floating_point_get(hark_floating_point *out) {
  out->vector = (__builtin_ia32_stmxcsr() & ~VECTOR_FLAGS) | VECTOR_MASKS;
  out->stacked = (uint16_t)(stacked_now() | STACKED_MASKS);
}

void hark_floating_point_enter(const hark_floating_point *as, hark_floating_point *before) {
  *before = (hark_floating_point){.vector = __builtin_ia32_stmxcsr(), .stacked = stacked_now()};
  hark_floating_point_leave(as);
}

void hark_floating_point_leave(const hark_floating_point *before) {
  set_vector(before->vector);
  set_stacked(before->stacked);
}

void hark_floating_point_plain(hark_floating_point *before) {
  const hark_floating_point plain = {.vector = VECTOR_MASKS, .stacked = (uint16_t)(stacked_now() | STACKED_MASKS)};
  hark_floating_point_enter(&plain, before);
}
#elif defined(__aarch64__)
/* Both registers have the exceptions in the order invalid, division by zero, overflow, underflow, inexact, and denormal input apart. */
#define STATUS_FLAGS UINT64_C(0x9f)
#define CONTROL_TRAPS UINT64_C(0x9f00)

static hark_floating_point now_set(void) {
  hark_floating_point now;
  __asm__ volatile("mrs %0, fpcr" : "=r"(now.control));
  __asm__ volatile("mrs %0, fpsr" : "=r"(now.status));
  return now;
}

void hark_floating_point_get(hark_floating_point *out) {
  *out = now_set();
  out->control &= ~CONTROL_TRAPS;
  out->status &= ~STATUS_FLAGS;
}

void hark_floating_point_enter(const hark_floating_point *as, hark_floating_point *before) {
  *before = now_set();
  hark_floating_point_leave(as);
}

/* Setting a register takes longer than reading it. "memory" keeps loads and stores, and the work on them, on their side. */
void hark_floating_point_leave(const hark_floating_point *before) {
  const hark_floating_point now = now_set();
  if (before->control != now.control) __asm__ volatile("msr fpcr, %0" : : "r"(before->control) : "memory");
  if (before->status != now.status) __asm__ volatile("msr fpsr, %0" : : "r"(before->status) : "memory");
}

void hark_floating_point_plain(hark_floating_point *before) {
  const hark_floating_point plain = {0};
  hark_floating_point_enter(&plain, before);
}
#else
void hark_floating_point_get(hark_floating_point *out) {
  fenv_t before;
  (void)feholdexcept(&before);
  (void)fegetenv(&out->all);
  (void)fesetenv(&before);
}

void hark_floating_point_enter(const hark_floating_point *as, hark_floating_point *before) {
  (void)fegetenv(&before->all);
  (void)fesetenv(&as->all);
}

void hark_floating_point_leave(const hark_floating_point *before) { (void)fesetenv(&before->all); }

void hark_floating_point_plain(hark_floating_point *before) {
  (void)feholdexcept(&before->all);
  (void)fesetround(FE_TONEAREST);
}
#endif

void hark_floating_point_hold(hark_floating_point *before) { hark_floating_point_hold_flushing(before, false); }

void hark_floating_point_hold_flushing(hark_floating_point *before, bool flush) {
  hark_floating_point now;
  hark_floating_point_get(&now);
#if defined(__x86_64__)
  if (flush) now.vector |= VECTOR_FLUSHES;
#else
  (void)flush;
#endif
  hark_floating_point_enter(&now, before);
}

/* flush.h - flushing of small numbers to zero in this thread: FTZ and DAZ of MXCSR on x86, FZ of FPCR on ARM. TEST_CAN_FLUSH is 0 on other
 * processors, where nothing is set. */
#ifndef HARK_TESTS_SUPPORT_FLUSH_H
#define HARK_TESTS_SUPPORT_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#define TEST_CAN_FLUSH 1
static inline void test_flush(bool flush) { _mm_setcsr((_mm_getcsr() & ~0x8040u) | (flush ? 0x8040u : 0)); }
#elif defined(__aarch64__)
#define TEST_CAN_FLUSH 1
static inline void test_flush(bool flush) {
  const uint64_t bit = UINT64_C(1) << 24;
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  control = (control & ~bit) | (flush ? bit : 0);
  __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}
#else
#define TEST_CAN_FLUSH 0
static inline void test_flush(bool flush) { (void)flush; }
#endif

#endif

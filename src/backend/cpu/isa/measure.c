/* measure.c - the peak speed of one thread: multiply-adds from registers, and reading memory. `hark bench machine` times them. */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

/* Enough independent sums to hide the latency of a multiply-add (4 cycles; two a cycle on x86, up to four on ARM), and few enough for the
 * registers. */
#if defined(HARK_SIMD_NEON)
#define SUMS 20
#else
#define SUMS 10
#endif
#define OPERATIONS_A_LANE 2.0 /* multiply, add */

double HARK_ISA(hark_cpu_peak_operations)(int64_t repetitions) {
  vf sum[SUMS];
  HARK_UNROLL
  for (int i = 0; i < SUMS; i++) sum[i] = vf_set(1.0f + 0.125f * (float)i);
  const vf factor = vf_set(0.75f), term = vf_set(0.25f); /* converges to 1: neither overflow nor subnormal numbers */
  HARK_ROLLED
  for (int64_t r = 0; r < repetitions; r++) {
    HARK_UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = vf_fma(sum[i], factor, term);
  }
  vf total = vf_zero();
  HARK_UNROLL
  for (int i = 0; i < SUMS; i++) total = total + sum[i];
  const double operations = OPERATIONS_A_LANE * SUMS * HARK_LANES * (double)repetitions;
  return vf_sum(total) > 0 ? operations : 0; /* the sums are used, so that they are computed */
}

double HARK_ISA(hark_cpu_read_memory)(const float *data, int64_t count) {
  enum { STREAMS = 8, STEP = STREAMS * HARK_LANES };
  vf sum[STREAMS];
  HARK_UNROLL
  for (int i = 0; i < STREAMS; i++) sum[i] = vf_zero();
  int64_t at = 0;
  HARK_ROLLED
  for (; at + STEP <= count; at += STEP) {
    HARK_UNROLL
    for (int i = 0; i < STREAMS; i++) sum[i] = sum[i] + vf_load(data + at + i * HARK_LANES);
  }
  double total = 0;
  for (; at < count; at++) total += data[at];
  HARK_UNROLL
  for (int i = 0; i < STREAMS; i++) total += vf_sum(sum[i]);
  return total;
}

#if defined(HARK_BF16_DOTS)
double HARK_ISA(hark_cpu_peak_bf16_operations)(int64_t repetitions) {
  vf sum[SUMS];
  HARK_UNROLL
  for (int i = 0; i < SUMS; i++) sum[i] = vf_set(1.0f + 0.125f * (float)i);
  const vu zero = vu_set(0x80008000u), one = vu_set(0x3F803F80u);
  HARK_ROLLED
  for (int64_t r = 0; r < repetitions; r++) {
    HARK_UNROLL
    for (int i = 0; i < SUMS; i++) sum[i] = bf16_dot(sum[i], zero, one);
  }
  vf total = vf_zero();
  HARK_UNROLL
  for (int i = 0; i < SUMS; i++) total = total + sum[i];
  const double operations = 2 * OPERATIONS_A_LANE * SUMS * HARK_LANES * (double)repetitions;
  return vf_sum(total) > 0 ? operations : 0;
}
#else
double HARK_ISA(hark_cpu_peak_bf16_operations)(int64_t repetitions) {
  (void)repetitions;
  return 0;
}
#endif

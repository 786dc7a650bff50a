/* isas.c - the instruction sets of this build, and those that this machine can run.
 *
 * Compiled without any instruction set's flags, so that asking is safe everywhere. */
#include <string.h>

#include "backend/cpu/state.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define HAVE_X86_SETS 1
#else
#define HAVE_X86_SETS 0
#endif
#if defined(__aarch64__) && defined(__GNUC__)
#define HAVE_NEON 1
#else
#define HAVE_NEON 0
#endif

extern const hark_cpu_isa hark_cpu_isa_generic;
bool hark_cpu_has_generic(void);

bool hark_cpu_has_bf16_dots_generic(void);

bool hark_cpu_has_generic(void) { return true; }
bool hark_cpu_has_bf16_dots_generic(void) { return false; }

#if HAVE_X86_SETS
#include <cpuid.h>

extern const hark_cpu_isa hark_cpu_isa_avx2, hark_cpu_isa_avx512;
bool hark_cpu_has_avx2(void);
bool hark_cpu_has_avx512(void);
bool hark_cpu_has_bf16_dots_avx2(void);
bool hark_cpu_has_bf16_dots_avx512(void);

/* Conversions of f16; not every compiler's function knows them. */
static bool has_f16c(void) {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/* The compiler's function tests the processor and whether the operating system saves the registers. */
bool hark_cpu_has_avx2(void) {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

/* The extensions beyond AVX2 that -march=skylake-avx512 allows. */
bool hark_cpu_has_avx512(void) {
  return hark_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

bool hark_cpu_has_bf16_dots_avx2(void) { return false; }
bool hark_cpu_has_bf16_dots_avx512(void) { return hark_cpu_has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

#if HAVE_NEON
extern const hark_cpu_isa hark_cpu_isa_neon;
bool hark_cpu_has_neon(void);
bool hark_cpu_has_bf16_dots_neon(void);

bool hark_cpu_has_neon(void) { return true; }            /* part of the architecture */
bool hark_cpu_has_bf16_dots_neon(void) { return false; } /* BFMMLA adds in another order */
#endif

const hark_cpu_isa *const hark_cpu_isas[] = {
    &hark_cpu_isa_generic,
#if HAVE_X86_SETS
    &hark_cpu_isa_avx2,
    &hark_cpu_isa_avx512,
#endif
#if HAVE_NEON
    &hark_cpu_isa_neon,
#endif
    NULL,
};

const hark_cpu_isa *hark_cpu_isa_find(const char *name) {
  const bool any = name == NULL || name[0] == '\0';
  const hark_cpu_isa *best = NULL;
  for (const hark_cpu_isa *const *isa = hark_cpu_isas; *isa != NULL; isa++)
    if ((any || strcmp((*isa)->name, name) == 0) && (*isa)->runs_here()) best = *isa;
  return best;
}

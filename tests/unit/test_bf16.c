/* test_bf16.c - the product from bf16 operands against its definition (backend/cpu/isa/bf16_product.c), to the bit: with the processor's
 * dot products where there are any and without, on every instruction set, for every kind of operand and around every size of a block.
 *
 * The definition is written here with fmaf: add(s, a, b) = s + a b rounded once, subnormal operands zero, results below 2^-126 zero. Where
 * a result may be that small everything is multiplied by 2^80 first, so that the rounding is the one without a limit of the exponent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "core/half.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define SLICE 512 /* numbers of a slice, at most */
#define SCALE 80

enum { ORDINARY, EVERY_PATTERN, TINY, SPECIAL, HUGE_NUMBERS, KINDS };

static uint64_t state_of_random = 1;
static uint32_t random_word(void) {
  state_of_random = state_of_random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (uint32_t)(state_of_random >> 32);
}

static uint16_t random_number(int kind) {
  static const uint16_t special[] = {0,      0x8000, 1,      0x8001, 0x7F,   0x80,   0x8080, 0x3F80, 0xBF80,
                                     0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x3F00, 0x1A00, 0x9A00};
  const uint32_t word = random_word();
  const uint16_t sign_and_fraction = word & 0x807F;
  switch (kind) {
    case ORDINARY: return sign_and_fraction | (uint16_t)((119 + word / 65536 % 16) << 7);
    case TINY: return sign_and_fraction | (uint16_t)((48 + word / 65536 % 24) << 7); /* products around 2^-126 */
    case HUGE_NUMBERS: return sign_and_fraction | (uint16_t)((184 + word / 65536 % 9) << 7);
    case SPECIAL: return special[word / 65536 % (sizeof special / sizeof *special)];
    default: return (uint16_t)(word >> 16);
  }
}

static float value_of(uint16_t bits) {
  return (bits & 0x7F80) == 0 ? copysignf(0, bits >> 15 ? -1.0f : 1.0f) : hark_half_widen(HARK_BF16, bits);
}

static float add(float sum, float a, float b) {
  const float plain = fmaf(a, b, sum);
  if (!(fabsf(plain) < 0x1p-100f) || fabsf(sum) >= 0x1p-60f) return plain; /* a small difference of large numbers is exact */
  const bool a_smaller = fabsf(a) < fabsf(b);
  const float wide = fmaf(ldexpf(a, a_smaller ? SCALE : 0), ldexpf(b, a_smaller ? 0 : SCALE), ldexpf(sum, SCALE));
  return fabsf(wide) < ldexpf(1, SCALE - 126) ? copysignf(0, plain) : ldexpf(wide, -SCALE);
}

/* One element; a and b are `k` numbers, `apart` words from one to the next. */
static float sum_of(int64_t k, const uint16_t *a, int64_t a_apart, const uint16_t *b, int64_t b_apart, float before, float beta,
                    float bias) {
  const int64_t slices = (k + SLICE - 1) / SLICE, length = slices > 0 ? ((k + slices - 1) / slices + 1) / 2 * 2 : 0;
  float c = before;
  if (k == 0) return (beta != 0 ? beta * before : 0) + bias;
  for (int64_t first = 0; first < k; first += length) {
    float sum = 0;
    for (int64_t p = first; p < first + length && p < k; p += 2) {
      const bool odd = p + 1 < k && p + 1 < first + length;
      sum = add(sum, odd ? value_of(a[(p + 1) * a_apart]) : 0, odd ? value_of(b[(p + 1) * b_apart]) : 0);
      sum = add(sum, value_of(a[p * a_apart]), value_of(b[p * b_apart]));
    }
    c = first > 0 ? c + sum : beta != 0 ? beta * before + (sum + bias) : sum + bias;
  }
  return c;
}

/* A matrix of bf16 numbers, or of f32 numbers that round to them. */
typedef struct matrix {
  uint16_t *halves;
  float *floats;
  int64_t rows, columns, ld;
} matrix;

/* An f32 number that rounds to the half: changed in the bits that rounding loses. */
static float near_half(uint16_t half) {
  const bool finite = (half & 0x7F80) != 0x7F80;
  uint32_t bits = (uint32_t)half << 16;
  if (finite && (half & 0x7FFF) != 0 && (half & 0x7FFF) != 0x7F7F) bits += random_word() % 0x8000; /* up, by less than half a unit */
  if (finite && (half & 0x7F) > 1 && random_word() % 2 == 0) bits = ((uint32_t)half << 16) - random_word() % 0x8000;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static matrix make(int64_t rows, int64_t columns, int kind) {
  matrix m = {.rows = rows, .columns = columns, .ld = columns + 3};
  const size_t count = (size_t)(rows * m.ld) + 1;
  m.halves = malloc(count * sizeof *m.halves);
  m.floats = malloc(count * sizeof *m.floats);
  assert_true(m.halves != NULL && m.floats != NULL);
  for (size_t i = 0; i < count; i++) {
    m.halves[i] = random_number(kind);
    m.floats[i] = near_half(m.halves[i]);
    if (hark_half_narrow(HARK_BF16, m.floats[i]) != m.halves[i] && !isnan(m.floats[i]))
      fail_msg("%a does not round to %04x", (double)m.floats[i], m.halves[i]);
  }
  return m;
}

static void drop(matrix *m) {
  free(m->halves);
  free(m->floats);
}

static hark_cpu_operand operand(const matrix *m, bool floats, bool transposed) {
  return (hark_cpu_operand){floats ? (const void *)m->floats : m->halves, floats ? HARK_F32 : HARK_BF16, transposed, m->ld};
}

typedef struct sizes {
  int64_t m, n, k;
} sizes;

/* One product on one instruction set. Elements are looked at one in `every`. */
static void check_product(const hark_cpu_isa *isa, bool dots, const sizes *s, int kind, unsigned variant, float beta, int64_t every) {
  const bool a_transposed = variant & 1u, b_transposed = variant & 2u, a_floats = variant & 4u, b_floats = variant & 8u;
  matrix a = a_transposed ? make(s->k, s->m, kind) : make(s->m, s->k, kind);
  matrix b = b_transposed ? make(s->n, s->k, kind) : make(s->k, s->n, kind);
  float *c = malloc((size_t)(s->m * s->n + 1) * sizeof *c), *before = malloc((size_t)(s->m * s->n + 1) * sizeof *before);
  float *bias = malloc((size_t)(s->n + 1) * sizeof *bias);
  void *scratch = aligned_alloc(64, (isa->bf16_product_scratch_bytes() + 63) / 64 * 64);
  assert_true(c != NULL && before != NULL && bias != NULL && scratch != NULL);
  for (int64_t i = 0; i < s->m * s->n; i++) c[i] = before[i] = beta != 0 ? (float)(random_word() % 1000) / 256 : NAN;
  for (int64_t i = 0; i < s->n; i++) bias[i] = (float)(random_word() % 1000) / 128 - 4;
  const hark_cpu_bf16_product product = {.m = s->m,
                                         .n = s->n,
                                         .k = s->k,
                                         .a = operand(&a, a_floats, a_transposed),
                                         .b = operand(&b, b_floats, b_transposed),
                                         .beta = beta,
                                         .c = c,
                                         .ldc = s->n,
                                         .bias = bias};
  isa->bf16_product(&product, dots, scratch);
  for (int64_t at = 0; at < s->m * s->n; at += every) {
    const int64_t i = at / s->n, j = at % s->n;
    const float expected = sum_of(s->k, a.halves + (a_transposed ? i : i * a.ld), a_transposed ? a.ld : 1,
                                  b.halves + (b_transposed ? j * b.ld : j), b_transposed ? 1 : b.ld, before[at], beta, bias[j]);
    if (isnan(expected) ? isnan(c[at]) : memcmp(&c[at], &expected, sizeof expected) == 0) continue;
    fail_msg("%s%s, %d x %d x %d, kind %d, variant %u, beta %g: [%d, %d] is %a, expected %a", isa->name, dots ? ", dot products" : "",
             (int)s->m, (int)s->n, (int)s->k, kind, variant, (double)beta, (int)i, (int)j, (double)c[at], (double)expected);
  }
  free(scratch);
  free(bias);
  free(before);
  free(c);
  drop(&b);
  drop(&a);
}

typedef void body(const hark_cpu_isa *isa, bool dots);

/* Returns how often it ran. */
static int on_every_set(body *run) {
  int count = 0;
  for (const hark_cpu_isa *const *isa = hark_cpu_isas; *isa != NULL; isa++) {
    if (!(*isa)->runs_here()) continue;
    run(*isa, false);
    count++;
    if (!(*isa)->has_bf16_dots()) continue;
    run(*isa, true);
    count++;
  }
  return count;
}

static void check_kinds(const hark_cpu_isa *isa, bool dots) {
  static const sizes all[] = {{1, 1, 1}, {1, 1, 2}, {13, 37, 7}, {12, 32, 8}, {5, 64, 19}, {25, 33, 34}, {3, 5, 0}, {40, 3, 31}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (int kind = 0; kind < KINDS; kind++)
      for (unsigned variant = 0; variant < 16; variant++) check_product(isa, dots, &all[i], kind, variant, variant % 2 ? 1 : 0, 1);
}

static void numbers_of_every_kind(void **state) {
  (void)state;
  assert_true(on_every_set(check_kinds) > 0);
}

/* Slices of k, blocks and bands of rows, blocks of columns, each with a rest. */
static void check_blocks(const hark_cpu_isa *isa, bool dots) {
  static const sizes all[] = {{13, 33, 512}, {13, 33, 513}, {7, 5, 1100}, {257, 11, 37}, {11, 515, 35}, {259, 517, 21}, {2100, 3, 517}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (unsigned variant = 0; variant < 16; variant += 5) check_product(isa, dots, &all[i], ORDINARY, variant, 1, 17);
}

static void blocks_of_every_size(void **state) {
  (void)state;
  assert_true(on_every_set(check_blocks) > 0);
}

/* An f32 operand below 2^-126 is zero, although it would round to 2^-126. */
static void check_subnormal(const hark_cpu_isa *isa, bool dots) {
  const float numbers[] = {0x1.fffffcp-127f, 0x1p-126f, -0x1.fffffcp-127f, -0x1p-126f}, one = 0x1p100f;
  void *scratch = aligned_alloc(64, (isa->bf16_product_scratch_bytes() + 63) / 64 * 64);
  assert_non_null(scratch);
  for (int variant = 0; variant < 4; variant++)
    for (int i = 0; i < 4; i++) {
      float c = 1;
      const hark_cpu_bf16_product product = {
          .m = 1, .n = 1, .k = 1, .a = {&numbers[i], HARK_F32, variant % 2, 1}, .b = {&one, HARK_F32, variant / 2, 1}, .c = &c, .ldc = 1};
      isa->bf16_product(&product, dots, scratch);
      assert_true(c == (i % 2 == 0 ? 0 : numbers[i] * one));
    }
  free(scratch);
}

static void subnormal_operands(void **state) {
  (void)state;
  assert_true(on_every_set(check_subnormal) > 0);
}

/* 2^-126 and its neighbours, plus or minus products down to 2^-252: where flushing is decided. */
static void check_threshold(const hark_cpu_isa *isa, bool dots) {
  enum { COUNT = 64 };
  uint16_t a[2], b[2 * COUNT];
  float c[COUNT];
  void *scratch = aligned_alloc(64, (isa->bf16_product_scratch_bytes() + 63) / 64 * 64);
  assert_non_null(scratch);
  for (int place = 0; place < 2; place++)
    for (int sign = 0; sign < 4; sign++)
      for (int exponent = 1; exponent < 127; exponent++)
        for (int fraction = 0; fraction < 128; fraction += 8) {
          /* the pair's first product makes 2^-126 times 1 to 1 + 2^-7, the second one changes it; or the other way round */
          a[place] = (uint16_t)(1 << 7 | fraction / 64 | (sign & 1) << 15);
          a[1 - place] = (uint16_t)(exponent << 7 | fraction | (sign & 2) << 14);
          for (int j = 0; j < COUNT; j++) {
            b[2 * j + place] = 127 << 7;
            b[2 * j + 1 - place] = (uint16_t)((1 + 2 * j) % 127 << 7 | (j * 5) % 128);
          }
          const hark_cpu_bf16_product product = {
              .m = 1, .n = COUNT, .k = 2, .a = {a, HARK_BF16, false, 2}, .b = {b, HARK_BF16, true, 2}, .c = c, .ldc = COUNT};
          isa->bf16_product(&product, dots, scratch);
          for (int j = 0; j < COUNT; j++) {
            const float expected = sum_of(2, a, 1, b + 2 * j, 1, 0, 0, 0);
            if (memcmp(&c[j], &expected, sizeof expected) != 0)
              fail_msg("%s%s: (%04x %04x) (%04x %04x) is %a, expected %a", isa->name, dots ? ", dot products" : "", a[0], a[1], b[2 * j],
                       b[2 * j + 1], (double)c[j], (double)expected);
          }
        }
  free(scratch);
}

static void small_results(void **state) {
  (void)state;
  assert_true(on_every_set(check_threshold) > 0);
}

/* Sums of rows are those of the numbers before rounding. */
static void check_row_sums(const hark_cpu_isa *isa, bool dots) {
  enum { ROWS = 270, INNER = 41 };
  matrix a = make(INNER, ROWS, ORDINARY), b = make(INNER, 5, ORDINARY);
  float c[ROWS * 5], sums[ROWS];
  void *scratch = aligned_alloc(64, (isa->bf16_product_scratch_bytes() + 63) / 64 * 64);
  assert_non_null(scratch);
  for (int given = 0; given < 2; given++) {
    for (int i = 0; i < ROWS; i++) sums[i] = 3;
    const hark_cpu_bf16_product product = {.m = ROWS,
                                           .n = 5,
                                           .k = INNER,
                                           .a = operand(&a, true, true),
                                           .b = operand(&b, false, false),
                                           .c = c,
                                           .ldc = 5,
                                           .row_sums = sums,
                                           .add_to_row_sums = given == 1};
    isa->bf16_product(&product, dots, scratch);
    for (int i = 0; i < ROWS; i++) {
      float expected = 0;
      for (int p = 0; p < INNER; p++) expected += a.floats[p * a.ld + i];
      expected += given == 1 ? 3.0f : 0.0f;
      assert_memory_equal(&sums[i], &expected, sizeof expected);
    }
  }
  free(scratch);
  drop(&b);
  drop(&a);
}

static void sums_of_rows(void **state) {
  (void)state;
  assert_true(on_every_set(check_row_sums) > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(numbers_of_every_kind), cmocka_unit_test(blocks_of_every_size),
                                     cmocka_unit_test(subnormal_operands), cmocka_unit_test(small_results), cmocka_unit_test(sums_of_rows)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

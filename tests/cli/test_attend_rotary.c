/* test_attend_rotary.c - hark attend's rotary rates against their published formulas, and the gradient of given rates. */
#include "support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/train/attend_files.h"

enum { BATCH = 2, HEADS = 2, LENGTH = 9, DIM = 8, PAIRS = DIM / 2, ROWS = BATCH * HEADS * LENGTH, COUNT = ROWS * DIM };
#define BASE 100.
#define PI 3.14159265358979323846

static double query[COUNT], key[COUNT], value[COUNT], dout[COUNT];

static void draw(double *out, double phase) {
  for (int i = 0; i < COUNT; i++) out[i] = sin(phase + 1.7 * i) + 0.3 * cos(phase * i);
}

/* Writes q, k, v, dout, and rates if there are any. */
static void write_input(const double *rates) {
  static const char *const names[] = {"q", "k", "v", "dout", "rotary_rates"};
  double *const data[] = {query, key, value, dout, (double *)rates};
  const int64_t shape[] = {BATCH, HEADS, LENGTH, DIM}, pairs = PAIRS;
  hark_tensor tensors[5];
  hark_named_tensor named[5] = {{0}};
  const int count = rates != NULL ? 5 : 4;
  for (int i = 0; i < count; i++) {
    assert_int_equal(hark_tensor_wrap(attend_context, data[i], HARK_F64, i < 4 ? 4 : 1, i < 4 ? shape : &pairs, NULL, &tensors[i]),
                     HARK_OK);
    named[i].name = names[i];
    named[i].tensor = &tensors[i];
  }
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, count, NULL, 0, NULL), HARK_OK);
}

static void run(const char *words) {
  char output[ATTEND_OUTPUT_BYTES], all[512];
  (void)snprintf(all, sizeof all, "--causal --backend reference %s", words);
  if (attend(all, output) != 0) fail_msg("%s: %s", words, output);
}

static void read_result(const char *name, int64_t count, double *out) {
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  hark_tensor tensor = attend_load(file, name, HARK_F64);
  assert_int_equal(hark_tensor_count(&tensor), count);
  for (int64_t i = 0; i < count; i++) out[i] = attend_number(&tensor, i);
  hark_tensor_destroy(attend_context, &tensor);
  hark_safetensors_close(attend_context, &file);
}

/* Causal attention of rows that are rotated by their positions, from the formula. */
static void define(const double *rates, double scale, double *out) {
  for (int row = 0; row < BATCH * HEADS; row++)
    for (int n = 0; n < LENGTH; n++) {
      const double *const q = query + (row * LENGTH + n) * DIM;
      double weights[LENGTH], sum = 0;
      for (int i = 0; i <= n; i++) {
        const double *const k = key + (row * LENGTH + i) * DIM;
        double product = 0;
        for (int j = 0; j < PAIRS; j++) {
          const double a = (n - i) * rates[j], real = q[2 * j] * k[2 * j] + q[2 * j + 1] * k[2 * j + 1];
          product += real * cos(a) - (q[2 * j + 1] * k[2 * j] - q[2 * j] * k[2 * j + 1]) * sin(a);
        }
        weights[i] = exp(scale * product);
        sum += weights[i];
      }
      for (int f = 0; f < DIM; f++) {
        double total = 0;
        for (int i = 0; i <= n; i++) total += weights[i] / sum * value[(row * LENGTH + i) * DIM + f];
        out[(row * LENGTH + n) * DIM + f] = total;
      }
    }
}

static double rate_of(double base, int j) { return pow(base, -2. * j / DIM); }
static double clamped(double x) { return fmax(0, fmin(1, x)); }

typedef enum scaling { NONE, FRACTION, LINEAR, NTK, DYNAMIC, LLAMA3, YARN } scaling;

/* The published formulas, factor 2, trained on 4 (dynamic) or 64 tokens. */
static double expected_rate(scaling kind, int j) {
  const double rate = rate_of(BASE, j), turns = 64 * rate / (2 * PI);
  const double begin = fmax(0, floor(DIM * log(64 / (2 * PI * 32)) / (2 * log(BASE)))),
               end = fmin(DIM - 1, ceil(DIM * log(64 / (2 * PI)) / (2 * log(BASE))));
  double kept = 1;
  switch (kind) {
    case NONE: return rate;
    case FRACTION: return j < PAIRS / 2 ? rate : 0;
    case LINEAR: return rate / 2;
    case NTK: return rate_of(BASE * pow(2, DIM / (DIM - 2.)), j);
    case DYNAMIC: return rate_of(BASE * pow(2. * LENGTH / 4 - 1, DIM / (DIM - 2.)), j);
    case LLAMA3: kept = clamped((turns - 1) / (4 - 1)); break;
    case YARN: kept = 1 - clamped((j - begin) / (end - begin)); break;
  }
  return (1 - kept) * rate / 2 + kept * rate;
}

static void scalings_are_those_of_their_papers(void **state) {
  (void)state;
  static const struct {
    scaling kind;
    const char *words;
  } cases[] = {{NONE, ""},
               {FRACTION, "--rotary-fraction 0.5"},
               {LINEAR, "--rotary-scaling linear --rotary-factor 2"},
               {NTK, "--rotary-scaling ntk --rotary-factor 2"},
               {DYNAMIC, "--rotary-scaling dynamic --rotary-factor 2 --rotary-context 4"},
               {LLAMA3, "--rotary-scaling llama3 --rotary-factor 2 --rotary-context 64"},
               {YARN, "--rotary-scaling yarn --rotary-factor 2 --rotary-context 64"}};
  const double learned[PAIRS] = {0.9, 0.31, -0.05, 0.002};
  double found[COUNT], expected[COUNT], plain[COUNT];
  for (size_t n = 0; n < 2 * (sizeof cases / sizeof *cases); n++) {
    const size_t c = n / 2;
    const bool given = n % 2 == 1; /* these rates in place of those of the base: the factors are the same */
    char words[256];
    if (given && (cases[c].kind == FRACTION || cases[c].kind == DYNAMIC)) continue; /* other numbers of rates; refused */
    write_input(given ? learned : NULL);
    double rates[PAIRS];
    const double factor = cases[c].kind == YARN ? pow(0.1 * log(2) + 1, 2) : 1;
    for (int j = 0; j < PAIRS; j++) {
      rates[j] = expected_rate(cases[c].kind, j);
      if (given) rates[j] *= learned[j] / rate_of(BASE, j);
    }
    (void)snprintf(words, sizeof words, "--rotary 100 %s", cases[c].words);
    run(words);
    read_result("out", COUNT, found);
    define(rates, factor / sqrt(DIM), expected);
    if (n == 0) memcpy(plain, expected, sizeof plain);
    double difference = 0, change = 0;
    for (int i = 0; i < COUNT; i++) {
      difference = fmax(difference, fabs(found[i] - expected[i]));
      change = fmax(change, fabs(expected[i] - plain[i]));
    }
    if (!(difference < 1e-12) || (n > 0 && change < 1e-3)) fail_msg("%s: %g, change %g", words, difference, change);
  }
}

static double loss_with(const double *rates, const char *words) {
  double out[COUNT], sum = 0;
  write_input(rates);
  run(words);
  read_result("out", COUNT, out);
  for (int i = 0; i < COUNT; i++) sum += out[i] * dout[i];
  return sum;
}

/* Four points: an error of step^4 and of rounding / step. */
static void check_gradient(const char *words) {
  const double step = 1e-3;
  double rates[PAIRS] = {0.9, 0.31, -0.05, 0.002}, gradient[PAIRS];
  (void)loss_with(rates, words);
  read_result("drotary_rates", PAIRS, gradient);
  for (int j = 0; j < PAIRS; j++) {
    const double at = rates[j];
    double loss[4];
    for (int s = 0; s < 4; s++) {
      rates[j] = at + step * (s < 2 ? s - 2 : s - 1);
      loss[s] = loss_with(rates, words);
    }
    rates[j] = at;
    const double numerical = (loss[0] - 8 * loss[1] + 8 * loss[2] - loss[3]) / (12 * step);
    if (fabs(numerical - gradient[j]) > 1e-7 * fmax(1, fabs(numerical)))
      fail_msg("%s, rate %d: %g, by differences %g", words, j, gradient[j], numerical);
  }
}

/* Given rates are used instead of those of the base, and have a gradient, also where a scaling multiplies them. */
static void given_rates_have_a_gradient(void **state) {
  (void)state;
  double rates[PAIRS], dq[COUNT], back[COUNT];
  check_gradient("--rotary 100");
  check_gradient("--rotary 100 --rotary-scaling linear --rotary-factor 3");
  check_gradient("--rotary 100 --rotary-scaling yarn --rotary-factor 4 --rotary-context 64");
  for (int j = 0; j < PAIRS; j++) rates[j] = rate_of(BASE, j); /* the same rates both ways */
  (void)loss_with(rates, "--rotary 100");
  read_result("dq", COUNT, dq);
  write_input(NULL);
  run("--rotary 100");
  read_result("dq", COUNT, back);
  for (int i = 0; i < COUNT; i++) assert_true(fabs(dq[i] - back[i]) < 1e-13);
}

static void wrong_combinations_are_refused(void **state) {
  (void)state;
  static const struct {
    bool rates;
    int code;
    const char *words, *message;
  } cases[] = {
      {false, 2, "--rotary-fraction 0.5", "it needs --rotary above 0"},
      {false, 2, "--rotary 100 --rotary-factor 2", "it needs --rotary-scaling"},
      {false, 2, "--rotary 100 --rotary-scaling yarn --rotary-factor 2", "needs --rotary-context N"},
      {false, 2, "--rotary 100 --rotary-scaling linear --rotary-context 5", "it needs --rotary-scaling"},
      {false, 2, "--rotary 100 --rotary-scaling ntk", "needs --rotary-factor S"},
      {false, 2, "--rotary 100 --rotary-scaling yarn --rotary-factor 2 --rotary-context 5 --kernel rbf --sigma 1", "expected --kernel exp"},
      {true, 2, "", "tensor rotary_rates needs --rotary BASE"},
      {true, 2, "--rotary 100 --rotary-scaling dynamic --rotary-factor 2 --rotary-context 4",
       "tensor rotary_rates cannot be used with --rotary-scaling dynamic, which changes the base"},
      {true, 3, "--rotary 100 --rotary-fraction 0.5", "has 4 numbers, expected one for each of the 2 pairs"}};
  const double rates[PAIRS] = {1, 0.5, 0.2, 0.1};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char output[ATTEND_OUTPUT_BYTES];
    write_input(cases[i].rates ? rates : NULL);
    const int code = attend(cases[i].words, output);
    if (code != cases[i].code || strstr(output, cases[i].message) == NULL) fail_msg("%s: exit %d, '%s'", cases[i].words, code, output);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(scalings_are_those_of_their_papers), cmocka_unit_test(given_rates_have_a_gradient),
                                     cmocka_unit_test(wrong_combinations_are_refused)};
  draw(query, 0.1);
  draw(key, 0.7);
  draw(value, 1.3);
  draw(dout, 2.1);
  return cmocka_run_group_tests(tests, attend_open, attend_close);
}

/* fuzz_number.c - any bytes as a number, a whole number, a duration, the bits of a double, and a case of `hark bench`.
 *
 * What is read is printed and read as the same number, bit for bit; what is printed is the shortest of 15 to 17 digits that does so. The C
 * library agrees on what a number is worth. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "fuzz/fuzz.h"
#include "io/number.h"

static bool same_bits(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void check_printed(double value) {
  char text[HARK_NUMBER_BYTES], again[HARK_NUMBER_BYTES];
  double back;
  memset(text, 'x', sizeof text);
  FUZZ_CHECK(hark_number_print(value, text) == text && strlen(text) < sizeof text, "%g has no text", value);
  if (!isfinite(value)) {
    FUZZ_CHECK(!hark_number_read(text, strlen(text), &back), "\"%s\" was read", text);
    return;
  }
  FUZZ_CHECK(hark_number_read(text, strlen(text), &back), "\"%s\" is refused", text);
  FUZZ_CHECK(same_bits(value, back), "%.17g came back from \"%s\" as %.17g", value, text, back);
  FUZZ_CHECK(strcmp(hark_number_print(back, again), text) == 0, "\"%s\" and \"%s\"", text, again);
  int digits = 0;
  for (const char *at = text; *at != 0 && *at != 'e'; at++) digits += *at >= '0' && *at <= '9';
  FUZZ_CHECK(strlen(text) <= 25 && digits <= 22, "\"%s\" is long", text);
}

static void check_text(const char *text, size_t size) {
  double number, seconds, back;
  int64_t whole, whole_back;
  char printed[HARK_NUMBER_BYTES + 1];
  if (hark_number_read(text, size, &number)) {
    char *const copy = malloc(size + 1), *end;
    memcpy(copy, text, size);
    copy[size] = 0;
    FUZZ_CHECK(strlen(copy) == size && strspn(copy, "+-.0123456789eE") == size, "\"%s\" is no number", copy);
    FUZZ_CHECK(same_bits(strtod(copy, &end), number) && *end == 0, "\"%s\" was read as %.17g", copy, number);
    free(copy);
    check_printed(number);
  }
  if (hark_number_read_whole(text, size, &whole)) {
    const int length = snprintf(printed, sizeof printed, "%" PRId64, whole);
    FUZZ_CHECK(hark_number_read_whole(printed, (size_t)length, &whole_back) && whole == whole_back, "%s came back changed", printed);
    FUZZ_CHECK(hark_number_read(text, size, &number) && fabs(number - (double)whole) <= fabs(number) * DBL_EPSILON, "%s is %g", printed,
               number);
  }
  if (hark_number_read_duration(text, size, &seconds)) {
    FUZZ_CHECK(seconds >= 0 && isfinite(seconds), "%g seconds", seconds);
    hark_number_print(seconds, printed);
    memcpy(printed + strlen(printed), "s", 2);
    FUZZ_CHECK(hark_number_read_duration(printed, strlen(printed), &back) && back == seconds, "%s came back as %.17g", printed, back);
  }
}

static void check_case(hark_context *context, const char *bytes, size_t size) {
  int64_t length = 1, window = 1;
  double dropout = 0;
  bool causal = false;
  const hark_bench_field fields[] = {{.name = "L", .type = HARK_BENCH_WHOLE, .whole = &length},
                                     {.name = "window", .type = HARK_BENCH_WHOLE, .whole = &window},
                                     {.name = "dropout", .type = HARK_BENCH_NUMBER, .number = &dropout},
                                     {.name = "causal", .type = HARK_BENCH_FLAG, .flag = &causal}};
  char *const text = malloc(size + 1);
  memcpy(text, bytes, size);
  text[size] = 0;
  const hark_status status = hark_bench_case_read(context, text, fields, (int)(sizeof fields / sizeof fields[0]));
  fuzz_check_refusal(context, status, HARK_INVALID_ARGUMENT, "case '");
  if (status == HARK_OK) FUZZ_CHECK(length >= 1 && window >= 1 && dropout >= 0 && isfinite(dropout), "values out of their range: %s", text);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  const char *const text = size > 0 ? (const char *)data : "";
  for (size_t at = 0; at + sizeof(double) <= size; at += sizeof(double)) {
    double value;
    memcpy(&value, data + at, sizeof value);
    check_printed(value);
  }
  check_text(text, size);
  check_case(context, text, size);
  fuzz_limit(2 * size);
  fuzz_end();
  return 0;
}

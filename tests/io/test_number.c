/* test_number.c - numbers as text: what is read, what is refused, and that writing and reading agree in every locale. */
#include <float.h>
#include <hark/random.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/number.h"
#include "support/cmocka_all.h"
#include "support/command.h"
#include "support/text_files.h"

static void decimal_numbers_are_read(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } good[] = {{"0", 0},      {"-0", -0.0},   {"+3", 3},          {"1.5", 1.5}, {".5", 0.5},   {"5.", 5},
              {"1e3", 1000}, {"1E+3", 1000}, {"-2.5e-1", -0.25}, {"007", 7},   {"1e-400", 0}, {"9007199254740993", 9007199254740992.0},
              {"0.1", 0.1},  {"3.14", 3.14}};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    double value = NAN;
    if (!hark_number_read(good[i].text, strlen(good[i].text), &value)) fail_msg("\"%s\" is refused", good[i].text);
    if (memcmp(&value, &good[i].value, sizeof value) != 0) fail_msg("\"%s\" is read as %a", good[i].text, value);
  }
}

static void other_texts_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {"",  " 1",  "1 ",    "one", "nan",   "inf",   "-inf", "0x10", "1e",  "1e+", "e5",    ".",
                                    "+", "--1", "1.2.3", "1,5", "1e999", "1_000", "1d",   "1f",   "\t1", "1\n", "1e5.5", "infinity"};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    double value = 7;
    if (hark_number_read(bad[i], strlen(bad[i]), &value)) fail_msg("\"%s\" is read as %a", bad[i], value);
    assert_true(value == 7);
  }
  double value = 7;
  assert_false(hark_number_read("1\0002", 3, &value)); /* a zero byte within */
}

static void whole_numbers_keep_all_digits(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t value;
  } good[] = {{"9223372036854775807", INT64_MAX},
              {"-9223372036854775808", INT64_MIN},
              {"9007199254740993", 9007199254740993},
              {"8e6", 8000000},
              {"2.5e1", 25},
              {"-0", 0},
              {"+12", 12},
              {"1e15", 1000000000000000},
              {"1200e-2", 12},
              {"0e-400", 0},
              {"3.000", 3},
              {"1.25e2", 125},
              {".5e1", 5}};
  static const char *const bad[] = {"9223372036854775808",
                                    "-9223372036854775809",
                                    "1.5",
                                    "1e16",
                                    "1e300",
                                    "",
                                    "-",
                                    "x",
                                    "99999999999999999999",
                                    "1e-400",
                                    "-1e-330",
                                    "1.00000000000000000001",
                                    "0.99999999999999999999e1",
                                    "10e-2",
                                    "1e-99999999999999999999",
                                    "1.25e1"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    int64_t value = -1;
    if (!hark_number_read_whole(good[i].text, strlen(good[i].text), &value) || value != good[i].value) fail_msg("\"%s\"", good[i].text);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    int64_t value = -1;
    if (hark_number_read_whole(bad[i], strlen(bad[i]), &value)) fail_msg("\"%s\" is read", bad[i]);
  }
}

static void durations_have_units(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double seconds;
  } good[] = {{"90s", 90},    {"10m", 600}, {"1h", 3600}, {"2d", 172800},  {"1h30m", 5400},
              {"0.5h", 1800}, {"45", 45},   {"0", 0},     {"1.5m30s", 120}};
  static const char *const bad[] = {"", "s", "10x", "1h30", "-5s", "10 m", "1h-5m", "1e308d", "m10"};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    double value = -1;
    if (!hark_number_read_duration(good[i].text, strlen(good[i].text), &value) || value != good[i].seconds)
      fail_msg("\"%s\"", good[i].text);
  }
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    double value = -1;
    if (hark_number_read_duration(bad[i], strlen(bad[i]), &value)) fail_msg("\"%s\" is read as %g", bad[i], value);
  }
}

/* Doubles with random bits: all exponents, all mantissas. */
static void printed_numbers_read_back(void) {
  static const double special[] = {0,       -0.0,     1e-5,    0.1,    1.0 / 3,        1e15, 1e16, 123456789012345680.0,
                                   DBL_MAX, -DBL_MAX, DBL_MIN, 5e-324, 1 + DBL_EPSILON};
  const hark_random_stream stream = {.seed = 1, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  const int count = 20000, first = (int)(sizeof special / sizeof special[0]);
  for (int i = 0; i < count; i++) {
    double value, back;
    if (i < first) {
      value = special[i];
    } else {
      uint32_t words[4];
      hark_random_words(&stream, (uint64_t)i, words);
      memcpy(&value, words, sizeof value);
      if (!isfinite(value)) continue;
    }
    char text[HARK_NUMBER_BYTES];
    hark_number_print(value, text);
    if (!hark_number_read(text, strlen(text), &back) || memcmp(&value, &back, sizeof value) != 0)
      fail_msg("%a is printed as %s", value, text);
    if (strchr(text, ',') != NULL) fail_msg("%a is printed as %s", value, text);
  }
}

static void printing_and_reading_agree(void **state) {
  (void)state;
  char text[HARK_NUMBER_BYTES];
  printed_numbers_read_back();
  assert_string_equal(hark_number_print(1e-5, text), "1e-5");
  assert_string_equal(hark_number_print(0.001, text), "0.001");
  assert_string_equal(hark_number_print(512, text), "512");
  assert_string_equal(hark_number_print(1.25e300, text), "1.25e300");
  assert_string_equal(hark_number_print(NAN, text), "nan");
  assert_string_equal(hark_number_print(-INFINITY, text), "-inf");
}

/* Values that serde_json 1.0 gives, among them some that are not the doubles next to the number. */
static void quick_values_are_those_of_serde_json(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double value;
  } cases[] = {
      {"-3.6823990090533596", -0x1.d758d9c95a7eap+1}, /* the next double is ..7e9p+1 */
      {"-7.0148069374754484", -0x1.c0f298cc0d807p+2}, /* ..808p+2 */
      {"-6.204202872320587", -0x1.8d11a8ec976f9p+2},
      {"0.0", 0},
      {"-0.0", -0.0},
      {"1.5e3", 1500},
      {"25e-1", 2.5},
      {"2.5E+1", 25},
      {"18446744073709551615.0", 18446744073709551616.0},
      {"18446744073709551616000.0", 0x1.f4p+73},
      {"123456789012345678901234567890.5", 0x1.8ee90ff6c373ep+96},
      {"0.000000000000000000000000000000123456789012345678905", 0x1.40831c305489bp-103},
      {"1e-320", 1e-320},
      {"0e999999999999", 0},
      {"1e999999999999", HUGE_VAL},
      {"1e-999999999999", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const double value = hark_number_read_quick(cases[i].text, strlen(cases[i].text));
    if (value != cases[i].value || signbit(value) != signbit(cases[i].value))
      fail_msg("%s is %a, expected %a", cases[i].text, value, cases[i].value);
  }
}

static void a_locale_changes_nothing(void **state) {
  char folder[TEST_PATH_BYTES];
  test_folder_make(folder);
  const char *name;
  if (!test_comma_locale(folder, &name)) {
    test_folder_remove(folder);
    print_message("no locale with a decimal comma can be had\n");
    skip();
  }
  char text[HARK_NUMBER_BYTES];
  snprintf(text, sizeof text, "%.1f", 0.5);
  assert_string_not_equal(text, "0.5"); /* the locale is what the test needs */
  printed_numbers_read_back();
  decimal_numbers_are_read(state);
  other_texts_are_refused(state);
  setlocale(LC_ALL, "C");
  test_folder_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(decimal_numbers_are_read),      cmocka_unit_test(other_texts_are_refused),
      cmocka_unit_test(whole_numbers_keep_all_digits), cmocka_unit_test(durations_have_units),
      cmocka_unit_test(printing_and_reading_agree),    cmocka_unit_test(quick_values_are_those_of_serde_json),
      cmocka_unit_test(a_locale_changes_nothing),
  };
  return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}

/* test_json.c - JSON: what is refused and where, the limits that hold before anything is built, and strings that are the same in YAML. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/yaml.h"
#include "io/json_tree.h"
#include "json/json.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "tokenizers/utf8.h"

static hark_context *context;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  return 0;
}

static void documents_are_read(void **state) {
  (void)state;
  static const char *const texts[] = {"{}", " [] ", "[1, -2, 3.5e-7, \"\\u00e9\\ud83d\\ude00\", true, false, null]\n",
                                      "{\"a\": {\"b\": [{}]}}"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    json_t *document;
    assert_fine(context, hark_json_parse(context, "f", texts[i], strlen(texts[i]), &document));
    assert_non_null(document);
    json_decref(document);
  }
}

static void refused_documents_say_where(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"", "f:1:0: not the JSON expected: '[' or '{' expected"},
      {"{", "f:1:1: not the JSON expected: string or '}' expected"},
      {"{\n\"a\": 1,\n}", "f:3:1: not the JSON expected: string or '}' expected"},
      {"{\"a\": 1, \"a\": 2}", "f:1:12: not the JSON expected: duplicate object key"},
      {"{\"a\": 1, \"\\u0061\": 2}", "f:1:17: not the JSON expected: duplicate object key"},
      {"[1] [2]", "f:1:5: not the JSON expected: end of file expected"},
      {"[1]\x01", "f:1:4: not the JSON expected: end of file expected"},
      {"[NaN]", "f:1:4: not the JSON expected: invalid token"},
      {"[1e999]", "f:1:6: not the JSON expected: real number overflow"},
      {"[99999999999999999999]", "f:1:21: not the JSON expected: too big integer"},
      {"[01]", "f:1:2: not the JSON expected: invalid token"},
      {"['a']", "f:1:2: not the JSON expected: invalid token"},
      {"[\"a\nb\"]", "f:1:3: not the JSON expected: unexpected newline"},
      {"[\"\x1b[31m\"]", "f:1:2: not the JSON expected: control character 0x1b"},
      {"[\"\xff\"]", "f:1:2: not the JSON expected: unable to decode byte 0xff"},
      {"[\"\xc0\xaf\"]", "f:1:2: not the JSON expected: unable to decode byte 0xc0"},
      {"[\"\xed\xa0\x80\"]", "f:1:2: not the JSON expected: unable to decode byte 0xed"},
      {"[\"\\ud800\"]", "f:1:9: not the JSON expected: invalid Unicode '\\uD800'"},
      {"[\"\\u0000\"]", "f:1:9: not the JSON expected: \\u0000 is not allowed"},
      {"{\"\\u0000\": 1}", "f:1:9: not the JSON expected: NUL byte in object key"},
      {"\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "f:2:33: nested too deeply"},
      {"\n {\"a\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]]]", "f:2:39: nested too deeply"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    json_t *document;
    const hark_status status = hark_json_parse(context, "f", cases[i].text, strlen(cases[i].text), &document);
    const char *const message = hark_context_message(context);
    if (status != HARK_BAD_FILE || strstr(message, cases[i].message) == NULL) fail_msg("%s\ngives %s", cases[i].text, message);
    assert_null(document);
    for (const char *at = message; *at != 0; at++) assert_true((unsigned char)*at >= 0x20);
  }
}

/* jansson passes over a zero byte after a number or a word. In the name "a" it says where the name begins, hark's own reader where the
 * byte is. */
static void zero_bytes_are_refused_wherever_they_stand(void **state) {
  (void)state;
  static const char good[] = "{\"a\": [1, true ]}";
  for (size_t at = 0; at < sizeof good; at++) { /* the last one after the document */
    char text[sizeof good + 1], message[128];
    json_t *document;
    hark_json_tree tree;
    const bool in_name = at == 2 || at == 3;
    memcpy(text, good, at);
    text[at] = 0;
    memcpy(text + at + 1, good + at, sizeof good - at);
    (void)snprintf(message, sizeof message,
                   in_name ? "f:1:%zu: not the JSON expected: control character 0x0" : "f:1:%zu: a byte that is not allowed",
                   in_name ? at : at + 1);
    assert_failure(context, hark_json_parse(context, "f", text, sizeof good, &document), HARK_BAD_FILE, message);
    (void)snprintf(message, sizeof message, "f: line 1, column %zu: %s", at + 1,
                   in_name ? "control characters" : "a byte that is not allowed");
    assert_failure(context, hark_json_tree_parse(context, "f", text, sizeof good, &tree), HARK_BAD_FILE, message);
  }
}

/* What a text is nested like costs nothing: the scan refuses it before jansson sees it. */
static void limits_hold_before_anything_is_built(void **state) {
  (void)state;
  const size_t bytes = (size_t)1 << 20;
  char *const text = malloc(bytes);
  static const struct {
    const char *piece, *message;
  } cases[] = {{"[],", "too many values"}, {"0,", "too many values"}, {"[", "nested too deeply"}, {"{\"a\":", "nested too deeply"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const size_t length = strlen(cases[i].piece);
    json_t *document;
    text[0] = '[';
    for (size_t at = 1; at < bytes; at++) text[at] = cases[i].piece[(at - 1) % length];
    assert_failure(context, hark_json_parse(context, "f", text, bytes, &document), HARK_BAD_FILE, cases[i].message);
  }
  free(text);

  static const hark_json_limits few = {.depth = 2, .values = 4}, digits = {.depth = 1, .values = 9, .alphabet = "[],0123456789"};
  static const struct {
    const char *text;
    const hark_json_limits *limits;
    hark_json_fit fit;
    size_t at;
  } scans[] = {
      {"[1,[2]]", &few, HARK_JSON_FITS, 0},       {"[1,[2,3]]", &few, HARK_JSON_TOO_MANY, 5}, {"[[[", &few, HARK_JSON_TOO_DEEP, 2},
      {"[\"[[[,,,,\"]", &few, HARK_JSON_FITS, 0}, {"[\"\\\"[[[\"]", &few, HARK_JSON_FITS, 0}, {"[1,2]", &digits, HARK_JSON_FITS, 0},
      {"[1,-2]", &digits, HARK_JSON_ODD_BYTE, 3}, {"[1, 2]", &digits, HARK_JSON_ODD_BYTE, 3}, {"[\"a\"]", &digits, HARK_JSON_ODD_BYTE, 1},
      {"\"\\", &few, HARK_JSON_FITS, 0},
  };
  for (size_t i = 0; i < sizeof scans / sizeof scans[0]; i++) {
    size_t at = 0;
    assert_int_equal(hark_json_scan(scans[i].text, strlen(scans[i].text), scans[i].limits, &at, NULL), scans[i].fit);
    if (scans[i].fit != HARK_JSON_FITS) assert_int_equal(at, scans[i].at);
  }
}

/* Every beginning of a document, and every value of every byte, ends with a status. */
static void damaged_documents_end_with_a_status(void **state) {
  (void)state;
  static const char good[] = "{\"step\": 500, \"loss\": 1.25e-3, \"names\": [\"\\u00e9\", null, true], \"state\": {\"seed\": -1}}";
  char copy[sizeof good];
  json_t *document;
  int refused = 0;
  for (size_t i = 0; i < sizeof good - 1; i++) {
    assert_int_equal(hark_json_parse(context, "f", good, i, &document), HARK_BAD_FILE);
    for (int value = 0; value < 256; value++) {
      memcpy(copy, good, sizeof good);
      copy[i] = (char)value;
      const hark_status status = hark_json_parse(context, "f", copy, sizeof good - 1, &document);
      if (status != HARK_OK && status != HARK_BAD_FILE) fail_msg("byte %zu as %d: %s", i, value, hark_status_name(status));
      refused += status != HARK_OK;
      json_decref(document);
    }
  }
  assert_true(refused > 1000);
}

static hark_status take_text(void *user, const hark_yaml_item *item, bool *skip) {
  hark_text *const out = user;
  *skip = false;
  hark_text_append_bytes(out, item->value, strlen(item->value));
  return out->status;
}

/* config.yaml holds strings as JSON writes them: every character there is comes back from both readers. */
static void a_string_is_the_same_in_json_and_yaml(void **state) {
  (void)state;
  enum { AT_ONCE = 0x8000 };
  for (uint32_t first = 1; first < HARK_CODE_POINTS; first += AT_ONCE) {
    hark_text plain = hark_text_empty(context), written = hark_text_empty(context), back = hark_text_empty(context);
    json_t *document;
    for (uint32_t code = first; code < first + AT_ONCE && code < HARK_CODE_POINTS; code++) {
      char bytes[HARK_UTF8_MAX_BYTES];
      if (code < 0xd800 || code > 0xdfff) hark_text_append_bytes(&plain, bytes, hark_utf8_encode(code, bytes));
    }
    hark_text_append(&written, "{\"a\": ");
    hark_json_append_bytes(&written, hark_text_get(&plain), plain.length);
    hark_text_append(&written, "}");
    assert_fine(context, written.status);
    assert_fine(context, hark_json_parse(context, "json", hark_text_get(&written), written.length, &document));
    assert_string_equal(json_string_value(json_object_get(document, "a")), hark_text_get(&plain));
    assert_fine(context, hark_yaml_walk(context, "yaml", hark_text_get(&written), written.length, take_text, &back));
    if (strcmp(hark_text_get(&plain), hark_text_get(&back)) != 0) fail_msg("changed between U+%04X and U+%04X", first, first + AT_ONCE - 1);
    json_decref(document);
    hark_text_free(&plain);
    hark_text_free(&written);
    hark_text_free(&back);
  }
}

static void bytes_that_are_no_text_are_replaced(void **state) {
  (void)state;
  static const struct {
    const char *bytes, *written;
  } cases[] = {{"a\xff", "\"a\xef\xbf\xbd\""},
               {"\xc3", "\"\xef\xbf\xbd\""},
               {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
               {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},
               {"\"\\\n\t\x01\x7f", "\"\\\"\\\\\\n\\t\\u0001\\u007f\""}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_text text = hark_text_empty(context);
    hark_json_append_string(&text, cases[i].bytes);
    assert_string_equal(hark_text_get(&text), cases[i].written);
    hark_text_free(&text);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(documents_are_read),
      TEST(refused_documents_say_where),
      TEST(zero_bytes_are_refused_wherever_they_stand),
      TEST(limits_hold_before_anything_is_built),
      TEST(damaged_documents_end_with_a_status),
      TEST(a_string_is_the_same_in_json_and_yaml),
      TEST(bytes_that_are_no_text_are_replaced),
  };
  return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}

/* test_json_tree.c - the JSON reader: what it makes of documents, what it refuses and where, and that jansson takes the same documents. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_tree.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"

static void values_are_read(void **state) {
  (void)state;
  static const char text[] =
      " { \"a\" : [ 1 , -2.5e1, \"x\\u0041\\ud83d\\ude00\\n\\u0000y\" , true, null ], \"\" : { } , \"long\": 9223372036854775807,"
      "\"low\": -9223372036854775808 }\r\n\t ";
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  hark_json_tree tree;
  assert_fine(context, hark_json_tree_parse(context, "f", text, sizeof text - 1, &tree));
  assert_int_equal(tree.root->kind, HARK_JSON_OBJECT);
  assert_int_equal(tree.root->count, 4);
  const hark_json_node *a = hark_json_member(tree.root, "a");
  assert_int_equal(a->kind, HARK_JSON_LIST);
  assert_int_equal(a->count, 5);
  const hark_json_node *item = a->first;
  assert_true(item->kind == HARK_JSON_INTEGER && item->integer == 1);
  item = item->next;
  assert_true(item->kind == HARK_JSON_REAL && item->real == -25.0);
  item = item->next;
  assert_int_equal(item->kind, HARK_JSON_TEXT);
  assert_int_equal(item->bytes, 9);
  assert_memory_equal(item->text, "xA\xf0\x9f\x98\x80\n\0y", 10);
  assert_null(hark_json_text(item)); /* it holds a zero byte */
  item = item->next;
  assert_true(item->kind == HARK_JSON_BOOLEAN && item->boolean);
  item = item->next;
  assert_int_equal(item->kind, HARK_JSON_NULL);
  assert_null(item->next);
  assert_int_equal(hark_json_member(tree.root, "")->count, 0);
  assert_true(hark_json_member(tree.root, "long")->integer == INT64_MAX);
  assert_true(hark_json_member(tree.root, "low")->integer == INT64_MIN);
  assert_null(hark_json_member(tree.root, "b"));
  assert_null(hark_json_member(a, "a"));
  assert_null(hark_json_member(NULL, "a"));
  hark_json_tree_free(context, &tree);
  test_memory_context_end(context, &memory);
}

static void faults_have_a_place(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {{"", "f: line 1, column 1: the text ends too early"},
               {"{\n \"a\": 1,\n \"a\": 2}", "line 1, column 1: duplicate"},
               {"[1,\n 2,\n x]", "line 3, column 2: expected a value"},
               {"[1 2]", "line 1, column 4: expected ',' or ']'"},
               {"{\"a\" 1}", "column 6: expected ':'"},
               {"{1: 1}", "column 2: expected a text in quotes"},
               {"[01]", "column 2: expected a value"},
               {"[1.]", "column 4: expected digits after the point"},
               {"[1e+]", "column 5: expected digits in the exponent"},
               {"[9223372036854775808]", "column 2: too big integer"},
               {"[1e999]", "column 2: a number that is too large"},
               {"[\"\\x\"]", "column 3: there is no such escape"},
               {"[\"\\ud800\"]", "column 3: the first half"},
               {"[\"\\udc00\"]", "column 3: the second half"},
               {"[\"\\u12g4\"]", "column 3: expected four"},
               {"[\"\x80\"]", "column 3: not UTF-8"},
               {"[\"\n\"]", "column 3: control characters"},
               {"{\"a\\u0000\": 1}", "column 2: a name with a zero byte"},
               {"1 1", "column 3: expected the end of file"},
               {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "nested too deeply"}};
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_json_tree tree;
    assert_failure(context, hark_json_tree_parse(context, "f", cases[i].text, strlen(cases[i].text), &tree), HARK_BAD_FILE,
                   cases[i].message);
    assert_null(tree.root);
  }
  test_memory_context_end(context, &memory);
}

/* Both readers take a document or both refuse it. jansson is set to accept what hark accepts: any value, zero bytes in texts. */
static void compare(hark_context *context, const char *text, size_t length) {
  hark_json_tree tree;
  hark_json_fault fault = {0};
  json_error_t error;
  const hark_status status = hark_json_tree_read(context, text, length, &fault, &tree);
  json_t *other = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
  if ((status == HARK_OK) != (other != NULL))
    fail_msg("%.*s: hark says %s, jansson says %s", (int)length, text, status == HARK_OK ? "yes" : fault.what,
             other != NULL ? "yes" : error.text);
  if (status != HARK_OK) assert_true(fault.at <= length);
  json_decref(other);
  hark_json_tree_free(context, &tree);
}

/* Every part of a document, and every byte of it changed to each of those that mean something. */
static void jansson_takes_the_same(void **state) {
  (void)state;
  static const char document[] =
      "{\"a\":[1,-2.5e1,0.5E+2,\"x\\u0041\\ud83d\\ude00\\n\\\"\",true,false,null],\"b\":{\"c\":{}},\"\xc3\xa9\":[]}\n";
  static const char bytes[] = "{}[]:,\"\\ud0e.-+tfn 19\x01\x80\xc3\n";
  test_memory memory;
  hark_context *context = test_memory_context(&memory);
  char text[sizeof document];
  for (size_t part = 0; part < sizeof document; part++) compare(context, document, part);
  for (size_t at = 0; at + 1 < sizeof document; at++)
    for (size_t i = 0; i + 1 < sizeof bytes; i++) {
      memcpy(text, document, sizeof document);
      text[at] = bytes[i];
      compare(context, text, sizeof document - 1);
    }
  test_memory_context_end(context, &memory);
}

/* Names are compared in objects of any size, and running out of memory is a status. */
static void many_names(void **state) {
  (void)state;
  enum { NAMES = 1000 };
  static char text[NAMES * 16];
  for (int twice = 0; twice < 2; twice++) {
    size_t length = 0;
    for (int i = 0; i < NAMES; i++)
      length += (size_t)snprintf(text + length, sizeof text - length, "%c\"n%d\":1", i > 0 ? ',' : '{', twice && i == NAMES - 1 ? 7 : i);
    length += (size_t)snprintf(text + length, sizeof text - length, "}");
    hark_status status = HARK_OUT_OF_MEMORY;
    long failures = 0;
    for (long fail_at = 1; status == HARK_OUT_OF_MEMORY; fail_at++) {
      test_memory memory;
      hark_context *context = test_memory_context(&memory);
      hark_json_tree tree;
      memory.fail_at = memory.allocations + fail_at;
      status = hark_json_tree_parse(context, "f", text, length, &tree);
      failures += status == HARK_OUT_OF_MEMORY;
      if (status == HARK_OK) hark_json_tree_free(context, &tree);
      test_memory_context_end(context, &memory);
    }
    assert_int_equal(status, twice ? HARK_BAD_FILE : HARK_OK);
    assert_int_equal(failures, 2);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(values_are_read),
      cmocka_unit_test(faults_have_a_place),
      cmocka_unit_test(jansson_takes_the_same),
      cmocka_unit_test(many_names),
  };
  return cmocka_run_group_tests_name("json_tree", tests, NULL, NULL);
}

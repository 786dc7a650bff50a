/* test_yaml.c - the YAML walk: what items it gives, and every kind of file that it refuses, with the place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/yaml.h"
#include "io/text.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

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

/* Writes items as "line kind key=value;". Skips sections called skip. */
static hark_status note(void *user, const hark_yaml_item *item, bool *skip) {
  static const char kinds[] = {
      [HARK_YAML_SCALAR] = 's', [HARK_YAML_NULL] = 'n', [HARK_YAML_SECTION] = 'm', [HARK_YAML_LIST] = 'l', [HARK_YAML_ITEM] = 'i'};
  hark_text *const text = user;
  hark_text_append(text, "%d%c %s", item->line, kinds[item->kind], item->key);
  if (item->kind == HARK_YAML_ITEM) hark_text_append(text, "[%d]", (int)item->index);
  if (item->kind == HARK_YAML_SCALAR || item->kind == HARK_YAML_ITEM) hark_text_append(text, "=%s", item->value);
  hark_text_append(text, ";");
  *skip = strcmp(item->key, "skip") == 0;
  return text->status;
}

static hark_status walk(const char *text, size_t length, hark_text *out) { return hark_yaml_walk(context, "f", text, length, note, out); }

static void items_come_in_order_with_their_lines(void **state) {
  (void)state;
  static const struct {
    const char *text, *items;
  } cases[] = {
      {"", ""},
      {"# nothing\n", ""},
      {"---\n", ""},
      {"a: 1\nb: x y\n", "1s a=1;2s b=x y;"},
      {"\xef\xbb\xbf"
       "a:\n  b: 1\nc: 2\n",
       "1m a;2s a.b=1;3s c=2;"}, /* a byte order mark */
      {"a:\n  b: 1\n  c:\n    d: 'q'\ne: \"\"\n", "1m a;2s a.b=1;3m a.c;4s a.c.d=q;5s e=;"},
      {"{a: {b: 1}, c: [x, 'y']}", "1m a;1s a.b=1;1l c;1i c[0]=x;1i c[1]=y;"},
      {"a.b: 1\na.c: ~\nd:\ne: null\nf: 'null'", "1s a.b=1;2n a.c;3n d;4n e;5s f=null;"},
      {"a:\n  - 1\n  -\n  - 3\nb: []\nc: {}\n", "1l a;2i a[0]=1;3i a[1]=;4i a[2]=3;5l b;6m c;"},
      {"skip:\n  x: {y: [1, {z: 2}]}\nb: 1\n", "1m skip;3s b=1;"},
      {"a: |\n  two\n  lines\n", "1s a=two\nlines\n;"},
      {"a: \"\\u00e9\"", "1s a=\xc3\xa9;"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_text out = hark_text_empty(context);
    assert_fine(context, walk(cases[i].text, strlen(cases[i].text), &out));
    if (strcmp(hark_text_get(&out), cases[i].items) != 0) fail_msg("%s\ngives %s", cases[i].text, hark_text_get(&out));
    hark_text_free(&out);
  }
}

static void refused_files_say_where(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } cases[] = {
      {"a: &x 1\n", "f:1:4: anchors"},
      {"a: &x {b: 1}\n", "f:1:4: anchors"},
      {"a: *x\n", "f:1:4: aliases"},
      {"skip: [1, *x]\n", "f:1:11: aliases"},
      {"a: !!int 1\n", "f:1:4: tags"},
      {"a: !x [1]\n", "f:1:4: tags"},
      {"a:\n  <<: {b: 1}\n", "f:2:3: merge"},
      {"a: 1\nb: 2\na: 3\n", "f:3:1: a: key given twice"},
      {"a: {b: 1}\na.b: 2\n", "f:2:1: a.b: key given twice"},
      {"a: {b: 1}\na: {c: 1}\n", "f:2:1: a: key given twice"},
      {"a: 1\n---\nb: 1\n", "f:2:1: expected one document"},
      {"- a\n", "f:1:1: expected sections"},
      {"text\n", "f:1:1: expected sections"},
      {"a: [b, [c]]\n", "f:1:8: a list or section inside a list"},
      {"a: [{b: 1}]\n", "f:1:5: a list or section inside a list"},
      {"? [a]\n: 1\n", "f:1:3: expected a key"},
      {"a b: 1\n", "f:1:1: expected a key of letters"},
      {"'': 1\n", "f:1:1: expected a key of letters"},
      {"a: \"x\\0y\"\n", "f:1:4: a value with a zero byte"},
      {"a: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}", "nested too deeply"},
      {"skip: {b: {c: {d: {e: {f: {g: {h: {i: 1}}}}}}}}", "nested too deeply"},
      {"a: [1\n", "f:2:1: not well-formed"},
      {"a: 1\n b: 2\n", "not well-formed"},
      {"a: \xff\n", "f: byte 3: "},
      {"a: \xc0\xaf\n", "f: byte 3: "},
      {"\tb: 1\n", "not well-formed"},
      {"%YAML 3.0\n---\na: 1\n", "f:1:1: not well-formed"},
      {"a: 1\n\tb: 2\n", "not well-formed"},
      {"a:\n\t- 1\n", "not well-formed"},
      {"a: \xed\xa0\x80\n", "f: byte 3: "},
      {"a: \xf4\x90\x80\x80\n", "f: byte 3: "},
      {"a: \xe2\x82\n", "f: byte 5: "},
      {"a: \x01\n", "f: byte 3: "},
      {"a: \x1b[31m\n", "f: byte 3: "},
      {"a: \xc2\x80\n", "f: byte 3: "},
      {"a: \"\\ud800\"\n", "not well-formed"},
      {"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "f:1:4: anchors"},
      {"skip: {a: &a [x, x], b: &b [*a, *a]}\n", "f:1:29: aliases"},
      {"a: [*a]\n", "f:1:5: aliases"},
      {"*a : 1\n", "f:1:1: aliases"},
      {"&a a: 1\n", "f:1:1: anchors"},
      {"!!str a: 1\n", "f:1:1: tags"},
      {"\"a\": 1\n'a': 2\n", "f:2:1: a: key given twice"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hark_text out = hark_text_empty(context);
    const hark_status status = walk(cases[i].text, strlen(cases[i].text), &out);
    if (status != HARK_BAD_CONFIGURATION || strstr(hark_context_message(context), cases[i].message) == NULL) {
      fail_msg("%s\ngives %s: %s", cases[i].text, hark_status_name(status), hark_context_message(context));
    }
    hark_text_free(&out);
  }
}

/* Text of `count` pieces, made by printf of the piece's number. */
static void refuse_many(const char *before, const char *format, int count, const char *after, const char *message) {
  hark_text text = hark_text_empty(context), out = hark_text_empty(context);
  hark_text_append(&text, "%s", before);
  for (int i = 0; i < count; i++) {
    char piece[64];
    snprintf(piece, sizeof piece, "%d", i);
    for (const char *at = format; *at != 0; at++) hark_text_append(&text, *at == '#' ? "%s" : "%.1s", *at == '#' ? piece : at);
  }
  hark_text_append(&text, "%s", after);
  assert_failure(context, walk(hark_text_get(&text), text.length, &out), HARK_BAD_CONFIGURATION, message);
  hark_text_free(&text);
  hark_text_free(&out);
}

static void limits_hold(void **state) {
  (void)state;
  refuse_many("", "k#: 1\n", HARK_YAML_KEYS + 1, "", "too many keys");
  refuse_many("a:\n", "- #\n", HARK_YAML_ITEMS + 1, "", "too many items");
  refuse_many("a: ", "xxxxxxxxxxxxxxxx", (int)(HARK_YAML_BYTES / 16), "\n", "larger than");
  refuse_many("a: ", "[", 5000, "", "inside a list");
  refuse_many("", "k", 300, ": 1", "key too long");
  refuse_many("a: ", "{a: ", 5000, "", "nested too deeply");
  refuse_many("skip: ", "[", 5000, "", "nested too deeply");
  refuse_many("a", ".a", 128, ": 1", "key too long");
}

/* Zero bytes and scalars as large as a file may be. */
static void zero_bytes_and_huge_scalars(void **state) {
  (void)state;
  static const char zero[] = "a: x\0y\nb: 1\n";
  hark_text out = hark_text_empty(context);
  assert_failure(context, walk(zero, sizeof zero - 1, &out), HARK_BAD_CONFIGURATION, "f: byte 4: ");
  hark_text_free(&out);
  static const char *const quotes[] = {"", "'", "\""};
  for (size_t i = 0; i < sizeof quotes / sizeof quotes[0]; i++) {
    hark_text text = hark_text_empty(context);
    hark_text_append(&text, "a: %s", quotes[i]);
    while (text.length < HARK_YAML_BYTES - 1) hark_text_append_bytes(&text, "x", 1);
    hark_text_append(&text, "%s", quotes[i]);
    assert_fine(context, walk(hark_text_get(&text), text.length, &out));
    assert_int_equal(out.length, text.length - 2 * strlen(quotes[i]) + strlen("1s a=;") - strlen("a: "));
    hark_text_free(&out);
    hark_text_append_bytes(&text, "\n\n", 2);
    assert_failure(context, walk(hark_text_get(&text), text.length, &out), HARK_BAD_CONFIGURATION, "f: larger than");
    hark_text_free(&text);
  }
}

/* Every beginning of a file, and every one-byte change of it, ends with a status. */
static void damaged_files_end_with_a_status(void **state) {
  (void)state;
  static const char good[] = "model:\n  a: [1, 'two', \"th\\u0072ee\"]\n  b: {c: d}\ntrain: # note\n  e: |\n    f\n";
  char copy[sizeof good];
  int refused = 0;
  for (size_t i = 0; i < sizeof good - 1; i++) {
    hark_text out = hark_text_empty(context);
    if (walk(good, i, &out) != HARK_OK) refused++;
    hark_text_free(&out);
    for (int value = 0; value < 256; value++) {
      memcpy(copy, good, sizeof good);
      copy[i] = (char)value;
      out = hark_text_empty(context);
      const hark_status status = walk(copy, sizeof good - 1, &out);
      if (status != HARK_OK && status != HARK_BAD_CONFIGURATION) fail_msg("byte %zu as %d: %s", i, value, hark_status_name(status));
      if (status != HARK_OK) refused++;
      hark_text_free(&out);
    }
  }
  assert_true(refused > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(items_come_in_order_with_their_lines, begin, end),
      cmocka_unit_test_setup_teardown(refused_files_say_where, begin, end),
      cmocka_unit_test_setup_teardown(limits_hold, begin, end),
      cmocka_unit_test_setup_teardown(zero_bytes_and_huge_scalars, begin, end),
      cmocka_unit_test_setup_teardown(damaged_files_end_with_a_status, begin, end),
  };
  return cmocka_run_group_tests_name("yaml", tests, NULL, NULL);
}

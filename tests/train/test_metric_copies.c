/* test_metric_copies.c - hark train --tensorboard --csv: event files and metrics.csv have what metrics.jsonl has, also after a run was
 * stopped, killed or continued, and there is one event file. */
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/event_file.h"
#include "json/jsonl.h"
#include "json/jsonl_csv.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/event_reader.h"
#include "support/setups.h"
#include "train/run.h"

static void expect(const char *words, int code) { command_expect(folder, words, code, "", "", &output); }

/* The only event file of folder/run. */
static void find_events(const char *run, char path[2 * TEST_PATH_BYTES]) {
  char pattern[2 * TEST_PATH_BYTES];
  glob_t found;
  (void)snprintf(pattern, sizeof pattern, "%s/%s/" HARK_EVENT_PREFIX "*", folder, run);
  assert_int_equal(glob(pattern, 0, NULL, &found), 0);
  assert_int_equal(found.gl_pathc, 1);
  (void)snprintf(path, 2 * TEST_PATH_BYTES, "%s", found.gl_pathv[0]);
  globfree(&found);
}

/* Events that are compared with lines, in their order. */
typedef struct comparison {
  test_events events;
  int next;
  int64_t lines;
  double seconds; /* of the time since 1970 minus that of training; 0: not known yet */
} comparison;

static hark_status compare(void *user, const json_t *object, int64_t line) {
  comparison *const c = user;
  const char *name;
  json_t *value;
  const double time = json_number_value(json_object_get(object, "time"));
  json_object_foreach((json_t *)object, name, value) {
    if (!json_is_number(value) || strcmp(name, "step") == 0 || strcmp(name, "time") == 0) continue;
    const bool progress = strcmp(name, "tokens") == 0 || strcmp(name, "operations") == 0;
    if (progress && json_object_get(object, "train/loss") == NULL) continue;
    assert_true(c->next < c->events.count);
    const test_scalar *const scalar = &c->events.scalars[c->next++];
    assert_string_equal(scalar->tag, name);
    assert_true(scalar->value == (float)json_number_value(value));
    assert_int_equal(scalar->step, json_integer_value(json_object_get(object, "step")));
    if (c->seconds == 0) c->seconds = scalar->seconds - time;
    assert_true(fabs(scalar->seconds - time - c->seconds) < 1e-5);
  }
  c->lines = line;
  return HARK_OK;
}

/* The event file of folder/run has the numbers of its metrics.jsonl and no others. */
static void expect_same(const char *run, int64_t lines) {
  char events[2 * TEST_PATH_BYTES], metrics[2 * TEST_PATH_BYTES];
  hark_context *const context = test_reference_open();
  comparison c = {.next = 0};
  find_events(run, events);
  (void)snprintf(metrics, sizeof metrics, "%s/%s/metrics.jsonl", folder, run);
  test_events_read(events, &c.events);
  assert_fine(context, hark_jsonl_read(context, metrics, compare, &c));
  assert_int_equal(c.next, c.events.count);
  assert_true(c.lines >= lines && c.seconds > 1e9);
  assert_int_equal(c.events.starts, 1);
  for (int i = 0; i < c.events.count; i++) /* no number of a step is there twice */
    for (int j = 0; j < i; j++)
      if (c.events.scalars[i].step == c.events.scalars[j].step) assert_string_not_equal(c.events.scalars[i].tag, c.events.scalars[j].tag);
  test_events_free(&c.events);
  test_setup_close(context);
}

static void events_are_the_lines(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 6 --evaluate-every 3 --checkpoint-every 4 --tensorboard " COMMAND_TINY, 0);
  expect_same("run", 9);
  expect("train --out run --resume --steps 9", 0);
  expect_same("run", 12);
  expect("verify run", 0);
  expect("train --data text.txt --out plain --steps 2 " COMMAND_TINY, 0);
  assert_int_equal(access(test_path(folder, "plain/metrics.csv"), F_OK), -1);
  expect("train --out plain --resume --steps 4 --tensorboard", 0); /* also what was before */
  expect_same("plain", 4);
}

/* As after a killed process: lines and events after the checkpoint, and an incomplete record. */
static void a_killed_run_has_no_step_twice(void **state) {
  (void)state;
  char events[2 * TEST_PATH_BYTES];
  expect("train --data text.txt --out run --steps 4 --tensorboard --csv " COMMAND_TINY, 0);
  find_events("run", events);
  hark_context *const context = test_reference_open();
  hark_jsonl metrics = {0};
  assert_fine(context, hark_jsonl_open(context, &metrics, test_path(folder, "run/metrics.jsonl")));
  hark_jsonl_begin(&metrics);
  hark_jsonl_integer(&metrics, "step", 5);
  hark_jsonl_number(&metrics, "train/loss", 7.25e77);
  assert_fine(context, hark_jsonl_end(context, &metrics));
  assert_fine(context, hark_jsonl_close(context, &metrics));
  test_setup_close(context);
  FILE *const file = fopen(events, "a");
  assert_non_null(file);
  assert_true(fputs("\x18", file) >= 0 && fclose(file) == 0);
  expect("train --out run --resume --steps 6", 0);
  expect_same("run", 7);
  char *const table = test_file_text(folder, "run/metrics.csv");
  assert_null(strstr(table, "e+77"));
  free(table);
}

/* What a run leaves that has not begun is removed with it. */
static void an_abandoned_run_leaves_nothing(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  hark_event_file events = {0};
  hark_run run;
  assert_fine(context, hark_run_open(context, test_path(folder, "run"), false, &run));
  assert_fine(context, hark_event_file_create(context, &events, run.path));
  assert_fine(context, hark_event_file_close(context, &events));
  (void)test_file_write_text(folder, "run/metrics.csv", "step\n");
  hark_run_abandon(context, &run);
  hark_run_close(&run);
  assert_int_equal(access(test_path(folder, "run"), F_OK), -1);
  test_setup_close(context);
}

/* ---- the table ---- */

static void tables_have_a_column_for_each_name(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  const char *const from = test_file_write_text(
      folder, "lines.jsonl",
      "{\"step\": 1, \"loss\": 0.1, \"a,\\\"b\\\"\": null}\n{\"step\": 9007199254740993, \"text\": \"x\\ny\", \"skipped\": true}\n{\"st");
  char *to = strdup(test_path(folder, "table.csv"));
  assert_fine(context, hark_jsonl_write_csv(context, from, to));
  char *const text = test_file_text(folder, "table.csv");
  assert_string_equal(text, "step,loss,\"a,\"\"b\"\"\",text,skipped\r\n1,0.1,,,\r\n9007199254740993,,,\"x\ny\",true\r\n");
  free(text);
  assert_int_equal(hark_jsonl_write_csv(context, test_path(folder, "missing"), to), HARK_NOT_FOUND);
  (void)test_file_write_text(folder, "bad.jsonl", "{\"step\": 1}\nnothing\n");
  assert_failure(context, hark_jsonl_write_csv(context, test_path(folder, "bad.jsonl"), to), HARK_BAD_FILE, "bad.jsonl:2");
  free(to);
  test_setup_close(context);
}

static int count_lines(const char *name) {
  char *const text = test_file_text(folder, name);
  const int lines = test_line_count(text);
  free(text);
  return lines;
}

static void a_run_has_its_table(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 3 --evaluate-every 2 --csv " COMMAND_TINY, 0);
  char *const text = test_file_text(folder, "run/metrics.csv");
  assert_int_equal(strncmp(text, "step,tokens,val/entropy,", 24), 0);
  assert_non_null(strstr(text, ",train/loss,"));
  free(text);
  assert_int_equal(count_lines("run/metrics.csv"), count_lines("run/metrics.jsonl") + 1);
  expect("train --out run --resume --steps 5", 0);
  assert_int_equal(count_lines("run/metrics.csv"), count_lines("run/metrics.jsonl") + 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(events_are_the_lines),
      TEST(a_killed_run_has_no_step_twice),
      TEST(an_abandoned_run_leaves_nothing),
      TEST(tables_have_a_column_for_each_name),
      TEST(a_run_has_its_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_sweep.c - hark sweep: plans, statistics, and sweeps that are interrupted, go on, fail in part or are called with another plan. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/sweep/sweep_table.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/command_place.h"
#include "support/train/sweep_place.h"

#define BASE                                                                                                                               \
  "model: {layers: 1, heads: 1, width: 8, context: 8}\n"                                                                                   \
  "train: {steps: 4, batch: 2, evaluate_every: 2, log_every: 2}\n"                                                                         \
  "data: {paths: [text.txt], validation_fraction: 0.2}\n"                                                                                  \
  "run: {threads: 1}\n"
#define PLAN                                                                                                                               \
  "config: base.yaml\nout: out\nseeds: [3, 5]\n"                                                                                           \
  "settings: {train.warmup: 1}\n"                                                                                                          \
  "variants: {plain: {model.positions: none}, kernel: {model.positions: none, model.positional: decay}}\n"                                 \
  "grid: {train.learning_rate: [1e-4, 1e-2]}\n"
#define CELLS 4

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  command_place_open(folder);
  test_file_write_text(folder, "base.yaml", BASE);
  test_file_write_text(folder, "plan.yaml", PLAN);
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* The object that "hark sweep WORDS --json" prints. */
static json_t *swept(const char *words) {
  char line[512];
  (void)snprintf(line, sizeof line, "sweep %s --json", words);
  command_expect(folder, line, 0, "", "", &output);
  return command_json(&output);
}

static const json_t *cell_at(const json_t *object, size_t index) { return json_array_get(json_object_get(object, "cells"), index); }

/* What the table says is what the runs' own metrics say. */
static void the_table_holds_what_the_runs_reached(void **state) {
  (void)state;
  json_t *object = swept("plan.yaml");
  static const char *const names[] = {"plain learning_rate=1e-4", "plain learning_rate=1e-2", "kernel learning_rate=1e-4",
                                      "kernel learning_rate=1e-2"};
  assert_int_equal(json_array_size(json_object_get(object, "cells")), CELLS);
  for (size_t c = 0; c < CELLS; c++) {
    const json_t *cell = cell_at(object, c);
    double reached[2], sum = 0, costs[2] = {0, 0};
    static const char *const beside[2] = {"operations", "time"};
    assert_string_equal(json_string_value(json_object_get(cell, "name")), names[c]);
    for (int seed = 0; seed < 2; seed++) {
      char path[TEST_PATH_BYTES + 160], name[128];
      json_error_t error;
      (void)snprintf(name, sizeof name, "%s-seed=%d", names[c], seed == 0 ? 3 : 5);
      *strchr(name, ' ') = '-';
      (void)snprintf(path, sizeof path, "%s/out/%s", folder, name);
      char *lines = test_file_text(path, "metrics.jsonl");
      double last[2] = {NAN, NAN};
      reached[seed] = INFINITY;
      for (char *line = strtok(lines, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *of = json_loads(line, 0, &error);
        const json_t *loss = json_object_get(of, "val/loss");
        if (json_is_number(loss)) reached[seed] = fmin(reached[seed], json_number_value(loss));
        for (int i = 0; i < 2; i++) {
          const json_t *cost = json_object_get(of, beside[i]);
          if (json_is_number(cost)) last[i] = json_number_value(cost);
        }
        json_decref(of);
      }
      free(lines);
      sum += reached[seed];
      for (int i = 0; i < 2; i++) costs[i] += last[i] / 2;
      assert_true(json_number_value(json_array_get(json_object_get(cell, "values"), (size_t)seed)) == reached[seed]);
    }
    assert_int_equal(json_integer_value(json_object_get(cell, "n")), 2);
    assert_true(fabs(json_number_value(json_object_get(cell, "mean")) - sum / 2) < 1e-12);
    for (int i = 0; i < 2; i++) {
      const double shown = json_number_value(json_object_get(json_object_get(cell, "beside"), beside[i]));
      assert_true(costs[i] > 0 && fabs(shown - costs[i]) <= 1e-12 * costs[i]);
    }
    const double deviation = fabs(reached[0] - reached[1]) / sqrt(2);
    assert_true(fabs(json_number_value(json_object_get(cell, "deviation")) - deviation) < 1e-9);
  }
  json_decref(object);
}

/* Seeds make different runs, a setting reaches every run, a variant its own. */
static void runs_have_their_settings(void **state) {
  (void)state;
  json_decref(swept("plan.yaml"));
  char *one = test_file_text(folder, "out/kernel-learning_rate=1e-4-seed=3.yaml");
  char *other = test_file_text(folder, "out/plain-learning_rate=1e-2-seed=5.yaml");
  assert_non_null(strstr(one, "warmup: 1"));
  assert_non_null(strstr(one, "positional: decay"));
  assert_non_null(strstr(one, "seed: 3"));
  assert_non_null(strstr(one, "learning_rate: 0.0001"));
  assert_non_null(strstr(other, "warmup: 1"));
  assert_non_null(strstr(other, "positional: "));
  assert_non_null(strstr(other, "seed: 5"));
  free(one);
  free(other);
}

/* What is whole is not trained again; what was begun goes on. */
static void a_sweep_goes_on(void **state) {
  (void)state;
  json_t *before = swept("plan.yaml --beside operations"); /* what is made again takes another time */
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "", "", &output);
  assert_null(strstr(output.err, "run 1 of"));
  /* as if it had been killed after the third run, in the middle of a line */
  char *lines = test_file_text(folder, "out/results.jsonl"), *at = lines;
  for (int i = 0; i < 3; i++) at = strchr(at, '\n') + 1;
  at[9] = '\0';
  test_file_write_text(folder, "out/results.jsonl", lines);
  free(lines);
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "", "run 4 of 8", &output);
  assert_null(strstr(output.err, "run 3 of"));
  json_t *after = swept("plan.yaml --table --beside operations");
  assert_true(json_equal(before, after));
  json_decref(before);
  json_decref(after);
}

/* ---- sweeps that are ended ---- */

#define FIRST_RUN "out/plain-learning_rate=1e-4-seed=3"

/* A sweep at work, whose first run would take long. */
static pid_t begin_long_sweep(void) {
  sweep_place_base(folder, SWEEP_LONG_STEPS);
  return sweep_place_begin(folder, "plan.yaml");
}

static void wait_for_run(void) { sweep_place_wait_for(folder, FIRST_RUN "/config.yaml"); }
static int last_step(void) { return sweep_place_last_step(folder, FIRST_RUN); }

/* A signal ends the run at work as hark train ends, and then the sweep; the next call finishes it, with the same results. */
static void an_interrupt_saves_and_stops(void **state) {
  (void)state;
  const pid_t process = begin_long_sweep();
  wait_for_run();
  assert_int_equal(kill(process, SIGTERM), 0);
  sweep_place_expect_end(process, 128 + SIGTERM);
  char *results = test_file_text(folder, "out/results.jsonl");
  assert_string_equal(results, "");
  free(results);
  assert_in_range(last_step(), 1, SWEEP_LONG_STEPS - 1);
}

/* What no process can catch: the run saves and ends all the same, and the next sweep goes on with it. */
static void a_killed_sweep_ends_its_run(void **state) {
  (void)state;
#ifndef __linux__
  skip();
#endif
  pid_t process = begin_long_sweep();
  int status;
  wait_for_run();
  assert_int_equal(kill(process, SIGKILL), 0);
  assert_int_equal(waitpid(process, &status, 0), process);
  assert_true(WIFSIGNALED(status));
  sweep_place_wait_for_lock(folder, FIRST_RUN);
  const int step = last_step();
  assert_in_range(step, 1, SWEEP_LONG_STEPS - 1);
  char said[64];
  (void)snprintf(said, sizeof said, "continuing from step-%d\n", step);
  process = begin_long_sweep();
  sweep_place_wait_for_words(folder, said);
  assert_int_equal(kill(process, SIGTERM), 0);
  sweep_place_expect_end(process, 128 + SIGTERM);
  assert_true(last_step() >= step);
}

/* A run that was requested to stop, and then loses its sweep, gets a second request from the system: it saves nevertheless. */
static void a_sweep_that_is_killed_after_an_interrupt_saves(void **state) {
  (void)state;
#ifndef __linux__
  skip();
#endif
  const pid_t process = begin_long_sweep();
  int status;
  wait_for_run();
  const pid_t run = sweep_place_holder(folder, FIRST_RUN);
  assert_int_equal(kill(run, SIGSTOP), 0); /* all signals reach it at the same time, when it goes on */
  assert_int_equal(kill(process, SIGINT), 0);
  for (int i = 0; i < 20; i++) sweep_place_pause(); /* the sweep hands it on */
  assert_int_equal(kill(process, SIGKILL), 0);
  assert_int_equal(waitpid(process, &status, 0), process);
  (void)kill(run, SIGCONT); /* the system has sent it already, and the run may be gone */
  sweep_place_wait_for_lock(folder, FIRST_RUN);
  assert_in_range(last_step(), 1, SWEEP_LONG_STEPS - 1);
}

static void another_plan_is_refused(void **state) {
  (void)state;
  json_decref(swept("plan.yaml"));
  test_file_write_text(folder, "base.yaml", BASE "model.dropout: 0.1\n");
  command_expect(folder, "sweep plan.yaml", 2, "", "was started with model.dropout '0', and the plan has '0.1'", &output);
  command_expect(folder, "sweep plan.yaml --table", 2, "", "", &output);
}

/* What a run was begun with is compared by value: an option that was not known then has its default, and how the file is written means
 * nothing. */
static void a_sweep_of_an_earlier_hark_goes_on(void **state) {
  (void)state;
  json_decref(swept("plan.yaml"));
  const char *const path = "out/plain-learning_rate=1e-4-seed=5.yaml";
  char *text = test_file_text(folder, path), *line = strstr(text, "  dropout:"), *end = strchr(line, '\n');
  assert_non_null(end);
  memmove(line, end + 1, strlen(end + 1) + 1); /* as if it had not existed */
  test_file_write_text(folder, path, text);
  command_expect(folder, "sweep plan.yaml --table", 0, "", "", &output);
  json_decref(swept("plan.yaml"));
  free(text);
}

static void a_run_whose_configuration_is_damaged_is_refused(void **state) {
  (void)state;
  json_decref(swept("plan.yaml"));
  test_file_write_text(folder, "out/plain-learning_rate=1e-4-seed=5.yaml", "model.layers: many\n");
  command_expect(folder, "sweep plan.yaml", 2, "", "many", &output);
  test_file_write_text(folder, "out/plain-learning_rate=1e-4-seed=5.yaml", "");
  command_expect(folder, "sweep plan.yaml", 2, "", "is empty", &output);
}

/* What was deleted, as the refusal asks for, is made again. */
static void a_deleted_run_is_made_again(void **state) {
  (void)state;
  json_t *before = swept("plan.yaml --beside operations"); /* what is made again takes another time */
  char command[2 * TEST_PATH_BYTES];
  (void)snprintf(command, sizeof command, "rm -r '%s'", test_path(folder, "out/plain-learning_rate=1e-4-seed=5"));
  assert_int_equal(system(command), 0);
  (void)snprintf(command, sizeof command, "rm '%s'", test_path(folder, "out/kernel-learning_rate=1e-4-seed=3.yaml"));
  assert_int_equal(system(command), 0);
  command_expect(folder, "sweep plan.yaml", 2, "", "is missing, but its run exists", &output);
  (void)snprintf(command, sizeof command, "rm -r '%s'", test_path(folder, "out/kernel-learning_rate=1e-4-seed=3"));
  assert_int_equal(system(command), 0);
  json_t *after = swept("plan.yaml --beside operations");
  assert_true(json_equal(before, after));
  json_decref(before);
  json_decref(after);
}

/* A variant's list stands in the place of the one for all. */
static void lists_are_replaced(void **state) {
  (void)state;
  test_file_write_text(folder, "other.txt",
                       "xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz xyz");
  test_file_write_text(folder, "base.yaml",
                       "model: {layers: 1, heads: 1, width: 8, context: 8}\ntrain: {steps: 2, batch: 2}\nrun: {threads: 1}\n");
  test_file_write_text(folder, "plan.yaml",
                       "config: base.yaml\nout: out\nsettings: {data.paths: text.txt}\nvariants: {b: {data.paths: other.txt}}\n");
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "", "", &output);
  char *text = test_file_text(folder, "out/b-seed=1.yaml");
  assert_non_null(strstr(text, "other.txt"));
  assert_null(strstr(text, "text.txt"));
  free(text);
}

/* As long as the expressions that hark kernels search finds; only the name of a run has no room for all of it. */
static void values_are_as_long_as_their_options_allow(void **state) {
  (void)state;
  enum { TERMS = 60 };
  char expression[TERMS * 48], plan[sizeof expression + 256];
  size_t used = 0;
  for (int i = 0; i < TERMS; i++)
    used += (size_t)snprintf(expression + used, sizeof expression - used, "%sdecay(sigma2=1.0000000,l=%d.0000)", i > 0 ? "+" : "", i + 1);
  assert_true(used > 1900);
  (void)snprintf(plan, sizeof plan,
                 "config: base.yaml\nout: out\nsettings: {train.steps: 1}\nvariants: {long: {model.positional: \"%s\"}}\n", expression);
  test_file_write_text(folder, "plan.yaml", plan);
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "| long | 1 | ", "", &output);
  char *text = test_file_text(folder, "out/long-seed=1.yaml");
  assert_non_null(strstr(text, expression));
  free(text);
  (void)snprintf(plan, sizeof plan, "config: base.yaml\nout: grid\ngrid: {model.positional: [decay, \"%s\"]}\n", expression);
  test_file_write_text(folder, "plan.yaml", plan);
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "positional=decay(sigma2=1.0000000,l=1.0000)+", "", &output);
}

/* The runs that can be made are made. */
static void a_run_that_fails_leaves_the_others(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: out\nvariants: {good: {}, bad: {train.init_from: text.txt}}\n");
  command_expect(folder, "sweep plan.yaml", 1, "| good | 1 | ", "1 of 2 runs failed", &output);
  assert_non_null(strstr(output.out, "| bad | 0 | - | - |"));
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: gone\nsettings: {data.paths: gone.txt}\nvariants: {a: {}, b: {}}\n");
  command_expect(folder, "sweep plan.yaml --no-picture", 3, "| a | 0 | ", "2 of 2 runs failed", &output);
  test_file_write_text(folder, "fine.yaml", "config: base.yaml\nout: fine\nvariants: {a: {}}\n");
  command_expect(folder, "sweep fine.yaml plan.yaml --no-picture", 1, "| a | ", "plan: 2 of 2 runs failed", &output);
}

/* All are checked before the first begins; a table each, and one of all with a column for each. */
static void several_plans_make_one_table(void **state) {
  (void)state;
  test_file_write_text(folder, "one.yaml",
                       "config: base.yaml\nout: out-one\nseeds: [1, 2]\nvariants: {a: {}, b: {train.learning_rate: 2e-3}}\n");
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: out-two\nvariants: {b: {}, c: {model.layers: 0}}\n");
  command_expect(folder, "sweep one.yaml two.yaml", 2, "", "c-seed=1: ", &output);
  assert_int_equal(access(test_path(folder, "out-one"), F_OK), -1);
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: out-one\nvariants: {b: {}}\n");
  command_expect(folder, "sweep one.yaml two.yaml", 2, "", "two.yaml: 'out' is out-one, the folder of one.yaml", &output);
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: out-two\nvariants: {b: {}, c: {train.learning_rate: 3e-3}}\n");
  command_expect(folder, "sweep one.yaml two.yaml --no-picture", 0, "## one\n\n| val/loss | n |", "", &output);
  assert_non_null(strstr(output.out, "\n## two\n\n| val/loss | n |"));
  const char *const together = strstr(output.out, "\n## together\n\n| val/loss | one | two |\n|---|---|---|\n| a | ");
  assert_non_null(together);
  assert_non_null(strstr(together, " \u00b1 "));
  assert_non_null(strstr(together, " | - |\n| b | ")); /* the second has no a */
  assert_non_null(strstr(together, "\n| c | - | "));
  command_expect(folder, "sweep one.yaml two.yaml --table --json", 0, "", "", &output);
  assert_int_equal(test_line_count(output.out), 2);
  assert_non_null(strstr(output.out, "{\"plan\": \"two\", \"metric\": "));
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: ./out-one/\nvariants: {b: {}}\n");
  command_expect(folder, "sweep one.yaml two.yaml", 2, "", "two.yaml: 'out' is ./out-one/, the folder of one.yaml", &output);
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: out-two\nvariants: {b: {}, c: {train.learning_rate: 3e-3}}\n");
  command_expect(folder, "sweep one.yaml two.yaml --list", 0, "## two\n\nb-seed=1  done\n", "", &output);
}

static void wrong_plans_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *plan, *expected;
  } plans[] = {
      {"seeds: [1]\n", "'out' is missing"},
      {"out: o\nseed: [1]\n", "plan.yaml:2: seed is not understood here"},
      {"out: o\nseeds: [1, -2]\n", "plan.yaml:2: expected a list of seeds"},
      {"out: o\nseeds: [1, 1]\n", "plan.yaml:2: seeds: 1 is given twice"},
      {"out: o\nseeds: 3\n", "plan.yaml:2: expected a list of seeds"},
      {"out: o\nseeds: []\n", "plan.yaml:2: seeds: no seed is given, expected at least one"},
      {"out: o\ngrid: {train.batch: 3}\n", "plan.yaml:2: expected a list of values"},
      {"out: o\ngrid: {train.batch: []}\n", "plan.yaml:2: an axis without values"},
      {"out: o\nvariants: {a: 3}\n", "plan.yaml:2: expected settings of a variant"},
      {"out: o\nconfig: missing.yaml\n", "missing.yaml"},
      {"out: o\nconfig: base.yaml\nsettings: {model.layrs: 2}\n", "did you mean"},
      {"out: o\nconfig: base.yaml\ngrid: {model.heads: [1, 3]}\n", "heads=3-seed=1"},
      {"out: o\nseeds: [18446744073709551616]\n", "plan.yaml:2: expected a list of seeds, whole numbers in [0, 92"},
      {"out: o\nconfig: base.yaml\ngrid: {train.batch: [2, 2]}\n", "plan.yaml:3: grid.train.batch: 2 is given twice"},
      {"out: o\ngrid: {train.learning_rate: [1e-3, 2e-3, 0.001]}\n",
       "plan.yaml:2: grid.train.learning_rate: 1e-3 and 0.001 are the same value"},
      {"out: o\ngrid: {train.max_time: [60s, 1m]}\n", "grid.train.max_time: 60s and 1m are the same value"},
      {"out: o\nconfig: base.yaml\nvariants:\n  a: {}\n  a: {train.batch: 3}\n", "plan.yaml:5:3: variants.a: key given twice"},
      {"out: o\nconfig: base.yaml\ngrid: {train.init_from: [x y, x_y]}\n", "two runs would have the name"},
      {"out: o\nsettings: {run.resume: true}\n", "plan.yaml:2: run.resume: a sweep that is called again"},
      {"out: o\nsettings: {train.seed: 4}\n", "plan.yaml:2: train.seed: every run of a sweep has its own, expected 'seeds: [...]'"},
      {"out: o\nvariants: {a: {run.directory: x}}\n", "plan.yaml:2: run.directory: every run of a sweep"},
      {"out: o\nconfig: base.yaml\ngrid: {model: [1]}\n", "model: a value given, expected a section"},
      {"out: o\ngrid: {train.seed: [1, 2]}\n", "plan.yaml:2: train.seed: every run of a sweep has its own"},
      {"out: o\nvariants: {a: {train.batch: 3}}\ngrid: {train.batch: [2, 4]}\n",
       "plan.yaml:2: train.batch: the variant a sets what the grid sets in line 3"},
      {"out: o\nsettings: {train.batch: 3}\ngrid: {train.batch: [2, 4]}\n", "'settings' sets what the grid sets in line 3"},
      {"out: o\n", "no text to train on"},
      {"out: [\n", "plan.yaml:"}};
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    test_file_write_text(folder, "plan.yaml", plans[i].plan);
    test_command_run(folder, "", "sweep plan.yaml", &output);
    if (output.code == 0 || test_line_count(output.err) != 1 || strstr(output.err, plans[i].expected) == NULL)
      fail_msg("%s: %d %s, expected \"%s\"", plans[i].plan, output.code, output.err, plans[i].expected);
    assert_int_not_equal(access(test_path(folder, "o"), F_OK), 0); /* nothing was begun */
  }
  command_expect(folder, "sweep nowhere.yaml", 3, "", "", &output);
  test_file_write_text(folder, "plan.yaml", "out: o\nconfig: base.yaml\n");
  command_expect(folder, "sweep plan.yaml --beside time,,lr", 2, "", "--beside: 'time,,lr', expected", &output);
  command_expect(folder, "sweep plan.yaml --beside time,lr,time", 2, "", "--beside: time is given twice", &output);
  command_expect(folder, "sweep plan.yaml --beside a,b,c,d,e,f,g", 2, "", "--beside: 'a,b,c,d,e,f,g', expected", &output);
}

/* A file of hark train may have a folder and a seed, which the plan replaces; without seeds in the plan its seed would be ignored. */
static void a_seed_of_the_base_is_not_ignored(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: o\n");
  test_file_write_text(folder, "base.yaml", BASE "train.seed: 7\n");
  command_expect(folder, "sweep plan.yaml", 2, "", "base.yaml:5: train.seed: 7 given, and plan.yaml has no 'seeds'", &output);
  test_file_write_text(folder, "base.yaml", BASE "run.resume: true\n");
  command_expect(folder, "sweep plan.yaml", 2, "", "base.yaml:5: run.resume: a sweep sets this option", &output);
  test_file_write_text(folder, "base.yaml", BASE "train.seed: 7\nrun.directory: there\n");
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: o\nseeds: [7, 8]\n");
  command_expect(folder, "sweep plan.yaml --list", 0, "all-seed=7\nall-seed=8\n", "", &output);
}

/* A metric that a run without it leaves to others is trained for; one that only some runs, or some plans, have is shown. */
static void metrics_of_some_runs_are_shown(void **state) {
  (void)state;
  test_file_write_text(folder, "base.yaml",
                       "model: {layers: 1, heads: 1, width: 8, context: 8}\ntrain: {steps: 4, batch: 2, log_every: 2}\n"
                       "data: {paths: [text.txt], validation_fraction: 0}\nrun: {threads: 1}\n");
  test_file_write_text(folder, "one.yaml", "config: base.yaml\nout: one\nvariants: {a: {}}\n");
  command_expect(folder, "sweep one.yaml --no-picture", 0, "| a | 0 | - |", "", &output);
  command_expect(folder, "sweep one.yaml --table --metric train/loss --choose checkpoint", 2, "",
                 "--choose checkpoint: no run has val/loss", &output);
  test_file_write_text(folder, "one.yaml", "config: base.yaml\nout: one\nvariants: {a: {}, b: {data.validation_fraction: 0.2}}\n");
  command_expect(folder, "sweep one.yaml --no-picture --metric val/loss", 0, "| b | 1 | ", "", &output);
  test_file_write_text(folder, "two.yaml", "config: base.yaml\nout: two\nvariants: {c: {}}\n");
  command_expect(folder, "sweep two.yaml one.yaml --no-picture --metric val/loss", 0, "| c | 0 | - |", "", &output);
}

/* Settings may be for some of the runs, whose configurations have them alone; what none has a use for is refused. Lists are lists. */
static void settings_have_an_effect_in_some_run(void **state) {
  (void)state;
  static const struct {
    const char *plan, *expected;
  } wrong[] = {{"settings: {model.attention.window: 3}\n",
                "plan.yaml:3: model.attention.window: has no effect in any run, it needs model.attention.structure window"},
               {"variants: {a: {train.rotary_rate: 2}, b: {}}\n",
                "train.rotary_rate: has no effect in any run, it needs model.rotary.learned other than none"},
               {"grid: {model.attention.sigma: [1, 2]}\n", "model.attention.sigma: has no effect in any run"},
               {"settings: {data.validation_paths: text.txt}\ngrid: {data.validation_fraction: [0.1, 0.2]}\n",
                "data.validation_fraction: cannot be used together with data.validation_paths\n"},
               {"settings: {train.steps: [1, 2]}\n", "plan.yaml:3: train.steps: a list given, expected one value"},
               {"settings: {model.attention.structure: []}\n", "expected one of dense"},
               {"settings: {data.paths: }\n", "plan.yaml:3: expected settings, KEY: VALUE"},
               {"variants: {a: {model.layers: [2]}}\n", "plan.yaml:3: model.layers: a list given, expected one value"}};
  char plan[512];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    (void)snprintf(plan, sizeof plan, "config: base.yaml\nout: o\n%s", wrong[i].plan);
    test_file_write_text(folder, "plan.yaml", plan);
    test_command_run(folder, "", "sweep plan.yaml --list", &output);
    if (output.code != 2 || test_line_count(output.err) != 1 || strstr(output.err, wrong[i].expected) == NULL)
      fail_msg("%s: %d %s, expected \"%s\"", wrong[i].plan, output.code, output.err, wrong[i].expected);
  }
  test_file_write_text(folder, "second.txt", "the quick brown fox jumps over the lazy dog, and the dog sleeps on as if nothing had been\n");
  test_file_write_text(
      folder, "plan.yaml",
      "config: base.yaml\nout: o\nsettings: {model.attention.window: 3, model.layers: 2, data.paths: [text.txt, second.txt], "
      "train.steps: 2}\nvariants:\n  dense: {}\n  window: {model.attention.structure: [window, dense]}\n");
  command_expect(folder, "sweep plan.yaml", 0, "", "", &output);
  char *const dense = test_file_text(folder, "o/dense-seed=1.yaml"), *const window = test_file_text(folder, "o/window-seed=1.yaml");
  assert_non_null(strstr(dense, "window: 128\n"));
  assert_non_null(strstr(window, "window: 3\n"));
  assert_non_null(strstr(window, "structure: window,dense\n"));
  assert_non_null(strstr(dense, "  paths: [text.txt, second.txt]\n"));
  free(dense);
  free(window);
  command_expect(folder, "sweep plan.yaml --list", 0, "window-seed=1  done\n", "", &output); /* it is the plan that they were begun with */
}

/* ---- statistics ---- */

static void spreads_leave_out_what_is_missing(void **state) {
  (void)state;
  const double values[] = {2, NAN, 5, 11};
  hark_spread spread = hark_spread_of(values, 4);
  assert_int_equal(spread.count, 3);
  assert_true(spread.mean == 6);
  assert_true(fabs(spread.deviation - sqrt(21)) < 1e-14);
  spread = hark_spread_of(values + 1, 2);
  assert_int_equal(spread.count, 1);
  assert_true(spread.mean == 5 && isnan(spread.deviation));
  assert_true(isnan(hark_spread_of(values + 1, 1).mean));
}

/* A made-up sweep: cell c with seed s reached 10 + c^2 - 4 c + s, the last one of cell 3 is missing. */
static void differences_are_paired_and_edges_found(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_sweep_plan *plan = malloc(sizeof *plan);
  test_file_write_text(folder, "made.yaml", "out: o\nseeds: [1, 2]\ngrid: {train.batch: [1, 2, 4, 8], train.schedule: [cosine]}\n");
  assert_fine(context, hark_sweep_plan_read(context, test_path(folder, "made.yaml"), plan));
  assert_int_equal(hark_sweep_cells(plan), 4);
  double values[8];
  for (int run = 0; run < 8; run++) values[run] = 10 + (run / 2) * (run / 2) - 4 * (run / 2) + run % 2;
  values[7] = NAN;
  hark_sweep_results results = {.plan = plan, .metric = "m", .baseline = 1, .values = values};
  const hark_spread paired = hark_sweep_difference(&results, 3);
  assert_int_equal(paired.count, 1);
  assert_true(paired.mean == 0); /* 7 against 7; with the missing seed's it would be another */
  assert_int_equal(hark_sweep_best(&results, 0), 2);
  values[7] = -100; /* what is left of a cell whose other seed failed is no optimum, however good */
  values[6] = NAN;
  assert_int_equal(hark_sweep_best(&results, 0), 2);
  values[6] = 7;
  values[7] = NAN;
  results.more = true; /* cell 0 reached 10 and 11, the other end 7 */
  assert_int_equal(hark_sweep_best(&results, 0), 0);
  assert_false(hark_sweep_on_edge(&results, 2, 0));
  assert_true(hark_sweep_on_edge(&results, 0, 0));
  assert_true(hark_sweep_on_edge(&results, 3, 0));
  assert_false(hark_sweep_on_edge(&results, 0, 1)); /* words */
  free(plan);
  test_setup_close(context);
}

/* A run whose loss goes 3 1 2 with accuracies .1 .2 .3 at costs 10, 20, 40. */
static void numbers_of_a_run_are_chosen(void **state) {
  (void)state;
  static const struct {
    hark_sweep_choice choice;
    double limit, expected;
  } cases[] = {{{"val/loss", HARK_SWEEP_BEST, false}, INFINITY, 1},
               {{"val/loss", HARK_SWEEP_LAST, false}, INFINITY, 2},
               {{"acc", HARK_SWEEP_BEST, true}, INFINITY, .3},
               {{"acc", HARK_SWEEP_CHECKPOINT, true}, INFINITY, .2},
               {{"acc", HARK_SWEEP_BEST, true}, 39, .2},
               {{"acc", HARK_SWEEP_BEST, true}, 40, .3},
               {{"val/loss", HARK_SWEEP_LAST, false}, 19.5, 3},
               {{"acc", HARK_SWEEP_CHECKPOINT, true}, 10, .1},
               {{"operations", HARK_SWEEP_LAST, false}, 15, 12},
               {{"val/loss", HARK_SWEEP_BEST, false}, 9, NAN},
               {{"nothing", HARK_SWEEP_BEST, false}, INFINITY, NAN}};
  hark_context *context = test_reference_open();
  test_file_write_text(folder, "metrics.jsonl",
                       "{\"step\": 1, \"operations\": 10, \"val/loss\": 3, \"acc\": 0.1}\n{\"step\": 2, \"operations\": 12}\n"
                       "{\"step\": 3, \"operations\": 20, \"val/loss\": 1, \"acc\": 0.2}\n"
                       "{\"step\": 4, \"operations\": 40, \"val/loss\": 2, \"acc\": 0.3}\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_sweep_budget budget = {"operations", cases[i].limit};
    double value = NAN;
    assert_fine(context, hark_sweep_value_of(context, folder, &cases[i].choice, &budget, &value));
    if (isnan(cases[i].expected) ? !isnan(value) : value != cases[i].expected) fail_msg("case %d: %g", (int)i, value);
  }
  double total = NAN;
  assert_fine(context, hark_sweep_total_of(context, folder, "operations", "val/loss", &total));
  assert_true(total == 40);
  assert_true(hark_sweep_more_is_better("val/accuracy") && !hark_sweep_more_is_better("val/loss"));
  hark_sweep_budget budget;
  assert_fine(context, hark_sweep_budget_read(context, "tokens=1.5e6", &budget));
  assert_true(strcmp(budget.name, "tokens") == 0 && budget.limit == 1.5e6);
  static const char *const wrong[] = {"tokens", "=least", "tokens=most", "tokens=-1", "tokens="};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_failure(context, hark_sweep_budget_read(context, wrong[i], &budget), HARK_BAD_CONFIGURATION, "--at: ");
  test_setup_close(context);
}

/* Windowed attention costs less a step: at equal operations the dense run is measured at an earlier evaluation, at equal tokens at the
 * same. */
static void runs_are_compared_at_equal_costs(void **state) {
  (void)state;
  test_file_write_text(folder, "base.yaml",
                       "model: {layers: 1, heads: 1, width: 8, context: 64}\n"
                       "train: {steps: 8, batch: 1, evaluate_every: 1, log_every: 8}\n"
                       "data: {paths: [text.txt], validation_fraction: 0.2}\nrun: {threads: 1}\n");
  test_file_write_text(folder, "plan.yaml",
                       "config: base.yaml\nout: out\nvariants:\n  dense: {}\n"
                       "  window: {model.attention.structure: window, model.attention.window: 1}\n");
  json_t *whole = swept("plan.yaml --choose last"), *equal = swept("plan.yaml --choose last --table --at operations=least"),
         *tokens = swept("plan.yaml --choose last --table --at tokens=least");
  const double dense = json_number_value(json_object_get(json_object_get(cell_at(whole, 0), "beside"), "operations"));
  const double window = json_number_value(json_object_get(json_object_get(cell_at(whole, 1), "beside"), "operations"));
  assert_true(0 < window && window < dense);
  const json_t *at = json_object_get(equal, "at");
  assert_string_equal(json_string_value(json_object_get(at, "metric")), "operations");
  assert_true(json_number_value(json_object_get(at, "limit")) == window);
  const double spent = json_number_value(json_object_get(json_object_get(cell_at(equal, 0), "beside"), "operations"));
  assert_true(spent <= window && spent + dense / 8 > window); /* the last of the eight evaluations that fits */
  assert_true(json_equal(json_object_get(cell_at(whole, 1), "values"), json_object_get(cell_at(equal, 1), "values")));
  assert_false(json_equal(json_object_get(cell_at(whole, 0), "values"), json_object_get(cell_at(equal, 0), "values")));
  for (size_t c = 0; c < 2; c++)
    assert_true(json_equal(json_object_get(cell_at(whole, c), "values"), json_object_get(cell_at(tokens, c), "values")));
  json_decref(whole);
  json_decref(equal);
  json_decref(tokens);
  command_expect(folder, "sweep plan.yaml --table --at operations=least", 0, "Only evaluations with operations of at most ", "", &output);
  command_expect(folder, "sweep plan.yaml --table --at nothing=least", 2, "", "--at: no run has nothing; there are step, ", &output);
  command_expect(folder, "sweep plan.yaml --table --at tokns=100", 2, "", "--at: no run has tokns, did you mean tokens; ", &output);
  command_expect(folder, "sweep plan.yaml --table --metric val/los", 2, "", "--metric: no run has val/los, did you mean val/loss; ",
                 &output);
  command_expect(folder, "sweep plan.yaml --table --beside lr,tim", 2, "", "--beside: no run has tim, did you mean time; ", &output);
  command_expect(folder, "sweep plan.yaml --metric val/los", 2, "", "--metric: no run has val/los", &output);
  command_expect(folder, "plot out/dense-seed=1 --metric val/loss --metric val/los", 2, "", "--metric: no run has val/los, did", &output);
  command_expect(folder, "sweep plan.yaml --table --at lr=1", 2, "", "--at: no run has lr in a line of metrics.jsonl with val/loss",
                 &output);
  command_expect(folder, "sweep plan.yaml --table --at operations", 2, "", "--at: 'operations' given", &output);
}

/* Runs of one cell on two texts have no mean, a picture of another program stays, and a list shows what a sweep would do. */
static void what_a_sweep_does_not_mix_or_replace(void **state) {
  (void)state;
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: out\nseeds: [1]\nvariants: {plain: {}}\n");
  test_file_write_text(folder, "out/sweep.svg", "mine");
  command_expect(folder, "sweep plan.yaml", 2, "", "out/sweep.svg: is no picture of hark, and would be overwritten", &output);
  assert_int_equal(test_folder_count(folder, "out"), 2 + 1);
  command_expect(folder, "sweep plan.yaml --no-picture", 0, "", "", &output);
  assert_int_equal(unlink(test_path(folder, "out/sweep.svg")), 0);
  command_expect(folder, "sweep plan.yaml --table --at step=1 --beside step", 0, "| plain | 0 | - | - | - | - | - |", "", &output);
  command_expect(folder, "sweep plan.yaml --table --beside step,", 2, "", "--beside: 'step,' ends with a comma", &output);
  command_expect(folder, "sweep plan.yaml --table --beside none", 0, "| plain | 1 |", "", &output);

  char *const text = test_file_text(folder, "text.txt");
  test_file_write_text(folder, "text.txt", "other words, of another text, which are other words again and again, and other words still\n");
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: out\nseeds: [1, 2]\nvariants: {plain: {}}\n");
  command_expect(folder, "sweep plan.yaml", 2, "", "plain-seed=2: was trained on other data than plain-seed=1", &output);
  command_expect(folder, "sweep plan.yaml --table", 2, "", "plain-seed=2: was trained on other data than plain-seed=1", &output);
  test_file_write_text(folder, "text.txt", text);
  free(text);

  test_file_write_text(folder, "plan.yaml",
                       "config: base.yaml\nout: out\nseeds: [1]\nvariants: {plain: {}}\nsettings: {train.warmup: 1}\n");
  command_expect(folder, "sweep plan.yaml --list", 2, "", "this run was started with train.warmup", &output);
  char from[TEST_PATH_BYTES];
  (void)snprintf(from, sizeof from, "%s", test_path(folder, "out"));
  assert_int_equal(rename(from, test_path(folder, "moved")), 0);
  test_file_write_text(folder, "plan.yaml", "config: base.yaml\nout: moved\nseeds: [1]\nvariants: {plain: {}}\n");
  command_expect(folder, "sweep plan.yaml --table", 2, "", "the runs of this sweep are in another folder, 'out/plain-seed=1'", &output);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
  const struct CMUnitTest tests[] = {TEST(the_table_holds_what_the_runs_reached),
                                     TEST(runs_have_their_settings),
                                     TEST(a_sweep_goes_on),
                                     TEST(an_interrupt_saves_and_stops),
                                     TEST(a_killed_sweep_ends_its_run),
                                     TEST(a_sweep_that_is_killed_after_an_interrupt_saves),
                                     TEST(another_plan_is_refused),
                                     TEST(a_sweep_of_an_earlier_hark_goes_on),
                                     TEST(a_run_whose_configuration_is_damaged_is_refused),
                                     TEST(a_deleted_run_is_made_again),
                                     TEST(lists_are_replaced),
                                     TEST(values_are_as_long_as_their_options_allow),
                                     TEST(a_run_that_fails_leaves_the_others),
                                     TEST(several_plans_make_one_table),
                                     TEST(wrong_plans_are_refused),
                                     TEST(a_seed_of_the_base_is_not_ignored),
                                     TEST(metrics_of_some_runs_are_shown),
                                     TEST(settings_have_an_effect_in_some_run),
                                     TEST(spreads_leave_out_what_is_missing),
                                     TEST(numbers_of_a_run_are_chosen),
                                     TEST(what_a_sweep_does_not_mix_or_replace),
                                     TEST(runs_are_compared_at_equal_costs),
                                     TEST(differences_are_paired_and_edges_found)};
#undef TEST
  return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}

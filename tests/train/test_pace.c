/* test_pace.c - runs whose length follows from a time, by a clock of the test's own: what is planned fits, comes to the end of its
 * schedule, and is the same run in one part or several. */
#include "train/pace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/train/training_place.h"

/* The last step that fits is the last one that fits, and one at least is made. */
static void as_many_steps_fit_as_are_planned(void **state) {
  (void)state;
  static const hark_pace paces[] = {{1, 0, 0}, {1, 10, 0}, {0.25, 3, 0.5}, {7, 0.1, 20}};
  static const hark_pace_every everies[] = {{0, 0}, {5, 0}, {0, 7}, {10, 3}, {1, 1}};
  static const double times[] = {0.5, 3, 30, 300, 1e5};
  for (size_t p = 0; p < 4; p++)
    for (size_t e = 0; e < 5; e++)
      for (size_t t = 0; t < 5; t++)
        for (int64_t first = 0; first < 40; first += 13) {
          const int64_t last = hark_pace_reach(&paces[p], &everies[e], first, times[t]);
          assert_true(last > first);
          if (last > first + 1) assert_true(hark_pace_cost(&paces[p], &everies[e], first, last) <= times[t]);
          assert_true(hark_pace_cost(&paces[p], &everies[e], first, last + 1) > times[t]);
        }
}

static void costs_are_counted(void **state) {
  (void)state;
  const hark_pace pace = {.step = 1, .evaluation = 10, .save = 100};
  const hark_pace_every every = {.evaluation = 5, .checkpoint = 4};
  /* evaluations after steps 5, 10 and at the end, 12, each saved; checkpoints after 4 and 8 */
  assert_true(hark_pace_cost(&pace, &every, 0, 12) == 12 + 3 * (10 + 100) + 2 * 100);
  assert_true(hark_pace_cost(&pace, &every, 0, 10) == 10 + 2 * (10 + 100) + 2 * 100); /* the last one is at the end anyway */
  assert_true(hark_pace_cost(&pace, &every, 5, 12) == 7 + 2 * (10 + 100) + 100);
  assert_true(hark_pace_cost(&pace, &every, 12, 12) == 0);
  assert_int_equal(hark_pace_warmup(100, 5000), 100);
  assert_int_equal(hark_pace_warmup(100, 300), 30);
  assert_int_equal(hark_pace_warmup(100, 3), 1);
  assert_int_equal(hark_pace_warmup(0, 3), 0);
}

/* Work that takes as long as it says, by a clock of its own. */
typedef struct uneven_work {
  double now, save;
  int64_t steps, saves;
} uneven_work;

static double uneven_now(void *user) { return ((uneven_work *)user)->now; }
static bool never(void *user) { return user == NULL; }

/* The first one pays for what is done once; of the others every fourth waits for another program. */
static hark_status uneven_step(void *user, int64_t number) {
  uneven_work *work = user;
  work->now += number == 0 ? 5 : number % 4 == 0 ? 13 : 1;
  work->steps++;
  return HARK_OK;
}
static hark_status slow_save(void *user) {
  uneven_work *work = user;
  work->now += work->save;
  work->saves++;
  return HARK_OK;
}

/* What a step takes in the mean, without the first one, since that is what many of them take; and what a save takes, unless it is so long
 * that the run cannot afford one more. */
static void means_are_measured(void **state) {
  (void)state;
  uneven_work work = {.save = 7};
  const hark_pace_task task = {.user = &work, .clock = uneven_now, .step = uneven_step, .save = slow_save, .stopped = never};
  hark_pace pace = {.save = 0.5};
  assert_int_equal(hark_pace_measure(&task, 1e9, true, &pace), HARK_OK);
  assert_int_equal(work.steps, 5); /* which take more than ten seconds */
  assert_true(fabs(pace.step - 4) < 1e-12);
  assert_true(pace.save == 7 && work.saves == 1);
  pace = (hark_pace){.save = 11};
  assert_int_equal(hark_pace_measure(&task, 1e9, true, &pace), HARK_OK);
  assert_true(pace.save == 11 && work.saves == 1);
}

/* ---- runs ---- */

#define LINES 1024
typedef struct lines {
  double lr[LINES], loss[LINES];
  int count, planned_lines, validations;
  int64_t planned;
} lines;

static hark_status collect(void *user, const json_t *object, int64_t line) {
  lines *all = user;
  (void)line;
  const json_t *lr = json_object_get(object, "lr"), *planned = json_object_get(object, "planned_steps");
  if (planned != NULL) all->planned = json_integer_value(planned), all->planned_lines++;
  all->validations += json_object_get(object, "val/loss") != NULL;
  if (lr == NULL) return HARK_OK;
  assert_true(all->count < LINES);
  all->loss[all->count] = json_number_value(json_object_get(object, "train/loss"));
  all->lr[all->count++] = json_number_value(lr);
  return HARK_OK;
}

static lines lines_of(training_place *p, const char *name) {
  lines all = {.count = 0};
  char path[64];
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
  assert_fine(p->context, hark_jsonl_read(p->context, test_path(p->folder, path), collect, &all));
  return all;
}

/* Steps of a second, and batches of an evaluation too. */
static hark_config configure(training_place *p, double seconds) {
  hark_config config = training_configuration(p);
  config.train.steps = 0;
  config.train.max_time = seconds;
  config.train.planned = true;
  config.train.evaluate_every = 0;
  config.data.validation_fraction = 0.01; /* of 16 thousand characters: three batches of four windows */
  return config;
}

static hark_train_hooks hooks_of(training_clock *clock) {
  return (hark_train_hooks){.user = clock, .clock = training_clock_now, .request = training_clock_tick};
}

/* The run ends within its time, the evaluation included, at the end of its cosine. */
static void a_planned_run_ends_in_time(void **state) {
  (void)state;
  static const double times[] = {100, 250};
  for (size_t i = 0; i < 2; i++) {
    training_place p;
    training_place_open(&p);
    const hark_config config = configure(&p, times[i]);
    hark_train_result result;
    training_clock clock = {.second = 1};
    const hark_train_hooks hooks = hooks_of(&clock);
    assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
    const lines all = lines_of(&p, "run");
    assert_int_equal(result.reason, HARK_STOP_DONE);
    assert_true(clock.now <= times[i] && clock.now > 0.8 * times[i]);
    assert_int_equal(all.planned_lines, 1);
    assert_int_equal(all.planned, result.steps);
    assert_int_equal(result.state.step, result.steps);
    assert_int_equal(all.validations, 1);
    assert_int_equal(all.count, result.steps);
    assert_true(fabs(all.lr[all.count - 1] - config.train.minimum_rate) < 1e-15);
    assert_true(fabs(all.lr[hark_min(config.train.warmup, result.steps / 10) - 1] - config.train.learning_rate) < 1e-15);
    training_place_close(&p);
  }
}

/* It is the run that train.steps gives, to the bit, in one part and in two; the plan stands whatever the clock says later. */
static void a_planned_run_is_exact(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 100);
  hark_train_result result, part;
  training_clock clock = {.second = 1}, stopped = {.second = 1};
  const hark_train_hooks hooks = hooks_of(&clock), stopping = hooks_of(&stopped);
  assert_fine(p.context, training_run(&p, &config, "whole", &hooks, &result));
  const int64_t measured = (int64_t)clock.now - result.steps; /* calls that belong to no step */
  stopped.left = measured + 10;
  assert_fine(p.context, training_run(&p, &config, "parts", &stopping, &part));
  assert_int_equal(part.reason, HARK_STOP_REQUEST);
  assert_true(part.state.step > 3 && part.state.step < 20);
  assert_int_equal(part.steps, result.steps);
  config.run.resume = true;
  training_clock faster = {.second = 0.1};
  const hark_train_hooks fast = hooks_of(&faster);
  assert_fine(p.context, training_run(&p, &config, "parts", &fast, &part));
  assert_int_equal(part.state.step, result.steps);
  hark_config plain = config;
  plain.run.resume = plain.train.planned = false;
  plain.train.max_time = 0;
  plain.train.steps = result.steps;
  assert_fine(p.context, training_run(&p, &plain, "plain", NULL, &part));
  const lines whole = lines_of(&p, "whole"), parts = lines_of(&p, "parts"), alone = lines_of(&p, "plain");
  assert_int_equal(whole.count, result.steps);
  assert_int_equal(parts.count, result.steps);
  assert_int_equal(alone.count, result.steps);
  assert_memory_equal(whole.loss, parts.loss, (size_t)whole.count * sizeof *whole.loss);
  assert_memory_equal(whole.loss, alone.loss, (size_t)whole.count * sizeof *whole.loss);
  assert_memory_equal(whole.lr, parts.lr, (size_t)whole.count * sizeof *whole.lr);
  char a[96], b[96];
  (void)snprintf(a, sizeof a, "whole/checkpoints/step-%d/model.safetensors", (int)result.steps);
  (void)snprintf(b, sizeof b, "parts/checkpoints/step-%d/model.safetensors", (int)result.steps);
  training_same_file(&p, a, b);
  (void)snprintf(b, sizeof b, "plain/checkpoints/step-%d/model.safetensors", (int)result.steps);
  training_same_file(&p, a, b);
  training_place_close(&p);
}

/* A run that has come to its planned end stays there, and plans more when it is given more time: without a jump of the rate. */
static void more_time_is_planned_anew(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 100);
  hark_train_result first, second;
  training_clock clock = {.second = 1}, later = {.second = 1};
  const hark_train_hooks hooks = hooks_of(&clock), more = hooks_of(&later);
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &first));
  config.run.resume = true;
  assert_fine(p.context, training_run(&p, &config, "run", &more, &second));
  assert_int_equal(second.state.step, first.steps);
  config.train.more_time = true;
  later = (training_clock){.second = 1};
  assert_fine(p.context, training_run(&p, &config, "run", &more, &second));
  assert_true(second.steps > first.steps + 50);
  assert_int_equal(second.state.step, second.steps);
  assert_true(later.now <= 100);
  const lines all = lines_of(&p, "run");
  assert_int_equal(all.planned_lines, 2);
  for (int64_t t = first.steps; t < second.steps; t++) assert_true(all.lr[t] <= all.lr[first.steps - 1] * (1 + 1e-12));
  training_place_close(&p);
}

/* Steps that are given stay the schedule's end, and the time is where the run stops, evaluated and saved. */
static void a_limit_stops_a_run_of_given_steps(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 100);
  config.train.planned = false;
  config.train.steps = 400;
  hark_train_result result;
  training_clock clock = {.second = 1};
  const hark_train_hooks hooks = hooks_of(&clock);
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  assert_int_equal(result.reason, HARK_STOP_TIME);
  assert_int_equal(result.steps, 400);
  assert_true(clock.now <= 100 && clock.now > 80);
  const lines all = lines_of(&p, "run");
  assert_int_equal(all.planned_lines, 0);
  assert_int_equal(all.validations, 1);
  assert_int_equal(result.state.evaluated_step, result.state.step);
  for (int t = 0; t < all.count; t++) assert_true(all.lr[t] == hark_schedule_rate(&config, t + 1, 400));
  training_place_close(&p);
}

/* An evaluation that would take most of the time is left out, and said. */
static void keep(void *user, const char *line) {
  char *said = ((char **)user)[1];
  (void)snprintf(said + strlen(said), 4096 - strlen(said), "%s\n", line);
}
static double now_of(void *user) { return training_clock_now(((void **)user)[0]); }
static hark_request tick(void *user) { return training_clock_tick(((void **)user)[0]); }

static void an_evaluation_that_is_too_long_is_left_out(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 50);
  config.data.validation_fraction = 0.5; /* a hundred batches and more */
  hark_train_result result;
  char said[4096] = "";
  training_clock clock = {.second = 1};
  void *both[] = {&clock, said};
  const hark_train_hooks hooks = {.user = both, .clock = now_of, .request = tick, .say = keep};
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  assert_int_equal(lines_of(&p, "run").validations, 0);
  assert_true(clock.now <= 50);
  assert_int_equal(result.state.step, result.steps);
  if (strstr(said, "more than half of the 50 s: none will be made") == NULL) fail_msg("%s", said);
  training_place_close(&p);
}

/* The clock and what was said: hooks of a run whose steps take another time when they are made than when they were measured, and whose data
 * take time. */
typedef struct changing_pace {
  training_clock clock;
  double later;       /* seconds of a step of the run */
  double reading;     /* of the data */
  int64_t stop_after; /* steps of the run; 0: none */
  char said[8192];
} changing_pace;

static hark_status begin_later_pace(void *user, bool timed) {
  changing_pace *pace = user;
  (void)timed;
  pace->clock.second = pace->later;
  pace->clock.left = pace->stop_after;
  return HARK_OK;
}
static void keep_words(void *user, const char *line) {
  changing_pace *pace = user;
  const size_t used = strlen(pace->said);
  if (strncmp(line, "model: ", 7) == 0) pace->clock.now += pace->reading; /* said when the data have been opened */
  (void)snprintf(pace->said + used, sizeof pace->said - used, "%s\n", line);
}
static hark_train_hooks hooks_of_change(changing_pace *pace) {
  return (hark_train_hooks){
      .user = pace, .clock = training_clock_now, .request = training_clock_tick, .ready = begin_later_pace, .say = keep_words};
}

/* Steps that take three times as long as was measured, or a third: the length is corrected, and the run comes to the end of its cosine in
 * its time, without a jump; stopped after the correction and taken up again it is the same run. */
static void a_plan_is_corrected_on_the_way(void **state) {
  (void)state;
  static const double later[] = {3, 0.4};
  for (size_t i = 0; i < 2; i++) {
    training_place p;
    training_place_open(&p);
    hark_config config = configure(&p, 240);
    config.train.keep = 100;
    hark_train_result result, part;
    changing_pace pace = {.clock = {.second = 1}, .later = later[i]};
    const hark_train_hooks hooks = hooks_of_change(&pace);
    assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
    const lines all = lines_of(&p, "run");
    if (result.reason != HARK_STOP_DONE || pace.clock.now > 240 || pace.clock.now < 190) fail_msg("%g s: %s", pace.clock.now, pace.said);
    assert_int_equal(result.state.step, result.steps);
    assert_int_equal(all.count, result.steps);
    assert_int_equal(all.planned, result.steps);
    assert_true(all.planned_lines > 1);
    assert_true(later[i] > 1 ? result.steps < 90 : result.steps > 350);
    assert_true(fabs(all.lr[all.count - 1] - config.train.minimum_rate) < 1e-15);
    for (int t = config.train.warmup; t < all.count; t++)
      assert_true(all.lr[t] <= all.lr[t - 1] && all.lr[t - 1] - all.lr[t] < 0.1 * config.train.learning_rate);
    if (strstr(pace.said, "steps instead of") == NULL) fail_msg("%s", pace.said);

    changing_pace again = {.clock = {.second = 1}, .later = later[i], .stop_after = result.steps * 3 / 4};
    const hark_train_hooks stopping = hooks_of_change(&again), plain = {0};
    assert_fine(p.context, training_run(&p, &config, "parts", &stopping, &part));
    assert_int_equal(part.reason, HARK_STOP_REQUEST);
    assert_int_equal(part.steps, result.steps); /* all of the corrections were made */
    config.run.resume = true;
    assert_fine(p.context, training_run(&p, &config, "parts", &plain, &part));
    const lines parts = lines_of(&p, "parts");
    assert_int_equal(part.state.step, result.steps);
    assert_int_equal(parts.count, all.count);
    assert_memory_equal(parts.lr, all.lr, (size_t)all.count * sizeof *all.lr);
    assert_memory_equal(parts.loss, all.loss, (size_t)all.count * sizeof *all.loss);
    training_place_close(&p);
  }
}

/* What it takes to read the data does not count, and is said where it is long. */
static void reading_is_no_part_of_the_time(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  const hark_config config = configure(&p, 100);
  hark_train_result result[2];
  for (int i = 0; i < 2; i++) {
    changing_pace pace = {.clock = {.second = 1}, .later = 1, .reading = i * 1000.0};
    const hark_train_hooks hooks = hooks_of_change(&pace);
    assert_fine(p.context, training_run(&p, &config, i == 0 ? "short" : "long", &hooks, &result[i]));
    const bool said = strstr(pace.said, "reading the data took 1000 s; this is not part of the 100 s") != NULL;
    if (said != (i == 1)) fail_msg("%s", pace.said);
  }
  assert_int_equal(result[0].steps, result[1].steps);
  assert_true(result[0].steps > 50);
  training_place_close(&p);
}

/* Two digits, however short a step is. */
static void short_steps_are_said(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  const hark_config config = configure(&p, 0.05);
  hark_train_result result;
  changing_pace pace = {.clock = {.second = 0.00019}, .later = 0.00019};
  const hark_train_hooks hooks = hooks_of_change(&pace);
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  if (strstr(pace.said, "a step takes about 0.19 ms: ") == NULL) fail_msg("%s", pace.said);
  training_place_close(&p);
}

/* A stop while the pace is measured: nothing is planned, and nothing is said of a length; the next part plans. */
static void a_stop_while_the_pace_is_measured(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 100);
  config.train.warmup = 5000;
  hark_train_result result;
  changing_pace pace = {.clock = {.second = 1, .left = 1}, .later = 1};
  const hark_train_hooks hooks = hooks_of_change(&pace);
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  assert_int_equal(result.reason, HARK_STOP_REQUEST);
  assert_int_equal(result.state.step, 0);
  assert_int_equal(result.steps, 0);
  if (strstr(pace.said, "warm-up") != NULL || strstr(pace.said, "fit into") != NULL) fail_msg("%s", pace.said);
  config.run.resume = true;
  pace = (changing_pace){.clock = {.second = 1}, .later = 1};
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  assert_int_equal(result.reason, HARK_STOP_DONE);
  assert_true(result.steps > 50);
  assert_int_equal(lines_of(&p, "run").planned_lines, 1);
  training_place_close(&p);
}

/* A run of so many steps that has ended goes on for so long, and from then on its length is that of the time. */
static void a_run_of_given_steps_goes_on_for_a_time(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 0);
  config.train.planned = false;
  config.train.steps = 8;
  hark_train_result result;
  assert_fine(p.context, training_run(&p, &config, "run", NULL, &result));
  config.run.resume = config.train.more_time = true;
  config.train.max_time = 100;
  for (int64_t part = 0, before = 8; part < 2; part++) {
    changing_pace pace = {.clock = {.second = 1}, .later = 1};
    const hark_train_hooks hooks = hooks_of_change(&pace);
    assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
    assert_true(result.steps > before + 50);
    assert_int_equal(result.state.step, result.steps);
    assert_int_equal(result.reason, HARK_STOP_DONE);
    before = result.steps;
  }
  training_place_close(&p);
}

/* The time left is that of the plan: it falls by a second a step, and is never more than the time. */
typedef struct watcher {
  training_clock clock;
  double worst;
  int seen;
} watcher;

static void watch(void *user, const hark_train_progress *at) {
  watcher *w = user;
  if (at->evaluating >= 0 || at->step < 2) return;
  const double expected = (double)(at->steps - at->step);
  w->worst = fmax(w->worst, fabs(at->seconds_left - expected));
  w->seen++;
}

static void time_left_is_of_the_plan(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = configure(&p, 100);
  hark_train_result result;
  watcher w = {.clock = {.second = 1}};
  const hark_train_hooks hooks = {.user = &w, .clock = training_clock_now, .request = training_clock_tick, .show = watch};
  assert_fine(p.context, training_run(&p, &config, "run", &hooks, &result));
  assert_true(w.seen > 50);
  assert_true(w.worst < 15); /* the evaluation at the end, of a dozen batches at most, and nothing like the hours of 5,000 steps */
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(as_many_steps_fit_as_are_planned),
      cmocka_unit_test(costs_are_counted),
      cmocka_unit_test(means_are_measured),
      cmocka_unit_test(a_plan_is_corrected_on_the_way),
      cmocka_unit_test(reading_is_no_part_of_the_time),
      cmocka_unit_test(short_steps_are_said),
      cmocka_unit_test(a_stop_while_the_pace_is_measured),
      cmocka_unit_test(a_run_of_given_steps_goes_on_for_a_time),
      cmocka_unit_test(a_planned_run_ends_in_time),
      cmocka_unit_test(a_planned_run_is_exact),
      cmocka_unit_test(more_time_is_planned_anew),
      cmocka_unit_test(a_limit_stops_a_run_of_given_steps),
      cmocka_unit_test(an_evaluation_that_is_too_long_is_left_out),
      cmocka_unit_test(time_left_is_of_the_plan),
  };
  return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}

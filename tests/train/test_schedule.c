/* test_schedule.c - learning rates of runs that go on with another length: no rate jumps, and a run in parts has those of a run in one. */
#include "train/schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/train/training_place.h"

#define SCHEDULES 6
#define ROUNDING 1e-12 /* of a rate, over the last bits of a cosine and a root */

static hark_config configuration(int schedule, int64_t warmup) {
  hark_config config = {0};
  config.train.schedule = schedule;
  config.train.learning_rate = 1e-3;
  config.train.minimum_rate = 1e-4;
  config.train.warmup = warmup;
  return config;
}

static bool decays_to_minimum(int schedule) { return schedule == HARK_SCHEDULE_COSINE || schedule == HARK_SCHEDULE_LINEAR; }

/* Every schedule, with and without warm-up, stopped in the warm-up, in the middle and at the end, made longer and shorter. */
static void no_rate_jumps(void **state) {
  (void)state;
  static const int64_t warmups[] = {0, 1, 10, 150}, stops[] = {1, 5, 10, 40, 99, 100}, lengths[] = {101, 120, 200, 1000};
  int compared = 0;
  for (int schedule = 0; schedule < SCHEDULES; schedule++)
    for (size_t w = 0; w < 4; w++)
      for (size_t s = 0; s < 6; s++)
        for (size_t l = 0; l < 4; l++) {
          const hark_config config = configuration(schedule, warmups[w]);
          const hark_schedule_plan before = hark_schedule_plan_of(&config, 100);
          const int64_t step = stops[s];
          const double rate = hark_schedule_plan_rate(&config, &before, step);
          const hark_schedule_plan plan = hark_schedule_extended(&config, &before, step, rate, lengths[l]);
          const double next = hark_schedule_plan_rate(&config, &plan, step + 1);
          assert_int_equal(plan.steps, lengths[l]);
          /* a step of the warm-up at most; otherwise the rate does not grow */
          const double most = step < warmups[w] ? rate + 1e-3 / (double)warmups[w] : rate;
          if (next > most * (1 + ROUNDING))
            fail_msg("schedule %d, warm-up %d: %g at %d, then %g", schedule, (int)warmups[w], rate, (int)step, next);
          if (decays_to_minimum(schedule) && warmups[w] < lengths[l])
            assert_true(fabs(hark_schedule_plan_rate(&config, &plan, lengths[l]) - 1e-4) < 1e-4 * ROUNDING);
          for (int64_t t = hark_max(step, warmups[w]) + 1; t < lengths[l]; t++)
            assert_true(hark_schedule_plan_rate(&config, &plan, t + 1) <= hark_schedule_plan_rate(&config, &plan, t) * (1 + ROUNDING));
          compared++;
        }
  assert_int_equal(compared, SCHEDULES * 4 * 6 * 4);
}

/* A shorter run comes to the end of its schedule too. */
static void a_shorter_run_decays(void **state) {
  (void)state;
  const hark_config config = configuration(HARK_SCHEDULE_COSINE, 10);
  const hark_schedule_plan before = hark_schedule_plan_of(&config, 1000);
  const double rate = hark_schedule_plan_rate(&config, &before, 100);
  const hark_schedule_plan plan = hark_schedule_extended(&config, &before, 100, rate, 200);
  assert_true(fabs(hark_schedule_plan_rate(&config, &plan, 200) - 1e-4) < 1e-16);
  assert_true(fabs(hark_schedule_plan_rate(&config, &plan, 150) - (1e-4 + (rate - 1e-4) / 2)) < 1e-16); /* half of the cosine */
}

static void the_other_ways(void **state) {
  (void)state;
  hark_config config = configuration(HARK_SCHEDULE_COSINE, 10);
  const hark_schedule_plan before = hark_schedule_plan_of(&config, 100);
  config.train.extend = HARK_EXTEND_STRETCH; /* as if it had been planned */
  hark_schedule_plan plan = hark_schedule_extended(&config, &before, 100, 1e-4, 200);
  for (int64_t t = 101; t <= 200; t++) assert_true(hark_schedule_plan_rate(&config, &plan, t) == hark_schedule_rate(&config, t, 200));
  config.train.extend = HARK_EXTEND_RESTART; /* from learning_rate, without warm-up: cosine over the steps that are added */
  plan = hark_schedule_extended(&config, &before, 100, 1e-4, 200);
  assert_true(fabs(hark_schedule_plan_rate(&config, &plan, 150) - (1e-4 + 0.5 * 9e-4)) < 1e-16);
  assert_true(hark_schedule_plan_rate(&config, &plan, 101) > 0.99e-3);
  config.train.extend = HARK_EXTEND_CONTINUE;
  config.train.learning_rate = 5e-4; /* given anew: it is what the run goes on with */
  plan = hark_schedule_extended(&config, &before, 100, 1e-4, 200);
  assert_true(hark_schedule_plan_rate(&config, &plan, 101) > 0.49e-3 && hark_schedule_plan_rate(&config, &plan, 101) <= 0.5e-3);
  /* of the same length: the whole schedule is lower, as it always was */
  plan = hark_schedule_extended(&config, &before, 50, hark_schedule_rate(&config, 50, 100), 100);
  assert_true(hark_schedule_plan_rate(&config, &plan, 51) == hark_schedule_rate(&config, 51, 100));
}

/* What changes in the course of a run, as the capacity of compressed attention, does not begin again. */
static void what_was_reached_stays(void **state) {
  (void)state;
  hark_config config = configuration(HARK_SCHEDULE_CONSTANT, 0);
  config.model.architecture = HARK_ARCHITECTURE_AHCA;
  const hark_schedule_plan before = hark_schedule_plan_of(&config, 100);
  hark_schedule_plan plan = hark_schedule_extended(&config, &before, 100, 1e-3, 200);
  assert_true(hark_schedule_remaining(&plan, 100, 1) == 0 && hark_schedule_remaining(&plan, 150, 1) == 0);
  plan = hark_schedule_extended(&config, &before, 50, 1e-3, 250);
  assert_true(fabs(hark_schedule_remaining(&plan, 50, 1) - 0.5) < 1e-15 && fabs(hark_schedule_remaining(&plan, 300, 2) - 0.25) < 1e-15);
  assert_true(hark_schedule_remaining(&plan, 250, 1) == 0);
}

/* ---- runs ---- */

#define LINES 64
typedef struct rates {
  double lr[LINES], loss[LINES];
  int count;
} rates;

static hark_status collect(void *user, const json_t *object, int64_t line) {
  rates *all = user;
  (void)line;
  const json_t *lr = json_object_get(object, "lr");
  if (lr == NULL) return HARK_OK;
  assert_true(all->count < LINES);
  all->loss[all->count] = json_number_value(json_object_get(object, "train/loss"));
  all->lr[all->count++] = json_number_value(lr);
  return HARK_OK;
}

static rates rates_of(training_place *p, const char *name) {
  rates all = {.count = 0};
  char path[64];
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
  assert_fine(p->context, hark_jsonl_read(p->context, test_path(p->folder, path), collect, &all));
  return all;
}

typedef struct words {
  char text[4096];
} words;

static void keep(void *user, const char *line) {
  words *said = user;
  (void)snprintf(said->text + strlen(said->text), sizeof said->text - strlen(said->text), "%s\n", line);
}

/* A run that has ended goes on for longer, in one part and in two with an interrupt between: the same rates, none of which grows, and the
 * same bits. Learned kernels and rotary rates have theirs from the same numbers. */
static void a_longer_run_is_exact(void **state) {
  (void)state;
  static const int schedules[] = {HARK_SCHEDULE_COSINE, HARK_SCHEDULE_LINEAR, HARK_SCHEDULE_CYCLE};
  for (size_t i = 0; i < 3; i++) {
    training_place p;
    training_place_open(&p);
    hark_config config = training_configuration(&p);
    hark_train_result result;
    words said = {""};
    training_interrupter who = {.left = 2};
    const hark_train_hooks listening = {.user = &said, .say = keep}, stopping = {.user = &who, .request = training_interrupt};
    config.train.schedule = schedules[i];
    config.model.positional = "bank[2](decay)";
    config.model.rotary.learned = HARK_ROTARY_OF_MODEL;
    config.train.positional_rate = 30;
    assert_fine(p.context, training_run(&p, &config, "one", NULL, &result));
    assert_fine(p.context, training_run(&p, &config, "two", NULL, &result));
    config.run.resume = true;
    config.train.steps = 30;
    assert_fine(p.context, training_run(&p, &config, "one", &listening, &result));
    assert_int_equal(result.state.step, 30);
    if (strstr(said.text, "30 steps instead of 12 (train.extend continue): learning rate ") == NULL) fail_msg("%s", said.text);
    assert_fine(p.context, training_run(&p, &config, "two", &stopping, &result));
    assert_int_equal(result.state.step, 14);
    said.text[0] = '\0';
    assert_fine(p.context, training_run(&p, &config, "two", &listening, &result));
    assert_null(strstr(said.text, "learning rate")); /* nothing changes now */
    training_same_file(&p, "one/checkpoints/step-30/model.safetensors", "two/checkpoints/step-30/model.safetensors");
    training_same_file(&p, "one/checkpoints/step-30/optimizer.safetensors", "two/checkpoints/step-30/optimizer.safetensors");
    const rates one = rates_of(&p, "one"), two = rates_of(&p, "two");
    assert_int_equal(one.count, 30);
    assert_int_equal(two.count, 30);
    assert_memory_equal(one.lr, two.lr, 30 * sizeof *one.lr);
    assert_memory_equal(one.loss, two.loss, 30 * sizeof *one.loss);
    for (int t = 3; t + 1 < 30; t++) assert_true(one.lr[t + 1] <= one.lr[t] * (1 + ROUNDING));
    assert_true(one.lr[29] < one.lr[3]);
    training_place_close(&p);
  }
}

/* A checkpoint of before there were plans: what the run was begun with is in its config.yaml. */
static void an_older_run_does_not_jump_either(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  hark_train_result result;
  words said = {""};
  const hark_train_hooks listening = {.user = &said, .say = keep};
  assert_fine(p.context, training_run(&p, &config, "run", NULL, &result));
  char *text = test_file_text(p.folder, "run/checkpoints/step-12/state.json"), *const older = calloc(1, strlen(text) + 1);
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    if (strstr(line, "\"plan_") != NULL || strstr(line, "\"rate\"") != NULL) continue;
    strcat(older, line);
    strcat(older, "\n");
  }
  test_file_write_text(p.folder, "run/checkpoints/step-12/state.json", older);
  test_manifest_write(p.context, p.folder, "run/checkpoints/step-12", 3, names);
  free(text);
  free(older);
  test_file_write_text(p.folder, "run/config.yaml",
                       "train:\n  steps: 12\n  warmup: 3\n  learning_rate: 3e-3\n  minimum_rate: 3e-4\ndata:\n  paths: [text.txt]\n");
  config.run.resume = true;
  config.train.steps = 24;
  assert_fine(p.context, training_run(&p, &config, "run", &listening, &result));
  if (strstr(said.text, "24 steps instead of 12 (train.extend continue): learning rate 0.0003 at step 12, 0.0003 at step 13") == NULL)
    fail_msg("%s", said.text);
  const rates all = rates_of(&p, "run");
  assert_int_equal(all.count, 24);
  for (int t = 12; t < 24; t++) assert_true(fabs(all.lr[t] - 3e-4) < 1e-15);
  training_place_close(&p);
}

/* What would jump is said with both rates, and a run that has more steps already says so. */
static void jumps_are_said(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  hark_config config = training_configuration(&p);
  hark_train_result result;
  words said = {""};
  const hark_train_hooks listening = {.user = &said, .say = keep};
  assert_fine(p.context, training_run(&p, &config, "run", NULL, &result));
  config.run.resume = true;
  config.train.steps = 24;
  config.train.extend = HARK_EXTEND_STRETCH;
  assert_fine(p.context, training_run(&p, &config, "run", &listening, &result));
  char expected[160];
  (void)snprintf(expected, sizeof expected,
                 "24 steps instead of 12 (train.extend stretch): learning rate 0.0003 at step 12, %.4g at step 13",
                 hark_schedule_rate(&config, 13, 24));
  if (strstr(said.text, expected) == NULL) fail_msg("\"%s\" is not in %s", expected, said.text);
  said.text[0] = '\0';
  assert_fine(p.context, training_run(&p, &config, "run", &listening, &result));
  assert_int_equal(result.state.step, 24);
  assert_non_null(strstr(said.text, "there is nothing to do: the run has made its 24 steps"));
  config.train.steps = 6;
  assert_failure(p.context, training_run(&p, &config, "run", &listening, &result), HARK_BAD_CONFIGURATION,
                 "the run has already made 24 steps, and 6 are requested");
  training_place_close(&p);
}

/* A length that is corrected on the way, in the warm-up, after it, and near the end: no jump, and the end of the schedule at the end of the
 * run, where nothing remains of the training. */
static void a_corrected_length_bends_the_schedule(void **state) {
  (void)state;
  static const int64_t lengths[][4] = {{1000, 250, 240, 230}, {300, 900, 880, 1200}, {400, 398, 800, 200}}, looks[] = {20, 60, 120};
  for (int schedule = 0; schedule < SCHEDULES; schedule++)
    for (size_t l = 0; l < 3; l++)
      for (int64_t from = 0; from < 14; from += 7) {
        hark_config config = configuration(schedule, 40);
        config.model.architecture = HARK_ARCHITECTURE_AHCA;
        hark_schedule_plan plan = hark_schedule_plan_of(&config, lengths[l][0]);
        plan.from = from;
        plan.rate = 1e-3;
        const hark_schedule_plan first = plan;
        double before = hark_schedule_plan_rate(&config, &plan, 8), left = hark_schedule_remaining(&plan, 8, 1);
        for (int64_t t = 9; t <= plan.steps; t++) {
          for (int k = 0; k < 3; k++)
            if (t - 1 == looks[k]) plan = hark_schedule_corrected(&config, &plan, t - 1, lengths[l][k + 1]);
          const double rate = hark_schedule_plan_rate(&config, &plan, t), still = hark_schedule_remaining(&plan, t, 1);
          if (fabs(rate - before) > 0.15e-3) fail_msg("schedule %d: %g, and %g at step %d", schedule, before, rate, (int)t);
          assert_true(still <= left && left - still < 0.02);
          before = rate;
          left = still;
        }
        assert_int_equal(plan.steps, lengths[l][3]);
        assert_true(fabs(left) < ROUNDING);
        if (decays_to_minimum(schedule) || schedule == HARK_SCHEDULE_CYCLE)
          assert_true(fabs(before - hark_schedule_plan_rate(&config, &first, first.steps)) < 1e-3 * ROUNDING);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_rate_jumps),         cmocka_unit_test(a_shorter_run_decays),
      cmocka_unit_test(the_other_ways),        cmocka_unit_test(what_was_reached_stays),
      cmocka_unit_test(a_longer_run_is_exact), cmocka_unit_test(an_older_run_does_not_jump_either),
      cmocka_unit_test(jumps_are_said),        cmocka_unit_test(a_corrected_length_bends_the_schedule),
  };
  return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}

/* trainer_length.c - how long a run is: its steps, those that fit into a time, and the plan of the learning rate over them. See training_run.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "io/number.h"
#include "train/training_run.h"

/* Part of a time that is planned with: steps differ, and a schedule that comes to its end before its time is better than one that does not. */
#define PLANNED_PART 0.95

hark_status hark_training_count_steps(const training_run *trainer, const hark_config *config, int64_t *out) {
  const int64_t tokens = hark_config_step_tokens(config), most = INT64_MAX / 2 / tokens;
  const int64_t samples = config->train.batch * config->train.accumulate;
  *out = config->train.steps;
  if (config->train.epochs > 0) {
    const double steps = ceil(config->train.epochs * (double)trainer->material.samples_per_epoch / (double)samples);
    *out = steps < (double)most ? (int64_t)steps : INT64_MAX;
  } else if (config->train.tokens > 0 && hark_config_has_sentences(config)) {
    *out = hark_ceil_div(hark_material_samples(&trainer->material, config->train.tokens), samples);
  } else if (config->train.tokens > 0) {
    *out = config->train.tokens / tokens + (config->train.tokens % tokens > 0);
  } else if (config->train.examples > 0) {
    *out = hark_ceil_div(config->train.examples, samples);
  }
  if (*out <= most) return HARK_OK;
  return hark_fail(trainer->context, HARK_BAD_CONFIGURATION,
                   "the run is longer than tokens can be counted, expected at most %" PRId64 " steps of %" PRId64 " tokens", most, tokens);
}

/* ---- how long the run is ---- */

static double clock_of_measure(void *user) { return hark_training_now(user); }

static bool stops_measure(void *user) {
  training_run *trainer = user;
  (void)hark_training_ask(trainer);
  return trainer->stop_asked;
}

/* A step as the run's, whose weights and moments are thrown away afterwards. */
static hark_status measured_step(void *user, int64_t number) {
  training_run *trainer = user;
  const hark_config *config = trainer->config;
  hark_material_pass part;
  hark_step_result result;
  int64_t targets = 0;
  const int64_t first = number * config->train.batch * config->train.accumulate;
  HARK_TRY(hark_material_targets(trainer->context, &trainer->material, first, &targets));
  HARK_TRY(hark_engine_begin_step(trainer->context, trainer->engine));
  for (int64_t micro = 0; micro < config->train.accumulate; micro++) {
    const hark_status status =
        hark_material_train(trainer->context, &trainer->material, trainer->engine, first + micro * config->train.batch, (uint32_t)micro + 1,
                            1.0 / (double)hark_max(1, targets), &part);
    if (status != HARK_OK && status != HARK_NOT_FINITE) return status;
  }
  return hark_engine_finish_step(trainer->context, trainer->engine, number + 1, 0, 0, &result);
}

static hark_status measured_evaluation(void *user, double until, double *part) {
  training_run *trainer = user;
  validation_result unused;
  trainer->measured_until = until;
  const hark_status status = hark_training_validate(trainer, &unused);
  *part = trainer->measured_part;
  trainer->measured_until = 0;
  return status;
}

/* Measures what the run's time is to be laid out with, on weights that are drawn anew, or loaded, afterwards. */
static hark_status measure_pace(training_run *trainer, bool steps_too) {
  hark_engine *engine = trainer->engine;
  const hark_pace_task task = {.user = trainer,
                               .clock = clock_of_measure,
                               .step = measured_step,
                               .evaluate = trainer->material.has_validation ? measured_evaluation : NULL,
                               .stopped = stops_measure};
  HARK_TRY(hark_parameters_initialise(trainer->context, &engine->network->parameters, (uint64_t)trainer->config->train.seed));
  HARK_TRY(hark_pace_measure(&task, trainer->config->train.max_time, steps_too, &trainer->pace));
  HARK_TRY(hark_tensor_zero(trainer->context, &engine->first_moment));
  HARK_TRY(hark_tensor_zero(trainer->context, &engine->second_moment));
  engine->report = (hark_attention_report){0};
  trainer->statistics = (hark_ahca_statistics){0};
  if (!hark_pace_is_evaluation_too_long(&trainer->pace, trainer->config->train.max_time)) return HARK_OK;
  char evaluation[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  hark_training_say(trainer, "an evaluation takes about %s s, more than half of the %s s: there will be none; hark eval measures the run",
                    hark_number_print(ceil(trainer->pace.evaluation), evaluation),
                    hark_number_print(trainer->config->train.max_time, time));
  trainer->no_evaluation = true;
  trainer->pace.evaluation = 0;
  return HARK_OK;
}

static hark_pace_every every_of(const training_run *trainer) {
  return (hark_pace_every){trainer->config->train.evaluate_every, trainer->config->train.checkpoint_every};
}

/* As many steps as fit into the time. */
static void plan_steps(training_run *trainer, int64_t done) {
  const hark_config *config = trainer->config;
  const hark_pace_every every = every_of(trainer);
  const double left = PLANNED_PART * config->train.max_time - (hark_training_now(trainer) - trainer->started);
  const int64_t most = INT64_MAX / 2 / hark_config_step_tokens(config);
  char step[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  trainer->steps = hark_min(most, hark_pace_reach(&trainer->pace, &every, done, left));
  trainer->planned = !trainer->stop_asked;
  if (!trainer->planned) return;
  hark_training_say(trainer, "a step takes about %s ms: %" PRId64 " fit into the %s s, with the evaluations",
                    hark_number_print(ceil(1e3 * trainer->pace.step), step), trainer->steps - done,
                    hark_number_print(config->train.max_time, time));
}

hark_status hark_training_settle_steps(training_run *trainer, const hark_run_state *state) {
  const hark_config *config = trainer->config;
  const bool stands = state->plan.steps > 0 && (state->step < state->plan.steps || !config->train.more_time);
  if (config->train.planned && stands) trainer->steps = state->plan.steps;
  if (config->train.max_time <= 0 || (trainer->steps > 0 && state->step >= trainer->steps)) return HARK_OK;
  const bool plans = trainer->steps == 0;
  HARK_TRY(measure_pace(trainer, plans));
  if (plans) plan_steps(trainer, state->step);
  return HARK_OK;
}

/* ---- the learning rate of a run that goes on ---- */

/* The plan of a run of before there were plans: that of the configuration that it was begun with. */
static hark_status find_plan(training_run *trainer, hark_schedule_plan *plan, double *rate) {
  hark_context *context = trainer->context;
  char path[HARK_PATH_BYTES];
  hark_config stored;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &stored};
  int64_t steps = trainer->steps;
  hark_status status = hark_run_path(context, trainer->run, "config.yaml", path);
  if (status == HARK_OK) status = hark_options_create(context, "train", &group, 1, &options);
  if (status == HARK_OK) status = hark_options_read_yaml(context, options, path, HARK_SOURCE_RUN);
  if (status == HARK_OK) status = hark_config_finish(context, options, &stored);
  if (status == HARK_OK) status = hark_training_count_steps(trainer, &stored, &steps);
  if (status == HARK_OK) {
    *plan = hark_schedule_plan_of(&stored, steps);
    *rate = hark_schedule_plan_rate(&stored, plan, trainer->state.step);
  }
  hark_options_destroy(context, &options);
  return status;
}

/* Four digits: 0.00018. */
static const char *rounded(double value, char text[HARK_NUMBER_BYTES]) {
  (void)snprintf(text, HARK_NUMBER_BYTES, "%.4g", value);
  return text;
}

/* What a run's learning rate does where it is not what the run had laid out. */
static void say_rates(const training_run *trainer, const hark_schedule_plan *before, double rate) {
  const int64_t step = trainer->state.step;
  const hark_schedule_plan *plan = &trainer->state.plan;
  char was[HARK_NUMBER_BYTES], next[HARK_NUMBER_BYTES], last[HARK_NUMBER_BYTES];
  if (trainer->steps < step || (trainer->steps == step && trainer->steps != before->steps)) {
    hark_training_say(trainer, "the run has made %" PRId64 " steps already, and %" PRId64 " are asked for: there is nothing to do", step,
                      trainer->steps);
    return;
  }
  const bool other = hark_schedule_plan_rate(trainer->config, plan, step) != rate;
  if (step == 0 || trainer->steps == step || (trainer->steps == before->steps && !other)) return;
  static const char *const words[] = {"continue", "restart", "stretch"};
  char length[96] = "";
  if (trainer->steps != before->steps)
    (void)snprintf(length, sizeof length, "%" PRId64 " steps in place of %" PRId64 " (train.extend %s): ", trainer->steps, before->steps,
                   words[trainer->config->train.extend]);
  hark_training_say(trainer, "%slearning rate %s at step %" PRId64 ", %s at step %" PRId64 ", %s at the end", length, rounded(rate, was),
                    step, rounded(hark_schedule_plan_rate(trainer->config, plan, step + 1), next), step + 1,
                    rounded(hark_schedule_plan_rate(trainer->config, plan, trainer->steps), last));
}

hark_status hark_training_settle_plan(training_run *trainer, bool resumed) {
  hark_run_state *state = &trainer->state;
  hark_schedule_plan before = state->plan;
  double rate = state->rate;
  if (!resumed) {
    state->plan = hark_schedule_plan_of(trainer->config, trainer->steps);
  } else {
    if (before.steps == 0 && state->step > 0) HARK_TRY(find_plan(trainer, &before, &rate));
    state->plan = hark_schedule_extended(trainer->config, &before, state->step, rate, trainer->steps);
  }
  const int64_t warmup = hark_pace_warmup(trainer->config->train.warmup, trainer->steps);
  if (trainer->planned && state->step == 0 && warmup < trainer->config->train.warmup) {
    state->plan.warmup = warmup;
    hark_training_say(trainer, "the learning rate rises over %" PRId64 " of them, train.warmup has %" PRId64, warmup,
                      trainer->config->train.warmup);
  }
  if (resumed) say_rates(trainer, &before, rate);
  trainer->engine->plan = state->plan;
  /* a stop came before the time was planned with: the next part plans */
  if (trainer->config->train.planned && trainer->stop_asked && !trainer->planned && before.steps != trainer->steps) state->plan = before;
  return HARK_OK;
}

double hark_training_seconds_left(const training_run *trainer) {
  const hark_pace_every every = every_of(trainer);
  const double steps = hark_pace_cost(&trainer->pace, &every, trainer->state.step, trainer->steps), limit = trainer->config->train.max_time;
  return limit > 0 ? fmax(0, fmin(steps, limit - (hark_training_now(trainer) - trainer->started))) : steps;
}

bool hark_training_time_is_up(const training_run *trainer) {
  const double limit = trainer->config->train.max_time, end = trainer->pace.evaluation + trainer->pace.save;
  if (limit <= 0) return false;
  const double here = hark_training_evaluation_is_due(trainer) ? end : 0;
  return hark_training_now(trainer) - trainer->started + here + trainer->pace.step + end >= limit;
}

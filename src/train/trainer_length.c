/* trainer_length.c - how long a run is: its steps, those that fit into a time, and the plan of the learning rate over them. See
 * training_run.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/temporary.h"
#include "train/training_run.h"

/* Fraction of the time that is planned: steps vary, and a schedule that ends before its time is better than one that does not end. */
#define PLANNED_PART 0.95

/* The pace is checked after every 1/LOOKS of the time and of the planned steps. A plan is kept unless it would end
 * too late by more than LATE_PART of the time, or too early by more than EARLY_PART. */
#define LOOKS 10
#define LATE_PART 0.03
#define EARLY_PART 0.1

/* If reading the data takes more than this fraction of the time, a line reports it. */
#define READING_PART 0.1

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

hark_status hark_training_find_length(training_run *trainer, const hark_run_state *state) {
  const hark_config *config = trainer->config;
  HARK_TRY(hark_training_count_steps(trainer, config, &trainer->steps));
  const bool over = state->step > 0 && state->step >= trainer->steps;
  trainer->timed = config->train.planned || (over && config->train.more_time);
  if (!trainer->timed) return HARK_OK;
  const bool stands = state->plan.steps > 0 && (state->step < state->plan.steps || !config->train.more_time);
  trainer->steps = stands ? state->plan.steps : 0;
  return HARK_OK;
}

/* Every process of a group measures with the clock of rank 0, so that all make the same steps. */
static double clock_of_measure(void *user) { return hark_training_common_now(user); }

static bool stops_measure(void *user) {
  training_run *trainer = user;
  (void)hark_training_poll_together(trainer);
  return trainer->stop_requested;
}

/* A step like the run's; its weights and moments are discarded afterwards. */
static hark_status measured_step(void *user, int64_t number) {
  training_run *trainer = user;
  const hark_config *config = trainer->config;
  hark_material_pass part;
  hark_step_result result;
  int64_t targets = 0;
  const int64_t first = number * config->train.batch * config->train.accumulate;
  HARK_TRY(hark_material_targets(trainer->context, &trainer->material, first, &targets));
  HARK_TRY(hark_engine_begin_step(trainer->context, trainer->engine));
  const hark_share share = trainer->engine->sum.share;
  hark_status computed = HARK_OK;
  for (int64_t index = share.first; index < share.first + share.count; index++) {
    const int64_t micro = index % config->train.accumulate;
    const hark_status status =
        hark_material_train(trainer->context, &trainer->material, trainer->engine, first + micro * config->train.batch, (uint32_t)micro + 1,
                            1.0 / (double)hark_max(1, targets), &part);
    if (status != HARK_OK) computed = status;
    if (status != HARK_OK && status != HARK_NOT_FINITE) break;
  }
  computed = hark_engine_end_work(trainer->context, trainer->engine, computed);
  computed = hark_group_agree(trainer->context, trainer->context->group, computed);
  if (computed != HARK_OK) return computed == HARK_NOT_FINITE ? HARK_OK : computed;
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

/* A checkpoint contains it. */
static hark_status copy_vocabulary(hark_context *context, const hark_run *from, const hark_run *to) {
  char path[HARK_PATH_BYTES];
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_run_read_vocabulary(context, from, &text));
  hark_status status = hark_run_path(context, to, "vocabulary.json", path);
  if (status == HARK_OK && text.length > 0) status = hark_file_write(context, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

/* Saves next to the run, in a folder that is removed. */
static hark_status save_apart(training_run *trainer) {
  hark_context *context = trainer->context;
  const hark_run_state state = {.best_loss = INFINITY};
  char path[HARK_PATH_BYTES];
  hark_temporary_folder folder;
  hark_run apart = {.lock = -1};
  HARK_TRY(hark_run_path(context, trainer->run, "cache/pace", path));
  HARK_TRY(hark_temporary_folder_make(context, path, 0777, &folder));
  memcpy(apart.path, folder.path, sizeof apart.path);
  hark_status status = hark_run_path(context, &apart, "checkpoints", path);
  if (status == HARK_OK) status = hark_folder_make(context, path);
  if (status == HARK_OK) status = copy_vocabulary(context, trainer->run, &apart);
  if (status == HARK_OK) status = hark_checkpoint_save(context, &apart, trainer->engine, &state, 1);
  if (status == HARK_OK) status = hark_training_sample(trainer, &apart, 0);
  const hark_status removed = status == HARK_OK ? hark_folder_remove(context, apart.path) : status;
  hark_temporary_folder_end(&folder); /* unfinished files are removed with the folder */
  return removed;
}

static hark_status measured_save(void *user) {
  training_run *const trainer = user;
  const hark_status status = hark_training_leads(trainer) ? save_apart(trainer) : HARK_OK;
  return hark_group_agree(trainer->context, trainer->context->group, hark_training_end_transfer(trainer, status));
}

/* Measures the pace for planning the run; weights are initialised or loaded again afterwards. */
static hark_status measure_pace(training_run *trainer, bool steps_too) {
  hark_engine *engine = trainer->engine;
  const hark_pace_task task = {.user = trainer,
                               .clock = clock_of_measure,
                               .step = measured_step,
                               .evaluate = trainer->material.has_validation ? measured_evaluation : NULL,
                               .save = measured_save,
                               .stopped = stops_measure};
  HARK_TRY(hark_parameters_initialise(trainer->context, &engine->network->parameters, (uint64_t)trainer->config->train.seed));
  HARK_TRY(hark_pace_measure(&task, trainer->config->train.max_time, steps_too, &trainer->pace));
  if (hark_moments_have_first(trainer->config)) HARK_TRY(hark_tensor_zero(trainer->context, &engine->first_moment));
  HARK_TRY(hark_tensor_zero(trainer->context, &engine->second_moment));
  engine->report = (hark_attention_report){0};
  trainer->statistics = (hark_ahca_statistics){0};
  if (!hark_pace_is_evaluation_too_long(&trainer->pace, trainer->config->train.max_time)) return HARK_OK;
  char evaluation[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  hark_training_say(trainer, "an evaluation takes about %s s, more than half of the %s s: none will be made; hark eval measures the run",
                    hark_number_print(ceil(trainer->pace.evaluation), evaluation),
                    hark_number_print(trainer->config->train.max_time, time));
  trainer->no_evaluation = true;
  trainer->pace.evaluation = 0;
  return HARK_OK;
}

static hark_pace_every every_of(const training_run *trainer) {
  return (hark_pace_every){trainer->config->train.evaluate_every, trainer->config->train.checkpoint_every};
}

/* Seconds that remain of the planned fraction of the time. */
static double seconds_to_plan(const training_run *trainer) {
  return PLANNED_PART * trainer->config->train.max_time - (hark_training_now(trainer) - trainer->started);
}

/* The last step that can be reached in that time. */
static int64_t reach(const training_run *trainer, const hark_pace *pace, int64_t done) {
  const hark_pace_every every = every_of(trainer);
  const int64_t most = INT64_MAX / 2 / hark_config_step_tokens(trainer->config);
  return hark_min(most, hark_pace_reach(pace, &every, done, seconds_to_plan(trainer)));
}

/* Seconds after which the run stops; 0: none. */
static double time_limit(const training_run *trainer) { return trainer->config->train.plans_once ? 0 : trainer->config->train.max_time; }

/* Milliseconds in two digits: 0.19. */
static const char *milliseconds(double seconds, char text[HARK_NUMBER_BYTES]) {
  (void)snprintf(text, HARK_NUMBER_BYTES, seconds < 0.0995 ? "%.2g" : "%.0f", 1e3 * seconds);
  return text;
}

/* Plans as many steps as fit into the time. */
static void plan_steps(training_run *trainer, int64_t done) {
  char step[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  trainer->steps = reach(trainer, &trainer->pace, done);
  trainer->planned = true;
  hark_training_say(trainer, "a step takes about %s ms: %" PRId64 " fit into the %s s, with the evaluations",
                    milliseconds(trainer->pace.step, step), trainer->steps - done,
                    hark_number_print(trainer->config->train.max_time, time));
}

/* Starts the time, after the data were read. */
static void begin_time(training_run *trainer) {
  const double now = hark_training_now(trainer), took = now - trainer->started, limit = trainer->config->train.max_time;
  char reading[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  trainer->started = now;
  if (limit > 0 && took > READING_PART * limit)
    hark_training_say(trainer, "reading the data took %s s; this is not part of the %s s",
                      hark_number_print(took < 10 ? round(10 * took) / 10 : round(took), reading), hark_number_print(limit, time));
}

hark_status hark_training_settle_steps(training_run *trainer, const hark_run_state *state) {
  const hark_config *config = trainer->config;
  begin_time(trainer);
  if (trainer->steps > 0 && trainer->steps < state->step)
    return hark_fail(trainer->context, HARK_BAD_CONFIGURATION,
                     "the run has already made %" PRId64 " steps, and %" PRId64 " are requested; more steps or --max-time make it longer",
                     state->step, trainer->steps);
  if (config->train.max_time <= 0 || (trainer->steps > 0 && state->step == trainer->steps)) return HARK_OK;
  const bool plans = trainer->steps == 0;
  HARK_TRY(hark_group_agree(trainer->context, trainer->context->group, measure_pace(trainer, plans)));
  if (plans && trainer->stop_requested)
    trainer->steps = state->plan.steps; /* nothing is planned: the next part plans */
  else if (plans)
    plan_steps(trainer, state->step);
  return hark_group_broadcast(trainer->context, trainer->context->group, &trainer->steps, sizeof trainer->steps);
}

/* ---- during the run ---- */

static void plan_look(training_run *trainer, double now) {
  trainer->look_step = trainer->state.step + hark_max(1, (trainer->steps - trainer->first_step) / LOOKS);
  trainer->look_clock = now + trainer->config->train.max_time / LOOKS;
}

void hark_training_begin_looks(training_run *trainer) {
  const double now = hark_training_now(trainer);
  trainer->first_step = trainer->state.step;
  trainer->first_clock = now;
  trainer->aside = 0;
  plan_look(trainer, now);
}

bool hark_training_correct_length(training_run *trainer) {
  const hark_pace_every every = every_of(trainer);
  const int64_t step = trainer->state.step, before = trainer->steps;
  const double now = hark_training_now(trainer), limit = trainer->config->train.max_time;
  if (!trainer->planned || trainer->config->train.plans_once || step >= before || step == trainer->first_step ||
      (step < trainer->look_step && now < trainer->look_clock))
    return false;
  plan_look(trainer, now);
  hark_pace pace = trainer->pace; /* evaluations and saves take as long as the last ones, a step as long as the mean of all */
  pace.step = (now - trainer->first_clock - trainer->aside) / (double)(step - trainer->first_step);
  const double late = hark_pace_cost(&pace, &every, step, before) - seconds_to_plan(trainer);
  if (late < LATE_PART * limit && late > -EARLY_PART * limit) return false;
  const int64_t steps = reach(trainer, &pace, step);
  if (steps == before) return false;
  char took[HARK_NUMBER_BYTES], time[HARK_NUMBER_BYTES];
  trainer->steps = steps;
  trainer->engine->plan = trainer->state.plan = hark_schedule_corrected(trainer->config, &trainer->state.plan, step, steps);
  hark_training_say(trainer, "step %" PRId64 ": a step takes about %s ms: %" PRId64 " steps instead of %" PRId64 " fit into the %s s", step,
                    milliseconds(pace.step, took), steps, before, hark_number_print(limit, time));
  return true;
}

/* ---- the learning rate of a resumed run ---- */

/* The plan of a run made by a version without plans: from the configuration that the run began with. */
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

static const char *extension_word(const training_run *trainer) {
  static const char *const words[] = {"continue", "restart", "stretch"};
  return words[trainer->config->train.extend];
}

/* Reports how the learning rate proceeds, if this differs from the run's earlier plan. */
static void say_rates(const training_run *trainer, const hark_schedule_plan *before, double rate) {
  const int64_t step = trainer->state.step;
  const hark_schedule_plan *plan = &trainer->state.plan;
  char was[HARK_NUMBER_BYTES], next[HARK_NUMBER_BYTES], last[HARK_NUMBER_BYTES];
  if (trainer->steps == step && step > 0 && !trainer->stop_requested)
    hark_training_say(trainer, "there is nothing to do: the run has made its %" PRId64 " steps; more steps or --max-time make it longer",
                      step);
  const bool other = hark_schedule_plan_rate(trainer->config, plan, step) != rate;
  if (step > 0 && step < trainer->steps && trainer->steps == before->steps && trainer->config->train.extend != HARK_EXTEND_CONTINUE)
    hark_training_say(trainer, "train.extend %s has no effect: the run had %" PRId64 " steps before", extension_word(trainer),
                      before->steps);
  if (step == 0 || trainer->steps == step || (trainer->steps == before->steps && !other)) return;
  char length[96] = "";
  if (trainer->steps != before->steps)
    (void)snprintf(length, sizeof length, "%" PRId64 " steps instead of %" PRId64 " (train.extend %s): ", trainer->steps, before->steps,
                   extension_word(trainer));
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
  return HARK_OK;
}

double hark_training_seconds_left(const training_run *trainer) {
  const hark_pace_every every = every_of(trainer);
  const double steps = hark_pace_cost(&trainer->pace, &every, trainer->state.step, trainer->steps), limit = time_limit(trainer);
  return limit > 0 ? fmax(0, fmin(steps, limit - (hark_training_now(trainer) - trainer->started))) : steps;
}

bool hark_training_time_is_up(const training_run *trainer) {
  const double limit = time_limit(trainer), end = trainer->pace.evaluation + trainer->pace.save;
  if (limit <= 0) return false;
  const double here = hark_training_evaluation_is_due(trainer) ? end : 0;
  return hark_training_now(trainer) - trainer->started + here + trainer->pace.step + end >= limit;
}

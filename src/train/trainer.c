/* trainer.c - see trainer.h.
 *
 * A step is a function of the configuration, the weights and the step's number: windows and dropout are keyed by sample numbers. The state
 * between steps is in hark_run_state and in the engine, and a checkpoint contains both. So a resumed run is the same run. */
#include "train/training_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/machine.h"
#include "json/jsonl.h"
#include "train/material.h"
#include "train/own_tokens.h"
#include "train/pace.h"
#include "train/preflight.h"
#include "train/samples.h"
#include "train/schedule.h"
#include "train/targets.h"
#include "train/warm_start.h"

/* Assumed until a checkpoint has been written: slower than most disks and than SHA-256. */
#define SAVED_BYTES_PER_SECOND 1e8

void hark_training_say(const training_run *trainer, const char *format, ...) {
  if (trainer->hooks->say == NULL || !hark_training_leads(trainer)) return;
  char line[HARK_MESSAGE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  trainer->hooks->say(trainer->hooks->user, line);
}

double hark_training_now(const training_run *trainer) {
  return trainer->hooks->clock != NULL ? trainer->hooks->clock(trainer->hooks->user) : hark_machine_seconds();
}

static void show(training_run *trainer) {
  if (trainer->hooks->show != NULL && hark_training_leads(trainer)) trainer->hooks->show(trainer->hooks->user, &trainer->progress);
}

/* Reports what the run will need, before anything large is allocated, and refuses needs beyond the machine's. */
static hark_status preflight(training_run *trainer) {
  const hark_preflight run = {.config = trainer->config,
                              .task = trainer->material.task,
                              .steps = trainer->steps > 0 ? trainer->steps : INT64_MAX,
                              .has_validation = trainer->material.has_validation,
                              .folder = trainer->run};
  const double mebibyte = 1024.0 * 1024.0;
  hark_needs needs;
  HARK_TRY(hark_preflight_estimate(trainer->context, &run, &needs));
  trainer->pace.save = (double)needs.checkpoint / SAVED_BYTES_PER_SECOND;
  hark_training_say(trainer,
                    "model: %" PRId64
                    " parameters; memory: about %.0f MiB (weights %.0f, gradients %.0f, moments %.0f, step %.0f, program %.0f); "
                    "checkpoints: %.1f MiB each, at most %" PRId64,
                    needs.parameters, (double)needs.memory / mebibyte, (double)needs.engine.weights / mebibyte,
                    (double)needs.engine.gradients / mebibyte, (double)needs.engine.moments / mebibyte,
                    (double)(needs.engine.step + needs.engine.batch) / mebibyte, (double)needs.program / mebibyte,
                    (double)needs.checkpoint / mebibyte, needs.checkpoints);
  if (trainer->context->group != NULL)
    needs.more_memory *= (uint64_t)hark_max(1, trainer->context->group->local); /* of all that are here */
  return trainer->config->run.preflight ? hark_preflight_check(trainer->context, &needs) : HARK_OK;
}

static void say_material(const training_run *trainer) {
  const hark_material *material = &trainer->material;
  const hark_schedule_plan *plan = &trainer->state.plan;
  if (plan->from == 0 && plan->warmup == 0 && trainer->steps > 0 && trainer->config->train.warmup > trainer->steps)
    hark_training_say(trainer, "the warm-up of %" PRId64 " steps is longer than the run of %" PRId64 ": the rate rises until the end",
                      trainer->config->train.warmup, trainer->steps);
  const hark_network_config *model = &trainer->config->model;
  if (hark_layer_choice_has(&model->attention.structure, HARK_STRUCTURE_COMPRESSED) && model->context <= 2 * model->attention.chunk)
    hark_training_say(trainer,
                      "two chunks of %" PRId64 " tokens contain the context of %" PRId64
                      ": structure compressed is dense attention then (model.attention.chunk)",
                      model->attention.chunk, model->context);
  if (material->examples != NULL) {
    const hark_examples_counts training = hark_examples_count(material->examples, HARK_SPLIT_TRAINING);
    const hark_examples_counts validation = hark_examples_count(material->examples, HARK_SPLIT_VALIDATION);
    if (material->task.tables)
      hark_training_say(trainer,
                        "tables: %" PRId64 " of %" PRId64 " rows to train on, the longest of %" PRId64 ", %" PRId64
                        " to validate with; numbers of a row: inputs %d, %s %d",
                        training.examples, training.tokens, training.longest, validation.examples, (int)material->task.features / 2,
                        material->task.classified ? "classes at most" : "targets", (int)material->task.responses);
    else if (material->task.features > 0)
      hark_training_say(trainer,
                        "examples: %" PRId64 " of %" PRId64 " vectors to train on, the longest of %" PRId64 ", %" PRId64
                        " to validate with; %d numbers a vector, %d to predict",
                        training.examples, training.tokens, training.longest, validation.examples, (int)material->task.features,
                        (int)material->task.responses);
    else
      hark_training_say(trainer,
                        "examples: %" PRId64 " of %" PRId64 " tokens to train on, the longest of %" PRId64 ", %" PRId64
                        " to validate with, %d tokens in the "
                        "vocabulary, %d classes",
                        training.examples, training.tokens, training.longest, validation.examples, (int)material->task.vocabulary,
                        (int)material->task.classes);
    if (training.cut + validation.cut > 0)
      hark_training_say(trainer, "%" PRId64 " %s were longer than data.length_limit, the longest had %" PRId64 " %s",
                        training.cut + validation.cut, material->task.tables ? "tables" : "sequences",
                        hark_max(training.longest_whole, validation.longest_whole), material->task.tables ? "rows" : "tokens");
    return;
  }
  const hark_text_counts counts = hark_corpus_counts(material->corpus, HARK_SPLIT_TRAINING);
  const hark_text_counts validation = hark_corpus_counts(material->corpus, HARK_SPLIT_VALIDATION);
  if (hark_config_has_sentences(trainer->config)) {
    const hark_sentences *s = &material->sentences, *v = &material->validation_sentences;
    hark_training_say(trainer,
                      "sentences: %" PRId64 " of %" PRId64 " targets to train on, in %" PRId64 " windows that are %.0f %% full; %" PRId64
                      " of %" PRId64 " to validate with; %d in the vocabulary",
                      counts.sentences, s->positions, s->windows, 100 * (double)s->positions / (double)(s->windows * s->settings.context),
                      validation.sentences, v->positions, (int)material->task.vocabulary);
    if (s->cut + v->cut > 0)
      hark_training_say(trainer, "%" PRId64 " sentences were longer than a window of %" PRId64 " tokens and cut", s->cut + v->cut,
                        s->settings.context);
    return;
  }
  hark_training_say(trainer, "text: %" PRId64 " tokens to train on, %" PRId64 " to validate with, %d in the vocabulary", counts.tokens,
                    validation.tokens, (int)material->task.vocabulary);
}

/* The point where a run resumes. */
typedef struct resumption {
  bool there; /* there is a checkpoint, `name` */
  char name[HARK_NAME_BYTES];
  char damaged[HARK_NAME_BYTES], why[HARK_MESSAGE_BYTES]; /* the newest checkpoint, if it cannot be read; "": it can */
  hark_run_state state;                                   /* of the checkpoint */
} resumption;

/* Called before any text is read: a run that cannot resume leaves nothing in its cache. */
static hark_status find_checkpoint(hark_context *context, const hark_config *config, const hark_run *run, resumption *out) {
  const hark_status found = hark_checkpoint_newest(context, run, out->name, out->damaged);
  out->there = found == HARK_OK;
  if (found == HARK_OK && out->damaged[0] != '\0') memcpy(out->why, context->message, sizeof out->why);
  if (found == HARK_OK) HARK_TRY(hark_checkpoint_read_state(context, run, out->name, &out->state));
  if (found == HARK_OK) HARK_TRY(hark_checkpoint_check_model(context, run, out->name, &config->model));
  /* tasks of examples are compared when they are opened, and the first difference is reported */
  if (found == HARK_OK && !hark_config_has_examples(config)) return hark_checkpoint_check_vocabulary(context, run, out->name);
  return found == HARK_NOT_FOUND ? HARK_OK : found;
}

/* Removes the tokens of a refused text, which the run cannot use. */
static hark_status refuse_material(training_run *trainer) {
  const hark_material *material = &trainer->material;
  if (material->corpus != NULL && !hark_corpus_was_cached(material->corpus))
    HARK_TRY(hark_file_remove(trainer->context, hark_corpus_cache_path(material->corpus)));
  return hark_fail(trainer->context, HARK_BAD_CONFIGURATION, "the %s not %s that this run was trained on so far",
                   material->examples != NULL ? "examples are" : "text is", material->examples != NULL ? "those" : "the one");
}

/* ---- the processes of a group ---- */

/* Every process of a group computes a share of each step and keeps all weights and moments. Rank 0 alone reads and writes the folder of the
 * run, except that the others read its vocabulary and the tokens of its text. */

/* Opens the data, first at rank 0, which may make vocabulary and tokens. */
static hark_status open_material(training_run *trainer, bool resume, const resumption *begun) {
  hark_context *context = trainer->context;
  const bool leads = hark_training_leads(trainer);
  hark_status status = leads ? hark_material_open(context, trainer->config, trainer->run, resume, &trainer->material) : HARK_OK;
  if (status == HARK_BAD_FILE && begun->there)
    hark_fail_prefix(context, "not what this run was trained on so far: "); /* the data could be read */
  HARK_TRY(hark_group_agree_patiently(context, context->group, status));    /* rank 0 may make tokens for hours */
  if (!leads) status = hark_material_open(context, trainer->config, trainer->run, true, &trainer->material);
  return hark_group_agree(context, context->group, status);
}

/* ---- the beginning ---- */

/* Versions that did not record the operations of masked windows computed logits of all rows. */
static hark_status count_operations(training_run *trainer) {
  const hark_config *const config = trainer->config;
  hark_run_state *const state = &trainer->state;
  double operations = 0;
  if (trainer->material.packed || !hark_training_costs_differ(trainer) || state->operations > 0) return HARK_OK;
  HARK_TRY(hark_engine_operations_of_all(trainer->context, config, &trainer->material.task, &operations));
  state->operations = operations * (double)(config->train.accumulate * state->step);
  return HARK_OK;
}

/* The state of the checkpoint that was found. */
static hark_status load_checkpoint(training_run *trainer, const resumption *begun) {
  hark_context *context = trainer->context;
  const hark_config *config = trainer->config;
  if (begun->damaged[0] != '\0') hark_training_say(trainer, "%s is damaged: %s", begun->damaged, begun->why);
  HARK_TRY(hark_checkpoint_load(context, trainer->run, begun->name, trainer->engine, &trainer->state));
  trainer->seconds_before = trainer->state.seconds;
  trainer->engine->report.pivots = trainer->state.mended_pivots;
  /* also for checkpoints of versions that did not count tokens */
  if (!trainer->material.packed) trainer->state.tokens = trainer->state.samples * config->model.context;
  HARK_TRY(count_operations(trainer));
  hark_training_say(trainer, "continuing from %s", begun->name);
  /* damaged checkpoints are kept until there is a new one */
  const bool settles = begun->damaged[0] == '\0' || strcmp(begun->damaged, "last") == 0;
  return settles ? hark_checkpoint_settle(context, trainer->run, &trainer->state, config->train.keep) : HARK_OK;
}

static hark_status begin_weights(training_run *trainer) {
  hark_context *context = trainer->context;
  const hark_config *config = trainer->config;
  hark_parameters *const parameters = &trainer->engine->network->parameters;
  HARK_TRY(hark_parameters_initialise(context, parameters, (uint64_t)config->train.seed));
  if (config->train.init_from[0] != '\0')
    HARK_TRY(hark_warm_start_load(context, config, trainer->run, parameters, trainer->hooks->say, trainer->hooks->user));
  HARK_TRY(hark_parameters_project(context, parameters, true));
  trainer->state = (hark_run_state){.best_loss = INFINITY, .corpus_checksum = trainer->material.checksum};
  return HARK_OK;
}

/* What a micro-batch adds to the results of its step. */
typedef struct step_part {
  hark_material_pass pass;
  double operations;
  int64_t pivots;
} step_part;

/* The most micro-batches that a process computes in a step. */
static int64_t parts_of_process(const training_run *trainer) {
  return hark_ceil_div(trainer->engine->sum.parts, hark_group_size(trainer->context->group));
}

/* Memory for the results of a step's micro-batches: those of this process, and those of all. */
static hark_status make_parts(training_run *trainer) {
  const int64_t count = (hark_group_size(trainer->context->group) + 1) * parts_of_process(trainer);
  trainer->parts_bytes = (size_t)count * sizeof(step_part);
  return hark_allocate_zero(trainer->context, trainer->parts_bytes, &trainer->parts);
}

/* What a process needs to compute, before anything is read from the checkpoint. */
static hark_status make_engine(training_run *trainer, const resumption *begun) {
  hark_context *context = trainer->context;
  const hark_config *config = trainer->config;
  HARK_TRY(hark_training_find_length(trainer, &begun->state));
  HARK_TRY(hark_targets_check(context, &trainer->material));
  if (hark_training_leads(trainer)) HARK_TRY(hark_samples_check(context, config, trainer->run, trainer->material.tokenizer));
  HARK_TRY(preflight(trainer));
  HARK_TRY(hark_engine_create_for(context, config, &trainer->material.task, true, &trainer->engine));
  HARK_TRY(make_parts(trainer));
  trainer->pass_operations = trainer->engine->largest_operations * hark_group_size(context->sequence);
  if (config->model.architecture == HARK_ARCHITECTURE_AHCA) trainer->engine->statistics = &trainer->statistics;
  HARK_TRY(hark_material_prepare(context, &trainer->material));
  return begun->there && begun->state.corpus_checksum != trainer->material.checksum ? refuse_material(trainer) : HARK_OK;
}

/* Opens text and model and sets both to the state of the run. */
static hark_status prepare(training_run *trainer, bool resume) {
  hark_context *context = trainer->context;
  resumption begun = {0};
  const bool leads = hark_training_leads(trainer);
  hark_status status = HARK_OK;
  if (resume && leads) status = find_checkpoint(context, trainer->config, trainer->run, &begun);
  HARK_TRY(hark_group_agree(context, context->group, status));
  HARK_TRY(hark_group_broadcast(context, context->group, &begun, sizeof begun));
  HARK_TRY(open_material(trainer, resume, &begun));
  HARK_TRY(hark_group_compare(context, context->group, HARK_OK, trainer->material.checksum, "data"));
  HARK_TRY(hark_group_agree(context, context->group, make_engine(trainer, &begun)));
  HARK_TRY(hark_group_agree(context, context->group, hark_training_settle_steps(trainer, &begun.state)));
  if (leads && !begun.there && resume) hark_training_say(trainer, "there is no checkpoint yet: the run starts at step 0");
  if (leads) status = begun.there ? load_checkpoint(trainer, &begun) : begin_weights(trainer);
  HARK_TRY(hark_group_agree(context, context->group, hark_training_end_transfer(trainer, status)));
  HARK_TRY(hark_training_copy_state(trainer));
  HARK_TRY(hark_training_settle_plan(trainer, begun.there));
  HARK_TRY(hark_training_open_metrics(trainer));
  say_material(trainer);
  if (trainer->planned) HARK_TRY(hark_training_record_plan(trainer));
  if (begun.there) return HARK_OK;
  HARK_TRY(hark_training_record_kernels(trainer));
  return trainer->material.has_validation && trainer->material.corpus != NULL ? hark_training_record_text(trainer) : HARK_OK;
}

/* ---- a step ---- */

/* Loss and gradients of this process's micro-batches. */
static hark_status compute_share(training_run *trainer, double weight, step_part *parts) {
  hark_context *context = trainer->context;
  const hark_config *config = trainer->config;
  const hark_share share = trainer->engine->sum.share;
  HARK_TRY(hark_engine_begin_step(context, trainer->engine));
  for (int64_t index = share.first; index < share.first + share.count; index++) {
    const int64_t micro = index % config->train.accumulate; /* of the rows that this process has */
    const int64_t first = trainer->state.samples + micro * config->train.batch, pivots = trainer->engine->report.pivots;
    const uint32_t micro_step = (uint32_t)(trainer->state.step * config->train.accumulate + micro);
    step_part *const part = &parts[index - share.first];
    HARK_TRY(hark_material_train(context, &trainer->material, trainer->engine, first, micro_step, weight, &part->pass));
    part->operations = hark_engine_operations(trainer->engine);
    part->pivots = trainer->engine->report.pivots - pivots;
    if (trainer->hooks->gradients != NULL)
      HARK_TRY(trainer->hooks->gradients(trainer->hooks->user, trainer->engine, trainer->state.step + 1, micro));
  }
  return HARK_OK;
}

static void add_part(training_run *trainer, const step_part *part, hark_material_pass *step) {
  const hark_material_pass *const pass = &part->pass;
  step->loss += pass->loss;
  step->parts.objective += pass->parts.objective;
  for (int term = 0; term < HARK_LOSS_TERMS; term++) step->parts.terms[term] += pass->parts.terms[term];
  step->tokens += pass->tokens;
  step->targets += pass->targets;
  step->correct += pass->correct;
  step->real += pass->real;
  trainer->pass_operations = part->operations;
  trainer->line_operations += part->operations;
  if (hark_training_costs_differ(trainer)) trainer->state.operations += part->operations;
}

/* Adds the parts of all processes in their order. Every process has `room` places, and the last one of a smaller share is unused. */
static void add_parts(training_run *trainer, const step_part *all, int64_t room, hark_material_pass *step) {
  const int size = hark_group_size(trainer->context->group);
  double operations = 0;
  for (int rank = 0; rank < size; rank++) {
    const hark_share share = hark_group_share(trainer->engine->sum.parts, rank, size);
    for (int64_t i = 0; i < share.count; i++) {
      add_part(trainer, &all[rank * room + i], step);
      trainer->engine->report.pivots += all[rank * room + i].pivots;
      operations += all[rank * room + i].operations;
    }
  }
  if (trainer->engine->sequence.group != NULL) trainer->pass_operations = operations / (double)trainer->config->train.accumulate;
}

/* Loss and gradients of one step's windows or examples. */
static hark_status compute_step(training_run *trainer, hark_material_pass *step, bool *has_targets) {
  hark_context *context = trainer->context;
  const int64_t room = parts_of_process(trainer), pivots = trainer->engine->report.pivots;
  step_part *const parts = trainer->parts, *const all = parts + room;
  int64_t targets = 0;
  *step = (hark_material_pass){0};
  HARK_TRY(hark_material_targets(context, &trainer->material, trainer->state.samples, &targets));
  hark_status status = compute_share(trainer, targets > 0 ? 1.0 / (double)targets : 0, parts);
  status = hark_engine_end_work(context, trainer->engine, status);
  status = hark_group_agree(context, context->group, status);
  if (status == HARK_OK) status = hark_group_gather(context, context->group, parts, (size_t)room * sizeof *parts, all);
  trainer->engine->report.pivots = pivots;
  if (status == HARK_OK) add_parts(trainer, all, room, step);
  HARK_TRY(status);
  *has_targets = step->real > 0;
  if (step->real > 0 && step->real != targets) step->loss *= (double)targets / (double)step->real; /* reserved tokens are never masked */
  return HARK_OK;
}

static hark_status run_step(training_run *trainer) {
  const hark_config *config = trainer->config;
  hark_run_state *state = &trainer->state;
  hark_material_pass step;
  bool has_targets = false;
  const hark_status computed = compute_step(trainer, &step, &has_targets);
  if (computed != HARK_OK && computed != HARK_NOT_FINITE) return computed; /* attention may refuse numbers that are not finite */
  const double loss = computed == HARK_OK ? step.loss : NAN, objective = computed == HARK_OK ? step.parts.objective : NAN;
  hark_step_result result = {.applied = false, .gradient_norm = NAN};
  const double rate = hark_schedule_plan_rate(config, &trainer->engine->plan, state->step + 1);
  if (computed == HARK_OK && !has_targets) HARK_TRY(hark_gradient_sum_finish(trainer->context, &trainer->engine->sum)); /* it has begun */
  if (computed == HARK_OK && has_targets)
    HARK_TRY(hark_engine_finish_step(trainer->context, trainer->engine, state->updates + 1, rate, objective, &result));
  state->step++;
  state->samples += config->train.batch * config->train.accumulate;
  state->tokens += step.tokens;
  trainer->line_tokens += step.tokens;
  trainer->line_steps++;
  trainer->progress.rate = state->rate = rate;
  trainer->last_loss = objective;
  if (computed == HARK_OK && !has_targets) { /* no targets: no update */
    state->empty_steps++;
    return HARK_OK;
  }
  if (!result.applied) return hark_training_record_skipped(trainer, objective, result.gradient_norm);
  state->updates++;
  state->bad_steps = 0;
  state->loss_sum += loss;
  state->objective_sum += objective;
  state->smoothing_sum += step.parts.terms[HARK_TERM_SMOOTHING];
  state->z_sum += step.parts.terms[HARK_TERM_Z];
  state->ratio_sum += step.parts.terms[HARK_TERM_RATIO];
  state->ponder_sum += step.parts.terms[HARK_TERM_PONDER];
  state->loss_count++;
  state->line_targets += step.targets;
  state->line_correct += step.correct;
  trainer->progress.loss = loss;
  trainer->progress.gradient_norm = state->gradient_norm = result.gradient_norm;
  return HARK_OK;
}

static void update_progress(training_run *trainer) {
  trainer->progress.step = trainer->state.step;
  trainer->progress.steps = trainer->steps;
  trainer->progress.tokens = trainer->state.tokens;
  trainer->progress.seconds = hark_training_seconds(trainer);
  trainer->progress.seconds_left = hark_training_seconds_left(trainer);
  trainer->progress.evaluating = -1;
  show(trainer);
}

void hark_training_heed(training_run *trainer, hark_request request) {
  if (request == HARK_REQUEST_CHECKPOINT) trainer->checkpoint_requested = true;
  if (request == HARK_REQUEST_STOP) trainer->stop_requested = true;
}

hark_request hark_training_poll(training_run *trainer) {
  const hark_request request = trainer->hooks->request != NULL ? trainer->hooks->request(trainer->hooks->user) : HARK_REQUEST_NONE;
  hark_training_heed(trainer, request);
  return request;
}

static bool show_evaluation(void *user, double part) {
  training_run *trainer = user;
  if (trainer->measured_until > 0) {
    trainer->measured_part = part;
    return hark_training_poll_together(trainer) != HARK_REQUEST_STOP && hark_training_common_now(trainer) < trainer->measured_until;
  }
  trainer->progress.evaluating = part;
  trainer->progress.seconds = hark_training_seconds(trainer);
  show(trainer);
  return hark_training_poll_together(trainer) != HARK_REQUEST_STOP;
}

static bool is_due(int64_t step, int64_t every) { return every > 0 && step % every == 0; }

bool hark_training_evaluation_is_due(const training_run *trainer) {
  const int64_t step = trainer->state.step;
  return is_due(step, trainer->config->train.evaluate_every) || step == trainer->steps;
}

hark_status hark_training_validate(training_run *trainer, validation_result *out) {
  hark_material *material = &trainer->material;
  *out = (validation_result){.accuracy = NAN};
  if (material->examples != NULL) {
    hark_examples_result result;
    HARK_TRY(hark_evaluate_examples(trainer->context, trainer->engine, &material->validation, &material->room, NULL, show_evaluation,
                                    trainer, &result));
    *out = (validation_result){.loss = result.loss, .complete = result.complete}; /* NaN is never the best */
    out->accuracy = result.targets > 0 && hark_task_has_classes(&material->task) ? (double)result.correct / (double)result.targets : NAN;
    return HARK_OK;
  }
  hark_evaluation_result result;
  const hark_evaluation_task task = {.text.split = HARK_SPLIT_VALIDATION, .progress = show_evaluation, .user = trainer};
  if (hark_config_reconstructs(trainer->config))
    HARK_TRY(hark_evaluate_own(trainer->context, trainer->engine, material->corpus, &task.text, &material->room, show_evaluation, trainer,
                               &result));
  else if (material->packed)
    HARK_TRY(hark_evaluate_sentences(trainer->context, trainer->engine, &material->validation_sentences, &material->room, show_evaluation,
                                     trainer, &result));
  else
    HARK_TRY(hark_evaluate(trainer->context, trainer->engine, material->corpus, &task, &result));
  out->loss = result.loss;
  out->complete = result.complete;
  if (!hark_training_predicts_next(trainer)) out->accuracy = result.targets > 0 ? (double)result.correct / (double)result.targets : NAN;
  return HARK_OK;
}

/* Time that does not count in tokens per second. */
static void set_aside(training_run *trainer, double seconds) {
  trainer->line_clock += seconds;
  trainer->aside += seconds;
}

/* A state without a loss does not recover; the last checkpoint is kept. */
static hark_status refuse_diverged(const training_run *trainer, const char *what, double loss) {
  return hark_fail(trainer->context, HARK_NOT_FINITE,
                   "step %" PRId64 ": the %s is %g: the training has diverged, and this state is not saved", trainer->state.step, what,
                   loss);
}

static bool evaluates(const training_run *trainer) { return trainer->material.has_validation && !trainer->no_evaluation; }

/* *best: whether this is the lowest loss so far. Time spent here does not count as training time in tokens per second. Errors:
 * HARK_NOT_FINITE for a loss that is not finite, after its line of metrics. */
static hark_status evaluate(training_run *trainer, bool *best) {
  *best = false;
  if (!evaluates(trainer)) {
    trainer->state.evaluated_step = trainer->state.step;
    return hark_training_record_kernels(trainer);
  }
  const double before = hark_training_now(trainer);
  validation_result result;
  trainer->statistics = (hark_ahca_statistics){0};
  HARK_TRY(hark_group_agree(trainer->context, trainer->context->group, hark_training_validate(trainer, &result)));
  set_aside(trainer, hark_training_now(trainer) - before);
  if (!result.complete) return HARK_OK;
  trainer->pace.evaluation = hark_training_now(trainer) - before;
  trainer->progress.validation_loss = result.loss;
  hark_run_state *state = &trainer->state;
  state->evaluated_step = state->step;
  *best = result.loss < state->best_loss;
  if (*best) {
    state->best_loss = result.loss;
    state->best_step = state->step;
    state->evaluations_without_improvement = 0;
  } else if (hark_training_evaluation_is_due(trainer)) {
    /* Not for an evaluation made early because of a stop: a run in parts has the same patience as an uninterrupted one. */
    state->evaluations_without_improvement++;
  }
  HARK_TRY(hark_training_record_validation(trainer, &result));
  HARK_TRY(hark_training_record_kernels(trainer));
  HARK_TRY(hark_training_record_chunks(trainer));
  if (!isfinite(result.loss)) return refuse_diverged(trainer, "validation loss", result.loss);
  char accuracy[48] = "";
  if (isfinite(result.accuracy)) (void)snprintf(accuracy, sizeof accuracy, ", accuracy %.2f %%", 100 * result.accuracy);
  hark_training_say(trainer, "step %" PRId64 ": validation loss %.4f%s%s", state->step, result.loss, accuracy,
                    *best ? ", the best so far" : "");
  return HARK_OK;
}

/* Where nothing is evaluated, the losses of the last steps decide. A single step without a finite loss changed nothing. */
static hark_status check_last_loss(const training_run *trainer) {
  if (evaluates(trainer) || isfinite(trainer->last_loss) || trainer->state.bad_steps == 1) return HARK_OK;
  return refuse_diverged(trainer, "loss", trainer->last_loss);
}

static bool is_to_stop(void *user) {
  training_run *const trainer = user;
  return hark_training_poll(trainer) == HARK_REQUEST_STOP || trainer->stop_requested;
}

hark_status hark_training_sample(training_run *trainer, const hark_run *run, int64_t step) {
  const hark_samples_stop stop = {is_to_stop, trainer};
  return hark_samples_add(trainer->context, trainer->config, run, step, &stop);
}

/* Writes a checkpoint of a state whose numbers are finite. */
static hark_status write_checkpoint(training_run *trainer, double before) {
  HARK_TRY(hark_jsonl_flush(trainer->context, &trainer->metrics, &trainer->state.metrics_bytes));
  trainer->state.seconds = hark_training_seconds(trainer);
  trainer->state.mended_pivots = trainer->engine->report.pivots;
  HARK_TRY(hark_checkpoint_save(trainer->context, trainer->run, trainer->engine, &trainer->state, trainer->config->train.keep));
  HARK_TRY(hark_metric_copies_write_csv(trainer->context, trainer->config, trainer->run));
  HARK_TRY(hark_training_sample(trainer, trainer->run, trainer->state.step));
  trainer->pace.save = hark_training_now(trainer) - before;
  set_aside(trainer, trainer->pace.save);
  return HARK_OK;
}

/* Rank 0 saves; the others send their moments, if these are divided. */
static hark_status save(training_run *trainer) {
  const double before = hark_training_now(trainer);
  const bool leads = hark_training_leads(trainer);
  trainer->checkpoint_requested = false;
  if (leads || trainer->engine->share.divided) HARK_TRY(hark_engine_check_finite(trainer->context, trainer->engine));
  return hark_training_end_transfer(trainer, leads ? write_checkpoint(trainer, before) : HARK_OK);
}

static bool has_stalled(const training_run *trainer) {
  const int64_t limit = trainer->config->train.early_stop;
  return limit > 0 && trainer->state.evaluations_without_improvement >= limit;
}

/* Makes the evaluation that the interrupt of an earlier part left out. The checkpoint of this step exists and does not change: if this part
 * ends before the next checkpoint, the evaluation is made again. */
static hark_status make_up_evaluation(training_run *trainer) {
  const hark_run_state *state = &trainer->state;
  bool best = false;
  if (state->step == 0 || state->evaluated_step == state->step || !hark_training_evaluation_is_due(trainer)) return HARK_OK;
  HARK_TRY(evaluate(trainer, &best));
  return best && hark_training_leads(trainer) ? hark_checkpoint_point_best(trainer->context, trainer->run, state) : HARK_OK;
}

/* Brings the run to the point where an uninterrupted run would begin the next step, if there is one: an earlier part may have stopped
 * early. */
static hark_status catch_up(training_run *trainer, hark_stop_reason *reason) {
  const hark_run_state *state = &trainer->state;
  HARK_TRY(make_up_evaluation(trainer));
  if (trainer->stop_requested)
    *reason = HARK_STOP_REQUEST;
  else if (has_stalled(trainer) && state->step < trainer->steps)
    *reason = HARK_STOP_EARLY;
  return HARK_OK;
}

/* A resumed run with nothing to do keeps its recorded configuration, because a configuration is that of later steps. */
static hark_status get_ready(training_run *trainer) {
  const hark_run_state *state = &trainer->state;
  const bool idle = state->step > 0 && (state->step >= trainer->steps || has_stalled(trainer));
  trainer->line_clock = hark_training_now(trainer);
  if (!hark_training_leads(trainer)) return HARK_OK;
  if (!idle && trainer->config->train.plans_once && trainer->planned && trainer->hooks->planned != NULL)
    trainer->hooks->planned(trainer->hooks->user, trainer->steps, state->plan.warmup, !trainer->no_evaluation);
  if (!idle && trainer->hooks->ready != NULL) HARK_TRY(trainer->hooks->ready(trainer->hooks->user, trainer->timed));
  trainer->line_clock = hark_training_now(trainer);
  if (trainer->planned) hark_training_begin_looks(trainer);
  return HARK_OK;
}

/* What follows a step: requests, lines, evaluation, checkpoint. */
static hark_status follow_up(training_run *trainer, hark_stop_reason *reason, bool *saved) {
  const hark_config *config = trainer->config;
  hark_run_state *state = &trainer->state;
  bool corrected = false, time_is_up = false;
  if (trainer->line_tokens > 0) hark_training_measure_speed(trainer);
  if (hark_training_poll_together(trainer) == HARK_REQUEST_STOP)
    *reason = HARK_STOP_REQUEST;
  else
    HARK_TRY(hark_training_decide_by_time(trainer, &corrected, &time_is_up));
  if (corrected) HARK_TRY(hark_training_record_plan(trainer));
  if (time_is_up) *reason = HARK_STOP_TIME;
  const bool finished = state->step == trainer->steps;
  if (state->loss_count > 0 && (is_due(state->step, config->train.log_every) || finished)) HARK_TRY(hark_training_record_line(trainer));
  update_progress(trainer);
  bool best = false;
  if (*reason != HARK_STOP_REQUEST && (hark_training_evaluation_is_due(trainer) || *reason == HARK_STOP_TIME))
    HARK_TRY(evaluate(trainer, &best));
  if (finished || *reason == HARK_STOP_TIME) HARK_TRY(check_last_loss(trainer));
  if (trainer->stop_requested) *reason = HARK_STOP_REQUEST;
  if (*reason == HARK_STOP_DONE && !finished && has_stalled(trainer)) *reason = HARK_STOP_EARLY;
  const bool due = is_due(state->step, config->train.checkpoint_every) && isfinite(trainer->last_loss); /* the earlier ones are better */
  if (!best && !finished && *reason == HARK_STOP_DONE && !trainer->checkpoint_requested && !due) return HARK_OK;
  *saved = true;
  return save(trainer);
}

/* A stop writes no line of metrics early and leaves evaluations to the next part, so that the parts together write what an uninterrupted
 * run writes. Only a stop for time adds an evaluation, to report the result. */
static hark_status loop(training_run *trainer, hark_stop_reason *reason) {
  hark_context *context = trainer->context;
  hark_run_state *state = &trainer->state;
  bool saved = state->step > 0;
  *reason = HARK_STOP_DONE;
  HARK_TRY(hark_group_agree(context, context->group, catch_up(trainer, reason)));
  HARK_TRY(hark_group_agree(context, context->group, get_ready(trainer)));
  while (state->step < trainer->steps && *reason == HARK_STOP_DONE) {
    HARK_TRY(run_step(trainer));
    HARK_TRY(hark_group_agree(context, context->group, follow_up(trainer, reason, &saved)));
  }
  if (state->empty_steps > 0)
    hark_training_say(trainer, "%" PRId64 " of %" PRId64 " steps had no targets and changed nothing", state->empty_steps, state->step);
  return saved ? HARK_OK : save(trainer);
}

hark_status hark_train(hark_context *context, const hark_config *config, const hark_run *run, const hark_train_hooks *hooks,
                       hark_train_result *result) {
  static const hark_train_hooks none = {0};
  training_run trainer = {.context = context, .config = config, .run = run, .hooks = hooks != NULL ? hooks : &none};
  trainer.progress.loss = trainer.progress.validation_loss = trainer.progress.gradient_norm = trainer.progress.seconds_left = NAN;
  trainer.started = hark_training_now(&trainer);
  *result = (hark_train_result){.validation_loss = NAN};
  hark_status status = prepare(&trainer, config->run.resume);
  if (status == HARK_OK) status = loop(&trainer, &result->reason);
  if (status == HARK_OK && hark_training_leads(&trainer))
    status = hark_metric_copies_write_csv(context, config, run); /* a resumed run may have evaluated and not saved */
  status = hark_group_agree(context, context->group, status);
  result->state = trainer.state;
  result->steps = trainer.steps;
  result->validation_loss = trainer.progress.validation_loss;
  char message[HARK_MESSAGE_BYTES];
  (void)snprintf(message, sizeof message, "%s", context->message);
  const hark_status closed = hark_jsonl_close(context, &trainer.metrics), copied = hark_metric_copies_close(context, &trainer.copies);
  hark_release(context, trainer.parts, trainer.parts_bytes);
  hark_engine_destroy(context, &trainer.engine);
  hark_material_close(context, &trainer.material);
  if (status == HARK_OK) return closed == HARK_OK ? copied : closed;
  return hark_fail(context, status, "%s", message);
}

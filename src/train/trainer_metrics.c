/* trainer_metrics.c - the lines of metrics.jsonl that a training writes, and the speeds in them. */
#include <inttypes.h>
#include <math.h>

#include "data/corpora/statistics.h"
#include "train/kernel_metrics.h"
#include "train/training_run.h"

double hark_training_seconds(const training_run *trainer) {
  return trainer->seconds_before + hark_training_now(trainer) - trainer->started;
}

/* Continues after the checkpoint's lines: lines written later, or by a run that never began, are removed. */
hark_status hark_training_open_metrics(training_run *trainer) {
  char path[HARK_PATH_BYTES];
  if (!hark_training_leads(trainer)) {
    hark_jsonl_open_nowhere(trainer->context, &trainer->metrics);
    return HARK_OK;
  }
  HARK_TRY(hark_run_path(trainer->context, trainer->run, "metrics.jsonl", path));
  HARK_TRY(hark_jsonl_truncate(trainer->context, path, trainer->state.metrics_bytes));
  HARK_TRY(hark_jsonl_open(trainer->context, &trainer->metrics, path));
  return hark_metric_copies_open(trainer->context, trainer->config, trainer->run, hark_training_seconds(trainer), &trainer->copies);
}

/* A line of metrics begins with the step, the tokens and the time. */
static void begin_line(training_run *trainer) {
  hark_jsonl_begin(&trainer->metrics);
  hark_jsonl_integer(&trainer->metrics, "step", trainer->state.step);
  hark_jsonl_integer(&trainer->metrics, "tokens", trainer->state.tokens);
}

static hark_status end_line(training_run *trainer) {
  hark_jsonl_number(&trainer->metrics, "time", hark_training_seconds(trainer));
  HARK_TRY(hark_jsonl_end(trainer->context, &trainer->metrics));
  return hark_metric_copies_add(trainer->context, &trainer->copies, &trainer->metrics.line);
}

bool hark_training_predicts_masked(const training_run *trainer) { return trainer->engine->network->architecture->predicts_masked; }

bool hark_training_costs_differ(const training_run *trainer) { return trainer->material.packed || hark_training_predicts_masked(trainer); }

/* The model predicts next tokens, so its loss is a measure of the text. */
bool hark_training_predicts_next(const training_run *trainer) {
  return !hark_training_predicts_masked(trainer) && !hark_config_reconstructs(trainer->config);
}

/* Records the baselines of a model, the entropies of the validation text, in the first line of metrics. The entropy of pairs applies to
 * next tokens. */
hark_status hark_training_record_text(training_run *trainer) {
  hark_text_statistics statistics;
  HARK_TRY(hark_statistics_measure(trainer->context, trainer->material.corpus, HARK_SPLIT_VALIDATION, &statistics));
  begin_line(trainer);
  hark_jsonl_number(&trainer->metrics, "val/entropy", statistics.entropy);
  if (hark_training_predicts_next(trainer)) hark_jsonl_number(&trainer->metrics, "val/pair_entropy", statistics.pair_entropy);
  HARK_TRY(end_line(trainer));
  if (!hark_training_predicts_next(trainer))
    hark_training_say(trainer, "baseline: unigram %.3f nats per%s token", statistics.entropy,
                      hark_training_predicts_masked(trainer) ? " masked" : "");
  else
    hark_training_say(trainer, "baselines: unigram %.3f, bigram %.3f nats per token", statistics.entropy, statistics.pair_entropy);
  return HARK_OK;
}

/* Records the length that was planned from a time. */
hark_status hark_training_record_plan(training_run *trainer) {
  begin_line(trainer);
  hark_jsonl_integer(&trainer->metrics, "planned_steps", trainer->steps);
  return end_line(trainer);
}

/* Records positional kernels and learned rates in a line, at the beginning and at every evaluation. */
hark_status hark_training_record_kernels(training_run *trainer) {
  const hark_network *network = trainer->engine->network;
  if (hark_kernel_metrics_count(network) == 0) return HARK_OK;
  begin_line(trainer);
  HARK_TRY(hark_kernel_metrics_append(trainer->context, network, &trainer->metrics));
  if (hark_layer_choice_has(&network->config.attention.normalisation, HARK_NORMALISATION_CME))
    hark_jsonl_number(&trainer->metrics, "ridge/mended_pivots", (double)trainer->engine->report.pivots);
  return end_line(trainer);
}

/* Records the decisions made on the validation data. */
hark_status hark_training_record_chunks(training_run *trainer) {
  hark_ahca_report report = hark_ahca_report_of(&trainer->statistics);
  char name[HARK_AHCA_NAME_BYTES];
  if (trainer->statistics.chunks == 0) return HARK_OK;
  begin_line(trainer);
  for (int i = 0;; i++) {
    const double *number = hark_ahca_report_number(&report, i, name);
    if (number == NULL) break;
    if (!isnan(*number)) hark_jsonl_number(&trainer->metrics, name, *number);
  }
  return end_line(trainer);
}

hark_status hark_training_record_skipped(training_run *trainer, double loss, double norm) {
  trainer->state.bad_steps++;
  begin_line(trainer);
  hark_jsonl_boolean(&trainer->metrics, "skipped", true);
  const int64_t samples = trainer->config->train.batch * trainer->config->train.accumulate;
  hark_jsonl_integer(&trainer->metrics, "first_sample", trainer->state.samples - samples);
  hark_jsonl_integer(&trainer->metrics, "samples", samples);
  hark_jsonl_number(&trainer->metrics, "train/loss", loss);
  hark_jsonl_number(&trainer->metrics, "grad_norm", norm);
  HARK_TRY(end_line(trainer));
  hark_training_say(trainer, "step %" PRId64 " skipped: loss %g, gradient norm %g", trainer->state.step, loss, norm);
  if (trainer->state.bad_steps < trainer->config->train.max_bad_steps) return HARK_OK;
  return hark_fail(trainer->context, HARK_NOT_FINITE,
                   "%" PRId64 " steps in a row had numbers that are not finite; the last at step %" PRId64, trainer->state.bad_steps,
                   trainer->state.step);
}

void hark_training_measure_speed(training_run *trainer) {
  const double now = hark_training_now(trainer), elapsed = now - trainer->line_clock;
  if (elapsed <= 0) return;
  trainer->progress.tokens_per_second = (double)trainer->line_tokens / elapsed;
  if (trainer->hooks->peak_operations > 0)
    trainer->progress.peak_fraction =
        trainer->line_operations / elapsed / (trainer->hooks->peak_operations * hark_group_size(trainer->context->group));
  if (trainer->line_steps > 0) trainer->pace.step = elapsed / (double)trainer->line_steps;
}

static double operations_so_far(const training_run *trainer) {
  if (hark_training_costs_differ(trainer)) return trainer->state.operations;
  return trainer->pass_operations * (double)(trainer->config->train.accumulate * trainer->state.step);
}

/* Records the terms added to the loss, if any, and the sum. */
static void record_parts(training_run *trainer) {
  const hark_run_state *state = &trainer->state;
  const double sums[HARK_LOSS_TERMS] = {[HARK_TERM_SMOOTHING] = state->smoothing_sum,
                                        [HARK_TERM_Z] = state->z_sum,
                                        [HARK_TERM_RATIO] = state->ratio_sum,
                                        [HARK_TERM_PONDER] = state->ponder_sum};
  bool any = false;
  for (int term = 0; term < HARK_LOSS_TERMS; term++) {
    if (!trainer->engine->parts.has[term]) continue;
    hark_jsonl_number(&trainer->metrics, hark_loss_term_name((hark_loss_term)term), sums[term] / (double)state->loss_count);
    any = true;
  }
  if (any) hark_jsonl_number(&trainer->metrics, "train/objective", state->objective_sum / (double)state->loss_count);
}

hark_status hark_training_record_line(training_run *trainer) {
  hark_training_measure_speed(trainer);
  begin_line(trainer);
  hark_jsonl_number(&trainer->metrics, "train/loss", trainer->state.loss_sum / (double)trainer->state.loss_count);
  record_parts(trainer);
  if (trainer->state.line_targets > 0)
    hark_jsonl_number(&trainer->metrics, "train/accuracy", (double)trainer->state.line_correct / (double)trainer->state.line_targets);
  hark_jsonl_number(&trainer->metrics, "lr", trainer->progress.rate);
  hark_jsonl_number(&trainer->metrics, "grad_norm", trainer->state.gradient_norm);
  hark_jsonl_number(&trainer->metrics, "tokens_per_second", trainer->progress.tokens_per_second);
  hark_jsonl_number(&trainer->metrics, "operations", operations_so_far(trainer));
  if (trainer->hooks->peak_operations > 0) hark_jsonl_number(&trainer->metrics, "mfu", trainer->progress.peak_fraction);
  if (trainer->state.empty_steps > 0) hark_jsonl_integer(&trainer->metrics, "empty_steps", trainer->state.empty_steps);
  HARK_TRY(end_line(trainer));
  trainer->state.loss_sum = trainer->state.objective_sum = 0;
  trainer->state.smoothing_sum = trainer->state.z_sum = trainer->state.ratio_sum = trainer->state.ponder_sum = 0;
  trainer->state.loss_count = 0;
  trainer->state.line_targets = trainer->state.line_correct = 0;
  trainer->line_clock = hark_training_now(trainer);
  trainer->line_tokens = trainer->line_steps = 0;
  trainer->line_operations = 0;
  return HARK_OK;
}

hark_status hark_training_record_validation(training_run *trainer, const validation_result *result) {
  begin_line(trainer);
  const double operations = operations_so_far(trainer);
  if (operations > 0) hark_jsonl_number(&trainer->metrics, "operations", operations);
  hark_jsonl_number(&trainer->metrics, "val/loss", result->loss);
  if (trainer->material.examples != NULL || !hark_training_predicts_next(trainer)) { /* only next tokens have the perplexity of a text */
    if (trainer->material.task.features == 0) hark_jsonl_number(&trainer->metrics, "val/accuracy", result->accuracy);
    return end_line(trainer);
  }
  const hark_text_counts counts = hark_corpus_counts(trainer->material.corpus, HARK_SPLIT_VALIDATION);
  hark_jsonl_number(&trainer->metrics, "perplexity", exp(result->loss));
  hark_jsonl_number(&trainer->metrics, "bits_per_byte", hark_bits_per_byte(&counts, result->loss));
  hark_jsonl_number(&trainer->metrics, "bits_per_character", hark_bits_per_character(&counts, result->loss));
  if (hark_tokenizer_kind_has_pieces(trainer->config->data.tokenizer))
    hark_jsonl_number(&trainer->metrics, "word_perplexity", hark_word_perplexity(&counts, result->loss));
  return end_line(trainer);
}

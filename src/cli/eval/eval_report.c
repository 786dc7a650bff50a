/* eval_report.c - see eval_report.h. */
#include "cli/eval/eval_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/ahca_text.h"
#include "json/json.h"

/* Fraction of the tokens that the model reconstructed. */
static double accuracy(const hark_evaluation_result *result) {
  return result->targets > 0 ? (double)result->correct / (double)result->targets : NAN;
}

/* Whether the loss is a measure of the text. */
static bool predicts_next(const hark_eval_report *report) { return !report->hidden && !report->own; }

static void print_text(const hark_eval_report *report, hark_text *text) {
  const double loss = report->result.loss;
  hark_text_append(text, ": loss %.4f nats per token, perplexity %.3f, %.4f bits per character, %.4f bits per byte", loss, exp(loss),
                   hark_bits_per_character(&report->counts, loss), hark_bits_per_byte(&report->counts, loss));
  if (report->words) hark_text_append(text, ", perplexity %.2f a word", hark_word_perplexity(&report->counts, loss));
  hark_text_append(text, "; %" PRId64 " targets in %.1f s\n", report->result.targets, report->seconds);
}

void hark_eval_report_print(const hark_eval_report *report, bool contexts, hark_text *text) {
  hark_text_append_shown(text, report->run);
  if (report->checkpoint[0] != '\0') hark_text_append(text, ", %s", report->checkpoint);
  hark_text_append(text, report->part != NULL ? ", %s text" : ", another text", report->part);
  if (contexts) hark_text_append(text, ", context %" PRId64, report->context);
  if (report->cut && report->window != HARK_EVAL_UNCUT) hark_text_append(text, ", window %" PRId64, report->window);
  if (report->cut && report->window == HARK_EVAL_UNCUT) hark_text_append(text, ", uncut");
  if (predicts_next(report))
    print_text(report, text);
  else
    hark_text_append(text, ": loss %.4f nats per%s token, accuracy %.2f %% (%" PRId64 " of %" PRId64 ") in %.1f s\n", report->result.loss,
                     report->hidden ? " masked" : "", 100 * accuracy(&report->result), report->result.correct, report->result.targets,
                     report->seconds);
  const hark_ahca_report chunks = hark_ahca_report_of(&report->statistics);
  hark_ahca_text_append(&chunks, false, text);
}

/* "positions": [{"first": 8, "last": 9, "loss": 1.5, "targets": 120}, ...], buckets without targets left out. */
static void print_positions_json(const hark_eval_report *report, hark_text *text) {
  bool begun = false;
  hark_text_append(text, ", \"positions\": [");
  for (int bucket = 0; bucket < hark_position_buckets(report->context); bucket++) {
    const hark_position_loss *here = &report->result.positions[bucket];
    if (here->targets == 0) continue;
    hark_text_append(text, "%s{\"first\": %" PRId64 ", \"last\": %" PRId64 ", \"loss\": ", begun ? ", " : "", hark_position_first(bucket),
                     hark_position_last(bucket, report->context));
    hark_json_append_number(text, here->sum / (double)here->targets);
    hark_text_append(text, ", \"targets\": %" PRId64 "}", here->targets);
    begun = true;
  }
  hark_text_append(text, "]");
}

void hark_eval_report_print_json(const hark_eval_report *report, hark_text *text) {
  const double loss = report->result.loss, targets = (double)report->result.targets;
  const bool next = predicts_next(report);
  const struct {
    const char *name;
    double value;
    bool shown;
  } numbers[] = {{"loss", loss, true},
                 {"accuracy", accuracy(&report->result), !next},
                 {"right", (double)report->result.correct, !next},
                 {"perplexity", exp(loss), next},
                 {"bits_per_byte", hark_bits_per_byte(&report->counts, loss), next},
                 {"bits_per_character", hark_bits_per_character(&report->counts, loss), next},
                 {"word_perplexity", hark_word_perplexity(&report->counts, loss), next && report->words},
                 {"tokens_per_second", report->seconds > 0 ? targets / report->seconds : 0, true},
                 {"time", report->seconds, true}};
  hark_text_append(text, "{");
  hark_json_append_path(text, "run", report->run);
  hark_text_append(text, ", \"checkpoint\": ");
  if (report->checkpoint[0] != '\0')
    hark_json_append_string(text, report->checkpoint);
  else
    hark_text_append(text, "null");
  hark_text_append(text, ", \"part\": \"%s\", \"context\": %" PRId64 ", \"stride\": %" PRId64, report->part != NULL ? report->part : "data",
                   report->context, report->stride != 0 ? report->stride : report->context);
  if (report->cut && report->window != HARK_EVAL_UNCUT) hark_text_append(text, ", \"window\": %" PRId64, report->window);
  if (report->cut && report->window == HARK_EVAL_UNCUT) hark_text_append(text, ", \"window\": null");
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if (!numbers[i].shown) continue;
    hark_text_append(text, ", \"%s\": ", numbers[i].name);
    hark_json_append_number(text, numbers[i].value);
  }
  hark_text_append(text, ", \"exchanged\": {%s}, \"targets\": %" PRId64, report->exchanged, report->result.targets);
  print_positions_json(report, text);
  const hark_ahca_report chunks = hark_ahca_report_of(&report->statistics);
  hark_ahca_text_append(&chunks, true, text);
  hark_ahca_decisions_append(&report->statistics, text);
  hark_text_append(text, "}\n");
}

hark_status hark_eval_check_loss(hark_context *context, const char *path, const char *checkpoint, double loss) {
  if (isfinite(loss)) return HARK_OK;
  return hark_fail(context, HARK_NOT_FINITE,
                   "%.300s%s%s: the loss is %g, expected a finite number: the training has diverged, or the data "
                   "have numbers that are too large",
                   path, checkpoint[0] != '\0' ? ", " : "", checkpoint, loss);
}

/* A bucket of the longest context; others may end in the middle of it. */
static void print_row(const hark_eval_report *reports, int count, int bucket, int64_t longest, hark_text *text) {
  char label[48];
  const int64_t first = hark_position_first(bucket), last = hark_position_last(bucket, longest);
  (void)snprintf(label, sizeof label, first == last ? "%" PRId64 : "%" PRId64 "-%" PRId64, first, last);
  hark_text_append(text, "%-17s", label);
  for (int i = 0; i < count; i++) {
    const hark_position_loss *here = &reports[i].result.positions[bucket];
    if (here->targets > 0)
      hark_text_append(text, " %9.4f %9" PRId64, here->sum / (double)here->targets, here->targets);
    else
      hark_text_append(text, " %9s %9s", "", "");
  }
  hark_text_append(text, "\n");
}

static bool is_empty(const hark_eval_report *reports, int count, int bucket) {
  for (int i = 0; i < count; i++)
    if (reports[i].result.positions[bucket].targets > 0) return false;
  return true;
}

void hark_eval_report_print_positions(const hark_eval_report *reports, int count, hark_text *text) {
  int64_t longest = 0;
  hark_text_append(text, "\nloss by position in the window, and targets there:\n%-17s", "context");
  for (int i = 0; i < count; i++) {
    hark_text_append(text, " %9" PRId64 " %9s", reports[i].context, "targets");
    longest = hark_max(longest, reports[i].context);
  }
  hark_text_append(text, "\n");
  for (int bucket = 0; bucket < hark_position_buckets(longest); bucket++)
    if (!is_empty(reports, count, bucket)) print_row(reports, count, bucket, longest, text);
}

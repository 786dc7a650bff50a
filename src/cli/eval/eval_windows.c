/* eval_windows.c - see eval_windows.h. */
#include "cli/eval/eval_windows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/words.h"
#include "models/model_rules.h"

#define OPTION "window-cut"
#define WINDOW_MAXIMUM ((int64_t)1 << 24) /* of model.attention.window */

/* ---- reading ---- */

static hark_status read_sizes(hark_invocation *call, const char *words, hark_eval_windows *out) {
  size_t length;
  for (const char *at = words, *word; (word = hark_next_word(&at, ',', &length)) != NULL;) {
    int64_t window = 0;
    if (!hark_number_read_whole(word, length, &window) || window < 0 || window > WINDOW_MAXIMUM)
      return hark_options_complain(call->context, call->options, OPTION,
                                   "\"%s\" given, expected auto, or whole numbers in [0, %" PRId64 "]", words, WINDOW_MAXIMUM);
    if (out->count > 0 && window <= out->sizes[out->count - 1])
      return hark_options_complain(call->context, call->options, OPTION, "%" PRId64 " after %" PRId64 ", expected growing windows", window,
                                   out->sizes[out->count - 1]);
    if (out->count == HARK_EVAL_WINDOWS)
      return hark_options_complain(call->context, call->options, OPTION, "more than %d windows", HARK_EVAL_WINDOWS);
    out->sizes[out->count++] = window;
  }
  return out->count > 0 ? HARK_OK
                        : hark_options_complain(call->context, call->options, OPTION, "no window given, expected auto, N or N,N,...");
}

static hark_status report_rule(void *data, const char *options, const char *message) {
  hark_invocation *const call = data;
  (void)options;
  return hark_options_complain(call->context, call->options, OPTION, "attention in windows is not possible: %s", message);
}

static hark_status check_model(hark_invocation *call, const hark_config *config) {
  hark_config cut = *config;
  if (hark_options_source(call->options, "model.attention.structure") == HARK_SOURCE_COMMAND)
    return hark_options_complain(call->context, call->options, "model.attention.structure", "has no effect here: --window-cut sets it");
  if (config->model.attention.hierarchical_bias && hark_layer_choice_has(&config->model.attention.structure, HARK_STRUCTURE_HIERARCHICAL))
    return hark_options_complain(call->context, call->options, OPTION,
                                 "this model has learned biases of hierarchical attention, which windows lack");
  hark_eval_windows_cut(&cut, 1);
  return hark_model_rules_check(&cut.model, false, report_rule, call);
}

hark_status hark_eval_windows_read(hark_invocation *call, const hark_config *config, const hark_string_list *words,
                                   hark_eval_windows *out) {
  if (words->count == 0) return HARK_OK;
  out->automatic = words->count == 1 && strcmp(words->items[0], "auto") == 0;
  for (int64_t i = 0; i < words->count && !out->automatic; i++) HARK_TRY(read_sizes(call, words->items[i], out));
  return hark_options_has_effect(call->options, OPTION) ? check_model(call, config) : HARK_OK; /* otherwise refused for that */
}

/* ---- measuring ---- */

int hark_eval_windows_count(const hark_eval_windows *windows, int64_t context) {
  int count = windows->count;
  if (windows->automatic)
    for (int64_t size = 1; size < context; size *= 2) count++;
  return count + 1;
}

int64_t hark_eval_windows_at(const hark_eval_windows *windows, int64_t context, int index) {
  if (index + 1 == hark_eval_windows_count(windows, context)) return HARK_EVAL_UNCUT;
  return windows->automatic ? (int64_t)1 << index : windows->sizes[index];
}

void hark_eval_windows_cut(hark_config *config, int64_t window) {
  config->model.attention.structure = (hark_layer_choice)HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW);
  config->model.attention.window = window;
}

void hark_eval_windows_exchange(const char *exchanged, int64_t window, hark_text *text) {
  hark_text_append(text, "%s%s", exchanged, exchanged[0] != '\0' && window != HARK_EVAL_UNCUT ? ", " : "");
  if (window != HARK_EVAL_UNCUT)
    hark_text_append(text, "\"model.attention.structure\": \"window\", \"model.attention.window\": \"%" PRId64 "\"", window);
}

/* ---- the table ---- */

/* The measurements of one context; the last is not cut. */
static void print_context(const hark_eval_report *reports, int count, bool contexts, hark_text *text) {
  const double uncut = reports[count - 1].result.loss;
  hark_text_append(text, "\nloss by window, nats per token");
  if (contexts) hark_text_append(text, ", context %" PRId64, reports->context);
  hark_text_append(text, "\nwindow           loss  above uncut  gain\n");
  for (int i = 0; i < count; i++) {
    char name[32] = "uncut";
    if (reports[i].window != HARK_EVAL_UNCUT) (void)snprintf(name, sizeof name, "%" PRId64, reports[i].window);
    hark_text_append(text, "%-11s %9.4f", name, reports[i].result.loss);
    if (i + 1 < count) hark_text_append(text, " %12.4f", reports[i].result.loss - uncut);
    if (i > 0) hark_text_append(text, " %*.4f", i + 1 < count ? 8 : 21, reports[i - 1].result.loss - reports[i].result.loss);
    hark_text_append(text, "\n");
  }
}

void hark_eval_windows_print(const hark_eval_report *reports, int count, hark_text *text) {
  const bool contexts = reports[0].context != reports[count - 1].context;
  for (int begin = 0, end; begin < count; begin = end) {
    for (end = begin; reports[end].window != HARK_EVAL_UNCUT;) end++;
    end++;
    print_context(reports + begin, end - begin, contexts, text);
  }
}

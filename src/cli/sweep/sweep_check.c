/* sweep_check.c - see sweep_check.h. */
#include "cli/sweep/sweep_check.h"

#include <inttypes.h>
#include <string.h>

#include "config/options.h"
#include "io/text.h"

/* ---- the file of all runs ---- */

/* The file that all runs begin with may be one of hark train, with a folder and, where the plan has seeds, a seed of its own. */
static hark_status check_base(hark_context *context, const hark_sweep_plan *plan, const hark_options *options, const hark_config *config) {
  if (!plan->has_seeds && config->train.seed != plan->seeds[0])
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "%s: train.seed: %" PRId64 " given, and %s has no 'seeds', which means %" PRId64 "; expected 'seeds: [%" PRId64
                     "]' there",
                     hark_options_where(options, "train.seed"), config->train.seed, plan->path, plan->seeds[0], config->train.seed);
  if (config->run.resume)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: run.resume: a sweep sets this option, expected false",
                     hark_options_where(options, "run.resume"));
  return HARK_OK;
}

static hark_status read_base(hark_context *context, const hark_sweep_plan *plan) {
  hark_config config;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &config};
  if (plan->config[0] == '\0') return HARK_OK;
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  if (status == HARK_OK) status = hark_options_read_yaml(context, options, plan->config, HARK_SOURCE_FILE);
  if (status == HARK_OK) status = check_base(context, plan, options, &config);
  hark_options_destroy(context, &options);
  return status;
}

/* ---- equal values ---- */

/* Appends a value as its option prints it, so that 1e-3 and 0.001 are the same text; *known is false where the option refuses it. */
static hark_status print_canonical(hark_context *context, hark_options *options, const char *key, const char *value, hark_text *text,
                                   bool *known) {
  const int problems = hark_options_problem_count(options);
  HARK_TRY(hark_options_reset(context, options, key));
  HARK_TRY(hark_options_set(context, options, key, value, "", HARK_SOURCE_COMMAND));
  *known = hark_options_problem_count(options) == problems;
  if (*known) hark_options_print_value(options, key, text);
  hark_text_append_bytes(text, "", 1);
  return text->status;
}

/* The first value of those in `seen`, each with a zero byte after it, that equals the last one. */
static int find_equal(const hark_text *seen, size_t last) {
  const char *const all = hark_text_get(seen);
  int index = 0;
  for (size_t at = 0; strcmp(all + at, all + last) != 0; at += strlen(all + at) + 1) index++;
  return index;
}

static hark_status refuse_equal(hark_context *context, const hark_sweep_plan *plan, const hark_sweep_axis *axis, int value, int equal) {
  const char *const now = plan->values[axis->first + value], *const before = plan->values[axis->first + equal];
  if (strcmp(now, before) == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s:%d: grid.%s: %s is given twice", plan->path, axis->line, axis->key, now);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s:%d: grid.%s: %s and %s are the same value, expected it once", plan->path,
                   axis->line, axis->key, before, now);
}

static hark_status compare_values(hark_context *context, const hark_sweep_plan *plan, const hark_sweep_axis *axis, hark_options *options,
                                  hark_text *seen) {
  for (int value = 0; value < axis->count; value++) {
    const size_t last = seen->length;
    bool known = false;
    HARK_TRY(print_canonical(context, options, axis->key, plan->values[axis->first + value], seen, &known));
    if (!known) return HARK_OK;
    const int equal = find_equal(seen, last);
    if (equal < value) return refuse_equal(context, plan, axis, value, equal);
  }
  return HARK_OK;
}

static bool is_option(const char *key) {
  for (int i = 0; i < hark_config_table.count; i++)
    if (strcmp(hark_config_table.options[i].name, key) == 0) return true;
  return false;
}

/* Values of an unknown option, and those that it refuses, are reported with the configurations. */
static hark_status check_values(hark_context *context, const hark_sweep_plan *plan, const hark_sweep_axis *axis) {
  hark_config config;
  hark_options *options = NULL;
  hark_text seen = hark_text_empty(context);
  const hark_option_group group = {&hark_config_table, &config};
  if (!is_option(axis->key)) return HARK_OK;
  hark_status status = hark_options_create(context, NULL, &group, 1, &options);
  if (status == HARK_OK) status = compare_values(context, plan, axis, options, &seen);
  hark_options_destroy(context, &options);
  hark_text_free(&seen);
  return status;
}

/* ---- all ---- */

hark_status hark_sweep_check_plan(hark_context *context, const hark_sweep_plan *plan) {
  for (int i = 0; i < plan->axis_count; i++) HARK_TRY(check_values(context, plan, &plan->axes[i]));
  return read_base(context, plan);
}

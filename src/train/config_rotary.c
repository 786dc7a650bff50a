/* config_rotary.c - see config_rotary.h. */
#include "train/config_rotary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"

#define ROTARY "model.rotary."

/* Where a problem with the numbers of a scaling may come from. */
#define NUMBERS                                                                                                                            \
  ROTARY "short_factor " ROTARY "long_factor " ROTARY "beta_fast " ROTARY "beta_slow " ROTARY "low_freq_factor " ROTARY                    \
         "high_freq_factor " ROTARY "mscale " ROTARY "mscale_all_dim " ROTARY "original_context " ROTARY "scaling"

/* What a run had for the scaling that was exchanged goes back to its default. */
static hark_status forget_others(hark_context *context, hark_options *set) {
  const hark_option_source source = hark_options_source(set, ROTARY "scaling");
  for (int i = 0; i < hark_config_table.count; i++) {
    const char *const name = hark_config_table.options[i].name, *const needs = hark_config_table.options[i].needs;
    const bool of_scaling =
        needs != NULL && strncmp(needs, ROTARY "scaling ", strlen(ROTARY "scaling ")) == 0 && strcmp(name, ROTARY "original_context") != 0;
    if (of_scaling && hark_options_source(set, name) < source && !hark_options_has_effect(set, name))
      HARK_TRY(hark_options_reset(context, set, name));
  }
  return HARK_OK;
}

/* The numbers of a list, several of which may stand in one item: "1,1.05". */
static hark_status read_factors(hark_context *context, hark_options *set, const char *name, const hark_string_list *list,
                                hark_rotary_factors *out) {
  out->count = 0;
  for (int64_t i = 0; i < list->count; i++) {
    for (const char *at = list->items[i]; *at != '\0';) {
      const size_t length = strcspn(at, ", ");
      double factor = 0;
      if (length > 0 && out->count == HARK_ROTARY_FACTORS)
        return hark_options_complain(context, set, name, "more than %d numbers", HARK_ROTARY_FACTORS);
      if (length > 0 && (!hark_number_read(at, length, &factor) || !(factor > 0))) {
        out->count = 0;
        return hark_options_complain(context, set, name, "\"%.40s\" given, expected numbers above 0, one a pair", list->items[i]);
      }
      if (length > 0) out->values[out->count++] = factor;
      at += length + (at[length] != '\0');
    }
  }
  return HARK_OK;
}

/* Rates that depend on the length of a text cannot turn several texts at once. */
static hark_status check_lengths(hark_context *context, hark_options *set, const hark_config *config) {
  const int scaling = config->model.rotary.scaling;
  if (scaling != HARK_ROTARY_DYNAMIC && scaling != HARK_ROTARY_LONGROPE) return HARK_OK;
  const bool decoder = config->model.architecture == HARK_ARCHITECTURE_decoder;
  if (decoder && !hark_config_has_examples(config) && !hark_config_has_sentences(config)) return HARK_OK;
  return hark_options_complain(context, set, ROTARY "scaling model.architecture data.format data.unit",
                               "%s depends on the length of a text, expected a decoder that reads texts one by one, no %s",
                               scaling == HARK_ROTARY_DYNAMIC ? "dynamic" : "longrope",
                               decoder ? "sentences and examples" : "other architecture");
}

/* What a scaling lacks, or has twice. */
static hark_status check_given(hark_context *context, hark_options *set, const hark_config *config) {
  const bool longrope = config->model.rotary.scaling == HARK_ROTARY_LONGROPE, factor = config->model.rotary.scaling_factor != 1,
             attention = config->model.rotary.attention_factor != 0;
  if (longrope && (config->model.rotary.short_factors.count == 0 || config->model.rotary.long_factors.count == 0))
    return hark_options_complain(context, set, ROTARY "scaling " ROTARY "short_factor " ROTARY "long_factor",
                                 "longrope needs model.rotary.short_factor and model.rotary.long_factor, one number a pair each");
  if (!factor && !(longrope && attention) && hark_options_source(set, ROTARY "scaling_factor") < hark_options_source(set, ROTARY "scaling"))
    return hark_options_complain(context, set, ROTARY "scaling " ROTARY "scaling_factor",
                                 "a scaling needs model.rotary.scaling_factor: how many times longer texts become%s",
                                 longrope ? ", or model.rotary.attention_factor" : "");
  if (attention && (config->model.rotary.mscale != 0 || config->model.rotary.mscale_all_dim != 0))
    return hark_options_complain(context, set, ROTARY "attention_factor " ROTARY "mscale " ROTARY "mscale_all_dim",
                                 "attention_factor takes the place of mscale and mscale_all_dim, expected one or the others");
  if (config->model.rotary.ramp == HARK_ROTARY_RAMP_TURNS && !config->model.rotary.truncate)
    return hark_options_complain(context, set, ROTARY "truncate " ROTARY "ramp", "a ramp in turns has no pairs at its ends to truncate");
  return HARK_OK;
}

/* Ranges and lengths of lists, as a network would refuse them. */
static hark_status check_numbers(hark_context *context, hark_options *set, const hark_config *config) {
  const int64_t width = config->model.attention_width != 0 ? config->model.attention_width : config->model.width;
  const hark_rotary_tuning tuning = hark_config_rotary_tuning(config);
  const hark_rotary_spec spec = {
      .present = true,
      .base = config->model.rotary.base,
      .fraction = config->model.rotary.fraction,
      .scaling = (hark_rotary_scaling)config->model.rotary.scaling,
      .factor = config->model.rotary.scaling_factor,
      .context = config->model.rotary.original_context != 0 ? config->model.rotary.original_context : config->model.context,
      .head_dim = width / config->model.heads,
      .tuning = &tuning};
  char message[HARK_MESSAGE_BYTES];
  const hark_status status = hark_rotary_check(context, &spec);
  if (status != HARK_BAD_CONFIGURATION) return status;
  (void)snprintf(message, sizeof message, "%s", hark_context_message(context));
  return hark_options_complain(context, set, NUMBERS, "%s", message);
}

void hark_config_recall_rotary(const hark_options *set, hark_config *config) {
  if (config->model.rotary.scaling == HARK_ROTARY_YARN && hark_options_source(set, ROTARY "scaling") == HARK_SOURCE_RUN &&
      hark_options_source(set, ROTARY "ramp") == HARK_SOURCE_DEFAULT)
    config->model.rotary.ramp = HARK_ROTARY_RAMP_TURNS;
}

hark_status hark_config_settle_rotary(hark_context *context, hark_options *set, hark_config *config) {
  const bool rotary = config->model.positions == HARK_POSITIONS_ROTARY, learned = config->model.rotary.learned != HARK_ROTARY_STATIC,
             scaled = config->model.rotary.scaling != HARK_ROTARY_AS_TRAINED;
  const int problems = hark_options_problem_count(set);
  hark_config_recall_rotary(set, config);
  if (learned && scaled)
    HARK_TRY(
        hark_options_complain(context, set, ROTARY "scaling " ROTARY "learned", "only static rates are scaled, and these are learned"));
  HARK_TRY(forget_others(context, set));
  HARK_TRY(read_factors(context, set, ROTARY "short_factor", &config->model.rotary.short_factor, &config->model.rotary.short_factors));
  HARK_TRY(read_factors(context, set, ROTARY "long_factor", &config->model.rotary.long_factor, &config->model.rotary.long_factors));
  if (!scaled || !rotary || learned) return HARK_OK;
  HARK_TRY(check_lengths(context, set, config));
  if (hark_options_problem_count(set) == problems) HARK_TRY(check_given(context, set, config));
  return hark_options_problem_count(set) == problems ? check_numbers(context, set, config) : HARK_OK;
}

/* 0 stands for the published number. */
static double unless(double value, double published) { return value != published ? value : 0; }

hark_rotary_tuning hark_config_rotary_tuning(const hark_config *config) {
  hark_rotary_tuning tuning = {.ramp = HARK_ROTARY_RAMP_PAIR};
  switch ((hark_rotary_scaling)config->model.rotary.scaling) {
    case HARK_ROTARY_AS_TRAINED:
    case HARK_ROTARY_LINEAR:
    case HARK_ROTARY_NTK:
    case HARK_ROTARY_DYNAMIC: break;
    case HARK_ROTARY_YARN:
      tuning.ramp = (hark_rotary_ramp_unit)config->model.rotary.ramp;
      tuning.beta_fast = unless(config->model.rotary.beta_fast, 32);
      tuning.beta_slow = unless(config->model.rotary.beta_slow, 1);
      tuning.untruncated = !config->model.rotary.truncate;
      tuning.mscale = config->model.rotary.mscale;
      tuning.mscale_all_dim = config->model.rotary.mscale_all_dim;
      tuning.attention_factor = config->model.rotary.attention_factor;
      break;
    case HARK_ROTARY_LLAMA3:
      tuning.low_frequency = unless(config->model.rotary.low_freq_factor, 1);
      tuning.high_frequency = unless(config->model.rotary.high_freq_factor, 4);
      break;
    case HARK_ROTARY_LONGROPE:
      tuning.attention_factor = config->model.rotary.attention_factor;
      tuning.short_factor = config->model.rotary.short_factors;
      tuning.long_factor = config->model.rotary.long_factors;
      break;
  }
  return tuning;
}

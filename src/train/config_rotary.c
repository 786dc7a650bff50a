/* config_rotary.c - see config_rotary.h. */
#include "train/config_rotary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/stack.h"

#define ROTARY "model.rotary."
#define FACTORS "numbers above 0, one a pair"

/* Options that may cause a problem with the numbers of a scaling. */
#define NUMBERS                                                                                                                            \
  ROTARY "short_factor " ROTARY "long_factor " ROTARY "beta_fast " ROTARY "beta_slow " ROTARY "low_freq_factor " ROTARY                    \
         "high_freq_factor " ROTARY "mscale " ROTARY "mscale_all_dim " ROTARY "original_context " ROTARY "scaling"

/* Resets a resumed run's options of a scaling that was replaced to their defaults. */
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

/* Rates that depend on the length of a text cannot be used for several texts at once. */
static hark_status check_lengths(hark_context *context, hark_options *set, const hark_config *config) {
  const int scaling = config->model.rotary.scaling;
  if (scaling != HARK_ROTARY_DYNAMIC && scaling != HARK_ROTARY_LONGROPE) return HARK_OK;
  const bool decoder = config->model.architecture == HARK_ARCHITECTURE_DECODER;
  if (decoder && !hark_config_has_examples(config) && !hark_config_has_sentences(config)) return HARK_OK;
  return hark_options_complain(context, set, ROTARY "scaling model.architecture data.format data.unit",
                               "%s depends on the length of a text, expected a decoder that reads texts one by one, no %s",
                               scaling == HARK_ROTARY_DYNAMIC ? "dynamic" : "longrope",
                               decoder ? "sentences and examples" : "other architecture");
}

/* Reports missing options of a scaling, and conflicting ones. */
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

/* Checks ranges and lengths of lists, as a network does. */
static hark_status check_numbers(hark_context *context, hark_options *set, const hark_config *config) {
  hark_rotary_tuning tuning;
  const hark_rotary_spec spec = hark_stack_rotary(&config->model, &tuning);
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
  HARK_TRY(hark_config_read_list(context, set, config, ROTARY "short_factor", NULL, FACTORS));
  HARK_TRY(hark_config_read_list(context, set, config, ROTARY "long_factor", NULL, FACTORS));
  if (!scaled || !rotary || learned) return HARK_OK;
  HARK_TRY(check_lengths(context, set, config));
  if (hark_options_problem_count(set) == problems) HARK_TRY(check_given(context, set, config));
  return hark_options_problem_count(set) == problems ? check_numbers(context, set, config) : HARK_OK;
}

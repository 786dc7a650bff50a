/* config_rotary.c - see config_rotary.h. */
#include "train/config_rotary.h"
#include "models/model_rules.h"

#include <string.h>

#define ROTARY "model.rotary."
#define MORE ", one per pair"

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
static hark_status check_data(hark_context *context, hark_options *set, const hark_config *config) {
  const int scaling = config->model.rotary.scaling;
  char word[HARK_OPTION_WORD_BYTES];
  if (scaling != HARK_ROTARY_DYNAMIC && scaling != HARK_ROTARY_LONGROPE) return HARK_OK;
  if (config->model.architecture != HARK_ARCHITECTURE_DECODER) return HARK_OK; /* violates a rule of models */
  if (!hark_config_has_examples(config) && !hark_config_has_sentences(config)) return HARK_OK;
  return hark_options_complain(context, set, ROTARY "scaling data.format data.unit",
                               ROTARY
                               "scaling %s depends on the length of a text, expected texts that are read one by one, no sentences "
                               "and examples",
                               hark_rule_scaling(&config->model, word));
}

/* A scaling needs a factor, which may be 1 where it is given. */
static hark_status check_factor(hark_context *context, hark_options *set, const hark_config *config) {
  const hark_rotary_choice *const rotary = &config->model.rotary;
  const bool longrope = rotary->scaling == HARK_ROTARY_LONGROPE;
  if (rotary->scaling_factor != 1 || (longrope && rotary->attention_factor != 0) ||
      hark_options_source(set, ROTARY "scaling_factor") >= hark_options_source(set, ROTARY "scaling"))
    return HARK_OK;
  return hark_options_complain(context, set, ROTARY "scaling " ROTARY "scaling_factor",
                               "a scaling needs " ROTARY "scaling_factor: how many times longer texts become%s",
                               longrope ? ", or " ROTARY "attention_factor" : "");
}

void hark_config_recall_rotary(const hark_options *set, hark_config *config) {
  if (config->model.rotary.scaling == HARK_ROTARY_YARN && hark_options_source(set, ROTARY "scaling") == HARK_SOURCE_RUN &&
      hark_options_source(set, ROTARY "ramp") == HARK_SOURCE_DEFAULT)
    config->model.rotary.ramp = HARK_ROTARY_RAMP_TURNS;
}

hark_status hark_config_settle_rotary(hark_context *context, hark_options *set, hark_config *config) {
  hark_config_recall_rotary(set, config);
  HARK_TRY(forget_others(context, set));
  HARK_TRY(hark_config_read_list(context, set, config, ROTARY "short_factor", MORE));
  return hark_config_read_list(context, set, config, ROTARY "long_factor", MORE);
}

hark_status hark_config_check_rotary(hark_context *context, hark_options *set, const hark_config *config) {
  const hark_rotary_choice *const rotary = &config->model.rotary;
  if (rotary->scaling == HARK_ROTARY_AS_TRAINED || config->model.positions != HARK_POSITIONS_ROTARY) return HARK_OK;
  HARK_TRY(check_data(context, set, config));
  return check_factor(context, set, config);
}

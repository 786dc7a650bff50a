/* model_rules_rotary.c - the rules between options of rotary positions. See model_rules.h. */
#include "models/model_rules.h"
#include "models/stack.h"

static bool is_learned(const hark_network_config *config) { return config->rotary.learned != HARK_ROTARY_STATIC; }
static bool is_scaled(const hark_network_config *config) { return config->rotary.scaling != HARK_ROTARY_AS_TRAINED; }

/* Rates that a scaling changes. */
static bool scales(const hark_network_config *config) { return config->positions == HARK_POSITIONS_ROTARY && is_scaled(config); }

static bool learned_positions(const hark_network_config *config, char *message) {
  return is_learned(config) && config->positions != HARK_POSITIONS_ROTARY &&
         hark_rule_violated(message, "model.rotary.learned needs model.positions rotary");
}

static bool scaled_positions(const hark_network_config *config, char *message) {
  return is_scaled(config) && config->positions != HARK_POSITIONS_ROTARY &&
         hark_rule_violated(message, "model.rotary.scaling needs model.positions rotary");
}

static bool scaling_of_learned(const hark_network_config *config, char *message) {
  return is_learned(config) && config->rotary.scaling == HARK_ROTARY_DYNAMIC &&
         hark_rule_violated(message, "model.rotary.scaling dynamic changes the base of static rates, expected model.rotary.learned none");
}

/* Rates that depend on the length of a text cannot be used for several texts at once. */
static bool depends_on_length(const hark_network_config *config) {
  return scales(config) && (config->rotary.scaling == HARK_ROTARY_DYNAMIC || config->rotary.scaling == HARK_ROTARY_LONGROPE);
}

static bool length_of_decoder(const hark_network_config *config, char *message) {
  char scaling[HARK_OPTION_WORD_BYTES];
  return depends_on_length(config) && config->architecture != HARK_ARCHITECTURE_DECODER &&
         hark_rule_violated(message,
                            "model.rotary.scaling %s depends on the length of a text, expected model.architecture decoder, which reads "
                            "texts one by one",
                            hark_rule_scaling(config, scaling));
}

static bool length_of_sentences(const hark_network_config *config, char *message) {
  char scaling[HARK_OPTION_WORD_BYTES];
  return depends_on_length(config) && config->sentences &&
         hark_rule_violated(message,
                            "model.rotary.scaling %s depends on the length of a text, expected texts that are read one by one, no "
                            "sentences",
                            hark_rule_scaling(config, scaling));
}

static bool lists_of_longrope(const hark_network_config *config, char *message) {
  return scales(config) && config->rotary.scaling == HARK_ROTARY_LONGROPE &&
         (config->rotary.short_factors.count == 0 || config->rotary.long_factors.count == 0) &&
         hark_rule_violated(message,
                            "model.rotary.scaling longrope needs model.rotary.short_factor and model.rotary.long_factor, one number "
                            "per pair each");
}

static bool one_magnitude(const hark_network_config *config, char *message) {
  const hark_rotary_choice *const rotary = &config->rotary;
  return scales(config) && rotary->scaling == HARK_ROTARY_YARN && rotary->attention_factor != 0 &&
         (rotary->mscale != 0 || rotary->mscale_all_dim != 0) &&
         hark_rule_violated(message,
                            "model.rotary.attention_factor replaces model.rotary.mscale and model.rotary.mscale_all_dim, expected "
                            "one or the others");
}

static bool ramp_of_pairs(const hark_network_config *config, char *message) {
  return scales(config) && config->rotary.scaling == HARK_ROTARY_YARN && config->rotary.ramp == HARK_ROTARY_RAMP_TURNS &&
         !config->rotary.truncate &&
         hark_rule_violated(message,
                            "model.rotary.truncate false needs model.rotary.ramp pair: a ramp in turns has no pairs at its ends to "
                            "truncate");
}

/* The numbers of the scaling; missing lists violate another rule. */
static bool numbers(const hark_network_config *config, char *message) {
  hark_rotary_tuning tuning;
  if (!scales(config) || lists_of_longrope(config, message)) return false;
  const hark_rotary_spec spec = hark_stack_rotary(config, &tuning);
  return !hark_rotary_is_sound(&spec, message);
}

#define ROTARY "model.rotary."
static const hark_model_rule rules[] = {
    {ROTARY "learned model.positions", learned_positions},
    {ROTARY "scaling model.positions", scaled_positions},
    {ROTARY "scaling " ROTARY "learned", scaling_of_learned},
    {ROTARY "scaling model.architecture", length_of_decoder},
    {ROTARY "scaling model.sentences", length_of_sentences},
    {ROTARY "scaling " ROTARY "short_factor " ROTARY "long_factor", lists_of_longrope},
    {ROTARY "attention_factor " ROTARY "mscale " ROTARY "mscale_all_dim", one_magnitude},
    {ROTARY "truncate " ROTARY "ramp", ramp_of_pairs},
    {ROTARY "short_factor " ROTARY "long_factor " ROTARY "beta_fast " ROTARY "beta_slow " ROTARY "low_freq_factor " ROTARY
            "high_freq_factor " ROTARY "mscale " ROTARY "mscale_all_dim " ROTARY "original_context " ROTARY "scaling",
     numbers},
};
const hark_rule_list hark_rules_of_rotary = {rules, (int)(sizeof rules / sizeof *rules)};

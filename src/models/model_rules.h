/* model_rules.h - the rules between options of a model, in one list for networks and for the trainer.
 *
 * The ranges of single options are in their table (model_options.h), and so is what an option needs to have an effect. The rules here
 * concern several options, or options and what the data determine (vocabulary, classes, features). A network refuses a configuration with
 * the first rule that it violates. The trainer reports all rules that do not concern the data, before it has read any.
 *
 * A rule is a row: the options concerned, and a function that tests a configuration and prints the message. The rows are in model_rules.c,
 * model_rules_rotary.c, model_rules_vectors.c and model_rules_ahca.c. tests/train/test_model_rules.c violates each of them.
 */
#ifndef HARK_MODELS_MODEL_RULES_H
#define HARK_MODELS_MODEL_RULES_H

#include "models/network_config.h"
#include "options/option.h"

typedef struct hark_model_rule {
  const char *options; /* names of the options concerned, separated by blanks; the most likely cause first */
  /* True if the configuration violates the rule; the message is then printed to message[HARK_MESSAGE_BYTES]. Numbers of layers, heads and
   * features are at least 1. */
  bool (*violated)(const hark_network_config *config, char *message);
} hark_model_rule;

/* Receives a violated rule. A status other than HARK_OK ends the check. */
typedef hark_status (*hark_rule_report)(void *data, const char *options, const char *message);

/* Reports every violated rule, in the order of the list. Without data_known, rules that concern what the data determine are left out. The
 * numbers of layers, heads and features must be at least 1. Returns the status of the last report. */
HARK_MUST_CHECK hark_status hark_model_rules_check(const hark_network_config *config, bool data_known, hark_rule_report report, void *data);

/* Refuses a configuration with the first rule that it violates. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_model_rules_require(hark_context *context, const hark_network_config *config);

/* Rule number `index` of the list; NULL when there are no more. */
const hark_model_rule *hark_model_rule_at(int index);
/* True if one of its options is determined by the data. */
bool hark_model_rule_concerns_data(const hark_model_rule *rule);

/* For rules: prints the message and returns true. */
bool hark_rule_violated(char *message, const char *format, ...) HARK_PRINTF(2, 3);

/* The word of the configuration's rotary scaling. Returns out. */
const char *hark_rule_scaling(const hark_network_config *config, char out[HARK_OPTION_WORD_BYTES]);

/* The parts of the list. */
typedef struct hark_rule_list {
  const hark_model_rule *rules;
  int count;
} hark_rule_list;
extern const hark_rule_list hark_rules_of_all, hark_rules_of_rotary, hark_rules_of_vectors, hark_rules_of_ahca;

#endif

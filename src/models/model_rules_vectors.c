/* model_rules_vectors.c - the rules for real vectors, and for the architectures that only read them. See model_rules.h. */
#include <inttypes.h>

#include "models/latent.h"
#include "models/model_rules.h"

#define MOST_HEADS 65536 /* of all layers: limits the memory that a description of a few bytes can request */

static const hark_architecture *architecture_of(const hark_network_config *config) { return hark_architecture_of(config->architecture); }
static bool is_latent(const hark_network_config *config) { return config->architecture == HARK_ARCHITECTURE_LATENT; }
static bool is_single(const hark_network_config *config) { return is_latent(config) && config->latent.form == HARK_LATENT_FORM_SINGLE; }

/* Only real vectors: latent, finite and regressor. */
static bool reads_vectors(const hark_network_config *config) { return architecture_of(config)->predicts_vectors; }
/* The networks of theorems: latent and finite. */
static bool is_theoretical(const hark_network_config *config) { return reads_vectors(config) && !architecture_of(config)->reads_tables; }

/* ---- vectors ---- */

static bool both_of_vectors(const hark_network_config *config, char *message) {
  return (config->features < 0 || config->responses < 0 || (config->features > 0) != (config->responses > 0)) &&
         hark_rule_violated(message, "vectors of %" PRId64 " features and %" PRId64 " responses, expected both at least 1, or none",
                            config->features, config->responses);
}

static bool tokens_of_architecture(const hark_network_config *config, char *message) {
  return config->features > 0 && !reads_vectors(config) && !architecture_of(config)->may_read_vectors &&
         hark_rule_violated(message,
                            "model.architecture %s reads tokens of a vocabulary, and the data are real vectors of %" PRId64 " features",
                            architecture_of(config)->name, config->features);
}

static bool vectors_of_architecture(const hark_network_config *config, char *message) {
  return reads_vectors(config) && config->features < 1 &&
         hark_rule_violated(message, "model.architecture %s reads real vectors, and the data are tokens of a vocabulary",
                            architecture_of(config)->name);
}

/* ---- latent, finite and regressor ---- */

static bool no_bias(const hark_network_config *config, char *message) {
  return is_theoretical(config) && config->bias &&
         hark_rule_violated(message, "model.architecture %s has no biases, expected model.bias false", architecture_of(config)->name);
}

static bool no_dropout(const hark_network_config *config, char *message) {
  return reads_vectors(config) && (config->dropout > 0 || config->embedding_dropout > 0 || config->attention.dropout > 0) &&
         hark_rule_violated(message,
                            "model.architecture %s has no dropout, expected 0 for model.dropout, model.embedding_dropout and "
                            "model.attention.dropout",
                            architecture_of(config)->name);
}

static bool no_positions(const hark_network_config *config, char *message) {
  return reads_vectors(config) && config->positions != HARK_POSITIONS_NONE &&
         hark_rule_violated(message, "model.architecture %s reads exchangeable tokens, expected model.positions none",
                            architecture_of(config)->name);
}

static bool no_positional(const hark_network_config *config, char *message) {
  return reads_vectors(config) && config->positional != NULL && config->positional[0] != '\0' &&
         hark_rule_violated(message, "model.architecture %s reads exchangeable tokens, expected no model.positional",
                            architecture_of(config)->name);
}

static bool dense_structure(const hark_network_config *config, char *message) {
  return reads_vectors(config) && !hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_DENSE) &&
         hark_rule_violated(message, "model.architecture %s attends densely, expected model.attention.structure dense",
                            architecture_of(config)->name);
}

static bool softmax_normalisation(const hark_network_config *config, char *message) {
  return is_theoretical(config) && !hark_layer_choice_is(&config->attention.normalisation, HARK_NORMALISATION_SOFTMAX) &&
         hark_rule_violated(message, "model.architecture %s attends densely by softmax, expected model.attention.normalisation softmax",
                            architecture_of(config)->name);
}

static bool relu_features(const hark_network_config *config, char *message) {
  const bool finite = config->architecture == HARK_ARCHITECTURE_FINITE && config->finite.map == HARK_FINITE_MAP_NETWORK;
  return (finite || is_latent(config)) && config->activation != HARK_ACTIVATION_RELU &&
         hark_rule_violated(message, "model.architecture %s has features relu(x A), expected model.activation relu",
                            architecture_of(config)->name);
}

/* ---- latent ---- */

static bool width_of_features(const hark_network_config *config, char *message) {
  return is_latent(config) && config->features > 0 && config->features != config->width &&
         hark_rule_violated(message, "latent adds to the tokens themselves: they have %" PRId64 " features, and model.width is %" PRId64,
                            config->features, config->width);
}

static bool number_of_heads(const hark_network_config *config, char *message) {
  return is_latent(config) && config->heads > MOST_HEADS / config->layers &&
         hark_rule_violated(
             message, "latent has matrices for every head: model.layers %" PRId64 " times model.heads %" PRId64 ", expected at most %d",
             config->layers, config->heads, MOST_HEADS);
}

static bool single_layer(const hark_network_config *config, char *message) {
  return is_single(config) && config->layers != 1 &&
         hark_rule_violated(message, "model.latent.form single is one layer of features, expected model.layers 1");
}

static bool single_query(const hark_network_config *config, char *message) {
  return is_single(config) && config->latent.aggregate != HARK_LATENT_AGGREGATE_QUERY &&
         hark_rule_violated(message, "model.latent.form single has a class query, expected model.latent.aggregate query");
}

static const hark_model_rule rules[] = {
    {"model.architecture model.features", vectors_of_architecture},
    {"model.features model.responses", both_of_vectors},
    {"model.architecture model.features", tokens_of_architecture},
    {"model.bias model.architecture", no_bias},
    {"model.dropout model.embedding_dropout model.attention.dropout model.architecture", no_dropout},
    {"model.positions model.architecture", no_positions},
    {"model.positional model.architecture", no_positional},
    {"model.attention.structure model.architecture", dense_structure},
    {"model.attention.normalisation model.architecture", softmax_normalisation},
    {"model.activation model.architecture model.finite.map", relu_features},
    {"model.width model.features", width_of_features},
    {"model.layers model.heads model.architecture", number_of_heads},
    {"model.layers model.latent.form", single_layer},
    {"model.latent.aggregate model.latent.form", single_query},
};
const hark_rule_list hark_rules_of_vectors = {rules, (int)(sizeof rules / sizeof *rules)};

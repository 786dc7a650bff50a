/* finite.c - the finite-dimensional example of X (Zhang et al., arXiv 2212.14852), examples 3.3 to 3.13: in-context regression.
 *
 *     r_l = z c_l + noise,  c_l = c(x_l), r_l = r(x_l);   z^ = R' C (C'C + lambda I)^-1;   y = z^ c^m(msk)
 *
 * A sequence is tokens x_1 .. x_L and then the input mask msk, whose response is to be predicted. c, r and c^m are learned, linear or with
 * one hidden layer of model.feed_forward_width features relu(x A); lambda is learned with model.finite.ridge_learned. They are determined
 * up to maps that do not change z^ c^m. lambda is the variance of the noise divided by that of z's prior
 * (docs/mathematics/latent-variables.md).
 *
 * Parameters: covariate.weight [c, d], response.weight [r, d], query.weight [c, d]; with map network covariate.weight [c, F] and
 * covariate.up.weight [F, d], ..; log_ridge [1].
 */
#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "io/number.h"
#include "models/latent.h"

typedef struct hark_finite_layers {
  hark_linear up[3], maps[3]; /* in the order of MAPS; up: hidden layers, if there are any */
  hark_parameter_id log_ridge;
} finite_layers;

enum { COVARIATE, RESPONSE, QUERY, MAPS };
static const char *const map_names[MAPS] = {"covariate", "response", "query"};

static bool is_linear(const hark_network_config *config) { return config->finite.map == HARK_FINITE_MAP_LINEAR; }

static hark_status check(hark_context *context, const hark_network_config *config) {
  if (config->finite.covariates < 1 || config->finite.covariates > 1 << 15)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.finite.covariates is %" PRId64 ", expected 1 to 32768",
                     config->finite.covariates);
  if (!(config->finite.ridge > 0) || !isfinite(config->finite.ridge))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.finite.ridge is %s, expected a finite number above 0",
                     HARK_PRINTED(config->finite.ridge));
  return HARK_OK;
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const hark_finite_config *finite = &config->finite;
  const int64_t in = config->features, outs[MAPS] = {finite->covariates, config->responses, finite->covariates};
  const int64_t inner = is_linear(config) ? in : config->feed_forward_width;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(finite_layers), &memory));
  network->finite = memory;
  for (int i = 0; i < MAPS; i++) {
    char name[HARK_PARAMETER_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s.up", map_names[i]);
    if (!is_linear(config))
      HARK_TRY(hark_linear_declare(context, &network->parameters, in, inner, false, 1 / sqrt((double)in), name, &network->finite->up[i]));
    HARK_TRY(hark_linear_declare(context, &network->parameters, inner, outs[i], false, 1 / sqrt((double)inner), map_names[i],
                                 &network->finite->maps[i]));
  }
  if (!finite->ridge_learned) return HARK_OK;
  const hark_parameter_spec ridge = {.rank = 1, .shape = {1}, .initial = HARK_INITIAL_CONSTANT, .value = log(finite->ridge)};
  return hark_parameters_add(context, &network->parameters, &ridge, &network->finite->log_ridge, "log_ridge");
}

static void close(hark_context *context, hark_network *network) {
  hark_release(context, network->finite, sizeof(finite_layers));
  network->finite = NULL;
}

/* The caller keeps x. */
static hark_status apply_map(const hark_network *network, const hark_forward *forward, int map, hark_value x, hark_value *out) {
  hark_value inner = 0;
  if (is_linear(&network->config)) return hark_linear_apply(forward, &network->finite->maps[map], x, out);
  HARK_TRY(hark_linear_apply(forward, &network->finite->up[map], x, &inner));
  HARK_TRY(hark_tape_apply(forward->tape, &hark_op_relu, NULL, 1, &inner, 1, &inner));
  HARK_TRY(hark_linear_apply(forward, &network->finite->maps[map], inner, out));
  hark_tape_release(forward->tape, inner);
  return HARK_OK;
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  enum { ROWS, LENGTHS, RANGES, POOL_INPUTS };                                   /* of pool */
  enum { RIDGE_COVARIATE, RIDGE_RESPONSE, RIDGE_QUERY, OFFSETS, RIDGE, INPUTS }; /* of linear_ridge */
  static const hark_pool_attributes last = {.kind = HARK_POOL_LAST};
  const hark_linear_ridge_attributes ridge = {.ridge = network->config.finite.ridge, .held_out = 1};
  hark_tape *tape = forward->tape;
  hark_value pooled[POOL_INPUTS] = {0}, inputs[INPUTS] = {0}, msk = 0;
  if (input->ranges == NULL || input->vectors == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "finite: no vectors, expected [1, T, features] and ranges of examples [N, 1, 2]");
  pooled[ROWS] = input->vectors;
  HARK_TRY(hark_tape_leaf(tape, input->ranges, NULL, &pooled[RANGES]));
  HARK_TRY(hark_tape_apply(tape, &hark_op_pool, &last, POOL_INPUTS, pooled, 0, &msk));
  HARK_TRY(hark_tape_apply(tape, &hark_op_range_offsets, NULL, 1, &pooled[RANGES], 0, &inputs[OFFSETS]));
  HARK_TRY(apply_map(network, forward, COVARIATE, input->vectors, &inputs[RIDGE_COVARIATE]));
  HARK_TRY(apply_map(network, forward, RESPONSE, input->vectors, &inputs[RIDGE_RESPONSE]));
  HARK_TRY(apply_map(network, forward, QUERY, msk, &inputs[RIDGE_QUERY]));
  hark_tape_release(tape, msk);
  HARK_TRY(hark_forward_parameter(forward, network->finite->log_ridge, &inputs[RIDGE]));
  return hark_tape_apply(tape, &hark_op_linear_ridge, &ridge, INPUTS, inputs,
                         1u << RIDGE_COVARIATE | 1u << RIDGE_RESPONSE | 1u << RIDGE_QUERY, out);
}

const hark_architecture hark_architecture_finite = {
    .name = "finite",
    .summary = "in-context ridge regression on learned covariates and responses: real vectors to a real vector (X, section 3)",
    .predicts_vectors = true,
    .check = check,
    .declare = declare,
    .close = close,
    .logits = logits,
};

/* latent.c - see latent.h. */
#include "models/latent.h"
#include "io/number.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_single(const hark_network_config *config) { return config->latent.form == HARK_LATENT_FORM_SINGLE; }
static bool has_query(const hark_network_config *config) { return config->latent.aggregate == HARK_LATENT_AGGREGATE_QUERY; }

static hark_status check(hark_context *context, const hark_network_config *config) {
  const hark_latent_config *latent = &config->latent;
  if (config->attention.kernel == HARK_KERNEL_RBF && !(config->attention.sigma > 0 && isfinite(config->attention.sigma)))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.attention.sigma is %s, expected a finite number above 0",
                     HARK_PRINTED(config->attention.sigma));
  if (!(latent->operator_norm >= 0) || !(latent->matrix_norm >= 0) || !(latent->range >= 0) || !isfinite(latent->range))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.latent.operator_norm is %s, matrix_norm %s, range %s, expected numbers of 0 or more",
                     HARK_PRINTED(latent->operator_norm), HARK_PRINTED(latent->matrix_norm), HARK_PRINTED(latent->range));
  return HARK_OK;
}

/* ---- parameters ---- */

/* Declares a weight with the configuration's bounds, or with a bound on the operator norm only. */
static hark_status declare_matrix(hark_context *context, hark_network *network, int64_t in, int64_t out, double operator_norm,
                                  const char *name, hark_linear *layer) {
  const hark_latent_config *latent = &network->config.latent;
  hark_parameter_spec spec = {.rank = 2, .shape = {out, in}, .initial = HARK_INITIAL_NORMAL, .value = 1 / sqrt((double)in), .decays = true};
  if (operator_norm > 0 && latent->norm != HARK_BOUND_FREE)
    spec.bound = (hark_norm_bound){(hark_bound_norm)latent->norm, operator_norm, 0};
  else if (latent->operator_norm > 0 || latent->matrix_norm > 0)
    spec.bound = (hark_norm_bound){(hark_bound_norm)latent->norm, latent->operator_norm, latent->matrix_norm};
  *layer = (hark_linear){0};
  return hark_parameters_add(context, &network->parameters, &spec, &layer->weight, "%s.weight", name);
}

/* Declares msk. The r-norm of a row vector is the operator norm of its matrix for the conjugate of r. */
static hark_status declare_class(hark_context *context, hark_network *network, hark_parameter_id *out) {
  static const hark_bound_norm conjugate[] = {HARK_BOUND_FREE, HARK_BOUND_INFINITY, HARK_BOUND_TWO, HARK_BOUND_ONE};
  const hark_network_config *config = &network->config;
  const hark_parameter_spec spec = {.rank = 2,
                                    .shape = {1, config->width},
                                    .initial = HARK_INITIAL_NORMAL,
                                    .value = 1 / sqrt((double)config->width),
                                    .decays = true,
                                    .bound = {conjugate[config->latent.norm], 1, 0}};
  return hark_parameters_add(context, &network->parameters, &spec, out, "aggregate.class.weight");
}

static hark_status declare_heads(hark_context *context, hark_network *network, const char *prefix, hark_latent_head *heads) {
  const hark_network_config *config = &network->config;
  const int64_t width = config->width, head_dim = hark_network_head_dim(config);
  for (int64_t i = 0; i < config->heads; i++) {
    const struct {
      const char *name;
      int64_t out;
      hark_linear *layer;
    } parts[] = {{"query", head_dim, &heads[i].query}, {"key", head_dim, &heads[i].key}, {"value", width, &heads[i].value}};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
      char name[HARK_PARAMETER_NAME_BYTES];
      (void)snprintf(name, sizeof name, "%s.heads.%" PRId64 ".%s", prefix, i, parts[p].name);
      HARK_TRY(declare_matrix(context, network, width, parts[p].out, 0, name, parts[p].layer));
    }
  }
  return HARK_OK;
}

static hark_status declare_layer(hark_context *context, hark_network *network, int64_t number, hark_latent_layer *layer) {
  const hark_network_config *config = &network->config;
  char name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward.up", number);
  HARK_TRY(declare_matrix(context, network, config->width, config->feed_forward_width, 0, name, &layer->up));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64 ".feed_forward.down", number);
  HARK_TRY(declare_matrix(context, network, config->feed_forward_width, config->width, 0, name, &layer->down));
  (void)snprintf(name, sizeof name, "blocks.%" PRId64, number);
  return declare_heads(context, network, name, layer->heads);
}

static hark_status allocate_layers(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const int64_t layers = is_single(config) ? 0 : config->layers, heads = (layers + 1) * config->heads;
  size_t bytes = 0, head_bytes = 0;
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(context, (size_t)heads, sizeof(hark_latent_head), &head_bytes));
  HARK_TRY(hark_size_add(context, sizeof(hark_latent_layers) + (size_t)layers * sizeof(hark_latent_layer), head_bytes, &bytes));
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  hark_latent_layers *own = network->latent = memory;
  own->bytes = bytes;
  own->layers = (hark_latent_layer *)(own + 1);
  own->aggregate = (hark_latent_head *)(own->layers + layers);
  for (int64_t i = 0; i < layers; i++) own->layers[i].heads = own->aggregate + (i + 1) * config->heads;
  return HARK_OK;
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  HARK_TRY(allocate_layers(context, network));
  hark_latent_layers *own = network->latent;
  if (is_single(config)) HARK_TRY(declare_matrix(context, network, config->width, config->width, 0, "features", &own->features));
  for (int64_t i = 0; !is_single(config) && i < config->layers; i++) HARK_TRY(declare_layer(context, network, i, &own->layers[i]));
  if (has_query(config)) {
    HARK_TRY(declare_class(context, network, &own->class_encoding));
    HARK_TRY(declare_heads(context, network, "aggregate", own->aggregate));
  }
  return declare_matrix(context, network, config->width, config->responses, 1, "head", &network->head);
}

static void close(hark_context *context, hark_network *network) {
  if (network->latent != NULL) hark_release(context, network->latent, network->latent->bytes);
  network->latent = NULL;
}

/* ---- a pass ---- */

typedef struct pass {
  const hark_network *network;
  const hark_forward *forward;
  hark_tape *tape;
  int64_t sequences;
  hark_value offsets; /* of sequences in tokens */
} pass;

/* x W, or relu(x W). The caller keeps x. */
static hark_status features(const pass *p, const hark_linear *layer, hark_value x, hark_value *out) {
  hark_value inner = 0;
  HARK_TRY(hark_linear_apply(p->forward, layer, x, &inner));
  return hark_tape_apply(p->tape, &hark_op_relu, NULL, 1, &inner, 1, out);
}

static int64_t rows_of(const pass *p, hark_value value) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  return hark_tensor_count(tensor) / tensor->shape[tensor->rank - 1];
}

/* One head: rows of `from` attend to rows of x, sequence by sequence. The caller keeps both. */
static hark_status attend(const pass *p, const hark_latent_head *head, hark_value from, hark_value from_offsets, hark_value x,
                          hark_value *out) {
  enum { QUERY, KEY, VALUE, QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS }; /* the operator's */
  const hark_network_config *config = &p->network->config;
  hark_value inputs[INPUTS] = {[QUERY_OFFSETS] = from_offsets, [KEY_OFFSETS] = p->offsets};
  hark_attention_attributes attributes = {.own = {.desc = hark_attention_desc_default()}, .keys_of_a_query = p->forward->packing->longest};
  hark_attention_desc *desc = &attributes.own.desc;
  desc->kernel = config->attention.kernel;
  if (config->attention.kernel == HARK_KERNEL_RBF) desc->sigma = config->attention.sigma;
  desc->batch = desc->heads = 1;
  desc->head_dim = hark_network_head_dim(config);
  desc->value_dim = config->width;
  desc->query_length = rows_of(p, from);
  desc->key_length = rows_of(p, x);
  desc->max_sequences = p->sequences + 1;
  desc->forward_only = !p->forward->training;
  HARK_TRY(hark_linear_apply(p->forward, &head->query, from, &inputs[QUERY]));
  HARK_TRY(hark_linear_apply(p->forward, &head->key, x, &inputs[KEY]));
  HARK_TRY(hark_linear_apply(p->forward, &head->value, x, &inputs[VALUE]));
  return hark_tape_apply(p->tape, &hark_op_attention, &attributes, INPUTS, inputs, 1u << QUERY | 1u << KEY | 1u << VALUE, out);
}

/* The sum over heads. */
static hark_status attend_all(const pass *p, const hark_latent_head *heads, hark_value from, hark_value from_offsets, hark_value x,
                              hark_value *out) {
  HARK_TRY(attend(p, &heads[0], from, from_offsets, x, out));
  for (int64_t i = 1; i < p->network->config.heads; i++) {
    hark_value one = 0;
    HARK_TRY(attend(p, &heads[i], from, from_offsets, x, &one));
    HARK_TRY(hark_forward_add(p->forward, *out, one, out));
  }
  return HARK_OK;
}

/* x + y, or y without skip connections. y is consumed; the caller keeps x, which is used elsewhere too. */
static hark_status skip(const pass *p, hark_value x, hark_value y, hark_value *out) {
  const hark_value parts[] = {x, y};
  *out = y;
  return p->network->config.latent.skip ? hark_tape_apply(p->tape, &hark_op_add, NULL, 2, parts, 1u << 1, out) : HARK_OK;
}

static hark_status run_layer(const pass *p, const hark_latent_layer *layer, hark_value x, hark_value *out) {
  hark_value inner = 0, branch = 0, z = 0, mixed = 0;
  HARK_TRY(features(p, &layer->up, x, &inner));
  HARK_TRY(hark_linear_apply(p->forward, &layer->down, inner, &branch));
  hark_tape_release(p->tape, inner);
  HARK_TRY(skip(p, x, branch, &z));
  HARK_TRY(attend_all(p, layer->heads, z, p->offsets, z, &mixed));
  HARK_TRY(skip(p, z, mixed, out));
  hark_tape_release(p->tape, z);
  return HARK_OK;
}

/* msk, once for every sequence: [sequences, d]; and the offsets of these rows. */
static hark_status class_rows(const pass *p, hark_value *rows, hark_value *offsets) {
  const hark_segment_slots_attributes one = {1, 0, false};
  const hark_segment_index_attributes index = {p->sequences, 0, 0, false};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0}, inputs[2] = {0};
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_segment_slots, &one, 1, &p->offsets, 0, offsets));
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_segment_index, &index, 1, offsets, 0, outputs)); /* the first output is the position: 0 */
  inputs[0] = outputs[0];
  HARK_TRY(hark_forward_parameter(p->forward, p->network->latent->class_encoding, &inputs[1]));
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_embedding, NULL, 2, inputs, 0, rows));
  hark_tape_release(p->tape, outputs[1]);
  hark_tape_release(p->tape, outputs[2]);
  return HARK_OK;
}

/* Releases x. */
static hark_status aggregate(const pass *p, hark_value ranges, hark_value x, hark_value *out) {
  enum { ROWS, LENGTHS, RANGES, INPUTS }; /* of pool */
  const hark_latent_layers *own = p->network->latent;
  if (!has_query(&p->network->config)) {
    const hark_pool_attributes mean = {.kind = HARK_POOL_MEAN};
    const hark_value inputs[INPUTS] = {[ROWS] = x, [RANGES] = ranges};
    return hark_tape_apply(p->tape, &hark_op_pool, &mean, INPUTS, inputs, 1u << ROWS, out);
  }
  hark_value msk = 0, offsets = 0;
  HARK_TRY(class_rows(p, &msk, &offsets));
  if (is_single(&p->network->config)) {
    hark_value encoded = msk;
    HARK_TRY(features(p, &own->features, encoded, &msk));
    hark_tape_release(p->tape, encoded);
  }
  HARK_TRY(attend_all(p, own->aggregate, msk, offsets, x, out));
  hark_tape_release(p->tape, msk);
  hark_tape_release(p->tape, x);
  return HARK_OK;
}

static hark_status run(const pass *p, const hark_network_input *input, hark_value ranges, hark_value *out) {
  const hark_network_config *config = &p->network->config;
  hark_value x = input->vectors, pooled = 0;
  if (is_single(config)) {
    HARK_TRY(features(p, &p->network->latent->features, input->vectors, &x));
  }
  for (int64_t i = 0; !is_single(config) && i < config->layers; i++) {
    hark_value y = 0;
    HARK_TRY(run_layer(p, &p->network->latent->layers[i], x, &y));
    if (x != input->vectors) hark_tape_release(p->tape, x);
    x = y;
  }
  HARK_TRY(aggregate(p, ranges, x, &pooled));
  HARK_TRY(hark_linear_apply(p->forward, &p->network->head, pooled, out));
  hark_tape_release(p->tape, pooled);
  if (config->latent.range == 0) return HARK_OK;
  const hark_ball_attributes ball = {config->latent.range};
  return hark_tape_apply(p->tape, &hark_op_ball, &ball, 1, out, 1, out);
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  if (input->ranges == NULL || input->vectors == 0 || forward->packing == NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "latent: no vectors, expected [1, T, features] and ranges of examples [N, 1, 2]");
  pass p = {.network = network, .forward = forward, .tape = forward->tape, .sequences = input->ranges->shape[0]};
  hark_value ranges = 0;
  HARK_TRY(hark_tape_leaf(p.tape, input->ranges, NULL, &ranges));
  HARK_TRY(hark_tape_apply(p.tape, &hark_op_range_offsets, NULL, 1, &ranges, 0, &p.offsets));
  return run(&p, input, ranges, out);
}

const hark_architecture hark_architecture_latent = {
    .name = "latent",
    .summary = "the networks of a theorem: real vectors to a real vector, with bounded matrices (X, sections 5 and C)",
    .predicts_vectors = true,
    .check = check,
    .declare = declare,
    .close = close,
    .logits = logits,
};

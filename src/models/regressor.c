/* regressor.c - see regressor.h. */
#include "models/regressor.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "io/number.h"
#include "models/stack.h"

/* Initial values: length scales of the processes are 1 / gate, from 2 to 1/8 of the inputs' unit; noise is a tenth of the variance. */
#define LEAST_GATE 0.5
#define MOST_GATE 8.0
#define INITIAL_NOISE 0.1
#define PRIORS 3
#define CLASS_SCALES 2 /* of class_logits */
#define INITIAL_CLASS_SCALE 1

static hark_status check(hark_context *context, const hark_network_config *config) {
  const hark_regressor_config *own = &config->regressor;
  if (own->processes < 1 || own->processes > HARK_POSTERIOR_MIXTURE_HEADS)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.regressor.processes is %" PRId64 ", expected 1 to %d", own->processes,
                     HARK_POSTERIOR_MIXTURE_HEADS);
  if (own->features < 1 || own->features > 1 << 16)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.regressor.features is %" PRId64 ", expected 1 to 65536", own->features);
  if (own->loss == HARK_REGRESSOR_LOSS_CLASSES && (config->responses < 2 || config->responses > HARK_CLASS_MOST))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "a regressor of classes has %" PRId64 " of them, expected 2 to %d", config->responses,
                     HARK_CLASS_MOST);
  if (!(own->least_noise > 0) || !isfinite(own->least_noise))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.regressor.least_noise is %s, expected a finite number above 0",
                     HARK_PRINTED(own->least_noise));
  return HARK_OK;
}

static bool smooths(const hark_network *network) { return network->config.regressor.head == HARK_REGRESSOR_HEAD_SMOOTHER; }

/* ---- parameters ---- */

/* x with log(1 + exp(x)) = y > 0 */
static double softplus_inverse(double y) { return y + log(-expm1(-y)); }

static hark_status allocate_layers(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const size_t gates = (size_t)(config->regressor.processes * config->regressor.features) * sizeof(double);
  const size_t blocks = hark_align_up((size_t)config->layers * sizeof(hark_block)), front = hark_align_up(sizeof(hark_regressor_layers));
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, front + blocks + gates, &memory));
  hark_regressor_layers *own = network->regressor = memory;
  own->bytes = front + blocks + gates;
  own->blocks = (void *)((char *)memory + front);
  own->initial_gate = (void *)((char *)own->blocks + blocks);
  return HARK_OK;
}

/* Gates of the processes are geometric. */
static void set_initial(const hark_network *network) {
  const hark_regressor_config *config = &network->config.regressor;
  for (int64_t p = 0; p < config->processes; p++) {
    const double part = config->processes > 1 ? (double)p / (double)(config->processes - 1) : 0.5;
    for (int64_t i = 0; i < config->features; i++)
      network->regressor->initial_gate[p * config->features + i] = softplus_inverse(LEAST_GATE * pow(MOST_GATE / LEAST_GATE, part));
  }
}

static hark_status declare_blocks(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const double deviation = hark_stack_deviation(config), output_deviation = deviation / sqrt(2.0 * (double)config->layers);
  for (int64_t layer = 0; layer < config->layers; layer++) {
    const hark_self_attention_spec attention = {
        .width = config->width,
        .head_dim = hark_network_head_dim(config),
        .heads = config->heads,
        .key_heads = config->key_heads,
        .bias = config->bias,
        .output_bias = config->bias,
        .deviation = deviation,
        .output_deviation = output_deviation,
        .choice = config->attention,
        .structure = HARK_STRUCTURE_DENSE,
        .normalisation = (hark_attention_normalisation)hark_layer_choice_of(&config->attention.normalisation, layer),
        .ridge = config->attention.ridge * pow((double)config->context, config->attention.ridge_power)};
    HARK_TRY(hark_stack_declare_block(context, network, &attention, output_deviation, "blocks", layer, &network->regressor->blocks[layer]));
  }
  return hark_norm_declare(context, &network->parameters, config->norm, config->norm_epsilon, config->width, config->bias, "final_norm",
                           &network->final_norm);
}

/* A linear layer whose bias has one value. */
static hark_status declare_level(hark_context *context, hark_network *network, int64_t out, double level, const char *prefix,
                                 hark_linear *layer) {
  const hark_parameter_spec bias = {.rank = 1, .shape = {out}, .initial = HARK_INITIAL_CONSTANT, .value = level};
  HARK_TRY(hark_linear_declare(context, &network->parameters, network->config.width, out, false, hark_stack_deviation(&network->config),
                               prefix, layer));
  return hark_parameters_add(context, &network->parameters, &bias, &layer->bias, "%s.bias", prefix);
}

static hark_status declare_head(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const int64_t processes = config->regressor.processes, features = processes * config->regressor.features;
  hark_parameters *parameters = &network->parameters;
  hark_regressor_layers *own = network->regressor;
  const hark_parameter_spec gate = {.rank = 1, .shape = {features}, .initial = HARK_INITIAL_GIVEN, .given = own->initial_gate};
  /* logarithms, which move far */
  const hark_parameter_spec prior = {.rank = 1, .shape = {PRIORS}, .initial = HARK_INITIAL_ZERO, .rate = HARK_RATE_POSITIONAL};
  const hark_parameter_spec scale = {
      .rank = 1, .shape = {CLASS_SCALES}, .initial = HARK_INITIAL_CONSTANT, .value = INITIAL_CLASS_SCALE, .rate = HARK_RATE_POSITIONAL};

  HARK_TRY(hark_linear_declare(context, parameters, config->features, features, false, 1 / sqrt((double)config->regressor.features),
                               "head.input", &own->kernel_input));
  HARK_TRY(
      hark_linear_declare(context, parameters, config->width, features, false, hark_stack_deviation(config), "head.row", &own->kernel_row));
  HARK_TRY(hark_linear_declare(context, parameters, config->width, features, false, hark_stack_deviation(config), "head.gate", &own->gate));
  HARK_TRY(hark_parameters_add(context, parameters, &gate, &own->gate.bias, "head.gate.bias"));
  HARK_TRY(declare_level(context, network, processes, softplus_inverse(INITIAL_NOISE), "head.noise", &own->noise));
  HARK_TRY(declare_level(context, network, processes, 0, "head.logit", &own->logit));
  if (!smooths(network)) HARK_TRY(hark_parameters_add(context, parameters, &prior, &own->prior, "head.prior"));
  if (config->regressor.loss != HARK_REGRESSOR_LOSS_CLASSES) return HARK_OK;
  return hark_parameters_add(context, parameters, &scale, &own->class_scale, "head.class_scale");
}

static hark_status declare(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const double deviation = 1 / sqrt((double)config->features);
  HARK_TRY(allocate_layers(context, network));
  hark_regressor_layers *own = network->regressor;
  set_initial(network);
  HARK_TRY(hark_linear_declare(context, &network->parameters, config->features, config->width, true, deviation, "input", &own->input));
  HARK_TRY(hark_linear_declare(context, &network->parameters, config->responses, config->width, false, 1 / sqrt((double)config->responses),
                               "target", &own->target));
  HARK_TRY(declare_blocks(context, network));
  return declare_head(context, network);
}

static void close(hark_context *context, hark_network *network) {
  if (network->regressor != NULL) hark_release(context, network->regressor, network->regressor->bytes);
  network->regressor = NULL;
}

/* ---- a pass ---- */

hark_status hark_regressor_plan(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes, bool training,
                                hark_attention_plan **out) {
  const hark_network_config *config = &network->config;
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = network->parameters.type;
  desc.normalisation = smooths(network) ? HARK_NORMALISATION_SOFTMAX : HARK_NORMALISATION_CME;
  desc.kernel = HARK_KERNEL_RBF;
  desc.sigma = 1;
  desc.batch = 1;
  desc.heads = config->regressor.processes;
  desc.head_dim = config->regressor.features;
  desc.value_dim = smooths(network) ? 2 * config->responses : config->responses;
  desc.query_length = sizes->queries;
  desc.key_length = sizes->keys;
  desc.max_sequences = sizes->sequences;
  desc.longest = sizes->longest;
  if (!smooths(network)) desc.solver = sizes->solver;
  desc.forward_only = !training;
  desc.has_noise = !smooths(network);
  desc.has_dvariance = desc.has_dlog_determinant = desc.has_dquadratic = training && !smooths(network);
  return hark_attention_plan_create(context, &desc, out);
}

typedef struct pass {
  const hark_network *network;
  const hark_forward *forward;
  hark_tape *tape;
  hark_value context_offsets, query_offsets;
  int64_t tables;
} pass;

/* Keys and values of a block: of all pairs. */
typedef struct keys {
  hark_value key, value;
} keys;

static hark_status make_keys(const pass *p, const hark_block *block, hark_value pairs, keys *out) {
  hark_value x = 0;
  HARK_TRY(hark_norm_apply(p->forward, &block->attention_norm, pairs, &x));
  HARK_TRY(hark_linear_apply(p->forward, &block->attention.key, x, &out->key));
  HARK_TRY(hark_linear_apply(p->forward, &block->attention.value, x, &out->value));
  hark_tape_release(p->tape, x);
  return HARK_OK;
}

/* Queries attend to the pairs of their table; the queries are released. */
static hark_status attend(const pass *p, const hark_block *block, hark_value query, hark_value offsets, const keys *to, hark_value *out) {
  enum { QUERY, KEY, VALUE, QUERY_OFFSETS = 9, KEY_OFFSETS, ATTENTION_INPUTS };                /* of attention */
  enum { LOG_RIDGE = 3, LOG_SIGMA, RIDGE_QUERY_OFFSETS = 7, RIDGE_KEY_OFFSETS, RIDGE_INPUTS }; /* of kernel_ridge */
  const hark_self_attention *layer = &block->attention;
  const hark_attention_plan *plan = p->forward->plans[layer->layer];
  hark_value inputs[HARK_MAX_INPUTS] = {[QUERY] = query, [KEY] = to->key, [VALUE] = to->value};
  if (layer->spec.normalisation == HARK_NORMALISATION_CME) {
    const hark_kernel_ridge_attributes attributes = {.plan = plan, .report = p->forward->report};
    inputs[RIDGE_QUERY_OFFSETS] = offsets;
    inputs[RIDGE_KEY_OFFSETS] = p->context_offsets;
    HARK_TRY(hark_forward_parameter(p->forward, layer->log_ridge, &inputs[LOG_RIDGE]));
    HARK_TRY(hark_forward_parameter(p->forward, layer->log_sigma, &inputs[LOG_SIGMA]));
    return hark_tape_apply(p->tape, &hark_op_kernel_ridge, &attributes, RIDGE_INPUTS, inputs, 1u << QUERY, out);
  }
  const hark_attention_attributes attributes = {.plan = plan, .keys_of_a_query = p->forward->packing->longest};
  inputs[QUERY_OFFSETS] = offsets;
  inputs[KEY_OFFSETS] = p->context_offsets;
  return hark_tape_apply(p->tape, &hark_op_attention, &attributes, ATTENTION_INPUTS, inputs, 1u << QUERY, out);
}

/* *x <- the rows after a block; the rows before it are released. */
static hark_status run_block(const pass *p, const hark_block *block, const keys *to, hark_value offsets, hark_value *x) {
  hark_value normed = 0, query = 0, mixed = 0, branch = 0;
  HARK_TRY(hark_norm_apply(p->forward, &block->attention_norm, *x, &normed));
  HARK_TRY(hark_linear_apply(p->forward, &block->attention.query, normed, &query));
  hark_tape_release(p->tape, normed);
  HARK_TRY(attend(p, block, query, offsets, to, &mixed));
  HARK_TRY(hark_linear_apply(p->forward, &block->attention.output, mixed, &branch));
  hark_tape_release(p->tape, mixed);
  HARK_TRY(hark_forward_add(p->forward, *x, branch, x));
  HARK_TRY(hark_norm_apply(p->forward, &block->feed_forward_norm, *x, &normed));
  HARK_TRY(hark_feed_forward_apply(p->forward, &block->feed_forward, normed, &branch));
  hark_tape_release(p->tape, normed);
  return hark_forward_add(p->forward, *x, branch, x);
}

/* *x <- its norm; x is released. */
static hark_status end_rows(const pass *p, hark_value *x) {
  hark_value normed = 0;
  HARK_TRY(hark_norm_apply(p->forward, &p->network->final_norm, *x, &normed));
  hark_tape_release(p->tape, *x);
  *x = normed;
  return HARK_OK;
}

/* Gates [tables, P d]: G s, from the mean s over the pairs of a table. Releases the pairs. */
static hark_status make_gates(const pass *p, hark_value pairs, hark_value *gates) {
  const hark_segment_pool_attributes mean = {.kind = HARK_SEGMENT_POOL_AVERAGE, .slots = 1, .fewer = true, .rows = p->tables};
  const hark_value inputs[] = {pairs, p->context_offsets};
  hark_value summary = 0;
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_segment_pool, &mean, 2, inputs, 1, &summary));
  HARK_TRY(hark_linear_apply(p->forward, &p->network->regressor->gate, summary, gates));
  hark_tape_release(p->tape, summary);
  return HARK_OK;
}

/* Features of rows for the kernels: softplus(gate) (S x + T u). The caller keeps all values. */
static hark_status make_features(const pass *p, hark_value inputs, hark_value rows, hark_value gates, hark_value offsets,
                                 hark_value *features) {
  const hark_regressor_layers *own = p->network->regressor;
  hark_value of_input = 0, of_row = 0, gated[] = {0, gates, offsets};
  HARK_TRY(hark_linear_apply(p->forward, &own->kernel_input, inputs, &of_input));
  HARK_TRY(hark_linear_apply(p->forward, &own->kernel_row, rows, &of_row));
  HARK_TRY(hark_forward_add(p->forward, of_input, of_row, &gated[0]));
  return hark_tape_apply(p->tape, &hark_op_gate_segments, NULL, 3, gated, 1, features);
}

static hark_status make_noise(const pass *p, hark_value rows, hark_value *noise) {
  const hark_noise_of_heads_attributes attributes = {.least = p->network->config.regressor.least_noise};
  hark_value raw = 0;
  HARK_TRY(hark_linear_apply(p->forward, &p->network->regressor->noise, rows, &raw));
  return hark_tape_apply(p->tape, &hark_op_noise_of_heads, &attributes, 1, &raw, 1, noise);
}

/* The targets once for each process, with their squares for smoothers; the caller keeps them. */
static hark_status copy_targets(const pass *p, hark_value targets, hark_value *out) {
  const hark_copy_targets_attributes attributes = {.heads = p->network->config.regressor.processes, .powers = smooths(p->network) ? 2 : 1};
  return hark_tape_apply(p->tape, &hark_op_copy_targets, &attributes, 1, &targets, 0, out);
}

/* The rows after all blocks, with their inputs. */
typedef struct rows {
  hark_value input, row, offsets;
} rows;

/* Logits of the classes, from means and logarithms of variances, which are released. */
static hark_status find_logits(const pass *p, hark_value level, hark_value *out) {
  hark_value inputs[] = {*out, level, 0};
  HARK_TRY(hark_forward_parameter(p->forward, p->network->regressor->class_scale, &inputs[2]));
  return hark_tape_apply(p->tape, &hark_op_class_logits, NULL, 3, inputs, 1, out);
}

/* What both heads read of the rows. */
typedef struct head_inputs {
  hark_value query, key, value; /* features of the processes, and the targets */
  hark_value key_noise, query_noise, logit;
} head_inputs;

/* Releases the rows and the gates. */
static hark_status read_rows(const pass *p, const rows *context, const rows *query, hark_value gates, hark_value targets,
                             head_inputs *out) {
  HARK_TRY(make_features(p, query->input, query->row, gates, query->offsets, &out->query));
  HARK_TRY(make_features(p, context->input, context->row, gates, context->offsets, &out->key));
  HARK_TRY(copy_targets(p, targets, &out->value));
  if (!smooths(p->network)) HARK_TRY(make_noise(p, context->row, &out->key_noise));
  HARK_TRY(make_noise(p, query->row, &out->query_noise));
  HARK_TRY(hark_linear_apply(p->forward, &p->network->regressor->logit, query->row, &out->logit));
  hark_tape_release(p->tape, gates);
  hark_tape_release(p->tape, context->row);
  hark_tape_release(p->tape, query->row);
  return HARK_OK;
}

/* Means and logarithms of variances of every target at the queries, by the posteriors of the processes. */
static hark_status find_posterior(const pass *p, const rows *context, const rows *query, const head_inputs *from, hark_value *out) {
  enum { QUERY, KEY, VALUE, NOISE = 6, QUERY_OFFSETS, KEY_OFFSETS, INPUTS }; /* of kernel_ridge_posterior */
  enum { MEAN, VARIANCE, LOG_DETERMINANT, QUADRATIC, POSTERIOR_OUTPUTS };
  const hark_kernel_ridge_attributes attributes = {.plan = p->forward->plans[p->network->config.layers], .report = p->forward->report};
  const hark_value inputs[INPUTS] = {[QUERY] = from->query,
                                     [KEY] = from->key,
                                     [VALUE] = from->value,
                                     [NOISE] = from->key_noise,
                                     [QUERY_OFFSETS] = query->offsets,
                                     [KEY_OFFSETS] = context->offsets};
  hark_value posterior[HARK_MAX_OUTPUTS] = {0}, prior = 0;
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_kernel_ridge_posterior, &attributes, INPUTS, inputs,
                           1u << QUERY | 1u << KEY | 1u << VALUE | 1u << NOISE, posterior));
  HARK_TRY(hark_forward_parameter(p->forward, p->network->regressor->prior, &prior));
  const hark_value mixed[] = {
      posterior[MEAN], posterior[VARIANCE], posterior[LOG_DETERMINANT], posterior[QUADRATIC], from->query_noise, from->logit, prior,
      query->offsets,  context->offsets};
  return hark_tape_apply(p->tape, &hark_op_posterior_mixture, NULL, 9, mixed, 63, out);
}

/* The same by smoothers. */
static hark_status smooth(const pass *p, const rows *context, const rows *query, const head_inputs *from, hark_value *out) {
  enum { QUERY, KEY, VALUE, QUERY_OFFSETS = 9, KEY_OFFSETS, ATTENTION_INPUTS }; /* of attention */
  const hark_attention_attributes attributes = {.plan = p->forward->plans[p->network->config.layers],
                                                .keys_of_a_query = p->forward->packing->longest};
  const hark_value inputs[HARK_MAX_INPUTS] = {
      [QUERY] = from->query, [KEY] = from->key, [VALUE] = from->value, [QUERY_OFFSETS] = query->offsets, [KEY_OFFSETS] = context->offsets};
  hark_value mixed[] = {0, from->query_noise, from->logit};
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_attention, &attributes, ATTENTION_INPUTS, inputs, 1u << QUERY | 1u << KEY | 1u << VALUE,
                           &mixed[0]));
  return hark_tape_apply(p->tape, &hark_op_smoother_mixture, NULL, 3, mixed, 7, out);
}

static hark_status logits(hark_context *context, const hark_network *network, const hark_forward *forward, const hark_network_input *input,
                          hark_value *out) {
  const hark_network_tables *tables = input->tables;
  if (tables == NULL || forward->packing == NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "regressor: no tables, expected rows of context and queries");
  pass p = {.network = network,
            .forward = forward,
            .tape = forward->tape,
            .context_offsets = tables->context_offsets,
            .query_offsets = tables->query_offsets,
            .tables = tables->count};
  const hark_regressor_layers *own = network->regressor;
  rows known = {.input = tables->context, .offsets = tables->context_offsets},
       asked = {.input = tables->queries, .offsets = tables->query_offsets};
  hark_value pairs = 0, gates = 0, given = 0;
  head_inputs from = {0};
  HARK_TRY(hark_linear_apply(forward, &own->input, known.input, &known.row));
  HARK_TRY(hark_linear_apply(forward, &own->input, asked.input, &asked.row));
  HARK_TRY(hark_linear_apply(forward, &own->target, tables->targets, &given));
  const hark_value parts[] = {given, known.row};
  HARK_TRY(hark_tape_apply(p.tape, &hark_op_add, NULL, 2, parts, 1, &pairs));
  for (int64_t layer = 0; layer < network->config.layers; layer++) {
    const hark_block *block = &own->blocks[layer];
    keys to = {0};
    if (forward->cancel != NULL && forward->cancel(forward->cancel_user))
      return hark_fail(context, HARK_CANCELLED, "cancelled before layer %" PRId64, layer);
    HARK_TRY(make_keys(&p, block, pairs, &to));
    HARK_TRY(run_block(&p, block, &to, p.context_offsets, &known.row));
    HARK_TRY(run_block(&p, block, &to, p.query_offsets, &asked.row));
    HARK_TRY(run_block(&p, block, &to, p.context_offsets, &pairs));
    hark_tape_release(p.tape, to.key);
    hark_tape_release(p.tape, to.value);
  }
  HARK_TRY(end_rows(&p, &known.row));
  HARK_TRY(end_rows(&p, &asked.row));
  HARK_TRY(end_rows(&p, &pairs));
  HARK_TRY(make_gates(&p, pairs, &gates));
  HARK_TRY(read_rows(&p, &known, &asked, gates, tables->targets, &from));
  HARK_TRY((smooths(network) ? smooth : find_posterior)(&p, &known, &asked, &from, out));
  return network->config.regressor.loss == HARK_REGRESSOR_LOSS_CLASSES ? find_logits(&p, tables->level, out) : HARK_OK;
}

const hark_architecture hark_architecture_regressor = {
    .name = "regressor",
    .summary = "in-context regression with intervals: rows of a table with targets, and rows whose targets are predicted (X, appendix B)",
    .predicts_vectors = true,
    .reads_tables = true,
    .check = check,
    .declare = declare,
    .close = close,
    .logits = logits,
};

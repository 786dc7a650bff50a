/* self_attention.c - see self_attention.h. */
#include "nn/self_attention.h"

#include <hark/experimental.h>
#include <math.h>
#include <string.h>

#include "attention/layer.h"
#include "attention/spread.h"
#include "backend/backend.h"
#include "nn/attention_cache.h"
#include "ops/sequence.h"
#include "ops/sequence_attention.h"

/* Gates are initially open: sigmoid(3) = .95, a memory of about twenty tokens, which training changes. */
#define FORGET_INITIAL 3.0
#define NOISE_INITIAL (-2.25) /* log(1 + exp(x)) is .1 */

/* Standard deviation of the hierarchical bias's initial values. */
#define HIERARCHICAL_BIAS_DEVIATION 0.1

/* The same of the table of contextual positions: that of learned positions. */
#define CONTEXTUAL_DEVIATION 0.02

/* Shifts of the row and column numbers in the counter of attention dropout (attention.h). */
#define DROPOUT_HEAD_SHIFT 44

static hark_status declare_ridge(hark_context *context, hark_parameters *parameters, const hark_self_attention_spec *spec,
                                 const char *prefix, hark_self_attention *out);

static hark_status declare_part(hark_context *context, hark_parameters *parameters, const hark_self_attention_spec *spec, int64_t out,
                                double deviation, const char *prefix, const char *part, hark_linear *layer) {
  char name[HARK_PARAMETER_NAME_BYTES];
  hark_join_name(name, prefix, part);
  return hark_linear_declare(context, parameters, spec->width, out, spec->bias, deviation, name, layer);
}

/* Layers of another normalisation have no noise of keys. */
static bool has_noise(const hark_self_attention_spec *spec) {
  return spec->choice.noise_learned && spec->normalisation == HARK_NORMALISATION_CME;
}

bool hark_self_attention_has_gate(const hark_self_attention_spec *spec) { return spec->choice.forget_gate || has_noise(spec); }

/* A number of every token and head, initially `level`. */
static hark_status declare_gate(hark_context *context, hark_parameters *parameters, const hark_self_attention_spec *spec,
                                const char *prefix, const char *name, double level, hark_linear *out) {
  const hark_parameter_spec weight = {.rank = 2,
                                      .shape = {spec->heads, spec->width},
                                      .initial = HARK_INITIAL_NORMAL,
                                      .value = hark_deviation_for(spec->deviation, spec->width, spec->heads),
                                      .decays = true};
  const hark_parameter_spec bias = {.rank = 1, .shape = {spec->heads}, .initial = HARK_INITIAL_CONSTANT, .value = level};
  HARK_TRY(hark_parameters_add(context, parameters, &weight, &out->weight, "%s.%s.weight", prefix, name));
  return hark_parameters_add(context, parameters, &bias, &out->bias, "%s.%s.bias", prefix, name);
}

hark_status hark_self_attention_declare(hark_context *context, hark_parameters *parameters, const hark_self_attention_spec *spec,
                                        int64_t layer, const char *prefix, hark_self_attention *out) {
  *out = (hark_self_attention){.spec = *spec, .layer = layer};
  const int64_t query_width = spec->head_dim * spec->heads, key_width = spec->head_dim * spec->key_heads;
  char name[HARK_PARAMETER_NAME_BYTES];
  HARK_TRY(declare_part(context, parameters, spec, query_width, spec->deviation, prefix, "query", &out->query));
  HARK_TRY(declare_part(context, parameters, spec, key_width, spec->deviation, prefix, "key", &out->key));
  HARK_TRY(declare_part(context, parameters, spec, key_width, spec->deviation, prefix, "value", &out->value));
  hark_join_name(name, prefix, "output");
  HARK_TRY(
      hark_linear_declare(context, parameters, query_width, spec->width, spec->output_bias, spec->output_deviation, name, &out->output));
  if (spec->positional_source != NULL)
    HARK_TRY(hark_positional_declare(context, parameters, spec->positional_source, layer, prefix, &out->positional));
  out->rotary_rates = spec->rotary_rates;
  if (spec->rotary_source != NULL) HARK_TRY(hark_rotary_declare(context, parameters, spec->rotary_source, prefix, &out->rotary_rates));
  if (spec->structure == HARK_STRUCTURE_HIERARCHICAL && spec->choice.hierarchical_bias) {
    const hark_parameter_spec table = {.rank = 2,
                                       .shape = {spec->heads, 4 * spec->choice.hierarchy_block - 1},
                                       .initial = HARK_INITIAL_NORMAL,
                                       .value = HIERARCHICAL_BIAS_DEVIATION};
    HARK_TRY(hark_parameters_add(context, parameters, &table, &out->hierarchical_bias, "%s.hierarchical_bias", prefix));
  }
  if (spec->choice.contextual_positions > 0) {
    const hark_parameter_spec table = {.rank = 3,
                                       .shape = {1, spec->choice.contextual_positions, spec->head_dim},
                                       .initial = HARK_INITIAL_NORMAL,
                                       .value = CONTEXTUAL_DEVIATION,
                                       .decays = true};
    HARK_TRY(hark_parameters_add(context, parameters, &table, &out->contextual, "%s.contextual", prefix));
  }
  HARK_TRY(declare_ridge(context, parameters, spec, prefix, out));
  if (has_noise(spec)) return declare_gate(context, parameters, spec, prefix, "noise", NOISE_INITIAL, &out->noise);
  return spec->choice.forget_gate ? declare_gate(context, parameters, spec, prefix, "forget", FORGET_INITIAL, &out->forget) : HARK_OK;
}

double hark_self_attention_scale(const hark_self_attention_spec *spec) {
  const double magnitude = hark_rotary_magnitude(&spec->rotary);
  return magnitude * magnitude / sqrt((double)spec->head_dim);
}
double hark_self_attention_sigma(const hark_self_attention_spec *spec) { return spec->choice.sigma / hark_rotary_magnitude(&spec->rotary); }

/* Layers of another normalisation have no sigma to learn. */
static bool learns_sigma(const hark_self_attention_spec *spec) {
  return spec->choice.sigma_learned && spec->normalisation == HARK_NORMALISATION_CME;
}

/* Declares the logarithms of a head's learned values, which are so positive by construction. */
static hark_status declare_ridge(hark_context *context, hark_parameters *parameters, const hark_self_attention_spec *spec,
                                 const char *prefix, hark_self_attention *out) {
  hark_parameter_spec vector = {.rank = 1, .shape = {spec->heads}, .initial = HARK_INITIAL_CONSTANT, .rate = HARK_RATE_POSITIONAL};
  if (spec->normalisation != HARK_NORMALISATION_CME) return HARK_OK;
  vector.value = log(spec->ridge);
  if (spec->choice.ridge_learned)
    HARK_TRY(hark_parameters_add(context, parameters, &vector, &out->log_ridge, "%s." HARK_RIDGE_TENSOR, prefix));
  if (!learns_sigma(spec)) return HARK_OK;
  vector.value = log(spec->choice.sigma);
  return hark_parameters_add(context, parameters, &vector, &out->log_sigma, "%s." HARK_SIGMA_TENSOR, prefix);
}

static void set_width(const hark_self_attention_spec *spec, hark_attention_desc *desc) {
  if (spec->choice.kernel == HARK_KERNEL_RBF)
    desc->sigma = hark_self_attention_sigma(spec);
  else if (hark_rotary_magnitude(&spec->rotary) != 1)
    desc->scale = hark_self_attention_scale(spec);
}

/* ---- sequences that are spread over processes ---- */

/* The range of a process, of `heads` query or key heads. */
static hark_share own_heads(const hark_self_attention_spec *spec, const hark_sequence *sequence, int64_t heads) {
  return sequence != NULL ? hark_sequence_own_heads(sequence, heads, spec->key_heads) : (hark_share){0, heads};
}

static bool has_unequal_chunks(const hark_self_attention_spec *spec) {
  return spec->structure == HARK_STRUCTURE_COMPRESSED && hark_attention_chunks_differ(&spec->choice);
}

/* A process without heads would have nothing to do in attention. Where one head's matrix is singular, all processes would have to know. */
static hark_status check_sequence(hark_context *context, const hark_self_attention_spec *spec, const hark_sequence *sequence) {
  if (sequence == NULL) return HARK_OK;
  if (spec->normalisation == HARK_NORMALISATION_CME)
    return hark_fail(context, HARK_UNSUPPORTED, "run.sequence_ranks: model.attention.normalisation cme reads whole sequences");
  if (has_unequal_chunks(spec))
    return hark_fail(context, HARK_UNSUPPORTED, "run.sequence_ranks: model.attention.%s whole sequences into chunks",
                     spec->choice.chunk_learned ? "chunk_learned cuts" : "delimiters cut");
  if (hark_group_size(sequence->group) > spec->key_heads)
    return hark_fail(context, HARK_UNSUPPORTED, "run.sequence_ranks is %d, expected at most the %d key heads of the model",
                     hark_group_size(sequence->group), (int)spec->key_heads);
  return HARK_OK;
}

/* Applies an operator of a spread sequence to a value by heads, which is consumed if `consumed`. 0 stays 0. */
static hark_status exchange(const hark_forward *forward, const hark_self_attention_spec *spec, const hark_operator *op, int64_t heads,
                            bool consumed, hark_value *value) {
  const hark_sequence_attributes attributes = {.sequence = forward->sequence, .heads = heads, .key_heads = spec->key_heads};
  if (*value == 0) return HARK_OK;
  return hark_tape_apply(forward->tape, op, &attributes, 1, value, consumed ? 1 : 0, value);
}

/* The rows of a table with a row per head that belong to the own heads, which replace it: *consumed, the caller's, is set then. A table of
 * one row is for all heads. */
static hark_status own_rows(const hark_forward *forward, const hark_self_attention_spec *spec, int64_t heads, bool *consumed,
                            hark_value *table) {
  if (forward->sequence == NULL || *table == 0 || hark_tape_tensor(forward->tape, *table)->shape[0] != heads || heads == 1) return HARK_OK;
  HARK_TRY(exchange(forward, spec, &hark_op_sequence_own_heads, heads, *consumed, table));
  *consumed = true;
  return HARK_OK;
}

/* What the layer computes, of all heads. */
static hark_attention_desc describe(const hark_self_attention_spec *spec, hark_type type, const hark_pass_sizes *sizes, bool training) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = type;
  desc.structure = spec->structure;
  if (spec->structure == HARK_STRUCTURE_WINDOW) desc.window = spec->choice.window; /* configurations always have both */
  if (spec->structure == HARK_STRUCTURE_HIERARCHICAL) {
    desc.hierarchy_block = spec->choice.hierarchy_block;
    desc.grid_columns = spec->choice.grid_columns;
    desc.partition = spec->choice.partition;
    desc.coarse_query = spec->choice.coarse_query;
    desc.interpolation = spec->choice.interpolation;
    desc.has_hierarchical_bias = spec->choice.hierarchical_bias;
  }
  if (spec->structure == HARK_STRUCTURE_COMPRESSED) {
    desc.chunk = spec->choice.chunk;
    desc.chunk_slots = spec->choice.chunk_slots;
    desc.selected_slots = spec->choice.selected_slots;
    desc.kept_chunks = spec->choice.kept_chunks;
    desc.global_slots = spec->choice.kept_chunks > 0 ? spec->choice.global_slots : 0;
    desc.has_chunk_starts = has_unequal_chunks(spec);
  }
  desc.kernel = spec->choice.kernel;
  if (!learns_sigma(spec)) set_width(spec, &desc);
  if (spec->normalisation == HARK_NORMALISATION_CME) {
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.has_ridge = spec->choice.ridge_learned;
    desc.has_sigma = learns_sigma(spec);
    desc.has_noise = has_noise(spec);
    if (!spec->choice.ridge_learned) desc.ridge = spec->ridge;
    desc.unit = spec->choice.unit;
  }
  if (spec->normalisation == HARK_NORMALISATION_STICK_BREAKING) desc.normalisation = HARK_NORMALISATION_STICK_BREAKING;
  desc.batch = sizes->batch;
  desc.has_segments = sizes->sequences > 0;
  desc.max_sequences = sizes->sequences;
  desc.longest = sizes->longest;
  desc.heads = spec->heads;
  desc.key_heads = spec->key_heads;
  desc.query_length = sizes->queries;
  desc.key_length = sizes->keys;
  desc.head_dim = desc.value_dim = spec->head_dim;
  desc.causal = spec->causal;
  desc.has_forget = spec->choice.forget_gate;
  desc.has_log_kernel = spec->positional;
  desc.directed_kernel = spec->directed;
  desc.contextual_positions = spec->choice.contextual_positions;
  desc.dropout = training ? spec->choice.dropout : 0;
  desc.forward_only = !training;
  desc.product_type = training ? sizes->product_type : HARK_NONE;
  if (spec->normalisation == HARK_NORMALISATION_CME) desc.solver = sizes->solver;
  return desc;
}

/* Rows around a part that are computed twice in the backward may be an eighth of it. With more processes than key heads there is no
 * choice. */
#define TWICE 8

static bool is_worth(const hark_self_attention_spec *spec, const hark_pass_sizes *sizes) {
  const int size = sizes->sequence != NULL ? hark_group_size(sizes->sequence->group) : 1;
  return spec->structure != HARK_STRUCTURE_WINDOW || size > spec->key_heads ||
         (int64_t)TWICE * size * spec->choice.window <= sizes->queries;
}

hark_status hark_self_attention_row_unit(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                         const hark_pass_sizes *sizes, int64_t *unit) {
  const hark_attention_desc desc = describe(spec, type, sizes, false);
  hark_attention_plan *plan = NULL;
  *unit = 0;
  if (spec->structure == HARK_STRUCTURE_DENSE || spec->normalisation != HARK_NORMALISATION_SOFTMAX || spec->choice.forget_gate ||
      spec->choice.contextual_positions > 0)
    return HARK_OK;
  if (spec->structure == HARK_STRUCTURE_WINDOW && spec->positional) return HARK_OK; /* spread windows have no gradient of a table */
  if (!is_worth(spec, sizes)) return HARK_OK;
  HARK_TRY(hark_attention_plan_create(context, &desc, &plan));
  const hark_status status = hark_attention_spread_unit(context, plan, sizes->queries, unit);
  hark_attention_plan_destroy(context, &plan);
  if (status != HARK_OK || *unit == 1) *unit = 0; /* 1: every process would compute all rows */
  return status == HARK_UNSUPPORTED ? HARK_OK : status;
}

/* Whether a layer of a spread sequence keeps its rows; otherwise rows are exchanged for heads. */
static hark_status keeps_rows(hark_context *context, const hark_self_attention_spec *spec, hark_type type, const hark_pass_sizes *sizes,
                              bool *keeps) {
  int64_t unit = 0;
  *keeps = false;
  if (sizes->sequence == NULL || sizes->sequence->unit == 0) return HARK_OK;
  HARK_TRY(hark_self_attention_row_unit(context, spec, type, sizes, &unit));
  *keeps = unit > 0 && sizes->sequence->unit % unit == 0;
  return HARK_OK;
}

hark_status hark_self_attention_plan(hark_context *context, const hark_self_attention_spec *spec, hark_type type,
                                     const hark_pass_sizes *sizes, bool training, hark_attention_plan **out) {
  hark_attention_desc desc = describe(spec, type, sizes, training);
  bool keeps = false;
  HARK_TRY(keeps_rows(context, spec, type, sizes, &keeps));
  if (!keeps) {
    HARK_TRY(check_sequence(context, spec, sizes->sequence));
    desc.heads = own_heads(spec, sizes->sequence, spec->heads).count;
    desc.key_heads = own_heads(spec, sizes->sequence, spec->key_heads).count;
  }
  HARK_TRY(hark_attention_plan_create(context, &desc, out));
  (*out)->key_heads = spec->key_heads;
  const hark_status status = keeps ? hark_sequence_attention_measure(context, sizes->sequence, *out) : HARK_OK;
  if (status != HARK_OK) hark_attention_plan_destroy(context, out);
  return status;
}

int64_t hark_self_attention_table(const hark_self_attention_spec *spec, int64_t length) {
  const int64_t distances = hark_self_attention_distances(spec, length);
  return spec->directed ? -distances : distances;
}

/* Layers with their own windows use a table for all distances between tokens, since it may be the model's. */
int64_t hark_self_attention_distances(const hark_self_attention_spec *spec, int64_t length) {
  const bool hierarchical = spec->structure == HARK_STRUCTURE_HIERARCHICAL;
  const hark_attention_desc desc = {.structure = hierarchical ? HARK_STRUCTURE_HIERARCHICAL : HARK_STRUCTURE_DENSE,
                                    .normalisation = spec->normalisation,
                                    .query_length = length,
                                    .key_length = length,
                                    .causal = spec->causal,
                                    .hierarchy_block = spec->choice.hierarchy_block,
                                    .partition = spec->choice.partition};
  return hark_attention_table_length(&desc, NULL);
}

enum { QUERY, KEY, VALUE, ROWS }; /* the first inputs of every operator */
/* inputs of attention, as far as they are used; GATE of kernel ridge attention: the noise of keys, before log(1 + exp(x)) */
enum { BIAS = ROWS, LOG_KERNEL, GATE, MASK, HIERARCHICAL_BIAS, QUERY_MASK, QUERY_OFFSETS, KEY_OFFSETS, CONTEXTUAL, CHUNK_STARTS, INPUTS };

hark_status hark_self_attention_noise(const hark_forward *forward, hark_value logits, bool by_rows, hark_value *noise) {
  const hark_noise_of_heads_attributes attributes = {.by_rows = by_rows};
  *noise = 0;
  return logits == 0 ? HARK_OK : hark_tape_apply(forward->tape, &hark_op_noise_of_heads, &attributes, 1, &logits, 1, noise);
}

/* Applies an operator of attention, after the observer has seen it. */
static hark_status apply_observed(const hark_forward *forward, int64_t layer, const hark_operator *op, const void *attributes, int count,
                                  const hark_value *inputs, unsigned consumed, hark_value *out) {
  if (forward->observe != NULL) {
    hark_attention_application seen = {.layer = layer, .op = op, .attributes = attributes, .input_count = count};
    for (int i = 0; i < count; i++)
      if (inputs[i] != 0) seen.inputs[i] = *hark_tape_tensor(forward->tape, inputs[i]);
    HARK_TRY(forward->observe(forward->observe_user, &seen));
  }
  return hark_tape_apply(forward->tape, op, attributes, count, inputs, consumed, out);
}

/* Kernel ridge attention of the query, key and value at the beginning of `rows`, which are consumed. */
static hark_status apply_ridge(const hark_forward *forward, const hark_self_attention *layer, const hark_value *rows, hark_value log_kernel,
                               bool own_table, hark_value *out) {
  enum { LOG_RIDGE = ROWS, LOG_SIGMA, TABLE, NOISE, RIDGE_INPUTS }; /* the operator's */
  hark_value inputs[RIDGE_INPUTS] = {rows[QUERY], rows[KEY], rows[VALUE], [TABLE] = log_kernel};
  HARK_TRY(hark_self_attention_noise(forward, rows[GATE], false, &inputs[NOISE]));
  const hark_kernel_ridge_attributes attributes = {.plan = forward->plans[layer->layer],
                                                   .report = forward->report,
                                                   .segments = forward->packing != NULL ? forward->packing->segments : NULL};
  HARK_TRY(hark_forward_parameter(forward, layer->log_ridge, &inputs[LOG_RIDGE]));
  HARK_TRY(hark_forward_parameter(forward, layer->log_sigma, &inputs[LOG_SIGMA]));
  return apply_observed(forward, layer->layer, &hark_op_kernel_ridge, &attributes, has_noise(&layer->spec) ? RIDGE_INPUTS : NOISE, inputs,
                        1u << QUERY | 1u << KEY | 1u << VALUE | 1u << NOISE | (own_table ? 1u << TABLE : 0u), out);
}

/* A learned sigma does not include the rotary magnitude: the features themselves are scaled by it. */
static hark_status enlarge(const hark_forward *forward, const hark_self_attention_spec *spec, hark_value *value) {
  const hark_scale_attributes attributes = {hark_rotary_magnitude(&spec->rotary)};
  if (!learns_sigma(spec) || attributes.factor == 1) return HARK_OK;
  return hark_tape_apply(forward->tape, &hark_op_scale, &attributes, 1, value, 1, value);
}

/* The number of inputs up to the last that a layer uses. */
static int input_count(const hark_self_attention_spec *spec) {
  if (has_unequal_chunks(spec)) return INPUTS;
  if (spec->choice.contextual_positions > 0) return CONTEXTUAL + 1;
  return spec->choice.forget_gate || spec->positional || spec->choice.hierarchical_bias ? HIERARCHICAL_BIAS + 1 : VALUE + 1;
}

/* Tables of a pass; `own` ones are consumed by the attention. */
typedef struct layer_tables {
  hark_value log_kernel, hierarchical_bias;
  bool own_kernel, own_bias;
} layer_tables;

/* The layer's tables; log_kernel: the model's, or 0. `rows`: tokens of the pass, or of the whole sequence. */
static hark_status make_tables(const hark_forward *forward, const hark_self_attention *layer, int64_t rows, hark_value log_kernel,
                               layer_tables *out) {
  const hark_self_attention_spec *spec = &layer->spec;
  *out = (layer_tables){.log_kernel = log_kernel, .own_kernel = spec->positional && log_kernel == 0};
  HARK_TRY(hark_forward_parameter(forward, layer->hierarchical_bias, &out->hierarchical_bias));
  HARK_TRY(own_rows(forward, spec, spec->heads, &out->own_bias, &out->hierarchical_bias));
  if (out->own_kernel && forward->log_kernels != NULL)
    return hark_tape_leaf(forward->tape, &forward->log_kernels[layer->layer], NULL, &out->log_kernel);
  const int64_t length = forward->packing != NULL ? forward->packing->longest : forward->first_position + rows;
  if (out->own_kernel) return hark_positional_apply(forward, &layer->positional, hark_self_attention_table(spec, length), &out->log_kernel);
  return HARK_OK;
}

/* Random numbers of attention dropout, for heads from `first_head` on. */
static hark_random_stream dropout_of(const hark_forward *forward, const hark_self_attention *layer, int64_t batch, int64_t first_head) {
  return (hark_random_stream){.seed = forward->seed,
                              .first_index = (forward->first_sample * (uint64_t)layer->spec.heads + (uint64_t)(batch * first_head))
                                             << DROPOUT_HEAD_SHIFT,
                              .micro_step = forward->micro_step,
                              .layer_purpose = hark_random_layer_purpose((uint32_t)layer->layer, HARK_RANDOM_ATTENTION)};
}

/* The attention of query, key, value and gate logits, which are consumed. `rows`: tokens of the pass. */
static hark_status attend(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, int64_t rows,
                          hark_value *inputs, hark_value log_kernel, hark_value *mixed) {
  const hark_self_attention_spec *spec = &layer->spec;
  layer_tables tables;
  if (forward->caches != NULL && hark_attention_cache_has_operator(spec))
    return hark_attention_cache_attend(forward, layer, inputs, inputs[GATE], mixed);
  if (forward->caches != NULL) {
    hark_attention_cache *cache = &forward->caches[layer->layer];
    HARK_TRY(hark_attention_cache_append(context, forward, &cache->part[HARK_CACHE_KEY], &inputs[KEY]));
    HARK_TRY(hark_attention_cache_append(context, forward, &cache->part[HARK_CACHE_VALUE], &inputs[VALUE]));
    if (spec->choice.forget_gate) HARK_TRY(hark_attention_cache_append(context, forward, &cache->part[HARK_CACHE_FORGET], &inputs[GATE]));
  }
  HARK_TRY(make_tables(forward, layer, rows, log_kernel, &tables));
  if (spec->normalisation == HARK_NORMALISATION_CME)
    return apply_ridge(forward, layer, inputs, tables.log_kernel, tables.own_kernel, mixed);
  HARK_TRY(own_rows(forward, spec, spec->heads, &tables.own_kernel, &tables.log_kernel));
  inputs[LOG_KERNEL] = tables.log_kernel;
  inputs[HIERARCHICAL_BIAS] = tables.hierarchical_bias;
  HARK_TRY(hark_forward_parameter(forward, layer->contextual, &inputs[CONTEXTUAL]));
  inputs[CHUNK_STARTS] = has_unequal_chunks(spec) ? forward->chunk_flags : 0;
  const int64_t batch = hark_tape_tensor(forward->tape, inputs[QUERY])->shape[0];
  const hark_attention_attributes attributes = {
      .plan = forward->plans[layer->layer],
      .segments = forward->packing != NULL ? forward->packing->segments : NULL,
      .dropout = dropout_of(forward, layer, batch, own_heads(spec, forward->sequence, spec->heads).first)};
  return apply_observed(forward, layer->layer, &hark_op_attention, &attributes, input_count(spec), inputs,
                        1u << QUERY | 1u << KEY | 1u << VALUE | 1u << GATE | (tables.own_kernel ? 1u << LOG_KERNEL : 0u) |
                            (tables.own_bias ? 1u << HIERARCHICAL_BIAS : 0u),
                        mixed);
}

/* Rows of a value [1, T, width] as a leaf; 0 stays 0. */
static hark_status take_rows(const hark_forward *forward, const hark_forward_member *member, hark_value value, hark_value *out) {
  *out = 0;
  if (value == 0) return HARK_OK;
  hark_tensor rows = *hark_tape_tensor(forward->tape, value);
  rows.owned_bytes = 0;
  rows.shape[1] = member->count;
  if (rows.data != NULL) rows.data = (char *)rows.data + (size_t)(member->first * rows.shape[2]) * hark_type_bytes(rows.type);
  return hark_tape_leaf(forward->tape, &rows, NULL, out);
}

/* The attention of one member, copied to its rows of the group's memory. */
static hark_status attend_member(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                                 const hark_forward_member *member, const hark_value *all) {
  hark_value inputs[INPUTS] = {0}, mixed = 0;
  for (int i = 0; i < ROWS; i++) HARK_TRY(take_rows(forward, member, all[i], &inputs[i]));
  HARK_TRY(take_rows(forward, member, all[GATE], &inputs[GATE]));
  HARK_TRY(attend(context, member->forward, layer, member->count, inputs, 0, &mixed));
  const hark_tensor *rows = hark_tape_tensor(forward->tape, mixed);
  const size_t row_bytes = (size_t)rows->shape[2] * hark_type_bytes(rows->type);
  if (rows->data != NULL)
    HARK_TRY(hark_backend_copy(context, (char *)forward->group->mixed->data + (size_t)member->first * row_bytes, rows->data,
                               (size_t)member->count * row_bytes));
  hark_tape_release(forward->tape, mixed);
  return HARK_OK;
}

/* Each member attends to its own cache. */
static hark_status attend_group(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value *inputs,
                                hark_value *mixed) {
  const hark_forward_group *group = forward->group;
  hark_tensor all = *hark_tape_tensor(forward->tape, inputs[QUERY]);
  for (int64_t i = 0; i < group->count; i++) HARK_TRY(attend_member(context, forward, layer, &group->members[i], inputs));
  for (int i = 0; i < ROWS; i++) hark_tape_release(forward->tape, inputs[i]);
  if (inputs[GATE] != 0) hark_tape_release(forward->tape, inputs[GATE]);
  all.owned_bytes = 0;
  all.data = group->mixed->data;
  return hark_tape_leaf(forward->tape, &all, NULL, mixed);
}

/* Queries and keys: of all heads, or of the own heads of a spread sequence. */
static hark_status rotate(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                          const hark_sequence *sequence, hark_value *parts) {
  const hark_self_attention_spec *spec = &layer->spec;
  hark_value rates = 0;
  bool own = false;
  if (!spec->rotary.present) return HARK_OK;
  HARK_TRY(hark_forward_parameter(forward, layer->rotary_rates, &rates));
  if (sequence != NULL) HARK_TRY(own_rows(forward, spec, spec->key_heads, &own, &rates));
  HARK_TRY(hark_rotary_apply(context, forward, &spec->rotary, rates, own_heads(spec, sequence, spec->heads).count, &parts[QUERY]));
  return hark_rotary_apply(context, forward, &spec->rotary, rates, own_heads(spec, sequence, spec->key_heads).count, &parts[KEY]);
}

hark_status hark_self_attention_project(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value x,
                                        hark_value *parts) {
  const hark_self_attention_spec *spec = &layer->spec;
  hark_value operand = 0;
  parts[HARK_ATTENTION_GATE] = 0;
  HARK_TRY(hark_forward_operand(forward, x, &operand));
  HARK_TRY(hark_linear_apply(forward, &layer->query, operand, &parts[QUERY]));
  HARK_TRY(hark_linear_apply(forward, &layer->key, operand, &parts[KEY]));
  HARK_TRY(hark_linear_apply(forward, &layer->value, operand, &parts[VALUE]));
  if (spec->choice.forget_gate) HARK_TRY(hark_linear_apply(forward, &layer->forget, operand, &parts[HARK_ATTENTION_GATE]));
  if (has_noise(spec)) HARK_TRY(hark_linear_apply(forward, &layer->noise, operand, &parts[HARK_ATTENTION_GATE]));
  hark_forward_operand_release(forward, x, operand);
  return layer->rotary_rates == 0 ? rotate(context, forward, layer, NULL, parts) : HARK_OK;
}

/* Attention of parts that have all rows. */
static hark_status mix_rows(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value *inputs,
                            hark_value log_kernel, hark_value *mixed) {
  const hark_self_attention_spec *spec = &layer->spec;
  const int64_t rows = hark_tape_tensor(forward->tape, inputs[QUERY])->shape[1];
  if (layer->rotary_rates != 0) HARK_TRY(rotate(context, forward, layer, forward->sequence, inputs));
  HARK_TRY(enlarge(forward, spec, &inputs[QUERY]));
  HARK_TRY(enlarge(forward, spec, &inputs[KEY]));
  if (forward->group != NULL) return attend_group(context, forward, layer, inputs, mixed);
  return attend(context, forward, layer, rows, inputs, log_kernel, mixed);
}

/* The same of parts that have the own rows of all heads: all rows of the own heads attend, and give the own rows of all heads. */
static hark_status mix_spread(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value *inputs,
                              hark_value log_kernel, hark_value *mixed) {
  const hark_self_attention_spec *spec = &layer->spec;
  hark_forward whole = *forward;
  whole.slice_row = whole.rows = 0;
  HARK_TRY(exchange(forward, spec, &hark_op_sequence_to_heads, spec->heads, true, &inputs[QUERY]));
  HARK_TRY(exchange(forward, spec, &hark_op_sequence_to_heads, spec->key_heads, true, &inputs[KEY]));
  HARK_TRY(exchange(forward, spec, &hark_op_sequence_to_heads, spec->key_heads, true, &inputs[VALUE]));
  HARK_TRY(exchange(forward, spec, &hark_op_sequence_to_heads, spec->heads, true, &inputs[GATE]));
  HARK_TRY(mix_rows(context, &whole, layer, inputs, log_kernel, mixed));
  return exchange(forward, spec, &hark_op_sequence_to_rows, spec->heads, true, mixed);
}

/* Attention of parts that have the own rows of all heads, which exchanges what it needs of the others' rows. */
static hark_status mix_own_rows(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value *parts,
                                hark_value log_kernel, hark_value *mixed) {
  const hark_self_attention_spec *spec = &layer->spec;
  layer_tables tables;
  hark_forward all_heads = *forward;
  all_heads.sequence = NULL;
  if (layer->rotary_rates != 0) HARK_TRY(rotate(context, forward, layer, NULL, parts));
  HARK_TRY(make_tables(&all_heads, layer, forward->rows, log_kernel, &tables));
  const hark_value inputs[HARK_SEQUENCE_ATTENTION_INPUTS] = {[HARK_SEQUENCE_ATTENTION_QUERY] = parts[QUERY],
                                                             [HARK_SEQUENCE_ATTENTION_KEY] = parts[KEY],
                                                             [HARK_SEQUENCE_ATTENTION_VALUE] = parts[VALUE],
                                                             [HARK_SEQUENCE_ATTENTION_LOG_KERNEL] = tables.log_kernel,
                                                             [HARK_SEQUENCE_ATTENTION_HIERARCHICAL_BIAS] = tables.hierarchical_bias};
  const hark_sequence_attention_attributes attributes = {
      .plan = forward->plans[layer->layer], .sequence = forward->sequence, .dropout = dropout_of(forward, layer, 0, 0)};
  const bool has_tables = spec->positional || spec->choice.hierarchical_bias;
  return hark_tape_apply(forward->tape, &hark_op_sequence_attention, &attributes,
                         has_tables ? HARK_SEQUENCE_ATTENTION_INPUTS : HARK_SEQUENCE_ATTENTION_VALUE + 1, inputs,
                         1u << HARK_SEQUENCE_ATTENTION_QUERY | 1u << HARK_SEQUENCE_ATTENTION_KEY | 1u << HARK_SEQUENCE_ATTENTION_VALUE |
                             (tables.own_kernel ? 1u << HARK_SEQUENCE_ATTENTION_LOG_KERNEL : 0u),
                         mixed);
}

hark_status hark_self_attention_mix(hark_context *context, const hark_forward *forward, const hark_self_attention *layer,
                                    const hark_value *parts, hark_value log_kernel, hark_value *mixed) {
  hark_value inputs[INPUTS] = {parts[QUERY], parts[KEY], parts[VALUE], [GATE] = parts[HARK_ATTENTION_GATE]};
  if (forward->sequence == NULL) return mix_rows(context, forward, layer, inputs, log_kernel, mixed);
  return (forward->plans[layer->layer]->keeps_rows ? mix_own_rows : mix_spread)(context, forward, layer, inputs, log_kernel, mixed);
}

hark_status hark_self_attention_output(const hark_forward *forward, const hark_self_attention *layer, hark_value mixed, hark_value *out) {
  HARK_TRY(hark_linear_apply(forward, &layer->output, mixed, out));
  hark_tape_release(forward->tape, mixed);
  return HARK_OK;
}

hark_status hark_self_attention_apply(hark_context *context, const hark_forward *forward, const hark_self_attention *layer, hark_value x,
                                      hark_value log_kernel, hark_value *out) {
  hark_value parts[HARK_ATTENTION_PARTS], mixed = 0;
  HARK_TRY(hark_self_attention_project(context, forward, layer, x, parts));
  HARK_TRY(hark_self_attention_mix(context, forward, layer, parts, log_kernel, &mixed));
  return hark_self_attention_output(forward, layer, mixed, out);
}

/* ahca_depth.c - units add what they attend to, and go through as many layers as their depth. See ahca_pass.h.
 *
 *   h = begin + A,  A = attention(norm(begin), source) Wo;   h += F_1(h);   l = 2 .. L_k: h_k += sigmoid(a_k) F_l(h_k)
 *   F(h) = a + f,   a = attention(norm(h)) among a unit's slots, f = feed_forward(norm(h + a));   or  F(h) = relu(W h + b) - h
 */
#include <hark/experimental.h>

#include "backend/backend.h"
#include "models/ahca_pass.h"

/* Fractions of the training: all units have all layers until the first, and the capacity is reached at the second. */
#define FULL_DEPTH_UNTIL 0.4
#define CAPACITY_FROM 0.7

/* *h <- *h + A. `attended`, where not NULL, gets A. */
static hark_status join(const hark_ahca_pass *p, const hark_ahca_join_layer *layer, hark_value *h, hark_value *attended) {
  hark_value a = 0, sum = 0;
  hark_ahca_ragged r = {.key = p->source,
                        .bias = p->term,
                        .query_offsets = p->unit_rows,
                        .key_offsets = p->source_offsets,
                        .keys_of_a_query = p->source_rows};
  if (p->pair_bias != 0) { /* a positional kernel: selected tokens once for every chunk */
    r.bias = p->pair_bias;
    r.place = p->pair_place;
    r.query_offsets = p->slot_rows;
    r.key_offsets = p->pair_offsets;
  }
  HARK_TRY(hark_norm_apply(p->forward, &layer->norm, *h, &r.query));
  HARK_TRY(hark_ahca_cross_attend(p, &layer->attention, &r, &a));
  hark_tape_release(p->tape, r.query);
  const hark_value parts[] = {*h, a};
  HARK_TRY(hark_ahca_apply(p, &hark_op_add, NULL, 2, parts, &sum));
  hark_tape_release(p->tape, *h);
  *h = sum;
  if (attended != NULL) {
    *attended = a;
  } else {
    hark_tape_release(p->tape, a);
  }
  return HARK_OK;
}

/* The fraction of the units of a sequence that has layer `number`, from 0. */
static double capacity_of(const hark_ahca_pass *p, int64_t number) {
  const double done = 1 - p->input->remaining;
  double reached = (done - FULL_DEPTH_UNTIL) / (CAPACITY_FROM - FULL_DEPTH_UNTIL);
  reached = reached < 0 ? 0 : reached > 1 ? 1 : reached;
  double capacity = 1;
  for (int64_t l = 0; l < number; l++) capacity *= p->options->capacity;
  if (p->options->capacity_count > 0 && number > 0) capacity = p->options->layer_capacities[number - 1];
  return 1 + reached * (capacity - 1);
}

/* How many units have each layer: counted if there are data, else the maximum. */
static hark_status count_depths(hark_ahca_pass *p) {
  enum { PIECE = 256 };
  const hark_tensor *depth = hark_tape_tensor(p->tape, p->depth);
  const int64_t layers = p->network->config.layers;
  const bool paper = p->options->depth == HARK_AHCA_DEPTH_PAPER;
  for (int64_t l = 1; l < layers; l++) p->at_depth[l] = paper ? p->units : hark_depth_capacity(capacity_of(p, l), p->units, p->sequences);
  if (depth->data == NULL) return HARK_OK;
  int32_t piece[PIECE];
  for (int64_t l = 1; l < layers; l++) p->at_depth[l] = 0;
  for (int64_t first = 0; first < depth->shape[0]; first += PIECE) {
    const int64_t count = hark_min(PIECE, depth->shape[0] - first);
    HARK_TRY(hark_backend_read(p->context, piece, (const int32_t *)depth->data + first, (size_t)count * sizeof *piece));
    for (int64_t i = 0; i < count; i++)
      for (int64_t l = 1; l < hark_min(piece[i], layers); l++) p->at_depth[l]++;
  }
  return HARK_OK;
}

/* A number for every unit: what the depth is computed from. */
static hark_status score_depth(hark_ahca_pass *p, hark_value begin, hark_value attended) {
  static const hark_pool_attributes mean = {HARK_POOL_MEAN};
  const bool of_attention = p->options->depth_score == HARK_AHCA_DEPTH_SCORE_ATTENTION;
  if (of_attention || p->options->depth == HARK_AHCA_DEPTH_PAPER)
    return hark_ahca_apply_one(p, &hark_op_row_norm, NULL, of_attention ? attended : begin, &p->depth_score);
  hark_value normed = 0, pooled = 0;
  HARK_TRY(hark_norm_apply(p->forward, &p->layers->depth_norm, begin, &normed));
  if (p->options->output == HARK_AHCA_OUTPUT_SELECTED) {
    HARK_TRY(hark_linear_apply(p->forward, &p->layers->depth, normed, &p->depth_score));
  } else {
    HARK_TRY(hark_ahca_apply_one(p, &hark_op_pool, &mean, normed, &pooled));
    HARK_TRY(hark_linear_apply(p->forward, &p->layers->depth, pooled, &p->depth_score));
    hark_tape_release(p->tape, pooled);
  }
  hark_tape_release(p->tape, normed);
  return HARK_OK;
}

/* The caller's scores, where units are ranked by these. */
static const hark_tensor *given_scores(const hark_ahca_pass *p) {
  if (p->input->given == NULL || p->options->depth == HARK_AHCA_DEPTH_PAPER) return NULL;
  return p->input->given->depth_scores;
}

static hark_status take_scores(hark_ahca_pass *p) {
  const hark_tensor *scores = given_scores(p);
  if (scores->rank != 1 || scores->shape[0] < p->units)
    return hark_fail(p->context, HARK_INVALID_ARGUMENT, "ahca: scores of depth are given for %lld units, expected %lld or more",
                     scores->rank == 1 ? (long long)scores->shape[0] : 0, (long long)p->units);
  const hark_tensor front = hark_tensor_front(scores, 1, &p->units);
  return hark_tape_leaf(p->tape, &front, NULL, &p->depth_score);
}

/* Scores and depths of units, from what went into the join or came out of it. */
static hark_status settle_depth(hark_ahca_pass *p, hark_value begin, hark_value attended) {
  const hark_network_config *config = &p->network->config;
  const bool paper = p->options->depth == HARK_AHCA_DEPTH_PAPER, given = given_scores(p) != NULL;
  if (config->layers < 2) return HARK_OK;
  HARK_TRY(given ? take_scores(p) : score_depth(p, begin, attended));
  hark_chunk_depth_attributes attributes = {.rule = paper ? HARK_DEPTH_PAPER : HARK_DEPTH_CAPACITY, .layers = config->layers};
  for (int64_t l = 0; l < config->layers; l++) attributes.capacity[l] = capacity_of(p, l);
  const hark_value inputs[] = {p->depth_score, p->unit_offsets};
  HARK_TRY(hark_ahca_apply(p, &hark_op_chunk_depth, &attributes, 2, inputs, &p->depth));
  HARK_TRY(count_depths(p));
  if (paper || given || p->input->penalty == NULL || p->options->ponder_weight == 0) return HARK_OK;
  const hark_ponder_loss_attributes ponder = {p->options->ponder_weight * p->input->weight};
  hark_value loss = 0;
  HARK_TRY(hark_ahca_apply(p, &hark_op_ponder_loss, &ponder, 2, inputs, &loss));
  return hark_ahca_add_penalty(p, HARK_PENALTY_PONDER, loss);
}

/* Attention among the slots of each unit; of one slot that is its value. */
static hark_status attend_within(const hark_ahca_pass *p, const hark_ahca_layer *layer, hark_value normed, hark_value *out) {
  enum { QUERY, KEY, VALUE, BIAS, LOG_KERNEL, PARTS }; /* the record's */
  const hark_network_config *config = &p->network->config;
  hark_value parts[PARTS] = {[LOG_KERNEL] = p->slot_kernel}, mixed = 0;
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.value, normed, &parts[VALUE]));
  if (layer->attention.query.weight != 0) {
    const hark_tensor *shape = hark_tape_tensor(p->tape, normed);
    hark_attention_attributes attributes = {.own = {.desc = hark_ahca_describe(p, p->sizes.primary_width, p->sizes.primary_width)}};
    hark_attention_desc *const desc = &attributes.own.desc;
    desc->batch = shape->shape[0];
    desc->query_length = desc->key_length = shape->shape[1];
    desc->structure = (hark_attention_structure)hark_layer_choice_of(&config->attention.structure, 0);
    if (desc->structure == HARK_STRUCTURE_WINDOW) desc->window = config->attention.window;
    if (desc->structure == HARK_STRUCTURE_HIERARCHICAL) {
      desc->hierarchy_block = config->attention.hierarchy_block;
      desc->partition = config->attention.partition;
      desc->coarse_query = config->attention.coarse_query;
      desc->interpolation = config->attention.interpolation;
    }
    desc->has_log_kernel = p->slot_kernel != 0;
    HARK_TRY(hark_linear_apply(p->forward, &layer->attention.query, normed, &parts[QUERY]));
    HARK_TRY(hark_linear_apply(p->forward, &layer->attention.key, normed, &parts[KEY]));
    HARK_TRY(hark_ahca_apply(p, &hark_op_attention, &attributes, PARTS, parts, &mixed));
    for (int i = 0; i < BIAS; i++) hark_tape_release(p->tape, parts[i]);
  } else {
    mixed = parts[VALUE];
  }
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.output, mixed, out));
  hark_tape_release(p->tape, mixed);
  return HARK_OK;
}

/* h [I, C1, d'] stays. */
static hark_status block_branch(const hark_ahca_pass *p, int64_t number, hark_value h, hark_value *out) {
  const hark_ahca_layer *layer = &p->layers->layers[number];
  hark_value normed = 0, a = 0, sum = 0, f = 0;
  HARK_TRY(hark_norm_apply(p->forward, &layer->attention_norm, h, &normed));
  HARK_TRY(attend_within(p, layer, normed, &a));
  hark_tape_release(p->tape, normed);
  HARK_TRY(hark_forward_dropout(p->forward, p->network->config.dropout, number, HARK_DROPOUT_ATTENTION_BRANCH, &a));
  const hark_value terms[] = {h, a};
  HARK_TRY(hark_ahca_apply(p, &hark_op_add, NULL, 2, terms, &sum));
  HARK_TRY(hark_norm_apply(p->forward, &layer->feed_forward_norm, sum, &normed));
  hark_tape_release(p->tape, sum);
  HARK_TRY(hark_feed_forward_apply(p->forward, &layer->feed_forward, normed, &f));
  hark_tape_release(p->tape, normed);
  HARK_TRY(hark_forward_dropout(p->forward, p->network->config.dropout, number, HARK_DROPOUT_FEED_FORWARD_BRANCH, &f));
  return hark_forward_add(p->forward, a, f, out);
}

/* relu(W h + b) - h, so that what is added up is relu(W h + b), the layer of the paper's listings. */
static hark_status linear_branch(const hark_ahca_pass *p, int64_t number, hark_value h, hark_value *out) {
  static const hark_scale_attributes minus = {-1};
  hark_value y = 0, active = 0, less = 0;
  HARK_TRY(hark_linear_apply(p->forward, &p->layers->layers[number].linear, h, &y));
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_relu, NULL, 1, &y, 1, &active));
  HARK_TRY(hark_forward_dropout(p->forward, p->network->config.dropout, number, HARK_DROPOUT_FEED_FORWARD_BRANCH, &active));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_scale, &minus, h, &less));
  return hark_forward_add(p->forward, active, less, out);
}

static hark_status layer_branch(const hark_ahca_pass *p, int64_t number, hark_value h, hark_value *out) {
  return (p->options->layer == HARK_AHCA_LAYER_LINEAR ? linear_branch : block_branch)(p, number, h, out);
}

/* Layer `number` on the units that have it. */
static hark_status deep_layer(const hark_ahca_pass *p, int64_t number, hark_value *h) {
  const hark_chunks_at_depth_attributes attributes = {number + 1, p->at_depth[number]};
  hark_value index = 0, gathered = 0, branch = 0, out = 0;
  if (attributes.rows == 0) return HARK_OK;
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_chunks_at_depth, &attributes, p->depth, &index));
  HARK_TRY(hark_ahca_gather(p, 1, *h, index, &gathered));
  HARK_TRY(layer_branch(p, number, gathered, &branch));
  hark_tape_release(p->tape, gathered);
  const bool gated = p->options->depth != HARK_AHCA_DEPTH_PAPER && given_scores(p) == NULL;
  const hark_value inputs[] = {*h, branch, index, gated ? p->depth_score : 0};
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_scatter_gated, NULL, 4, inputs, 1u << 0 | 1u << 1 | 1u << 2, &out));
  *h = out;
  return HARK_OK;
}

hark_status hark_ahca_run_layers(hark_ahca_pass *p, hark_value begin, hark_value *out) {
  const hark_network_config *config = &p->network->config;
  hark_value h = 0, attended = 0, branch = 0;
  static const hark_scale_attributes same = {1};
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_scale, &same, begin, &h)); /* `begin` stays for the depth's score */
  const bool global = hark_ahca_has_global(config);
  if (global) HARK_TRY(join(p, &p->layers->layers[0].join, &h, &attended));
  HARK_TRY(settle_depth(p, begin, attended));
  if (global) hark_tape_release(p->tape, attended);
  HARK_TRY(layer_branch(p, 0, h, &branch));
  HARK_TRY(hark_forward_add(p->forward, h, branch, &h));
  for (int64_t number = 1; number < config->layers; number++) {
    if (p->forward->cancel != NULL && p->forward->cancel(p->forward->cancel_user))
      return hark_fail(p->context, HARK_CANCELLED, "cancelled");
    if (global && p->options->join == HARK_AHCA_JOIN_EVERY) HARK_TRY(join(p, &p->layers->layers[number].join, &h, NULL));
    HARK_TRY(deep_layer(p, number, &h));
  }
  *out = h;
  return HARK_OK;
}

/* ahca_pass.c - a pass of adaptive hierarchical compressed attention, recorded on a tape. See ahca.h.
 *
 * Legend: T tokens of the pass, S sequences, K chunks at most, C1 and C2 slots of both levels, Cs selected tokens, I chunks that a layer runs on. All
 * extents are the most that may occur; how many there are stands in lists of offsets.
 */
#include "models/ahca.h"

#include "core/core.h"
#include "models/ahca_layers.h"

/* Parts of the training: all chunks have all layers until the first, and the capacity is reached at the second. */
#define FULL_DEPTH_UNTIL 0.4
#define CAPACITY_FROM 0.7

typedef struct pass {
  hark_context *context;
  const hark_network *network;
  const hark_forward *forward;
  const hark_network_input *input;
  const hark_ahca_config *options;
  const hark_ahca_layers *layers;
  hark_ahca_sizes sizes;
  hark_tape *tape;
  int64_t tokens, sequences, chunks;           /* T, S, K */
  hark_value offsets;                          /* of sequences in tokens */
  hark_value chunk_rows, chunk_offsets;        /* of chunks in tokens, of sequences in chunks */
  hark_value slot_rows, sequence_slots;        /* of chunks and of sequences in the K C1 slots */
  hark_value chunk_number, slot_number;        /* i32 [K, C1] */
  hark_value probability;                      /* of learned boundaries, settled */
  hark_value pooled;                           /* C2 [S, C2, d''], as pooled: what norm, query and medoids select by */
  hark_value global, global_offsets;           /* its norm, and offsets of sequences in its rows */
  hark_value selected, selected_offsets, term; /* Cs of C2 [S Cs, d''], of sequences, log sigmoid of their scores */
  hark_value index;                            /* of the selected */
  hark_value depth_score, depth;
  hark_value penalty;
} pass;

static hark_status apply(const pass *p, const hark_operator *op, const void *attributes, int count, const hark_value *inputs,
                         hark_value *out) {
  return hark_tape_apply(p->tape, op, attributes, count, inputs, 0, out);
}

static hark_status apply_one(const pass *p, const hark_operator *op, const void *attributes, hark_value input, hark_value *out) {
  return apply(p, op, attributes, 1, &input, out);
}

static hark_status look_up(const pass *p, hark_parameter_id table, hark_value ids, hark_value *out) {
  hark_value inputs[] = {ids, 0};
  HARK_TRY(hark_forward_parameter(p->forward, table, &inputs[1]));
  return apply(p, &hark_op_embedding, NULL, 2, inputs, out);
}

/* *x <- *x + table[ids]; nothing without a table. */
static hark_status add_table(const pass *p, hark_parameter_id table, hark_value ids, hark_value *x) {
  hark_value rows = 0;
  if (table == 0) return HARK_OK;
  HARK_TRY(look_up(p, table, ids, &rows));
  return hark_forward_add(p->forward, *x, rows, x);
}

static hark_status add_penalty(pass *p, hark_value penalty) {
  if (p->penalty == 0) {
    p->penalty = penalty;
    return HARK_OK;
  }
  return hark_forward_add(p->forward, p->penalty, penalty, &p->penalty);
}

/* Learned boundaries: p = (1 - cos(Wq x_t, Wk x_{t - 1})) / 2. */
static hark_status boundary_probability(const pass *p, hark_value x, hark_value *out) {
  hark_value inputs[3] = {0, 0, p->offsets};
  HARK_TRY(hark_linear_apply(p->forward, &p->layers->boundary_query, x, &inputs[0]));
  HARK_TRY(hark_linear_apply(p->forward, &p->layers->boundary_key, x, &inputs[1]));
  HARK_TRY(apply(p, &hark_op_boundary_probability, NULL, 3, inputs, out));
  hark_tape_release(p->tape, inputs[0]);
  hark_tape_release(p->tape, inputs[1]);
  return HARK_OK;
}

static hark_status cut(pass *p, hark_value x) {
  const hark_ahca_config *options = p->options;
  static const hark_chunk_rule rules[] = {HARK_CHUNK_FIXED, HARK_CHUNK_DELIMITER, HARK_CHUNK_PEAK, HARK_CHUNK_SCORE};
  const int32_t delimiter = (int32_t)options->delimiter;
  const hark_chunk_boundaries_attributes attributes = {.rule = rules[options->chunk],
                                                       .rows = p->tokens,
                                                       .minimum = p->sizes.minimum,
                                                       .maximum = p->sizes.maximum,
                                                       .threshold = options->chunk == HARK_AHCA_SEMANTIC ? options->threshold : 0.5,
                                                       .delimiters = &delimiter,
                                                       .delimiter_count = 1};
  hark_value inputs[3] = {p->offsets}, outputs[HARK_MAX_OUTPUTS] = {0};
  if (options->chunk == HARK_AHCA_DELIMITER) inputs[1] = p->input->tokens;
  if (options->chunk == HARK_AHCA_SEMANTIC) {
    const hark_depth_scores_attributes window = {options->window};
    const hark_value parts[] = {x, p->offsets};
    HARK_TRY(apply(p, &hark_op_depth_scores, &window, 2, parts, &inputs[2]));
  }
  if (options->chunk == HARK_AHCA_LEARNED) HARK_TRY(boundary_probability(p, x, &inputs[2]));
  HARK_TRY(apply(p, &hark_op_chunk_boundaries, &attributes, 3, inputs, outputs));
  p->chunk_rows = outputs[0];
  p->chunk_offsets = outputs[1];
  p->chunks = hark_tape_tensor(p->tape, outputs[0])->shape[0] - 1;
  if (options->chunk != HARK_AHCA_LEARNED) return HARK_OK;
  const hark_value settle[] = {inputs[2], p->chunk_rows};
  HARK_TRY(apply(p, &hark_op_settled_probability, NULL, 2, settle, &p->probability));
  if (p->input->penalty == NULL || options->ratio_weight == 0) return HARK_OK;
  const hark_ratio_loss_attributes ratio = {options->ratio_weight * p->input->weight, (double)options->chunk_size};
  const hark_value loss_inputs[] = {p->probability, p->offsets, p->chunk_offsets};
  hark_value loss = 0;
  HARK_TRY(apply(p, &hark_op_ratio_loss, &ratio, 3, loss_inputs, &loss));
  return add_penalty(p, loss);
}

/* Where the slots of chunks lie, for ragged attention and for tables. */
static hark_status number_slots(pass *p) {
  const int64_t slots = p->options->primary_slots;
  const hark_segment_slots_attributes of_chunk = {slots, 0, false}, of_sequence = {INT32_MAX, slots, true}; /* all that it has */
  const hark_segment_index_attributes index = {p->chunks * slots, slots, p->sizes.chunks, false};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(apply_one(p, &hark_op_segment_slots, &of_chunk, p->chunk_rows, &p->slot_rows));
  HARK_TRY(apply_one(p, &hark_op_segment_slots, &of_sequence, p->chunk_offsets, &p->sequence_slots));
  HARK_TRY(apply_one(p, &hark_op_segment_index, &index, p->chunk_offsets, outputs));
  p->chunk_number = outputs[0];
  p->slot_number = outputs[1];
  hark_tape_release(p->tape, outputs[2]);
  return HARK_OK;
}

/* Attention over ragged rows: what it is over, and between whom. */
typedef struct ragged {
  hark_value query, key, value, bias, query_offsets, key_offsets;
  int64_t keys_of_a_query;
} ragged;

static hark_attention_desc describe(const pass *p, int64_t width, int64_t value_width) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = 1;
  desc.heads = p->network->config.heads;
  desc.head_dim = width / desc.heads;
  desc.value_dim = value_width / desc.heads;
  desc.forward_only = !p->forward->training;
  return desc;
}

static int64_t rows_of(const pass *p, hark_value value) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  const int64_t width = tensor->shape[tensor->rank - 1];
  return width == 0 ? 0 : hark_tensor_count(tensor) / width;
}

static int64_t width_of(const pass *p, hark_value value) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  return tensor->shape[tensor->rank - 1];
}

static hark_status attend(const pass *p, const ragged *r, hark_value *out) {
  enum { QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS };
  hark_attention_attributes attributes = {.own = describe(p, width_of(p, r->query), width_of(p, r->value)),
                                          .keys_of_a_query = r->keys_of_a_query};
  attributes.own.query_length = rows_of(p, r->query);
  attributes.own.key_length = rows_of(p, r->key);
  attributes.own.has_bias = r->bias != 0;
  attributes.own.max_sequences = hark_tape_tensor(p->tape, r->query_offsets)->shape[0];
  const hark_value inputs[INPUTS] = {
      r->query, r->key, r->value, r->bias, [QUERY_OFFSETS] = r->query_offsets, [KEY_OFFSETS] = r->key_offsets};
  return apply(p, &hark_op_attention, &attributes, INPUTS, inputs, out);
}

/* Rows of segments pooled by learned queries, one for each slot. */
static hark_status pool_by_attention(const pass *p, hark_parameter_id queries, hark_value ids, const hark_linear *key_layer, hark_value x,
                                     hark_value query_offsets, hark_value key_offsets, int64_t longest, hark_value *out) {
  ragged r = {.value = x, .query_offsets = query_offsets, .key_offsets = key_offsets, .keys_of_a_query = longest};
  HARK_TRY(look_up(p, queries, ids, &r.query));
  HARK_TRY(hark_linear_apply(p->forward, key_layer, x, &r.key));
  HARK_TRY(attend(p, &r, out));
  hark_tape_release(p->tape, r.query);
  hark_tape_release(p->tape, r.key);
  return HARK_OK;
}

static hark_status pool_segments(const pass *p, int kind, int64_t slots, int64_t unit, bool fewer, hark_value x, hark_value offsets,
                                 hark_value *out) {
  const hark_segment_pool_attributes attributes = {kind == HARK_AHCA_MAX ? HARK_SEGMENT_POOL_MAX : HARK_SEGMENT_POOL_AVERAGE, slots, unit,
                                                   fewer};
  const hark_value inputs[] = {x, offsets};
  return apply(p, &hark_op_segment_pool, &attributes, 2, inputs, out);
}

/* C1 [K, C1, d'] */
static hark_status compress_chunks(pass *p, hark_value x, hark_value *out) {
  const hark_ahca_layers *layers = p->layers;
  hark_value u = 0, c = 0;
  HARK_TRY(hark_linear_apply(p->forward, &layers->primary, x, &u));
  if (layers->in_chunk_table != 0) {
    const int64_t limit = hark_min(p->sizes.maximum, p->network->config.context);
    const hark_segment_index_attributes rows = {p->tokens, 0, limit, true};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0}, positions = 0;
    HARK_TRY(apply_one(p, &hark_op_segment_index, &rows, p->chunk_rows, outputs));
    HARK_TRY(look_up(p, layers->in_chunk_table, outputs[0], &positions));
    HARK_TRY(hark_forward_add(p->forward, u, positions, &u));
  }
  if (p->options->primary_pool == HARK_AHCA_ATTENTION) {
    HARK_TRY(pool_by_attention(p, layers->primary_queries, p->slot_number, &layers->primary_key, u, p->slot_rows, p->chunk_rows,
                               p->sizes.maximum, &c));
  } else {
    HARK_TRY(pool_segments(p, p->options->primary_pool, p->options->primary_slots, 0, false, u, p->chunk_rows, &c));
  }
  hark_tape_release(p->tape, u);
  if (p->probability != 0) {
    const hark_value inputs[] = {c, p->probability, p->chunk_rows, p->chunk_offsets};
    hark_value smooth = 0;
    HARK_TRY(apply(p, &hark_op_smooth_chunks, NULL, 4, inputs, &smooth));
    hark_tape_release(p->tape, c);
    c = smooth;
  }
  *out = c;
  return HARK_OK;
}

/* C2: min(C2, slots) rows a sequence, normed. */
static hark_status compress_sequences(pass *p, hark_value c) {
  const hark_ahca_layers *layers = p->layers;
  const int64_t slots = p->options->secondary_slots, unit = p->options->primary_slots;
  const hark_segment_slots_attributes of_sequence = {slots, unit, true};
  hark_value z = 0, pooled = 0;
  HARK_TRY(hark_linear_apply(p->forward, &layers->secondary, c, &z));
  HARK_TRY(add_table(p, layers->chunk_table, p->chunk_number, &z));
  HARK_TRY(add_table(p, layers->slot_table, p->slot_number, &z));
  HARK_TRY(apply_one(p, &hark_op_segment_slots, &of_sequence, p->chunk_offsets, &p->global_offsets));
  if (p->options->secondary_pool == HARK_AHCA_ATTENTION) {
    const hark_segment_index_attributes index = {p->sequences * slots, 0, 0, false};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0};
    HARK_TRY(apply_one(p, &hark_op_segment_index, &index, p->global_offsets, outputs));
    HARK_TRY(pool_by_attention(p, layers->secondary_queries, outputs[0], &layers->secondary_key, z, p->global_offsets, p->sequence_slots,
                               p->sizes.chunks * unit, &pooled));
  } else {
    HARK_TRY(pool_segments(p, p->options->secondary_pool, slots, unit, true, z, p->chunk_offsets, &pooled));
  }
  hark_tape_release(p->tape, z);
  p->pooled = pooled;
  return hark_norm_apply(p->forward, &layers->secondary_norm, pooled, &p->global);
}

static hark_status gather(const pass *p, int leading, hark_value x, hark_value index, hark_value *out) {
  const hark_gather_rows_attributes attributes = {leading};
  const hark_value inputs[] = {x, index};
  return apply(p, &hark_op_gather_rows, &attributes, 2, inputs, out);
}

static hark_status select_tokens(pass *p, hark_value c) {
  static const hark_selection kinds[] = {HARK_SELECTION_SCORE, HARK_SELECTION_NORM, HARK_SELECTION_QUERY, HARK_SELECTION_MEDOIDS};
  enum { OFFSETS, X, SCORE, QUERY, QUERY_OFFSETS, INPUTS };
  enum { ITERATIONS = 8 };
  const hark_ahca_config *options = p->options;
  const int leading = hark_tape_tensor(p->tape, p->global)->rank - 1;
  const hark_select_tokens_attributes attributes = {kinds[options->select], rows_of(p, p->global), options->selected, 0, ITERATIONS};
  hark_value inputs[INPUTS] = {p->global_offsets}, outputs[HARK_MAX_OUTPUTS] = {0};
  if (options->select == HARK_AHCA_SCORE) {
    HARK_TRY(hark_linear_apply(p->forward, &p->layers->select, p->global, &inputs[SCORE]));
  } else {
    inputs[X] = p->pooled;
  }
  if (options->select == HARK_AHCA_QUERY) {
    inputs[QUERY] = c;
    inputs[QUERY_OFFSETS] = p->sequence_slots;
  }
  HARK_TRY(apply(p, &hark_op_select_tokens, &attributes, INPUTS, inputs, outputs));
  p->index = outputs[0];
  p->selected_offsets = outputs[1];
  hark_tape_release(p->tape, p->pooled);
  HARK_TRY(gather(p, leading, p->global, p->index, &p->selected));
  if (options->select != HARK_AHCA_SCORE) return HARK_OK;
  hark_value chosen = 0;
  HARK_TRY(gather(p, leading, inputs[SCORE], p->index, &chosen));
  HARK_TRY(apply_one(p, &hark_op_log_sigmoid, NULL, chosen, &p->term));
  hark_tape_release(p->tape, chosen);
  hark_tape_release(p->tape, inputs[SCORE]);
  return HARK_OK;
}

/* A = attention(norm(h), selected) Wo; *h <- *h + A. `attended`, where not NULL, gets A. */
static hark_status join(const pass *p, const hark_ahca_join_layer *layer, hark_value *h, hark_value *attended) {
  hark_value normed = 0, out = 0, a = 0, sum = 0;
  ragged r = {
      .bias = p->term, .query_offsets = p->sequence_slots, .key_offsets = p->selected_offsets, .keys_of_a_query = p->options->selected};
  HARK_TRY(hark_norm_apply(p->forward, &layer->norm, *h, &normed));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.query, normed, &r.query));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.key, p->selected, &r.key));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.value, p->selected, &r.value));
  hark_tape_release(p->tape, normed);
  HARK_TRY(attend(p, &r, &out));
  hark_tape_release(p->tape, r.query);
  hark_tape_release(p->tape, r.key);
  hark_tape_release(p->tape, r.value);
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.output, out, &a));
  hark_tape_release(p->tape, out);
  const hark_value parts[] = {*h, a};
  HARK_TRY(apply(p, &hark_op_add, NULL, 2, parts, &sum));
  hark_tape_release(p->tape, *h);
  *h = sum;
  if (attended != NULL) {
    *attended = a;
  } else {
    hark_tape_release(p->tape, a);
  }
  return HARK_OK;
}

/* The part of the chunks of a sequence that has layer `number`, from 0. */
static double capacity_of(const pass *p, int64_t number) {
  const double done = 1 - p->input->remaining;
  double reached = (done - FULL_DEPTH_UNTIL) / (CAPACITY_FROM - FULL_DEPTH_UNTIL);
  reached = reached < 0 ? 0 : reached > 1 ? 1 : reached;
  double capacity = 1;
  for (int64_t l = 0; l < number; l++) capacity *= p->options->capacity;
  return 1 + reached * (capacity - 1);
}

/* Scores and depths of chunks, from what went into the join or came out of it. */
static hark_status settle_depth(pass *p, hark_value c, hark_value attended) {
  const hark_network_config *config = &p->network->config;
  const bool paper = p->options->depth == HARK_AHCA_PAPER;
  if (config->layers < 2) return HARK_OK;
  if (p->options->depth_score == HARK_AHCA_OF_ATTENTION) {
    HARK_TRY(apply_one(p, &hark_op_row_norm, NULL, attended, &p->depth_score));
  } else if (paper) {
    HARK_TRY(apply_one(p, &hark_op_row_norm, NULL, c, &p->depth_score));
  } else {
    static const hark_pool_attributes mean = {HARK_POOL_MEAN};
    hark_value normed = 0, pooled = 0;
    HARK_TRY(hark_norm_apply(p->forward, &p->layers->depth_norm, c, &normed));
    HARK_TRY(apply_one(p, &hark_op_pool, &mean, normed, &pooled));
    HARK_TRY(hark_linear_apply(p->forward, &p->layers->depth, pooled, &p->depth_score));
    hark_tape_release(p->tape, normed);
    hark_tape_release(p->tape, pooled);
  }
  hark_chunk_depth_attributes attributes = {.rule = paper ? HARK_DEPTH_PAPER : HARK_DEPTH_CAPACITY, .layers = config->layers};
  for (int64_t l = 0; l < config->layers; l++) attributes.capacity[l] = capacity_of(p, l);
  const hark_value inputs[] = {p->depth_score, p->chunk_offsets};
  HARK_TRY(apply(p, &hark_op_chunk_depth, &attributes, 2, inputs, &p->depth));
  if (paper || p->input->penalty == NULL || p->options->ponder_weight == 0) return HARK_OK;
  const hark_ponder_loss_attributes ponder = {p->options->ponder_weight * p->input->weight};
  hark_value loss = 0;
  HARK_TRY(apply(p, &hark_op_ponder_loss, &ponder, 2, inputs, &loss));
  return add_penalty(p, loss);
}

/* F(h) = a + f, a = attention(norm(h)) among a chunk's slots, f = feed_forward(norm(h + a)); h [I, C1, d'] stays. */
static hark_status layer_branch(const pass *p, int64_t number, hark_value h, hark_value *out) {
  const hark_ahca_layer *layer = &p->layers->layers[number];
  const hark_tensor *shape = hark_tape_tensor(p->tape, h);
  hark_attention_attributes attributes = {.own = describe(p, p->sizes.primary_width, p->sizes.primary_width)};
  attributes.own.batch = shape->shape[0];
  attributes.own.query_length = attributes.own.key_length = shape->shape[1];
  hark_value normed = 0, parts[3] = {0}, mixed = 0, a = 0, sum = 0, f = 0;
  HARK_TRY(hark_norm_apply(p->forward, &layer->attention_norm, h, &normed));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.query, normed, &parts[0]));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.key, normed, &parts[1]));
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.value, normed, &parts[2]));
  hark_tape_release(p->tape, normed);
  HARK_TRY(apply(p, &hark_op_attention, &attributes, 3, parts, &mixed));
  for (int i = 0; i < 3; i++) hark_tape_release(p->tape, parts[i]);
  HARK_TRY(hark_linear_apply(p->forward, &layer->attention.output, mixed, &a));
  hark_tape_release(p->tape, mixed);
  HARK_TRY(hark_forward_dropout(p->forward, p->network->config.dropout, number, HARK_DROPOUT_ATTENTION_BRANCH, &a));
  const hark_value terms[] = {h, a};
  HARK_TRY(apply(p, &hark_op_add, NULL, 2, terms, &sum));
  HARK_TRY(hark_norm_apply(p->forward, &layer->feed_forward_norm, sum, &normed));
  hark_tape_release(p->tape, sum);
  HARK_TRY(hark_feed_forward_apply(p->forward, &layer->feed_forward, normed, &f));
  hark_tape_release(p->tape, normed);
  HARK_TRY(hark_forward_dropout(p->forward, p->network->config.dropout, number, HARK_DROPOUT_FEED_FORWARD_BRANCH, &f));
  return hark_forward_add(p->forward, a, f, out);
}

/* Layer `number` on the chunks that have it. */
static hark_status deep_layer(const pass *p, int64_t number, hark_value *h) {
  const bool paper = p->options->depth == HARK_AHCA_PAPER;
  const int64_t rows = paper ? p->chunks : hark_depth_capacity(capacity_of(p, number), p->chunks, p->sequences);
  const hark_chunks_at_depth_attributes attributes = {number + 1, rows};
  hark_value index = 0, gathered = 0, branch = 0, out = 0;
  if (rows == 0) return HARK_OK;
  HARK_TRY(apply_one(p, &hark_op_chunks_at_depth, &attributes, p->depth, &index));
  HARK_TRY(gather(p, 1, *h, index, &gathered));
  HARK_TRY(layer_branch(p, number, gathered, &branch));
  hark_tape_release(p->tape, gathered);
  const hark_value inputs[] = {*h, branch, index, paper ? 0 : p->depth_score};
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_scatter_gated, NULL, 4, inputs, 1u << 0 | 1u << 1 | 1u << 2, &out));
  *h = out;
  return HARK_OK;
}

static hark_status run_layers(pass *p, hark_value c, hark_value *out) {
  const hark_network_config *config = &p->network->config;
  hark_value h = 0, attended = 0, branch = 0;
  static const hark_scale_attributes same = {1};
  HARK_TRY(apply_one(p, &hark_op_scale, &same, c, &h)); /* c stays for the depth's score */
  HARK_TRY(join(p, &p->layers->layers[0].join, &h, &attended));
  HARK_TRY(settle_depth(p, c, attended));
  hark_tape_release(p->tape, attended);
  HARK_TRY(layer_branch(p, 0, h, &branch));
  HARK_TRY(hark_forward_add(p->forward, h, branch, &h));
  for (int64_t number = 1; number < config->layers; number++) {
    if (p->forward->cancel != NULL && p->forward->cancel(p->forward->cancel_user))
      return hark_fail(p->context, HARK_CANCELLED, "cancelled");
    if (p->options->join == HARK_AHCA_EVERY) HARK_TRY(join(p, &p->layers->layers[number].join, &h, NULL));
    HARK_TRY(deep_layer(p, number, &h));
  }
  *out = h;
  return HARK_OK;
}

/* logits = W2 relu(W1 mean + b1) + b2 of the mean over a sequence's slots. */
static hark_status head(const pass *p, hark_value h, hark_value *out) {
  static const hark_pool_attributes mean = {HARK_POOL_MEAN};
  const hark_network *network = p->network;
  hark_value normed = 0, pooled = 0, vectors = 0, hidden = 0, active = 0;
  HARK_TRY(hark_norm_apply(p->forward, &network->final_norm, h, &normed));
  HARK_TRY(pool_segments(p, HARK_AHCA_AVERAGE, 1, p->options->primary_slots, false, normed, p->chunk_offsets, &pooled));
  hark_tape_release(p->tape, normed);
  HARK_TRY(apply_one(p, &hark_op_pool, &mean, pooled, &vectors)); /* [S, 1, d'] -> [S, d'] */
  HARK_TRY(hark_linear_apply(p->forward, &network->hidden[0], vectors, &hidden));
  HARK_TRY(apply_one(p, &hark_op_relu, NULL, hidden, &active));
  HARK_TRY(hark_linear_apply(p->forward, &network->head, active, out));
  hark_tape_release(p->tape, pooled);
  hark_tape_release(p->tape, vectors);
  hark_tape_release(p->tape, hidden);
  hark_tape_release(p->tape, active);
  return HARK_OK;
}

static hark_status embed(const pass *p, hark_value *x) {
  HARK_TRY(look_up(p, p->network->token_table, p->input->tokens, x));
  return hark_forward_dropout(p->forward, p->network->config.embedding_dropout, 0, HARK_DROPOUT_EMBEDDING, x);
}

hark_status hark_ahca_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                             const hark_network_input *input, hark_value *logits, hark_ahca_trace *trace) {
  if (input->ranges == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "ahca: no ranges of examples, expected [N, 1, 2]");
  pass p = {.context = context,
            .network = network,
            .forward = forward,
            .input = input,
            .options = &network->config.ahca,
            .layers = network->ahca,
            .sizes = hark_ahca_sizes_of(&network->config),
            .tape = forward->tape,
            .tokens = hark_tensor_count(hark_tape_tensor(forward->tape, input->tokens)),
            .sequences = input->ranges->shape[0]};
  hark_value ranges = 0, x = 0, c = 0, h = 0;
  HARK_TRY(hark_tape_leaf(p.tape, input->ranges, NULL, &ranges));
  HARK_TRY(apply_one(&p, &hark_op_range_offsets, NULL, ranges, &p.offsets));
  HARK_TRY(embed(&p, &x));
  HARK_TRY(cut(&p, x));
  HARK_TRY(number_slots(&p));
  HARK_TRY(compress_chunks(&p, x, &c));
  hark_tape_release(p.tape, x);
  HARK_TRY(compress_sequences(&p, c));
  HARK_TRY(select_tokens(&p, c));
  HARK_TRY(run_layers(&p, c, &h));
  hark_tape_release(p.tape, c);
  HARK_TRY(head(&p, h, logits));
  hark_tape_release(p.tape, h);
  if (input->penalty != NULL) *input->penalty = p.penalty;
  if (trace != NULL) *trace = (hark_ahca_trace){p.chunk_rows, p.chunk_offsets, p.index, p.depth};
  return HARK_OK;
}

/* ahca_network.c - see ahca_network.h. */
#include "lab/ahca_network.h"

#include <hark/experimental.h>
#include <stdio.h>

#define NORM_EPSILON 1e-5
#define TABLE_DEVIATION 0.1 /* of embeddings: small, so that their directions follow the task soon */
#define BOUNDARY_CONSTANT TABLE_DEVIATION
#define INNER 4                /* feed-forward width over d */
#define BRANCH_DEVIATION 0.5   /* of a branch's last linear layer, over that of the others */
#define FULL_DEPTH_UNTIL 0.4   /* of the training: all chunks have all layers .. */
#define CAPACITY_FROM 0.7      /* .. and the capacity is reached here */
#define LONGEST_CHUNK 4        /* of learned chunks, over `chunk` */
#define STREAMS 65536u         /* of a run */
#define TEST_STREAM 0x7000u    /* of a run: where those of tests begin */
#define RANDOM_STREAMS 0x8000u /* and what the network itself draws */

static int64_t shortest_chunk(const hark_lab_ahca_config *c) { return c->learned ? 1 : c->chunk; }
static int64_t longest_chunk(const hark_lab_ahca_config *c) { return c->learned ? LONGEST_CHUNK * c->chunk : c->chunk; }

/* ---- parameters ---- */

static double deviation_of(int64_t in) { return 1 / sqrt((double)in); }

static hark_status declare_linear(hark_lab_ahca *n, const char *name, int64_t in, int64_t out, hark_linear *layer) {
  return hark_linear_declare(n->training.context, &n->training.parameters, in, out, true, deviation_of(in), name, layer);
}

static hark_status declare_norm(hark_lab_ahca *n, const char *name, hark_norm_layer *layer) {
  return hark_norm_declare(n->training.context, &n->training.parameters, HARK_NORM_RMS, NORM_EPSILON, n->config.width, false, name, layer);
}

static hark_status declare_table(hark_lab_ahca *n, const char *name, int64_t rows, double deviation, hark_parameter_id *out) {
  const hark_parameter_spec spec = {.rank = 2, .shape = {rows, n->config.width}, .initial = HARK_INITIAL_NORMAL, .value = deviation};
  return hark_parameters_add(n->training.context, &n->training.parameters, &spec, out, "%s.weight", name);
}

static hark_status declare_attention(hark_lab_ahca *n, const char *name, hark_lab_ahca_attention *out) {
  const int64_t d = n->config.width;
  const struct {
    const char *name;
    hark_linear *layer;
    double deviation;
  } parts[] = {{"query", &out->query, 1}, {"key", &out->key, 1}, {"value", &out->value, 1}, {"output", &out->output, BRANCH_DEVIATION}};
  char whole[HARK_PARAMETER_NAME_BYTES];
  for (int i = 0; i < 4; i++) {
    hark_join_name(whole, name, parts[i].name);
    HARK_TRY(hark_linear_declare(n->training.context, &n->training.parameters, d, d, false, parts[i].deviation * deviation_of(d), whole,
                                 parts[i].layer));
  }
  return HARK_OK;
}

static hark_status declare_feed_forward(hark_lab_ahca *n, const char *name, hark_feed_forward *out) {
  const int64_t d = n->config.width;
  return hark_feed_forward_declare(n->training.context, &n->training.parameters, HARK_ACTIVATION_GELU, d, INNER * d, true, deviation_of(d),
                                   BRANCH_DEVIATION * deviation_of(INNER * d), name, out);
}

static hark_status declare_block(hark_lab_ahca *n, int64_t number) {
  hark_lab_ahca_block *const block = &n->blocks[number];
  char prefix[HARK_PARAMETER_NAME_BYTES], name[HARK_PARAMETER_NAME_BYTES];
  (void)snprintf(prefix, sizeof prefix, "blocks.%d", (int)number);
  if (n->config.slots > 1) {
    hark_join_name(name, prefix, "attention_norm");
    HARK_TRY(declare_norm(n, name, &block->attention_norm));
    hark_join_name(name, prefix, "attention");
    HARK_TRY(declare_attention(n, name, &block->attention));
  }
  hark_join_name(name, prefix, "feed_forward_norm");
  HARK_TRY(declare_norm(n, name, &block->feed_forward_norm));
  hark_join_name(name, prefix, "feed_forward");
  return declare_feed_forward(n, name, &block->feed_forward);
}

static hark_status declare_score(hark_lab_ahca *n, const char *name, hark_linear *layer) {
  return hark_linear_declare(n->training.context, &n->training.parameters, n->config.width, 1, true, HARK_DEVIATION_XAVIER, name, layer);
}

/* Query and key of a boundary begin as x plus one constant, as large as x: neighbours are alike, and boundaries are the exception that has
 * to be learned. Without the constant every other token would begin a chunk, and a network that cuts everywhere labels everything right. */
static hark_status declare_boundary(hark_lab_ahca *n) {
  const int64_t d = n->config.width;
  static const char *const names[] = {"boundary.query", "boundary.key"};
  hark_linear *const layers[] = {&n->boundary_query, &n->boundary_key};
  const hark_parameter_spec weight = {.rank = 2, .shape = {d, d}, .initial = HARK_INITIAL_IDENTITY};
  const hark_parameter_spec bias = {.rank = 1, .shape = {d}, .initial = HARK_INITIAL_CONSTANT, .value = BOUNDARY_CONSTANT};
  for (int i = 0; i < 2; i++) {
    HARK_TRY(hark_parameters_add(n->training.context, &n->training.parameters, &weight, &layers[i]->weight, "%s.weight", names[i]));
    HARK_TRY(hark_parameters_add(n->training.context, &n->training.parameters, &bias, &layers[i]->bias, "%s.bias", names[i]));
  }
  return HARK_OK;
}

static hark_status declare_second_level(hark_lab_ahca *n) {
  const int64_t d = n->config.width;
  HARK_TRY(declare_linear(n, "secondary", d, d, &n->secondary));
  HARK_TRY(declare_norm(n, "secondary_norm", &n->secondary_norm));
  if (n->config.secondary_attention) {
    HARK_TRY(declare_table(n, "secondary.queries", n->config.secondary, 1, &n->pool_queries));
    HARK_TRY(declare_linear(n, "secondary.key", d, d, &n->pool_key));
  }
  if (n->config.select == HARK_LAB_SELECT_SCORE) HARK_TRY(declare_score(n, "select", &n->score));
  HARK_TRY(declare_norm(n, "join_norm", &n->join_norm));
  return declare_attention(n, "join", &n->join);
}

static hark_status declare_reading(hark_lab_ahca *n) {
  const hark_lab_ahca_config *c = &n->config;
  if (c->reading == HARK_LAB_READ_POSITIONS) {
    HARK_TRY(declare_table(n, "read.position", longest_chunk(c), TABLE_DEVIATION, &n->reading_table));
    HARK_TRY(declare_attention(n, "read", &n->read));
    HARK_TRY(declare_norm(n, "read_norm", &n->reading_norm));
    HARK_TRY(declare_feed_forward(n, "read.feed_forward", &n->read_forward));
  }
  HARK_TRY(declare_norm(n, "final_norm", &n->final_norm));
  return declare_linear(n, "classes", c->width, c->classes, &n->classes);
}

static hark_status declare(hark_lab_ahca *n) {
  const hark_lab_ahca_config *c = &n->config;
  HARK_TRY(declare_table(n, "token", c->vocabulary, TABLE_DEVIATION, &n->token_table));
  if (c->positions) HARK_TRY(declare_table(n, "position", longest_chunk(c), TABLE_DEVIATION, &n->position_table));
  if (c->learned) HARK_TRY(declare_boundary(n));
  HARK_TRY(declare_linear(n, "primary", c->width, c->width, &n->primary));
  if (c->two_layers) HARK_TRY(declare_linear(n, "primary.inner", c->width, c->width, &n->primary_inner));
  if (c->primary_attention) {
    HARK_TRY(declare_table(n, "primary.queries", c->slots, 1, &n->primary_queries));
    HARK_TRY(declare_linear(n, "primary.key", c->width, c->width, &n->primary_key));
  }
  if (c->selected > 0) HARK_TRY(declare_second_level(n));
  if (c->depth == HARK_LAB_DEPTH_LEARNED) {
    HARK_TRY(declare_norm(n, "depth_norm", &n->depth_norm));
    HARK_TRY(declare_score(n, "depth", &n->depth_score));
  }
  for (int64_t l = 0; l < c->layers; l++) HARK_TRY(declare_block(n, l));
  return declare_reading(n);
}

/* ---- a pass ---- */

typedef struct pass {
  hark_lab_ahca *n;
  const hark_forward *forward;
  hark_tape *tape;
  hark_value offsets, slot_rows, slot_offsets, selected, selected_offsets, term, penalty;
} pass;

static hark_status apply(const pass *p, const hark_operator *op, const void *attributes, int count, const hark_value *inputs,
                         hark_value *out) {
  return hark_tape_apply(p->tape, op, attributes, count, inputs, 0, out);
}

static hark_status look_up(const pass *p, hark_parameter_id table, hark_value ids, hark_value *out) {
  hark_value inputs[] = {ids, 0};
  HARK_TRY(hark_forward_parameter(p->forward, table, &inputs[1]));
  return apply(p, &hark_op_embedding, NULL, 2, inputs, out);
}

static hark_status sum_of(const pass *p, hark_value a, hark_value b, hark_value *out) {
  const hark_value inputs[] = {a, b};
  return apply(p, &hark_op_add, NULL, 2, inputs, out);
}

static hark_status gather(const pass *p, int leading, hark_value x, hark_value index, hark_value *out) {
  const hark_gather_rows_attributes attributes = {leading};
  const hark_value inputs[] = {x, index};
  return apply(p, &hark_op_gather_rows, &attributes, 2, inputs, out);
}

static hark_status add_penalty(pass *p, hark_value penalty) {
  if (p->penalty == 0) {
    p->penalty = penalty;
    return HARK_OK;
  }
  return sum_of(p, p->penalty, penalty, &p->penalty);
}

/* Boundaries; learned ones with the loss of their share. */
static hark_status cut(pass *p, hark_value x) {
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  const hark_chunk_boundaries_attributes attributes = {.rule = c->learned ? HARK_CHUNK_SCORE : HARK_CHUNK_FIXED,
                                                       .rows = n->tokens,
                                                       .minimum = shortest_chunk(c),
                                                       .maximum = longest_chunk(c),
                                                       .threshold = 0.5};
  hark_value inputs[3] = {p->offsets}, outputs[HARK_MAX_OUTPUTS] = {0};
  if (c->learned) {
    hark_value parts[3] = {0, 0, p->offsets};
    HARK_TRY(hark_linear_apply(p->forward, &n->boundary_query, x, &parts[0]));
    HARK_TRY(hark_linear_apply(p->forward, &n->boundary_key, x, &parts[1]));
    HARK_TRY(apply(p, &hark_op_boundary_probability, NULL, 3, parts, &inputs[2]));
  }
  HARK_TRY(apply(p, &hark_op_chunk_boundaries, &attributes, 3, inputs, outputs));
  n->chunk_rows = outputs[0];
  n->chunk_offsets = outputs[1];
  if (!c->learned) return HARK_OK;
  const hark_value settle[] = {inputs[2], n->chunk_rows};
  HARK_TRY(apply(p, &hark_op_settled_probability, NULL, 2, settle, &n->probability));
  if (!p->forward->training || c->ratio_weight == 0) return HARK_OK;
  const hark_ratio_loss_attributes ratio = {c->ratio_weight / (double)c->sequences, (double)c->chunk};
  const hark_value parts[] = {n->probability, p->offsets, n->chunk_offsets};
  hark_value loss = 0;
  HARK_TRY(apply(p, &hark_op_ratio_loss, &ratio, 3, parts, &loss));
  return add_penalty(p, loss);
}

/* What attention over packed rows is between. */
typedef struct ragged {
  hark_value query, key, value, bias, query_offsets, key_offsets;
  int64_t keys_of_a_query;
} ragged;

static int64_t rows_of(const pass *p, hark_value value) { return hark_tensor_count(hark_tape_tensor(p->tape, value)) / p->n->config.width; }

static hark_attention_desc describe(const pass *p) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = 1;
  desc.heads = p->n->config.heads;
  desc.head_dim = desc.value_dim = p->n->config.width / desc.heads;
  desc.forward_only = !p->forward->training;
  return desc;
}

static hark_status attend(const pass *p, const ragged *r, hark_value *out) {
  enum { QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS };
  hark_attention_attributes attributes = {.own = {.desc = describe(p)}, .keys_of_a_query = r->keys_of_a_query};
  attributes.own.desc.query_length = rows_of(p, r->query);
  attributes.own.desc.key_length = rows_of(p, r->key);
  attributes.own.desc.has_bias = r->bias != 0;
  attributes.own.desc.max_sequences = hark_tape_tensor(p->tape, r->query_offsets)->shape[0];
  const hark_value inputs[INPUTS] = {
      r->query, r->key, r->value, r->bias, [QUERY_OFFSETS] = r->query_offsets, [KEY_OFFSETS] = r->key_offsets};
  return apply(p, &hark_op_attention, &attributes, INPUTS, inputs, out);
}

/* *h <- h + attention of its rows `asked` to those of `to` */
static hark_status join(const pass *p, const hark_lab_ahca_attention *layer, hark_value asked, hark_value to, ragged *r, hark_value *h) {
  hark_value mixed = 0, a = 0;
  HARK_TRY(hark_linear_apply(p->forward, &layer->query, asked, &r->query));
  HARK_TRY(hark_linear_apply(p->forward, &layer->key, to, &r->key));
  HARK_TRY(hark_linear_apply(p->forward, &layer->value, to, &r->value));
  HARK_TRY(attend(p, r, &mixed));
  HARK_TRY(hark_linear_apply(p->forward, &layer->output, mixed, &a));
  return sum_of(p, *h, a, h);
}

/* *x <- f(x) of every token. */
static hark_status encode(const pass *p, hark_value *x) {
  static const hark_gelu_attributes exact = {false};
  if (p->n->config.two_layers) {
    HARK_TRY(hark_linear_apply(p->forward, &p->n->primary_inner, *x, x));
    HARK_TRY(apply(p, &hark_op_gelu, &exact, 1, x, x));
  }
  return hark_linear_apply(p->forward, &p->n->primary, *x, x);
}

/* *x <- x + embedding of the position in the chunk. */
static hark_status add_positions(const pass *p, hark_value *x) {
  const hark_segment_index_attributes rows = {p->n->tokens, 0, longest_chunk(&p->n->config), false};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0}, positions = 0;
  if (!p->n->config.positions) return HARK_OK;
  HARK_TRY(apply(p, &hark_op_segment_index, &rows, 1, &p->n->chunk_rows, outputs));
  HARK_TRY(look_up(p, p->n->position_table, outputs[0], &positions));
  return sum_of(p, *x, positions, x);
}

/* Where slots of chunks and of sequences lie. */
static hark_status place_slots(pass *p) {
  const hark_segment_slots_attributes of_chunk = {p->n->config.slots, 0, false}, of_sequence = {INT32_MAX, p->n->config.slots, true};
  HARK_TRY(apply(p, &hark_op_segment_slots, &of_chunk, 1, &p->n->chunk_rows, &p->slot_rows));
  return apply(p, &hark_op_segment_slots, &of_sequence, 1, &p->n->chunk_offsets, &p->slot_offsets);
}

/* C1 [K, C1, d] of what the tokens are; learned boundaries are computed from f(x), whose rows the task teaches to be alike or not. */
static hark_status compress_chunks(pass *p, hark_value x, hark_value *out) {
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  const hark_segment_pool_attributes average = {HARK_SEGMENT_POOL_AVERAGE, c->slots, 0, false, 0};
  if (c->learned) HARK_TRY(encode(p, &x));
  HARK_TRY(cut(p, x));
  HARK_TRY(place_slots(p));
  HARK_TRY(add_positions(p, &x));
  if (!c->learned) HARK_TRY(encode(p, &x));
  if (c->primary_attention) {
    const hark_segment_index_attributes index = {n->chunks * c->slots, c->slots, 0, false};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0};
    ragged r = {.value = x, .query_offsets = p->slot_rows, .key_offsets = n->chunk_rows, .keys_of_a_query = longest_chunk(c)};
    HARK_TRY(apply(p, &hark_op_segment_index, &index, 1, &n->chunk_offsets, outputs));
    HARK_TRY(look_up(p, n->primary_queries, outputs[1], &r.query));
    HARK_TRY(hark_linear_apply(p->forward, &n->primary_key, x, &r.key));
    HARK_TRY(attend(p, &r, out));
  } else {
    const hark_value pooled[] = {x, n->chunk_rows};
    HARK_TRY(apply(p, &hark_op_segment_pool, &average, 2, pooled, out));
  }
  if (!c->smooth) return HARK_OK;
  const hark_value inputs[] = {*out, n->probability, n->chunk_rows, n->chunk_offsets};
  return apply(p, &hark_op_smooth_chunks, NULL, 4, inputs, out);
}

/* C2, normed, with its offsets. */
static hark_status compress_sequences(pass *p, hark_value slots, hark_value *pooled, hark_value *global, hark_value *global_offsets) {
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  const hark_segment_slots_attributes of_sequence = {c->secondary, c->slots, true};
  hark_value z = 0;
  HARK_TRY(hark_linear_apply(p->forward, &n->secondary, slots, &z));
  HARK_TRY(apply(p, &hark_op_segment_slots, &of_sequence, 1, &n->chunk_offsets, global_offsets));
  if (c->secondary_attention) {
    const hark_segment_index_attributes index = {c->sequences * c->secondary, 0, 0, false};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0};
    ragged r = {.value = z,
                .query_offsets = *global_offsets,
                .key_offsets = p->slot_offsets,
                .keys_of_a_query = n->real_chunks / c->sequences * c->slots};
    HARK_TRY(apply(p, &hark_op_segment_index, &index, 1, global_offsets, outputs));
    HARK_TRY(look_up(p, n->pool_queries, outputs[0], &r.query));
    HARK_TRY(hark_linear_apply(p->forward, &n->pool_key, z, &r.key));
    HARK_TRY(attend(p, &r, pooled));
  } else {
    const hark_segment_pool_attributes average = {HARK_SEGMENT_POOL_AVERAGE, c->secondary, c->slots, true, 0};
    const hark_value inputs[] = {z, n->chunk_offsets};
    HARK_TRY(apply(p, &hark_op_segment_pool, &average, 2, inputs, pooled));
  }
  return hark_norm_apply(p->forward, &n->secondary_norm, *pooled, global);
}

/* Cs of C2, and log sigmoid of their scores where they are learned. */
static hark_status select_tokens(pass *p, hark_value pooled, hark_value global, hark_value offsets) {
  enum { OFFSETS, X, SCORE, INDEX = 5, INPUTS };
  static const hark_selection kinds[] = {HARK_SELECTION_SCORE, HARK_SELECTION_NORM, HARK_SELECTION_GIVEN};
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  const hark_select_tokens_attributes attributes = {kinds[c->select], rows_of(p, global), c->selected, 0, 0};
  const int leading = hark_tape_tensor(p->tape, global)->rank - 1;
  hark_value inputs[INPUTS] = {offsets}, outputs[HARK_MAX_OUTPUTS] = {0};
  if (c->select == HARK_LAB_SELECT_SCORE) HARK_TRY(hark_linear_apply(p->forward, &n->score, global, &inputs[SCORE]));
  if (c->select == HARK_LAB_SELECT_NORM) inputs[X] = pooled;
  if (c->select == HARK_LAB_SELECT_RANDOM) HARK_TRY(hark_tape_leaf(p->tape, &n->random_index, NULL, &inputs[INDEX]));
  HARK_TRY(apply(p, &hark_op_select_tokens, &attributes, INPUTS, inputs, outputs));
  n->index = outputs[0];
  n->selection_score = inputs[SCORE];
  p->selected_offsets = outputs[1];
  HARK_TRY(gather(p, leading, global, n->index, &p->selected));
  if (c->select != HARK_LAB_SELECT_SCORE) return HARK_OK;
  hark_value chosen = 0;
  HARK_TRY(gather(p, leading, inputs[SCORE], n->index, &chosen));
  return apply(p, &hark_op_log_sigmoid, NULL, 1, &chosen, &p->term);
}

static hark_status second_level(pass *p, hark_value *h) {
  hark_value pooled = 0, global = 0, offsets = 0, normed = 0;
  HARK_TRY(compress_sequences(p, *h, &pooled, &global, &offsets));
  HARK_TRY(select_tokens(p, pooled, global, offsets));
  ragged r = {
      .bias = p->term, .query_offsets = p->slot_offsets, .key_offsets = p->selected_offsets, .keys_of_a_query = p->n->config.selected};
  HARK_TRY(hark_norm_apply(p->forward, &p->n->join_norm, *h, &normed));
  return join(p, &p->n->join, normed, p->selected, &r, h);
}

/* F(h) of chunks [I, C1, d]; a chunk of one slot has nothing to attend to. */
static hark_status layer_branch(const pass *p, int64_t number, hark_value h, hark_value *out) {
  const hark_lab_ahca_block *block = &p->n->blocks[number];
  hark_value normed = 0, a = 0, sum = h, f = 0;
  if (p->n->config.slots > 1) {
    const hark_tensor *shape = hark_tape_tensor(p->tape, h);
    hark_attention_attributes attributes = {.own = {.desc = describe(p)}};
    hark_value parts[3] = {0}, mixed = 0;
    attributes.own.desc.batch = shape->shape[0];
    attributes.own.desc.query_length = attributes.own.desc.key_length = shape->shape[1];
    HARK_TRY(hark_norm_apply(p->forward, &block->attention_norm, h, &normed));
    HARK_TRY(hark_linear_apply(p->forward, &block->attention.query, normed, &parts[0]));
    HARK_TRY(hark_linear_apply(p->forward, &block->attention.key, normed, &parts[1]));
    HARK_TRY(hark_linear_apply(p->forward, &block->attention.value, normed, &parts[2]));
    HARK_TRY(apply(p, &hark_op_attention, &attributes, 3, parts, &mixed));
    HARK_TRY(hark_linear_apply(p->forward, &block->attention.output, mixed, &a));
    HARK_TRY(sum_of(p, h, a, &sum));
  }
  HARK_TRY(hark_norm_apply(p->forward, &block->feed_forward_norm, sum, &normed));
  HARK_TRY(hark_feed_forward_apply(p->forward, &block->feed_forward, normed, &f));
  if (a == 0) {
    *out = f;
    return HARK_OK;
  }
  return sum_of(p, a, f, out);
}

/* The part of the chunks that has layers 2 .. */
static double capacity_of(const hark_lab_ahca *n) {
  if (n->config.depth == HARK_LAB_DEPTH_FULL) return 1;
  const double reached = (n->progress - FULL_DEPTH_UNTIL) / (CAPACITY_FROM - FULL_DEPTH_UNTIL);
  return 1 - hark_larger(0, hark_smaller(1, reached)) * (1 - n->config.capacity);
}

static hark_status settle_depth(pass *p, hark_value h, hark_value *score) {
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  hark_chunk_depth_attributes attributes = {.rule = HARK_DEPTH_CAPACITY, .layers = c->layers, .capacity = {1}};
  for (int64_t l = 1; l < c->layers; l++) attributes.capacity[l] = capacity_of(n);
  if (c->depth == HARK_LAB_DEPTH_RANDOM) {
    HARK_TRY(hark_tape_leaf(p->tape, &n->random_depth, NULL, score));
  } else {
    static const hark_pool_attributes mean = {HARK_POOL_MEAN};
    hark_value normed = 0, pooled = 0;
    HARK_TRY(hark_norm_apply(p->forward, &n->depth_norm, h, &normed));
    HARK_TRY(apply(p, &hark_op_pool, &mean, 1, &normed, &pooled));
    HARK_TRY(hark_linear_apply(p->forward, &n->depth_score, pooled, score));
  }
  const hark_value inputs[] = {*score, n->chunk_offsets};
  HARK_TRY(apply(p, &hark_op_chunk_depth, &attributes, 2, inputs, &n->depth_of_chunks));
  if (c->depth == HARK_LAB_DEPTH_RANDOM || !p->forward->training || c->ponder_weight == 0) return HARK_OK;
  const hark_ponder_loss_attributes ponder = {c->ponder_weight / (double)c->sequences};
  hark_value loss = 0;
  HARK_TRY(apply(p, &hark_op_ponder_loss, &ponder, 2, inputs, &loss));
  return add_penalty(p, loss);
}

/* Layer `number` on the chunks that have it. Fixed chunks are as many in every sequence, so that how many run is known; of learned ones the
 * most are. */
static hark_status deep_layer(const pass *p, int64_t number, hark_value score, hark_value *h) {
  hark_lab_ahca *const n = p->n;
  const hark_lab_ahca_config *c = &n->config;
  const int64_t of_sequence = hark_depth_capacity(capacity_of(n), n->real_chunks / c->sequences, 0);
  const int64_t rows = c->learned ? hark_depth_capacity(capacity_of(n), n->chunks, c->sequences) : c->sequences * of_sequence;
  const hark_chunks_at_depth_attributes attributes = {number + 1, rows};
  hark_value index = 0, gathered = 0, branch = 0;
  HARK_TRY(apply(p, &hark_op_chunks_at_depth, &attributes, 1, &n->depth_of_chunks, &index));
  HARK_TRY(gather(p, 1, *h, index, &gathered));
  HARK_TRY(layer_branch(p, number, gathered, &branch));
  const hark_value inputs[] = {*h, branch, index, n->config.depth == HARK_LAB_DEPTH_LEARNED ? score : 0};
  return apply(p, &hark_op_scatter_gated, NULL, 4, inputs, h);
}

static hark_status run_layers(pass *p, hark_value *h) {
  hark_lab_ahca *const n = p->n;
  const bool full = n->config.depth == HARK_LAB_DEPTH_FULL;
  hark_value score = 0;
  if (!full) HARK_TRY(settle_depth(p, *h, &score));
  const double before = hark_tape_operations(p->tape);
  for (int64_t l = 0; l < n->config.layers; l++) {
    hark_value branch = 0;
    if (l > 0 && !full) {
      HARK_TRY(deep_layer(p, l, score, h));
      continue;
    }
    HARK_TRY(layer_branch(p, l, *h, &branch));
    HARK_TRY(sum_of(p, *h, branch, h));
  }
  n->layer_operations = hark_tape_operations(p->tape) - before;
  return HARK_OK;
}

/* Rows [.., d] from which classes are predicted, from the chunks' slots h [K, C1, d]. */
static hark_status read_slots(pass *p, hark_value h, hark_value *out) {
  hark_lab_ahca *const n = p->n;
  const hark_segment_index_attributes rows = {n->tokens, 0, longest_chunk(&n->config), false};
  const hark_pool_attributes pool = {n->config.reading == HARK_LAB_READ_MEAN ? HARK_POOL_MEAN : HARK_POOL_FIRST};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0}, pooled = 0;
  if (n->config.reading != HARK_LAB_READ_POSITIONS) {
    HARK_TRY(apply(p, &hark_op_pool, &pool, 1, &h, &pooled));
    if (n->config.reading != HARK_LAB_READ_TOKENS) return hark_norm_apply(p->forward, &n->final_norm, pooled, out);
    HARK_TRY(apply(p, &hark_op_segment_index, &rows, 1, &n->chunk_rows, outputs));
    HARK_TRY(hark_norm_apply(p->forward, &n->final_norm, pooled, &pooled));
    return gather(p, 1, pooled, outputs[2], out);
  }
  hark_value query = 0, normed = 0, f = 0;
  ragged r = {.query_offsets = n->chunk_rows, .key_offsets = p->slot_rows, .keys_of_a_query = n->config.slots};
  HARK_TRY(apply(p, &hark_op_segment_index, &rows, 1, &n->chunk_rows, outputs));
  HARK_TRY(look_up(p, n->reading_table, outputs[0], &query));
  HARK_TRY(hark_norm_apply(p->forward, &n->reading_norm, h, &normed));
  HARK_TRY(join(p, &n->read, query, normed, &r, &query));
  HARK_TRY(hark_feed_forward_apply(p->forward, &n->read_forward, query, &f));
  HARK_TRY(sum_of(p, query, f, &query));
  return hark_norm_apply(p->forward, &n->final_norm, query, out);
}

static hark_status tell_classes(pass *p, hark_value h) {
  hark_lab_ahca *const n = p->n;
  const hark_cross_entropy_attributes mean = {.weight = 1 / (double)n->targets, .ignore = -1};
  hark_value rows = 0, inputs[2] = {0}, outputs[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(read_slots(p, h, &rows));
  if (n->config.straight) { /* after the norm, which would take a factor away again */
    const hark_value parts[] = {rows, n->probability, n->chunk_rows};
    HARK_TRY(apply(p, &hark_op_straight_through, NULL, 3, parts, &rows));
  }
  HARK_TRY(hark_linear_apply(p->forward, &n->classes, rows, &n->logits));
  HARK_TRY(apply(p, &hark_op_argmax, NULL, 1, &n->logits, &n->predicted));
  inputs[0] = n->logits;
  HARK_TRY(hark_tape_leaf(p->tape, &n->target_ids, NULL, &inputs[1]));
  HARK_TRY(apply(p, &hark_op_cross_entropy, &mean, 2, inputs, outputs));
  n->loss = outputs[0];
  return HARK_OK;
}

hark_status hark_lab_ahca_record(void *user, const hark_forward *forward, hark_value *loss) {
  hark_lab_ahca *const n = user;
  pass p = {.n = n, .forward = forward, .tape = forward->tape};
  hark_value tokens = 0, x = 0, h = 0;
  n->chunk_rows = n->chunk_offsets = n->probability = n->index = n->selection_score = 0;
  n->depth_of_chunks = n->logits = n->loss = n->predicted = 0;
  HARK_TRY(hark_tape_leaf(p.tape, &n->token_ids, NULL, &tokens));
  HARK_TRY(hark_tape_leaf(p.tape, &n->offsets, NULL, &p.offsets));
  HARK_TRY(look_up(&p, n->token_table, tokens, &x));
  HARK_TRY(compress_chunks(&p, x, &h));
  if (n->config.selected > 0) HARK_TRY(second_level(&p, &h));
  HARK_TRY(run_layers(&p, &h));
  if (n->permute) {
    hark_value order = 0;
    HARK_TRY(hark_tape_leaf(p.tape, &n->permutation, NULL, &order));
    HARK_TRY(gather(&p, 1, h, order, &h));
  }
  HARK_TRY(tell_classes(&p, h));
  if (!forward->training) return HARK_OK;
  *loss = n->loss;
  return p.penalty != 0 ? sum_of(&p, n->loss, p.penalty, loss) : HARK_OK;
}

/* ---- batches ---- */

static hark_status make_tensor(hark_lab_ahca *n, hark_type type, int rank, int64_t first, int64_t second, hark_tensor *out) {
  const int64_t shape[] = {first, second};
  return hark_tensor_create(n->training.context, type, rank, shape, out);
}

static hark_status make_host(hark_lab_ahca *n, int64_t count, size_t element, void *out) {
  void *memory;
  HARK_TRY(hark_lab_allocate(n->training.lab, (size_t)hark_max(count, 1) * element, &memory));
  *(void **)out = memory;
  return HARK_OK;
}

/* Offsets of the sequences, and chunks the other way round. */
static hark_status write_constants(hark_lab_ahca *n) {
  int64_t *offsets;
  int32_t *order;
  HARK_TRY(make_host(n, n->config.sequences + 1, sizeof *offsets, &offsets));
  HARK_TRY(make_host(n, n->chunks, sizeof *order, &order));
  for (int64_t b = 0; b <= n->config.sequences; b++) offsets[b] = b * n->config.rows;
  for (int64_t k = 0; k < n->chunks; k++) order[k] = (int32_t)(k < n->real_chunks ? n->real_chunks - 1 - k : k);
  HARK_TRY(hark_tensor_write(n->training.context, &n->offsets, offsets));
  return hark_tensor_write(n->training.context, &n->permutation, order);
}

static hark_status build(hark_lab_ahca *n) {
  const hark_lab_ahca_config *c = &n->config;
  const bool of_tokens = c->reading == HARK_LAB_READ_TOKENS || c->reading == HARK_LAB_READ_POSITIONS;
  n->tokens = c->sequences * c->rows;
  n->chunks = hark_chunk_capacity(n->tokens, c->sequences, shortest_chunk(c));
  n->real_chunks = c->learned ? n->chunks : c->sequences * (c->rows / c->chunk);
  n->targets = of_tokens ? n->tokens : n->real_chunks;
  HARK_TRY(declare(n));
  HARK_TRY(make_tensor(n, HARK_I32, 1, n->tokens, 0, &n->token_ids));
  HARK_TRY(make_tensor(n, HARK_I32, 1, of_tokens ? n->tokens : n->chunks, 0, &n->target_ids));
  HARK_TRY(make_tensor(n, HARK_I64, 1, c->sequences + 1, 0, &n->offsets));
  HARK_TRY(make_tensor(n, HARK_I32, 1, n->chunks, 0, &n->permutation));
  HARK_TRY(make_tensor(n, HARK_F32, 1, n->chunks, 0, &n->random_depth));
  HARK_TRY(make_tensor(n, HARK_I32, 2, c->sequences, hark_max(c->selected, 1), &n->random_index));
  HARK_TRY(make_host(n, n->tokens, sizeof(int32_t), &n->host_tokens));
  HARK_TRY(make_host(n, hark_max(n->tokens, n->chunks), sizeof(int32_t), &n->host_targets));
  HARK_TRY(make_host(n, hark_max(n->tokens, n->chunks), sizeof(int32_t), &n->host_predicted));
  for (int64_t i = n->targets; i < n->chunks; i++) n->host_targets[i] = -1; /* segments after the last chunk */
  HARK_TRY(make_host(n, c->sequences * c->selected, sizeof(int32_t), &n->host_index));
  HARK_TRY(make_host(n, n->chunks, sizeof(float), &n->host_depth));
  return write_constants(n);
}

hark_status hark_lab_ahca_open(hark_lab *lab, const hark_lab_ahca_config *config, uint32_t run, hark_lab_ahca *out) {
  *out = (hark_lab_ahca){.config = *config, .run = run, .progress = 1};
  HARK_TRY(hark_lab_training_open(lab, &out->training));
  HARK_TRY(hark_lab_training_failed(&out->training, build(out)));
  return hark_lab_training_begin(&out->training, run);
}

void hark_lab_ahca_close(hark_lab_ahca *n) {
  hark_tensor *const tensors[] = {&n->token_ids, &n->target_ids, &n->offsets, &n->random_index, &n->random_depth, &n->permutation};
  if (n->training.context == NULL) return;
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) hark_tensor_destroy(n->training.context, tensors[i]);
  hark_lab_training_close(&n->training);
}

/* Distinct ones of the C2 of every sequence, and scores of chunks. */
static hark_status draw_random(hark_lab_ahca *n, uint32_t stream) {
  const hark_lab_ahca_config *c = &n->config;
  const hark_random_stream words = hark_lab_stream(n->training.lab, stream);
  uint64_t drawn = 0;
  if (c->selected > 0 && c->select == HARK_LAB_SELECT_RANDOM) {
    for (int64_t b = 0; b < c->sequences; b++)
      for (int64_t i = 0; i < c->selected;) {
        int32_t *const chosen = n->host_index + b * c->selected;
        bool again = false;
        chosen[i] = (int32_t)(b * c->secondary + (int64_t)hark_random_word(&words, drawn++) % c->secondary);
        for (int64_t j = 0; j < i; j++) again = again || chosen[j] == chosen[i];
        i += again ? 0 : 1;
      }
    HARK_TRY(hark_tensor_write(n->training.context, &n->random_index, n->host_index));
  }
  if (c->depth == HARK_LAB_DEPTH_RANDOM) {
    for (int64_t k = 0; k < n->chunks; k++) n->host_depth[k] = (float)hark_random_word(&words, drawn++);
    HARK_TRY(hark_tensor_write(n->training.context, &n->random_depth, n->host_depth));
  }
  return HARK_OK;
}

static hark_status write_batch(hark_lab_ahca *n) {
  HARK_TRY(hark_tensor_write(n->training.context, &n->token_ids, n->host_tokens));
  return hark_tensor_write(n->training.context, &n->target_ids, n->host_targets);
}

static hark_status next_batch(hark_lab_ahca *n, uint32_t number, hark_lab_ahca_draw *draw, void *user) {
  const uint32_t stream = n->run * STREAMS + number;
  HARK_TRY(draw(n, stream, user));
  HARK_TRY(hark_lab_training_failed(&n->training, draw_random(n, stream + RANDOM_STREAMS)));
  return hark_lab_training_failed(&n->training, write_batch(n));
}

hark_status hark_lab_ahca_train(hark_lab_ahca *n, int64_t steps, double peak, hark_lab_ahca_draw *draw, void *user, double *loss) {
  double sum = 0;
  int64_t counted = 0;
  if (n->training.lab->most_steps > 0) steps = hark_min(steps, n->training.lab->most_steps);
  for (int64_t step = 0; step < steps; step++) {
    double one = 0;
    n->progress = (double)step / (double)steps;
    HARK_TRY(next_batch(n, (uint32_t)step, draw, user));
    HARK_TRY(hark_lab_training_step(&n->training, steps, peak, hark_lab_ahca_record, n, &one));
    if (step < steps - hark_max(steps / 10, 1)) continue;
    sum += one;
    counted++;
  }
  n->progress = 1;
  if (loss != NULL) *loss = sum / (double)counted;
  return HARK_OK;
}

hark_status hark_lab_ahca_pass(hark_lab_ahca *n) { return hark_lab_training_predict(&n->training, hark_lab_ahca_record, n); }

hark_status hark_lab_ahca_read(hark_lab_ahca *n, hark_value value, void *out) {
  return hark_lab_training_failed(&n->training, hark_tensor_read(n->training.context, hark_tape_tensor(n->training.tape, value), out));
}

hark_status hark_lab_ahca_test(hark_lab_ahca *n, uint32_t batch, hark_lab_ahca_draw *draw, void *user, double *loss) {
  float number = 0;
  HARK_TRY(next_batch(n, TEST_STREAM + batch, draw, user));
  HARK_TRY(hark_lab_ahca_pass(n));
  HARK_TRY(hark_lab_ahca_read(n, n->predicted, n->host_predicted));
  HARK_TRY(hark_lab_ahca_read(n, n->loss, &number));
  if (loss != NULL) *loss = (double)number;
  return HARK_OK;
}

hark_status hark_lab_ahca_needs(hark_lab_ahca *n, bool backward, hark_lab_needs *out) {
  return hark_lab_training_needs(&n->training, backward, hark_lab_ahca_record, n, out);
}

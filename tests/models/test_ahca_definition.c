/* test_ahca_definition.c - adaptive hierarchical compressed attention as a whole against its definition (ahca_definition.h): the
 * predictions for a ragged batch and what is added to the loss; and the gradient of a batch against those of its sequences.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/ahca.h"
#include "models/ahca_definition.h"
#include "models/ahca_layers.h"
#include "models/ahca_packing.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

#define VOCABULARY 9
#define CLASSES 3
#define FEATURES 3
#define SEQUENCES 3
#define CONTEXT 17
#define TOKENS (SEQUENCES * CONTEXT)
#define LOGITS (TOKENS * VOCABULARY)
#define MOST_WEIGHTS 1024 /* of one parameter */

#define SIZED(wide)                                                                                                                        \
  .architecture = HARK_ARCHITECTURE_AHCA, .vocabulary = VOCABULARY, .layers = 3, .heads = 2, .key_heads = 2, .width = wide,                \
  .feed_forward_width = 10, .context = CONTEXT, .norm_epsilon = 1e-5, .attention.window = 1
#define ANY SIZED(6)
#define DENSE .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE)
#define WINDOW .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW)
#define HIERARCHICAL .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2
#define PLACED .positions = HARK_POSITIONS_LEARNED
#define CLASSED ANY, .classes = CLASSES
#define CHUNKS(rule, size, least, most)                                                                                                    \
  .chunk = rule, .chunk_size = size, .chunk_minimum = least, .chunk_maximum = most, .delimiter = 4, .window = 2
#define SLOTS(first, second, count) .primary_slots = first, .secondary_slots = second, .selected = count

typedef struct variant {
  const char *name;
  hark_network_config config;
  enum { RULE, CALLER, CALLER_OF_DEPTH, UNSMOOTHED } decides; /* CALLER: on chunks and on selected tokens */
} variant;

/* Every word of the configuration occurs in at least one. Medoids have chunks and slots by which no cluster of two comes about: both of its
 * rows are as near to its centre. */
static const variant variants[] = {
    {"fixed_attention_score_once_classes",
     {CLASSED, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4, 0, 0), SLOTS(2, 5, 2), .primary_pool = HARK_AHCA_POOL_ATTENTION, .primary_width = 8,
               .secondary_width = 10, .layer_capacities = {0.7, 0.3}, .capacity_count = 2, .ponder_weight = 0.02}},
     RULE},
    {"learned_max_attention_norm_every_labels",
     {ANY, DENSE, PLACED, .bias = true, .norm = HARK_NORM_RMS,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 2, 3), SLOTS(3, 6, 4), .primary_pool = HARK_AHCA_POOL_MAX,
               .secondary_pool = HARK_AHCA_POOL_ATTENTION, .primary_width = 4, .secondary_width = 8, .select = HARK_AHCA_SELECT_NORM,
               .join = HARK_AHCA_JOIN_EVERY, .head = HARK_AHCA_HEAD_LABELS, .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}},
     RULE},
    {"selected_score_once_classes",
     {CLASSED, DENSE, PLACED, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3, 0, 0), SLOTS(2, 6, 3), .output = HARK_AHCA_OUTPUT_SELECTED, .secondary_width = 8,
               .capacity = 0.5, .ponder_weight = 0.02}},
     RULE},
    {"learned_average_score_reconstruction_full",
     {ANY, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 2, 4), SLOTS(3, 5, 3), .head = HARK_AHCA_HEAD_RECONSTRUCTION, .capacity = 1,
               .ratio_weight = 0.03, .ponder_weight = 0.02}},
     RULE},
    {"fixed_two_layers_attention_score_labels",
     {ANY, DENSE, PLACED, .bias = true, .activation = HARK_ACTIVATION_SILU,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 5, 0, 0), SLOTS(3, 6, 3), .secondary_pool = HARK_AHCA_POOL_ATTENTION, .primary_depth = 2,
               .secondary_depth = 2, .head = HARK_AHCA_HEAD_LABELS, .depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION, .capacity = 0.7}},
     RULE},
    {"delimiter_max_query_paper_linear_regression",
     {CLASSED, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_DELIMITER, 4, 2, 6), SLOTS(2, 5, 3), .other_delimiters = {1, -1 - 3, 7, -1 - 5, -1 - 2, 6},
               .other_delimiter_count = 6, .primary_pool = HARK_AHCA_POOL_MAX, .secondary_pool = HARK_AHCA_POOL_MAX,
               .select = HARK_AHCA_SELECT_QUERY, .layer = HARK_AHCA_LAYER_LINEAR, .join = HARK_AHCA_JOIN_EVERY,
               .depth = HARK_AHCA_DEPTH_PAPER, .head = HARK_AHCA_HEAD_REGRESSION}},
     RULE},
    {"learned_without_positions_relu_paper_attention",
     {CLASSED, DENSE, .positions = HARK_POSITIONS_NONE, .norm = HARK_NORM_RMS, .activation = HARK_ACTIVATION_RELU,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 1, 3), SLOTS(2, 7, 4), .primary_pool = HARK_AHCA_POOL_ATTENTION,
               .depth = HARK_AHCA_DEPTH_PAPER, .depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION, .ratio_weight = 0.03}},
     RULE},
    {"selected_norm_every_linear",
     {CLASSED, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 3, 2, 4), SLOTS(2, 6, 4), .output = HARK_AHCA_OUTPUT_SELECTED,
               .select = HARK_AHCA_SELECT_NORM, .layer = HARK_AHCA_LAYER_LINEAR, .join = HARK_AHCA_JOIN_EVERY, .capacity = 0.4,
               .ponder_weight = 0.02}},
     RULE},
    {"semantic_vectors_medoids",
     {ANY, DENSE, PLACED, .features = FEATURES, .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_SEMANTIC, 4, 2, 6), SLOTS(2, 4, 2), .select = HARK_AHCA_SELECT_MEDOIDS, .capacity = 0.5,
               .ponder_weight = 0.02}},
     RULE},
    {"fixed_vectors_medoids",
     {ANY, DENSE, PLACED, .features = FEATURES, .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4, 0, 0), SLOTS(3, 5, 3), .select = HARK_AHCA_SELECT_MEDOIDS, .capacity = 0.5}},
     RULE},
    {"given_chunks_and_tokens",
     {CLASSED, DENSE, PLACED, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_DELIMITER, 4, 2, 6), SLOTS(2, 5, 2), .join = HARK_AHCA_JOIN_EVERY, .secondary_width = 8,
               .capacity = 0.5}},
     CALLER},
    {"kernel_window_every",
     {CLASSED, WINDOW, PLACED, .positional = "decay*periodic",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3, 0, 0), SLOTS(3, 5, 3), .join = HARK_AHCA_JOIN_EVERY, .capacity = 0.5,
               .ponder_weight = 0.02}},
     RULE},
    {"kernel_hierarchical_learned_labels",
     {ANY, HIERARCHICAL, PLACED, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 2, 4), SLOTS(7, 6, 4), .select = HARK_AHCA_SELECT_NORM, .head = HARK_AHCA_HEAD_LABELS,
               .secondary_width = 8, .capacity = 0.7, .ratio_weight = 0.03}},
     RULE},
    {"hierarchical_delimiter_query",
     {CLASSED, HIERARCHICAL, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_DELIMITER, 4, 2, 5), SLOTS(6, 9, 3), .primary_pool = HARK_AHCA_POOL_ATTENTION,
               .select = HARK_AHCA_SELECT_QUERY, .capacity = 0.6}},
     RULE},
    {"hierarchical_linear_kernel",
     {CLASSED, HIERARCHICAL, PLACED, .positional = "decay", .attention.interpolation = HARK_INTERPOLATION_LINEAR,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4, 0, 0), SLOTS(7, 9, 3), .primary_pool = HARK_AHCA_POOL_ATTENTION, .capacity = 0.6}},
     RULE},
    {"alone_learned_labels",
     {ANY, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 1, 3), SLOTS(2, 5, 0), .head = HARK_AHCA_HEAD_LABELS,
               .straight_through = HARK_AHCA_STRAIGHT_AFTER_NORM, .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}},
     RULE},
    {"learned_from_compressed_tokens",
     {CLASSED, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 1, 3), SLOTS(2, 5, 2), .boundary = HARK_AHCA_BOUNDARY_COMPRESSED, .primary_width = 8,
               .primary_depth = 2, .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}},
     RULE},
    {"alone_kernel_window",
     {CLASSED, WINDOW, PLACED, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3, 0, 0), SLOTS(3, 5, 0), .capacity = 0.5, .ponder_weight = 0.02}},
     RULE},
    {"given_depth",
     {CLASSED, DENSE, PLACED, .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3, 0, 0), SLOTS(2, 5, 2), .capacity = 0.5, .ponder_weight = 0.02}},
     CALLER_OF_DEPTH},
    {"local_learned_labels",
     {SIZED(8), DENSE, PLACED, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 2, 3), SLOTS(3, 5, 3), .local_layers = 2, .local_window = 2, .primary_width = 6,
               .head = HARK_AHCA_HEAD_LABELS, .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}},
     RULE},
    {"local_kernel_window",
     {SIZED(8), .classes = CLASSES, WINDOW, PLACED, .positional = "decay", .norm = HARK_NORM_RMS, .recompute = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3, 0, 0), SLOTS(3, 5, 3), .local_layers = 1, .local_window = 4, .capacity = 0.5}},
     RULE},
    {"local_without_positions_semantic_vectors",
     {ANY, DENSE, .positions = HARK_POSITIONS_NONE, .features = FEATURES, .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_SEMANTIC, 4, 2, 6), SLOTS(2, 4, 2), .local_layers = 2, .local_window = 1, .capacity = 0.5}},
     RULE},
    {"unsmoothed_reconstruction",
     {ANY, DENSE, PLACED,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4, 2, 4), SLOTS(3, 5, 0), .head = HARK_AHCA_HEAD_RECONSTRUCTION, .capacity = 0.5,
               .ratio_weight = 0.03}},
     UNSMOOTHED},
};
#define VARIANTS (sizeof variants / sizeof *variants)

/* Sequences shorter than a chunk, one with a chunk of one token at its end, all of different lengths. */
static const int64_t batches[][SEQUENCES] = {{17, 2, 11}, {1, 13, 6}};
#define BATCHES (sizeof batches / sizeof *batches)

/* A network and a packed batch of sequences for it. */
typedef struct model {
  hark_context *context;
  hark_network *network;
  hark_tape *tape;
  int decides; /* of variant */
  ahca_packing packed;
  hark_forward forward; /* of the last pass: the backward reads it */
  hark_tensor tokens, targets, ranges, vectors, starts, index, depth_scores;
  int32_t ids[TOKENS];
  double numbers[TOKENS * FEATURES];     /* of a model that reads these */
  int64_t answers;                       /* what is predicted: of sequences, or of tokens */
  int64_t first[SEQUENCES][CONTEXT + 1]; /* the caller's chunks */
  double scores[SEQUENCES][CONTEXT];     /* the caller's, of fixed chunks */
  int64_t chunks[SEQUENCES], chosen[SEQUENCES][2], chosen_count[SEQUENCES];
} model;

static bool predicts_tokens(const model *m) { return hark_ahca_has_token_head(&m->network->config); }
static int64_t choices(const model *m) { return predicts_tokens(m) ? VOCABULARY : CLASSES; }

static int32_t token_at(int64_t sequence, int64_t i) {
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (int32_t)(hark_random_word(&stream, (uint64_t)(100 * sequence + i)) % VOCABULARY);
}

/* Three numbers of every token in the place of its name, no two alike. */
static void open_vectors(model *m, int64_t first, const int64_t *lengths, int64_t sequences) {
  float single[TOKENS * FEATURES];
  int64_t total = 0;
  const hark_type type = m->network->parameters.list[0].weight.type;
  if (m->network->config.features == 0) return;
  for (int64_t s = 0; s < sequences; s++) {
    for (int64_t t = 0; t < lengths[s]; t++, total++) {
      for (int64_t i = 0; i < FEATURES; i++) {
        const double turn = 0.1 * (double)t + 0.7 * (double)(first + s);
        single[total * FEATURES + i] = (float)sin((double)(1 + m->ids[total]) * (double)(1 + i) + turn);
        m->numbers[total * FEATURES + i] = (double)single[total * FEATURES + i];
      }
    }
  }
  const int64_t shape[] = {1, total, FEATURES};
  assert_int_equal(hark_tensor_create(m->context, type, 3, shape, &m->vectors), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->vectors, type == HARK_F64 ? (const void *)m->numbers : single), HARK_OK);
}

/* Chunks of 3, 5, 2 and 4 tokens in turn; the first and the last global token. */
static void open_given(model *m, const int64_t *lengths, int64_t sequences) {
  static const int64_t sizes[] = {3, 5, 2, 4};
  const hark_ahca_config *ahca = &m->network->config.ahca;
  int64_t all[TOKENS + 1], count = 0, total = 0;
  for (int64_t s = 0; s < sequences; total += lengths[s], s++) {
    m->chunks[s] = 0;
    for (int64_t t = 0; t < lengths[s]; t += sizes[m->chunks[s]++ % 4]) {
      m->first[s][m->chunks[s]] = t;
      all[count++] = total + t;
    }
    m->first[s][m->chunks[s]] = lengths[s];
    const int64_t slots = m->chunks[s] * ahca->primary_slots, global = slots < ahca->secondary_slots ? slots : ahca->secondary_slots;
    m->chosen_count[s] = global > 1 ? 2 : 1;
    m->chosen[s][0] = 0;
    m->chosen[s][1] = global - 1;
  }
  all[count++] = total;
  const int64_t index_shape[] = {sequences, ahca->selected};
  assert_int_equal(ahca->selected, 2);
  assert_int_equal(hark_tensor_create(m->context, HARK_I64, 1, &count, &m->starts), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->starts, all), HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, 2, index_shape, &m->index), HARK_OK);
}

/* Scores of fixed chunks, no two alike. */
static void open_depth_scores(model *m, int64_t first, const int64_t *lengths, int64_t sequences) {
  const int64_t size = m->network->config.ahca.chunk_size;
  float all[TOKENS];
  int64_t count = 0;
  for (int64_t s = 0; s < sequences; s++)
    for (int64_t k = 0; k * size < lengths[s]; k++, count++) {
      all[count] = (float)((7 * k + 3 * (first + s)) % 11);
      m->scores[s][k] = (double)all[count];
    }
  const int64_t more = count + 2; /* than there are: those after the last are not read */
  all[count] = all[count + 1] = NAN;
  assert_int_equal(hark_tensor_create(m->context, HARK_F32, 1, &more, &m->depth_scores), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->depth_scores, all), HARK_OK);
}

/* Writes the rows that open_given() chose; C2 has no more rows than the sequences have. */
static hark_status choose_given(void *user, const hark_tensor *global, const hark_tensor *offsets, hark_tensor *index) {
  const model *m = user;
  const int64_t sequences = index->shape[0];
  int64_t first[SEQUENCES + 1];
  int32_t rows[2 * SEQUENCES];
  HARK_TRY(hark_tensor_read(m->context, offsets, first));
  assert_int_equal(hark_tensor_count(global), first[sequences] * global->shape[global->rank - 1]);
  for (int64_t s = 0; s < sequences; s++) {
    assert_int_equal(first[s + 1] - first[s], m->chosen[s][1] + 1);
    for (int64_t i = 0; i < 2; i++) rows[2 * s + i] = i < m->chosen_count[s] ? (int32_t)(first[s] + m->chosen[s][i]) : -1;
  }
  return hark_tensor_write(m->context, index, rows);
}

/* Sequences `first` .. of the lengths. */
static void batch_open(model *m, int64_t first, const int64_t *lengths, int64_t sequences) {
  int64_t total = 0, ranges[2 * SEQUENCES];
  int32_t targets[TOKENS];
  for (int64_t s = 0; s < sequences; s++) {
    ranges[2 * s] = total;
    for (int64_t i = 0; i < lengths[s]; i++, total++) {
      m->ids[total] = token_at(first + s, i);
      if (predicts_tokens(m)) targets[total] = i % 4 == 3 ? -1 : (m->ids[total] + (int32_t)i) % VOCABULARY;
    }
    ranges[2 * s + 1] = total;
    if (!predicts_tokens(m)) targets[s] = (int32_t)((first + s) % CLASSES);
  }
  m->answers = predicts_tokens(m) ? total : sequences;
  const int64_t token_shape[] = {1, total}, range_shape[] = {sequences, 1, 2};
  const int rank = predicts_tokens(m) ? 2 : 1;
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, 2, token_shape, &m->tokens), HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, rank, rank == 2 ? token_shape : &sequences, &m->targets), HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I64, 3, range_shape, &m->ranges), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->tokens, m->ids), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->targets, targets), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->ranges, ranges), HARK_OK);
  open_vectors(m, first, lengths, sequences);
  ahca_packing_open(m->context, m->network, lengths, sequences, &m->packed);
  if (m->decides == CALLER) open_given(m, lengths, sequences);
  if (m->decides == CALLER_OF_DEPTH) open_depth_scores(m, first, lengths, sequences);
}

static void batch_close(model *m) {
  ahca_packing_close(&m->packed);
  hark_tensor_destroy(m->context, &m->tokens);
  hark_tensor_destroy(m->context, &m->targets);
  hark_tensor_destroy(m->context, &m->ranges);
  hark_tensor_destroy(m->context, &m->vectors);
  hark_tensor_destroy(m->context, &m->starts);
  hark_tensor_destroy(m->context, &m->index);
  hark_tensor_destroy(m->context, &m->depth_scores);
}

/* Weights of a size at which nothing is nearly linear; norms' gains stay near one. */
static void draw_weights(const model *m) {
  const hark_random_stream stream = {.seed = 12, .layer_purpose = hark_random_layer_purpose(1, HARK_RANDOM_TEST)};
  uint64_t number = 0;
  for (int32_t i = 0; i < m->network->parameters.count; i++) {
    hark_parameter *parameter = &m->network->parameters.list[i];
    double draws[MOST_WEIGHTS];
    float single[MOST_WEIGHTS];
    assert_true(parameter->count <= MOST_WEIGHTS);
    hark_random_uniform(&stream, number, parameter->count, draws);
    number += (uint64_t)parameter->count;
    for (int64_t n = 0; n < parameter->count; n++) {
      draws[n] = (parameter->spec.initial == HARK_INITIAL_ONE ? 1 : 0) + 0.8 * (2 * draws[n] - 1);
      single[n] = (float)draws[n];
    }
    const void *weights = parameter->weight.type == HARK_F64 ? (const void *)draws : single;
    assert_int_equal(hark_tensor_write(m->context, &parameter->weight, weights), HARK_OK);
  }
}

static void model_open(model *m, hark_context *context, const variant *v, hark_type type) {
  *m = (model){.context = context, .decides = (int)v->decides};
  if (hark_network_create(context, &v->config, type, true, &m->network) != HARK_OK) fail_msg("%s", hark_context_message(context));
  draw_weights(m);
  assert_int_equal(hark_tape_create(context, &m->tape), HARK_OK);
}

static void model_close(model *m) {
  hark_tape_destroy(&m->tape);
  hark_network_destroy(m->context, &m->network);
}

static void read_numbers(const model *m, hark_value value, int64_t count, double *out) {
  const hark_tensor *tensor = hark_tape_tensor(m->tape, value);
  float single[LOGITS];
  assert_int_equal(hark_tensor_count(tensor), count);
  if (tensor->type == HARK_F64) {
    assert_int_equal(hark_tensor_read(m->context, tensor, out), HARK_OK);
    return;
  }
  assert_int_equal(hark_tensor_read(m->context, tensor, single), HARK_OK);
  for (int64_t i = 0; i < count; i++) out[i] = (double)single[i];
}

/* Both with weights 1: logits, and what the model adds to the loss (0: nothing). */
static void apply(model *m, double remaining, hark_value *logits, hark_value *penalty) {
  m->forward = (hark_forward){.tape = m->tape, .parameters = &m->network->parameters, .training = true};
  ahca_packing_give(&m->packed, &m->forward);
  hark_value tokens = 0;
  hark_tape_reset(m->tape);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  hark_value vectors = 0;
  if (m->vectors.type != HARK_NONE) assert_int_equal(hark_tape_leaf(m->tape, &m->vectors, NULL, &vectors), HARK_OK);
  const bool caller = m->decides == CALLER, unsmoothed = m->decides == UNSMOOTHED;
  const hark_ahca_given given = {.starts = caller ? &m->starts : NULL,
                                 .choose = caller ? choose_given : NULL,
                                 .user = m,
                                 .index = &m->index,
                                 .depth_scores = m->decides == CALLER_OF_DEPTH ? &m->depth_scores : NULL,
                                 .without_smoothing = unsmoothed,
                                 .without_straight_through = unsmoothed};
  const hark_network_input input = {.tokens = tokens,
                                    .vectors = vectors,
                                    .ranges = &m->ranges,
                                    .remaining = remaining,
                                    .weight = 1,
                                    .penalty = penalty,
                                    .given = m->decides != RULE ? &given : NULL};
  if (m->network->architecture->logits(m->context, m->network, &m->forward, &input, logits) != HARK_OK)
    fail_msg("%s", hark_context_message(m->context));
}

/* ---- the definition ---- */

/* A path from a token to a logit has some 40 sums of at most 24 terms, between them norms, exponentials and what is added up: a few
 * roundings each, of the size of the largest prediction. */
#define ROUNDINGS 200
#define MARGIN 1e-4 /* scores of order 1 to 10 come no nearer to each other, so that no decision turns on such roundings in f32 */

static double within(const model *m, double size) {
  return ROUNDINGS * size * (m->network->parameters.list[0].weight.type == HARK_F64 ? 0x1p-53 : 0x1p-24);
}

static void compare(const model *m, const ahca_definition *d, const char *setup, const char *name, const double *found,
                    const double *expected, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(expected[i]));
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(found[i] - expected[i]) <= within(m, largest)))
      fail_msg("%s: %s: number %d of %d is %.12g, the definition's %.12g; its decisions are %g apart", setup, name, (int)i, (int)count,
               found[i], expected[i], d->margin);
}

/* What has to occur for a variant to be tested. */
static void check_decisions(const ahca_definition *d, const variant *v) {
  const char *const name = v->name;
  const hark_network_config *config = &d->network->config;
  const hark_ahca_config *ahca = &config->ahca;
  for (int32_t i = 0; i < d->network->parameters.count; i++)
    if (!d->read[i] && !(v->decides == CALLER_OF_DEPTH && strncmp(d->network->parameters.list[i].name, "depth", 5) == 0))
      fail_msg("%s: the definition has no use for %s", name, d->network->parameters.list[i].name);
  if (!(d->margin > MARGIN)) fail_msg("%s: decisions are %g apart", name, d->margin);
  if (d->left_out == 0 && ahca->selected > 0) fail_msg("%s: everything is selected", name);
  if (ahca->chunk == HARK_AHCA_CHUNK_SEMANTIC && d->by_rule == 0) fail_msg("%s: no chunk ends in a valley", name);
  if (hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_WINDOW) && d->masked == 0) fail_msg("%s: no slot is masked", name);
  if (hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_HIERARCHICAL) && d->coarse == 0)
    fail_msg("%s: no slots meet coarsely", name);
  if (ahca->chunk == HARK_AHCA_CHUNK_LEARNED && d->forced == 0) fail_msg("%s: no chunk is as long as it may be", name);
  if (ahca->chunk == HARK_AHCA_CHUNK_LEARNED && ahca->chunk_minimum > 1 && d->suppressed == 0) fail_msg("%s: no chunk is kept long", name);
  if (d->deep == 0 || (d->shallow == 0 && (ahca->capacity < 1 || ahca->depth == HARK_AHCA_DEPTH_PAPER)))
    fail_msg("%s: %d units have all layers, %d have fewer", name, (int)d->deep, (int)d->shallow);
}

static void check_variant(const test_setup *setup, hark_type type, const variant *v) {
  static const double parts_to_come[] = {1, 0.45, 0};
  hark_context *context = test_setup_open(setup, 2);
  model m;
  char where[64];
  model_open(&m, context, v, type);
  (void)snprintf(where, sizeof where, "%s:%s", setup->backend, setup->instruction_set);
  ahca_definition d = {.context = context, .network = m.network, .margin = INFINITY};
  for (size_t r = 0; r < sizeof parts_to_come / sizeof *parts_to_come; r++) {
    for (size_t b = 0; b < BATCHES; b++) {
      double found[LOGITS], expected[LOGITS], found_penalty = 0, *next = expected;
      hark_value logits = 0, penalty = 0;
      batch_open(&m, 0, batches[b], SEQUENCES);
      apply(&m, parts_to_come[r], &logits, &penalty);
      const int64_t count = m.answers * choices(&m);
      read_numbers(&m, logits, count, found);
      d.remaining = parts_to_come[r];
      d.penalty = 0;
      int64_t first = 0;
      for (int s = 0; s < SEQUENCES; first += batches[b][s], s++) {
        const ahca_sequence sequence = {.count = batches[b][s],
                                        .tokens = m.ids + first,
                                        .vectors = v->config.features > 0 ? m.numbers + first * FEATURES : NULL,
                                        .starts = v->decides == CALLER ? m.first[s] : NULL,
                                        .chunks = m.chunks[s],
                                        .chosen = v->decides == CALLER ? m.chosen[s] : NULL,
                                        .selected = m.chosen_count[s],
                                        .depth_scores = v->decides == CALLER_OF_DEPTH ? m.scores[s] : NULL,
                                        .without_smoothing = v->decides == UNSMOOTHED};
        ahca_definition_logits(&d, &sequence, next);
        next += predicts_tokens(&m) ? batches[b][s] * VOCABULARY : CLASSES;
      }
      compare(&m, &d, where, v->name, found, expected, count);
      assert_int_equal(penalty != 0, d.penalty > 0);
      if (penalty != 0) read_numbers(&m, penalty, 1, &found_penalty);
      compare(&m, &d, where, v->name, &found_penalty, &d.penalty, 1);
      batch_close(&m);
    }
  }
  check_decisions(&d, v);
  model_close(&m);
  test_setup_close(context);
}

static void a_batch_has_the_predictions_of_the_definition(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  int fast = 0;
  for (size_t v = 0; v < VARIANTS; v++) {
    check_variant(&setups[0], HARK_F64, &variants[v]);
    for (int s = 0; s < count; s++) {
      check_variant(&setups[s], HARK_F32, &variants[v]);
      fast += strcmp(setups[s].backend, "cpu") == 0;
    }
  }
  assert_true(fast > 0);
}

/* ---- gradients ---- */

#define OF_THE_LARGEST 1e-12 /* the backward has sums over all tokens besides those of the forward */

/* Adds the gradient of the batch's loss, its sum over all predictions, to those that are there. */
static void add_gradients(model *m) {
  hark_value targets = 0, logits = 0, penalty = 0, loss = 0;
  apply(m, 0, &logits, &penalty);
  assert_int_equal(hark_tape_leaf(m->tape, &m->targets, NULL, &targets), HARK_OK);
  assert_int_equal(hark_network_loss(m->tape, logits, targets, (hark_target_loss){.weight = 1}, &loss), HARK_OK);
  if (penalty != 0) assert_int_equal(hark_forward_add(&m->forward, loss, penalty, &loss), HARK_OK);
  assert_int_equal(hark_tape_backward(m->tape, loss, 1), HARK_OK);
}

static void the_gradient_of_a_batch_is_the_sum_of_those_of_its_sequences(void **state) {
  (void)state;
  for (size_t v = 0; v < VARIANTS; v++) {
    hark_context *context = test_reference_open();
    model m;
    model_open(&m, context, &variants[v], HARK_F64);
    const hark_tensor *gradients = &m.network->parameters.gradients;
    const size_t bytes = (size_t)hark_tensor_count(gradients) * sizeof(double);
    double *together = malloc(bytes);
    assert_non_null(together);
    for (size_t b = 0; b < BATCHES; b++) {
      memset(gradients->data, 0, bytes);
      batch_open(&m, 0, batches[b], SEQUENCES);
      add_gradients(&m);
      batch_close(&m);
      memcpy(together, gradients->data, bytes);
      memset(gradients->data, 0, bytes);
      for (int s = 0; s < SEQUENCES; s++) {
        batch_open(&m, s, &batches[b][s], 1);
        add_gradients(&m);
        batch_close(&m);
      }
      const double *alone = gradients->data;
      double largest = 0;
      for (int64_t n = 0; n < hark_tensor_count(gradients); n++) largest = fmax(largest, fabs(alone[n]));
      assert_true(largest > 0);
      for (int32_t i = 0; i < m.network->parameters.count; i++) {
        const hark_parameter *parameter = &m.network->parameters.list[i];
        for (int64_t n = parameter->first; n < parameter->first + parameter->count; n++)
          if (!(fabs(alone[n] - together[n]) <= OF_THE_LARGEST * largest))
            fail_msg("%s: gradient %d of %s is %.12g of the batch, %.12g of its sequences", variants[v].name, (int)(n - parameter->first),
                     parameter->name, together[n], alone[n]);
      }
    }
    free(together);
    model_close(&m);
    test_setup_close(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_batch_has_the_predictions_of_the_definition),
      cmocka_unit_test(the_gradient_of_a_batch_is_the_sum_of_those_of_its_sequences),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

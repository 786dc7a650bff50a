/* ahca_model.c - see ahca_model.h. */
#include "models/ahca_model.h"

#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"

/* One row a variant: every word of the configuration occurs in at least one. Medoids are all selected: of a cluster of two, both are as
 * near to its centre, and the least step decides. */

const ahca_variant ahca_variants[] = {
    {"fixed_average_score",
     {BASE, .norm = HARK_NORM_RMS, .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4), SLOTS(2, 5, 2), .capacity = 0.5, .ponder_weight = 0.02}}},
    {"learned_attention_every",
     {BASE, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 4, 3), .primary_pool = HARK_AHCA_POOL_ATTENTION,
               .secondary_pool = HARK_AHCA_POOL_ATTENTION, .primary_width = 8, .secondary_width = 10, .join = HARK_AHCA_JOIN_EVERY,
               .capacity = 0.4, .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"delimiter_max_norm_paper",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_CHUNK_DELIMITER, 4), SLOTS(3, 7, 7), .primary_pool = HARK_AHCA_POOL_MAX,
                     .secondary_pool = HARK_AHCA_POOL_MAX, .select = HARK_AHCA_SELECT_NORM, .depth = HARK_AHCA_DEPTH_PAPER,
                     .depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION}}},
    {"semantic_query_attention_score",
     {BASE, .activation = HARK_ACTIVATION_SILU,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_SEMANTIC, 4), SLOTS(2, 3, 2), .select = HARK_AHCA_SELECT_QUERY,
               .depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION, .capacity = 0.7, .ponder_weight = 0.1}}},
    {"labels_every_two_layers",
     {LABELS, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 4), SLOTS(2, 5, 2), .head = HARK_AHCA_HEAD_LABELS, .join = HARK_AHCA_JOIN_EVERY,
               .primary_width = 4, .secondary_width = 8, .primary_depth = 2, .secondary_depth = 2, .capacity = 0.5,
               .ponder_weight = 0.02}}},
    {"reconstruction_learned",
     {LABELS, .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(3, 4, 3), .head = HARK_AHCA_HEAD_RECONSTRUCTION, .capacity = 0.4,
                       .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"labels_learned_linear",
     {LABELS, .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 3, 2), .head = HARK_AHCA_HEAD_LABELS, .layer = HARK_AHCA_LAYER_LINEAR,
                       .primary_pool = HARK_AHCA_POOL_ATTENTION, .capacity = 0.7, .ratio_weight = 0.03}}},
    {"regression_delimiters",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_CHUNK_DELIMITER, 4), SLOTS(2, 5, 3), .head = HARK_AHCA_HEAD_REGRESSION, .other_delimiters = {1, 7},
                     .other_delimiter_count = 2, .primary_depth = 2, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"regression_vectors",
     {BASE, .features = FEATURES, .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 5, 3), .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"selected_score",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3), SLOTS(2, 6, 3), .output = HARK_AHCA_OUTPUT_SELECTED, .secondary_width = 8,
                     .capacity = 0.5, .ponder_weight = 0.02}}},
    {"selected_norm_paper_linear",
     {BASE, .ahca = {CHUNKS(HARK_AHCA_CHUNK_SEMANTIC, 4), SLOTS(2, 5, 3), .output = HARK_AHCA_OUTPUT_SELECTED,
                     .layer = HARK_AHCA_LAYER_LINEAR, .join = HARK_AHCA_JOIN_EVERY, .select = HARK_AHCA_SELECT_NORM,
                     .depth = HARK_AHCA_DEPTH_PAPER, .depth_score = HARK_AHCA_DEPTH_SCORE_ATTENTION}}},
    {"kernel_every",
     {WINDOW, .positional = "bank[2](decay*periodic)",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3), SLOTS(3, 5, 3), .join = HARK_AHCA_JOIN_EVERY, .capacity = 0.5, .ponder_weight = 0.02}}},
    {"kernel_hierarchical_labels",
     {HIERARCHICAL, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(5, 6, 4), .head = HARK_AHCA_HEAD_LABELS, .select = HARK_AHCA_SELECT_NORM,
               .capacity = 0.7, .secondary_width = 8, .ratio_weight = 0.03}}},
    /* one slot a chunk: the kernel is between chunks and selected tokens, or nowhere */
    {"kernel_one_slot",
     {BASE, .positional = "decay",
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3), SLOTS(1, 5, 3), .join = HARK_AHCA_JOIN_EVERY, .capacity = 0.5, .ponder_weight = 0.02}}},
    {
        "alone_reconstruction",
        {LABELS, .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 4, 0), .boundary = HARK_AHCA_BOUNDARY_COMPRESSED, .primary_width = 4,
                          .head = HARK_AHCA_HEAD_RECONSTRUCTION, .primary_pool = HARK_AHCA_POOL_ATTENTION, .capacity = 0.5,
                          .ratio_weight = 0.03, .ponder_weight = 0.02}},
    },
    {"labels_learned_after_norm",
     {LABELS, .norm = HARK_NORM_RMS, .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 3, 2), .straight_through = HARK_AHCA_STRAIGHT_AFTER_NORM,
               .head = HARK_AHCA_HEAD_LABELS, .capacity = 0.7, .ratio_weight = 0.03}}},
    {"local_learned_labels",
     {EVEN, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE), .bias = true,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 4, 2), LOCAL(2, 2), .head = HARK_AHCA_HEAD_LABELS, .primary_width = 6,
               .capacity = 0.5, .ratio_weight = 0.03, .ponder_weight = 0.02}}},
    {"local_kernel_recomputed",
     {EVEN, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .classes = CLASSES, .positional = "decay", .recompute = true,
      .norm = HARK_NORM_RMS, .activation = HARK_ACTIVATION_GATED_SILU,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3), SLOTS(3, 5, 3), LOCAL(1, 1), .capacity = 0.5, .ponder_weight = 0.02}}},
    {"local_without_positions",
     {OF(6, HARK_POSITIONS_NONE), .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE), .classes = CLASSES, .features = FEATURES,
      .responses = CLASSES,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_SEMANTIC, 4), SLOTS(2, 5, 3), LOCAL(1, 3), .capacity = 0.5, .ponder_weight = 0.02}}},
    {"medoids_paper",
     {BASE,
      .ahca = {CHUNKS(HARK_AHCA_CHUNK_FIXED, 3), SLOTS(4, 3, 3), .select = HARK_AHCA_SELECT_MEDOIDS, .depth = HARK_AHCA_DEPTH_PAPER}}},
};
const int ahca_variant_count = (int)(sizeof ahca_variants / sizeof *ahca_variants);

bool ahca_predicts_tokens(const ahca_model *m) { return hark_ahca_has_token_head(&m->network->config); }
int64_t ahca_choices(const ahca_model *m) { return ahca_predicts_tokens(m) ? VOCABULARY : CLASSES; }

int32_t ahca_token_at(int64_t sequence, int64_t i) {
  const hark_random_stream stream = {.seed = 3, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return (int32_t)(hark_random_word(&stream, (uint64_t)(100 * sequence + i)) % VOCABULARY);
}

/* Three numbers of every token in the place of its name. */
static void vectors_open(ahca_model *m, const int32_t *tokens, int64_t count) {
  double numbers[SEQUENCES * CONTEXT * FEATURES];
  float single[SEQUENCES * CONTEXT * FEATURES];
  if (m->network->config.features == 0) return;
  const hark_type type = m->network->parameters.list[0].weight.type;
  const int64_t shape[] = {1, count, FEATURES};
  for (int64_t i = 0; i < count * FEATURES; i++) {
    numbers[i] = sin((double)(1 + tokens[i / FEATURES]) * (double)(1 + i % FEATURES));
    single[i] = (float)numbers[i];
  }
  assert_int_equal(hark_tensor_create(m->context, type, 3, shape, &m->vectors), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->vectors, type == HARK_F64 ? (const void *)numbers : single), HARK_OK);
}

/* The value that is to be the pass's vectors; 0: the model reads tokens. */
hark_value ahca_vectors_of(const ahca_model *m) {
  hark_value vectors = 0;
  if (m->vectors.type != HARK_NONE) assert_int_equal(hark_tape_leaf(m->tape, &m->vectors, NULL, &vectors), HARK_OK);
  return vectors;
}

/* Sequences `first` .. of the lengths. */
void ahca_batch_open(ahca_model *m, int64_t first, const int64_t *lengths, int64_t sequences) {
  int64_t total = 0;
  int32_t tokens[SEQUENCES * CONTEXT + 1] = {0}, targets[SEQUENCES * CONTEXT + 1];
  int64_t ranges[2 * SEQUENCES];
  for (int64_t s = 0; s < sequences; s++) {
    ranges[2 * s] = total;
    for (int64_t i = 0; i < lengths[s]; i++) tokens[total++] = ahca_token_at(first + s, i);
    ranges[2 * s + 1] = total;
    targets[s] = (int32_t)((first + s) % CLASSES);
  }
  m->answers = ahca_predicts_tokens(m) ? total : sequences;
  for (int64_t i = 0; i < total && ahca_predicts_tokens(m); i++) targets[i] = i % 4 == 3 ? -1 : (tokens[i] + (int32_t)i) % VOCABULARY;
  const int64_t token_shape[] = {1, total}, range_shape[] = {sequences, 1, 2}, target_shape[] = {1, m->answers};
  m->sequences = sequences;
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, 2, token_shape, &m->tokens), HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I32, ahca_predicts_tokens(m) ? 2 : 1,
                                      ahca_predicts_tokens(m) ? target_shape : &sequences, &m->targets),
                   HARK_OK);
  assert_int_equal(hark_tensor_create(m->context, HARK_I64, 3, range_shape, &m->ranges), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->tokens, tokens), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->targets, targets), HARK_OK);
  assert_int_equal(hark_tensor_write(m->context, &m->ranges, ranges), HARK_OK);
  vectors_open(m, tokens, total);
  ahca_packing_open(m->context, m->network, lengths, sequences, &m->packed);
}

void ahca_batch_close(ahca_model *m) {
  ahca_packing_close(&m->packed);
  hark_tensor_destroy(m->context, &m->vectors);
  hark_tensor_destroy(m->context, &m->tokens);
  hark_tensor_destroy(m->context, &m->targets);
  hark_tensor_destroy(m->context, &m->ranges);
  hark_tensor_destroy(m->context, &m->reference);
}

void ahca_model_open(ahca_model *m, hark_context *context, const hark_network_config *config, hark_type type) {
  *m = (ahca_model){.context = context};
  if (hark_network_create(context, config, type, true, &m->network) != HARK_OK) fail_msg("%s", hark_context_message(context));
  assert_int_equal(hark_parameters_initialise(context, &m->network->parameters, 5), HARK_OK);
  assert_int_equal(hark_tape_create(context, &m->tape), HARK_OK);
}

void ahca_model_close(ahca_model *m) {
  hark_tape_destroy(&m->tape);
  hark_network_destroy(m->context, &m->network);
}

static double read_number(hark_context *context, const hark_tensor *tensor) {
  double wide = 0;
  assert_int_equal(tensor->type, HARK_F64);
  assert_int_equal(hark_tensor_read(context, tensor, &wide), HARK_OK);
  return wide;
}

/* The loss with what the model adds to it; with `backward` the gradients are written. */
double ahca_traced_loss(const ahca_model *m, double remaining, bool backward, hark_ahca_trace *trace) {
  hark_forward forward = {.tape = m->tape, .parameters = &m->network->parameters, .training = true};
  ahca_packing_give(&m->packed, &forward);
  hark_value tokens = 0, targets = 0, logits = 0, loss = 0, penalty = 0;
  hark_tape_reset(m->tape);
  assert_int_equal(hark_tape_leaf(m->tape, &m->tokens, NULL, &tokens), HARK_OK);
  assert_int_equal(hark_tape_leaf(m->tape, &m->targets, NULL, &targets), HARK_OK);
  const hark_ahca_given given = {.reference = m->reference.type != HARK_NONE ? &m->reference : NULL,
                                 .without_smoothing = m->without_smoothing};
  const hark_network_input input = {.tokens = tokens,
                                    .vectors = ahca_vectors_of(m),
                                    .ranges = &m->ranges,
                                    .remaining = remaining,
                                    .weight = 1.0 / (double)m->sequences,
                                    .penalty = &penalty,
                                    .given = &given,
                                    .trace = trace};
  if (m->network->architecture->logits(m->context, m->network, &forward, &input, &logits) != HARK_OK)
    fail_msg("%s", hark_context_message(m->context));
  assert_int_equal(hark_network_loss(m->tape, logits, targets, (hark_target_loss){.weight = 1.0 / (double)m->answers}, &loss), HARK_OK);
  if (penalty != 0) assert_int_equal(hark_forward_add(&forward, loss, penalty, &loss), HARK_OK);
  const double value = read_number(m->context, hark_tape_tensor(m->tape, loss));
  if (backward) assert_int_equal(hark_tape_backward(m->tape, loss, 1), HARK_OK);
  return value;
}

double ahca_loss_of(const ahca_model *m, double remaining, bool backward) { return ahca_traced_loss(m, remaining, backward, NULL); }

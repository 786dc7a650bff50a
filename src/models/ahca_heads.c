/* ahca_heads.c - what an AHCA model predicts from H, the slots of all units after their layers. See ahca_pass.h.
 *
 *   classes, numbers  logits = W2 relu(W1 mean(norm(H)) + b1) + b2 over a sequence's rows
 *   tokens            y_t = q_t + attention(norm(q_t), norm(H_k)) Wo + attention(norm(q_t), C2_S) Wo',   k the chunk of t
 *                     logits = W2 relu(W1 norm(y_t) + b1) + b2            (without selected tokens y_t has no second attention)
 *
 * q_t is the embedded token if the token is to be labelled. If it is to be reconstructed, q_t has only its place in its chunk and the
 * number of its chunk, because x_t would be copied. With learned chunks the straight-through factor c_t is applied to both attentions, y_t
 * = q_t + STE(c_t) a_t, or to norm(y_t) (model.ahca.straight_through). A norm removes a factor of its input, norm(c y) = norm(y), and with
 * it the gradient: with the factor before the norm only what q_t adds keeps a part of it.
 */
#include <hark/experimental.h>

#include "models/ahca_pass.h"
#include "models/stack.h"

static hark_status declare_token_head(hark_context *context, hark_network *network, hark_ahca_token_head *head) {
  const hark_network_config *config = &network->config;
  const hark_ahca_sizes sizes = hark_ahca_sizes_of(config);
  const hark_ahca_widths slots = {config->width, sizes.primary_width, config->width},
                         selected = {config->width, sizes.secondary_width, config->width};
  HARK_TRY(hark_ahca_declare_norm(context, network, "head.query_norm", config->width, &head->query_norm));
  if (config->ahca.head == HARK_AHCA_HEAD_RECONSTRUCTION) {
    HARK_TRY(hark_ahca_declare_table(context, network, "head.position", hark_min(sizes.maximum, config->context), config->width,
                                     HARK_AHCA_TABLE_DEVIATION, &head->position_table));
    HARK_TRY(hark_ahca_declare_table(context, network, "head.chunk", sizes.chunks, config->width, HARK_AHCA_TABLE_DEVIATION,
                                     &head->chunk_table));
  }
  HARK_TRY(hark_ahca_declare_attention(context, network, "head.slots", &slots, &head->slots));
  if (hark_ahca_has_global(config)) HARK_TRY(hark_ahca_declare_attention(context, network, "head.selected", &selected, &head->selected));
  return hark_ahca_declare_norm(context, network, "head.norm", config->width, &head->norm);
}

hark_status hark_ahca_declare_head(hark_context *context, hark_network *network) {
  const hark_network_config *config = &network->config;
  const int64_t width = hark_ahca_sizes_of(config).primary_width,
                hidden = config->head_width != 0 ? config->head_width : config->feed_forward_width;
  const bool tokens = hark_ahca_has_token_head(config);
  HARK_TRY(hark_ahca_declare_norm(context, network, "final_norm", width, &network->final_norm));
  if (tokens) HARK_TRY(declare_token_head(context, network, &network->ahca->token));
  const int64_t read = tokens ? config->width : width;
  HARK_TRY(hark_linear_declare(context, &network->parameters, read, hidden, true, hark_ahca_deviation(read), "head.hidden",
                               &network->hidden[0]));
  const int64_t outputs = tokens ? config->vocabulary : config->features > 0 ? config->responses : config->classes;
  return hark_linear_declare(context, &network->parameters, hidden, outputs, true, hark_ahca_deviation(hidden), "head", &network->head);
}

/* *out <- W2 relu(W1 x + b1) + b2; x stays. */
static hark_status predict(const hark_ahca_pass *p, hark_value x, hark_value *out) {
  hark_value hidden = 0, active = 0;
  HARK_TRY(hark_linear_apply(p->forward, &p->network->hidden[0], x, &hidden));
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_relu, NULL, 1, &hidden, 1, &active));
  HARK_TRY(hark_linear_apply(p->forward, &p->network->head, active, out));
  hark_tape_release(p->tape, active);
  return HARK_OK;
}

static hark_status predict_sequences(const hark_ahca_pass *p, hark_value normed, hark_value *out) {
  static const hark_pool_attributes mean = {HARK_POOL_MEAN};
  hark_value pooled = 0, vectors = 0;
  HARK_TRY(hark_ahca_pool_segments(p, HARK_AHCA_POOL_AVERAGE, (hark_segment_pool_attributes){.slots = 1, .unit = p->unit_slots}, normed,
                                   p->unit_offsets, &pooled));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_pool, &mean, pooled, &vectors)); /* [S, 1, d'] -> [S, d'] */
  hark_tape_release(p->tape, pooled);
  HARK_TRY(predict(p, vectors, out));
  hark_tape_release(p->tape, vectors);
  return HARK_OK;
}

/* The queries of tokens q [1, T, D]. */
static hark_status query_tokens(const hark_ahca_pass *p, hark_value x, hark_value *out) {
  const hark_ahca_token_head *head = &p->layers->token;
  static const hark_scale_attributes same = {1};
  if (p->network->config.ahca.head == HARK_AHCA_HEAD_LABELS) return hark_ahca_apply_one(p, &hark_op_scale, &same, x, out);
  const hark_segment_index_attributes places = {p->tokens, 0, 0, true}, chunks = {p->chunks, 0, p->sizes.chunks, false};
  hark_value of_token[HARK_MAX_OUTPUTS] = {0}, of_chunk[HARK_MAX_OUTPUTS] = {0}, rows = 0, numbers = 0;
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_index, &places, p->chunk_rows, of_token));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_index, &chunks, p->chunk_offsets, of_chunk));
  HARK_TRY(hark_ahca_look_up(p, head->position_table, p->in_chunk, out));
  /* the row of every chunk's number, and of these the one of the token's chunk */
  HARK_TRY(hark_ahca_look_up(p, head->chunk_table, of_chunk[0], &rows));
  const hark_value inputs[] = {of_token[2], rows};
  HARK_TRY(hark_ahca_apply(p, &hark_op_embedding, NULL, 2, inputs, &numbers));
  hark_tape_release(p->tape, rows);
  return hark_forward_add(p->forward, *out, numbers, out);
}

/* Whether outputs of tokens have the straight-through factor. Without gradients it is 1, unless a reference is given. */
static bool goes_straight_through(const hark_ahca_pass *p) {
  const hark_ahca_given *given = p->input->given;
  if (p->probability == 0 || (given != NULL && given->without_straight_through)) return false;
  return p->forward->training || (given != NULL && given->reference != NULL);
}

/* *x <- STE(c_t) x_t with learned boundaries: the same numbers, with a gradient with respect to the probabilities. */
static hark_status pass_straight_through(const hark_ahca_pass *p, hark_value *x) {
  const hark_ahca_given *given = p->input->given;
  const hark_tensor *reference = given != NULL ? given->reference : NULL;
  hark_value inputs[] = {*x, p->probability, p->chunk_rows, 0}, through = 0;
  if (!goes_straight_through(p)) return HARK_OK;
  if (reference != NULL) HARK_TRY(hark_tape_leaf(p->tape, reference, NULL, &inputs[3]));
  HARK_TRY(hark_ahca_apply(p, &hark_op_straight_through, NULL, 4, inputs, &through));
  hark_tape_release(p->tape, *x);
  *x = through;
  return HARK_OK;
}

/* Queries that attend: those of all tokens, or of the rows whose logits are computed; and the offsets of chunks and sequences in them. */
typedef struct asking {
  hark_value query; /* q */
  hark_value chunks, sequences;
  bool taken; /* not those of all tokens */
} asking;

/* The straight-through estimator reads whole chunks: in training with learned boundaries all tokens attend, and rows are taken after it. */
static hark_status take_queries(const hark_ahca_pass *p, asking *a) {
  hark_value inputs[] = {0, p->chunk_rows};
  *a = (asking){.query = a->query, .chunks = p->chunk_rows, .sequences = p->offsets};
  a->taken = p->forward->logit_rows != NULL && !goes_straight_through(p);
  if (!a->taken) return HARK_OK;
  HARK_TRY(hark_forward_take_logit_rows(p->forward, &a->query));
  HARK_TRY(hark_tape_leaf(p->tape, p->forward->logit_rows, NULL, &inputs[0]));
  HARK_TRY(hark_ahca_apply(p, &hark_op_taken_offsets, NULL, 2, inputs, &a->chunks));
  inputs[1] = p->offsets;
  return hark_ahca_apply(p, &hark_op_taken_offsets, NULL, 2, inputs, &a->sequences);
}

/* normed: H's norm. */
static hark_status predict_tokens(const hark_ahca_pass *p, hark_value x, hark_value normed, hark_value *out) {
  const hark_ahca_token_head *head = &p->layers->token;
  const int64_t slots = p->options->primary_slots;
  hark_value query = 0, of_chunk = 0, of_sequence = 0, a = 0, y = 0;
  asking q = {0};
  HARK_TRY(query_tokens(p, x, &q.query));
  HARK_TRY(take_queries(p, &q));
  HARK_TRY(hark_norm_apply(p->forward, &head->query_norm, q.query, &query));
  const hark_ahca_ragged chunk = {.query = query,
                                  .key = normed,
                                  .query_offsets = q.chunks,
                                  .key_offsets = p->slot_rows,
                                  .keys_of_a_query = slots},
                         sequence = {.query = query,
                                     .key = p->source,
                                     .bias = p->term,
                                     .query_offsets = q.sequences,
                                     .key_offsets = p->source_offsets,
                                     .keys_of_a_query = p->source_rows};
  const bool after_norm = p->options->straight_through == HARK_AHCA_STRAIGHT_AFTER_NORM;
  HARK_TRY(hark_ahca_cross_attend(p, &head->slots, &chunk, &of_chunk));
  a = of_chunk;
  if (hark_ahca_has_global(&p->network->config)) HARK_TRY(hark_ahca_cross_attend(p, &head->selected, &sequence, &of_sequence));
  hark_tape_release(p->tape, query);
  if (of_sequence != 0) HARK_TRY(hark_forward_add(p->forward, of_chunk, of_sequence, &a));
  if (!after_norm) HARK_TRY(pass_straight_through(p, &a));
  HARK_TRY(hark_forward_add(p->forward, q.query, a, &y));
  HARK_TRY(hark_norm_apply(p->forward, &head->norm, y, &query));
  hark_tape_release(p->tape, y);
  if (after_norm) HARK_TRY(pass_straight_through(p, &query));
  if (!q.taken) HARK_TRY(hark_forward_take_logit_rows(p->forward, &query));
  HARK_TRY(predict(p, query, out));
  hark_tape_release(p->tape, query);
  return HARK_OK;
}

hark_status hark_ahca_head_apply(const hark_ahca_pass *p, hark_value x, hark_value h, hark_value *out) {
  hark_value normed = 0;
  HARK_TRY(hark_norm_apply(p->forward, &p->network->final_norm, h, &normed));
  if (hark_ahca_has_token_head(&p->network->config)) {
    HARK_TRY(predict_tokens(p, x, normed, out));
  } else {
    HARK_TRY(predict_sequences(p, normed, out));
  }
  hark_tape_release(p->tape, normed);
  return HARK_OK;
}

/* ahca_pass.c - a pass of adaptive hierarchical compressed attention, recorded on a tape: chunks, both compressions, selection, and what
 * follows in their order. See ahca.h and ahca_pass.h.
 *
 * Lists of chunks and of selected tokens have the maximum possible length. If there are data, their length is read, and everything
 * after has that extent: work and its count are those of the actual chunks, memory is that of the maximum.
 */
#include "models/ahca_pass.h"

#include <hark/experimental.h>
#include <inttypes.h>

#include "models/boundaries.h"

/* The caller's chunks, where it gives them. */
static const hark_tensor *given_starts(const hark_ahca_pass *p) { return p->input->given != NULL ? p->input->given->starts : NULL; }

/* Tables and kernels of chunks' numbers are for as many as the model's context has by the rule; the caller may cut a sequence into more. */
static hark_status check_given_numbers(const hark_ahca_pass *p) {
  const hark_ahca_layers *layers = p->layers;
  int64_t first = 0;
  if (given_starts(p) == NULL || hark_tape_tensor(p->tape, p->chunk_offsets)->data == NULL) return HARK_OK;
  if (layers->chunk_table == 0 && layers->token.chunk_table == 0 && p->network->positional.source == NULL) return HARK_OK;
  for (int64_t s = 0; s < p->sequences; s++) {
    int64_t last = 0;
    HARK_TRY(hark_ahca_offset_at(p, p->chunk_offsets, s + 1, &last));
    if (last - first > p->sizes.chunks)
      return hark_fail(p->context, HARK_INVALID_ARGUMENT,
                       "ahca: sequence %" PRId64 " is given in %" PRId64 " chunks, expected at most the %" PRId64
                       " that the model has positions for",
                       s, last - first, p->sizes.chunks);
    first = last;
  }
  return HARK_OK;
}

/* Chunks by their rule; *score is the probability of learned ones. */
static hark_status cut(hark_ahca_pass *p, hark_value x, hark_value *score) {
  enum { IDS = 1, SCORE, STARTS, INPUTS };
  static const hark_chunk_rule rules[] = {HARK_CHUNK_FIXED, HARK_CHUNK_DELIMITER, HARK_CHUNK_PEAK, HARK_CHUNK_SCORE};
  const hark_ahca_config *options = p->options;
  const hark_tensor *starts = given_starts(p);
  int32_t delimiters[1 + HARK_DELIMITER_TOKENS], delimiter_count = 0;
  if (options->delimiter >= 0) delimiters[delimiter_count++] = (int32_t)options->delimiter;
  for (int32_t i = 0; i < options->other_delimiter_count; i++) delimiters[delimiter_count++] = options->other_delimiters[i];
  hark_chunk_boundaries_attributes attributes = {
      .rule = starts != NULL ? HARK_CHUNK_GIVEN : rules[options->chunk],
      .rows = p->tokens,
      .minimum = p->sizes.minimum,
      .maximum = p->sizes.maximum,
      .threshold = options->chunk == HARK_AHCA_CHUNK_SEMANTIC ? options->threshold : HARK_BOUNDARY_THRESHOLD,
      .delimiters = delimiters,
      .delimiter_count = delimiter_count};
  hark_value inputs[INPUTS] = {p->offsets}, outputs[HARK_MAX_OUTPUTS] = {0};
  if (starts != NULL) {
    if (options->chunk == HARK_AHCA_CHUNK_FIXED) attributes.minimum = 1;
    HARK_TRY(hark_tape_leaf(p->tape, starts, NULL, &inputs[STARTS]));
  } else if (options->chunk == HARK_AHCA_CHUNK_DELIMITER) {
    inputs[IDS] = p->input->tokens;
  } else if (options->chunk == HARK_AHCA_CHUNK_SEMANTIC) {
    const hark_depth_scores_attributes window = {options->window};
    const hark_value parts[] = {x, p->offsets};
    HARK_TRY(hark_ahca_apply(p, &hark_op_depth_scores, &window, 2, parts, &inputs[SCORE]));
  } else if (options->chunk == HARK_AHCA_CHUNK_LEARNED) {
    HARK_TRY(hark_boundaries_probability(p->forward, &p->layers->boundary_query, &p->layers->boundary_key, x, p->offsets, &inputs[SCORE]));
    *score = inputs[SCORE];
  }
  HARK_TRY(hark_ahca_apply(p, &hark_op_chunk_boundaries, &attributes, INPUTS, inputs, outputs));
  p->chunk_rows = outputs[0];
  p->chunk_offsets = outputs[1];
  HARK_TRY(check_given_numbers(p));
  HARK_TRY(hark_ahca_last_offset(p, p->chunk_offsets, hark_tape_tensor(p->tape, p->chunk_rows)->shape[0] - 1, &p->chunks));
  return hark_ahca_shorten(p, p->chunks + 1, &p->chunk_rows);
}

/* Of learned boundaries: their settled probability, and the loss of their number. */
static hark_status settle_boundaries(hark_ahca_pass *p, hark_value score) {
  const hark_ahca_config *options = p->options;
  const hark_value settle[] = {score, p->chunk_rows};
  if (score == 0) return HARK_OK;
  HARK_TRY(hark_ahca_apply(p, &hark_op_settled_probability, NULL, 2, settle, &p->probability));
  if (p->input->penalty == NULL || options->ratio_weight == 0) return HARK_OK;
  const hark_ratio_loss_attributes ratio = {options->ratio_weight * p->input->weight, (double)options->chunk_size};
  const hark_value loss_inputs[] = {p->probability, p->offsets, p->chunk_offsets};
  hark_value loss = 0;
  HARK_TRY(hark_ahca_apply(p, &hark_op_ratio_loss, &ratio, 3, loss_inputs, &loss));
  return hark_ahca_add_penalty(p, HARK_PENALTY_RATIO, loss);
}

/* Offsets and numbers of the slots of chunks, for ragged attention and for tables. */
static hark_status number_slots(hark_ahca_pass *p) {
  const int64_t slots = p->options->primary_slots;
  const hark_segment_slots_attributes of_chunk = {slots, 0, false}, of_sequence = {INT32_MAX, slots, true}; /* all that it has */
  const hark_segment_index_attributes index = {p->chunks * slots, slots, p->sizes.chunks, false};
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_slots, &of_chunk, p->chunk_rows, &p->slot_rows));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_slots, &of_sequence, p->chunk_offsets, &p->sequence_slots));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_index, &index, p->chunk_offsets, outputs));
  p->chunk_number = outputs[0];
  p->slot_number = outputs[1];
  hark_tape_release(p->tape, outputs[2]);
  return HARK_OK;
}

/* Rows of segments pooled by learned queries, one for each slot. */
static hark_status pool_by_attention(const hark_ahca_pass *p, hark_parameter_id queries, hark_value ids, const hark_linear *key_layer,
                                     hark_value x, hark_value query_offsets, hark_value key_offsets, int64_t longest, hark_value *out) {
  hark_ahca_ragged r = {.value = x, .query_offsets = query_offsets, .key_offsets = key_offsets, .keys_of_a_query = longest};
  HARK_TRY(hark_ahca_look_up(p, queries, ids, &r.query));
  HARK_TRY(hark_linear_apply(p->forward, key_layer, x, &r.key));
  HARK_TRY(hark_ahca_attend(p, &r, out));
  hark_tape_release(p->tape, r.query);
  hark_tape_release(p->tape, r.key);
  return HARK_OK;
}

/* One linear layer, or two with a gelu between them. */
static hark_status compress(const hark_ahca_pass *p, const hark_ahca_compressor *compressor, hark_value x, hark_value *out) {
  static const hark_gelu_attributes exact = {false};
  HARK_TRY(hark_linear_apply(p->forward, &compressor->first, x, out));
  if (compressor->second.weight == 0) return HARK_OK;
  hark_value hidden = 0;
  HARK_TRY(hark_tape_apply(p->tape, &hark_op_gelu, &exact, 1, out, 1, &hidden));
  HARK_TRY(hark_linear_apply(p->forward, &compressor->second, hidden, out));
  hark_tape_release(p->tape, hidden);
  return HARK_OK;
}

/* Rows of a segment on average, rounded up, and at most `most`: the keys that a query of that segment meets. */
static int64_t keys_of_segment(int64_t rows, int64_t segments, int64_t most) {
  return hark_max(1, hark_min(most, hark_ceil_div(rows, hark_max(1, segments))));
}

/* C1 [K, C1, d'] of u, the compressed tokens, which are consumed. */
static hark_status compress_chunks(hark_ahca_pass *p, hark_value u, hark_value *out) {
  const hark_ahca_layers *layers = p->layers;
  hark_value c = 0;
  if (layers->in_chunk_table != 0) {
    const int64_t limit = hark_min(p->sizes.maximum, p->network->config.context);
    const hark_segment_index_attributes rows = {p->tokens, 0, limit, true};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0};
    HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_index, &rows, p->chunk_rows, outputs));
    p->in_chunk = outputs[0];
    HARK_TRY(hark_ahca_add_table(p, layers->in_chunk_table, p->in_chunk, &u));
  }
  if (p->options->primary_pool == HARK_AHCA_POOL_ATTENTION) {
    HARK_TRY(pool_by_attention(p, layers->primary_queries, p->slot_number, &layers->primary_key, u, p->slot_rows, p->chunk_rows,
                               keys_of_segment(p->tokens, p->chunks, p->sizes.maximum), &c));
  } else {
    HARK_TRY(hark_ahca_pool_segments(p, p->options->primary_pool, (hark_segment_pool_attributes){.slots = p->options->primary_slots}, u,
                                     p->chunk_rows, &c));
  }
  hark_tape_release(p->tape, u);
  if (p->probability != 0 && !(p->input->given != NULL && p->input->given->without_smoothing)) {
    const hark_value inputs[] = {c, p->probability, p->chunk_rows, p->chunk_offsets};
    hark_value smooth = 0;
    HARK_TRY(hark_ahca_apply(p, &hark_op_smooth_chunks, NULL, 4, inputs, &smooth));
    hark_tape_release(p->tape, c);
    c = smooth;
  }
  *out = c;
  return HARK_OK;
}

/* C2: min(C2, slots) rows a sequence, and no more rows in all than the sequences have, normed. */
static hark_status compress_sequences(hark_ahca_pass *p, hark_value c) {
  const hark_ahca_layers *layers = p->layers;
  const int64_t slots = p->options->secondary_slots, unit = p->options->primary_slots;
  const hark_segment_slots_attributes of_sequence = {slots, unit, true};
  hark_value z = 0, pooled = 0;
  int64_t rows = 0;
  HARK_TRY(compress(p, &layers->secondary, c, &z));
  HARK_TRY(hark_ahca_add_table(p, layers->chunk_table, p->chunk_number, &z));
  HARK_TRY(hark_ahca_add_table(p, layers->slot_table, p->slot_number, &z));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_slots, &of_sequence, p->chunk_offsets, &p->global_offsets));
  HARK_TRY(hark_ahca_last_offset(p, p->global_offsets, p->sequences * slots, &rows));
  rows = hark_max(1, rows); /* of sequences without tokens: one of zeros, which nobody has */
  if (p->options->secondary_pool == HARK_AHCA_POOL_ATTENTION) {
    const hark_segment_index_attributes index = {rows, 0, 0, false};
    hark_value outputs[HARK_MAX_OUTPUTS] = {0};
    HARK_TRY(hark_ahca_apply_one(p, &hark_op_segment_index, &index, p->global_offsets, outputs));
    HARK_TRY(pool_by_attention(p, layers->secondary_queries, outputs[0], &layers->secondary_key, z, p->global_offsets, p->sequence_slots,
                               keys_of_segment(p->chunks * unit, p->sequences, p->sizes.chunks * unit), &pooled));
  } else {
    HARK_TRY(hark_ahca_pool_segments(p, p->options->secondary_pool,
                                     (hark_segment_pool_attributes){.slots = slots, .unit = unit, .fewer = true, .rows = rows}, z,
                                     p->chunk_offsets, &pooled));
  }
  hark_tape_release(p->tape, z);
  p->pooled = pooled;
  return hark_norm_apply(p->forward, &layers->secondary_norm, pooled, &p->global);
}

/* A number of the caller's for every selected token, or the operator's inputs by what the tokens are. */
static hark_status choose(const hark_ahca_pass *p, hark_value c, hark_value *inputs) {
  enum { X = 1, SCORE, QUERY, QUERY_OFFSETS, INDEX };
  const hark_ahca_given *given = p->input->given;
  if (given != NULL && given->choose != NULL) {
    const hark_tensor *pooled = hark_tape_tensor(p->tape, p->pooled), *offsets = hark_tape_tensor(p->tape, p->global_offsets);
    if (pooled->data != NULL) HARK_TRY(given->choose(given->user, pooled, offsets, given->index));
    return hark_tape_leaf(p->tape, given->index, NULL, &inputs[INDEX]);
  }
  if (p->options->select == HARK_AHCA_SELECT_SCORE) return HARK_OK; /* is there already */
  inputs[X] = p->pooled;
  if (p->options->select == HARK_AHCA_SELECT_QUERY) {
    inputs[QUERY] = c;
    inputs[QUERY_OFFSETS] = p->sequence_slots;
  }
  return HARK_OK;
}

static hark_status select_tokens(hark_ahca_pass *p, hark_value c) {
  static const hark_selection kinds[] = {HARK_SELECTION_SCORE, HARK_SELECTION_NORM, HARK_SELECTION_QUERY, HARK_SELECTION_MEDOIDS};
  enum { OFFSETS, X, SCORE, INPUTS = 6 };
  enum { ITERATIONS = 8 };
  const hark_ahca_config *options = p->options;
  const bool given = p->input->given != NULL && p->input->given->choose != NULL;
  const int leading = hark_tape_tensor(p->tape, p->global)->rank - 1;
  const hark_select_tokens_attributes attributes = {given ? HARK_SELECTION_GIVEN : kinds[options->select], hark_ahca_rows(p, p->global),
                                                    options->selected, 0, ITERATIONS};
  hark_value inputs[INPUTS] = {p->global_offsets}, outputs[HARK_MAX_OUTPUTS] = {0}, score = 0;
  if (options->select == HARK_AHCA_SELECT_SCORE) HARK_TRY(hark_linear_apply(p->forward, &p->layers->select, p->global, &score));
  if (!given) inputs[SCORE] = score;
  HARK_TRY(choose(p, c, inputs));
  HARK_TRY(hark_ahca_apply(p, &hark_op_select_tokens, &attributes, INPUTS, inputs, outputs));
  int64_t count = 0;
  p->index = outputs[0];
  p->selected_offsets = outputs[1];
  HARK_TRY(hark_ahca_last_offset(p, p->selected_offsets, p->sequences * options->selected, &count));
  HARK_TRY(hark_ahca_shorten(p, count, &p->index));
  hark_tape_release(p->tape, p->pooled);
  HARK_TRY(hark_ahca_gather(p, leading, p->global, p->index, &p->selected));
  p->source = p->selected;
  p->source_offsets = p->selected_offsets;
  p->source_rows = keys_of_segment(count, p->sequences, options->selected);
  if (options->output == HARK_AHCA_OUTPUT_SELECTED) {
    p->source = p->global;
    p->source_offsets = p->global_offsets;
    p->source_rows = keys_of_segment(hark_ahca_rows(p, p->global), p->sequences, options->secondary_slots);
  }
  if (score == 0) return HARK_OK;
  hark_value chosen = score;
  if (options->output == HARK_AHCA_OUTPUT_CHUNKS) HARK_TRY(hark_ahca_gather(p, leading, score, p->index, &chosen));
  HARK_TRY(hark_ahca_apply_one(p, &hark_op_log_sigmoid, NULL, chosen, &p->term));
  hark_tape_release(p->tape, chosen);
  if (p->traced && chosen != score) {
    p->score = score;
  } else {
    hark_tape_release(p->tape, score);
  }
  return HARK_OK;
}

/* What goes through the layers: the chunks' slots c, or the selected tokens. */
static hark_status take_units(hark_ahca_pass *p, hark_value c, hark_value *begin) {
  *begin = c;
  p->unit_offsets = p->chunk_offsets;
  p->unit_rows = p->sequence_slots;
  p->units = p->chunks;
  p->unit_slots = p->options->primary_slots;
  if (p->options->output == HARK_AHCA_OUTPUT_CHUNKS) return HARK_OK;
  p->unit_offsets = p->unit_rows = p->selected_offsets;
  p->units = hark_tape_tensor(p->tape, p->index)->shape[0];
  p->unit_slots = 1;
  return hark_linear_apply(p->forward, &p->layers->from_selected, p->selected, begin);
}

static hark_status embed(const hark_ahca_pass *p, hark_value *x) {
  if (p->network->config.features > 0) {
    HARK_TRY(hark_linear_apply(p->forward, &p->layers->features, p->input->vectors, x));
  } else {
    HARK_TRY(hark_ahca_look_up(p, p->network->token_table, p->input->tokens, x));
  }
  return hark_forward_dropout(p->forward, p->network->config.embedding_dropout, 0, HARK_DROPOUT_EMBEDDING, x);
}

hark_status hark_ahca_logits(hark_context *context, const hark_network *network, const hark_forward *forward,
                             const hark_network_input *input, hark_value *logits, hark_ahca_trace *trace) {
  if (input->ranges == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "ahca: no ranges of examples, expected [N, 1, 2]");
  if ((network->config.features > 0) != (input->vectors != 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "ahca: the model reads %s, and others are given",
                     network->config.features > 0 ? "real vectors" : "tokens");
  hark_ahca_pass p = {.context = context,
                      .network = network,
                      .forward = forward,
                      .input = input,
                      .options = &network->config.ahca,
                      .layers = network->ahca,
                      .sizes = hark_ahca_sizes_of(&network->config),
                      .tape = forward->tape,
                      .tokens = hark_tensor_count(hark_tape_tensor(forward->tape, input->tokens)),
                      .sequences = input->ranges->shape[0],
                      .traced = trace != NULL};
  hark_value ranges = 0, x = 0, u = 0, score = 0, c = 0, begin = 0, h = 0;
  HARK_TRY(hark_tape_leaf(p.tape, input->ranges, NULL, &ranges));
  HARK_TRY(hark_ahca_apply_one(&p, &hark_op_range_offsets, NULL, ranges, &p.offsets));
  HARK_TRY(embed(&p, &x));
  HARK_TRY(hark_ahca_mix_tokens(&p, &x));
  const bool first = p.options->chunk == HARK_AHCA_CHUNK_LEARNED && p.options->boundary == HARK_AHCA_BOUNDARY_COMPRESSED;
  if (first) HARK_TRY(compress(&p, &p.layers->primary, x, &u));
  HARK_TRY(cut(&p, first ? u : x, &score));
  HARK_TRY(settle_boundaries(&p, score));
  HARK_TRY(number_slots(&p));
  if (!first) HARK_TRY(compress(&p, &p.layers->primary, x, &u));
  HARK_TRY(compress_chunks(&p, u, &c));
  if (network->config.ahca.head != HARK_AHCA_HEAD_LABELS) hark_tape_release(p.tape, x);
  if (hark_ahca_has_global(&network->config)) {
    HARK_TRY(compress_sequences(&p, c));
    HARK_TRY(select_tokens(&p, c));
  }
  HARK_TRY(hark_ahca_place_selected(&p));
  HARK_TRY(take_units(&p, c, &begin));
  HARK_TRY(hark_ahca_run_layers(&p, begin, &h));
  hark_tape_release(p.tape, begin);
  hark_tape_release(p.tape, c);
  HARK_TRY(hark_ahca_head_apply(&p, x, h, logits));
  hark_tape_release(p.tape, h);
  hark_tape_release(p.tape, x);
  if (input->penalty != NULL) *input->penalty = p.penalty;
  if (trace != NULL)
    *trace = (hark_ahca_trace){.chunks = p.chunk_rows,
                               .sequences = p.chunk_offsets,
                               .selected = p.index,
                               .selected_offsets = p.selected_offsets,
                               .global_offsets = p.global_offsets,
                               .units = p.unit_offsets,
                               .depth = p.depth,
                               .score = p.score,
                               .probability = p.probability};
  return HARK_OK;
}

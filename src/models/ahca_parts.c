/* ahca_parts.c - functions that the parts of a pass share. See ahca_pass.h. */
#include <hark/experimental.h>

#include "backend/backend.h"
#include "models/ahca_pass.h"

hark_status hark_ahca_apply(const hark_ahca_pass *p, const hark_operator *op, const void *attributes, int count, const hark_value *inputs,
                            hark_value *out) {
  return hark_tape_apply(p->tape, op, attributes, count, inputs, 0, out);
}

hark_status hark_ahca_apply_one(const hark_ahca_pass *p, const hark_operator *op, const void *attributes, hark_value input,
                                hark_value *out) {
  return hark_ahca_apply(p, op, attributes, 1, &input, out);
}

hark_status hark_ahca_look_up(const hark_ahca_pass *p, hark_parameter_id table, hark_value ids, hark_value *out) {
  hark_value inputs[] = {ids, 0};
  HARK_TRY(hark_forward_parameter(p->forward, table, &inputs[1]));
  return hark_ahca_apply(p, &hark_op_embedding, NULL, 2, inputs, out);
}

hark_status hark_ahca_add_table(const hark_ahca_pass *p, hark_parameter_id table, hark_value ids, hark_value *x) {
  hark_value rows = 0;
  if (table == 0) return HARK_OK;
  HARK_TRY(hark_ahca_look_up(p, table, ids, &rows));
  return hark_forward_add(p->forward, *x, rows, x);
}

hark_status hark_ahca_add_penalty(hark_ahca_pass *p, hark_penalty kind, hark_value penalty) {
  const hark_value both[] = {p->penalty, penalty};
  if (p->input->penalties != NULL) p->input->penalties[kind] = penalty;
  if (p->penalty == 0) {
    p->penalty = penalty;
    return HARK_OK;
  }
  const unsigned consumed = p->input->penalties != NULL ? 0 : 3; /* requested summands stay */
  return hark_tape_apply(p->tape, &hark_op_add, NULL, 2, both, consumed, &p->penalty);
}

hark_status hark_ahca_gather(const hark_ahca_pass *p, int leading, hark_value x, hark_value index, hark_value *out) {
  const hark_gather_rows_attributes attributes = {leading};
  const hark_value inputs[] = {x, index};
  return hark_ahca_apply(p, &hark_op_gather_rows, &attributes, 2, inputs, out);
}

hark_status hark_ahca_pool_segments(const hark_ahca_pass *p, int kind, hark_segment_pool_attributes attributes, hark_value x,
                                    hark_value offsets, hark_value *out) {
  attributes.kind = kind == HARK_AHCA_POOL_MAX ? HARK_SEGMENT_POOL_MAX : HARK_SEGMENT_POOL_AVERAGE;
  const hark_value inputs[] = {x, offsets};
  return hark_ahca_apply(p, &hark_op_segment_pool, &attributes, 2, inputs, out);
}

/* The list itself is not released: the shorter one is in its memory. It is a separate value also if it is as long, or if the run has no
 * data: all passes have the same number of values. */
hark_status hark_ahca_shorten(const hark_ahca_pass *p, int64_t count, hark_value *list) {
  hark_tensor part = *hark_tape_tensor(p->tape, *list);
  if (part.data != NULL && count < part.shape[0]) part.shape[0] = count;
  part.owned_bytes = 0;
  return hark_tape_leaf(p->tape, &part, NULL, list);
}

hark_status hark_ahca_offset_at(const hark_ahca_pass *p, hark_value offsets, int64_t index, int64_t *out) {
  return hark_backend_read(p->context, out, (const int64_t *)hark_tape_tensor(p->tape, offsets)->data + index, sizeof *out);
}

hark_status hark_ahca_last_offset(const hark_ahca_pass *p, hark_value offsets, int64_t most, int64_t *out) {
  const hark_tensor *list = hark_tape_tensor(p->tape, offsets);
  *out = most;
  return list->data != NULL ? hark_ahca_offset_at(p, offsets, list->shape[0] - 1, out) : HARK_OK;
}

int64_t hark_ahca_rows(const hark_ahca_pass *p, hark_value value) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  const int64_t width = tensor->shape[tensor->rank - 1];
  return width == 0 ? 0 : hark_tensor_count(tensor) / width;
}

int64_t hark_ahca_width(const hark_ahca_pass *p, hark_value value) {
  const hark_tensor *tensor = hark_tape_tensor(p->tape, value);
  return tensor->shape[tensor->rank - 1];
}

hark_attention_desc hark_ahca_describe(const hark_ahca_pass *p, int64_t width, int64_t value_width) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = 1;
  desc.heads = p->network->config.heads;
  desc.head_dim = width / desc.heads;
  desc.value_dim = value_width / desc.heads;
  desc.forward_only = !p->forward->training;
  return desc;
}

hark_status hark_ahca_attend(const hark_ahca_pass *p, const hark_ahca_ragged *r, hark_value *out) {
  enum { QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS };
  hark_attention_attributes attributes = {
      .own = {.desc = hark_ahca_describe(p, hark_ahca_width(p, r->query), hark_ahca_width(p, r->value))},
      .keys_of_a_query = r->keys_of_a_query};
  hark_attention_desc *const desc = &attributes.own.desc;
  desc->query_length = hark_ahca_rows(p, r->query);
  desc->key_length = hark_ahca_rows(p, r->key);
  desc->has_bias = r->bias != 0;
  desc->max_sequences = hark_tape_tensor(p->tape, r->query_offsets)->shape[0];
  const hark_value inputs[INPUTS] = {
      r->query, r->key, r->value, r->bias, [QUERY_OFFSETS] = r->query_offsets, [KEY_OFFSETS] = r->key_offsets};
  return hark_ahca_apply(p, &hark_op_attention, &attributes, INPUTS, inputs, out);
}

/* *x <- those of its rows that `place` lists. */
static hark_status take_places(const hark_ahca_pass *p, hark_value place, hark_value *x) {
  hark_value taken = 0;
  if (place == 0) return HARK_OK;
  HARK_TRY(hark_ahca_gather(p, hark_tape_tensor(p->tape, *x)->rank - 1, *x, place, &taken));
  hark_tape_release(p->tape, *x);
  *x = taken;
  return HARK_OK;
}

hark_status hark_ahca_cross_attend(const hark_ahca_pass *p, const hark_ahca_attention *attention, const hark_ahca_ragged *r,
                                   hark_value *out) {
  hark_ahca_ragged projected = *r;
  hark_value mixed = 0;
  HARK_TRY(hark_linear_apply(p->forward, &attention->query, r->query, &projected.query));
  HARK_TRY(hark_linear_apply(p->forward, &attention->key, r->key, &projected.key));
  HARK_TRY(hark_linear_apply(p->forward, &attention->value, r->key, &projected.value));
  HARK_TRY(take_places(p, r->place, &projected.key));
  HARK_TRY(take_places(p, r->place, &projected.value));
  HARK_TRY(hark_ahca_attend(p, &projected, &mixed));
  hark_tape_release(p->tape, projected.query);
  hark_tape_release(p->tape, projected.key);
  hark_tape_release(p->tape, projected.value);
  HARK_TRY(hark_linear_apply(p->forward, &attention->output, mixed, out));
  hark_tape_release(p->tape, mixed);
  return HARK_OK;
}

/* packed_batch.c - see packed_batch.h. */
#include "models/packed_batch.h"

#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"

static size_t segment_bytes(const hark_packed_batch *batch) { return (size_t)batch->most.tokens * sizeof *batch->segments; }

hark_status hark_tensor_make(hark_context *context, bool memory, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  return memory ? hark_tensor_create(context, type, rank, shape, out) : hark_tensor_describe(context, type, rank, shape, out);
}

static hark_status make_tables(hark_context *context, bool memory, hark_packed_batch *batch) {
  const int64_t targets[] = {batch->most.tokens, batch->most.responses}, offsets = batch->most.examples + 1;
  HARK_TRY(hark_tensor_make(context, memory, HARK_F32, 2, targets, &batch->targets));
  HARK_TRY(hark_tensor_make(context, memory, HARK_I64, 1, &offsets, &batch->context_offsets));
  return hark_tensor_make(context, memory, HARK_I64, 1, &offsets, &batch->query_offsets);
}

hark_status hark_packed_batch_create(hark_context *context, const hark_packed_extents *most, bool memory, hark_packed_batch *out) {
  const int64_t tokens[] = {1, most->tokens}, ranges[] = {most->examples, most->parts, 2}, vectors[] = {1, most->tokens, most->features};
  void *segments = NULL;
  *out = (hark_packed_batch){.most = *most};
  HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 2, tokens, &out->tokens));
  HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 1, &most->tokens, &out->positions));
  HARK_TRY(hark_tensor_make(context, memory, HARK_I64, 3, ranges, &out->ranges));
  if (most->types) HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 2, tokens, &out->types));
  if (most->features > 0) HARK_TRY(hark_tensor_make(context, memory, HARK_F32, 3, vectors, &out->vectors));
  if (most->responses > 0) HARK_TRY(make_tables(context, memory, out));
  if (!memory) return HARK_OK;
  HARK_TRY(hark_allocate_zero(context, segment_bytes(out), &segments)); /* shape-only runs read it */
  out->segments = segments;
  return HARK_OK;
}

void hark_packed_batch_destroy(hark_context *context, hark_packed_batch *batch) {
  hark_tensor_destroy(context, &batch->tokens);
  hark_tensor_destroy(context, &batch->positions);
  hark_tensor_destroy(context, &batch->ranges);
  hark_tensor_destroy(context, &batch->types);
  hark_tensor_destroy(context, &batch->vectors);
  hark_tensor_destroy(context, &batch->targets);
  hark_tensor_destroy(context, &batch->context_offsets);
  hark_tensor_destroy(context, &batch->query_offsets);
  if (batch->segments != NULL) hark_release(context, batch->segments, segment_bytes(batch));
  *batch = (hark_packed_batch){0};
}

size_t hark_packed_batch_bytes(const hark_packed_batch *batch) {
  const hark_tensor *const parts[] = {&batch->tokens,  &batch->positions, &batch->ranges,          &batch->types,
                                      &batch->vectors, &batch->targets,   &batch->context_offsets, &batch->query_offsets};
  size_t bytes = segment_bytes(batch);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (parts[i]->type != HARK_NONE) bytes += (size_t)hark_tensor_count(parts[i]) * hark_type_bytes(parts[i]->type);
  return bytes;
}

/* Offsets are those of the ranges: of part `part` of every table, from the first row of the part. */
static hark_status write_offsets(hark_context *context, const hark_tensor *offsets, const hark_example_batch *from, int part) {
  const int64_t of_part = (int64_t)2 * part, first = from->ranges[of_part];
  int64_t *const to = offsets->data;
  for (int64_t i = 0; i <= from->rows; i++) {
    const int64_t at = (i < from->rows ? from->ranges[4 * i + of_part] : from->ranges[4 * (i - 1) + of_part + 1]) - first;
    HARK_TRY(hark_backend_write(context, to + i, &at, sizeof at));
  }
  return HARK_OK;
}

static hark_status write_tables(hark_context *context, const hark_packed_batch *batch, const hark_example_batch *from) {
  const size_t targets = (size_t)(from->tokens * batch->most.responses);
  HARK_TRY(hark_backend_write(context, batch->targets.data, from->responses, targets * sizeof *from->responses));
  HARK_TRY(write_offsets(context, &batch->context_offsets, from, 0));
  return write_offsets(context, &batch->query_offsets, from, 1);
}

hark_status hark_packed_batch_write(hark_context *context, hark_packed_batch *batch, const hark_example_batch *from) {
  if (from->rows < 1 || from->rows > batch->most.examples || from->tokens > batch->most.tokens)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "%" PRId64 " examples of %" PRId64 " tokens together, expected 1 to %" PRId64 " of at most %" PRId64, from->rows,
                     from->tokens, batch->most.examples, batch->most.tokens);
  const size_t tokens = (size_t)from->tokens, ranges = 2 * (size_t)(from->rows * batch->most.parts);
  const size_t numbers = tokens * (size_t)batch->most.features;
  if (batch->most.types && from->types != NULL)
    HARK_TRY(hark_backend_write(context, batch->types.data, from->types, tokens * sizeof *from->types));
  if (batch->most.types && from->types == NULL) HARK_TRY(hark_tensor_zero(context, &batch->types));
  memcpy(batch->segments, from->segments, tokens * sizeof *batch->segments);
  HARK_TRY(hark_backend_write(context, batch->tokens.data, from->inputs, tokens * sizeof *from->inputs));
  HARK_TRY(hark_backend_write(context, batch->positions.data, from->positions, tokens * sizeof *from->positions));
  if (numbers > 0) HARK_TRY(hark_backend_write(context, batch->vectors.data, from->features, numbers * sizeof *from->features));
  if (batch->most.responses > 0) HARK_TRY(write_tables(context, batch, from));
  return hark_backend_write(context, batch->ranges.data, from->ranges, ranges * sizeof *from->ranges);
}

/* Rows first .. first + rows of packed numbers [.., width]. */
static hark_status rows_leaf(hark_tape *tape, const hark_tensor *numbers, int64_t first, int64_t rows, int64_t width, hark_value *out) {
  const int64_t shape[] = {rows, width};
  hark_tensor part = hark_tensor_front(numbers, 2, shape);
  if (part.data != NULL) part.data = (float *)part.data + first * width;
  return hark_tape_leaf(tape, &part, NULL, out);
}

static hark_status begin_tables(hark_packed_batch *batch, const hark_example_batch *extent, hark_tape *tape, hark_network_input *input) {
  const hark_packed_extents *most = &batch->most;
  const int64_t context = extent->context_rows, queries = extent->tokens - context, offsets = extent->rows + 1;
  hark_network_tables *tables = &batch->tables;
  const hark_tensor known = hark_tensor_front(&batch->context_offsets, 1, &offsets),
                    asked = hark_tensor_front(&batch->query_offsets, 1, &offsets);
  *tables = (hark_network_tables){.count = extent->rows};
  HARK_TRY(rows_leaf(tape, &batch->vectors, 0, context, most->features, &tables->context));
  HARK_TRY(rows_leaf(tape, &batch->vectors, context, queries, most->features, &tables->queries));
  HARK_TRY(rows_leaf(tape, &batch->targets, 0, context, most->responses, &tables->targets));
  HARK_TRY(rows_leaf(tape, &batch->targets, context, queries, most->responses, &batch->asked));
  tables->level = batch->asked;
  HARK_TRY(hark_tape_leaf(tape, &known, NULL, &tables->context_offsets));
  HARK_TRY(hark_tape_leaf(tape, &asked, NULL, &tables->query_offsets));
  input->tables = tables;
  return HARK_OK;
}

hark_status hark_packed_batch_begin(hark_packed_batch *batch, const hark_example_batch *extent, hark_forward *forward,
                                    hark_network_input *input) {
  const hark_packed_extents *most = &batch->most;
  const int64_t one_row[] = {1, extent->tokens}, ranges[] = {extent->rows, most->parts, 2}, numbers[] = {1, extent->tokens, most->features};
  const hark_tensor tokens = hark_tensor_front(&batch->tokens, 2, one_row);
  batch->positions_now = hark_tensor_front(&batch->positions, 1, &extent->tokens);
  batch->ranges_now = hark_tensor_front(&batch->ranges, 3, ranges);
  batch->packing = (hark_packing){.segments = batch->segments, .positions = &batch->positions_now, .longest = extent->longest};
  forward->packing = &batch->packing;
  batch->types_now = hark_tensor_front(&batch->types, 2, one_row);
  forward->types = most->types ? &batch->types_now : NULL;
  input->ranges = &batch->ranges_now;
  if (most->responses > 0) return begin_tables(batch, extent, forward->tape, input);
  HARK_TRY(hark_tape_leaf(forward->tape, &tokens, NULL, &input->tokens));
  if (most->features == 0) return HARK_OK;
  const hark_tensor vectors = hark_tensor_front(&batch->vectors, 3, numbers);
  return hark_tape_leaf(forward->tape, &vectors, NULL, &input->vectors);
}

/* chunks.c - see chunks.h. Cost: O(rows) with chunk_starts, otherwise O(chunks). */
#include "backend/chunks.h"

#include <inttypes.h>

hark_status hark_chunk_list_numbers(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  /* Every sequence may have one chunk that is shorter than the minimum, and has its number of rows. */
  size_t rows, ends;
  HARK_TRY(hark_size_multiply(context, (size_t)desc->batch, (size_t)hark_max(desc->query_length, desc->key_length), &rows));
  HARK_TRY(hark_size_multiply(context, 3, (size_t)desc->max_sequences + 1, &ends));
  return hark_size_add(context, rows / (size_t)desc->chunk, ends, out);
}

static bool begins(const hark_attention_call *run, const hark_attention_sequence *sequence, int64_t row) {
  const hark_tensor *starts = &run->args->chunk_starts;
  if (row >= sequence->key_count) return false; /* rows without keys continue the last chunk */
  return ((const uint8_t *)starts->data)[sequence->item * starts->stride[0] + (sequence->key_row + row) * starts->stride[1]] != 0;
}

hark_status hark_chunk_list_fill(hark_context *context, const hark_attention_call *run, int64_t *memory, hark_chunk_list *out) {
  const hark_attention_desc *desc = &run->plan->desc;
  *out = (hark_chunk_list){.before = memory, .start = memory + run->sequence_count + 1};
  int64_t used = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) {
    const hark_attention_sequence *sequence = &run->sequences[s];
    const int64_t rows = hark_chunk_rows(sequence);
    out->before[s] = used;
    out->start[used++] = 0;
    if (desc->has_chunk_starts == 0)
      for (int64_t row = desc->chunk; row < rows; row += desc->chunk) out->start[used++] = row;
    for (int64_t row = 1; desc->has_chunk_starts != 0 && row < rows; row++) {
      if (!begins(run, sequence, row)) continue;
      const int64_t length = row - out->start[used - 1];
      if (length < desc->chunk)
        return hark_fail(context, HARK_INVALID_ARGUMENT,
                         "attention: chunk_starts has a start at row %" PRId64 " of item %" PRId64 ", %" PRId64
                         " rows after the start before it, expected at least chunk = %" PRId64,
                         sequence->key_row + row, sequence->item, length, desc->chunk);
      out->start[used++] = row;
    }
    out->start[used++] = rows;
  }
  out->before[run->sequence_count] = used;
  return HARK_OK;
}

/* embedding.c - y[n, :] = table[id[n], :] and its gradient dtable[v, :] = sum over n with id[n] = v of dy[n, :].
 *
 * ids i32, N of them; table [V, D]; y [N, D]. The rows are sorted by id, stably, in the workspace, so that every entry of the gradient is
 * summed in increasing n whatever the number of threads. The forward is the record's: it copies rows.
 */
#include <inttypes.h>

#include "backend/cpu/isa/elements.h"

enum { INPUT_IDS, INPUT_TABLE };

#define COLUMNS 128 /* of one piece: a frequent id is split into several pieces */

/* dtable[v, first .. last) for the pieces [first, last); a piece is a row of the table and COLUMNS columns */
static void backward_pieces(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *gradient = &call->input_gradients[INPUT_TABLE];
  const int64_t vocabulary = gradient->shape[0], width = gradient->shape[1], pieces = hark_ceil_div(width, COLUMNS);
  const int64_t *begin = call->workspace, *row = begin + vocabulary + 1;
  const float *dy = call->output_gradients[0].data;
  const bool add = hark_cpu_adds(call, INPUT_TABLE);
  for (int64_t piece = first; piece < last; piece++) {
    const int64_t v = piece / pieces, from = piece % pieces * COLUMNS, count = hark_min(COLUMNS, width - from);
    float sum[COLUMNS] = {0};
    for (int64_t i = begin[v]; i < begin[v + 1]; i++) {
      const float *term = dy + row[i] * width + from;
      for (int64_t d = 0; d < count; d++) sum[d] += term[d];
    }
    float *out = (float *)gradient->data + v * width + from;
    for (int64_t d = 0; d < count; d++) out[d] = add ? out[d] + sum[d] : sum[d];
  }
}

hark_status HARK_ISA(hark_cpu_embedding_backward)(hark_context *context, const hark_call *call) {
  if (hark_cpu_no_gradient(call) || !hark_cpu_requested(call, INPUT_TABLE)) return HARK_OK;
  const hark_tensor *gradient = &call->input_gradients[INPUT_TABLE];
  const int64_t vocabulary = gradient->shape[0], width = gradient->shape[1], count = hark_tensor_count(&call->inputs[INPUT_IDS]);
  const int32_t *id = call->inputs[INPUT_IDS].data;
  for (int64_t n = 0; n < count; n++)
    if (id[n] < 0 || id[n] >= vocabulary)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "embedding: id %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64, n, id[n],
                       vocabulary - 1);
  /* A counting sort: begin[v] is where the rows of id v start in row[]. */
  int64_t *begin = call->workspace, *row = begin + vocabulary + 1;
  memset(begin, 0, (size_t)(vocabulary + 1) * sizeof *begin);
  for (int64_t n = 0; n < count; n++) begin[id[n] + 1]++;
  for (int64_t v = 0; v < vocabulary; v++) begin[v + 1] += begin[v];
  for (int64_t n = 0; n < count; n++) row[begin[id[n]]++] = n; /* begin[v] moves to the start of v + 1 */
  for (int64_t v = vocabulary; v > 0; v--) begin[v] = begin[v - 1];
  begin[0] = 0;
  const int64_t pieces = vocabulary * hark_ceil_div(width, COLUMNS), work = hark_max(count, vocabulary) * width;
  hark_cpu_ranges(context, call, pieces, 1 + pieces / 512, work < 2 * HARK_CPU_GRAIN ? pieces + 1 : 0, backward_pieces);
  return HARK_OK;
}

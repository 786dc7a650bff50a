/* kernel_metrics.c - see kernel_metrics.h. */
#include "train/kernel_metrics.h"

#include <stdio.h>

static int64_t owners(const hark_decoder *decoder) {
  return decoder->config.positional_scope == HARK_SCOPE_MODEL ? 1 : decoder->config.layers;
}

int64_t hark_kernel_metrics_count(const hark_decoder *decoder) {
  const hark_positional_source *source = &decoder->positional_source;
  if (source->expression == NULL) return 0;
  const int64_t count = owners(decoder) * source->rows * hark_positional_parameter_count(source->expression);
  return count <= HARK_KERNEL_METRICS_LIMIT ? count : 0;
}

static void append_kernel(const hark_decoder *decoder, int64_t layer, int64_t row, const double *natural, hark_jsonl *line) {
  const hark_positional *expression = decoder->positional_source.expression;
  char owner[64] = "model", name[160];
  if (decoder->config.positional_scope == HARK_SCOPE_LAYER) (void)snprintf(owner, sizeof owner, "layer%lld", (long long)layer);
  if (decoder->config.positional_scope == HARK_SCOPE_HEAD)
    (void)snprintf(owner, sizeof owner, "layer%lld.head%lld", (long long)layer, (long long)row);
  for (int i = 0; i < hark_positional_named_count(expression); i++) {
    const hark_positional_parameter named = hark_positional_named(expression, i);
    for (int64_t copy = 0; copy < named.count; copy++) {
      (void)snprintf(name, sizeof name, "positional/%s/%d.%s.%s/%lld", owner, named.column, named.kernel, named.name, (long long)copy);
      hark_jsonl_number(line, name, natural[named.first + copy]);
    }
  }
}

/* The rows of one tensor of parameters; `numbers` has room for them as they are stored and, behind, for one row of doubles. */
static hark_status append_layer(hark_context *context, const hark_decoder *decoder, int64_t layer, void *numbers, double *row_values,
                                hark_jsonl *line) {
  const hark_positional_source *source = &decoder->positional_source;
  const hark_tensor *weight = &hark_parameters_at(&decoder->parameters, hark_decoder_positional(decoder, layer)->parameters)->weight;
  const int64_t count = hark_positional_parameter_count(source->expression);
  HARK_TRY(hark_tensor_read(context, weight, numbers));
  for (int64_t row = 0; row < source->rows; row++) {
    for (int64_t i = 0; i < count; i++)
      row_values[i] =
          weight->type == HARK_F64 ? ((const double *)numbers)[row * count + i] : (double)((const float *)numbers)[row * count + i];
    HARK_TRY(hark_positional_natural(context, source->expression, row_values, row_values));
    append_kernel(decoder, layer, row, row_values, line);
  }
  return HARK_OK;
}

hark_status hark_kernel_metrics_append(hark_context *context, const hark_decoder *decoder, hark_jsonl *line) {
  if (hark_kernel_metrics_count(decoder) == 0) return HARK_OK;
  const int64_t count = hark_positional_parameter_count(decoder->positional_source.expression);
  const int64_t rows = decoder->positional_source.rows;
  const size_t bytes = (size_t)((rows + 1) * count) * sizeof(double);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  double *const numbers = memory;
  hark_status status = HARK_OK;
  for (int64_t layer = 0; layer < owners(decoder) && status == HARK_OK; layer++)
    status = append_layer(context, decoder, layer, numbers, numbers + rows * count, line);
  hark_release(context, memory, bytes);
  return status;
}

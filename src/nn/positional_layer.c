/* positional_layer.c - see positional_layer.h. */
#include "nn/positional_layer.h"

#include <hark/operators.h>
#include <inttypes.h>

#define NUMBERS_LIMIT ((int64_t)1 << 22) /* maximum number of parameters of a layer: an expression from a file is multiplied by the heads */

hark_status hark_positional_source_open(hark_context *context, const char *text, int64_t rows, int64_t length,
                                        hark_positional_source *out) {
  *out = (hark_positional_source){.rows = rows};
  if (text == NULL || text[0] == '\0') return HARK_OK;
  HARK_TRY(hark_positional_create(context, text, &out->expression));
  void *memory = NULL;
  const int64_t count = hark_positional_parameter_count(out->expression);
  if (rows * count > NUMBERS_LIMIT)
    return hark_fail(context, HARK_TOO_LARGE, "positional kernel: %" PRId64 " heads of %" PRId64 " parameters, expected at most %" PRId64,
                     rows, count, NUMBERS_LIMIT);
  const size_t text_bytes = hark_positional_print(out->expression, NULL, NULL, 0) + 1,
               initial_bytes = (size_t)(rows * count) * sizeof(double);
  HARK_TRY(hark_allocate(context, text_bytes, &memory));
  out->text = memory;
  out->text_bytes = text_bytes;
  (void)hark_positional_print(out->expression, NULL, out->text, text_bytes);
  HARK_TRY(hark_allocate(context, initial_bytes, &memory));
  out->initial = memory;
  out->initial_bytes = initial_bytes;
  for (int64_t head = 0; head < rows && count > 0; head++) {
    const hark_positional_start start = {.struct_size = sizeof start, .length = length, .heads = rows, .head = head};
    HARK_TRY(hark_positional_initial(context, out->expression, &start, out->initial + head * count));
  }
  return HARK_OK;
}

void hark_positional_source_close(hark_context *context, hark_positional_source *source) {
  hark_positional_destroy(context, &source->expression);
  hark_release(context, source->text, source->text_bytes);
  hark_release(context, source->initial, source->initial_bytes);
  *source = (hark_positional_source){0};
}

hark_status hark_positional_declare(hark_context *context, hark_parameters *parameters, const hark_positional_source *source,
                                    const char *prefix, hark_positional_layer *out) {
  *out = (hark_positional_layer){.source = source};
  const hark_parameter_spec spec = {.rank = 2,
                                    .shape = {source->rows, hark_positional_parameter_count(source->expression)},
                                    .initial = HARK_INITIAL_GIVEN,
                                    .given = source->initial,
                                    .rate = HARK_RATE_POSITIONAL,
                                    .noted = true};
  return hark_parameters_add(context, parameters, &spec, &out->parameters, "%s%s" HARK_POSITIONAL_TENSOR, prefix,
                             prefix[0] != '\0' ? "." : "");
}

hark_status hark_positional_apply(const hark_forward *forward, const hark_positional_layer *layer, int64_t distances, hark_value *table) {
  const hark_positional_attributes attributes = {
      .expression = layer->source->expression, .distances = distances, .stretch = layer->source->stretch};
  hark_value parameters = 0;
  HARK_TRY(hark_forward_parameter(forward, layer->parameters, &parameters));
  return hark_tape_apply(forward->tape, &hark_op_positional, &attributes, 1, &parameters, 0, table);
}

/* Describes the call that fills a table, and its needs. The attributes are caller-owned and must outlive the call. */
static hark_status describe_fill(hark_context *context, const hark_parameters *parameters, const hark_positional_layer *layer,
                                 const hark_tensor *table, hark_positional_attributes *attributes, hark_call *call) {
  hark_inferred inferred = {0};
  *attributes = (hark_positional_attributes){
      .expression = layer->source->expression, .distances = table->shape[1], .stretch = layer->source->stretch};
  *call = (hark_call){.op = &hark_op_positional, .attributes = attributes, .input_count = 1, .outputs = {*table}};
  call->inputs[0] = hark_parameters_at(parameters, layer->parameters)->weight;
  HARK_TRY(hark_op_positional.infer(context, attributes, call->inputs, 1, &inferred));
  call->workspace_bytes = inferred.forward_workspace;
  return HARK_OK;
}

hark_status hark_positional_fill_bytes(hark_context *context, const hark_parameters *parameters, const hark_positional_layer *layer,
                                       const hark_tensor *table, size_t *bytes) {
  hark_positional_attributes attributes;
  hark_call call;
  HARK_TRY(describe_fill(context, parameters, layer, table, &attributes, &call));
  *bytes = call.workspace_bytes;
  return HARK_OK;
}

hark_status hark_positional_fill(hark_context *context, const hark_parameters *parameters, const hark_positional_layer *layer,
                                 const hark_tensor *workspace, hark_tensor *table) {
  hark_positional_attributes attributes;
  hark_call call;
  HARK_TRY(describe_fill(context, parameters, layer, table, &attributes, &call));
  call.workspace = workspace->data;
  return hark_operator_forward(context, &call);
}

/* positional_layer.c - see positional_layer.h. */
#include "nn/positional_layer.h"

#include <hark/operators.h>
#include <inttypes.h>

#define NUMBERS_LIMIT (1 << 22) /* maximum number of parameters of a layer: an expression from a file is multiplied by the heads */

const hark_positional *hark_positional_source_at(const hark_positional_source *source, int64_t layer, int64_t row) {
  return hark_positional_list_at(&source->list, layer, source->rows, row);
}

int64_t hark_positional_source_columns(const hark_positional_source *source, int64_t layer) {
  int64_t columns = 0;
  for (int64_t row = 0; row < source->rows; row++)
    columns = hark_max(columns, hark_positional_parameter_count(hark_positional_source_at(source, layer, row)));
  return columns;
}

/* The number of layers whose initial values differ. */
static int64_t initial_layers(const hark_positional_source *source) { return hark_max(1, hark_ceil_div(source->list.count, source->rows)); }

/* The initial values of a layer; NULL if no layer has any. */
static double *initial_of(const hark_positional_source *source, int64_t layer) {
  int64_t first = 0;
  if (source->initial == NULL) return NULL;
  for (int64_t i = 0; i < layer % initial_layers(source); i++) first += source->rows * hark_positional_source_columns(source, i);
  return source->initial + first;
}

static hark_status fill_layer(hark_context *context, const hark_positional_source *source, int64_t layer, int64_t length) {
  const int64_t columns = hark_positional_source_columns(source, layer);
  hark_positional_start start = {.struct_size = sizeof start, .length = length, .heads = source->rows};
  double *const values = initial_of(source, layer);
  for (; start.head < source->rows && columns > 0; start.head++)
    HARK_TRY(hark_positional_initial(context, hark_positional_source_at(source, layer, start.head), &start, values + start.head * columns));
  return HARK_OK;
}

hark_status hark_positional_source_open(hark_context *context, const char *text, int64_t rows, int64_t length,
                                        hark_positional_source *out) {
  *out = (hark_positional_source){.rows = rows};
  HARK_TRY(hark_positional_list_open(context, text, &out->list));
  if (!hark_positional_source_given(out)) return HARK_OK;
  void *memory = NULL;
  const int64_t numbers = initial_layers(out) * rows * out->list.columns;
  if (numbers > NUMBERS_LIMIT)
    return hark_fail(context, HARK_TOO_LARGE, "positional kernel: %" PRId64 " heads of %" PRId64 " parameters, expected at most %d",
                     initial_layers(out) * rows, out->list.columns, NUMBERS_LIMIT);
  const size_t text_bytes = hark_positional_list_print(&out->list, NULL, 0) + 1, initial_bytes = (size_t)numbers * sizeof(double);
  HARK_TRY(hark_allocate(context, text_bytes, &memory));
  out->text = memory;
  out->text_bytes = text_bytes;
  (void)hark_positional_list_print(&out->list, out->text, text_bytes);
  HARK_TRY(hark_allocate_zero(context, initial_bytes, &memory));
  out->initial = memory;
  out->initial_bytes = initial_bytes;
  for (int64_t layer = 0; layer < initial_layers(out); layer++) HARK_TRY(fill_layer(context, out, layer, length));
  return HARK_OK;
}

void hark_positional_source_close(hark_context *context, hark_positional_source *source) {
  hark_positional_list_close(context, &source->list);
  hark_release(context, source->text, source->text_bytes);
  hark_release(context, source->initial, source->initial_bytes);
  *source = (hark_positional_source){0};
}

hark_status hark_positional_declare(hark_context *context, hark_parameters *parameters, const hark_positional_source *source, int64_t layer,
                                    const char *prefix, hark_positional_layer *out) {
  *out = (hark_positional_layer){.source = source, .layer = layer};
  const int64_t columns = hark_positional_source_columns(source, layer);
  const hark_parameter_spec spec = {.rank = 2,
                                    .shape = {source->rows, columns},
                                    .initial = HARK_INITIAL_GIVEN,
                                    .given = initial_of(source, layer),
                                    .rate = HARK_RATE_POSITIONAL,
                                    .noted = true};
  return hark_parameters_add(context, parameters, &spec, &out->parameters, "%s%s" HARK_POSITIONAL_TENSOR, prefix,
                             prefix[0] != '\0' ? "." : "");
}

static hark_positional_attributes attributes_of(const hark_positional_layer *layer, int64_t distances) {
  const hark_positional_source *source = layer->source;
  hark_positional_attributes attributes = {.expression = source->list.items[0], .distances = distances, .stretch = source->stretch};
  if (source->list.count > 1)
    attributes.expressions = (const hark_positional *const *)&source->list.items[layer->layer * source->rows % source->list.count];
  return attributes;
}

hark_status hark_positional_apply(const hark_forward *forward, const hark_positional_layer *layer, int64_t distances, hark_value *table) {
  const hark_positional_attributes attributes = attributes_of(layer, distances);
  hark_value parameters = 0;
  HARK_TRY(hark_forward_parameter(forward, layer->parameters, &parameters));
  return hark_tape_apply(forward->tape, &hark_op_positional, &attributes, 1, &parameters, 0, table);
}

/* Describes the call that fills a table, and its needs. The attributes are caller-owned and must outlive the call. */
static hark_status describe_fill(hark_context *context, const hark_parameters *parameters, const hark_positional_layer *layer,
                                 const hark_tensor *table, hark_positional_attributes *attributes, hark_call *call) {
  hark_inferred inferred = {0};
  *attributes = attributes_of(layer, table->shape[1]);
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

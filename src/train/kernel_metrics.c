/* kernel_metrics.c - see kernel_metrics.h. */
#include "train/kernel_metrics.h"

#include <math.h>
#include <stdio.h>

#include "models/regressor.h"

/* Number of parameter tensors of a scope. */
static int64_t owners(const hark_network *network, hark_positional_scope scope) {
  return scope == HARK_SCOPE_MODEL ? 1 : network->config.layers;
}

static void name_owner(hark_positional_scope scope, int64_t layer, int64_t row, char *out, size_t bytes) {
  if (scope == HARK_SCOPE_MODEL) (void)snprintf(out, bytes, "model");
  if (scope == HARK_SCOPE_LAYER) (void)snprintf(out, bytes, "layer%lld", (long long)layer);
  if (scope == HARK_SCOPE_HEAD) (void)snprintf(out, bytes, "layer%lld.head%lld", (long long)layer, (long long)row);
}

static int64_t within_limit(int64_t count) { return count <= HARK_KERNEL_METRICS_LIMIT ? count : 0; }

static int64_t kernel_count(const hark_network *network) {
  const hark_positional_source *source = &network->positional_source;
  int64_t count = 0;
  if (!hark_positional_source_given(source)) return 0;
  for (int64_t layer = 0; layer < owners(network, network->config.positional_scope); layer++) {
    for (int64_t row = 0; row < source->rows; row++)
      count += hark_positional_parameter_count(hark_positional_source_at(source, layer, row));
  }
  return within_limit(count);
}

/* The scope of learned rates, if there are any. */
static hark_positional_scope rates_scope(const hark_network *network) {
  return network->config.rotary.learned == HARK_ROTARY_OF_MODEL   ? HARK_SCOPE_MODEL
         : network->config.rotary.learned == HARK_ROTARY_OF_LAYER ? HARK_SCOPE_LAYER
                                                                  : HARK_SCOPE_HEAD;
}

static int64_t rate_count(const hark_network *network) {
  const hark_rotary_source *source = &network->rotary_source;
  return within_limit(owners(network, rates_scope(network)) * source->rows * source->pairs); /* 0 rows: static */
}

/* With kernel ridge attention a line is written even where nothing is learned, because it counts the pivots. */
static int64_t ridge_count(const hark_network *network) {
  const hark_network_config *config = &network->config;
  int64_t layers = 0;
  for (int64_t layer = 0; layer < config->layers; layer++)
    layers += hark_layer_choice_of(&config->attention.normalisation, layer) == HARK_NORMALISATION_CME;
  return layers > 0 ? 1 + within_limit(2 * layers * config->heads) : 0;
}

int64_t hark_kernel_metrics_count(const hark_network *network) {
  return kernel_count(network) + rate_count(network) + ridge_count(network);
}

static double number_at(const hark_tensor *weight, const void *numbers, int64_t i) {
  return weight->type == HARK_F64 ? ((const double *)numbers)[i] : (double)((const float *)numbers)[i];
}

static void append_kernel(const hark_network *network, int64_t layer, int64_t row, const double *natural, hark_jsonl *line) {
  const hark_positional *expression = hark_positional_source_at(&network->positional_source, layer, row);
  char owner[64], name[160];
  name_owner(network->config.positional_scope, layer, row, owner, sizeof owner);
  for (int i = 0; i < hark_positional_named_count(expression); i++) {
    const hark_positional_parameter named = hark_positional_named(expression, i);
    for (int64_t copy = 0; copy < named.count; copy++) {
      (void)snprintf(name, sizeof name, "positional/%s/%d.%s.%s/%lld", owner, named.column, named.kernel, named.name, (long long)copy);
      hark_jsonl_number(line, name, natural[named.first + copy]);
    }
  }
}

/* Appends the rows of one tensor of parameters; `numbers` has room for the stored numbers, followed by one row of doubles. */
static hark_status append_layer(hark_context *context, const hark_network *network, int64_t layer, void *numbers, double *row_values,
                                hark_jsonl *line) {
  const hark_positional_source *source = &network->positional_source;
  const hark_tensor *weight = &hark_parameters_at(&network->parameters, hark_stack_positional(network, layer)->parameters)->weight;
  HARK_TRY(hark_tensor_read(context, weight, numbers));
  for (int64_t row = 0; row < source->rows; row++) {
    const hark_positional *expression = hark_positional_source_at(source, layer, row);
    for (int64_t i = 0; i < hark_positional_parameter_count(expression); i++)
      row_values[i] = number_at(weight, numbers, row * weight->shape[1] + i);
    HARK_TRY(hark_positional_natural(context, expression, row_values, row_values));
    append_kernel(network, layer, row, row_values, line);
  }
  return HARK_OK;
}

static hark_status append_kernels(hark_context *context, const hark_network *network, hark_jsonl *line) {
  if (kernel_count(network) == 0) return HARK_OK;
  const int64_t count = network->positional_source.list.columns;
  const int64_t rows = network->positional_source.rows;
  const size_t bytes = (size_t)((rows + 1) * count) * sizeof(double);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  double *const numbers = memory;
  hark_status status = HARK_OK;
  for (int64_t layer = 0; layer < owners(network, network->config.positional_scope) && status == HARK_OK; layer++)
    status = append_layer(context, network, layer, numbers, numbers + rows * count, line);
  hark_release(context, memory, bytes);
  return status;
}

/* Appends the rates of one tensor; `numbers` has room for them. */
static hark_status append_rates_of_layer(hark_context *context, const hark_network *network, int64_t layer, void *numbers,
                                         hark_jsonl *line) {
  const hark_rotary_source *source = &network->rotary_source;
  const hark_tensor *weight = &hark_parameters_at(&network->parameters, hark_stack_rates(network, layer))->weight;
  HARK_TRY(hark_tensor_read(context, weight, numbers));
  for (int64_t i = 0; i < source->rows * source->pairs; i++) {
    char owner[64], name[160];
    name_owner(rates_scope(network), layer, i / source->pairs, owner, sizeof owner);
    (void)snprintf(name, sizeof name, "rotary/%s/%lld", owner, (long long)(i % source->pairs));
    hark_jsonl_number(line, name, number_at(weight, numbers, i));
  }
  return HARK_OK;
}

static hark_status append_rates(hark_context *context, const hark_network *network, hark_jsonl *line) {
  if (rate_count(network) == 0) return HARK_OK;
  const size_t bytes = network->rotary_source.bytes;
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  hark_status status = HARK_OK;
  for (int64_t layer = 0; layer < owners(network, rates_scope(network)) && status == HARK_OK; layer++)
    status = append_rates_of_layer(context, network, layer, memory, line);
  hark_release(context, memory, bytes);
  return status;
}

/* Appends e^x for every head of a vector. */
static hark_status append_vector(hark_context *context, const hark_network *network, const char *what, int64_t layer, hark_parameter_id id,
                                 void *numbers, hark_jsonl *line) {
  if (id == 0) return HARK_OK;
  const hark_tensor *weight = &hark_parameters_at(&network->parameters, id)->weight;
  HARK_TRY(hark_tensor_read(context, weight, numbers));
  for (int64_t head = 0; head < network->config.heads; head++) {
    char name[96];
    (void)snprintf(name, sizeof name, "%s/layer%lld.head%lld", what, (long long)layer, (long long)head);
    hark_jsonl_number(line, name, exp(number_at(weight, numbers, head)));
  }
  return HARK_OK;
}

static hark_status append_ridges(hark_context *context, const hark_network *network, hark_jsonl *line) {
  if (ridge_count(network) <= 1) return HARK_OK;
  const hark_block *const blocks = network->regressor != NULL ? network->regressor->blocks : network->blocks;
  const size_t bytes = (size_t)network->config.heads * sizeof(double);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  hark_status status = HARK_OK;
  for (int64_t layer = 0; layer < network->config.layers && status == HARK_OK; layer++) {
    const hark_self_attention *attention = &blocks[layer].attention;
    status = append_vector(context, network, "ridge", layer, attention->log_ridge, memory, line);
    if (status == HARK_OK) status = append_vector(context, network, "sigma", layer, attention->log_sigma, memory, line);
  }
  hark_release(context, memory, bytes);
  return status;
}

hark_status hark_kernel_metrics_append(hark_context *context, const hark_network *network, hark_jsonl *line) {
  HARK_TRY(append_kernels(context, network, line));
  HARK_TRY(append_rates(context, network, line));
  return append_ridges(context, network, line);
}

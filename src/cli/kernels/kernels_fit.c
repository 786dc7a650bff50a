/* kernels_fit.c - expressions fitted to the positional kernels that a model has learned. See kernels.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/kernels/kernels.h"
#include "data/inputs.h"
#include "io/json_write.h"
#include "models/observe.h"

#define LAG_SHARE 0.1 /* of the attention */
#define FLOOR 1e-4    /* fraction of the weight that all distances share equally, so that none is without */

/* A model that is being fitted. */
typedef struct kernels_fit {
  hark_context *context;
  const hark_kernels_values *values;
  const hark_network *network;
  int64_t length;    /* of a window and of the tables */
  double *attention; /* [layers, heads, length] */
  double *table;     /* [length] */
  double *weights;   /* [length] */
  float *rows;       /* [rows of a layer, length] */
  double *memory;
  size_t bytes;
  hark_fitted_kernels *out;
} kernels_fit;

/* ---- the attention on a text ---- */

static hark_status add_windows(kernels_fit *f, const int32_t *tokens, size_t count) {
  const int64_t most = f->values->windows;
  while (f->out->windows < most && count >= 2) {
    const int64_t taken = hark_min((int64_t)count, f->length);
    if (f->out->windows > 0 && taken < f->length) break; /* the rest of the text */
    HARK_TRY(hark_network_add_distances(f->context, f->network, tokens, taken, f->length, f->attention));
    tokens += taken;
    count -= (size_t)taken;
    f->out->windows++;
  }
  return HARK_OK;
}

static hark_status read_text(kernels_fit *f, const hark_model *model, const char *path) {
  hark_kernels_text text;
  hark_status status = hark_kernels_read_text(f->context, model, path, hark_input_beginning_bytes(f->length * f->values->windows), &text);
  if (status == HARK_OK && text.count < 2)
    status = hark_fail(f->context, HARK_BAD_FILE, "%s: %zu token%s, expected at least 2", path, text.count, text.count == 1 ? "" : "s");
  if (status == HARK_OK) status = add_windows(f, text.ids, text.count);
  f->out->tokens = (int64_t)text.count;
  f->out->unknown = text.unknown;
  hark_kernels_free_text(f->context, &text);
  return status;
}

/* weights <- the attention of all heads that use a row of a layer, as fractions by distance. */
static void collect_weights(kernels_fit *f, int64_t layer, int64_t row) {
  const hark_network_config *config = &f->network->config;
  double sum = 0;
  memset(f->weights, 0, (size_t)f->length * sizeof *f->weights);
  for (int64_t l = 0; l < config->layers; l++) {
    if (f->out->scope != HARK_SCOPE_MODEL && l != layer) continue;
    for (int64_t h = 0; h < config->heads; h++) {
      if (f->out->of_heads && h != row) continue;
      const double *attention = f->attention + (l * config->heads + h) * f->length;
      for (int64_t d = 0; d < f->length; d++) f->weights[d] += attention[d];
    }
  }
  for (int64_t d = 0; d < f->length; d++) sum += f->weights[d];
  for (int64_t d = 0; d < f->length; d++) f->weights[d] = (1 - FLOOR) * f->weights[d] / sum + FLOOR / (double)f->length;
}

/* ---- the kernels ---- */

/* table <- log G of a row of a layer. Distances at which it is 0 have no attention; their weight becomes 0. */
static void take_table(kernels_fit *f, int64_t row) {
  double sum = 0;
  for (int64_t d = 0; d < f->length; d++) {
    const double value = (double)f->rows[row * f->length + d];
    f->table[d] = isfinite(value) ? value : 0;
    if (!isfinite(value)) f->weights[d] = 0;
    sum += f->weights[d];
  }
  for (int64_t d = 0; d < f->length; d++) f->weights[d] /= sum;
}

static void find_lags(const kernels_fit *f, hark_fitted_kernel *kernel) {
  const double *const p = f->weights;
  for (int64_t d = 0; d < f->length && kernel->lag_count < HARK_KERNELS_LAGS; d++) {
    const bool left = d == 0 || p[d] > p[d - 1], right = d == f->length - 1 || p[d] > p[d + 1];
    if (p[d] >= LAG_SHARE && left && right) kernel->lags[kernel->lag_count++] = d;
  }
}

static hark_status fit_kernel(kernels_fit *f, hark_fitted_kernel *kernel) {
  const hark_grow_options options = {
      .terms = (int)f->values->terms, .price = f->values->price, .periods = 3, .definite = f->values->definite};
  const hark_fit_target target = {.count = f->length, .log_table = f->table, .weights = f->weights};
  if (kernel->row == 0) HARK_TRY(hark_kernels_table(f->context, f->network, kernel->layer, f->length, f->rows));
  collect_weights(f, kernel->layer, kernel->row);
  take_table(f, kernel->row);
  find_lags(f, kernel);
  return hark_fit_grow(f->context, &target, &options, &kernel->grown);
}

/* ---- from beginning to end ---- */

static hark_status check_model(hark_context *context, const char *path, const hark_network *network) {
  if (!hark_kernels_given(network))
    return hark_fail(context, HARK_UNSUPPORTED, "%s: this model has no positional kernels of the distance of tokens", path);
  HARK_TRY(hark_kernels_check_direction(context, path, network, "a fit"));
  if (!hark_layer_choice_is(&network->config.attention.normalisation, HARK_NORMALISATION_SOFTMAX))
    return hark_fail(context, HARK_UNSUPPORTED, "%s: expected layers with model.attention.normalisation softmax alone", path);
  return HARK_OK;
}

static hark_status make_room(kernels_fit *f) {
  const hark_network_config *config = &f->network->config;
  const int64_t rows = f->network->positional_source.rows, owners = config->positional_scope == HARK_SCOPE_MODEL ? 1 : config->layers;
  const size_t numbers = (size_t)(f->length * (config->layers * config->heads + 2 + rows)); /* floats have room for doubles */
  hark_fitted_kernels *const out = f->out;
  out->scope = config->positional_scope;
  out->of_heads = rows > 1;
  out->length = f->length;
  HARK_TRY(hark_allocate_zero(f->context, (size_t)(owners * rows) * sizeof *out->items, (void **)&out->items));
  out->count = owners * rows;
  out->bytes = (size_t)out->count * sizeof *out->items;
  for (int64_t i = 0; i < out->count; i++) {
    out->items[i].layer = i / rows;
    out->items[i].row = i % rows;
  }
  HARK_TRY(hark_allocate_zero(f->context, numbers * sizeof(double), (void **)&f->memory));
  f->bytes = numbers * sizeof(double);
  f->attention = f->memory;
  f->table = f->attention + config->layers * config->heads * f->length;
  f->weights = f->table + f->length;
  f->rows = (float *)(f->weights + f->length);
  return HARK_OK;
}

hark_status hark_kernels_fit(hark_context *context, const char *model, const char *text, const hark_kernels_values *values,
                             hark_fitted_kernels *out) {
  const hark_model_options how = {.struct_size = sizeof how, .checkpoint = values->checkpoint[0] != '\0' ? values->checkpoint : NULL};
  hark_model *loaded = NULL;
  *out = (hark_fitted_kernels){0};
  HARK_TRY(hark_model_load(context, model, &how, &loaded));
  kernels_fit f = {.context = context, .values = values, .network = loaded->network, .length = loaded->network->config.context, .out = out};
  hark_status status = check_model(context, model, f.network);
  if (status == HARK_OK) status = make_room(&f);
  if (status == HARK_OK) status = read_text(&f, loaded, text);
  for (int64_t i = 0; i < out->count && status == HARK_OK; i++) status = fit_kernel(&f, &out->items[i]);
  hark_release(context, f.memory, f.bytes);
  hark_model_destroy(context, &loaded);
  return status;
}

void hark_kernels_free(hark_context *context, hark_fitted_kernels *kernels) {
  hark_release(context, kernels->items, kernels->bytes);
  *kernels = (hark_fitted_kernels){0};
}

/* ---- as text ---- */

int64_t hark_kernels_parameters(const hark_fitted_kernels *kernels) {
  int64_t sum = 0;
  for (int64_t i = 0; i < kernels->count; i++) sum += kernels->items[i].grown.parameters;
  return sum;
}

/* Appends an expression with "!" after every value: "decay(l=3)" as "decay(l=3!)". */
static void append_fixed(const char *expression, hark_text *text) {
  for (const char *at = expression; *at != '\0';) {
    const size_t before = strcspn(at, "=");
    hark_text_append(text, "%.*s", (int)(before + (at[before] != '\0')), at);
    at += before;
    if (*at == '\0') return;
    at++;
    const size_t value = *at == '[' ? strcspn(at, "]") + 1 : strcspn(at, ",)!@");
    hark_text_append(text, "%.*s%s", (int)value, at, at[value] == '!' ? "" : "!");
    at += value;
  }
}

void hark_kernels_append_list(const hark_fitted_kernels *kernels, bool fixed, hark_text *text) {
  for (int64_t i = 0; i < kernels->count; i++) {
    if (i > 0) hark_text_append(text, "|");
    if (fixed)
      append_fixed(kernels->items[i].grown.text, text);
    else
      hark_text_append(text, "%s", kernels->items[i].grown.text);
  }
}

static void append_name(const hark_fitted_kernels *kernels, const hark_fitted_kernel *kernel, hark_text *text) {
  if (kernels->scope != HARK_SCOPE_MODEL) hark_text_append(text, "layer %" PRId64, kernel->layer);
  if (kernels->of_heads) hark_text_append(text, "%shead %" PRId64, kernels->scope != HARK_SCOPE_MODEL ? ", " : "", kernel->row);
  if (kernels->scope == HARK_SCOPE_MODEL && !kernels->of_heads) hark_text_append(text, "model");
}

void hark_kernels_append_table(const hark_fitted_kernels *kernels, hark_text *text) {
  hark_text_append(text, "| kernel of | lost without a kernel (nats) | lost (nats) | parameters | expression |\n|---|---|---|---|---|\n");
  for (int64_t i = 0; i < kernels->count; i++) {
    const hark_grown *grown = &kernels->items[i].grown;
    hark_text_append(text, "| ");
    append_name(kernels, &kernels->items[i], text);
    hark_text_append(text, " | %.4f | %.4f | %" PRId64 " | `%s` |\n", grown->constant, grown->divergence, grown->parameters, grown->text);
  }
}

void hark_kernels_append_json(const hark_fitted_kernels *kernels, hark_text *text) {
  hark_text_append(text,
                   "\"windows\": %" PRId64 ", \"distances\": %" PRId64 ", \"parameters\": %" PRId64 ", \"expression\": ", kernels->windows,
                   kernels->length, hark_kernels_parameters(kernels));
  hark_text list = hark_text_empty(text->context);
  hark_kernels_append_list(kernels, false, &list);
  hark_json_append_string(text, hark_text_get(&list));
  if (list.status != HARK_OK) text->status = list.status;
  hark_text_free(&list);
  hark_text_append(text, ", \"kernels\": [");
  for (int64_t i = 0; i < kernels->count; i++) {
    const hark_fitted_kernel *kernel = &kernels->items[i];
    hark_text_append(text, "%s{\"layer\": %" PRId64 ", \"row\": %" PRId64 ", \"expression\": ", i > 0 ? ", " : "", kernel->layer,
                     kernel->row);
    hark_json_append_string(text, kernel->grown.text);
    hark_json_append_member(text, "lost_without", kernel->grown.constant);
    hark_json_append_member(text, "lost", kernel->grown.divergence);
    hark_text_append(text, ", \"parameters\": %" PRId64 "}", kernel->grown.parameters);
  }
  hark_text_append(text, "]");
}

/* kernels_export.c - hark kernels export: log G of every head and distance, for other programs. See kernels.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/kernels/kernels.h"
#include "io/json_write.h"
#include "io/safetensors.h"

#define NUMBERS_MOST ((int64_t)1 << 28)
#define NAME_BYTES 64

/* Tables of log G: [layers, heads, distances]. */
typedef struct kernel_tables {
  hark_context *context;
  int64_t layers, heads, distances;
  const char *expression; /* of the model */
  float *numbers;
  size_t bytes;
} kernel_tables;

static float *table_of(const kernel_tables *t, int64_t layer) { return t->numbers + layer * t->heads * t->distances; }

/* numbers of a layer <- its table; a row that all heads share is repeated. */
static hark_status fill_layer(kernel_tables *t, const hark_network *network, int64_t layer) {
  float *const out = table_of(t, layer);
  HARK_TRY(hark_kernels_table(t->context, network, layer, t->distances, out));
  for (int64_t head = network->positional_source.rows; head < t->heads; head++) /* there is one row, or one for each head */
    memcpy(out + head * t->distances, out, (size_t)t->distances * sizeof *out);
  return HARK_OK;
}

static hark_status fill(kernel_tables *t, const hark_network *network) {
  if (t->layers * t->heads * t->distances > NUMBERS_MOST)
    return hark_fail(t->context, HARK_TOO_LARGE,
                     "%" PRId64 " layers of %" PRId64 " heads and %" PRId64 " distances, expected at most %" PRId64 " numbers", t->layers,
                     t->heads, t->distances, NUMBERS_MOST);
  t->bytes = (size_t)(t->layers * t->heads * t->distances) * sizeof(float);
  HARK_TRY(hark_allocate(t->context, t->bytes, (void **)&t->numbers));
  for (int64_t layer = 0; layer < t->layers; layer++) HARK_TRY(fill_layer(t, network, layer));
  return HARK_OK;
}

/* ---- files ---- */

static void append_csv(const kernel_tables *t, hark_text *text) {
  hark_text_append(text, "distance");
  for (int64_t row = 0; row < t->layers * t->heads; row++)
    hark_text_append(text, ",layer%" PRId64 ".head%" PRId64, row / t->heads, row % t->heads);
  for (int64_t d = 0; d < t->distances; d++) {
    hark_text_append(text, "\n%" PRId64, d);
    for (int64_t row = 0; row < t->layers * t->heads; row++) hark_text_append(text, ",%.9g", (double)t->numbers[row * t->distances + d]);
  }
  hark_text_append(text, "\n");
}

static void append_row(const kernel_tables *t, int64_t row, hark_text *text) {
  for (int64_t d = 0; d < t->distances; d++) {
    const double value = (double)t->numbers[row * t->distances + d];
    if (isinf(value))
      hark_text_append(text, "%s-inf", d > 0 ? ", " : "");
    else
      hark_text_append(text, "%s%.9g", d > 0 ? ", " : "", value);
  }
}

static void append_python(const kernel_tables *t, hark_text *text) {
  hark_text_append(text,
                   "\"\"\"Positional kernels of a model as score_mod of PyTorch's FlexAttention, written by hark kernels export.\n\n"
                   "    from torch.nn.attention.flex_attention import flex_attention\n"
                   "    out = flex_attention(query, key, value, score_mod=score_mod(layer=0, device=query.device))\n\n"
                   "LOG_G[layer][head][distance] is log G, for distances below %" PRId64 ". Queries and keys are at the same positions.\n",
                   t->distances);
  hark_text_append(text, "\"\"\"\n\nimport torch\n\ninf = float(\"inf\")\nEXPRESSION = ");
  hark_json_append_string(text, t->expression);
  hark_text_append(text, "\nLOG_G = [\n");
  for (int64_t row = 0; row < t->layers * t->heads; row++) {
    hark_text_append(text, row % t->heads == 0 ? "    [\n        [" : "        [");
    append_row(t, row, text);
    hark_text_append(text, (row + 1) % t->heads == 0 ? "],\n    ],\n" : "],\n");
  }
  hark_text_append(text,
                   "]\n\n\ndef score_mod(layer, device=None, dtype=torch.float32):\n"
                   "    \"\"\"Adds log G of the distance to the scores of a layer.\"\"\"\n"
                   "    table = torch.tensor(LOG_G[layer], device=device, dtype=dtype)\n\n"
                   "    def add_log_g(score, batch, head, query, key):\n"
                   "        return score + table[head, (query - key).abs()]\n\n"
                   "    return add_log_g\n");
}

static hark_status write_safetensors(const kernel_tables *t, const char *path) {
  const int64_t shape[] = {t->heads, t->distances};
  const size_t bytes = (size_t)t->layers * (sizeof(hark_named_tensor) + sizeof(hark_tensor) + NAME_BYTES);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(t->context, bytes, &memory));
  hark_named_tensor *const named = memory;
  hark_tensor *const tensors = (hark_tensor *)(named + t->layers);
  char *const names = (char *)(tensors + t->layers);
  hark_status status = HARK_OK;
  for (int64_t layer = 0; layer < t->layers && status == HARK_OK; layer++) {
    char *const name = names + layer * NAME_BYTES;
    (void)snprintf(name, NAME_BYTES, "layers.%" PRId64 ".log_kernel", layer);
    status = hark_tensor_describe(t->context, HARK_F32, 2, shape, &tensors[layer]);
    tensors[layer].data = table_of(t, layer);
    named[layer] = (hark_named_tensor){.name = name, .tensor = &tensors[layer]};
  }
  if (status == HARK_OK) status = hark_safetensors_write(t->context, path, named, t->layers, NULL, 0, NULL);
  hark_release(t->context, memory, bytes);
  return status;
}

hark_kernels_format hark_kernels_format_of(const char *path) {
  static const char *const endings[] = {".py", ".csv", ".safetensors"};
  const size_t length = strlen(path);
  int format = 0;
  for (; format < HARK_KERNELS_UNKNOWN; format++) {
    const size_t end = strlen(endings[format]);
    if (length > end && strcmp(path + length - end, endings[format]) == 0) break;
  }
  return (hark_kernels_format)format;
}

static hark_status write_tables(const kernel_tables *t, const char *path) {
  hark_text text = hark_text_empty(t->context);
  if (hark_kernels_format_of(path) == HARK_KERNELS_SAFETENSORS) return write_safetensors(t, path);
  if (hark_kernels_format_of(path) == HARK_KERNELS_PYTHON)
    append_python(t, &text);
  else
    append_csv(t, &text);
  hark_status status = text.status;
  if (status == HARK_OK) status = hark_file_write(t->context, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static hark_status export_model(hark_invocation *call, const hark_model *model, const char *path) {
  const hark_kernels_values *const values = call->values[0];
  const hark_network *const network = model->network;
  const hark_network_config *const config = &network->config;
  kernel_tables t = {.context = call->context,
                     .layers = config->layers,
                     .heads = config->heads,
                     .distances = values->distances > 0 ? values->distances : config->context,
                     .expression = config->positional};
  if (!hark_kernels_given(network))
    return hark_fail(call->context, HARK_UNSUPPORTED, "%s: this model has no positional kernels of the distance of tokens", path);
  HARK_TRY(hark_kernels_check_direction(call->context, path, network, "hark kernels export"));
  hark_status status = fill(&t, network);
  if (status == HARK_OK) status = write_tables(&t, values->output);
  hark_release(call->context, t.numbers, t.numbers != NULL ? t.bytes : 0);
  if (status != HARK_OK) return status;
  hark_text text = hark_text_empty(call->context);
  hark_text_append_shown(&text, values->output);
  hark_text_append(&text, ": log G of %" PRId64 " layers of %" PRId64 " heads at %" PRId64 " distances\n", t.layers, t.heads, t.distances);
  return hark_command_print_about(call, values->output, &text);
}

hark_status hark_kernels_export(hark_invocation *call) {
  const hark_kernels_values *const values = call->values[0];
  const char *const path = hark_options_argument(call->options, 1);
  const hark_model_options how = {.struct_size = sizeof how, .checkpoint = values->checkpoint[0] != '\0' ? values->checkpoint : NULL};
  hark_model *model = NULL;
  HARK_TRY(hark_model_load(call->context, path, &how, &model));
  const hark_status status = export_model(call, model, path);
  hark_model_destroy(call->context, &model);
  return status;
}

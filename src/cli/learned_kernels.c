/* learned_kernels.c - see learned_kernels.h. */
#include "cli/learned_kernels.h"

#include <inttypes.h>
#include <string.h>

#include "io/json.h"
#include "nn/positional.h"

static bool is_kernel(const char *name) {
  const size_t length = strlen(name), end = sizeof HARK_POSITIONAL_TENSOR - 1;
  return length >= end && strcmp(name + length - end, HARK_POSITIONAL_TENSOR) == 0 && (length == end || name[length - end - 1] == '.');
}

/* parameters[shape[0] * shape[1]] <- the numbers of a tensor, which must be rows of `count`. The caller releases them, also after a failure. */
static hark_status read_parameters(hark_context *context, const char *path, const hark_safetensors *file, const hark_stored_tensor *stored,
                                   int64_t count, double **parameters, size_t *bytes) {
  void *memory = NULL;
  *parameters = NULL;
  if (stored->rank != 2 || stored->shape[1] != count || (stored->type != HARK_F32 && stored->type != HARK_F64))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s is not what its expression asks for: F32 or F64, rows of %" PRId64 " numbers",
                     path, stored->name, count);
  const int64_t numbers = stored->shape[0] * count;
  HARK_TRY(hark_size_multiply(context, (size_t)numbers, sizeof(double), bytes));
  HARK_TRY(hark_allocate(context, *bytes, &memory));
  *parameters = memory;
  HARK_TRY(hark_safetensors_read(context, file, stored, memory));
  for (int64_t i = numbers - 1; i >= 0 && stored->type == HARK_F32; i--) { /* from the end: a double takes the place of two floats */
    float number;
    memcpy(&number, (const char *)memory + (size_t)i * sizeof number, sizeof number);
    (*parameters)[i] = number;
  }
  return HARK_OK;
}

void hark_append_expression(const hark_positional *expression, const double *parameters, bool json, hark_text *text) {
  hark_text form = hark_text_empty(text->context);
  const size_t length = hark_positional_print(expression, parameters, NULL, 0);
  hark_text_resize(&form, length);
  if (form.status == HARK_OK) (void)hark_positional_print(expression, parameters, form.data, length + 1);
  if (form.status != HARK_OK) text->status = form.status;
  if (json)
    hark_json_append_string(text, hark_text_get(&form));
  else
    hark_text_append(text, "%s", hark_text_get(&form));
  hark_text_free(&form);
}

/* One line or object for every row of a tensor. */
static void append_rows(const hark_stored_tensor *stored, const hark_positional *expression, const double *parameters, bool json,
                        bool *first, hark_text *text) {
  const int64_t count = hark_positional_parameter_count(expression);
  for (int64_t row = 0; row < stored->shape[0]; row++) {
    hark_text_append(text, json ? "%s{\"tensor\": " : "%s  positional ", json && !*first ? ", " : "");
    hark_json_append_string(text, stored->name);
    hark_text_append(text, json ? ", \"row\": %" PRId64 ", \"expression\": " : " row %" PRId64 ": ", row);
    hark_append_expression(expression, parameters + row * count, json, text);
    hark_text_append(text, json ? "}" : "\n");
    *first = false;
  }
}

static hark_status append_all(hark_context *context, const char *path, const hark_safetensors *file, const hark_positional *expression,
                              bool json, hark_text *text) {
  const char *scope = hark_safetensors_metadata(file, HARK_POSITIONAL_SCOPE_KEY);
  const int64_t count = hark_positional_parameter_count(expression);
  int64_t total = 0;
  bool first = true;
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (is_kernel(stored->name) && stored->rank == 2) total += stored->shape[0] * stored->shape[1];
  }
  hark_text_append(text, json ? ", \"positional\": {\"expression\": " : "  positional kernel ");
  hark_append_expression(expression, NULL, json, text);
  hark_text_append(text, json ? ", \"scope\": " : ", scope ");
  hark_json_append_string(text, scope != NULL ? scope : "");
  hark_text_append(text, json ? ", \"parameters\": %" PRId64 ", \"kernels\": [" : ": %" PRId64 " parameters\n", total);
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    double *parameters;
    size_t bytes = 0;
    if (!is_kernel(stored->name)) continue;
    const hark_status status = read_parameters(context, path, file, stored, count, &parameters, &bytes);
    if (status == HARK_OK) append_rows(stored, expression, parameters, json, &first, text);
    hark_release(context, parameters, bytes);
    HARK_TRY(status);
  }
  hark_text_append(text, json ? "]}" : "");
  return HARK_OK;
}

hark_status hark_append_learned_kernels(hark_context *context, const char *path, const hark_safetensors *file, bool json, hark_text *text) {
  const char *expression_text = hark_safetensors_metadata(file, HARK_POSITIONAL_KEY);
  hark_positional *expression = NULL;
  if (expression_text == NULL) return HARK_OK;
  if (hark_positional_create(context, expression_text, &expression) != HARK_OK) {
    hark_fail_prefix(context, "%s: metadata " HARK_POSITIONAL_KEY ": ", path);
    return HARK_BAD_FILE;
  }
  const hark_status status = append_all(context, path, file, expression, json, text);
  hark_positional_destroy(context, &expression);
  return status;
}

/* learned_kernels.c - see learned_kernels.h. */
#include "cli/plot/learned_kernels.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "json/json.h"
#include "nn/positional_layer.h"
#include "nn/rotary.h"
#include "nn/self_attention.h"

/* The name is "ENDING" or "... .ENDING". */
static bool ends_with(const char *name, const char *ending) {
  const size_t length = strlen(name), end = strlen(ending);
  return length >= end && strcmp(name + length - end, ending) == 0 && (length == end || name[length - end - 1] == '.');
}

static bool is_kernel(const char *name) { return ends_with(name, HARK_POSITIONAL_TENSOR); }

/* A kernel's tensor has as many columns as its expression has parameters; a tensor of rates has one or more. */
static hark_status check_tensor(hark_context *context, const char *path, const hark_stored_tensor *stored,
                                const hark_positional *expression) {
  if (stored->rank != 2 || (stored->type != HARK_F32 && stored->type != HARK_F64) || (expression == NULL && stored->shape[1] < 1))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s has no rows of F32 or F64", path, stored->name);
  if (expression != NULL && stored->shape[1] != hark_positional_parameter_count(expression))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s does not fit its expression, which needs rows of %" PRId64 " numbers", path,
                     stored->name, hark_positional_parameter_count(expression));
  return HARK_OK;
}

/* parameters[numbers] <- the numbers of a tensor. The caller releases them, also after a failure. */
static hark_status read_parameters(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *stored, int64_t numbers,
                                   double **parameters, size_t *bytes) {
  void *memory = NULL;
  *parameters = NULL;
  HARK_TRY(hark_size_multiply(context, (size_t)numbers, sizeof(double), bytes));
  HARK_TRY(hark_allocate(context, *bytes, &memory));
  *parameters = memory;
  HARK_TRY(hark_safetensors_read(context, file, stored, memory));
  for (int64_t i = numbers - 1; i >= 0 && stored->type == HARK_F32; i--) { /* from the end: a double overwrites two floats */
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

static hark_status open_expression(hark_context *context, const char *path, const hark_safetensors *file, hark_positional **out) {
  const char *text = hark_safetensors_metadata(file, HARK_POSITIONAL_KEY);
  *out = NULL;
  if (text == NULL || hark_positional_create(context, text, out) == HARK_OK) return HARK_OK;
  hark_fail_prefix(context, "%s: metadata " HARK_POSITIONAL_KEY ": ", path);
  return HARK_BAD_FILE;
}

static hark_status visit_tensor(hark_context *context, const char *path, const hark_safetensors *file, const hark_stored_tensor *stored,
                                const hark_positional *expression, hark_kernel_visitor *visit, void *user) {
  double *parameters;
  size_t bytes = 0;
  HARK_TRY(check_tensor(context, path, stored, expression));
  hark_status status = read_parameters(context, file, stored, stored->shape[0] * stored->shape[1], &parameters, &bytes);
  hark_learned_kernel kernel = {
      .tensor = stored->name, .rows = stored->shape[0], .count = stored->shape[1], .expression = expression, .parameters = parameters};
  for (; status == HARK_OK && kernel.row < kernel.rows; kernel.row++, kernel.parameters += kernel.count) status = visit(user, &kernel);
  hark_release(context, parameters, bytes);
  return status;
}

static hark_status visit_all(hark_context *context, const char *path, const hark_safetensors *file, const hark_positional *expression,
                             hark_kernel_visitor *visit, void *user) {
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (is_kernel(stored->name)) HARK_TRY(visit_tensor(context, path, file, stored, expression, visit, user));
  }
  return HARK_OK;
}

hark_status hark_learned_kernels_visit(hark_context *context, const char *path, const hark_safetensors *file, hark_kernel_visitor *visit,
                                       void *user) {
  hark_positional *expression;
  HARK_TRY(open_expression(context, path, file, &expression));
  if (expression == NULL) return HARK_OK;
  const hark_status status = visit_all(context, path, file, expression, visit, user);
  hark_positional_destroy(context, &expression);
  return status;
}

hark_status hark_learned_rates_visit(hark_context *context, const char *path, const hark_safetensors *file, hark_kernel_visitor *visit,
                                     void *user) {
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (ends_with(stored->name, HARK_ROTARY_TENSOR)) HARK_TRY(visit_tensor(context, path, file, stored, NULL, visit, user));
  }
  return HARK_OK;
}

/* ---- as text ---- */

typedef struct printer {
  bool json, begun;
  hark_text *text;
} printer;

/* One line or object. */
static hark_status print_kernel(void *user, const hark_learned_kernel *kernel) {
  printer *p = user;
  hark_text_append(p->text, p->json ? "%s{\"tensor\": " : "%s  positional ", p->json && p->begun ? ", " : "");
  hark_json_append_string(p->text, kernel->tensor);
  hark_text_append(p->text, p->json ? ", \"row\": %" PRId64 ", \"expression\": " : " row %" PRId64 ": ", kernel->row);
  hark_append_expression(kernel->expression, kernel->parameters, p->json, p->text);
  hark_text_append(p->text, p->json ? "}" : "\n");
  p->begun = true;
  return HARK_OK;
}

static hark_status append_all(hark_context *context, const char *path, const hark_safetensors *file, const hark_positional *expression,
                              bool json, hark_text *text) {
  const char *scope = hark_safetensors_metadata(file, HARK_POSITIONAL_SCOPE_KEY);
  int64_t total = 0;
  printer p = {.json = json, .text = text};
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (is_kernel(stored->name) && stored->rank == 2) total += stored->shape[0] * stored->shape[1];
  }
  hark_text_append(text, json ? ", \"positional\": {\"expression\": " : "  positional kernel ");
  hark_append_expression(expression, NULL, json, text);
  hark_text_append(text, json ? ", \"scope\": " : ", scope ");
  hark_json_append_string(text, scope != NULL ? scope : "");
  hark_text_append(text, json ? ", \"parameters\": %" PRId64 ", \"kernels\": [" : ": %" PRId64 " parameters\n", total);
  HARK_TRY(visit_all(context, path, file, expression, print_kernel, &p));
  hark_text_append(text, json ? "]}" : "");
  return HARK_OK;
}

/* e^x of every vector of ridges or sigmas, as "  ridge  blocks.0.attention.log_ridge: 0.5 0.25". */
static hark_status append_vectors(hark_context *context, const char *path, const hark_safetensors *file, const char *ending,
                                  const char *what, bool json, hark_text *text) {
  bool begun = false;
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (!ends_with(stored->name, ending)) continue;
    if (stored->rank != 1 || (stored->type != HARK_F32 && stored->type != HARK_F64))
      return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s is not a vector of F32 or F64", path, stored->name);
    double *numbers;
    size_t bytes = 0;
    hark_text_append(text, json ? "%s" : "  %s ", json ? (begun ? ", {" : ", \"") : what);
    if (json && !begun) hark_text_append(text, "%s\": [{", what);
    if (json) hark_text_append(text, "\"tensor\": ");
    hark_json_append_string(text, stored->name);
    hark_text_append(text, json ? ", \"values\": [" : ":");
    const hark_status status = read_parameters(context, file, stored, stored->shape[0], &numbers, &bytes);
    for (int64_t k = 0; status == HARK_OK && k < stored->shape[0]; k++)
      hark_text_append(text, json ? "%s%.6g" : "%s%.4g", json ? (k > 0 ? ", " : "") : " ", exp(numbers[k]));
    hark_release(context, numbers, bytes);
    HARK_TRY(status);
    hark_text_append(text, json ? "]}" : "\n");
    begun = true;
  }
  if (json && begun) hark_text_append(text, "]");
  return HARK_OK;
}

hark_status hark_append_learned_kernels(hark_context *context, const char *path, const hark_safetensors *file, bool json, hark_text *text) {
  hark_positional *expression;
  HARK_TRY(open_expression(context, path, file, &expression));
  const hark_status status = expression != NULL ? append_all(context, path, file, expression, json, text) : HARK_OK;
  hark_positional_destroy(context, &expression);
  HARK_TRY(status);
  HARK_TRY(append_vectors(context, path, file, HARK_RIDGE_TENSOR, "ridge", json, text));
  return append_vectors(context, path, file, HARK_SIGMA_TENSOR, "sigma", json, text);
}

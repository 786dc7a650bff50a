/* learned_kernels.c - see learned_kernels.h. */
#include "cli/plot/learned_kernels.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
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

/* The layer of "blocks.LAYER....", 0 for a tensor of the model. */
static int64_t layer_of(const char *name) {
  static const char begin[] = "blocks.";
  return strncmp(name, begin, strlen(begin)) == 0 ? hark_max(0, strtoll(name + strlen(begin), NULL, 10)) : 0;
}

/* The expression of a row of a tensor, and the most parameters of its rows. */
static const hark_positional *expression_at(const hark_positional_list *list, const hark_stored_tensor *stored, int64_t row) {
  return hark_positional_list_at(list, layer_of(stored->name), stored->shape[0], row);
}

static int64_t columns_of(const hark_positional_list *list, const hark_stored_tensor *stored) {
  int64_t columns = 0;
  for (int64_t row = 0; row < hark_min(stored->shape[0], list->count); row++)
    columns = hark_max(columns, hark_positional_parameter_count(expression_at(list, stored, row)));
  return columns;
}

/* A kernel's tensor has as many columns as one of its expressions; a tensor of rates has one or more. */
static hark_status check_tensor(hark_context *context, const char *path, const hark_stored_tensor *stored,
                                const hark_positional_list *list) {
  if (stored->rank != 2 || (stored->type != HARK_F32 && stored->type != HARK_F64) || (list == NULL && stored->shape[1] < 1))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s has no rows of F32 or F64", path, stored->name);
  if (list != NULL && stored->shape[1] != columns_of(list, stored))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor %s does not fit its expression, which needs rows of %" PRId64 " numbers", path,
                     stored->name, columns_of(list, stored));
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

/* As it is, or with `json` as a string. */
static void append_form(hark_text *form, bool json, hark_text *text) {
  if (form->status != HARK_OK) text->status = form->status;
  if (json)
    hark_json_append_string(text, hark_text_get(form));
  else
    hark_text_append(text, "%s", hark_text_get(form));
  hark_text_free(form);
}

void hark_append_expression(const hark_positional *expression, const double *parameters, bool json, hark_text *text) {
  hark_text form = hark_text_empty(text->context);
  const size_t length = hark_positional_print(expression, parameters, NULL, 0);
  hark_text_resize(&form, length);
  if (form.status == HARK_OK) (void)hark_positional_print(expression, parameters, form.data, length + 1);
  append_form(&form, json, text);
}

static void append_list(const hark_positional_list *list, bool json, hark_text *text) {
  hark_text form = hark_text_empty(text->context);
  const size_t length = hark_positional_list_print(list, NULL, 0);
  hark_text_resize(&form, length);
  if (form.status == HARK_OK) (void)hark_positional_list_print(list, form.data, length + 1);
  append_form(&form, json, text);
}

static hark_status open_list(hark_context *context, const char *path, const hark_safetensors *file, hark_positional_list *out) {
  if (hark_positional_list_open(context, hark_safetensors_metadata(file, HARK_POSITIONAL_KEY), out) == HARK_OK) return HARK_OK;
  hark_positional_list_close(context, out);
  hark_fail_prefix(context, "%s: metadata " HARK_POSITIONAL_KEY ": ", path);
  return HARK_BAD_FILE;
}

static hark_status visit_tensor(hark_context *context, const char *path, const hark_safetensors *file, const hark_stored_tensor *stored,
                                const hark_positional_list *list, hark_kernel_visitor *visit, void *user) {
  double *parameters;
  size_t bytes = 0;
  HARK_TRY(check_tensor(context, path, stored, list));
  hark_status status = read_parameters(context, file, stored, stored->shape[0] * stored->shape[1], &parameters, &bytes);
  hark_learned_kernel kernel = {.tensor = stored->name, .rows = stored->shape[0], .count = stored->shape[1]};
  for (; status == HARK_OK && kernel.row < kernel.rows; kernel.row++) {
    kernel.parameters = parameters + kernel.row * stored->shape[1];
    if (list != NULL) kernel.expression = expression_at(list, stored, kernel.row);
    if (list != NULL) kernel.count = hark_positional_parameter_count(kernel.expression);
    status = visit(user, &kernel);
  }
  hark_release(context, parameters, bytes);
  return status;
}

static hark_status visit_all(hark_context *context, const char *path, const hark_safetensors *file, const hark_positional_list *list,
                             hark_kernel_visitor *visit, void *user) {
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *stored = hark_safetensors_tensor(file, i);
    if (is_kernel(stored->name)) HARK_TRY(visit_tensor(context, path, file, stored, list, visit, user));
  }
  return HARK_OK;
}

hark_status hark_learned_kernels_visit(hark_context *context, const char *path, const hark_safetensors *file, hark_kernel_visitor *visit,
                                       void *user) {
  hark_positional_list list;
  HARK_TRY(open_list(context, path, file, &list));
  const hark_status status = list.count > 0 ? visit_all(context, path, file, &list, visit, user) : HARK_OK;
  hark_positional_list_close(context, &list);
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

static hark_status count_numbers(void *user, const hark_learned_kernel *kernel) {
  *(int64_t *)user += kernel->count;
  return HARK_OK;
}

static hark_status append_all(hark_context *context, const char *path, const hark_safetensors *file, const hark_positional_list *list,
                              bool json, hark_text *text) {
  const char *scope = hark_safetensors_metadata(file, HARK_POSITIONAL_SCOPE_KEY);
  int64_t total = 0;
  printer p = {.json = json, .text = text};
  HARK_TRY(visit_all(context, path, file, list, count_numbers, &total));
  hark_text_append(text, json ? ", \"positional\": {\"expression\": " : "  positional kernel ");
  append_list(list, json, text);
  hark_text_append(text, json ? ", \"scope\": " : ", scope ");
  hark_json_append_string(text, scope != NULL ? scope : "");
  hark_text_append(text, json ? ", \"parameters\": %" PRId64 ", \"kernels\": [" : ": %" PRId64 " parameters\n", total);
  HARK_TRY(visit_all(context, path, file, list, print_kernel, &p));
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
  hark_positional_list list;
  HARK_TRY(open_list(context, path, file, &list));
  const hark_status status = list.count > 0 ? append_all(context, path, file, &list, json, text) : HARK_OK;
  hark_positional_list_close(context, &list);
  HARK_TRY(status);
  HARK_TRY(append_vectors(context, path, file, HARK_RIDGE_TENSOR, "ridge", json, text));
  return append_vectors(context, path, file, HARK_SIGMA_TENSOR, "sigma", json, text);
}

/* matrices.c - see matrices.h. Matrices are read and converted one at a time, through host memory for their numbers in f32. */
#include "models/matrices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/compact.h"

#define SCALE_SUFFIX ".scale"

static void scale_name(const hark_parameter *parameter, char out[HARK_PARAMETER_NAME_BYTES + 8]) {
  (void)snprintf(out, HARK_PARAMETER_NAME_BYTES + 8, "%s" SCALE_SUFFIX, parameter->name);
}

static bool is_stored_i8(const hark_safetensors *file, const hark_parameter *parameter) {
  const hark_stored_tensor *stored = hark_safetensors_find(file, parameter->name);
  return stored != NULL && stored->type == HARK_I8 && parameter->spec.compact;
}

/* A tensor of a type with the shape of the parameter, or of its scales. */
static hark_tensor expected(const hark_parameter *parameter, hark_type type, bool scales) {
  hark_tensor tensor = {.type = type, .rank = scales ? 1 : parameter->spec.rank};
  memcpy(tensor.shape, parameter->spec.shape, sizeof tensor.shape);
  return tensor;
}

/* ---- reading ---- */

hark_status hark_matrix_check(hark_context *context, const char *name, const hark_safetensors *file, const hark_parameters *parameters,
                              const hark_parameter *parameter, int64_t *tensors) {
  const bool integers = is_stored_i8(file, parameter);
  char scale[HARK_PARAMETER_NAME_BYTES + 8];
  if (integers && parameters->gradients.type != HARK_NONE)
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" is I8, a file of hark export --type int8: training needs F32, BF16 or F16",
                     name, parameter->name);
  const hark_type type = integers ? HARK_I8 : hark_type_is_compact(parameter->weight.type) ? HARK_F32 : parameter->weight.type;
  const hark_tensor matrix = expected(parameter, type, false), scales = expected(parameter, HARK_F32, true);
  HARK_TRY(hark_safetensors_expect(context, file, parameter->name, &matrix));
  *tensors += integers ? 2 : 1;
  if (!integers) return HARK_OK;
  scale_name(parameter, scale);
  return hark_safetensors_expect(context, file, scale, &scales);
}

hark_status hark_matrices_hold_stored(hark_context *context, const char *name, const hark_safetensors *file, hark_parameters *parameters) {
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *const parameter = &parameters->list[i];
    const hark_stored_tensor *const stored = hark_safetensors_find(file, parameter->name);
    if (stored == NULL || !hark_type_is_compact(stored->type)) continue;
    if (!parameter->spec.compact && parameter->spec.decays) parameter->rounded = stored->type; /* a half, and exact */
    if (!parameter->spec.compact) continue;
    const hark_status status = hark_parameter_hold(context, parameter, stored->type);
    if (status != HARK_OK) {
      hark_fail_prefix(context, "%s: ", name);
      return status;
    }
  }
  return HARK_OK;
}

/* Reads a matrix's numbers in f32; `stored` has room for its bytes and, from `scales` on, for the scales of i8. */
static hark_status read_numbers(hark_context *context, const hark_safetensors *file, const hark_parameter *parameter, void *stored,
                                float *scales, float *numbers) {
  const hark_stored_tensor *const tensor = hark_safetensors_find(file, parameter->name);
  const int64_t rows = parameter->spec.shape[0], columns = rows > 0 ? parameter->count / rows : 0;
  char name[HARK_PARAMETER_NAME_BYTES + 8];
  if (tensor->type == HARK_F32) return hark_safetensors_read(context, file, tensor, numbers);
  HARK_TRY(hark_safetensors_read(context, file, tensor, stored));
  if (tensor->type != HARK_I8) {
    hark_half_to_f32(tensor->type, stored, parameter->count, numbers);
    return HARK_OK;
  }
  scale_name(parameter, name);
  HARK_TRY(hark_safetensors_read(context, file, hark_safetensors_find(file, name), scales));
  for (int64_t n = 0; n < rows; n++)
    hark_compact_widen(HARK_I8, (const int8_t *)stored + n * columns, columns, scales[n], numbers + n * columns);
  return HARK_OK;
}

/* Through f32 on the host. */
static hark_status read_rounded(hark_context *context, const char *name, const hark_safetensors *file, hark_parameter *parameter) {
  const size_t numbers = hark_align_up((size_t)parameter->count * sizeof(float)),
               scales = hark_align_up((size_t)parameter->spec.shape[0] * sizeof(float)),
               stored = (size_t)hark_safetensors_find(file, parameter->name)->bytes;
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, numbers + scales + stored, &memory));
  char *const at = memory;
  hark_status status = read_numbers(context, file, parameter, at + numbers + scales, (float *)(void *)(at + numbers), (float *)memory);
  if (status == HARK_OK) status = hark_parameter_store(context, name, parameter, memory);
  hark_release(context, memory, numbers + scales + stored);
  return status;
}

hark_status hark_matrix_read(hark_context *context, const char *name, const hark_safetensors *file, hark_parameter *parameter) {
  char scale[HARK_PARAMETER_NAME_BYTES + 8];
  const bool same = hark_safetensors_find(file, parameter->name)->type == parameter->weight.type;
  const bool integers = is_stored_i8(file, parameter), compact = hark_type_is_compact(parameter->weight.type);
  if (integers && same) {
    scale_name(parameter, scale);
    HARK_TRY(hark_safetensors_load_into(context, file, scale, &parameter->scale));
  }
  if ((same && compact) || (!integers && !hark_parameter_is_rounded(parameter)))
    return hark_safetensors_load_into(context, file, parameter->name, &parameter->weight);
  return read_rounded(context, name, file, parameter);
}

hark_type hark_matrices_type(const hark_parameters *parameters) {
  for (int32_t i = 0; i < parameters->count; i++)
    if (hark_type_is_compact(parameters->list[i].weight.type)) return parameters->list[i].weight.type;
  return HARK_F32;
}

/* ---- writing ---- */

/* The type of a parameter in a file whose matrices have type `matrices`. */
static hark_type type_in_file(const hark_parameter *parameter, hark_type matrices) {
  const hark_type held = parameter->weight.type;
  if (matrices == HARK_NONE) return parameter->rounded != HARK_NONE ? parameter->rounded : held;
  if (parameter->spec.compact) return matrices;
  return parameter->spec.decays && hark_type_is_half(matrices) ? matrices : held;
}

static hark_status add_parameter(hark_context *context, const char *path, const hark_parameter *parameter, hark_type matrices,
                                 hark_matrices_to_write *write) {
  const hark_type stored = type_in_file(parameter, matrices), held = parameter->weight.type;
  const bool rounded_by_writer = held == HARK_F32 && hark_type_is_half(stored);
  hark_parameter *const converted = &write->converted[write->parameters];
  char *const name = write->scale_names[write->parameters];
  const hark_parameter *use = parameter;
  write->parameters++; /* before a failure, so that it is closed */
  if (stored != held && !rounded_by_writer) {
    HARK_TRY(hark_parameter_convert(context, path, parameter, stored, converted));
    use = converted;
  }
  write->tensors[write->count++] =
      (hark_named_tensor){.name = parameter->name, .tensor = &use->weight, .stored = rounded_by_writer ? stored : HARK_NONE};
  if (use->scale.type == HARK_NONE) return HARK_OK;
  scale_name(parameter, name);
  write->tensors[write->count++] = (hark_named_tensor){.name = name, .tensor = &use->scale, .stored = HARK_NONE};
  return HARK_OK;
}

/* The three lists, one after the other. */
static size_t list_bytes(const hark_parameters *parameters) {
  const hark_matrices_to_write *write = NULL;
  return (size_t)parameters->count * (2 * sizeof *write->tensors + sizeof *write->converted + sizeof *write->scale_names);
}

hark_status hark_matrices_to_write_open(hark_context *context, const char *path, const hark_parameters *parameters, hark_type matrices,
                                        hark_matrices_to_write *out) {
  void *memory = NULL;
  bool any = matrices != HARK_I8;
  *out = (hark_matrices_to_write){0};
  for (int32_t i = 0; i < parameters->count; i++) any = any || parameters->list[i].spec.compact;
  if (!any) return hark_fail(context, HARK_UNSUPPORTED, "%s: no matrix of this model can be int8: expected f32, bf16 or f16", path);
  HARK_TRY(hark_allocate_zero(context, list_bytes(parameters), &memory));
  out->converted = memory;
  out->tensors = (hark_named_tensor *)(void *)(out->converted + parameters->count);
  out->scale_names = (void *)(out->tensors + 2 * (size_t)parameters->count);
  out->bytes = list_bytes(parameters);
  for (int32_t i = 0; i < parameters->count; i++) {
    const hark_status status = add_parameter(context, path, &parameters->list[i], matrices, out);
    if (status != HARK_OK) {
      hark_matrices_to_write_close(context, out);
      return status;
    }
  }
  return HARK_OK;
}

void hark_matrices_to_write_close(hark_context *context, hark_matrices_to_write *write) {
  for (int32_t i = 0; i < write->parameters; i++) {
    hark_tensor_destroy(context, &write->converted[i].weight);
    hark_tensor_destroy(context, &write->converted[i].scale);
  }
  hark_release(context, write->converted, write->bytes);
  *write = (hark_matrices_to_write){0};
}

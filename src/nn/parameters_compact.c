/* parameters_compact.c - weights of bf16, f16 and i8: their buffer, rounding to them, and conversions between types.
 *
 * i8: a scale in f32 for each row, after the row's matrix (core/compact.h). Everything is rounded on the host, once, when weights are read.
 */
#include "nn/parameters_compact.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "io/narrow.h"

/* ---- what is held how ---- */

hark_status hark_parameter_hold(hark_context *context, hark_parameter *parameter, hark_type type) {
  const int64_t *shape = parameter->spec.shape;
  parameter->scale = (hark_tensor){0};
  if (type == HARK_I8 && shape[1] > HARK_I8_MOST_TERMS)
    return hark_fail(context, HARK_UNSUPPORTED, "\"%s\" has %" PRId64 " columns, a matrix of int8 allows at most %d", parameter->name,
                     shape[1], (int)HARK_I8_MOST_TERMS);
  if (type == HARK_I8) HARK_TRY(hark_tensor_describe(context, HARK_F32, 1, shape, &parameter->scale));
  return hark_tensor_describe(context, type, parameter->spec.rank, shape, &parameter->weight);
}

hark_status hark_parameters_hold(hark_context *context, hark_parameters *parameters, hark_type type) {
  bool any = false;
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *const parameter = &parameters->list[i];
    if (parameter->spec.compact) HARK_TRY(hark_parameter_hold(context, parameter, type));
    if (!parameter->spec.compact && parameter->spec.decays && hark_type_is_half(type)) parameter->rounded = type;
    any = any || parameter->spec.compact;
  }
  if (any || type != HARK_I8) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, "no matrix of this model can be int8: expected f32, bf16 or f16");
}

bool hark_parameter_is_rounded(const hark_parameter *parameter) {
  return hark_type_is_compact(parameter->weight.type) || parameter->rounded != HARK_NONE;
}

/* ---- memory ---- */

/* Places a tensor at *end of the buffer and moves *end after it. */
static hark_status place(hark_context *context, const hark_tensor *tensor, size_t *end) {
  const size_t bytes = (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type);
  HARK_TRY(hark_size_add(context, *end, bytes, end));
  return hark_size_add(context, *end, hark_align_up(*end) - *end, end);
}

static size_t scale_at(const hark_parameter *parameter) {
  return (size_t)parameter->first + hark_align_up((size_t)parameter->count * hark_type_bytes(parameter->weight.type));
}

hark_status hark_parameters_lay_out_compact(hark_context *context, hark_parameters *parameters, bool training) {
  size_t end = 0;
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *const parameter = &parameters->list[i];
    if (!hark_type_is_compact(parameter->weight.type)) continue;
    if (training)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "\"%s\" is %s, expected f32: weights of one or two bytes cannot be trained",
                       parameter->name, hark_type_name(parameter->weight.type));
    parameter->first = (int64_t)end;
    HARK_TRY(place(context, &parameter->weight, &end));
    if (parameter->scale.type != HARK_NONE) HARK_TRY(place(context, &parameter->scale, &end));
  }
  const int64_t bytes = (int64_t)end;
  return bytes > 0 ? hark_tensor_describe(context, HARK_U8, 1, &bytes, &parameters->compact) : HARK_OK;
}

hark_status hark_parameters_allocate_compact(hark_context *context, hark_parameters *parameters) {
  if (parameters->compact.type == HARK_NONE) return HARK_OK;
  const int64_t bytes = hark_tensor_count(&parameters->compact);
  HARK_TRY(hark_tensor_create(context, HARK_U8, 1, &bytes, &parameters->compact));
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *const parameter = &parameters->list[i];
    if (!hark_type_is_compact(parameter->weight.type)) continue;
    parameter->weight.data = (char *)parameters->compact.data + (size_t)parameter->first;
    if (parameter->scale.type != HARK_NONE) parameter->scale.data = (char *)parameters->compact.data + scale_at(parameter);
  }
  return HARK_OK;
}

/* ---- numbers ---- */

static hark_status narrow_and_write(hark_context *context, const hark_narrowing *to, hark_parameter *parameter, const float *numbers,
                                    void *host) {
  const int64_t rows = parameter->spec.shape[0], columns = rows > 0 ? parameter->count / rows : 0;
  const size_t bytes = (size_t)parameter->count * hark_type_bytes(to->type);
  float *const scales = (float *)(void *)((char *)host + hark_align_up(bytes));
  HARK_TRY(hark_narrow(context, to, rows, columns, numbers, host, scales));
  if (parameter->weight.type != to->type) { /* widened again */
    hark_half_to_f32(to->type, host, parameter->count, scales);
    return hark_tensor_write(context, &parameter->weight, scales);
  }
  HARK_TRY(hark_tensor_write(context, &parameter->weight, host));
  return parameter->scale.type != HARK_NONE ? hark_tensor_write(context, &parameter->scale, scales) : HARK_OK;
}

hark_status hark_parameter_store(hark_context *context, const char *place_name, hark_parameter *parameter, const float *numbers) {
  if (!hark_parameter_is_rounded(parameter)) return hark_tensor_write(context, &parameter->weight, numbers);
  const bool widened = parameter->rounded != HARK_NONE;
  const hark_narrowing to = {.path = place_name, .name = parameter->name, .type = widened ? parameter->rounded : parameter->weight.type};
  const size_t first = hark_align_up((size_t)parameter->count * hark_type_bytes(to.type)),
               second = (size_t)(widened ? parameter->count : parameter->spec.shape[0]) * sizeof(float);
  void *host = NULL;
  HARK_TRY(hark_allocate(context, first + second, &host));
  const hark_status status = narrow_and_write(context, &to, parameter, numbers, host);
  hark_release(context, host, first + second);
  return status;
}

/* The numbers of a parameter in f32. */
static hark_status take_numbers(hark_context *context, const hark_parameter *from, float *numbers) {
  const int64_t rows = from->spec.shape[0], columns = rows > 0 ? from->count / rows : 0;
  if (from->weight.type == HARK_F32) return hark_tensor_read(context, &from->weight, numbers);
  const size_t first = hark_align_up((size_t)from->count * hark_type_bytes(from->weight.type)), second = (size_t)rows * sizeof(float);
  void *host = NULL;
  HARK_TRY(hark_allocate(context, first + second, &host));
  float *const scales = (float *)(void *)((char *)host + first);
  hark_status status = hark_tensor_read(context, &from->weight, host);
  if (status == HARK_OK && from->scale.type != HARK_NONE) status = hark_tensor_read(context, &from->scale, scales);
  const size_t row_bytes = (size_t)columns * hark_type_bytes(from->weight.type);
  for (int64_t n = 0; n < rows && status == HARK_OK; n++)
    hark_compact_widen(from->weight.type, (const char *)host + (size_t)n * row_bytes, columns,
                       from->scale.type != HARK_NONE ? scales[n] : 1, numbers + n * columns);
  hark_release(context, host, first + second);
  return status;
}

hark_status hark_parameter_convert(hark_context *context, const char *place_name, const hark_parameter *from, hark_type type,
                                   hark_parameter *out) {
  const size_t bytes = (size_t)from->count * sizeof(float);
  void *numbers = NULL;
  *out = *from;
  out->weight = out->scale = out->gradient = (hark_tensor){0};
  out->rounded = HARK_NONE;
  HARK_TRY(hark_parameter_hold(context, out, type));
  hark_tensor weight = out->weight, scale = out->scale;
  out->weight = out->scale = (hark_tensor){0};
  HARK_TRY(hark_tensor_create(context, weight.type, weight.rank, weight.shape, &out->weight));
  if (scale.type != HARK_NONE) HARK_TRY(hark_tensor_create(context, scale.type, scale.rank, scale.shape, &out->scale));
  HARK_TRY(hark_allocate(context, bytes, &numbers));
  hark_status status = take_numbers(context, from, numbers);
  if (status == HARK_OK) status = hark_parameter_store(context, place_name, out, numbers);
  hark_release(context, numbers, bytes);
  return status;
}

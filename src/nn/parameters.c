/* parameters.c - declaring, laying out and initialising parameters. */
#include "nn/parameters.h"

#include <hark/experimental.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/parameters_compact.h"

/* Every parameter begins on a cache line in f32. */
#define ALIGN_ELEMENTS 16
#define INITIAL_ELEMENTS 16384 /* number of initial values made at once on the host */

void hark_parameters_open(hark_parameters *parameters, hark_type type) { *parameters = (hark_parameters){.type = type}; }

void hark_parameters_close(hark_context *context, hark_parameters *parameters) {
  hark_tensor_destroy(context, &parameters->weights);
  hark_tensor_destroy(context, &parameters->halves);
  hark_tensor_destroy(context, &parameters->gradients);
  hark_tensor_destroy(context, &parameters->compact);
  hark_release(context, parameters->list, (size_t)parameters->capacity * sizeof *parameters->list);
  hark_release(context, parameters->projection, parameters->projection_bytes);
  hark_parameters_open(parameters, parameters->type);
}

hark_parameter *hark_parameters_find(const hark_parameters *parameters, const char *name) {
  for (int32_t i = 0; i < parameters->count; i++)
    if (strcmp(parameters->list[i].name, name) == 0) return &parameters->list[i];
  return NULL;
}

hark_status hark_parameters_add(hark_context *context, hark_parameters *parameters, const hark_parameter_spec *spec, hark_parameter_id *out,
                                const char *name, ...) {
  *out = 0;
  if (parameters->count == parameters->capacity) {
    const int32_t capacity = parameters->capacity > 0 ? 2 * parameters->capacity : 64;
    void *grown = NULL;
    HARK_TRY(hark_allocate(context, (size_t)capacity * sizeof *parameters->list, &grown));
    if (parameters->count > 0) memcpy(grown, parameters->list, (size_t)parameters->count * sizeof *parameters->list);
    hark_release(context, parameters->list, (size_t)parameters->capacity * sizeof *parameters->list);
    parameters->list = grown;
    parameters->capacity = capacity;
  }
  hark_parameter parameter = {.spec = *spec};
  va_list arguments;
  va_start(arguments, name);
  const int length = vsnprintf(parameter.name, sizeof parameter.name, name, arguments);
  va_end(arguments);
  if (length < 0 || (size_t)length >= sizeof parameter.name)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "parameter: the name %s is longer than %d characters", parameter.name,
                     HARK_PARAMETER_NAME_BYTES - 1);
  HARK_TRY(hark_tensor_describe(context, parameters->type, spec->rank, spec->shape, &parameter.weight));
  parameter.count = hark_tensor_count(&parameter.weight);
  parameters->list[parameters->count++] = parameter;
  *out = parameters->count;
  return HARK_OK;
}

static int by_name(const void *left, const void *right) { return strcmp(*(const char *const *)left, *(const char *const *)right); }

static hark_status check_names(hark_context *context, const hark_parameters *parameters) {
  if (parameters->count < 2) return HARK_OK; /* and no null pointer for qsort */
  void *memory = NULL;
  const size_t bytes = (size_t)parameters->count * sizeof(const char *);
  HARK_TRY(hark_allocate(context, bytes, &memory));
  const char **names = memory;
  for (int32_t i = 0; i < parameters->count; i++) names[i] = parameters->list[i].name;
  qsort(names, (size_t)parameters->count, sizeof *names, by_name);
  hark_status status = HARK_OK;
  for (int32_t i = 1; i < parameters->count && status == HARK_OK; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      status = hark_fail(context, HARK_INVALID_ARGUMENT, "parameter: the name %s is there twice", names[i]);
  hark_release(context, memory, bytes);
  return status;
}

hark_status hark_parameters_lay_out(hark_context *context, hark_parameters *parameters, bool training) {
  HARK_TRY(check_names(context, parameters));
  int64_t end = 0;
  for (int pass = 0; pass < HARK_PARAMETER_GROUPS; pass++) {
    const bool decays = pass % 2 == 0;
    const hark_rate_kind rate = (hark_rate_kind)(pass / 2);
    const int64_t first = end;
    for (int32_t i = 0; i < parameters->count; i++) {
      hark_parameter *parameter = &parameters->list[i];
      if (parameter->spec.decays != decays || parameter->spec.rate != rate || hark_type_is_compact(parameter->weight.type)) continue;
      parameter->first = end;
      end += hark_ceil_div(parameter->count, ALIGN_ELEMENTS) * ALIGN_ELEMENTS;
    }
    if (end > first)
      parameters->groups[parameters->group_count++] =
          (hark_parameter_group){.first = first, .count = end - first, .decays = decays, .rate = rate};
  }
  HARK_TRY(hark_tensor_describe(context, parameters->type, 1, &end, &parameters->weights));
  HARK_TRY(hark_parameters_lay_out_compact(context, parameters, training));
  if (!training) return HARK_OK;
  parameters->gradients = parameters->weights;
  for (int32_t i = 0; i < parameters->count; i++) parameters->list[i].gradient = parameters->list[i].weight;
  return HARK_OK;
}

static bool is_bounded(const hark_parameter *parameter) { return parameter->spec.bound.norm != HARK_BOUND_FREE; }

/* Bytes of the parameter's stored numbers, of the same in double, and of the projection's scratch memory. */
static size_t projection_bytes(const hark_parameter *parameter) {
  const int64_t *const shape = parameter->spec.shape;
  return (2 * (size_t)parameter->count + hark_norm_bound_scratch(shape[0], shape[1])) * sizeof(double);
}

static hark_status make_room_to_project(hark_context *context, hark_parameters *parameters) {
  size_t bytes = 0;
  for (int32_t i = 0; i < parameters->count; i++)
    if (is_bounded(&parameters->list[i])) bytes = (size_t)hark_max((int64_t)bytes, (int64_t)projection_bytes(&parameters->list[i]));
  if (bytes == 0) return HARK_OK;
  HARK_TRY(hark_allocate(context, bytes, &parameters->projection));
  parameters->projection_bytes = bytes;
  return HARK_OK;
}

static hark_status project(hark_context *context, const hark_parameters *parameters, hark_parameter *parameter) {
  const int64_t rows = parameter->spec.shape[0], columns = parameter->spec.shape[1], count = parameter->count;
  void *const stored = parameters->projection;
  double *const numbers = (double *)stored + count, *const scratch = numbers + count;
  const bool wide = parameter->weight.type == HARK_F64;
  HARK_TRY(hark_tensor_read(context, &parameter->weight, stored));
  for (int64_t i = 0; i < count; i++) numbers[i] = wide ? ((const double *)stored)[i] : (double)((const float *)stored)[i];
  hark_norm_bound_project(&parameter->spec.bound, rows, columns, numbers, scratch);
  for (int64_t i = 0; i < count; i++) {
    if (wide)
      ((double *)stored)[i] = numbers[i];
    else
      ((float *)stored)[i] = (float)numbers[i];
  }
  return hark_tensor_write(context, &parameter->weight, stored);
}

hark_status hark_parameters_project(hark_context *context, const hark_parameters *parameters, bool frozen_too) {
  for (int32_t i = 0; parameters->projection != NULL && i < parameters->count; i++) {
    hark_parameter *const parameter = &parameters->list[i];
    if (!is_bounded(parameter) || (parameter->spec.rate == HARK_RATE_FROZEN && !frozen_too)) continue;
    HARK_TRY(project(context, parameters, parameter));
  }
  return HARK_OK;
}

hark_status hark_parameters_finish(hark_context *context, hark_parameters *parameters, bool training) {
  HARK_TRY(hark_parameters_lay_out(context, parameters, training));
  HARK_TRY(make_room_to_project(context, parameters));
  const int64_t elements = hark_tensor_count(&parameters->weights);
  HARK_TRY(hark_tensor_create(context, parameters->type, 1, &elements, &parameters->weights));
  if (training) HARK_TRY(hark_tensor_create(context, parameters->type, 1, &elements, &parameters->gradients));
  const size_t element = hark_type_bytes(parameters->type);
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *parameter = &parameters->list[i];
    if (hark_type_is_compact(parameter->weight.type)) continue;
    parameter->weight.data = (char *)parameters->weights.data + (size_t)parameter->first * element;
    if (training) parameter->gradient.data = (char *)parameters->gradients.data + (size_t)parameter->first * element;
  }
  return hark_parameters_allocate_compact(context, parameters);
}

hark_status hark_parameters_add_halves(hark_context *context, hark_parameters *parameters, bool memory) {
  const int64_t elements = hark_tensor_count(&parameters->weights);
  if (parameters->type != HARK_F32)
    return hark_fail(context, HARK_UNSUPPORTED, "products in bf16 are for weights in f32, the model's are %s",
                     hark_type_name(parameters->type));
  return (memory ? hark_tensor_create : hark_tensor_describe)(context, HARK_BF16, 1, &elements, &parameters->halves);
}

hark_tensor hark_parameters_part(const hark_tensor *flat, const hark_parameter_group *group) {
  hark_tensor part = *flat;
  part.owned_bytes = 0;
  part.shape[0] = group->count;
  part.data = (char *)flat->data + (size_t)group->first * hark_type_bytes(flat->type);
  return part;
}

hark_status hark_parameters_round(hark_context *context, const hark_parameters *parameters) {
  for (int i = 0; parameters->halves.type != HARK_NONE && i < parameters->group_count; i++) {
    const hark_parameter_group *const group = &parameters->groups[i];
    const hark_call call = {.op = &hark_op_round_bf16,
                            .input_count = 1,
                            .inputs = {hark_parameters_part(&parameters->weights, group)},
                            .outputs = {hark_parameters_part(&parameters->halves, group)}};
    if (group->decays) HARK_TRY(hark_operator_forward(context, &call));
  }
  return HARK_OK;
}

hark_tensor hark_parameters_half(const hark_parameters *parameters, hark_parameter_id id) {
  const hark_parameter *const parameter = &parameters->list[id - 1];
  hark_tensor half = parameter->weight;
  half.owned_bytes = 0;
  half.type = HARK_BF16;
  half.data = parameters->halves.data == NULL ? NULL : (uint16_t *)parameters->halves.data + parameter->first;
  return half;
}

/* 24 bits of FNV-1a. The name selects a parameter's random stream, so that adding a layer does not change the initial values of others. */
static uint32_t name_hash(const char *name) {
  uint32_t hash = 2166136261u;
  for (; *name != '\0'; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
  return (hash ^ (hash >> 24)) & 0xFFFFFFu;
}

static bool is_diagonal(const hark_parameter_spec *spec, int64_t place) { return place / spec->shape[1] == place % spec->shape[1]; }

/* Writes the initial values [first, first + count) of a parameter to `host`, in f64 or f32; `values` has room for them. */
static void initial_part(const hark_parameter *parameter, uint64_t seed, int64_t first, int64_t count, double *values, void *host) {
  const hark_random_stream stream = {.seed = seed,
                                     .layer_purpose = hark_random_layer_purpose(name_hash(parameter->name), HARK_RANDOM_INITIAL)};
  const hark_parameter_spec *spec = &parameter->spec;
  if (spec->initial == HARK_INITIAL_NORMAL) hark_random_normal(&stream, (uint64_t)first, count, values);
  for (int64_t i = 0; i < count; i++) {
    const double value = spec->initial == HARK_INITIAL_NORMAL     ? spec->value * values[i]
                         : spec->initial == HARK_INITIAL_ONE      ? 1.0
                         : spec->initial == HARK_INITIAL_CONSTANT ? spec->value
                         : spec->initial == HARK_INITIAL_GIVEN    ? spec->given[first + i]
                         : spec->initial == HARK_INITIAL_IDENTITY ? is_diagonal(spec, first + i)
                                                                  : 0.0;
    if (parameter->weight.type == HARK_F64)
      ((double *)host)[i] = value;
    else
      ((float *)host)[i] = (float)value;
  }
}

/* Sets elements [first, first + count) of a parameter; `host` has room for them in f64. */
static hark_status initialise_part(hark_context *context, hark_parameter *parameter, uint64_t seed, int64_t first, int64_t count,
                                   double *values, void *host) {
  initial_part(parameter, seed, first, count, values, host);
  hark_tensor part;
  HARK_TRY(hark_tensor_describe(context, parameter->weight.type, 1, &count, &part));
  part.data = (char *)parameter->weight.data + (size_t)first * hark_type_bytes(part.type);
  return hark_tensor_write(context, &part, host);
}

/* The same for a parameter that is rounded: all of its numbers in f32 first. */
static hark_status initialise_rounded(hark_context *context, hark_parameter *parameter, uint64_t seed, double *values) {
  void *memory = NULL;
  size_t bytes = 0;
  HARK_TRY(hark_size_multiply(context, (size_t)parameter->count, sizeof(float), &bytes));
  HARK_TRY(hark_allocate(context, bytes, &memory));
  float *numbers = memory;
  for (int64_t first = 0; first < parameter->count; first += INITIAL_ELEMENTS)
    initial_part(parameter, seed, first, hark_min(INITIAL_ELEMENTS, parameter->count - first), values, numbers + first);
  const hark_status status = hark_parameter_store(context, "initial weights", parameter, numbers);
  hark_release(context, memory, bytes);
  return status;
}

hark_status hark_parameters_initialise(hark_context *context, hark_parameters *parameters, uint64_t seed) {
  void *scratch = NULL;
  const size_t bytes = (size_t)INITIAL_ELEMENTS * 2 * sizeof(double);
  HARK_TRY(hark_allocate(context, bytes, &scratch));
  double *values = scratch;
  hark_status status = HARK_OK;
  for (int32_t i = 0; i < parameters->count; i++) {
    hark_parameter *parameter = &parameters->list[i];
    if (hark_parameter_is_rounded(parameter)) {
      if (status == HARK_OK) status = initialise_rounded(context, parameter, seed, values);
      continue;
    }
    for (int64_t first = 0; first < parameter->count && status == HARK_OK; first += INITIAL_ELEMENTS)
      status = initialise_part(context, parameter, seed, first, hark_min(INITIAL_ELEMENTS, parameter->count - first), values,
                               values + INITIAL_ELEMENTS);
  }
  hark_release(context, scratch, bytes);
  return status == HARK_OK ? hark_parameters_project(context, parameters, true) : status;
}

void hark_join_name(char name[HARK_PARAMETER_NAME_BYTES], const char *prefix, const char *part) {
  (void)snprintf(name, HARK_PARAMETER_NAME_BYTES, "%s.%s", prefix, part);
}

int64_t hark_parameters_total(const hark_parameters *parameters) {
  int64_t total = 0;
  for (int32_t i = 0; i < parameters->count; i++) total += parameters->list[i].count;
  return total;
}

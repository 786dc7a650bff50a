/* rotary.c - see rotary.h. */
#include "nn/rotary.h"

#include <math.h>

/* sqrt(1 / t) = 0.1 ln s + 1, t the temperature of the softmax: arXiv 2309.00071, section 3.4 */
#define YARN_SLOPE 0.1

static double factor_of(const hark_rotary_spec *spec) { return spec->factor != 0 ? spec->factor : 1; }

hark_rotary_attributes hark_rotary_attributes_of(const hark_rotary_spec *spec) {
  const double factor = factor_of(spec), half = (double)(spec->head_dim / 2), fraction = spec->fraction != 0 ? spec->fraction : 1;
  hark_rotary_attributes attributes = {
      .heads = 1, .base = spec->base, .pairs = spec->pairs, .turned = (int64_t)fmax(1, round(fraction * half))};
  switch (spec->scaling) {
    case HARK_ROTARY_AS_TRAINED: break;
    case HARK_ROTARY_LINEAR: attributes.stretch = factor; break;
    case HARK_ROTARY_NTK: /* one pair, of rate 1, has no base */
      if (spec->head_dim > 2) attributes.base *= pow(factor, (double)spec->head_dim / (double)(spec->head_dim - 2));
      break;
    case HARK_ROTARY_YARN:
      attributes.stretch = factor;
      attributes.original_length = spec->context;
      break;
  }
  return attributes;
}

double hark_rotary_magnitude(const hark_rotary_spec *spec) {
  return spec->present && spec->scaling == HARK_ROTARY_YARN ? YARN_SLOPE * log(factor_of(spec)) + 1 : 1;
}

hark_status hark_rotary_source_open(hark_context *context, const hark_rotary_spec *spec, int64_t rows, hark_rotary_source *out) {
  const hark_rotary_attributes attributes = hark_rotary_attributes_of(spec);
  *out = (hark_rotary_source){.rows = rows, .pairs = attributes.turned};
  out->bytes = (size_t)(rows * out->pairs) * sizeof(double);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, out->bytes, &memory));
  out->initial = memory;
  for (int64_t i = 0; i < rows * out->pairs; i++) out->initial[i] = hark_rotary_rate(&attributes, spec->head_dim, i % out->pairs);
  return HARK_OK;
}

void hark_rotary_source_close(hark_context *context, hark_rotary_source *source) {
  hark_release(context, source->initial, source->bytes);
  *source = (hark_rotary_source){0};
}

hark_status hark_rotary_declare(hark_context *context, hark_parameters *parameters, const hark_rotary_source *source, const char *prefix,
                                hark_parameter_id *rates) {
  const hark_parameter_spec spec = {
      .rank = 2, .shape = {source->rows, source->pairs}, .initial = HARK_INITIAL_GIVEN, .given = source->initial, .rate = HARK_RATE_ROTARY};
  return hark_parameters_add(context, parameters, &spec, rates, "%s%s" HARK_ROTARY_TENSOR, prefix, prefix[0] != '\0' ? "." : "");
}

hark_status hark_rotary_apply(const hark_forward *forward, const hark_rotary_spec *spec, hark_value rates, int64_t heads,
                              hark_value *value) {
  hark_rotary_attributes attributes = hark_rotary_attributes_of(spec);
  attributes.heads = heads;
  attributes.first_position = forward->first_position;
  enum { X, RATES, POSITIONS, INPUTS }; /* the record's */
  hark_value inputs[INPUTS] = {*value, rates};
  if (forward->packing != NULL) HARK_TRY(hark_tape_leaf(forward->tape, forward->packing->positions, NULL, &inputs[POSITIONS]));
  const int count = forward->packing != NULL ? INPUTS : rates != 0 ? RATES + 1 : X + 1;
  return hark_tape_apply(forward->tape, &hark_op_rotary, &attributes, count, inputs, 1, value);
}

/* rotary.c - see rotary.h. */
#include "nn/rotary.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "backend/rotary_ramp.h"
#include "io/number.h"

/* sqrt(1 / t) = 0.1 ln s + 1, t the temperature of the softmax: arXiv 2309.00071, section 3.4 */
#define YARN_SLOPE 0.1

/* Turns within the training length between which llama3 changes from slowed rates to unchanged ones. */
#define LLAMA_LOW_TURNS 1.0
#define LLAMA_HIGH_TURNS 4.0

static const hark_rotary_tuning published = {.beta_fast = 0};

static const hark_rotary_tuning *tuning_of(const hark_rotary_spec *spec) { return spec->tuning != NULL ? spec->tuning : &published; }
static double or_default(double given, double otherwise) { return given != 0 ? given : otherwise; }
static double factor_of(const hark_rotary_spec *spec) { return or_default(spec->factor, 1); }

static int64_t pairs_of(const hark_rotary_spec *spec) {
  return (int64_t)fmax(1, round(or_default(spec->fraction, 1) * (double)(spec->head_dim / 2)));
}

/* A single pair, of rate 1, has no base. */
static double enlarged_base(const hark_rotary_spec *spec, double factor) {
  return spec->head_dim > 2 ? spec->base * pow(factor, (double)spec->head_dim / (double)(spec->head_dim - 2)) : spec->base;
}

static double base_of(const hark_rotary_spec *spec, int64_t length) {
  if (spec->scaling == HARK_ROTARY_NTK) return enlarged_base(spec, factor_of(spec));
  if (spec->scaling != HARK_ROTARY_DYNAMIC || length <= spec->context) return spec->base;
  return enlarged_base(spec, factor_of(spec) * (double)length / (double)spec->context - (factor_of(spec) - 1));
}

/* The fraction of a rate that yarn and llama3 keep. */
static double kept_of(const hark_rotary_spec *spec, double rate, int64_t j) {
  const hark_rotary_tuning *tuning = tuning_of(spec);
  const double length = (double)spec->context;
  if (spec->scaling == HARK_ROTARY_LLAMA3)
    return hark_rotary_turns_kept(rate, length, or_default(tuning->high_frequency, LLAMA_HIGH_TURNS),
                                  or_default(tuning->low_frequency, LLAMA_LOW_TURNS));
  const double fast = or_default(tuning->beta_fast, HARK_ROTARY_FAST_TURNS), slow = or_default(tuning->beta_slow, HARK_ROTARY_SLOW_TURNS);
  if (tuning->ramp == HARK_ROTARY_RAMP_TURNS) return hark_rotary_turns_kept(rate, length, fast, slow);
  return hark_rotary_ramp_kept(hark_rotary_ramp_of(spec->base, spec->head_dim, length, fast, slow, !tuning->untruncated), j);
}

double hark_rotary_trained_rate(const hark_rotary_spec *spec, int64_t j) {
  return pow(spec->base, -2 * (double)j / (double)spec->head_dim);
}

double hark_rotary_rate_of(const hark_rotary_spec *spec, int64_t length, int64_t j) {
  const hark_rotary_tuning *tuning = tuning_of(spec);
  const double rate = pow(base_of(spec, length), -2 * (double)j / (double)spec->head_dim);
  switch (spec->scaling) {
    case HARK_ROTARY_AS_TRAINED:
    case HARK_ROTARY_NTK:
    case HARK_ROTARY_DYNAMIC: return rate;
    case HARK_ROTARY_LINEAR: return rate / factor_of(spec);
    case HARK_ROTARY_LONGROPE: return rate / (length > spec->context ? tuning->long_factor : tuning->short_factor).values[j];
    case HARK_ROTARY_YARN:
    case HARK_ROTARY_LLAMA3: break;
  }
  const double kept = kept_of(spec, rate, j);
  return (1 - kept) * rate / factor_of(spec) + kept * rate;
}

hark_rotary_attributes hark_rotary_attributes_in(const hark_rotary_spec *spec, int64_t length) {
  hark_rotary_attributes attributes = {.heads = 1, .base = base_of(spec, length), .pairs = spec->pairs, .turned = pairs_of(spec)};
  if (spec->tables != NULL && spec->tables->rates != NULL) {
    const bool is_long = spec->tables->sets > 1 && length > spec->context;
    attributes.rates = spec->tables->rates + (is_long ? spec->tables->pairs : 0);
    return attributes;
  }
  if (spec->scaling == HARK_ROTARY_LINEAR || spec->scaling == HARK_ROTARY_YARN) attributes.stretch = factor_of(spec);
  if (spec->scaling == HARK_ROTARY_YARN) attributes.original_length = spec->context;
  return attributes;
}

hark_rotary_attributes hark_rotary_attributes_of(const hark_rotary_spec *spec) { return hark_rotary_attributes_in(spec, 0); }

double hark_rotary_magnitude(const hark_rotary_spec *spec) {
  const hark_rotary_tuning *tuning = tuning_of(spec);
  const double logarithm = log(factor_of(spec));
  if (!spec->present || (spec->scaling != HARK_ROTARY_YARN && spec->scaling != HARK_ROTARY_LONGROPE)) return 1;
  if (tuning->attention_factor != 0) return tuning->attention_factor;
  if (spec->scaling == HARK_ROTARY_LONGROPE) return sqrt(1 + logarithm / log((double)spec->context));
  if (tuning->mscale == 0 || tuning->mscale_all_dim == 0) return YARN_SLOPE * logarithm + 1;
  return (YARN_SLOPE * tuning->mscale * logarithm + 1) / (YARN_SLOPE * tuning->mscale_all_dim * logarithm + 1);
}

bool hark_rotary_depends_on_length(const hark_rotary_spec *spec) {
  return spec->present && (spec->scaling == HARK_ROTARY_DYNAMIC || spec->scaling == HARK_ROTARY_LONGROPE);
}

bool hark_rotary_same_rates(const hark_rotary_spec *spec, int64_t length, int64_t other) {
  if (!hark_rotary_depends_on_length(spec) || length == other) return true;
  if (length <= spec->context || other <= spec->context) return length <= spec->context && other <= spec->context;
  return spec->scaling == HARK_ROTARY_LONGROPE;
}

hark_status hark_rotary_tables_open(hark_context *context, const hark_rotary_spec *spec, hark_rotary_tables *out) {
  const bool one =
      spec->scaling == HARK_ROTARY_YARN || spec->scaling == HARK_ROTARY_LLAMA3 || (spec->scaling == HARK_ROTARY_NTK && spec->learned);
  void *memory = NULL;
  *out = (hark_rotary_tables){.sets = one ? 1 : spec->scaling == HARK_ROTARY_LONGROPE ? 2 : 0, .pairs = pairs_of(spec)};
  out->bytes = (size_t)(out->sets * out->pairs) * sizeof *out->rates;
  if (!spec->present || out->sets == 0) return HARK_OK;
  HARK_TRY(hark_allocate(context, out->bytes, &memory));
  out->rates = memory;
  for (int64_t i = 0; i < out->sets * out->pairs; i++) {
    const double rate = hark_rotary_rate_of(spec, spec->context + i / out->pairs, i % out->pairs);
    out->rates[i] = spec->learned ? rate / hark_rotary_trained_rate(spec, i % out->pairs) : rate;
  }
  return HARK_OK;
}

void hark_rotary_tables_close(hark_context *context, hark_rotary_tables *tables) {
  hark_release(context, tables->rates, tables->bytes);
  *tables = (hark_rotary_tables){0};
}

/* Checks a list of longrope. */
static bool factors_are_sound(const hark_rotary_spec *spec, const char *name, const hark_rotary_factors *list, char *message) {
  int32_t j = 0;
  while (j < list->count && list->values[j] > 0 && isfinite(list->values[j])) j++;
  if (list->count != pairs_of(spec))
    (void)snprintf(message, HARK_MESSAGE_BYTES,
                   "model.rotary.%s has %" PRId32 " numbers, expected one for each of the %" PRId64 " pairs that turn", name, list->count,
                   pairs_of(spec));
  else if (j < list->count)
    (void)snprintf(message, HARK_MESSAGE_BYTES, "model.rotary.%s: number %" PRId32 " is %s, expected a finite number above 0", name, j + 1,
                   HARK_PRINTED(list->values[j]));
  return list->count == pairs_of(spec) && j == list->count;
}

/* Checks the ends of the ramp of yarn or llama3. */
static bool ends_are_sound(const hark_rotary_spec *spec, char *message) {
  const hark_rotary_tuning *tuning = tuning_of(spec);
  const bool yarn = spec->scaling == HARK_ROTARY_YARN;
  char numbers[2][HARK_NUMBER_BYTES];
  const double fast = or_default(yarn ? tuning->beta_fast : tuning->high_frequency, yarn ? HARK_ROTARY_FAST_TURNS : LLAMA_HIGH_TURNS),
               slow = or_default(yarn ? tuning->beta_slow : tuning->low_frequency, yarn ? HARK_ROTARY_SLOW_TURNS : LLAMA_LOW_TURNS);
  if (fast > slow && slow > 0 && isfinite(fast)) return true;
  (void)snprintf(message, HARK_MESSAGE_BYTES, "model.rotary.%s %s is not above model.rotary.%s %s", yarn ? "beta_fast" : "high_freq_factor",
                 hark_number_print(fast, numbers[0]), yarn ? "beta_slow" : "low_freq_factor", hark_number_print(slow, numbers[1]));
  return false;
}

bool hark_rotary_is_sound(const hark_rotary_spec *spec, char *message) {
  const hark_rotary_tuning *tuning = tuning_of(spec);
  const bool yarn = spec->scaling == HARK_ROTARY_YARN, longrope = spec->scaling == HARK_ROTARY_LONGROPE;
  if ((yarn || spec->scaling == HARK_ROTARY_LLAMA3) && !ends_are_sound(spec, message)) return false;
  if (yarn && (tuning->mscale != 0) != (tuning->mscale_all_dim != 0)) {
    (void)snprintf(message, HARK_MESSAGE_BYTES, "model.rotary.mscale needs model.rotary.mscale_all_dim, and the other way round");
    return false;
  }
  if (longrope && spec->context < 2) {
    (void)snprintf(message, HARK_MESSAGE_BYTES, "model.rotary.original_context is %" PRId64 ", expected 2 or more for longrope",
                   spec->context);
    return false;
  }
  return !longrope || (factors_are_sound(spec, "short_factor", &tuning->short_factor, message) &&
                       factors_are_sound(spec, "long_factor", &tuning->long_factor, message));
}

hark_status hark_rotary_source_open(hark_context *context, const hark_rotary_spec *spec, int64_t rows, hark_rotary_source *out) {
  *out = (hark_rotary_source){.rows = rows, .pairs = pairs_of(spec)};
  out->bytes = (size_t)(rows * out->pairs) * sizeof(double);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, out->bytes, &memory));
  out->initial = memory;
  for (int64_t i = 0; i < rows * out->pairs; i++) out->initial[i] = hark_rotary_trained_rate(spec, i % out->pairs);
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

/* Length of the text that a pass of rectangular rows belongs to. */
static int64_t length_of(const hark_forward *forward, hark_value value) {
  const int64_t rows = forward->rows > 0 ? forward->rows : hark_tape_tensor(forward->tape, value)->shape[1];
  return forward->reach != 0 ? forward->reach : forward->first_position + rows;
}

hark_status hark_rotary_apply(hark_context *context, const hark_forward *forward, const hark_rotary_spec *spec, hark_value rates,
                              int64_t heads, hark_value *value) {
  if (forward->packing != NULL && hark_rotary_depends_on_length(spec))
    return hark_fail(context, HARK_UNSUPPORTED,
                     "model.rotary.scaling dynamic and longrope depend on the length of a text, and sequences of several are read at once");
  hark_rotary_attributes attributes = hark_rotary_attributes_in(spec, length_of(forward, *value));
  attributes.heads = heads;
  attributes.first_position = forward->first_position + forward->slice_row;
  enum { X, RATES, POSITIONS, INPUTS }; /* the operator's */
  hark_value inputs[INPUTS] = {*value, rates};
  if (forward->packing != NULL) HARK_TRY(hark_tape_leaf(forward->tape, forward->packing->positions, NULL, &inputs[POSITIONS]));
  const int count = forward->packing != NULL ? INPUTS : rates != 0 ? RATES + 1 : X + 1;
  return hark_tape_apply(forward->tape, &hark_op_rotary, &attributes, count, inputs, 1, value);
}

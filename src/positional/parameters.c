/* parameters.c - the learned numbers of an expression: names and indices, initial values, transforms, and positive definiteness. */
#include <inttypes.h>
#include <string.h>

#include "core/overlap.h"
#include "core/structs.h"
#include "io/number.h"
#include "positional/expression.h"

#define PI 3.14159265358979323846

#define LENGTH_DEFAULT 256
#define SHORTEST_LENGTH 2.0 /* tokens: length scales start from here to LONGEST_LENGTHS contexts */
#define LONGEST_LENGTHS 2.0
#define SHORTEST_LAG 1.0 /* tokens: preferred distances start from here to LONGEST_LAGS contexts */
#define LONGEST_LAGS 0.5
#define SHORTEST_PERIOD 3.0 /* tokens: periods start from here to one context */
#define SHORTEST_KNOT 0.5   /* tokens: the first of several knots */
#define JITTER 0.1          /* largest distance of a jittered start from 1, as a logarithm */
#define SLOPE_EXPONENT 8.0  /* ALiBi's slopes go down to 2^-8 */

/* --- transforms ----------------------------------------------------------------------------------------------------------------------- */

double hark_transform_natural(hark_transform transform, double raw) {
  if (transform == HARK_TRANSFORM_SIGNED) return raw;
  if (transform == HARK_TRANSFORM_CANONICAL_PERIOD) return (1 + exp(-raw)) / (PI / 2); /* tau = 2 / (pi sigmoid(rho)) */
  return exp(raw);
}

double hark_transform_raw(hark_transform transform, double natural) {
  if (transform == HARK_TRANSFORM_SIGNED) return natural;
  if (transform == HARK_TRANSFORM_CANONICAL_PERIOD) return -log(fmax(natural * (PI / 2) - 1, 2.220446049250313e-16));
  return log(natural);
}

double hark_transform_slope(hark_transform transform, double raw) {
  if (transform == HARK_TRANSFORM_CANONICAL_PERIOD) return -1 / (1 + exp(raw)); /* log tau = log(2 / pi) - log sigmoid(rho) */
  return 1;
}

double hark_transform_scale(hark_transform transform, double natural) { return transform == HARK_TRANSFORM_SIGNED ? 1 : natural; }

hark_value_range hark_transform_range(hark_transform transform) {
  if (transform == HARK_TRANSFORM_SIGNED) return (hark_value_range){-HARK_POSITIONAL_LARGEST_SIGNED, HARK_POSITIONAL_LARGEST_SIGNED};
  const double low = transform == HARK_TRANSFORM_CANONICAL_PERIOD ? 1 / (PI / 2) : HARK_POSITIONAL_SMALLEST_VALUE;
  return (hark_value_range){low, HARK_POSITIONAL_LARGEST_VALUE};
}

/* NaN stays. */
static double within(const hark_positional_part *part, int p, double natural) {
  const hark_value_range *const bounds = &part->bounds[p];
  if (!hark_part_is_bounded(part, p)) return natural;
  return natural < bounds->low ? bounds->low : natural > bounds->high ? bounds->high : natural;
}

double hark_positional_value(const hark_positional *positional, const hark_positional_part *part, int p, int32_t place, double raw) {
  const hark_transform transform = part->leaf->parameters[p].transform;
  const double given = positional->given[place];
  if (hark_part_is_fixed(part, p)) return given;
  return !isnan(given) && raw == hark_transform_raw(transform, given) ? given : within(part, p, hark_transform_natural(transform, raw));
}

/* --- places --------------------------------------------------------------------------------------------------------------------------- */

/* Iterates over the named parameters of an expression in their order. */
typedef struct parameter_walk {
  const hark_positional_part *part;
  const hark_leaf_parameter *parameter;
  int kernel, index; /* index of the leaf; of its parameter */
  int32_t first, count, at;
  hark_part_owner owner; /* of its values, */
  int32_t owned;         /* which are at this place */
} parameter_walk;

hark_part_owner hark_part_owner_of(const hark_positional *positional, const hark_positional_part *part, int p) {
  const char label = part->label[p];
  for (const hark_positional_part *at = positional->parts; label != 0 && at <= part; at++) {
    if (at->kind != HARK_PART_LEAF) continue;
    for (int q = 0; q < at->leaf->parameter_count; q++)
      if (at->label[q] == label) return (hark_part_owner){at, q};
  }
  return (hark_part_owner){part, p};
}

static bool next(const hark_positional *positional, parameter_walk *walk) {
  if (walk->part != NULL && ++walk->index < walk->part->leaf->parameter_count) {
    walk->first += walk->count;
  } else {
    if (walk->part != NULL) walk->kernel++, walk->at++;
    for (;; walk->at++) {
      if (walk->at == positional->part_count) return false;
      walk->part = &positional->parts[walk->at];
      if (walk->part->kind != HARK_PART_LEAF) continue;
      if (walk->part->leaf->parameter_count > 0) break;
      walk->kernel++;
    }
    walk->index = 0;
    walk->first = walk->part->parameter_first;
  }
  walk->parameter = &walk->part->leaf->parameters[walk->index];
  walk->count = hark_part_values(walk->part, walk->index);
  walk->owner = hark_part_owner_of(positional, walk->part, walk->index);
  walk->owned = hark_part_first(walk->owner.part, walk->owner.p);
  return true;
}

const double *hark_part_gather(const hark_positional_part *part, const double *natural, int32_t component,
                               double values[HARK_LEAF_VALUES]) {
  if (part->leaf->parameter_count == 0) return values; /* then there may be no numbers at all */
  const double *from = natural + part->parameter_first;
  if (part->leaf->parameter_count == 1) return from + (ptrdiff_t)component * hark_part_own_values(part, 0);
  double *to = values;
  for (int p = 0; p < part->leaf->parameter_count; p++) {
    const int32_t count = hark_part_own_values(part, p);
    memcpy(to, from + (ptrdiff_t)component * count, (size_t)count * sizeof *to);
    to += count;
    from += (ptrdiff_t)count * part->components;
  }
  return values;
}

int64_t hark_positional_parameter_count(const hark_positional *positional) { return positional->parameter_count; }

static bool owns(const parameter_walk *walk) { return walk->owned == walk->first; }

static bool is_learned(const parameter_walk *walk) { return owns(walk) && !hark_part_is_fixed(walk->part, walk->index); }

bool hark_positional_is_learned(const hark_positional *positional, int64_t number) {
  for (parameter_walk walk = {0}; next(positional, &walk);)
    if (number >= walk.first && number < walk.first + walk.count) return is_learned(&walk);
  return false;
}

int hark_positional_named_count(const hark_positional *positional) {
  int count = 0;
  for (parameter_walk walk = {0}; next(positional, &walk);) count++;
  return count;
}

hark_positional_parameter hark_positional_named(const hark_positional *positional, int index) {
  parameter_walk walk = {0};
  while (next(positional, &walk) && index > 0) index--;
  return (hark_positional_parameter){.kernel = walk.part->leaf->name,
                                     .name = walk.parameter->name,
                                     .kernel_number = walk.kernel,
                                     .column = walk.part->column,
                                     .first = walk.first,
                                     .count = walk.count};
}

/* --- initial values ------------------------------------------------------------------------------------------------------------------- */

/* From low to high with equal ratios over the slots; the middle for a single slot. */
static double geometric(double low, double high, double slot, double slots) {
  const double part = slots > 1 ? slot / (slots - 1) : 0.5;
  return low * pow(fmax(high, 2 * low) / low, part);
}

/* The golden ratio's multiples modulo 1: the numbers of a sequence are as far apart as possible. */
static double jitter(double slot) {
  const double golden = 0.61803398874989485, turn = (slot + 0.5) * golden;
  return exp(JITTER * (2 * (turn - floor(turn)) - 1));
}

/* ALiBi's slopes, as in its authors' program. With power = the largest power of two that is at most `slots`, the first slots have 2^(-8 k /
 * power), k = 1 .. power. The others have the slopes of twice as many slots that are between these, from the largest on. */
static double slope(double slot, double slots) {
  const double power = ldexp(1, ilogb(slots));
  return exp2(-SLOPE_EXPONENT * (slot < power ? slot + 1 : slot - power + 0.5) / power);
}

/* What an initial value depends on. */
typedef struct start_place {
  double slot, slots, length;
  double unit, units; /* value k of K */
} start_place;

static double start_value(hark_leaf_start start, const start_place *at) {
  const double slot = at->slot, slots = at->slots, length = at->length;
  switch (start) {
    case HARK_START_ONE: return 1;
    case HARK_START_JITTERED: return jitter(slot);
    case HARK_START_LENGTH: return geometric(SHORTEST_LENGTH, LONGEST_LENGTHS * length, slot, slots);
    case HARK_START_INVERSE_LENGTH: return 1 / geometric(SHORTEST_LENGTH, LONGEST_LENGTHS * length, slot, slots);
    case HARK_START_LAG: return geometric(SHORTEST_LAG, LONGEST_LAGS * length, slot, slots);
    case HARK_START_PERIOD: return geometric(SHORTEST_PERIOD, length, slot, slots) / PI;
    case HARK_START_KNOT: return SHORTEST_KNOT * pow(fmax(length, 2), at->unit / at->units);
    case HARK_START_FALL: return -jitter(slot) / at->units;
    case HARK_START_HARMONIC: return slots / (slot + 1);
    case HARK_START_SLOPE: return slope(slot, slots);
  }
  return 1;
}

hark_status hark_positional_initial(hark_context *context, const hark_positional *positional, const hark_positional_start *given,
                                    double *parameters) {
  hark_positional_start start = {.struct_size = sizeof start};
  HARK_TRY(hark_take_struct(context, "hark_positional_start", given, HARK_LEAST_POSITIONAL_START, &start, sizeof start));
  const int64_t heads = start.heads == 0 ? 1 : start.heads, length = start.length == 0 ? LENGTH_DEFAULT : start.length;
  if (heads < 0 || length < 0 || start.head < 0 || start.head >= heads)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "positional kernel: start for head %" PRId64 " of %" PRId64 " and length %" PRId64
                     ", expected a head that is there and a positive length",
                     start.head, heads, length);
  for (parameter_walk walk = {0}; next(positional, &walk);) {
    const int32_t count = hark_part_own_values(walk.part, walk.index), components = walk.part->components;
    for (int32_t i = 0; i < walk.count; i++) {
      const start_place at = {.slot = (double)(i / count) * (double)heads + (double)start.head,
                              .slots = (double)components * (double)heads,
                              .length = (double)length,
                              .unit = i % count,
                              .units = count};
      const double literal = positional->given[walk.first + i];
      const double factor = walk.parameter->start_factor != 0 ? walk.parameter->start_factor : 1;
      const double natural = isnan(literal) ? within(walk.part, walk.index, factor * start_value(walk.parameter->start, &at)) : literal;
      parameters[walk.first + i] = owns(&walk) ? hark_transform_raw(walk.parameter->transform, natural) : parameters[walk.owned + i];
    }
  }
  return HARK_OK;
}

/* --- natural values ------------------------------------------------------------------------------------------------------------------- */

static bool in_range(const hark_leaf_parameter *parameter, double natural) {
  const hark_value_range range = hark_transform_range(parameter->transform);
  return natural >= range.low && natural <= range.high;
}

/* A logarithm of an end of the range, rounded to f32, is beyond it by up to 2^-17 (the logarithm of 1e60 has 8 digits before the point),
 * and an end itself by less: the value is then that end. */
#define ROUNDED 0x1p-16

static double rounded_into_range(const hark_leaf_parameter *parameter, double natural) {
  const hark_value_range range = hark_transform_range(parameter->transform);
  if (natural < range.low && natural >= range.low - ROUNDED * fabs(range.low)) return range.low;
  if (natural > range.high && natural <= range.high * (1 + ROUNDED)) return range.high;
  return natural;
}

static hark_status refuse(hark_context *context, const parameter_walk *walk, int32_t place, double natural) {
  const hark_value_range range = hark_transform_range(walk->parameter->transform);
  char given[HARK_NUMBER_BYTES], low[HARK_NUMBER_BYTES], high[HARK_NUMBER_BYTES];
  return hark_fail(context, HARK_NOT_FINITE, "positional kernel, column %d: value %d of %s of %s is %s, expected a %snumber from %s to %s",
                   (int)walk->part->column, (int)place, walk->parameter->name, walk->part->leaf->name, hark_number_print(natural, given),
                   range.low > 0 ? "positive " : "", hark_number_print(range.low, low), hark_number_print(range.high, high));
}

static size_t vector_bytes(const hark_positional *positional) { return (size_t)positional->parameter_count * sizeof(double); }

hark_status hark_positional_natural(hark_context *context, const hark_positional *positional, const double *parameters, double *natural) {
  const size_t bytes = vector_bytes(positional);
  HARK_TRY(hark_check_apart(context, "positional kernel: natural and parameters", natural, bytes, parameters, bytes, true));
  for (parameter_walk walk = {0}; next(positional, &walk);) {
    for (int32_t i = 0; i < walk.count; i++) {
      if (!owns(&walk)) {
        natural[walk.first + i] = natural[walk.owned + i];
        continue;
      }
      const int32_t place = walk.first + i;
      const double value =
          rounded_into_range(walk.parameter, hark_positional_value(positional, walk.part, walk.index, place, parameters[place]));
      if (!in_range(walk.parameter, value)) return refuse(context, &walk, i, value);
      natural[place] = value;
    }
  }
  return HARK_OK;
}

hark_status hark_positional_raw(hark_context *context, const hark_positional *positional, const double *natural, double *parameters) {
  const size_t bytes = vector_bytes(positional);
  HARK_TRY(hark_check_apart(context, "positional kernel: parameters and natural", parameters, bytes, natural, bytes, true));
  for (parameter_walk walk = {0}; next(positional, &walk);) {
    for (int32_t i = 0; i < walk.count; i++) {
      const double value = natural[walk.first + i];
      if (!in_range(walk.parameter, value)) return refuse(context, &walk, i, value);
      parameters[walk.first + i] = hark_transform_raw(walk.parameter->transform, value);
    }
  }
  return HARK_OK;
}

/* True if the value of a trained number is beyond a bound, and a step against its gradient leads farther away from the bound. */
static bool leads_away(const parameter_walk *walk, double raw, double gradient) {
  if (!hark_part_is_bounded(walk->part, walk->index)) return false;
  const hark_transform transform = walk->parameter->transform;
  const hark_value_range *const bounds = &walk->part->bounds[walk->index];
  const double natural = hark_transform_natural(transform, raw), rise = gradient * hark_transform_slope(transform, raw);
  return (natural < bounds->low && rise > 0) || (natural > bounds->high && rise < 0);
}

/* d / d raw = d / d u * d u / d raw; u: see hark_transform_slope() */
void hark_positional_gradient_to_raw(const hark_positional *positional, const double *raw, double *gradient) {
  for (parameter_walk walk = {0}; next(positional, &walk);) {
    const bool fixed = hark_part_is_fixed(walk.owner.part, walk.owner.p);
    for (int32_t i = 0; i < walk.count; i++) {
      double *const own = &gradient[walk.first + i];
      const double converted = fixed ? 0 : *own * hark_transform_slope(walk.parameter->transform, raw[walk.owned + i]);
      *own = owns(&walk) ? converted : 0;
      if (!owns(&walk)) gradient[walk.owned + i] += converted;
    }
  }
  for (parameter_walk walk = {0}; next(positional, &walk);) /* when all that is shared has been added */
    for (int32_t i = 0; owns(&walk) && i < walk.count; i++)
      if (leads_away(&walk, raw[walk.first + i], gradient[walk.first + i])) gradient[walk.first + i] = 0;
}

/* d / d natural = d / d raw / (d natural / d u * d u / d raw) */
hark_status hark_positional_natural_gradient(hark_context *context, const hark_positional *positional, const double *parameters,
                                             const double *raw_gradient, double *gradient) {
  const size_t bytes = vector_bytes(positional);
  HARK_TRY(hark_check_apart(context, "positional kernel: gradient and parameters", gradient, bytes, parameters, bytes, true));
  HARK_TRY(hark_check_apart(context, "positional kernel: gradient and raw_gradient", gradient, bytes, raw_gradient, bytes, true));
  for (parameter_walk walk = {0}; next(positional, &walk);) {
    for (int32_t i = 0; i < walk.count; i++) {
      if (!is_learned(&walk)) {
        gradient[walk.first + i] = 0;
        continue;
      }
      const double raw = parameters[walk.first + i];
      const double natural = within(walk.part, walk.index, hark_transform_natural(walk.parameter->transform, raw));
      const double value = rounded_into_range(walk.parameter, natural);
      if (!in_range(walk.parameter, value)) return refuse(context, &walk, i, value);
      const hark_transform transform = walk.parameter->transform;
      const double slope = hark_transform_slope(transform, raw);
      gradient[walk.first + i] = slope != 0 ? raw_gradient[walk.first + i] / (hark_transform_scale(transform, value) * slope) : 0;
    }
  }
  return HARK_OK;
}

/* --- positive definiteness ------------------------------------------------------------------------------------------------------------ */

/* One component of a leaf. */
static bool component_is_definite(const hark_positional *positional, const hark_positional_part *part, int32_t component,
                                  const double *parameters, const char **reason) {
  double values[HARK_LEAF_VALUES] = {0};
  bool inside = true;
  for (int p = 0, v = 0; p < part->leaf->parameter_count; p++) {
    const hark_leaf_parameter *parameter = &part->leaf->parameters[p];
    const hark_part_owner owner = hark_part_owner_of(positional, part, p);
    const int32_t count = hark_part_own_values(part, p), first = hark_part_first(owner.part, owner.p) + component * count;
    for (int32_t i = first; i < first + count; i++) {
      const double value = rounded_into_range(parameter, hark_positional_value(positional, owner.part, owner.p, i, parameters[i]));
      inside = inside && in_range(parameter, value);
      if (v < HARK_LEAF_VALUES) values[v++] = value; /* a leaf with more is never positive definite */
    }
  }
  if (inside && part->leaf->definite(values, part->constant)) return true;
  if (reason != NULL) *reason = inside ? part->leaf->definite_text : "a parameter is outside its range";
  return false;
}

/* Sums and products of positive definite kernels are positive definite (the second is Schur's theorem). Those with a direction are not
 * symmetric. */
bool hark_positional_is_definite(const hark_positional *positional, const double *parameters, int *column, const char **reason) {
  for (int32_t at = 0; at < positional->part_count; at++) {
    const hark_positional_part *part = &positional->parts[at];
    if (part->kind == HARK_PART_DIRECTION) {
      if (reason != NULL) *reason = "without left(...) and right(...)";
      if (column != NULL) *column = part->column;
      return false;
    }
    for (int32_t component = 0; part->kind == HARK_PART_LEAF && component < part->components; component++) {
      if (component_is_definite(positional, part, component, parameters, reason)) continue;
      if (column != NULL) *column = part->column;
      return false;
    }
  }
  return true;
}

bool hark_positional_is_directed(const hark_positional *positional, int *right) {
  int column = 0;
  for (int32_t at = 0; at < positional->part_count && column == 0; at++) {
    const hark_positional_part *part = &positional->parts[at];
    if (part->kind == HARK_PART_DIRECTION && part->sides == HARK_SIDE_RIGHT) column = part->column;
  }
  if (right != NULL) *right = column;
  return positional->directed;
}

double hark_positional_canonical_tau(double tau) {
  const double rate = fabs(remainder(1 / tau, PI)); /* in [0, pi / 2] */
  return 1 / rate;
}

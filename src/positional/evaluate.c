/* evaluate.c - log G of an expression and its gradient, in blocks of distances.
 *
 *   leaf: v = log value        product: v = sum of v_c        sum, bank: v = log sum exp v_c        left, right: v = v_c
 *   backward, a = d / d v:     a_c = a                        a_c = a exp(v_c - v), 0 where v = -infinity
 *
 * Parts that do not exist on the side of a block's keys are skipped (expression.h).
 *
 * The forward visits parts from the last to the first (operands follow their part), the backward from the first to the last. Cost: one
 * evaluation of every component of every kernel for each distance, and an exponential for each operand of a sum; the backward repeats the
 * forward, and costs as much again. Sums over distances have a fixed order, so the result does not depend on threads.
 */
#include <inttypes.h>
#include <string.h>

#include "core/overlap.h"
#include "io/number.h"
#include "positional/expression.h"

#define BLOCK 64 /* distances that are evaluated together */

typedef struct value_blocks {
  int32_t *first;   /* [parts] of the first copy's block */
  double *values;   /* [values, BLOCK] */
  double *adjoints; /* [values, BLOCK] */
} value_blocks;

static size_t first_bytes(const hark_positional *positional) { return hark_align_up((size_t)positional->part_count * sizeof(int32_t)); }
static size_t block_bytes(const hark_positional *positional) { return (size_t)positional->value_count * BLOCK * sizeof(double); }

size_t hark_positional_scratch_bytes(const hark_positional *positional) {
  return hark_align_up(first_bytes(positional) + 2 * block_bytes(positional));
}

static value_blocks open_blocks(const hark_positional *positional, void *memory) {
  value_blocks blocks = {.first = memory, .values = (double *)((char *)memory + first_bytes(positional))};
  blocks.adjoints = blocks.values + (size_t)positional->value_count * BLOCK;
  int32_t first = 0;
  for (int32_t i = 0; i < positional->part_count; i++) {
    blocks.first[i] = first;
    first += positional->parts[i].components;
  }
  return blocks;
}

static double *block_of(const value_blocks *blocks, double *of, int32_t part, int32_t copy) {
  return of + ((size_t)blocks->first[part] + (size_t)copy) * BLOCK;
}

static bool exists(const hark_positional *positional, int32_t part, unsigned sides) { return (positional->parts[part].sides & sides) != 0; }

/* The operands of copy `copy` of a part that exist on one of `sides`, where the part itself exists, one after another: a bank's are the
 * copies of the one part below it. */
typedef struct operands {
  int32_t part, copy, end;
  unsigned sides;
} operands;

static operands first_operand(const hark_positional *positional, unsigned sides, int32_t part, int32_t copy) {
  const hark_positional_part *of = &positional->parts[part];
  if (of->kind == HARK_PART_BANK) return (operands){.part = part + 1, .copy = copy * of->bank, .end = (copy + 1) * of->bank};
  operands at = {.part = part + 1, .copy = copy, .end = part + of->size, .sides = sides};
  while (!exists(positional, at.part, sides)) at.part += positional->parts[at.part].size;
  return at;
}

/* False after the last one. */
static bool next_operand(const hark_positional *positional, hark_positional_kind kind, operands *at) {
  if (kind == HARK_PART_BANK) return ++at->copy < at->end;
  do {
    at->part += positional->parts[at->part].size;
  } while (at->part < at->end && !exists(positional, at->part, at->sides));
  return at->part < at->end;
}

/* Distances that are evaluated together: of keys on one side, without their sign. */
typedef struct distance_run {
  unsigned side;
  int count;
  double distances[BLOCK];
} distance_run;

/* The first of `count` > 0 signed distances, as many as have one sign. */
static void take_run(const double *distances, int64_t count, distance_run *run) {
  const bool right = distances[0] < 0;
  run->side = right ? HARK_SIDE_RIGHT : HARK_SIDE_LEFT;
  for (run->count = 0; run->count < hark_min(BLOCK, count) && (distances[run->count] < 0) == right; run->count++)
    run->distances[run->count] = fabs(distances[run->count]);
}

/* The logarithm of such a part is the sum of those of its operands. */
static bool passes_on(hark_positional_kind kind) { return kind == HARK_PART_PRODUCT || kind == HARK_PART_DIRECTION; }

/* v <- log sum exp v_c, without overflow; -infinity if all are */
static void add_up(const hark_positional *positional, const value_blocks *blocks, const distance_run *run, int32_t part, int32_t copy,
                   double *out) {
  const hark_positional_kind kind = positional->parts[part].kind;
  const int count = run->count;
  double sums[BLOCK] = {0};
  for (int i = 0; i < count; i++) out[i] = -INFINITY;
  operands at = first_operand(positional, run->side, part, copy);
  do {
    const double *values = block_of(blocks, blocks->values, at.part, at.copy);
    for (int i = 0; i < count; i++) out[i] = hark_larger(values[i], out[i]);
  } while (next_operand(positional, kind, &at));
  at = first_operand(positional, run->side, part, copy);
  do {
    const double *values = block_of(blocks, blocks->values, at.part, at.copy);
    for (int i = 0; i < count; i++) sums[i] += out[i] == -INFINITY ? 0 : exp(values[i] - out[i]);
  } while (next_operand(positional, kind, &at));
  for (int i = 0; i < count; i++) out[i] += log(sums[i]); /* of nothing: -infinity */
}

/* v <- sum of v_c */
static void multiply(const hark_positional *positional, const value_blocks *blocks, const distance_run *run, int32_t part, int32_t copy,
                     double *out) {
  const int count = run->count;
  memset(out, 0, (size_t)count * sizeof *out);
  operands at = first_operand(positional, run->side, part, copy);
  do {
    const double *values = block_of(blocks, blocks->values, at.part, at.copy);
    for (int i = 0; i < count; i++) out[i] += values[i];
  } while (next_operand(positional, HARK_PART_PRODUCT, &at));
}

static void forward(const hark_positional *positional, const value_blocks *blocks, const double *natural, const distance_run *run) {
  if (!exists(positional, 0, run->side)) memset(block_of(blocks, blocks->values, 0, 0), 0, (size_t)run->count * sizeof(double));
  for (int32_t part = positional->part_count - 1; part >= 0; part--) {
    const hark_positional_part *of = &positional->parts[part];
    for (int32_t copy = 0; copy < of->components && exists(positional, part, run->side); copy++) {
      double *out = block_of(blocks, blocks->values, part, copy), values[HARK_LEAF_VALUES];
      if (of->kind == HARK_PART_LEAF) {
        of->leaf->log_value(hark_part_gather(of, natural, copy, values), of->constant, run->distances, run->count, out);
      } else if (passes_on(of->kind)) {
        multiply(positional, blocks, run, part, copy, out);
      } else {
        add_up(positional, blocks, run, part, copy, out);
      }
    }
  }
}

/* a_c <- a for products, a exp(v_c - v) for sums and banks */
static void hand_down(const hark_positional *positional, const value_blocks *blocks, const distance_run *run, int32_t part, int32_t copy) {
  const hark_positional_kind kind = positional->parts[part].kind;
  const double *value = block_of(blocks, blocks->values, part, copy), *adjoint = block_of(blocks, blocks->adjoints, part, copy);
  operands at = first_operand(positional, run->side, part, copy);
  do {
    const double *values = block_of(blocks, blocks->values, at.part, at.copy);
    double *out = block_of(blocks, blocks->adjoints, at.part, at.copy);
    for (int i = 0; i < run->count; i++)
      out[i] = value[i] == -INFINITY ? 0 : passes_on(kind) ? adjoint[i] : adjoint[i] * exp(values[i] - value[i]);
  } while (next_operand(positional, kind, &at));
}

/* gradient[of the leaf's values] += sum over the block of a d v */
static void collect(const hark_positional_part *part, const value_blocks *blocks, int32_t index, int32_t copy, const double *natural,
                    const distance_run *run, double *gradient) {
  double values[HARK_LEAF_VALUES], sums[HARK_LEAF_VALUES] = {0};
  const double *of_value = sums, *weights = block_of(blocks, blocks->adjoints, index, copy);
  if (part->leaf->gradient == NULL) return;
  const double *const own_values = hark_part_gather(part, natural, copy, values);
  if (part->leaf->parameter_count == 1) { /* any number of values, one after another: added where they are needed */
    double *to = gradient + part->parameter_first + (ptrdiff_t)copy * hark_part_own_values(part, 0);
    part->leaf->gradient(own_values, part->constant, run->distances, weights, run->count, to);
    return;
  }
  part->leaf->gradient(own_values, part->constant, run->distances, weights, run->count, sums);
  for (int p = 0; p < part->leaf->parameter_count; p++) {
    const int32_t own = hark_part_own_values(part, p);
    double *to = gradient + hark_part_first(part, p) + (ptrdiff_t)copy * own;
    for (int32_t v = 0; v < own; v++) to[v] += *of_value++;
  }
}

static void backward(const hark_positional *positional, const value_blocks *blocks, const double *natural, const distance_run *run,
                     const double *weights, double *gradient) {
  memcpy(block_of(blocks, blocks->adjoints, 0, 0), weights, (size_t)run->count * sizeof *weights);
  for (int32_t part = 0; part < positional->part_count; part++) {
    const hark_positional_part *of = &positional->parts[part];
    for (int32_t copy = 0; copy < of->components && exists(positional, part, run->side); copy++) {
      if (of->kind == HARK_PART_LEAF)
        collect(of, blocks, part, copy, natural, run, gradient);
      else
        hand_down(positional, blocks, run, part, copy);
    }
  }
}

void hark_positional_log_block(const hark_positional *positional, const double *natural, const double *distances, int64_t count,
                               double *log_values, void *memory) {
  const value_blocks blocks = open_blocks(positional, memory);
  distance_run run;
  for (int64_t start = 0; start < count; start += run.count) {
    take_run(distances + start, count - start, &run);
    forward(positional, &blocks, natural, &run);
    memcpy(log_values + start, block_of(&blocks, blocks.values, 0, 0), (size_t)run.count * sizeof *log_values);
  }
}

void hark_positional_gradient_block(const hark_positional *positional, const double *natural, const double *distances,
                                    const double *weights, int64_t count, double *gradient, void *memory) {
  const value_blocks blocks = open_blocks(positional, memory);
  distance_run run;
  for (int64_t start = 0; start < count; start += run.count) {
    take_run(distances + start, count - start, &run);
    forward(positional, &blocks, natural, &run);
    backward(positional, &blocks, natural, &run, weights + start, gradient);
  }
}

/* Scratch and natural values for one call, in one block of memory. */
typedef struct evaluation_memory {
  double *natural;
  void *scratch, *memory;
  size_t bytes;
} evaluation_memory;

static hark_status begin(hark_context *context, const hark_positional *positional, const double *parameters, const double *distances,
                         int64_t count, evaluation_memory *out) {
  const double least = positional->directed ? -HARK_POSITIONAL_LARGEST_DISTANCE : 0;
  for (int64_t i = 0; i < count; i++) {
    if (!(distances[i] >= least && distances[i] <= HARK_POSITIONAL_LARGEST_DISTANCE))
      return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel: distance %" PRId64 " is %s, expected a number from %s to 2^53",
                       i, HARK_PRINTED(distances[i]), least < 0 ? "-2^53" : "0");
  }
  const size_t natural = hark_align_up((size_t)positional->parameter_count * sizeof(double));
  out->bytes = natural + hark_positional_scratch_bytes(positional);
  HARK_TRY(hark_allocate(context, out->bytes, &out->memory));
  out->natural = out->memory;
  out->scratch = (char *)out->memory + natural;
  const hark_status status = hark_positional_natural(context, positional, parameters, out->natural);
  if (status != HARK_OK) hark_release(context, out->memory, out->bytes);
  return status;
}

static hark_status check_values(hark_context *context, const double *distances, int64_t count, const double *log_values) {
  const size_t bytes = (size_t)hark_max(0, count) * sizeof(double);
  return hark_check_apart(context, "positional kernel: log_values and distances", log_values, bytes, distances, bytes, true);
}

hark_status hark_positional_log(hark_context *context, const hark_positional *positional, const double *parameters, const double *distances,
                                int64_t count, double *log_values) {
  evaluation_memory evaluation;
  HARK_TRY(check_values(context, distances, count, log_values));
  HARK_TRY(begin(context, positional, parameters, distances, count, &evaluation));
  hark_positional_log_block(positional, evaluation.natural, distances, count, log_values, evaluation.scratch);
  hark_release(context, evaluation.memory, evaluation.bytes);
  return HARK_OK;
}

hark_status hark_positional_gradient(hark_context *context, const hark_positional *positional, const double *parameters,
                                     const double *distances, const double *weights, int64_t count, double *gradient) {
  evaluation_memory evaluation;
  const size_t own = (size_t)positional->parameter_count * sizeof(double), given = (size_t)hark_max(0, count) * sizeof(double);
  HARK_TRY(hark_check_apart(context, "positional kernel: gradient and parameters", gradient, own, parameters, own, false));
  HARK_TRY(hark_check_apart(context, "positional kernel: gradient and distances", gradient, own, distances, given, false));
  HARK_TRY(hark_check_apart(context, "positional kernel: gradient and weights", gradient, own, weights, given, false));
  HARK_TRY(begin(context, positional, parameters, distances, count, &evaluation));
  memset(gradient, 0, (size_t)positional->parameter_count * sizeof *gradient);
  hark_positional_gradient_block(positional, evaluation.natural, distances, weights, count, gradient, evaluation.scratch);
  hark_positional_gradient_to_raw(positional, parameters, gradient);
  hark_release(context, evaluation.memory, evaluation.bytes);
  return HARK_OK;
}

/* ---- the terms of the outermost sum ---- */

/* If the part has a term with that index, *found becomes its part and copy. Returns the number of terms of the part. */
static int64_t find_term(const hark_positional *positional, int32_t part, int32_t copy, int64_t index, operands *found) {
  const hark_positional_part *of = &positional->parts[part];
  if (of->kind != HARK_PART_SUM && of->kind != HARK_PART_BANK && of->kind != HARK_PART_DIRECTION) {
    if (index == 0) *found = (operands){.part = part, .copy = copy};
    return 1;
  }
  int64_t count = 0;
  operands at = first_operand(positional, HARK_SIDE_LEFT | HARK_SIDE_RIGHT, part, copy);
  do {
    count += find_term(positional, at.part, at.copy, index - count, found);
  } while (next_operand(positional, of->kind, &at));
  return count;
}

int64_t hark_positional_term_count(const hark_positional *positional) {
  operands found = {0};
  return find_term(positional, 0, 0, -1, &found);
}

hark_status hark_positional_term_log(hark_context *context, const hark_positional *positional, const double *parameters, int64_t term,
                                     const double *distances, int64_t count, double *log_values) {
  evaluation_memory evaluation;
  operands found = {0};
  const int64_t terms = find_term(positional, 0, 0, term, &found);
  const double absent = terms > 1 ? -INFINITY : 0; /* a term of a sum, or all of G */
  if (term < 0 || term >= terms)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "positional kernel: term %" PRId64 ", expected 0 to %" PRId64, term, terms - 1);
  HARK_TRY(check_values(context, distances, count, log_values));
  HARK_TRY(begin(context, positional, parameters, distances, count, &evaluation));
  const value_blocks blocks = open_blocks(positional, evaluation.scratch);
  distance_run run;
  for (int64_t start = 0; start < count; start += run.count) {
    take_run(distances + start, count - start, &run);
    forward(positional, &blocks, evaluation.natural, &run);
    const double *const values = block_of(&blocks, blocks.values, found.part, found.copy);
    for (int i = 0; i < run.count; i++) log_values[start + i] = exists(positional, found.part, run.side) ? values[i] : absent;
  }
  hark_release(context, evaluation.memory, evaluation.bytes);
  return HARK_OK;
}

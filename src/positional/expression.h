/* expression.h - a parsed expression: a tree in prefix order, and the indices of the numbers of its parts.
 *
 *     bank[2](decay*periodic)+rbf          sum --+-- bank[2] -- product --+-- decay
 *                                                |                        +-- periodic
 *                                                +-- rbf
 *
 * A part inside banks exists in `components` copies, the product of the sizes of the banks around it; copy c of a part inside a bank of M
 * belongs to copy c / M of the bank. Parameter p of a leaf has its values at parameter_first + offset(p) * components; the values of
 * component c are contiguous, from c * count(p) on.
 *
 * A part inside left(...) exists only for keys up to the query, one inside right(...) only for keys after it. On a side where none of its
 * operands exists, a sum, product or bank does not exist either. A part that does not exist is left out of the sum or product around it;
 * where nothing exists, G is 1.
 */
#ifndef HARK_POSITIONAL_EXPRESSION_H
#define HARK_POSITIONAL_EXPRESSION_H

#include <hark/positional.h>

#include "core/core.h"
#include "positional/leaf.h"

typedef enum hark_positional_kind {
  HARK_PART_LEAF,
  HARK_PART_SUM,
  HARK_PART_PRODUCT,
  HARK_PART_BANK,
  HARK_PART_DIRECTION /* left(...) or right(...) */
} hark_positional_kind;

typedef struct hark_value_range {
  double low, high;
} hark_value_range;

/* Where a key is. The query itself is on the left. */
enum { HARK_SIDE_LEFT = 1, HARK_SIDE_RIGHT = 2 };

typedef struct hark_positional_part {
  hark_positional_kind kind;
  int32_t column;     /* of its first character, from 1 */
  int32_t size;       /* number of parts of its subtree, including itself: the next sibling is part + size */
  int32_t components; /* copies of this part */
  int32_t bank;       /* BANK: number of components that it sums */
  uint8_t sides;      /* the sides on which this part exists; on the other ones it is left out of sums and products */
  /* LEAF */
  int32_t parameter_first;
  uint8_t fixed;                    /* bit p: parameter p is not learned, and keeps the values of the text */
  uint8_t bounded;                  /* bit p: the natural values of parameter p stay in bounds[p] */
  char label[HARK_LEAF_PARAMETERS]; /* of parameter p: what has the same letter has the same values; 0: none */
  double constant;
  const hark_leaf *leaf;
  hark_value_range bounds[HARK_LEAF_PARAMETERS];
} hark_positional_part;

struct hark_positional {
  size_t bytes; /* of the block that contains everything */
  int32_t part_count;
  int32_t parameter_count;
  int32_t value_count; /* total copies of all parts */
  bool directed;       /* it contains left(...) or right(...) */
  hark_positional_part *parts;
  double *given; /* [parameter_count] natural values in the text; NaN: not given */
};

/* Separates the expressions of a list (list.h). */
#define HARK_POSITIONAL_SEPARATOR '|'

/* As hark_positional_create(), from bytes begin .. end - 1 of a text; columns are those of the whole text. text[end] is its end or a
 * separator. */
HARK_MUST_CHECK hark_status hark_positional_create_between(hark_context *context, const char *text, size_t begin, size_t end,
                                                           hark_positional **out);

/* Values of parameter p of a leaf in each of its components. */
static inline int32_t hark_part_own_values(const hark_positional_part *part, int p) {
  if (part->leaf->parameters[p].sized) return (int32_t)part->constant;
  return part->leaf->parameters[p].count > 0 ? part->leaf->parameters[p].count : 1;
}

/* With all its components. */
static inline int32_t hark_part_values(const hark_positional_part *part, int p) { return hark_part_own_values(part, p) * part->components; }

static inline bool hark_part_is_bounded(const hark_positional_part *part, int p) { return (part->bounded >> p & 1u) != 0; }
static inline bool hark_part_is_fixed(const hark_positional_part *part, int p) { return (part->fixed >> p & 1u) != 0; }

/* The index of the first value of parameter p of a leaf. */
static inline int32_t hark_part_first(const hark_positional_part *part, int p) {
  int32_t first = part->parameter_first;
  for (int before = 0; before < p; before++) first += hark_part_values(part, before);
  return first;
}

/* The natural values of one component of a leaf, in the leaf's order: where they are, or in `values`. */
const double *hark_part_gather(const hark_positional_part *part, const double *natural, int32_t component, double values[HARK_LEAF_VALUES]);

/* A trained number to its natural value and back. */
double hark_transform_natural(hark_transform transform, double raw);
double hark_transform_raw(hark_transform transform, double natural);

/* A leaf differentiates by u: the logarithm of a natural value, or the value where it has a sign. d u / d trained, and d natural / d u. */
double hark_transform_slope(hark_transform transform, double raw);
double hark_transform_scale(hark_transform transform, double natural);

/* The part and the parameter that the values of parameter p of a leaf belong to: the first with its label, or itself. */
typedef struct hark_part_owner {
  const hark_positional_part *part;
  int p;
} hark_part_owner;
hark_part_owner hark_part_owner_of(const hark_positional *positional, const hark_positional_part *part, int p);

/* The natural value at index `place` of parameter p of a leaf, within its bounds. A value given in the text is returned exactly until it is
 * trained; a fixed one always. */
double hark_positional_value(const hark_positional *positional, const hark_positional_part *part, int p, int32_t place, double raw);

/* The natural values of a transform, within the limits; signed ones are stored as they are, in f32 too. */
hark_value_range hark_transform_range(hark_transform transform);

/* --- evaluation without allocation, for the operator ------------------------------------------------------------------------------- */

/* Bytes of scratch, 64-byte aligned, for one worker of hark_positional_log_block and hark_positional_gradient_block. */
size_t hark_positional_scratch_bytes(const hark_positional *positional);

/* Like the public functions, with natural values; distances are not checked. They are signed: where they are below 0 the key is after the
 * query, also for expressions without a direction. Adds to gradient, by logarithms of natural values. */
void hark_positional_log_block(const hark_positional *positional, const double *natural, const double *distances, int64_t count,
                               double *log_values, void *scratch);
void hark_positional_gradient_block(const hark_positional *positional, const double *natural, const double *distances,
                                    const double *weights, int64_t count, double *gradient, void *scratch);

/* Converts gradient[p] from logarithms of natural values to trained numbers. What has one label is added up at its first place; the other
 * places and fixed numbers get 0, and so do numbers beyond a bound where a step against the gradient leads farther away from it. */
void hark_positional_gradient_to_raw(const hark_positional *positional, const double *raw, double *gradient);

#endif

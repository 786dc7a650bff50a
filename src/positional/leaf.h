/* leaf.h - the kernels of which an expression consists: the interface of a kernel, and the table of kernels.
 *
 * A leaf is one file in leaves/ and one row of HARK_LEAVES. It computes its logarithm, and the derivatives of this by the logarithms of its
 * natural values (by the values themselves where these have a sign), for one component and a block of distances. Sums, products, banks,
 * transforms and texts are implemented by the expression.
 */
#ifndef HARK_POSITIONAL_LEAF_H
#define HARK_POSITIONAL_LEAF_H

#include <hark/positional.h>

#include <math.h>

/* X(name), in the order of messages and documentation. */
#define HARK_LEAVES(X)                                                                                                                     \
  X(constant)                                                                                                                              \
  X(decay)                                                                                                                                 \
  X(periodic)                                                                                                                              \
  X(canonical_periodic)                                                                                                                    \
  X(rbf)                                                                                                                                   \
  X(rational_quadratic)                                                                                                                    \
  X(matern32)                                                                                                                              \
  X(matern52)                                                                                                                              \
  X(bump)                                                                                                                                  \
  X(lagged_periodic)                                                                                                                       \
  X(spectral)                                                                                                                              \
  X(alibi)                                                                                                                                 \
  X(kerple_log)                                                                                                                            \
  X(kerple_power)                                                                                                                          \
  X(t5)                                                                                                                                    \
  X(table)                                                                                                                                 \
  X(mlp)                                                                                                                                   \
  X(sandwich)                                                                                                                              \
  X(xpos)                                                                                                                                  \
  X(window)

#define HARK_LEAF_PARAMETERS HARK_POSITIONAL_NAMES
#define HARK_LEAF_SIZE 64                         /* maximum K of a leaf with several parameters that is written name[K] */
#define HARK_LEAF_VALUES (1 + 2 * HARK_LEAF_SIZE) /* maximum values of a component of a leaf with several parameters */

/* From the trained number r to the natural value v. */
typedef enum hark_transform {
  HARK_TRANSFORM_LOG,              /* v = exp(r) */
  HARK_TRANSFORM_CANONICAL_PERIOD, /* 1 / v = (pi / 2) sigmoid(r) */
  HARK_TRANSFORM_SIGNED            /* v = r, of either sign or 0 */
} hark_transform;

/* The initial natural value for training, distributed over S slots (heads times components), slot j from 0; in a leaf that is written
 * name[K] value k of K. */
typedef enum hark_leaf_start {
  HARK_START_ONE,
  HARK_START_JITTERED,       /* near 1, a different value in every slot */
  HARK_START_LENGTH,         /* geometric from 2 to 2 L */
  HARK_START_INVERSE_LENGTH, /* 1 divided by HARK_START_LENGTH's */
  HARK_START_PERIOD,         /* geometric from 3 to L, divided by pi */
  HARK_START_LAG,            /* geometric from 1 to L / 2 */
  HARK_START_KNOT,           /* L^(k / K) / 2 */
  HARK_START_FALL,           /* -1 / K, with a different factor near 1 for every slot */
  HARK_START_HARMONIC,       /* S / (j + 1) */
  HARK_START_SLOPE           /* 2^(-8 (j + 1) / S), if S is a power of two; otherwise as in ALiBi's program (arXiv 2108.12409) */
} hark_leaf_start;

typedef struct hark_leaf_parameter {
  const char *name;
  const char *other_name; /* accepted too; NULL: none */
  double other_factor;    /* value = other_factor * the value given under the other name */
  hark_transform transform;
  hark_leaf_start start;
  double start_factor; /* of the initial value; 0 counts as 1 */
  int32_t count;       /* values of a component; 0 counts as 1 */
  bool sized;          /* it has K values in each component, the leaf is written name[K] */
} hark_leaf_parameter;

typedef struct hark_leaf {
  const char *name;
  const char *formula;
  const char *definite_text; /* "yes", "no", or when */
  const char *text;          /* one sentence for the documentation */
  /* True if the kernel of |n - i| is positive definite; values: natural, of one component, in the order of the parameters. */
  bool (*definite)(const double *values, double constant);
  int parameter_count;
  hark_leaf_parameter parameters[HARK_LEAF_PARAMETERS];
  int32_t size_limit;   /* > 0: written name[K], K up to size_limit, and K is the constant of the functions below */
  int32_t size_least;   /* the least K; 0 counts as 1 */
  int32_t size_default; /* K of the name without [K]; 0: [K] must be written */
  const char *constant; /* name of a whole number >= 0 that must be given and is not learned; NULL: none */
  /* out[i] <- log of the kernel at distance[i] >= 0; -infinity if it is 0 */
  void (*log_value)(const double *values, double constant, const double *distance, int count, double *out);
  /* sums[v] += sum over i of weight[i] d log_value(distance[i]) / d u[v], u = log values[v], or values[v] where the transform is
   * HARK_TRANSFORM_SIGNED; every such term is finite; NULL: no parameters */
  void (*gradient)(const double *values, double constant, const double *distance, const double *weight, int count, double *sums);
} hark_leaf;

/* All leaves; *count is their number. */
const hark_leaf *const *hark_leaves(int *count);

/* For `definite`. */
static inline bool hark_leaf_always(const double *values, double constant) {
  (void)values, (void)constant;
  return true;
}
static inline bool hark_leaf_never(const double *values, double constant) {
  (void)values, (void)constant;
  return false;
}

#define HARK_LEAF_DECLARE(name) extern const hark_leaf hark_leaf_##name;
HARK_LEAVES(HARK_LEAF_DECLARE)
#undef HARK_LEAF_DECLARE

/* Parameters that several leaves have. */
#define HARK_LEAF_SIGMA2                                                                                                                   \
  { .name = "sigma2", .start = HARK_START_ONE }
#define HARK_LEAF_LENGTH                                                                                                                   \
  { .name = "l", .other_name = "length_scale", .other_factor = 1, .start = HARK_START_LENGTH }

#endif

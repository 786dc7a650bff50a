/* fit.h - positional kernels fitted to a table of log G, for instance one that a head has learned.
 *
 * Attention weights do not depend on a common factor of G. With the fraction p[d] of a head's attention that falls on distance d, and the
 * difference e = log G - table, a kernel turns p into q, proportional to p exp(e). What it loses against the table is
 *
 *     D = sum over d of p[d] log(p[d] / q[d]) = log(sum over d of p[d] exp(e[d])) - sum over d of p[d] e[d]
 *
 * nats: the Kullback-Leibler divergence of the two distributions, if every query sees all distances. To second order it is half the
 * variance of e under p.
 */
#ifndef HARK_POSITIONAL_FIT_H
#define HARK_POSITIONAL_FIT_H

#include <hark/positional.h>

typedef struct hark_fit_target {
  int64_t count;           /* distances 0 .. count - 1 */
  const double *log_table; /* [count] finite */
  const double *weights;   /* [count] at least 0, their sum is 1 */
} hark_fit_target;

/* D of an expression with these parameters; +infinity where log G is not finite at a distance with weight. */
HARK_MUST_CHECK hark_status hark_fit_divergence(hark_context *context, const hark_positional *expression, const hark_fit_target *target,
                                                const double *parameters, double *divergence);

/* Improves the learned parameters from a start by the method of Levenberg and Marquardt until D does not decrease any more. Natural values
 * stay in ranges in which they differ on whole distances (fit.c: l from 0.25, tau from 0.6, ...). Errors: HARK_OUT_OF_MEMORY,
 * HARK_NOT_FINITE for a start outside the range of parameters. */
HARK_MUST_CHECK hark_status hark_fit_improve(hark_context *context, const hark_positional *expression, const hark_fit_target *target,
                                             double *parameters, double *divergence);

/* How an expression is grown. */
typedef struct hark_grow_options {
  int terms;     /* kernels at most; a constant counts as a term of a sum, not as a factor */
  double price;  /* nats by which each parameter must reduce D */
  int periods;   /* how many periods, and lags, are tried as starts for each added kernel */
  bool definite; /* only kernels that are positive definite */
} hark_grow_options;

#define HARK_GROWN_BYTES 2048
typedef struct hark_grown {
  char text[HARK_GROWN_BYTES]; /* the expression with its values */
  int terms;
  int64_t parameters;
  double divergence; /* D */
  double constant;   /* D of no kernel at all */
} hark_grown;

/* Grows an expression: begins with the kernel of least D + price * parameters, and adds or multiplies another one as long as that decreases
 * this sum. Every candidate is fitted from several starts: lengths, and the lags and periods at which the table is farthest above the
 * current expression. A target that a constant fits gives "constant(sigma2=1!)". Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_fit_grow(hark_context *context, const hark_fit_target *target, const hark_grow_options *options,
                                          hark_grown *out);

#endif

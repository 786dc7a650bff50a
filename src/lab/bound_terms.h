/* bound_terms.h - the terms of the generalisation bound of a network of model.architecture latent (X, theorem C.4 and lemma C.9), as
 * printed and corrected.
 *
 * Legend, layer t: ax, as operator norms of A^x', A^s' and Rx, Rs their (r, s)-norms; w^q, w^k, w^v and R^q, R^k, R^v those of each head;
 * skip is 1 or 0, R(t) bounds the rows of the layer's input.
 *
 *                printed                                            corrected
 *   alpha        skip + ax as                                       the same
 *   omega        skip + sum w^v                                     the same
 *   R(t + 1)     omega alpha R(t)                                   the same
 *   rho          omega + max(w^q + w^k)^2 sum w^v R^2               omega + sum (w^q + w^k)^2 w^v (alpha R)^2 / sigma^2
 *   R_mha        sum R^v + max(w^q + w^k) sum (R^q + R^k) R^2       sum R^v + sum (w^q + w^k) w^v (R^q + R^k) (alpha R)^2 / sigma^2
 *   gamma        max(alpha, omega)                                  the same
 *   kappa        max((ax Rs + as Rx) / alpha, R^v / omega,          .., sum (w^q + w^k) w^v (R^q + R^k) / sum (w^q + w^k)^2 w^v)
 *                    sum (R^q + R^k) / (max(w^q + w^k) sum w^v))
 *   zeta         max(w^q + w^k)^2 sum R^v / omega                   sum (w^q + w^k)^2 w^v / (sigma^2 omega)
 *
 * where sigma^2 is divided by d_p for r = infinity: the kernel is Euclidean, and only for r <= 2 the r-norm is at least the 2-norm. Hence
 * R_mha <= kappa rho and rho = omega (1 + zeta (alpha R)^2). With layer norm before both parts the norm of their inputs is at most nu,
 * which replaces R and alpha R. (C.20) has R where lemma C.14 is applied to rows of size alpha R (C.44); the other corrections:
 * docs/mathematics/latent-variables.md.
 *
 * The covering number: with every weight within x times its (r, s)-bound of a net the output is within x M, so that
 *
 *     printed    (4 + h) D^2 T log(1 + 2 R(T) R_trans / e),
 *                    R_trans = sum over t of (R_mha/rho [t < T - 1] + F) prod over u > t of rho/omega
 *     corrected  weights log(1 + 2 M / e),   M = Lambda R(T) R_trans + A + P |W|,
 *                    the last attention too, prod over u >= t,  F = (ax Rs + as Rx) / alpha
 *
 * where Lambda is the aggregation's Lipschitz constant in its rows, A how far its own weights move the pooled row, P the size of that row,
 * W the last matrix: for the mean 1, 0, R(T). Layer norm has no Lipschitz constant at rows that hardly vary, so it has no covering number
 * here.
 */
#ifndef HARK_LAB_BOUND_TERMS_H
#define HARK_LAB_BOUND_TERMS_H

#include "lab/lab.h"
#include "nn/parameters.h"

/* An operator norm and an (r, s)-norm. */
typedef struct hark_bound_pair {
  double a, b;
} hark_bound_pair;

typedef struct hark_bound_head {
  hark_bound_pair query, key, value;
} hark_bound_head;

/* All that the terms depend on: norms of a network's matrices, or the bounds of its class. */
typedef struct hark_bound_network {
  int64_t layers, heads;                     /* T, h */
  int64_t width, inner, head_dim, responses; /* d, d_sigma, d_p, d_y */
  bool single;                               /* section 5.1: the only attention is that of the aggregation, and there is no A^s */
  bool query;                                /* aggregated by a class query */
  double sigma_square;
  hark_bound_norm norm;         /* r */
  hark_bound_pair *up, *down;   /* [layers]: A^x', A^s' */
  hark_bound_head *attention;   /* [layers, heads] */
  hark_bound_head *aggregation; /* [heads], with query and not single */
} hark_bound_network;

typedef struct hark_bound_layer {
  double radius, gamma, kappa_printed, kappa, zeta_printed, zeta, rho_printed, rho;
  double alpha, omega, features, mha_printed, mha, inner_radius; /* features: (ax Rs + as Rx) / alpha; what the attention reads */
} hark_bound_layer;

/* Memory of the lab for the extents that are set; the norms are 0. */
HARK_MUST_CHECK hark_status hark_bound_make(hark_lab *lab, hark_bound_network *network);

/* Multiplies weights in f64 by `factor` and projects them: a factor large enough puts every matrix on its bounds. */
HARK_MUST_CHECK hark_status hark_bound_press(hark_lab *lab, hark_parameters *parameters, double factor);

/* The terms of every layer: out [layers]. radius: of the tokens. Returns R(T). */
double hark_bound_layers(const hark_bound_network *network, double radius, bool skip, bool layer_norm, hark_bound_layer *out);

typedef struct hark_bound_sum {
  double gamma, kappa, zeta; /* corrected, the largest of all layers */
  double printed, corrected; /* D^2 / sqrt(n) [...] sqrt(h T), without the constant; corrected: twice that, as the loss is 2-Lipschitz */
  double covering_printed, covering; /* log of the covering number at 1 / sqrt(n), see above */
  double moved;                      /* M */
  double aggregation;                /* Lipschitz constant of the aggregation, where assumption C.2 has 1 */
} hark_bound_sum;
/* Of all layers, with n examples. */
hark_bound_sum hark_bound_all(const hark_bound_network *network, const hark_bound_layer *layers, double last_radius, double examples);

#endif

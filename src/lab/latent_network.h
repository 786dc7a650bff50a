/* latent_network.h - the attention networks of X section 5 on sequences of tokens, with gradients, in float64; attention is hark's
 * operator.
 *
 *     N(x) = a relu(A' x),   q = W^q' N(msk),   k_l = W^k' N(x_l),   v_l = W^v' N(x_l)                        (X eq. 4.7, 5.1)
 *     o = attn(q, K, V),  kernel exp(-|q - k|^2 / (2 s2)),      t = b u.o,      f = tanh(2 t) / 2  in (-1/2, 1/2), or t
 *
 * The aggregation u.o with |u| <= 1, bent into Y = [-1/2, 1/2], is 1-Lipschitz (Theorem 5.3). a, b: 1, or 1/sqrt(width) in the scaling
 * where wide networks become linear in their parameters (X 5.3). Legend: n sequences, L tokens, d their features, m width, d_p of queries
 * and keys, d_v of values. Cost O(n L m (d + d_p + d_v)).
 */
#ifndef HARK_LAB_LATENT_NETWORK_H
#define HARK_LAB_LATENT_NETWORK_H

#include "lab/attention.h"

typedef struct hark_lab_network {
  int64_t dim, width, head_dim, value_dim; /* d, m, d_p, d_v */
  int64_t length, most;                    /* L; n at most */
  double variance;                         /* s2 */
  double feature_scale, output_scale;      /* a, b */
  bool unbounded;                          /* f = t */
  int64_t weights;                         /* how many, written by hark_lab_make_network() */
  hark_lab_batch batch;                    /* out: o [n, d_v] of the last forward */
  double *features, *of_masks, *f;         /* N(x) [n, L, m], N(msk) [n, m], f [n] of the last forward */
  double *slopes, *of_mask_slopes;
} hark_lab_network;

/* Sequences, and the mask of each. */
typedef struct hark_lab_sequences {
  int64_t count;
  const double *tokens; /* [n, L, d] */
  const double *masks;  /* [n, d], or [d] for all with one_mask */
  bool one_mask;
} hark_lab_sequences;

/* The places of the weights in a vector of all of them: A [d, m], W^q, W^k [m, d_p], W^v [m, d_v], u [d_v], one after the other. */
typedef enum hark_lab_weight { HARK_LAB_A, HARK_LAB_WQ, HARK_LAB_WK, HARK_LAB_WV, HARK_LAB_U, HARK_LAB_WEIGHTS } hark_lab_weight;
typedef struct hark_lab_place {
  int64_t first, rows, columns;
} hark_lab_place;
hark_lab_place hark_lab_weight_place(const hark_lab_network *network, hark_lab_weight weight);

/* Memory of the lab for the extents that are set. */
HARK_MUST_CHECK hark_status hark_lab_make_network(hark_lab *lab, hark_lab_network *network);

/* network->f, also network->batch.out. */
HARK_MUST_CHECK hark_status hark_lab_network_forward(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data,
                                                     const double *weights);
/* gradient [weights] <- sum over sequences of df[i] d f_i / d weights, after the forward of the same data and weights. */
HARK_MUST_CHECK hark_status hark_lab_network_backward(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data,
                                                      const double *weights, const double *df, double *gradient);

/* Mean square error against y, and its gradient. `residuals` [n] is scratch. */
HARK_MUST_CHECK hark_status hark_lab_network_loss(hark_context *context, hark_lab_network *network, const hark_lab_sequences *data,
                                                  const double *y, const double *weights, double *residuals, double *loss,
                                                  double *gradient);

/* Cuts the 2-norm of A and of every W at `bound`, and that of u at 1: the parameters of Assumption 5.1. */
void hark_lab_network_project(const hark_lab_network *network, double bound, double *weights);

#endif

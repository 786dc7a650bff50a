/* ratios.h - inequalities about layers, as printed in X and corrected: the ratio of their left to their right side.
 *
 * Legend: X [L, d] rows of tokens, |X| the largest row (2-norm); W^q, W^k [d, d_p], W^v [d, d], h heads, d = h d_p; w bounds of operator
 * norms, e Frobenius norms of changes; s2 the kernel's sigma^2; mha(X; W) = sum over heads of RBF attention (X C.3), ffn(X; A) = X + relu(X
 * A) A'.
 */
#ifndef HARK_LAB_RATIOS_H
#define HARK_LAB_RATIOS_H

#include "lab/lab.h"

typedef enum hark_lab_lemma {
  HARK_LAB_C11,      /* |ffn(X; A) - ffn(X; A^)| <= R (alpha e' + alpha' e) */
  HARK_LAB_C12,      /* |mha(X; W) - mha(X; W^)|, W^q and W^k changed: <= R^3 sum (w^q + w^k) (e^q + e^k) [w^v / s2] */
  HARK_LAB_C13,      /* the same with W^v changed too: + R sum e^v; the basis of the cover of C.13 */
  HARK_LAB_C14,      /* |mha(X; W) - mha(X^; W)| <= (sum w^v + R^2 sum (w^q + w^k)^2 w^v [/ s2]) |X - X^| */
  HARK_LAB_F5,       /* |p(q, K) - p(q, K^)|_1 <= (|q| + |K|) |K - K^|  [(|q| + max(|K|, |K^|)) / s2] */
  HARK_LAB_F6,       /* |p(q, K) - p(q^, K)|_1 <= (|q| + |K|) |q - q^|  [/ s2] */
  HARK_LAB_G6_HEADS, /* |mha(X; W) + X| <= (1 + sum w^v) R */
  HARK_LAB_G6_FFN    /* |ffn(X; A)| <= (1 + alpha alpha') R */
} hark_lab_lemma;
#define HARK_LAB_LEMMAS "C.11|C.12|C.13|C.14|F.5|F.6|G.6 heads|G.6 ffn"

#define HARK_LAB_LARGEST_LAYER 16 /* of L and of d */

typedef struct hark_lab_layer {
  int64_t heads, head_dim, length;
  double radius;     /* R */
  double value_norm; /* w^v; alpha' of an ffn */
  double query_norm; /* w^q = w^k; alpha of an ffn */
  double variance;   /* s2 */
} hark_lab_layer;

/* Left side over right side. */
typedef struct hark_lab_ratio {
  double printed, corrected;
} hark_lab_ratio;

/* The largest ratios that `restarts` searches of `steps` steps from normal numbers find (streams first, first + 1, ..); the search
 * maximises the corrected one. It scales weights to their bounds, so every point that it evaluates is an instance of the lemma.
 * HARK_TOO_LARGE beyond HARK_LAB_LARGEST_LAYER. */
HARK_MUST_CHECK hark_status hark_lab_largest_ratio(hark_lab *lab, hark_lab_lemma lemma, const hark_lab_layer *layer, int restarts,
                                                   int steps, uint32_t first, hark_lab_ratio *out);

/* |p(q, K) - p(q, K^)|_1 of softmax weights of the kernel exp(-|q - k|^2 / (2 s2)); K, K^ [L, dim], L at most
 * HARK_LAB_LARGEST_LAYER. */
HARK_MUST_CHECK hark_status hark_lab_weights_distance(hark_lab *lab, double variance, int64_t length, int64_t dim, const double *q,
                                                      const double *q_changed, const double *k, const double *k_changed, double *out);

#endif

/* masked_network.h - a small attention network that predicts masked responses of a Gaussian process, trained; and what it should predict.
 *
 *     r_l = z phi(c_l) + N(0, s2 I) in R^dv,  h = z phi(c_msk),  z [dv, 32] ~ N(0, I),  s2 = .1
 *     phi: gaussian_process.h with the width 1/2
 *     o = attention(c_msk, c, r),   features = o A [k],   f = features P [m];        trained: sigma, the ridge of CME, A and P
 *     h | X ~ N(mean, variance I)                                              by CME attention with sigma = 1/2 and lambda = s2 (X 5.7)
 *
 * Every sequence has its own mask. Attention is CME, or softmax with the same kernel. Cost of a pass O(n L^2 (L + dv)). Source: X sections
 * 5, 6.
 */
#ifndef HARK_LAB_MASKED_NETWORK_H
#define HARK_LAB_MASKED_NETWORK_H

#include "lab/attention.h"
#include "lab/descent.h"

enum { HARK_LAB_MASKED_VALUES = 2, HARK_LAB_MASKED_FEATURES = 2, HARK_LAB_MASKED_TARGETS = 3 }; /* at most */
#define HARK_LAB_MASKED_NOISE 0.1                                                               /* s2 */
#define HARK_LAB_MASKED_WIDTH 0.5

typedef struct hark_lab_masked {
  hark_lab *lab;
  bool softmax;
  int64_t count, length, values, features, targets; /* n, L, dv, k, m */
  hark_lab_batch batch, exact;                      /* exact.out: mean [n, dv]; exact.variance [n] */
  double *latent, *target;                          /* h [n, dv]; what f is trained to be [n, m], filled by the caller */
  hark_lab_descent descent;                         /* descent.x: log sigma, log ridge, A [dv, k], P [k, m] */
} hark_lab_masked;

/* Memory of the lab for the members `softmax` to `targets`, which are set. */
HARK_MUST_CHECK hark_status hark_lab_make_masked(hark_lab *lab, hark_lab_masked *network);

/* New sequences from streams stream .. stream + 3, covariates uniform on [-1, 1], and the posteriors. The masks are those of the same
 * streams, moved by `shift`, at most 1, towards the middle and perhaps beyond it. */
HARK_MUST_CHECK hark_status hark_lab_draw_masked(hark_lab_masked *network, uint32_t stream, double shift);

/* Random weights with sigma = ridge = 1; L-BFGS of the mean square |f - target|^2 from there. */
void hark_lab_start_masked(hark_lab_masked *network, uint32_t stream);
HARK_MUST_CHECK hark_status hark_lab_train_masked(hark_lab_masked *network, int evaluations);

/* features [n, k] and f [n, m] for the present sequences and weights. */
HARK_MUST_CHECK hark_status hark_lab_apply_masked(hark_lab_masked *network, double *features, double *f);

#endif

/* regressor.h - regression within a context: from pairs of inputs and targets to predictions, with their variances, at further inputs (X,
 * Zhang et al., arXiv 2212.14852: attention as a conditional mean embedding, whose variance is B.1). docs/mathematics/regressor.md.
 *
 * A table has n rows of context, inputs x_i and targets y_i, and m queries, inputs alone. F numbers of an input, R targets of a row, W
 * features of a row within the network, P Gaussian processes with d features each. There is no order of rows, and no positions.
 *
 *   rows        u = A x of every row; pairs p_i = A x_i + C y_i of the context
 *   blocks      rows and pairs attend to the pairs of their table (softmax or kernel ridge), then a feed-forward layer; both have the same
 *               weights. So a row depends on its own inputs and on the context, not on other queries
 *   summary     s: the mean over the pairs of a table
 *   features    phi = softplus(G s) (S x + T u), of P d numbers: a kernel of each process, exp(-|phi - phi'|^2 / 2), whose length scales
 *               depend on the context
 *   noise       nu = least_noise + softplus(N u), of every row and process
 *   head        the posterior of every process at the queries (operator kernel_ridge_posterior), mixed by their evidences
 *               (posterior_mixture): mean and logarithm of the variance of every target
 *   smoother    in place of the posterior: softmax attention with these kernels to the targets and their squares, mixed by L u*
 *               (smoother_mixture)
 *   classes     with the loss `classes`, the target of a row is its class, one of R: y_i has 1 - f at its class and -f at the others, with
 *               f the frequencies of the classes in the context. The results are logits, scaled means plus log f (class_logits)
 *
 * Parameters: input.{weight,bias} [W, F], target.weight [W, R], blocks.N as in network.h, final_norm.{weight,bias},
 * head.{input,row}.weight [P d, F], [P d, W], head.gate.{weight,bias} [P d, W], head.noise.{weight,bias}, head.logit.{weight,bias} [P, W],
 * head.prior [3] of posteriors, and with classes head.class_scale [2].
 */
#ifndef HARK_MODELS_REGRESSOR_H
#define HARK_MODELS_REGRESSOR_H

#include "models/network.h"

typedef struct hark_regressor_layers {
  hark_block *blocks; /* [layers] */
  hark_linear input, target;
  hark_linear kernel_input, kernel_row, gate, noise, logit;
  hark_parameter_id prior, class_scale;
  double *initial_gate; /* given initial values */
  size_t bytes;         /* of the whole struct, one allocation */
} hark_regressor_layers;

/* The plan of the head, for passes of these sizes. The caller destroys it. */
HARK_MUST_CHECK hark_status hark_regressor_plan(hark_context *context, const hark_network *network, const hark_pass_sizes *sizes,
                                                bool training, hark_attention_plan **out);

#endif

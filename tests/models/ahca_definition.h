/* ahca_definition.h - what an AHCA model tells of one sequence, from its definition (docs/mathematics/ahca.md), in doubles.
 *
 * Independent of the library: no operator, layer or tape of it, but the configuration and the weights, which are read by their names. A sequence is
 * told alone, so that there is nothing ragged. Left out: semantic and given chunks, a given selection, medoids, real vectors, positional kernels,
 * attention of other structures than dense.
 */
#ifndef HARK_TESTS_AHCA_DEFINITION_H
#define HARK_TESTS_AHCA_DEFINITION_H

#include "models/network.h"

#define AHCA_DEFINITION_PARAMETERS 128

typedef struct ahca_definition {
  hark_context *context;
  const hark_network *network;
  double remaining; /* as hark_network_input.remaining */
  /* What was seen so far. */
  bool read[AHCA_DEFINITION_PARAMETERS]; /* which parameters */
  double margin;                         /* how near a decision came to the other one; open with INFINITY */
  int64_t forced, suppressed;            /* boundaries that maximum and minimum decided */
  int64_t left_out;                      /* global tokens that were not selected */
  int64_t shallow, deep;                 /* units that have fewer layers than all, and all */
  double penalty;                        /* ratio and ponder losses, weighted, with weight 1 of a sequence */
} ahca_definition;

/* Logits of `count` >= 1 tokens: [classes], or [count, vocabulary] where tokens are told. */
void ahca_definition_logits(ahca_definition *d, const int32_t *tokens, int64_t count, double *logits);

#endif

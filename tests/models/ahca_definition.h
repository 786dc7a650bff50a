/* ahca_definition.h - the predictions of an AHCA model for one sequence, from its definition (docs/mathematics/ahca.md), in doubles.
 *
 * Independent of the library: no operator, layer or tape of it, but the configuration and the weights, which are read by their names. A
 * sequence is computed alone, so that there is nothing ragged. Of positional kernels it has "decay" and "decay * periodic", of structures
 * dense, window and hierarchical (neighbour, mean queries, both interpolations).
 */
#ifndef HARK_TESTS_AHCA_DEFINITION_H
#define HARK_TESTS_AHCA_DEFINITION_H

#include "models/network.h"

#define AHCA_DEFINITION_PARAMETERS 192

typedef struct ahca_definition {
  hark_context *context;
  const hark_network *network;
  double remaining; /* as hark_network_input.remaining */
  /* What was seen so far. */
  bool read[AHCA_DEFINITION_PARAMETERS]; /* which parameters */
  double margin;                         /* how near a decision came to the other one; open with INFINITY */
  int64_t by_rule, forced, suppressed;   /* boundaries of the rule, and those that maximum and minimum decided */
  int64_t left_out;                      /* global tokens that were not selected */
  int64_t shallow, deep;                 /* units that have fewer layers than all, and all */
  int64_t coarse, masked;                /* pairs of slots that meet as cells, and that a window masks */
  double penalty;                        /* ratio and ponder losses, weighted, with weight 1 of a sequence */
} ahca_definition;

/* A sequence, and what the caller decides in place of the rules. */
typedef struct ahca_sequence {
  int64_t count; /* of tokens, at least 1 */
  const int32_t *tokens;
  const double *vectors; /* [count, features], where the model reads these; else NULL */
  const int64_t *starts; /* the first tokens of the chunks, and `count` after them; NULL: by the rule */
  int64_t chunks;
  const int64_t *chosen; /* rows of C2, ascending; NULL: by the rule */
  int64_t selected;
  const double *depth_scores; /* of the chunks, in place of theirs and of gates; NULL: theirs */
  bool without_smoothing;
} ahca_sequence;

/* Logits: [classes], or [count, vocabulary] if tokens are predicted. */
void ahca_definition_logits(ahca_definition *d, const ahca_sequence *sequence, double *logits);

#endif

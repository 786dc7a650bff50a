/* attention_matrices.h - the matrices of one head in the definition of attention, shared by its files. */
#ifndef HARK_TESTS_ATTENTION_MATRICES_H
#define HARK_TESTS_ATTENTION_MATRICES_H

#include "support/attention_definition.h"

#define FEW_ROUNDINGS 4.0

/* [rows, columns] each; errors are in units of the roundoff u. */
typedef struct head_matrices {
  int64_t rows, columns;
  double *logit, *weight, *factor, *gradient; /* S, P, M, dS; weight < 0: hidden */
  double *logit_error, *gradient_error;
  double *product, *product_error; /* scale q.k */
  double *through, *through_error; /* the gradient of scale q.k, or of -|q - k|^2 / (2 sigma^2): dS, and what comes by other paths */
  double *position, *position_error;
  int64_t *distance, *column; /* column: in the table of log G */
} head_matrices;

/* Adds to a result and its bound. */
void attention_add_result(attention_expected *e, attention_array array, int64_t index, double value, double bound);

/* Contextual positions (attention_contextual.c): adds their terms to the logits of row n of head h of item b, from its visible entries. */
void attention_contextual_logits(const attention_problem *p, head_matrices *m, int64_t b, int64_t h, int64_t n);
/* Their gradients from dS of the row: adds to `through`, and to what queries and the table get from scale q.e. */
void attention_contextual_gradients(const attention_problem *p, attention_expected *e, head_matrices *m, int64_t b, int64_t h, int64_t n);

#endif

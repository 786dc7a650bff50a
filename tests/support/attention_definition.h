/* attention_definition.h - attention from its definition: the full matrix of logits in double, forward and backward, with error bounds.
 *
 * Independent of the library: nothing of it is called but the random words of dropout.
 */
#ifndef HARK_TESTS_ATTENTION_DEFINITION_H
#define HARK_TESTS_ATTENTION_DEFINITION_H

#include "support/attention_case.h"

/* Results of a problem, and for each element an error bound in units of the roundoff u of the type that was computed in (u = 2^-24 for f32). */
typedef struct attention_expected {
  attention_numbers array[ARRAY_COUNT]; /* ARRAY_OUT and after it */
  double *bound[ARRAY_COUNT];
} attention_expected;

void attention_expected_make(const attention_problem *problem, attention_expected *out);
void attention_expected_free(attention_expected *expected);

#endif

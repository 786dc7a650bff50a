/* attention_definition.h - attention from its definition: the full matrix of logits in double, forward and backward, with error bounds.
 *
 * Independent of the library: nothing of it is called but the random words of dropout.
 */
#ifndef HARK_TESTS_ATTENTION_DEFINITION_H
#define HARK_TESTS_ATTENTION_DEFINITION_H

#include "support/attention_case.h"

/* Results of a problem, and for each element an error bound in units of the roundoff u of the type that was computed in (u = 2^-24 for
 * f32). */
typedef struct attention_expected {
  attention_numbers array[ARRAY_COUNT]; /* ARRAY_OUT and after it */
  double *bound[ARRAY_COUNT];
} attention_expected;

void attention_expected_make(const attention_problem *problem, attention_expected *out);
/* The same for hierarchical and for compressed cases; called by attention_expected_make. `out` is zeroed and has its arrays. */
void attention_expected_hierarchical(const attention_problem *problem, attention_expected *out);
void attention_expected_compressed(const attention_problem *problem, attention_expected *out);

/* The level that covers query n and key i in blocks of `block` tokens: the least on which their blocks are the same or beside each other,
 * or with siblings have the same parent. */
int attention_covering_level(int64_t block, bool sibling, int64_t n, int64_t i);

void attention_expected_free(attention_expected *expected);

#endif

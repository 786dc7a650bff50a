/* reviews.h - masked pre-training on bytes of labelled texts, freezing, and a new aggregation: real text for the experiment downstream.
 *
 *     x_l = E[byte l] + P[l],  l = 1 .. 64;
 *     networks of X 5.1:  N(x) = relu(A' x),  k_l = W^k' N(x_l),  v_l = W^v' N(x_l),  q = W^q' N(P[position])
 *     pre-training:  eight bytes are masked; a linear layer predicts each from o = attn(q, K, V) at its position, with cross-entropy
 *     downstream:    y^ = theta.o at the middle position, nothing masked, against the label, -1/2 or 1/2
 *
 * Source: X section 6; the gap: aggregation.h.
 */
#ifndef HARK_LAB_REVIEWS_H
#define HARK_LAB_REVIEWS_H

#include "lab/lab.h"

/* Refuses a file in one line: HARK_BAD_FILE where a line does not begin with a label 0 or 1 and a tab, or where too few texts have 64 bytes
 * or more. */
HARK_MUST_CHECK hark_status hark_lab_check_reviews(hark_context *context, const char *path);

/* Adds a table of gaps over the widths of the frozen networks and n; the second function adds its criteria. Errors: those of the check. */
HARK_MUST_CHECK hark_status hark_lab_measure_reviews(hark_lab *lab, const char *path);
HARK_MUST_CHECK hark_status hark_lab_judge_reviews(hark_lab *lab, const hark_lab_table *table);

#endif

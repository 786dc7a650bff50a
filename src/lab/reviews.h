/* reviews.h - masked pre-training on bytes of labelled texts, frozen, and a new aggregation: the real text of the experiment downstream.
 *
 *     x_l = E[byte l] + P[l],  l = 1 .. 64;   networks of X 5.1:  N(x) = relu(A' x),  k_l = W^k' N(x_l),  v_l = W^v' N(x_l),  q = W^q' N(P[place])
 *     pre-training:  eight bytes are hidden, and each is told from o = attn(q, K, V) at its place, by a linear layer and cross-entropy
 *     downstream:    y^ = theta.o at the middle place, nothing hidden, against the label, -1/2 or 1/2
 *
 * Source: X section 6; the gap: aggregation.h.
 */
#ifndef HARK_LAB_REVIEWS_H
#define HARK_LAB_REVIEWS_H

#include "lab/lab.h"

/* Refuses a file in one line: HARK_BAD_FILE where a line has no label 0 or 1 in front of a tab, or where too few texts are of 64 bytes or
 * more. */
HARK_MUST_CHECK hark_status hark_lab_check_reviews(hark_context *context, const char *path);

/* Adds a table of gaps over the widths of what is frozen and n, and the criteria about it. Errors: those of the check. */
HARK_MUST_CHECK hark_status hark_lab_measure_reviews(hark_lab *lab, const char *path);
HARK_MUST_CHECK hark_status hark_lab_judge_reviews(hark_lab *lab, const hark_lab_table *table);

#endif

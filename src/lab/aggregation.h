/* aggregation.h - a linear aggregation of eight frozen features, fitted by least squares to n sequences: the gap between its loss on new
 * sequences and on those n.
 *
 *     y^ = theta.o,   o [8];     gap = E (y - y^)^2 - (1/n) sum (y_i - y^_i)^2       (X section 6)
 *     theta = (sum o o' + ridge I)^-1 sum o y
 *
 * Expectations are means over another pool of sequences. The loss of the best theta there is subtracted from both losses: this does not
 * change their mean difference, and removes its scatter, which is larger than the gap. Least squares on normal features that predict y up
 * to noise of variance s2 have  gap = s2 (p/n + p/(n - p - 1)),  p = 8.
 *
 * The theorem is about aggregations of bounded weights; a ridge bounds them softly. Without it, a feature that few of the n sequences
 * have gets a weight that is all noise, and one sequence that has it costs more than all others. To first order in 1/n the gap is that of d
 * free weights, where l_k are the eigenvalues of E o o':      gap = 2 s2 d / n,   d = sum_k l_k / (l_k + ridge/n) <= p
 */
#ifndef HARK_LAB_AGGREGATION_H
#define HARK_LAB_AGGREGATION_H

#include "lab/fit.h"
#include "lab/lab.h"

enum { HARK_LAB_AGGREGATION = 8 }; /* p */

/* Frozen features of many sequences, and their targets. */
typedef struct hark_lab_pool {
  int64_t count;
  double *features, *means, *y; /* [count, p], [count] the part of y that is known, [count] */
  double noise;                 /* E (y - mean)^2; 0 where nothing is known and means are y */
  double ridge;                 /* of fits to n of its sequences; 0 at first */
} hark_lab_pool;
HARK_MUST_CHECK hark_status hark_lab_make_pool(hark_lab *lab, int64_t count, double noise, hark_lab_pool *out);

/* theta = (F'F + ridge I)^-1 F'y by eigenvectors of F'F: directions below 1e-13 of the largest are left out. Returns the number of the
 * others. */
int hark_lab_fit_aggregation(int64_t count, const double *features, const double *y, double ridge, double theta[HARK_LAB_AGGREGATION]);

/* Second moments of a pool, so that its loss costs p^2 instead of its sequences: E (m - theta.o)^2 = E m^2 - 2 b.theta + theta'G theta */
typedef struct hark_lab_moments {
  double square, cross[HARK_LAB_AGGREGATION], gram[HARK_LAB_AGGREGATION * HARK_LAB_AGGREGATION];
} hark_lab_moments;
hark_lab_moments hark_lab_moments_of(const hark_lab_pool *population);
double hark_lab_loss_from(const hark_lab_moments *moments, const double *theta);

/* Adds the gaps of pieces of n sequences. `best`: the theta that is best on the population. */
void hark_lab_add_gaps(const hark_lab_pool *pieces, const hark_lab_moments *population, const double *best, int64_t n, hark_lab_mean *gap);

/* 2 loss d / n, see above. */
double hark_lab_first_order_gap(const hark_lab_moments *moments, double loss, double ridge, double n);

/* For normal features without a ridge, see above. */
static inline double hark_lab_expected_gap(double loss, double n) {
  return loss * (HARK_LAB_AGGREGATION / n + HARK_LAB_AGGREGATION / (n - HARK_LAB_AGGREGATION - 1));
}

/* Columns of a table of gaps over widths and n (expected: the one of hark_lab_expected_gap()). The verdict, over all widths: the largest
 * ratio to the expected gap; the least ratio to the first order from n = HARK_LAB_MANY on, where it is most of the gap; the largest slope
 * in n. */
#define HARK_LAB_MANY 256
typedef struct hark_lab_gap_columns {
  int width, count, gap, expected, first_order;
} hark_lab_gap_columns;
typedef struct hark_lab_gap_verdict {
  double least, largest, shallow;
} hark_lab_gap_verdict;
hark_lab_gap_verdict hark_lab_judge_gaps(const hark_lab_table *table, hark_lab_gap_columns at);

/* A panel of gaps over n: points of every width, the first one's expectation as a line. */
HARK_MUST_CHECK hark_status hark_lab_draw_gaps(hark_lab *lab, const char *title, const hark_lab_table *table, hark_lab_gap_columns at,
                                               const int64_t *widths, int width_count);

#endif

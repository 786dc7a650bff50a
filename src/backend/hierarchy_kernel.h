/* hierarchy_kernel.h - the term that a positional kernel adds to the logits of a hierarchy: the logarithm of the mean of G over two cells.
 *
 *     coarse queries   mean[l][t] = log of the mean of G(|n - i|) over rows n of a cell and keys i of a cell t tokens of level l away
 *     exact            mean[l][x] = log of the mean of G over a cell of 2^l keys, the farthest of which is x away from the query
 *
 * All pairs of two cells that meet have the same direction, except within a cell and its neighbours on level 0, where cells are rows. So a
 * table with directions has such means for each of them. Distance 0 is in no mean above level 0.
 *
 * The means leave out distances beyond the table of log G; a mean of nothing is -infinity. All numbers are doubles with separate exponents
 * or logarithms, so that a kernel may decay arbitrarily fast. No mean depends on the number of levels: the means of a longer hierarchy
 * begin with those of a shorter one. Cost: O(length), exact O(length log length).
 */
#ifndef HARK_BACKEND_HIERARCHY_KERNEL_H
#define HARK_BACKEND_HIERARCHY_KERNEL_H

#include "hierarchy.h"

typedef struct hark_hierarchy_kernel {
  const hark_hierarchy *hierarchy;
  bool exact;
  int64_t distances;     /* that the table has and the hierarchy needs */
  double *mean;          /* [levels][width] */
  double *value, *power; /* coarse queries: sums over pairs of cells, value 2^power, for all levels */
  double *gradient;      /* by their logarithms, for the levels above 0 */
} hark_hierarchy_kernel;

/* Entries of a level's row of means. */
static inline int64_t hark_hierarchy_kernel_width(const hark_hierarchy *h, bool exact) {
  return exact ? hark_hierarchy_reach(h) : 2 * h->block;
}

/* Doubles of memory for hark_hierarchy_kernel_make(), and of an array of gradients of the means. */
int64_t hark_hierarchy_kernel_doubles(const hark_hierarchy *h, bool exact);
int64_t hark_hierarchy_kernel_means(const hark_hierarchy *h, bool exact);

/* From row `row` of a tensor [H or 1, T], for instance one direction of a table with two (kernel_table.h). `memory`:
 * hark_hierarchy_kernel_doubles(), 8-byte aligned. */
hark_hierarchy_kernel hark_hierarchy_kernel_make(const hark_hierarchy *h, bool exact, const hark_tensor *log_kernel, int64_t row,
                                                 double *memory);

/* Index of a mean. `at`: the distance in tokens; exact: the farthest distance. */
static inline int64_t hark_hierarchy_kernel_index(const hark_hierarchy_kernel *kernel, int level, int64_t at) {
  return level * hark_hierarchy_kernel_width(kernel->hierarchy, kernel->exact) + at;
}

/* gradient[distances] += the gradients of the means; dmean is overwritten. */
void hark_hierarchy_kernel_gradient(const hark_hierarchy_kernel *kernel, double *dmean, double *gradient);

#endif

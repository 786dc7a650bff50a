/* hierarchy_kernel.c - see hierarchy_kernel.h.
 *
 * exact: with S[l][x] = log of the sum of G over x - 2^l + 1 .. x,   S[l][x] = log(e^S[l-1][x] + e^S[l-1][x - 2^(l-1)]),
 * and its adjoint goes back the same way: dS[l-1][y] += dS[l][x] e^(S[l-1][y] - S[l][x]) for the two y.
 */
#include "backend/hierarchy_kernel.h"

#include <math.h>

#include "core/core.h"

int64_t hark_hierarchy_kernel_means(const hark_hierarchy *h, bool exact) { return h->levels * hark_hierarchy_kernel_width(h, exact); }

int64_t hark_hierarchy_kernel_doubles(const hark_hierarchy *h, bool exact) {
  return hark_hierarchy_reach(h) + hark_hierarchy_kernel_means(h, exact);
}

static double log_add(double a, double b) {
  const double high = fmax(a, b), low = fmin(a, b);
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}

/* Distances x - 2^level + 1 .. x that the table has. */
static double counted(const hark_hierarchy_kernel *kernel, int level, int64_t x) {
  return (double)(hark_min(x + 1, kernel->distances) - (x + 1 - ((int64_t)1 << level)));
}

static void fill_exact(hark_hierarchy_kernel *kernel) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, true);
  for (int64_t x = 0; x < width; x++) kernel->mean[x] = x < kernel->distances ? kernel->log_kernel[x] : -INFINITY;
  for (int level = 1; level < kernel->hierarchy->levels; level++) {
    const int64_t half = (int64_t)1 << (level - 1);
    const double *below = kernel->mean + (level - 1) * width;
    double *sums = kernel->mean + level * width;
    for (int64_t x = 0; x < width; x++) sums[x] = x < 2 * half - 1 ? -INFINITY : log_add(below[x], below[x - half]);
  }
  for (int level = 1; level < kernel->hierarchy->levels; level++) {
    double *means = kernel->mean + level * width;
    for (int64_t x = 0; x < width; x++)
      if (means[x] != -INFINITY) means[x] -= log(counted(kernel, level, x));
  }
}

/* Distances first .. last of two cells t tokens of the level apart; of the (2^l)^2 pairs, 2^l - |x - t 2^l| are x apart. */
typedef struct cell_pair {
  int64_t size, middle, first, last;
} cell_pair;

static cell_pair pair_at(const hark_hierarchy_kernel *kernel, int level, int64_t t) {
  const int64_t size = (int64_t)1 << level;
  return (cell_pair){size, t * size, t * size - size + 1, hark_min(t * size + size, kernel->distances) - 1};
}

static double pairs_apart(const cell_pair *pair, int64_t x) {
  return (double)(pair->size - (x < pair->middle ? pair->middle - x : x - pair->middle));
}

/* Log of the sum of G over the pairs, and how many there are. */
static double sum_of_pairs(const hark_hierarchy_kernel *kernel, const cell_pair *pair, double *count) {
  double highest = -INFINITY, sum = 0;
  *count = 0;
  for (int64_t x = pair->first; x <= pair->last; x++) highest = fmax(highest, kernel->log_kernel[x]);
  for (int64_t x = pair->first; x <= pair->last; x++) *count += pairs_apart(pair, x);
  if (highest == -INFINITY) return -INFINITY;
  for (int64_t x = pair->first; x <= pair->last; x++) sum += pairs_apart(pair, x) * exp(kernel->log_kernel[x] - highest);
  return highest + log(sum);
}

static void fill_pairs(hark_hierarchy_kernel *kernel) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, false);
  for (int64_t x = 0; x < width; x++) kernel->mean[x] = x < kernel->distances ? kernel->log_kernel[x] : -INFINITY;
  for (int level = 1; level < kernel->hierarchy->levels; level++)
    for (int64_t t = 0; t < width; t++) {
      double *mean = &kernel->mean[level * width + t], count;
      *mean = -INFINITY;
      if (t == 0) continue; /* a cell and itself: covered by lower levels */
      const cell_pair pair = pair_at(kernel, level, t);
      const double sum = sum_of_pairs(kernel, &pair, &count);
      if (sum != -INFINITY) *mean = sum - log(count);
    }
}

hark_hierarchy_kernel hark_hierarchy_kernel_make(const hark_hierarchy *h, bool exact, const hark_tensor *log_kernel, int64_t row,
                                                 double *memory) {
  const int64_t reach = hark_hierarchy_reach(h);
  hark_hierarchy_kernel kernel = {
      .hierarchy = h, .exact = exact, .distances = hark_min(log_kernel->shape[1], reach), .log_kernel = memory, .mean = memory + reach};
  const int64_t first = row * log_kernel->stride[0];
  for (int64_t x = 0; x < kernel.distances; x++)
    kernel.log_kernel[x] =
        log_kernel->type == HARK_F64 ? ((const double *)log_kernel->data)[first + x] : (double)((const float *)log_kernel->data)[first + x];
  if (exact)
    fill_exact(&kernel);
  else
    fill_pairs(&kernel);
  return kernel;
}

/* mean = S - log(count), so that the gradient by S is that by the mean. */
static double sum_at(const hark_hierarchy_kernel *kernel, int level, int64_t width, int64_t x) {
  const double mean = kernel->mean[level * width + x];
  return level == 0 || mean == -INFINITY ? mean : mean + log(counted(kernel, level, x));
}

static void gradient_exact(const hark_hierarchy_kernel *kernel, double *dmean) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, true);
  for (int level = kernel->hierarchy->levels - 1; level > 0; level--) {
    const int64_t half = (int64_t)1 << (level - 1);
    for (int64_t x = 2 * half - 1; x < width; x++) {
      const double gradient = dmean[level * width + x], sum = sum_at(kernel, level, width, x);
      if (gradient == 0 || sum == -INFINITY) continue;
      for (int side = 0; side < 2; side++) {
        const int64_t y = x - side * half;
        dmean[(level - 1) * width + y] += gradient * exp(sum_at(kernel, level - 1, width, y) - sum);
      }
    }
  }
}

static void gradient_of_pairs(const hark_hierarchy_kernel *kernel, const double *dmean, double *gradient) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, false);
  for (int level = 1; level < kernel->hierarchy->levels; level++)
    for (int64_t t = 1; t < width; t++) {
      const double dsum = dmean[level * width + t];
      if (dsum == 0 || kernel->mean[level * width + t] == -INFINITY) continue;
      const cell_pair pair = pair_at(kernel, level, t);
      double count = 0;
      for (int64_t x = pair.first; x <= pair.last; x++) count += pairs_apart(&pair, x);
      const double sum = kernel->mean[level * width + t] + log(count);
      for (int64_t x = pair.first; x <= pair.last; x++) gradient[x] += dsum * pairs_apart(&pair, x) * exp(kernel->log_kernel[x] - sum);
    }
}

void hark_hierarchy_kernel_gradient(const hark_hierarchy_kernel *kernel, double *dmean, double *gradient) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, kernel->exact);
  if (kernel->exact)
    gradient_exact(kernel, dmean);
  else
    gradient_of_pairs(kernel, dmean, gradient);
  for (int64_t x = 0; x < hark_min(width, kernel->distances); x++) gradient[x] += dmean[x];
}

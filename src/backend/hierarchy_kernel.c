/* hierarchy_kernel.c - see hierarchy_kernel.h.
 *
 * coarse queries: let S[l][t] = the sum of G over all pairs of rows of two cells t tokens of level l apart. Each cell consists of two cells
 * of level l - 1, so
 *
 *     S[l][t] = S[l-1][2t - 1] + 2 S[l-1][2t] + S[l-1][2t + 1],      S[0][x] = G(x)
 *
 * for t from 1 to the reach of the hierarchy in tokens of the level. A sum is stored as value 2^power with a separate power, so that it can
 * neither overflow nor vanish and only additions round. With g = the gradient by log S: g[l-1][y] += g[l][t] (1 or 2) S[l-1][y] / S[l][t].
 *
 * exact: with S[l][x] = log of the sum of G over x - 2^l + 1 .. x,   S[l][x] = log(e^S[l-1][x] + e^S[l-1][x - 2^(l-1)]), and its adjoint is
 * dS[l-1][y] += dS[l][x] e^(S[l-1][y] - S[l][x]) for the two y.
 */
#include "backend/hierarchy_kernel.h"

#include <math.h>
#include <string.h>

#include "core/core.h"

#define LOG2_E 1.44269504088896340736
#define LN_2 0.69314718055994530942

int64_t hark_hierarchy_kernel_means(const hark_hierarchy *h, bool exact) { return h->levels * hark_hierarchy_kernel_width(h, exact); }

/* The distances in tokens of all levels are less than two reaches, those of the levels above 0 less than one. */
int64_t hark_hierarchy_kernel_doubles(const hark_hierarchy *h, bool exact) {
  return hark_hierarchy_kernel_means(h, exact) + (exact ? 0 : 5 * hark_hierarchy_reach(h));
}

/* log G of a distance. */
static double table_at(const hark_hierarchy_kernel *kernel, const hark_tensor *log_kernel, int64_t row, int64_t x) {
  const int64_t at = row * log_kernel->stride[0] + x * log_kernel->stride[1];
  if (x >= kernel->distances) return -INFINITY;
  return log_kernel->type == HARK_F64 ? ((const double *)log_kernel->data)[at] : (double)((const float *)log_kernel->data)[at];
}

/* ---- exact ---- */

static double log_add(double a, double b) {
  const double high = hark_larger(a, b), low = hark_smaller(a, b);
  return low == -INFINITY ? high : high + log1p(exp(low - high));
}

/* Distances x - 2^level + 1 .. x that the table has. */
static double counted(const hark_hierarchy_kernel *kernel, int level, int64_t x) {
  return (double)(hark_min(x + 1, kernel->distances) - (x + 1 - ((int64_t)1 << level)));
}

static void fill_exact(hark_hierarchy_kernel *kernel) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, true);
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

/* mean = S - log(count), so the gradients by S and by the mean are equal. */
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

/* ---- coarse queries: pairs of cells ---- */

/* The index at which a level's sums begin, and their number: every distance in tokens of the level below the reach. */
static int64_t sums_at(const hark_hierarchy *h, int level) {
  const int64_t reach = hark_hierarchy_reach(h);
  return 2 * (reach - (reach >> level));
}
static int64_t sums_of(const hark_hierarchy *h, int level) { return hark_hierarchy_reach(h) >> level; }

/* value 2^power for a whole power of at most 0. Below 2^-1000 the result vanishes in the sum to which it is added. */
static double scaled(double value, double power) {
  if (power < -1000) return 0 * value;
  const uint64_t bits = (uint64_t)(1023 + (int64_t)power) << 52; /* 2^power: only the exponent bits */
  double factor;
  memcpy(&factor, &bits, sizeof factor);
  return value * factor;
}

/* e^log as value 2^power with a value from 1 to 2; 0 has the power -infinity. */
static void split(double log, double *value, double *power) {
  *power = isfinite(log) ? floor(log * LOG2_E) : log == -INFINITY ? log : 0;
  *value = log == -INFINITY ? 0 : isfinite(log) ? exp(fmin(fmax(log - *power * LN_2, 0), LN_2)) : exp(log);
}

/* Pairs of rows of two cells t tokens of the level apart whose distance the table has: size - |x - t size| pairs have distance x. */
static double counted_pairs(const hark_hierarchy_kernel *kernel, int level, int64_t t) {
  const int64_t size = (int64_t)1 << level, first = t * size - size + 1;
  const double before = (double)hark_max(0, hark_min(kernel->distances - first, size)); /* distances up to t size: 1 + 2 + ... */
  const double after = (double)hark_max(0, hark_min(kernel->distances - first - size, size - 1));
  return before * (before + 1) / 2 + after * (double)size - after * (after + 1) / 2;
}

static void fill_sums(hark_hierarchy_kernel *kernel, int level) {
  const double *value = kernel->value + sums_at(kernel->hierarchy, level - 1), *power = kernel->power + (value - kernel->value);
  double *to_value = kernel->value + sums_at(kernel->hierarchy, level), *to_power = kernel->power + (to_value - kernel->value);
  to_value[0] = 0; /* a cell and itself: covered by lower levels */
  to_power[0] = -INFINITY;
  for (int64_t t = 1; t < sums_of(kernel->hierarchy, level); t++) {
    const double *v = value + 2 * t, *p = power + 2 * t;
    const double top = hark_larger(hark_larger(p[-1], p[0]), p[1]);
    to_power[t] = top;
    to_value[t] = top == -INFINITY ? 0 : scaled(v[-1], p[-1] - top) + 2 * scaled(v[0], p[0] - top) + scaled(v[1], p[1] - top);
  }
}

static void fill_pairs(hark_hierarchy_kernel *kernel, const hark_tensor *log_kernel, int64_t row) {
  const hark_hierarchy *h = kernel->hierarchy;
  const int64_t width = hark_hierarchy_kernel_width(h, false);
  for (int64_t x = 0; x < sums_of(h, 0); x++) split(table_at(kernel, log_kernel, row, x), &kernel->value[x], &kernel->power[x]);
  for (int level = 1; level < h->levels; level++) {
    fill_sums(kernel, level);
    const double *value = kernel->value + sums_at(h, level), *power = kernel->power + sums_at(h, level);
    for (int64_t t = 0; t < width; t++)
      kernel->mean[level * width + t] = value[t] == 0 ? -INFINITY : log(value[t]) + power[t] * LN_2 - log(counted_pairs(kernel, level, t));
  }
}

/* The gradient by log S is the gradient by the mean plus, below the coarsest level, the contribution of the level above. */
static void gradient_of_pairs(const hark_hierarchy_kernel *kernel, const double *dmean, double *gradient) {
  const hark_hierarchy *h = kernel->hierarchy;
  const int64_t width = hark_hierarchy_kernel_width(h, false), reach = hark_hierarchy_reach(h);
  for (int64_t i = 0; i < reach; i++) kernel->gradient[i] = 0;
  for (int level = h->levels - 1; level > 0; level--) {
    const double *value = kernel->value + sums_at(h, level), *power = kernel->power + sums_at(h, level);
    const double *from = kernel->gradient + sums_at(h, level) - reach;
    const double *below_value = kernel->value + sums_at(h, level - 1), *below_power = kernel->power + sums_at(h, level - 1);
    double *to = level == 1 ? gradient : kernel->gradient + sums_at(h, level - 1) - reach;
    for (int64_t t = 1; t < sums_of(h, level); t++) {
      const double sum = from[t] + (t < width ? dmean[level * width + t] : 0);
      if (sum == 0 || value[t] == 0) continue;
      for (int64_t y = 2 * t - 1; y <= 2 * t + 1; y++)
        if (below_value[y] != 0) to[y] += (y == 2 * t ? 2 : 1) * sum * scaled(below_value[y] / value[t], below_power[y] - power[t]);
    }
  }
}

/* ---- both ---- */

hark_hierarchy_kernel hark_hierarchy_kernel_make(const hark_hierarchy *h, bool exact, const hark_tensor *log_kernel, int64_t row,
                                                 double *memory) {
  const int64_t reach = hark_hierarchy_reach(h);
  hark_hierarchy_kernel kernel = {.hierarchy = h, .exact = exact, .distances = hark_min(log_kernel->shape[1], reach), .mean = memory};
  for (int64_t x = 0; x < hark_hierarchy_kernel_width(h, exact); x++) kernel.mean[x] = table_at(&kernel, log_kernel, row, x);
  if (exact) {
    fill_exact(&kernel);
    return kernel;
  }
  kernel.value = memory + hark_hierarchy_kernel_means(h, false);
  kernel.power = kernel.value + 2 * reach;
  kernel.gradient = kernel.power + 2 * reach;
  fill_pairs(&kernel, log_kernel, row);
  return kernel;
}

void hark_hierarchy_kernel_gradient(const hark_hierarchy_kernel *kernel, double *dmean, double *gradient) {
  const int64_t width = hark_hierarchy_kernel_width(kernel->hierarchy, kernel->exact);
  if (kernel->exact)
    gradient_exact(kernel, dmean);
  else
    gradient_of_pairs(kernel, dmean, gradient);
  for (int64_t x = 0; x < hark_min(width, kernel->distances); x++) gradient[x] += dmean[x];
}

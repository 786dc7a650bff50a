/* norms.c - layer_norm and rms_norm over the last dimension.
 *
 *     layer_norm  y = gain xhat + bias, xhat = (x - mean) r, r = 1 / sqrt(variance + epsilon)
 *     rms_norm    y = gain xhat,        xhat = x r,          r = 1 / sqrt(mean(x^2) + epsilon)
 *     both        dx = r (g - mean(g) - xhat mean(g xhat)), g = gain dy (rms_norm: without mean(g));  dgain = sum dy xhat, dbias = sum dy
 *
 * x, y [N, D]; gain, bias [D]; saved: mean [N] (layer_norm), r [N]. A row stays in the first-level cache between its passes. Memory limits
 * the speed: 8 bytes per element forward, 12 backward. The sums over rows are computed in at most PARTIALS blocks of rows, which depend on
 * N alone, and the blocks are added in order in f64.
 * Ba, Kiros, Hinton, arXiv 1607.06450; Zhang, Sennrich, arXiv 1910.07467.
 */
#include <float.h>
#include <math.h>

#include "backend/cpu/isa/elements.h"

#define PARTIALS 64 /* blocks of rows; the records request so many vectors of D doubles, each of which has room for two of D floats */

enum { INPUT_X, INPUT_GAIN, INPUT_BIAS };

/* The differences between the two norms. */
typedef struct norm {
  bool centred;
  int saved_inverse; /* index of the saved tensor r; the mean is tensor 0 if centred */
} norm;

static const norm layer = {.centred = true, .saved_inverse = 1}, rms = {.centred = false, .saved_inverse = 0};

HARK_SIMD const float *input(const hark_call *call, int i) {
  return i < call->input_count && call->inputs[i].type != HARK_NONE ? call->inputs[i].data : NULL;
}

/* sum of (x - shift)^power over a row, power 1 or 2 */
HARK_SIMD float row_sum(const float *x, int64_t width, float shift, const int power) {
  vf a = vf_zero(), b = vf_zero();
  const vf centre = vf_set(shift);
  int64_t d = 0;
  for (; d + 2 * HARK_LANES <= width; d += 2 * HARK_LANES) {
    const vf u = vf_load(x + d) - centre, v = vf_load(x + d + HARK_LANES) - centre;
    a = power == 1 ? a + u : vf_fma(u, u, a);
    b = power == 1 ? b + v : vf_fma(v, v, b);
  }
  float total = vf_sum(a + b);
  for (; d < width; d++) total += power == 1 ? x[d] - shift : (x[d] - shift) * (x[d] - shift);
  return total;
}

/* From this mean on, in deviations, the rounding of the mean and of its sum to f32 is significant. */
#define FAR_MEAN 16.0f
static bool is_far(const norm *n, float mean, float inverse) { return n->centred && fabsf(mean) * inverse > FAR_MEAN; }

/* The error of a row's mean: the mean of x - mean, in float64. */
static float rest_of_mean(const float *x, int64_t width, float mean) {
  double sum = 0.0;
  for (int64_t d = 0; d < width; d++) sum += (double)x[d] - (double)mean;
  return (float)(sum / (double)width);
}

/* The mean of ((x - mean) - rest)^2. */
static float far_variance(const float *x, int64_t width, float mean, float rest) {
  double sum = 0.0;
  for (int64_t d = 0; d < width; d++) {
    const double apart = ((double)x[d] - (double)mean) - (double)rest;
    sum += apart * apart;
  }
  return (float)(sum / (double)width);
}

/* Corrects the mean, and 1 / sqrt(variance + epsilon) with it. */
static void correct_far(const float *x, int64_t width, float epsilon, float *mean, float *rest, float *inverse) {
  *mean += rest_of_mean(x, width, *mean);
  *rest = rest_of_mean(x, width, *mean);
  *inverse = 1 / sqrtf(far_variance(x, width, *mean, *rest) + epsilon);
}

/* The normalisation of a row: xhat = (by x - mean - rest) inverse. */
typedef struct row_scale {
  float by, mean, rest, inverse;
} row_scale;

HARK_SIMD vf normalised(vf x, const row_scale *scale) {
  return (vf_set(scale->by) * x - vf_set(scale->mean) - vf_set(scale->rest)) * vf_set(scale->inverse);
}

/* True if sums or squares of a row may exceed f32, or if the row is not finite. */
static bool is_huge(float mean, float inverse) { return !(fabsf(mean) <= 0x1p60f) || !(inverse >= 0x1p-58f); }

/* The normalisation of such a row, which is first scaled down. *mean and *inverse are those of the given row, in float64. */
static row_scale huge_scale(const norm *n, const float *x, int64_t width, float epsilon, double *mean, double *inverse) {
  const double by = 0x1p-80;
  double sum = 0.0, squares = 0.0;
  for (int64_t d = 0; d < width; d++) sum += (double)x[d];
  *mean = n->centred ? sum / (double)width : 0.0;
  for (int64_t d = 0; d < width; d++) squares += ((double)x[d] - *mean) * ((double)x[d] - *mean);
  *inverse = 1.0 / sqrt(squares / (double)width + (double)epsilon);
  const float rounded = (float)(by * *mean);
  return (row_scale){(float)by, rounded, (float)(by * *mean - (double)rounded), (float)hark_smaller(*inverse / by, (double)FLT_MAX)};
}

HARK_SIMD void forward_row(const norm *n, const hark_call *call, int64_t row, int64_t width) {
  const float *x = (const float *)call->inputs[INPUT_X].data + row * width, *gain = input(call, INPUT_GAIN);
  const float *bias = n->centred ? input(call, INPUT_BIAS) : NULL;
  float *y = (float *)call->outputs[0].data + row * width;
  const float epsilon = (float)((const hark_norm_attributes *)call->attributes)->epsilon;
  float mean = n->centred ? row_sum(x, width, 0, 1) / (float)width : 0, rest = 0;
  float inverse = 1 / sqrtf(row_sum(x, width, mean, 2) / (float)width + epsilon);
  if (is_far(n, mean, inverse)) correct_far(x, width, epsilon, &mean, &rest, &inverse);
  row_scale scale = {1.0f, mean, rest, inverse};
  if (is_huge(mean, inverse)) {
    double exact_mean, exact_inverse;
    scale = huge_scale(n, x, width, epsilon, &exact_mean, &exact_inverse);
    mean = (float)exact_mean;
    inverse = (float)exact_inverse;
  }
  if (n->centred) ((float *)call->saved[0].data)[row] = mean;
  ((float *)call->saved[n->saved_inverse].data)[row] = inverse;
  for (int64_t d = 0; d < width; d += HARK_LANES) {
    const int count = (int)hark_min(HARK_LANES, width - d);
    const vf normal = normalised(load_lanes(x + d, count), &scale);
    const vf shift = bias != NULL ? load_lanes(bias + d, count) : vf_zero();
    store_lanes(y + d, vf_fma(load_lanes(gain + d, count), normal, shift), count);
  }
}

static void layer_forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const int64_t width = hark_cpu_row_length(&call->inputs[INPUT_X]);
  for (int64_t row = first; row < last; row++) forward_row(&layer, call, row, width);
}
static void rms_forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const int64_t width = hark_cpu_row_length(&call->inputs[INPUT_X]);
  for (int64_t row = first; row < last; row++) forward_row(&rms, call, row, width);
}

hark_status HARK_ISA(hark_cpu_layer_norm_forward)(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_cpu_rows(context, call, hark_cpu_row_count(x), hark_cpu_row_length(x), layer_forward_rows);
  return HARK_OK;
}
hark_status HARK_ISA(hark_cpu_rms_norm_forward)(hark_context *context, const hark_call *call) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  hark_cpu_rows(context, call, hark_cpu_row_count(x), hark_cpu_row_length(x), rms_forward_rows);
  return HARK_OK;
}

/* y = gain xhat + bias: with g = gain dy, dx = r (g - mean(g) - xhat mean(g xhat)); dgain += dy xhat, dbias += dy into a block's sums */
HARK_SIMD void backward_row(const norm *n, const hark_call *call, int64_t row, int64_t width, float *gain_sums, float *bias_sums) {
  const float *x = (const float *)call->inputs[INPUT_X].data + row * width, *gain = input(call, INPUT_GAIN);
  const float *dy = (const float *)call->output_gradients[0].data + row * width;
  const float saved = n->centred ? ((const float *)call->saved[0].data)[row] : 0;
  const float inverse = ((const float *)call->saved[n->saved_inverse].data)[row];
  row_scale scale = {1.0f, saved, 0.0f, inverse};
  if (is_huge(saved, inverse)) {
    double exact_mean, exact_inverse;
    scale = huge_scale(n, x, width, (float)((const hark_norm_attributes *)call->attributes)->epsilon, &exact_mean, &exact_inverse);
  } else if (is_far(n, saved, inverse)) {
    scale.rest = rest_of_mean(x, width, saved);
  }
  vf sum_g = vf_zero(), sum_gx = vf_zero();
  for (int64_t d = 0; d < width; d += HARK_LANES) {
    const int count = (int)hark_min(HARK_LANES, width - d);
    const vf gradient = load_lanes(dy + d, count), g = load_lanes(gain + d, count) * gradient;
    const vf normal = normalised(load_lanes(x + d, count), &scale);
    sum_gx = vf_fma(g, normal, sum_gx); /* lanes beyond the row are zero in g */
    if (n->centred) sum_g = sum_g + g;
    if (gain_sums != NULL) give_lanes(gain_sums + d, gradient * normal, true, count);
    if (bias_sums != NULL) give_lanes(bias_sums + d, gradient, true, count);
  }
  if (!hark_cpu_requested(call, INPUT_X)) return;
  float *dx = (float *)call->input_gradients[INPUT_X].data + row * width;
  const vf mean_g = vf_set(n->centred ? vf_sum(sum_g) / (float)width : 0), mean_gx = vf_set(vf_sum(sum_gx) / (float)width);
  const bool add = hark_cpu_adds(call, INPUT_X);
  for (int64_t d = 0; d < width; d += HARK_LANES) {
    const int count = (int)hark_min(HARK_LANES, width - d);
    const vf g = load_lanes(gain + d, count) * load_lanes(dy + d, count), normal = normalised(load_lanes(x + d, count), &scale);
    give_lanes(dx + d, vf_set(inverse) * (g - mean_g - normal * mean_gx), add, count);
  }
}

static bool bias_is_requested(const norm *n, const hark_call *call) { return n->centred && hark_cpu_requested(call, INPUT_BIAS); }

static int64_t block_rows(int64_t rows) { return hark_ceil_div(rows, PARTIALS); }

/* A block's sums in the workspace: [dgain D | dbias D]. */
static float *sums_of(const hark_call *call, int64_t block, int64_t width) { return (float *)call->workspace + 2 * block * width; }

HARK_SIMD void backward_rows(const norm *n, const hark_call *call, int64_t first, int64_t last) {
  const int64_t width = hark_cpu_row_length(&call->inputs[INPUT_X]);
  const int64_t block = first / block_rows(hark_cpu_row_count(&call->inputs[INPUT_X]));
  float *gain_sums = hark_cpu_requested(call, INPUT_GAIN) ? sums_of(call, block, width) : NULL;
  float *bias_sums = bias_is_requested(n, call) ? sums_of(call, block, width) + width : NULL;
  if (gain_sums != NULL) memset(gain_sums, 0, (size_t)width * sizeof(float));
  if (bias_sums != NULL) memset(bias_sums, 0, (size_t)width * sizeof(float));
  for (int64_t row = first; row < last; row++) backward_row(n, call, row, width, gain_sums, bias_sums);
}
static void layer_backward_rows(const hark_call *call, int64_t first, int64_t last) { backward_rows(&layer, call, first, last); }
static void rms_backward_rows(const hark_call *call, int64_t first, int64_t last) { backward_rows(&rms, call, first, last); }

/* dparameter[d] = sum over blocks, in order */
static void add_blocks(const hark_call *call, int parameter, int64_t width, int64_t blocks, int64_t offset) {
  enum { COLUMNS = 64 };
  float *out = call->input_gradients[parameter].data;
  const bool add = hark_cpu_adds(call, parameter);
  for (int64_t first = 0; first < width; first += COLUMNS) {
    const int64_t count = hark_min(COLUMNS, width - first);
    double sum[COLUMNS] = {0};
    for (int64_t block = 0; block < blocks; block++) {
      const float *from = sums_of(call, block, width) + offset + first;
      for (int64_t d = 0; d < count; d++) sum[d] += (double)from[d];
    }
    for (int64_t d = 0; d < count; d++) out[first + d] = (float)(add ? (double)out[first + d] + sum[d] : sum[d]);
  }
}

static hark_status backward(hark_context *context, const norm *n, const hark_call *call, hark_cpu_range *rows_body) {
  if (hark_cpu_no_gradient(call)) return HARK_OK;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const int64_t rows = hark_cpu_row_count(x), width = hark_cpu_row_length(x), step = hark_max(1, block_rows(rows));
  hark_cpu_ranges(context, call, rows, step, 2 * HARK_CPU_GRAIN / width, rows_body);
  const int64_t blocks = hark_ceil_div(rows, step);
  if (hark_cpu_requested(call, INPUT_GAIN)) add_blocks(call, INPUT_GAIN, width, blocks, 0);
  if (bias_is_requested(n, call)) add_blocks(call, INPUT_BIAS, width, blocks, width);
  return HARK_OK;
}
hark_status HARK_ISA(hark_cpu_layer_norm_backward)(hark_context *context, const hark_call *call) {
  return backward(context, &layer, call, layer_backward_rows);
}
hark_status HARK_ISA(hark_cpu_rms_norm_backward)(hark_context *context, const hark_call *call) {
  return backward(context, &rms, call, rms_backward_rows);
}

/* optimiser.c - one step of AdamW in place, and the square of a norm.
 *
 *     adamw        g = scale gradient, m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
 *                  w -= rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay w)
 *     sum_squares  the sum of x^2 in f64, in an order that depends on the number of elements alone
 *
 * Limited by memory: 28 and 4 bytes per number. Loshchilov, Hutter, arXiv 1711.05101.
 */
#include "backend/cpu/isa/elements.h"

/* ---- adamw ------------------------------------------------------------------------------------------------------------------------- */
enum { WEIGHT, GRADIENT, FIRST_MOMENT, SECOND_MOMENT };

typedef struct adamw_constants {
  float scale, beta1, beta2, rest1, rest2, unbias1, unbias2, rate, epsilon, decay;
} adamw_constants;

HARK_SIMD void adamw_lanes(const adamw_constants *k, const hark_call *call, int64_t i, int count) {
  float *weight = (float *)call->inputs[WEIGHT].data + i, *first = (float *)call->inputs[FIRST_MOMENT].data + i;
  float *second = (float *)call->inputs[SECOND_MOMENT].data + i;
  const vf g = vf_set(k->scale) * load_lanes((const float *)call->inputs[GRADIENT].data + i, count), w = load_lanes(weight, count);
  const vf m = vf_fma(vf_set(k->beta1), load_lanes(first, count), vf_set(k->rest1) * g);
  const vf v = vf_fma(vf_set(k->beta2), load_lanes(second, count), vf_set(k->rest2) * g * g);
  const vf step = vf_set(k->unbias1) * m / (vf_sqrt(vf_set(k->unbias2) * v) + vf_set(k->epsilon));
  store_lanes(first, m, count);
  store_lanes(second, v, count);
  store_lanes(weight, w - vf_set(k->rate) * vf_fma(vf_set(k->decay), w, step), count);
}

static void adamw_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_adamw_attributes *a = call->attributes;
  const adamw_constants k = {.scale = (float)a->gradient_scale,
                             .beta1 = (float)a->beta1,
                             .beta2 = (float)a->beta2,
                             .rest1 = (float)(1 - a->beta1),
                             .rest2 = (float)(1 - a->beta2),
                             .unbias1 = (float)(1 / (1 - pow(a->beta1, (double)a->step))),
                             .unbias2 = (float)(1 / (1 - pow(a->beta2, (double)a->step))),
                             .rate = (float)a->rate,
                             .epsilon = (float)a->epsilon,
                             .decay = (float)a->decay};
  int64_t i = first;
  for (; i + HARK_LANES <= last; i += HARK_LANES) adamw_lanes(&k, call, i, HARK_LANES);
  if (i < last) adamw_lanes(&k, call, i, (int)(last - i));
}

hark_status HARK_ISA(hark_cpu_adamw_forward)(hark_context *context, const hark_call *call) {
  if (!isfinite(((const hark_adamw_attributes *)call->attributes)->gradient_scale)) return HARK_OK; /* the step is skipped */
  return run_forward(context, call, adamw_range);
}

/* ---- sum_squares ------------------------------------------------------------------------------------------------------------------- */
#define PARTIALS 64 /* doubles of workspace that the record requests */
#define SUMS 16     /* independent sums in a range: whole vectors of doubles in every instruction set */

static int64_t range_length(int64_t count) { return hark_max(HARK_CPU_GRAIN, hark_ceil_div(count, PARTIALS)); }

static void squares_range(const hark_call *call, int64_t first, int64_t last) {
  const float *x = call->inputs[0].data;
  double sum[SUMS] = {0};
  int64_t i = first;
  for (; i + SUMS <= last; i += SUMS)
    for (int j = 0; j < SUMS; j++) sum[j] += (double)x[i + j] * (double)x[i + j];
  for (int j = 0; i < last; i++, j++) sum[j] += (double)x[i] * (double)x[i];
  for (int width = SUMS / 2; width > 0; width /= 2)
    for (int j = 0; j < width; j++) sum[j] += sum[j + width];
  ((double *)call->workspace)[first / range_length(hark_tensor_count(&call->inputs[0]))] = sum[0];
}

hark_status HARK_ISA(hark_cpu_sum_squares_forward)(hark_context *context, const hark_call *call) {
  const int64_t count = hark_tensor_count(&call->inputs[0]), length = range_length(count);
  hark_cpu_ranges(context, call, count, length, 2 * HARK_CPU_GRAIN, squares_range);
  const double *partials = call->workspace;
  double sum = 0;
  for (int64_t p = 0; p < hark_ceil_div(count, length); p++) sum += partials[p];
  *(double *)call->outputs[0].data = sum;
  return HARK_OK;
}

/* cross_entropy.c - loss = weight sum over rows of lse - (1 - s) x[target] - s mean(x) + z lse^2, lse = log sum_v exp x[v], s the label
 * smoothing, z the weight of lse^2.
 *
 * logits x [N, V], targets i32 [N]; saved lse [N]; rows whose target is ignored are not read. A row is read from memory once: its maximum,
 * then its sum of exponentials from the cache. The rows' terms are added in double, in order.
 * dx[n, v] = dloss weight ((1 + 2 z lse_n) exp(x[n, v] - lse_n) - (1 - s) [v = target_n] - s / V), which may overwrite x: no second buffer.
 */
#include <inttypes.h>

#include "backend/cpu/isa/elements.h"

enum { INPUT_LOGITS, INPUT_TARGETS };
enum { OUTPUT_LOSS, OUTPUT_COUNT };

static hark_status check_targets(hark_context *context, const hark_call *call, int64_t rows, int64_t classes) {
  const int32_t ignore = ((const hark_cross_entropy_attributes *)call->attributes)->ignore;
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  for (int64_t n = 0; n < rows; n++)
    if (target[n] != ignore && (target[n] < 0 || target[n] >= classes))
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "cross_entropy: target %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64 ", or %" PRId32 " to ignore it", n,
                       target[n], classes - 1, ignore);
  return HARK_OK;
}

static float highest(const float *x, int64_t count) {
  vf a = vf_set(-INFINITY), b = a;
  int64_t v = 0;
  for (; v + 2 * HARK_LANES <= count; v += 2 * HARK_LANES) {
    a = vf_max(vf_load(x + v), a);
    b = vf_max(vf_load(x + v + HARK_LANES), b);
  }
  float result = vf_highest(vf_max(a, b));
  for (; v < count; v++) result = x[v] > result ? x[v] : result;
  return result;
}

/* log sum exp x */
static double log_sum_exp(const float *x, int64_t count) {
  const float maximum = highest(x, count);
  if (isinf(maximum)) { /* infinity - infinity would be NaN; a NaN elsewhere in the row must still be found */
    for (int64_t v = 0; v < count; v++)
      if (isnan(x[v])) return (double)x[v];
    return maximum;
  }
  vf sum = vf_zero();
  int64_t v = 0;
  for (; v + HARK_LANES <= count; v += HARK_LANES) sum = sum + vf_exp(vf_load(x + v) - vf_set(maximum));
  double rest = 0;
  if (v < count) {
    float last[HARK_LANES];
    vf_store(last, vf_exp(vf_load_part(x + v, (int)(count - v)) - vf_set(maximum)));
    for (int64_t i = 0; i < count - v; i++) rest += (double)last[i];
  }
  return (double)maximum + log((double)vf_sum(sum) + rest);
}

static double plain_sum(const float *x, int64_t count) {
  double sum = 0;
  for (int64_t v = 0; v < count; v++) sum += (double)x[v];
  return sum;
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const int64_t classes = hark_cpu_row_length(&call->inputs[INPUT_LOGITS]);
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  float *saved = call->saved[0].data;
  double *terms = call->workspace;
  for (int64_t n = first; n < last; n++) {
    const float *x = (const float *)call->inputs[INPUT_LOGITS].data + n * classes;
    double lse = 0, term = 0;
    if (target[n] != options->ignore) {
      lse = log_sum_exp(x, classes);
      term = lse - (1 - options->smoothing) * (double)x[target[n]];
      if (options->smoothing > 0) term -= options->smoothing * plain_sum(x, classes) / (double)classes;
      if (options->z > 0) term += options->z * lse * lse;
    }
    saved[n] = (float)lse;
    terms[n] = term;
  }
}

hark_status HARK_ISA(hark_cpu_cross_entropy_forward)(hark_context *context, const hark_call *call) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int64_t rows = hark_cpu_row_count(logits), classes = hark_cpu_row_length(logits);
  HARK_TRY(check_targets(context, call, rows, classes));
  hark_cpu_rows(context, call, rows, classes, forward_rows);
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  const double *terms = call->workspace;
  double sum = 0;
  int64_t count = 0;
  for (int64_t n = 0; n < rows; n++) {
    if (target[n] == options->ignore) continue;
    sum += terms[n];
    count++;
  }
  *(float *)call->outputs[OUTPUT_LOSS].data = (float)(options->weight * sum);
  *(int64_t *)call->outputs[OUTPUT_COUNT].data = count;
  return HARK_OK;
}

/* loss = weight (lse - (1 - s) x[t] - s mean(x) + z lse^2): dx[v] = dloss weight (gain exp(x[v] - lse) - (1 - s) [v = t] - s / V), where
 * gain = 1 + 2 z lse */
HARK_SIMD void backward_row(float *dx, const float *x, int64_t classes, bool add, float factor, float lse, float gain, float uniform) {
  for (int64_t v = 0; v < classes; v += HARK_LANES) {
    const int count = (int)hark_min(HARK_LANES, classes - v);
    const vf probability = vf_exp(load_lanes(x + v, count) - vf_set(lse));
    give_lanes(dx + v, vf_set(factor) * (vf_set(gain) * probability - vf_set(uniform)), add, count);
  }
}

static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const int64_t classes = hark_cpu_row_length(&call->inputs[INPUT_LOGITS]);
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  const float *saved = call->saved[0].data;
  const bool add = hark_cpu_adds(call, INPUT_LOGITS);
  const float factor = (float)(options->weight * (double)*(const float *)call->output_gradients[OUTPUT_LOSS].data);
  const float uniform = (float)(options->smoothing / (double)classes), rest = (float)(1 - options->smoothing);
  for (int64_t n = first; n < last; n++) {
    const float *x = (const float *)call->inputs[INPUT_LOGITS].data + n * classes;
    float *dx = (float *)call->input_gradients[INPUT_LOGITS].data + n * classes;
    if (target[n] == options->ignore) {
      if (!add) memset(dx, 0, (size_t)classes * sizeof *dx);
      continue;
    }
    /* The target's entry is computed separately, so that its two terms cancel before they are rounded. */
    const float hit = x[target[n]], before = add ? dx[target[n]] : 0;
    const float gain = options->z > 0 ? (float)(1 + 2 * options->z * (double)saved[n]) : 1;
    backward_row(dx, x, classes, add, factor, saved[n], gain, uniform);
    dx[target[n]] = before + factor * (gain * expf(hit - saved[n]) - rest - uniform);
  }
}

hark_status HARK_ISA(hark_cpu_cross_entropy_backward)(hark_context *context, const hark_call *call) {
  if (hark_cpu_no_gradient(call) || !hark_cpu_requested(call, INPUT_LOGITS)) return HARK_OK;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int64_t rows = hark_cpu_row_count(logits), classes = hark_cpu_row_length(logits);
  HARK_TRY(check_targets(context, call, rows, classes));
  hark_cpu_rows(context, call, rows, classes, backward_rows);
  return HARK_OK;
}

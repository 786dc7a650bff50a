/* activations.c - relu, silu, gelu and their gated forms, element by element.
 *
 *     relu   y = max(x, 0)                         dx = dy [y > 0]
 *     silu   y = x s(x), s(x) = 1 / (1 + e^-x)     dx = dy s (1 + x (1 - s))
 *     gelu   y = x Phi(x)                          dx = dy (Phi + x phi)
 *       tanh y = x s(2u), u = sqrt(2/pi) (x + 0.044715 x^3), which is x/2 (1 + tanh u);   dx = dy (s + x s (1 - s) 2u')
 *     gated  y = f(a) b, f one of silu and gelu    da = dy b f'(a), db = dy f(a)
 *
 * Relative errors beyond the rounding of x: gelu 5e-7; silu, the tanh approximation and their slopes 1e-6 if the result is above 1e-34 in
 * magnitude; in the tail below that an absolute error below 1e-32. Memory limits the speed of relu; the others cost an exponential and a
 * division per vector, gelu as much as two divisions.
 */
#include "backend/cpu/isa/elements.h"

/* ---- relu -------------------------------------------------------------------------------------------------------------------------- */
HARK_SIMD vf relu(const void *constants, vf x) {
  (void)constants;
  return vf_max(vf_zero(), x); /* a NaN stays */
}
HARK_SIMD vf relu_backward(const void *constants, vf y, vf dy) {
  (void)constants;
  return vf_select(vf_less(vf_zero(), y), dy, vf_select(vf_equal(y, y), vf_zero(), y));
}

static void relu_range(const hark_call *call, int64_t first, int64_t last) { forward_map(relu, NULL, call, first, last); }
static void relu_backward_range(const hark_call *call, int64_t first, int64_t last) {
  backward_map(relu_backward, NULL, call, &call->outputs[0], first, last);
}
hark_status HARK_ISA(hark_cpu_relu_forward)(hark_context *context, const hark_call *call) { return run_forward(context, call, relu_range); }
hark_status HARK_ISA(hark_cpu_relu_backward)(hark_context *context, const hark_call *call) {
  return run_backward(context, call, relu_backward_range);
}

/* ---- silu -------------------------------------------------------------------------------------------------------------------------- */
HARK_SIMD vf sigmoid(vf x) { return vf_set(1.0f) / (vf_set(1.0f) + vf_exp(vf_zero() - x)); }

HARK_SIMD vf silu(const void *constants, vf x) {
  (void)constants;
  return x * sigmoid(x);
}
/* s(x), and *rest <- 1 - s(x) without cancellation; the bound keeps the exponential finite. */
HARK_SIMD vf sigmoid_and_rest(vf x, vf *rest) {
  const vf e = vf_exp(vf_min(vf_set(80.0f), vf_zero() - x)), s = vf_set(1.0f) / (vf_set(1.0f) + e);
  *rest = e * s;
  return s;
}
/* Below it s(x) is clamped, and x would grow without it; NaN stays. */
HARK_SIMD vf tail_end(vf x) { return vf_max(vf_set(-100.0f), x); }

/* y = x s(x): dx = dy s (1 + x (1 - s)) */
HARK_SIMD vf silu_slope(vf x, vf s, vf rest) { return s * vf_fma(x, rest, vf_set(1.0f)); }
HARK_SIMD vf silu_backward(const void *constants, vf x, vf dy) {
  (void)constants;
  vf rest;
  const vf s = sigmoid_and_rest(x, &rest);
  return dy * silu_slope(tail_end(x), s, rest);
}

static void silu_range(const hark_call *call, int64_t first, int64_t last) { forward_map(silu, NULL, call, first, last); }
static void silu_backward_range(const hark_call *call, int64_t first, int64_t last) {
  backward_map(silu_backward, NULL, call, &call->inputs[0], first, last);
}
hark_status HARK_ISA(hark_cpu_silu_forward)(hark_context *context, const hark_call *call) {
  return spread_forward(context, call, hark_cpu_exponentials, silu_range);
}
hark_status HARK_ISA(hark_cpu_silu_backward)(hark_context *context, const hark_call *call) {
  return spread_backward(context, call, hark_cpu_exponentials, silu_backward_range);
}

/* ---- gelu -------------------------------------------------------------------------------------------------------------------------- */
#define INVERSE_SQRT_2PI 0.39894228040143267794f
#define SQRT_2_OVER_PI 0.79788456080286535588f
#define CUBIC 0.044715f

/* *bell <- e^(-x^2 / 2). The exponential would magnify the rounding error of x^2, so this is added again if there is a fused operation.
 * Returns Phi(-|x|) = e^(-x^2 / 2) t Q(t), t = 1 / (1 + 0.35 |x|): Q interpolates e^(x^2 / 2) Phi(-|x|) / t at the Chebyshev points of |x|
 * <= 14.5, relative error 4e-8; beyond that the exponential is zero. */
HARK_SIMD vf lower_tail(vf x, vf *bell) {
  const vf z = vf_abs(x);
  const vf square = z * z, error = vf_fma(z, z, vf_zero() - square);
  const vf bounded = vf_select(vf_less(square, vf_set(400.0f)), error, vf_zero()); /* infinity - infinity */
  *bell = vf_exp(vf_set(-0.5f) * square) * vf_fma(vf_set(-0.5f), bounded, vf_set(1.0f));
  const vf t = vf_set(1.0f) / vf_fma(vf_set(0.35f), z, vf_set(1.0f));
  vf q = vf_set(-2.973227581e-2f);
  q = vf_fma(q, t, vf_set(1.467839861e-1f));
  q = vf_fma(q, t, vf_set(-2.614105432e-1f));
  q = vf_fma(q, t, vf_set(1.655101648e-1f));
  q = vf_fma(q, t, vf_set(-2.732191058e-2f));
  q = vf_fma(q, t, vf_set(1.072124994e-1f));
  q = vf_fma(q, t, vf_set(1.194250927e-1f));
  q = vf_fma(q, t, vf_set(1.399143339e-1f));
  q = vf_fma(q, t, vf_set(1.396186350e-1f));
  return *bell * t * q;
}

HARK_SIMD vf distribution(vf x, vf *bell) {
  const vf tail = lower_tail(x, bell);
  return vf_select(vf_less(x, vf_zero()), tail, vf_set(1.0f) - tail);
}

HARK_SIMD vf gelu(const void *constants, vf x) {
  (void)constants;
  vf bell;
  return x * distribution(x, &bell);
}
/* y = x Phi(x): dx = dy (Phi(x) + x phi(x)) */
HARK_SIMD vf gelu_backward(const void *constants, vf x, vf dy) {
  (void)constants;
  vf bell;
  const vf phi = distribution(x, &bell);
  return dy * vf_fma(x * vf_set(INVERSE_SQRT_2PI), bell, phi);
}

HARK_SIMD vf gelu_tanh(const void *constants, vf x) {
  (void)constants;
  const vf u = vf_set(SQRT_2_OVER_PI) * vf_fma(vf_set(CUBIC) * x * x, x, x);
  return x * sigmoid(u + u);
}
/* y = x s(2u): y' = s + x s (1 - s) 2u', u' = sqrt(2/pi) (1 + 3 0.044715 x^2); *share <- s */
HARK_SIMD vf gelu_tanh_slope(vf x, vf *share) {
  x = vf_min(vf_set(12.0f), vf_max(vf_set(-12.0f), x)); /* beyond, the slope is 1 or 0 to the last bit, and powers of x would overflow */
  const vf u = vf_set(SQRT_2_OVER_PI) * vf_fma(vf_set(CUBIC) * x * x, x, x);
  vf rest;
  const vf s = sigmoid_and_rest(u + u, &rest);
  const vf slope = vf_set(2.0f * SQRT_2_OVER_PI) * vf_fma(vf_set(3.0f * CUBIC) * x, x, vf_set(1.0f));
  *share = s;
  return vf_fma(x * s * rest, slope, s);
}
HARK_SIMD vf gelu_tanh_backward(const void *constants, vf x, vf dy) {
  (void)constants;
  vf share;
  return dy * gelu_tanh_slope(x, &share);
}

static bool is_approximate(const hark_call *call) { return ((const hark_gelu_attributes *)call->attributes)->tanh_approximation; }

static void gelu_range(const hark_call *call, int64_t first, int64_t last) {
  if (is_approximate(call))
    forward_map(gelu_tanh, NULL, call, first, last);
  else
    forward_map(gelu, NULL, call, first, last);
}
static void gelu_backward_range(const hark_call *call, int64_t first, int64_t last) {
  if (is_approximate(call))
    backward_map(gelu_tanh_backward, NULL, call, &call->inputs[0], first, last);
  else
    backward_map(gelu_backward, NULL, call, &call->inputs[0], first, last);
}
hark_status HARK_ISA(hark_cpu_gelu_forward)(hark_context *context, const hark_call *call) {
  return spread_forward(context, call, hark_cpu_exponentials, gelu_range);
}
hark_status HARK_ISA(hark_cpu_gelu_backward)(hark_context *context, const hark_call *call) {
  return spread_backward(context, call, hark_cpu_exponentials, gelu_backward_range);
}

/* ---- gated ------------------------------------------------------------------------------------------------------------------------- */
/* f(a) = a share(a): returns the share, *slope <- f'(a). */
typedef vf share_and_slope(vf a, vf *slope);

HARK_SIMD vf silu_share(vf a, vf *slope) {
  vf rest;
  const vf s = sigmoid_and_rest(a, &rest);
  *slope = silu_slope(tail_end(a), s, rest);
  return s;
}
HARK_SIMD vf gelu_share(vf a, vf *slope) {
  vf bell;
  const vf phi = distribution(a, &bell);
  *slope = vf_fma(a * vf_set(INVERSE_SQRT_2PI), bell, phi);
  return phi;
}
HARK_SIMD vf gelu_tanh_share(vf a, vf *slope) {
  vf share;
  *slope = gelu_tanh_slope(a, &share);
  return share;
}

HARK_SIMD vf gated_silu(const void *constants, vf a, vf b) { return silu(constants, a) * b; }
HARK_SIMD vf gated_gelu(const void *constants, vf a, vf b) { return gelu(constants, a) * b; }
HARK_SIMD vf gated_gelu_tanh(const void *constants, vf a, vf b) { return gelu_tanh(constants, a) * b; }

/* y = f(a) b: da = dy b f'(a), db = dy f(a) */
HARK_SIMD void gated_backward(share_and_slope *of, const hark_call *call, int64_t i, int count) {
  const vf a = load_lanes((const float *)call->inputs[0].data + i, count), b = load_lanes((const float *)call->inputs[1].data + i, count);
  const vf dy = load_lanes((const float *)call->output_gradients[0].data + i, count);
  vf slope;
  const vf share = of(a, &slope);
  float *da = call->input_gradients[0].data, *db = call->input_gradients[1].data;
  if (hark_cpu_requested(call, 0)) give_lanes(da + i, dy * b * slope, hark_cpu_adds(call, 0), count);
  if (hark_cpu_requested(call, 1)) give_lanes(db + i, dy * a * share, hark_cpu_adds(call, 1), count);
}
HARK_SIMD void gated_backward_over(share_and_slope *of, const hark_call *call, int64_t first, int64_t last) {
  int64_t i = first;
  for (; i + HARK_LANES <= last; i += HARK_LANES) gated_backward(of, call, i, HARK_LANES);
  if (i < last) gated_backward(of, call, i, (int)(last - i));
}

static void gated_silu_range(const hark_call *call, int64_t first, int64_t last) {
  map2(gated_silu, NULL, call->outputs[0].data, false, call->inputs[0].data, call->inputs[1].data, first, last);
}
static void gated_silu_backward_range(const hark_call *call, int64_t first, int64_t last) {
  gated_backward_over(silu_share, call, first, last);
}
hark_status HARK_ISA(hark_cpu_gated_silu_forward)(hark_context *context, const hark_call *call) {
  return spread_forward(context, call, hark_cpu_exponentials, gated_silu_range);
}
hark_status HARK_ISA(hark_cpu_gated_silu_backward)(hark_context *context, const hark_call *call) {
  return spread_backward(context, call, hark_cpu_exponentials, gated_silu_backward_range);
}

static void gated_gelu_range(const hark_call *call, int64_t first, int64_t last) {
  float *const y = call->outputs[0].data;
  const float *const a = call->inputs[0].data, *const b = call->inputs[1].data;
  if (is_approximate(call))
    map2(gated_gelu_tanh, NULL, y, false, a, b, first, last);
  else
    map2(gated_gelu, NULL, y, false, a, b, first, last);
}
static void gated_gelu_backward_range(const hark_call *call, int64_t first, int64_t last) {
  if (is_approximate(call))
    gated_backward_over(gelu_tanh_share, call, first, last);
  else
    gated_backward_over(gelu_share, call, first, last);
}
hark_status HARK_ISA(hark_cpu_gated_gelu_forward)(hark_context *context, const hark_call *call) {
  return spread_forward(context, call, hark_cpu_exponentials, gated_gelu_range);
}
hark_status HARK_ISA(hark_cpu_gated_gelu_backward)(hark_context *context, const hark_call *call) {
  return spread_backward(context, call, hark_cpu_exponentials, gated_gelu_backward_range);
}

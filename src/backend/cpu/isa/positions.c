/* positions.c - rotary, sinusoidal_positions and position_embedding: what tells a model where a token stands. x, y [B, L, D].
 *
 *     rotary      pair j of a head turns by a = (first_position + l) base^(-2j/d): y0 = x0 cos a - x1 sin a, y1 = x0 sin a + x1 cos a;
 *                 the pair is (2j, 2j+1) or (j, j + d/2). Backward: the turn by -a.            (arXiv 2104.09864, eq. 34)
 *     sinusoidal  y = x + s, s[2j] = sin a, s[2j+1] = cos a, with D in place of d. dx = dy.    (arXiv 1706.03762, section 3.5)
 *     learned     y = x + table[first_position + l]. dx = dy, dtable[p] = sum over the batch of dy.
 *
 * One piece of work takes POSITIONS positions of all sequences: sines and cosines are computed for the first of them and turned on in double,
 * c' + i s' = (c + i s)(cos w + i sin w), which loses less than POSITIONS units in the last place of a double.
 */
#include "backend/cpu/isa/elements.h"

#define POSITIONS 16
#define PAIRS 64 /* pairs whose angles are kept at a time */

/* Cosines and sines of PAIRS angles at one position, and of what they grow by from one position to the next. */
typedef struct angles {
  double cosine[PAIRS], sine[PAIRS], step_cosine[PAIRS], step_sine[PAIRS];
} angles;

static void start(angles *a, double base, int64_t features, int64_t first_pair, int64_t pairs, int64_t position) {
  for (int64_t j = 0; j < pairs; j++) {
    const double rate = pow(base, -2 * (double)(first_pair + j) / (double)features), angle = (double)position * rate;
    a->cosine[j] = cos(angle);
    a->sine[j] = sin(angle);
    a->step_cosine[j] = cos(rate);
    a->step_sine[j] = sin(rate);
  }
}

static void advance(angles *a, int64_t pairs) {
  for (int64_t j = 0; j < pairs; j++) {
    const double cosine = a->cosine[j] * a->step_cosine[j] - a->sine[j] * a->step_sine[j];
    a->sine[j] = a->sine[j] * a->step_cosine[j] + a->cosine[j] * a->step_sine[j];
    a->cosine[j] = cosine;
  }
}

/* ---- rotary ------------------------------------------------------------------------------------------------------------------------ */
/* Pairs side by side: `to` and `from` at the first of `pairs` of them. */
HARK_SIMD void turn_interleaved(float *to, const float *from, const float *cosine, const float *sine, int64_t pairs, bool add) {
  float in[2 * PAIRS], out[2 * PAIRS];
  memcpy(in, from, (size_t)(2 * pairs) * sizeof *in);
  for (int64_t j = 0; j < pairs; j++) {
    out[2 * j] = in[2 * j] * cosine[j] - in[2 * j + 1] * sine[j];
    out[2 * j + 1] = in[2 * j] * sine[j] + in[2 * j + 1] * cosine[j];
  }
  if (add)
    for (int64_t j = 0; j < 2 * pairs; j++) to[j] += out[j];
  else
    memcpy(to, out, (size_t)(2 * pairs) * sizeof *out);
}

/* Pairs (j, j + half). */
HARK_SIMD void turn_halves(float *to, const float *from, const float *cosine, const float *sine, int64_t pairs, int64_t half, bool add) {
  for (int64_t j = 0; j < pairs; j += HARK_LANES) {
    const int count = (int)hark_min(HARK_LANES, pairs - j);
    const vf x0 = load_lanes(from + j, count), x1 = load_lanes(from + j + half, count), c = vf_load(cosine + j), s = vf_load(sine + j);
    give_lanes(to + j, x0 * c - x1 * s, add, count);
    give_lanes(to + j + half, x0 * s + x1 * c, add, count);
  }
}

/* to <- from turned by direction times the angle, at the positions [first, last) of all sequences */
static void turn(const hark_rotary_attributes *rotary, const hark_tensor *shape, float *to, bool add, const float *from, float direction,
                 int64_t first, int64_t last) {
  const int64_t batch = shape->shape[0], length = shape->shape[1], width = shape->shape[2];
  const int64_t features = width / rotary->heads, half = features / 2;
  angles a;
  float cosine[PAIRS] = {0}, sine[PAIRS] = {0};
  for (int64_t first_pair = 0; first_pair < half; first_pair += PAIRS) {
    const int64_t pairs = hark_min(PAIRS, half - first_pair);
    start(&a, rotary->base, features, first_pair, pairs, rotary->first_position + first);
    for (int64_t l = first; l < last; l++) {
      for (int64_t j = 0; j < pairs; j++) {
        cosine[j] = (float)a.cosine[j];
        sine[j] = direction * (float)a.sine[j];
      }
      for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < rotary->heads; h++) {
          const int64_t head = (b * length + l) * width + h * features;
          if (rotary->pairs == HARK_ROTARY_INTERLEAVED)
            turn_interleaved(to + head + 2 * first_pair, from + head + 2 * first_pair, cosine, sine, pairs, add);
          else
            turn_halves(to + head + first_pair, from + head + first_pair, cosine, sine, pairs, half, add);
        }
      advance(&a, pairs);
    }
  }
}

static void rotary_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call->attributes, &call->inputs[0], call->outputs[0].data, false, call->inputs[0].data, 1, first, last);
}
/* y = R(a) x: dx = R(-a) dy */
static void rotary_backward_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call->attributes, &call->output_gradients[0], call->input_gradients[0].data, hark_cpu_adds(call, 0), call->output_gradients[0].data,
       -1, first, last);
}

/* Ranges of positions of a tensor [B, L, D]. */
static void run_positions(hark_context *context, const hark_call *call, const hark_tensor *shape, hark_cpu_range *body) {
  const int64_t numbers = hark_max(1, shape->shape[0] * shape->shape[2]);
  hark_cpu_ranges(context, call, shape->shape[1], POSITIONS, hark_max(POSITIONS, HARK_CPU_GRAIN / numbers), body);
}

hark_status HARK_ISA(hark_cpu_rotary_forward)(hark_context *context, const hark_call *call) {
  run_positions(context, call, &call->inputs[0], rotary_positions);
  return HARK_OK;
}
hark_status HARK_ISA(hark_cpu_rotary_backward)(hark_context *context, const hark_call *call) {
  if (!hark_cpu_no_gradient(call)) run_positions(context, call, &call->output_gradients[0], rotary_backward_positions);
  return HARK_OK;
}

/* ---- sinusoidal_positions ---------------------------------------------------------------------------------------------------------- */
static void sinusoidal_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_sinusoidal_positions_attributes *attributes = call->attributes;
  const hark_tensor *shape = &call->inputs[0];
  const int64_t batch = shape->shape[0], length = shape->shape[1], width = shape->shape[2], all_pairs = (width + 1) / 2;
  const float *x = call->inputs[0].data;
  float *y = call->outputs[0].data;
  angles a;
  float added[2 * PAIRS];
  for (int64_t first_pair = 0; first_pair < all_pairs; first_pair += PAIRS) {
    const int64_t pairs = hark_min(PAIRS, all_pairs - first_pair), count = hark_min(2 * pairs, width - 2 * first_pair);
    start(&a, attributes->base, width, first_pair, pairs, attributes->first_position + first);
    for (int64_t l = first; l < last; l++) {
      for (int64_t j = 0; j < pairs; j++) {
        added[2 * j] = (float)a.sine[j];
        added[2 * j + 1] = (float)a.cosine[j];
      }
      for (int64_t b = 0; b < batch; b++) {
        const int64_t at = (b * length + l) * width + 2 * first_pair;
        for (int64_t d = 0; d < count; d++) y[at + d] = x[at + d] + added[d];
      }
      advance(&a, pairs);
    }
  }
}

hark_status HARK_ISA(hark_cpu_sinusoidal_positions_forward)(hark_context *context, const hark_call *call) {
  run_positions(context, call, &call->inputs[0], sinusoidal_positions);
  return HARK_OK;
}

HARK_SIMD vf same(const void *constants, vf x) {
  (void)constants;
  return x;
}

/* y = x + ...: dx = dy */
static void pass_on(const hark_call *call, int64_t first, int64_t last) {
  map(same, NULL, call->input_gradients[0].data, hark_cpu_adds(call, 0), call->output_gradients[0].data, first, last);
}
static void backward_x(hark_context *context, const hark_call *call) {
  if (hark_cpu_wanted(call, 0)) hark_cpu_elements(context, call, hark_tensor_count(&call->output_gradients[0]), pass_on);
}
hark_status HARK_ISA(hark_cpu_sinusoidal_positions_backward)(hark_context *context, const hark_call *call) {
  if (!hark_cpu_no_gradient(call)) backward_x(context, call);
  return HARK_OK;
}

/* ---- position_embedding ------------------------------------------------------------------------------------------------------------ */
enum { INPUT_X, INPUT_TABLE };

static int64_t first_position(const hark_call *call) {
  return ((const hark_position_embedding_attributes *)call->attributes)->first_position;
}

static void embedding_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *shape = &call->inputs[INPUT_X];
  const int64_t batch = shape->shape[0], length = shape->shape[1], width = shape->shape[2];
  for (int64_t b = 0; b < batch; b++)
    for (int64_t l = first; l < last; l++) {
      const float *row = (const float *)call->inputs[INPUT_TABLE].data + (first_position(call) + l) * width;
      const float *x = (const float *)shape->data + (b * length + l) * width;
      float *y = (float *)call->outputs[0].data + (b * length + l) * width;
      for (int64_t d = 0; d < width; d += HARK_LANES) {
        const int count = (int)hark_min(HARK_LANES, width - d);
        store_lanes(y + d, load_lanes(x + d, count) + load_lanes(row + d, count), count);
      }
    }
}
hark_status HARK_ISA(hark_cpu_position_embedding_forward)(hark_context *context, const hark_call *call) {
  run_positions(context, call, &call->inputs[INPUT_X], embedding_positions);
  return HARK_OK;
}

/* y[b, l] = ... + table[first_position + l]: dtable[p] = sum_b dy[b, p - first_position], zero where no position of the batch is */
static void table_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *dy = &call->output_gradients[0];
  const int64_t batch = dy->shape[0], length = dy->shape[1], width = dy->shape[2];
  const bool add = hark_cpu_adds(call, INPUT_TABLE);
  for (int64_t p = first; p < last; p++) {
    const int64_t l = p - first_position(call);
    float *out = (float *)call->input_gradients[INPUT_TABLE].data + p * width;
    for (int64_t d = 0; d < width; d += HARK_LANES) {
      const int count = (int)hark_min(HARK_LANES, width - d);
      vf sum = vf_zero();
      if (l >= 0 && l < length)
        for (int64_t b = 0; b < batch; b++) sum = sum + load_lanes((const float *)dy->data + (b * length + l) * width + d, count);
      give_lanes(out + d, sum, add, count);
    }
  }
}
hark_status HARK_ISA(hark_cpu_position_embedding_backward)(hark_context *context, const hark_call *call) {
  if (hark_cpu_no_gradient(call)) return HARK_OK;
  backward_x(context, call);
  if (hark_cpu_wanted(call, INPUT_TABLE)) {
    const hark_tensor *dy = &call->output_gradients[0];
    const int64_t numbers = hark_max(1, dy->shape[0] * dy->shape[2]);
    hark_cpu_ranges(context, call, call->input_gradients[INPUT_TABLE].shape[0], POSITIONS, HARK_CPU_GRAIN / numbers, table_rows);
  }
  return HARK_OK;
}

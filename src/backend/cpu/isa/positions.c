/* positions.c - rotary, sinusoidal_positions and position_embedding: position encodings of tokens. x, y [B, L, D].
 *
 *     rotary      pair j of a head is rotated by a = p rate_j, p = first_position + l: y0 = x0 cos a - x1 sin a, y1 = x0 sin a + x1 cos a;
 *                 the pair is (2j, 2j+1) or (j, j + d/2). Backward: rotation by -a.            (arXiv 2104.09864, eq. 34)
 *                 drate_j = sum of p (dy1 y0 - dy0 y1), in double, in at most PARTS blocks of positions that are added in order.
 *     sinusoidal  y = x + s, s[2j] = sin a, s[2j+1] = cos a, with D in place of d. dx = dy.    (arXiv 1706.03762, section 3.5)
 *     learned     y = x + table[first_position + l]. dx = dy, dtable[p] = sum over the batch of dy.
 *
 * One piece of work processes POSITIONS positions of all sequences: sines and cosines are computed for the first of them and then advanced
 * in double, c' + i s' = (c + i s)(cos w + i sin w), which loses less than POSITIONS units in the last place of a double. If positions are
 * given, they are computed at multiples of POSITIONS, so that a row's bits depend on its position alone.
 */
#include "backend/cpu/isa/elements.h"

#define POSITIONS 16
#define PAIRS 64 /* pairs whose angles are kept at a time */
#define PARTS 64 /* of the sums for the rates; the record requests so many vectors of doubles */

/* Cosines and sines of PAIRS angles at one position, and of their differences between successive positions. */
typedef struct angles {
  double cosine[PAIRS], sine[PAIRS], step_cosine[PAIRS], step_sine[PAIRS];
} angles;

/* Angles at `position`, of pairs with these angles per position. */
static void start(angles *a, const double *rate, int64_t pairs, int64_t position) {
  for (int64_t j = 0; j < pairs; j++) {
    const double angle = (double)position * rate[j];
    a->cosine[j] = cos(angle);
    a->sine[j] = sin(angle);
    a->step_cosine[j] = cos(rate[j]);
    a->step_sine[j] = sin(rate[j]);
  }
}

static void advance(angles *a, int64_t pairs) {
  for (int64_t j = 0; j < pairs; j++) {
    const double cosine = a->cosine[j] * a->step_cosine[j] - a->sine[j] * a->step_sine[j];
    a->sine[j] = a->sine[j] * a->step_cosine[j] + a->cosine[j] * a->step_sine[j];
    a->cosine[j] = cosine;
  }
}

/* Angles at row `first`. Its position is positions[first], or first_position + first if positions is NULL. */
static void start_row(angles *a, const double *rate, int64_t pairs, const int32_t *positions, int64_t first_position, int64_t first) {
  if (positions == NULL) {
    start(a, rate, pairs, first_position + first);
    return;
  }
  const int64_t steps = (positions[first] % POSITIONS + POSITIONS) % POSITIONS;
  start(a, rate, pairs, positions[first] - steps);
  for (int64_t i = 0; i < steps; i++) advance(a, pairs);
}

/* Advances the angles from row l - 1 to row l. */
static void next_row(angles *a, const double *rate, int64_t pairs, const int32_t *positions, int64_t l) {
  if (positions == NULL || (positions[l] == positions[l - 1] + 1 && positions[l] % POSITIONS != 0))
    advance(a, pairs);
  else
    start_row(a, rate, pairs, positions, 0, l);
}

/* ---- rotary ------------------------------------------------------------------------------------------------------------------------ */
/* Adjacent numbers are a pair: `to` and `from` point to the first of `pairs` pairs. */
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
    give_lanes(to + j, vf_fma(x0, c, -(x1 * s)), add, count);
    give_lanes(to + j + half, vf_fma(x0, s, x1 * c), add, count);
  }
}

/* Common data of a call's rotations. Without `rates` there is one row of rates for all heads. */
typedef struct rotation {
  const hark_rotary_attributes *rotary;
  const float *rates;       /* [rows, turned], or NULL */
  const int32_t *positions; /* [length], or NULL */
  int64_t batch, length, width;
  int64_t features, turned; /* per head: numbers, rotated pairs */
  int64_t rows, row_heads;
} rotation;

enum { ROTARY_X, ROTARY_RATES, ROTARY_POSITIONS };

/* NULL if they are not given. */
static const int32_t *positions_of(const hark_call *call, int input) {
  return call->input_count > input && call->inputs[input].type != HARK_NONE ? call->inputs[input].data : NULL;
}

static rotation rotation_of(const hark_call *call) {
  const hark_rotary_attributes *rotary = call->attributes;
  const hark_tensor *x = &call->inputs[ROTARY_X], *rates = &call->inputs[ROTARY_RATES];
  const bool given = call->input_count > ROTARY_RATES && rates->type != HARK_NONE;
  rotation r = {.rotary = rotary, .batch = x->shape[0], .length = x->shape[1], .width = x->shape[2], .rows = given ? rates->shape[0] : 1};
  r.rates = given ? rates->data : NULL;
  r.positions = positions_of(call, ROTARY_POSITIONS);
  r.features = r.width / rotary->heads;
  r.turned = rotary->turned > 0 ? rotary->turned : r.features / 2;
  r.row_heads = rotary->heads / r.rows;
  return r;
}

/* Of the rate that an input gives for pair j. */
static double factor_of(const rotation *r, int64_t j) { return r->rotary->rates != NULL ? r->rotary->rates[j] : 1; }

static void read_rates(const rotation *r, int64_t row, int64_t first_pair, int64_t pairs, double *rate) {
  const double stretch = r->rotary->stretch != 0 ? r->rotary->stretch : 1;
  for (int64_t j = 0; j < pairs; j++)
    rate[j] = r->rates == NULL ? hark_rotary_rate(r->rotary, r->features, first_pair + j)
                               : (double)r->rates[row * r->turned + first_pair + j] * factor_of(r, first_pair + j) / stretch;
}

/* The pairs [first_pair, first_pair + pairs) of the heads of a row, at the positions [first, last) of all sequences. */
static void turn_pairs(const rotation *r, float *to, bool add, const float *from, float direction, int64_t first, int64_t last, int64_t row,
                       int64_t first_pair, int64_t pairs) {
  angles a;
  double rate[PAIRS];
  float cosine[PAIRS] = {0}, sine[PAIRS] = {0};
  read_rates(r, row, first_pair, pairs, rate);
  for (int64_t l = first; l < last; l++) {
    if (l == first)
      start_row(&a, rate, pairs, r->positions, r->rotary->first_position, first);
    else
      next_row(&a, rate, pairs, r->positions, l);
    for (int64_t j = 0; j < pairs; j++) {
      cosine[j] = (float)a.cosine[j];
      sine[j] = direction * (float)a.sine[j];
    }
    for (int64_t b = 0; b < r->batch; b++)
      for (int64_t h = row * r->row_heads; h < (row + 1) * r->row_heads; h++) {
        const int64_t head = (b * r->length + l) * r->width + h * r->features;
        if (r->rotary->pairs == HARK_ROTARY_INTERLEAVED)
          turn_interleaved(to + head + 2 * first_pair, from + head + 2 * first_pair, cosine, sine, pairs, add);
        else
          turn_halves(to + head + first_pair, from + head + first_pair, cosine, sine, pairs, r->features / 2, add);
      }
  }
}

/* to <- from, or to + from */
HARK_SIMD void pass_features(float *to, bool add, const float *from, int64_t count) {
  for (int64_t d = 0; d < count; d += HARK_LANES) {
    const int lanes = (int)hark_min(HARK_LANES, count - d);
    give_lanes(to + d, load_lanes(from + d, lanes), add, lanes);
  }
}

/* The pairs that are not rotated. */
static void pass_pairs(const rotation *r, float *to, bool add, const float *from, int64_t first, int64_t last) {
  const int64_t half = r->features / 2, rest = half - r->turned;
  if (rest == 0 || (to == from && !add)) return;
  for (int64_t b = 0; b < r->batch; b++)
    for (int64_t l = first; l < last; l++)
      for (int64_t h = 0; h < r->rotary->heads; h++) {
        const int64_t head = (b * r->length + l) * r->width + h * r->features;
        if (r->rotary->pairs == HARK_ROTARY_INTERLEAVED) {
          pass_features(to + head + 2 * r->turned, add, from + head + 2 * r->turned, 2 * rest);
        } else {
          pass_features(to + head + r->turned, add, from + head + r->turned, rest);
          pass_features(to + head + half + r->turned, add, from + head + half + r->turned, rest);
        }
      }
}

/* to <- from rotated by direction times the angle, at the positions [first, last) of all sequences */
static void turn(const hark_call *call, float *to, bool add, const float *from, float direction, int64_t first, int64_t last) {
  const rotation r = rotation_of(call);
  for (int64_t row = 0; row < r.rows; row++)
    for (int64_t first_pair = 0; first_pair < r.turned; first_pair += PAIRS)
      turn_pairs(&r, to, add, from, direction, first, last, row, first_pair, hark_min(PAIRS, r.turned - first_pair));
  pass_pairs(&r, to, add, from, first, last);
}

static void rotary_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call, call->outputs[0].data, false, call->inputs[ROTARY_X].data, 1, first, last);
}
/* y = R(a) x: dx = R(-a) dy */
static void rotary_backward_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call, call->input_gradients[ROTARY_X].data, hark_cpu_adds(call, ROTARY_X), call->output_gradients[0].data, -1, first, last);
}

static int64_t part_positions(int64_t length) { return hark_max(1, hark_ceil_div(length, PARTS)); }

/* y = R(a) x: sums[row, j] += p / stretch (dy1 y0 - dy0 y1) for the pairs of one head at position p */
static void add_rate_gradients(const rotation *r, double *sums, const float *y, const float *dy, double position) {
  const bool interleaved = r->rotary->pairs == HARK_ROTARY_INTERLEAVED;
  const int64_t step = interleaved ? 2 : 1, other = interleaved ? 1 : r->features / 2;
  for (int64_t j = 0; j < r->turned; j++) {
    const double y0 = y[step * j], y1 = y[step * j + other], dy0 = dy[step * j], dy1 = dy[step * j + other];
    sums[j] += position * (dy1 * y0 - dy0 * y1);
  }
}

/* Computes one part of the sums, [rows, turned], in the workspace. */
static void rotary_rates_positions(const hark_call *call, int64_t first, int64_t last) {
  const rotation r = rotation_of(call);
  const float *y = call->outputs[0].data, *dy = call->output_gradients[0].data;
  const double stretch = r.rotary->stretch != 0 ? r.rotary->stretch : 1;
  double *sums = (double *)call->workspace + first / part_positions(r.length) * r.rows * r.turned;
  for (int64_t i = 0; i < r.rows * r.turned; i++) sums[i] = 0;
  for (int64_t l = first; l < last; l++) {
    const int64_t position = r.positions != NULL ? r.positions[l] : r.rotary->first_position + l;
    for (int64_t b = 0; b < r.batch; b++)
      for (int64_t h = 0; h < r.rotary->heads; h++) {
        const int64_t head = (b * r.length + l) * r.width + h * r.features;
        add_rate_gradients(&r, sums + h / r.row_heads * r.turned, y + head, dy + head, (double)position / stretch);
      }
  }
}

static void add_rate_parts(const hark_call *call) {
  const int64_t length = call->outputs[0].shape[1], parts = hark_ceil_div(length, part_positions(length));
  const int64_t count = hark_tensor_count(&call->inputs[ROTARY_RATES]);
  const rotation r = rotation_of(call);
  const double *sums = call->workspace;
  float *to = call->input_gradients[ROTARY_RATES].data;
  for (int64_t i = 0; i < count; i++) {
    double sum = hark_cpu_adds(call, ROTARY_RATES) ? (double)to[i] : 0;
    for (int64_t part = 0; part < parts; part++) sum += factor_of(&r, i % r.turned) * sums[part * count + i];
    to[i] = (float)sum;
  }
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
  if (hark_cpu_no_gradient(call)) return HARK_OK;
  const hark_tensor *dy = &call->output_gradients[0];
  if (hark_cpu_requested(call, ROTARY_X)) run_positions(context, call, dy, rotary_backward_positions);
  if (hark_cpu_requested(call, ROTARY_RATES)) {
    const int64_t length = dy->shape[1], numbers = hark_max(1, dy->shape[0] * dy->shape[2]);
    hark_cpu_ranges(context, call, length, part_positions(length), HARK_CPU_GRAIN / numbers, rotary_rates_positions);
    add_rate_parts(call);
  }
  return HARK_OK;
}

/* ---- sinusoidal_positions ---------------------------------------------------------------------------------------------------------- */
static void sinusoidal_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_sinusoidal_positions_attributes *attributes = call->attributes;
  const hark_tensor *shape = &call->inputs[0];
  const int64_t batch = shape->shape[0], length = shape->shape[1], width = shape->shape[2], all_pairs = (width + 1) / 2;
  const int32_t *positions = positions_of(call, 1);
  const float *x = call->inputs[0].data;
  float *y = call->outputs[0].data;
  angles a;
  double rate[PAIRS];
  float added[2 * PAIRS];
  for (int64_t first_pair = 0; first_pair < all_pairs; first_pair += PAIRS) {
    const int64_t pairs = hark_min(PAIRS, all_pairs - first_pair), count = hark_min(2 * pairs, width - 2 * first_pair);
    for (int64_t j = 0; j < pairs; j++) rate[j] = pow(attributes->base, -2 * (double)(first_pair + j) / (double)width);
    for (int64_t l = first; l < last; l++) {
      if (l == first)
        start_row(&a, rate, pairs, positions, attributes->first_position, first);
      else
        next_row(&a, rate, pairs, positions, l);
      for (int64_t j = 0; j < pairs; j++) {
        added[2 * j] = (float)a.sine[j];
        added[2 * j + 1] = (float)a.cosine[j];
      }
      for (int64_t b = 0; b < batch; b++) {
        const int64_t at = (b * length + l) * width + 2 * first_pair;
        for (int64_t d = 0; d < count; d++) y[at + d] = x[at + d] + added[d];
      }
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
  if (hark_cpu_requested(call, 0)) hark_cpu_elements(context, call, hark_tensor_count(&call->output_gradients[0]), pass_on);
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

/* y[b, l] = ... + table[first_position + l]: dtable[p] = sum_b dy[b, p - first_position], zero if the batch does not have the position */
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
  if (hark_cpu_requested(call, INPUT_TABLE)) {
    const hark_tensor *dy = &call->output_gradients[0];
    const int64_t numbers = hark_max(1, dy->shape[0] * dy->shape[2]);
    hark_cpu_ranges(context, call, call->input_gradients[INPUT_TABLE].shape[0], POSITIONS, HARK_CPU_GRAIN / numbers, table_rows);
  }
  return HARK_OK;
}

/* kernel_ridge_tile.c - see kernel_ridge_tile.h: memory, keys, queries and kernels of one head, in tiles of 64 x 64.
 *
 * Exponents of rbf are scale (k.q - |k|^2 / 2 - |q|^2 / 2), at most 0 by a clamp; all exponents are of 2. They lose digits if rows are long
 * in units of sigma, so the first visible key is subtracted from keys and queries. This changes no distance, and every row that sees a key
 * is at or after the first visible one, so no information comes from the future. If that key is far from zero, it is subtracted only from
 * rows that are nearer to it than to zero, so that a first key far from all others does no harm. kernel_ridge_distances.c corrects
 * remaining errors with differences. Squares are summed in the same way as products: equal rows have a kernel of exactly G. The lengths of
 * queries and keys usually show that exponents are in range; otherwise they are checked entry by entry. Cost: Gram n^2 d / 2
 * multiply-adds.
 */
#include "kernel_ridge_tile.h"
#include "core/cancel.h"

/* Half square of the first key, in units of log 2, up to which it is subtracted from every row. */
#define RIDGE_SPLIT 128.0f
/* Largest exponent of a distance to the centre for which products fit into f32. */
#define FARTHEST (FLT_MAX / 8)

typedef struct carver {
  float *memory;
  size_t used;
} carver;

static float *carve(carver *c, bool needed, int64_t count) {
  if (!needed) return NULL;
  float *at = c->memory != NULL ? c->memory + c->used : NULL;
  c->used += hark_align_up((size_t)count * sizeof(float)) / sizeof(float);
  return at;
}

static void carve_places(carver *c, bool needed, int64_t tiles, int64_t features, ridge_places *places) {
  places->alongs = carve(c, needed, tiles * HARK_RIDGE_TILE);
  places->kept = carve(c, needed, tiles * HARK_RIDGE_TILE);
  places->longest = carve(c, needed, tiles);
  places->mixed = carve(c, needed, tiles);
  places->lengths = (double *)(void *)carve(c, needed, 2 * tiles * HARK_RIDGE_TILE);
  places->given = carve(c, needed, tiles * HARK_RIDGE_TILE * features);
}

static void carve_solver(carver *c, int64_t keys, int64_t value_dim, ridge_tiles *h) {
  const int columns = ridge_solver_columns(value_dim);
  const size_t doubles = HARK_ISA(hark_cpu_ridge_solver_carve)(keys, columns, NULL, &h->solver);
  double *memory = (double *)(void *)carve(c, true, 2 * (int64_t)doubles);
  (void)HARK_ISA(hark_cpu_ridge_solver_carve)(keys, columns, memory, &h->solver);
  h->products = (double *)(void *)carve(c, true, 2 * value_dim);
}

size_t HARK_ISA(hark_cpu_ridge_carve)(const hark_attention_desc *desc, bool backward, float *memory, ridge_tiles *h) {
  const int64_t tiles = hark_ceil_div(hark_ridge_most_keys(desc), HARK_RIDGE_TILE), keys = tiles * HARK_RIDGE_TILE, lanes = HARK_RIDGE_TILE;
  const int64_t triangle = tiles * (tiles + 1) / 2 * HARK_RIDGE_TILE_FLOATS;
  const int64_t dp = (int)hark_padded(desc->head_dim), dvp = (int)hark_padded(desc->value_dim), d = desc->head_dim, dv = desc->value_dim;
  const bool rbf = desc->kernel == HARK_KERNEL_RBF;
  const int64_t apart = (int64_t)(sizeof(ridge_apart) / sizeof(float));
  const bool iterates = ridge_iterates(desc);
  const bool has_matrix = backward && ridge_has_matrix(desc), full_backward = backward && !desc->causal;
  carver c = {memory, 0};
  h->dp = (int)dp;
  h->dvp = (int)dvp;
  h->factor = carve(&c, !iterates, triangle);
  h->reciprocal = carve(&c, true, keys);
  h->added = carve(&c, desc->has_noise != 0, keys);
  h->key_rows = carve(&c, true, keys * dp);
  h->key_lanes = carve(&c, true, keys * d);
  h->key_squares = carve(&c, true, keys);
  h->centre = carve(&c, true, dp);
  carve_places(&c, rbf, tiles, d, &h->key_places);
  carve_places(&c, rbf, 1, d, &h->query_places);
  h->seen = carve(&c, true, keys);
  h->solved = carve(&c, true, keys * dvp);
  h->tables = carve(&c, desc->has_log_kernel, 2 * hark_ridge_distances(desc) + 2 * lanes + HARK_LANES);
  h->panel = carve(&c, !backward && !iterates, keys * lanes);
  h->query_rows = carve(&c, true, lanes * dp);
  h->query_lanes = carve(&c, true, lanes * d);
  h->query_squares = carve(&c, true, lanes);
  h->sums = carve(&c, !backward && !iterates, lanes * dvp);
  h->matrix = carve(&c, has_matrix && !iterates, triangle);
  h->kernels = carve(&c, backward, keys * lanes);
  h->pair = carve(&c, has_matrix, 2 * keys * lanes);
  h->turned = carve(&c, has_matrix, 2 * HARK_RIDGE_TILE_FLOATS);
  h->weights = carve(&c, full_backward && desc->has_dvariance != 0, 2 * lanes);
  h->work = carve(&c, full_backward, HARK_RIDGE_TILE_FLOATS);
  h->dout_rows = carve(&c, backward, lanes * dvp);
  h->dout_lanes = carve(&c, backward, lanes * dv);
  h->dquery = carve(&c, backward, lanes * dp);
  h->dkeys = carve(&c, backward, keys * dp);
  h->dvalues = carve(&c, backward, keys * dvp);
  h->key_sums = carve(&c, backward, keys);
  h->query_sums = carve(&c, backward, lanes);
  h->distances = carve(&c, backward, 2 * lanes);
  h->lanes_solved = carve(&c, full_backward, keys * dv);
  h->lanes_dvalues = carve(&c, full_backward, keys * dv);
  h->panel_apart = (ridge_apart *)(void *)carve(&c, backward && rbf, tiles * apart);
  h->matrix_apart = (ridge_apart *)(void *)carve(&c, backward && rbf && !iterates, tiles * (tiles + 1) / 2 * apart);
  h->apart_dquery = carve(&c, backward && rbf, lanes * dp);
  h->apart_dkeys = carve(&c, backward && rbf, keys * dp);
  h->apart_along = (double *)(void *)carve(&c, backward && rbf, 2 * tiles);
  if (iterates) carve_solver(&c, keys, dv, h);
  return c.used;
}

hark_status HARK_ISA(hark_cpu_ridge_floats)(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out) {
  const double keys = (double)hark_ridge_most_keys(desc) + 2 * HARK_RIDGE_TILE,
               dims = (double)desc->head_dim + (double)desc->value_dim + 64;
  if (4 * keys * (2 * keys + 8 * dims + 512) + 8 * (double)desc->query_length > (double)(PTRDIFF_MAX / 64))
    return hark_fail(context, HARK_TOO_LARGE, "attention: %lld keys with normalisation cme make a factor larger than memory can be",
                     (long long)hark_ridge_most_keys(desc));
  ridge_tiles h;
  *out = HARK_ISA(hark_cpu_ridge_carve)(desc, backward, NULL, &h);
  return HARK_OK;
}

ridge_workspace HARK_ISA(hark_cpu_ridge_workspace)(hark_context *context, const hark_attention_call *run, bool backward) {
  const hark_attention_desc *desc = &run->plan->desc;
  ridge_workspace w = {.context = context, .records = run->scratch, .backward = backward};
  ridge_tiles h;
  size_t partials = 0; /* sizes() has checked that it does not overflow */
  const hark_status status = backward ? hark_ridge_partials_bytes(context, desc, &partials) : HARK_OK;
  (void)status;
  w.per_worker = HARK_ISA(hark_cpu_ridge_carve)(desc, backward, NULL, &h);
  w.partials = (double *)(void *)(w.records + run->plan->workers);
  w.floats = (float *)(void *)((char *)w.partials + hark_align_up(partials));
  hark_ridge_records_clear(w.records, run->plan->workers);
  return w;
}

/* Reads a row of d numbers into dp: scaled to unit length if requested, minus the centre. Returns the given row's square, which is NaN or
 * infinite if a number is. *far: the exponent of the stored row, with rbf. places: receives the data of the stored row, or NULL. */
static double read_row(const ridge_tiles *h, const float *from, float *to, const ridge_places *places, int64_t row, double *far) {
  const int d = (int)h->desc->head_dim;
  double squares = 0, kept = 0, along = 0;
  for (int c = 0; c < d; c++) squares += (double)from[c] * from[c];
  const double length = h->desc->unit && squares > 0 ? sqrt(squares) : 1;
  const float gain = (float)(1 / length);
  const bool in_range = gain >= FLT_MIN && gain <= FLT_MAX; /* false for lengths near the limits of f32 */
  bool takes = true;                                        /* subtract the centre? */
  if (h->splits) {
    double product = 0, centre = 0;
    for (int c = 0; c < d; c++) {
      product += (in_range ? (double)gain * (double)from[c] : (double)from[c] / length) * (double)h->centre[c];
      centre += (double)h->centre[c] * (double)h->centre[c];
    }
    takes = product > centre / 2;
  }
  for (int c = 0; c < d; c++) {
    const float x = in_range ? gain * from[c] : (float)((double)from[c] / length);
    to[c] = takes ? x - h->centre[c] : x;
    kept += (double)to[c] * to[c];
    along += (double)to[c] * (double)h->centre[c];
  }
  for (int c = d; c < h->dp; c++) to[c] = 0;
  if (places != NULL && h->rbf) {
    places->alongs[row] = (float)((double)h->scale2 * along);
    places->kept[row] = takes ? 1.0f : 0.0f;
    places->lengths[row] = h->desc->unit && squares > 0 ? 1 / sqrt(squares) : 1;
  }
  *far = h->rbf ? -h->is.scale * kept / 2 : 0;
  return h->desc->unit && squares > 0 && isfinite(squares) ? 1 : squares;
}

/* 64 rows transposed, times scale2; with rbf half of their squares times scale2, summed like products. */
HARK_SIMD_NOINLINE void pack_lanes(const ridge_tiles *h, const float *rows, float *lanes, float *squares) {
  const int d = (int)h->desc->head_dim;
  const vf gain = vf_set(h->scale2);
  hark_pack_transposed(rows, h->dp, HARK_RIDGE_TILE, d, 1.0f, lanes);
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
    vf sum = vf_zero();
    for (int c = 0; c < d; c++) {
      float *at = lanes + c * HARK_RIDGE_TILE + lane;
      const vf x = vf_load(at), scaled = gain * x;
      vf_store(at, scaled);
      sum = vf_fma(scaled, x, sum);
    }
    vf_store(squares + lane, h->rbf ? vf_set(0.5f) * sum : vf_zero());
  }
}

static bool is_seen(const ridge_tiles *h, int64_t i) {
  const hark_tensor *mask = &h->run->args->mask;
  if (mask->type == HARK_NONE) return true;
  const int64_t at = h->sequence->item * mask->stride[0] + h->head * mask->stride[1] + (h->sequence->key_row + i) * mask->stride[3];
  return ((const uint8_t *)mask->data)[at] != 0;
}

/* The first visible key with rbf, else zeros. */
static void read_centre(ridge_tiles *h) {
  double far;
  memset(h->centre, 0, (size_t)h->dp * sizeof *h->centre);
  h->splits = false;
  h->centre_square = 0;
  for (int64_t i = 0; i < h->keys && h->rbf; i++) {
    if (h->seen[i] == 0) continue;
    (void)read_row(h, ridge_row(&h->run->args->key, h->sequence, h->key_head, h->sequence->key_row + i), h->centre, NULL, 0, &far);
    h->centre_square = (float)(-far * (double)HARK_LOG2_E);
    h->splits = h->centre_square > RIDGE_SPLIT;
    return;
  }
}

/* Rows whose products do not fit into f32 are stored as zeros with infinite squares: all their distances come from the given rows. */
static void set_far(uint64_t far_rows, float *squares) {
  for (int i = 0; far_rows != 0; i++, far_rows >>= 1)
    if (far_rows & 1) squares[i] = INFINITY;
}

/* Reads a visible key and its value; *is_far: the key is stored as zeros. */
static bool read_key(ridge_tiles *h, int64_t i, float *row, float *value, bool *is_far) {
  const hark_attention_args *args = h->run->args;
  const int64_t at = h->sequence->key_row + i;
  const int dv = (int)h->desc->value_dim;
  double far;
  const double squares = read_row(h, ridge_row(&args->key, h->sequence, h->key_head, at), row, &h->key_places, i, &far);
  if (!isfinite(squares)) { /* in float64 squares of finite numbers are finite */
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_KEY, at, far);
    return false;
  }
  *is_far = !(far >= -FARTHEST);
  if (*is_far) memset(row, 0, (size_t)h->dp * sizeof *row);
  h->longest = fmax(h->longest, sqrt(squares));
  const float *from = ridge_row(&args->value, h->sequence, h->key_head, at);
  if (!hark_rows_finite(from, 0, 1, dv)) {
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_VALUE, at, 0);
    return false;
  }
  hark_pack_rows(from, 0, 1, dv, h->dvp, 1.0f, value);
  return true;
}

/* The keys of a tile; *far_rows: a bit for each key that is stored as zeros. */
static bool read_key_tile(ridge_tiles *h, int64_t tile, uint64_t *far_rows) {
  *far_rows = 0;
  for (int64_t i = tile * HARK_RIDGE_TILE; i < (tile + 1) * HARK_RIDGE_TILE; i++) {
    float *row = h->key_rows + i * h->dp, *value = h->solved + i * h->dvp;
    bool is_far = false;
    if (h->seen[i] == 0) {
      memset(row, 0, (size_t)h->dp * sizeof *row);
      memset(value, 0, (size_t)h->dvp * sizeof *value);
      if (h->rbf) h->key_places.alongs[i] = h->key_places.kept[i] = 0;
      continue;
    }
    if (!read_key(h, i, row, value, &is_far)) return false;
    if (is_far) *far_rows |= (uint64_t)1 << (i % HARK_RIDGE_TILE);
  }
  return true;
}

static bool read_keys(ridge_tiles *h) {
  read_centre(h);
  for (int64_t t = 0; t < h->tiles; t++) {
    const int64_t first = t * HARK_RIDGE_TILE;
    uint64_t far_rows;
    if (!read_key_tile(h, t, &far_rows)) return false;
    pack_lanes(h, h->key_rows + first * h->dp, h->key_lanes + first * h->desc->head_dim, h->key_squares + first);
    set_far(far_rows, h->key_squares + first);
    const ridge_side side = HARK_ISA(hark_cpu_ridge_key_side)(h, t);
    if (h->rbf) HARK_ISA(hark_cpu_ridge_place)(h, &side);
  }
  return true;
}

static bool read_noise(const ridge_tiles *h) {
  for (int64_t i = 0; i < h->tiles * HARK_RIDGE_TILE; i++) {
    double added = 0;
    if (h->seen[i] != 0 && !hark_ridge_added(&h->is, HARK_F32, hark_ridge_noise(h->run->args, h->sequence, h->head, i), h->system,
                                             h->sequence->key_row + i, h->record, &added))
      return false;
    h->added[i] = (float)added;
  }
  return true;
}

/* The exponent of two rows at a distance, in double. Only for exp, whose rows are stored as given. */
static double exponent(const ridge_tiles *h, const float *x, const float *y, int64_t distance) {
  double product = 0, square = 0;
  for (int c = 0; c < (int)h->desc->head_dim; c++) {
    product += (double)x[c] * y[c];
    square += ((double)x[c] - y[c]) * ((double)x[c] - y[c]);
  }
  const double positional = h->table != NULL ? (double)h->table[distance] / (double)HARK_LOG2_E : 0;
  return (h->rbf ? -square * h->is.scale / 2 : h->is.scale * product - h->is.shift) + positional;
}

/* Upper bound of the exponents between a row of that length and the keys. */
static double highest(const ridge_tiles *h, double length) {
  return (h->rbf ? 0 : h->is.scale * length * h->longest - h->is.shift) + h->is.top;
}

static bool keys_in_range(const ridge_tiles *h) {
  const double limit = hark_ridge_exponent_limit(HARK_F32);
  if (highest(h, h->longest) <= limit) return true;
  for (int64_t i = 0; i < h->keys; i++)
    for (int64_t j = 0; j <= i && h->seen[i] != 0; j++) {
      if (h->seen[j] == 0) continue;
      const double value = exponent(h, h->key_rows + i * h->dp, h->key_rows + j * h->dp, i - j);
      if (value <= limit) continue;
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_KEY_RANGE, h->sequence->key_row + i, value);
      return false;
    }
  return true;
}

static bool query_in_range(const ridge_tiles *h, int64_t row, const float *query, double length) {
  const double limit = hark_ridge_exponent_limit(HARK_F32);
  if (highest(h, length) <= limit) return true;
  const int64_t position = row + h->sequence->offset, end = h->desc->causal ? hark_min(h->keys, position + 1) : h->keys;
  for (int64_t i = 0; i < end; i++) {
    if (h->seen[i] == 0) continue;
    const double value = exponent(h, query, h->key_rows + i * h->dp, position - i);
    if (value <= limit) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_QUERY_RANGE, h->sequence->query_row + row, value);
    return false;
  }
  return true;
}

bool HARK_ISA(hark_cpu_ridge_queries)(ridge_tiles *h, int64_t row, int count) {
  const hark_attention_args *args = h->run->args;
  uint64_t far_rows = 0;
  for (int r = 0; r < HARK_RIDGE_TILE; r++) {
    float *to = h->query_rows + (ptrdiff_t)r * h->dp;
    if (r >= count) {
      memset(to, 0, (size_t)h->dp * sizeof *to);
      if (h->rbf) h->query_places.alongs[r] = h->query_places.kept[r] = 0;
      continue;
    }
    const int64_t at = h->sequence->query_row + row + r;
    double far;
    const double squares = read_row(h, ridge_row(&args->query, h->sequence, h->head, at), to, &h->query_places, r, &far);
    if (!isfinite(squares)) {
      hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_QUERY, at, far);
      return false;
    }
    if (!query_in_range(h, row + r, to, sqrt(squares))) return false;
    if (far >= -FARTHEST) continue;
    memset(to, 0, (size_t)h->dp * sizeof *to);
    far_rows |= (uint64_t)1 << r;
  }
  pack_lanes(h, h->query_rows, h->query_lanes, h->query_squares);
  set_far(far_rows, h->query_squares);
  const ridge_side side = HARK_ISA(hark_cpu_ridge_query_side)(h, row, count);
  if (h->rbf) HARK_ISA(hark_cpu_ridge_place)(h, &side);
  return true;
}

bool HARK_ISA(hark_cpu_ridge_own)(const ridge_tiles *h, int64_t row, int r, double *out) {
  const hark_attention_args *args = h->run->args;
  const float *query = h->query_rows + (ptrdiff_t)r * h->dp;
  double own = 0;
  for (int c = 0; !h->rbf && c < (int)h->desc->head_dim; c++) own += (double)query[c] * query[c];
  if (!h->rbf) own = h->is.scale * own - h->is.shift;
  if (h->desc->has_log_kernel) own += (double)((const float *)args->log_kernel.data)[h->head * args->log_kernel.stride[0]];
  *out = own;
  if (own <= hark_ridge_exponent_limit(HARK_F32)) return true;
  hark_ridge_trouble(h->record, h->system, HARK_RIDGE_QUERY_RANGE, h->sequence->query_row + row + r, own);
  return false;
}

/* kappa from products: 2^(product - squares), with the table. */
HARK_SIMD void exponentiate(const ridge_tiles *h, const float *squares, const float *row_squares, const float *table, const bool rbf,
                            const bool positional, float *out) {
  const vf shift2 = vf_set(h->shift2);
  for (int i = 0; i < HARK_RIDGE_TILE; i++) {
    const vf own = vf_set(row_squares[i]);
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *at = out + i * HARK_RIDGE_TILE + lane;
      vf x = vf_load(at) - (rbf ? own + vf_load(squares + lane) : shift2);
      if (rbf) x = vf_min(x, vf_zero());
      if (positional) x = x + vf_load(table - i + lane);
      vf_store(at, vf_exp2(vf_min(x, vf_set(127)))); /* hidden entries may be any number; they are multiplied by zero later */
    }
  }
}

HARK_SIMD_NOINLINE void exponentiate_tile(const ridge_tiles *h, const float *squares, const float *row_squares, const float *table,
                                          float *out) {
  if (h->rbf && table != NULL)
    exponentiate(h, squares, row_squares, table, true, true, out);
  else if (h->rbf)
    exponentiate(h, squares, row_squares, table, true, false, out);
  else if (table != NULL)
    exponentiate(h, squares, row_squares, table, false, true, out);
  else
    exponentiate(h, squares, row_squares, table, false, false, out);
}

/* kappa from exponents without the table. */
HARK_SIMD_NOINLINE void raise_tile(const float *table, float *out) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *at = out + i * HARK_RIDGE_TILE + lane;
      const vf x = table != NULL ? vf_load(at) + vf_load(table - i + lane) : vf_load(at);
      vf_store(at, vf_exp2(vf_min(x, vf_set(127))));
    }
}

void HARK_ISA(hark_cpu_ridge_gram)(const ridge_tiles *h, const ridge_side *side, int64_t tile, int64_t delta, float *out,
                                   ridge_apart *apart) {
  const int64_t first = tile * HARK_RIDGE_TILE;
  const float *table = h->table != NULL ? h->table + delta : NULL;
  const hark_ridge_product p = {.a = side->lanes,
                                .a_row = HARK_RIDGE_TILE,
                                .b = h->key_rows + first * h->dp,
                                .b_row = h->dp,
                                .b_step = 1,
                                .c = out,
                                .c_row = HARK_RIDGE_TILE,
                                .rows = HARK_RIDGE_TILE,
                                .depth = (int)h->desc->head_dim,
                                .width = HARK_RIDGE_TILE};
  if (apart != NULL) memset(apart, 0, sizeof *apart);
  hark_ridge_store(&p);
  if (h->rbf && HARK_ISA(hark_cpu_ridge_is_loose)(h, side, tile)) {
    HARK_ISA(hark_cpu_ridge_loose_exponents)(h, side, tile, out, apart);
    raise_tile(table, out);
  } else {
    exponentiate_tile(h, side->squares, h->key_squares + first, table, out);
  }
  if (h->visible == h->keys && first + HARK_RIDGE_TILE <= h->keys) return;
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    if (h->seen[first + i] == 0) memset(out + i * HARK_RIDGE_TILE, 0, HARK_RIDGE_TILE * sizeof *out);
}

ridge_side HARK_ISA(hark_cpu_ridge_query_side)(const ridge_tiles *h, int64_t row, int count) {
  return (ridge_side){h->query_lanes, h->query_squares, false, row, count};
}

ridge_side HARK_ISA(hark_cpu_ridge_key_side)(const ridge_tiles *h, int64_t tile) {
  const int64_t first = tile * HARK_RIDGE_TILE;
  return (ridge_side){h->key_lanes + first * h->desc->head_dim, h->key_squares + first, true, first, HARK_RIDGE_TILE};
}

void HARK_ISA(hark_cpu_ridge_key_gram)(const ridge_tiles *h, int64_t first, int64_t second, float *out, ridge_apart *apart) {
  const int64_t lane = second * HARK_RIDGE_TILE;
  const ridge_side side = HARK_ISA(hark_cpu_ridge_key_side)(h, second);
  HARK_ISA(hark_cpu_ridge_gram)(h, &side, first, (second - first) * HARK_RIDGE_TILE, out, apart);
  if (h->visible == h->keys && lane + HARK_RIDGE_TILE <= h->keys) return;
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int l = 0; l < HARK_RIDGE_TILE; l += HARK_LANES) {
      float *at = out + i * HARK_RIDGE_TILE + l;
      vf_store(at, vf_load(at) * vf_load(h->seen + lane + l));
    }
}

/* Fills log2 G in both directions, zero beyond its distances; returns its middle. */
static const float *mirror_table(const ridge_tiles *h) {
  const hark_tensor *given = &h->run->args->log_kernel;
  const int64_t bound = hark_ridge_distances(h->desc), there = hark_min(bound, given->shape[1]);
  const float *from = (const float *)given->data + h->head * given->stride[0];
  float *middle = h->tables + bound + HARK_RIDGE_TILE;
  for (int64_t t = 0; t < bound + HARK_RIDGE_TILE; t++) middle[t] = middle[-t] = t < there ? HARK_LOG2_E * from[t] : 0;
  return middle;
}

bool HARK_ISA(hark_cpu_ridge_begin)(hark_context *context, const hark_attention_call *run, const ridge_workspace *memory, int64_t sequence,
                                    int64_t head, int worker, ridge_tiles *h) {
  const hark_attention_desc *desc = &run->plan->desc;
  hark_ridge_record *record = &memory->records[worker];
  *h = (ridge_tiles){.run = run,
                     .desc = desc,
                     .context = context,
                     .memory = memory,
                     .sequence = &run->sequences[sequence],
                     .record = record,
                     .head = head,
                     .key_head = head / (desc->heads / desc->key_heads),
                     .system = sequence * desc->heads + head,
                     .rbf = desc->kernel == HARK_KERNEL_RBF};
  HARK_ISA(hark_cpu_ridge_carve)(desc, memory->backward, memory->floats + memory->per_worker * (size_t)worker, h);
  h->keys = hark_ridge_keys(desc, h->sequence);
  h->tiles = hark_ceil_div(h->keys, HARK_RIDGE_TILE);
  if (h->tiles < RIDGE_LEAST_SHARED) h->context = NULL;
  for (int64_t i = 0; i < h->tiles * HARK_RIDGE_TILE; i++) {
    h->seen[i] = i < h->keys && is_seen(h, i);
    h->visible += h->seen[i] != 0;
  }
  if (!hark_ridge_read(run, head, h->visible, h->system, record, &h->is)) return false;
  h->scale2 = (float)(h->is.scale * (double)HARK_LOG2_E);
  h->shift2 = (float)(h->is.shift * (double)HARK_LOG2_E);
  if (desc->has_log_kernel) h->table = mirror_table(h);
  if (!read_keys(h) || (h->added != NULL && !read_noise(h)) || !keys_in_range(h)) return false;
  if (ridge_iterates(desc)) return HARK_ISA(hark_cpu_ridge_iterate)(h);
  if (!memory->backward || HARK_ISA(hark_cpu_ridge_low_fits)(h)) HARK_ISA(hark_cpu_ridge_find_rank)(h);
  if (h->low.rank > 0) return !hark_cancel_now(memory->context);
  HARK_ISA(hark_cpu_ridge_factorise)(h);
  return record->system != h->system && !hark_cancel_now(memory->context); /* a pivot is not finite */
}

void HARK_ISA(hark_cpu_ridge_join)(const ridge_tiles *owner, int worker, ridge_tiles *h) {
  *h = *owner;
  if (owner->context == NULL) return;
  ridge_tiles own = {0};
  HARK_ISA(hark_cpu_ridge_carve)(h->desc, h->memory->backward, h->memory->floats + h->memory->per_worker * (size_t)worker, &own);
  h->record = &h->memory->records[worker];
  h->panel = own.panel;
  h->query_rows = own.query_rows;
  h->query_lanes = own.query_lanes;
  h->query_squares = own.query_squares;
  h->query_places = own.query_places;
  h->sums = own.sums;
  h->turned = own.turned;
  h->work = own.work;
}

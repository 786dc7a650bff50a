/* kernel_ridge_distances.c - rbf: kernels of rows so far from the centre that products lose their distance (distances.h).
 *
 * A tile of kernels is loose if two of its rows may have a spread above the bound, or if the centre was subtracted from one row of a pair
 * and not from the other. Such pairs are corrected:
 *
 *     |x - y|^2 = |x - y'|^2 + |c|^2 - 2 c.(x - y'),  y' = y - c
 *
 * This is approximately their distance. In a loose tile every pair is checked: if the error of its kernel may exceed that of products at
 * the bound, it is computed from the difference of the given rows in float64. In the backward the gradients of such pairs also come from
 * differences. The bound is lower than softmax's, because a system is solved with these kernels. A row whose products do not fit into f32
 * is stored as zeros with an infinite square, which makes all its pairs loose.
 */
#include "distances.h"
#include "kernel_ridge_tile.h"

/* Allowed error of a kernel: 2^-24 times this. Pairs with a larger spread N have smaller errors if their kernels are small. So products are
 * used above the first bound for kernels up to 2^-2, above the second up to 2^-5, and above the third, where errors may be arbitrary, up to
 * 2^-40. */
#define SPREAD 32.0f
#define WIDE 128.0f
#define WIDEST 1024.0f
/* A vector with one pair for so many features, or fewer, computes its pairs one by one: the other lanes would take longer. */
#define FEATURES_OF_A_PAIR 16

static const ridge_places *places_of(const ridge_tiles *h, const ridge_side *side) {
  return side->keys ? &h->key_places : &h->query_places;
}
static int64_t place_of(const ridge_side *side) { return side->keys ? side->first : 0; }

/* Row i of a side in the caller's memory. */
static const float *given_row(const ridge_tiles *h, const ridge_side *side, int i) {
  const hark_attention_args *args = h->run->args;
  const int64_t row = side->first + i;
  return side->keys ? ridge_row(&args->key, h->sequence, h->key_head, h->sequence->key_row + row)
                    : ridge_row(&args->query, h->sequence, h->head, h->sequence->query_row + row);
}

static bool is_there(const ridge_tiles *h, const ridge_side *side, int i) {
  return i < side->count && (!side->keys || h->seen[side->first + i] != 0);
}

void HARK_ISA(hark_cpu_ridge_place)(const ridge_tiles *h, const ridge_side *side) {
  const ridge_places *places = places_of(h, side);
  const int64_t at = place_of(side), tile = at / HARK_RIDGE_TILE;
  const int count = side->keys ? (int)hark_min(side->count, h->keys - side->first) : side->count;
  const hark_tensor *from = side->keys ? &h->run->args->key : &h->run->args->query;
  float longest = 0, least = 1, most = 0;
  for (int i = 0; i < side->count; i++) {
    const float kept = places->kept[at + i];
    if (!is_there(h, side, i)) continue;
    longest = side->squares[i] > longest ? side->squares[i] : longest;
    least = kept < least ? kept : least;
    most = kept > most ? kept : most;
  }
  places->longest[tile] = sqrtf(longest);
  places->mixed[tile] = !h->splits || least == most ? most : 2;
  hark_pack_transposed(given_row(h, side, 0), from->stride[2], count, (int)h->desc->head_dim, 1.0f, places->given + at * h->desc->head_dim);
}

bool HARK_ISA(hark_cpu_ridge_is_loose)(const ridge_tiles *h, const ridge_side *side, int64_t tile) {
  const ridge_places *places = places_of(h, side);
  const int64_t at = place_of(side) / HARK_RIDGE_TILE;
  const float sum = places->longest[at] + h->key_places.longest[tile];
  if (!(sum * sum < SPREAD)) return true;
  return h->splits && (h->key_places.mixed[tile] == 2 || h->key_places.mixed[tile] != places->mixed[at]);
}

/* Two rows with their lengths' inverses. */
typedef struct row_pair {
  const float *x, *y;
  double of_x, of_y;
} row_pair;

static row_pair pair_of(const ridge_tiles *h, const ridge_side *side, int lane, int64_t tile, int i) {
  const ridge_side keys = {.keys = true, .first = tile * HARK_RIDGE_TILE, .count = HARK_RIDGE_TILE};
  return (row_pair){given_row(h, &keys, i), given_row(h, side, lane), h->key_places.lengths[keys.first + i],
                    places_of(h, side)->lengths[place_of(side) + lane]};
}

static double square_of(const ridge_tiles *h, const row_pair *pair) {
  const int d = (int)h->desc->head_dim;
  if (!h->desc->unit) return hark_squared_distance(pair->x, pair->y, d);
  double square = 0;
  for (int c = 0; c < d; c++) {
    const double apart = pair->of_x * (double)pair->x[c] - pair->of_y * (double)pair->y[c];
    square += apart * apart;
  }
  return square;
}

/* What the rows of a loose tile share. */
typedef struct loose_tile {
  const ridge_tiles *h;
  const ridge_side *side;
  const ridge_places *places; /* of the side */
  int64_t tile, at;           /* at: of the side in `places` */
  double scale;               /* from squares to exponents of 2 */
  vf slack, centre, centre_root;
  float roots[HARK_RIDGE_TILE], there[HARK_RIDGE_TILE]; /* by lane: root of the square; 1 or 0 */
} loose_tile;

static loose_tile loose_tile_of(const ridge_tiles *h, const ridge_side *side, int64_t tile) {
  const vf centre = vf_set(h->centre_square);
  loose_tile t = {.h = h,
                  .side = side,
                  .places = places_of(h, side),
                  .tile = tile,
                  .at = place_of(side),
                  .scale = -0.5 * h->is.scale * HARK_DISTANCE_LOG2_E,
                  .slack = vf_set(HARK_DISTANCE_SLACK(h->desc->head_dim)),
                  .centre = centre,
                  .centre_root = vf_sqrt(centre)};
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) vf_store(t.roots + lane, vf_sqrt(vf_load(side->squares + lane)));
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane++) t.there[lane] = is_there(h, side, lane) ? 1.0f : 0.0f;
  return t;
}

/* Exponents of row i for pairs in `pairs`, a bit for each lane, from differences. */
HARK_SIMD_NOINLINE void take_differences(const loose_tile *t, int i, uint64_t pairs, float *out) {
  static const uint32_t bit_of_lane[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
  const ridge_tiles *h = t->h;
  const int d = (int)h->desc->head_dim;
  const ridge_side keys = {.keys = true, .first = t->tile * HARK_RIDGE_TILE, .count = HARK_RIDGE_TILE};
  const float *row = given_row(h, &keys, i);
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
    const uint32_t bits = (uint32_t)(pairs >> lane) & (uint32_t)((1u << HARK_LANES) - 1);
    if (bits == 0) continue;
    const vm which = vu_less(vu_set(0), vu_set(bits) & vu_load(bit_of_lane));
    if (!h->desc->unit && vf_sum(vf_select(which, vf_set(FEATURES_OF_A_PAIR), vf_zero())) > (float)d) {
      const vf exact = hark_exact_exponents(t->places->given + t->at * d + lane, HARK_RIDGE_TILE, row, d, t->scale);
      vf_store(out + lane, vf_select(which, exact, vf_load(out + lane)));
      continue;
    }
    for (int l = 0; bits >> l != 0; l++) {
      if ((bits >> l & 1) == 0) continue;
      const row_pair pair = pair_of(h, t->side, lane + l, t->tile, i);
      out[lane + l] = (float)fmax(t->scale * square_of(h, &pair), (double)-FLT_MAX);
    }
  }
}

/* Row i of a loose tile; `splits` is a constant after inlining. */
HARK_SIMD void loose_row(const loose_tile *t, int i, const bool splits, float *out, uint64_t *apart) {
  const ridge_tiles *h = t->h;
  const int64_t key = t->tile * HARK_RIDGE_TILE + i;
  const vf own = vf_set(h->key_squares[key]), root = vf_sqrt(own), kept = vf_set(h->key_places.kept[key]);
  const vf bound = vf_set(SPREAD), wide = vf_set(WIDE), widest = vf_set(WIDEST);
  uint64_t loose = 0, split = 0;
  for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
    const vm there = vf_less(vf_zero(), vf_load(t->there + lane));
    vf x = vf_load(out + lane) - (own + vf_load(t->side->squares + lane)), sum = root + vf_load(t->roots + lane);
    if (splits) {
      const vf difference = vf_set(h->key_places.alongs[key]) - vf_load(t->places->alongs + t->at + lane);
      const vf away = vf_select(vf_less(vf_zero(), kept), vf_zero() - difference, difference); /* second: the row minus the centre */
      const vm differ = vm_not(vf_equal(kept, vf_load(t->places->kept + t->at + lane)));
      x = vf_select(differ, x - t->centre + away, x);
      sum = sum + vf_select(differ, t->centre_root, vf_zero());
      split |= (uint64_t)vm_bits(vm_and(there, differ)) << lane;
    }
    x = vf_min(x, vf_zero());
    vf_store(out + lane, x);
    const vf spread = sum * sum;
    const vf least = vf_select(vf_less(spread, wide), vf_set(-2), vf_select(vf_less(spread, widest), vf_set(-5), vf_set(-40)));
    const vm near = vm_not(vf_less(vf_fma(t->slack, spread, x), least));
    loose |= (uint64_t)vm_bits(vm_and(there, vm_and(vm_not(vf_less(spread, bound)), near))) << lane;
  }
  if (loose != 0) take_differences(t, i, loose, out);
  if (apart != NULL) *apart = loose | split;
}

HARK_SIMD_NOINLINE void loose_rows(const loose_tile *t, float *out, ridge_apart *apart) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++) {
    if (t->h->seen[t->tile * HARK_RIDGE_TILE + i] == 0) continue; /* set to zero later */
    if (t->h->splits)
      loose_row(t, i, true, out + i * HARK_RIDGE_TILE, apart != NULL ? &apart->lanes[i] : NULL);
    else
      loose_row(t, i, false, out + i * HARK_RIDGE_TILE, apart != NULL ? &apart->lanes[i] : NULL);
  }
}

void HARK_ISA(hark_cpu_ridge_loose_exponents)(const ridge_tiles *h, const ridge_side *side, int64_t tile, float *out, ridge_apart *apart) {
  const loose_tile t = loose_tile_of(h, side, tile);
  loose_rows(&t, out, apart);
}

void HARK_ISA(hark_cpu_ridge_without)(const float *ds, const ridge_apart *apart, float *copy) {
  memcpy(copy, ds, HARK_RIDGE_TILE_FLOATS * sizeof *copy);
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; apart->lanes[i] != 0 && lane < HARK_RIDGE_TILE; lane++)
      if (apart->lanes[i] >> lane & 1) copy[i * HARK_RIDGE_TILE + lane] = 0;
}

double HARK_ISA(hark_cpu_ridge_give_apart)(const ridge_tiles *h, const ridge_side *side, int64_t tile, const float *ds,
                                           const ridge_apart *apart, bool turned, float *to) {
  const int d = (int)h->desc->head_dim;
  double along = 0;
  for (int i = 0; i < HARK_RIDGE_TILE; i++)
    for (int lane = 0; apart->lanes[i] != 0 && lane < HARK_RIDGE_TILE; lane++) {
      const float weight = ds[i * HARK_RIDGE_TILE + lane];
      if (!(apart->lanes[i] >> lane & 1) || weight == 0) continue;
      const row_pair pair = pair_of(h, side, lane, tile, i);
      float *row = to + (ptrdiff_t)(turned ? lane : i) * h->dp;
      const double sign = turned ? 1 : -1; /* the side's rows add x - y, the tile's y - x */
      for (int c = 0; c < d; c++) row[c] += weight * (float)(sign * (pair.of_x * (double)pair.x[c] - pair.of_y * (double)pair.y[c]));
      along -= (double)weight * square_of(h, &pair);
    }
  return along;
}

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

void HARK_ISA(hark_cpu_ridge_place)(const ridge_tiles *h, const ridge_places *places, int64_t tile, const float *seen, const float *squares,
                                    int count) {
  float longest = 0, least = 1, most = 0;
  for (int i = 0; i < count; i++) {
    const float kept = places->kept[tile * HARK_RIDGE_TILE + i];
    if (seen != NULL && seen[i] == 0) continue;
    longest = squares[i] > longest ? squares[i] : longest;
    least = kept < least ? kept : least;
    most = kept > most ? kept : most;
  }
  places->longest[tile] = sqrtf(longest);
  places->mixed[tile] = !h->splits || least == most ? most : 2;
}

static const ridge_places *places_of(const ridge_tiles *h, const ridge_side *side) {
  return side->keys ? &h->key_places : &h->query_places;
}
static int64_t place_of(const ridge_side *side) { return side->keys ? side->first : 0; }

bool HARK_ISA(hark_cpu_ridge_is_loose)(const ridge_tiles *h, const ridge_side *side, int64_t tile) {
  const ridge_places *places = places_of(h, side);
  const int64_t at = place_of(side) / HARK_RIDGE_TILE;
  const float sum = places->longest[at] + h->key_places.longest[tile];
  if (!(sum * sum < SPREAD)) return true;
  return h->splits && (h->key_places.mixed[tile] == 2 || h->key_places.mixed[tile] != places->mixed[at]);
}

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

void HARK_ISA(hark_cpu_ridge_loose_exponents)(const ridge_tiles *h, const ridge_side *side, int64_t tile, float *out, ridge_apart *apart) {
  const ridge_places *places = places_of(h, side);
  const int64_t key = tile * HARK_RIDGE_TILE, at = place_of(side);
  const double scale = -0.5 * h->is.scale * HARK_DISTANCE_LOG2_E;
  const vf slack = vf_set(HARK_DISTANCE_SLACK(h->desc->head_dim)), bound = vf_set(SPREAD), wide = vf_set(WIDE), widest = vf_set(WIDEST);
  const vf centre = vf_set(h->centre_square), centre_root = vf_sqrt(centre);
  for (int i = 0; i < HARK_RIDGE_TILE; i++) {
    const vf own = vf_set(h->key_squares[key + i]), root = vf_sqrt(own), along = vf_set(h->key_places.alongs[key + i]);
    const vf kept = vf_set(h->key_places.kept[key + i]);
    if (h->seen[key + i] == 0) continue; /* set to zero later */
    for (int lane = 0; lane < HARK_RIDGE_TILE; lane += HARK_LANES) {
      float *to = out + i * HARK_RIDGE_TILE + lane, flags[HARK_LANES], splits[HARK_LANES];
      const vf other = vf_load(side->squares + lane);
      const vm split = vm_not(vf_equal(kept, vf_load(places->kept + at + lane)));
      const vf difference = along - vf_load(places->alongs + at + lane);
      const vf away = vf_select(vf_less(vf_zero(), kept), vf_zero() - difference,
                                difference); /* the row from which the centre was subtracted is second */
      vf x = vf_load(to) - (own + other);
      x = vf_select(split, x - centre + away, x);
      x = vf_min(x, vf_zero());
      const vf sum = root + vf_sqrt(other) + vf_select(split, centre_root, vf_zero()), spread = sum * sum;
      const vf least = vf_select(vf_less(spread, wide), vf_set(-2), vf_select(vf_less(spread, widest), vf_set(-5), vf_set(-40)));
      const vm loose = vm_and(vm_not(vf_less(spread, bound)), vm_not(vf_less(vf_fma(slack, spread, x), least)));
      vf_store(to, x);
      if (!vm_any(vm_or(loose, split))) continue;
      vf_store(flags, vf_select(loose, vf_set(1), vf_zero()));
      vf_store(splits, vf_select(split, vf_set(1), vf_zero()));
      for (int l = 0; l < HARK_LANES; l++) {
        if (!is_there(h, side, lane + l)) continue;
        if (flags[l] != 0) {
          const row_pair pair = pair_of(h, side, lane + l, tile, i);
          to[l] = (float)fmax(scale * square_of(h, &pair), (double)-FLT_MAX);
        }
        if (apart != NULL && (flags[l] != 0 || splits[l] != 0)) apart->lanes[i] |= (uint64_t)1 << (lane + l);
      }
    }
  }
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

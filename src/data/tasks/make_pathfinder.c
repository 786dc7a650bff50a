/* make_pathfinder.c - two discs and dashed paths; the class is 1 when one path joins both discs. Linsley et al. (2018, arXiv 1805.08315),
 * with the numbers of Long Range Arena (Tay et al., 2020, arXiv 2011.04006), constructed differently:
 *
 * A path is a chain of dashes: segments of `dash` pixels with 2 `margin` pixels between the end of one and the beginning of the next. From
 * dash to dash it turns by an angle t of density proportional to cos(continuity t)^2, at most 90 degrees / continuity. Every image has two
 * long paths of `contour` dashes. Their first points, the seeds, are `seed-distance` pixels apart; the first seed is twice as far from each
 * border if the image is large enough. There are up to `distractors` further paths of contour / 3 dashes, as many as fit. A disc of radius
 * `marker` is on the seed of one long path, another on the end of the same path (class 1, image 1, 3, ...) or of the other path (class 0,
 * image 0, 2, ...). All four ends have room for a disc, so only the discs depend on the class. The distance between the discs does not
 * depend on it either:
 *
 *     a0 ------ a1        both ends of a path          a0 a1, b0 b1        paths are kept if a distance in the first row equals one in
 *     b0 ------ b1        a seed and the other's end   a0 b1, b0 a1        the second, up to a pixel; the class selects the pair with discs
 *
 * A pixel's value is 255 times the covered fraction of its 4 x 4 sample points. A pixel is lit when at least 1/8 of it is covered.
 * Guaranteed distances between centres of lit pixels:
 *
 *     consecutive dashes, and a disc and its path                   <= separation
 *     different paths, with their discs                              > separation
 *
 * So steps of at most `separation` between lit pixels lead from one disc to the other if and only if the class is 1. While a path grows,
 * dashes that violate these distances are drawn again.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/formats/image_file.h"
#include "data/tasks/make.h"
#include "io/number.h"

#define PI 3.14159265358979323846
#define SIDE_MAX 256
#define PIXELS_MAX (SIDE_MAX * SIDE_MAX)
#define SAMPLES 4       /* SAMPLES x SAMPLES points per pixel */
#define LIT 32          /* 255 / 8, rounded */
#define CONTOUR_MAX 64  /* dashes */
#define DASH_PIXELS 256 /* maximum number of lit pixels of a dash or disc */
#define TURNS 8         /* attempts at the next dash */
#define RETREATS 20     /* how often in a path, if no next dash fits, the last */
#define RETREAT 3       /* dashes are drawn again */
#define PATHS 400       /* attempts at a path */
#define IMAGES 100      /* attempts at an image */
#define MARKER_MAX 8    /* limit for which its pixels fit */
#define LONG_PATHS 2
#define ROUNDING 1.3 /* pixels: centres of lit pixels may be this much farther apart than the ends of two dashes */
#define SIMILAR 1.0  /* pixels: distances that differ by less count as equal */
#define SECONDS 20   /* attempts at a second long path for a first one */
#define UNLIKE 10    /* first paths without a second one, after which twice SIMILAR is allowed, for options that leave little room */

typedef struct pathfinder_values {
  int size; /* index of sizes[] */
  int64_t contour, distractors;
  int64_t margin, largest_margin; /* an image's margin is uniform between these */
  double dash, thickness, marker, continuity, seed_distance, separation;
} pathfinder_values;

#define AT(field) offsetof(pathfinder_values, field)
static const hark_option options[] = {
    {"size", "size", HARK_OPTION_ENUM, AT(size), "32", "32|64|128|256", NULL, NULL,
     "pathfinder: pixels per side of an image; it sets the pathfinder options below whose value is 0, and --distractors if it is -1",
     "$1 make, $2 pathfinder"},
    {"contour", "contour", HARK_OPTION_INT, AT(contour), "14", "[2, 64]", NULL, NULL, "pathfinder: number of dashes in a long path",
     "$1 make, $2 pathfinder"},
    {"distractors", "distractors", HARK_OPTION_INT, AT(distractors), "-1", "[-1, 200]", NULL, NULL,
     "pathfinder: largest number of short paths, of which those that do not fit are left out; -1: set by --size", "$1 make, $2 pathfinder"},
    {"dash", "dash", HARK_OPTION_FLOAT, AT(dash), "0", "[0, 32]", NULL, NULL, "pathfinder: length of a dash, in pixels",
     "$1 make, $2 pathfinder"},
    {"margin", "margin", HARK_OPTION_INT, AT(margin), "0", "[0, 8]", NULL, NULL,
     "pathfinder: number of free pixels before and after a dash", "$1 make, $2 pathfinder"},
    {"largest-margin", "largest-margin", HARK_OPTION_INT, AT(largest_margin), "0", "[0, 8]", NULL, NULL,
     "pathfinder: largest margin; the margin of each image is drawn from --margin to this number", "$1 make, $2 pathfinder"},
    {"thickness", "thickness", HARK_OPTION_FLOAT, AT(thickness), "0", "[0, 4]", NULL, NULL, "pathfinder: thickness of a dash, in pixels",
     "$1 make, $2 pathfinder"},
    {"marker", "marker", HARK_OPTION_FLOAT, AT(marker), "0", "[0, 8]", NULL, NULL, "pathfinder: radius of a disc, in pixels",
     "$1 make, $2 pathfinder"},
    {"continuity", "continuity", HARK_OPTION_FLOAT, AT(continuity), "0", "[0, 100]", NULL, NULL,
     "pathfinder: paths turn by at most 90 degrees divided by this number", "$1 make, $2 pathfinder"},
    {"seed-distance", "seed-distance", HARK_OPTION_FLOAT, AT(seed_distance), "0", "[0, 128]", NULL, NULL,
     "pathfinder: distance between the first points of the two long paths, in pixels", "$1 make, $2 pathfinder"},
    {"separation", "separation", HARK_OPTION_FLOAT, AT(separation), "0", "[0, 20]", NULL, NULL,
     "pathfinder: smallest distance between dashes of different paths, in pixels", "$1 make, $2 pathfinder"},
};
#undef AT
const hark_option_table hark_task_pathfinder_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(pathfinder_values),
                                                        false};

/* Side of an image, and the defaults of options that are not given: the numbers of Long Range Arena's script for its generator, whose
 * images of 64 pixels have no separate margin. */
typedef struct preset {
  int side;
  int64_t distractors, margin, largest_margin;
  double dash, thickness, marker, continuity, seed_distance;
} preset;
static const preset presets[] = {
    {32, 5, 1, 1, 2, 0.5, 1.5, 1, 7},
    {64, 5, 1, 1, 5, 1, 2.5, 1.8, 12},
    {128, 8, 2, 3, 5, 1.5, 3, 1.8, 20},
    {256, 6, 3, 3, 5, 2, 5, 1.8, 20},
};

static int side_of(const pathfinder_values *v) { return presets[v->size].side; }

static void settle_number(double *value, double by_size) {
  if (*value == 0) *value = by_size;
}

static hark_status settle(hark_context *context, void *values) {
  pathfinder_values *const v = values;
  const preset *const p = &presets[v->size];
  if (v->distractors < 0) v->distractors = p->distractors;
  settle_number(&v->dash, p->dash);
  settle_number(&v->thickness, p->thickness);
  char numbers[2][HARK_NUMBER_BYTES];
  settle_number(&v->marker, p->marker);
  settle_number(&v->continuity, p->continuity);
  settle_number(&v->seed_distance, p->seed_distance);
  if (v->margin == 0) v->margin = p->margin;
  if (v->largest_margin == 0) v->largest_margin = v->margin > p->largest_margin ? v->margin : p->largest_margin;
  settle_number(&v->separation, 2 * (double)v->largest_margin + ROUNDING);
  if (v->largest_margin < v->margin)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--largest-margin: %" PRId64 ", expected at least --margin, which is %" PRId64,
                     v->largest_margin, v->margin);
  if (2 * v->seed_distance > side_of(v) - 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--seed-distance: %s, expected at most %d, half of the image",
                     hark_number_print(v->seed_distance, numbers[0]), side_of(v) / 2 - 1);
  if (v->separation < 1.5)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--separation: %s, expected at least 1.5",
                     hark_number_print(v->separation, numbers[0]));
  if (v->marker < v->thickness + 0.75 || v->marker > MARKER_MAX)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "--marker: radius %s, expected %s to %d: the thickness, and 0.75 to be seen as a disc",
                     hark_number_print(v->marker, numbers[0]), hark_number_print(v->thickness + 0.75, numbers[1]), MARKER_MAX);
  return HARK_OK;
}

/* ---- drawing ---- */

typedef struct point {
  double x, y;
} point;

/* Lit and partly covered pixels of one dash or disc. */
typedef struct shape {
  int count, lit; /* number of pixels; the first `lit` are lit */
  int16_t x[DASH_PIXELS], y[DASH_PIXELS];
  unsigned char value[DASH_PIXELS];
  point middle; /* pixels' centres are at most `extent` away from it */
  double extent;
} shape;

/* Covers the points p with |p - centre| <= radius, or within half a thickness of the segment from a to b (with straight ends). */
typedef struct figure {
  point a, b;    /* a disc's centre is a = b */
  double radius; /* half of the thickness */
} figure;

static bool covers(const figure *f, double x, double y) {
  const double dx = f->b.x - f->a.x, dy = f->b.y - f->a.y, length = dx * dx + dy * dy;
  const double px = x - f->a.x, py = y - f->a.y;
  if (length == 0) return px * px + py * py <= f->radius * f->radius;
  const double along = px * dx + py * dy, across = px * dy - py * dx;
  return along >= 0 && along <= length && across * across <= f->radius * f->radius * length;
}

static void swap_pixels(shape *s, int i, int j) {
  const int16_t x = s->x[i], y = s->y[i];
  const unsigned char value = s->value[i];
  s->x[i] = s->x[j];
  s->y[i] = s->y[j];
  s->value[i] = s->value[j];
  s->x[j] = x;
  s->y[j] = y;
  s->value[j] = value;
}

/* False when the figure is not inside the image, or lights no pixel. */
static bool draw(const figure *f, int side, shape *out) {
  const double margin = f->radius + 0.5; /* the outermost half pixel stays empty */
  if (fmin(f->a.x, f->b.x) < margin || fmax(f->a.x, f->b.x) > side - margin) return false;
  if (fmin(f->a.y, f->b.y) < margin || fmax(f->a.y, f->b.y) > side - margin) return false;
  const int left = (int)(fmin(f->a.x, f->b.x) - f->radius), right = (int)(fmax(f->a.x, f->b.x) + f->radius);
  const int top = (int)(fmin(f->a.y, f->b.y) - f->radius), bottom = (int)(fmax(f->a.y, f->b.y) + f->radius);
  out->count = out->lit = 0;
  out->middle = (point){(f->a.x + f->b.x) / 2, (f->a.y + f->b.y) / 2};
  out->extent = hypot(f->b.x - f->a.x, f->b.y - f->a.y) / 2 + f->radius + 1;
  for (int y = top; y <= bottom; y++)
    for (int x = left; x <= right; x++) {
      int covered = 0;
      for (int i = 0; i < SAMPLES * SAMPLES; i++)
        covered += covers(f, x + (i % SAMPLES + 0.5) / SAMPLES, y + ((double)(i / SAMPLES) + 0.5) / SAMPLES);
      if (covered == 0) continue;
      if (out->count == DASH_PIXELS) return false;
      out->x[out->count] = (int16_t)x;
      out->y[out->count] = (int16_t)y;
      out->value[out->count] = (unsigned char)((255 * covered + SAMPLES * SAMPLES / 2) / (SAMPLES * SAMPLES));
      if (out->value[out->count++] >= LIT) swap_pixels(out, out->lit++, out->count - 1);
    }
  return out->lit > 0;
}

/* Smallest squared distance between lit pixels; if that is above `reach`, any number above `reach`. */
static int distance(const shape *a, const shape *b, int reach) {
  int least = 2 * SIDE_MAX * SIDE_MAX;
  const double dx = a->middle.x - b->middle.x, dy = a->middle.y - b->middle.y, apart = sqrt(dx * dx + dy * dy) - a->extent - b->extent;
  if (apart > 0 && apart * apart > reach + 1) return least;
  for (int i = 0; i < a->lit; i++)
    for (int j = 0; j < b->lit; j++) {
      const int across = a->x[i] - b->x[j], down = a->y[i] - b->y[j], square = across * across + down * down;
      if (square < least) least = square;
    }
  return least;
}

/* ---- building an image ---- */

typedef struct path {
  int dashes;
  shape dash[CONTOUR_MAX];
  point from[CONTOUR_MAX];     /* end of the previous dash, */
  double heading[CONTOUR_MAX]; /* and its direction */
  shape end[2];                /* discs at the ends of long paths */
  point first, last;
} path;

typedef struct canvas {
  const pathfinder_values *values;
  hark_task_random *random;
  int side;
  double spacing;                    /* pixels between dashes */
  int reach;                         /* squared separation, rounded down */
  unsigned char taken[PIXELS_MAX];   /* no lit pixel of another path may be here */
  unsigned char first[PIXELS_MAX];   /* the same for the first long path only */
  path long_path[LONG_PATHS], trial; /* the trial is the path being grown */
  int joined;                        /* the long path, and */
  int apart[LONG_PATHS];             /* the end of each; these distances are equal */
  int unlike;                        /* first paths for which no second one was found */
} canvas;

static bool is_free(const canvas *c, const shape *s) {
  for (int i = 0; i < s->lit; i++)
    if (c->taken[s->y[i] * c->side + s->x[i]]) return false;
  return true;
}

/* Everything within the separation of a lit pixel is taken. */
static void take(canvas *c, const shape *s) {
  const int reach = (int)c->values->separation;
  for (int i = 0; i < s->lit; i++)
    for (int dy = -reach; dy <= reach; dy++)
      for (int dx = -reach; dx <= reach; dx++) {
        const int x = s->x[i] + dx, y = s->y[i] + dy;
        if (dx * dx + dy * dy <= c->reach && x >= 0 && x < c->side && y >= 0 && y < c->side) c->taken[y * c->side + x] = 1;
      }
}

/* Whether a point is in a pixel of the image that is not taken. Most dashes that do not fit are found by this test of their ends, without
 * drawing. */
static bool is_open(const canvas *c, point at) {
  return at.x >= 0 && at.x < c->side && at.y >= 0 && at.y < c->side && !c->taken[(int)at.y * c->side + (int)at.x];
}

static double uniform(canvas *c, double low, double high) { return low + (high - low) * hark_task_random_uniform(c->random); }

/* Whether a dash may follow those of the trial: near the last one, not touching the one before that, and separate from all earlier ones. */
static bool fits_path(const canvas *c, const shape *s) {
  const path *const p = &c->trial;
  for (int i = 0; i < p->dashes; i++) {
    const int square = distance(s, &p->dash[i], c->reach), back = p->dashes - i;
    if (back == 1 && square > c->reach) return false;
    if (back == 2 && square <= 2) return false;
    if (back > 2 && square <= c->reach) return false;
  }
  return true;
}

/* An angle t of density proportional to cos(continuity t)^2 within 90 degrees / continuity. */
static double turn(canvas *c) {
  const double largest = PI / 2 / c->values->continuity;
  for (;;) {
    const double angle = uniform(c, -largest, largest), weight = cos(angle * c->values->continuity);
    if (hark_task_random_uniform(c->random) < weight * weight) return angle;
  }
}

/* Adds the next dash to the trial. */
static bool add_dash(canvas *c, point *at, double *direction) {
  const pathfinder_values *const v = c->values;
  path *const p = &c->trial;
  for (int i = 0; i < TURNS; i++) {
    const double angle = *direction + turn(c);
    const point along = {cos(angle), sin(angle)};
    const double gap = p->dashes > 0 ? c->spacing : 0;
    figure f = {.a = {at->x + gap * along.x, at->y + gap * along.y}, .radius = v->thickness / 2};
    f.b = (point){f.a.x + v->dash * along.x, f.a.y + v->dash * along.y};
    shape *const next = &p->dash[p->dashes];
    if (!is_open(c, f.a) || !is_open(c, f.b) || !draw(&f, c->side, next) || !is_free(c, next) || !fits_path(c, next)) continue;
    if (p->dashes == 0) p->first = f.a;
    p->from[p->dashes] = *at;
    p->heading[p->dashes++] = *direction;
    *at = p->last = f.b;
    *direction = angle;
    return true;
  }
  return false;
}

/* Adds discs at both ends. They must be separate from other paths, from each other and from dashes of the path that are not next to
 * them. */
static bool add_ends(canvas *c) {
  path *const p = &c->trial;
  for (int e = 0; e < 2; e++) {
    const point at = e == 0 ? p->first : p->last;
    const figure f = {at, at, c->values->marker};
    shape *const disc = &p->end[e];
    if (!draw(&f, c->side, disc) || !is_free(c, disc)) return false;
    if (distance(disc, &p->dash[e == 0 ? 0 : p->dashes - 1], c->reach) > c->reach) return false;
    for (int i = 0; i < p->dashes; i++)
      if ((e == 0 ? i : p->dashes - 1 - i) > 2 && distance(disc, &p->dash[i], c->reach) <= c->reach) return false;
  }
  return distance(&p->end[0], &p->end[1], c->reach) > c->reach;
}

/* Adds dashes to the trial until it has `dashes`; steps back at a dead end. */
static bool add_dashes(canvas *c, int dashes, point at, double direction) {
  path *const p = &c->trial;
  p->dashes = 0;
  for (int retreats = 0; p->dashes < dashes;) {
    if (add_dash(c, &at, &direction)) continue;
    if (p->dashes == 0 || retreats++ == RETREATS) return false;
    p->dashes = p->dashes > RETREAT ? p->dashes - RETREAT : 0;
    at = p->from[p->dashes];
    direction = p->heading[p->dashes];
  }
  return true;
}

/* A random beginning of a path. Draws are separate statements, because the order of initialisers is unspecified. */
static point anywhere(canvas *c) {
  point at;
  at.x = uniform(c, 0, c->side);
  at.y = uniform(c, 0, c->side);
  return at;
}

static point first_seed(canvas *c) {
  const double border = fmin(2 * c->values->seed_distance, c->side / 2.0 - 1);
  point at;
  at.x = uniform(c, border, c->side - border);
  at.y = uniform(c, border, c->side - border);
  return at;
}

static point second_seed(canvas *c) {
  const double angle = uniform(c, 0, 2 * PI), distance = c->values->seed_distance;
  const point seed = c->long_path[0].first;
  return (point){seed.x + distance * cos(angle), seed.y + distance * sin(angle)};
}

/* Grows a path of `dashes` dashes in the trial, and marks its pixels as taken. */
static bool grow_path(canvas *c, int dashes, bool has_ends, point (*begin)(canvas *)) {
  path *const p = &c->trial;
  for (int attempt = 0; attempt < PATHS; attempt++) {
    const double direction = uniform(c, 0, 2 * PI);
    const point at = begin(c);
    if (!is_open(c, at) || !add_dashes(c, dashes, at, direction) || (has_ends && !add_ends(c))) continue;
    for (int i = 0; i < dashes; i++) take(c, &p->dash[i]);
    for (int e = 0; e < 2 && has_ends; e++) take(c, &p->end[e]);
    return true;
  }
  return false;
}

static void paint(const canvas *c, const shape *s, unsigned char *pixels) {
  for (int i = 0; i < s->count; i++) {
    unsigned char *const pixel = &pixels[s->y[i] * c->side + s->x[i]];
    if (s->value[i] > *pixel) *pixel = s->value[i];
  }
}

static void paint_path(const canvas *c, const path *p, unsigned char *pixels) {
  for (int i = 0; i < p->dashes; i++) paint(c, &p->dash[i], pixels);
}

static double between(point a, point b) { return hypot(a.x - b.x, a.y - b.y); }

/* Chooses pairs of places for the discs of both classes with equal distances; false: there are none. */
static bool choose_ends(canvas *c) {
  const path *const a = &c->long_path[0], *const b = &c->long_path[1];
  const double similar = ldexp(SIMILAR, c->unlike / UNLIKE);
  int found = 0;
  for (int pair = 0; pair < 4; pair++) {
    const path *const own = &c->long_path[pair & 1];
    const bool seed_of_first = pair < 2;
    const double joined = between(own->first, own->last), apart = seed_of_first ? between(a->first, b->last) : between(b->first, a->last);
    if (fabs(joined - apart) > similar || hark_task_random_below(c->random, ++found) > 0) continue;
    c->joined = pair & 1;
    c->apart[0] = seed_of_first ? 0 : 1;
    c->apart[1] = seed_of_first ? 1 : 0;
  }
  return found > 0;
}

/* Draws the second long path again until the ends of both allow discs for both classes. */
static bool grow_long_paths(canvas *c) {
  const int dashes = (int)c->values->contour;
  memset(c->taken, 0, sizeof c->taken);
  if (!grow_path(c, dashes, true, first_seed)) return false;
  c->long_path[0] = c->trial;
  memcpy(c->first, c->taken, sizeof c->first);
  for (int i = 0; i < SECONDS; i++) {
    memcpy(c->taken, c->first, sizeof c->taken);
    if (!grow_path(c, dashes, true, second_seed)) break;
    c->long_path[1] = c->trial;
    if (choose_ends(c)) return true;
  }
  c->unlike++;
  return false;
}

/* Draws the long paths first, while there is room; the ends of both are kept free for either class. */
static bool try_image(canvas *c, unsigned char *pixels) {
  const pathfinder_values *const v = c->values;
  const int short_dashes = (int)(v->contour / 3);
  c->spacing = 2 * ((double)v->margin + (double)hark_task_random_below(c->random, (int32_t)(v->largest_margin - v->margin + 1)));
  memset(pixels, 0, (size_t)c->side * (size_t)c->side);
  if (!grow_long_paths(c)) return false;
  for (int i = 0; i < LONG_PATHS; i++) paint_path(c, &c->long_path[i], pixels);
  for (int64_t i = 0; i < v->distractors; i++) {
    if (!grow_path(c, short_dashes > 0 ? short_dashes : 1, false, anywhere)) break;
    paint_path(c, &c->trial, pixels);
  }
  return true;
}

static hark_task_sizes sizes(const void *values) {
  const int side = side_of(values);
  return (hark_task_sizes){.example_bytes = 1 + (size_t)side * (size_t)side, .scratch_bytes = sizeof(canvas)};
}

static size_t make(hark_task_order *order, unsigned char *out) {
  canvas *const c = order->scratch;
  const pathfinder_values *const v = order->values;
  c->values = v;
  c->random = &order->random;
  c->side = side_of(v);
  c->reach = (int)(v->separation * v->separation);
  c->unlike = 0;
  const bool joined = order->index % 2 == 1;
  for (int attempt = 0; attempt < IMAGES; attempt++) {
    if (!try_image(c, out + 1)) continue;
    for (int i = 0; i < LONG_PATHS; i++) paint(c, joined ? &c->long_path[c->joined].end[i] : &c->long_path[i].end[c->apart[i]], out + 1);
    out[0] = joined;
    return 1 + (size_t)c->side * (size_t)c->side;
  }
  return 0;
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator;
  unsigned char bytes[HARK_IMAGE_HEADER_BYTES];
  hark_image_header(side_of(values), side_of(values), 2, count, bytes);
  hark_text_append_bytes(out, (const char *)bytes, sizeof bytes);
  return out->status;
}

const hark_task_generator hark_task_pathfinder = {
    .summary = "images of two discs and dashed paths: does one path join the discs?",
    .format = "pathfinder",
    .examples = {160000, 20000, 20000},
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
};

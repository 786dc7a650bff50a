/* test_pathfinder.c - images of paths: classes by following lit pixels from one disc, their balance, what the discs alone say of the class,
 * and how many paths there are. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/cmocka_all.h"
#include "support/train/task_place.h"

#define LIT 32 /* of the documentation: an eighth of 255, rounded */

typedef struct picture {
  int side;
  const int32_t *pixel; /* tokens */
} picture;

static int grey(const picture *p, int x, int y) {
  return x < 0 || y < 0 || x >= p->side || y >= p->side ? 0 : p->pixel[y * p->side + x] - HARK_TOKEN_RESERVED;
}

/* A disc is the only thing that covers blocks of pixels that are wider than a dash. */
static bool in_disc(const picture *p, int x, int y, int block) {
  for (int dy = 0; dy < block; dy++)
    for (int dx = 0; dx < block; dx++)
      if (grey(p, x + dx, y + dy) != 255) return false;
  return true;
}

/* Follows lit pixels from (x, y) by steps of at most `reach`; marks them. */
static void follow(const picture *p, int x, int y, double reach, unsigned char *marked) {
  int *const stack = malloc((size_t)p->side * (size_t)p->side * sizeof *stack), width = (int)reach;
  int count = 0;
  stack[count++] = y * p->side + x;
  marked[y * p->side + x] = 1;
  while (count > 0) {
    const int at = stack[--count], from_x = at % p->side, from_y = at / p->side;
    for (int dy = -width; dy <= width; dy++)
      for (int dx = -width; dx <= width; dx++) {
        const int to = (from_y + dy) * p->side + from_x + dx;
        if (dx * dx + dy * dy > reach * reach || grey(p, from_x + dx, from_y + dy) < LIT || marked[to]) continue;
        marked[to] = 1;
        stack[count++] = to;
      }
  }
  free(stack);
}

/* Whether the disc found first in the order of the pixels is joined with one that is not part of it; and how far they are apart. */
static bool discs_are_joined(const picture *p, int block, double radius, double reach, double *apart) {
  unsigned char *const marked = calloc(1, (size_t)p->side * (size_t)p->side);
  int first_x = -1, first_y = -1, second_x = -1, second_y = -1;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x++) {
      if (!in_disc(p, x, y, block)) continue;
      if (first_x < 0) {
        first_x = x;
        first_y = y;
      } else if (hypot(x - first_x, y - first_y) > 2 * radius + 1) {
        if (second_x >= 0 && hypot(x - second_x, y - second_y) > 2 * radius + 1) fail_msg("a third disc at %d, %d", x, y);
        if (second_x < 0) {
          second_x = x;
          second_y = y;
        }
      }
    }
  if (second_x < 0) fail_msg("fewer than two discs");
  follow(p, first_x, first_y, reach, marked);
  const bool joined = marked[second_y * p->side + second_x];
  free(marked);
  *apart = hypot(second_x - first_x, second_y - first_y);
  return joined;
}

static int by_distance(const void *a, const void *b) {
  const double x = fabs(*(const double *)a), y = fabs(*(const double *)b);
  return (x > y) - (x < y);
}

/* The largest difference of both classes' shares below a distance (Kolmogorov and Smirnov's), whose two samples of n / 2 exceed 1.63 sqrt(4
 * / n) once in a hundred times where they are alike; images are the same in every run. Distances of class 0 are negative; a pixel more or
 * less is no difference. */
static void assert_distance_is_alike(const char *size, double *distances, int64_t count) {
  qsort(distances, (size_t)count, sizeof *distances, by_distance);
  double difference = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += (distances[i] > 0 ? 2 : -2) / (double)count;
    if (i + 1 < count && fabs(distances[i + 1]) - fabs(distances[i]) > 1e-9) largest = fmax(largest, fabs(difference));
  }
  if (largest > 1.63 * sqrt(4 / (double)count))
    fail_msg("size %s: the distance of the discs differs by %.3f between the classes", size, largest);
}

/* Paths that lit pixels make by steps of at most `reach`. */
static int paths(const picture *p, double reach) {
  unsigned char *const marked = calloc(1, (size_t)p->side * (size_t)p->side);
  int count = 0;
  for (int y = 0; y < p->side; y++)
    for (int x = 0; x < p->side; x++)
      if (grey(p, x, y) >= LIT && !marked[y * p->side + x]) {
        follow(p, x, y, reach, marked);
        count++;
      }
  free(marked);
  return count;
}

/* One size: Long Range Arena's numbers, and what the documentation says of our own. */
typedef struct expected {
  const char *size;
  int block; /* pixels a side of a square that fits into a disc and not into a dash */
  double radius, reach;
  int paths; /* the most that one image has of those that are looked at: with every distractor, but of 32 pixels, where one finds no room */
} expected;

static void check_pathfinder(const task_place *f, const expected *x, int64_t count) {
  const char *const size = x->size;
  char name[16];
  snprintf(name, sizeof name, "p%s", size);
  const made_task t = {.name = "pathfinder", .seed = 5, .examples = {count, 2, 0}, .options = {"size", size}};
  task_make(f, name, &t);
  hark_examples *e = task_open(f, name);
  int32_t side, width;
  int64_t positive = 0;
  int most = 0;
  assert_true(hark_examples_image(e, &side, &width) && side == width && side == atoi(size));
  int32_t *const tokens = malloc((size_t)side * (size_t)side * sizeof *tokens);
  double *const distances = malloc((size_t)count * sizeof *distances);
  const picture p = {side, tokens};
  for (int64_t i = 0; i < count; i++) {
    const int32_t label = hark_examples_label(e, HARK_SPLIT_TRAINING, i);
    assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, i, 0, tokens));
    positive += label;
    if (discs_are_joined(&p, x->block, x->radius, x->reach, &distances[i]) != (label == 1))
      fail_msg("size %s, image %" PRId64 " is of class %d", size, i, (int)label);
    if (label == 0) distances[i] = -distances[i];
    const int found = paths(&p, x->reach);
    if (found < 2 || found > x->paths) fail_msg("size %s, image %" PRId64 " has %d paths", size, i, found);
    if (found > most) most = found;
  }
  assert_int_equal(2 * positive, count);
  assert_int_equal(most, x->paths);
  assert_distance_is_alike(size, distances, count);
  free(distances);
  free(tokens);
  hark_examples_close(f->context, &e);
}

/* HARK_TEST_IMAGES sets how many of 32 pixels; a tenth as many have 64 and 128, a twentieth 256. */
static void pathfinder_has_right_classes(void **state) {
  const task_place *const f = *state;
  const char *const asked = getenv("HARK_TEST_IMAGES");
  const int64_t count = asked != NULL ? atoll(asked) : 1000;
  check_pathfinder(f, &(expected){"32", 1, 1.5, 3.3, 6}, count);
  check_pathfinder(f, &(expected){"64", 2, 2.5, 3.3, 7}, count / 20 * 2);
  check_pathfinder(f, &(expected){"128", 2, 3, 7.3, 10}, count / 20 * 2);
  check_pathfinder(f, &(expected){"256", 4, 5, 7.3, 8}, count / 40 * 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {TASK_TEST(pathfinder_has_right_classes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

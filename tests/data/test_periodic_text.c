/* test_periodic_text.c - sources of texts against their definition: what a document costs, from all choices that lead to it; entropy rates;
 * which distances carry information.
 */
#include "data/tasks/periodic_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/train/task_place.h"

/* ---- all documents, from all choices of the generator ---- */

#define SMALL 4096 /* documents */
#define LONGEST_LAG 64

/* A document that is being made: every choice of the definition is a call, with its probability. */
typedef struct choices {
  hark_periodic_text text;
  int64_t count;
  int32_t x[16], pattern[16];
  double probability[SMALL]; /* of every document, by its symbols as digits */
} choices;

static void choose(choices *c, int64_t i, double p);

static void choose_symbol(choices *c, int64_t i, double p, int32_t symbol) {
  c->x[i] = symbol;
  choose(c, i + 1, p);
}

static void choose_any(choices *c, int64_t i, double p, int32_t first, int32_t count) {
  for (int32_t s = 0; s < count; s++) choose_symbol(c, i, p / count, first + s);
}

static void choose_near(choices *c, int64_t i, double p, int32_t symbol, int32_t first, int32_t count) {
  choose_symbol(c, i, p * (1 - c->text.noise), symbol);
  choose_any(c, i, p * c->text.noise, first, count);
}

static void choose_content(choices *c, int64_t i, double p) {
  const int32_t markers = c->text.alphabet / 2, plain = c->text.alphabet - markers;
  if (i == 0 || c->x[i - 1] >= markers) {
    choose_any(c, i, p / 2, 0, markers);
    choose_any(c, i, p / 2, markers, plain);
    return;
  }
  int64_t before = i - 2;
  while (before >= 0 && c->x[before] != c->x[i - 1]) before--;
  if (before < 0)
    choose_any(c, i, p, markers, plain);
  else
    choose_near(c, i, p, c->x[before + 1], markers, plain);
}

static void choose(choices *c, int64_t i, double p) {
  const int32_t alphabet = c->text.alphabet;
  if (i == c->count) {
    int64_t number = 0;
    for (int64_t j = 0; j < i; j++) number = number * alphabet + c->x[j];
    c->probability[number] += p;
    return;
  }
  switch (c->text.kind) {
    case HARK_PERIODIC_LAG:
      if (i < c->text.lag)
        choose_any(c, i, p, 0, alphabet);
      else
        choose_near(c, i, p, c->x[i - c->text.lag], 0, alphabet);
      break;
    case HARK_PERIODIC_PERIOD: choose_near(c, i, p, c->pattern[i % c->text.period], 0, alphabet); break;
    case HARK_PERIODIC_CONTENT: choose_content(c, i, p); break;
    case HARK_PERIODIC_NONE:
      if (i == 0) {
        choose_any(c, i, p, 0, alphabet);
        break;
      }
      for (int32_t bit = 0; bit < 2; bit++) choose_near(c, i, p / 2, (2 * c->x[i - 1] + bit) % alphabet, 0, alphabet);
      break;
  }
}

static void choose_pattern(choices *c, int64_t place, double p) {
  if (c->text.kind != HARK_PERIODIC_PERIOD || place == c->text.period) {
    choose(c, 0, p);
    return;
  }
  for (int32_t s = 0; s < c->text.alphabet; s++) {
    c->pattern[place] = s;
    choose_pattern(c, place + 1, p / c->text.alphabet);
  }
}

/* Fills c->probability; the number of documents. */
static int64_t choose_all(choices *c, const hark_periodic_text *text, int64_t count) {
  int64_t documents = 1;
  for (int64_t i = 0; i < count; i++) documents *= text->alphabet;
  assert_true(documents <= SMALL);
  memset(c, 0, sizeof *c);
  c->text = *text;
  c->count = count;
  choose_pattern(c, 0, 1);
  return documents;
}

static double entropy(const choices *c, int64_t documents) {
  double sum = 0;
  for (int64_t d = 0; d < documents; d++) sum -= c->probability[d] > 0 ? c->probability[d] * log(c->probability[d]) : 0;
  return sum;
}

typedef struct small_text {
  hark_periodic_text text;
  int64_t count;
} small_text;

static const small_text small_texts[] = {
    {{.kind = HARK_PERIODIC_LAG, .alphabet = 2, .lag = 3, .noise = 0.3}, 9},
    {{.kind = HARK_PERIODIC_LAG, .alphabet = 3, .lag = 1, .noise = 0.6}, 6},
    {{.kind = HARK_PERIODIC_LAG, .alphabet = 3, .lag = 7, .noise = 0.6}, 5},
    {{.kind = HARK_PERIODIC_LAG, .alphabet = 2, .lag = 2, .noise = 0}, 8},
    {{.kind = HARK_PERIODIC_PERIOD, .alphabet = 2, .period = 3, .noise = 0.3}, 8},
    {{.kind = HARK_PERIODIC_PERIOD, .alphabet = 3, .period = 2, .noise = 0.5}, 7},
    {{.kind = HARK_PERIODIC_PERIOD, .alphabet = 3, .period = 2, .noise = 0}, 6},
    {{.kind = HARK_PERIODIC_PERIOD, .alphabet = 4, .period = 1, .noise = 1}, 5},
    {{.kind = HARK_PERIODIC_CONTENT, .alphabet = 4, .noise = 0.25}, 6},
    {{.kind = HARK_PERIODIC_CONTENT, .alphabet = 5, .noise = 0.5}, 5},
    {{.kind = HARK_PERIODIC_CONTENT, .alphabet = 4, .noise = 0}, 5},
    {{.kind = HARK_PERIODIC_NONE, .alphabet = 3, .noise = 0.25}, 6},
    {{.kind = HARK_PERIODIC_NONE, .alphabet = 4, .noise = 0}, 5},
};

static void a_document_costs_its_probability(void **state) {
  (void)state;
  static choices c;
  for (size_t t = 0; t < sizeof small_texts / sizeof *small_texts; t++) {
    const small_text *const s = &small_texts[t];
    const int64_t documents = choose_all(&c, &s->text, s->count);
    int32_t x[16], scratch[16];
    double sum = 0;
    for (int64_t d = 0; d < documents; d++) {
      int64_t digits = d;
      for (int64_t i = s->count; i-- > 0; digits /= s->text.alphabet) x[i] = (int32_t)(digits % s->text.alphabet);
      const double nats = hark_periodic_text_nats(&s->text, s->count, x, scratch);
      sum += exp(-nats);
      if (fabs(exp(-nats) - c.probability[d]) > 1e-12) /* sums of at most SMALL products of a few numbers in [0, 1] */
        fail_msg("text %d, document %d: probability %.15g, expected %.15g", (int)t, (int)d, exp(-nats), c.probability[d]);
    }
    assert_true(fabs(sum - 1) < 1e-12);
  }
}

/* H(x_0 .. x_(T-1)) - H(x_0 .. x_(T-2)) is the mean cost of the last symbol. For `lag` and `none` it is the rate as soon as the distance is
 * there; for `period` it falls to it. In `content`, with the noise 1, a symbol depends on nothing but whether it follows a marker: the
 * probability of that at place t is (1 - (-1/2)^t) / 3, so that the difference from the rate has this factor. */
static void rates_are_increments_of_the_entropy(void **state) {
  (void)state;
  static choices c;
  for (size_t t = 0; t < sizeof small_texts / sizeof *small_texts; t++) {
    const small_text *const s = &small_texts[t];
    const double rate = hark_periodic_text_rate(&s->text);
    double before = 0, increment = 0, previous = INFINITY;
    for (int64_t count = 1; count <= s->count; count++, previous = increment) {
      const double here = entropy(&c, choose_all(&c, &s->text, count));
      increment = here - before;
      before = here;
      const bool is_first = count <= (s->text.kind == HARK_PERIODIC_LAG ? s->text.lag : 1);
      if (s->text.kind == HARK_PERIODIC_LAG || s->text.kind == HARK_PERIODIC_NONE)
        assert_true(fabs(increment - (is_first ? log(s->text.alphabet) : rate)) < 1e-9);
      if (s->text.kind == HARK_PERIODIC_PERIOD) assert_true(increment > rate - 1e-9 && increment < previous + 1e-9);
    }
  }
  const hark_periodic_text random = {.kind = HARK_PERIODIC_CONTENT, .alphabet = 5, .noise = 1};
  const double before = entropy(&c, choose_all(&c, &random, 4)), after = entropy(&c, choose_all(&c, &random, 5));
  const double plain = log(3), other = log(2) + (log(2) + log(3)) / 2;
  assert_true(fabs(after - before - hark_periodic_text_rate(&random) - (other - plain) * (pow(-0.5, 4)) / 3) < 1e-9);
}

/* ---- drawn texts ---- */

#define DRAWN 200000

typedef struct drawn_text {
  int32_t x[DRAWN];
  double information[LONGEST_LAG + 1]; /* between symbols at a distance, nats */
} drawn_text;

static void draw(const hark_periodic_text *text, uint64_t seed, drawn_text *out) {
  int32_t scratch[HARK_PERIODIC_TEXT_ALPHABET];
  hark_task_random random = hark_task_random_begin(seed, 11, HARK_SPLIT_TRAINING, 0, 0);
  hark_periodic_text_draw(text, &random, DRAWN, out->x, scratch);
  for (int lag = 1; lag <= LONGEST_LAG; lag++) {
    double pairs[HARK_PERIODIC_TEXT_ALPHABET][HARK_PERIODIC_TEXT_ALPHABET] = {{0}}, a[HARK_PERIODIC_TEXT_ALPHABET] = {0},
           b[HARK_PERIODIC_TEXT_ALPHABET] = {0}, sum = 0;
    for (int i = lag; i < DRAWN; i++) {
      pairs[out->x[i - lag]][out->x[i]]++;
      a[out->x[i - lag]]++;
      b[out->x[i]]++;
    }
    for (int i = 0; i < text->alphabet; i++)
      for (int j = 0; j < text->alphabet; j++)
        if (pairs[i][j] > 0) sum += pairs[i][j] * log(pairs[i][j] * (DRAWN - lag) / (a[i] * b[j]));
    out->information[lag] = sum / (DRAWN - lag);
  }
}

/* The mean of the estimate for independent symbols is (A - 1)^2 / (2 n); twice its square has the variance of that chi-square variable. */
static double no_information(int32_t alphabet) {
  const double free = (alphabet - 1.0) * (alphabet - 1.0);
  return (free + 6 * sqrt(2 * free)) / (2 * (double)(DRAWN - LONGEST_LAG));
}

/* A pair at another distance is repeated LAG later if both its symbols are, with probability s: counts of pairs then have (1 + s) / (1 - s)
 * times the variance of independent ones. */
static void information_is_at_the_lag(void **state) {
  (void)state;
  static drawn_text drawn;
  static const int lags[] = {1, 5, 16, 31};
  for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
    const hark_periodic_text text = {.kind = HARK_PERIODIC_LAG, .alphabet = 16, .lag = lags[l], .noise = 0.4};
    draw(&text, 3 + l, &drawn);
    const double here = drawn.information[lags[l]];
    assert_true(fabs(here - (log(16) - hark_periodic_text_rate(&text))) < 0.01);
    for (int lag = 1; lag <= LONGEST_LAG; lag++) {
      if (lag % lags[l] != 0) assert_true(drawn.information[lag] < (1 + 0.36) / (1 - 0.36) * no_information(16));
      if (lag != lags[l]) assert_true(drawn.information[lag] < 0.6 * here); /* at 2 LAG the chance of a copy is .36, not .6 */
    }
  }
}

static void information_is_at_multiples_of_the_period(void **state) {
  (void)state;
  static drawn_text drawn;
  enum { PERIOD = 12, DOCUMENT = 1000 };
  const hark_periodic_text text = {.kind = HARK_PERIODIC_PERIOD, .alphabet = 8, .period = PERIOD, .noise = 0.3};
  double information[LONGEST_LAG + 1] = {0};
  int64_t equal[LONGEST_LAG + 1] = {0};
  for (uint64_t seed = 0; seed < 20; seed++) { /* of one document with one pattern: the symbols of a pair are equal */
    int32_t scratch[PERIOD];
    hark_task_random random = hark_task_random_begin(seed, 11, HARK_SPLIT_TRAINING, 0, 0);
    hark_periodic_text_draw(&text, &random, DOCUMENT, drawn.x, scratch);
    for (int lag = 1; lag <= LONGEST_LAG; lag++)
      for (int i = lag; i < DOCUMENT; i++) equal[lag] += drawn.x[i] == drawn.x[i - lag];
  }
  for (int lag = 1; lag <= LONGEST_LAG; lag++) information[lag] = (double)equal[lag] / (20.0 * (DOCUMENT - lag));
  for (int lag = 1; lag <= LONGEST_LAG; lag++) {
    /* Of two symbols of one place, both are its own with probability hit^2, and 7 others agree with miss^2 each. */
    const double hit = 0.7 + 0.3 / 8, same = hit * hit + 7 * (0.3 / 8) * (0.3 / 8);
    if (lag % PERIOD == 0) assert_true(fabs(information[lag] - same) < 0.03);
    if (lag % PERIOD != 0) assert_true(information[lag] < 0.25); /* 1/8, and chance patterns */
  }
}

static void content_is_at_no_lag(void **state) {
  (void)state;
  static drawn_text drawn;
  const hark_periodic_text text = {.kind = HARK_PERIODIC_CONTENT, .alphabet = 16, .noise = 0};
  draw(&text, 5, &drawn);
  for (int lag = 8; lag <= LONGEST_LAG; lag++) assert_true(drawn.information[lag] < 0.02);
  const hark_periodic_text random = {.kind = HARK_PERIODIC_CONTENT, .alphabet = 16, .noise = 1};
  assert_true(hark_periodic_text_rate(&random) - hark_periodic_text_rate(&text) > 0.65); /* the markers: ln 8 / 3 */
}

static void a_markov_text_forgets(void **state) {
  (void)state;
  static drawn_text drawn;
  static const int32_t alphabets[] = {3, 7, 16, 26};
  for (size_t a = 0; a < sizeof alphabets / sizeof *alphabets; a++) {
    const hark_periodic_text text = {.kind = HARK_PERIODIC_NONE, .alphabet = alphabets[a], .noise = 0.3};
    draw(&text, 7 + a, &drawn);
    assert_true(fabs(drawn.information[1] - (log(alphabets[a]) - hark_periodic_text_rate(&text))) < 0.01);
    for (int lag = 2; lag <= LONGEST_LAG; lag++)
      assert_true(drawn.information[lag] < drawn.information[lag - 1] + no_information(alphabets[a]));
    for (int lag = 12; lag <= LONGEST_LAG; lag++) assert_true(drawn.information[lag] < no_information(alphabets[a]));
  }
}

/* A long text costs its rate. The cost of a symbol has a deviation of at most 2.5 nats here. */
static void long_texts_cost_their_rate(void **state) {
  (void)state;
  static drawn_text drawn;
  static const hark_periodic_text texts[] = {
      {.kind = HARK_PERIODIC_LAG, .alphabet = 16, .lag = 20, .noise = 0.2},
      {.kind = HARK_PERIODIC_PERIOD, .alphabet = 16, .period = 20, .noise = 0.2},
      {.kind = HARK_PERIODIC_CONTENT, .alphabet = 16, .noise = 0.2},
      {.kind = HARK_PERIODIC_CONTENT, .alphabet = 9, .noise = 0.7},
      {.kind = HARK_PERIODIC_NONE, .alphabet = 16, .noise = 0.2},
  };
  for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
    int32_t scratch[HARK_PERIODIC_TEXT_ALPHABET];
    draw(&texts[t], 11 + t, &drawn);
    const double nats = hark_periodic_text_nats(&texts[t], DRAWN, drawn.x, scratch) / DRAWN;
    task_assert_near(nats, hark_periodic_text_rate(&texts[t]), 2.5 / sqrt(DRAWN), "nats of a symbol");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_document_costs_its_probability),
                                     cmocka_unit_test(rates_are_increments_of_the_entropy),
                                     cmocka_unit_test(information_is_at_the_lag),
                                     cmocka_unit_test(information_is_at_multiples_of_the_period),
                                     cmocka_unit_test(content_is_at_no_lag),
                                     cmocka_unit_test(a_markov_text_forgets),
                                     cmocka_unit_test(long_texts_cost_their_rate)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

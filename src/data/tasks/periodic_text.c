/* periodic_text.c - see periodic_text.h. */
#include "data/tasks/periodic_text.h"

#include <math.h>
#include <string.h>

char hark_periodic_text_letter(int32_t symbol) { return "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[symbol]; }

static int32_t marker_count(const hark_periodic_text *t) { return t->alphabet / 2; }

int64_t hark_periodic_text_scratch(const hark_periodic_text *t) { return t->kind == HARK_PERIODIC_PERIOD ? t->period : t->alphabet; }

/* ---- drawing ---- */

/* c ~> y over the symbols first .. first + count - 1. */
static int32_t draw_near(const hark_periodic_text *t, hark_task_random *random, int32_t c, int32_t first, int32_t count) {
  return hark_task_random_uniform(random) < t->noise ? first + hark_task_random_below(random, count) : c;
}

static void draw_lag(const hark_periodic_text *t, hark_task_random *random, int64_t count, int32_t *x) {
  for (int64_t i = 0; i < count; i++)
    x[i] = i < t->lag ? hark_task_random_below(random, t->alphabet) : draw_near(t, random, x[i - t->lag], 0, t->alphabet);
}

static void draw_period(const hark_periodic_text *t, hark_task_random *random, int64_t count, int32_t *x, int32_t *pattern) {
  for (int64_t i = 0; i < t->period; i++) pattern[i] = hark_task_random_below(random, t->alphabet);
  for (int64_t i = 0; i < count; i++) x[i] = draw_near(t, random, pattern[i % t->period], 0, t->alphabet);
}

/* last[m]: the symbol after the last occurrence of marker m, or -1. */
static void draw_content(const hark_periodic_text *t, hark_task_random *random, int64_t count, int32_t *x, int32_t *last) {
  const int32_t markers = marker_count(t), plain = t->alphabet - markers;
  int32_t marker = -1; /* the previous symbol, if it is one that no marker precedes */
  for (int32_t m = 0; m < markers; m++) last[m] = -1;
  for (int64_t i = 0; i < count; i++) {
    if (marker >= 0) {
      x[i] = last[marker] < 0 ? markers + hark_task_random_below(random, plain) : draw_near(t, random, last[marker], markers, plain);
      last[marker] = x[i];
      marker = -1;
    } else if (hark_task_random_below(random, 2) == 0) {
      x[i] = marker = hark_task_random_below(random, markers);
    } else {
      x[i] = markers + hark_task_random_below(random, plain);
    }
  }
}

static int32_t successor(const hark_periodic_text *t, int32_t x, int32_t bit) { return (2 * x + bit) % t->alphabet; }

static void draw_none(const hark_periodic_text *t, hark_task_random *random, int64_t count, int32_t *x) {
  for (int64_t i = 0; i < count; i++)
    x[i] = i == 0 ? hark_task_random_below(random, t->alphabet)
                  : draw_near(t, random, successor(t, x[i - 1], hark_task_random_below(random, 2)), 0, t->alphabet);
}

void hark_periodic_text_draw(const hark_periodic_text *t, hark_task_random *random, int64_t count, int32_t *symbols, int32_t *scratch) {
  switch (t->kind) {
    case HARK_PERIODIC_LAG: draw_lag(t, random, count, symbols); break;
    case HARK_PERIODIC_PERIOD: draw_period(t, random, count, symbols, scratch); break;
    case HARK_PERIODIC_CONTENT: draw_content(t, random, count, symbols, scratch); break;
    case HARK_PERIODIC_NONE: draw_none(t, random, count, symbols); break;
  }
}

/* ---- what a document costs ---- */

/* P(y) for c ~> y over `count` symbols: y = c, and y one of the others. */
static double hit(const hark_periodic_text *t, int32_t count) { return 1 - t->noise + t->noise / count; }
static double miss(const hark_periodic_text *t, int32_t count) { return t->noise / count; }

static double lag_nats(const hark_periodic_text *t, int64_t count, const int32_t *x) {
  const int64_t first = hark_min(t->lag, count);
  int64_t repeated = 0;
  for (int64_t i = first; i < count; i++) repeated += x[i] == x[i - t->lag];
  const int64_t others = count - first - repeated;
  return (double)first * log(t->alphabet) - (double)repeated * log(hit(t, t->alphabet)) -
         (others > 0 ? (double)others * log(miss(t, t->alphabet)) : 0);
}

/* The log of p^n; 0^0 = 1. */
static double log_power(double p, int64_t n) { return n == 0 ? 0 : (double)n * log(p); }

/* The symbols of one place of the pattern, n of them, of which n_c are c:  P = 1/A sum_c hit^n_c miss^(n - n_c), whatever their order. */
static double place_nats(const hark_periodic_text *t, int64_t n, const int32_t *counts) {
  const double yes = hit(t, t->alphabet), no = miss(t, t->alphabet);
  double largest = -INFINITY, sum = 0;
  for (int32_t c = 0; c < t->alphabet; c++) largest = fmax(largest, log_power(yes, counts[c]) + log_power(no, n - counts[c]));
  if (isinf(largest)) return INFINITY;
  for (int32_t c = 0; c < t->alphabet; c++) sum += exp(log_power(yes, counts[c]) + log_power(no, n - counts[c]) - largest);
  return log(t->alphabet) - largest - log(sum);
}

static double period_nats(const hark_periodic_text *t, int64_t count, const int32_t *x) {
  double nats = 0;
  for (int64_t place = 0; place < hark_min(t->period, count); place++) {
    int32_t counts[HARK_PERIODIC_TEXT_ALPHABET] = {0};
    int64_t n = 0;
    for (int64_t i = place; i < count; i += t->period, n++) counts[x[i]]++;
    nats += place_nats(t, n, counts);
  }
  return nats;
}

static double content_nats(const hark_periodic_text *t, int64_t count, const int32_t *x, int32_t *last) {
  const int32_t markers = marker_count(t), plain = t->alphabet - markers;
  int32_t marker = -1;
  double nats = 0;
  for (int32_t m = 0; m < markers; m++) last[m] = -1;
  for (int64_t i = 0; i < count; i++) {
    const bool is_marker = x[i] < markers;
    if (marker >= 0 && is_marker) return INFINITY;
    if (marker < 0) {
      nats += log(2) + log(is_marker ? markers : plain);
      marker = is_marker ? x[i] : -1;
      continue;
    }
    nats -= log(last[marker] < 0 ? 1.0 / plain : x[i] == last[marker] ? hit(t, plain) : miss(t, plain));
    last[marker] = x[i];
    marker = -1;
  }
  return nats;
}

/* P(y | x) is a successor's if y is one; the two differ. */
static double none_nats(const hark_periodic_text *t, int64_t count, const int32_t *x) {
  double nats = count > 0 ? log(t->alphabet) : 0;
  for (int64_t i = 1; i < count; i++) {
    const bool follows = x[i] == successor(t, x[i - 1], 0) || x[i] == successor(t, x[i - 1], 1);
    nats -= log((follows ? (1 - t->noise) / 2 : 0) + t->noise / t->alphabet);
  }
  return nats;
}

double hark_periodic_text_nats(const hark_periodic_text *t, int64_t count, const int32_t *symbols, int32_t *scratch) {
  switch (t->kind) {
    case HARK_PERIODIC_LAG: return lag_nats(t, count, symbols);
    case HARK_PERIODIC_PERIOD: return period_nats(t, count, symbols);
    case HARK_PERIODIC_CONTENT: return content_nats(t, count, symbols, scratch);
    case HARK_PERIODIC_NONE: return none_nats(t, count, symbols);
  }
  return NAN;
}

/* ---- entropy rates ---- */

static double surprise(double p) { return p > 0 ? -p * log(p) : 0; }

/* The entropy of y for c ~> y over `count` symbols. */
static double noise_entropy(const hark_periodic_text *t, int32_t count) {
  return surprise(hit(t, count)) + (count - 1) * surprise(miss(t, count));
}

double hark_periodic_text_rate(const hark_periodic_text *t) {
  const int32_t markers = marker_count(t), plain = t->alphabet - markers;
  switch (t->kind) {
    case HARK_PERIODIC_LAG:
    case HARK_PERIODIC_PERIOD: return noise_entropy(t, t->alphabet);
    /* One place in three follows a marker: with fraction f of such places, f = (1 - f) / 2. */
    case HARK_PERIODIC_CONTENT: return noise_entropy(t, plain) / 3 + 2.0 / 3 * (log(2) + (log(markers) + log(plain)) / 2);
    case HARK_PERIODIC_NONE:
      return 2 * surprise((1 - t->noise) / 2 + t->noise / t->alphabet) + (t->alphabet - 2) * surprise(t->noise / t->alphabet);
  }
  return NAN;
}

/* grow.c - expressions grown to fit a table. See fit.h. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "positional/expression.h"
#include "positional/fit.h"

#define PI 3.14159265358979323846
#define STARTS 8        /* lags or periods, at most */
#define BEAM 4          /* expressions of a round that are grown further */
#define ADDED_BYTES 160 /* text of one kernel */

/* An expression at work. */
typedef struct growth {
  hark_context *context;
  const hark_fit_target *target;
  const hark_grow_options *options;
  double *excess, *score; /* [count] */
  int lags[STARTS], lag_count;
  int periods[STARTS], period_count;
  hark_grown now;        /* the expression to which a kernel is added */
  hark_grown next[BEAM]; /* the best candidates of the round, the best first */
  int next_count;
} growth;

static int64_t learned_count(const hark_positional *expression) {
  int64_t learned = 0;
  for (int64_t p = 0; p < hark_positional_parameter_count(expression); p++) learned += hark_positional_is_learned(expression, p);
  return learned;
}

static double cost_of(const growth *g, const hark_grown *grown) {
  return grown->divergence + g->options->price * (double)grown->parameters;
}

/* Whether two texts differ in their numbers alone. */
static bool is_same_form(const char *a, const char *b) {
  static const char numbers[] = "0123456789.-";
  for (;;) {
    a += strspn(a, numbers);
    b += strspn(b, numbers);
    if (*a != *b || *a == '\0') return *a == *b;
    a++;
    b++;
  }
}

/* Among the candidates of the round, of each form only the best. */
static void keep(growth *g, const hark_grown *grown) {
  const double cost = cost_of(g, grown);
  int same = 0, place;
  while (same < g->next_count && !is_same_form(g->next[same].text, grown->text)) same++;
  if (same == BEAM) same--;
  if (same < g->next_count && cost_of(g, &g->next[same]) <= cost) return;
  g->next_count = (int)hark_max(g->next_count, same + 1);
  for (place = same; place > 0 && cost_of(g, &g->next[place - 1]) > cost; place--) g->next[place] = g->next[place - 1];
  g->next[place] = *grown;
}

/* Numbers of an expression to five digits: more say nothing about a fit, and cannot be read. The text never grows. */
static void shorten_numbers(char *text) {
  char *out = text, before = '(';
  for (const char *at = text; *at != '\0'; before = out[-1]) {
    const size_t length = strchr("=[,(+*", before) != NULL ? strspn(at, "0123456789.e-") : 0;
    char digits[HARK_NUMBER_BYTES];
    double value;
    if (length > 0 && hark_number_read(at, length, &value) && snprintf(digits, sizeof digits, "%.5g", value) <= (int)length) {
      memcpy(out, digits, strlen(digits));
      out += strlen(digits);
      at += length;
    } else {
      *out++ = *at++;
    }
  }
  *out = '\0';
}

/* Fits one candidate, and keeps it if it is the best. A text that cannot be read is too long or has values out of range: no candidate. */
static hark_status fit_candidate(growth *g, const char *text, int terms) {
  hark_positional *expression = NULL;
  hark_status status = hark_positional_create(g->context, text, &expression);
  if (status != HARK_OK) return status == HARK_INVALID_ARGUMENT ? HARK_OK : status;
  const int64_t size = hark_positional_parameter_count(expression);
  const hark_positional_start start = {.struct_size = sizeof start, .length = g->target->count, .heads = 1};
  void *parameters = NULL;
  hark_grown grown = {.terms = terms, .parameters = learned_count(expression), .constant = g->now.constant};
  status = hark_allocate(g->context, (size_t)hark_max(1, size) * sizeof(double), &parameters);
  if (status == HARK_OK) status = hark_positional_initial(g->context, expression, &start, parameters);
  if (status == HARK_OK) status = hark_fit_improve(g->context, expression, g->target, parameters, &grown.divergence);
  const bool allowed = status == HARK_OK && (!g->options->definite || hark_positional_is_definite(expression, parameters, NULL, NULL));
  if (allowed && isfinite(grown.divergence) &&
      hark_positional_print(expression, parameters, grown.text, sizeof grown.text) < sizeof grown.text) {
    shorten_numbers(grown.text);
    keep(g, &grown);
  }
  hark_release(g->context, parameters, (size_t)hark_max(1, size) * sizeof(double));
  hark_positional_destroy(g->context, &expression);
  return status == HARK_NOT_FINITE ? HARK_OK : status;
}

/* ---- starts ---- */

/* excess <- table - log G of the present expression, its weighted mean subtracted. */
static hark_status compute_excess(growth *g) {
  const int64_t count = g->target->count;
  hark_positional *expression = NULL;
  double mean = 0;
  HARK_TRY(hark_positional_create(g->context, g->now.text, &expression));
  const size_t bytes = (size_t)hark_max(1, hark_positional_parameter_count(expression)) * sizeof(double);
  const hark_positional_start start = {.struct_size = sizeof start, .length = count, .heads = 1};
  void *parameters = NULL;
  for (int64_t d = 0; d < count; d++) g->score[d] = (double)d;
  hark_status status = hark_allocate(g->context, bytes, &parameters);
  if (status == HARK_OK) status = hark_positional_initial(g->context, expression, &start, parameters);
  if (status == HARK_OK) status = hark_positional_log(g->context, expression, parameters, g->score, count, g->excess);
  hark_release(g->context, parameters, bytes);
  hark_positional_destroy(g->context, &expression);
  for (int64_t d = 0; d < count && status == HARK_OK; d++) {
    g->excess[d] = g->target->log_table[d] - g->excess[d];
    mean += g->target->weights[d] * g->excess[d];
  }
  for (int64_t d = 0; d < count && status == HARK_OK; d++) g->excess[d] -= mean;
  return status;
}

/* Puts d among the `most` places of the greatest scores, the greatest first. */
static void insert_peak(const double *score, int64_t d, int most, int *places, int *found) {
  int place = *found;
  if (*found == most && score[places[most - 1]] >= score[d]) return;
  if (*found == most) place--;
  *found = place + 1;
  for (; place > 0 && score[places[place - 1]] < score[d]; place--) places[place] = places[place - 1];
  places[place] = (int)d;
}

/* Places from `first` on that are above 0 and not below their neighbours. */
static int find_peaks(const double *score, int64_t first, int64_t count, int most, int *places) {
  int found = 0;
  for (int64_t d = first; d < count; d++) {
    const bool left = d == first || score[d] >= score[d - 1], right = d == count - 1 || score[d] > score[d + 1];
    if (score[d] > 0 && left && right) insert_peak(score, d, most, places, &found);
  }
  return found;
}

/* Lags: where the table is above the expression, by what that costs. Periods: lags at which the excess is like itself. */
static void find_starts(growth *g) {
  const int64_t count = g->target->count;
  const int most = (int)hark_min(g->options->periods, STARTS);
  for (int64_t d = 0; d < count; d++) g->score[d] = sqrt(g->target->weights[d]) * g->excess[d];
  g->lag_count = find_peaks(g->score, 0, count, most, g->lags);
  for (int64_t shift = 0; shift <= count / 2; shift++) {
    double sum = 0;
    for (int64_t d = 0; d + shift < count; d++) sum += g->excess[d] * g->excess[d + shift];
    g->score[shift] = sum / (double)(count - shift);
  }
  g->period_count = count >= 6 ? find_peaks(g->score, 2, count / 2 + 1, most, g->periods) : 0;
}

/* ---- candidates ---- */

#define FLOOR "constant(%s)"

/* Adds a kernel to the present expression by + and *, or begins with it. Its text has "%s" where its sigma2 stands. */
static hark_status join(growth *g, const char *kernel) {
  static const char *const factor = "sigma2=1!", *const terms[] = {"sigma2=1", "sigma2=0.05"};
  char added[ADDED_BYTES], text[HARK_GROWN_BYTES + 2 * ADDED_BYTES];
  const bool scaled = strstr(kernel, "%s") != NULL;
  const char *const at = scaled ? strstr(kernel, "%s") : kernel;
  (void)snprintf(added, sizeof added, "%.*s%s%s", (int)(at - kernel), kernel, scaled ? factor : "", at + (scaled ? 2 : 0));
  if (g->now.terms == 0) {
    HARK_TRY(fit_candidate(g, added, 1));
    if (g->options->terms < 2) return HARK_OK;
    (void)snprintf(text, sizeof text, "%s+%.*s%s%s", g->now.text, (int)(at - kernel), kernel, scaled ? terms[0] : "",
                   at + (scaled ? 2 : 0));
    return fit_candidate(g, text, 2);
  }
  (void)snprintf(text, sizeof text, "(%s)*%s", g->now.text, added);
  if (strcmp(kernel, FLOOR) != 0) HARK_TRY(fit_candidate(g, text, g->now.terms + 1));
  for (int i = 0; i < 2; i++) {
    if (scaled)
      (void)snprintf(added, sizeof added, "%.*s%s%s", (int)(at - kernel), kernel, terms[i], at + 2);
    else
      (void)snprintf(added, sizeof added, "constant(%s)*%s", terms[i], kernel);
    (void)snprintf(text, sizeof text, "%s+%s", g->now.text, added);
    HARK_TRY(fit_candidate(g, text, g->now.terms + 1));
  }
  return HARK_OK;
}

static hark_status join_printed(growth *g, const char *format, ...) HARK_PRINTF(2, 3);
static hark_status join_printed(growth *g, const char *format, ...) {
  char kernel[ADDED_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(kernel, sizeof kernel, format, arguments);
  va_end(arguments);
  return join(g, kernel);
}

static hark_status try_lengths(growth *g) {
  for (int64_t length = 1; length < 2 * g->target->count; length *= 4) {
    const double l = (double)length;
    HARK_TRY(join_printed(g, "decay(%%s,l=%.4g)", l));
    HARK_TRY(join_printed(g, "rbf(%%s,l=%.4g)", l));
    HARK_TRY(join_printed(g, "rational_quadratic(%%s,alpha=0.5,l=%.4g)", l));
    HARK_TRY(join_printed(g, "kerple_log(r1=1,r2=%.4g)", 1 / l));
    HARK_TRY(join_printed(g, "kerple_power(r1=%.4g,r2=0.5)", 1 / sqrt(l)));
  }
  return HARK_OK;
}

static hark_status try_lags(growth *g) {
  for (int i = 0; i < g->lag_count; i++) {
    const double mu = fmax(g->lags[i], 0.25);
    HARK_TRY(join_printed(g, "bump(%%s,mu=%.4g,l=0.4)", mu));
    HARK_TRY(join_printed(g, "bump(%%s,mu=%.4g,l=2)", mu));
    HARK_TRY(join_printed(g, "bump(%%s,mu=%.4g,l=%.4g)", mu, 2 + mu / 2));
  }
  return HARK_OK;
}

static hark_status try_periods(growth *g) {
  for (int i = 0; i < g->period_count; i++) {
    const double tau = g->periods[i] / PI;
    HARK_TRY(join_printed(g, "periodic(alpha=1,tau=%.6g)", tau));
    if (g->options->definite) HARK_TRY(join_printed(g, "spectral(a=1,l=%.4g,tau=%.6g)", 2.0 * (double)g->target->count, tau / 2));
    for (int lag = 0; lag < hark_min(2, g->lag_count); lag++)
      HARK_TRY(join_printed(g, "lagged_periodic(alpha=1.5,tau=%.6g,mu=%.4g)", tau, fmax(g->lags[lag] % g->periods[i], 0.25)));
  }
  return HARK_OK;
}

/* A floor under all distances. */
static hark_status try_constant(growth *g) { return g->now.terms > 0 ? join(g, FLOOR) : HARK_OK; }

/* Adds a kernel to an expression in every way. */
static hark_status grow_one(growth *g, const hark_grown *grown) {
  g->now = *grown;
  HARK_TRY(compute_excess(g));
  find_starts(g);
  HARK_TRY(try_lengths(g));
  HARK_TRY(try_lags(g));
  HARK_TRY(try_periods(g));
  return try_constant(g);
}

/* Rounds, each with one kernel more, until none of a round is better than the best before. *best is first the constant. */
static hark_status grow_all(growth *g, hark_grown *best) {
  hark_grown beam[BEAM] = {*best};
  int count = 1;
  for (bool better = true; better && beam[0].terms < g->options->terms;) {
    g->next_count = 0;
    for (int i = 0; i < count; i++) HARK_TRY(grow_one(g, &beam[i]));
    count = g->next_count;
    memcpy(beam, g->next, (size_t)count * sizeof *beam);
    better = count > 0 && cost_of(g, &beam[0]) < cost_of(g, best);
    if (better) *best = beam[0];
  }
  return HARK_OK;
}

/* *divergence <- that of no kernel. */
static hark_status measure_none(hark_context *context, const hark_fit_target *target, const char *text, double *divergence) {
  hark_positional *flat = NULL;
  double parameters[1] = {0};
  HARK_TRY(hark_positional_create(context, text, &flat));
  const hark_status status = hark_fit_divergence(context, flat, target, parameters, divergence);
  hark_positional_destroy(context, &flat);
  return status;
}

hark_status hark_fit_grow(hark_context *context, const hark_fit_target *target, const hark_grow_options *options, hark_grown *out) {
  void *memory = NULL;
  const size_t bytes = sizeof(growth) + 2 * (size_t)target->count * sizeof(double);
  *out = (hark_grown){.text = "constant(sigma2=1!)"};
  HARK_TRY(measure_none(context, target, out->text, &out->constant));
  out->divergence = out->constant;
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  growth *const g = memory;
  g->context = context;
  g->target = target;
  g->options = options;
  g->excess = (double *)(g + 1);
  g->score = g->excess + target->count;
  const hark_status status = grow_all(g, out);
  hark_release(context, memory, bytes);
  return status;
}

/* repetitions.c - see repetitions.h. */
#include "cli/kernels/repetitions.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_write.h"

#define TEXT_BYTES ((size_t)1 << 20)
#define HARMONICS 3       /* periods at which a rate must be high */
#define MAD_FACTOR 1.4826 /* of a normal distribution: its standard deviation over its median absolute deviation */

/* Rates of repetition by distance, and what is usual among them. */
typedef struct rates {
  double *of;     /* [distances + 1]; of[d]: of distance d, from 1 on */
  double *sorted; /* [distances] */
  int64_t distances, tokens;
  double median, deviation;
} rates;

static int compare_numbers(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_of(double *numbers, int64_t count) {
  qsort(numbers, (size_t)count, sizeof *numbers, compare_numbers);
  return count % 2 != 0 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

static void count_rates(rates *r, const int32_t *tokens) {
  for (int64_t d = 1; d <= r->distances; d++) {
    int64_t equal = 0;
    for (int64_t t = d; t < r->tokens; t++) equal += tokens[t] == tokens[t - d];
    r->of[d] = (double)equal / (double)(r->tokens - d);
  }
  memcpy(r->sorted, r->of + 1, (size_t)r->distances * sizeof *r->sorted);
  r->median = median_of(r->sorted, r->distances);
  for (int64_t d = 1; d <= r->distances; d++) r->sorted[d - 1] = fabs(r->of[d] - r->median);
  const double chance = sqrt(r->median * (1 - r->median) / (double)r->tokens);
  r->deviation = fmax(MAD_FACTOR * median_of(r->sorted, r->distances), fmax(chance, 1e-12));
}

static double deviations_at(const rates *r, int64_t d) { return (r->of[d] - r->median) / r->deviation; }

/* The neighbours must be lower: repetition of a slope is no lag. */
static bool is_peak(const rates *r, int64_t d) {
  return (d == 1 || r->of[d] > r->of[d - 1]) && (d == r->distances || r->of[d] > r->of[d + 1]);
}

static void weigh(const rates *r, hark_repetition *item) {
  const int harmonics = item->period ? HARMONICS : 1;
  item->rate = item->deviations = INFINITY;
  item->confirmed = true;
  for (int k = 1; k <= harmonics; k++) {
    const int64_t d = llround(k * item->value);
    if (d < 1 || d > r->distances) {
      item->confirmed = false;
      if (k == 1) item->rate = item->deviations = NAN;
      return;
    }
    item->rate = fmin(item->rate, r->of[d]);
    item->deviations = fmin(item->deviations, deviations_at(r, d));
    item->confirmed = item->confirmed && is_peak(r, d) && deviations_at(r, d) >= HARK_REPETITIONS_CONFIRMED;
  }
}

/* ---- what kernels contain ---- */

static void add(hark_repetitions *out, const rates *r, const char *kernel, bool period, double value) {
  hark_repetition item = {.kernel = kernel, .period = period, .value = value};
  for (int i = 0; i < out->count; i++) {
    const hark_repetition *other = &out->items[i];
    if (other->period == period && fabs(other->value - value) < (period ? 0.02 * value : 0.5)) return;
  }
  if (out->count == HARK_REPETITIONS_MOST) return;
  weigh(r, &item);
  out->items[out->count++] = item;
}

/* The periods of an expression. */
static hark_status add_periods(hark_context *context, const rates *r, const char *text, hark_repetitions *out) {
  static const double pi = 3.14159265358979323846;
  hark_positional *expression = NULL;
  HARK_TRY(hark_positional_create(context, text, &expression));
  const size_t bytes = (size_t)hark_max(1, hark_positional_parameter_count(expression)) * sizeof(double);
  const hark_positional_start start = {.struct_size = sizeof start};
  void *memory = NULL;
  hark_status status = hark_allocate(context, bytes, &memory);
  double *const values = memory;
  if (status == HARK_OK) status = hark_positional_initial(context, expression, &start, values);
  if (status == HARK_OK) status = hark_positional_natural(context, expression, values, values);
  for (int i = 0; i < hark_positional_named_count(expression) && status == HARK_OK; i++) {
    const hark_positional_parameter named = hark_positional_named(expression, i);
    if (strcmp(named.name, "tau") == 0)
      add(out, r, named.kernel, true,
          (strcmp(named.kernel, "spectral") == 0 ? 2 : 1) * pi * hark_positional_canonical_tau(values[named.first]));
  }
  hark_release(context, memory, memory != NULL ? bytes : 0);
  hark_positional_destroy(context, &expression);
  return status;
}

static hark_status add_kernels(hark_context *context, const rates *r, const hark_fitted_kernels *kernels, hark_repetitions *out) {
  for (int64_t i = 0; i < kernels->count; i++) {
    const hark_fitted_kernel *kernel = &kernels->items[i];
    for (int lag = 0; lag < kernel->lag_count; lag++) add(out, r, "attention", false, (double)(kernel->lags[lag] + 1));
    HARK_TRY(add_periods(context, r, kernel->grown.text, out));
  }
  out->tokens = r->tokens;
  out->distances = r->distances;
  out->median = r->median;
  return HARK_OK;
}

static hark_status compare(hark_context *context, const int32_t *tokens, size_t count, const hark_fitted_kernels *kernels,
                           hark_repetitions *out) {
  rates r = {.tokens = (int64_t)count, .distances = hark_min(kernels->length, (int64_t)count / 2)};
  const size_t bytes = (size_t)(2 * r.distances + 1) * sizeof(double);
  void *memory = NULL;
  if (r.distances < 2) return HARK_OK;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  r.of = memory;
  r.sorted = r.of + r.distances + 1;
  count_rates(&r, tokens);
  const hark_status status = add_kernels(context, &r, kernels, out);
  hark_release(context, memory, bytes);
  return status;
}

hark_status hark_repetitions_find(hark_context *context, const char *model, const char *text, const hark_fitted_kernels *kernels,
                                  hark_repetitions *out) {
  hark_model *loaded = NULL;
  hark_kernels_text tokens;
  *out = (hark_repetitions){0};
  HARK_TRY(hark_model_load(context, model, NULL, &loaded));
  hark_status status = hark_kernels_read_text(context, loaded, text, TEXT_BYTES, &tokens);
  if (status == HARK_OK) status = compare(context, tokens.ids, tokens.count, kernels, out);
  hark_kernels_free_text(context, &tokens);
  hark_model_destroy(context, &loaded);
  return status;
}

/* ---- as text ---- */

void hark_repetitions_append_table(const hark_repetitions *repetitions, hark_text *text) {
  hark_text_append(text,
                   "How often a token equals the one at a lag before it, or at one, two and three periods (the least of the three): in "
                   "%" PRId64 " tokens, with a median of %.4f over the lags 1 to %" PRId64
                   ". Confirmed: above the neighbours, and %d robust standard deviations above the median.\n\n",
                   repetitions->tokens, repetitions->median, repetitions->distances, HARK_REPETITIONS_CONFIRMED);
  if (repetitions->count == 0)
    hark_text_append(text, "No distance has a tenth of the attention of a head, and the kernels contain no periods.\n");
  if (repetitions->count > 0)
    hark_text_append(text, "| of | | tokens | repeated | deviations | in the text |\n|---|---|---|---|---|---|\n");
  for (int i = 0; i < repetitions->count; i++) {
    const hark_repetition *item = &repetitions->items[i];
    hark_text_append(text, "| %s | %s | %.5g | %.4f | %.1f | %s |\n", item->kernel, item->period ? "period" : "lag", item->value,
                     item->rate, item->deviations, item->confirmed ? "confirmed" : "no");
  }
}

void hark_repetitions_append_json(const hark_repetitions *repetitions, hark_text *text) {
  hark_text_append(text, "\"repetitions\": {\"tokens\": %" PRId64 ", \"distances\": %" PRId64, repetitions->tokens, repetitions->distances);
  hark_json_append_member(text, "median", repetitions->median);
  hark_text_append(text, ", \"found\": [");
  for (int i = 0; i < repetitions->count; i++) {
    const hark_repetition *item = &repetitions->items[i];
    hark_text_append(text, "%s{\"kernel\": \"%s\", \"kind\": \"%s\"", i > 0 ? ", " : "", item->kernel, item->period ? "period" : "lag");
    hark_json_append_member(text, "tokens", item->value);
    hark_json_append_member(text, "rate", item->rate);
    hark_json_append_member(text, "deviations", item->deviations);
    hark_text_append(text, ", \"confirmed\": %s}", item->confirmed ? "true" : "false");
  }
  hark_text_append(text, "]}");
}

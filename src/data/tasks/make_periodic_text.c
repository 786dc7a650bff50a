/* make_periodic_text.c - texts of known lag and period (periodic_text.h). An example is a document: a line of `tokens` symbols, each one
 * character. Documents are independent of each other.
 *
 *     period 3, noise 0.25     hcahcahfahcaaca ...
 *
 * Its nats are those of the best prediction that sees the document from its beginning; a line end then costs nothing.
 */
#include "data/tasks/make_vectors.h"
#include "data/tasks/periodic_text.h"
#include "io/number.h"

#define USUAL_TOKENS 1024

static hark_periodic_text text_of(const hark_vector_values *v) {
  return (hark_periodic_text){
      .kind = (hark_periodic_kind)v->kind, .alphabet = (int32_t)v->alphabet, .lag = v->lag, .period = v->period, .noise = v->noise};
}

static hark_status settle(hark_context *context, void *values) {
  static const int64_t fewest[] = {
      [HARK_PERIODIC_LAG] = 2, [HARK_PERIODIC_PERIOD] = 2, [HARK_PERIODIC_CONTENT] = 4, [HARK_PERIODIC_NONE] = 3};
  static const char *const names[] = {
      [HARK_PERIODIC_LAG] = "lag", [HARK_PERIODIC_PERIOD] = "period", [HARK_PERIODIC_CONTENT] = "content", [HARK_PERIODIC_NONE] = "none"};
  hark_vector_values *const v = values;
  if (v->tokens == 0) v->tokens = USUAL_TOKENS;
  if (v->alphabet < fewest[v->kind])
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--alphabet: %lld symbols, a text of kind %s has at least %lld",
                     (long long)v->alphabet, names[v->kind], (long long)fewest[v->kind]);
  if (v->noise > 1)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--noise: %s, expected a probability in [0, 1]", HARK_PRINTED(v->noise));
  if (v->kind == HARK_PERIODIC_LAG && v->lag >= v->tokens)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--lag: %lld, a document of %lld tokens has no such distance", (long long)v->lag,
                     (long long)v->tokens);
  if (v->kind == HARK_PERIODIC_PERIOD && v->period >= v->tokens)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--period: %lld, a document of %lld tokens has no such distance",
                     (long long)v->period, (long long)v->tokens);
  return HARK_OK;
}

static hark_task_sizes sizes(const void *values) {
  const hark_vector_values *const v = values;
  const hark_periodic_text text = text_of(v);
  return (hark_task_sizes){.example_bytes = (size_t)v->tokens + 1,
                           .scratch_bytes = (size_t)(v->tokens + hark_periodic_text_scratch(&text)) * sizeof(int32_t)};
}

static hark_status header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator, (void)values, (void)count;
  return out->status;
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_vector_values *const v = order->values;
  const hark_periodic_text text = text_of(v);
  int32_t *const symbols = order->scratch, *const scratch = symbols + v->tokens;
  hark_periodic_text_draw(&text, &order->random, v->tokens, symbols, scratch);
  order->nats = hark_periodic_text_nats(&text, v->tokens, symbols, scratch);
  for (int64_t i = 0; i < v->tokens; i++) out[i] = (unsigned char)hark_periodic_text_letter(symbols[i]);
  out[v->tokens] = '\n';
  return (size_t)v->tokens + 1;
}

static double entropy_rate(const void *values) {
  const hark_periodic_text text = text_of(values);
  return hark_periodic_text_rate(&text);
}

const hark_task_generator hark_task_periodic_text = {
    .summary = "texts in which a lag, a period, a marker or only the previous symbol predicts the next",
    .format = HARK_TASK_TEXT,
    .parameters = "tokens noise kind lag period alphabet",
    .examples = {1000, 50, 50},
    .settle = settle,
    .sizes = sizes,
    .header = header,
    .make = make,
    .entropy_rate = entropy_rate,
};

/* dropout.c - y[i] = keep(i) x[i] / (1 - p); element i, counted over the whole tensor, is kept when word i of the stream >= p 2^32.
 *
 * x, y of one shape. dx = keep dy / (1 - p): the backward draws the same words again, nothing is saved.
 * Ten rounds of Philox for four elements. Srivastava et al., JMLR 15 (2014).
 */
#include "io/number.h"
#include "ops/elementwise.h"

enum { INPUT_X, INPUT_COUNT };

#define WORDS 4 /* per counter; HARK_DEFINITION_GRAIN is a multiple, so that a range begins with a new counter */

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const char *const names[INPUT_COUNT] = {"x"};
  HARK_TRY(hark_elementwise_infer(context, &hark_op_dropout, names, attributes, inputs, input_count, out));
  const double probability = ((const hark_dropout_attributes *)attributes)->probability;
  if (!(probability >= 0 && probability < 1)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "dropout: probability is %s, expected 0 or more and less than 1",
                     HARK_PRINTED(probability));
  }
  return HARK_OK;
}

/* to[i] <- keep(i) from[i] / (1 - p) */
static void drop(const hark_dropout_attributes *attributes, hark_numbers to, hark_numbers from, int64_t first, int64_t last) {
  const uint32_t threshold = hark_random_threshold(attributes->probability);
  const double kept = 1 / (1 - attributes->probability);
  for (int64_t i = first; i < last; i += WORDS) {
    uint32_t words[WORDS];
    hark_random_words(&attributes->stream, (uint64_t)(i / WORDS), words);
    const int64_t count = hark_min(WORDS, last - i);
    for (int64_t w = 0; w < count; w++) hark_give(to, i + w, words[w] >= threshold ? kept * hark_get(from, i + w) : 0);
  }
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  drop(call->attributes, hark_numbers_of(&call->outputs[0]), hark_numbers_of(&call->inputs[INPUT_X]), first, last);
}

/* y = keep x / (1 - p): dx = keep dy / (1 - p) */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  drop(call->attributes, hark_gradient_of(call, INPUT_X), hark_numbers_of(&call->output_gradients[0]), first, last);
}

HARK_ELEMENTWISE(1, 1, 1);

#define SEED 0x9e3779b97f4a7c15u
#define LAYER_PURPOSE (7u << 8 | HARK_RANDOM_DROPOUT)
static const hark_dropout_attributes none = {0, {SEED, 0, 0, LAYER_PURPOSE}}, tenth = {0.1, {SEED, 0, 3, LAYER_PURPOSE}},
                                     half = {0.5, {SEED, 1000003, 0, LAYER_PURPOSE}}, most = {0.95, {1, (uint64_t)1 << 40, 1, 0}};

static const hark_sample samples[] = {
    {"one", &half, {{HARK_F32, 1, {1}, -2, 2}}},
    {"scalar", &half, {{HARK_F32, 0, {0}, -2, 2}}},
    {"none_dropped", &none, {{HARK_F32, 2, {7, 11}, -2, 2}}},
    {"tenth", &tenth, {{HARK_F32, 3, {3, 5, 37}, -2, 2}}},
    {"half", &half, {{HARK_F32, 1, {257}, -2, 2}}},
    {"most", &most, {{HARK_F32, 2, {13, 67}, -2, 2}}},
    {"many", &tenth, {{HARK_F32, 2, {70, 129}, -2, 2}}},
};

const hark_operator hark_op_dropout = {
    .name = "dropout",
    .formula = "y = keep(i) x / (1 - p)",
    .attributes_size = sizeof(hark_dropout_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};

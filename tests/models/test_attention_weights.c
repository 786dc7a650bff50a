/* test_attention_weights.c - the weights of attention that a pass reports (hark_forward.observe_weights): compared with the softmax in
 * float64 of the queries and keys of the same pass, and by properties where a layer knows more than queries and keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/model.h"
#include "nn/self_attention.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

#define LENGTH 29 /* no multiple of anything */
#define LAYERS 2
#define HEADS 4
#define WIDTH 32
#define HEAD_DIM (WIDTH / HEADS)

/* What a pass has reported. */
typedef struct reported {
  hark_context *context;
  float query[LAYERS][LENGTH * WIDTH], key[LAYERS][LENGTH * WIDTH];
  int64_t key_heads[LAYERS];
  float weights[LAYERS][HEADS][LENGTH][LENGTH];
  int64_t columns[LAYERS];
  double scale[LAYERS];
  hark_self_attention_spec specs[LAYERS];
} reported;

static hark_status take_inputs(void *user, int64_t layer, const hark_tensor *query, const hark_tensor *key, const hark_tensor *value) {
  reported *const r = user;
  (void)value;
  r->key_heads[layer] = key->shape[2] / HEAD_DIM;
  HARK_TRY(hark_tensor_read(r->context, query, r->query[layer]));
  return hark_tensor_read(r->context, key, r->key[layer]);
}

static hark_status take_weights(void *user, int64_t layer, const hark_self_attention_spec *spec, int64_t first,
                                const hark_tensor *weights) {
  reported *const r = user;
  float mixed[LENGTH * WIDTH];
  assert_int_equal(hark_tensor_count(weights), LENGTH * WIDTH);
  assert_int_equal(first, r->columns[layer]); /* every key once, in order */
  HARK_TRY(hark_tensor_read(r->context, weights, mixed));
  r->specs[layer] = *spec;
  for (int64_t f = 0; f < HEAD_DIM && first + f < LENGTH; f++, r->columns[layer]++)
    for (int64_t h = 0; h < HEADS; h++)
      for (int64_t t = 0; t < LENGTH; t++) r->weights[layer][h][t][first + f] = mixed[t * WIDTH + h * HEAD_DIM + f];
  return HARK_OK;
}

/* Reads the usual text, with the weights or without; *logits are those of its last token. */
static void read_text(hark_context *context, const hark_model *model, bool with, reported *r, float logits[VOCABULARY]) {
  int32_t tokens[LENGTH];
  const int64_t shape[] = {1, LENGTH};
  hark_tensor input = {0};
  hark_attention_plan **plans = NULL;
  hark_tape *tape = NULL;
  hark_value leaf = 0, out = 0;
  small_model_fill(tokens, LENGTH);
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &input));
  assert_fine(context, hark_tensor_write(context, &input, tokens));
  assert_fine(context, hark_network_plans_rectangular(context, model->network, 1, LENGTH, LENGTH, false, &plans));
  assert_fine(context, hark_tape_create(context, &tape));
  hark_tape_set_recording(tape, false);
  for (int64_t layer = 0; with && layer < LAYERS; layer++) r->scale[layer] = hark_attention_plan_desc(plans[layer])->scale;
  const hark_forward forward = {.tape = tape,
                                .parameters = &model->network->parameters,
                                .plans = plans,
                                .observe = with ? take_inputs : NULL,
                                .observe_user = r,
                                .observe_weights = with ? take_weights : NULL,
                                .observe_weights_user = r};
  assert_fine(context, hark_tape_leaf(tape, &input, NULL, &leaf));
  assert_fine(context, hark_stack_logits(context, model->network, &forward, leaf, true, &out));
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, out), logits));
  hark_tape_destroy(&tape);
  hark_network_plans_destroy(context, model->network, &plans);
  hark_tensor_destroy(context, &input);
}

static double similarity(const reported *r, int64_t layer, int64_t head, int64_t t, int64_t i) {
  const int64_t key_heads = r->key_heads[layer], of_key = head / (HEADS / key_heads);
  double sum = 0;
  for (int64_t d = 0; d < HEAD_DIM; d++)
    sum += (double)r->query[layer][t * WIDTH + head * HEAD_DIM + d] * (double)r->key[layer][(i * key_heads + of_key) * HEAD_DIM + d];
  return sum * r->scale[layer];
}

/* Weights are below 1 and come of sums of some dozen f32 terms: 1e-5 is some hundred roundings. */
#define WITHIN 1e-5

/* w = softmax over the keys that the query sees: those at distances up to the window (0: any). */
static void compare_with_softmax(const reported *r, int64_t layer, int64_t window) {
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t t = 0; t < LENGTH; t++) {
      double sum = 0;
      const int64_t first = window > 0 && t > window ? t - window : 0;
      for (int64_t i = first; i <= t; i++) sum += exp(similarity(r, layer, h, t, i));
      for (int64_t i = 0; i < LENGTH; i++) {
        const double expected = i >= first && i <= t ? exp(similarity(r, layer, h, t, i)) / sum : 0;
        const double got = (double)r->weights[layer][h][t][i];
        if (!(fabs(got - expected) <= WITHIN))
          fail_msg("layer %d head %d query %d key %d: %g, expected %g", (int)layer, (int)h, (int)t, (int)i, got, expected);
      }
    }
}

static bool is_ridge(const hark_self_attention_spec *spec) { return spec->normalisation == HARK_NORMALISATION_CME; }

/* Later keys have no weight; the others of a softmax sum to one. */
static void check_rows(const reported *r, int64_t layer) {
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t t = 0; t < LENGTH; t++) {
      double sum = 0;
      for (int64_t i = 0; i < LENGTH; i++) {
        const double weight = (double)r->weights[layer][h][t][i];
        if (i > t && weight != 0) fail_msg("layer %d: query %d sees key %d", (int)layer, (int)t, (int)i);
        sum += weight;
      }
      if (!is_ridge(&r->specs[layer]) && !(fabs(sum - 1) <= WITHIN))
        fail_msg("layer %d query %d: weights sum to %g", (int)layer, (int)t, sum);
    }
}

/* In a hierarchy the keys of the query's own block have weights in the ratios of the softmax. */
static void check_own_block(const reported *r, int64_t layer) {
  const int64_t block = r->specs[layer].choice.hierarchy_block;
  for (int64_t h = 0; h < HEADS; h++)
    for (int64_t t = 0; t < LENGTH; t++)
      for (int64_t i = t / block * block; i < t; i++) {
        const double ratio = exp(similarity(r, layer, h, t, i) - similarity(r, layer, h, t, t));
        const double got = (double)r->weights[layer][h][t][i], own = (double)r->weights[layer][h][t][t];
        if (!(fabs(got - ratio * own) <= WITHIN))
          fail_msg("layer %d query %d key %d: %g, expected %g", (int)layer, (int)t, (int)i, got, ratio * own);
      }
}

/* What a layer knows besides queries and keys is not in the comparison. */
static bool knows_more(const char *words) {
  return strstr(words, "\"positional\"") != NULL || strstr(words, "\"forget_gate\": true") != NULL;
}

/* How many layers were compared with what. */
typedef struct counts {
  int softmax, hierarchical, ridge;
} counts;

static void check_layer(const reported *r, int64_t layer, bool alone, counts *seen) {
  const hark_self_attention_spec *const spec = &r->specs[layer];
  const bool tree = spec->structure == HARK_STRUCTURE_HIERARCHICAL;
  assert_int_equal(r->columns[layer], LENGTH);
  check_rows(r, layer);
  seen->ridge += is_ridge(spec);
  if (!alone || is_ridge(spec)) return;
  if (tree)
    check_own_block(r, layer);
  else
    compare_with_softmax(r, layer, spec->structure == HARK_STRUCTURE_WINDOW ? 5 : 0);
  seen->hierarchical += tree;
  seen->softmax += !tree;
}

static void every_kind_of_attention_reports_its_weights(void **state) {
  (void)state;
  reported *const r = malloc(sizeof *r);
  counts seen = {0};
  assert_non_null(r);
  hark_context *const context = test_reference_open();
  for (int d = 0; d < DESCRIPTIONS; d++) {
    float with[VOCABULARY], without[VOCABULARY];
    hark_model *model = small_model_make(context, small_model_descriptions[d], 7);
    memset(r, 0, sizeof *r);
    r->context = context;
    read_text(context, model, true, r, with);
    read_text(context, model, false, r, without);
    assert_memory_equal(with, without, sizeof with); /* observing changes no bit */
    for (int64_t layer = 0; layer < LAYERS; layer++) check_layer(r, layer, !knows_more(small_model_descriptions[d]), &seen);
    hark_model_destroy(context, &model);
  }
  assert_true(seen.softmax > 2 && seen.hierarchical > 2 && seen.ridge > 0);
  test_setup_close(context);
  free(r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_of_attention_reports_its_weights)};
  return cmocka_run_group_tests_name("attention_weights", tests, NULL, NULL);
}

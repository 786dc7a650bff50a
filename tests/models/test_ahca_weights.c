/* test_ahca_weights.c - initial weights of compressed attention (docs/mathematics/ahca.md). */
#include <hark/hark.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/ahca_model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

static double deviation_of(const hark_parameter *parameter) {
  const double *weights = parameter->weight.data;
  double square = 0;
  for (int64_t i = 0; i < parameter->count; i++) square += weights[i] * weights[i];
  return sqrt(square / (double)parameter->count);
}

static bool ends_with(const char *name, const char *end) {
  const size_t length = strlen(name), ending = strlen(end);
  return length >= ending && strcmp(name + length - ending, end) == 0;
}

/* The deviation of n normal numbers is off by 1 / sqrt(2 n) of itself; five times that is allowed. */
static void initial_weights_are_as_large_as_what_they_read_asks_for(void **state) {
  (void)state;
  enum { WIDTH = 32, LAYERS = 3, CHUNK = 4, SLOTS = 2, LOCAL_LAYERS = 2 };
  for (int v = 0; v < 3; v++) {
    static const int heads[] = {HARK_AHCA_HEAD_CLASSES, HARK_AHCA_HEAD_LABELS, HARK_AHCA_HEAD_RECONSTRUCTION};
    static const double embedded[] = {0, 1, 0.5};
    hark_context *context = test_reference_open();
    hark_network_config config = {
        LABELS, .classes = v == 0 ? CLASSES : 0, .embedding_deviation = embedded[v],
        .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, CHUNK), SLOTS(SLOTS, 5, 2), .capacity = 0.5, .head = heads[v],
                 .primary_pool = v == 2 ? HARK_AHCA_POOL_AVERAGE : HARK_AHCA_POOL_ATTENTION, .secondary_pool = HARK_AHCA_POOL_ATTENTION}};
    config.width = WIDTH;
    config.ahca.local_layers = LOCAL_LAYERS;
    const double content = v == 0 ? 0.02 : embedded[v], slot = content / sqrt(v == 2 ? CHUNK / SLOTS : CHUNK);
    const struct {
      const char *name;
      double deviation; /* 0: it is not drawn */
    } own[] = {{"boundary.query.weight", 0},        {"boundary.key.weight", 0},
               {"embedding.token.weight", content}, {"embedding.in_chunk.weight", content},
               {"embedding.chunk.weight", slot},    {"embedding.slot.weight", slot},
               {"primary.queries.weight", 1},       {"secondary.queries.weight", 1},
               {"head.position.weight", 0.1},       {"head.chunk.weight", 0.1}};
    ahca_model m;
    int drawn = 0;
    ahca_model_open(&m, context, &config, HARK_F64);
    for (int32_t i = 0; i < m.network->parameters.count; i++) {
      const hark_parameter *parameter = &m.network->parameters.list[i];
      if (parameter->spec.rank < 2) continue;
      double expected = 1 / sqrt((double)parameter->spec.shape[1]);
      const bool local = strncmp(parameter->name, "local.", 6) == 0;
      if (ends_with(parameter->name, ".output.weight") || ends_with(parameter->name, ".down.weight"))
        expected *= local ? content / sqrt(2 * LOCAL_LAYERS) : 1 / sqrt(2 * LAYERS);
      for (size_t n = 0; n < sizeof own / sizeof *own; n++)
        if (strcmp(parameter->name, own[n].name) == 0) expected = own[n].deviation;
      if (expected == 0) continue;
      const double found = deviation_of(parameter);
      if (!(fabs(found / expected - 1) <= 5 / sqrt(2 * (double)parameter->count)))
        fail_msg("%s has deviation %g, expected %g", parameter->name, found, expected);
      drawn++;
    }
    assert_true(drawn > 20);
    ahca_model_close(&m);
    test_setup_close(context);
  }
}

/* With or without model.bias, and whatever the size of embeddings: p of two tokens that differ is 1/4 within 0.43 / sqrt(d), five times
 * which is allowed, of two that do not 0. No minimum or maximum decides here. Local layers add less to a token than it is, so that the same
 * bounds hold, but for equal tokens, whose rows are no longer equal. */
static void boundaries_are_the_exception_at_first(void **state) {
  (void)state;
  enum { WIDTH = 128 };
  static const int64_t lengths[SEQUENCES] = {17, 16, 15};
  for (int v = 0; v < 8; v++) {
    hark_context *context = test_reference_open();
    hark_network_config config = {BASE, .bias = v % 2 == 0, .embedding_deviation = v / 2 % 2,
                                  .ahca = {CHUNKS(HARK_AHCA_CHUNK_LEARNED, 4), SLOTS(2, 5, 2), .capacity = 0.5, .ratio_weight = 0.03}};
    hark_ahca_trace trace = {0};
    ahca_model m;
    config.width = WIDTH;
    config.ahca.chunk_minimum = 1;
    config.ahca.chunk_maximum = CONTEXT;
    config.ahca.local_layers = v < 4 ? 0 : 2;
    config.ahca.local_window = 4;
    ahca_model_open(&m, context, &config, HARK_F64);
    ahca_batch_open(&m, 0, lengths, SEQUENCES);
    (void)ahca_traced_loss(&m, 0, false, &trace);
    assert_int_equal(hark_tape_tensor(m.tape, trace.chunks)->shape[0], SEQUENCES + 1);
    const double *probability = hark_tape_tensor(m.tape, trace.probability)->data;
    for (int64_t s = 0, row = 0; s < SEQUENCES; row += lengths[s++]) {
      assert_true(probability[row] == 1);
      for (int64_t t = 1; t < lengths[s]; t++) {
        const double expected = ahca_token_at(s, t) == ahca_token_at(s, t - 1) ? 0 : 0.25;
        if (!(fabs(probability[row + t] - expected) <= (expected == 0 && v < 4 ? 1e-12 : 5 * 0.43 / sqrt(WIDTH))))
          fail_msg("variant %d, sequence %d, token %d: p is %g", v, (int)s, (int)t, probability[row + t]);
      }
    }
    ahca_batch_close(&m);
    ahca_model_close(&m);
    test_setup_close(context);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(initial_weights_are_as_large_as_what_they_read_asks_for),
      cmocka_unit_test(boundaries_are_the_exception_at_first),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

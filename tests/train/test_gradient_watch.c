/* test_gradient_watch.c - what the tape reports as final while the backward runs (autograd/watch.h) does not change any more, for every
 * kind of model; and most gradients are final early. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/watch.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"

enum { MOST_LEAVES = 4096 };

/* The gradients of the last backward, copied when they were reported as final. */
typedef struct watched {
  hark_engine *engine;
  hark_context *context;
  int64_t leaf_first[MOST_LEAVES], leaf_count[MOST_LEAVES];
  int32_t leaf_node[MOST_LEAVES];
  int leaves;
  float *copies, *now;
  bool *final; /* [numbers] */
  int64_t numbers, early, passes;
  int64_t total; /* learned numbers */
  bool running;  /* the forward has ended */
} watched;

static void forget(watched *w) {
  w->leaves = 0;
  w->running = false;
  memset(w->final, 0, (size_t)w->numbers);
}

static void see_leaf(void *user, const hark_tensor *gradient, int32_t node) {
  watched *const w = user;
  const float *const all = w->engine->network->parameters.gradients.data;
  if (w->running) forget(w); /* a new pass */
  assert_true(w->leaves < MOST_LEAVES);
  w->leaf_first[w->leaves] = (const float *)gradient->data - all;
  w->leaf_count[w->leaves] = hark_tensor_count(gradient);
  w->leaf_node[w->leaves++] = node;
}

/* Whether an earlier node may still add to a number of this leaf. */
static bool is_added_to(const watched *w, int leaf, int32_t node) {
  for (int i = 0; i < w->leaves; i++) {
    const bool apart =
        w->leaf_first[i] >= w->leaf_first[leaf] + w->leaf_count[leaf] || w->leaf_first[leaf] >= w->leaf_first[i] + w->leaf_count[i];
    if (!apart && w->leaf_node[i] < node) return true;
  }
  return false;
}

static uint32_t bits_of(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return bits;
}

static hark_status end_pass(watched *w) {
  for (int64_t i = 0; i < w->numbers; i++)
    if (w->final[i] && bits_of(w->copies[i]) != bits_of(w->now[i]))
      return hark_fail(w->context, HARK_INTERNAL_ERROR, "gradient %d was reported as final and has changed", (int)i);
  w->passes++;
  return HARK_OK;
}

static hark_status see_nodes(void *user, int32_t node) {
  watched *const w = user;
  w->running = true;
  HARK_TRY(hark_tensor_read(w->context, &w->engine->network->parameters.gradients, w->now));
  for (int i = 0; i < w->leaves; i++) {
    const int64_t first = w->leaf_first[i];
    if (w->final[first] || is_added_to(w, i, node)) continue;
    memcpy(w->copies + first, w->now + first, (size_t)w->leaf_count[i] * sizeof(float));
    memset(w->final + first, 1, (size_t)w->leaf_count[i]);
    w->early += node > 0 ? w->leaf_count[i] : 0;
  }
  return node == 0 ? end_pass(w) : HARK_OK;
}

/* Installs the watch after the first micro-batch. */
static hark_status install(void *user, hark_engine *engine, int64_t step, int64_t micro_batch) {
  watched *const w = user;
  const hark_tape_watch watch = {w, see_leaf, see_nodes};
  if (step != 1 || micro_batch != 0) return HARK_OK;
  w->engine = engine;
  w->numbers = hark_tensor_count(&engine->network->parameters.gradients);
  w->total = hark_parameters_total(&engine->network->parameters);
  w->copies = calloc((size_t)w->numbers, sizeof(float));
  w->now = calloc((size_t)w->numbers, sizeof(float));
  w->final = calloc((size_t)w->numbers, sizeof(bool));
  assert_true(w->copies != NULL && w->now != NULL && w->final != NULL);
  forget(w);
  hark_tape_set_watch(engine->tape, &watch);
  return HARK_OK;
}

/* Part of the gradients that must be final before the end. */
static void check(small_run *small, const char *folder, hark_context *context, double part) {
  watched w = {.context = context};
  char path[TEST_PATH_BYTES + 16];
  (void)snprintf(path, sizeof path, "%s/run", folder);
  const hark_train_hooks hooks = {.user = &w, .gradients = install};
  small->config.train.steps = 2;
  assert_fine(context, small_run_train(context, small, path, &hooks, NULL));
  assert_true(w.passes == 2 * small->config.train.accumulate - 1);
  const double early = (double)w.early / ((double)w.passes * (double)w.total);
  if (early < part) fail_msg("%.3f of the gradients are final before the end, expected %.3f", early, part);
  free(w.copies);
  free(w.now);
  free(w.final);
}

typedef struct model_case {
  const char *name;
  bool examples;
  double part;
  const char *words[10];
} model_case;

/* Without hidden reasons for a late end: of two layers at least the second and the head are final before the first layer's backward. */
static const model_case cases[] = {
    {"decoder", false, 0.5, {"--layers=3", "--no-tie-embeddings"}},
    {"tied", false, 0.5, {"--layers=3"}},
    {"recomputed", false, 0.5, {"--layers=3", "--recompute"}},
    {"learned positions", false, 0.5, {"--layers=3", "--positions=learned"}},
    {"shared rates", false, 0.5, {"--layers=3", "--rotary-learned=model"}},
    {"shared kernel", false, 0.5, {"--layers=3", "--positional=bank[2](decay*periodic)"}},
    {"smoothed", false, 0.5, {"--layers=3", "--train.label-smoothing=0.1"}},
    {"encoder", true, 0.5, {"--layers=3"}},
    {"ahca",
     true,
     0.3,
     {"--architecture=ahca", "--attention-dropout=0", "--structure=dense", "--layers=3", "--chunk=learned", "--chunk-size=4",
      "--selected=2"}},
    {"local layers",
     true,
     0.3,
     {"--architecture=ahca", "--attention-dropout=0", "--structure=dense", "--layers=3", "--chunk=learned", "--chunk-size=4",
      "--selected=2", "--model.ahca.local-layers=2", "--recompute"}},
};

static void of_every_model(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const model_case *const c = &cases[i];
    char folder[TEST_PATH_BYTES];
    small_run small;
    int words = 0;
    while (c->words[words] != NULL) words++;
    print_message("%s\n", c->name);
    test_folder_make(folder);
    small_run_open_with(&small, folder, c->examples, words, c->words);
    hark_context *context = small_run_context(1);
    check(&small, folder, context, c->part);
    test_setup_close(context);
    small_run_close(&small);
    test_folder_remove(folder);
  }
}

/* Slices of 16 rows in segments that are computed again. */
static void of_slices(void **state) {
  (void)state;
  static const char *const words[] = {"--layers=3", "--recompute", "--context=48", "--batch=1"};
  char folder[TEST_PATH_BYTES];
  small_run small;
  test_folder_make(folder);
  small_run_open_with(&small, folder, false, 4, words);
  hark_context *context = small_run_context(1);
  context->rows = (hark_row_parts){.most = 32, .part = 16};
  check(&small, folder, context, 0.5);
  test_setup_close(context);
  small_run_close(&small);
  test_folder_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_every_model),
      cmocka_unit_test(of_slices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

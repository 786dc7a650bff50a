/* test_allocations.c - every allocation fails in turn (failing.h): of a context, attention, a training step, a tape, generation. */

#include "fault/child.h"
#include "fault/failing.h"
#include "models/model.h"
#include "support/cmocka_all.h"

/* ---- contexts ---- */

static bool fail_context(const void *backend, void *data, long number, bool onwards) {
  (void)data;
  test_memory memory = {.fail_at = number, .onwards = onwards};
  hark_context *context = NULL;
  const hark_status status = test_memory_create(&memory, backend, &context);
  const bool reached = memory.allocations >= number;
  assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
  if (reached) assert_null(context);
  test_memory_context_end(context, &memory);
  return reached;
}

static void contexts(void **state) {
  (void)state;
  static const char *const backends[] = {"reference", "cpu", "guard"};
  for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) assert_true(fail_each(fail_context, backends[i], NULL) > 0);
}

/* ---- attention ---- */

enum { BATCH = 2, HEADS = 2, LENGTH = 40, HEAD_DIM = 8 };

static hark_status make(hark_context *context, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  return hark_tensor_create(context, type, rank, shape, out);
}

static hark_status attend_with(hark_context *context, const hark_attention_desc *desc, const hark_attention_plan *plan,
                               hark_attention_args *args) {
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int64_t shape[] = {BATCH, HEADS, LENGTH, HEAD_DIM}, bias[] = {1, HEADS, LENGTH, LENGTH}, gates[] = {BATCH, HEADS, LENGTH};
  const size_t scratch = sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace;
  hark_tensor *const like_query[] = {&args->query, &args->key,    &args->value, &args->out,
                                     &args->dout,  &args->dquery, &args->dkey,  &args->dvalue};
  for (size_t i = 0; i < sizeof like_query / sizeof *like_query; i++) HARK_TRY(make(context, desc->type, 4, shape, like_query[i]));
  if (desc->normalisation == HARK_NORMALISATION_CME)
    HARK_TRY(make(context, desc->type, 3, gates, &args->variance));
  else
    HARK_TRY(make(context, desc->type, 3, gates, &args->log_sum_exp));
  if (desc->has_bias) {
    HARK_TRY(make(context, desc->type, 4, bias, &args->attention_bias));
    HARK_TRY(make(context, desc->type, 4, bias, &args->dattention_bias));
  }
  if (desc->has_forget) {
    HARK_TRY(make(context, desc->type, 3, gates, &args->forget));
    HARK_TRY(make(context, desc->type, 3, gates, &args->dforget));
  }
  HARK_TRY(hark_allocate(context, scratch, &args->workspace));
  HARK_TRY(hark_allocate(context, sizes.saved, &args->saved));
  HARK_TRY(hark_attention_forward(context, plan, args));
  HARK_TRY(hark_attention_backward(context, plan, args));
  return HARK_OK;
}

static hark_status attend(hark_context *context, void *data) {
  const hark_attention_desc *desc = data;
  hark_attention_plan *plan = NULL;
  HARK_TRY(hark_attention_plan_create(context, desc, &plan));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  hark_attention_args args = {.struct_size = sizeof args};
  const hark_status status = attend_with(context, desc, plan, &args);
  hark_tensor *const all[] = {&args.query,           &args.key,    &args.value,   &args.out,         &args.dout,
                              &args.dquery,          &args.dkey,   &args.dvalue,  &args.log_sum_exp, &args.attention_bias,
                              &args.dattention_bias, &args.forget, &args.dforget, &args.variance};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) hark_tensor_destroy(context, all[i]);
  hark_release(context, args.workspace,
               sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace);
  hark_release(context, args.saved, sizes.saved);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

static void attention_of_each_structure(void **state) {
  (void)state;
  static const char *const backends[] = {"cpu", "reference"};
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = HEAD_DIM;
  for (size_t b = 0; b < sizeof backends / sizeof *backends; b++) {
    work plain = {.run = attend, .backend = backends[b], .at_least = 10};
    hark_attention_desc dense = desc, window = desc, gated = desc, ridge = desc;
    plain.name = "dense attention with bias and dropout";
    dense.has_bias = true;
    dense.dropout = 0.1;
    fail_at_each(&plain, &dense);
    plain.name = "windowed attention";
    window.structure = HARK_STRUCTURE_WINDOW;
    window.window = 5;
    fail_at_each(&plain, &window);
    plain.name = "forget gates";
    gated.causal = gated.has_forget = true;
    fail_at_each(&plain, &gated);
    plain.name = "kernel ridge attention";
    ridge.normalisation = HARK_NORMALISATION_CME;
    ridge.ridge = 0.5;
    ridge.causal = true;
    fail_at_each(&plain, &ridge);
  }
}

/* ---- models ---- */

static child_place place;
static int32_t inputs[64], targets[64];

enum { VOCABULARY = 30 };

typedef struct model_work {
  hark_config config;
  hark_engine *engine;
  hark_network *decoder;
  hark_model *model;
  hark_decoding *decoding;
} model_work;

static void fill_tokens(void) {
  for (int i = 0; i < 64; i++) inputs[i] = 4 + i * 7 % (VOCABULARY - 4);
  for (int i = 0; i < 64; i++) targets[i] = inputs[(i + 1) % 64];
}

static hark_status make_engine(hark_context *context, void *data) {
  model_work *m = data;
  HARK_TRY(hark_engine_create(context, &m->config, VOCABULARY, true, &m->engine));
  return hark_parameters_initialise(context, &m->engine->network->parameters, 1);
}

static hark_status step_engine(hark_context *context, model_work *m) {
  const int64_t rows = m->config.train.batch;
  double loss = 0;
  hark_step_result result;
  HARK_TRY(hark_engine_begin_step(context, m->engine));
  for (uint32_t micro = 0; micro < 2; micro++)
    HARK_TRY(hark_engine_micro_batch(context, m->engine, inputs, targets, rows, 0, micro, 0.01, &loss));
  HARK_TRY(hark_engine_finish_step(context, m->engine, 1, 1e-3, loss, &result));
  HARK_TRY(hark_engine_predict(context, m->engine, inputs, NULL, rows, m->config.model.context));
  return hark_engine_loss(context, m->engine, targets, &loss);
}

static hark_status make_and_step_engine(hark_context *context, void *data) {
  HARK_TRY(make_engine(context, data));
  return step_engine(context, data);
}

static hark_status make_and_step(hark_context *context, model_work *m, const hark_learning_task *task, const hark_example_batch *batch) {
  const int32_t *predicted = NULL;
  hark_pass_result pass;
  hark_step_result result;
  HARK_TRY(hark_engine_create_for(context, &m->config, task, true, &m->engine));
  HARK_TRY(hark_parameters_initialise(context, &m->engine->network->parameters, 1));
  HARK_TRY(hark_engine_begin_step(context, m->engine));
  HARK_TRY(hark_engine_train_examples(context, m->engine, batch, 0, 0.5, &pass));
  HARK_TRY(hark_engine_finish_step(context, m->engine, 1, 1e-3, pass.loss, &result));
  static hark_ahca_statistics statistics;
  if (m->config.model.architecture == HARK_ARCHITECTURE_AHCA) m->engine->statistics = &statistics;
  const hark_status status = hark_engine_evaluate_examples(context, m->engine, batch, &pass, &predicted);
  m->engine->statistics = NULL;
  return status;
}

/* Packed examples: 2 of 5 and 3 tokens, with classes, or with labels where the configuration asks for such. */
static hark_status make_and_step_encoder(hark_context *context, void *data) {
  model_work *m = data;
  static int32_t positions[] = {0, 1, 2, 3, 4, 0, 1, 2}, classes[] = {2, 0, 1, 3, 4, 5, 6, 7};
  static int64_t segments[] = {0, 0, 0, 0, 0, 1, 1, 1}, ranges[] = {0, 5, 5, 8};
  const bool labels = m->config.model.ahca.head == HARK_AHCA_HEAD_LABELS;
  const hark_learning_task task = {.vocabulary = VOCABULARY, .classes = labels ? 0 : 3, .parts = 1};
  const hark_example_batch batch = {.rows = 2,
                                    .tokens = 8,
                                    .inputs = inputs,
                                    .positions = positions,
                                    .segments = segments,
                                    .ranges = ranges,
                                    .targets = classes,
                                    .real = labels ? 8 : 2,
                                    .longest = 5};
  return make_and_step(context, m, &task, &batch);
}

/* The same with vectors. */
static hark_status make_and_step_vectors(hark_context *context, void *data) {
  model_work *m = data;
  static int32_t positions[] = {0, 1, 2, 0, 1};
  static int64_t segments[] = {0, 0, 0, 1, 1}, ranges[] = {0, 3, 3, 5};
  static float features[5 * 4] = {1, 0, 0, 0, 0, 1, 0, 0, 0.5f}, responses[2] = {0.25f, -0.25f};
  const hark_learning_task task = {.vocabulary = VOCABULARY, .parts = 1, .features = 4, .responses = 1};
  const hark_example_batch batch = {.rows = 2,
                                    .tokens = 5,
                                    .inputs = inputs,
                                    .positions = positions,
                                    .segments = segments,
                                    .ranges = ranges,
                                    .features = features,
                                    .responses = responses,
                                    .real = 2,
                                    .longest = 3};
  return make_and_step(context, m, &task, &batch);
}

static void destroy_engine(hark_context *context, void *data) { hark_engine_destroy(context, &((model_work *)data)->engine); }

static void training_steps(void **state) {
  (void)state;
  model_work m = {.config = place.small.config};
  work what = {.name = "model, two micro-batches, a step, an evaluation",
               .run = make_and_step_engine,
               .end = destroy_engine,
               .backend = "cpu",
               .at_least = 20};
  m.config.train.batch = 2;
  fail_at_each(&what, &m);
  what.backend = "reference";
  fail_at_each(&what, &m);
  what.name = "the same, blocks computed again in the backward";
  what.backend = "cpu";
  m.config.model.recompute = true;
  m.config.model.layers = 2;
  fail_at_each(&what, &m);
  what.name = "kernel ridge attention, with ridge and sigma learned, computed again";
  m.config.model.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_CME);
  m.config.model.attention.kernel = HARK_KERNEL_RBF;
  m.config.model.attention.ridge_learned = m.config.model.attention.sigma_learned = true;
  m.config.model.attention.dropout = 0;
  fail_at_each(&what, &m);
  m.config.model.attention = place.small.config.model.attention;
  what.name = "an encoder, a batch of examples, a step, an evaluation";
  what.run = make_and_step_encoder;
  m.config.model.architecture = HARK_ARCHITECTURE_ENCODER;
  m.config.model.recompute = false;
  fail_at_each(&what, &m);
  what.name = "learned chunks that label tokens, with a positional kernel";
  m.config.model.architecture = HARK_ARCHITECTURE_AHCA;
  m.config.model.positions = HARK_POSITIONS_LEARNED;
  m.config.model.attention.dropout = 0;
  m.config.model.positional = "decay";
  m.config.model.ahca = (hark_ahca_config){.head = HARK_AHCA_HEAD_LABELS,
                                           .chunk = HARK_AHCA_CHUNK_LEARNED,
                                           .chunk_size = 2,
                                           .window = 1,
                                           .primary_slots = 2,
                                           .secondary_slots = 3,
                                           .selected = 2,
                                           .local_layers = 1,
                                           .local_window = 1,
                                           .capacity = 0.5,
                                           .ratio_weight = 0.03,
                                           .ponder_weight = 0.02};
  fail_at_each(&what, &m);
  what.name = "a network of bounded matrices, a batch of vectors, a step, an evaluation";
  what.run = make_and_step_vectors;
  m.config.model.architecture = HARK_ARCHITECTURE_LATENT;
  m.config.model.positions = HARK_POSITIONS_NONE;
  m.config.model.positional = NULL;
  m.config.model.activation = HARK_ACTIVATION_RELU;
  m.config.model.width = 4;
  m.config.model.heads = m.config.model.key_heads = 2;
  m.config.model.dropout = m.config.model.embedding_dropout = m.config.model.attention.dropout = 0;
  m.config.model.latent =
      (hark_latent_config){.skip = true, .norm = HARK_BOUND_TWO, .operator_norm = 0.5, .matrix_norm = 0.5, .range = 0.5};
  fail_at_each(&what, &m);
  what.name = "a regression in every sequence, a batch of vectors, a step, an evaluation";
  m.config.model.architecture = HARK_ARCHITECTURE_FINITE;
  m.config.model.finite = (hark_finite_config){.map = HARK_FINITE_MAP_NETWORK, .covariates = 3, .ridge = 0.5, .ridge_learned = true};
  fail_at_each(&what, &m);
}

/* A tape whose memory was not reserved: every operator may be the one that fails. The tape is used again after a reset. */
static hark_status differentiate(hark_context *context, const model_work *m, hark_tape *tape, hark_attention_plan *const *plans,
                                 float *loss) {
  const int64_t shape[] = {2, m->config.model.context};
  hark_tensor rows, following;
  hark_value tokens = 0, next = 0, value = 0;
  const hark_forward forward = {.tape = tape, .parameters = &m->decoder->parameters, .training = true, .seed = 1, .plans = plans};
  HARK_TRY(hark_tensor_zero(context, &m->decoder->parameters.gradients));
  HARK_TRY(hark_tensor_wrap(context, inputs, HARK_I32, 2, shape, NULL, &rows));
  HARK_TRY(hark_tensor_wrap(context, targets, HARK_I32, 2, shape, NULL, &following));
  hark_tape_reset(tape);
  HARK_TRY(hark_tape_leaf(tape, &rows, NULL, &tokens));
  HARK_TRY(hark_tape_leaf(tape, &following, NULL, &next));
  HARK_TRY(hark_stack_loss(context, m->decoder, &forward, tokens, next, (hark_target_loss){.weight = 0.1}, &value));
  HARK_TRY(hark_tape_backward(tape, value, 1));
  return hark_tensor_read(context, hark_tape_tensor(tape, value), loss);
}

enum { GRADIENTS = 20000 }; /* room for those of the model */

/* What comes of it when nothing fails. */
typedef struct tape_result {
  float loss, gradients[GRADIENTS];
} tape_result;

/* `expected` holds what must come of it when memory is back; number 0: nothing fails, and it is filled. */
static bool fail_tape(const void *config_of_run, void *expected, long number, bool onwards) {
  static tape_result got;
  tape_result *const result = number == 0 ? expected : &got;
  test_memory memory = {0};
  hark_context *context = NULL;
  hark_tape *tape = NULL;
  hark_attention_plan **plans = NULL;
  model_work m = {.config = *(const hark_config *)config_of_run};
  const hark_network_config config = hark_engine_text_config(&m.config, VOCABULARY);
  assert_int_equal(test_memory_create(&memory, "cpu", &context), HARK_OK);
  assert_fine(context, hark_network_create(context, &config, HARK_F32, true, &m.decoder));
  assert_fine(context, hark_parameters_initialise(context, &m.decoder->parameters, 1));
  assert_fine(context, hark_network_plans_rectangular(context, m.decoder, 2, config.context, config.context, true, &plans));
  assert_fine(context, hark_tape_create(context, &tape));
  const hark_tensor *const all = &m.decoder->parameters.gradients;
  assert_in_range(hark_tensor_count(all), 1, GRADIENTS);
  memory.fail_at = number > 0 ? memory.allocations + number : 0;
  memory.onwards = onwards;
  const hark_status status = differentiate(context, &m, tape, plans, &result->loss);
  const bool reached = number > 0 && memory.allocations >= memory.fail_at;
  assert_int_equal(status, reached ? HARK_OUT_OF_MEMORY : HARK_OK);
  memory.fail_at = 0;
  if (reached) assert_fine(context, differentiate(context, &m, tape, plans, &result->loss));
  assert_fine(context, hark_tensor_read(context, all, result->gradients));
  assert_memory_equal(result, expected, offsetof(tape_result, gradients) + (size_t)hark_tensor_count(all) * sizeof(float));
  hark_tape_destroy(&tape);
  hark_network_plans_destroy(context, m.decoder, &plans);
  hark_network_destroy(context, &m.decoder);
  test_memory_context_end(context, &memory);
  return reached;
}

static void tapes(void **state) {
  (void)state;
  static tape_result expected;
  hark_config config = place.small.config;
  config.model.layers = 2;
  for (int recompute = 0; recompute < 2; recompute++) {
    config.model.recompute = recompute != 0;
    (void)fail_tape(&config, &expected, 0, false);
    const long count = fail_each(fail_tape, &config, &expected);
    print_message("tape of a decoder%s: %ld allocations\n", recompute ? " with recomputed blocks" : "", count);
    assert_true(count > 5);
  }
}

static hark_status generate(hark_context *context, void *data) {
  model_work *m = data;
  const hark_network_config config = hark_engine_text_config(&m->config, VOCABULARY);
  const hark_sampling sampling = hark_sampling_default();
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = 16};
  HARK_TRY(hark_network_create(context, &config, HARK_F32, false, &m->decoder));
  HARK_TRY(hark_parameters_initialise(context, &m->decoder->parameters, 1));
  HARK_TRY(hark_model_wrap(context, m->decoder, &m->model));
  HARK_TRY(hark_decoding_create(context, m->model, &room, &m->decoding));
  HARK_TRY(hark_decoding_prefill(m->decoding, inputs, 5));
  int32_t token = 0;
  for (uint64_t i = 0; i < 4; i++) {
    HARK_TRY(hark_decoding_choose(m->decoding, &sampling, i, &token));
    HARK_TRY(hark_decoding_step(m->decoding, token));
  }
  return HARK_OK;
}

static void end_generation(hark_context *context, void *data) {
  model_work *m = data;
  hark_decoding_destroy(&m->decoding);
  hark_model_destroy(context, &m->model);
  hark_network_destroy(context, &m->decoder);
}

static void generation(void **state) {
  (void)state;
  model_work m = {.config = place.small.config};
  m.config.model.layers = 2;
  work what = {.name = "generation", .run = generate, .end = end_generation, .backend = "cpu", .at_least = 15};
  fail_at_each(&what, &m);
  what.name = "generation with kernel ridge attention";
  m.config.model.attention.normalisation = (hark_layer_choice)HARK_EVERY_LAYER(HARK_NORMALISATION_CME);
  m.config.model.attention.dropout = 0;
  fail_at_each(&what, &m);
}

static int begin(void **state) {
  (void)state;
  child_place_open(&place);
  fill_tokens();
  return 0;
}

static int end(void **state) {
  (void)state;
  child_place_close(&place);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(contexts),       cmocka_unit_test(attention_of_each_structure),
      cmocka_unit_test(training_steps), cmocka_unit_test(tapes),
      cmocka_unit_test(generation),
  };
  return cmocka_run_group_tests(tests, begin, end);
}

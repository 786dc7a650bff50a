/* test_predictor.c - <hark/predictor.h>: what models predict of whole sequences, against passes that are put together here and the
 * definition of ahca; what is refused; memory; vocabularies of labelled examples.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/ahca_definition.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "tokenizers/tokenizer.h"

#define CONTEXT 21
#define SEQUENCES 6
#define FEATURES 3
#define MOST (SEQUENCES * CONTEXT)
#define VOCABULARY 261 /* bytes, where a description names no number of tokens */
#define WITHIN 2e-6    /* of the largest number: some dozen sums of 2^-24 each */

#define MODEL(rest)                                                                                                                        \
  "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, \"width\": 8, \"feed_forward_width\": 12, "              \
  "\"context\": 21, \"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"tie_embeddings\": false, "               \
  "\"bias\": true, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, " rest "}}"
#define ATTENTION(structure)                                                                                                               \
  "\"attention\": {\"structure\": \"" structure                                                                                            \
  "\", \"window\": 3, \"hierarchy_block\": 2, \"kernel\": \"exp\", \"sigma\": 1, "                                                         \
  "\"forget_gate\": false}"
#define ENCODER(pooling, structure)                                                                                                        \
  MODEL("\"architecture\": \"encoder\", \"classes\": 3, \"pooling\": \"" pooling "\", \"positions\": \"learned\", " ATTENTION(structure))
#define AHCA(rest)                                                                                                                         \
  MODEL(                                                                                                                                   \
      "\"architecture\": \"ahca\", \"positions\": \"learned\", \"ahca\": {\"chunk_size\": 4, \"chunk_minimum\": 2, "                       \
      "\"chunk_maximum\": 6, \"window\": 2, \"primary_slots\": 2, \"secondary_slots\": 5, \"selected\": 2, \"capacity\": 1, "              \
      "\"chunk\": " rest ", " ATTENTION("dense"))

static const struct {
  const char *name, *description;
  int64_t outputs, parts, longest, features;
  bool of_tokens;
} models[] = {
    {"class", ENCODER("class", "dense"), 3, 1, CONTEXT - 1, 0, false},
    {"mean_window", ENCODER("mean", "window"), 3, 1, CONTEXT, 0, false},
    {"first_hierarchical", ENCODER("first", "hierarchical"), 3, 1, CONTEXT, 0, false},
    {"pairs",
     MODEL("\"architecture\": \"encoder\", \"classes\": 4, \"parts\": 2, \"pooling\": \"class\", \"positions\": \"rotary\", " ATTENTION(
         "dense")),
     4, 2, CONTEXT - 1, 0, false},
    {"decoder", MODEL("\"positions\": \"rotary\", " ATTENTION("dense,window")), VOCABULARY, 1, CONTEXT, 0, true},
    {"masked", MODEL("\"architecture\": \"masked_encoder\", \"positions\": \"learned\", " ATTENTION("dense")), VOCABULARY, 1, CONTEXT, 0,
     true},
    {"ahca", AHCA("\"learned\"}, \"vocabulary\": 9, \"classes\": 5"), 5, 1, CONTEXT, 0, false},
    {"ahca_labels", AHCA("\"fixed\", \"head\": \"labels\"}, \"vocabulary\": 9"), 9, 1, CONTEXT, 0, true},
    {"ahca_local", AHCA("\"learned\", \"head\": \"labels\", \"local_layers\": 2, \"local_window\": 2}, \"vocabulary\": 9"), 9, 1, CONTEXT,
     0, true},
    {"ahca_few_values",
     MODEL("\"architecture\": \"ahca\", \"vocabulary\": 9, \"classes\": 2, \"positions\": \"none\", \"ahca\": {\"chunk\": \"fixed\", "
           "\"chunk_size\": 4, \"window\": 2, \"primary_slots\": 2, \"secondary_slots\": 5, \"selected\": 2, \"capacity\": 1, "
           "\"layer\": \"linear\", \"primary_depth\": 2}, " ATTENTION("dense")),
     2, 1, CONTEXT, 0, false},
    {"ahca_alone",
     MODEL("\"architecture\": \"ahca\", \"vocabulary\": 9, \"positions\": \"learned\", \"ahca\": {\"chunk\": \"learned\", "
           "\"chunk_size\": 4, \"chunk_minimum\": 2, \"chunk_maximum\": 6, \"window\": 2, \"primary_slots\": 2, \"secondary_slots\": 5, "
           "\"selected\": 0, \"capacity\": 1, \"head\": \"reconstruction\"}, " ATTENTION("dense")),
     9, 1, CONTEXT, 0, true},
    {"ahca_vectors", AHCA("\"semantic\"}, \"vocabulary\": 6, \"features\": 3, \"responses\": 2"), 2, 1, CONTEXT, FEATURES, false},
};
enum {
  MODELS = sizeof models / sizeof *models,
  CLASS = 0,
  PAIRS = 3,
  DECODER = 4,
  AHCA_CLASSES = 6,
  ALONE = MODELS - 2,
  VECTORS = MODELS - 1
};

/* Of a call: tokens or vectors of six sequences of these lengths. */
static const int64_t lengths[SEQUENCES] = {20, 1, 7, 13, 2, 11};

typedef struct call {
  int64_t offsets[SEQUENCES + 1];
  int32_t tokens[MOST];
  float vectors[MOST * FEATURES];
} call;

/* Tokens that are in every vocabulary here. */
static int32_t token_at(int64_t i) { return (int32_t)(HARK_TOKEN_RESERVED + (i * 7 + i * i) % 4); }

static hark_prediction_input input_of(int model, const call *c, int64_t sequences) {
  const bool vectors = models[model].features > 0;
  return (hark_prediction_input){.struct_size = sizeof(hark_prediction_input),
                                 .examples = sequences / models[model].parts,
                                 .offsets = c->offsets,
                                 .tokens = vectors ? NULL : c->tokens,
                                 .vectors = vectors ? c->vectors : NULL};
}

/* Sequences first .. first + count of the six. */
static void fill(int model, int64_t first, int64_t count, call *c) {
  int64_t at = 0;
  *c = (call){.offsets = {0}};
  for (int64_t s = 0; s < first; s++) at += lengths[s];
  for (int64_t s = 0, total = 0; s < count; s++) {
    for (int64_t i = 0; i < lengths[first + s]; i++, total++) {
      c->tokens[total] = token_at(at + total) % (model == VECTORS ? 1 : INT32_MAX);
      for (int64_t f = 0; f < FEATURES; f++) c->vectors[total * FEATURES + f] = sinf((float)(at + total) * (1 + (float)f));
    }
    c->offsets[s + 1] = total;
  }
}

static hark_model *make(hark_context *context, int model) {
  const hark_model_options options = {
      .struct_size = sizeof options, .description = models[model].description, .description_bytes = strlen(models[model].description)};
  hark_model *out = NULL;
  /* a description with a number of tokens of its own has no vocabulary of bytes */
  const bool is_small = strstr(models[model].description, "\"vocabulary\"") != NULL;
  static const char words[] =
      "{\"format_version\": 1, \"format\": \"sequences\", \"classes\": [], \"size\": 9, "
      "\"symbols\": [\"b\", \"a\", \"ab\", \"_\"]}",
                    numbers[] = "{\"format_version\": 1, \"format\": \"vectors\", \"classes\": [], \"size\": 6, \"symbols\": \"numbers\"}";
  hark_model_options own = options;
  own.vocabulary = !is_small ? NULL : models[model].features > 0 ? numbers : words;
  own.vocabulary_bytes = own.vocabulary != NULL ? strlen(own.vocabulary) : 0;
  assert_fine(context, hark_model_create(context, &own, 11, &out));
  return out;
}

static int64_t rows_of(int model, const call *c, int64_t sequences) {
  return models[model].of_tokens ? c->offsets[sequences] : sequences / models[model].parts;
}

/* The same pass put together by hand; *out gets its numbers. */
static void run_by_hand(hark_context *context, const hark_model *model, int which, const call *c, int64_t sequences, float *out) {
  const hark_network *network = model->network;
  const int64_t front = which == CLASS || which == PAIRS;
  int32_t tokens[MOST + SEQUENCES], positions[MOST + SEQUENCES];
  int64_t segments[MOST + SEQUENCES], ranges[2 * SEQUENCES], total = 0, longest = 0;
  for (int64_t s = 0; s < sequences; s++) {
    ranges[2 * s] = total;
    for (int64_t i = -front; i < c->offsets[s + 1] - c->offsets[s]; i++, total++) {
      tokens[total] = i < 0 ? HARK_TOKEN_CLASS : c->tokens[c->offsets[s] + i];
      positions[total] = (int32_t)(i + front);
      segments[total] = 10 + s;
    }
    ranges[2 * s + 1] = total;
    longest = total - ranges[2 * s] > longest ? total - ranges[2 * s] : longest;
  }
  const int64_t row[] = {1, total}, pairs[] = {sequences / models[which].parts, models[which].parts, 2}, vectors[] = {1, total, FEATURES};
  hark_tensor ids, places, bounds, numbers = {0};
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, row, &ids));
  assert_fine(context, hark_tensor_create(context, HARK_I32, 1, &total, &places));
  assert_fine(context, hark_tensor_create(context, HARK_I64, 3, pairs, &bounds));
  assert_fine(context, hark_tensor_create(context, HARK_F32, 3, vectors, &numbers));
  assert_fine(context, hark_tensor_write(context, &ids, tokens));
  assert_fine(context, hark_tensor_write(context, &places, positions));
  assert_fine(context, hark_tensor_write(context, &bounds, ranges));
  assert_fine(context, hark_tensor_write(context, &numbers, c->vectors));
  const hark_packing packing = {.segments = segments, .positions = &places, .longest = longest};
  const hark_pass_sizes sizes = {.batch = 1, .queries = total, .keys = total, .sequences = sequences, .longest = longest};
  hark_attention_plan **plans = NULL;
  hark_tape *tape = NULL;
  assert_fine(context, hark_network_plans_create(context, network, &sizes, false, &plans));
  assert_fine(context, hark_tape_create(context, &tape));
  hark_tape_set_recording(tape, false);
  const hark_forward forward = {.tape = tape, .parameters = &network->parameters, .packing = &packing, .plans = plans};
  hark_network_input input = {.ranges = &bounds, .weight = 1};
  hark_value logits = 0;
  assert_fine(context, hark_tape_leaf(tape, &ids, NULL, &input.tokens));
  if (models[which].features > 0) assert_fine(context, hark_tape_leaf(tape, &numbers, NULL, &input.vectors));
  assert_fine(context, network->architecture->logits(context, network, &forward, &input, &logits));
  assert_int_equal(hark_tensor_count(hark_tape_tensor(tape, logits)), rows_of(which, c, sequences) * models[which].outputs);
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, logits), out));
  hark_tape_destroy(&tape);
  hark_network_plans_destroy(context, network, &plans);
  hark_tensor *const all[] = {&ids, &places, &bounds, &numbers};
  for (int i = 0; i < 4; i++) hark_tensor_destroy(context, all[i]);
}

static void near(const char *name, const float *found, const float *expected, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, fabsf(expected[i]));
  assert_true(largest > 0);
  for (int64_t i = 0; i < count; i++)
    if (!(fabsf(found[i] - expected[i]) <= (float)WITHIN * largest))
      fail_msg("%s: number %d is %.9g, expected %.9g", name, (int)i, (double)found[i], (double)expected[i]);
}

static float found[MOST * VOCABULARY], expected[MOST * VOCABULARY];

/* Calls of any lengths find room in what was measured, and allocate nothing. */
static void calls_of_any_lengths_allocate_nothing(void **state) {
  (void)state;
  enum { CALLS = 80 };
  const hark_random_stream stream = {.seed = 8, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 2);
  uint64_t dice = 0;
  for (int m = 0; m < MODELS; m++) {
    hark_model *model = make(context, m);
    const hark_predictor_options options = {.struct_size = sizeof options, .examples = SEQUENCES / models[m].parts};
    hark_predictor *predictor = NULL;
    call c;
    fill(m, 0, SEQUENCES, &c);
    assert_fine(context, hark_predictor_create(context, model, &options, &predictor));
    const hark_memory_use before = hark_context_memory(context);
    for (int i = 0; i < CALLS; i++) {
      const int64_t sequences = models[m].parts * (1 + hark_random_word(&stream, dice++) % (uint32_t)options.examples);
      for (int64_t s = 0; s < sequences; s++) {
        const int64_t count = 1 + hark_random_word(&stream, dice++) % (uint32_t)models[m].longest;
        c.offsets[s + 1] = c.offsets[s] + (i == 0 ? models[m].longest : count);
      }
      for (int64_t t = 0; t < c.offsets[sequences]; t++) {
        c.tokens[t] = token_at(t + i) % (m == VECTORS ? 1 : INT32_MAX);
        for (int64_t f = 0; f < FEATURES; f++) c.vectors[t * FEATURES + f] = sinf((float)(t + i) * (1 + (float)f));
      }
      const hark_prediction_input input = input_of(m, &c, sequences);
      assert_fine(context, hark_predictor_run(predictor, &input, found, (size_t)(rows_of(m, &c, sequences) * models[m].outputs)));
    }
    if (hark_context_memory(context).allocations != before.allocations) fail_msg("%s: allocates", models[m].name);
    hark_predictor_destroy(&predictor);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Six sequences at once give what a pass by hand predicts; nothing is allocated meanwhile, and nothing stays. */
static void it_tells_what_the_network_does(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (int m = 0; m < MODELS; m++) {
      hark_model *model = make(context, m);
      const size_t live = hark_context_memory(context).live_bytes;
      const hark_predictor_options options = {.struct_size = sizeof options, .examples = SEQUENCES / models[m].parts};
      hark_predictor *predictor = NULL;
      call c;
      fill(m, 0, SEQUENCES, &c);
      const hark_prediction_input input = input_of(m, &c, SEQUENCES);
      const int64_t numbers = rows_of(m, &c, SEQUENCES) * models[m].outputs;
      run_by_hand(context, model, m, &c, SEQUENCES, expected);
      assert_fine(context, hark_predictor_create(context, model, &options, &predictor));
      const hark_memory_use before = hark_context_memory(context);
      for (int again = 0; again < 2; again++) {
        memset(found, 0x7f, sizeof found);
        assert_fine(context, hark_predictor_run(predictor, &input, found, (size_t)numbers));
        near(models[m].name, found, expected, numbers);
      }
      assert_int_equal(hark_context_memory(context).allocations, before.allocations);
      hark_predictor_destroy(&predictor);
      assert_null(predictor);
      assert_int_equal(hark_context_memory(context).live_bytes, live);
      hark_model_destroy(context, &model);
    }
    test_setup_close(context);
  }
}

static void shapes_are_reported(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int m = 0; m < MODELS; m++) {
    hark_model *model = make(context, m);
    hark_prediction_shape shape = {.struct_size = sizeof shape};
    hark_model_info info = {.struct_size = sizeof info};
    assert_fine(context, hark_predictor_shape(model, &shape));
    assert_fine(context, hark_model_describe(model, &info));
    assert_int_equal(shape.outputs, models[m].outputs);
    assert_int_equal(shape.parts, models[m].parts);
    assert_int_equal(shape.longest, models[m].longest);
    assert_int_equal(shape.features, models[m].features);
    assert_int_equal(shape.of_tokens, models[m].of_tokens);
    assert_int_equal(shape.selected, strcmp(info.architecture, "ahca") == 0 && m != ALONE ? 2 : 0);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* An example alone has the bits that it has among others. */
static void examples_do_not_see_each_other(void **state) {
  (void)state;
  hark_context *context = test_setup_open_deterministic(&(test_setup){"cpu", NULL}, 2);
  for (int m = 0; m < MODELS; m++) {
    const int64_t parts = models[m].parts;
    hark_model *model = make(context, m);
    const hark_predictor_options options = {.struct_size = sizeof options, .examples = SEQUENCES / parts};
    hark_predictor *together = NULL, *alone = NULL;
    call c;
    fill(m, 0, SEQUENCES, &c);
    const int64_t rows = rows_of(m, &c, SEQUENCES);
    const hark_prediction_input input = input_of(m, &c, SEQUENCES);
    assert_fine(context, hark_predictor_create(context, model, &options, &together));
    assert_fine(context, hark_predictor_create(context, model, NULL, &alone));
    assert_fine(context, hark_predictor_run(together, &input, expected, (size_t)(rows * models[m].outputs)));
    float *of_example = expected;
    for (int64_t s = 0; s < SEQUENCES; s += parts) {
      fill(m, s, parts, &c);
      const hark_prediction_input one = input_of(m, &c, parts);
      const int64_t numbers = rows_of(m, &c, parts) * models[m].outputs;
      assert_fine(context, hark_predictor_run(alone, &one, found, (size_t)numbers));
      if (memcmp(found, of_example, (size_t)numbers * sizeof *found) != 0)
        fail_msg("%s: sequence %d has other bits alone", models[m].name, (int)s);
      of_example += numbers;
    }
    hark_predictor_destroy(&together);
    hark_predictor_destroy(&alone);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* ---- what the caller decides of ahca ---- */

typedef struct selector {
  bool nothing; /* of the second sequence */
  int calls;
  int64_t chosen[SEQUENCES][2], count[SEQUENCES];
} selector;

static void first_and_last(void *user, const float *global, int64_t width, const int64_t *offsets, int64_t sequences, int64_t most,
                           int32_t *index) {
  selector *s = user;
  assert_int_equal(most, 2);
  s->calls++;
  for (int64_t i = 0; i < sequences; i++) {
    const int64_t rows = offsets[i + 1] - offsets[i];
    for (int64_t n = offsets[i] * width; n < offsets[i + 1] * width; n++) assert_true(isfinite(global[n]));
    s->count[i] = rows > 1 ? 2 : 1;
    s->chosen[i][0] = 0;
    s->chosen[i][1] = rows - 1;
    for (int64_t k = 0; k < 2; k++) {
      assert_int_equal(index[2 * i + k], -1);
      if (k < s->count[i] && !(s->nothing && i == 1)) index[2 * i + k] = (int32_t)(offsets[i] + s->chosen[i][k]);
    }
  }
}

static void chunks_and_selection_are_the_callers(void **state) {
  (void)state;
  static const int64_t sizes[] = {3, 5, 2, 4};
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 2);
  hark_model *model = make(context, AHCA_CLASSES);
  selector chosen = {0};
  const hark_predictor_options options = {.struct_size = sizeof options,
                                          .examples = SEQUENCES,
                                          .tokens = 60,
                                          .select = first_and_last,
                                          .select_user = &chosen,
                                          .gives_chunks = true};
  hark_predictor *predictor = NULL;
  call c;
  fill(AHCA_CLASSES, 0, SEQUENCES, &c);
  int64_t all[MOST + 1], first[SEQUENCES][CONTEXT + 1], chunks[SEQUENCES], count = 0;
  for (int64_t s = 0; s < SEQUENCES; s++) {
    chunks[s] = 0;
    for (int64_t t = 0; t < lengths[s]; t += sizes[chunks[s]++ % 4]) {
      first[s][chunks[s]] = t;
      all[count++] = c.offsets[s] + t;
    }
    first[s][chunks[s]] = lengths[s];
  }
  all[count] = c.offsets[SEQUENCES];
  hark_prediction_input input = input_of(AHCA_CLASSES, &c, SEQUENCES);
  assert_fine(context, hark_predictor_create(context, model, &options, &predictor));
  assert_fine(context, hark_predictor_run(predictor, &input, found, SEQUENCES * 5)); /* by the rule */
  input.chunks = all;
  input.chunk_count = count;
  const hark_memory_use before = hark_context_memory(context);
  assert_fine(context, hark_predictor_run(predictor, &input, found, SEQUENCES * 5));
  assert_int_equal(hark_context_memory(context).allocations, before.allocations);
  assert_int_equal(chosen.calls, 2);
  ahca_definition d = {.context = context, .network = model->network, .margin = INFINITY};
  for (int64_t s = 0; s < SEQUENCES; s++) {
    const ahca_sequence sequence = {.count = lengths[s],
                                    .tokens = c.tokens + c.offsets[s],
                                    .starts = first[s],
                                    .chunks = chunks[s],
                                    .chosen = chosen.chosen[s],
                                    .selected = chosen.count[s]};
    double logits[5];
    ahca_definition_logits(&d, &sequence, logits);
    for (int i = 0; i < 5; i++) expected[s * 5 + i] = (float)logits[i];
  }
  near("ahca", found, expected, SEQUENCES * 5);
  chosen.nothing = true;
  assert_failure(context, hark_predictor_run(predictor, &input, found, SEQUENCES * 5), HARK_INVALID_ARGUMENT,
                 "no global token of sequence 1 is selected, expected at least one");
  chosen.nothing = false;
  input.chunk_count = count - 1;
  assert_failure(context, hark_predictor_run(predictor, &input, found, SEQUENCES * 5), HARK_INVALID_ARGUMENT, "chunk");
  input.chunk_count = 0;
  assert_failure(context, hark_predictor_run(predictor, &input, found, SEQUENCES * 5), HARK_INVALID_ARGUMENT, "0 chunks, expected 1 to 54");
  hark_predictor_destroy(&predictor);
  assert_fine(context, hark_predictor_create(context, model, NULL, &predictor));
  fill(AHCA_CLASSES, 2, 1, &c);
  input = input_of(AHCA_CLASSES, &c, 1);
  input.chunks = all;
  input.chunk_count = 1;
  assert_failure(context, hark_predictor_run(predictor, &input, found, 5), HARK_INVALID_ARGUMENT, "without options.gives_chunks");
  hark_predictor_destroy(&predictor);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Making an ahca model and its predictor, and a call, with allocation number n failing for every n: a status, no leak. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long failures = 0;
  call c;
  fill(AHCA_CLASSES, 0, SEQUENCES, &c);
  const hark_prediction_input input = input_of(AHCA_CLASSES, &c, SEQUENCES);
  for (long fail_at = 1; status != HARK_OK; fail_at++) {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_model *model = make(context, AHCA_CLASSES);
    hark_predictor *predictor = NULL;
    selector chosen = {0};
    const hark_predictor_options options = {
        .struct_size = sizeof options, .examples = SEQUENCES, .select = first_and_last, .select_user = &chosen, .gives_chunks = true};
    memory.fail_at = memory.allocations + fail_at;
    status = hark_predictor_create(context, model, &options, &predictor);
    if (status == HARK_OK) status = hark_predictor_run(predictor, &input, found, SEQUENCES * 5);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    failures += status != HARK_OK;
    hark_predictor_destroy(&predictor);
    hark_model_destroy(context, &model);
    test_memory_context_end(context, &memory);
  }
  assert_true(failures > 10);
}

/* ---- what is refused ---- */

static void options_that_do_not_fit_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open(), *other = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  hark_model *model = make(context, PAIRS);
  static const struct {
    hark_predictor_options options;
    const char *words;
  } cases[] = {{{.examples = -1}, "-1 examples"},
               {{.examples = INT32_MAX}, "examples, expected 1 to"},
               {{.examples = 3, .tokens = 5}, "5 tokens for 6 sequences, expected 6 to"},
               {{.tokens = -4}, "-4 tokens"},
               {{.gives_chunks = true}, "can be given only for ahca models"},
               {{.select = first_and_last}, "has architecture encoder"}};
  hark_predictor *predictor = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_predictor_options options = cases[i].options;
    options.struct_size = sizeof options;
    assert_failure(context, hark_predictor_create(context, model, &options, &predictor), HARK_INVALID_ARGUMENT, cases[i].words);
    assert_null(predictor);
  }
  assert_failure(other, hark_predictor_create(other, model, NULL, &predictor), HARK_INVALID_ARGUMENT,
                 "backend is cpu, the model's reference");
  hark_predictor_destroy(NULL);
  hark_predictor_destroy(&predictor);
  hark_model_destroy(context, &model);
  model = make(context, ALONE);
  const hark_predictor_options selects = {.struct_size = sizeof selects, .select = first_and_last};
  assert_failure(context, hark_predictor_create(context, model, &selects, &predictor), HARK_INVALID_ARGUMENT,
                 "the model selects no global tokens");
  hark_model_destroy(context, &model);
  test_setup_close(other);
  test_setup_close(context);
}

static void inputs_that_do_not_fit_are_refused(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const int32_t fine[] = {5, 6, 7, 8, 9, 10}, outside[] = {5, VOCABULARY, 7, 8, 9, 10}, negative[] = {5, 6, -1, 8, 9, 10};
  const float numbers[] = {1, 2, 3, 4, 5, 6}, infinite[] = {1, 2, 3, 4, INFINITY, 6};
  const int64_t two[] = {0, 2, 6}, late[] = {1, 2, 6}, none[] = {0, 2, 2}, back[] = {0, 4, 2}, many[] = {0, 2, 7};
  static const int64_t far[] = {0, 2, 2 + CONTEXT};
  const struct {
    int model;
    hark_prediction_input input;
    size_t room;
    const char *words; /* NULL: fine */
  } cases[] = {
      {CLASS, {.examples = 2, .offsets = two, .tokens = fine}, 6, NULL},
      {CLASS, {.examples = 2, .offsets = two, .tokens = fine}, 5, "room for 5 numbers, expected 2 rows of 3"},
      {CLASS, {.examples = 3, .offsets = two, .tokens = fine}, 9, "3 examples, expected 1 to 2"},
      {CLASS, {.examples = 0, .offsets = two, .tokens = fine}, 9, "0 examples"},
      {CLASS, {.examples = 2, .tokens = fine}, 6, "no offsets"},
      {CLASS, {.examples = 2, .offsets = two}, 6, "no tokens"},
      {CLASS, {.examples = 2, .offsets = two, .vectors = numbers}, 6, "no tokens"},
      {CLASS, {.examples = 2, .offsets = two, .tokens = fine, .vectors = numbers}, 6, "reads tokens, and real vectors are given"},
      {CLASS, {.examples = 2, .offsets = late, .tokens = fine}, 6, "begins at 1, expected 0"},
      {CLASS, {.examples = 2, .offsets = none, .tokens = fine}, 6, "sequence 1 begins at 2 and ends at 2, expected 1 to 20 tokens"},
      {CLASS, {.examples = 2, .offsets = back, .tokens = fine}, 6, "sequence 1 begins at 4 and ends at 2"},
      {CLASS, {.examples = 2, .offsets = far, .tokens = fine}, 6, "sequence 1 begins at 2 and ends at 23, expected 1 to 20"},
      {CLASS, {.examples = 2, .offsets = many, .tokens = fine}, 6, "have 7 tokens, there is room for 6"},
      {CLASS, {.examples = 2, .offsets = two, .tokens = outside}, 6, "token 1 is 261, expected 0 to 260"},
      {CLASS, {.examples = 2, .offsets = two, .tokens = negative}, 6, "token 2 is -1"},
      {DECODER, {.examples = 2, .offsets = two, .tokens = fine}, 6 * VOCABULARY, NULL},
      {DECODER, {.examples = 2, .offsets = two, .tokens = fine}, 6 * VOCABULARY - 1, "expected 6 rows of 261"},
      {VECTORS, {.examples = 1, .offsets = two, .vectors = numbers}, 2, NULL},
      {VECTORS, {.examples = 1, .offsets = two, .tokens = fine}, 2, "no vectors"},
      {VECTORS, {.examples = 1, .offsets = two, .vectors = infinite}, 2, "number 1 of vector 1 is not finite"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    hark_model *model = make(context, cases[i].model);
    const hark_predictor_options options = {.struct_size = sizeof options, .examples = 2, .tokens = 6};
    hark_predictor *predictor = NULL;
    hark_prediction_input input = cases[i].input;
    input.struct_size = sizeof input;
    assert_fine(context, hark_predictor_create(context, model, &options, &predictor));
    const hark_status status = hark_predictor_run(predictor, &input, found, cases[i].room);
    if (cases[i].words == NULL) {
      assert_fine(context, status);
    } else {
      assert_failure(context, status, HARK_INVALID_ARGUMENT, cases[i].words);
    }
    hark_predictor_destroy(&predictor);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* Descriptions that no model can have, of few bytes. */
static void descriptions_that_do_not_fit_are_refused(void **state) {
  (void)state;
#define VECTORS_OF(rest) MODEL("\"vocabulary\": 6, " rest ", " ATTENTION("dense"))
  static const struct {
    const char *description, *words;
  } cases[] = {
      {VECTORS_OF("\"features\": 4, \"positions\": \"rotary\""), "4 features and 0 responses"},
      {VECTORS_OF("\"responses\": 4, \"positions\": \"rotary\""), "0 features and 4 responses"},
      {VECTORS_OF("\"features\": 4, \"responses\": 3, \"architecture\": \"encoder\", \"classes\": 3, \"positions\": \"none\""),
       "encoder reads tokens"},
      {"{\"model\": {\"type\": \"gpt\", \"vocabulary\": 6, \"architecture\": \"latent\", \"layers\": 10000, \"heads\": 65536, "
       "\"key_heads\": "
       "65536, \"width\": 65536, \"feed_forward_width\": 1, \"context\": 8, \"features\": 65536, \"responses\": 1, \"activation\": "
       "\"relu\", "
       "\"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"none\", \"tie_embeddings\": false, \"bias\": false, \"rotary\": "
       "{\"base\": 10000, \"pairs\": \"half\"}, " ATTENTION("dense") "}}",
       "10000 times model.heads 65536, expected at most"},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char numbers[] =
        "{\"format_version\": 1, \"format\": \"vectors\", \"classes\": [], \"size\": 6, \"symbols\": \"numbers\"}";
    const hark_model_options options = {.struct_size = sizeof options,
                                        .description = cases[i].description,
                                        .description_bytes = strlen(cases[i].description),
                                        .vocabulary = numbers,
                                        .vocabulary_bytes = sizeof numbers - 1};
    hark_model *model = NULL;
    assert_failure(context, hark_model_create(context, &options, 3, &model), HARK_BAD_CONFIGURATION, cases[i].words);
    assert_null(model);
  }
  test_setup_close(context);
}

static void only_decoders_decode(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int m = 0; m < MODELS; m++) {
    hark_model *model = make(context, m);
    hark_decoding *decoding = NULL;
    size_t bytes = 0;
    if (m == DECODER) {
      assert_fine(context, hark_decoding_create(context, model, NULL, &decoding));
      hark_decoding_destroy(&decoding);
    } else {
      assert_failure(context, hark_decoding_create(context, model, NULL, &decoding), HARK_UNSUPPORTED, "only a decoder continues texts");
      assert_failure(context, hark_decoding_size(context, model, NULL, &bytes), HARK_UNSUPPORTED, "only a decoder continues texts");
    }
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

/* ---- vocabularies of labelled examples ---- */

#define EXAMPLES(format, size, symbols)                                                                                                    \
  "{\"format_version\": 1, \"format\": \"" format "\", \"classes\": [\"bad\", \"good\", \"so so\"], \"size\": " size                       \
  ", \"symbols\": " symbols "}"

static hark_model *with_vocabulary(hark_context *context, const char *vocabulary) {
  static const char description[] = ENCODER("class", "dense");
  const hark_model_options options = {.struct_size = sizeof options,
                                      .description = description,
                                      .description_bytes = strlen(description),
                                      .vocabulary = vocabulary,
                                      .vocabulary_bytes = strlen(vocabulary)};
  hark_model *model = NULL;
  assert_fine(context, hark_model_create(context, &options, 3, &model));
  return model;
}

static void classes_have_names_and_words_tokens(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES + 32];
  test_folder_make(folder);
  (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
  hark_model *made = with_vocabulary(context, EXAMPLES("sequences", "9", "[\"b\", \"a\", \"ab\", \"_\"]")), *words = NULL;
  assert_fine(context, hark_model_save(context, made, path));
  assert_fine(context, hark_model_load(context, path, NULL, &words)); /* the vocabulary goes with the file */
  hark_model_destroy(context, &made);
  assert_string_equal(hark_model_class_name(words, 0), "bad");
  assert_string_equal(hark_model_class_name(words, 2), "so so");
  assert_null(hark_model_class_name(words, 3));
  assert_null(hark_model_class_name(words, -1));
  int32_t tokens[32];
  size_t count = 0, bytes = 0;
  char text[32];
  assert_fine(context, hark_model_encode(context, words, " ab a  _ b", 10, false, tokens, &count));
  static const int32_t predicted[] = {7, 6, 8, 5};
  assert_int_equal(count, 4);
  assert_memory_equal(tokens, predicted, sizeof predicted);
  assert_failure(context, hark_model_encode(context, words, "a abc", 5, false, tokens, &count), HARK_BAD_FILE, "byte 2: \"abc\" is none");
  assert_failure(context, hark_model_encode(context, words, "a\0b", 3, false, tokens, &count), HARK_BAD_FILE, "byte 0: \"a\" is none");
  assert_fine(context, hark_model_encode(context, words, "a abc", 5, true, tokens, &count));
  assert_int_equal(tokens[1], HARK_TOKEN_UNKNOWN);
  assert_string_equal(hark_model_token_text(words, 7, &bytes), "ab");
  assert_int_equal(bytes, 2);
  (void)hark_model_token_text(words, 9, &bytes);
  assert_int_equal(bytes, 0);
  hark_model_destroy(context, &words);
  hark_model *lists = with_vocabulary(context, EXAMPLES("listops", "9", "[\"1\", \"[MAX\", \"2\", \"]\"]"));
  assert_fine(context, hark_model_encode(context, lists, "( ( ( [MAX 1 ) 2 ) ] )", 22, false, tokens, &count));
  static const int32_t listed[] = {6, 5, 7, 8};
  assert_int_equal(count, 4);
  assert_memory_equal(tokens, listed, sizeof listed);
  hark_model_destroy(context, &lists);
  hark_model *of_bytes = with_vocabulary(context, EXAMPLES("text", "261", "\"bytes\""));
  assert_fine(context, hark_model_encode(context, of_bytes, "\xff\0 a", 4, false, tokens, &count));
  assert_int_equal(count, 4);
  assert_int_equal(tokens[0], 260);
  assert_int_equal(tokens[1], 5);
  hark_model_decode(of_bytes, tokens, count, text, sizeof text, &bytes);
  assert_int_equal(bytes, 4);
  assert_memory_equal(text, "\xff\0 a", 4);
  hark_model_destroy(context, &of_bytes);
  hark_model *grey = with_vocabulary(context, EXAMPLES("image", "261", "\"grey values\""));
  assert_failure(context, hark_model_encode(context, grey, "a", 1, false, tokens, &count), HARK_UNSUPPORTED, "symbols are not text");
  hark_model_destroy(context, &grey);
  test_folder_remove(folder);
  test_setup_close(context);
}

static void damaged_vocabularies_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *vocabulary, *words;
  } cases[] = {{"{\"format\": \"text\", \"format_version\": 1, \"classes\": [\"a\", \"b\"], \"size\": 261, \"symbols\": \"bytes\"}",
                "predicts 3 classes, its vocabulary names 2"},
               {EXAMPLES("sequences", "8", "[\"b\", \"a\", \"ab\", \"_\"]"), "\"size\" is not"},
               {EXAMPLES("sequences", "7", "[\"b\", \"b\"]"), "\"symbols\" is not"},
               {EXAMPLES("sequences", "7", "[\"b\", 3]"), "\"symbols\" is not"},
               {EXAMPLES("sequences", "7", "4"), "\"symbols\" is not"},
               {EXAMPLES("text", "260", "\"bytes\""), "\"size\" is not"},
               {EXAMPLES("text", "5", "\"bytes\""), "\"size\" is not"},
               {"{\"format\": \"text\"}", "\"format_version\" is not"},
               {"{\"format\": \"text\", \"format_version\": 1, \"size\": 9, \"classes\": 1}", "\"classes\" is not"},
               {"{\"format\": \"text\", \"format_version\": 1, \"size\": 9, \"classes\": []", "line 1, column"}};
  static const char description[] = ENCODER("class", "dense");
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const hark_model_options options = {.struct_size = sizeof options,
                                        .description = description,
                                        .description_bytes = strlen(description),
                                        .vocabulary = cases[i].vocabulary,
                                        .vocabulary_bytes = strlen(cases[i].vocabulary)};
    hark_model *model = NULL;
    assert_failure(context, hark_model_create(context, &options, 3, &model), HARK_BAD_FILE, cases[i].words);
    assert_null(model);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_are_reported),
      cmocka_unit_test(it_tells_what_the_network_does),
      cmocka_unit_test(calls_of_any_lengths_allocate_nothing),
      cmocka_unit_test(examples_do_not_see_each_other),
      cmocka_unit_test(chunks_and_selection_are_the_callers),
      cmocka_unit_test(memory_may_run_out),
      cmocka_unit_test(options_that_do_not_fit_are_refused),
      cmocka_unit_test(inputs_that_do_not_fit_are_refused),
      cmocka_unit_test(descriptions_that_do_not_fit_are_refused),
      cmocka_unit_test(only_decoders_decode),
      cmocka_unit_test(classes_have_names_and_words_tokens),
      cmocka_unit_test(damaged_vocabularies_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

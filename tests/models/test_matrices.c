/* test_matrices.c - models whose matrices are held in bf16, f16 or int8: what a type changes and what it leaves, the same numbers from load
 * and from a file, what is refused, memory.
 */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compact.h"
#include "io/safetensors.h"
#include "models/matrices.h"
#include "models/model.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

static const hark_type types[] = {HARK_BF16, HARK_F16, HARK_I8};
enum { TYPES = sizeof types / sizeof *types };

#define FEW                                                                                                                                \
  "\"type\": \"gpt\", \"layers\": 2, \"heads\": 2, \"key_heads\": 2, \"width\": 8, \"feed_forward_width\": 12, \"context\": 21, "          \
  "\"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"tie_embeddings\": false, \"bias\": true, "                \
  "\"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, "
#define ENCODER                                                                                                                            \
  "{\"model\": {" FEW                                                                                                                      \
  "\"architecture\": \"encoder\", \"classes\": 3, \"pooling\": \"mean\", \"positions\": \"learned\", \"attention\": {" ATTENTION(          \
      "dense", "false") "}}}"
#define AHCA                                                                                                                               \
  "{\"model\": {" FEW                                                                                                                      \
  "\"architecture\": \"ahca\", \"classes\": 5, \"positions\": \"learned\", \"ahca\": {\"chunk\": \"learned\", \"chunk_size\": 4, "         \
  "\"chunk_minimum\": 2, \"chunk_maximum\": 6, \"window\": 2, \"primary_slots\": 2, \"secondary_slots\": 5, \"selected\": 2, "             \
  "\"capacity\": 1, \"local_layers\": 1, \"local_window\": 2}, \"attention\": {" ATTENTION("dense", "false") "}}}"
#define LATENT                                                                                                                             \
  "{\"model\": {\"type\": \"gpt\", \"vocabulary\": 6, \"architecture\": \"latent\", \"layers\": 1, \"heads\": 2, \"key_heads\": 2, "       \
  "\"width\": 8, \"feed_forward_width\": 12, \"context\": 21, \"features\": 8, \"responses\": 3, \"activation\": \"relu\", "               \
  "\"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"none\", \"tie_embeddings\": false, \"bias\": false, \"rotary\": "    \
  "{\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {" ATTENTION("dense", "false") "}}}"

static hark_model *load(hark_context *context, const char *name, hark_type matrices) {
  const hark_model_options options = {.struct_size = sizeof options, .matrices = matrices};
  hark_model *model = NULL;
  assert_fine(context, hark_model_load(context, test_path(folder, name), &options, &model));
  return model;
}

static void save(hark_context *context, const hark_model *model, const char *name, hark_type matrices) {
  const hark_model_save_options options = {.struct_size = sizeof options, .matrices = matrices};
  assert_fine(context, hark_model_save_with(context, model, test_path(folder, name), &options));
}

static hark_model_info info_of(const hark_model *model) {
  hark_model_info info = {.struct_size = sizeof info};
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  return info;
}

static void same_files(const char *one, const char *other) {
  size_t first, second;
  unsigned char *const a = test_file_read(test_path(folder, one), &first), *const b = test_file_read(test_path(folder, other), &second);
  if (first != second || memcmp(a, b, first) != 0) fail_msg("%s and %s differ", one, other);
  free(a);
  free(b);
}

/* Chosen at load and written to a file it is the same model, which is saved as it is held. */
static void a_type_is_the_same_from_load_and_from_a_file(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (int d = 0; d < DESCRIPTIONS + 2; d++) {
    const char *const description = d < DESCRIPTIONS ? small_model_descriptions[d] : d == DESCRIPTIONS ? ENCODER : AHCA;
    hark_model *whole = small_model_make(context, description, 3);
    save(context, whole, "whole", HARK_NONE);
    for (int t = 0; t < TYPES; t++) {
      save(context, whole, "small", types[t]);
      hark_model *chosen = load(context, "whole", types[t]), *stored = load(context, "small", HARK_NONE);
      assert_int_equal(info_of(whole).matrices, HARK_F32);
      assert_int_equal(info_of(chosen).matrices, types[t]);
      assert_int_equal(info_of(stored).matrices, types[t]);
      assert_true(info_of(chosen).fingerprint == info_of(stored).fingerprint);
      assert_true(info_of(chosen).fingerprint != info_of(whole).fingerprint);
      assert_int_equal(info_of(chosen).parameters, info_of(whole).parameters);
      save(context, chosen, "again", HARK_NONE);
      same_files("small", "again");
      save(context, stored, "again", types[t]);
      same_files("small", "again");
      save(context, stored, "wide", HARK_F32); /* and back: the same integers and scales, up to a rounding of the scales */
      hark_model *wide = load(context, "wide", HARK_NONE), *back = load(context, "wide", types[t]);
      assert_int_equal(info_of(wide).matrices, HARK_F32);
      if (types[t] != HARK_I8) assert_true(info_of(back).fingerprint == info_of(stored).fingerprint);
      hark_model *narrowed = load(context, "small", HARK_F32); /* a file of any type is held in any type */
      save(context, narrowed, "again", HARK_NONE);
      same_files("wide", "again");
      hark_model_destroy(context, &narrowed);
      hark_model_destroy(context, &back);
      hark_model_destroy(context, &wide);
      hark_model_destroy(context, &stored);
      hark_model_destroy(context, &chosen);
    }
    hark_model_destroy(context, &whole);
  }
  test_setup_close(context);
}

/* Initial weights are the same numbers, rounded. */
static void new_models_are_rounded_too(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *whole = small_model_make(context, small_model_descriptions[1], 5);
  save(context, whole, "whole", HARK_NONE);
  for (int t = 0; t < TYPES; t++) {
    hark_model_options options = small_model_options(small_model_descriptions[1]);
    hark_model *model = NULL, *loaded = load(context, "whole", types[t]);
    options.matrices = types[t];
    assert_fine(context, hark_model_create(context, &options, 5, &model));
    assert_true(info_of(model).fingerprint == info_of(loaded).fingerprint);
    hark_model_destroy(context, &loaded);
    hark_model_destroy(context, &model);
  }
  hark_model_destroy(context, &whole);
  test_setup_close(context);
}

static void read_text(hark_context *context, const hark_model *model, float *logits) {
  int32_t tokens[CONTEXT];
  hark_decoding *decoding = small_model_decoding(context, model);
  small_model_fill(tokens, CONTEXT);
  assert_fine(context, hark_decoding_prefill(decoding, tokens, CONTEXT - 3)); /* more rows than the kernels of few rows take */
  for (int i = CONTEXT - 3; i < CONTEXT; i++) assert_fine(context, hark_decoding_step(decoding, tokens[i]));
  memcpy(logits, hark_decoding_logits(decoding), VOCABULARY * sizeof *logits);
  hark_decoding_destroy(&decoding);
}

static double distance(const float *a, const float *b) {
  double largest = 0;
  for (int i = 0; i < VOCABULARY; i++) largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
  return largest;
}

/* Halves: the logits of a model of f32 that has these numbers, up to rounding. Integers: the activations are rounded too, to about a part
 * in 250 of the largest of a row, which logits of 1/4 show in the third decimal. */
static void logits_are_those_of_the_rounded_weights(void **state) {
  (void)state;
  test_setup setups[TEST_MAX_SETUPS];
  const int count = test_setups_guard_once(setups);
  for (int s = 0; s < count; s++) {
    hark_context *context = test_setup_open(&setups[s], 2);
    for (int d = 0; d < DESCRIPTIONS; d++) {
      hark_model *whole = small_model_make(context, small_model_descriptions[d], 3);
      save(context, whole, "whole", HARK_NONE);
      hark_model_destroy(context, &whole);
      for (int t = 0; t < TYPES; t++) {
        float held[VOCABULARY], wide[VOCABULARY];
        hark_model *model = load(context, "whole", types[t]);
        save(context, model, "wide", HARK_F32);
        hark_model *same = load(context, "wide", HARK_NONE);
        read_text(context, model, held);
        read_text(context, same, wide);
        const double apart = distance(held, wide), most = types[t] == HARK_I8 ? .02 : (double)SMALL_MODEL_WITHIN;
        if (!(apart <= most) || (types[t] == HARK_I8 && apart == 0))
          fail_msg("%s:%s, description %d, %s: logits differ by %g", setups[s].backend, setups[s].instruction_set, d,
                   hark_type_name(types[t]), apart);
        hark_model_destroy(context, &same);
        hark_model_destroy(context, &model);
      }
    }
    test_setup_close(context);
  }
}

/* Predictors take the same models: an encoder's and an ahca model's numbers next to those of the widened weights. */
static void predictors_take_them(void **state) {
  (void)state;
  static const char *const descriptions[] = {ENCODER, AHCA};
  static const int64_t offsets[] = {0, 20, 27};
  int32_t tokens[27];
  hark_context *context = test_reference_open();
  small_model_fill(tokens, 27);
  const hark_prediction_input input = {.struct_size = sizeof input, .examples = 2, .offsets = offsets, .tokens = tokens};
  const hark_predictor_options room = {.struct_size = sizeof room, .examples = 2, .tokens = 27};
  for (size_t d = 0; d < 2; d++) {
    hark_model *whole = small_model_make(context, descriptions[d], 3);
    save(context, whole, "whole", HARK_NONE);
    hark_model_destroy(context, &whole);
    for (int t = 0; t < TYPES; t++) {
      float numbers[2][10] = {{0}};
      hark_model *models[2] = {load(context, "whole", types[t]), NULL};
      save(context, models[0], "wide", HARK_F32);
      models[1] = load(context, "wide", HARK_NONE);
      for (int i = 0; i < 2; i++) {
        hark_predictor *predictor = NULL;
        assert_fine(context, hark_predictor_create(context, models[i], &room, &predictor));
        assert_fine(context, hark_predictor_run(predictor, &input, numbers[i], 10));
        hark_predictor_destroy(&predictor);
        hark_model_destroy(context, &models[i]);
      }
      /* integers may move the boundary of a chunk of an ahca model, which changes everything after it */
      for (int i = 0; i < 10 && (types[t] != HARK_I8 || d == 0); i++)
        assert_true(fabsf(numbers[0][i] - numbers[1][i]) <= (types[t] == HARK_I8 ? .05f : 1e-5f) && isfinite(numbers[0][i]));
    }
  }
  test_setup_close(context);
}

/* A quarter and a half of the bytes of the matrices. */
static void they_take_fewer_bytes(void **state) {
  (void)state;
  static const char description[] =
      "{\"model\": {\"type\": \"gpt\", \"layers\": 2, \"heads\": 4, \"key_heads\": 4, \"width\": 256, \"feed_forward_width\": 1024, "
      "\"context\": 64, \"activation\": \"gelu\", \"norm\": \"rms_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\", "
      "\"tie_embeddings\": true, \"bias\": false, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {" ATTENTION(
          "dense", "false") "}}}";
  hark_context *context = test_reference_open();
  hark_model *whole = small_model_make(context, description, 1);
  save(context, whole, "whole", HARK_NONE);
  const double f32 = (double)info_of(whole).bytes;
  for (int t = 0; t < TYPES; t++) {
    hark_model *model = load(context, "whole", types[t]);
    const double fraction = (double)info_of(model).bytes / f32, expected = types[t] == HARK_I8 ? .25 : .5;
    assert_true(fraction > expected && fraction < expected + .03);
    hark_model_destroy(context, &model);
  }
  hark_model_destroy(context, &whole);
  test_setup_close(context);
}

/* ---- what is refused ---- */

/* Sets number `at` of the first matrix of a saved model. */
static void spoil(hark_context *context, hark_model *model, const char *name, int64_t at, float value) {
  hark_parameter *const parameter = hark_parameters_find(&model->network->parameters, "blocks.0.attention.query.weight");
  assert_non_null(parameter);
  float *const numbers = malloc((size_t)parameter->count * sizeof *numbers);
  assert_non_null(numbers);
  assert_fine(context, hark_tensor_read(context, &parameter->weight, numbers));
  numbers[at] = value;
  assert_fine(context, hark_tensor_write(context, &parameter->weight, numbers));
  free(numbers);
  save(context, model, name, HARK_NONE);
}

static void expect_refusal(hark_context *context, const char *name, hark_type type, hark_status status, const char *message) {
  const hark_model_options options = {.struct_size = sizeof options, .matrices = type};
  const hark_model_save_options as = {.struct_size = sizeof as, .matrices = type};
  hark_model *model = NULL;
  assert_failure(context, hark_model_load(context, test_path(folder, name), &options, &model), status, message);
  assert_null(model);
  assert_fine(context, hark_model_load(context, test_path(folder, name), NULL, &model));
  assert_failure(context, hark_model_save_with(context, model, test_path(folder, "refused"), &as), status, message);
  hark_model_destroy(context, &model);
}

static void numbers_that_a_type_lacks_are_named(void **state) {
  (void)state;
#define QUERY "tensor \"blocks.0.attention.query.weight\": element "
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3);
  spoil(context, model, "large", 37, 1e5f);
  expect_refusal(context, "large", HARK_F16, HARK_NOT_FINITE, QUERY "37 is 100000, and the largest number of f16 is 65504");
  hark_model *held = load(context, "large", HARK_BF16);
  hark_model_destroy(context, &held);
  held = load(context, "large", HARK_I8);
  hark_model_destroy(context, &held);
  spoil(context, model, "largest", 37, 3.4e38f);
  expect_refusal(context, "largest", HARK_BF16, HARK_NOT_FINITE,
                 QUERY "37 is 3.3999999521443642e38, and the largest number of bf16 is 3.39e38");
  spoil(context, model, "endless", 37, INFINITY);
  expect_refusal(context, "endless", HARK_I8, HARK_NOT_FINITE, QUERY "37 is inf, and int8 has only finite numbers");
  spoil(context, model, "nan", 1, NAN);
  expect_refusal(context, "nan", HARK_I8, HARK_NOT_FINITE, QUERY "1 is nan, and int8 has only finite numbers");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void types_that_a_model_cannot_have_are_refused(void **state) {
  (void)state;
  static const char numbers[] = "{\"format_version\": 1, \"format\": \"vectors\", \"classes\": [], \"size\": 6, \"symbols\": \"numbers\"}";
  hark_context *context = test_reference_open();
  hark_model_options options = small_model_options(LATENT);
  hark_model *model = NULL;
  options.vocabulary = numbers;
  options.vocabulary_bytes = strlen(numbers);
  options.matrices = HARK_I8;
  assert_failure(context, hark_model_create(context, &options, 1, &model), HARK_UNSUPPORTED, "no matrix of this model can be int8");
  options.matrices = HARK_BF16; /* held in f32, with the numbers of bf16 */
  assert_fine(context, hark_model_create(context, &options, 1, &model));
  hark_model_destroy(context, &model);
  options.matrices = HARK_I32;
  assert_failure(context, hark_model_create(context, &options, 1, &model), HARK_INVALID_ARGUMENT,
                 "hark_model_options.matrices is i32, expected f32, bf16, f16 or i8");
  options.matrices = HARK_NONE;
  assert_fine(context, hark_model_create(context, &options, 1, &model));
  save(context, model, "latent", HARK_NONE);
  hark_model_destroy(context, &model);
  expect_refusal(context, "latent", HARK_I8, HARK_UNSUPPORTED, ": no matrix of this model can be int8: expected f32, bf16 or f16");
  test_setup_close(context);
}

/* Weights with gradients are trained, in f32. */
static void int8_is_not_trained(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3);
  save(context, model, "small", HARK_I8);
  save(context, model, "half", HARK_BF16);
  hark_network *network = NULL;
  hark_safetensors *file = NULL;
  assert_fine(context, hark_network_create(context, &model->network->config, HARK_F32, true, &network));
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "small"), &file));
  assert_failure(context, hark_model_check_weights(context, "small", file, &network->parameters), HARK_BAD_FILE,
                 "small: tensor \"embedding.token.weight\" is I8, a file of hark export --type int8: training needs F32, BF16 or F16");
  hark_safetensors_close(context, &file);
  assert_fine(context, hark_safetensors_open(context, test_path(folder, "half"), &file));
  assert_fine(context, hark_model_check_weights(context, "half", file, &network->parameters));
  assert_fine(context, hark_model_read_weights(context, "half", file, &network->parameters));
  hark_safetensors_close(context, &file);
  hark_network_destroy(context, &network);
  assert_fine(context, hark_network_declare(context, &model->network->config, HARK_F32, &network));
  assert_fine(context, hark_parameters_hold(context, &network->parameters, HARK_I8));
  assert_failure(context, hark_parameters_finish(context, &network->parameters, true), HARK_INVALID_ARGUMENT, "cannot be trained");
  hark_network_destroy(context, &network);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* Writes the tensors of a file again, without one of them or with another shape of it. */
static void rewrite(hark_context *context, const char *from, const char *to, const char *changed, bool leave_out) {
  hark_safetensors *file = NULL;
  hark_named_tensor named[256] = {{0}};
  hark_tensor tensors[256] = {{0}};
  hark_metadata_entry metadata[8];
  int64_t count = 0;
  assert_fine(context, hark_safetensors_open(context, test_path(folder, from), &file));
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    if (strcmp(t->name, changed) == 0 && leave_out) continue;
    assert_fine(context, hark_safetensors_load(context, file, t->name, &tensors[count]));
    if (strcmp(t->name, changed) == 0) tensors[count].shape[0]--;
    named[count] = (hark_named_tensor){.name = t->name, .tensor = &tensors[count], .stored = HARK_NONE};
    count++;
  }
  const int64_t entries = hark_safetensors_metadata_count(file);
  for (int64_t i = 0; i < entries; i++) hark_safetensors_metadata_entry(file, i, &metadata[i].key, &metadata[i].value);
  assert_fine(context, hark_safetensors_write(context, test_path(folder, to), named, count, metadata, entries, NULL));
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  hark_safetensors_close(context, &file);
}

static void incomplete_files_are_refused(void **state) {
  (void)state;
#define SCALE "blocks.1.attention.key.weight.scale"
  hark_context *context = test_reference_open();
  hark_model *model = small_model_make(context, PLAIN, 3), *loaded = NULL;
  save(context, model, "small", HARK_I8);
  rewrite(context, "small", "without", SCALE, true);
  assert_failure(context, hark_model_load(context, test_path(folder, "without"), NULL, &loaded), HARK_BAD_FILE, SCALE);
  rewrite(context, "small", "short", SCALE, false);
  assert_failure(context, hark_model_load(context, test_path(folder, "short"), NULL, &loaded), HARK_BAD_FILE,
                 "is F32 [15], expected F32 [16]");
  rewrite(context, "small", "narrow", "blocks.1.attention.key.weight", false);
  assert_failure(context, hark_model_load(context, test_path(folder, "narrow"), NULL, &loaded), HARK_BAD_FILE,
                 "is I8 [15, 32], expected I8 [16, 32]");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* The n-th allocation fails, for every n. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_context *plain = test_reference_open();
  hark_model *model = small_model_make(plain, small_model_descriptions[2], 3);
  save(plain, model, "whole", HARK_NONE);
  hark_model_destroy(plain, &model);
  test_setup_close(plain);
  for (int t = 0; t < TYPES; t++) {
    hark_status status = HARK_OUT_OF_MEMORY;
    long failures = 0;
    for (long fail_at = 1; status != HARK_OK; fail_at++) {
      test_memory memory;
      hark_context *context = test_memory_context(&memory);
      const hark_model_options options = {.struct_size = sizeof options, .matrices = types[t]};
      const hark_model_save_options as = {.struct_size = sizeof as, .matrices = types[(t + 1) % TYPES]};
      hark_model *loaded = NULL;
      hark_decoding *decoding = NULL;
      memory.fail_at = memory.allocations + fail_at;
      status = hark_model_load(context, test_path(folder, "whole"), &options, &loaded);
      if (status == HARK_OK) status = hark_decoding_create(context, loaded, NULL, &decoding);
      if (status == HARK_OK) status = hark_decoding_step(decoding, 70);
      if (status == HARK_OK) status = hark_model_save_with(context, loaded, test_path(folder, "saved"), &as);
      if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
      failures += status != HARK_OK;
      hark_decoding_destroy(&decoding);
      hark_model_destroy(context, &loaded);
      test_memory_context_end(context, &memory);
    }
    assert_true(failures > 30);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_type_is_the_same_from_load_and_from_a_file),
      TEST(new_models_are_rounded_too),
      TEST(logits_are_those_of_the_rounded_weights),
      TEST(predictors_take_them),
      TEST(they_take_fewer_bytes),
      TEST(numbers_that_a_type_lacks_are_named),
      TEST(types_that_a_model_cannot_have_are_refused),
      TEST(int8_is_not_trained),
      TEST(incomplete_files_are_refused),
      TEST(memory_may_run_out),
  };
  return cmocka_run_group_tests_name("matrices", tests, NULL, NULL);
}

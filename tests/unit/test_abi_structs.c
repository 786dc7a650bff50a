/* test_abi_structs.c - structs of other versions of hark (docs/abi.md): every size, with every function that takes one. */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/structs.h"
#include "support/cmocka_all.h"
#include "support/page_end.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

#define SPARE 64 /* bytes of a struct of the future */

static hark_context *context;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  return 0;
}

static hark_attention_desc small_desc(void) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = 2;
  desc.head_dim = 4;
  return desc;
}

static hark_status make_context(const void *given) {
  hark_context *made;
  const hark_status status = hark_context_create(given, &made);
  hark_context_destroy(&made);
  return status;
}

static hark_status make_plan(const void *given) {
  hark_attention_plan *plan = NULL;
  const hark_status status = hark_attention_plan_create(context, given, &plan);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

static hark_status place_plan(const void *given) {
  _Alignas(16) unsigned char memory[HARK_ATTENTION_PLAN_BYTES];
  hark_attention_plan *plan;
  return hark_attention_plan_place(context, given, memory, sizeof memory, &plan);
}

static hark_status ask_support(const void *given) { return hark_attention_supports(context, given); }

/* 0 operations is how this one refuses, whatever the reason. */
static hark_status count_operations(const void *given) {
  return hark_attention_desc_operations(given, false) > 0 ? HARK_OK : HARK_INVALID_ARGUMENT;
}

typedef hark_status executed(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args);

static hark_status execute(executed *function, const void *given) {
  const hark_attention_desc desc = small_desc();
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_status status = function(context, plan, given);
  hark_attention_plan_destroy(context, &plan);
  return status;
}

static hark_status run_forward(const void *given) { return execute(hark_attention_forward, given); }
static hark_status run_backward(const void *given) { return execute(hark_attention_backward, given); }

static hark_status ask_initial(const void *given) {
  hark_positional *kernel = NULL;
  double parameters[2];
  assert_int_equal(hark_positional_create(context, "decay", &kernel), HARK_OK);
  const hark_status status = hark_positional_initial(context, kernel, given, parameters);
  hark_positional_destroy(context, &kernel);
  return status;
}

/* ---- models: what they are made from lies in these between setup and the last case ---- */

static struct {
  char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
  unsigned char *file;
  size_t bytes;
  hark_model *model;
  hark_decoding *decoding;
} of_model;

static void models_open(void) {
  test_folder_make(of_model.folder);
  (void)snprintf(of_model.path, sizeof of_model.path, "%s", test_path(of_model.folder, "m.safetensors"));
  of_model.model = small_model_make(context, PLAIN, 1);
  assert_fine(context, hark_model_save(context, of_model.model, of_model.path));
  of_model.file = test_file_read(of_model.path, &of_model.bytes);
  of_model.decoding = small_model_decoding(context, of_model.model);
  assert_fine(context, hark_decoding_step(of_model.decoding, small_model_token(0)));
}

static void models_close(void) {
  hark_decoding_destroy(&of_model.decoding);
  hark_model_destroy(context, &of_model.model);
  free(of_model.file);
  test_folder_remove(of_model.folder);
}

static hark_status load_model(const void *given) {
  hark_model *model = NULL;
  const hark_status status = hark_model_load(context, of_model.path, given, &model);
  hark_model_destroy(context, &model);
  return status;
}

static hark_status load_model_in_memory(const void *given) {
  hark_model *model = NULL;
  const hark_status status = hark_model_load_memory(context, of_model.file, of_model.bytes, given, &model);
  hark_model_destroy(context, &model);
  return status;
}

static hark_status save_model(const void *given) {
  return hark_model_save_with(context, of_model.model, test_path(of_model.folder, "saved.safetensors"), given);
}

/* The description has no default here: a struct without it, or without its length, was served as far as it goes. */
static hark_status make_model(const void *given) {
  hark_model *model = NULL;
  const hark_status status = hark_model_create(context, given, 1, &model);
  hark_model_destroy(context, &model);
  const char *const message = hark_context_message(context);
  return strstr(message, "there is no description") != NULL || strstr(message, "the text ends too early") != NULL ? HARK_OK : status;
}

static hark_status describe_model(const void *given) { return hark_model_describe(of_model.model, (hark_model_info *)given); }

static hark_status size_decoding(const void *given) {
  size_t bytes = 0;
  return hark_decoding_size(context, of_model.model, given, &bytes);
}

static hark_status make_decoding(const void *given) {
  hark_decoding *decoding = NULL;
  const hark_status status = hark_decoding_create(context, of_model.model, given, &decoding);
  hark_decoding_destroy(&decoding);
  return status;
}

static hark_status make_batch(const void *given) {
  hark_decoding_batch *batch = NULL;
  const hark_status status = hark_decoding_batch_create(context, of_model.model, given, &batch);
  hark_decoding_batch_destroy(&batch);
  return status;
}

static hark_status tell_shape(const void *given) { return hark_predictor_shape(of_model.model, (hark_prediction_shape *)given); }

static hark_status make_predictor(const void *given) {
  hark_predictor *predictor = NULL;
  const hark_status status = hark_predictor_create(context, of_model.model, given, &predictor);
  hark_predictor_destroy(&predictor);
  return status;
}

static hark_status predict(const void *given) {
  static float numbers[2 * 261];
  hark_predictor *predictor = NULL;
  hark_status status = hark_predictor_create(context, of_model.model, NULL, &predictor);
  if (status == HARK_OK) status = hark_predictor_run(predictor, given, numbers, sizeof numbers / sizeof *numbers);
  hark_predictor_destroy(&predictor);
  return status;
}

static hark_status choose_token(const void *given) {
  int32_t token = 0;
  return hark_decoding_choose(of_model.decoding, given, 0, &token);
}

/* ---- every size with every function ---- */

typedef struct taker {
  const char *name; /* of the function */
  hark_status (*take)(const void *given);
  size_t least, known;
  const void *good;
  hark_status unknown; /* its answer where something is set that it does not know */
} taker;

/* A struct of `size` bytes at the end of a page, of which `set` (0: none) is one of a later version; after it nothing can be read. */
static void one_size_of_a_struct(page_end *place, const taker *t, size_t size, size_t set, hark_status expected) {
  unsigned char given[2 * HARK_STRUCT_GROWTH] = {0};
  const size_t there = size < sizeof(size_t) ? sizeof(size_t) : size > t->known + SPARE ? t->known : size;
  memcpy(given, t->good, t->known);
  memcpy(given, &size, sizeof size);
  if (set != 0) given[set] = 1;
  const hark_status got = t->take(page_end_copy(place, given, there));
  if (got == expected) return;
  fail_msg("%s: struct_size %zu of %zu (least %zu), byte %zu set: %s, expected %s (\"%s\")", t->name, size, t->known, t->least, set,
           hark_status_name(got), hark_status_name(expected), hark_context_message(context));
}

static void each_size_of_a_struct(const taker *t) {
  const size_t least = t->least, known = t->known;
  const struct {
    size_t size, set;
    hark_status expected;
  } cases[] = {
      {0, 0, HARK_INVALID_ARGUMENT},
      {least - 1, 0, HARK_INVALID_ARGUMENT},
      {least + 1, 0, HARK_INVALID_ARGUMENT}, /* no size of a struct that begins with a size_t */
      {known + 8, 0, HARK_OK},
      {known + SPARE, 0, HARK_OK},
      {known + 8, known, t->unknown},
      {known + SPARE, known + SPARE - 1, t->unknown},
      {known + HARK_STRUCT_GROWTH + 8, 0, HARK_INVALID_ARGUMENT},
      {SIZE_MAX - 7, 0, HARK_INVALID_ARGUMENT},
  };
  page_end place = page_end_open(known + SPARE);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    one_size_of_a_struct(&place, t, cases[i].size, cases[i].set, cases[i].expected);
  for (size_t size = least; size <= known; size += sizeof(size_t)) one_size_of_a_struct(&place, t, size, 0, HARK_OK);
  page_end_close(&place);
}

static void structs_of_other_versions_are_served_or_refused(void **state) {
  (void)state;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference"};
  const hark_attention_desc desc = small_desc();
  const hark_positional_start start = {.struct_size = sizeof start, .length = 100, .heads = 2};
  const hark_model_options from_file = {.struct_size = sizeof from_file}, described = small_model_options(PLAIN);
  const hark_model_save_options halves = {.struct_size = sizeof halves, .matrices = HARK_BF16};
  const hark_model_info info = {.struct_size = sizeof info};
  const hark_decoding_options room = {.struct_size = sizeof room, .capacity = 4};
  const hark_decoding_batch_options together = {.struct_size = sizeof together, .decodings = 2, .capacity = 4};
  const hark_sampling sampling = hark_sampling_default();
  const hark_prediction_shape shape = {.struct_size = sizeof shape};
  const hark_predictor_options at_once = {.struct_size = sizeof at_once, .examples = 2, .tokens = 9};
  static const int64_t offsets[] = {0, 2};
  static const int32_t tokens[] = {7, 8};
  const hark_prediction_input input = {.struct_size = sizeof input, .examples = 1, .offsets = offsets, .tokens = tokens};

  /* Extents of 0 are allowed: nothing to compute, every check is made. */
  hark_attention_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  const int64_t extents[] = {0, 1, 2, 4};
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const size_t scratch = sizes.forward_workspace + sizes.backward_workspace + sizes.saved;
  hark_attention_plan_destroy(context, &plan);
  hark_tensor *const tensors[] = {&args.query, &args.key, &args.value, &args.out};
  for (size_t i = 0; i < 4; i++) assert_int_equal(hark_tensor_create(context, HARK_F32, 4, extents, tensors[i]), HARK_OK);
  assert_int_equal(hark_allocate(context, scratch, &args.workspace), HARK_OK);
  args.saved = (char *)args.workspace + sizes.forward_workspace + sizes.backward_workspace;
  hark_attention_args gradients = args;
  gradients.dout = gradients.out;
  gradients.dquery = gradients.query;
  assert_int_equal(hark_tensor_describe(context, HARK_F32, 3, extents, &gradients.log_sum_exp), HARK_OK);

#define TAKER(name, take, least, good, unknown)                                                                                            \
  { name, take, least, sizeof(good), &(good), unknown }
  const taker takers[] = {
      TAKER("hark_context_create", make_context, HARK_LEAST_CONTEXT_OPTIONS, options, HARK_UNSUPPORTED),
      TAKER("hark_attention_plan_create", make_plan, HARK_LEAST_ATTENTION_DESC, desc, HARK_UNSUPPORTED),
      TAKER("hark_attention_supports", ask_support, HARK_LEAST_ATTENTION_DESC, desc, HARK_UNSUPPORTED),
      TAKER("hark_attention_desc_operations", count_operations, HARK_LEAST_ATTENTION_DESC, desc, HARK_INVALID_ARGUMENT),
      TAKER("hark_attention_plan_place", place_plan, HARK_LEAST_ATTENTION_DESC, desc, HARK_UNSUPPORTED),
      TAKER("hark_attention_forward", run_forward, HARK_LEAST_ATTENTION_ARGS, args, HARK_UNSUPPORTED),
      TAKER("hark_attention_backward", run_backward, HARK_LEAST_ATTENTION_ARGS, gradients, HARK_UNSUPPORTED),
      TAKER("hark_positional_initial", ask_initial, HARK_LEAST_POSITIONAL_START, start, HARK_UNSUPPORTED),
      TAKER("hark_model_load", load_model, HARK_LEAST_MODEL_OPTIONS, from_file, HARK_UNSUPPORTED),
      TAKER("hark_model_load_memory", load_model_in_memory, HARK_LEAST_MODEL_OPTIONS, from_file, HARK_UNSUPPORTED),
      TAKER("hark_model_create", make_model, HARK_LEAST_MODEL_OPTIONS, described, HARK_UNSUPPORTED),
      TAKER("hark_model_save_with", save_model, HARK_LEAST_MODEL_SAVE_OPTIONS, halves, HARK_UNSUPPORTED),
      TAKER("hark_model_describe", describe_model, HARK_LEAST_MODEL_INFO, info, HARK_OK), /* it fills */
      TAKER("hark_decoding_size", size_decoding, HARK_LEAST_DECODING_OPTIONS, room, HARK_UNSUPPORTED),
      TAKER("hark_decoding_create", make_decoding, HARK_LEAST_DECODING_OPTIONS, room, HARK_UNSUPPORTED),
      TAKER("hark_decoding_batch_create", make_batch, HARK_LEAST_DECODING_BATCH_OPTIONS, together, HARK_UNSUPPORTED),
      TAKER("hark_predictor_shape", tell_shape, HARK_LEAST_PREDICTION_SHAPE, shape, HARK_OK), /* it fills */
      TAKER("hark_predictor_create", make_predictor, HARK_LEAST_PREDICTOR_OPTIONS, at_once, HARK_UNSUPPORTED),
      TAKER("hark_predictor_run", predict, HARK_LEAST_PREDICTION_INPUT, input, HARK_UNSUPPORTED),
      TAKER("hark_decoding_choose", choose_token, HARK_LEAST_SAMPLING, sampling, HARK_UNSUPPORTED),
  };
#undef TAKER
  models_open();
  for (size_t i = 0; i < sizeof takers / sizeof takers[0]; i++) each_size_of_a_struct(&takers[i]);
  models_close();
  hark_release(context, args.workspace, scratch);
  for (size_t i = 0; i < 4; i++) hark_tensor_destroy(context, tensors[i]);
}

/* What is stored after the part that an older caller knows is not read. */
static void an_older_caller_gets_defaults(void **state) {
  (void)state;
  hark_context_options options = {.threads = 3, .backend = "abacus"};
  options.struct_size = offsetof(hark_context_options, backend);
  hark_context *made = NULL;
  assert_int_equal(hark_context_create(&options, &made), HARK_OK);
#ifdef HARK_WITH_THREADS
  assert_int_equal(hark_context_threads(made), 3);
#else
  assert_int_equal(hark_context_threads(made), 1);
#endif
  assert_string_equal(hark_context_backend(made), "cpu");
  hark_context_destroy(&made);

  hark_attention_desc desc = small_desc();
  desc.causal = true;
  desc.struct_size = offsetof(hark_attention_desc, max_sequences);
  hark_attention_plan *plan;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  assert_false(hark_attention_plan_desc(plan)->causal);
  assert_int_equal(hark_attention_plan_desc(plan)->struct_size, sizeof desc);
  hark_attention_plan_destroy(context, &plan);
}

/* Structs that hark fills: no byte after what the caller has is written, and none of the caller's is left as it was. */
static void a_struct_is_filled_as_far_as_it_goes(void **state) {
  (void)state;
  typedef struct answer {
    size_t struct_size;
    int64_t first, second;
  } answer;
  const answer known = {sizeof known, 7, 8};
  const size_t least = offsetof(answer, second);
  const struct {
    size_t size;
    hark_status expected;
  } cases[] = {
      {0, HARK_INVALID_ARGUMENT}, {least - 1, HARK_INVALID_ARGUMENT}, {least, HARK_OK},
      {sizeof known, HARK_OK},    {sizeof known + 16, HARK_OK},       {sizeof known + HARK_STRUCT_GROWTH + 1, HARK_INVALID_ARGUMENT}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int64_t given[8];
    memset(given, 0x55, sizeof given);
    const int64_t untouched = given[7];
    memcpy(given, &cases[i].size, sizeof(size_t));
    assert_int_equal(hark_give_struct(context, "answer", given, least, &known, sizeof known), cases[i].expected);
    assert_int_equal(given[0], cases[i].size);
    for (size_t at = 1; at < 8; at++) {
      const bool has = cases[i].expected == HARK_OK && at * 8 < cases[i].size;
      const int64_t expected = !has ? untouched : at == 1 ? 7 : at == 2 ? 8 : 0;
      if (given[at] != expected) fail_msg("struct_size %zu: number %zu is %lld", cases[i].size, at, (long long)given[at]);
    }
  }
  assert_int_equal(hark_give_struct(context, "answer", NULL, least, &known, sizeof known), HARK_INVALID_ARGUMENT);
}

static void hear(void *user, hark_log_level level, const char *message) {
  char *const heard = user;
  if (level == HARK_LOG_ERROR) strncat(heard, message, 255);
}

static void a_refusal_says_which_struct(void **state) {
  (void)state;
  char heard[256] = "";
  struct {
    hark_context_options options;
    int64_t unknown;
  } newer = {{.struct_size = sizeof newer, .logger = hear, .logger_user = heard}, 1};
  hark_context *made = context;
  assert_int_equal(hark_context_create(&newer.options, &made), HARK_UNSUPPORTED);
  assert_null(made);
  assert_non_null(strstr(heard, "hark_context_options: struct_size is"));
  assert_int_equal(hark_attention_supports(context, NULL), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "hark_attention_desc: NULL"));
  assert_int_equal(run_forward(NULL), HARK_INVALID_ARGUMENT);
  assert_non_null(strstr(hark_context_message(context), "hark_attention_args: NULL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(structs_of_other_versions_are_served_or_refused, begin, end),
      cmocka_unit_test_setup_teardown(an_older_caller_gets_defaults, begin, end),
      cmocka_unit_test_setup_teardown(a_struct_is_filled_as_far_as_it_goes, begin, end),
      cmocka_unit_test_setup_teardown(a_refusal_says_which_struct, begin, end),
  };
  return cmocka_run_group_tests_name("abi structs", tests, NULL, NULL);
}

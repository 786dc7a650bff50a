/* test_config.c - the training configuration: the table and the enumerations agree, defaults, derived values, checks, the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/engine.h"

static hark_context *context;
static hark_options *options;
static hark_config config;

static int begin(void **state) {
  (void)state;
  const hark_option_group group = {&hark_config_table, &config};
  context = test_reference_open();
  return hark_options_create(context, "train", &group, 1, &options) == HARK_OK ? 0 : 1;
}

static int end(void **state) {
  (void)state;
  hark_options_destroy(context, &options);
  hark_context_destroy(&context);
  return 0;
}

static void set(const char *name, const char *value) {
  assert_fine(context, hark_options_set(context, options, name, value, "test", HARK_SOURCE_FILE));
}

/* A word of the table is the value of the enumeration that the code compares with. */
static void words_mean_what_the_code_compares_with(void **state) {
  (void)state;
  const struct {
    const char *name, *word;
    const void *field; /* of an int or an enumeration */
    int value;
  } words[] = {
      {"model.type", "gpt", &config.model.type, HARK_MODEL_GPT},
      {"model.activation", "gelu", &config.model.activation, HARK_ACTIVATION_GELU},
      {"model.activation", "gelu_tanh", &config.model.activation, HARK_ACTIVATION_GELU_TANH},
      {"model.activation", "relu", &config.model.activation, HARK_ACTIVATION_RELU},
      {"model.activation", "silu", &config.model.activation, HARK_ACTIVATION_SILU},
      {"model.activation", "gated_silu", &config.model.activation, HARK_ACTIVATION_GATED_SILU},
      {"model.norm", "layer_norm", &config.model.norm, HARK_NORM_LAYER},
      {"model.norm", "rms_norm", &config.model.norm, HARK_NORM_RMS},
      {"model.positions", "none", &config.model.positions, HARK_POSITIONS_NONE},
      {"model.positions", "learned", &config.model.positions, HARK_POSITIONS_LEARNED},
      {"model.positions", "sinusoidal", &config.model.positions, HARK_POSITIONS_SINUSOIDAL},
      {"model.positions", "rotary", &config.model.positions, HARK_POSITIONS_ROTARY},
      {"model.positional_scope", "model", &config.model.positional_scope, HARK_SCOPE_MODEL},
      {"model.positional_scope", "layer", &config.model.positional_scope, HARK_SCOPE_LAYER},
      {"model.positional_scope", "head", &config.model.positional_scope, HARK_SCOPE_HEAD},
      {"model.rotary.pairs", "interleaved", &config.model.rotary.pairs, HARK_ROTARY_INTERLEAVED},
      {"model.rotary.pairs", "half", &config.model.rotary.pairs, HARK_ROTARY_HALF},
      {"model.rotary.learned", "none", &config.model.rotary.learned, HARK_ROTARY_STATIC},
      {"model.rotary.learned", "model", &config.model.rotary.learned, HARK_ROTARY_OF_MODEL},
      {"model.rotary.learned", "layer", &config.model.rotary.learned, HARK_ROTARY_OF_LAYER},
      {"model.rotary.learned", "head", &config.model.rotary.learned, HARK_ROTARY_OF_HEAD},
      {"model.rotary.scaling", "none", &config.model.rotary.scaling, HARK_ROTARY_AS_TRAINED},
      {"model.rotary.scaling", "linear", &config.model.rotary.scaling, HARK_ROTARY_LINEAR},
      {"model.rotary.scaling", "ntk", &config.model.rotary.scaling, HARK_ROTARY_NTK},
      {"model.rotary.scaling", "yarn", &config.model.rotary.scaling, HARK_ROTARY_YARN},
      {"model.rotary.scaling", "llama3", &config.model.rotary.scaling, HARK_ROTARY_LLAMA3},
      {"model.rotary.scaling", "dynamic", &config.model.rotary.scaling, HARK_ROTARY_DYNAMIC},
      {"model.rotary.scaling", "longrope", &config.model.rotary.scaling, HARK_ROTARY_LONGROPE},
      {"model.rotary.ramp", "pair", &config.model.rotary.ramp, HARK_ROTARY_RAMP_PAIR},
      {"model.rotary.ramp", "turns", &config.model.rotary.ramp, HARK_ROTARY_RAMP_TURNS},
      {"model.attention.structure", "dense", &config.model.attention.structure.words[0], HARK_STRUCTURE_DENSE},
      {"model.attention.structure", "window", &config.model.attention.structure.words[0], HARK_STRUCTURE_WINDOW},
      {"model.attention.structure", "hierarchical", &config.model.attention.structure.words[0], HARK_STRUCTURE_HIERARCHICAL},
      {"model.attention.kernel", "exp", &config.model.attention.kernel, HARK_KERNEL_EXP},
      {"model.attention.kernel", "rbf", &config.model.attention.kernel, HARK_KERNEL_RBF},
      {"model.attention.normalisation", "softmax", &config.model.attention.normalisation.words[0], HARK_NORMALISATION_SOFTMAX},
      {"model.attention.normalisation", "stick_breaking", &config.model.attention.normalisation.words[0],
       HARK_NORMALISATION_STICK_BREAKING},
      {"model.attention.normalisation", "cme", &config.model.attention.normalisation.words[0], HARK_NORMALISATION_CME},
      {"data.unknown", "error", &config.data.unknown, HARK_UNKNOWN_IS_ERROR},
      {"data.unknown", "map", &config.data.unknown, HARK_UNKNOWN_IS_MAPPED},
      {"data.split", "tail", &config.data.split, HARK_DIVIDE_TAIL},
      {"data.split", "per_file", &config.data.split, HARK_DIVIDE_EVERY_FILE},
      {"data.split", "files", &config.data.split, HARK_DIVIDE_FILES},
      {"data.order", "random", &config.data.order, HARK_ORDER_RANDOM},
      {"data.order", "shuffled", &config.data.order, HARK_ORDER_SHUFFLED},
      {"data.order", "sequential", &config.data.order, HARK_ORDER_SEQUENTIAL},
      {"data.epoch", "tokens", &config.data.epoch, HARK_EPOCH_TOKENS},
      {"data.epoch", "windows", &config.data.epoch, HARK_EPOCH_WINDOWS},
      {"train.schedule", "constant", &config.train.schedule, HARK_SCHEDULE_CONSTANT},
      {"train.schedule", "cosine", &config.train.schedule, HARK_SCHEDULE_COSINE},
      {"train.schedule", "linear", &config.train.schedule, HARK_SCHEDULE_LINEAR},
      {"train.schedule", "rsqrt", &config.train.schedule, HARK_SCHEDULE_RSQRT},
  };
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
    set(words[i].name, words[i].word);
    const int field = *(const int *)words[i].field;
    if (field != words[i].value) fail_msg("%s: %s is %d, expected %d", words[i].name, words[i].word, field, words[i].value);
  }
  for (int i = 0; hark_tokenizer_kind_name(i) != NULL; i++) {
    set("data.tokenizer", hark_tokenizer_kind_name(i));
    assert_int_equal(config.data.tokenizer, i);
  }
  assert_int_equal(hark_options_problem_count(options), 0);
}

static void derived_values_take_their_places(void **state) {
  (void)state;
  set("model.heads", "8");
  set("train.learning_rate", "0.5");
  set("data.validation_paths", "a");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(config.model.key_heads, 8);
  assert_int_equal(config.model.feed_forward_width, 2048);
  assert_true(config.train.minimum_rate == 0.05);
  assert_true(config.train.steps > 0);
  assert_int_equal(config.data.split, HARK_DIVIDE_FILES);
  assert_int_equal(hark_options_problem_count(options), 0);
}

#define SCALED(word)                                                                                                                       \
  {"model.rotary.scaling", word}, { "model.rotary.scaling_factor", "4" }
#define EIGHT                                                                                                                              \
  { "model.width", "32" } /* four heads of eight features */
#define FACTORS                                                                                                                            \
  {"model.rotary.short_factor", "1,1,1.5,2"}, { "model.rotary.long_factor", "1,2,3,8" }
static void combinations_that_cannot_work_are_reported(void **state) {
  (void)state;
  static const struct {
    const char *settings[6][2];
    const char *message;
  } cases[] = {
      {{{"model.width", "30"}, {"model.heads", "4"}}, "model.width 30 is not divisible by model.heads 4"},
      {{{"model.width", "12"}, {"model.heads", "4"}}, "rotary positions need an even head dimension, model.width / model.heads is 3"},
      {{{"model.positions", "none"}, {"model.rotary.learned", "head"}},
       "model.rotary.learned: has no effect here, it needs model.positions rotary (currently none)"},
      {{{"model.positions", "none"}, {"model.rotary.scaling", "yarn"}},
       "model.rotary.scaling: has no effect here, it needs model.positions rotary (currently none)"},
      {{{"model.rotary.learned", "model"}, {"model.rotary.scaling", "ntk"}}, "a scaling needs model.rotary.scaling_factor"},
      {{{"model.rotary.learned", "model"}, SCALED("dynamic")}, "model.rotary.scaling dynamic changes the base of static rates"},
      {{{"model.rotary.scaling_factor", "2"}}, "scaling_factor: has no effect here, it needs model.rotary.scaling other than none"},
      {{SCALED("linear"), {"model.rotary.beta_fast", "16"}}, "beta_fast: has no effect here, it needs model.rotary.scaling yarn"},
      {{SCALED("llama3"), {"model.rotary.beta_slow", "2"}}, "beta_slow: has no effect here, it needs model.rotary.scaling yarn"},
      {{SCALED("dynamic"), {"model.rotary.truncate", "false"}}, "truncate: has no effect here, it needs model.rotary.scaling yarn"},
      {{SCALED("ntk"), {"model.rotary.ramp", "turns"}}, "ramp: has no effect here, it needs model.rotary.scaling yarn"},
      {{SCALED("llama3"), {"model.rotary.mscale", "1"}}, "mscale: has no effect here, it needs model.rotary.scaling yarn"},
      {{SCALED("ntk"), {"model.rotary.attention_factor", "1.2"}}, "it needs model.rotary.scaling yarn or longrope"},
      {{SCALED("yarn"), {"model.rotary.low_freq_factor", "2"}},
       "low_freq_factor: has no effect here, it needs model.rotary.scaling llama3"},
      {{SCALED("yarn"), {"model.rotary.high_freq_factor", "8"}}, "it needs model.rotary.scaling llama3"},
      {{SCALED("yarn"), {"model.rotary.short_factor", "1,2"}}, "short_factor: has no effect here, it needs model.rotary.scaling longrope"},
      {{{"model.rotary.long_factor", "1,2"}}, "long_factor: has no effect here, it needs model.rotary.scaling longrope"},
      {{{"model.rotary.scaling", "yarn"}}, "a scaling needs model.rotary.scaling_factor"},
      {{{"model.rotary.scaling", "dynamic"}}, "a scaling needs model.rotary.scaling_factor"},
      {{SCALED("yarn"), {"model.rotary.beta_fast", "2"}, {"model.rotary.beta_slow", "3"}},
       "beta_fast 2 is not above model.rotary.beta_slow 3"},
      {{SCALED("llama3"), {"model.rotary.low_freq_factor", "4"}}, "high_freq_factor 4 is not above model.rotary.low_freq_factor 4"},
      {{SCALED("yarn"), {"model.rotary.mscale", "1"}}, "mscale needs model.rotary.mscale_all_dim"},
      {{SCALED("yarn"), {"model.rotary.mscale_all_dim", "1"}}, "mscale needs model.rotary.mscale_all_dim, and the other way round"},
      {{SCALED("yarn"), {"model.rotary.mscale", "1"}, {"model.rotary.mscale_all_dim", "1"}, {"model.rotary.attention_factor", "1"}},
       "model.rotary.attention_factor replaces model.rotary.mscale"},
      {{SCALED("yarn"), {"model.rotary.ramp", "turns"}, {"model.rotary.truncate", "false"}}, "no pairs at its ends to truncate"},
      {{SCALED("longrope")}, "longrope needs model.rotary.short_factor and model.rotary.long_factor"},
      {{SCALED("longrope"), {"model.rotary.short_factor", "1,2"}}, "longrope needs model.rotary.short_factor and model.rotary.long_factor"},
      {{SCALED("longrope"), EIGHT, {"model.rotary.short_factor", "1,2,3"}, {"model.rotary.long_factor", "1,2,3,4"}},
       "short_factor has 3 numbers, expected one for each of the 4 pairs that turn"},
      {{SCALED("longrope"), EIGHT, {"model.rotary.short_factor", "1,2,3,4"}, {"model.rotary.long_factor", "1,2,3,4,5"}},
       "long_factor has 5 numbers, expected one for each of the 4 pairs that turn"},
      {{SCALED("longrope"), EIGHT, {"model.rotary.short_factor", "1,2,3,0"}}, "\"1,2,3,0\" given, expected numbers above 0, one per pair"},
      {{SCALED("longrope"), EIGHT, {"model.rotary.short_factor", "1,2,x,4"}}, "\"1,2,x,4\" given, expected numbers above 0, one per pair"},
      {{{"model.rotary.scaling", "longrope"}, EIGHT, FACTORS}, "a scaling needs model.rotary.scaling_factor"},
      {{SCALED("longrope"), EIGHT, FACTORS, {"model.rotary.original_context", "1"}},
       "original_context is 1, expected 2 or more for longrope"},
      {{SCALED("dynamic"), {"data.unit", "sentences"}}, "dynamic depends on the length of a text"},
      {{{"model.positional_stretch", "2"}}, "it needs model.positional EXPR"},
      {{{"model.heads", "4"}, {"model.key_heads", "3"}}, "model.heads 4 is not divisible by model.key_heads 3"},
      {{{"train.steps", "4"}, {"train.epochs", "1"}}, "only one of steps, epochs, tokens and examples"},
      {{{"data.split", "tail"}, {"data.validation_paths", "a"}}, "files for validation need split files"},
      {{{"train.minimum_rate", "1"}}, "minimum_rate 1 is above learning_rate 0.001"},
      {{{"train.batch", "1048576"}, {"train.accumulate", "1048576"}, {"model.context", "16777216"}}, "expected at most 2^48"},
      {{{"train.batch", "1048576"}, {"train.accumulate", "1048576"}, {"model.context", "257"}}, "expected at most 2^48"},
      {{{"train.steps", "9223372036854775807"}}, "more tokens than can be counted"},
      {{{"train.tokens", "9223372036854775807"}}, "expected at most 2^62"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    for (int k = 0; k < 6 && cases[i].settings[k][0] != NULL; k++) set(cases[i].settings[k][0], cases[i].settings[k][1]);
    assert_fine(context, hark_config_finish(context, options, &config));
    assert_fine(context, hark_options_refuse_idle(context, options));
    assert_failure(context, hark_options_finish(context, options), HARK_BAD_CONFIGURATION, cases[i].message);
    if (hark_options_problem_count(options) != 1) fail_msg("case %zu also: %s", i, hark_options_problem(options, 1));
    end(state);
    begin(state);
  }
}

/* The largest step that is allowed, and the longest run of it, are counted without overflow. */
static void the_largest_counts_fit(void **state) {
  (void)state;
  set("train.batch", "1048576");
  set("train.accumulate", "1048576");
  set("model.context", "256");
  set("train.steps", "16383");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  assert_true(hark_config_step_tokens(&config) == (int64_t)1 << 48);
}

/* Names and shapes of all parameters of the configured model, as one text. */
static void describe_parameters(hark_text *text) {
  hark_network *decoder = NULL;
  char shape[HARK_SHAPE_TEXT_BYTES];
  const hark_network_config model = hark_engine_text_config(&config, 61);
  assert_fine(context, hark_network_declare(context, &model, HARK_F32, &decoder));
  for (int32_t i = 0; i < decoder->parameters.count; i++) {
    const hark_parameter *const parameter = &decoder->parameters.list[i];
    hark_text_append(text, "%s %s\n", parameter->name, hark_shape_text(&parameter->weight, shape, sizeof shape));
  }
  hark_network_destroy(context, &decoder);
  assert_fine(context, text->status);
}

/* What is said not to decide which weights there are does not, whatever its value; what eval may exchange of a model is of that kind. */
static void options_that_leave_the_weights_alone_do(void **state) {
  (void)state;
  static const char *const values[] = {"true", "false", "0", "0.5", "1", "2", "8", "20"};
  int compared = 0, exchangeable = 0;
  hark_text usual = hark_text_empty(context);
  assert_fine(context, hark_config_finish(context, options, &config));
  describe_parameters(&usual);
  char *const expected = strdup(hark_text_get(&usual));
  hark_text_free(&usual);
  for (int i = 0; i < hark_config_table.count; i++) {
    const hark_option *const option = &hark_config_table.options[i];
    const hark_bond bond = hark_config_bond(option->name);
    const bool of_model = strncmp(option->name, "model.", 6) == 0;
    if (bond == HARK_BOND_MEANING) assert_true(of_model);
    if (of_model && bond == HARK_BOND_MEANING && strstr(option->commands, "eval") != NULL) exchangeable++;
    const bool of_tokens = strcmp(option->name, "data.tokenizer") == 0 || strcmp(option->name, "data.vocabulary") == 0 ||
                           strncmp(option->name, "data.subwords.", 14) == 0;
    if (!of_model && !of_tokens) assert_int_equal(bond, HARK_BOND_NONE);
    if (!of_model || bond == HARK_BOND_WEIGHTS) continue;
    const char *words = option->type == HARK_OPTION_ENUM ? option->range : NULL;
    for (size_t v = 0; words != NULL ? *words != '\0' : v < sizeof values / sizeof values[0]; v++) {
      char value[64];
      end(state);
      begin(state);
      (void)snprintf(value, sizeof value, "%.*s", words != NULL ? (int)strcspn(words, "|") : (int)sizeof value - 1,
                     words != NULL ? words : values[v]);
      if (words != NULL) words += strcspn(words, "|") + (words[strcspn(words, "|")] == '|');
      set(option->name, value);
      if (hark_options_problem_count(options) > 0) continue; /* not a value of it */
      assert_fine(context, hark_config_finish(context, options, &config));
      if (hark_options_problem_count(options) > 0) continue; /* not with the others */
      hark_text now = hark_text_empty(context);
      describe_parameters(&now);
      if (strcmp(hark_text_get(&now), expected) != 0) fail_msg("%s = %s changes the weights", option->name, value);
      hark_text_free(&now);
      compared++;
    }
  }
  free(expected);
  assert_true(compared > 20);
  assert_true(exchangeable > 20);
}

static void set_from(const char *name, const char *value, hark_option_source source) {
  assert_fine(context, hark_options_set(context, options, name, value, "test", source));
}

/* What the network makes of the configured scaling. */
static hark_rotary_tuning tuning_of_model(void) {
  const hark_network_config model = hark_engine_text_config(&config, 61);
  return hark_network_rotary_tuning(&model.rotary);
}

/* A run from before there was model.rotary.ramp was trained with yarn's ramp in turns; who asks for yarn now gets that of published
 * models. */
static void yarn_of_older_runs_stays(void **state) {
  for (int kind = 0; kind < 4; kind++) {
    const hark_option_source source = kind < 2 ? HARK_SOURCE_RUN : kind == 2 ? HARK_SOURCE_FILE : HARK_SOURCE_COMMAND;
    set_from("model.rotary.scaling", "yarn", source);
    set_from("model.rotary.scaling_factor", "4", source);
    if (kind == 1) set_from("model.rotary.ramp", "pair", source); /* what runs record now */
    assert_fine(context, hark_config_finish(context, options, &config));
    assert_int_equal(hark_options_problem_count(options), 0);
    assert_int_equal(config.model.rotary.ramp, kind == 0 ? HARK_ROTARY_RAMP_TURNS : HARK_ROTARY_RAMP_PAIR);
    assert_int_equal(tuning_of_model().ramp, config.model.rotary.ramp);
    end(state);
    begin(state);
  }
}

/* What a run brings along for a scaling that is exchanged is no mistake of who exchanges it, and says nothing any more. */
static void another_scaling_leaves_the_numbers_of_the_old_one(void **state) {
  (void)state;
  set_from("model.rotary.scaling", "yarn", HARK_SOURCE_RUN);
  set_from("model.rotary.scaling_factor", "4", HARK_SOURCE_RUN);
  set_from("model.rotary.beta_fast", "16", HARK_SOURCE_RUN);
  set_from("model.rotary.attention_factor", "1.5", HARK_SOURCE_RUN);
  set_from("model.rotary.scaling", "linear", HARK_SOURCE_COMMAND);
  set_from("model.rotary.scaling_factor", "2", HARK_SOURCE_COMMAND);
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  const hark_network_config model = hark_engine_text_config(&config, 61);
  const hark_rotary_tuning tuning = tuning_of_model();
  assert_true(model.rotary.scaling == HARK_ROTARY_LINEAR && model.rotary.scaling_factor == 2);
  assert_true(tuning.beta_fast == 0 && tuning.attention_factor == 0);
}

/* The numbers of every scaling reach the model, lists as they stand in files and on the command line. */
static void scalings_reach_the_model(void **state) {
  set("model.width", "32");
  set("model.rotary.scaling", "longrope");
  set("model.rotary.attention_factor", "1.19");
  set("model.rotary.short_factor", "1,1.5");
  set("model.rotary.short_factor", "2, 3");
  set("model.rotary.long_factor", "1,2,3.25,8");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  hark_rotary_tuning tuning = tuning_of_model();
  assert_true(tuning.attention_factor == 1.19 && tuning.short_factor.count == 4 && tuning.long_factor.count == 4);
  assert_true(tuning.short_factor.values[1] == 1.5 && tuning.short_factor.values[3] == 3 && tuning.long_factor.values[2] == 3.25);
  end(state);
  begin(state);
  set("model.rotary.scaling", "yarn");
  set("model.rotary.scaling_factor", "40");
  set("model.rotary.beta_fast", "16");
  set("model.rotary.beta_slow", "2");
  set("model.rotary.truncate", "false");
  set("model.rotary.mscale", "1");
  set("model.rotary.mscale_all_dim", "0.5");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  tuning = tuning_of_model();
  assert_true(tuning.beta_fast == 16 && tuning.beta_slow == 2 && tuning.untruncated && tuning.mscale == 1 && tuning.mscale_all_dim == 0.5);
  end(state);
  begin(state);
  set("model.rotary.scaling", "llama3");
  set("model.rotary.scaling_factor", "8");
  set("model.rotary.low_freq_factor", "2");
  set("model.rotary.high_freq_factor", "8");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  tuning = tuning_of_model();
  assert_true(tuning.low_frequency == 2 && tuning.high_frequency == 8);
}

static void configurations_agree_by_value(void **state) {
  (void)state;
  hark_config other;
  const char *const items[] = {"a", "b"};
  hark_options *second = NULL;
  const hark_option_group group = {&hark_config_table, &other};
  assert_fine(context, hark_options_create(context, "train", &group, 1, &second));
  for (int i = 0; i < hark_config_table.count; i++) assert_true(hark_config_agree(&hark_config_table.options[i], &config, &other));
  other.data.paths = (hark_string_list){items, 2};
  other.run.backend = "reference";
  other.train.beta1 = 0.5;
  other.model.norm = HARK_NORM_RMS;
  int different = 0;
  for (int i = 0; i < hark_config_table.count; i++) different += !hark_config_agree(&hark_config_table.options[i], &config, &other);
  assert_int_equal(different, 4);
  hark_options_destroy(context, &second);
}

static void the_command_line_replaces_the_length_of_a_file(void **state) {
  (void)state;
  set("train.steps", "100");
  assert_fine(context, hark_options_set(context, options, "train.tokens", "8e6", "--tokens", HARK_SOURCE_COMMAND));
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  assert_int_equal(config.train.steps, 0);
  assert_int_equal(config.train.tokens, 8000000);
}

/* Every option refuses what is not of its type and what lies outside its range. */
static void every_option_refuses_bad_values(void **state) {
  (void)state;
  int problems = 0;
  for (int i = 0; i < hark_config_table.count; i++) {
    const hark_option *const option = &hark_config_table.options[i];
    if (option->type == HARK_OPTION_STRING || option->type == HARK_OPTION_LIST) continue;
    static const char *const bad[] = {"", "what", "1e999", "nan", "-99"};
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++) {
      end(state);
      begin(state);
      set(option->name, bad[b]);
      if (hark_options_problem_count(options) != 1) fail_msg("%s takes \"%s\"", option->name, bad[b]);
      problems++;
    }
  }
  assert_true(problems > 200);
}

/* Several numbers may stand in one item. */
static void capacities_of_layers_are_numbers(void **state) {
  (void)state;
  set("model.architecture", "ahca");
  set("model.ahca.head", "reconstruction");
  set("model.layers", "4");
  set("model.ahca.capacities", "0.75, 0.5,0");
  assert_fine(context, hark_config_finish(context, options, &config));
  assert_int_equal(hark_options_problem_count(options), 0);
  assert_int_equal(config.model.ahca.capacity_count, 3);
  assert_true(config.model.ahca.layer_capacities[0] == 0.75 && config.model.ahca.layer_capacities[1] == 0.5 &&
              config.model.ahca.layer_capacities[2] == 0);
}

/* docs/configuration.md is what hark config --markdown prints: run it again after changing the table. */
static void the_reference_is_up_to_date(void **state) {
  (void)state;
  hark_text text = hark_text_empty(context);
  size_t bytes;
  unsigned char *const file = test_file_read(HARK_SOURCE_DIR "/docs/configuration.md", &bytes);
  hark_options_print_markdown(options, &text);
  assert_fine(context, text.status);
  assert_true(text.length > 1000 && text.length < bytes);
  const bool same = memcmp(file + bytes - text.length, hark_text_get(&text), text.length) == 0; /* after the introduction */
  free(file);
  hark_text_free(&text);
  if (!same) fail_msg("build/hark config --markdown > docs/configuration.md");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {TEST(words_mean_what_the_code_compares_with),
                                     TEST(derived_values_take_their_places),
                                     TEST(combinations_that_cannot_work_are_reported),
                                     TEST(every_option_refuses_bad_values),
                                     TEST(the_command_line_replaces_the_length_of_a_file),
                                     TEST(the_reference_is_up_to_date),
                                     TEST(capacities_of_layers_are_numbers),
                                     TEST(the_largest_counts_fit),
                                     TEST(options_that_leave_the_weights_alone_do),
                                     TEST(yarn_of_older_runs_stays),
                                     TEST(another_scaling_leaves_the_numbers_of_the_old_one),
                                     TEST(scalings_reach_the_model),
                                     TEST(configurations_agree_by_value)};
  return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}

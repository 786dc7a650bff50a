/* test_model_rules.c - the rules between options of a model: each is violated once, and the network and the trainer refuse the
 * configuration with the same message. A new rule without a case here fails. */
#include <stdio.h>
#include <string.h>

#include "models/model_rules.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/engine.h"

#define VOCABULARY 40
#define CLASSES 3
#define RESPONSES 2
#define MOST_RULES 128
#define SETTINGS 8

static hark_context *context;
static hark_options *options;
static hark_config config;
static bool violated[MOST_RULES];

static void begin(void) {
  const hark_option_group group = {&hark_config_table, &config};
  context = test_reference_open();
  assert_fine(context, hark_options_create(context, "train", &group, 1, &options));
}

static void end(void) {
  hark_options_destroy(context, &options);
  test_setup_close(context);
}

/* Values of a run: the trainer does not refuse those without effect, which some rules concern. */
static void configure(const char *const settings[SETTINGS][2]) {
  for (int i = 0; i < SETTINGS && settings[i][0] != NULL; i++)
    assert_fine(context, hark_options_set(context, options, settings[i][0], settings[i][1], "here", HARK_SOURCE_RUN));
  assert_fine(context, hark_config_finish(context, options, &config));
}

/* The network's configuration with data that such a model learns from. */
static hark_network_config configuration(void) {
  const hark_architecture *const architecture = hark_architecture_of(config.model.architecture);
  const int head = config.model.ahca.head;
  hark_learning_task task = {.vocabulary = VOCABULARY};
  if (architecture->predicts_vectors) {
    task.features = config.model.width;
    task.responses = RESPONSES;
  }
  if (architecture->predicts_classes && head != HARK_AHCA_HEAD_LABELS && head != HARK_AHCA_HEAD_RECONSTRUCTION) task.classes = CLASSES;
  if (hark_config_has_examples(&config)) task.parts = 1;
  return hark_engine_network_config(&config, &task);
}

/* The network refuses it with this message, by one rule alone, which is noted. */
static void refused_by_network(const hark_network_config *network, const char *expected) {
  hark_network *made = NULL;
  const hark_model_rule *rule;
  int count = 0;
  assert_failure(context, hark_network_declare(context, network, HARK_F32, &made), HARK_BAD_CONFIGURATION, expected);
  assert_string_equal(hark_context_message(context), expected);
  assert_null(made);
  for (int i = 0; (rule = hark_model_rule_at(i)) != NULL; i++) {
    char message[HARK_MESSAGE_BYTES] = "";
    if (!rule->violated(network, message)) continue;
    assert_true(i < MOST_RULES);
    assert_string_equal(message, expected);
    violated[i] = true;
    count++;
  }
  assert_int_equal(count, 1);
}

#define ROTARY(name) "model.rotary." name
#define ATTENTION(name) "model.attention." name
#define AHCA(name) "model.ahca." name
#define OF_AHCA                                                                                                                            \
  {"model.architecture", "ahca"}, { "data.format", "listops" }
#define OF_LATENT                                                                                                                          \
  {"model.architecture", "latent"}, { "data.format", "vectors" }
#define OF_TABLES                                                                                                                          \
  {"model.architecture", "regressor"}, { "data.format", "tables" }
#define HIERARCHICAL                                                                                                                       \
  { ATTENTION("structure"), "hierarchical" }
#define COMPRESSED                                                                                                                         \
  { ATTENTION("structure"), "compressed" }
#define STICKS                                                                                                                             \
  { ATTENTION("normalisation"), "stick_breaking" }
#define CME                                                                                                                                \
  { ATTENTION("normalisation"), "cme" }
#define MASKED                                                                                                                             \
  { "model.architecture", "masked_encoder" }
#define SCALED(word)                                                                                                                       \
  {ROTARY("scaling"), word}, { ROTARY("scaling_factor"), "4" }
#define YARN                                                                                                                               \
  SCALED("yarn"), { ROTARY("ramp"), "pair" }

#define PICTURE                                                                                                                            \
  {"model.architecture", "encoder"}, {"data.format", "image"}, HIERARCHICAL, { ATTENTION("grid_columns"), "32" }

/* Rules of options alone. */
#define COUNTED ATTENTION("contextual_positions")

static const struct {
  const char *settings[SETTINGS][2];
  const char *message;
} cases[] = {
    {{{"model.width", "30"}}, "model.width 30 is not divisible by model.heads 4"},
    {{{"model.attention_width", "7"}}, "model.attention_width 7 is not divisible by model.heads 4"},
    {{{"model.key_heads", "3"}}, "model.heads 4 is not divisible by model.key_heads 3"},
    {{{"model.width", "12"}}, "rotary positions need an even head dimension, model.width / model.heads is 3"},
    {{{"model.attention_width", "12"}}, "rotary positions need an even head dimension, model.attention_width / model.heads is 3"},
    {{{"model.layers", "2"}, {ATTENTION("structure"), "dense,window,dense"}},
     "model.attention.structure has 3 words for 2 layers, expected at most one per layer"},
    {{{"model.layers", "1"}, {ATTENTION("normalisation"), "softmax,cme"}},
     "model.attention.normalisation has 2 words for 1 layer, expected at most one per layer"},
    {{HIERARCHICAL, {ATTENTION("hierarchy_block"), "3"}}, "model.attention.hierarchy_block is 3, expected an even number"},
    {{HIERARCHICAL, {ATTENTION("coarse_query"), "mean"}},
     "model.attention.coarse_query is mean, which depends on later queries, and model.architecture decoder is causal, expected first or "
     "exact"},
    {{HIERARCHICAL, {ATTENTION("interpolation"), "linear"}},
     "model.attention.interpolation is linear, which uses later cells, and model.architecture decoder is causal, expected constant"},
    {{MASKED, HIERARCHICAL, {ATTENTION("interpolation"), "linear"}, {ATTENTION("coarse_query"), "exact"}},
     "model.attention.interpolation is linear, and with model.attention.coarse_query exact nothing is interpolated, expected constant, or "
     "another coarse_query"},
    {{MASKED, COMPRESSED}, "model.attention.structure compressed needs model.architecture decoder: a query sees only earlier tokens"},
    {{COMPRESSED, {ATTENTION("chunk"), "4"}, {ATTENTION("chunk_slots"), "5"}},
     "model.attention.chunk_slots is 5, expected at most model.attention.chunk = 4"},
    {{{ATTENTION("structure"), "window,compressed"}, {ATTENTION("chunk_learned"), "true"}, {ATTENTION("chunk_mean"), "8"}},
     "model.attention.chunk_mean is 8, expected 64 to 256, as a chunk has"},
    {{{ATTENTION("structure"), "window,compressed"},
      {ATTENTION("chunk"), "8"},
      {ATTENTION("chunk_learned"), "true"},
      {ATTENTION("chunk_maximum"), "7"}},
     "model.attention.chunk_maximum is 7, expected at least model.attention.chunk = 8"},
    {{COMPRESSED, {ATTENTION("chunk_learned"), "true"}},
     "model.attention.chunk_learned computes boundaries from the layers before compressed attention, expected a "
     "model.attention.structure that begins with another one, such as window,compressed"},
    {{COMPRESSED, {ATTENTION("chunk"), "8"}, {ATTENTION("delimiters"), "32"}, {ATTENTION("chunk_maximum"), "7"}},
     "model.attention.chunk_maximum is 7, expected at least model.attention.chunk = 8"},
    {{COMPRESSED, {ATTENTION("kept_chunks"), "2"}, {ATTENTION("global_slots"), "3"}, {"model.positional", "decay"}},
     "model.attention.global_slots is 3 with model.positional, a kernel of the distance, and the tokens of a global slot have ever more "
     "distances, expected global_slots 0"},
    {{COMPRESSED, {ATTENTION("forget_gate"), "true"}},
     "model.attention.forget_gate has gates that differ inside a slot of model.attention.structure compressed, expected false"},
    {{COMPRESSED, {COUNTED, "8"}},
     "model.attention.contextual_positions counts tokens, and earlier keys of model.attention.structure compressed are slots, expected 0"},
    {{COMPRESSED, {ATTENTION("kernel"), "rbf"}}, "model.attention.structure compressed needs model.attention.kernel exp"},
    {{{ATTENTION("structure"), "dense,compressed"}, {ATTENTION("normalisation"), "softmax,stick_breaking"}},
     "model.attention.structure compressed needs model.attention.normalisation softmax, in layer 1"},
    {{HIERARCHICAL, {ATTENTION("grid_columns"), "32"}},
     "model.attention.grid_columns needs model.architecture encoder, which sees pixels on all sides"},
    {{PICTURE, {"model.pooling", "mean"}, {ATTENTION("hierarchy_block"), "8"}},
     "model.attention.hierarchy_block is 8 with model.attention.grid_columns, expected a power of 4 (4, 16, 64, ...): the cells of a "
     "square block"},
    {{PICTURE, {"model.pooling", "mean"}, {ATTENTION("partition"), "sibling"}},
     "model.attention.partition is sibling with model.attention.grid_columns, expected neighbour"},
    {{PICTURE, {"model.pooling", "mean"}, {ATTENTION("coarse_query"), "first"}},
     "model.attention.coarse_query is first with model.attention.grid_columns, expected mean or exact"},
    {{PICTURE, {"model.pooling", "mean"}, {ATTENTION("interpolation"), "linear"}},
     "model.attention.interpolation is linear with model.attention.grid_columns, expected constant"},
    {{PICTURE, {"model.pooling", "mean"}, {ATTENTION("hierarchical_bias"), "true"}},
     "model.attention.hierarchical_bias is indexed by one distance, which pixels with model.attention.grid_columns do not have, expected "
     "false"},
    {{PICTURE, {"model.pooling", "mean"}, {"model.positional", "decay"}},
     "model.positional is a kernel of one distance, which pixels with model.attention.grid_columns do not have, expected no kernel"},
    {{PICTURE},
     "model.pooling class adds a token before the pixels, which model.attention.grid_columns would take for the first pixel, expected mean "
     "or first"},
    {{HIERARCHICAL, {ATTENTION("forget_gate"), "true"}},
     "model.attention.forget_gate has gates that differ inside a cell of model.attention.structure hierarchical, expected dense or window"},
    {{MASKED, {ATTENTION("forget_gate"), "true"}}, "model.attention.forget_gate needs model.architecture decoder"},
    {{{COUNTED, "1"}}, "model.attention.contextual_positions is 1, expected 0 (none), or at least 2"},
    {{MASKED, {COUNTED, "8"}}, "model.attention.contextual_positions needs model.architecture decoder"},
    {{HIERARCHICAL, {COUNTED, "8"}},
     "model.attention.contextual_positions counts tokens, and the keys of model.attention.structure hierarchical are cells, expected dense "
     "or window"},
    {{CME, {COUNTED, "8"}}, "model.attention.contextual_positions needs model.attention.normalisation softmax in every layer"},
    {{{ATTENTION("kernel"), "rbf"}, {COUNTED, "8"}}, "model.attention.contextual_positions needs model.attention.kernel exp"},
    {{CME, {ATTENTION("structure"), "dense,window"}},
     "model.attention.normalisation cme needs model.attention.structure dense, in layer 1"},
    {{CME, {ATTENTION("forget_gate"), "true"}},
     "model.attention.normalisation cme needs a symmetric kernel, and with model.attention.forget_gate it is not"},
    {{CME, {ATTENTION("dropout"), "0.5"}},
     "model.attention.normalisation cme has no normalised weights to drop, expected model.attention.dropout 0"},
    {{STICKS, {ATTENTION("structure"), "dense,hierarchical"}},
     "model.attention.normalisation stick_breaking needs model.attention.structure dense or window, in layer 1"},
    {{STICKS, {ATTENTION("kernel"), "rbf"}}, "model.attention.normalisation stick_breaking needs model.attention.kernel exp"},
    {{MASKED, STICKS}, "model.attention.normalisation stick_breaking needs model.architecture decoder: it is causal"},
    {{CME, {ATTENTION("kernel"), "rbf"}, {ATTENTION("sigma_learned"), "true"}, {ATTENTION("unit"), "true"}, YARN},
     "model.rotary.scaling yarn multiplies queries and keys, which model.attention.unit undoes where model.attention.sigma_learned is set"},
    {{CME, {ATTENTION("sigma_learned"), "true"}}, "model.attention.sigma_learned needs model.attention.kernel rbf"},
    {{{"model.architecture", "encoder"}, {"data.format", "listops"}, {"model.pooling", "pooler"}},
     "model.pooling pooler needs model.pooler"},
    {{{"model.architecture", "encoder"}, {"data.format", "listops"}, {"model.normalise", "true"}},
     "model.normalise needs model.head embedding"},
    {{{"model.positional", "decay|rbf|t5"}}, "model.positional has 3 expressions, expected 1 or 4, one of every head"},
    {{{"model.layers", "3"}, {"model.positional", "decay|rbf"}, {"model.positional_scope", "layer"}},
     "model.positional has 2 expressions, expected 1 or 3, one of every layer"},
    {{{"model.layers", "3"}, {"model.positional", "decay|rbf|t5"}, {"model.positional_scope", "head"}},
     "model.positional has 3 expressions, expected 1 or 4, one of every head, or of every head of every layer"},
    {{{"model.token_types", "2"}}, "model.token_types needs model.architecture encoder or masked_encoder"},
    /* rotary positions */
    {{{"model.positions", "none"}, {ROTARY("learned"), "head"}}, "model.rotary.learned needs model.positions rotary"},
    {{{"model.positions", "none"}, SCALED("linear")}, "model.rotary.scaling needs model.positions rotary"},
    {{{ROTARY("learned"), "model"}, SCALED("dynamic")},
     "model.rotary.scaling dynamic changes the base of static rates, expected model.rotary.learned none"},
    {{MASKED, SCALED("dynamic")},
     "model.rotary.scaling dynamic depends on the length of a text, expected model.architecture decoder, which reads texts one by one"},
    {{SCALED("longrope")},
     "model.rotary.scaling longrope needs model.rotary.short_factor and model.rotary.long_factor, one number per pair each"},
    {{YARN, {ROTARY("attention_factor"), "1.5"}, {ROTARY("mscale"), "1"}, {ROTARY("mscale_all_dim"), "1"}},
     "model.rotary.attention_factor replaces model.rotary.mscale and model.rotary.mscale_all_dim, expected one or the others"},
    {{SCALED("yarn"), {ROTARY("ramp"), "turns"}, {ROTARY("truncate"), "false"}},
     "model.rotary.truncate false needs model.rotary.ramp pair: a ramp in turns has no pairs at its ends to truncate"},
    {{YARN, {ROTARY("beta_fast"), "2"}, {ROTARY("beta_slow"), "3"}}, "model.rotary.beta_fast 2 is not above model.rotary.beta_slow 3"},
    /* architectures of real vectors */
    {{OF_LATENT, {"model.bias", "true"}}, "model.architecture latent has no biases, expected model.bias false"},
    {{OF_LATENT, {"model.dropout", "0.5"}},
     "model.architecture latent has no dropout, expected 0 for model.dropout, model.embedding_dropout and model.attention.dropout"},
    {{OF_LATENT, {"model.positions", "rotary"}}, "model.architecture latent reads exchangeable tokens, expected model.positions none"},
    {{{"model.positional", "decay*right(rbf)"}},
     "model.positional has right(...) at column 7, and in model.architecture decoder no token sees the tokens after it: it would have no "
     "effect"},
    {{OF_LATENT, {"model.positional", "decay"}}, "model.architecture latent reads exchangeable tokens, expected no model.positional"},
    {{OF_LATENT, {ATTENTION("structure"), "window"}},
     "model.architecture latent attends densely, expected model.attention.structure dense"},
    {{OF_LATENT, CME}, "model.architecture latent attends densely by softmax, expected model.attention.normalisation softmax"},
    {{OF_LATENT, {"model.recompute", "true"}}, "model.recompute is for stacks of blocks, expected false with model.architecture latent"},
    {{OF_TABLES, {"model.recompute", "true"}}, "model.recompute is for stacks of blocks, expected false with model.architecture regressor"},
    {{OF_TABLES, {"model.positions", "rotary"}}, "model.architecture regressor reads exchangeable tokens, expected model.positions none"},
    {{OF_TABLES, {"model.positional", "decay"}}, "model.architecture regressor reads exchangeable tokens, expected no model.positional"},
    {{OF_TABLES, {ATTENTION("structure"), "window"}},
     "model.architecture regressor attends densely, expected model.attention.structure dense"},
    {{OF_TABLES, {"model.dropout", "0.5"}},
     "model.architecture regressor has no dropout, expected 0 for model.dropout, model.embedding_dropout and model.attention.dropout"},
    {{OF_TABLES, STICKS}, "model.attention.normalisation stick_breaking needs model.architecture decoder: it is causal"},
    {{OF_LATENT, {"model.activation", "gelu"}}, "model.architecture latent has features relu(x A), expected model.activation relu"},
    {{{"model.architecture", "finite"}, {"data.format", "vectors"}, {"model.finite.map", "network"}, {"model.activation", "gelu"}},
     "model.architecture finite has features relu(x A), expected model.activation relu"},
    {{OF_LATENT, {"model.layers", "10000"}, {"model.heads", "8"}},
     "latent has matrices for every head: model.layers 10000 times model.heads 8, expected at most 65536"},
    {{OF_LATENT, {"model.key_heads", "2"}},
     "model.architecture latent has keys for every head: model.key_heads is 2, expected as many as model.heads, 4"},
    {{OF_LATENT, {"model.attention_width", "256"}},
     "model.architecture latent divides the width of its tokens among heads, expected no model.attention_width"},
    {{OF_LATENT, {"model.latent.form", "single"}}, "model.latent.form single is one layer of features, expected model.layers 1"},
    {{OF_LATENT, {"model.latent.form", "single"}, {"model.layers", "1"}, {"model.latent.aggregate", "mean"}},
     "model.latent.form single has a class query, expected model.latent.aggregate query"},
    /* compressed chunks */
    {{OF_AHCA, {AHCA("selected"), "65"}}, "model.ahca.selected is 65, expected at most the 64 of model.ahca.secondary_slots"},
    {{OF_AHCA, {AHCA("chunk"), "semantic"}, {AHCA("chunk_minimum"), "300"}},
     "model.ahca.chunk_minimum is 300, expected at most the 256 of model.ahca.chunk_maximum"},
    {{OF_AHCA, {AHCA("primary_width"), "30"}}, "model.ahca.primary_width 30 is not divisible by model.heads 4"},
    {{OF_AHCA, {AHCA("secondary_pool"), "attention"}, {AHCA("secondary_width"), "30"}},
     "model.ahca.secondary_width 30 is not divisible by model.heads 4, which model.ahca.secondary_pool attention needs"},
    {{OF_AHCA, {AHCA("select"), "query"}, {AHCA("secondary_width"), "16"}},
     "model.ahca.select query multiplies both levels: model.ahca.primary_width is 512 and model.ahca.secondary_width 16, expected equal "
     "numbers"},
    {{OF_AHCA, {AHCA("chunk"), "learned"}, {AHCA("chunk_size"), "1"}},
     "model.ahca.chunk_size is 1, expected at least 2 with model.ahca.chunk learned"},
    {{OF_AHCA, {"model.layers", "65"}}, "model.layers is 65, expected at most 64 with model.architecture ahca"},
    {{OF_AHCA, {AHCA("selected"), "0"}, {AHCA("output"), "selected"}},
     "model.ahca.selected is 0, expected at least 1 with model.ahca.output selected"},
    {{OF_AHCA, {AHCA("selected"), "0"}, {AHCA("depth_score"), "attention"}},
     "model.ahca.selected is 0, expected at least 1 with model.ahca.depth_score attention"},
    {{OF_AHCA, {AHCA("capacities"), "0.5"}}, "model.ahca.capacities has 1 numbers, expected one for each layer but the first, 3"},
    {{OF_AHCA, {AHCA("capacities"), "0.5,0.75,0.25"}},
     "model.ahca.capacities has 0.75 for layer 3, expected 0 to 0.5: numbers that do not grow from layer to layer"},
    {{OF_AHCA, {AHCA("head"), "labels"}, {AHCA("output"), "selected"}},
     "model.ahca.output selected leaves no slots of chunks for the queries of tokens, expected chunks with model.ahca.head labels"},
    {{OF_AHCA, {AHCA("head"), "reconstruction"}, {"model.positions", "none"}},
     "model.ahca.head reconstruction has queries of positions alone, expected model.positions learned"},
    {{OF_AHCA, {ATTENTION("kernel"), "rbf"}}, "ahca attends by exp(q.k), expected model.attention.kernel exp"},
    {{OF_AHCA, {ATTENTION("hierarchical_bias"), "true"}}, "ahca attends by exp(q.k), expected no model.attention.hierarchical_bias"},
    {{OF_AHCA, {ATTENTION("structure"), "dense,window"}},
     "ahca has the same attention in all layers, expected one word in model.attention.structure"},
    {{OF_AHCA, {ATTENTION("normalisation"), "softmax,softmax"}},
     "ahca has the same attention in all layers, expected one word in model.attention.normalisation"},
    {{OF_AHCA, {ATTENTION("structure"), "window"}, {AHCA("output"), "selected"}},
     "model.attention.structure is that of attention among the slots of a chunk, expected dense with model.ahca.output selected or "
     "model.ahca.layer linear"},
    {{OF_AHCA, {"model.positional", "decay"}, {AHCA("layer"), "linear"}},
     "model.positional is a kernel of the distance in chunks, expected none with model.ahca.output selected or model.ahca.layer linear"},
    {{OF_AHCA, {"model.positional", "decay"}, {AHCA("secondary_pool"), "attention"}},
     "model.positional needs the chunk of a global token, and with model.ahca.secondary_pool attention it is of the whole sequence, "
     "expected average or max"},
    {{OF_AHCA, {"model.positional", "decay"}, {"model.positional_scope", "layer"}},
     "model.positional_scope is layer or head, expected model with model.architecture ahca"},
    {{OF_AHCA, {"model.positional", "decay*right(rbf)"}},
     "model.positional has right(...) at column 7, expected a kernel without a direction with model.architecture ahca"},
    {{OF_AHCA, {"model.heads", "2"}, {"model.positional", "decay|rbf"}},
     "model.positional has several expressions, expected one with model.architecture ahca"},
    {{OF_AHCA, {"model.positions", "sinusoidal"}},
     "pooled slots have no position of their own, expected model.positions learned (in chunks, of chunks and of slots) or none"},
    {{OF_AHCA, {ATTENTION("unbiased"), "true"}},
     "the attention of ahca has the biases of model.bias, expected no model.attention.unbiased"},
    {{OF_AHCA, CME}, "ahca attends by softmax, expected model.attention.normalisation softmax"},
    {{OF_AHCA, {ATTENTION("dropout"), "0.5"}}, "ahca has no dropout of attention weights, expected model.attention.dropout 0"},
    {{OF_AHCA, {"model.key_heads", "2"}},
     "model.architecture ahca has keys for every head: model.key_heads is 2, expected as many as model.heads, 4"},
    {{OF_AHCA, {"model.attention_width", "256"}},
     "model.architecture ahca divides the width of its tokens among heads, expected no model.attention_width"},
    {{OF_AHCA, {"model.recompute", "true"}},
     "model.recompute is for stacks of blocks, expected false with model.architecture ahca, or model.ahca.local_layers of at least 1"},
    {{OF_AHCA, {"model.heads", "4"}, {"model.width", "36"}, {AHCA("local_layers"), "1"}, {"model.positions", "learned"}},
     "model.width / model.heads is 9; local layers have rotary positions and need an even number, or model.positions none"},
    {{OF_AHCA, {"model.initialisation", "xavier"}}, "ahca has its own initial weights, expected no model.initialisation xavier"},
};

/* The trainer's message is that of the network, after the source of a value and the name of the option. The name is left out if the message
 * begins with it. */
static void networks_and_the_trainer_refuse_the_same(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    begin();
    configure(cases[i].settings);
    const hark_network_config network = configuration();
    refused_by_network(&network, cases[i].message);
    if (hark_options_problem_count(options) != 1)
      fail_msg("\"%s\": %d problems in the trainer, expected 1", cases[i].message, hark_options_problem_count(options));
    const char *const problem = hark_options_problem(options, 0), *const tail = problem + strlen(problem) - strlen(cases[i].message);
    if (strncmp(problem, "here: ", 6) != 0 || strlen(problem) < strlen(cases[i].message) || strcmp(tail, cases[i].message) != 0)
      fail_msg("\"%s\", expected \"here: ...%s\"", problem, cases[i].message);
    end();
  }
}

static void one_class(hark_network_config *c) { c->classes = 1; }
static void no_classes(hark_network_config *c) { c->classes = 0; }
static void classes(hark_network_config *c) { c->classes = CLASSES; }
static void three_parts(hark_network_config *c) { c->parts = 3; }
static void two_parts(hark_network_config *c) { c->parts = 2; }
static void sentences(hark_network_config *c) { c->sentences = true; }
static void five_tokens(hark_network_config *c) { c->vocabulary = 5; }
static void responses(hark_network_config *c) { c->responses = RESPONSES; }
static void no_vectors(hark_network_config *c) { c->features = c->responses = 0; }
static void vectors(hark_network_config *c) {
  c->features = 5;
  c->responses = RESPONSES;
}
static void vectors_with_numbers(hark_network_config *c) {
  vectors(c);
  c->ahca.head = HARK_AHCA_HEAD_REGRESSION;
}

/* Rules of options and what the data determine. */
static const struct {
  const char *settings[SETTINGS][2];
  void (*change)(hark_network_config *);
  const char *message;
} data_cases[] = {
#define OF_ENCODER                                                                                                                         \
  {"model.architecture", "encoder"}, { "data.format", "listops" }
    {{OF_ENCODER}, one_class, "an encoder predicts classes: there are 1, expected at least 2"},
    {{OF_ENCODER}, three_parts, "an encoder reads 3 sequences per example, expected 1 or 2"},
    {{OF_ENCODER, {"model.head_width", "1"}}, two_parts, "model.head_width is 1, expected at least 2 for pairs"},
    {{OF_ENCODER, {"model.head", "embedding"}}, classes, "model.head embedding predicts no classes: there are 3, expected 0"},
    {{OF_ENCODER, {"model.pooling", "pooler"}, {"model.pooler", "true"}},
     two_parts,
     "model.pooling pooler reads one sequence per example, the data have 2"},
    {{SCALED("dynamic")},
     sentences,
     "model.rotary.scaling dynamic depends on the length of a text, expected texts that are read one by one, no sentences"},
    {{COMPRESSED, {ATTENTION("delimiters"), "4,5"}}, five_tokens, "model.attention.delimiters has 5, expected tokens, 0 to 4"},
    {{{NULL}}, responses, "vectors of 0 features and 2 responses, expected both at least 1, or none"},
    {{{NULL}}, vectors, "model.architecture decoder reads tokens of a vocabulary, and the data are real vectors of 5 features"},
    {{OF_LATENT}, no_vectors, "model.architecture latent reads real vectors, and the data are tokens of a vocabulary"},
    {{OF_LATENT}, vectors, "latent adds to the tokens themselves: they have 5 features, and model.width is 512"},
    {{OF_AHCA}, vectors, "real vectors have numbers to predict, expected model.ahca.head data or regression"},
    {{OF_AHCA, {AHCA("chunk"), "delimiter"}},
     vectors_with_numbers,
     "real vectors have no delimiters, expected model.ahca.chunk fixed, semantic or learned"},
    {{OF_AHCA, {AHCA("head"), "regression"}}, no_classes, "model.ahca.head regression predicts numbers: there are 0, expected at least 1"},
    {{OF_AHCA}, one_class, "ahca predicts classes: there are 1, expected at least 2"},
    {{OF_AHCA, {AHCA("head"), "labels"}}, classes, "model.ahca.head labels predicts tokens, and the data have classes, expected classes"},
    {{OF_AHCA}, two_parts, "ahca reads one sequence per example, the data have 2"},
};

/* The trainer does not know the data when it checks a configuration. */
static void networks_refuse_data_that_do_not_fit(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof data_cases / sizeof *data_cases; i++) {
    hark_network *made = NULL;
    begin();
    configure(data_cases[i].settings);
    if (hark_options_problem_count(options) > 0) fail_msg("%s", hark_options_problem(options, 0));
    hark_network_config network = configuration();
    assert_fine(context, hark_network_declare(context, &network, HARK_F32, &made));
    hark_network_destroy(context, &made);
    data_cases[i].change(&network);
    refused_by_network(&network, data_cases[i].message);
    end();
  }
}

/* Without selected tokens, rules of the second level do not apply: a struct that was filled by hand may have no slots of it. */
static void rules_of_the_second_level_need_it(void **state) {
  (void)state;
  static const char *const settings[][SETTINGS][2] = {
      {OF_AHCA, {"model.positional", "decay"}, {AHCA("secondary_pool"), "attention"}},
      {OF_AHCA, {AHCA("secondary_pool"), "attention"}, {AHCA("secondary_width"), "30"}},
      {OF_AHCA, {AHCA("select"), "query"}, {AHCA("secondary_width"), "16"}},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    hark_network *made = NULL;
    begin();
    configure(settings[i]);
    assert_int_equal(hark_options_problem_count(options), 1);
    hark_network_config network = configuration();
    network.ahca.selected = network.ahca.secondary_slots = 0;
    assert_fine(context, hark_network_declare(context, &network, HARK_F32, &made));
    hark_network_destroy(context, &made);
    network.ahca.selected = 1;
    assert_failure(context, hark_network_declare(context, &network, HARK_F32, &made), HARK_BAD_CONFIGURATION, "model.ahca.");
    end();
  }
}

static void every_rule_has_a_case(void **state) {
  const hark_model_rule *rule;
  int count = 0;
  networks_and_the_trainer_refuse_the_same(state);
  networks_refuse_data_that_do_not_fit(state);
  for (int i = 0; (rule = hark_model_rule_at(i)) != NULL; i++, count++)
    if (!violated[i]) fail_msg("rule %d, of %s, is not violated by a case", i, rule->options);
  assert_int_equal(count, sizeof cases / sizeof *cases + sizeof data_cases / sizeof *data_cases - 13); /* some have several cases */
}

/* A name that is misspelt would lose the source of the trainer's message. */
static void rules_name_options_of_models(void **state) {
  (void)state;
  const hark_model_rule *rule;
  for (int i = 0; (rule = hark_model_rule_at(i)) != NULL; i++) {
    char names[512];
    (void)snprintf(names, sizeof names, "%s", rule->options);
    for (char *name = strtok(names, " "); name != NULL; name = strtok(NULL, " "))
      if (hark_model_option_find(name) == NULL) fail_msg("rule %d: %s is no option of a model", i, name);
  }
}

/* The trainer reports all violated rules at once; the network the first. */
static void the_trainer_collects(void **state) {
  (void)state;
  static const char *const settings[SETTINGS][2] = {
      {"model.width", "30"}, {"model.key_heads", "3"}, HIERARCHICAL, {ATTENTION("hierarchy_block"), "5"}};
  begin();
  configure(settings);
  const hark_network_config network = configuration();
  hark_network *made = NULL;
  assert_int_equal(hark_options_problem_count(options), 3);
  assert_string_equal(hark_options_problem(options, 0), "here: model.width 30 is not divisible by model.heads 4");
  assert_string_equal(hark_options_problem(options, 1), "here: model.key_heads: model.heads 4 is not divisible by model.key_heads 3");
  assert_string_equal(hark_options_problem(options, 2), "here: model.attention.hierarchy_block is 5, expected an even number");
  assert_failure(context, hark_network_declare(context, &network, HARK_F32, &made), HARK_BAD_CONFIGURATION,
                 "model.width 30 is not divisible by model.heads 4");
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(networks_and_the_trainer_refuse_the_same),
                                     cmocka_unit_test(networks_refuse_data_that_do_not_fit),
                                     cmocka_unit_test(rules_of_the_second_level_need_it),
                                     cmocka_unit_test(every_rule_has_a_case),
                                     cmocka_unit_test(rules_name_options_of_models),
                                     cmocka_unit_test(the_trainer_collects)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

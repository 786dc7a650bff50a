/* test_options_needs.c - options that have no effect without others: which are refused, in which words, and what their needs print. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "config/options_place.h"

typedef struct need_values {
  int64_t window, layers, seed;
  double sigma, dropout;
  int kernel;
  bool gate, learned;
  const char *expression;
  hark_string_list items;
  hark_layer_choice structure;
  double stretch, rate, fraction, decay;
} need_values;
#define N(field) offsetof(need_values, field)
static const hark_option need_options[] = {
    {"m.structure", "structure", HARK_OPTION_LAYERS, N(structure), "dense", "dense|window|hierarchical", NULL, NULL, "", NULL},
    {"m.window", "window", HARK_OPTION_INT, N(window), "8", NULL, NULL, NULL, "", "m.structure window"},
    {"m.kernel", "kernel", HARK_OPTION_ENUM, N(kernel), "exp", "exp|rbf|normalised", NULL, NULL, "", NULL},
    {"m.sigma", "sigma", HARK_OPTION_FLOAT, N(sigma), "1", NULL, NULL, NULL, "", "m.kernel rbf"},
    {"m.gate", "gate", HARK_OPTION_BOOL, N(gate), "true", NULL, NULL, NULL, "", "m.kernel !rbf, m.structure !dense"},
    {"m.layers", "layers", HARK_OPTION_INT, N(layers), "4", NULL, NULL, NULL, "", NULL},
    {"m.dropout", "dropout", HARK_OPTION_FLOAT, N(dropout), "0", NULL, NULL, NULL, "", "m.layers >=2"},
    {"m.seed", "seed", HARK_OPTION_INT, N(seed), "0", NULL, NULL, NULL, "", "m.dropout >0"},
    {"m.expression", "expression", HARK_OPTION_STRING, N(expression), "", NULL, NULL, "EXPR", "", NULL},
    {"m.learned", "learned", HARK_OPTION_BOOL, N(learned), "false", NULL, NULL, NULL, "", NULL},
    {"m.rate", "rate", HARK_OPTION_FLOAT, N(rate), "1", NULL, NULL, NULL, "", "m.expression given or m.learned true"},
    {"m.items", "item", HARK_OPTION_LIST, N(items), "", NULL, NULL, NULL, "", NULL},
    {"m.fraction", "fraction", HARK_OPTION_FLOAT, N(fraction), "0.5", NULL, NULL, NULL, "", "m.items none"},
    {"m.stretch", "stretch", HARK_OPTION_FLOAT, N(stretch), "1", NULL, NULL, NULL, "", "$1 make, $2 copy|recall"},
    {"m.decay", "decay", HARK_OPTION_FLOAT, N(decay), "1", NULL, NULL, NULL, "", "m.expression given or m.learned true, m.kernel exp|rbf"},
};
#undef N
static const hark_option_table need_table = {need_options, sizeof need_options / sizeof *need_options, NULL, sizeof(need_values), true};

static need_values own;

static int begin(void **state) {
  (void)state;
  options_place_open(&need_table, &own);
  return 0;
}

static int end(void **state) {
  (void)state;
  options_place_close();
  return 0;
}

/* What an option needs, as its help (flags) or the reference (keys) prints it. */
static void expect_needs(const char *name, bool keys, const char *expected) {
  hark_text text = hark_text_empty(context);
  for (int i = 0; i < need_table.count; i++)
    if (strcmp(need_options[i].name, name) == 0) hark_option_print_needs(options, &need_options[i], keys, &text);
  assert_string_equal(hark_text_get(&text), expected);
  hark_text_free(&text);
}

/* A command line, after a file, and before both what a run has recorded: what is refused, and in which words. */
static void options_without_effect_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *run, *file, *words, *problems[3];
  } cases[] = {
      {"", "", "--window 8", {"--window: has no effect here, it needs --structure window (currently dense)"}},
      {"", "", "--structure dense,window --window 3", {NULL}},
      {"", "", "--structure hierarchical,dense --window 3", {"it needs --structure window (currently hierarchical,dense)"}},
      {"", "", "--sigma 1 --window 1", {"--window: ", "--sigma: has no effect here, it needs --kernel rbf (currently exp)"}},
      {"", "", "--no-gate --structure window,dense --kernel normalised", {NULL}},
      {"", "", "--no-gate", {"--no-gate: has no effect here, it needs --structure other than dense (currently dense)"}},
      {"", "", "--gate --kernel rbf --structure window", {"--gate: has no effect here, it needs --kernel other than rbf (currently rbf)"}},
      {"", "", "--dropout .5 --layers 1", {"--dropout: has no effect here, it needs --layers of at least 2 (currently 1)"}},
      {"", "", "--seed 3", {"--seed: has no effect here, it needs --dropout above 0 (currently 0)"}},
      {"", "", "--seed 3 --dropout 1e-300", {NULL}},
      {"", "", "--rate 2", {"--rate: has no effect here, it needs --expression EXPR or --learned"}},
      {"", "", "--rate 2 --learned", {NULL}},
      {"", "", "--rate 2 --expression decay", {NULL}},
      {"", "", "--item a --fraction 0.1", {"--fraction: cannot be used together with --item"}},
      {"", "", "--stretch 2 info recall", {"--stretch: has no effect here, it needs train make"}},
      {"", "", "--stretch 2 make listops", {"--stretch: has no effect here, it needs train make copy or recall"}},
      {"", "", "--stretch 2 make copy", {NULL}},
      /* files may list what is so anyway, in other words too; what they ask for is looked at as they have it */
      {"", "m: {window: 8, sigma: 1.0, dropout: 0, layers: 1, fraction: .5, items: []}", "", {NULL}},
      {"", "m.window: 9\nm.seed: 2", "", {"c.yaml:1: m.window: has no effect here, it needs m.structure window", "c.yaml:2: m.seed: "}},
      {"", "m: {window: 9, structure: window}", "--structure dense", {NULL}},
      {"", "m: {window: 9}", "--structure dense", {NULL}},
      {"",
       "m: {sigma: 9}",
       "--structure window --window 2",
       {"c.yaml:1: m.sigma: has no effect here, it needs m.kernel rbf (currently exp)"}},
      /* of a run nothing is refused; it has what is needed */
      {"m: {window: 9, sigma: 3, seed: 4}", "", "", {NULL}},
      {"m: {window: 9, structure: window}", "", "--window 2", {NULL}},
      {"m: {window: 9, structure: dense}", "", "--window 2", {"--window: has no effect here"}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    options_place_again(&need_table, &own);
    arguments(cases[i].words);
    yaml(cases[i].file);
    assert_fine(context, hark_options_read_yaml(context, options, test_file_write_text(folder, "r.yaml", cases[i].run), HARK_SOURCE_RUN));
    int expected = 0;
    while (expected < 3 && cases[i].problems[expected] != NULL) expected++;
    for (int twice = 0; twice < 2; twice++) { /* they are found once */
      assert_fine(context, hark_options_refuse_idle(context, options));
      if (hark_options_problem_count(options) != expected)
        fail_msg("case %d: %d problems, expected %d: %s", (int)i, hark_options_problem_count(options), expected,
                 hark_options_problem_count(options) > 0 ? hark_options_problem(options, 0) : "");
      expect_problems(cases[i].problems, expected);
    }
  }
}

/* Whether an option has an effect is a matter of values alone; one that is put back is as if it had not been given. */
static void effects_are_known(void **state) {
  (void)state;
  hark_text text = hark_text_empty(context);
  assert_true(hark_options_has_effect(options, "m.kernel") && !hark_options_has_effect(options, "m.window"));
  assert_false(hark_options_is_idle(options, "m.window"));
  arguments("--window 3 --item a --item b");
  assert_true(hark_options_is_idle(options, "m.window") && !hark_options_has_effect(options, "m.fraction"));
  assert_fine(context, hark_options_reset(context, options, "m.window"));
  assert_fine(context, hark_options_reset(context, options, "m.items"));
  assert_int_equal(own.window, 8);
  assert_int_equal(own.items.count, 0);
  assert_true(hark_options_source(options, "m.window") == HARK_SOURCE_DEFAULT && hark_options_has_effect(options, "m.fraction"));
  assert_fine(context, hark_options_refuse_idle(context, options));
  assert_int_equal(hark_options_problem_count(options), 0);
  expect_needs("m.rate", false, "--expression EXPR or --learned");
  expect_needs("m.gate", true, "m.kernel other than rbf; m.structure other than dense");
  expect_needs("m.decay", false, "(--expression EXPR or --learned), and --kernel exp or rbf");
  expect_needs("m.decay", true, "m.expression EXPR or m.learned; m.kernel exp or rbf");
  hark_options_print_help(options, NULL, &text);
  assert_non_null(strstr(hark_text_get(&text), "needs --structure window (8)"));
  assert_non_null(strstr(hark_text_get(&text), "; cannot be used together with --item (0.5)"));
  hark_text_free(&text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(options_without_effect_are_refused),
      TEST(effects_are_known),
  };
  return cmocka_run_group_tests_name("options_needs", tests, NULL, NULL);
}

/* test_options.c - the option engine: defaults, precedence, spelling, problems, and what it writes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"
#include "config/options_place.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

typedef struct values {
  bool flag, other;
  int64_t count;
  double rate, time;
  int normalisation;
  const char *name;
  hark_string_list paths;
  hark_layer_choice kinds;
} values;

static const hark_option table_options[] = {
    {"model.count", "count n", HARK_OPTION_INT, offsetof(values, count), "4", "[1, 10]", NULL, NULL, "a count", NULL},
    {"model.flag", "flag", HARK_OPTION_BOOL, offsetof(values, flag), "true", NULL, NULL, NULL, "a flag", NULL},
    {"model.part.normalisation", "normalisation", HARK_OPTION_ENUM, offsetof(values, normalisation), "softmax", "softmax|cme", NULL, NULL,
     "words", NULL},
    {"train.learning_rate", "learning-rate lr", HARK_OPTION_FLOAT, offsetof(values, rate), "1e-3", "(0, 1)", "train", NULL, "a rate", NULL},
    {"train.time", NULL, HARK_OPTION_DURATION, offsetof(values, time), "0", "[0, inf)", NULL, NULL, "a time", NULL},
    {"train.other", NULL, HARK_OPTION_BOOL, offsetof(values, other), "false", NULL, NULL, NULL, "another flag", NULL},
    {"data.name", "name", HARK_OPTION_STRING, offsetof(values, name), "none", NULL, NULL, NULL, "a name", NULL},
    {"data.paths", "data", HARK_OPTION_LIST, offsetof(values, paths), "", NULL, NULL, NULL, "paths", NULL},
    {"data.kinds", "kinds", HARK_OPTION_LAYERS, offsetof(values, kinds), "dense", "dense|window|hierarchical", NULL, NULL, "kinds", NULL},
};
static const hark_option_table table = {table_options, sizeof table_options / sizeof *table_options, NULL, sizeof(values), true};

static values v;

static int begin(void **state) {
  (void)state;
  options_place_open(&table, &v);
  return 0;
}

static int end(void **state) {
  (void)state;
  options_place_close();
  return 0;
}

static void defaults_are_set(void **state) {
  (void)state;
  assert_int_equal(v.count, 4);
  assert_true(v.flag);
  assert_false(v.other);
  assert_true(v.rate == 1e-3);
  assert_int_equal(v.normalisation, 0);
  assert_string_equal(v.name, "none");
  assert_int_equal(v.paths.count, 0);
  assert_string_equal(hark_options_where(options, "model.count"), "default");
  assert_int_equal(hark_options_finish(context, options), HARK_OK);
}

static void flags_have_all_their_forms(void **state) {
  (void)state;
  arguments("--model.count 5 --no-flag --train.learning-rate=0.5 --train.time 1h30m --train.other a --data x --data y -- --name");
  assert_int_equal(v.count, 5);
  assert_false(v.flag);
  assert_true(v.other);
  assert_true(v.rate == 0.5);
  assert_true(v.time == 5400);
  assert_int_equal(v.paths.count, 2);
  assert_string_equal(v.paths.items[1], "y");
  assert_int_equal(hark_options_argument_count(options), 2);
  assert_string_equal(hark_options_argument(options, 0), "a");
  assert_string_equal(hark_options_argument(options, 1), "--name");
  arguments("-n 6 --flag --learning_rate 2e-2 --name= --train.other=off --normalization cme");
  assert_int_equal(v.count, 6);
  assert_true(v.flag);
  assert_true(v.rate == 2e-2);
  assert_string_equal(v.name, "");
  assert_false(v.other);
  assert_int_equal(v.normalisation, 1);
  assert_string_equal(hark_options_where(options, "train.learning_rate"), "--learning_rate");
  assert_int_equal(hark_options_problem_count(options), 0);
}

/* Lists are taken item by item, empty ones are nothing, and a higher source has the last word. */
static void options_are_copied_from_another_set(void **state) {
  (void)state;
  static values w;
  hark_options *from = NULL;
  const hark_option_group group = {&table, &w};
  const char *const words[] = {"--count", "7", "--name", "a b"};
  assert_fine(context, hark_options_create(context, "train", &group, 1, &from));
  assert_fine(context, hark_options_read_arguments(context, from, 4, words));
  assert_fine(context, hark_options_copy(context, options, from, "data.paths", "run", HARK_SOURCE_RUN));
  assert_int_equal(v.paths.count, 0);
  const char *const paths[] = {"--data", "x", "--data", "y z"};
  assert_fine(context, hark_options_read_arguments(context, from, 4, paths));
  arguments("--count 5");
  for (int i = 0; i < table.count; i++)
    assert_fine(context, hark_options_copy(context, options, from, table.options[i].name, "run", HARK_SOURCE_RUN));
  assert_int_equal(v.count, 5);
  assert_string_equal(v.name, "a b");
  assert_int_equal(v.paths.count, 2);
  assert_string_equal(v.paths.items[1], "y z");
  assert_int_equal(hark_options_problem_count(options), 0);
  hark_options_destroy(context, &from);
}

/* One word, several with commas, a sequence; what is written reads back; a flag counts more than a file. */
static void words_for_the_layers_are_read(void **state) {
  (void)state;
  char expected[160];
  hark_text text = hark_text_empty(context);
  assert_true(v.kinds.count == 1 && v.kinds.words[0] == 0);
  yaml("data.kinds: [window, dense, hierarchical, ]\n");
  assert_true(v.kinds.count == 3 && v.kinds.words[0] == 1 && v.kinds.words[1] == 0 && v.kinds.words[2] == 2);
  assert_int_equal(hark_layer_choice_of(&v.kinds, 4), 0);
  hark_options_print_value(options, "data.kinds", &text);
  assert_string_equal(hark_text_get(&text), "window,dense,hierarchical");
  hark_text_free(&text);
  hark_options_print_json(options, &text);
  assert_non_null(strstr(hark_text_get(&text), "\"kinds\": \"window,dense,hierarchical\""));
  hark_text_free(&text);
  hark_options_print_yaml(options, false, &text);
  assert_non_null(strstr(hark_text_get(&text), "kinds: window,dense,hierarchical\n"));
  yaml(hark_text_get(&text));
  hark_text_free(&text);
  assert_int_equal(v.kinds.count, 3);
  yaml("data:\n  kinds:\n    - hierarchical\n    - window\n");
  assert_true(v.kinds.count == 2 && v.kinds.words[0] == 2 && v.kinds.words[1] == 1);
  yaml("data.kinds: dense , window");
  assert_true(v.kinds.count == 2 && v.kinds.words[0] == 0 && v.kinds.words[1] == 1);
  arguments("--kinds hierarchical,dense");
  assert_true(v.kinds.count == 2 && v.kinds.words[0] == 2 && v.kinds.words[1] == 0);
  yaml("data.kinds: [window, dense, dense]");
  assert_true(v.kinds.count == 2 && v.kinds.words[0] == 2);
  assert_int_equal(hark_options_problem_count(options), 0);
  arguments("--kinds window,hierarchial");
  arguments("--kinds=");
  arguments("--kinds dense,");
  yaml("data.kinds: [windw, dense]");
  yaml("data.kinds: []\ndata.name: x\n");
  yaml("data: {kinds: []}");
  yaml("data.kinds: {dense: 1}");
  char many[8 * (HARK_LAYER_CHOICE_WORDS + 1) + 16] = "--kinds=dense";
  for (int i = 0; i < HARK_LAYER_CHOICE_WORDS; i++) strcat(many, ",dense");
  const char *const word = many;
  assert_fine(context, hark_options_read_arguments(context, options, 1, &word));
  snprintf(expected, sizeof expected,
           "expected one of dense, window, hierarchical, or up to %d of them for the layers in turn, with commas", HARK_LAYER_CHOICE_WORDS);
  const char *const problems[] = {"--kinds: \"hierarchial\" given, expected one of dense, window, hierarchical, or up to",
                                  expected,
                                  expected,
                                  "\"windw\" given, expected one of dense",
                                  "\"[]\" given",
                                  "\"[]\" given",
                                  "\"{...}\" given",
                                  expected};
  expect_problems(problems, 8);
  assert_true(v.kinds.count == 2 && v.kinds.words[0] == 2);
}

static void the_command_line_wins_over_files_whatever_comes_first(void **state) {
  (void)state;
  arguments("--count 9 --data flag");
  yaml("model:\n  count: 3\n  flag: no\n  part: {normalization: cme}\ndata:\n  paths: [p, q]\n  name: ~\ntrain:\n");
  assert_int_equal(v.count, 9);
  assert_int_equal(v.paths.count, 1);
  assert_string_equal(v.paths.items[0], "flag");
  assert_false(v.flag);
  assert_int_equal(v.normalisation, 1);
  assert_string_equal(v.name, "");
  assert_int_equal(hark_options_source(options, "model.flag"), HARK_SOURCE_FILE);
  assert_non_null(strstr(hark_options_where(options, "model.flag"), "c.yaml:3"));
  assert_fine(context,
              hark_options_read_yaml(context, options, test_file_write_text(folder, "r.yaml", "model.flag: yes"), HARK_SOURCE_RUN));
  assert_false(v.flag); /* the run's own file ranks below */
  assert_int_equal(hark_options_problem_count(options), 0);
}

static void a_list_in_a_file_may_be_one_text(void **state) {
  (void)state;
  yaml("data.paths: one\n");
  assert_int_equal(v.paths.count, 1);
  arguments("--data a --data b --data c --data d --data e");
  assert_int_equal(v.paths.count, 5);
  assert_string_equal(v.paths.items[4], "e");
}

/* Some 50 bytes an item, however long the path of the file is. */
static void a_long_list_costs_what_it_holds(void **state) {
  (void)state;
  enum { ITEMS = 20000 };
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "data:\n  paths:\n");
  for (int i = 0; i < ITEMS; i++) hark_text_append(&text, "  - a\n");
  assert_fine(context, text.status);
  const size_t before = hark_context_memory(context).live_bytes;
  yaml(hark_text_get(&text));
  assert_int_equal(v.paths.count, ITEMS);
  assert_true(hark_context_memory(context).live_bytes - before < (size_t)64 * ITEMS);
  assert_non_null(strstr(hark_options_where(options, "data.paths"), "c.yaml:2"));
  hark_text_free(&text);
}

/* A problem is one line, whatever the file is called. */
static void odd_names_of_files_stay_on_one_line(void **state) {
  (void)state;
  const char *const path = test_file_write_text(folder, "c\n\x1b.yaml", "model.cuont: 1\n");
  assert_fine(context, hark_options_read_yaml(context, options, path, HARK_SOURCE_FILE));
  expect_problem("c??.yaml:1: model.cuont: unknown key; did you mean model.count?");
}

static void all_problems_are_reported_at_once(void **state) {
  (void)state;
  static const char *const parts[] = {"--count: \"11\" given, expected a whole number in [1, 10]",
                                      "--lr: \"1\" given, expected a number in (0, 1)",
                                      "--normalisation: \"max\" given, expected one of softmax, cme",
                                      "--flag: \"perhaps\" given, expected true or false",
                                      "--train.time: \"5x\" given, expected a time such as 90s",
                                      "--cuont: unknown flag; did you mean --count?",
                                      "--zzzzzz: unknown flag",
                                      "--no-flag: takes no value",
                                      "--name: needs a value",
                                      "c.yaml:2: model.count: \"x\" given",
                                      "c.yaml:3: model.flags: unknown key; did you mean model.flag?",
                                      "c.yaml:4: model.part: a value given, expected a section",
                                      "c.yaml:5: trian: unknown key; did you mean train?",
                                      "c.yaml:7: data: a list given, expected a section"};
  arguments("--count 11 --lr 1 --normalisation max --flag=perhaps --train.time 5x --cuont=3 --zzzzzz --no-flag=1 --name");
  yaml("model:\n  count: x\n  flags: 3\n  part: 3\ntrian:\n  other: true\ndata: [1]\n");
  expect_problems(parts, (int)(sizeof parts / sizeof parts[0]));
  assert_failure(context, hark_options_finish(context, options), HARK_BAD_CONFIGURATION, "(and 13 more problems)");
  assert_int_equal(v.count, 4);
}

static void a_value_that_is_overridden_is_checked_too(void **state) {
  (void)state;
  arguments("--count 2");
  yaml("model: {count: 0}");
  expect_problem("model.count: \"0\" given, expected a whole number in [1, 10]");
  assert_int_equal(v.count, 2);
}

static void nested_where_a_value_belongs_is_a_problem(void **state) {
  (void)state;
  static const char *const parts[] = {"model.count: \"[...]\" given", "model.flag: \"{...}\" given", "data.name.more: unknown key"};
  yaml("model:\n  count: [1, 2]\n  flag: {a: 1, b: [2, {c: 3}]}\ndata:\n  name.more: 1\n");
  expect_problems(parts, 3);
}

static void negative_numbers_are_values(void **state) {
  (void)state;
  arguments("--lr -1");
  expect_problem("--lr: \"-1\" given");
}

static void one_letter_flags_have_one_dash(void **state) {
  (void)state;
  static const char *const parts[] = {"--n: unknown flag", "-count: unknown flag; did you mean --count?"};
  arguments("--n=3 -count=3");
  expect_problems(parts, 2);
}

static void flags_of_other_subcommands_are_refused(void **state) {
  (void)state;
  const hark_option_group group = {&table, &v};
  hark_options_destroy(context, &options);
  assert_fine(context, hark_options_create(context, "eval", &group, 1, &options));
  arguments("--lr 0.5");
  yaml("train.learning_rate: 0.25");
  expect_problem("--lr: does not apply to eval (it applies to: train)");
  assert_true(v.rate == 0.25); /* a file may hold them */
}

/* A flag of two options means the one that the subcommand takes; no subcommand takes two options of one flag. */
static void subcommands_may_share_a_flag(void **state) {
  (void)state;
  struct {
    hark_string_list rates;
  } own;
  hark_option rates = {"rates", "lr", HARK_OPTION_LIST, 0, "", NULL, "eval", "X,...", "rates", NULL};
  const hark_option_table second = {&rates, 1, NULL, sizeof own, false};
  for (int order = 0; order < 2; order++) {
    const hark_option_group groups[2][2] = {{{&table, &v}, {&second, &own}}, {{&second, &own}, {&table, &v}}};
    hark_options_destroy(context, &options);
    assert_fine(context, hark_options_create(context, "eval", groups[order], 2, &options));
    arguments("--lr 7,8 --lr 9");
    assert_int_equal(hark_options_problem_count(options), 0);
    assert_int_equal(own.rates.count, 2);
    assert_true(v.rate == 1e-3);
    hark_options_destroy(context, &options);
    assert_fine(context, hark_options_create(context, "train", groups[order], 2, &options));
    arguments("--lr 0.5");
    assert_int_equal(own.rates.count, 0);
    assert_true(v.rate == 0.5);
  }
  rates.commands = "eval train";
  const hark_option_group groups[] = {{&table, &v}, {&second, &own}};
  hark_options *none = NULL;
  assert_failure(context, hark_options_create(context, "train", groups, 2, &none), HARK_INTERNAL_ERROR,
                 "options train.learning_rate and rates share a flag");
}

static void checks_of_several_options_say_where(void **state) {
  (void)state;
  yaml("model:\n  count: 3\n");
  assert_fine(context, hark_options_complain(context, options, "train.time model.count", "%d is odd", 3));
  assert_fine(context, hark_options_complain(context, options, "train.time", "is 0"));
  arguments("--lr 7");
  assert_fine(context, hark_options_complain(context, options, "model.count train.learning_rate", "not reported: lr is already wrong"));
  static const char *const parts[] = {"c.yaml:2: model.count: 3 is odd", "train.time: is 0", "--lr: \"7\""};
  expect_problems(parts, 3);
}

static void odd_values_stay_on_one_line(void **state) {
  (void)state;
  const char *const words[] = {"--count", "a\nb\x1b[31m", "--model.\n",
                               "--count=0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"};
  assert_fine(context, hark_options_read_arguments(context, options, 4, words));
  static const char *const parts[] = {"\"a?b?[31m\"", "--model.?: unknown flag", "...\" given"};
  expect_problems(parts, 3);
}

static void the_written_file_reads_back(void **state) {
  (void)state;
  arguments("--count 7 --no-flag --lr 0.1 --train.time 90s --normalisation cme --data plain");
  const char *const words[] = {"--data",        "with \"quotes\" and: colon\n\xc3\xa9", "--data", "", "--data", "true", "--data", "12",
                               "--name=- a # b"};
  assert_fine(context, hark_options_read_arguments(context, options, 9, words));
  for (int comments = 0; comments < 2; comments++) {
    hark_text first = hark_text_empty(context), second = hark_text_empty(context);
    hark_options_print_yaml(options, comments != 0, &first);
    assert_fine(context, first.status);
    values back;
    const hark_option_group group = {&table, &back};
    hark_options *other;
    assert_fine(context, hark_options_create(context, NULL, &group, 1, &other));
    const char *const path = test_file_write_text(folder, "back.yaml", hark_text_get(&first));
    assert_fine(context, hark_options_read_yaml(context, other, path, HARK_SOURCE_FILE));
    assert_fine(context, hark_options_finish(context, other));
    hark_options_print_yaml(other, comments != 0, &second);
    assert_string_equal(hark_text_get(&first), hark_text_get(&second));
    assert_int_equal(back.paths.count, 5);
    assert_string_equal(back.paths.items[1], "with \"quotes\" and: colon\n\xc3\xa9");
    assert_string_equal(back.name, "- a # b");
    assert_true(back.rate == 0.1 && back.time == 90 && back.count == 7 && !back.flag && back.normalisation == 1);
    hark_options_destroy(context, &other);
    hark_text_free(&first);
    hark_text_free(&second);
  }
}

static void json_holds_all_values(void **state) {
  (void)state;
  arguments("--data a --data b");
  hark_text text = hark_text_empty(context);
  hark_options_print_json(options, &text);
  json_error_t error;
  json_t *const object = json_loads(hark_text_get(&text), JSON_REJECT_DUPLICATES, &error);
  if (object == NULL) fail_msg("%s in %s", error.text, hark_text_get(&text));
  const json_t *const model = json_object_get(object, "model"), *const data = json_object_get(object, "data");
  assert_int_equal(json_integer_value(json_object_get(model, "count")), 4);
  assert_string_equal(json_string_value(json_object_get(json_object_get(model, "part"), "normalisation")), "softmax");
  assert_int_equal(json_array_size(json_object_get(data, "paths")), 2);
  assert_true(json_real_value(json_object_get(json_object_get(object, "train"), "learning_rate")) == 1e-3);
  assert_int_equal(json_object_size(object), 3);
  json_decref(object);
  hark_text_free(&text);
}

static void help_and_reference_name_every_option(void **state) {
  (void)state;
  hark_text help = hark_text_empty(context), reference = hark_text_empty(context);
  hark_options_print_help(options, NULL, &help);
  hark_options_print_markdown(options, &reference);
  for (int i = 0; i < table.count; i++) {
    assert_non_null(strstr(hark_text_get(&help), table.options[i].help));
    assert_non_null(strstr(hark_text_get(&reference), table.options[i].name));
  }
  assert_non_null(strstr(hark_text_get(&help), "--count, -n N"));
  assert_non_null(strstr(hark_text_get(&help), "--no-flag"));
  assert_non_null(strstr(strstr(hark_text_get(&help), "--no-flag"), "do not "));
  assert_non_null(strstr(hark_text_get(&help), "one of softmax, cme"));
  hark_text_free(&help);
  hark_text_free(&reference);
}

/* One of two values would be lost; the same once more says nothing else. Lists collect. */
static void options_are_given_once(void **state) {
  (void)state;
  arguments("--count 5 --flag --count 5 --model.count=5.0 --name a --data a --data b --train.time 90s");
  assert_int_equal(hark_options_problem_count(options), 0);
  assert_int_equal(v.paths.count, 2);
  arguments(
      "--count 6 -n 7 --no-flag --flag --name a --name b --lr 1e-3 --learning-rate .1 --kinds dense --kinds window --normalization cme "
      "--model.part.normalisation softmax --count 8");
  static const char *const problems[] = {
      "-n: given twice, \"7\" and with --count \"6\", expected once",
      "--flag: given twice, \"true\" and with --no-flag \"false\", expected once",
      "--name: given twice, as \"a\" and \"b\", expected once",
      "--learning-rate: given twice, \".1\" and with --lr \"0.001\", expected once",
      "--kinds: given twice, as \"dense\" and \"window\", expected once",
      "--model.part.normalisation: given twice, \"softmax\" and with --normalization \"cme\", expected once"};
  expect_problems(problems, 6);
}

static void keys_are_given_once(void **state) {
  (void)state;
  static const char *const problems[] = {"c.yaml:2: model.part.normalization: key given twice", "model.count: key given twice",
                                         "data.paths: key given twice"};
  yaml("model.part.normalisation: cme\nmodel.part.normalization: softmax\n");
  yaml("model.count: 3\nmodel: {count: 4}\n");
  yaml("data.paths: [a]\ndata: {paths: b}\n");
  expect_problems(problems, 3);
  yaml("model.count: 5\n"); /* another file */
  assert_int_equal(hark_options_problem_count(options), 3);
  assert_int_equal(v.count, 5);
}

static void tables_that_contradict_themselves_are_refused(void **state) {
  (void)state;
  static const hark_option outside[] = {{"a", NULL, HARK_OPTION_INT, 0, "0", "[1, 2]", NULL, NULL, "", NULL}};
  static const hark_option twice[] = {{"a", "x y", HARK_OPTION_BOOL, 0, "true", NULL, NULL, NULL, "", NULL},
                                      {"b", "y", HARK_OPTION_BOOL, 0, "true", NULL, NULL, NULL, "", NULL}};
  static const hark_option range[] = {{"a", NULL, HARK_OPTION_INT, 0, "1", "1..2", NULL, NULL, "", NULL}};
  /* conditions of what is not there, of words that are none, of tests of another type, and such that are malformed */
  static const char *const bad[] = {"b given", "d1",        "d1 ",         "d1 one|three", "d1 >2",    "n given",    "n >x",
                                    "t one",   "d1 one or", "d1 one,n >1", "d1 one or n",  "t >=1",    "l true",     "f given",
                                    "",        "$0 x",      "$1 given",    "d1 one, ",     "d1 given", "l given or", "d1 !"};
  static const hark_option_table tables[] = {{outside, 1, NULL, 8, true}, {twice, 2, NULL, 8, true}, {range, 1, NULL, 8, true}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct {
      int64_t a, n;
      int word;
      const char *text;
      hark_string_list list;
      bool flag;
    } fields;
    const hark_option rows[] = {{"a", NULL, HARK_OPTION_INT, 0, "1", NULL, NULL, NULL, "", bad[i]},
                                {"n", NULL, HARK_OPTION_INT, 8, "1", NULL, NULL, NULL, "", "d1 one or n >=2, l none"},
                                {"d1", NULL, HARK_OPTION_ENUM, 16, "one", "one|two", NULL, NULL, "", "$1 a|b, $2 !c"},
                                {"t", NULL, HARK_OPTION_STRING, 24, "", NULL, NULL, NULL, "", "f false"},
                                {"l", NULL, HARK_OPTION_LIST, 32, "", NULL, NULL, NULL, "", "t given, n >-1.5"},
                                {"f", NULL, HARK_OPTION_BOOL, 48, "false", NULL, NULL, NULL, "", "d1 !one"}};
    const hark_option_table own = {rows, 6, NULL, sizeof fields, true};
    const hark_option_group group = {&own, &fields};
    hark_options *other;
    const hark_status status = hark_options_create(context, NULL, &group, 1, &other);
    hark_options_destroy(context, &other);
    if (status != HARK_INTERNAL_ERROR) fail_msg("needs \"%s\" is taken", bad[i]);
  }
  for (int i = 0; i < 3; i++) {
    int64_t value;
    const hark_option_group group = {&tables[i], &value};
    hark_options *other;
    assert_int_equal(hark_options_create(context, NULL, &group, 1, &other), HARK_INTERNAL_ERROR);
    assert_null(other);
  }
}

static void a_missing_file_is_not_found(void **state) {
  (void)state;
  assert_failure(context, hark_options_read_yaml(context, options, test_path(folder, "none.yaml"), HARK_SOURCE_FILE), HARK_NOT_FOUND,
                 "none.yaml");
}

/* The n-th allocation fails, for every n: a status, and no memory left. */
static void running_out_of_memory_is_a_status(void **state) {
  (void)state;
  const char *const path =
      test_file_write_text(folder, "m.yaml", "model: {count: x, flag: no}\ndata: {paths: [a, b, c], name: n}\nmodle: 1\n");
  const char *const words[] = {"--count", "5", "--lr=9", "--data", "z", "word", "--unknown"};
  bool failed = true;
  long fail_at = 1;
  for (; failed; fail_at++) {
    test_memory memory;
    hark_context *const small = test_memory_context(&memory);
    memory.fail_at = memory.allocations + fail_at;
    values w;
    const hark_option_group group = {&table, &w};
    hark_options *set;
    hark_status status = hark_options_create(small, "train", &group, 1, &set);
    if (status == HARK_OK) status = hark_options_read_arguments(small, set, 7, words);
    if (status == HARK_OK) status = hark_options_read_yaml(small, set, path, HARK_SOURCE_FILE);
    hark_text text = hark_text_empty(small);
    if (status == HARK_OK) {
      hark_options_print_help(set, NULL, &text);
      hark_options_print_json(set, &text);
      hark_options_print_markdown(set, &text);
      hark_options_print_yaml(set, true, &text);
      status = text.status;
    }
    hark_text_free(&text);
    hark_options_destroy(small, &set);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(small));
    failed = status != HARK_OK;
    test_memory_context_end(small, &memory);
  }
  assert_true(fail_at > 20); /* that many strings at least were made */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(defaults_are_set),
      TEST(flags_have_all_their_forms),
      TEST(options_are_copied_from_another_set),
      TEST(words_for_the_layers_are_read),
      TEST(the_command_line_wins_over_files_whatever_comes_first),
      TEST(a_long_list_costs_what_it_holds),
      TEST(odd_names_of_files_stay_on_one_line),
      TEST(a_list_in_a_file_may_be_one_text),
      TEST(all_problems_are_reported_at_once),
      TEST(a_value_that_is_overridden_is_checked_too),
      TEST(nested_where_a_value_belongs_is_a_problem),
      TEST(negative_numbers_are_values),
      TEST(one_letter_flags_have_one_dash),
      TEST(flags_of_other_subcommands_are_refused),
      TEST(subcommands_may_share_a_flag),
      TEST(checks_of_several_options_say_where),
      TEST(odd_values_stay_on_one_line),
      TEST(the_written_file_reads_back),
      TEST(json_holds_all_values),
      TEST(help_and_reference_name_every_option),
      TEST(options_are_given_once),
      TEST(keys_are_given_once),
      TEST(tables_that_contradict_themselves_are_refused),
      TEST(a_missing_file_is_not_found),
      TEST(running_out_of_memory_is_a_status),
  };
  return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}

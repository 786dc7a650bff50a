/* test_model_options.c - the table of model options: every row is set, reaches the network, is described, read back and refused outside of
 * its range.
 *
 * What a row needs is made to hold by reading the column `needs`, so that a new row is walked over without a change here. A row whose
 * values all clash with the rest of a configuration fails: then one that fits has to be found for it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/description.h"
#include "models/model.h"
#include "models/model_options.h"
#include "options/option_needs.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "train/engine.h"

#define VOCABULARY 40
#define CLASSES 3
#define FEATURES 16 /* = width, as latent has it */
#define RESPONSES 2
#define VALUE_BYTES 64
#define VALUES 12 /* of one option that are tried */

static hark_context *context;
static hark_options *options;
static hark_config config;

static int begin(void **state) {
  (void)state;
  const hark_option_group group = {&hark_config_table, &config};
  context = test_reference_open();
  return hark_options_create(context, NULL, &group, 1, &options) == HARK_OK ? 0 : 1;
}

static int end(void **state) {
  (void)state;
  hark_options_destroy(context, &options);
  hark_context_destroy(&context);
  return 0;
}

static void begin_again(void **state) {
  end(state);
  assert_int_equal(begin(state), 0);
}

static void set(const char *name, const char *value) {
  assert_fine(context, hark_options_set(context, options, name, value, "test", HARK_SOURCE_FILE));
}

static bool is_given(const char *name) { return hark_options_source(options, name) != HARK_SOURCE_DEFAULT; }

/* ---- values ---- */

/* The bounds of "[1, inf)". */
static void bounds_of(const char *range, double *low, double *high) {
  char *rest = NULL;
  *low = strtod(range + 1, &rest);
  *high = strtod(strchr(range, ',') + 2, &rest);
}

/* Some values of an option, as they are written; returns how many. */
static int values_of(const hark_option *option, char out[VALUES][VALUE_BYTES]) {
  static const double numbers[] = {1, 2, 4, 0.25, 8, 3, 16, 0.5, 0, 1.5};
  char word[HARK_OPTION_WORD_BYTES];
  int count = 0;
  switch (option->type) {
    case HARK_OPTION_BOOL: return snprintf(out[0], VALUE_BYTES, "true") > 0 && snprintf(out[1], VALUE_BYTES, "false") > 0 ? 2 : 0;
    case HARK_OPTION_ENUM:
    case HARK_OPTION_LAYERS:
      for (; count < VALUES && hark_option_choice_at(option->range, count, word); count++)
        (void)snprintf(out[count], VALUE_BYTES, "%.60s", word);
      break;
    case HARK_OPTION_STRING: count = snprintf(out[0], VALUE_BYTES, "decay") > 0; break;
    case HARK_OPTION_LIST:
      (void)snprintf(out[count++], VALUE_BYTES, "1,1.5,2,4"); /* pairs */
      (void)snprintf(out[count++], VALUE_BYTES, "1,3");       /* tokens */
      (void)snprintf(out[count++], VALUE_BYTES, "0.75");      /* layers but the first */
      break;
    case HARK_OPTION_INT:
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION:
      for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (hark_option_in_range(option, numbers[i]) && (option->type == HARK_OPTION_FLOAT || numbers[i] == floor(numbers[i])))
          (void)snprintf(out[count++], VALUE_BYTES, "%g", numbers[i]);
      break;
  }
  return count;
}

/* Both have the same value. Numbers of a list count, not its texts. */
static bool agree(const hark_model_option *row, const hark_network_config *a, const hark_network_config *b) {
  const void *const left = hark_model_option_value(row, a), *const right = hark_model_option_value(row, b);
  const hark_model_list *const list = hark_model_list_of(row->option.name);
  const char *one, *other;
  switch (row->option.type) {
    case HARK_OPTION_BOOL: return *(const bool *)left == *(const bool *)right;
    case HARK_OPTION_INT: return *(const int64_t *)left == *(const int64_t *)right;
    case HARK_OPTION_ENUM: return *(const int *)left == *(const int *)right;
    case HARK_OPTION_LAYERS: return hark_layer_choice_same(left, right);
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: return *(const double *)left == *(const double *)right;
    case HARK_OPTION_STRING:
      one = *(const char *const *)left;
      other = *(const char *const *)right;
      return strcmp(one != NULL ? one : "", other != NULL ? other : "") == 0;
    case HARK_OPTION_LIST: break;
  }
  if (hark_model_list_count(list, a) != hark_model_list_count(list, b)) return false;
  for (int32_t i = 0; i < hark_model_list_count(list, a); i++)
    if (hark_model_list_number(list, a, i) != hark_model_list_number(list, b, i)) return false;
  return true;
}

/* Of an option's field. */
static size_t bytes_of(hark_option_type type) {
  static const size_t bytes[] = {[HARK_OPTION_BOOL] = sizeof(bool),       [HARK_OPTION_INT] = sizeof(int64_t),
                                 [HARK_OPTION_FLOAT] = sizeof(double),    [HARK_OPTION_STRING] = sizeof(const char *),
                                 [HARK_OPTION_ENUM] = sizeof(int),        [HARK_OPTION_LIST] = sizeof(hark_string_list),
                                 [HARK_OPTION_DURATION] = sizeof(double), [HARK_OPTION_LAYERS] = sizeof(hark_layer_choice)};
  return bytes[type];
}

/* ---- what a row needs ---- */

static void satisfy(const hark_model_option *row);

/* Makes a condition hold, and what its option needs in turn. */
static void satisfy_need(const hark_option_need *need) {
  const hark_model_option *const row = hark_model_option_find(need->name);
  char value[HARK_OPTION_WORD_BYTES] = "";
  if (row == NULL) fail_msg("a condition is of %s, which is no option of a model", need->name);
  if (need->kind == HARK_NEED_NONE || hark_option_need_holds(need, &row->option, hark_model_option_value(row, &config.model))) {
    if (need->kind == HARK_NEED_OTHER_WORDS || need->kind == HARK_NEED_WORDS) satisfy(row);
    return;
  }
  switch (need->kind) {
    case HARK_NEED_WORDS: (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(need->test, "|"), need->test); break;
    case HARK_NEED_OTHER_WORDS:
      for (int i = 0; hark_option_choice_at(row->option.range, i, value) && hark_option_choice(need->test, value) >= 0;) i++;
      break;
    case HARK_NEED_GIVEN: (void)snprintf(value, sizeof value, row->option.type == HARK_OPTION_LIST ? "5" : "decay"); break;
    case HARK_NEED_ABOVE:
    case HARK_NEED_AT_LEAST: (void)snprintf(value, sizeof value, "%g", need->bound + 1); break;
    case HARK_NEED_NONE: break;
  }
  satisfy(row);
  set(need->name, value);
}

/* Of several alternatives the first. */
static void satisfy(const hark_model_option *row) {
  hark_option_need need = {0};
  for (const char *at = row->option.needs; at != NULL && !need.last;) {
    bool first = true;
    do {
      if (!hark_option_need_read(&at, &need)) fail_msg("%s: needs \"%s\"", row->option.name, row->option.needs);
      if (first) satisfy_need(&need);
      first = false;
    } while (!need.last_of_condition);
  }
}

/* A small model, with what an architecture and a scaling ask of the rest. */
static void fit_rest(void) {
  static const struct {
    const char *name, *value;
  } sizes[] = {{"model.layers", "2"},          {"model.heads", "2"},          {"model.width", "16"},
               {"model.context", "8"},         {"model.ahca.selected", "2"},  {"model.ahca.secondary_slots", "8"},
               {"model.ahca.chunk_size", "4"}, {"model.attention.chunk", "4"}};
  const hark_architecture *const architecture = hark_architecture_of(config.model.architecture);
  const bool text = config.model.architecture == HARK_ARCHITECTURE_DECODER || config.model.architecture == HARK_ARCHITECTURE_MASKED_ENCODER;
  if (config.model.latent.form == HARK_LATENT_FORM_SINGLE) set("model.layers", "1");
  if (!text) set("data.format", architecture->reads_tables ? "tables" : architecture->predicts_vectors ? "vectors" : "listops");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (!is_given(sizes[i].name) && hark_options_has_effect(options, sizes[i].name)) set(sizes[i].name, sizes[i].value);
  if (config.model.rotary.scaling != HARK_ROTARY_AS_TRAINED && !is_given("model.rotary.scaling_factor"))
    set("model.rotary.scaling_factor", "2");
  if (config.model.rotary.scaling == HARK_ROTARY_LONGROPE && !is_given("model.rotary.short_factor"))
    set("model.rotary.short_factor", "1,1,1.5,2"); /* four pairs turn */
  if (config.model.rotary.scaling == HARK_ROTARY_LONGROPE && !is_given("model.rotary.long_factor"))
    set("model.rotary.long_factor", "1,1.5,2,4");
  if (config.model.attention.chunk_learned) set("model.attention.structure", "window,compressed");
  if (config.model.attention.grid_columns != 0 && !is_given("model.pooling")) set("model.pooling", "mean");
  if (config.model.rotary.mscale != 0 && !is_given("model.rotary.mscale_all_dim")) set("model.rotary.mscale_all_dim", "1");
  if (config.model.rotary.mscale_all_dim != 0 && !is_given("model.rotary.mscale")) set("model.rotary.mscale", "1");
}

/* What the data are to such a configuration. */
static hark_learning_task task_of(void) {
  const hark_architecture *const architecture = hark_architecture_of(config.model.architecture);
  const int head = config.model.ahca.head;
  hark_learning_task task = {.vocabulary = VOCABULARY};
  if (architecture->predicts_vectors) {
    task.features = FEATURES;
    task.responses = RESPONSES;
    task.tables = architecture->reads_tables;
  }
  if (architecture->predicts_classes && head != HARK_AHCA_HEAD_LABELS && head != HARK_AHCA_HEAD_RECONSTRUCTION) task.classes = CLASSES;
  if (hark_config_has_examples(&config)) task.parts = 1;
  return task;
}

/* The network of the configuration; false where the options clash. */
static bool make_network(hark_network **out) {
  assert_fine(context, hark_config_finish(context, options, &config));
  if (hark_options_problem_count(options) > 0) return false;
  const hark_learning_task task = task_of();
  const hark_network_config network = hark_engine_network_config(&config, &task);
  const hark_status status = hark_network_create(context, &network, HARK_F32, false, out);
  if (status != HARK_BAD_CONFIGURATION) assert_fine(context, status);
  return status == HARK_OK;
}

/* ---- the ways of a value ---- */

/* Rows with an effect have the same values, those alone that files state where `stored`. */
static void assert_same(const hark_model_option *about, const char *value, const char *way, const hark_network_config *is,
                        const hark_network_config *expected, bool stored) {
  const hark_model_option *row;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    if (stored && row->stored == HARK_STORED_NEVER) continue;
    if (hark_model_option_has_effect(row, expected) && !agree(row, is, expected))
      fail_msg("%s = %s: %s changes %s", about->option.name, value, way, row->option.name);
  }
}

/* Of the configuration and the network: what the data decide is another matter. */
static void assert_passed_on(const hark_model_option *about, const char *value, const hark_network_config *network) {
  hark_network_config expected = config.model;
  expected.context = network->context; /* of an encoder with the row in front */
  expected.ahca.head = network->ahca.head;
  expected.vocabulary = network->vocabulary;
  expected.classes = network->classes;
  expected.parts = network->parts;
  expected.features = network->features;
  expected.responses = network->responses;
  expected.sentences = network->sentences;
  expected.unreserved = network->unreserved;
  assert_same(about, value, "the way to the network", network, &expected, false);
}

static void assert_described(const hark_model_option *about, const char *value, const hark_network_config *network) {
  hark_text text = hark_text_empty(context), again = hark_text_empty(context);
  hark_description read;
  hark_description_print(network, &text);
  assert_fine(context, hark_description_parse(context, "description", hark_text_get(&text), text.length, &read));
  assert_same(about, value, "its description", &read.config, network, true);
  hark_description_print(&read.config, &again);
  assert_string_equal(hark_text_get(&again), hark_text_get(&text));
  hark_description_close(context, &read);
  hark_text_free(&text);
  hark_text_free(&again);
}

static void assert_in_file(const hark_model_option *about, const char *value, const hark_network *network, const char *path) {
  hark_model *loaded = NULL;
  assert_fine(context, hark_model_write(context, path, network, NULL, HARK_NONE, NULL));
  assert_fine(context, hark_model_load(context, path, NULL, &loaded));
  assert_same(about, value, "its file", &loaded->network->config, &network->config, true);
  hark_model_destroy(context, &loaded);
}

/* config.yaml of a run. */
static void assert_recorded(const hark_model_option *about, const char *value, const char *path) {
  hark_config other;
  hark_options *second = NULL;
  const hark_option_group group = {&hark_config_table, &other};
  hark_text text = hark_text_empty(context);
  hark_options_print_yaml(options, false, &text);
  assert_fine(context, hark_file_write(context, path, hark_text_get(&text), text.length));
  assert_fine(context, hark_options_create(context, NULL, &group, 1, &second));
  assert_fine(context, hark_options_read_yaml(context, second, path, HARK_SOURCE_RUN));
  assert_fine(context, hark_options_finish(context, second));
  for (int i = 0; i < hark_config_table.count; i++)
    if (!hark_config_agree(&hark_config_table.options[i], &config, &other))
      fail_msg("%s = %s: config.yaml changes %s", about->option.name, value, hark_config_table.options[i].name);
  hark_options_destroy(context, &second);
  hark_text_free(&text);
}

/* ---- tests ---- */

/* Configuration, network, description, file, configuration. */
static void every_option_keeps_its_value(void **state) {
  char folder[TEST_PATH_BYTES], model[TEST_PATH_BYTES + 16], yaml[TEST_PATH_BYTES + 16];
  const hark_model_option *row;
  int walked = 0;
  test_folder_make(folder);
  (void)snprintf(model, sizeof model, "%s/m.safetensors", folder);
  (void)snprintf(yaml, sizeof yaml, "%s/c.yaml", folder);
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    char values[VALUES][VALUE_BYTES];
    if (row->fact) continue;
    const int count = values_of(&row->option, values);
    int good = 0, changed = 0;
    for (int v = 0; v < count; v++) {
      hark_network *network = NULL;
      begin_again(state);
      satisfy(row);
      set(row->option.name, values[v]);
      fit_rest();
      if (!make_network(&network)) continue;
      good++;
      changed += !hark_model_option_is_default(row, &config.model);
      if (!hark_model_option_has_effect(row, &config.model)) fail_msg("%s = %s has no effect", row->option.name, values[v]);
      assert_passed_on(row, values[v], &network->config);
      assert_described(row, values[v], &network->config);
      assert_in_file(row, values[v], network, model);
      assert_recorded(row, values[v], yaml);
      hark_network_destroy(context, &network);
    }
    if (good == 0 || (changed == 0 && count > 1))
      fail_msg("%s: none of %d values makes a model: %s", row->option.name, count,
               hark_options_problem_count(options) > 0 ? hark_options_problem(options, 0) : hark_context_message(context));
    walked++;
  }
  assert_int_equal(walked, HARK_MODEL_ROWS - 9); /* without the facts */
  test_folder_remove(folder);
}

/* Facts have no configuration. */
static void every_fact_keeps_its_value(void **state) {
  (void)state;
  const hark_model_option *row;
  int walked = 0;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    if (!row->fact) continue;
    assert_fine(context, hark_config_finish(context, options, &config));
    hark_network_config network = config.model;
    network.vocabulary = VOCABULARY;
    void *const field = hark_model_option_field(row, &network);
    if (row->option.type == HARK_OPTION_BOOL)
      *(bool *)field = true;
    else if (row->option.type == HARK_OPTION_LIST)
      assert_int_equal(hark_model_list_add(hark_model_list_of(row->option.name), 2, &network), HARK_LIST_READ);
    else
      *(int64_t *)field = 2;
    assert_described(row, "2", &network);
    walked++;
  }
  assert_int_equal(walked, 9);
}

static void refused(const char *key, const char *value, const char *message) {
  char text[256];
  hark_description read;
  (void)snprintf(text, sizeof text, "{\"model\": {\"%s\": %s}}", key, value);
  const hark_status status = hark_description_parse(context, "text", text, strlen(text), &read);
  if (status != HARK_BAD_FILE || strstr(hark_context_message(context), message) == NULL ||
      strstr(hark_context_message(context), key) == NULL)
    fail_msg("%s: %s \"%s\", which lacks \"%s\"", text, hark_status_name(status), hark_context_message(context), message);
}

/* By the range that configurations have. */
static void every_description_is_checked(void **state) {
  (void)state;
  const hark_model_option *row;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const hark_option *const option = &row->option;
    const char *const key = option->name + strlen(HARK_MODEL_PREFIX);
    const hark_model_list *const list = hark_model_list_of(option->name);
    const bool number = option->type == HARK_OPTION_INT || option->type == HARK_OPTION_FLOAT;
    double low = 0, high = 0;
    char value[VALUE_BYTES];
    if (row->stored == HARK_STORED_NEVER) continue;
    if (number || list != NULL) {
      bounds_of(option->range, &low, &high);
      (void)snprintf(value, sizeof value, list != NULL ? "[%.17g]" : "%.17g", low - fmax(2, fabs(low))); /* of a group 0 is not said */
      refused(key, value, number ? "expected" : "a list with items other");
      (void)snprintf(value, sizeof value, list != NULL ? "[%.17g]" : "%.17g", high + fmax(1, fabs(high)));
      if (isfinite(high)) refused(key, value, number ? "expected" : "a list with items other");
    }
    if (number && option->range[0] == '(') {
      (void)snprintf(value, sizeof value, "%.17g", low);
      if (row->stored != HARK_STORED_GROUP || low != 0) refused(key, value, option->range[1] == '0' ? "is 0, expected" : "expected");
    }
    if (number) refused(key, "\"1\"", option->type == HARK_OPTION_INT ? "is not a whole number" : "is not a number");
    if (option->type == HARK_OPTION_INT) refused(key, "1.5", "is not a whole number");
    if (row->stored == HARK_STORED_SETTLED) refused(key, "0", "expected a whole number of at least 1");
    if (option->type == HARK_OPTION_BOOL) refused(key, "1", "is neither true nor false");
    if (option->type == HARK_OPTION_STRING) refused(key, "1", "is not a text");
    if (option->type == HARK_OPTION_LIST) refused(key, "1", "is not a list");
    if (hark_option_has_choices(option)) refused(key, "\"nonsense\"", "is \"nonsense\", expected one of");
    if (hark_option_has_choices(option)) refused(key, "0", "expected one of");
  }
  refused("residual", "1", "unknown key");
}

/* Descriptions let 0 of a group pass, for it may not have been said: a network then refuses it, or knows what it stands for. */
static void zeros_of_groups_are_refused_by_networks(void **state) {
  static const char *const known[] = {"model.ahca.primary_depth", "model.ahca.secondary_depth"}; /* 1 */
  const hark_model_option *row;
  int walked = 0;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const bool number = row->option.type == HARK_OPTION_INT || row->option.type == HARK_OPTION_FLOAT;
    hark_network *network = NULL;
    if (row->stored != HARK_STORED_GROUP || !number || hark_option_in_range(&row->option, 0)) continue;
    begin_again(state);
    satisfy(row);
    fit_rest();
    assert_fine(context, hark_config_finish(context, options, &config));
    assert_fine(context, hark_options_finish(context, options));
    const hark_learning_task task = task_of();
    hark_network_config zero = hark_engine_network_config(&config, &task);
    assert_fine(context, hark_network_declare(context, &zero, HARK_F32, &network));
    hark_network_destroy(context, &network);
    memset(hark_model_option_field(row, &zero), 0, bytes_of(row->option.type));
    const hark_status status = hark_network_declare(context, &zero, HARK_F32, &network);
    const bool is_known = strcmp(row->option.name, known[0]) == 0 || strcmp(row->option.name, known[1]) == 0;
    if (status != (is_known ? HARK_OK : HARK_BAD_CONFIGURATION))
      fail_msg("%s = 0: %s \"%s\"", row->option.name, hark_status_name(status), hark_context_message(context));
    hark_network_destroy(context, &network);
    walked++;
  }
  assert_true(walked > 5);
}

/* Names stand once, sections in one piece, conditions are of the table, every option in the trainer's table with the same member. */
static void the_table_is_sound(void **state) {
  (void)state;
  const hark_model_option *row, *other;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const hark_option *const option = &row->option;
    hark_option_need need = {0};
    assert_ptr_equal(hark_model_option_find(option->name), row);
    assert_true(strncmp(option->name, HARK_MODEL_PREFIX, strlen(HARK_MODEL_PREFIX)) == 0);
    if (row->bond != HARK_BOND_NONE && row->stored == HARK_STORED_NEVER) fail_msg("%s is of weights, and no file states it", option->name);
    assert_true(row->place >= 0 && row->place < HARK_MODEL_PLACES);
    assert_true((option->type == HARK_OPTION_LIST) == (hark_model_list_of(option->name) != NULL));
    for (const char *at = option->needs; at != NULL && !need.last;) {
      assert_true(hark_option_need_read(&at, &need));
      if (hark_model_option_find(need.name) == NULL) fail_msg("%s needs %s, which is no option of a model", option->name, need.name);
    }
    const char *const dot = strrchr(option->name, '.'); /* the section ends where another begins */
    const size_t section = (size_t)(dot - option->name) + 1;
    bool left = false;
    for (int k = i + 1; !row->fact && (other = hark_model_option_at(k)) != NULL && !other->fact; k++) {
      const bool same = strncmp(other->option.name, option->name, section) == 0 && strchr(other->option.name + section, '.') == NULL;
      if (same && left) fail_msg("%s and %s are of one section, with others between them", option->name, other->option.name);
      left = left || !same;
    }
    if (row->fact) continue;
    const hark_option *const here = &hark_config_table.options[i];
    if (strcmp(here->name, option->name) != 0 || here->offset != offsetof(hark_config, model) + option->offset ||
        here->type != option->type)
      fail_msg("option %d of a run is %s, of a model %s", i, here->name, option->name);
    assert_int_equal(hark_config_bond(option->name), row->bond);
  }
}

static unsigned char taken[sizeof(hark_network_config)];

static void take(const char *name, size_t offset, size_t bytes) {
  assert_true(offset + bytes <= sizeof taken);
  for (size_t b = offset; b < offset + bytes; b++) {
    if (taken[b]) fail_msg("%s has a member of another row", name);
    taken[b] = 1;
  }
}

/* No two rows have one member, and no member but a bool, which padding can hide, is without a row. */
static void every_member_has_a_row(void **state) {
  (void)state;
  const hark_model_option *row;
  memset(taken, 0, sizeof taken);
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++) {
    const hark_model_list *const list = hark_model_list_of(row->option.name);
    if (list == NULL || !row->fact) take(row->option.name, row->option.offset, bytes_of(row->option.type)); /* facts have no texts */
    if (list == NULL) continue;
    take(row->option.name, list->count, sizeof(int32_t));
    take(row->option.name, list->values, (size_t)list->most * (list->whole ? sizeof(int32_t) : sizeof(double)));
  }
  for (size_t b = 0, gap = 0; b < sizeof taken; b++) {
    gap = taken[b] ? 0 : gap + 1;
    if (gap == sizeof(int64_t)) fail_msg("byte %zu of a hark_network_config is of no row", b);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
int main(void) {
  const struct CMUnitTest tests[] = {TEST(the_table_is_sound),           TEST(every_member_has_a_row),
                                     TEST(every_option_keeps_its_value), TEST(every_fact_keeps_its_value),
                                     TEST(every_description_is_checked), TEST(zeros_of_groups_are_refused_by_networks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

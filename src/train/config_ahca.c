/* config_ahca.c - see config_ahca.h. */
#include "train/config_ahca.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"

#define NAME_BYTES 64

/* An option that says something only under a condition. */
typedef struct own_option {
  const char *name, *needs;
  bool applies;
} own_option;

/* Asked for by a file or by the command line, and not by what a run had already. */
static bool is_asked(const hark_options *set, const char *name) { return hark_options_source(set, name) > HARK_SOURCE_RUN; }

/* `value` is what the option has, `initial` what it would have. */
static hark_status print_value(hark_context *context, const hark_options *set, const char *name, hark_text *text) {
  *text = hark_text_empty(context);
  hark_options_print_value(set, name, text);
  return text->status;
}

/* *changed: the option has another value than its default, which `defaults` has. */
static hark_status compare(hark_context *context, const hark_options *set, const hark_options *defaults, const char *name, bool *changed) {
  hark_text value, initial;
  HARK_TRY(print_value(context, set, name, &value));
  const hark_status status = print_value(context, defaults, name, &initial);
  *changed = status == HARK_OK && strcmp(hark_text_get(&value), hark_text_get(&initial)) != 0;
  hark_text_free(&value);
  hark_text_free(&initial);
  return status;
}

/* Complains of an option that was asked for and has another value than its default. */
static hark_status refuse(hark_context *context, hark_options *set, const hark_options *defaults, const char *name, const char *needs) {
  bool changed = false;
  if (!is_asked(set, name)) return HARK_OK;
  HARK_TRY(compare(context, set, defaults, name, &changed));
  return changed ? hark_options_complain(context, set, name, "says nothing here: it needs %s", needs) : HARK_OK;
}

/* Options that would say nothing are refused where they ask for more than they have by themselves: whoever gives them expects something of them. */
static hark_status refuse_idle(hark_context *context, hark_options *set, const hark_config *config, const hark_options *defaults) {
  const hark_ahca_config *ahca = &config->model.ahca;
  const bool is_ahca = config->model.architecture == HARK_ARCHITECTURE_ahca;
  const bool fixed = ahca->chunk == HARK_AHCA_FIXED, semantic = ahca->chunk == HARK_AHCA_SEMANTIC,
             delimiter = ahca->chunk == HARK_AHCA_DELIMITER, learned = ahca->chunk == HARK_AHCA_LEARNED,
             capacity = ahca->depth == HARK_AHCA_CAPACITY, deep = config->model.layers > 1;
  const char *const of_capacity = capacity ? "model.layers of 2 or more" : "model.ahca.depth capacity";
  const own_option options[] = {
      {"chunk_minimum", "a model.ahca.chunk other than fixed", !fixed},
      {"chunk_maximum", "a model.ahca.chunk other than fixed", !fixed},
      {"delimiter", "model.ahca.chunk delimiter", delimiter},
      {"more_delimiters", "model.ahca.chunk delimiter", delimiter},
      {"window", "model.ahca.chunk semantic", semantic},
      {"threshold", "model.ahca.chunk semantic", semantic},
      {"ratio_weight", "model.ahca.chunk learned", learned},
      {"capacities", of_capacity, capacity && deep},
      {"capacity", capacity && deep ? "no model.ahca.capacities" : of_capacity, capacity && deep && ahca->capacity_count == 0},
      {"ponder_weight", of_capacity, capacity && deep},
      {"depth", "model.layers of 2 or more", deep},
      {"depth_score", "model.layers of 2 or more", deep},
      {"chunk", NULL, true},
      {"chunk_size", NULL, true},
      {"primary_slots", NULL, true},
      {"secondary_slots", NULL, true},
      {"selected", NULL, true},
      {"primary_pool", NULL, true},
      {"secondary_pool", NULL, true},
      {"primary_width", NULL, true},
      {"secondary_width", NULL, true},
      {"primary_depth", NULL, true},
      {"secondary_depth", NULL, true},
      {"select", NULL, true},
      {"join", NULL, true},
      {"head", NULL, true},
      {"output", NULL, true},
      {"layer", NULL, true},
  };
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    char name[NAME_BYTES];
    (void)snprintf(name, sizeof name, "model.ahca.%s", options[i].name);
    if (!is_ahca || !options[i].applies)
      HARK_TRY(refuse(context, set, defaults, name, is_ahca ? options[i].needs : "model.architecture ahca"));
  }
  if (!is_ahca || ahca->layer != HARK_AHCA_LINEAR) return HARK_OK;
  return refuse(context, set, defaults, "model.activation", "model.ahca.layer block: linear layers have a relu");
}

static hark_status check_idle(hark_context *context, hark_options *set, const hark_config *config) {
  hark_config initial;
  hark_options *defaults = NULL;
  const hark_option_group group = {&hark_config_table, &initial};
  HARK_TRY(hark_options_create(context, NULL, &group, 1, &defaults));
  const hark_status status = refuse_idle(context, set, config, defaults);
  hark_options_destroy(context, &defaults);
  return status;
}

/* The tokens of model.ahca.more_delimiters, several of which may stand in one item: "10,13". */
static hark_status read_delimiters(hark_context *context, hark_options *set, hark_config *config) {
  hark_ahca_config *ahca = &config->model.ahca;
  ahca->more_delimiter_count = 0;
  for (int64_t i = 0; i < config->model.ahca_delimiters.count; i++) {
    for (const char *at = config->model.ahca_delimiters.items[i]; *at != '\0';) {
      const size_t length = strcspn(at, ", ");
      int64_t id = 0;
      if (length > 0 && (!hark_number_read_whole(at, length, &id) || id < 0 || id > INT32_MAX))
        return hark_options_complain(context, set, "model.ahca.more_delimiters", "\"%.40s\" given, expected numbers of tokens from 0 on",
                                     config->model.ahca_delimiters.items[i]);
      if (length > 0 && ahca->more_delimiter_count == HARK_AHCA_DELIMITERS)
        return hark_options_complain(context, set, "model.ahca.more_delimiters", "more than %d tokens", HARK_AHCA_DELIMITERS);
      if (length > 0) ahca->more_delimiters[ahca->more_delimiter_count++] = (int32_t)id;
      at += length + (at[length] != '\0');
    }
  }
  return HARK_OK;
}

/* The numbers of model.ahca.capacities, several of which may stand in one item: "0.5,0.25". */
static hark_status read_capacities(hark_context *context, hark_options *set, hark_config *config) {
  hark_ahca_config *ahca = &config->model.ahca;
  ahca->capacity_count = 0;
  for (int64_t i = 0; i < config->model.ahca_capacities.count; i++) {
    for (const char *at = config->model.ahca_capacities.items[i]; *at != '\0';) {
      const size_t length = strcspn(at, ", ");
      const double most = ahca->capacity_count > 0 ? ahca->capacities[ahca->capacity_count - 1] : 1;
      double capacity = 0;
      if (length > 0 && ahca->capacity_count == HARK_AHCA_CAPACITIES)
        return hark_options_complain(context, set, "model.ahca.capacities", "more than %d numbers", HARK_AHCA_CAPACITIES);
      if (length > 0 && (!hark_number_read(at, length, &capacity) || !(capacity >= 0 && capacity <= most))) {
        ahca->capacity_count = 0;
        return hark_options_complain(context, set, "model.ahca.capacities",
                                     "\"%.40s\" given, expected numbers from 1 to 0 that do not grow from layer to layer",
                                     config->model.ahca_capacities.items[i]);
      }
      if (length > 0) ahca->capacities[ahca->capacity_count++] = capacity;
      at += length + (at[length] != '\0');
    }
  }
  return HARK_OK;
}

/* One for each layer that not all chunks have. */
static hark_status check_capacities(hark_context *context, hark_options *set, const hark_config *config) {
  const int64_t given = config->model.ahca.capacity_count, wanted = config->model.layers - 1;
  if (given == 0 || given == wanted || wanted < 1) return HARK_OK;
  return hark_options_complain(context, set, "model.ahca.capacities model.layers",
                               "%" PRId64 " numbers given, expected one for each layer from the second on, %" PRId64, given, wanted);
}

/* What a text can be asked for. Windows of it have no classes and no labels, and no model of this kind continues it. */
static hark_status check_text(hark_context *context, hark_options *set, const hark_config *config) {
  if (hark_config_has_examples(config)) return HARK_OK;
  if (!hark_config_reconstructs(config))
    return hark_options_complain(context, set, "model.ahca.head model.architecture data.format",
                                 "ahca cannot continue a text: pools, selection and ranks over a sequence tell a token of those behind it; "
                                 "expected model.ahca.head reconstruction, or a data.format other than corpus");
  if (hark_config_has_sentences(config))
    return hark_options_complain(context, set, "model.architecture data.unit",
                                 "ahca reads windows of text or examples, expected data.unit: text");
  return HARK_OK;
}

hark_status hark_config_settle_ahca(hark_context *context, hark_options *set, hark_config *config) {
  const hark_ahca_config *ahca = &config->model.ahca;
  HARK_TRY(read_delimiters(context, set, config));
  HARK_TRY(read_capacities(context, set, config));
  HARK_TRY(check_idle(context, set, config));
  if (config->model.architecture != HARK_ARCHITECTURE_ahca) return HARK_OK;
  HARK_TRY(check_text(context, set, config));
  HARK_TRY(check_capacities(context, set, config));
  if (ahca->selected > ahca->secondary_slots)
    HARK_TRY(hark_options_complain(context, set, "model.ahca.selected model.ahca.secondary_slots",
                                   "selected %" PRId64 " is more than the secondary_slots %" PRId64, ahca->selected,
                                   ahca->secondary_slots));
  if (config->model.pooling != HARK_POOLING_CLASS)
    HARK_TRY(
        hark_options_complain(context, set, "model.pooling model.architecture", "ahca pools chunks in its own way, expected no pooling"));
  if (ahca->output == HARK_AHCA_OF_SELECTED && (ahca->head == HARK_AHCA_LABELS || ahca->head == HARK_AHCA_RECONSTRUCTION))
    HARK_TRY(hark_options_complain(context, set, "model.ahca.output model.ahca.head",
                                   "output selected leaves no slots of chunks for tokens to ask, expected chunks"));
  return HARK_OK;
}

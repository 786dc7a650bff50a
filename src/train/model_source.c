/* model_source.c - see model_source.h. */
#include "train/model_source.h"

#include <inttypes.h>

#include "io/checkpoint_files.h"
#include "io/number.h"
#include "io/safetensors.h"
#include "models/foreign/foreign.h"
#include "models/model_parts.h"
#include "train/run.h"

bool hark_model_source_is(hark_context *context, const char *path) {
  char name[HARK_PATH_BYTES], checkpoint[HARK_NAME_BYTES];
  hark_run run;
  bool found = false;
  const hark_path_kind kind = hark_path_kind_of(path);
  if (kind != HARK_PATH_FILE && kind != HARK_PATH_FOLDER) return false;
  if (hark_foreign_find(context, path, name, &found) == HARK_OK && found) return true;
  if (kind == HARK_PATH_FILE) return hark_safetensors_is(context, path, &found) == HARK_OK && found;
  if (hark_run_open_reading(context, path, &run, checkpoint) == HARK_OK) return false;
  return hark_path_join(context, path, HARK_WEIGHTS_FILE, name) == HARK_OK && hark_path_kind_of(name) == HARK_PATH_FILE;
}

/* ---- values as a user would write them ---- */

static void print_number(double number, hark_text *text) {
  char digits[HARK_NUMBER_BYTES];
  hark_text_append(text, "%s", hark_number_print(number, digits));
}

static void print_words(const hark_option *option, const hark_layer_choice *layers, hark_text *text) {
  char word[HARK_OPTION_WORD_BYTES] = "";
  for (int64_t i = 0; i < hark_max(1, layers->count); i++) {
    (void)hark_option_choice_at(option->range, hark_layer_choice_of(layers, i), word);
    hark_text_append(text, "%s%s", i > 0 ? "," : "", word);
  }
}

static void print_list(const hark_model_list *list, const hark_network_config *config, hark_text *text) {
  for (int32_t i = 0; i < hark_model_list_count(list, config); i++) {
    const hark_list_part part = hark_model_list_part(list, config, i);
    hark_text_append(text, "%s", part.continues ? "+" : i > 0 ? "," : "");
    print_number(part.number, text);
  }
}

static void print_value(const hark_model_option *row, const hark_network_config *config, hark_text *text) {
  const void *const field = hark_model_option_value(row, config);
  char word[HARK_OPTION_WORD_BYTES] = "";
  switch (row->option.type) {
    case HARK_OPTION_BOOL: hark_text_append(text, *(const bool *)field ? "true" : "false"); break;
    case HARK_OPTION_INT: hark_text_append(text, "%" PRId64, *(const int64_t *)field); break;
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_DURATION: print_number(*(const double *)field, text); break;
    case HARK_OPTION_STRING: hark_text_append(text, "%s", *(const char *const *)field); break;
    case HARK_OPTION_LIST: print_list(hark_model_list_of(row->option.name), config, text); break;
    case HARK_OPTION_LAYERS: print_words(&row->option, field, text); break;
    case HARK_OPTION_ENUM:
      (void)hark_option_choice_at(row->option.range, *(const int *)field, word);
      hark_text_append(text, "%s", word);
      break;
  }
}

/* ---- options ---- */

static bool is_absent(const hark_model_option *row, const hark_network_config *config) {
  if (row->option.type == HARK_OPTION_STRING) {
    const char *const value = *(const char *const *)hark_model_option_value(row, config);
    return value == NULL || value[0] == '\0';
  }
  if (row->option.type == HARK_OPTION_LIST) return hark_model_list_count(hark_model_list_of(row->option.name), config) == 0;
  return hark_model_option_is_default(row, config) || !hark_model_option_has_effect(row, config);
}

/* One option; what the description does not state has its default, whatever a later source of lower rank says. */
static hark_status set_option(hark_context *context, hark_options *options, const char *path, const hark_model_option *row,
                              const hark_network_config *config) {
  const char *const usual = row->option.initial != NULL ? row->option.initial : "";
  hark_text value = hark_text_empty(context);
  if (is_absent(row, config))
    hark_text_append(&value, "%s", usual);
  else
    print_value(row, config, &value);
  hark_status status = value.status;
  if (status == HARK_OK && row->option.type != HARK_OPTION_LIST)
    status = hark_options_set(context, options, row->option.name, hark_text_get(&value), path, HARK_SOURCE_RUN);
  else if (status == HARK_OK && value.length > 0)
    status = hark_options_set_item(context, options, row->option.name, 0, hark_text_get(&value), path, HARK_SOURCE_RUN);
  hark_text_free(&value);
  return status;
}

static hark_status set_model(hark_context *context, hark_options *options, const char *path, const hark_network_config *config) {
  const hark_model_option *row;
  hark_network_config own = *config;
  /* The scaling refers to the model's context, also where the weights are trained further with another one. */
  if (own.rotary.scaling != HARK_ROTARY_AS_TRAINED && own.rotary.original_context == 0) own.rotary.original_context = own.context;
  for (int i = 0; (row = hark_model_option_at(i)) != NULL; i++)
    if (!row->fact && row->stored != HARK_STORED_NEVER) HARK_TRY(set_option(context, options, path, row, &own));
  return HARK_OK;
}

static hark_status set_data(hark_context *context, hark_options *options, const char *path, const hark_network_config *config) {
  const char *kind = NULL;
  HARK_TRY(hark_model_read_tokenizer_kind(context, path, &kind));
  HARK_TRY(hark_options_set(context, options, "data.tokenizer", kind, path, HARK_SOURCE_RUN));
  return config->sentences ? hark_options_set(context, options, "data.unit", "sentences", path, HARK_SOURCE_RUN) : HARK_OK;
}

/* Models of text predict the next token, or masked ones. */
static hark_status check_architecture(hark_context *context, const char *path, const hark_network_config *config) {
  const hark_architecture *const architecture = hark_architecture_of(config->architecture);
  if (config->architecture == HARK_ARCHITECTURE_DECODER || config->architecture == HARK_ARCHITECTURE_MASKED_ENCODER) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED,
                   "%.300s: the model is of architecture %s and predicts no text, expected a decoder or a masked_encoder%s", path,
                   architecture->name,
                   config->architecture == HARK_ARCHITECTURE_ENCODER ? "; hark embed computes its embeddings" : "; its run is measured");
}

hark_status hark_model_source_read_options(hark_context *context, hark_options *options, const char *path) {
  hark_description description;
  HARK_TRY(hark_model_read_description(context, path, NULL, &description));
  hark_status status = check_architecture(context, path, &description.config);
  if (status == HARK_OK) status = set_model(context, options, path, &description.config);
  if (status == HARK_OK) status = set_data(context, options, path, &description.config);
  hark_description_close(context, &description);
  return status;
}

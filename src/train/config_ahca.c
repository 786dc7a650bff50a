/* config_ahca.c - see config_ahca.h. */
#include "train/config_ahca.h"

#include <inttypes.h>
#include <string.h>

#include "io/number.h"

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
  if (config->model.architecture != HARK_ARCHITECTURE_ahca) return HARK_OK;
  HARK_TRY(check_text(context, set, config));
  HARK_TRY(check_capacities(context, set, config));
  if (ahca->selected > ahca->secondary_slots)
    HARK_TRY(hark_options_complain(context, set, "model.ahca.selected model.ahca.secondary_slots",
                                   "selected %" PRId64 " is more than the secondary_slots %" PRId64, ahca->selected,
                                   ahca->secondary_slots));
  if (ahca->output == HARK_AHCA_OF_SELECTED && (ahca->head == HARK_AHCA_LABELS || ahca->head == HARK_AHCA_RECONSTRUCTION))
    HARK_TRY(hark_options_complain(context, set, "model.ahca.output model.ahca.head",
                                   "output selected leaves no slots of chunks for tokens to ask, expected chunks"));
  return HARK_OK;
}

/* config_ahca.c - see config_ahca.h. */
#include "train/config_ahca.h"

#include <inttypes.h>

/* Of each layer no larger than of the one before. */
static bool capacities_fall(const hark_network_config *model) {
  for (int32_t i = 1; i < model->ahca.capacity_count; i++)
    if (model->ahca.layer_capacities[i] > model->ahca.layer_capacities[i - 1]) return false;
  return true;
}

/* One for each layer that not all chunks have. */
static hark_status check_capacities(hark_context *context, hark_options *set, const hark_config *config) {
  const int64_t given = config->model.ahca.capacity_count, needed = config->model.layers - 1;
  if (given == 0 || given == needed || needed < 1) return HARK_OK;
  return hark_options_complain(context, set, "model.ahca.capacities model.layers",
                               "%" PRId64 " numbers given, expected one for each layer from the second on, %" PRId64, given, needed);
}

/* What a text can be asked for. Windows of it have no classes and no labels, and no model of this kind continues it. */
static hark_status check_text(hark_context *context, hark_options *set, const hark_config *config) {
  if (hark_config_has_examples(config)) return HARK_OK;
  if (!hark_config_reconstructs(config))
    return hark_options_complain(
        context, set, "model.ahca.head model.architecture data.format",
        "ahca cannot continue a text: pools, selection and ranks over a sequence leak later tokens into earlier ones; "
        "expected model.ahca.head reconstruction, or a data.format other than corpus");
  if (hark_config_has_sentences(config))
    return hark_options_complain(context, set, "model.architecture data.unit",
                                 "ahca reads windows of text or examples, expected data.unit: text");
  return HARK_OK;
}

hark_status hark_config_settle_ahca(hark_context *context, hark_options *set, hark_config *config) {
  const hark_ahca_config *ahca = &config->model.ahca;
  HARK_TRY(hark_config_read_list(context, set, config, "model.ahca.more_delimiters", NULL, "numbers of tokens from 0 on"));
  HARK_TRY(hark_config_read_list(context, set, config, "model.ahca.capacities", capacities_fall,
                                 "numbers from 1 to 0 that do not grow from layer to layer"));
  if (config->model.architecture != HARK_ARCHITECTURE_AHCA) return HARK_OK;
  HARK_TRY(check_text(context, set, config));
  HARK_TRY(check_capacities(context, set, config));
  if (ahca->selected > ahca->secondary_slots)
    HARK_TRY(hark_options_complain(context, set, "model.ahca.selected model.ahca.secondary_slots",
                                   "selected %" PRId64 " is more than the secondary_slots %" PRId64, ahca->selected,
                                   ahca->secondary_slots));
  if (ahca->output == HARK_AHCA_OUTPUT_SELECTED && (ahca->head == HARK_AHCA_HEAD_LABELS || ahca->head == HARK_AHCA_HEAD_RECONSTRUCTION))
    HARK_TRY(hark_options_complain(context, set, "model.ahca.output model.ahca.head",
                                   "output selected leaves no slots of chunks for tokens to ask, expected chunks"));
  return HARK_OK;
}

/* config_ahca.c - see config_ahca.h. */
#include "train/config_ahca.h"

/* Windows of a text have no classes and no targets at tokens, and no model of this kind continues a text. */
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
  HARK_TRY(hark_config_read_list(context, set, config, "model.ahca.more_delimiters", ""));
  HARK_TRY(hark_config_read_list(context, set, config, "model.ahca.capacities", ""));
  return config->model.architecture == HARK_ARCHITECTURE_AHCA ? check_text(context, set, config) : HARK_OK;
}

/* ahca_check.c - the ranges of an AHCA model's numbers, for structs that were filled by hand. The rules between options are in
 * model_rules_ahca.c. */
#include <inttypes.h>
#include <math.h>

#include "io/number.h"
#include "models/ahca_layers.h"
#include "models/model_options.h"

static hark_status check_sizes(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  const struct {
    const char *name;
    int64_t value, least;
  } numbers[] = {{"chunk_size", ahca->chunk_size, 1},
                 {"chunk_minimum", ahca->chunk_minimum, 0},
                 {"chunk_maximum", ahca->chunk_maximum, 0},
                 {"window", ahca->window, 1},
                 {"primary_slots", ahca->primary_slots, 1},
                 {"secondary_slots", ahca->secondary_slots, hark_ahca_has_global(config)},
                 {"selected", ahca->selected, 0},
                 {"primary_width", ahca->primary_width, 0},
                 {"secondary_width", ahca->secondary_width, 0},
                 {"local_layers", ahca->local_layers, 0},
                 {"local_window", ahca->local_window, 0}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].value < numbers[i].least || numbers[i].value > INT32_MAX / 4)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.%s is %" PRId64 ", expected %" PRId64 " to %d", numbers[i].name,
                       numbers[i].value, numbers[i].least, INT32_MAX / 4);
  if (ahca->primary_depth < 0 || ahca->primary_depth > 2 || ahca->secondary_depth < 0 || ahca->secondary_depth > 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.primary_depth is %" PRId64 " and secondary_depth %" PRId64 ", expected 1 or 2 linear layers",
                     ahca->primary_depth, ahca->secondary_depth);
  return HARK_OK;
}

static hark_status check_delimiters(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  if (ahca->chunk != HARK_AHCA_CHUNK_DELIMITER) return HARK_OK;
  if (ahca->other_delimiter_count < 0 || ahca->other_delimiter_count > HARK_DELIMITER_TOKENS)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.more_delimiters has %d tokens, expected at most %d",
                     (int)ahca->other_delimiter_count, HARK_DELIMITER_TOKENS);
  if (ahca->delimiter == -1 && ahca->other_delimiter_count == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.delimiter is -1, which is none, without model.ahca.more_delimiters, expected a token");
  for (int32_t i = ahca->delimiter == -1 ? 0 : -1; i < ahca->other_delimiter_count; i++) {
    const int64_t id = i < 0 ? ahca->delimiter : hark_delimiter_token(ahca->other_delimiters[i]);
    if (id == HARK_DELIMITER_TEXT)
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "model.ahca.more_delimiters has a text, expected tokens: no vocabulary is known here");
    if (id < 0 || id >= config->vocabulary)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.%s is %" PRId64 ", expected a token, 0 to %" PRId64,
                       i < 0 ? "delimiter" : "more_delimiters", id, config->vocabulary - 1);
  }
  return HARK_OK;
}

hark_status hark_ahca_check(hark_context *context, const hark_network_config *config) {
  const hark_ahca_config *ahca = &config->ahca;
  HARK_TRY(check_sizes(context, config));
  HARK_TRY(check_delimiters(context, config));
  if (!(ahca->capacity >= 0 && ahca->capacity <= 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "model.ahca.capacity is %s, expected 0 to 1", HARK_PRINTED(ahca->capacity));
  if (!isfinite(ahca->threshold) || !(ahca->ratio_weight >= 0) || !(ahca->ponder_weight >= 0))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "model.ahca.threshold is %s, ratio_weight %s, ponder_weight %s, expected finite numbers and weights of 0 or more",
                     HARK_PRINTED(ahca->threshold), HARK_PRINTED(ahca->ratio_weight), HARK_PRINTED(ahca->ponder_weight));
  return HARK_OK;
}

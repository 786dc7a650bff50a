/* targets.c - see targets.h. */
#include "train/targets.h"

#include <inttypes.h>
#include <stdio.h>

#include "io/number.h"
#include "train/own_tokens.h"

/* Why there is none, behind "the training part has no targets". */
static hark_status refuse(hark_context *context, const hark_material *material, hark_split split) {
  const hark_config *config = material->config;
  const char *const part = split == HARK_SPLIT_TRAINING ? "training" : "validation";
  char why[160] = "", fraction[HARK_NUMBER_BYTES];
  if (hark_architecture_of(config->model.architecture)->predicts_hidden)
    (void)snprintf(why, sizeof why, ": train.mask_fraction %s hides none of its tokens", hark_number_print(config->train.mask_fraction, fraction));
  else if (material->examples != NULL && hark_examples_count(material->examples, split).cut > 0)
    (void)snprintf(why, sizeof why, ": data.length_limit %" PRId64 " cuts them off", config->data.length_limit);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "the %s %s has no targets%s%s", part, material->examples != NULL ? "examples" : "text", why,
                   split == HARK_SPLIT_TRAINING ? ", and there is nothing to learn" : "; without validation examples or text it can be trained");
}

static hark_status check_training(hark_context *context, hark_material *material, int64_t samples) {
  const int64_t batch = material->config->train.batch, most = hark_min(samples, material->samples_per_epoch);
  int64_t real = 0;
  for (int64_t first = 0; first < most && real == 0; first += batch) HARK_TRY(hark_material_read(context, material, first, &real));
  return real > 0 ? HARK_OK : refuse(context, material, HARK_SPLIT_TRAINING);
}

static hark_status check_validation(hark_context *context, hark_material *material, const hark_engine *engine) {
  bool has = false;
  if (!material->has_validation) return HARK_OK;
  if (material->examples != NULL)
    HARK_TRY(hark_evaluation_examples_have_targets(context, engine, &material->validation, &material->room, &has));
  else if (material->packed)
    has = true; /* sentences end, and windows are reconstructed whole */
  else
    HARK_TRY(hark_evaluation_has_targets(context, engine, material->corpus, HARK_SPLIT_VALIDATION, &has));
  return has ? HARK_OK : refuse(context, material, HARK_SPLIT_VALIDATION);
}

hark_status hark_targets_check(hark_context *context, hark_material *material, const hark_engine *engine, int64_t samples) {
  HARK_TRY(check_training(context, material, samples));
  return check_validation(context, material, engine);
}

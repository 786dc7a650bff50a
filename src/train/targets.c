/* targets.c - see targets.h. */
#include "train/targets.h"

#include <inttypes.h>
#include <stdio.h>

#include "io/number.h"
#include "train/own_tokens.h"

#define DRAWN_TOKENS ((int64_t)1 << 22) /* tokens to draw masks for before a lack of targets is reported */

/* The check of one part. */
typedef struct look {
  hark_context *context;
  const hark_material *material;
  hark_split split;
  bool hides;
  hark_masking masking;
} look;

static look look_at(hark_context *context, const hark_material *material, hark_split split) {
  const hark_config *config = material->config;
  return (look){.context = context,
                .material = material,
                .split = split,
                .hides = hark_architecture_of(config->model.architecture)->predicts_masked,
                .masking = hark_config_masking(config, material->task.vocabulary,
                                               split == HARK_SPLIT_TRAINING ? HARK_MASKING_TRAINING : HARK_MASKING_EVALUATION)};
}

/* Whether to read this sample: an epoch is read, and more where every epoch draws new masks. */
static bool goes_on(const look *l, int64_t sample, int64_t epoch, int64_t tokens) {
  return sample < epoch || (l->hides && l->split == HARK_SPLIT_TRAINING && tokens < DRAWN_TOKENS);
}

/* Reads each example once, in the order of the file: random order may omit some. */
static hark_status look_at_examples(const look *l, hark_example_batches batches, bool *has) {
  hark_example_room room;
  hark_status status = HARK_OK;
  batches.settings.order = HARK_ORDER_SEQUENTIAL;
  HARK_TRY(hark_example_room_open(l->context, &batches, 1, &room));
  for (int64_t sample = 0, tokens = 0; goes_on(l, sample, batches.count, tokens) && !*has; sample++) {
    status = hark_example_batches_read(l->context, &batches, sample, 1, &room.batch);
    if (status != HARK_OK) break;
    tokens += hark_max(1, room.batch.tokens);
    if (l->hides) hark_example_batch_mask(&l->masking, sample, batches.parts, &room.batch);
    if (hark_config_reconstructs(l->material->config)) hark_own_tokens(&room.batch);
    *has = room.batch.real > 0;
  }
  hark_example_room_close(l->context, &room);
  return status;
}

/* Windows of a text always have targets, but a masked encoder may have none of them masked. */
static hark_status look_at_windows(const look *l, const hark_evaluation *evaluation, int64_t windows, bool *has) {
  const int64_t context = l->material->config->model.context;
  const size_t bytes = (size_t)(2 * context) * sizeof(int32_t);
  void *memory = NULL;
  hark_status status = HARK_OK;
  HARK_TRY(hark_allocate(l->context, bytes, &memory));
  int32_t *const inputs = memory, *const targets = inputs + context;
  for (int64_t sample = 0; goes_on(l, sample, windows, sample * context) && status == HARK_OK && !*has; sample++) {
    int64_t real = 0;
    status = evaluation != NULL ? hark_evaluation_read(l->context, evaluation, sample, 1, inputs, targets, &real)
                                : hark_batches_read(l->context, &l->material->batches, sample, 1, inputs, targets);
    for (int64_t i = 0; i < context && status == HARK_OK; i++)
      if (targets[i] == HARK_TARGET_IGNORED) inputs[i] = HARK_TOKEN_PADDING; /* which is never masked */
    if (status == HARK_OK) *has = hark_mask_tokens(&l->masking, sample, context, inputs, targets) > 0;
  }
  hark_release(l->context, memory, bytes);
  return status;
}

/* Fails with the reason, after "the training examples have no targets". */
static hark_status refuse(const look *l) {
  const hark_config *config = l->material->config;
  const bool examples = l->material->examples != NULL, training = l->split == HARK_SPLIT_TRAINING;
  char why[160] = "", fraction[HARK_NUMBER_BYTES];
  if (l->hides)
    (void)snprintf(why, sizeof why, ": train.mask_fraction %s masks none of their tokens",
                   hark_number_print(config->train.mask_fraction, fraction));
  else if (examples && hark_examples_count(l->material->examples, l->split).cut > 0)
    (void)snprintf(why, sizeof why, ": all come after the %" PRId64 " tokens that data.length_limit keeps", config->data.length_limit);
  return hark_fail(l->context, HARK_BAD_CONFIGURATION, "the %s %s have no targets%s; %s", training ? "training" : "validation",
                   examples ? "examples" : "windows", why,
                   training ? "there is nothing to learn" : "expected at least one, or no data for validation");
}

/* Fails because the validation data have no targets. */
static hark_status refuse_nothing(const look *l) {
  const hark_config *config = l->material->config;
  const bool examples = l->material->examples != NULL;
  return hark_fail(l->context, HARK_BAD_CONFIGURATION, "%.300s: the validation %s no targets; expected %s, or no data for validation",
                   config->data.validation_paths.items[0], examples ? "examples have" : "text has",
                   examples ? "at least one example" : "at least two tokens");
}

static hark_status check(const look *l, const hark_example_batches *batches) {
  const hark_material *m = l->material;
  hark_evaluation evaluation;
  bool has = false;
  if (m->examples != NULL) {
    HARK_TRY(look_at_examples(l, *batches, &has));
  } else if (!l->hides) {
    has = true; /* a next token, the end of a sentence, or a token of the window itself */
  } else if (l->split == HARK_SPLIT_TRAINING) {
    HARK_TRY(look_at_windows(l, NULL, m->samples_per_epoch, &has));
  } else {
    const hark_evaluation_settings settings = {.split = l->split, .context = m->config->model.context};
    HARK_TRY(hark_evaluation_create(l->context, m->corpus, &settings, &evaluation));
    HARK_TRY(look_at_windows(l, &evaluation, evaluation.windows, &has));
  }
  return has ? HARK_OK : refuse(l);
}

hark_status hark_targets_check(hark_context *context, const hark_material *material) {
  const look training = look_at(context, material, HARK_SPLIT_TRAINING), validation = look_at(context, material, HARK_SPLIT_VALIDATION);
  HARK_TRY(check(&training, &material->training));
  if (material->has_validation) return check(&validation, &material->validation);
  return material->config->data.validation_paths.count > 0 ? refuse_nothing(&validation) : HARK_OK;
}

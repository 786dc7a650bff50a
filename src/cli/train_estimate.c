/* train_estimate.c - see train_estimate.h. */
#include "cli/train_estimate.h"

#include <inttypes.h>

#include "train/material.h"
#include "train/preflight.h"
#include "train/trainer.h"
#include "train/warm_start.h"

/* The vocabulary of the planned run: its own, that of its initial weights, or that of its text. */
static hark_status find_vocabulary(hark_invocation *call, const hark_config *config, const hark_run *folder, hark_tokenizer **out) {
  char path[HARK_PATH_BYTES];
  HARK_TRY(hark_run_path(call->context, folder, "vocabulary.json", path));
  if (config->run.resume) return hark_tokenizer_load(call->context, path, out);
  if (config->train.init_from[0] != '\0') return hark_warm_start_vocabulary(call->context, config, out);
  return hark_run_learn_vocabulary(call->context, config, out);
}

static hark_status print_needs(hark_invocation *call, const hark_config *config, const hark_needs *needs) {
  const struct {
    const char *name, *words;
    uint64_t bytes;
  } parts[] = {{"memory", "memory", needs->memory},
               {"memory_weights", "  weights", needs->engine.weights},
               {"memory_gradients", "  gradients", needs->engine.gradients},
               {"memory_moments", "  moments", needs->engine.moments},
               {"memory_step", "  step", needs->engine.step + needs->engine.batch},
               {"memory_program", "  program", needs->program},
               {"memory_left", "  there is", needs->memory_left},
               {"checkpoint", "a checkpoint", needs->checkpoint},
               {"disk", "disk, besides existing files", needs->more_disk},
               {"disk_left", "  there is", needs->disk_left}};
  hark_text text = hark_text_empty(call->context);
  if (call->json)
    hark_text_append(&text, "{\"parameters\": %" PRId64 ", \"checkpoints\": %" PRId64, needs->parameters, needs->checkpoints);
  else
    hark_text_append(&text, "%-30s %12" PRId64 "\n%-30s %12" PRId64 "\n", "parameters", needs->parameters, "checkpoints at most",
                     needs->checkpoints);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    if (call->json)
      hark_text_append(&text, ", \"%s_bytes\": %" PRIu64, parts[i].name, parts[i].bytes);
    else
      hark_text_append(&text, "%-30s %12.1f MiB\n", parts[i].words, (double)parts[i].bytes / (1024.0 * 1024.0));
  }
  if (call->json) hark_text_append(&text, "}\n");
  HARK_TRY(hark_command_print(call, &text));
  return config->run.preflight ? hark_preflight_check(call->context, needs) : HARK_OK;
}

/* The requirements of the data on the model. Examples stay open, as in training. */
static hark_status find_task(hark_invocation *call, const hark_config *config, const hark_run *folder, hark_examples **examples,
                             hark_learning_task *task) {
  *task = (hark_learning_task){0};
  if (hark_config_has_examples(config)) {
    HARK_TRY(hark_material_examples(call->context, config, config->run.resume ? HARK_DATA_OF_RUN : HARK_DATA_FOR_NEW_RUN, examples));
    return hark_material_task_of(call->context, config, *examples, task);
  }
  hark_tokenizer *tokenizer = NULL;
  hark_status status = find_vocabulary(call, config, folder, &tokenizer);
  if (status == HARK_OK) status = hark_material_task_of_text(call->context, config, tokenizer, task);
  hark_tokenizer_destroy(call->context, &tokenizer);
  return status;
}

hark_status hark_train_estimate(hark_invocation *call, const hark_config *config, const hark_run *folder) {
  hark_examples *examples = NULL;
  hark_learning_task task;
  hark_needs needs;
  hark_status status = find_task(call, config, folder, &examples, &task);
  if (status == HARK_OK) {
    const bool steps_known = config->train.steps > 0;
    const hark_preflight planned = {
        .config = config, .task = task, .steps = steps_known ? config->train.steps : INT64_MAX, .has_validation = true, .folder = folder};
    status = hark_preflight_estimate(call->context, &planned, &needs);
  } else {
    status = hark_group_agree(call->context, call->group, status); /* as hark_preflight_estimate() */
  }
  hark_examples_close(call->context, &examples);
  HARK_TRY(status);
  return hark_group_rank(call->group) == 0 ? print_needs(call, config, &needs) : HARK_OK;
}

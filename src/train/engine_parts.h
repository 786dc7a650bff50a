/* engine_parts.h - what the files of the engine share: engine.c computes steps and predictions, engine_create.c makes an engine. */
#ifndef HARK_TRAIN_ENGINE_PARTS_H
#define HARK_TRAIN_ENGINE_PARTS_H

#include "train/engine.h"

static inline bool hark_engine_is_packed(const hark_engine *engine) { return engine->task.parts > 0; }
static inline bool hark_engine_has_classes(const hark_engine *engine) {
  return engine->network->architecture->predicts_classes && engine->network->config.classes > 0;
}
static inline bool hark_engine_has_vectors(const hark_engine *engine) { return engine->task.features > 0; }

/* The sequence whose windows are spread over processes; NULL: this process has all rows. */
static inline const hark_sequence *hark_engine_sequence(const hark_engine *engine) {
  return engine->sequence.group != NULL ? &engine->sequence : NULL;
}

/* Records a step without computing it, to find out how much memory it needs. */
HARK_MUST_CHECK hark_status hark_engine_measure_step(hark_context *context, hark_engine *engine);

#endif

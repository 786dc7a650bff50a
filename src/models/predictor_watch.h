/* predictor_watch.h - how a predictor reads its input: its attention, and decisions of models of compressed chunks. */
#ifndef HARK_MODELS_PREDICTOR_WATCH_H
#define HARK_MODELS_PREDICTOR_WATCH_H

#include <hark/predictor.h>

#include "models/ahca.h"

/* Zeros: nothing is observed. */
typedef struct hark_predictor_watch {
  hark_attention_observer *attention; /* of architectures with blocks; the first token of encoders is the one that they insert */
  void *user;
  hark_ahca_trace *trace; /* of architecture ahca: filled by each call, with values of the predictor's tape */
} hark_predictor_watch;

/* For the following calls, which may allocate memory. */
void hark_predictor_set_watch(hark_predictor *predictor, const hark_predictor_watch *watch);

/* The values of the last call, up to the next one. */
const hark_tape *hark_predictor_tape(const hark_predictor *predictor);

#endif

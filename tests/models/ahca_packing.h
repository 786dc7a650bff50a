/* ahca_packing.h - what a pass with local layers reads besides the batch: the place of every token in its sequence, and attention plans. */
#ifndef HARK_TESTS_AHCA_PACKING_H
#define HARK_TESTS_AHCA_PACKING_H

#include "models/network.h"

#define AHCA_PACKED_TOKENS 64

typedef struct ahca_packing {
  hark_context *context;
  const hark_network *network;
  hark_packing packing;
  hark_tensor positions;
  int64_t segments[AHCA_PACKED_TOKENS];
  hark_attention_plan **training, **evaluation;
} ahca_packing;

/* Sequences of these lengths, one after the other. *out stays where it is until the close. */
void ahca_packing_open(hark_context *context, const hark_network *network, const int64_t *lengths, int64_t sequences, ahca_packing *out);
void ahca_packing_close(ahca_packing *p);

/* Sets packing and plans. */
void ahca_packing_give(const ahca_packing *p, hark_forward *forward);

#endif

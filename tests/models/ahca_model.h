/* ahca_model.h - networks of compressed attention for tests, and packed batches for them. */
#ifndef HARK_TESTS_AHCA_MODEL_H
#define HARK_TESTS_AHCA_MODEL_H

#include <hark/hark.h>

#include "models/ahca.h"
#include "models/ahca_layers.h"
#include "models/ahca_packing.h"

#define VOCABULARY 9
#define CLASSES 3
#define FEATURES 3
#define SEQUENCES 3
#define CONTEXT 17

#define OF(wide, places)                                                                                                                   \
  .architecture = HARK_ARCHITECTURE_AHCA, .vocabulary = VOCABULARY, .layers = 3, .heads = 2, .key_heads = 2, .width = wide,                \
  .feed_forward_width = 10, .context = CONTEXT, .norm_epsilon = 1e-5, .positions = places, .attention.window = 2
#define ANY OF(6, HARK_POSITIONS_LEARNED)
#define EVEN OF(8, HARK_POSITIONS_LEARNED) /* of features of a head, for rotary positions */
#define LABELS ANY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE)
#define WINDOW ANY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW), .classes = CLASSES
#define HIERARCHICAL ANY, .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL), .attention.hierarchy_block = 2
#define BASE LABELS, .classes = CLASSES
#define LOCAL(layers, tokens) .local_layers = layers, .local_window = tokens
#define CHUNKS(rule, size) .chunk = rule, .chunk_size = size, .chunk_minimum = 2, .chunk_maximum = 6, .delimiter = 4, .window = 2
#define SLOTS(first, second, count) .primary_slots = first, .secondary_slots = second, .selected = count

typedef struct ahca_variant {
  const char *name;
  hark_network_config config;
} ahca_variant;
extern const ahca_variant ahca_variants[];
extern const int ahca_variant_count;

/* A network and a packed batch of sequences for it. */
typedef struct ahca_model {
  hark_context *context;
  hark_network *network;
  hark_tape *tape;
  hark_tensor tokens, targets, ranges;
  ahca_packing packed;
  hark_tensor vectors;        /* of a model that reads these */
  hark_tensor reference;      /* of the straight-through estimator; absent where there is none */
  int64_t sequences, answers; /* what is predicted: of sequences, or of tokens */
  bool without_smoothing;     /* in losses; false */
} ahca_model;

bool ahca_predicts_tokens(const ahca_model *m);
int64_t ahca_choices(const ahca_model *m);
int32_t ahca_token_at(int64_t sequence, int64_t i);
hark_value ahca_vectors_of(const ahca_model *m);
void ahca_batch_open(ahca_model *m, int64_t first, const int64_t *lengths, int64_t sequences);
void ahca_batch_close(ahca_model *m);
void ahca_model_open(ahca_model *m, hark_context *context, const hark_network_config *config, hark_type type);
void ahca_model_close(ahca_model *m);
double ahca_traced_loss(const ahca_model *m, double remaining, bool backward, hark_ahca_trace *trace);
double ahca_loss_of(const ahca_model *m, double remaining, bool backward);

#endif

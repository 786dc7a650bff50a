/* ahca_trained.h - models of compressed attention (models/ahca.h) that the experiments ahca-* train and count.
 *
 * The network is the one of `hark train`. An experiment adds batches of B sequences of M tokens, and decides in place of the model what it
 * measures the worth of: random selections, random ranks of depth, boundaries that some gradients do not reach (hark_ahca_given).
 */
#ifndef HARK_LAB_AHCA_TRAINED_H
#define HARK_LAB_AHCA_TRAINED_H

#include "lab/training.h"
#include "models/ahca.h"
#include "models/packed_batch.h"

typedef struct hark_lab_ahca_config {
  hark_network_config model;
  int64_t sequences, rows; /* B, M */
  /* Decided in place of the model. */
  bool random_selection; /* Cs rows of C2, drawn for every pass */
  bool random_depth;     /* ranks of chunks, drawn for every pass; layers have no gates */
  bool without_smoothing, without_straight_through;
} hark_lab_ahca_config;

/* A model with the defaults of `hark train`, of as much context as a sequence has: the parts that no experiment changes. */
hark_network_config hark_lab_ahca_model(int64_t rows, int64_t vocabulary, int64_t width, int64_t heads, int64_t layers);

/* The part of the chunks that has layers 2 .. */
void hark_lab_ahca_give_capacity(hark_lab_ahca_config *config, double capacity);

typedef struct hark_lab_ahca {
  hark_lab_ahca_config config;
  hark_lab_training training;
  hark_network *network;
  uint32_t run;
  uint32_t stream; /* of what is drawn for a pass */
  int64_t tokens;  /* B M */
  int64_t chunks;  /* of a batch, at most */
  int64_t targets; /* of the last batch: those that count */
  double progress; /* of the training, 0 to 1, which the capacity depends on */
  hark_packed_batch read;
  hark_example_batch batch;
  hark_tensor target_ids, index, depth_scores;
  int32_t *host_tokens;    /* [B M] */
  int32_t *host_targets;   /* one for each token, -1: none; of a model that predicts classes one for each sequence */
  int32_t *host_predicted; /* as the targets, of the last test */
  int32_t *host_index;     /* [B, Cs] */
  int64_t *host_global;    /* [B + 1] */
  float *host_depth;       /* [chunks] */
  /* Of the last pass; 0 where it does not apply, the trace in passes without gradients only. */
  hark_ahca_trace trace;
  hark_value logits, loss, predicted;
} hark_lab_ahca;

/* Makes a batch: host_tokens and host_targets of the network, from the random numbers of one stream. */
typedef hark_status hark_lab_ahca_draw(hark_lab_ahca *network, uint32_t stream, void *user);

/* `run` distinguishes networks of an experiment, from 0 to 127: initial values and batches depend on it. Whatever happens, close frees what
 * is there. Errors: HARK_OUT_OF_MEMORY and those of the network. */
HARK_MUST_CHECK hark_status hark_lab_ahca_open(hark_lab *lab, const hark_lab_ahca_config *config, uint32_t run, hark_lab_ahca *out);
void hark_lab_ahca_close(hark_lab_ahca *network);

/* `steps` steps on batches that draw makes; *loss, where not NULL, is the mean over the last tenth. */
HARK_MUST_CHECK hark_status hark_lab_ahca_train(hark_lab_ahca *network, int64_t steps, double peak, hark_lab_ahca_draw *draw, void *user,
                                                double *loss);

/* A pass over test batch number `batch`, which no training sees. What it read and predicted is in host_tokens, host_targets and
 * host_predicted, *loss, where not NULL, is its cross-entropy in nats. */
HARK_MUST_CHECK hark_status hark_lab_ahca_test(hark_lab_ahca *network, uint32_t batch, hark_lab_ahca_draw *draw, void *user, double *loss);

/* A pass of a hark_lab_ahca, for the functions of training.h. */
hark_status hark_lab_ahca_record(void *network, const hark_forward *forward, hark_value *loss);

/* From shapes alone. */
HARK_MUST_CHECK hark_status hark_lab_ahca_needs(hark_lab_ahca *network, bool backward, hark_lab_needs *out);

/* The same of a network that is made for it. */
HARK_MUST_CHECK hark_status hark_lab_ahca_count(hark_lab *lab, const hark_lab_ahca_config *config, bool backward, hark_lab_needs *out);

/* Operations of a pass without gradients over tokens of which none matters: of as many chunks as there are at each depth, where counts from
 * shapes alone have the most that may be. */
HARK_MUST_CHECK hark_status hark_lab_ahca_operations(hark_lab *lab, const hark_lab_ahca_config *config, double *out);

/* host_tokens and host_targets to where a pass reads them. */
HARK_MUST_CHECK hark_status hark_lab_ahca_write(hark_lab_ahca *network);

/* Numbers of a value of the last pass: how many there are, and these, to host memory of its type. */
int64_t hark_lab_ahca_length(const hark_lab_ahca *network, hark_value value);
HARK_MUST_CHECK hark_status hark_lab_ahca_read(hark_lab_ahca *network, hark_value value, void *out);

#endif

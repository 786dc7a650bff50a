/* ahca_tasks.h - three tasks, each of which one part of adaptive hierarchical compressed attention is for.
 *
 *   needle   M = 512 tokens, one of which, anywhere, is one of 16 labels: the last token of each of 32 chunks predicts which. What passes
 *            between chunks
 *   maps     a chunk is a flag and a map f of 8 symbols; its last token predicts f(0) where it is not flagged (3 of 4), and f(f(f(f(0))))
 *            where it is. Depth
 *   runs     runs of 3 to 13 tokens of one of 16 topics, four tokens a topic; the topic of every token is predicted from its chunk alone.
 *            Boundaries
 */
#ifndef HARK_LAB_AHCA_TASKS_H
#define HARK_LAB_AHCA_TASKS_H

#include "lab/ahca_trained.h"
#include "lab/lab_text.h"

/* How long a network learns and how much is tested. `run` as in hark_lab_ahca_open(). */
typedef struct hark_lab_study {
  uint32_t run;
  int64_t steps, tests;
} hark_lab_study;

/* Steps of a full run. */
#define HARK_LAB_NEEDLE_STEPS 2500
#define HARK_LAB_MAPS_STEPS 1500
#define HARK_LAB_RUNS_STEPS 1200

#define HARK_LAB_MAPS_LAYERS 4
#define HARK_LAB_MAPS_SYMBOLS 8
#define HARK_LAB_MAPS_HOPS 4

/* What experiments begin with: learned selection; learned depth, layers 2 to 4 for a quarter of the chunks; learned boundaries. Maps and
 * runs have no global tokens. */
hark_lab_ahca_config hark_lab_needle_config(void);
hark_lab_ahca_config hark_lab_maps_config(void);
hark_lab_ahca_config hark_lab_runs_config(void);

/* Batches, as hark_lab_ahca_draw. needle: `user` is an int64_t a sequence, where the place of its needle is written. */
hark_status hark_lab_draw_needle(hark_lab_ahca *network, uint32_t stream, void *user);
hark_status hark_lab_draw_maps(hark_lab_ahca *network, uint32_t stream, void *user);
hark_status hark_lab_draw_runs(hark_lab_ahca *network, uint32_t stream, void *user);

/* Windows of a text that are to be read back, of as many letters as the network has rows. `user` is a hark_lab_text_part. */
typedef struct hark_lab_text_part {
  hark_lab_text text;
  bool held_out; /* of what is held out */
} hark_lab_text_part;
hark_status hark_lab_draw_text(hark_lab_ahca *network, uint32_t stream, void *user);

/* Shares of the tests. */
typedef struct hark_lab_needle_result {
  double accuracy; /* of chunks */
  double selected; /* sequences whose needle's token of C2 is among the selected; 0 without a second level */
} hark_lab_needle_result;

typedef struct hark_lab_maps_result {
  double easy, hard; /* accuracy */
  double deep;       /* of the hard chunks, those with all layers */
  double depth;      /* mean over all */
} hark_lab_maps_result;

typedef struct hark_lab_runs_result {
  double accuracy;          /* of tokens */
  double precision, recall; /* of boundaries but those that begin sequences */
  double cuts, truth;       /* boundaries a token: made, and there */
} hark_lab_runs_result;
/* 2 p r / (p + r), 0 for 0. */
double hark_lab_runs_f1(const hark_lab_runs_result *result);

/* Trains a network and tests it. Errors: those of hark_lab_ahca_open() and hark_lab_ahca_train(). */
HARK_MUST_CHECK hark_status hark_lab_learn_needle(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study,
                                                  hark_lab_needle_result *out);
HARK_MUST_CHECK hark_status hark_lab_learn_maps(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study,
                                                hark_lab_maps_result *out);
HARK_MUST_CHECK hark_status hark_lab_learn_runs(hark_lab *lab, const hark_lab_ahca_config *config, const hark_lab_study *study,
                                                hark_lab_runs_result *out);

#endif

/* engine.h - a model, its optimiser and the memory of a step: what turns batches of tokens into updates. It knows no files.
 *
 *   hark_engine_begin_step
 *   hark_engine_micro_batch  ... as often as batches are accumulated
 *   hark_engine_finish_step
 *
 * and, to evaluate: hark_engine_predict, and hark_engine_loss as often as there are sets of targets.
 */
#ifndef HARK_TRAIN_ENGINE_H
#define HARK_TRAIN_ENGINE_H

#include "models/packed_batch.h"
#include "models/stack.h"
#include "train/ahca_statistics.h"
#include "train/config.h"
#include "train/schedule.h"

/* What the data say of the model. */
typedef struct hark_learning_task {
  int32_t vocabulary;
  int32_t classes;             /* 0: targets are tokens */
  int parts;                   /* sequences of an example; 0: windows of a text, in rectangular batches */
  int64_t sequences;           /* of packed sentences: most in a window; 0: parts */
  int64_t features, responses; /* of real vectors; 0: there are none */
} hark_learning_task;

/* What is added to the mean loss of the targets before its gradient is taken. Each is a metric of its own, weighted as it enters. */
typedef enum hark_loss_term { HARK_TERM_SMOOTHING, HARK_TERM_RATIO, HARK_TERM_PONDER, HARK_LOSS_TERMS } hark_loss_term;
typedef struct hark_loss_parts {
  double objective; /* the sum, whose gradient is taken */
  double terms[HARK_LOSS_TERMS];
  bool has[HARK_LOSS_TERMS]; /* of this run */
} hark_loss_parts;
/* "train/ratio_loss" */
const char *hark_loss_term_name(hark_loss_term term);

/* Packed examples: what a pass reads besides their targets. Absent where batches are rectangular. */
typedef struct hark_engine_packing {
  hark_packed_batch read;
  hark_tensor responses; /* f32 [rows, responses] */
  int32_t *predicted;    /* host, [tokens], of the last pass: the likeliest of every row of logits; 0 for vectors */
} hark_engine_packing;

typedef struct hark_engine {
  const hark_config *config; /* borrowed */
  hark_learning_task task;
  hark_network *network;
  hark_attention_plan **training_plans, **evaluation_plans;
  hark_tape *tape;
  hark_tensor first_moment, second_moment; /* flat, like the weights; absent without training */
  hark_tensor inputs, targets, square_sum; /* i32 [batch, context] twice, inputs of rectangular batches alone; f64 [1] */
  hark_tensor workspace;                   /* of sum_squares */
  hark_engine_packing *packing;            /* NULL: batches are rectangular */
  hark_value logits, targets_read;         /* of the last hark_engine_predict(); 0: another pass has taken their place */
  hark_schedule_plan plan;                 /* of the whole run, for what changes in its course; zeros: nothing does */
  hark_attention_report report;            /* pivots that kernel ridge attention has mended */
  hark_ahca_statistics *statistics;        /* of architecture ahca: what passes of evaluation decide is added to it; NULL: nobody asks */
  hark_ahca_trace trace;
  hark_loss_parts parts;                    /* of the last training pass */
  hark_value total, terms[HARK_LOSS_TERMS]; /* the same on the tape; of smoothing the smoothed loss */
  double extra_operations;                  /* of the last pass, for metrics alone */
  bool training;
} hark_engine;

/* The network's configuration as the run's configuration and its data say. */
hark_network_config hark_engine_network_config(const hark_config *config, const hark_learning_task *task);
/* The same of a model of text. */
hark_network_config hark_engine_text_config(const hark_config *config, int32_t vocabulary);

/* Makes model, optimiser and, by a shape-only run of a step, the memory that a step needs. Weights are zero. Without `training` only
 * hark_engine_predict() and hark_engine_loss() may be called. Errors: those of the model and of attention plans; HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_engine_create(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                               hark_engine **out);
/* The same for any task; examples come in packed batches of at most train.batch examples. */
HARK_MUST_CHECK hark_status hark_engine_create_for(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                   bool training, hark_engine **out);
void hark_engine_destroy(hark_context *context, hark_engine **engine);

/* Bytes by use. */
typedef struct hark_engine_memory {
  size_t weights, gradients, moments, step, batch;
} hark_engine_memory;
hark_engine_memory hark_engine_memory_of(const hark_engine *engine);

/* What an engine would take, without making it; also the numbers that are learned, and in how many tensors. Errors: as create, but memory
 * for the model is not asked for. */
HARK_MUST_CHECK hark_status hark_engine_estimate(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                                 hark_engine_memory *memory, int64_t *parameters, int64_t *tensors);
HARK_MUST_CHECK hark_status hark_engine_estimate_for(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                     bool training, hark_engine_memory *memory, int64_t *parameters, int64_t *tensors);

/* Forgets the gradients of the step before. */
HARK_MUST_CHECK hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine);

/* Adds the gradient of weight * (sum of losses) over `rows` windows. first_sample and micro_step name the dropout's random numbers. *loss: without
 * what engine->parts has besides, as an evaluation counts it. */
HARK_MUST_CHECK hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs,
                                                    const int32_t *targets, int64_t rows, uint64_t first_sample, uint32_t micro_step,
                                                    double weight, double *loss);

/* What came of a pass over packed examples. */
typedef struct hark_pass_result {
  double loss;   /* of training: without what engine->parts has besides */
  int64_t right; /* targets that are the likeliest */
} hark_pass_result;

/* hark_engine_micro_batch() with packed examples. */
HARK_MUST_CHECK hark_status hark_engine_train_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch,
                                                       uint32_t micro_step, double weight, hark_pass_result *result);

/* What came of a step. */
typedef struct hark_step_result {
  double gradient_norm; /* before clipping */
  bool applied;         /* false: loss or gradients were not finite, nothing was changed */
} hark_step_result;

/* Clips and updates; matrices with bounds are then projected (nn/norm_bound.h). Unless `loss` and all gradients are finite it returns before it touches weights or moments, which so keep their bits.
 * `step` counts updates from 1. */
HARK_MUST_CHECK hark_status hark_engine_finish_step(hark_context *context, hark_engine *engine, int64_t step, double rate, double loss,
                                                    hark_step_result *result);

/* HARK_NOT_FINITE when a weight or a moment is not finite: such a state does not recover and is not worth keeping. */
HARK_MUST_CHECK hark_status hark_engine_check_finite(hark_context *context, hark_engine *engine);

/* Computes the logits of `rows` windows, which stay until the next pass. `length` [1, context]: the tokens of these windows, which lie one
 * behind the other in `inputs`, and the targets that are given later too. */
HARK_MUST_CHECK hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, int64_t rows,
                                                int64_t length);

/* Sum of the losses (natural logarithm, without smoothing) of those targets of the windows read last that are not ignored. Rows of ignored
 * targets cost next to nothing: a sum for each of several parts of the targets costs as much as one for all. Errors: HARK_INVALID_ARGUMENT
 * when another pass came between. */
HARK_MUST_CHECK hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum);

/* How many of those targets are the likeliest tokens, which `likeliest` gets: room for rows times length numbers. For engines whose architecture
 * tells hidden tokens. Errors: as hark_engine_loss. */
HARK_MUST_CHECK hark_status hark_engine_right(hark_context *context, hark_engine *engine, const int32_t *targets, int32_t *likeliest,
                                              int64_t *right);

/* Loss (a sum, natural logarithm, without smoothing; of vectors the squared errors) and predictions of packed examples; *predicted [rows or
 * tokens] is the engine's, good until
 * the next pass. */
HARK_MUST_CHECK hark_status hark_engine_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch,
                                                          hark_pass_result *result, const int32_t **predicted);

/* Useful operations of the last micro-batch, forward and backward; a loss that is computed for metrics alone is none of them. */
double hark_engine_operations(const hark_engine *engine);

#endif

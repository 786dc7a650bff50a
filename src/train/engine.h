/* engine.h - a model, its optimiser and the memory of a step, which turn batches of tokens into updates. It does not use files.
 *
 *   hark_engine_begin_step
 *   hark_engine_micro_batch  ... once per accumulated batch
 *   hark_engine_finish_step
 *
 * and for evaluation: hark_engine_predict, then hark_engine_loss once per set of targets.
 */
#ifndef HARK_TRAIN_ENGINE_H
#define HARK_TRAIN_ENGINE_H

#include "group/sequence.h"
#include "models/packed_batch.h"
#include "models/stack.h"
#include "train/ahca_statistics.h"
#include "train/config.h"
#include "train/delimiter_tokens.h"
#include "train/engine_rows.h"
#include "train/gradient_sum.h"
#include "train/moment_share.h"
#include "train/moments.h"
#include "train/schedule.h"
#include "train/table_baselines.h"

/* What the data determine. */
typedef struct hark_learning_task {
  int32_t vocabulary;
  int32_t classes;                  /* 0: targets are tokens */
  int parts;                        /* sequences of an example; 0: windows of a text, in rectangular batches */
  int64_t sequences;                /* of packed sentences: the largest number in a window; 0: parts */
  int64_t features, responses;      /* of real vectors, or of rows of tables; 0: tokens */
  bool tables;                      /* examples are tables; responses belong to every row */
  bool classified;                  /* of tables: the target of a row is its class, one of the responses */
  int64_t targets;                  /* the most targets at tokens of an example; 0: at every token */
  hark_end_tokens ends;             /* of an imported tokenizer */
  hark_delimiter_tokens delimiters; /* those that are texts in the configuration */
} hark_learning_task;
/* Whether predictions are correct or not: of tokens and classes, not of numbers. */
static inline bool hark_task_has_classes(const hark_learning_task *task) { return task->features == 0 || task->classified; }

/* Terms that are added to the mean loss of the targets before its gradient is taken. Each is a separate metric, with its weight. */
typedef enum hark_loss_term { HARK_TERM_SMOOTHING, HARK_TERM_Z, HARK_TERM_RATIO, HARK_TERM_PONDER, HARK_LOSS_TERMS } hark_loss_term;
typedef struct hark_loss_parts {
  double objective; /* the sum with the mean loss, whose gradient is taken */
  double terms[HARK_LOSS_TERMS];
  bool has[HARK_LOSS_TERMS]; /* terms that this run has */
} hark_loss_parts;
/* "train/ratio_loss" */
const char *hark_loss_term_name(hark_loss_term term);

/* Packed examples: the input of a pass, except targets that are not vectors. Absent with rectangular batches. */
typedef struct hark_engine_packing {
  hark_packed_batch read;
  hark_tensor responses; /* f32 [rows, responses]; of tables they are in `read` */
  float *numbers;        /* host, [tokens, 2 responses], of tables: predictions of the last pass for the queries */
  int32_t *predicted;    /* host, [tokens], of the last pass: the most likely number of every row, -1 without logits; 0 for vectors */
} hark_engine_packing;

typedef struct hark_engine {
  const hark_config *config; /* borrowed */
  hark_learning_task task;
  hark_sequence sequence; /* group NULL: this process has all rows of a window */
  hark_network *network;
  hark_attention_plan **training_plans, **evaluation_plans;
  hark_tape *tape;
  hark_tensor first_moment, second_moment; /* flat (moments.h), of the weights of `share.range`; the optimiser may lack the first */
  hark_moment_share share;                 /* of the processes of a group */
  hark_tensor types;                       /* i32 [batch, context], zeros, of rectangular batches for models with token types */
  hark_tensor inputs, targets, square_sum; /* i32 [batch, context] twice, inputs only of rectangular batches; f64 [1] */
  hark_tensor workspace;                   /* of sum_squares and the optimiser */
  hark_gradient_sum sum;                   /* of the micro-batches of a step */
  hark_engine_packing *packing;            /* NULL: rectangular batches */
  hark_engine_rows rows;                   /* that have logits */
  int64_t most_targets;                    /* of a pass, for its memory */
  int64_t windows, length;                 /* of the last hark_engine_predict() */
  hark_value logits, targets_read;         /* of the last hark_engine_predict(); 0: another pass followed */
  hark_schedule_plan plan;                 /* of the whole run, for what changes during it; zeros: nothing changes */
  hark_attention_report report;            /* pivots that kernel ridge attention has corrected */
  hark_ahca_statistics *statistics; /* of architecture ahca: decisions of evaluation passes are added to it; NULL: they are not counted */
  hark_ahca_trace trace;
  hark_loss_parts parts;                    /* of the last training pass */
  hark_value total, terms[HARK_LOSS_TERMS]; /* the same on the tape; the terms of smoothing and of z are the whole loss with them */
  double extra_operations;                  /* of the last pass, only for metrics */
  bool keeps_outputs;                       /* set by the caller: passes over examples keep their logits for hark_engine_outputs() */
  bool all_rows;                            /* set by the caller: tokens without a target have logits too; task.targets is 0 then */
  double largest_operations;                /* of the largest possible micro-batch, or without training of a prediction */
  bool training;
  hark_type matrices; /* in which the network holds them; HARK_NONE: f32 */
} hark_engine;

/* The network's configuration: that of the run, with what the data determine. */
hark_network_config hark_engine_network_config(const hark_config *config, const hark_learning_task *task);
/* The same for a model of text. */
hark_network_config hark_engine_text_config(const hark_config *config, int32_t vocabulary);

/* Makes the model, the optimiser and the memory that a step needs, which a shape-only run of a step determines. Weights are zero. If
 * context->sequence is set, an engine for training computes the own rows of windows alone, and all processes of the sequence call it alike:
 * its windows are whole ones, its losses those of the own rows. Without `training` only hark_engine_predict() and hark_engine_loss() may be
 * called. Errors: those of the model and of attention plans; HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_engine_create(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                               hark_engine **out);
/* The same for any task. Batches of examples are packed, of at most train.batch examples. */
HARK_MUST_CHECK hark_status hark_engine_create_for(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                   bool training, hark_engine **out);
/* The same for measuring only, with matrices held in `matrices`: HARK_F32, HARK_BF16, HARK_F16 or HARK_I8. Errors: also those of
 * hark_parameters_hold(). */
HARK_MUST_CHECK hark_status hark_engine_create_to_measure(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                          hark_type matrices, hark_engine **out);
void hark_engine_destroy(hark_context *context, hark_engine **engine);

/* Bytes by use. */
typedef struct hark_engine_memory {
  size_t weights, gradients, moments, step, batch;
} hark_engine_memory;
hark_engine_memory hark_engine_memory_of(const hark_engine *engine);

/* The memory that an engine would need, without making it, and the numbers of weights and of their tensors. Errors: as create; memory for
 * the model is not allocated. */
HARK_MUST_CHECK hark_status hark_engine_estimate(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                                 hark_engine_memory *memory, int64_t *parameters, int64_t *tensors);
HARK_MUST_CHECK hark_status hark_engine_estimate_for(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                     bool training, hark_engine_memory *memory, int64_t *parameters, int64_t *tensors);

/* *operations <- hark_engine_operations() of a training pass of train.batch windows of a masked encoder, were every token masked. Errors:
 * as hark_engine_estimate_for. */
HARK_MUST_CHECK hark_status hark_engine_operations_of_all(hark_context *context, const hark_config *config, const hark_learning_task *task,
                                                          double *operations);

/* Forgets the gradients of the previous step; with train.precision bf16 rounds the weights for this one. */
HARK_MUST_CHECK hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine);

/* Computes the gradient of weight * (sum of losses) over `rows` windows. first_sample and micro_step select the dropout's random numbers.
 * *loss is that of an evaluation, without the other terms of engine->parts. */
HARK_MUST_CHECK hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs,
                                                    const int32_t *targets, int64_t rows, uint64_t first_sample, uint32_t micro_step,
                                                    double weight, double *loss);

/* The result of a pass over packed examples. */
typedef struct hark_pass_result {
  double loss;            /* in training without the other terms of engine->parts */
  int64_t correct;        /* targets that are the most likely */
  hark_table_sums tables; /* of tables */
} hark_pass_result;

/* hark_engine_micro_batch() with packed examples. */
HARK_MUST_CHECK hark_status hark_engine_train_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch,
                                                       uint32_t micro_step, double weight, hark_pass_result *result);

/* The result of a step. */
typedef struct hark_step_result {
  double gradient_norm; /* before clipping */
  bool applied;         /* false: the loss or a gradient was not finite, and nothing was changed */
} hark_step_result;

/* Clips and updates; matrices with bounds are then projected (nn/norm_bound.h). If `loss` or a gradient is not finite, weights and moments
 * keep their bits. `step` counts updates from 1. */
HARK_MUST_CHECK hark_status hark_engine_finish_step(hark_context *context, hark_engine *engine, int64_t step, double rate, double loss,
                                                    hark_step_result *result);

/* HARK_NOT_FINITE if a weight or a moment is not finite: such a state does not recover and is not saved. Where moments are divided, all
 * processes call it and get the same result. */
HARK_MUST_CHECK hark_status hark_engine_check_finite(hark_context *context, hark_engine *engine);

/* Computes the logits of `rows` windows, which are kept until the next pass. `length` [1, context]: the number of tokens of each window;
 * the windows are one after the other in `inputs`, as are the targets. Targets that are given later may be those of `targets` alone, so
 * that rows without a target may have no logits; targets NULL: any. */
HARK_MUST_CHECK hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, const int32_t *targets,
                                                int64_t rows, int64_t length);

/* The sum of the losses (natural logarithm, without smoothing) of targets of the windows that were read last, except ignored ones. Ignored
 * targets cost almost nothing, so that several sums over parts of the targets cost as much as one over all. Errors: HARK_INVALID_ARGUMENT
 * if there was another pass in between, or a target has no logits. */
HARK_MUST_CHECK hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum);

/* The number of those targets that are the most likely tokens. These are written to `likeliest`, which has rows times length numbers, -1
 * for rows without logits. For architectures that predict masked tokens. Errors: as hark_engine_loss. */
HARK_MUST_CHECK hark_status hark_engine_correct(hark_context *context, hark_engine *engine, const int32_t *targets, int32_t *likeliest,
                                                int64_t *correct);

/* Loss (a sum, natural logarithm, without smoothing; for vectors the squared errors) and predictions of packed examples. *predicted [rows
 * or tokens; tokens without logits have -1] belongs to the engine and is valid until the next pass. */
HARK_MUST_CHECK hark_status hark_engine_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batch *batch,
                                                          hark_pass_result *result, const int32_t **predicted);

/* Rows first .. first + count of what the last hark_engine_evaluate_examples() computed, with engine->keeps_outputs: logits, or the
 * predicted numbers of vectors, f32 [count, width] in host memory. There is a row for each example, or for each token with logits, those
 * whose predicted number is not -1, in their order. Errors: HARK_INVALID_ARGUMENT (nothing is kept, no such rows), those of the backend. */
HARK_MUST_CHECK hark_status hark_engine_outputs(hark_context *context, const hark_engine *engine, int64_t first, int64_t count, float *out);

/* The status of work in which passes are computed, at its end. In passes over windows whose tokens are spread over processes, and between
 * them, the other processes wait for the rows of this one, and not for its error: if it has failed, it gives the group up. */
hark_status hark_engine_end_work(hark_context *context, const hark_engine *engine, hark_status status);

/* The tokens of a window that this process computes. */
int64_t hark_engine_own_length(const hark_engine *engine);

/* Useful operations of the last micro-batch, forward and backward, without those of a loss that is computed only for metrics. */
double hark_engine_operations(const hark_engine *engine);

#endif

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

#include "models/decoder.h"
#include "train/config.h"

typedef struct hark_engine {
  const hark_config *config; /* borrowed */
  hark_decoder *decoder;
  hark_attention_plan **training_plans, **evaluation_plans;
  hark_tape *tape;
  hark_tensor first_moment, second_moment; /* flat, like the weights; absent without training */
  hark_tensor inputs, targets, square_sum; /* i32 [batch, context] twice; f64 [1] */
  hark_tensor workspace;                   /* of sum_squares */
  hark_value logits, targets_read;         /* of the last hark_engine_predict(); 0: another pass has taken their place */
  hark_attention_report report;            /* pivots that kernel ridge attention has mended since the engine was made */
  bool training;
} hark_engine;

/* The decoder's configuration as the run's configuration says. */
hark_decoder_config hark_engine_decoder_config(const hark_config *config, int32_t vocabulary);

/* Makes model, optimiser and, by a shape-only run of a step, the memory that a step needs. Weights are zero. Without `training` only
 * hark_engine_predict() and hark_engine_loss() may be called. Errors: those of the model and of attention plans; HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_engine_create(hark_context *context, const hark_config *config, int32_t vocabulary, bool training,
                                               hark_engine **out);
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

/* Forgets the gradients of the step before. */
HARK_MUST_CHECK hark_status hark_engine_begin_step(hark_context *context, hark_engine *engine);

/* Adds the gradient of weight * (sum of losses) over `rows` windows. first_sample and micro_step name the dropout's random numbers. */
HARK_MUST_CHECK hark_status hark_engine_micro_batch(hark_context *context, hark_engine *engine, const int32_t *inputs,
                                                    const int32_t *targets, int64_t rows, uint64_t first_sample, uint32_t micro_step,
                                                    double weight, double *loss);

/* What came of a step. */
typedef struct hark_step_result {
  double gradient_norm; /* before clipping */
  bool applied;         /* false: loss or gradients were not finite, nothing was changed */
} hark_step_result;

/* Clips and updates. Unless `loss` and all gradients are finite it returns before it touches weights or moments, which so keep their bits.
 * `step` counts updates from 1. */
HARK_MUST_CHECK hark_status hark_engine_finish_step(hark_context *context, hark_engine *engine, int64_t step, double rate, double loss,
                                                    hark_step_result *result);

/* HARK_NOT_FINITE when a weight or a moment is not finite: such a state does not recover and is not worth keeping. */
HARK_MUST_CHECK hark_status hark_engine_check_finite(hark_context *context, hark_engine *engine);

/* Computes the logits of `rows` windows, which stay until the next pass. */
HARK_MUST_CHECK hark_status hark_engine_predict(hark_context *context, hark_engine *engine, const int32_t *inputs, int64_t rows);

/* Sum of the losses (natural logarithm, without smoothing) of those targets of the windows read last that are not ignored. Rows of ignored
 * targets cost next to nothing: a sum for each of several parts of the targets costs as much as one for all. Errors: HARK_INVALID_ARGUMENT
 * when another pass came between. */
HARK_MUST_CHECK hark_status hark_engine_loss(hark_context *context, hark_engine *engine, const int32_t *targets, double *sum);

/* Useful operations of the last micro-batch, forward and backward. */
double hark_engine_operations(const hark_engine *engine);

#endif

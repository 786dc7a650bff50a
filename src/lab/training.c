/* training.c - see training.h. */
#include "lab/training.h"

#include <hark/operators.h>

#define BETA1 0.9
#define BETA2 0.98
#define EPSILON 1e-8
#define WARMUP_PART 20 /* one of so many steps */
#define LAST_RATE 0.1  /* of the peak */
#define RUN_SEEDS 1000003u

hark_status hark_lab_training_failed(const hark_lab_training *training, hark_status status) {
  if (status == HARK_OK || training->context == NULL || hark_context_message(training->context)[0] == 0) return status;
  return hark_fail(training->lab->context, status, "%s", hark_context_message(training->context));
}

hark_status hark_lab_training_open(hark_lab *lab, hark_lab_training *out) {
  *out = (hark_lab_training){.lab = lab};
  const hark_context_options options = {.struct_size = sizeof options,
                                        .allocator = &lab->context->allocator,
                                        .threads = hark_context_threads(lab->context),
                                        .backend = "cpu",
                                        .deterministic = true,
                                        .seed = lab->seed};
  const hark_status made = hark_context_create(&options, &out->context);
  if (made != HARK_OK) return hark_fail(lab->context, made, "%s", hark_status_text(made));
  hark_parameters_open(&out->parameters, HARK_F32);
  out->trained = &out->parameters;
  return hark_lab_training_failed(out, hark_tape_create(out->context, &out->tape));
}

void hark_lab_training_close(hark_lab_training *training) {
  if (training->context == NULL) return;
  hark_tape_destroy(&training->tape);
  for (int i = 0; i < 2; i++) hark_tensor_destroy(training->context, &training->moments[i]);
  hark_parameters_close(training->context, &training->parameters);
  hark_context_destroy(&training->context);
}

static hark_status begin(hark_lab_training *training, uint32_t run) {
  HARK_TRY(hark_parameters_finish(training->context, training->trained, true));
  for (int i = 0; i < 2; i++)
    HARK_TRY(hark_tensor_create(training->context, HARK_F32, 1, training->trained->weights.shape, &training->moments[i]));
  return hark_parameters_initialise(training->context, training->trained, training->lab->seed + (uint64_t)run * RUN_SEEDS);
}

hark_status hark_lab_training_begin(hark_lab_training *training, uint32_t run) {
  return hark_lab_training_failed(training, begin(training, run));
}

static hark_status record(hark_lab_training *training, bool recording, hark_lab_pass *pass, void *user, hark_value *loss) {
  const hark_forward forward = {.tape = training->tape, .parameters = training->trained, .training = recording};
  hark_tape_reset(training->tape);
  hark_tape_set_recording(training->tape, recording);
  return pass(user, &forward, loss);
}

/* Goes through a step without computing. */
static hark_status measure(hark_lab_training *training, bool backward, hark_lab_pass *pass, void *user, hark_lab_needs *out) {
  hark_value loss = 0;
  hark_tape_set_shape_only(training->tape, true);
  hark_status status = record(training, backward, pass, user, &loss);
  const double operations = hark_tape_operations(training->tape);
  if (status == HARK_OK && backward) status = hark_tape_backward(training->tape, loss, 1);
  hark_tape_set_shape_only(training->tape, false);
  *out = (hark_lab_needs){operations, (double)hark_tape_peak_bytes(training->tape)};
  return status;
}

hark_status hark_lab_training_needs(hark_lab_training *training, bool backward, hark_lab_pass *pass, void *user, hark_lab_needs *out) {
  return hark_lab_training_failed(training, measure(training, backward, pass, user, out));
}

static double rate_of(int64_t step, int64_t steps, double peak) {
  const double warmup = fmax(1, (double)(steps / WARMUP_PART)), at = (double)step;
  const double done = fmin(1, at / (double)steps);
  return peak * fmin(1, at / warmup) * (LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + cos(acos(-1.) * done)));
}

static hark_status update(hark_lab_training *training, double rate) {
  hark_parameters *const p = training->trained;
  const hark_adamw_attributes attributes = {
      .rate = rate, .beta1 = BETA1, .beta2 = BETA2, .epsilon = EPSILON, .gradient_scale = 1, .step = training->step};
  const hark_call call = {.op = &hark_op_adamw,
                          .attributes = &attributes,
                          .input_count = 4,
                          .inputs = {p->weights, p->gradients, training->moments[0], training->moments[1]}};
  return hark_operator_forward(training->context, &call);
}

static hark_status take_step(hark_lab_training *training, int64_t steps, double peak, hark_lab_pass *pass, void *user, double *loss) {
  hark_value value = 0;
  float number = 0;
  if (training->step == 0) {
    hark_lab_needs needs;
    HARK_TRY(measure(training, true, pass, user, &needs));
    HARK_TRY(hark_tape_reserve(training->tape));
  }
  HARK_TRY(hark_tensor_zero(training->context, &training->trained->gradients));
  HARK_TRY(record(training, true, pass, user, &value));
  HARK_TRY(hark_tensor_read(training->context, hark_tape_tensor(training->tape, value), &number));
  *loss = (double)number;
  if (!isfinite(*loss))
    return hark_fail(training->context, HARK_NOT_FINITE, "the loss of step %lld is %g", (long long)training->step + 1, *loss);
  HARK_TRY(hark_tape_backward(training->tape, value, 1));
  training->step++;
  return update(training, rate_of(training->step, steps, peak));
}

hark_status hark_lab_training_step(hark_lab_training *training, int64_t steps, double peak, hark_lab_pass *pass, void *user, double *loss) {
  *loss = NAN;
  hark_lab_tick(training->lab, training->step, steps);
  return hark_lab_training_failed(training, take_step(training, steps, peak, pass, user, loss));
}

hark_status hark_lab_training_predict(hark_lab_training *training, hark_lab_pass *pass, void *user) {
  hark_value none = 0;
  return hark_lab_training_failed(training, record(training, false, pass, user, &none));
}

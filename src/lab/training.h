/* training.h - small networks that an experiment trains: parameters, a tape and AdamW on the backend cpu in f32, as the trainer has them.
 *
 * Layers are declared between hark_lab_training_open() and hark_lab_training_begin(). A step is a pass that gives a loss, its backward and
 *
 *     w <- w - rate m / (sqrt(v) + 1e-8),   m, v of beta .9 and .98
 *     rate: up to `peak` within a twentieth of the steps, then down to a tenth along a cosine
 */
#ifndef HARK_LAB_TRAINING_H
#define HARK_LAB_TRAINING_H

#include "lab/lab.h"
#include "nn/forward.h"

typedef struct hark_lab_training {
  hark_lab *lab;
  hark_context *context; /* of its own: backend cpu */
  hark_parameters parameters;
  hark_parameters *trained; /* what is trained: `parameters`, or those of a network, which the caller puts here before begin and destroys */
  hark_tensor moments[2];
  hark_tape *tape;
  int64_t step; /* done so far */
} hark_lab_training;

/* Makes the context and the tape. hark_lab_training_close() is needed also after a failure. Errors: HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_lab_training_open(hark_lab *lab, hark_lab_training *out);
void hark_lab_training_close(hark_lab_training *training);

/* After a failure: the message of the training's context, if there is one, becomes the message of the lab's context. Returns the status. */
hark_status hark_lab_training_failed(const hark_lab_training *training, hark_status status);

/* Allocates the declared parameters and sets their initial values, which depend on the lab's seed and `run`. */
HARK_MUST_CHECK hark_status hark_lab_training_begin(hark_lab_training *training, uint32_t run);

/* Records a pass; *loss has rank 0 and is not used where forward->training is false. A pass must not read values: the first step begins
 * with a pass that computes nothing and measures the required memory. */
typedef hark_status hark_lab_pass(void *user, const hark_forward *forward, hark_value *loss);

/* Step training->step + 1 of `steps`. *loss is the loss before the step. Errors: those of the pass; HARK_NOT_FINITE for a loss that is not
 * finite. */
HARK_MUST_CHECK hark_status hark_lab_training_step(hark_lab_training *training, int64_t steps, double peak, hark_lab_pass *pass, void *user,
                                                   double *loss);

/* A pass without gradients; its values are valid until the next pass. */
HARK_MUST_CHECK hark_status hark_lab_training_predict(hark_lab_training *training, hark_lab_pass *pass, void *user);

/* What a pass needs: useful operations of the forward, and bytes of values (with `backward` also those of gradients), from shapes alone. */
typedef struct hark_lab_needs {
  double operations, bytes;
} hark_lab_needs;
HARK_MUST_CHECK hark_status hark_lab_training_needs(hark_lab_training *training, bool backward, hark_lab_pass *pass, void *user,
                                                    hark_lab_needs *out);

#endif

/* training_place.h - small runs of the trainer in a folder of their own, without the command. Failures end the test. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_TRAINING_PLACE_H
#define HARK_TESTS_SUPPORT_TRAIN_TRAINING_PLACE_H

#include "support/setups.h"
#include "support/text_files.h"
#include "train/trainer.h"

/* A folder of its own for every test, with a text, removed at the end. */
typedef struct training_place {
  hark_context *context;
  char folder[TEST_PATH_BYTES], text[TEST_PATH_BYTES];
} training_place;

void training_place_open_on(training_place *p, const test_setup *setup);
void training_place_open(training_place *p); /* backend cpu, generic */
void training_place_close(training_place *p);

/* Two small layers, 12 steps, every dropout and accumulation on, an evaluation every 5 steps. Its paths are good until the next call. */
hark_config training_configuration(const training_place *p);

/* Trains in FOLDER/name; a fresh run leaves a config.yaml, which is what makes a folder a run. */
hark_status training_run(training_place *p, const hark_config *config, const char *name, const hark_train_hooks *hooks,
                         hark_train_result *result);

/* A file of the folder; the caller frees it. */
hark_text training_file(training_place *p, const char *name);
void training_same_file(training_place *p, const char *a, const char *b);

/* As the `request` of hooks: stops after a number of steps, as an interrupt would. */
typedef struct training_interrupter {
  int64_t left;
} training_interrupter;
hark_request training_interrupt(void *user);

/* As the `clock` and the `request` of hooks: the time is what the work takes, a second a step (or a batch of an evaluation), and passes
 * between them alone. Stops like an interrupt when `left`, if it is more than 0, has come down to 0. */
typedef struct training_clock {
  double now, second; /* `second`: what is added at every call of request */
  int64_t left;
} training_clock;
double training_clock_now(void *user);
hark_request training_clock_tick(void *user);

#endif

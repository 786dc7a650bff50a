/* verify.h - whether the folder of a run is whole: what a reader, or a run that goes on, relies on. Nothing is changed. */
#ifndef HARK_TRAIN_VERIFY_H
#define HARK_TRAIN_VERIFY_H

#include "train/run.h"

/* One thing that was looked at: its place in the run's folder ("checkpoints/step-500"), and what is wrong with it, or NULL. `note` is worth
 * a line although nothing is wrong ("a last line that was not finished"), or NULL. */
typedef struct hark_finding {
  const char *what;
  const char *problem;
  const char *note;
} hark_finding;
typedef void hark_finding_visitor(void *user, const hark_finding *finding);

/* Looks at config.yaml, vocabulary.json, origin.json, metrics.jsonl, every checkpoint and the pointers; with `checkpoint` other than "" at
 * that one alone. A checkpoint is good when its files are those of its manifest, its tensors are well-formed and finite, every weight has
 * both moments in its shape, its state is of the step in its name, and metrics.jsonl reaches as far as it says, in whole lines.
 * *problems: how many there are; what is damaged is a finding and no failure. Errors: HARK_OUT_OF_MEMORY, HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_run_verify(hark_context *context, const hark_run *run, const char *checkpoint, hark_finding_visitor *visit,
                                            void *user, int64_t *problems);

#endif

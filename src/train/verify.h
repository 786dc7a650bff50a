/* verify.h - checks that the folder of a run is complete and undamaged, as readers and resumed runs require. Nothing is changed. */
#ifndef HARK_TRAIN_VERIFY_H
#define HARK_TRAIN_VERIFY_H

#include "train/run.h"

/* The result for one file or folder: its place in the run's folder ("checkpoints/step-500"), and its problem, or NULL. `note` is a remark
 * that is not a problem ("a last line that was not finished"), or NULL. */
typedef struct hark_finding {
  const char *what;
  const char *problem;
  const char *note;
} hark_finding;
typedef void hark_finding_visitor(void *user, const hark_finding *finding);

/* Checks config.yaml, vocabulary.json, origin.json, metrics.jsonl, every checkpoint and the pointers; with `checkpoint` other than "", only
 * that checkpoint. A checkpoint is good when its files agree with its manifest, its tensors are well-formed and finite, every weight has
 * both moments in its shape, its state has the step of its name, and metrics.jsonl has at least the bytes that it records, in complete
 * lines. *problems: the number of problems; damage is a finding, not a failure. Errors: HARK_OUT_OF_MEMORY, HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_run_verify(hark_context *context, const hark_run *run, const char *checkpoint, hark_finding_visitor *visit,
                                            void *user, int64_t *problems);

/* Checks that config.yaml is a complete and valid configuration. */
HARK_MUST_CHECK hark_status hark_run_check_configuration(hark_context *context, const hark_run *run);
/* Checks that metrics.jsonl has the `recorded` bytes that it had when checkpoint `name` was saved, and that they end a line. */
HARK_MUST_CHECK hark_status hark_run_check_metrics(hark_context *context, const hark_run *run, const char *name, uint64_t recorded);

#endif

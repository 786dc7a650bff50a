/* preflight.h - memory and disk that a run will need, estimated before anything large is allocated, and compared with what is available. */
#ifndef HARK_TRAIN_PREFLIGHT_H
#define HARK_TRAIN_PREFLIGHT_H

#include "train/run.h"

/* Input of the estimate. */
typedef struct hark_preflight {
  const hark_config *config;
  hark_learning_task task;
  int64_t steps;          /* remaining; INT64_MAX: not known */
  bool has_validation;    /* evaluations may add checkpoints */
  const hark_run *folder; /* the run's; it need not exist */
} hark_preflight;

/* Bytes. */
typedef struct hark_needs {
  int64_t parameters; /* number of learned numbers */
  hark_engine_memory engine;
  uint64_t program;     /* other memory of the process: code, threads, buffers of files and batches */
  uint64_t memory;      /* maximum of the process's resident bytes */
  uint64_t more_memory; /* the part of it that is not resident yet */
  bool memory_known;
  uint64_t memory_left; /* available */
  const char *memory_limit;

  uint64_t checkpoint;        /* of one checkpoint */
  int64_t checkpoints;        /* maximum number at once */
  uint64_t more_disk;         /* to be written, beyond what is there already */
  uint64_t disk_left;         /* available */
  char disk[HARK_PATH_BYTES]; /* a folder in that file system */
} hark_needs;

/* The memory is that of the process of the context's group that needs most; all processes call it. Errors: those of the configuration's
 * model; HARK_OUT_OF_MEMORY, those of files, of any process. */
HARK_MUST_CHECK hark_status hark_preflight_estimate(hark_context *context, const hark_preflight *run, hark_needs *out);

/* Compares the needs with what is available. Errors: HARK_TOO_LARGE (memory), HARK_IO_ERROR (disk). */
HARK_MUST_CHECK hark_status hark_preflight_check(hark_context *context, const hark_needs *needs);

#endif

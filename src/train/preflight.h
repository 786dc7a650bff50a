/* preflight.h - what a run will need of memory and disk, estimated before anything large is allocated, and compared with what there is. */
#ifndef HARK_TRAIN_PREFLIGHT_H
#define HARK_TRAIN_PREFLIGHT_H

#include "train/run.h"

/* What is estimated for. */
typedef struct hark_preflight {
  const hark_config *config;
  hark_learning_task task;
  int64_t steps;          /* still to do; INT64_MAX: not known */
  bool has_validation;    /* evaluations may add checkpoints */
  const hark_run *folder; /* of the run; it need not exist */
} hark_preflight;

/* Bytes. */
typedef struct hark_needs {
  int64_t parameters; /* numbers that are learned */
  hark_engine_memory engine;
  uint64_t program;     /* what the process holds besides: code, threads, buffers of files and batches */
  uint64_t memory;      /* most resident bytes of the process */
  uint64_t more_memory; /* of these, not resident yet */
  bool memory_known;
  uint64_t memory_left; /* what there is */
  const char *memory_limit;

  uint64_t checkpoint;        /* one of them */
  int64_t checkpoints;        /* most at once */
  uint64_t more_disk;         /* to be written, beyond what lies there */
  uint64_t disk_left;         /* what there is */
  char disk[HARK_PATH_BYTES]; /* a folder of that file system */
} hark_needs;

/* Errors: those of the configuration's model; HARK_OUT_OF_MEMORY, those of files. */
HARK_MUST_CHECK hark_status hark_preflight_estimate(hark_context *context, const hark_preflight *run, hark_needs *out);

/* Compares with what there is. Errors: HARK_TOO_LARGE (memory), HARK_IO_ERROR (disk). */
HARK_MUST_CHECK hark_status hark_preflight_check(hark_context *context, const hark_needs *needs);

#endif

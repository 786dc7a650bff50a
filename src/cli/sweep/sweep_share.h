/* sweep_share.h - runs at once share the machine: their threads and the memory. */
#ifndef HARK_CLI_SWEEP_SWEEP_SHARE_H
#define HARK_CLI_SWEEP_SWEEP_SHARE_H

#include <stdio.h>

#include "cli/common.h"
#include "io/text.h"

/* Threads of the runs. */
typedef struct hark_sweep_share {
  int jobs, usable;    /* runs at once; threads that one process would have by default */
  int part;            /* of one run: usable / jobs, at least 1 */
  bool parted;         /* some run has no number of its own, and has the part */
  int64_t least, most; /* threads of a run, over those added */
} hark_sweep_share;

void hark_sweep_share_begin(hark_context *context, int jobs, hark_sweep_share *out);
/* Adds a run with this run.threads; 0: none given. */
void hark_sweep_share_add(hark_sweep_share *share, int64_t threads);
/* Gives every run that begins from now on its part, through OMP_NUM_THREADS: configurations stay those of runs one after another. Errors:
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_sweep_share_set(hark_context *context, const hark_sweep_share *share);
/* Prints the division among the runs of so many processes of a launcher, `local` of them on this machine, on stderr, and a warning where
 * the threads together are more than the cores. */
void hark_sweep_share_say(const hark_invocation *call, const hark_sweep_share *share, int processes, int local);

/* A file without a name with this text; the caller closes it. Errors: HARK_IO_ERROR, that of the text. */
HARK_MUST_CHECK hark_status hark_sweep_share_file(hark_context *context, const hark_text *text, FILE **out);

/* Compares the memory of `jobs` runs of up to `bytes` in each of `processes` of this machine with what is left. Errors: HARK_TOO_LARGE,
 * with the number that fits. */
HARK_MUST_CHECK hark_status hark_sweep_share_check(hark_context *context, int jobs, int processes, uint64_t bytes);

#endif

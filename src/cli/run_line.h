/* run_line.h - what is known of a run from its small files, for subcommands that list runs.
 *
 * Only small files are read: the lock, the pointer `last`, state.json, manifest.json and the sizes of the files in it, the end of
 * metrics.jsonl, and some lines of config.yaml. Checksums are compared by hark verify. Cost: about 30 system calls for a run.
 */
#ifndef HARK_CLI_RUN_LINE_H
#define HARK_CLI_RUN_LINE_H

#include "io/files.h"

#define HARK_RUN_WORD_BYTES 32
#define HARK_RUN_NO_STEP (-1)

typedef enum hark_run_line_state {
  HARK_RUN_EMPTY,   /* no checkpoint yet */
  HARK_RUN_RUNNING, /* a process writes it */
  HARK_RUN_STOPPED, /* before its last step */
  HARK_RUN_DONE,
  HARK_RUN_DAMAGED,
  HARK_RUN_STATES
} hark_run_line_state;
/* "empty", "running", ... */
const char *hark_run_state_word(hark_run_line_state state);

typedef struct hark_run_line {
  hark_run_line_state state;
  char problem[HARK_MESSAGE_BYTES];           /* of a damaged run */
  int64_t step, steps;                        /* HARK_RUN_NO_STEP: not known; of planned ones any number is possible */
  double training, validation, best, seconds; /* NaN: not known */
  char architecture[HARK_RUN_WORD_BYTES], structure[HARK_RUN_WORD_BYTES], positions[HARK_RUN_WORD_BYTES];
  char layers[HARK_RUN_WORD_BYTES], width[HARK_RUN_WORD_BYTES], context[HARK_RUN_WORD_BYTES];
} hark_run_line;

/* Reads a run. A fault of its files is a state of the run; only other failures (HARK_OUT_OF_MEMORY) are returned. */
HARK_MUST_CHECK hark_status hark_run_line_read(hark_context *context, const char *path, hark_run_line *line);

/* Appends an object, without a line end. */
void hark_run_line_append_json(const char *path, const hark_run_line *line, hark_text *text);

#endif

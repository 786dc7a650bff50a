/* report.h - what the parts of hark report share. Each part appends members to one JSON document, which the page's program draws
 * (report.js): the C side collects, the page draws. */
#ifndef HARK_CLI_REPORT_REPORT_H
#define HARK_CLI_REPORT_REPORT_H

#include "cli/common.h"
#include "cli/metrics.h"
#include "cli/run_line.h"

#define HARK_REPORT_LISTED 2000 /* runs in the table, at most: the page stays below its size */

#define HARK_REPORT_WARNINGS 20 /* lines on stderr, at most; the page has all problems */

typedef struct hark_report_values {
  const char *output, *title, *checkpoint, *text, *file;
  int64_t curves, tokens, kernels;
  hark_string_list evaluations;
} hark_report_values;

/* A run that is described in detail. */
typedef struct hark_report_run {
  int64_t index; /* in the table */
  char path[HARK_PATH_BYTES];
} hark_report_run;

/* Device and inode of a run's folder. */
typedef struct hark_report_place {
  uint64_t device, inode;
} hark_report_place;

typedef struct hark_report {
  hark_invocation *call;
  hark_context *context;
  const hark_report_values *values;
  hark_report_run *runs; /* [values->curves] */
  int64_t detailed;
  struct hark_report_place *places; /* [found] of the runs; the memory has place_bytes */
  size_t place_bytes;
  int64_t seen;                            /* runs of all arguments, of which some may be the same */
  int64_t found, listed, damaged, running; /* runs */
  int64_t notes, warnings;                 /* problems of the page; lines on stderr */
  int refused;                             /* arguments that are no runs */
  hark_status refusal;                     /* of the first of them */
  hark_text warned;                        /* the latter, each followed by a line end */
  hark_text words;                         /* of --text or --file */
  hark_text evaluations;                   /* items of a list */
  int64_t evaluation_lines;
  hark_text data;     /* the document */
  hark_text problems; /* items of a list of {"run": index or null, "text": ...} */
} hark_report;

/* Keeps the context's message as a problem of run `index` (-1: of none), which the page shows and stderr gets as a warning, and returns
 * HARK_OK. Returns failures that are not those of a file: HARK_OUT_OF_MEMORY. HARK_OK stays HARK_OK. */
hark_status hark_report_keep_problem(hark_report *report, int64_t index, hark_status status);

/* The same with a message. */
HARK_MUST_CHECK hark_status hark_report_note(hark_report *report, int64_t index, const char *message);

/* A warning on stderr, once. */
HARK_MUST_CHECK hark_status hark_report_warn(hark_report *report, const char *message);
/* Makes the failure to read the file of an option one of the command line, whose message begins with the option: no page is written. */
hark_status hark_report_refuse_file(hark_report *report, const char *option, hark_status status);

/* "[1,2.5,...]" with five significant digits; NaN is null. `stride`: of the numbers. */
void hark_report_append_numbers(const double *numbers, int64_t count, int64_t stride, hark_text *text);
/* {"x":[first, differences...],"y":[...]}: x are whole numbers. */
void hark_report_append_series(const hark_series *series, hark_text *text);

/* Bytes of a text up to the first one that is not UTF-8. */
size_t hark_report_utf8_bytes(const char *text, size_t bytes);

/* Read the files of options before anything else. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_report_read_words(hark_report *report);
HARK_MUST_CHECK hark_status hark_report_read_evaluations(hark_report *report);

/* Members of the document; each begins with a comma. */
/* "runs": [...] of the table, "details": [...] */
HARK_MUST_CHECK hark_status hark_report_add_runs(hark_report *report);
HARK_MUST_CHECK hark_status hark_report_add_details(hark_report *report);
/* "differences": [{"key", "values": one for each detailed run}] */
HARK_MUST_CHECK hark_status hark_report_add_differences(hark_report *report);
/* "samples": [{"run", "count", "texts": [{"step", "prompt", "text"}]}] of runs that have them; "prompt_cut", "text_cut" where
 * only the beginning is there */
HARK_MUST_CHECK hark_status hark_report_add_samples(hark_report *report);
/* "kernels": [{"run", "title", "rates", "curves": [...]}] */
HARK_MUST_CHECK hark_status hark_report_add_kernels(hark_report *report);
/* "evaluations": [...] */
HARK_MUST_CHECK hark_status hark_report_add_evaluations(hark_report *report);
/* "texts": [{"run", "tokens", "layers" or "chunks"}] */
HARK_MUST_CHECK hark_status hark_report_add_texts(hark_report *report);

#endif

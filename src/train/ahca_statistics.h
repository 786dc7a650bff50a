/* ahca_statistics.h - decisions of models of compressed chunks over many sequences: chunks and their lengths, which global tokens were
 * selected, how deep units went. Collected by evaluations, stored in metrics.jsonl under the names below, printed by eval and info.
 */
#ifndef HARK_TRAIN_AHCA_STATISTICS_H
#define HARK_TRAIN_AHCA_STATISTICS_H

#include <hark/experimental.h>

#include "io/text.h"
#include "models/ahca.h"

#define HARK_AHCA_LENGTHS 25 /* of chunks, by powers of two: 1, 2-3, 4-7, ... up to a context of 2^24 */
#define HARK_AHCA_PLACES 10  /* of selected tokens in their sequence: tenths */

/* Counts; add up those of several batches. Zero it. */
typedef struct hark_ahca_statistics {
  int64_t sequences, tokens, chunks;
  int64_t shortest, longest; /* tokens of a chunk */
  int64_t lengths[HARK_AHCA_LENGTHS];
  int64_t selected, places[HARK_AHCA_PLACES];
  int64_t units, depths[HARK_MAX_DEPTH + 1]; /* units of each depth; a model of one layer has none */
  /* The first `listed` sequences are described one by one, as members of a JSON list, which are appended to `list`; NULL: none.
   *     {"tokens": 9, "chunks": [4, 5], "global": 8, "selected": [0, 3], "depth": [1, 2]}
   * tokens of the chunks, rows of C2, those selected of them (from 0), layers of the units (absent: there is one). */
  hark_text *list;
  int64_t listed;
} hark_ahca_statistics;

/* Adds the decisions of a pass over `tokens` tokens. Errors: those of the backend. */
HARK_MUST_CHECK hark_status hark_ahca_statistics_add(hark_context *context, const hark_tape *tape, const hark_ahca_trace *trace,
                                                     int64_t tokens, hark_ahca_statistics *statistics);

/* Means and fractions, NaN without data. */
typedef struct hark_ahca_report {
  double chunks, tokens;    /* chunks of a sequence, tokens of a chunk, on average */
  double shortest, longest; /* tokens of a chunk */
  double depth;             /* layers of a unit, on average */
  double depths[HARK_MAX_DEPTH];
  double lengths[HARK_AHCA_LENGTHS];
  double places[HARK_AHCA_PLACES];
} hark_ahca_report;
hark_ahca_report hark_ahca_report_of(const hark_ahca_statistics *statistics);

/* The numbers of a report with their names: "ahca/chunks", "ahca/depth_2", "ahca/length_16", "ahca/place_0". Number `index` of it, NULL
 * after the last; `name` gets the name. */
#define HARK_AHCA_NAME_BYTES 32
double *hark_ahca_report_number(hark_ahca_report *report, int index, char name[HARK_AHCA_NAME_BYTES]);

#endif

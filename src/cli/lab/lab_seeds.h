/* lab_seeds.h - one experiment with several seeds: the seeds and their results. */
#ifndef HARK_CLI_LAB_LAB_SEEDS_H
#define HARK_CLI_LAB_LAB_SEEDS_H

#include "cli/common.h"
#include "lab/lab.h"

#define HARK_LAB_SEEDS 1000 /* of a run, at most */
#define HARK_LAB_COMPLAINT_BYTES 256

typedef struct hark_lab_seeds {
  int count;
  int64_t list[HARK_LAB_SEEDS];
} hark_lab_seeds;

/* Reads "1-10" or "1,3,7-9": whole numbers from 0 on and ranges of them, none twice. Otherwise false, with the reason in one line. */
bool hark_lab_seeds_read(const char *text, hark_lab_seeds *out, char complaint[HARK_LAB_COMPLAINT_BYTES]);

/* What an experiment measured with each seed. Initialised with `context` alone; hark_lab_outcomes_end() frees all of it. */
typedef struct hark_lab_outcomes {
  hark_context *context;
  hark_lab_seeds seeds; /* those that have been run */
  hark_lab *first;      /* of the first seed, whose tables and figure are shown */
  hark_text measured;   /* doubles [seeds.count, first->criterion_count] */
} hark_lab_outcomes;

/* Adds the results of another seed; takes ownership of *lab, and keeps only the first one. HARK_INTERNAL_ERROR where its criteria differ
 * from those of the first one. */
HARK_MUST_CHECK hark_status hark_lab_outcomes_add(hark_lab_outcomes *outcomes, int64_t seed, hark_lab **lab);
void hark_lab_outcomes_end(hark_lab_outcomes *outcomes);

double hark_lab_measured(const hark_lab_outcomes *outcomes, int seed, int criterion);
bool hark_lab_seed_passes_one(const hark_lab_outcomes *outcomes, int seed, int criterion);
bool hark_lab_seed_passes(const hark_lab_outcomes *outcomes, int seed); /* all criteria */
int hark_lab_passing_seeds(const hark_lab_outcomes *outcomes);

/* Of one criterion over the seeds. One number that is NaN makes all four NaN; the deviation (n - 1) of a single seed is NaN. */
typedef struct hark_lab_summary {
  int passed; /* seeds */
  double mean, deviation, least, largest;
} hark_lab_summary;
hark_lab_summary hark_lab_summarise(const hark_lab_outcomes *outcomes, int criterion);

/* The seeds that have been run, and those with which a criterion fails, in the form that hark_lab_seeds_read() reads: "1-3,7". */
void hark_lab_append_seeds(const hark_lab_outcomes *outcomes, hark_text *text);
void hark_lab_append_failing_seeds(const hark_lab_outcomes *outcomes, hark_text *text);

/* For people: every criterion's bound, in how many seeds it passed, and what was measured; in the last line, how many seeds passed. */
void hark_lab_print_seeds_text(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, hark_text *text);
/* One object in one line; arrays have an item for each seed, numbers that are not finite are null. */
void hark_lab_print_seeds_json(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, hark_text *text);

#endif

/* attention_run.h - runs problems of attention on every backend, instruction set and type that the machine has.
 *
 * Around every run it is checked that nothing was allocated, that inputs kept their bits, that nothing was written between the rows of
 * strided results or after workspace and saved memory; both are full of NaN before.
 */
#ifndef HARK_TESTS_ATTENTION_RUN_H
#define HARK_TESTS_ATTENTION_RUN_H

#include "support/attention_definition.h"

/* A way to compute: f32 results of the reference are rounded once, at the end. */
typedef struct attention_machine {
  const char *name, *backend, *instruction_set;
  hark_type type;
  double computing_roundoff, storing_roundoff;
} attention_machine;

extern const attention_machine attention_machines[];
extern const int attention_machine_count;

/* The first machine: the reference backend in f64. */
#define ATTENTION_ORACLE (&attention_machines[0])

/* A context, or NULL when this machine lacks the instruction set. threads 0: two. */
hark_context *attention_machine_open(const attention_machine *machine, int64_t threads);

/* Results of a run, as doubles (which hold every f32); absent ones NULL. */
typedef struct attention_results {
  double *data[ARRAY_COUNT];
  int64_t count[ARRAY_COUNT];
} attention_results;

/* The descriptor of a problem. */
hark_attention_desc attention_problem_desc(const attention_problem *problem, hark_type type);

/* Forward and backward with every gradient there is that is not unwanted; results that are not asked for are absent. */
void attention_run(hark_context *context, hark_type type, const attention_problem *problem, attention_results *out);
/* Opens a context, runs, closes it; false when the machine is not there. */
bool attention_run_on(const attention_machine *machine, const attention_problem *problem, attention_results *out);
void attention_results_free(attention_results *results);

/* What a gradient holds before a run with "accumulate": element i. */
double attention_before(int64_t i);

/* Compares with the definition within its bounds; prints the case and the worst element when it fails. Returns the number of failures. */
int attention_compare(const attention_machine *machine, const attention_problem *problem, const attention_expected *expected,
                      const attention_results *results);

/* Bound of an element's error, as attention_compare has it, without accumulation; and a comparison within a bound. */
double attention_tolerance(const attention_machine *machine, const attention_expected *expected, attention_array array, int64_t i);
void attention_assert_near(const char *what, const char *text, const attention_machine *machine, int64_t i, double have, double want,
                           double within);

/* Values of one come back as one, and as zero in rows that see nothing: the weights of a row sum to one. */
void attention_rows_sum_to_one(const attention_machine *machine, const char *text);

/* Fails the test unless the two have the same bits in `array`. */
void attention_same_bits(const char *what, const char *text, attention_array array, const attention_results *a, const attention_results *b);

/* Fails the test unless all results of `problem`, made from `text`, have the same bits with one thread and with each of `threads`. Does
 * nothing on a machine that cannot run it. */
void attention_same_with_threads(const attention_machine *machine, attention_problem *problem, const char *text, size_t count,
                                 const int64_t *threads);

/* Fails the test unless the case's results are, on all machines, those of another case's definition with the same numbers and lengths. */
void attention_check_equal(const char *text, const char *other);

/* A case of a program's list, over all machines; the number that failed. Used by the programs whose arguments are cases. */
int attention_check_case(const char *text, bool print);

#endif

/* make.h - making tasks: generators of labelled examples and of texts, and the folder that the examples are written to.
 *
 * A generator is one file with a hark_task_generator hark_task_NAME and a table of options, its own or another's, and one row of
 * HARK_TASK_GENERATORS. It makes one example at a time from random numbers that depend on (seed, split, index) alone. make.c distributes
 * examples over threads, keeps them distinct where that is required, and writes the files of the three splits and task.json
 * (docs/tasks.md).
 */
#ifndef HARK_DATA_TASKS_MAKE_H
#define HARK_DATA_TASKS_MAKE_H

#include <hark/random.h>

#include "config/options.h"
#include "data/examples/example_folder.h"
#include "io/text.h"

/* X(name in C, name on the command line, number of its random streams, its table of options hark_task_TABLE_options), in the order of help.
 * Numbers never change. Several generators may share a table. */
#define HARK_TASK_GENERATORS(X)                                                                                                            \
  X(listops, "listops", 1, listops)                                                                                                        \
  X(pathfinder, "pathfinder", 2, pathfinder)                                                                                               \
  X(recall, "recall", 3, sequences)                                                                                                        \
  X(copy, "copy", 4, sequences)                                                                                                            \
  X(passkey, "passkey", 5, sequences)                                                                                                      \
  X(latent, "latent", 6, vectors)                                                                                                          \
  X(regression, "regression", 7, vectors)                                                                                                  \
  X(needle, "needle", 8, sequences)                                                                                                        \
  X(maps, "maps", 9, sequences)                                                                                                            \
  X(runs, "runs", 10, sequences)                                                                                                           \
  X(periodic_text, "periodic-text", 11, vectors)                                                                                           \
  X(regression_tasks, "regression-tasks", 12, vectors)

/* ---- random numbers of one example ---- */

#define HARK_TASK_COUNTERS ((uint64_t)1 << 24) /* maximum per example, of four words each; making refuses an example that used more */
#define HARK_TASK_EXAMPLES ((int64_t)1 << 40)  /* maximum of a split: this number of examples has separate counters */

typedef struct hark_task_random {
  hark_random_stream stream;
  uint64_t next; /* word */
  uint32_t words[4];
} hark_task_random;

/* `round` distinguishes repeated attempts at the same example. */
hark_task_random hark_task_random_begin(uint64_t seed, int generator, hark_split split, int64_t index, uint32_t round);
uint32_t hark_task_random_word(hark_task_random *random);
/* Uniform in [0, count), without bias; 1 <= count <= 2^31. */
int32_t hark_task_random_below(hark_task_random *random, int32_t count);
/* Uniform in [0, 1), 2^-53 apart. */
double hark_task_random_uniform(hark_task_random *random);

/* ---- generators ---- */

/* Input of a generator for one example. */
typedef struct hark_task_order {
  const void *values; /* the struct of the generator's options, after settle() */
  int64_t index;
  hark_task_random random;
  void *scratch; /* of scratch_bytes, not cleared, HARK_ALIGNMENT-aligned */
  double nats;   /* set by generators with an entropy rate: the cost of the example for the best prediction of its bytes */
} hark_task_order;

typedef struct hark_task_sizes {
  size_t example_bytes; /* maximum number of bytes that make writes */
  size_t scratch_bytes; /* scratch memory of make */
} hark_task_sizes;

typedef struct hark_task_generator hark_task_generator;
struct hark_task_generator {
  const char *summary;
  const char *format;     /* of example_format.h, or HARK_TASK_TEXT */
  const char *parameters; /* names of the options of its table that it uses, separated by blanks; NULL: all of its table */
  int64_t examples[HARK_SPLIT_ALL];
  bool distinct; /* no two examples are the same, across all splits */
  /* Sets derived options and refuses impossible ones with HARK_BAD_CONFIGURATION; the message begins with the flag. */
  hark_status (*settle)(hark_context *context, void *values);
  hark_task_sizes (*sizes)(const void *values);
  const struct hark_sequence_words *words; /* of generators of sequences (make_sequences.h): their words */
  /* Appends the beginning of a file, before its examples. */
  hark_status (*header)(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out);
  /* Writes an example to out and returns its bytes; 0: no example was found in the maximum number of attempts. Called by several
   * threads. */
  size_t (*make)(hark_task_order *order, unsigned char *out);
  double (*entropy_rate)(const void *values); /* nats per token of a long example, for the best prediction; NULL: unknown */
};

#define HARK_TASK_DECLARE(id, name, number, table)                                                                                         \
  extern const hark_task_generator hark_task_##id;                                                                                         \
  extern const hark_option_table hark_task_##table##_options;
HARK_TASK_GENERATORS(HARK_TASK_DECLARE)
#undef HARK_TASK_DECLARE

typedef struct hark_task_entry {
  const char *name;
  int number;
  const hark_task_generator *generator;
  const hark_option_table *options;
} hark_task_entry;
extern const hark_task_entry hark_task_entries[];
extern const int hark_task_entry_count;
/* The row of a name, or NULL. */
const hark_task_entry *hark_task_find(const char *name);
/* Whether a generator uses an option of its table. */
bool hark_task_takes(const hark_task_generator *generator, const char *option);

/* ---- making ---- */

/* Called from time to time with the progress. */
typedef void hark_task_progress(void *user, hark_split split, int64_t done, int64_t all);

typedef struct hark_task_settings {
  const hark_task_entry *entry;
  void *values; /* of the generator's options; hark_task_make() calls settle() on them */
  const char *folder;
  uint64_t seed;
  int64_t examples[HARK_SPLIT_ALL]; /* 0: no file, except for training */
  double *optimal_loss;             /* [HARK_SPLIT_ALL], or NULL: receives the nats per byte of every file, if there is an entropy rate */
  hark_task_progress *progress;     /* may be NULL */
  void *progress_user;
} hark_task_settings;

/* Makes the folder: a file for each split, and task.json, a copy of which is appended to `report`. Everything is written under another name
 * next to the folder and renamed at the end: after a failure nothing remains.
 * Errors: HARK_BAD_CONFIGURATION (options; a folder that is not empty; not enough different examples), HARK_IO_ERROR (also where the disk
 * is too small for the size estimated from the first examples), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_task_make(hark_context *context, const hark_task_settings *settings, hark_text *report);

#endif

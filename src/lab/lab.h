/* lab.h - the laboratory: an experiment is a statement that can be measured, with criteria that were fixed before it was run.
 *
 * An experiment is one file with a hark_experiment hark_experiment_NAME and one row of HARK_EXPERIMENTS. It fills a hark_lab with tables,
 * criteria and panels of a figure, and prints nothing: `hark lab` writes all of it as text, JSON and a picture, and the tests run it. Its
 * numbers depend on the seed alone. Mathematics is in float64.
 */
#ifndef HARK_LAB_LAB_H
#define HARK_LAB_LAB_H

#include <hark/random.h>
#include <math.h>

#include "config/options.h"
#include "io/text.h"

/* X(name in C, name of the command line, table of its options or NULL), in the order of `hark lab --list`. Flags of different
 * experiments are different, unless they share a table. */
#define HARK_EXPERIMENTS(X)                                                                                                                \
  X(nadaraya_watson, "nadaraya-watson", NULL)                                                                                              \
  X(rotary_kernel, "rotary-kernel", NULL)                                                                                                  \
  X(rotary_smoother, "rotary-smoother", NULL)                                                                                              \
  X(kernel_closure, "kernel-closure", NULL)                                                                                                \
  X(bank_order, "bank-order", NULL)                                                                                                        \
  X(period_recovery, "period-recovery", NULL)                                                                                              \
  X(rank_map, "rank-map", &hark_lab_trained_options)                                                                                       \
  X(approximation, "approximation", &hark_lab_trained_options)                                                                             \
  X(definetti, "definetti", NULL)                                                                                                          \
  X(sufficiency, "sufficiency", NULL)                                                                                                      \
  X(finite, "finite", NULL)                                                                                                                \
  X(variance, "variance", NULL)                                                                                                            \
  X(exchangeability, "exchangeability", NULL)                                                                                              \
  X(cme_rate, "cme-rate", NULL)                                                                                                            \
  X(information_gain, "information-gain", NULL)                                                                                            \
  X(softmax_kde, "softmax-kde", NULL)                                                                                                      \
  X(softmax_limit, "softmax-limit", NULL)                                                                                                  \
  X(heads, "heads", NULL)                                                                                                                  \
  X(head_sum, "head-sum", NULL)                                                                                                            \
  X(instrument, "instrument", NULL)                                                                                                        \
  X(sphere, "sphere", NULL)                                                                                                                \
  X(misspecification, "misspecification", NULL)                                                                                            \
  X(posterior, "posterior", NULL)                                                                                                          \
  X(lipschitz, "lipschitz", NULL)                                                                                                          \
  X(covering, "covering", NULL)                                                                                                            \
  X(transfer, "transfer", NULL)                                                                                                            \
  X(theorem_model, "theorem-model", NULL)                                                                                                  \
  X(bound, "bound", &hark_lab_bound_options)                                                                                               \
  X(generalisation, "generalisation", NULL)                                                                                                \
  X(optimisation, "optimisation", NULL)                                                                                                    \
  X(decomposition, "decomposition", NULL)                                                                                                  \
  X(downstream, "downstream", &hark_lab_downstream_options)                                                                                \
  X(calibration, "calibration", NULL)                                                                                                      \
  X(ahca_cost, "ahca-cost", NULL)                                                                                                          \
  X(ahca_compression, "ahca-compression", NULL)                                                                                            \
  X(ahca_information, "ahca-information", &hark_lab_ahca_information_options)                                                              \
  X(ahca_depth, "ahca-depth", NULL)                                                                                                        \
  X(ahca_chunks, "ahca-chunks", NULL)                                                                                                      \
  X(ahca_ablations, "ahca-ablations", NULL)                                                                                                \
  X(ahca_figures, "ahca-figures", NULL)

/* K: the paper of positional kernels. */
#define HARK_LAB_PAPER_K "Bunks, Dixon, Di Giorgi: Composing Kernel Models with Self-Attention (2025), "

/* X: https://arxiv.org/abs/2212.14852, whose statements most experiments measure. */
#define HARK_LAB_PAPER_X                                                                                                                   \
  "Zhang, Liu, Cai, Wang, Wang: An Analysis of Attention via the Lens of Exchangeability and Latent Variable Models, "

/* The paper that the experiments ahca-* measure. */
#define HARK_LAB_PAPER_AHCA "Horner: Adaptive Hierarchical Compressed Attention (2024), "

#define HARK_LAB_TABLES 6    /* of an experiment, at most */
#define HARK_LAB_COLUMNS 16  /* of a table */
#define HARK_LAB_CRITERIA 32 /* of an experiment */
#define HARK_LAB_PANELS 8    /* of its figure */
#define HARK_LAB_CURVES 24   /* of a panel */
#define HARK_LAB_LABEL_BYTES 96

/* ---- what comes of an experiment ---- */

typedef struct hark_lab_column {
  const char *name;
  const char *unit;  /* NULL: a plain number */
  const char *words; /* "no|yes": the column's numbers count these words; NULL: they are themselves */
} hark_lab_column;

typedef struct hark_lab_table {
  const char *title;
  const hark_lab_column *columns;
  int column_count;
  hark_text rows; /* doubles, row by row */
} hark_lab_table;

/* Passes when low <= measured <= high. A measure that is not a number fails. */
typedef struct hark_lab_criterion {
  char name[HARK_LAB_LABEL_BYTES];
  double measured, low, high;
} hark_lab_criterion;

typedef enum hark_lab_style { HARK_LAB_LINE, HARK_LAB_DASHES, HARK_LAB_POINTS } hark_lab_style;

typedef struct hark_lab_curve {
  char label[HARK_LAB_LABEL_BYTES]; /* "": not in the key, in the colour of the curve before it */
  hark_lab_style style;
  hark_text points; /* doubles x0, y0, x1, y1, .. */
} hark_lab_curve;

/* A rectangle with a text in it. */
typedef struct hark_lab_cell {
  double left, right, top, bottom;
  double shade; /* 0 white .. 1 dark */
  char label[16];
} hark_lab_cell;

/* What a panel is drawn on. */
typedef struct hark_lab_axes {
  const char *title, *x, *y;
  bool log_x, log_y;
  bool is_map; /* a matrix: rows are counted from the top, and cells are squares unless it is very flat */
} hark_lab_axes;

typedef struct hark_lab_panel {
  hark_lab_axes axes;
  int curve_count;
  hark_lab_curve curves[HARK_LAB_CURVES];
  hark_text cells; /* of hark_lab_cell */
} hark_lab_panel;

/* An experiment that runs, and what came of it. */
typedef struct hark_lab {
  hark_context *context; /* backend reference */
  bool quick;            /* at most 40 seconds instead of ten minutes, with wider intervals */
  uint64_t seed;
  const void *options; /* the struct of the experiment's own table */
  /* Those that were given: for the document " --reviews FILE", as text " --reviews r.txt", and as members of an object. NULL: none. */
  const char *given, *given_text, *given_json;
  int64_t most_steps; /* of a training, for tests of everything else; 0: as many as the experiment needs */
  int table_count, criterion_count, panel_count;
  hark_lab_table tables[HARK_LAB_TABLES];
  hark_lab_criterion criteria[HARK_LAB_CRITERIA];
  hark_lab_panel panels[HARK_LAB_PANELS];
  struct hark_lab_block *blocks; /* separate memory, see hark_lab_numbers() */
  /* Called from time to time during work, to show progress; NULL: it is not shown. `all` more than 0: `done` of that many steps of the
   * current training, of which an experiment may have several. */
  void (*tick)(void *user, const struct hark_lab *lab, int64_t done, int64_t all);
  void *tick_user;
} hark_lab;

typedef struct hark_experiment {
  const char *summary;    /* one line for --list */
  const char *paper;      /* whose statement it is, and where it stands */
  const char *statement;  /* what is measured */
  const char *printed;    /* the paper's formula where it is wrong, or NULL */
  const char *corrected;  /* what it should be; NULL where `printed` is */
  const char *notes;      /* for docs/lab/NAME.md, in Markdown: equations, reasons for the criteria, the figure; NULL: none */
  const char *failure_of; /* words in the names of the criteria that `failure` is about, parted by |; NULL where it is */
  const char *failure;    /* why these may fail, as derived; on docs/lab/NAME.md where one fails with some seed; NULL: nothing known */
  bool needs_gsl;         /* compares with closed forms of lab/special.h */
  bool trains;            /* networks, on the backend cpu in f32: its numbers are the same bits on one instruction set alone */
  hark_status (*check)(hark_context *context, const void *options); /* refuses options before any experiment runs; optional */
  hark_status (*measure)(hark_lab *lab);                            /* fills tables and figure */
  /* Adds the criteria, from the tables alone: whoever has the tables can judge again, and the tests do so with other numbers. */
  hark_status (*judge)(hark_lab *lab);
} hark_experiment;

/* ---- the table of experiments ---- */

typedef struct hark_lab_entry {
  const char *name;
  const hark_experiment *experiment;
} hark_lab_entry;

extern const hark_lab_entry hark_lab_entries[];
extern const int hark_lab_entry_count;
/* The index of an experiment, or -1. */
int hark_lab_find(const char *name);
/* What this build lacks for an experiment, or NULL when it can be run. */
const char *hark_lab_missing(const hark_experiment *experiment);

/* ---- running ---- */

/* Makes an empty one; freed by the caller, also after a failure of the experiment. */
HARK_MUST_CHECK hark_status hark_lab_create(hark_context *context, bool quick, uint64_t seed, const void *options, hark_lab **out);
void hark_lab_destroy(hark_lab **lab);
/* Frees what hark_lab_numbers() gave, after a run: tables, criteria and figure stay. */
void hark_lab_forget_numbers(hark_lab *lab);
/* Measures and judges. HARK_UNSUPPORTED when the build lacks something; HARK_INTERNAL_ERROR when that gives no table or no criterion. */
HARK_MUST_CHECK hark_status hark_lab_run(hark_lab *lab, const hark_experiment *experiment);
/* Forgets the criteria and judges the tables as they are now. */
HARK_MUST_CHECK hark_status hark_lab_judge(hark_lab *lab, const hark_experiment *experiment);

bool hark_lab_passes(const hark_lab_criterion *criterion);
bool hark_lab_all_pass(const hark_lab *lab);
int64_t hark_lab_row_count(const hark_lab_table *table);
const double *hark_lab_row(const hark_lab_table *table, int64_t row);
int64_t hark_lab_point_count(const hark_lab_curve *curve);
const double *hark_lab_points(const hark_lab_curve *curve);
int64_t hark_lab_cell_count(const hark_lab_panel *panel);
const hark_lab_cell *hark_lab_cells(const hark_lab_panel *panel);

/* ---- for experiments ---- */

/* Reports progress. Functions that draw, allocate, train or fill a table do this already; experiments call it where they compute for
 * seconds without these. */
void hark_lab_tick(const hark_lab *lab, int64_t done, int64_t all);

/* Zero bytes, or numbers, that live as long as the lab. HARK_OUT_OF_MEMORY, in a line with both figures, for more than the machine has
 * left. */
HARK_MUST_CHECK hark_status hark_lab_allocate(hark_lab *lab, size_t bytes, void **out);
HARK_MUST_CHECK hark_status hark_lab_numbers(hark_lab *lab, int64_t count, double **out);

/* Stream number `stream` of this seed, less than 2^24, for hark_random_word() and the like. */
hark_random_stream hark_lab_stream(const hark_lab *lab, uint32_t stream);

/* Standard normal numbers 0 .. count - 1 of stream number `stream` of this seed; uniform ones in [0, 1). A stream serves one of the two. */
void hark_lab_normal(const hark_lab *lab, uint32_t stream, int64_t count, double *out);
void hark_lab_uniform(const hark_lab *lab, uint32_t stream, int64_t count, double *out);
/* Normal numbers first .. first + count - 1 of a stream: draw after draw of one that is too long to be held at once. */
void hark_lab_normal_from(const hark_lab *lab, uint32_t stream, uint64_t first, int64_t count, double *out);

/* Numbers of a stream of normal ones, times `deviation`, in memory of the lab. */
HARK_MUST_CHECK hark_status hark_lab_draw_normal(hark_lab *lab, uint32_t stream, int64_t count, double deviation, double **out);

/* Title and columns live as long as the program. */
HARK_MUST_CHECK hark_status hark_lab_add_table(hark_lab *lab, const char *title, const hark_lab_column *columns, int count,
                                               hark_lab_table **out);
/* HARK_NOT_FINITE for a number that is none: criteria look at the largest and the least, which would pass it over. */
HARK_MUST_CHECK hark_status hark_lab_add_row(hark_lab *lab, hark_lab_table *table, const double *values);

/* The larger and the smaller of two, and NaN where one of them is: a ratio of nothing to nothing must not be passed over. */
static inline double hark_lab_larger(double a, double b) { return a > b || isnan(a) ? a : b; }
static inline double hark_lab_smaller(double a, double b) { return a < b || isnan(a) ? a : b; }

/* A criterion with its bounds; the name is printed as by printf. Equality is low = high. */
HARK_MUST_CHECK hark_status hark_lab_require(hark_lab *lab, double measured, double low, double high, const char *name, ...)
    HARK_PRINTF(5, 6);

/* The texts of the axes live as long as the program. */
HARK_MUST_CHECK hark_status hark_lab_add_panel(hark_lab *lab, hark_lab_axes axes, hark_lab_panel **out);
HARK_MUST_CHECK hark_status hark_lab_add_curve(hark_lab *lab, hark_lab_panel *panel, hark_lab_style style, hark_lab_curve **out,
                                               const char *label, ...) HARK_PRINTF(5, 6);
/* Points that are not finite, or not positive on a logarithmic axis, are the caller's to leave out. */
HARK_MUST_CHECK hark_status hark_lab_add_point(hark_lab_curve *curve, double x, double y);
HARK_MUST_CHECK hark_status hark_lab_add_cell(hark_lab_panel *panel, const hark_lab_cell *cell);

#define HARK_EXPERIMENT_DECLARE(id, name, options) extern const hark_experiment hark_experiment_##id;
HARK_EXPERIMENTS(HARK_EXPERIMENT_DECLARE)
#undef HARK_EXPERIMENT_DECLARE
extern const hark_option_table hark_lab_trained_options; /* lab/trained_heads.h */
extern const hark_option_table hark_lab_bound_options;
extern const hark_option_table hark_lab_downstream_options;
extern const hark_option_table hark_lab_ahca_information_options;

#endif

/* sweep_plan.h - the runs of a sweep: variants and a grid of values, each with all seeds, over one configuration.
 *
 *     config: rotary.yaml              the configuration of all runs, next to this file; optional
 *     out: runs/positions              the sweep's folder
 *     seeds: [1, 2, 3]
 *     settings: {train.tokens: 1e6}    of all runs
 *     variants:                        named settings; optional
 *       rotary: {model.positions: rotary}
 *       bank: {model.positions: none, model.positional: "bank[8](decay)"}
 *       both: {data.paths: [a.txt, b.txt]}
 *     grid:                            every combination of these; optional
 *       train.learning_rate: [3e-4, 1e-3]
 *
 * A cell is a variant with one value of every axis of the grid; a run is a cell with a seed. Cells are numbered with the last axis fastest,
 * runs with the seed fastest.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_PLAN_H
#define HARK_CLI_SWEEP_SWEEP_PLAN_H

#include "config/yaml.h"
#include "core/core.h"
#include "io/files.h"
#include "train/config.h"

#define HARK_SWEEP_NAME_BYTES 160
#define HARK_SWEEP_CELL_BYTES 1024 /* of the name of a cell or a run, which has no more of longer values */
#define HARK_SWEEP_SETTINGS 512
#define HARK_SWEEP_VARIANTS 64
#define HARK_SWEEP_AXES 8
#define HARK_SWEEP_VALUES 256 /* of all axes */
#define HARK_SWEEP_SEEDS 64
#define HARK_SWEEP_RUNS 4096

typedef struct hark_sweep_setting {
  char key[HARK_SWEEP_NAME_BYTES];
  const char *value;
  int variant; /* index of its variant; -1: of all */
  int line;
  enum { HARK_SWEEP_VALUE, HARK_SWEEP_LIST, HARK_SWEEP_ITEM } kind; /* of a list: its beginning, then an item each */
} hark_sweep_setting;

typedef struct hark_sweep_axis {
  char key[HARK_SWEEP_NAME_BYTES];
  int first, count, line; /* of the values */
} hark_sweep_axis;

typedef struct hark_sweep_plan {
  char path[HARK_PATH_BYTES], config[HARK_PATH_BYTES], out[HARK_PATH_BYTES];
  hark_sweep_setting settings[HARK_SWEEP_SETTINGS];
  char variants[HARK_SWEEP_VARIANTS][HARK_SWEEP_NAME_BYTES];
  hark_sweep_axis axes[HARK_SWEEP_AXES];
  const char *values[HARK_SWEEP_VALUES];
  char texts[HARK_YAML_BYTES]; /* of all values */
  size_t texts_used;
  int64_t seeds[HARK_SWEEP_SEEDS];
  int setting_count, variant_count, axis_count, value_count, seed_count;
  bool has_seeds; /* in the file; else the seed is 1 */
} hark_sweep_plan;

/* Reads a file. *out has pointers into itself: it must not be copied. Errors: HARK_BAD_CONFIGURATION "PATH:LINE: ...", those of files. */
HARK_MUST_CHECK hark_status hark_sweep_plan_read(hark_context *context, const char *path, hark_sweep_plan *out);

int hark_sweep_cells(const hark_sweep_plan *plan);
/* Indices of a cell: its variant, and its value on each axis. */
int hark_sweep_variant(const hark_sweep_plan *plan, int cell);
int hark_sweep_value(const hark_sweep_plan *plan, int cell, int axis);

/* "bank learning_rate=1e-3" for tables, and "bank-learning_rate=1e-3-seed=2" for folders: letters, digits and . _ + = - alone. */
void hark_sweep_cell_name(const hark_sweep_plan *plan, int cell, char out[HARK_SWEEP_CELL_BYTES]);
void hark_sweep_run_name(const hark_sweep_plan *plan, int cell, int seed, char out[HARK_SWEEP_CELL_BYTES]);

/* The options of a run, complete and checked; *config is filled. Options without an effect in this run get their defaults, because settings
 * may be for other runs of the sweep. The caller destroys the options, also after a failure. Errors: HARK_BAD_CONFIGURATION with the first
 * problem. */
HARK_MUST_CHECK hark_status hark_sweep_configure(hark_context *context, const hark_sweep_plan *plan, int cell, int seed,
                                                 hark_config *config, hark_options **out);

/* Refuses settings that have no effect in any run. Errors: as hark_sweep_configure(). */
HARK_MUST_CHECK hark_status hark_sweep_refuse_idle(hark_context *context, const hark_sweep_plan *plan);

#endif

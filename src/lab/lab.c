/* lab.c - see lab.h. */
#include "lab/lab.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "io/machine.h"

#define LOOK_AT_THE_MACHINE ((size_t)1 << 26) /* bytes of a request: smaller ones are not compared with the available memory */

#define HARK_EXPERIMENT_ROW(id, name, options) {name, &hark_experiment_##id},
const hark_lab_entry hark_lab_entries[] = {HARK_EXPERIMENTS(HARK_EXPERIMENT_ROW)};
#undef HARK_EXPERIMENT_ROW
const int hark_lab_entry_count = (int)(sizeof hark_lab_entries / sizeof hark_lab_entries[0]);

int hark_lab_find(const char *name) {
  for (int i = 0; i < hark_lab_entry_count; i++)
    if (strcmp(hark_lab_entries[i].name, name) == 0) return i;
  return -1;
}

const char *hark_lab_missing(const hark_experiment *experiment) {
#ifdef HARK_WITH_GSL
  (void)experiment;
  return NULL;
#else
  return experiment->needs_gsl ? "GSL (Debian: libgsl-dev)" : NULL;
#endif
}

void hark_lab_tick(const hark_lab *lab, int64_t done, int64_t all) {
  if (lab->tick != NULL) lab->tick(lab->tick_user, lab, done, all);
}

/* ---- memory ---- */

/* Before a piece of memory, which begins HARK_ALIGNMENT bytes after it. */
typedef struct hark_lab_block {
  struct hark_lab_block *next;
  size_t bytes;
} hark_lab_block;

hark_status hark_lab_create(hark_context *context, bool quick, uint64_t seed, const void *options, hark_lab **out) {
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof **out, &memory));
  *out = memory;
  (*out)->context = context;
  (*out)->quick = quick;
  (*out)->seed = seed;
  (*out)->options = options;
  return HARK_OK;
}

void hark_lab_forget_numbers(hark_lab *lab) {
  while (lab->blocks != NULL) {
    hark_lab_block *const block = lab->blocks;
    lab->blocks = block->next;
    hark_release(lab->context, block, block->bytes);
  }
}

void hark_lab_destroy(hark_lab **pointer) {
  hark_lab *const lab = *pointer;
  if (lab == NULL) return;
  *pointer = NULL;
  for (int i = 0; i < lab->table_count; i++) hark_text_free(&lab->tables[i].rows);
  for (int i = 0; i < lab->panel_count; i++) {
    for (int c = 0; c < lab->panels[i].curve_count; c++) hark_text_free(&lab->panels[i].curves[c].points);
    hark_text_free(&lab->panels[i].cells);
  }
  hark_lab_forget_numbers(lab);
  hark_release(lab->context, lab, sizeof *lab);
}

/* Memory that is granted but does not exist ends the process when it is written to. */
static hark_status refuse_beyond_memory(hark_context *context, size_t bytes) {
  hark_machine_memory left;
  HARK_TRY(hark_machine_memory_left(context, "", &left));
  if (!left.known || bytes <= left.bytes) return HARK_OK;
  return hark_fail(context, HARK_OUT_OF_MEMORY, "an experiment needs %.4g GB of memory at once, and %s has %.4g GB left",
                   (double)bytes / 1e9, left.limit, (double)left.bytes / 1e9);
}

hark_status hark_lab_allocate(hark_lab *lab, size_t bytes, void **out) {
  size_t all;
  void *memory = NULL;
  *out = NULL;
  hark_lab_tick(lab, 0, 0);
  HARK_TRY(hark_size_add(lab->context, bytes, HARK_ALIGNMENT, &all));
  if (all >= LOOK_AT_THE_MACHINE) HARK_TRY(refuse_beyond_memory(lab->context, all));
  HARK_TRY(hark_allocate_zero(lab->context, all, &memory));
  hark_lab_block *const block = memory;
  *block = (hark_lab_block){.next = lab->blocks, .bytes = all};
  lab->blocks = block;
  *out = (char *)memory + HARK_ALIGNMENT;
  return HARK_OK;
}

hark_status hark_lab_numbers(hark_lab *lab, int64_t count, double **out) {
  size_t bytes;
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(hark_size_multiply(lab->context, (size_t)count, sizeof(double), &bytes));
  HARK_TRY(hark_lab_allocate(lab, bytes, &memory));
  *out = memory;
  return HARK_OK;
}

hark_random_stream hark_lab_stream(const hark_lab *lab, uint32_t stream) {
  hark_lab_tick(lab, 0, 0);
  return (hark_random_stream){.seed = lab->seed, .layer_purpose = hark_random_layer_purpose(stream, HARK_RANDOM_LAB)};
}

void hark_lab_normal_from(const hark_lab *lab, uint32_t stream, uint64_t first, int64_t count, double *out) {
  const hark_random_stream numbers = hark_lab_stream(lab, stream);
  hark_random_normal(&numbers, first, count, out);
}

void hark_lab_normal(const hark_lab *lab, uint32_t stream, int64_t count, double *out) { hark_lab_normal_from(lab, stream, 0, count, out); }

void hark_lab_uniform(const hark_lab *lab, uint32_t stream, int64_t count, double *out) {
  const hark_random_stream numbers = hark_lab_stream(lab, stream);
  hark_random_uniform(&numbers, 0, count, out);
}

hark_status hark_lab_draw_normal(hark_lab *lab, uint32_t stream, int64_t count, double deviation, double **out) {
  HARK_TRY(hark_lab_numbers(lab, count, out));
  hark_lab_normal(lab, stream, count, *out);
  for (int64_t i = 0; i < count; i++) (*out)[i] *= deviation;
  return HARK_OK;
}

/* ---- filling ---- */

static hark_status too_many(const hark_lab *lab, const char *what, int limit) {
  return hark_fail(lab->context, HARK_INTERNAL_ERROR, "an experiment with more than %d %s", limit, what);
}

static hark_status append(hark_text *text, const void *data, size_t bytes) {
  hark_text_append_bytes(text, data, bytes);
  return text->status;
}

hark_status hark_lab_add_table(hark_lab *lab, const char *title, const hark_lab_column *columns, int count, hark_lab_table **out) {
  *out = NULL;
  if (lab->table_count == HARK_LAB_TABLES) return too_many(lab, "tables", HARK_LAB_TABLES);
  if (count > HARK_LAB_COLUMNS) return too_many(lab, "columns", HARK_LAB_COLUMNS);
  *out = &lab->tables[lab->table_count++];
  **out = (hark_lab_table){title, columns, count, hark_text_empty(lab->context)};
  return HARK_OK;
}

hark_status hark_lab_add_row(hark_lab *lab, hark_lab_table *table, const double *values) {
  hark_lab_tick(lab, 0, 0);
  for (int i = 0; i < table->column_count; i++)
    if (!isfinite(values[i]))
      return hark_fail(lab->context, HARK_NOT_FINITE, "%s: %s is %g in row %lld", table->title, table->columns[i].name, values[i],
                       (long long)hark_lab_row_count(table));
  return append(&table->rows, (const void *)values, (size_t)table->column_count * sizeof *values);
}

hark_status hark_lab_require(hark_lab *lab, double measured, double low, double high, const char *name, ...) {
  if (lab->criterion_count == HARK_LAB_CRITERIA) return too_many(lab, "criteria", HARK_LAB_CRITERIA);
  hark_lab_criterion *const criterion = &lab->criteria[lab->criterion_count++];
  *criterion = (hark_lab_criterion){.measured = measured, .low = low, .high = high};
  va_list arguments;
  va_start(arguments, name);
  (void)vsnprintf(criterion->name, sizeof criterion->name, name, arguments);
  va_end(arguments);
  return HARK_OK;
}

hark_status hark_lab_add_panel(hark_lab *lab, hark_lab_axes axes, hark_lab_panel **out) {
  *out = NULL;
  if (lab->panel_count == HARK_LAB_PANELS) return too_many(lab, "panels", HARK_LAB_PANELS);
  *out = &lab->panels[lab->panel_count++];
  (*out)->axes = axes;
  (*out)->cells = hark_text_empty(lab->context);
  return HARK_OK;
}

hark_status hark_lab_add_curve(hark_lab *lab, hark_lab_panel *panel, hark_lab_style style, hark_lab_curve **out, const char *label, ...) {
  *out = NULL;
  if (panel->curve_count == HARK_LAB_CURVES) return too_many(lab, "curves in a panel", HARK_LAB_CURVES);
  hark_lab_curve *const curve = &panel->curves[panel->curve_count++];
  *curve = (hark_lab_curve){.style = style, .points = hark_text_empty(lab->context)};
  va_list arguments;
  va_start(arguments, label);
  (void)vsnprintf(curve->label, sizeof curve->label, label, arguments);
  va_end(arguments);
  *out = curve;
  return HARK_OK;
}

hark_status hark_lab_add_point(hark_lab_curve *curve, double x, double y) {
  const double point[] = {x, y};
  return append(&curve->points, (const void *)point, sizeof point);
}

hark_status hark_lab_add_cell(hark_lab_panel *panel, const hark_lab_cell *cell) {
  return append(&panel->cells, (const void *)cell, sizeof *cell);
}

/* ---- reading ---- */

bool hark_lab_passes(const hark_lab_criterion *criterion) {
  return criterion->measured >= criterion->low && criterion->measured <= criterion->high;
}

bool hark_lab_all_pass(const hark_lab *lab) {
  for (int i = 0; i < lab->criterion_count; i++)
    if (!hark_lab_passes(&lab->criteria[i])) return false;
  return true;
}

static int64_t count_of(const hark_text *text, size_t bytes) { return (int64_t)(text->length / bytes); }

int64_t hark_lab_row_count(const hark_lab_table *table) { return count_of(&table->rows, (size_t)table->column_count * sizeof(double)); }
int64_t hark_lab_point_count(const hark_lab_curve *curve) { return count_of(&curve->points, 2 * sizeof(double)); }
int64_t hark_lab_cell_count(const hark_lab_panel *panel) { return count_of(&panel->cells, sizeof(hark_lab_cell)); }

/* A text's memory is HARK_ALIGNMENT-aligned. */
const double *hark_lab_row(const hark_lab_table *table, int64_t row) {
  return (const double *)(const void *)table->rows.data + row * table->column_count;
}
const double *hark_lab_points(const hark_lab_curve *curve) { return (const double *)(const void *)curve->points.data; }
const hark_lab_cell *hark_lab_cells(const hark_lab_panel *panel) { return (const hark_lab_cell *)(const void *)panel->cells.data; }

hark_status hark_lab_judge(hark_lab *lab, const hark_experiment *experiment) {
  lab->criterion_count = 0;
  return experiment->judge(lab);
}

hark_status hark_lab_run(hark_lab *lab, const hark_experiment *experiment) {
  const char *const missing = hark_lab_missing(experiment);
  if (missing != NULL) return hark_fail(lab->context, HARK_UNSUPPORTED, "needs %s, which this build does not have", missing);
  HARK_TRY(experiment->measure(lab));
  HARK_TRY(hark_lab_judge(lab, experiment));
  if (lab->table_count == 0 || lab->criterion_count == 0)
    return hark_fail(lab->context, HARK_INTERNAL_ERROR, "an experiment that shows nothing, or that cannot fail");
  return HARK_OK;
}

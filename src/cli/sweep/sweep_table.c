/* sweep_table.c - see sweep_table.h. */
#include "cli/sweep/sweep_table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/files.h"
#include "io/number.h"
#include "json/json.h"

hark_spread hark_spread_of(const double *values, int count) {
  hark_spread spread = {.mean = NAN, .deviation = NAN};
  double sum = 0, squares = 0;
  for (int i = 0; i < count; i++) {
    if (!isfinite(values[i])) continue;
    sum += values[i];
    spread.count++;
  }
  if (spread.count > 0) spread.mean = sum / spread.count;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i])) squares += (values[i] - spread.mean) * (values[i] - spread.mean);
  if (spread.count > 1) spread.deviation = sqrt(squares / (spread.count - 1));
  return spread;
}

static const double *of_cell(const hark_sweep_results *results, int cell) {
  return results->values + (ptrdiff_t)cell * results->plan->seed_count;
}

hark_spread hark_sweep_cell_spread(const hark_sweep_results *results, int cell) {
  return hark_spread_of(of_cell(results, cell), results->plan->seed_count);
}

hark_spread hark_sweep_cell_beside(const hark_sweep_results *results, int cell, int index) {
  const int seeds = results->plan->seed_count;
  return hark_spread_of(results->beside[index] + (ptrdiff_t)cell * seeds, seeds);
}

hark_spread hark_sweep_difference(const hark_sweep_results *results, int cell) {
  double differences[HARK_SWEEP_SEEDS];
  const double *own = of_cell(results, cell), *baseline = of_cell(results, results->baseline);
  for (int seed = 0; seed < results->plan->seed_count; seed++) differences[seed] = own[seed] - baseline[seed];
  return hark_spread_of(differences, results->plan->seed_count);
}

/* Only among the variant's cells with most results: a cell with a failed seed cannot be compared fairly. */
int hark_sweep_best(const hark_sweep_results *results, int variant) {
  int best = -1, most = 0;
  double best_mean = results->more ? -INFINITY : INFINITY;
  for (int cell = 0; cell < hark_sweep_cells(results->plan); cell++) {
    if (hark_sweep_variant(results->plan, cell) != variant) continue;
    const hark_spread spread = hark_sweep_cell_spread(results, cell);
    const bool better = results->more ? spread.mean > best_mean : spread.mean < best_mean;
    if (spread.count < most || (spread.count == most && !better)) continue;
    best = cell;
    best_mean = spread.mean;
    most = spread.count;
  }
  return best;
}

bool hark_sweep_on_edge(const hark_sweep_results *results, int cell, int axis) {
  const hark_sweep_plan *plan = results->plan;
  const hark_sweep_axis *of = &plan->axes[axis];
  double own = NAN, least = INFINITY, greatest = -INFINITY;
  for (int i = 0; i < of->count; i++) {
    const char *text = plan->values[of->first + i];
    double value;
    if (!hark_number_read(text, strlen(text), &value)) return false; /* only numbers have an order */
    least = fmin(least, value);
    greatest = fmax(greatest, value);
    if (i == hark_sweep_value(plan, cell, axis)) own = value;
  }
  return of->count >= 3 && (own == least || own == greatest);
}

/* "1.2345", or a dash. */
static const char *number(double value, const char *format, char out[32]) {
  (void)snprintf(out, 32, "-");
  if (isfinite(value)) (void)snprintf(out, 32, format, value);
  return out;
}

/* A name in a column of a Markdown table. */
static void append_cell(hark_text *text, const char *name) {
  for (const char *at = name; *at != '\0'; at++) hark_text_append(text, *at == '|' ? "\\|" : "%c", *at);
}

static void print_edges(const hark_sweep_results *results, hark_text *text) {
  const hark_sweep_plan *plan = results->plan;
  char name[HARK_SWEEP_CELL_BYTES];
  for (int variant = 0; variant < hark_max(plan->variant_count, 1); variant++) {
    const int best = hark_sweep_best(results, variant);
    for (int axis = 0; best >= 0 && axis < plan->axis_count; axis++) {
      if (!hark_sweep_on_edge(results, best, axis)) continue;
      hark_sweep_cell_name(plan, best, name);
      hark_text_append(text, "The optimum of %s is at the edge of %s: the grid may be too small.\n", name, plan->axes[axis].key);
    }
  }
}

void hark_sweep_print_table(const hark_sweep_results *results, hark_text *text) {
  char name[HARK_SWEEP_CELL_BYTES], mean[32], deviation[32], difference[32], spread[32];
  hark_sweep_cell_name(results->plan, results->baseline, name);
  hark_text_append(text, "| %s | n | mean | deviation | minus ", results->metric);
  append_cell(text, name);
  hark_text_append(text, ", by seed | deviation |");
  for (int i = 0; i < results->beside_count; i++) hark_text_append(text, " %s |", results->beside_names[i]);
  hark_text_append(text, "\n|---|---|---|---|---|---|");
  for (int i = 0; i < results->beside_count; i++) hark_text_append(text, "---|");
  hark_text_append(text, "\n");
  for (int cell = 0; cell < hark_sweep_cells(results->plan); cell++) {
    const hark_spread own = hark_sweep_cell_spread(results, cell), paired = hark_sweep_difference(results, cell);
    const bool baseline = cell == results->baseline;
    hark_sweep_cell_name(results->plan, cell, name);
    hark_text_append(text, "| ");
    append_cell(text, name);
    hark_text_append(text, " | %d | %s | %s | %s | %s |", own.count, number(own.mean, "%.4f", mean),
                     number(own.deviation, "%.4f", deviation), number(baseline ? NAN : paired.mean, "%+.4f", difference),
                     number(baseline ? NAN : paired.deviation, "%.4f", spread));
    for (int i = 0; i < results->beside_count; i++)
      hark_text_append(text, " %s |", number(hark_sweep_cell_beside(results, cell, i).mean, "%.4g", mean));
    hark_text_append(text, "\n");
  }
  print_edges(results, text);
  if (results->budget.name[0] != '\0')
    hark_text_append(text, "Only evaluations with %s of at most %.6g are used.\n", results->budget.name, results->budget.limit);
}

static void print_spread(const char *prefix, hark_spread spread, hark_text *text) {
  hark_text_append(text, ", \"%sn\": %d, \"%smean\": ", prefix, spread.count, prefix);
  hark_json_append_number(text, spread.mean);
  hark_text_append(text, ", \"%sdeviation\": ", prefix);
  hark_json_append_number(text, spread.deviation);
}

void hark_sweep_print_json(const hark_sweep_results *results, hark_text *text) {
  const hark_sweep_plan *plan = results->plan;
  char name[HARK_SWEEP_CELL_BYTES];
  hark_text_append(text, "{");
  hark_json_append_path(text, "plan", results->label);
  hark_text_append(text, ", \"metric\": ");
  hark_json_append_string(text, results->metric);
  hark_sweep_cell_name(plan, results->baseline, name);
  hark_text_append(text, ", \"better\": \"%s\"", results->more ? "more" : "less");
  if (results->budget.name[0] != '\0') {
    hark_text_append(text, ", \"at\": {\"metric\": ");
    hark_json_append_string(text, results->budget.name);
    hark_text_append(text, ", \"limit\": ");
    hark_json_append_number(text, results->budget.limit);
    hark_text_append(text, "}");
  }
  hark_text_append(text, ", \"baseline\": ");
  hark_json_append_string(text, name);
  hark_text_append(text, ", \"cells\": [");
  for (int cell = 0; cell < hark_sweep_cells(plan); cell++) {
    const bool best = hark_sweep_best(results, hark_sweep_variant(plan, cell)) == cell;
    hark_sweep_cell_name(plan, cell, name);
    hark_text_append(text, "%s{\"name\": ", cell > 0 ? ", " : "");
    hark_json_append_string(text, name);
    print_spread("", hark_sweep_cell_spread(results, cell), text);
    print_spread("difference_", hark_sweep_difference(results, cell), text);
    hark_text_append(text, ", \"beside\": {");
    for (int i = 0; i < results->beside_count; i++) {
      if (i > 0) hark_text_append(text, ", ");
      hark_json_append_string(text, results->beside_names[i]);
      hark_text_append(text, ": ");
      hark_json_append_number(text, hark_sweep_cell_beside(results, cell, i).mean);
    }
    hark_text_append(text, "}, \"best\": %s, \"on_edge\": [", best ? "true" : "false");
    for (int axis = 0, shown = 0; best && axis < plan->axis_count; axis++) {
      if (!hark_sweep_on_edge(results, cell, axis)) continue;
      if (shown++ > 0) hark_text_append(text, ", ");
      hark_json_append_string(text, plan->axes[axis].key);
    }
    hark_text_append(text, "], \"values\": [");
    for (int seed = 0; seed < plan->seed_count; seed++) {
      if (seed > 0) hark_text_append(text, ", ");
      hark_json_append_number(text, of_cell(results, cell)[seed]);
    }
    hark_text_append(text, "]}");
  }
  hark_text_append(text, "]}\n");
}

/* The name of a plan's file without the ending. */
static void name_plan(const hark_sweep_plan *plan, char out[HARK_PATH_BYTES]) {
  const char *const name = hark_path_name(plan->path), *const ending = strrchr(name, '.');
  const size_t length = ending != NULL && ending > name ? (size_t)(ending - name) : strlen(name);
  (void)snprintf(out, HARK_PATH_BYTES, "%.*s", (int)length, name);
}

void hark_sweep_label(const hark_sweep_plan *const *plans, int count, int index, char out[HARK_PATH_BYTES]) {
  char other[HARK_PATH_BYTES];
  bool alone = true;
  name_plan(plans[index], out);
  for (int i = 0; i < count && alone; i++) {
    if (i == index) continue;
    name_plan(plans[i], other);
    alone = strcmp(out, other) != 0;
  }
  if (!alone) (void)snprintf(out, HARK_PATH_BYTES, "%s", plans[index]->path);
}

/* The cell of this name, or -1. */
static int find_cell(const hark_sweep_results *results, const char *name) {
  char own[HARK_SWEEP_CELL_BYTES];
  for (int cell = 0; cell < hark_sweep_cells(results->plan); cell++) {
    hark_sweep_cell_name(results->plan, cell, own);
    if (strcmp(own, name) == 0) return cell;
  }
  return -1;
}

static void print_row(const hark_sweep_results *const *sweeps, int count, const char *name, hark_text *text) {
  char mean[32], deviation[32];
  hark_text_append(text, "| ");
  append_cell(text, name);
  hark_text_append(text, " |");
  for (int i = 0; i < count; i++) {
    const int cell = find_cell(sweeps[i], name);
    const hark_spread own = cell >= 0 ? hark_sweep_cell_spread(sweeps[i], cell) : (hark_spread){.mean = NAN, .deviation = NAN};
    hark_text_append(text, " %s", number(own.mean, "%.4f", mean));
    if (own.count > 1) hark_text_append(text, " \u00b1 %s", number(own.deviation, "%.4f", deviation));
    if (own.count > 0 && own.count < sweeps[i]->plan->seed_count)
      hark_text_append(text, " (%d of %d)", own.count, sweeps[i]->plan->seed_count);
    hark_text_append(text, " |");
  }
  hark_text_append(text, "\n");
}

void hark_sweep_print_together(const hark_sweep_results *const *sweeps, int count, hark_text *text) {
  char name[HARK_SWEEP_CELL_BYTES];
  hark_text_append(text, "| %s |", sweeps[0]->metric);
  for (int i = 0; i < count; i++) hark_text_append(text, " %s |", sweeps[i]->label);
  hark_text_append(text, "\n|---|");
  for (int i = 0; i < count; i++) hark_text_append(text, "---|");
  hark_text_append(text, "\n");
  for (int i = 0; i < count; i++) {
    for (int cell = 0; cell < hark_sweep_cells(sweeps[i]->plan); cell++) {
      bool printed = false;
      hark_sweep_cell_name(sweeps[i]->plan, cell, name);
      for (int before = 0; before < i && !printed; before++) printed = find_cell(sweeps[before], name) >= 0;
      if (!printed) print_row(sweeps, count, name, text);
    }
  }
  for (int i = 0; i < count && sweeps[0]->budget.name[0] != '\0'; i++)
    hark_text_append(text, "%s: only evaluations with %s of at most %.6g are used.\n", sweeps[i]->label, sweeps[i]->budget.name,
                     sweeps[i]->budget.limit);
}

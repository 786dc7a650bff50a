/* lab_print.c - an experiment's tables and criteria, as text and as JSON. */
#include "cli/lab/lab_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/json_write.h"

#define LINE_WIDTH 110
#define CELL_BYTES HARK_LAB_CELL_BYTES

/* ---- text ---- */

void hark_lab_cell_text(const hark_lab_column *column, double value, char out[CELL_BYTES]) {
  if (column->words != NULL && hark_option_choice_at(column->words, (int)value, out)) return;
  (void)snprintf(out, CELL_BYTES, "%.6g", value);
}

static size_t widest(const hark_lab_table *table, int c) {
  const hark_lab_column *const column = &table->columns[c];
  size_t width = strlen(column->name);
  char cell[CELL_BYTES];
  if (column->unit != NULL && strlen(column->unit) > width) width = strlen(column->unit);
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    hark_lab_cell_text(column, hark_lab_row(table, i)[c], cell);
    if (strlen(cell) > width) width = strlen(cell);
  }
  return width;
}

static void print_table(const hark_lab_table *table, hark_text *text) {
  int width[HARK_LAB_COLUMNS];
  char cell[CELL_BYTES];
  hark_text_append(text, "\n%s\n", table->title);
  for (int c = 0; c < table->column_count; c++) {
    width[c] = (int)widest(table, c);
    hark_text_append(text, "  %*s", width[c], table->columns[c].name);
  }
  hark_text_append(text, "\n");
  for (int c = 0; c < table->column_count; c++)
    hark_text_append(text, "  %*s", width[c], table->columns[c].unit != NULL ? table->columns[c].unit : "");
  hark_text_append(text, "\n");
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    for (int c = 0; c < table->column_count; c++) {
      hark_lab_cell_text(&table->columns[c], hark_lab_row(table, i)[c], cell);
      hark_text_append(text, "  %*s", width[c], cell);
    }
    hark_text_append(text, "\n");
  }
}

/* A paragraph in lines that are not too long, with a word before it. */
static void print_paragraph(const char *name, const char *words, hark_text *text) {
  size_t column = strlen(name) + 2;
  hark_text_append(text, "%s: ", name);
  for (const char *at = words; *at != 0;) {
    const size_t length = strcspn(at, " ");
    if (column + length > LINE_WIDTH) {
      hark_text_append(text, "\n  ");
      column = 2;
    }
    hark_text_append(text, "%.*s%s", (int)length, at, at[length] != 0 ? " " : "");
    column += length + 1;
    at += length + (at[length] != 0 ? 1 : 0);
  }
  hark_text_append(text, "\n");
}

void hark_lab_bound_text(const hark_lab_criterion *criterion, char out[HARK_LAB_BOUND_BYTES]) {
  if (criterion->low == criterion->high)
    (void)snprintf(out, HARK_LAB_BOUND_BYTES, "= %g", criterion->low);
  else
    (void)snprintf(out, HARK_LAB_BOUND_BYTES, "[%g, %g]", criterion->low, criterion->high);
}

/* "pass  measured 0.998, expected from 0.9 to 1.1  name" */
static void print_criterion(const hark_lab_criterion *criterion, hark_text *text) {
  char bounds[HARK_LAB_BOUND_BYTES];
  hark_lab_bound_text(criterion, bounds);
  hark_text_append(text, "  %s  %-12.6g", hark_lab_passes(criterion) ? "pass" : "FAIL", criterion->measured);
  hark_text_append(text, "%-17s %s\n", bounds, criterion->name);
}

void hark_lab_print_head(const hark_lab_entry *entry, hark_text *text) {
  hark_text_append(text, "%s: %s\n", entry->name, entry->experiment->summary);
  print_paragraph("paper", entry->experiment->paper, text);
  print_paragraph("statement", entry->experiment->statement, text);
}

void hark_lab_append_options(const hark_lab *lab, hark_text *text) {
  if (lab->given_text != NULL && lab->given_text[0] != '\0') hark_text_append(text, "options:%s\n", lab->given_text);
}

void hark_lab_append_options_json(const hark_lab *lab, hark_text *text) {
  if (lab->given_json != NULL && lab->given_json[0] != '\0') hark_text_append(text, ", \"options\": {%s}", lab->given_json);
}

void hark_lab_print_text(const hark_lab *lab, const hark_lab_entry *entry, hark_text *text) {
  hark_lab_print_head(entry, text);
  hark_text_append(text, "seed: %" PRIu64 "%s\n", lab->seed, lab->quick ? ", quick" : "");
  hark_lab_append_options(lab, text);
  for (int i = 0; i < lab->table_count; i++) print_table(&lab->tables[i], text);
  hark_text_append(text, "\ncriteria\n");
  for (int i = 0; i < lab->criterion_count; i++) print_criterion(&lab->criteria[i], text);
  hark_text_append(text, "%s: %s\n", entry->name, hark_lab_all_pass(lab) ? "passed" : "FAILED");
}

/* ---- JSON ---- */

/* ", "NAME": "VALUE"" */
static void append_member(hark_text *text, const char *name, const char *value) {
  hark_text_append(text, ", \"%s\": ", name);
  hark_json_append_string(text, value);
}

static void append_cell(const hark_lab_column *column, double value, hark_text *text) {
  char word[CELL_BYTES];
  if (column->words != NULL && hark_option_choice_at(column->words, (int)value, word))
    hark_json_append_string(text, word);
  else
    hark_json_append_number(text, value);
}

static void append_table(const hark_lab_table *table, hark_text *text) {
  hark_text_append(text, "{\"title\": ");
  hark_json_append_string(text, table->title);
  hark_text_append(text, ", \"columns\": [");
  for (int c = 0; c < table->column_count; c++) {
    hark_text_append(text, "%s{\"name\": ", c > 0 ? ", " : "");
    hark_json_append_string(text, table->columns[c].name);
    if (table->columns[c].unit != NULL) append_member(text, "unit", table->columns[c].unit);
    hark_text_append(text, "}");
  }
  hark_text_append(text, "], \"rows\": [");
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    hark_text_append(text, i > 0 ? ", [" : "[");
    for (int c = 0; c < table->column_count; c++) {
      if (c > 0) hark_text_append(text, ", ");
      append_cell(&table->columns[c], hark_lab_row(table, i)[c], text);
    }
    hark_text_append(text, "]");
  }
  hark_text_append(text, "]}");
}

void hark_lab_append_bounds_json(const hark_lab_criterion *criterion, hark_text *text) {
  hark_text_append(text, ", \"low\": ");
  hark_json_append_number(text, criterion->low);
  hark_text_append(text, ", \"high\": ");
  hark_json_append_number(text, criterion->high);
}

static void append_criterion(const hark_lab_criterion *criterion, hark_text *text) {
  hark_text_append(text, "{\"name\": ");
  hark_json_append_string(text, criterion->name);
  hark_text_append(text, ", \"measured\": ");
  hark_json_append_number(text, criterion->measured);
  hark_lab_append_bounds_json(criterion, text);
  hark_text_append(text, ", \"passed\": %s}", hark_lab_passes(criterion) ? "true" : "false");
}

void hark_lab_print_json_head(const hark_lab_entry *entry, hark_text *text) {
  hark_text_append(text, "{\"experiment\": ");
  hark_json_append_string(text, entry->name);
  append_member(text, "paper", entry->experiment->paper);
  append_member(text, "statement", entry->experiment->statement);
}

void hark_lab_print_json(const hark_lab *lab, const hark_lab_entry *entry, hark_text *text) {
  hark_lab_print_json_head(entry, text);
  hark_text_append(text, ", \"seed\": %" PRIu64 ", \"quick\": %s", lab->seed, lab->quick ? "true" : "false");
  hark_lab_append_options_json(lab, text);
  hark_text_append(text, ", \"tables\": [");
  for (int i = 0; i < lab->table_count; i++) {
    if (i > 0) hark_text_append(text, ", ");
    append_table(&lab->tables[i], text);
  }
  hark_text_append(text, "], \"criteria\": [");
  for (int i = 0; i < lab->criterion_count; i++) {
    if (i > 0) hark_text_append(text, ", ");
    append_criterion(&lab->criteria[i], text);
  }
  hark_text_append(text, "], \"passed\": %s}\n", hark_lab_all_pass(lab) ? "true" : "false");
}

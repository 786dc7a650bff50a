/* lab_print.h - the results of an experiment as text, as JSON and as a picture. */
#ifndef HARK_CLI_LAB_LAB_PRINT_H
#define HARK_CLI_LAB_LAB_PRINT_H

#include "cli/common.h"
#include "lab/lab.h"

#define HARK_LAB_CELL_BYTES HARK_OPTION_WORD_BYTES
/* A table's cell: a word, or six digits. */
void hark_lab_cell_text(const hark_lab_column *column, double value, char out[HARK_LAB_CELL_BYTES]);

#define HARK_LAB_BOUND_BYTES 64
/* "= 4", "[0, 1]", as `hark lab` prints a criterion's bound. */
void hark_lab_bound_text(const hark_lab_criterion *criterion, char out[HARK_LAB_BOUND_BYTES]);
/* ", "low": 0, "high": 1": the bound as members of a criterion's object. */
void hark_lab_append_bounds_json(const hark_lab_criterion *criterion, hark_text *text);

/* Name, paper and statement; of JSON the beginning of the object. */
void hark_lab_print_head(const hark_lab_entry *entry, hark_text *text);
void hark_lab_print_json_head(const hark_lab_entry *entry, hark_text *text);

/* The experiment's own options that were given, if any: a line, or a member of an object. */
void hark_lab_append_options(const hark_lab *lab, hark_text *text);
void hark_lab_append_options_json(const hark_lab *lab, hark_text *text);

/* Tables and criteria for people: numbers with six digits. */
void hark_lab_print_text(const hark_lab *lab, const hark_lab_entry *entry, hark_text *text);

/* One object in one line; numbers read back as the same, words of columns are strings, numbers that are not finite are null. */
void hark_lab_print_json(const hark_lab *lab, const hark_lab_entry *entry, hark_text *text);

/* The exit code of a run, whose criteria all `passed` or not. */
int hark_lab_exit_code(bool passed, bool strict);

/* Draws the panels side by side, as PNG where the name ends so, else as SVG. */
HARK_MUST_CHECK hark_status hark_lab_draw(hark_invocation *call, const hark_lab *lab, const char *path);

/* Draws the curves with letters, one panel below the other; logarithmic axes by their logarithms. Panels without curves are left out. */
HARK_MUST_CHECK hark_status hark_lab_draw_letters(hark_invocation *call, const hark_lab *lab);

#endif

/* lab_markdown.h - docs/lab.md, a front page with a table of experiments, and docs/lab/NAME.md, a page for each of them: their texts. */
#ifndef HARK_CLI_LAB_LAB_MARKDOWN_H
#define HARK_CLI_LAB_LAB_MARKDOWN_H

#include "cli/common.h"
#include "cli/lab/lab_seeds.h"
#include "lab/lab.h"

/* ---- the front page ---- */

/* Refuses, HARK_BAD_FILE in one line, a file that is not a front page: one with a different first line or without the table, as documents
 * of earlier versions, or with a NUL byte. */
HARK_MUST_CHECK hark_status hark_lab_markdown_check(hark_context *context, const char *path, const hark_text *front);

/* The introduction, and a table with a row for each experiment, in the order of the table of experiments. A row is that of `rows`, or if
 * there is none, that of the page `before`, with the same bytes. Rows of other names are left out. before: empty if there is no page. */
void hark_lab_markdown_front(const hark_text *before, const hark_text *rows, hark_text *text);

/* The row of an experiment. outcomes: NULL if it was not measured; folder: that of the pages, from the front page. */
void hark_lab_markdown_row(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, const char *folder, hark_text *text);

/* ---- pages ---- */

#define HARK_LAB_TITLE_BYTES 128
/* The beginning of every page of this experiment. */
void hark_lab_markdown_title(const char *name, char out[HARK_LAB_TITLE_BYTES]);

/* The part of a page that does not depend on results: title, paper, statement, formulas as printed and corrected, notes. front: the name
 * of the front page, which is in the folder above. */
void hark_lab_markdown_texts(const hark_lab_entry *entry, const char *front, hark_text *text);

/* A page: the texts, criteria with verdicts, tables, the figure NAME.svg if there is one, and the command that reproduces it. With several
 * seeds the criteria have the number of seeds that passed, with the experiment's explanation if one fails; tables and figure are those of
 * the first seed. */
void hark_lab_markdown_page(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, const char *front, hark_text *text);

/* The page of an experiment that this build cannot run. */
void hark_lab_markdown_left_out(const hark_lab_entry *entry, const char *front, hark_text *text);

#endif

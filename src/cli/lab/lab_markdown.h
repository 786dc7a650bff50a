/* lab_markdown.h - docs/lab.md from the results of experiments. */
#ifndef HARK_CLI_LAB_LAB_MARKDOWN_H
#define HARK_CLI_LAB_LAB_MARKDOWN_H

#include "cli/common.h"
#include "cli/lab/lab_seeds.h"
#include "lab/lab.h"

/* The document's beginning: how to run, how to read. */
void hark_lab_markdown_begin(hark_text *text);

/* Refuses, HARK_BAD_FILE in one line, a document whose sections hark_lab_markdown_renew() could not find: one with a different first line,
 * or with a NUL byte. */
HARK_MUST_CHECK hark_status hark_lab_markdown_check(hark_context *context, const char *path, const hark_text *document);

/* `document` with the section of this experiment replaced in place (all of them, if there are several), or inserted in the order of the
 * table, and with the current beginning. All other sections keep their bytes. section: what hark_lab_markdown_section() wrote. */
void hark_lab_markdown_renew(const hark_text *document, const hark_lab_entry *entry, const hark_text *section, hark_text *text);

/* A section: statement, formulas as printed and corrected, what was measured, criteria with verdicts, the figure's link (figure: its path
 * from the document, NULL: none), and the command that reproduces it. With several seeds the criteria have the number of seeds that passed,
 * with the experiment's explanation where one fails; tables and figure are those of the first seed. */
void hark_lab_markdown_section(const hark_lab_outcomes *outcomes, const hark_lab_entry *entry, const char *figure, hark_text *text);

/* A section of an experiment that this build cannot run. */
void hark_lab_markdown_left_out(const hark_lab_entry *entry, const char *missing, hark_text *text);

#endif

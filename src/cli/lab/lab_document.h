/* lab_document.h - the files of `hark lab --markdown docs/lab.md`: this front page, docs/lab/NAME.md and docs/lab/NAME.svg. */
#ifndef HARK_CLI_LAB_LAB_DOCUMENT_H
#define HARK_CLI_LAB_LAB_DOCUMENT_H

#include "cli/lab/lab_markdown.h"
#include "io/files.h"

/* The document that this call writes. */
typedef struct hark_lab_document {
  hark_invocation *call;
  const char *path;             /* of the front page; "": no document is written, and the functions below do nothing */
  char folder[HARK_PATH_BYTES]; /* of pages and figures: the path without its ending */
  hark_text rows;               /* of the experiments that were run */
} hark_lab_document;

/* The folder of a document: its path without ".md". False for a path without this ending or without a name. */
bool hark_lab_document_folder(const char *path, char out[HARK_PATH_BYTES]);

/* Before the work: makes the folder, and refuses an existing front page that is not one of hark lab. Freed by hark_lab_document_end(). */
HARK_MUST_CHECK hark_status hark_lab_document_begin(hark_invocation *call, const char *path, hark_lab_document *document);

/* Before the work: refuses a page of this experiment that exists and was not written by hark lab, or that cannot be written. */
HARK_MUST_CHECK hark_status hark_lab_document_check(const hark_lab_document *document, const hark_lab_entry *entry);

/* Writes the page and the figure of an experiment. outcomes: NULL if this build cannot run it. */
HARK_MUST_CHECK hark_status hark_lab_document_add(hark_lab_document *document, const hark_lab_outcomes *outcomes,
                                                  const hark_lab_entry *entry);

/* Writes the front page, with the rows of other experiments as they are in it now. Warns of pages in the folder whose experiment does not
 * exist. */
HARK_MUST_CHECK hark_status hark_lab_document_write(hark_lab_document *document);
void hark_lab_document_end(hark_lab_document *document);

#endif

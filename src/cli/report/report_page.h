/* report_page.h - the page of hark report: one HTML file with its style, its program and its data. It loads nothing from elsewhere. */
#ifndef HARK_CLI_REPORT_REPORT_PAGE_H
#define HARK_CLI_REPORT_REPORT_PAGE_H

#include "io/text.h"

/* report.html, report.css and report.js, by cmake/EmbedFiles.cmake. */
extern const char hark_embedded_report_html[];
extern const char hark_embedded_report_css[];
extern const char hark_embedded_report_js[];

/* Appends the page with `data`, a JSON document. */
void hark_report_page_append(const char *title, const hark_text *data, hark_text *page);

#endif

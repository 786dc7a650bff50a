/* report_page.c - see report_page.h. */
#include "cli/report/report_page.h"

#include <string.h>

/* Characters that have a meaning in HTML. */
static void append_html(const char *words, hark_text *page) {
  for (; *words != '\0'; words++) {
    const char *const name = *words == '<' ? "&lt;" : *words == '>' ? "&gt;" : *words == '&' ? "&amp;" : *words == '"' ? "&quot;" : NULL;
    if (name != NULL)
      hark_text_append(page, "%s", name);
    else
      hark_text_append_bytes(page, words, 1);
  }
}

/* In JSON '<' occurs only in strings, where it may be written with an escape: so neither "</script" nor "<!--" can end or change the
 * element that contains the data. */
static void append_data(const hark_text *data, hark_text *page) {
  const char *at = hark_text_get(data), *const end = at + data->length;
  while (at < end) {
    const char *const next = memchr(at, '<', (size_t)(end - at));
    hark_text_append_bytes(page, at, (size_t)((next != NULL ? next : end) - at));
    if (next == NULL) break;
    hark_text_append(page, "\\u003c");
    at = next + 1;
  }
}

/* The part of the page before a mark; *at moves to the text after it. */
static void append_up_to(const char **at, const char *mark, hark_text *page) {
  const char *const found = strstr(*at, mark);
  const size_t length = found != NULL ? (size_t)(found - *at) : strlen(*at);
  hark_text_append_bytes(page, *at, length);
  *at += length + (found != NULL ? strlen(mark) : 0);
}

void hark_report_page_append(const char *title, const hark_text *data, hark_text *page) {
  const char *at = hark_embedded_report_html;
  append_up_to(&at, "@TITLE@", page);
  append_html(title, page);
  append_up_to(&at, "@STYLE@", page);
  hark_text_append(page, "%s", hark_embedded_report_css);
  append_up_to(&at, "@DATA@", page);
  append_data(data, page);
  append_up_to(&at, "@SCRIPT@", page);
  hark_text_append(page, "%s", hark_embedded_report_js);
  hark_text_append(page, "%s", at);
}

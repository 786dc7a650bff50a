/* ahca_text.c - see ahca_text.h. */
#include "cli/ahca_text.h"

#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/json_write.h"

#define PREFIX "ahca/"
#define LABEL_BYTES 48

/* "4-7: 12.5 %" for every fraction that is not NaN; `label` writes its name. */
static void append_fractions(const char *what, const double *fractions, int count, void (*label)(int index, char out[LABEL_BYTES]),
                             hark_text *text) {
  bool begun = false;
  for (int i = 0; i < count; i++) {
    char name[LABEL_BYTES];
    if (isnan(fractions[i])) continue;
    label(i, name);
    if (!begun) hark_text_append(text, "  %-22s ", what);
    hark_text_append(text, "%s%s %.1f %%", begun ? ", " : "", name, 100 * fractions[i]);
    begun = true;
  }
  if (begun) hark_text_append(text, "\n");
}

static void depth_label(int index, char out[LABEL_BYTES]) { (void)snprintf(out, LABEL_BYTES, "%d:", index + 1); }

static void length_label(int index, char out[LABEL_BYTES]) {
  const int64_t first = (int64_t)1 << index;
  if (index == 0)
    (void)snprintf(out, LABEL_BYTES, "1:");
  else
    (void)snprintf(out, LABEL_BYTES, "%" PRId64 "-%" PRId64 ":", first, 2 * first - 1);
}

static void place_label(int index, char out[LABEL_BYTES]) { (void)snprintf(out, LABEL_BYTES, "0.%d:", index); }

static void append_lines(const hark_ahca_report *report, hark_text *text) {
  hark_text_append(text, "  %-22s %.2f, of %.2f tokens, %.0f to %.0f\n", "chunks a sequence", report->chunks, report->tokens,
                   report->shortest, report->longest);
  append_fractions("tokens of a chunk", report->lengths, HARK_AHCA_LENGTHS, length_label, text);
  if (!isnan(report->depth)) hark_text_append(text, "  %-22s %.3f\n", "layers on average", report->depth);
  append_fractions("layers", report->depths, HARK_MAX_DEPTH, depth_label, text);
  append_fractions("selected from place", report->places, HARK_AHCA_PLACES, place_label, text);
}

static void append_member(const hark_ahca_report *report, hark_text *text) {
  hark_ahca_report copy = *report;
  char name[HARK_AHCA_NAME_BYTES];
  bool begun = false;
  hark_text_append(text, ", \"ahca\": {");
  for (int i = 0;; i++) {
    const double *number = hark_ahca_report_number(&copy, i, name);
    if (number == NULL) break;
    if (isnan(*number)) continue;
    hark_text_append(text, "%s\"%s\": ", begun ? ", " : "", name + strlen(PREFIX));
    hark_json_append_number(text, *number);
    begun = true;
  }
  hark_text_append(text, "}");
}

void hark_ahca_decisions_append(const hark_ahca_statistics *statistics, hark_text *text) {
  if (statistics->list == NULL) return;
  hark_text_append(text, ", \"decisions\": [");
  hark_text_append_bytes(text, hark_text_get(statistics->list), statistics->list->length);
  hark_text_append(text, "]");
}

void hark_ahca_text_append(const hark_ahca_report *report, bool json, hark_text *text) {
  if (isnan(report->chunks)) return;
  (json ? append_member : append_lines)(report, text);
}
